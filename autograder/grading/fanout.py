"""Hands tasks to the trusted grading process and collects results as they come."""

import atexit
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from autograder.grading.results import Options, Result, Task

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
AT_A_TIME = 100  # submissions handed over: the grading process holds no more of a large class


class GradingFailed(Exception):
    """Grading could not be done; nobody gets a score for that."""


_expecting: subprocess.Popen | None = None  # a grading process that has not been asked for anything


def expect(assignment: str, options: Options) -> None:
    """Submissions of this assignment will come: start the grading process, for its imports take longer than to read them."""
    global _expecting
    if _expecting is None and not options.scheduler:
        _expecting = _start()
        with contextlib.suppress(BrokenPipeError):  # `grade` will start another one, and say what is wrong
            _ask(_expecting, {"expect": assignment, "options": asdict(options)})


@atexit.register
def dismiss() -> None:
    """None will come after all."""
    global _expecting
    if _expecting is not None:
        _expecting.terminate()
        _expecting.communicate()
        _expecting = None


def grade(tasks: list[Task], options: Options, on_result: Callable[[Result], None] = lambda result: None) -> dict[str, Result]:
    """Grade every task; results by key. Raises ``GradingFailed`` if the grading process itself fails."""
    if not tasks:
        dismiss()
        return {}
    if options.scheduler:
        from autograder.grading import cluster

        return cluster.grade(tasks, options, on_result)
    process = _take()
    results: dict[str, Result] = {}
    try:
        for start in range(0, len(tasks), AT_A_TIME):
            _ask(process, {"tasks": [asdict(task) for task in tasks[start:start + AT_A_TIME]], "options": asdict(options)})
            for result in _answers(process.stdout):
                results[result.key] = result
                on_result(result)
        process.stdin.close()
        code = process.wait()
    except BrokenPipeError:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    missing = [task.key for task in tasks if task.key not in results]
    if missing:
        raise GradingFailed(f"the grading process ended early (exit code {code}) with {len(missing)} submissions not graded")
    return results


def _start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "autograder.grading.service", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(), cwd=PACKAGE_ROOT, start_new_session=True)  # Ctrl-C is for us; we end it


def _take() -> subprocess.Popen:
    """The process that expects submissions, or a new one."""
    global _expecting
    process, _expecting = _expecting, None
    return process if process is not None and process.poll() is None else _start()


def _ask(process: subprocess.Popen, request: dict) -> None:
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()


def _answers(lines: Iterable[bytes]) -> Iterator[Result]:
    """The results of one request."""
    for line in lines:
        message = json.loads(line)
        if "failed" in message:
            raise GradingFailed(message["failed"])
        if "done" in message:
            return
        yield Result(**message["result"])


def environment() -> dict[str, str]:
    """Of a trusted grading process."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
