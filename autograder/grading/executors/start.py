"""Starts a trusted grading process."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from autograder.grading.sandbox.memory_groups import scope_command
from autograder.grading.sandbox.sandbox import ONE_THREAD

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
ASK_AGAIN_SECONDS = 1


def start_grader() -> subprocess.Popen[bytes]:
    """A trusted grading process, which ends with the thread that started it."""
    return subprocess.Popen(
        [*scope_command(), sys.executable, "-m", "autograder.grading.executors.grader_process", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        cwd=PACKAGE_ROOT,
        start_new_session=True,
    )  # Ctrl-C is for us; we end it


def end_grader(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end until it does: what its signal handler raises in a destructor, Python only prints."""
    while process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ASK_AGAIN_SECONDS)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
