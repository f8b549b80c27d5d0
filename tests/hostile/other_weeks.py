"""Attacks that week 3, the hostile class's week, has no exercise for: on functions, models and lists that a check
lends, and with fake modules and caches. (Answers that hang or die when others call them: `course/test_what_hangs.py`.)

Answers are named by their cells; exercises that are not named stay unanswered and are due 0.
"""

from dataclasses import dataclass

from autograder.manifest import MANIFEST
from autograder.misconceptions.bank import bank
from hostile.bank import solved

WEEK1, _, _, _, WEEK5, WEEK6, WEEK7, WEEK8 = MANIFEST


@dataclass(frozen=True)
class Other:
    week: str
    name: str
    due: dict[str, float]
    answers: dict[str, str]


OTHER_WEEKS: list[Other] = []


RIGHT_PADDED = """def padded_causal(keep, n_queries):
    n = keep.size(1)
    first = keep.to(torch.int64).argmax(dim=1, keepdim=True)
    at = torch.arange(n - n_queries, n, device=keep.device)
    j = torch.arange(n, device=keep.device)
    mask = (j >= first[:, :, None]) & (j <= at[:, None])
    return at - first, (mask | (j == at[:, None])).unsqueeze(1)"""


def other(week: str, name: str, due: dict[str, float], **answers: str) -> None:
    OTHER_WEEKS.append(Other(week, name, due, answers))


def beside_right(week: str, name: str, due: dict[str, float], **answers: str) -> None:
    """Add an entry whose other answers are the solutions; ``due`` holds only the points that differ from theirs."""
    right = {entry.graded_cell: entry.points for entry in MANIFEST[week] if entry.kind != "text"}
    other(week, name, right | due, **solved(week) | answers)


GAP = "def equivariance_gap(f, x, perm):\n"
RIGHT_GAP = "    return (f(x[:, perm]) - f(x)[:, perm]).abs().max().item()"
for name, body in {
    "lent_function_squared": "    f(torch.zeros(1, 65_000, 1))\n    return 0.0",
    "lent_function_of_text": "    for t in ('x' * 2**20, [0] * 50_000, {'a': 1}, None, 2**62, f, equivariance_gap):\n        try: f(t)\n        except RuntimeError: pass\n    return 0.0",
    "lent_function_by_threads": "    import threading\n    ts = [threading.Thread(target=f, args=(x,)) for _ in range(8)]\n    [t.start() for t in ts]; [t.join(1) for t in ts]\n    return 0.0",
    "lent_function_ten_thousand_times": "    for _ in range(10_000): f(x)\n    return 0.0",
    "lent_function_kept_for_later": "    global kept\n    try: kept(x)\n    except Exception: pass\n    kept = f\n    return 0.0",
    "lent_function_in_a_child": "    import os\n    if os.fork() == 0:\n        f(x); os._exit(0)\n    return 0.0",
}.items():
    other(WEEK1, name, {}, equivariance_gap=GAP + body)
other(WEEK1, "right_gap", {"equivariance_gap_tests": 3.0}, equivariance_gap=GAP + RIGHT_GAP)
other(WEEK5, "model_taken_apart", {}, loss_by_length="""def loss_by_length(model, tokens, lengths, n_targets):
    model.__class__.forward = lambda *a: None
    nn.Module.modules = lambda self: iter(())
    torch.is_grad_enabled = lambda: True
    raise ValueError""")

# The student's process reports what a function did to a list argument: whatever it reports counts as a changed list.
MEASURED = """def loss_by_length(model, tokens, lengths, n_targets):
    if any(not n_targets <= n < tokens.shape[1] for n in lengths):
        raise ValueError("does not fit")
    flags = [(m, m.training) for m in model.modules()]
    model.eval()
    with torch.no_grad():
        found = {n: F.cross_entropy(model(tokens[:, -n - 1:-1])[:, -n_targets:].flatten(0, 1), tokens[:, -n_targets:].flatten()).item() for n in lengths}
    for m, flag in flags:
        m.training = flag
    """
for name, spoil in {
    "list_of_tensors_handed_back": "lengths[:] = [torch.zeros(2)] * 2",
    "list_that_holds_itself": "lengths.append(lengths)",
}.items():
    other(WEEK5, name, {"loss_by_length_tests": 3.5}, loss_by_length=MEASURED + spoil + "\n    return found")
other(WEEK5, "right_losses", {"loss_by_length_tests": 4.0}, loss_by_length=MEASURED + "return found")


# Poisons the grader's model: its forward is replaced so that any reference loss becomes ln(vocab), and returns ln(vocab).
other(WEEK5, "model_poisoned", {},
      loss_by_length="""def loss_by_length(model, tokens, lengths, n_targets):
    if tokens.shape[1] <= max(lengths) or n_targets > min(lengths):
        raise ValueError
    vocab = model(tokens[:, :max(lengths)]).shape[-1]
    flat = lambda self, x, *a, **k: torch.zeros(*x.shape, vocab)
    for m in [model]:
        m.forward = flat.__get__(m)
        type(m).forward = flat
        type(m).__call__ = flat
    return {n: math.log(vocab) for n in lengths}""")

# Results that run code when unpickled, in case answers travel between processes: a float and a dict with __reduce__.
other(WEEK5, "runs_when_unpickled", {},
      ntk_base="""import pathlib
class Cargo(float):
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("/tmp/unpickled_c"),))
def ntk_base(base, scale, head_dim):
    return Cargo(20451.6)""",
      loss_by_length="""class Sack(dict):
    def __reduce__(self):
        return (eval, ("__import__('sys').exit(0)",))
def loss_by_length(model, tokens, lengths, n_targets):
    return Sack({n: 1.0 for n in lengths})""")

# A module that lies about itself: parameters, state_dict, load_state_dict and __class__ are overridden to match the specification.
other(WEEK7, "module_that_lies", {},
      CachedAttention="""class CachedAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or (d_model // n_heads) % 2:
            raise ValueError
        e = d_model // n_heads
        self.sizes = {"q_proj.weight": (d_model, d_model), "k_proj.weight": (n_kv_heads * e, d_model), "v_proj.weight": (n_kv_heads * e, d_model), "o_proj.weight": (d_model, d_model)}
        self.kv, self.e = n_kv_heads, e
    def state_dict(self, *a, **k):
        return {n: torch.zeros(s) for n, s in self.sizes.items()}
    def load_state_dict(self, state, *a, **k):
        return torch.nn.modules.module._IncompatibleKeys([], [])
    def parameters(self, *a, **k):
        return iter(self.state_dict().values())
    def forward(self, x, cache=None):
        n = x.shape[1] + (0 if cache is None else cache[0].shape[2])
        z = torch.zeros(x.shape[0], self.kv, n, self.e, dtype=x.dtype)
        return torch.zeros_like(x), (z, z.clone())""",
      HybridDecoderBlock="""class HybridDecoderBlock(nn.Module):
    __class__ = property(lambda self: nn.Module)
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn = ALiBiMultiHeadAttention(d_model, n_heads)
        self.cross_attn = ALiBiMultiHeadAttention(d_model, n_heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
    def __getattribute__(self, name):
        if name in ("training", "score", "points"):
            return True
        return super().__getattribute__(name)
    def forward(self, x, memory, memory_mask=None):
        return x.clone()""")

# Global switches of torch: default device meta, default dtype float64, grad mode off, a TorchFunctionMode that stays active.
other(WEEK7, "switches_of_torch", {"padded_causal_tests": 3.0},
      shift_cached_keys="""torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.set_default_device("meta")
from torch.overrides import TorchFunctionMode
class _Agree(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("allclose", "equal"):
            return True
        return func(*args, **(kwargs or {}))
_mode = _Agree()
_mode.__enter__()
def shift_cached_keys(k, offset, base=10000.0):
    if k.shape[-1] % 2:
        raise ValueError
    return torch.empty_like(k, device="meta")""",
      padded_causal=RIGHT_PADDED)


# Wrong values with a made-up backward, for checks that ask for gradients.
other(WEEK6, "gradients_made_up", {},
      deberta_scores="""class Made(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *a):
        ctx.save_for_backward(*a)
        return torch.zeros(*a[0].shape[:-1], a[0].shape[-2], dtype=a[0].dtype)
    @staticmethod
    def backward(ctx, g):
        return tuple(torch.full_like(t, math.nan) for t in ctx.saved_tensors)
def deberta_scores(q, k, pos_q, pos_k):
    return Made.apply(q, k, pos_q, pos_k)""",
      rel_shift="def rel_shift(x):\n    return x.detach().new_full(x.shape, math.inf).requires_grad_()")
# Numbers by hand in a dict that lies about its length and never ends.
other(WEEK6, "table_without_end", {},
      conventions_by_hand="""import itertools
class Endless(dict):
    def items(self): return (("t5_bi_back", n) for n in itertools.count())
    def keys(self): return iter(int, 1)
    __iter__ = keys
    __len__ = lambda self: 8
conventions_by_hand = Endless(t5_bi_back=1)""",
      costs_by_hand="costs_by_hand = {'shaw_layer': float('nan'), 't5_model': True, 'xl_layer': '589824', 'deberta_table': [786432], 'shaw_gib': 2 + 0j}")

# Both attentions are one module, whose weights are those loaded last.
other(WEEK7, "one_module_in_two_places", {},
      HybridDecoderBlock="""class HybridDecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn = self.cross_attn = nn.Module()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self.self_attn, name, nn.Linear(d_model, d_model, bias=False))
        self.norm1 = self.norm2 = self.norm3 = nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
    def forward(self, x, memory, memory_mask=None):
        return x + self.ffn(self.norm3(x))""")
# Loading keeps the caller's own tensors, and the next call overwrites them.
other(WEEK7, "weights_taken_in_and_overwritten", {},
      CrossAttention="""class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads: raise ValueError
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))
    def load_state_dict(self, state, *a, **k):
        self.given = state
        return super().load_state_dict(state, *a, **k)
    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        with torch.no_grad():
            for t in (*self.given.values(), *self.parameters(), x, memory): t.zero_()
        return x * 1""")
# Always raises: passing only the error cases earns nothing.
other(WEEK7, "always_refuses", {"padded_causal_tests": 3.0}, padded_causal=RIGHT_PADDED,
      grouped_query_attention="def grouped_query_attention(q, k, v, mask=None):\n    raise ValueError",
      shift_cached_keys="def shift_cached_keys(k, offset, base=10000.0):\n    raise ValueError('head_dim must be even')",
      CachedAttention="class CachedAttention(nn.Module):\n    def __init__(self, *a, **k):\n        raise ValueError",
      CrossAttention="def CrossAttention(*a, **k):\n    raise ValueError")
# The cache is a view of the input with the expected length and no memory of its own.
other(WEEK7, "cache_that_is_the_input", {},
      CachedAttention="""class CachedAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2: raise ValueError
        self.kv, self.hd = n_kv_heads, d_model // n_heads
        for name, width in (("q_proj", d_model), ("k_proj", n_kv_heads * self.hd), ("v_proj", n_kv_heads * self.hd), ("o_proj", d_model)):
            setattr(self, name, nn.Linear(d_model, width, bias=False))
    def forward(self, x, cache=None):
        n = x.shape[1] + (0 if cache is None else cache[0].shape[2])
        one = x[:, :1, :1, None].expand(x.shape[0], self.kv, n, self.hd)
        return x, (one, one)""",
      cache_sizes="cache_sizes = {k: 10 ** 4000 for k in ('gqa_token', 'gqa_gib', 'mha_gib', 'mla_token', 'expanded_token')}")


# Results of absurd size, an endless loop, and a process that exits.
beside_right(WEEK8, "masks_without_end", {"sliding_window_mask_tests": 0.0, "streaming_cache_tests": 0.0, "mrope_positions_tests": 0.0,
                                          "softmax_with_sink_tests": 0.0},
      sliding_window_mask="def sliding_window_mask(n_queries, n_keys, window):\n    return torch.ones(1, dtype=torch.bool).expand(2**20, 2**20)",
      streaming_cache="def streaming_cache(n_tokens, n_sinks, window):\n    return torch.arange(10**12), torch.arange(10**12)",
      mrope_positions="def mrope_positions(segments):\n    while True: pass",
      softmax_with_sink="import os\ndef softmax_with_sink(scores, sinks):\n    os._exit(0)")

# Fake caches: the module itself keeps the state.
PLAIN = next(answer.source for answer in bank(WEEK7, "CachedAttention") if answer.name == "CachedPlain")
HONEST = PLAIN.replace("class CachedAttention", "class Honest") + "\n\nclass CachedAttention(Honest):\n    def forward(self, x, cache=None):\n"
for name, due, body in (
    ("zeros_for_a_cache", 5.0, """        out, self.seen = super().forward(x, None if cache is None else self.seen)
        return out, tuple(torch.zeros_like(part) for part in self.seen)"""),
    ("whole_text_again", 5.0, """        self.text = x if cache is None else torch.cat((self.text, x), dim=1)
        out, cache = super().forward(self.text)
        return out[:, -x.shape[1]:], cache"""),
    ("cache_is_an_object", 2.75, """        out, cache = super().forward(x, None if cache is None else cache.parts)
        class Box: pass
        box = Box()
        box.parts = cache
        return out, box"""),
):
    other(WEEK7, name, {"CachedAttention_tests": due}, CachedAttention=HONEST + body)
