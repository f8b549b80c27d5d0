"""Week 8's helper: a stream through a small model, a meter for memory, and the pictures of the week that move.

Nothing here is an exercise. The same file makes the shipped results (experiments/production.py in the course), so what
runs in the notebook and what the tables report is one and the same stream.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import ready_encodings as ready
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import lab

# ---- a stream -------------------------------------------------------------------------------------------------------

TRAINED, LENGTH, TARGETS = 64, 512, 32  # length of the training texts; of the stream; scored tokens at its end


def trained_model(name="week5_rope.npz"):
    """Week 5's language model with RoPE, two layers, trained on 64 characters. The weights lie in a NumPy file."""
    model = ready.SmallTransformer(len(ready.ALPHABET), "rope")
    with np.load(name) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files})
    return model.eval()


def texts(count=96):
    """``count`` pieces of the test text: (count, LENGTH + 1) tokens."""
    return ready.windows(ready.english()[1], LENGTH, count)


@torch.no_grad()
def stream(model, tokens, policy):
    """Feed the tokens one at a time through a cache that ``policy`` keeps small; the loss of every prediction.

    policy(n_tokens): which of the tokens 0 .. n_tokens-1 are kept (ascending, the newest among them), and the
    position of each. Keys are cached before the rotation, so positions may be given anew at every step. A token's keys
    and values are computed once, from what was in the cache then. Returns (texts, tokens - 1). One CPU thread: steps
    this small are no faster with more.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    n_steps, angles = tokens.shape[1] - 1, (ready.frequencies_of(model.head_dim), 1.0)
    room = (len(tokens), model.n_heads, n_steps, model.head_dim)
    caches = [(torch.empty(room), torch.empty(room)) for _ in model.blocks]  # of all tokens; the policy says what is read
    losses = []
    for step in range(n_steps):
        kept, positions = policy(step + 1)
        x = model.embed(tokens[:, step : step + 1])
        for block, (keys, values) in zip(model.blocks, caches):
            q, keys[:, :, step : step + 1], values[:, :, step : step + 1] = _projected(block, x)
            q, k = ready.rotate(q, positions[-1:], *angles), ready.rotate(keys[:, :, kept], positions, *angles)
            mixed = F.scaled_dot_product_attention(q, k, values[:, :, kept])
            x = x + block.attention.out(mixed.transpose(1, 2).flatten(2))
            x = x + block.mlp(block.norm2(x))
        logits = model.read(model.norm(x))[:, 0]
        losses.append(F.cross_entropy(logits, tokens[:, step + 1], reduction="none"))
    torch.set_num_threads(threads)
    return torch.stack(losses, dim=1)


def _projected(block, x):
    """A block's queries, keys and values of x: three times (batch, heads, seq_len, head_dim)."""
    attention = block.attention
    return attention.qkv(block.norm1(x)).unflatten(-1, (3, attention.n_heads, -1)).permute(2, 0, 3, 1, 4)


@torch.no_grad()
def dense(model, tokens):
    """The same losses with nothing dropped: every token sees all tokens before it."""
    logits = torch.cat([model(part[:, :-1]) for part in tokens.split(32)])
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")


@torch.no_grad()
def recomputed(model, tokens, window=TRAINED, targets=TARGETS):
    """The last losses with a fresh window of tokens, computed from nothing at every step: (texts, targets)."""
    losses = []
    for end in range(tokens.shape[1] - targets, tokens.shape[1]):
        logits = model(tokens[:, end - window : end])[:, -1]
        losses.append(F.cross_entropy(logits, tokens[:, end], reduction="none"))
    return torch.stack(losses, dim=1)


def at_the_end(losses):
    """Mean loss of the last TARGETS predictions."""
    return float(losses[:, -TARGETS:].mean())


@torch.no_grad()
def weight_on_the_first(model, tokens):
    """The share of its attention that each head gives to token 0 of a text of the training length: one per head.

    The mean over texts and over the queries of the second half, layer by layer.
    """
    x, shares = model.embed(tokens[:, :TRAINED]), []
    at = torch.arange(TRAINED)
    for block in model.blocks:
        q, k, v = _projected(block, x)
        q, k = (ready.rotate(part, at, ready.frequencies_of(model.head_dim)) for part in (q, k))
        scores = q @ k.transpose(-2, -1) / math.sqrt(model.head_dim)
        weights = scores.masked_fill(at > at[:, None], -math.inf).softmax(-1)
        shares += weights[:, :, TRAINED // 2 :, 0].mean((0, 2)).tolist()
        x = x + block.attention.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    return shares


# ---- memory ---------------------------------------------------------------------------------------------------------


class _Written(TorchDispatchMode):
    """Sees every operation of PyTorch; notes the memory that each one has written, views left out."""

    def __init__(self, arguments):
        super().__init__()
        self.known = {part.untyped_storage().data_ptr() for part in arguments if isinstance(part, torch.Tensor)}
        self.alive = []  # so that no address is used twice
        self.sizes = [0]

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        for made in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in self.known:
                self.known.add(made.untyped_storage().data_ptr())
                self.alive.append(made)
                self.sizes.append(made.untyped_storage().nbytes() // made.element_size())
        return out


def _written(function, arguments):
    with torch.no_grad(), _Written(arguments) as seen:
        function(*arguments)
    return seen.sizes


def largest_tensor(function, *arguments):
    """How many numbers the largest tensor holds that ``function(*arguments)`` makes."""
    return max(_written(function, arguments))


def numbers_written(function, *arguments):
    """How many numbers ``function(*arguments)`` writes to memory in all its operations."""
    return sum(_written(function, arguments))
