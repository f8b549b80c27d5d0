"""Text notebook ↔ instructor's notebook, in both directions, byte-stable.

jupytext does the parsing. Added here: nbgrader metadata may leave out keys at their default value, and cell ids are
derived from the grade_id or the content, so that building twice gives the same bytes.
"""

import hashlib
import re

import jupytext
import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.build.opening import with_tables, without_tables
from autograder.build.preprocessors import KERNEL
from autograder.errors import TextError

DEFAULTS = {"grade": False, "locked": False, "solution": False, "task": False, "schema_version": 3}
FORMAT = {"extension": ".py", "format_name": "percent", "notebook_metadata_filter": "-all"}  # without a YAML header
FOLDED = {"source_hidden": True}  # for a cell that nobody needs to read; JupyterLab shows its first line
AFTER = ("After you have run it", "After you have answered")  # titles of the folds that hold the answer to a prediction
FOLD_AFTER = re.compile(r"<summary>(After .*?)</summary>")
KEPT = ("tags", "jupyter", "nbgrader")


def to_notebook(text: str) -> NotebookNode:
    """Convert a text notebook to the instructor's notebook."""
    notebook: NotebookNode = jupytext.reads(text, fmt="py:percent")
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info={"name": "python"})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: set[str] = set()
    for cell in notebook.cells:
        cell.source = with_tables(cell.source)
        if odd := set(FOLD_AFTER.findall(cell.source)) - {*AFTER}:
            raise TextError(f"a fold is called {min(odd)!r}; it is one of {', '.join(map(repr, AFTER))}")
        if "nbgrader" in cell.metadata:
            cell.metadata["nbgrader"] = _expanded(cell)
            if _is_check(cell):
                cell.metadata["jupyter"] = FOLDED
        elif cell.cell_type == "code" and "experiment" not in cell.metadata.get("tags", []):
            raise TextError(
                f"a code cell is neither graded nor locked nor tagged experiment; it begins: {_beginning(cell)}"
            )
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in KEPT if key in cell.metadata})
        cell.id = _cell_id(cell, seen)
    nbformat.validate(notebook)
    return notebook


def to_text(notebook: NotebookNode) -> str:
    """Convert the instructor's notebook to a text notebook; the inverse of ``to_notebook``."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = NotebookNode()
    for cell in notebook.cells:
        cell.source = without_tables(cell.source)
        if "nbgrader" in cell.metadata:
            if _is_check(cell):
                cell.metadata.pop("jupyter", None)
            cell.metadata["nbgrader"] = _contracted(cell)
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in KEPT if cell.metadata.get(key)})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return str(jupytext.writes(notebook, fmt=FORMAT))


def _is_check(cell: NotebookNode) -> bool:
    """Whether this is a visible check: students run it, and need not read it."""
    of_grading = cell.metadata["nbgrader"]
    return bool(of_grading.get("grade")) and not of_grading.get("solution") and not of_grading.get("points")


def _expanded(cell: NotebookNode) -> NotebookNode:
    given = dict(cell.metadata["nbgrader"])
    if "grade_id" not in given:
        raise TextError(f"nbgrader metadata without a grade_id; the cell begins: {_beginning(cell)}")
    full = {**DEFAULTS, **given}
    if full["grade"] and "points" not in full:
        raise TextError(f"the graded cell {given['grade_id']} has no points")
    if full["grade"] and not full["solution"]:
        full["locked"] = True
    full["cell_type"] = cell.cell_type
    return NotebookNode(dict(sorted(full.items())))


def _contracted(cell: NotebookNode) -> NotebookNode:
    full = dict(cell.metadata["nbgrader"])
    order = ["grade_id", "grade", "locked", "solution", "task", "points"]
    implied_lock = full.get("grade") and not full.get("solution")
    kept = {
        key: full[key]
        for key in order
        if key in full
        and full[key] != DEFAULTS.get(key)
        and not (key == "locked" and implied_lock)
        and not (key == "points" and not full.get("grade"))
    }
    return NotebookNode(kept)


def _cell_id(cell: NotebookNode, seen: set[str]) -> str:
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
    base = (
        re.sub(r"[^A-Za-z0-9_-]", "-", grade_id)[:60]
        if grade_id
        else hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
    )
    name, number = base, 2
    while name in seen:
        name, number = f"{base}-{number}", number + 1
    seen.add(name)
    return name


def _beginning(cell: NotebookNode) -> str:
    """The first line of a cell, to find it by."""
    lines = [line for line in cell.source.splitlines() if line.strip()]
    return repr(lines[0][:80]) if lines else "nothing, it is empty"
