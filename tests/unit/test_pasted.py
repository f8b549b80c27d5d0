"""Pictures in a text, in every editor's notation, are shown in place or replaced by a reason; no word is lost."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import COURSE, ONE_PIXEL, WEEK3
from mangled import Mangled
from nbformat.notebooknode import NotebookNode

from autograder.grading.submission import intake, pasted
from autograder.grading.submission.notebook_file import MAX_SOURCE, read
from autograder.grading.submission.pasted import MOST_PICTURES, Pasted, placed
from autograder.grading.submission.shrink import Small, Why
from autograder.manifest import MANIFEST

PICTURE = {"image/png": ONE_PIXEL}
URI = f"data:image/png;base64,{ONE_PIXEL}"
HEIC = base64.b64encode(b"\0\0\0\x18ftypheic" + bytes(50)).decode()


@pytest.fixture(autouse=True)
def decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the decoder by one that accepts only ONE_PIXEL; the real one has its own tests."""
    monkeypatch.setattr(pasted, "shrunk", lambda texts: [_outcome(text) for text in texts])


def _outcome(text: str) -> Small | Why:
    if text.startswith(ONE_PIXEL):
        return Small("image/png", text, damaged=text.endswith("damaged"))
    return Why.HEIC if text == HEIC else Why.UNREADABLE


def shown(text: str, attachments: object = None) -> tuple[str, int, list[str]]:
    """Return a cell's text as graded, with PICTURE for each picture in the cell; the number of pictures; the notes."""
    handed_in = Pasted()
    source = handed_in.with_references(handed_in.without_data(text), attachments)
    cell = NotebookNode(cell_type="markdown", source=intake._without_markup(source), attachments=NotebookNode())
    notes = placed([cell], handed_in.pictures)
    held = cell.get("attachments", {})
    assert all(data == PICTURE for data in held.values())
    for key in held:
        assert f"](attachment:{key})" in cell.source, "a picture that no text shows"
        cell.source = cell.source.replace(f"](attachment:{key})", "](PICTURE)")
    assert "pasted-picture" not in cell.source
    return cell.source, len(held), notes


NAMES = [
    "IMG_1.png",
    "my plot.png",
    "größe.png",
    "photo (1).png",
    "scan [2].png",
    "100% sure.png",
    "P&Q.png",
    "it's.png",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "before ![{name}](attachment:{name}) after",
        "before ![{name}](<attachment:{name}>) after",
        "before ![{name}](attachment:{quoted}) after",
        'before ![{name}](attachment:{quoted} "a title") after',
        'before <img src="attachment:{html}" width="400" alt="{html}"/> after',
        "before <IMG alt='{html}' SRC = 'attachment:{quoted}'> after",
    ],
)
def test_an_attachment_of_any_name_is_shown_in_its_place(name: str, text: str) -> None:
    import html
    from urllib.parse import quote

    written = text.format(name=name, quoted=quote(name, safe="!*'()"), html=html.escape(name, quote=False))
    if "'" in name and "'attachment" in written.replace(" ", ""):
        written = written.replace(name, "it&#39;s.png").replace(quote(name, safe="!*'()"), "it%27s.png")
    alt = name.replace("[", "(").replace("]", ")")
    assert shown(written, {name: PICTURE}) == (f"before ![{alt}](PICTURE) after", 1, [])


def test_a_letter_of_two_signs_is_the_same_letter() -> None:
    """macOS writes the umlaut in a file name as two code points; everything else writes one."""
    assert shown("![x](attachment:gr\u00f6\u00dfe.png)", {"gro\u0308\u00dfe.png": PICTURE})[1] == 1


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (f"hand:\n\n![proof.png]({URI})\n\nAFTER", "hand:\n\n![proof.png](PICTURE)\n\nAFTER"),
        (f"one ![]({URI}) two ![b](<{URI}> 'title') three", "one ![](PICTURE) two ![b](PICTURE) three"),
        (f"a <img src='{URI}' alt=\"x\"> b", "a ![x](PICTURE) b"),
        (f'a <img width=9 src="{URI}"/> b', "a ![](PICTURE) b"),
        (f"a <img src={URI}> b", "a ![](PICTURE) b"),
        (f"[my proof]({URI}) AFTER", "![my proof](PICTURE) AFTER"),
        (f"[![a]({URI})](https://a.b) AFTER", "[![a](PICTURE)](https://a.b) AFTER"),
        (f"| a |\n|---|\n| ![x]({URI}) | AFTER |", "| a |\n|---|\n| ![x](PICTURE) | AFTER |"),
    ],
)
def test_a_picture_in_the_text_itself_takes_no_word_along(text: str, result: str) -> None:
    assert shown(text) == (result, result.count("PICTURE"), [])


def test_two_pictures_and_one_twice() -> None:
    text, held, _ = shown(
        "![a](attachment:a.png) x ![b](attachment:a.png.png) y ![a](attachment:a.png)",
        {"a.png": PICTURE, "a.png.png": PICTURE},
    )
    assert text == "![a](PICTURE) x ![b](PICTURE) y ![a](PICTURE)" and held == 2


@pytest.mark.parametrize("text", ["", "my proof", "`attachment:a.png`", f"at {URI}", f"see ![][1]\n\n[1]: <{URI}>"])
def test_what_the_text_does_not_show_comes_after_it(text: str) -> None:
    attachments = None if URI in text else {"a.png": PICTURE}
    handed_in = Pasted()
    source = handed_in.with_references(handed_in.without_data(text), attachments)
    assert (
        source.count("](attachment:pasted-picture-1)") == 1 and "Attached to this cell, not shown in its text" in source
    )
    assert not text or source.startswith(text[:3])


@pytest.mark.parametrize(
    ("text", "attachments", "name", "why"),
    [
        ("![IMG.heic](attachment:IMG.heic)", {"IMG.heic": {"image/heic": HEIC}}, "IMG.heic", Why.HEIC),
        ("![IMG.heic](attachment:6f-2a.png)", {"6f-2a.png": {"image/png": HEIC}}, "IMG.heic", Why.HEIC),
        (f"![IMG.HEIC](data:image/heic;base64,{HEIC})", None, "IMG.HEIC", Why.HEIC),
        ("![a](attachment:a.png)", {"a.png": {"image/png": "no picture"}}, "a.png", Why.UNREADABLE),
        ("![a](attachment:a.png)", {"a.png": {"image/png": None}}, "a.png", Why.UNREADABLE),
        ("![a](attachment:a.png)", {"a.png": 7}, "a.png", Why.UNREADABLE),
        ("![a](attachment:lost%20one.png)", {"b.png": {}}, "lost one.png", Why.MISSING),
        ("![lost.png](attachment:6f-2a.png)", None, "lost.png", Why.MISSING),
        ("![](photo.jpg)", None, "photo.jpg", Why.MISSING),
        ("![my proof](<pictures/photo 1.JPG> 'title')", None, "pictures/photo 1.JPG", Why.MISSING),
        ("![my proof](pictures/photo%20(1).png)", None, "pictures/photo (1).png", Why.MISSING),
        ("<img src='photo.jpg' width=400>", None, "photo.jpg", Why.MISSING),
        ("![x](https://a.example/b?c=d)", None, "https://a.example/b?c=d", Why.WEB),
        ('<img src="//a.example/b.png">', None, "//a.example/b.png", Why.WEB),
    ],
)
def test_what_is_not_shown_is_said_in_its_place_and_to_the_person_grading(
    text: str, attachments: object, name: str, why: Why
) -> None:
    result, held, notes = shown(f"before {text} after", attachments)
    result = result.split("\n\nAttached", 1)[0]
    assert result == f"before **[the picture `{name}` is not shown: {why}]** after" and held == 0
    assert notes[0] == f"the picture `{name}` is not shown: {why}"


def test_a_damaged_file_is_said_to_be_damaged() -> None:
    handed_in = Pasted()
    source = handed_in.with_references("![a](attachment:a.png)", {"a.png": {"image/png": f"{ONE_PIXEL}damaged"}})
    cell = NotebookNode(source=source, attachments=NotebookNode())
    assert placed([cell], handed_in.pictures) == [] and "damaged; this is what could be read" in cell.source


def test_what_is_no_picture_stays_as_it_is() -> None:
    for text in (
        "the data: x, y",
        "n![k](x) ways",
        "[a](https://b.c) `x`",
        "attachment: none",
        "data:a,b",
        "![no [picture]",
    ):
        assert shown(text)[0].replace("\u200b", "") == text
    assert shown("![x](javascript:run())")[0] == "!\u200b[x](java\u200bscript:run())".replace(
        "java\u200b", "j\u200bava"
    )


def test_the_type_that_a_picture_is_filed_under_is_of_no_consequence() -> None:
    for bundle in ({"image/jpeg": ONE_PIXEL}, {"application/octet-stream": [ONE_PIXEL[:9], ONE_PIXEL[9:]]}):
        handed_in = Pasted()
        handed_in.with_references("", {"a": bundle})
        assert handed_in.pictures["pasted-picture-1"]["data"] == ONE_PIXEL


def test_there_is_an_end_to_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    text, held, notes = shown(f"![x]({URI}) " * (MOST_PICTURES + 5) + "AFTER")
    assert held == MOST_PICTURES and text.count(Why.MANY) == 5 and text.endswith("AFTER") and len(notes) == 1
    monkeypatch.setattr(pasted, "MOST_SHOWN", 5 * len(ONE_PIXEL))
    text, held, _ = shown("![a](attachment:a.png) " * 7 + "AFTER", {"a.png": PICTURE})
    assert held == 1 and text.count("(PICTURE)") == 5 and text.count(Why.ROOM) == 2 and text.endswith("AFTER")
    monkeypatch.setattr(pasted, "MOST_BYTES", len(ONE_PIXEL) - 1)
    assert Why.BYTES in shown(f"![a]({URI}x)")[0]


@pytest.mark.parametrize(
    "storm", ["![", "![a](", "[x](attachment:", "<img src=", "data:image/,", "attachment:a.png ", "![[a]", "![a](("]
)
def test_no_text_takes_long(storm: str) -> None:
    """Each would take minutes if every opening sign were followed to the end of the text."""
    text = storm * (400_000 // len(storm))
    handed_in, begun = Pasted(), time.process_time()
    source = handed_in.with_references(handed_in.without_data(text), {"a.png": PICTURE, "b" * 300: PICTURE})
    cell = NotebookNode(source=source, attachments=NotebookNode())
    placed([cell], handed_in.pictures)
    assert len(cell.attachments) == 2 and time.process_time() - begun < 60


# ---- in a notebook --------------------------------------------------------------------------------------------------


def notebook(tmp_path: Path, *more: dict[str, Any], **proof: Any) -> Path:
    """Write a submission of week 3, with ``proof`` in the cell ``relative_proof`` and ``more`` cells below it."""
    nb = Mangled()
    for exercise in MANIFEST[WEEK3]:
        nb.blank(exercise.grade_id)
    at = nb.at("relative_proof")
    nb.cells[at] |= proof
    nb.cells[at + 1 : at + 1] = more
    return nb.write(tmp_path)


def cells_with_pictures(path: Path) -> list[NotebookNode]:
    rebuilt = intake.rebuild(path, COURSE, WEEK3)
    return [cell for cell in rebuilt.notebook.cells if cell.get("attachments")]


@pytest.mark.parametrize("megabytes", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_large_picture_in_the_text_is_taken_out_before_the_text_is_cut(megabytes: int, tmp_path: Path) -> None:
    """Another process reads files of more than four megabytes."""
    data = "A" * (megabytes * 2**20)
    assert len(data) > MAX_SOURCE
    submitted = read(notebook(tmp_path, source=f"By hand: ![p.jpg](data:image/jpeg;base64,{data})\n\nAFTER"))
    proof = next(cell for cell in submitted.cells if cell.grade_id == "relative_proof")
    (key,) = submitted.pictures
    assert proof.source == f"By hand: ![p.jpg](attachment:{key})\n\nAFTER"
    assert submitted.pictures[key]["data"].endswith(data)


def test_a_picture_in_a_cell_beside_the_answer_is_shown_there(tmp_path: Path) -> None:
    beside = {"cell_type": "markdown", "metadata": {}, "id": "x1", "source": "![a](attachment:image.png)"}
    path = notebook(
        tmp_path, beside | {"attachments": {"image.png": PICTURE}}, source="mine ![b](attachment:image.png)",
        attachments={"image.png": PICTURE},
    )  # fmt: skip
    assert [len(cell.attachments) for cell in cells_with_pictures(path)] == [1, 1]


def test_a_text_that_was_moved_finds_its_picture_in_the_cell_it_comes_from(tmp_path: Path) -> None:
    beside = {"cell_type": "markdown", "metadata": {}, "id": "x1", "source": "", "attachments": {"a b.png": PICTURE}}
    answer, other = cells_with_pictures(notebook(tmp_path, beside, source="mine ![b](attachment:a%20b.png)"))
    assert answer.attachments == other.attachments and "mine ![b](attachment:" in answer.source


def test_a_picture_below_an_answer_left_as_it_was_becomes_the_answer(tmp_path: Path) -> None:
    below = {"cell_type": "markdown", "metadata": {}, "id": "x1", "source": "![a](attachment:image.png)"}
    (answer,) = cells_with_pictures(notebook(tmp_path, below | {"attachments": {"image.png": PICTURE}}))
    assert answer.metadata.nbgrader.grade_id == "relative_proof" and not answer.metadata.unanswered


def test_a_picture_attached_to_an_answer_left_as_it_was_is_the_answer(tmp_path: Path) -> None:
    (answer,) = cells_with_pictures(notebook(tmp_path, attachments={"image.png": PICTURE}))
    assert answer.metadata.nbgrader.grade_id == "relative_proof" and not answer.metadata.unanswered


def test_pictures_do_not_stay_in_the_courses_own_cells(tmp_path: Path) -> None:
    """The course's own cells are the same objects for all students of a class."""
    notebook_with = notebook(tmp_path, source=f"![a]({URI})")
    without = notebook(tmp_path.joinpath("b").mkdir() or tmp_path / "b", source="words")
    assert len(cells_with_pictures(notebook_with)) == 1 and cells_with_pictures(without) == []
