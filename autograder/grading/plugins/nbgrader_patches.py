"""All that is changed in nbgrader itself, applied by one call; importing this file changes nothing.

Written for one version of nbgrader. With another nothing is patched, and grading stops with a message that says so:
`wrong_version` is asked before every run.
"""

import os
import warnings
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbgrader.api
from nbgrader.api import Base, Gradebook
from nbgrader.apps import dbapp
from nbgrader.apps.api import NbGraderAPI
from nbgrader.apps.zipcollectapp import ZipCollectApp
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default.release_feedback import ExchangeReleaseFeedback
from sqlalchemy import Engine
from sqlalchemy.exc import SAWarning

from autograder.grading.plugins.exchange import release_feedback
from autograder.grading.plugins.nbgrader_version import wrong_version
from autograder.grading.plugins.roster import open_csv
from autograder.grading.plugins.score_log import keep_log
from autograder.grading.plugins.timestamps import timestamp
from autograder.grading.plugins.zip_collect import zip_collect

# What this nbgrader marks a new gradebook with: it starts a process of `alembic` each time to hear it.
NEWEST_REVISION = "e43177bfe90b"
_stock_autograde, _stock_feedback = Autograde.start, GenerateFeedback.start
_create_engine = nbgrader.api.create_engine
_create_tables, _check_course = Base.metadata.create_all, Gradebook.check_course
_courses: dict[Engine, set[str]] = {}  # known to be in the database, and so are all tables


def apply() -> None:
    """Once per process, from the course's nbgrader_config.py: grading runs of ours, a gradebook fit for a large class, and
    commands in which one student's odd file is no matter of everybody's."""
    Autograde.start, GenerateFeedback.start = autograde, generate_feedback
    if wrong_version():
        return
    # nbgrader opens its database many times per submission. With one engine per database, SQL is compiled once, not each
    # time; Gradebook.close() still closes every connection.
    nbgrader.api.create_engine = engine
    Base.metadata.create_all, Gradebook.check_course = create_tables, check_course
    nbgrader.api.get_alembic_version = lambda: NEWEST_REVISION
    # Formgrader and the exchange read the times of a whole class, and stopped at the first that is none.
    NbGraderAPI.get_submitted_timestamp, CourseDirectory.get_existing_timestamp = (
        submitted_timestamp,
        existing_timestamp,
    )
    ZipCollectApp.start, ExchangeReleaseFeedback.copy_files = zip_collect, release_feedback
    dbapp.open = open_csv  # in front of the builtin, in this module alone
    keep_log()
    # Harmless: a later SQLAlchemy says it for every new submission.
    warnings.filterwarnings("ignore", message="Object of type <Submitted.*not in session", category=SAWarning)


def autograde(converter: Autograde) -> None:
    """nbgrader's `Autograde.start`: in a course of ours the same task, done by `CourseAutograde`."""
    from autograder.grading.plugins.autograde import CourseAutograde
    from autograder.grading.plugins.exporter import SubmissionExporter

    if isinstance(converter, CourseAutograde) or not issubclass(converter.exporter_class, SubmissionExporter):
        _stock_autograde(converter)
        return
    CourseAutograde.like(converter).start()


def generate_feedback(converter: GenerateFeedback) -> None:
    """nbgrader's `GenerateFeedback.start`, likewise."""
    from autograder.grading.plugins.feedback import FeedbackExporter
    from autograder.grading.plugins.generate_feedback import CourseFeedback

    if isinstance(converter, CourseFeedback) or not issubclass(converter.exporter_class, FeedbackExporter):
        _stock_feedback(converter)
        return
    CourseFeedback.like(converter).start()


def submitted_timestamp(api: NbGraderAPI, assignment_id: str, student_id: str) -> datetime | None:
    """nbgrader's `NbGraderAPI.get_submitted_timestamp`, by our reader."""
    course = api.coursedir
    return timestamp(Path(course.format_path(course.submitted_directory, student_id, assignment_id)))


def existing_timestamp(course: CourseDirectory, dest_path: str) -> datetime | None:
    """nbgrader's `CourseDirectory.get_existing_timestamp`, by our reader."""
    return timestamp(Path(dest_path))


@lru_cache
def engine(db_url: str, **options: Any) -> Engine:
    """nbgrader's engine. An address that cannot be read is an error that does not show it."""
    from autograder.grading.plugins.gradebook import database_url

    made: Engine = _create_engine(database_url(db_url), **options)
    return made


def create_tables(bind: Engine) -> None:
    """nbgrader's look for every table, once, unless the file is a new one."""
    file = bind.url.database if bind.dialect.name == "sqlite" else None
    if bind not in _courses or (file and os.path.exists(file) and not os.path.getsize(file)):
        _create_tables(bind=bind)
        _courses[bind] = set()


def check_course(gradebook: Gradebook, course_id: str = "default_course", **kwargs: Any) -> None:
    """nbgrader's look for the course, once."""
    known = _courses[gradebook.engine]
    if course_id not in known:
        _check_course(gradebook, course_id, **kwargs)
        known.add(course_id)
