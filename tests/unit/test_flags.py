"""Ready-made functions in answers that students must write themselves are shown with their line, never refused."""

import pytest
from helpers import ATTENTION
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.grading.submission.flags import flags, what_counts

WEEK1, EXERCISE = "week1_permutation_equivariance", "scaled_dot_product_attention"


def answer(source: str) -> NotebookNode:
    return new_code_cell(source, metadata={"nbgrader": {"grade_id": EXERCISE}})


def flagged(*sources: str, week: str = WEEK1, own: tuple[str, ...] = ()) -> list[tuple[str, str, int]]:
    cells = [*map(answer, sources), *map(new_code_cell, own)]
    return [(flag.grade_id, flag.name, flag.line) for flag in flags(week, what_counts(cells))]


@pytest.mark.parametrize(
    "source",
    [
        "y = 1\nout = F.scaled_dot_product_attention(q, k, v)",
        "y = 1\nfrom torch.nn.functional import scaled_dot_product_attention as f",
        "y = 1\nf = getattr(F, 'scaled_dot_product_attention')",
        "y = 1\nf = torch.nn.functional.scaled_dot_product_attention",
        "%precision 8\nout = F.scaled_dot_product_attention(q, k, v)",
        "!ls\nout = F.scaled_dot_product_attention(q, k, v)",
        "%precision 8\nfrom torch.nn.functional import scaled_dot_product_attention as f",
        "x = !ls\nf = getattr(F, 'scaled_dot_product_attention')",
    ],
)
def test_ways_to_call_it(source: str) -> None:
    assert flagged(source) == [(EXERCISE, "scaled_dot_product_attention", 2)]


def test_the_answer_itself_is_not_flagged_where_it_is_no_python() -> None:
    assert flagged(f"%precision 8\n{ATTENTION}\nout, _ = scaled_dot_product_attention(q, k, v") == []


def test_what_is_not_flagged() -> None:
    assert not flagged(
        ATTENTION,
        "out, weights = scaled_dot_product_attention(q, k, v)",
        "def broken(:",
        '"F.scaled_dot_product_attention is fine"',
    )
    assert not flagged("F.scaled_dot_product_attention(q, k, v)", week="week3_rope")  # allowed there
    llama = "from transformers.models.llama import modeling_llama"
    assert flagged(llama, week="week3_rope") == [(EXERCISE, "transformers", 1)]


CALL = "F.scaled_dot_product_attention(q, k, v)"


@pytest.mark.parametrize(
    ("own", "line"),
    [
        (f"ours, _ = {EXERCISE}(q, k, v)\nexpected = {CALL}\nassert torch.allclose(ours, expected)", 0),
        (f"import x_transformers\ndef unused(q, k, v):\n    return {CALL}", 0),
        (f"def helper(q, k, v):\n    return {CALL}", 2),
        (f"def helper(q, k, v):\n    return inner(q, k, v)\ndef inner(q, k, v):\n    return {CALL}", 4),
        (f"{EXERCISE} = lambda q, k, v, mask=None: {CALL}", 1),
        (f"globals()['helper'] = lambda q, k, v: {CALL}", 1),
    ],
)
def test_in_own_cells_only_what_an_answer_uses_is_flagged(own: str, line: int) -> None:
    found = flagged(ATTENTION.replace("weights @ v", "helper(weights, v)"), own=(own,))
    assert found == ([(EXERCISE, EXERCISE, line)] if line else [])


def test_the_sentence_is_safe_to_show() -> None:
    (flag,) = flags(WEEK1, what_counts([answer("F.scaled_dot_product_attention('`<script>x</script>')  # \u200b")]))
    assert "line 1" in flag.sentence() and flag.sentence().count("`") == 2 and "<" not in flag.sentence()
