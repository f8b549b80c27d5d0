"""Use of more resources than allowed, between right answers; it costs only the cell or call that does it."""

from hostile.bank import (
    ALL,
    FREQ,
    RIGHT_FREQ,
    ROT,
    ROT_HEAD,
    WEEK,
    Submission,
    entry,
    solved,
    trouble_cell,
)

trouble_cell("resources", "endless_loop", "while True: pass")
trouble_cell("resources", "endless_in_c", "(3 ** 3000000) ** 50")
trouble_cell("resources", "waits_for_input", "import threading\nthreading.Event().wait()")
trouble_cell("resources", "lowers_its_own_limits", """
import resource, time
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
while time.process_time() < 5: pass""")
trouble_cell("resources", "memory_touched", "hog = []\nfor _ in range(60): hog.append(bytearray(b'x' * 2**26))")
trouble_cell("resources", "fork_bomb", """
import os, time
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(3); os._exit(0)
    except OSError:
        break""")
trouble_cell("resources", "prints_a_flood", "for _ in range(200): print('x' * 100000)")
trouble_cell("resources", "shows_many_figures", "for n in range(40):\n    plt.figure(figsize=(2, 2)); plt.plot([n]); plt.show()")
trouble_cell("resources", "deep_recursion", "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError: pass")
trouble_cell("resources", "keyboard_interrupt", "raise KeyboardInterrupt")
trouble_cell("resources", "segfault", "import ctypes\nctypes.string_at(0)")
trouble_cell("resources", "kills_everything", "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.killpg(0, signal.SIGKILL)")
trouble_cell("resources", "closes_all_descriptors", "import os\nos.closerange(0, 300)")
trouble_cell("resources", "raises_an_error_that_cannot_be_shown", """
class Bad(Exception):
    def __str__(self): raise SystemExit
    __repr__ = __str__
raise Bad""")


@entry("resources", ALL | {ROT: 0.0})
def sleeping_rotation(s: Submission) -> None:
    """A function that hangs costs its own points, not those of exercises that call it or are graded after it."""
    s.solve()
    s.answer("apply_rotary_emb", f"{ROT_HEAD}\n    import time\n    time.sleep(3600)")


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
