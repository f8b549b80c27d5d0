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
MOST_SHOWN = 15 * 2**20  # bytes on one page, as base64; a picture shown twice counts twice
MAX_SHOWN_NAME = 200
DAMAGED = "its file is damaged; this is what could be read of it"

KEY = "pasted-picture-"
ONE_TOO_MANY = f"{KEY}0"
DATA_URI = re.compile(r"""(?i)(?<![\w-])data:(?=image/|[^\s,()"'<>]{0,100};base64,)[^\s,()"'<>]{0,100},[^\s()"'<>]*""")
NAMED = re.compile(rf"attachment:({KEY}\d+)")
IMG = re.compile(r"(?i)<img\b([^<>]{0,4000})>")
ATTRIBUTE = r"""(?i)(?<![\w-])%s\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
# A picture or a link: `!` or nothing, the words, the address and title. A bracket without its pair is not looked for.
REFERENCE = re.compile(r"(!?)(?<!\\)\[((?:\\.|[^\\\[\]\n]|\[[^\[\]\n]*\](?!\())*+)\]\(((?:[^()\n]|\([^()\n]*\))*+)\)")
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

    def without_data(self, text: str) -> str:
        """Replace pictures embedded in the text, as Colab writes them (megabytes in one line), by references."""
        return DATA_URI.sub(lambda found: f"attachment:{self._add('', found.group())}", text)

    def with_references(self, text: str, attachments: object) -> str:
        """Return the text with plain references to its pictures. Attachments that it does not show follow it."""
        pasted = attachments if isinstance(attachments, dict) else {}
        names = {_plain(name): self._add(name, _data(pasted[name])) for name in list(pasted)[:MOST_PICTURES]}
        embedded = [key for key in NAMED.findall(text) if key in self.pictures.keys() - names.keys()]
        here = dict.fromkeys([*names.values(), *embedded])

        def named(found: re.Match[str]) -> str:
            target = _target(found[3]).removeprefix("attachment:")
            key = names.get(_plain(target), target)
            return _reference(found[2], key) if key in here else found.group()

        text = REFERENCE.sub(named, IMG.sub(_as_markdown, text))
        if unseen := here.keys() - {key for _, key in OURS.findall(text)}:
            shown = "\n\n".join(_reference(self.pictures[key]["name"], key) for key in here if key in unseen)
            text = f"{text}\n\nAttached to this cell, not shown in its text:\n\n{shown}"
        return text

    def _add(self, name: str, data: str) -> str:
        """Add a picture and return the key by which the text refers to it."""
        if len(self.pictures) >= MOST_PICTURES:
            self.pictures[ONE_TOO_MANY] = {"name": "", "why": Why.MANY.name}
            return ONE_TOO_MANY
        key = f"{KEY}{len(self.pictures) + 1}"
        self.pictures[key] = {"name": name} | ({"data": data} if len(data) <= MOST_BYTES else {"why": Why.BYTES.name})
        return key


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

    def elsewhere(found: re.Match[str]) -> str:
        alt, target = found[2], _target(found[3])
        if not found[1] or target.startswith(f"attachment:{KEY}"):
            return found.group()
        if target.startswith("attachment:"):
            name = _plain(target.removeprefix("attachment:"))
            if key := by_name.get(name):  # its attachment stayed in another cell
                return _reference(alt, key)
            return not_shown(alt if FILE.match(alt) else name, Why.MISSING)
        if WEB.match(target):
            return not_shown(target, Why.WEB)
        return not_shown(_plain(target), Why.MISSING) if FILE.match(target) else found.group()

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
        cell.source = REFERENCE.sub(elsewhere, cell.source)
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
    return f"![{_words(alt)}](attachment:{key})"


def _words(alt: str) -> str:
    return re.sub(r"[\\`]", "", " ".join(alt.split())).replace("[", "(").replace("]", ")")[:MAX_SHOWN_NAME]


def _as_markdown(found: re.Match[str]) -> str:
    """Return an HTML picture as Markdown."""
    values = [re.search(ATTRIBUTE % name, found[1]) for name in ("src", "alt")]
    source, alt = (html.unescape(next(filter(None, value.groups()), "")) if value else "" for value in values)
    return f"![{_words(alt)}]({source.strip()})"


def _target(text: str) -> str:
    """Return the address of a Markdown picture without its title."""
    text = TITLE.sub("", text.strip()).rstrip()
    return text[1:].partition(">")[0] if text.startswith("<") else text


def _quoted(name: str) -> str:
    """Return a name as inline code, so that nothing in it acts as Markdown."""
    return f"`{''.join(c for c in name if c.isprintable() and c != '`')[:MAX_SHOWN_NAME]}`"
