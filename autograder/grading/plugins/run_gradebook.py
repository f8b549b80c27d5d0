"""The gradebook during a grading run: opened once, and one transaction for each submission.

nbgrader's own methods commit as they go along, a dozen times for one submission. Here student, submission, scores and
comments are saved together or not at all.
"""

from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from nbgrader.api import (
    Comment,
    Grade,
    Gradebook,
    MissingEntry,
    Notebook,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.coursedir import CourseDirectory

from autograder.grading.plugins.gradebook import open_gradebook


@dataclass(frozen=True)
class _Notebook:
    """The cells of a notebook, by their ids in the database."""

    id: str
    graded: tuple[str, ...]
    commented: tuple[str, ...]
    names: dict[str, str]  # names of its cells, by id

    @classmethod
    def of(cls, notebook: Notebook) -> Self:
        tasks = [cell.id for cell in notebook.task_cells]
        graded = [cell.id for cell in notebook.grade_cells] + tasks
        commented = [cell.id for cell in notebook.solution_cells] + tasks
        cells = notebook.grade_cells + notebook.solution_cells + notebook.task_cells
        return cls(notebook.id, tuple(graded), tuple(commented), {cell.id: cell.name for cell in cells})


@dataclass
class Rows:
    """One submission's rows, and the names of their cells by id."""

    notebook: SubmittedNotebook
    names: dict[str, str]


class RunGradebook:
    """Rows of one assignment's submissions: ``rows`` begins a transaction, ``save`` ends it."""

    def __init__(self, course: CourseDirectory, assignment: str, create_student: bool = True) -> None:
        self._gradebook: Gradebook = open_gradebook(course)
        self._session = self._gradebook.db()
        known = self._gradebook.find_assignment(assignment)
        self._assignment, self._has_duedate = known.id, known.duedate is not None
        self._notebooks = {notebook.name: _Notebook.of(notebook) for notebook in known.notebooks}
        self._graded = self._notebooks[assignment]
        self._create_student = create_student
        self.undo()  # nothing was written; this releases what was read

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gradebook.close()

    def rows(self, student: str, handed_in: datetime | None) -> Rows:
        """Return the submission's rows, created if there are none, with this submission's time, not an earlier one's.
        Raises ``MissingEntry`` for an unknown student who may not be added."""
        session = self._session
        submission = (
            session.query(SubmittedAssignment)
            .filter_by(assignment_id=self._assignment, student_id=student)
            .one_or_none()
        )
        if submission is None:
            submission = self._new(student)
        submission.timestamp = handed_in
        found = next(row for row in submission.notebooks if row.notebook_id == self._graded.id)
        return Rows(found, self._graded.names)

    def _new(self, student: str) -> SubmittedAssignment:
        if self._session.get(Student, student) is None:
            if not self._create_student:
                raise MissingEntry(f"No student with ID '{student}' exists in the database")
            self._session.add(Student(id=student))
        submission = SubmittedAssignment(assignment_id=self._assignment, student_id=student)
        for notebook in self._notebooks.values():
            row = SubmittedNotebook(notebook_id=notebook.id, assignment=submission)
            for cell in notebook.graded:
                Grade(cell_id=cell, notebook=row)
            for cell in notebook.commented:
                Comment(cell_id=cell, notebook=row)
        self._session.add(submission)
        return submission

    def save(self, rows: Rows) -> float:
        """Commit, and forget the rows: a large class's need not all stay in memory. Returns how many seconds late the
        submission is."""
        submission = rows.notebook.assignment
        self._session.flush()
        late = float(submission.total_seconds_late) if submission.timestamp and self._has_duedate else 0.0
        self._session.commit()
        self._session.expunge_all()
        return late

    def undo(self) -> None:
        """Roll back what was begun."""
        self._session.rollback()
        self._session.expunge_all()
