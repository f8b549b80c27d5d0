"""Grades one notebook outside any gradebook, for `make check`, `check --json` and Gradescope."""

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autograder.classroom import make_course_root
from autograder.course import answer_names, exercises, instructor_cells, own_assignments, require_course
from autograder.errors import CourseError, GradingFailed, UngradableError
from autograder.grading.messages import Failed, Graded, Options, Outcome, Ungradable, wanted_device
from autograder.grading.pipeline import grade_submissions
from autograder.grading.plugins.feedback import what_to_look_at
from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.source_names import defined_names
from autograder.grading.submission.notebook_file import read
from autograder.manifest import MANIFEST, Exercise


@dataclass(frozen=True)
class Mark:
    """One exercise: ``score`` is ``None`` where a person grades; ``feedback`` begins with what to look at first."""

    number: str
    name: str
    kind: str
    score: float | None
    points: float
    feedback: list[str]
    text: str


@dataclass(frozen=True)
class Checked:
    """A graded notebook."""

    assignment: str
    isolated: bool
    marks: list[Mark]
    notes: list[str] = field(default_factory=list)

    @property
    def score(self) -> float:
        return sum(mark.score or 0.0 for mark in self.marks)

    @property
    def max_score(self) -> float:
        """The maximum of what is graded automatically."""
        return sum(mark.points for mark in self.marks if mark.kind != "text")

    def to_json(self) -> dict[str, Any]:
        return {
            "assignment": self.assignment,
            "score": self.score,
            "max_score": self.max_score,
            "isolated": self.isolated,
            "exercises": [asdict(mark) for mark in self.marks],
            "notes": self.notes,
        }


def can_isolate(isolation: str) -> bool:
    """Whether student code will run in the sandbox: it is requested, and works here."""
    return isolation != "none" and not why_not_isolated()


def grade_notebook(root: Path, path: Path, isolation: str = "bubblewrap", assignment: str = "") -> Checked:
    """Grade a notebook file, or a folder with one. Without ``assignment``, it is found from the file.

    Raises ``UngradableError`` if it cannot be read, and ``GradingFailed`` for what is not the student's fault.
    """
    assignment = assignment or assignment_in(path, root)
    isolate = can_isolate(isolation)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="check-") as scratch:
        course = Path(scratch) / "course"
        make_course_root(root, course, [assignment])
        grade_submissions(course, assignment, {"you": path}, Options(isolate, wanted_device()), outcomes.__setitem__)
    outcome = outcomes["you"]
    if isinstance(outcome, Ungradable):
        raise UngradableError(outcome.reason)
    if isinstance(outcome, Failed):
        raise GradingFailed(outcome.reason)
    return Checked(assignment, isolate, marks(root, assignment, outcome), outcome.notes)


def marks(root: Path, assignment: str, graded: Graded) -> list[Mark]:
    """The result of every exercise."""
    ids = {cell.grade_id: cell.id for cell in instructor_cells(root, assignment) if cell.grade_id}
    return [_mark(entry, ids[entry.graded_cell], graded) for entry in exercises(root, assignment)]


def _mark(entry: Exercise, cell: str, graded: Graded) -> Mark:
    what = entry.number, entry.grade_id, entry.kind
    if entry.kind == "text":
        text = f"Exercise {entry.number}, {entry.grade_id}: {entry.points:g} points, graded by a person"
        return Mark(*what, None, entry.points, [], text)
    score = graded.result.scores.get(cell, 0.0)
    output = graded.result.outputs.get(cell, [])
    text = "".join(part.get("text", "") or "".join(part.get("traceback", [])) for part in output).rstrip()
    if entry.kind == "test":
        text = f"Exercise {entry.number}, {entry.grade_id}: {text}"
    return Mark(*what, score, entry.points, what_to_look_at(graded.result.verdicts.get(cell) or {}), text)


def assignment_in(path: Path, root: Path) -> str:
    """Find a notebook's assignment by its file name, or else by its cells, even if they have lost ids and metadata."""
    require_course(root)
    known = [name for name in (*MANIFEST, *own_assignments(root)) if (root / "source" / name).is_dir()]
    if path.stem in known:
        return path.stem
    cells = read(path).cells
    present = {cell.id for cell in cells} | {cell.grade_id for cell in cells}
    present |= {name for cell in cells if cell.cell_type == "code" for name in defined_names(cell.source)}
    found = {name: len(answer_names(instructor_cells(root, name)) & present) for name in known}
    best = max(found, key=lambda name: found[name], default="")
    if not best or not found[best]:
        raise CourseError(f"{path.name} does not look like a notebook of this course")
    return best
