"""What can go wrong in a check, and whose it is: the student's, a missed criterion, or the course's own."""

import builtins
import re
from typing import Any, NoReturn

KNOWN_ERRORS = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)} \
    | {"ProcessEnded", "ProtocolError"}
LONG_NUMBER = re.compile(r"\d*\.\d+(e[-+]?\d+)?|\d{5,}", re.IGNORECASE)


class StudentError(Exception):
    """An exception raised by the student's code, as plain text: class names along its MRO, message, last line."""

    def __init__(self, type_names: tuple[str, ...], message: str, where: str = "") -> None:
        super().__init__(message)
        self.type_names, self.message, self.where = type_names, message, where

    @classmethod
    def from_exception(cls, error: BaseException) -> "StudentError":
        return cls(tuple(c.__name__ for c in type(error).__mro__), str(error))

    @property
    def means_unanswered(self) -> bool:
        return "NotImplementedError" in self.type_names

    @property
    def kind(self) -> str:
        """The first class along the MRO that is not the student's own."""
        return next((name for name in self.type_names if name in KNOWN_ERRORS), "Exception")

    @property
    def pattern(self) -> tuple[str, str]:
        """The error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
        return self.type_names[0], re.sub(r"-?\d+", "#", self.message)

    def describe(self) -> str:
        """One line. Long numbers are left out: they could be hidden inputs, and no message needs them."""
        head = self.message.strip().splitlines()[0][:200] if self.message.strip() else "no message"
        return f"{self.kind}: {LONG_NUMBER.sub('…', head)}" + (f" ({self.where})" if self.where else "")


class Miss(Exception):
    """A criterion is not met; the text is for the student."""


class BrokenCheck(Exception):
    """The course's own check failed to work; nobody may lose points for that."""


class Absent:
    """Stands for a name that the student's notebook does not define; using it in any way says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = f"`{name}` is not defined{reason}"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise StudentError(("NameError",), self.reason)

    __call__ = __getitem__ = __iter__ = __float__ = _refuse


def by_student(error: Exception) -> StudentError:
    """The error as the student's; the course's own trouble is raised again, for it is nobody else's."""
    if isinstance(error, StudentError):
        return error
    if type(error).__module__.startswith("autograder."):
        raise error
    return StudentError.from_exception(error)
