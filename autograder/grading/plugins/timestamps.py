"""Read the time of a submission from a file that came from a student: it may be a pipe, a link, huge, or hold no time.

A time is read as nbgrader reads it. Anything unreadable in it is reported, and nobody is late without a time.
"""

import os
import re
import stat
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import dateutil.parser
from dateutil.tz import gettz
from nbgrader.utils import parse_utc

from autograder.grading.submission.notebook_file import shown

NAME = "timestamp.txt"
LONGEST = 200  # bytes
# nbgrader takes 05.12.2026 for 12 May, and 18:00 for today.
MISREAD = re.compile(r"\s*\d{1,2}(\.\d{1,2}\.\d|:\d\d)")
NOT_LATE = "the submission counts as not late (write it as 2026-11-17 18:00:00 UTC)"


@dataclass(frozen=True)
class Stamp:
    """A submission's ``timestamp.txt``: its content, the time in UTC, and what a person has to know about it."""

    content: bytes = b""
    moment: datetime | None = None
    problem: str = ""


def small_file(path: Path) -> bytes | None:
    """Return the content of a small file; ``None`` if there is no file. Raises ``ValueError`` for anything else, and
    never blocks."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError("no regular file")
            content = os.read(file, LONGEST + 1)
        finally:
            os.close(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(error.strerror) from error
    if len(content) > LONGEST:
        raise ValueError("too long")
    return content


def read_stamp(folder: Path) -> Stamp:
    """Read the time stamp in a submission's folder. Never raises, whatever lies there."""
    try:
        content = small_file(folder / NAME)
    except ValueError:
        return Stamp(problem=f"{NAME} is not a small file with a time in it: {NOT_LATE}")
    if content is None:
        return Stamp()
    text = content.decode("utf-8-sig", "replace").strip()
    if not text:
        return Stamp(content, problem=f"{NAME} is empty: {NOT_LATE}")
    moment = parsed(text)
    if moment is None:
        return Stamp(content, problem=f'{NAME} holds no time that can be read ("{shown(text)}"): {NOT_LATE}')
    if zone := _unknown_zone(text):
        return Stamp(
            content, moment, f'{NAME} names no time zone that is known here ("{shown(zone)}"): its time is read as UTC'
        )
    return Stamp(content, moment)


def timestamp(folder: Path) -> datetime | None:
    """Return only the time of a submission."""
    return read_stamp(folder).moment


def parsed(text: str) -> datetime | None:
    """Read a time as nbgrader does, in UTC; ``None`` if the text is no time, or one that nbgrader would misread."""
    zone = _third_word(text)
    is_path = zone.startswith(("/", ":")) or ".." in zone.split("/")  # dateutil would open the file
    if is_path or MISREAD.match(text):
        return None
    try:
        moment: datetime | None = parse_utc(text)
    except Exception:  # a student's text can make any line of the parser raise
        return None
    return moment


def is_due_date(text: str) -> bool:
    """Whether a due date begins with year-month-day, and names no unknown zone: nbgrader takes 05.11.2026 for 11 May."""
    day, moment = text[:10], parsed(text)
    return str(parsed(day)) == f"{day} 00:00:00" and moment is not None and not _unknown_zone(text)


def _third_word(text: str) -> str:
    """Return what nbgrader takes for the time zone: the third of three words."""
    words = text.split(" ")
    return words[2] if len(words) == 3 else ""


def _unknown_zone(text: str) -> str:
    """Return a time zone that the parser ignores, so that the time counts as UTC; empty if there is none."""
    if zone := _third_word(text):
        return "" if gettz(zone) or not zone.strip("+-0") else zone  # nbgrader reads a number as seconds, not hours
    unknown: list[str] = []

    def look_up(name: str | None, offset: int | None) -> None:
        if name and offset is None and name not in time.tzname:
            unknown.append(name)

    dateutil.parser.parse(text, tzinfos=look_up)
    return "".join(unknown)
