"""When a submission was handed in, by a file that came from a student: a pipe, a link, a novel or no time at all is none."""

import re
from datetime import datetime
from pathlib import Path

from nbgrader.utils import parse_utc

LONGEST = 200  # bytes
TIME = re.compile(
    r"[\dT:.+ -]+(?: ?[A-Za-z][\w+-]*(?:/[A-Za-z][\w+-]*)*)?"
)  # a zone is a name and no path: its file is opened


def timestamp_bytes(folder: Path) -> bytes:
    """The content of ``timestamp.txt`` in a submission's folder; empty where there is none to believe."""
    path = folder / "timestamp.txt"
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LONGEST:
        return b""
    return path.read_bytes()


def timestamp(folder: Path) -> datetime | None:
    """The same as a time."""
    try:
        text = timestamp_bytes(folder).decode()
        moment: datetime | None = parse_utc(text) if TIME.fullmatch(text.strip()) else None
    except (ValueError, OverflowError, OSError):
        return None
    return moment
