"""Chooses by rule which parts of a week's text a lecture shows, and which its speaker says.

A heading opens a slide. The slide shows the opening paragraph, paragraphs that begin in bold or lead to a formula,
formulas, lists, tables, predictions, and the experiments' results with their captions. All other paragraphs are speaker
notes. A slide shows only the first sentences of a long paragraph; the notes have all of it. The source is the students'
notebook, without solutions. Cell tags override the rule: `skip`, `notes` (all of it), `slide` (its own slide, in full).
"""

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbformat import v4
from nbformat.notebooknode import NotebookNode

from autograder.build.text import AFTER
from autograder.course import Role, role_of
from autograder.site.pictures import EMBEDDED
from autograder.site.week import Week, split_at_headings
from autograder.site.week_page import YOUR_PREDICTION

LEFT_OUT = re.compile(r"The exercises|Conventions|Exercise \d|(\d+ · )?Test yourself|Ask yourself|References")
HEADING = re.compile(r"^(?P<marks>#{1,3}) (?P<title>.+)$")
# A block that must not be cut: a formula, a fold or a listing may contain blank lines.
BLOCK = re.compile(
    r"\s*(?:```.*?^```|\$\$.*?\$\$[^\n]*|<details>.*?</details>|.+?)(?=\n\s*\n|\s*\Z)", re.DOTALL | re.MULTILINE
)
ANSWER = re.compile(
    rf"<details><summary>(?:{'|'.join(AFTER)})</summary>\s*(?P<text>.*?)\s*</details>", re.DOTALL
)  # the answer to a prediction goes into the speaker's notes
SENTENCE_END = re.compile(r"(?<=[.?!:])\**\s+(?=[A-Z*$`\"(])")
FORMULA = re.compile(r"\$[^$]+\$")
LIST_ITEM = re.compile(r"^(?:[-*]|\d+\.) ", re.MULTILINE)
WORDS, WORDS_OF_ITEM = 45, 30  # shown of a paragraph and of a list item; whole sentences, at least one
WORDS_PER_LINE = 16
LINES = 15  # of a slide below its heading; the page shrinks what is slightly too tall
LINES_OF_RESULTS = 18  # of a slide with a picture and its table, which belong together and shrink to fit
LINES_OF_FORMULA, LINES_OF_MOVING_PICTURE = 3, 12
PIXELS_PER_LINE, WIDEST_PICTURE, HIGHEST_PICTURE = 38, 1168, 500  # as in the template's styles


@dataclass
class Slide:
    """The content of one slide, and its speaker notes."""

    heading: str
    opens_section: bool
    shown: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: float = 0
    asks: bool = False
    answers: bool = False  # whether it shows results of an experiment

    def cells(self) -> Iterator[NotebookNode]:
        """The slide's cells, with the metadata that tells nbconvert where a slide begins."""
        kind = "slide" if self.opens_section else "subslide"
        yield v4.new_markdown_cell(self.heading, metadata={"slideshow": {"slide_type": kind}})
        yield from self.shown
        if self.notes:
            yield v4.new_markdown_cell("\n\n".join(self.notes), metadata={"slideshow": {"slide_type": "notes"}})


def choose(week: Week) -> list[Slide]:
    """The slides of a week, by the rule and the tags."""
    lecture = _Lecture()
    for cell, below in zip(week.cells, [*week.cells[1:], None], strict=True):
        tags = cell.metadata.get("tags", [])
        if "skip" in tags:
            continue
        match role_of(cell):
            case Role.EXPERIMENT:
                lecture.results(week.results.get(cell.id, ()))
            case Role.PREDICTION:
                lecture.question(YOUR_PREDICTION.sub("", cell.source).strip())
            # Text right above an answer cell belongs to the exercise, and so do cells that nbgrader locks.
            case Role.TEXT if not cell.metadata.get("nbgrader"):
                asks = below is not None and role_of(below) is Role.ANSWER and not HEADING.match(cell.source)
                if not asks:
                    lecture.text(cell.source, tags)
    return lecture.slides()


class _Lecture:
    """Collects slides, cell by cell."""

    def __init__(self) -> None:
        self._slides: list[Slide] = []
        self._left_out = False  # whether we are below a heading that a lecture leaves out
        self._pictured: Slide | None = None  # still needs its caption, which comes after the experiment's tables

    def slides(self) -> list[Slide]:
        """The slides that show something; the notes of the others go to the slide before."""
        kept: list[Slide] = []
        opens_section = False
        for slide in self._slides:
            opens_section |= slide.opens_section
            if slide.shown or not kept:
                slide.opens_section, opens_section = opens_section, False
                kept.append(slide)
            else:
                kept[-1].notes += slide.notes
        return kept

    def text(self, source: str, tags: list[str]) -> None:
        if "slide" in tags and not HEADING.match(source):
            self._go_on()
        for title, piece in split_at_headings(source):
            if title:
                self._left_out = LEFT_OUT.match(title) is not None
            if not self._left_out:
                self._piece(piece, tags)
            elif title.startswith("Exercise"):
                self._slides[-1].notes.append(f"*Now {title[0].lower()}{title[1:]}.*")
        if "\n### Exercise" in f"\n{source}":  # the next cell belongs to the section again
            self._left_out = False

    def _piece(self, piece: str, tags: list[str]) -> None:
        blocks = [found[0].strip() for found in BLOCK.finditer(piece) if found[0].strip()]
        for block, below in zip(blocks, [*blocks[1:], ""], strict=True):
            if heading := HEADING.match(block):
                self._slides.append(Slide(block, opens_section=len(heading["marks"]) < 3))
            elif "notes" in tags:
                self._slides[-1].notes.append(block)
            elif "slide" in tags:
                self._show(block)
            elif answer := ANSWER.fullmatch(block):
                self._slides[-1].notes.append(answer["text"])
            elif not block.startswith(("<details>", "<!--")):
                self._block(block, below)

    def _block(self, block: str, below: str) -> None:
        slide = self._slides[-1]
        if block.startswith("**Figure "):
            (self._pictured or slide).shown.append(v4.new_markdown_cell(block))
            self._pictured = None
        elif block.startswith("|"):
            self._table(block.splitlines())
        elif block.startswith(("$$", "```", "![")):
            self._show(block)
        elif LIST_ITEM.match(block):
            self._shortened(block, re.split(r"\n(?=(?:[-*]|\d+\.) )", block), WORDS_OF_ITEM)
        elif below.startswith("$$"):
            self._shortened(block, [block], WORDS, together_with=_lines(below))
        elif not slide.shown or (block.startswith("**") and not slide.answers and slide.lines + _lines(block) <= LINES):
            self._shortened(block, [block], WORDS)
        else:
            slide.notes.append(block)

    def _shortened(self, block: str, parts: list[str], words: int, together_with: float = 0) -> None:
        short = "\n".join(opening(part, words) for part in parts)
        self._show(short, together_with)
        if short != block:
            self._slides[-1].notes.append(block)

    def _table(self, rows: list[str]) -> None:
        """Add a table row by row: a long one continues on the next slide, with its header repeated."""
        head, columns = rows[:2], rows[0].count("|") - 1
        if self._slides[-1].answers:
            self._go_on()
        taken: list[str] = []
        for row in rows[2:]:
            if taken and self._slides[-1].lines + sum(_lines_of_row(each, columns) for each in [*taken, row]) > LINES:
                self._show("\n".join([*head, *taken]))
                self._go_on()
                taken = []
            taken.append(row)
        self._show("\n".join([*head, *taken]))

    def question(self, block: str) -> None:
        self._show(block)
        self._slides[-1].asks = True

    def results(self, outputs: tuple[NotebookNode, ...]) -> None:
        """Add the results of an experiment, never to the slide that asks for a prediction."""
        for output in outputs:
            html, text = output.get("data", {}).get("text/html", ""), output.get("text", "")
            if html or text:
                if self._slides[-1].asks:
                    self._go_on()
                lines = _lines_of_picture(html) if html else text.count("\n") + 1
                self._add(v4.new_code_cell(outputs=[output]), lines, limit=LINES_OF_RESULTS)
                self._slides[-1].answers = True
                self._pictured = self._slides[-1] if html else self._pictured

    def _show(self, block: str, together_with: float = 0) -> None:
        if self._slides[-1].answers:
            self._go_on()
        self._add(v4.new_markdown_cell(block), _lines(block), LINES - together_with)

    def _add(self, cell: NotebookNode, lines: float, limit: float) -> None:
        if self._slides[-1].lines + lines > limit:
            self._go_on()
        self._slides[-1].shown.append(cell)
        self._slides[-1].lines += lines

    def _go_on(self) -> None:
        """Start another slide with the same heading, unless the current one is still empty."""
        if self._slides[-1].shown:
            self._slides.append(Slide(self._slides[-1].heading, opens_section=False))


def opening(text: str, words: int) -> str:
    """The first sentences of a paragraph, at least one; formulas and bold words stay whole."""
    masked = FORMULA.sub(lambda found: found[0].replace(" ", "_").replace(":", "_"), text)
    kept = len(text)
    ends = [found.end() for found in SENTENCE_END.finditer(masked)]
    if len(text.split()) > words and ends:
        fitting = [end for end in ends if len(masked[:end].split()) <= words and masked[:end].count("**") % 2 == 0]
        kept = max(fitting, default=next((end for end in ends if masked[:end].count("**") % 2 == 0), kept))
    return text[:kept].strip()


def _lines_of_picture(html: str) -> float:
    picture = EMBEDDED.search(html)
    if picture is None or "data-lab" in html:
        return LINES_OF_MOVING_PICTURE
    width, height = struct.unpack(">II", base64.b64decode(picture["png"])[16:24])  # the first chunk of every PNG
    return 0.5 + float(min(HIGHEST_PICTURE, height * min(1, WIDEST_PICTURE / width))) / PIXELS_PER_LINE


def _lines(block: str) -> float:
    if block.startswith("$$"):
        return LINES_OF_FORMULA + block.count("\\\\") * 1.2
    if block.startswith("```"):
        return 0.7 * block.count("\n")
    if block.startswith("|"):
        rows = block.splitlines()
        return 1.5 + sum(_lines_of_row(row, rows[0].count("|") - 1) for row in rows[2:])
    return 0.5 + sum(1 + len(line.split()) // WORDS_PER_LINE for line in block.splitlines())


def _lines_of_row(row: str, columns: int) -> float:
    return 0.4 + 0.75 * max(1 + len(cell.split()) * columns // (WORDS_PER_LINE + 8) for cell in row.split("|"))
