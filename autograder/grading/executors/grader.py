"""The client of a grading process. `make autograde`, `%grade` and the workers of a cluster use it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

from autograder.errors import GraderDied, GradingFailed
from autograder.grading.messages import Answer, Failure, OnAnswer, Options, Result, Task
from autograder.grading.sandbox.memory_groups import scope_command
from autograder.grading.sandbox.sandbox import ONE_THREAD

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
ASK_AGAIN_SECONDS = 1


class Grader:
    """A grading process that serves one class after the other. It starts when it is first needed, and again if it has
    ended; ``close`` or the end of the block ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process if none runs, and return it. It also ends with the thread that started it."""
        if self._process is None or self._process.poll() is not None:
            self._process = _start()
        return self._process

    def prestart(self, assignment: str, options: Options) -> None:
        """Prepare for this assignment, because importing the judges' code takes longer than reading submissions."""
        with contextlib.suppress(BrokenPipeError):  # the process ended: `grade` starts another and reports problems
            _send(self.start(), {"prestart": assignment, "options": asdict(options)})

    def grade(self, tasks: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
        """Grade every task; ``on_answer`` gets each answer as it comes. Tasks are taken as there is room for them.

        Raises ``GradingFailed`` if nothing can be graded, and ``GraderDied`` if the process ends too early.
        """
        process = self.start()
        feeder = _Feeder(process, tasks, options)
        feeder.start()
        try:
            for answer in _answers(process):
                feeder.open.discard(answer.key)
                on_answer(answer)
            feeder.join()
            if feeder.failure is not None:
                raise feeder.failure
            if feeder.open:
                raise GraderDied(
                    f"the grading process ended early (exit code {process.wait()}) with {len(feeder.open)} submissions not graded"
                )
        except BaseException:  # also after an interrupt: nobody waits for the other answers
            self.close()
            raise

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_grader(process)


class _Feeder(threading.Thread):
    """The thread that feeds the grading process. That takes a few tasks at a time, so a large class fits in memory."""

    def __init__(self, process: subprocess.Popen[bytes], tasks: Iterable[Task], options: Options) -> None:
        super().__init__(name="feeder", daemon=True)
        self._process, self._tasks, self._options = process, tasks, options
        self.open: set[str] = set()  # keys without an answer
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for task in self._tasks:
                self.open.add(task.key)
                _send(self._process, {"task": task.to_json(), "options": asdict(self._options)})
            _send(self._process, {"settle": True})
        except BrokenPipeError:  # the process has ended, which the reader of its answers reports
            pass
        except BaseException as error:  # `grade` raises it; without input the process ends
            self.failure = error
            with contextlib.suppress(BrokenPipeError):
                _pipe(self._process.stdin).close()


def _answers(process: subprocess.Popen[bytes]) -> Iterator[Answer]:
    """Yield the grading process's answers until every task has one or the process ends."""
    for line in _pipe(process.stdout):
        message = json.loads(line)
        if "failed" in message:
            raise GradingFailed(message["failed"])
        if "done" in message:
            return
        yield Result(**message["result"]) if "result" in message else Failure(**message["failure"])


def _send(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    requests = _pipe(process.stdin)
    requests.write(json.dumps(request).encode() + b"\n")
    requests.flush()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # `_start` opens both
    return stream


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*scope_command(), sys.executable, "-m", "autograder.grading.executors.grader_process", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
        cwd=PACKAGE_ROOT,
        start_new_session=True,  # Ctrl-C reaches only us, and we end the process
    )


def end_grader(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, repeatedly: Python ignores an exit that the signal handler raises in a destructor."""
    while process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ASK_AGAIN_SECONDS)
