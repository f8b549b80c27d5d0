"""Hidden tests of week 4, ALiBi.

Blocks where axes can be mixed up start with square shapes (batch = heads = seq_len): such a mistake then gives a wrong
value, which the diagnosis can name, instead of a shape error.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from autograder.checks.attention_functions import FAR_BELOW, STRIDES
from autograder.checks.attention_modules import (
    FOUR_WEIGHTS,
    attended,
    attended_after_conversion,
    built,
    rising_scores,
    weights_and_text,
)
from autograder.checks.framework import Check, Fault, Hint, Probe, calling, exercise
from autograder.checks.probes import made_there
from autograder.grading.sandbox.worker.pullback import uneven
from autograder.script.answer import by_student
from autograder.script.compare import CUT, FOUR_DIGITS, FOUR_PLACES, Tolerance, kind
from autograder.script.script import Gate

WEEK = "week4_alibi"

# Relative errors of slopes: 6e-8 in float32, 1e-6 if computed with exp and log, 4e-3 in bfloat16.
SLOPES = Tolerance(rtol=1e-5, atol=0)
BIAS = Tolerance(rtol=1e-5, atol=1e-6)


# ---- hand computations ----------------------------------------------------------------------------------------------

SLOPES_BY_HAND = {
    "h8_0": 2.0**-1,
    "h8_2": 2.0**-3,
    "h8_7": 2.0**-8,
    "h12_0": 2.0**-1,
    "h12_7": 2.0**-8,
    "h12_8": 2.0**-0.5,
    "h12_9": 2.0**-1.5,
    "h12_11": 2.0**-3.5,
}


@exercise(WEEK, "slopes_by_hand", reference=SLOPES_BY_HAND)
def slopes_by_hand(check: Check) -> None:
    # Catches k counted from 0, the smallest slope first, exponents instead of slopes, negative slopes.
    with check.criterion("8 heads", 0.5, golden=True):
        check.entries("h8_0", "h8_2", "h8_7", tolerance=FOUR_DIGITS)
    # Catches 2^(-8k/12), sorted slopes, the first twelve slopes of 16 heads.
    with check.criterion("12 heads: the first eight", 0.5, golden=True):
        check.entries("h12_0", "h12_7", tolerance=FOUR_DIGITS)
    # Catches 1/2^k continued, and any slopes of 16 heads but every second one from the first on.
    with check.criterion("12 heads: the last four", 1, golden=True):
        check.entries("h12_8", "h12_9", "h12_11", tolerance=FOUR_DIGITS)


def _row(name: str, distances: tuple[int, ...]) -> dict[str, float]:
    factors = [math.exp(-0.5 * distance) for distance in distances]
    return {f"{name}_{key}": factor / sum(factors) for key, factor in enumerate(factors)}


ATTENTION_WITH_SLOPE = _row("causal", (3, 2, 1, 0)) | _row("open", (1, 0, 1, 2))
ATTENTION_WITH_SLOPE["output"] = sum(
    ATTENTION_WITH_SLOPE[f"causal_{key}"] * value for key, value in enumerate((8, 4, 2, 1))
)


@exercise(WEEK, "attention_with_slope", reference=ATTENTION_WITH_SLOPE)
def attention_with_slope(check: Check) -> None:
    # Catches a slope left out or set to 1, a wrong sign, powers of 2, a row that is reversed or does not add up to 1.
    with check.criterion("causal: the weights of the last query", 1, golden=True):
        check.entries("causal_0", "causal_1", "causal_2", "causal_3", tolerance=FOUR_PLACES)
    # Catches values in the wrong order, their plain mean, weights that do not add up to 1.
    with check.criterion("causal: its output", 1, golden=True):
        check.entries("output", tolerance=FOUR_PLACES)
    # Catches the causal mask left on, signed distances, the row of another query.
    with check.criterion("no mask: the weights of the query at position 1", 1, golden=True):
        check.entries("open_0", "open_1", "open_2", "open_3", tolerance=FOUR_PLACES)


# ---- slopes and bias ------------------------------------------------------------------------------------------------

OTHER_COUNTS = (
    "Powers of two are right, other numbers of heads are not. (There the slopes of the next smaller power of "
    "two come first, then every second one of the next larger.)"
)
MANY_HEADS = Hint(
    "With up to 16 heads the slopes are right, with 128 they are not. (There may be any number of heads: c is the largest "
    "power of two that is not above it.)",
    form=True,
)
MANY_KEYS = Hint("Biases for few keys are right, one for 2,100 keys is not.", form=True)


REMEMBERED = Hint(
    "After a bias for 30 keys you return the same one for 31 keys. (What you keep from one call must not change the next.)",
    lambda got, expected: isinstance(got, torch.Tensor) and got.shape[-1:] == (30,),
    form=True,
    of_state=True,
)


def _misaligned(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a bias is not zero where query and key have the same position."""
    return bool((got[expected == 0] != 0).any())


ONE_STEP = Hint(
    "Square biases are right, but with fewer queries than keys the queries are the last positions: query row "
    "r is at position n_keys - n_queries + r.",
    _misaligned,
    otherwise="Square biases are right, with fewer queries than keys they are not.",
)


@exercise(WEEK, "alibi_slopes")
def alibi_slopes(check: Check) -> None:
    # Catches k counted from 0, the smallest slope first, 1/2^k, halved or integer exponents, a special case for 1 head.
    with check.criterion("powers of two", 1.25, golden=True):
        for n_heads in (8, 16, 1):
            check.agrees(calling(n_heads), f"alibi_slopes({n_heads})", SLOPES)
    # Catches one formula for all counts, sorted slopes, the wrong slopes of the larger set, the larger set cut off.
    with check.criterion("other numbers of heads", 1.25, golden=True):
        for n_heads in (12, 3, 15):  # 15 is nearer to the larger power of two than to the smaller one
            check.agrees(calling(n_heads), f"alibi_slopes({n_heads})", SLOPES, OTHER_COUNTS)
        check.agrees(calling(128), "alibi_slopes(128)", SLOPES, MANY_HEADS)
    # Catches a float64 result, and a cached tensor that the caller can overwrite.
    with check.criterion("float32, a new tensor on each call", 0.5):
        check.has_dtype(calling(12), torch.float32, "alibi_slopes(12)")
        check.returns_new("alibi_slopes(8)", 8, tolerance=SLOPES)


@exercise(WEEK, "alibi_bias")
def alibi_bias(check: Check) -> None:
    def same(*arguments: int, hint: Hint | str = "") -> None:
        check.agrees(calling(*arguments), f"alibi_bias({', '.join(map(str, arguments))})", BIAS, hint)

    # Catches a wrong sign, signed, squared or one-sided distances, the bias per key, a causal mask in it, heads last.
    with check.criterion("as many queries as keys", 1.5, golden=True):
        for n_heads, n in ((4, 4), (2, 12)):
            same(n_heads, n)
    # Catches queries counted from position 0, n_keys ignored, distances cut off or in bfloat16, a bias cached for another n.
    with check.criterion("fewer queries than keys: the last positions", 1.5, golden=True):
        for arguments in ((4, 3, 4), (8, 1, 30)):
            same(*arguments, hint=ONE_STEP)
        same(8, 1, 31, hint=REMEMBERED)
        same(2, 2, 2100, hint=MANY_KEYS)  # bfloat16 holds whole numbers up to 256 only, float16 up to 2,048
    # Catches slopes that are right for powers of two only.
    with check.criterion("other numbers of heads", 0.5, golden=True):
        same(1, 3)
        same(12, 6, hint=OTHER_COUNTS)
    # Catches a float64 result, and a cached bias that the caller can overwrite.
    with check.criterion("float32, a new tensor on each call", 0.5):
        check.has_dtype(calling(4, 5), torch.float32, "alibi_bias(4, 5)")
        check.returns_new("alibi_bias(4, 3, 5)", 4, 3, 5, tolerance=BIAS)


# ---- the bias per key -----------------------------------------------------------------------------------------------

NO_KEY_BEHIND = (
    "A single query belongs to the last key and has no key after it: there the two forms agree without a mask as well."
)
NOTHING_TO_SEE = "Where keys after the query get no weight, the two forms agree without a mask as well."
HIDDEN = "Under the mask the two forms agree, whatever scores it hides. (A hidden score is -inf, not a lower number.)"
ZERO_SLOPES = "With slopes that are all zero the two forms are one and the same, also without a mask."
ONE_PLACE = "One place that differs is enough. (The largest difference over all texts, heads, queries and keys counts.)"
SMALL = Hint(
    "Large differences are seen, a small one is not. (The two agree where no weight differs by more than 1e-5.)",
    lambda got, expected: got is True,
    "A difference that is smaller than 1e-5 counts as one. (1e-5 is absolute: no weight's size counts, nor does a second "
    "tolerance.)",
)
RELATIVE = (
    "A difference of 1.25e-5 between weights near 0.5 is not seen. (1e-5 is absolute: no weight's size counts, as it does "
    "in allclose with its default rtol.)"
)
SIGN = "Where one weight differs and all others hardly do, your answer is wrong. (A difference of either sign counts.)"
OVERFLOW = "Biases of 1,500 go wrong: exp overflows above 709. (torch.softmax takes the largest score away first.)"
NOT_A_BOOL = "The answer must be a Python bool: wrap the comparison in bool()."
LONG = "Long texts go wrong. (The two are computed in float64, and the largest difference counts, not the mean.)"


def one_sided(check: Check, n: int) -> Iterator[tuple[torch.Tensor, float]]:
    """Yield scores and a slope: one weight differs by 1e-4 or more, all others by less than 4e-6 the other way."""
    itself = torch.eye(n, dtype=torch.bool, device=check.device)
    one_falls = torch.full((1, 1, n, n), -1e4, device=check.device).masked_fill(itself, 0.0)
    one_falls[..., 0, :], one_falls[..., 0, 0] = 0.0, math.log(n)  # query 0 sees all keys, the others only themselves
    yield one_falls, 4e-6
    one_rises = torch.zeros(1, 1, 2, n, device=check.device)
    one_rises[..., -1] = math.log(n)
    yield one_rises, 6e-4


def _a_bool(call: str) -> Callable[[Any], Fault | None]:
    def judge(got: Any) -> Fault | None:
        if type(got) is bool:
            return None
        return Fault(f"{call} must return a Python bool, got {kind(got)}", (NOT_A_BOOL,) if got is not None else ())

    return judge


FOUR_SLOPES = [0.5, 0.25, 0.125, 0.0625]
Case = tuple[torch.Tensor, list[float], bool, str, Hint | str]  # scores, slopes, causal, the slopes in words, a hint


@exercise(WEEK, "per_key_bias_is_equivalent")
def per_key_bias_is_equivalent(check: Check) -> None:
    """In the first block the two softmaxes differ by less than 1e-12 or by more than 1e-3, far from 1e-5 either way."""
    # Every golden block has both answers, and both without the mask, so returning a constant or `causal` fails.
    # Catches `causal` or True returned, a mask on one side or none, biases compared, queries counted from position 0.
    with check.criterion("with a mask and without, one query, zero slopes", 1.25, golden=True):
        clear_cases(check)
    # Catches float32, a mean instead of the largest difference, a missing abs(), a relative tolerance, exp overflowing.
    with check.criterion(
        "the largest difference of all: in float64, whatever its sign, at most 1e-5", 0.5, golden=True
    ):
        close_cases(check)
    # Catches a tensor result, and scores or slopes changed in place.
    with check.criterion("a Python bool, arguments left alone", 0.125):
        equivalence_manners(check)

    # Catches positions or a mask created on the CPU.
    with check.follows_device(0.125):
        scores, two = check.randn(1, 2, 3, 4), torch.tensor([0.5, 0.25], device=check.device)
        call = "per_key_bias_is_equivalent(scores (1, 2, 3, 4), slopes [0.5, 0.25], causal=True)"
        check.follows(calling(scores, two, True), call)


def answers_agree(check: Check, cases: list[Case]) -> None:
    with check.every():
        for scores, given, causal, words, hint in cases:
            call = calling(scores, torch.tensor(given, device=check.device), causal)
            check.agrees(
                _as(bool, call),
                f"per_key_bias_is_equivalent(scores {tuple(scores.shape)}, {words}, causal={causal})",
                hint=hint,
            )


def clear_cases(check: Check) -> None:
    slopes = FOUR_SLOPES
    square = check.randn(4, 4, 4, 4)
    behind = torch.ones(5, 5, device=check.device).triu(1)
    but_one = behind.repeat(3, 1, 1, 1)  # only text 1 sees later keys, in all rows but its first
    but_one[1, :, 1:] = 0
    after = "four slopes, keys after the query at"
    answers_agree(
        check,
        [
            (square, slopes, True, "four slopes", ""),
            (square, slopes, False, "four slopes", ""),
            (check.randn(2, 4, 3, 9), slopes, True, "four slopes", ""),
            (check.randn(2, 4, 5, 5) + 3e4 * behind, slopes, True, f"{after} 30,000", HIDDEN),
            (check.randn(2, 4, 1, 7), slopes, False, "four slopes", NO_KEY_BEHIND),
            (check.randn(2, 4, 5, 5), [0.0] * 4, False, "slopes all zero", ZERO_SLOPES),
            (check.randn(2, 4, 5, 5), [0.0] * 4, True, "slopes all zero", ""),
            (check.randn(2, 4, 5, 5) - 1e4 * behind, slopes, False, f"{after} -10,000", NOTHING_TO_SEE),
            (check.randn(3, 4, 5, 5) - 1e4 * but_one, slopes, False, f"{after} -10,000, few in text 1", ONE_PLACE),
            (check.randn(2, 4, 5, 5), [0.0, 0.5, 0.0, 0.0], False, "only the second slope not zero", ""),
        ],
    )


def close_cases(check: Check) -> None:
    high = torch.zeros(1, 1, 2, 3000, device=check.device)  # biases are multiples of 0.5: exact even in float32
    long = check.randn(1, 3, 2, 12_000)  # float32 numbers near 0.37 * 12,000 are 5e-4 apart
    answers_agree(
        check,
        [
            (high, [0.5], True, "slope 0.5, all 0", OVERFLOW),
            (long, [0.37] * 3, True, "slopes 0.37", LONG),
            (long[:, :, 1:], [0.37] * 3, False, "slopes 0.37", LONG),
            # Two keys of equal weight, one of them after the query: the weights differ by half the slope.
            (torch.zeros(1, 1, 2, 2, device=check.device), [1.4e-5], False, "slope 1.4e-5", SMALL),
            (torch.zeros(1, 2, 2, 2, device=check.device), [3.6e-5, 0.0], False, "slopes 3.6e-5 and 0", SMALL),
            (torch.zeros(1, 1, 2, 2, device=check.device), [2.5e-5], False, "slope 2.5e-5", RELATIVE),
            *((scores, [slope], False, f"slope {slope:g}", SIGN) for scores, slope in one_sided(check, 100)),
        ],
    )


def equivalence_manners(check: Check) -> None:
    scores = check.randn(1, 4, 3, 3)
    given = torch.tensor(FOUR_SLOPES, device=check.device)
    double, wide = scores.double(), given.double()  # .double() returns these themselves
    check.unchanged(
        lambda f: f(double, wide, True),  # masking is the change that comes to mind
        "per_key_bias_is_equivalent(float64 scores (1, 4, 3, 3), four float64 slopes, causal=True)",
        double,
        wide,
    )
    call = "per_key_bias_is_equivalent(scores (1, 4, 1, 3), four slopes, causal=False)"
    check.satisfies(calling(scores[:, :, 2:], given, False), call, _a_bool(call))  # its value is compared above


# ---- attention ------------------------------------------------------------------------------------------------------

# float32 attention of scores of order 2 is off by 1e-5; the mistakes of the bank move some output by more than 0.02.
ATTENDED = Tolerance(rtol=0, atol=1e-3)
# The whole module in half precision on up to 290 tokens: over 30 seeds and nine ways to write attention, right modules
# differed by at most 0.08 and 0.007; positions counted in bfloat16 move some output by 0.25 or more (300 seeds).
ATTENDED_HALF = {torch.bfloat16: Tolerance(rtol=0, atol=0.15), torch.float16: Tolerance(rtol=0, atol=0.03)}

SYMMETRIC = (
    "With the mask all is right, without it it is not. (is_causal=False takes the symmetric bias -slope * |i - j|.)"
)
EVALUATING = "In train mode the output is right, after .eval() it is not."
NOT_DEFAULT = "With is_causal=True all is right, without the argument it is not. (The mask is on by default.)"
ONE_TOKEN = Hint("Texts of several tokens are right, one of a single token is not.", form=True)
SWITCHED = Hint(
    "With the mask and without it a new module is right; one that was called the other way before is not. (What you keep from "
    "one call must not change the next.)",
    form=True,
)
LENGTHS = Hint(
    "A first text is right, one of another length after it is not. (What you keep from one call must not change the next.)",
    form=True,
)
CONVERTED = Hint(
    "In float32 the module is right, but not if it is then converted to bfloat16 and called again. (What you keep from one "
    "call must not change the next.)",
    form=True,
)
WEIGHTS_TRAIN = Hint(
    "The gradient with respect to x is right, but that of some projection's weights is not. (All four are trained: "
    "nothing is frozen, and none of them is used through .data or detach.)",
    form=True,
)
HALF = (
    "The module is right in float32, but not after .to({}). (The bias is built from exact positions in "
    "float32 and cast to the dtype of the scores; the mask is -inf; the result has the dtype of x.)"
)


def attended_by_turns(weights: dict, n_heads: int, x: torch.Tensor) -> Probe:
    """The outputs for x without the mask and with it again, of a module that has seen x with the mask before."""

    def probe(cls: Any) -> dict[str, torch.Tensor]:
        module = built(cls, weights, n_heads)
        module(x.clone(), is_causal=True)
        without = module(x.clone(), is_causal=False)
        return {"without the mask": without, "with it again": module(x.clone(), is_causal=True)}

    return probe


def weight_gradients(weights: dict, n_heads: int, x: torch.Tensor) -> Probe:
    """The gradient of each projection's weights by name, whatever order the module defines them in; zeros for none."""

    def probe(cls: Any) -> dict[str, torch.Tensor]:
        module = built(cls, weights, n_heads)
        trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        found = dict(zip(trained, module.parameter_gradients(x, uneven), strict=False))
        return {
            name: torch.zeros_like(value) if found.get(name) is None else found[name] for name, value in weights.items()
        }

    return probe


def states_after_a_call(x: torch.Tensor, *sizes: int) -> Probe:
    """The shapes in the state_dict of a new module after one call. Errors of the call do not matter here."""

    def probe(cls: Any) -> dict[str, tuple[int, ...]]:
        module = cls(*sizes)
        try:
            module(x.cpu().clone())
        except Exception as error:
            by_student(error)
        return {key: tuple(value.shape) for key, value in module.state_dict().items()}

    return probe


LONG_TEXT = Hint("Short texts are right, one of 1,030 tokens is not. (Texts may have any length.)", form=True)


@exercise(WEEK, "ALiBiMultiHeadAttention")
def ALiBiMultiHeadAttention(check: Check) -> None:
    name = "ALiBiMultiHeadAttention"
    # A check that combines two things runs only where each is right by itself: a mistake costs points once.
    # Catches a bias missing, scaled, after the softmax or of another head; no or a strict mask; tokens and heads mixed.
    with check.criterion("with the causal mask", 1.5, golden=True):
        causal_attention(check, name)
        causal_right = check.reached()
    # Catches is_causal=False ignored, no or a positive bias after the query, a bias cached together with its mask.
    with check.criterion("without the mask: the symmetric bias", 1, golden=True):
        open_attention(check, name, causal_right)
    # Catches slopes that are right for powers of two only.
    with check.criterion("other numbers of heads", 0.5, golden=True):
        weights, x = weights_and_text(check, 2, 9, 36)
        call = f"{name}(36, 12)(x {tuple(x.shape)}, is_causal=True)"
        check.agrees(attended(weights, 12, x, is_causal=True), call, ATTENDED, OTHER_COUNTS)
    # Catches positions counted in half precision, a bias not cast or kept from another dtype, -1e9 for -inf.
    with check.criterion("bfloat16 and float16", 1, golden=True):
        weights, x = attention_dtypes(check, name)
        converted = attended_after_conversion(weights, 8, x[:, :5].to(torch.bfloat16), is_causal=True)
        call = f"{name}(32, 8) in float32, then after .to(bfloat16), on x (1, 5, 32)"
        check.agrees(converted, call, ATTENDED_HALF[torch.bfloat16], CONVERTED)
        scores_far_below(check, name)
    # Catches biases, and a table in the state_dict, even if a call puts it there.
    with check.criterion("four bias-free projections and nothing else in the state_dict", 0.5):
        x = check.randn(1, 3, 12)
        call = f"{name}(12, 2).state_dict(), after a call with x {tuple(x.shape)}"
        check.agrees(states_after_a_call(x, 12, 2), call, hint=FOUR_WEIGHTS)
    # Catches another default, gradients cut off, also for some weights, indivisible sizes accepted.
    with check.criterion("masks by default, passes gradients, refuses sizes that do not fit", 0.25):
        attention_gradients(check, name, causal_right)
        check.raises(calling(10, 4), ValueError, f"{name}(10, 4)")

    # Catches positions, slopes or a mask created on the CPU.
    with check.follows_device(0.25):
        x = check.randn(2, 5, 16)
        check.follows(made_there((16, 2), x), f"{name}(16, 2)(x (2, 5, 16))")


def causal_attention(check: Check, name: str) -> None:
    for batch, seq_len, d_model, n_heads in ((4, 4, 16, 4), (2, 7, 12, 2)):
        weights, x = weights_and_text(check, batch, seq_len, d_model)
        call = f"(x {tuple(x.shape)}, is_causal=True)"
        check.agrees(attended(weights, n_heads, x, is_causal=True), f"{name}({d_model}, {n_heads}){call}", ATTENDED)
    evaluated = attended(weights, 2, x, is_causal=True, evaluating=True)
    check.agrees(evaluated, f"{name}(12, 2).eval(){call}", ATTENDED, EVALUATING)
    weights, x = weights_and_text(check, 2, 1, 16)
    one_token = attended(weights, 4, x, is_causal=True)
    check.agrees(one_token, f"{name}(16, 4)(x {tuple(x.shape)}, is_causal=True)", ATTENDED, ONE_TOKEN)
    weights, x = weights_and_text(check, 2, 40, 16)
    turned = attended(weights, 4, x.transpose(0, 1).contiguous().transpose(0, 1), is_causal=True)
    check.agrees(turned, f"{name}(16, 4)(x {tuple(x.shape)}, is_causal=True), x transposed", ATTENDED, STRIDES)
    after_another = attended(weights, 4, x, is_causal=True, before=[(x[:, :6], {"is_causal": True})])
    check.agrees(after_another, f"{name}(16, 4) on a text of 6 tokens, then on one of 40", ATTENDED, LENGTHS)
    # A table of 1,024 positions would pass with a shorter text.
    weights, x = weights_and_text(check, 1, 1030, 4)
    call = f"{name}(4, 1)(x {tuple(x.shape)}, is_causal=True)"
    check.agrees(attended(weights, 1, x, is_causal=True), call, ATTENDED, LONG_TEXT)


def open_attention(check: Check, name: str, causal_right: Gate) -> None:
    weights, x = weights_and_text(check, 2, 9, 32)
    call = f"{name}(32, 8)(x {tuple(x.shape)}, is_causal=False)"
    check.agrees(attended(weights, 8, x, is_causal=False), call, ATTENDED, SYMMETRIC)
    weights, x = weights_and_text(check, 1, 5, 12)
    with causal_right:
        check.agrees(
            attended_by_turns(weights, 2, x),
            f"{name}(12, 2) on x {tuple(x.shape)} with the mask, then without it, then with it",
            ATTENDED,
            SWITCHED,
        )


def attention_dtypes(check: Check, name: str) -> tuple[dict, torch.Tensor]:
    """Return the weights and a text of 290 tokens: bfloat16 cannot count that far. float16 can, so it gets a short
    text, which costs a fiftieth."""
    weights, x = weights_and_text(check, 1, 290, 32)
    pair = check.randn(2, 12, 32)
    causal = f"{name}(32, 8)(x {tuple(pair.shape)}, is_causal=True)"
    check.agrees(attended(weights, 8, pair, is_causal=True), causal, ATTENDED)
    for dtype, tolerance in ATTENDED_HALF.items():
        text = x if dtype is torch.bfloat16 else x[:, :48]
        short = str(dtype).removeprefix("torch.")
        call = f"{name}(32, 8).to({short})(x {tuple(text.shape)}, is_causal=True)"
        probe = attended(weights, 8, text.to(dtype), is_causal=True)
        check.agrees(probe, call, tolerance, HALF.format(short))
        check.has_dtype(probe, dtype, call)
    return weights, x


def scores_far_below(check: Check, name: str) -> None:
    """Check that the mask is -inf: float16 holds no number low enough, and here scores are as low as such numbers."""
    weights, x = rising_scores(check, 2, 4, 32, n_heads=2)
    low = attended(weights, 2, x.double(), is_causal=True)
    check.agrees(
        lambda cls: low(cls)[:, 0],
        f"{name}(32, 2).to(float64)(x {tuple(x.shape)}, scores far below 0, is_causal=True), the first row",
        ATTENDED,
        FAR_BELOW,
    )


def attention_gradients(check: Check, name: str, causal_right: Gate) -> None:
    weights, x = weights_and_text(check, 2, 4, 12)
    call = f"{name}(12, 2)(x {tuple(x.shape)}, is_causal=True)"
    # gradients are products with one more matrix than the outputs, of the same order
    probe = attended(weights, 2, x, differentiate=True, is_causal=True)
    check.agrees(probe, f"the gradient of {call}", ATTENDED, CUT)
    with causal_right:  # otherwise paid for above
        by_default = attended(weights, 2, x)
        check.agrees(by_default, f"{name}(12, 2)(x {tuple(x.shape)})", ATTENDED, NOT_DEFAULT)
    slopes = weight_gradients(weights, 2, x)
    check.agrees(slopes, f"the gradients of the weights in {name}(12, 2)(x {tuple(x.shape)})", ATTENDED, WEIGHTS_TRAIN)


# ---- reach ----------------------------------------------------------------------------------------------------------


WHOLE_NUMBER = Hint("The window must be a Python int.", lambda got, expected: type(got) is not int, form=True)


@exercise(WEEK, "effective_window")
def effective_window(check: Check) -> None:
    # Every quotient -ln(tol) / slope is at least 0.0002 from a whole number, so rounding of floats decides nothing.
    def reaches(*cases: tuple[float, ...]) -> None:
        with check.every():
            for arguments in cases:
                check.agrees(
                    _as(float, calling(*arguments)),
                    f"effective_window({', '.join(f'{a:.6g}' for a in arguments)})",
                    Tolerance(rtol=0, atol=1e-6),
                )

    # Catches rounding down or to nearest, a wrong logarithm, a product with the slope, a missing minus, the half-life.
    with check.criterion("windows at the default tolerance", 1, golden=True):
        reaches(*((slope,) for slope in (0.5, 7.0, 0.65, 0.001)))
    # Catches a hard-coded tolerance of 0.01.
    with check.criterion("other tolerances", 0.5, golden=True):
        reaches((0.05, 0.2))
    # Catches a float or tensor result, ints or 0-d tensors refused, tol 1 not handled.
    with check.criterion("a Python int, also from ints and 0-d tensors; tol 1", 0.5):
        check.agrees(calling(0.25), "effective_window(0.25)", hint=WHOLE_NUMBER)
        for numbers, hint in (((0.3, 1.0), TOLERANCE_1), ((2, 1), INTS)):
            check.agrees(calling(*numbers), f"effective_window{numbers}", hint=hint)
        one_tensor = "effective_window(torch.tensor(0.25), 0.02)"
        check.agrees(calling(torch.tensor(0.25), 0.02), one_tensor, hint=ZERO_D)
        slope, tol = torch.tensor(0.25), torch.tensor(0.02)
        check.keeps(lambda f, *given: f(*given), "effective_window(torch.tensor(0.25), torch.tensor(0.02))", slope, tol)


ZERO_D = Hint("0-d tensors must be taken too, one or both, and the window be a Python int.", form=True)
TOLERANCE_1 = Hint("With tol 1 the window goes wrong. (There the distance is 0.)", form=True)
INTS = Hint("With floats the window is right, with ints it is not. (slope and tol may be ints.)", form=True)


def _as(kind: Callable[[Any], Any], probe: Probe) -> Probe:
    """The probe's value as a plain bool or float; ``None`` stays."""
    return lambda subject: value if (value := probe(subject)) is None else kind(value)
