"""Markdown cells in formgrader and feedback: with formulas, a time limit, and nothing that interferes with the page.

formgrader finds its score boxes by id, and the first match wins: a heading, which Markdown gives an id, could pose as
another exercise's box. So no heading gets one, no list gets boxes to tick, and a student's HTML is shown as text (which
intake has broken already).
"""

from html import escape

from jinja2 import pass_context
from jinja2.runtime import Context
from mistune.plugins import import_plugin
from nbconvert.filters.markdown_mistune import InvalidNotebook, MarkdownWithMath
from nbformat.notebooknode import NotebookNode

from autograder.grading.plugins.mathml import MathRenderer
from autograder.grading.plugins.page_budget import within_budget

PLUGINS = [import_plugin(name) for name in MarkdownWithMath.DEFAULT_PLUGINS if name != "task_lists"]


@pass_context
def markdown2html(context: Context, source: str) -> str:
    """Replace nbconvert's filter of this name. Text that takes too long to render is shown as it was written."""
    cell = context.get("cell", NotebookNode(metadata={}))

    def rendered() -> str:
        renderer = MathRenderer(
            escape=_is_students(cell),
            allow_harmful_protocols=False,
            exclude_anchor_links=True,
            attachments=cell.get("attachments", {}),
        )
        return str(MarkdownWithMath(renderer=renderer, plugins=PLUGINS).render(source))

    try:
        found = within_budget(context.get("resources", {}), rendered)
    except InvalidNotebook:  # a picture is missing
        found = None
    return f"<pre>{escape(source)}</pre>" if found is None else found


def _is_students(cell: NotebookNode) -> bool:
    """Whether a student wrote the cell, or something in it."""
    if cell.get("id") in ("intake-notes", "ungradable"):
        return True
    tags, marks = cell.metadata.get("tags", []), cell.metadata.get("nbgrader", {})
    return "student" in tags or "prediction" in tags or bool(marks.get("solution"))
