"""Messages to other processes: JSON round trips, digests, and what a task contains."""

import json
from dataclasses import replace

import nbformat

from autograder.course import Cell, Role
from autograder.grading.messages import Task, TaskCell

TASK = Task(
    "ada",
    "week3_rope",
    [TaskCell("a", Role.ANSWER, "x = 1", 0.0, ("x",)), TaskCell("t", Role.TEST, "1", 2.0)],
    {"lab.py": ""},
    7,
)


def test_a_task_survives_json() -> None:
    assert Task.from_json(json.loads(json.dumps(TASK.to_json()))) == TASK


def test_equal_digests_mean_equal_content() -> None:
    assert replace(TASK, key="boole").digest() == TASK.digest()
    for other in (replace(TASK, seed=8), replace(TASK, files={}), replace(TASK, cells=TASK.cells[:1])):
        assert other.digest() != TASK.digest()


def test_experiments_and_text_are_not_run_and_foreign_cells_are_the_students() -> None:
    template = tuple(
        Cell(role.value, role.value, role, "code", "y = 2", {}, 0.0)
        for role in (Role.ANSWER, Role.EXPERIMENT, Role.TEST)
    )
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("x = 1", id=cell.id) for cell in template]
        + [nbformat.v4.new_code_cell("z", id="own"), nbformat.v4.new_markdown_cell("t")]
    )
    task = Task.of("ada", "w", notebook, template, {}, 0)
    assert [(cell.id, cell.role, cell.defines) for cell in task.cells] == [
        ("answer", "answer", ("y",)),
        ("test", "test", ("y",)),
        ("own", "student", ()),
    ]
