"""Experiments run on the student's own functions: what they print must not depend on how a right answer rounds.

Each week's cells run twice, with the answers of the text and with the plainest right ones of the banks, many of which
compute in float32. Cells that train, and cells that depend on them, are left out.
"""

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import jupytext
import matplotlib
import matplotlib.pyplot as plt
import pytest
from course.weeks import WEEKS

from autograder.grading.sandbox.worker import simulated_device
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.nightly


def names(code: str, context: type[ast.expr_context]) -> set[str]:
    """Return the names that the code loads, or those that it stores or defines."""
    found = {
        node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }
    if context is ast.Store:
        found |= {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return found


def printed(text: Path, plain: bool) -> dict[str, str]:
    """Return what each experiment prints, by its cell's source; ``plain``: with the banks' first right answers."""
    namespace: dict[str, Any] = {}
    missing: set[str] = set()
    found: dict[str, str] = {}
    for cell in jupytext.read(text).cells:
        grading = cell.metadata.get("nbgrader", {})
        if cell.cell_type != "code" or grading.get("grade"):
            continue
        experiment = "experiment" in cell.metadata.get("tags", [])
        if experiment and (re.search(r"(?m)^# Trains ", cell.source) or names(cell.source, ast.Load) & missing):
            missing |= names(cell.source, ast.Store) - set(namespace)
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(cell.source, text.name, "exec"), namespace)
        plt.close("all")
        missing -= set(namespace)
        if experiment:
            found[cell.source] = output.getvalue()
        right = [each for each in bank(text.stem, grading.get("grade_id", "")) if each.is_right]
        if plain and right:
            namespace[grading["grade_id"]] = right[0].subject
    return found


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the students' helper files importable, as beside a notebook, and draw nothing."""
    matplotlib.use("Agg")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "source"))
    monkeypatch.syspath_prepend(str(Path(simulated_device.__file__).parent))
    monkeypatch.chdir(Path(__file__).resolve().parents[2] / "source")


# Week 7's experiments take apart a block that the bank's plain answer builds differently; one of week 8 prints times.
@pytest.mark.parametrize("text", WEEKS[:6], ids=lambda path: path.stem)
def test_experiments_print_the_same_with_plain_answers(text: Path, released: None) -> None:
    with_reference, with_plain = printed(text, plain=False), printed(text, plain=True)
    assert any(with_reference.values())
    assert {code: lines.splitlines() for code, lines in with_plain.items()} == {
        code: lines.splitlines() for code, lines in with_reference.items()
    }
