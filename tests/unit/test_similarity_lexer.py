"""Tokens: what is ignored, and texts that are made to take long."""

import random
import string
import time

import pytest

from autograder.similarity.fingerprints import read_code, read_text
from autograder.similarity.lexer import MAX_COMPARED, comments, statements

CODE = '''def turn(x, base=10000.0):
    """What it does."""
    half = x.shape[-1] // 2  # channels of a half
    first, second = x[..., :half], x[..., half:]
    return torch.cat((-second, first), dim=-1)
'''


def names_aside(source: str) -> set[str]:
    return set(read_code(source, frozenset({"turn"}))["names aside"])


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("half", "h").replace("first", "a").replace("second", "b"),
        CODE.replace("10000.0", "10_000.").replace("  # channels of a half", ""),
        CODE.replace('    """What it does."""\n', "    # nothing\n\n"),
        CODE.replace("torch.cat((", "torch.cat(\n        ("),
        CODE.replace(" // ", "//").replace("//", " \\\n    // "),
        CODE.replace("//", "//").replace("\n    return", "; return"),
        "%matplotlib inline\n!ls\n" + CODE,
    ],
    ids=["names", "numbers and comments", "docstring", "line break", "continued", "semicolon", "magics"],
)
def test_what_counts_for_nothing(other: str) -> None:
    assert names_aside(other) == names_aside(CODE)


def test_the_order_of_statements_counts_for_nothing() -> None:
    lines = CODE.splitlines()
    lines[2], lines[3] = lines[3], lines[2]
    assert names_aside("\n".join(lines)) == names_aside(CODE)


def test_a_sign_counts() -> None:
    assert names_aside(CODE.replace("-second, first", "second, -first")) != names_aside(CODE)


def test_attributes_that_the_answer_sets_are_names_and_others_are_not() -> None:
    code = "class A:\n    def __init__(self):\n        self.wq = 1\n    def forward(self, x):\n        return self.wq(x).mean()\n"
    assert names_aside(code) == names_aside(code.replace("wq", "query_map"))
    assert names_aside(code) != names_aside(code.replace("mean", "sum"))


def test_comments_are_read_as_words() -> None:
    assert [[token.text for token in words] for words in comments(CODE + "# it's TWO\n#\n")] == [
        ["channels", "of", "a", "half"],
        ["it", "s", "two"],
    ]


def test_places_are_those_of_the_answer() -> None:
    for token in [token for statement in statements(CODE) for token in statement]:
        if token.text.isidentifier():
            assert CODE[token.start : token.end] == token.text


PATHOLOGICAL = {
    "open strings": '"""' + '\\"\\"\\"' * 20_000,
    "a backslash at the end": '"' + '\\"' * (MAX_COMPARED // 2 - 1) + "\\" + "x" * MAX_COMPARED,
    "quotes": "'" * 60_000,
    "mixed quotes": "'\"" * 30_000,
    "brackets": "(" * 60_000,
    "backslashes": "\\" * 60_000,
    "digits": "9" * 60_000,
    "underscores": "1" + "_" * 60_000,
    "blanks": " \t" * 30_000 + "x",
    "no-break spaces": "\u00a0" * 60_000,
    "signs": "-" * 60_000,
    "prefixes": "rb" * 30_000,
    "lines": "\n" * 60_000,
    "self": "self " * 12_000,
    "annotations": "self.x:" * 9_000,
}


@pytest.mark.parametrize("text", PATHOLOGICAL.values(), ids=PATHOLOGICAL)
def test_a_text_made_to_take_long_is_read_in_time(text: str) -> None:
    """It takes a twentieth of a second; time quadratic in the length would be half a minute or more."""
    assert len(text) > MAX_COMPARED
    start = time.process_time()
    read_code(text, frozenset())
    read_text(text)
    assert time.process_time() - start < 15


def test_any_text_is_read_to_its_end() -> None:
    chance = random.Random(0)
    letters = string.printable + "äé\u200b\ud7ff𝒙\\\"'#%\n"
    for _ in range(300):
        text = "".join(chance.choices(letters, k=200))
        assert all(
            place[1] <= len(text) for places in read_code(text, frozenset())["as written"].values() for place in places
        )
