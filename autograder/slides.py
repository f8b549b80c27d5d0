"""`make slides WEEK=3`: a lecture made from a week's text, for reveal.js."""

import shutil
from importlib.metadata import distribution
from pathlib import Path

from jinja2 import pass_context
from mistune import HTMLRenderer
from nbconvert.exporters.slides import SlidesExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import v4

from autograder.course import is_week
from autograder.errors import CourseError
from autograder.lecture import choose
from autograder.pages import TEMPLATES
from autograder.site.formulas import TAG, draw, write_font
from autograder.site.week import read_week

REVEAL = ("dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js", "LICENSE")


def write_slides(root: Path, assignment: str, target: Path) -> tuple[Path, int]:
    """Write the complete folder ASSIGNMENT below ``target``; returns its page and the number of slides."""
    reveal = Path(str(distribution("sphinx-revealjs").locate_file("sphinx_revealjs/_static/revealjs")))
    if not is_week(assignment):
        raise CourseError(f"{assignment} has no text to make slides of: they are made of the course's weeks")
    if not (root / "notebooks" / assignment).is_dir() or not (root / "solutions" / assignment).is_dir():
        raise CourseError(f"the notebooks of {assignment} are missing: run `make build WEEK={assignment}`")
    week = read_week(root, assignment)
    slides = choose(week)
    notebook = v4.new_notebook(cells=[cell for slide in slides for cell in slide.cells()])
    notebook.metadata.title = f"Week {week.number} · {week.title}"
    exporter = _Exporter(template_name="slides", extra_template_basedirs=[str(TEMPLATES)])  # type: ignore[no-untyped-call]
    page, _ = exporter.from_notebook_node(notebook)
    folder = target / assignment
    shutil.rmtree(folder, ignore_errors=True)
    for name in REVEAL:
        (folder / "reveal" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(reveal / name, folder / "reveal" / name)
    (folder / "index.html").write_text(page, encoding="utf-8")
    write_font([page], folder / "math.woff")
    return folder / "index.html", len(slides)


class _Renderer(IPythonRenderer):
    """Draws formulas while the page is written, so that showing them needs no script or network."""

    block_code = HTMLRenderer.block_code

    def block_math(self, body: str) -> str:
        return draw(TAG.sub(r"\\qquad(\1)", body).strip(), display=True)

    def inline_math(self, body: str) -> str:
        return draw(body, display=False)


class _Exporter(SlidesExporter):
    @pass_context
    def markdown2html(self, context: object, source: str) -> str:
        return str(MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source))
