"""Shrinking a student's pictures: what is shown, what is removed, and the reasons for pictures that are not shown."""

import base64
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import COURSE
from PIL import Image

from autograder.grading.sandbox.bubblewrap import why_not_isolated
from autograder.grading.submission import shrink
from autograder.grading.submission.shrink import Small, Why, shrunk

pytestmark = pytest.mark.slow  # starts its own process
RED, BLUE = (200, 0, 0), (0, 0, 200)
ORIENTATION, GPS = 0x0112, 0x8825


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def halves(size: tuple[int, int] = (60, 40), mode: str = "RGB") -> Image.Image:
    """Return an image that is red on the left and blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image.convert(mode)


def photo(turned: int) -> bytes:
    """Return a photo as phones save it: the sensor's rows, with metadata on orientation, place and device."""
    exif = Image.Exif()
    exif[ORIENTATION], exif[0x010F] = turned, "SECRET MAKER"
    exif.get_ifd(GPS)[1] = "N"
    return saved(halves((1800, 1350)), "JPEG", exif=exif, icc_profile=b"SECRET PROFILE", comment=b"SECRET COMMENT")


def deep_scan() -> bytes:
    """Return a PNG with 16 bits per pixel, dark on the left and bright on the right."""
    image = Image.new("I;16", (60, 40), 2000)
    image.paste(60_000, (30, 0, 60, 40))
    return saved(image, "PNG")


def without_pixels(width: int, height: int) -> bytes:
    chunks = {b"IHDR": struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT": b"", b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def large_jpeg(width: int, height: int) -> bytes:
    raw = bytearray(saved(halves(), "JPEG"))
    place = raw.index(b"\xff\xc0")
    raw[place + 5 : place + 9] = struct.pack("!HH", height, width)
    return bytes(raw)


GREEN = Image.new("RGB", (60, 40), (0, 200, 0))
CLEAR = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
PICTURES: dict[str, bytes] = {
    "png": saved(halves(), "PNG"),
    "jpeg": saved(halves(), "JPEG"),
    "webp": saved(halves(), "WEBP"),
    "bmp": saved(halves(), "BMP"),
    "tiff": saved(halves(), "TIFF"),
    "avif": saved(halves(), "AVIF"),
    "palette": saved(halves(mode="P"), "PNG"),
    "cmyk": saved(halves(mode="CMYK"), "JPEG"),
    "animated gif": saved(halves(), "GIF", save_all=True, append_images=[GREEN, GREEN]),
    "animated webp": saved(halves(), "WEBP", save_all=True, append_images=[GREEN, GREEN], lossless=True),
    "two in one": saved(halves(), "MPO", save_all=True, append_images=[GREEN]),
    "upright": photo(1),
    "turned": photo(6),
    "upside down": photo(3),
    "turned tiff": saved(halves(), "TIFF", tiffinfo={ORIENTATION: 6}),
    "fax": saved(Image.new("1", (60, 40), 1), "TIFF"),
    "deep scan": deep_scan(),
    "clear": saved(CLEAR, "PNG"),
    "narrow": saved(Image.new("L", (5000, 2), 255), "PNG"),
    "noise": saved(Image.effect_noise((900, 700), 80), "PNG"),
    "cut off": saved(halves((600, 400)), "JPEG")[:-200],
    "cut off png": saved(Image.effect_noise((300, 200), 80), "PNG")[:-20_000],
    "heic": b"\0\0\0\x18ftypheic" + bytes(500),
    "pdf": b"%PDF-1.7\n" + bytes(500),
    "text": b"hello",
    "nothing": b"",
    "half a header": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "bomb": without_pixels(60_000, 60_000),
    "jpeg bomb": large_jpeg(65_000, 65_000),
}
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>run()</script></svg>'


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Small | Why]:
    texts = {name: base64.b64encode(raw).decode() for name, raw in PICTURES.items()}
    texts |= {"svg": SVG, "wrapped": "\n".join(texts["png"][at : at + 76] for at in range(0, 9999, 76)).rstrip("=\n")}
    return dict(zip(texts, shrunk(list(texts.values())), strict=True))


@pytest.fixture
def look(outcomes: dict[str, Small | Why]) -> Callable[[str], Image.Image]:
    def image(name: str) -> Image.Image:
        outcome = outcomes[name]
        assert isinstance(outcome, Small), outcome
        found = Image.open(io.BytesIO(base64.b64decode(outcome.data)))
        assert outcome.kind == f"image/{str(found.format).lower()}"
        return found

    return image


def colours(image: Image.Image) -> tuple[str, str, str, str]:
    """Return the colours in the middle of the left, right, upper and lower edge: red, blue or else."""
    width, height = image.size
    places = [(2, height // 2), (width - 3, height // 2), (width // 2, 2), (width // 2, height - 3)]
    found = [image.convert("RGB").getpixel(place) for place in places]
    near = {"red": RED, "blue": BLUE}
    return tuple(
        next((name for name, c in near.items() if max(abs(a - b) for a, b in zip(pixel, c, strict=True)) < 40), "else")
        for pixel in found
    )


@pytest.mark.parametrize(
    "name",
    ["png", "jpeg", "webp", "bmp", "tiff", "avif", "palette", "animated gif", "animated webp", "two in one", "wrapped"],
)
def test_a_picture_of_any_usual_format_is_shown_by_its_first_frame(name: str, look: Callable) -> None:
    assert look(name).size == (60, 40) and colours(look(name))[:2] == ("red", "blue")


def test_a_phone_photo_is_small_upright_and_says_nothing_else(look: Callable, outcomes: dict) -> None:
    assert (look("upright").size, colours(look("upright"))[:2]) == ((1600, 1200), ("red", "blue"))
    assert (look("upside down").size, colours(look("upside down"))[:2]) == ((1600, 1200), ("blue", "red"))
    assert (look("turned").size, colours(look("turned"))[2:]) == ((1200, 1600), ("red", "blue"))
    assert (look("turned tiff").size, colours(look("turned tiff"))[2:]) == ((40, 60), ("red", "blue"))
    assert b"SECRET MAKER" in PICTURES["turned"] and b"SECRET COMMENT" in PICTURES["turned"]
    kept = base64.b64decode(outcomes["turned"].data)
    assert b"SECRET" not in kept and b"Exif" not in kept


def test_paper_is_white_and_ink_dark(look: Callable) -> None:
    for name in ("fax", "clear", "narrow"):
        assert set(look(name).convert("L").getdata()) == {255}, name
    scan = look("deep scan").convert("L")
    assert scan.getpixel((5, 20)) < 60 and scan.getpixel((55, 20)) > 220
    assert look("narrow").size == (1600, 1) and look("cmyk").mode == "RGB"


def test_what_is_large_as_png_becomes_a_jpeg(outcomes: dict) -> None:
    assert outcomes["png"].kind == "image/png" and outcomes["noise"].kind == "image/jpeg"
    assert len(outcomes["noise"].data) < len(PICTURES["noise"])


@pytest.mark.parametrize("name", ["cut off", "cut off png"])
def test_a_file_that_ends_early_is_shown_as_far_as_it_goes(name: str, look: Callable, outcomes: dict) -> None:
    assert look(name) and outcomes[name].damaged and not outcomes["jpeg"].damaged


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("heic", Why.HEIC),
        ("pdf", Why.PDF),
        ("svg", Why.SVG),
        ("text", Why.UNREADABLE),
        ("nothing", Why.UNREADABLE),
        ("half a header", Why.UNREADABLE),
        ("bomb", Why.PIXELS),
        ("jpeg bomb", Why.PIXELS),
    ],
)
def test_what_cannot_be_shown_has_its_reason(name: str, why: Why, outcomes: dict) -> None:
    assert outcomes[name] is why


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A function that puts more lines before the start of the program."""

    def changed(more: str) -> None:
        start, text = 'if __name__ == "__main__":', shrink.PROGRAM.read_text(encoding="utf-8")
        program = tmp_path / "picture_worker.py"
        program.write_text(text.replace(start, f"{more}\n{start}"), encoding="utf-8")
        monkeypatch.setattr(shrink, "PROGRAM", program)

    return changed


def test_a_decoder_that_runs_away_costs_its_own_picture_only(change: Callable, outcomes: dict) -> None:
    change("""
good = small
LIMITS["cpu_seconds"] = 1
def small(raw, **more):
    if raw == b"dies": os.kill(os.getpid(), 9)
    while raw == b"hangs": pass
    if raw == b"eats": bytearray(2**31)
    if raw == b"lies": os.write(1, b'{"number": 0, "why": []}\\n[]\\n{"number": [1]}\\n{"number": 4, "kind": "image/png", "data": "AAAA"')
    if raw == b"lies more": return {"kind": "text/html", "data": "PGI+", "damaged": ""}
    return good(raw, **more)
""")
    hostile = [base64.b64encode(word).decode() for word in (b"dies", b"hangs", b"eats", b"lies", b"lies more")]
    picture = base64.b64encode(PICTURES["png"]).decode()
    assert shrunk([picture, *hostile, picture]) == [
        outcomes["png"],
        *[Why.COSTLY] * 3,
        Why.UNREADABLE,
        Why.COSTLY,
        outcomes["png"],
    ]


@pytest.mark.isolation
@pytest.mark.skipif(bool(why_not_isolated()), reason="needs bubblewrap")
def test_a_decoder_that_is_taken_over_finds_no_course_no_network_and_no_privilege(change: Callable) -> None:
    change(f"""
import ctypes
def small(raw):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    held = [os.path.exists({str(COURSE)!r}), os.path.exists("/home"), os.path.exists("/root"),
            any(":" in line and "lo:" not in line for line in open("/proc/net/dev")), status["Seccomp"].strip() != "2", int(status["CapEff"], 16) != 0,
            ctypes.CDLL(None).unshare(0x10000000) == 0, "HOME" in os.environ and os.environ["HOME"] != "/tmp"]
    try:
        open(f"/proc/{{os.getppid()}}/mem", "wb")
        held.append(True)
    except OSError:
        pass
    if any(held): raise ValueError
    return {{"why": "PDF"}}
""")
    assert shrunk(["AAAA"]) == [Why.PDF]


def test_a_machine_that_cannot_decode_is_not_the_students_fault(change: Callable) -> None:
    change("raise SystemExit(3)")
    assert shrunk(["AAAA"]) == [Why.MACHINE]


def test_without_bubblewrap_the_limits_hold(change: Callable, monkeypatch: pytest.MonkeyPatch, outcomes: dict) -> None:
    monkeypatch.setattr(shrink, "_can_isolate", lambda: False)
    change(
        "good = small\ndef small(raw, **more):\n    if raw == b'eats': bytearray(2**31)\n    return good(raw, **more)",
    )
    texts = [base64.b64encode(raw).decode() for raw in (PICTURES["png"], b"eats")]
    assert shrunk(texts) == [outcomes["png"], Why.COSTLY]


def test_no_picture_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink.subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert shrunk([]) == []
