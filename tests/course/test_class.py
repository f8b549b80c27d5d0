"""A simulated class from submission to gradebook, feedback and export, as an instructor runs it."""

import csv
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, WEEK3, GradedClass, autograder, copy_of_course, run, standing

from autograder.classroom import UNDOES, agrees, make_course_root, simulate

SECRETS = ("BEGIN HIDDEN", "autograder.checks", "MARK SCHEME", "week3.", "autograder.reference")


def test_every_score_is_the_hand_written_one(graded_class: GradedClass) -> None:
    given = standing(graded_class.root)
    for student in graded_class.students:
        assert agrees(student, given.get(student.name)), (student, given.get(student.name))


@pytest.mark.nightly
def test_make_autograde_gives_the_same_scores_as_nbgrader(graded_class: GradedClass, tmp_path: Path) -> None:
    root = tmp_path / "course"
    shutil.copytree(graded_class.root, root, ignore=shutil.ignore_patterns("autograded", "feedback", "gradebook.db"))
    shown = autograder("--root", str(root), "autograde", "--week", "3").stdout
    assert standing(root) == standing(graded_class.root)
    assert "cantor" in shown and "not a notebook" in shown


@pytest.mark.nightly
def test_without_isolation_the_scores_are_the_same_and_the_output_says_so(
    graded_class: GradedClass, tmp_path: Path
) -> None:
    root = tmp_path / "course"
    shutil.copytree(graded_class.root, root, ignore=shutil.ignore_patterns("autograded", "feedback", "gradebook.db"))
    shown = autograder("--root", str(root), "autograde", "--week", "3", "--isolation", "none").stdout
    assert shown.count("without isolation") == 2  # before grading and in the table
    assert standing(root) == standing(graded_class.root)
    for course, said in ((root, True), (graded_class.root, False)):
        autograder("--root", str(course), "report", "--week", "3")
        page = (course / "report" / f"{WEEK3}.html").read_text(encoding="utf-8")
        assert ("graded without isolation" in page) is said


@pytest.mark.nightly
def test_half_graded_work_is_found_and_graded_again(graded_class: GradedClass) -> None:
    before = standing(graded_class.root)
    half = graded_class.root / "autograded" / "ada" / WEEK3 / f"{WEEK3}.ipynb"
    half.chmod(0o644)
    half.write_text(half.read_text()[:500])
    again = run("nbgrader", "autograde", WEEK3, cwd=graded_class.root)
    assert again.stderr.count("Skipping existing assignment") == len(graded_class.students) - 1
    assert standing(graded_class.root) == before
    assert nbformat.read(half, as_version=4).metadata["autograder"]["graded"]


def test_a_visible_check_speaks_only_of_answers_that_lost_points(graded_class: GradedClass) -> None:
    speaks = []  # and whether points were lost
    for path in graded_class.root.glob(f"autograded/*/{WEEK3}/*.ipynb"):
        cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in nbformat.read(path, 4).cells}
        if cells["apply_rotary_emb_check"].get("outputs"):
            verdict = cells["apply_rotary_emb_tests"].metadata.verdict
            speaks.append(verdict.score < verdict.max_score)
    assert speaks and all(speaks)


def test_an_ungradable_submission_is_blank_with_a_reason_in_the_export(graded_class: GradedClass) -> None:
    run("nbgrader", "export", cwd=graded_class.root)
    with open(graded_class.root / "grades.csv", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    for student in graded_class.students:
        row = rows[student.name]
        if student.ungradable:
            assert row["score"] == "" and row["raw_score"] == "" and "not a notebook" in row["reason"]
        else:
            assert float(row["score"]) == student.total and row["reason"] == ""


def test_feedback_shows_verdicts_and_nothing_of_the_instructors(graded_class: GradedClass) -> None:
    run("nbgrader", "generate_feedback", WEEK3, "--force", cwd=graded_class.root)
    pages = sorted(graded_class.root.glob(f"feedback/*/{WEEK3}/*.html"))
    assert len(pages) == len(graded_class.students)
    scheme = _mark_schemes()
    assert scheme
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for secret in (*SECRETS, *scheme):
            assert secret not in text, (page, secret)
    right = (graded_class.root / "feedback" / "ada" / WEEK3 / f"{WEEK3}.html").read_text(encoding="utf-8")
    ada = next(student for student in graded_class.students if student.name == "ada")
    assert f"{ada.expected['apply_rotary_emb_tests']:g} of 6 points" in right


def _mark_schemes() -> list[str]:
    notebook = nbformat.read(COURSE / "source" / WEEK3 / f"{WEEK3}.ipynb", as_version=4)
    found = []
    for cell in notebook.cells:
        for region in re.findall(r"BEGIN MARK SCHEME\n(.*?)\n[^\n]*END MARK SCHEME", cell.source, flags=re.DOTALL):
            found += [line.strip("-* ")[:40] for line in region.splitlines() if len(line) > 60]
    return found


def test_the_demo_grades_every_week_as_due_and_touches_no_real_work(tmp_path: Path) -> None:
    database = tmp_path / "database"
    with (copy_of_course(tmp_path) / "nbgrader_config.py").open("a") as file:  # as docs/postgresql.md says
        file.write(f"\nc.CourseDirectory.db_url = 'sqlite:///{database}'\n")
    (tmp_path / "submitted").mkdir()
    (tmp_path / "gradebook.db").write_text("the real one")
    shown = autograder("--root", str(tmp_path), "demo", "--students", "4").stdout
    assert "DIFFERS" not in shown and shown.count("Feedback to read") == len(list((COURSE / "notebooks").iterdir()))
    assert (tmp_path / "gradebook.db").read_text() == "the real one" and not list((tmp_path / "submitted").iterdir())
    assert not database.exists()


def test_the_class_report_names_what_was_seen_and_what_is_left(graded_class: GradedClass) -> None:
    autograder("--root", str(graded_class.root), "report", "--week", "3")
    page = (graded_class.root / "report" / f"{WEEK3}.html").read_text(encoding="utf-8")
    assert page.index("Not graded: 1") < page.index("Score distribution") < page.index("What went wrong")
    assert "Hand-grading left" in page and page.count("<svg") == 2
    assert not re.search(r"""(src|href)=["']https?:|url\(["']?https?:|@import""", page)
    assert re.search(r"<strong>\d+ ×</strong> Your ", page)


@pytest.mark.nightly
def test_nobody_in_a_simulated_class_has_two_mistakes_that_undo_each_other(tmp_path: Path) -> None:
    """Negative slopes and a bias of the wrong sign undo each other: student 23 of a class of 24 was due 0 and got 4."""
    make_course_root(COURSE, tmp_path, ["week4_alibi"])
    classes = [{name for _, name in student.story} for student in simulate(COURSE, tmp_path, "week4_alibi", 150)]
    for later, earlier in UNDOES.items():
        assert any(later in names for names in classes) and any(earlier in names for names in classes)
        assert not any({later, earlier} <= names for names in classes)
