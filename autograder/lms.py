"""`make lms`: a graded class as the table that a learning management system documents for import.

The headers follow each system's own documentation. A student who is not fully graded yet has a blank, which
none of the four systems reads as zero.
"""

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autograder.errors import CourseError
from autograder.grading.plugins.export import FORMULA, as_text
from autograder.grading.plugins.gradebook import Score
from autograder.manifest import Exercise


@dataclass(frozen=True)
class Person:
    """A student as the roster knows them; ``id`` is the name of the folder under submitted/."""

    id: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, [self.last_name, self.first_name])) or self.id


@dataclass(frozen=True)
class Column:
    """A column of points: the name of the exercise or assignment, the maximum, and each student's points by id."""

    title: str
    points: float
    scores: dict[str, float | None]


@dataclass
class LmsTable:
    """Rows of text, header first; ``left_out`` are students whose identifier a spreadsheet would run as a formula."""

    rows: list[list[str]]
    left_out: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what the system will not import as it should
    blank: int = 0  # how many students have no score for the assignment
    quote_all: bool = False

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL if self.quote_all else csv.QUOTE_MINIMAL).writerows(self.rows)


def columns(
    assignment: str, entries: tuple[Exercise, ...], standing: list[Score], per_exercise: bool = False
) -> list[Column]:
    """The assignment's column and, on request, one for each exercise; these, unlike it, are before any late penalty."""
    whole = {score.student: None if score.to_grade_by_hand else score.score for score in standing}
    found = [Column(assignment, sum(entry.points for entry in entries), whole)]
    for entry in entries if per_exercise else ():
        scores = {score.student: score.by_cell.get(entry.graded_cell) for score in standing}
        found.append(Column(f"{assignment} {entry.number} {entry.grade_id}", entry.points, scores))
    return found


def table(system: str, people: list[Person], points: list[Column]) -> LmsTable:
    """The table for one system. Raises ``CourseError`` for a system that is not one of `FORMATS`."""
    if system not in FORMATS:
        raise CourseError(f"there is no format {system!r}; there is: {', '.join(FORMATS)}")
    shows_email = system == "moodle"
    safe = [
        one for one in people if not (one.id.startswith(FORMULA) or (shows_email and one.email.startswith(FORMULA)))
    ]
    made = FORMATS[system](safe, points)
    made.left_out = sorted({person.id for person in people} - {person.id for person in safe})
    made.blank = sum(points[0].scores.get(person.id) is None for person in safe) if points else 0
    return made


def canvas(people: list[Person], points: list[Column]) -> LmsTable:
    """Canvas: Student, ID, SIS User ID, SIS Login ID, Section, then the assignments; a row of Points Possible below the
    header. A roster id of digits is Canvas's own number, any other is the login. Source: Canvas's importer, which
    reads the header that Canvas's gradebook exports:
    https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb"""
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(column.title for column in points)]
    possible = ["Points Possible", "", "", "", "", *(_number(column.points) for column in points)]
    rows = [
        [as_text(one.name), *([one.id, "", ""] if one.id.isdecimal() else ["", "", one.id]), "", *_points(one, points)]
        for one in people
    ]
    return LmsTable([header, possible, *rows])


def moodle(people: list[Person], points: list[Column]) -> LmsTable:
    """Moodle: the columns of its own export. On import "Map from" is *Email address* and "Map to" *useremail*; a column
    of points is mapped to a grade item of the course, or makes a new one: https://docs.moodle.org/en/Grade_import"""
    header = ["First name", "Last name", "ID number", "Email address", *(column.title for column in points)]
    rows = [
        [as_text(one.first_name), as_text(one.last_name), one.id, one.email, *_points(one, points)] for one in people
    ]
    return LmsTable([header, *rows], problems=_without_own_address(people))


def _without_own_address(people: list[Person]) -> list[str]:
    used = Counter(one.email.lower() for one in people)
    same = [one.id for one in people if one.email and used[one.email.lower()] > 1]
    none = [one.id for one in people if not one.email]
    kinds = {"no e-mail address": none, "the same e-mail address": same}
    return [f"{said}: {', '.join(ids)}" for said, ids in kinds.items() if ids]


def brightspace(people: list[Person], points: list[Column]) -> LmsTable:
    """Brightspace: OrgDefinedID or Username first, then "ITEM Points Grade" for each item, no names:
    https://community.d2l.com/brightspace/kb/articles/3538-importing-grades"""
    key = "OrgDefinedID" if people and all(one.id.isdecimal() for one in people) else "Username"
    header = [key, *(f"{column.title} Points Grade" for column in points)]
    return LmsTable([header, *([one.id, *_points(one, points)] for one in people)])


def blackboard(people: list[Person], points: list[Column]) -> LmsTable:
    """Blackboard: students by Username, every field of a comma-separated file in quotation marks. A title without
    Blackboard's number of the column ("TITLE |123") makes a new column:
    http://library.blackboard.com/ref/3ea64795-6ecc-4abd-b595-0a9a8dfdec94/Content/_instructor_grade_center/grade_center_upload_download.htm
    """
    header = ["Last Name", "First Name", "Username", *(column.title for column in points)]
    rows = [[as_text(one.last_name), as_text(one.first_name), one.id, *_points(one, points)] for one in people]
    return LmsTable([header, *rows], quote_all=True)


FORMATS: dict[str, Callable[[list[Person], list[Column]], LmsTable]] = {
    "canvas": canvas,
    "moodle": moodle,
    "brightspace": brightspace,
    "blackboard": blackboard,
}


def _points(person: Person, points: list[Column]) -> list[str]:
    return [_number(column.scores.get(person.id)) for column in points]


def _number(value: float | None) -> str:
    return "" if value is None else f"{round(value, 4):g}"
