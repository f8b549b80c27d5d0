"""Questions sent ahead: a right answer is asked what it would be asked one by one, in the same order, in fewer messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import COURSE

from autograder.classroom import make_course_root
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


@pytest.mark.parametrize("assignment", MANIFEST)
def test_a_right_answer_is_asked_the_same_in_the_same_order(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_course_root(COURSE, tmp_path, [assignment])
    notebook = intake.rebuild(COURSE / "solutions" / assignment, tmp_path, assignment).notebook
    template, released = instructor_cells(tmp_path, assignment), released_files(tmp_path, assignment)
    task = Task.of("ada", assignment, notebook, template, released, seed=7)
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
        results[most] = answer.scores, answer.verdicts
        asked[most] = [frame for frames in messages for frame in frames], len(messages)
    assert results[0] == results[prefetch.MOST]
    (one_by_one, count), (ahead, fewer) = asked[0], asked[prefetch.MOST]
    assert ahead == one_by_one
    assert fewer < 0.8 * count, f"{fewer} messages in place of {count}"
