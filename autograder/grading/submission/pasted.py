"""Pictures in a student's text: taken out when the file is read, and put back, made small, into the notebook to grade.

Editors write a picture in many ways: attachments under any name, data URIs, HTML. Reading the file turns them all into
``![alt](attachment:pasted-picture-3)``, with a key that is unique in the notebook, so that a text keeps its pictures
when it is moved or joined to another. A picture that cannot be shown is replaced by words that say why.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from nbformat.notebooknode import NotebookNode

from autograder.grading.submission.shrink import Small, Why, shrunk

MOST_PICTURES = 40  # in a notebook
MOST_BYTES = 30 * 2**20  # of one picture, as base64
MOST_BYTES_IN_ALL = 80 * 2**20
MOST_SHOWN = 15 * 2**20  # bytes on one page, as base64; a picture shown twice counts twice
MOST_REFERENCES = 500  # to attachments, in a notebook
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
)  # the end of a reference; its beginning is searched for backwards from here
REFERENCE = re.compile(r"!\[((?:\\.|[^\\\[\]\n]|\[[^\[\]\n]*\])*+)\]\(((?:[^()\n]|\([^()\n]*\))*+)\)")
OURS = re.compile(rf"!\[([^\[\]\n]*)\]\(attachment:({KEY}\d+)\)")
NOT_OURS = re.compile(rf"!(?=\[)(?!\[[^\[\]\n]*\]\(attachment:{KEY}\d+\))")
TITLE = re.compile(r"""\s(?:"[^"\n]*"|'[^'\n]*'|\([^()\n]*\))$""")
WEB = re.compile(r"(?i)(?:https?:)?//")
FILE = re.compile(r"(?i)[^\n]{0,300}\.(?:png|jpe?g|gif|webp|hei[cf]|avif|bmp|tiff?|svg|pdf)$")


class Pasted:
    """The pictures of a notebook as submitted, by the key that the text uses: ``name``, and either ``data`` or ``why``
    the picture cannot be shown."""

    def __init__(self) -> None:
        self.pictures: dict[str, dict[str, str]] = {}
        self._room, self._references = MOST_BYTES_IN_ALL, MOST_REFERENCES

    def without_data(self, text: str) -> str:
        """Replace pictures embedded in the text, as Colab writes them (megabytes in one line), by references."""
        return DATA_URI.sub(lambda found: f"attachment:{self._add('', found.group())}", text)

    def with_references(self, text: str, attachments: object) -> str:
        """Return the text with plain references to its pictures. Attachments that it does not show follow it."""
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
        """Add a picture and return the key by which the text refers to it."""
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
        """Replace the editor's names of attachments in the text by ours, however they are escaped."""
        longest = 9 * max(map(len, names), default=0)  # each of a letter's three bytes may be written like %C3
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
    """Put pictures into the cells that take them, and words in place of those that cannot be shown. A picture from the
    web is not loaded: it would report who reads the page, and when. Returns notes for a person."""
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
            if key := by_name.get(name):  # its attachment stayed in another cell
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
    """Return a file's name without the escapes of Markdown, HTML and URLs."""
    unescaped = re.sub(r"\\(.)", r"\1", html.unescape(name))
    return unicodedata.normalize("NFC", unquote(unescaped)).strip()


def _data(bundle: object) -> str:
    """Return the data of an attachment, whatever MIME type it is stored under."""
    for value in bundle.values() if isinstance(bundle, dict) else ():
        whole = "".join(part for part in value if isinstance(part, str)) if isinstance(value, list) else value
        if isinstance(whole, str):
            return whole
    return ""


def _base64(data: str) -> str:
    """Return the content of a data URI; other text unchanged."""
    return unquote(data.partition(",")[2]) if data[:5].lower() == "data:" else data


def _reference(alt: str, key: str) -> str:
    words = re.sub(r"[\\`]", "", " ".join(alt.split())).replace("[", "(").replace("]", ")")
    return f"![{words[:MAX_SHOWN_NAME]}](attachment:{key})"


def _references(text: str) -> str:
    """Rewrite each picture and link that refers to one of our keys in our form. ``alt`` may hold unpaired brackets."""
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
    """Return an HTML picture as Markdown if it refers to one of our keys; otherwise unchanged."""
    source, alt = _source_and_alt(found)
    key = source.removeprefix("attachment:")
    return _reference(alt, key) if re.fullmatch(rf"{KEY}\d+", key) else found.group()


def _source_and_alt(found: re.Match[str]) -> tuple[str, str]:
    values = [re.search(ATTRIBUTE % name, found[1]) for name in ("src", "alt")]
    source, alt = (html.unescape(next(filter(None, value.groups()), "")) if value else "" for value in values)
    return source.strip(), alt


def _target(text: str) -> str:
    """Return the address of a Markdown picture without its title."""
    text = TITLE.sub("", text.strip()).rstrip()
    return text[1:].partition(">")[0] if text.startswith("<") else text


def _quoted(name: str) -> str:
    """Return a name as inline code, so that nothing in it acts as Markdown."""
    return f"`{''.join(c for c in name if c.isprintable() and c != '`')[:MAX_SHOWN_NAME]}`"
