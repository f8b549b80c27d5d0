"""How a hidden test is written: `exercise` makes one, `Check` is the bench on which an answer lies.

Inputs and criteria are here; what is asked of an object is in `probes`, what surrounds a test in `context`, how a cause
is found in `diagnosis`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import isclass, isfunction, signature
from typing import Any, NoReturn

import torch

import autograder.reference
from autograder.checks.compare import (
    Tolerance,
    a_tensor,
    difference,
    is_count,
    is_rounded,
    kind,
    off,
    significant_digits,
)
from autograder.checks.context import GradingContext, current, grading, watched
from autograder.checks.diagnosis import Diagnosis, Hint, Place, Record
from autograder.checks.errors import Absent, BrokenCheck, Miss, StudentError, by_student
from autograder.checks.follow_through import Follows, is_promising, rehearse
from autograder.checks.plan import Recorder
from autograder.checks.probes import Probe, calling, calling_again, calling_refilled, differentiating, gradient
from autograder.checks.result_cache import ResultCache
from autograder.checks.verdict import Criterion, Verdict
from autograder.grading.sandbox.prefetch import Plan
from autograder.manifest import MANIFEST, entry
from autograder.misconceptions.bank import ROUNDED_TOO_FAR, Mistake, known_mistakes

__all__ = [
    "Absent",
    "BrokenCheck",
    "Check",
    "GradingContext",
    "Hint",
    "Miss",
    "Probe",
    "StudentError",
    "calling",
    "differentiating",
    "exercise",
    "gradient",
    "grading",
    "watched",
]

Body = Callable[["Check"], None]
Begins = Callable[[str], None]


NO_VALUE = "This holds, but it earns points only together with a right value, and none of yours is right yet."
NOT_NEW = "your result is an argument, or the result of an earlier call: writing to it changes that one, too. Return a new tensor."
NOT_ANEW = (
    "a first call is right, a second one is not after the entries of the same tensors have changed. (What you keep from a call "
    "must go by the entries.)"
)


ONE_SLIP = "Only `{}` is wrong; your other numbers are right. Compute it again, and look for a typing slip."


def _as_it_is(probe: Probe) -> Probe:
    return probe


def _ignore(block: str) -> None:
    """What becomes of a block's name where nobody waits for it."""


_references: dict[tuple[str, str], Any] = {}


def exercise(
    assignment: str,
    grade_id: str,
    reference: Any = None,
    follows: Follows | None = None,
    returns: tuple[str, ...] = (),
    trivial: tuple[Any, ...] = (),
) -> Callable[[Body], Callable[..., Verdict]]:
    """Turn ``body(check)`` into the hidden test ``test(student)``.

    ``reference`` is the right object; by default the reference kernel of the same name. ``returns`` are the names of
    several results, for messages. The points come from the manifest. Called outside ``grading()``, that is in an
    ordinary kernel without the course's configuration, the test ends the process: no grade is better than a wrong one.

    A mistake is paid for once (see `follow_through`): an answer that loses points is graded again with the course's
    functions in place of those earlier answers that have lost some. Where it may repeat an earlier mistake without a
    call, the hidden cell hands the earlier answers to the test too, ``test(student, earlier, ...)``, and
    ``follows(earlier, ...)``, its parameters called like the exercises, gives what would be right on top of them. Of
    ``trivial`` nothing may earn more there than against the reference. The student gets the best verdict.
    """

    def decorate(body: Body) -> Callable[..., Verdict]:
        right = reference if reference is not None else getattr(autograder.reference, grade_id)
        _references[assignment, grade_id] = right

        def test(student: Any, *earlier: Any) -> Verdict:
            context = current()
            if context is None:
                _refuse()
            bench = _Bench(assignment, grade_id, body, right, context, returns)
            verdict = bench.judge(student, earlier, follows, trivial)
            context.verdicts.append(verdict)
            return verdict

        test.__name__, test.__doc__ = grade_id, body.__doc__
        return test

    return decorate


@dataclass
class _Bench:
    """One exercise of one student: as it is, with earlier answers replaced, on top of earlier answers."""

    assignment: str
    grade_id: str
    body: "Body"
    right: Any
    context: GradingContext
    returns: tuple[str, ...]
    _own: dict[Any, ResultCache] = field(default_factory=dict)

    def judge(
        self, student: Any, earlier: tuple[Any, ...], follows: Follows | None, trivial: tuple[Any, ...]
    ) -> Verdict:
        """The best verdict. What costs most is tried last, and not where it can earn nothing."""
        if isinstance(student, Absent):
            return self._check(self.right, student).absent(student.reason)
        answers: dict[Place, Record] = {}
        best = first = self._asked_ahead(student, answers)
        if not best.is_full:
            best = self._with_replacements(student, best)
        if follows and earlier and not best.is_full:
            for right, note in self._rehearsed(follows, earlier, first.check):
                if not best.is_full:
                    other = self._tried(right, student, answers, note)
                    if other.score > best.score and self._leaves_something_to_test(right, trivial):
                        best = other
        return self._verdict(best)

    def _asked_ahead(self, student: Any, answers: dict[Place, Record]) -> "_Trial":
        """The first trial: only there is it known beforehand what is going to be asked."""
        is_remote = getattr(type(student), "is_remote", False)
        if not is_remote or not callable(self.right) or self.grade_id in self.context.doubtful:
            return self._tried(self.right, student, answers)
        with self._broken():
            plan = self.context.cache.recall(("plan", self.assignment, self.grade_id), self._plan)
        student.foresee(plan)
        trial = self._tried(self.right, student, answers, begins=student.begin)
        student.foresee(())
        return trial

    def _plan(self) -> Plan:
        recorder = Recorder(self.right)
        self.body(self._check(self.right, recorder.subject, bench=partial(_Planning, recorder)))
        return recorder.steps

    def _rehearsed(self, follows: Follows, earlier: tuple[Any, ...], first: "Check") -> list[tuple[Any, str]]:
        """What would be right on top of earlier answers, and where ``first`` could earn more than it does."""
        names = list(signature(follows).parameters)
        scores = {verdict.exercise: verdict.score == verdict.max_score for verdict in self.context.verdicts}
        answers = dict(zip(names, earlier, strict=False))
        if (
            all(scores.get(name, False) for name in names)
            or not is_promising(answers, follows, first.may_follow_from)
            or not self.context.forget()
        ):
            return []
        return rehearse(answers, follows, first.may_follow_from, self._rehearsal)

    def _rehearsal(self, right: Any) -> None:
        """Put every question of the test to what would be right on top of earlier answers."""
        check = self._check(right, right, bench=_Rehearsal)
        self.body(check)
        if failed := [record.error for record in check._records if record.error is not None]:
            raise failed[0]

    def _with_replacements(self, student: Any, best: "_Trial") -> "_Trial":
        lost = self._lost()
        if not lost:
            return best
        with self.context.replacing(self.grade_id, student, lost) as (again, used):
            if isinstance(again, Absent):
                return best
            mended = student.with_answer(again) if hasattr(student, "with_answer") else again
            if not best.check.may_be_mended_by(mended):
                return best
            other = self._tried(self.right, mended, {})
        if other.score < best.score or (other.score == best.score and other.stopped >= best.stopped):
            return best
        called = [name for name in lost if name in used] or list(lost)
        unanswered = {verdict.exercise for verdict in self.context.verdicts if verdict.stopped}
        blank = [name for name in called if name in unanswered] if best.stopped > other.stopped else []
        return replace(other, note=_note(self.assignment, blank or called, bool(blank)))

    def _lost(self) -> dict[str, Any]:
        """The course's functions and classes for those earlier answers that have lost points, or are not called any more."""
        verdicts = {verdict.exercise: verdict for verdict in self.context.verdicts}
        crashed = self.context.crashed()
        lost = {}
        for earlier in MANIFEST.get(self.assignment, ()):
            if earlier.grade_id == self.grade_id:
                break
            verdict, right = verdicts.get(earlier.grade_id), _references.get((self.assignment, earlier.grade_id))
            has_lost = verdict and (verdict.score < verdict.max_score or earlier.grade_id in crashed)
            if has_lost and (isfunction(right) or isclass(right)):
                lost[earlier.grade_id] = right
        return lost

    def _leaves_something_to_test(self, right: Any, trivial: tuple[Any, ...]) -> bool:
        """Whether what answers nothing earns nothing on top of an earlier answer either."""
        return not any(self._score(right, subject) > self._score(self.right, subject) for subject in trivial)

    def _score(self, right: Any, subject: Any) -> float:
        check = self._check(right, subject)
        self.body(check)
        return sum(criterion.earned for criterion in check.scored())

    def _tried(
        self, right: Any, student: Any, answers: dict[Place, Record], note: str = "", begins: Begins = _ignore
    ) -> "_Trial":
        check = self._check(right, student, answers, begins=begins)
        with self._broken():
            self.body(check)
            return _Trial(check, note, sum(criterion.earned for criterion in check.scored()))

    def _verdict(self, trial: "_Trial") -> Verdict:
        with self._broken():
            return replace(trial.check.verdict(), note=trial.note)

    @contextmanager
    def _broken(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith("autograder."):
                raise
            raise BrokenCheck(f"{self.grade_id}: {type(error).__name__}: {error}") from error

    def _check(
        self,
        right: Any,
        student: Any,
        answers: dict[Place, Record] | None = None,
        bench: Callable[..., "Check"] | None = None,
        begins: Begins = _ignore,
    ) -> "Check":
        """``bench`` is `Check` itself unless told otherwise. What is right for this student alone is remembered for the
        student alone; what known mistakes give is the same on top of any earlier answer."""
        known = self.context.cache if right is self.right else self._own.setdefault(right, ResultCache())
        return (bench or Check)(
            self.assignment, self.grade_id, right, student, self.context, answers, self.returns, known, begins
        )


@dataclass(frozen=True)
class _Trial:
    """A test that was run, before its cause is looked for: only the best trial's is."""

    check: "Check"
    note: str
    score: float

    @property
    def is_full(self) -> bool:
        return self.score == entry(self.check.assignment, self.check.grade_id).points

    @property
    def stopped(self) -> int:
        return self.check.stopped


def _note(assignment: str, names: list[str], stopped: bool) -> str:
    own = ", ".join(f"{entry(assignment, name).number} (`{name}`)" for name in names)
    if stopped:
        is_, its = ("is", "its") if len(names) == 1 else ("are", "their")
        return f"It stops in your {own}, which {is_} not answered yet; graded with the course's own in {its} place."
    return f"Graded with the course's own in place of your {own}: a mistake there is not paid for again."


def _refuse() -> NoReturn:
    print(
        "Hidden tests run only in the course's grader. Start nbgrader where nbgrader_config.py is, "
        "or use `make autograde`.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(70)


class Check:
    """The student's object on the bench: draws inputs, runs probes, collects criteria."""

    def __init__(
        self,
        assignment: str,
        grade_id: str,
        reference: Any,
        student: Any,
        context: GradingContext,
        answers: dict[Place, Record] | None = None,
        returns: tuple[str, ...] = (),
        known: ResultCache | None = None,
        begins: Begins = _ignore,
    ) -> None:
        # The student's values by place: each question is put once, however often it is judged what is right.
        self._answers = {} if answers is None else answers
        self._returns = returns
        self.assignment, self.grade_id = assignment, grade_id
        self.reference, self.student, self.device = reference, student, context.device
        self.seed, self.generator = context.seed, torch.Generator()
        self._cache = context.cache  # of what known mistakes give
        self._known = context.cache if known is None else known  # of what is right
        self._begins = begins  # is told of each block before its first question
        self._begin("")
        self._criteria: list[tuple[Criterion, bool]] = []
        self._missed: list[str] = []  # blocks
        self._records: list[Record] = []
        self._named: list[str] = []
        self._entries: list[_Entry] = []  # of a hand computation
        self._in_place = False

    # ---- inputs -------------------------------------------------------------------------------------------------

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers from the class's seed, on the device under test."""
        self._note_draw("normal", shape)
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(self.device, dtype)

    def randint(self, low: int, high: int, shape: tuple[int, ...] = (1,)) -> torch.Tensor:
        """Integers ``low <= n < high`` from the class's seed, on the device under test."""
        self._note_draw(low, high, shape)
        return torch.randint(low, high, shape, generator=self.generator).to(self.device)

    def randperm(self, n: int) -> torch.Tensor:
        self._note_draw("order", n)
        return torch.randperm(n, generator=self.generator).to(self.device)

    # ---- criteria -----------------------------------------------------------------------------------------------

    @contextmanager
    def criterion(self, name: str, points: float, golden: bool = False) -> Iterator[None]:
        """A block that earns ``points`` if nothing in it misses. Golden blocks check values; the others count only
        if some golden block held."""
        criterion = Criterion(name, points)
        self._criteria.append((criterion, golden))
        self._begin(name)  # every student of the class meets the same inputs, whatever was missed before
        try:
            yield
        except Miss as miss:
            criterion.message = str(miss)
            self._missed.append(name)
        else:
            criterion.earned = points

    def agrees(self, probe: Probe, call: str, tolerance: Tolerance = Tolerance(), hint: Hint | str = "") -> Any:
        """The student's value of ``probe`` is the reference's; returns it. ``call`` says what was called.

        ``hint`` names the likely cause if no known mistake reproduces the failure. The earlier probes of the block
        held then: a block that goes from the plain to the awkward knows what a failure at this place means.
        """
        place = self._place(call)
        record = self._run(probe, call, place, tolerance, hint)
        expected = self._expected(probe, place)
        if problem := difference(record.got, expected, tolerance, self._returns):
            raise Miss(f"{call}: {problem}")
        record.met = True
        return record.got

    def holds(self, probe: Probe, call: str, tolerance: Tolerance = Tolerance()) -> bool:
        """Whether the student's value is the reference's: for what is asked only then, as it was paid for elsewhere."""
        try:
            self.agrees(probe, call, tolerance)
        except Miss:
            return False
        finally:
            self._records.pop()
        return True

    def answers(self, probe: Probe, call: str) -> bool:
        """Whether the student's object gives a value, whatever it is: for what is asked only then."""
        try:
            self.value(probe, call)
        except Miss:
            self._records.pop()
            return False
        return True

    def value(self, probe: Probe, call: str) -> Any:
        """The student's value of ``probe``, not compared; for properties of one's own."""
        place = self._place(call)
        record = self._run(probe, call, place)
        self._expected(probe, place)
        self._records.remove(record)
        return record.got

    def entries(self, *keys: str, tolerance: Tolerance) -> None:
        """The entries of a hand computation: each one is looked at, so that every slip leaves a trace."""
        misses = []
        for key in keys:
            self._entries.append(entry := _Entry(key))
            try:
                self.agrees(_look_at(key), f"entry {key!r}", tolerance)
            except Miss as miss:
                record = self._records[-1]
                entry.is_wrong = True
                if record.error is None and record.got is None:
                    misses.append(f"entry {key!r}: not answered yet")
                elif record.error is not None and "KeyError" in record.error.type_names:
                    misses.append(f"entry {key!r} is missing")
                elif (number := _number(record.got)) is not None:  # the number that is expected is never shown
                    expected = float(self._expected(record.probe, record.place))
                    misses.append(f"entry {key!r}: {off(number, expected, is_count(tolerance))}")
                    entry.number = number
                    entry.is_rounded = not is_count(tolerance) and is_rounded(number, expected)
                else:
                    misses.append(str(miss))
        if misses:
            raise Miss("\n".join(misses))

    def require(self, condition: bool, message: str, names: bool = False) -> None:
        """A property. ``names`` says that the message itself tells the misconception."""
        if not condition:
            if names:
                self.name(message)
            raise Miss(message)

    def has_dtype(self, probe: Probe, dtype: torch.dtype, call: str) -> None:
        """The student's value of ``probe`` is a tensor of this dtype, whatever is in it."""
        known = [record.got for record in self._records if record.probe is probe and record.met]
        got = known[0] if known else self.value(probe, call)
        self.require(
            getattr(got, "dtype", None) == dtype,
            f"{call} must return {a_tensor(dtype)}; yours returns {kind(got)}.",
            names=True,
        )

    def raises(self, probe: Probe, error: type[Exception], call: str) -> None:
        """The student's object refuses with ``error``, and when it is asked again: what a refused call has left behind answers
        the next one."""
        self._refuses(probe, error, call, "yours returns a value.")
        self._refuses(probe, error, call, "yours does the first time, and then returns a value.")

    def _refuses(self, probe: Probe, error: type[Exception], call: str, otherwise: str) -> None:
        place = self._place(call)
        try:
            self._expected(probe, place)
        except BrokenCheck:
            pass
        else:
            raise BrokenCheck(f"the reference accepts {call}")
        wanted = error.__name__
        try:
            self._records.remove(self._run(probe, call, place))
        except Miss:
            raised = self._records.pop().error
            if raised is None or raised.means_unanswered:
                raise
            if wanted in raised.type_names:
                return
            if not raised.was_stopped:
                self.name(f"{call} must raise {wanted}; yours raises {raised.kind}.")
            raise Miss(f"{call}: expected {wanted}, got {raised.describe()}") from None
        self.name(f"{call} must raise {wanted}; {otherwise}")
        raise Miss(f"{call}: expected {wanted}, but nothing was raised")

    def unchanged(self, probe: Probe, call: str, *arguments: torch.Tensor | list[int]) -> None:
        """Calling the student's object leaves ``arguments`` as they were."""
        before = [list(given) if isinstance(given, list) else given.detach().clone() for given in arguments]
        place = self._place(call)
        token = watched.set(arguments)
        try:
            self._records.remove(self._run(probe, call, place))
        finally:
            watched.reset(token)
            changed = [given for given, old in zip(arguments, before, strict=True) if not _is_as_before(given, old)]
            for given, old in zip(arguments, before, strict=True):  # before the reference gets them
                _restore(given, old)
        self._expected(probe, place)
        self._in_place |= bool(changed)
        kind_of = "list" if changed and isinstance(changed[0], list) else "tensor"
        self.require(not changed, f"{call} changes its argument in place; work on a new {kind_of}.", names=True)

    def keeps(self, invoke: Callable[..., Any], call: str, *arguments: torch.Tensor) -> None:
        """``invoke(subject, *arguments)`` leaves the arguments as they were, in float64, too: there ``x.double()`` is x."""
        wide = [argument.double() if argument.is_floating_point() else argument.clone() for argument in arguments]
        for given, words in ((list(arguments), ""), (wide, " in float64")):
            self.unchanged(_invoking(invoke, given), f"{call}{words}", *given)

    def returns_new(self, call: str, *arguments: Any, tolerance: Tolerance = Tolerance()) -> None:
        """What the student's function returns is neither an argument nor kept: writing to it changes nothing else."""
        if self.holds(calling(*arguments), call, tolerance):
            again = f"{call}, after the result of an equal call was overwritten"
            self.require(self.holds(calling_again(*arguments), again, tolerance), f"{call}: {NOT_NEW}", names=True)

    def looks_anew(
        self, call: str, *arguments: Any, tolerance: Tolerance = Tolerance(), look: Callable[[Probe], Probe] = _as_it_is
    ) -> None:
        """The student's function goes by what is in its tensors, not by which tensors they are. Give it new ones: of those that
        were asked about before, something right may be remembered. ``look`` makes a probe of a probe."""
        again = f"{call}, the same tensors as before with other entries"
        if not self.holds(look(calling_refilled(*arguments)), again, tolerance):
            is_right = self.holds(look(calling(*arguments)), call, tolerance)
            self.require(not is_right, f"{call}: {NOT_ANEW}", names=True)

    def name(self, sentence: str) -> None:
        """Tell the student the likely cause in one sentence."""
        if sentence not in self._named:
            self._named.append(sentence)

    # ---- the end ------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Points per criterion, with the misconceptions recognised."""
        points, criteria = entry(self.assignment, self.grade_id), self.scored()
        diagnosis = Diagnosis(
            self._mistaken, lambda record: self._expected(record.probe, record.place), self._known
        ).sentences(self._records, lambda: known_mistakes(self.assignment, self.grade_id), self._in_place)
        named = list(dict.fromkeys(diagnosis + self._named))
        return Verdict(
            self.grade_id,
            points.number,
            points.points,
            criteria,
            self._of_entries(named),
            stopped=self.stopped,
        )

    def _of_entries(self, named: list[str]) -> list[str]:
        """What is to be said of a hand computation: a slip in one entry has no other name than that."""
        wrong = [entry for entry in self._entries if entry.is_wrong]
        if wrong and all(entry.is_rounded for entry in wrong) and any(significant_digits(e.number) > 1 for e in wrong):
            return [ROUNDED_TOO_FAR]
        if not named and len(wrong) == 1 and wrong[0].number is not None and len(self._entries) > 2:
            return [ONE_SLIP.format(wrong[0].key)]
        return named

    @property
    def stopped(self) -> int:
        """How many questions met an answer that is not there yet."""
        return sum(record.error is not None and record.error.means_unanswered for record in self._records)

    def scored(self) -> list[Criterion]:
        """Points per criterion, gated by the golden ones."""
        points = entry(self.assignment, self.grade_id)
        total = sum(criterion.points for criterion, _ in self._criteria)
        if abs(total - points.points) > 1e-9:
            raise BrokenCheck(f"{self.grade_id}: the criteria add up to {total:g}, the manifest says {points.points}")
        if not any(golden and criterion.earned for criterion, golden in self._criteria):
            for criterion, _golden in self._criteria:
                if criterion.earned:
                    criterion.earned, criterion.message = 0.0, NO_VALUE
        return [criterion for criterion, _ in self._criteria]

    def may_follow_from(self, right: Any) -> bool:
        """Whether more could be earned if ``right`` were right. Asks it only what a block has missed."""
        return self._may_hold(
            lambda record: (
                record.error is None
                and not difference(record.got, record.probe(right), record.tolerance, self._returns)
            )
        )

    def may_be_mended_by(self, student: Any) -> bool:
        """Whether more could be earned by ``student`` in place of the answer. Asks it only what a block has missed."""

        def holds(record: Record) -> bool:
            if record.error is not None and record.error.means_unanswered:
                return True
            try:
                got = record.probe(student)
            except Exception as error:
                by_student(error)
                return False
            if record.error is not None:  # of what it stopped at, not every value is compared
                return True
            expected = self._expected(record.probe, record.place)
            return not difference(got, expected, record.tolerance, self._returns)

        return self._may_hold(holds)

    def _may_hold(self, holds: Callable[[Record], bool]) -> bool:
        """Whether any block that has missed something could do without: all but properties can be asked once more."""
        for block in self._missed:
            missed = [record for record in self._records if record.place[2] == block and not record.met]
            if not missed or any(map(holds, missed)):
                return True
        return False

    def absent(self, reason: str) -> Verdict:
        """The verdict on an answer that is not there: nothing was run."""
        points = entry(self.assignment, self.grade_id)
        return Verdict(
            self.grade_id, points.number, points.points, [Criterion("an answer", points.points, 0.0, reason)], [reason]
        )

    def _mistaken(self, mistake: Mistake, record: Record) -> Any:
        return self._cache.recall((record.place, mistake), lambda: record.probe(mistake.subject))

    def _begin(self, name: str) -> None:
        """A block: its inputs are drawn from a generator of their own."""
        self._block, self._asked = name, 0
        self._draws = seed = _mix(self.seed, f"{self.assignment}/{self.grade_id}/{name}")
        self.generator.manual_seed(seed)
        self._begins(name)

    def _place(self, call: str) -> Place:
        """The how-manieth question of which block this is, after which draws."""
        self._asked += 1
        return (
            self.assignment,
            self.grade_id,
            self._block,
            self._asked,
            call,
            self._draws,
        )

    def _note_draw(self, *what: Any) -> None:
        """Beside the seed, all that the state of the block's generator depends on."""
        self._draws = hash((self._draws, what))

    def _expected(self, probe: Probe, place: Place) -> Any:
        try:
            return self._known.recall(place, lambda: probe(self.reference))
        except Exception as error:
            raise BrokenCheck(f"{self.grade_id}: the reference fails its own check: {error!r}") from error

    def _run(
        self, probe: Probe, call: str, place: Place, tolerance: Tolerance = Tolerance(), hint: Hint | str = ""
    ) -> Record:
        record = Record(probe, place, tolerance, hint)
        self._records.append(record)
        known = None if watched.get() else self._answers.get(place)
        self._answers[place] = record
        try:
            if known is not None and known.error is not None:
                raise known.error
            record.got = probe(self.student) if known is None else known.got
            return record
        except Exception as error:  # in banks student code raises here; or a probe met a value of wrong kind
            record.error = by_student(error)
        if record.error.means_unanswered:
            raise Miss("not answered yet (the cell still raises NotImplementedError)")
        raise Miss(f"{call} raised {record.error.describe()}")


class _Rehearsal(Check):
    """The test put to what is right: each question once, as the answer and what is expected are one."""

    def _run(
        self, probe: Probe, call: str, place: Place, tolerance: Tolerance = Tolerance(), hint: Hint | str = ""
    ) -> Record:
        record = Record(probe, place, tolerance, hint)
        self._records.append(record)
        try:
            record.got = self._known.recall(place, lambda: self._answer(probe))
        except Exception as error:
            record.error = by_student(error)
            raise Miss(f"{call} raised {record.error.describe()}") from None
        return record

    def _answer(self, probe: Probe) -> Any:
        return probe(self.reference)


class _Planning(_Rehearsal):
    """The same, and what is asked is written down."""

    def __init__(self, recorder: Recorder, *arguments: Any) -> None:
        self._recorder = recorder
        super().__init__(*arguments)

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._recorder.begin(name)

    def _run(
        self, probe: Probe, call: str, place: Place, tolerance: Tolerance = Tolerance(), hint: Hint | str = ""
    ) -> Record:
        self._is_recorded = False
        try:
            return super()._run(probe, call, place, tolerance, hint)
        finally:
            if not self._is_recorded:  # the answer was known
                self._recorder.listen(probe)

    def _answer(self, probe: Probe) -> Any:
        self._is_recorded = True
        return self._recorder.answer(probe)


@dataclass
class _Entry:
    """An entry of a hand computation, and what is wrong with it."""

    key: str
    is_wrong: bool = False
    number: float | None = None  # that was given
    is_rounded: bool = False


def _number(value: Any) -> float | None:
    """What may be given as the answer to a hand computation, if it is that."""
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 and not value.is_complex() else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value)


@cache  # a few hundred blocks in all
def _mix(seed: int, text: str) -> int:
    """A seed for one exercise from the seed of the class (stable across Python versions and processes)."""
    value = seed & 0xFFFFFFFF
    for byte in text.encode():
        value = (value * 1_000_003 + byte) % 2**31
    return value


def _is_as_before(given: torch.Tensor | list[int], old: torch.Tensor | list[int]) -> bool:
    if isinstance(given, torch.Tensor) and isinstance(old, torch.Tensor):
        return torch.equal(given.detach(), old)
    return len(given) == len(old) and all(type(a) is int and a == b for a, b in zip(given, old, strict=True))


def _restore(given: torch.Tensor | list[int], old: torch.Tensor | list[int]) -> None:
    if isinstance(given, torch.Tensor) and isinstance(old, torch.Tensor):
        given.data = old
    elif isinstance(given, list):
        given[:] = old


def _invoking(invoke: Callable[..., Any], arguments: Sequence[torch.Tensor]) -> Probe:
    return lambda subject: invoke(subject, *arguments)


def _look_at(key: str) -> Probe:
    """The probe that looks at one entry of a hand computation."""

    def look(answers: Any) -> Any:
        return answers[key]

    return look
