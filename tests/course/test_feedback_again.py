"""Feedback pages are rebuilt only if something that they show has changed."""

import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from helpers import AUTOGRADER, COURSE, WEEK3, GradedClass, autograder, run
from nbgrader.api import Gradebook

LONG_AGO = (1, 1)


@pytest.fixture
def course(graded_class: GradedClass, tmp_path: Path) -> Path:
    root = tmp_path / "course"
    shutil.copytree(graded_class.root, root, ignore=shutil.ignore_patterns("feedback"))
    return root


def pages(root: Path) -> dict[str, Path]:
    return {page.parts[-3]: page for page in root.glob(f"feedback/*/{WEEK3}/*.html")}


def make_feedback(root: Path, *command: str) -> tuple[set[str], str]:
    """Make feedback; return the students whose pages were written, and what the command printed."""
    for page in pages(root).values():
        os.utime(page, LONG_AGO)
    ours = (*AUTOGRADER, "--root", str(root), "feedback", "--week", "3")
    shown = run(*(command or ours), cwd=root if command else COURSE).stdout
    return {student for student, page in pages(root).items() if page.stat().st_mtime > LONG_AGO[0]}, shown


@pytest.mark.nightly
def test_a_page_is_made_again_only_if_it_would_change(course: Path, graded_class: GradedClass) -> None:
    everybody = {student.name for student in graded_class.students}
    both = [subprocess.Popen([*AUTOGRADER, "--root", course, "feedback", "--week", "3"], cwd=COURSE) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    shutil.rmtree(course / "feedback")
    written, shown = make_feedback(course)
    assert written == everybody and f"wrote {len(everybody)} feedback pages, for example" in shown
    written, shown = make_feedback(course)
    assert not written and f"no feedback page has changed ({len(everybody)} are up to date)" in shown

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        comment = gradebook.find_submission(WEEK3, "ada").notebooks[0].comments[0]
        comment.manual_comment = "well put"
        gradebook.find_submission(WEEK3, "boole").notebooks[0].grades[0].manual_score = 0.5
        gradebook.find_submission(WEEK3, "dirac").notebooks[0].grades[0].extra_credit = 0.5
        gradebook.db.commit()
    pages(course)["cantor"].unlink()
    written, shown = make_feedback(course)
    assert written == {"ada", "boole", "cantor", "dirac"} and f"({len(everybody) - 4} are up to date)" in shown
    assert "well put" in pages(course)["ada"].read_text(encoding="utf-8")

    # nbgrader's own command does so, too; unconfigured it would leave old pages as they are
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        gradebook.find_assignment(WEEK3).duedate = datetime(2026, 11, 1)
        gradebook.find_submission(WEEK3, "ada").timestamp = datetime(2026, 11, 2)
        gradebook.db.commit()
    (course / "late.csv").write_text("student,week,days\n")
    assert make_feedback(course, "nbgrader", "generate_feedback", WEEK3)[0] == {"ada"}
    assert "points were taken off" in pages(course)["ada"].read_text(encoding="utf-8")
    assert make_feedback(course, "nbgrader", "generate_feedback", WEEK3, "--force")[0] == everybody

    with open(course / "nbgrader_config.py", "a", encoding="utf-8") as settings:
        settings.write("\nc.GenerateFeedback.permissions = 600\n")
    assert make_feedback(course)[0] == everybody


@pytest.mark.nightly
def test_files_of_any_name_may_lie_beside_the_notebook(course: Path) -> None:
    beside = course / "autograded" / "ada" / WEEK3
    os.close(os.open(os.fsencode(beside) + b"/\xff\xfe.csv", os.O_CREAT | os.O_WRONLY))
    (course / "submitted" / "ada" / WEEK3 / "timestamp.txt").mkdir()
    make_feedback(course)
    assert make_feedback(course)[0] == set()


@pytest.mark.nightly
def test_a_page_that_cannot_be_made_keeps_no_other_from_being_made(course: Path, graded_class: GradedClass) -> None:
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        for grade in gradebook.find_submission(WEEK3, "ada").notebooks[0].grades:
            gradebook.db.delete(grade)
        gradebook.db.commit()
    failed = autograder("--root", str(course), "feedback", "--week", "3", code=None)
    assert failed.returncode and "feedback could not be written: " in failed.stdout + failed.stderr
    assert "Traceback" not in failed.stdout + failed.stderr
    assert pages(course).keys() == {student.name for student in graded_class.students} - {"ada"}
