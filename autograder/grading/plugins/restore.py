"""Restore automatic scores to a gradebook that was deleted, emptied, or replaced by an older copy.

Every autograded notebook keeps the automatic scores that were saved with it. Scores given by hand are only in the
gradebook and are never touched here.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbgrader.api import BaseCell, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config

from autograder.grading.plugins.gradebook import mark_not_graded, open_gradebook, register_assignment
from autograder.grading.plugins.timestamps import timestamp

Scores = dict[str, float | None]  # automatic ones by grade cell; None: waits for a person, or was not graded


@dataclass(frozen=True)
class Kept:
    """A notebook's record of what was saved: scores, cells that wait for a person, why it was not graded."""

    scores: Scores
    waiting: frozenset[str]
    reason: str

    @classmethod
    def of(cls, notebook: SubmittedNotebook, names: dict[str, str], reason: str = "") -> "Kept":
        """Make the record from the gradebook's rows when they are saved; ``names`` are its cells' names by id."""
        waiting = frozenset(names[grade.cell_id] for grade in notebook.grades if grade.needs_manual_grade)
        return cls({names[grade.cell_id]: grade.auto_score for grade in notebook.grades}, waiting, reason)

    def to_json(self) -> dict[str, Any]:
        """Return the record for the notebook's metadata."""
        return {"scores": self.scores, "waiting": sorted(self.waiting), "reason": self.reason}

    @classmethod
    def read(cls, notebook: Path) -> "Kept | None":
        """Read a notebook's record; ``None`` if an earlier version of the grader wrote it, or it is half-written."""
        try:
            note = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["autograder"]["kept"]
            return cls(note["scores"], frozenset(note["waiting"]), note["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def known_scores(gradebook: Gradebook, assignment: str) -> dict[str, Scores]:
    """Return the automatic scores of all students in the gradebook, in one query."""
    rows = (
        gradebook.db.query(SubmittedAssignment.student_id, BaseCell.name, Grade.auto_score)
        .join(SubmittedNotebook, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(Grade, Grade.notebook_id == SubmittedNotebook.id)
        .join(BaseCell, Grade.cell_id == BaseCell.id)
        .filter(SubmittedAssignment.name == assignment)
        .all()
    )
    found: dict[str, Scores] = {}
    for student, cell, score in rows:
        found.setdefault(student, {})[cell] = score
    return found


def restore(course: CourseDirectory, assignment: str, config: Config) -> list[str]:
    """Save again the scores that the gradebook lacks. Returns the students for whom that was done."""
    folders = sorted(Path(course.root).glob(f"{course.autograded_directory}/*/{assignment}"))
    with open_gradebook(course) as gradebook:
        known = known_scores(gradebook, assignment)
        lacking = {
            folder: kept
            for folder in folders
            if (kept := Kept.read(folder / f"{assignment}.ipynb")) and known.get(folder.parent.name) != kept.scores
        }
    if lacking:
        register_assignment(Path(course.root), course, assignment)
    with open_gradebook(course) as gradebook:
        for folder, kept in lacking.items():
            _save(gradebook, assignment, folder, kept)
    for folder in lacking:
        _assign_penalty(course, assignment, folder, config)
    return [folder.parent.name for folder in lacking]


def _save(gradebook: Gradebook, assignment: str, folder: Path, kept: Kept) -> None:
    student, handed_in = folder.parent.name, timestamp(folder)
    gradebook.update_or_create_student(student)
    gradebook.update_or_create_submission(
        assignment, student, **({} if handed_in is None else {"timestamp": handed_in})
    )
    notebook = gradebook.find_submission_notebook(assignment, assignment, student)
    if kept.reason:
        mark_not_graded(notebook, kept.reason)
    for grade in notebook.grades:
        grade.auto_score = kept.scores.get(grade.name)
        grade.needs_manual_grade = grade.name in kept.waiting or grade.manual_score is not None
    gradebook.db.commit()


def _assign_penalty(course: CourseDirectory, assignment: str, folder: Path, config: Config) -> None:
    where = {"assignment": assignment, "notebook": assignment, "student": folder.parent.name, "db_url": course.db_url}
    AssignLatePenalties(config=config).preprocess(nbformat.v4.new_notebook(), ResourcesDict(nbgrader=where))
