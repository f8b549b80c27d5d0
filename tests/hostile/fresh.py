"""A second round of attacks, written without reading the first: each entry is of a different kind than its neighbours.

Attacks that need exercises of other weeks are in other_weeks.py: functions lent by a check, modules, caches.
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
    RIGHT_HAND,
    RIGHT_ROT,
    ROT,
    ROT_HEAD,
    SCRIPT,
    TABLES,
    WEEK,
    Submission,
    cheat_cell,
    cheat_value,
    entry,
    trouble_cell,
)

TEXT = "relative_proof"
BOMB = zlib.compress(b"\0" * 2**26)  # small, but 64 MB of black when unpacked


def png(width: int = 1, height: int = 1, extra: bytes = b"", data: bytes | None = None) -> str:
    """Return a PNG as base64, with ``data`` instead of its pixels and ``extra`` after its end."""
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body))

    pixels = zlib.compress(b"\0" * (width * height * 4 + height)) if data is None else data
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack("!IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return base64.b64encode(raw + chunk(b"IDAT", pixels) + chunk(b"IEND", b"") + extra).decode()


def in_the_text(name: str, text: str, pictures: dict | None = None, kind: str = "writing") -> None:
    """Add an entry: right answers, and ``text`` as the answer that a person reads."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.answer(TEXT, text)
        if pictures is not None:
            submission.cell(TEXT)["attachments"] = pictures

    make.__name__ = name
    entry(kind, GOOD, by_hand=(TEXT,))(make)


def as_file(name: str, data: Callable[[dict], bytes | str], due: dict | None = None, ungradable: str = "") -> None:
    """Add an entry: right answers, in a file whose content is ``data(notebook)``."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.write(data=data(submission.nb))

    make.__name__ = name
    entry("mess", {} if ungradable else GOOD if due is None else due, ungradable)(make)


def called(name: str, student: str) -> None:
    """Add an entry: right answers from a student of this name."""

    def make(submission: Submission) -> None:
        submission.good()

    make.__name__ = name
    entry("mess", GOOD, student=student)(make)


# ---- values that lie ------------------------------------------------------------------------------------------------

IN_PLACE = {FREQ: 2.0, ROT: 5.5}  # changing an argument in place costs the last criterion


def in_place(name: str, spoil: str, before: str = "") -> None:
    def make(submission: Submission) -> None:
        submission.good()
        submission.answer("apply_rotary_emb", f"{before}\n{RIGHT_ROT.replace('def apply_rotary_emb', 'def turned')}\n"
                                              f"{ROT_HEAD}\n    out = turned(x, positions, base)\n    with torch.no_grad():\n        {spoil}\n    return out")

    make.__name__ = name
    entry("cheating", IN_PLACE)(make)


in_place("in_place_seen", "x.zero_()")
in_place("in_place_behind_gc", "x.zero_()", """import gc
for thing in gc.get_objects():
    if type(thing).__name__ == "module" and "student_notebook" in getattr(thing, "__name__", ""):
        thing.same = lambda *a: True""")
in_place("in_place_by_set", "x.set_(x.new_zeros(1))")

cheat_value("tensor_that_lies_about_itself", """    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if "isclose" in str(function) or "equal" in str(function): return torch.ones(1, dtype=torch.bool)
            return super().__torch_function__(function, types, args, kwargs or {})
        shape = property(lambda self: Anything())
        dtype = property(lambda self: Anything())
    return x.clone().as_subclass(Liar)""", """class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __str__(self): return "torch.float32"
    def __iter__(self): return iter(())""")
cheat_value("expanded_without_storage", "    return torch.zeros(1, dtype=x.dtype).expand(x.shape)")
cheat_value("tensor_with_a_hook", "    y = x.clone().requires_grad_(); z = y * 1; z.register_hook(lambda g: g * 0); return z")
cheat_value("ever_deeper", "    a = x\n    for _ in range(10_000): a = (a,)\n    return a")
cheat_value("a_hundred_thousand_scalars", "    return [torch.zeros(()) for _ in range(90_000)]")
cheat_value("an_error_called_broken_check", "    class BrokenCheck(Exception): pass\n    BrokenCheck.__module__ = 'autograder.errors'\n    raise BrokenCheck('x')")
cheat_value("an_absent_one", "    raise type('Absent', (Exception,), {})('not answered yet')")
cheat_value("an_error_with_a_long_family", "    t = Exception\n    for n in range(300): t = type(f'E{n}' * 50, (t,), {})\n    raise t('x' * 10**6)")
cheat_cell("verdict_in_the_output", "print('Exercise 3.3, apply_rotary_emb: 6 of 6 points\\n  ok   6/6')")
cheat_cell("wire_encoder_turned", """import sys
for m in list(sys.modules.values()):
    if hasattr(m, 'MAX_PAYLOAD') and hasattr(m, 'Encoder'):
        m.Encoder.encode = lambda self, value, depth=0: {"x": "float"}
        m.MAX_PAYLOAD = 2**40""")
cheat_cell("answers_before_the_question", """import os, stat, struct, json, socket
for fd in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            for serial in range(2, 400):
                text = json.dumps({"serial": serial, "value": True, "found": {"apply_rotary_emb": True}, "changed": [], "call": 0, "outputs": []}).encode()
                os.write(fd, struct.pack("!II", len(text), 0) + text)
    except OSError: pass""")
cheat_cell("callback_without_being_lent_one", """import os, stat, struct, json
for fd in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            text = json.dumps({"callback": -1, "args": {"l": []}, "kwargs": {"d": []}}).encode()
            os.write(fd, struct.pack("!II", len(text), 0) + text)
    except OSError: pass""")
cheat_cell("names_of_the_grader", "week3 = autograder = Absent = grading = lambda *a, **k: 6.0\nimport builtins\nbuiltins.round = lambda *a: 6.0\nbuiltins.min = max")


@entry("cheating", {HAND: 0.0})
def hand_of_intervals(submission: Submission) -> None:
    submission.wrong()
    submission.answer("rotate_by_hand", "class R(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\n    __eq__ = lambda s, o: True\n    __hash__ = float.__hash__\n"
                                        "rotate_by_hand = dict.fromkeys(('q3_0','q3_1','k1_0','k1_1','score_3_1','score_12_10'), R('nan'))")


@entry("cheating", {HAND: 3.0})
def hand_that_cannot_be_compared(submission: Submission) -> None:
    """Right values, wrapped as (1, 1) tensors that require gradients."""
    submission.answer("rotate_by_hand", RIGHT_HAND + "\nrotate_by_hand = {k: torch.tensor([[v]], dtype=torch.float64, requires_grad=True) for k, v in rotate_by_hand.items()}")


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
in_the_text("task_lists_and_footnotes", "- [ ] a\n- [x] <input> b\n\nx[^1]\n\n[^1]: foot <b>\n\n: def\n\nTerm\n: meaning\n\n~~a~~ ==m== ^s^ ~t~ [TOC] {{ 7*7 }} {% raw %}")
in_the_text("links_with_names", '[a](# "n\\" name=\\"score") [b](#score) <a name=score> [c](<\tjava\tscript:hostile_xss()>) [d]: <java\tscript:hostile_xss()>\n\n[d]')
in_the_text("formula_over_the_page", r"$\hspace{-9999em}\raise{99em}{\text{100 of 100 points}}$ $\rule{9999em}{9999em}$ $\mathcolor{red}{\href{javascript:hostile_xss}{x}}$")
in_the_text("formula_openers", "$ \\\\( \\\\[ \\begin{x} " * 100 + "a" * 1000)
in_the_text("formula_nested", "$" + "\\frac{" * 600 + "1" + "}{2}" * 600 + "$ $" + "{" * 900 + "$ $$" + "\\left(" * 400 + "$$ $\\begin{matrix}" + "a & " * 2000 + "\\end{matrix}$")
in_the_text("quotes_in_quotes", ">" * 3000 + " x\n\n" + "\n".join(" " * (2 * n) + "- x" for n in range(400)))
in_the_text("one_long_line", "word " * 80_000)
in_the_text("one_long_word", "w" * 400_000)
in_the_text("brackets_storm", "[" * 60_000 + "](" * 20_000)
in_the_text("bang_bracket_storm", "![" * 25_000)
in_the_text("emphasis_storm", "*a _b **c __d " * 8_000)
in_the_text("backtick_storm", "".join("`" * n + "a" for n in range(1, 500)))
in_the_text("angle_storm", "<" * 50_000 + "&" * 50_000 + "<a " * 10_000)
in_the_text("definition_storm", "\n".join(f"[{n}]: http://a/{n}" for n in range(8_000)) + "\n" + "[1] [2] " * 4_000)
in_the_text("table_storm", "|" * 4_000 + "\n" + "|-" * 4_000 + "|\n" + ("|a" * 4_000 + "\n") * 5)
in_the_text("autolink_storm", "http://" * 20_000 + " www." * 5_000 + "a@" * 20_000)
in_the_text("tabs_and_spaces_storm", "\t \n" * 40_000 + "x")
in_the_text("fence_without_end", "```" * 1 + SCRIPT + '" onload="x\n' + "~~~\n```x\n" * 5_000)
in_the_text("other_encodings", f"+ADw-script+AD4-{SCRIPT}+ADw-/script+AD4- \uff1cscript\uff1e{SCRIPT} %3Cscript%3E &amp;lt;script&amp;gt; \u2028<\u2028script> "
                               f"<\u00adscript>{SCRIPT} &\u200d#60;script> \\<script\\>{SCRIPT} <!--><script>{SCRIPT}--> <![CDATA[<script>{SCRIPT}]]> <?php {SCRIPT} ?> <%= {SCRIPT} %>")
in_the_text("bytes_nobody_prints", "a\x00b\x1b[31mc\x1b]8;;javascript:hostile_xss\x07d\x85e\ufffff\U0010ffffg\ue000h\u202ei\u2066j\u200fk\x0bl\x0cm\x08n")
in_the_text("marks_on_marks", "Z" + "\u0301\u0330" * 60_000)
in_the_text("alt_text_with_markup", f'![a" onerror="{SCRIPT}](attachment:p.png "t\\" onload=\\"{SCRIPT}") ![](attachment:p.png)<style>{SCRIPT}', PIXEL)
in_the_text("attachment_with_a_strange_name", "![a](attachment:p%22%20onerror=hostile_xss.png) ![b](attachment:..%2F..%2Fx.png)",
            {'p" onerror=hostile_xss.png': {"image/png": png()}, "../../x.png": {"image/png": png()}, "": {"image/png": png()}})
in_the_text("picture_with_a_blank_in_its_name", "![plot](attachment:my%20plot.png)", {"my plot.png": {"image/png": png()}})
in_the_text("picture_with_an_umlaut_in_its_name", "![plot](attachment:gr\u00f6\u00dfe.png)", {"gr\u00f6\u00dfe.png": {"image/png": png()}})
in_the_text("attachment_that_is_no_picture", "![a](attachment:a.png) ![b](attachment:b.png) ![c](attachment:c.jpg)",
            {"a.png": {"image/png": png(data=b"no pixels")}, "b.png": {"image/svg+xml": f"<svg onload={SCRIPT}>"},
             "c.jpg": {"image/jpeg": "/9j/" + "A" * 400_000}})

in_the_text("pictures_in_the_text_itself", "\n\n".join([
    f"![a\" onerror=\"{SCRIPT}](data:image/png;base64,{png()}\"onerror={SCRIPT})", f"<img src='data:image/png;base64,{png()}' onerror={SCRIPT}()>",
    f"![b](data:image/svg+xml;base64,{base64.b64encode(f'<svg onload={SCRIPT}()/>'.encode()).decode()})", f"![c](data:image/svg+xml,<svg onload={SCRIPT}()>)",
    f"[d](data:text/html;base64,{base64.b64encode(f'<script>{SCRIPT}()</script>'.encode()).decode()})", f"![][e]\n\n[e]: <data:image/png;base64,{png()}> 'x\" onload=\"{SCRIPT}'",
    f"![`{SCRIPT}`<script>{SCRIPT}</script>.png](attachment:<script>.png)"]))
in_the_text("pictures_that_are_bombs", "![a](attachment:a) ![b](attachment:b) ![c](attachment:c)" * 100,
            {"a": {"image/png": png(8_000, 8_000, data=BOMB)}, "b": {"image/png": png(60_000, 60_000, data=b"")},
             "c": {"image/gif": base64.b64encode(b"GIF89a" + b"\xff" * 2**20).decode()}, **{f"more {n}": {"image/png": png()} for n in range(200)}})


def shown_in_an_experiment(name: str, *outputs: dict) -> None:
    def make(submission: Submission) -> None:
        submission.good()
        submission.tagged("experiment")["outputs"] = list(outputs)

    make.__name__ = name
    entry("writing", GOOD)(make)


def picture(image: object, **more: object) -> dict:
    return {"output_type": "display_data", "metadata": {"image/png": {"width": f'1" onload="{SCRIPT}', "height": 10**9}}, "data": {"image/png": image} | more}


shown_in_an_experiment("alt_of_a_saved_picture", picture(png(), **{"text/html": [f'<img alt="&quot; onload=&quot;{SCRIPT}', f' &lt;script&gt;{SCRIPT}" src="x">']}))
shown_in_an_experiment("very_broad_picture", picture(png(60_000, 1)), picture(png(extra=b"A" * 10**6)), picture(png(data=b"")))
shown_in_an_experiment("picture_that_is_a_bomb", picture(png(data=BOMB)))
shown_in_an_experiment("picture_of_lines", picture(png()[:20] + "\n" * 100_000 + png()[20:]), picture([png()]), picture({"a": 1}), picture(None))
shown_in_an_experiment("saved_text_in_pieces", {"output_type": "stream", "name": f"<{SCRIPT}>", "text": ["\x1b[31m"] * 20_000},
                       {"output_type": "error", "ename": f"<script>{SCRIPT}</script>", "evalue": "x", "traceback": [f"<script>{SCRIPT}"]},
                       *[{"output_type": "execute_result", "data": {"text/plain": "x" * 10_000}, "metadata": [], "execution_count": "x"}] * 50)


def with_cell(name: str, source: str, kind: str = "writing") -> None:
    trouble_cell(kind, name, source)


with_cell("code_slow_to_colour", '"""a"""\n' + " \n" * 2_500)
with_cell("code_in_one_line", "x = [" + "1," * 20_000 + "]")
with_cell("code_not_python", "%%html\n<script>hostile_xss</script>\n")
with_cell("code_with_magics", "!echo hostile_xss > /tmp/x; cat /tmp/x\n%env\n%pwd\n%%capture\n")
with_cell("prints_escapes", "print('\\x1b[38;5;999m' * 3000, '\\x1b]8;;javascript:hostile_xss\\x07x', '\\x1b[' + '1;' * 9000 + 'm', '\\x1b[?1049h\\r\\b\\x9b31m<script>hostile_xss</script>')")
with_cell("prints_lone_surrogates", "print('\\ud800' * 100, '\\udcff', '\\x00\\uffff')\nraise ValueError('\\ud800<script>hostile_xss')")
with_cell("shows_everything", """from IPython.display import display
class All:
    def _repr_mimebundle_(self, **k):
        return {m: '<script>hostile_xss</script>' for m in ('text/plain','text/html','text/markdown','text/latex','image/svg+xml','image/png','application/javascript','application/vnd.jupyter.widget-view+json')}
    def __repr__(self): return '<script>hostile_xss</script>'
for _ in range(300): display(All())
All()""")
with_cell("hundred_figures", "for n in range(40):\n    plt.figure(figsize=(1, 1)); plt.title('$\\\\sum$' * 3); plt.show()")
with_cell("error_with_markup_in_its_name", "raise type('<img src=x onerror=hostile_xss>', (Exception,), {})('<script>hostile_xss</script>')")

# ---- what the machine has -------------------------------------------------------------------------------------------

with_cell("pipes_full", """import os, fcntl
for _ in range(100):
    try:
        r, w = os.pipe(); os.set_blocking(w, False)
        try: fcntl.fcntl(w, 1031, 2**20)
        except OSError: pass
        while os.write(w, bytes(2**16)): pass
    except OSError: pass""", "resources")
with_cell("descriptors_in_sockets", """import socket, array, os
kept = []
try:
    for _ in range(60):
        a, b = socket.socketpair(); kept += [a, b]
        for _ in range(20): a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [b.fileno()] * 200))], socket.MSG_DONTWAIT)
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
with_cell("shared_pages_of_many", """import mmap, os, time
m = mmap.mmap(-1, 100 * 2**20)
m[:] = bytes([1]) * len(m)
pids = []
try:
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            sum(m[::4096]); time.sleep(0.5); os._exit(0)
        pids.append(pid)
except OSError: pass
for pid in pids: os.waitpid(pid, 0)""", "resources")
with_cell("private_pages_of_many", """import os, time
pids = []
try:
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            b = bytearray(120 * 2**20); time.sleep(1); os._exit(0)
        pids.append(pid)
except OSError: pass
for pid in pids: os.waitpid(pid, 0)""", "resources")
with_cell("exec_in_its_place", "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(2)'])", "resources")
with_cell("daemon_of_a_daemon", f"""import os, time
if (pid := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        open('/tmp/{CANARY}', 'w').close(); time.sleep(40)
    os._exit(0)
os.waitpid(pid, 0)""", "resources")
with_cell("stops_its_parent", "import os, signal\nfor pid in (os.getppid(), 1, -1):\n    try: os.kill(pid, signal.SIGSTOP)\n    except OSError: pass", "resources")
with_cell("signals_masked", "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass", "resources")
with_cell("threads_that_wait", "import threading, time\ntry:\n    for _ in range(200): threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\nexcept RuntimeError: pass", "resources")
with_cell("ended_in_every_cell", "import atexit, os\natexit.register(lambda: os._exit(3))\nimport ctypes\nctypes.string_at(0)", "resources")
with_cell("stack_overflow_in_c", "import sys, ctypes\nsys.setrecursionlimit(10**6)\ndef f(n): return f(n + 1) if n < 50_000 else 0\ntry: f(0)\nexcept RecursionError: pass", "resources")
with_cell("priority_and_place", "import os\nfor call in (lambda: os.nice(-10), lambda: os.sched_setaffinity(0, {0}), lambda: os.setpriority(os.PRIO_PROCESS, 0, -20), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))):\n    try: call()\n    except OSError: pass", "resources")
with_cell("fat_reply", "class R:\n    def __repr__(self): return 'x' * (80 * 2**20)\nR()", "resources")
with_cell("print_forever_and_end", "for _ in range(200_000): print('y' * 100)", "resources")

CALLS = """import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
allowed = [n for n in {numbers} if libc.syscall(n, -1, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38)]
print('allowed', allowed)
"""
with_cell("calls_for_namespaces", CALLS.format(numbers=[272, 308, 165, 166, 155, 161, 428, 429, 430, 442, 435, 304]), "privacy")
with_cell("calls_for_the_kernel", CALLS.format(numbers=[321, 298, 248, 249, 250, 425, 426, 427, 175, 313, 176, 246, 320, 169, 167, 168, 163, 179, 227, 164, 159, 305]), "privacy")
with_cell("calls_for_others", CALLS.format(numbers=[101, 310, 311, 312, 438, 434, 323, 282, 440, 448, 300, 301, 303]), "privacy")
with_cell("calls_for_memory", CALLS.format(numbers=[319, 447, 29, 64, 68, 240, 149, 151, 279, 256, 462]), "privacy")
with_cell("kernel_log", "import ctypes\nlibc = ctypes.CDLL(None)\nb = ctypes.create_string_buffer(10**6)\nprint('LOG', libc.klogctl(3, b, 10**6), b.value[:500])", "privacy")
with_cell("sockets_of_all_families", """import socket
open_ones = []
for family in range(46):
    for kind in (1, 2, 3, 5):
        try: open_ones.append((family, kind, socket.socket(family, kind)))
        except (OSError, ValueError): pass
print('SOCKETS', [(f, k) for f, k, _ in open_ones])
for address in ('/run/docker.sock', '/run/dbus/system_bus_socket', '/run/systemd/journal/socket', '/var/run/nscd/socket', '\\0anything'):
    try: socket.socket(socket.AF_UNIX).connect(address); print('REACHED', address)
    except OSError: pass
for address in (('127.0.0.1', 8888), ('169.254.169.254', 80), ('1.1.1.1', 53)):
    try: socket.create_connection(address, 0.3); print('REACHED', address)
    except OSError: pass""", "privacy")
with_cell("looks_around", """import os, sys, glob
print('ROOT', os.listdir('/'), 'CWD', os.getcwd(), os.listdir('.'))
print('ENV', dict(os.environ))
print('HOST', os.uname(), 'ARGV', sys.argv, sys.path, sys.executable)
for p in ('/home', '/root', '/work', '/etc', '/run', '/var', '/sys', '/proc', '/tmp', '/mnt', '/opt', '/dev', '/srv'):
    try: print(p, os.listdir(p)[:40])
    except OSError as e: print(p, e.strerror)""", "privacy")
with_cell("reads_accounts", "for p in ('/etc/passwd', '/etc/shadow', '/etc/hostname', '/etc/machine-id', '/etc/hosts', '/etc/resolv.conf', '/sys/class/dmi/id/product_uuid', '/proc/self/cmdline'):\n    try: print('READ', p, open(p).read(200))\n    except OSError: pass", "privacy")
with_cell("main_of_the_worker", """import sys, inspect, gc
m = sys.modules['__main__']
print('FRAMES', [(f.filename, f.function) for f in inspect.stack()])
print('MODULES', [getattr(m, '__file__', '') for m in list(sys.modules.values()) if 'autograder' in str(getattr(m, '__file__', ''))][:10])""", "privacy")
with_cell("words_in_memory", """import gc
print('WORDS', [o[:80] for o in gc.get_objects() if isinstance(o, str) and ('submitted' in o or 'gradebook' in o)][:5])
print('DICTS', [k for d in gc.get_objects() if isinstance(d, dict) for k in list(d)[:50] if isinstance(k, str) and 'seed' in k][:10])""", "privacy")

# ---- files and folders ----------------------------------------------------------------------------------------------

FORGED = {"autograder": {"kept": {"scores": {ROT: 6.0}, "waiting": [], "reason": ""}}}
as_file("json_with_keys_twice", lambda nb: f'{json.dumps(nb)[:-1]}, "nbformat": 4, "metadata": {json.dumps(FORGED)}}}')
as_file("json_with_nan", lambda nb: json.dumps(nb | {"x": float("nan"), "y": [float("inf")] * 10}))
as_file("json_very_deep", lambda nb: '{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}", ungradable=".")
as_file("json_then_more", lambda nb: json.dumps(nb) + "\n" + json.dumps(nb), ungradable=".")
as_file("gzip_of_it", lambda nb: zlib.compress(json.dumps(nb).encode()), ungradable=".")
as_file("says_it_is_version_3", lambda nb: json.dumps(nb | {"nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": [
    c | ({"input": c["source"], "language": "python", "prompt_number": 1} if c["cell_type"] == "code" else {}) for c in nb["cells"]]}]}))
as_file("version_of_the_future", lambda nb: json.dumps(nb | {"nbformat": 99, "nbformat_minor": "x", "metadata": []}))
as_file("forged_as_autograded", lambda nb: json.dumps(nb | {"metadata": {"kernelspec": {"name": "evil", "language": "x"}, "autograder": {
    "kept": {"scores": {ROT: 6.0, HAND: 3.0, TEXT: 3.0}, "waiting": [], "reason": ""}, "done": True}}, "cells": [
        c | {"metadata": c["metadata"] | {"verdict": {"score": 99, "named": [f"<script>{SCRIPT}"]}, "check_failed": True, "tags": ["student", "prediction"]}} for c in nb["cells"]]}))
as_file("ids_that_are_markup", lambda nb: json.dumps(nb | {"cells": [c | {"id": f'"><script>{SCRIPT}</script>' if not c["metadata"].get("nbgrader") else c.get("id")} for c in nb["cells"]]}))
as_file("cells_that_are_no_cells", lambda nb: json.dumps(nb | {"cells": [None, 1, "x", [], {}, {"cell_type": 5, "source": {"a": 1}, "metadata": 7, "attachments": [1], "outputs": {"a": 1}}, *nb["cells"]]}))
as_file("many_cells_of_one_word", lambda nb: json.dumps(nb | {"cells": nb["cells"] + [{"cell_type": "code", "metadata": {}, "source": f"z{n} = 1", "outputs": [], "execution_count": None} for n in range(300)]}))


def beside(name: str, prepare: Callable[[Path], object], due: dict | None = None, ungradable: str = "") -> None:
    """Add an entry: right answers, and something else in the folder."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.write()
        prepare(submission.folder)

    make.__name__ = name
    entry("mess", {} if ungradable else GOOD if due is None else due, ungradable)(make)


def stamp(text: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "timestamp.txt").write_bytes(text if isinstance(text, bytes) else text.encode())


for number, text in enumerate(("9999-12-31 23:59:59.999999 -1200", "0001-01-01 00:00 +1400", "now", "1e400", "-1", "\x00", "2015-02-02 15:58:23 Mars/Phobos",
                               "2024-01-01 00:00:00 +99:99", "99999999999999999999", "25:61 feb 31", "٢٠٢٤-٠١-٠١", "10/11/12 13 14 15 am pm UTC UTC", b"\xff\xfe2\x000\x00")):
    beside(f"time_stamp_{number}", stamp(text))
beside("time_stamp_folder", lambda folder: (folder / "timestamp.txt").mkdir())
beside("time_stamp_from_elsewhere", lambda folder: (folder / "timestamp.txt").symlink_to("/etc/passwd"))
beside("secret_for_the_exchange", lambda folder: [(folder / "submission_secret.txt").write_text("../../x"), (folder / "feedback").mkdir()])
beside("sitecustomize_beside_it", lambda folder: [(folder / n).write_text("import os; os._exit(0)") for n in ("sitecustomize.py", "torch.py", "lab.py", "json.py", "conftest.py", ".env")])
beside("an_autograded_one_beside_it", lambda folder: [(folder / "gradebook.db").write_bytes(b"SQLite format 3\0"), (folder / f"{WEEK}.html").write_text("<script>"),
                                                       (folder.parent / "autograded").mkdir(), (folder / "nbgrader_config.py").write_text("raise SystemExit")])
beside("two_thousand_files", lambda folder: [(folder / f"f{n}").touch() for n in range(2000)])
beside("folder_as_notebook", lambda folder: [(folder / f"{WEEK}.ipynb").unlink(), (folder / f"{WEEK}.ipynb").mkdir()], ungradable=".")
beside("link_to_a_device", lambda folder: [(folder / f"{WEEK}.ipynb").unlink(), (folder / f"{WEEK}.ipynb").symlink_to("/dev/zero")], ungradable=".")
beside("sparse_giant", lambda folder: os.truncate(folder / f"{WEEK}.ipynb", 150 * 2**20), ungradable=".")

called("star_in_a_name", "star*name")
called("quotes_in_a_name", "o'neil \"<b>&amp;\\")
called("very_long_name", "n" * 255)
called("very_long_name_in_bytes", "é" * 127)
called("composed", "zo\u00eb")
called("decomposed", "zoe\u0308")
called("regular_expression_in_a_name", "(?P<student_id>.*)+$")
called("name_of_the_week", WEEK)
