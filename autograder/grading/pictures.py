"""Students' pictures, made safe to show: PNG and JPEG only, and none that a browser would unpack into gigabytes."""

import base64
import io
from dataclasses import dataclass

MOST_PIXELS = 2**25
PNG = b"\x89PNG\r\n\x1a\n"
SHOWN = frozenset({b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"sRGB", b"pHYs", b"IDAT", b"IEND"})  # no text, no frames


@dataclass(frozen=True)
class Picture:
    """A picture: MIME type, bytes, and its ``cost`` in a budget, which is its bytes plus one for every 32 pixels."""

    kind: str
    raw: bytes
    pixels: int

    @property
    def cost(self) -> int:
        return len(self.raw) + self.pixels // 32


def plain_png(raw: bytes) -> Picture | None:
    """Return the PNG without the chunks that are not shown; ``None`` if it is no PNG, cut off, or too large."""
    at = len(PNG)
    pixels = int.from_bytes(raw[at + 8 : at + 12]) * int.from_bytes(raw[at + 12 : at + 16])
    if not raw.startswith(PNG + b"\0\0\0\x0dIHDR") or not 0 < pixels <= MOST_PIXELS:
        return None
    kept = [PNG]
    while at + 12 <= len(raw):
        kind, end = raw[at + 4 : at + 8], at + 12 + int.from_bytes(raw[at : at + 4])
        if kind in SHOWN and (kind != b"IHDR" or len(kept) == 1):
            kept.append(raw[at:end])
        if kind == b"IEND" and end <= len(raw):
            return Picture("image/png", b"".join(kept), pixels)
        at = end
    return None


def plain_jpeg(raw: bytes) -> Picture | None:
    """Return the JPEG as it is; ``None`` if it is no JPEG, or too large."""
    from PIL import Image  # a judge, which gets only PNG, does without

    try:
        with Image.open(io.BytesIO(raw), formats=["JPEG"]) as image:  # reads no more than the header
            pixels = image.width * image.height
    except Exception:  # crafted bytes can make it raise anything
        return None
    return Picture("image/jpeg", raw, pixels) if 0 < pixels <= MOST_PIXELS else None


def decoded_picture(text: str, kind: str) -> Picture | None:
    """Decode base64 and return the plain picture; ``None`` if it is not of this MIME type, PNG or JPEG."""
    plain = {"image/png": plain_png, "image/jpeg": plain_jpeg}.get(kind)
    try:
        return plain(base64.b64decode(text.replace("\n", ""), validate=True)) if plain else None
    except ValueError:
        return None
