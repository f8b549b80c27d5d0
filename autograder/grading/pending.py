"""Keeps results on disk until they are in the gradebook, so that an interrupted run resumes where it stopped.

A result is kept from its arrival until nbgrader has saved it. It is found again only for the same submission, course,
seed, device, isolation, limits and grader, because its file name is a hash of everything that decides it.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from autograder.grading.course_state import state_folder
from autograder.grading.messages import Options, Result, Task

PACKAGE = Path(__file__).resolve().parents[1]


class Pending:
    """The unsaved results of a course root."""

    def __init__(self, root: Path, options: Options) -> None:
        self.folder = state_folder(root) / "pending"
        self.folder.mkdir(exist_ok=True)
        self.how = f"{options.device}/{options.isolate}/{sorted(options.limits.items())}/{grader_version()}"

    def name(self, task: Task) -> str:
        """Return the file name of the task's result: a hash of the student and all that decides the result."""
        return hashlib.sha256(f"{task.key}\n{task.digest()}\n{self.how}".encode()).hexdigest()

    def find(self, name: str) -> Result | None:
        try:
            return Result(**json.loads((self.folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, name: str, result: Result) -> None:
        """Write the result atomically, so that its file is never incomplete."""
        path = self.folder / name
        part = path.with_suffix(".part")
        part.write_text(json.dumps(vars(result)), encoding="utf-8")
        part.replace(path)

    def drop(self, name: str) -> None:
        """Delete a result that nbgrader has saved."""
        (self.folder / name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def grader_version() -> str:
    """Return a hash of the package's code."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
