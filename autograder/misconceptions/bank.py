"""The banks: known wrong solutions with the sentence that helps, and right ones that differ from the reference.

Entries are ordinary functions or classes in ``autograder/misconceptions/weekN.py``. Each carries the score it must
get, written down by hand. The same entries test the checks, feed the diagnosis and answer in the simulated classroom.
"""

import importlib
import inspect
import itertools
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.script.script import Mistake
from autograder.script.verdict import ROUNDED_TOO_FAR

__all__ = [
    "ROUNDED_TOO_FAR",
    "Mistake",
    "Solution",
    "bank",
    "edited",
    "family",
    "known_mistakes",
    "numbers",
    "right",
    "wrong",
]


@dataclass(frozen=True)
class Solution:
    """One entry: the object itself, its text as a student would type it, the score it must get, and its mistake."""

    assignment: str
    grade_id: str
    name: str
    subject: Any
    source: str
    score: float | None  # None: full marks
    says: str
    remembers: bool = False  # its answers depend on earlier calls, so they match a student's only by luck
    forgets_device: bool = False  # but is right in everything else

    @property
    def is_right(self) -> bool:
        return self.score is None or self.forgets_device

    def due(self, points: float) -> float:
        """Return the score that it must get in an exercise of this many points."""
        return float(points) if self.score is None else self.score


NAMES = {"math": math, "np": np, "torch": torch, "nn": nn, "F": F}  # what a notebook's set-up cell imports

_banks: dict[tuple[str, str], list[Solution]] = {}
_families: dict[tuple[str, str], tuple[Callable[[frozenset[str]], Any], dict[str, str]]] = {}


def wrong(assignment: str, grade_id: str, score: float, says: str, remembers: bool = False) -> Callable:
    """Register a wrong function or class with the points it must get and the sentence its author should read.

    One that ``remembers`` earlier calls is not compared with students' answers: the check itself must recognise it.
    """
    return _registering(assignment, grade_id, score, says, remembers=remembers)


def right(assignment: str, grade_id: str, score: float | None = None) -> Callable:
    """Register a right function or class that differs from the reference in form. A ``score`` means that it forgets the
    device of its arguments, and gets these points for the rest."""
    return _registering(assignment, grade_id, score, "", forgets_device=score is not None)


def edited(original: Any, name: str, score: float, says: str, *changes: tuple[str, str]) -> None:
    """Register a wrong version of a registered right solution: the same text, with ``(old, new)`` replaced."""
    solution = next(s for entries in _banks.values() for s in entries if s.subject is original)
    source = solution.source
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} stands {source.count(old)} times in {solution.name}")
        source = source.replace(old, new)
    namespace = dict(NAMES)
    exec(source, namespace)
    _register(Solution(solution.assignment, solution.grade_id, name, namespace[solution.grade_id], source, score, says))


def numbers(
    assignment: str, grade_id: str, name: str, answers: dict, score: float | None = None, says: str = ""
) -> None:
    """Register a hand computation; with ``score=None`` a right one."""
    lines = [f"    {key!r}: {value!r}," for key, value in answers.items()]
    source = "\n".join([f"{grade_id} = {{", *lines, "}"])
    as_floats = {key: float(value) for key, value in answers.items()}  # 256 and 256.0 are the same answer
    _register(Solution(assignment, grade_id, name, as_floats, source, score, says))


def family(assignment: str, grade_id: str, says: dict[str, str]) -> Callable:
    """Register ``build(mistakes) -> subject`` for mistakes that occur together: ``says`` has a sentence for each.

    The diagnosis knows every one of them and every pair, also those that nobody wrote into the bank.
    """

    def register(build: Callable[[frozenset[str]], Any]) -> Callable[[frozenset[str]], Any]:
        _families[assignment, grade_id] = build, says
        return build

    return register


def bank(assignment: str, grade_id: str) -> list[Solution]:
    """All entries of one exercise."""
    importlib.import_module(f"autograder.misconceptions.{assignment.split('_')[0]}")
    return _banks.get((assignment, grade_id), [])


def carried(assignment: str) -> frozenset[str]:
    """Return the sentences of mistakes that cost points only once, even if a later exercise of the week repeats them.
    The week's bank lists them by hand. It leaves out what each answer must see to by itself, such as its dtype or the
    arguments that it must refuse, and mistakes that skip the very thing that an exercise is about: on top of these, an
    answer that does nothing would be right."""
    week = importlib.import_module(f"autograder.misconceptions.{assignment.split('_')[0]}")
    return getattr(week, "CARRIED", frozenset())


@cache
def known_mistakes(assignment: str, grade_id: str) -> tuple[Mistake, ...]:
    """The wrong entries of the bank, then the family's mistakes one by one, then in pairs."""
    found: list[tuple[Any, tuple[str, ...]]] = [
        (solution.subject, (solution.says,))
        for solution in bank(assignment, grade_id)
        if solution.says and not solution.remembers
    ]
    build, says = _families.get((assignment, grade_id), (None, {}))
    if build is not None:
        for names in itertools.chain(itertools.combinations(says, 1), itertools.combinations(says, 2)):
            found.append((build(frozenset(names)), tuple(says[name] for name in names)))
    return tuple(Mistake(*mistake) for mistake in found)


def _registering(assignment: str, grade_id: str, score: float | None, says: str, **kind: bool) -> Callable:
    def register(subject: Any) -> Any:
        source = _as_answer(subject, grade_id)
        return _register(Solution(assignment, grade_id, subject.__name__, subject, source, score, says, **kind))

    return register


def _register(solution: Solution) -> Any:
    entries = _banks.setdefault((solution.assignment, solution.grade_id), [])
    if any(entry.name == solution.name for entry in entries):
        raise ValueError(f"two entries named {solution.name!r} in the bank of {solution.grade_id}")
    entries.append(solution)
    return solution.subject


def _as_answer(subject: Any, grade_id: str) -> str:
    """The entry's source, without decorators, under the name the exercise asks for."""
    text = _text(inspect.getfile(subject))  # `inspect.getsource` parses the whole file for each class
    line = 0 if inspect.isclass(subject) else subject.__code__.co_firstlineno - 1
    block = rf"^([ ]*)(def|class) {subject.__name__}\b.*\n(\1[ )].*\n|\n)*"
    found = re.compile(block, re.MULTILINE).search(text.split("\n", line)[-1])
    assert found is not None  # it was imported from there
    return re.sub(rf"\b{subject.__name__}\b", grade_id, textwrap.dedent(found[0])).rstrip()


@cache
def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
