"""A stock nbgrader assignment beside the weeks: built, graded in the sandbox by its own tests, feedback, report."""

import shutil
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, autograder, run, standing
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.build.pipeline import build_own
from autograder.classroom import make_course_root
from autograder.course import exercises
from autograder.errors import TextError

QUIZ = "quiz1"
SECRET = "a word that only the course root knows"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
OTHER = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNgYAAAAAMAAbitOmMAAAAASUVORK5CYII="
HOSTILE = """
import glob, os, pathlib, socket
def double(x):
    return 2 * x
for place in {places!r}:
    for path in [place, *glob.glob(place + '/**/*', recursive=True), place + '/gradebook.db']:
        try:
            print('REACHED', path, pathlib.Path(path).read_bytes()[:200])
        except OSError:
            pass
    try:
        (pathlib.Path(place) / 'planted').write_text('here')
        print('REACHED', place)
    except OSError:
        pass
try:
    socket.create_connection(('127.0.0.1', 22), 1)
    print('REACHED the network')
except OSError:
    pass
"""


def marks(grade_id: str, cell_type: str, points: int | None = None, **flags: bool) -> dict:
    """Return nbgrader's metadata of a cell, as its toolbar writes it."""
    told = {"grade": False, "locked": False, "solution": False, "task": False, "schema_version": 3} | flags
    return {"nbgrader": told | {"grade_id": grade_id, "cell_type": cell_type} | ({"points": points} if points else {})}


def quiz() -> nbformat.NotebookNode:
    """Return a quiz of two stock code answers, one of them without a marked region, a text answer and a task."""
    return new_notebook(
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        cells=[
            new_markdown_cell("# Quiz 1"),
            new_code_cell("import pathlib\nfactor = 2"),
            new_code_cell("def double(x):\n    return 2 * x", metadata=marks("double", "code", solution=True)),
            new_code_cell(
                "assert double(2) == 4\n### BEGIN HIDDEN TESTS\nassert double(21) == 42\n### END HIDDEN TESTS",
                metadata=marks("test_double", "code", 3, grade=True, locked=True),
            ),
            new_code_cell(
                "def lines():\n    ### BEGIN SOLUTION\n    return pathlib.Path('data/words.txt').read_text().split()\n"
                "    ### END SOLUTION",
                metadata=marks("lines", "code", solution=True),
            ),
            new_code_cell(
                "2 if len(lines()) == 3 else 0.5", metadata=marks("test_lines", "code", 2, grade=True, locked=True)
            ),
            new_markdown_cell("Why? ![plot](attachment:plot.png)", attachments={"plot.png": {"image/png": PIXEL}}),
            new_markdown_cell("Because.", metadata=marks("why", "markdown", 4, grade=True, solution=True)),
            new_markdown_cell("Draw it.", metadata=marks("sketch", "markdown", 1, task=True)),
        ],
    )


def hand_in(root: Path, student: str, **answers: str) -> Path:
    """Submit the notebook that nbgrader released, with these answers; returns the file."""
    notebook = nbformat.read(root / "notebooks" / QUIZ / f"{QUIZ}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""), cell.source)
    path = root / "submitted" / student / QUIZ / f"{QUIZ}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course root with the built quiz and five graded submissions of it."""
    place = tmp_path_factory.mktemp("quiz") / "course"
    make_course_root(COURSE, place, [])
    (place / "source" / QUIZ / "data").mkdir(parents=True)
    (place / "source" / QUIZ / "data" / "words.txt").write_text("one two three")
    nbformat.write(quiz(), place / "source" / QUIZ / f"{QUIZ}.ipynb")
    (place / "secret.txt").write_text(SECRET)
    autograder("build", "--week", QUIZ, cwd=place)
    right = "def lines():\n    return open('data/words.txt').read().split()"
    hand_in(place, "ada", double="def double(x):\n    return 2 * x", lines=right, why="By symmetry.")
    hand_in(place, "blank")
    hand_in(place, "half", double="def double(x):\n    return x + 2", lines="def lines():\n    return []")
    drawn = hand_in(place, "drawn")
    notebook = nbformat.read(drawn, as_version=4)
    (question,) = [cell for cell in notebook.cells if "plot.png" in cell.source]
    question.source += "\n![plot](attachment:mine.png)"
    question.attachments["mine.png"] = {"image/png": OTHER}
    nbformat.write(notebook, drawn)
    hand_in(place, "mallory", double=HOSTILE.format(places=[str(place), str(COURSE), str(Path.home())]))
    autograder("autograde", "--week", QUIZ, cwd=place)
    return place


def test_students_get_stubs_and_files_and_no_solution(root: Path) -> None:
    released = root / "notebooks" / QUIZ
    text = (released / f"{QUIZ}.ipynb").read_text(encoding="utf-8")
    assert text.count("YOUR CODE HERE") == 2 and "YOUR ANSWER HERE" in text
    assert not [secret for secret in ("return 2 * x", "read_text", "Because", "HIDDEN", "double(21)") if secret in text]
    assert (released / "data" / "words.txt").read_text() == "one two three"


def test_points_are_in_the_cells_that_the_author_gave_them(root: Path) -> None:
    assert [entry.graded_cell for entry in exercises(root, QUIZ)] == ["test_double", "test_lines", "why", "sketch"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("BEGIN HIDDEN TESTS", "BEGIN HIDDEN TEST", "'### BEGIN HIDDEN TEST' is no mark"),
        ("### BEGIN HIDDEN TESTS", "#begin  hidden tests", "'#begin  hidden tests' is no mark"),
        ("### BEGIN HIDDEN TESTS", "", "END HIDDEN TESTS without a BEGIN"),
    ],
)
def test_what_would_hand_out_hidden_tests_is_not_built(old: str, new: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "source" / QUIZ).mkdir(parents=True)
    text = nbformat.writes(quiz()).replace(old, new)
    (tmp_path / "source" / QUIZ / f"{QUIZ}.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(TextError, match=said):
        build_own(tmp_path, QUIZ)


@pytest.mark.isolation
def test_every_answer_gets_what_its_own_test_gives(root: Path) -> None:
    by_cell = {name: score.by_cell for name, score in standing(root, QUIZ).items()}
    assert by_cell["ada"] == {"test_double": 3, "test_lines": 2, "why": None, "sketch": None}
    assert by_cell["blank"] == {"test_double": 0, "test_lines": 0, "why": 0, "sketch": None}
    shown = {
        name: (root / "autograded" / name / QUIZ / f"{QUIZ}.ipynb").read_text(encoding="utf-8") for name in by_cell
    }
    assert PIXEL in shown["blank"] and PIXEL in shown["drawn"]
    assert '"pasted-picture-1": {' in shown["drawn"] and "pasted-picture" not in shown["blank"]
    assert by_cell["drawn"]["why"] is None and "found in the question's cell" in shown["drawn"]
    assert by_cell["half"] == {"test_double": 0, "test_lines": 0.5, "why": 0, "sketch": None}


@pytest.mark.isolation
def test_hostile_code_does_not_reach_the_course(root: Path) -> None:
    shown = (root / "autograded" / "mallory" / QUIZ / f"{QUIZ}.ipynb").read_text(encoding="utf-8")
    printed = "".join(
        output.get("text", "") for cell in nbformat.reads(shown, 4).cells for output in cell.get("outputs", [])
    )
    assert "REACHED" not in printed and SECRET not in printed
    assert not (root / "planted").exists()
    assert standing(root, QUIZ)["mallory"].by_cell["test_double"] == 3, "the answer itself is right"


@pytest.mark.nightly
@pytest.mark.isolation
def test_feedback_report_and_check_say_whose_process_the_tests_ran_in(root: Path) -> None:
    again = autograder("autograde", "--week", QUIZ, cwd=root).stdout
    assert "each student's own process" in again
    autograder("feedback", "--week", QUIZ, cwd=root)
    page = (root / "feedback" / "half" / QUIZ / f"{QUIZ}.html").read_text(encoding="utf-8")
    assert "ran in your own process" in page and "assert double(21)" not in page
    autograder("report", "--week", QUIZ, cwd=root)
    assert "own process" in (root / "report" / f"{QUIZ}.html").read_text(encoding="utf-8")
    checked = autograder("check", f"submitted/ada/{QUIZ}/{QUIZ}.ipynb", cwd=root).stdout
    assert "Automatic points: 5 of 5" in checked and "own process" in checked


def test_nbgrader_itself_generates_it(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "course"
    make_course_root(COURSE, copy, [])
    shutil.copytree(root / "source" / QUIZ, copy / "source" / QUIZ)
    run("nbgrader", "generate_assignment", QUIZ, cwd=copy)
    made = (copy / "notebooks" / QUIZ / f"{QUIZ}.ipynb").read_text(encoding="utf-8")
    assert made == (root / "notebooks" / QUIZ / f"{QUIZ}.ipynb").read_text(encoding="utf-8")
