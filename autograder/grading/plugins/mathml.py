"""Formulas as MathML, which browsers draw without MathJax and so without a network.

Students write formulas too. So the output of latex2mathml is written anew, with known attributes only and all text
escaped (its own writer undoes the escaping of ``<``).
"""

import re
import unicodedata
from html import escape, unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import Converter
from mistune import HTMLRenderer
from nbconvert.filters.markdown_mistune import IPythonRenderer

LONGEST = 5000  # characters; nobody writes a longer formula by hand
MACROS = re.compile(r"\\(def|newcommand|renewcommand)\b")  # a few short nested ones can fill the memory
ATTRIBUTES = re.compile(
    r"xmlns|display(style)?|scriptlevel|math(variant|color)|stretchy|fence|form|accent|movablelimits|linebreak|notation"
    r"|[lr]space|width|height|depth|(row|column)(align|lines|spacing)|linethickness|(min|max)size"
)
# Words, colours, and lengths of a few centimetres, or half an em to the left: a formula must not cover anything else.
PLAIN = re.compile(
    r"[A-Za-z-]+|#[0-9A-Fa-f]{3,6}|-0?\.[0-4]\d*em|\+?(1?\d?(\.\d+)?(em|ex|cm)?|\d{0,2}(\.\d+)?(mm|pt|px|mu|%))"
    r"|http://www\.w3\.org/1998/Math/MathML"
)


def to_mathml(latex: str, display: str) -> str:
    """Return a formula as MathML, or its LaTeX as text if it cannot be drawn."""
    if len(latex) > LONGEST or MACROS.search(latex):
        return _as_text(latex)
    try:
        formula = Converter(display=display).convert_to_element(latex.replace("{aligned}", "{align*}"))
        for element in formula.iter():
            _clean(element)
        return tostring(formula, encoding="unicode")
    except Exception:  # latex2mathml has a dozen errors of its own, and deep nesting ends in a RecursionError
        return _as_text(latex)


class MathRenderer(IPythonRenderer):
    """nbconvert's renderer of Markdown, with formulas as MathML, and Mermaid's diagrams as code: it would copy their HTML."""

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """Leave only the words of a student's picture from the web: loading it would report who reads the page."""
        is_shown = url.startswith("attachment:") or not self._escape
        return str(super().image(text, url, title)) if is_shown else text

    def block_mermaidjs(self, code: str) -> str:
        return HTMLRenderer.block_code(self, code)

    def block_math(self, body: str) -> str:
        return to_mathml(body, "block")

    def inline_math(self, body: str) -> str:
        return to_mathml(body, "inline")

    def latex_environment(self, name: str, body: str) -> str:
        return to_mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


def _as_text(latex: str) -> str:
    return f"<code>{escape(latex)}</code>"


def _clean(element: Element) -> None:
    text = unescape(element.text or "").replace(r"\_", "_")
    element.text = _in_style(text, element.get("mathvariant", ""))
    for name, value in list(element.attrib.items()):
        if not (ATTRIBUTES.fullmatch(name) and all(map(PLAIN.fullmatch, value.split()))):
            del element.attrib[name]


def _in_style(text: str, style: str) -> str:
    """Return the text in Unicode's letters of a style, since browsers know only the ``mathvariant`` ``normal``."""
    if style in ("", "normal"):
        return text
    return "".join(_letter(character, style.upper().replace("-", " ")) for character in text)


def _letter(character: str, style: str) -> str:
    name = re.sub(r"LATIN |GREEK |LETTER ", "", unicodedata.name(character, ""))
    for candidate in (f"{style} {name}", f"MATHEMATICAL {style} {name}"):
        try:
            return unicodedata.lookup(candidate)
        except KeyError:
            continue
    return character
