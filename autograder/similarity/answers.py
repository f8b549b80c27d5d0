"""Reads what is compared: a class's answers, and the material that existed before them."""

from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.build.opened_alone import look_for_files
from autograder.build.regions import unmark
from autograder.course import Cell, Role, exercises, instructor_cells, is_week, source_notebook
from autograder.errors import CourseError, UngradableError, visible
from autograder.grading.submission.folders import why_no_name
from autograder.grading.submission.intake import rebuild
from autograder.manifest import MANIFEST
from autograder.public_address import public_address
from autograder.similarity.compare import Answers, Given
from autograder.similarity.fingerprints import Readings, read_code, read_text
from autograder.similarity.lexer import MAX_COMPARED

BESIDES = "cells besides the answers"
GIVEN_NAMES = frozenset(entry.grade_id for entries in MANIFEST.values() for entry in entries)


@dataclass
class ClassAnswers:
    """Every answer's text by student and exercise, the students who could not be read, the answers that were cut."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    cut: list[tuple[str, str]] = field(default_factory=list)


def read_class(root: Path, assignment: str, folders: dict[str, Path]) -> ClassAnswers:
    """Read every submission through the intake, as for grading, but run nothing."""
    found = ClassAnswers()
    for student, folder in folders.items():
        try:
            notebook = rebuild(folder, root, assignment).notebook
        except UngradableError as reason:
            found.unread[student] = str(reason)
            continue
        texts = _answers(notebook)
        found.cut += [(student, exercise) for exercise, text in texts.items() if len(text) > MAX_COMPARED]
        found.texts[student] = {exercise: clean(text) for exercise, text in texts.items()}
    return found


def earlier_folders(places: list[str], root: Path, assignment: str) -> list[Path]:
    """The assignment's submissions in earlier years' folders. Raises ``CourseError`` for a folder without any."""
    found: list[Path] = []
    for place in places:
        here = sorted(path for path in (root / place).glob(f"*/{assignment}") if not why_no_name(path.parent.name))
        if not here:
            raise CourseError(
                f"no submissions of {assignment} in {place}: EARLIER names a submitted/ folder of an earlier year"
            )
        found += here
    return found


def clean(text: str) -> str:
    """An answer as it is compared and shown: printable, and at most `MAX_COMPARED` characters."""
    lines = text[:MAX_COMPARED].replace("\u200b", "").split("\n")
    return "\n".join(visible(line.expandtabs(4)) for line in lines)


def read_answers(texts: dict[str, str], text_exercises: frozenset[str]) -> Answers:
    """The fingerprints of one submission."""
    return {exercise: _read(text, exercise in text_exercises) for exercise, text in texts.items()}


def text_exercises(root: Path, assignment: str) -> frozenset[str]:
    """Exercises answered in words."""
    return frozenset(cell.grade_id or "" for cell in _asked(root, assignment) if cell.cell_type != "code")


def titles(root: Path, assignment: str) -> dict[str, str]:
    """The exercises' titles on the page."""
    return {entry.grade_id: f"{entry.number} {entry.grade_id}" for entry in exercises(root, assignment)}


def given(root: Path, assignment: str, earlier: tuple[Answers, ...] = ()) -> Given:
    """Collect what the assignment forces, and the answers known beforehand."""
    source = nbformat.read(source_notebook(root, assignment), as_version=4)
    full = {cell.metadata.get("nbgrader", {}).get("grade_id"): unmark(cell.source, "SOLUTION") for cell in source.cells}
    in_words = [cell.source for cell in source.cells if cell.cell_type != "code"]
    in_code = [cell.source for cell in source.cells if cell.cell_type == "code"]
    forced: dict[str, dict[str, frozenset[str]]] = {}
    known: dict[str, dict[str, frozenset[str]]] = {}
    for cell in _asked(root, assignment):
        exercise = cell.grade_id or ""
        if cell.cell_type != "code":  # anybody may use the words of the notebook's text
            forced[exercise] = _keys([_read(text, True) for text in in_words])
            continue
        forced[exercise] = _keys([_read(cell.source, False)])
        known[exercise] = _keys([_read(text, False) for text in [full[exercise], *_bank(assignment, exercise)]])
    in_code += [look_for_files(assignment, public_address(root))] if is_week(assignment) else []
    forced[BESIDES] = _keys([_read(text, False) for text in in_code])
    return Given(forced, known, earlier)


def known_answers(root: Path, assignment: str) -> dict[str, list[str]]:
    """Right answers to every exercise that is answered in code: the reference, then the bank's."""
    from autograder.misconceptions.bank import bank  # imports torch

    source = nbformat.read(source_notebook(root, assignment), as_version=4)
    full = {cell.metadata.get("nbgrader", {}).get("grade_id"): unmark(cell.source, "SOLUTION") for cell in source.cells}
    return {
        entry.grade_id: [
            full[entry.grade_id],
            *(one.source for one in bank(assignment, entry.grade_id) if one.is_right),
        ]
        for entry in MANIFEST.get(assignment, ())
        if entry.kind != "text" and entry.grade_id in full
    }


def _asked(root: Path, assignment: str) -> list[Cell]:
    return [cell for cell in instructor_cells(root, assignment) if cell.role is Role.ANSWER]


def _answers(notebook: NotebookNode) -> dict[str, str]:
    """What a student wrote, by exercise; code cells that they added are joined."""
    found, besides = {}, []
    for cell in notebook.cells:
        if cell.metadata.get("unanswered") is False:
            found[cell.metadata.nbgrader.grade_id] = cell.source
        elif cell.cell_type == "code" and "student" in cell.metadata.get("tags", []):
            besides.append(cell.source)
    return {**found, BESIDES: "\n".join(besides)} if besides else found


def _read(text: str, in_words: bool) -> Readings:
    return read_text(text) if in_words else read_code(text, GIVEN_NAMES)


def _bank(assignment: str, exercise: str) -> list[str]:
    if not is_week(assignment):
        return []
    from autograder.misconceptions.bank import bank  # imports torch

    return [solution.source for solution in bank(assignment, exercise)]


def _keys(readings: list[Readings]) -> dict[str, frozenset[str]]:
    names = {name for one in readings for name in one}
    return {name: frozenset(key for one in readings for key in one.get(name, {})) for name in names}
