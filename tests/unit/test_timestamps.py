"""When a submission was handed in, by its timestamp.txt: a time or nothing."""

import datetime
from pathlib import Path

import pytest

from autograder.grading.plugins.timestamps import timestamp


@pytest.mark.parametrize(
    "text",
    ["2026-11-25 20:00:21.123456 UTC", "2026-11-25 20:00:21 UTC\n", "2026-11-25 21:00:21 Europe/Berlin", "2026-11-25T20:00:21Z",
     "2026-11-25 21:00:21+01:00", "2026-11-25 20:00"],
)  # fmt: skip
def test_times(tmp_path: Path, text: str) -> None:
    (tmp_path / "timestamp.txt").write_text(text)
    found = timestamp(tmp_path)
    assert found is not None and found.replace(second=0, microsecond=0) == datetime.datetime(2026, 11, 25, 20, 0)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-11-25 20:00 /proc/self/mem", "2026-11-25 20:00 :/proc/self/mem", "2026-11-25 20:00 ../../../etc/passwd",
     "2026-11-25 20:00 Europe/../../etc/passwd", "99999999999999999999-1-1"],
)  # fmt: skip
def test_what_is_no_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "timestamp.txt").write_text(text)
    assert timestamp(tmp_path) is None
