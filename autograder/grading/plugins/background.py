"""Grading ahead of nbgrader's loop: while nbgrader saves finished submissions, the others are being graded."""

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from autograder.errors import GradingFailed
from autograder.grading.messages import OnOutcome, Outcome, Ungradable


class Watcher:
    """Is told how a run progresses, in any thread. This base class does nothing."""

    def on_start(self, students: list[str]) -> None:
        """Called before these students are graded."""

    def on_outcome(self, student: str, outcome: Outcome) -> None:
        """Called when one more student is done."""


class Outcomes:
    """What became of each submission, for the one thread that saves it. That thread waits in ``SimpleQueue.get``, which
    Ctrl-C ends at any moment; a future or an event may lose it, or make a RuntimeError of it and nbgrader's loop goes on.
    """

    def __init__(self, students: Iterable[str]) -> None:
        self._due = set(students)
        self._number = len(self._due)
        self._arrived: SimpleQueue[tuple[str, Outcome | BaseException]] = SimpleQueue()
        self._kept: dict[str, Outcome | BaseException] = {}

    def put(self, student: str, outcome: Outcome) -> None:
        self._due.remove(student)
        self._arrived.put((student, outcome))

    def end(self, failure: BaseException) -> None:
        """Let ``failure`` be what became of all others."""
        for student in self._due:
            self._arrived.put((student, failure))

    def wait_for_one(self) -> None:
        """Wait until the first submission is graded. Raises what prevented that, if something did."""
        for _ in range(self._number):
            found = self._receive()
            if not isinstance(found, Ungradable | BaseException):  # an ungradable one needs no sandbox
                return
        for found in self._kept.values():
            if isinstance(found, BaseException):
                raise found

    def take(self, student: str) -> Outcome:
        """Wait for what became of this submission and return it, once. Raises what ended the grading before it."""
        while student not in self._kept:
            self._receive()
        found = self._kept.pop(student)  # a large class's outcomes need not all stay in memory
        if isinstance(found, BaseException):
            raise found
        return found

    def _receive(self) -> Outcome | BaseException:
        student, found = self._arrived.get()
        self._kept[student] = found
        return found


def grade_in_background(students: Iterable[str], grade: Callable[[OnOutcome], None], watcher: Watcher) -> Outcomes:
    """Call ``grade`` in a thread that ends with the process. Returns when the first submission is graded; raises what
    prevented that."""
    outcomes = Outcomes(students)

    def keep(student: str, outcome: Outcome) -> None:
        watcher.on_outcome(student, outcome)
        outcomes.put(student, outcome)

    def run() -> None:
        failure: BaseException = GradingFailed("nothing became of this submission; run it again")
        try:
            grade(keep)
        except BaseException as error:  # raised again where an outcome is awaited
            failure = error
        outcomes.end(failure)

    threading.Thread(target=run, name="grading", daemon=True).start()
    outcomes.wait_for_one()
    return outcomes
