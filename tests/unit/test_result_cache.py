"""Results that are computed once for a class: cached with errors, without graphs, within bounds."""

import pytest
import torch

from autograder.checks.framework import calling, exercise
from autograder.grading.marking import result_cache
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache


def test_values_and_errors_are_computed_once() -> None:
    remembered, calls = ResultCache(), []

    def compute(value: object) -> object:
        calls.append(value)
        if isinstance(value, Exception):
            raise value
        return value

    leaf = torch.ones(3, requires_grad=True)
    for _ in range(2):
        found = remembered.recall("a", lambda: compute({"x": (2 * leaf, 1.5)}))
        assert found["x"][1] == 1.5 and not found["x"][0].requires_grad
        with pytest.raises(ValueError, match="odd"):
            remembered.recall("b", lambda: compute(ValueError("odd")))
    assert len(calls) == 2
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError) as raised:
            remembered.recall("b", lambda: None)
        depths.append(len(raised.traceback))
    assert depths[0] == depths[2]


def test_what_does_not_fit_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "ROOM", 1000)
    remembered = ResultCache()
    assert remembered.recall("small", lambda: torch.zeros(100)).sum() == 0
    assert remembered.recall("large", lambda: torch.zeros(200)).sum() == 0
    assert (
        remembered.recall("small", lambda: torch.ones(100)).sum() == 0
        and remembered.recall("large", lambda: torch.ones(200)).sum() == 200
    )


def test_the_reference_runs_once_per_question_and_class() -> None:
    runs = []

    def right(x: torch.Tensor) -> torch.Tensor:
        runs.append(x.clone())
        return 2 * x

    @exercise("week3_rope", "rope_frequencies", reference=right)
    def test(check) -> None:
        for name in ("a", "b"):
            with check.criterion(name, 1, golden=True):
                for _ in range(2):
                    check.agrees(calling(check.randn(3)), "f(x)")

    remembered = ResultCache()
    for student, score in ((lambda x: 2 * x, 2), (lambda x: 3 * x, 0), (lambda x: x + x, 2)):
        with grading(seed=4, cache=remembered):
            assert test(student).score == score
    assert len(runs) == 4
