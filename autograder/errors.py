"""The exceptions of the course's grader that cross modules.

The messages between sandbox and grader have their own errors, in `grading/sandbox/worker/wire.py`: that folder is
mounted alone and imports nothing from here.
"""

import builtins
import re
import unicodedata


class AutograderError(Exception):
    """The base of all errors that a person is told in one line: the text says what to do."""


class CourseError(AutograderError):
    """Something a person can fix; the text says how."""


class TextError(CourseError, ValueError):
    """A text notebook or its regions break a rule of docs/authoring.md."""


class GradingError(AutograderError):
    """Grading was not possible and gave no score."""


class GradingFailed(GradingError):
    """The run cannot go on, or a submission must be graded again."""


class GraderDied(GradingFailed):
    """The grading process ended early; a new one may finish its work."""


class SandboxError(GradingError):
    """The sandbox did not work. That is never the student's fault and never becomes a grade."""


class UngradableError(GradingError):
    """The submission cannot be graded; the text is the reason and what to do, for instructor and student."""


KNOWN_ERRORS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
) | {"ProcessEnded", "ProtocolError"}
LONG_NUMBER = re.compile(r"\d+\.\d+(e[-+]?\d+)?|\d{5,}", re.IGNORECASE)
NO_GPU_SAID = re.compile("Torch not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver")
NO_GPU = ". (There is no GPU here: write device=x.device, not 'cuda', and set no default device.)"


class StudentError(Exception):
    """An exception raised by the student's code, as plain text: class names along its MRO, message, last line.

    ``means_unanswered`` says that the stub's own ``raise`` raised it: libraries raise NotImplementedError, too.
    ``of_result`` says that the student's code raised nothing: the question could not work with what it returned.
    """

    of_result = False

    def __init__(
        self, type_names: tuple[str, ...], message: str, where: str = "", means_unanswered: bool = False
    ) -> None:
        super().__init__(message)
        self.type_names, self.message, self.where = type_names, message, where
        self.means_unanswered = means_unanswered

    @classmethod
    def from_exception(cls, error: BaseException, of_result: bool = False) -> "StudentError":
        """Convert an exception that was raised in this process, as by an answer of a bank."""
        is_stub = type(error) is NotImplementedError and not str(error)
        made = cls(tuple(c.__name__ for c in type(error).__mro__), str(error), means_unanswered=is_stub)
        made.of_result = of_result
        return made

    @classmethod
    def unusable(cls, kind: str, why: str) -> "StudentError":
        """The student's code raised nothing, but what it returned or made is not what the question needs."""
        made = cls((kind, "Exception"), why)
        made.of_result = True
        return made

    @property
    def kind(self) -> str:
        """The first class along the MRO that is not the student's own."""
        return next((name for name in self.type_names if name in KNOWN_ERRORS), "Exception")

    @property
    def was_stopped(self) -> bool:
        """Whether the sandbox ended the call or never began it; what the code itself raises has more than one class."""
        return len(self.type_names) == 1

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the code was refused memory, by Python or by PyTorch, which has no exception of its own for it."""
        return "MemoryError" in self.type_names or "can't allocate memory" in self.message

    def describe(self) -> str:
        """One line. Long numbers are left out: they could be hidden inputs, and no message needs them."""
        lines = [line.strip() for line in self.message.strip().splitlines()] or ["no message"]
        head = visible(" ".join(lines[: 1 + lines[0].endswith(":")])[:200])  # a line with a colon says nothing yet
        remedy = NO_GPU if NO_GPU_SAID.search(head) else ""
        return f"{self.kind}: {LONG_NUMBER.sub('…', head)}" + (f" ({self.where})" if self.where else "") + remedy


def visible(text: str) -> str:
    """The text with a space for each unprintable character, such as one that controls the terminal or reverses the
    line, and with at most two marks on a letter: more would cover other lines."""
    marks, kept = 0, []
    for character in text:
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        kept += [character if character.isprintable() else " "] if marks <= 2 else []
    return "".join(kept)


class BrokenCheck(Exception):
    """The course's own check failed to work; nobody may lose points for that."""


def missing_package(error: ImportError) -> str:
    """One line that says how to fix a failed import."""
    return (
        f"a package that the course needs is missing here ({error}): run `make setup` in the course's folder, or "
        "`pip install -e .` in the environment that you use"
    )


def first_line(error: BaseException) -> str:
    """The informative line of a library's error: SQLAlchemy adds the statement, and a link to its documentation."""
    for line in str(error).splitlines():
        if line.strip() and not line.startswith(("(Background on", "[SQL:", "[parameters:")):
            return line.strip()
    return type(error).__name__


def cannot_store(error: BaseException) -> str:
    """One line that says what to do when files or the database fail in the middle of a run."""
    said = first_line(error)
    if "psycopg" in said.partition(")")[0]:
        return f"the gradebook's database failed ({said}): see that it runs and can be reached"
    if isinstance(error, (FileNotFoundError, LookupError)):  # Jinja's error is a LookupError, too
        return f"a file or folder is missing ({said}): copy the course's folder again, as a whole"
    return f"the course's files cannot be read or written ({said}): free some space or mend the permissions"
