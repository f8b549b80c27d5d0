"""All scripts parse in strict mode, so a missing bracket fails here and not first in a reader's browser."""

from pathlib import Path

import pytest
from helpers import COURSE, load_lab
from playwright.sync_api import Error, Page

from autograder.build.pipeline import copy_released
from autograder.errors import CourseError

SCRIPTS = [*COURSE.glob("source/*_pictures/*.js"), *COURSE.glob("autograder/site/static/*.js")]


def parse(page: Page, script: str) -> None:
    page.evaluate("script => { new Function(script); }", f'"use strict";\n{script}')


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_parses(page: Page, path: Path) -> None:
    parse(page, path.read_text(encoding="utf-8"))
    with pytest.raises(Error, match="SyntaxError"):
        parse(page, path.read_text(encoding="utf-8") + "\n}")


@pytest.mark.parametrize("name", ["lab", "serving_lab"])
def test_students_get_one_file_with_the_scripts_in_it(tmp_path: Path, name: str) -> None:
    copy_released(COURSE / "source" / f"{name}.py", tmp_path / f"{name}.py")
    text = (tmp_path / f"{name}.py").read_text(encoding="utf-8")
    compile(text, name, "exec")
    assert "with_name(" not in text
    for path in (COURSE / "source" / f"{name}_pictures").iterdir():
        assert f'"{path.stem}": r"""\n{path.read_text(encoding="utf-8")}"""' in text


def test_a_helper_without_its_scripts_is_not_released(tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_bytes((COURSE / "source" / "lab.py").read_bytes())
    with pytest.raises(CourseError, match="source/lab_pictures/ has no scripts"):
        copy_released(tmp_path / "lab.py", tmp_path / "copy.py")


def test_the_names_in_the_page_are_filled_in(page: Page) -> None:
    script = load_lab().moving_score().html.partition("<script>")[2].removesuffix("</script>")
    parse(page, script)
    assert not any(word in script for word in ("PICTURE", "NAME", "DATA;"))
