"""Who else may access a course root: read from modes and groups, as the system itself decides."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autograder import permissions
from autograder.errors import CourseError
from autograder.grading.course_state import class_seed, run_lock
from autograder.permissions import exposures, require_private


@pytest.fixture
def root() -> Iterator[Path]:
    """A course root in a folder that everybody can enter; pytest's own folders are private."""
    place = Path(tempfile.mkdtemp(prefix="course-"))
    place.chmod(0o755)
    course = place / "course"
    (course / "submitted" / "ada" / "week3_rope").mkdir(parents=True)
    (course / "submitted" / "ada" / "week3_rope" / "week3_rope.ipynb").touch()
    course.chmod(0o700)
    yield course
    shutil.rmtree(place)


@pytest.fixture
def colleagues(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The other members of every group; the test fills the list."""
    members: list[str] = []
    monkeypatch.setattr(permissions, "_other_members", lambda gid, owner: members)
    return members


def said(root: Path, groupshared: bool = False) -> list[tuple[str, str]]:
    return [(found.who.split(",")[0], found.may) for found in exposures(root, groupshared)]


def test_a_private_root_is_closed_whatever_lies_in_it(root: Path, colleagues: list[str]) -> None:
    colleagues.append("boole")
    (root / "submitted" / "ada" / "week3_rope").chmod(0o777)  # as nbgrader's collect does
    assert said(root) == [] and require_private(root) == ""


def test_readable_is_said_and_graded_writable_is_refused(root: Path, colleagues: list[str]) -> None:
    root.chmod(0o755)
    assert said(root) == [("everybody on this machine", "read")] and require_private(root) == ""
    root.chmod(0o757)
    with pytest.raises(CourseError) as refusal:
        require_private(root)
    assert f"everybody on this machine may change {root}" in str(refusal.value)
    assert f"chmod 700 {root}" in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_is_gone_since_it_was_listed_is_no_danger(
    root: Path, colleagues: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database's journal comes and goes while a colleague saves a score."""
    listed = list(permissions._paths(root))
    monkeypatch.setattr(permissions, "_paths", lambda root: [*listed, root / "gradebook.db-journal"])
    colleagues.append("boole")
    root.chmod(0o770)
    assert {may for _, may in said(root, groupshared=False)} == {"change"}
    root.chmod(0o750)
    require_private(root)


@pytest.mark.parametrize(
    "part", ["submitted", "submitted/ada", "submitted/ada/week3_rope", "source/week3_rope", "gradebook.db"]
)
def test_one_open_part_is_enough(root: Path, colleagues: list[str], part: str) -> None:
    (root / "gradebook.db").touch()
    (root / "source" / "week3_rope").mkdir(parents=True)
    root.chmod(0o755)
    (root / part).chmod(0o777)
    assert [found.path for found in exposures(root)] == [root / part]
    root.parent.chmod(0o700)
    assert said(root) == []  # nobody else can get there


def test_a_link_is_not_followed(root: Path, colleagues: list[str]) -> None:
    root.chmod(0o755)
    (root / "submitted" / "dangling").symlink_to(root / "nothing")
    (root / "submitted" / "tmp").symlink_to("/tmp")
    assert said(root) == [("everybody on this machine", "read")]


def test_a_group_counts_if_somebody_else_is_in_it(root: Path, colleagues: list[str]) -> None:
    root.chmod(0o770)
    assert said(root) == []
    colleagues.append("boole")
    assert [may for _, may in said(root)] == ["change"]
    root.chmod(0o750)
    assert [may for _, may in said(root)] == ["read"]


def test_groupshared_is_for_instructors(root: Path, colleagues: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    colleagues.append("hopper")
    root.chmod(0o2770)
    assert said(root, groupshared=True) == []
    with pytest.raises(CourseError):
        require_private(root)
    monkeypatch.setattr(permissions, "_students_in", lambda gid, root: ["ada"])
    with pytest.raises(CourseError, match="to which ada belongs.*2770"):
        require_private(root, groupshared=True)
    root.chmod(0o2775)
    assert ("everybody on this machine", "read") in said(root, groupshared=True)


def test_students_are_known_by_their_accounts(root: Path) -> None:
    (root / "submitted" / "nobody").mkdir()
    assert permissions._students_in(os.stat("/").st_gid + 424_242, root) == []
    assert permissions._students_in(permissions.pwd.getpwnam("nobody").pw_gid, root) == ["nobody"]


def test_where_modes_mean_nothing_it_warns(root: Path, colleagues: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert permissions.keeps_modes(root) and {path.name for path in root.iterdir()} == {"submitted"}
    root.chmod(0o777)
    monkeypatch.setattr(permissions, "keeps_modes", lambda root: False)
    warning = require_private(root)
    assert warning.startswith("WARNING: everybody") and "WSL" in warning


def test_what_grading_keeps_is_shared_exactly_where_the_root_is(root: Path) -> None:
    def modes() -> list[int]:
        class_seed(root, "week3_rope")
        with run_lock(root):
            return [(root / ".autograder" / name).stat().st_mode & 0o7777 for name in (".", "seed", "lock")]

    assert modes() == [0o700, 0o600, 0o600]
    shutil.rmtree(root / ".autograder")
    root.chmod(0o2770)
    assert modes() == [0o2770, 0o660, 0o660]
