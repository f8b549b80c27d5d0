"""Pictures out of the notebooks: each stored once, as a file named by its content."""

import base64
import hashlib
import re
import struct
from pathlib import Path

from autograder.site.markdown import raw

EMBEDDED = re.compile(r'src="data:image/png;base64,(?P<png>[A-Za-z0-9+/=]+)"')


class Pictures:
    """A folder of the site, and its address from the pages that show the pictures."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._address = folder, address
        folder.mkdir(parents=True, exist_ok=True)

    def block(self, html: str) -> str:
        """A picture of a notebook as Markdown for the site."""
        return raw(f'<div class="picture">{self.stored(html)}</div>')

    def stored(self, html: str) -> str:
        """The same HTML with files in place of embedded pictures; their sizes are given, so that nothing jumps."""
        return EMBEDDED.sub(lambda found: self._store(base64.b64decode(found["png"])), html)

    def _store(self, png: bytes) -> str:
        name = f"{hashlib.sha256(png).hexdigest()[:16]}.png"
        (self._folder / name).write_bytes(png)
        width, height = struct.unpack(">II", png[16:24])  # the first chunk of every PNG
        return f'src="{self._address}/{name}" width="{width}" height="{height}" loading="lazy"'
