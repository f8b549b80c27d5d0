"""The inputs and outputs of a grading run.

``Task``, ``Options``, ``Result`` and ``Failure`` are plain JSON data: safe to send to another process or machine.
``Graded``, ``Ungradable`` and ``Failed`` are the possible outcomes of a submission.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from autograder.course import Cell, Role
from autograder.errors import CourseError
from autograder.grading.source_names import defined_names

if TYPE_CHECKING:  # the grading process gets tasks, not notebooks, and needs no nbformat
    from nbformat.notebooknode import NotebookNode

# The course's own commands in a notebook. They are replaced by `pass`, because the sandbox has no grader.
OWN_COMMAND = re.compile(r"^([ \t]*)%(?:load_ext[ \t]+autograder|grade\b[^\n]*)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class TaskCell:
    """One code cell to run; ``defines`` are the names that the instructor's version of it defines."""

    id: str
    role: str
    source: str
    points: float = 0.0
    defines: tuple[str, ...] = ()


@dataclass
class Task:
    """One submission, rebuilt: the cells to run, with their role, and the released files beside the notebook."""

    key: str
    assignment: str
    cells: list[TaskCell]
    files: dict[str, str]
    seed: int
    python: str = ""  # the version that the notebook was written with, or empty

    @classmethod
    def of(
        cls,
        key: str,
        assignment: str,
        notebook: "NotebookNode",
        template: tuple[Cell, ...],
        files: dict[str, str],
        seed: int,
    ) -> Self:
        """Return the task for a rebuilt notebook, without the experiment cells, which are not run."""
        known = {cell.id: cell for cell in template}
        cells = []
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            source = OWN_COMMAND.sub(r"\1pass", cell.source)
            if (instructors := known.get(cell.id)) is None:
                cells.append(TaskCell(cell.id, Role.STUDENT, source))
            elif instructors.role != Role.EXPERIMENT:
                names = tuple(sorted(defined_names(instructors.source)))
                cells.append(TaskCell(cell.id, instructors.role, source, instructors.points, names))
        python = notebook.metadata.get("language_info", {}).get("version", "")
        return cls(key, assignment, cells, files, seed, python)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"cells": [vars(cell) for cell in self.cells]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        cells = [TaskCell(**cell | {"defines": tuple(cell["defines"])}) for cell in data["cells"]]
        return cls(**data | {"cells": cells})

    def digest(self) -> str:
        """Return a hash of all fields but ``key``: equal digests mean equal results."""
        content = {name: value for name, value in self.to_json().items() if name != "key"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass
class Result:
    """The result of grading one submission, by cell id: nbformat outputs, scores, verdicts, failed checks, seconds."""

    key: str
    outputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed_checks: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Failure:
    """The reason why grading one submission failed through no fault of the student."""

    key: str
    reason: str


Answer = Result | Failure  # to a task
OnAnswer = Callable[[Answer], None]


@dataclass(frozen=True)
class Options:
    """The options of a grading run."""

    isolate: bool = True
    device: str = "cpu"
    workers: int = 0  # 0: as many as `usual_workers`
    limits: dict[str, Any] = field(default_factory=dict)  # fields of Limits; all others keep their defaults
    scheduler: str = ""  # address or scheduler file of a Dask cluster; empty: this machine


@dataclass
class Graded:
    """A submission with its verdicts."""

    notebook: "NotebookNode"
    result: Result
    notes: list[str] = field(default_factory=list)
    to_look_at: frozenset[str] = frozenset()  # grade_ids of answers that may not be the student's own
    isolated: bool = True
    forget: Callable[[], None] = lambda: None  # called after saving: drops the copy for interrupted runs
    warnings: tuple[str, ...] = ()  # notes that the instructor must act on


@dataclass
class Ungradable:
    """A submission that cannot be read. ``notebook`` shows the reason too."""

    notebook: "NotebookNode"
    reason: str
    isolated: bool = True


@dataclass
class Failed:
    """A submission whose grading failed through no fault of the student: it gets no grade and must be graded again."""

    reason: str


Outcome = Graded | Ungradable | Failed
OnOutcome = Callable[[str, Outcome], None]  # (student, outcome)


def usual_workers() -> int:
    """Return the number of cores. A judge and its fork work at the same time, and one more worker only competes with
    them: on two cores it costs 4 to 7 % more CPU time and 2 to 4 % more wall time."""
    return os.cpu_count() or 1


def wanted_device() -> str:
    """``AUTOGRADER_DEVICE``: auto (default), cpu, cuda or simulated. Raises ``CourseError`` for anything else."""
    device = os.environ.get("AUTOGRADER_DEVICE", "auto")
    if device not in ("auto", "cpu", "cuda", "simulated"):
        raise CourseError(f"AUTOGRADER_DEVICE is {device!r}; it can be auto, cpu, cuda or simulated")
    return device
