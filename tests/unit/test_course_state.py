"""The state of a course root: one run at a time, one seed for a class, and what has been graded."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from autograder.errors import GradingFailed
from autograder.grading.course_state import class_seed, is_complete, is_isolated, run_lock, state_folder


def test_a_second_run_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    with run_lock(tmp_path), pytest.raises(GradingFailed, match=f"process {os.getpid()}"), run_lock(tmp_path):
        pass
    with run_lock(tmp_path):  # the lock was released
        pass


def test_the_lock_is_let_go_of_when_a_run_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run_lock(tmp_path):
        raise KeyboardInterrupt
    with run_lock(tmp_path):
        pass


def test_the_seed_is_made_once_and_differs_between_assignments(tmp_path: Path) -> None:
    first = class_seed(tmp_path, "week1")
    assert class_seed(tmp_path, "week1") == first != class_seed(tmp_path, "week2")
    assert stat.S_IMODE((state_folder(tmp_path) / "seed").stat().st_mode) == 0o600


def test_an_empty_seed_is_made_again(tmp_path: Path) -> None:
    """A full disk may leave one, and then anybody could compute the hidden inputs."""
    (state_folder(tmp_path) / "seed").write_text("")
    first = class_seed(tmp_path, "week1")
    known_to_all = hashlib.sha256(b"/week1").digest()[:4]
    assert first != int.from_bytes(known_to_all, "big") and class_seed(tmp_path, "week1") == first
    assert stat.S_IMODE(state_folder(tmp_path).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("text", "complete", "isolated"),
    [
        ('{"metadata": {"autograder": {"graded": true, "isolated": false}}}', True, False),
        ('{"metadata": {"autograder": {"graded": true}}}', True, True),
        ('{"metadata": {}}', False, True),
        ('{"metada', False, True),
        ("", False, True),
    ],
)
def test_only_what_was_written_after_saving_is_done(tmp_path: Path, text: str, complete: bool, isolated: bool) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(text)
    assert (is_complete(path), is_isolated(path)) == (complete, isolated)
    assert not is_complete(tmp_path / "missing.ipynb")
