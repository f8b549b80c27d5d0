"""Feedback through nbgrader's exchange: the names under which a page is requested, and pages without a key."""

import os
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeError
from nbgrader.exchange.default import ExchangeReleaseFeedback
from nbgrader.utils import notebook_hash
from traitlets.config import Config

from autograder.grading.plugins.exchange import MOST_NAMES, ExchangeKey, exchange_key, release_feedback
from autograder.grading.plugins.feedback import _for_the_exchange

WHERE = {"student": "ada", "assignment": "week3"}


@pytest.fixture
def course(tmp_path: Path) -> CourseDirectory:
    for step in ("submitted", "autograded"):
        folder = tmp_path / step / "ada" / "week3"
        folder.mkdir(parents=True)
        (folder / "timestamp.txt").write_text("2026-01-01 10:00:00 UTC")
    (submitted(tmp_path) / "submission_secret.txt").write_text("key")
    (submitted(tmp_path) / "week3.ipynb").touch()
    return CourseDirectory(config=Config(CourseDirectory={"root": str(tmp_path), "course_id": "course"}))


def submitted(root: str | Path) -> Path:
    return Path(root) / "submitted" / "ada" / "week3"


def test_the_key_is_that_of_the_submission_that_was_graded(course: CourseDirectory) -> None:
    assert exchange_key(course, "ada", "week3") == ExchangeKey(b"key", ("week3",))
    assert _for_the_exchange(course, WHERE, "page") == {"submission_secret.txt": b"key"}
    (submitted(course.root) / "timestamp.txt").write_text("2026-01-02 10:00:00 UTC")  # submitted again since
    assert exchange_key(course, "ada", "week3") is None
    assert _for_the_exchange(course, WHERE, "page") == {}


@pytest.mark.parametrize("secret", ["x" * 201, "", "link", "pipe"])
def test_a_secret_that_is_no_small_file_is_none(course: CourseDirectory, secret: str) -> None:
    path = submitted(course.root) / "submission_secret.txt"
    path.write_text(secret)
    if secret in ("link", "pipe"):
        path.unlink()
        path.symlink_to("/etc/hostname") if secret == "link" else os.mkfifo(path)
    assert exchange_key(course, "ada", "week3") is None


def test_a_page_is_there_under_every_name_that_the_student_asks_by(course: CourseDirectory) -> None:
    folder = submitted(course.root)
    (folder / "week3.ipynb").rename(folder / "my answers.final.ipynb")
    for other in ("scratch.ipynb", ".hidden.ipynb", "notes.txt"):
        (folder / other).touch()
    made = _for_the_exchange(course, WHERE, "päge")
    assert made.keys() == {"submission_secret.txt", "my answers.final.html", "scratch.html"}
    assert made["scratch.html"] == "päge".encode()
    for number in range(3 * MOST_NAMES):
        (folder / f"copy {number}.ipynb").touch()
    assert len(_for_the_exchange(course, WHERE, "page")) <= MOST_NAMES + 1


def test_a_notebook_that_the_students_nbgrader_does_not_see_has_no_key(course: CourseDirectory) -> None:
    (submitted(course.root) / "week3.ipynb").rename(submitted(course.root) / "week3.IPYNB")
    assert exchange_key(course, "ada", "week3") is None


@pytest.mark.parametrize("without_key", [[], ["ada"], ["cantor"], ["boole", "cantor"]])
def test_a_page_without_a_key_is_named_and_keeps_no_other_back(tmp_path: Path, without_key: list[str]) -> None:
    course = CourseDirectory(config=Config(CourseDirectory={"root": str(tmp_path), "course_id": "course"}))
    course.assignment_id, course.student_id_exclude = "week3", "emmy"
    students = {"ada", "boole", "cantor", "emmy"}
    for student in students:
        folder = tmp_path / "feedback" / student / "week3"
        folder.mkdir(parents=True)
        (folder / "week3.html").write_text(f"page of {student}")
        (folder / "timestamp.txt").touch()
        if student not in without_key:
            (folder / "submission_secret.txt").write_text(f"secret of {student}")
    (tmp_path / "exchange").mkdir(mode=0o777)
    exchange = ExchangeReleaseFeedback(coursedir=course, config=Config(Exchange={"root": str(tmp_path / "exchange")}))
    exchange.init_src()
    exchange.init_dest()
    if without_key:
        with pytest.raises(ExchangeError, match=f"Not released: the feedback of {', '.join(without_key)}[.]"):
            release_feedback(exchange)
    else:
        release_feedback(exchange)
    released = {path.stem: path.read_text() for path in (tmp_path / "exchange").rglob("*.html")}
    assert released == {
        notebook_hash(secret=f"secret of {student}", notebook_id="week3"): f"page of {student}"
        for student in students - {"emmy", *without_key}
    }
    assert course.student_id_exclude == "emmy"
