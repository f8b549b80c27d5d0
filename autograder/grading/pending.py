"""Results that are not in the gradebook yet, on disk, so that an interrupted run goes on where it stopped.

A result is kept from the moment it comes until nbgrader has saved it. It is found again only for the same submission,
course, seed, device, isolation and grader: everything that decides the result is in its name.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from autograder.grading.course_state import state_folder
from autograder.grading.messages import Options, Result, Task

PACKAGE = Path(__file__).resolve().parents[1]


class Pending:
    """The results of a course root that wait to be saved."""

    def __init__(self, root: Path, options: Options) -> None:
        self.folder = state_folder(root) / "pending"
        self.folder.mkdir(exist_ok=True)
        self.how = f"{options.device}/{options.isolate}/{sorted(options.limits.items())}/{grader_version()}"

    def name(self, task: Task) -> str:
        """Names everything that decides the result, the student included."""
        return hashlib.sha256(f"{task.key}\n{task.digest()}\n{self.how}".encode()).hexdigest()

    def find(self, name: str) -> Result | None:
        try:
            return Result(**json.loads((self.folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, name: str, result: Result) -> None:
        """Atomic: a result is there whole or not at all."""
        path = self.folder / name
        part = path.with_suffix(".part")
        part.write_text(json.dumps(vars(result)), encoding="utf-8")
        part.replace(path)

    def drop(self, name: str) -> None:
        """The result has been saved."""
        (self.folder / name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def grader_version() -> str:
    """Names the code of the whole package."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
