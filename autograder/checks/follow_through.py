"""A mistake is paid for once: an answer that builds on an earlier wrong one is judged on top of it.

There are two ways, and the framework takes both where an earlier answer has lost points or is not known to be right.

*Replaced*: the student's later answer is graded again with the course's function in place of the student's earlier one.
This serves whoever calls the earlier answer, whatever is wrong with it: its values, its shapes, or that it is blank.

*Built upon*: the later answer is graded against what would be right on top of the student's earlier one. This serves
whoever has repeated the earlier mistake without a call. What is built upon is asked where the answer to be graded was
not asked anything (in grading: in a new process): a rehearsal puts every question of the test, and the answers are kept
(`Kept`). So they cannot depend on what the later answer was asked, or has said. What answers an equal question
differently is no base, and neither is one on top of which an answer that answers nothing would earn more than it is due.
"""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import torch

from autograder.checks.compare import Tolerance, difference
from autograder.checks.errors import BrokenCheck, StudentError, by_student
from autograder.grading.sandbox.worker.pullback import pullback

Follows = Callable[
    ..., Iterator[tuple[Any, str]]
]  # from the student's earlier answers: what is right on top, and a note
EQUAL = Tolerance(
    rtol=1e-4, atol=1e-6, exact_dtype=True
)  # two runs of one computation on other threads, or another device
NOT_ASKED = StudentError(("LookupError",), "follow-through asks nothing new once an answer is being graded")


class Book:
    """The questions put to earlier answers, with what came back."""

    def __init__(self) -> None:
        self.is_open, self.is_steady = True, True
        self._outcomes: dict[Hashable, tuple[Any, StudentError | None]] = {}
        self._functions: list[tuple[Hashable, Callable[[], Any]]] = []

    def ask(self, key: Hashable, call: Callable[[], Any], steady: str) -> Any:
        """The outcome of ``call`` when this question was first put. ``steady`` says when an equal question must give an
        equal answer: "later", "now", or "" for an object that nothing is known of yet."""
        if key not in self._outcomes:
            if not self.is_open:
                raise NOT_ASKED
            self._outcomes[key] = _outcome(call)
            if steady == "later":
                self._functions.append((key, call))
            elif steady == "now":
                self._compare(key, call)
        value, error = self._outcomes[key]
        if error is not None:
            raise error.with_traceback(None)
        return value

    def close(self) -> None:
        """Put every question to a function once more; from now on nothing new is asked."""
        for key, call in self._functions:
            if self.is_steady:
                self._compare(key, call)
        self.is_open = False

    def _compare(self, key: Hashable, call: Callable[[], Any]) -> None:
        self.is_steady = self.is_steady and _same(self._outcomes[key], _outcome(call))


class Kept:
    """A student's earlier answer as follow-through sees it: a function, a class, or an object that one of them made.

    ``path`` is what has led to the object; with the arguments it tells one question from another.
    """

    def __init__(self, subject: Any, book: Book, path: tuple[Hashable, ...], loaded: bool = False) -> None:
        self._subject, self._book, self._path, self._loaded = subject, book, path, loaded

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        key = (*self._path, _key((arguments, options)))
        inputs = (
            [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad] if torch.is_grad_enabled() else []
        )
        if not inputs:
            return self._ask(key, lambda: self._subject(*_copies(arguments), **options))
        node: Any = _Differentiable
        return node.apply(self, key, arguments, options, *inputs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def method(*arguments: Any, **options: Any) -> Any:
            key = (*self._path, name, _key((arguments, options)))
            value = self._book.ask(key, lambda: getattr(self._subject, name)(*_copies(arguments), **options), "")
            if name not in ("state_dict", "parameters", "named_parameters"):  # the object is another one from here on
                self._path, self._loaded = key, self._loaded or name == "load_state_dict"
                return self if not isinstance(value, (torch.Tensor, int, float, str, dict)) else value
            return value

        return method

    def _ask(self, key: Hashable, call: Callable[[], Any]) -> Any:
        steady = "now" if self._loaded else "later" if len(self._path) == 1 else ""
        value = self._book.ask(key, call, steady)
        return Kept(value, self._book, (key, "made")) if _is_object(value) else value


class _Differentiable(torch.autograd.Function):
    """A kept answer in a graph. Its gradient is a question like any other, asked in the rehearsal."""

    @staticmethod
    def forward(
        ctx: Any, kept: Kept, key: Hashable, arguments: tuple[Any, ...], options: dict[str, Any], *inputs: torch.Tensor
    ) -> Any:
        ctx.kept, ctx.key, ctx.arguments, ctx.options, ctx.inputs = kept, key, arguments, options, inputs
        return kept._ask(key, lambda: _detached(kept._subject(*_copies(arguments), **options)))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        def gradients() -> Any:
            copies = [
                a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
                for a in ctx.arguments
            ]
            wanted = [c for c in copies if isinstance(c, torch.Tensor) and c.requires_grad]
            with torch.enable_grad():
                out = ctx.kept._subject(*copies, **ctx.options)
            outs = list(out if isinstance(out, (tuple, list)) else [out])
            pairs = [
                (o, c)
                for o, c in zip(outs, cotangents, strict=False)
                if isinstance(o, torch.Tensor) and o.requires_grad
            ]
            if not pairs:
                return tuple(torch.zeros_like(w) for w in wanted)
            return pullback(
                [o for o, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True, materialize_grads=True
            )

        asked_for = tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in ctx.arguments)
        found = ctx.kept._book.ask((ctx.key, "gradient", asked_for, _key(cotangents)), gradients, "")
        return None, None, None, None, *found


def is_promising(earlier: Mapping[str, Any], follows: Follows, is_wanted: Callable[[Any], bool]) -> bool:
    """Whether it is worth while to rehearse: as the earlier answers answer now, something on top of them is wanted."""
    return any(True for _ in _wanted(earlier, follows, is_wanted, Book()))


def rehearse(
    earlier: Mapping[str, Any], follows: Follows, is_wanted: Callable[[Any], bool], run: Callable[[Any], None]
) -> list[tuple[Any, str]]:
    """What would be right on top of the earlier answers and is wanted, with a note each. ``run`` puts the test's questions
    to it."""
    book = Book()
    found = [
        (right, note) for right, note in _wanted(earlier, follows, is_wanted, book) if _goes_well(partial(run, right))
    ]
    book.close()
    return found if book.is_steady else []


def _wanted(
    earlier: Mapping[str, Any], follows: Follows, is_wanted: Callable[[Any], bool], book: Book
) -> Iterator[tuple[Any, str]]:
    for right, note in follows(*(Kept(subject, book, (name,)) for name, subject in earlier.items())):
        if _goes_well(partial(is_wanted, right)):
            yield right, note


def _goes_well(try_: Callable[[], bool | None]) -> bool:
    """Not where the answer is no, or where there is none: on some earlier answers nothing can be built."""
    try:
        return try_() is not False
    except BrokenCheck:
        return False
    except Exception as error:
        by_student(error)
        return False


@contextmanager
def in_this_process(
    grade_id: str, student: Any, replacements: Mapping[str, Any]
) -> Iterator[tuple[Any, Collection[str]]]:
    """The student's answer with ``replacements`` under the names of earlier ones, and which of them it uses. In grading a
    sandbox does this; here it is done for answers that live in this process (banks)."""
    spaces = {id(space): space for space in _namespaces(student)}.values()
    missing = object()
    used = _reached(student) & set(replacements)
    before = [(space, {name: space.get(name, missing) for name in replacements}) for space in spaces]
    for space in spaces:
        space.update(replacements)
    try:
        yield student, used
    finally:
        for space, values in before:
            for name, value in values.items():
                if value is missing:
                    del space[name]
                else:
                    space[name] = value


def _namespaces(subject: Any) -> list[dict[str, Any]]:
    return [member.__globals__ for member in _functions(subject)]


def _functions(subject: Any) -> list[Any]:
    members = [subject, *vars(subject).values()] if isinstance(subject, type) else [subject]
    return [member for member in members if hasattr(member, "__globals__")]


def _reached(subject: Any) -> set[str]:
    """The global names that an answer uses, and those that what it uses uses."""
    found: set[str] = set()
    waiting = [(member.__code__, member.__globals__) for member in _functions(subject)]
    while waiting:
        code, space = waiting.pop()
        new = set(code.co_names) - found
        found |= new
        waiting += [(inner, space) for inner in code.co_consts if isinstance(inner, CodeType)]
        waiting += [
            (member.__code__, space)
            for name in new
            if name in space
            for member in _functions(space[name])
            if member.__globals__ is space
        ]
    return found


def _outcome(call: Callable[[], Any]) -> tuple[Any, StudentError | None]:
    try:
        return call(), None
    except Exception as error:
        return None, by_student(error)


def _same(one: tuple[Any, StudentError | None], other: tuple[Any, StudentError | None]) -> bool:
    if one[1] is not None or other[1] is not None:
        return (one[1] is None) == (other[1] is None)
    return _is_object(one[0]) == _is_object(other[0]) and (_is_object(one[0]) or _equal(one[0], other[0]))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
        )
    if isinstance(one, float) and one != one:
        return isinstance(other, float) and other != other
    return not difference(other, one, EQUAL)


def _is_object(value: Any) -> bool:
    """Whether a value can be asked something in turn."""
    return callable(value)


def _copies(values: tuple[Any, ...]) -> list[Any]:
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]


def _detached(value: Any) -> Any:
    return (
        tuple(map(_detached, value))
        if isinstance(value, (tuple, list))
        else (value.detach() if isinstance(value, torch.Tensor) else value)
    )


def _key(value: Any) -> Hashable:
    """Equal for equal arguments."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().to("cpu").contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() > 1 else repr(plain).encode()
        return str(plain.dtype), tuple(plain.shape), hashlib.sha256(data).digest()
    if isinstance(value, Mapping):
        return "dict", tuple((key, _key(item)) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return type(value).__name__, tuple(map(_key, value))
    if isinstance(value, Kept):
        return value._path
    return type(value).__name__, value if isinstance(value, (bool, int, float, str, type(None))) else id(value)
