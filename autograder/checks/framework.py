"""How to write a hidden test: `exercise` makes one from a body, which writes it with a `Check`.

The body runs once for a class, on one device. It draws inputs and says what is asked of an answer, block by block; the
right object gives the expected answers. The body never sees a student's answer and cannot branch on it: questions only
for answers that meet a condition are written in a `with check.holds(...):` block.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import torch

import autograder.reference
from autograder.checks.probes import calling, calling_again, differentiating, gradient
from autograder.errors import BrokenCheck, StudentError
from autograder.grading.sandbox.worker import simulated_device
from autograder.manifest import entry
from autograder.misconceptions.bank import carried, known_mistakes
from autograder.script.answer import Absent, Raised
from autograder.script.compare import USUAL, Tolerance
from autograder.script.question import Probe, recorded
from autograder.script.script import (
    NOTHING,
    Agrees,
    Answers,
    Block,
    Entry,
    Exercise,
    Fault,
    FollowsDevice,
    Gate,
    HasDtype,
    Hint,
    Holds,
    Reached,
    Refuses,
    ReturnsNew,
    Satisfies,
    Script,
    Step,
    Unchanged,
)

__all__ = [
    "Absent",
    "BrokenCheck",
    "Check",
    "Fault",
    "Hint",
    "Probe",
    "StudentError",
    "calling",
    "differentiating",
    "exercise",
    "gradient",
]

Body = Callable[["Check"], None]


def exercise(
    assignment: str, grade_id: str, reference: Any = None, returns: tuple[str, ...] = ()
) -> Callable[[Body], Exercise]:
    """Turn ``body(check)`` into the hidden test of an exercise.

    ``reference`` is the right object; by default the reference kernel of the same name. ``returns`` are the names of
    several results, for messages. The points come from the manifest.
    """

    def decorate(body: Body) -> Exercise:
        listed = entry(assignment, grade_id)
        right = reference if reference is not None else getattr(autograder.reference, grade_id, None)
        if right is None:
            raise BrokenCheck(f"{grade_id}: no reference; export it in autograder/reference/__init__.py")
        if isinstance(right, dict):  # a hand computation: 32, 32.0 and 64 / 2 are one answer
            right = {key: float(value) for key, value in right.items()}
        return Exercise(
            assignment,
            grade_id,
            listed.number,
            listed.points,
            right,
            partial(_write, body, assignment, grade_id, right),
            lambda: known_mistakes(assignment, grade_id),
            returns,
            lambda: carried(assignment),
        )

    return decorate


def _write(body: Body, assignment: str, grade_id: str, reference: Any, right: Any, seed: int, device: str) -> Script:
    """Write the script. The expected answers come from ``right``: the reference, or a known mistake to build on."""
    check = Check(assignment, grade_id, right, seed, device, is_sure=right is reference)
    body(check)
    total, points = sum(block.points for block in check.script.blocks), entry(assignment, grade_id).points
    if abs(total - points) > 1e-9:
        raise BrokenCheck(f"{grade_id}: the criteria add up to {total:g}, the manifest says {points}")
    return check.script


class Check:
    """Draws inputs and writes down the steps of a hidden test."""

    def __init__(
        self, assignment: str, grade_id: str, right: Any, seed: int, device: str, is_sure: bool = True
    ) -> None:
        self.script = Script()
        self.device = device
        self._elsewhere = "cuda" if device == "cuda" else simulated_device.NAME
        self._assignment, self._grade_id, self._right, self._seed = assignment, grade_id, right, seed
        self._is_sure = is_sure  # whether the right object must pass every step
        self._generator = torch.Generator()
        self._seed_for("")
        self._needs: list[Gate] = []
        self._group: int | None = None
        self._groups = itertools.count()

    # ---- inputs -------------------------------------------------------------------------------------------------

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers from the class's seed, on the device under test."""
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64).to(self.device, dtype)

    def randint(self, low: int, high: int, shape: tuple[int, ...] = (1,)) -> torch.Tensor:
        """Integers ``low <= n < high`` from the class's seed, on the device under test."""
        return torch.randint(low, high, shape, generator=self._generator).to(self.device)

    def randperm(self, n: int) -> torch.Tensor:
        return torch.randperm(n, generator=self._generator).to(self.device)

    # ---- blocks -------------------------------------------------------------------------------------------------

    @contextmanager
    def criterion(self, name: str, points: float, golden: bool = False) -> Iterator[None]:
        """A block that earns ``points`` if no step misses. Golden blocks check values; the others count only if at
        least one golden block held. Each block draws its inputs from a seed of its own."""
        self.script.blocks.append(Block(name, points, golden))
        self._seed_for(name)
        yield

    @contextmanager
    def follows_device(self, points: float) -> Iterator[None]:
        """A block on another device than the CPU: on CUDA if that is under test, else on a simulated device. Its inputs
        are there, and ``follows`` asks whether the answer stays there."""
        here, self.device = self.device, self._elsewhere
        try:
            with self.criterion("follows the device of its arguments", points):
                yield
        finally:
            self.device = here

    @contextmanager
    def every(self) -> Iterator[None]:
        """Ask all steps under this ``with``, even if one of them misses, so that each miss is reported."""
        before, self._group = self._group, next(self._groups)
        try:
            yield
        finally:
            self._group = before

    # ---- conditions ---------------------------------------------------------------------------------------------

    def holds(self, probe: Probe, call: str, tolerance: Tolerance = USUAL) -> Gate:
        """The condition that the value is right, for ``with check.holds(...):``. A wrong one costs points elsewhere."""
        return self._gate(self._add(Holds(probe, call, tolerance)))

    def answers(self, probe: Probe, call: str) -> Gate:
        """The condition that the student's object gives a value, whatever it is, for ``with check.answers(...):``."""
        return self._gate(self._add(Answers(probe, call)))

    def reached(self) -> Gate:
        """The condition that this block got here without a miss, for other blocks."""
        return self._gate(self._note(Reached(_nothing, "")))

    # ---- steps --------------------------------------------------------------------------------------------------

    def agrees(self, probe: Probe, call: str, tolerance: Tolerance = USUAL, hint: Hint | str = "") -> None:
        """Require the reference's value of ``probe``. ``call`` says in messages what was called.

        ``hint`` names the likely cause if no known mistake reproduces the failure. The block's earlier probes have held
        then, so if these go from plain to awkward cases, it is clear what a failure at this point means.
        """
        self._add(Agrees(probe, call, tolerance, hint))

    def value(self, probe: Probe, call: str) -> None:
        """Require that the student's object gives a value, which is not compared."""
        self._add(Step(probe, call))

    def satisfies(self, probe: Probe, call: str, judge: Callable[[Any], Fault | None]) -> None:
        """Require a property of the student's value: ``judge(value)`` says what is wrong with it."""
        self._add(Satisfies(probe, call, judge=judge))

    def entries(self, *keys: str, tolerance: Tolerance) -> None:
        """Require the entries of a hand computation. All are compared, so that every slip is reported."""
        with self.every():
            for key in keys:
                self._add(Entry(itemgetter(key), f"entry {key!r}", tolerance, key=key))

    def has_dtype(self, probe: Probe, dtype: torch.dtype, call: str) -> None:
        """Require a tensor of this dtype from ``probe``, whatever its values."""
        self._add(HasDtype(probe, call, dtype=dtype))

    def follows(self, probe: Probe, call: str) -> None:
        """Require all tensors that the student's object returns to be on the device of its arguments."""
        step = self._add(FollowsDevice(probe, f"{call} on another device than the CPU", device=self.device))
        if self._is_sure and step.fault(step.expected) is not None:
            raise BrokenCheck(f"{self._grade_id}: the reference does not follow the device: {call}")
        step.expected = NOTHING

    def raises(self, probe: Probe, error: type[Exception], call: str, hint: str = "") -> None:
        """Require ``error``. ``hint`` names the likely cause if nothing is raised."""
        step = self._add(Refuses(probe, call, hint=hint, error=error))
        if self._is_sure and not isinstance(step.expected, Raised):
            raise BrokenCheck(f"the reference accepts {call}")

    def unchanged(self, probe: Probe, call: str, *arguments: Any) -> None:
        """Require that the call leaves ``arguments`` unchanged: tensors, or lists and dicts of plain data."""
        self._add(Unchanged(probe, call, watched=arguments))

    def keeps(self, invoke: Callable[..., Any], call: str, *arguments: torch.Tensor) -> None:
        """Require ``invoke(subject, *arguments)`` to change no argument."""
        self.unchanged(_invoking(invoke, arguments), call, *arguments)

    def returns_new(self, call: str, *arguments: Any, tolerance: Tolerance = USUAL) -> None:
        """Require a new result, neither an argument nor one that is kept: writing to it must change nothing else."""
        with self.holds(calling(*arguments), call, tolerance):
            self._add(ReturnsNew(calling_again(*arguments), call, tolerance))

    # ---- writing ------------------------------------------------------------------------------------------------

    def _add(self, step: Step) -> Step:
        """Put the step's questions to the right object, and write them down with its answer."""
        step.expected, questions = recorded(step.probe, self._right)
        if step.watched:
            for question in questions:
                question.is_plain = False
        step.questions = questions
        if self._is_sure and isinstance(step.expected, Raised) and not isinstance(step, Refuses):
            raise BrokenCheck(f"{self._grade_id}: the reference fails its own check: {step.expected.error!r}")
        return self._note(step)

    def _seed_for(self, block: str) -> None:
        self._generator.manual_seed(_mix(self._seed, f"{self._assignment}/{self._grade_id}/{block}"))

    def _note(self, step: Step) -> Step:
        step.needs, step.group = tuple(self._needs), self._group
        self.script.blocks[-1].steps.append(step)
        return step

    def _gate(self, step: Step) -> Gate:
        return Gate(True, step, self._needs)


def _mix(seed: int, text: str) -> int:
    """Return a block's seed, made from the class's seed (stable across Python versions and processes)."""
    value = seed & 0xFFFFFFFF
    for byte in text.encode():
        value = (value * 1_000_003 + byte) % 2**31
    return value


def _nothing(subject: Any) -> None:
    """The probe of a step that asks nothing."""


def _invoking(invoke: Callable[..., Any], arguments: Sequence[torch.Tensor]) -> Probe:
    return lambda subject: invoke(subject, *arguments)
