"""Restore automatic scores to a gradebook that was deleted, emptied, or replaced by an older copy.

Every autograded notebook keeps the automatic scores that were saved with it. Scores given by hand are only in the
gradebook and are never touched here.
"""

from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.grading.course_state import note_in
from autograder.grading.plugins.gradebook import mark_not_graded, open_gradebook, register_assignment, submissions_of
from autograder.grading.plugins.penalties import assign_penalty
from autograder.grading.plugins.run_gradebook import RunGradebook
from autograder.grading.plugins.timestamps import timestamp


def record(notebook: SubmittedNotebook, names: dict[str, str], reason: str) -> dict[str, Any]:
    """Return what a notebook's metadata keep of its rows: scores, cells that wait for a person, why it was not graded."""
    return {
        "scores": {names[grade.cell_id]: grade.auto_score for grade in notebook.grades},
        "waiting": sorted(names[grade.cell_id] for grade in notebook.grades if grade.needs_manual_grade),
        "reason": reason,
    }


def known_scores(gradebook: Gradebook, assignment: str) -> dict[str, dict[str, float | None]]:
    """Return the automatic scores in the gradebook, by student and cell; ``None`` waits for a person, or was not graded."""
    return {
        submission.student_id: {grade.name: grade.auto_score for each in submission.notebooks for grade in each.grades}
        for submission in submissions_of(gradebook, assignment)
    }


def restore(course: CourseDirectory, assignment: str, config: Config) -> list[str]:
    """Save again the scores that the gradebook lacks. Returns the students for whom that was done."""
    folders = sorted(Path(course.root).glob(f"{course.autograded_directory}/*/{assignment}"))
    with open_gradebook(course) as gradebook:
        known = known_scores(gradebook, assignment)
        lacking = {
            folder: kept
            for folder in folders
            if (kept := note_in(folder / f"{assignment}.ipynb").get("kept"))
            and known.get(folder.parent.name) != kept["scores"]
        }
    if lacking:
        register_assignment(Path(course.root), course, assignment)
        with RunGradebook(course, assignment) as run:
            for folder, kept in lacking.items():
                _save(run, folder, kept)
    for folder in lacking:
        assign_penalty(course, assignment, folder.parent.name, config)
    return [folder.parent.name for folder in lacking]


def told_restored(students: list[str]) -> str:
    """Return what was restored, and what cannot be."""
    names = ", ".join(students[:3]) + (", …" if len(students) > 3 else "")
    return (
        f"it lacked the automatic scores of {len(students)} submissions ({names}); they were saved again. If due dates or "
        "points given by hand are missing, they are only in a copy of the gradebook. To delete a student, remove "
        "autograded/STUDENT, too"
    )


def _save(gradebook: RunGradebook, folder: Path, kept: dict[str, Any]) -> None:
    notebook = gradebook.rows(folder.parent.name, timestamp(folder))
    if kept["reason"]:
        mark_not_graded(notebook, kept["reason"])
    for grade in notebook.grades:
        name = gradebook.names[grade.cell_id]
        grade.auto_score = kept["scores"].get(name)
        grade.needs_manual_grade = name in kept["waiting"] or grade.manual_score is not None
    gradebook.save(notebook)
