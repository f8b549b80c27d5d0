"""`%grade`: which exercise it grades, how much of the notebook that takes, and when the saved file is older."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograder.course import Role
from autograder.errors import CourseError
from autograder.grading.messages import Task, TaskCell
from autograder.magic import chosen, newer_in_kernel, up_to
from autograder.manifest import MANIFEST

WEEK3 = MANIFEST["week3_rope"]


def test_an_exercise_is_meant_by_its_number_or_by_the_name_of_an_answer() -> None:
    assert [entry.grade_id for entry in chosen(WEEK3, "3.4")] == ["apply_rotary_emb_half", "interleaved_to_half"]
    assert [entry.number for entry in chosen(WEEK3, "rotate_half")] == ["3.8"]


@pytest.mark.parametrize(
    ("wanted", "said"), [("", "there is: 3.1, 3.2"), ("9.9", "there is: 3.1"), ("3.5", "a person")]
)
def test_what_cannot_be_graded_is_said(wanted: str, said: str) -> None:
    with pytest.raises(CourseError, match=said):
        chosen(WEEK3, wanted)


def test_a_task_ends_with_the_exercise_and_keeps_the_earlier_hidden_tests() -> None:
    cells = [
        TaskCell("setup", Role.SETUP, ""),
        TaskCell("a", Role.ANSWER, ""),
        TaskCell("a_check", Role.TEST, ""),
        TaskCell("a_tests", Role.TEST, "", 2.0),
        TaskCell("b", Role.ANSWER, ""),
        TaskCell("b_tests", Role.TEST, "", 2.0),
        TaskCell("c", Role.ANSWER, ""),
    ]
    short = up_to({"b_tests"}, Task("you", "week3_rope", cells, {}, 0))
    assert [cell.id for cell in short.cells] == ["setup", "a", "a_tests", "b", "b_tests"]


def test_a_saved_answer_that_is_older_than_the_one_that_ran_is_named() -> None:
    cell = new_code_cell(
        "def rope_frequencies():\n    return 1", metadata={"nbgrader": {"grade_id": "rope_frequencies"}}
    )
    saved, entries = new_notebook(cells=[cell]), chosen(WEEK3, "3.2")
    assert newer_in_kernel(entries, [], saved) == []
    assert newer_in_kernel(entries, [cell.source + "\n", "x = 1"], saved) == []
    newer = [cell.source, "def rope_frequencies():\n    return 2"]
    assert newer_in_kernel(entries, newer, saved) == ["rope_frequencies"]
