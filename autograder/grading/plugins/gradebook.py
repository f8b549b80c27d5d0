"""nbgrader's gradebook, through its own API: registering an assignment, reading scores and reasons."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.api import (
    Base,
    Gradebook,
    GradeCell,
    MissingEntry,
    SolutionCell,
    SourceCell,
    SubmittedAssignment,
    SubmittedNotebook,
    TaskCell,
)
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import URL, make_url
from sqlalchemy.exc import InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import selectinload, undefer

from autograder.course import Cell, instructor_cells, source_notebook
from autograder.errors import CourseError, first_line
from autograder.grading.plugins.indexes import add_indexes
from autograder.manifest import Exercise

UNGRADABLE = "Not graded: "
DAMAGED = ("file is not a database", "disk image is malformed", "file is encrypted")  # what SQLite says


@dataclass
class Score:
    """A student's standing in one assignment. ``score`` is ``None`` if it could not be graded."""

    student: str
    score: float | None
    max_score: float
    reason: str = ""
    to_grade_by_hand: int = 0
    by_cell: dict[str, float | None] = field(default_factory=dict)


def register_assignment(root: Path, course: CourseDirectory, assignment: str) -> None:
    """Enter the assignment's cells into the gradebook as they are in the built source, all or none.

    Also add the indexes that a large class needs, if nbgrader made the gradebook without them.
    """
    metadata = json.loads(source_notebook(root, assignment).read_text(encoding="utf-8"))["metadata"]
    wanted = dict(row for cell in instructor_cells(root, assignment) for row in _rows_of(cell))
    with open_gradebook(course) as gradebook:
        add_indexes(gradebook)
        entry = gradebook.update_or_create_assignment(assignment)
        kernel = json.dumps(metadata.get("kernelspec", {}))
        notebook = gradebook.update_or_create_notebook(assignment, assignment, kernelspec=kernel)
        known = {(type(cell), cell.name): cell for cell in [*notebook._base_cells, *notebook.source_cells]}
        others = [name for each in entry.notebooks if (name := each.name) != assignment]
        if others or known.keys() - wanted.keys() or (known and wanted.keys() - known.keys()):
            if gradebook.db.query(SubmittedAssignment.id).filter_by(assignment_id=entry.id).first():
                raise CourseError(
                    f"{assignment} could not be entered into the gradebook: cells were added or removed after submissions "
                    "were graded. Take the change back, or forget the grades with `nbgrader db assignment remove "
                    f"{assignment} --force` and grade again with `REGRADE=1` (nbgrader: `--force`)"
                )
            for name in others:
                gradebook.remove_notebook(name, assignment)
        for key in known.keys() - wanted.keys():
            gradebook.db.delete(known[key])
        for (kind, name), values in wanted.items():
            cell = known.get((kind, name)) or kind(name=name, notebook=notebook)
            for column, value in values.items():
                setattr(cell, column, value)
            gradebook.db.add(cell)
        gradebook.db.commit()


def _rows_of(cell: Cell) -> Iterator[tuple[tuple[type[Base], str | None], dict[str, Any]]]:
    """Yield the rows that nbgrader keeps for a cell of the source: (table, name) and the values."""
    node = nbformat.from_dict({"cell_type": cell.cell_type, "source": cell.source, "metadata": cell.metadata})
    points = {"max_score": cell.points, "cell_type": cell.cell_type}
    if utils.is_grade(node):
        yield (GradeCell, cell.grade_id), points
    if utils.is_solution(node):
        yield (SolutionCell, cell.grade_id), {}
    if utils.is_task(node):
        yield (TaskCell, cell.grade_id), points
    locked, is_kept = utils.is_locked(node), utils.is_grade(node) or utils.is_solution(node) or utils.is_locked(node)
    if is_kept or utils.is_task(node):
        checksum = utils.compute_checksum(node) if is_kept else None
        source = {"cell_type": cell.cell_type, "source": cell.source, "locked": locked, "checksum": checksum}
        yield (SourceCell, cell.grade_id), source


def database_url(text: str) -> URL:
    """Return the gradebook's address. An error never shows it: it may hold a password, or part of one as its host."""
    try:
        url = make_url(text)
    except Exception:
        url = None
    if url is None or (url.get_backend_name() != "sqlite" and "@" in f"{url.host}{url.database}"):
        raise CourseError(
            "c.CourseDirectory.db_url is no address of a database. If it holds a password with @, : or /, keep the password "
            "in ~/.pgpass instead, as docs/postgresql.md says"
        )
    return url


def has_gradebook(course: CourseDirectory) -> bool:
    """Whether there is a gradebook to open. Opening it to find out would create an SQLite file. One whose folder is not
    there counts: opening it says so."""
    url = database_url(course.db_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        return True
    return Path(url.database).exists() or not Path(url.database).parent.is_dir()


def open_gradebook(course: CourseDirectory) -> Gradebook:
    """Open the gradebook. Raises ``CourseError`` if it is damaged, out of reach, or of another nbgrader version."""
    url = database_url(course.db_url)
    try:
        return Gradebook(course.db_url, course.course_id)
    except Exception as error:
        raise CourseError(_why_not_opened(url, error)) from error


def _why_not_opened(url: URL, error: Exception) -> str:
    where, said = url.render_as_string(hide_password=True), first_line(error)
    if url.password:
        said = said.replace(str(url.password), "***")
    if isinstance(error, ImportError | NoSuchModuleError):
        return (
            f"the gradebook ({where}) needs a driver that is not installed here ({said}): "
            "pip install -e '.[postgresql]' in the course's folder"
        )
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).parent.is_dir():
        return (
            f"the gradebook ({where}) is in a folder that is not there: is its disk mounted, and is c.CourseDirectory.db_url "
            "in nbgrader_config.py right?"
        )
    if any(words in said for words in DAMAGED):
        return (
            f"the gradebook ({where}) is damaged ({said}): put a copy of it in its place, or move it away and run autograde, "
            "which saves the automatic scores again; what was graded by hand is in copies only"
        )
    if "database is locked" in said:
        return (
            f"the gradebook ({where}) is in use by another program ({said}): close it there, for example in a database viewer "
            "or a backup, and run this again; the gradebook is as it was"
        )
    if "permission denied for schema" in said:
        return f"the gradebook ({where}) refuses new tables ({said}): make its user the owner of the database"
    if url.get_backend_name() != "sqlite" and isinstance(error, InterfaceError | OperationalError):
        return (
            f"the gradebook ({where}) cannot be reached ({said}): see whether the database runs, and look at its address in "
            "nbgrader_config.py and at the password in ~/.pgpass"
        )
    return (
        f"the gradebook ({where}) cannot be opened ({said}): if it is from an older nbgrader, make a copy of it and run "
        "`nbgrader db upgrade`; otherwise put a copy of it in its place"
    )


def save_scores(
    notebook: SubmittedNotebook,
    names: dict[str, str],
    cells: dict[str, NotebookNode],
    scores: dict[str, float],
    to_look_at: frozenset[str] = frozenset(),
) -> None:
    """Write automatic scores by cell id; ``names`` are the gradebook's cell names by id. Unanswered free text gets 0.
    Answered free text waits for a person, and so does a flagged answer (named in ``to_look_at``), with its score."""
    for grade in notebook.grades:
        name = names[grade.cell_id]
        cell = cells[name]
        if is_graded_by_hand(cell):
            grade.auto_score = 0.0 if cell.metadata.get("unanswered") else None
        else:
            grade.auto_score = scores[cell.id]
        flagged = name.removesuffix("_tests") in to_look_at and bool(grade.auto_score)
        grade.needs_manual_grade = grade.auto_score is None or grade.manual_score is not None or flagged
    for comment in notebook.comments:
        is_blank = cells[names[comment.cell_id]].metadata.get("unanswered")
        comment.auto_comment = "No response." if is_blank else None


def is_graded_by_hand(cell: NotebookNode) -> bool:
    """Whether a cell with points waits for a person: an answer, a task, or text, which has no test to run."""
    marks = cell.metadata.nbgrader
    return bool(marks.solution or marks.get("task") or cell.cell_type != "code")


def mark_not_graded(notebook: SubmittedNotebook, reason: str) -> None:
    """Remove all automatic scores, put the reason into the comments, and let the submission wait for a person; but not
    once more if a person has graded it for all that, and the reason is still the same."""
    is_known = any(comment.auto_comment == UNGRADABLE + reason for comment in notebook.comments)
    for grade in notebook.grades:
        grade.auto_score = None
        if grade.manual_score is None or not is_known:
            grade.needs_manual_grade = True
    for comment in notebook.comments:
        comment.auto_comment = UNGRADABLE + reason


def scores(course: CourseDirectory, assignment: str) -> list[Score]:
    """Return every student's standing in the assignment."""
    with open_gradebook(course) as gradebook:
        found = submissions_of(gradebook, assignment)
        return sorted((_standing(submission) for submission in found), key=lambda score: score.student)


def submissions_of(gradebook: Gradebook, assignment: str) -> Iterator[SubmittedAssignment]:
    """Yield all submissions with their grades and comments; none for an unknown assignment."""
    try:
        known = gradebook.find_assignment(assignment)
    except MissingEntry:
        return
    _cells = [notebook._base_cells for notebook in known.notebooks]  # kept in memory, where each grade finds its cell
    notebooks = selectinload(SubmittedAssignment.notebooks)
    of_submission = ("score", "max_score", "late_submission_penalty")
    yield from (
        gradebook.db.query(SubmittedAssignment)
        .filter_by(assignment_id=known.id)
        .options(
            *(undefer(getattr(SubmittedAssignment, name)) for name in of_submission),
            notebooks.selectinload(SubmittedNotebook.grades),
            notebooks.selectinload(SubmittedNotebook.comments),
        )
    )


def _standing(submission: SubmittedAssignment) -> Score:
    reason = reason_not_graded(submission)
    grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
    by_cell = {
        grade.name: (None if reason or (grade.auto_score is None and grade.manual_score is None) else grade.score)
        for grade in grades
    }
    waiting = 0 if reason else sum(grade.needs_manual_grade for grade in grades)
    penalty = submission.late_submission_penalty or 0.0
    score = None if reason else max(0.0, submission.score - penalty)
    return Score(submission.student_id, score, submission.max_score, reason, waiting, by_cell)


def reason_not_graded(submission: SubmittedAssignment) -> str:
    """Return why a submission has no grade; empty if it has one. A manual score saved since overrides the reason: one of
    an earlier hand-in waits for another look, and would otherwise pass for the whole score."""
    grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
    if any(grade.manual_score is not None and not grade.needs_manual_grade for grade in grades):
        return ""
    for notebook in submission.notebooks:
        for comment in notebook.comments:
            if (comment.auto_comment or "").startswith(UNGRADABLE):
                return str(comment.auto_comment).removeprefix(UNGRADABLE)
    if all(grade.auto_score is None and grade.manual_score is None for grade in grades):
        return "grading did not finish; run autograde again"
    return ""


def out_of_range(entries: tuple[Exercise, ...], standing: list[Score]) -> list[str]:
    """Name the points below 0 or above an exercise's maximum, such as a slip in grading by hand."""
    return [
        f"{score.student}, {entry.grade_id}: {given:g} of {entry.points:g} points"
        for score in standing
        for entry in entries
        if (given := score.by_cell.get(entry.graded_cell)) is not None and not 0 <= given <= entry.points
    ]
