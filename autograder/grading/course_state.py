"""The state of a course root between runs: the lock, the class's seed, and which submissions are graded."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from autograder.errors import GradingFailed
from autograder.permissions import is_groupshared


def state_folder(root: Path) -> Path:
    """Return the folder `.autograder/` of a course root: seed, lock and pending results, for instructors only."""
    folder = root / ".autograder"
    if not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_groupshared(root):
            folder.chmod(0o2770)
    return folder


def file_mode(root: Path) -> int:
    """Return the mode of a file that every instructor of the course root may replace and nobody else may read."""
    return 0o660 if is_groupshared(root) else 0o600


@contextmanager
def run_lock(root: Path) -> Iterator[None]:
    """Allow one run per course root at a time. The end of the block or of the process releases the lock.

    Raises ``GradingFailed`` if another run holds the lock.
    """
    folder = state_folder(root)
    holder = folder / "holder"
    lock = FileLock(folder / "lock", blocking=False, mode=file_mode(root))
    try:
        lock.acquire()
    except Timeout:
        process = holder.read_text(encoding="ascii").strip() if holder.exists() else "unknown"
        raise GradingFailed(
            f"another grading run is under way in this course (process {process}): wait for it to end, "
            "then start again; what it has graded is kept"
        ) from None
    try:
        holder.write_text(str(os.getpid()), encoding="ascii")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def feedback_lock(root: Path) -> FileLock:
    """Return the lock under which feedback pages are written; it waits for whoever writes them now."""
    return FileLock(state_folder(root) / "feedback-lock", mode=file_mode(root))


def class_seed(root: Path, assignment: str) -> int:
    """Return the seed of an assignment's hidden inputs, derived from a secret that is made once per course root."""
    path = state_folder(root) / "seed"
    secret = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if not secret:  # also if a full disk or a kill has left an empty file: anybody could compute its hidden inputs
        secret = os.urandom(8).hex()
        part = path.with_name(f"seed.{os.getpid()}")
        part.write_text(f"{secret}\n", encoding="ascii")
        part.chmod(file_mode(root))
        part.replace(path)
    return int.from_bytes(hashlib.sha256(f"{secret}/{assignment}".encode()).digest()[:4], "big")


def is_complete(notebook: Path) -> bool:
    """Whether an autograded notebook was written after its verdicts were saved."""
    return bool(note_in(notebook).get("graded"))


def is_isolated(notebook: Path) -> bool:
    """Whether student code ran in the sandbox when this autograded notebook was made."""
    return bool(note_in(notebook).get("isolated", True))


def note_in(notebook: Path) -> dict[str, Any]:
    """Return what grading has noted in an autograded notebook; nothing if it is missing or half-written."""
    try:
        note: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["autograder"]
    except (OSError, ValueError, KeyError):
        return {}
    return note
