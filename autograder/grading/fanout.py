"""Hands tasks to the trusted grading process and collects results as they come."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from autograder.grading.results import Options, Result, Task

PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class GradingFailed(Exception):
    """Grading could not be done; nobody gets a score for that."""


def grade(tasks: list[Task], options: Options, on_result: Callable[[Result], None] = lambda result: None) -> dict[str, Result]:
    """Grade every task; results by key. Raises ``GradingFailed`` if the grading process itself fails."""
    if not tasks:
        return {}
    if options.scheduler:
        from autograder.grading import cluster

        return cluster.grade(tasks, options, on_result)
    process = subprocess.Popen(
        [sys.executable, "-m", "autograder.grading.service", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(), cwd=PACKAGE_ROOT, start_new_session=True)  # Ctrl-C is for us; we end it
    results: dict[str, Result] = {}
    try:
        request = {"tasks": [asdict(task) for task in tasks], "options": asdict(options)}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.close()
        for line in process.stdout:
            message = json.loads(line)
            if "failed" in message:
                raise GradingFailed(message["failed"])
            if "done" in message:
                continue
            result = Result(**message["result"])
            results[result.key] = result
            on_result(result)
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


def environment() -> dict[str, str]:
    """Of a trusted grading process."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
