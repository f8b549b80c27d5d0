"""Comparison of a student's value with the expected one, in words a student can act on.

Types are compared first, then shapes, then values. Only the first differing value is shown (of few whole numbers all),
so that a message helps without being an answer key. Numbers have four digits, or as many more as show the difference.
"""

import builtins
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Tolerance:
    """``|got - expected| <= atol + rtol * |expected|``; ``exact_dtype`` also asks for the expected dtype.

    With ``digits`` a single number may be off by two in that significant digit, as after rounding on the way.
    """

    rtol: float = 1e-4
    atol: float = 1e-5
    exact_dtype: bool = False
    digits: int | None = None


USUAL = Tolerance()
FOUR_DIGITS = Tolerance(rtol=0, atol=1e-6, digits=4)  # for a hand computation
FOUR_PLACES = Tolerance(rtol=0, atol=6e-5, digits=4)  # for weights and weighted sums: accepts 0.0900 for 0.09003

# The hint for a wrong gradient; the same in every week.
CUT = "The gradient through your result is wrong or cut off (detach, .item(), NumPy, torch.no_grad, torch.tensor)."

KNOWN_TYPES = {name for name, value in vars(builtins).items() if isinstance(value, type)} | {
    "generator",
    "dtype",
    "device",
    "module",
    "Fraction",
    "Decimal",
    "Generator",
    "int of more than 64 bits",
    "deeply nested value",
}


WORDS = {1: "one", 2: "two", 3: "three"}
FEWEST_DIGITS, MOST_DIGITS = 4, 7
MOST_SHOWN = 8  # the longest sequence of whole numbers that a message shows


def brief(value: float, digits: int = 1) -> str:
    """Format a number with this many significant digits."""
    if isinstance(value, bool) or not math.isfinite(value):
        return str(value)
    if abs(value) < sys.float_info.min:  # of numbers this small only 0 has a short decimal form
        return f"{value:.0e}" if value else "0"
    return f"{float(f'{value:.{digits - 1}e}'):.{max(digits, 6)}g}"


def is_count(tolerance: Tolerance) -> bool:
    """Whether a number is a count and not a measurement: then a message may say that it is one or two too large."""
    return tolerance.rtol == tolerance.atol == 0


def apart(got: float, expected: float, counted: bool = False) -> str:
    """Show two different numbers with enough digits to see their difference, and the distance of close counts."""
    if not (math.isfinite(got) and math.isfinite(expected)):
        return f"got {brief(got, FEWEST_DIGITS)}, expected {brief(expected, FEWEST_DIGITS)}"
    if got == round(got) and expected == round(expected) and max(abs(got), abs(expected)) < 10**6:
        distance = abs(round(got) - round(expected))
        text = f"got {round(got)}, expected {round(expected)}"
        return f"{text}: {WORDS[distance]} too {_side(got, expected)}" if counted and distance in WORDS else text
    for digits in range(max(FEWEST_DIGITS, _whole_digits(got), _whole_digits(expected)), MOST_DIGITS + 1):
        one, other = brief(got, digits), brief(expected, digits)
        if one != other and abs((float(one) - float(other)) - (got - expected)) <= 0.3 * abs(got - expected):
            return f"got {one}, expected {other}"
    one, other = brief(got, FEWEST_DIGITS), brief(expected, FEWEST_DIGITS)
    return f"got {one}, expected {other}, they differ by about {brief(abs(got - expected))}"


def off(got: float, expected: float, counted: bool = False) -> str:
    """Say how far a number is off without revealing the expected one, so no ratio is given for a count."""
    if not math.isfinite(got):
        return f"{got} is no answer"
    if counted:
        if got != round(got):
            return "a whole number is expected"
        return f"{'one ' if abs(got - expected) == 1 else ''}too {_side(got, expected)}"
    if got * expected < 0:
        return (
            "the sign is wrong" if math.isclose(abs(got), abs(expected), rel_tol=1e-3) else "another sign is expected"
        )
    side = _side(abs(got), abs(expected))
    if expected == 0 or got == 0:
        return f"too {side}"
    ratio = max(abs(got / expected), abs(expected / got))
    if ratio >= 2:
        return f"about {brief(ratio, 2)} times too {side}"
    percent = 100 * abs(got / expected - 1)
    if percent < 1:
        return "near, but not right to four significant digits"
    return f"about {brief(percent, 2)}% too {side}"


def significant_digits(number: float | None) -> int:
    """Return the number of significant digits with which ``number`` was given."""
    return (
        len(Decimal(repr(number)).normalize().as_tuple().digits) if number is not None and math.isfinite(number) else 0
    )


def is_rounded(number: float, expected: float) -> bool:
    """Whether ``number`` is ``expected`` rounded to fewer than four digits."""
    if number == 0 or not math.isfinite(number) or significant_digits(number) >= FEWEST_DIGITS:
        return abs(number) == 0 and abs(expected) < 0.05
    last = Decimal(repr(number)).normalize().as_tuple().exponent
    return isinstance(last, int) and abs(number - expected) <= 0.501 * 10.0**last


def _whole_digits(value: float) -> int:
    """Return the number of digits before the point, which are not rounded away; 0 for numbers of a million or more."""
    return len(str(int(abs(value)))) if abs(value) < 10**6 else 0


def _side(got: float, expected: float) -> str:
    return "large" if got > expected else "small"


def kind(value: Any) -> str:
    """Say in a message what a value is, never its content."""
    if isinstance(value, torch.Tensor):
        return f"{a_tensor(value.dtype)} of shape {tuple(value.shape)}"
    if value is None:
        return "None (is there a return statement?)"
    if callable(value):
        return "a function, class or module (is a call missing?)"
    name = getattr(value, "type_name", type(value).__name__)  # what cannot leave the sandbox has a type_name
    if name == "ndarray":
        return "a NumPy array"
    if "tensor of shape" in name:
        return "a tensor that is too large or of an unusual dtype"
    if name not in KNOWN_TYPES:  # a class name of the student's may say anything
        return "an object of another type"
    return _a(name)


def a_tensor(dtype: torch.dtype) -> str:
    return f"{_a(str(dtype).removeprefix('torch.'))} tensor"


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeioAEIOU' else 'a'} {name}"  # a uint8


def difference(got: Any, expected: Any, tolerance: Tolerance, names: tuple[str, ...] = ()) -> str:
    """Say why ``got`` is not ``expected``; the empty string if it is. ``names`` are the names of several results."""
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(got, expected, tolerance)
    if isinstance(expected, (tuple, list)):
        return _sequence_difference(got, expected, tolerance, names)
    if isinstance(expected, dict):
        return _dict_difference(got, expected, tolerance)
    if isinstance(expected, (bool, int)):
        return _plain_difference(got, expected)
    if isinstance(expected, float):
        return _float_difference(got, expected, tolerance)
    if isinstance(expected, str) and isinstance(got, str):  # words that a probe made with `kind`
        return "" if got == expected else f"expected {expected}, got {got}"
    return "" if type(got) is type(expected) and got == expected else f"expected {kind(expected)}, got {kind(got)}"


def same_form(got: Any, expected: Any, exact_dtype: bool = False) -> bool:
    """Whether ``got`` differs from ``expected`` at most in its values: type, shape and keys are the same, and so is the
    dtype if ``exact_dtype``."""
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(got, torch.Tensor)
            and got.shape == expected.shape
            and got.is_complex() == expected.is_complex()
            and (got.dtype == torch.bool) == (expected.dtype == torch.bool)
            and (got.dtype == expected.dtype or not exact_dtype)
        )
    if isinstance(expected, (tuple, list)):
        return (
            isinstance(got, (tuple, list))
            and len(got) == len(expected)
            and all(same_form(a, b, exact_dtype) for a, b in zip(got, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(same_form(got[key], expected[key], exact_dtype) for key in expected)
        )
    if isinstance(expected, float):
        return isinstance(got, (int, float)) and not isinstance(got, bool)
    return type(got) is type(expected)


def within(limit: float) -> Callable[[Any, Any], bool]:
    """Return a condition: no value is off by more than ``limit``, so that rounding may be the cause."""
    return lambda got, expected: bool((got.double() - expected.double()).abs().max() <= limit)


def only_where_zero(got: Any, expected: Any) -> bool:
    """Whether only rows that must be zero are wrong; always true if no tensor is expected."""
    if isinstance(expected, (tuple, list)):
        return all(only_where_zero(a, b) for a, b in zip(got, expected, strict=True))
    if not isinstance(expected, torch.Tensor):
        return True
    wrong = ~torch.isclose(got.double(), expected.double(), rtol=1e-3, atol=1e-3)
    return not bool((wrong.any(dim=-1) & (expected != 0).any(dim=-1)).any())


def _tensor_difference(got: Any, expected: torch.Tensor, tolerance: Tolerance) -> str:
    if not isinstance(got, torch.Tensor):
        return f"expected a tensor of shape {tuple(expected.shape)}, got {kind(got)}"
    if got.shape != expected.shape:
        return f"expected shape {tuple(expected.shape)}, got shape {tuple(got.shape)}"
    if got.device.type != expected.device.type:
        return f"expected a tensor on {expected.device.type}, got one on {got.device.type}"
    if got.is_complex() != expected.is_complex() or (got.dtype == torch.bool) != (expected.dtype == torch.bool):
        return f"expected {kind(expected)}, got {kind(got)}"
    if tolerance.exact_dtype and got.dtype != expected.dtype:
        return f"expected dtype {expected.dtype}, got {got.dtype}"
    if expected.numel() == 0:
        return ""
    a, b = (each.detach().to("cpu", torch.float64).numpy() for each in (got, expected))
    if np.array_equal(a, b) or not (wrong := ~_are_close(a, b, tolerance)).any():
        return ""
    place = tuple(np.argwhere(wrong)[0].tolist())
    share = f"{wrong.sum()} of {wrong.size} values differ; the first at {list(place)}"
    if expected.dtype == torch.bool:
        return f"{share}: got {bool(a[place])}, expected {bool(b[place])}"
    due = b[place].item() if abs(b[place].item()) > tolerance.atol else 0.0  # zero up to rounding
    return f"{share}: {apart(a[place].item(), due, counted=not expected.is_floating_point())}"


def _are_close(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Like `numpy.isclose` with equal_nan, in a fifth of its time."""
    with np.errstate(invalid="ignore"):
        close: np.ndarray = np.abs(a - b) <= tolerance.atol + tolerance.rtol * np.abs(b)
    return close if np.isfinite(b).all() else np.where(np.isfinite(b), close, (a == b) | (np.isnan(a) & np.isnan(b)))


def _sequence_difference(got: Any, expected: Any, tolerance: Tolerance, names: tuple[str, ...] = ()) -> str:
    if isinstance(got, torch.Tensor) and _is_stack_of(got, expected):  # it unpacks like a tuple
        got = got.unbind()
    if not isinstance(got, (tuple, list)):
        return f"expected {len(expected)} values, got {kind(got)}"
    if _are_whole(expected) and _are_whole(got):
        are_equal = [*map(repr, got)] == [*map(repr, expected)]
        return "" if are_equal else f"got {tuple(got)}, expected {tuple(expected)}"
    if len(got) != len(expected):
        return f"expected {len(expected)} values, got {len(got)}"
    for index, (a, b) in enumerate(zip(got, expected, strict=False)):
        if problem := difference(a, b, tolerance):
            return f"{names[index] if len(names) == len(expected) else f'result {index + 1}'}: {problem}"
    return ""


def _is_stack_of(got: torch.Tensor, expected: Any) -> bool:
    """Whether a tensor stacks the expected values, in number and shapes; a batch of as many texts usually does not."""
    shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) else () for value in expected]
    return got.ndim > 0 and len(got) == len(expected) and all(shape == tuple(got.shape[1:]) for shape in shapes)


def _are_whole(values: Any) -> bool:
    """Whether these are few and short whole numbers, or bools: a message shows such a sequence as a whole."""
    return len(values) <= MOST_SHOWN and all(type(one) in (bool, int) and abs(one) < 10**9 for one in values)


def _keys(values: dict[Any, Any]) -> str:
    return f"[{', '.join(sorted(repr(key)[:40] for key in values)[:20])}]"


def _dict_difference(got: Any, expected: dict[str, Any], tolerance: Tolerance) -> str:
    if not isinstance(got, dict):
        return f"expected a dict, got {kind(got)}"
    if set(got) != set(expected):
        return f"expected the keys {_keys(expected)}, got {_keys(got)}"
    for key in expected:
        if problem := difference(got[key], expected[key], tolerance):
            return f"{key}: {problem}"
    return ""


def _plain_difference(got: Any, expected: int) -> str:
    if type(got) is not type(expected):
        return f"expected a Python {type(expected).__name__}, got {kind(got)}"
    if got == expected or isinstance(expected, bool):
        return "" if got == expected else f"got {got}, expected {expected}"
    return apart(got, expected, counted=True) if abs(got) < 10**9 else "got a huge number, which is not right"


def _float_difference(got: Any, expected: float, tolerance: Tolerance) -> str:
    if isinstance(got, torch.Tensor) and got.numel() == 1 and not got.is_complex() and got.dtype != torch.bool:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return f"expected a number, got {kind(got)}"
    try:
        got = float(got)
    except OverflowError:
        got = math.inf
    last_digit = 0.0
    if tolerance.digits is not None and expected:
        last_digit = 2.01 * 10.0 ** (math.floor(math.log10(abs(expected))) + 1 - tolerance.digits)
    if math.isclose(got, expected, rel_tol=tolerance.rtol, abs_tol=max(tolerance.atol, last_digit)):
        return ""
    return apart(got, expected, is_count(tolerance))
