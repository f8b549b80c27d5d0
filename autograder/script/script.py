"""The script of a hidden test: blocks of steps, each a question with the expected answer.

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
from autograder.script.compare import USUAL, Tolerance, a_tensor, difference, is_count, is_rounded, kind, off, same_form
from autograder.script.context import marker
from autograder.script.question import Probe, Question
from autograder.script.verdict import UNANSWERED, Criterion, Verdict

NOTHING = Given(None)
NOT_NEW = "your result is an argument, or the result of an earlier call: writing to it changes that one, too. Return a new tensor."
# What to change if an answer does not follow the device of its arguments.
ON_THE_CPU = "A tensor in your answer is on the CPU, its arguments are not. Make it with device=x.device, register what a module keeps, and move nothing with .cpu()."
GOES_TO_NUMPY = "A tensor goes to NumPy, which works on the CPU only. Use PyTorch's functions instead."
WHOLE_NUMBERS = "Matrices of whole numbers are multiplied, and a GPU cannot do that. Make them floating first."
NOT_FOLLOWED = {  # by a part of the error's message
    "same device": ON_THE_CPU,
    "to numpy": GOES_TO_NUMPY,
    "not implemented for 'int": WHOLE_NUMBERS,
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with an answer, and sentences that name the cause if the step itself knows it."""

    message: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hint:
    """A sentence about a failure that no known mistake explains.

    By default a hint is only for wrong values, not for an error or a result of another type, shape or dtype; ``form``
    includes these. If there is a condition ``fits(got, expected)`` and it is not met, ``otherwise`` is said instead. One
    ``of_state`` is about a call that is right when it is the first one.
    """

    says: str
    fits: Callable[[Any, Any], bool] | None = None
    otherwise: str = ""
    form: bool = False
    of_state: bool = False

    def on(self, answer: Answer, expected: Any, tolerance: Tolerance) -> str:
        """Return what to say of this failure; often an empty string."""
        if isinstance(answer, Raised):
            return self.says if self.form and self.fits is None and "in-place" not in answer.error.message else ""
        if not self.form and not same_form(answer.value, expected, tolerance.exact_dtype):
            return ""
        return self.says if self.fits is None or self.fits(answer.value, expected) else self.otherwise


@dataclass(eq=False)
class Gate:
    """A condition of steps: those written in its ``with`` block are asked only of answers that meet it."""

    is_open_when: bool
    of: "Step"
    _entered: list["Gate"] = field(repr=False)  # the conditions of the step that is written next

    def __invert__(self) -> "Gate":
        return Gate(not self.is_open_when, self.of, self._entered)

    def __enter__(self) -> None:
        self._entered.append(self)

    def __exit__(self, *_: object) -> None:
        self._entered.pop()

    def __bool__(self) -> NoReturn:
        raise BrokenCheck("a test is written once, for all answers: `with check.holds(...):` in place of `if`")


@dataclass(eq=False)
class Step:
    """One step of a block: ``probe`` asks, and ``call`` says in messages what was called. The base class compares
    nothing: the answer may be anything but an error."""

    probe: Probe
    call: str
    tolerance: Tolerance = USUAL
    hint: Hint | str = ""
    expected: Answer = NOTHING
    questions: Sequence[Question] = ()
    needs: tuple[Gate, ...] = ()
    group: int | None = None  # steps of one group are all asked, even if one of them misses
    watched: tuple[Any, ...] = ()  # arguments to check for changes in place

    leaves_record = False  # whether the diagnosis sees the answer
    remembers_errors = True  # whether it sees an error in any case
    is_gate = False  # whether the outcome only decides about other steps

    def fault(self, answer: Answer, names: tuple[str, ...] = ()) -> Fault | None:
        """Return what is wrong with this answer. ``names`` are the names of several results. If an error is
        expected, on top of a known mistake that raises it, the same error is right."""
        if isinstance(answer, Given):
            return self._of_value(answer.value, names)
        same = isinstance(self.expected, Raised) and answer.error.type_names[0] == self.expected.error.type_names[0]
        return None if same else self._error(answer.error)

    @property
    def due(self) -> Any:
        """The value that is expected; ``None`` if the expected answer is an error."""
        return self.expected.value if isinstance(self.expected, Given) else None

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        return None

    def _error(self, error: Any) -> Fault | None:
        if error.means_unanswered:
            return Fault(UNANSWERED)
        if "leaf Variable" in error.message and "in-place" in error.message:  # an argument that asks for a gradient
            return Fault(f"{self.call}: an argument is changed in place ({error.describe()}); work on a new tensor")
        if error.of_result:
            return Fault(f"{self.call}: its result cannot be used ({error.describe()})")
        return Fault(f"{self.call} raised {error.describe()}")


class Agrees(Step):
    """A step that requires the value of the right object."""

    leaves_record = True

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        if isinstance(self.expected, Raised):
            return Fault(f"{self.call}: expected {self.expected.error.describe()}, but nothing was raised")
        problem = difference(got, self.expected.value, self.tolerance, names)
        return Fault(f"{self.call}: {problem}") if problem else None


class Holds(Agrees):
    """A gate that is met by the value of the right object."""

    leaves_record, remembers_errors, is_gate = False, False, True


class Answers(Step):
    """A gate that is met by any value."""

    remembers_errors, is_gate = False, True


class Reached(Step):
    """A gate for other blocks, which is met if this block gets here without a miss. Asks nothing."""

    is_gate = True


class ReturnsNew(Agrees):
    """A step that calls again after the first result was overwritten: any miss means that this result is not new."""

    leaves_record, remembers_errors = False, False

    def fault(self, answer: Answer, names: tuple[str, ...] = ()) -> Fault | None:
        text = f"{self.call}: {NOT_NEW}"
        return Fault(text, (text,)) if super().fault(answer, names) else None


@dataclass(eq=False)
class Satisfies(Step):
    """A step that requires a property of the value: ``judge`` says what is wrong with it."""

    judge: Callable[[Any], Fault | None] = lambda got: None

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        return self.judge(got)


@dataclass(eq=False)
class HasDtype(Step):
    """A step that requires a tensor of this dtype, whatever its values."""

    dtype: torch.dtype = torch.float32

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        if getattr(got, "dtype", None) == self.dtype:
            return None
        text = f"{self.call} must be {a_tensor(self.dtype)}; yours is {kind(got)}."
        return Fault(text, (text,) if isinstance(got, torch.Tensor) else ())


@dataclass(eq=False)
class FollowsDevice(Step):
    """A step that requires all tensors of the result to be on the device of the arguments, whatever their values. An
    error that has nothing to do with devices costs points elsewhere."""

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
    """A step that requires this error. ``hint`` says why it may be missing."""

    error: type[Exception] = Exception
    remembers_errors = False

    def _of_value(self, got: Any, names: tuple[str, ...]) -> Fault | None:
        due = self.error.__name__
        said = (str(self.hint),) if self.hint else ()
        return Fault(
            f"{self.call}: expected {due}, but nothing was raised",
            (f"{self.call} must raise {due}; yours returns a value.", *said),
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
    """A step whose call must leave the ``watched`` arguments unchanged. The replay notices what it changes."""

    def changed(self, argument: Any) -> Fault:
        kind_of = "tensor" if isinstance(argument, torch.Tensor) else type(argument).__name__
        text = f"{self.call} changes its argument in place; work on a new {kind_of}."
        return Fault(text, (text,))


@dataclass(eq=False)
class Entry(Agrees):
    """An entry of a hand computation. The expected number is never shown."""

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
        """Return the number that was given; ``None`` if it is no number."""
        value = answer.value if isinstance(answer, Given) else None
        if isinstance(value, torch.Tensor):
            value = value.item() if value.numel() == 1 and not value.is_complex() else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
            return None
        return float(value)

    def is_rounded(self, number: float, of: float) -> bool:
        """Whether ``number`` is ``of`` rounded to fewer than four digits."""
        return not is_count(self.tolerance) and is_rounded(number, of)


@dataclass(eq=False)
class Block:
    """A criterion that earns ``points`` if no step misses. Golden blocks check values; the others count only if at
    least one golden block held."""

    name: str
    points: float
    golden: bool
    steps: list[Step] = field(default_factory=list)


@dataclass(eq=False)
class Script:
    """Everything that an answer of one exercise is asked."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        return list(itertools.chain.from_iterable(block.steps for block in self.blocks))


@dataclass(frozen=True, eq=False)
class Mistake:
    """A mistake to recognise: an object that makes it, and a sentence for each thing that it gets wrong."""

    subject: Any
    says: tuple[str, ...]


@dataclass(eq=False, frozen=True)
class Exercise:
    """One hidden test. Called with a student's answer, it returns the verdict. Outside of the grader, for example in
    nbgrader without the course's configuration, it ends the process: no grade is better than a wrong one."""

    assignment: str
    grade_id: str
    number: str
    points: float
    right: Any
    write: Callable[[Any, int, str], Script]  # from a right object, a seed and a device
    mistakes: Callable[[], Sequence[Mistake]]
    returns: tuple[str, ...] = ()  # names of several results, for messages
    # Sentences of mistakes that cost nothing again if they are repeated here.
    carried: Callable[[], Collection[str]] = tuple

    def __call__(self, student: Any, *earlier: Any) -> Verdict:
        """Return the verdict. Some cells pass earlier answers as well, which are ignored."""
        mark = marker.get()
        if mark is None:
            _refuse()
        verdict: Verdict = mark(self, student)
        return verdict

    @property
    def name(self) -> str:
        """The exercise's name in messages to students."""
        return f"{self.number} (`{self.grade_id}`)"

    def nothing(self, reason: str) -> Verdict:
        """Return the verdict on a missing answer: nothing was run."""
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
