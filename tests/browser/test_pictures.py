"""The pictures that move, by mouse and keyboard, in JupyterLab's two themes and on a static page, and their replacement
without scripts. Their numbers agree with the reference kernels at every position of the controls."""

import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import torch
from browser.axe import figures_without_text
from browser.conftest import Shoot
from browser.lab_page import LabPage
from browser.lab_server import JupyterServer
from helpers import COURSE
from nbclient import NotebookClient
from playwright.sync_api import Locator, Page, expect

from autograder.build.pipeline import copy_released
from autograder.reference import alibi, attention, mrope, rope, scaling, sinusoidal, streaming, t5

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SET_UP = """import matplotlib.pyplot as plt
import lab
import serving_lab as serving
from autograder.build.pipeline import copy_released
from autograder.reference import alibi, mrope, scaling, sinusoidal, streaming, t5
lab.use_style()"""
FIGURE = """fig, (left, right) = lab.figure("An ordinary figure", ncols=2)
left.set(title="one panel"), right.set(title="another")
plt.show()"""


@dataclass(frozen=True)
class Picture:
    """A call in a notebook, its controls, and a check of the card's numbers at given positions of the controls."""

    code: str
    controls: tuple[str, ...]
    agrees: Callable[[Locator, dict[str, float]], None]


def _numbers(cells: Locator) -> list[float]:
    return [_number(text) for text in cells.all_text_contents()]


def _number(text: str) -> float:
    found = re.search(r"[-−]?[\d,]*\.?\d+(?:e[-−+]\d+)?", text)
    assert found, f"no number in {text!r}"
    return float(found[0].replace("−", "-").replace(",", ""))


def _clocks(card: Locator, at: dict[str, float]) -> None:
    offset = at["query position m"] - at["key position n"]
    angles = offset * rope.rope_frequencies(8, at["base"]).double()
    assert _numbers(card.locator(".note")) == pytest.approx(angles.tolist(), rel=0.006)  # three digits are shown
    expect(card.locator(".said")).to_contain_text(f"m − n = {str(int(offset)).replace('-', '−')}.")


def _hands(card: Locator, at: dict[str, float]) -> None:
    position = int(at["position p"])
    row = sinusoidal.sinusoidal_positional_encoding(position + 1, 8, at["base"])[position]
    shown = [
        float(number.replace("−", "-"))
        for note in card.locator(".note").all_inner_texts()
        for number in re.findall(r"[-−]?\d\.\d\d", note)
    ]
    assert shown == pytest.approx(row.tolist(), abs=0.0051)  # two decimals are shown


def _shift(card: Locator, at: dict[str, float]) -> None:
    p, k = int(at["position p"]), int(at["offset k"])
    block = sinusoidal.shift_matrix(k, 16)[2:4, 2:4]
    encoding = sinusoidal.sinusoidal_positional_encoding(60, 16)[:, 2:4]
    shown = _numbers(card.locator(".brackets span"))
    assert shown[:4] == pytest.approx(block.flatten().tolist(), abs=0.00051)  # three decimals are shown
    assert shown[4:6] == pytest.approx(encoding[p].tolist(), abs=0.00051)
    assert shown[6:] == pytest.approx((block @ encoding[p]).tolist(), abs=0.00051)
    if p + k >= 0:
        assert shown[6:] == pytest.approx(encoding[p + k].tolist(), abs=0.00051)


def _score(card: Locator, at: dict[str, float]) -> None:
    offset, back = at["offset m − n"], at["look exactly this far back: K"]
    vector = torch.tensor([1.0, 0.0]).repeat(8)[None, None, None]
    q = rope.apply_rotary_emb(vector, torch.tensor([offset]), 100.0)
    k = rope.apply_rotary_emb(vector, torch.tensor([back]), 100.0)
    per_pair = (q * k).unflatten(-1, (8, 2)).sum(-1).flatten()
    assert _numbers(card.locator("text.value")) == pytest.approx(per_pair.tolist(), abs=0.0051)
    assert _numbers(card.locator("text.total")) == pytest.approx([float(per_pair.sum())], abs=0.0051)
    cosines = ((torch.arange(49)[:, None] - back) * rope.rope_frequencies(16, 100.0).double()).cos().sum(1)
    weights = (at["strength of the query"] * cosines / 4).softmax(0)
    assert _numbers(card.locator("text.weight")) == pytest.approx([float(weights[int(offset)])], abs=0.0051)


WORDS = ["the", "dog", "bites", "the", "man"]
HEAD = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(4))


def _words(card: Locator, at: dict[str, float]) -> None:
    shown = card.get_by_role("button").all_inner_texts()
    assert sorted(shown) == sorted(WORDS)
    first = shown.index("the")  # both "the" look alike but have different numbers; the test moves neither
    order = [0 if place == first else 3 if word == "the" else WORDS.index(word) for place, word in enumerate(shown)]
    causal = card.get_by_label("causal mask", exact=True).is_checked()
    mask = torch.ones(5, 5, dtype=torch.bool).tril() if causal else torch.ones(5, 5, dtype=torch.bool)
    (weights, mean), (_, before) = _read(order, mask), _read(range(5), mask)
    assert _numbers(card.locator("text.value")) == pytest.approx(weights[mask].tolist(), abs=0.0051)
    assert _number(card.locator(".said").inner_text()) == pytest.approx(float((mean - before).abs().max()), abs=0.0051)


def _read(order: Sequence[int], mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of the words in this order, and the mean of the outputs."""
    weights = HEAD[0][order][:, order].masked_fill(~mask, -torch.inf).softmax(-1)
    return weights, (weights @ HEAD[1][order]).mean(0)


def _slopes(card: Locator, at: dict[str, float]) -> None:
    slopes = alibi.alibi_slopes(int(at["number of heads"])).tolist()
    rows = card.locator("tbody tr")
    expect(rows).to_have_count(len(slopes))
    shown = [row.split("\t") for row in card.locator("tbody").inner_text().splitlines()]
    written = [1 / float(slope[2:]) if slope.startswith("1/") else float(slope) for _, slope, _ in shown]
    assert written == pytest.approx(slopes, rel=0.0006)
    bias = card.get_by_label("bias", exact=True).is_checked()
    distance = at["distance"]
    for slope, (_, _, value) in zip(slopes, shown, strict=True):
        if bias:
            assert _number(value) == pytest.approx(-slope * distance, rel=0.006, abs=1e-9)
        elif value.startswith("<"):
            assert math.exp(-slope * distance) < 0.001
        else:
            assert _number(value) == pytest.approx(math.exp(-slope * distance), abs=0.00051)


def _frequencies(card: Locator, at: dict[str, float]) -> None:
    scale, length, turn = int(at["scale s"]), 64, 2 * math.pi
    unscaled = rope.rope_frequencies(16).double()
    methods = {
        "unscaled": unscaled,
        "PI": unscaled * scaling.position_interpolation(torch.tensor([1.0]), scale).double(),
        "NTK": rope.rope_frequencies(16, scaling.ntk_base(10_000.0, scale, 16)).double(),
        "YaRN": scaling.yarn_frequencies(16, scale, length).double(),
    }
    rows = [row.split("\t") for row in card.locator("tbody").inner_text().splitlines()]
    assert [name.strip() for name, _ in rows] == list(methods)
    for (name, pairs), frequencies in zip(rows, methods.values(), strict=True):
        wavelengths = _numbers_after(card.locator(f"path[data-method='{name.strip()}'] title"))
        assert wavelengths == pytest.approx((turn / frequencies).tolist(), rel=0.006)
        reached = frequencies * scale * length
        new = (unscaled * length < turn) & (reached > unscaled * length * 1.0001)
        assert _pairs(pairs) == [pair for pair in range(8) if new[pair]]


def _buckets(card: Locator, at: dict[str, float]) -> None:
    offset = torch.tensor(int(at[OFFSET]))
    rows = [row.split("\t") for row in card.locator("tbody").inner_text().splitlines()]
    assert [int(bucket) for _, bucket, _ in rows] == [int(t5.t5_bucket(offset, both)) for both in (True, False)]
    for (_, bucket, shared), both in zip(rows, (True, False), strict=True):
        ends = [end.replace("−", "-") for end in shared.split(" to ")]
        for end, step in ((ends[0], -1), (ends[-1], 1)):
            if end != "…":  # the next offset has another bucket
                assert int(t5.t5_bucket(torch.tensor(int(end)), both)) == int(bucket)
                assert int(t5.t5_bucket(torch.tensor(int(end) + step), both)) != int(bucket)


def _cache(card: Locator, at: dict[str, float]) -> None:
    cached, new = int(at["tokens in the cache"]), int(at["new tokens"])
    seen = card.locator("rect[data-seen]").evaluate_all("cells => cells.map(cell => cell.dataset.seen !== 'hidden')")
    assert seen == attention.causal_mask(new, cached + new).flatten().tolist()
    assert _numbers(card.locator("text.position")) == list(range(cached, cached + new))


def _conveyor(card: Locator, at: dict[str, float]) -> None:
    kept, positions = streaming.streaming_cache(*(int(at[name]) for name in ("tokens read", "sinks", "window")))
    shown = card.locator("rect[data-token]").evaluate_all("all => all.map(square => Number(square.dataset.token))")
    assert shown == kept.tolist()
    assert _numbers(card.locator("text.position")) == positions.tolist()


def _axes(card: Locator, at: dict[str, float]) -> None:
    positions = mrope.mrope_positions([3, tuple(int(at[name]) for name in ("frames", "rows", "columns")), 2])
    expect(card.locator("rect[data-number]")).to_have_count(positions.shape[1])
    assert _numbers(card.locator("text.value")) == positions[:, int(at["token"])].tolist()
    expect(card.locator(".said")).to_contain_text(f"goes on at {int(positions[0, -2])}.")


def _absorbed(card: Locator, at: dict[str, float]) -> None:
    matrix = torch.tensor([[0.8, -0.5, 0.3], [0.2, 0.9, -0.7]])
    angle = 0.5 * torch.tensor(at["key position n"] - at["query position m"])
    rotation = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos())).view(2, 2)
    expected = torch.cat((matrix.flatten(), (rotation @ matrix).flatten()))
    assert _numbers(card.locator("text.entry")) == pytest.approx(
        expected.tolist(), abs=0.0051
    )  # two decimals are shown


def _numbers_after(titles: Locator) -> list[float]:
    return [_number(text.partition(": ")[2]) for text in titles.evaluate_all("all => all.map(t => t.textContent)")]


def _pairs(text: str) -> list[int]:
    if "–" in text:
        first, last = map(int, re.findall(r"\d+", text))
        return list(range(first, last + 1))
    return [int(number) for number in re.findall(r"\d+", text)]


OFFSET = "offset: key position − query position"
PICTURES = {
    "clocks": Picture("lab.moving_clocks()", ("query position m", "key position n", "base"), _clocks),
    "hands": Picture("lab.moving_clocks(keys=False)", ("position p", "base"), _hands),
    "shift": Picture("lab.moving_shift(sinusoidal.shift_matrix)", ("position p", "offset k"), _shift),
    "score": Picture(
        "lab.moving_score()", ("offset m − n", "look exactly this far back: K", "strength of the query"), _score
    ),
    "words": Picture(
        "import torch\nh = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(4))\n"
        "lab.moving_words('the dog bites the man'.split(), h[0].softmax(-1), h[1])",
        (),
        _words,
    ),
    "slopes": Picture("lab.moving_slopes(alibi.alibi_slopes)", ("number of heads", "distance"), _slopes),
    "frequencies": Picture(
        "lab.moving_frequencies(scaling.ntk_base, scaling.yarn_frequencies)", ("scale s",), _frequencies
    ),
    "buckets": Picture("lab.moving_buckets(t5.t5_bucket)", (OFFSET,), _buckets),
    "cache": Picture("lab.moving_cache()", ("tokens in the cache", "new tokens"), _cache),
    "conveyor": Picture(
        "serving.moving_conveyor(streaming.streaming_cache)", ("tokens read", "sinks", "window"), _conveyor
    ),
    "axes": Picture("serving.moving_axes(mrope.mrope_positions)", ("token", "frames", "rows", "columns"), _axes),
    "absorbed": Picture("serving.moving_absorbed()", ("query position m", "key position n"), _absorbed),
}
WITH_POINTER = {"score": "offset m − n", "slopes": "distance", "buckets": OFFSET}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an executed, unsigned notebook of every picture and one figure.

    Its outputs are saved, its prompts are not: otherwise a cell that runs again in the same order would get the same
    number, and the test could not see that it had run.
    """
    folder = tmp_path_factory.mktemp("pictures")
    for name in ("lab.py", "serving_lab.py", "ready_encodings.py"):
        copy_released(COURSE / "source" / name, folder / name)
    set_up = f"import sys\nsys.path.append({str(COURSE)!r})\n{SET_UP}"
    sources = [set_up, FIGURE, *(picture.code for picture in PICTURES.values())]
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    content.metadata.kernelspec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    NotebookClient(content, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in content.cells:
        cell.execution_count = None
    path = folder / "pictures.ipynb"
    nbformat.write(content, path)
    return path


@pytest.fixture(scope="module")
def jupyter(notebook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    folder = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(notebook.parent, folder / "work")
    with JupyterServer(folder / "work", folder / "home") as server:
        yield server


@pytest.fixture
def errors(page: Page) -> list[str]:
    seen: list[str] = []
    page.on("pageerror", lambda error: seen.append(error.message))
    return seen


@pytest.mark.nightly
def test_an_untrusted_notebook_shows_still_pictures(jupyter: JupyterServer, page: Page, shoot: Shoot) -> None:
    lab = LabPage(page, jupyter.url, "pictures.ipynb")
    for number, code in enumerate([FIGURE, *(picture.code for picture in PICTURES.values())]):
        cell = lab.notebook.locator(".jp-CodeCell").nth(number + 1)
        image = cell.locator(".jp-OutputArea-output img")
        expect(image).to_have_count(1)
        expect(image).to_have_attribute("alt", re.compile(r"\w+ .*\w+"))
        image.scroll_into_view_if_needed()
        expect(image).to_have_js_property("complete", True)
        assert image.evaluate("image => image.naturalWidth") > 0, code
        expect(cell.get_by_role("slider")).to_have_count(0)
        assert cell.locator(".jp-OutputArea-output").inner_text().strip() == ""
        shoot(image, f"still-{number}")
    assert figures_without_text(page, ".jp-OutputArea-output") == []


@pytest.mark.nightly
def test_pictures_move_in_jupyterlab(jupyter: JupyterServer, page: Page, shoot: Shoot, errors: list[str]) -> None:
    lab = LabPage(page, jupyter.url, "pictures.ipynb")
    cells = lab.notebook.locator(".jp-CodeCell")
    lab.run(cells.nth(0))
    lab.run(cells.nth(1))
    outputs = {}
    for number, (name, picture) in enumerate(PICTURES.items()):
        outputs[name] = lab.run(cells.nth(number + 2))
        _move(page, outputs[name].get_by_role("group"), name, picture)
    expect(page.locator(".jp-mod-dirty")).not_to_have_count(0)
    outputs["clocks"].get_by_role("slider").first.focus()
    page.keyboard.press("ControlOrMeta+s")
    expect(page.locator(".jp-mod-dirty")).to_have_count(0)
    for theme, title in THEMES.items():
        lab.choose_theme(title)
        for name, output in outputs.items():
            shoot(output, f"{name}-{theme}")
        assert figures_without_text(page, ".jp-OutputArea-output") == []
    assert errors == []


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "scheme"), [(820, "light"), (360, "dark")])
def test_pictures_move_on_a_static_page(
    width: int, scheme: str, notebook: Path, page: Page, shoot: Shoot, errors: list[str], tmp_path: Path
) -> None:
    outputs = [cell.outputs[0].data for cell in nbformat.read(notebook, as_version=4).cells[2:]]
    background = {"light": "#fff", "dark": "#111"}[scheme]
    file = tmp_path / "page.html"
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Pictures</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<body style="margin: 10px; background: {background}">' + "".join(data["text/html"] for data in outputs),
        encoding="utf-8",
    )
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(file.as_uri())
    for number, (name, picture) in enumerate(PICTURES.items()):
        card = page.get_by_role("group").nth(number)
        _move(page, card, name, picture)
        box = card.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width, f"{name} does not fit into {width} pixels"
        assert card.evaluate("card => card.scrollWidth <= card.clientWidth"), f"{name} is cut off"
        shoot(card, f"{name}-static-{scheme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert figures_without_text(page) == []
    assert errors == []


def _move(page: Page, card: Locator, name: str, picture: Picture) -> None:
    """Move every control by keyboard and by mouse; after each step the card agrees with the reference."""
    card.scroll_into_view_if_needed()
    picture.agrees(card, _positions(card, picture))
    for control in picture.controls:
        slider = card.get_by_label(control, exact=True)
        expect(slider).to_have_role("slider")
        slider.focus()
        for key in ("Home", "ArrowRight", "ArrowUp", "ArrowRight", "PageUp", "ArrowLeft"):
            before = slider.input_value()
            page.keyboard.press(key)
            if key != "Home":
                expect(slider).not_to_have_value(before)
            expect(slider).to_be_focused()
            picture.agrees(card, _positions(card, picture))
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box
        for part in (0.9, 0.35):
            before = slider.input_value()
            page.mouse.click(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
            expect(slider).not_to_have_value(before)
            picture.agrees(card, _positions(card, picture))
    if name in WITH_POINTER:
        _point(page, card, picture, WITH_POINTER[name])
    if name == "words":
        dog, man = (card.get_by_role("button", name=f"{word}: the arrow keys move it") for word in ("dog", "man"))
        dog.press("ArrowRight")
        expect(dog).to_be_focused()
        picture.agrees(card, {})
        places = [tile.bounding_box() for tile in (man, dog)]
        assert places[0] and places[1]
        page.mouse.move(places[0]["x"] + 5, places[0]["y"] + 5)
        page.mouse.down()
        page.mouse.move(places[1]["x"] + 5, places[1]["y"] + 5, steps=5)
        page.mouse.up()
        assert card.get_by_role("button").all_inner_texts().index("man") < 4
        picture.agrees(card, {})
        card.get_by_label("causal mask", exact=True).check()
        picture.agrees(card, {})
    if name == "slopes":
        card.get_by_label("bias", exact=True).check()
        picture.agrees(card, _positions(card, picture))
    if name == "clocks":
        angles = card.locator(".note").all_inner_texts()
        before = _positions(card, picture)
        card.get_by_role("button", name="move both on by one").press("Enter")
        after = _positions(card, picture)
        assert [after[control] - before[control] for control in picture.controls] == [1, 1, 0]
        assert card.locator(".note").all_inner_texts() == angles


def _point(page: Page, card: Locator, picture: Picture, control: str) -> None:
    """Move the mouse over the chart: the card shows the values under it."""
    chart = card.locator("svg.read")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    seen = set()
    for part in (0.3, 0.6):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        seen.add(card.get_by_label(control, exact=True).input_value())
        picture.agrees(card, _positions(card, picture))
    assert len(seen) == 2


def _positions(card: Locator, picture: Picture) -> dict[str, float]:
    """Return the values shown beside the sliders; a screen reader reads out the same."""
    shown = {}
    for control in picture.controls:
        slider = card.get_by_label(control, exact=True)
        text = card.locator(f"output[for={slider.get_attribute('id')}]").inner_text()
        assert slider.get_attribute("aria-valuetext") == text
        shown[control] = _number(text)
    return shown
