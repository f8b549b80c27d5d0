"""Indexes that nbgrader's tables lack and a large class needs."""

from nbgrader.api import Comment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import Index

# Without these, the look for a submission's rows would read those of the whole class.
INDEXES = [
    Index(f"ix_{table.__tablename__}_{column}", table.__table__.c[column])
    for table, column in (
        (Grade, "notebook_id"),
        (Comment, "notebook_id"),
        (SubmittedNotebook, "assignment_id"),
        (SubmittedAssignment, "student_id"),
    )
]


def add_indexes(gradebook: Gradebook) -> None:
    """To a gradebook that nbgrader alone has made."""
    for index in INDEXES:
        index.create(gradebook.engine, checkfirst=True)
