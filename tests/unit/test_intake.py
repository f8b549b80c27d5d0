"""Recognising the cells of a notebook that has lost its ids."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE
from nbformat.v4 import new_code_cell

from autograder.course import Cell, Role, instructor_cells
from autograder.errors import CourseError, UngradableError
from autograder.grading.messages import Task
from autograder.grading.submission import intake
from autograder.grading.submission.forward import Forward, brought_forward
from autograder.manifest import MANIFEST

WEEK1 = "week1_permutation_equivariance"


def without_ids(assignment: str, new: bool) -> dict:
    notebook = json.loads((COURSE / "notebooks" / assignment / f"{assignment}.ipynb").read_text(encoding="utf-8"))
    for number, cell in enumerate(notebook["cells"]):
        cell["metadata"] = {}
        cell["id"] = f"cell-{number}" if new else None
    return notebook


def write(notebook: dict, assignment: str, tmp_path: Path) -> Path:
    path = tmp_path / f"{assignment}.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("assignment", "remedy"),
    [("week3_rope", "run `make build WEEK=week3_rope`"), ("mine", "an assignment of your own has one notebook")],
)
def test_without_its_source_an_assignment_says_what_to_do(assignment: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=f"{assignment}.ipynb is missing: {remedy}"):
        instructor_cells(tmp_path, assignment)


def test_an_assignment_may_have_a_capital_in_its_name(tmp_path: Path) -> None:
    source, handed_in = tmp_path / "source" / "Homework1", tmp_path / "submitted" / "ada" / "Homework1"
    for folder in (source, handed_in):
        folder.mkdir(parents=True)
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path)
    shutil.copy(COURSE / "source" / "week3_rope" / "week3_rope.ipynb", source / "Homework1.ipynb")
    for name in ("Homework1.ipynb", "Homework1-Copy1.ipynb"):
        shutil.copy(COURSE / "solutions" / "week3_rope" / "week3_rope.ipynb", handed_in / name)
    notes = intake.rebuild(handed_in, tmp_path, "Homework1").notes
    assert notes == ["other files were submitted and not used: Homework1-Copy1.ipynb"]


@pytest.mark.parametrize("others", [intake.MAX_OTHERS, intake.MAX_OTHERS + 1])
def test_a_blank_notebook_before_many_others_is_no_silent_0(others: int, tmp_path: Path) -> None:
    for name in (WEEK1, *(f"copy{number:02}" for number in range(1, others + 1))):
        shutil.copy(COURSE / "notebooks" / WEEK1 / f"{WEEK1}.ipynb", tmp_path / f"{name}.ipynb")
    shutil.copy(COURSE / "solutions" / WEEK1 / f"{WEEK1}.ipynb", last := tmp_path / f"copy{others:02}.ipynb")
    if others > intake.MAX_OTHERS:
        with pytest.raises(UngradableError, match="none of the first 11 notebooks holds answers; keep the one"):
            intake.rebuild(tmp_path, COURSE, WEEK1)
    else:
        assert f"{last.name} holds" in " ".join(intake.rebuild(tmp_path, COURSE, WEEK1).warnings)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("assignment", MANIFEST)
def test_the_courses_cells_are_not_run_as_the_students(assignment: str, new: bool, tmp_path: Path) -> None:
    rebuilt = intake.rebuild(write(without_ids(assignment, new), assignment, tmp_path), COURSE, assignment)
    template = instructor_cells(COURSE, assignment)
    code = [cell for cell in rebuilt.notebook.cells if cell.cell_type == "code"]
    theirs = [cell for cell in code if cell.id.startswith("student-")]
    assert len(theirs) <= 1 and all("Opened alone?" in cell.source for cell in theirs), theirs
    assert [cell.id for cell in code if cell not in theirs] == [
        cell.id for cell in template if cell.cell_type == "code"
    ]


def test_a_notebook_of_another_week_holds_none_of_the_exercises(tmp_path: Path) -> None:
    notebook = (COURSE / "notebooks/week2_sinusoidal/week2_sinusoidal.ipynb").read_text(encoding="utf-8")
    path = write(json.loads(notebook), "week3_rope", tmp_path)
    with pytest.raises(UngradableError, match="looks like the notebook of week2"):
        intake.rebuild(path, COURSE, "week3_rope")


def test_a_hidden_test_of_as_many_points_makes_no_notebook_of_this_week(tmp_path: Path) -> None:
    """The cells of hidden tests read alike in all weeks."""
    notebook = json.loads((COURSE / "notebooks/week2_sinusoidal/week2_sinusoidal.ipynb").read_text(encoding="utf-8"))
    cell = next(cell for cell in notebook["cells"] if "".join(cell["source"]).startswith("# Hidden tests ("))
    cell["source"] = "# Hidden tests (1 point): they run when your notebook is graded."
    with pytest.raises(UngradableError, match="looks like the notebook of week2"):
        intake.rebuild(write(notebook, "week3_rope", tmp_path), COURSE, "week3_rope")


def test_a_cell_of_the_students_own_stays_where_it_stands(tmp_path: Path) -> None:
    assignment = "week3_rope"
    notebook, template = without_ids(assignment, new=True), instructor_cells(COURSE, assignment)
    at = next(n for n, cell in enumerate(notebook["cells"]) if "def rope_frequencies" in "".join(cell["source"]))
    answer = "".join(notebook["cells"][at]["source"]) + "\n# mine"
    notebook["cells"][at]["source"] = answer
    own = {"cell_type": "code", "metadata": {}, "source": "set_default_dtype()", "outputs": [], "execution_count": None}
    copy = dict(own, source="".join(instructor_source(template, "rope_frequencies")))
    notebook["cells"][at + 1 : at + 1] = [own]
    notebook["cells"].insert(at, copy)  # the stub again, above: the last cell of that name counts
    rebuilt = intake.rebuild(write(notebook, assignment, tmp_path), COURSE, assignment)
    sources = [cell.source for cell in rebuilt.notebook.cells]
    assert sources[sources.index(answer) + 1] == "set_default_dtype()"
    assert "it sets PyTorch's default dtype; grading calls every answer with the usual one, float32" in rebuilt.notes


def test_no_definition_of_a_hidden_test_is_brought_forward() -> None:
    cells = [Cell(name, name, role, "code", "", {}, points) for name, role, points in
             (("f", Role.ANSWER, 0), ("f_check", Role.TEST, 0), ("f_tests", Role.TEST, 2))]  # fmt: skip
    template = [replace(cell, source=f"def from_{cell.id}(): pass") for cell in cells]
    own = new_code_cell("def g():\n    from_f_check = 1", id="own")  # a name of its own, inside
    answer = new_code_cell("def f(): return from_f_check() + from_f_tests()", id="f")
    assert brought_forward([own, answer], template) == [Forward("f", "def from_f_check(): pass", ("from_f_check",))]


@pytest.mark.parametrize("assignment", MANIFEST)
def test_what_is_made_is_a_notebook(assignment: str, tmp_path: Path) -> None:
    """The notebook is assembled without nbformat's checks."""
    submitted = without_ids(assignment, new=True)
    submitted["cells"] += [
        {"cell_type": kind, "id": f"own-{kind}", "metadata": {}, "source": "x = 1"}
        for kind in ("code", "markdown", "raw")
    ]
    rebuilt = intake.rebuild(write(submitted, assignment, tmp_path), COURSE, assignment).notebook
    for notebook in (rebuilt, intake.unreadable(COURSE, assignment, "It is empty.")):
        nbformat.validate(nbformat.from_dict(json.loads(nbformat.writes(notebook))))


def instructor_source(template: tuple, name: str) -> str:
    return next(cell.source for cell in template if cell.grade_id == name and cell.role is Role.ANSWER)


@pytest.mark.parametrize(
    ("metadata", "python"),
    [
        ({"language_info": {"name": "python", "version": "3.12.4"}}, "3.12.4"),
        ({"language_info": {"version": "3.13.0rc2"}}, "3.13.0rc2"),
        ({"language_info": {"version": "3.12 <b>x</b>"}}, ""),
        ({"language_info": {"version": 3.12}}, ""),
        ({"language_info": ["3.12"]}, ""),
        ([], ""),
        ({}, ""),
    ],
)
def test_the_version_of_python_is_kept_where_the_notebook_says_it(
    metadata: object, python: str, tmp_path: Path
) -> None:
    notebook = without_ids("week3_rope", new=True) | {"metadata": metadata}
    path = write(notebook, "week3_rope", tmp_path)
    rebuilt = intake.rebuild(path, COURSE, "week3_rope").notebook
    assert Task.of("ada", "week3_rope", rebuilt, instructor_cells(COURSE, "week3_rope"), {}, 0).python == python


@pytest.mark.parametrize(
    "markup", ["<script>", "<SCRIPT>", "</p>", "<!--", "&lt;", "&#60;", "[a](JavaScript:b)", "data:x"]
)
def test_what_a_student_writes_is_no_markup(markup: str) -> None:
    shown = intake._without_markup(f"a < b & c, {markup}")
    assert markup not in shown and shown.replace("\u200b", "") == f"a < b & c, {markup}"
    assert intake._without_markup("<https://arxiv.org>") == "<https://arxiv.org>"
