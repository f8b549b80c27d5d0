"""Formulas are drawn without a network, and nothing that a student writes in one becomes markup."""

import json
import re
from xml.etree import ElementTree

import pytest
from helpers import COURSE, ONE_PIXEL
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_markdown_cell, new_notebook

from autograder.grading.plugins.mathml import to_mathml

FILTERS = {"markdown2html": "autograder.grading.plugins.markdown.markdown2html"}
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)


def page(text: str, **attachments: dict) -> str:
    cell = new_markdown_cell(text, **({"attachments": attachments} if attachments else {}))
    return HTMLExporter(template_name="basic", filters=FILTERS).from_notebook_node(new_notebook(cells=[cell]))[0]


@pytest.mark.parametrize("path", sorted(COURSE.glob("source/week*/*.ipynb")), ids=lambda path: path.stem)
def test_every_formula_of_the_course_is_drawn(path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    formulas = [block or inline for block, inline in FORMULA.findall(text)]
    assert len(formulas) > 10  # they were found at all
    for latex in formulas:
        assert to_mathml(latex, "inline").startswith("<math"), latex


def test_styles_that_browsers_do_not_know_are_letters() -> None:
    assert "ℝ" in to_mathml(r"\mathbb{R}", "inline")
    assert "𝐑" in to_mathml(r"\mathbf{R}", "inline") and "𝜽" in to_mathml(r"\boldsymbol{\theta}", "inline")
    assert "𝚑_𝚡" in "".join(ElementTree.fromstring(to_mathml(r"\mathtt{h\_x}", "inline")).itertext())


def test_lines_of_a_derivation_stand_below_each_other() -> None:
    assert to_mathml(r"\begin{aligned}a&=b\\c&=d\end{aligned}", "block").count("<mtr>") == 2


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{&lt;script&gt;alert(1)&lt;/script&gt;}",
        r"\text{<script>alert(1)</script>}",
        r"\href{javascript:alert(1)}{x}",
        r"\style{position:fixed}{x}",
        r"\class{score}{x}",
        r"\textcolor{red\" onclick=alert(1)}{x}",
        r"\text{&#60;img src=x&#62;}",
    ],
)
def test_nothing_in_a_formula_becomes_markup(latex: str) -> None:
    found = list(ElementTree.fromstring(to_mathml(latex, "inline")).iter())
    assert {re.sub(r"\{.*\}", "", element.tag) for element in found} <= {
        "math",
        "mrow",
        "mi",
        "mo",
        "mn",
        "mtext",
        "mstyle",
    }
    assert not {"href", "style", "class", "onclick"} & {name for element in found for name in element.attrib}


@pytest.mark.parametrize(
    "latex",
    [r"\frac{1}{", "{" * 2000, "x" * 100_000, r"\newcommand{\a}{\b\b}\newcommand{\b}{<b>}\a", r"\def\a{\a\a}\a"],
)
def test_what_cannot_be_drawn_is_shown_as_text(latex: str) -> None:
    shown = to_mathml(latex, "inline")
    assert shown.startswith("<code>") and "<b>" not in shown


def test_the_page_has_formulas_and_pasted_pictures() -> None:
    shown = page(
        "Since $a<b$ and\n\n\\begin{align}a&=b\\end{align}\n\n![p](attachment:p.png)",
        **{"p.png": {"image/png": ONE_PIXEL}},
    )
    assert shown.count("<math") == 2
    assert f"data:image/png;base64,{ONE_PIXEL}" in shown


@pytest.mark.parametrize(
    "latex",
    [r"\hspace{-9999em}x", r"\rule{9999em}{9999em}", r"\raise{99em}{x}", r"\hspace{-3em}x", r"\hspace{99999pt}x"],
)
def test_a_formula_stays_in_its_place(latex: str) -> None:
    assert not re.search(r'"-?(?:99|3em)', to_mathml(latex, "inline"))


def test_usual_spaces_are_kept() -> None:
    assert 'width="1em"' in to_mathml(r"a\quad b", "inline") and 'width="-' not in to_mathml(
        r"a\hspace{-9em}b", "inline"
    )
    assert 'width="2cm"' in to_mathml(r"a\hspace{2cm}b", "inline")
