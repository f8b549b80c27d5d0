"""What a student wrote is found, however the notebook was mangled."""

import ast
import base64
import copy
import io
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE
from mangled import Mangled, id_near
from PIL import Image

from autograder.grading.submission import intake
from autograder.grading.submission.pieces import own_lines
from autograder.manifest import MANIFEST

ROTATION, PROOF, QUESTION = "apply_rotary_emb", "relative_proof", "relative_proof_question"
BLANK = "YOUR ANSWER HERE"
ABOVE_THE_ROTATION = id_near(ROTATION, "above")  # the text cell with its question
HINT, PREDICTION, EXPERIMENT = (id_near(PROOF, how) for how in ("<details>", "prediction", "experiment"))


class Rebuilt:
    """A notebook after the intake."""

    def __init__(self, notebook: Mangled, folder: Path) -> None:
        self.intake = intake.rebuild(notebook.write(folder), COURSE, notebook.assignment)
        self.cells = self.intake.notebook.cells
        self.notes = "\n".join(self.intake.notes)

    def __getitem__(self, name: str) -> nbformat.NotebookNode:
        return next(cell for cell in self.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)

    @property
    def own(self) -> list[tuple[str, str]]:
        """The student's own cells, each with the cell above it."""
        names = [cell.metadata.get("nbgrader", {}).get("grade_id") or cell.id for cell in self.cells]
        return [
            (names[n - 1], cell.source)
            for n, cell in enumerate(self.cells)
            if "student" in cell.metadata.get("tags", [])
        ]

    @property
    def order(self) -> list[str]:
        """The code between the question of 3.3 and its visible check, as it is run."""
        ids = [cell.id for cell in self.cells]
        between = self.cells[ids.index(ABOVE_THE_ROTATION) + 1 : ids.index(f"{ROTATION}_check")]
        return [cell.source for cell in between if cell.cell_type == "code"]


@pytest.fixture
def rebuilt(tmp_path: Path) -> Callable[[Mangled], Rebuilt]:
    return lambda notebook: Rebuilt(notebook, tmp_path)


@pytest.fixture
def nb() -> Mangled:
    return Mangled()


@pytest.mark.parametrize("assignment", MANIFEST)
def test_of_a_notebook_in_order_nothing_is_noted(assignment: str, tmp_path: Path) -> None:
    released = Mangled(assignment)
    for cell in released.cells:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            released.blank(cell["metadata"]["nbgrader"]["grade_id"])
    for notebook in (Mangled(assignment), released):
        assert Rebuilt(notebook, tmp_path).intake.notes == []


# ---- a split code answer --------------------------------------------------------------------------------------------

HELPER = "def turn(even, odd, c, s):\n    return even * c - odd * s, even * s + odd * c"


def test_pieces_that_run_are_run_in_their_order(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    nb.split(ROTATION, HELPER, answer, "EPS = 1e-8")
    found = rebuilt(nb)
    assert found.order == [HELPER, answer, "EPS = 1e-8"] and found[ROTATION].source == answer
    assert f"the answer {ROTATION} was split over 3 cells; they were run one after the other" in found.notes


def test_cells_of_the_students_own_between_the_pieces_stay_there(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    nb.split(ROTATION, HELPER, answer)
    nb.insert("EPS = 1e-8", above=f"{ROTATION}-1", kind="code")
    nb.insert("A remark.", above=f"{ROTATION}-1")
    found = rebuilt(nb)
    assert found.order == [HELPER, "EPS = 1e-8", answer] and ("student-1", "A remark.") in found.own


def test_a_second_try_below_the_visible_check_counts(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    _, second = nb.split(ROTATION, f"def {ROTATION}(x, positions, base=10000.0):\n    return x", answer)
    nb.cells.remove(second)
    nb.cells.insert(nb.at(f"{ROTATION}_check") + 1, second)
    assert rebuilt(nb)[ROTATION].source == answer


@pytest.mark.parametrize("cut", ["    even, odd", "even, odd", "odd = x"])
@pytest.mark.parametrize("second", ["code", "markdown"])
def test_a_function_that_was_cut_in_two_is_put_together(cut: str, second: str, nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    head, tail = answer[: answer.index(cut)], answer[answer.index(cut) :]
    nb.split(ROTATION, head.rstrip("\n"), tail)[1]["cell_type"] = second
    found = rebuilt(nb)
    assert found.order == [answer] and "was split into 2 cells; they were joined" in found.notes


@pytest.mark.parametrize("cuts", [["    precise"], ["    angles =", "    even, odd"], ["turned"]])
def test_lower_halves_without_metadata_are_put_together_with_the_upper_one(
    cuts: list[str], nb: Mangled, rebuilt: Callable
) -> None:
    source = rest = nb.source(ROTATION)
    parts = []
    for cut in cuts:
        part, rest = rest[: rest.index(cut)], rest[rest.index(cut) :]
        parts.append(part.rstrip("\n"))
    _, *lower = nb.split(ROTATION, *parts, rest)
    for cell in lower:
        cell["metadata"] = {}
    found = rebuilt(nb)
    assert ast.dump(ast.parse(found[ROTATION].source)) == ast.dump(ast.parse(source)) and not found.own


@pytest.mark.parametrize("below", ["y = apply_rotary_emb(", "    return x", "print(1)"])
def test_what_does_not_complete_the_answer_above_it_is_the_students_own(
    below: str, nb: Mangled, rebuilt: Callable
) -> None:
    source = nb.source("rotate_by_hand")
    nb.insert(below, below="rotate_by_hand", kind="code")
    found = rebuilt(nb)
    assert found["rotate_by_hand"].source == source and found.own == [("rotate_by_hand", below)]


def test_of_two_definitions_the_last_counts_and_the_other_stands_above_it(nb: Mangled, rebuilt: Callable) -> None:
    answer, first = nb.source(ROTATION), f"def {ROTATION}(x, positions, base=10000.0):\n    return x"
    nb.split(ROTATION, first, answer)
    found = rebuilt(nb)
    assert found.order == [first, answer] and found[ROTATION].source == answer
    assert "it is defined in 2 of them, and the last one counts" in found.notes


TODO = "# YOUR CODE HERE\n{0}raise NotImplementedError"


@pytest.mark.parametrize("half", ["", "  \n", "{stub}", f"    {TODO.format('    ')}", TODO.format("")])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_half_in_which_nothing_was_written_is_no_answer(
    half: str, is_first: bool, nb: Mangled, rebuilt: Callable
) -> None:
    answer, half = nb.source(ROTATION), half.format(stub=nb.stub(ROTATION))
    nb.split(ROTATION, *((half, answer) if is_first else (answer, half)))
    found = rebuilt(nb)
    assert found.order == [answer] and not found[ROTATION].metadata.unanswered


def test_an_unfinished_second_try_does_not_take_the_place_of_the_first(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    again = f"def {ROTATION}(x, positions, base=10000.0):\n    y = x.double()\n    raise NotImplementedError"
    nb.split(ROTATION, answer, again)
    values = nb.source("rotate_by_hand").strip("\n")
    nb.write_into("rotate_by_hand", f"{values}\n{nb.stub('rotate_by_hand')}")  # git merged so
    assert rebuilt(nb).order == [again, answer] and rebuilt(nb)["rotate_by_hand"].source == values


@pytest.mark.parametrize(("first", "name"), [("rotate_half", "rotary_tables"), (PROOF, "bfloat16_explained")])
def test_a_copied_cell_with_another_answer_is_that_ones(first: str, name: str, nb: Mangled, rebuilt: Callable) -> None:
    answers = {one: nb.source(one) for one in (first, name)}
    nb.cells.insert(nb.at(name), copy.deepcopy(nb.cells[nb.at(first)]) | {"source": answers[name], "id": "copy"})
    nb.blank(name)
    found = rebuilt(nb)
    assert all(answer in found[one].source for one, answer in answers.items()) and "was split" not in found.notes


def test_halves_of_the_stub_are_no_answer(nb: Mangled, rebuilt: Callable) -> None:
    stub = nb.stub(ROTATION)
    cut = stub.index("    # YOUR CODE HERE")
    nb.split(ROTATION, stub[:cut], stub[cut:])
    found = rebuilt(nb)
    assert found.order == [stub] and found[ROTATION].metadata.unanswered


def test_what_was_given_stays_where_the_other_half_adds_to_it(nb: Mangled, rebuilt: Callable) -> None:
    numbers = 'rotate_by_hand |= {"q3_0": -0.98999}'
    stub = nb.stub("rotate_by_hand")
    nb.split("rotate_by_hand", stub, numbers)
    sources = [cell.source for cell in rebuilt(nb).cells if cell.cell_type == "code"]
    assert sources.index(stub) + 1 == sources.index(numbers)


@pytest.mark.parametrize("words", ["Here is how I did it: first the angles.", "Explanation", "# My rotation"])
def test_a_piece_of_prose_is_shown_and_not_run(words: str, nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    nb.split(ROTATION, words, answer)[0]["cell_type"] = "markdown"
    found = rebuilt(nb)
    assert found.order == [answer] and any(source == words for _, source in found.own)


def test_a_copy_elsewhere_is_shown_and_changes_nothing(nb: Mangled, rebuilt: Callable) -> None:
    answer, other = nb.source(ROTATION), f"def {ROTATION}(x, positions, base=10000.0):\n    return -x"
    nb.copy_to_the_end(ROTATION, other)
    found = rebuilt(nb)
    assert found.order == [answer] and found.cells[-1].source == other
    assert f"there are further cells {ROTATION}" in found.notes


@pytest.mark.parametrize(("below", "is_said"), [(ROTATION, True), (f"{ROTATION}_tests", False)])
def test_an_old_try_below_an_answer_is_named(below: str, is_said: bool, nb: Mangled, rebuilt: Callable) -> None:
    nb.insert(f"def {ROTATION}(x, positions, base=10000.0):\n    return x", kind="code", below=below)
    assert (f"{ROTATION} is defined once more in a cell below its answer" in rebuilt(nb).notes) == is_said


def test_the_copy_elsewhere_is_the_answer_where_the_first_was_left_blank(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    nb.copy_to_the_end(ROTATION, answer)
    nb.blank(ROTATION)
    assert rebuilt(nb).order == [answer]


@pytest.mark.parametrize("place", ["above", "below"])
def test_code_in_a_new_cell_beside_the_one_meant_for_it(place: str, nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source(ROTATION)
    nb.insert(answer, kind="code", **{place: ROTATION})
    nb.blank(ROTATION)
    found = rebuilt(nb)
    assert found.order == [answer] and not found[ROTATION].metadata.unanswered
    assert f"the answer {ROTATION} was found in a new cell" in found.notes


@pytest.mark.parametrize("left", ["the stub", "", "# see below"])
def test_an_answer_in_a_later_exercises_cell_is_taken_from_there(left: str, nb: Mangled, rebuilt: Callable) -> None:
    answer, later = nb.source(ROTATION), nb.source("apply_rotary_emb_half")
    nb.write_into("apply_rotary_emb_half", f"{answer}\n\n{later}")
    nb.write_into(ROTATION, nb.stub(ROTATION) if left == "the stub" else left)
    found = rebuilt(nb)
    assert answer in found[ROTATION].source and not found[ROTATION].metadata.unanswered
    assert found["apply_rotary_emb_half"].source.strip() == later
    assert f"the answer {ROTATION} was found in the cell apply_rotary_emb_half" in found.notes


def test_a_helper_left_in_the_own_cell_is_kept(nb: Mangled, rebuilt: Callable) -> None:
    nb.write_into("apply_rotary_emb_half", f"{nb.source(ROTATION)}\n\n{nb.source('apply_rotary_emb_half')}")
    nb.write_into(ROTATION, f"import math\n\ndef turn(x):\n    return x\n\n{nb.stub(ROTATION)}")
    source = rebuilt(nb)[ROTATION].source
    assert source.index("import math") < source.index("def turn") < source.index(f"def {ROTATION}(")
    assert source.count(f"def {ROTATION}(") == 1 and "NotImplementedError" not in source


def test_a_dictionary_in_another_answers_cell_counts_where_the_template_is_left(rebuilt: Callable) -> None:
    nb = Mangled("week1_permutation_equivariance")
    nb.write_into("equivariance_gap", f"{nb.source('attention_by_hand')}\n\n{nb.source('equivariance_gap')}")
    answer = nb.source("attention_by_hand")
    nb.blank("attention_by_hand")
    assert answer in rebuilt(nb)["attention_by_hand"].source


@pytest.mark.parametrize("left", ["# see below", "print('later')", "import math"])
def test_an_answer_far_below_counts_where_its_own_cell_holds_something_else(
    left: str, nb: Mangled, rebuilt: Callable
) -> None:
    nb.insert(nb.source(ROTATION), below="rotary_tables_tests", kind="code")
    nb.write_into(ROTATION, left)
    found = rebuilt(nb)
    assert not found[ROTATION].metadata.unanswered and f"def {ROTATION}" in found[ROTATION].source


def test_a_second_definition_below_the_tests_is_noted(nb: Mangled, rebuilt: Callable) -> None:
    nb.insert(nb.source(ROTATION), below="rotary_tables_tests", kind="code")
    assert f"{ROTATION} is defined once more below its tests; the one above them was graded" in rebuilt(nb).notes


def test_two_answers_in_each_others_cells_change_places(nb: Mangled, rebuilt: Callable) -> None:
    one, other = nb.source("rotate_half"), nb.source("rotary_tables")
    nb.write_into("rotate_half", other)
    nb.write_into("rotary_tables", one)
    found = rebuilt(nb)
    assert found["rotate_half"].source == one and found["rotary_tables"].source == other


@pytest.mark.parametrize("where", ["rotate_half_check", EXPERIMENT, "rotate_half_tests", "rotary_tables_tests"])
def test_an_answer_in_a_cell_below_counts_where_the_stub_is(where: str, nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source("rotate_half")
    nb.blank("rotate_half")
    if not where.endswith("_tests"):
        nb.write_into(where, f"{answer}\n\n{nb.source(where)}")
    else:
        nb.cells.insert(nb.at(where) + 1, {"cell_type": "code", "metadata": {}, "source": answer, "outputs": []})
    found = rebuilt(nb)
    assert found["rotate_half"].source.startswith(answer.strip()) and "rotate_half was found" in found.notes


def test_all_answers_in_one_cell_at_the_end_count_where_the_stubs_were_left(nb: Mangled, rebuilt: Callable) -> None:
    names = ("rotate_half", "rotary_tables", "decode_step_scores")
    answers = {name: nb.source(name) for name in names}
    for name in names:
        nb.blank(name)
    everything = "\n\n".join(answers.values())
    nb.cells.append({"cell_type": "code", "metadata": {}, "source": everything, "outputs": []})
    found = rebuilt(nb)
    assert all(f"def {name}" in found[name].source and not found[name].metadata.unanswered for name in names)


@pytest.mark.parametrize("between", [("markdown", ""), ("code", ""), ("code", "x = 1"), ("markdown", "and on")])
def test_what_stands_between_the_halves_of_a_class_does_not_part_them(
    between: tuple[str, str], nb: Mangled, rebuilt: Callable
) -> None:
    name = "RotaryMultiHeadAttention"
    whole = nb.source(name)
    cut = whole.index("    def forward")
    nb.write_into(name, whole[:cut])
    at = nb.at(name) + 1
    lower = {"cell_type": "code", "metadata": {}, "source": whole[cut:], "outputs": []}
    kind, source = between
    nb.cells[at:at] = [lower | {"cell_type": kind, "source": source}, lower]
    found = rebuilt(nb)
    assert "def __init__" in found[name].source and "def forward" in found[name].source


# ---- merged cells ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", ["rotate_half", "rotary_tables", "rotate_half_check"])
def test_merged_code_answers_are_both_found(keeps: str, nb: Mangled, rebuilt: Callable) -> None:
    answers = {name: nb.source(name) for name in ("rotate_half", "rotary_tables")}
    nb.merge("rotate_half", "rotary_tables", keeps)
    found = rebuilt(nb)
    for name, answer in answers.items():
        assert found[name].source == answer or (keeps.endswith("_check") and found[name].source.startswith(answer))
        assert (f"the answer {name} was found in the cell {keeps}" in found.notes) is (name != keeps)


@pytest.mark.parametrize("keeps", ["rotate_half", "rotary_tables"])
def test_merged_answers_with_nothing_of_the_courses_between_them(keeps: str, nb: Mangled, rebuilt: Callable) -> None:
    both = f"{nb.source('rotate_half')}\n\n@torch.no_grad()\n{nb.source('rotary_tables')}"
    gone = "rotary_tables" if keeps == "rotate_half" else "rotate_half"
    nb.write_into(keeps, both)
    del nb.cells[nb.at(gone)]
    found = rebuilt(nb)
    assert found["rotate_half"].source == both  # it runs first; what else it defines is defined again later
    assert found["rotary_tables"].source.startswith("@torch.no_grad()\ndef rotary_tables")
    assert f"the answer {gone} was found in the cell {keeps}" in found.notes and not found[gone].metadata.unanswered


def test_code_answers_merged_with_the_text_between_them(nb: Mangled, rebuilt: Callable) -> None:
    answer = nb.source("interleaved_to_half")
    nb.merge("apply_rotary_emb_half", "interleaved_to_half")
    found = rebuilt(nb)
    assert found["interleaved_to_half"].source == answer and "def " in found["apply_rotary_emb_half"].source


def test_a_text_answer_merged_into_a_code_answer_is_read(nb: Mangled, rebuilt: Callable) -> None:
    text, numbers = nb.source("bfloat16_explained"), nb.source("bfloat16_positions")
    nb.merge("bfloat16_positions", "bfloat16_explained")
    found = rebuilt(nb)
    assert text in found["bfloat16_explained"].source and not found["bfloat16_explained"].metadata.unanswered
    assert found["bfloat16_positions"].source == numbers


def test_two_text_answers_merged(tmp_path: Path) -> None:
    nb = Mangled("week7_capstone")
    memo, talk = nb.source("copying_explained"), nb.source("interview")
    nb.merge("copying_explained", "interview")
    found = Rebuilt(nb, tmp_path)
    assert found["copying_explained"].source == memo and talk in found["interview"].source
    assert "found in the cell copying_explained" in found["interview"].source


def test_an_answer_merged_with_its_question_and_the_hint(nb: Mangled, rebuilt: Callable) -> None:
    text = nb.source(PROOF)
    nb.merge(QUESTION, HINT, keeps=PROOF)
    assert rebuilt(nb)[PROOF].source == text
    answer = nb.source(ROTATION)
    nb.merge(ABOVE_THE_ROTATION, ROTATION)
    assert rebuilt(nb)[ROTATION].source == answer


# ---- text answers ---------------------------------------------------------------------------------------------------


def test_pieces_of_a_text_are_one_text(nb: Mangled, rebuilt: Callable) -> None:
    nb.split(PROOF, "First $$a", "= b$$ so", "last.")[2]["cell_type"] = "code"
    nb.insert("Between.", above=f"{PROOF}-1")
    nb.cells.append(dict(nb.cells[nb.at(PROOF)], source="Elsewhere.", id="copy"))
    found = rebuilt(nb)
    assert found[PROOF].source == "First $$a\n= b$$ so\n\nlast.\n\nElsewhere.".replace("a\n=", "a\nBetween.\n=")
    assert not [source for _, source in found.own]


@pytest.mark.parametrize("half", ["", BLANK, "First half."])
def test_a_blank_half_or_a_copy_adds_nothing(half: str, nb: Mangled, rebuilt: Callable) -> None:
    nb.split(PROOF, "First half.", half)
    assert rebuilt(nb)[PROOF].source == "First half."


def test_two_blank_halves_are_no_answer(nb: Mangled, rebuilt: Callable) -> None:
    nb.split(PROOF, BLANK, f"**{BLANK}**")
    assert rebuilt(nb)[PROOF].metadata.unanswered


WORDS = "Rotations are orthogonal, so only the offset stays."


def delete_its_cell_and_write_below(nb: Mangled) -> None:
    nb.insert(WORDS, below=PROOF)
    del nb.cells[nb.at(PROOF)]


def merge_into_the_question(nb: Mangled) -> None:
    nb.write_into(PROOF, WORDS)
    nb.merge(QUESTION, PROOF)


def change(name: str, new: Callable[[str], str]) -> Callable[[Mangled], None]:
    return lambda nb: nb.write_into(name, new(nb.source(name)))


WAYS: dict[str, Callable[[Mangled], object]] = {
    "above": lambda nb: nb.insert(WORDS, above=PROOF),
    "above the question": lambda nb: nb.insert(WORDS, above=QUESTION),
    "below": lambda nb: nb.insert(WORDS, below=PROOF),
    "below the hint": lambda nb: nb.insert(WORDS, below=HINT),
    "as code": lambda nb: nb.insert(WORDS, above=PROOF, kind="code"),
    "as a comment": lambda nb: nb.insert(f"# {WORDS}", below=PROOF, kind="code"),
    "as a string": lambda nb: nb.insert(f'proof = """{WORDS}"""', below=PROOF, kind="code"),
    "into the question": change(QUESTION, lambda text: f"{text}\n\n{WORDS}"),
    "into a line of the question": change(
        QUESTION, lambda text: text.replace("lines are enough.", f"lines are enough. {WORDS}")
    ),
    "over the question": lambda nb: nb.write_into(QUESTION, WORDS),
    "over the hint": lambda nb: nb.write_into(HINT, WORDS),
    "into an experiment": change(EXPERIMENT, lambda text: f"{text}\n# {WORDS}"),
    "below, without its cell": delete_its_cell_and_write_below,
    "merged into the question": merge_into_the_question,
}


@pytest.mark.parametrize("without_ids", [False, True])
@pytest.mark.parametrize("where", WAYS)
def test_words_beside_a_blank_text_answer_are_the_answer(
    where: str, without_ids: bool, nb: Mangled, rebuilt: Callable
) -> None:
    nb.blank(PROOF)
    WAYS[where](nb)
    if without_ids:
        if where.startswith("over "):
            return  # the cell could be any
        nb.lose_ids()
    found = rebuilt(nb)
    answer = found[PROOF]
    assert not answer.metadata.unanswered and WORDS in answer.source.replace("\n", " ")
    assert "found in" in answer.source and f"the answer {PROOF} was not in the cell meant for it" in found.notes
    assert "Exercise" not in answer.source and "Hint" not in answer.source  # no words of the course
    assert not any(WORDS in source for _, source in found.own if not source.startswith(("#", "proof")))


def test_without_ids_the_texts_are_where_they_were(nb: Mangled, rebuilt: Callable) -> None:
    texts = {name: nb.source(name) for name in (PROOF, "bfloat16_explained")}
    nb.lose_ids()
    found = rebuilt(nb)
    assert all(text in found[name].source for name, text in texts.items()) and found.own == []


def test_what_is_no_answer_asks_nobody(nb: Mangled, rebuilt: Callable) -> None:
    nb.blank(PROOF)
    nb.write_into(PREDICTION, f"{nb.source(PREDICTION)}\n\nI expect that all of them pass every property.")
    nb.insert(nb.source(HINT), below=HINT)  # a copy of the course's cell
    nb.insert("y = apply_rotary_emb(x, positions)\nprint(y.shape)", below=PROOF, kind="code")
    nb.write_into(EXPERIMENT, nb.source(EXPERIMENT).replace('lab.table([""', 'lab.table(["test"'))
    nb.insert("A note on another exercise.", below="RotaryMultiHeadAttention")
    nb.insert("---", below=PROOF)
    found = rebuilt(nb)
    assert found[PROOF].metadata.unanswered and PROOF not in found.notes


def test_texts_collected_at_the_end_are_shown_for_every_answer_left_blank(tmp_path: Path) -> None:
    nb = Mangled("week7_capstone")
    moved = {name: nb.source(name) for name in ("copying_explained", "design_memo")}
    for name, text in moved.items():
        nb.blank(name)
        nb.insert(f"## My answer\n\n{text}", below=nb.cells[-1]["id"])
    found = Rebuilt(nb, tmp_path)
    for name in moved:
        assert all(text in found[name].source for text in moved.values()) and not found[name].metadata.unanswered
    assert "end of the notebook" in found.notes
    assert "end of the notebook" not in found["interview"].source, "it was answered where it belongs"


@pytest.mark.parametrize("at_the_end", ["---", BLANK, "the question once more", "code"])
def test_what_is_no_text_of_the_students_at_the_end_asks_nobody(
    at_the_end: str, nb: Mangled, rebuilt: Callable
) -> None:
    text = {"the question once more": nb.source(QUESTION), "code": "print(1)  # the first of my few experiments"}
    nb.blank(PROOF)
    last, kind = nb.cells[-1]["id"], "code" if at_the_end == "code" else "markdown"
    nb.insert(text.get(at_the_end, at_the_end), below=last, kind=kind)
    found = rebuilt(nb)
    assert found[PROOF].metadata.unanswered and PROOF not in found.notes


def test_what_stands_beside_an_answer_is_shown_there(nb: Mangled, rebuilt: Callable) -> None:
    nb.write_into(PROOF, "Part 1 and 2.")
    WAYS["into the question"](nb)
    found = rebuilt(nb)
    assert found[PROOF].source == "Part 1 and 2." and found.own == [(QUESTION, WORDS)]


def test_a_text_that_became_a_code_cell_is_shown_as_it_was_typed(nb: Mangled, rebuilt: Callable) -> None:
    nb.write_into(PROOF, f"# {WORDS}")
    nb.cells[nb.at(PROOF)]["cell_type"] = "code"
    found = rebuilt(nb)
    assert found[PROOF].source == f"````\n# {WORDS}\n````" and "had become a code cell" in found.notes


def test_pictures_of_one_name_come_along_and_keep_apart(nb: Mangled, rebuilt: Callable) -> None:
    nb.blank(PROOF)
    for size in (1, 2):
        drawn = io.BytesIO()
        Image.new("L", (size, size)).save(drawn, "PNG")
        picture = {"image/png": base64.b64encode(drawn.getvalue()).decode()}
        nb.insert("![](attachment:i.png)", above=PROOF, attachments={"i.png": picture})
    found = rebuilt(nb)
    names, pictures = zip(*found[PROOF].attachments.items(), strict=True)
    assert len(names) == 2 and pictures[0] != pictures[1]
    assert all(f"(attachment:{name})" in found[PROOF].source for name in names)


def test_joiners_and_new_letters_stay_and_what_turns_lines_around_goes(nb: Mangled, rebuilt: Callable) -> None:
    written = "می‌خواهیم 👩‍🔬 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f क्‍ष א\u200fב \U0001fae9"
    nb.write_into(PROOF, f"{written}\u202e\u200b\x07")
    assert rebuilt(nb)[PROOF].source == written


def test_answers_collected_at_the_end_of_a_notebook_without_ids_are_found(nb: Mangled, rebuilt: Callable) -> None:
    names = [one.grade_id for one in MANIFEST[nb.assignment]]
    answers = [copy.deepcopy(nb.cells[nb.at(name)]) for name in names]
    for name in names:
        nb.blank(name)
    nb.nb["cells"] = [*nb.cells, *answers]
    for number, cell in enumerate(nb.cells):
        cell["metadata"], cell["id"] = {}, f"cell-{number}"
    found = rebuilt(nb)
    for name, answer in zip(names, answers, strict=True):
        assert answer["source"].strip() in found[name].source, name


def test_copies_of_one_answer_are_one(nb: Mangled, rebuilt: Callable) -> None:
    """For example, a file may contain the whole notebook twice."""
    written = nb.source(ROTATION)
    nb.nb["cells"] = [*nb.cells, *copy.deepcopy(nb.cells)]
    found = rebuilt(nb)
    assert found[ROTATION].source == written and "was split" not in found.notes


def test_texts_that_have_become_comments_are_read(rebuilt: Callable) -> None:
    """`nbconvert --to script` writes them so, and programs that make a notebook from the script keep them so."""
    nb = Mangled("week2_sinusoidal")
    nb.write_into("four_terms", "The first term alone depends on the tokens.")
    for number, cell in enumerate(nb.cells):
        cell["metadata"], cell["id"] = {}, f"cell-{number}"
        if cell["cell_type"] == "markdown":
            cell["source"] = "\n".join(f"# {line}".rstrip() for line in cell["source"].split("\n"))
            cell |= {"cell_type": "code", "outputs": [], "execution_count": None}
    assert "The first term alone depends" in rebuilt(nb)["four_terms"].source


# ---- the set-up cell ------------------------------------------------------------------------------------------------


def test_what_was_added_to_the_set_up_cell_is_run_below_it(nb: Mangled, rebuilt: Callable) -> None:
    added = ["import itertools", "from functools import (\n    partial,\n    reduce as fold,\n)"]
    added += ["EPS = 1e-8", "@partial\ndef helper():\n    return EPS"]
    nb.write_into("setup", "\n".join([nb.source("setup"), "%matplotlib widget", *added]))
    found = rebuilt(nb)
    assert [source for _, source in found.own] == added  # in separate cells, so that one that fails costs no other
    assert found.own[0][0] == "setup" and "the set-up cell is the course's own again" in found.notes


@pytest.mark.parametrize("place", [EXPERIMENT, f"{ROTATION}_check", f"{ROTATION}_tests"])
def test_what_an_answer_may_need_of_a_cell_that_is_not_run_is_run_above_it(
    nb: Mangled, rebuilt: Callable, place: str
) -> None:
    """In Jupyter, imports and helpers work in the cell of a figure or a check, too."""
    added = ["from functools import partial", "def turned(x):\n    return partial(max, x)"]
    nb.write_into(place, "\n".join([*added, nb.source(place), "of_mine = 3", "print(of_mine)"]))
    added, found = [*added, "of_mine = 3"], rebuilt(nb)
    assert [source for _, source in found.own] == added
    ids = [cell.id for cell in found.cells]
    here = ids.index(nb.cells[nb.at(place)]["id"])
    assert [cell.source for cell in found.cells[here - 3 : here]] == added
    assert "plain assignments that were added to them were run" in found.notes


def test_a_changed_function_of_a_cell_that_is_not_run_is_no_addition(nb: Mangled, rebuilt: Callable) -> None:
    nb.write_into(EXPERIMENT, "def drawn(x):\n    return x\n")
    own = rebuilt(nb).own
    nb.write_into(f"{ROTATION}_check", nb.source(f"{ROTATION}_check") + "\ndef apply_rotary_emb(x):\n    return 0\n")
    assert rebuilt(nb).own == own


def test_a_line_that_was_only_laid_out_anew_is_no_addition(nb: Mangled, rebuilt: Callable) -> None:
    nb.write_into("setup", nb.source("setup").replace("torch.manual_seed(0)", "torch.manual_seed( 0 )  # mine"))
    assert rebuilt(nb).own == []


def test_own_lines() -> None:
    text = "Question.\n\n$$\nx\n$$\n\nEnd."
    assert own_lines(text, text) == "" and own_lines(f"{text}\n\nMine:\n\n$$\ny\n$$", text) == "Mine:\n\n$$\ny\n$$"
    assert own_lines(text.replace("End.", "End. Mine."), text) == "Mine."
    assert own_lines("x\n" * 5000 + "y", text).endswith("y")
    assert own_lines("**2 points · text**\n\nMine.", "**1 point · text**") == "Mine."
