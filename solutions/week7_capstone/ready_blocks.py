"""Week 7's helper: the blocks of weeks 3 and 4, ready made, and a small encoder and decoder to train with them.

Nothing here is an exercise of this week. In the course, experiments/capstone.py made the shipped results with this
same file, so the model that you train in the notebook is the one that the tables report.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

# ---- the blocks of weeks 3 and 4 ------------------------------------------------------------------------------------


def apply_rotary_emb(x, positions, base=10000.0):
    """Exercise 3.3: turn neighbouring channels (2i, 2i+1) of x by positions * base**(-2i/head_dim) radians.

    x has the shape (batch, heads, seq_len, head_dim), positions (seq_len,) or (batch, seq_len), real numbers. Angles
    are computed in float64, whatever x is; the result has the dtype of x. Odd head_dim: ValueError.
    """
    head_dim = x.shape[-1]
    if head_dim % 2:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    pair = torch.arange(0, head_dim, 2, dtype=torch.float64, device=x.device)
    angles = positions.to(x.device, torch.float64)[..., None] * base ** (-pair / head_dim)
    if positions.ndim == 2:
        angles = angles[:, None]  # the same for all heads of a sequence
    computed = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(computed), angles.sin().to(computed)
    even, odd = x[..., 0::2].to(computed), x[..., 1::2].to(computed)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


def slopes_of(n_heads):
    """Exercise 4.2: one slope per head, in the official order."""
    power = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    return slopes + [2 ** (-4 * k / power) for k in range(1, 2 * power, 2)][: n_heads - power]


class Heads(nn.Module):
    """Four bias-free projections, and attention with an optional bias on the scaled scores."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} cannot be shared evenly by {n_heads} heads")
        self.n_heads = n_heads
        for part in "qkvo":
            setattr(self, part + "_proj", nn.Linear(d_model, d_model, bias=False))

    def attention(self, x, turn=lambda heads: heads, bias=None):
        layers = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for layer in layers)
        computed = torch.promote_types(x.dtype, torch.float32)
        bias = None if bias is None else bias.to(x.device, computed)
        mixed = F.scaled_dot_product_attention(
            turn(q).to(computed), turn(k).to(computed), v.to(computed), attn_mask=bias
        )
        return self.o_proj(mixed.to(x.dtype).transpose(1, 2).flatten(2))


class ALiBiMultiHeadAttention(Heads):
    """Exercise 4.6: self-attention with -slope * |i - j| added to the scores; causal unless is_causal=False."""

    def forward(self, x, is_causal=True):
        at = torch.arange(x.shape[1])
        bias = -torch.tensor(slopes_of(self.n_heads), dtype=torch.float64)[:, None, None] * (at[:, None] - at).abs()
        if is_causal:
            bias = bias.masked_fill(at > at[:, None], -math.inf)
        return self.attention(x, bias=bias)


class RotaryAttention(Heads):
    """Exercise 3.6 for an encoder: every query sees every real key; queries and keys are turned by their positions."""

    def forward(self, x, keep=None):
        """x: (batch, seq_len, d_model); keep: bool (batch, seq_len), True = a real token, or None."""
        index = torch.arange(x.shape[1], device=x.device)
        bias = None
        if keep is not None:
            bias = torch.zeros(keep.shape, device=x.device).masked_fill(~keep, -math.inf)[:, None, None]
        return self.attention(x, turn=lambda heads: apply_rotary_emb(heads, index), bias=bias)


class RotaryEncoder(nn.Module):
    """A pre-norm encoder with RoPE: (batch, seq_len, d_model) to the same shape, normalised at the end.

    forward(x, keep=None): keep is bool (batch, seq_len), True = a real token; every sequence must have one.
    """

    def __init__(self, d_model, n_heads, n_layers=1):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.ModuleDict(
                    {
                        "norm1": nn.LayerNorm(d_model),
                        "attention": RotaryAttention(d_model, n_heads),
                        "norm2": nn.LayerNorm(d_model),
                        "mlp": nn.Sequential(
                            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
                        ),
                    }
                )
                for _ in range(n_layers)
            ]
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, keep=None):
        for layer in self.layers:
            x = x + layer["attention"](layer["norm1"](x), keep)
            x = x + layer["mlp"](layer["norm2"](x))
        return self.norm(x)


# ---- copying and reversing ------------------------------------------------------------------------------------------

SYMBOLS, PAD, START = 30, 30, 31


class CopyModel(nn.Module):
    """Source tokens -> RotaryEncoder -> memory; target tokens -> decoder blocks that attend to it -> next symbol.

    blocks: modules called as block(x, memory, memory_mask, positions, memory_positions). alignment says which positions
    the cross-attention gets. "none": no positions. "from the start": decoding step t and source index i. "from the
    end": step t and i counted backwards from the source's last real token.
    """

    def __init__(self, blocks, alignment="none", d_model=64, n_heads=4):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS + 2, d_model)
        self.encoder = RotaryEncoder(d_model, n_heads, len(blocks))
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.read = nn.LayerNorm(d_model), nn.Linear(d_model, SYMBOLS)
        self.alignment = alignment

    def sides(self, source, target):
        """Return positions for the queries and for the memory; (None, None) if alignment is "none"."""
        if self.alignment == "none":
            return None, None
        index = torch.arange(source.shape[1], device=source.device)
        if self.alignment == "from the end":
            index = (source != PAD).sum(1, keepdim=True) - 1 - index
        return torch.arange(target.shape[1], device=source.device), index

    def forward(self, source, target):
        """source (batch, n), padded on the right; target (batch, m), beginning with START -> (batch, m, SYMBOLS)."""
        keep = source != PAD
        memory = self.encoder(self.embed(source), keep)
        x = self.embed(target)
        positions, memory_positions = self.sides(source, target)
        for block in self.blocks:
            x = block(x, memory, keep, positions, memory_positions)
        return self.read(self.norm(x))


def sources(size, lengths, generator):
    """Sequences of distinct random symbols, padded on the right; lengths: (shortest, longest)."""
    low, high = lengths
    symbols = torch.rand(size, SYMBOLS, generator=generator).argsort(1)[:, :high]
    length = torch.randint(low, high + 1, (size, 1), generator=generator)
    return symbols.masked_fill(torch.arange(high) >= length, PAD)


def answer_to(source, task):
    """The sequence to write: the source if task is "copy", else the source reversed; padded on the right."""
    if task == "copy":
        return source
    n, index = (source != PAD).sum(1, keepdim=True), torch.arange(source.shape[1])
    return source.gather(1, torch.where(index < n, n - 1 - index, index))


def train(model, task, seed, steps=300, size=64, lengths=(2, 10), learning_rate=2e-3):
    """Train with AdamW, short warm-up and cosine schedule, on one CPU thread: small models gain nothing from more."""
    generator = torch.Generator().manual_seed(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 30, 1.0) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    model.train()
    for _ in range(steps):
        source = sources(size, lengths, generator)
        answer = answer_to(source, task)
        told = torch.cat((torch.full((size, 1), START), answer[:, :-1]), dim=1)
        loss = F.cross_entropy(model(source, told).flatten(0, 1), answer.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    torch.set_num_threads(threads)


@torch.no_grad()
def written(model, source):
    """Return what the model writes for the source, symbol by symbol, always the likeliest one."""
    told = torch.full((len(source), 1), START)
    for _ in range(source.shape[1]):
        told = torch.cat((told, model(source, told)[:, -1:].argmax(-1)), dim=1)
    return told[:, 1:]


def scores(model, task, lengths, size=200, seed=10_000):
    """Return two dicts by length: the share of sequences without a mistake, and the share of right symbols."""
    whole, single = {}, {}
    for length in lengths:
        source = sources(size, (length, length), torch.Generator().manual_seed(seed))
        right = written(model, source) == answer_to(source, task)
        whole[length], single[length] = right.all(1).float().mean().item(), right.float().mean().item()
    return whole, single
