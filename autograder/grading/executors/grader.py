"""A grading process, as those see it who have submissions to grade: `make autograde`, `%grade`, a worker of a cluster."""

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
    """A grading process that serves one class after the other. It starts when it is first needed, and again if it has ended;
    ``close``, or the end of the block, ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> subprocess.Popen[bytes]:
        """The process, which also ends with the thread that has started it."""
        if self._process is None or self._process.poll() is not None:
            self._process = _start()
        return self._process

    def prestart(self, assignment: str, options: Options) -> None:
        """Submissions of this assignment will come: importing what grades them takes longer than reading them."""
        with contextlib.suppress(BrokenPipeError):  # `grade` starts another process, and says what is wrong
            _send(self.start(), {"prestart": assignment, "options": asdict(options)})

    def grade(self, tasks: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
        """Grade every task; ``on_answer`` is called with each answer as it comes. Tasks are taken as they can be worked on.

        Raises ``GradingFailed`` if nothing can be graded, and ``GraderDied`` if the process ends before its time.
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
        except BaseException:  # an interrupt too: nobody waits for the other answers
            self.close()
            raise

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_grader(process)


class _Feeder(threading.Thread):
    """Hands tasks to the grading process, which takes a few at a time: no more of a large class is in memory."""

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
        except BrokenPipeError:  # the process has ended: for the reader of its answers to say
            pass
        except BaseException as error:  # for `grade` to raise; without input the process ends
            self.failure = error
            with contextlib.suppress(BrokenPipeError):
                _pipe(self._process.stdin).close()


def _answers(process: subprocess.Popen[bytes]) -> Iterator[Answer]:
    """What the grading process says, until everything is answered or it has ended."""
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
    assert stream is not None  # `_start` asks for both
    return stream


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*scope_command(), sys.executable, "-m", "autograder.grading.executors.grader_process", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
        cwd=PACKAGE_ROOT,
        start_new_session=True,  # Ctrl-C is for us; we end it
    )


def end_grader(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end until it does: what its signal handler raises in a destructor, Python only prints."""
    while process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ASK_AGAIN_SECONDS)
