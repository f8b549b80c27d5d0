"""Tokens of an answer. A student may type anything as code: whatever it is, every character is read only once."""

import builtins
import keyword
import re
from dataclasses import dataclass

MAX_COMPARED = 50_000  # characters of one answer; real answers have a few thousand

TOKEN = re.compile(
    r"""
      (?P<comment>\#[^\n]*)
    | (?P<string>(?i:[rbfut]{0,2})(?:
          \"\"\"(?:[^\\]|\\.|\\\Z)*?(?:\"\"\"|\Z) | '''(?:[^\\]|\\.|\\\Z)*?(?:'''|\Z)
        | "(?:[^"\\\n]|\\.|\\\Z)*(?:"|$|\Z)       | '(?:[^'\\\n]|\\.|\\\Z)*(?:'|$|\Z) ))
    | (?P<number>0[xXbBoO][\da-fA-F_]+ | (?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?[jJ]?)
    | (?P<name>[^\W\d]\w*)
    | (?P<magic>(?m:^)[ \t]*[%!?][^\n]*)
    | (?P<end>\n|;)
    | (?P<operator>\*\*=?|//=?|>>=?|<<=?|->|:=|[-+*/%&|^@=<>!]=|[^\s\\])
    | (?P<gap>[^\S\n]+|\\\n|\\)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
SET_ATTRIBUTE = re.compile(r"\bself\s*\.\s*(\w+)\s*(?::[^=\n]{0,80})?=(?!=)|\bdef\s+(\w+)")
WORD = re.compile(r"[^\W_]+")
LIBRARIES = frozenset({"torch", "nn", "F", "np", "numpy", "math", "plt", "functional", "lab", "self", "super"})
KEPT = frozenset(keyword.kwlist) | frozenset(vars(builtins)) | LIBRARIES
LONG_NUMBER = 40  # characters; a longer one is compared as written
NAME = "\N{BULLET}"  # prefix of a name that the student chose


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text for comparison, and the range of characters that it covers in the answer."""

    text: str
    start: int
    end: int


Statement = list[Token]


def statements(source: str) -> list[Statement]:
    """Split code into statements, without comments, docstrings, blank lines and line breaks within brackets. Numbers
    are compared by value, strings by content."""
    found: list[Statement] = [[]]
    depth = 0
    for match in TOKEN.finditer(source[:MAX_COMPARED]):
        kind, text = str(match.lastgroup), match.group()
        if kind == "end" and depth == 0:
            found.append([])
        elif kind in ("string", "number", "name", "operator"):
            depth = max(0, depth + (text in "([{") - (text in ")]}")) if kind == "operator" else depth
            found[-1].append(Token(_value(kind, text), match.start(), match.end()))
    return [one for one in found if one and not _says_nothing(one)]


def without_names(code: list[Statement], source: str, given: frozenset[str]) -> list[Statement]:
    """The same statements with `NAME` before every name that the student chose; ``given`` are names of the course."""
    chosen = {name for pair in SET_ATTRIBUTE.findall(source[:MAX_COMPARED]) for name in pair if name}
    made = []
    for statement in code:
        line, before = [], ""
        for token in statement:
            kept = token.text in KEPT or token.text in given if before != "." else token.text not in chosen
            named = token.text.isidentifier() and not kept
            line.append(Token(NAME + token.text, token.start, token.end) if named else token)
            before = token.text
        made.append(line)
    return made


def words(text: str, at: int = 0) -> list[Statement]:
    """The words of a text in lower case, as one statement: the order of its sentences counts. ``at``: where it begins."""
    found = [Token(m.group().lower(), at + m.start(), at + m.end()) for m in WORD.finditer(text[:MAX_COMPARED])]
    return [found] if found else []


def comments(source: str) -> list[Statement]:
    """The words of each comment in code."""
    found = (match for match in TOKEN.finditer(source[:MAX_COMPARED]) if match.lastgroup == "comment")
    return [said for match in found for said in words(match.group(), match.start())]


def _value(kind: str, text: str) -> str:
    if kind == "string":
        return f"'{text.lstrip('rRbBfFuUtT').strip(chr(34) + chr(39))}'"
    if kind == "number" and len(text) <= LONG_NUMBER:
        try:
            return repr(float(text.replace("_", "")))
        except ValueError:  # hexadecimal, complex
            return text.lower()
    return text


def _says_nothing(statement: Statement) -> bool:
    return len(statement) == 1 and statement[0].text.startswith("'")
