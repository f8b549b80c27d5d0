"""How a hidden test is written: criteria, probes, diagnosis.

A *probe* takes an object and returns a value: ``lambda f: f(x, positions)``. The same probe runs on the student's
object, on the reference and on every known misconception, so a wrong value can be named. Probes call the object and
look at what comes back, nothing else: in grading the student's object is a proxy of something in another process.
They run again when the check is through, for the diagnosis. So what a probe refers to must not change after it: make
probes with ``calling``, or in a function that takes their inputs, never over loop variables.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import autograder.reference
from autograder.checks.compare import Tolerance, difference, kind
from autograder.checks.memory import Forgetful, Memory
from autograder.checks.verdict import Criterion, Verdict
from autograder.errors import BrokenCheck, Miss, StudentError
from autograder.manifest import entry
from autograder.misconceptions.bank import Mistake, known_mistakes

Probe = Callable[[Any], Any]
Follows = Callable[..., Iterator[tuple[Any, str]]]  # from the student's earlier answers: what is right on top, and a note


class Absent:
    """Stands for a name that the student's notebook does not define; using it in any way says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = f"`{name}` is not defined{reason}"

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise StudentError(("NameError",), self.reason)

    __call__ = __getitem__ = __iter__ = __float__ = _refuse


@dataclass
class GradingContext:
    """What a trusted run hands to the checks: the class's seed, the device, a memory for this class on this device, and
    a place for the verdicts."""

    seed: int = 0
    device: str = "cpu"
    memory: Memory = field(default_factory=Forgetful)
    verdicts: list[Verdict] = field(default_factory=list)


_context: ContextVar[GradingContext | None] = ContextVar("grading_context", default=None)
# Tensors of which a check wants to see what the student's code does to them in place. All others stay as they are: a
# weight lent to a module and zeroed by it would make what comes after agree with zeros.
watched: ContextVar[tuple] = ContextVar("watched", default=())


@contextmanager
def grading(seed: int = 0, device: str = "cpu", memory: Memory | None = None) -> Iterator[GradingContext]:
    """Only inside this context do hidden tests run."""
    context = GradingContext(seed, device, memory or Forgetful())
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def exercise(assignment: str, grade_id: str, reference: Any = None, follows: Follows | None = None) -> Callable:
    """Turn ``body(check)`` into the hidden test ``test(student)``.

    ``reference`` is the right object; by default the reference kernel of the same name. The points come from the
    manifest. Called outside ``grading()``, that is in an ordinary kernel without the course's configuration, the
    test ends the process: no grade is better than a wrong one.

    A mistake is paid for once: where an answer may build on earlier ones, the hidden cell hands these to the test too,
    ``test(student, earlier, ...)``, and ``follows(earlier, ...)`` gives what would be right on top of them. The student
    is graded against the reference and against each of those, and gets the best verdict.
    """

    def decorate(body: Callable[["Check"], None]) -> Callable[..., Verdict]:
        def test(student: Any, *earlier: Any) -> Verdict:
            context = _context.get()
            if context is None:
                _refuse()
            right = reference if reference is not None else getattr(autograder.reference, grade_id)
            answers: dict[tuple, _Record] = {}

            def graded(right: Any, context: GradingContext, note: str = "") -> Verdict:
                check = Check(assignment, grade_id, right, student, context, answers)
                if isinstance(student, Absent):
                    return check.absent(student.reason)
                try:
                    body(check)
                    return replace(check.verdict(), note=note)
                except Exception as error:
                    if type(error).__module__.startswith("autograder."):
                        raise
                    raise BrokenCheck(f"{grade_id}: {type(error).__name__}: {error}") from error

            best = graded(right, context)
            for also_right, note in follows(*earlier) if earlier and best.score < best.max_score else ():
                other = graded(also_right, replace(context, memory=Forgetful()), note)
                best = other if other.score > best.score else best
            context.verdicts.append(best)
            return best

        test.__name__, test.__doc__ = grade_id, body.__doc__
        return test

    return decorate


def _refuse() -> None:
    print("Hidden tests run only in the course's grader. Start nbgrader where nbgrader_config.py is, "
          "or use `make autograde`.", file=sys.stderr, flush=True)
    os._exit(70)


def calling(*arguments: Any, **options: Any) -> Probe:
    """The probe that calls the object with these arguments; tensors are copied, whatever the student does to them."""
    return lambda subject: subject(*[_copy(argument) for argument in arguments], **options)


def differentiating(*arguments: Any, at: int = 0) -> Probe:
    """The probe that calls the object and takes the gradient with respect to argument number ``at``."""
    def probe(subject: Any) -> torch.Tensor:
        copies = [_copy(argument) for argument in arguments]
        copies[at].requires_grad_()
        return gradient(subject(*copies), copies[at])

    return probe


def gradient(output: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """The gradient of a weighted sum of ``output`` with respect to ``argument``; zeros where no graph leads back."""
    if not output.requires_grad:
        return torch.zeros_like(argument)
    # Different weights, so that no gradient is right by symmetry.
    weights = torch.arange(output.numel(), device=output.device).cos().reshape(output.shape).to(output.dtype)
    return torch.autograd.grad((output * weights).sum(), argument, allow_unused=True, materialize_grads=True)[0]


def _copy(argument: Any) -> Any:
    return argument.detach().clone() if isinstance(argument, torch.Tensor) else argument


@dataclass(eq=False)
class _Record:
    """One probe run on the student's object. ``place`` is where in the test this happens: the same probe for every
    student of a class. ``hint`` is what to say if nothing better explains a failure."""

    probe: Probe
    place: tuple
    tolerance: Tolerance
    hint: str = ""
    met: bool = False
    got: Any = None
    error: StudentError | None = None


class Check:
    """The student's object on the bench: draws inputs, runs probes, collects criteria."""

    def __init__(self, assignment: str, grade_id: str, reference: Any, student: Any, context: GradingContext,
                 answers: dict[tuple, "_Record"] | None = None) -> None:
        # The student's values by place. A reference that follows the student's earlier functions calls them; code that
        # remembers this could learn from it, so each question is asked once, and before it is known what is right.
        self._answers = {} if answers is None else answers
        self.assignment, self.grade_id = assignment, grade_id
        self.reference, self.student, self.device = reference, student, context.device
        self.seed, self.generator, self._memory = context.seed, torch.Generator(), context.memory
        self._begin("")
        self._criteria: list[tuple[Criterion, bool]] = []
        self._records: list[_Record] = []
        self._named: list[str] = []

    # ---- inputs -------------------------------------------------------------------------------------------------

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers from the class's seed, on the device under test."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(self.device, dtype)

    def randint(self, low: int, high: int, shape: tuple[int, ...] = (1,)) -> torch.Tensor:
        """Integers ``low <= n < high`` from the class's seed, on the device under test."""
        return torch.randint(low, high, shape, generator=self.generator).to(self.device)

    def randperm(self, n: int) -> torch.Tensor:
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
        else:
            criterion.earned = points

    def agrees(self, probe: Probe, call: str, tolerance: Tolerance = Tolerance(), hint: str = "") -> Any:
        """The student's value of ``probe`` is the reference's; returns it. ``call`` says what was called.

        ``hint`` names the likely cause if no known mistake reproduces the failure. The earlier probes of the block
        held then: a block that goes from the plain to the awkward knows what a failure at this place means.
        """
        place = self._place(call)
        record = self._run(probe, call, place, tolerance, hint)
        expected = self._expected(probe, place)
        if problem := difference(record.got, expected, tolerance):
            raise Miss(f"{call}: {problem}")
        record.met = True
        return record.got

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
            try:
                self.agrees(lambda answers, key=key: answers[key], f"entry {key!r}", tolerance)
            except Miss as miss:
                record = self._records[-1]
                if record.error is None and record.got is None:
                    misses.append(f"entry {key!r}: not answered yet")
                elif record.error is not None and "KeyError" in record.error.type_names:
                    misses.append(f"entry {key!r} is missing")
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
        self.require(getattr(got, "dtype", None) == dtype,
                     f"{call} must return a {str(dtype).removeprefix('torch.')} tensor; yours returns {kind(got)}.",
                     names=True)

    def raises(self, probe: Probe, error: type[Exception], call: str) -> None:
        """The student's object refuses with ``error``."""
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
            if raised.means_unanswered:
                raise
            if wanted in raised.type_names:
                return
            ended = raised.kind in ("ProcessEnded", "ProtocolError")
            self.name(f"{call} must raise {wanted}; yours " + ("ends the Python process." if ended else f"raises {raised.kind}."))
            raise Miss(f"{call}: expected {wanted}, got {raised.describe()}") from None
        self.name(f"{call} must raise {wanted}; yours returns a value.")
        raise Miss(f"{call}: expected {wanted}, but nothing was raised")

    def unchanged(self, probe: Probe, call: str, *arguments: torch.Tensor) -> None:
        """Calling the student's object leaves ``arguments`` as they were."""
        before = [argument.detach().clone() for argument in arguments]
        token = watched.set(arguments)
        try:
            self.value(probe, call)
        finally:
            watched.reset(token)
        same = all(torch.equal(a.detach(), b) for a, b in zip(arguments, before))
        for argument, original in zip(arguments, before):
            argument.data.copy_(original)
        self.require(same, f"{call} changes its argument in place; work on a new tensor.", names=True)

    def name(self, sentence: str) -> None:
        """Tell the student the likely cause in one sentence."""
        if sentence not in self._named:
            self._named.append(sentence)

    # ---- the end ------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Points per criterion, gated by the golden ones, with the misconceptions recognised."""
        points = entry(self.assignment, self.grade_id)
        total = sum(criterion.points for criterion, _ in self._criteria)
        if abs(total - points.points) > 1e-9:
            raise BrokenCheck(f"{self.grade_id}: the criteria add up to {total:g}, the manifest says {points.points}")
        if not any(golden and criterion.earned for criterion, golden in self._criteria):
            for criterion, golden in self._criteria:
                if criterion.earned:
                    criterion.earned, criterion.message = 0.0, "counts only when a value is right"
        criteria = [criterion for criterion, _ in self._criteria]
        return Verdict(self.grade_id, points.number, points.points, criteria, self._diagnosis() + self._named)

    def absent(self, reason: str) -> Verdict:
        """The verdict on an answer that is not there: nothing was run."""
        points = entry(self.assignment, self.grade_id)
        return Verdict(self.grade_id, points.number, points.points, [Criterion("an answer", points.points, 0.0, reason)], [reason])

    def _diagnosis(self) -> list[str]:
        """At most two sentences on the likely cause: the best known mistakes, else the checks' hints.

        A mistake, or two at once, explains a student when it gives what the student gave on failing probes, wrong
        value or error, and contradicts no passing one. Last comes a mistake that the student makes in one call only:
        the same wrong value, though elsewhere the student is right.
        """
        failing = [record for record in self._records
                   if not record.met and not (record.error and record.error.means_unanswered)]
        passing = [record for record in self._records if record.met]
        consistent: list[tuple[tuple[str, ...], set[int]]] = []
        elsewhere_right: list[Mistake] = []
        for mistake in known_mistakes(self.assignment, self.grade_id) if failing else []:
            if len(mistake.says) > 1 and not self._reproduces(mistake, failing[0]):
                continue  # pairs are many; this one costs a single probe
            if all(self._reproduces(mistake, record) for record in passing):
                consistent.append((mistake.says, self._explained(mistake, failing)))
                if len(consistent[-1][1]) == len(failing):  # single mistakes come before pairs: none will do better
                    break
            elif len(mistake.says) == 1:
                elsewhere_right.append(mistake)
        sentences: list[str] = []
        unexplained = set(range(len(failing)))
        while useful := [(says, explained) for says, explained in consistent
                         if explained & unexplained and len(says) + len(sentences) <= 2]:
            says, explained = max(useful, key=lambda c: (len(c[1] & unexplained), -len(c[0])))
            sentences += [sentence for sentence in says if sentence not in sentences]
            unexplained -= explained
        for index in sorted(unexplained):
            works = failing[index].error is None
            if (hint := failing[index].hint) and (works or passing):  # what always raises is not explained by where it did
                sentences.append(hint)
            elif works:
                sentences += [mistake.says[0] for mistake in elsewhere_right
                              if self._reproduces(mistake, failing[index])][:1]
        return list(dict.fromkeys(sentences))[:2]

    def _explained(self, mistake: Mistake, failing: list[_Record]) -> set[int]:
        """Which failures the mistake makes too. Where it gives the right value it explains nothing, however near the
        student's wrong one comes to that."""
        def fails(record: _Record) -> bool:
            try:
                return bool(difference(self._mistaken(mistake, record), self._expected(record.probe, record.place), record.tolerance))
            except Exception:
                return True

        return {index for index, record in enumerate(failing) if self._reproduces(mistake, record) and fails(record)}

    def _reproduces(self, mistake: Mistake, record: _Record) -> bool:
        """Does the mistake give what the student gave, value or error?"""
        try:
            value = self._mistaken(mistake, record)
        except Exception as error:
            ours = error if isinstance(error, StudentError) else StudentError.from_exception(error)
            return record.error is not None and _pattern(ours) == _pattern(record.error)
        if record.error is not None:
            return False
        # Two implementations of one mistake round differently: a little more room than for a right answer.
        loose = replace(record.tolerance, rtol=max(record.tolerance.rtol, 1e-3), atol=max(record.tolerance.atol, 1e-4))
        return not difference(record.got, value, loose)

    def _mistaken(self, mistake: Mistake, record: _Record) -> Any:
        return self._memory.recall((record.place, mistake), lambda: record.probe(mistake.subject))

    def _begin(self, name: str) -> None:
        """A block: its inputs are drawn from a generator of their own."""
        self._block, self._asked = name, 0
        self.generator.manual_seed(_mix(self.seed, f"{self.assignment}/{self.grade_id}/{name}"))

    def _place(self, call: str) -> tuple:
        """The how-manieth question of which block this is, after which draws."""
        self._asked += 1
        return self.assignment, self.grade_id, self._block, self._asked, call, hash(self.generator.get_state().numpy().tobytes())

    def _expected(self, probe: Probe, place: tuple) -> Any:
        try:
            return self._memory.recall(place, lambda: probe(self.reference))
        except Exception as error:
            raise BrokenCheck(f"{self.grade_id}: the reference fails its own check: {error!r}") from error

    def _run(self, probe: Probe, call: str, place: tuple, tolerance: Tolerance = Tolerance(), hint: str = "") -> _Record:
        record = _Record(probe, place, tolerance, hint)
        self._records.append(record)
        known = None if watched.get() else self._answers.get(place)
        self._answers[place] = record
        try:
            if known is not None and known.error is not None:
                raise known.error
            record.got = probe(self.student) if known is None else known.got
            return record
        except StudentError as error:
            record.error = error
        except Exception as error:  # student code in this process (banks), or a probe that met a value of wrong kind
            if type(error).__module__.startswith("autograder."):  # the course's own trouble is not the student's
                raise
            record.error = StudentError.from_exception(error)
        if record.error.means_unanswered:
            raise Miss("not answered yet")
        raise Miss(f"{call} raised {record.error.describe()}")


def _pattern(error: StudentError) -> tuple[str, str]:
    """An error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
    return error.type_names[0], re.sub(r"-?\d+", "#", error.message)


def _mix(seed: int, text: str) -> int:
    """A seed for one exercise from the seed of the class (stable across Python versions and processes)."""
    value = seed & 0xFFFFFFFF
    for byte in text.encode():
        value = (value * 1_000_003 + byte) % 2**31
    return value
