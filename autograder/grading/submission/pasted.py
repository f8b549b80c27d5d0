"""Pictures in a student's text: they leave it while a file is read, and come back small into the notebook that is graded.

Editors write a picture in many ways: attachments under any name, data URIs, HTML. From the reading of the file on there is
one, ``![alt](attachment:pasted-picture-3)``, with a name that no other cell's picture has, so that a text may be moved or
joined to another and finds its pictures. What cannot be shown is said in words, in the picture's place.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from nbformat.notebooknode import NotebookNode

from autograder.grading.submission.shrink import Small, Why, shrunk

MOST_PICTURES = 40  # of a notebook
MOST_BYTES = 30 * 2**20  # of one, as base64
MOST_BYTES_IN_ALL = 80 * 2**20
MOST_SHOWN = 15 * 2**20  # on one page, as base64, each as often as the text shows it
MOST_REFERENCES = 500  # to attachments, of a notebook
MAX_SHOWN_NAME = 200
DAMAGED = "its file is damaged; this is what could be read of it"

KEY = "pasted-picture-"
ONE_TOO_MANY = f"{KEY}0"
DATA_URI = re.compile(r"""(?i)(?<![\w-])data:(?=image/|[^\s,()"'<>]{0,100};base64,)[^\s,()"'<>]{0,100},[^\s()"'<>]*""")
NAMED = re.compile(rf"attachment:({KEY}\d+)")
IMG = re.compile(r"(?i)<\u200b?img\b([^<>]{0,4000})>")
ATTRIBUTE = r"""(?i)(?<![\w-])%s\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
DEFINITION = re.compile(rf"(?m)^ {{0,3}}\[([^\[\]\n]+)\]:[ \t]*<?attachment:({KEY}\d+)\b[^\n]*\n?")
LABELLED = re.compile(r"!\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?(?![(\[])")
REST = re.compile(
    rf"\]\(\s*<?attachment:({KEY}\d+)\b[^()\n]*\)"
)  # of a reference, whose beginning is looked for backwards
REFERENCE = re.compile(r"!\[((?:\\.|[^\\\[\]\n]|\[[^\[\]\n]*\])*+)\]\(((?:[^()\n]|\([^()\n]*\))*+)\)")
OURS = re.compile(rf"!\[([^\[\]\n]*)\]\(attachment:({KEY}\d+)\)")
NOT_OURS = re.compile(rf"!(?=\[)(?!\[[^\[\]\n]*\]\(attachment:{KEY}\d+\))")
TITLE = re.compile(r"""\s(?:"[^"\n]*"|'[^'\n]*'|\([^()\n]*\))$""")
WEB = re.compile(r"(?i)(?:https?:)?//")
FILE = re.compile(r"(?i)[^\n]{0,300}\.(?:png|jpe?g|gif|webp|hei[cf]|avif|bmp|tiff?|svg|pdf)$")


class Pasted:
    """The pictures of a notebook as they were handed in: ``name`` and ``data``, or ``why`` there is none, by the name that
    the text has for them."""

    def __init__(self) -> None:
        self.pictures: dict[str, dict[str, str]] = {}
        self._room, self._references = MOST_BYTES_IN_ALL, MOST_REFERENCES

    def without_data(self, text: str) -> str:
        """The text with a name for every picture that it holds itself, as Colab writes them: megabytes in one line."""
        return DATA_URI.sub(lambda found: f"attachment:{self._add('', found.group())}", text)

    def with_references(self, text: str, attachments: object) -> str:
        """The text with plain references to its pictures. An attachment that it does not show comes after its end."""
        pasted = attachments if isinstance(attachments, dict) else {}
        names = {_plain(name): self._add(name, _data(pasted[name])) for name in list(pasted)[:MOST_PICTURES]}
        text = self._renamed(text, names)
        if labels := {found[1].casefold(): found[2] for found in DEFINITION.finditer(text)}:
            text = LABELLED.sub(lambda found: _labelled(found, labels), DEFINITION.sub("", text))
        text = _references(IMG.sub(_markdown_of, text))
        here = dict.fromkeys([*names.values(), *NAMED.findall(text)])
        unseen = [key for key in here if f"](attachment:{key})" not in text]
        if unseen:
            shown = "\n\n".join(_reference(self.pictures[key]["name"], key) for key in unseen)
            text = f"{text}\n\nAttached to this cell, not shown in its text:\n\n{shown}"
        return text

    def _add(self, name: str, data: str) -> str:
        """The name of this picture in the text."""
        if len(self.pictures) >= MOST_PICTURES:
            self.pictures[ONE_TOO_MANY] = {"name": "", "why": Why.MANY.name}
            return ONE_TOO_MANY
        key = f"{KEY}{len(self.pictures) + 1}"
        if len(data) > min(MOST_BYTES, self._room):
            why = Why.BYTES if len(data) > MOST_BYTES else Why.ROOM
            self.pictures[key] = {"name": name, "why": why.name}
        else:
            self._room -= len(data)
            self.pictures[key] = {"name": name, "data": data}
        return key

    def _renamed(self, text: str, names: dict[str, str]) -> str:
        """The text with our names of attachments in place of the editor's, however it has written them."""
        longest = 9 * max(map(len, names), default=0)  # of a letter, each byte may be written as %C3
        parts: list[str] = []
        at = 0
        while names and self._references and (start := text.find("attachment:", at)) >= 0:
            self._references -= 1
            begin = start + len("attachment:")
            near = text[begin : begin + longest + 1]
            ends = [end.start() for end in re.finditer(r"""(?m)[\s()"'<>]|$""", near)][:40]
            parts.append(text[at:begin])
            at = begin
            for end in reversed(ends):
                if key := names.get(_plain(near[:end])):
                    parts.append(key)
                    at = begin + end
                    break
        return "".join([*parts, text[at:]])


def placed(cells: Iterable[NotebookNode], pictures: dict[str, dict[str, str]]) -> list[str]:
    """Put pictures into the cells that have a place for them, and words where that cannot be: a picture from the web would
    tell who reads it when. Returns what a person should know of them."""
    waiting = [cell for cell in cells if "attachments" in cell]
    notes: dict[str, None] = {}
    room = MOST_SHOWN
    known = [_plain(picture["name"]) for picture in pictures.values()]
    by_name = {name: key for name, key in zip(known, pictures, strict=True) if name and known.count(name) == 1}

    def not_shown(name: str, why: Why) -> str:
        picture = f"the picture {_quoted(name)}" if name else "a picture"
        notes[f"{picture} is not shown: {why}"] = None
        return f"**[{picture} is not shown: {why}]**"

    def elsewhere(alt: str, target: str, as_it_stands: str) -> str:
        if target.startswith(f"attachment:{KEY}"):
            return as_it_stands
        if target.startswith("attachment:"):
            name = _plain(target.removeprefix("attachment:"))
            if key := by_name.get(name):  # it stayed behind in another cell
                return _reference(alt, key)
            return not_shown(alt if FILE.match(alt) else name, Why.MISSING)
        if WEB.match(target):
            return not_shown(target, Why.WEB)
        return not_shown(_plain(target), Why.MISSING) if FILE.match(target) else as_it_stands

    def place(cell: NotebookNode, alt: str, key: str) -> str:
        nonlocal room
        picture = pictures.get(key, {"name": "", "why": Why.MISSING.name})
        name = alt if FILE.match(alt) else picture["name"] or alt
        outcome = outcomes[key] if key in outcomes else Why[picture["why"]]
        if isinstance(outcome, Small) and len(outcome.data) > room:
            outcome = Why.ROOM
        if isinstance(outcome, Why):
            return not_shown(name, outcome)
        room -= len(outcome.data)
        cell.attachments[key] = NotebookNode({outcome.kind: outcome.data})
        return f"![{alt}](attachment:{key})" + (f" **[{DAMAGED}]**" if outcome.damaged else "")

    for cell in waiting:
        text = IMG.sub(lambda found: elsewhere(*_source_and_alt(found)[::-1], found.group()), cell.source)
        cell.source = REFERENCE.sub(lambda found: elsewhere(found[1], _target(found[2]), found.group()), text)
    named = dict.fromkeys(found[2] for cell in waiting for found in OURS.finditer(cell.source))
    given = [key for key in named if "data" in pictures.get(key, {})]
    outcomes = dict(zip(given, shrunk([_base64(pictures[key]["data"]) for key in given]), strict=True))
    for cell in waiting:
        text = OURS.sub(lambda found, cell=cell: place(cell, found[1], found[2]), cell.source)  # type: ignore[misc]
        cell.source = NOT_OURS.sub("!\u200b", text)
        if not cell.attachments:
            del cell["attachments"]
    return list(notes)


def _plain(name: str) -> str:
    """A file's name less what Markdown, HTML or an address make of it."""
    unescaped = re.sub(r"\\(.)", r"\1", html.unescape(name))
    return unicodedata.normalize("NFC", unquote(unescaped)).strip()


def _data(bundle: object) -> str:
    """The text of an attachment, whatever type it is filed under."""
    for value in bundle.values() if isinstance(bundle, dict) else ():
        whole = "".join(part for part in value if isinstance(part, str)) if isinstance(value, list) else value
        if isinstance(whole, str):
            return whole
    return ""


def _base64(data: str) -> str:
    """What a data URI holds; other text as it is."""
    return unquote(data.partition(",")[2]) if data[:5].lower() == "data:" else data


def _reference(alt: str, key: str) -> str:
    words = re.sub(r"[\\`]", "", " ".join(alt.split())).replace("[", "(").replace("]", ")")
    return f"![{words[:MAX_SHOWN_NAME]}](attachment:{key})"


def _references(text: str) -> str:
    """The text with our form of every picture or link to one of ours; ``alt`` may hold brackets, even half a pair."""
    parts: list[str] = []
    at = 0
    for rest in REST.finditer(text):
        head = text[at : rest.start()]
        line = head.rfind("\n") + 1
        begin = head.rfind("![", line)
        if begin < 0 or "](" in head[begin:]:
            begin = head.rfind("[", line)
        alt = head[begin:].removeprefix("!")[1:] if begin >= 0 else ""
        parts += [head[:begin] if begin >= 0 else head, _reference(alt, rest[1])]
        at = rest.end()
    return "".join([*parts, text[at:]])


def _labelled(found: re.Match[str], labels: dict[str, str]) -> str:
    key = labels.get((found[2] or found[1]).casefold())
    return _reference(found[1], key) if key else found.group()


def _markdown_of(found: re.Match[str]) -> str:
    """An HTML picture of ours as Markdown."""
    source, alt = _source_and_alt(found)
    key = source.removeprefix("attachment:")
    return _reference(alt, key) if re.fullmatch(rf"{KEY}\d+", key) else found.group()


def _source_and_alt(found: re.Match[str]) -> tuple[str, str]:
    values = [re.search(ATTRIBUTE % name, found[1]) for name in ("src", "alt")]
    source, alt = (html.unescape(next(filter(None, value.groups()), "")) if value else "" for value in values)
    return source.strip(), alt


def _target(text: str) -> str:
    """Where a Markdown picture is, less its title."""
    text = TITLE.sub("", text.strip()).rstrip()
    return text[1:].partition(">")[0] if text.startswith("<") else text


def _quoted(name: str) -> str:
    """As code: nothing in it is Markdown."""
    return f"`{''.join(c for c in name if c.isprintable() and c != '`')[:MAX_SHOWN_NAME]}`"
