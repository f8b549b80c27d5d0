"""Turn autograded notebooks into feedback pages, as a step of nbgrader: only pages that would change, on all cores."""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from nbgrader.api import Gradebook, InvalidEntry
from nbgrader.converters import GenerateFeedback
from nbgrader.converters.base import NbGraderException

from autograder.errors import GradingFailed
from autograder.grading.course_state import run_lock
from autograder.grading.plugins.autograde import why_refused
from autograder.grading.plugins.exchange import exchange_key, has_keys
from autograder.grading.plugins.page_origin import is_made_from, origins
from autograder.grading.plugins.penalties import renew_penalties
from autograder.grading.plugins.restore import restore, told_restored
from autograder.grading.submission.folders import folders
from autograder.log import CapturedLog

SHARE = 8  # pages that a process is given at a time: after Ctrl-C it finishes only these


class CourseFeedback(GenerateFeedback):
    """nbgrader's GenerateFeedback, but names are not patterns, and one student lost by the gradebook stops nobody else.

    A page is made again only if something that it shows has changed since; ``force`` makes all of them.
    """

    origins: dict[str, str] = {}  # noqa: RUF012  (by student; set whole, never changed in place)
    up_to_date = 0
    remarks: list[str] = []  # noqa: RUF012  (what the gradebook lacked, which penalties changed; set whole)

    def init_notebooks(self) -> None:
        """List the pages to make, after restoring scores that the gradebook has lost, and working out penalties anew."""
        course, assignment = self.coursedir, self.coursedir.assignment_id
        if problem := why_refused(self):
            self.log.error(problem)
            raise NbGraderException(problem)
        lacked: list[str] = []
        with contextlib.suppress(GradingFailed), run_lock(Path(course.root)):  # a run in progress restores them itself
            lacked = restore(course, assignment, self.config)
        self.remarks = [f"gradebook: {told_restored(lacked)}"] if lacked else []
        self.remarks += renew_penalties(course, assignment, self.config)
        for remark in self.remarks:
            self.log.warning(remark)
        found = map(str, folders(course, course.autograded_directory, course.student_id, assignment))
        notebooks = {folder: os.path.join(folder, f"{assignment}.ipynb") for folder in found}
        self.assignments = {folder: [notebook] for folder, notebook in notebooks.items() if os.path.isfile(notebook)}
        if not self.assignments:
            super().init_notebooks()  # raises nbgrader's own error
            return
        students = {folder: Path(folder).parent.name for folder in self.assignments}
        self.origins = origins(course, assignment, list(students.values()))
        if not self.force:
            stale = {folder: known for folder, known in self.assignments.items() if self._is_stale(students[folder])}
            self.up_to_date = len(self.assignments) - len(stale)
            self.assignments = stale
            self.set_trait("force", True)  # replaces older pages

    def _is_stale(self, student: str) -> bool:
        assignment = self.coursedir.assignment_id
        folder = Path(self._format_dest(assignment, student))
        can_be_released = not exchange_key(self.coursedir, student, assignment) or has_keys(folder)
        return not (can_be_released and is_made_from(folder / f"{assignment}.html", self.origins.get(student)))

    def convert_notebooks(self) -> None:
        """Make the pages, in several processes unless this one has other threads, which a fork could harm."""
        # Opening it adds nbgrader's default course, which processes must not do at once. Another command may just have.
        with contextlib.suppress(InvalidEntry), Gradebook(self.coursedir.db_url):
            pass
        folders = sorted(self.assignments)
        shares = [folders[at : at + SHARE] for at in range(0, len(folders), SHARE)]
        processes = min(os.cpu_count() or 1, len(shares))
        if processes < 2 or sys.platform != "linux" or threading.active_count() > 1:
            super().convert_notebooks()
            return
        with ProcessPoolExecutor(
            processes, multiprocessing.get_context("fork"), initializer=_begin, initargs=(self,)
        ) as pool:
            try:
                told = list(pool.map(_make, shares))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for said, _ in told:
            for level, line in said:
                self.log.log(level, line)
        if failed := [error for _, error in told if error]:
            raise NbGraderException(failed[0])


_converter: CourseFeedback  # set in each process that makes pages


def _begin(converter: CourseFeedback) -> None:
    global _converter
    _converter = converter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the process that waits handles Ctrl-C


def _make(folders: list[str]) -> tuple[list[tuple[int, str]], str | None]:
    """Make the pages of these folders. Returns what nbgrader logs meanwhile, and its error."""
    _converter.log = log = CapturedLog(logging.NOTSET)
    everything = _converter.assignments
    _converter.assignments = {folder: everything[folder] for folder in folders}
    try:
        GenerateFeedback.convert_notebooks(_converter)
    except NbGraderException as error:
        return log.said, str(error)
    finally:
        _converter.assignments = everything
    return log.said, None
