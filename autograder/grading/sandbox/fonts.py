"""matplotlib's list of fonts, for the sandbox. Without one, matplotlib opens every font of the machine at every start.
That takes a quarter of a second with forty fonts and seconds with a thousand."""

import json
import os
from pathlib import Path


def known_fonts() -> tuple[str, str] | None:
    """Return the newest list that matplotlib has made for this user, with only its own fonts and those in /usr: the
    file's name, which includes the version of the format, and its text. ``None`` if there is no such list."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("MPLCONFIGDIR") or Path(cache) / "matplotlib")
    try:
        newest = max(folder.glob("fontlist-v*.json"), key=lambda path: path.stat().st_mtime)
        fonts = json.loads(newest.read_text(encoding="utf-8"))
        for kind in ("ttflist", "afmlist"):
            fonts[kind] = [font for font in fonts[kind] if _is_everybodys(font["fname"])]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return newest.name, json.dumps(fonts)


def _is_everybodys(path: str) -> bool:
    return not os.path.isabs(path) or path.startswith("/usr/")  # matplotlib's own have a relative path
