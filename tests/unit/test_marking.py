"""A mistake is paid for once: each rule for that, with a check or an answer made to break it."""

import contextlib
from dataclasses import replace

import pytest

from autograder.checks.framework import Check, calling, exercise
from autograder.grading.marking import diagnosis
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.grading.marking.stand_ins import in_this_process
from autograder.misconceptions.bank import Mistake

WEEK = "week3_rope"  # rotate_half is an exercise of one point, rope_frequencies one of two
TRIPLES = "It triples."


def values(check: Check) -> None:
    with check.criterion("values", 1, golden=True):
        for n in (1, 2, 3):
            check.agrees(calling(n), f"f({n})")


def values_twice(check: Check) -> None:
    values(check)
    with check.criterion("more values", 1, golden=True):
        check.agrees(calling(4), "f(4)")


def made_up(grade_id, factor, carried=(TRIPLES,)):
    """Return an exercise whose right answer multiplies by ``factor``; tripling the result is a known mistake."""
    body = values if grade_id == "rotate_half" else values_twice
    mistakes = (Mistake(lambda n: 3 * factor * n, (TRIPLES,)),)
    test = exercise(WEEK, grade_id, lambda n: factor * n)(body)
    return replace(test, mistakes=lambda: mistakes, carried=lambda: carried)


OF_ITS_OWN = [(5.0, 20.0, 1, True), (5.0, 30.0, 0, True), (5.0, None, 0, False), (None, None, 0, True)]


@pytest.mark.parametrize(("own", "factor", "score", "shown"), OF_ITS_OWN)
def test_with_earlier_answers_replaced_the_verdict_is_on_the_answer_s_own_mistakes(own, factor, score, shown):
    """`rope_frequencies` plays an earlier answer that has lost points and that the answer calls."""
    asked = []

    @contextlib.contextmanager
    def replacing(name, student, functions):
        yield (lambda n: asked.append(n) or factor * n), set(functions)

    with grading() as marking:
        made_up("rope_frequencies", 10.0)(lambda n: 0.0)
        marking.replacing = replacing
        verdict = made_up("rotate_half", 20.0)(lambda n: own * n)  # None: it raises
    assert verdict.score == score and set(asked) == ({1, 2, 3} if score else {1})
    assert ("in place of your 3.2 (`rope_frequencies`)" in verdict.note) == shown


def test_replaced_answers_are_put_back():
    space = {"inner": lambda: 1}
    exec("def outer():\n    return inner()\nclass Outer:\n    def call(self):\n        return inner()", space)
    for answer, call in ((space["outer"], space["outer"]), (space["Outer"], lambda: space["Outer"]().call())):
        with in_this_process("outer", answer, {"inner": lambda: 2, "another": lambda: 3}) as (again, used):
            assert call() == 2 and again is answer and used == {"inner"}
        assert call() == 1 and "another" not in space


def test_a_mistake_that_was_named_before_and_is_made_again_is_paid_for_once():
    with grading():
        assert made_up("rope_frequencies", 10.0)(lambda n: 30.0 * n).named == [TRIPLES]
        again = made_up("rotate_half", 20.0)(lambda n: 60.0 * n)
    assert again.score == 1 and not again.named
    assert again.note == "The same mistake as in your 3.2 (`rope_frequencies`): it is not paid for again."


@pytest.mark.parametrize(
    ("before", "carried", "student"),
    [
        (lambda n: 10.0 * n, (TRIPLES,), lambda n: 60.0 * n),  # the mistake was not made before
        (lambda n: 30.0 * n, (), lambda n: 60.0 * n),  # the mistake is not carried
        (lambda n: 30.0 * n, (TRIPLES,), lambda n: 50.0 * n),  # another mistake is made now
        (lambda n: 30.0 * n, (TRIPLES,), lambda n: 60.0 * n if n < 3 else 0.0),  # another mistake is added
    ],
)
def test_any_other_mistake_is_paid_for(before, carried, student):
    with grading():
        made_up("rope_frequencies", 10.0)(before)
        again = made_up("rotate_half", 20.0, carried)(student)
    assert again.score == 0 and not again.note


def test_who_only_raises_earns_nothing_on_top_of_a_mistake_that_does():
    def stops(n):
        raise ValueError("no")

    mistakes = (Mistake(stops, (TRIPLES,)),)
    first, then = (
        replace(made_up(name, factor), mistakes=lambda: mistakes)
        for name, factor in (("rope_frequencies", 10.0), ("rotate_half", 20.0))
    )
    with grading():
        assert first(stops).named == [TRIPLES]
        assert then(stops).score == 0


def test_the_cause_is_looked_for_with_what_known_mistakes_gave_before():
    ran = []

    def mistaken(n):
        ran.append(n)
        return 30.0 * n

    test = replace(made_up("rotate_half", 20.0), mistakes=lambda: (mistake,))
    mistake, cache = Mistake(mistaken, (TRIPLES,)), ResultCache()
    for _ in range(3):
        with grading(cache=cache):
            assert test(lambda n: 20.0 * n if n < 3 else 0.0).score == 0
    assert 0 < len(ran) <= 3


@pytest.mark.parametrize(("telling", "named"), [(False, []), (True, ["Too large."])])
def test_of_two_mistakes_that_a_yes_or_no_fits_none_is_named(
    telling: bool, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_telling", lambda record: telling)
    first, second = (diagnosis._Candidate((says,), frozenset({0}), frozenset()) for says in ("Too large.", "Inverted."))
    assert diagnosis._best([first, second], [None]) == named
    assert diagnosis._best([first], [None]) == ["Too large."]


@pytest.mark.parametrize(("crashed", "score"), [({"rope_frequencies"}, 1), ((), 0)])
def test_an_answer_that_nothing_calls_any_more_is_replaced_with_full_marks_too(crashed, score):
    @contextlib.contextmanager
    def replacing(name, student, functions):
        yield (lambda n: 20.0 * n), set(functions)

    with grading() as marking:
        assert made_up("rope_frequencies", 10.0)(lambda n: 10.0 * n).score == 2
        marking.replacing, marking.crashed = replacing, lambda: crashed
        assert made_up("rotate_half", 20.0)(lambda n: 5.0 * n).score == score


@pytest.mark.parametrize(("slope", "named"), [(2.0, [diagnosis.AFTER_OTHERS]), (6.0, [TRIPLES])])
def test_what_is_right_by_itself_is_no_other_mistake(slope, named):
    def made():
        return lambda n, first=[]: (first.append(slope) or slope * n) if not first else 6.0 * n

    with grading() as marking:
        marking.anew = lambda name, student: made()
        assert made_up("rotate_half", 2.0)(made()).named == named
