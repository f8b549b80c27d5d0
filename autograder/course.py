"""The files of a course root, and the cells of an assignment's notebook."""

import json
import traceback
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.errors import CourseError
from autograder.manifest import MANIFEST, Exercise

if TYPE_CHECKING:  # slower to import than all else here, and the grading process needs neither
    from nbformat import NotebookNode
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

MAX_FILES = 3 * 2**20  # bytes of an instructor's own files as JSON: the sandbox gets them all in one message


class Role(StrEnum):
    """How grading treats a cell."""

    SETUP = "setup"  # run on both sides
    LOCKED = "locked"  # given by the course, run in the sandbox
    ANSWER = "answer"
    TEST = "test"  # a visible check or a hidden test: run on the trusted side
    EXPERIMENT = "experiment"  # not run
    PREDICTION = "prediction"
    TEXT = "text"
    OPEN = "open"  # in an instructor's own assignment: code that students may change, run as it is
    STOCK_TEST = "stock test"  # likewise: a test that runs in the student's process, as in nbgrader
    TASK = "task"  # likewise: instructions whose points are for work handed in elsewhere, graded by a person
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
    attachments: dict[str, Any] = field(default_factory=dict)

    @property
    def is_manual(self) -> bool:
        graded = bool(self.metadata.get("nbgrader", {}).get("grade"))
        return self.role is Role.TASK or (self.role is Role.ANSWER and graded)


def require_course(root: Path) -> None:
    if not (root / "source").is_dir():
        raise CourseError(f"{root} is no course (it has no source/): go to the course's folder, or name it with --root")


def assignment_of(week: str | None, root: Path) -> str:
    """Find the assignment of WEEK: ``3``, ``week3``, ``week3_rope``, or the name of an instructor's own assignment."""
    require_course(root)
    own = own_assignments(root)
    if week in own:
        return str(week)
    known = _built_weeks(root)
    if not known:
        raise CourseError("the course is not built yet (no notebook under source/): run `make build`")
    choice = ", ".join([*(week_number(name) for name in known), *own])
    if not week:
        raise CourseError(f"say which week, for example WEEK={week_number(known[0])}; there is: {choice}")
    matches = [name for name in known if week in (name, name.split("_")[0], week_number(name))]
    if len(matches) != 1:
        raise CourseError(f"there is no week {week!r}; there is: {choice}")
    return matches[0]


def assignments_of(weeks: str | None, root: Path) -> list[str]:
    """Find the assignments of WEEK: one, several (``1,2,3``), or ``all`` that somebody has handed in."""
    own = own_assignments(root)
    if weeks == "all" and weeks not in own:
        found = [name for name in all_assignments(root) if any(root.glob(f"submitted/*/{name}"))]
        if not found:
            raise CourseError("no submissions: expected submitted/STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb")
        return found
    parts = [part.strip() for part in (weeks or "").split(",") if part.strip()]
    return list(dict.fromkeys(assignment_of(part, root) for part in parts or [""]))


def students_named(students: str) -> list[str]:
    """Split STUDENTS, for example ``ada,boole``; an empty list means the whole class."""
    return [name.strip() for name in students.split(",") if name.strip()]


def all_assignments(root: Path) -> list[str]:
    """Return the names of the weeks that are built, and of the instructor's own assignments."""
    return [*_built_weeks(root), *own_assignments(root)]


def _built_weeks(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "source").glob("week*_*/week*_*.ipynb"))


def week_number(assignment: str) -> str:
    """Return ``3`` for ``week3_rope``."""
    return assignment.split("_")[0].removeprefix("week")


def is_week(assignment: str) -> bool:
    """Whether this is a week of the course; any other assignment in source/ is the instructor's own."""
    return assignment in MANIFEST


def own_assignments(root: Path) -> list[str]:
    """Stock nbgrader assignments beside the weeks: ``source/NAME/NAME.ipynb``."""
    found = sorted(path.parent.name for path in (root / "source").glob("*/*.ipynb") if path.stem == path.parent.name)
    return [name for name in found if not is_week(name) and not (root / "source" / f"{name}.py").exists()]


def exercises(root: Path, assignment: str) -> tuple[Exercise, ...]:
    """Every answer that carries points, from a week's manifest or an instructor's own notebook."""
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
    """How grading treats a cell of an instructor's own assignment: as nbgrader would."""
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
    """How grading treats one of the instructor's cells."""
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
                cell.get("id") or f"cell-{number}",  # cells had no id before nbformat 4.5
                grading.get("grade_id"),
                role,
                cell.cell_type,
                source,
                dict(cell.metadata),
                float(grading.get("points") or 0),
                dict(cell.get("attachments", {})),
            )
        )
    return tuple(cells)


def instructor_cells(root: Path, assignment: str) -> tuple[Cell, ...]:
    """The assignment's cells as the instructor wrote them, with answers replaced by the stubs students start from."""
    path = source_notebook(root, assignment)
    if not path.is_file() and is_week(assignment):
        raise CourseError(f"{path.relative_to(root)} is missing: run `make build WEEK={assignment}`")
    if not path.is_file():
        raise CourseError(
            f"{path.relative_to(root)} is missing: an assignment of your own has one notebook, of its name"
        )
    return _read_cells(path, path.stat().st_mtime)


def answer_names(cells: tuple[Cell, ...]) -> set[str | None]:
    """The ids of answer cells, nbgrader's and the notebook's."""
    return {name for cell in cells if cell.role is Role.ANSWER for name in (cell.id, cell.grade_id) if name}


def source_notebook(root: Path, assignment: str) -> Path:
    return root / "source" / assignment / f"{assignment}.ipynb"


def released_files(root: Path, assignment: str) -> dict[str, str]:
    """Files that students receive with the notebook, by name; grading uses the course's copies.

    For a week these are only code. For an instructor's own assignment they are all files: bytes that are not text
    become lone surrogates, which the sandbox turns back into the same bytes.
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

    path = root / "nbgrader_config.py"
    if not path.is_file():
        raise CourseError(f"{root} is no course: it has no {path.name}. Run this in the course's folder")
    try:
        return PyFileConfigLoader(path.name, path=str(root)).load_config()
    except Exception as error:  # the file is Python code and may raise anything
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        said = f"{type(error).__name__}: {error}" + (f" (line {lines[-1]})" if lines else "")
        raise CourseError(f"{path.name} cannot be used: {said}") from None


def course_directory(root: Path, assignment: str = "", config: "Config | None" = None) -> "CourseDirectory":
    """nbgrader's folders and settings of the course in ``root``."""
    from nbgrader.coursedir import CourseDirectory

    config = course_config(root) if config is None else config
    config.CourseDirectory.root = str(root)
    course = CourseDirectory(config=config)
    course.assignment_id = assignment
    return course


def max_score(root: Path, assignment: str) -> float:
    return sum(entry.points for entry in exercises(root, assignment))
