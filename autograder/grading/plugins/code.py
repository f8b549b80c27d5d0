"""Code in formgrader, feedback and the report. Cells are highlighted as in nbconvert, with a time limit.

The highlighter's patterns take quadratic time on some texts, such as runs of blank lines made of any white space. These
texts cannot all be listed, so only a limit helps.
"""

import re
from html import escape
from typing import Any

import markupsafe
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.filters.highlight import Highlight2HTML

from autograder.grading.plugins.page_budget import within_budget

_highlighted = Highlight2HTML(pygments_lexer="ipython3")


@pass_context
def highlight_code(
    context: Context, source: str, language: str | None = None, metadata: dict[str, Any] | None = None
) -> str:
    """Replace nbconvert's filter of this name. Code that takes too long to highlight is shown as it was written."""
    found = within_budget(context.get("resources", {}), lambda: _highlighted(source, language, metadata))
    return f'<div class="highlight"><pre>{escape(source)}</pre></div>' if found is None else found


def code_in(sentence: str) -> markupsafe.Markup:
    """Return the sentence as HTML, with text in backticks as code."""
    return markupsafe.Markup(
        re.sub(r"(?<!`)`(?=\S)([^`\n]*[^`\s])`(?!`)", r"<code>\1</code>", str(markupsafe.escape(sentence)))
    )
