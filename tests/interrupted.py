"""Grading runs for tests that interrupt them: they run in the background and cannot end before the interruption."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import AUTOGRADER, WEEK3, GradedClass, environment
from nbformat.v4 import new_code_cell

FIRST = "ada"  # nbgrader saves in the order of names, so this student's result comes first
ENDLESS = "import time\nwhile True: time.sleep(60)"  # no limit stops it either: see fresh
NO_LIMITS = "\nc.SubmissionExporter.limits = {'cell_cpu': 1e5, 'total_cpu': 1e5, 'total_idle': 1e5}\n"


def fresh(graded_class: GradedClass, tmp_path: Path) -> Path:
    """Copy the class as it was before grading, with limits that no submission reaches."""
    root = tmp_path / "course"
    shutil.copytree(
        graded_class.root,
        root,
        ignore=shutil.ignore_patterns("autograded", "feedback", "gradebook.db", "pending", "lock", "holder"),
    )
    with (root / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(NO_LIMITS)
    return root


def start(root: Path, *more: str, **variables: str) -> subprocess.Popen:
    """Start `autograde` in the background."""
    return subprocess.Popen(
        [*AUTOGRADER, "--root", str(root), "autograde", "--week", "3", "--workers", "2", *more],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_listen_to_ctrl_c,
    )


def _listen_to_ctrl_c() -> None:
    """Restore Ctrl-C: a shell starts background jobs that ignore it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def results(root: Path) -> list[Path]:
    """Return the results of a run that have arrived and are not saved yet."""
    pending = root / ".autograder" / "pending"
    return [path for path in pending.iterdir() if not path.suffix] if pending.is_dir() else []


@contextmanager
def keep_busy(root: Path, source: str) -> Iterator[None]:
    """Within the block, append a cell to the first student's notebook, after all answers, where it costs no points."""
    path = root / "submitted" / FIRST / WEEK3 / f"{WEEK3}.ipynb"
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    cell = new_code_cell(source, id="own-cell")
    path.write_text(json.dumps(notebook | {"cells": [*notebook["cells"], cell]}), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
