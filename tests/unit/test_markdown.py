"""Markdown in formgrader and feedback: it never becomes part of the page itself, and every rendering ends."""

import re

import pytest
from helpers import ONE_PIXEL
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.grading.plugins import markdown, page_budget

FILTERS = {
    "markdown2html": "autograder.grading.plugins.markdown.markdown2html",
    "highlight_code": "autograder.grading.plugins.code.highlight_code",
}


def page(*sources: str, **fields: object) -> str:
    cells = [new_markdown_cell(source, **fields) for source in sources]
    return HTMLExporter(filters=FILTERS).from_notebook_node(new_notebook(cells=cells))[0]


@pytest.mark.parametrize(
    "source",
    [
        "# 3f2a",
        "3f2a\n====",
        "- [ ] done\n- [x] not done",
        "text[^3f2a]\n\n[^3f2a]: a note",
        '<p id="3f2a">x</p>',
        '<label for="3f2a">x</label><input name="3f2a" value="1">',
        '<FORM action="x"><button id=3f2a>go</button></FORM>',
        '<a name="3f2a"/>',
        "<svg><a ID='3f2a'/></svg>",
        "![3f2a](https://a.b/3f2a.png)",
        "[x](javascript:3f2a)",
        "```mermaid\n</pre><script id=3f2a>alert(1)</script>\n```",
    ],
)
@pytest.mark.parametrize("of", [{"tags": ["student"]}, {"tags": ["prediction"]}, {"nbgrader": {"solution": True}}, {}])
def test_no_text_of_a_student_has_an_id_a_name_or_a_form(source: str, of: dict) -> None:
    body = page(source, metadata=of, id="x" if of else "intake-notes").split("<body")[1].split("<main")[-1].lower()
    for tag in re.findall(r"<[^>]*>", body):
        assert "3f2a" not in tag, tag
    for hook in ("<form", "<input", "<button", "<label", "<script", "fn-", "fnref"):
        assert hook not in body, body


def test_the_courses_own_text_keeps_its_html_but_no_heading_has_an_id() -> None:
    assert "<details><summary>hint</summary>text</details>" in page("<details><summary>hint</summary>text</details>")
    assert "<h2>3f2a</h2>" in page("## 3f2a")


def test_a_long_derivation_is_drawn_however_many_formulas_it_has() -> None:
    line = "With $q_m = R_m q$ and $k_n = R_n k$ the score is $a_{mn} = q^T R_{n-m} k$, by the above.\n\n"
    assert page(line * 105).count("<math") == 315
    assert "<math" not in page("\\\\[" * 3000)


def test_a_page_has_so_much_time_and_then_text_is_shown_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "PAGE_SECONDS", 0.0)
    assert "<pre># heading</pre>" in page("# heading")


def test_a_rendering_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: object, source: str) -> str:
        while True:
            pass

    monkeypatch.setattr(page_budget, "PAGE_SECONDS", 0.05)
    monkeypatch.setattr(markdown.MarkdownWithMath, "render", endless)
    assert "<pre>first</pre>" in page("first", "second") and "<pre>second</pre>" in page("first", "second")


def test_code_is_highlighted_as_long_as_the_page_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [new_code_cell("x = 1 < 2"), new_code_cell('"""a"""\n' + " \f\n" * 1500), new_code_cell("y = 3 < 4")]
    assert (
        HTMLExporter(filters=FILTERS).from_notebook_node(new_notebook(cells=cells[:1]))[0]
        == (HTMLExporter().from_notebook_node(new_notebook(cells=cells[:1]))[0])
    )
    monkeypatch.setattr(page_budget, "PAGE_SECONDS", 0.2)
    page = HTMLExporter(filters=FILTERS).from_notebook_node(new_notebook(cells=cells))[0]
    assert '<span class="o">&lt;</span>' in page and "<pre>y = 3 &lt; 4</pre>" in page


def test_a_picture_and_one_that_is_missing_break_no_page() -> None:
    pasted = {"pasted-picture-1": {"image/png": ONE_PIXEL}}
    named, lost = "![x](attachment:pasted-picture-1)", "![x](attachment:lost.png)"
    assert f"data:image/png;base64,{ONE_PIXEL}" in page(named, attachments=pasted)
    assert f"<pre>{lost}</pre>" in page(lost, attachments=pasted)
