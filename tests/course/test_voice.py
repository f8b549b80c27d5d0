"""The length of what students read: captions, paragraphs, sentences, words per week.

Counted in the student release, `notebooks/`, without tables, formulas, code and references. A list item is a paragraph
of its own. A sentence ends with . ? or !, or with a colon before a list. A caption is the paragraph that begins with
"**Figure 3.1.**", with the list below it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

COURSE = Path(__file__).resolve().parents[2]
LONGEST_CAPTION, LONGEST_PARAGRAPH, LONGEST_SENTENCE = 60, 120, 40
MOST_IN_WEEK_5, MEAN_OF_WEEKS_1_TO_5 = 6000, 5500

WEEKS = sorted(path.name for path in (COURSE / "notebooks").glob("week*_*"))
by_week = pytest.mark.parametrize("week", WEEKS)

ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|et al|vs|cf|Fig|Eq|Sec|No|approx|resp|[A-Z])\.(?=\s)")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.|\([a-z]\))\s")


@dataclass
class Paragraph:
    """Adjacent lines, without markup."""

    text: str
    is_item: bool = False

    @property
    def words(self) -> int:
        return count_words(self.text)


def count_words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def plain(markdown: str) -> str:
    """Return a cell's text without formulas, fenced code, tables, tags and code spans."""
    text = re.sub(r"```.*?```", "\n", markdown, flags=re.DOTALL)
    text = re.sub(r"(?<!\\)\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"(?<!`)`[^`\n]+`", " ", text)
    text = re.sub(r"(?<!\\)\$[^$]+?\$", " ", text)
    text = re.sub(r"</?(?:details|summary|p|div|ul|ol|li)\b[^>]*>", "\n\n", text)
    text = re.sub(r"<[a-zA-Z/!][^>]*>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    lines = ["" if line.lstrip().startswith("|") else line for line in text.split("\n")]
    return "\n".join(lines)


def paragraphs_of_cell(markdown: str) -> list[Paragraph]:
    found: list[Paragraph] = []
    for block in re.split(r"\n\s*\n", plain(markdown)):
        current: list[str] = []
        item = False
        for line in block.split("\n"):
            heading = re.match(r"\s*#{1,6}\s", line)
            if LIST_ITEM.match(line) or heading:
                found.append(Paragraph(" ".join(current), item))
                current, item = [], not heading
            if heading:
                found.append(Paragraph(line.lstrip("# ")))
            else:
                current.append(line.strip().lstrip("> "))
        found.append(Paragraph(" ".join(current), item))
    return [paragraph for paragraph in found if paragraph.words]


def without_references(cells: list[str]) -> list[str]:
    """Return the text cells, each cut at a heading "References"."""
    return [re.split(r"(?m)^#+ References\b.*$", cell)[0] for cell in cells]


def text_cells(week: str) -> list[str]:
    notebook = nbformat.read(COURSE / "notebooks" / week / f"{week}.ipynb", as_version=4)
    return without_references([cell.source for cell in notebook.cells if cell.cell_type == "markdown"])


def paragraphs(week: str) -> list[Paragraph]:
    return [paragraph for cell in text_cells(week) for paragraph in paragraphs_of_cell(cell)]


def captions(week: str) -> list[str]:
    """Return each caption with the list that follows it."""
    found: list[str] = []
    for cell in text_cells(week):
        inside = False
        for paragraph in paragraphs_of_cell(cell):
            if re.match(r"\*\*Figure \d+\.\d+", paragraph.text):
                found.append(paragraph.text)
                inside = True
            elif inside and paragraph.is_item:
                found[-1] += " " + paragraph.text
            else:
                inside = False
    return found


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences. A colon before a list ends it anyway: the list is another paragraph."""
    whole = ABBREVIATIONS.sub(lambda match: match.group().replace(".", ""), text)
    return [part for part in re.split(r"(?<=[.?!])[\"”’)*_]*\s+", whole) if count_words(part)]


def words_of(week: str) -> int:
    return sum(paragraph.words for paragraph in paragraphs(week))


def too_long(texts: list[str], limit: int) -> list[str]:
    return [f"{count_words(text)} words: {text.strip()[:90]}" for text in texts if count_words(text) > limit]


@by_week
def test_captions_are_short(week: str) -> None:
    assert too_long(captions(week), LONGEST_CAPTION) == []


@by_week
def test_paragraphs_are_short(week: str) -> None:
    assert too_long([paragraph.text for paragraph in paragraphs(week)], LONGEST_PARAGRAPH) == []


@by_week
def test_sentences_are_short(week: str) -> None:
    assert (
        too_long(
            [sentence for paragraph in paragraphs(week) for sentence in sentences(paragraph.text)], LONGEST_SENTENCE
        )
        == []
    )


def test_a_week_is_read_in_an_evening() -> None:
    words = {week: words_of(week) for week in WEEKS if re.match(r"week[1-5]_", week)}
    for week, count in words.items():
        if week.startswith("week5_"):
            assert count <= MOST_IN_WEEK_5, words
    assert sum(words.values()) / len(words) <= MEAN_OF_WEEKS_1_TO_5, words
