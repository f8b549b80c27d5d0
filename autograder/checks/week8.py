"""Hidden tests of week 8, positions in production.

Blocks where axes can be mixed up start with square shapes (batch = heads = seq_len): such a mistake then gives a wrong
value, which the diagnosis can name, instead of a shape error. No exercise builds on another.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from autograder.checks.attention_functions import (
    CLOSE,
    DTYPE,
    FAR_BELOW,
    MANY_KEYS,
    NO_KEY,
    NO_KEY_SLOPE,
    ONE_QUERY,
    SLOPE,
    STRIDES,
    mixed_mask,
)
from autograder.checks.framework import Check, Hint, Probe, StudentError, calling, differentiating, exercise
from autograder.checks.probes import REMEMBERED_BASE
from autograder.checks.rotations import (
    FAR,
    FRACTION,
    GIVEN,
    HALF_PRECISION,
    NEAR,
    NEGATIVE,
    ROUNDED,
    ROWS,
    far_positions,
)
from autograder.script.compare import CUT, Tolerance, kind, only_where_zero
from autograder.script.script import Gate

WEEK = "week8_production"
Drawn = tuple[list[Tensor], str]  # inputs, and their description

EXACT = Tolerance(rtol=0, atol=0)  # integers, masks, and values that are only moved
WHOLE = Tolerance(rtol=0, atol=0, exact_dtype=True)
BASE = Hint(
    "The default base is right, another one is not. (The frequencies follow the argument `base`.)",
    form=True,
)


def named(x: Tensor) -> str:
    """Return the description of x for messages."""
    dtype = "" if x.dtype == torch.float32 else f"{str(x.dtype).removeprefix('torch.')} "
    return f"{dtype}x {tuple(x.shape)}"


# ---- 8.1 partial_rotary_emb -----------------------------------------------------------------------------------------

ALL_CHANNELS = Hint(
    "Right while some channels pass, wrong where rotary_dim is head_dim. (Then nothing passes, and all channels turn.)",
    form=True,
)
ODD_HEAD = Hint(
    "An odd head_dim goes wrong. (Only rotary_dim must be even: channels that pass need no partner.)", form=True
)
PASSED = (
    "In float32 the channels that pass are right, in another dtype they are not. (They come back bit for bit: nothing is "
    "computed with them.)"
)


def passed(rotary_dim: int, call: Probe) -> Probe:
    """The channels of a result from rotary_dim on."""

    def probe(subject: Any) -> Any:
        value = call(subject)
        return value[..., rotary_dim:] if isinstance(value, Tensor) and value.ndim else value

    return probe


def _partial(
    check: Check,
    x: Tensor,
    positions: Tensor | list[Any] | int,
    rotary_dim: int,
    words: str = "",
    tolerance: Tolerance = NEAR,
    hint: Hint | str = "",
    **options: Any,
) -> None:
    """Compare the result for these positions; an int n means 0 .. n-1."""
    if isinstance(positions, int):
        words, positions = f"0..{positions - 1}{words}", torch.arange(positions, device=check.device)
    elif isinstance(positions, list):
        positions = torch.tensor(positions, device=check.device)
    words = f"partial_rotary_emb({named(x)}, positions {words}, rotary_dim {rotary_dim}"
    words += "".join(f", {key}={value}" for key, value in options.items())
    check.agrees(calling(x, positions, rotary_dim, **options), f"{words})", tolerance, hint)


@exercise(WEEK, "partial_rotary_emb")
def partial_rotary_emb(check: Check) -> None:
    # Catches frequencies of the whole head, the last channels rotated, pairs across the border.
    with check.criterion("the first rotary_dim channels turn, the others pass", 1.25, golden=True):
        for shape, rotary_dim in (((4, 4, 4, 8), 4), ((1, 5, 2, 12), 6), ((3, 2, 5, 6), 2)):
            _partial(check, check.randn(*shape), shape[2], rotary_dim)
    # Catches the index instead of the position, rounded positions, rows that broadcast along the heads.
    with check.criterion("any positions, one row of them per sequence", 0.75, golden=True):
        _partial_positions(check)
    # Catches a hard-coded base of 10,000, and angles in half precision.
    with check.criterion("another base; far positions, also in half precision", 0.5, golden=True):
        _partial_far(check)
    # Catches a bound missing or off by one, failure where no channel passes, an odd head_dim refused.
    with check.criterion("refuses a rotary_dim that is odd, below 2 or above head_dim, and no other", 0.25):
        x = check.randn(1, 2, 3, 8)
        _partial(check, x, 3, 4)
        for rotary_dim in (3, 10, 0):
            refused = calling(x, torch.arange(3, device=check.device), rotary_dim)
            check.raises(refused, ValueError, f"partial_rotary_emb({named(x)}, rotary_dim {rotary_dim})")
        _partial(check, check.randn(2, 3, 5, 8), 5, 8, hint=ALL_CHANNELS)
        _partial(check, check.randn(2, 2, 5, 7), 5, 4, hint=ODD_HEAD)
    # Catches a hard-coded dtype, arithmetic on channels that pass, gradients cut off, x or positions changed in place.
    with check.criterion("dtype and gradients kept, what passes bit for bit, arguments left alone", 0.125):
        _partial_form(check)

    # Catches frequencies created on the CPU.
    with check.follows_device(0.125):
        given = check.randn(2, 3, 5, 8), torch.arange(5, device=check.device), 4
        check.follows(calling(*given), "partial_rotary_emb(x (2, 3, 5, 8), positions 0..4, 4)")


def _partial_positions(check: Check) -> None:
    _partial(check, check.randn(4, 4, 4, 8), 4, 4)
    for shape, places, words, hint in (
        ((2, 3, 6, 8), [5, 0, 3, 11, 1, 5], "shuffled, one of them twice", GIVEN),
        ((2, 3, 5, 8), [-3, -40, 2, -1, 7], "some negative", NEGATIVE),
        ((2, 3, 5, 8), [0.0, 0.25, 1.5, 10.75, 2.5], "some fractional", FRACTION),
    ):
        _partial(check, check.randn(*shape), places, 4, words, hint=hint)
    rows = 7 * torch.arange(1, 5)[:, None] + torch.tensor([3, 0, 8, 1])
    _partial(check, check.randn(4, 4, 4, 8), rows.to(check.device), 6, "of shape (4, 4)", hint=ROWS)


def _partial_far(check: Check) -> None:
    x = check.randn(2, 3, 6, 12)
    _partial(check, x, 6, 8)
    _partial(check, x, 6, 8, hint=BASE, base=7.5)
    x, positions = check.randn(2, 3, 40, 20), far_positions(check, 40)
    _partial(check, x, positions, 16, "up to 8191", FAR)
    _partial(check, x.bfloat16(), positions, 16, "up to 8191", ROUNDED[torch.bfloat16], HALF_PRECISION)


def _partial_form(check: Check) -> None:
    def call(x: Tensor) -> str:
        return f"partial_rotary_emb({named(x)}, positions 0..3, rotary_dim 4)"

    x, steps = check.randn(2, 3, 4, 10), torch.arange(4, device=check.device)
    plain = calling(x, steps, 4)
    check.agrees(plain, call(x), NEAR)
    check.has_dtype(plain, torch.float32, call(x))
    check.keeps(lambda f, *given: f(*given, 4), call(x), x, steps)  # first: a write spoils the gradient
    check.agrees(differentiating(x, steps, 4), f"the gradient of {call(x)}", SLOPE, CUT)
    _partial(check, check.randn(2, 4, 3, 10).transpose(1, 2), 4, 4, ", x not contiguous", hint=STRIDES)
    low, wide = x.bfloat16(), check.randn(2, 3, 4, 10, dtype=torch.float64)
    check.has_dtype(calling(low, steps, 4), torch.bfloat16, call(low))
    for other in (low, wide):
        check.agrees(passed(4, calling(other, steps, 4)), f"channels 4 to 9 of {call(other)}", EXACT, PASSED)


# ---- 8.2 mrope_positions --------------------------------------------------------------------------------------------

AFTER = "A single segment is right, text and pictures by turns are not. (A segment starts at the largest number so far on any axis, plus 1.)"
VIDEO = "Pictures, with t = 1, are right; videos are not. (Time is an axis like the others: the largest number may be on it.)"
NO_TOKENS = Hint(
    "A segment without tokens goes wrong. (It adds no column and moves nothing; an empty result is int64, too.)",
    form=True,
)
NO_SEGMENTS = Hint(
    "Segments of all kinds are right, an empty list of them is not. (The result is (3, 0), int64.)", form=True
)


Text = tuple[int | tuple[int, int, int], ...]  # a list of segments

WITH_PICTURES: tuple[Text, ...] = (
    (2, (1, 3, 3)),
    (1, (1, 5, 2), (1, 2, 2), 3),
)
WITH_VIDEOS: tuple[Text, ...] = ((2, (5, 2, 2), 3), ((4, 2, 3), 2, (2, 3, 2), 1))


@exercise(WEEK, "mrope_positions")
def mrope_positions(check: Check) -> None:
    def numbering(segments: Text) -> Probe:
        return lambda f: f(list(segments))  # the sandbox keeps lists and tuples apart

    def agrees(segments: Text, hint: Hint | str = "", tolerance: Tolerance = EXACT) -> None:
        check.agrees(numbering(segments), f"mrope_positions({list(segments)})", tolerance, hint)

    # Catches axes in another order, or starting at 1.
    with check.criterion("a text; a single grid", 1, golden=True):
        agrees((3,))
        agrees(((3, 4, 2),))
    # Catches a segment that starts at the number of tokens so far, or at the last number instead of the largest.
    with check.criterion("text and pictures by turns", 1, golden=True):
        agrees(((1, 3, 3),))
        for segments in WITH_PICTURES:
            agrees(segments, AFTER)
    # Catches a time axis that does not count, or starts at 0 again.
    with check.criterion("videos, and what follows them", 0.75, golden=True):
        for segments in WITH_VIDEOS:
            agrees(segments, VIDEO)
    # Catches floats as positions, a list emptied while it is read, max() of nothing.
    with check.criterion("int64; segments without tokens", 0.25):
        check.has_dtype(numbering((2, (1, 2, 2), 1)), torch.int64, "mrope_positions([2, (1, 2, 2), 1])")
        given = [2, 3, 1]
        check.unchanged(lambda f: f(given), "mrope_positions([2, 3, 1])", given)
        with check.holds(numbering((2, 1)), "mrope_positions([2, 1])"):  # otherwise paid for above
            agrees((2, 0, (0, 2, 2), (1, 0, 3), (4, 2, 0), 1), NO_TOKENS, WHOLE)
        agrees((0,), NO_TOKENS, WHOLE)
        agrees((), NO_SEGMENTS, WHOLE)


# ---- 8.2 apply_mrope ------------------------------------------------------------------------------------------------

AXES = (
    "With the same positions on all axes the result is right, with different ones it is not. (Pairs 0 .. sections[0]-1 "
    "turn by time, the next sections[1] by height, the rest by width.)"
)
UNEVEN = "Sections of one size are right, others are not. (A section has as many pairs as `sections` says, one after the other.)"
NO_PAIR = Hint(
    "Sections with a 0 among them go wrong. (Then no pair turns by that axis, and the others keep theirs.)", form=True
)
MROPE_ROWS = Hint(
    "Positions of shape (3, batch, seq_len) go wrong. (Row b of each axis belongs to sequence b, for all its heads.)",
    form=True,
)


def _mrope(
    check: Check,
    x: Tensor,
    positions: Tensor,
    sections: tuple[int, ...] | list[int],
    words: str = "",
    tolerance: Tolerance = NEAR,
    hint: Hint | str = "",
    **options: Any,
) -> None:
    words = f"apply_mrope({named(x)}, positions {tuple(positions.shape)}{words}, sections {sections}"
    words += "".join(f", {key}={value}" for key, value in options.items())
    check.agrees(calling(x, positions, sections, **options), f"{words})", tolerance, hint)


def _places(check: Check, *shape: int) -> Tensor:
    """Random positions 0 .. 39, drawn separately for every axis."""
    return check.randint(0, 40, shape)


@exercise(WEEK, "apply_mrope")
def apply_mrope(check: Check) -> None:
    # Catches one axis for all pairs, axes swapped or interleaved, frequencies that restart with each section.
    with check.criterion("each pair turns by the axis of its section", 1.5, golden=True):
        same = torch.arange(3, device=check.device).expand(3, 3).contiguous()
        _mrope(check, check.randn(3, 3, 3, 12), same, (2, 2, 2), ", the same on all axes")
        _mrope(check, check.randn(3, 3, 3, 12), _places(check, 3, 3), (2, 2, 2), hint=AXES)
    # Catches sections read as channels or replaced by thirds, and a base that is hard-coded or remembered.
    with check.criterion("sections of different sizes, another base", 1, golden=True):
        _mrope_sections(check)
    # Catches rows that broadcast along the heads.
    with check.criterion("one row of positions per sequence", 0.5, golden=True):
        _mrope(check, check.randn(3, 3, 3, 12), _places(check, 3, 3), (2, 3, 1))
        _mrope(check, check.randn(3, 3, 3, 12), _places(check, 3, 3, 3), (2, 3, 1), hint=MROPE_ROWS)
    # Catches rounded positions, and angles in half precision.
    with check.criterion("real positions; far ones, also in half precision", 0.5, golden=True):
        _mrope_far(check)
    # Catches sections that leave pairs out or count pairs that do not exist.
    with check.criterion("refuses sections that do not add up to head_dim/2", 0.25):
        positions = _places(check, 3, 3)
        for head_dim, sections in ((12, (2, 2, 1)), (12, (4, 4, 4)), (7, (1, 1, 1))):
            x = check.randn(1, 2, 3, head_dim)
            words = f"apply_mrope({named(x)}, sections {sections})"
            check.raises(calling(x, positions, sections), ValueError, words)
    # Catches a hard-coded dtype, gradients cut off, an argument changed in place.
    with check.criterion("dtype and gradients kept, arguments left alone", 0.125):
        _mrope_form(check)

    # Catches frequencies created on the CPU.
    with check.follows_device(0.125):
        given = check.randn(2, 3, 5, 12), torch.arange(5, device=check.device).expand(3, 5), [2, 2, 2]
        check.follows(calling(*given), "apply_mrope(x (2, 3, 5, 12), positions (3, 5), [2, 2, 2])")


def _mrope_sections(check: Check) -> None:
    _mrope(check, check.randn(2, 3, 5, 12), _places(check, 3, 5), (2, 2, 2))
    _mrope(check, check.randn(2, 2, 5, 12), _places(check, 3, 5), (3, 1, 2), hint=UNEVEN)
    x, positions = check.randn(2, 2, 5, 20), _places(check, 3, 5)  # first asked with another base
    _mrope(check, x, positions, (5, 3, 2), hint=BASE, base=7.5)
    _mrope(check, x, positions, (5, 3, 2), hint=REMEMBERED_BASE)
    _mrope(check, x, positions, (6, 4, 0), hint=NO_PAIR)  # here a slice [-0:] is all of it


def _mrope_far(check: Check) -> None:
    x = check.randn(2, 3, 5, 16)
    _mrope(check, x, _places(check, 3, 5), (2, 3, 3))
    _mrope(check, x, _places(check, 3, 5) - 20, (2, 3, 3), ", some negative", hint=NEGATIVE)
    _mrope(check, x, _places(check, 3, 5) / 4, (2, 3, 3), ", some fractional", hint=FRACTION)
    x, positions = check.randn(2, 3, 40, 16), far_positions(check, 3, 40)
    _mrope(check, x, positions, (2, 3, 3), " up to 8191", FAR)
    _mrope(check, x.bfloat16(), positions, (2, 3, 3), " up to 8191", ROUNDED[torch.bfloat16], HALF_PRECISION)


def _mrope_form(check: Check) -> None:
    sections = (2, 3, 1)
    x, positions = check.randn(2, 3, 4, 12), _places(check, 3, 4)
    call = f"apply_mrope({named(x)}, positions (3, 4), sections {sections})"
    plain = calling(x, positions, sections)
    check.agrees(plain, call, NEAR)
    check.keeps(lambda f, *given: f(*given, sections), call, x, positions)  # first: a write spoils the gradient
    listed = [2, 3, 1]
    in_a_list = f"apply_mrope({named(x)}, positions (3, 4), sections {listed})"
    check.unchanged(lambda f: f(x, positions, listed), in_a_list, listed)
    check.agrees(differentiating(x, positions, sections), f"the gradient of {call}", SLOPE, CUT)
    turned = check.randn(2, 4, 3, 12).transpose(1, 2)
    _mrope(check, turned, positions, sections, ", x not contiguous", hint=STRIDES)
    low = x.bfloat16()
    words = f"apply_mrope({named(low)}, sections {sections})"
    check.has_dtype(calling(low, positions, sections), torch.bfloat16, words)
    check.has_dtype(plain, torch.float32, call)


# ---- 8.3 sliding_window_mask ----------------------------------------------------------------------------------------

WITH_A_CACHE = Hint(
    "With as many queries as keys the masks are right, with fewer queries some are not. (The queries are the last "
    "positions: row r is at position n_keys - n_queries + r.)",
    form=True,
)
SMALLEST = Hint(
    "With larger windows the masks are right, with window 1 they are not. (There a query sees itself alone.)", form=True
)
WIDE = Hint(
    "Right while the window is shorter than the text, wrong where it is not. (Then the window hides nothing, and the mask "
    "is the causal one.)",
    form=True,
)


@exercise(WEEK, "sliding_window_mask")
def sliding_window_mask(check: Check) -> None:
    def masks(*sizes: tuple[int, int, int], hint: Hint | str = "") -> None:
        for n_queries, n_keys, window in sizes:
            call = f"sliding_window_mask({n_queries}, {n_keys}, {window})"
            check.agrees(calling(n_queries, n_keys, window), call, hint=hint)

    # Catches a window one too short or too long, open to later keys, or cut into blocks.
    with check.criterion("as many queries as keys", 1, golden=True):
        masks((10, 10, 4), (9, 9, 2))
    # Catches one or both edges counted from position 0.
    with check.criterion("fewer queries than keys: the last positions", 0.75, golden=True):
        masks((10, 10, 4))
        masks((2, 7, 3), (1, 8, 5), hint=WITH_A_CACHE)
    # Catches an index past the edge, torch.eye for window 1, a cached mask returned again.
    with check.criterion("window 1, windows longer than the text; a new mask on each call", 0.25):
        masks((10, 10, 4))
        masks((3, 5, 1), hint=SMALLEST)
        masks((2, 6, 100), hint=WIDE)
        check.returns_new("sliding_window_mask(2, 7, 3)", 2, 7, 3)


# ---- 8.3 softmax_with_sink ------------------------------------------------------------------------------------------

HIDDEN = "Right while all keys are seen, wrong where some scores are -inf. (exp(-inf) is 0: such a key has no weight.)"
EMPTY_ROW = Hint("A row of -inf alone must have zero weights, not NaN: the sink takes all.", only_where_zero)
LARGE = (
    "Scores of order 1 are right, large ones are not. (They may have any size. exp alone overflows: use torch.softmax, or "
    "subtract the largest logit of each row first, the sink among them.)"
)
ROWS_APART = (
    "Rows of one size are right, however large; where one row lies far above another it goes wrong. (Subtract the largest "
    "logit of each row, not of all.)"
)
# Near -30000 float32 has steps of 0.002, and answers that add up exponents first are rounded to them; a hidden key that
# counts moves some weight by 0.1.
ROUNDED_FAR = Tolerance(rtol=0, atol=0.02)
EMPTY_SLOPE = "Where a row is -inf alone, the gradient must be finite."


def finite_slope(*arguments: Tensor, at: int) -> Probe:
    slope = differentiating(*arguments, at=at)
    return lambda f: bool(slope(f).isfinite().all())


@exercise(WEEK, "softmax_with_sink")
def softmax_with_sink(check: Check) -> None:
    name = "softmax_with_sink"

    def drawn(*shape: int) -> Drawn:
        scores, sinks = 2 * check.randn(*shape), check.randn(shape[1])
        return [scores, sinks], f"{name}(scores {tuple(shape)}"

    def agrees(tensors: list[Tensor], words: str, hint: Hint | str = "", tolerance: Tolerance = CLOSE) -> None:
        check.agrees(calling(*tensors), f"{words})", tolerance, hint)

    # Catches a sink left in, dropped before the softmax or given to all heads, and weights that add up to 1.
    with check.criterion("one more logit per head, dropped after the softmax", 1, golden=True):
        for shape in ((4, 4, 4, 4), (2, 3, 5, 7)):
            agrees(*drawn(*shape))
    # Catches exp of a large logit, and the largest score subtracted without regard to the sink.
    with check.criterion("large scores, large sinks", 0.25, golden=True):
        (scores, sinks), words = drawn(2, 3, 4, 5)
        agrees([scores, sinks], words)
        agrees([scores + 300, sinks + 300], f"{words} plus 300, sinks too", LARGE)
        agrees([scores, sinks + 500], f"{words}, sinks near 500", LARGE)
        apart = scores.clone()
        apart[:, :, 1] += 500
        agrees([apart, sinks], f"{words}, one query's near 500", ROWS_APART)
        large_are_right = check.reached()
    # Catches -inf that becomes NaN, in the weights or in a gradient.
    with check.criterion("hidden keys, and rows without any", 0.5, golden=True):
        (scores, sinks), words = drawn(3, 3, 4, 4)
        agrees([scores, sinks], words)
        causal = scores.masked_fill(torch.ones(4, 4, dtype=torch.bool, device=check.device).triu(1), -torch.inf)
        agrees([causal, sinks], f"{words}, later keys -inf", HIDDEN)
        hidden_are_right = check.reached()
        with large_are_right:  # otherwise one mistake costs points twice
            low = f"{words}, later keys -inf, all others near -30000, sinks too"
            agrees([causal - 3e4, sinks - 3e4], low, FAR_BELOW, ROUNDED_FAR)
        empty = causal.clone()
        empty[:, :, 2], empty[1, 2] = -torch.inf, -torch.inf
        agrees([empty, sinks], f"{words}, some rows all -inf", EMPTY_ROW)
        finite = "whether the gradient for the scores is finite, where some rows are all -inf"
        check.agrees(finite_slope(empty, sinks, at=0), finite, hint=EMPTY_SLOPE)
    # Catches a hard-coded dtype, gradients cut off, scores changed in place, -1e9 in float16.
    with check.criterion("float64, dtype and gradients kept, arguments left alone", 0.125):
        (scores, sinks), words = drawn(2, 3, 4, 5)
        plain, wide = calling(scores, sinks), calling(scores.double(), sinks.double())
        check.agrees(plain, f"{words})", CLOSE)
        empty = scores.clone()
        empty[:, :, 1] = -torch.inf
        check.keeps(lambda f, *given: f(*given), f"{words}, some rows all -inf)", empty, sinks)
        check.agrees(wide, f"{words}, float64)", CLOSE, DTYPE)
        check.agrees(differentiating(scores, sinks, at=1), f"the gradient for the sinks of {words})", SLOPE, CUT)
        check.has_dtype(wide, torch.float64, f"{words}, float64)")
        check.has_dtype(plain, torch.float32, f"{words})")
        later = torch.ones(4, 5, dtype=torch.bool, device=check.device).triu(1)
        hidden, words = scores.masked_fill(later, -torch.inf), f"{words}, later keys -inf"
        with hidden_are_right:  # otherwise one mistake costs points twice
            check.agrees(differentiating(hidden, sinks, at=0), f"the gradient for the scores of {words})", SLOPE, CUT)
            check.has_dtype(calling(hidden.half(), sinks.half()), torch.float16, f"{words}, float16)")

    # Catches a sink column created on the CPU.
    with check.follows_device(0.125):
        check.follows(
            calling(check.randn(2, 2, 3, 4), check.randn(2)), "softmax_with_sink(scores (2, 2, 3, 4), sink (2,))"
        )


# ---- 8.3 streaming_cache --------------------------------------------------------------------------------------------

SHORT = Hint(
    "Long texts are right, some short ones are not. (A text of up to n_sinks + window tokens is kept whole: all its tokens, "
    "each once.)",
    form=True,
)
NO_SINKS = Hint("With sinks all is right, without any it is not. (Then the last `window` tokens are kept.)", form=True)
ANY_LENGTH = Hint("Right with few tokens, wrong with 5,000. (There may be any number of tokens.)", form=True)
ONE_TOO_LONG = Hint(
    "Long texts are right, one that is a single token longer than the cache is not. (Then only token n_sinks goes.)",
    form=True,
)
COUNTED = "The tokens kept are right, the positions are not. (Positions count in the cache: 0, 1, ... without gaps.)"
SHORT_COUNTED = Hint(
    "In a short text the tokens kept are right, their positions are not. (One for each, from 0.)", form=True
)


def ascending(otherwise: Hint | str) -> Hint:
    """Return a hint that recognises the right numbers in another order; in other cases it says `otherwise`."""

    def fits(got: Any, expected: Any) -> bool:
        if not isinstance(got, Tensor) or got.shape != expected.shape or torch.equal(got, expected.to(got)):
            return False
        return torch.equal(got.sort().values, expected.to(got))

    hint = otherwise if isinstance(otherwise, Hint) else Hint(otherwise)
    return Hint("The right tokens are kept; they must be in ascending order.", fits, hint.says, form=hint.form)


def result(call: Probe, place: int) -> Probe:
    """One of the two results."""

    def probe(subject: Any) -> Any:
        value = call(subject)
        if isinstance(value, Tensor) and value.ndim == 2:  # a stacked tensor unpacks like a tuple
            value = value.unbind()
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise StudentError.unusable(
                "TypeError", f"the exercise asks for two tensors, (kept, positions); this returns {kind(value)}"
            )
        return value[place]

    return probe


@exercise(WEEK, "streaming_cache", returns=("kept", "positions"))
def streaming_cache(check: Check) -> None:
    name = "streaming_cache"

    def part(place: int, *sizes: int, hint: Hint | str = "") -> None:
        call = f"{('kept', 'positions')[place]} of {name}({', '.join(map(str, sizes))})"
        check.agrees(result(calling(*sizes), place), call, EXACT, hint if place else ascending(hint))

    long = ((20, 4, 6), (40, 12, 5))
    # Catches a window that gives up keys for the sinks, is one too small, or holds only the sinks.
    with check.criterion("which tokens are kept", 0.75, golden=True):
        for sizes in long:
            part(0, *sizes)
    # Catches positions in the text, and positions from 1.
    with check.criterion("their positions in the cache", 0.5, golden=True):
        for sizes in long:
            part(1, *sizes, hint=COUNTED)
    # Catches tokens kept twice or with negative numbers, and [-0:] for no sinks.
    with check.criterion("short texts, no sinks", 0.5, golden=True):
        for place in (0, 1):
            part(place, 20, 4, 6)
        for place in (0, 1):
            part(place, 9, 0, 4, hint=NO_SINKS)
        for sizes in ((8, 4, 6), (3, 4, 6), (3, 0, 8)):
            part(0, *sizes, hint=SHORT)
            part(1, *sizes, hint=SHORT_COUNTED)
        part(0, 11, 4, 6, hint=ONE_TOO_LONG)
    # Catches floats where a range is empty, numbers cut from a table, cached tensors that the caller can overwrite.
    with check.criterion("int64, new tensors on each call, any length", 0.25):
        for place in (0, 1):
            call = f"{('kept', 'positions')[place]} of {name}(3, 4, 6)"  # the type alone: values are compared above
            check.has_dtype(result(calling(3, 4, 6), place), torch.int64, call)
        check.returns_new(f"{name}(20, 4, 6)", 20, 4, 6, tolerance=EXACT)
        with check.holds(calling(20, 4, 6), f"{name}(20, 4, 6)", EXACT):  # otherwise paid for above
            part(0, 5000, 4, 6, hint=ANY_LENGTH)


# ---- 8.4 mla_attention ----------------------------------------------------------------------------------------------

CONTENT = (
    "The values are right where all scores are zero; with the content part alone they are not. (q_nope meets w_uk latent, "
    "the scale is sqrt(dn + dr).)"
)
ROTATED = (
    "The values are right where all scores are zero; with the rotated part alone they are not. (q_rope of each head meets "
    "the one k_rope, the scale is sqrt(dn + dr).)"
)
TOGETHER = "Each part of the score alone is right, both together are not. (They are added, and divided once.)"
SIZES = Hint(
    "With as many queries as keys all is right, with other numbers of queries, keys or heads it is not.", form=True
)
MASKED = "Without a mask all is right, with one it is not. (True = may attend; keys are hidden before the softmax.)"
LARGE_SCORES = (
    "Scores of order 1 are right, large ones are not. (exp overflows: use torch.softmax, or subtract the largest score of "
    "each row first.)"
)
BROADCAST = Hint(
    "A mask of this shape goes wrong. (It broadcasts to (batch, heads, n_queries, n_keys), True = may attend.)",
    form=True,
)
# Scores near -13000 are rounded by 0.001 or so: values of right answers differ by up to 0.008, a hidden key that counts
# moves some of them by 4 or more.
ROUNDED_LOW = Tolerance(rtol=0, atol=0.1)


def _handing_over(*arguments: Tensor) -> Probe:
    """A call with the arguments themselves, not copies of them."""
    return lambda f: f(*arguments)


def _latent(
    check: Check, batch: int, heads: int, n_queries: int, n_keys: int, dn: int, dr: int, dv: int, rank: int
) -> Drawn:
    """Return inputs with scores of order 1 for each part, and the description of their call."""
    tensors = [
        check.randn(*shape)
        for shape in (
            (batch, heads, n_queries, dn),
            (batch, heads, n_queries, dr),
            (batch, n_keys, rank),
            (batch, n_keys, dr),
            (heads, dn, rank),
            (heads, dv, rank),
        )
    ]
    tensors[4] = tensors[4] * 1.5 / rank**0.5
    sizes = f"q_nope {tuple(tensors[0].shape)}, dr {dr}, latent {tuple(tensors[2].shape)}, dv {dv}"
    return tensors, f"mla_attention({sizes}"


def _mla(
    check: Check,
    tensors: list[Tensor],
    words: str,
    hint: Hint | str = "",
    mask: Tensor | None = None,
    tolerance: Tolerance = CLOSE,
) -> None:
    check.agrees(calling(*tensors, *([] if mask is None else [mask])), f"{words})", tolerance, hint)


def _without(tensors: list[Tensor], *places: int) -> list[Tensor]:
    return [torch.zeros_like(tensor) if at in places else tensor for at, tensor in enumerate(tensors)]


# SQUARE has batch = heads and dn = dv = rank: there a mixed-up axis or matrix gives a wrong value, not an error.
SQUARE, SOME = (3, 3, 5, 5, 4, 2, 4, 4), (2, 3, 5, 5, 6, 4, 7, 9)


@exercise(WEEK, "mla_attention")
def mla_attention(check: Check) -> None:
    # Catches values from w_uk, one head's values for all heads, and the latents as values.
    with check.criterion("the values: queries zero", 0.75, golden=True):
        for sizes in (SQUARE, SOME):
            tensors, words = _latent(check, *sizes)
            _mla(check, _without(tensors, 0, 1), f"{words}, q_nope and q_rope zero")
    # Catches a scale by the width of one part or by the rank, and w_uk of another head.
    with check.criterion("the content part: q_rope zero", 1, golden=True):
        _mla_part(check, 1, "q_rope zero", CONTENT)
    # Catches a rotated part that is missing, unscaled, or added after the softmax.
    with check.criterion("the rotated part: q_nope zero", 0.75, golden=True):
        _mla_part(check, 0, "q_nope zero", ROTATED)
    # Catches a softmax for each part, over the queries or in blocks, and exp of large scores.
    with check.criterion("both parts, any sizes", 1, golden=True):
        _mla_sizes(check)
        large_are_right = check.reached()
    # Catches a mask after the softmax, inverted or of one shape only, a low number for -inf, NaN in rows without a key.
    with check.criterion("masks, and rows that may attend to nothing", 1, golden=True):
        _mla_masks(check, large_are_right)
        with large_are_right:
            masks_are_right = check.reached()
    # Catches a hard-coded dtype, gradients cut off, `view` on transposed heads, hidden latents zeroed in place.
    with check.criterion("other dtypes, gradients, arguments left alone", 0.25):
        _mla_form(check, masks_are_right)

    # Catches scores or a mask created on the CPU.
    with check.follows_device(0.25):
        shapes = ((2, 2, 3, 4), (2, 2, 3, 2), (2, 5, 6), (2, 5, 2), (2, 4, 6), (2, 5, 6))
        given = [check.randn(*shape) for shape in shapes]
        check.follows(calling(*given), "mla_attention(q_nope (2, 2, 3, 4), q_rope (2, 2, 3, 2), ...)")


def _mla_part(check: Check, zero: int, words: str, hint: str) -> None:
    """Compare one part of the score alone; before it compare the values, with both parts zero."""
    tensors, call = _latent(check, *SQUARE)
    _mla(check, _without(tensors, 0, 1), f"{call}, q_nope and q_rope zero")
    for sizes in (SQUARE, SOME):
        tensors, call = _latent(check, *sizes)
        _mla(check, _without(tensors, zero), f"{call}, {words}", hint)


def _mla_sizes(check: Check) -> None:
    for sizes, hint in ((SOME, TOGETHER), ((3, 1, 6, 4, 5, 2, 8, 3), SIZES)):
        tensors, words = _latent(check, *sizes)
        _mla(check, tensors, words, hint)
    _mla(check, *_latent(check, 1, 2, 3, 300, 4, 2, 3, 5), MANY_KEYS)
    shifted = [tensor.clone() for tensor in tensors]
    shifted[1][..., 0], shifted[3][..., 0] = 30.0, 30.0  # the same for all keys, so softmax ignores it
    _mla(check, shifted, f"{words}, all scores far larger", LARGE_SCORES, tolerance=SLOPE)


def _mla_masks(check: Check, large_are_right: Gate) -> None:
    tensors, words = _latent(check, 4, 4, 4, 4, 4, 6, 5, 8)
    everything = torch.ones(4, 4, dtype=torch.bool, device=check.device)
    _mla(check, tensors, f"{words}, mask (4, 4), all True", mask=everything)
    _mla(check, tensors, f"{words}, mask (4, 4)", MASKED, mixed_mask(check, 4, 4))
    _mla(check, tensors, f"{words}, mask (4, 1, 4)", BROADCAST, mixed_mask(check, 4, 1, 4))
    tensors, words = _latent(check, 2, 3, 4, 6, 5, 4, 7, 8)
    _mla(check, tensors, f"{words}, mask (2, 1, 1, 6)", BROADCAST, mixed_mask(check, 2, 1, 1, 6))
    check.agrees(calling(*tensors, mask=mixed_mask(check, 6)), f"{words}, mask=mask (6,))", CLOSE, BROADCAST)
    one, of_one = _latent(check, 2, 3, 1, 6, 5, 4, 7, 8)
    _mla(check, one, f"{of_one}, mask (2, 1, 1, 6)", ONE_QUERY, mixed_mask(check, 2, 1, 1, 6))
    mask = mixed_mask(check, 2, 3, 4, 6)
    mask[:, :, 1], mask[1, 2] = False, False
    _mla(check, tensors, f"{words}, mask (2, 3, 4, 6), some rows all False", NO_KEY, mask)
    finite = "whether the gradient for latent is finite, where some rows of the mask are all False"
    check.agrees(finite_slope(*tensors, mask, at=2), finite, hint=NO_KEY_SLOPE)  # latent enters both scores and values
    with large_are_right:  # otherwise one mistake costs points twice
        low, last = [tensor.clone() for tensor in tensors], torch.ones(4, 6, dtype=torch.bool, device=check.device)
        low[1][..., 0], low[3][..., 0], low[3][:, 5, 0], last[:, 5] = 200.0, -200.0, 0.0, False
        words = f"{words}, all scores near -13000 but those of a hidden key"
        _mla(check, low, words, FAR_BELOW, last, ROUNDED_LOW)


def _mla_form(check: Check, masks_are_right: Gate) -> None:
    tensors, words = _latent(check, 2, 2, 3, 5, 4, 2, 6, 7)
    plain, wide = calling(*tensors), calling(*[tensor.double() for tensor in tensors])
    check.agrees(plain, f"{words})", CLOSE)
    check.keeps(lambda f, *given: f(*given), f"{words})", *tensors)  # first: a write spoils the gradient
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool, device=check.device)
    mask[..., 2], mask[1] = False, False
    with masks_are_right:  # otherwise a wrong padding mask costs points twice
        call = f"{words}, mask (2, 1, 1, 5), mask[1] all False)"
        check.unchanged(_handing_over(*tensors, mask), call, *tensors, mask)
    check.agrees(wide, f"{words}, float64)", CLOSE, DTYPE)
    turned = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    _mla(check, turned, f"{words}, not contiguous", STRIDES)
    padding = mixed_mask(check, 2, 1, 1, 5)
    check.agrees(differentiating(*tensors, at=2), f"the gradient for latent of {words})", SLOPE, CUT)
    with masks_are_right:
        call = f"the gradient for q_nope of {words}, mask (2, 1, 1, 5))"
        check.agrees(differentiating(*tensors, padding, at=0), call, SLOPE, CUT)
    for probe, dtype in ((wide, torch.float64), (plain, torch.float32)):
        check.has_dtype(probe, dtype, f"{words}, {str(dtype).removeprefix('torch.')})")
    with masks_are_right:
        half = calling(*[tensor.half() for tensor in tensors], padding)
        check.has_dtype(half, torch.float16, f"{words}, mask (2, 1, 1, 5), float16)")


# ---- 8.5 layers_that_turn -------------------------------------------------------------------------------------------

WINDOW, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
# Fields about positions in the config.json of released models. From EleutherAI/pythia a19eecb and Stability-AI/StableLM
# 93eea08 (their yml files), UsefulSensors/moonshine-tiny and fine-tuned copies of Llama 4 Scout (config.json),
# transformers 4.56 (documentation of EXAONE 4), google-deepmind/gemma (Gemma3_1B) and
# deepseek-ai/DeepSeek-V3.2-Exp 3b99a53. test_what_models_do_in_production builds the layers of transformers from them.
PYTHIA = {
    "model_type": "gpt_neox",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "rotary_pct": 0.25,
}
STABLELM_12B = {"model_type": "stablelm", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25}}  # fmt: skip
MOONSHINE = {"model_type": "moonshine", "num_hidden_layers": 6, "hidden_size": 288, "num_attention_heads": 8,
             "partial_rotary_factor": 0.9, "rope_scaling": None}  # fmt: skip
LLAMA_4 = {"model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "head_dim": 128,
           "no_rope_layers": [1, 1, 1, 0] * 12}  # fmt: skip
EXAONE_32B = {"model_type": "exaone4", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "head_dim": 128,
              "sliding_window": 4096, "layer_types": [WINDOW, WINDOW, WINDOW, FULL] * 16}  # fmt: skip
EXAONE_1B = {"model_type": "exaone4", "num_hidden_layers": 30, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 64,
             "sliding_window": None, "layer_types": [FULL] * 30}  # fmt: skip
GEMMA_1B = {"model_type": "gemma3_text", "num_hidden_layers": 26, "hidden_size": 1152, "num_attention_heads": 4, "head_dim": 256,
            "sliding_window": 512, "layer_types": [*[WINDOW] * 5, FULL] * 4 + [WINDOW] * 2}  # fmt: skip
DEEPSEEK = {"model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}  # fmt: skip

HEAD_DIM = Hint(
    "A head without head_dim is right, one with it is not. (A given head_dim wins over hidden_size / num_attention_heads.)",
    form=True,
)
SHARE = Hint(
    "The share is right where it is called `rotary_pct`, under another name it is not. (`partial_rotary_factor` stands at the top "
    "or in `rope_parameters`.)",
    form=True,
)
LISTED_TOO = Hint(
    "`no_rope_layers` alone is read rightly, beside `layer_types` it is not. (A layer turns if neither of the two says no.)",
    form=True,
)
ANY_LINEAR = Hint(
    "Qwen3-Next is right, another model with layers of linear attention is not. (They have no rotation in any model.)",
    form=True,
)
HEAD_DIM_TOO = Hint(
    "Right where only `qk_rope_head_dim` is given, wrong where `head_dim` is, too. (With latent attention qk_rope_head_dim channels "
    "turn.)",
    form=True,
)
AT_THE_TOP = "Right without `rope_parameters`, wrong with some that hold no share. (`partial_rotary_factor` may still stand at the top.)"
FLOORED = "Right where the share is nearly a whole number of channels, wrong where it is 22.7. (int() rounds the product down.)"
NULL = Hint("A field that is null is taken for one that is given. (null counts as missing.)", form=True)


@exercise(WEEK, "layers_that_turn")
def layers_that_turn(check: Check) -> None:
    # Without head_dim, which an answer may compute but must not write into the configuration.
    exaone = {key: value for key, value in EXAONE_1B.items() if key != "head_dim"}

    def agrees(name: str, config: dict[str, Any], hint: Hint | str = "") -> None:
        def probe(f: Any) -> Any:
            return f(copy.deepcopy(config))

        check.agrees(probe, f"layers_that_turn({name})", WHOLE, hint)

    def drawn(pattern: list[Any], most: int) -> list[Any]:
        """Repeat the pattern a random number of times and add a random part of its beginning."""
        whole, rest = (int(check.randint(1, most)) for _ in range(2))
        return pattern * (1 + whole) + pattern[: rest % len(pattern)]

    # Catches a share of hidden_size, a share read under one of its names only, and a width that is not rounded down.
    with check.criterion("a share of each head: GPT-NeoX, StableLM, Moonshine", 0.75, golden=True):
        agrees("Pythia-160m", PYTHIA)
        agrees("StableLM 2 12B", STABLELM_12B, SHARE)
        agrees("Moonshine tiny", MOONSHINE, SHARE)
        agrees("Moonshine tiny with rope_parameters", MOONSHINE | {"rope_parameters": {"rope_theta": 1e4}}, AT_THE_TOP)
        agrees("Moonshine tiny with another share", MOONSHINE | {"partial_rotary_factor": 0.63}, FLOORED)
    # Catches an inverted list, and the assumption that every fourth layer does not turn.
    with check.criterion("a list of layers: SmolLM3, Llama 4", 0.75, golden=True):
        agrees("Llama 4 Scout", LLAMA_4)
        rotates = drawn([1, 1, 0, 1, 0], 6)
        agrees("SmolLM3 with another list", {"model_type": "smollm3", "num_hidden_layers": len(rotates), "hidden_size": 2048,
                                             "num_attention_heads": 16, "no_rope_layers": rotates})  # fmt: skip
        agrees("Llama 4 Scout with layer_types", LLAMA_4 | {"layer_types": [FULL] * 48}, LISTED_TOO)
    # Catches one model's rule applied to all, a width by the key heads or computed where it is given, null as a field.
    with check.criterion("kinds of layers: EXAONE 4, Cohere 2, Gemma 3, Qwen3-Next", 1, golden=True):
        agrees("EXAONE 4.0 32B", EXAONE_32B)
        kinds = drawn([WINDOW, WINDOW, FULL], 8)
        agrees("Cohere 2 with other layers", {"model_type": "cohere2", "num_hidden_layers": len(kinds), "hidden_size": 4096,
                                              "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
                                              "layer_types": kinds})  # fmt: skip
        agrees("Gemma 3 1B", GEMMA_1B, HEAD_DIM)
        kinds = drawn([LINEAR, LINEAR, LINEAR, FULL], 8)
        linear = {"num_hidden_layers": len(kinds), "hidden_size": 2048, "num_attention_heads": 16, "head_dim": 256,
                  "layer_types": kinds, "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}}  # fmt: skip
        agrees("Qwen3-Next with other layers", {"model_type": "qwen3_next"} | linear)
        agrees("Qwen3.5 with other layers", {"model_type": "qwen3_5_text"} | linear, ANY_LINEAR)
    # Catches a whole head rotated, its width computed from hidden_size, null read as given or deleted from the dict.
    with check.criterion("latent attention: DeepSeek-V3.2; fields that are null; the configuration left alone", 0.5):
        agrees("DeepSeek-V3.2", DEEPSEEK)
        agrees("DeepSeek-V3.2 with head_dim", DEEPSEEK | {"head_dim": 192}, HEAD_DIM_TOO)
        agrees("EXAONE 4.0 1.2B", EXAONE_1B, NULL)
        for within in (None, {"rope_theta": 1e6, "partial_rotary_factor": None}):
            nulls = dict.fromkeys(
                ("partial_rotary_factor", "rotary_pct", "head_dim", "no_rope_layers", "qk_rope_head_dim")
            )
            words = f"EXAONE 4.0 1.2B, most fields null, rope_parameters {'null' if within is None else 'with a null share'}"
            agrees(words, EXAONE_1B | nulls | {"rope_parameters": within}, NULL)
        check.unchanged(lambda f: f(exaone), "layers_that_turn(EXAONE 4.0 1.2B without head_dim)", exaone)
