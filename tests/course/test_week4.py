"""Week 4: a mistake in 4.2 or 4.3 is paid for once, and nothing is gained by it."""

import math
import random

import pytest
import torch
from course.variants_week4 import Frame
from torch import nn

from autograder import reference
from autograder.checks import week4
from autograder.checks.framework import grading
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.usefixtures("one_thread")

WEEK = "week4_alibi"


def grade(grade_id, *subjects, seed=11):
    with grading(seed):
        return getattr(week4, grade_id)(*subjects)


def test_the_frame_of_the_variants_is_right():
    assert grade("ALiBiMultiHeadAttention", Frame).score == 5


# ---- a mistake is paid for once -------------------------------------------------------------------------------------


def plain_bias(slopes_of):
    """4.3 written rightly on top of somebody's 4.2."""

    def alibi_bias(n_heads, n_queries, n_keys=None):
        n_keys = n_queries if n_keys is None else n_keys
        i, j = torch.arange(n_keys - n_queries, n_keys)[:, None], torch.arange(n_keys)
        return -slopes_of(n_heads)[:, None, None] * (i - j).abs()

    return alibi_bias


def layer_on(bias_of, **changes):
    """4.6 written rightly on top of somebody's 4.3 (or with ``changes``)."""
    return type("Layer", (Frame,), {"bias": lambda self, n, dtype: bias_of(self.h, n).to(dtype)} | changes)


def wrong_values(grade_id, *names):
    return [pytest.param(s.subject, id=s.name) for s in bank(WEEK, grade_id) if s.name in names]


WRONG_SLOPES = wrong_values(
    "alibi_slopes",
    "slopes_powers_of_a_half",
    "slopes_one_formula",
    "slopes_sorted",
    "slopes_from_zero",
    "slopes_smallest_first",
    "slopes_odd_entries",
    "slopes_consecutive",
    "slopes_finer_first",
    "slopes_larger_cut",
    "slopes_linear",
    "slopes_halved_exponent",
    "slopes_negative",
    "slopes_float64",
)
WRONG_BIASES = wrong_values(
    "alibi_bias",
    "bias_sign",
    "bias_signed",
    "bias_top_left",
    "bias_per_key",
    "bias_masked",
    "bias_tril",
    "bias_squared",
    "bias_log_distance",
    "bias_one_too_far",
    "bias_n_keys_ignored",
    "bias_float64",
    "bias_extra_axis",
)


@pytest.mark.parametrize("slopes", WRONG_SLOPES)
def test_wrong_slopes_are_paid_for_in_4_2_alone(slopes):
    assert grade("alibi_slopes", slopes).score < 3
    bias = plain_bias(slopes)
    verdict = grade("alibi_bias", lambda *a, **o: bias(*a, **o).float(), slopes)
    assert verdict.score == 4, verdict.render()
    for subject in (
        layer_on(bias),
        layer_on(lambda h, n: -slopes(h)[:, None, None] * (torch.arange(n) - torch.arange(n)[:, None]).abs()),
    ):
        verdict = grade("ALiBiMultiHeadAttention", subject, slopes, bias)
        assert verdict.score == 5, verdict.render()


@pytest.mark.nightly
@pytest.mark.parametrize("bias", WRONG_BIASES)
def test_a_wrong_bias_is_paid_for_in_4_3_alone(bias):
    assert grade("alibi_bias", bias, reference.alibi_slopes).score < 4
    verdict = grade("ALiBiMultiHeadAttention", layer_on(bias), reference.alibi_slopes, bias)
    assert verdict.score == 5, verdict.render()


def test_what_follows_is_said():
    half = next(s.subject for s in bank(WEEK, "alibi_slopes") if s.name == "slopes_powers_of_a_half")
    verdict = grade("ALiBiMultiHeadAttention", layer_on(plain_bias(half)), half, plain_bias(half))
    assert "your own alibi_slopes" in verdict.note and verdict.note in verdict.render()
    assert not grade("ALiBiMultiHeadAttention", reference.ALiBiMultiHeadAttention, half, plain_bias(half)).note


@pytest.mark.nightly
def test_a_right_layer_is_right_whatever_the_earlier_answers():
    def broken(*arguments):
        raise RuntimeError("no")

    for earlier in (
        broken,
        lambda *a: None,
        lambda *a: "x",
        lambda *a: torch.full((2,), math.nan),
        "no function",
        None,
    ):
        assert grade("ALiBiMultiHeadAttention", reference.ALiBiMultiHeadAttention, earlier, earlier).score == 5
        assert grade("alibi_bias", reference.alibi_bias, earlier).score == 4


class NoBias(Frame):
    def bias(self, n, dtype):
        return torch.zeros(self.h, n, n, dtype=dtype)


class NoAttention(Frame):
    def forward(self, x, is_causal=True):
        return self.o_proj(self.v_proj(x))


def square(value):
    return lambda h, q, k=None: torch.full((h, q, k or q), float(value))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "earlier",
    [
        square(0),
        square(1),
        square(-math.inf),
        square(math.nan),
        square(math.inf),
        lambda h, q, k=None: -1e9 * (1 - torch.eye(q)).expand(h, q, q),  # attention to oneself alone
        lambda h, q, k=None: torch.full((h, q, q), -math.inf).masked_fill(torch.eye(q).bool(), 0),
        lambda h, q, k=None: torch.zeros(0),
        lambda h, q, k=None: torch.zeros(h, q, q, dtype=torch.complex64),
    ],
    ids=range(9),
)
def test_nothing_can_be_built_on_an_earlier_answer_that_leaves_nothing_to_test(earlier):
    for subject in (NoBias, NoAttention):
        for slopes in (lambda h: torch.zeros(h), lambda h: torch.full((h,), 1e9)):
            assert grade("ALiBiMultiHeadAttention", subject, slopes, earlier).score == 0
    assert grade("alibi_bias", square(0), lambda h: torch.zeros(h)).score == 0


def test_an_earlier_answer_that_changes_its_mind_gains_nothing():
    """The own bias is asked once per size, whatever the function returns later."""
    generator = torch.Generator().manual_seed(0)
    moody = lambda h, q, k=None: torch.rand(h, q, k or q, generator=generator)  # noqa: E731
    assert grade("ALiBiMultiHeadAttention", layer_on(moody), reference.alibi_slopes, moody).score == 0


def test_mistakes_of_the_layer_are_paid_for_on_top_of_wrong_slopes():
    half = next(s.subject for s in bank(WEEK, "alibi_slopes") if s.name == "slopes_powers_of_a_half")
    bias = plain_bias(half)
    scaled = layer_on(bias, scores=lambda self, q, k, b: (q @ k.mT + b) / math.sqrt(q.shape[-1]))
    assert grade("ALiBiMultiHeadAttention", scaled, half, bias).score == 0
    flipped = layer_on(lambda h, n: bias(h, n).flip(0))
    assert grade("ALiBiMultiHeadAttention", flipped, half, bias).score == 0
    never = layer_on(bias, mask=lambda self, scores: scores)
    assert grade("ALiBiMultiHeadAttention", never, half, bias).score == 1.5


@pytest.mark.nightly
def test_positions_counted_in_bfloat16_are_seen_on_top_of_own_slopes():
    def backwards(n_heads):
        return reference.alibi_slopes(n_heads).flip(0)

    class Rounded(Frame):
        def bias(self, n, dtype):
            positions = torch.arange(n).to(dtype)
            return -backwards(self.h)[:, None, None].to(dtype) * (positions - positions[:, None]).abs()

    assert (
        grade("ALiBiMultiHeadAttention", layer_on(plain_bias(backwards)), backwards, plain_bias(backwards)).score == 5
    )
    assert grade("ALiBiMultiHeadAttention", Rounded, backwards, plain_bias(backwards)).score == 4


@pytest.mark.nightly
def test_entries_of_the_banks_are_due_the_same_after_any_earlier_entry():
    """In the simulated class entries of different exercises meet by chance."""
    chance = random.Random(4)
    slopes, biases = bank(WEEK, "alibi_slopes"), bank(WEEK, "alibi_bias")
    for entry in bank(WEEK, "alibi_bias"):
        for _ in range(2):
            verdict = grade("alibi_bias", entry.subject, chance.choice(slopes).subject)
            assert verdict.score == (4 if entry.is_right else entry.score), verdict.render()
    for entry in bank(WEEK, "ALiBiMultiHeadAttention"):
        earlier = chance.choice(slopes), chance.choice(biases)
        verdict = grade("ALiBiMultiHeadAttention", entry.subject, *(e.subject for e in earlier))
        assert verdict.score == (5 if entry.is_right else entry.score), ([e.name for e in earlier], verdict.render())


def test_a_table_of_parameters_is_found():
    class Learned(Frame):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            self.extra = nn.Parameter(torch.zeros(1))

    assert grade("ALiBiMultiHeadAttention", Learned).score == 4.5
