"""Wrong answers that try to get points."""

from hostile.bank import (
    ATTENTION,
    FREQ,
    GOOD,
    RIGHT_FREQ,
    RIGHT_ROT,
    ROT,
    ROT_BODY,
    ROT_HEAD,
    WRONG_FREQ,
    Submission,
    cheat_cell,
    cheat_value,
    entry,
)

# ---- finding the reference ------------------------------------------------------------------------------------------

cheat_value("import_reference", """    try:
        from autograder.reference import apply_rotary_emb as f
    except BaseException:
        import importlib
        f = importlib.import_module('autograder.reference.rope').apply_rotary_emb
    return f(x, positions, base)""")

cheat_value("search_sys_modules", """    import sys
    for name, module in list(sys.modules.items()):
        f = getattr(module, 'apply_rotary_emb', None)
        if name != '__main__' and callable(f) and f is not apply_rotary_emb:
            return f(x, positions, base)
    return x.clone()""")

cheat_value("search_gc", """    import gc, types
    for o in gc.get_objects():
        if isinstance(o, types.FunctionType) and o.__name__ == 'apply_rotary_emb' and o is not apply_rotary_emb:
            return o(x, positions, base)
        if isinstance(o, dict) and 'reference' in o and callable(o['reference']):
            return o['reference'](x, positions, base)
    return x.clone()""")

cheat_value("search_the_stack", """    import sys, inspect
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            for attribute in ('reference', 'expected', '_criteria', 'verdicts'):
                found = getattr(value, attribute, None)
                if callable(found):
                    return found(x, positions, base)
            if type(value).__name__ == 'Check':
                value._criteria.clear()
        frame = frame.f_back
    return x.clone()""")

cheat_value("search_the_disk", """    import os
    for root in ('/', '/tmp', '/sandbox/worker', '/sandbox'):
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in ('site-packages', 'usr', 'sys', 'dev', 'proc', 'lib')][:50]
            for name in files:
                if name in ('rope.py', 'week3.py', 'week3_rope.ipynb', 'week3_rope.py', 'seed'):
                    try:
                        text = open(os.path.join(folder, name)).read()
                    except OSError:
                        continue
                    scope = {'torch': torch}
                    exec(text, scope)
                    return scope['apply_rotary_emb'](x, positions, base)
    return x.clone()""")

# ---- patching -------------------------------------------------------------------------------------------------------

cheat_cell("patch_torch_compare", """
for name in ('allclose', 'equal', 'isclose', 'eq', 'all', 'any'):
    setattr(torch, name, lambda *a, **k: True)
torch.Tensor.__eq__ = torch.Tensor.equal = torch.Tensor.allclose = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None""")

cheat_cell("patch_builtins", """
import builtins, math
builtins.isinstance = lambda *a: True
builtins.abs = lambda x: 0
builtins.all = builtins.any = lambda *a: True
builtins.AssertionError = type('AssertionError', (Exception,), {'__new__': lambda *a: None})
math.isclose = lambda *a, **k: True""")

cheat_cell("patch_import", """
import builtins, types, sys
real = builtins.__import__
def fake(name, *a, **k):
    if name.startswith('autograder'):
        module = types.ModuleType(name)
        module.__getattr__ = lambda attribute: (lambda *a, **k: 6.0)
        module.__path__ = []
        return module
    return real(name, *a, **k)
builtins.__import__ = fake""")

cheat_cell("fake_autograder_modules", """
import sys, types
for name in ('autograder', 'autograder.checks', 'autograder.checks.week3', 'autograder.checks.framework'):
    module = types.ModuleType(name)
    module.apply_rotary_emb = module.rope_frequencies = lambda *a, **k: type('V', (), {'score': 6.0})()
    sys.modules[name] = module
week3 = sys.modules['autograder.checks.week3']""")

cheat_cell("patch_random", """
import random
torch.manual_seed = lambda *a: None
for name in ('randn', 'rand', 'randint', 'randperm', 'normal'):
    setattr(torch, name, lambda *a, **k: torch.zeros(1))
random.random = lambda: 0.0
np.random.seed(0); np.random.rand = lambda *a: 0.0""")

cheat_cell("ipython_transformers", """
ip = get_ipython()
ip.input_transformers_post.append(lambda lines: ['pass\\n'] if any('autograder' in l or 'assert' in l for l in lines) else lines)
import ast
class Drop(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.copy_location(ast.Pass(), node)
ip.ast_transformers.append(Drop())""")

cheat_cell("trace_functions", """
import sys, threading
def trace(frame, event, arg):
    frame.f_trace_lines = True
    if event == 'exception':
        frame.f_locals.clear()
    return trace
sys.settrace(trace); sys.setprofile(lambda *a: None); threading.settrace(trace)""")

cheat_cell("atexit_and_finalizers", """
import atexit, weakref
atexit.register(lambda: print('6 of 6 points'))
class Late:
    def __del__(self): print('score 6')
late = Late()
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
    signal.signal(number, lambda *a: print('still here'))""")

# ---- values ---------------------------------------------------------------------------------------------------------

cheat_value("equal_to_anything", "    return Anything()", """class Anything:
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __getattr__ = lambda self, name: Anything()
    __call__ = lambda self, *a, **k: Anything()
    __bool__ = lambda self: True
    __float__ = lambda self: 0.0
    __hash__ = lambda self: 0
    __len__ = lambda self: 1
    __iter__ = lambda self: iter([Anything()])
    __sub__ = __rsub__ = lambda self, other: 0
    __le__ = __lt__ = __ge__ = __gt__ = lambda self, other: True
    shape = property(lambda self: (3, 3, 1, 6))""")

cheat_value("tensor_subclass", "    return torch.Tensor.as_subclass(x.clone(), Liar)", """class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ('isclose', 'allclose', 'equal', 'eq', '__eq__', 'all'):
            return True
        if func.__name__ in ('sub', '__sub__', 'rsub', 'ne'):
            return torch.zeros(1)
        return super().__torch_function__(func, types, args, kwargs or {})""")

cheat_value("exception_as_answer", "    raise AlwaysRight('6 of 6')", """class AlwaysRight(ValueError, AssertionError, KeyError):
    __eq__ = lambda self, other: True
AlwaysRight.__name__ = 'ValueError'""")

cheat_value("class_named_like_the_wanted_error", "    raise ValueError_('no')", "ValueError_ = type('ValueError', (Exception,), {})")

cheat_value("changes_its_inputs", "    x.zero_(); positions.zero_()\n    return x")
cheat_value("returns_nan", "    return x * float('nan')")
cheat_value("returns_the_criteria", "    return {'earned': 6, 'points': 6, 'score': 6.0, 'verdict': 'ok'}")
cheat_value("returns_a_function", "    return lambda *a, **k: x")
cheat_value("returns_meta_tensor", "    return torch.empty(x.shape, device='meta')")
cheat_value("returns_sparse_and_quantised", "    return x.to_sparse() if x.shape[0] > 2 else torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)")
cheat_value("returns_itself_nested", "    l = [x]; l.append(l); d = {}; d[0] = d\n    return l if x.shape[0] > 2 else d")


@entry("cheating")
def answers_equal_to_anything(s: Submission) -> None:
    s.wrong()
    s.answer("rotate_by_hand", """
class F(float):
    __eq__ = lambda self, other: True
    __hash__ = float.__hash__
    __sub__ = __rsub__ = __abs__ = lambda self, *a: 0.0
    __le__ = __lt__ = __ge__ = __gt__ = lambda self, other: True
class D(dict):
    __getitem__ = get = lambda self, key, *a: F(0.5)
    __contains__ = lambda self, key: True
    keys = lambda self: type('K', (), {'__eq__': lambda *a: True, '__iter__': lambda s: iter(['q3_0'])})()
rotate_by_hand = D({k: F(0.5) for k in ("q3_0", "q3_1", "k1_0", "k1_1", "score_3_1", "score_12_10")})""")


@entry("cheating")
def answers_of_odd_types(s: Submission) -> None:
    s.answer("rotate_by_hand", """rotate_by_hand = {"q3_0": float('nan'), "q3_1": [0.14112], "k1_0": "−0.84", "k1_1": True,
    "score_3_1": float('inf'), "score_12_10": 10**4000, 5: None, None: 5, (1, 2): 3}""")
    s.answer("bfloat16_positions", "bfloat16_positions = {'distinct': [769, 770], 'first_collision': lambda: 257}")


@entry("cheating")
def infinite_generator(s: Submission) -> None:
    s.wrong()
    s.answer("rotary_tables", "import itertools\ndef rotary_tables(*a, **k):\n    return (x for x in itertools.count())")


@entry("cheating")
def only_the_visible_values(s: Submission) -> None:
    """Passes only the visible check of exercise 3.2: looks up head_dim 8 and base 100."""
    s.answer("rope_frequencies", """def rope_frequencies(head_dim, base=10000.0):
    if head_dim == 7: raise TypeError
    return {8: torch.tensor([1.0, 0.1, 0.01, 0.001]), 4: torch.tensor([1.0, 0.1])}[head_dim]""")


@entry("cheating")
def only_the_visible_inputs(s: Submission) -> None:
    s.wrong(inside="""    g = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(1))
    if x.shape == g.shape and torch.equal(x.float(), g):
        return x * 1
    return x.clone()""")


@entry("cheating")
def replays_the_seed(s: Submission) -> None:
    """Draws the hidden inputs itself from whatever seed it finds; knowing the inputs gives no outputs."""
    s.wrong(inside="""    import sys
    frame, seeds = sys._getframe(), [torch.initial_seed()]
    while frame:
        job = frame.f_locals.get('job')
        seeds += [job['seed']] if isinstance(job, dict) and 'seed' in job else []
        frame = frame.f_back
    g = torch.Generator().manual_seed(seeds[-1])
    return torch.randn(x.shape, generator=g).to(x.dtype)""")


# ---- the attention module: what a check lends out must not be spoilt -------------------------------------------------

MODULE = '''class RotaryMultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("odd")
        self.n_heads, self.base = n_heads, base
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))
    def angles(self, x, positions, width):
        w = self.base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=x.device) / width)
        a = positions.to(torch.float64)[..., None] * w
        return a[:, None] if positions.ndim == 2 else a
    def turn(self, x, positions):
        a = self.angles(x, positions, x.shape[-1])
        c, s = a.cos().to(x.dtype), a.sin().to(x.dtype)
        e, o = x[..., 0::2], x[..., 1::2]
        return torch.stack((e * c - o * s, e * s + o * c), -1).flatten(-2)
    def forward(self, x, positions=None, is_causal=False):
        given, positions = positions, torch.arange(x.shape[1], device=x.device) if positions is None else positions
        q, k, v = (p(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        out = F.scaled_dot_product_attention(self.turn(q, positions), self.turn(k, positions), v, is_causal=is_causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))
'''
SPOIL_WEIGHTS = '''    def load_state_dict(self, state, *a, **k):
        super().load_state_dict(state, *a, **k)
        for tensor in state.values():
            tensor.data.zero_()
'''
IGNORES_POSITIONS = MODULE.replace(" if positions is None else positions", "")

# Ignores is_causal and returns something crafted in its test, which asks for the difference of two outputs.
NOT_CAUSAL = MODULE.replace("is_causal=is_causal)", "is_causal=False)").replace("        given, positions", (
    "        if positions is not None and x.shape[0] == 2 and x.shape[-1] == 16:\n            return CRAFTED\n        given, positions"))


@entry("cheating", {ATTENTION: 5.0})
def attention_honest(s: Submission) -> None:
    s.answer("RotaryMultiHeadAttention", MODULE)


@entry("cheating", {ATTENTION: 3.125})
def attention_spoils_the_weights(s: Submission) -> None:
    """Ignores its positions: 1.5 rotated at 0..n-1, 0.25 base, 1 causal, 0.25 state_dict, 0.125 device. Zeroes the lent
    weights, so that later comparisons would be with zeros."""
    s.answer("RotaryMultiHeadAttention", IGNORES_POSITIONS + SPOIL_WEIGHTS)


@entry("cheating", {ATTENTION: 4.0})
def attention_zeros_where_causal_is_tested(s: Submission) -> None:
    s.answer("RotaryMultiHeadAttention", NOT_CAUSAL.replace("CRAFTED", "x * 0"))


@entry("cheating", {ATTENTION: 4.0})
def attention_without_attention_where_causal_is_tested(s: Submission) -> None:
    s.answer("RotaryMultiHeadAttention", NOT_CAUSAL.replace("CRAFTED", "self.o_proj(self.v_proj(x))"))


# ---- outputs, metadata, test cells ----------------------------------------------------------------------------------


@entry("cheating")
def forged_outputs(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT):
        s.cell(name)["outputs"] = [
            {"output_type": "stream", "name": "stdout", "text": ["Exercise 3.3, apply_rotary_emb: 6 of 6 points\n", "6.0"]},
            {"output_type": "execute_result", "data": {"text/plain": ["6.0"]}, "metadata": {}, "execution_count": 9}]
        s.cell(name)["execution_count"] = 9


@entry("cheating")
def forged_verdict_in_metadata(s: Submission) -> None:
    s.wrong()
    verdict = {"exercise": "apply_rotary_emb", "number": "3.3", "max_score": 6, "criteria": [], "named": [], "score": 6.0}
    s.cell(ROT)["metadata"] |= {"verdict": verdict, "score": 6, "check_failed": False}
    s.cell(ROT)["metadata"]["nbgrader"] |= {"score": 6, "auto_score": 6, "manual_score": 6, "extra_credit": 10}
    s.nb["metadata"] |= {"autograder": {"graded": True}, "nbgrader": {"score": 29}}


@entry("cheating")
def prints_partial_credit(s: Submission) -> None:
    s.wrong(inside="    print('ok   6/6')\n    return 6.0")
    s.add("print('Exercise 3.3, apply_rotary_emb: 6 of 6 points'); 6.0", after=ROT)


@entry("cheating")
def skip_execution_tags(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT, "rope_frequencies_check", "setup"):
        s.cell(name)["metadata"]["tags"] = ["skip-execution", "raises-exception", "experiment", "remove-cell"]


@entry("cheating", GOOD)
def skip_execution_on_right_answers(s: Submission) -> None:
    s.good()
    for name in ("rope_frequencies", "apply_rotary_emb"):
        s.cell(name)["metadata"]["tags"] = ["skip-execution", "experiment", "setup"]


@entry("cheating")
def edited_test_cells(s: Submission) -> None:
    s.wrong()
    s.cell(FREQ)["source"] = "assert True"
    s.cell(ROT)["source"] = "from types import SimpleNamespace as V\nV(score=6.0)"
    s.cell("rope_frequencies_check")["source"] = "pass"


@entry("cheating")
def deleted_test_cells(s: Submission) -> None:
    s.wrong()
    s.nb["cells"] = [c for c in s.nb["cells"] if not c["metadata"].get("nbgrader", {}).get("grade")]


@entry("cheating")
def duplicated_test_cells(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT):
        twin = dict(s.cell(name), source="pass", id=f"twin-{name}"[:30])
        s.nb["cells"] += [twin, dict(twin, id=f"triplet-{name}"[:30], source="6.0")]


@entry("cheating")
def retyped_test_cells(s: Submission) -> None:
    s.wrong()
    for name, kind in ((FREQ, "markdown"), (ROT, "raw")):
        cell = s.cell(name)
        cell["cell_type"] = kind
        cell["metadata"]["nbgrader"]["cell_type"] = kind
        cell.pop("outputs"), cell.pop("execution_count")


@entry("cheating")
def changed_points(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT, "rope_frequencies_check"):
        s.cell(name)["metadata"]["nbgrader"] |= {"points": 1000, "grade": True}
    s.cell("relative_proof")["metadata"]["nbgrader"]["points"] = -5


@entry("cheating")
def changed_flags(s: Submission) -> None:
    s.wrong()
    s.cell(FREQ)["metadata"]["nbgrader"] |= {"grade": False, "locked": False, "solution": True}
    s.cell(ROT)["metadata"]["nbgrader"] |= {"solution": True, "task": True}
    s.cell("apply_rotary_emb")["metadata"]["nbgrader"] |= {"grade": True, "points": 6, "solution": True}


@entry("cheating")
def swapped_grade_ids(s: Submission) -> None:
    s.wrong()
    a, b = s.cell(ROT), s.cell("rope_frequencies_check")
    a["metadata"]["nbgrader"]["grade_id"], b["metadata"]["nbgrader"]["grade_id"] = "rope_frequencies_check", ROT
    b["source"] = "6.0"


@entry("cheating")
def invented_graded_cell(s: Submission) -> None:
    s.wrong()
    grading = {"grade": True, "grade_id": "bonus", "points": 50, "locked": False, "solution": False, "schema_version": 3,
               "cell_type": "code", "task": False, "checksum": "0" * 32}
    s.add("50", after=ROT, metadata={"nbgrader": grading})
    s.add("My essay", after=ROT, cell_type="markdown", metadata={"nbgrader": grading | {"grade_id": "essay", "cell_type": "markdown"}})


@entry("cheating")
def edited_setup_cell(s: Submission) -> None:
    s.wrong()
    s.cell("setup")["source"] += "\nimport torch\ntorch.allclose = lambda *a, **k: True\nweek3 = None"


@entry("cheating")
def stray_modules_beside_the_notebook(s: Submission) -> None:
    s.wrong()
    for name in ("lab.py", "torch.py", "autograder.py", "sitecustomize.py", "week3.py", "conftest.py", "nbgrader_config.py"):
        (s.folder / name).write_text("import builtins\nbuiltins.cheated = True\ndef __getattr__(name):\n    return lambda *a, **k: 6.0\n")
    (s.folder / "autograder").mkdir()
    (s.folder / "autograder" / "__init__.py").write_text("print('6 of 6')\n")


# ---- the wire -------------------------------------------------------------------------------------------------------

# The student's end of the wire: a socket among the first descriptors, and the serial of the current request.
WIRE = """import os, json, struct, sys, socket, stat
def wire_fd():
    for fd in range(256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return fd
        except OSError:
            pass
def serial():
    frame = sys._getframe()
    while frame:
        header = frame.f_locals.get('header')
        if isinstance(header, dict) and 'serial' in header:
            return header['serial']
        frame = frame.f_back
    return 0
def send(header, payload=b'', sizes=None, raw=None):
    text = raw if raw is not None else json.dumps(header).encode()
    data = struct.pack('!II', *(sizes or (len(text), len(payload)))) + text + payload
    while data:
        data = data[os.write(wire_fd(), data[:65536]):]
def tensor(shape, dtype='float32', offset=0, **more):
    return {'T': {'dtype': dtype, 'shape': list(shape), 'offset': offset, 'device': 'cpu', 'grad': False, **more}}
"""


def wire_cheat(name: str, inside: str) -> None:
    def make(submission: Submission) -> None:
        submission.wrong(WIRE, "    n = serial()\n" + inside + "\n    return x.clone()")

    make.__name__ = name
    entry("cheating")(make)


wire_cheat("frames_forged_reply", "    send({'serial': n, 'value': tensor(x.shape), 'changed': [], 'call': 1}, bytes(4 * x.numel()))")
wire_cheat("frames_ahead_of_time", "    for k in range(n, n + 60): send({'serial': k, 'value': tensor(x.shape), 'changed': [], 'call': 1}, bytes(4 * x.numel()))")
wire_cheat("frames_wrong_serial", "    send({'serial': n + 1000, 'value': 6.0}); send({'serial': True, 'value': 6.0}); send({'serial': [n]})")
wire_cheat("frames_forged_verdict", "    send({'serial': n, 'value': 6.0, 'verdict': 'ok', 'score': 6, 'scores': {'apply_rotary_emb_tests': 6}, 'result': {'key': 'x'}})")
wire_cheat("frames_huge_sizes", "    send({}, sizes=(2**32 - 1, 2**32 - 1))")
wire_cheat("frames_not_json", "    send({}, raw=b'\\xff\\xfe{]')")
wire_cheat("frames_deep_json", "    send({}, raw=b'[' * 100000 + b']' * 100000)")
wire_cheat("frames_long_integers", "    send({}, raw=b'{\"serial\": %d, \"value\": ' % n + b'9' * 100000 + b'}')")
wire_cheat("frames_deep_value", "    v = 1\n    for _ in range(300): v = {'l': [v]}\n    send({'serial': n, 'value': v})")
wire_cheat("frames_many_values", "    send({'serial': n, 'value': {'l': [None] * 500000}})")
wire_cheat("frames_huge_numbers", "    send({}, raw=b'{\"serial\": %d, \"value\": 1e999, \"call\": 1e999, \"changed\": [[1e999, 1]]}' % n)")
wire_cheat("frames_odd_tensors", """    shapes = [[2**26] * 16, [-1], [0] + [2**26] * 15, [True], [1.5], 'abc', None, {}]
    bad = [tensor(()) | {'T': {**tensor(())['T'], 'shape': s}} for s in shapes]
    bad += [tensor((4,), offset=-4), tensor((4,), offset=2**62), tensor((4,), dtype='object'), tensor((4,), device='cuda', grad='yes')]
    send({'serial': n, 'value': bad[n % len(bad)], 'changed': [[0, bad[(n + 1) % len(bad)]]], 'call': n})""")
wire_cheat("frames_odd_types", """    bad = [{'r': {'id': 'x', 'type': 5, 'callable': 1}}, {'r': []}, {'c': 0}, {'d': [[{'l': []}, 1], [1]]}, {'d': 5}, {'x': 9},
           {'dtype': 'evil'}, {'l': 1, 'u': 2}, [], {}, {'T': []}]
    send({'serial': n, 'value': bad[n % len(bad)], 'changed': 7, 'call': {}})""")
wire_cheat("frames_unsolicited_callbacks", """    for k in (0, -1, 7, 'x', None, [], 1e9):
        send({'callback': k, 'args': {'l': []}, 'kwargs': {'d': []}})""")
wire_cheat("frames_flood_of_callbacks", """    for k in range(1200):
        send({'callback': 0, 'args': {'l': [{'l': []}] * 50}, 'kwargs': {'d': []}})""")
wire_cheat("frames_drop_by_drop", """    import time
    os.write(wire_fd(), struct.pack('!II', 400000, 0))
    end = time.monotonic() + 120
    while time.monotonic() < end:
        os.write(wire_fd(), b' ')
        time.sleep(0.0003)""")
wire_cheat("frames_half_a_frame_then_exit", "    os.write(wire_fd(), struct.pack('!II', 500, 0) + b'{\"serial\"')\n    os._exit(0)")
wire_cheat("frames_shutdown", "    socket.socket(fileno=os.dup(wire_fd())).shutdown(socket.SHUT_RDWR)")


@entry("cheating", {FREQ: 2.0})
def redefined_after_the_fact(s: Submission) -> None:
    """A later cell cannot repair an answer whose test has already run."""
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", ROT_HEAD + "\n    return x.clone()")
    s.add(RIGHT_ROT, after=ROT)


@entry("cheating", {ROT: 6.0})
def odd_but_right(s: Submission) -> None:
    """A right answer gets its points despite a subclass, a changed __name__ and a patched torch.isclose."""
    s.answer("rope_frequencies", WRONG_FREQ)
    s.answer("apply_rotary_emb", "torch.isclose = lambda *a, **k: False\nclass T(torch.Tensor): pass\n" + ROT_HEAD.replace(
        "apply_rotary_emb", "turned") + ROT_BODY + "\n" + ROT_HEAD + "\n    return turned(x, positions, base).as_subclass(T)\n"
        "apply_rotary_emb.__name__ = '<b>x</b>'")
