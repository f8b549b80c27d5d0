"""All that is changed in nbgrader itself, applied by one call; importing this file changes nothing.

Written for nbgrader 0.9.6. With another version nothing is patched, and grading stops with a message that says so:
`problem` is asked before every run.
"""

import os
import warnings
from functools import lru_cache
from typing import Any

import nbgrader
import nbgrader.api
from nbgrader.api import Base, Comment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from nbgrader.converters import Autograde
from sqlalchemy import Engine, Index
from sqlalchemy.exc import SAWarning

WRITTEN_FOR = "0.9.6"

# Without these, the look for a submission's rows would read those of the whole class.
INDEXES = [Index(f"ix_{table.__tablename__}_{column}", table.__table__.c[column])
           for table, column in ((Grade, "notebook_id"), (Comment, "notebook_id"), (SubmittedNotebook, "assignment_id"),
                                 (SubmittedAssignment, "student_id"))]

_stock_start, _create_tables, _check_course = Autograde.start, Base.metadata.create_all, Gradebook.check_course
_courses: dict[Engine, set[str]] = {}  # known to be in the database, and so are all tables


def problem() -> str:
    """The empty string if the patches fit the installed nbgrader, else what to do."""
    if nbgrader.__version__ == WRITTEN_FOR:
        return ""
    return (f"nbgrader {nbgrader.__version__} is installed, and this grader was written for {WRITTEN_FOR}: "
            f"pip install nbgrader=={WRITTEN_FOR}")


def apply() -> None:
    """Once per process, from the course's nbgrader_config.py: grading runs of ours, and a gradebook fit for a large class."""
    Autograde.start = start
    if problem():
        return
    # nbgrader opens its database many times per submission. With one engine per database, SQL is compiled once, not each
    # time; Gradebook.close() still closes every connection.
    if not hasattr(nbgrader.api.create_engine, "cache_info"):
        nbgrader.api.create_engine = lru_cache(nbgrader.api.create_engine)
    Base.metadata.create_all, Gradebook.check_course = create_tables, check_course
    # Harmless: a later SQLAlchemy says it for every new submission.
    warnings.filterwarnings("ignore", message="Object of type <Submitted.*not in session", category=SAWarning)


def start(converter: Autograde) -> None:
    """nbgrader's `Autograde.start`: in a course of ours the same task, done by `CourseAutograde`."""
    from autograder.grading.plugins.autograde import CourseAutograde
    from autograder.grading.plugins.exporter import SubmissionExporter

    if isinstance(converter, CourseAutograde) or not issubclass(converter.exporter_class, SubmissionExporter):
        _stock_start(converter)
        return
    CourseAutograde.like(converter).start()


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


def check_course(gradebook: Gradebook, course_id: str = "default_course", **kwargs: Any) -> None:
    """nbgrader's look for the course, once."""
    known = _courses[gradebook.engine]
    if course_id not in known:
        _check_course(gradebook, course_id, **kwargs)
        known.add(course_id)
