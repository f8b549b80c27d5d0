"""An assignment is entered into the gradebook as nbgrader itself would enter it, and again after it has changed."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from helpers import COURSE
from nbformat.notebooknode import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearSolutions, ComputeChecksums, LockCells, SaveCells

from autograder.build.preprocessors import ClearAnswers
from autograder.classroom import make_course_root
from autograder.errors import CourseError
from autograder.grading.plugins.gradebook import register_assignment, save_scores
from autograder.grading.plugins.run_gradebook import RunGradebook

WEEK = "week1_permutation_equivariance"
OWN = "problems"
Rows = set[tuple[object, ...]]


def own_notebook() -> NotebookNode:
    def cell(kind: Callable[..., NotebookNode], name: str, **marks: object) -> NotebookNode:
        flags = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3} | marks
        return kind(f"# {name}", metadata={"nbgrader": {"grade_id": name} | flags})

    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    return nbformat.v4.new_notebook(
        cells=[
            cell(code, "given", locked=True),
            cell(code, "free"),
            cell(code, "tests", grade=True, locked=True, points=2),
            cell(text, "essay", grade=True, solution=True, points=3),
            cell(text, "task", task=True, points=4),
        ]
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_course_root(COURSE, tmp_path / "course", [WEEK])
    write(tmp_path / "course", own_notebook())
    return tmp_path / "course"


def write(root: Path, notebook: NotebookNode) -> None:
    path = root / "source" / OWN / f"{OWN}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)


def course(root: Path) -> CourseDirectory:
    return CourseDirectory(root=str(root))


def rows(gradebook: Gradebook, assignment: str) -> Rows:
    columns = ("max_score", "cell_type", "locked", "source", "checksum")
    notebook = gradebook.find_notebook(assignment, assignment)
    cells = [*notebook._base_cells, *notebook.source_cells]
    return {(type(cell).__name__, cell.name, *(getattr(cell, column, None) for column in columns)) for cell in cells}


def registered(root: Path, assignment: str = OWN) -> Rows:
    register_assignment(root, course(root), assignment)
    with Gradebook(course(root).db_url) as gradebook:
        return rows(gradebook, assignment)


@pytest.mark.parametrize("assignment", [WEEK, OWN])
def test_the_rows_are_those_that_nbgrader_would_write(root: Path, tmp_path: Path, assignment: str) -> None:
    url = f"sqlite:///{tmp_path / 'stock.db'}"
    notebook = nbformat.read(root / "source" / assignment / f"{assignment}.ipynb", as_version=4)
    where = {"notebook": assignment, "assignment": assignment, "db_url": url}
    with Gradebook(url) as gradebook:
        gradebook.add_assignment(assignment)
        for each in (LockCells, ClearAnswers if assignment == WEEK else ClearSolutions, ComputeChecksums, SaveCells):
            notebook, _ = each().preprocess(notebook, {"nbgrader": where})
    with Gradebook(url) as gradebook:
        expected = rows(gradebook, assignment)
    assert len(expected) > 5 and registered(root, assignment) == expected


def test_changed_cells_are_entered_while_nobody_has_handed_in(root: Path) -> None:
    before = registered(root)
    notebook = own_notebook()
    del notebook.cells[0]
    notebook.cells[1].metadata.nbgrader.points = 5
    write(root, notebook)
    after = registered(root)
    assert {row[1] for row in before} - {row[1] for row in after} == {"given"}
    assert {row[2] for row in after if row[:2] == ("GradeCell", "tests")} == {5}
    assert registered(root) == after


def test_where_submissions_exist_points_may_change_and_cells_may_not(root: Path) -> None:
    registered(root)
    with Gradebook(course(root).db_url) as gradebook:
        gradebook.add_student("ada")
        gradebook.add_submission(OWN, "ada")
    notebook = own_notebook()
    notebook.cells[2].metadata.nbgrader.points = 5
    write(root, notebook)
    assert ("GradeCell", "tests", 5) in {row[:3] for row in registered(root)}
    with Gradebook(course(root).db_url) as gradebook:
        assert gradebook.find_submission(OWN, "ada").max_score == 12
    new = own_notebook().cells[2]
    new.metadata.nbgrader.grade_id = "new"
    for changed in (notebook.cells[:2], [*notebook.cells, new]):
        write(root, nbformat.v4.new_notebook(cells=changed))
        with pytest.raises(CourseError, match="cells were added or removed after submissions"):
            registered(root)


def test_a_notebook_of_another_name_makes_way(root: Path) -> None:
    registered(root)
    with Gradebook(course(root).db_url) as gradebook:
        gradebook.add_notebook("earlier", OWN)
    registered(root)
    with Gradebook(course(root).db_url) as gradebook:
        assert [notebook.name for notebook in gradebook.find_assignment(OWN).notebooks] == [OWN]


@pytest.mark.parametrize(("by_hand", "waits"), [(None, False), (0.5, True)])
def test_points_by_hand_are_asked_for_again_when_the_answer_is_graded_again(by_hand: float | None, waits: bool) -> None:
    """The manual score stays, but it may have been given for another answer."""
    tests = next(cell for cell in own_notebook().cells if cell.metadata.nbgrader.grade_id == "tests")
    grade = SimpleNamespace(cell_id="a", auto_score=0.0, manual_score=by_hand, needs_manual_grade=False)
    save_scores(SimpleNamespace(grades=[grade], comments=[]), {"a": "tests"}, {"tests": tests}, {tests.id: 1.5})
    assert (grade.auto_score, grade.manual_score, grade.needs_manual_grade) == (1.5, by_hand, waits)


def test_a_time_goes_with_its_submission(root: Path) -> None:
    """A new submission without a time has none."""
    registered(root)
    with RunGradebook(course(root), OWN) as gradebook:
        for moment in (datetime(2026, 11, 17), None):
            saved = gradebook.rows("ada", moment)
            assert saved.assignment.timestamp == moment
            gradebook.save(saved)
