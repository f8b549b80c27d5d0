"""A student in JupyterLab opens week 3, runs it, fails a visible check, fixes the answer and presses Validate."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import Shoot
from browser.lab_page import LabPage
from browser.lab_server import JupyterServer
from helpers import COURSE, WEEK3
from playwright.sync_api import Page, expect

WRONG_SIGN = """def rope_frequencies(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    return base ** (torch.arange(0, head_dim, 2) / head_dim)
"""
RIGHT = WRONG_SIGN.replace("(torch", "-(torch")
VALIDATION_SECONDS = 1200


@pytest.fixture
def student(tmp_path: Path) -> Iterator[JupyterServer]:
    """JupyterLab on a folder with what students receive, and nothing else."""
    shutil.copytree(COURSE / "notebooks" / WEEK3, tmp_path / "work" / WEEK3)
    with JupyterServer(tmp_path / "work", tmp_path / "home") as server:
        yield server


def test_a_student_answers_an_exercise(student: JupyterServer, page: Page, shoot: Shoot) -> None:
    check_source = _source("rope_frequencies_check")
    lab = LabPage(page, student.url, f"{WEEK3}/{WEEK3}.ipynb")
    expect(lab.notebook.locator("h1").first).to_contain_text("Week 3")
    expect(lab.notebook.locator("mjx-container").first).to_be_visible()  # formulas, without a network
    shoot(page, "student-1-opened")
    expect(lab.run(lab.code_cell("import lab"))).to_have_text("")

    answer = lab.code_cell("def rope_frequencies(head_dim")
    check = lab.check_below(answer)
    lab.run(answer)
    expect(lab.run(check)).to_contain_text("NotImplementedError")
    shoot(page, "student-2-unanswered")

    lab.answer(answer, WRONG_SIGN)
    expect(lab.run(answer)).to_have_text("")
    said = lab.run(check)
    message = _message(check_source, "the frequencies must fall")
    expect(said).to_contain_text(f"AssertionError: {message}")
    expect(said).not_to_contain_text("Looks right")
    shoot(page, "student-3-wrong")

    lab.answer(answer, RIGHT)
    expect(lab.run(answer)).to_have_text("")
    expect(lab.run(check)).to_have_text(re.compile(r"^Looks right\."))
    shoot(page, "student-4-right")

    page.locator(".validate-button").get_by_text("Validate").click()
    dialog = page.locator("dialog.jp-Dialog")
    expect(dialog).to_contain_text("Validation Results", timeout=VALIDATION_SECONDS * 1000)
    shoot(page, "student-5-validated")
    failed = dialog.locator(".jp-RenderedText pre").all_inner_texts()[::2]  # cells and errors alternate
    assert sorted(map(_plain, failed)) == sorted(map(_plain, _unanswered_but("rope_frequencies_check")))
    dialog.get_by_role("button", name="Ok").click()
    expect(dialog).to_have_count(0)

    # Validate saves first: the file on disk is what the student sees and would submit.
    saved = json.loads((student.root / WEEK3 / f"{WEEK3}.ipynb").read_text(encoding="utf-8"))
    assert any("".join(cell["source"]).strip() == RIGHT.strip() for cell in saved["cells"])


def _cells() -> dict[str, dict]:
    notebook = json.loads((COURSE / "notebooks" / WEEK3 / f"{WEEK3}.ipynb").read_text(encoding="utf-8"))
    graded = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in graded}


def _source(grade_id: str) -> str:
    return "".join(_cells()[grade_id]["source"])


def _unanswered_but(answered: str) -> list[str]:
    """Return the cells that Validate should report: the other visible checks and the free-text answers."""
    texts = [
        grade_id
        for grade_id, cell in _cells().items()
        if cell["cell_type"] == "markdown" and cell["metadata"]["nbgrader"]["solution"]
    ]
    checks = [grade_id for grade_id in _cells() if grade_id.endswith("_check") and grade_id != answered]
    return [_source(grade_id) for grade_id in texts + checks]


def _message(source: str, beginning: str) -> str:
    found = re.search(f'"({beginning}[^"]*)"', source)
    assert found, f"the visible check no longer says {beginning!r}"
    return found[1]


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
