"""``%grade 3.3`` in a notebook: the verdict on one exercise of the notebook as last saved, in the usual sandbox.

A grading process stays warm between calls and ends with the kernel.
"""

import atexit
import os
import secrets
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode

from autograder.course import Role, exercises, instructor_cells, released_files
from autograder.errors import AutograderError, CourseError, GradingFailed
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Answer, Failure, Graded, Options, Task, wanted_device
from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.source_names import defined_names
from autograder.grading.submission import intake
from autograder.manifest import Exercise
from autograder.one_notebook import assignment_in, marks

ROOT = Path(__file__).resolve().parents[1]


def register(shell: Any) -> None:
    """Register ``%grade``, and start the grading process for this notebook."""
    grader = NotebookGrader(shell, ROOT)
    shell.register_magic_function(grader.grade, "line", "grade")
    grader.prestart()


class NotebookGrader:
    """Grades exercises of the notebook whose kernel this is."""

    def __init__(self, shell: Any, root: Path) -> None:
        self._shell, self._root = shell, root
        self._seed = secrets.randbits(32)
        self._isolate = not why_not_isolated()
        self._grader = Grader()
        atexit.register(self._grader.close)

    def prestart(self) -> None:
        """Start the grading process; errors are reported when ``%grade`` is called."""
        try:
            self._grader.prestart(assignment_in(self._path(), self._root), self._options)
        except AutograderError:
            return
        if not self._isolate:
            print(
                "%grade runs your notebook without isolation here, with your own rights. That is fine for your own code."
            )

    def grade(self, line: str) -> None:
        """``%grade 3.3``: print exercise 3.3's verdict for the saved notebook, with the likely cause of a mistake."""
        try:
            self._grade(line.strip())
        except AutograderError as error:
            print(error)

    def _grade(self, wanted: str) -> None:
        path = self._path()
        assignment = assignment_in(path, self._root)
        entries = chosen(exercises(self._root, assignment), wanted)
        rebuilt = intake.rebuild(path, self._root, assignment)
        saved = datetime.fromtimestamp(path.stat().st_mtime)
        print(f"{path.name}, as saved at {saved:%H:%M:%S}")
        history = [str(source) for source in self._shell.history_manager.input_hist_raw]
        for name in newer_in_kernel(entries, history, rebuilt.notebook):
            print(f"The {name} that you last ran is not the saved one: save the notebook, or run its cell again.")
        template = instructor_cells(self._root, assignment)
        files = released_files(self._root, assignment)
        tests = {entry.graded_cell for entry in entries}
        task = up_to(
            {cell.id for cell in template if cell.grade_id in tests},
            Task.of("you", assignment, rebuilt.notebook, template, files, self._seed),
        )
        answers: list[Answer] = []
        self._grader.grade([task], self._options, answers.append)
        answer = answers[-1]
        if isinstance(answer, Failure):
            raise GradingFailed(answer.reason)
        graded = Graded(rebuilt.notebook, answer, rebuilt.notes)
        names = {entry.grade_id for entry in entries}
        for mark in marks(self._root, assignment, graded):
            if mark.name in names:
                print(mark.text)

    @property
    def _options(self) -> Options:
        return Options(self._isolate, wanted_device(), workers=1)

    def _path(self) -> Path:
        """The notebook's file: Jupyter's servers name it in the environment, VS Code in the namespace."""
        name = os.environ.get("JPY_SESSION_NAME") or self._shell.user_ns.get("__vsc_ipynb_file__") or ""
        path = Path(name)
        if path.suffix != ".ipynb" or not path.is_file():
            raise CourseError(
                "%grade does not know which file this notebook is; grade it in a terminal: make check FILE=…"
            )
        return path


def chosen(entries: tuple[Exercise, ...], wanted: str) -> list[Exercise]:
    """The answers of an exercise, by its number or an answer's name. Raises ``CourseError`` if there is none, or if
    only a person grades it."""
    found = [entry for entry in entries if wanted and wanted in (entry.number, entry.grade_id)]
    if not found:
        numbers = ", ".join(dict.fromkeys(entry.number for entry in entries))
        raise CourseError(f"say which exercise, for example %grade {entries[0].number}; there is: {numbers}")
    if all(entry.kind == "text" for entry in found):
        raise CourseError(f"Exercise {found[0].number} is graded by a person.")
    return found


def newer_in_kernel(entries: list[Exercise], history: list[str], saved: NotebookNode) -> list[str]:
    """Names of answers whose cell last ran with a text other than the saved one."""
    sources = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in saved.cells}
    found = []
    for entry in entries:
        run = [source for source in history if entry.grade_id in defined_names(source)]
        if run and run[-1].strip() != str(sources.get(entry.grade_id, "")).strip():
            found.append(entry.grade_id)
    return found


def up_to(tests: set[str], task: Task) -> Task:
    """Cut the task off after the exercise, whose tests have these cell ids. Earlier hidden tests stay, so that a
    mistake in an earlier answer does not cost points again. Visible checks go: the student has run them."""
    last = max(number for number, cell in enumerate(task.cells) if cell.id in tests)
    kept = [cell for cell in task.cells[: last + 1] if not (cell.role == Role.TEST and not cell.points)]
    return replace(task, cells=kept)
