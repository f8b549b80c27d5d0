"""Failures on the grader's side never become a grade: bubblewrap, disk, fork server and judge are broken on purpose."""

import os
import signal
import sys
from pathlib import Path

import pytest
from helpers import GradedClass, autograder, command_of, family, run, standing, wait_until
from interrupted import fresh, keep_busy, results, start

pytestmark = pytest.mark.isolation


def with_bubblewrap(folder: Path, script: str) -> dict[str, str]:
    """Return an environment in which ``bwrap`` is this shell script; ``$REAL`` is the real one."""
    from autograder.grading.sandbox.bubblewrap import find_bubblewrap

    folder.mkdir()
    shim = folder / "bwrap"
    shim.write_text(f"#!/bin/sh\nREAL={find_bubblewrap()}\n{script}\n")
    shim.chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo setting up uid map: Permission denied >&2; exit 1", "bubblewrap cannot start here"),
        pytest.param(
            'case "$*" in *fork_server.py*) echo no memory for that >&2; exit 1;; esac; exec "$REAL" "$@"',
            "no memory for that",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            'case "$*" in *fork_server.py*) exec sleep 0;; esac; exec "$REAL" "$@"',
            "the sandbox did not start",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["nowhere", "with-a-message", "silently"],
)
def test_a_broken_bubblewrap_gives_no_grades(graded_class: GradedClass, tmp_path: Path, script: str, said: str) -> None:
    root, broken = fresh(graded_class, tmp_path), with_bubblewrap(tmp_path / "bin", script)
    ours = autograder("--root", str(root), "autograde", "--week", "3", code=2, **broken)
    assert ours.stderr.startswith("error: ") and said in ours.stderr and "Traceback" not in ours.stderr
    stock = run("nbgrader", "autograde", "week3_rope", cwd=root, code=None, **broken)
    assert stock.returncode != 0 and said in stock.stderr
    assert not (root / "gradebook.db").exists() or all(score.score is None for score in standing(root).values())


@pytest.mark.nightly
def test_a_full_disk_is_said_and_costs_nobody_a_grade(graded_class: GradedClass, tmp_path: Path) -> None:
    root = fresh(graded_class, tmp_path)
    for kilobytes in (0, 20, 200):  # size limit of a file: too small for anything, for results, for the gradebook
        command = f"ulimit -f {kilobytes}; exec {sys.executable} -m autograder --root {root} autograde --week 3"
        done = run("bash", "-c", command, code=None)
        assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
        if (root / "gradebook.db").exists() and (root / "gradebook.db").stat().st_size > 100_000:
            right = standing(graded_class.root)
            assert all(score in (right[name], None) or score.score is None for name, score in standing(root).items())
    autograder("--root", str(root), "autograde", "--week", "3")
    assert standing(root) == standing(graded_class.root)


COSTLY = (
    "import time\nend = time.process_time() + 4\nwhile time.process_time() < end: pass"  # CPU time, on any computer
)


@pytest.mark.nightly
@pytest.mark.timing
@pytest.mark.parametrize("victim", ["the fork server", "a judge"])
def test_what_dies_in_the_middle_is_started_again(graded_class: GradedClass, tmp_path: Path, victim: str) -> None:
    root = fresh(graded_class, tmp_path)
    with keep_busy(root, COSTLY):
        process = start(root)
        wait_until(lambda: results(root), "a result")
        os.kill(_pid_of(victim, process.pid), signal.SIGKILL)
        output, _ = process.communicate()
    assert process.returncode == 0 and "Traceback" not in output, output
    assert standing(root) == standing(graded_class.root)


def _pid_of(victim: str, root: int) -> int:
    wanted = "bwrap" if victim == "the fork server" else "autograder.grading.executors.grader_process"
    return max(pid for pid, _ in family(root) if wanted in command_of(pid))  # the youngest


def test_unreadable_folders_are_named(graded_class: GradedClass, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    root = fresh(graded_class, tmp_path)
    (root / "submitted" / "ada" / "week3_rope").chmod(0)
    autograder("--root", str(root), "autograde", "--week", "3")
    assert "cannot be read" in standing(root)["ada"].reason


@pytest.mark.nightly
def test_a_grading_process_that_nobody_needed_leaves_nothing_behind(graded_class: GradedClass, tmp_path: Path) -> None:
    """It is started before we know whether there is anything to grade."""
    root, scratch = fresh(graded_class, tmp_path), tmp_path / "tmp"
    scratch.mkdir()
    submitted = (root / "submitted").rename(root / "elsewhere")
    nobody = autograder("--root", str(root), "autograde", "--week", "3", code=2, TMPDIR=str(scratch))
    assert nobody.stderr.startswith("error: no submissions") and list(scratch.iterdir()) == []
    submitted.rename(root / "submitted")
    for _ in range(2):  # in the second run all have been graded
        autograder("--root", str(root), "autograde", "--week", "3", TMPDIR=str(scratch))
        assert list(scratch.iterdir()) == []
    assert standing(root) == standing(graded_class.root)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _is_left_of(path, scratch)]


def _is_left_of(command: Path, scratch: Path) -> bool:
    """Whether a process has this scratch folder in its environment."""
    try:
        return f"TMPDIR={scratch}".encode() in (command.parent / "environ").read_bytes()
    except OSError:
        return False
