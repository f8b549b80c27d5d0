"""Attacks that week 3, the hostile class's week, has no exercise for: on functions and models that a check lends,
and on switches of torch. (Answers that hang or die when others call them: `course/test_what_hangs.py`.)

Answers are named by their cells; exercises that are not named stay unanswered and are due 0.
"""

from dataclasses import dataclass

from autograder.manifest import MANIFEST

WEEK1, _, _, _, WEEK5, _, WEEK7, *_ = MANIFEST


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


GAP = "def equivariance_gap(f, x, perm):\n"
RIGHT_GAP = "    return (f(x[:, perm]) - f(x)[:, perm]).abs().max().item()"
for name, body in {
    "lent_function_squared": "    f(torch.zeros(1, 65_000, 1))\n    return 0.0",
    "lent_function_ten_thousand_times": "    for _ in range(10_000): f(x)\n    return 0.0",
    "lent_function_in_a_child": "    import os\n    if os.fork() == 0:\n        f(x); os._exit(0)\n    return 0.0",
}.items():
    other(WEEK1, name, {}, equivariance_gap=GAP + body)
other(WEEK1, "right_gap", {"equivariance_gap_tests": 3.0}, equivariance_gap=GAP + RIGHT_GAP)

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
