"""Puts the mark scheme of each text answer below it in `solutions/`, for people who learn alone."""

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.build.regions import extract_region

TAG = "full-answer"
OPENING = "**A full answer says…** (the mark scheme, to judge your own answer by)"


def add_full_answers(solution: NotebookNode, source: NotebookNode) -> None:
    """Put the schemes of the instructor's notebook ``source`` below the answers."""
    schemes = _schemes(source)
    cells = []
    for cell in solution.cells:
        cells.append(cell)
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in schemes:
            cells.append(
                nbformat.v4.new_markdown_cell(
                    f"{OPENING}\n\n{schemes[grade_id]}", id=f"{grade_id[:50]}-{TAG}", metadata={"tags": [TAG]}
                )
            )
    solution.cells = cells


def _schemes(source: NotebookNode) -> dict[str, str]:
    """The mark scheme of each text answer, from the last question before the answer."""
    found: dict[str, str] = {}
    scheme = ""
    for cell in source.cells:
        scheme = extract_region(cell.source, "MARK SCHEME") or scheme
        marks = cell.metadata.get("nbgrader", {})
        if scheme and cell.cell_type == "markdown" and marks.get("grade") and marks.get("solution"):
            found[marks["grade_id"]], scheme = scheme, ""
    return found
