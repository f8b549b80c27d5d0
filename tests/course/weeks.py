"""The course's weeks, and the lines in them that no student may see."""

import re
from pathlib import Path

import pytest
from helpers import COURSE

from autograder import misconceptions, reference
from autograder.build.pipeline import texts
from autograder.build.regions import replace_region

WEEKS = texts(COURSE)
by_week = pytest.mark.parametrize("text", WEEKS, ids=lambda path: path.stem)


def by_week_mostly_at_night(always: int) -> pytest.MarkDecorator:
    at_night = [pytest.param(text, marks=pytest.mark.nightly) for text in WEEKS]
    texts = [*at_night[: always - 1], WEEKS[always - 1], *at_night[always:]]
    return pytest.mark.parametrize("text", texts, ids=lambda path: path.stem)


def secret_lines(text: Path) -> set[str]:
    """Return recognisably long lines of code of solutions, mark schemes, references, checks and misconceptions."""
    source = text.read_text(encoding="utf-8")
    regions = re.findall(r"BEGIN (?:SOLUTION|MARK SCHEME|HIDDEN TESTS)\n(.*?)\n[^\n]*END ", source, flags=re.DOTALL)
    public, _ = replace_region(source, "SOLUTION")
    public, _ = replace_region(public, "MARK SCHEME")
    public, _ = replace_region(public, "HIDDEN TESTS")
    week = text.stem.split("_")[0]
    folders = [Path(reference.__file__).parent, Path(misconceptions.__file__).parent]
    code = [
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in folder.glob("*.py")
        if folder.name == "reference" or path.stem >= week
    ]
    lines = {line.strip(" #") for block in regions + code for line in block.splitlines()}
    telling = {
        line for line in lines if len(line) > 45 and not line.startswith(('"""', "from ", "import ", "class ", "def "))
    }
    return {line for line in telling if line not in public}
