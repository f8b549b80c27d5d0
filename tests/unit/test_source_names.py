"""The names that a cell defines, and those that it takes from elsewhere."""

import pytest

from autograder.course import Role
from autograder.grading import source_names
from autograder.grading.marking.stand_ins import _reached
from autograder.grading.messages import TaskCell
from autograder.grading.source_names import (
    MAX_PARSED,
    defined_names,
    free_names,
    linking_names,
    mentioned_words,
    parsed,
    settled_names,
    without_names,
)
from autograder.grading.submission.packages import not_here


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x):\n    return x", {"f"}),
        ("async def f(): pass\nclass C: pass", {"f", "C"}),
        ("a, (b, *c) = 1, (2, 3)", {"a", "b", "c"}),
        ("a: int = 1\nb += 1\n(d := 2)", {"a", "b", "d"}),
        ("import numpy.linalg\nimport torch as t\nfrom torch import nn as n, Tensor", {"numpy", "t", "n", "Tensor"}),
        ("for i in range(3): pass\nwith open('x') as f: pass", {"i", "f"}),
        ("print(x)", set()),
        ("", set()),
    ],
)
def test_defined_names(source: str, names: set[str]) -> None:
    assert defined_names(source) == names


def test_what_does_not_parse_is_read_off_the_line_starts() -> None:
    source = "def f(x:\n    return\nclass Rotary (nn.Module):\n  def inner(): pass\nclass Plain:"
    assert defined_names(source) == {"f", "Rotary", "Plain"}


def test_free_names_are_the_students_once_and_in_the_order_of_their_use() -> None:
    source = "from autograder.checks import week3\nweek3.f(f, lambda y: y + g(len(y)))\nh = known"
    assert free_names(source, {"known": 1}) == ["f", "g"]
    assert free_names("check(b)\ncheck(a)\ncheck(b)", {"check": None}) == ["b", "a"]


@pytest.mark.parametrize(
    "source", ["x = = 1", "\0", "(" * 5000, "x = 1" + " " * MAX_PARSED], ids=["syntax", "zero", "deep", "long"]
)
def test_what_cannot_be_parsed_safely_is_none(source: str) -> None:
    assert parsed(source) is None


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    g = 1\n    def h(): pass", {"f": True}),
        ("def f():\n    '''What it does.'''\n    # YOUR CODE HERE\n    raise NotImplementedError", {"f": False}),
        ("class C:\n    def a(self): pass\n    def b(self):\n        raise NotImplementedError('later')", {"C": False}),
        ("def f(x):\n    if x: raise NotImplementedError\n    return x", {"f": True}),
        ("%matplotlib inline\nif True:\n    a, b = 1, 2", {"a": True, "b": True}),
        ("a |= {1: 2}\nb = b + 1\nc: int\nd['x'] = 1", {}),  # they change existing values
        ("def f(:\n    return", {"f": True}),
    ],
)
def test_settled_names_need_nothing_from_before(source: str, names: dict[str, bool]) -> None:
    assert settled_names(source) == names


def test_a_cell_without_some_of_its_names() -> None:
    source = "import math\n@cache\ndef f():\n    return 1\n\n%time f()\na = 1; b = 2\nc = 3"
    assert without_names(source, frozenset({"f", "c"})) == "import math\n\n%time f()\na = 1; b = 2"
    assert without_names(source, frozenset()) == source and without_names("def f(:\nx = 1", frozenset({"f"})) == "x = 1"


GOOD = "@cache\ndef g():\n    return 1"
CUT = "def f():\n    a = 1\n<<<<<<< HEAD\n    return a"  # what is left of it would return nothing


@pytest.mark.parametrize("bad", ["def f(x):\n    return x[:, None", "for i in x:", "try:\n    x = 1", "def f():\n    '''Its", CUT,
                                 "x = {\n    1: −2\n}", "def f(\n    x,\n):\n    return (x", "x = 1\n# y\n    z = 2"])  # fmt: skip
def test_a_block_that_cannot_be_read_costs_no_other(bad: str) -> None:
    text, left_out = source_names.readable(f"{GOOD}\n```\n{bad}\n\n{GOOD}\nWell done, all!")
    assert text.split() == [*GOOD.split(), *GOOD.split()] and left_out[1].strip() == bad and len(left_out) == 3
    assert text.endswith(f"{GOOD}\n") and left_out[1].startswith("\n\n\n\n")
    assert source_names.readable("x y\n" * 10**5)[1] == []


def test_a_cell_depends_on_others_by_what_it_takes_and_by_what_they_can_replace() -> None:
    cell = "class Layer(Base):\n    def forward(self, x):\n        n = len(x)\n        return spare(x, n)\n"
    assert linking_names(cell) == {"Layer", "Base", "spare"}
    assert "spare" in linking_names("-" * 8000 + "spare")  # where Python gives up, every word counts


def test_a_module_that_the_notebook_writes_is_not_missing() -> None:
    assert not_here(["%%writefile mine.py\na = 1", "from mine import a\nimport nowhere"], ()) == ["nowhere"]


def test_two_classes_do_not_depend_on_each_other_by_their_methods() -> None:
    layer = "class {}:\n    def forward(self, x):\n        return {}(x)\n"
    cells = [TaskCell(n, Role.ANSWER, layer.format(n, f"of_{n}"), 1.0, (n, "forward")) for n in ("A", "B")]
    assert _reached(cells[0], cells) == ({"A", "of_A"}, {"of_A", "x"})
    cells.append(TaskCell("own", Role.STUDENT, "def forward(self, x):\n    return h(x)\nA.forward = forward"))
    assert "h" in _reached(cells[0], cells)[1]


def test_a_docstring_and_a_comment_call_nothing() -> None:
    words = mentioned_words('def f(x):\n    """Like `g`."""\n    return globals()["h"](k(x))  # not m\n')
    assert {"h", "k"} <= words and not {"g", "m"} & words
