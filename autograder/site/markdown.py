"""Blocks of Markdown as MyST reads them."""

import html

FENCE = "`" * 10  # longer than any run of backticks in what it holds


def raw(content: str) -> str:
    """HTML that Markdown leaves alone."""
    return f"{FENCE}{{raw}} html\n{content}\n{FENCE}"


def code(source: str, language: str = "python") -> str:
    return f"{FENCE}{language}\n{source}\n{FENCE}"


def folded(summary: str, content: str, kind: str) -> str:
    opening = f'<details class="fold {kind}"><summary>{html.escape(summary)}</summary>'
    return "\n\n".join([raw(opening), content, raw("</details>")])
