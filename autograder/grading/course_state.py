"""What a course root remembers between runs: the lock, the class's seed, and which submissions are done."""

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
    """`.autograder/` in a course root, for the instructor's eyes only: seed, lock, pending results."""
    folder = root / ".autograder"
    if not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_groupshared(root):
            folder.chmod(0o2770)
    return folder


def file_mode(root: Path) -> int:
    """Of a file that every instructor of the course root may replace, and nobody else may read."""
    return 0o660 if is_groupshared(root) else 0o600


@contextmanager
def run_lock(root: Path) -> Iterator[None]:
    """Only one grading run per course root at a time; released when the block ends, or the process, however it ends.

    Raises ``GradingFailed`` if another run holds it.
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


def class_seed(root: Path, assignment: str) -> int:
    """The seed of hidden inputs: one per class and assignment, made once and kept beside the gradebook."""
    path = state_folder(root) / "seed"
    try:
        with open(path, "x", encoding="ascii") as file:
            file.write(os.urandom(8).hex() + "\n")
        path.chmod(file_mode(root))
    except FileExistsError:
        pass
    secret = path.read_text(encoding="ascii")
    return int.from_bytes(hashlib.sha256(f"{secret.strip()}/{assignment}".encode()).digest()[:4], "big")


def is_complete(notebook: Path) -> bool:
    """Whether an autograded notebook was written after its verdicts were saved."""
    return bool(_note_in(notebook).get("graded"))


def is_isolated(notebook: Path) -> bool:
    """Whether an autograded notebook came about with student code in the sandbox."""
    return bool(_note_in(notebook).get("isolated", True))


def _note_in(notebook: Path) -> dict[str, Any]:
    try:
        note: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["autograder"]
    except (OSError, ValueError, KeyError):  # half-written
        return {}
    return note
