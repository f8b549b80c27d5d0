"""A ready-made answer where the task says to write it: shown to a person with its line, never refused."""

import json
from pathlib import Path

import nbformat
import pytest
from nbgrader.coursedir import CourseDirectory
from nbformat.v4 import new_code_cell
from helpers import COURSE, autograder

from autograder.classroom import make_course_root
from autograder.grading.submission.flags import flags
from autograder.grading.plugins.gradebook import open_gradebook, scores

WEEK1, EXERCISE = "week1_permutation_equivariance", "scaled_dot_product_attention"
OWN = """def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    weights = scores.softmax(-1)
    return weights @ v, weights
"""


def flagged(*sources: str, week: str = WEEK1) -> list[tuple[str, str, int]]:
    return [(flag.grade_id, flag.name, flag.line) for flag in flags(week, [new_code_cell(source) for source in sources])]


@pytest.mark.parametrize("source", [
    "y = 1\nout = F.scaled_dot_product_attention(q, k, v)",
    "y = 1\nfrom torch.nn.functional import scaled_dot_product_attention as f",
    "y = 1\nf = getattr(F, 'scaled_dot_product_attention')",
    "y = 1\nf = torch.nn.functional.scaled_dot_product_attention",
])
def test_ways_to_call_it(source: str) -> None:
    assert flagged(source) == [(EXERCISE, "scaled_dot_product_attention", 2)]


def test_what_is_not_flagged() -> None:
    assert not flagged(OWN, "out, weights = scaled_dot_product_attention(q, k, v)", "def broken(:", '"F.scaled_dot_product_attention is fine"')
    assert not flagged("F.scaled_dot_product_attention(q, k, v)", week="week3_rope")  # allowed there
    assert flagged("from transformers.models.llama import modeling_llama", week="week3_rope") == [("", "transformers", 1)]


def test_the_sentence_is_safe_to_show() -> None:
    (flag,) = flags(WEEK1, [new_code_cell("F.scaled_dot_product_attention('`<script>x</script>')  # \u200b")])
    assert "line 1" in flag.sentence() and flag.sentence().count("`") == 2 and "<" not in flag.sentence()


@pytest.mark.isolation
def test_a_flagged_answer_keeps_its_points_and_waits_for_a_person(tmp_path: Path) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK1])
    released = nbformat.read(COURSE / "notebooks" / WEEK1 / f"{WEEK1}.ipynb", as_version=4)
    for name, source in (("honest", OWN), ("borrowed", OWN.replace("weights @ v", "F.scaled_dot_product_attention(q, k, v)"))):
        notebook = nbformat.from_dict(json.loads(json.dumps(released)))
        next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == EXERCISE).source = source
        path = root / "submitted" / name / WEEK1 / f"{WEEK1}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    autograder("--root", str(root), "autograde", "--week", "1")
    course = CourseDirectory()
    course.root = str(root)
    standing = {score.student: score for score in scores(course, WEEK1)}
    assert standing["borrowed"].score == standing["honest"].score > 0
    assert (standing["borrowed"].to_grade_by_hand, standing["honest"].to_grade_by_hand) == (1, 0)
    page = (root / "autograded" / "borrowed" / WEEK1 / f"{WEEK1}.ipynb").read_text(encoding="utf-8")
    assert f"line 4 of {EXERCISE} uses {EXERCISE}, which is to be written, not called" in page
    with open_gradebook(course) as gradebook:
        notebook = gradebook.find_submission_notebook(WEEK1, WEEK1, "borrowed")
        assert [grade.name for grade in notebook.grades if grade.needs_manual_grade] == [f"{EXERCISE}_tests"]
