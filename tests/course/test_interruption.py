"""Killed at any moment, the next run ends where an undisturbed one would; a second run beside the first is refused."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import COURSE, GradedClass, autograder
from test_class import standing

pytestmark = pytest.mark.isolation
COMMAND = [sys.executable, "-m", "autograder", "--root"]


def start(root: Path, *more: str, **environment: str) -> subprocess.Popen:
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": scripts + os.pathsep + os.environ["PATH"], "PYTHONPATH": str(COURSE), **environment}
    return subprocess.Popen([*COMMAND, str(root), "autograde", "--week", "3", *more], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def fresh(graded_class: GradedClass, tmp_path: Path) -> Path:
    root = tmp_path / "course"
    shutil.copytree(graded_class.root, root, ignore=shutil.ignore_patterns("autograded", "feedback", "gradebook.db", "pending"))
    return root


def running() -> dict[int, tuple[int, str]]:
    """Parent and start time of every process."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            table[int(entry.name)] = (int(fields[1]), fields[19])
    return table


def family(root: int) -> set[tuple[int, str]]:
    """The processes below ``root``, by pid and start time."""
    table, tree = running(), {root}
    while more := {pid for pid, (parent, _) in table.items() if parent in tree} - tree:
        tree |= more
    return {(pid, table[pid][1]) for pid in tree - {root} if pid in table}


def assert_gone(processes: set[tuple[int, str]]) -> None:
    deadline = time.monotonic() + 20
    while left := processes & {(pid, start) for pid, (_, start) in running().items()}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_killed_at_random_moments(graded_class: GradedClass, tmp_path: Path) -> None:
    root, chance = fresh(graded_class, tmp_path), random.Random(0)
    for _ in range(10):
        process = start(root)
        time.sleep(chance.uniform(0.3, 9.0))
        processes = family(process.pid)
        process.kill()
        process.wait()
        assert_gone(processes)
    autograder("--root", str(root), "autograde", "--week", "3")
    assert standing(root) == standing(graded_class.root)
    assert not list((root / ".autograder" / "pending").iterdir())


def killed_with_results(root: Path) -> list[Path]:
    """The results that a killed run has not saved yet."""
    pending = root / ".autograder" / "pending"
    for _ in range(5):  # it may save the last one before the kill arrives
        process = start(root)
        while process.poll() is None and not (pending.is_dir() and list(pending.glob("*[0-9a-f]"))):
            time.sleep(0.002)
        process.kill()
        process.wait()
        if kept := [path for path in pending.iterdir() if not path.suffix]:
            return kept
    raise AssertionError("no result was kept")


def test_results_that_came_before_the_kill_are_used(graded_class: GradedClass, tmp_path: Path) -> None:
    root, right = fresh(graded_class, tmp_path), standing(graded_class.root)
    marked = killed_with_results(root)[0]
    result = json.loads(marked.read_text())
    marked.write_text(json.dumps(result | {"scores": dict.fromkeys(result["scores"], 0.125)}))  # which no grading gives
    autograder("--root", str(root), "autograde", "--week", "3")
    found = standing(root)
    assert {points for cell, points in found[result["key"]].by_cell.items() if cell in result["scores"]} == {0.125}
    assert {name for name in right if found[name] != right[name]} == {result["key"]}


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
def test_ctrl_c_is_one_line_and_leaves_nothing_behind(graded_class: GradedClass, tmp_path: Path, isolation: str) -> None:
    root, scratch = fresh(graded_class, tmp_path), tmp_path / "tmp"
    scratch.mkdir()
    process, pending = start(root, "--isolation", isolation, TMPDIR=str(scratch)), root / ".autograder" / "pending"
    while process.poll() is None and not (pending.is_dir() and list(pending.iterdir())):
        time.sleep(0.02)
    processes = family(process.pid)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in output and "go on where it stopped" in output, output
    assert_gone(processes)
    assert not [path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor")]


def test_a_second_run_beside_the_first_is_refused(graded_class: GradedClass, tmp_path: Path) -> None:
    root = fresh(graded_class, tmp_path)
    first, lock = start(root), root / ".autograder" / "lock"
    while not lock.exists() or str(first.pid) not in lock.read_text():  # the copied root may bring an old lock file
        time.sleep(0.05)
    second = autograder("--root", str(root), "autograde", "--week", "3", code=2)
    assert "another grading run is under way" in second.stderr and str(first.pid) in second.stderr
    assert first.wait(timeout=300) == 0
    assert standing(root) == standing(graded_class.root)
