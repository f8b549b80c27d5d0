"""Which names a cell defines, and which it takes from elsewhere. Reads source text, runs nothing."""

import ast
import builtins
from functools import lru_cache
from typing import Any

MAX_PARSED = 50_000  # parsing takes up to a thousand times the memory of the text


@lru_cache(maxsize=256)  # the instructor's cells come with every submission
def defined_names(source: str) -> frozenset[str]:
    """Functions, classes, imports and assignments of a cell; read off the line starts if it does not parse."""
    tree = parsed(source)
    if tree is None:
        heads = [line[:200].split(" ", 1)[1] for line in source.splitlines() if line.startswith(("def ", "class "))]
        return frozenset(head.split("(")[0].strip(" :") for head in heads)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return frozenset(found)


def free_names(source: str, known: dict[str, Any]) -> list[str]:
    """Names a test cell uses that are neither its own nor in ``known`` nor built in: the student's."""
    return [name for name in _foreign_names(source) if name not in known]


@lru_cache(maxsize=1024)
def _foreign_names(source: str) -> tuple[str, ...]:
    tree = ast.parse(source)
    bound = defined_names(source) | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(name for name in used if name not in bound and not hasattr(builtins, name))


def parsed(source: str) -> ast.Module | None:
    if len(source) > MAX_PARSED:
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
