"""What students receive: enough to work with, and nothing that they may not see."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
from course.weeks import WEEKS, by_week, by_week_mostly_at_night, secret_lines
from helpers import COURSE, autograder, copy_of_course

from autograder.build.release import NAME, release
from autograder.errors import CourseError
from autograder.manifest import MANIFEST

PACKAGE_OF = {"IPython": "ipython", "PIL": "pillow"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_course(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def released(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip of all weeks, unpacked in an empty directory; leftovers of an earlier release are gone."""
    (root / "release" / NAME / "week9_left_over").mkdir(parents=True)
    (root / "release" / NAME / "week9_left_over" / "ready.py").touch()
    folder, archive = release(root)
    target = tmp_path_factory.mktemp("student")
    with zipfile.ZipFile(archive) as content:
        content.extractall(target)
    names = {path.relative_to(target / NAME) for path in (target / NAME).rglob("*") if path.is_file()}
    assert names == {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return target / NAME


def notebook_of(released: Path, assignment: str) -> nbformat.NotebookNode:
    return nbformat.read(released / assignment / f"{assignment}.ipynb", as_version=4)


def test_only_what_students_may_have(released: Path) -> None:
    assert {path.name for path in released.iterdir()} == {"README.md", "requirements.txt", "environment.yml", *MANIFEST}
    suffixes = {path.suffix for path in released.glob("week*/*")}
    assert suffixes <= {".ipynb", ".py", ".json", ".npz"}
    for path in released.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (
            b"### BEGIN ",
            b"### END ",
            b"autograder.",
            b"MARK SCHEME",
            b"BEGIN SOLUTION",
            b"misconceptions",
        ):
            assert secret not in content, path


@by_week
def test_no_line_of_a_solution_a_rubric_or_the_grader(released: Path, text: Path) -> None:
    files = [
        path
        for path in (*released.iterdir(), *(released / text.stem).iterdir())
        if path.suffix in (".ipynb", ".py", ".md", ".txt", ".yml")
    ]
    content = "\n".join(
        "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        if path.suffix == ".ipynb"
        else path.read_text(encoding="utf-8")
        for path in files
    )
    assert [line for line in secret_lines(text) if line in content] == []


@by_week
def test_notebooks_open_and_keep_what_grading_needs(released: Path, text: Path) -> None:
    notebook = notebook_of(released, text.stem)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)


@by_week_mostly_at_night(7)
def test_setup_cells_run_where_there_is_nothing_else(released: Path, text: Path) -> None:
    notebook = notebook_of(released, text.stem)
    code = "\n".join(cell.source for cell in notebook.cells if "setup" in cell.metadata.get("tags", []))
    assert code
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    code += "\nimport sys\nassert 'autograder' not in sys.modules\nprint('it ran')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=released / text.stem,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "it ran" in done.stdout, done.stderr


@by_week
def test_every_import_and_every_file_is_there(released: Path, text: Path) -> None:
    folder = released / text.stem
    cells = [cell.source for cell in notebook_of(released, text.stem).cells if cell.cell_type == "code"]
    sources = cells + [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    packages = {line.split("==")[0] for line in (released / "requirements.txt").read_text().splitlines()}
    siblings = {path.stem for path in folder.glob("*.py")}
    for name in set().union(*map(_imports, sources)):
        known = name in sys.stdlib_module_names or name in siblings
        assert known or PACKAGE_OF.get(name, name) in packages, name
    for name in set(re.findall(r"[\"'](\w+\.(?:npz|json|py|csv|pt))[\"']", "\n".join(sources))):
        assert (folder / name).is_file(), name


def _imports(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(re.sub(r"(?m)^%.*$", "", source))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found


def test_packages_are_the_courses_pins_without_the_graders(released: Path) -> None:
    pins = tomllib.loads((COURSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    lines = (released / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert {"torch==2.13.0"} < set(lines) < set(pins)
    assert {line.split("==")[0] for line in lines} >= {
        "torch",
        "numpy",
        "matplotlib",
        "jupyterlab",
        "nbgrader",
        "soupsieve",
    }
    assert re.findall(r"- (\S+==\S+)", (released / "environment.yml").read_text(encoding="utf-8")) == lines


def test_two_runs_give_the_same_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = release(root, "1")[1]
    first = archive.read_bytes()
    with zipfile.ZipFile(archive) as content:
        assert {entry.external_attr >> 16 for entry in content.infolist()} == {0o644}
    for path in root.glob("notebooks/week1*/*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)  # years later
    assert release(root, " 1,")[1].read_bytes() == first


@pytest.mark.nightly
def test_some_weeks(root: Path) -> None:
    done = autograder("--root", str(root), "student-release", "--week", "2, 1")
    assert sorted(path.name for path in (root / "release" / NAME).glob("week*")) == [text.stem for text in WEEKS[:2]]
    assert "positional-encodings-students.zip" in done.stdout
    assert "there is no week '9'" in autograder("--root", str(root), "student-release", "--week", "1,9", code=2).stderr


@pytest.mark.parametrize("folder", ["notebooks", "source"])
def test_a_notebook_edited_by_hand_is_refused(folder: str, tmp_path: Path) -> None:
    root = copy_of_course(tmp_path)
    path = root / folder / WEEKS[0].stem / f"{WEEKS[0].stem}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"][0]["source"] += "\nA hint that I typed in JupyterLab."
    path.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(CourseError, match=rf"{folder}/week1.*(?s:.*)make build WEEK=1"):
        release(root, "1")
    assert not (root / "release").exists()


@pytest.mark.parametrize(
    ("line", "named"), [("### BEGIN SOLUTION", "### BEGIN "), ("import autograder.checks", "autograder.")]
)
def test_a_secret_that_slipped_through_is_refused(line: str, named: str, tmp_path: Path) -> None:
    root = copy_of_course(tmp_path)
    for path in (root / "source" / "lab.py", *root.glob("*/week1*/lab.py")):
        path.write_text(path.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(CourseError, match=f"lab.py contains '{re.escape(named)}'"):
        release(root, "1")
