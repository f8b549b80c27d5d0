"""Find what a student's answers import that is not installed where they are graded. Reads the text, runs nothing."""

import ast
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator

from autograder.grading.source_names import parsed_cell

WRITTEN = re.compile(r"^%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(\w+)\.py[ \t]*$", re.MULTILINE)


def not_here(sources: Collection[str], files: Collection[str]) -> list[str]:
    """Return the modules that these texts import, outside ``try``, and that neither Python nor ``files`` has, nor a
    cell that begins with ``%%writefile`` makes."""
    trees = map(parsed_cell, sources)
    imported = sorted({name for tree in trees if tree for name in _imported(tree.body)})
    given = {file.split("/")[0].removesuffix(".py") for file in files}.union(*map(WRITTEN.findall, sources))
    return [name for name in imported if name not in given and not _is_installed(name)]


def _imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]
        elif not isinstance(node, ast.Try):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # of a module that says nothing of its origin, as __main__
        return True
