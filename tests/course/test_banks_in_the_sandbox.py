"""Every entry of the banks as a student submits it: written into a notebook, run in the sandbox, judged over a wire."""

from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, autograder, standing

from autograder.classroom import make_course_root
from autograder.manifest import MANIFEST
from autograder.misconceptions.bank import Solution, bank, carried

pytestmark = [pytest.mark.isolation, pytest.mark.nightly]

GAINS = {  # extra points that an entry gets here compared with the banks, and why
    "layer_positions_in_half_precision": 0.5,  # on top of its own wrong bias, the text is too short to show the mistake
    "layer_bias_enlarged": 1.5,  # by sqrt(4), like slopes that start at k = 0: right on top of those for 8 heads
}


# This tests both devices: answers that miss full marks on the simulated one are graded again on the CPU.
@pytest.mark.parametrize("assignment", MANIFEST)
def test_every_entry_gets_through_the_sandbox_what_it_is_due(assignment: str, tmp_path: Path) -> None:
    """The n-th student submits the n-th entry of every bank; shorter banks start over."""
    root = tmp_path / "course"
    make_course_root(COURSE, root, [assignment])
    released = nbformat.read(COURSE / "notebooks" / assignment / f"{assignment}.ipynb", as_version=4)
    banks = {exercise: bank(assignment, exercise.grade_id) for exercise in MANIFEST[assignment]}
    due: dict[str, dict[str, tuple[Solution, float]]] = {}
    for number in range(max(map(len, banks.values()))):
        notebook, student = nbformat.from_dict(released), f"student{number:02}"
        cells = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}
        due[student] = {}
        for exercise, entries in banks.items():
            if entries:
                entry = entries[number % len(entries)]
                cells[exercise.grade_id].source = entry.source
                due[student][exercise.graded_cell] = (entry, entry.due(exercise.points))
        path = root / "submitted" / student / assignment / f"{assignment}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    week = assignment.split("_")[0].removeprefix("week")
    autograder("--root", str(root), "autograde", "--week", week, AUTOGRADER_DEVICE="simulated")
    given = standing(root, assignment)
    wrong = {}
    for student, answers in due.items():
        made: set[str] = set()  # mistakes that earlier answers have paid for
        for cell, (entry, points) in answers.items():
            score = given[student].by_cell.get(cell, -1.0)
            again = entry.says in made & carried(assignment) and score > points
            if score not in (points, points + GAINS.get(entry.name, 0)) and not again:
                wrong[student, cell, entry.name] = (score, points)
            made.add(entry.says)
    assert not wrong
