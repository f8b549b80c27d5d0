"""One family of errors: every mistake of a user gives one line and exit code 2."""

import shutil
from pathlib import Path

import pytest
from helpers import COURSE

from autograder import errors
from autograder.__main__ import main

TEXT = "week1_permutation_equivariance.py"


def test_what_a_student_s_error_says_neither_moves_a_cursor_nor_turns_a_line_around() -> None:
    said = errors.StudentError(
        ("ValueError", "Exception"), "\x1b[2K\x1b[1A2 of 2\u202e points\x07 größer als π"
    ).describe()
    assert said.isprintable() and "größer als π" in said
    towers = errors.visible("a" + "\u0301" * 500 + "b")
    assert towers == "a\u0301\u0301b"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for name in (TEXT, "lab.py"):
        shutil.copy(COURSE / "source" / name, tmp_path / "source" / name)
    shutil.copytree(COURSE / "source" / "lab_pictures", tmp_path / "source" / "lab_pictures")
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_mistake_in_a_text_is_one_line_with_its_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (root / "source" / TEXT).open("a", encoding="utf-8") as file:
        file.write("\n# %%\nprint(1)\n")
    said = "neither graded nor locked nor tagged experiment; it begins: 'print(1)'"
    assert main(["--root", str(root), "build", "--week", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: source/{TEXT}: ") and said in error and error.count("\n") == 1, error


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def without_torch(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr("autograder.doctor.report", without_torch)
    assert main(["--root", str(tmp_path), "doctor"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("error: ")
        and "No module named 'torch'" in said
        and "make setup" in said
        and said.count("\n") == 1
    )


def test_what_a_database_says_is_said_without_its_links() -> None:
    error = Exception("(sqlite3.DatabaseError) file is not a database\n[SQL: x]\n(Background on this error at: there)")
    assert errors.first_line(error) == "(sqlite3.DatabaseError) file is not a database"
    assert errors.first_line(Exception("(Background on this error at: there)")) == "Exception"


def test_a_full_disk_and_a_database_that_is_gone_are_told_apart() -> None:
    assert "free some space" in errors.cannot_store(OSError("No space left on device"))
    gone = errors.cannot_store(Exception("(psycopg.OperationalError) consuming input failed\n[SQL: x]"))
    assert "database failed" in gone and "see that it runs" in gone and "space" not in gone
