"""Where things are in a course root, and what an assignment's notebook is made of."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.errors import CourseError
from autograder.manifest import MANIFEST, Exercise

if TYPE_CHECKING:  # they take longer than all else here, and the grading process needs neither
    from nbformat import NotebookNode
    from traitlets.config import Config

MAX_FILES = 3 * 2**20  # of an assignment of one's own, as JSON: what the sandbox takes in one message


class Role(StrEnum):
    """What grading does with a cell."""

    SETUP = "setup"  # run on both sides
    LOCKED = "locked"  # given by the course, run in the sandbox
    ANSWER = "answer"
    TEST = "test"  # a visible check or a hidden test: run on the trusted side
    EXPERIMENT = "experiment"  # not run
    PREDICTION = "prediction"
    TEXT = "text"
    OPEN = "open"  # of an assignment of one's own: code that students may change, run as it stands
    STOCK_TEST = "stock test"  # likewise: a test that runs in the student's process, as nbgrader's do
    TASK = "task"  # likewise: instructions that carry the points of what is handed in elsewhere, graded by a person
    STUDENT = "student"  # a cell that the student has added


@dataclass(frozen=True)
class Cell:
    """One of the instructor's cells, as grading sees it."""

    id: str
    grade_id: str | None
    role: Role
    cell_type: str
    source: str
    metadata: dict[str, Any]
    points: float

    @property
    def is_manual(self) -> bool:
        graded = bool(self.metadata.get("nbgrader", {}).get("grade"))
        return self.role is Role.TASK or (self.role is Role.ANSWER and graded)


def assignment_of(week: str | None, root: Path) -> str:
    """The assignment of WEEK, which may be ``3``, ``week3`` or ``week3_rope``, or the name of one of one's own."""
    own = own_assignments(root)
    if week in own:
        return str(week)
    known = _built_weeks(root)
    if not known:
        raise CourseError("the course is not built yet (no notebook under source/): run `make build`")
    choice = ", ".join([*(week_number(name) for name in known), *own])
    if not week:
        raise CourseError(f"say which week, for example WEEK={week_number(known[0])}; there is: {choice}")
    matches = [
        name
        for name in known
        if name == week
        or re.match(rf"(week)?{re.escape(week)}$", name.split("_")[0])
        or name.split("_")[0] == f"week{week}"
    ]
    if len(matches) != 1:
        raise CourseError(f"there is no week {week!r}; there is: {choice}")
    return matches[0]


def assignments_of(weeks: str | None, root: Path) -> list[str]:
    """The assignments of WEEK where it may be several, ``1,2,3``, or ``all``: those of which somebody has handed in one."""
    own = own_assignments(root)
    if weeks == "all" and weeks not in own:
        found = [name for name in [*_built_weeks(root), *own] if any(root.glob(f"submitted/*/{name}"))]
        if not found:
            raise CourseError("no submissions: expected submitted/STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb")
        return found
    parts = [part.strip() for part in (weeks or "").split(",") if part.strip()]
    return list(dict.fromkeys(assignment_of(part, root) for part in parts or [""]))


def students_named(students: str) -> list[str]:
    """Those of STUDENTS, ``ada,boole``; empty for the whole class."""
    return [name.strip() for name in students.split(",") if name.strip()]


def _built_weeks(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "source").glob("week*_*/week*_*.ipynb"))


def week_number(assignment: str) -> str:
    """``3`` of ``week3_rope``."""
    return assignment.split("_")[0].removeprefix("week")


def is_week(assignment: str) -> bool:
    """Whether it is a week of the course; what lies beside them in source/ is an assignment of one's own."""
    return assignment in MANIFEST


def own_assignments(root: Path) -> list[str]:
    """Stock nbgrader assignments beside the weeks: ``source/NAME/NAME.ipynb``."""
    found = sorted(path.parent.name for path in (root / "source").glob("*/*.ipynb") if path.stem == path.parent.name)
    return [name for name in found if not is_week(name) and not (root / "source" / f"{name}.py").exists()]


def exercises(root: Path, assignment: str) -> tuple[Exercise, ...]:
    """Every answer that carries points: of a week by the manifest, of an assignment of one's own by its notebook."""
    if is_week(assignment):
        return MANIFEST[assignment]
    cells = instructor_cells(root, assignment)
    graded = [cell for cell in cells if cell.points and (cell.is_manual or cell.role is Role.STOCK_TEST)]
    return tuple(
        Exercise(str(number), str(cell.grade_id), "text" if cell.is_manual else "test", _whole(cell.points), 0)
        for number, cell in enumerate(graded, 1)
    )


def _whole(points: float) -> float:
    return int(points) if points.is_integer() else points


def stock_role_of(cell: "NotebookNode") -> Role:
    """What grading does with a cell of an assignment of one's own: what nbgrader would."""
    marks, is_code = cell.metadata.get("nbgrader", {}), cell.cell_type == "code"
    if marks.get("solution"):
        return Role.ANSWER
    if marks.get("task") or (marks.get("grade") and not is_code):
        return Role.TASK
    if marks.get("grade"):
        return Role.STOCK_TEST
    if not is_code:
        return Role.TEXT
    return Role.LOCKED if marks.get("locked") else Role.OPEN


def role_of(cell: "NotebookNode") -> Role:
    """What grading does with one of the instructor's cells."""
    grading, tags = cell.metadata.get("nbgrader", {}), cell.metadata.get("tags", [])
    if grading.get("solution"):
        return Role.ANSWER
    if grading.get("grade"):
        return Role.TEST
    if cell.cell_type != "code":
        return Role.PREDICTION if "prediction" in tags else Role.TEXT
    if "setup" in tags:
        return Role.SETUP
    return Role.LOCKED if grading.get("locked") else Role.EXPERIMENT


@lru_cache(maxsize=8)
def _read_cells(path: Path, stamp: float) -> tuple[Cell, ...]:
    import nbformat

    from autograder.build.regions import clear_solution, clear_stock_solutions

    notebook = nbformat.read(path, as_version=4)
    of_week = is_week(path.stem)
    if not of_week:
        clear_stock_solutions(notebook, course_config(path.parents[2]), path.stem)
    cells = []
    for number, cell in enumerate(notebook.cells, 1):
        grading, role = cell.metadata.get("nbgrader", {}), role_of(cell) if of_week else stock_role_of(cell)
        source = clear_solution(cell) if of_week and role is Role.ANSWER else cell.source
        cells.append(
            Cell(
                cell.get("id") or f"cell-{number}",  # a notebook of before nbformat 4.5 has none
                grading.get("grade_id"),
                role,
                cell.cell_type,
                source,
                dict(cell.metadata),
                float(grading.get("points") or 0),
            )
        )
    return tuple(cells)


def instructor_cells(root: Path, assignment: str) -> tuple[Cell, ...]:
    """The assignment's cells as the instructor wrote them, answers replaced by the stubs students start from."""
    path = source_notebook(root, assignment)
    if not path.is_file() and is_week(assignment):
        raise CourseError(f"{path.relative_to(root)} is missing: run `make build WEEK={assignment}`")
    if not path.is_file():
        raise CourseError(
            f"{path.relative_to(root)} is missing: an assignment of your own has one notebook, of its name"
        )
    return _read_cells(path, path.stat().st_mtime)


def source_notebook(root: Path, assignment: str) -> Path:
    return root / "source" / assignment / f"{assignment}.ipynb"


def released_files(root: Path, assignment: str) -> dict[str, str]:
    """Files students receive beside the notebook, by name; grading uses the course's copies.

    Of a week that is code alone; of an assignment of one's own all there is, with bytes that are no text as lone
    surrogates, which the sandbox writes as the same bytes again.
    """
    folder = root / "source" / assignment
    if is_week(assignment):
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", "surrogateescape")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != f"{assignment}.ipynb" and not _is_litter(path.relative_to(folder))
    }
    if sum(len(json.dumps(text)) for text in files.values()) > MAX_FILES:
        raise CourseError(
            f"the files beside the notebook in source/{assignment}/ are too large: grading hands at most 3 MB of text, or "
            "half a megabyte of other data, to the sandbox with every submission"
        )
    return files


def _is_litter(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def course_config(root: Path) -> "Config":
    """The course root's nbgrader configuration."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()


def max_score(root: Path, assignment: str) -> float:
    return sum(entry.points for entry in exercises(root, assignment))
