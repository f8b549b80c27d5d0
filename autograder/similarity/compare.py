"""Ranks the pairs of a class, and draws the lines above which honest pairs are not expected.

What two answers share is weighed by its rarity, and multiplied by the share of both answers that it makes (a cosine): much
of a long answer counts more than all of a short one, and a common passage in long answers hardly at all. Its square root is the
score of an exercise, and their sum that of the whole: many exercises of which something is shared add up, and one long exercise
does not drown them. Because somebody may copy one exercise alone, each also has a line of its own. A pair's *height* is its
score over the line, as a whole or in the exercise where it is highest: the line is at 1.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autograder.similarity.fingerprints import Prints, Readings

KNOWN = 0.2  # what a known solution has, too, counts this much of what it would otherwise
EXPECTED_ABOVE = 0.01  # honest pairs of a class above the line of the whole, and as many above those of all exercises
BODY, TAIL = 0.90, 0.97  # the quantiles that tell how fast a tail falls; copies are fewer than what lies above
LEAST = (
    20  # fingerprints that nobody else has: no line lies lower than a pair that shares so many, and nothing but these
)

Answers = dict[str, Readings]  # of one submission, by exercise
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Given:
    """What was there before the class wrote: by exercise and reading what the exercise forces (the released cell), and what
    is known (the reference, the bank); and the answers of earlier years, which only tell what is rare."""

    forced: dict[str, dict[str, frozenset[str]]]
    known: dict[str, dict[str, frozenset[str]]]
    earlier: tuple[Answers, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The scores of a class by exercise, for every pair, and what each fingerprint weighs there, by exercise and reading."""

    students: int
    by_exercise: dict[str, Matrix]
    weights: dict[str, dict[str, dict[str, float]]]

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The two of every pair, by number."""
        first, second = np.triu_indices(self.students, 1)
        return first, second

    def scores(self, exercise: str) -> Matrix:
        """Of every pair in one exercise."""
        matrix = self.by_exercise.get(exercise)
        found: Matrix = np.zeros(len(self.pairs[0])) if matrix is None else matrix[self.pairs]
        return found

    def whole(self) -> Matrix:
        """Of every pair over all exercises."""
        return sum((self.scores(exercise) for exercise in self.by_exercise), np.zeros(len(self.pairs[0])))


@dataclass(frozen=True)
class Lines:
    """Where honest pairs end: over all exercises, and in each."""

    whole: float
    by_exercise: dict[str, float]

    def heights(self, compared: Comparison) -> Matrix:
        """How high every pair lies; the line is at 1."""
        parts = [compared.scores(exercise) / line for exercise, line in self.by_exercise.items()]
        found: Matrix = np.maximum.reduce([compared.whole() / self.whole, *parts])
        return found


@dataclass(frozen=True)
class Pair:
    """Two submissions by number, their height, and that of the exercises that make it, the greatest first."""

    first: int
    second: int
    height: float
    parts: tuple[tuple[str, float], ...]


def compare(submissions: list[Answers], given: Given) -> Comparison:
    """Every pair of a class. Of an exercise counts the reading in which a pair shares more."""
    by_exercise: dict[str, Matrix] = {}
    weights: dict[str, dict[str, dict[str, float]]] = {}
    for exercise in dict.fromkeys(itertools.chain.from_iterable(submissions)):
        best: Matrix = np.zeros((len(submissions), len(submissions)))
        for reading in dict.fromkeys(itertools.chain.from_iterable(one.get(exercise, {}) for one in submissions)):
            theirs = [one.get(exercise, {}).get(reading, {}) for one in submissions]
            others = [one.get(exercise, {}).get(reading, {}) for one in given.earlier]
            forced = given.forced.get(exercise, {}).get(reading, frozenset())
            known = given.known.get(exercise, {}).get(reading, frozenset())
            weighed = _weights([*theirs, *others], forced, known)
            weights.setdefault(exercise, {})[reading] = weighed
            best = np.maximum(best, _scores(theirs, weighed))
        by_exercise[exercise] = best
    return Comparison(len(submissions), by_exercise, weights)


def draw_lines(compared: Comparison, honest: list[Comparison]) -> Lines:
    """Each as high as the tails of the class's own scores and of simulated honest classes ask, and as the highest there."""
    exercises = list(compared.by_exercise)
    pairs, rate = len(compared.pairs[0]), EXPECTED_ABOVE / max(1, len(exercises))
    least = math.sqrt(LEAST * math.log(max(compared.students, 2)))

    def height(own: Matrix, theirs: list[Matrix], expected: float) -> float:
        simulated = [tail(np.concatenate(theirs), pairs, expected), *(float(s.max()) for s in theirs)] if theirs else []
        return max([least, tail(own, pairs, expected), *simulated])

    return Lines(
        height(compared.whole(), [one.whole() for one in honest], EXPECTED_ABOVE),
        {e: height(compared.scores(e), [one.scores(e) for one in honest], rate) for e in exercises},
    )


def tail(scores: Matrix, pairs: int, expected: float) -> float:
    """The score that ``expected`` of ``pairs`` exceed, if the tail goes on as it falls between its quantiles."""
    body, end = np.quantile(scores, [BODY, TAIL])
    scale = (end - body) / math.log((1 - BODY) / (1 - TAIL))
    return float(end + scale * max(0.0, math.log((1 - TAIL) * pairs / expected)))


def highest(compared: Comparison, lines: Lines, most: int) -> list[Pair]:
    """The pairs that lie highest, highest first; none that share nothing."""
    heights = lines.heights(compared)
    first, second = compared.pairs
    found = []
    for place in np.argsort(-heights, kind="stable")[:most].tolist():
        parts = {e: float(compared.scores(e)[place]) / line for e, line in lines.by_exercise.items()}
        ranked = sorted(((e, height) for e, height in parts.items() if height > 0), key=lambda part: -part[1])
        if ranked:
            found.append(Pair(int(first[place]), int(second[place]), float(heights[place]), tuple(ranked)))
    return found


def _weights(population: list[Prints], forced: frozenset[str], known: frozenset[str]) -> dict[str, float]:
    """The logarithm of how rare a fingerprint is among those who have answered."""
    counts = Counter(itertools.chain.from_iterable(population))
    answered = sum(bool(one) for one in population)
    return {
        key: math.log(answered / count) * (KNOWN if key in known else 1.0)
        for key, count in counts.items()
        if key not in forced and count < answered
    }


def _scores(prints: list[Prints], weights: dict[str, float]) -> Matrix:
    """For every pair the square root of what both have, in weight, times the cosine."""
    own = np.array([sum(weights.get(key, 0.0) for key in one) for one in prints])
    counts = Counter(itertools.chain.from_iterable(prints))
    columns = {key: number for number, key in enumerate(k for k, c in counts.items() if c > 1 and k in weights)}
    table = np.zeros((len(prints), len(columns)), dtype=np.float32)
    for row, one in enumerate(prints):
        table[row, [columns[key] for key in one if key in columns]] = 1.0
    weighed = np.array([weights[key] for key in columns], dtype=np.float32)
    shared: Matrix = ((table * weighed) @ table.T).astype(np.float64)
    whole = np.sqrt(np.outer(own, own))
    found: Matrix = np.divide(shared, np.sqrt(whole), out=np.zeros_like(whole), where=whole > 0)
    np.fill_diagonal(found, 0.0)
    return found
