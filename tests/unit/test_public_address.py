"""`[tool.course]`: the address from which badges and links are made."""

from pathlib import Path

import pytest
from helpers import COURSE

from autograder.errors import CourseError
from autograder.public_address import public_address


def setting(folder: Path, address: str, branch: str = "main") -> Path:
    folder.joinpath("pyproject.toml").write_text(
        f'[tool.course]\npublic_address = "{address}"\npublic_branch = "{branch}"\n', encoding="utf-8"
    )
    return folder


def test_the_course_as_it_is_has_a_setting_that_can_be_read() -> None:
    public_address(COURSE)


def test_without_a_setting_there_are_no_addresses(tmp_path: Path) -> None:
    for place in (public_address(tmp_path), public_address(setting(tmp_path, ""))):
        assert not place
        assert place.page("x.ipynb") == place.raw("x.ipynb") == place.colab("x.ipynb") == ""


def test_github_gives_pages_files_and_colab(tmp_path: Path) -> None:
    place = public_address(setting(tmp_path, "https://github.com/ada/course.git/", "autumn"))
    assert place.page("a/b.ipynb") == "https://github.com/ada/course/blob/autumn/a/b.ipynb"
    assert place.raw("a/lab.py") == "https://raw.githubusercontent.com/ada/course/autumn/a/lab.py"
    assert place.colab("a/b.ipynb") == "https://colab.research.google.com/github/ada/course/blob/autumn/a/b.ipynb"


def test_another_host_has_pages_and_no_colab(tmp_path: Path) -> None:
    place = public_address(setting(tmp_path, "https://git.example.org/ada/course"))
    assert place
    assert place.colab("b.ipynb") == place.raw("b.ipynb") == ""


@pytest.mark.parametrize("address", ["github.com/ada/course", "https://github.com/ada/cou rse", "javascript:alert(1)"])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(CourseError, match="public_address"):
        public_address(setting(tmp_path, address))
