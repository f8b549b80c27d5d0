"""Find definitions that grading would run too late, or never: those in cells further down, and those in the course's
figures and visible checks. Answers need them, and cells of the student's own. Reads the text, runs nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, Role
from autograder.grading.source_names import MOST_CELLS, bound_names, foreign_names, statements

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
    makers: dict[str, list[Maker]] | None = None  # made only where a name is missing
    known: set[str] = set()
    found = []
    for number, cell in enumerate(code):
        course = courses.get(cell.id)
        if course is None or course.role is Role.ANSWER:
            wanted = [name for name in foreign_names(cell.source) if name not in known | exercises]
            if wanted and makers is None:
                makers = _makers(code, courses, exercises)
            parts = _parts(wanted, known, makers or {}, number, may_call=course is not None)
            if parts:
                found.append(Forward(cell.id, "\n\n".join(parts), tuple(name for name in wanted if name in known)))
        if course is None or course.role not in NEVER_RUN:
            known |= bound_names(cell.source)
    return found


@dataclass(frozen=True)
class Maker:
    """A statement of the student's in cell number ``place``, or one of the course's."""

    place: float
    source: str
    calls: bool


def _parts(
    wanted: Sequence[str],
    known: set[str],
    makers: dict[str, list[Maker]],
    number: int,
    may_call: bool,
    depth: int = 50,  # a chain of definitions that is longer is nobody's
) -> dict[str, None]:
    """Return the statements that define the wanted names, after those on which they depend; these are known then."""
    parts: dict[str, None] = {}
    for name in wanted if depth else ():
        fit = (one for one in makers.get(name, ()) if one.place > number and (may_call or not one.calls))
        if name not in known and (maker := next(fit, None)):
            known |= bound_names(maker.source)
            before = _parts(foreign_names(maker.source), known, makers, number, may_call, depth - 1)
            parts |= before | {maker.source: None}
    return parts


def _makers(code: Sequence[NotebookNode], courses: dict[str, Cell], exercises: set[str]) -> dict[str, list[Maker]]:
    """Return the statements that define each name: the student's in their order, then the course's."""
    makers: dict[str, list[Maker]] = {}
    theirs = [
        place for place, cell in enumerate(code) if cell.id not in courses or courses[cell.id].role is Role.ANSWER
    ]
    for place in theirs[:MOST_CELLS]:
        _add(makers, place, code[place].source, exercises)
    for course in courses.values():
        if course.role in NEVER_RUN and not course.points:
            _add(makers, math.inf, course.source, exercises)
    return makers


def _add(makers: dict[str, list[Maker]], place: float, source: str, exercises: set[str]) -> None:
    definitions = set(statements(source, only_definitions=True, but=exercises))
    for part in statements(source, place == math.inf, exercises):
        for name in bound_names(part):
            makers.setdefault(name, []).append(Maker(place, part.strip("\n"), part not in definitions))
