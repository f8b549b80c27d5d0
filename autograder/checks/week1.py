"""Hidden tests of week 1, attention and permutations.

Blocks where axes can be mixed up start with square shapes: a softmax over the wrong axis or a misplaced mask then gives
a wrong value, which the diagnosis can name, instead of a shape error. Elsewhere the widths of keys and values and the
numbers of queries and keys all differ, so no scale or axis is right by accident.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from autograder.checks.attention_functions import FAR_BELOW, STRIDES, as_heads, mixed_mask
from autograder.checks.framework import Check, Fault, Hint, Probe, calling, differentiating, exercise
from autograder.checks.probes import calling_again
from autograder.script.compare import CUT, FOUR_PLACES, Tolerance, kind, only_where_zero

WEEK = "week1_permutation_equivariance"

# Over 40 seeds the bank's right solutions differ from the reference by at most 7e-7 in float32 with scores of order 2,
# 2e-5 with scores of a few hundred, 0.021 in bfloat16 and 0.0024 in float16, where some of them compute entirely in the
# input's dtype. A mistake gives NaN, an error, or much of the weight to another key.
CLOSE = Tolerance(rtol=0, atol=1e-4)
LARGE = Tolerance(rtol=0, atol=2e-3)
ROUNDED = {torch.bfloat16: Tolerance(rtol=0, atol=0.15), torch.float16: Tolerance(rtol=0, atol=0.03)}


# ---- 1.1 scaled_dot_product_attention -------------------------------------------------------------------------------

BROADCAST = Hint(
    "A mask of this shape goes wrong. (It broadcasts to (batch, heads, n_queries, n_keys) by PyTorch's own "
    "rules, from the last axis backwards.)",
    form=True,
)
ANOTHER_MASK = "With a mask that is all True the result is right, with another one of its shape it is not."
EMPTY_ROW = Hint(
    "A query that may attend to no key must have zero weights and a zero output, with finite gradients.",
    only_where_zero,
)
LARGE_SCORES = (
    "Large scores go wrong. (Use torch.softmax or subtract the largest score of each row first, and hide "
    "keys before the softmax.)"
)
LARGE_SLOPE = (
    "Where a hidden key has by far the highest score, the values are right, but the gradient is not finite: its exponential "
    "overflows. Hide keys before the softmax."
)
HALF_SLOPE = Hint(
    "In half precision a gradient is cut off, or is not finite, where a row of the mask is all False.", form=True
)
HALF = (
    "Half precision goes wrong. (Divide by sqrt(head_dim) before the product or compute the scores in "
    "float32, and hide keys by -inf.)"
)


def drawn(
    check: Check,
    batch: int,
    heads: int,
    n_queries: int,
    n_keys: int,
    head_dim: int,
    v_dim: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]:
    """Return q, k, v with scores of order 2, and their description for messages."""
    q = 2 * check.randn(batch, heads, n_queries, head_dim, dtype=dtype)
    k, v = (
        check.randn(batch, heads, n_keys, head_dim, dtype=dtype),
        check.randn(batch, heads, n_keys, v_dim, dtype=dtype),
    )
    word = "" if dtype == torch.float32 else f"{str(dtype).removeprefix('torch.')} "
    return q, k, v, f"{word}q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"


def finite_slope(*given: torch.Tensor) -> Probe:
    """Whether the gradient for k is finite: any gradient of the scores that is not finite reaches k."""
    slope = differentiating(*given, at=1, place=0)
    return lambda f: bool(slope(f).isfinite().all())


def usable_slope(given: list[torch.Tensor]) -> Probe:
    """Whether the gradient for q is finite and not all zero, however it is rounded."""
    slope = differentiating(*given, at=0, place=0)

    def probe(f: Any) -> bool:
        found = slope(f)
        return bool(found.isfinite().all() and found.any())

    return probe


@exercise(WEEK, "scaled_dot_product_attention", returns=("out", "weights"))
def scaled_dot_product_attention(check: Check) -> None:
    name = "scaled_dot_product_attention"
    # Catches no or a wrong scale, no softmax or a wrong axis, keys for values, transposed weights, results swapped.
    with check.criterion("output and weights without a mask", 1.25, golden=True):
        for sizes in ((4, 4, 4, 4, 4, 4), (3, 2, 4, 7, 16, 5), (1, 2, 1, 9, 5, 3)):
            q, k, v, words = drawn(check, *sizes)
            check.agrees(calling(q, k, v), f"{name}({words})", CLOSE)
    # Catches a mask ignored, inverted, transposed, added as 0/1, applied after the softmax, or taken from sequence 0.
    with check.criterion("masks of every shape that broadcasts", 1, golden=True):
        broadcast_masks(check, name)
    # Catches NaN or uniform weights in rows without a key, and a NaN replaced in the values that stays in the gradient.
    with check.criterion("rows that may attend to nothing", 0.75, golden=True):
        empty_rows(check, name)
    # Catches exp of large scores, weights hidden and renormalised, scaling after q @ k, a low number instead of -inf.
    with check.criterion("large scores and half precision", 0.75, golden=True):
        large_scores(check, name)
        half_precision(check, name)
    # Catches results always in float32, gradients cut off, an argument changed in place, `view` on transposed heads.
    with check.criterion("keeps the dtype, passes gradients, leaves its arguments alone", 0.125):
        call, *given = kept_dtypes(check, name)
        masked, shown = arguments_left_alone(check, name)
        gradients(check, call, given)
        gradients_with_an_empty_row(check, masked, shown)

    # Catches a mask, or the values that hide scores, created on the CPU.
    with check.follows_device(0.125):
        q, k, v, words = drawn(check, 2, 2, 4, 4, 8, 6)
        check.follows(calling(q, k, v), f"{name}({words})")
        check.follows(calling(q, k, v, mixed_mask(check, 4, 4)), f"{name}({words}, mask (4, 4))")


def broadcast_masks(check: Check, name: str) -> None:
    q, k, v, words = drawn(check, 4, 4, 4, 4, 6, 5)
    everything = torch.ones(4, 4, dtype=torch.bool, device=check.device)
    check.agrees(calling(q, k, v, everything), f"{name}({words}, mask (4, 4), all True)", CLOSE)
    check.agrees(calling(q, k, v, mixed_mask(check, 4, 4)), f"{name}({words}, mask (4, 4))", CLOSE, ANOTHER_MASK)
    of_keys = mixed_mask(check, 4, 1, 1, 4)
    check.agrees(calling(q, k, v, of_keys), f"{name}({words}, mask (4, 1, 1, 4))", CLOSE, BROADCAST)
    q, k, v, words = drawn(check, 2, 3, 5, 7, 4, 6)
    shapes: tuple[tuple[int, ...], ...] = ((7,), (3, 1, 7), (2, 1, 5, 7), (1, 1, 5, 7))
    for shape in shapes:
        mask = mixed_mask(check, *shape)
        check.agrees(calling(q, k, v, mask=mask), f"{name}({words}, mask=mask {shape})", CLOSE, BROADCAST)


def empty_rows(check: Check, name: str) -> None:
    q, k, v, words = drawn(check, 2, 3, 5, 7, 4, 6)
    mask = mixed_mask(check, 5, 7)
    mask[2] = False
    check.agrees(calling(q, k, v, mask), f"{name}({words}, mask (5, 7) with row 2 all False)", CLOSE, EMPTY_ROW)
    slope = "whether the gradient for k is finite, where row 2 of the mask is all False"
    check.agrees(finite_slope(q, k, v, mask), slope, hint=EMPTY_ROW)
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool, device=check.device)
    padding[1] = False
    shown = f"{name}({words}, mask (2, 1, 1, 7), sequence 1 all False)"
    check.agrees(calling(q, k, v, padding), shown, CLOSE, EMPTY_ROW)
    one_head = mixed_mask(check, 2, 3, 5, 7)
    one_head[:, 1, 3] = False
    shown = f"{name}({words}, mask (2, 3, 5, 7) with row 3 all False in head 1 alone)"
    check.agrees(calling(q, k, v, one_head), shown, CLOSE, EMPTY_ROW)
    nothing = torch.zeros(7, dtype=torch.bool, device=check.device)
    check.agrees(calling(q, k, v, nothing), f"{name}({words}, mask (7,) all False)", CLOSE, EMPTY_ROW)


def large_scores(check: Check, name: str) -> None:
    q, k, v, words = drawn(check, 2, 2, 4, 5, 8, 3)
    check.agrees(calling(60 * q, k, v), f"{name}({words}), scores up to some hundred", LARGE, LARGE_SCORES)
    # One hidden key scores far above all others: unless it is hidden before the softmax, the visible weights vanish.
    q, k, v, words = drawn(check, 2, 2, 1, 5, 8, 3)
    q = q.sign() + (q == 0)
    k = torch.cat((80 * q, k[:, :, 1:]), dim=2)
    mask = torch.tensor([False, True, True, False, True], device=check.device)
    above = "the hidden key 0 has a score above 200"
    check.agrees(calling(q, k, v, mask), f"{name}({words}), {above}", CLOSE, LARGE_SCORES)
    slope = f"whether the gradient for k is finite, where {above}"
    check.agrees(finite_slope(q, k, v, mask), slope, hint=LARGE_SLOPE)
    # A number in place of -inf hides nothing if the only visible key scores even lower: here below -1e11.
    q, k = torch.full_like(q, 2e5), -2e5 * (1 + k.abs())
    alone = torch.tensor([False, False, True, False, False], device=check.device)
    call = f"{name}({words}), all scores far below 0, the mask lets key 2 alone be seen"
    nothing = f"{name}({words}, mask (5,) all False)"
    with check.holds(calling(q, k, v, torch.zeros_like(alone)), nothing, CLOSE):  # otherwise paid for above
        check.agrees(calling(q, k, v, alone), call, CLOSE, FAR_BELOW)


def half_precision(check: Check, name: str) -> None:
    for dtype, tolerance in ROUNDED.items():
        q, k, v, words = drawn(check, 2, 3, 5, 7, 8, 6, dtype=dtype)
        mask = mixed_mask(check, 5, 7)
        check.agrees(calling(q, k, v, mask), f"{name}({words}, mask (5, 7))", tolerance, HALF)
    # A low number in place of -inf, added to a low score, overflows float16.
    q, k, mask = torch.full_like(q, 4), torch.full_like(k, -4), mask.clone()
    mask[1] = False
    low = f"{name}({words}, scores of -45, mask (5, 7) with row 1 all False)"
    with check.holds(calling(q.float(), k.float(), v.float(), mask), f"{low} in float32", CLOSE):
        check.agrees(calling(q, k, v, mask), low, tolerance, EMPTY_ROW)
    # q.k overflows float16, q.k / sqrt(head_dim) does not. The scores lie thousands apart, so rounding changes nothing.
    q = torch.full((1, 2, 3, 16), 100, dtype=torch.float16, device=check.device)
    steps = torch.tensor([60, 100, -80, 20], dtype=torch.float16, device=check.device)
    k, v = steps[:, None].expand(1, 2, 4, 16), check.randn(1, 2, 4, 5, dtype=torch.float16)
    words = f"float16 q all 100 {tuple(q.shape)}, k up to 100, v {tuple(v.shape)}"
    check.agrees(calling(q, k, v), f"{name}({words})", tolerance, HALF)


def kept_dtypes(check: Check, name: str) -> tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the description of the float32 call, and its q, k and v."""
    q, k, v, words = drawn(check, 2, 2, 3, 4, 6, 5, dtype=torch.bfloat16)
    for place, part in enumerate(("out", "weights")):
        check.has_dtype(returned(place, q, k, v), torch.bfloat16, f"{part} of {name}({words})")
    q, k, v, words = drawn(check, 2, 2, 3, 4, 6, 5)
    call = f"{name}({words})"
    check.agrees(calling(q, k, v), call, CLOSE)
    return call, q, k, v


def returned(place: int, *arguments: torch.Tensor) -> Probe:
    call = calling(*arguments)
    return lambda f: call(f)[place]


def arguments_left_alone(check: Check, name: str) -> tuple[list[torch.Tensor], str]:
    """Return [q, k, v, a mask with an empty row], and the description of their call."""
    *square, words = drawn(check, 2, 2, 4, 4, 6, 5)
    mask = mixed_mask(check, 4, 4)
    mask[0], mask[1] = True, False  # with one key in every row the weights would not depend on q and k
    shown = f"{name}({words}, mask (4, 4) with row 1 all False)"
    check.keeps(lambda f, *given: f(*given), shown, *square, mask)
    full = mask.expand(2, 2, 4, 4).clone()
    call = f"{name}({words}, mask (2, 2, 4, 4), row 1 all False)"
    check.unchanged(lambda f: f(*square, full), call, *square, full)
    heads = [as_heads(check, 2, 2, 4, 6) for _ in range(3)]
    check.agrees(calling(*heads), f"{name}(q, k, v (2, 2, 4, 6)), all transposed", CLOSE, STRIDES)
    return [*square, mask], shown


def gradients(check: Check, call: str, given: list[torch.Tensor]) -> None:
    """Compare the gradients for q, of the output and of the weights."""
    for place, part in enumerate(("out", "the weights")):
        slope = f"the gradient for q of {part} of {call}"
        check.agrees(differentiating(*given, at=0, place=place), slope, CLOSE, CUT)


def gradients_with_an_empty_row(check: Check, given: list[torch.Tensor], call: str) -> None:
    """Compare the gradients if they are finite; the block on rows that may attend to nothing charges for the others."""
    finite = check.holds(finite_slope(*given), f"whether the gradient for k of {call} is finite")
    with check.holds(calling(*given), call, CLOSE), finite:
        gradients(check, call, given)
        half = [each.to(torch.float16) if each.is_floating_point() else each for each in given]
        with check.holds(calling(*half), f"{call} in float16", ROUNDED[torch.float16]):
            slope = f"whether in float16 the gradient for q of {call} is finite and not all 0"
            check.agrees(usable_slope(half), slope, hint=HALF_SLOPE)


# ---- 1.2 attention_by_hand ------------------------------------------------------------------------------------------


def _by_hand() -> dict[str, float]:
    def attention(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        q = torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0], [3, 0, 0, 1]], dtype=torch.float64)[rows]
        k = torch.tensor([[1.0, 1, 0, 0], [0, 0, 2, 1], [1, 3, 0, 1]], dtype=torch.float64)[rows]
        v = torch.tensor([[2.0, 0], [0, 3], [1, -1]], dtype=torch.float64)[rows]
        weights = (q @ k.T / math.sqrt(4)).softmax(-1)
        return weights @ v, weights

    (out, w), (swapped_out, swapped_w) = attention([0, 1, 2]), attention([0, 2, 1])
    return {
        "w_0_0": w[0, 0].item(),
        "w_0_1": w[0, 1].item(),
        "w_0_2": w[0, 2].item(),
        "out_0_0": out[0, 0].item(),
        "out_0_1": out[0, 1].item(),
        "swapped_w_0_1": swapped_w[0, 1].item(),
        "swapped_out_0_0": swapped_out[0, 0].item(),
        "swapped_out_1_0": swapped_out[1, 0].item(),
    }


@exercise(WEEK, "attention_by_hand", reference=_by_hand())
def attention_by_hand(check: Check) -> None:
    # Catches a missing or wrong scale, a softmax over the columns, scores or exponentials that are not normalised.
    with check.criterion("the weights of query 0", 1, golden=True):
        check.entries("w_0_0", "w_0_1", "w_0_2", tolerance=FOUR_PLACES)
    # Catches a mean of the keys instead of the values.
    with check.criterion("the output at position 0", 1, golden=True):
        check.entries("out_0_0", "out_0_1", tolerance=FOUR_PLACES)
    # Catches a token that stays in its place, or moves without its query or its value.
    with check.criterion("after the swap", 1, golden=True):
        check.entries("swapped_w_0_1", "swapped_out_0_0", "swapped_out_1_0", tolerance=FOUR_PLACES)


# ---- 1.3 equivariance_gap -------------------------------------------------------------------------------------------

# A gap is a difference of float32 numbers of order 10; it is compared relative to its size.
GAP = Tolerance(rtol=1e-3, atol=1e-4)
WHOLE_BATCH = (
    "With a single sequence the gap is right, with several it is not. (Call f with the whole batch, and take the largest "
    "difference over everything.)"
)

UNROUNDED = Hint(
    "Large gaps are right, a tiny one is not: return the gap as it is, not rounded, nor set to zero where it is small.",
    lambda got, expected: got == 0,
    otherwise="Large gaps are right, a tiny one is not.",
)
NOT_A_FLOAT = "Your result is not a Python float: use .item()."

# Functions from (batch, seq_len, d) to (batch, seq_len, ...), each with its description for messages.
ORDERED: tuple[tuple[str, Callable], ...] = (
    ("minus the running sum over the tokens", lambda t: -t.cumsum(dim=1)),
    ("each token times its place", lambda t: t * torch.arange(t.shape[1], device=t.device, dtype=t.dtype)[:, None]),
    ("each token less the one before it", lambda t: t - t.roll(1, dims=1)),
)
UNORDERED: tuple[tuple[str, Callable], ...] = (
    ("twice each token", lambda t: 2 * t),
    ("attention without a mask", lambda t: (t @ t.mT / t.shape[-1]).softmax(-1) @ t),
    ("the length of each token", lambda t: t.square().sum(-1)),
)


FOUR_AXES = Hint(
    "Outputs with one axis of channels, or none, are right; one with two of them is not. (The tokens are axis 1.)",
    form=True,
)
AS_GIVEN = Hint("In float32 the gap is right, in float64 it is not: f gets x in the dtype it has.", form=True)
STRIDES_OF_F = Hint(
    "Where f returns a tensor that is not contiguous, this goes wrong. (`view` needs contiguous memory, `reshape` does not.)",
    form=True,
)
IN_FLOAT32 = Hint("Where f has weights in float32, your function fails: f gets x in the dtype it has.", form=True)
TINY = "In float64 a tiny gap goes wrong: it must be neither rounded to float32 on the way nor set to zero where it is small."
TRAINED = Hint(
    "Where f has trained parameters, your function fails: what f returns is then part of a graph. (Detach it before NumPy.)",
    form=True,
)


def learned(weight: torch.nn.Parameter) -> Callable:
    """Return a function whose output is part of an autograd graph, like that of any module."""

    def f(t: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return t.cumsum(1) * weight

    return f


def times(matrix: torch.Tensor) -> Callable:
    """Return a function: the running sum times a matrix, which fails for inputs of another dtype."""
    return lambda t: t.cumsum(1) @ matrix


def cycle(n: int, step: int) -> list[int]:
    """Return one cycle of all n positions: a permutation that is not its own inverse."""
    return [(place + step) % n for place in range(n)]


def _a_float(call: str) -> Callable[[Any], Fault | None]:
    def judge(got: Any) -> Fault | None:
        if isinstance(got, float):
            return None
        return Fault(f"{call} must return a Python float, got {kind(got)}", (NOT_A_FLOAT,))

    return judge


@exercise(WEEK, "equivariance_gap")
def equivariance_gap(check: Check) -> None:
    # Catches only input or only output permuted, channels or sequences permuted, a mean, a norm, a missing abs().
    with check.criterion("functions that see the order, two tokens exchanged", 0.5, golden=True):
        gaps_of_both_signs(check, (1, 4, 4), [0, 2, 1, 3])
        for words, f in ORDERED[1:]:
            gap_agrees(check, words, f, (1, 4, 4), [0, 2, 1, 3])
    # Catches the inverse permutation on one side or both, and code that expects an output of x's shape.
    with check.criterion("permutations that are not their own inverse, outputs of another shape", 1, golden=True):
        gaps_in_longer_cycles(check)
    # Catches two sides compared in different orders, which shows a gap where there is none.
    with check.criterion("functions that do not see the order have the gap 0", 0.5):
        for words, f in UNORDERED:
            gap_agrees(check, words, f, (1, 5, 4), cycle(5, 2))
    # Catches f called on one sequence at a time, and the gap of the first sequence only.
    with check.criterion("several sequences at once", 0.5):
        gaps_of_a_batch(check)
    # Catches a tensor result, a gap rounded or set to 0, x reordered in place, f called with x in another dtype.
    with check.criterion("returns a Python float, not rounded; leaves x and perm alone", 0.25):
        gap_form(check)

    # Catches an inverse permutation or a matrix created on the CPU, and outputs passed to NumPy.
    with check.follows_device(0.25):
        moved = times(check.randn(3, 3)), check.randn(2, 4, 3), torch.tensor([2, 0, 1, 3], device=check.device)
        shown = "equivariance_gap(f, x (2, 4, 3), perm [2, 0, 1, 3]), f: the running sum times a matrix,"
        check.follows(calling(*moved), shown)


def gap_agrees(
    check: Check,
    words: str,
    f: Callable,
    shape: tuple[int, ...],
    order: list[int],
    hint: Hint | str = "",
    dtype: torch.dtype = torch.float32,
    tolerance: Tolerance = GAP,
    given: torch.Tensor | None = None,
) -> None:
    """Compare the gap of f, which ``words`` describe in the message, for an x that is drawn or given."""
    x = check.randn(*shape, dtype=dtype) if given is None else given
    check.agrees(
        calling(f, x, torch.tensor(order, device=check.device)),
        f"equivariance_gap(f, x {shape}, perm {order}), f: {words}",
        tolerance,
        hint,
    )


def gaps_of_both_signs(check: Check, shape: tuple[int, ...], order: list[int]) -> None:
    """Compare the gaps of a function and of its negative for one x: without abs() one of them is wrong, whatever
    numbers the class has drawn."""
    x = check.randn(*shape)
    for words, f in (ORDERED[0], ("the running sum over the tokens", lambda t: t.cumsum(dim=1))):
        gap_agrees(check, words, f, shape, order, given=x)


def gaps_in_longer_cycles(check: Check) -> None:
    gaps_of_both_signs(check, (1, 4, 4), [2, 0, 1, 3])
    # Not a running sum: some of its rows are the same for x and the permuted x, and hold the largest gap now and then.
    words = "the first channel of each token less that of the one before it"
    gap_agrees(check, words, lambda t: (t - t.roll(1, dims=1))[..., 0], (1, 4, 4), [2, 0, 1, 3])
    words = "the running sum, two rows of numbers per token"
    gap_agrees(check, words, lambda t: -t.cumsum(1).unflatten(-1, (2, 2)), (1, 6, 4), [3, 0, 5, 1, 2, 4], FOUR_AXES)


def gaps_of_a_batch(check: Check) -> None:
    gap_agrees(check, *ORDERED[0], (1, 4, 4), [0, 3, 2, 1])
    # The largest gap lies in one sequence, which is not the first one in both x and its flip, whatever was drawn.
    x = check.randn(4, 4, 4)
    for given in (x, x.flip(0)):
        gap_agrees(check, *ORDERED[0], (4, 4, 4), [0, 3, 2, 1], WHOLE_BATCH, given=given)
    words = "minus the running sum, times the size of the batch"
    gap_agrees(check, words, lambda t: -t.cumsum(dim=1) * len(t), (4, 4, 4), [0, 3, 2, 1], WHOLE_BATCH)


def gap_form(check: Check) -> None:
    check.agrees(
        calling(
            ORDERED[0][1],
            check.randn(1, 5, 3, dtype=torch.float64) * 1e-8,
            torch.tensor([1, 0, 2, 4, 3], device=check.device),
        ),
        "equivariance_gap(f, x (1, 5, 3) of order 1e-8, perm), f: minus the running sum over the tokens",
        Tolerance(rtol=1e-3, atol=1e-12),
        UNROUNDED,
    )
    shape, order = (1, 5, 3), [1, 0, 2, 4, 3]
    mixing = times(check.randn(3, 3, dtype=torch.float64))
    words = "the running sum times a float64 matrix"
    gap_agrees(check, words, mixing, shape, order, AS_GIVEN, dtype=torch.float64)
    mixing = times(check.randn(3, 3))
    gap_agrees(check, "the running sum times a float32 matrix", mixing, shape, order, IN_FLOAT32)
    gap_agrees(
        check,
        "each token, plus 1e-10 of the running sum",
        lambda t: t + 1e-10 * t.cumsum(1),
        shape,
        order,
        TINY,
        dtype=torch.float64,
        tolerance=Tolerance(rtol=1e-3, atol=0),
    )
    weight = torch.nn.Parameter(torch.tensor(-2.0, device=check.device))
    gap_agrees(check, "the running sum times a trained number", learned(weight), shape, order, TRAINED)
    words = "the running sum, not contiguous"
    gap_agrees(check, words, lambda t: t.mT.cumsum(2).mT, shape, order, STRIDES_OF_F)
    x, perm = check.randn(2, 5, 3), torch.tensor([1, 0, 2, 3, 4], device=check.device)
    words, f = ORDERED[0]
    call = f"equivariance_gap(f, x (2, 5, 3), perm), f: {words}"
    check.satisfies(calling(f, x, perm), call, _a_float(call))
    check.unchanged(lambda gap: gap(f, x, perm), call, x, perm)


# ---- 1.5 causal_mask ------------------------------------------------------------------------------------------------


WITH_A_CACHE = Hint(
    "Square masks are right, one with a cache is not. (There is one row per query, one column per key, and "
    "the queries are the last positions: row r is at position n_keys - n_queries + r.)",
    form=True,
)


LONG = Hint("Small masks are right, a large one is not. (There may be any number of queries and keys.)", form=True)


HANDED_OUT_TWICE = (
    "You return the same mask twice: writing to the first changes the second. Return a new one on each call."
)


@exercise(WEEK, "causal_mask")
def causal_mask(check: Check) -> None:
    def masks(*sizes: tuple[int, int]) -> None:
        for n_queries, n_keys in sizes:
            hint: Hint | str = LONG if n_keys > 100 else WITH_A_CACHE if n_queries < n_keys else ""
            check.agrees(calling(n_queries, n_keys), f"causal_mask({n_queries}, {n_keys})", hint=hint)

    # Catches the token itself hidden, later tokens visible, numbers or -inf instead of booleans.
    with check.criterion("as many queries as keys", 1, golden=True):
        masks((4, 4), (1, 1), (7, 7))
    # Catches queries counted from position 0, a hidden cache, one row per key, a mask that is always square.
    with check.criterion("several new queries, with a cache", 1.5, golden=True):
        masks((3, 3), (2, 5), (6, 7))
    # Catches row 0 used for the only query, a maximum size, a cached mask returned again.
    with check.criterion("one new query, with a cache; a new mask on each call", 0.5):
        masks((1, 6), (1, 5000))
        for sizes in ((4, 4), (1, 6)):
            check.agrees(
                calling_again(*sizes), f"causal_mask{sizes}, when an earlier one was written to", hint=HANDED_OUT_TWICE
            )
        masks((300, 400))
