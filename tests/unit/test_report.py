"""The class report: who counts where, and a page that stands alone."""

import re
from pathlib import Path

import nbformat
import pytest

from autograder.grading.plugins.gradebook import Score
from autograder.manifest import MANIFEST
from autograder.report import summaries, write_report

WEEK = "week3_rope"
BEST = float(sum(entry.points for entry in MANIFEST[WEEK]))
CAUSE = "Your frequencies `inv_freq` are <squared>."


def autograded(root: Path, student: str, cause: str) -> None:
    """An autograded notebook with one verdict."""
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
    found = {summary.entry.graded_cell: summary for summary in summaries(tmp_path, WEEK, standing[:2])}
    assert list(found) == [entry.graded_cell for entry in MANIFEST[WEEK]]
    rope, proof = found["rope_frequencies_tests"], found["relative_proof"]
    assert (rope.graded, rope.waiting, rope.mean, rope.full, rope.causes) == (2, 0, 1.5, 1, [(CAUSE, 2)])
    assert (proof.graded, proof.waiting, proof.mean, proof.full) == (1, 1, 3.0, 1)


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
