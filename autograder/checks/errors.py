"""Whose error it is: the student's, or the course's own. The classes themselves stand in `autograder.errors`."""

from collections.abc import Callable
from typing import Any, NoReturn

from autograder.errors import BrokenCheck, Miss, StudentError

__all__ = ["Absent", "BrokenCheck", "Miss", "StudentError", "asked", "by_student"]


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


def asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the student's own object answers, or None if it fails."""
    try:
        return function(*arguments)
    except Exception as error:
        by_student(error)
        return None
