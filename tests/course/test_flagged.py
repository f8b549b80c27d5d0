"""A flagged answer on its way through grading."""

import json
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, autograder, standing
from nbgrader.coursedir import CourseDirectory

from autograder.classroom import make_course_root
from autograder.grading.plugins.gradebook import open_gradebook

WEEK1, EXERCISE = "week1_permutation_equivariance", "scaled_dot_product_attention"
OWN = """def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    weights = scores.softmax(-1)
    return weights @ v, weights
"""


@pytest.mark.isolation
def test_a_flagged_answer_keeps_its_points_and_waits_for_a_person(tmp_path: Path) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK1])
    released = nbformat.read(COURSE / "notebooks" / WEEK1 / f"{WEEK1}.ipynb", as_version=4)
    for name, source in (
        ("honest", OWN),
        ("borrowed", OWN.replace("weights @ v", "F.scaled_dot_product_attention(q, k, v)")),
    ):
        notebook = nbformat.from_dict(json.loads(json.dumps(released)))
        next(
            cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == EXERCISE
        ).source = source
        path = root / "submitted" / name / WEEK1 / f"{WEEK1}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    autograder("--root", str(root), "autograde", "--week", "1")
    given = standing(root, WEEK1)
    assert given["borrowed"].score == given["honest"].score > 0
    assert (given["borrowed"].to_grade_by_hand, given["honest"].to_grade_by_hand) == (1, 0)
    page = (root / "autograded" / "borrowed" / WEEK1 / f"{WEEK1}.ipynb").read_text(encoding="utf-8")
    assert f"line 4 of {EXERCISE} uses {EXERCISE}, which is to be written, not called" in page
    course = CourseDirectory()
    course.root = str(root)
    with open_gradebook(course) as gradebook:
        notebook = gradebook.find_submission_notebook(WEEK1, WEEK1, "borrowed")
        assert [grade.name for grade in notebook.grades if grade.needs_manual_grade] == [f"{EXERCISE}_tests"]
