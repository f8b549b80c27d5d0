"""What is computed once for a class: kept with its errors, without its graph, within bounds, by place;
and told to the other judges of the class."""

import math
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch

from autograder.checks import result_cache, shared_results
from autograder.checks.compare import Tolerance, difference
from autograder.checks.framework import calling, exercise, grading
from autograder.checks.result_cache import ResultCache
from autograder.checks.shared_file import SharedFile
from autograder.checks.shared_results import SharedResults
from autograder.misconceptions.bank import Mistake, known_mistakes

pytestmark = pytest.mark.usefixtures("made_up_checks")
WEEK = "week3_rope"


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
    with grading(seed=5, cache=remembered):  # other inputs, other places, should one memory ever see two classes
        assert test(lambda x: 2 * x).score == 2
    assert len(runs) == 8


# ---- what judges compute for each other -----------------------------------------------------------------------------


def in_another_process(work: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedFile]:
    monkeypatch.setattr(shared_results, "WORTH_TELLING", 0.0)
    file = SharedFile()
    yield file
    file.close()


def never() -> object:
    raise AssertionError("another judge has computed this")


VALUES = {
    "numbers": {"a": [1, 2.5, None, math.inf], "b": ("x", True)},
    "tensor": torch.arange(6.0).reshape(2, 3).T,
    "bfloat16": torch.tensor([1.0, math.nan]).bfloat16(),
    "complex": torch.tensor([1 + 2j]).conj(),
    "bool": torch.tensor(True),
    "empty": torch.empty(0, 3, dtype=torch.int64),
    "of several": (torch.ones(2), [torch.zeros(1, dtype=torch.float64)]),
}


@pytest.mark.parametrize("name", VALUES)
def test_one_judge_computes_for_all(shared: SharedFile, name: str) -> None:
    key, value = (WEEK, "f", "block", 1, "f(x)", 17), VALUES[name]
    in_another_process(lambda: SharedResults(shared).recall(key, lambda: value))
    found = SharedResults(shared).recall(key, never)
    assert type(found) is type(value)
    if name == "complex":
        assert torch.equal(found, value)
    else:
        assert not difference(found, value, Tolerance(0, 0, exact_dtype=True))


def test_known_mistakes_are_told_by_their_place_in_the_bank(shared: SharedFile) -> None:
    pair = known_mistakes(WEEK, "rope_frequencies")[-1]
    in_another_process(lambda: SharedResults(shared).recall(("place", pair), lambda: 5))
    results = SharedResults(shared)
    assert results.recall(("place", pair), never) == 5
    unknown = Mistake(len, ("It counts.",))
    assert results.recall(("place", unknown), lambda: 6) == 6 == results.recall(("place", unknown), never)


def test_errors_and_what_is_computed_in_no_time_each_finds_out_for_itself(
    shared: SharedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> object:
        raise ValueError("odd")

    results = SharedResults(shared)
    with pytest.raises(ValueError, match="odd"):
        results.recall("a", fail)
    monkeypatch.setattr(shared_results, "WORTH_TELLING", math.inf)
    results.recall("b", lambda: 1)
    assert shared.read(1, 0) == b""


def test_a_judge_does_not_read_what_it_has_written(shared: SharedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    results = SharedResults(shared)
    results.recall("a", lambda: 1)
    monkeypatch.setattr(pickle, "loads", never)
    results.recall("b", lambda: 2)
    assert results._offset > 0


@pytest.mark.parametrize("ends", ["in the middle", "in the header", "with other bytes"])
def test_after_a_judge_was_killed_while_it_wrote_the_others_go_on_alone(shared: SharedFile, ends: str) -> None:
    in_another_process(lambda: SharedResults(shared).recall("a", lambda: "value"))
    whole = shared.read(1000, 0)
    cut = {"in the middle": whole[:-3], "in the header": whole[:5], "with other bytes": whole[:-1] + b"x"}[ends]
    broken = SharedFile()
    broken.append(cut)
    in_another_process(lambda: SharedResults(broken).recall("b", lambda: "another " * 100))
    results = SharedResults(broken)
    assert results.recall("a", lambda: "own") == "own"
    assert results.recall("b", lambda: "own, too") == "own, too"
    assert results.recall("b", never) == "own, too"
    broken.close()


def test_without_room_on_the_disk_each_computes_for_itself(shared: SharedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    results = SharedResults(shared)
    monkeypatch.setattr(os, "write", lambda number, data: len(data) - 1)
    assert results.recall("a", lambda: 1) == 1 and results._file is None
    assert results.recall("a", never) == 1 and results.recall("b", lambda: 2) == 2
