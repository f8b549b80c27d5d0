"""What goes into a run and what comes out, as plain JSON data: safe to send to another process or machine."""

import hashlib
import json
import os
from dataclasses import dataclass, field

from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, CourseError
from autograder.grading.source_names import defined_names


@dataclass
class Task:
    """One submission, rebuilt: the cells to run, with their role, and the released files beside the notebook."""

    key: str
    assignment: str
    cells: list[dict]
    files: dict[str, str]
    seed: int

    @classmethod
    def of(cls, key: str, assignment: str, notebook: NotebookNode, template: tuple[Cell, ...], files: dict[str, str],
           seed: int) -> "Task":
        roles = {cell.id: cell for cell in template}
        cells = []
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            known = roles.get(cell.id)
            role = known.role if known else "student"
            points = known.points if known else 0.0
            if role != "experiment":
                cells.append({"id": cell.id, "role": role, "source": cell.source, "points": points,
                              "defines": sorted(defined_names(known.source)) if known else []})
        return cls(key, assignment, cells, files, seed)

    def digest(self) -> str:
        """Names the content: equal digests mean equal results."""
        content = {name: value for name, value in vars(self).items() if name != "key"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass
class Result:
    """What grading one submission gave. ``problem`` is set when it failed for reasons that are not the student's."""

    key: str
    outputs: dict[str, list[dict]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, dict] = field(default_factory=dict)
    failed_checks: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Options:
    """How a run is done."""

    isolate: bool = True
    device: str = "cpu"
    workers: int = 0  # 0: one per core
    limits: dict = field(default_factory=dict)  # by name, of sandbox.Limits; those not named have their defaults
    scheduler: str = ""  # of a Dask cluster: its address or its scheduler file; empty: this machine


def wanted_device() -> str:
    """``AUTOGRADER_DEVICE``: auto (default), cpu or cuda. Raises ``CourseError`` for anything else."""
    device = os.environ.get("AUTOGRADER_DEVICE", "auto")
    if device not in ("auto", "cpu", "cuda"):
        raise CourseError(f"AUTOGRADER_DEVICE is {device!r}; it can be auto, cpu or cuda")
    return device
