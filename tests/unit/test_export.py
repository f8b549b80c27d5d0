"""`nbgrader export`: a missing score is a blank with a reason, not a zero, and a name is never a formula."""

import csv
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGrader
from nbgrader.coursedir import CourseDirectory

from autograder.grading.plugins import nbgrader_patches
from autograder.grading.plugins.export import COLUMNS, GradesWithReasons
from autograder.grading.plugins.gradebook import mark_not_graded


@pytest.fixture
def gradebook(tmp_path: Path) -> Gradebook:
    """Ada has 3 of 5 points, Boole submitted an unreadable file, Cantor nothing; one is late, one writes formulas."""
    nbgrader_patches.apply()
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as made:
        for week in ("week1", "week2"):
            made.add_assignment(week)
            made.add_notebook(week, week)
            made.add_grade_cell("a_tests", week, week, max_score=5, cell_type="code")
            made.add_solution_cell("a", week, week)
        for student in ("ada", "boole", "cantor"):
            made.add_student(student, last_name="=HYPERLINK(1)", first_name=student.capitalize())
        for student in ("ada", "boole"):
            made.add_submission("week1", student)
        grade = made.find_grade("a_tests", "week1", "week1", "ada")
        grade.auto_score, grade.needs_manual_grade = 3.0, False
        made.find_grade("a_tests", "week1", "week1", "boole").manual_score = 1.0  # of an earlier hand-in
        mark_not_graded(made.find_submission_notebook("week1", "week1", "boole"), "-not a notebook")
        made.db.commit()
        yield made


def exported(gradebook: Gradebook, path: Path, **chosen: object) -> dict[tuple[str, str], dict[str, str]]:
    course = NbGrader()
    course.coursedir = CourseDirectory(root=str(path.parent))
    GradesWithReasons(parent=course, to=str(path), **chosen).export(gradebook)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(list(row) == COLUMNS for row in rows)
    return {(row["assignment"], row["student_id"]): row for row in rows}


def test_graded_not_gradable_and_not_submitted(gradebook: Gradebook, tmp_path: Path) -> None:
    rows = exported(gradebook, tmp_path / "grades.csv")
    ada, boole, cantor = (rows["week1", student] for student in ("ada", "boole", "cantor"))
    assert (ada["score"], ada["raw_score"], ada["max_score"], ada["reason"]) == ("3.0", "3.0", "5.0", "")
    assert (boole["score"], boole["raw_score"]) == ("", "")
    assert (cantor["score"], cantor["reason"]) == ("0.0", "no submission")
    gradebook.find_grade("a_tests", "week1", "week1", "boole").needs_manual_grade = False  # saved anew in formgrader
    mark_not_graded(gradebook.find_submission_notebook("week1", "week1", "boole"), "-not a notebook")  # by a regrade
    assert exported(gradebook, tmp_path / "grades.csv")["week1", "boole"]["score"] == "1.0"


def test_a_penalty_takes_all_at_most(gradebook: Gradebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.grading.plugins.export.renew_penalties", lambda *of: [])
    for penalty, left in ((1.0, "2.0"), (4.0, "0.0")):
        gradebook.find_submission_notebook("week1", "week1", "ada").late_submission_penalty = penalty
        gradebook.db.commit()
        row = exported(gradebook, tmp_path / "grades.csv")["week1", "ada"]
        assert (row["score"], row["late_submission_penalty"], row["raw_score"]) == (left, str(penalty), "3.0")


def test_a_spreadsheet_takes_no_text_for_a_formula(gradebook: Gradebook, tmp_path: Path) -> None:
    row = exported(gradebook, tmp_path / "grades.csv")["week1", "boole"]
    assert row["last_name"] == "'=HYPERLINK(1)" and row["reason"] == "'-not a notebook"


def test_students_and_assignments_can_be_chosen(gradebook: Gradebook, tmp_path: Path) -> None:
    assert set(exported(gradebook, tmp_path / "a.csv", student=["ada"])) == {("week1", "ada"), ("week2", "ada")}
    assert set(exported(gradebook, tmp_path / "b.csv", assignment=["week2"], student=["ada", "boole"])) == {
        ("week2", "ada"),
        ("week2", "boole"),
    }


def test_who_has_handed_in_and_is_not_in_the_gradebook_has_a_row(gradebook: Gradebook, tmp_path: Path) -> None:
    for folder in ("dirac/week1", "cantor/Week 1", "week2/cantor"):
        (tmp_path / "submitted" / folder).mkdir(parents=True)
    rows = exported(gradebook, tmp_path / "grades.csv")
    row = rows["week1", "dirac"]
    assert (row["score"], row["reason"]) == ("", "handed in, but not in the gradebook: run autograde again")
    assert [rows[week, "cantor"]["score"] for week in ("week1", "week2")] == ["", ""]
    assert rows["week1", "cantor"]["reason"].startswith("not graded: submitted/cantor/Week 1: the folder")
