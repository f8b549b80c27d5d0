"""Indexes that nbgrader's tables lack and a large class needs."""

from nbgrader.api import Comment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import Index

# Without these, a query for one submission's rows reads those of the whole class.
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
    """Add the indexes to a gradebook that was made by nbgrader alone."""
    for index in INDEXES:
        index.create(gradebook.engine, checkfirst=True)
