"""The texts of the weeks: folds say what they contain, hints come before the check, predictions are not spoiled."""

import re

import pytest
from helpers import COURSE
from nbformat.notebooknode import NotebookNode

from autograder.build.text import to_notebook
from autograder.manifest import MANIFEST

CAPTION = re.compile(r"\*\*Figure (\d+\.\d+)\.")
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)
HEADING = re.compile(r"^#{1,4} ", re.MULTILINE)

# Words of a prediction -> words and numbers of its result, which no open text below it may contain.
RESULTS: dict[str, dict[str, list[str]]] = {
    "week1_permutation_equivariance": {
        "Take 64 random keys": ["same share", "a single key"],
        "Which results will be NaN": ["$0/0$", "still NaN"],
        "Sort its rows *and* its columns back": ["None differs", "first one again"],
        "Which of these see the order": ["is equivariant", "is invariant"],
        "Which keys does the *last* query see": ["*first* two positions", "two keys of five"],
        "how much of the first map do you get back": ["32", "no longer a triangle"],
        "For texts with a marker": ["0.83", "0.42"],
        "the accuracy on the test texts of 8 letters": ["0.81", "0.99", "1.00"],
        "How far apart are the two sentences": ["order leaks", "1.15"],
    },
    "week2_sinusoidal": {
        "Replace each square wave": ["fixed angle"],
        "trains on texts of 512 tokens": ["*slow* ones", "irrational"],
        "Draw the table with positions": ["stripes", "nearly constant"],
        "all angles in float32": ["300 tokens"],
        "How much of its attention does the head put": ["works at 50,000"],
        "Within 32 tokens both trained models": ["0.44", "0.53"],
        "the accuracy at positions 32 to 127": ["0.67", "0.49", "0.80", "0.64"],
        "Draw $S(k)$": ["offset 6", "0.78"],
        "the similarity of *all* pairs": ["only the offset counts", "right angles"],
        "Which of the four terms stay constant": ["indifferent", "only the first"],
    },
    "week3_rope": {
        "on four clocks, which turn by": ["no shaded angle"],
        "How many of its 32 pairs complete": ["21", "14", "more pairs slow"],
        "Walk along a diagonal": ["is constant"],
        "For offsets 0 to 256": ["no decay", "in ripples"],
        "all pairs peak at offset 3": ["0.04", "0.87", "*echoes*"],
        "In which of the three cases": ["flat line", "*different* heights"],
        "The four: turning backwards": ["Three of the four"],
        "Guessing gives 1/8. What will": ["0.27", "0.135"],
        "the accuracy at positions 64 to 255": ["0.99", "0.51", "0.22"],
        "The head has learned to give offset 3": ["at the dots", "All 60"],
        "For `head_dim` 128 and positions up to 4095": ["0.002", "2.0"],
    },
    "week4_alibi": {
        "Four slopes: 1/2, 1/8": ["1.4", "5.5", "22.2", "177"],
        "For how many of the 64": ["57"],
        "The next figure shows the bias": ["most *local*", "one colour"],
        "On a logarithmic axis, what shape": ["0.08", "nearly all its attention"],
        "For which of the three forms": ["15 and 17", "eight keys"],
        "Compare the softmax of": ["under a causal mask"],
        "Sketch the three pictures": ["stripes"],
        "Blind guessing gives 1/8": ["0.97", "0.24", "0.31", "1.00"],
        "last head of eight sees farthest": ["1,179"],
        "does your layer give the reversed output": ["0.0000", "flip-equivariant"],
    },
    "week5_extrapolation": {
        "how many of the 32 pairs": ["20.1", "11"],
        "Which scores will be right": ["lost", "in between"],
        "Sketch *old frequency": ["leaves fast pairs alone"],
        "each encoding's loss at 8x": ["falls below its value at 1x: none", "rises at every doubling"],
        "ALiBi, 300 steps": ["2.15", "0.21", "learn what then breaks"],
        "Order the four methods": ["0.33", "0.58", "far ahead"],
        "Give each method the $s$": ["lead", "48"],
        "Some of the eight pairs": ["pair 3"],
        "The shipped RoPE model has": ["1.40", "1.399", "2.561", "1.37"],
        "At $n=32{,}768$": ["no weight", "raises the weight"],
        "from 1x to 16x": ["0.77", "0.54", "1.00"],
        "finds far needles": ["0.61", "0.06"],
        "stop finding needles at": ["content score", "reach of its own"],
        "how many needles will the hybrid": ["every needle", "0.062"],
    },
    "week6_relative_bias": {
        "From which distance on": ["91", "113"],
        "Accuracy of the signed": ["solves the task", "0.51"],
        "with equations (2) to (5)": ["0.50", "0.86", "0.96", "0.64"],
        "Which of four encodings still works": ["goes further", "0.73"],
    },
    "week7_capstone": {
        "Without a cache 128 times": ["4 times", "8.2"],
        "With correct indices the 32 predictions": ["3.36", "3.10"],
        "Six numbers: the share": ["0.69", "0.73", "0.98"],
        "How many of the symbols are right": ["0.72", "0.49"],
    },
    "week8_production": {
        "Two text tokens, then a video": ["7"],
        "16 heads, $d_n=128$": ["16.8 million", "latent channel"],
        "Queries and keys both turn in the wrong": ["half of the content"],
        "The recomputed window has 1.38": ["more than the first four"],
        "Between which distances does pair 3 look": ["100 to 187", "0.40"],
    },
}


def cells_of(assignment: str) -> list[NotebookNode]:
    cells: list[NotebookNode] = to_notebook((COURSE / "source" / f"{assignment}.py").read_text(encoding="utf-8")).cells
    return cells


def below(cells: list[NotebookNode], number: int) -> str:
    """Return the text from a cell to the next heading or prediction."""
    found = []
    for cell in cells[number + 1 :]:
        if "prediction" in cell.metadata.get("tags", []):
            break
        if cell.cell_type != "markdown":
            continue
        if heading := HEADING.search(FOLD.sub(lambda fold: " " * len(fold[0]), cell.source)):
            found.append(cell.source[: heading.start()])
            break
        found.append(cell.source)
    return "\n\n".join(found)


def holds(text: str, what: str) -> bool:
    return re.search(rf"(?<![\w.,]){re.escape(what)}(?!\w|[.,]\d)", text) is not None


@pytest.mark.parametrize("assignment", RESULTS)
def test_no_open_text_names_what_a_prediction_asks(assignment: str) -> None:
    cells = cells_of(assignment)
    predictions = [n for n, cell in enumerate(cells) if "prediction" in cell.metadata.get("tags", [])]
    for words, results in RESULTS[assignment].items():
        (number,) = [n for n in predictions if words in cells[n].source]
        text = below(cells, number)
        spoiled = [one for one in results if holds(FOLD.sub("", text), one)]
        assert spoiled == [], f"below the prediction {words!r}"


@pytest.mark.parametrize("assignment", RESULTS)
def test_every_prediction_has_its_results_listed(assignment: str) -> None:
    asked = [cell.source for cell in cells_of(assignment) if "prediction" in cell.metadata.get("tags", [])]
    left = [one for one in asked if not any(words in one for words in RESULTS[assignment])]
    assert left == [], "predictions without an entry in RESULTS"


def test_no_week_is_left_out() -> None:
    assert set(RESULTS) ^ set(MANIFEST) == set(), "weeks without an entry in RESULTS, or the reverse"


@pytest.mark.parametrize("assignment", RESULTS)
class TestOrderOnThePage:
    def test_a_folded_cell_says_what_it_is(self, assignment: str) -> None:
        cells = cells_of(assignment)
        for cell, after in zip(cells, [*cells[1:], NotebookNode(source="")], strict=True):
            if cell.metadata.get("jupyter") and "experiment" in cell.metadata.get("tags", []):
                figure = CAPTION.match(after.source)
                name = re.escape(f"Figure {figure[1]}") if figure else ".+"
                assert re.match(rf"# {name}: run this cell\b", cell.source), cell.source[:80]

    def test_checks_are_folded_and_hints_stand_above_them(self, assignment: str) -> None:
        above = ""
        for cell in cells_of(assignment):
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if grade_id.endswith("_check"):
                assert cell.metadata["jupyter"] == {"source_hidden": True}
                assert cell.source.startswith("# Visible check")
            if cell.source.startswith("<details><summary>Hint"):
                assert not above.endswith("_tests"), f"a hint below {above}"
            above = grade_id
