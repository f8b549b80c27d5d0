"""Turns a student's answers into verdicts: it replays an exercise's script on each, and a mistake costs points once.

There are two ways not to pay again. *Replaced*: an answer that calls an earlier one that lost points is graded once more
with the course's function in that one's place (`stand_ins`). *Carried*: an answer that repeats a mistake named in an earlier
exercise is graded once more on top of that mistake, which then gives the expected values.

The score does not depend on the device. An answer with full marks on another device than the CPU keeps them if it also
passes, on the CPU, the blocks that check no values. Every other answer gets its score on the CPU. Both scripts ask
whether it follows the device of its arguments.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from inspect import isclass, isfunction
from typing import Any

from autograder.errors import BrokenCheck
from autograder.grading.marking.diagnosis import Diagnosis, first_failure
from autograder.grading.marking.replay import Trial, as_subject, asked, replay
from autograder.grading.marking.result_cache import ResultCache
from autograder.grading.marking.stand_ins import in_this_process
from autograder.script.answer import Absent, Raised
from autograder.script.compare import significant_digits
from autograder.script.context import marker
from autograder.script.script import Entry, Exercise, Script
from autograder.script.verdict import ROUNDED_TOO_FAR, Verdict

ONE_SLIP = "Only `{}` is wrong; your other numbers are right. Compute it again; it may only be a typing slip."

Replacing = Callable[[str, Any, Mapping[str, Any]], AbstractContextManager[tuple[Any, Collection[str]]]]


@dataclass
class Marking:
    """The verdicts on one submission so far, and what the next ones need: the class's seed, the device and the cache.
    ``replacing(name of the answer, the answer, replacements by name)`` is a context that gives the answer with earlier
    answers replaced, and the names of the replacements that it uses."""

    seed: int = 0
    device: str = "cpu"
    cache: ResultCache = field(default_factory=ResultCache)
    verdicts: list[Verdict] = field(default_factory=list)
    replacing: Replacing = in_this_process
    # Given an answer's name and the answer, returns a fresh one that remembers no earlier question.
    anew: Callable[[str, Any], Any] = lambda name, student: student
    crashed: Callable[[], Collection[str]] = tuple  # answers that have hung or died: no other answer may call them
    overwritten: set[str] = field(default_factory=set)  # answers that a cell below their tests defines anew
    remarks: dict[str, str] = field(default_factory=dict)  # by answer: what to say above its verdict
    _marked: dict[str, Exercise] = field(default_factory=dict)

    def mark(self, exercise: Exercise, student: Any) -> Verdict:
        """Return the best verdict. The most expensive attempts come last, and only for answers that lose points."""
        try:
            verdict = exercise.nothing(student.reason) if isinstance(student, Absent) else self._best(exercise, student)
        except Exception as error:
            if type(error).__module__.startswith("autograder."):
                raise
            raise BrokenCheck(f"{exercise.grade_id}: {type(error).__name__}: {error}") from error
        self._marked[exercise.grade_id] = exercise
        self.verdicts.append(verdict)
        return verdict

    def _best(self, exercise: Exercise, student: Any) -> Verdict:
        best = replay(exercise, self.script(exercise, self.device), student)
        # The device must not change the score, so the CPU decides.
        if self.device != "cpu" and (not best.is_full or self._is_careless_at_home(exercise, student)):
            student = as_subject(student).with_answer(self.anew(exercise.grade_id, student))
            best = replay(exercise, self.script(exercise, "cpu"), student)
        if not best.is_full:
            best = self._with_replacements(best, student)
        named = self._named(best, None if best.is_full or best.note else self._is_right_alone(best, student))
        if not best.is_full and (again := self._carried(best, named, student)) is not None:
            best, named = again, self._named(again, None)
        return Verdict(
            exercise.grade_id,
            exercise.number,
            exercise.points,
            best.criteria,
            named,
            " ".join(filter(None, (self.remarks.get(exercise.grade_id), best.note))),
            stopped=best.stopped,
            names_first=best.names_first or not best.named,
        )

    def _is_careless_at_home(self, exercise: Exercise, student: Any) -> bool:
        """Whether the answer misses a block on the CPU that checks no values. It may change its argument there alone,
        because only there ``x.cpu()`` is x and not a copy."""
        manners = Script([block for block in self.script(exercise, "cpu").blocks if not block.golden])
        return bool(replay(exercise, manners, student).missed)

    def script(self, exercise: Exercise, device: str, right: Any = None) -> Script:
        """Return the exercise's script. ``right`` gives the expected answers: the right object or a known mistake."""
        right = exercise.right if right is None else right
        found: Script = self.cache.recall(
            (exercise, id(right), device), lambda: exercise.write(right, self.seed, device)
        )
        return found

    def _named(self, trial: Trial, is_right_alone: bool | None) -> list[str]:
        """Name the cause. If the first failure ``is_right_alone``, that is what other calls left behind."""
        found = Diagnosis(self.cache).sentences(
            trial.records, trial.exercise.mistakes, trial.changes_in_place, is_right_alone
        )
        trial.names_first |= bool(found)
        return _of_entries(trial, list(dict.fromkeys(found + trial.named)))

    def _is_right_alone(self, trial: Trial, student: Any) -> bool | None:
        """Whether a fresh answer gets the first failure right, since earlier calls may have left something behind;
        ``None`` if there is none to ask."""
        first = first_failure(trial.records)
        if first is None or (isinstance(first.answer, Raised) and first.answer.error.was_stopped):
            return None
        fresh = self.anew(trial.exercise.grade_id, student)
        if fresh is student:
            return None
        answer, _ = asked(first.step, as_subject(student).with_answer(fresh))
        return first.step.fault(answer, trial.exercise.returns) is None

    # ---- replaced

    def _with_replacements(self, best: Trial, student: Any) -> Trial:
        lost = self._lost(best.exercise)
        other, called = self._replaced(best, student, lost)
        if other is None:
            return best
        if other.score < best.score or (other.score == best.score and not self._shows_more(other, best, student)):
            best.named = [cause for cause in best.named if cause in other.named]  # the others are an earlier answer's
        else:
            best = other
        if not best.is_full and len(called) > 1:
            # An answer may make up for one of them, as for a wrong sign: then only the others are to be replaced.
            for name in called:
                alone, _ = self._replaced(best, student, {name: lost[name]})
                best = alone if alone is not None and alone.score > best.score else best
        return best

    def _replaced(self, best: Trial, student: Any, lost: Mapping[str, Any]) -> tuple[Trial | None, list[str]]:
        """Grade the answer with earlier ones replaced. Returns ``None`` if it calls none of them, and those it calls."""
        if not lost:
            return None, []
        with self.replacing(best.exercise.grade_id, student, lost) as (again, used):
            if isinstance(again, Absent) or not used:
                return None, []
            other = replay(best.exercise, best.script, as_subject(student).with_answer(again))
        called = [name for name in lost if name in used]
        unanswered = {verdict.exercise for verdict in self.verdicts if verdict.stopped}
        blank = [name for name in called if name in unanswered] if best.stopped > other.stopped else []
        anew = [name for name in called if name in self.overwritten]
        reason = "a mistake there is not paid for again"
        if anew:
            reason = f"a cell below the tests defines {', '.join(anew)} anew"
        other.note = _note([self._marked[name].name for name in blank or called], bool(blank), reason)
        return other, called

    def _shows_more(self, other: Trial, best: Trial, student: Any) -> bool:
        """Whether ``other``, with earlier answers replaced, says more about this answer although it earns no more. Where
        both are wrong, only it shows the answer's own mistake, unless that is what calls leave behind."""
        if other.stopped or best.stopped:
            return other.stopped < best.stopped
        if _raises(other) and not _raises(best):
            return False
        return not self._is_right_alone(best, student)

    def _lost(self, exercise: Exercise) -> dict[str, Any]:
        """Return the course's functions and classes, by name, for earlier answers that lost points, crashed or are
        overwritten."""
        crashed, lost = self.crashed(), {}
        for verdict in self.verdicts:
            earlier = self._marked.get(verdict.exercise)
            if earlier is None or earlier is exercise or not (isfunction(earlier.right) or isclass(earlier.right)):
                continue
            if verdict.score < verdict.max_score or verdict.exercise in (*crashed, *self.overwritten):
                lost[verdict.exercise] = earlier.right
        return lost

    # ---- carried

    def _carried(self, best: Trial, named: list[str], student: Any) -> Trial | None:
        """Grade the answer on top of a known mistake that it repeats; ``None`` if that earns no more."""
        exercise = best.exercise
        for sentence in named:
            earlier = self._named_before(exercise, sentence)
            if earlier is None:
                continue
            for mistake in exercise.mistakes():
                if mistake.says != (sentence,):
                    continue
                other = replay(exercise, self.script(exercise, "cpu", mistake.subject), student)
                if other.score > best.score:
                    other.note = f"The same mistake as in your {earlier.name}: it is not paid for again."
                    return other
        return None

    def _named_before(self, exercise: Exercise, sentence: str) -> Exercise | None:
        if sentence not in exercise.carried():
            return None
        names = (v.exercise for v in self.verdicts if sentence in v.named and v.exercise != exercise.grade_id)
        return next((self._marked[name] for name in names if name in self._marked), None)


@contextmanager
def grading(seed: int = 0, device: str = "cpu", cache: ResultCache | None = None) -> Iterator[Marking]:
    """The context in which hidden tests run. Outside of it they end the process."""
    marking = Marking(seed, device, cache or ResultCache())
    token = marker.set(marking.mark)
    try:
        yield marking
    finally:
        marker.reset(token)


def _raises(trial: Trial) -> bool:
    """Whether the first answer that is not right is an error."""
    first = first_failure(trial.records)
    return first is not None and isinstance(first.answer, Raised)


def _of_entries(trial: Trial, named: list[str]) -> list[str]:
    """Return what to say of a hand computation: rounded too far, a slip in one entry, or else what ``named`` says."""
    entries = [(it.step, it.step.number(it.answer), it.met) for it in trial.records if isinstance(it.step, Entry)]
    wrong = [(step, number) for step, number, met in entries if not met]
    rounded = [number for step, number in wrong if number is not None and step.is_rounded(number, float(step.due))]
    if wrong and len(rounded) == len(wrong) and any(significant_digits(number) > 1 for number in rounded):
        return [ROUNDED_TOO_FAR]
    if not named and len(wrong) == 1 and wrong[0][1] is not None and len(entries) > 2:
        return [ONE_SLIP.format(wrong[0][0].key)]
    return named


def _note(names: list[str], stopped: bool, reason: str) -> str:
    own = ", ".join(names)
    if stopped:
        is_, its = ("is", "its") if len(names) == 1 else ("are", "their")
        return f"It stops in your {own}, which {is_} not answered yet; graded with the course's own in {its} place."
    return f"Graded with the course's own in place of your {own}: {reason}."
