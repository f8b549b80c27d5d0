"""Several weeks in one command: `make autograde WEEK=1,5`, `WEEK=all`. They share one grading process."""

import argparse
import shutil
from pathlib import Path

import pytest
from helpers import COURSE, run, standing

from autograder import commands
from autograder.__main__ import main
from autograder.classroom import Student, agrees, make_course_root, simulate
from autograder.course import assignments_of
from autograder.errors import CourseError
from autograder.grading.executors import grader as executor
from autograder.grading.executors.grader import Grader
from autograder.manifest import MANIFEST

WEEK1, WEEK5 = "week1_permutation_equivariance", "week5_extrapolation"
OPTIONS = argparse.Namespace(students="", isolation="bubblewrap", workers=0, scheduler="", regrade=False, timings=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_course_root(COURSE, tmp_path / "course", [WEEK1, WEEK5])
    return tmp_path / "course"


@pytest.fixture
def classes(root: Path) -> dict[str, list[Student]]:
    return {week: simulate(COURSE, root, week, count=2, seed=7) for week in (WEEK1, WEEK5)}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids of the grading processes that were started."""
    found: list[int] = []
    start = executor._start

    def counted():
        process = start()
        found.append(process.pid)
        return process

    monkeypatch.setattr(executor, "_start", counted)
    return found


def autograde(root: Path, weeks: list[str], options: argparse.Namespace) -> int:
    with Grader() as grader:
        return commands.autograde(root, weeks, options, grader)


def differing(root: Path, classes: dict[str, list[Student]]) -> list[str]:
    return [
        f"{week}: {student.name}"
        for week, students in classes.items()
        for student in students
        if not agrees(student, standing(root, week).get(student.name))
    ]


@pytest.mark.isolation
def test_one_grading_process_serves_them_all_and_is_gone_afterwards(root, classes, started) -> None:
    assert autograde(root, [WEEK1, WEEK5], OPTIONS) == 0
    assert not differing(root, classes)
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()


@pytest.mark.nightly
@pytest.mark.isolation
def test_students_by_name_are_graded_in_the_weeks_that_they_have_handed_in(root, classes) -> None:
    shutil.rmtree(root / "submitted" / "ada" / WEEK1)
    done = run("python", "-m", "autograder", "autograde", "--week", "all", "--students", "ada", cwd=root)
    assert WEEK5 in done.stdout and WEEK1 not in done.stdout
    assert {path.parts[-3] for path in root.glob("autograded/*/*/*.ipynb")} == {"ada"}


def test_the_exit_code_is_that_of_the_worst_week(root, classes, monkeypatch) -> None:
    codes = {WEEK1: 1, WEEK5: 0}
    monkeypatch.setattr(commands, "_autograde", lambda root, week, *rest: codes[week])
    assert autograde(root, [WEEK1, WEEK5], OPTIONS) == autograde(root, [WEEK5, WEEK1], OPTIONS) == 1


def test_feedback_and_its_kind_take_several_weeks(root, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(commands, "write_feedback", lambda root, week: asked.append(week) or 0)
    assert main(["--root", str(root), "feedback", "--week", "1,5"]) == 0 and asked == [WEEK1, WEEK5]


def test_what_nobody_has_handed_in_is_said_before_anything_is_graded(root) -> None:
    simulate(COURSE, root, WEEK1, count=1)
    with pytest.raises(CourseError, match=f"expected submitted/STUDENT/{WEEK5}/"):
        autograde(root, [WEEK1, WEEK5], OPTIONS)
    assert not (root / "autograded").exists()


def test_weeks_are_named_one_by_one_or_all(root) -> None:
    assert assignments_of("5, 1,week5", root) == [WEEK5, WEEK1]
    with pytest.raises(CourseError, match="no submissions"):
        assignments_of("all", root)
    simulate(COURSE, root, WEEK5, count=1)
    assert assignments_of("all", root) == [WEEK5]
    assert len(assignments_of(",".join(map(str, range(1, 9))), COURSE)) == len(MANIFEST)


@pytest.mark.parametrize(
    ("weeks", "said"), [*((none, "say which week") for none in (None, "", " , ")), ("1,33", "there is no week '33'")]
)
def test_a_week_that_is_not_named_or_not_known_is_asked_for(root, weeks, said) -> None:
    with pytest.raises(CourseError, match=said):
        assignments_of(weeks, root)
