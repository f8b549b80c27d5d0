"""Every exception of the course's grader, in one place.

    AutograderError                 the text says what to do; `main` prints it in one line, exit code 2
    ├── CourseError                 something in the course or the command that a person can put right
    │   ├── TextError               a week's text notebook breaks a rule of docs/authoring.md
    │   └── RegionError             a marked region is not closed, nested, or where it must not be
    └── GradingError                one run, or one submission, could not be graded: never a score
        ├── GradingFailed           the run cannot go on, or this submission has to be graded again
        │   └── GraderDied          the grading process has ended before its time: another one may manage
        ├── SandboxError            the sandbox did not work, which is never the student's fault
        └── UngradableError         this file cannot be graded; the text is the reason, for instructor and student

    StudentError                    the student's code raised this, as plain text from another process
    LimitExceeded                   a submission uses more than it may; becomes a StudentError
    BrokenCheck                     the course's own check does not work; nobody loses points for that

What the sandbox and this side say to each other has errors of its own, in `grading/sandbox/worker/wire.py`: that folder
is mounted alone and imports nothing from here.
"""

import builtins
import re
import unicodedata


class AutograderError(Exception):
    """The common base of what a person is told in one line."""


class CourseError(AutograderError):
    """Something a person can put right; the text says how."""


class TextError(CourseError, ValueError):
    """The text notebook breaks a rule of docs/authoring.md."""


class RegionError(CourseError, ValueError):
    """A region that is not closed, nested, or where it must not be."""


class GradingError(AutograderError):
    """Grading could not be done; nobody gets a score for that."""


class GradingFailed(GradingError):
    """The run cannot go on, or a submission must be graded again."""


class GraderDied(GradingFailed):
    """The grading process has ended before its time; another one may manage what it was at."""


class SandboxError(GradingError):
    """The sandbox did not work. That is never the student's fault and never becomes a grade."""


class UngradableError(GradingError):
    """The submission cannot be graded; the text is the reason and what to do, for instructor and student."""


KNOWN_ERRORS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
) | {"ProcessEnded", "ProtocolError"}
LONG_NUMBER = re.compile(r"\d*\.\d+(e[-+]?\d+)?|\d{5,}", re.IGNORECASE)


class StudentError(Exception):
    """An exception raised by the student's code, as plain text: class names along its MRO, message, last line.

    ``means_unanswered`` says that the stub's own ``raise`` has raised it: libraries raise NotImplementedError, too.
    """

    def __init__(
        self, type_names: tuple[str, ...], message: str, where: str = "", means_unanswered: bool = False
    ) -> None:
        super().__init__(message)
        self.type_names, self.message, self.where = type_names, message, where
        self.means_unanswered = means_unanswered

    @classmethod
    def from_exception(cls, error: BaseException) -> "StudentError":
        """The same for an exception raised in this process (banks)."""
        is_stub = type(error) is NotImplementedError and not str(error)
        return cls(tuple(c.__name__ for c in type(error).__mro__), str(error), means_unanswered=is_stub)

    @property
    def kind(self) -> str:
        """The first class along the MRO that is not the student's own."""
        return next((name for name in self.type_names if name in KNOWN_ERRORS), "Exception")

    @property
    def was_stopped(self) -> bool:
        """Whether the sandbox has ended the call or not begun it; what the code raises itself has more classes than one."""
        return len(self.type_names) == 1

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the code was refused memory, by Python or by PyTorch, which has no exception of its own for it."""
        return "MemoryError" in self.type_names or "can't allocate memory" in self.message

    def describe(self) -> str:
        """One line. Long numbers are left out: they could be hidden inputs, and no message needs them."""
        head = visible(self.message.strip().splitlines()[0][:200]) if self.message.strip() else "no message"
        return f"{self.kind}: {LONG_NUMBER.sub('…', head)}" + (f" ({self.where})" if self.where else "")


def visible(text: str) -> str:
    """The text without what a terminal or a page would obey: control characters, those that turn the line around, and more
    than two marks on one letter, which would stand over other lines."""
    marks, kept = 0, []
    for character in text:
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        kept += [character if character.isprintable() else " "] if marks <= 2 else []
    return "".join(kept)


class LimitExceeded(Exception):
    """A submission uses more than it may; ``kind`` is the class of error that its code is told."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BrokenCheck(Exception):
    """The course's own check failed to work; nobody may lose points for that."""


def missing_package(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    return (
        f"a package that the course needs is missing here ({error}): run `make setup` in the course's folder, or "
        "`pip install -e .` in the environment that you use"
    )


def first_line(error: BaseException) -> str:
    """The part of a library's error that says something: SQLAlchemy adds the statement, and a link to its own pages."""
    for line in str(error).splitlines():
        if line.strip() and not line.startswith(("(Background on", "[SQL:", "[parameters:")):
            return line.strip()
    return type(error).__name__


def cannot_store(error: BaseException) -> str:
    """What to do when files or the database fail in the middle of a run."""
    said = first_line(error)
    if "psycopg" in said.partition(")")[0]:
        return f"the gradebook's database failed ({said}): see that it runs and can be reached"
    return f"the course's files cannot be read or written ({said}): free some space or mend the permissions"
