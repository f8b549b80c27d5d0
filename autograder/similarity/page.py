"""The page: pairs in order, the line, and what each pair shares, side by side. Evidence, never a verdict."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autograder.pages import filled
from autograder.similarity.answers import ClassAnswers
from autograder.similarity.compare import Answers, Comparison, Lines, Matrix, Pair, highest
from autograder.similarity.fingerprints import Prints

ROWS = 15  # shown at least, if so many pairs share anything at all
MOST_ROWS = 100
PARTS = 5  # exercises shown of a pair
FEW = 10  # students; with fewer nobody can say what is rare
SHOWN = 6_000  # characters of an answer

Segment = tuple[str, bool]  # text, and whether both have it


@dataclass(frozen=True)
class Honest:
    """The sorted heights of the pairs of simulated honest classes, none of which was used to draw the lines."""

    heights: Matrix
    classes: int

    def as_high(self, height: float) -> int:
        """How many of the honest pairs are at least this high."""
        return len(self.heights) - int(np.searchsorted(self.heights, height))


@dataclass(frozen=True)
class Part:
    """What a pair shares in one exercise, and its height relative to the exercise's own line."""

    title: str
    height: float
    left: list[Segment]
    right: list[Segment]


@dataclass(frozen=True)
class Row:
    """A pair on the page; ``also`` are exercises that are not shown."""

    place: int
    students: tuple[str, str]
    height: float
    as_high: int
    parts: list[Part]
    also: list[str]

    @property
    def is_above(self) -> bool:
        return self.height > 1


def write_page(
    path: Path,
    assignment: str,
    found: ClassAnswers,
    rows: list[Row],
    honest: Honest,
    titles: dict[str, str],
    earlier: int,
) -> None:
    """Write the page so that only its owner can read it: it shows names beside evidence."""
    page = filled(
        "similarity.html.j2",
        assignment=assignment,
        found=found,
        pairs=len(found.texts) * (len(found.texts) - 1) // 2,
        rows=rows,
        above=sum(row.is_above for row in rows),
        honest=honest,
        wrong=honest.as_high(1.0),
        titles=titles,
        earlier=earlier,
        few=len(found.texts) < FEW,
    )
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".part")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(page)
    draft.replace(path)


def make_rows(
    found: ClassAnswers,
    prints: list[Answers],
    compared: Comparison,
    lines: Lines,
    honest: Honest,
    titles: dict[str, str],
) -> list[Row]:
    """The pairs above the line, and others up to `ROWS`; at most `MOST_ROWS`."""
    names = list(found.texts)
    above = int((lines.heights(compared) > 1).sum())
    rows = []
    for place, pair in enumerate(highest(compared, lines, min(max(ROWS, above), MOST_ROWS)), 1):
        shown = pair.parts[:PARTS]
        parts = [
            Part(titles.get(exercise, exercise), height, *_sides(exercise, pair, found, prints, compared))
            for exercise, height in shown
        ]
        also = [titles.get(exercise, exercise) for exercise, _ in pair.parts[PARTS:]]
        students = names[pair.first], names[pair.second]
        rows.append(Row(place, students, pair.height, honest.as_high(pair.height), parts, also))
    return rows


def _sides(
    exercise: str, pair: Pair, found: ClassAnswers, prints: list[Answers], compared: Comparison
) -> tuple[list[Segment], list[Segment]]:
    """Both answers, with the passages marked that they share and few others have."""
    both = pair.first, pair.second
    texts = [list(found.texts.values())[number][exercise] for number in both]
    marks: list[list[tuple[int, int]]] = [[], []]
    for reading, weights in compared.weights[exercise].items():
        theirs = [prints[number][exercise].get(reading, {}) for number in both]
        rare = _rare(theirs, weights)
        for side, mine in enumerate(theirs):
            marks[side] += [place for key in rare for place in mine[key]]
    return segments(texts[0], marks[0]), segments(texts[1], marks[1])


def _rare(both: list[Prints], weights: dict[str, float]) -> list[str]:
    """Fingerprints that both have and few others: they weigh at least half as much as one that only two have."""
    least = max(1e-9, (max(weights.values(), default=0.0) - math.log(2)) / 2)
    return [key for key in both[0] if key in both[1] and weights.get(key, 0.0) >= least]


def segments(text: str, spans: list[tuple[int, int]]) -> list[Segment]:
    """Cut the text into pieces, and mark those within a span."""
    found: list[Segment] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at or start >= SHOWN:
            continue
        start = max(start, at)
        gap = text[at:start]
        if found and not gap.strip() and "\n" not in gap:
            found[-1] = (found[-1][0] + text[at:end], True)
        else:
            found += [(gap, False), (text[start:end], True)]
        at = end
    rest = text[at : max(at, SHOWN)]
    return [piece for piece in [*found, (rest + (" …" if len(text) > max(at, SHOWN) else ""), False)] if piece[0]]
