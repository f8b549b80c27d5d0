"""What surrounds a hidden test while it runs: the class's seed, the device, what is known already, the verdicts."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from autograder.checks.follow_through import in_this_process
from autograder.checks.result_cache import NoCache, ResultCache
from autograder.checks.verdict import Verdict

Replacing = Callable[[str, Any, Mapping[str, Any]], AbstractContextManager[tuple[Any, Collection[str]]]]


@dataclass
class GradingContext:
    """What a trusted run hands to the checks: the class's seed, the device, a cache for this class on this device, a
    place for the verdicts, and two ways to see answers otherwise than they are now. With earlier ones replaced: a context of
    ``(name of the answer, the answer, replacements by name)`` that gives the answer anew, and the names of those that it
    uses. And as they were before anything was asked of them: ``forget`` sees to that, or returns false."""

    seed: int = 0
    device: str = "cpu"
    cache: ResultCache = field(default_factory=NoCache)
    verdicts: list[Verdict] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)  # answers that a visible check has found wrong
    replacing: Replacing = in_this_process
    forget: Callable[[], bool] = lambda: True
    crashed: Callable[[], Collection[str]] = tuple  # answers that have hung or died: nothing calls them any more


_context: ContextVar[GradingContext | None] = ContextVar("grading_context", default=None)
# Tensors and lists of which a check wants to see what the student's code does to them in place. All others stay as they
# are: a weight lent to a module and zeroed by it would make what comes after agree with zeros.
watched: ContextVar[tuple[Any, ...]] = ContextVar("watched", default=())


@contextmanager
def grading(seed: int = 0, device: str = "cpu", cache: ResultCache | None = None) -> Iterator[GradingContext]:
    """Only inside this context do hidden tests run."""
    context = GradingContext(seed, device, cache or NoCache())
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def current() -> GradingContext | None:
    """The context in force, if any."""
    return _context.get()
