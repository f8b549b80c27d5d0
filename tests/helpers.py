"""Shared by the tests: where the course is, and commands as a user would type them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from autograder.classroom import Student

COURSE = Path(__file__).resolve().parents[1]
WEEK3 = "week3_rope"


def run(*command: str, cwd: Path = COURSE, code: int | None = 0, **environment: str) -> subprocess.CompletedProcess:
    """A command as a user would type it, in the tests' own environment; fails the test on another exit code."""
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": scripts + os.pathsep + os.environ["PATH"], "PYTHONPATH": str(COURSE)} | environment
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert code is None or done.returncode == code, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def autograder(*arguments: str, cwd: Path = COURSE, code: int | None = 0, **environment: str) -> subprocess.CompletedProcess:
    return run(sys.executable, "-m", "autograder", *arguments, cwd=cwd, code=code, **environment)


@dataclass
class GradedClass:
    root: Path
    students: list[Student]
