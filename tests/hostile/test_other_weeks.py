"""Hostile submissions of every week, one class per week by plain `nbgrader autograde` and `generate_feedback`."""

import json
import os
import re
from pathlib import Path

import pytest

from autograder.manifest import MANIFEST
from hostile.bank import CANARY, COURSE
from hostile.class_run import LIMITS, SECRET, Graded, alive, grade_class, has_unsafe_mathjax, plain
from hostile.other_weeks import OTHER_WEEKS, Other

pytestmark = [pytest.mark.isolation, pytest.mark.nightly, pytest.mark.xdist_group("hostile_other_weeks")]
CHOSEN = [one for one in OTHER_WEEKS if re.search(os.environ.get("HOSTILE_ONLY", ""), one.name)]
WEEKS = [week for week in MANIFEST if any(one.week == week for one in CHOSEN)]


def write_class(week: str, root: Path) -> None:
    released = (COURSE / "notebooks" / week / f"{week}.ipynb").read_text(encoding="utf-8")
    for one in OTHER_WEEKS:
        if one.week != week or one not in CHOSEN:
            continue
        notebook = json.loads(released)
        cells = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in notebook["cells"]}
        for name, source in one.answers.items():
            cells[name]["source"] = source
        folder = root / "submitted" / one.name / week
        folder.mkdir(parents=True)
        (folder / f"{week}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graded]:
    return {
        week: grade_class(tmp_path_factory.mktemp(week), week, lambda root, week=week: write_class(week, root), LIMITS)
        for week in WEEKS
    }


@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: f"{one.week[:5]}-{one.name}")
def test_due(classes: dict[str, Graded], one: Other) -> None:
    score = classes[one.week].standing[one.name]
    assert score.reason == "", score.reason
    due = dict.fromkeys((entry.graded_cell for entry in MANIFEST[one.week]), 0.0) | one.due
    given = {cell: points for cell, points in score.by_cell.items() if cell in due}  # visible checks carry no points
    assert given == due, {cell: (given.get(cell), due[cell]) for cell in due if given.get(cell) != due[cell]}


@pytest.mark.parametrize("week", WEEKS)
def test_nothing_is_left_and_nothing_comes_to_life(classes: dict[str, Graded], week: str) -> None:
    graded = classes[week]
    for done in (graded.done, *graded.feedback):
        assert done.returncode == 0, re.findall(r".*ERROR.*", done.stderr)[:5]
    assert graded.before == graded.after and not graded.survivors and os.listdir(graded.scratch) == []
    assert [name for name in os.listdir("/tmp") + os.listdir("/dev/shm") if CANARY in name] == []
    assert (graded.root.parent / "canary.txt").read_text() == SECRET
    pages = graded.pages()
    assert set(pages) == set(graded.standing)
    for student, page in pages.items():
        assert alive(page) == [] and not has_unsafe_mathjax(page), student
        assert SECRET not in page and str(graded.scratch) not in plain(page), student
