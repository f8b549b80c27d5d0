"""Formulas as HTML and MathML, drawn by KaTeX while the site is built: readers need no script and no network for them."""

import json
from functools import cache
from pathlib import Path

import quickjs

from autograder.errors import CourseError

KATEX = Path(__file__).parent / "katex" / "katex.min.js"


@cache
def draw(latex: str, display: bool) -> str:
    """One formula. Raises ``CourseError`` for what KaTeX does not know, and for what is not LaTeX's own."""
    options = {"displayMode": display, "throwOnError": True, "strict": "error"}
    try:
        drawn: str = _katex().eval(f"katex.renderToString({json.dumps(latex)}, {json.dumps(options)})")
    except quickjs.JSException as error:
        raise CourseError(str(error).partition("\n")[0]) from None
    return drawn


@cache
def _katex() -> quickjs.Context:
    context = quickjs.Context()
    context.eval(KATEX.read_text(encoding="utf-8"))
    return context
