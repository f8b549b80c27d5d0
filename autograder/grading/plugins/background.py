"""Grading runs ahead of nbgrader's loop: while nbgrader saves what has come, the rest is being graded."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, as_completed

from autograder.errors import GradingFailed
from autograder.grading.messages import OnOutcome, Outcome, Ungradable


class Watcher:
    """Hears of a run while it goes on, in whatever thread. This one does nothing."""

    def on_start(self, students: list[str]) -> None:
        """These are about to be graded."""

    def on_outcome(self, student: str, outcome: Outcome) -> None:
        """One more is done."""


Outcomes = dict[str, Future[Outcome]]  # by student


def grade_in_background(students: Iterable[str], grade: Callable[[OnOutcome], None], watcher: Watcher) -> Outcomes:
    """Call ``grade`` in a thread, which is gone with the process. Returns when it has graded the first submission, and raises
    what kept it from that."""
    outcomes: Outcomes = {student: Future() for student in students}

    def keep(student: str, outcome: Outcome) -> None:
        watcher.on_outcome(student, outcome)
        outcomes[student].set_result(outcome)

    def run() -> None:
        failure: BaseException = GradingFailed("nothing became of this submission; run it again")
        try:
            grade(keep)
        except BaseException as error:  # for whoever waits to raise
            failure = error
        for future in list(outcomes.values()):
            if not future.done():
                future.set_exception(failure)

    threading.Thread(target=run, name="grading", daemon=True).start()
    futures = list(outcomes.values())
    for future in as_completed(futures):
        if future.exception() is None and not isinstance(future.result(), Ungradable):  # which needs no sandbox
            return outcomes
    for future in futures:
        future.result()
    return outcomes
