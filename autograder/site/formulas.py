"""Formulas as MathML, which browsers draw themselves, and the font for them: no script, no network."""

import logging
import re
from collections.abc import Iterable
from functools import cache
from html import unescape
from importlib.metadata import distribution
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring, tostring

from fontTools import subset
from math_core import LatexError, LatexToMathML

from autograder.errors import CourseError

LONG = 40  # characters of LaTeX; a longer inline formula may be wider than a phone
TAG = re.compile(r"\\tag\{(\d+)\}")  # the number of an equation; the converter has no place for it
RELATIONS = {"=", "≈", "→", "≤", "<"}
NAMED = re.compile(r"&(?!(?:lt|gt|amp|quot);)\w+;")  # characters whose names HTML knows and XML does not
FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
ALPHABETS = [range(0x20, 0x7F), range(0x391, 0x3D7), range(0x1D434, 0x1D468), range(0x1D6E2, 0x1D71C), [0x210E, 0x221A]]
"""What is shown and not written: letters in italics, as in ``<mi>x</mi>``, Latin and Greek, and the sign of a root."""


@cache
def draw(latex: str, display: bool) -> str:
    """Draw one formula. Raises ``CourseError`` for LaTeX that the converter does not know."""
    if "\\\\[" in latex:  # the converter would show the height as text
        raise CourseError(f"a row of a formula ends with a height, which cannot be drawn: {latex}")
    try:
        drawn = LatexToMathML(fancy_error=False).convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        raise CourseError(str(error)) from None
    drawn = drawn.replace("<mo>′</mo>", '<mo class="prime">′</mo>')  # as an exponent it is tiny in this font
    drawn = NAMED.sub(lambda entity: unescape(entity[0]), drawn)
    return drawn if display or len(latex) <= LONG else _with_breaks(drawn)


def write_font(pages: Iterable[str], target: Path) -> None:
    """Write STIX Two Math, cut down to the characters of these pages' formulas, as its licence (OFL 1.1) allows."""
    file = distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf")
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every table that it prunes
    options = subset.Options(flavor="woff", layout_features=["*"], name_IDs=["*"])  # the names hold the licence
    font = subset.load_font(str(file), options)
    wanted = {code for alphabet in ALPHABETS for code in alphabet}
    wanted |= {ord(letter) for page in pages for formula in FORMULA.findall(page) for letter in formula}
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=wanted)
    subsetter.subset(font)
    subset.save_font(font, str(target), options)


def _with_breaks(drawn: str) -> str:
    """Split a formula after each relation: a line can break between two formulas, and nowhere else."""
    sides = [Element("math")]
    for part in fromstring(drawn):
        sides[-1].append(part)
        if part.tag == "mo" and part.text in RELATIONS:
            part.set("form", "infix")  # otherwise its spacing would change at the end of a formula
            sides.append(Element("math"))
    return "".join(tostring(side, encoding="unicode") for side in sides)
