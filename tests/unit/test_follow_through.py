"""A mistake is paid for once, by rules that no check can forget: each with a check, or an answer, made to break it."""

import contextlib
import math

import pytest
import torch

from autograder.checks import framework
from autograder.checks.context import grading
from autograder.checks.errors import StudentError
from autograder.checks.follow_through import Book, Kept, in_this_process
from autograder.checks.framework import Check, calling, exercise
from autograder.checks.result_cache import ResultCache
from autograder.checks.verdict import Verdict
from autograder.misconceptions.bank import Mistake

pytestmark = pytest.mark.usefixtures("made_up_checks")
WEEK = "week3_rope"  # rotate_half is an exercise of one point, rope_frequencies one of two


def sums_up(earlier):
    """What is right on top of somebody's own `rope_frequencies`: twice of that."""
    yield lambda n: 2 * earlier(n), "Graded with your own rope_frequencies."


def on_top(student, earlier, follows=sums_up, trivial=(), before=None, cache=None, forget=lambda: True):
    """The verdict on an exercise whose right answer is 2 * 10 * n, for a student with ``earlier``, which should be 10 * n."""

    def body(check: Check) -> None:
        with check.criterion("values", 1, golden=True):
            for n in (1, 2, 3):
                check.agrees(calling(n), f"f({n})")

    def named(rope_frequencies):
        return follows(rope_frequencies)

    test = exercise(WEEK, "rotate_half", lambda n: 20.0 * n, follows=named, trivial=trivial)(body)
    with grading(cache=cache) as context:
        context.verdicts.extend(before or [])
        context.forget = forget
        return test(student, earlier)


def test_what_is_built_upon_is_asked_where_the_answer_was_not():
    asked = []
    earlier = lambda n: asked.append("earlier") or 7.0 * n  # noqa: E731
    student = lambda n: asked.append("student") or 14.0 * n  # noqa: E731
    assert on_top(student, earlier, forget=lambda: asked.clear() or True).score == 1
    assert asked.index("student") > max(place for place, who in enumerate(asked) if who == "earlier")


def test_an_earlier_answer_that_repeats_what_a_later_one_says_gains_nothing():
    """It is asked where nothing has been said yet."""
    said = {}
    student, earlier = (lambda n: said.setdefault(n, 3.0)), (lambda n: said.get(n, 7.0 * n) / 2)
    assert on_top(student, earlier, forget=lambda: said.clear() or True).score == 0


def test_where_nothing_can_be_forgotten_nothing_is_built():
    assert on_top(lambda n: 14.0 * n, lambda n: 7.0 * n).score == 1
    assert on_top(lambda n: 14.0 * n, lambda n: 7.0 * n, forget=lambda: False).score == 0


@pytest.mark.parametrize("student", [lambda n: 5.0 * n, lambda n: 14.0 * n if n > 1 else 5.0, lambda n: [][n]])
def test_what_cannot_earn_more_is_not_rehearsed(student):
    """Each is wrong in its own way at the first question already: that one is put to what it might be built upon."""
    asked, forgotten = [], []
    earlier = lambda n: asked.append(n) or 7.0 * n  # noqa: E731
    assert on_top(student, earlier, forget=lambda: forgotten.append(1) or True).score == 0
    assert set(asked) <= {1} and not forgotten


def test_an_earlier_answer_that_changes_its_mind_is_no_base():
    times = iter(range(1000))
    assert on_top(lambda n: 14.0 * n, lambda n: 7.0 * n + next(times)).score == 0
    assert on_top(lambda n: 14.0 * n, lambda n: 7.0 * n).score == 1


def test_nan_is_an_answer_that_does_not_change():
    book = Book()
    kept = Kept(lambda n: math.nan, book, ("f",))
    tensors = Kept(lambda n: torch.tensor([math.nan, 1.0]), book, ("g",))
    kept(1), tensors(1)
    book.close()
    assert book.is_steady


def test_nothing_new_is_asked_once_the_answer_is_being_graded():
    book = Book()
    kept = Kept(lambda n: 1.0 * n, book, ("f",))
    kept(1)
    book.close()
    assert kept(1) == 1
    with pytest.raises(StudentError):
        kept(2)


def test_what_answers_nothing_earns_nothing_on_top_of_an_earlier_answer():
    constant = lambda n: 0.0  # noqa: E731
    assert on_top(lambda n: 0.0, constant).score == 1
    assert on_top(lambda n: 0.0, constant, trivial=(lambda n: 0.0,)).score == 0


def test_an_earlier_answer_on_which_the_check_itself_fails_is_no_base_and_breaks_nothing():
    def fails(earlier):
        yield lambda n: [][earlier(n)], "note"

    assert on_top(lambda n: 1.0, lambda n: 7, follows=fails).score == 0


def test_modules_are_compared_after_load_state_dict_only():
    class Random(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(3))

        def forward(self, x):
            return self.w * x

    book = Book()
    module = Kept(Random, book, ("M",))()
    module.load_state_dict({"w": torch.ones(3)})
    assert torch.equal(module(torch.ones(3)), torch.ones(3))
    book.close()
    assert book.is_steady
    again = Kept(Random, book, ("M",))()
    again.load_state_dict({"w": torch.ones(3)})
    assert torch.equal(again(torch.ones(3)), torch.ones(3))


def test_gradients_through_an_earlier_answer_are_kept_too():
    book = Book()
    kept = Kept(lambda x: x**2, book, ("f",))

    def slope():
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        return torch.autograd.grad(kept(x).sum(), x)[0]

    first = slope()
    book.close()
    assert torch.equal(first, torch.tensor([2.0, 6.0])) and torch.equal(slope(), first)


def test_gradients_with_respect_to_one_argument_and_to_both_are_two_questions():
    kept = Kept(lambda x, y: x * y, Book(), ("f",))
    for both in (False, True):
        x, y = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=both)
        found = torch.autograd.grad(kept(x, y).sum(), [x, y] if both else [x])
        assert [float(slope) for slope in found] == [3.0, 2.0][: len(found)]


def test_the_cause_is_looked_for_once_and_mistakes_are_run_once_for_a_class(monkeypatch):
    """On top of an earlier answer, too: there the diagnosis used to run without a memory, and once per trial."""
    sought, ran = [], []

    def mistaken(n):
        ran.append(n)
        return 30.0 * n

    monkeypatch.setattr(
        framework, "known_mistakes", lambda *names: sought.append(names) or [Mistake(mistaken, ("It triples.",))]
    )
    cache = ResultCache()
    for _ in range(3):
        verdict = on_top(lambda n: 14.0 * n if n < 3 else 0.0, lambda n: 7.0 * n, cache=cache)
        assert verdict.score == 0
    assert len(sought) == 3 and len(ran) <= 3


@pytest.mark.parametrize(("factor", "score", "questions"), [(20.0, 1, {1, 2, 3}), (30.0, 0, {1})])
def test_with_earlier_answers_replaced_only_what_may_earn_more_is_asked_everything(
    factor, score, questions, monkeypatch
):
    """`rope_frequencies` stands for an earlier answer that has lost points and that the answer calls."""
    monkeypatch.setitem(framework._references, (WEEK, "rope_frequencies"), lambda n: 10.0 * n)
    asked = []

    @contextlib.contextmanager
    def replacing(name, student, functions):
        yield (lambda n: asked.append(n) or factor * n), set(functions)

    def body(check: Check) -> None:
        with check.criterion("values", 1, golden=True):
            for n in (1, 2, 3):
                check.agrees(calling(n), f"f({n})")

    test = exercise(WEEK, "rotate_half", lambda n: 20.0 * n)(body)
    with grading() as context:
        context.verdicts.append(Verdict("rope_frequencies", "3.1", 2, []))
        context.replacing = replacing
        assert test(lambda n: 5.0 * n).score == score
    assert set(asked) == questions


def test_replaced_answers_are_put_back():
    space = {"inner": lambda: 1}
    exec("def outer():\n    return inner()\nclass Outer:\n    def call(self):\n        return inner()", space)
    for answer, call in ((space["outer"], space["outer"]), (space["Outer"], lambda: space["Outer"]().call())):
        with in_this_process("outer", answer, {"inner": lambda: 2, "another": lambda: 3}) as (again, used):
            assert call() == 2 and again is answer and used == {"inner"}
        assert call() == 1 and "another" not in space
