"""What a feedback page keeps of an autograded notebook, and what its table says."""

import nbformat
import pytest
from nbformat.notebooknode import NotebookNode

from autograder.grading.plugins.feedback import (
    UNANSWERED,
    UNDONE,
    WAITS,
    WAITS_AGAIN,
    HideInstructorParts,
    _row,
    what_to_look_at,
)
from autograder.manifest import Exercise

ROPE = Exercise("3.2", "rope_frequencies", "code", 2, 10)
PRINTED = {"output_type": "stream", "name": "stdout", "text": "hidden input"}


def cell(name: str, source: str = "", points: float | None = None, **nbgrader: bool) -> NotebookNode:
    """Return an autograded code cell with an output; ``points`` makes it a graded one."""
    made = nbformat.v4.new_code_cell(source, id=name, outputs=[nbformat.from_dict(PRINTED)])
    if nbgrader or points is not None:
        flags = {"grade": points is not None, "solution": False, "locked": False, "grade_id": name} | nbgrader
        made.metadata["nbgrader"] = flags | ({} if points is None else {"points": points})
    return made


def kept(*cells: NotebookNode) -> list[NotebookNode]:
    notebook, _ = HideInstructorParts().preprocess(nbformat.v4.new_notebook(cells=list(cells)), {})
    return notebook.cells


def test_the_chapter_stays_out_and_answers_and_verdicts_stay_in() -> None:
    text = nbformat.v4.new_markdown_cell("the chapter", id="text")
    own = cell("own")
    own.metadata["tags"] = ["student"]
    cells = kept(text, cell("setup"), cell("answer", solution=True), own, cell("answer_tests", points=2.0, locked=True))
    assert [one.id for one in cells] == ["answer", "own", "answer_tests"]


def test_hidden_tests_are_cut_out() -> None:
    source = "check.rope(f)\n### BEGIN HIDDEN TESTS\nsecret()\n### END HIDDEN TESTS"
    assert kept(cell("a_tests", source, points=2.0, locked=True))[0].source == "check.rope(f)"


def test_what_runs_after_a_hidden_test_shows_no_output() -> None:
    own = cell("own")
    own.metadata["tags"] = ["student"]
    before, verdict, after, added = kept(
        cell("a", solution=True), cell("a_tests", points=2.0, locked=True), cell("b", solution=True), own
    )
    assert before.outputs and verdict.outputs and not after.outputs and not added.outputs


def test_a_visible_check_is_shown_only_if_it_failed_and_without_its_code() -> None:
    passed, failed = (
        cell("passed", "check.a()", points=0.0, locked=True),
        cell("failed", "check.b()", points=0.0, locked=True),
    )
    failed.metadata["check_failed"] = True
    (only,) = kept(passed, failed)
    assert only.id == "failed" and "check.b" not in only.source and only.outputs


def test_of_what_cannot_be_graded_only_the_reason_is_shown() -> None:
    assert [
        one.id for one in kept(nbformat.v4.new_markdown_cell("why", id="ungradable"), cell("a", solution=True))
    ] == ["ungradable"]


def graded(score: float | None = 0.0, **metadata: object) -> NotebookNode:
    made = cell("rope_frequencies_tests", points=2.0)
    made.metadata.nbgrader["score"] = score
    made.metadata.update(nbformat.from_dict(metadata))
    return made


def test_a_row_of_the_table() -> None:
    verdict = {"named": ["Your frequencies are squared."], "criteria": []}
    assert _row(ROPE, graded(1.5, verdict=verdict), "") == {
        "number": "3.2",
        "name": "rope_frequencies",
        "cell": "rope_frequencies_tests",
        "notes": ["Your frequencies are squared."],
        "points": "1.5 of 2",
    }
    assert _row(ROPE, graded(unanswered=True), "")["notes"] == ["no answer"]
    waiting = _row(ROPE, graded(None), WAITS)
    assert waiting["notes"] == ["will be read by a person"] and waiting["points"].startswith("–")
    assert _row(ROPE, graded(1.5, unanswered=True), WAITS_AGAIN)["notes"] == [WAITS_AGAIN]


@pytest.mark.parametrize(
    ("verdict", "notes"),
    [
        ({}, []),
        ({"criteria": [{"name": "values", "earned": 1, "points": 1, "message": ""}]}, []),
        (
            {
                "criteria": [
                    {"name": "a", "earned": 1, "points": 1, "message": ""},
                    {"name": "shape", "earned": 0, "points": 1, "message": "too long\nmore"},
                    {"name": "values", "earned": 0, "points": 1, "message": "wrong"},
                ]
            },
            ["shape: too long"],
        ),
        ({"criteria": [{"name": "shape", "earned": 0, "points": 1, "message": ""}]}, ["shape"]),
        ({"criteria": [{"name": "shape", "earned": 0, "points": 1, "message": UNANSWERED}]}, [UNDONE]),
        ({"criteria": [{"name": "w", "earned": 0, "points": 1, "message": "'w': not answered yet"}]}, ["no answer"]),
        (
            {
                "criteria": [{"name": "w", "earned": 0, "points": 1, "message": "'w': not answered yet"}],
                "note": "Its cell stopped.",
            },
            ["Its cell stopped."],
        ),
    ],
    ids=[
        "no verdict",
        "all right",
        "the first that was missed",
        "without a message",
        "the stub",
        "a hand computation",
        "its cell stopped",
    ],
)
def test_where_no_cause_is_known_the_first_missed_criterion_is_named(verdict: dict, notes: list[str]) -> None:
    assert what_to_look_at(verdict) == notes


def test_what_was_missed_first_stands_above_causes_of_something_else() -> None:
    missed = {"name": "values", "points": 1, "earned": 0, "message": "off by 1"}
    verdict = {"criteria": [missed], "named": ["It must raise ValueError."]}
    assert what_to_look_at(verdict | {"names_first": False}) == ["values: off by 1", "It must raise ValueError."]
    assert what_to_look_at(verdict) == ["It must raise ValueError."]
