"""Memory as counted by the kernel in a control group, and as counted without one; both stop a submission."""

import os
from pathlib import Path

import pytest

from autograder.grading.sandbox import memory_groups
from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.memory_groups import V1, V2, MemoryGroups, scope_command
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session

LIMITS = Limits(memory=2**29)
# Pages that are in no page table any more, in four processes, each within its own limit of address space.
SHARED = """
import mmap, os, time
for _ in range(4):
    held = mmap.mmap(-1, 200 << 20)
    for place in range(0, len(held), mmap.PAGESIZE):
        held[place] = 1
    held.madvise(mmap.MADV_DONTNEED)
    if os.fork() == 0:
        time.sleep(600)
    held.close()
time.sleep(600)
"""
NEW_PROGRAMS = """
import subprocess, sys, time
code = "held = b'x' * (150 << 20); import time; time.sleep(600)"
started = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) for _ in range(6)]
time.sleep(600)
"""


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, mounts: str) -> None:
    for name, text in (("CGROUP", groups), ("MOUNTS", mounts)):
        path = tmp_path / name.lower()
        path.write_text(text)
        monkeypatch.setattr(memory_groups, name, path)


def test_version_1_is_found_where_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(
        tmp_path,
        monkeypatch,
        "5:cpu:/\n4:memory:/user/one\n0::/\n",
        f"30 25 0:26 / {tmp_path}/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n",
    )
    assert list(memory_groups._own_groups()) == [(tmp_path / "memory/user/one", V1)]


def test_version_2_counts_where_the_controller_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "0::/scope\n", f"30 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "scope").mkdir()
    assert list(memory_groups._own_groups()) == []
    (tmp_path / "scope" / "cgroup.controllers").write_text("cpu memory\n")
    assert list(memory_groups._own_groups()) == [(tmp_path / "scope", V2)]


def test_a_group_of_version_2_that_holds_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    with pytest.raises(OSError, match="other processes"):
        memory_groups._make_room(tmp_path)


def test_a_group_of_version_2_that_is_ours_gets_children_that_count(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    memory_groups._make_room(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    leaf = next(tmp_path.glob(f"{memory_groups.PREFIX}*-grader"))
    assert (leaf / "cgroup.procs").read_text() == str(os.getpid())


def test_systemd_is_asked_only_for_version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_groups, "_own_groups", lambda: iter([(Path("/"), V1)]))
    assert scope_command() == []


def test_a_killed_run_leaves_no_group_for_long(tmp_path: Path) -> None:
    gone, alive = (
        tmp_path / f"{memory_groups.PREFIX}999999999-1-1",
        tmp_path / f"{memory_groups.PREFIX}{os.getpid()}-1-1",
    )
    gone.mkdir()
    alive.mkdir()
    MemoryGroups(tmp_path, V1)._remove_left_behind()
    assert not gone.exists() and alive.exists()


@pytest.mark.isolation
@pytest.mark.timing
@pytest.mark.skipif(bool(why_not_isolated()), reason="needs bubblewrap")
@pytest.mark.parametrize("counted_by", ["the kernel", "page tables"])
@pytest.mark.parametrize("source", [SHARED, NEW_PROGRAMS], ids=["shared-pages", "new-programs"])
def test_nothing_is_held_that_counts_for_nobody(monkeypatch: pytest.MonkeyPatch, counted_by: str, source: str) -> None:
    if counted_by == "page tables":
        monkeypatch.setattr(MemoryGroups, "find", classmethod(lambda cls: None))
    with Sandbox(limits=LIMITS) as sandbox:
        if counted_by == "the kernel" and sandbox._groups is None:
            pytest.skip("no control group can be had here")
        session = Session(sandbox, {}, 0)
        error = session.execute("cell", source).error
        session.close()
    assert error is not None and error.kind == "MemoryError", error and error.describe()
