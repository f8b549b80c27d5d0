"""What Sphinx is taught here: formulas as MathML, and boxes that scroll within reach of the keyboard."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from autograder.grading.plugins.mathml import to_mathml

TAG = re.compile(r"\\tag\{(\d+)\}")
NOT_DRAWN = "<code>"

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("course", (_inline, None), (_block, None))
    app.connect("html-page-context", _reach_by_keyboard)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_drawn(node.astext(), "inline", node))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    latex = node.astext()
    tag = TAG.search(latex)
    formula = _drawn(TAG.sub("", latex).strip(), "block", node)
    number = f'<a class="equation-number" href="#equation-{tag[1]}">({tag[1]})</a>' if tag else ""
    name = f' id="equation-{tag[1]}"' if tag else ""
    translator.body.append(
        f'<div class="equation"{name}><div class="formula" tabindex="0">{formula}</div>{number}</div>\n'
    )
    raise nodes.SkipNode


def _drawn(latex: str, display: str, node: nodes.Node) -> str:
    formula = to_mathml(latex, display)
    if formula.startswith(NOT_DRAWN):
        logger.warning("a formula cannot be drawn: %s", latex, location=node)
    return formula


def _reach_by_keyboard(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    if body := context.get("body"):
        context["body"] = body.replace("<pre>", '<pre tabindex="0">')
