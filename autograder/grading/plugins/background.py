"""Grading runs ahead of nbgrader's loop: while this saves what has come, the rest is being graded."""

import threading
from collections.abc import Callable, Iterable

from autograder.grading.pipeline import Graded

OnResult = Callable[[str, Graded], None]


class Ahead(threading.Thread):
    """Calls ``grade(on_result)`` in a thread, which is gone with the process; hands the results out by student."""

    def __init__(self, students: Iterable[str], grade: Callable[[OnResult], object], on_result: OnResult | None) -> None:
        super().__init__(name="grading", daemon=True)
        self._grade, self._on_result = grade, on_result
        self._come = {student: threading.Event() for student in students}
        self._graded: dict[str, Graded] = {}
        self._working, self._works = threading.Event(), False
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Returns when the first submission has been graded; raises what kept that from happening."""
        super().start()
        self._working.wait()
        if self._failure is not None and not self._works:
            raise self._failure

    def run(self) -> None:
        try:
            self._grade(self._came)
        except BaseException as error:  # for the main thread to raise
            self._failure = error
        for event in (*self._come.values(), self._working):
            event.set()

    def result(self, student: str) -> Graded | None:
        """Waits for it. ``None`` if the student was not to be graded; raises what ended the grading before."""
        if student not in self._come:
            return None
        self._come[student].wait()
        if student not in self._graded and self._failure is not None:
            raise self._failure
        return self._graded.get(student)

    def forget(self, student: str) -> None:
        """A large class need not be in memory as a whole."""
        self._graded.pop(student, None)

    def _came(self, student: str, graded: Graded) -> None:
        self._graded[student] = graded
        if self._on_result is not None:
            self._on_result(student, graded)
        self._come[student].set()
        if graded.result is not None:  # not one that intake could not read: that needs no sandbox
            self._works = True
            self._working.set()
