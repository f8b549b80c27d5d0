"""Stands in for the student's objects: looks to a check like the function, class or module itself.

A proxy can be called with tensors, differentiated through, and asked for a state_dict. What comes back is decoded data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as trees

from autograder.errors import StudentError
from autograder.grading.sandbox.worker.pullback import pullback
from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.grading.sandbox.worker.wire import Reference
from autograder.script.context import watched
from autograder.script.question import Plan, Question, Subject

METHODS = frozenset({"state_dict", "load_state_dict", "parameters", "named_parameters", "to", "train", "eval"})


@dataclass(frozen=True)
class Returned:
    """What came of a call: the value, the arguments that it changed by their numbers, the number by which to differentiate
    it, and the gradient if one was asked for."""

    value: Any
    changed: list[tuple[int, Any]]
    call: int
    slope: Any = None


class Caller(Protocol):
    """What a proxy needs of its session."""

    generation: int  # of the fork: a new one knows no object of the one before

    def call(self, target: "RemoteObject", question: Question, watched: Sequence[Any] = ()) -> Returned:
        """Ask, or read the reply where this was asked ahead."""

    def begin(self, subject: "RemoteObject", script: Plan, is_sure: bool = True) -> None:
        """What ``subject`` will be asked."""

    def at(self, step: Any, goes_well: bool) -> None:
        """This step is next."""

    def backward(self, call: int, cotangents: list[Any], of: int | None = None) -> list[Any]:
        """The gradients of an earlier call's tensors, or of the parameters of the module of this number."""


class RemoteObject(Subject):
    """A student's function, class or module, seen from the trusted side."""

    def __init__(self, session: Caller, reference: Reference, name: str | None, origin: str = "") -> None:
        """``name`` is the notebook's; what a call returned has none, but an ``origin``: the name that led to it."""
        self._session, self._reference, self._name, self._origin = session, reference, name, origin or name or ""
        self._generation = session.generation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self, None, args, kwargs)

    def begin(self, script: Plan, is_sure: bool = True) -> None:
        self._session.begin(self, script, is_sure)

    def at(self, step: Any, goes_well: bool) -> None:
        self._session.at(step, goes_well)

    def called_again(self, how: str, *args: Any) -> Any:
        """What a call gives after an earlier one with the same arguments (see ``call_before``)."""
        return self._ask(Question(None, None, args, {}, again=how)).value

    def with_slope(self, args: Sequence[Any], at: int, place: int | None) -> tuple[Any, Any]:
        """What a call gives, and in the same message the gradient of its result (number ``place``) with respect to argument
        number ``at``; ``None`` where there is none."""
        returned = self._ask(Question(None, None, tuple(args), {}, slope=(at, place)))
        return returned.value, returned.slope

    def with_weights(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], weights: Mapping[str, torch.Tensor], zeroed: Sequence[str]
    ) -> Any:
        """A module of this class, loaded with ``weights``; what else ends in ``zeroed`` becomes zero."""
        return self._module(Question(None, None, args, kwargs, make={"weights": dict(weights), "zeroed": list(zeroed)}))

    def made_on(self, device: str, *sizes: int) -> Any:
        """A module of this class with these sizes, moved to ``device``."""
        return self._module(Question(None, None, sizes, {}, make={"device": device}))

    def with_table(self, rows: torch.Tensor) -> Any:
        """A module whose arguments are the sizes of its only tensor, ``rows``."""
        return self._module(Question(None, None, tuple(rows.shape), {}, make={"rows": rows}))

    def reloaded(self, rows: torch.Tensor) -> Any:
        """The same module with other ``rows`` in its only tensor."""
        return self._module(Question(None, None, (), {}, make={"again": rows}))

    def parameter_gradients(self, x: torch.Tensor, weigh: Callable[[Any], torch.Tensor]) -> list[Any]:
        """The gradients of a module's trained parameters, where its output for ``x`` is weighed by ``weigh(output)``."""
        returned = self._ask(Question(None, None, (x.clone().requires_grad_(),), {}))
        return self._session.backward(returned.call, [weigh(returned.value)], self._reference.id)

    def _ask(self, question: Question) -> Returned:
        return self._session.call(self, question)

    def _module(self, question: Question) -> Any:
        module = self._ask(question).value
        if not isinstance(module, RemoteObject):
            raise StudentError(("TypeError",), "what your class makes cannot be called")
        return module

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **kwargs: _call(self, name, args, kwargs)
        raise AttributeError(f"a check may not use .{name} of a student's object")

    def __repr__(self) -> str:
        return f"<student's {self._reference.type_name}>"


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
    """Of a function of this side, at arguments from the other, with respect to those that need a gradient."""
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


def _call(proxy: RemoteObject, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session = proxy._session
    inputs = tensors_in((args, kwargs))
    state: dict[str, Any] = {"session": session}

    def run() -> None:
        returned = session.call(proxy, Question(None, method, args, kwargs), watched.get())
        state["value"], state["call"] = returned.value, returned.call
        for index, tensor in returned.changed:  # what an in-place change would have done here
            if 0 <= index < len(inputs) and _is_watched(inputs[index]):
                if _has_shape(tensor, inputs[index]):
                    inputs[index].data.copy_(tensor)
                else:  # changed beyond recognition: nothing is equal to it
                    inputs[index].data.fill_(math.nan if inputs[index].is_floating_point() else -1)

    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        run()
        return state["value"]
    state["run"] = run
    node: Any = _Differentiable
    outputs = iter(node.apply(state, *inputs))
    return trees.tree_map_only(torch.Tensor, lambda tensor: next(outputs), state["value"])


def _is_watched(tensor: torch.Tensor) -> bool:
    return any(tensor is one for one in watched.get())


def _has_shape(value: Any, like: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == like.shape
