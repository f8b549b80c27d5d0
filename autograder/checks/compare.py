"""Comparison of a student's value with the expected one, in words a student can act on.

Type before shape, shape before values; of the values only the first differing place is shown, in as many digits as show
the difference, so that a message helps without being an answer key.
"""

import builtins
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Tolerance:
    """``|got - expected| <= atol + rtol * |expected|``; ``exact_dtype`` also asks for the expected dtype.

    With ``digits`` a single number may be off by two in that significant digit: what was rounded on the way may be.
    """

    rtol: float = 1e-4
    atol: float = 1e-5
    exact_dtype: bool = False
    digits: int | None = None


FOUR_DIGITS = Tolerance(rtol=0, atol=1e-6, digits=4)  # of a hand computation
FOUR_PLACES = Tolerance(rtol=0, atol=6e-5, digits=4)  # of weights and what they mix: 0.0900 will do for 0.09003, too

# The hint for a wrong gradient; the same in every week.
CUT = "The gradient through your result is wrong or cut off (detach, .item(), NumPy, torch.no_grad, torch.tensor)."

# The hint where a default base fails after another one was asked first.
REMEMBERED_BASE = "After a call with another base the default one goes wrong: the function must not remember anything of earlier calls."

KNOWN_TYPES = {name for name, value in vars(builtins).items() if isinstance(value, type)} | {
    "ndarray",
    "function",
    "method",
    "builtin_function_or_method",
    "generator",
    "Size",
    "dtype",
    "device",
    "Parameter",
    "Linear",
    "Embedding",
    "Module",
    "Sequential",
    "module",
    "NoneType",
    "Fraction",
    "Decimal",
    "OrderedDict",
    "Generator",
    "int64",
    "float64",
    "float32",
    "int of more than 64 bits",
    "deeply nested value",
}


WORDS = {1: "one", 2: "two", 3: "three"}
MOST_DIGITS = 7


def brief(value: float, digits: int = 1) -> str:
    """A number to so many significant digits."""
    if isinstance(value, bool) or not math.isfinite(value):
        return str(value)
    if abs(value) < sys.float_info.min:  # of these only 0 has a short decimal name
        return f"{value:.0e}" if value else "0"
    return f"{float(f'{value:.{digits - 1}e}'):.{max(digits, 6)}g}"


def apart(got: float, expected: float) -> str:
    """Two numbers that differ, in as many digits as show by how much; neighbouring whole numbers by their distance."""
    if not (math.isfinite(got) and math.isfinite(expected)):
        return f"got {brief(got)}, expected {brief(expected)}"
    if got == round(got) and expected == round(expected) and max(abs(got), abs(expected)) < 10**6:
        distance = abs(round(got) - round(expected))
        text = f"got {round(got)}, expected {round(expected)}"
        return f"{text}: {WORDS[distance]} too {_side(got, expected)}" if distance in WORDS else text
    for digits in range(1, MOST_DIGITS + 1):
        one, other = brief(got, digits), brief(expected, digits)
        if one != other and abs((float(one) - float(other)) - (got - expected)) <= 0.3 * abs(got - expected):
            return f"got {one}, expected {other}"
    return f"got {brief(got)}, expected {brief(expected)}, they differ by {brief(abs(got - expected))}"


def off(got: float, expected: float) -> str:
    """How far a number is off, without the number that is expected."""
    if not math.isfinite(got):
        return f"{got} is no answer"
    if got == round(got) and expected == round(expected):
        return f"{'one ' if abs(got - expected) == 1 else ''}too {_side(got, expected)}"
    if got * expected < 0:
        return (
            "the sign is wrong" if math.isclose(abs(got), abs(expected), rel_tol=1e-3) else "another sign is expected"
        )
    if expected == 0 or got == 0 or abs(got / expected) >= 2 or abs(got / expected) <= 0.5:
        return f"far too {_side(abs(got), abs(expected))}"
    percent = 100 * abs(got / expected - 1)
    if percent < 1:
        return "near, but not right to four significant digits"
    return f"about {float(brief(percent)):g}% too {_side(abs(got), abs(expected))}"


def _side(got: float, expected: float) -> str:
    return "large" if got > expected else "small"


def kind(value: Any) -> str:
    """What a value is, for messages; never its content."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None (is there a return statement?)"
    name = getattr(value, "type_name", type(value).__name__)  # what cannot leave the sandbox has a type_name
    if name == "ndarray":
        return "a NumPy array"
    if "tensor of shape" in name:
        return "a tensor that is too large or of an unusual dtype"
    if name not in KNOWN_TYPES:  # a name of its own may say anything
        return "an object of another type"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def difference(got: Any, expected: Any, tolerance: Tolerance, names: tuple[str, ...] = ()) -> str:
    """Why ``got`` is not ``expected``; the empty string when it is. ``names`` are what several results are called."""
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
    return "" if type(got) is type(expected) and got == expected else f"expected {kind(expected)}, got {kind(got)}"


def same_form(got: Any, expected: Any, exact_dtype: bool = False) -> bool:
    """Whether ``got`` differs from ``expected`` in values at most: not in kind, shape or keys, nor in dtype if that is
    asked for."""
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
    """Whether no value is farther from what is expected: what rounding can do, and what it cannot."""
    return lambda got, expected: bool((got.double() - expected.double()).abs().max() <= limit)


def only_where_zero(got: Any, expected: Any) -> bool:
    """Whether all rows are right but some that are to be zero; or a single answer is wrong."""
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
    a, b = got.detach().to("cpu", torch.float64), expected.detach().to("cpu", torch.float64)
    if torch.equal(a, b) or _is_close(a.numpy(), b.numpy(), tolerance):  # these take a tenth of isclose's time
        return ""
    wrong = ~torch.isclose(a, b, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    share = f"{int(wrong.sum())} of {wrong.numel()} values differ; the first at {list(place)}"
    if expected.dtype == torch.bool:
        return f"{share}: got {bool(a[place])}, expected {bool(b[place])}"
    return f"{share}: {apart(a[place].item(), b[place].item())}"


def _is_close(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> bool:
    """Whether all numbers are close and finite: of an infinite one every other is infinitely far, and within as much."""
    if not np.isfinite(b).all():
        return False
    with np.errstate(invalid="ignore"):
        return bool((np.abs(a - b) <= tolerance.atol + tolerance.rtol * np.abs(b)).all())


def _sequence_difference(got: Any, expected: Any, tolerance: Tolerance, names: tuple[str, ...] = ()) -> str:
    if (
        isinstance(got, torch.Tensor) and got.ndim and len(got) == len(expected)
    ):  # a stacked tensor unpacks like a tuple
        got = got.unbind()
    if not isinstance(got, (tuple, list)):
        return f"expected {len(expected)} values, got {kind(got)}"
    if len(got) != len(expected):
        return f"expected {len(expected)} values, got {len(got)}"
    for index, (a, b) in enumerate(zip(got, expected, strict=False)):
        if problem := difference(a, b, tolerance):
            return f"{names[index] if len(names) == len(expected) else f'result {index + 1}'}: {problem}"
    return ""


def _dict_difference(got: Any, expected: dict[str, Any], tolerance: Tolerance) -> str:
    if not isinstance(got, dict):
        return f"expected a dict, got {kind(got)}"
    if set(got) != set(expected):
        return f"expected the keys {sorted(map(str, expected))}, got {sorted(str(key)[:40] for key in got)[:20]}"
    for key in expected:
        if problem := difference(got[key], expected[key], tolerance):
            return f"at key {key!r}: {problem}"
    return ""


def _plain_difference(got: Any, expected: int) -> str:
    if type(got) is not type(expected):
        return f"expected a Python {type(expected).__name__}, got {kind(got)}"
    return "" if got == expected else f"got {got if abs(got) < 10**9 else 'a huge number'}, which is not right"


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
    return apart(got, expected)
