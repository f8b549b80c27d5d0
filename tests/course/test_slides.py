"""A week as slides: nothing that students may not see, and nothing that a browser would fetch from elsewhere."""

import html
import re
from pathlib import Path

import nbformat
import pytest
from course.weeks import by_week_mostly_at_night, secret_lines
from helpers import COURSE

from autograder.slides import write_slides

pytestmark = pytest.mark.slow


@by_week_mostly_at_night(3)
def test_no_secret_line_and_nothing_from_elsewhere(tmp_path: Path, text: Path) -> None:
    page, count = write_slides(COURSE, text.stem, tmp_path)
    content = page.read_text(encoding="utf-8")
    assert count > 15
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", "", content)).split())
    notebook = nbformat.read(COURSE / "notebooks" / text.stem / f"{text.stem}.ipynb", as_version=4)
    public = "\n".join(cell.source for cell in notebook.cells).replace("**", "")
    secrets = secret_lines(text)
    assert len(secrets) > 100
    assert [line for line in secrets if " ".join(line.split()) in words and line not in public] == []
    for mark in ("### BEGIN", "### END", "MARK SCHEME", "autograder.checks", "Hidden tests ("):
        assert mark not in content
    loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*? (?:src|href)=\"([^\"]{,60})", content)
    assert loaded
    for address in loaded:
        assert address.startswith("data:image/") or (page.parent / address).is_file(), address
    for sheet in (content, *(path.read_text(encoding="utf-8") for path in page.parent.rglob("*.css"))):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", sheet)
