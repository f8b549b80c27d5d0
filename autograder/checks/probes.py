"""Probes: what is asked of an object, the same of the student's, the reference's and every known mistake's.

A *probe* takes an object and returns a value: ``lambda f: f(x, positions)``. It calls the object and looks at what comes
back, nothing else: in grading the student's object is a proxy of something in another process. Probes run again when the
check is through, for the diagnosis. So what a probe refers to must not change after it: make probes with ``calling``, or
in a function that takes their inputs, never over loop variables.
"""

from collections.abc import Callable
from typing import Any

import torch

from autograder.errors import StudentError
from autograder.grading.sandbox.worker.pullback import pullback, uneven
from autograder.grading.sandbox.worker.tensors import OVERWRITTEN, REFILLED, call_before

Probe = Callable[[Any], Any]


class AsksOnce:
    """A probe that asks the object one thing only, in one message."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def __call__(self, subject: Any) -> Any:
        return self._probe(subject)


def calling(*arguments: Any, **options: Any) -> Probe:
    """The probe that calls the object with these arguments; tensors are copied, whatever the student does to them."""
    return AsksOnce(lambda subject: subject(*[_copy(argument) for argument in arguments], **options))


def calling_again(*arguments: Any) -> Probe:
    """The probe that calls the object, overwrites what comes back, and calls it once more."""
    return AsksOnce(lambda subject: called_again(subject, OVERWRITTEN, *arguments))


def calling_refilled(*arguments: Any) -> Probe:
    """The probe that calls the object with tensors that it has been called with before, when they held something else."""
    return AsksOnce(lambda subject: called_again(subject, REFILLED, *arguments))


def called_again(subject: Any, how: str, *arguments: Any) -> Any:
    """What the object gives after an earlier call with the same arguments (see ``call_before``)."""
    if getattr(type(subject), "is_remote", False):  # it lives in the sandbox
        return subject.called_again(how, *arguments)
    copies = [_copy(argument) for argument in arguments]
    call_before(how, subject, copies, {})
    return subject(*copies)


def differentiating(*arguments: Any, at: int = 0, place: int | None = None) -> Probe:
    """The probe that calls the object and takes the gradient with respect to argument number ``at``, of result number
    ``place`` where there are several."""

    def probe(subject: Any) -> torch.Tensor:
        copies = [_copy(argument) for argument in arguments]
        copies[at].requires_grad_()
        if getattr(type(subject), "is_remote", False):  # it lives in the sandbox
            value, slope = subject.with_slope(copies, at, place)
        else:
            value, slope = subject(*copies), None
        if isinstance(slope, torch.Tensor):
            return slope
        return gradient(value if place is None else value[place], copies[at])

    return AsksOnce(probe)


def gradient(output: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """The gradient of a weighted sum of ``output`` with respect to ``argument``; zeros where no graph leads back."""
    if not output.requires_grad:
        return torch.zeros_like(argument)
    return torch.autograd.grad((output * uneven(output)).sum(), argument, allow_unused=True, materialize_grads=True)[0]


def parameter_gradients(module: Any, x: torch.Tensor) -> list[torch.Tensor | None]:
    """The gradients of the module's trained parameters from a weighted sum of its output for ``x``."""
    if getattr(type(module), "is_remote", False):  # it lives in the sandbox
        found: list[torch.Tensor | None] = module.parameter_gradients(x, uneven)
        return found
    with torch.enable_grad():
        output = module(x.clone().requires_grad_())
    wanted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return list(pullback([output], wanted, [uneven(output)], allow_unused=True)) if wanted else []


def _copy(argument: Any) -> Any:
    return argument.detach().clone() if isinstance(argument, torch.Tensor) else argument


def less(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``one - other`` of one shape: where two shapes broadcast, the difference may be far larger than both."""
    if one.shape != other.shape:
        raise StudentError(
            ("ValueError",),
            f"two results that belong together have the shapes {tuple(one.shape)} and {tuple(other.shape)}",
        )
    return one - other


def making(*sizes: int, then: torch.Tensor) -> Probe:
    """Makes a module of the student's class with these sizes and calls it."""
    return AsksOnce(lambda cls: made(cls, *sizes)(then))


def made(cls: Any, *sizes: int) -> Any:
    """A module of the student's class, for a probe that is going to call it: made in the same message, in the sandbox."""
    return cls.made(*sizes) if getattr(type(cls), "is_remote", False) else cls(*sizes)
