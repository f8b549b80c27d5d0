"""`make regrade-requests`: each line of the table with scores, their history and links, or with its error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.errors import CourseError
from autograder.grading.plugins import nbgrader_patches
from autograder.manifest import MANIFEST
from autograder.second_looks import read_requests, second_looks, write_page

WEEK3, WEEK7 = "week3_rope", "week7_capstone"
HEADER = "student,week,exercise,remark\n"


@pytest.fixture
def gradebook(tmp_path: Path) -> Iterator[Gradebook]:
    """Ada has 2 of 6 points in 3.3, then 5 by hand."""
    nbgrader_patches.apply()
    for week in (WEEK3, "week4_alibi"):
        (tmp_path / "source" / week).mkdir(parents=True)
        (tmp_path / "source" / week / f"{week}.ipynb").touch()
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as made:
        made.add_assignment(WEEK3)
        made.add_notebook(WEEK3, WEEK3)
        for entry in MANIFEST[WEEK3]:
            made.add_grade_cell(entry.graded_cell, WEEK3, WEEK3, max_score=entry.points, cell_type="code")
        made.add_student("ada")
        made.add_submission(WEEK3, "ada")
        grade = made.find_grade("apply_rotary_emb_tests", WEEK3, WEEK3, "ada")
        grade.auto_score = 2.0
        made.db.commit()
        grade.manual_score = 5.0
        made.db.commit()
        yield made


def test_a_request_has_its_scores_with_their_history_and_links(gradebook: Gradebook, tmp_path: Path) -> None:
    page = tmp_path / "feedback" / "ada" / WEEK3 / f"{WEEK3}.html"
    page.parent.mkdir(parents=True)
    page.touch()
    (tmp_path / "regrade.csv").write_text(
        HEADER
        + 'ada,3,3.3,"I rotate, as the text says"\nada,4,4.1,of another week\nada,week3,3.8,<script>alert(1)</script>\n'
    )
    first, second = second_looks(tmp_path, gradebook, WEEK3)
    (answer,) = first.answers
    assert (answer.entry.grade_id, answer.automatic, answer.by_hand) == ("apply_rotary_emb", 2.0, 5.0)
    assert [(one.kind, one.before, one.after) for one in answer.history] == [("by hand", None, 5.0)]
    assert [one.entry.grade_id for one in second.answers] == [
        "serving_test",
        "rotate_half",
        "rotary_tables",
        "decode_step_scores",
    ]
    text = write_page(tmp_path, WEEK3, [first, second]).read_text(encoding="utf-8")
    assert f'href="../feedback/ada/{WEEK3}/{WEEK3}.html"' in text and "I rotate, as the text says" in text
    number = gradebook.find_submission_notebook(WEEK3, WEEK3, "ada").id
    assert f"/formgrader/submissions/{number}#apply_rotary_emb_tests" in text
    assert "by hand: – → 5" in text and "<script>alert" not in text


def test_a_spreadsheet_that_saves_the_tenth_exercise_as_the_first_hides_neither(tmp_path: Path) -> None:
    (tmp_path / "source" / WEEK7).mkdir(parents=True)
    (tmp_path / "source" / WEEK7 / f"{WEEK7}.ipynb").touch()
    (tmp_path / "regrade.csv").write_text(HEADER + "ada,7,7.1,x\nada,7,7.10,x\nada,7,7.2,x\n")
    asked = [{entry.number for entry in request.entries} for request in read_requests(tmp_path, WEEK7, {"ada"})]
    assert asked == [{"7.1", "7.10"}, {"7.10"}, {"7.2"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no regrade.csv: write one in the course root, with the columns student,week,exercise,remark"),
        ("student,week,exercise\n", "regrade.csv needs the columns .*; missing: remark"),
        (HEADER + "ada,9,3.3,x\n", "regrade.csv, line 2: there is no week '9'; there is: 3, 4"),
        (HEADER + "ada,3,3.10,x\n", "line 2: there is no exercise '3.10' in week3_rope; there is: 3.1, 3.2"),
        (HEADER + "ada,3,3.10,x\nAda,3,3.3,x\n", "(?s)line 2: .*line 3: nothing of week3_rope by 'Ada' is graded"),
        (
            HEADER + "ada,3,3.3,I rotate, as the text says\n",
            "line 2: more fields than columns; put a text with commas in",
        ),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(
    gradebook: Gradebook, tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "regrade.csv").write_text(text)
    with pytest.raises(CourseError, match=said) as caught:
        second_looks(tmp_path, gradebook, WEEK3)
    assert str(caught.value).count("\n") <= said.count("line 3")
