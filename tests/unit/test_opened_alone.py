"""A released notebook without its folder fetches its files or names them; only courses with an address have badges."""

import subprocess
import sys
from pathlib import Path

import pytest

from autograder.build.opened_alone import look_for_files, update_readme
from autograder.manifest import MANIFEST, SHARED_FILES
from autograder.public_address import PublicAddress

WEEK5 = "week5_extrapolation"
PLACE = PublicAddress("https://github.com/ada/course")


def run(source: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, check=False)


def test_missing_files_are_named_in_one_sentence(tmp_path: Path) -> None:
    done = run(look_for_files(WEEK5, PublicAddress()), tmp_path)
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("FileNotFoundError: put lab.py, simulated_device.py, ready_encodings.py, week5_results.json")


def test_nothing_is_said_where_all_are_there(tmp_path: Path) -> None:
    for name in SHARED_FILES:
        (tmp_path / name).touch()
    assert run(look_for_files("week3_rope", PublicAddress()), tmp_path).returncode == 0


def test_with_an_address_they_are_fetched(tmp_path: Path) -> None:
    source = look_for_files("week3_rope", PLACE)
    address = "https://raw.githubusercontent.com/ada/course/main/notebooks/week3_rope"
    assert f'"{address}/{{_file}}"' in source
    served = tmp_path / "served"
    served.mkdir()
    for name in SHARED_FILES:
        (served / name).write_text("x = 1")
    done = run(source.replace(address, served.as_uri()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / name).read_text() for name in SHARED_FILES] == ["x = 1"] * 2


def test_no_answer_can_come_to_rest_on_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SHARED_FILES:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for place in (PublicAddress(), PLACE):
        names: dict[str, object] = {}
        exec(look_for_files("week3_rope", place), names)
        assert not [name for name in names if not name.startswith("_")]


def test_badges_in_the_readme_come_and_go_with_the_address(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    empty = "a\n<!-- badges: made -->\n<!-- end of badges -->\nb\n"
    readme.write_text(empty)
    assert not update_readme(tmp_path)
    setting = tmp_path / "pyproject.toml"
    setting.write_text('[tool.course]\npublic_address = "https://github.com/ada/course"\n')
    assert update_readme(tmp_path) and not update_readme(tmp_path)
    assert (
        readme.read_text().count("Open in Colab") == len(MANIFEST)
        and "/main/notebooks/week3_rope/week3_rope.ipynb)" in readme.read_text()
    )
    setting.write_text('[tool.course]\npublic_address = ""\n')
    assert update_readme(tmp_path) and readme.read_text() == empty
