"""What a right answer is asked by a hidden test, block by block: the same for every submission of a class.

It is recorded once, by putting the test to the reference, so that a session can send some questions ahead (`prefetch`).
What the reference answers is what is expected: it need not be asked again.

What is sent ahead may hold nothing of an answer to what is asked before it: the student's process could read it there. So
of each probe only the first call is planned. A later one may hand on what came of it.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autograder.checks.probes import AsksOnce, Probe
from autograder.grading.sandbox.prefetch import Plan, Question, Step
from autograder.grading.sandbox.proxy import RemoteObject, Returned
from autograder.grading.sandbox.worker.pullback import slope as slope_of
from autograder.grading.sandbox.worker.tensors import call_before, make_module, tensors_in
from autograder.grading.sandbox.worker.wire import Encoder, Reference


class _Heard(Exception):
    """Nothing more is asked by this probe."""


class Recorder:
    """A session whose student is the reference: it answers here, and writes down what it is asked."""

    generation = 0

    def __init__(self, right: Callable[..., Any]) -> None:
        self._objects: list[Any] = [right]
        self.steps: list[Step] = []
        self._part = ""
        self.subject = self._remote(0)
        self._only_listens = False
        self._is_first = True  # call of a probe
        self._is_faithful = True  # what a probe has seen here is what it would see in this process

    def answer(self, probe: Probe) -> Any:
        """What the probe gives for the reference."""
        self._is_faithful = self._is_first = True
        try:
            value = probe(self.subject)
        except Exception:
            if self._is_faithful:
                raise
            return probe(self._objects[0])
        return value if self._is_faithful and not _holds_proxy(value) else probe(self._objects[0])

    def listen(self, probe: Probe) -> None:
        """Write down what the probe asks; what it gives is known."""
        self._only_listens, self._is_first = isinstance(probe, AsksOnce), True
        with contextlib.suppress(Exception):  # to refuse may be right
            probe(self.subject)
        self._only_listens = False

    def begin(self, part: str) -> None:
        self._part = part

    def foresee(self, subject: RemoteObject, plan: Plan) -> None:
        """Nothing is sent ahead here."""

    def call(
        self,
        target: RemoteObject,
        method: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        watched: Sequence[Any] = (),
        again: str = "",
        slope: tuple[int, int | None] | None = None,
    ) -> Returned:
        making = target._making
        made = making.to_wire() if making else None
        question = Question.of(Encoder(_referring), made, method, args, kwargs, watched, again, slope)
        is_main = (making.cls if making else target) is self.subject
        self._note(question if self._is_first and is_main and question.is_plain else None)
        self._is_first = False
        if slope is None and any(tensor.requires_grad for tensor in tensors_in((args, kwargs))):
            self._note(None)  # a gradient may be asked for next, which is not known here
            self._is_faithful = False
        if self._only_listens:
            raise _Heard
        if making is not None:
            module, _ = make_module(self._objects[0], made or {})
            self._objects.append(module)
            target._reference, target._making = self._reference(len(self._objects) - 1), None
        function = self._objects[target._reference.id]
        if method:
            function = getattr(function, method)
        call_before(again, function, args, kwargs)
        value = function(*args, **kwargs)
        found = slope_of(value, slope[1], args[slope[0]]) if slope else None
        return Returned(self._handed_out(value), [], 0, found)

    def backward(self, call: int, cotangents: list[Any], of: int | None = None) -> list[Any]:
        return []

    def _note(self, question: Question | None) -> None:
        self.steps.append(Step(self._part, question))

    def _handed_out(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._handed_out(item) for key, item in value.items()}
        if not callable(value) or isinstance(value, torch.Tensor):
            return value
        self._objects.append(value)
        return self._remote(len(self._objects) - 1)

    def _remote(self, number: int) -> RemoteObject:
        return RemoteObject(self, self._reference(number), None)

    def _reference(self, number: int) -> Reference:
        return Reference(number, type(self._objects[number]).__name__, True)


def _holds_proxy(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_proxy, value))
    return isinstance(value, RemoteObject) or (isinstance(value, dict) and any(map(_holds_proxy, value.values())))


def _referring(value: Any) -> dict[str, Any] | None:
    """Whatever stays on one side differs between submissions: what it is called here does not matter."""
    return {"c": 0} if callable(value) else None
