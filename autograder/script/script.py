"""A hidden test, written down: blocks of steps, each a question with what is expected of the answer.

A script is the same for every submission of a class on one device. It is written once, by the body of the test
(`autograder.checks.framework`), and replayed for every answer (`autograder.grading.marking`).
"""

import itertools
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from autograder.errors import BrokenCheck
from autograder.script.answer import Answer, Given, Raised
from autograder.script.compare import (
    USUAL,
    Tolerance,
    a_tensor,
    difference,
    is_count,
    is_rounded,
    kind,
    off,
    same_form,
)
from autograder.script.context import marker
from autograder.script.question import Probe, Question
from autograder.script.verdict import Criterion, Verdict

NOTHING = Given(None)
# What to change where an answer does not follow the device of its arguments.
ON_THE_CPU = "A tensor in your answer is on the CPU, wherever its arguments are. Make it with device=x.device, and move nothing with .cpu()."
GOES_TO_NUMPY = "A tensor goes to NumPy, which works on the CPU only. Use PyTorch's functions instead."
WHOLE_NUMBERS = "Matrices of whole numbers are multiplied, and a GPU cannot do that. Make them floating first."
NOT_FOLLOWED = {  # by what the error says
    "same device": ON_THE_CPU,
    "to numpy": GOES_TO_NUMPY,
    "not implemented for 'int": WHOLE_NUMBERS,
}
UNANSWERED = "not answered yet (the cell still raises NotImplementedError)"


@dataclass(frozen=True)
class Fault:
    """What is wrong with an answer, and the sentences that name the cause where the step itself knows it."""

    message: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hint:
    """What to say of a failure that nothing better explains.

    Where it says nothing else, it speaks of wrong values alone: not of an error, nor of a result of another kind, shape
    or dtype; ``form`` takes these in. ``fits(got, expected)`` is what must be seen besides, else ``otherwise`` is said.
    """

    says: str
    fits: Callable[[Any, Any], bool] | None = None
    otherwise: str = ""
    form: bool = False

    def on(self, answer: Answer, expected: Any, tolerance: Tolerance) -> str:
        """What there is to say of this failure; often nothing."""
        if isinstance(answer, Raised):
            return self.says if self.form and self.fits is None and "in-place" not in answer.error.message else ""
        if not self.form and not same_form(answer.value, expected, tolerance.exact_dtype):
            return ""
        return self.says if self.fits is None or self.fits(answer.value, expected) else self.otherwise


@dataclass(eq=False)
class Gate:
    """A condition that steps need. ``with`` it, steps are asked of those alone that have met it."""

    is_open_when: bool = True
    of: "Step | None" = None
    _enter: Callable[["Gate"], None] = field(default=lambda gate: None, repr=False)
    _leave: Callable[[], None] = field(default=lambda: None, repr=False)

    def __invert__(self) -> "Gate":
        return Gate(not self.is_open_when, self.of, self._enter, self._leave)

    def __enter__(self) -> None:
        self._enter(self)

    def __exit__(self, *_: object) -> None:
        self._leave()

    def __bool__(self) -> NoReturn:
        raise BrokenCheck("a test is written once, for all answers: `with check.holds(...):` in place of `if`")


@dataclass(eq=False)
class Step:
    """One question of a block, put by ``probe``; ``call`` says in a message what was called. The base class compares
    nothing: the answer may be anything but an error."""

    probe: Probe
    call: str
    tolerance: Tolerance = USUAL
    hint: Hint | str = ""
    expected: Answer = NOTHING
    questions: Sequence[Question] = ()
    needs: tuple[Gate, ...] = ()
    group: int | None = None  # of steps that are all asked, whatever is wrong with one of them
    watched: tuple[Any, ...] = ()  # arguments of which a change in place shall be seen
    answer_of: "Step | None" = None  # whose answer serves where it was right

    leaves_record = False  # for the diagnosis
    remembers_errors = True  # what raises leaves one in any case
    is_gate = False  # whose outcome counts for other steps alone

    def fault(self, answer: Answer, names: tuple[str, ...] = ()) -> Fault | None:
        """What is wrong with this answer. ``names`` are what several results are called. On top of a known mistake that raises
        it is right to raise the same."""
        if isinstance(answer, Given):
            return self._of_value(answer.value, names)
        same = isinstance(self.expected, Raised) and answer.error.type_names[0] == self.expected.error.type_names[0]
        return None if same else self._error(answer.error)

    @property
    def due(self) -> Any:
        """The value that is expected; ``None`` where the object on top of which an answer is judged raises."""
        return self.expected.value if isinstance(self.expected, Given) else None

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        return None

    def _error(self, error: Any) -> Fault | None:
        return Fault(UNANSWERED if error.means_unanswered else f"{self.call} raised {error.describe()}")


class Agrees(Step):
    """The value is the right object's."""

    leaves_record = True

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        if isinstance(self.expected, Raised):
            return Fault(f"{self.call}: expected {self.expected.error.describe()}, but nothing was raised")
        problem = difference(got, self.expected.value, self.tolerance, names)
        return Fault(f"{self.call}: {problem}") if problem else None


class Holds(Agrees):
    """Whether the value is the right object's: for what is asked only then."""

    leaves_record, remembers_errors, is_gate = False, False, True


class Answers(Step):
    """Whether there is a value: for what is asked only then."""

    remembers_errors, is_gate = False, True


class Reached(Step):
    """Whether the block has come here without a miss: for what another block asks only then. Asks nothing."""

    is_gate = True


@dataclass(eq=False)
class Requires(Step):
    """A gate that must be open. Asks nothing."""

    gate: Gate | None = None
    otherwise: Fault = Fault("")


@dataclass(eq=False)
class Satisfies(Step):
    """A property of the value: ``judge`` says what is wrong with it."""

    judge: Callable[[Any], Fault | None] = lambda got: None

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        return self.judge(got)


@dataclass(eq=False)
class HasDtype(Step):
    """The value is a tensor of this dtype, whatever is in it."""

    dtype: torch.dtype = torch.float32

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        if getattr(got, "dtype", None) == self.dtype:
            return None
        text = f"{self.call} must return {a_tensor(self.dtype)}; yours returns {kind(got)}."
        return Fault(text, (text,))


@dataclass(eq=False)
class FollowsDevice(Step):
    """All tensors of the value are where the arguments are, whatever is in them. An error that has nothing to do with
    devices is paid for elsewhere."""

    device: str = "cpu"
    remembers_errors = False

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        places = {leaf.device.type for leaf in tree_leaves(got) if isinstance(leaf, torch.Tensor)}
        if places <= {self.device}:
            return None
        return Fault(f"{self.call}: the result is on the CPU, and the arguments are not", (ON_THE_CPU,))

    def _error(self, error: Any) -> Fault | None:
        for words, sentence in NOT_FOLLOWED.items():
            if words in error.message:
                return Fault(f"{self.call} raised {error.describe()}", (sentence,))
        return None


@dataclass(eq=False)
class Refuses(Step):
    """The object refuses with an error of this kind. ``otherwise`` says what it does instead, ``hint`` why that may be."""

    error: type[Exception] = Exception
    otherwise: str = ""
    remembers_errors = False

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        due = self.error.__name__
        said = (str(self.hint),) if self.hint else ()
        return Fault(
            f"{self.call}: expected {due}, but nothing was raised",
            (f"{self.call} must raise {due}; {self.otherwise}", *said),
        )

    def fault(self, answer: Answer, names: tuple[str, ...] = ()) -> Fault | None:
        if isinstance(answer, Given):
            return self._of_value(answer.value, names)
        raised, due = answer.error, self.error.__name__
        if raised.means_unanswered:
            return Fault(UNANSWERED)
        if due in raised.type_names:
            return None
        named = () if raised.was_stopped else (f"{self.call} must raise {due}; yours raises {raised.kind}.",)
        return Fault(f"{self.call}: expected {due}, got {raised.describe()}", named)


class Unchanged(Step):
    """The call leaves the ``watched`` arguments as they were. Which of them it has changed, the replay sees."""

    def changed(self, argument: Any) -> Fault:
        kind_of = "tensor" if isinstance(argument, torch.Tensor) else type(argument).__name__
        text = f"{self.call} changes its argument in place; work on a new {kind_of}."
        return Fault(text, (text,))


@dataclass(eq=False)
class Entry(Agrees):
    """An entry of a hand computation. The number that is expected is never shown."""

    key: str = ""

    def fault(self, answer: Answer, names: tuple[str, ...] = ()) -> Fault | None:
        found = super().fault(answer, names)
        if found is None:
            return None
        if isinstance(answer, Given) and answer.value is None:
            return Fault(f"entry {self.key!r}: not answered yet")
        if isinstance(answer, Raised) and "KeyError" in answer.error.type_names:
            return Fault(f"entry {self.key!r} is missing")
        if (number := self.number(answer)) is not None:
            return Fault(f"entry {self.key!r}: {off(number, float(self.due), is_count(self.tolerance))}")
        return found

    def number(self, answer: Answer) -> float | None:
        """What was given, if it is a number."""
        value = answer.value if isinstance(answer, Given) else None
        if isinstance(value, torch.Tensor):
            value = value.item() if value.numel() == 1 and not value.is_complex() else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
            return None
        return float(value)

    def is_rounded(self, number: float) -> bool:
        return not is_count(self.tolerance) and is_rounded(number, float(self.due))


@dataclass(eq=False)
class Block:
    """A criterion: ``points`` if nothing in it misses. Golden blocks check values; the others count only if one of these
    held."""

    name: str
    points: float
    golden: bool
    steps: list[Step] = field(default_factory=list)


@dataclass(eq=False)
class Script:
    """All that an answer of one exercise is asked."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        return list(itertools.chain.from_iterable(block.steps for block in self.blocks))


@dataclass(eq=False, frozen=True)
class Exercise:
    """One hidden test. Called with a student's answer it gives the verdict: only inside a run of the grader, for an ordinary
    kernel without the course's configuration is ended. No grade is better than a wrong one."""

    assignment: str
    grade_id: str
    number: str
    points: float
    right: Any
    write: Callable[[Any, int, str], Script]  # against a right object, for a seed and a device
    mistakes: Callable[[], Sequence[Any]]  # that are known, with ``subject`` and ``says``
    returns: tuple[str, ...] = ()  # names of several results, for messages
    # Sentences of mistakes that are paid for once, if they are made again here.
    carried: Callable[[], Collection[str]] = tuple

    def __call__(self, student: Any, *earlier: Any) -> Verdict:
        """Some cells hand over earlier answers, too."""
        mark = marker.get()
        if mark is None:
            _refuse()
        verdict: Verdict = mark(self, student)
        return verdict

    @property
    def name(self) -> str:
        """How a student calls it."""
        return f"{self.number} (`{self.grade_id}`)"

    def nothing(self, reason: str) -> Verdict:
        """The verdict on an answer that is not there: nothing was run."""
        criterion = Criterion("an answer", self.points, 0.0, reason)
        return Verdict(self.grade_id, self.number, self.points, [criterion], [reason])


def _refuse() -> NoReturn:
    print(
        "Hidden tests run only in the course's grader. Start nbgrader where nbgrader_config.py is, "
        "or use `make autograde`.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(70)
