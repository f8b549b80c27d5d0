"""The bank of hostile submissions: every entry writes a submission, made from the released notebook, into a folder.

An entry is a function decorated with ``entry``. Its due is written by hand: points of graded cells (cells not named
are due 0), or a pattern for the reason why it cannot be graded. Nothing here depends on what the checks say.
"""

import copy
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autograder.manifest import MANIFEST

COURSE = Path(__file__).resolve().parents[2]
WEEK = "week3_rope"
CANARY = "hostile_canary"  # part of the names of files and processes that must not be left behind
SCRIPT = "hostile_xss"  # part of scripts and HTML that must not run

HAND, FREQ, ROT = "rotate_by_hand_tests", "rope_frequencies_tests", "apply_rotary_emb_tests"
ATTENTION, HALF, TABLES = "RotaryMultiHeadAttention_tests", "rotate_half_tests", "rotary_tables_tests"

RIGHT_FREQ = """def rope_frequencies(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    return base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)"""
ROT_HEAD = "def apply_rotary_emb(x, positions, base=10000.0):"
ROT_BODY = """
    if x.shape[-1] % 2:
        raise ValueError("odd")
    w = base ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64, device=x.device) / x.shape[-1])
    angle = positions.to(torch.float64)[..., None] * w
    angle = angle[:, None] if positions.ndim == 2 else angle
    c, s = angle.cos(), angle.sin()
    a, b = x[..., 0::2].to(torch.float64), x[..., 1::2].to(torch.float64)
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2).to(x.dtype)"""
RIGHT_ROT = ROT_HEAD + ROT_BODY
WRONG_FREQ = "def rope_frequencies(head_dim, base=10000.0):\n    return torch.ones(head_dim // 2)"
WRONG_ROT = ROT_HEAD + "\n    return x.clone()"
GOOD = {FREQ: 2.0, ROT: 6.0}
ALL = GOOD | {
    HAND: 3.0, "apply_rotary_emb_half_tests": 2.0, "interleaved_to_half_tests": 3.0, ATTENTION: 5.0,
    "bfloat16_positions_tests": 1.0, HALF: 1.0, TABLES: 1.0, "decode_step_scores_tests": 1.0,
    "serving_test_tests": 2.0, "look_back_head_tests": 2.0,
}


@dataclass
class Submission:
    """The released notebook as plain JSON, for an entry to change, and the folder to write to."""

    nb: dict
    folder: Path
    root: Path
    written: bool = False

    def cell(self, name: str) -> dict:
        """Return the cell with this grade_id or cell id."""
        for cell in self.nb["cells"]:
            if cell["metadata"].get("nbgrader", {}).get("grade_id") == name or cell.get("id") == name:
                return cell
        raise KeyError(name)

    def tagged(self, tag: str) -> dict:
        """Return the first cell with this tag: ``experiment`` or ``prediction``."""
        return next(cell for cell in self.nb["cells"] if tag in cell["metadata"].get("tags", []))

    def answer(self, name: str, source: str) -> None:
        self.cell(name)["source"] = source

    def good(self) -> None:
        self.answer("rope_frequencies", RIGHT_FREQ)
        self.answer("apply_rotary_emb", RIGHT_ROT)

    def solve(self) -> None:
        """Answer everything but the texts with the solutions."""
        for name, source in solved(WEEK).items():
            self.answer(name, source)

    def wrong(self, before: str = "", inside: str = "    return x.clone()") -> None:
        """Answer both exercises wrongly; ``before`` runs in the cell, ``inside`` is the body of the rotation."""
        self.answer("rope_frequencies", WRONG_FREQ)
        self.answer("apply_rotary_emb", before + "\n" + ROT_HEAD + "\n" + inside)

    def add(self, source: str, after: str | None = "setup", cell_type: str = "code", **more: object) -> dict:
        """Insert a cell of the student's own; ``after=None`` puts it on top."""
        cell = {"cell_type": cell_type, "metadata": {}, "source": source, "id": f"own-{len(self.nb['cells'])}"}
        if cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
        cell |= more
        place = 0 if after is None else self.nb["cells"].index(self.cell(after)) + 1
        self.nb["cells"].insert(place, cell)
        return cell

    def write(self, name: str = f"{WEEK}.ipynb", data: bytes | str | None = None) -> Path:
        """Write the notebook, or ``data`` in its place."""
        data = json.dumps(self.nb, indent=1) if data is None else data
        path = self.folder / name
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        self.written = True
        return path


@dataclass(frozen=True)
class Entry:
    name: str
    kind: str
    make: Callable[[Submission], None]
    due: dict[str, float] = field(default_factory=dict)
    ungradable: str = ""
    student: str = ""
    by_hand: tuple[str, ...] = ()  # text answers that wait for a person


BANK: list[Entry] = []


def entry(kind: str, due: dict[str, float] | None = None, ungradable: str = "", student: str = "",
          by_hand: tuple[str, ...] = ()) -> Callable:
    """Add ``make(submission)`` to the bank; the student's name is ``student`` or else that of ``make``."""

    def decorate(make: Callable[[Submission], None]) -> Callable[[Submission], None]:
        BANK.append(Entry(make.__name__, kind, make, due or {}, ungradable, student or make.__name__, by_hand))
        return make

    return decorate


def cheat_cell(name: str, source: str) -> None:
    """Add an entry due nothing: wrong answers everywhere, and a cell before them that tries to make them pass."""

    def make(submission: Submission) -> None:
        submission.wrong()
        submission.add(source)

    make.__name__ = name
    entry("cheating")(make)


def cheat_value(name: str, inside: str, before: str = "") -> None:
    """Add an entry due nothing: the rotation returns something crafted."""

    def make(submission: Submission) -> None:
        submission.wrong(before, inside)

    make.__name__ = name
    entry("cheating")(make)


def trouble_cell(kind: str, name: str, source: str) -> None:
    """Add an entry: right answers, and between them a cell that makes trouble, which costs no points."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.add(source, after="rope_frequencies_tests")

    make.__name__ = name
    entry(kind, GOOD)(make)


ATTEMPT = """import os, sys
def attempt(f):
    try:
        print(f())
    except BaseException as error:
        print(type(error).__name__)
"""


def with_root(kind: str, name: str, source: str) -> None:
    """Like ``trouble_cell``, but the student even knows where the course root and the course are."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.add(ATTEMPT + f"root, course = {str(submission.root)!r}, {str(COURSE)!r}\n" + source, after="rope_frequencies_tests")

    make.__name__ = name
    entry(kind, GOOD)(make)


def released() -> dict:
    """Return the notebook as students get it."""
    return json.loads((COURSE / "notebooks" / WEEK / f"{WEEK}.ipynb").read_text(encoding="utf-8"))


def solved(week: str) -> dict[str, str]:
    """Return the solutions' answers to a week's code and number exercises; some of them call others."""
    notebook = json.loads((COURSE / "solutions" / week / f"{week}.ipynb").read_text(encoding="utf-8"))
    sources = {cell["metadata"].get("nbgrader", {}).get("grade_id"): "".join(cell["source"]) for cell in notebook["cells"]}
    return {one.grade_id: sources[one.grade_id] for one in MANIFEST[week] if one.kind != "text"}


def write_entry(item: Entry, released: dict, folder: Path, root: Path) -> None:
    submission = Submission(copy.deepcopy(released), folder, root)
    item.make(submission)
    if not submission.written:
        submission.write()


def load() -> list[Entry]:
    """Return all entries of all files: one per mechanism in the usual part of the tests, the others in the rest."""
    from hostile import cheating, controls, fresh, mess, privacy, resources, writing  # noqa: F401  they fill BANK
    from hostile.core import CORE

    assert {item.make.__name__ for item in BANK} >= CORE, CORE - {item.make.__name__ for item in BANK}
    part = os.environ.get("HOSTILE_PART")
    if only := os.environ.get("HOSTILE_ONLY"):  # a pattern of names, for work on one entry
        BANK[:] = [item for item in BANK if re.search(only, item.make.__name__) or item.make.__name__ == "two_right"]
    elif part in ("usual", "rest"):
        BANK[:] = [item for item in BANK if (item.make.__name__ in CORE) == (part == "usual")]
    names = [item.student for item in BANK]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return BANK
