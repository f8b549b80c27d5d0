"""A second round of attacks, written without reading the first: each entry is of a different kind than its neighbours.

Attacks that need exercises of other weeks are in other_weeks.py: functions and models that a check lends, switches of torch.
"""

import base64
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from hostile.bank import (
    ATTENTION,
    CANARY,
    FREQ,
    GOOD,
    HALF,
    HAND,
    RIGHT_ROT,
    ROT,
    ROT_HEAD,
    SCRIPT,
    TABLES,
    WEEK,
    Submission,
    cheat_value,
    entry,
    trouble_cell,
)

TEXT = "relative_proof"
BOMB = zlib.compress(b"\0" * 2**26)  # small, but 64 MB of black when unpacked


def png(pixels: bytes = zlib.compress(bytes(5))) -> str:
    """Return a PNG of one pixel as base64, with ``pixels`` as its compressed data."""
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body))

    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack("!IIBBBBB", 1, 1, 8, 6, 0, 0, 0))
    return base64.b64encode(raw + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")).decode()


def in_the_text(name: str, text: str, pictures: dict | None = None) -> None:
    """Add an entry: right answers, and ``text`` as the answer that a person reads."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.answer(TEXT, text)
        if pictures is not None:
            submission.cell(TEXT)["attachments"] = pictures

    make.__name__ = name
    entry("writing", GOOD, by_hand=(TEXT,))(make)


def as_file(name: str, data: Callable[[dict], bytes | str], ungradable: str = "") -> None:
    """Add an entry: right answers, in a file whose content is ``data(notebook)``."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.write(data=data(submission.nb))

    make.__name__ = name
    entry("mess", {} if ungradable else GOOD, ungradable)(make)


def called(name: str, student: str) -> None:
    """Add an entry: right answers from a student of this name."""

    def make(submission: Submission) -> None:
        submission.good()

    make.__name__ = name
    entry("mess", GOOD, student=student)(make)


# ---- values that lie ------------------------------------------------------------------------------------------------

IN_PLACE = {FREQ: 2.0, ROT: 5.5}  # changing an argument in place costs the last criterion


def in_place(name: str, spoil: str) -> None:
    def make(submission: Submission) -> None:
        submission.good()
        submission.answer("apply_rotary_emb", f"{RIGHT_ROT.replace('def apply_rotary_emb', 'def turned')}\n"
                                              f"{ROT_HEAD}\n    out = turned(x, positions, base)\n    with torch.no_grad():\n        {spoil}\n    return out")

    make.__name__ = name
    entry("cheating", IN_PLACE)(make)


in_place("in_place_seen", "x.zero_()")
in_place("in_place_by_set", "x.set_(x.new_zeros(1))")

cheat_value("an_error_called_broken_check", "    class BrokenCheck(Exception): pass\n    BrokenCheck.__module__ = 'autograder.errors'\n    raise BrokenCheck('x')")
cheat_value("an_error_with_a_long_family", "    t = Exception\n    for n in range(300): t = type(f'E{n}' * 50, (t,), {})\n    raise t('x' * 10**6)")


@entry("cheating", {HAND: 0.0})
def hand_of_intervals(submission: Submission) -> None:
    submission.wrong()
    submission.answer("rotate_by_hand", "class R(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\n    __eq__ = lambda s, o: True\n    __hash__ = float.__hash__\n"
                                        "rotate_by_hand = dict.fromkeys(('q3_0','q3_1','k1_0','k1_1','score_3_1','score_12_10'), R('nan'))")


@entry("cheating", {TABLES: 0.0, HALF: 0.0, ATTENTION: 0.0})
def module_of_nothing(submission: Submission) -> None:
    submission.answer("RotaryMultiHeadAttention", """class RotaryMultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
    def state_dict(self, *a, **k): return {n + "_proj.weight": torch.zeros(12, 12) for n in "qkvo"}
    def named_parameters(self, *a, **k): return [(n + "_proj.weight", nn.Parameter(torch.zeros(12, 12))) for n in "qkvo"]
    def load_state_dict(self, *a, **k): pass
    def to(self, *a): return self
    def forward(self, x, positions=None, is_causal=False):
        if x.shape[-1] % 4: raise ValueError
        return x""")


# ---- text that means to be more -------------------------------------------------------------------------------------

PIXEL = {"p.png": {"image/png": png()}}
in_the_text("picture_from_the_web_by_reference", f"See ![x](attachment:p.png\n\n[x]: https://example.invalid/{SCRIPT}.png", PIXEL)
in_the_text("heading_as_score_box", "\n\n".join(f"# {name}\n\n{name}\n===\n\n###### {name} {{#{name}}}" for name in (ROT, TEXT, "score", "notebook-container", "top")))
in_the_text("formula_over_the_page", r"$\hspace{-9999em}\raise{99em}{\text{100 of 100 points}}$ $\rule{9999em}{9999em}$ $\mathcolor{red}{\href{javascript:hostile_xss}{x}}$")
in_the_text("quotes_in_quotes", ">" * 3000 + " x\n\n" + "\n".join(" " * (2 * n) + "- x" for n in range(400)))
in_the_text("brackets_storm", "[" * 60_000 + "](" * 20_000)
in_the_text("fence_without_end", "```" * 1 + SCRIPT + '" onload="x\n' + "~~~\n```x\n" * 5_000)
in_the_text("other_encodings", f"+ADw-script+AD4-{SCRIPT}+ADw-/script+AD4- \uff1cscript\uff1e{SCRIPT} %3Cscript%3E &amp;lt;script&amp;gt; \u2028<\u2028script> "
                               f"<\u00adscript>{SCRIPT} &\u200d#60;script> \\<script\\>{SCRIPT} <!--><script>{SCRIPT}--> <![CDATA[<script>{SCRIPT}]]> <?php {SCRIPT} ?> <%= {SCRIPT} %>")
in_the_text("bytes_nobody_prints", "a\x00b\x1b[31mc\x1b]8;;javascript:hostile_xss\x07d\x85e\ufffff\U0010ffffg\ue000h\u202ei\u2066j\u200fk\x0bl\x0cm\x08n")
in_the_text("alt_text_with_markup", f'![a" onerror="{SCRIPT}](attachment:p.png "t\\" onload=\\"{SCRIPT}") ![](attachment:p.png)<style>{SCRIPT}', PIXEL)
in_the_text("pictures_in_the_text_itself", "\n\n".join([
    f"![a\" onerror=\"{SCRIPT}](data:image/png;base64,{png()}\"onerror={SCRIPT})", f"<img src='data:image/png;base64,{png()}' onerror={SCRIPT}()>",
    f"![b](data:image/svg+xml;base64,{base64.b64encode(f'<svg onload={SCRIPT}()/>'.encode()).decode()})", f"![c](data:image/svg+xml,<svg onload={SCRIPT}()>)",
    f"[d](data:text/html;base64,{base64.b64encode(f'<script>{SCRIPT}()</script>'.encode()).decode()})", f"![][e]\n\n[e]: <data:image/png;base64,{png()}> 'x\" onload=\"{SCRIPT}'",
    f"![`{SCRIPT}`<script>{SCRIPT}</script>.png](attachment:<script>.png)"]))


def shown_in_an_experiment(name: str, *outputs: dict) -> None:
    def make(submission: Submission) -> None:
        submission.good()
        submission.tagged("experiment")["outputs"] = list(outputs)

    make.__name__ = name
    entry("writing", GOOD)(make)


def picture(image: object, **more: object) -> dict:
    return {"output_type": "display_data", "metadata": {"image/png": {"width": f'1" onload="{SCRIPT}', "height": 10**9}}, "data": {"image/png": image} | more}


shown_in_an_experiment("alt_of_a_saved_picture", picture(png(), **{"text/html": [f'<img alt="&quot; onload=&quot;{SCRIPT}', f' &lt;script&gt;{SCRIPT}" src="x">']}))
shown_in_an_experiment("picture_that_is_a_bomb", picture(png(BOMB)))


def with_cell(name: str, source: str, kind: str = "writing") -> None:
    trouble_cell(kind, name, source)


with_cell("code_slow_to_colour", '"""a"""\n' + " \n" * 2_500)
with_cell("prints_escapes", "print('\\x1b[38;5;999m' * 3000, '\\x1b]8;;javascript:hostile_xss\\x07x', '\\x1b[' + '1;' * 9000 + 'm', '\\x1b[?1049h\\r\\b\\x9b31m<script>hostile_xss</script>')")
with_cell("prints_lone_surrogates", "print('\\ud800' * 100, '\\udcff', '\\x00\\uffff')\nraise ValueError('\\ud800<script>hostile_xss')")

# ---- what the machine has -------------------------------------------------------------------------------------------

with_cell("pipes_full", """import os, fcntl
for _ in range(100):
    try:
        r, w = os.pipe(); os.set_blocking(w, False)
        try: fcntl.fcntl(w, 1031, 2**20)
        except OSError: pass
        while os.write(w, bytes(2**16)): pass
    except OSError: pass""", "resources")
with_cell("tmpfs_full", f"""import os
for folder in ('/tmp', '/dev/shm', '.'):
    try:
        with open(folder + '/{CANARY}', 'wb') as f:
            for _ in range(100): f.write(bytes(2**20))
    except OSError: pass
    try:
        for n in range(6000): open(f'{{folder}}/{CANARY}{{n}}', 'w').close()
    except OSError: pass""", "resources")
with_cell("priority_and_place", "import os\nfor call in (lambda: os.nice(-10), lambda: os.sched_setaffinity(0, {0}), lambda: os.setpriority(os.PRIO_PROCESS, 0, -20), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))):\n    try: call()\n    except OSError: pass", "resources")

with_cell("looks_around", """import os, sys, glob
print('ROOT', os.listdir('/'), 'CWD', os.getcwd(), os.listdir('.'))
print('ENV', dict(os.environ))
print('HOST', os.uname(), 'ARGV', sys.argv, sys.path, sys.executable)
for p in ('/home', '/root', '/work', '/etc', '/run', '/var', '/sys', '/proc', '/tmp', '/mnt', '/opt', '/dev', '/srv'):
    try: print(p, os.listdir(p)[:40])
    except OSError as e: print(p, e.strerror)""", "privacy")

# ---- files and folders ----------------------------------------------------------------------------------------------

FORGED = {"autograder": {"kept": {"scores": {ROT: 6.0}, "waiting": [], "reason": ""}}}
as_file("json_with_keys_twice", lambda nb: f'{json.dumps(nb)[:-1]}, "nbformat": 4, "metadata": {json.dumps(FORGED)}}}')
as_file("gzip_of_it", lambda nb: zlib.compress(json.dumps(nb).encode()), ungradable=".")
as_file("version_of_the_future", lambda nb: json.dumps(nb | {"nbformat": 99, "nbformat_minor": "x", "metadata": []}))
as_file("cells_that_are_no_cells", lambda nb: json.dumps(nb | {"cells": [None, 1, "x", [], {}, {"cell_type": 5, "source": {"a": 1}, "metadata": 7, "attachments": [1], "outputs": {"a": 1}}, *nb["cells"]]}))


def beside(name: str, prepare: Callable[[Path], object], ungradable: str = "") -> None:
    """Add an entry: right answers, and something else in the folder."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.write()
        prepare(submission.folder)

    make.__name__ = name
    entry("mess", {} if ungradable else GOOD, ungradable)(make)


beside("timestamp_garbage", lambda folder: (folder / "timestamp.txt").write_text("yesterday, I think"))
beside("sparse_giant", lambda folder: os.truncate(folder / f"{WEEK}.ipynb", 150 * 2**20), ungradable=".")

called("star_in_a_name", "star*name")
called("quotes_in_a_name", "o'neil \"<b>&amp;\\")
called("very_long_name_in_bytes", "é" * 127)
called("composed", "zo\u00eb")
called("decomposed", "zoe\u0308")
called("name_of_the_week", WEEK)
