"""When a gradebook is deleted, emptied or restored, nobody loses a score or gets a 0, and manual grades stay."""

import csv
import shutil
from pathlib import Path

import pytest
from helpers import WEEK3, GradedClass, autograder, run, standing
from nbgrader.api import Gradebook


@pytest.fixture
def course(graded_class: GradedClass, tmp_path: Path) -> Path:
    shutil.copytree(graded_class.root, tmp_path / "course")
    return tmp_path / "course"


def by_hand(root: Path, student: str, cell: str) -> tuple[float | None, str | None]:
    with Gradebook(f"sqlite:///{root}/gradebook.db") as gradebook:
        grade = gradebook.find_grade(cell, WEEK3, WEEK3, student)
        comment = gradebook.find_comment(cell, WEEK3, WEEK3, student)
        return grade.manual_score, comment.manual_comment


def exported(root: Path) -> dict[str, dict[str, str]]:
    run("nbgrader", "export", cwd=root)
    with (root / "grades.csv").open(encoding="utf-8") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


@pytest.mark.nightly
@pytest.mark.isolation
@pytest.mark.parametrize("loss", ["deleted", "emptied"])
def test_what_is_kept_is_saved_again(course: Path, graded_class: GradedClass, loss: str) -> None:
    (course / "gradebook.db").unlink()
    if loss == "emptied":
        (course / "gradebook.db").touch()
    done = autograder("--root", str(course), "autograde", "--week", "3")
    assert standing(course) == standing(graded_class.root), done.stdout
    assert "gradebook: it lacked the automatic scores of" in done.stdout
    assert not list((course / ".autograder" / "pending").glob("[0-9a-f]*"))


@pytest.mark.nightly
@pytest.mark.isolation
def test_feedback_brings_the_scores_back_itself(course: Path, graded_class: GradedClass) -> None:
    (course / "gradebook.db").unlink()
    done = autograder("--root", str(course), "feedback", "--week", "3")
    assert standing(course) == standing(graded_class.root) and "gradebook: it lacked" in done.stdout
    run("nbgrader", "generate_feedback", WEEK3, "--force", cwd=course)


@pytest.mark.nightly
@pytest.mark.isolation
def test_a_copy_from_before_some_were_graded(course: Path, graded_class: GradedClass) -> None:
    right = standing(graded_class.root)
    names = sorted(name for name, score in right.items() if score.score)
    regraded, new, marked = names[:3]
    cell = "relative_proof"
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:  # the state of the copy
        gradebook.remove_submission(WEEK3, new)
        for grade in gradebook.find_submission_notebook(WEEK3, WEEK3, regraded).grades:
            grade.auto_score = 0.0
        gradebook.find_grade(cell, WEEK3, WEEK3, marked).manual_score = 1.5
        gradebook.find_comment(cell, WEEK3, WEEK3, marked).manual_comment = "nearly"
        gradebook.db.commit()
    row = exported(course)[new]
    assert row["score"] == "" and "run autograde again" in row["reason"]
    autograder("--root", str(course), "autograde", "--week", "3")
    found = standing(course)
    assert {name: found[name] for name in right if name != marked} == {
        name: right[name] for name in right if name != marked
    }
    assert by_hand(course, marked, cell) == (1.5, "nearly")
    assert exported(course)[new]["score"] == f"{right[new].score}"


@pytest.mark.nightly
@pytest.mark.isolation
def test_formgraders_button_lets_go_of_the_lock(course: Path) -> None:
    """The process goes on after grading, so it must not keep others from grading."""
    code = (
        "from nbgrader.apps import NbGraderAPI\nfrom autograder.course import course_config\nfrom pathlib import Path\n"
        "from nbgrader.coursedir import CourseDirectory\n"
        "config = course_config(Path('.'))\napi = NbGraderAPI(CourseDirectory(config=config), config=config)\n"
        f"said = api.autograde({WEEK3!r}, 'ada')\nassert said['success'], said\n"
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-m', 'autograder', 'autograde', '--week', '3', '--students', 'ada'], check=True)\n"
    )
    run("python", "-c", code, cwd=course)
