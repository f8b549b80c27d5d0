"""Pictures of a student's as people may look at them: PNG and JPEG, and none that a browser would unpack into gigabytes."""

import base64
import binascii
import math
import struct
from dataclasses import dataclass

MOST_PIXELS = 2**25
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
SHOWN = frozenset({b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"sRGB", b"pHYs", b"IDAT", b"IEND"})  # neither text nor frames
SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG's segments that say how large the picture is
ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # its segments without a length


@dataclass(frozen=True)
class Picture:
    """MIME type, bytes, and what it counts for among others: its bytes, and a byte for 32 pixels."""

    kind: str
    raw: bytes
    pixels: int

    @property
    def cost(self) -> int:
        return len(self.raw) + self.pixels // 32


def plain_picture(raw: bytes) -> Picture | None:
    """A picture less what is not shown of it; ``None`` if it is none, or too large."""
    if not raw.startswith(JPEG):
        return plain_png(raw)
    size = _jpeg_size(raw)
    return Picture("image/jpeg", raw, math.prod(size)) if _has_size(*size) else None


def plain_png(raw: bytes) -> Picture | None:
    """The same of a PNG alone."""
    chunks = _png(raw) if raw.startswith(PNG) else []
    return Picture("image/png", PNG + b"".join(chunks), math.prod(_png_size(raw))) if chunks else None


def decoded_picture(text: str, kind: str) -> Picture | None:
    """The same from base64, if it is of that MIME type."""
    try:
        found = plain_picture(base64.b64decode(text.replace("\n", ""), validate=True))
    except (binascii.Error, ValueError):
        return None
    return found if found and found.kind == kind else None


def _has_size(width: int, height: int) -> bool:
    return 0 < width * height <= MOST_PIXELS


def _png(raw: bytes) -> list[bytes]:
    """The chunks that are shown; none if there is no header in front, or too large a one."""
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
    """Width and height; none where the segments end before they have said it."""
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
