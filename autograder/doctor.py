"""`make doctor`: OK or FAIL for everything the course needs, each failure with its remedy."""

import importlib.metadata
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from autograder.course import course_directory  # imports nbgrader when it is called: doctor must run without
from autograder.errors import missing_package

Finding = tuple[bool, str, str]  # works, what was found, remedy


def report(root: Path) -> int:
    """Print one line per component; return 1 if something needed is missing."""
    console = Console(soft_wrap=True, highlight=False)
    bad = 0
    for name, needed, look in _components(root):
        try:
            works, found, remedy = look()
        except ImportError as error:
            works, found, remedy = False, "cannot be looked at", missing_package(error)
        mark = "[green]OK  [/green]" if works else "[red]FAIL[/red]" if needed else "[yellow]--  [/yellow]"
        console.print(f"{mark} {name}: {found}")
        if not works and remedy:
            console.print(f"       {remedy}")
        bad += needed and not works
    console.print("Everything needed is here." if not bad else f"{bad} to put right, see above.")
    return 1 if bad else 0


def _components(root: Path) -> list[tuple[str, bool, Callable[[], Finding]]]:
    return [
        ("Python", True, _python),
        *[
            (f"package {name}", True, lambda name=name, version=version: _package(name, version))
            for name, version in _pins(root)
        ],
        ("built course", True, lambda: _built(root)),
        ("course root", _must_be_private(root), lambda: _privacy(root)),
        ("gradebook", True, lambda: _gradebook(root)),
        ("isolation (bubblewrap)", True, _isolation),
        ("memory of submissions", False, _memory),
        ("CUDA", False, _cuda),
    ]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    fits = (3, 11) <= sys.version_info[:2] <= (3, 14)
    return fits, version, "Python 3.11 to 3.14 is needed: install it and run `make clean setup`"


def _pins(root: Path) -> list[tuple[str, str]]:
    path = root / "pyproject.toml"
    if not path.is_file():
        return []
    lines = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [
        (m.group(1), m.group(2))
        for line in lines
        if (m := re.match(r"([\w-]+)==([\w.]+)", line)) and ("linux" not in line or sys.platform.startswith("linux"))
    ]


def _package(name: str, version: str) -> Finding:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False, "missing", f"`make setup`, or in your own environment: pip install {name}=={version}"
    same = found.split("+")[0] == version
    return same, found, "" if same else f"{version} is known to work; `make clean setup` installs it"


def _built(root: Path) -> Finding:
    texts = {path.stem for path in (root / "source").glob("week*_*.py")}
    built = {path.parent.name for path in (root / "notebooks").glob("week*_*/week*.ipynb")}
    missing = sorted(texts - built)
    return not missing, f"{len(built)} weeks", f"not built: {', '.join(missing)}; run `make build`"


def _must_be_private(root: Path) -> bool:
    """Whether an open course root is a failure: modes work here, and there are class data or other users."""
    if os.name != "posix":
        return False
    from autograder.permissions import has_class_data, keeps_modes, other_people

    return (has_class_data(root) or other_people()) and keeps_modes(root)


def _privacy(root: Path) -> Finding:
    if os.name != "posix":
        return True, "not looked at here", ""
    from autograder import permissions

    shared = bool(course_directory(root).groupshared)
    if found := permissions.exposures(root, shared):
        where = permissions.remedy(root.resolve(), shared) if permissions.keeps_modes(root) else permissions.NO_MODES
        return False, str(found[0]), f"before a class is graded here: {where}"
    return True, "instructors only" + (" (groupshared)" if shared else ""), ""


def _gradebook(root: Path) -> Finding:
    from autograder.errors import CourseError
    from autograder.grading.plugins.gradebook import has_gradebook, open_gradebook

    course = course_directory(root)
    try:
        if not has_gradebook(course):
            return True, "none yet; the first grading makes it", ""
        with open_gradebook(course) as gradebook:
            kind = gradebook.engine.dialect.name
            return True, f"{len(gradebook.students)} students, {len(gradebook.assignments)} assignments ({kind})", ""
    except CourseError as error:
        return False, "cannot be opened", str(error)


def _isolation() -> Finding:
    from autograder.grading.sandbox.bubblewrap import find_bubblewrap, why_not_isolated

    problem = why_not_isolated()
    return not problem, f"{find_bubblewrap()} works" if not problem else "does not work here", problem


def _memory() -> Finding:
    from autograder.grading.sandbox.memory_groups import MemoryGroups, scope_command

    if scope_command():
        return True, "counted by the kernel (control groups, version 2, by way of systemd)", ""
    groups = MemoryGroups.find()
    if groups is not None:
        return True, f"counted by the kernel ({groups.version.label})", ""
    return True, "counted from page tables in /proc (no control group can be had here)", ""


def _cuda() -> Finding:
    import torch

    if torch.cuda.is_available():
        return True, torch.cuda.get_device_name(0), ""
    return False, "no GPU; everything runs on the CPU", ""
