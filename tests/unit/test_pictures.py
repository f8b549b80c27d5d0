"""Only the visible part of a student's picture is kept, if a browser can decode it."""

import base64
import io
import struct
import zlib

import pytest
from PIL import Image, PngImagePlugin

from autograder.grading.pictures import MOST_PIXELS, PNG, decoded_picture, plain_jpeg, plain_png


def encoded(form: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30, 20), (200, 30, 40)).save(file, form, **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack("!IIBBBBB", width, height, 1, 0, 0, 0, 0))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_looks_as_before(form: str) -> None:
    raw = encoded(form)
    found = decoded_picture(base64.b64encode(raw).decode(), f"image/{form.lower()}")
    assert found is not None and found.kind == f"image/{form.lower()}"
    assert Image.open(io.BytesIO(found.raw)).tobytes() == Image.open(io.BytesIO(raw)).tobytes()
    text = base64.b64encode(raw).decode()
    assert decoded_picture(text[:40] + "\n" + text[40:], found.kind) == found
    assert decoded_picture(text, "image/gif") is None and decoded_picture(text[1:], found.kind) is None
    assert found.pixels == 600 and found.cost == len(found.raw) + 18


def test_what_is_not_shown_goes() -> None:
    said = PngImagePlugin.PngInfo()
    said.add_text("Comment", "x" * 1000, zip=True)
    found = plain_png(encoded("PNG", pnginfo=said))
    assert found is not None and b"zTXt" not in found.raw
    frames = [Image.new("L", (8, 8), 40 * n) for n in range(5)]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    still = plain_png(file.getvalue())
    assert still is not None and getattr(Image.open(io.BytesIO(still.raw)), "n_frames", 1) == 1


@pytest.mark.parametrize("size", [(60_000, 60_000), (MOST_PIXELS + 1, 1), (2**31, 2**31), (0, 5)])
def test_what_unpacks_into_gigabytes_goes(size: tuple[int, int]) -> None:
    rest = chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    assert plain_png(PNG + header(*size) + rest) is None
    assert plain_png(PNG + header(8, 8) + rest) is not None
    twice = plain_png(PNG + header(8, 8) + header(*size) + rest)
    assert twice is not None and twice.raw.count(b"IHDR") == 1


def test_what_is_no_picture_goes() -> None:
    whole = encoded("PNG")
    for raw in (b"", PNG, PNG + b"rest", PNG + chunk(b"IDAT", b"x"), whole[:-20], b"\xff\xd8", b"GIF89a", b"<svg/>"):
        assert plain_png(raw) is None and plain_jpeg(raw) is None
    large = bytearray(encoded("JPEG"))
    place = large.index(b"\xff\xc0")
    large[place + 5 : place + 9] = struct.pack("!HH", 60_000, 60_000)
    assert plain_jpeg(bytes(large)) is None


def test_any_bytes_are_read_to_their_end() -> None:
    for start in (PNG, b"\xff\xd8"):
        for rest in (b"\xff" * 5000, bytes(5000), b"\xff\xd0" * 2500, b"\xff\xe0\x00\x00" * 1000):
            assert plain_png(start + rest) is None and plain_jpeg(start + rest) is None
