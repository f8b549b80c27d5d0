"""The answer of an object to a question: a value, or an error in the student's code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from autograder.errors import StudentError


@dataclass(frozen=True, eq=False)
class Given:
    """The object gave this value."""

    value: Any


@dataclass(frozen=True, eq=False)
class Raised:
    """The object raised this error, was stopped with it, or gave something that the question could not work with."""

    error: StudentError


Answer = Given | Raised


class Absent:
    """A placeholder for a name that the student's notebook does not define; using it raises an error that says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = f"`{name}` is not defined{reason}"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise StudentError(("NameError",), self.reason)

    __call__ = __getitem__ = __iter__ = __float__ = _refuse


def by_student(error: Exception, of_result: bool = False) -> StudentError:
    """Return the error as a ``StudentError``. The course's own errors, which no student caused, are raised again."""
    if isinstance(error, StudentError):
        return error
    if type(error).__module__.startswith("autograder."):
        raise error
    return StudentError.from_exception(error, of_result)


def answer_of(ask: Callable[[], Any]) -> Answer:
    """Return what ``ask()`` gives or raises."""
    try:
        return Given(ask())
    except Exception as error:
        return Raised(by_student(error, of_result=True))
