"""Questions sent ahead: a right answer is asked what it would be asked one by one, in the same order, in fewer messages."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import COURSE

from autograder.classroom import make_course_root
from autograder.checks.compare import Tolerance, difference
from autograder.checks.plan import Recorder
from autograder.checks.probes import Probe
from autograder.course import instructor_cells, released_files
from autograder.grading.judge import judge
from autograder.grading.messages import Result, Task
from autograder.grading.sandbox import prefetch
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.worker.wire import Connection
from autograder.grading.submission import intake
from autograder.manifest import MANIFEST

pytestmark = [pytest.mark.isolation, pytest.mark.xdist_group("sandbox")]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def task_of_solution(assignment: str, root: Path) -> Task:
    make_course_root(COURSE, root, [assignment])
    notebook = intake.rebuild(COURSE / "solutions" / assignment, root, assignment).notebook
    template, released = instructor_cells(root, assignment), released_files(root, assignment)
    return Task.of("ada", assignment, notebook, template, released, seed=7)


def outcome(answer: Any, *arguments: Any) -> tuple[Any, type[Exception] | None]:
    torch.manual_seed(0)  # for modules that are asked for the numbers that they begin with
    try:
        return answer(*arguments), None
    except Exception as error:
        return None, type(error)


@pytest.mark.parametrize("assignment", MANIFEST)
def test_what_is_expected_is_what_the_reference_gives_in_this_process(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing, count = [], 0
    stock = Recorder.answer

    def both(recorder: Recorder, probe: Probe) -> Any:
        nonlocal count
        (value, error), (direct, expected) = outcome(stock, recorder, probe), outcome(probe, recorder._objects[0])
        count += 1
        if error is not expected or difference(value, direct, Tolerance(rtol=0, atol=0, exact_dtype=True)):
            differing.append((recorder._part, value, direct))
        return probe(recorder._objects[0])

    monkeypatch.setattr(Recorder, "answer", both)
    task = dataclasses.replace(
        task_of_solution(assignment, tmp_path), seed=8
    )  # of another class: nothing is known of it
    assert isinstance(judge(task, sandbox), Result)
    assert not differing and count > 20


@pytest.mark.parametrize("assignment", MANIFEST)
def test_a_right_answer_is_asked_the_same_in_the_same_order(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of_solution(assignment, tmp_path)
    messages: list[list[tuple[str, bytes]]] = []
    send = Connection.send_frames

    def noted(connection: Connection, frames: list[tuple[str, bytes]], *more: Any) -> None:
        messages.append(frames)
        send(connection, frames, *more)

    monkeypatch.setattr(Connection, "send_frames", noted)
    asked, results = {}, {}
    for most in (0, prefetch.MOST):
        messages.clear()
        with monkeypatch.context() as patch:
            patch.setattr(prefetch, "FIRST", min(most, prefetch.FIRST))
            patch.setattr(prefetch, "MOST", most)
            answer = judge(task, sandbox)
        assert isinstance(answer, Result)
        assert all(answer.scores[cell.id] == cell.points for cell in task.cells if cell.points)
        results[most] = answer.scores, answer.verdicts
        asked[most] = [frame for frames in messages for frame in frames], len(messages)
    assert results[0] == results[prefetch.MOST]
    (one_by_one, count), (ahead, fewer) = asked[0], asked[prefetch.MOST]
    assert ahead == one_by_one
    assert fewer < 0.8 * count, f"{fewer} messages in place of {count}"
