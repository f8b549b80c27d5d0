"""Find the folders under `submitted/` that hold an assignment, and their students."""

import fnmatch
import glob
import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

# Folders that systems and editors create, never a student's.
NOT_STUDENTS = frozenset({".ipynb_checkpoints", ".git", ".svn", ".cache", ".Trash", ".Trashes", "__MACOSX"})


@dataclass
class Submissions:
    """Submitted folders by student. By printable name: ``refused`` folders, whose names no student can have, with the
    reason, and ``misnamed`` entries of students' folders, named almost like the assignment or holding its notebook, with
    what to do."""

    folders: dict[str, Path] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    misnamed: dict[str, str] = field(default_factory=dict)


def find_submissions(course: CourseDirectory, assignment: str, student: str = "*") -> Submissions:
    """Find the submissions of ``student``, a name or a pattern, for an assignment, and those with a wrong name."""
    found = Submissions()
    for folder in folders(course, course.submitted_directory, "*", assignment):
        name = folder.parent.name
        if name in NOT_STUDENTS or not (name == student or fnmatch.fnmatchcase(name, student)):
            continue
        if reason := why_no_name(name):
            found.refused[_shown(name)] = reason
        else:
            found.folders[name] = folder
    known = {path.name for path in Path(course.format_path(course.source_directory, ".", "*")).parent.glob("*")}
    for folder in folders(course, course.submitted_directory, "*", ""):
        name = folder.name
        if name[0] != "." and name not in NOT_STUDENTS and (name == student or fnmatch.fnmatchcase(name, student)):
            for entry in sorted(set(_entries(folder)) - known - {assignment}):
                is_theirs = name not in found.folders and _holds(folder / entry, f"{assignment}.ipynb")
                if is_theirs or _is_nearly(entry, assignment):
                    found.misnamed[_shown(f"{name}/{entry}")] = _remedy(folder / entry, assignment)
    if student == "*":
        found.misnamed |= _misplaced(course, assignment)
    return found


def _misplaced(course: CourseDirectory, assignment: str) -> dict[str, str]:
    """Return what lies under ``submitted/`` without a student's folder around it, with what to do."""
    top, found = Path(course.root, course.submitted_directory), {}
    for student in _entries(top / assignment):  # as after unpacking what some systems hand out
        if student != assignment and (top / assignment / student).is_dir():
            found[_shown(f"{assignment}/{student}")] = f"move it to submitted/{_shown(student)}/{assignment}"
    for path in sorted([*top.glob("*.ipynb"), *top.glob("*.zip")]):
        if path.is_file():
            verb = "unpack it into" if path.suffix == ".zip" else "move it to"
            found[_shown(path.name)] = f"{verb} submitted/STUDENT/{assignment}/, if it is of this week"
    return found


def all_students(course: CourseDirectory) -> set[str]:
    """Return the names of all folders of students, whichever assignment is in them."""
    return {path.name for path in folders(course, course.submitted_directory, "*", "")}


def folders(course: CourseDirectory, step: str, student: str, assignment: str) -> list[Path]:
    """List a step's folders. The course's own path may hold what is a pattern elsewhere: "Course [2026]"."""
    path, root = course.format_path(step, student, assignment), str(course.root)
    pattern = glob.escape(root) + path.removeprefix(root) if path.startswith(root) else path
    return sorted(map(Path, glob.glob(pattern, include_hidden=True)))


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # a file, or an unreadable folder
        return []


def _holds(folder: Path, name: str) -> bool:
    return any(entry.lower() == name.lower() for entry in _entries(folder))


def _remedy(path: Path, assignment: str) -> str:
    if os.path.isdir(path):  # False, not an error, where nobody may look
        return f"the folder of the notebook has to be called {assignment}"
    verb = "unpack it" if path.suffix.lower() == ".zip" else "move it"
    return f"{verb} into submitted/{_shown(path.parent.name)}/{assignment}/"


def _is_nearly(name: str, assignment: str) -> bool:
    """Whether a name may mean the assignment: other case or separators, something appended, or the week alone."""
    name = re.sub(r"\.(ipynb|zip)$", "", name.lower())
    meant, wanted = (re.sub(r"[\W_]+", "", text.lower()) for text in (name, assignment))
    return bool(meant) and (meant.startswith(wanted) or meant == re.split(r"[\W_]", assignment.lower())[0])


def why_no_name(name: str) -> str:
    """Return why no student can have this name; empty if one can."""
    if name.startswith("."):
        return "the folder's name begins with a dot, which hides it from nbgrader: rename it"
    unseen = [character for character in name if not character.isprintable()]
    if unseen or name.encode("utf-8", "replace").decode() != name:
        which = (
            ", ".join(dict.fromkeys(_description(character) for character in unseen[:3])) or "bytes that are no text"
        )
        return f"the folder's name holds what cannot be seen ({which}): rename it"
    return ""


def _description(character: str) -> str:
    return unicodedata.name(character, f"U+{ord(character):04X}").lower()


def _shown(name: str) -> str:
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in name)
