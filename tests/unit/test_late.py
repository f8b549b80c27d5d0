"""Late days: which ones are charged to whom, and the errors for a table that makes no sense."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.errors import CourseError
from autograder.grading.plugins import nbgrader_patches
from autograder.grading.plugins.penalties import renew_penalties
from autograder.late import DAY, LateDays, LateTable, read_late_table

HEADER = "student,week,days\n"
DUE = {"a": datetime(2026, 11, 2), "b": datetime(2026, 11, 9), "c": datetime(2026, 11, 16)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for week in ("week3_rope", "week4_alibi"):
        (tmp_path / "source" / week).mkdir(parents=True)
        (tmp_path / "source" / week / f"{week}.ipynb").touch()
    return tmp_path


def late(**days: float) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=name, duedate=DUE[name], total_seconds_late=late * DAY) for name, late in days.items()]


@pytest.mark.parametrize(
    ("allowed", "handed_in", "beyond"),
    [
        ({}, late(a=0), 0),
        ({}, late(a=1 / DAY), 1),  # one second late counts as a day
        ({}, late(a=2), 2),
        ({("*", "a"): 1}, late(a=2), 1),
        ({("ada", "a"): 7}, late(a=7), 0),
        ({("*", "a"): 7, ("ada", "a"): 1}, late(a=2), 1),  # her own line overrides everybody's
        ({("*", "a"): 7, ("ada", "a"): 0}, late(a=2), 2),  # even if it grants nothing
        ({("boole", "a"): 7}, late(a=2), 2),
        ({("*", "*"): 3}, late(a=2), 0),
        ({("*", "*"): 3, ("ada", "*"): 1}, late(a=2), 1),
        ({("*", "*"): 3, ("ada", "a"): 1}, late(a=5), 1),
    ],
)
def test_days_beyond_extension_and_grace(
    allowed: dict[tuple[str, str], int], handed_in: list[SimpleNamespace], beyond: int
) -> None:
    assert LateTable(allowed).beyond("ada", "a", handed_in) == beyond


def test_grace_days_are_spent_in_the_order_of_the_due_dates() -> None:
    table = LateTable({("*", "*"): 3, ("ada", "b"): 1})
    handed_in = late(c=2, b=2, a=1)  # after its extension b costs one, as a does: the third is left for c
    assert [table.beyond("ada", name, handed_in) for name in "abc"] == [0, 0, 1]


def test_a_table_of_weeks_by_number_or_name(root: Path) -> None:
    (root / "late.csv").write_text("﻿Student;Week;Days;why\n*;*;4;\nada;3;7;ill\n\nada;week4_alibi;1;\n")
    table = read_late_table(root / "late.csv")
    assert table == LateTable({("*", "*"): 4, ("ada", "week3_rope"): 7, ("ada", "week4_alibi"): 1})
    assert read_late_table(root / "none.csv") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEADER + "ada,3,1\nada,9,1\n",
            "late.csv, line 3: there is no week '9'; there is: 3, 4, and * for the whole course",
        ),
        (HEADER + "ada,3,1.5\n", "line 2: days must be a whole number, not '1.5'"),
        (HEADER + "ada,3,-1\n", "line 2: days must be a whole number"),
        (HEADER + "ada,3\n", "line 2: days must be a whole number, not ''"),
        (HEADER + ",3,1\n", "line 2: say which student and which week; * stands for all"),
        (HEADER + "ada,3,1\nada,week3,2\n", "line 3: ada has a line for week week3 already"),
        (HEADER + "ada,3,1,ill\n", "line 2: more fields than columns"),
        ("student,days\nada,3\n", "late.csv needs the columns student,week,days in its first line; missing: week"),
        ("", "missing: student"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(root: Path, text: str, said: str) -> None:
    (root / "late.csv").write_text(text)
    with pytest.raises(CourseError) as caught:
        read_late_table(root / "late.csv")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_table_in_another_encoding_ends_no_server(root: Path) -> None:
    (root / "late.csv").write_bytes(HEADER.encode() + b"ad\xe4,3,1\n")
    with pytest.raises(CourseError, match=r"is not UTF-8 \(line 2\)"):
        read_late_table(root / "late.csv")


def test_nbgrader_takes_the_penalty_off(root: Path) -> None:
    """Three days late in week 3, one in week 4, and two grace days; and again when points and table have changed."""
    nbgrader_patches.apply()
    url = f"sqlite:///{root}/gradebook.db"
    with Gradebook(url) as gradebook:
        gradebook.add_student("ada")
        for week, due, came in (
            ("week2_sinusoidal", None, datetime(2026, 11, 4)),
            ("week3_rope", DUE["a"], datetime(2026, 11, 4, 12)),
            ("week4_alibi", DUE["b"], datetime(2026, 11, 9, 1)),
        ):
            gradebook.add_assignment(week, duedate=due)
            gradebook.add_notebook(week, week)
            gradebook.add_grade_cell("x", week, week, max_score=10, cell_type="code")
            gradebook.add_submission(week, "ada", timestamp=came)
            gradebook.find_grade("x", week, week, "ada").auto_score = 5.0
        gradebook.db.commit()

    config = Config(AssignLatePenalties={"plugin_class": LateDays}, LateDays={"table": str(root / "late.csv")})
    course = CourseDirectory(root=str(root))

    def changed() -> list[str]:
        found = [renew_penalties(course, week, config) for week in ("week3_rope", "week4_alibi")]
        return [", ".join(remarks).removeprefix("late penalties, worked out anew: ") for remarks in found]

    assert changed() == ["", ""]
    (root / "late.csv").write_text(HEADER + "*,*,2\n")
    assert changed() == ["ada 0 → 0.5", "ada 0 → 0.5"] and changed() == ["", ""]
    (root / "late.csv").write_text(HEADER + "*,*,2\nada,3,1\n")
    assert changed() == ["ada 0.5 → 0", ""]
    (root / "late.csv").write_text(HEADER)
    with Gradebook(url) as gradebook:
        gradebook.find_grade("x", "week4_alibi", "week4_alibi", "ada").manual_score = 10.0
        gradebook.db.commit()
    assert changed() == ["ada 0 → 1.5", "ada 0.5 → 1"]
