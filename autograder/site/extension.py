"""Our Sphinx extension: formulas drawn while the site is built, and scrolling boxes that the keyboard reaches."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from autograder.errors import CourseError
from autograder.site.formulas import TAG, draw

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("course", (_inline, None), (_block, None))
    app.connect("html-page-context", _for_every_reader, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_drawn(node.astext(), display=False, node=node))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula with its number outside the scrolling box, so that only the formula scrolls."""
    latex = node.astext()
    formula = _drawn(TAG.sub("", latex).strip(), display=True, node=node)
    name = number = ""
    if tag := TAG.search(latex):
        name = f' id="equation-{tag[1]}"'
        number = f'<a class="equation-number" href="#equation-{tag[1]}">({tag[1]})</a>'
    translator.body.append(
        f'<div class="equation"{name}><div class="formula" tabindex="0">{formula}</div>{number}</div>\n'
    )
    raise nodes.SkipNode


def _drawn(latex: str, display: bool, node: nodes.Node) -> str:
    try:
        return draw(latex, display)
    except CourseError as error:
        logger.warning("a formula cannot be drawn: %s", error, location=node)
        return ""


def _for_every_reader(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let the keyboard reach boxes that scroll, and give the menu's captions the heading level that ARIA requires."""
    if body := context.get("body"):
        context["body"] = body.replace("<pre>", '<pre tabindex="0">').replace(
            '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
        )
    if menu := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = menu.replace('role="heading"', 'role="heading" aria-level="2"')
