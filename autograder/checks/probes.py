"""Probes: the same questions for the student's object, the reference and every known mistake.

A *probe* takes an object and returns a value: ``lambda f: f(x, positions)``. It calls the object and looks at the
result, nothing else: in grading the student's object is a proxy for something in another process. A probe is put to
every answer of a class, long after the test was written. So what it refers to must not change, and it passes copies of
its tensors: make probes with ``calling``, or in a function that takes their inputs, never over loop variables.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from autograder.errors import StudentError
from autograder.grading.sandbox.worker.pullback import uneven
from autograder.script.question import Probe
from autograder.script.script import Hint

# The hint if the default base fails after a call with another base.
REMEMBERED_BASE = Hint(
    "The default base is right, but not after a call with another base. (What you keep from one call must not change the next.)",
    of_state=True,
)


def calling(*arguments: Any, **options: Any) -> Probe:
    """The probe that calls the object with these arguments; it passes copies, because students may change tensors."""
    return lambda subject: subject(*copies(arguments), **dict(zip(options, copies(options.values()), strict=True)))


def calling_again(*arguments: Any) -> Probe:
    """The probe that calls the object, overwrites the result, and calls it once more."""
    return lambda subject: subject.called_again(*copies(arguments))


def differentiating(
    *arguments: Any, at: int = 0, place: int | None = None, keep: Callable[[Any], Any] | None = None
) -> Probe:
    """The probe that calls the object and takes the gradient with respect to argument number ``at``, of result number
    ``place`` if there are several; of what ``keep`` makes of it, if given."""

    def probe(subject: Any) -> torch.Tensor:
        given = copies(arguments)
        given[at].requires_grad_()
        value, slope = (subject(*given), None) if keep else subject.with_slope(given, at, place)
        if isinstance(slope, torch.Tensor):
            return slope
        value = value if place is None or isinstance(value, torch.Tensor) else value[place]
        return gradient(keep(value) if keep else value, given[at])

    return probe


def gradient(output: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """The gradient of a weighted sum of ``output`` with respect to ``argument``; zeros where no graph leads back."""
    if not output.requires_grad:
        return torch.zeros_like(argument)
    return torch.autograd.grad((output * uneven(output)).sum(), argument, allow_unused=True, materialize_grads=True)[0]


def copies(arguments: Iterable[Any]) -> list[Any]:
    """Return the arguments, with copies of the tensors."""
    return [_copy(value) if isinstance(value, torch.Tensor) else value for value in arguments]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.detach() if tensor.requires_grad else tensor).clone()


def seen(probe: Probe) -> Probe:
    """The result of ``probe`` with zeros where the key comes after the query: those entries may hold anything."""
    return lambda subject: seen_part(probe(subject))


def seen_part(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.ndim < 2 or value.shape[-2] > value.shape[-1]:
        return value
    later = torch.ones(value.shape[-2:], dtype=torch.bool, device=value.device)
    return value.masked_fill(later.triu(value.shape[-1] - value.shape[-2] + 1), 0)


def less(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return ``one - other``. The shapes must be equal: a broadcast difference may be far larger than both."""
    if one.shape != other.shape:
        raise StudentError(
            ("ValueError",),
            f"two results that belong together have the shapes {tuple(one.shape)} and {tuple(other.shape)}",
        )
    return one - other


def making(*sizes: int, then: torch.Tensor) -> Probe:
    """The probe that makes a module of the student's class with these sizes and calls it."""
    return lambda cls: cls(*sizes)(then.clone())


def made_there(sizes: tuple[int, ...], *arguments: Any, **options: Any) -> Probe:
    """The probe that makes a module with these sizes, moves it to the device of the first argument, and calls it."""

    device = arguments[0].device.type
    return lambda cls: cls.made({"device": device}, *sizes)(*copies(arguments), **options)
