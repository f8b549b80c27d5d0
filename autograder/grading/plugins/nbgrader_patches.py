"""All changes to nbgrader itself, applied by one call; importing this file changes nothing.

They are written for one version of nbgrader. With another version only the two ``start`` methods are replaced, and
grading stops with a message, because every grading run asks `wrong_version` first.
"""

import warnings
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbgrader.api
from nbgrader.api import Assignment, Gradebook
from nbgrader.apps import dbapp
from nbgrader.apps.api import NbGraderAPI
from nbgrader.apps.zipcollectapp import ZipCollectApp
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default.release_feedback import ExchangeReleaseFeedback
from sqlalchemy import Engine
from sqlalchemy.exc import SAWarning

from autograder.grading.course_state import feedback_lock
from autograder.grading.plugins.exchange import release_feedback
from autograder.grading.plugins.nbgrader_version import wrong_version
from autograder.grading.plugins.roster import open_roster
from autograder.grading.plugins.score_log import keep_log
from autograder.grading.plugins.timestamps import is_due_date, timestamp
from autograder.grading.plugins.zip_collect import zip_collect

# The revision with which this nbgrader marks a new gradebook. It starts an `alembic` process each time to find it.
NEWEST_REVISION = "e43177bfe90b"
_stock_autograde, _stock_feedback = Autograde.start, GenerateFeedback.start
_create_engine = nbgrader.api.create_engine


def apply() -> None:
    """Patch nbgrader, once per process, from the course's nbgrader_config.py: our grading runs, a gradebook fit for a
    large class, and commands that one student's odd file does not stop for everybody."""
    Autograde.start, GenerateFeedback.start = autograde, generate_feedback
    if wrong_version():
        return
    # nbgrader opens its database many times per submission. With one engine per database, SQL is compiled once, not each
    # time; Gradebook.close() still closes every connection.
    nbgrader.api.create_engine = engine
    nbgrader.api.get_alembic_version = lambda: NEWEST_REVISION
    # Formgrader and the exchange read the times of a whole class; unpatched, they stop at the first invalid one.
    NbGraderAPI.get_submitted_timestamp, CourseDirectory.get_existing_timestamp = (
        submitted_timestamp,
        existing_timestamp,
    )
    ZipCollectApp.start, ExchangeReleaseFeedback.copy_files = zip_collect, release_feedback
    dbapp.open, dbapp.Gradebook = open_roster, CheckedGradebook  # in that module only: the first shadows the builtin
    keep_log()
    # Harmless: later versions of SQLAlchemy warn of this for every new submission.
    warnings.filterwarnings("ignore", message="Object of type <Submitted.*not in session", category=SAWarning)


class CheckedGradebook(Gradebook):
    """The gradebook of `nbgrader db`. A due date that nbgrader could take for another day or hour ends the command, and
    so does an assignment that the course does not have."""

    def update_or_create_assignment(self, name: str, **values: Any) -> Assignment:
        """Check the name and the due date, which is the command's text, first."""
        if Path("source").is_dir() and not Path("source", name).is_dir():
            raise SystemExit(f"error: there is no source/{name}: write the assignment's whole name, as in source/")
        if (due := values.get("duedate")) is not None and not is_due_date(due):
            raise SystemExit(f"error: {due!r} can be misread: write the due date as 2026-11-16 12:00 UTC (year first)")
        return super().update_or_create_assignment(name, **values)


def autograde(converter: Autograde) -> None:
    """Replace nbgrader's `Autograde.start`: in a course of ours, the converter becomes a `CourseAutograde`."""
    from autograder.grading.plugins.autograde import CourseAutograde
    from autograder.grading.plugins.exporter import SubmissionExporter

    if issubclass(converter.exporter_class, SubmissionExporter):
        converter.__class__ = CourseAutograde
    _stock_autograde(converter)


def generate_feedback(converter: GenerateFeedback) -> None:
    """Replace nbgrader's `GenerateFeedback.start`: in a course of ours, the converter becomes a `CourseFeedback`."""
    from autograder.grading.plugins.feedback import FeedbackExporter
    from autograder.grading.plugins.generate_feedback import CourseFeedback

    if not issubclass(converter.exporter_class, FeedbackExporter):
        _stock_feedback(converter)
        return
    converter.__class__ = CourseFeedback
    with feedback_lock(Path(converter.coursedir.root)):
        _stock_feedback(converter)


def submitted_timestamp(api: NbGraderAPI, assignment_id: str, student_id: str) -> datetime | None:
    """Replace nbgrader's `NbGraderAPI.get_submitted_timestamp`, with our reader."""
    course = api.coursedir
    return timestamp(Path(course.format_path(course.submitted_directory, student_id, assignment_id)))


def existing_timestamp(course: CourseDirectory, dest_path: str) -> datetime | None:
    """Replace nbgrader's `CourseDirectory.get_existing_timestamp`, with our reader."""
    return timestamp(Path(dest_path))


@lru_cache
def engine(db_url: str, **options: Any) -> Engine:
    """Return nbgrader's engine, one per address. The error about an invalid address does not show the address."""
    from autograder.grading.plugins.gradebook import database_url

    made: Engine = _create_engine(database_url(db_url), **options)
    return made
