"""Every folder that contains the assignment belongs to a student, or is named with the reason why not."""

import os
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory

from autograder.grading.submission.folders import find_submissions, why_no_name

WEEK = "week3_rope"


def course(root: Path, *names: str) -> CourseDirectory:
    for name in names:
        (root / "submitted" / name / WEEK).mkdir(parents=True)
    return CourseDirectory(root=str(root))


@pytest.mark.parametrize("name", ["Ada Lovelace", "ada_lovelace-42", "Эмми", "李", "[bold]x", "a*b", "O'Neil", "x.y"])
def test_people_are_called_so(tmp_path: Path, name: str) -> None:
    assert why_no_name(name) == "" and list(find_submissions(course(tmp_path, name), WEEK).folders) == [name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Ada\u00a0Lovelace", "no-break space"),
        ("Ada\u200bLovelace", "zero width space"),
        ("Ada\u00adLovelace", "soft hyphen"),
        ("ada\n", "U+000A"),
        ("\u202eada", "right-to-left override"),
        (".ada", "begins with a dot"),
        ("ada\x7f", "U+007F"),
        (os.fsdecode(b"\xff\xfe"), "U+DCFF"),
    ],
)
def test_what_nobody_can_be_called_is_named_with_its_reason(tmp_path: Path, name: str, said: str) -> None:
    found = find_submissions(course(tmp_path, name, "boole"), WEEK)
    assert list(found.folders) == ["boole"] and len(found.refused) == 1
    shown, reason = next(iter(found.refused.items()))
    assert said.lower() in reason.lower() and "rename it" in reason and shown.isprintable()


def test_what_systems_and_editors_leave_is_no_submission(tmp_path: Path) -> None:
    directory = course(tmp_path, "boole", ".ipynb_checkpoints", "__MACOSX")
    for name in (".DS_Store", ".gitkeep", "Thumbs.db"):
        (tmp_path / "submitted" / name).write_text("")
    (tmp_path / "submitted" / ".idea").mkdir()  # contains no assignment
    found = find_submissions(directory, WEEK)
    assert list(found.folders) == ["boole"] and not found.refused


def test_one_student_or_a_pattern(tmp_path: Path) -> None:
    directory = course(tmp_path, "ada", "adam", "[a]da")
    assert list(find_submissions(directory, WEEK, "ada").folders) == ["ada"]
    assert list(find_submissions(directory, WEEK, "ada*").folders) == ["ada", "adam"]
    assert "[a]da" in find_submissions(directory, WEEK, "[a]da").folders


@pytest.mark.parametrize(
    "name", ["Week3_RoPE", "week3.zip", "week3-rope", "Week 3 RoPE", "week3_rope (1)", "week3", "week3_rope.ipynb"]
)
def test_what_lies_under_nearly_the_right_name_is_named(tmp_path: Path, name: str) -> None:
    directory = course(tmp_path, "boole")
    place = tmp_path / "submitted" / "ada" / name
    (place.parent if "." in name else place).mkdir(parents=True)
    place.touch()
    found = find_submissions(directory, WEEK)
    assert list(found.folders) == ["boole"] and list(found.misnamed) == [f"ada/{name}"]
    remedy = {".ipynb": "move it into", ".zip": "unpack it into"}.get(place.suffix, "has to be called")
    assert remedy in found.misnamed[f"ada/{name}"] and not find_submissions(directory, WEEK, "boole").misnamed


def test_a_folder_of_any_name_that_holds_the_notebook_is_named(tmp_path: Path) -> None:
    directory = course(tmp_path, "boole")
    for student in ("ada", "boole"):
        (tmp_path / "submitted" / student / "RoPE").mkdir(parents=True)
        (tmp_path / "submitted" / student / "RoPE" / f"{WEEK}.ipynb").touch()
    assert list(find_submissions(directory, WEEK).misnamed) == ["ada/RoPE"]  # boole has handed in where it belongs


@pytest.mark.parametrize("name", ["week4_alibi", "week3_rope_extra", "notes", "week", "w", "___", "Week 13"])
def test_other_folders_are_not_named(tmp_path: Path, name: str) -> None:
    directory = course(tmp_path, "boole")
    (tmp_path / "source" / "week3_rope_extra").mkdir(parents=True)  # the instructor's own assignment
    (tmp_path / "submitted" / "boole" / name).mkdir()
    (tmp_path / "submitted" / "README").write_text("")
    assert not find_submissions(directory, WEEK).misnamed


def test_what_has_no_students_folder_around_it_is_named(tmp_path: Path) -> None:
    directory = course(tmp_path, "boole")
    (tmp_path / "submitted" / WEEK / "ada").mkdir(parents=True)
    (tmp_path / "submitted" / "cantor.ipynb").write_text("")
    (tmp_path / "submitted" / "dirac.zip").write_text("")
    found = find_submissions(directory, WEEK).misnamed
    assert found == {
        f"{WEEK}/ada": f"move it to submitted/ada/{WEEK}",
        "cantor.ipynb": f"move it to submitted/STUDENT/{WEEK}/, if it is of this week",
        "dirac.zip": f"unpack it into submitted/STUDENT/{WEEK}/, if it is of this week",
    }
    assert not find_submissions(directory, WEEK, "boole").misnamed
