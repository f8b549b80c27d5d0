"""A week's hidden tests: imported, compared with the manifest, and recorded for a class before judges are forked."""

import contextlib
import importlib
from functools import lru_cache

import torch

from autograder.course import is_week
from autograder.errors import BrokenCheck
from autograder.grading.marking.marking import Marking
from autograder.grading.marking.result_cache import ResultCache
from autograder.grading.sandbox.worker.tensors import EXACT
from autograder.manifest import MANIFEST
from autograder.script.script import Exercise


@lru_cache(maxsize=1)
def cache_of(assignment: str, seed: int, device: str) -> ResultCache:
    """Return the cache for one assignment, class and device."""
    return ResultCache()


def prepare(assignment: str) -> None:
    """Import what the judges of this assignment need, once, before they are forked."""
    import matplotlib.pyplot  # noqa: F401  the notebooks' set-up cells do

    torch.set_float32_matmul_precision(EXACT)
    with contextlib.suppress(BrokenCheck):  # each submission reports it
        for exercise in hidden_tests(assignment):
            exercise.mistakes()


def write_scripts(assignment: str, seed: int, device: str) -> None:
    """Write an assignment's hidden tests for this class and device. A broken one is reported only during grading."""
    marking = Marking(seed, device, cache_of(assignment, seed, device))
    with contextlib.suppress(BrokenCheck):
        for exercise in hidden_tests(assignment):
            with contextlib.suppress(Exception):
                for one in dict.fromkeys((device, "cpu")):
                    marking.script(exercise, one)


def hidden_tests(assignment: str) -> list[Exercise]:
    """Return the hidden tests of a week. An instructor's own assignment has none: its notebook contains its tests. Raises
    ``BrokenCheck`` if the week's module cannot be imported, or lacks the test of an exercise in the manifest."""
    if not is_week(assignment):
        return []
    name = f"autograder.checks.{assignment.split('_')[0]}"
    try:
        week = importlib.import_module(name)
    except Exception as error:
        raise BrokenCheck(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    found = [value for value in vars(week).values() if isinstance(value, Exercise)]
    due = {entry.grade_id for entry in MANIFEST[assignment] if entry.kind != "text"}
    if lacking := sorted(due - {exercise.grade_id for exercise in found}):
        raise BrokenCheck(f"{name} has no @exercise for {', '.join(lacking)}")
    return found
