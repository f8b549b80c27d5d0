"""When a submission was handed in, by a file that came from a student: a pipe, a link, a novel or no time at all is none.

A time is read as nbgrader reads it. What cannot be read, or not wholly, is named: nobody is late without a time.
"""

import os
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
NOT_LATE = "the submission counts as not late (write it as 2026-11-17 18:00:00 UTC)"


@dataclass(frozen=True)
class Stamp:
    """A submission's ``timestamp.txt``: its content, the time in UTC, and what a person has to know about it."""

    content: bytes = b""
    moment: datetime | None = None
    problem: str = ""


def small_file(path: Path) -> bytes | None:
    """The content of a small file; ``None`` where there is none. Raises ``ValueError`` for anything else, and waits for
    nothing."""
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
    """The time stamp in a submission's folder. Never raises, whatever lies there."""
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
    """The time alone."""
    return read_stamp(folder).moment


def parsed(text: str) -> datetime | None:
    """A time as nbgrader reads it, in UTC; ``None`` for what is none."""
    zone = _third_word(text)
    if zone.startswith(("/", ":")) or ".." in zone.split("/"):
        return None  # a path: the file would be opened
    try:
        moment: datetime | None = parse_utc(text)
    except Exception:  # a student's text finds its way to any line of the parser
        return None
    return moment


def _third_word(text: str) -> str:
    """What nbgrader takes for the time zone: the third of three words."""
    words = text.split(" ")
    return words[2] if len(words) == 3 else ""


def _unknown_zone(text: str) -> str:
    """A time zone that is read over, so that the time counts as UTC."""
    if zone := _third_word(text):
        return (
            "" if gettz(zone) or not zone.strip("+-0") else zone
        )  # a number is one of seconds to nbgrader, not of hours
    unknown: list[str] = []

    def look_up(name: str | None, offset: int | None) -> None:
        if name and offset is None and name not in time.tzname:
            unknown.append(name)

    dateutil.parser.parse(text, tzinfos=look_up)
    return "".join(unknown)
