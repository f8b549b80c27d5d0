"""Markdown in formgrader and feedback: it never becomes part of the page itself, and every rendering ends."""

import pytest
from helpers import ONE_PIXEL
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.grading.plugins import markdown, page_budget
from autograder.grading.plugins.markdown import without_hooks

FILTERS = {
    "markdown2html": "autograder.grading.plugins.markdown.markdown2html",
    "highlight_code": "autograder.grading.plugins.code.highlight_code",
}


def page(*sources: str) -> str:
    return HTMLExporter(filters=FILTERS).from_notebook_node(
        new_notebook(cells=[new_markdown_cell(s) for s in sources])
    )[0]


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
    ],
)
def test_no_text_has_an_id_a_name_or_a_form(source: str) -> None:
    body = page(source).split("<body", 1)[1].split("<main", 1)[-1]
    cleaned = without_hooks(body)
    for hook in (
        ' id="3f2a',
        " id='3f2a",
        'name="3f2a',
        'for="3f2a',
        "<form",
        "<input",
        "<button",
        "<label",
        "fn-",
        "fnref",
    ):
        assert hook not in body.lower() and hook not in cleaned.lower(), body


def test_what_is_no_hook_stays_as_it_is() -> None:
    for html in (
        '<p class="x">a &amp; b &#960; <br/> c</p>',
        "<details><summary>hint</summary>text</details>",
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><mi>x</mi></math>',
        f'<img src="data:image/png;base64,{ONE_PIXEL}" alt="a &quot;b&quot;">',
    ):
        assert without_hooks(html) == html
    for source in ("https://a.b/c.png", "data:image/svg+xml;base64,AAAA", "data:image/png;base64,AAAA"):
        assert without_hooks(f'<img src="{source}" alt="a <b>">') == "a &lt;b&gt;"
    assert without_hooks('<h2 id="a" class="b">c</h2>') == '<h2 class="b">c</h2>'


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
    named = new_markdown_cell("![x](attachment:pasted-picture-1)", attachments=pasted)
    lost = new_markdown_cell("![x](attachment:lost.png)", attachments=pasted)
    first, second = (
        HTMLExporter(filters=FILTERS).from_notebook_node(new_notebook(cells=[cell]))[0] for cell in (named, lost)
    )
    assert f"data:image/png;base64,{ONE_PIXEL}" in first and "<pre>![x](attachment:lost.png)</pre>" in second
