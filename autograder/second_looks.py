"""`make regrade-requests`: the requests in ``regrade.csv`` as a page for the person who decides them.

Each request comes with the current scores, every change that `score_log` knows of, the student's feedback page, and a
link into formgrader.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook, SubmittedNotebook

from autograder.course import assignment_of, exercises
from autograder.errors import CourseError
from autograder.grading.plugins.roster import read_table
from autograder.grading.plugins.score_log import Change, score_log
from autograder.manifest import Exercise
from autograder.pages import filled

TABLE = "regrade.csv"
COLUMNS = ("student", "week", "exercise", "remark")


@dataclass(frozen=True)
class Request:
    """A line of the table. One exercise number may cover several answers, and 5.1 may mean 5.10 as well."""

    line: int
    student: str
    entries: tuple[Exercise, ...]
    remark: str


@dataclass(frozen=True)
class Standing:
    """The scores of one answer now, and how they came about."""

    entry: Exercise
    automatic: float | None
    by_hand: float | None
    history: list[Change]


@dataclass(frozen=True)
class SecondLook:
    """A request with everything needed to decide it; ``notebook`` is the submission's id in formgrader."""

    request: Request
    notebook: str
    page: str
    answers: list[Standing]


def read_requests(root: Path, assignment: str, graded: Collection[str]) -> list[Request]:
    """The requests about one assignment by the students in ``graded``. Raises ``CourseError`` with all invalid lines."""
    path = root / TABLE
    if not path.is_file():
        raise CourseError(f"there is no {TABLE}: write one in the course root, with the columns {','.join(COLUMNS)}")
    found, invalid = [], []
    for line, row in read_table(path, COLUMNS):
        where = f"{TABLE}, line {line}"
        try:
            if assignment_of(row["week"], root) != assignment:
                continue
        except CourseError as error:
            invalid.append(f"{where}: {error}")
            continue
        known = exercises(root, assignment)
        names = row["exercise"], f"{row['exercise']}0"  # a spreadsheet saves 5.10 as 5.1: the page shows both
        entries = tuple(entry for entry in known if entry.number in names or entry.grade_id == row["exercise"])
        if not entries:
            numbers = ", ".join(dict.fromkeys(entry.number for entry in known))
            invalid.append(
                f"{where}: there is no exercise {row['exercise']!r} in {assignment}; there is: {numbers}, "
                "or an answer's own name"
            )
        if row["student"] not in graded:
            invalid.append(
                f"{where}: nothing of {assignment} by {row['student']!r} is graded; "
                "the name is that of the folder under submitted/"
            )
        found.append(Request(line, row["student"], entries, row["remark"]))
    if invalid:
        raise CourseError("\n".join(invalid))
    return found


def second_looks(root: Path, gradebook: Gradebook, assignment: str) -> list[SecondLook]:
    """Every request about the assignment, with its scores from the gradebook."""
    graded = {each.student.id for each in gradebook.notebook_submissions(assignment, assignment)}
    requests = read_requests(root, assignment, graded)
    log = score_log(gradebook, assignment)
    return [_second_look(root, gradebook, assignment, request, log) for request in requests]


def _second_look(root: Path, gradebook: Gradebook, assignment: str, request: Request, log: list[Change]) -> SecondLook:
    notebook: SubmittedNotebook = gradebook.find_submission_notebook(assignment, assignment, request.student)
    grades = {grade.name: grade for grade in notebook.grades}
    mine = [change for change in log if change.student == request.student]
    answers = [
        Standing(
            entry,
            grades[entry.graded_cell].auto_score,
            grades[entry.graded_cell].manual_score,
            [change for change in mine if change.cell == entry.graded_cell],
        )
        for entry in request.entries
        if entry.graded_cell in grades
    ]
    page = Path("feedback", request.student, assignment, f"{assignment}.html")
    return SecondLook(request, notebook.id, page.as_posix() if (root / page).is_file() else "", answers)


def write_page(root: Path, assignment: str, looks: list[SecondLook]) -> Path:
    """Write ``report/ASSIGNMENT-regrade.html``; returns its path."""
    path = root / "report" / f"{assignment}-regrade.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(filled("second_looks.html.j2", assignment=assignment, looks=looks), encoding="utf-8")
    return path
