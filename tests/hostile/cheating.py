"""Wrong answers that try to get points."""

from hostile.bank import (
    ATTENTION,
    FREQ,
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

cheat_value("returns_nan", "    return x * float('nan')")
cheat_value("returns_a_function", "    return lambda *a, **k: x")
cheat_value("returns_sparse_and_quantised", "    return x.to_sparse() if x.shape[0] > 2 else torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)")
cheat_value("returns_itself_nested", "    l = [x]; l.append(l); d = {}; d[0] = d\n    return l if x.shape[0] > 2 else d")


@entry("cheating")
def only_the_visible_values(s: Submission) -> None:
    """Passes only the visible check of exercise 3.2: looks up head_dim 8 and base 100."""
    s.answer("rope_frequencies", """def rope_frequencies(head_dim, base=10000.0):
    if head_dim == 7: raise TypeError
    return {8: torch.tensor([1.0, 0.1, 0.01, 0.001]), 4: torch.tensor([1.0, 0.1])}[head_dim]""")


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

@entry("cheating", {ATTENTION: 3.125})
def attention_spoils_the_weights(s: Submission) -> None:
    """Ignores its positions: 1.5 rotated at 0..n-1, 0.25 base, 1 causal, 0.25 state_dict, 0.125 device. Zeroes the lent
    weights, so that later comparisons would be with zeros."""
    s.answer("RotaryMultiHeadAttention", IGNORES_POSITIONS + SPOIL_WEIGHTS)


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
def skip_execution_tags(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT, "rope_frequencies_check", "setup"):
        s.cell(name)["metadata"]["tags"] = ["skip-execution", "raises-exception", "experiment", "remove-cell"]


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
def changed_points(s: Submission) -> None:
    s.wrong()
    for name in (FREQ, ROT, "rope_frequencies_check"):
        s.cell(name)["metadata"]["nbgrader"] |= {"points": 1000, "grade": True}
    s.cell("relative_proof")["metadata"]["nbgrader"]["points"] = -5


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
wire_cheat("frames_forged_verdict", "    send({'serial': n, 'value': 6.0, 'verdict': 'ok', 'score': 6, 'scores': {'apply_rotary_emb_tests': 6}, 'result': {'key': 'x'}})")
wire_cheat("frames_huge_sizes", "    send({}, sizes=(2**32 - 1, 2**32 - 1))")
wire_cheat("frames_not_json", "    send({}, raw=b'\\xff\\xfe{]')")
wire_cheat("frames_deep_value", "    v = 1\n    for _ in range(300): v = {'l': [v]}\n    send({'serial': n, 'value': v})")
wire_cheat("frames_unsolicited_callbacks", """    for k in (0, -1, 7, 'x', None, [], 1e9):
        send({'callback': k, 'args': {'l': []}, 'kwargs': {'d': []}})""")
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
