"""After a kill at any moment, the next run ends where an undisturbed one would; a second run at once is refused."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import GradedClass, autograder, family, standing, wait_until, wait_until_gone
from interrupted import ENDLESS, fresh, keep_busy, results, start

pytestmark = [pytest.mark.isolation, pytest.mark.timing]


def lock_is_held(root: Path) -> bool:
    return (root / ".autograder" / "holder").exists()


def sandbox_runs(root: Path, pid: int) -> bool:
    return len(family(pid)) > 2


def saved(root: Path) -> list[Path]:
    return list(root.glob("autograded/*/*/*.ipynb"))


MOMENTS: dict[str, Callable[[Path, int], object]] = {
    "at once": lambda root, pid: True,
    "the lock is taken": lambda root, pid: lock_is_held(root),
    "a sandbox starts": sandbox_runs,
    "a result has come": lambda root, pid: results(root),
    "the first is saved": lambda root, pid: saved(root),
    "half are saved": lambda root, pid: len(saved(root)) >= 7,
}


@pytest.mark.nightly
def test_killed_at_many_moments(graded_class: GradedClass, tmp_path: Path) -> None:
    root = fresh(graded_class, tmp_path)
    for moment, has_come in MOMENTS.items():
        process = start(root)
        wait_until(lambda: process.poll() is not None or has_come(root, process.pid), moment)  # noqa: B023  used at once
        processes = family(process.pid)
        process.kill()
        process.wait()
        wait_until_gone(processes)
    autograder("--root", str(root), "autograde", "--week", "3")
    assert standing(root) == standing(graded_class.root)
    assert not list((root / ".autograder" / "pending").iterdir())


def test_results_that_came_before_the_kill_are_used(graded_class: GradedClass, tmp_path: Path) -> None:
    """The first student's notebook never ends, so nothing is saved before the kill and all results are pending."""
    root, right = fresh(graded_class, tmp_path), standing(graded_class.root)
    with keep_busy(root, ENDLESS):
        process = start(root)
        wait_until(lambda: results(root), "a result")
        processes = family(process.pid)
        process.kill()
        process.wait()
        wait_until_gone(processes)
    marked = results(root)[0]
    result = json.loads(marked.read_text())
    marked.write_text(json.dumps(result | {"scores": dict.fromkeys(result["scores"], 0.125)}))  # an impossible score
    autograder("--root", str(root), "autograde", "--week", "3")
    found = standing(root)
    assert {points for cell, points in found[result["key"]].by_cell.items() if cell in result["scores"]} == {0.125}
    assert {name for name in right if found[name] != right[name]} == {result["key"]}


@pytest.mark.nightly
@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
def test_ctrl_c_is_one_line_and_leaves_nothing_behind(
    graded_class: GradedClass, tmp_path: Path, isolation: str
) -> None:
    root, scratch = fresh(graded_class, tmp_path), tmp_path / "tmp"
    scratch.mkdir()
    with keep_busy(root, ENDLESS):
        process = start(root, "--isolation", isolation, TMPDIR=str(scratch))
        wait_until(lambda: results(root), "a result")
        processes = family(process.pid)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130 and "Traceback" not in output and "go on where it stopped" in output, output
    wait_until_gone(processes)
    assert not [path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor")]


@pytest.mark.nightly
def test_a_second_run_beside_the_first_is_refused(graded_class: GradedClass, tmp_path: Path) -> None:
    root = fresh(graded_class, tmp_path)
    with keep_busy(root, ENDLESS):
        first = start(root)
        wait_until(lambda: results(root), "a result of the first run")
        second = autograder("--root", str(root), "autograde", "--week", "3", code=2)
        assert "another grading run is under way" in second.stderr and str(first.pid) in second.stderr
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        first.communicate()
