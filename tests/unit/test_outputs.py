"""The outputs of a cell that are kept: only text and PNG, and no more than a person would read."""

import base64
import io

import pytest
from helpers import ONE_PIXEL
from PIL import Image

from autograder.grading.sandbox.limits import Budget
from autograder.grading.sandbox.outputs import MAX_OUTPUTS, cell_outputs
from autograder.grading.sandbox.worker.wire import WireError

PICTURE = base64.b64decode(ONE_PIXEL)


def budget(text: int = 1000, images: int = 1000) -> Budget:
    return Budget(1.0, 1.0, text, images)


def test_text_results_and_pictures() -> None:
    image = PICTURE
    found = cell_outputs(
        [
            {"stream": "stdout", "text": "a"},
            {"stream": "stderr", "text": "b"},
            {"show": {"text": "c", "png": [0, len(image)]}, "result": True},
        ],
        image,
        budget(),
    )
    assert [output.get("text") for output in found[:2]] == ["a", "b"]
    assert found[2]["data"] == {"text/plain": "c", "image/png": base64.b64encode(image).decode()}


def test_the_budget_is_the_whole_notebooks() -> None:
    left = budget(text=5)
    assert cell_outputs([{"stream": "stdout", "text": "123456789"}], b"", left)[0]["text"] == "12345"
    assert left.text == 0
    assert cell_outputs([{"stream": "stdout", "text": "6"}], b"", left)[0]["text"] == ""
    small = budget(images=4)
    assert cell_outputs([{"show": {"png": [0, len(PICTURE)]}}], PICTURE, small) == []


def test_pixels_count_for_all_pictures_together() -> None:
    file = io.BytesIO()
    Image.new("1", (4096, 4096)).save(file, "PNG")
    raw = file.getvalue()
    left = budget(images=2**20)
    shown = [cell_outputs([{"show": {"png": [0, len(raw)]}}], raw, left) for _ in range(4)]
    assert [bool(one) for one in shown] == [True, False, False, False]


def test_of_a_terminal_s_commands_the_colours_stay() -> None:
    (only,) = cell_outputs([{"stream": "stdout", "text": "\x1b[32mok\x1b[0m\x1b[2K\x1b[38mx"}], b"", budget())
    assert only["text"] == "\x1b[32mok\x1b[0m[2K[38mx"


@pytest.mark.parametrize(
    "item",
    [
        {"stream": "file", "text": "x"},
        {"show": {"text/html": "<b>"}},
        {"show": 3},
        {},
        {"show": {"png": [0, -1]}},
        {"show": {"png": [True, 3]}},
        {"show": {"png": "0"}},
    ],
)
def test_anything_else_is_dropped(item: dict) -> None:
    assert cell_outputs([item], PICTURE, budget()) == []


def test_what_is_no_list_is_nothing_and_what_is_no_output_is_malformed() -> None:
    assert cell_outputs("text", b"", budget()) == [] == cell_outputs(None, b"", budget())
    with pytest.raises(WireError):
        cell_outputs([3], b"", budget())
    assert len(cell_outputs([{"stream": "stdout", "text": "a"}] * 1000, b"", budget())) == MAX_OUTPUTS
