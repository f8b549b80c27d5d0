"""Find definitions that grading would run too late, or never: those in cells further down, and those in the course's
figures and visible checks. Answers need them, and cells of the student's own. Reads the text, runs nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, Role
from autograder.grading.source_names import defined_names, foreign_names, statements

NEVER_RUN = (Role.EXPERIMENT, Role.TEST)


@dataclass(frozen=True)
class Forward:
    """Statements to run above a cell, and the names that it wants of them."""

    cell: str
    source: str
    names: tuple[str, ...]


def brought_forward(cells: Sequence[NotebookNode], template: Sequence[Cell]) -> list[Forward]:
    """Return what is to be run above which cells. No hidden test is looked at, and no exercise's own definition is moved."""
    courses = {cell.id: cell for cell in template}
    exercises = {cell.grade_id for cell in template if cell.role is Role.ANSWER if cell.grade_id}
    code = [cell for cell in cells if cell.cell_type == "code"]
    known: set[str] = set()
    found = []
    for number, cell in enumerate(code):
        course = courses.get(cell.id)
        if course is None or course.role is Role.ANSWER:
            wanted = [name for name in foreign_names(cell.source) if name not in known | exercises]
            makers = _makers(code[number + 1 :], courses, exercises, may_call=course is not None) if wanted else {}
            parts = _parts(wanted, known, makers)
            if parts:
                found.append(Forward(cell.id, "\n\n".join(parts), tuple(name for name in wanted if name in known)))
        if course is None or course.role not in NEVER_RUN:
            known |= defined_names(cell.source)
    return found


def _parts(wanted: Sequence[str], known: set[str], makers: dict[str, str]) -> dict[str, None]:
    """Return the statements that define the wanted names, after those on which they depend; these are known then."""
    parts: dict[str, None] = {}
    for name in wanted:
        if name not in known and (part := makers.get(name)):
            known |= defined_names(part)
            parts |= _parts(foreign_names(part), known, makers) | {part: None}
    return parts


def _makers(
    below: Sequence[NotebookNode], courses: dict[str, Cell], exercises: set[str], may_call: bool
) -> dict[str, str]:
    """Return the statement that defines each name: the first one below, or else the course's."""
    theirs = [cell.source for cell in below if cell.id not in courses or courses[cell.id].role is Role.ANSWER]
    makers: dict[str, str] = {}
    for part in _statements(theirs, exercises, only_definitions=not may_call):
        for name in defined_names(part):
            makers.setdefault(name, part)
    shown = [cell.source for cell in courses.values() if cell.role in NEVER_RUN and not cell.points]
    for part in _statements(shown, exercises, only_definitions=True):
        for name in defined_names(part):
            makers.setdefault(name, part)
    return makers


def _statements(sources: Sequence[str], exercises: set[str], only_definitions: bool) -> Iterator[str]:
    for source in sources:
        yield from (part.strip("\n") for part in statements(source, only_definitions, exercises))
