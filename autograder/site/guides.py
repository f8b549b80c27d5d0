"""The guides: docs/*.md, CONTRIBUTING.md and SECURITY.md, with links that resolve on the site."""

import re
from pathlib import Path

from autograder.public_address import PublicAddress
from autograder.site.pictures import Pictures

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<target>[^)\s]+)\)")
# Marks above a fence, and remarks after a command: tests/documents.py reads both.
MARK = re.compile(r"\s*<!-- (?P<kind>[^:>]+?)(?: for [^:>]+)?(?:: .*)? -->\s*")
REMARK = re.compile(r"\s+# needs: .*$")
FENCE = re.compile(r"(?P<indent> *)```(?P<language>\S*)\s*")
NO_COMMANDS = {"file", "added to", "example"}
FIRST = ("instructors", "own-assignments", "lms", "jupyterhub", "postgresql", "cluster", "authoring", "architecture")
PICTURE = re.compile(r"^!\[(?P<words>[^\]]*)\]\((?P<path>[^)\s]+)\)$", re.MULTILINE)


def guides(root: Path) -> tuple[str, ...]:
    """The guides' paths in the repository: those of docs/, about teaching first, and the two beside README.md."""
    names = sorted(path.stem for path in (root / "docs").glob("*.md"))
    ordered = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    return (*(f"docs/{name}.md" for name in ordered), "CONTRIBUTING.md", "SECURITY.md")


def slug(guide: str) -> str:
    return Path(guide).stem.lower()


def guide_page(root: Path, guide: str, address: PublicAddress, pictures: Pictures) -> str:
    """Markdown for the site: links to guides stay within it, links to other files lead to the repository."""
    others = guides(root)
    folder = (root / guide).parent

    def follow(found: re.Match[str]) -> str:
        path, _, fragment = found["target"].partition("#")
        if not path or "://" in path:
            return found[0]
        place = (folder / path).resolve().relative_to(root).as_posix()
        if place in others:
            title = (root / place).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            words = title if found["text"].endswith(".md") else found["text"]  # a site has pages, not files
            return f"[{words}]({slug(place)}.md{f'#{fragment}' if fragment else ''})"
        return f"[{found['text']}]({address.page(place)})" if address else found["text"]

    text = LINK.sub(follow, _for_readers((root / guide).read_text(encoding="utf-8")))
    return PICTURE.sub(lambda found: pictures.file(folder / found["path"], found["words"]), text)


def _for_readers(text: str) -> str:
    """Remove the marks and remarks for tests; mark a fence without a language as commands, or as its mark says."""
    lines: list[str] = []
    kind, inside = "", False
    for line in text.splitlines():
        if found := FENCE.fullmatch(line):
            if not inside and not found["language"]:
                line += "text" if kind in NO_COMMANDS else "bash"
            inside, kind = not inside, ""
        elif inside:
            line = REMARK.sub("", line)
        elif mark := MARK.fullmatch(line):
            kind = mark["kind"]
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"
