"""The functions behind the commands; `terminal` formats what they print."""

import argparse
import gc
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from rich.markup import escape

from autograder.classroom import agrees, make_course_root, simulate
from autograder.course import course_config, course_directory, exercises, instructor_cells, max_score, students_named
from autograder.errors import CourseError, GradingFailed
from autograder.grading.course_state import is_isolated
from autograder.grading.executors.grader import Grader
from autograder.grading.pipeline import NO_ISOLATION
from autograder.grading.plugins.autograde import CourseAutograde
from autograder.grading.plugins.generate_feedback import CourseFeedback
from autograder.grading.plugins.gradebook import Score, has_gradebook, open_gradebook, out_of_range, scores
from autograder.grading.plugins.penalties import renew_penalties
from autograder.grading.plugins.score_log import score_log, write_log
from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.submission.folders import find_submissions
from autograder.lms import Person, columns, table
from autograder.log import CapturedLog
from autograder.manifest import MANIFEST
from autograder.one_notebook import can_isolate, grade_notebook
from autograder.terminal import GradingProgress, class_table, comparison_table, console, timings_table


def autograde(root: Path, assignments: list[str], options: argparse.Namespace, grader: Grader) -> int:
    """Grade one week after the other, in one grading process, and print each class."""
    names = students_named(options.students)
    missing = [name for name in names if not any((root / "submitted" / name / one).is_dir() for one in assignments)]
    if missing:
        raise CourseError(
            f"no submission of {', '.join(assignments)} by {', '.join(missing)} under submitted/"
            + "".join(_nearly(root, one, name) for one in assignments for name in missing)
        )
    for assignment in assignments:
        if not list(root.glob(f"submitted/*/{assignment}")):
            raise CourseError(
                f"no submissions: expected submitted/STUDENT/{assignment}/{assignment}.ipynb{_nearly(root, assignment)}"
            )
    codes = []
    for assignment in assignments:
        handed_in = [name for name in names if (root / "submitted" / name / assignment).is_dir()]
        if handed_in or not names:
            codes.append(_autograde(root, assignment, options, handed_in, grader))
    return max(codes)


def _nearly(root: Path, assignment: str, student: str = "*") -> str:
    """Name the folders that were probably meant for this assignment; empty if there are none."""
    misnamed = find_submissions(course_directory(root, assignment), assignment, student).misnamed
    return f"; found: {', '.join(f'submitted/{name}' for name in misnamed)}" if misnamed else ""


def _autograde(root: Path, assignment: str, options: argparse.Namespace, names: list[str], grader: Grader) -> int:
    failures: list[str] = []
    refused: dict[str, str] = {}
    misnamed: dict[str, str] = {}
    remarks: dict[str, str] = {}
    seconds: dict[str, dict[str, float]] = {}
    for name in names or ["*"]:
        run = run_autograde(root, assignment, options, grader, name)
        failures += run.failures
        refused |= run.refused
        misnamed |= run.misnamed
        remarks |= run.remarks
        seconds |= run.seconds
    names_of = {cell.id: cell.grade_id or cell.id for cell in instructor_cells(root, assignment)}
    seconds = {name: {names_of.get(key, key): time for key, time in each.items()} for name, each in seconds.items()}
    standing = scores(course_directory(root, assignment), assignment)
    known = {score.student for score in standing}
    standing += [Score(name, None, max_score(root, assignment), reason) for name, reason in refused.items()]
    console.print(class_table(assignment, standing, _was_isolated(root, assignment)))
    if options.timings:
        console.print(
            timings_table(exercises(root, assignment), assignment, seconds)
            if seconds
            else "no timings: nothing was graded in this run (REGRADE=1 grades again)"
        )
    for about, problem in remarks.items():
        console.print(f"[yellow]{escape(about)}:[/yellow] {escape(problem)}", highlight=False)
    _look_at(out_of_range(exercises(root, assignment), standing))
    if gone := sorted(known - {path.parent.name for path in root.glob(f"submitted/*/{assignment}")}):
        _look_at([f"in the gradebook, but no folder submitted/…/{assignment} (renamed, removed?): {', '.join(gone)}"])
    for place, remedy in misnamed.items():
        console.print(f"[yellow]not graded:[/yellow] submitted/{escape(place)}: {remedy}", highlight=False)
    for failure in failures:
        console.print(f"[red]not graded:[/red] {escape(failure)}", highlight=False)
    return 1 if failures or any(Path(place).parts[0] not in known for place in misnamed) else 0


@dataclass(frozen=True)
class Run:
    """Messages and timings of one class's run."""

    failures: list[str]  # one line per problem
    refused: dict[str, str]  # folders whose name cannot be a student's, with the reason
    misnamed: dict[str, str]  # folders whose name is nearly the assignment's, with what to do
    remarks: dict[str, str]  # by student or file, what else to look at
    seconds: dict[str, dict[str, float]]  # by student: how long each cell took


def run_autograde(root: Path, assignment: str, options: argparse.Namespace, grader: Grader, student: str = "*") -> Run:
    """Run nbgrader's own converter with our plug-ins and a progress bar."""
    gc.freeze()  # imported objects stay alive: the garbage collector need not scan them every time
    # On Ctrl-C while the gradebook is read, SQLAlchemy logs a traceback about its cursor; nobody needs it.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    config = course_config(root)
    course = course_directory(root, assignment, config)
    course.student_id = student
    if options.isolation == "none":
        console.print(f"[bold yellow]{NO_ISOLATION}[/bold yellow]")
    how = {"isolation": options.isolation, "workers": options.workers, "scheduler": getattr(options, "scheduler", "")}
    config.SubmissionExporter.merge(how)
    converter = CourseAutograde(coursedir=course, config=config)
    converter.force = bool(getattr(options, "regrade", False))
    converter.grader = grader
    log = _quiet(converter)
    with GradingProgress(assignment, options.workers) as progress:
        converter.watcher = progress
        try:
            converter.start()
        except NbGraderException as error:
            if converter.stopped or not (converter.refused or converter.failures):
                raise GradingFailed(converter.stopped or _last_line(log, error)) from None
    failures = [*converter.failures, *(f"submitted/{name}: {reason}" for name, reason in converter.refused.items())]
    return Run(
        list(dict.fromkeys(failures)), converter.refused, converter.misnamed, converter.remarks, progress.seconds
    )


def write_feedback(root: Path, assignment: str) -> int:
    """Write nbgrader's feedback page for every graded student."""
    if not list(root.glob(f"autograded/*/{assignment}/*.ipynb")):
        raise _nothing_graded(assignment)
    pages, written, as_before = _feedback_pages(root, assignment)
    said = f"wrote {written} feedback page{'s' * (written != 1)}" if written else "no feedback page has changed"
    also = f" ({as_before} {'are' if as_before > 1 else 'is'} up to date)" if as_before else ""
    console.print(f"{said}{also}, for example {max(pages, key=lambda page: page.stat().st_mtime).relative_to(root)}")
    return 0


def _feedback_pages(root: Path, assignment: str) -> tuple[list[Path], int, int]:
    """Return all pages of the week, how many were written now, and how many were up to date."""
    config = course_config(root)
    converter = CourseFeedback(coursedir=course_directory(root, assignment, config), config=config)
    log = _quiet(converter)
    try:
        converter.start()
    except NbGraderException as error:
        raise GradingFailed(f"feedback could not be written: {_last_line(log, error)}") from None
    _look_at(converter.remarks)
    pages = sorted(root.glob(f"feedback/*/{assignment}/{assignment}.html"))
    return pages, len(converter.assignments), converter.up_to_date


def report(root: Path, assignment: str) -> int:
    """Write the class report."""
    from autograder.report import write_report  # draws, so it imports matplotlib

    course, standing = _graded(root, assignment)
    path = write_report(root, assignment, standing, _was_isolated(root, assignment))
    with open_gradebook(course) as gradebook:
        write_log(score_log(gradebook, assignment), path.with_name(f"{assignment}-score-log.csv"))
    console.print(f"wrote {path.relative_to(root)}")
    return 0


def regrade_requests(root: Path, assignment: str) -> int:
    """Write the page of students' regrade requests."""
    from autograder.second_looks import second_looks, write_page

    course = course_directory(root, assignment)
    if not has_gradebook(course):
        raise _nothing_graded(assignment)
    with open_gradebook(course) as gradebook:
        looks = second_looks(root, gradebook, assignment)
    path = write_page(root, assignment, looks)
    console.print(f"wrote {path.relative_to(root)}: requests: {len(looks)}")
    return 0


def lms(root: Path, assignment: str, system: str, per_exercise: bool) -> int:
    """Write a week's points as the table that a learning management system imports."""
    course, standing = _graded(root, assignment)
    points = columns(assignment, exercises(root, assignment), standing, per_exercise)
    made = table(system, _people(course), points)
    path = root / "report" / f"{assignment}-{system}.csv"
    made.write(path)
    console.print(
        f"wrote {path.relative_to(root)}"
        + (f"; blank, not graded yet, or waiting for a score by hand: {made.blank}" if made.blank else "")
    )
    _look_at([*out_of_range(exercises(root, assignment), standing), *made.problems])
    for name in made.left_out:
        console.print(f"left out: {name!r}, whose id or address a spreadsheet would run as a formula", markup=False)
    return 0


def _look_at(problems: list[str]) -> None:
    for problem in problems:
        console.print(f"[yellow]look at this:[/yellow] {escape(problem)}", highlight=False)


def similarity(root: Path, assignment: str, earlier: str) -> int:
    """Write the page of submissions that share more than the exercises require."""
    from autograder.similarity.run import compare_class  # simulates classes from the banks, which import torch

    submissions = find_submissions(course_directory(root, assignment), assignment)
    if not submissions.folders:
        raise CourseError(f"no submissions: expected submitted/STUDENT/{assignment}/{assignment}.ipynb")
    with console.status(f"comparing {len(submissions.folders)} submissions …"):
        past = [place.strip() for place in earlier.split(",") if place.strip()]
        found = compare_class(root, assignment, submissions, past)
    above = sum(row.is_above for row in found.rows)
    said = f"; not compared: {found.unread}" if found.unread else ""
    console.print(
        f"wrote {found.path.relative_to(root)}: {found.compared} submissions, pairs above the line: {above}{said}"
    )
    return 0


def _graded(root: Path, assignment: str) -> tuple[CourseDirectory, list[Score]]:
    """Return every student's standing, after working out late penalties anew. Raises ``CourseError`` if there is none."""
    config = course_config(root)
    course = course_directory(root, assignment, config)
    if has_gradebook(course):
        _look_at(renew_penalties(course, assignment, config))
        if standing := scores(course, assignment):
            return course, standing
    raise _nothing_graded(assignment)


def _nothing_graded(assignment: str) -> CourseError:
    return CourseError(f"nothing of {assignment} is graded yet: run `make autograde WEEK={assignment}` first")


def _people(course: CourseDirectory) -> list[Person]:
    with open_gradebook(course) as gradebook:
        return [
            Person(one.id, one.last_name or "", one.first_name or "", one.email or "") for one in gradebook.students
        ]


def _was_isolated(root: Path, assignment: str) -> bool:
    """False if any of the week's submissions was graded without isolation."""
    return all(is_isolated(path) for path in root.glob(f"autograded/*/{assignment}/{assignment}.ipynb"))


def check_file(root: Path, name: str, options: argparse.Namespace) -> int:
    """Grade one notebook outside any gradebook; print every verdict, or the whole result as JSON."""
    if not name:
        raise CourseError("say which notebook, for example FILE=notebooks/week3_rope/week3_rope.ipynb")
    path = Path(name) if Path(name).is_absolute() else root / name
    if not path.is_file():
        raise CourseError(f"there is no file {name}")
    if options.json:
        print(json.dumps(grade_notebook(root, path, options.isolation).to_json(), indent=1, ensure_ascii=False))
        return 0
    if not can_isolate(options.isolation):
        console.print(
            "Your notebook runs without isolation here, with your own rights. That is fine for your own code."
        )
    with console.status(f"running {path.name} and its hidden tests …"):
        graded = grade_notebook(root, path, options.isolation)
    for note in graded.notes:
        console.print(f"note: {note}", highlight=False)
    for mark in graded.marks:
        console.print(mark.text, highlight=False, markup=False)
    console.print(f"Automatic points: {graded.score:g} of {graded.max_score:g}", style="bold")
    solution = Path("solutions", graded.assignment, f"{graded.assignment}.ipynb")
    if any(mark.kind == "text" for mark in graded.marks) and (root / solution).is_file():
        console.print(f'Text answers: compare yours with "A full answer says…" in {solution}', highlight=False)
    return 0


def demo(root: Path, options: argparse.Namespace) -> int:
    """Simulate, grade, write feedback, and compare with the hand-written scores."""
    target = root / "demo"
    built = [name for name in MANIFEST if (root / "notebooks" / name / f"{name}.ipynb").is_file()]
    if not built:
        raise CourseError("the course is not built yet: run `make build`")
    if options.isolation != "none" and (problem := why_not_isolated()):
        console.print(
            f"[yellow]{problem}\nThe simulated class is harmless, so the demo goes on without isolation.[/yellow]"
        )
        options.isolation = "none"
    make_course_root(root, target, built)
    with Grader() as grader:
        wrong = sum(_demonstrate(root, target, assignment, options, grader) for assignment in built)
    if wrong:
        console.print(f"[red]{wrong} scores differ from the expected ones[/red]")
    return 1 if wrong else 0


def _demonstrate(root: Path, target: Path, assignment: str, options: argparse.Namespace, grader: Grader) -> int:
    """Run one week of the demo; return how many submissions failed or differ from their expected scores."""
    from autograder.report import write_report  # draws, so it imports matplotlib

    students = simulate(root, target, assignment, options.students)
    failures = run_autograde(target, assignment, options, grader).failures
    standing = {score.student: score for score in scores(course_directory(target, assignment), assignment)}
    console.print(comparison_table(assignment, students, standing))
    pages, *_ = _feedback_pages(target, assignment)
    page = next((page for page in pages if page.parts[-3] == students[-1].name), pages[0])
    page_of_class = write_report(target, assignment, list(standing.values()), options.isolation != "none")
    console.print(f"Feedback to read: {page}\nClass report: {page_of_class}", highlight=False)
    return len(failures) + sum(not agrees(student, standing.get(student.name)) for student in students)


def _quiet(converter: BaseConverter) -> CapturedLog:
    """Capture nbgrader's log instead of printing it; our own messages are shorter."""
    converter.log = log = CapturedLog()
    logging.getLogger("tornado.application").setLevel(logging.CRITICAL)  # nbgrader's gradebook logs tracebacks there
    return log


def _last_line(log: CapturedLog, error: Exception) -> str:
    """The actual error: nbgrader's own message only says that something failed, and where to look."""
    return (log.traceback or str(error)).rpartition("\n")[2]
