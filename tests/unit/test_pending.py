"""The results of an interrupted run are found again, but only if they are still valid."""

from pathlib import Path

import pytest

from autograder.grading.messages import Options, Result, Task, TaskCell
from autograder.grading.pending import Pending

RESULT = Result("ada", scores={"a_tests": 1.5}, verdicts={"a_tests": {"named": ["too large"]}}, seconds={"a": 0.1})


def task(key: str = "ada", source: str = "x = 1", seed: int = 7) -> Task:
    return Task(key, "week3_rope", [TaskCell("a", "answer", source)], {"lab.py": "y = 2"}, seed)


@pytest.fixture
def pending(tmp_path: Path) -> Pending:
    return Pending(tmp_path, Options())


def test_a_result_comes_back_as_it_was(pending: Pending) -> None:
    name = pending.name(task())
    assert pending.find(name) is None
    pending.keep(name, RESULT)
    assert pending.find(name) == RESULT


def test_a_saved_result_is_dropped_and_dropping_twice_is_no_error(pending: Pending) -> None:
    name = pending.name(task())
    pending.keep(name, RESULT)
    pending.drop(name)
    pending.drop(name)
    assert pending.find(name) is None and not list(pending.folder.iterdir())


@pytest.mark.parametrize("other", [task("boole"), task(source="x = 2"), task(seed=8)], ids=["student", "code", "seed"])
def test_another_submission_has_another_name(pending: Pending, other: Task) -> None:
    assert pending.name(other) != pending.name(task()) == pending.name(task())


@pytest.mark.parametrize(
    "options",
    [Options(isolate=False), Options(device="cuda"), Options(limits={"cell_cpu": 1.0})],
    ids=["isolation", "device", "limits"],
)
def test_another_way_of_grading_has_another_name(pending: Pending, tmp_path: Path, options: Options) -> None:
    assert Pending(tmp_path, options).name(task()) != pending.name(task())


def test_another_value_of_a_limit_is_another_way_of_grading(tmp_path: Path) -> None:
    names = {Pending(tmp_path, Options(limits={"cell_cpu": seconds})).name(task()) for seconds in (5.0, 30.0)}
    assert len(names) == 2


def test_how_many_grade_at_the_same_time_changes_no_result(pending: Pending, tmp_path: Path) -> None:
    assert Pending(tmp_path, Options(workers=8)).name(task()) == pending.name(task())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "ada", "no such field": 1}'])
def test_a_damaged_file_counts_as_none(pending: Pending, content: str) -> None:
    name = pending.name(task())
    (pending.folder / name).write_text(content)
    assert pending.find(name) is None
