"""A grading run begins and ends with its block."""

from pathlib import Path

import pytest

from autograder.errors import GradingFailed
from autograder.grading import pipeline
from autograder.grading.course_state import run_lock
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Options

HERE = Options(isolate=False)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(Grader, "prestart", lambda *_: said.append("prestart"))
    monkeypatch.setattr(Grader, "close", lambda _: said.append("close"))
    return said


def test_whatever_was_started_ends_with_the_block(tmp_path: Path, calls: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), pipeline.grading_run(tmp_path, "week3_rope", HERE):
        raise ZeroDivisionError
    assert calls == ["prestart", "close"]
    with run_lock(tmp_path):
        pass
    with pipeline.grading_run(tmp_path, "week3_rope", HERE, grader := Grader()) as given:
        assert given is grader
    assert calls == ["prestart", "close", "prestart"], "what was there before stays"


def test_nothing_is_written_where_nothing_can_be_isolated(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "why_not_isolated", lambda: "no bubblewrap: install it")
    with pytest.raises(GradingFailed, match="install it"), pipeline.grading_run(tmp_path, "week3_rope", Options()):
        pass
    assert calls == [] and list(tmp_path.iterdir()) == []
    with pipeline.grading_run(tmp_path, "week3_rope", Options(scheduler="tcp://1.2.3.4:5")):
        assert calls == [], "a cluster's workers are asked there"


def test_beside_another_run_nothing_starts(tmp_path: Path, calls: list[str]) -> None:
    with run_lock(tmp_path), pytest.raises(GradingFailed), pipeline.grading_run(tmp_path, "w", HERE):
        pass
    assert calls == []
