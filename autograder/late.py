"""The late penalty: ``late.csv`` grants extensions and grace days; each day beyond them costs a share of the points.

A row grants a student days for a week; ``*`` means every student, or the whole course. Days for a week move its due
date. Days for the whole course are spent on the first late days, week by week in the order of the due dates.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import SubmittedAssignment
from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Float, Unicode

from autograder.course import assignment_of
from autograder.errors import CourseError
from autograder.grading.plugins.roster import read_table

ALL = "*"
DAY = 86_400  # seconds


@dataclass(frozen=True)
class LateTable:
    """Days by student and assignment, either of which may be `ALL`. A student's own row replaces everybody's."""

    days: dict[tuple[str, str], int]

    def allowed(self, student: str, assignment: str) -> int:
        return self.days.get((student, assignment), self.days.get((ALL, assignment), 0))

    def students(self) -> set[str]:
        return {student for student, _ in self.days} - {ALL}

    def beyond(self, student: str, assignment: str, handed_in: Iterable[SubmittedAssignment]) -> int:
        """How many days late an assignment is, after extensions and grace days; a started day counts as a whole one."""
        grace = self.allowed(student, ALL)
        for each in sorted(handed_in, key=lambda each: (each.duedate, each.name)):
            late: int = max(0, math.ceil(each.total_seconds_late / DAY) - self.allowed(student, each.name))
            spent = min(late, grace)
            if each.name == assignment:
                return late - spent
            grace -= spent
        return 0


def read_late_table(path: Path) -> LateTable | None:
    """Read the table; ``None`` if there is none. Raises ``CourseError`` for an invalid line."""
    if not path.exists():
        return None
    days: dict[tuple[str, str], int] = {}
    for line, row in read_table(path, ("student", "week", "days")):
        where = f"{path.name}, line {line}"
        if not row["student"] or not row["week"]:
            raise CourseError(f"{where}: say which student and which week; * stands for all")
        if not (row["days"].isascii() and row["days"].isdecimal()):
            raise CourseError(f"{where}: days must be a whole number, not {row['days']!r}")
        try:
            week = ALL if row["week"] == ALL else assignment_of(row["week"], path.parent)
        except CourseError as error:
            raise CourseError(f"{where}: {error}, and * for the whole course") from None
        if (row["student"], week) in days:
            raise CourseError(f"{where}: {row['student']} has a line for week {row['week']} already; remove one")
        days[row["student"], week] = int(row["days"])
    return LateTable(days)


class LateDays(LateSubmissionPlugin):
    """The plug-in for nbgrader's `AssignLatePenalties`. Without a table it does what nbgrader's own plug-in does."""

    table = Unicode("late.csv", help="The table of extensions and grace days.").tag(config=True)
    per_day = Float(0.1, min=0, max=1, help="Share of the points that each day beyond costs.").tag(config=True)

    def read(self) -> LateTable | None:
        return read_late_table(Path(self.table))

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        """Return the points to deduct, from the table and the student's other weeks in the gradebook."""
        table = self.read()
        if table is None:
            penalty: float | None = super().late_submission_penalty(student_id, score, total_seconds_late)
            return penalty
        handed_in = [each for each in self.parent.gradebook.student_submissions(student_id) if each.duedate]
        beyond = table.beyond(student_id, self.parent.assignment_id, handed_in)
        return float(round(score * min(1.0, self.per_day * beyond), 4))  # finer than any share of an eighth of a point
