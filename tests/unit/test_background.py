"""A caller can wait for one outcome while the rest is still being graded."""

import threading

import nbformat
import pytest

from autograder.errors import GradingFailed
from autograder.grading.messages import Failed, Graded, OnOutcome, Outcome, Result, Ungradable
from autograder.grading.plugins.background import Watcher, grade_in_background

NOTEBOOK = nbformat.v4.new_notebook()
UNREADABLE = Ungradable(NOTEBOOK, "no notebook")


def graded(student: str) -> Graded:
    return Graded(NOTEBOOK, Result(student))


def test_every_outcome_comes_and_is_told() -> None:
    outcomes: dict[str, Outcome] = {"ada": graded("ada"), "boole": UNREADABLE, "cantor": Failed("no disk")}
    told: list[str] = []

    def grade(on_outcome: OnOutcome) -> None:
        for student, outcome in outcomes.items():
            on_outcome(student, outcome)

    class Listener(Watcher):
        def on_outcome(self, student: str, outcome: Outcome) -> None:
            told.append(student)

    found = grade_in_background(outcomes, grade, Listener())
    assert {student: found.take(student) for student in outcomes} == outcomes and told == list(outcomes)


def test_the_first_can_be_had_while_the_second_is_being_graded() -> None:
    go_on = threading.Event()

    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", graded("ada"))
        go_on.wait()
        on_outcome("boole", graded("boole"))

    outcomes = grade_in_background(["ada", "boole"], grade, Watcher())
    assert isinstance(outcomes.take("ada"), Graded)
    go_on.set()
    assert isinstance(outcomes.take("boole"), Graded)


def test_a_run_that_cannot_begin_says_so_at_once() -> None:
    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", UNREADABLE)  # needs no sandbox, so it does not show that the run works
        raise GradingFailed("no sandbox")

    with pytest.raises(GradingFailed, match="no sandbox"):
        grade_in_background(["ada", "boole"], grade, Watcher())


def test_what_ends_the_grading_is_raised_for_those_who_wait() -> None:
    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", graded("ada"))
        raise OSError("disk full")

    outcomes = grade_in_background(["ada", "boole"], grade, Watcher())
    assert isinstance(outcomes.take("ada"), Graded)
    with pytest.raises(OSError, match="disk full"):
        outcomes.take("boole")


def test_whom_the_grading_forgot_does_not_wait_for_ever() -> None:
    with pytest.raises(GradingFailed, match="nothing became of"):
        grade_in_background(["ada"], lambda on_outcome: None, Watcher())
