"""`nbgrader export`: nbgrader's columns, with a blank and the reason where there is no grade."""

import csv
from typing import Any

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student
from nbgrader.plugins import ExportPlugin

from autograder.errors import CourseError
from autograder.grading.plugins.gradebook import reason_not_graded
from autograder.grading.plugins.penalties import renew_penalties
from autograder.grading.submission.folders import find_submissions

COLUMNS = [
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
    "needs_manual_grade",
    "reason",
]
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that make a spreadsheet read a cell as a formula


class GradesWithReasons(ExportPlugin):
    """CSV of all grades, with late penalties worked out anew. Not submitted is 0; submitted but ungradable, or in a folder
    with a wrong name, is blank, with the reason."""

    def export(self, gradebook: Gradebook) -> None:
        destination = self.to or "grades.csv"
        students, assignments = {str(name) for name in self.student}, {str(name) for name in self.assignment}
        try:
            for assignment in gradebook.assignments:
                for remark in renew_penalties(self.parent.coursedir, assignment.name, self.parent.config):
                    self.log.warning(remark)
        except CourseError as error:
            raise SystemExit(f"error: {error}") from None
        gradebook.db.expire_all()
        with open(destination, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for assignment in gradebook.assignments:
                if assignments and assignment.name not in assignments:
                    continue
                found = find_submissions(self.parent.coursedir, assignment.name)
                waiting = dict.fromkeys(found.folders, "handed in, but not in the gradebook: run autograde again")
                for entry, remedy in found.misnamed.items():
                    name = entry.removeprefix(f"{assignment.name}/").split("/")[0]  # also of week3_rope/ada
                    waiting.setdefault(name, f"not graded: submitted/{entry}: {remedy}")
                known = {student.id: student for student in gradebook.students}
                for name in sorted(known.keys() | found.folders.keys()):
                    if not students or name in students:
                        row = _row(gradebook, assignment, known.get(name) or Student(id=name), waiting.get(name, ""))
                        writer.writerow({c: as_text(v) if isinstance(v, str) else v for c, v in row.items()})
        self.log.info("Grades exported to %s", destination)


def as_text(value: str) -> str:
    """A name or sentence that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{value}" if value.startswith(FORMULA) else value


def _row(gradebook: Gradebook, assignment: Assignment, student: Student, waiting: str) -> dict[str, Any]:
    row = {
        "assignment": assignment.name,
        "duedate": assignment.duedate,
        "student_id": student.id,
        "last_name": student.last_name,
        "first_name": student.first_name,
        "email": student.email,
        "max_score": assignment.max_score,
    }
    try:
        submission = gradebook.find_submission(assignment.name, student.id)
    except MissingEntry:
        if waiting:
            return row | {"reason": waiting}
        return row | {"raw_score": 0.0, "late_submission_penalty": 0.0, "score": 0.0, "reason": "no submission"}
    row["timestamp"] = submission.timestamp
    if reason := reason_not_graded(submission):
        return row | {"reason": reason}
    penalty = submission.late_submission_penalty or 0.0
    return row | {
        "raw_score": submission.score,
        "late_submission_penalty": penalty,
        "score": max(0.0, submission.score - penalty),
        "needs_manual_grade": submission.needs_manual_grade,
    }
