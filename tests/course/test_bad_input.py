"""Bad input gets one clear line that says what to do, a non-zero exit code, and nothing half-written."""

import contextlib
import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import COURSE, WEEK3, autograder, run

from autograder.__main__ import main
from autograder.classroom import make_course_root


@pytest.fixture
def course(tmp_path: Path) -> Path:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK3])
    return root


def refuse(root: Path, *arguments: str) -> str:
    """Run a command that must fail and write nothing; return its one line on stderr."""
    before = written(root)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert main(["--root", str(root), *arguments]) == 2
    assert said.getvalue().startswith("error: ") and said.getvalue().count("\n") == 1, said.getvalue()
    assert written(root) == before
    return said.getvalue()


def written(root: Path) -> list[Path]:
    """Return all files and folders but those of .venv and .git, which are tens of thousands."""
    tops = (top for top in root.iterdir() if top.name not in (".venv", ".git"))
    return sorted(path for top in tops for path in (top, *top.rglob("*")))


def submit(root: Path) -> None:
    target = root / "submitted" / "ada" / WEEK3
    target.mkdir(parents=True)
    shutil.copy(COURSE / "notebooks" / WEEK3 / f"{WEEK3}.ipynb", target)


def test_missing_week(course: Path) -> None:
    assert "WEEK=3" in refuse(course, "autograde")


def test_mistyped_week(course: Path) -> None:
    assert "there is no week '33'; there is: 3" in refuse(course, "autograde", "--week", "33")


def test_no_submissions(course: Path) -> None:
    assert "no submissions: expected submitted/STUDENT/week3_rope" in refuse(course, "autograde", "--week", "3")


def test_unknown_student(course: Path) -> None:
    (course / "submitted" / "ada" / WEEK3).mkdir(parents=True)
    assert "no submission of week3_rope by adda" in refuse(course, "autograde", "--week", "3", "--students", "adda")


def test_why_a_run_stopped_is_said_beside_a_folder_that_is_refused(course: Path) -> None:
    submit(course)
    (course / "submitted" / ".ada" / WEEK3).mkdir(parents=True)
    (course / "late.csv").write_text("student,week,days\nada,9,1\n")
    assert "late.csv, line 2: there is no week '9'" in refuse(course, "autograde", "--week", "3")


def test_unbuilt_course(course: Path) -> None:
    shutil.rmtree(course / "source")
    assert "is no course" in refuse(course, "autograde", "--week", "3")
    (course / "source").mkdir()
    assert "run `make build`" in refuse(course, "autograde", "--week", "3")


def test_feedback_before_grading(course: Path) -> None:
    assert "run `make autograde WEEK=week3_rope` first" in refuse(course, "feedback", "--week", "3")


def test_a_comparison_of_nothing_of_one_and_with_an_earlier_year_that_is_not_there(course: Path) -> None:
    assert "no submissions: expected submitted/STUDENT/week3_rope" in refuse(course, "similarity", "--week", "3")
    assert "WEEK=3" in refuse(course, "similarity")
    submit(course)
    assert "needs two submissions of week3_rope" in refuse(course, "similarity", "--week", "3")
    said = refuse(course, "similarity", "--week", "3", "--earlier", "2025")
    assert "no submissions of week3_rope in 2025: EARLIER names a submitted/ folder" in said


def test_old_or_damaged_database(course: Path) -> None:
    submit(course)
    (course / "gradebook.db").write_bytes(b"not a database" * 100)
    done = autograder("--root", str(course), "autograde", "--week", "3", code=2)
    assert "is damaged" in done.stderr and "move it away" in done.stderr and "Traceback" not in done.stderr
    assert (course / "gradebook.db").read_bytes() == b"not a database" * 100
    assert not (course / "autograded").exists()


def test_unknown_device(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(course)
    monkeypatch.setenv("AUTOGRADER_DEVICE", "tpu")
    assert "auto, cpu, cuda or simulated" in refuse(course, "autograde", "--week", "3")


def test_check_without_a_file(course: Path) -> None:
    assert "FILE=" in refuse(course, "check")
    assert "there is no file nothing.ipynb" in refuse(course, "check", "nothing.ipynb")


def test_check_a_notebook_that_cannot_be_read(course: Path) -> None:
    (course / "week3_rope.ipynb").write_text("{half a")
    assert "not a notebook" in refuse(course, "check", "week3_rope.ipynb")


def test_slides_of_no_week(course: Path) -> None:
    assert "WEEK=3" in refuse(course, "slides")
    assert "there is no week 'nine'; there is: 3" in refuse(course, "slides", "--week", "nine")
    shutil.rmtree(course / "solutions", ignore_errors=True)
    assert "run `make build WEEK=week3_rope`" in refuse(course, "slides", "--week", "3")


@pytest.mark.parametrize("arguments", [["build", "--week", "42"], ["import"], ["import", "--week", "42"]])
def test_build_and_import_of_unknown_weeks(arguments: list[str]) -> None:
    assert "week" in refuse(COURSE, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "moodle"], "say which week, for example WEEK=3"),
        (["--week", "3"], "there is no format ''; there is: canvas, moodle"),
        (["--week", "3", "--format", "gift"], "there is no format 'gift'; there is: canvas, moodle"),
        (["--week", "42", "--format", "moodle"], "there is no week '42'; there is: 1, 2"),
    ],
)
def test_quiz_without_a_week_or_a_format_that_there_is(arguments: list[str], said: str) -> None:
    assert said in refuse(COURSE, "quiz", *arguments)


def test_make_passes_errors_on() -> None:
    assert "--regrade" not in run("make", "-n", "autograde", "REGRADE=0").stdout
    done = run("make", "autograde", "WEEK=nine", code=None)
    assert done.returncode != 0 and "there is no week 'nine'" in done.stderr
    assert "make does not know STUDENT= here" in run("make", "-n", "autograde", "STUDENT=ada", code=2).stderr


@pytest.mark.nightly
@pytest.mark.isolation
def test_a_very_deep_folder_in_a_submission_is_of_no_consequence(course: Path) -> None:
    submit(course)
    here = os.open(course / "submitted" / "ada" / WEEK3, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        run("nbgrader", "autograde", WEEK3, cwd=course)
        assert (
            "not graded"
            not in autograder("--root", str(course), "autograde", "--week", "3", "--regrade").stdout.splitlines()[-2]
        )
        assert (course / "autograded" / "ada" / WEEK3 / f"{WEEK3}.ipynb").is_file()
    finally:
        subprocess.run(["rm", "-rf", str(course)], check=True)  # Python's own rmtree would recurse too far
