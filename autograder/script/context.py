"""The context of running tests: the function that gives verdicts, and the arguments that are watched."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# Gives the verdict on a student's answer to an `Exercise`. A week's tests know nothing else of the grader.
marker: ContextVar[Callable[[Any, Any], Any] | None] = ContextVar("marker", default=None)

# Tensors, lists and dicts in which a test wants to see what the student's code changes in place. All others stay as
# they are: if a module could zero a weight that was lent to it, zeros would look right in later questions.
watched: ContextVar[tuple[Any, ...]] = ContextVar("watched", default=())


def fill(given: Any, content: Any) -> None:
    """Replace what a list or dict holds by ``content``. Raises ``TypeError`` if ``content`` is of another type."""
    if type(content) is not type(given):
        raise TypeError(f"a {type(content).__name__} is no {type(given).__name__}")
    if isinstance(given, dict):
        given.clear()
        given.update(content)
    else:
        given[:] = content
