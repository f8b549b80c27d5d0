"""Questions: what a probe asks of an object, and the objects that it can ask.

A probe is put to a `Subject`: an object of this process (`Local`: the reference, a known mistake, an answer of a bank) or
a student's object in the sandbox. When a script is written, the probe is put to the reference, and each call that it
makes is noted as a `Question`. A question whose arguments do not depend on any answer can be sent before earlier
questions are answered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as trees

from autograder.errors import StudentError
from autograder.grading.sandbox.worker.pullback import pullback
from autograder.grading.sandbox.worker.tensors import make_module, overwrite
from autograder.script.answer import Answer, Given, answer_of, by_student

Probe = Callable[[Any], Any]
Plan = Sequence[Sequence[tuple[Any, Sequence["Question"]]]]  # blocks of steps with their questions
Slope = tuple[int, int | None]  # of a gradient: the argument's number, and the result's if there are several


@dataclass(eq=False)
class Question:
    """One call of an object. ``made_by`` is the number of the probe's question whose answer is called; ``None`` if the
    object itself is called. ``make`` says what to load into a new module, or to which device it goes."""

    made_by: int | None
    method: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    again: bool = False  # after a call with the same arguments, whose result is overwritten
    slope: Slope | None = None
    make: dict[str, Any] | None = None
    is_plain: bool = True  # its arguments are data and do not depend on answers
    wire: Any = field(default=None, repr=False)  # the sandbox's cache of what it sends

    @cached_property
    def keeps_graph(self) -> bool:
        """Whether a gradient may be asked for next."""
        return self.slope is None and any(
            isinstance(leaf, torch.Tensor) and leaf.requires_grad
            for leaf in trees.tree_leaves((self.args, self.kwargs))
        )


class Subject:
    """An object that a probe can be put to. The base class ignores what will be asked."""

    def begin(self, script: Plan) -> None:
        """Announce what will be asked, block by block."""

    def at(self, step: Any, goes_well: bool) -> None:
        """Announce the next step. While all ``goes_well``, later blocks will probably be asked too, and completely."""

    def with_answer(self, answer: Any) -> Any:
        """Return the same subject with another answer of the student's in its place."""
        return answer


class Asked(Subject):
    """An object that is asked: each call, of it or of a method, is a `Question`, and ``_ask`` answers it."""

    def _ask(self, question: Question) -> Any:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask(Question(None, None, args, kwargs))

    def called_again(self, *args: Any) -> Any:
        """Return the result of a call that follows an equal one, whose result was overwritten."""
        return self._ask(Question(None, None, args, {}, again=True))

    def made(self, make: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Return a module of this class, loaded or moved as ``make`` says (see ``make_module``)."""
        return self._ask(Question(None, None, args, kwargs, make=make))


class Local(Asked):
    """An object of this process."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject

    def __getitem__(self, key: str) -> Any:
        return self.subject[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        getattr(self.subject, name)  # raises an error if there is none
        return lambda *args, **kwargs: self._ask(Question(None, name, args, kwargs))

    def with_slope(self, args: Sequence[Any], at: int, place: int | None) -> tuple[Any, Any]:
        """Return a call's result and ``None``: the graph is in this process, so the caller can differentiate it."""
        return self._ask(Question(None, None, tuple(args), {}, slope=(at, place))), None

    def parameter_gradients(self, x: torch.Tensor, weigh: Callable[[Any], torch.Tensor]) -> list[Any]:
        """The gradients of a module's trainable parameters; its output on ``x`` has cotangent ``weigh(output)``."""
        with torch.enable_grad():
            output = self.subject(x.clone().requires_grad_())
        wanted = [parameter for parameter in self.subject.parameters() if parameter.requires_grad]
        return list(pullback([output], wanted, [weigh(output)], allow_unused=True)) if wanted else []

    def _ask(self, question: Question) -> Any:
        value = self._answer(question)
        return Local(value) if callable(value) and not isinstance(value, (torch.Tensor, Local)) else value

    def _answer(self, question: Question) -> Any:
        if question.make is not None:
            module, unloaded = make_module(self.subject, question.args, question.kwargs, question.make)
            if unloaded:
                raise StudentError.unusable("KeyError", unloaded)
            return module
        target = getattr(self.subject, question.method) if question.method else self.subject
        try:
            if question.again:
                overwrite(target(*question.args, **question.kwargs))
            return target(*question.args, **question.kwargs)
        except Exception as error:
            raise by_student(error) from error


class _Recording(Local):
    """An object of this process that writes down what it is asked."""

    def __init__(self, subject: Any, log: "_Log", number: int | None = None) -> None:
        super().__init__(subject)
        self._log, self._number = log, number

    def parameter_gradients(self, x: torch.Tensor, weigh: Callable[[Any], torch.Tensor]) -> list[Any]:
        question = Question(None, None, (x.clone().requires_grad_(),), {})
        return list(self._noted(question, lambda: Local(self.subject).parameter_gradients(x, weigh)))

    def _ask(self, question: Question) -> Any:
        return self._noted(question, lambda: self._answer(question))

    def _noted(self, question: Question, call: Callable[[], Any]) -> Any:
        number = self._log.note(replace(question, made_by=self._number))
        value = plain(call())
        if callable(value) and not isinstance(value, torch.Tensor):
            return _Recording(value, self._log, number)
        self._log.has_given_values = True
        return trees.tree_map(_disturbed, value) if self._log.disturbs else value


class _Log:
    """The questions of one probe. A log that ``disturbs`` changes the values that are handed out. ``may_depend`` tells
    whether a question followed a value, on which it may depend; a new module is no value."""

    def __init__(self, disturbs: bool) -> None:
        self.disturbs = disturbs
        self.questions: list[Question] = []
        self.has_given_values = False
        self.may_depend = False

    def note(self, question: Question) -> int:
        """Keep a new question, with copies of its tensors."""
        self.may_depend |= self.has_given_values
        question.args = trees.tree_map_only(torch.Tensor, _copied, question.args)
        question.kwargs = trees.tree_map_only(torch.Tensor, _copied, question.kwargs)
        question.is_plain = not any(
            callable(leaf) and not isinstance(leaf, torch.Tensor)
            for leaf in trees.tree_leaves((question.args, question.kwargs))
        )
        self.questions.append(question)
        return len(self.questions) - 1


def recorded(probe: Probe, right: Any) -> tuple[Answer, list[Question]]:
    """Return the right object's answer to a probe, and the questions. A question that changes if earlier answers change
    is not plain, because its arguments may reveal what is expected."""
    log, others = _Log(disturbs=False), _Log(disturbs=True)
    answer = _asked(probe, right, log)
    if log.may_depend:
        _asked(probe, right, others)
        for number, question in enumerate(log.questions):
            if number >= len(others.questions) or not _asks_the_same(question, others.questions[number]):
                question.is_plain = False
    return answer, log.questions


def _asked(probe: Probe, right: Any, log: _Log) -> Answer:
    answer = answer_of(lambda: probe(_Recording(right, log)))
    return Given(detached(plain(answer.value))) if isinstance(answer, Given) else answer


def detached(value: Any) -> Any:
    """Return the value without its autograd graph, which can hold hundreds of megabytes for one long text."""
    return trees.tree_map_only(torch.Tensor, torch.Tensor.detach, value)


def plain(value: Any) -> Any:
    """Return the object inside a ``Local``, and any other value as it is."""
    return value.subject if isinstance(value, Local) else value


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _disturbed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype == torch.bool else value + 1
    return value + 1 if type(value) in (int, float) else value


def _asks_the_same(one: Question, other: Question) -> bool:
    """Whether these are the same call with the same arguments, whichever object is called."""
    if (one.method, one.again, one.slope) != (other.method, other.again, other.slope):
        return False
    (left, shape), (right, other_shape) = (trees.tree_flatten((q.args, q.kwargs, q.make)) for q in (one, other))
    return shape == other_shape and all(map(_same, left, right))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
        return alike and torch.equal(one, other)
    return type(one) is type(other) and (one is other or one == other)
