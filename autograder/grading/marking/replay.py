"""Replays a script for one answer: block by block, each until its first miss."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch

from autograder.script.answer import Answer, Given, Raised, answer_of
from autograder.script.context import fill, watched
from autograder.script.question import Local, Question, Subject, plain
from autograder.script.script import Block, Exercise, Fault, FollowsDevice, Reached, Refuses, Script, Step, Unchanged
from autograder.script.verdict import UNANSWERED, Criterion

NO_VALUE = "It earns points only if a criterion on values holds, and none does yet."


@dataclass(eq=False)
class Record:
    """One step and the student's answer to it."""

    step: Step
    answer: Answer
    met: bool = False

    @property
    def means_unanswered(self) -> bool:
        return isinstance(self.answer, Raised) and self.answer.error.means_unanswered


@dataclass(eq=False)
class Trial:
    """The outcome of a script for one answer, before the diagnosis."""

    exercise: Exercise
    script: Script
    criteria: list[Criterion] = field(default_factory=list)
    missed: list[Block] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    named: list[str] = field(default_factory=list)  # causes that the steps themselves name
    names_first: bool = False  # whether the first block that missed is among these causes
    changes_in_place: bool = False
    note: str = ""

    @property
    def score(self) -> float:
        return sum(criterion.earned for criterion in self.criteria)

    @property
    def is_full(self) -> bool:
        return self.score == self.exercise.points

    @property
    def stopped(self) -> int:
        """The number of questions that stopped at an answer not written yet."""
        return sum(record.means_unanswered for record in self.records)


def replay(exercise: Exercise, script: Script, student: Any) -> Trial:
    """Put the script to the answer and count the points that it earns."""
    return _Replay(Trial(exercise, script), as_subject(student)).run()


def as_subject(answer: Any) -> Subject:
    """Return the object that probes can be put to. An answer that is no ``Subject`` yet lives in this process."""
    return answer if isinstance(answer, Subject) else Local(answer)


class _Replay:
    def __init__(self, trial: Trial, subject: Subject) -> None:
        self._trial, self._subject = trial, subject
        self._open: dict[Step, bool] = {}  # by step that is a gate: whether it was met
        self._met: dict[Step, Answer] = {}

    def run(self) -> Trial:
        trial = self._trial
        self._subject.begin([[(step, _for_all(step)) for step in block.steps] for block in trial.script.blocks])
        for block in trial.script.blocks:
            criterion = Criterion(block.name, block.points)
            trial.criteria.append(criterion)
            criterion.message = self._miss(block)
            if criterion.message:
                trial.missed.append(block)
            else:
                criterion.earned = block.points
        self._subject.begin(())  # no more questions
        pairs = list(zip(trial.script.blocks, trial.criteria, strict=True))
        if not any(block.golden and criterion.earned and self._gives_value(block) for block, criterion in pairs):
            is_blank = all(criterion.message == UNANSWERED for block, criterion in pairs if block.golden)
            for _, criterion in pairs:
                if criterion.earned:
                    criterion.earned, criterion.message = 0.0, UNANSWERED if is_blank else NO_VALUE
        return trial

    def _gives_value(self, block: Block) -> bool:
        """Whether any right answer in it was a value. On top of a known mistake that raises, an error can be right."""
        return any(isinstance(self._met.get(step), Given) for step in block.steps)

    def _miss(self, block: Block) -> str:
        """Ask the steps of a block until one misses, then the rest of that one's group. Returns the message."""
        misses: list[str] = []
        group = None
        for step in block.steps:
            if misses and (step.group is None or step.group != group):
                break
            if not all(self._open.get(gate.of, False) == gate.is_open_when for gate in step.needs):
                continue
            fault = self._fault(step)
            if step.is_gate:
                self._open[step] = fault is None
            elif fault is not None:
                self._trial.named += [sentence for sentence in fault.names if sentence not in self._trial.named]
                self._trial.names_first |= bool(fault.names) and not self._trial.missed
                misses.append(fault.message)
                group = step.group
        return "\n".join(dict.fromkeys(misses))

    def _fault(self, step: Step) -> Fault | None:
        if isinstance(step, Reached):
            return None
        self._subject.at(step, bool(self._met) and not self._trial.missed)
        answer, changed = asked(step, self._subject)
        record = Record(step, answer)
        if isinstance(step, Unchanged) and changed and isinstance(answer, Given):
            fault: Fault | None = step.changed(changed[0])
        else:
            fault = step.fault(answer, self._trial.exercise.returns)
            beside_values = isinstance(step, (Refuses, FollowsDevice))
            if beside_values and fault and isinstance(answer, Raised) and self._has_raised():
                fault = Fault(fault.message)  # names nothing: the answer fails where it is to give a value, too
        self._trial.changes_in_place |= bool(changed) and isinstance(answer, Given)
        if step.leaves_record or (step.remembers_errors and isinstance(answer, Raised)):
            record.met = fault is None
            self._trial.records.append(record)
        if fault is None:
            self._met[step] = answer
        return fault

    def _has_raised(self) -> bool:
        return any(isinstance(it.answer, Raised) for it in self._trial.records)


def _for_all(step: Step) -> Sequence[Question]:
    """Return the questions that are worth sending ahead: none if right answers skip this step."""
    return step.questions if all(gate.is_open_when for gate in step.needs) else ()


def asked(step: Step, subject: Subject) -> tuple[Answer, list[Any]]:
    """Return the answer to a step, and those of its watched arguments that the call has changed."""
    with _watching(step.watched) as changed:
        answer = answer_of(lambda: step.probe(subject))
    return Given(plain(answer.value)) if isinstance(answer, Given) else answer, changed


@contextmanager
def _watching(arguments: tuple[Any, ...]) -> Iterator[list[Any]]:
    """Collect in the yielded list the arguments that the block changes, and restore them at its end."""
    changed: list[Any] = []
    before = [given.detach().clone() if isinstance(given, torch.Tensor) else deepcopy(given) for given in arguments]
    token = watched.set(arguments)
    try:
        yield changed
    finally:
        watched.reset(token)
        for given, old in zip(arguments, before, strict=True):
            if not _is_as_before(given, old):
                changed.append(given)
            if isinstance(given, torch.Tensor):
                given.data = old
            else:
                fill(given, old)


def _is_as_before(given: Any, old: Any) -> bool:
    """Whether an argument is unchanged. A student's object in it is never asked, because its ``==`` could lie."""
    if type(given) is not type(old):
        return False
    if isinstance(old, torch.Tensor):
        return torch.equal(given.detach(), old)
    if isinstance(old, dict):
        return given.keys() == old.keys() and all(_is_as_before(given[key], old[key]) for key in old)
    if isinstance(old, (list, tuple)):
        return len(given) == len(old) and all(map(_is_as_before, given, old))
    return bool(given == old)
