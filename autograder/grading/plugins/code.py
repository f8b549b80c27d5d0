"""Code in formgrader, feedback and the report. Cells are highlighted as nbconvert does it, with a limit.

The patterns by which Python is read can be made to take time with the square of a text's length, and there is no list of
the texts that do: blank lines are one kind, of any of the characters that count as blank.
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
    """nbconvert's filter of this name. What takes too long to highlight is shown as it was written."""
    found = within_budget(context.get("resources", {}), lambda: _highlighted(source, language, metadata))
    return f'<div class="highlight"><pre>{escape(source)}</pre></div>' if found is None else found


def code_in(sentence: str) -> markupsafe.Markup:
    """The sentence for a page, with what stands in backticks as code."""
    return markupsafe.Markup(
        re.sub(r"(?<!`)`(?=\S)([^`\n]*[^`\s])`(?!`)", r"<code>\1</code>", str(markupsafe.escape(sentence)))
    )
