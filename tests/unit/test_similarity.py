"""Which pairs are above the line, which are below, and what the page says about them."""

import random
import stat
from pathlib import Path

import pytest

from autograder.similarity.answers import ClassAnswers, clean
from autograder.similarity.compare import Answers, Comparison, Given, Lines, compare, draw_lines, highest
from autograder.similarity.fingerprints import read_code, read_text
from autograder.similarity.honest import habits, in_another_hand
from autograder.similarity.page import Honest, make_rows, segments, write_page

NOTHING = Given({}, {})
# Five textbook lines that anybody may have found; in the course these are the reference.
TEXTBOOK = """def rotate(x):
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    angles = torch.arange(x.shape[-1]) * 0.01
    return x * angles.cos() + turned * angles.sin()
"""
STUB = "def rotate(x):\n    # YOUR CODE HERE\n    raise NotImplementedError\n"
COPIED = """def rotate(x):
    width = x.shape[-1]
    turned = x.new_zeros(x.shape)
    for channel in range(0, width, 2):
        turned[..., channel] = -1 * x.select(-1, channel + 1)
        turned[..., channel + 1] = 1 * x.select(-1, channel)
    speed = torch.linspace(0, 0.01 * width, steps=width + 1)[:width]
    return torch.addcmul(x.mul(torch.cos(speed)), turned, torch.sin(speed))
"""


def made_up(chance: random.Random) -> str:
    """Return an answer that resembles no other."""
    lines = [
        f"    v{chance.randrange(99)} = x.{chance.choice('abcdefgh')}{chance.randrange(99)}({chance.randrange(999)}, {chance.randrange(9)})"
        for _ in range(9)
    ]
    return "def rotate(x):\n" + "\n".join(lines) + "\n    return x\n"


def prints_of(sources: list[str]) -> list[Answers]:
    return [{"rotate": read_code(source, frozenset({"rotate"}))} for source in sources]


def keys(source: str) -> dict[str, dict[str, frozenset[str]]]:
    return {"rotate": {name: frozenset(found) for name, found in read_code(source, frozenset({"rotate"})).items()}}


def looked_at(first: str, second: str, given: Given = NOTHING) -> float:
    """Return the height of the pair of answers among 28 other answers."""
    chance = random.Random(1)
    compared = compare(prints_of([first, second, *(made_up(chance) for _ in range(28))]), given)
    return float(draw_lines(compared, []).heights(compared)[0])


@pytest.mark.parametrize(
    "copy",
    [
        COPIED,
        COPIED.replace("width", "n").replace("channel", "c").replace("turned", "out").replace("speed", "w"),
        COPIED.replace("0.01", "0.02"),
        COPIED.replace("turned[..., channel] = -1", "# swap\n        turned[..., channel] = (-1)"),
    ],
    ids=["as it is", "renamed", "one constant", "a comment and brackets"],
)
def test_a_copy_lies_above_the_line(copy: str) -> None:
    assert looked_at(COPIED, copy) > 1


def test_reordered_functions_lie_above_the_line() -> None:
    helper = "def helper(y):\n    return y.roll(3, -1).clamp(min=0.125) + y.flip(-1).square() / 7\n"
    assert looked_at(COPIED + helper, helper + COPIED) > 1


def test_the_textbooks_five_lines_are_anybodys() -> None:
    known = Given(keys(STUB), keys(TEXTBOOK))
    renamed = TEXTBOOK.replace("first", "a").replace("second", "b")
    assert looked_at(TEXTBOOK, TEXTBOOK, known) < 1
    assert looked_at(TEXTBOOK, renamed, known) < 1


def test_the_released_cell_counts_for_nothing() -> None:
    assert looked_at(COPIED, COPIED, Given(keys(COPIED), {})) == 0.0


def test_what_earlier_years_wrote_is_less_rare() -> None:
    earlier = tuple(prints_of([COPIED] * 30))
    assert looked_at(COPIED, COPIED, Given({}, {}, earlier)) < looked_at(COPIED, COPIED) / 1.5


def test_what_the_whole_class_writes_weighs_nothing() -> None:
    compared = compare(prints_of([COPIED] * 12), NOTHING)
    assert not compared.by_exercise["rotate"].any()


def test_texts_are_compared_by_their_words() -> None:
    chance = random.Random(2)
    nouns = [f"w{number}" for number in range(300)]
    texts = [" ".join(chance.choices(nouns, k=60)) for _ in range(20)]
    texts.append(texts[0].upper().replace(" ", "\n"))
    compared = compare([{"proof": read_text(text)} for text in texts], NOTHING)
    (pair,) = (pair for pair in highest(compared, draw_lines(compared, []), 5) if pair.height > 1)
    assert (pair.first, pair.second) == (0, 20)


def test_a_line_is_no_lower_than_what_simulated_honest_pairs_reach() -> None:
    chance = random.Random(3)
    compared = compare(prints_of([made_up(chance) for _ in range(20)]), NOTHING)
    alike = compare(prints_of([COPIED, COPIED, *(made_up(chance) for _ in range(18))]), NOTHING)
    lines = draw_lines(compared, [alike])
    assert lines.heights(alike).max() <= 1
    assert lines.whole > draw_lines(compared, []).whole


@pytest.mark.parametrize("students", [2, 3])
def test_of_two_or_three_nothing_can_be_told_and_nothing_breaks(students: int) -> None:
    compared = compare(prints_of([COPIED] * students), NOTHING)
    assert not highest(compared, draw_lines(compared, []), 15)


def test_another_hand_is_valid_code_and_other_code() -> None:
    chance = random.Random(4)
    made = {in_another_hand(COPIED, chance, habits(chance)) for _ in range(20)}
    assert len(made) > 15
    for source in made:
        compile(source, "answer", "exec")
    assert in_another_hand("def f(:", chance, habits(chance)) == "def f(:"


def test_marks_are_merged_and_nothing_of_the_text_is_lost() -> None:
    text = "one two three four"
    assert segments(text, [(4, 7), (8, 13), (5, 7)]) == [("one ", False), ("two three", True), (" four", False)]
    assert segments(text, []) == [(text, False)]
    assert segments("a\n  b", [(0, 1), (4, 5)]) == [("a", True), ("\n  ", False), ("b", True)]
    assert "".join(piece for piece, _ in segments(COPIED, [(0, 3), (50, 90), (60, 70)])) == COPIED


HOSTILE = '<script>alert(1)</script></pre><img src=x onerror="alert(2)">\u202e\x1b[2J{{ 7 * 7 }}'


def page_of(tmp_path: Path, texts: dict[str, str], found: ClassAnswers | None = None) -> str:
    found = found or ClassAnswers()
    found.texts = {name: {"rotate": clean(text)} for name, text in texts.items()}
    prints = prints_of([one["rotate"] for one in found.texts.values()])
    compared = compare(prints, NOTHING)
    honest = Honest(compared.whole()[:0], 0)
    rows = make_rows(found, prints, compared, Lines(5.0, {"rotate": 5.0}), honest, {"rotate": "3.3 rotate"})
    path = tmp_path / "report" / "page.html"
    write_page(path, "week3_rope", found, rows, honest, {"rotate": "3.3 rotate"}, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_text(encoding="utf-8")


def test_a_page_shows_nothing_of_a_student_as_markup(tmp_path: Path) -> None:
    chance = random.Random(5)
    texts = {f"<b>{n}": f"{made_up(chance)}    return '{HOSTILE}'" for n in range(4)}
    texts["<i>copy"] = texts["<b>0"]
    found = ClassAnswers(unread={"<u>": "<s>why"}, cut=[("<em>", "rotate")])
    page = page_of(tmp_path, texts, found)
    assert not [
        tag for tag in ("<script", "<img", "<b>", "<i>", "<u>", "<s>", "<em>", "49", "\u202e", "\x1b") if tag in page
    ]
    assert "&lt;script&gt;" in page and "&lt;i&gt;copy" in page and "&lt;s&gt;why" in page


def test_a_page_is_only_its_owners_even_where_one_was_there(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "page.html").write_text("old")
    (tmp_path / "report" / "page.html").chmod(0o644)
    page = page_of(tmp_path, {"ada": COPIED, "boole": COPIED, "cantor": TEXTBOOK})
    assert "old" not in page and "With fewer than ten students" in page
    assert "<mark>" in page and "ada · boole" in page


def test_comparisons_of_different_exercises_are_not_mixed() -> None:
    """In an exercise that nobody has answered, every pair scores 0."""
    one, other = prints_of([COPIED, COPIED])
    compared = compare([one, other, {}, {"proof": read_text("a b c d e")}], NOTHING)
    assert isinstance(compared, Comparison) and set(compared.by_exercise) == {"rotate", "proof"}
    assert compared.scores("nothing").tolist() == [0.0] * 6
