"""Markdown cells in formgrader and feedback: with formulas, a time limit, and nothing that interferes with the page.

formgrader finds its score boxes by id, and the first match wins: a heading, which Markdown gives an id, could pose as
another exercise's box. So no text keeps an id, a name, a label or a form.
"""

from html import escape
from html.parser import HTMLParser

from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.filters.markdown_mistune import InvalidNotebook, MarkdownWithMath

from autograder.grading.pictures import decoded_picture
from autograder.grading.plugins.mathml import MathRenderer
from autograder.grading.plugins.page_budget import within_budget

FORBIDDEN_ATTRIBUTES = frozenset({"id", "name", "for", "form", "usemap", "aria-labelledby", "aria-describedby"})
FORBIDDEN_TAGS = frozenset(
    {
        "form",
        "input",
        "button",
        "select",
        "option",
        "optgroup",
        "textarea",
        "label",
        "fieldset",
        "legend",
        "output",
        "datalist",
        "meter",
        "progress",
        "map",
        "area",
    }
)


@pass_context
def markdown2html(context: Context, source: str) -> str:
    """Replace nbconvert's filter of this name. Text that takes too long to render is shown as it was written."""
    attachments = context.get("cell", {}).get("attachments", {})

    def rendered() -> str:
        renderer = MathRenderer(escape=False, attachments=attachments)
        return without_hooks(MarkdownWithMath(renderer=renderer).render(source))

    try:
        found = within_budget(context.get("resources", {}), rendered)
    except InvalidNotebook:  # a picture is missing
        found = None
    return f"<pre>{escape(source)}</pre>" if found is None else found


def without_hooks(html: str) -> str:
    """Return the HTML without anything that a page's scripts, links or forms could refer to."""
    cleaner = _Cleaner()
    cleaner.feed(html)
    cleaner.close()
    return "".join(cleaner.parts)


class _Cleaner(HTMLParser):
    """Copies HTML without the forbidden tags and attributes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in FORBIDDEN_TAGS:
            return
        if tag == "img" and not _is_picture(dict(attrs)):
            self.parts.append(escape(dict(attrs).get("alt") or ""))
            return
        text = self.get_starttag_text() or ""
        if any(name in FORBIDDEN_ATTRIBUTES for name, _ in attrs):
            kept = [
                name if value is None else f'{name}="{escape(value)}"'
                for name, value in attrs
                if name not in FORBIDDEN_ATTRIBUTES
            ]
            text = f"<{' '.join([tag, *kept])}{' /' if text.endswith('/>') else ''}>"
        self.parts.append(text)

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        if tag not in FORBIDDEN_TAGS:
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.parts.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.parts.append(f"&#{name};")


def _is_picture(attributes: dict[str, str | None]) -> bool:
    """Whether a browser can draw the picture from the page alone: one from the web would report who reads the page."""
    kind, _, data = (attributes.get("src") or "").removeprefix("data:").partition(";base64,")
    return decoded_picture(data, kind) is not None and "srcset" not in attributes
