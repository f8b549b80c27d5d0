"""From a submitted file to plain cells: nothing but text, ids and pictures gets through."""

import json
from pathlib import Path

import pytest
from helpers import ONE_PIXEL

from autograder.errors import UngradableError
from autograder.grading.submission import notebook_file
from autograder.grading.submission.notebook_file import MAX_CELLS, MAX_SOURCE, read, shown

PNG = ONE_PIXEL


def cell(source: object = "x = 1", **more: object) -> dict:
    return {"cell_type": "code", "id": "a", "metadata": {}, "source": source, "outputs": []} | more


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "week3_rope.ipynb"


def write(path: Path, *cells: object, **more: object) -> Path:
    path.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)} | more), encoding="utf-8"
    )
    return path


def test_a_cell_keeps_its_text_its_ids_and_nothing_else(path: Path) -> None:
    metadata = {"nbgrader": {"grade_id": "rope", "points": 100}, "tags": ["setup"]}
    (only,) = read(write(path, cell(["a\r\n", "b"], metadata=metadata, execution_count=3, evil=True))).cells
    assert dict(only) == {"id": "a", "grade_id": "rope", "cell_type": "code", "source": "a\nb", "outputs": []}


@pytest.mark.parametrize(
    "odd",
    [
        {"id": 5},
        {"metadata": None},
        {"metadata": {"nbgrader": []}},
        {"metadata": {"nbgrader": {"grade_id": 7}}},
        {"outputs": "x"},
        {"source": None},
        {"source": ["x", None, 5]},
        {"cell_type": "markdown", "attachments": [1]},
        {"outputs": [None, {"data": []}, {"text": [1]}]},
    ],
)
def test_what_has_another_type_counts_as_missing(path: Path, odd: dict) -> None:
    (only,) = read(write(path, cell(**odd))).cells
    assert (
        only.id in ("a", None)
        and only.grade_id is None
        and all(output.get("text", "") == "" for output in only.outputs[1:])
    )


def test_a_cell_that_is_no_object_is_left_out(path: Path) -> None:
    assert [kept.source for kept in read(write(path, "x", None, cell("y"), 3)).cells] == ["y"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_editors_write(path: Path, encoding: str) -> None:
    path.write_bytes(json.dumps({"cells": [cell("# ü")]}, ensure_ascii=False).encode(encoding))
    assert read(path).cells[0].source == "# ü"


def test_an_id_that_is_a_novel_is_none(path: Path) -> None:
    novel = "x" * 10**6
    (only,) = read(write(path, cell(id=novel, metadata={"nbgrader": {"grade_id": novel}}))).cells
    assert only.id is None and only.grade_id is None


def test_colours_of_saved_output_stay_and_nothing_else_that_a_terminal_obeys(path: Path) -> None:
    (only,) = read(write(path, cell(outputs=[{"output_type": "stream", "text": "\x1b[31mred\x1b[0m\x1b[38mx"}]))).cells
    assert only.outputs[1].text == "\x1b[31mred\x1b[0m[38mx"


def test_saved_output_is_text_and_png_and_says_that_nobody_verified_it(path: Path) -> None:
    outputs = [
        {"output_type": "stream", "text": ["loss ", "0.5"]},
        {"data": {"image/png": PNG, "text/html": "<script>"}},
        {"data": {"image/png": "not base64!"}},
    ]
    (only,) = read(write(path, cell(outputs=outputs))).cells
    assert [output.get("text") for output in only.outputs] == [
        "[saved by the student, not verified]\n",
        "loss 0.5",
        None,
    ]
    assert only.outputs[2].data == {"image/png": PNG}


def test_pictures_of_texts_lie_beside_the_cells_under_names_of_their_own(path: Path) -> None:
    text = {"cell_type": "markdown", "source": "![](attachment:a.png)", "attachments": {"a.png": {"image/png": PNG}}}
    found = read(write(path, cell(**text), cell(**text), cell(attachments={"of code.png": {"image/png": PNG}})))
    assert [only.source for only in found.cells[:2]] == [f"![](attachment:pasted-picture-{n})" for n in (1, 2)]
    assert [(picture["name"], picture["data"]) for picture in found.pictures.values()] == [("a.png", PNG)] * 2


def test_a_long_cell_is_cut(path: Path) -> None:
    assert len(read(write(path, cell("x" * (MAX_SOURCE + 5)))).cells[0].source) == MAX_SOURCE


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"{half", "only a part of one"),
        (b'{"cells": [\n<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> theirs\n]}', "merge conflict"),
        (b"PK\x03\x04" + bytes(99), "zip file"),
        (b"\n<!DOCTYPE html><html>", "web page"),
        (b"# %%\nimport torch\n", "not what it was exported to"),
        ('{"cells": [], "x": "\u00e9"}'.encode("cp1252"), "not saved in UTF-8"),
        (b"\xff\xff", "not a notebook"),
        (b"[" * 100_000, "not a notebook"),
        (b"[1]", "JSON but not a notebook"),
        (b"{}", "no cells"),
        (json.dumps({"cells": [{}] * (MAX_CELLS + 1)}).encode(), "more than"),
        (b'{"nbformat": 3, "worksheets": [{"cells": []}]}', "nbformat 3, from before 2015; open and save it"),
    ],
)
def test_what_cannot_be_graded_says_why(path: Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(UngradableError, match=says):
        read(path)


def test_what_is_no_file_is_not_read(path: Path) -> None:
    with pytest.raises(UngradableError, match="cannot be read"):
        read(path)
    write(path.with_name("other.ipynb"), cell())
    path.symlink_to(path.with_name("other.ipynb"))
    with pytest.raises(UngradableError, match="a link"):
        read(path)
    with pytest.raises(UngradableError, match="not a regular file"):
        read(path.parent)


def test_a_large_file_is_read_apart_with_the_same_result(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, cell("a"), cell("b", cell_type="markdown"))
    whole = read(path)
    monkeypatch.setattr(notebook_file, "LARGE", 1)
    assert read(path) == whole
    path.write_bytes(b"{half")
    with pytest.raises(UngradableError, match="not a notebook"):
        read(path)


def test_a_name_is_shown_without_markup() -> None:
    assert shown("<b>`x`[y](z)\n" + "a" * 99) == "?b??x??y?(z)?" + "a" * 47
