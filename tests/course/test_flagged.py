"""A flagged answer on its way through grading."""

from pathlib import Path

import pytest
from helpers import ATTENTION, COURSE, autograder, hand_in, standing
from nbgrader.coursedir import CourseDirectory

from autograder.classroom import make_course_root
from autograder.grading.plugins.gradebook import open_gradebook

WEEK1, EXERCISE = "week1_permutation_equivariance", "scaled_dot_product_attention"


@pytest.mark.isolation
def test_a_flagged_answer_keeps_its_points_and_waits_for_a_person(tmp_path: Path) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK1])
    borrowed = ATTENTION.replace("weights @ v", "F.scaled_dot_product_attention(q, k, v)")
    for name, source in (("honest", ATTENTION), ("borrowed", borrowed)):
        hand_in(root, name, {EXERCISE: source}, WEEK1)
    autograder("--root", str(root), "autograde", "--week", "1")
    given = standing(root, WEEK1)
    assert given["borrowed"].score == given["honest"].score > 0
    assert (given["borrowed"].to_grade_by_hand, given["honest"].to_grade_by_hand) == (1, 0)
    page = (root / "autograded" / "borrowed" / WEEK1 / f"{WEEK1}.ipynb").read_text(encoding="utf-8")
    assert f"line 4 of {EXERCISE} uses {EXERCISE}, which is to be written, not called" in page
    with open_gradebook(CourseDirectory(root=str(root))) as gradebook:
        notebook = gradebook.find_submission_notebook(WEEK1, WEEK1, "borrowed")
        assert [grade.name for grade in notebook.grades if grade.needs_manual_grade] == [f"{EXERCISE}_tests"]
