"""Hidden tests of week 2, sinusoidal and learned absolute positions.

The first block of an exercise stays near position 0, where float32 angles are harmless, so that low precision is not
mistaken for a wrong layout or exponent. Widths start at 6: with one pair all layouts agree, with two some exponents.
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
from autograder.checks.probes import REMEMBERED_BASE, made_there, making
from autograder.grading.sandbox.worker.pullback import uneven
from autograder.misconceptions.week2 import DIAGNOSES
from autograder.script.compare import FOUR_DIGITS, Tolerance, difference, kind, within

WEEK = "week2_sinusoidal"

# The course outline promises results within 1e-5 of the exact value. A right table or matrix with float64 angles is off
# by float32 rounding, 6e-8, plus 1e-11.
EXACT = Tolerance(rtol=0, atol=1e-5)
# Near position 0 float32 angles pass (they fail at far positions, where they matter): the clumsiest formula for the
# frequencies makes them off by at most 64 * 1e-6. The bank's mistakes move some value by more than 0.005.
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
    # Catches positions counted from 1, sine and cosine swapped, all sines first.
    with check.criterion("PE(0)", 0.5, golden=True):
        check.entries(*(f"pe_0_{channel}" for channel in range(4)), tolerance=FOUR_DIGITS)
    for name, channels in (("fast", (0, 1)), ("slow", (2, 3))):
        # Catches degrees or turns instead of radians, a wrong slow frequency, two frequencies within one pair.
        with check.criterion(f"the {name} pair of PE(1), PE(5), PE(6)", 1, golden=True):
            check.entries(*(f"pe_{p}_{c}" for p in (1, 5, 6) for c in channels), tolerance=FOUR_DIGITS)
    # Catches halved products, products of the first pair only, distances, and two products that are similar, not equal.
    with check.criterion("PE(0)·PE(1) and PE(5)·PE(6)", 1.5, golden=True):
        check.entries("dot_0_1", "dot_5_6", tolerance=FOUR_DIGITS)
    # Catches halved products, products of the first pair only, and distances.
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
    # Catches a missing factor 2 pi, frequencies instead of wavelengths, exponents t/d, pairs counted from 1.
    with check.criterion("pairs 0, 8 and 16", 1, golden=True):
        check.entries("pair_0", "pair_8", "pair_16", tolerance=FOUR_DIGITS)
    # Catches an exponent of 1, that of the last pair but one, and that of the last channel.
    with check.criterion("the longest", 1, golden=True):
        check.entries("longest", tolerance=FOUR_DIGITS)


# ---- the table ------------------------------------------------------------------------------------------------------

LEFT_BASE = "With another base offsets to the right are right, one to the left is not. (It takes the same base.)"
BASE = "The default base is right, another one is not. (The frequencies follow the argument `base`.)"
FAR_ANGLES = Hint(
    "Positions near 0 are right, far ones are off by the size of a rounding error. (Compute in "
    "float64 or Python floats throughout, and round only the finished values.)",
    within(0.2),
    otherwise="Positions near 0 are right, far ones are not.",
)
LENGTH = (
    "The width is right in another length, in this one it is not. (Row p belongs to position p, whatever seq_len is.)"
)
WIDTH = "Some widths are right, another one is not."
NEGATIVE = (
    "Near offsets to the right are right, 0 or a negative one is not. (The same formula holds for every whole number.)"
)


def named(condition: bool, sentence: str) -> Fault | None:
    """Return a fault that names the misconception, unless the condition holds."""
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

    # Catches all sines first, sine and cosine swapped, a wrong exponent, positions from 1, an extra axis.
    with check.criterion("values near position 0", 1.5, golden=True):
        check.satisfies(calling(7, 6), f"{name}(7, 6)", _without_extra_axis)
        near(7, 6)
        for seq_len in (int(check.randint(17, 60)), 1):
            near(seq_len, 6, LENGTH)
        for seq_len, d_model in ((33, 64), (2, 98)):  # 1/98 is rounded so that arange(0, 1, 2/98) is too long
            near(seq_len, d_model, WIDTH)
    # Catches a hard-coded base of 10,000, and a base remembered from an earlier call.
    with check.criterion("another base", 0.5, golden=True):
        near(10, 16)
        check.agrees(calling(9, 8, base=7.5), f"{name}(9, 8, base=7.5)", NEAR, BASE)
        near(9, 8, REMEMBERED_BASE)  # first asked with another base: exposes a remembered base
    # Catches positions, frequencies or angles in float32, and a table of a fixed maximum length.
    with check.criterion("within 1e-5 up to position 100,000", 1, golden=True):
        near(7, 6)  # next the longest table, where coarse angles are unmistakable
        for seq_len, d_model in ((100_001, 4), (3000, 24)):  # float32 does not hold 2t/24 exactly
            check.agrees(calling(seq_len, d_model), f"{name}({seq_len}, {d_model})", EXACT, FAR_ANGLES)
    # Catches a float64 result, and a cached table that the caller can overwrite.
    with check.criterion("returns float32, a new tensor on each call", 0.5):
        check.has_dtype(calling(5, 8), torch.float32, f"{name}(5, 8)")
        check.returns_new(f"{name}(5, 8)", 5, 8, tolerance=NEAR)
    # Catches an odd width that is accepted or raises another error.
    with check.criterion("refuses an odd d_model", 0.5):
        check.raises(calling(4, 5), ValueError, f"{name}(4, 5)")


# ---- the shift ------------------------------------------------------------------------------------------------------


@exercise(WEEK, "shift_matrix")
def shift_matrix(check: Check) -> None:
    name = "shift_matrix"

    def near(offset: int, d_model: int, hint: Hint | str = "") -> None:
        check.agrees(calling(offset, d_model), f"{name}({offset}, {d_model})", NEAR, hint)

    drawn = int(check.randint(11, 60))
    # Catches the transpose, the layout [sin | cos], mirrored or diagonal blocks, a matrix right only at position 0.
    with check.criterion("offsets to the right", 1.5, golden=True):
        check.satisfies(calling(1, 6), f"{name}(1, 6)", _not_diagonal)
        for offset, d_model in ((1, 6), (drawn, 8)):
            near(offset, d_model)
    # Catches a dropped sign of the offset, and code that steps only to the right.
    with check.criterion("offset 0 and offsets to the left", 0.75, golden=True):
        near(3, 6)  # 0 comes last: it is the identity for nearly every mistake
        for offset, d_model in ((-1, 6), (0, 10)):
            near(offset, d_model, NEGATIVE)
    # Catches a hard-coded base of 10,000, even if only for one sign of the offset, and a remembered base.
    with check.criterion("another base", 0.5, golden=True):
        near(5, 16)
        check.agrees(calling(4, 12, base=7.5), f"{name}(4, 12, base=7.5)", NEAR, BASE)
        near(4, 12, REMEMBERED_BASE)  # first asked with another base
        with check.holds(calling(-4, 12), f"{name}(-4, 12)", NEAR):
            check.agrees(calling(-4, 12, base=7.5), f"{name}(-4, 12, base=7.5)", NEAR, LEFT_BASE)
    # Catches exponents, frequencies or angles in float32.
    with check.criterion("within 1e-5 up to offsets of 100,000", 0.5, golden=True):
        near(3, 6)
        check.agrees(calling(100_000, 20), f"{name}(100000, 20)", EXACT, FAR_ANGLES)
    # Catches a float64 result, and a cached matrix that the caller can overwrite.
    with check.criterion("returns float32, a new tensor on each call", 0.25):
        check.has_dtype(calling(3, 8), torch.float32, f"{name}(3, 8)")
        check.returns_new(f"{name}(3, 8)", 3, 8, tolerance=NEAR)
    # Catches an odd width that is accepted, or refused for some offsets only.
    with check.criterion("refuses an odd d_model", 0.5):
        for offset in (2, 0, -2):
            check.raises(calling(offset, 5), ValueError, f"{name}({offset}, 5)")


# ---- the learned table ----------------------------------------------------------------------------------------------

SUM = Tolerance(rtol=0, atol=1e-5)
TABLE_GRADIENT = "The gradient for the table is wrong: every row must be trained, and enter the sum once, as it is."
# rows are float32: their sum with a float64 x is exact but for the last bits of float64
EXACT_SUM = Tolerance(rtol=0, atol=1e-12)
OTHER_LENGTHS = Hint(
    "A first text is right, one of another length after it is not. (The rows are taken anew in each call.)", form=True
)
AFTER_LOW = "By itself a text in float32 is right, after one in bfloat16 it is not. (Convert the rows for the sum, and not the module.)"
IN_FLOAT64 = "In float32 the sum is right, in float64 it is not. (x is not rounded: the rows take its dtype.)"


def holding(cls: Any, rows: torch.Tensor) -> Any:
    """Return the student's module with ``rows`` as its table, whatever the parameter's name and shape."""
    module = cls.made({"rows": rows}, *rows.shape)
    if rows.device.type != "cpu":
        module.to(rows.device.type)
    return module


def added(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The output for x of the module with this table."""
    return lambda cls: holding(cls, rows)(x.clone())


def _with(rows: torch.Tensor) -> Callable[..., Any]:
    return lambda cls, x: holding(cls, rows)(x)


def added_as_it_lies(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The same for an x that need not be contiguous: the copy keeps its strides."""
    return lambda cls: holding(cls, rows)(x.clone(memory_format=torch.preserve_format))


def added_by_turns(rows: torch.Tensor, x: torch.Tensor, short: int) -> Probe:
    """The module's outputs for x and for its first tokens again, after it has read only these."""

    def probe(cls: Any) -> dict[str, torch.Tensor]:
        module = holding(cls, rows)
        module(x[:, :short].clone())
        return {"the longer text": module(x.clone()), "the shorter one again": module(x[:, :short].clone())}

    return probe


def added_after(rows: torch.Tensor, first: torch.Tensor, x: torch.Tensor) -> Probe:
    """The module's output for x after one for ``first``."""

    def probe(cls: Any) -> torch.Tensor:
        module = holding(cls, rows)
        module(first.clone())
        return module(x.clone())

    return probe


def input_gradient(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The gradient with respect to x. It equals the weights of the sum, whatever the table."""

    def probe(cls: Any) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        return gradient(holding(cls, rows)(leaf), leaf)

    return probe


def table_gradient(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The gradient with respect to the table, one row per position, whatever the table's shape."""

    def probe(cls: Any) -> torch.Tensor:
        found = holding(cls, rows).parameter_gradients(x, uneven)
        tables = [g for g in found if isinstance(g, torch.Tensor) and g.numel() == rows.numel()]
        if len(tables) != 1:
            return torch.zeros_like(rows)
        turned = tuple(tables[0].shape) == tuple(rows.shape)[::-1] and rows.shape[0] != rows.shape[1]
        return (tables[0].T if turned else tables[0]).reshape(rows.shape)

    return probe


def recording_a_graph(rows: torch.Tensor, x: torch.Tensor) -> Probe:
    """The module's output for an input without gradient, so that a graph can only come from the table."""
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
    # Catches rows added along the batch axis, wrong rows, one row for all; x or rows scaled, multiplied or left out.
    with check.criterion("adds row p to position p", 0.75, golden=True):
        for sizes in ((6, 5, 5, 3), (7, 2, 4, 6)):
            rows, x, call = rows_and_text(check, *sizes)
            check.agrees(added(rows, x), call, SUM)
    # Catches a buffer, a frozen or detached table, a second parameter, x changed in place, rows cached from another text.
    with check.criterion("one trainable tensor; gradients reach every row of it and x; x stays as it is", 0.5):
        trained_table(check)
    # Catches a result always in float32, a sum rounded to float32, `view`.
    with check.criterion("keeps the dtype of x, contiguous or not", 0.125):
        dtypes_of_x(check)
    # Catches positions clamped, wrapped around, cut off or given zeros past the table, one row that broadcasts, >= for >.
    with check.criterion("up to max_len it adds, past it it raises", 0.5):
        rows, x, call = rows_and_text(check, 3, 2, 3, 5)
        check.agrees(added(rows, x), call, SUM, "A text of max_len tokens still fits.")
        # Always on the CPU: an index out of range would break a CUDA device for everything that follows.
        for max_len, seq_len, d_model in ((5, 6, 3), (1, 2, 4)):
            x = torch.zeros(2, seq_len, d_model)
            check.raises(
                making(max_len, d_model, then=x),
                Exception,
                f"{name}({max_len}, {d_model})(x {tuple(x.shape)})",
                DIAGNOSES["broadcast" if max_len == 1 else "silent"],
            )

    # Catches positions created on the CPU.
    with check.follows_device(0.125):
        check.follows(made_there((8, 4), check.randn(2, 5, 4)), "LearnedPositionalEmbedding(8, 4)(x (2, 5, 4))")


def rows_and_text(
    check: Check, max_len: int, batch: int, seq_len: int, d_model: int
) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Return a table, a text to add it to, and the description of the call."""
    x = check.randn(batch, seq_len, d_model)
    call = f"LearnedPositionalEmbedding({max_len}, {d_model})(x {tuple(x.shape)})"
    return check.randn(max_len, d_model), x, call


def trained_table(check: Check) -> None:
    name = "LearnedPositionalEmbedding(7, 6)"
    rows, x, call = rows_and_text(check, 7, 2, 4, 6)
    check.satisfies(lambda cls: list(cls(7, 6).parameters()), f"{name}.parameters()", _one_table)
    check.satisfies(recording_a_graph(rows, x), call, _of_the_table(call, x + rows[: x.shape[1]]))
    check.keeps(_with(rows), call, x)
    check.agrees(input_gradient(rows, x), f"the gradient of {call}", SUM, DIAGNOSES["input detached"])
    rows, x, call = rows_and_text(check, 7, 2, 6, 6)
    check.agrees(table_gradient(rows, x), f"the gradient for the table of {call}", SUM, TABLE_GRADIENT)
    check.agrees(added_by_turns(rows, x, 3), f"{name} on texts of 3, 6 and 3 tokens", SUM, OTHER_LENGTHS)


def dtypes_of_x(check: Check) -> None:
    rows, x, call = rows_and_text(check, 7, 2, 4, 6)
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    check.agrees(added(rows, x), call, SUM)
    check.agrees(added_as_it_lies(rows, turned), f"{call}, x not contiguous", SUM, STRIDES)
    low, wide = x.to(torch.bfloat16), x.double()
    check.has_dtype(added(rows, low), torch.bfloat16, f"{call} in bfloat16")
    check.agrees(added(rows, wide), f"{call} in float64", EXACT_SUM, IN_FLOAT64)
    check.agrees(added_after(rows, low, x), f"{call} after the same in bfloat16", SUM, AFTER_LOW)


# ---- the counterexample ---------------------------------------------------------------------------------------------


# A right pair may lie anywhere below 2^63, where float64 angles are meaningless. With fifty digits, of which the offset
# takes nineteen, angles are exact enough for every offset.
NEAR_OFFSETS = 2**15
FIFTY = Context(prec=50)
TURN = Decimal("6.2831853071795864769252867665590057683943387987502116419")


@cache
def speeds(d_model: int) -> list[Decimal]:
    return [FIFTY.power(10000, FIFTY.divide(Decimal(-2 * t), Decimal(d_model))) for t in range(d_model // 2)]


def similarity(offset: int, d_model: int) -> float:
    """PE(0)·PE(offset), accurate to 1e-13 for every offset."""
    angles = (FIFTY.remainder(FIFTY.multiply(Decimal(offset), speed), TURN) for speed in speeds(d_model))
    return math.fsum(math.cos(angle) for angle in angles)


def rise_between(k1: int, k2: int, d_model: int) -> float:
    """The rise of PE(0)·PE(k) from k1 to k2. Near offsets use float64, right to 2e-11 and a thousand times faster."""
    if k2 < NEAR_OFFSETS:
        frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
        rise = float(np.cos(k2 * frequencies).sum() - np.cos(k1 * frequencies).sum())
        if abs(rise) > 1e-9:
            return rise
    return similarity(k2, d_model) - similarity(k1, d_model)


def _falling(d_model: int, call: str) -> Callable[[Any], Fault | None]:
    """Return a judge that says what is wrong with a pair of offsets between which the product does not rise."""

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
        # a float32 sum of 512 cosines is off by about 1e-5
        cause = DIAGNOSES["only rounding"] if rise > -1e-4 else DIAGNOSES["falls"]
        fall = f"{float(f'{-rise:.0e}'):g}"
        return Fault(f"{call} gives ({k1}, {k2}), but there the product falls by about {fall}", (cause,))

    return judge


def require_counterexample(check: Check, d_model: int) -> None:
    call = f"similarity_counterexample({d_model})"
    check.satisfies(calling(d_model), call, _falling(d_model, call))


@exercise(WEEK, "similarity_counterexample")
def similarity_counterexample(check: Check) -> None:
    # Catches offsets that are 0, equal, negative, in the wrong order or not ints, and a pair that fits one width only.
    with check.criterion("widths 2, 4, 64 and 128", 1, golden=True):
        for d_model in (2, 4, 64, 128):
            require_counterexample(check, d_model)
    # Catches a search that ends before the first rise of a wide encoding, or mistakes rounding for a rise.
    with check.criterion("any even width up to 1024", 1, golden=True):
        # 400 exposes a base of 5,000. If a search of round length ends at its least product, the next one may be lower: 58,
        # 138, 300, 348, 420 and 580 expose such searches.
        for d_model in (58, 138, 300, 348, 400, 420, 580, 800, 1024):
            require_counterexample(check, d_model)
