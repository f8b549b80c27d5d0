"""The gradebook during a grading run: opened once, and one transaction for each submission.

nbgrader's own methods commit as they go along, a dozen times for one submission. Here student, submission, scores and
comments are saved together or not at all.
"""

from datetime import datetime
from typing import Self

from nbgrader.api import Comment, Grade, Gradebook, MissingEntry, Student, SubmittedAssignment, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory

from autograder.grading.plugins.gradebook import open_gradebook


class RunGradebook:
    """Rows of one assignment's submissions: ``rows`` begins a transaction, ``save`` ends it. ``names`` are those of the
    notebook's cells, by id."""

    def __init__(self, course: CourseDirectory, assignment: str, create_student: bool = True) -> None:
        self._gradebook: Gradebook = open_gradebook(course)
        self._session = self._gradebook.db()
        known = self._gradebook.find_assignment(assignment)
        self._assignment, self._has_duedate = known.id, known.duedate is not None
        (notebook,) = known.notebooks  # `register_assignment` has seen to that
        tasks = [cell.id for cell in notebook.task_cells]
        self._notebook: str = notebook.id
        self._graded = [cell.id for cell in notebook.grade_cells] + tasks
        self._commented = [cell.id for cell in notebook.solution_cells] + tasks
        self.names: dict[str, str] = {cell.id: cell.name for cell in notebook._base_cells}
        self._create_student = create_student
        self.undo()  # nothing was written; this releases what was read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gradebook.close()

    def rows(self, student: str, handed_in: datetime | None) -> SubmittedNotebook:
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
        return submission.notebooks[0]

    def _new(self, student: str) -> SubmittedAssignment:
        if self._session.get(Student, student) is None:
            if not self._create_student:
                raise MissingEntry(f"No student with ID '{student}' exists in the database")
            self._session.add(Student(id=student))
        submission = SubmittedAssignment(assignment_id=self._assignment, student_id=student)
        row = SubmittedNotebook(notebook_id=self._notebook, assignment=submission)
        for cell in self._graded:
            Grade(cell_id=cell, notebook=row)
        for cell in self._commented:
            Comment(cell_id=cell, notebook=row)
        self._session.add(submission)
        return submission

    def save(self, rows: SubmittedNotebook) -> float:
        """Commit, and forget the rows: a large class's need not all stay in memory. Returns how many seconds late the
        submission is."""
        submission = rows.assignment
        self._session.flush()
        late = float(submission.total_seconds_late) if submission.timestamp and self._has_duedate else 0.0
        self._session.commit()
        self._session.expunge_all()
        return late

    def undo(self) -> None:
        """Roll back what was begun."""
        self._session.rollback()
        self._session.expunge_all()
