"""An answer that hangs, crashes, waits, raises or is wrong costs the points of its own exercise and of no other."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from course.calling import CALLED, CALLING
from helpers import COURSE

from autograder.classroom import make_course_root
from autograder.course import Role, instructor_cells, released_files
from autograder.grading.marking.judge import judge
from autograder.grading.messages import Result, Task, TaskCell
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.submission import intake
from autograder.manifest import MANIFEST
from autograder.misconceptions.bank import bank

pytestmark = [pytest.mark.isolation, pytest.mark.slow, pytest.mark.timing, pytest.mark.nightly]
HOW = {
    "hangs": "while True: pass",
    "waits": "import time; time.sleep(3600)",
    "exits": "import os; os._exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "raises": "raise RuntimeError('stuck')",
    "is wrong": "return 7",
    "is blank": "raise NotImplementedError",
}
# Each answer fails in two ways, in turn, so that several weeks meet each way; other combinations run the same code.
ALL_CALLED = [name for names in CALLED.values() for name in names]
WAYS = {name: {list(HOW)[at % len(HOW)], list(HOW)[(at + 3) % len(HOW)]} for at, name in enumerate(ALL_CALLED)}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    # Hanging answers end soon, and right answers need less than a tenth of these limits.
    with Sandbox(limits=Limits(call_cpu=2.0, retry=0.5, patience=1.5, memory=2**30)) as running:
        yield running


def task(week: str, root: Path, answers: dict[str, str]) -> Task:
    """Return the task of the solutions' notebook with some other answers."""
    if not root.exists():
        make_course_root(COURSE, root, [week])
    notebook = intake.rebuild(COURSE / "solutions" / week, root, week).notebook
    made = Task.of("ada", week, notebook, instructor_cells(root, week), released_files(root, week), seed=7)
    cells = [
        replace(cell, source=answers[name]) if cell.role == Role.ANSWER and (name := _exercise(cell, answers)) else cell
        for cell in made.cells
    ]
    return replace(made, cells=cells)


def _exercise(cell: TaskCell, answers: dict[str, str]) -> str:
    return next((name for name in cell.defines if name in answers), "")


@pytest.mark.parametrize("week", CALLED)
def test_an_answer_costs_its_own_points_whatever_it_does(week: str, sandbox: Sandbox, tmp_path: Path) -> None:
    first = {name: next(s.source for s in bank(week, name) if s.score is None) for name in CALLED[week]}
    full = {one.graded_cell: float(one.points) for one in MANIFEST[week] if one.kind != "text"}
    lost = {}
    for name, how in product(CALLED[week], HOW):
        if how not in WAYS[name]:
            continue
        wrong = f"def {name}(*arguments, **options):\n    {HOW[how]}\n"
        done = judge(task(week, tmp_path / "course", first | CALLING[week] | {name: wrong}), sandbox)
        assert isinstance(done, Result)
        assert how != "is blank" or "is not answered yet; graded with the course's own" in str(done.outputs)
        given = {cell: done.scores[cell] for cell in full}
        if given != full | {f"{name}_tests": 0.0}:
            lost[name, how] = {cell: (given[cell], full[cell]) for cell in full if given[cell] != full[cell]}
    assert not lost
