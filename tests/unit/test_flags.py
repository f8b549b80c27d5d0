"""Ready-made functions in answers that students must write themselves are shown with their line, never refused."""

import pytest
from nbformat.v4 import new_code_cell

from autograder.grading.submission.flags import flags

WEEK1, EXERCISE = "week1_permutation_equivariance", "scaled_dot_product_attention"
OWN = """def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    weights = scores.softmax(-1)
    return weights @ v, weights
"""


def flagged(*sources: str, week: str = WEEK1) -> list[tuple[str, str, int]]:
    return [
        (flag.grade_id, flag.name, flag.line) for flag in flags(week, [new_code_cell(source) for source in sources])
    ]


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
    assert flagged(f"%precision 8\n{OWN}\nout, _ = scaled_dot_product_attention(q, k, v") == []


def test_what_is_not_flagged() -> None:
    assert not flagged(
        OWN,
        "out, weights = scaled_dot_product_attention(q, k, v)",
        "def broken(:",
        '"F.scaled_dot_product_attention is fine"',
    )
    assert not flagged("F.scaled_dot_product_attention(q, k, v)", week="week3_rope")  # allowed there
    assert flagged("from transformers.models.llama import modeling_llama", week="week3_rope") == [
        ("", "transformers", 1)
    ]


def test_the_sentence_is_safe_to_show() -> None:
    (flag,) = flags(WEEK1, [new_code_cell("F.scaled_dot_product_attention('`<script>x</script>')  # \u200b")])
    assert "line 1" in flag.sentence() and flag.sentence().count("`") == 2 and "<" not in flag.sentence()
