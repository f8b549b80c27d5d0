"""What `make slides` shows, what it leaves to the speaker, and how tags overrule that."""

from typing import Any

import pytest
from nbformat import v4

from autograder.lecture import LINES, Slide, choose, opening
from autograder.site.week import Week

LONG = "One sentence opens it. " + "Another one says more than anybody reads on a slide. " * 8
TEXT = f"""# Week 9 · Title

A question.

## 1 · Section

{LONG.strip()}

A remark in passing.

**A claim.** It stands in bold.

This leads to

$$a + b$$

- item

<details><summary>Fold</summary>

Unfolded.
</details>

<details><summary>After you have run it</summary>

An answer.
</details>

### Exercise 9.1 · Do it

Instructions.
"""


def text(source: str, **metadata: Any) -> Any:
    return v4.new_markdown_cell(source, metadata=metadata)


def slides_of(*cells: Any, results: dict[str, Any] | None = None) -> list[Slide]:
    return choose(Week("week9_x", cells, results or {}))


def shown(slide: Slide) -> str:
    return "\n".join(cell.source for cell in slide.shown if cell.cell_type == "markdown")


def test_the_rule() -> None:
    first, second = slides_of(text(TEXT))
    assert (first.heading, shown(first)) == ("# Week 9 · Title", "A question.")
    assert second.heading == "## 1 · Section"
    assert shown(second).startswith("One sentence opens it.")
    assert len(shown(second).split()) < 80
    for part in ("**A claim.** It stands in bold.", "This leads to", "$$a + b$$", "- item"):
        assert part in shown(second)
    assert second.notes == [LONG.strip(), "A remark in passing.", "An answer.", "*Now exercise 9.1 · Do it.*"]
    for part in ("Unfolded", "Instructions", "passing"):
        assert part not in shown(first) + shown(second)


def test_answers_checks_and_questions_never_appear() -> None:
    answer = v4.new_code_cell("secret = 1", metadata={"nbgrader": {"solution": True, "grade_id": "a"}})
    check = v4.new_code_cell("secret = 2", metadata={"nbgrader": {"grade": True, "grade_id": "a_check"}})
    locked = text("secret question", nbgrader={"locked": True, "grade_id": "b"})
    slides = slides_of(text("# Title\n\nWords."), text("**Then** write secret code."), answer, check, locked)
    assert "secret" not in repr(slides)


def test_results_come_on_the_slide_after_the_prediction_with_their_caption() -> None:
    run = v4.new_code_cell("draw()", metadata={"tags": ["experiment"]})
    picture = v4.new_output("display_data", {"text/html": "<div data-lab='x'></div>"})
    table = v4.new_output("stream", text="a b\n" * 12)
    cells = text("# T\n\nWords."), text("**Predict.** What?\n\n*Your prediction:*", tags=["prediction"]), run
    slides = slides_of(*cells, text("**Figure 9.1. It.** See."), results={run.id: (picture, table)})
    assert shown(slides[0]) == "Words.\n**Predict.** What?"
    assert [cell.cell_type for cell in slides[1].shown] == ["code", "markdown"]
    assert "draw()" not in repr(slides)
    assert slides[2].shown[0].outputs == [table]


@pytest.mark.parametrize("lines", [1, 8, 11, 13, 15])
def test_no_result_stands_beside_the_question_however_full_the_slide_is(lines: int) -> None:
    run = v4.new_code_cell("draw()", metadata={"tags": ["experiment"]})
    full = text("# T\n\n" + "\n".join(f"- item {number}" for number in range(lines)))
    question = text("**Predict.** What?\n\nHow much?\n\nOf what?", tags=["prediction"])
    slides = slides_of(full, question, run, results={run.id: (v4.new_output("stream", text="a b\n"),)})
    assert not [
        slide for slide in slides if "Predict" in shown(slide) and "code" in {cell.cell_type for cell in slide.shown}
    ]


def test_tags_overrule_the_rule() -> None:
    slides = slides_of(
        text("# T\n\nWords."),
        text("## Left out\n\nWords.", tags=["skip"]),
        text("**Said.** Not shown.", tags=["notes"]),
        text(LONG, tags=["slide"]),
    )
    assert slides[0].notes == ["**Said.** Not shown."]
    assert [shown(slide) for slide in slides] == ["Words.", LONG.strip()]


def test_a_long_table_goes_on_below_its_head() -> None:
    rows = "\n".join(f"| {number} | {'word ' * 20}|" for number in range(30))
    slides = slides_of(text(f"# T\n\n| a | b |\n|---|---|\n{rows}"))
    assert len(slides) > 2
    assert all(shown(slide).startswith("| a | b |\n|---|---|") for slide in slides)
    assert all(slide.lines <= LINES + 2 for slide in slides)
    assert sum(shown(slide).count("word |") for slide in slides) == 30


def test_an_opening_cuts_neither_formulas_nor_bold_words() -> None:
    assert opening("One. Two.", 1) == "One."
    assert opening("**Lead. More.** Rest. End.", 1) == "**Lead. More.**"
    assert opening("Take $a. B$ here. End.", 1) == "Take $a. B$ here."
    assert opening("Short text. All of it.", 9) == "Short text. All of it."
