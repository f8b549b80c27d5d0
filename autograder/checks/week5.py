"""Hidden tests of week 5, extrapolation.

Most functions here take numbers and return a number, so inputs are fixed where a corner case matters (rounding,
clamping) and drawn elsewhere. `loss_by_length` gets a real module: the notebook's locked cell makes it in the sandbox
from weights drawn here, and that cell's `observe` inspects it; the expected losses come from the same model on this
side (probe_model.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from autograder import reference
from autograder.checks import probe_model as trusted
from autograder.checks.framework import (
    Absent,
    Check,
    Fault,
    Hint,
    Probe,
    calling,
    differentiating,
    exercise,
)
from autograder.checks.probes import seen, seen_part
from autograder.script.answer import by_student
from autograder.script.compare import CUT, FOUR_DIGITS, Tolerance, kind
from autograder.script.question import Subject

WEEK = "week5_extrapolation"

FIVE_DIGITS = Tolerance(rtol=1e-4, atol=0)  # the outline's tolerance for the new base
EXACT = Tolerance(rtol=0, atol=0)  # counts
# Numbers may be computed in float64 or float32 (exponents of 1.03 are then off by 1e-7, a base of 1e4 by a relative
# 1e-6). The bank's mildest mistake moves the value by a relative 1e-2 or more.
RELATIVE = Tolerance(rtol=1e-4, atol=0)


# ---- hand computations ----------------------------------------------------------------------------------------------

UNTURNED = {
    "turns_first": 4096 / (2 * math.pi),
    "turns_last": 4096 / (2 * math.pi) * 10000 ** (-126 / 128),
    "boundary": 64 * math.log(4096 / (2 * math.pi)) / math.log(10000),
    "complete": 46.0,  # floats: 46.0 and 46 are both right
    "never": 18.0,
}


@exercise(WEEK, "unturned_pairs", reference=UNTURNED)
def unturned_pairs(check: Check) -> None:
    # Catches a missing 2 pi, first and last swapped, wavelengths, degrees, 64 taken as the number of the last pair.
    with check.criterion("turns of the first and of the last pair", 1, golden=True):
        check.entries("turns_first", "turns_last", tolerance=FOUR_DIGITS)
    # Catches a missing 2 pi, and channels counted instead of pairs: d in front instead of d/2.
    with check.criterion("where a turn takes exactly the training length", 1, golden=True):
        check.entries("boundary", tolerance=FOUR_DIGITS)
    # Catches the two counts swapped, pairs counted from 1, channels instead of pairs.
    with check.criterion("how many pairs complete a turn, how many never do", 1, golden=True):
        check.entries("complete", "never", tolerance=EXACT)


@exercise(
    WEEK,
    "ntk_by_hand",
    reference={"new_base": reference.ntk_base(10000.0, 4.0, 64), "first_pair_ratio": 1.0, "last_pair_ratio": 0.25},
)
def ntk_by_hand(check: Check) -> None:
    # Catches an exponent that is missing, inverted or on base * scale, and a scale applied twice.
    with check.criterion("the new base, to five digits", 0.5, golden=True):
        check.entries("new_base", tolerance=FIVE_DIGITS)
    # Catches all pairs slowed down, first and last swapped, an inverted ratio, the ratio of the bases.
    with check.criterion("what happens to the first and to the last pair", 0.5, golden=True):
        check.entries("first_pair_ratio", "last_pair_ratio", tolerance=FOUR_DIGITS)


@exercise(
    WEEK,
    "yarn_by_hand",
    reference={
        "low": 20.0,
        "high": 46.0,
        "temperature": reference.yarn_temperature(4.0),
        "logit_factor": reference.yarn_temperature(4.0) ** 2,
    },
)
def yarn_by_hand(check: Check) -> None:
    # Catches ends unrounded or rounded inwards, betas swapped, the new length, a missing 2 pi, channels for pairs.
    with check.criterion("the ends of the ramp", 0.5, golden=True):
        check.entries("low", "high", tolerance=EXACT)
    # Catches the square given for the factor, the factor or its double given for the square, a wrong logarithm.
    with check.criterion("the factor on cosine and sine, and on a logit", 0.5, golden=True):
        check.entries("temperature", "logit_factor", tolerance=FOUR_DIGITS)


# ---- positions and bases --------------------------------------------------------------------------------------------


def _whole(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((got == got.round()).all())


WHOLE = Hint(
    "Small positions that the scale divides are right, others are not: the result must keep its fraction (no //, "
    "no rounding, no conversion to integers or to half precision).",
    _whole,
)
FRACTIONAL_SCALE = (
    "Whole scales are right, one of 2.5 is not. (The scale keeps its fraction for integer positions, too.)"
)
ANY_SHAPE = Hint("With one axis this is right, with another shape it is not. (Any shape is taken and kept.)", form=True)
DTYPE = Hint(
    "Integer positions give float32, floating ones keep their dtype.",
    lambda got, expected: getattr(got, "dtype", None) != expected.dtype,
    form=True,
)
BELOW_ZERO = replace(
    DTYPE,
    otherwise="Int64 positions from 0 upwards are right, int16 ones from -6 to 5 are not. (All must be divided, whatever their "
    "sign.)",
)
DIGITS = replace(
    DTYPE,
    otherwise="Float32 positions are right, float64 ones are not to twelve digits. (Compute in the dtype of the positions; "
    "float32 holds seven.)",
)
COPY_CUT = Hint(
    "With scale 4 the gradient is right, with scale 1 it is not. (clone() passes it on, detach() cuts it off.)"
)


@exercise(WEEK, "position_interpolation")
def position_interpolation(check: Check) -> None:
    name = "position_interpolation"
    steps = torch.arange(12, device=check.device)
    # a product with 1/scale rounds once more than a quotient: 1e-7 relative in float32
    near = Tolerance(rtol=1e-5, atol=1e-6)
    # Catches a product, integer division, far positions cut off, positions rescaled by their maximum or their number.
    with check.criterion("values for integer positions", 1, golden=True):
        check.agrees(calling(4 * steps, 4.0), f"{name}(0, 4, 8, ..., 4.0)", near)
        check.agrees(calling(steps, 3.0), f"{name}(0..11, 3.0)", near, WHOLE)
        far = check.randint(0, 60000, (3, 7))
        check.agrees(calling(far, 3), f"{name}(integers up to 60,000 of shape (3, 7), 3)", near, WHOLE)
        check.agrees(calling(steps, 2.5), f"{name}(0..11, 2.5)", near, FRACTIONAL_SCALE)
        check.agrees(calling(steps[7], 4.0), f"{name}(7 of shape (), 4.0)", near, ANY_SHAPE)
    # Catches one dtype for every input, float64 rounded on the way, code that is right only for positions from 0 up.
    with check.criterion("floating positions, dtypes, negative positions", 0.75, golden=True):
        exact = Tolerance(1e-5, 1e-6, exact_dtype=True)
        check.agrees(calling(steps, 4.0), f"{name}(0..11, 4.0)", exact, DTYPE)
        below = (steps - 6).to(torch.int16)
        check.agrees(calling(below, 4.0), f"{name}(int16 -6..5, 4.0)", exact, BELOW_ZERO)
        check.agrees(calling(steps.to(torch.uint8), 1.0), f"{name}(uint8 0..11, 1.0)", exact, DTYPE)
        given = torch.tensor([0.5, -3.0, 100.25, 7.0], device=check.device)
        check.agrees(calling(given, 0.5), f"{name}(floats, some negative, 0.5)", near)
        wide = check.randn(6, dtype=torch.float64)  # float32 rounds thirds of these
        twelve = Tolerance(1e-12, 1e-12, exact_dtype=True)
        check.agrees(calling(wide, 3.0), f"{name}(float64 positions, 3.0)", twelve, DIGITS)
        rounded = Tolerance(1e-2, 1e-6, exact_dtype=True)  # rounded once, or three times as a product with 1/scale
        check.agrees(calling(given.half(), 4.0), f"{name}(float16 positions, 4.0)", rounded, DTYPE)
    # Catches gradients cut off, positions divided in place, and positions themselves returned for scale 1.
    with check.criterion("returns a new tensor, leaves its argument alone and passes gradients", 0.125):
        given = check.randn(6)
        check.keeps(lambda f, given: f(given, 4.0), f"{name}(floats, 4.0)", given)  # first: a write spoils the gradient
        check.agrees(differentiating(given, 4.0), f"the gradient of {name}(floats, 4.0)", near)
        check.agrees(calling(given, 1.0), f"{name}(floats, 1.0)", near)
        check.agrees(differentiating(given, 1.0), f"the gradient of {name}(floats, 1.0)", near, COPY_CUT)
        check.returns_new(f"{name}(floats, 1.0)", given, 1.0, tolerance=near)

    # Catches a result created on the CPU, and positions that go through a list or NumPy.
    with check.follows_device(0.125):
        positions = torch.arange(5, device=check.device)
        check.follows(calling(positions, 4.0), "position_interpolation(positions 0..4, 4.0)")


def is_float(call: str) -> Callable[[Any], Fault | None]:
    """Return a judge that accepts only a Python float."""

    def judge(got: Any) -> Fault | None:
        if isinstance(got, float):
            return None
        text = f"{call} must return a Python float; yours returns {kind(got)}."
        return Fault(text, (text,))

    return judge


ROUNDED = Hint(
    "A small new base comes out rounded. (It is a float and keeps its decimals.)",
    lambda got, expected: any(got == round(expected, digits) for digits in range(3)),
)


@exercise(WEEK, "ntk_base")
def ntk_base(check: Check) -> None:
    def at(base: float, scale: float, head_dim: int, hint: Hint | str = "") -> None:
        check.agrees(calling(base, scale, head_dim), f"ntk_base({base:g}, {scale:g}, {head_dim})", RELATIVE, hint)

    # Small dimensions first: there d/(d-2) is far from 1 and the mistakes are large.
    # Catches an exponent missing, inverted, of pairs or on base * scale; a scale applied twice or divided by.
    with check.criterion("base 10,000", 2, golden=True):
        for scale, head_dim in ((2.0, 4), (16.0, 128), (3.5, 32)):
            at(10000.0, scale, head_dim)
    # Catches a hard-coded base of 10,000, scales below 1 raised to 1, a rounded result.
    with check.criterion("other bases, and scales that are not above 1", 0.75, golden=True):
        at(500.0, 4.0, 6)
        at(10000.0, 64.0, 4)
        at(10000.0, 0.5, 8)
        at(7.5, 0.5, 8, ROUNDED)  # gives 2.976
    # Catches a tensor or an int as the result.
    with check.criterion("a Python float", 0.25):
        words = "ntk_base(10000, 1, 16)"
        check.satisfies(calling(10000.0, 1.0, 16), words, is_float(words))


JUST_BEYOND = "A length well beyond the training length is right, one token beyond it is not."
FAR_BEYOND = "A length up to 4 times the training length is right, one of 64 times it is not."
SHORT = "Beyond the training length the base is right, up to it it is not. (There it must stay as it was.)"
SHRUNK = "Scales of 1 and more are right, one of 0.5 is not. (Equation (4) holds for every scale.)"
STATE = Hint(
    "This call goes wrong after other calls. (What you keep from one call must not change the next.)", of_state=True
)


@exercise(WEEK, "dynamic_ntk_base")
def dynamic_ntk_base(check: Check) -> None:
    def at(
        scale: float, head_dim: int, seq_len: int, original_len: int, base: float = 10000.0, hint: Hint | str = ""
    ) -> tuple[Probe, str]:
        call = f"dynamic_ntk_base({base:g}, {scale:g}, {head_dim}, {seq_len}, {original_len})"
        probe = calling(base, scale, head_dim, seq_len, original_len)
        check.agrees(probe, call, RELATIVE, hint)
        return probe, call

    # Catches the scale alone or missing, - (scale - 1) missing or without brackets, no exponent, integer division.
    with check.criterion("beyond the training length", 1.25, golden=True):
        at(8.0, 128, 9000, 4096)  # more than twice 4,096, so that a base that never changes is not a whole ratio
        at(2.0, 8, 250, 100)
        at(2.0, 8, 300, 100, base=500.0)
        at(2.5, 8, 192, 64)
    # Catches the formula used up to the training length, an upper limit, a remembered longest length, a tensor result.
    with check.criterion("one token and 64 times beyond it; unchanged up to it, whatever came before", 0.75):
        # Each hint but STATE concerns its call alone: no such call repeats a scale and original_len with a new length.
        at(2.0, 8, 65_536, 1024, hint=FAR_BEYOND)
        at(8.0, 128, 2049, 2048, hint=JUST_BEYOND)
        for scale, seq_len in ((4.0, 64), (3.0, 63), (8.0, 1)):
            below = at(scale, 8, seq_len, 64, hint=SHORT)
        at(2.0, 8, 50, 90, base=7.5, hint=SHORT)
        at(4.0, 8, 256, 64)
        at(0.5, 8, 192, 64, hint=SHRUNK)
        at(4.0, 8, 200, 64, hint=STATE)
        at(8.0, 128, 2049, 2048, hint=STATE)
        at(2.0, 16, 300, 100, base=500.0, hint=STATE)  # differs from (2, 8, 300, 100) with base 500, asked above
        at(2.0, 8, 300, 150, base=500.0, hint=STATE)
        at(2.0, 8, 90, 64, base=2.5, hint=ROUNDED)
        probe, call = below
        check.satisfies(probe, call, is_float(call))


# ---- YaRN -----------------------------------------------------------------------------------------------------------

CLAMPED = (
    "Usual sizes are right, one where the ramp reaches beyond the pairs is not. (low does not fall below 0, "
    "high does not rise above head_dim - 1.)"
)
EQUAL = (
    "Usual sizes are right, one where low and high are equal is not. (There 0.001 is added to high: a step "
    "instead of a division by zero.)"
)
EQUAL_AT_THE_END = (
    "With low and high both 0 the step is right, with both at head_dim - 1 it is not. (No pair is above them, so none is "
    "divided.)"
)
REMEMBERED = (
    "With new sizes another base and other betas are right, with sizes asked for before they are not. (What you keep from a "
    "call must go by all the arguments.)"
)


@exercise(WEEK, "yarn_frequencies")
def yarn_frequencies(check: Check) -> None:
    # Relative, since the last frequency may be 1e-6; float32 throughout is off by about 1e-6, a base of 10,001 by 1e-4.
    # Neighbouring ramps differ by 1e-2.
    tolerance = Tolerance(rtol=2e-5, atol=0)

    def at(head_dim: int, scale: float, original_len: int, hint: Hint | str = "", **options: float) -> None:
        words = "".join(f", {key}={value:g}" for key, value in options.items())
        check.agrees(
            calling(head_dim, scale, original_len, **options),
            f"yarn_frequencies({head_dim}, {scale:g}, {original_len}{words})",
            tolerance,
            hint,
        )

    # Catches a ramp reversed, over channels or turns, or with wrong ends; slow pairs changed wrongly, or all pairs.
    with check.criterion("values for usual sizes", 2, golden=True):
        at(128, 4.0, 4096)
        at(32, 2.5, 1000)
        at(128, 4.0, 11_350)
    # Catches ends that are not clamped, high clamped to the last pair, a division by zero where the ends are equal.
    with check.criterion("low clamped at 0, high at head_dim - 1, low equal to high", 0.75, golden=True):
        at(16, 4.0, 64, CLAMPED)
        # The visible check has not asked these sizes with another base: no cached result can look like a wrong ramp.
        at(14, 4.0, 100_000, CLAMPED, base=100.0, beta_fast=1000.0)
        at(16, 4.0, 4, EQUAL)
        at(4, 4.0, 676, EQUAL_AT_THE_END, base=2.0)
    # Catches a hard-coded 10,000, 32 or 1, in the ramp or in the frequencies, and a ramp cached by the sizes alone.
    with check.criterion("other base and betas, scale 1", 0.75, golden=True):
        # New sizes come first, so that a hard-coded argument is not mistaken for a cached result.
        at(80, 3.0, 2048, base=500_000.0)
        at(112, 3.0, 2048, beta_fast=16.0, beta_slow=2.0)
        at(64, 4.0, 4096)
        at(64, 4.0, 4096, REMEMBERED, base=10_100.0)  # both ends of the ramp stay where they were
        at(64, 4.0, 468, base=99.5)  # neither end is clamped; a base of 99 would move one
        at(64, 4.0, 4096, REMEMBERED, beta_fast=16.0)
        at(64, 4.0, 4096, beta_slow=1.5, beta_fast=2.5)  # betas of 1 and 2 would move both ends
        at(64, 1.0, 4096)
    # Catches a float64 result, a cached tensor that the caller can overwrite, an odd head_dim accepted.
    with check.criterion("float32, a new tensor on each call; takes any even head_dim, refuses an odd one", 0.5):
        for head_dim, original_len in ((10, 4096), (2, 4096)):  # no end of the ramp is clamped with 10
            at(head_dim, 4.0, original_len)
        for scale, original_len in ((1.0, 64), (4.0, 4)):  # no ramp, a step
            words = f"yarn_frequencies(16, {scale}, {original_len})"
            check.has_dtype(calling(16, scale, original_len), torch.float32, words)
        check.returns_new("yarn_frequencies(16, 4, 64)", 16, 4.0, 64, tolerance=tolerance)
        check.raises(calling(7, 1.0, 64), ValueError, "yarn_frequencies(7, 1.0, 64)")


NOT_STRETCHED = "For scale <= 1 the factor is 1: nothing is stretched."
NO_LIMIT = "Scales from 1.5 to 8 are right, one of 1000 is not. (Equation (8) has no upper limit.)"


@exercise(WEEK, "yarn_temperature")
def yarn_temperature(check: Check) -> None:
    # float32 results are right to 1e-5; the square of 1.0693 (scale 2) differs by 0.07.
    tolerance = Tolerance(rtol=1e-5, atol=0)
    # Catches the square, the root or the reciprocal, a wrong logarithm, 0.1 or 1 missing or in the wrong brackets.
    with check.criterion("scales above 1", 1.5, golden=True):
        for scale in (4.0, 1.5):
            check.agrees(calling(scale), f"yarn_temperature({scale:g})", tolerance)
        check.agrees(calling(1000.0), "yarn_temperature(1000)", tolerance, NO_LIMIT)
    # Catches a factor below 1 where nothing is stretched, and a tensor or an int as the result.
    with check.criterion("1 for scales up to 1; a Python float", 0.5):
        probes = {scale: calling(scale) for scale in (4.0, 1.0, 0.5)}
        check.value(probes[4.0], "yarn_temperature(4)")
        for scale in (1.0, 0.5):
            check.agrees(probes[scale], f"yarn_temperature({scale:g})", tolerance, NOT_STRETCHED)
        for scale, probe in probes.items():
            words = f"yarn_temperature({scale:g})"
            check.satisfies(probe, words, is_float(words))


# ---- log n ----------------------------------------------------------------------------------------------------------


ONE_KEY = Hint("One key alone gets the factor 0, since ln 1 = 0; the formula has no exception.", form=True)
NO_CLAMP = Hint(
    "With fewer keys than n0 the factor lies below 1; yours does not. (The formula holds for every n, without a clamp.)",
    lambda got, expected: expected < 1 <= got,
)
OTHER_N0 = Hint(
    "For 512 keys the factor is the same with n0 = 8 as with n0 = 64. (It goes by both; do not keep it by n alone.)",
    lambda got, expected: math.isclose(got, math.log(512) / math.log(64), rel_tol=1e-4),
)


@exercise(WEEK, "log_n_scale")
def log_n_scale(check: Check) -> None:
    # Catches an inverted fraction, a difference, the logarithm of n / n0, no logarithm, YaRN's temperature.
    with check.criterion("more keys than in training", 1.5, golden=True):
        for n, n0 in ((1000, 300), (512, 64), (65, 64)):
            check.agrees(calling(n, n0), f"log_n_scale({n}, {n0})", RELATIVE)
    # Catches a clamp, a special case for one key, a factor cached by n alone, a tensor result.
    with check.criterion("as many or fewer: 1, and below 1", 0.5):
        probes = {}
        for n, n0, hint in (
            (64, 64, NO_CLAMP),
            (8, 64, NO_CLAMP),
            (1, 64, ONE_KEY),
            (512, 8, OTHER_N0),  # after (512, 64)
        ):
            words = f"log_n_scale({n}, {n0})"
            probes[words] = calling(n, n0)
            check.agrees(probes[words], words, RELATIVE, hint)
        for words, probe in probes.items():
            check.satisfies(probe, words, is_float(words))


# ---- clipped distances ----------------------------------------------------------------------------------------------

# |q| |k| stays below 40 and float32 angles are off by less than 1e-5; the bank's mistakes move some score by 0.1.
SCORES = Tolerance(rtol=0, atol=1e-3)
LIKE_QUERIES = Tolerance(rtol=0, atol=1e-3, exact_dtype=True)
ALIGNED = (
    "With as many queries as keys this is right, with fewer it is not. (The last query must stand at the last key.)"
)
DTYPE_OF_QUERIES = Hint(
    "The scores have the dtype of the queries: float64 in, float64 out.",
    lambda got, expected: getattr(got, "dtype", None) != expected.dtype,
    form=True,
)
ANY_DISTANCE = (
    "With the distances of 5.7's first part the scores are right, with others they are not: read them from `distances`."
)


FAR_DISTANCES = (
    "Right for short distances, wrong for those up to 200. (A limit may be any number, and int64 holds all of them.)"
)


@exercise(WEEK, "clipped_distances")
def clipped_distances(check: Check) -> None:
    def at(n_queries: int, n_keys: int, limit: int, hint: str = "") -> None:
        words = f"clipped_distances({n_queries}, {n_keys}, {limit}), keys up to the query"
        check.agrees(seen(calling(n_queries, n_keys, limit)), words, EXACT, hint)

    # Catches a wrong sign, clipped positions instead of distances, a limit off by one, far keys dropped or restarted.
    with check.criterion("as many queries as keys", 0.5, golden=True):
        for n, limit in ((6, 3), (5, 9), (4, 0)):
            at(n, n, limit)
    # Catches queries counted from position 0, and distances in int8.
    with check.criterion("fewer queries than keys: the last positions", 0.5, golden=True):
        at(1, 80, 31, ALIGNED)
        at(2, 6, 3, ALIGNED)
        at(1, 300, 200, FAR_DISTANCES)


@exercise(WEEK, "rotary_scores")
def rotary_scores(check: Check) -> None:
    Drawn = tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]

    def drawn(batch: int, heads: int, n_queries: int, n_keys: int, head_dim: int, limit: int) -> Drawn:
        q, k = check.randn(batch, heads, n_queries, head_dim), check.randn(batch, heads, n_keys, head_dim)
        distances = reference.clipped_distances(n_queries, n_keys, limit).to(check.device)
        words = f"rotary_scores(q {tuple(q.shape)}, k {tuple(k.shape)}, distances clipped at {limit}"
        return q, k, distances, words

    # Catches no rotation, the wrong direction, a missing sine term, the true distances, a scale, the other layout.
    with check.criterion("distances clipped at a limit", 1.25, golden=True):
        for shape in ((1, 1, 5, 5, 2, 2), (2, 3, 9, 9, 8, 4)):
            *given, words = drawn(*shape)
            check.agrees(seen(calling(*given)), f"{words})", SCORES)
    # Catches one row of distances used for all queries, and distances computed from the indices.
    with check.criterion("any distances", 0.25):
        q, k, distances, words = drawn(2, 2, 6, 9, 8, 4)
        others = check.randint(0, 60, tuple(distances.shape))
        check.agrees(
            seen(calling(q, k, others)), words.replace("distances clipped at 4", "others)"), SCORES, ANY_DISTANCE
        )
    # Catches a hard-coded base of 10,000.
    with check.criterion("another base", 0.25):
        q, k, distances, words = drawn(2, 2, 1, 9, 8, 4)
        check.agrees(seen(calling(q, k, distances, base=7.5)), f"{words}, base=7.5)", SCORES)
    # Catches a result of another dtype, gradients cut off, an argument changed in place.
    with check.criterion("keeps the dtype and gradients, changes no argument", 0.125):
        q, k, distances, words = drawn(1, 2, 4, 6, 8, 3)
        double = (q.double(), k.double(), distances)
        check.agrees(seen(calling(*double)), f"{words}) in float64", LIKE_QUERIES, DTYPE_OF_QUERIES)
        check.has_dtype(calling(q, k, distances), torch.float32, f"{words})")
        check.keeps(lambda f, *given: f(*given), f"{words})", q, k, distances)  # first: a write spoils the gradient
        slope = differentiating(q, k, distances, keep=seen_part)
        check.agrees(slope, f"the gradient of {words}) for q", SCORES, CUT)

    # Catches frequencies created on the CPU.
    with check.follows_device(0.125):
        distances = torch.tensor([[1, 0], [2, 1]], device=check.device)
        there = check.randn(1, 2, 2, 8), check.randn(1, 2, 2, 8), distances
        check.follows(calling(*there), "rotary_scores(q (1, 2, 2, 8), k (1, 2, 2, 8), distances (2, 2))")


# ---- loss_by_length -------------------------------------------------------------------------------------------------

VOCAB = 7
SHAPES = {
    "embed.weight": (VOCAB, 6),
    "inside.1.0.weight": (6, 6),
    "inside.1.0.bias": (6,),
    "read.weight": (VOCAB, 6),
    "read.bias": (VOCAB,),
}
VOCABULARY = Hint("With a vocabulary of 7 the losses are right, with one of 9 they are not.", form=True)
EVAL, TRAIN = (False,) * 8, (True,) * 8
MIXED = (
    (True, True, False, False, True, False, False, True),
    (False, False, True, True, False, False, True, False),
)
# Losses are 2 to 4 nats, from float32 logits of order 5: right answers differ by 1e-6. Dropout, a wrong window or a
# wrong target moves the loss by more than 0.01.
LOSSES = Tolerance(rtol=0, atol=1e-3)

EVAL_MODE = (
    "With the model in eval mode the losses are right, in train mode they are not: switch the model to eval "
    "mode while you measure, or its dropout spoils the loss."
)
MIXED_MODES = "With the model in train mode the losses are right, with its parts in different modes they are not."
AFTER_REFUSAL = (
    "After a refusal some training flag is not what it was before: check the lengths first, or restore in `finally`."
)
AS_MANY_TARGETS = Hint(
    "Roomy arguments are right, just fitting ones are not. (A text needs one token more than the longest length, and n_targets may "
    "be the smallest length.)",
    form=True,
)
KEYS = "The keys must be ints: take the lengths as they were given."
FROZEN = "The model's parameters no longer ask for gradients afterwards: measuring changes nothing."
FLAGS = "Some training flag is not what it was before: note the flag of every submodule, and set each back at the end."
WEIGHTS = "The model's weights are not what they were before: measuring changes nothing."
LENGTHS_READ = Hint(
    "The model reads other lengths than those asked for. (At length L it gets the L tokens tokens[:, -L-1:-1].)",
    form=True,
)
RECORDED = "The model runs with gradients recorded: measure under torch.no_grad()."
BACKWARD = "The model's parameters have gradients afterwards: a measurement calls no backward()."
SWITCHED_OFF = "Gradients stay switched off after your function: use `with torch.no_grad():`, which ends by itself."
FLOATS = "The losses must be Python floats: use .item() on the mean loss."


@dataclass
class Measured(Subject):
    """A `loss_by_length` with the two helpers that make and observe models where it runs, and the runs so far."""

    function: Any
    make: Callable = trusted.probe_model
    observe: Callable = trusted.observe
    runs: dict[Any, tuple[Any, dict, Any]] = field(default_factory=dict, init=False)

    def with_answer(self, function: Any) -> "Measured":
        """The same helpers with another function."""
        return function if isinstance(function, Measured) else replace(self, function=function)

    def __call__(self, weights: dict, flags: tuple, tokens: torch.Tensor, lengths: list, n_targets: int) -> tuple:
        """The losses, and the model that was measured."""
        with torch.enable_grad():  # undoes what a known mistake does to this process's gradient mode
            model = self.make(weights, list(flags))
            return self.function(model, tokens, lengths, n_targets), model


def _measured(subject: Any) -> Measured:
    """Add the helpers to the reference or a known mistake, which come without them."""
    return subject if isinstance(subject, Measured) else Measured(subject)


def losses(*arguments: Any) -> Probe:
    """The losses alone, whatever the call leaves behind."""
    return lambda subject: _measured(subject)(*_fresh(arguments))[0]


def _losses_of(*arguments: Any) -> Probe:
    """The same with the arguments as they are, not copies of them."""
    return lambda subject: _measured(subject)(*arguments)[0]


class Run:
    """One run per object, whatever is then inspected: the losses, the state left behind, the model."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def of(self, subject: Any) -> tuple[Any, dict, Any]:
        measured = _measured(subject)
        if self not in measured.runs:
            measured.runs[self] = self._run(measured)
        return measured.runs[self]

    def _run(self, measured: Measured) -> tuple[Any, dict, Any]:
        with torch.enable_grad():
            weights, flags, *rest = _fresh(self._arguments)
            model = measured.make(weights, list(flags))
            return measured.function(model, *rest), measured.observe(model), model


class Refusal(Run):
    """One run that must be refused: the losses or the error, the state left behind, the model."""

    def _run(self, measured: Measured) -> tuple[Any, dict, Any]:
        weights, flags, *rest = _fresh(self._arguments)
        with torch.enable_grad():
            model = measured.make(weights, list(flags))
            before = measured.observe(model)
            try:
                outcome = measured.function(model, *rest)
            except Exception as error:
                outcome = by_student(error)
            after = measured.observe(model)
        # if an earlier call has switched gradients off, this call cannot show whether it does
        return outcome, after | {"stays on": after["gradient mode"] or not before["gradient mode"]}, model

    def repeated(self, subject: Any) -> Any:
        """Return the run's losses again, or raise its error."""
        outcome = self.of(subject)[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def left_behind(key: str, run: Run) -> Probe:
    return lambda subject: run.of(subject)[1][key]


def other_lengths(run: Run, lengths: list[int]) -> Probe:
    """The other lengths that the model has read; none at all if a copy of it was measured."""
    return lambda subject: [length for length in run.of(subject)[1]["lengths"] if length not in lengths]


def still_trained(run: Run) -> Probe:
    """Whether each of the model's parameters requires gradients after the call."""
    return lambda subject: [parameter.requires_grad for parameter in run.of(subject)[2].parameters()]


def weights_left(run: Run) -> Probe:
    """The model's weights after the call."""
    return lambda subject: dict(run.of(subject)[2].state_dict())


def keys_are_ints(run: Run) -> Probe:
    return lambda subject: all(isinstance(length, int) for length in run.of(subject)[0])


def kinds_of_losses(run: Run) -> Probe:
    return lambda subject: " and ".join(sorted({kind(loss) for loss in run.of(subject)[0].values()}))


def _fresh(arguments: tuple) -> list:
    weights, flags, tokens, lengths, n_targets = arguments
    return [{name: value.clone() for name, value in weights.items()}, flags, tokens.clone(), list(lengths), n_targets]


@exercise(WEEK, "loss_by_length")
def _loss_by_length(check: Check) -> None:
    # Catches targets unshifted or at the start, the whole window or one target scored, a sum, bits, a double softmax.
    with check.criterion("the losses, model in eval mode", 1.25, golden=True):
        losses_in_eval_mode(check)
    # Catches dropout left on, in the whole model or in parts of it.
    with check.criterion("the losses, model in train mode", 1, golden=True):
        losses_in_train_mode(check)
    # Catches all parts left in one mode, only the outermost flag restored.
    with check.criterion("every training flag and weight as it was", 0.75):
        runs = flags_and_weights(check)
    # Catches gradients recorded, kept or left switched off, losses as tensors, the longest window read at every length.
    with check.criterion("no gradients recorded or kept, plain floats, arguments left alone", 0.5):
        gradients_and_kinds(check, runs)
    # Catches text or n_targets unchecked, a bound off by one, flags or gradients not restored after a refusal.
    with check.criterion("refuses a text that is too short and targets that do not fit, and no other", 0.5):
        refusals(check)


def model_and_text(check: Check, batch: int, n: int, vocab: int = VOCAB) -> tuple[dict, torch.Tensor]:
    """Weights of a model with this vocabulary, and a text."""
    shapes = {name: tuple(vocab if size == VOCAB else size for size in shape) for name, shape in SHAPES.items()}
    return {name: check.randn(*shape) for name, shape in shapes.items()}, check.randint(0, vocab, (batch, n))


def shown_call(flags: str, tokens: torch.Tensor, lengths: list, n_targets: int) -> str:
    return f"loss_by_length(model in {flags}, tokens {tuple(tokens.shape)}, {lengths}, {n_targets})"


def losses_in_eval_mode(check: Check) -> None:
    for batch, n, lengths, n_targets in (
        (3, 25, [8, 16, 22], 6),  # what a text just allows is asked below
        (1, 40, [37, 6], 5),
        (71, 33, [12], 1),  # 71 is prime: no equal batches
    ):
        weights, tokens = model_and_text(check, batch, n)
        probe = losses(weights, EVAL, tokens, lengths, n_targets)
        check.agrees(probe, shown_call("eval mode", tokens, lengths, n_targets), LOSSES)
    weights, tokens = model_and_text(check, 3, 25, vocab=9)
    check.agrees(
        losses(weights, EVAL, tokens, [8, 16, 22], 6),
        shown_call("eval mode, vocabulary 9", tokens, [8, 16, 22], 6),
        LOSSES,
        VOCABULARY,
    )


def losses_in_train_mode(check: Check) -> None:
    weights, tokens = model_and_text(check, 9, 25)  # enough texts that the tokens before a window matter in some
    for flags, words, hint in ((TRAIN, "train mode", EVAL_MODE), (MIXED[1], "mixed modes", MIXED_MODES)):
        probe = losses(weights, flags, tokens, [8, 22], 6)
        check.agrees(probe, shown_call(words, tokens, [8, 22], 6), LOSSES, hint)


def flags_and_weights(check: Check) -> list[tuple[Run, str]]:
    """Return the runs, the first one in eval mode, with the descriptions of their calls."""
    weights, tokens = model_and_text(check, 2, 15)
    modes = ((EVAL, "eval mode"), (TRAIN, "train mode"), (MIXED[0], "mixed modes"))
    runs = [(Run(weights, flags, tokens, [6, 12], 4), shown_call(words, tokens, [6, 12], 4)) for flags, words in modes]
    for run, shown in runs:
        check.agrees(left_behind("flags", run), f"the training flags after {shown}", EXACT, FLAGS)
    run, shown = runs[1]
    check.agrees(weights_left(run), f"the model's weights after {shown}", EXACT, WEIGHTS)
    return runs


def gradients_and_kinds(check: Check, runs: list[tuple[Run, str]]) -> None:
    run, shown = runs[0]
    unasked = f"lengths that the model reads unasked in {shown}"
    check.agrees(other_lengths(run, [6, 12]), unasked, EXACT, LENGTHS_READ)
    for key, hint in (("recorded a graph", RECORDED), ("has gradients", BACKWARD), ("gradient mode", SWITCHED_OFF)):
        check.agrees(left_behind(key, run), f"'{key}' after {shown}", EXACT, hint)
    in_train_mode, words = runs[1]
    check.agrees(left_behind("recorded a graph", in_train_mode), f"'recorded a graph' after {words}", EXACT, RECORDED)
    check.agrees(still_trained(run), f"whether parameters ask for gradients after {shown}", EXACT, FROZEN)
    check.agrees(kinds_of_losses(run), f"the types of the losses of {shown}", EXACT, FLOATS)
    check.agrees(keys_are_ints(run), f"whether the keys of {shown} are ints", EXACT, KEYS)
    weights, tokens = model_and_text(check, 2, 15)
    lengths = [12, 6]  # sorting in place would change them
    asked = _losses_of(weights, EVAL, tokens, lengths, 4)
    check.unchanged(asked, shown_call("eval mode", tokens, lengths, 4), tokens, lengths)


def refusals(check: Check) -> None:
    weights, tokens = model_and_text(check, 2, 9)
    # This comes before the refusals, since a successful call leaves gradients on. The values are compared above.
    accepted = losses(weights, EVAL, tokens, [8], 8)
    shown = f"the number of losses from {shown_call('eval mode', tokens, [8], 8)}"
    check.agrees(lambda subject: len(accepted(subject)), shown, hint=AS_MANY_TARGETS)
    weights, tokens = model_and_text(check, 2, 20)
    refused = [
        (Refusal(weights, MIXED[1], tokens, lengths, n_targets), shown_call("mixed modes", tokens, lengths, n_targets))
        for lengths, n_targets in (([8, 20], 4), ([16, 8], 9))
    ]
    for refusal, shown in refused:
        on = f"whether gradients stay switched on in {shown}"
        check.agrees(left_behind("stays on", refusal), on, EXACT, SWITCHED_OFF)
    for refusal, shown in refused:
        check.raises(refusal.repeated, ValueError, shown)
    for lengths, n_targets in (([8, 16], 9), ([20, 8], 4)):
        probe = losses(weights, EVAL, tokens, lengths, n_targets)
        check.raises(probe, ValueError, shown_call("eval mode", tokens, lengths, n_targets))
    for refusal, shown in refused:
        flags = f"the training flags after {shown} is refused"
        check.agrees(left_behind("flags", refusal), flags, EXACT, AFTER_REFUSAL)


def loss_by_length(student: Any, make: Callable = trusted.probe_model, observe: Callable = trusted.observe) -> Any:
    """Run the hidden test. ``make`` and ``observe`` are the notebook's own, so models live where the answer runs."""
    return _loss_by_length(student if isinstance(student, Absent) else Measured(student, make, observe))
