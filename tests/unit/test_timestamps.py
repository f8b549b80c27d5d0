"""The time of a submission by its timestamp.txt: as nbgrader reads it, or nothing and a reason."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from traitlets.config import Config

from autograder.grading.plugins import nbgrader_patches
from autograder.grading.plugins.autograde import CourseAutograde
from autograder.grading.plugins.timestamps import LONGEST, Stamp, is_due_date, parsed, read_stamp, timestamp

WEEK = "week3_rope"


@pytest.mark.parametrize(
    "text",
    ["2026-11-25 20:00:21.123456 UTC", "2026-11-25 20:00:21 UTC\n", "2026-11-25 21:00:21 Europe/Berlin", "2026-11-25T20:00:21Z",
     "2026-11-25 21:00:21+01:00", "2026-11-25 20:00", "2026-11-25 15:00:21 America/New_York\n", "2026-11-26 01:30 Asia/Kolkata\r\n",
     " 2026-11-25 21:00 Europe/Berlin ", "Wed, 25 Nov 2026 20:00:00 +0000", "Wed, 25 Nov 2026 21:00:00 +0100", "Nov 25, 2026 8:00 PM",
     "25 November 2026, 8:00 PM", "Wednesday, 25 November 2026, 8:00 PM", "11/25/2026 20:00:05", "20261125T200000Z",
     "2026-11-25 20:00:00 EST5EDT4,M3.2.0/2,M11.1.0/2"],
)  # fmt: skip
def test_a_time_that_nbgrader_reads_is_read_the_same(tmp_path: Path, text: str) -> None:
    (tmp_path / "timestamp.txt").write_bytes(text.encode())
    found = read_stamp(tmp_path)
    assert found.moment == parse_utc(text.strip()) and found.problem == ""
    assert is_due_date(text.strip()) is text.strip().startswith("2026-")
    if "EST" not in text:
        assert found.moment.replace(second=0, microsecond=0) == datetime.datetime(2026, 11, 25, 20, 0)


def test_what_an_editor_puts_in_front_is_no_part_of_the_time(tmp_path: Path) -> None:
    (tmp_path / "timestamp.txt").write_text("2026-11-25 20:00:00 UTC\r\n", encoding="utf-8-sig")
    assert timestamp(tmp_path) == datetime.datetime(2026, 11, 25, 20, 0)


@pytest.mark.parametrize(
    "text",
    ["soon", "2026-11-25 20:00 /proc/self/mem", "2026-11-25 20:00 :/proc/self/mem", "2026-11-25 20:00 ../../../etc/passwd",
     "2026-11-25 20:00 Europe/../../etc/passwd", "99999999999999999999-1-1", "0001-01-01 00:00 +1400", "25:61 feb 31", "\x00", "1e400",
     "05.12.2026 18:00", "17.11.2026 18:00 UTC", "18:00"],
)  # fmt: skip
def test_what_is_no_time_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "timestamp.txt").write_text(text)
    found = read_stamp(tmp_path)
    assert found.moment is None and found.content == text.encode()
    assert "holds no time that can be read" in found.problem and "counts as not late" in found.problem


@pytest.mark.parametrize(
    ("text", "zone"),
    [("2026-11-25 20:00 Mars/Phobos", "Mars/Phobos"), ("2026-11-25 20:00:00 +0100", "+0100"), ("Nov 25, 2026 8:00 PM XYZT", "XYZT")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:tzname")
def test_a_zone_that_is_read_over_is_named(tmp_path: Path, text: str, zone: str) -> None:
    (tmp_path / "timestamp.txt").write_text(text)
    found = read_stamp(tmp_path)
    assert found.moment == parse_utc(text) and not is_due_date(text)  # as nbgrader reads it
    assert f'no time zone that is known here ("{zone}")' in found.problem


ODD: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "blank": lambda path: path.write_text(" \n"),
    "binary": lambda path: path.write_bytes(b"\xff\xfe2\x000\x00"),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "of a terabyte": lambda path: (path.touch(), os.truncate(path, 2**40)),
    "words": lambda path: path.write_text("yesterday, I think"),
    "longer than a time": lambda path: path.write_text("2026-11-25" + " " * LONGEST),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_lies_there_is_read_without_waiting_and_named(tmp_path: Path, name: str) -> None:
    ODD[name](tmp_path / "timestamp.txt")
    found = read_stamp(tmp_path)
    assert found.moment is None and found.problem.startswith("timestamp.txt ")


def test_where_there_is_none_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        assert (read_stamp(folder).moment, read_stamp(folder).problem) == (None, "")


def test_formgrader_lists_a_class_with_odd_time_stamps(tmp_path: Path) -> None:
    """What *Manage Submissions* asks for: nbgrader's own reader would raise at the first time and hang at the pipe."""
    nbgrader_patches.apply()
    course = CourseDirectory(config=Config(CourseDirectory={"root": str(tmp_path), "course_id": "course"}))
    (tmp_path / "source" / WEEK).mkdir(parents=True)
    for name, make in {**ODD, "ada": lambda path: path.write_text("2026-11-25 21:00 Europe/Berlin\n")}.items():
        folder = tmp_path / "submitted" / name / WEEK
        folder.mkdir(parents=True)
        make(folder / "timestamp.txt")
        assert course.get_existing_timestamp(str(folder)) == timestamp(folder)  # as `nbgrader collect` reads it
    found = {each["student"]: each["timestamp"] for each in NbGraderAPI(course).get_submissions(WEEK)}
    assert found == dict.fromkeys(ODD) | {"ada": "2026-11-25T20:00:00"}


@pytest.mark.parametrize(("handed_in", "is_due"), [("18:00:01", True), ("18:00:00", False), ("17:59:59", False)])
def test_a_submission_is_graded_again_if_its_time_is_newer(
    handed_in: str, is_due: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timestamp.txt").write_text("2026-11-17 18:00:00 UTC")  # of the graded submission
    monkeypatch.setattr("autograder.grading.plugins.autograde.is_complete", lambda notebook: True)
    run = SimpleNamespace(
        coursedir=SimpleNamespace(student_id_exclude="", assignment_id="week"),
        force=False,
        _format_dest=lambda assignment, student: tmp_path,
        _known={"ada"},
        _stamps={"ada": Stamp(moment=parsed(f"2026-11-17 {handed_in} UTC"))},
    )
    assert CourseAutograde._is_due(run, "ada") is is_due


def test_a_notebook_that_is_newer_than_its_grade_is_named(tmp_path: Path) -> None:
    graded, said = tmp_path / "week.ipynb", {}
    graded.touch()
    for student, later in {"ada": 1, "boole": -1, "cantor": 0}.items():
        (tmp_path / student).mkdir()
        (tmp_path / student / "Week-Copy1.ipynb").touch()
        os.utime(tmp_path / student / "Week-Copy1.ipynb", (0, graded.stat().st_mtime + later))
    run = SimpleNamespace(
        coursedir=SimpleNamespace(assignment_id="week"),
        _folders={student: tmp_path / student for student in ("ada", "boole", "cantor", "dirac")},
        _due={"dirac": tmp_path / "dirac"},
        _format_dest=lambda assignment, student: tmp_path,
        _remark=said.__setitem__,
    )
    run._is_newer = lambda student: CourseAutograde._is_newer(run, student)
    CourseAutograde._look_for_newer_files(run)
    assert said == {"newer than their grades": "ada; REGRADE=1 STUDENTS=… grades what lies there now"}


def test_a_due_date_that_is_long_ago_or_that_a_late_table_lacks_is_mentioned() -> None:
    said: list[str] = []
    run = SimpleNamespace(_stamps={"ada": Stamp(moment=parsed("2026-11-17 12:00 UTC"))}, _set_due_date=lambda: "set it")
    run._remark = lambda about, problem: said.append(problem)
    for due, has_table in ((None, False), (None, True), (parsed("2026-11-01 11:00 UTC"), True)):
        CourseAutograde._look_at_due_date(run, due, has_table)
    assert ["so nobody is late" in said[0], "16 days before" in said[1], len(said)] == [True, True, 2]
