"""Turn autograded notebooks into feedback pages, as a step of nbgrader: only pages that would change."""

import contextlib
import os
from pathlib import Path

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
