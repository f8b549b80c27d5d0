"""Fails the build if a link or picture within the site leads nowhere; links to other sites are not followed."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from autograder.errors import CourseError


class _Page(HTMLParser):
    """Collects a page's link targets, and the ids in it that links can lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            elif name == "id" and value:
                self.ids.add(value)


def check_links(site: Path) -> None:
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    broken = [
        f"{path.relative_to(site)}: {target}"
        for path, page in pages.items()
        for target in page.targets
        if not _leads_somewhere(path, target, pages)
    ]
    if broken:
        raise CourseError("links that lead nowhere:\n  " + "\n  ".join(broken))


def _leads_somewhere(path: Path, target: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return parts.scheme in ("https", "http", "data", "mailto")
    place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not place.is_file():
        return False
    fragment = unquote(parts.fragment)
    return not fragment or place not in pages or fragment in pages[place].ids
