"""Hidden tests of week 6, relative biases.

Blocks where axes can be mixed up start with square shapes (batch = heads = seq_len): such a mistake then gives a wrong
value, which the diagnosis can name, instead of a shape error. Where the contract says "not looked at", a probe
*selects* the entries that count: the others may hold any value, even infinities.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder import reference
from autograder.checks.attention_functions import (
    CLOSE,
    DOUBLE,
    DTYPE,
    FAR_BELOW,
    NO_KEY_SLOPE,
    ONE_QUERY,
    SLOPE,
    STRIDES,
    as_heads,
    like_queries,
    mixed_mask,
)
from autograder.checks.framework import Check, Hint, Probe, calling, differentiating, exercise
from autograder.checks.probes import seen, seen_part
from autograder.errors import StudentError
from autograder.script.compare import CUT, Tolerance, kind, only_where_zero

WEEK = "week6_relative_bias"
Drawn = tuple[list[Tensor], str]  # inputs, and their description

EXACT = Tolerance(rtol=0, atol=0)  # integers, and values that are only moved

# ---- hand computations ----------------------------------------------------------------------------------------------

CONVENTIONS = {
    "t5_bi_back": 10.0,
    "t5_bi_ahead": 26.0,
    "t5_causal_back": 17.0,
    "shaw_back": 0.0,
    "shaw_ahead": 32.0,
    "xl_distance_back": 20.0,
    "deberta_back": 15.0,
    "deberta_ahead": 0.0,
}


@exercise(WEEK, "conventions_by_hand", reference=CONVENTIONS)
def conventions_by_hand(check: Check) -> None:
    # Catches two sides treated as one, and the side ahead counted from the wrong bucket.
    with check.criterion("T5's buckets", 1, golden=True):
        check.entries("t5_bi_back", "t5_bi_ahead", "t5_causal_back", tolerance=EXACT)
    # Catches missing clipping, and key and query swapped.
    with check.criterion("Shaw's rows", 0.5, golden=True):
        check.entries("shaw_back", "shaw_ahead", tolerance=EXACT)
    # Catches the offset's sign taken from another method.
    with check.criterion("Transformer-XL's distance, DeBERTa's rows", 0.5, golden=True):
        check.entries("xl_distance_back", "deberta_back", "deberta_ahead", tolerance=EXACT)


COSTS = {"shaw_layer": 4224.0, "t5_model": 384.0, "xl_layer": 589824.0, "deberta_table": 786432.0, "shaw_gib": 2.0}


@exercise(WEEK, "costs_by_hand", reference=COSTS)
def costs_by_hand(check: Check) -> None:
    # Catches a missing value table or side, and a table per head or layer where they share one.
    with check.criterion("parameters of Shaw and T5", 1, golden=True):
        check.entries("shaw_layer", "t5_model", tolerance=EXACT)
    # Catches one head's projection counted for all heads, and a span that covers one side only.
    with check.criterion("parameters of Transformer-XL and DeBERTa", 0.5, golden=True):
        check.entries("xl_layer", "deberta_table", tolerance=EXACT)
    # Catches bytes per number left out, and 10^9 for a GiB.
    with check.criterion("the table of vectors per pair, in GiB", 0.5, golden=True):
        check.entries("shaw_gib", tolerance=Tolerance(rtol=1e-3, atol=1e-6))


# ---- offsets --------------------------------------------------------------------------------------------------------

ALIGNED = Hint(
    "With as many queries as keys all is right; with fewer the queries are the last positions: row r is at position "
    "n_keys - n_queries + r.",
    lambda got, expected: bool((got[expected == 0] != 0).any()),
    otherwise="With as many queries as keys all is right, with fewer queries it is not.",
)
LAST = "With as many queries as keys all is right, with fewer queries it is not."


@exercise(WEEK, "relative_positions")
def relative_positions(check: Check) -> None:
    name = "relative_positions"
    # Catches query minus key.
    with check.criterion("as many queries as keys", 0.75, golden=True):
        for n in (4, 7):
            check.agrees(calling(n, n), f"{name}({n}, {n})", EXACT)
    # Catches queries counted from position 0.
    with check.criterion("fewer queries than keys: the last positions", 0.75, golden=True):
        for n_queries, n_keys in ((2, 5), (1, 4), (6, 9)):
            check.agrees(calling(n_queries, n_keys), f"{name}({n_queries}, {n_keys})", EXACT, ALIGNED)
    # Catches dtypes that cannot index, a cached matrix that the caller can overwrite, a bound missing or off by one.
    with check.criterion("int64, a new tensor on each call; refuses more queries than keys and none at all", 0.5):
        check.has_dtype(calling(4, 4), torch.int64, f"{name}(4, 4)")
        with check.answers(calling(1, 4), f"{name}(1, 4)"):
            check.agrees(calling(1, 1), f"{name}(1, 1)", EXACT, "One query and one key are allowed: their offset is 0.")
        check.returns_new(f"{name}(3, 4)", 3, 4, tolerance=EXACT)
        for n_queries, n_keys in ((5, 3), (4, 3), (0, 3)):
            check.raises(calling(n_queries, n_keys), ValueError, f"{name}({n_queries}, {n_keys})")


# ---- Shaw -----------------------------------------------------------------------------------------------------------

CLIPPED = Hint(
    "Offsets within clip are right, those beyond it are not. (They take the first or the last row; a "
    "negative index wraps round without an error.)",
    form=True,
)
ONE_ROW = Hint(
    "With larger tables all is right, with clip 0 it is not. (The tables have a single row then, which "
    "belongs to every offset.)",
    form=True,
)
NO_KEY = Hint(
    "A query that may attend to no key has zero weights and zero output; the value table must not reach it either.",
    only_where_zero,
)
MASKED = Hint(
    "Without a mask all is right, with one it is not. (Keys are hidden before the softmax, and the mask broadcasts.)",
    form=True,
)
ANY_MASK = Hint(
    "Some masks are right, one of this shape is not. (By PyTorch's rules it broadcasts to (batch, heads, n_queries, "
    "n_keys).)",
    form=True,
)
VALUES = "The weights are right, out is not. (out adds up weight * (v + rel_v[row]).)"
OVERFLOW = Hint(
    "Large scores go wrong. (exp overflows above 88 in float32; torch.softmax takes the largest score away first.)",
    form=True,
)
MASKED_SLOPE = Hint(NO_KEY_SLOPE, lambda got, expected: not bool(got.isfinite().all()), otherwise=CUT)
LARGE = Tolerance(rtol=0, atol=1e-3)  # scores of a few hundred are rounded to 3e-5
PARTS = ("out", "weights")  # the names of the results


def in_float32(check: Check, probe: Probe, call: str) -> None:
    """Compare value and dtype."""
    check.agrees(probe, call, CLOSE)
    check.has_dtype(probe, torch.float32, call)


def own_strides(check: Check, drawn: Callable[..., Drawn], sizes: tuple[int, ...], heads: int) -> None:
    """Compare out where the first ``heads`` arguments are transposed, as they come out of a projection."""
    tensors, words = drawn(*sizes)
    turned = [as_heads(check, *tensor.shape) if at < heads else tensor for at, tensor in enumerate(tensors)]
    check.agrees(result(calling(*turned), 0), f"out of {words}, not contiguous)", CLOSE, STRIDES)


def overflowing(check: Check, tensors: list[Tensor], words: str) -> None:
    large = [100 * tensors[0], *tensors[1:]]
    check.agrees(result(calling(*large), 1), f"weights of {words}, 100 * q)", LARGE, OVERFLOW)


def _far_below(check: Check, tensors: list[Tensor], words: str) -> Drawn:
    """Return the same arguments, but with similar queries and with keys that point against them."""
    q, _, *others = tensors
    q = like_queries(q)
    return [q, 0.02 * check.randn(*q.shape) - q, *others], f"{words}, k against q, scores far below 0"


def _shaw(
    check: Check, batch: int, heads: int, n_queries: int, n_keys: int, head_dim: int, v_dim: int, clip: int
) -> Drawn:
    tensors = [
        check.randn(*shape)
        for shape in (
            (batch, heads, n_queries, head_dim),
            (batch, heads, n_keys, head_dim),
            (batch, heads, n_keys, v_dim),
            (2 * clip + 1, head_dim),
            (2 * clip + 1, v_dim),
        )
    ]
    return (
        tensors,
        f"shaw_attention(q {tuple(tensors[0].shape)}, k {tuple(tensors[1].shape)}, v_dim {v_dim}, clip {clip}",
    )


def _shaw_agrees(
    check: Check,
    tensors: list[Tensor],
    words: str,
    hint: Hint | str = "",
    mask: Tensor | None = None,
    tolerance: Tolerance = CLOSE,
    part: str = "out",
) -> None:
    arguments = tensors if mask is None else [*tensors, mask]
    check.agrees(result(calling(*arguments), PARTS.index(part)), f"{part} of {words})", tolerance, hint)


@exercise(WEEK, "shaw_attention")
def shaw_attention(check: Check) -> None:
    # Catches a key table missing, unscaled or read by another offset. Nothing is clipped: that has its own criterion.
    with check.criterion("the weights: score q.(k + rel_k)/sqrt(head_dim)", 1, golden=True):
        for sizes in ((4, 4, 4, 4, 4, 4, 5), (2, 3, 5, 5, 8, 6, 6)):
            _shaw_agrees(check, *_shaw(check, *sizes), part="weights")
        weights_right = check.reached()
    # Catches a missing value table, and the key table used in its place.
    with check.criterion("out: the values and their own table", 1, golden=True):
        for sizes in ((4, 4, 4, 4, 4, 4, 5), (2, 3, 5, 5, 8, 6, 6)):
            tensors, words = _shaw(check, *sizes)
            with weights_right:
                _shaw_agrees(check, tensors, words, VALUES)
            with ~weights_right:
                _shaw_agrees(check, tensors, words)
    # Catches offsets that wrap around or are dropped instead of clipped.
    with check.criterion("offsets beyond clip, clip 0", 0.75, golden=True):
        for sizes, hint in (
            ((2, 2, 9, 9, 4, 4, 2), CLIPPED),
            ((2, 2, 4, 4, 4, 5, 0), ONE_ROW),
        ):
            _shaw_agrees(check, *_shaw(check, *sizes), hint)
    # Catches queries counted from position 0.
    with check.criterion("fewer queries than keys", 0.5, golden=True):
        _shaw_agrees(check, *_shaw(check, 2, 3, 3, 7, 8, 6, 9), LAST)
    # Catches a mask after the softmax, inverted or of one shape only, and NaN or a mean in rows without a key.
    with check.criterion("masks, and rows that may attend to nothing", 0.5):
        _shaw_masks(check)
    # Catches gradients cut off, a hard-coded dtype, an argument changed in place, exp of large scores.
    with check.criterion("float64, gradients, arguments left alone", 0.125):
        _shaw_form(check)

    # Catches a row of offsets created on the CPU.
    with check.follows_device(0.125):
        heads = [check.randn(2, 2, n, width) for n, width in ((3, 8), (5, 8), (5, 6))]
        tables = check.randn(7, 8), check.randn(7, 6)
        visible = torch.ones(3, 5, dtype=torch.bool, device=check.device).tril(2)
        call = "shaw_attention(q (2, 2, 3, 8), k (2, 2, 5, 8), v (2, 2, 5, 6), clip 3"
        check.follows(calling(*heads, *tables), f"{call})")
        check.follows(calling(*heads, *tables, visible), f"{call}, mask (3, 5))")


def _shaw_masks(check: Check) -> None:
    tensors, words = _shaw(check, 4, 4, 4, 4, 4, 6, 5)
    mask = reference.causal_mask(4, 4).to(check.device)
    _shaw_agrees(check, tensors, f"{words}, causal mask", MASKED, mask)
    mask = mask.clone()
    mask[2] = False
    _shaw_agrees(check, tensors, f"{words}, row 2 of the mask all False", NO_KEY, mask)
    for shape in ((4, 1, 1, 4), (4, 4, 4)):
        _shaw_agrees(check, tensors, f"{words}, mask {shape}", ANY_MASK, mixed_mask(check, *shape))
    padding = torch.ones(4, 1, 1, 4, dtype=torch.bool, device=check.device)
    padding[1] = False
    _shaw_agrees(check, tensors, f"{words}, sequence 1 padding alone", NO_KEY, padding)
    of_heads = mixed_mask(check, 4, 4, 4, 4)
    of_heads[:, 1, 3] = False
    call = f"{words}, mask (4, 4, 4, 4), its row 3 all False in head 1 alone"
    _shaw_agrees(check, tensors, call, ANY_MASK, of_heads)
    (q, k, v, rel_k, rel_v), words = _shaw(check, 2, 2, 1, 5, 4, 3, 6)
    without_offsets = [q, k, v, torch.zeros_like(rel_k), torch.zeros_like(rel_v)]
    words += ", rel_k and rel_v zero, mask (2, 1, 1, 5)"
    _shaw_agrees(check, without_offsets, words, ONE_QUERY, mixed_mask(check, 2, 1, 1, 5))
    itself = torch.eye(4, dtype=torch.bool, device=check.device)
    _shaw_agrees(check, *_far_below(check, tensors, words), FAR_BELOW, itself)


def _shaw_form(check: Check) -> None:
    tensors, words = _shaw(check, 2, 2, 5, 5, 4, 6, 6)
    in_float32(check, result(calling(*tensors), 0), f"out of {words})")
    wide = [tensor.double() for tensor in tensors]
    _shaw_agrees(check, wide, f"{words}, float64", DTYPE, tolerance=DOUBLE)
    for at, letter in ((0, "q"), (3, "rel_k")):
        check.agrees(differentiating(*tensors, at=at, place=0), f"the gradient for {letter} of {words})", SLOPE, CUT)
    mask = torch.ones(5, 5, dtype=torch.bool, device=check.device).tril()
    mask[2] = False
    empty_row = f"{words}, causal mask, its row 2 all False"
    with check.holds(result(calling(*tensors, mask), 0), f"out of {empty_row})", CLOSE):
        call = f"the gradient for q of {empty_row})"
        check.agrees(differentiating(*tensors, mask, at=0, place=0), call, SLOPE, MASKED_SLOPE)
    own_strides(check, partial(_shaw, check), (2, 2, 5, 5, 4, 6, 6), 3)
    overflowing(check, tensors, words)
    check.keeps(lambda f, *given: f(*given), f"{empty_row})", *tensors, mask)


def result(call: Probe, place: int) -> Probe:
    """One of the results of a function that returns (out, weights). An answer that returns something else may still be
    right in ``out``, but has no weights."""

    def probe(subject: Any) -> Any:
        value = call(subject)
        if isinstance(value, (tuple, list)) and len(value) == 2:
            return value[place]
        if PARTS[place] == "out":
            return value
        raise StudentError.unusable(
            "TypeError", f"the exercise asks for two, (out, weights); this returns {kind(value)}"
        )

    return probe


# ---- Transformer-XL -------------------------------------------------------------------------------------------------

MEMORY = (
    "With as many queries as keys all is right, with a memory (more keys than queries) it is not. (Row i "
    "moves to the left by n_queries - 1 - i, whatever the number of keys.)"
)


@exercise(WEEK, "rel_shift")
def rel_shift(check: Check) -> None:
    def shifted(x: Tensor, hint: Hint | str = "", words: str = "") -> None:
        check.agrees(
            seen(calling(x)),
            f"rel_shift(x {tuple(x.shape)}{words}), where the key is not after the query",
            EXACT,
            hint,
        )

    # Catches the wrong column padded, and the wrong row dropped.
    with check.criterion("as many queries as keys", 1.25, golden=True):
        for shape in ((4, 4, 4, 4), (2, 3, 7, 7)):
            shifted(check.randn(*shape))
    # Catches rows moved by n_keys - 1 - i, and queries and keys swapped in the view.
    with check.criterion("with a memory: more keys than queries", 1, golden=True):
        for shape in ((2, 3, 3, 7), (2, 2, 1, 4)):
            shifted(check.randn(*shape), MEMORY)
    # Catches `view` on non-contiguous memory, padding of another dtype, a row written in place.
    with check.criterion("not contiguous, float64, gradients, argument left alone", 0.5):
        call = "rel_shift(x (2, 3, 5, 5)), where the key is not after the query"
        in_float32(check, seen(calling(check.randn(2, 3, 5, 5))), call)
        shifted(check.randn(2, 5, 3, 5).transpose(1, 2), STRIDES, " not contiguous")
        x = check.randn(2, 3, 5, 5, dtype=torch.float64)
        check.agrees(
            seen(calling(x)),
            "rel_shift(x (2, 3, 5, 5), float64), where the key is not after the query",
            Tolerance(0, 0, exact_dtype=True),
            DTYPE,
        )
        check.agrees(differentiating(x, keep=seen_part), "the gradient of rel_shift(x (2, 3, 5, 5))", SLOPE, CUT)
        check.keeps(lambda f, x: f(x), "rel_shift(x (2, 3, 5, 5))", x)

    # Catches padding created on the CPU.
    with check.follows_device(0.25):
        check.follows(calling(check.randn(2, 2, 3, 5)), "rel_shift(x (2, 2, 3, 5))")


NO_BIAS = (
    "With all biases zero the scores are right, with them they are not. (Both biases are per head, and each "
    "has its own term.)"
)


@exercise(WEEK, "transformer_xl_scores")
def transformer_xl_scores(check: Check) -> None:
    name = "transformer_xl_scores"

    def drawn(batch: int, heads: int, n_queries: int, n_keys: int, head_dim: int) -> Drawn:
        tensors = [
            check.randn(*shape)
            for shape in (
                (batch, heads, n_queries, head_dim),
                (batch, heads, n_keys, head_dim),
                (heads, n_keys, head_dim),
                (heads, head_dim),
                (heads, head_dim),
            )
        ]
        return tensors, f"{name}(q {tuple(tensors[0].shape)}, n_keys {n_keys})"

    def without_biases(*sizes: int) -> Drawn:
        tensors, words = drawn(*sizes)
        return [*tensors[:3], *map(torch.zeros_like, tensors[3:])], f"{words}, both biases zero"

    def agrees(tensors: list[Tensor], words: str, hint: Hint | str = "", tolerance: Tolerance = CLOSE) -> None:
        check.agrees(seen(calling(*tensors)), words, tolerance, hint)

    # Catches distances of the wrong sign, an unshifted position term, a missing scale.
    with check.criterion("both terms, biases zero", 1.25, golden=True):
        for sizes in ((4, 4, 4, 4, 4), (2, 3, 6, 6, 8)):
            agrees(*without_biases(*sizes))
    # Catches a missing bias, the two biases swapped, and one bias in both terms.
    with check.criterion("the two biases", 1, golden=True):
        for sizes in ((4, 4, 4, 4, 4), (2, 3, 6, 6, 8)):
            agrees(*drawn(*sizes), NO_BIAS)
    # Catches queries counted from position 0.
    with check.criterion("with a memory: more keys than queries", 1, golden=True):
        for sizes in ((2, 3, 3, 7, 8), (1, 2, 1, 5, 4)):
            agrees(*without_biases(*sizes), LAST)
    # Catches gradients cut off, a hard-coded dtype, `view` on transposed heads, an argument changed.
    with check.criterion("float64, gradients, arguments left alone", 0.5):
        tensors, words = without_biases(2, 2, 5, 5, 4)
        in_float32(check, seen(calling(*tensors)), words)
        agrees([tensor.double() for tensor in tensors], f"{words}, float64", DTYPE, DOUBLE)
        q, k, r = as_heads(check, 2, 2, 5, 4), as_heads(check, 2, 2, 5, 4), check.randn(5, 2, 4).transpose(0, 1)
        agrees([q, k, r, *tensors[3:]], f"{words}, q, k and r not contiguous", STRIDES)
        for at, letter in ((0, "q"), (2, "r")):
            slope = differentiating(*tensors, at=at, keep=seen_part)
            check.agrees(slope, f"the gradient for {letter} of {words}", SLOPE, CUT)
        # With biases that are not zero: adding them in place is the change that comes to mind.
        given, words = drawn(2, 2, 5, 5, 4)
        check.keeps(lambda f, *given: f(*given), words, *given)

    # Catches distances created on the CPU.
    with check.follows_device(0.25):
        given = [check.randn(*shape) for shape in ((2, 2, 3, 8), (2, 2, 5, 8), (2, 5, 8), (2, 8), (2, 8))]
        check.follows(calling(*given), "transformer_xl_scores(q (2, 2, 3, 8), k (2, 2, 5, 8), ...)")


# ---- T5 -------------------------------------------------------------------------------------------------------------

ONE_SIDED = (
    "Two-sided buckets are right, causal ones are not. (There all num_buckets belong to one side, and "
    "offsets above 0 count as 0.)"
)
ARGUMENTS = "With the default sizes all is right, with others it is not."


WHOLE = "The buckets must be int64, in the shape of relative_position."


def _form_of(call: Probe) -> Probe:
    return lambda subject: kind(call(subject))


# Distances where the logarithm is whole are left out, since rounding decides there: 16, 32, 64 with sides of 16.
TIES = (16, 32, 64)


@exercise(WEEK, "t5_bucket")
def t5_bucket(check: Check) -> None:
    name = "t5_bucket"

    def at(offsets: list[int], words: str, *arguments: Any, hint: Hint | str = "") -> None:
        words += "".join(f", {argument}" for argument in arguments)
        check.agrees(calling(torch.tensor(offsets, device=check.device), *arguments), f"{name}({words})", EXACT, hint)

    far = [n for n in range(8, 201) if n not in TIES] + [500, 100_000]
    both = [-n for n in reversed(far)] + far
    # Catches the two sides swapped, and halved buckets where there is one side.
    with check.criterion("near offsets: a bucket each", 1, golden=True):
        at(list(range(-7, 8)), "-7 .. 7")
        at(list(range(-15, 1)), "-15 .. 0", False, hint=ONE_SIDED)
    # Catches rounding instead of flooring, all buckets on one side, no last bucket.
    with check.criterion("far offsets, two sides", 1, golden=True):
        at(both, "8 .. 100,000 on both sides")
    # Catches halved buckets where there is one side, and offsets above 0 that do not count as 0.
    with check.criterion("far offsets, causal", 1, golden=True):
        causal = calling(torch.tensor([-n for n in far], device=check.device), bidirectional=False)
        check.agrees(causal, f"{name}(-100,000 .. -8, bidirectional=False)", EXACT, ONE_SIDED)
        at([1, 2, 7, 20, 90, 300], "1 .. 300", False, hint=ONE_SIDED)
    # Catches a hard-coded 32, 16, 8 or 128.
    with check.criterion("other sizes", 0.75, golden=True):
        # For these sizes no logarithm is whole within 90, except at max_distance itself, which is left out.
        offsets = [n for n in range(-90, 91) if n and abs(n) not in (20, 41)]
        for arguments in ((True, 8, 20), (False, 13, 41)):
            at([n for n in offsets if n < 0 or arguments[0]], "-90 .. 90", *arguments, hint=ARGUMENTS)
        # At these distances no logarithm is within 0.01 of a whole number, so float32 and float64 agree.
        distances = (3, 60, 100, 150, 200, 310, 700, 900)
        at([-n for n in distances], "-900 .. -3", False, 64, 517, hint=ARGUMENTS)
    # Catches a float result, a lost shape, offsets clamped in place.
    with check.criterion("int64, any shape", 0.125):
        drawn = check.randint(-7, 0, (3, 4, 5))
        for given, words in (
            (drawn, "offsets of shape (3, 4, 5)"),
            (drawn[0, 0, 0], "a single offset, a 0-d tensor"),
        ):
            check.agrees(_form_of(calling(given)), f"{name}({words})", hint=WHOLE)  # values are compared above
        signed = torch.arange(-7, 8, device=check.device).reshape(3, 5)
        check.unchanged(lambda f: f(signed), f"{name}(-7 .. 7)", signed)
        check.unchanged(lambda f: f(signed, False), f"{name}(-7 .. 7, False)", signed)

    # Catches a constant of the formula created on the CPU.
    with check.follows_device(0.125):
        near = torch.arange(-4, 5, device=check.device)
        check.follows(calling(near), "t5_bucket(-4..4)")


LONGER = (
    "A causal text of 4 tokens is right, one of 115 is not. (32 buckets, and max_distance is 128 if it is not given.)"
)
OTHER_WEIGHTS = "With is_causal=True out is right, the weights are not. (Return those that out is made of.)"
CAUSAL = (
    "Without is_causal all is right, with it it is not. (The keys after the query are hidden, and the "
    "buckets are the causal ones, bidirectional=False.)"
)
SIZES = Hint("With 32 buckets and the default max_distance all is right, with others it is not.", form=True)


def _t5(
    check: Check, batch: int, heads: int, n_queries: int, n_keys: int, head_dim: int, v_dim: int, num_buckets: int
) -> Drawn:
    tensors = [
        check.randn(*shape)
        for shape in (
            (batch, heads, n_queries, head_dim),
            (batch, heads, n_keys, head_dim),
            (batch, heads, n_keys, v_dim),
            (num_buckets, heads),
        )
    ]
    return tensors, f"t5_attention(q {tuple(tensors[0].shape)}, n_keys {n_keys}, table {tuple(tensors[3].shape)}"


def _t5_agrees(
    check: Check,
    tensors: list[Tensor],
    words: str,
    hint: Hint | str = "",
    tolerance: Tolerance = CLOSE,
    **options: Any,
) -> None:
    words += "".join(f", {key}={value}" for key, value in options.items())
    check.agrees(result(calling(*tensors, **options), 0), f"out of {words})", tolerance, hint)


@exercise(WEEK, "t5_attention")
def t5_attention(check: Check) -> None:
    # Catches scaled scores, a missing bias, a table read by the wrong offset.
    with check.criterion("both sides seen", 1, golden=True):
        tensors, words = _t5(check, 4, 4, 4, 4, 4, 4, 32)
        check.agrees(result(calling(*tensors), 1), f"weights of {words})", CLOSE)
        _t5_agrees(check, *_t5(check, 2, 3, 6, 6, 8, 5, 32))
    # Catches a missing mask, missing causal buckets, and a low number instead of -inf.
    with check.criterion("causal: the mask and the causal buckets", 0.75, golden=True):
        # With 32 buckets both kinds agree below distance 9, so the text is longer. A max_distance of 127 would move
        # distance 112 to another bucket, and one of 129 would move distance 113.
        _t5_agrees(check, *_t5(check, 4, 4, 4, 4, 4, 4, 32), CAUSAL, is_causal=True)
        _t5_agrees(check, *_t5(check, 1, 1, 115, 115, 4, 2, 32), LONGER, is_causal=True)
        tensors, words = _t5(check, 2, 2, 4, 4, 8, 4, 32)
        check.agrees(result(calling(*tensors, True), 1), f"weights of {words}, is_causal=True)", CLOSE, OTHER_WEIGHTS)
        tensors, words = _far_below(check, tensors, words)
        low = calling(*tensors, is_causal=True)
        call = f"row 0 of the weights of {words}, is_causal=True)"
        check.agrees(lambda f: result(low, 1)(f)[..., 0, :], call, CLOSE, FAR_BELOW)
    # Catches queries counted from position 0.
    with check.criterion("fewer queries than keys", 0.5, golden=True):
        for sizes, causal in (((2, 3, 2, 7, 4, 4, 32), False), ((1, 2, 5, 9, 4, 3, 32), True)):
            _t5_agrees(check, *_t5(check, *sizes), LAST, is_causal=causal)
    # Catches a hard-coded 32 or 128, buckets cached from another max_distance, a table of 256 positions.
    with check.criterion("other tables, max_distance", 0.5, golden=True):
        cases: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
            ((2, 2, 12, 12, 4, 4, 8), {}),
            ((1, 2, 18, 18, 4, 4, 12), {"is_causal": True, "max_distance": 19}),
            ((1, 2, 18, 18, 4, 4, 8), {"max_distance": 40}),
            ((1, 2, 2, 300, 4, 4, 32), {"max_distance": 261}),
        )
        for other_sizes, options in cases:
            _t5_agrees(check, *_t5(check, *other_sizes), SIZES, **options)
    # Catches gradients cut off, a hard-coded dtype, an argument changed in place, exp of large scores.
    with check.criterion("float64, gradients, arguments left alone", 0.125):
        _t5_form(check)

    # Catches offsets or a mask created on the CPU.
    with check.follows_device(0.125):
        given = [check.randn(2, 2, n, width) for n, width in ((3, 8), (5, 8), (5, 6))]
        table, call = check.randn(32, 2), "t5_attention(q (2, 2, 3, 8), k (2, 2, 5, 8), v (2, 2, 5, 6), table (32, 2)"
        check.follows(calling(*given, table, is_causal=True), f"{call}, is_causal=True)")


def _t5_form(check: Check) -> None:
    tensors, words = _t5(check, 2, 2, 3, 5, 4, 6, 32)
    in_float32(check, result(calling(*tensors), 0), f"out of {words})")
    wide = [tensor.double() for tensor in tensors]
    _t5_agrees(check, wide, f"{words}, float64", DTYPE, DOUBLE)
    for at, letter in ((0, "q"), (3, "table")):
        check.agrees(differentiating(*tensors, at=at, place=0), f"the gradient for {letter} of {words})", SLOPE, CUT)
    hidden = f"{words}, is_causal=True"
    with check.holds(result(calling(*tensors, True), 0), f"out of {hidden})", CLOSE):
        check.agrees(differentiating(*tensors, True, at=3, place=0), f"the gradient for table of {hidden})", SLOPE, CUT)
    own_strides(check, partial(_t5, check), (2, 2, 3, 5, 4, 6, 32), 3)
    overflowing(check, tensors, words)
    check.keeps(lambda f, *given: f(*given), f"{words})", *tensors)


# ---- DeBERTa --------------------------------------------------------------------------------------------------------

BEYOND = Hint(
    "Within the span all is right, beyond it it is not. (i - j + span is clamped to 0 .. 2*span - 1; there "
    "is no row 2*span.)",
    form=True,
)


AFTER_ANOTHER_SPAN = Hint(
    "Right by itself, wrong after tables of another span. (What you keep from one call must not change the next.)",
    form=True,
    of_state=True,
)


@exercise(WEEK, "deberta_scores")
def deberta_scores(check: Check) -> None:
    name = "deberta_scores"

    def drawn(batch: int, heads: int, n: int, head_dim: int, span: int) -> Drawn:
        tensors = [
            check.randn(*shape)
            for shape in (
                (batch, heads, n, head_dim),
                (batch, heads, n, head_dim),
                (heads, 2 * span, head_dim),
                (heads, 2 * span, head_dim),
            )
        ]
        return tensors, f"{name}(q {tuple(tensors[0].shape)}, span {span})"

    # Catches key minus query, and the table of the other term.
    with check.criterion("content to position: pos_q zero", 0.75, golden=True):
        for sizes in ((4, 4, 4, 4, 6), (2, 3, 5, 8, 7)):
            (q, k, pos_q, pos_k), words = drawn(*sizes)
            check.agrees(calling(q, k, torch.zeros_like(pos_q), pos_k), f"{words}, pos_q zero", CLOSE)
    # Catches queries and keys swapped in the row of this term only, and the table of the other term.
    with check.criterion("position to content: pos_k zero", 0.75, golden=True):
        (q, k, pos_q, pos_k), words = drawn(2, 3, 5, 8, 7)
        check.agrees(calling(q, k, pos_q, torch.zeros_like(pos_k)), f"{words}, pos_k zero", CLOSE)
    # Catches a scale other than sqrt(3 * head_dim), a missing term, a single head squeezed away.
    with check.criterion("all three terms", 1, golden=True):
        for sizes in ((4, 4, 4, 4, 6), (2, 1, 4, 8, 6)):
            tensors, words = drawn(*sizes)
            check.agrees(calling(*tensors), words, CLOSE)
    # Catches a clamp to 2*span, an index that wraps around, and rows kept from another span.
    with check.criterion("offsets beyond the span", 1, golden=True):
        tensors, words = drawn(1, 2, 12, 8, 5)
        check.agrees(calling(*tensors), words, CLOSE, BEYOND)
        tensors, words = drawn(2, 2, 5, 4, 1)  # five tokens were asked with another span before
        check.agrees(calling(*tensors), words, CLOSE, AFTER_ANOTHER_SPAN)
    # Catches gradients cut off, a hard-coded dtype, `view` on transposed heads, an argument changed in place.
    with check.criterion("float64, gradients, arguments left alone", 0.25):
        tensors, words = drawn(2, 2, 4, 4, 6)
        in_float32(check, calling(*tensors), words)
        turned = [as_heads(check, 2, 2, 4, 4), as_heads(check, 2, 2, 4, 4), *tensors[2:]]
        check.agrees(calling(*turned), f"{words}, q and k not contiguous", CLOSE, STRIDES)
        check.agrees(calling(*[t.double() for t in tensors]), f"{words}, float64", DOUBLE, DTYPE)
        for at, letter in ((0, "q"), (2, "pos_q"), (3, "pos_k")):
            check.agrees(differentiating(*tensors, at=at), f"the gradient for {letter} of {words}", SLOPE, CUT)
        check.keeps(lambda f, *given: f(*given), words, *tensors)

    # Catches table rows computed on the CPU.
    with check.follows_device(0.25):
        given = [check.randn(*shape) for shape in ((2, 2, 5, 8), (2, 2, 5, 8), (2, 6, 8), (2, 6, 8))]
        check.follows(calling(*given), "deberta_scores(q (2, 2, 5, 8), k (2, 2, 5, 8), ...)")
