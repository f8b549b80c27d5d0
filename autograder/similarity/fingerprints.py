"""Fingerprints of answers: what two answers share, and how rare it is.

A fingerprint is a run of tokens within one statement, so the order of statements and of functions does not matter. The
fewer answers have it, the more it weighs; what the whole class writes weighs nothing.

All runs are kept. Winnowing keeps one per window, which large files need and answers of a few dozen lines do not. The
library for it, copydetect, ignores rarity, keeps different runs every time (it uses Python's salted hash), and reads
code with patterns of Pygments, which a crafted text can slow to the square of its length.
"""

from collections.abc import Iterable

from autograder.similarity.lexer import NAME, Statement, comments, statements, without_names, words

RUN_OF_CODE, RUN_OF_WORDS = 6, 3  # tokens

Span = tuple[int, int]
Prints = dict[str, list[Span]]  # every fingerprint of an answer, with its places there
Readings = dict[str, Prints]  # by reading, for example "as written"


def read_code(source: str, given: frozenset[str]) -> Readings:
    """The fingerprints of code in two readings: with its names and comments, and without."""
    code = statements(source)
    written = prints(code, RUN_OF_CODE)
    written |= {f"# {key}": places for key, places in prints(comments(source), RUN_OF_WORDS).items()}
    return {"as written": written, "names aside": prints(without_names(code, source, given), RUN_OF_CODE)}


def read_text(text: str) -> Readings:
    """The fingerprints of a text answer, which has one reading."""
    return {"as written": prints(words(text), RUN_OF_WORDS)}


def prints(parts: Iterable[Statement], run: int) -> Prints:
    """All runs of ``run`` tokens within a part; a shorter part is a run by itself."""
    found: Prints = {}
    for part in parts:
        for first in range(max(1, len(part) - run + 1)):
            tokens = part[first : first + run]
            found.setdefault(_key([token.text for token in tokens]), []).append((tokens[0].start, tokens[-1].end))
    return found


def _key(texts: list[str]) -> str:
    """Chosen names are numbered within a run, so that ``a * b - a`` and ``a * b - b`` differ."""
    numbers: dict[str, str] = {}
    return " ".join(
        numbers.setdefault(text, f"{NAME}{len(numbers)}") if text.startswith(NAME) else text for text in texts
    )
