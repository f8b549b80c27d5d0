"""Finds the names that a cell defines and those it takes from elsewhere. Reads source text, runs nothing."""

import ast
import builtins
import itertools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

MOST_STATEMENTS = 200  # of a cell that is taken apart
MOST_CELLS = 100  # of a student's own that are taken apart; a notebook may hold thousands
MAX_PARSED, MAX_KEPT = 50_000, 4_000  # characters; a tree takes up to a thousand times the memory of the text
MOST_LEFT_OUT, MOST_READ_AGAIN = 40, 100_000  # blocks of a cell, after each of which it is read again; characters
BEGINS = re.compile(r"(?!#|(?:else|elif|except|finally)\b)\S")  # a line that can begin a statement outside all others
# Begins no statement with a body, but has indented lines: they go on with the block above.
CUTS = re.compile(r"(?!@|(?:async|class|def|for|if|match|try|while|with)\b|.*[:([{,\\][ \t]*\n).*\n(?:.*\n)*?[ \t]")
CLOSING = (")", "]", "}")
WORD, NAMED = re.compile(r"[A-Za-z_]\w*"), (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
INNER = (*NAMED, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # with names of their own
IPYTHONS = re.compile(r"^([ \t]*)[%!].*", re.MULTILINE)


@lru_cache(maxsize=256)  # the instructor's cells come with every submission
def defined_names(source: str) -> frozenset[str]:
    """Return the names that a cell defines or imports; if it does not parse, only its functions and classes."""
    tree = parsed(source)
    if tree is None:
        heads = [line[:200].split(" ", 1)[1] for line in source.splitlines() if line.startswith(("def ", "class "))]
        return frozenset(head.split("(")[0].strip(" :") for head in heads)
    return frozenset().union(*map(_given_by, ast.walk(tree)))


def bound_names(source: str) -> set[str]:
    """Return the names that a cell gives to the notebook: those of ``defined_names`` that are not inside a function, a
    class or a comprehension."""
    tree = parsed_cell(source)
    if tree is None:
        return set(defined_names(source))
    found, waiting = set[str](), list[ast.AST](tree.body)
    while waiting:
        node = waiting.pop()
        found |= _given_by(node)
        if not isinstance(node, INNER):
            waiting += ast.iter_child_nodes(node)
    return found


def _given_by(node: ast.AST) -> set[str]:
    """Return the names that this node itself gives to something, or imports."""
    if isinstance(node, NAMED):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def free_names(source: str, known: dict[str, Any]) -> list[str]:
    """Names a test cell uses that are neither its own nor in ``known`` nor built in: the student's."""
    return [name for name in foreign_names(source) if name not in known]


@lru_cache(maxsize=1024)
def foreign_names(source: str) -> tuple[str, ...]:
    """Return the names that a cell takes from elsewhere, but for what is built in; none if it does not parse."""
    plain = IPYTHONS.sub(r"\1pass", source)
    tree = parsed(plain)
    if tree is None:
        return ()
    bound = defined_names(plain) | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(name for name in used if name not in bound and not hasattr(builtins, name))


def parsed(source: str) -> ast.Module | None:
    if len(source) > MAX_PARSED:
        return None
    return _kept_tree(source) if len(source) <= MAX_KEPT else _tree(source)


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_kept_tree = lru_cache(maxsize=64)(_tree)  # intake asks several times about each cell; nobody changes the tree


@lru_cache(maxsize=1024)
def linking_names(source: str) -> frozenset[str]:
    """Return the names by which a cell can depend on others: those that it takes from elsewhere, and its own functions
    and classes, which another cell can replace; not methods, which many classes share. If it does not parse, all its
    words."""
    tree = parsed(source)
    if tree is None:
        return frozenset(WORD.findall(source))
    return frozenset(node.name for node in _statements(tree.body) if isinstance(node, NAMED)) | {*foreign_names(source)}


@lru_cache(maxsize=256)
def mentioned_words(source: str) -> frozenset[str]:
    """Return the words of a cell's code, those in its strings among them, but not those of docstrings and comments. If
    it does not parse, all its words."""
    tree = parsed_cell(source)
    if tree is None:
        return frozenset(WORD.findall(source))
    nodes = list(ast.walk(tree))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # a string alone says, and does, nothing
    strings = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return names.union(*map(WORD.findall, strings))


@lru_cache(maxsize=256)
def is_plain_python(source: str) -> bool:
    """Whether IPython would run a cell as it is. A bare name on a single line may be a magic, and Python takes a copied
    prompt for an annotation."""
    return "\n" in source.strip() and "In [" not in source and parsed(source) is not None


def parsed_cell(source: str) -> ast.Module | None:
    """Parse a notebook cell, with ``pass`` in place of IPython's own lines."""
    return parsed(IPYTHONS.sub(r"\1pass", source))


def readable(source: str) -> tuple[str, list[str]]:
    """Return a cell with empty lines in place of the blocks that Python cannot read, and these blocks, each on its lines.
    A block goes from one unindented line to the next. If there are too many, nothing is left out."""
    lines, left_out = source.split("\n"), list[str]()
    begins = [n for n, line in enumerate(lines) if not n or (BEGINS.match(line) and lines[n - 1][:1] != "@")]
    for _ in range(min(MOST_LEFT_OUT, MOST_READ_AGAIN // (len(source) + 1))):
        try:
            ast.parse(IPYTHONS.sub(r"\1pass", "\n".join(lines)))
        except SyntaxError as error:
            first = last = bisect_right(begins, max(error.lineno or 1, 1) - 1) - 1
        except (ValueError, RecursionError, MemoryError):
            break
        else:
            return "\n".join(lines), sorted(left_out, reverse=True)  # one begins with the empty lines above it
        blocks = ["\n".join(lines[start:end]) for start, end in itertools.pairwise([*begins, len(lines)])]
        block, above = blocks[last], max(last - 1, 0)
        if parsed_cell(block):  # only here Python notices that one above is not complete
            first = last = next((n for n in range(above, -1, -1) if not parsed_cell(blocks[n])), last)
        elif CUTS.match(block) or (block[:1] in CLOSING and not parsed_cell(blocks[above])):
            first = above
        last += sum(1 for _ in itertools.takewhile(lambda below: below[:1] in CLOSING, blocks[last + 1 :]))
        start, end = begins[first], [*begins, len(lines)][last + 1]
        left_out.append("\n" * start + "\n".join(lines[start:end]).rstrip())
        lines[start:end] = [""] * (end - start)
    return source, []


def names_in(block: str) -> set[str]:
    """Return the names that a block which Python cannot read may define."""
    return set(re.findall(r"^(?:def |class )?(\w+)", block, re.MULTILINE))


def bounds(block: str) -> tuple[int, int]:
    """Return the lines of a block, as the bounds of a slice."""
    return len(block) - len(block.lstrip("\n")), block.count("\n") + 1


def settled_names(source: str) -> dict[str, bool]:
    """Return the names that a cell defines outside functions, not from their own old value; ``False`` marks a stub."""
    tree = parsed_cell(source)
    if tree is None:
        return dict.fromkeys(defined_names(source), True)
    found: dict[str, bool] = {}
    for node in _statements(tree.body):
        if isinstance(node, NAMED):
            found[node.name] = "NotImplementedError" not in source or not _is_stub(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            used = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
            found |= dict.fromkeys(_assigned(node) - used, True)
    return found


def without_names(source: str, names: frozenset[str]) -> str:
    """A cell without the statements that define these names."""
    text, left_out = readable(source)
    tree = parsed_cell(text)
    if tree is None or not names:
        return source
    parts = [(lines_of(node), _defined(node)) for node in tree.body]
    parts += [(bounds(block), names_in(block)) for block in left_out]
    lines: list[str | None] = list(source.split("\n"))
    for (first, end), defined in parts:
        if defined & names:
            lines[first:end] = [None] * (end - first)
    return "\n".join(line for line in lines if line is not None).strip("\n")


def statements(source: str, only_definitions: bool, but: Collection[str] = ()) -> list[str]:
    """Return a cell's statements, each on its lines; none if it does not parse or has too many. Left out are those that
    define a name in ``but``; and with ``only_definitions`` all but imports, functions, classes and assignments that call
    nothing."""
    tree = parsed_cell(source)
    lines, found = source.split("\n"), []
    for node in tree.body if tree and len(tree.body) <= MOST_STATEMENTS else ():
        if only_definitions and not is_definition(node):
            continue
        first, end = lines_of(node)
        part = "\n".join(lines[first:end])
        if not defined_names(part) & set(but):
            found.append("\n" * first + part)
    return found


def is_definition(node: ast.stmt) -> bool:
    """Whether this is an import, a function, a class, or an assignment that calls nothing as it runs."""
    if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Lambda):
        return not any(isinstance(each, ast.Call) for each in ast.walk(node))
    return isinstance(node, (ast.Assign, *DEFINING))


DEFINING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def lines_of(node: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement, decorators included, as the bounds of a slice."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return first - 1, node.end_lineno or node.lineno


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that a cell runs, including those under an ``if`` or ``try``."""
    for node in body:
        yield node
        if not isinstance(node, NAMED):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))


def _defined(node: ast.stmt) -> set[str]:
    return {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else _assigned(node)


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    named = [name for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]
    return {name.id for name in named if isinstance(name.ctx, ast.Store)}


def _is_stub(node: ast.AST) -> bool:
    """Whether a function, or a method of a class, still ends with the stub's ``NotImplementedError``."""
    functions = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(
        isinstance(last := function.body[-1], ast.Raise) and "NotImplementedError" in ast.dump(last)
        for function in functions
    )
