"""nbgrader's gradebook with this course's patches."""

import sqlite3
import sys
from pathlib import Path

import pytest
from helpers import run
from nbgrader.api import Assignment, Course, Gradebook

from autograder.grading.plugins import nbgrader_patches, nbgrader_version
from autograder.grading.plugins.indexes import INDEXES, add_indexes


@pytest.fixture(autouse=True)
def patched() -> None:
    nbgrader_patches.apply()


@pytest.mark.slow
def test_importing_the_grader_changes_nothing_in_nbgrader() -> None:
    code = (
        "import nbgrader.api as a, nbgrader.converters as c\n"
        "before = a.create_engine, c.Autograde.start\n"
        "import autograder.commands, autograder.grading.plugins.nbgrader_patches as p\n"
        "after = a.create_engine, c.Autograde.start\n"
        "assert before == after\np.apply()\np.apply()\nassert c.Autograde.start is not before[1]"
    )
    run(sys.executable, "-c", code)


def test_another_nbgrader_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nbgrader_version.wrong_version() == ""
    monkeypatch.setattr("nbgrader.__version__", "0.10.0")
    assert "pip install nbgrader==0.9.6" in nbgrader_version.wrong_version()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_new_gradebook_is_marked_as_nbgrader_marks_it() -> None:
    code = (
        "import nbgrader.api as a, autograder.grading.plugins.nbgrader_patches as p\n"
        "stock = a.get_alembic_version()\np.apply()\nassert a.get_alembic_version() == stock"
    )
    run(sys.executable, "-c", code)


def indexes(path: Path) -> set[str]:
    with sqlite3.connect(path) as database:
        return {name for (name,) in database.execute("select name from sqlite_master where type = 'index'")}


def test_a_gradebook_shares_its_engine_and_closes_its_connections(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gradebook.db"
    with Gradebook(url) as one, Gradebook(url) as other:
        assert one.engine is other.engine
        one.add_student("ada")
        assert [student.id for student in other.students] == ["ada"]


def test_a_gradebook_that_is_replaced_gets_its_tables_and_its_course(tmp_path: Path) -> None:
    path = tmp_path / "gradebook.db"
    for student in ("ada", "boole"):
        with Gradebook(f"sqlite:///{path}", "attention") as gradebook:
            assert gradebook.students == []
            assert [course.id for course in gradebook.db.query(Course)] == ["attention"]
            gradebook.add_student(student)
            gradebook.add_assignment("week1")
            assert gradebook.db.query(Assignment).one().course.id == "attention"
        path.unlink()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_gradebook_made_by_nbgrader_alone_gets_indexes(tmp_path: Path) -> None:
    path, wanted = tmp_path / "gradebook.db", {index.name for index in INDEXES}
    run(sys.executable, "-c", f"from nbgrader.api import Gradebook; Gradebook('sqlite:///{path}').close()")
    assert not wanted & indexes(path)
    for _ in range(2):
        with Gradebook(f"sqlite:///{path}") as gradebook:
            add_indexes(gradebook)
    assert wanted <= indexes(path)
