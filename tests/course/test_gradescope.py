"""The zip for Gradescope, run as Gradescope runs it: unpack, set-up, submission, run_autograder, results.json."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, autograder, environment

from autograder.errors import CourseError
from autograder.gradescope import package, results_of
from autograder.manifest import MANIFEST

WEEK1 = "week1_permutation_equivariance"
# https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format"
OF_ALL = {
    "score",
    "execution_time",
    "output",
    "output_format",
    "visibility",
    "stdout_visibility",
    "extra_data",
    "tests",
}
OF_A_TEST = {
    "score",
    "max_score",
    "status",
    "name",
    "name_format",
    "number",
    "output",
    "output_format",
    "tags",
    "visibility",
}


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradescope's /autograder folder after set-up. The packages are those of the tests; nothing is downloaded."""
    root = tmp_path_factory.mktemp("gradescope") / "autograder"
    archive = package(COURSE, WEEK1)
    try:
        (root / "source").mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "zipfile", "-e", str(archive), str(root / "source")], check=True)
    finally:
        archive.unlink()
    shutil.copy(root / "source" / "run_autograder", root / "run_autograder")
    run_script(root / "source" / "setup.sh", root, AUTOGRADER_PYTHON=sys.executable)
    return root


def run_script(script: Path, root: Path, code: int = 0, **more: str) -> str:
    script.chmod(0o755)
    variables = environment(AUTOGRADER_ROOT=str(root), **more)
    del variables["PYTHONPATH"]  # the course is in the zip
    done = subprocess.run([script], cwd=root, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def submitted(root: Path, content: str, name: str = f"{WEEK1}.ipynb") -> dict:
    """Run one submission as Gradescope's harness does and return its results."""
    for folder in ("submission", "results"):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir()
    (root / "submission" / name).write_text(content, encoding="utf-8")
    run_script(root / "run_autograder", root)
    return json.loads((root / "results" / "results.json").read_text(encoding="utf-8"))


def test_the_zip_has_the_scripts_on_top_and_nobodys_work(container: Path) -> None:
    names = [path.relative_to(container / "source").as_posix() for path in (container / "source").rglob("*")]
    assert {"setup.sh", "run_autograder", f"course/source/{WEEK1}/{WEEK1}.ipynb"} <= set(names)
    assert not [name for name in names if "gradebook" in Path(name).suffix or "submitted" in name or ".git" in name]


def test_the_same_course_gives_the_same_zip() -> None:
    first = package(COURSE, WEEK1)
    content = first.read_bytes()
    assert package(COURSE, WEEK1).read_bytes() == content
    with zipfile.ZipFile(first) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    first.unlink()
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert os.fspath(COURSE) not in content.decode("latin-1")


def test_neither_an_outdated_week_nor_a_mistyped_index_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CourseError, match="'foo' does not begin with https"):
        package(COURSE, WEEK1, "foo")
    monkeypatch.setattr("autograder.build.release.stale_products", lambda root, text: [text.name])
    with pytest.raises(CourseError, match="make build WEEK=1"):
        package(COURSE, WEEK1)


def test_an_exercise_without_points_is_there_and_one_that_nobody_has_read_is_not() -> None:
    scores = {"1.1": 2.0, "1.2": 0.0, "1.3": None}
    exercises = [{"number": n, "name": n, "points": 2.0, "score": score, "feedback": []} for n, score in scores.items()]
    tests = results_of({"exercises": exercises, "notes": []})["tests"]
    assert [(test["number"], test["score"], test["max_score"]) for test in tests] == [
        ("1.1", 2.0, 2.0),
        ("1.2", 0.0, 2.0),
    ]


@pytest.mark.isolation
def test_a_submission_gets_a_test_per_exercise_and_the_first_line_of_its_feedback(container: Path) -> None:
    notebook = nbformat.read(COURSE / "solutions" / WEEK1 / f"{WEEK1}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "causal_mask":
            cell.source = "def causal_mask(seq_len):\n    return torch.ones(seq_len, seq_len, dtype=torch.bool)"
    text = nbformat.writes(notebook)
    results = submitted(container, text, name="my week 1.ipynb")
    assert set(results) <= OF_ALL and all(set(test) <= OF_A_TEST for test in results["tests"])
    graded = [entry for entry in MANIFEST[WEEK1] if entry.kind != "text"]
    assert [test["name"] for test in results["tests"]] == [f"{e.number} {e.grade_id}" for e in graded]
    assert [test["max_score"] for test in results["tests"]] == [entry.points for entry in graded]
    short = {test["name"]: test["output"] for test in results["tests"] if test["score"] < test["max_score"]}
    assert list(short) == ["1.5 causal_mask"] and short["1.5 causal_mask"] and "\n" not in short["1.5 causal_mask"]
    assert "1.4 equivariant_or_invariant: 3 points" in results["output"]

    path = container / "submission" / "my week 1.ipynb"
    checked = json.loads(autograder("check", str(path), "--json").stdout)
    assert [e["score"] for e in checked["exercises"] if e["score"] is not None] == [
        t["score"] for t in results["tests"]
    ]
    assert checked["assignment"] == WEEK1 and checked["isolated"]


@pytest.mark.isolation
def test_what_cannot_be_read_says_so_and_can_be_handed_in_again(container: Path) -> None:
    results = submitted(container, "{")
    assert results["score"] == 0 and results["output"].startswith("Not graded: the file is not a notebook")
