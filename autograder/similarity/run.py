"""Runs `make similarity WEEK=3`, from the folders to the page."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autograder.course import is_week
from autograder.errors import CourseError
from autograder.grading.submission.folders import Submissions
from autograder.similarity.answers import (
    clean,
    earlier_folders,
    given,
    known_answers,
    read_answers,
    read_class,
    text_exercises,
    titles,
)
from autograder.similarity.compare import Answers, Comparison, Given, Lines, compare, draw_lines
from autograder.similarity.honest import simulated_class
from autograder.similarity.page import Honest, Row, make_rows, write_page

HONEST_PAIRS = 10_000  # pairs to simulate: half of them draw the lines, the other half test them
MOST_CLASSES = 20


@dataclass(frozen=True)
class Found:
    """The result of a run: the page, its rows, and how many submissions were compared or could not be read."""

    path: Path
    rows: list[Row]
    compared: int
    unread: int


def compare_class(root: Path, assignment: str, submissions: Submissions, earlier: list[str]) -> Found:
    """Compare a class and write ``report/ASSIGNMENT-similarity.html``. Raises ``CourseError`` for fewer than two."""
    past = earlier_folders(earlier, root, assignment)
    found = read_class(root, assignment, submissions.folders)
    found.unread |= submissions.refused
    if len(found.texts) < 2:
        raise CourseError(
            f"a comparison needs two submissions of {assignment} that can be read; there is "
            f"{'one' if found.texts else 'none'} under submitted/"
        )
    in_words = text_exercises(root, assignment)
    others = read_class(root, assignment, {str(number): folder for number, folder in enumerate(past)})
    before = given(root, assignment, tuple(read_answers(texts, in_words) for texts in others.texts.values()))
    prints = [read_answers(texts, in_words) for texts in found.texts.values()]
    compared = compare(prints, before)
    lines, honest = lines_of(root, assignment, compared, before)
    rows = make_rows(found, prints, compared, lines, honest, titles(root, assignment))
    path = root / "report" / f"{assignment}-similarity.html"
    write_page(path, assignment, found, rows, honest, titles(root, assignment), len(others.texts))
    return Found(path, rows, len(prints), len(found.unread))


def lines_of(root: Path, assignment: str, compared: Comparison, before: Given) -> tuple[Lines, Honest]:
    """Draw the lines with every second simulated class, and return the heights of the pairs of the others."""
    if not is_week(assignment):
        return draw_lines(compared, []), Honest(np.zeros(0), 0)
    classes = [compare(one, before) for one in honest_classes(root, assignment, compared.students)]
    lines = draw_lines(compared, classes[::2])
    tried = classes[1::2]
    return lines, Honest(np.sort(np.concatenate([lines.heights(one) for one in tried])), len(tried))


def honest_classes(root: Path, assignment: str, students: int) -> list[list[Answers]]:
    """At least two simulated classes of so many students, in which nobody copied."""
    known = known_answers(root, assignment)
    count = max(2, min(MOST_CLASSES, -(-HONEST_PAIRS * 2 // (students * (students - 1)))))
    return [
        [
            read_answers({exercise: clean(text) for exercise, text in texts.items()}, frozenset())
            for texts in simulated_class(known, students, f"{assignment}/{number}")
        ]
        for number in range(count)
    ]
