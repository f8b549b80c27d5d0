"""Hidden tests of week 2, sinusoidal and learned absolute positions.

The first block of an exercise stays near position 0, where float32 angles do no harm, so that layout, exponent and
precision are told apart. Widths start at 6: with one pair the layouts are equal, with two some exponents are.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal
from functools import cache
from typing import Any

import numpy as np
import torch

from autograder.checks.attention_functions import STRIDES
from autograder.checks.framework import Check, Fault, Hint, Probe, calling, exercise, gradient
from autograder.checks.probes import made_there, making
from autograder.grading.sandbox.worker.pullback import uneven
from autograder.misconceptions.week2 import DIAGNOSES
from autograder.script.compare import FOUR_DIGITS, REMEMBERED_BASE, Tolerance, difference, kind, within

WEEK = "week2_sinusoidal"

# The outline promises 1e-5 of the exact value. A right table or matrix is off by float32 rounding, 6e-8, and, if the
# angle is float64, 1e-11 more.
EXACT = Tolerance(rtol=0, atol=1e-5)
# Near position 0 angles may be float32 (they fail where that matters, at far positions): off by at most 64 * 1e-6 in
# the clumsiest formula for the frequencies. The mistakes of the bank move some value by more than 0.005.
NEAR = Tolerance(rtol=0, atol=1e-4)


# ---- hand computations ----------------------------------------------------------------------------------------------


ENCODED_BY_HAND = {
    f"pe_{p}_{channel}": value
    for p in (0, 1, 5, 6)
    for channel, value in enumerate((math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)))
}
ENCODED_BY_HAND |= {f"dot_{p}_{q}": math.cos(q - p) + math.cos((q - p) / 100) for p, q in ((0, 1), (5, 6), (0, 5))}


@exercise(WEEK, "encode_by_hand", reference=ENCODED_BY_HAND)
def encode_by_hand(check: Check) -> None:
    # cosines of 0 taken for 0
    with check.criterion("PE(0)", 0.5, golden=True):
        check.entries(*(f"pe_0_{channel}" for channel in range(4)), tolerance=FOUR_DIGITS)
    # sine and cosine exchanged, degrees, an exponent that is one pair off
    for name, channels in (("fast", (0, 1)), ("slow", (2, 3))):
        with check.criterion(f"the {name} pair of PE(1), PE(5), PE(6)", 1, golden=True):
            check.entries(*(f"pe_{p}_{c}" for p in (1, 5, 6) for c in channels), tolerance=FOUR_DIGITS)
    # products of positions in place of encodings
    with check.criterion("PE(0)·PE(1) and PE(5)·PE(6)", 1.5, golden=True):
        check.entries("dot_0_1", "dot_5_6", tolerance=FOUR_DIGITS)
    # a product taken to fall with the distance
    with check.criterion("PE(0)·PE(5)", 1, golden=True):
        check.entries("dot_0_5", tolerance=FOUR_DIGITS)


@exercise(
    WEEK,
    "wavelengths_by_hand",
    reference={
        "pair_0": 2 * math.pi,
        "pair_8": 20 * math.pi,
        "pair_16": 200 * math.pi,
        "longest": 2 * math.pi * 10000 ** (62 / 64),
    },
)
def wavelengths_by_hand(check: Check) -> None:
    # frequencies in place of wavelengths, 2 pi left out
    with check.criterion("pairs 0, 8 and 16", 1, golden=True):
        check.entries("pair_0", "pair_8", "pair_16", tolerance=FOUR_DIGITS)
    # the exponent of a pair beyond the last
    with check.criterion("the longest", 1, golden=True):
        check.entries("longest", tolerance=FOUR_DIGITS)


# ---- the table ------------------------------------------------------------------------------------------------------

LEFT_BASE = "With another base offsets to the right are right, one to the left is not. (It takes the same base.)"
BASE = "The default base is right, another one is not. (The frequencies follow the argument `base`.)"
FAR_ANGLES = Hint(
    "Positions near 0 are right, far ones are off by the size of a rounding error. (Positions, frequencies and "
    "angles are float64 or Python floats; only the finished sines and cosines are rounded.)",
    within(0.2),
    otherwise="Positions near 0 are right, far ones are not.",
)
LENGTH = (
    "The width is right in another length, in this one it is not. (Row p belongs to position p, whatever seq_len is.)"
)
WIDTH = "Some widths are right, another one is not."
NEGATIVE = (
    "Offsets to the right are right, 0 or a negative one is not. (The same formula holds for every whole number.)"
)


def named(condition: bool, sentence: str) -> Fault | None:
    """A property that tells the misconception."""
    return None if condition else Fault(sentence, (sentence,))


def _without_extra_axis(table: Any) -> Fault | None:
    return named(getattr(table, "ndim", 2) == 2, DIAGNOSES["extra axis"])


def _not_diagonal(matrix: Any) -> Fault | None:
    if getattr(matrix, "shape", None) != (6, 6):
        return None
    return named(not torch.equal(matrix, matrix.diagonal().diag()), DIAGNOSES["diagonal"])


@exercise(WEEK, "sinusoidal_positional_encoding")
def sinusoidal_positional_encoding(check: Check) -> None:
    name = "sinusoidal_positional_encoding"

    def near(seq_len: int, d_model: int, hint: Hint | str = "") -> None:
        check.agrees(calling(seq_len, d_model), f"{name}({seq_len}, {d_model})", NEAR, hint)

    # layout, exponent, a width taken for the number of pairs, `arange(0, 1, 2 / d_model)` with one number too many at 98
    with check.criterion("values near position 0", 1.5, golden=True):
        check.satisfies(calling(7, 6), f"{name}(7, 6)", _without_extra_axis)
        near(7, 6)
        for seq_len in (int(check.randint(17, 60)), 1):
            near(seq_len, 6, LENGTH)
        for seq_len, d_model in ((10, 16), (33, 64), (9, 2), (2, 98)):
            near(seq_len, d_model, WIDTH)
    # 10,000 written into the function, or a table that is kept by its sizes alone
    with check.criterion("another base", 0.5, golden=True):
        near(10, 16)
        check.agrees(calling(9, 8, base=500.0), f"{name}(9, 8, base=500)", NEAR, BASE)
        near(9, 8, REMEMBERED_BASE)  # asked for the first time with another base: one who remembers a base is found out
        check.agrees(calling(9, 8, base=7.5), f"{name}(9, 8, base=7.5)", NEAR, BASE)
    # frequencies or angles in float32
    with check.criterion("within 1e-5 up to position 100,000", 1, golden=True):
        near(7, 6)  # the farthest comes first: there a coarse angle looks like nothing else
        for seq_len, d_model in ((100_001, 6), (3000, 12)):
            check.agrees(calling(seq_len, d_model), f"{name}({seq_len}, {d_model})", EXACT, FAR_ANGLES)
    # a table that stays float64, or one that is kept and handed out to all
    with check.criterion("returns float32, a new tensor on each call", 0.5):
        check.has_dtype(calling(5, 8), torch.float32, f"{name}(5, 8)")
        check.returns_new(f"{name}(5, 8)", 5, 8, tolerance=NEAR)
    # no refusal, or an assert in its place
    with check.criterion("refuses an odd d_model", 0.5):
        check.raises(calling(4, 5), ValueError, f"{name}(4, 5)")


# ---- the shift ------------------------------------------------------------------------------------------------------


@exercise(WEEK, "shift_matrix")
def shift_matrix(check: Check) -> None:
    name = "shift_matrix"

    def near(offset: int, d_model: int, hint: Hint | str = "") -> None:
        check.agrees(calling(offset, d_model), f"{name}({offset}, {d_model})", NEAR, hint)

    drawn = int(check.randint(11, 60))
    # blocks in another layout, the sine's sign, row vectors taken for columns, one block for all pairs
    with check.criterion("offsets to the right", 1.5, golden=True):
        check.satisfies(calling(1, 6), f"{name}(1, 6)", _not_diagonal)
        for offset, d_model in ((1, 6), (5, 16), (drawn, 8), (2, 64), (7, 2)):
            near(offset, d_model)
        near(2, 98, WIDTH)  # there 1/d_model is rounded so that arange(0, 1, 2/d_model) has one number too many
    # the absolute value of the offset, or a special case for 0
    with check.criterion("offset 0 and offsets to the left", 0.75, golden=True):
        near(3, 6)  # 0 comes last: it is the identity for nearly every mistake
        for offset, d_model in ((-drawn, 16), (-1, 6), (0, 10)):
            near(offset, d_model, NEGATIVE)
    # 10,000 written into the function, or a base that the transpose for the left does not get
    with check.criterion("another base", 0.5, golden=True):
        near(5, 16)
        check.agrees(calling(4, 12, base=500.0), f"{name}(4, 12, base=500)", NEAR, BASE)
        near(4, 12, REMEMBERED_BASE)  # of this width nothing was asked before
        check.agrees(calling(4, 12, base=7.5), f"{name}(4, 12, base=7.5)", NEAR, BASE)
        with check.holds(calling(-4, 12), f"{name}(-4, 12)", NEAR):
            check.agrees(calling(-4, 12, base=500.0), f"{name}(-4, 12, base=500)", NEAR, LEFT_BASE)
    # frequencies or angles in float32
    with check.criterion("within 1e-5 up to offsets of 100,000", 0.5, golden=True):
        near(3, 6)
        for offset, d_model in ((100_000, 8), (99_990 - drawn, 32)):
            check.agrees(calling(offset, d_model), f"{name}({offset}, {d_model})", EXACT, FAR_ANGLES)
    # a matrix that stays float64, such as the identity for offset 0, or one that is kept and handed out to all
    with check.criterion("returns float32, a new tensor on each call", 0.25):
        for offset in (3, 0):
            check.has_dtype(calling(offset, 8), torch.float32, f"{name}({offset}, 8)")
        check.returns_new(f"{name}(3, 8)", 3, 8, tolerance=NEAR)
    # no refusal, or a return for offset 0 that comes before it
    with check.criterion("refuses an odd d_model", 0.5):
        for offset in (2, 0):
            check.raises(calling(offset, 5), ValueError, f"{name}({offset}, 5)")


# ---- the learned table ----------------------------------------------------------------------------------------------

# One sum, rounded once or twice: relative 2^-8 of values below 6 in bfloat16, 2^-11 in float16.
SUM = Tolerance(rtol=0, atol=1e-5)
TABLE_GRADIENT = "The gradient for the table is wrong: every row must be trained, and enter the sum once, as it is."
AFTER_BFLOAT16 = Hint(
    "After an input in bfloat16 one in float32 goes wrong: .to() and .half() on a module change the module itself. (Round "
    "the rows, not the table.)",
    form=True,
)
LONGER = Hint("A first text is right, a longer one after it is not. (The rows are taken anew in each call.)", form=True)
LOW_SUM = {torch.bfloat16: Tolerance(rtol=0, atol=0.06), torch.float16: Tolerance(rtol=0, atol=0.008)}


def holding(cls: Any, rows: torch.Tensor) -> Any:
    """The student's module with ``rows`` as its table, whatever the tensor is called and however it is shaped."""
    module = cls.with_table(rows)
    if rows.device.type != "cpu":
        module.to(rows.device.type)
    return module


def added(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """What the module with this table returns for x."""
    return lambda cls: holding(cls, rows)(x.clone())


def _with(rows: torch.Tensor) -> Callable[..., Any]:
    return lambda cls, x: holding(cls, rows)(x)


def added_as_it_lies(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The same for an x that is not contiguous, which a clone would be."""
    return lambda cls: holding(cls, rows)(x.clone(memory_format=torch.preserve_format))


def added_after(rows: torch.Tensor, first: torch.Tensor, x: torch.Tensor) -> Probe:
    """What the module returns for x when it has read another text before."""

    def probe(cls: Any) -> torch.Tensor:
        module = holding(cls, rows)
        module(first.clone())
        return module(x.clone())

    return probe


def input_gradient(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The gradient with respect to x, which is the sum's weights whatever the table."""

    def probe(cls: Any) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        return gradient(holding(cls, rows)(leaf), leaf)

    return probe


def table_gradient(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The gradient with respect to the table, one row per position, however the table is shaped."""

    def probe(cls: Any) -> torch.Tensor:
        found = holding(cls, rows).parameter_gradients(x, uneven)
        tables = [g for g in found if isinstance(g, torch.Tensor) and g.numel() == rows.numel()]
        if len(tables) != 1:
            return torch.zeros_like(rows)
        turned = tuple(tables[0].shape) == tuple(rows.shape)[::-1] and rows.shape[0] != rows.shape[1]
        return (tables[0].T if turned else tables[0]).reshape(rows.shape)

    return probe


def recording_a_graph(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The sum for an input that needs no gradient: a graph can only come from the table."""
    sum_of = added(rows, x)

    def probe(cls: Any) -> Any:
        with torch.enable_grad():
            return sum_of(cls)

    return probe


def _one_table(parameters: Any) -> Fault | None:
    trained = [parameter.numel() for parameter in parameters if getattr(parameter, "requires_grad", False)]
    return named(trained == [42], DIAGNOSES["more parameters" if trained else "not trainable"])


def _of_the_table(call: str, due: torch.Tensor) -> Callable[[Any], Fault | None]:
    def judge(out: Any) -> Fault | None:
        if getattr(out, "requires_grad", False):
            return None
        if difference(out, due, SUM):
            return Fault(f"{call} does not depend on the table")
        return named(False, DIAGNOSES["table detached"])

    return judge


@exercise(WEEK, "LearnedPositionalEmbedding")
def LearnedPositionalEmbedding(check: Check) -> None:
    name = "LearnedPositionalEmbedding"

    def drawn(max_len: int, batch: int, seq_len: int, d_model: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        x = check.randn(batch, seq_len, d_model)
        return check.randn(max_len, d_model), x, f"{name}({max_len}, {d_model})(x {tuple(x.shape)})"

    # rows of the batch in place of positions, a row too late, a sum that is scaled
    with check.criterion("adds row p to position p", 0.75, golden=True):
        for sizes in ((5, 5, 5, 3), (7, 2, 4, 6), (5, 3, 1, 4), (6, 1, 6, 8)):
            rows, x, call = drawn(*sizes)
            check.agrees(added(rows, x), call, SUM)
    # a buffer or a detached table, a row that is not trained, `x +=`, rows that are kept for the next call
    with check.criterion("one trainable tensor; gradients reach every row of it and x; x stays as it is", 0.5):
        rows, x, call = drawn(7, 2, 4, 6)
        check.satisfies(lambda cls: list(cls(7, 6).parameters()), f"{name}(7, 6).parameters()", _one_table)
        check.satisfies(recording_a_graph(rows, x), call, _of_the_table(call, x + rows[: x.shape[1]]))
        check.keeps(_with(rows), call, x)
        check.agrees(input_gradient(rows, x), f"the gradient of {call}", SUM, DIAGNOSES["input detached"])
        rows, x, call = drawn(7, 2, 7, 6)
        check.agrees(table_gradient(rows, x), f"the gradient for the table of {call}", SUM, TABLE_GRADIENT)
        check.agrees(added_after(rows, x[:, :3], x), f"{call} after a text of 3 tokens", SUM, LONGER)
    # a result that float32 rows widen, or a module that is itself converted to the dtype of x
    with check.criterion("keeps the dtype of x, contiguous or not", 0.125):
        rows, x, call = drawn(7, 2, 4, 6)
        turned = x.transpose(0, 1).contiguous().transpose(0, 1)
        check.agrees(added(rows, x), call, SUM)
        check.agrees(added_as_it_lies(rows, turned), f"{call}, x not contiguous", SUM, STRIDES)
        for dtype, tolerance in LOW_SUM.items():
            low = x.to(dtype)
            shown = f"{call} in {str(dtype).removeprefix('torch.')}"
            check.has_dtype(added(rows, low), dtype, shown)
            check.agrees(added(rows, low), shown, tolerance)
        check.has_dtype(added(rows, x.double()), torch.float64, f"{call} in float64")
        after = f"{call} after the same in bfloat16"
        check.agrees(added_after(rows, x.to(torch.bfloat16), x), after, SUM, AFTER_BFLOAT16)
    # a text that is cut, positions that start again, a single row that broadcasts
    with check.criterion("past max_len it raises", 0.5):
        # On the CPU in any case: an index out of range would end a CUDA device for all that comes after.
        for max_len, seq_len, d_model, slip in ((5, 6, 3, "silent"), (1, 2, 4, "broadcast")):
            x = torch.zeros(2, seq_len, d_model)
            shown = f"{name}({max_len}, {d_model})(x {tuple(x.shape)})"
            check.raises(making(max_len, d_model, then=x), Exception, shown, DIAGNOSES[slip])
    # positions or a table made on the CPU in forward
    with check.follows_device(0.125):
        check.follows(made_there((8, 4), check.randn(2, 5, 4)), "LearnedPositionalEmbedding(8, 4)(x (2, 5, 4))")


# ---- the counterexample ---------------------------------------------------------------------------------------------


# A right pair may be anywhere below 2^63, where a float64 angle means nothing. With fifty digits less nineteen for the
# offset, angles are exact enough for any.
NEAR_OFFSETS = 2**15
FIFTY = Context(prec=50)
TURN = Decimal("6.2831853071795864769252867665590057683943387987502116419")


@cache
def speeds(d_model: int) -> list[Decimal]:
    return [FIFTY.power(10000, FIFTY.divide(Decimal(-2 * t), Decimal(d_model))) for t in range(d_model // 2)]


def similarity(offset: int, d_model: int) -> float:
    """PE(0)·PE(offset), right to 1e-13 for every offset."""
    angles = (FIFTY.remainder(FIFTY.multiply(Decimal(offset), speed), TURN) for speed in speeds(d_model))
    return math.fsum(math.cos(angle) for angle in angles)


def rise_between(k1: int, k2: int, d_model: int) -> float:
    """How far PE(0)·PE(k) rises from k1 to k2. For near offsets float64 is right to 2e-11, and a thousand times faster."""
    if k2 < NEAR_OFFSETS:
        frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
        rise = float(np.cos(k2 * frequencies).sum() - np.cos(k1 * frequencies).sum())
        if abs(rise) > 1e-9:
            return rise
    return similarity(k2, d_model) - similarity(k1, d_model)


def _falling(d_model: int, call: str) -> Callable[[Any], Fault | None]:
    """Says what is wrong with a pair of offsets, unless the product rises from the first to the second."""

    def judge(pair: Any) -> Fault | None:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            return named(False, f"{call} must return two numbers (k1, k2); yours returns {kind(pair)}.")
        if not all(type(k) is int for k in pair):
            return named(False, DIAGNOSES["not ints"])
        k1, k2 = pair
        for is_right, slip in (
            (k1 != 0 and k2 != 0, "offset 0"),
            (k1 != k2, "equal offsets"),
            (k1 > 0 and k2 > 0, "negative offsets"),
            (k1 < k2, "wrong order"),
        ):
            if not is_right:
                return named(False, DIAGNOSES[slip])
        rise = rise_between(k1, k2, d_model)
        if rise > 0:
            return None
        # float32 sums of 512 cosines are off by some 1e-5 each
        cause = DIAGNOSES["only rounding"] if rise > -1e-4 else DIAGNOSES["falls"]
        fall = f"{float(f'{-rise:.0e}'):g}"
        return Fault(f"{call} gives ({k1}, {k2}), but there the product falls by about {fall}", (cause,))

    return judge


def require_counterexample(check: Check, d_model: int) -> None:
    call = f"similarity_counterexample({d_model})"
    check.satisfies(calling(d_model), call, _falling(d_model, call))


@exercise(WEEK, "similarity_counterexample")
def similarity_counterexample(check: Check) -> None:
    # a pair where the product falls, one that counts from 0, offsets in the wrong order
    with check.criterion("widths 2, 4, 64 and 128", 1, golden=True):
        for d_model in (2, 4, 64, 128):
            require_counterexample(check, d_model)
    # a pair that fits some widths alone, a search that ends too early, another base
    with check.criterion("any even width up to 1024", 1, golden=True):
        drawn = [2 * int(half) for half in check.randint(5, 512, (12,))]
        # 40, 90, 150, 204 and 400 tell bases of 5,000, 10,100 and 20,000 from 10,000. Where the least product lies at the
        # end of a search, the next offset may fall: 130, 168, 226, 244, 300, 346, 348, 580 for round numbers of offsets.
        small, large = (
            (6, 8, 10, 14, 16, 24, 32, 40, 58, 90, 130, 138, 150, 168),
            (204, 220, 226, 244, 252, 256, 300, 346, 348, 400, 420, 512, 580, 768, 800, 860, 1022, 1024),
        )
        for d_model in (*small, *drawn, *large):
            require_counterexample(check, d_model)
