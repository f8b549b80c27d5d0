"""Questions sent ahead: none contains the expected answer to another, so a student gains nothing by reading them."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.grading.sandbox.worker.wire import bytes_of
from autograder.manifest import MANIFEST
from autograder.script.answer import Given
from autograder.script.script import Exercise


def exercises(week: str) -> list[Exercise]:
    checks = importlib.import_module(f"autograder.checks.{week.split('_')[0]}")
    return [value for value in vars(checks).values() if isinstance(value, Exercise)]


@pytest.mark.parametrize("week", MANIFEST)
def test_nothing_that_is_sent_ahead_holds_what_is_expected(week: str) -> None:
    """The student's process could read it there. A step's own arguments may hold it: unrotated, x itself is right."""
    count = 0
    for exercise in exercises(week):
        steps = exercise.write(exercise.right, 9, "cpu").steps
        sent = {raw for step in steps for q in step.questions if q.is_plain for raw in telling((q.args, q.kwargs))}
        for step in steps:
            own = {raw for question in step.questions for raw in telling((question.args, question.kwargs))}
            expected = set(telling(step.expected.value)) - own if isinstance(step.expected, Given) else set()
            assert not expected & sent, step.call
            count += len(expected)
    assert count > 10


def telling(value: Any) -> Iterator[bytes]:
    """Yield the bytes, as on the wire, of all float tensors with several different numbers."""
    for tensor in tensors_in(value):
        if tensor.is_floating_point() and tensor.numel() >= 6 and tensor.unique().numel() >= 4:
            yield bytes_of(tensor)
