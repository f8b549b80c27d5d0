"""Decode a student's pictures and make them small, each in a fork of its own with limits on memory and time.

`shrink.py` starts this file, under bubblewrap where that is available. It imports only the standard library, Pillow and
the sandbox's `isolation`. It reads a JSON list of base64 texts and writes a line of JSON for each.
"""

import base64
import io
import json
import os
import resource
import sys
from typing import Any

from isolation import close_walls, make_dumpable, set_limits  # from sandbox/worker
from PIL import Image, ImageFile, ImageOps

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
PHOTOS = ("JPEG", "MPO")  # a phone's JPEG with a second picture, for depth, is an MPO
SIDE = 1600  # pixels of the longer side
MOST_PIXELS = 2**26  # unpacked, at four bytes each
MOST_PIXELS_OF_PHOTOS = 2**28  # before a JPEG is told to unpack smaller: some phones take 200 million
MOST_PNG = 2**19  # bytes
MOST_COLOURS = 2**14  # in a drawing; a picture with more is a photo, slow to compress without loss
QUALITY = 80
CPU_SECONDS = 10  # for one picture
ALL_CPU_SECONDS = 30  # for all pictures of a notebook; the last one started may still take its CPU_SECONDS
LIMITS: dict[str, Any] = {"memory": 2**30, "cpu_seconds": CPU_SECONDS, "file_size": 2**26, "processes": 64}
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

Image.init()  # before the forks; `open` alone would know only five formats
Image.MAX_IMAGE_PIXELS = None  # `small` has limits of its own


def small(raw: bytes, ends_early: bool = False) -> dict[str, str]:
    """Return kind and base64 text of the picture, upright, on white and without metadata, or why there is none.

    A file that ``ends_early`` is shown as far as it goes.
    """
    ImageFile.LOAD_TRUNCATED_IMAGES = ends_early
    try:
        with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
            is_photo = image.format in PHOTOS
            if image.width * image.height > (MOST_PIXELS_OF_PHOTOS if is_photo else MOST_PIXELS):
                return {"why": "PIXELS"}
            image.draft(None, (2 * SIDE, 2 * SIDE))  # None keeps the colours
            if image.width * image.height > MOST_PIXELS:
                return {"why": "PIXELS"}
            image.load()
            kind, data = _encoded(_on_white(image), is_photo)
    except MemoryError:
        return {"why": "COSTLY"}
    except OSError:
        return {"why": _what_it_is(raw)} if ends_early else small(raw, ends_early=True)
    except Exception:  # crafted bytes can make the decoders raise anything
        return {"why": _what_it_is(raw)}
    return {"kind": kind, "data": base64.b64encode(data).decode(), "damaged": "yes" if ends_early else ""}


def _on_white(image: Image.Image) -> Image.Image:
    """Return the first frame, small and upright, as a new picture without anything else from the file."""
    if image.mode.startswith(("I", "F")):  # a 16-bit scan: converting it directly would clip, not scale
        image = image.convert("F")
        extremes: Any = image.getextrema()  # lowest and highest of its one channel
        scale = 255 / max(extremes[1], 1)
        image = image.point(lambda grey: grey * scale + 0)
    has_holes = image.has_transparency_data
    turned = ImageOps.exif_transpose(image)
    plain = turned.convert("RGBA" if has_holes else "RGB")
    plain.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    page = Image.new("RGB", plain.size, "white")
    page.paste(plain, mask=plain if has_holes else None)
    return page


def _encoded(image: Image.Image, is_photo: bool) -> tuple[str, bytes]:
    """Encode a photo as JPEG; drawings and screenshots stay sharp as PNG, unless that takes too many bytes."""
    if not is_photo and image.getcolors(MOST_COLOURS):
        file = io.BytesIO()
        image.save(file, "PNG")
        if file.tell() <= MOST_PNG:
            return "image/png", file.getvalue()
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY)
    return "image/jpeg", file.getvalue()


def _what_it_is(raw: bytes) -> str:
    """Return the reason why a file cannot be shown, judged by its first bytes."""
    if raw[4:8] == b"ftyp" and raw[8:12] in HEIC:
        return "HEIC"
    if raw.lstrip()[:5] == b"%PDF-":
        return "PDF"
    return "SVG" if b"<svg" in raw[:1000].lower() else "UNREADABLE"


def _raw(text: str) -> bytes:
    """Decode base64 text, which may be wrapped and lack its padding. Other text is encoded as it is."""
    packed = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except ValueError:
        return text.encode("utf-8", "replace")


def main() -> None:
    """Shrink the pictures from stdin. With ``isolated`` as argument, each fork locks itself down like student code."""
    isolated = sys.argv[1] == "isolated"
    pictures = json.load(sys.stdin)
    set_limits(LIMITS | {"memory": 0, "cpu_seconds": 10 * ALL_CPU_SECONDS})  # for this process, which sees only base64
    make_dumpable(False)  # otherwise a fork could write into this process
    for number, text in enumerate(pictures):
        if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > ALL_CPU_SECONDS:
            break
        pid = os.fork()
        if pid == 0:
            try:
                set_limits(LIMITS)
                if isolated:
                    close_walls(LIMITS, "cpu")
                line = json.dumps({"number": number} | small(_raw(text)))
                os.write(1, f"\n{line}\n".encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
