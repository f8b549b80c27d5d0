"""The origin of a feedback page, noted in the page itself: a page that would come out the same is not made again."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import nbconvert
from nbgrader import __version__ as nbgrader_version
from nbgrader.api import SubmittedAssignment
from nbgrader.coursedir import CourseDirectory

from autograder.grading.pending import PACKAGE, grader_version
from autograder.grading.plugins.exchange import exchange_key
from autograder.grading.plugins.gradebook import open_gradebook, submissions_of

PARTS = ("auto_score", "manual_score", "extra_credit")
NOTE = re.compile(rb"<!-- made from ([0-9a-f]{64}) -->")  # as the template writes it


def origins(course: CourseDirectory, assignment: str, students: list[str]) -> dict[str, str]:
    """Return, by student, a digest of all that their page depends on. Students without grades are left out."""
    with open_gradebook(course) as gradebook:
        graded = {each.student_id: _grades(each) for each in submissions_of(gradebook, assignment)}
    maker = _maker(Path(course.root))
    return {
        student: _digest(course, assignment, student, maker + graded[student])
        for student in students
        if student in graded
    }


def is_made_from(page: Path, origin: str | None) -> bool:
    """Whether the page is there and its note names this origin."""
    if not page.is_file() or page.is_symlink():
        return False
    found = NOTE.search(page.read_bytes())
    return found is not None and found[1].decode() == origin


def _digest(course: CourseDirectory, assignment: str, student: str, beside_files: str) -> str:
    digest = hashlib.sha256(beside_files.encode())
    autograded = Path(course.format_path(course.autograded_directory, student, assignment))
    for path in sorted(autograded.rglob("*")):
        digest.update(os.fsencode(os.path.relpath(path, course.root)) + b"\0" + _content(path) + b"\n")
    digest.update(repr(exchange_key(course, student, assignment)).encode())
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """Return a digest of the file, empty if it is a folder or gone: a grading run beside this one replaces files."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def _grades(submission: SubmittedAssignment) -> str:
    """Return scores, comments and late penalties as text, sorted."""
    shown: list[Any] = []
    for notebook in submission.notebooks:
        grades = [
            (each.name, each.cell.max_score, each.needs_manual_grade, *(getattr(each, part) for part in PARTS))
            for each in notebook.grades
        ]
        comments = [(each.name, each.auto_comment, each.manual_comment) for each in notebook.comments]
        shown.append(
            (notebook.name, notebook.late_submission_penalty, sorted(grades, key=str), sorted(comments, key=str))
        )
    return json.dumps(sorted(shown, key=str))


def _maker(root: Path) -> str:
    """Return a digest of everything that makes pages: code, templates, settings."""
    digest = hashlib.sha256(f"{grader_version()} {nbgrader_version} {nbconvert.__version__}".encode())
    for path in [*sorted((PACKAGE / "grading" / "plugins" / "templates").rglob("*.j2")), root / "nbgrader_config.py"]:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()
