"""Ranks the pairs of a class, and draws the lines above which no honest pair is expected.

What two answers share is weighted by its rarity, and multiplied by its share of both answers (a cosine): much of a long
answer counts more than all of a short one, and a common passage in long answers hardly counts. The square root is the
score of an exercise, and the sum over exercises is the score of the whole: small overlaps in many exercises add up, and
one long exercise does not drown them. Somebody may copy a single exercise, so each also has its own line. A pair's
*height* is its score divided by the line, for the whole or for its highest exercise: the line is at 1.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autograder.similarity.fingerprints import Prints, Readings

KNOWN = 0.2  # factor on the weight of a fingerprint that a known solution also has
EXPECTED_ABOVE = 0.01  # honest pairs of a class above the line of the whole, and as many above all exercises' lines
BODY, TAIL = 0.90, 0.97  # quantiles that show how fast a tail falls; copies are fewer than the pairs above them
LEAST = 20  # no line is lower than the score of a pair that shares so many fingerprints of its own and has no others

Answers = dict[str, Readings]  # of one submission, by exercise
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Given:
    """Material from before the class: by exercise and reading, the fingerprints that the exercise forces (the released
    cell) and those known (the reference, the bank); and answers of earlier years, used only to tell what is rare."""

    forced: dict[str, dict[str, frozenset[str]]]
    known: dict[str, dict[str, frozenset[str]]]
    earlier: tuple[Answers, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The score of every pair by exercise, and the weight of every fingerprint by exercise and reading."""

    students: int
    by_exercise: dict[str, Matrix]
    weights: dict[str, dict[str, dict[str, float]]]

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """All pairs, as two arrays of submission numbers."""
        first, second = np.triu_indices(self.students, 1)
        return first, second

    def scores(self, exercise: str) -> Matrix:
        """Every pair's score in one exercise."""
        matrix = self.by_exercise.get(exercise)
        found: Matrix = np.zeros(len(self.pairs[0])) if matrix is None else matrix[self.pairs]
        return found

    def whole(self) -> Matrix:
        """Every pair's score over all exercises."""
        return sum((self.scores(exercise) for exercise in self.by_exercise), np.zeros(len(self.pairs[0])))


@dataclass(frozen=True)
class Lines:
    """The scores above which no honest pair is expected: over all exercises, and in each."""

    whole: float
    by_exercise: dict[str, float]

    def heights(self, compared: Comparison) -> Matrix:
        """Every pair's height; the line is at 1."""
        parts = [compared.scores(exercise) / line for exercise, line in self.by_exercise.items()]
        found: Matrix = np.maximum.reduce([compared.whole() / self.whole, *parts])
        return found


@dataclass(frozen=True)
class Pair:
    """Two submissions by number, the pair's height, and its height in each exercise, greatest first."""

    first: int
    second: int
    height: float
    parts: tuple[tuple[str, float], ...]


def compare(submissions: list[Answers], given: Given) -> Comparison:
    """Compare every pair of a class. For each exercise the reading with the higher score counts."""
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
    """Put each line above the tails of the class's own and of honest scores, and no lower than any honest score."""
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
    """The score that ``expected`` of ``pairs`` exceed, if the tail goes on falling as it does between its quantiles."""
    body, end = np.quantile(scores, [BODY, TAIL])
    scale = (end - body) / math.log((1 - BODY) / (1 - TAIL))
    return float(end + scale * max(0.0, math.log((1 - TAIL) * pairs / expected)))


def highest(compared: Comparison, lines: Lines, most: int) -> list[Pair]:
    """At most ``most`` pairs, the highest first, without pairs that share nothing."""
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
    """Each fingerprint's weight: the logarithm of how rare it is among those who answered."""
    counts = Counter(itertools.chain.from_iterable(population))
    answered = sum(bool(one) for one in population)
    return {
        key: math.log(answered / count) * (KNOWN if key in known else 1.0)
        for key, count in counts.items()
        if key not in forced and count < answered
    }


def _scores(prints: list[Prints], weights: dict[str, float]) -> Matrix:
    """For every pair, the square root of the shared weight times the cosine."""
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
