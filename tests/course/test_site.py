"""The site of the course has the same bytes every time, a limited size, and nothing that students may not see."""

import ast
import html
import re
import zipfile
from pathlib import Path

import nbformat
import pytest
from course.weeks import WEEKS, secret_lines
from helpers import COURSE

from autograder.manifest import RELEASED_FILES
from autograder.site.build import build_site


def files(site: Path) -> dict[str, bytes]:
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def shown_of_kernels() -> set[str]:
    """Return the lines of the reference kernels' signatures and docstrings, which the site shows."""
    shown: set[str] = set()
    for path in (COURSE / "autograder" / "reference").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
                shown |= {line.strip() for line in (ast.get_docstring(node) or "").splitlines()}
            if isinstance(node, ast.FunctionDef):
                shown |= {line.strip() for line in source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1]}
    return shown


@pytest.fixture(scope="module")
def words(site: Path) -> str:
    """All text of the site and its downloads, without markup and with blanks collapsed."""
    pages = [
        html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))) for path in sorted(site.rglob("*.html"))
    ]
    for path in sorted(site.glob("downloads/*.zip")):
        with zipfile.ZipFile(path) as archive:
            pages += [archive.read(name).decode("utf-8", "replace") for name in archive.namelist()]
    return " ".join("\n".join([*pages, (site / "searchindex.js").read_text(encoding="utf-8")]).split())


def test_no_line_of_a_solution_a_hidden_test_or_a_mark_scheme(words: str) -> None:
    secrets = {line for text in WEEKS for line in secret_lines(text)} - shown_of_kernels()
    notebooks = [nbformat.read(path, as_version=4) for path in sorted((COURSE / "notebooks").glob("week*/*.ipynb"))]
    public = "\n".join(cell.source for notebook in notebooks for cell in notebook.cells)
    public += "\n".join(path.read_text(encoding="utf-8") for path in (COURSE / "docs").glob("*.md"))
    public = public.replace("**", "")  # the words are the same, and the site shows no asterisks
    assert len(secrets) > 2000
    assert [line for line in secrets if " ".join(line.split()) in words and line not in public] == []


def test_no_marks_of_an_instructors_notebook(site: Path) -> None:
    for path in (
        *site.glob("weeks/*.html"),
        *site.glob("methods/*.html"),
        site / "index.html",
        site / "reference.html",
    ):
        content = path.read_text(encoding="utf-8")
        for secret in ("### BEGIN", "### END", "MARK SCHEME", "autograder.checks", "misconceptions"):
            assert secret not in content, (path, secret)


def test_files_with_ready_blocks_are_not_on_the_site(site: Path) -> None:
    ready = {name for names in RELEASED_FILES.values() for name in names if name.startswith("ready_")}
    assert ready
    assert not ready & {path.name for path in site.rglob("*")}
    for text in WEEKS:
        with zipfile.ZipFile(site / "downloads" / f"{text.stem}.zip") as archive:
            names = {name.rpartition("/")[2] for name in archive.namelist()}
        assert {f"{text.stem}.ipynb", "lab.py", "README.md", "requirements.txt"} <= names
        assert names >= set(RELEASED_FILES.get(text.stem, ())) - ready
        assert not names & ready


def test_a_weeks_page_is_below_three_megabytes(site: Path) -> None:
    for text in WEEKS:
        page = site / "weeks" / f"{text.stem}.html"
        content = page.read_text(encoding="utf-8")
        parts = {page, *((page.parent / name).resolve() for name in re.findall(r'src="(\.\./[^"?]+)', content))}
        assert sum(part.stat().st_size for part in parts) < 3_000_000, page.name


@pytest.mark.nightly
def test_twice_gives_the_same_bytes(site: Path, tmp_path: Path) -> None:
    again = files(build_site(COURSE, tmp_path))
    first = files(site)
    assert first.keys() == again.keys()
    assert [name for name in first if first[name] != again[name]] == []
