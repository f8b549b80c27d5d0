"""Proxies for the student's objects: to a check, each looks like the function, class or module itself.

A proxy can be called with tensors, differentiated through, and asked for a state_dict. Its results are decoded data.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as trees

from autograder.errors import StudentError
from autograder.grading.sandbox.worker.pullback import pullback
from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.script.context import watched
from autograder.script.question import Asked, Plan, Question

METHODS = frozenset({"state_dict", "load_state_dict", "parameters", "named_parameters", "to", "train", "eval"})


@dataclass(frozen=True)
class Returned:
    """The result of a call: the value, the argument tensors that it changed (by index), the call's number for a later
    ``backward``, and the gradient if the question asked for one."""

    value: Any
    changed: list[tuple[int, Any]]
    call: int
    slope: Any = None


class Caller(Protocol):
    """The part of a session that a proxy uses."""

    generation: int  # counts the forks: a new fork knows no object of the one before

    def call(self, target: "RemoteObject", question: Question, watched: Sequence[Any] = ()) -> Returned:
        """Ask the question, or read its reply if it was sent ahead."""

    def begin(self, subject: "RemoteObject", script: Plan) -> None:
        """Announce what ``subject`` will be asked."""

    def at(self, step: Any, goes_well: bool) -> None:
        """Announce that ``step`` is next."""

    def backward(self, call: int, cotangents: list[Any], of: int | None = None) -> list[Any]:
        """Return the gradients of an earlier call's input tensors, or of the parameters of module number ``of``."""


class RemoteObject(Asked):
    """A student's function, class or module, seen from the trusted side."""

    def __init__(self, session: Caller, number: int, name: str | None, origin: str = "") -> None:
        """``name`` is the name in the notebook. A call's result has none; its ``origin`` is the name that led to it."""
        self._session, self._number, self._name, self._origin = session, number, name, origin or name or ""
        self._generation = session.generation

    def begin(self, script: Plan) -> None:
        self._session.begin(self, script)

    def at(self, step: Any, goes_well: bool) -> None:
        self._session.at(step, goes_well)

    def with_slope(self, args: Sequence[Any], at: int, place: int | None) -> tuple[Any, Any]:
        """Return a call's result and, from the same message, the gradient of the result (or of its part number
        ``place``) with respect to argument number ``at``; ``None`` if there is no gradient."""
        returned = self._session.call(self, Question(None, None, tuple(args), {}, slope=(at, place)))
        return returned.value, returned.slope

    def parameter_gradients(self, x: torch.Tensor, weigh: Callable[[Any], torch.Tensor]) -> list[Any]:
        """Gradients of a module's trainable parameters, with ``weigh(output)`` as cotangent of the output for ``x``."""
        returned = self._session.call(self, Question(None, None, (x.clone().requires_grad_(),), {}))
        return self._session.backward(returned.call, [weigh(returned.value)], self._number)

    def _ask(self, question: Question) -> Any:
        if question.make is None:
            return _call(self, question)
        module = self._session.call(self, question).value
        if not isinstance(module, RemoteObject):
            raise StudentError(("TypeError",), "what your class makes cannot be called")
        return module

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **kwargs: _call(self, Question(None, name, args, kwargs))
        raise AttributeError(f"a check may not use .{name} of a student's object")

    def __repr__(self) -> str:
        return "<a student's object>"


class _Differentiable(torch.autograd.Function):
    """A call into the sandbox as a node of the autograd graph; the student's own graph stays there."""

    @staticmethod
    def forward(ctx: Any, state: dict[str, Any], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state["run"]()
        outputs = tensors_in(state["value"])
        ctx.state, ctx.count = state, len(inputs)
        flat = [tensor.detach() for tensor in outputs]
        ctx.mark_non_differentiable(*[f for f, o in zip(flat, outputs, strict=True) if not o.requires_grad])
        return tuple(flat)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        session, call = ctx.state["session"], ctx.state["call"]
        gradients = session.backward(call, list(cotangents))
        gradients = [g if isinstance(g, torch.Tensor) else None for g in gradients][: ctx.count]
        return None, *gradients, *[None] * (ctx.count - len(gradients))


def gradients(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], cotangents: list[Any]
) -> list[Any]:
    """Return the gradients of a trusted function at arguments from the sandbox, for the tensors that require one."""
    inputs = [tensor for tensor in tensors_in((args, kwargs)) if tensor.requires_grad]
    with torch.enable_grad():
        outputs = tensors_in(function(*args, **kwargs))
    pairs = [
        (o, c.to(o.dtype))
        for o, c in zip(outputs, cotangents, strict=False)
        if o.requires_grad and isinstance(c, torch.Tensor)
    ]
    if not pairs:
        return [torch.zeros_like(tensor) for tensor in inputs]
    return list(
        pullback([o for o, _ in pairs], inputs, [c for _, c in pairs], allow_unused=True, materialize_grads=True)
    )


def _call(proxy: RemoteObject, question: Question) -> Any:
    session = proxy._session
    inputs = tensors_in((question.args, question.kwargs))
    state: dict[str, Any] = {"session": session}

    def run() -> None:
        returned = session.call(proxy, question, watched.get())
        state["value"], state["call"] = returned.value, returned.call
        for index, tensor in returned.changed:  # repeat the in-place changes on this side
            if 0 <= index < len(inputs) and any(inputs[index] is one for one in watched.get()):
                if isinstance(tensor, torch.Tensor) and tensor.shape == inputs[index].shape:
                    inputs[index].data.copy_(tensor)
                else:  # no longer a tensor of this shape: fill it so that a comparison fails
                    inputs[index].data.fill_(math.nan if inputs[index].is_floating_point() else -1)

    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        run()
        return state["value"]
    state["run"] = run
    node: Any = _Differentiable
    outputs = iter(node.apply(state, *inputs))
    return trees.tree_map_only(torch.Tensor, lambda tensor: next(outputs), state["value"])
