"""Puts the course's functions in place of a student's earlier answers, for a later answer that calls them.

It does not matter what is wrong with the earlier answer: its values, its shapes, or that it is blank. The student's
code chooses the arguments of the course's functions, so their sizes are limited: these functions run in our memory.
"""

import ast
import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from inspect import isclass
from types import CodeType
from typing import Any

import torch

from autograder.course import Role
from autograder.errors import StudentError
from autograder.grading.messages import Task, TaskCell
from autograder.grading.sandbox.session import Session
from autograder.grading.source_names import (
    bound_names,
    defined_names,
    linking_names,
    mentioned_words,
    parsed_cell,
    without_names,
)
from autograder.script.answer import Absent

MOST_ELEMENTS = 2**24  # the largest product of all whole numbers in a call
TOO_LARGE = "these sizes are larger than any that is asked for"
LARGEST = 2**26  # the largest product of all sizes in a call, where the size of a tensor is its number of elements


@contextlib.contextmanager
def in_the_sandbox(
    task: Task, session: Session, name: str, student: Any, functions: Mapping[str, Any]
) -> Iterator[tuple[Any, Collection[str]]]:
    """Run the student's cell again with the course's functions in place of earlier answers. Yields the new answer and
    the names of the functions that it uses; an ``Absent`` if it uses none."""
    cell = _cell_of(task, name)
    names, words = _reached(cell, task.cells) if cell else (set(), set())
    used = words & set(functions)
    if cell is None or not used:
        yield Absent(name, ""), used
        return
    with contextlib.suppress(StudentError), contextlib.ExitStack() as until_graded:
        fresh: Any = Absent(name, "")
        with contextlib.suppress(StudentError):
            stand_ins = {key: functions[key] for key in functions if key in used}
            until_graded.enter_context(
                session.replacing(
                    {key: as_function(it) if isclass(it) else within_bounds(it) for key, it in stand_ins.items()},
                    modules={key for key, it in stand_ins.items() if isclass(it)},
                )
            )
            with contextlib.suppress(StudentError):  # a line below the definition may fail, as in the first run
                session.again(cell.id, without_names(cell.source, frozenset(used)))
            fresh = session.lookup([name]).get(name, fresh)
        yield fresh, names & used or used
    # What the cell takes from earlier answers when it runs must be the student's again.
    with contextlib.suppress(StudentError):
        session.again(cell.id, cell.source)


def _cell_of(task: Task, name: str) -> TaskCell | None:
    """Return the cell of an answer, or the student's own below it that defines it anew above its hidden tests."""
    cells = iter(task.cells)
    found = next((cell for cell in cells if cell.role == Role.ANSWER and name in cell.defines), None)
    for below in cells:
        if below.role == Role.TEST and below.points:
            break
        if below.role == Role.STUDENT and name in defined_names(below.source):
            found = below
    return found


def from_its_cell(task: Task, session: Session, name: str, student: Any) -> Any:
    """Run the student's cell again and return the new answer; the old one if that fails."""
    cell = _cell_of(task, name)
    with contextlib.suppress(StudentError):
        if cell is not None:
            session.again(cell.id, cell.source)
            return session.lookup([name]).get(name, student)
    return student


def _reached(cell: TaskCell, cells: list[TaskCell]) -> tuple[set[str], set[str]]:
    """Return the names that a cell uses, directly or through other cells, and all words in these cells: a name can also
    stand in a string."""
    names, words = set[str](), set[str]()
    waiting = [cell.source]
    while waiting:
        source = waiting.pop()
        new = linking_names(source) - names
        names |= new
        words |= mentioned_words(source)
        waiting += [
            other.source
            for other in cells
            if other.role != Role.TEST and other is not cell and new & _changed_by(other.source)
        ]
    return names, words


@lru_cache(maxsize=256)  # asked for every answer that lost points
def _changed_by(source: str) -> set[str]:
    """Return the names that a cell defines, or sets an attribute of, as in ``Layer.forward = forward``."""
    tree = parsed_cell(source)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)] if tree else []
    owners = [node.value for node in attributes if isinstance(node.ctx, ast.Store)]
    return bound_names(source) | {owner.id for owner in owners if isinstance(owner, ast.Name)}


def within_bounds(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for the student's code to call: it refuses arguments that could take too much memory here."""

    def bounded(*args: Any, **kwargs: Any) -> Any:
        _require_small_result((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return bounded


def as_function(cls: Any) -> Callable[..., Any]:
    """Return the function behind a module class for the student's code: parameters live there, modules run here.

    The function returns the shapes of the state_dict; with a state and inputs, the module's output. The module itself
    is on the meta device, where it takes no memory, whatever its sizes."""

    def asked(
        arguments: list[Any],
        options: dict[str, Any],
        state: dict[str, torch.Tensor] | None = None,
        inputs: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        with torch.device("meta"):
            module = cls(*arguments, **options)
        if state is None:
            return {name: list(value.shape) for name, value in module.state_dict().items()}
        _require_small((*inputs, *(named or {}).values()))
        return torch.func.functional_call(module, state, tuple(inputs), named, strict=True)

    return asked


def _require_small_result(values: tuple[Any, ...]) -> None:
    """Raise ``ValueError`` if these sizes are too large for products of two tensors and for masks of their scores."""
    masks = [value for value in values if isinstance(value, torch.Tensor) and value.dtype == torch.bool]
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.dtype != torch.bool]
    if not masks or not tensors:
        _require_small(values)
        return
    _require_small((*[value for value in values if type(value) is int], *sorted(tensors, key=torch.Tensor.numel)[-2:]))
    longest = [max((t.shape[-at] for t in tensors if t.ndim >= at), default=1) for at in range(1, 5)]
    scores = [longest[1], *longest[1:]]  # from the last size: keys, queries, leading dimensions
    if math.prod(max(1, size) for size in scores) > LARGEST or any(
        mask.ndim > 4 or any(size > scores[at] for at, size in enumerate(reversed(mask.shape))) for mask in masks
    ):
        raise ValueError(TOO_LARGE)


def _require_small(values: tuple[Any, ...]) -> None:
    numbers = [abs(int(value)) for value in values if type(value) is int or _is_whole_number(value)]
    if math.prod(max(1, number) for number in numbers) > MOST_ELEMENTS:
        raise ValueError(TOO_LARGE)
    sizes = [
        value.numel() if hasattr(value, "numel") else abs(value)
        for value in values
        if hasattr(value, "numel") or type(value) is int
    ]
    if math.prod(max(1, size) for size in sizes) > LARGEST:
        raise ValueError(TOO_LARGE)


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point()


@contextlib.contextmanager
def in_this_process(
    grade_id: str, student: Any, replacements: Mapping[str, Any]
) -> Iterator[tuple[Any, Collection[str]]]:
    """Yield the answer with ``replacements`` in place of earlier ones, and the names of those that it uses. This is for
    answers that live in this process (banks); in grading, ``in_the_sandbox`` does it."""
    spaces = {id(space := member.__globals__): space for member in _functions(student)}.values()
    missing = object()
    used = _used_by(student) & set(replacements)
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


def _functions(subject: Any) -> list[Any]:
    members = [subject, *vars(subject).values()] if isinstance(subject, type) else [subject]
    return [member for member in members if hasattr(member, "__globals__")]


def _used_by(subject: Any) -> set[str]:
    """Return the global names that an answer uses, directly or through other functions."""
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
