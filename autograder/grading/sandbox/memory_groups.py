"""A submission's memory as the kernel counts it, in a control group of its own where the machine allows one.

The kernel counts everything that a submission holds, even shared pages that no page table shows and buffers of pipes
and sockets. Version 1 groups are made below this process's own, where it needs write access. Version 2 groups need a
delegated group without other processes: a scope of systemd's (see ``scope_command``) or a container's group. Elsewhere
`process_tree` counts, and `doctor` says which of the two does.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PREFIX = "autograder-"  # of a group's name, followed by the grading process's pid, the judge's pid and a number
CGROUP, MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Version:
    """The file names of one version of control groups."""

    limit: str
    events: str  # holds a line "oom_kill N"
    label: str


V1 = Version("memory.limit_in_bytes", "memory.oom_control", "control groups, version 1")
V2 = Version("memory.max", "memory.events", "control groups, version 2")


class MemoryGroup:
    """The control group of one submission."""

    def __init__(self, folder: Path, version: Version) -> None:
        self._folder, self._version = folder, version

    def add(self, pid: int) -> None:
        """Add a process and all it will start. Memory that it already holds still counts for its old group."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def ran_out(self) -> bool:
        """Whether the kernel has killed a process here because the group had reached its limit."""
        return _counter(self._folder / self._version.events, "oom_kill") > 0

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        with contextlib.suppress(OSError):  # still busy: `MemoryGroups.close` tries once more
            self._folder.rmdir()


class MemoryGroups:
    """The parent group below which this process may make groups."""

    def __init__(self, parent: Path, version: Version) -> None:
        self.parent, self.version = parent, version
        self._owner = os.getpid()  # processes forked from this one make groups, too
        self._numbers = itertools.count(1)

    @classmethod
    def find(cls) -> Self | None:
        """Find a parent group, if there is one. With version 2 this process moves into a leaf of its own group."""
        for parent, version in _own_groups():
            groups = cls(parent, version)
            try:
                if version is V2:
                    _make_room(parent)
                groups._remove_left_behind()
                groups.make(2**30).remove()
            except (OSError, ValueError):
                continue
            return groups
        return None

    def make(self, limit: int) -> MemoryGroup:
        """Make a group of at most ``limit`` bytes for a submission. Raises ``OSError`` or ``ValueError`` on failure."""
        folder = self.parent / f"{PREFIX}{self._owner}-{os.getpid()}-{next(self._numbers)}"
        folder.mkdir()
        try:
            (folder / self.version.limit).write_text(str(limit))
            _counter(folder / self.version.events, "oom_kill")
        except (OSError, ValueError):
            folder.rmdir()
            raise
        return MemoryGroup(folder, self.version)

    def _remove_left_behind(self) -> None:
        """Remove the groups of grading processes that were killed."""
        for folder in self.parent.glob(f"{PREFIX}*"):
            pid = folder.name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", pid).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def close(self) -> None:
        """Remove the groups that could not be removed before."""
        for folder in self.parent.glob(f"{PREFIX}{self._owner}-*"):
            with contextlib.suppress(OSError):
                folder.rmdir()


def scope_command() -> list[str]:
    """Return the command prefix that starts a grading process in a delegated group of its own; empty if there is none.

    Only version 2 needs such groups, and people who are not root get them only from systemd's user manager.
    """
    if not any(version is V2 for _, version in _own_groups()) or shutil.which("systemd-run") is None:
        return []
    runtime, manager = ("/run", []) if os.geteuid() == 0 else (os.environ.get("XDG_RUNTIME_DIR"), ["--user"])
    if not runtime or not os.path.exists(f"{runtime}/systemd/private"):
        return []
    command = ["systemd-run", *manager, "--scope", "--quiet", "--collect", "--property=Delegate=yes"]
    return command if _works(command) else []


def _works(command: list[str]) -> bool:
    """Whether systemd runs this command here: its manager may exist and still refuse."""
    try:
        return subprocess.run([*command, "true"], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _own_groups() -> Iterator[tuple[Path, Version]]:
    """Yield the folder and version of each of this process's groups that could count memory."""
    try:
        lines, mounts = CGROUP.read_text().splitlines(), MOUNTS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            wanted, version = "memory", V1
        elif not controllers:
            wanted, version = "", V2
        else:
            continue
        for mount in mounts:
            before, _, behind = mount.partition(" - ")
            root, place = before.split()[3:5]
            kind, _, options = behind.split(" ", 2)
            fits = kind == "cgroup2" if version is V2 else kind == "cgroup" and wanted in options.split(",")
            if fits and path.startswith(root.rstrip("/")):
                folder = Path(place) / path[len(root.rstrip("/")) :].lstrip("/")
                if version is V1 or "memory" in _words(folder / "cgroup.controllers"):
                    yield folder, version


def _make_room(parent: Path) -> None:
    """Move into a leaf if no other process is here: in version 2 a group with processes cannot count its children."""
    if "memory" in _words(parent / "cgroup.subtree_control"):
        return
    if any(pid != str(os.getpid()) for pid in _words(parent / "cgroup.procs")):
        raise OSError(f"{parent} holds other processes")
    leaf = parent / f"{PREFIX}{os.getpid()}-grader"
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))
    (parent / "cgroup.subtree_control").write_text("+memory")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _counter(path: Path, name: str) -> int:
    """Return the counter ``name``. Raises ``ValueError`` if the kernel does not keep it."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    raise ValueError(f"{path} counts no {name}")
