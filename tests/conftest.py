"""One simulated class, graded once for all tests."""

import pytest
from helpers import COURSE, WEEK3, GradedClass, run

from autograder.classroom import make_course_root, simulate


@pytest.fixture(scope="session")
def graded_class(tmp_path_factory: pytest.TempPathFactory) -> GradedClass:
    """A simulated class, graded by plain `nbgrader autograde`."""
    root = tmp_path_factory.mktemp("class") / "course"
    make_course_root(COURSE, root, [WEEK3])
    students = simulate(COURSE, root, WEEK3, count=14, seed=1)
    run("nbgrader", "autograde", WEEK3, cwd=root)
    return GradedClass(root, students)
