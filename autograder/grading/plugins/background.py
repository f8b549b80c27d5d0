"""Grading ahead of nbgrader's loop: while nbgrader saves finished submissions, the others are being graded."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, as_completed

from autograder.errors import GradingFailed
from autograder.grading.messages import OnOutcome, Outcome, Ungradable


class Watcher:
    """Is told how a run progresses, in any thread. This base class does nothing."""

    def on_start(self, students: list[str]) -> None:
        """Called before these students are graded."""

    def on_outcome(self, student: str, outcome: Outcome) -> None:
        """Called when one more student is done."""


Outcomes = dict[str, Future[Outcome]]  # by student


def grade_in_background(students: Iterable[str], grade: Callable[[OnOutcome], None], watcher: Watcher) -> Outcomes:
    """Call ``grade`` in a thread that ends with the process. Returns when the first submission is graded; raises what
    prevented that."""
    outcomes: Outcomes = {student: Future() for student in students}

    def keep(student: str, outcome: Outcome) -> None:
        watcher.on_outcome(student, outcome)
        outcomes[student].set_result(outcome)

    def run() -> None:
        failure: BaseException = GradingFailed("nothing became of this submission; run it again")
        try:
            grade(keep)
        except BaseException as error:  # raised again where an outcome is awaited
            failure = error
        for future in list(outcomes.values()):
            if not future.done():
                future.set_exception(failure)

    threading.Thread(target=run, name="grading", daemon=True).start()
    futures = list(outcomes.values())
    for future in as_completed(futures):
        if future.exception() is None and not isinstance(future.result(), Ungradable):  # ungradable needs no sandbox
            return outcomes
    for future in futures:
        future.result()
    return outcomes
