"""Questions about one submitted cell, or a part of it: whether it is code, whose text it is, what was added to it."""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from nbformat.notebooknode import NotebookNode

from autograder.build.regions import TEXT_STUB, clear_hidden
from autograder.course import Cell, Role
from autograder.grading.source_names import IPYTHONS, is_definition, lines_of, parsed, parsed_cell, settled_names

MARKUP = re.compile(r"[\s*_#>`~-]+")
WORD = re.compile(r"[^\W\d_]{2,}")
POINTS = re.compile(r"\*\*\d+ points? · ")  # how the line below an exercise's heading begins
NOT_IMPLEMENTED = "raise NotImplementedError"
GLUES = ("\n", "")  # a cell is cut between lines, or within one
FEW_WORDS = 4  # in a code cell that holds an answer; fewer are a label
MOST_LINES = 1_000  # in a cell that is compared with the course's text
MOST_CODE = 20_000  # characters of a code cell that are searched for words
NEW = "in a new cell"
COURSES = (Role.TEXT, Role.LOCKED)


@dataclass(eq=False)
class Piece:
    """A submitted cell or a part of one, and the instructor's cell it matches, if any."""

    cell: NotebookNode
    place: Cell | None = None
    where: str = NEW

    @property
    def source(self) -> str:
        text: str = self.cell.source
        return text

    @property
    def is_code(self) -> bool:
        return bool(self.cell.cell_type == "code")

    @property
    def names(self) -> dict[str, bool]:
        """The names it defines, each with whether it is more than a stub. Text that is not Python defines none."""
        is_python = self.is_code or parsed_cell(self.source) is not None
        return settled_names(self.source) if is_python else {}

    def with_source(self, source: str, **changes: object) -> "Piece":
        """Return a copy with another text."""
        return Piece(NotebookNode(self.cell, source=source, **changes), self.place, self.where)


def is_blank(cell: Cell, source: str) -> bool:
    """Whether nothing was written where this answer belongs."""
    if cell.cell_type == "code":
        return source.strip() in ("", cell.source.strip())
    return MARKUP.sub("", source) in {"", *(MARKUP.sub("", stub) for stub in (cell.source, *TEXT_STUB))}


@lru_cache(maxsize=2000)
def given(source: str) -> str:
    """Return the part of a course cell that students were given."""
    return clear_hidden(source).strip()


def is_unchanged(piece: Piece) -> bool:
    return piece.place is not None and piece.source.strip() == given(piece.place.source)


def own_lines(source: str, text: str) -> str:
    """Return what a student added to a text of the course. Its line of points may have changed since."""
    if source.strip() == text:
        return ""
    lines, courses = source.strip().split("\n"), text.split("\n")
    if len(lines) > MOST_LINES:
        return source
    lines, courses = [line.rstrip() for line in lines], [line.rstrip() for line in courses]
    found: list[str] = []
    compared = difflib.SequenceMatcher(lambda line: not line, lines, courses, autojunk=False)
    for kind, start, end, first, last in compared.get_opcodes():
        if kind in ("delete", "replace"):
            added = (line for line in lines[start:end] if not POINTS.match(line))
            found += [_rest_of_line(line, courses[first:last]) for line in added]
    return "\n".join(found).strip()


def as_text(piece: Piece) -> str:
    """Return a piece as Markdown, with code fenced: a Python comment would otherwise become a heading."""
    return f"````\n{piece.source}\n````" if piece.is_code and is_code(piece) else piece.source.strip("\n")


def _rest_of_line(line: str, replaced: list[str]) -> str:
    """Return what was added to a line of the course; the whole line if it is new."""
    for old in replaced:
        if old.strip() and old in line:
            return line.replace(old, "", 1)
    return line


def one_text(parts: list[tuple[Piece, str]]) -> NotebookNode:
    """Join pieces into one text, each with a note of where it was found."""
    text, in_formula = "", False
    seen: set[str] = set()
    for piece, where in parts:
        source = as_text(piece)
        if source.strip() in seen:
            continue  # a copy
        seen.add(source.strip())
        gap = "" if not text else "\n" if in_formula else "\n\n"  # a blank line would break a formula that was cut
        text += gap + (f"**[found {where}]**\n\n" if where else "") + source
        in_formula ^= bool(source.count("$$") % 2)
    return NotebookNode(parts[0][0].cell, cell_type="markdown", source=text)


def runnable(pieces: list[Piece]) -> tuple[list[Piece], str]:
    """Return the pieces of an answer that are code, and their joined text if they run only when joined."""
    code = [piece for piece in pieces if is_code(piece)]
    for parts in ([piece for piece in pieces if piece in code or parsed_cell(piece.source) is None], code):
        if parts and all(is_whole(piece.source) for piece in parts):
            return parts, ""
        for glue in GLUES:
            if len(parts) > 1 and is_whole(joined := glue.join(piece.source for piece in parts)):
                return parts, joined
    return code or pieces, ""


def is_whole(source: str) -> bool:
    """Whether the text runs by itself."""
    tree = parsed_cell(source)
    begins = source.lstrip("\n")[:1]
    return tree is not None and not begins.isspace() and not any(isinstance(node, ast.Return) for node in tree.body)


def is_code(piece: Piece) -> bool:
    """Whether a piece is Python. Words that happen to parse as Python do not count, except in a code cell."""
    tree = parsed_cell(piece.source)
    return tree is not None and (piece.is_code or any(not isinstance(node, ast.Expr) for node in tree.body))


def is_untouched(piece: Piece, cell: Cell, is_part: bool = False) -> bool:
    """Whether an answer's cell, or a part of it, is as the student received it."""
    if is_blank(cell, piece.source):
        return True
    return is_part and NOT_IMPLEMENTED in piece.source and adds_nothing(piece.source, cell.source)


def adds_nothing(source: str, stub: str) -> bool:
    known = {line.strip() for line in stub.splitlines()} | {""}
    return all(line.strip() in known for line in source.splitlines())


def defines_answer(piece: Piece, cell: Cell, finished: bool = False) -> bool:
    """Whether a piece defines what an exercise asks for."""
    name = str(cell.grade_id)
    return name in piece.source and name in piece.names and (piece.names[name] or not finished)


def added_statements(piece: Piece) -> list[str]:
    """Return a cell's statements that are not the course's, without those that look for a released notebook's files."""
    source = piece.source
    tree, courses = parsed_cell(source), parsed(piece.place.source) if piece.place else None
    if tree is None or courses is None:
        return []
    known = {ast.dump(node) for node in courses.body}
    added = [node for node in tree.body if ast.dump(node) not in known and not isinstance(node, ast.Pass)]
    lines = source.split("\n")
    kept = dict.fromkeys(lines_of(node) for node in added if not _looks_for_files(node))
    return ["\n".join(lines[first:end]) for first, end in kept]


def added_definitions(piece: Piece, answers: Collection[str | None]) -> list[str]:
    """Return the imports, functions, classes and plain assignments that were added to a course cell, except answers,
    which are found by their names, and what the cell itself defines."""
    known = {*settled_names(piece.place.source), *answers} if piece.place else answers
    parts = [(text, parsed(text)) for text in (added_statements(piece) if piece.is_code else [])]
    nodes = [(text, tree.body[0]) for text, tree in parts if tree and tree.body]
    return [text for text, node in nodes if is_definition(node) and settled_names(text).keys().isdisjoint(known)]


def uncommented(source: str) -> str:
    """Return the text of a code cell in which every line is a comment; empty for any other cell."""
    lines = source.strip().split("\n")
    if not all(line.startswith("#") for line in lines):
        return ""
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines).strip()


def _looks_for_files(node: ast.stmt) -> bool:
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    names |= {alias.asname or "" for alias in ast.walk(node) if isinstance(alias, ast.alias)}
    return any(name in ("_os", "_web", "_file", "_missing") for name in names)


def _said(source: str) -> list[str]:
    """Return the comments and strings of some code."""
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(IPYTHONS.sub("", source)).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)):
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def is_test_of(piece: Piece, cell: Cell) -> bool:
    return piece.place is not None and piece.place.grade_id in (f"{cell.grade_id}_check", f"{cell.grade_id}_tests")


def is_courses_text(cell: Cell) -> bool:
    return cell.cell_type != "code" and cell.role in COURSES


def words_of_code(piece: Piece) -> str:
    """Return a code cell as text if it holds words (an answer in comments, strings or prose); otherwise nothing."""
    place, source, known = piece.place, piece.source[:MOST_CODE], ""
    if place is not None:
        if place.role in (Role.ANSWER, Role.SETUP) or is_unchanged(piece):
            return ""
        known = given(place.source)
    said = [text for text in _said(source) if text not in known] if place or is_code(piece) else [source]
    words = WORD.findall(" ".join(said))
    return "" if len(words) < FEW_WORDS else own_lines(source, known) if place else source
