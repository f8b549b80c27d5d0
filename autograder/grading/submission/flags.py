"""Flags for a person to look at: calls of a ready-made solution where the task is to write it. They cost no points."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nbformat.notebooknode import NotebookNode

from autograder.course import is_week
from autograder.grading.source_names import MOST_CELLS, defined_names, linking_names, parsed, statements
from autograder.manifest import FROM_SCRATCH, READY_MADE_LIBRARIES

WORD, IMPORTS = re.compile(r"\w+"), re.compile(r"\s*(?:from|import)\s")
ANYTHING, STORED = "*", (ast.Attribute, ast.Subscript)
HIDDEN = {"exec", "eval", "globals", "locals", "vars", "setattr"}
MENTION = re.compile(r"(?<=[.'\"])\w+")


@dataclass(frozen=True)
class Flag:
    """A use of a ready-made solution. ``grade_id`` names the answer that may not be the student's own, if any, and
    ``cell`` the answer in whose cell the use stands; empty in a cell of the student's own."""

    grade_id: str
    cell: str
    name: str
    line: int
    text: str

    def sentence(self) -> str:
        quoted = "".join(c if c.isprintable() and c not in "`<>&" else "?" for c in self.text.strip())[:100]
        where = f"line {self.line} of {self.cell or 'a cell besides the answers'}"
        return f"{where} uses {self.name}, which is to be written, not called: `{quoted}`"


Part = tuple[NotebookNode, str]  # a cell, and the part of it that counts


def flags(assignment: str, parts: Iterable[Part]) -> list[Flag]:
    """Return the flags of these parts of a student's cells; none outside the weeks. Reads the text, runs nothing."""
    if not is_week(assignment):
        return []
    banned = {name: grade_id for grade_id, names in FROM_SCRATCH.get(assignment, {}).items() for name in names}
    found = []
    for cell, part in parts:
        lines, own = cell.source.splitlines(), _answer_in(cell)
        for name, line in _mentions(part):
            if name in banned or name in READY_MADE_LIBRARIES:
                found.append(
                    Flag(banned.get(name, own), own, name, line, lines[line - 1] if line <= len(lines) else "")
                )
    return sorted(dict.fromkeys(found), key=lambda flag: (flag.cell, flag.line))[:20]


def _answer_in(cell: NotebookNode) -> str:
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def what_counts(cells: list[NotebookNode]) -> Iterator[Part]:
    """Yield the answers, and of the student's own cells the statements on which an answer depends. To compare an answer
    with the ready-made function is a good habit and no flag."""
    makers: dict[str, list[Part]] = {}
    for number, cell in enumerate(cell for cell in cells if not _answer_in(cell)):
        parts = statements(cell.source, only_definitions=False) if number < MOST_CELLS else []
        for part in parts or [cell.source]:
            for name in _makes(part) if parts else [ANYTHING]:
                makers.setdefault(name, []).append((cell, part))
    answers = [(cell, cell.source) for cell in cells if _answer_in(cell)]
    reached = [*answers, *makers.pop(ANYTHING, ())]
    while reached:
        cell, part = reached.pop()
        yield cell, part
        reached += [maker for name in linking_names(part) for maker in makers.pop(name, ())]


def _makes(source: str) -> set[str]:
    """Return the names that a statement defines, or ``ANYTHING`` where the text does not show them."""
    tree = parsed(source)
    if tree is None:
        return {ANYTHING}
    stores = any(isinstance(node, STORED) and isinstance(node.ctx, ast.Store) for node in ast.walk(tree))
    hidden = HIDDEN & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {*defined_names(source), *([ANYTHING] if stores or hidden else [])}


def _mentions(source: str) -> Iterator[tuple[str, int]]:
    """Yield attributes, imported names and modules, and strings (as for getattr), each with its line. Plain names are
    left out: they may be the student's own functions."""
    tree = parsed(source)
    if tree is None:
        yield from _mentions_in_text(source)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.split(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0], node.lineno
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)


def _mentions_in_text(source: str) -> Iterator[tuple[str, int]]:
    """Do the same for text that is not Python. It may still run: IPython has lines of its own, such as %precision."""
    for number, line in enumerate(source.splitlines(), 1):
        found = WORD.findall(line) if IMPORTS.match(line) else MENTION.findall(line)
        yield from ((name, number) for name in found)
