"""Item analysis of a graded week: difficulty, discrimination, time-outs and causes, by exercise and criterion.

*Difficulty* is the mean share of the points (1: everybody has all of them). *Discrimination* is the corrected
item-total correlation: Pearson's, of the item with the points of everything else. "Everything else" leaves out
exercises that are not graded for everybody yet, instead of counting their unread answers as zero.
"""

import csv
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autograder.grading.plugins.export import as_text
from autograder.grading.plugins.gradebook import Score
from autograder.manifest import Exercise

FEW = 10  # students; with fewer the numbers mean little
HEADER = ["number", "exercise", "kind", "name", "points", "students", "not_read_yet", "difficulty", "discrimination"]
HEADER += ["time_outs", "share", "before"]
NO_ANSWER = "an answer"  # the only criterion of an answer that is missing or stopped the whole test
TIME_OUT = re.compile(r"\bTimeoutError\b|takes too long")

Verdicts = dict[str, dict[str, dict[str, Any]]]  # by student and cell


@dataclass(frozen=True)
class Item:
    """One line of the analysis: an exercise, one of its criteria, or a cause named in it.

    ``value`` is the difficulty, or for a cause the share of the students; ``before`` is its last different value;
    ``mean`` are the mean points of those graded, and ``full`` counts the students who have all.
    """

    number: str
    exercise: str
    kind: str
    name: str
    points: float
    students: int
    waiting: int = 0
    value: float | None = None
    discrimination: float | None = None
    time_outs: int = 0
    before: float | None = None
    mean: float | None = None
    full: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.exercise, self.kind, self.name

    @property
    def has_changed(self) -> bool:
        return self.before is not None and self.before != self.value

    def row(self) -> list[str]:
        is_cause = self.kind == "cause"
        numbers = ["" if is_cause else _number(self.value), _number(self.discrimination), str(self.time_outs)]
        share = _number(self.value) if is_cause else ""
        front = [self.number, self.exercise, self.kind, self.name, f"{self.points:g}", str(self.students)]
        return [*front, str(self.waiting), *numbers, share, _number(self.before)]


def item_analysis(
    entries: tuple[Exercise, ...], graded: list[Score], verdicts: Verdicts, read: Counter[str]
) -> list[Item]:
    """Analyse every exercise, its criteria and causes. ``read`` counts, by cell, graded answers that are not blank."""
    points = {entry.graded_cell: [score.by_cell.get(entry.graded_cell) for score in graded] for entry in entries}
    whole = [cell for cell, column in points.items() if column and None not in column]
    totals = [sum(points[cell][row] or 0.0 for cell in whole) for row in range(len(graded))]
    found: list[Item] = []
    for entry in entries:
        cell, column = entry.graded_cell, points[entry.graded_cell]
        given = [value for value in column if value is not None]
        waiting = sum(score.by_cell.get(cell, 0) is None for score in graded)
        is_read = not waiting or bool(read[cell])
        rest = [total - (value or 0.0) * (cell in whole) for total, value in zip(totals, column, strict=True)]
        pairs = [(value, other) for value, other in zip(column, rest, strict=True) if value is not None]
        mine = [verdicts.get(score.student, {}).get(cell, {}) for score in graded]
        full, mean = given.count(entry.points), sum(given) / len(given) if given else None
        item = Item(
            entry.number, entry.grade_id, "exercise", "", entry.points, len(given), waiting, mean=mean, full=full
        )
        if mean is not None and is_read and entry.points:
            share = round(mean / entry.points, 4)
            item = replace(item, value=share, discrimination=correlation(pairs))
        found.append(replace(item, time_outs=sum(any(map(_timed_out, v.get("criteria", []))) for v in mine)))
        found += _criteria(entry, mine, totals, cell in whole)
        named = Counter(as_text(sentence) for verdict in mine for sentence in dict.fromkeys(verdict.get("named", [])))
        found += [
            Item(entry.number, entry.grade_id, "cause", sentence, 0, count, value=round(count / len(graded), 4))
            for sentence, count in named.most_common()
        ]
    return found


def correlation(pairs: list[tuple[float, float]]) -> float | None:
    """Pearson's correlation, to four digits; ``None`` with fewer than three pairs, or if one side does not vary."""
    if len(pairs) < 3:
        return None
    means = [math.fsum(side) / len(pairs) for side in zip(*pairs, strict=True)]
    apart = [(one - means[0], other - means[1]) for one, other in pairs]
    spread = math.sqrt(math.fsum(a * a for a, _ in apart) * math.fsum(b * b for _, b in apart))
    return round(math.fsum(a * b for a, b in apart) / spread, 4) if spread > 1e-9 else None


def with_before(items: list[Item], path: Path) -> list[Item]:
    """Return the items with ``before`` from the table of an earlier run; if no value changed, keep the one noted there.
    A new cause gets 0 as ``before``; a cause no longer named is added with the value 0."""
    earlier = _earlier(path)
    now = {item.key: item.value for item in items if item.value}
    is_same = now == {key: item.value for key, item in earlier.items() if item.value}
    before = {key: item.before if is_same else item.value for key, item in earlier.items()}
    found = []
    for item in items:
        unknown = 0.0 if item.kind == "cause" and earlier and not is_same else None
        found.append(replace(item, before=before.get(item.key, unknown)))
    gone = [item for item in earlier.values() if item.kind == "cause" and item.key not in now and before[item.key]]
    return found + [replace(item, value=0.0, before=before[item.key]) for item in gone]


def write_table(items: list[Item], path: Path) -> None:
    """Write the analysis as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *(item.row() for item in items)])


def _criteria(entry: Exercise, verdicts: list[dict[str, Any]], totals: list[float], in_total: bool) -> list[Item]:
    """The criteria of an exercise. An answer that stopped before a criterion earns nothing for it."""
    worth = {c["name"]: float(c["points"]) for verdict in verdicts for c in verdict.get("criteria", [])}
    worth.pop(NO_ANSWER, None)
    found = []
    for name, points in worth.items():
        met = [{c["name"]: c for c in verdict.get("criteria", [])}.get(name, {}) for verdict in verdicts]
        judged = [(float(c.get("earned", 0.0)), total) for c, v, total in zip(met, verdicts, totals, strict=True) if v]
        pairs = [(earned, total - earned * in_total) for earned, total in judged]
        found.append(
            Item(
                entry.number,
                entry.grade_id,
                "criterion",
                name,
                points,
                len(judged),
                value=round(sum(earned for earned, _ in judged) / len(judged) / points, 4) if points else None,
                discrimination=correlation(pairs),
                time_outs=sum(map(_timed_out, met)),
            )
        )
    return found


def _timed_out(criterion: dict[str, Any]) -> bool:
    return bool(TIME_OUT.search(criterion.get("message", "")))


def _earlier(path: Path) -> dict[tuple[str, str, str], Item]:
    """Read the items of a table; none if it is missing, or unreadable because somebody edited it."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            items = [
                Item(
                    row["number"],
                    row["exercise"],
                    row["kind"],
                    row["name"],
                    points=0,
                    students=0,
                    value=_read(row["share"] or row["difficulty"]),
                    before=_read(row["before"]),
                )
                for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return {}
    return {item.key: item for item in items}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _read(text: str) -> float | None:
    return float(text) if text else None
