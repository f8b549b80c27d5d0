"""Hidden tests of week 3, RoPE.

Blocks start with square shapes (batch = heads = seq_len): a rotation over the wrong axis then gives a wrong value,
which the diagnosis can name, instead of a shape error. Every block has head_dim >= 4: with one pair the layouts agree.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from autograder import reference
from autograder.checks.attention_functions import FAR_BELOW, STRIDES, as_heads
from autograder.checks.attention_modules import (
    FOUR_WEIGHTS,
    attended,
    built,
    rising_scores,
    weights_and_text,
)
from autograder.checks.framework import Check, Fault, Hint, Probe, calling, differentiating, exercise
from autograder.checks.probes import REMEMBERED_BASE, less, made_there, making
from autograder.checks.rotations import (
    AFTER_BFLOAT16,
    FAR,
    FRACTION,
    GIVEN,
    HALF_POSITIONS,
    HALF_PRECISION,
    NEAR,
    NEGATIVE,
    ROUNDED,
    ROWS,
    far_positions,
)
from autograder.misconceptions.week3 import DIAGNOSES
from autograder.reference.rope import look_back_scores
from autograder.script.compare import CUT, FOUR_DIGITS, Tolerance
from autograder.script.script import Gate

WEEK = "week3_rope"

# Rows only move, so values stay equal; a product with a permutation matrix is exact too.
MOVED = Tolerance(rtol=0, atol=1e-6)


# ---- hand computations ----------------------------------------------------------------------------------------------

EXACT = Tolerance(rtol=0, atol=0)

ROTATED_BY_HAND = {
    "q3_0": math.cos(3),
    "q3_1": math.sin(3),
    "k1_0": -math.sin(1),
    "k1_1": math.cos(1),
    "score_3_1": math.sin(2),
    "score_12_10": math.sin(2),
}


@exercise(WEEK, "rotate_by_hand", reference=ROTATED_BY_HAND)
def rotate_by_hand(check: Check) -> None:
    # Catches degrees, a clockwise rotation, sine and cosine swapped, the angle of position 4.
    with check.criterion("q = (1, 0) rotated to position 3", 1, golden=True):
        check.entries("q3_0", "q3_1", tolerance=FOUR_DIGITS)
    # Catches k rotated as if it were (1, 0), and a lost sign of its first channel.
    with check.criterion("k = (0, 1) rotated to position 1", 1, golden=True):
        check.entries("k1_0", "k1_1", tolerance=FOUR_DIGITS)
    # Catches the sum of the positions, the reversed difference or its cosine, a scaled score, unrotated vectors.
    with check.criterion("the score, twice", 1, golden=True):
        check.entries("score_3_1", "score_12_10", tolerance=FOUR_DIGITS)


# floats: 769.0 and 769 are both right
@exercise(WEEK, "bfloat16_positions", reference={"distinct": 769.0, "first_collision": 257.0})
def bfloat16_positions(check: Check) -> None:
    # Catches only the exact integers counted, a wrong number of significant bits, 0 or 4096 left out.
    with check.criterion("how many of 0..4095 stay apart", 0.5, golden=True):
        check.entries("distinct", tolerance=EXACT)
    # Catches 256, the last exact integer, instead of the first inexact one, and a wrong number of significant bits.
    with check.criterion("the first position that falls on an earlier one", 0.5, golden=True):
        check.entries("first_collision", tolerance=EXACT)


# ---- frequencies ----------------------------------------------------------------------------------------------------


@exercise(WEEK, "rope_frequencies")
def rope_frequencies(check: Check) -> None:
    # Relative, since the last frequency is 1e-4. exp(-ln(base) * ...) is off by 1e-6 in float32, by 5e-4 in float16.
    tolerance = Tolerance(rtol=1e-5, atol=0)
    # Catches the exponent i/d, d - 2 for d, a missing minus sign, pairs from 1, wavelengths, one frequency per channel.
    with check.criterion("values for the default base", 0.75, golden=True):
        for head_dim in (8, 6, 2):
            check.agrees(calling(head_dim), f"rope_frequencies({head_dim})", tolerance)
    # Catches a hard-coded base of 10,000, and a base remembered from an earlier call.
    with check.criterion("another base", 0.5, golden=True):
        check.agrees(calling(10, 500.0), "rope_frequencies(10, 500.0)", tolerance)
        check.agrees(calling(10), "rope_frequencies(10)", tolerance, REMEMBERED_BASE)  # asked first with another base
        check.agrees(calling(8, base=7.5), "rope_frequencies(8, base=7.5)", tolerance)
    # Catches a cached tensor that the caller can overwrite.
    with check.criterion("a new tensor on each call", 0.25):
        check.returns_new("rope_frequencies(8)", 8, tolerance=tolerance)
    # Catches an odd head_dim that is accepted or raises another error.
    with check.criterion("refuses an odd head_dim", 0.5):
        check.raises(calling(7), ValueError, "rope_frequencies(7)")


# ---- rotations ------------------------------------------------------------------------------------------------------

BASE_OF_ROWS = Hint(
    "With positions (seq_len,) another base is right, with positions (batch, seq_len) it is not. (The base is the same for "
    "all.)",
    form=True,
)
REAL_POSITIONS = (
    "In half precision far positions are right as integers, but not in float32. (Positions are not rounded to the dtype of "
    "x.)"
)
INT32_POSITIONS = Hint(
    "Positions are right in int64, but not in int32. (They may be any integers or floats.)", form=True
)
ANY_POSITION = Hint(
    "Positions up to 8,191 are right, others beyond are not. (They may be any real numbers.)", form=True
)
FLOAT64 = "Right in float32, but not in float64, which is rounded on the way."
AT_ZERO = "At position 0 the angle is 0 and nothing may change, but your result does."
LENGTHS = "Your vectors come out longer or shorter: a rotation keeps the length of every vector."
BASE = "The default base is right, another one is not. (The frequencies follow the argument `base`.)"
TABLES = (
    "The tables are right in float32, but not in half precision. (Angles are computed in at least float32, "
    "and only cos and sin are rounded.)"
)


def on(x: torch.Tensor, positions: str) -> str:
    """Return the description of these arguments for messages."""
    dtype = "" if x.dtype == torch.float32 else f"{str(x.dtype).removeprefix('torch.')} "
    return f"{dtype}x {tuple(x.shape)}, positions {positions}"


def rotation_values(check: Check, name: str) -> None:
    """Check layout, sign, frequencies and axis at positions 0..n-1."""
    x, steps = check.randn(3, 3, 3, 6), torch.arange(3, device=check.device)
    check.agrees(calling(x[:, :, :1], steps[:1]), f"{name}({on(x[:, :, :1], '[0]')})", NEAR, AT_ZERO)
    turned = calling(x, steps)
    check.agrees(lambda f: turned(f).norm(dim=-1), f"the lengths of {name}({on(x, '0..2')})", NEAR, LENGTHS)
    for shape in ((4, 4, 4, 6), (2, 3, 7, 8)):
        x, positions = check.randn(*shape), torch.arange(shape[2], device=check.device)
        check.agrees(calling(x, positions), f"{name}({on(x, f'0..{shape[2] - 1}')})", NEAR)


def rotation_positions(check: Check, name: str) -> None:
    """Check positions of shape (seq_len,) other than 0..n-1."""
    for shape, positions, words, hint in (
        ((4, 4, 4, 6), [0, 1, 2, 3], "0..3", ""),
        ((4, 4, 4, 6), [5, 0, 11, 5], "shuffled, one of them twice", GIVEN),
        ((2, 3, 5, 8), [-3, -40, 2, -1, 7], "some negative", NEGATIVE),
        ((2, 3, 5, 8), [0.0, 0.25, 1.5, 10.75, 2.5], "some fractional", FRACTION),
    ):
        x = check.randn(*shape)
        check.agrees(calling(x, torch.tensor(positions, device=check.device)), f"{name}({on(x, words)})", NEAR, hint)
    x, whole = check.randn(1, 1, 4, 16), torch.tensor([0, 257, 1001, 2047], device=check.device)  # float16 holds these
    check.agrees(calling(x, whole), f"{name}({on(x, 'up to 2047')})", FAR)
    check.agrees(calling(x, whole.int()), f"{name}({on(x, 'up to 2047 in int32')})", FAR, INT32_POSITIONS)
    check.agrees(calling(x, whole.half()), f"{name}({on(x, 'up to 2047 in float16')})", FAR, HALF_POSITIONS)


def rotation_rows(check: Check, name: str) -> None:
    """Check positions of shape (batch, seq_len)."""
    x = check.randn(2, 3, 5, 8)
    check.agrees(calling(x, torch.arange(5, device=check.device)), f"{name}({on(x, '0..4')})", NEAR)
    for batch, heads, seq_len, head_dim in ((4, 4, 4, 6), (3, 2, 1, 4)):
        x = check.randn(batch, heads, seq_len, head_dim)
        rows = 7 * torch.arange(1, batch + 1)[:, None] + torch.tensor([3, 0, 8, 1])[:seq_len]
        words = f"of shape ({batch}, {seq_len})"
        check.agrees(calling(x, rows.to(check.device)), f"{name}({on(x, words)})", NEAR, ROWS)
    x, row = check.randn(2, 3, 5, 8), at_positions(check, 3, 0, 7, 4, 1)
    rows = torch.stack((row, row.flip(0)))  # both rows hold the numbers that the single row is checked with
    with check.holds(calling(x, rows[0], base=7.5), f"{name}({on(x, 'of shape (5,)')}, base=7.5)", NEAR):
        call = f"{name}({on(x, 'of shape (2, 5)')}, base=7.5)"
        check.agrees(calling(x, rows, base=7.5), call, NEAR, BASE_OF_ROWS)


def rotation_base(check: Check, name: str) -> None:
    x, positions = check.randn(2, 3, 6, 8), torch.arange(6, device=check.device)
    call = f"{name}({on(x, '0..5')}"
    check.agrees(calling(x, positions, base=7.5), f"{call}, base=7.5)", NEAR, BASE)
    check.agrees(calling(x, positions), f"{call})", NEAR, REMEMBERED_BASE)  # asked first with another base


def rotation_far(check: Check, name: str) -> None:
    """Check far positions, first in float32, so that later failures are failures of precision."""
    x, positions = check.randn(1, 2, 24, 16), far_positions(check, 24)
    check.agrees(calling(x, positions), f"{name}({on(x, 'up to 8191')})", FAR)
    for dtype, tolerance in ROUNDED.items():
        half = x.to(dtype)
        check.agrees(calling(half, positions), f"{name}({on(half, 'up to 8191')})", tolerance, HALF_PRECISION)
    low, call = x.to(torch.bfloat16), f"{name}({on(x.to(torch.bfloat16), 'up to 8191 in float32')})"
    check.agrees(calling(low, positions.float()), call, ROUNDED[torch.bfloat16], REAL_POSITIONS)
    x, at = x[:, :, :2], torch.tensor([9001, 70_001], device=check.device)
    # float32 angles are off by about 0.02 there
    check.agrees(calling(x, at), f"{name}({on(x, '[9001, 70001]')})", Tolerance(rtol=0, atol=0.2), ANY_POSITION)


def rotation_dtype(check: Check, name: str) -> None:
    x, positions = check.randn(1, 2, 10, 16), torch.arange(10, device=check.device)  # first asked in bfloat16
    low, call = x.to(torch.bfloat16), f"{name}({on(x, '0..9')})"
    check.has_dtype(calling(low, positions), torch.bfloat16, f"{name}({on(low, '0..9')})")
    check.agrees(calling(x, positions), f"{call}, after an equal call in bfloat16", NEAR, AFTER_BFLOAT16)
    wide = x.double()
    check.has_dtype(calling(wide, positions), torch.float64, f"{name}({on(wide, '0..9')})")
    check.has_dtype(calling(x, positions.double()), torch.float32, f"{name}({on(x, '0..9 in float64')})")


def rotation_manners(check: Check, name: str, rows_right: Gate) -> None:
    x, positions = check.randn(2, 3, 4, 6), torch.arange(4, device=check.device)
    call = f"{name}({on(x, '0..3')})"
    check.agrees(calling(x, positions), call, NEAR)
    # First, as a write spoils the gradient. Of floats, float() returns the positions themselves.
    rows = positions + torch.arange(2.0, device=check.device)[:, None]
    for gate, given, words in ((rows_right, rows, "of shape (2, 4), in float32"), (~rows_right, positions, "0..3")):
        with gate:
            check.keeps(lambda f, *given: f(*given), f"{name}({on(x, words)})", x, given)
    still = torch.zeros_like(positions)  # nothing rotates, so that returning x itself would be right
    check.returns_new(f"{name}({on(x, 'all 0')})", x, still, tolerance=NEAR)
    heads = as_heads(check, 2, 3, 4, 6)
    check.agrees(calling(heads, positions), f"{name}({on(heads, '0..3')}), x transposed", NEAR, STRIDES)
    check.agrees(differentiating(x, positions), f"the gradient of {call}", NEAR, CUT)
    odd = check.randn(1, 1, 4, 5)
    check.raises(calling(odd, positions), ValueError, f"{name}({on(odd, '0..3')})")


def rotation_device(check: Check, name: str) -> None:
    x, positions = check.randn(2, 3, 5, 8), torch.arange(5, device=check.device)
    check.follows(calling(x, positions), f"{name}(x (2, 3, 5, 8), positions 0..4)")


@exercise(WEEK, "apply_rotary_emb")
def apply_rotary_emb(check: Check) -> None:
    name = "apply_rotary_emb"
    # Catches the other layout, a clockwise or mirrored rotation, sin and cos swapped, angles by head, wrong exponents.
    with check.criterion("values at positions 0..n-1", 1.5, golden=True):
        rotation_values(check, name)
    # Catches positions that are ignored, counted on from the first one, rounded, or stripped of their sign.
    with check.criterion("shifted, shuffled, negative and fractional positions", 1, golden=True):
        rotation_positions(check, name)
        any_right = check.reached()
    # Catches row 0 used for all sequences, rows that broadcast along the heads, code that takes no rows.
    with check.criterion("one row of positions per sequence", 1, golden=True):
        rotation_rows(check, name)
        with any_right:
            rows_right = check.reached()
    # Catches a hard-coded base of 10,000.
    with check.criterion("another base", 0.5, golden=True):
        rotation_base(check, name)
    # Catches positions, frequencies or angles in the half precision of x.
    with check.criterion("far positions, also in bfloat16 and float16", 1, golden=True):
        rotation_far(check, name)
    # Catches a result always in float32 or in the dtype of the positions, and angles cached from a bfloat16 call.
    with check.criterion("keeps the dtype", 0.25):
        rotation_dtype(check, name)
    # Catches an argument changed or returned, gradients cut off, `view` on transposed heads, an odd head_dim accepted.
    with check.criterion("new results, gradients; leaves its arguments alone, refuses an odd head_dim", 0.5):
        rotation_manners(check, name, rows_right)

    # Catches frequencies created on the CPU.
    with check.follows_device(0.25):
        rotation_device(check, "apply_rotary_emb")


@exercise(WEEK, "apply_rotary_emb_half")
def apply_rotary_emb_half(check: Check) -> None:
    name = "apply_rotary_emb_half"
    # Catches interleaved pairs, halves interleaved or swapped, tables of the other layout, a clockwise rotation.
    with check.criterion("values at positions 0..n-1", 1, golden=True):
        rotation_values(check, name)
    # Catches positions ignored, row 0 used for all sequences, a hard-coded base of 10,000.
    with check.criterion("any positions, one row per sequence, another base", 0.5, golden=True):
        rotation_positions(check, name)
        rotation_base(check, name)
        rotation_rows(check, name)
        rows_right = check.reached()
    # Catches angles in the half precision of x or cached from such a call, and a result always in float32.
    with check.criterion("far positions in half precision, dtype kept", 0.25, golden=True):
        rotation_far(check, name)
        rotation_dtype(check, name)
    # Catches an argument changed or returned, gradients cut off, `view` on transposed heads, an odd head_dim accepted.
    with check.criterion("new results, gradients; leaves its arguments alone, refuses an odd head_dim", 0.125):
        rotation_manners(check, name, rows_right)

    # Catches frequencies created on the CPU.
    with check.follows_device(0.125):
        rotation_device(check, "apply_rotary_emb_half")


@exercise(WEEK, "interleaved_to_half")
def interleaved_to_half(check: Check) -> None:
    def reorders(rows: int, columns: int, n_heads: int) -> None:
        weight = check.randn(rows, columns)
        check.agrees(calling(weight, n_heads), f"interleaved_to_half(weight ({rows}, {columns}), {n_heads})", MOVED)

    # head_dim >= 6 first: with 4 the order (0, 2, 1, 3) is its own inverse.
    # Catches the inverse permutation, odd rows first, the two rows of each pair swapped, columns instead of rows.
    with check.criterion("one head", 1, golden=True):
        for rows, columns in ((8, 8), (6, 5)):
            reorders(rows, columns, 1)
    # Catches one permutation across all heads and rows read channel by channel.
    with check.criterion("several heads, each by itself", 1.5, golden=True):
        reorders(24, 24, 2)
        reorders(18, 7, 3)
    # Catches gradients cut off, the weight changed or rounded to float32, rows accepted that form no pairs.
    with check.criterion("keeps dtype and gradient, leaves the weight alone, refuses rows that make no pairs", 0.25):
        weight, call = check.randn(12, 4), "interleaved_to_half(weight (12, 4), 1)"  # several heads: see above
        check.has_dtype(calling(weight.bfloat16(), 1), torch.bfloat16, f"{call} in torch.bfloat16")
        check.agrees(calling(weight, 1), call, MOVED)
        check.keeps(lambda f, weight: f(weight, 1), call, weight)  # first: a write spoils the gradient
        call = "interleaved_to_half(weight (12, 4), 3)"
        with check.holds(calling(weight, 3), call, MOVED):
            check.agrees(differentiating(weight, 3), f"the gradient of {call}", MOVED, CUT)
            turned = check.randn(4, 12).T
            check.agrees(calling(turned, 3), f"{call}, weight transposed", MOVED, STRIDES)
            check.agrees(calling(turned.double() / 3, 3), f"{call} in float64", EXACT, FLOAT64)
        for rows, n_heads in ((10, 2), (14, 3)):
            check.raises(
                calling(check.randn(rows, 4), n_heads),
                ValueError,
                f"interleaved_to_half(weight ({rows}, 4), {n_heads})",
            )

    # Catches a permutation matrix created on the CPU.
    with check.follows_device(0.25):
        check.follows(calling(check.randn(12, 8), 3), "interleaved_to_half(weight (12, 8), 3)")


# ---- attention ------------------------------------------------------------------------------------------------------

# Positions are below 50 here, where float32 angles are off by 1e-5; right modules were off by 6e-6. The bank's mistakes
# move some output by more than 0.3.
ATTENDED = Tolerance(rtol=0, atol=3e-4)
# The whole module in bfloat16: over 60 seeds and four ways to write attention, right modules were off by at most 0.18;
# angles in bfloat16 move some output by more than 3.
ATTENDED_BFLOAT16 = Tolerance(rtol=0, atol=0.6)

LENGTHS_ONE_BY_ONE = Hint(
    "The first text is right, one of another length after it is not. (What you keep from one call must not change the next.)",
    form=True,
)
CAUSAL_POSITIONS = (
    "With is_causal=True the output is right, with positions given besides it is not. (The mask goes by the index, the "
    "rotation by the positions given.)"
)
CAUSAL_HALF = Hint(
    "In half precision the module goes wrong with is_causal=True. (A mask is boolean, or is added in the dtype of the "
    "scores; a hidden score is -inf, since float16 ends at 65,504.)",
    form=True,
)
LONG_TEXT = "Short texts are right, one of {:,} tokens is not. (Texts may have any length.)"
STALE = Hint(
    "By itself a call without positions is right, after calls with positions it is not. (What you keep from one call must not "
    "change the next.)",
    form=True,
)
CAUSAL = "With is_causal=True some token does not see just the tokens up to it. (The token at index i sees the indices 0..i.)"
MODULE_BFLOAT16 = (
    "The module is right in float32, but not after .to(torch.bfloat16). (Positions, frequencies and angles stay in at "
    "least float32; a buffer is converted with the module.)"
)


def beyond_causal(weights: dict, n_heads: int, x: torch.Tensor, positions: torch.Tensor | None = None) -> Probe:
    """Row t of the causal output minus the last row, without a mask, of the sequence that ends at t.

    It is zero whatever the rotation, so a wrong rotation does not cost points again.
    """

    def probe(cls: Any) -> torch.Tensor:
        module = built(cls, weights, n_heads)

        def at(n: int) -> dict[str, torch.Tensor]:
            return {} if positions is None else {"positions": positions[:n].clone()}

        n = x.shape[1]
        ends = [module(x[:, :t].clone(), **at(t))[:, -1] for t in range(1, n + 1)]
        return less(module(x.clone(), **at(n), is_causal=True), torch.stack(ends, dim=1))

    return probe


def longer_causal(weights: dict, n_heads: int, x: torch.Tensor, positions: torch.Tensor) -> Probe:
    """The causal output of a module that has read a shorter text, minus that of a new module: zero."""

    def probe(cls: Any) -> torch.Tensor:
        fresh, used = (built(cls, weights, n_heads) for _ in range(2))
        used(x[:, :3].clone(), positions=positions[:3].clone(), is_causal=True)
        return less(*(module(x.clone(), positions=positions.clone(), is_causal=True) for module in (used, fresh)))

    return probe


def means(weights: dict, x: torch.Tensor, **options: Any) -> Probe:
    """The output for x of a module with queries 0: means of the values, whatever the rotation."""
    return attended(weights | {"q_proj.weight": torch.zeros_like(weights["q_proj.weight"])}, 1, x, **options)


def _reading(weights: dict, n_heads: int, x: torch.Tensor, positions: torch.Tensor) -> Probe:
    return lambda cls: built(cls, weights, n_heads)(x, positions=positions)


def beyond_the_default(weights: dict, n_heads: int, x: torch.Tensor, positions: torch.Tensor) -> Probe:
    """The output with base=10000 given minus the output without it: zero, to the last bit."""
    given, default = (attended(weights, n_heads, x, base=base, positions=positions) for base in (10000.0, None))
    return lambda cls: less(given(cls), default(cls))


@exercise(WEEK, "RotaryMultiHeadAttention")
def RotaryMultiHeadAttention(check: Check) -> None:
    name = "RotaryMultiHeadAttention"
    # Catches a wrong scale, a softmax over the queries, heads mixed with tokens, rotated values, only q or k rotated.
    with check.criterion("attention as such (all positions equal, so rotations cancel)", 0.25, golden=True):
        for batch, seq_len, d_model, n_heads in ((2, 5, 12, 2), (4, 4, 16, 4)):
            weights, x = weights_and_text(check, batch, seq_len, d_model)
            check.agrees(
                attended(weights, n_heads, x, positions=at_positions(check, *[5] * seq_len)),
                f"{name}({d_model}, {n_heads})(x {tuple(x.shape)}, positions all 5)",
                ATTENDED,
            )
    # Catches no rotation, one before the head split, a wrong layout or exponent, angles cached from another text.
    with check.criterion("rotated queries and keys, positions 0..n-1", 1.5, golden=True):
        attention_in_order(check, name)
        in_order = check.reached()
    # Catches positions ignored or looked up in a table of integers, and row 0 used for all sequences.
    with check.criterion("positions as given, also one row per sequence", 1, golden=True):
        attention_after_positions(check, name, in_order, *attention_at_positions(check, name))
    # Catches a hard-coded base of 10,000.
    with check.criterion("another base", 0.25, golden=True):
        attention_base(check, name)
    # Catches a mask that compares positions, hides the token itself or nothing, or uses -1e4 for -inf.
    with check.criterion("is_causal masks by index", 1):
        weights, x = weights_and_text(check, 2, 5, 16)
        given = at_positions(
            check, 7, 7, 1, 9, 3
        )  # a mask that compares positions shows here, whatever it does with ties
        causal_by_index(check, name, weights, x, given)
        causal_long_text(check, name)
        causal_ends(check, name, weights, x, given)
        causal_far_below(check, name)
        causal = check.reached()
    # Catches positions or angles in bfloat16, frequencies in a buffer that .to() rounds, -1e9 as a mask in float16.
    with check.criterion("bfloat16 does not change the angles", 0.5, golden=True):
        attention_in_half_precision(check, name, causal)
    # Catches biases, and a table in the state_dict.
    with check.criterion("four bias-free projections and nothing else in the state_dict", 0.25):
        check.agrees(
            lambda cls: {key: tuple(value.shape) for key, value in cls(12, 2).state_dict().items()},
            f"{name}(12, 2).state_dict()",
            hint=FOUR_WEIGHTS,
        )
    # Catches gradients cut off, x or positions changed in place, indivisible sizes accepted.
    with check.criterion("passes gradients, leaves its arguments alone, refuses sizes that do not fit", 0.125):
        attention_manners(check, name)

    # Catches positions, frequencies or a mask created on the CPU.
    with check.follows_device(0.125):
        x = check.randn(2, 5, 16)
        check.follows(
            made_there((16, 2), x, is_causal=True), "RotaryMultiHeadAttention(16, 2)(x (2, 5, 16), is_causal=True)"
        )


def at_positions(check: Check, *values: Any) -> torch.Tensor:
    return torch.tensor(values, device=check.device)


def attention_in_order(check: Check, name: str) -> None:
    for batch, seq_len, d_model, n_heads in ((4, 4, 16, 4), (1, 12, 8, 2)):
        weights, x = weights_and_text(check, batch, seq_len, d_model)
        check.agrees(attended(weights, n_heads, x), f"{name}({d_model}, {n_heads})(x {tuple(x.shape)})", ATTENDED)
    weights, x = weights_and_text(check, 2, 9, 16)
    for first, then in ((9, 4), (3, 9)):
        check.agrees(
            attended(weights, 2, x[:, :then], before=[(x[:, :first], {})]),
            f"{name}(16, 2) on a text of {first} tokens, then on one of {then}",
            ATTENDED,
            LENGTHS_ONE_BY_ONE,
        )
    weights, x = weights_and_text(check, 1, 600, 2)
    check.agrees(means(weights, x), f"{name}(2, 1)(x (1, 600, 2), q_proj 0)", ATTENDED, LONG_TEXT.format(600))


def attention_at_positions(check: Check, name: str) -> tuple[dict, torch.Tensor, torch.Tensor]:
    """Return the weights, the texts, and the rows of positions of the last check."""
    weights, x = weights_and_text(check, 3, 4, 16)
    rows = at_positions(check, (0, 1, 2, 3), (2, 9, 4, 0), (5, 5, -8, 30))
    for given, words, hint in (
        (at_positions(check, 0, 1, 2, 3), "0..3", ""),
        (at_positions(check, 0, 0, 0, 0), "all 0", GIVEN),
        (at_positions(check, 7, 2, -9, 2.5), "in any order, negative and fractional", GIVEN),
        (rows, "of shape (3, 4)", ROWS),
    ):
        probe = attended(weights, 2, x, positions=given)
        check.agrees(probe, f"{name}(16, 2)(x {tuple(x.shape)}, positions {words})", ATTENDED, hint)
    return weights, x, rows


def attention_after_positions(
    check: Check, name: str, in_order: Gate, weights: dict, x: torch.Tensor, rows: torch.Tensor
) -> None:
    with in_order:
        after = attended(weights, 2, x, before=[(x, {"positions": rows[1]})])
        check.agrees(after, f"{name}(16, 2)(x {tuple(x.shape)}) after a call with positions", ATTENDED, STALE)


def causal_long_text(check: Check, name: str) -> None:
    """With all positions 0 a table of angles of any length will do, so only the mask is tested."""
    weights, _ = weights_and_text(check, 1, 1, 2)
    short, long = ({"positions": at_positions(check, *[0] * n), "is_causal": True} for n in (3, 1030))
    x, call = check.randn(1, 1030, 2), f"{name}(2, 1)(x (1, {{}}, 2), q_proj 0, positions all 0, is_causal=True)"
    with check.holds(means(weights, x[:, :3], **short), call.format(3), ATTENDED):
        check.agrees(means(weights, x, **long), call.format(1030), ATTENDED, LONG_TEXT.format(1030))


def attention_base(check: Check, name: str) -> None:
    weights, x = weights_and_text(check, 2, 9, 16)
    check.agrees(attended(weights, 2, x), f"{name}(16, 2)(x {tuple(x.shape)})", ATTENDED)
    based = attended(weights, 2, x, base=7.5)
    check.agrees(based, f"{name}(16, 2, base=7.5)(x {tuple(x.shape)})", ATTENDED, BASE)
    # At far positions a base of 10,001 moves some output by 0.004.
    check.agrees(
        beyond_the_default(weights, 2, x, far_positions(check, 9)),
        f"{name}(16, 2, base=10000.0)(x {tuple(x.shape)}, far positions) less the same without base",
        ATTENDED,
    )


def causal_by_index(check: Check, name: str, weights: dict, x: torch.Tensor, given: torch.Tensor) -> None:
    call = f"{name}(16, 2)(x (2, 3, 16), positions in any order, is_causal=True)"
    less_ends = "row t minus the last row for x[:, :t+1] without a mask"
    check.agrees(
        beyond_causal(weights, 2, x[:, :3]),
        f"{name}(16, 2)(x (2, 3, 16), is_causal=True), {less_ends}",
        ATTENDED,
        CAUSAL,
    )
    check.agrees(beyond_causal(weights, 2, x[:, :3], given[:3]), f"{call}, {less_ends}", ATTENDED, CAUSAL_POSITIONS)


def causal_ends(check: Check, name: str, weights: dict, x: torch.Tensor, given: torch.Tensor) -> None:
    """Check that the first token sees only itself, whatever the rotation, also after a shorter text."""
    call = f"{name}(16, 2)(x {tuple(x.shape)}, positions in any order, is_causal=True)"
    check.agrees(
        longer_causal(weights, 2, x, at_positions(check, 1, 1, 1, 1, 1)),
        f"{name}(16, 2)(x {tuple(x.shape)}, positions all 1, is_causal=True) after a text of 3 tokens, less the same "
        "from a new module",
        ATTENDED,
        LENGTHS_ONE_BY_ONE,
    )
    causal = attended(weights, 2, x, positions=given, is_causal=True)
    check.agrees(lambda cls: causal(cls)[:, 0], f"{call}, the first row", ATTENDED, CAUSAL_POSITIONS)


def causal_far_below(check: Check, name: str) -> None:
    weights, x = rising_scores(check, 2, 4, 32, n_heads=2)
    low = attended(weights, 2, x, positions=at_positions(check, 0, 0, 0, 0), is_causal=True)
    check.agrees(
        lambda cls: low(cls)[:, 0],
        f"{name}(32, 2)(x {tuple(x.shape)}, scores far below 0, positions all 0, is_causal=True), the first row",
        ATTENDED,
        FAR_BELOW,
    )


def attention_in_half_precision(check: Check, name: str, causal: Gate) -> None:
    weights, x = weights_and_text(check, 2, 24, 32)
    far, shown = far_positions(check, 24), f"x {tuple(x.shape)}, far positions"
    # float32 angles up to 8191 are off by 2e-3 (see FAR), outputs were off by 1e-3; wrong frequencies give over 1
    check.agrees(attended(weights, 2, x, positions=far), f"{name}(32, 2)({shown})", FAR)
    rounded, call = x.to(torch.bfloat16), f"{name}(32, 2).to(bfloat16)"
    probe = attended(weights, 2, rounded, positions=far)
    check.agrees(probe, f"{call}({shown})", ATTENDED_BFLOAT16, MODULE_BFLOAT16)
    x = check.randn(1, 330, 32, dtype=torch.bfloat16)  # bfloat16 cannot count to 330
    probe, call = attended(weights, 2, x), f"{call}(bfloat16 x {tuple(x.shape)})"
    check.agrees(probe, call, ATTENDED_BFLOAT16, MODULE_BFLOAT16)
    check.has_dtype(probe, torch.bfloat16, call)
    with causal:
        half, call = x[:, :9].half(), f"{name}(32, 2)(x (1, 9, 32), is_causal=True) in float16"
        check.agrees(attended(weights, 2, half, is_causal=True), call, ATTENDED_BFLOAT16, CAUSAL_HALF)


def attention_manners(check: Check, name: str) -> None:
    weights, x = weights_and_text(check, 2, 4, 12)
    equal, call = at_positions(check, 3, 3, 3, 3), f"{name}(12, 2)(x {tuple(x.shape)}, positions all 3)"
    check.unchanged(_reading(weights, 2, x, equal), call, x, equal)
    # gradients are products with one more matrix than the outputs, of the same order
    slope = attended(weights, 2, x, positions=equal, differentiate=True)
    check.agrees(slope, f"the gradient of {call}", ATTENDED, CUT)
    for d_model, n_heads in ((10, 4), (6, 2)):
        x = check.randn(1, 2, d_model)
        check.raises(making(d_model, n_heads, then=x), ValueError, f"{name}({d_model}, {n_heads})")


# ---- bug hunt -------------------------------------------------------------------------------------------------------

File = tuple[Callable, Callable, Callable]  # rotate_llama, prompt_scores, decode_step_scores


def _prompt_scores(q: torch.Tensor, k: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    positions = torch.arange(q.shape[-2], device=q.device)
    return reference.apply_rotary_emb(q, positions, base) @ reference.apply_rotary_emb(k, positions, base).mT


def _double_prompt_scores(q: torch.Tensor, k: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    return _prompt_scores(q.double(), k.double(), base).to(q.dtype)


def _decoded_from_0(q: torch.Tensor, k_cache: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """The listing's version: the newest query counts as position 0."""
    positions = torch.arange(k_cache.shape[-2], device=q.device)
    q = reference.apply_rotary_emb(q, positions[: q.shape[-2]], base)
    return q @ reference.apply_rotary_emb(k_cache, positions, base).mT


def _decoded_by_distance(q: torch.Tensor, k_cache: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    distances = torch.arange(k_cache.shape[-2], device=q.device) - k_cache.shape[-2] + 1
    return q @ reference.apply_rotary_emb(k_cache, distances, base).mT


def _from_tables(woven: bool = False, low: bool = False) -> Callable:
    """The listing's ``rotate_llama`` with its bugs as options: ``woven`` pairs neighbours, ``low`` rounds angles."""

    def rotate_llama(x: torch.Tensor, positions: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
        dtype = x.dtype if low else torch.float32
        frequencies = reference.rope_frequencies(x.shape[-1], base).to(x.device, dtype)
        angles = positions.to(x.device, dtype)[:, None] * frequencies
        cos, sin = (torch.cat((table, table), -1).to(x.dtype) for table in (angles.cos(), angles.sin()))
        quarter = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2) if woven else reference.rotate_half(x)
        return x * cos + quarter * sin

    return rotate_llama


OWN: File = reference.apply_rotary_emb_half, _prompt_scores, reference.decode_step_scores
REPAIRED: File = _from_tables(), _double_prompt_scores, reference.decode_step_scores
BY_DISTANCE: File = reference.apply_rotary_emb_half, _prompt_scores, _decoded_by_distance
LISTING: File = _from_tables(woven=True, low=True), _prompt_scores, _decoded_from_0


def _says(is_right: bool, otherwise: str) -> Callable[[Any], Fault | None]:
    def judge(got: Any) -> Fault | None:
        sentence = DIAGNOSES["not bool"] if type(got) is not bool else "" if got is is_right else otherwise
        return _called(sentence) if sentence else None

    return judge


@exercise(WEEK, "serving_test")
def serving_test(check: Check) -> None:
    def judged(words: str, file: File, is_right: bool, sentence: str) -> None:
        check.satisfies(calling(*file), f"serving_test of {words}", _says(is_right, DIAGNOSES[sentence]))

    # Catches a test that passes every file or none, asks for what is not promised, or returns a tensor.
    with check.criterion("passes a right file, refuses the listing", 0.5, golden=True):
        judged("a right file", OWN, True, "refuses right")
        judged("the listing", LISTING, False, "passes the listing")
    # Catches a test that allows no rounding, or compares steps where only the scores are promised.
    with check.criterion("passes right files that are written in other ways", 0.25):
        judged("a right file", OWN, True, "refuses right")  # otherwise the next two prove nothing
        judged("a right file that rounds elsewhere", REPAIRED, True, "refuses rounding")
        judged("a right file that decodes by distances", BY_DISTANCE, True, "refuses distances")
    # Catches a test that misses pairs of one layout combined with tables of the other.
    with check.criterion("refuses a file with one of the three bugs", 0.25):
        judged("a file with one bug", (_from_tables(woven=True), *OWN[1:]), False, "passes a layout")
    # Catches a test that misses angles rounded to bfloat16, since it tries no far position in bfloat16.
    with check.criterion("refuses a file with another one", 0.5):
        judged("a file with one bug", (_from_tables(low=True), *OWN[1:]), False, "passes low precision")
    # Catches a test that misses a newest token at position 0, since it tries no decoding step or only the first.
    with check.criterion("refuses a file with the last one", 0.5):
        judged("a file with one bug", (*OWN[:2], _decoded_from_0), False, "passes a query at 0")


@exercise(WEEK, "rotate_half")
def rotate_half(check: Check) -> None:
    # Catches neighbours instead of halves, a misplaced or missing minus sign, halves kept, flipped or interleaved.
    with check.criterion("values", 0.75, golden=True):
        for shape in ((2, 2, 2, 4), (2, 3, 5, 8)):
            check.agrees(calling(check.randn(*shape)), f"rotate_half(x {shape})", MOVED)
    # Catches a result always in float32, x changed in place, gradients cut off.
    with check.criterion("keeps dtype and gradient, leaves x alone", 0.125):
        x, call = check.randn(2, 2, 3, 6), "rotate_half(x (2, 2, 3, 6))"
        check.has_dtype(calling(x.bfloat16()), torch.bfloat16, f"{call} in torch.bfloat16")
        check.agrees(calling(as_heads(check, 2, 3, 4, 6)), "rotate_half(x (2, 3, 4, 6)), x transposed", MOVED, STRIDES)
        check.agrees(calling(check.randn(2, 6, dtype=torch.float64)), "rotate_half(float64 x (2, 6))", EXACT, FLOAT64)
        check.keeps(lambda f, x: f(x), call, x)  # first: a write spoils the gradient
        check.agrees(differentiating(x), f"the gradient of {call}", MOVED, CUT)

    # Catches signs created on the CPU.
    with check.follows_device(0.125):
        check.follows(calling(check.randn(2, 3, 8)), "rotate_half(x (2, 3, 8))")


@exercise(WEEK, "rotary_tables", returns=("cos", "sin"))
def rotary_tables(check: Check) -> None:
    # The snippet's float32 tables are right already, so half precision is golden and the rest counts only with it.
    # cos and sin are at most 1: student and reference each round by up to 2^-9 (bfloat16) or 2^-12 (float16), together
    # 4e-3 or 5e-4, and float32 angles add 4e-4. Half-precision angles are off by more than 1.
    # Catches frequencies, positions or angles rounded before the cosine, tables swapped or too wide, a wrong dtype.
    with check.criterion("far positions in bfloat16 and float16", 0.5, golden=True):
        for dtype, atol, head_dim in ((torch.bfloat16, 6e-3, 16), (torch.float16, 2e-3, 64)):
            far, call = far_positions(check, 20), f"rotary_tables(positions up to 8191, {head_dim}"
            check.agrees(calling(far, head_dim), f"{call})", FAR)
            rounded = Tolerance(rtol=0, atol=atol, exact_dtype=True)
            check.agrees(calling(far, head_dim, dtype=dtype), f"{call}, {dtype})", rounded, TABLES)
    # Catches a hard-coded base of 10,000, integer positions only, tables handed out twice.
    with check.criterion(
        "the rest of the contract still holds: any positions, base and dtype, new tables on each call", 0.25
    ):
        near, steps = replace(NEAR, exact_dtype=True), torch.arange(6, device=check.device)
        check.agrees(calling(steps, 6), "rotary_tables(positions 0..5, 6)", near)
        check.returns_new("rotary_tables(positions 0..5, 6)", steps, 6, tolerance=near)
        check.agrees(
            calling(torch.tensor([3.5, -2.0, 40.0, 1.0, 7.25, 9.0], device=check.device), 6),
            "rotary_tables(positions [3.5, -2, 40, 1, 7.25, 9], 6)",
            near,
            FRACTION,
        )
        check.agrees(calling(steps, 6, base=7.5), "rotary_tables(positions 0..5, 6, base=7.5)", near, BASE)
        check.agrees(calling(steps.int(), 6), "rotary_tables(int32 positions 0..5, 6)", near, INT32_POSITIONS)
        odd = torch.tensor([1.0, 257.0, 993.0, 2033.0], device=check.device)  # float16 holds these, bfloat16 does not
        exact, words = replace(FAR, exact_dtype=True), "[1, 257, 993, 2033]"
        check.agrees(calling(odd, 16), f"rotary_tables(float32 positions {words}, 16)", exact)
        check.agrees(
            calling(odd, 16, dtype=torch.bfloat16),
            f"rotary_tables(float32 positions {words}, 16, torch.bfloat16)",
            Tolerance(rtol=0, atol=6e-3, exact_dtype=True),
            TABLES,
        )

    # Catches frequencies created on the CPU.
    with check.follows_device(0.25):
        positions = torch.arange(5, device=check.device)
        check.follows(calling(positions, 8), "rotary_tables(positions 0..4, 8)")


MANY_CACHED = Hint("Short caches are right, one of 2,100 keys is not. (A cache may have any length.)", form=True)


OTHER_KEYS = Hint(
    "First keys are right, others after them are not. (What you keep from one call must not change the next.)",
    of_state=True,
)


@exercise(WEEK, "decode_step_scores")
def decode_step_scores(check: Check) -> None:
    def drawn(batch: int, heads: int, n_keys: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        q, keys = check.randn(batch, heads, 1, head_dim), check.randn(batch, heads, n_keys, head_dim)
        return q, keys, f"decode_step_scores(q {tuple(q.shape)}, k_cache {tuple(keys.shape)})"

    # |q| |k| stays below 40 and angles are off by less than 1e-5 here; the bank's mistakes move some score by 0.1.
    tolerance = Tolerance(rtol=0, atol=1e-3)
    # Catches the query at position 0 or one too far, keys unrotated or all at the end, scores scaled or softmaxed.
    with check.criterion("scores", 0.5, golden=True):
        for shape in ((4, 4, 4, 6), (2, 2, 1, 4), (2, 3, 9, 8)):
            q, keys, call = drawn(*shape)
            check.agrees(calling(q, keys), call, tolerance)
        q, other, call = drawn(2, 3, 10, 8)
        other = torch.cat((keys[:, :, :1], other[:, :, 1:]), dim=2)
        check.agrees(calling(q, other), f"{call}, one key more, the first as before", tolerance, OTHER_KEYS)
        q, keys = as_heads(check, 2, 3, 1, 8), as_heads(check, 2, 3, 10, 8)
        check.agrees(calling(q, keys), f"{call}, both transposed", tolerance, STRIDES)
        q, keys, call = drawn(1, 1, 2100, 4)
        # float32 angles are off by 1e-3 there
        check.agrees(calling(q, keys), call, Tolerance(rtol=0, atol=2e-2), MANY_CACHED)
    # Catches a hard-coded base of 10,000.
    with check.criterion("another base", 0.25, golden=True):
        q, keys, call = drawn(2, 2, 9, 8)
        check.agrees(calling(q, keys), call, tolerance)
        check.agrees(calling(q, keys, base=7.5), f"{call}, base=7.5", tolerance, BASE)
    # Catches angles in bfloat16, a result always in float32, gradients cut off, the cache changed in place.
    with check.criterion("long caches, bfloat16 kept, gradients, arguments left alone", 0.125):
        # Summed products of rounded numbers are off by 2^-8 * |q| |k| < 0.16, since |q| |k| < 40; measured 0.13. Angles
        # in bfloat16 move some score by more than 4.
        q, keys, call = drawn(2, 2, 400, 16)
        check.agrees(calling(q, keys), call, tolerance)
        q, keys, call = q.to(torch.bfloat16), keys.to(torch.bfloat16), f"{call} in bfloat16"
        scores = calling(q, keys)
        check.agrees(scores, call, Tolerance(rtol=0, atol=0.5), HALF_PRECISION)
        check.has_dtype(scores, torch.bfloat16, call)
        q, keys, call = drawn(1, 2, 5, 6)
        check.has_dtype(calling(q.half(), keys.half()), torch.float16, f"{call} in float16")
        check.keeps(lambda f, *given: f(*given), call, q, keys)  # first: a write spoils the gradient
        check.agrees(differentiating(q, keys, at=1), f"the gradient of {call} for k_cache", tolerance, CUT)

    # Catches positions or frequencies created on the CPU.
    with check.follows_device(0.125):
        q, k_cache = check.randn(2, 2, 1, 8), check.randn(2, 2, 6, 8)
        check.follows(calling(q, k_cache), "decode_step_scores(q (2, 2, 1, 8), k_cache (2, 2, 6, 8))")


# ---- a head that looks back -----------------------------------------------------------------------------------------


ENOUGH = 0.8  # the weight of the right token


def require_look_back(check: Check, back: int, head_dim: int, n_keys: int, is_named: bool = True) -> None:
    """Require the weight ``ENOUGH`` for the token ``back`` positions before the query. If it is less, say where the
    head looks, and unless ``is_named`` is false give that as the cause."""
    call = f"look_back_head({back}, {head_dim}, {n_keys})"

    def judge(pair: Any) -> Fault | None:
        if not _are_two_vectors(pair, head_dim):
            return _called(DIAGNOSES["not two vectors"])
        q, k = (part.detach().cpu().double() for part in pair)
        if not (q.isfinite().all() and k.isfinite().all()):
            return _called(DIAGNOSES["not finite"])
        scores = look_back_scores(q, k, n_keys)
        weight = float(scores.softmax(-1)[back])
        if weight >= ENOUGH:
            return None
        shown = f"{call}: of {n_keys} keys the one {back} back gets the weight {weight:.2g}"
        where = _where_it_looks(q, k, back, scores)
        names = (DIAGNOSES[where],) if where and is_named else ()
        return Fault(f"{shown}; the highest score is that of the key {int(scores.argmax())} back", names)

    check.satisfies(calling(back, head_dim, n_keys), call, judge)


def _called(sentence: str) -> Fault:
    return Fault(sentence, (sentence,))


def _are_two_vectors(pair: Any, head_dim: int) -> bool:
    return (
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and all(isinstance(part, torch.Tensor) and part.is_floating_point() for part in pair)
        and all(tuple(part.shape) == (head_dim,) for part in pair)
    )


def _where_it_looks(q: torch.Tensor, k: torch.Tensor, back: int, scores: torch.Tensor) -> str:
    favourite, highest = int(scores.argmax()), float(scores.max())
    woven_q, woven_k = (torch.stack(part.chunk(2), dim=-1).flatten() for part in (q, k))
    if look_back_scores(woven_q, woven_k, len(scores)).softmax(-1)[back] >= ENOUGH:
        return "woven head"
    if highest - float(scores.min()) < 1e-6:
        return "no favourite"
    ahead = look_back_scores(k, q, len(scores))  # swapping query and key gives the offsets 0, -1, -2, ...
    if int(ahead.argmax()) == back and float(ahead[back]) > highest + 1e-6:
        return "looks ahead"
    if favourite == back:
        return "too quiet"
    if favourite == 0 and back == 1:  # this may be one beside the right token, or always the newest
        return ""
    if favourite == 0:
        return "looks at itself"
    return "one beside" if abs(favourite - back) == 1 else "looks elsewhere"


@exercise(WEEK, "look_back_head")
def look_back_head(check: Check) -> None:
    # Catches a head that looks ahead, at itself or one token beside, or prefers the right token by too little.
    with check.criterion("three back, 16 channels, 64 keys", 0.5, golden=True):
        require_look_back(check, 3, 16, 64)
        first = check.reached()

    def required(back: int, head_dim: int, n_keys: int) -> None:
        for gate, is_named in ((first, True), (~first, False)):  # one head gets one cause
            with gate:
                require_look_back(check, back, head_dim, n_keys, is_named)

    # Catches 3 back whatever is asked, and the half-split layout, which happens to work for 3 back.
    with check.criterion("other distances", 0.5, golden=True):
        for back in (1, 31, 63):
            required(back, 16, 64)
    # Catches a strength tuned for 16 channels.
    with check.criterion("other sizes of the head", 0.5, golden=True):
        for head_dim in (10, 64):
            required(5, head_dim, 64)
    # Catches a strength tuned for 64 keys.
    with check.criterion("other lengths of the text", 0.5, golden=True):
        for back, head_dim, n_keys in ((3, 16, 4), (5, 8, 1000), (500, 64, 1000)):
            required(back, head_dim, n_keys)
