"""When a submission was handed in, by a file that came from a student: a pipe, a link, a novel or no time at all is none."""

from datetime import datetime
from pathlib import Path

from nbgrader.utils import parse_utc

LONGEST = 200  # bytes


def timestamp_bytes(folder: Path) -> bytes:
    """The content of ``timestamp.txt`` in a submission's folder; empty where there is none to believe."""
    path = folder / "timestamp.txt"
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LONGEST:
        return b""
    return path.read_bytes()


def timestamp(folder: Path) -> datetime | None:
    """The same as a time."""
    try:
        moment: datetime = parse_utc(timestamp_bytes(folder).decode())
    except (ValueError, OverflowError):
        return None
    return moment
