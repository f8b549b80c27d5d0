"""One grading run: which submissions, in which order, with which executor.

A run lasts as long as the block of ``grading_run``. In it, ``grade_submissions`` reads every submission
(`submission/`), has it graded (`executors/`) and reports its outcome. `plugins/` connects this to nbgrader's loop.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from autograder.course import instructor_cells, released_files
from autograder.errors import GradingFailed, UngradableError
from autograder.grading.course_state import class_seed, run_lock
from autograder.grading.executors import dask_cluster
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Answer, Failed, Failure, Graded, OnOutcome, Options, Result, Task, Ungradable
from autograder.grading.pending import Pending
from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.submission import intake
from autograder.grading.submission.notebook_file import shown

NO_ISOLATION = (
    "WARNING: grading without isolation (--isolation none): student code runs as you, with your files and network."
)


@contextmanager
def grading_run(root: Path, assignment: str, options: Options, grader: Grader | None = None) -> Iterator[Grader]:
    """Run the block as one grading run over a course root. Without a ``grader``, it makes one that ends with the block.

    Raises ``GradingFailed`` if isolation is not available (before anything is written) or another run is under way.
    """
    # A cluster's workers ask this themselves.
    if options.isolate and not options.scheduler and (problem := why_not_isolated()):
        raise GradingFailed(problem)
    with run_lock(root), Grader() if grader is None else nullcontext(grader) as ours:
        if not options.scheduler:
            ours.prestart(assignment, options)
        yield ours


def grade_submissions(
    root: Path,
    assignment: str,
    files: dict[str, Path],
    options: Options,
    on_outcome: OnOutcome,
    again: bool = False,
    grader: Grader | None = None,
) -> None:
    """Grade ``files``, the submissions of one assignment by student; ``again`` ignores results of an interrupted run.

    Without a cluster, a second thread reads submissions as there is room for them, so ``on_outcome`` is called from two
    threads. Raises ``GradingFailed`` if nothing can be graded here.
    """
    template, released = instructor_cells(root, assignment), released_files(root, assignment)
    seed, pending = class_seed(root, assignment), Pending(root, options)
    waiting: dict[str, tuple[intake.Intake, str]] = {}  # by student, with the result's file name

    def on_answer(answer: Answer) -> None:
        rebuilt, name = waiting.pop(answer.key)
        if isinstance(answer, Failure):
            on_outcome(answer.key, Failed(answer.reason))
        else:
            pending.keep(name, answer)
            on_outcome(answer.key, _graded(rebuilt, answer, options, partial(pending.drop, name)))

    def tasks() -> Iterator[Task]:
        for student, path in files.items():
            try:
                rebuilt = intake.rebuild(path, root, assignment)
            except UngradableError as problem:
                notebook = intake.unreadable(root, assignment, str(problem))
                on_outcome(student, Ungradable(notebook, str(problem), options.isolate))
                continue
            task = Task.of(student, assignment, rebuilt.notebook, template, released, seed)
            name = pending.name(task)
            waiting[student] = rebuilt, name
            if not again and (known := pending.find(name)):
                on_answer(known)
            else:
                yield task

    coming = tasks()
    if (first := next(coming, None)) is None:
        return
    if options.scheduler:
        dask_cluster.grade(itertools.chain([first], coming), options, on_answer)
        return
    with Grader() if grader is None else nullcontext(grader) as ours:
        ours.grade(itertools.chain([first], coming), options, on_answer)


NOT_HERE = (
    "imports {}, not installed here, and an exercise earned nothing. A package: to allow it, install it and grade again "
    "(REGRADE=1). A file of the student's own: it is not run; ask for its code in the notebook"
)


def _graded(rebuilt: intake.Intake, result: Result, options: Options, forget: partial[None]) -> Graded:
    flagged, warnings = frozenset(rebuilt.to_look_at), tuple(rebuilt.warnings)
    if rebuilt.not_here and not all(verdict["score"] for verdict in result.verdicts.values()):
        warnings += (NOT_HERE.format(", ".join(map(shown, rebuilt.not_here))),)
    return Graded(rebuilt.notebook, result, rebuilt.notes, flagged, options.isolate, forget, warnings)
