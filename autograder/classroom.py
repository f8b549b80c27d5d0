"""A simulated class in its own course root: answers from the banks, each with its expected score.

The banks state the expected scores by hand; a blank, an exception or a syntax error earns 0. Nothing
here depends on what the checks say.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbgrader.api import Gradebook

from autograder.course import source_notebook
from autograder.grading.plugins.gradebook import Score
from autograder.manifest import MANIFEST, Exercise

if TYPE_CHECKING:
    from autograder.misconceptions.bank import Solution

NAMES = (
    "ada",
    "boole",
    "cantor",
    "dirac",
    "emmy",
    "fermat",
    "galois",
    "hopper",
    "ivanov",
    "jacobi",
    "kepler",
    "lovelace",
)

# Each key cancels the earlier mistake that is its value, which would make the answer right: no student gets both.
UNDOES = {"bias_sign": "slopes_negative", "layer_bias_enlarged": "slopes_from_zero"}


@dataclass
class Student:
    """One simulated student: points by graded cell (``None`` where a person grades), and how each answer was made."""

    name: str
    expected: dict[str, float | None] = field(default_factory=dict)
    ungradable: bool = False
    story: list[tuple[str, str]] = field(default_factory=list)

    @property
    def total(self) -> float | None:
        """Expected automatic score; ``None`` for an ungradable submission."""
        return None if self.ungradable else sum(points for points in self.expected.values() if points)


def make_course_root(course: Path, target: Path, assignments: list[str]) -> None:
    """Make a course root with the built sources and nbgrader's configuration, without any data of the real class: it
    has a gradebook of its own, even where the configuration names a database for the real one."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    settings = (course / "nbgrader_config.py").read_text(encoding="utf-8")
    text = f'{settings}\nc.CourseDirectory.pop("db_url", None)\n'
    (target / "nbgrader_config.py").write_text(text, encoding="utf-8")
    for assignment in assignments:
        shutil.copytree(course / "source" / assignment, target / "source" / assignment)


def simulate(course: Path, target: Path, assignment: str, count: int, seed: int = 0) -> list[Student]:
    """Write ``count`` submissions of one assignment under ``target``."""
    released = nbformat.read(course / "notebooks" / assignment / f"{assignment}.ipynb", as_version=4)
    assert source_notebook(target, assignment).is_file()
    students = []
    for number in range(count):
        student = Student(_name(number))
        notebook = nbformat.from_dict(released)
        _answer(notebook, student, assignment, number, random.Random(f"{seed}/{assignment}/{number}"))
        path = target / "submitted" / student.name / assignment / f"{assignment}.ipynb"
        path.parent.mkdir(parents=True)
        text = nbformat.writes(notebook)
        if student.ungradable:
            text = text[: len(text) // 2]
        path.write_text(text, encoding="utf-8")
        students.append(student)
    _register(target, students)
    return students


def _register(target: Path, students: list[Student]) -> None:
    """Enter the students' names in the gradebook: without them formgrader shows "None, None"."""
    with Gradebook(f"sqlite:///{target / 'gradebook.db'}", "positional_encodings") as gradebook:
        for student in students:
            gradebook.update_or_create_student(student.name, first_name=student.name.capitalize(), last_name="Example")


def _name(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else f"{NAMES[number % len(NAMES)]}{number // len(NAMES) + 1}"


def _answer(
    notebook: nbformat.NotebookNode, student: Student, assignment: str, number: int, chance: random.Random
) -> None:
    """Fill in the answers. The first five students have fixed roles, so a small class has every kind; the rest vary."""
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}
    role = {0: "all right", 1: "blank", 2: "truncated file", 3: "breaks", 4: "all wrong"}.get(number, "mixed")
    student.ungradable = role == "truncated file"
    for entry in MANIFEST[assignment]:
        if entry.grade_id not in cells:
            continue
        cell = cells[entry.grade_id]
        kind = {
            "all right": "full marks",
            "blank": "blank",
            "breaks": chance.choice(["exception", "syntax error"]),
            "all wrong": "wrong",
        }.get(role) or chance.choices(["right", "wrong", "blank", "exception"], [10, 6, 1, 1])[0]
        points, name = _fill(cell, entry, assignment, kind, chance, {name for _, name in student.story})
        student.expected[entry.graded_cell] = points
        student.story.append(("text" if points is None else kind, name))


def _fill(
    cell: nbformat.NotebookNode, entry: Exercise, assignment: str, kind: str, chance: random.Random, earlier: set[str]
) -> tuple[float | None, str]:
    """Write one answer; return its expected points and bank entry. ``earlier``: the student's entries so far."""
    if kind == "blank":
        return 0.0, ""
    if entry.kind == "text":
        cell.source = f"My answer to {entry.grade_id}: see the derivation above the figure."
        return None, ""
    if kind == "exception":
        cell.source = f"raise RuntimeError('I gave up on {entry.grade_id}')"
        return 0.0, ""
    if kind == "syntax error":
        cell.source = f"def {entry.grade_id}(:\n    return"
        return 0.0, ""
    # Imported late: the bank imports torch, which this process does not need to grade a real class.
    from autograder.misconceptions.bank import bank, carried

    said = {e.says for one in MANIFEST[assignment] for e in bank(assignment, one.grade_id) if e.name in earlier}
    paid = said & carried(assignment)  # a repeated mistake of this kind earns more than the bank says
    entries = [e for e in bank(assignment, entry.grade_id) if _is(e, kind) and e.says not in paid]
    entries = [e for e in entries if UNDOES.get(e.name) not in earlier]
    chosen = chance.choice(entries)
    cell.source = chosen.source
    return chosen.due(entry.points), chosen.name


def _is(entry: "Solution", kind: str) -> bool:
    """Whether an entry is of this kind. A right answer that forgets the device does not get full marks."""
    return entry.score is None if kind == "full marks" else entry.is_right == (kind == "right")


def agrees(student: Student, score: Score | None) -> bool:
    """Whether the gradebook has exactly the expected points, cell by cell, and no grade if ungradable."""
    if score is None or (score.score is None) != student.ungradable:
        return False
    if student.ungradable:
        return bool(score.reason)
    return all(score.by_cell.get(cell) == points for cell, points in student.expected.items())
