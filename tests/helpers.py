"""Helpers of the tests: the course's path, commands as a user types them, and what a run leaves behind."""

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they import nbgrader and torch, which costs seconds even in a process that only distributes tests
    import torch

    from autograder.classroom import Student
    from autograder.grading.plugins.gradebook import Score
    from autograder.grading.sandbox.session import Session

COURSE = Path(__file__).resolve().parents[1]
AUTOGRADER = (sys.executable, "-m", "autograder")
WEEK3 = "week3_rope"
ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
ATTENTION = """def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    weights = scores.softmax(-1)
    return weights @ v, weights
"""  # a student's answer to 1.1
PATIENCE = 2000  # seconds before we give up on a command or a condition: it hangs and is not just slow


def environment(**more: str) -> dict[str, str]:
    """Return the tests' own environment, with its programs first on PATH and the course importable."""
    scripts = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": scripts + os.pathsep + os.environ["PATH"], "PYTHONPATH": str(COURSE), **more}


def run(
    *command: str, cwd: Path = COURSE, code: int | None = 0, patience: float = PATIENCE, **more: str
) -> subprocess.CompletedProcess:
    """Run a command as a user types it, in the tests' own environment; any exit code but ``code`` fails the test."""
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment(**more),
        timeout=patience,
        check=False,
    )
    assert code is None or done.returncode == code, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def autograder(*arguments: str, cwd: Path = COURSE, code: int | None = 0, **more: str) -> subprocess.CompletedProcess:
    return run(*AUTOGRADER, *arguments, cwd=cwd, code=code, **more)


def copy_of_course(target: Path) -> Path:
    """Copy the weeks' texts and notebooks, and the settings, into a folder."""
    for name in ("source", "notebooks"):
        shutil.copytree(COURSE / name, target / name)
    for name in ("nbgrader_config.py", "pyproject.toml"):
        shutil.copy(COURSE / name, target)
    return target


def wait_until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Return as soon as ``condition`` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)


def load(path: str) -> ModuleType:
    """Import a file of the course that lies in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, COURSE / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_lab() -> ModuleType:
    return load("source/lab.py")


def load_serving_lab() -> ModuleType:
    """Import week 8's helper file, which imports others from its folder."""
    sys.path.insert(0, str(COURSE / "source"))
    try:
        return importlib.import_module("serving_lab")
    finally:
        sys.path.remove(str(COURSE / "source"))


def random(*shape: int, seed: int = 0, dtype: "torch.dtype | None" = None, device: str = "cpu") -> "torch.Tensor":
    """Return normal numbers, drawn in float64: the same in every dtype, up to its rounding."""
    import torch

    numbers = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return numbers.to(device=device, dtype=dtype)


def hand_in(root: Path, student: str, answers: Mapping[str, Any], assignment: str = WEEK3) -> Path:
    """Submit the released notebook with these answers, by grade_id; an answer is a text or the fields of its cell."""
    notebook = json.loads((COURSE / "notebooks" / assignment / f"{assignment}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        answer = answers.get(cell["metadata"].get("nbgrader", {}).get("grade_id"), {})
        cell.update({"source": answer} if isinstance(answer, str) else answer)
    path = root / "submitted" / student / assignment / f"{assignment}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


@dataclass
class GradedClass:
    root: Path
    students: list["Student"]


def standing(root: Path, assignment: str = WEEK3) -> dict[str, "Score"]:
    """Return every student's score from the gradebook."""
    from nbgrader.coursedir import CourseDirectory

    from autograder.grading.plugins.gradebook import scores

    return {score.student: score for score in scores(CourseDirectory(root=str(root)), assignment)}


def printed(session: "Session", source: str) -> str:
    """Run a cell and return what it prints; an error fails the test."""
    done = session.execute("cell", source)
    assert done.error is None, done.error
    return "".join(output.get("text", "") for output in done.outputs)


# ---- processes ------------------------------------------------------------------------------------------------------


def family(root: int) -> set[tuple[int, str]]:
    """Return the descendants of process ``root``, by pid and start time."""
    table, tree = _running(), {root}
    while more := {pid for pid, (parent, _) in table.items() if parent in tree} - tree:
        tree |= more
    return {(pid, table[pid][1]) for pid in tree - {root} if pid in table}


def wait_until_gone(processes: set[tuple[int, str]]) -> None:
    wait_until(
        lambda: not processes & {(pid, start) for pid, (_, start) in _running().items()}, f"the end of {processes}"
    )


def command_of(pid: int) -> str:
    """Return the command line of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _running() -> dict[int, tuple[int, str]]:
    """Return parent and start time of every living process, without zombies: where nothing reaps orphans, as in many
    containers, ended processes stay in the table."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                table[int(entry.name)] = (int(fields[1]), fields[19])
    return table
