"""What a run reports besides grades if grading or the gradebook fails."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import COURSE, WEEK3, standing
from sqlalchemy.exc import OperationalError

from autograder import commands
from autograder.__main__ import main
from autograder.classroom import make_course_root
from autograder.commands import run_autograde
from autograder.errors import CourseError, GradingFailed
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Failed, OnOutcome, Ungradable
from autograder.grading.plugins import autograde
from autograder.grading.plugins.run_gradebook import RunGradebook
from autograder.grading.submission import intake

OPTIONS = argparse.Namespace(isolation="none", workers=1)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course root with two submissions: grading the first one fails, the second one cannot be read."""
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK3])
    for name in ("ada", "boole"):
        folder = root / "submitted" / name / WEEK3
        folder.mkdir(parents=True)
        (folder / f"{WEEK3}.ipynb").write_text("{}")

    def grade(root: Path, assignment: str, _: Any, __: Any, on_outcome: OnOutcome, **___: Any) -> None:
        on_outcome("ada", Failed("no disk"))
        on_outcome("boole", Ungradable(intake.unreadable(root, assignment, "no text"), "no text"))

    monkeypatch.setattr(autograde, "grade_submissions", grade)
    monkeypatch.setattr(Grader, "prestart", lambda *_: None)
    return root


def test_who_got_no_grade_is_said_and_the_others_are_saved(root: Path) -> None:
    run = run_autograde(root, WEEK3, OPTIONS, Grader())
    assert run.failures == ["ada: no disk. No grade was given; the next run tries again"] and run.seconds == {}
    assert {name: score.reason for name, score in standing(root).items()} == {"ada": "no disk", "boole": "no text"}
    assert not (root / "autograded" / "ada").exists() or not list((root / "autograded" / "ada").rglob("*.ipynb"))
    saved = json.loads((root / "autograded" / "boole" / WEEK3 / f"{WEEK3}.ipynb").read_text())
    assert saved["metadata"]["autograder"]["kept"]["reason"] == "no text"


def test_a_run_that_leaves_somebody_without_a_grade_has_failed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "late.csv").write_text("student,week,days\nada,3,1\nadda,3,1\n")
    options = argparse.Namespace(**vars(OPTIONS), students="", timings=False)
    assert commands.autograde(root, [WEEK3], options, Grader()) == 1
    assert "late.csv: there is no other trace of adda:" in capsys.readouterr().out
    (root / "submitted" / "ada").rename(root / "ada")
    assert commands.autograde(root, [WEEK3], options, Grader()) == 0
    (root / "submitted" / "loose.ipynb").touch()
    assert commands.autograde(root, [WEEK3], options, Grader()) == 1 and "removed?): ada" in capsys.readouterr().out


def test_before_anything_is_graded_no_table_and_no_gradebook_are_made(root: Path) -> None:
    with pytest.raises(CourseError, match="nothing of week3_rope is graded yet"):
        commands.lms(root, WEEK3, "moodle", False)
    assert not (root / "gradebook.db").exists() and not (root / "report").exists()


@pytest.mark.parametrize("count", ["0", "-2", "many"])
def test_a_demo_has_students(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--students", count])
    assert f"'{count}' is no number of students: give 1 or more" in capsys.readouterr().err


def test_who_hands_in_again_is_graded_again(root: Path) -> None:
    stamp = root / "submitted" / "boole" / WEEK3 / "timestamp.txt"
    saved = root / "autograded" / "boole" / WEEK3 / f"{WEEK3}.ipynb"
    run_autograde(root, WEEK3, OPTIONS, Grader())  # without a time: any time is newer
    for day, is_graded in ((2, True), (2, False), (3, True)):
        stamp.write_text(f"2026-10-0{day} 10:00:00 UTC")
        before = saved.stat().st_mtime_ns
        run_autograde(root, WEEK3, OPTIONS, Grader())
        assert (saved.stat().st_mtime_ns > before) is is_graded


def test_a_defect_of_ours_costs_one_submission_and_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograde.CourseAutograde, "_save", lambda *_: {}["missing"])
    assert run_autograde(root, WEEK3, OPTIONS, Grader()).failures[1:] == ["boole: KeyError: 'missing'"]


def test_a_gradebook_that_fails_ends_the_run_in_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: object) -> float:
        raise OperationalError("INSERT", {}, Exception("disk I/O error"))

    monkeypatch.setattr(RunGradebook, "save", save)
    with pytest.raises(
        GradingFailed, match=r"cannot be read or written .*disk I/O error.*what is graded is kept"
    ) as said:
        run_autograde(root, WEEK3, OPTIONS, Grader())
    assert "\n" not in str(said.value)
