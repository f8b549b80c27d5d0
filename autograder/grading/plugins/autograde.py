"""Run nbgrader's autograde in a grading run of ours: `nbgrader autograde`, formgrader's button, `make autograde`.

nbgrader's converter stays serial and is the only writer of the gradebook. Before its loop begins, the grading of all
submissions that it will convert starts in parallel, in sandboxes; the loop waits for each outcome.
"""

import fnmatch
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.utils import rmtree
from sqlalchemy.exc import DatabaseError, OperationalError

from autograder.course import all_assignments, is_week
from autograder.errors import CourseError, GradingFailed, cannot_store, first_line
from autograder.grading.course_state import is_complete
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Failed, Graded, Ungradable
from autograder.grading.pipeline import NO_ISOLATION, grade_submissions, grading_run
from autograder.grading.plugins.background import Watcher, grade_in_background
from autograder.grading.plugins.gradebook import mark_not_graded, register_assignment
from autograder.grading.plugins.nbgrader_version import wrong_version
from autograder.grading.plugins.penalties import strangers
from autograder.grading.plugins.restore import known_scores, restore, told_restored
from autograder.grading.plugins.run_gradebook import RunGradebook
from autograder.grading.plugins.timestamps import NAME, read_stamp, timestamp
from autograder.grading.submission.folders import find_submissions
from autograder.late import LateDays
from autograder.permissions import require_private

VERY_LATE = timedelta(days=14)


def why_refused(converter: BaseConverter) -> str:
    """Return a message about an assignment that does not exist, or an nbgrader option that does nothing here; empty if
    there is none."""
    assignment, notebooks = converter.coursedir.assignment_id, converter.coursedir.notebook_id
    root = Path(converter.coursedir.root)
    if not is_week(assignment) and not (root / "source" / assignment).is_dir():
        return f"there is no assignment {assignment!r}; there is: {', '.join(all_assignments(root))}"
    if not fnmatch.fnmatchcase(assignment, notebooks):
        return (
            f"--notebook {notebooks} has no effect here: an assignment of this course is one notebook, {assignment}, and is "
            "graded as a whole. Leave it out; --student takes a student"
        )
    if converter.config.Execute.get("enabled", True) is False:
        return (
            "--no-execute has no effect here: scores come from running the answers, in a sandbox, and never from saved "
            "outputs. Leave it out"
        )
    return ""


class CourseAutograde(Autograde):
    """nbgrader's Autograde, which here grades through `pipeline` and neither copies nor reads a submission itself."""

    grader: Grader | None = None  # None: each run makes its own
    watcher = Watcher()
    broken_by: OperationalError | None = None  # why the gradebook could not be written
    stopped = ""  # why the run ended before its end

    def init_notebooks(self) -> None:
        """Find the submissions. Intake decides later which file of each is the notebook, or that there is none."""
        self.failures: list[str] = []  # a line for each submission without a grade
        self.refused: dict[str, str] = {}  # folders whose names no student can have, with the reason
        self.misnamed: dict[str, str] = {}  # entries named almost like the assignment, with what to do
        self.remarks: dict[str, str] = {}  # by student or file: a time of submission that is odd, and so on
        assignment = self.coursedir.assignment_id
        if problem := why_refused(self):
            raise self._told(problem)
        found = find_submissions(self.coursedir, assignment, self.coursedir.student_id)
        self._folders, self.refused, self.misnamed = found.folders, found.refused, found.misnamed
        for name, remedy in self.misnamed.items():
            self.log.warning("Not graded: submitted/%s: %s", name, remedy)
        for name, reason in self.refused.items():
            self.log.error("Not graded: submitted/%s: %s", name, reason)
        # Read times before notebooks: a submission that arrives in between is newer than its noted time: graded next.
        self._stamps = {student: read_stamp(folder) for student, folder in self._folders.items()}
        for student, stamp in self._stamps.items():
            if stamp.problem:
                self._remark(student, stamp.problem)
        if not self._folders and not self.refused:
            super().init_notebooks()  # raises nbgrader's own error
        self._notebooks = {str(folder / f"{assignment}.ipynb"): student for student, folder in self._folders.items()}
        self.assignments = {str(Path(notebook).parent): [notebook] for notebook in self._notebooks}

    def convert_notebooks(self) -> None:
        """Run nbgrader's loop inside a grading run."""
        root, assignment = Path(self.coursedir.root), self.coursedir.assignment_id
        try:
            if problem := wrong_version():
                raise GradingFailed(problem)
            if warning := require_private(root, self.coursedir.groupshared):
                self.log.warning(warning)
            late = LateDays(config=self.config).read()  # a table with a mistake in it ends the run before it begins
            options = self.exporter.options
            with grading_run(root, assignment, options, self.grader) as grader:
                register_assignment(root, self.coursedir, assignment)
                if restored := restore(self.coursedir, assignment, self.config):
                    self._remark("gradebook", told_restored(restored))
                with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
                    self._known = known_scores(gradebook, assignment)  # nobody else can count as done
                    if unknown := strangers(late, self.coursedir, gradebook):
                        self._remark("late.csv", unknown)
                    self._look_at_due_date(gradebook.find_assignment(assignment).duedate, bool(late))
                self._due = {student: folder for student, folder in self._folders.items() if self._is_due(student)}
                self._look_for_newer_files()
                if not options.isolate:
                    self.log.warning(NO_ISOLATION)
                self.watcher.on_start(sorted(self._due))
                grade = partial(
                    grade_submissions, root, assignment, self._due, options, again=self.force, grader=grader
                )
                self._outcomes = grade_in_background(self._due, grade, self.watcher)
                for preprocessor in self.autograde_preprocessors:
                    self.exporter.register_preprocessor(preprocessor)
                with RunGradebook(self.coursedir, assignment, self.create_student) as self._gradebook:
                    super().convert_notebooks()
            if self.refused:
                raise self._told(
                    f"not graded, by the names of their folders under submitted/: {', '.join(self.refused)}"
                )
        except (GradingFailed, CourseError) as error:
            self.stopped = str(error)
            raise self._told(self.stopped) from None
        except (OSError, DatabaseError, NbGraderException) as error:
            cause = self.broken_by if isinstance(error, NbGraderException) else error
            if cause is None:
                raise
            self.stopped = f"{cannot_store(cause)}, then start again; what is graded is kept"
            raise self._told(self.stopped) from error

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        """Return whether this submission is part of the run; if so, remove its earlier result."""
        done = Path(self._format_dest(assignment_id, student_id))
        if student_id not in self._due:
            self.log.info("Skipping existing assignment: %s", done)
            return False
        if done.exists():
            self.log.warning("Removing existing assignment: %s", done)
            rmtree(str(done))
        return True

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        """Do nothing: student and submission enter the gradebook with the scores, and no file is copied, because a
        submission may hold links, devices or gigabytes."""

    def convert_single_notebook(self, notebook_filename: str) -> None:
        """Convert in one pass: nbgrader's other pass sanitizes, which intake has done. Errors are kept in ``failures``
        too, because nbgrader's loop goes on with the next student."""
        student = self._notebooks[notebook_filename]
        try:
            outcome = self._outcomes.take(student)
            if isinstance(outcome, Failed):
                rows = self._gradebook.rows(student, self._stamps[student].moment)
                mark_not_graded(rows, outcome.reason)
                self._gradebook.save(rows)
                raise GradingFailed(f"{student}: {outcome.reason}. No grade was given; the next run tries again")
            self._save(notebook_filename, student, outcome)
        except OperationalError as error:  # nbgrader ends its loop, with advice for another case
            self.broken_by = error
            raise
        except Exception as error:
            told = isinstance(error, GradingFailed)
            self.failures.append(str(error) if told else f"{student}: {type(error).__name__}: {first_line(error)}")
            raise
        finally:
            self._gradebook.undo()  # rolls back if something went wrong

    def _save(self, notebook_filename: str, student: str, outcome: Graded | Ungradable) -> None:
        assignment, stamp = self.coursedir.assignment_id, self._stamps[student]
        where = {"student": student, "assignment": assignment, "notebook": assignment, "db_url": self.coursedir.db_url}
        resources: dict[str, Any] = {"unique_key": assignment, "nbgrader": where, "stamp": stamp}
        resources |= {"autograder": outcome, "gradebook": self._gradebook}
        if stamp.content:
            resources["outputs"] = {NAME: stamp.content}  # tells nbgrader when a student submits again
        output, resources = self.exporter.from_filename(notebook_filename, resources=resources)
        self.write_single_notebook(output, resources)
        if isinstance(outcome, Graded):
            for warning in outcome.warnings:
                self.log.warning("%s: %s", student, warning)
            outcome.forget()

    def _is_due(self, student: str) -> bool:
        """Whether to grade a submission: not graded yet, half graded (run was killed), submitted again, or --force."""
        if student in (self.coursedir.student_id_exclude or "").split(","):
            return False
        assignment = self.coursedir.assignment_id
        done = Path(self._format_dest(assignment, student))
        if not done.exists() or self.force:
            return True
        if not is_complete(done / f"{assignment}.ipynb") or student not in self._known:
            self.log.warning("Grading %s again: an earlier run did not finish, or the gradebook has lost it", student)
            return True
        new, old = self._stamps[student].moment, timestamp(done)
        return new is not None and (old is None or new > old)

    def _look_for_newer_files(self) -> None:
        """Name students whose notebook is newer than its grade, which nothing but a time stamp makes due."""
        newer = sorted(student for student in self._folders.keys() - self._due.keys() if self._is_newer(student))
        if newer:
            names = ", ".join(newer[:10]) + (f" and {len(newer) - 10} more" if len(newer) > 10 else "")
            self._remark("newer than their grades", f"{names}; REGRADE=1 STUDENTS=… grades what lies there now")

    def _is_newer(self, student: str) -> bool:
        assignment = self.coursedir.assignment_id
        graded = Path(self._format_dest(assignment, student), f"{assignment}.ipynb")
        try:
            saved = graded.stat().st_mtime
            return any(path.lstat().st_mtime > saved for path in self._folders[student].glob("*.ipynb"))
        except OSError:
            return False

    def _look_at_due_date(self, due: datetime | None, has_table: bool) -> None:
        """Say if everybody is very late: the due date is probably wrong. With a late table, say if there is none."""
        times = [stamp.moment for stamp in self._stamps.values() if stamp.moment]
        if has_table and times and not due:
            self._remark(
                "due date", f"there is none, so nobody is late, whatever late.csv says: {self._set_due_date()}"
            )
        if due and times and min(times) - due > VERY_LATE:
            self._remark(
                "due date",
                f"{due:%Y-%m-%d %H:%M} UTC, {(min(times) - due).days} days before the first hand-in of this run. If that is "
                f"wrong, {self._set_due_date()}",
            )

    def _set_due_date(self) -> str:
        name = self.coursedir.assignment_id
        return f'run `nbgrader db assignment add {name} --duedate "YYYY-MM-DD HH:MM UTC"`, then `make feedback`'

    def _remark(self, about: str, problem: str) -> None:
        self.remarks[about] = problem
        self.log.warning("%s: %s", about, problem)

    def _told(self, reason: str) -> NbGraderException:
        self.log.error(reason)
        return NbGraderException(reason)
