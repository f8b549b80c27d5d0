"""One small class, graded from end to end: the part of the course's tests that `make quick` runs."""

from pathlib import Path

import pytest
from helpers import COURSE, run, standing

from autograder.classroom import agrees, make_course_root, simulate

WEEK1 = "week1_permutation_equivariance"


@pytest.mark.isolation
def test_a_small_class_is_graded_as_due_and_gets_its_feedback(tmp_path: Path) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK1])
    students = simulate(COURSE, root, WEEK1, count=5, seed=3)
    run("nbgrader", "autograde", WEEK1, cwd=root)
    given = standing(root, WEEK1)
    assert not [student.name for student in students if not agrees(student, given.get(student.name))]
    run("nbgrader", "generate_feedback", WEEK1, cwd=root)
    assert {page.parts[-3] for page in root.glob(f"feedback/*/{WEEK1}/*.html")} == {
        student.name for student in students
    }
