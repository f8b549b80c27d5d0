"""A roster as spreadsheets write it."""

import sys
from pathlib import Path

import pytest
from helpers import COURSE, run

from autograder.grading.plugins.roster import open_roster, read_roster

TEXT = 'id,first_name,last_name,email\nzoe,Zoë,"Müller, von",z@x\n'
ZOE = {"id": "zoe", "first_name": "Zoë", "last_name": "Müller, von", "email": "z@x"}


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.replace("zoe,Zoë", " zoe,Zoe\u0308 ").encode() + b",,,\n",
        b"id;first_name;last_name;email\r\n" + 'zoe;Zoë;"Müller, von";z@x\r\n'.encode(),
        "id\tfirst_name\tlast_name\temail\nzoe\tZoë\tMüller, von\tz@x\n".encode("utf-16"),
    ],
    ids=["plain", "byte order mark", "of Windows", "UTF-16", "blanks", "semicolons", "tabs"],
)
def test_what_a_spreadsheet_saves_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "roster.csv").write_bytes(content)
    assert read_roster(tmp_path / "roster.csv") == [ZOE]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (TEXT.encode("cp1252"), r'is not UTF-8 \(line 2\).*"CSV UTF-8"'),
        (TEXT.encode("mac_roman"), r'is not UTF-8 \(line 2\).*"CSV UTF-8"'),
        (f"{TEXT},Max,Born,".encode(), "line 3: '' cannot be an id"),
        (f"{TEXT}zoe,,,".encode(), "has several lines for zoe:"),
        (f"{TEXT}a/b,Max,Born,".encode(), "line 3: 'a/b' cannot be an id"),
        (f"{TEXT}kz,Konrad,Zuse, Dr.,k@z".encode(), "line 3: more fields than columns"),
        (b"", "has no column id"),
    ],
)
def test_what_is_not_clear_is_refused_with_what_to_do(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "roster.csv").write_bytes(content)
    with pytest.raises(SystemExit, match=rf"roster\.csv,? {said}"):
        open_roster(tmp_path / "roster.csv")


@pytest.mark.slow
@pytest.mark.nightly
def test_nbgrader_imports_it(tmp_path: Path) -> None:
    (tmp_path / "nbgrader_config.py").write_text((COURSE / "nbgrader_config.py").read_text(encoding="utf-8"))
    (tmp_path / "roster.csv").write_text(TEXT, encoding="utf-8-sig")
    (tmp_path / "old.csv").write_bytes(TEXT.encode("cp1252"))
    nbgrader = [sys.executable, "-m", "nbgrader", "db", "student"]
    refused = run(*nbgrader, "import", "old.csv", cwd=tmp_path, code=1)
    assert "old.csv is not UTF-8" in refused.stderr and "Traceback" not in refused.stderr
    refused = run(*nbgrader[:-1], "assignment", "add", "week1", "--duedate", "05.11.2026", cwd=tmp_path, code=1)
    assert "write the due date as 2026-11-16 12:00 UTC" in refused.stderr and "Traceback" not in refused.stderr
    run(*nbgrader, "import", "roster.csv", cwd=tmp_path)
    assert "zoe (Müller, von, Zoë) -- z@x" in run(*nbgrader, "list", cwd=tmp_path, PYTHONIOENCODING="utf-8").stdout
