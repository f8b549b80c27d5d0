"""Finds who else on this machine can access a course root, which holds grades, solutions and everybody's work.

On a hub every student has an account on the machine, or on its file system. Only the owner, and with nbgrader's
``groupshared`` the instructors' group, may read the course root or write to it.
"""

import contextlib
import grp
import itertools
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.errors import CourseError

CLASS_DATA = ("submitted", "autograded", "gradebook.db", ".autograder", "roster.csv")
LOCAL_SOURCES = {"files", "systemd", "compat", "altfiles", "mymachines"}
FIRST_PERSON, NOBODY = 1000, 65534  # user ids
WRITE, PASS = 2, 1
MAX_ENTRIES = 10_000  # looked at in one folder: a submission may have any number of files


@dataclass(frozen=True)
class Exposure:
    """Access that only instructors should have, and who else has it."""

    who: str
    may: str  # "read" or "change"
    path: Path

    def __str__(self) -> str:
        return f"{self.who} may {self.may} {self.path}"


def exposures(root: Path, groupshared: bool = False) -> list[Exposure]:
    """The worst access of everybody, and of each group that has other members; empty for a private root."""
    root = root.resolve()
    if not root.stat().st_mode & 0o077:
        return []
    found = [_exposure(root, None, "everybody on this machine")]
    for gid in sorted(_writing_groups(root) | {root.stat().st_gid}):
        others = _other_members(gid, root.stat().st_uid)
        students = _students_in(gid, root) if groupshared else []
        if students:
            found.append(_exposure(root, gid, f"the group {_group_name(gid)}, to which {students[0]} belongs,"))
        elif others and not (groupshared and gid == root.stat().st_gid):
            found.append(_exposure(root, gid, f"the group {_group_name(gid)}"))
    return [exposure for exposure in found if exposure]


def require_private(root: Path, groupshared: bool = False) -> str:
    """Raise ``CourseError`` if others could change what is graded; where file modes mean nothing, return a warning."""
    open_to = [exposure for exposure in exposures(root, groupshared) if exposure.may == "change"]
    if not open_to:
        return ""
    if not keeps_modes(root):
        return f"WARNING: {open_to[0]}. {NO_MODES}"
    raise CourseError(f"not graded, for {open_to[0]}: {remedy(root, groupshared)}")


NO_MODES = (
    "File modes mean nothing on this file system (a Windows drive in WSL, a shared folder): keep a class on a Linux one"
)


def remedy(root: Path, groupshared: bool = False) -> str:
    """The commands that make a course root private."""
    if groupshared:
        return f"`chgrp -R INSTRUCTORS {root}`, a group of instructors only, and `chmod 2770 {root}`"
    return f"`chmod 700 {root}`, or share it with the instructors' group as docs/jupyterhub.md says"


def keeps_modes(root: Path) -> bool:
    """Whether the file system keeps a folder private to its owner; a Windows drive in WSL does not."""
    try:
        with tempfile.TemporaryDirectory(prefix=".modes-", dir=root) as probe:
            return not stat.S_IMODE(os.stat(probe).st_mode) & 0o077
    except OSError:
        return True


def is_groupshared(root: Path) -> bool:
    """Whether a course root has been handed to a group: mode 2770."""
    return stat.S_IMODE(root.stat().st_mode) & 0o2070 == 0o2070


def has_class_data(root: Path) -> bool:
    return any((root / name).exists() for name in CLASS_DATA)


def other_people() -> bool:
    """Whether anybody else is likely to have an account here: a hub, a directory service, a second person."""
    if any(name.startswith("JUPYTERHUB_") for name in os.environ):
        return True
    try:
        for line in Path("/etc/nsswitch.conf").read_text(encoding="utf-8").splitlines():
            name, _, sources = line.partition("#")[0].partition(":")
            if name.strip() == "passwd" and set(sources.split()) - LOCAL_SOURCES:
                return True
    except OSError:
        pass
    people = {account.pw_uid for account in pwd.getpwall() if FIRST_PERSON <= account.pw_uid < NOBODY}
    return bool(people - {os.getuid()})


def _exposure(root: Path, gid: int | None, who: str) -> Exposure | None:
    """The worst access of a group's members, or of everybody else if ``gid`` is ``None``."""
    here = _bits(root, gid)
    if not here or not all(_bits(folder, gid) & PASS for folder in root.parents):
        return None
    if not here & PASS:
        return Exposure(who, "read", root)  # only file names, but that is too much already
    for path in _paths(root):
        if _bits(path, gid) & WRITE and all(_bits(folder, gid) & PASS for folder in path.parents):
            return Exposure(who, "change", path)
    return Exposure(who, "read", root)


def _paths(root: Path) -> Iterator[Path]:
    """The paths that decide grades: the root, its entries, and every submission. Links are not followed."""
    yield root
    yield from _entries(root)
    for folder in ("submitted", "autograded", "source"):
        for below in _entries(root / folder):
            yield below
            for submission in _entries(below):
                yield submission
                yield from _entries(submission)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.path for entry in itertools.islice(entries, MAX_ENTRIES) if not entry.is_symlink())
    except OSError:
        return
    yield from map(Path, names)


def _writing_groups(root: Path) -> set[int]:
    groups = set()
    for path in _paths(root):
        with contextlib.suppress(FileNotFoundError):  # gone since it was listed, as a database's journal goes
            status = path.stat()
            if status.st_mode & stat.S_IWGRP:
                groups.add(status.st_gid)
    return groups


def _bits(path: Path, gid: int | None) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0  # gone since it was listed
    return (status.st_mode >> 3 if status.st_gid == gid else status.st_mode) & 7


def _other_members(gid: int, owner: int) -> list[str]:
    """The members of a group other than its owner. A group that cannot be listed counts as having others."""
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return ["?"]
    members |= {account.pw_name for account in pwd.getpwall() if account.pw_gid == gid and account.pw_uid != owner}
    with contextlib.suppress(KeyError):
        members -= {pwd.getpwuid(owner).pw_name, "root"}
    return sorted(members)


def _students_in(gid: int, root: Path) -> list[str]:
    """Students who handed something in and whose account is in the group."""
    found = []
    for folder in _entries(root / "submitted"):
        try:
            account = pwd.getpwnam(folder.name)
        except (KeyError, ValueError):
            continue
        if gid in os.getgrouplist(account.pw_name, account.pw_gid):
            found.append(account.pw_name)
    return found


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
