"""One grading run over a course root: which submissions, intake for each, results for all, before nbgrader's own loop."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nbformat.notebooknode import NotebookNode

from autograder.course import instructor_cells, released_files
from autograder.grading.submission import intake
from autograder.grading.executors.client import GradingFailed, grade
from autograder.grading.pending import Pending, state_folder
from autograder.grading.messages import Options, Result, Task
from autograder.grading.sandbox.sandbox import why_not_isolated

NO_ISOLATION = "WARNING: grading without isolation (--isolation none): student code runs as you, with your files and network."


@dataclass
class Graded:
    """A submission after grading: its rebuilt notebook, and either a result or the reason why there is none."""

    notebook: NotebookNode
    result: Result | None
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    to_look_at: frozenset[str] = frozenset()  # grade_ids of answers that may not be the student's own
    isolated: bool = True
    forget: Callable[[], None] = lambda: None  # the verdicts are saved: drop what is kept for an interrupted run

    def __deepcopy__(self, memo: dict) -> "Graded":
        return self  # nbconvert copies what its preprocessors are handed, several times


def grade_submissions(root: Path, assignment: str, files: dict[str, Path], options: Options,
                      on_result: Callable[[str, Graded], None], again: bool = False) -> None:
    """Grade submissions of one assignment, by student; ``again`` even if an interrupted run has left results.

    Submissions are read as they can be graded, in a thread of its own: ``on_result`` is called from two threads. Raises
    ``GradingFailed`` if nothing can be graded here.
    """
    template, released = instructor_cells(root, assignment), released_files(root, assignment)
    seed, pending = class_seed(root, assignment), Pending(root, options)
    waiting: dict[str, tuple[Graded, str]] = {}  # with the name of the result

    def came(result: Result) -> None:
        entry, name = waiting.pop(result.key)
        entry.result, entry.reason = (None, result.problem) if result.problem else (result, "")
        pending.keep(name, result)
        entry.forget = partial(pending.drop, name)
        on_result(result.key, entry)

    def tasks() -> Iterator[Task]:
        for key, path in files.items():
            try:
                rebuilt = intake.rebuild(path, root, assignment)
            except intake.Ungradable as problem:
                on_result(key, Graded(intake.unreadable(root, assignment, str(problem)), None, str(problem), isolated=options.isolate))
                continue
            task = Task.of(key, assignment, rebuilt.notebook, template, released, seed)
            name = pending.name(task)
            waiting[key] = Graded(rebuilt.notebook, None, notes=rebuilt.notes, isolated=options.isolate,
                                  to_look_at=frozenset(rebuilt.to_look_at)), name
            if not again and (known := pending.find(name)):
                came(known)
            else:
                yield task

    grade(tasks(), options, came)


def require_isolation(options: Options) -> None:
    """Refuse, before anything is written, where isolation is wanted and cannot be had. A cluster's workers are asked there."""
    if options.isolate and not options.scheduler and (problem := why_not_isolated()):
        raise GradingFailed(problem)


def class_seed(root: Path, assignment: str) -> int:
    """The seed of hidden inputs: one per class and assignment, made once and kept beside the gradebook."""
    path = state_folder(root) / "seed"
    try:
        with open(path, "x", encoding="ascii") as file:
            file.write(os.urandom(8).hex() + "\n")
        path.chmod(0o600)
    except FileExistsError:
        pass
    secret = path.read_text(encoding="ascii").strip()
    return int.from_bytes(hashlib.sha256(f"{secret}/{assignment}".encode()).digest()[:4], "big")


def is_complete(notebook: Path) -> bool:
    """Whether an autograded notebook was written after its verdicts were saved."""
    return bool(_note_in(notebook).get("graded"))


def is_isolated(notebook: Path) -> bool:
    """Whether an autograded notebook came about with student code in the sandbox."""
    return _note_in(notebook).get("isolated", True)


def _note_in(notebook: Path) -> dict:
    try:
        return json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["autograder"]
    except (OSError, ValueError, KeyError):  # half-written
        return {}


class RunLock:
    """Only one grading run per course root at a time; released when the process ends, however it ends."""

    _mine: "RunLock | None" = None

    def __init__(self, root: Path) -> None:
        RunLock.release_mine()  # formgrader: an earlier run of this very process is over
        self._file = open(state_folder(root) / "lock", "a+", encoding="ascii")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise GradingFailed(f"another grading run is under way in this course (process {holder}): wait for it to end, "
                                "then start again; what it has graded is kept") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()
        RunLock._mine = self

    @classmethod
    def release_mine(cls) -> None:
        """Let go of the lock this process holds, if any."""
        if cls._mine is not None:
            cls._mine._file.close()
            cls._mine = None
