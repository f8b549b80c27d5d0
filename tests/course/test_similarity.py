"""`make similarity` on simulated classes: copies are found, and a class without copies has nothing above the line."""

import functools
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import other_hands
import pytest
from helpers import COURSE, WEEK3, autograder, hand_in
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.classroom import make_course_root
from autograder.grading.submission.folders import Submissions
from autograder.similarity import run
from autograder.similarity.answers import known_answers, text_exercises

STUDENTS = 60


@dataclass
class Compared:
    """A class's page, the copies in it, and the page of the same class without copies."""

    root: Path
    copies: dict[tuple[str, str], str]
    found: run.Found
    honest: run.Found
    honest_page: str


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    with pytest.MonkeyPatch.context() as patch:  # the simulated classes are the same for both pages
        patch.setattr(run, "honest_classes", functools.cache(run.honest_classes))
        yield _compared(tmp_path_factory)


def _compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    root = tmp_path_factory.mktemp("similarity") / "course"
    make_course_root(COURSE, root, [WEEK3])
    known, texts = known_answers(COURSE, WEEK3), sorted(text_exercises(COURSE, WEEK3))
    answers = other_hands.honest_class(known, texts, STUDENTS, seed=5)
    names = [f"student{number:02}" for number in range(STUDENTS)]
    folders = {name: hand_in(root, name, one).parent for name, one in zip(names, answers, strict=True)}
    honest = run.compare_class(root, WEEK3, Submissions(folders), [])
    page = honest.path.read_text(encoding="utf-8")
    chance, copies = random.Random(6), {}
    chosen = chance.sample(range(STUDENTS), 2 * 2 * len(other_hands.COPIES))
    for number, kind in enumerate([*other_hands.COPIES] * 2):
        one, other = sorted(chosen[2 * number : 2 * number + 2])
        answers[other] = other_hands.copied(answers[one], answers[other], kind, texts, chance)
        hand_in(root, names[other], answers[other])
        copies[names[one], names[other]] = kind
    return Compared(root, copies, run.compare_class(root, WEEK3, Submissions(folders), []), honest, page)


@pytest.mark.slow
@pytest.mark.nightly
def test_nine_of_ten_copies_are_among_the_first_fifteen(compared: Compared) -> None:
    found = [row.students for row in compared.found.rows[:15] if row.students in compared.copies]
    missing = {kind for pair, kind in compared.copies.items() if pair not in found}
    assert len(found) >= 9, missing
    assert not [row.students for row in compared.found.rows if row.is_above and row.students not in compared.copies]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_page_says_how_many_honest_pairs_are_as_high(compared: Compared) -> None:
    page = compared.found.path.read_text(encoding="utf-8")
    assert "This is evidence to read, not a verdict." in page
    assert page.count("honest pairs as high: ") == len(compared.found.rows) >= 15
    assert compared.found.rows[0].as_high == 0 and "honest pairs as high: 0 of 5310" in page
    assert stat.S_IMODE(compared.found.path.stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.nightly
def test_a_class_without_copies_has_nothing_above_the_line(compared: Compared) -> None:
    assert compared.honest.compared == STUDENTS
    assert not [row for row in compared.honest.rows if row.is_above]
    assert "No pair is above the line." in compared.honest_page


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_reads_what_grading_reads_and_says_what_it_did(compared: Compared) -> None:
    """Compare a few students, one with a file that is no notebook, one with answers that take long to read."""
    root = compared.root
    for folder in sorted((root / "submitted").iterdir())[6:]:
        (folder / WEEK3 / f"{WEEK3}.ipynb").unlink()
        (folder / WEEK3).rmdir()
    (root / "submitted" / "student00" / WEEK3 / f"{WEEK3}.ipynb").write_text("{half a")
    hand_in(root, "student01", {"apply_rotary_emb": "(" * 200_000, "rope_frequencies": '"""' + '\\"' * 100_000})
    before = {path: path.read_bytes() for path in root.rglob("submitted/*/*/*")}
    done = autograder("--root", str(root), "similarity", "--week", "3", "--earlier", "submitted")
    assert (
        f"wrote report/{WEEK3}-similarity.html: 5 submissions, pairs above the line: 0; not compared: 1" in done.stdout
    )
    page = (root / "report" / f"{WEEK3}-similarity.html").read_text(encoding="utf-8")
    assert "Not compared: 1" in page and "not a notebook" in page and "5 submissions of earlier years" in page
    assert "Compared in part" in page and "student01, 3.3 apply_rotary_emb" in page
    assert before == {path: path.read_bytes() for path in root.rglob("submitted/*/*/*")}


def test_an_assignment_of_ones_own_is_compared_without_simulated_classes(tmp_path: Path) -> None:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [])
    told = {"grade": False, "locked": False, "solution": True, "task": False, "schema_version": 3}
    code = new_code_cell("def double(x):\n    return 2 * x", metadata={"nbgrader": {**told, "grade_id": "double"}})
    words = new_markdown_cell(
        "Why?", metadata={"nbgrader": {**told, "grade": True, "grade_id": "why", "points": 2, "cell_type": "markdown"}}
    )
    place = root / "source" / "quiz1" / "quiz1.ipynb"
    place.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[code, words]), place)
    chance = random.Random(7)
    texts = [other_hands.Hand(chance).explain(150) for _ in range(11)]
    folders = {}
    for number, text in enumerate([*texts, texts[4]]):
        words.source, code.source = text, f"def double(x):\n    return x + x + {number}"
        folders[f"s{number}"] = root / "submitted" / f"s{number}" / "quiz1"
        folders[f"s{number}"].mkdir(parents=True)
        nbformat.write(new_notebook(cells=[code, words]), folders[f"s{number}"] / "quiz1.ipynb")
    found = run.compare_class(root, "quiz1", Submissions(folders), [])
    assert [row.students for row in found.rows if row.is_above] == [("s4", "s11")]
    page = found.path.read_text(encoding="utf-8")
    assert "no honest class could be simulated" in page and "honest pairs as high" not in page
