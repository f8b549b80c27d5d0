"""What is in force while tests are run: who gives the verdicts, and which arguments are watched."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# Gives the verdict on a student's answer to an `Exercise`. The only thing that a week's tests know of the grader.
marker: ContextVar[Callable[[Any, Any], Any] | None] = ContextVar("marker", default=None)

# Tensors, lists and dicts of which a test wants to see what the student's code does to them in place. All others stay as they
# are: a weight lent to a module and zeroed by it would make what comes after agree with zeros.
watched: ContextVar[tuple[Any, ...]] = ContextVar("watched", default=())


def fill(given: Any, content: Any) -> None:
    """Make ``content`` what a list or a dict holds. Only one of its own kind is data: nothing else is asked for its items."""
    if type(content) is not type(given):
        raise TypeError(f"a {type(content).__name__} is no {type(given).__name__}")
    if isinstance(given, dict):
        given.clear()
        given.update(content)
    else:
        given[:] = content
