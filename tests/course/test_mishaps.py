"""Right answers in notebooks, files and folders that were mangled on the way get their due, graded as one class."""

import json
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, WEEK3, autograder, run, standing
from mangled import Mangled, read
from nbformat.v4 import new_code_cell

from autograder.classroom import make_course_root
from autograder.misconceptions.bank import bank

pytestmark = [pytest.mark.isolation, pytest.mark.slow, pytest.mark.nightly]

ALL, BY_HAND = 29, 2  # the solutions' automatic points, and the texts that a person grades
ROTATION, PROOF, QUESTION = "apply_rotary_emb", "relative_proof", "relative_proof_question"
WRONG_WAY = "Your rotation turns the wrong way"
HELPER = "def turn(even, odd, c, s):\n    return even * c - odd * s, even * s + odd * c\n"
USES_HELPER = """def apply_rotary_emb(x, positions, base=10000.0):
    angles = positions.double()[..., None] * rope_frequencies(x.shape[-1], base).double().to(x.device)
    angles = angles[:, None] if angles.dim() == 3 else angles
    turned = turn(x[..., 0::2].double(), x[..., 1::2].double(), angles.cos(), angles.sin())
    return torch.stack(turned, -1).flatten(-2).to(x.dtype)
"""
USES_IMPORT = """
_inner = apply_rotary_emb
def apply_rotary_emb(x, positions, base=10000.0):
    return next(iter([_inner(x, positions, base)])) if {used} else None
"""
USES_CHECKS = """
_serving = serving_test
def serving_test(*functions): return right_prompt is not None and _serving(*functions)
"""
WORDS = "OWN WORDS: rotations are orthogonal, so only the offset stays. می‌خواهیم 👩‍🔬"  # with joiners
QUIET = "copy1_older mac_double upper_case_extension upper_case_and_another saved_as_text folder_in_folder"
CASES: list[Callable[[Mangled], None]] = []


def case(mangle: Callable[[Mangled], None]) -> Callable[[Mangled], None]:
    """Add a student who is due full points."""
    CASES.append(mangle)
    return mangle


@case
def control(nb: Mangled) -> None:
    pass


@case
def split_code(nb: Mangled) -> None:
    nb.split(ROTATION, HELPER, USES_HELPER)


@case
def split_text(nb: Mangled) -> None:
    text = nb.source(PROOF)
    cut = text.index("\n", len(text) // 2)
    nb.split(PROOF, f"FIRST HALF {text[:cut]}", f"SECOND HALF {text[cut:]}")


@case
def merged_upwards_and_built_upon(nb: Mangled) -> None:
    """The cell of 3.3 also defines 3.2, which it calls; the cell of 3.2 is gone."""
    both = f"{nb.source('rope_frequencies')}\n\n{nb.source(ROTATION)}"
    nb.write_into(ROTATION, both)
    del nb.cells[nb.at("rope_frequencies")]


@case
def all_ids_lost(nb: Mangled) -> None:
    nb.lose_ids()


@case
def text_in_question(nb: Mangled) -> None:
    nb.blank(PROOF)
    nb.write_into(QUESTION, f"{nb.source(QUESTION)}\n\n{WORDS}")


@case
def import_in_setup(nb: Mangled) -> None:
    nb.write_into("setup", nb.source("setup") + "\nimport no_such_package\nimport itertools\n")
    used = USES_IMPORT.format(used="list(itertools.islice([1], 1))")
    nb.write_into(ROTATION, nb.source(ROTATION) + used)


@case
def stopped_cells(nb: Mangled) -> None:
    nb.write_into("rotate_half", nb.source("rotate_half") + "\nimport os\nos._exit(0)\n")
    nb.write_into("rope_frequencies", f"{nb.source('rope_frequencies')}\nprint(mistyped)\n{HELPER}")
    annotated = USES_HELPER.replace("(x,", "(x: Float[1],", 1)
    nb.write_into(ROTATION, f"from no_such_package import Float\nimport math\n{annotated}")
    nb.write_into("setup", nb.source("setup") + "\ntorch.set_default_device('cuda')\n")


@case
def unreadable_lines(nb: Mangled) -> None:
    nb.write_into(
        "rotate_half", f"```python\n{nb.source('rotate_half')}\n```\nIt's fast!\n{nb.source(ROTATION)}\nx = ("
    )
    del nb.cells[nb.at(ROTATION)]


@case
def helpers_elsewhere(nb: Mangled) -> None:
    """One stands below the tests, and the course's visible check defines the other, which is not run there."""
    nb.write_into(ROTATION, USES_HELPER)
    nb.cells.insert(nb.at(f"{ROTATION}_tests") + 1, new_code_cell(HELPER))
    nb.write_into("serving_test", nb.source("serving_test") + USES_CHECKS)


@case
def name_used_again(nb: Mangled) -> None:
    nb.cells.insert(nb.at("rope_frequencies_tests") + 1, new_code_cell("rope_frequencies = rope_frequencies(64)"))
    nb.write_into(ROTATION, nb.source(ROTATION) + "\nrope_frequencies = rope_frequencies(64)\n")
    nb.cells.insert(nb.at("rotate_half_tests"), new_code_cell("rotate_half = rotate_half(torch.ones(2))"))


@case
def in_other_answers_cells(nb: Mangled) -> None:
    """One is written a cell too low, and two stand in each other's cells."""
    nb.write_into("apply_rotary_emb_half", f"{nb.source(ROTATION)}\n\n{nb.source('apply_rotary_emb_half')}")
    nb.write_into(ROTATION, "")
    one, other = nb.source("rotate_half"), nb.source("rotary_tables")
    nb.write_into("rotate_half", other)
    nb.write_into("rotary_tables", one)


class Class:
    """All cases, graded in one course root, and what the commands printed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        make_course_root(COURSE, root, [WEEK3])
        for mangle in CASES:
            nb = Mangled()
            mangle(nb)
            nb.write(self.submitted(mangle.__name__))
        self.write_files()
        self.screen = autograder("--root", str(root), "autograde", "--week", "3", code=1).stdout
        autograder("--root", str(root), "feedback", "--week", "3")
        self.scores = standing(root)

    def submitted(self, student: str, folder: str = WEEK3) -> Path:
        return self.root / "submitted" / student / folder

    def write_files(self) -> None:
        blank = read("notebooks", WEEK3)
        for student, full, other in (
            ("copy1_beside_blank", f"{WEEK3}-Copy1.ipynb", f"{WEEK3}.ipynb"),
            ("download_beside_blank", f"{WEEK3} (1).ipynb", f"{WEEK3}.ipynb"),
            ("blank_and_two", "final.ipynb", f"{WEEK3}.ipynb"),
            ("two_of_other_names", "final.ipynb", "Untitled.ipynb"),
        ):
            (Mangled().write(self.submitted(student), full).parent / other).write_text(json.dumps(blank))
        Mangled().write(self.submitted("blank_and_two"), "other.ipynb")
        Mangled().write(self.submitted("copy1_older"))
        older = Mangled()
        older.blank(ROTATION)
        older.write(self.submitted("copy1_older"), f"{WEEK3}-Copy1.ipynb")
        older.write(self.submitted("copy1_newer"))
        Mangled().write(self.submitted("copy1_newer"), f"{WEEK3}-Copy1.ipynb")
        mac = Mangled().write(self.submitted("mac_double"), "Week 3 (Ada).ipynb")
        mac.with_name("._Week 3 (Ada).ipynb").write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X        " + bytes(100))
        Mangled().write(self.submitted("upper_case_extension"), "WEEK3_ROPE.IPYNB")
        upper = Mangled().write(self.submitted("upper_case_and_another"), "Week3_RoPE.ipynb")
        upper.with_name("scratch.ipynb").write_text(json.dumps({"cells": []}))
        lacking = Mangled()
        lacking.write_into(
            "rotate_half", "import no_such_package, beside\ndef rotate_half(x): return no_such_package.turn(x)"
        )
        lacking.write(self.submitted("package_used")).with_name("beside.py").write_text("")
        twice = Mangled()
        second = next(entry.source for entry in bank(WEEK3, ROTATION) if entry.says and WRONG_WAY in entry.says)
        twice.insert(second, below=ROTATION, kind="code")
        twice.write(self.submitted("wrong_the_second_time"))
        Mangled().write(self.submitted("saved_as_text"), f"{WEEK3}.ipynb.txt")
        Mangled().write(self.submitted("folder_in_folder") / "my week 3", f"{WEEK3}.ipynb")
        Mangled().write(self.submitted("in_other_case", "Week3_RoPE"))
        Mangled().write(self.submitted("numbered", f"{WEEK3} (1)"))
        Mangled().write(self.root / "submitted" / "without_folder")

    def cells(self, student: str) -> dict[str, nbformat.NotebookNode]:
        """Return the cells that a grader sees, by name."""
        path = self.root / "autograded" / student / WEEK3 / f"{WEEK3}.ipynb"
        cells = nbformat.read(path, as_version=4).cells
        return {cell.metadata.get("nbgrader", {}).get("grade_id") or cell.id: cell for cell in cells}

    def page(self, student: str) -> str:
        return (self.root / "feedback" / student / WEEK3 / f"{WEEK3}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Class:
    return Class(tmp_path_factory.mktemp("mishaps") / "course")


@pytest.mark.parametrize("student", [mangle.__name__ for mangle in CASES])
def test_a_mishap_costs_nothing(student: str, graded: Class) -> None:
    score = graded.scores[student]
    assert (score.score, score.to_grade_by_hand) == (ALL, BY_HAND), score


def test_both_halves_of_a_text_are_before_whoever_grades(graded: Class) -> None:
    shown = graded.cells("split_text")[PROOF].source
    assert shown.index("FIRST HALF") < shown.index("SECOND HALF")


def test_of_two_definitions_the_one_that_counts_is_asked_for_its_cause(graded: Class) -> None:
    page = graded.page("wrong_the_second_time")
    assert WRONG_WAY in page and "wrong after other calls" not in page


def test_words_beside_the_answer_are_marked_and_on_the_page(graded: Class) -> None:
    shown, page = graded.cells("text_in_question")[PROOF].source, graded.page("text_in_question")
    assert "found in the question's cell" in shown and WORDS in shown
    assert WORDS in page and "will be read by a person" in page


@pytest.mark.parametrize(
    ("student", "note"),
    [
        ("split_code", "the answer apply_rotary_emb was split over 2 cells"),
        ("merged_upwards_and_built_upon", "the answer rope_frequencies was found in the cell apply_rotary_emb"),
        ("unreadable_lines", "so it was run without what cannot be read as Python: line 1,"),
        ("stopped_cells", "Its cell stopped with ModuleNotFoundError: No module named"),
        ("helpers_elsewhere", "apply_rotary_emb uses turn, defined further down"),
        ("import_in_setup", "the set-up cell is the course"),
    ],
)
def test_the_page_says_what_was_done(student: str, note: str, graded: Class) -> None:
    assert note in graded.page(student)


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ("copy1_beside_blank", f"{WEEK3}-Copy1.ipynb holds 14 answers and was graded: {WEEK3}.ipynb holds none"),
        ("download_beside_blank", f"{WEEK3} (1).ipynb holds 14 answers and was graded: {WEEK3}.ipynb holds none"),
        ("two_of_other_names", "final.ipynb holds 14 answers and was graded: no other notebook does"),
        ("copy1_newer", f"{WEEK3}.ipynb was graded and holds 13 answers; more are in {WEEK3}-Copy1.ipynb (14)"),
    ],
)
def test_which_file_holds_the_answers_is_said_on_the_screen_and_on_the_page(
    student: str, said: str, graded: Class
) -> None:
    assert f"{student}: {said}" in graded.screen and said in graded.page(student)
    assert graded.scores[student].score == (ALL if student != "copy1_newer" else pytest.approx(19, abs=6))


@pytest.mark.parametrize("student", QUIET.split())
def test_files_that_need_no_word_on_the_screen(student: str, graded: Class) -> None:
    assert graded.scores[student].score == ALL and f"{student}:" not in graded.screen


def test_a_package_that_an_answer_needs_is_named_to_who_can_install_it(graded: Class) -> None:
    assert "package_used: imports beside, no_such_package, not installed here" in graded.screen
    assert "stopped_cells:" not in graded.screen and "imports no_such_package" in graded.page("stopped_cells")


def test_folders_that_nobody_grades_are_named(graded: Class) -> None:
    assert "other.ipynb (14 answers); keep one of them" in graded.scores["blank_and_two"].reason
    for place in ("in_other_case/Week3_RoPE", f"numbered/{WEEK3} (1)", f"without_folder/{WEEK3}.ipynb"):
        assert f"not graded: submitted/{place}: " in graded.screen
        assert place.split("/")[0] not in graded.scores


def test_plain_nbgrader_warns_too(graded: Class) -> None:
    done = run("nbgrader", "autograde", WEEK3, "--student", "copy1_beside_blank", "--force", cwd=graded.root)
    assert "copy1_beside_blank: week3_rope-Copy1.ipynb holds 14 answers" in done.stderr
    named = run("nbgrader", "autograde", WEEK3, "--student", "in_other_case", cwd=graded.root, code=None)
    assert "Not graded: submitted/in_other_case/Week3_RoPE" in named.stderr


def test_where_no_folder_has_the_name_the_error_says_what_there_is(tmp_path: Path) -> None:
    make_course_root(COURSE, tmp_path, [WEEK3])
    Mangled().write(tmp_path / "submitted" / "ada" / "Week3_RoPE")
    done = autograder("--root", str(tmp_path), "autograde", "--week", "3", code=2)
    assert "no submissions" in done.stderr and "found: submitted/ada/Week3_RoPE" in done.stderr
