"""Grading runs ahead of nbgrader's loop: while nbgrader saves what has come, the rest is being graded."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from autograder.errors import GradingFailed
from autograder.grading.messages import Failed, Graded, OnOutcome, Outcome


class BackgroundGrading:
    """Calls ``grade(on_outcome)`` in a thread, which is gone with the process; one future per student.

    ``on_outcome``, if given, hears of every outcome as it comes, in whatever thread it comes.
    """

    def __init__(
        self, students: Iterable[str], grade: Callable[[OnOutcome], None], on_outcome: OnOutcome | None = None
    ) -> None:
        self._grade, self._listener = grade, on_outcome
        self._outcomes: dict[str, Future[Outcome]] = {student: Future() for student in students}
        self._works: Future[None] = Future()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="grading", daemon=True)

    def start(self) -> None:
        """Returns when the first submission has been graded; raises what kept that from happening."""
        self._thread.start()
        self._works.result()

    def outcome(self, student: str) -> Outcome:
        """Waits for it. Raises what ended the grading before, and ``GradingFailed`` for a student who was not to be graded."""
        if student not in self._outcomes:
            raise GradingFailed(f"the submission of {student} was not part of this run; run it again")
        return self._outcomes[student].result()

    def done(self, student: str) -> None:
        """The outcome is saved: a large class need not be in memory, nor on disk, as a whole."""
        outcome = self._outcomes.pop(student).result()
        if isinstance(outcome, Graded):
            outcome.forget()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._grade(self._on_outcome)
        except BaseException as error:  # for whoever waits to raise
            failure = error
        with self._lock:
            if not self._works.done():
                _settle(self._works, failure)
        for student, future in list(self._outcomes.items()):
            if not future.done():
                future.set_exception(
                    failure or GradingFailed(f"nothing became of the submission of {student}; run it again")
                )

    def _on_outcome(self, student: str, outcome: Outcome) -> None:
        if self._listener is not None:
            self._listener(student, outcome)
        self._outcomes[student].set_result(outcome)
        with self._lock:
            if isinstance(outcome, Graded | Failed) and not self._works.done():  # an unreadable file needs no sandbox
                self._works.set_result(None)


def _settle(future: Future[None], failure: BaseException | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
