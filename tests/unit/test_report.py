"""The class report: which students count where, and a self-contained page."""

import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from autograder.grading.plugins.gradebook import Score
from autograder.item_analysis import item_analysis
from autograder.manifest import MANIFEST
from autograder.report import _distribution, read_autograded, write_report

WEEK = "week3_rope"
BEST = float(sum(entry.points for entry in MANIFEST[WEEK]))
CAUSE = "Your frequencies `inv_freq` are <squared>."


def autograded(root: Path, student: str, cause: str) -> None:
    """Write an autograded notebook with one verdict."""
    folder = root / "autograded" / student / WEEK
    folder.mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("", id="rope_frequencies_tests", metadata={"verdict": {"named": [cause]}})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / f"{WEEK}.ipynb")


@pytest.fixture
def standing(tmp_path: Path) -> list[Score]:
    for student in ("ada", "boole"):
        autograded(tmp_path, student, CAUSE)
    return [
        Score("ada", 2.0, BEST, by_cell={"rope_frequencies_tests": 2.0, "relative_proof": None}, to_grade_by_hand=1),
        Score("boole", 1.0, BEST, by_cell={"rope_frequencies_tests": 1.0, "relative_proof": 3.0}),
        Score("cantor", None, BEST, reason="not a notebook", by_cell={"rope_frequencies_tests": None}),
    ]


def test_an_exercise_over_the_class(tmp_path: Path, standing: list[Score]) -> None:
    items = item_analysis(MANIFEST[WEEK], standing[:2], *read_autograded(tmp_path, WEEK, standing[:2]))
    found = {item.exercise: item for item in items if item.kind == "exercise"}
    assert list(found) == [entry.grade_id for entry in MANIFEST[WEEK]]
    rope, proof = found["rope_frequencies"], found["relative_proof"]
    assert (rope.students, rope.waiting, rope.value, rope.full) == (2, 0, 0.75, 1)
    assert (proof.students, proof.waiting, proof.value, proof.full) == (1, 1, 1.0, 1)
    [cause] = [item for item in items if item.kind == "cause"]
    assert (cause.exercise, cause.name, cause.students) == ("rope_frequencies", CAUSE, 2)


def test_the_page_says_who_waits_and_who_could_not_be_graded(tmp_path: Path, standing: list[Score]) -> None:
    page = write_report(tmp_path, WEEK, standing).read_text(encoding="utf-8")
    assert "cantor" in page and "not a notebook" in page and "Hand-grading left" in page
    assert "<squared>" not in page and "Your frequencies <code>inv_freq</code> are &lt;squared&gt;." in page
    assert page.count("<svg") == 2 and not re.search(r"""(src|href)=["']https?:""", page)
    assert "without isolation" not in page


def test_a_class_graded_without_isolation_is_told_so(tmp_path: Path, standing: list[Score]) -> None:
    assert "without isolation" in write_report(tmp_path, WEEK, standing, isolated=False).read_text(encoding="utf-8")


def test_a_week_that_nobody_handed_in_has_a_page(tmp_path: Path) -> None:
    assert write_report(tmp_path, WEEK, []).name == f"{WEEK}.html"


def drawn(root: Path, proof: dict[str, float | None]) -> str:
    """Return the page of a class whose proofs have these points; students named "blank…" left theirs blank."""
    standing = []
    for student, points in proof.items():
        autograded(root, student, CAUSE)
        path = root / "autograded" / student / WEEK / f"{WEEK}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        marks = {"nbgrader": {"grade_id": "relative_proof"}, "unanswered": student.startswith("blank")}
        notebook.cells.append(nbformat.v4.new_markdown_cell("", id="relative_proof", metadata=marks))
        nbformat.write(notebook, path)
        cells = {"rope_frequencies_tests": 2.0, "relative_proof": points}
        standing.append(Score(student, 2.0, BEST, by_cell=cells, to_grade_by_hand=int(points is None)))
    return write_report(root, WEEK, standing).read_text(encoding="utf-8")


def test_what_nobody_has_read_yet_is_not_drawn_as_zero(tmp_path: Path) -> None:
    """The SVG has the figure's words as comments. A blank answer gets 0 automatically, without being read."""
    page = drawn(tmp_path, {"ada": None, "boole": None, "blank": 0.0})
    assert "<!-- not read yet -->" in page and "<!-- 0.0 of 3" not in page and ">not read yet" in page


def test_what_is_read_in_part_says_so_and_zeros_that_are_given_stay(tmp_path: Path) -> None:
    page = drawn(tmp_path, {"ada": 0.0, "boole": None, "blank": 0.0})
    assert "<!-- 0.0 of 3, 1 not read yet -->" in page and "<small>1 not read yet</small>" in page


def test_all_blank_is_zero(tmp_path: Path) -> None:
    page = drawn(tmp_path, {"blank1": 0.0, "blank2": 0.0})
    assert "<!-- 0.0 of 3 -->" in page and "not read yet" not in page


def test_every_score_is_in_one_of_the_ten_bars(standing: list[Score]) -> None:
    points = [0.0, 0.1 * BEST, BEST, BEST, None]
    [axes] = _distribution([replace(standing[0], score=value) for value in points]).axes
    assert [bar.get_height() for bar in axes.patches] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(("count", "is_few"), [(9, True), (10, False)])
def test_with_fewer_than_ten_the_numbers_mean_little(tmp_path: Path, count: int, is_few: bool) -> None:
    page = drawn(tmp_path, {f"s{number}": 3.0 for number in range(count)})
    assert ("With fewer than ten students" in page) == is_few
    table = (tmp_path / "report" / f"{WEEK}-items.csv").read_text(encoding="utf-8")
    assert f"3.5,relative_proof,exercise,,3,{count},0,1.0000," in table
    assert CAUSE in table and "s0" not in table
