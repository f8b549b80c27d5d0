"""One submission by itself: it is graded while nbgrader is still being imported.

Nothing is written or decided here. The run asks for the submission as for any other; had it been refused, or had the
submission become another one meanwhile, what was begun is dropped.
"""

import contextlib
from pathlib import Path

from autograder.course import instructor_cells, released_files
from autograder.errors import AutograderError
from autograder.grading.course_state import foreseen_seed
from autograder.grading.executors import client
from autograder.grading.messages import Options, Task
from autograder.grading.submission import intake


def begin(root: Path, assignment: str, students: list[str], options: Options, again: bool) -> None:
    """Begin with the submission if it is the only one of these students, or of all, and is not graded yet, or ``again``.

    The grading process has been prestarted for the assignment. Without isolation nothing begins before the run has said so.
    """
    folders = [root / "submitted" / name / assignment for name in students] or list(
        root.glob(f"submitted/*/{assignment}")
    )
    if len(folders) != 1 or not options.isolate or options.scheduler or _is_configured(root):
        return
    student = folders[0].parent.name
    if (root / "autograded" / student / assignment).exists() and not again:
        return
    with contextlib.suppress(AutograderError, OSError):  # the run will meet it again, and say so
        rebuilt = intake.rebuild(folders[0], root, assignment)
        template, released = instructor_cells(root, assignment), released_files(root, assignment)
        seed = foreseen_seed(root, assignment)
        client.begin(Task.of(student, assignment, rebuilt.notebook, template, released, seed), options)


def _is_configured(root: Path) -> bool:
    """Whether the course's configuration says how grading is done: it cannot be read without nbgrader."""
    with contextlib.suppress(OSError):
        return "SubmissionExporter." in (root / "nbgrader_config.py").read_text(encoding="utf-8", errors="replace")
    return True
