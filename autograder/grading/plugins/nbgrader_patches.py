"""nbgrader's database, opened eight times per submission and made without indexes: what a large class needs.

Importing this module changes how `nbgrader.api.Gradebook` opens; what it reads and writes stays the same.
"""

import os
from functools import lru_cache

import nbgrader.api
from nbgrader.api import Base, Comment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import Engine, Index

# With one engine per database, SQL is compiled once, not each time; Gradebook.close() still closes every connection.
nbgrader.api.create_engine = lru_cache(nbgrader.api.create_engine)

# Without these, the look for a submission's rows would read those of the whole class.
INDEXES = [Index(f"ix_{table.__tablename__}_{column}", table.__table__.c[column])
           for table, column in ((Grade, "notebook_id"), (Comment, "notebook_id"), (SubmittedNotebook, "assignment_id"),
                                 (SubmittedAssignment, "student_id"))]

_create_tables, _check_course = Base.metadata.create_all, Gradebook.check_course
_courses: dict[Engine, set[str]] = {}  # known to be in the database, and so are all tables


def add_indexes(gradebook: Gradebook) -> None:
    """To a gradebook that nbgrader alone has made."""
    for index in INDEXES:
        index.create(gradebook.engine, checkfirst=True)


def create_tables(bind: Engine) -> None:
    """nbgrader's look for every table, once, unless the file is a new one."""
    file = bind.url.database if bind.dialect.name == "sqlite" else None
    if bind not in _courses or file and os.path.exists(file) and not os.path.getsize(file):
        _create_tables(bind=bind)
        _courses[bind] = set()


def check_course(gradebook: Gradebook, course_id: str = "default_course", **kwargs: object) -> None:
    """nbgrader's look for the course, once."""
    known = _courses[gradebook.engine]
    if course_id not in known:
        _check_course(gradebook, course_id, **kwargs)
        known.add(course_id)


Base.metadata.create_all, Gradebook.check_course = create_tables, check_course
