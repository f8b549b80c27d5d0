"""What comes of asking an object something: a value, or an error that is the student's."""

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
    """The object raised, was stopped, or gave something that the question could not work with."""

    error: StudentError


Answer = Given | Raised


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


def answer_of(ask: Callable[[], Any]) -> Answer:
    """What ``ask()`` gives or raises."""
    try:
        return Given(ask())
    except Exception as error:
        return Raised(by_student(error))
