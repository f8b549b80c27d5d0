"""Every change of a score is in the log with the value before it, unless it is rolled back."""

import csv
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbgrader.api import Grade, Gradebook

from autograder.grading.plugins import nbgrader_patches
from autograder.grading.plugins.score_log import score_log, write_log


@pytest.fixture
def gradebook(tmp_path: Path) -> Iterator[Gradebook]:
    nbgrader_patches.apply()
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as made:
        made.add_assignment("week1")
        made.add_notebook("week1", "week1")
        made.add_grade_cell("a_tests", "week1", "week1", max_score=5, cell_type="code")
        for student in ("ada", "boole"):
            made.add_student(student)
            made.add_submission("week1", student)
        yield made


def grade_of(gradebook: Gradebook, student: str = "ada") -> Grade:
    return gradebook.find_grade("a_tests", "week1", "week1", student)


def logged(gradebook: Gradebook) -> list[tuple[str, str, float | None, float | None]]:
    return [(one.student, one.kind, one.before, one.after) for one in score_log(gradebook, "week1")]


def test_changes_are_logged_and_a_first_automatic_score_is_none(gradebook: Gradebook) -> None:
    grade = grade_of(gradebook)
    for name, value in (
        ("auto_score", 2.0),
        ("manual_score", 3.0),
        ("manual_score", 3.0),
        ("extra_credit", 0.5),
        ("manual_score", 4.5),  # after a commit the old value must be read again
        ("auto_score", 1.0),
        ("needs_manual_grade", False),
        ("manual_score", None),
    ):
        setattr(grade, name, value)
        gradebook.db.commit()
    assert logged(gradebook) == [
        ("ada", "by hand", None, 3.0),
        ("ada", "extra credit", None, 0.5),
        ("ada", "by hand", 3.0, 4.5),
        ("ada", "automatic", 2.0, 1.0),
        ("ada", "by hand", 4.5, None),
    ]
    assert score_log(gradebook, "week2") == []


def test_without_a_change_the_gradebook_has_no_table_more(gradebook: Gradebook, tmp_path: Path) -> None:
    grade_of(gradebook).auto_score = 2.0
    gradebook.db.commit()
    assert logged(gradebook) == []
    with sqlite3.connect(tmp_path / "gradebook.db") as database:
        assert not [name for (name,) in database.execute("select name from sqlite_master") if name == "score_log"]


def test_what_is_undone_is_not_logged(gradebook: Gradebook) -> None:
    grade_of(gradebook).manual_score = 1.0
    gradebook.db.commit()
    grade_of(gradebook).manual_score = 2.0
    gradebook.db.flush()
    gradebook.db.rollback()
    assert logged(gradebook) == [("ada", "by hand", None, 1.0)]


def test_a_student_who_is_removed_leaves_the_log_and_the_others_stay(gradebook: Gradebook) -> None:
    for student in ("ada", "boole"):
        grade_of(gradebook, student).manual_score = 1.0
    gradebook.db.commit()
    gradebook.remove_student("ada")
    assert logged(gradebook) == [("boole", "by hand", None, 1.0)]


def test_the_log_as_a_table_holds_no_formula(gradebook: Gradebook, tmp_path: Path) -> None:
    gradebook.add_student("=1+1")
    gradebook.add_submission("week1", "=1+1")
    grade_of(gradebook, "=1+1").manual_score = 1.0
    gradebook.db.commit()
    write_log(score_log(gradebook, "week1"), tmp_path / "log.csv")
    with (tmp_path / "log.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["student"], row["cell"], row["before"], row["after"]) == ("'=1+1", "a_tests", "", "1.0")
