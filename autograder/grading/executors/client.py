"""Hands tasks to the trusted grading process and collects results as they come."""

import atexit
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from autograder.grading.messages import Options, Result, Task

PACKAGE_ROOT = Path(__file__).resolve().parents[3]


class GradingFailed(Exception):
    """Grading could not be done; nobody gets a score for that."""


_expecting: subprocess.Popen | None = None  # a grading process that has not been asked for anything
_working: subprocess.Popen | None = None


def expect(assignment: str, options: Options) -> None:
    """Submissions of this assignment will come: start the grading process, for its imports take longer than to read them."""
    global _expecting
    if _expecting is None and not options.scheduler:
        _expecting = _start()
        with contextlib.suppress(BrokenPipeError):  # `grade` will start another one, and say what is wrong
            _ask(_expecting, {"expect": assignment, "options": asdict(options)})


def dismiss() -> None:
    """None will come after all."""
    global _expecting
    if _expecting is not None:
        _end(_expecting)
        _expecting = None


@atexit.register
def end() -> None:
    """Let go of the grading process in order, so that it leaves nothing behind, however this process comes to its end."""
    dismiss()
    if _working is not None:
        _end(_working)


def grade(tasks: Iterable[Task], options: Options, on_result: Callable[[Result], None]) -> None:
    """Grade every task; ``on_result`` is called with each result as it comes. Tasks are taken as they can be worked on.

    Raises ``GradingFailed`` if the grading process itself fails.
    """
    global _working
    tasks = iter(tasks)
    first = next(tasks, None)
    if first is None:
        dismiss()
        return
    tasks = itertools.chain([first], tasks)
    if options.scheduler:
        from autograder.grading.executors import dask_cluster as cluster

        cluster.grade(list(tasks), options, on_result)
        return
    process = _working = _take()
    feeder = _Feeder(process, tasks, options)
    feeder.start()
    try:
        for line in process.stdout:
            message = json.loads(line)
            if "failed" in message:
                raise GradingFailed(message["failed"])
            if "done" in message:
                break
            feeder.open.discard(message["result"]["key"])
            on_result(Result(**message["result"]))
        code = process.wait()
    finally:
        process.stdout.close()  # so that it waits for no reader
        _end(process)
        feeder.join()
    if feeder.failure is not None:
        raise feeder.failure
    if feeder.open:
        raise GradingFailed(f"the grading process ended early (exit code {code}) with {len(feeder.open)} submissions not graded")


class _Feeder(threading.Thread):
    """Hands tasks to the grading process, which takes a few at a time: no more of a large class is in memory."""

    def __init__(self, process: subprocess.Popen, tasks: Iterable[Task], options: Options) -> None:
        super().__init__(name="feeder", daemon=True)
        self._process, self._tasks, self._options = process, tasks, asdict(options)
        self.open: set[str] = set()  # keys without a result
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for task in self._tasks:
                self.open.add(task.key)
                _ask(self._process, {"task": asdict(task), "options": self._options})
            _ask(self._process, {"end": True})
        except BrokenPipeError:  # it has ended: for those that read its answers
            pass
        except BaseException as error:  # for `grade` to raise
            self.failure = error
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def _start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "autograder.grading.executors.grader_process", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(), cwd=PACKAGE_ROOT, start_new_session=True)  # Ctrl-C is for us; we end it


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


def _take() -> subprocess.Popen:
    """The process that expects submissions, or a new one."""
    global _expecting
    process, _expecting = _expecting, None
    return process if process is not None and process.poll() is None else _start()


def _ask(process: subprocess.Popen, request: dict) -> None:
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()


def environment() -> dict[str, str]:
    """Of a trusted grading process."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
