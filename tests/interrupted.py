"""Grading runs that are to be disturbed: started beside the test, and kept from ending before they are."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import WEEK3, GradedClass, environment

FIRST = "ada"  # nbgrader saves in the order of names: nothing is saved before this one's result
ENDLESS = "import time\nwhile True: time.sleep(60)"  # nor do limits: see fresh
NO_LIMITS = "\nc.SubmissionExporter.limits = {'cell_cpu': 1e5, 'total_cpu': 1e5, 'total_idle': 1e5}\n"


def fresh(graded_class: GradedClass, tmp_path: Path) -> Path:
    """The class before it was graded, with time for every submission."""
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
    """`autograde`, on its way."""
    command = [
        sys.executable,
        "-m",
        "autograder",
        "--root",
        str(root),
        "autograde",
        "--week",
        "3",
        "--workers",
        "2",
        *more,
    ]
    return subprocess.Popen(
        command,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_listen_to_ctrl_c,
    )


def _listen_to_ctrl_c() -> None:
    """A shell starts what runs in its background deaf to Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def results(root: Path) -> list[Path]:
    """The results of a run that have come and are not saved yet."""
    pending = root / ".autograder" / "pending"
    return [path for path in pending.iterdir() if not path.suffix] if pending.is_dir() else []


@contextmanager
def keep_busy(root: Path, source: str) -> Iterator[None]:
    """Within the block the first student's notebook ends with a cell of this source, after all answers: it costs no points."""
    path = root / "submitted" / FIRST / WEEK3 / f"{WEEK3}.ipynb"
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    cell = {
        "cell_type": "code",
        "id": "own-cell",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }
    path.write_text(json.dumps(notebook | {"cells": [*notebook["cells"], cell]}), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
