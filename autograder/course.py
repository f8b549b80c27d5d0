"""Where things are in a course root, and what an assignment's notebook is made of."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from autograder.errors import CourseError
from autograder.manifest import MANIFEST


class Role(StrEnum):
    """What grading does with a cell."""

    SETUP = "setup"  # run on both sides
    LOCKED = "locked"  # given by the course, run in the sandbox
    ANSWER = "answer"
    TEST = "test"  # a visible check or a hidden test: run on the trusted side
    EXPERIMENT = "experiment"  # not run
    PREDICTION = "prediction"
    TEXT = "text"
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
        return self.role is Role.ANSWER and bool(self.metadata.get("nbgrader", {}).get("grade"))


def assignment_of(week: str | None, root: Path) -> str:
    """The assignment of WEEK, which may be ``3``, ``week3`` or ``week3_rope``."""
    known = sorted(path.parent.name for path in (root / "source").glob("week*_*/week*_*.ipynb"))
    if not known:
        raise CourseError("the course is not built yet (no notebook under source/): run `make build`")
    choice = ", ".join(week_number(name) for name in known)
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


def week_number(assignment: str) -> str:
    """``3`` of ``week3_rope``."""
    return assignment.split("_")[0].removeprefix("week")


def role_of(cell: nbformat.NotebookNode) -> Role:
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
    from autograder.build.regions import clear_solution

    notebook = nbformat.read(path, as_version=4)
    cells = []
    for cell in notebook.cells:
        grading, role = cell.metadata.get("nbgrader", {}), role_of(cell)
        source = clear_solution(cell) if role is Role.ANSWER else cell.source
        cells.append(
            Cell(
                cell.id,
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
    if not path.is_file():
        raise CourseError(f"{path.relative_to(root)} is missing: run `make build WEEK={assignment}`")
    return _read_cells(path, path.stat().st_mtime)


def source_notebook(root: Path, assignment: str) -> Path:
    return root / "source" / assignment / f"{assignment}.ipynb"


def released_files(root: Path, assignment: str) -> dict[str, str]:
    """Files students receive beside the notebook, by name; grading uses the course's copies."""
    folder = root / "source" / assignment
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def course_config(root: Path) -> Config:
    """The course root's nbgrader configuration."""
    return PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()


def max_score(assignment: str) -> int:
    return sum(entry.points for entry in MANIFEST[assignment])
