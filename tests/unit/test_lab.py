"""lab.py: the pictures that move, without a browser, and the alternative texts of figures."""

import base64
import io
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import bs4
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from helpers import COURSE, load_lab, load_serving_lab
from IPython.core.formatters import DisplayFormatter
from IPython.core.pylabtools import select_figure_formats
from nbconvert import HTMLExporter
from nbformat.notebooknode import from_dict
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from autograder.build.preprocessors import StorePicturesOnce
from autograder.course import course_config
from autograder.grading.sandbox.worker import simulated_device
from autograder.grading.submission.notebook_file import read
from autograder.reference import alibi, mrope, rope, scaling, sinusoidal, streaming, t5

SIX_DIGITS = 1e-5  # the pictures round to six digits, and the kernels compute in float32
LARGEST = 60_000  # bytes of HTML; a student's notebook also contains the still picture


plt.switch_backend("agg")
lab, serving = load_lab(), load_serving_lab()
lab.use_style()
PICTURES = {
    "clocks": lambda: lab.moving_clocks(),
    "hands": lambda: lab.moving_clocks(16, 500.0, m=7, keys=False),
    "shift": lambda: lab.moving_shift(sinusoidal.shift_matrix),
    "score": lambda: lab.moving_score(),
    "words": lambda: lab.moving_words(["a", "b"], [[0.5, 0.5], [0.9, 0.1]], [[1.0, 2.0], [0.0, -1.0]]),
    "slopes": lambda: lab.moving_slopes(alibi.alibi_slopes, n_heads=12),
    "bias": lambda: lab.moving_slopes(alibi.alibi_slopes, weights=False),
    "frequencies": lambda: lab.moving_frequencies(scaling.ntk_base, scaling.yarn_frequencies),
    "buckets": lambda: lab.moving_buckets(t5.t5_bucket),
    "conveyor": lambda: serving.moving_conveyor(streaming.streaming_cache),
    "axes": lambda: serving.moving_axes(mrope.mrope_positions),
    "absorbed": lambda: serving.moving_absorbed(),
}
every_picture = pytest.mark.parametrize("name", PICTURES)


def test_raises_means_this_error_and_no_other() -> None:
    assert lab.raises(ValueError, int, "x")
    assert not lab.raises(ValueError, int, "1") and not lab.raises(KeyError, int, "x")


def test_what_is_no_tensor_is_named() -> None:
    lab.must_be_a_tensor(torch.ones(2))
    for result, said in ((None, "is there a return statement"), (np.ones(2), "got ndarray")):
        with pytest.raises(AssertionError, match=said):
            lab.must_be_a_tensor(result)


def test_a_number_is_one_whatever_it_is_kept_in_and_what_is_none_is_named() -> None:
    answer = {"a": 2, "b": torch.tensor([0.5]), "c": np.int64(3), "d": torch.tensor(0.25), "more": None}
    assert lab.must_be_numbers(answer, "a", "b", "c", "d") == {"a": 2, "b": 0.5, "c": 3, "d": 0.25}
    for value in ("1", True, torch.ones(2), np.ones(1), [1.0], 1j):
        with pytest.raises(AssertionError, match="'a' must be a plain number"):
            lab.must_be_numbers({"a": value}, "a")
    for wrong, said in (({"a": None}, "still None"), ({"a": math.inf}, "finite"), ({}, "missing"), ([1], "dictionary")):
        with pytest.raises(AssertionError, match=said):
            lab.must_be_numbers(wrong, "a")


def bundle(shown: object) -> tuple[dict[str, str], dict]:
    return shown._repr_mimebundle_()


@cache
def made(name: str) -> tuple[dict, dict]:
    return bundle(PICTURES[name]())


@pytest.mark.nightly
@every_picture
def test_a_picture_is_the_same_at_every_run(name: str) -> None:
    assert bundle(PICTURES[name]()) == made(name)
    assert plt.get_fignums() == []


@every_picture
def test_a_still_picture_stands_where_no_script_runs(name: str) -> None:
    data, metadata = made(name)
    page = bs4.BeautifulSoup(data["text/html"], "html.parser")
    assert [element.name for element in page.find_all(recursive=False)] == ["div", "script"]
    (image,) = page.div.find_all(recursive=True)
    assert image["alt"] == metadata["image/png"]["alt"] == data["text/plain"]
    assert len(image["alt"].split()) >= 20
    assert image["src"] == "data:image/png;base64," + data["image/png"]
    opacity = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGBA").getchannel("A")
    assert opacity.getextrema() == (255, 255)


@every_picture
def test_a_picture_is_light_and_needs_no_network(name: str) -> None:
    markup = made(name)[0]["text/html"]
    assert len(markup) < LARGEST
    assert set(re.findall(r"https?://[^\"'` ]*", markup)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\b(?:fetch|import|eval|XMLHttpRequest)\b", markup)


@every_picture
def test_nothing_moves_by_itself(name: str) -> None:
    markup = made(name)[0]["text/html"]
    assert not re.search(r"setTimeout|setInterval|requestAnimationFrame|\bDate\b|transition|animat", markup)


def test_data_cannot_end_the_script() -> None:
    picture = lab.Moving("clocks", "</script><b>", '"<&', plt.figure(), {})
    page = bs4.BeautifulSoup(picture.html, "html.parser")
    assert page.b is None
    assert page.img["alt"] == '"<&'


def test_clocks_turn_at_the_frequencies_of_rope() -> None:
    data = lab.moving_clocks(head_dim=8, base=500_000.0).data
    assert data["bases"][data["base"]] == 500_000.0
    for base, frequencies in zip(data["bases"], data["frequencies"], strict=True):
        torch.testing.assert_close(torch.tensor(frequencies), rope.rope_frequencies(8, base), rtol=SIX_DIGITS, atol=0)


def test_the_shift_matrix_shown_is_the_one_given() -> None:
    data = lab.moving_shift(sinusoidal.shift_matrix, d_model=8, pair=2, base=100.0).data
    for offset, block in data["blocks"].items():
        expected = sinusoidal.shift_matrix(offset, 8, 100.0)[4:6, 4:6]
        torch.testing.assert_close(torch.tensor(block), expected, rtol=SIX_DIGITS, atol=1e-9)
    wrong = lab.moving_shift(lambda *arguments: sinusoidal.shift_matrix(*arguments).T).data  # its arrow misses the ring
    assert wrong["blocks"] != lab.moving_shift(sinusoidal.shift_matrix).data["blocks"]


def test_the_score_has_the_frequencies_of_rope() -> None:
    frequencies = torch.tensor(lab.moving_score(head_dim=12, base=10_000.0).data["frequencies"])
    torch.testing.assert_close(frequencies, rope.rope_frequencies(12), rtol=SIX_DIGITS, atol=0)


def test_slopes_are_those_of_alibi() -> None:
    slopes = lab.moving_slopes(alibi.alibi_slopes, max_heads=24).data["slopes"]
    assert len(slopes) == 24
    for heads, shown in enumerate(slopes, 1):
        torch.testing.assert_close(torch.tensor(shown), alibi.alibi_slopes(heads), rtol=SIX_DIGITS, atol=0)


def test_scaled_frequencies_are_those_of_the_references() -> None:
    data = lab.moving_frequencies(scaling.ntk_base, scaling.yarn_frequencies, head_dim=32, original_len=128).data
    torch.testing.assert_close(torch.tensor(data["unscaled"]), rope.rope_frequencies(32), rtol=SIX_DIGITS, atol=0)
    for scale, (ntk, yarn) in enumerate(zip(data["ntk"], data["yarn"], strict=True), 1):
        expected = rope.rope_frequencies(32, scaling.ntk_base(10_000.0, scale, 32))
        torch.testing.assert_close(torch.tensor(ntk), expected, rtol=SIX_DIGITS, atol=0)
        expected = scaling.yarn_frequencies(32, scale, 128)
        torch.testing.assert_close(torch.tensor(yarn), expected, rtol=SIX_DIGITS, atol=0)


def test_buckets_are_those_of_t5() -> None:
    data = lab.moving_buckets(t5.t5_bucket).data
    offsets = torch.arange(-150, 151)
    assert data["twoSides"] == t5.t5_bucket(offsets).tolist()
    assert data["causal"] == t5.t5_bucket(offsets, False).tolist()


def test_the_conveyor_holds_what_the_reference_keeps() -> None:
    data = serving.moving_conveyor(streaming.streaming_cache).data
    for sinks, by_window in enumerate(data["cases"]):
        for window, by_tokens in enumerate(by_window, 1):
            for tokens, packed in enumerate(by_tokens, 1):
                shown = [[int(digit, 36) for digit in part] for part in packed]
                assert shown == [part.tolist() for part in streaming.streaming_cache(tokens, sinks, window)]


def test_the_three_axes_are_those_of_the_reference() -> None:
    data = serving.moving_axes(mrope.mrope_positions).data
    for t, by_height in enumerate(data["cases"], 1):
        for h, by_width in enumerate(by_height, 1):
            for w, packed in enumerate(by_width, 1):
                shown = [[int(digit, 36) for digit in axis] for axis in packed]
                assert shown == mrope.mrope_positions([data["before"], (t, h, w), data["after"]]).tolist()


def test_an_answer_that_is_missing_says_so() -> None:
    def not_answered(*arguments: object) -> None:
        raise NotImplementedError

    for picture in (lab.moving_shift, lab.moving_slopes, serving.moving_conveyor, serving.moving_axes):
        with pytest.raises(NotImplementedError):
            picture(not_answered)
    with pytest.raises(NotImplementedError):
        lab.moving_frequencies(scaling.ntk_base, not_answered)


def _figure_markup() -> str:
    fig, axes = lab.figure("Two <panels>", ncols=2)
    axes[0].set(title=r"one $\alpha$?")
    axes[1].set_title("two\nlines", loc="center")
    axes[1].plot([1, 2], label=r"$\theta_{12}$")
    axes[1].legend()
    axes[1].text(1, 1, "0.5")
    axes[1].set(xlabel="position")
    with patch.object(lab, "display") as display:
        fig._ipython_display_()
    plt.close(fig)
    markup: str = display.call_args.args[0]["text/html"]
    return markup


def test_a_figure_says_its_words() -> None:
    image = bs4.BeautifulSoup(_figure_markup(), "html.parser").img
    assert image["alt"] == "Figure: Two <panels>. Panels: one alpha?; two lines. Axes: position. Legend: theta _ 12."


def test_jupyter_draws_a_figure_once_for_all_its_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    formatter = DisplayFormatter()
    select_figure_formats(SimpleNamespace(display_formatter=formatter), {"png"})  # as notebooks do
    fig, _ = lab.figure("One")
    draw = Mock(side_effect=fig.canvas.print_figure)
    monkeypatch.setattr(fig.canvas, "print_figure", draw)
    with patch.object(lab, "display") as display:
        assert formatter.format(fig) == ({}, {})  # it has displayed itself
    plt.close(fig)
    assert set(display.call_args.args[0]) == {"text/html", "image/png", "text/plain"}
    assert draw.call_count == 1


@pytest.mark.parametrize(
    "make", [_figure_markup, lambda: lab.moving_clocks().html], ids=["figure", "picture that moves"]
)
def test_the_build_stores_a_picture_once(make: Callable[[], str]) -> None:
    shown = new_output("display_data", data={"text/html": make(), "image/png": "again"})
    plain = new_output("display_data", data={"image/png": "the only one"})
    cell, _ = StorePicturesOnce().preprocess_cell(new_code_cell("", outputs=[shown, plain]), {}, 0)
    assert [list(output.data) for output in cell.outputs] == [["text/html"], ["image/png"]]


@pytest.mark.parametrize(
    "markup",
    [5, [], ["a", 5], {"a": 1}, "", '<img alt="" src="', "<img " * 10_000],
    ids=["number", "nothing", "list", "dict", "empty", "cut off", "many"],
)
def test_a_picture_beside_odd_html_is_kept_without_a_text(tmp_path: Path, markup: object) -> None:
    png = bundle(lab.moving_clocks())[0]["image/png"]
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/png": png, "text/html": markup}}
    path = tmp_path / "saved.ipynb"
    cell = {"cell_type": "code", "source": "", "metadata": {}, "execution_count": None, "outputs": [output]}
    saved = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    path.write_text(json.dumps(saved), encoding="utf-8")
    (kept,) = read(path).cells
    assert [output.metadata for output in kept.outputs if output.output_type == "display_data"] == [{}]


def test_formgrader_shows_the_still_picture_with_its_text(tmp_path: Path) -> None:
    """A notebook saved by JupyterLab goes through the intake and through nbconvert as set up by nbgrader_config.py."""
    data, metadata = bundle(lab.moving_clocks())
    saved = new_notebook(
        cells=[
            new_code_cell("lab.moving_clocks()", outputs=[new_output("execute_result", data=data, metadata=metadata)])
        ]
    )
    path = tmp_path / "saved.ipynb"
    path.write_text(json.dumps(saved), encoding="utf-8")
    (cell,) = read(path).cells
    shown = new_notebook(cells=[new_code_cell(cell.source, outputs=[from_dict(output) for output in cell.outputs])])
    config = course_config(COURSE)
    assert config.HTMLExporter.sanitize_html is True
    exporter = HTMLExporter(config={"HTMLExporter": {"sanitize_html": True}}, template_name="classic")
    page = bs4.BeautifulSoup(exporter.from_notebook_node(shown)[0], "html.parser")
    (image,) = page.select(".output_area img")
    assert image["alt"] == data["text/plain"]
    assert image["src"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert "ResizeObserver" not in page.get_text()


# ---- answers on a second device


def given_a_device(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    steps = torch.arange(x.shape[-1], device=x.device)
    return x * steps, steps


def named(x: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(x.shape[-1])
    return x * steps


def derived(values: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(3)
    squares = steps * steps
    return values * squares


def times(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return x * factor


def handed_on(x: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(3)
    return times(2 * x, steps)


def unnamed(x: torch.Tensor) -> torch.Tensor:
    return x * torch.arange(3)


def deeper(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(named(x), torch.ones(3, 3))


def indexed(x: torch.Tensor) -> torch.Tensor:
    table = torch.ones(3)
    return table[x.long()]


def moved_to_the_cpu(x: torch.Tensor) -> torch.Tensor:
    return x.cpu() * torch.arange(3)


def second_result_on_the_cpu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, torch.arange(3)


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.cos(x.numpy()))


def whole(x: torch.Tensor) -> torch.Tensor:
    return x.long() @ x.long()


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = torch.arange(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.slopes


def on_the_device(x: torch.Tensor) -> torch.Tensor:
    return Holder().to(x.device)(x)


COMPLAINTS = {
    named: "`steps` was made on the CPU, and x is elsewhere. Give it device=x.device.",
    derived: "`steps` was made on the CPU, and values is elsewhere. Give it device=values.device.",
    handed_on: "`steps` was made on the CPU, and x is elsewhere.",
    unnamed: "A tensor is made on the CPU in this line:\n    return x * torch.arange(3)\nThe others are elsewhere.",
    deeper: "`steps` was made on the CPU",
    indexed: "`table` was made on the CPU, and x is elsewhere.",
    moved_to_the_cpu: "Your result is on the CPU, and the input is not.",
    second_result_on_the_cpu: "Your result is on the CPU, and the input is not.",
    by_numpy: "A tensor goes to NumPy in this line:\n    return torch.from_numpy(np.cos(x.numpy()))\nNumPy works on the CPU",
    whole: "Matrices of whole numbers are multiplied in this line:\n    return x.long() @ x.long()\nA GPU cannot do that.",
    on_the_device: "`self.slopes` stays on the CPU when the module moves to another device. Make it a buffer",
}


@pytest.mark.parametrize("answer", COMPLAINTS, ids=lambda answer: answer.__name__)
def test_an_answer_that_stays_on_the_cpu_is_told_where(answer: Callable[[torch.Tensor], object]) -> None:
    answer(torch.ones(3))
    with pytest.raises(AssertionError, match=re.escape(COMPLAINTS[answer])):
        lab.follows_the_device(answer, torch.ones(3))


def test_an_answer_that_follows_the_device_hears_nothing() -> None:
    lab.follows_the_device(given_a_device, torch.ones(3))


def test_other_mistakes_are_left_to_others() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)

    lab.follows_the_device(breaks, torch.ones(3))


def test_in_grading_the_device_is_left_to_the_hidden_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "is_grading", True)
    lab.follows_the_device(moved_to_the_cpu, torch.ones(3))


def test_the_device_comes_from_the_file_beside_lab(tmp_path: Path) -> None:
    """As in a student's folder, without the grader."""
    shutil.copy(simulated_device.__file__, tmp_path)
    shutil.copy(COURSE / "source" / "lab.py", tmp_path)
    code = "import lab, torch; lab.follows_the_device(lambda x: x * 2, torch.ones(3)); print(torch.simulated)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "simulated_device.DeviceModule" in done.stdout
