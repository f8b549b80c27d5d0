"""Marked regions in cells: solutions, hidden tests, mark schemes."""

import re
from collections.abc import Mapping
from typing import Any

from nbformat.notebooknode import NotebookNode
from traitlets.config import Config

from autograder.errors import TextError

REGIONS = ("HIDDEN TESTS", "SOLUTION", "MARK SCHEME")
NEARLY_A_MARK = re.compile(
    r"[\W_]*(BEGIN|END)[\W_]*(HIDDEN[\W_]*TESTS?|SOLUTIONS?|MARK[\W_]*SCHEMES?)[\W_]*", re.IGNORECASE
)
CODE_STUB = ("# YOUR CODE HERE", "raise NotImplementedError")
TEXT_STUB = ("YOUR ANSWER HERE",)


def replace_region(source: str, name: str, stub: tuple[str, ...] = ()) -> tuple[str, bool]:
    """Replace every ``BEGIN name … END name`` by ``stub``, equally indented; also return whether there was one."""
    lines, inside, found = [], False, False
    first, *_ = source.lstrip().split("\n")
    where = f"in the cell that begins {first[:80]!r}"
    for line in source.split("\n"):
        if f"BEGIN {name}" in line:
            if inside:
                raise TextError(f"BEGIN {name} inside another one, {where}")
            inside = found = True
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in stub]
        elif f"END {name}" in line:
            if not inside:
                raise TextError(f"END {name} without a BEGIN, {where}")
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise TextError(f"BEGIN {name} without an END, {where}")
    return "\n".join(lines), found


def check_marks(source: str) -> None:
    """Raise ``TextError`` for a mark without its other half, or a mistyped one: students would see what it hides."""
    for line in source.split("\n"):
        is_mark = any(f"{half} {name}" in line for half in ("BEGIN", "END") for name in REGIONS)
        if NEARLY_A_MARK.fullmatch(line) and not is_mark:
            raise TextError(f"{line.strip()!r} is no mark; write it as ### BEGIN HIDDEN TESTS")
    for name in REGIONS:
        replace_region(source, name)


def extract_region(source: str, name: str) -> str:
    """The text between ``BEGIN name`` and ``END name``; empty if there is no such region."""
    _, begin, rest = source.partition(f"### BEGIN {name}\n")
    return rest.partition(f"### END {name}")[0].strip() if begin else ""


def unmark(source: str, name: str) -> str:
    """Keep the text in the regions, and drop the marker lines."""
    return "\n".join(line for line in source.split("\n") if f"BEGIN {name}" not in line and f"END {name}" not in line)


def clear_solution(cell: Mapping[str, Any]) -> str:
    """An answer cell's source as students receive it."""
    by_hand = "by-hand" in cell["metadata"].get("tags", [])
    stub = () if by_hand else CODE_STUB if cell["cell_type"] == "code" else TEXT_STUB
    source, found = replace_region(cell["source"], "SOLUTION", stub)
    if not found:
        raise TextError(f"the answer cell {cell.get('id')} needs a ### BEGIN SOLUTION … ### END SOLUTION region")
    return source.rstrip("\n")


def clear_stock_solutions(notebook: NotebookNode, config: Config, assignment: str) -> None:
    """Put nbgrader's stubs into an instructor's own assignment; a solution without a region is replaced as a whole."""
    from nbgrader.preprocessors import ClearSolutions  # imported late: the weeks do not need it

    try:
        ClearSolutions(config=config).preprocess(notebook, {})
    except RuntimeError as error:
        raise TextError(f"source/{assignment}/{assignment}.ipynb: {error}") from error


def clear_hidden(source: str) -> str:
    """Remove the hidden tests and the mark scheme."""
    source, _ = replace_region(source, "HIDDEN TESTS")
    source, _ = replace_region(source, "MARK SCHEME")
    return source.rstrip("\n")
