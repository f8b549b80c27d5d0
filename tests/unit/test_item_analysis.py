"""Item statistics compared with numpy's on a fixed class, and items with answers that nobody has read."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograder.grading.plugins.gradebook import Score
from autograder.item_analysis import Item, correlation, item_analysis, with_before, write_table
from autograder.lms import FORMULA
from autograder.manifest import Exercise

ENTRIES = (
    Exercise("3.2", "frequencies", "code", 2, 10),
    Exercise("3.3", "rotate", "code", 6, 30),
    Exercise("3.4", "by_hand", "numbers", 3, 10),
    Exercise("3.5", "proof", "text", 3, 20),
)
# Points of twelve students in the first three exercises, then in the proof; None: nobody has read it.
POINTS = np.array(
    [
        [2, 6, 3], [2, 5, 3], [2, 6, 1], [0, 1, 3], [1, 0, 2], [2, 4.5, 3],
        [0, 0, 0], [2, 3, 3], [1, 6, 2], [0, 2, 1], [2, 1.5, 0], [1, 4, 3],
    ]
)  # fmt: skip
PROOF = [3.0, None, 2.0, 0.0, 1.0, 3.0, 0.0, None, 2.0, 1.0, 1.0, 2.0]
CELLS = ("frequencies_tests", "rotate_tests", "by_hand_tests", "proof")
SHAPE, VALUES = "the shape", "the values"


def verdict(row: int) -> dict[str, Any]:
    """Return a verdict on the rotation, one point of it for the shape; the seventh student's answer took too long."""
    points = float(POINTS[row, 1])
    if row == 6:
        message = "TimeoutError: it did not finish within 20 seconds"
        return {"named": [], "criteria": [{"name": "an answer", "points": 6, "earned": 0.0, "message": message}]}
    criteria = [
        {"name": SHAPE, "points": 1, "earned": min(points, 1.0), "message": ""},
        {"name": VALUES, "points": 5, "earned": points - min(points, 1.0), "message": ""},
    ]
    return {"named": ["Your rotation turns the wrong way."] if points < 3 else [], "criteria": criteria}


def standing(row: int, proof: float | None) -> Score:
    cells = dict(zip(CELLS, [*map(float, POINTS[row]), proof], strict=True))
    return Score(f"s{row}", sum(value or 0 for value in cells.values()), 14, by_cell=cells)


def analysed(proof: list[float | None], read: int = 12) -> dict[tuple[str, str, str], Item]:
    graded = [standing(row, value) for row, value in enumerate(proof)]
    verdicts = {f"s{row}": {"rotate_tests": verdict(row)} for row in range(len(proof))}
    return {item.key: item for item in item_analysis(ENTRIES, graded, verdicts, Counter({"proof": read}))}


def reference(item: np.ndarray, rest: np.ndarray) -> float:
    return round(float(np.corrcoef(item, rest)[0, 1]), 4)


def test_difficulty_and_discrimination_are_those_of_numpy() -> None:
    found = analysed(PROOF)
    for column, entry in enumerate(ENTRIES[:3]):
        item = found[entry.grade_id, "exercise", ""]
        assert item.value == round(POINTS[:, column].mean() / entry.points, 4)
        assert item.discrimination == reference(POINTS[:, column], np.delete(POINTS, column, axis=1).sum(axis=1))


def test_a_text_that_is_read_in_part_is_set_against_the_rest_of_those_who_were_read() -> None:
    item = analysed(PROOF)["proof", "exercise", ""]
    read = [row for row, value in enumerate(PROOF) if value is not None]
    points = np.array([PROOF[row] for row in read], dtype=float)
    assert (item.students, item.waiting, item.value) == (10, 2, round(points.mean() / 3, 4))
    assert item.discrimination == reference(points, POINTS[read].sum(axis=1))


def test_a_text_that_all_have_points_in_is_part_of_the_rest() -> None:
    proof = np.array([value or 0.0 for value in PROOF])
    item = analysed(proof.tolist())["rotate", "exercise", ""]
    assert item.discrimination == reference(POINTS[:, 1], POINTS[:, 0] + POINTS[:, 2] + proof)


def test_criteria_are_items_and_an_answer_that_timed_out_has_nothing_of_them() -> None:
    found = analysed(PROOF)
    earned = np.minimum(POINTS[:, 1], 1.0)
    shape, whole = found["rotate", "criterion", SHAPE], found["rotate", "exercise", ""]
    assert (shape.students, shape.value) == (12, round(earned.mean(), 4))
    assert shape.discrimination == reference(earned, POINTS.sum(axis=1) - earned)
    assert (whole.time_outs, shape.time_outs) == (1, 0)
    assert not [key for key in found if key[2] == "an answer"]
    cause = found["rotate", "cause", "Your rotation turns the wrong way."]
    assert (cause.students, cause.value) == (4, round(4 / 12, 4))


def test_blank_answers_are_no_reading() -> None:
    """Only the blank answer has points, namely 0, and the others are unread, so the difficulty is unknown and not 0."""
    item = analysed([0.0, *[None] * 11], read=0)["proof", "exercise", ""]
    assert (item.value, item.discrimination, item.waiting) == (None, None, 11)
    assert analysed([0.0] * 12, read=0)["proof", "exercise", ""].value == 0.0


@pytest.mark.parametrize("pairs", [[], [(1, 2), (2, 3)], [(1, 1), (1, 2), (1, 3)], [(1, 0.1), (2, 0.1), (3, 0.1)]])
def test_there_is_no_correlation_of_few_or_of_what_is_the_same_for_all(pairs: list[tuple[float, float]]) -> None:
    assert correlation(pairs) is None


def test_what_differs_from_the_run_before_stays_until_something_changes(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"

    def run(proof: list[float | None]) -> dict[tuple[str, str, str], Item]:
        items = with_before(list(analysed(proof).values()), path)
        write_table(items, path)
        return {item.key: item for item in items if item.has_changed}

    assert not run(PROOF)
    better = [3.0, *PROOF[1:]]
    better[3] = 3.0
    for _ in range(2):  # a report that is written again still shows what was new
        (changed,) = run(better).values()
        assert (changed.exercise, changed.before, changed.value) == ("proof", 0.5, 0.6)
    (changed,) = run(PROOF).values()
    assert (changed.before, changed.value) == (0.6, 0.5)


def test_a_cause_that_is_new_or_gone_was_or_is_named_to_none(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    item = Item("3.3", "rotate", "exercise", "", 6, 12, value=0.5)
    old = Item("3.3", "rotate", "cause", "old", 0, 6, value=0.5)
    new = Item("3.3", "rotate", "cause", "new", 0, 3, value=0.25)
    write_table(with_before([item, old], path), path)
    for _ in range(2):
        found = with_before([item, new], path)
        write_table(found, path)
        assert {(i.name, i.before, i.value) for i in found if i.has_changed} == {("new", 0.0, 0.25), ("old", 0.5, 0.0)}


@pytest.mark.parametrize(
    "text", ["", "number,exercise\n3.3,rotate\n", "\0", "number,exercise,kind,name,share,before\n1,a,b,c,x,y\n"]
)
def test_a_table_that_somebody_has_edited_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(text)
    assert not [item for item in with_before(list(analysed(PROOF).values()), path) if item.has_changed]


def test_no_cause_is_a_formula_and_its_share_is_found_again(tmp_path: Path) -> None:
    """Causes may quote a student's error message."""
    said = {"s0": {"rotate_tests": {"named": ['=HYPERLINK("x")'], "criteria": []}}}
    items = item_analysis(ENTRIES, [standing(0, 3.0)], said, Counter())
    for _ in range(2):
        items = with_before(items, tmp_path / "items.csv")
        write_table(items, tmp_path / "items.csv")
        assert not [item for item in items if item.has_changed]
    with (tmp_path / "items.csv").open(newline="", encoding="utf-8") as file:
        assert not [cell for row in csv.reader(file) for cell in row if cell.startswith(FORMULA)]


def test_the_table_has_a_row_for_each_item(tmp_path: Path) -> None:
    write_table(list(analysed(PROOF).values()), tmp_path / "items.csv")
    with (tmp_path / "items.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == [
        "exercise",
        "exercise",
        "criterion",
        "criterion",
        "cause",
        *["exercise"] * 2,
    ]
    assert rows[1]["time_outs"] == "1" and rows[6]["not_read_yet"] == "2" and rows[4]["share"] == "0.3333"
    assert rows[1]["difficulty"] == f"{POINTS[:, 1].mean() / 6:.4f}"
