"""Pictures of work on paper, from the submission to the student's page and to the cell that the grader reads."""

import base64
import io
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, WEEK3, autograder, hand_in
from nbformat.notebooknode import NotebookNode
from PIL import Image

from autograder.classroom import make_course_root

PROOF = "relative_proof"


def picture(form: str, size: tuple[int, int] = (60, 40), noise: bool = False, **options: object) -> str:
    image = Image.effect_noise(size, 80).convert("RGB") if noise else Image.new("RGB", size, (200, 30, 40))
    file = io.BytesIO()
    image.save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode()


def phone_photo() -> str:
    """Return a photo of some megabytes, taken with the phone held upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return picture("JPEG", (4032, 3024), noise=True, quality=70, exif=exif)


def bomb() -> str:
    """Return a tiny PNG that claims to have 400 million pixels."""
    raw = bytearray(base64.b64decode(picture("PNG")))
    raw[16:24] = struct.pack("!II", 20_000, 20_000)
    raw[29:33] = struct.pack("!I", zlib.crc32(raw[12:29]))
    return base64.b64encode(raw).decode()


HEIC = base64.b64encode(b"\0\0\0\x18ftypheic" + bytes(500)).decode()


def pasted(name: str, kind: str, data: str) -> dict[str, object]:
    return {"source": f"BEFORE ![{name}](attachment:{name}) AFTER", "attachments": {name: {kind: data}}}


SUBMISSIONS: dict[str, Callable[[], dict[str, object]]] = {
    "phone": lambda: pasted("IMG_1.jpg", "image/jpeg", phone_photo()),
    "webp": lambda: pasted("a.webp", "image/webp", picture("WEBP")),
    "filed": lambda: pasted("my proof (1).png", "image/png", picture("JPEG")),
    "colab": lambda: {
        "source": f"BEFORE ![p.jpg](data:image/jpeg;base64,{picture('JPEG', (900, 900), noise=True)})\n\nAFTER"
    },
    "html": lambda: {"source": f"BEFORE <img src='data:image/gif;base64,{picture('GIF')}'> AFTER"},
    "heic": lambda: pasted("IMG_2.heic", "image/heic", HEIC),
    "beside": lambda: {"source": "BEFORE ![](photo.jpg) AFTER"},
    "bomb": lambda: pasted("b.png", "image/png", bomb()),
}
NOT_SHOWN = {
    "heic": ("IMG_2.heic", "it is a HEIC file"),
    "beside": ("photo.jpg", "it is not in the notebook"),
    "bomb": ("b.png", "it has too many pixels"),
}


@dataclass
class Graded:
    """A graded submission: the student's page, the cell that the grader reads, and the note at the top."""

    page: str
    cell: NotebookNode
    noticed: str


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graded]:
    root = tmp_path_factory.mktemp("paper") / "course"
    make_course_root(COURSE, root, [WEEK3])
    for student, proof in SUBMISSIONS.items():
        hand_in(root, student, {PROOF: proof()})
    autograder("--root", str(root), "autograde", "--week", "3")
    autograder("--root", str(root), "feedback", "--week", "3")
    return {student: _graded(root, student) for student in SUBMISSIONS}


def _graded(root: Path, student: str) -> Graded:
    (page,) = (root / "feedback" / student / WEEK3).glob("*.html")
    notebook = nbformat.read(root / "autograded" / student / WEEK3 / f"{WEEK3}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cell = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == PROOF)
    noticed = next((c.source for c in notebook.cells if c.id == "intake-notes"), "")
    return Graded(page.read_text(encoding="utf-8"), cell, noticed)


@pytest.mark.isolation
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("student", SUBMISSIONS)
def test_a_picture_is_shown_or_named_and_the_text_around_it_stays(student: str, graded: dict[str, Graded]) -> None:
    seen = graded[student]
    answer = unescape(re.search(r"BEFORE.*?AFTER", seen.page, re.DOTALL)[0])
    shown = re.findall(r'<img [^<>]*?src="data:(image/\w+);base64,([^"]+)"', answer)
    assert re.search(r"BEFORE.*AFTER", seen.cell.source, re.DOTALL)
    if student in NOT_SHOWN:
        name, reason = NOT_SHOWN[student]
        assert not shown and not seen.cell.get("attachments")
        for text in (answer, seen.cell.source, seen.noticed):
            assert name in text and reason in text
        return
    ((kind, data),) = shown
    ((key, bundle),) = seen.cell.attachments.items()
    assert bundle == {kind: data} and f"](attachment:{key})" in seen.cell.source and not seen.noticed
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.size == {"phone": (1200, 1600), "colab": (900, 900)}.get(student, (60, 40))
    assert len(data) < 2**21
