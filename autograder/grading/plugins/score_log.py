"""Log every change of a score made through nbgrader, in a table of the gradebook and in the same transaction.

Formgrader keeps only the last score. This log has a row for each score by hand, extra credit, and automatic score that
a later run changes. The first automatic score is not a change.
"""

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbgrader.api import Assignment, BaseCell, Grade, Gradebook, Student, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import Column, Connection, DateTime, Float, Integer, MetaData, String, Table, event, inspect, select
from sqlalchemy.schema import CreateTable

from autograder.grading.plugins.export import as_text

KINDS = {"auto_score": "automatic", "manual_score": "by hand", "extra_credit": "extra credit"}
HEADER = ("time", "student", "cell", "kind", "before", "after")
# Kept apart from nbgrader's tables: the first change creates it, even in a gradebook that is older than the log.
LOG = Table(
    "score_log",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("time", DateTime, nullable=False),  # UTC, as all times in nbgrader
    Column("assignment", String(128), nullable=False),
    Column("student", String(128), nullable=False),
    Column("cell", String(128), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("before", Float),
    Column("after", Float),
)


@dataclass(frozen=True)
class Change:
    """A score that was changed; ``None`` is no score."""

    time: datetime
    student: str
    cell: str
    kind: str
    before: float | None
    after: float | None


def keep_log() -> None:
    """Log changes from now on, in this process."""
    if event.contains(Grade, "after_update", _note):
        return
    for name in KINDS:
        event.listen(getattr(Grade, name), "set", _do_nothing, active_history=True)  # always loads the old value
    event.listen(Grade, "after_update", _note)
    event.listen(Student, "after_delete", _forget)


def score_log(gradebook: Gradebook, assignment: str) -> list[Change]:
    """The changes of an assignment, oldest first."""
    if not inspect(gradebook.engine).has_table(LOG.name):
        return []
    columns = [LOG.c[name] for name in HEADER]
    rows = gradebook.db.execute(select(*columns).where(LOG.c.assignment == assignment).order_by(LOG.c.id))
    return [Change(*row) for row in rows]


def write_log(changes: list[Change], path: Path) -> None:
    """Write the changes as CSV. A name that a spreadsheet would take for a formula gets an apostrophe in front."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for one in changes:
            student = as_text(one.student)
            writer.writerow([f"{one.time:%Y-%m-%d %H:%M:%S}", student, one.cell, one.kind, one.before, one.after])


def _do_nothing(*_: Any) -> None:
    """Do nothing: a listener with active history makes SQLAlchemy read the old value of a row that is not loaded."""


def _note(_: Any, connection: Connection, grade: Grade) -> None:
    changed = {}
    for name, kind in KINDS.items():
        history = inspect(grade).attrs[name].history
        before = history.deleted[0] if history.deleted else None
        if history.has_changes() and not (name == "auto_score" and before is None):
            changed[kind] = before, getattr(grade, name)
    if not changed:
        return
    assignment, student, cell = connection.execute(
        select(Assignment.name, SubmittedAssignment.student_id, BaseCell.name)
        .select_from(SubmittedNotebook)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
        .join(BaseCell, BaseCell.id == grade.cell_id)
        .where(SubmittedNotebook.id == grade.notebook_id)
    ).one()
    now = datetime.now(UTC).replace(tzinfo=None)
    connection.execute(CreateTable(LOG, if_not_exists=True))
    for kind, (before, after) in changed.items():
        row = {"time": now, "assignment": assignment, "student": student, "cell": cell, "kind": kind}
        connection.execute(LOG.insert().values(**row, before=before, after=after))


def _forget(_: Any, connection: Connection, student: Student) -> None:
    """Delete a student's part of the log when the student is deleted from the gradebook."""
    connection.execute(CreateTable(LOG, if_not_exists=True))
    connection.execute(LOG.delete().where(LOG.c.student == student.id))
