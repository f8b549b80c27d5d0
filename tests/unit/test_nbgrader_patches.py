"""nbgrader's gradebook, as it is opened here."""

import sqlite3
import sys
from pathlib import Path

import pytest
from nbgrader.api import Assignment, Course, Gradebook
from helpers import run

from autograder.grading.plugins.nbgrader_patches import INDEXES, add_indexes


def indexes(path: Path) -> set[str]:
    with sqlite3.connect(path) as database:
        return {name for (name,) in database.execute("select name from sqlite_master where type = 'index'")}


def test_a_gradebook_shares_its_engine_and_closes_its_connections(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gradebook.db"
    with Gradebook(url) as one, Gradebook(url) as other:
        assert one.engine is other.engine
        one.add_student("ada")
        assert [student.id for student in other.students] == ["ada"]


@pytest.mark.parametrize("empty", [False, True])
def test_a_gradebook_that_is_replaced_gets_its_tables_and_its_course(tmp_path: Path, empty: bool) -> None:
    path = tmp_path / "gradebook.db"
    for student in ("ada", "boole"):
        with Gradebook(f"sqlite:///{path}", "attention") as gradebook:
            assert gradebook.students == []
            assert [course.id for course in gradebook.db.query(Course)] == ["attention"]
            gradebook.add_student(student)
            gradebook.add_assignment("week1")
            assert gradebook.db.query(Assignment).one().course.id == "attention"
        path.unlink()
        if empty:
            path.touch()


def test_another_course_in_the_same_gradebook_is_known_too(tmp_path: Path) -> None:
    for course in ("attention", "vision", "attention"):
        with Gradebook(f"sqlite:///{tmp_path}/gradebook.db", course) as gradebook:
            assert course in [course.id for course in gradebook.db.query(Course)]


def test_a_gradebook_made_by_nbgrader_alone_gets_indexes(tmp_path: Path) -> None:
    path, wanted = tmp_path / "gradebook.db", {index.name for index in INDEXES}
    run(sys.executable, "-c", f"from nbgrader.api import Gradebook; Gradebook('sqlite:///{path}').close()")
    assert not wanted & indexes(path)
    for _ in range(2):
        with Gradebook(f"sqlite:///{path}") as gradebook:
            add_indexes(gradebook)
    assert wanted <= indexes(path)
