"""The documents' commands: every fence is found, and either runs (`make run-docs`) or says what it needs."""

import re
from pathlib import Path

import pytest
from documents import documents, fences
from helpers import COURSE


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_every_fence_runs_or_says_why_not(document: Path) -> None:
    found = fences(document)
    assert 2 * len(found) == len(re.findall(r"^ *```", document.read_text(encoding="utf-8"), flags=re.MULTILINE))
    unclear = [fence.where for fence in found if not fence.is_understood]
    assert not unclear, f"commands, or marked as tests/documents.py says? {unclear}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_the_tests_that_marks_name_exist(document: Path) -> None:
    """A mark names the test that runs its command instead."""
    marks = " ".join(text for fence in fences(document) for text in fence.marks.values())
    assert not [name for name in re.findall(r"\btests/[\w/]+\.py", marks) if not (COURSE / name).is_file()]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_make_knows_every_target_that_is_named(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (COURSE / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", document.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named <= targets, named - targets


def test_marks_indents_and_lines_that_go_on(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\nmake a  # why\nmake \\\n  b\n```\n"
        "<!-- needs for make c: a cluster -->\n```\nmake c\nmake d\n```\n"
        "- item\n\n  <!-- needs: Windows -->\n\n  ```\n  py\n  ```\n"
        "<!-- file: x.py -->\n```python\nif x:\n    y\n```\n"
        "<!-- example: of nothing -->\nwords in between\n```python\n1\n```\n"
    )
    plain, partly, windows, file, unclear = fences(page)
    assert plain.commands == ["make a  # why", "make   b"]
    assert [partly.missing(command) for command in partly.commands] == ["a cluster", ""]
    assert windows.commands == [] and windows.text == "py\n"
    assert file.marks == {"file": "x.py"} and file.text == "if x:\n    y\n"
    assert not unclear.is_understood and unclear.line == 25
