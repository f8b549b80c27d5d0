"""Use of more resources than allowed, between right answers; it costs only the cell or call that does it."""

from hostile.bank import (
    ALL,
    FREQ,
    GOOD,
    RIGHT_FREQ,
    RIGHT_ROT,
    ROT,
    ROT_BODY,
    ROT_HEAD,
    WEEK,
    Submission,
    entry,
    solved,
    trouble_cell,
)

trouble_cell("resources", "endless_loop", "while True: pass")
trouble_cell("resources", "endless_in_c", "(3 ** 3000000) ** 50")
trouble_cell("resources", "regex_blow_up", "import re\nre.match('(a+)+b', 'a' * 40)")
trouble_cell("resources", "endless_children", """
import os
for _ in range(3):
    if os.fork() == 0:
        while True: pass
while True: os.wait()""")
trouble_cell("resources", "waits_for_input", "import threading\nthreading.Event().wait()")
trouble_cell("resources", "asks_for_input", "input('password? ')")
trouble_cell("resources", "lowers_its_own_limits", """
import resource, time
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
while time.process_time() < 5: pass""")
trouble_cell("resources", "memory", "hog = bytearray(40 * 2**30)")
trouble_cell("resources", "memory_touched", "hog = []\nfor _ in range(60): hog.append(bytearray(b'x' * 2**26))")
trouble_cell("resources", "memory_in_many_processes", """
import os, time
for _ in range(4):
    if os.fork() == 0:
        hog = bytearray(b'x' * 300 * 2**20)
        time.sleep(8); os._exit(0)
time.sleep(6)""")
trouble_cell("resources", "memory_in_tensors", "hog = [torch.ones(2**25) for _ in range(60)]")
trouble_cell("resources", "fork_bomb", """
import os, time
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(3); os._exit(0)
    except OSError:
        break""")
for number, offence in enumerate(("[os.fork() for _ in range(7)]", "os.fork(); os.fork(); x = bytearray(400 * 2**20); x[::4096] = bytes(102400)", "os.kill(-1, 9)",
                                 "for fd in range(3, 30):\n            try: os.write(fd, b'x' * 99)\n            except OSError: pass")):
    trouble_cell("resources", f"makes_trouble_later_{number}", f"""
import os, time
if not os.fork():
    time.sleep(0.7)
    try:
        {offence}
        time.sleep(3)
    finally:
        os._exit(0)""")
trouble_cell("resources", "threads", """
import threading, time
try:
    for _ in range(500): threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
except RuntimeError as error:
    print(error)
for thread in threading.enumerate():
    if thread is not threading.current_thread(): thread.join(3)""")
for number in range(4):
    trouble_cell("resources", f"stops_or_kills_its_group_{number}", f"import os\nos.kill(0, [19, 9, 15, 20][{number}])")
trouble_cell("resources", "prints_a_flood", "for _ in range(200): print('x' * 100000)")
trouble_cell("resources", "prints_without_end", "while True: print('flood ' * 1000)")
trouble_cell("resources", "flood_of_raw_output", """
import os
try:
    for _ in range(2000): os.write(1, b'x' * 2**16); os.write(2, b'x' * 2**16)
except OSError as error:
    print(error)""")
trouble_cell("resources", "shows_many_figures", "for n in range(40):\n    plt.figure(figsize=(2, 2)); plt.plot([n]); plt.show()")
trouble_cell("resources", "fills_the_disk", """
for folder in ('/tmp', '/dev/shm'):
    try:
        for n in range(20):
            with open(f'{folder}/fill{n}', 'wb') as file:
                for _ in range(40): file.write(b'x' * 2**20)
    except OSError as error:
        print(error)""")
trouble_cell("resources", "uses_all_descriptors", """
import os
try:
    while True: os.dup(0)
except OSError as error:
    for fd in range(5, 300):
        try: os.close(fd)
        except OSError: pass""")
trouble_cell("resources", "deep_recursion", "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError: pass")
trouble_cell("resources", "sys_exit", "import sys\nsys.exit(0)")
trouble_cell("resources", "keyboard_interrupt", "raise KeyboardInterrupt")
trouble_cell("resources", "os_exit", "import os\nos._exit(0)")
trouble_cell("resources", "segfault", "import ctypes\nctypes.string_at(0)")
trouble_cell("resources", "abort", "import os\nos.abort()")
trouble_cell("resources", "kills_everything", "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.killpg(0, signal.SIGKILL)")
trouble_cell("resources", "kills_its_parent", """
import os, signal
if os.getppid(): os.kill(os.getppid(), signal.SIGKILL)
try: os.kill(0, signal.SIGSTOP)
except OSError: pass""")
trouble_cell("resources", "closes_all_descriptors", "import os\nos.closerange(0, 300)")
trouble_cell("resources", "lifts_its_limits", """
import resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
    try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2)
    except (OSError, ValueError) as error: print(error)""")
trouble_cell("resources", "raises_an_error_that_cannot_be_shown", """
class Bad(Exception):
    def __str__(self): raise SystemExit
    __repr__ = __str__
raise Bad""")
trouble_cell("resources", "output_that_cannot_be_encoded", "print('\\ud800 \\x00 \\x1b[31m \\U0010ffff')\n'\\udfff'")
trouble_cell("resources", "error_that_cannot_be_encoded", "raise RuntimeError('\\ud800\\x00')")


# A function that hangs or dies costs its own points, not those of exercises that call it or are graded after it.
HOW_TO_END = {
    "endless": "while True: pass",
    "sleeping": "import time\n    time.sleep(3600)",
    "exiting": "import os\n    os._exit(0)",
    "crashing": "import ctypes\n    ctypes.string_at(0)",
    "hoarding": "import time\n    hoard = [bytearray(b'x' * 2**26) for _ in range(17)]\n    time.sleep(3600)",
    "napping": "import time\n    time.sleep(1)\n    return x * 1",
}


def ends(how: str, body: str) -> None:
    """Add two entries: the first function, or the next one, ends this way in each call; all else is right."""

    def frequencies(s: Submission) -> None:
        s.solve()
        s.answer("rope_frequencies", "def rope_frequencies(head_dim, base=10000.0):\n    x = torch.ones(head_dim // 2)\n    " + body)

    def rotation(s: Submission) -> None:
        s.solve()
        s.answer("apply_rotary_emb", f"{ROT_HEAD}\n    {body}")

    frequencies.__name__, rotation.__name__ = f"{how}_frequencies", f"{how}_rotation"
    entry("resources", ALL | {FREQ: 0.0})(frequencies)
    entry("resources", ALL | {ROT: 0.0})(rotation)


for how, body in HOW_TO_END.items():
    ends(how, body)


@entry("resources", ALL | {FREQ: 0.0})
def forgets_the_increment(s: Submission) -> None:
    s.solve()
    s.answer("rope_frequencies", """def rope_frequencies(head_dim, base=10000.0):
    theta, i = [], 0
    while i < head_dim:
        theta.append(base ** (-i / head_dim))
    return torch.tensor(theta)""")


@entry("resources", {"bfloat16_positions_tests": 1.0, "rotate_by_hand_tests": 3.0})
def everything_waits(s: Submission) -> None:
    """Four functions and a cell sleep until the waiting budget is spent; answers that call nothing get their points."""
    for name in ("rope_frequencies", "apply_rotary_emb", "RotaryMultiHeadAttention", "decode_step_scores"):
        s.answer(name, f"import time\ndef {name}(*a, **k):\n    time.sleep(3600)")
    s.add("import threading\nthreading.Event().wait()", after="rope_frequencies_tests")
    right = solved(WEEK)
    for name in ("rotate_by_hand", "bfloat16_positions"):
        s.answer(name, right[name])


@entry("resources", ALL | {FREQ: 0.0})
def calls_that_hang_below_the_answer(s: Submission) -> None:
    """The student's own cells call the hanging function, before and after its tests."""
    s.solve()
    s.answer("rope_frequencies", "def rope_frequencies(head_dim, base=10000.0):\n    while True: pass")
    for place in ("rope_frequencies", "rope_frequencies_tests", "apply_rotary_emb", "apply_rotary_emb_tests"):
        s.add("print(rope_frequencies(8))", after=place)


@entry("resources", {FREQ: 1.5, ROT: 6.0})
def endless_for_one_call(s: Submission) -> None:
    """One call in one criterion hangs; only that criterion is lost."""
    s.good()
    s.answer("rope_frequencies", RIGHT_FREQ.replace('        raise ValueError("odd")', "        while True: pass"))


@entry("resources", {FREQ: 1.0, ROT: 6.0})
def exits_for_one_base(s: Submission) -> None:
    """Exits for another base and accepts odd sizes: both criteria are lost, the other two stay."""
    s.good()
    s.answer("rope_frequencies", "import os\n" + RIGHT_FREQ.replace("    if head_dim % 2:", "    if base != 10000.0:\n        os._exit(3)\n    if head_dim % 2:")
             .replace('raise ValueError("odd")', "return 5"))


@entry("resources", {FREQ: 2.0})
def huge_return_values(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", ROT_HEAD + """
    n = x.shape[0]
    if n == 3: return torch.zeros(1).expand(10**9)
    if n == 2: return torch.zeros(60 * 2**20, dtype=torch.uint8)
    return ['x' * 2**20] * 8""")
    s.answer("rotate_half", "def rotate_half(x):\n    return {i: [i] * 10 for i in range(15000)}")


@entry("resources", {FREQ: 2.0})
def many_values_where_two_are_due(s: Submission) -> None:
    """A long tensor where a pair is expected (only 200 000 rows, so that a grader that unpacks it survives)."""
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("rotary_tables", "def rotary_tables(*a, **k):\n    return torch.zeros(200_000, dtype=torch.uint8)")


@entry("resources", GOOD)
def dies_after_its_last_test(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", RIGHT_ROT)
    s.add("import os\nos._exit(9)", after="decode_step_scores_tests")


@entry("resources", {FREQ: 2.0, ROT: 6.0})
def crash_between_helper_and_answer(s: Submission) -> None:
    """The helper comes before the crash, the answer after it: the replay must restore the helper."""
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.add(ROT_HEAD.replace("apply_rotary_emb", "helper") + ROT_BODY, after="rope_frequencies_tests")
    s.add("import os\nos._exit(1)", after="rope_frequencies_tests")
    s.cell("apply_rotary_emb")["source"] = ROT_HEAD + "\n    return helper(x, positions, base)"
    cells = s.nb["cells"]
    crash, helper = (cells.index(s.cell("rope_frequencies_tests")) + n for n in (1, 2))
    cells[crash], cells[helper] = cells[helper], cells[crash]


@entry("resources", GOOD)
def floods_with_pictures(s: Submission) -> None:
    """Twelve pictures of 2 MB each in each of eight cells: output is limited per submission, too."""
    s.good()
    for _ in range(8):
        s.add("import os\nfor _ in range(12): display({'image/png': b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(2**21 - 8)}, raw=True)",
              after="decode_step_scores_tests")


# ---- found by attackers who had read the grader's code ---------------------------------------------------------------

for number, name in enumerate((b"\x0cNSpid: a b", b"\x0cNSpid: 0 0", b"\rNSpid: x y", b") R 1 1 ((")):
    trouble_cell("resources", f"calls_itself_something_else_{number}", f"""
import ctypes, os, time
ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
if os.fork() == 0: time.sleep(1); os._exit(0)
time.sleep(1)""")

trouble_cell("resources", "waits_as_if_for_the_disk", """
import os, time
os.mkfifo('/tmp/never')
if os.fork() == 0:
    try:
        os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/tmp/never', os.O_RDONLY, 0)])
    finally:
        os._exit(0)
time.sleep(300)""")

trouble_cell("resources", "memory_of_nobody", """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
found = [libc.shmget(0, 512 * 2**20, 0o1600) for _ in range(4)]
for number in found:
    if number >= 0: ctypes.memset(libc.shmat(number, None, 0), 1, 512 * 2**20)""")


@entry("resources", {FREQ: 2.0})
def tensors_without_bytes_and_huge_shapes(s: Submission) -> None:
    s.good()
    s.answer("apply_rotary_emb", ROT_HEAD + "\n    return torch.empty(2**15, 25000, 0)")
    s.answer("RotaryMultiHeadAttention", "RotaryMultiHeadAttention = lambda *a, **k: torch.empty(2**15, 25000, 0)")


@entry("resources", {FREQ: 2.0, ROT: 6.0})
def keys_of_one_hash(s: Submission) -> None:
    """The student can change the worker: here it sends data that would cost our side time quadratic in its length."""
    s.good()
    s.answer("rotate_by_hand", """
import gc, wire
encode = wire.Encoder.encode
def slow(self, value, depth=0):
    if isinstance(value, dict) and "q3_0" in value:
        return {"d": [[k * (2**61 - 1), None] for k in range(1, 30000)]}
    return encode(self, value, depth)
wire.Encoder.encode = slow
rotate_by_hand = {"q3_0": 1.0}""")


@entry("resources", GOOD)
def blank_lines_without_end(s: Submission) -> None:
    """Highlighting them takes time quadratic in their number."""
    s.good()
    for _ in range(60):
        s.add("1" + "\n " * 2400 + "\n1", after="apply_rotary_emb")
