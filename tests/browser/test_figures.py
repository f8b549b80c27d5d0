"""Every figure of every solution in JupyterLab is loaded, complete, named, and opaque, so that no theme changes it."""

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.axe import figures_without_text
from browser.conftest import Shoot
from browser.lab_page import LabPage
from browser.lab_server import JupyterServer
from helpers import COURSE
from PIL import Image
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.nightly

SOLUTIONS = sorted((COURSE / "solutions").glob("week*/week*.ipynb"))
IMAGE = re.compile(r'<img alt="[^"]+" src="data:image/png;base64,([^"]+)">')
OUTPUT = "xpath=ancestor::*[contains(@class, 'jp-OutputArea')][last()]"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """JupyterLab on a copy of the executed solutions."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(COURSE / "solutions", folder / "work")
    with JupyterServer(folder / "work", folder / "home") as server:
        yield server


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda path: path.stem)
def test_every_figure_is_shown(solution: Path, reader: JupyterServer, page: Page, shoot: Shoot) -> None:
    figures = _figures(solution)
    assert figures, f"{solution.name} has no figure"
    for name, png in figures:
        opacity = Image.open(io.BytesIO(png)).convert("RGBA").getchannel("A")
        assert opacity.getextrema() == (255, 255), f"{name} lets the theme through"
    lab = LabPage(page, reader.url, f"{solution.parent.name}/{solution.name}")
    images = lab.notebook.locator(".jp-OutputArea-output img")
    expect(images).to_have_count(len(figures))
    for index, (name, _) in enumerate(figures):
        image = images.nth(index)
        image.scroll_into_view_if_needed()
        expect(image).to_have_js_property("complete", True)
        size = image.evaluate(
            "i => ({natural: i.naturalWidth, shown: i.getBoundingClientRect().right, "
            "room: i.closest('.jp-OutputArea').getBoundingClientRect().right})"
        )
        assert size["natural"] > 0, f"{name} is not loaded"
        assert size["shown"] <= size["room"] + 1, f"{name} is cut off on the right"
        shoot(image.locator(OUTPUT), f"{name}-light")
    assert figures_without_text(page, ".jp-OutputArea-output") == []
    lab.choose_theme("JupyterLab Dark")
    for index, (name, _) in enumerate(figures):
        shoot(images.nth(index).locator(OUTPUT), f"{name}-dark")


def _figures(path: Path) -> list[tuple[str, bytes]]:
    """Return name and PNG of each picture; the name comes from the caption below it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found: list[tuple[str, bytes]] = []
    for index, cell in enumerate(cells):
        markup = ["".join(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", [])]
        pngs = [png for text in markup for png in IMAGE.findall(text)]
        caption = "".join(cells[index + 1]["source"]) if index + 1 < len(cells) else ""
        number = re.search(r"\*\*Figure (\d+\.\d+)", caption)
        for png in pngs:
            name = f"figure-{number[1]}" if number else f"{path.stem}-cell-{index}"
            found.append((name, base64.b64decode(png)))
    return found
