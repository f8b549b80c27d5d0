"""Students' pictures, made safe to show: PNG and JPEG only, and none that a browser would unpack into gigabytes."""

import base64
import binascii
import math
import struct
from dataclasses import dataclass

MOST_PIXELS = 2**25
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
SHOWN = frozenset({b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"sRGB", b"pHYs", b"IDAT", b"IEND"})  # no text, no frames
SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG segments that hold the picture's size
ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # JPEG segments without a length


@dataclass(frozen=True)
class Picture:
    """A picture: MIME type, bytes, and its ``cost`` in a budget, which is its bytes plus one for every 32 pixels."""

    kind: str
    raw: bytes
    pixels: int

    @property
    def cost(self) -> int:
        return len(self.raw) + self.pixels // 32


def plain_picture(raw: bytes) -> Picture | None:
    """Return a JPEG as it is and a PNG as `plain_png` does; ``None`` if it is neither, or too large."""
    if not raw.startswith(JPEG):
        return plain_png(raw)
    size = _jpeg_size(raw)
    return Picture("image/jpeg", raw, math.prod(size)) if _has_size(*size) else None


def plain_png(raw: bytes) -> Picture | None:
    """Return the PNG without the chunks that are not shown; ``None`` if it is no PNG, or too large."""
    chunks = _png(raw) if raw.startswith(PNG) else []
    return Picture("image/png", PNG + b"".join(chunks), math.prod(_png_size(raw))) if chunks else None


def decoded_picture(text: str, kind: str) -> Picture | None:
    """Decode base64 and return the plain picture; ``None`` also if its MIME type is not ``kind``."""
    try:
        found = plain_picture(base64.b64decode(text.replace("\n", ""), validate=True))
    except (binascii.Error, ValueError):
        return None
    return found if found and found.kind == kind else None


def _has_size(width: int, height: int) -> bool:
    return 0 < width * height <= MOST_PIXELS


def _png(raw: bytes) -> list[bytes]:
    """Return the chunks that are shown; none if the file is cut off, has no header in front, or is too large."""
    chunks: list[bytes] = []
    at = len(PNG)
    while at + 12 <= len(raw):
        size, kind = struct.unpack_from("!I4s", raw, at)
        end = at + 12 + size
        if not chunks and (kind != b"IHDR" or size != 13 or not _has_size(*_png_size(raw))):
            return []
        if end > len(raw):
            return []
        if kind in SHOWN and not (chunks and kind == b"IHDR"):
            chunks.append(raw[at:end])
        if kind == b"IEND":
            return chunks
        at = end
    return []


def _png_size(raw: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("!II", raw, len(PNG) + 8)
    return width, height


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    """Return width and height; zeros if no segment holds them."""
    at = len(JPEG)
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        kind = raw[at + 1]
        if kind in SIZES:
            height, width = struct.unpack_from("!HH", raw, at + 5)
            return width, height
        if kind == 0xFF:
            at += 1
        else:
            at += 2 if kind in ALONE else 2 + struct.unpack_from("!H", raw, at + 2)[0]
    return 0, 0
