"""A grading run starts and ends with its ``with`` block."""

from pathlib import Path

import pytest
from helpers import COURSE, WEEK3

from autograder.classroom import make_course_root
from autograder.errors import GradingFailed
from autograder.grading import pipeline
from autograder.grading.course_state import run_lock
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Graded, Options, Outcome, Result

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


def test_a_result_is_kept_until_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK3])
    monkeypatch.setattr(
        Grader, "grade", lambda _, tasks, __, on_answer: [on_answer(Result(task.key)) for task in tasks]
    )
    kept: list[int] = []

    def on_outcome(student: str, outcome: Outcome) -> None:
        assert isinstance(outcome, Graded)
        for _ in range(2):
            kept.append(len(list((root / ".autograder" / "pending").iterdir())))
            outcome.forget()

    notebook = COURSE / "notebooks" / WEEK3 / f"{WEEK3}.ipynb"
    pipeline.grade_submissions(root, WEEK3, {"ada": notebook}, HERE, on_outcome)
    assert kept == [1, 0]
