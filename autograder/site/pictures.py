"""Pictures from the notebooks, each stored once as a file named by its content."""

import base64
import hashlib
import html
import re
import struct
from pathlib import Path

from autograder.site.markdown import raw

EMBEDDED = re.compile(r'src="data:image/png;base64,(?P<png>[A-Za-z0-9+/=]+)"')
IMAGE = re.compile(r'<img [^>]*?src="(?P<address>[^"]+)"[^>]*>')


class Pictures:
    """A folder of the site, and its address from the pages that show the pictures."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._address = folder, address
        folder.mkdir(parents=True, exist_ok=True)

    def block(self, content: str) -> str:
        """A picture of a notebook as Markdown for the site. A still picture links to its full size."""
        stored = self.stored(content)
        if "data-lab" not in stored:
            stored = IMAGE.sub(r'<a href="\g<address>">\g<0></a>', stored)
        return raw(f'<div class="picture">{stored}</div>')

    def file(self, path: Path, words: str) -> str:
        """A picture of the repository as Markdown for the site."""
        (self._folder / path.name).write_bytes(path.read_bytes())
        image = f'<img alt="{html.escape(words)}" src="{self._address}/{path.name}" loading="lazy">'
        return self.block(image)

    def stored(self, content: str) -> str:
        """The same HTML with files in place of embedded pictures; sizes are given, so that the page does not jump."""
        return EMBEDDED.sub(lambda found: self._store(base64.b64decode(found["png"])), content)

    def _store(self, png: bytes) -> str:
        name = f"{hashlib.sha256(png).hexdigest()[:16]}.png"
        (self._folder / name).write_bytes(png)
        width, height = struct.unpack(">II", png[16:24])  # the first chunk of every PNG
        return f'src="{self._address}/{name}" width="{width}" height="{height}" loading="lazy"'
