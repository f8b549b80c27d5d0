"""The course in a folder whose name has blanks and quotes, run by make: in an active environment and in its own."""

import shutil
import sys
from pathlib import Path

import pytest
from helpers import COURSE, WEEK3, run, standing

from autograder.manifest import MANIFEST

pytestmark = [pytest.mark.isolation, pytest.mark.slow]

OF_AN_ENVIRONMENT = ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


def make_place(folder: Path, name: str) -> Path:
    """Copy what git has of the course and of one week, with a right solution submitted at an unreadable time."""
    root = folder / name / "course of ada's"
    for part in ("autograder", f"source/{WEEK3}", f"notebooks/{WEEK3}"):
        shutil.copytree(COURSE / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("Makefile", "nbgrader_config.py", "pyproject.toml"):
        shutil.copy(COURSE / part, root / part)
    (root / "submitted" / "ada" / WEEK3).mkdir(parents=True)
    shutil.copy(COURSE / "solutions" / WEEK3 / f"{WEEK3}.ipynb", root / "submitted" / "ada" / WEEK3)
    (root / "submitted" / "ada" / WEEK3 / "timestamp.txt").write_text("yesterday, I think")
    root.chmod(0o700)
    return root


def make(root: Path, *arguments: str, **more: str) -> str:
    cleared = [word for name in OF_AN_ENVIRONMENT if name not in more for word in ("-u", name)]
    done = run("env", *cleared, "make", *arguments, cwd=root, **more)
    return done.stdout + done.stderr


@pytest.mark.nightly
def test_in_an_active_environment(tmp_path: Path) -> None:
    root = make_place(tmp_path, "Ada's Google Drive [2026]")
    said = make(root, "autograde", "feedback", "WEEK=3", VIRTUAL_ENV=sys.prefix)
    assert 'ada: timestamp.txt holds no time that can be read ("yesterday, I think")' in said
    assert "wrote 1 feedback page" in said
    assert standing(root)["ada"].by_cell["rope_frequencies_tests"] == 2


@pytest.mark.nightly
def test_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """Programs that pip installs start with `#!` and a path, which must not contain a blank."""
    root = make_place(tmp_path, 'Kurs "2026" (alt) $HOME & `pwd`; äöü')
    (root / ".venv" / "bin").mkdir(parents=True)
    python = root / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (root / ".venv" / ".ready").touch()
    said = make(root, "check", f"FILE=submitted/ada/{WEEK3}/{WEEK3}.ipynb")
    points = sum(entry.points for entry in MANIFEST[WEEK3] if entry.kind != "text")
    assert f"Automatic points: {points} of {points}" in said
    assert not (root / ".venv" / ".python").exists()  # nothing was set up again
