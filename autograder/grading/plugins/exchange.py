"""Feedback through nbgrader's exchange. A student's nbgrader asks for a page by the submission's secret and the name of
the submitted notebook, so a student who renamed it would never receive a page under the course's name.
"""

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default.release_feedback import ExchangeReleaseFeedback

from autograder.grading.plugins.timestamps import NAME, small_file

SECRET = "submission_secret.txt"
FILES = (NAME, SECRET)  # needed by nbgrader beside a page
MOST_NAMES = 10
_stock_copy_files = ExchangeReleaseFeedback.copy_files


@dataclass(frozen=True)
class ExchangeKey:
    """The key to a feedback page: the submission's secret, and the names of its notebooks without the extension."""

    secret: bytes
    names: tuple[str, ...]


def exchange_key(course: CourseDirectory, student: str, assignment: str) -> ExchangeKey | None:
    """Return the key of the graded submission; ``None`` if it came without the exchange, or was replaced since."""
    submitted, autograded = (
        Path(course.format_path(step, student, assignment))
        for step in (course.submitted_directory, course.autograded_directory)
    )
    try:
        secret, stamps = small_file(submitted / SECRET), [small_file(each / NAME) for each in (submitted, autograded)]
    except ValueError:
        return None
    if not secret or None in stamps or stamps[0] != stamps[1]:
        return None
    names = sorted(path.stem for path in submitted.glob("*.ipynb") if not path.name.startswith("."))
    return ExchangeKey(secret, tuple(names[:MOST_NAMES])) if names else None


def has_keys(folder: Path) -> bool:
    """Whether the files that the exchange needs lie beside a feedback page."""
    return all((folder / name).is_file() for name in FILES)


def release_feedback(exchange: ExchangeReleaseFeedback) -> None:
    """Replace nbgrader's `copy_files`, which stops for the whole class at the first page without a key. Such pages are
    left out, and named once all others are released."""
    course = exchange.coursedir
    excluded = course.student_id_exclude
    pages = map(Path, glob.glob(os.path.join(exchange.src_path, f"{course.assignment_id}.html")))
    lacking = {page.parent.parent.name for page in pages if not has_keys(page.parent)}
    left_out = sorted(lacking - set(excluded.split(",")))
    try:
        course.student_id_exclude = ",".join(filter(None, [excluded, *left_out]))
        _stock_copy_files(exchange)
    finally:
        course.student_id_exclude = excluded
    if left_out:
        exchange.fail(
            f"Not released: the feedback of {', '.join(left_out)}. What was graded did not come through the exchange, has no "
            f"file that ends in .ipynb, or was replaced since. Collect, autograde and write feedback again, or hand over "
            f"{course.format_path(course.feedback_directory, 'STUDENT', course.assignment_id)} yourself"
        )
