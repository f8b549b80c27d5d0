"""The build chain: one way, byte-stable, and without leaks."""

import json
import os
import shutil
import tomllib
from pathlib import Path

import nbformat
import pytest
from course.weeks import WEEKS, by_week, by_week_mostly_at_night
from helpers import COURSE, autograder
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.build.full_answers import OPENING, TAG, add_full_answers
from autograder.build.pipeline import _recorded_digest, build, import_week
from autograder.build.preprocessors import ClearAnswers, FullAnswers, KeepSolution, ReleaseMetadata, StorePicturesOnce
from autograder.build.regions import clear_hidden, clear_solution, extract_region, replace_region
from autograder.build.text import TextError, to_notebook, to_text
from autograder.course import course_config
from autograder.errors import CourseError
from autograder.manifest import RELEASED_FILES, SHARED_FILES


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Path:
    """The week of a test that is not parametrized over weeks."""
    return getattr(request, "param", WEEKS[0])


@pytest.fixture
def copy(tmp_path: Path, text: Path) -> Path:
    """A copy of one week's sources and products that a test may change."""
    root = tmp_path / "course"
    root.mkdir()
    for folder in ("source", "notebooks", "solutions"):
        shutil.copytree(COURSE / folder / text.stem, root / folder / text.stem)
    for path in (COURSE / "source").iterdir():
        if path.is_file() and (path == text or path not in WEEKS):
            shutil.copy(path, root / "source")
        elif path.name.endswith("_pictures"):
            shutil.copytree(path, root / "source" / path.name)
    shutil.copy(COURSE / "nbgrader_config.py", root)
    return root


@by_week
def test_products_are_what_the_text_builds(copy: Path, text: Path) -> None:
    (copy / "notebooks" / text.stem / "notes.pdf").touch()  # an instructor's own file, which stays
    (copy / "notebooks" / text.stem / "weights_of_last_year.npz").touch()
    assert build(copy, copy / "source" / text.name) == [f"notebooks/{text.stem}/weights_of_last_year.npz (removed)"]


@by_week_mostly_at_night(3)
def test_building_from_nothing_gives_the_same_notebooks(copy: Path, text: Path) -> None:
    for folder in ("source", "notebooks"):
        shutil.rmtree(copy / folder / text.stem)
    build(copy, copy / "source" / text.name)
    for folder in ("source", "notebooks"):
        for path in sorted((COURSE / folder / text.stem).iterdir()):
            if path.suffix in (".ipynb", ".py"):
                assert (copy / folder / text.stem / path.name).read_bytes() == path.read_bytes(), path


@by_week
def test_text_and_notebook_are_two_forms_of_one_thing(text: Path) -> None:
    source = text.read_text(encoding="utf-8")
    notebook = to_notebook(source)
    assert to_text(notebook) == source, f"{text.name}: jupytext writes it in another way, for example other blank lines"
    assert to_notebook(to_text(notebook)) == notebook


@by_week
def test_students_get_these_files_and_no_others(text: Path) -> None:
    """What is in them: test_release.py, which releases the same files."""
    released = COURSE / "notebooks" / text.stem
    assert sorted(path.name for path in released.iterdir() if path.is_file()) == sorted(
        [*SHARED_FILES, f"{text.stem}.ipynb", *RELEASED_FILES.get(text.stem, ())]
    )


@by_week
def test_solutions_are_executed_and_bare(text: Path) -> None:
    solution = nbformat.read(COURSE / "solutions" / text.stem / f"{text.stem}.ipynb", as_version=4)
    rebuilt, _ = KeepSolution().preprocess(to_notebook(text.read_text(encoding="utf-8")), {})  # not executed
    for cell in (*solution.cells, *rebuilt.cells):
        assert "SOLUTION" not in cell.source and "MARK SCHEME" not in cell.source and "autograder." not in cell.source
    for cell in solution.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None
            assert not any(output.output_type == "error" for output in cell.outputs)
            assert "execution" not in cell.metadata


@by_week
def test_solutions_show_the_mark_schemes_and_students_notebooks_do_not(text: Path) -> None:
    schemes = [
        scheme
        for cell in to_notebook(text.read_text(encoding="utf-8")).cells
        if (scheme := extract_region(cell.source, "MARK SCHEME"))
    ]
    assert schemes
    solution = nbformat.read(COURSE / "solutions" / text.stem / f"{text.stem}.ipynb", as_version=4)
    shown = [cell.source for cell in solution.cells if TAG in cell.metadata.get("tags", [])]
    assert shown == [f"{OPENING}\n\n{scheme}" for scheme in schemes]
    assert OPENING not in (COURSE / "notebooks" / text.stem / f"{text.stem}.ipynb").read_text(encoding="utf-8")


def test_an_answer_without_a_scheme_gets_none() -> None:
    def answer(name: str) -> nbformat.NotebookNode:
        return new_markdown_cell("", metadata={"nbgrader": {"grade_id": name, "grade": True, "solution": True}})

    question = new_markdown_cell("Why?\n\n### BEGIN MARK SCHEME\nBy symmetry.\n### END MARK SCHEME")
    notebook = new_notebook(cells=[question, answer("a"), new_markdown_cell("And then?"), answer("b")])
    add_full_answers(notebook, notebook)
    assert [cell.id for cell in notebook.cells if "By symmetry." in cell.source][1:] == [f"a-{TAG}"]


def test_import_brings_an_edit_back_and_refuses_when_the_text_is_newer(copy: Path, text: Path) -> None:
    text = copy / "source" / text.name
    path = copy / "source" / text.stem / f"{text.stem}.ipynb"
    assert import_week(copy, text) is False
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source += "\n\nA sentence typed in JupyterLab."
    nbformat.write(notebook, path)
    os.utime(text, (1, 1))
    os.utime(path, (2, 2))
    assert import_week(copy, text) is True
    assert "# A sentence typed in JupyterLab." in text.read_text(encoding="utf-8")
    assert import_week(copy, text) is False
    notebook.cells[0].source += "\n\nAnother one."
    nbformat.write(notebook, path)
    os.utime(path, (1, 1))
    before = text.read_text(encoding="utf-8")
    with pytest.raises(CourseError, match="newer"):
        import_week(copy, text)
    notebook.cells.insert(1, new_code_cell("print(1)"))  # no week could be built from it
    nbformat.write(notebook, path)
    os.utime(path)
    with pytest.raises(TextError, match="neither graded nor locked nor tagged"):
        import_week(copy, text)
    assert text.read_text(encoding="utf-8") == before


@pytest.mark.nightly
def test_a_failing_solution_is_reported_and_leaves_everything_as_it_was(copy: Path, text: Path) -> None:
    text = copy / "source" / text.name
    broken = '# %% tags=["experiment"]\nraise RuntimeError("broken demonstration")\n\n# %% [markdown]\n'
    text.write_text(text.read_text(encoding="utf-8").replace("# %% [markdown]\n", broken, 1), encoding="utf-8")
    before = {path: path.read_bytes() for path in copy.rglob("*.ipynb")}
    done = autograder("--root", str(copy), "build", "--week", text.stem, code=2)
    assert "broken demonstration" in done.stderr
    assert {path: path.read_bytes() for path in copy.rglob("*.ipynb")} == before


def test_rules_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "merged.ipynb").write_text("<<<<<<< HEAD\n")
    assert _recorded_digest(tmp_path / "merged.ipynb") is None
    with pytest.raises(TextError, match="neither graded nor locked nor tagged"):
        to_notebook("# %%\nprint(1)\n")
    with pytest.raises(TextError, match="grade_id"):
        to_notebook('# %% nbgrader={"solution": true}\nprint(1)\n')
    with pytest.raises(TextError, match="no points"):
        to_notebook('# %% nbgrader={"grade_id": "a", "grade": true}\nprint(1)\n')
    with pytest.raises(TextError, match="a fold is called 'After it'"):
        to_notebook("# %% [markdown]\n# <details><summary>After it</summary>x</details>\n")
    with pytest.raises(TextError, match="needs"):
        clear_solution({"cell_type": "code", "metadata": {}, "source": "x = 1"})
    with pytest.raises(TextError, match="without an END, in the cell that begins 'f = 1'"):
        replace_region("f = 1\n### BEGIN SOLUTION\nx", "SOLUTION")
    for new_cell in (new_code_cell, new_markdown_cell):
        with pytest.raises(TextError, match="no answer cell"):
            ClearAnswers().preprocess_cell(new_cell("### BEGIN SOLUTION\nx\n### END SOLUTION"), {}, 0)


@pytest.mark.parametrize(
    ("name", "points", "says"),
    [
        ("rope_frequencies_tests", 3, "rope_frequencies_tests has 3 points, exercise 3.2 in .*manifest.py 2"),
        ("rope_frequency_tests", 2, "rope_frequency_tests has points and no exercise in .*manifest.py; .*mistyped"),
        ("rope_frequencies_tests", 2, "no cell has points and the name .*_tests, as exercise 3"),
    ],
)
def test_text_and_manifest_have_the_same_exercises_and_points(
    name: str, points: int, says: str, tmp_path: Path
) -> None:
    text = tmp_path / "week3_rope.py"
    text.write_text(f'# %% nbgrader={{"grade_id": "{name}", "grade": true, "points": {points}}}\n')
    with pytest.raises(TextError, match=says):
        build(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "week3.rotate_half(rotate_half)",
            "week3.rope_frequencies(rotate_half)",
            "call its own hidden test: week3.rot",
        ),
        ('"rotate_half", "sol', '"rotate_halves", "sol', "no answer cell rotate_half, which rotate_half_tests"),
    ],
)
def test_every_exercise_has_its_answer_and_its_own_hidden_test(old: str, new: str, says: str, tmp_path: Path) -> None:
    text = (COURSE / "source" / "week3_rope.py").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / "week3_rope.py").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(TextError, match=says):
        build(tmp_path, tmp_path / "week3_rope.py")


def test_every_hidden_region_of_a_cell_is_removed() -> None:
    region = "### BEGIN HIDDEN TESTS\nassert secret\n### END HIDDEN TESTS\n"
    assert clear_hidden(f"first()\n{region}second()\n{region}") == "first()\nsecond()"
    with pytest.raises(TextError, match="without an END"):
        clear_hidden("### BEGIN HIDDEN TESTS\nassert secret")


def test_equal_cells_have_ids_of_their_own() -> None:
    ids = [cell.id for cell in to_notebook("# %% [markdown]\n# *Your prediction:*\n\n" * 3).cells]
    assert ids == [ids[0], f"{ids[0]}-2", f"{ids[0]}-3"]  # nbformat would make equal ones different, at random


def test_environment_yml_has_the_pins_of_pyproject() -> None:
    project = tomllib.loads((COURSE / "pyproject.toml").read_text())["project"]
    pins = project["dependencies"] + project["optional-dependencies"]["site"]
    listed = [line.strip().removeprefix("- ") for line in (COURSE / "environment.yml").read_text().splitlines()]
    assert pins == [line for line in listed if "==" in line]


def test_committed_notebooks_are_valid_and_small() -> None:
    for path in COURSE.glob("*/week*/*.ipynb"):
        if path.parts[-3] in ("source", "notebooks", "solutions"):
            nbformat.validate(json.loads(path.read_text(encoding="utf-8")))
            assert path.stat().st_size < 5_000_000


@by_week
def test_a_solution_made_by_plain_nbgrader_is_finished_as_by_build(text: Path) -> None:
    """`nbgrader generate_solution` must not dirty the tree: its configuration does what follows the execution."""
    path = COURSE / "solutions" / text.stem / f"{text.stem}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if TAG not in cell.metadata.get("tags", [])]
    del notebook.metadata["course"]
    resources = {
        "metadata": {"path": str(COURSE / "source" / text.stem)},
        "unique_key": text.stem,
        "nbgrader": {"assignment": text.stem},
    }
    for preprocessor in (StorePicturesOnce(), FullAnswers(), ReleaseMetadata()):
        notebook, _ = preprocessor.preprocess(notebook, resources)
    assert nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n" == path.read_text(encoding="utf-8")
    assert "autograder.build.preprocessors.FullAnswers" in course_config(COURSE).GenerateSolution.preprocessors
