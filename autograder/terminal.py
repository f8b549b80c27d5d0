"""Terminal output: the console, progress while a class is graded, and tables."""

import statistics
from collections import Counter
from typing import Literal, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from autograder.classroom import Student, agrees
from autograder.course import is_week
from autograder.grading.messages import Failed, Graded, Outcome, Ungradable, usual_workers
from autograder.grading.plugins.background import Watcher
from autograder.grading.plugins.gradebook import Score
from autograder.manifest import Exercise

console = Console(soft_wrap=True)


class GradingProgress(Watcher):
    """A progress bar with counts, time left, and who is being graded; it disappears when the block ends.

    ``seconds`` then holds, by student, how long each cell took.
    """

    def __init__(self, assignment: str, workers: int) -> None:
        self.seconds: dict[str, dict[str, float]] = {}
        self._at_a_time = workers or usual_workers()
        self._waiting: list[str] = []
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._bar = self._progress.add_task(f"grading {assignment}", total=None, now="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_start(self, students: list[str]) -> None:
        """Take the students who are about to be graded."""
        self._waiting[:] = students
        self._progress.update(self._bar, total=len(students))

    def on_outcome(self, student: str, outcome: Outcome) -> None:
        """Count one more as done; print its warnings, or why it was not graded."""
        if student in self._waiting:
            self._waiting.remove(student)
        # Submissions are started in order, so these are being graded now.
        now = ", ".join(self._waiting[: self._at_a_time]) or "writing grades and notebooks"
        self._progress.update(self._bar, advance=1, now=f"now: {now}")
        if isinstance(outcome, Graded):
            self.seconds[student] = outcome.result.seconds
            for warning in outcome.warnings:
                self._progress.console.print(f"  {escape(student)}: {escape(warning)}", highlight=False)
        if isinstance(outcome, Failed | Ungradable):
            self._progress.console.print(f"  {escape(student)}: not graded: {escape(outcome.reason)}", highlight=False)


def comparison_table(assignment: str, students: list[Student], standing: dict[str, Score]) -> Table:
    """Expected and given automatic scores of a simulated class."""
    title = f"{assignment}: a simulated class, expected and given points"
    table = _table(title, "student", ">expected", ">given", "", ">by hand", "story or reason", fold=True)
    for student in sorted(students, key=lambda s: (not s.ungradable, s.name)):
        score = standing.get(student.name)
        given = "–" if score is None or score.score is None else f"{score.score:g}"
        expected = "–" if student.total is None else f"{student.total:g}"
        story = score.reason if score is not None and score.reason else _summary(student)
        verdict = "[green]ok[/green]" if agrees(student, score) else "[red]DIFFERS[/red]"
        table.add_row(student.name, expected, given, verdict, str(score.to_grade_by_hand or "") if score else "", story)
    return table


def class_table(assignment: str, standing: list[Score], isolated: bool = True) -> Table:
    """A graded class: each student's points, and what waits for a person; ungraded submissions come first."""
    said = [] if isolated else ["graded without isolation: student code ran with the instructor's rights"]
    said += [] if is_week(assignment) else ["its tests ran in each student's own process, as nbgrader's do"]
    table = _table(assignment, "student", ">points", ">of", ">by hand", "not graded because", fold=True)
    table.caption, table.caption_justify, table.caption_style = "\n".join(said), "left", "bold yellow"
    for score in sorted(standing, key=lambda s: (not s.reason, s.student)):
        points = "–" if score.score is None else f"{score.score:g}"
        by_hand = str(score.to_grade_by_hand or "")
        table.add_row(escape(score.student), points, f"{score.max_score:g}", by_hand, escape(score.reason))
    return table


def timings_table(entries: tuple[Exercise, ...], assignment: str, seconds: dict[str, dict[str, float]]) -> Table:
    """The time of each exercise over the class: the student's cell, its hidden tests, and who took longest."""
    title = f"{assignment}: seconds per exercise, over {len(seconds)} submissions"
    table = _table(title, "exercise", "", ">cell, median", ">max", ">tests, median", ">max", "longest")
    for entry in entries:
        if entry.kind != "text":
            cell = {student: times.get(entry.grade_id, 0.0) for student, times in seconds.items()}
            tests = {student: times.get(entry.graded_cell, 0.0) for student, times in seconds.items()}
            figures = [
                f"{figure(times.values()):.3f}" for times in (cell, tests) for figure in (statistics.median, max)
            ]
            table.add_row(
                entry.number, entry.grade_id, *figures, max(seconds, key=lambda student: cell[student] + tests[student])
            )
    whole = {student: sum(times.values()) for student, times in seconds.items()}
    both = f"median {statistics.median(whole.values()):.2f}, max {max(whole.values()):.2f}"
    table.add_row("all", both, *[""] * 4, max(whole, key=lambda student: whole[student]))
    return table


def _summary(student: Student) -> str:
    """How a simulated student answered: the mistakes by name, the rest counted."""
    kinds = Counter(kind for kind, _ in student.story)
    mistakes = ", ".join(name for kind, name in student.story if kind == "wrong")
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if kind not in ("wrong", "text"))
    return "; ".join(filter(None, [counted, f"wrong: {mistakes}" if mistakes else ""]))


def _table(title: str, *columns: str, fold: bool = False) -> Table:
    """An empty table; columns whose name begins with > are right-aligned."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, overflow="fold" if fold else "ellipsis")
    return table
