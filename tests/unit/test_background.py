"""Outcomes are waited for one by one while the rest is being graded."""

import threading

import nbformat
import pytest

from autograder.errors import GradingFailed
from autograder.grading.messages import Failed, Graded, OnOutcome, Result, Ungradable
from autograder.grading.plugins.background import BackgroundGrading

NOTEBOOK = nbformat.v4.new_notebook()
UNREADABLE = Ungradable(NOTEBOOK, "no notebook")


def graded(student: str) -> Graded:
    return Graded(NOTEBOOK, Result(student))


def test_every_outcome_comes_and_is_told() -> None:
    told: list[str] = []
    outcomes = {"ada": graded("ada"), "boole": UNREADABLE, "cantor": Failed("no disk")}

    def grade(on_outcome: OnOutcome) -> None:
        for student, outcome in outcomes.items():
            on_outcome(student, outcome)

    background = BackgroundGrading(outcomes, grade, lambda student, outcome: told.append(student))
    background.start()
    assert {student: background.outcome(student) for student in outcomes} == outcomes and told == list(outcomes)


def test_the_first_can_be_had_while_the_second_is_being_graded() -> None:
    go_on = threading.Event()

    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", graded("ada"))
        go_on.wait()
        on_outcome("boole", graded("boole"))

    background = BackgroundGrading(["ada", "boole"], grade)
    background.start()
    assert isinstance(background.outcome("ada"), Graded)
    go_on.set()
    assert isinstance(background.outcome("boole"), Graded)


def test_a_run_that_cannot_begin_says_so_at_once() -> None:
    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", UNREADABLE)  # needs no sandbox: it does not show that the run works
        raise GradingFailed("no sandbox")

    background = BackgroundGrading(["ada", "boole"], grade)
    with pytest.raises(GradingFailed, match="no sandbox"):
        background.start()


def test_what_ends_the_grading_is_raised_for_those_who_wait() -> None:
    def grade(on_outcome: OnOutcome) -> None:
        on_outcome("ada", graded("ada"))
        raise OSError("disk full")

    background = BackgroundGrading(["ada", "boole"], grade)
    background.start()
    assert isinstance(background.outcome("ada"), Graded)
    with pytest.raises(OSError, match="disk full"):
        background.outcome("boole")


def test_who_is_not_part_of_the_run_gets_no_grade() -> None:
    background = BackgroundGrading([], lambda on_outcome: None)
    background.start()
    with pytest.raises(GradingFailed, match="was not part of this run"):
        background.outcome("ada")


def test_whom_the_grading_forgot_does_not_wait_for_ever() -> None:
    background = BackgroundGrading(["ada"], lambda on_outcome: None)
    background.start()
    with pytest.raises(GradingFailed, match="nothing became of"):
        background.outcome("ada")
