"""Late penalties, worked out anew: points by hand, the late table and due dates may be newer than the grading run."""

import contextlib
from pathlib import Path

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config

from autograder.errors import GradingFailed
from autograder.grading.course_state import run_lock
from autograder.grading.plugins.gradebook import open_gradebook, reason_not_graded, submissions_of
from autograder.grading.submission.folders import all_students
from autograder.late import LateDays, LateTable
from autograder.log import CapturedLog


def renew_penalties(course: CourseDirectory, assignment: str, config: Config) -> list[str]:
    """Assign an assignment's late penalties anew, unless a grading run is in progress, which does so itself. Returns
    remarks: which have changed, and names in the late table that nothing else knows. Raises ``CourseError`` for a mistake
    in the table."""
    remarks = []
    with contextlib.suppress(GradingFailed), run_lock(Path(course.root)):
        before = _penalties(course, assignment)
        for student in before:
            assign_penalty(course, assignment, student, config)
        after = _penalties(course, assignment)
        changed = [student for student in sorted(before) if abs(after.get(student, 0.0) - before[student]) > 1e-4]
        if changed:
            new = (f"{student} {before[student]:g} → {after.get(student, 0.0):g}" for student in changed)
            remarks.append(f"late penalties, worked out anew: {', '.join(new)}")
    with open_gradebook(course) as gradebook:
        if unknown := strangers(LateDays(config=config).read(), course, gradebook):
            remarks.append(f"late.csv: {unknown}")
    return remarks


def strangers(table: LateTable | None, course: CourseDirectory, gradebook: Gradebook) -> str:
    """Say if the late table has students whom nothing else knows, misspelt, probably; empty if it has none."""
    known = all_students(course) | {student.id for student in gradebook.students}
    unknown = sorted(table.students() - known) if table else []
    return f"there is no other trace of {', '.join(unknown)}: look at the spelling" if unknown else ""


def assign_penalty(course: CourseDirectory, assignment: str, student: str, config: Config) -> None:
    """Let nbgrader, with the course's plug-in, save the penalty of one submission, without two lines in the log."""
    where = {"assignment": assignment, "notebook": assignment, "student": student, "db_url": course.db_url}
    AssignLatePenalties(config=config, log=CapturedLog()).preprocess(
        nbformat.v4.new_notebook(), ResourcesDict(nbgrader=where)
    )


def _penalties(course: CourseDirectory, assignment: str) -> dict[str, float]:
    """Return the penalties of the graded students who are late, or have one."""
    with open_gradebook(course) as gradebook:
        return {
            submission.student_id: submission.late_submission_penalty or 0.0
            for submission in submissions_of(gradebook, assignment)
            if submission.late_submission_penalty or submission.total_seconds_late > 0
            if not reason_not_graded(submission)
        }
