"""Hands tasks to the trusted grading process, or to a cluster, and passes the answers on as they come."""

import atexit
import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import IO, Any

from autograder.errors import GradingFailed
from autograder.grading.executors.start import end_grader, start_grader
from autograder.grading.messages import Answer, Failure, OnAnswer, Options, Result, Task

_prestarted: subprocess.Popen[bytes] | None = None  # a grading process that waits for submissions
_expects = ""  # of which assignment
_begun: "_Begun | None" = None  # what it is at already
_working: subprocess.Popen[bytes] | None = None
_is_kept = False  # for more than one class


def prestart(assignment: str, options: Options) -> None:
    """Submissions of this assignment will come: start the grading process, for its imports take longer than to read them."""
    global _prestarted, _expects
    if options.scheduler or (_prestarted is not None and _expects == assignment):
        return
    if _begun is not None:  # and it is still being handed over
        _drop()
    if _prestarted is None:
        _prestarted = start_grader()
    _expects = assignment
    with contextlib.suppress(BrokenPipeError):  # `grade` will start another one, and say what is wrong
        _send(_stdin(_prestarted), {"prestart": assignment, "options": asdict(options)})


def begin(task: Task, options: Options) -> None:
    """Have the prestarted process grade this task, before ``grade`` asks for it. Its answer is dropped if ``grade`` begins with
    another one."""
    global _begun
    if _prestarted is not None and _begun is None:
        _begun = _Begun(_prestarted, task, options)
        _begun.start()


def cancel() -> None:
    """None will come after all, unless the grading process is kept for others."""
    if not _is_kept:
        _drop()


def _drop() -> None:
    global _prestarted, _begun
    if _prestarted is not None:
        end_grader(_prestarted)
    _prestarted = _begun = None


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """In this block one grading process serves one class after the other."""
    global _is_kept
    _is_kept = True
    try:
        yield
    finally:
        _is_kept = False
        cancel()


@atexit.register
def close() -> None:
    """Let go of the grading process in order, so that it leaves nothing behind, however this process comes to its end."""
    global _is_kept
    _is_kept = False
    cancel()
    if _working is not None:
        end_grader(_working)


def grade(tasks: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
    """Grade every task; ``on_answer`` is called with each answer as it comes. Tasks are taken as they can be worked on.

    Raises ``GradingFailed`` if the grading process itself fails.
    """
    tasks = iter(tasks)
    first = next(tasks, None)
    if first is None:
        cancel()
    elif options.scheduler:
        from autograder.grading.executors import dask_cluster

        dask_cluster.grade(itertools.chain([first], tasks), options, on_answer)
    else:
        _grade_here(first, tasks, options, on_answer)


def _grade_here(first: Task, others: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
    global _prestarted, _working
    process, is_begun = _take(first, options)
    _working = process
    tasks = others if is_begun else itertools.chain([first], others)
    feeder = _Feeder(process, tasks, options, [first.key] if is_begun else [], more_to_come=_is_kept)
    feeder.start()
    answers = _stdout(process)
    goes_on = False
    try:
        for answer in _answers(answers):
            feeder.open.discard(answer.key)
            on_answer(answer)
        feeder.join()
        goes_on = _is_kept and feeder.failure is None and not feeder.open
        code = None if goes_on else process.wait()
    finally:
        if goes_on:
            _prestarted = process
        else:
            answers.close()  # so that it waits for no reader
            end_grader(process)
        feeder.join()
    if feeder.failure is not None:
        raise feeder.failure
    if feeder.open:
        raise GradingFailed(
            f"the grading process ended early (exit code {code}) with {len(feeder.open)} submissions not graded"
        )


class WarmGrader:
    """A grading process kept between calls, for one submission at a time; it ends with ``close``, or with this process."""

    def __init__(self, assignment: str, options: Options) -> None:
        self.assignment, self.options = assignment, options
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        self._start()

    def grade(self, task: Task) -> Answer:
        """Raises ``GradingFailed`` if the grading process itself fails; the next call starts another one."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # what it says below, or its end, tells why
                _hand_over(process, task, self.options)
                _send(_stdin(process), {"settle": True})
            found = list(_answers(_stdout(process)))
        except BaseException:  # an interrupt too: what is still to come is for nobody
            self.close()
            raise
        if not found:
            self.close()
            raise GradingFailed("the grading process ended early; ask again")
        return found[-1]

    def close(self) -> None:
        if self._process is not None:
            end_grader(self._process)
            self._process = None

    def _start(self) -> None:
        self._process = start_grader()
        with contextlib.suppress(BrokenPipeError):
            _send(_stdin(self._process), {"prestart": self.assignment, "options": asdict(self.options)})


class _Begun(threading.Thread):
    """Hands over one task, which is read only when the grading process has imported everything."""

    def __init__(self, process: subprocess.Popen[bytes], task: Task, options: Options) -> None:
        super().__init__(name="begun", daemon=True)
        self._process, self.task, self.options = process, task, options

    def run(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and `grade` will say so
            _hand_over(self._process, self.task, self.options)


class _Feeder(threading.Thread):
    """Hands tasks to the grading process, which takes a few at a time: no more of a large class is in memory."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        tasks: Iterable[Task],
        options: Options,
        under_way: Collection[str],
        more_to_come: bool,
    ) -> None:
        super().__init__(name="feeder", daemon=True)
        self._process, self._tasks, self._options = process, tasks, options
        self._more_to_come = more_to_come  # of another class
        self.open = set(under_way)  # keys without an answer
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for task in self._tasks:
                self.open.add(task.key)
                _hand_over(self._process, task, self._options)
            _send(_stdin(self._process), {"settle": True} if self._more_to_come else {"end": True})
            if self._more_to_come:
                return
        except BrokenPipeError:  # it has ended: for those that read its answers
            pass
        except BaseException as error:  # for `grade` to raise
            self.failure = error
        with contextlib.suppress(BrokenPipeError):
            _stdin(self._process).close()


def _answers(lines: IO[bytes]) -> Iterator[Answer]:
    """What the grading process says, until it is done or has ended. Raises ``GradingFailed`` if it says that it failed."""
    for line in lines:
        message = json.loads(line)
        if "failed" in message:
            raise GradingFailed(message["failed"])
        if "done" in message:
            return
        yield Result(**message["result"]) if "result" in message else Failure(**message["failure"])


def _take(first: Task, options: Options) -> tuple[subprocess.Popen[bytes], bool]:
    """The process that expects submissions, or a new one; and whether it is at the first of them already."""
    global _prestarted, _begun
    if _begun is not None and (_begun.task, _begun.options) != (first, options):
        _drop()
    process, begun = _prestarted, _begun
    _prestarted = _begun = None
    if begun is not None:
        begun.join()
    if process is not None and process.poll() is None:
        return process, begun is not None
    return start_grader(), False


def _hand_over(process: subprocess.Popen[bytes], task: Task, options: Options) -> None:
    _send(_stdin(process), {"task": task.to_json(), "options": asdict(options)})


def _send(requests: IO[bytes], request: dict[str, Any]) -> None:
    requests.write(json.dumps(request).encode() + b"\n")
    requests.flush()


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None  # asked for by `start_grader`
    return process.stdin


def _stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout
