"""Week 5's helper: the encodings of weeks 2 to 4, ready made, inside one small Transformer.

Nothing here is an exercise of this week. In the course, experiments/extrapolation.py made the shipped results with
this same file, so the model that you train in the notebook is the one that the tables report.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

ENCODINGS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
HYBRID = "hybrid"  # section 8: RoPE in a short window, then a layer without positions
NAMES = {
    "none": "no encoding",
    "sinusoidal": "sinusoidal",
    "learned": "learned",
    "rope": "RoPE",
    "alibi": "ALiBi",
    "t5": "T5 bias",
    HYBRID: "hybrid",
}


# ---- the encodings -------------------------------------------------------------------------------------------------


def frequencies_of(dim, base=10000.0):
    """base**(-2i/dim) for every pair of channels, fastest first: (dim/2,) float64."""
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def sinusoids(seq_len, d_model):
    """Week 2's table: (seq_len, d_model), sine and cosine alternating."""
    angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * frequencies_of(d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def rotate(x, positions, frequencies, temperature=1.0):
    """Week 3's rotation with every part a parameter: turn neighbouring channels of x by positions * frequencies.

    x: (batch, heads, seq_len, head_dim); positions: (seq_len,); frequencies: (head_dim/2,); temperature: factor on
    cosine and sine.
    """
    angles = (positions.double()[:, None].cpu() * frequencies.double().cpu()).to(torch.float32).to(x.device)
    cos, sin = temperature * angles.cos(), temperature * angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


def alibi(n_heads, seq_len):
    """Week 4: -slope * |i - j|, (n_heads, seq_len, seq_len). The slopes are right only if n_heads is a power of two."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)
    at = torch.arange(seq_len)
    return -slopes[:, None, None] * (at[:, None] - at).abs()


T5_LAST = 32  # from about this distance on, keys share the last bucket; T5 itself uses 128, trained on 512 tokens


def t5_buckets(seq_len, n_buckets=32, max_distance=128):
    """The bucket of every pair (query, key) in a causal model: exact up to 15, then logarithmic; (seq_len, seq_len)."""
    at = torch.arange(seq_len)
    distance = (at[:, None] - at).clamp(min=0)
    exact = n_buckets // 2
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(max_distance / exact) * exact).long()
    return torch.where(distance < exact, distance, far.clamp(max=n_buckets - 1))


def beyond_window(seq_len, window):
    """-inf for every key that is no longer among the last ``window``, 0 for the others: (1, seq_len, seq_len)."""
    at = torch.arange(seq_len)
    return torch.zeros(1, seq_len, seq_len).masked_fill(at[:, None] - at >= window, -math.inf)


# ---- the model -----------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Multi-head attention with an optional rotation and an optional bias."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model, bias=False), nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, rotation, bias, is_causal):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal and bias is None)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a two-layer network, each applied to normalised input and added to the residual stream."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, rotation, bias, is_causal):
        x = x + self.attention(self.norm1(x), rotation, bias, is_causal)
        return x + self.mlp(self.norm2(x))


class SmallTransformer(nn.Module):
    """A decoder (or, with is_causal=False, an encoder) of two layers with one of six encodings, or the hybrid.

    n_tokens: number of different tokens; n_outputs: number of outputs (None: n_tokens); encoding: one of ENCODINGS, or
    HYBRID; max_len: rows of the learned table; window: how many keys the hybrid's first layer sees.
    ``forward(tokens)`` takes int64 (batch, seq_len) and returns (batch, seq_len, n_outputs); with pool=True the mean
    over the sequence, (batch, n_outputs).

    A model with RoPE gets (positions, frequencies, temperature) from ``model.rotation(seq_len)``: replace this function
    to run the same weights with other angles.
    """

    def __init__(
        self,
        n_tokens,
        encoding,
        max_len=512,
        n_outputs=None,
        d_model=64,
        n_heads=4,
        n_layers=2,
        is_causal=True,
        pool=False,
        window=32,
    ):
        super().__init__()
        if encoding not in (*ENCODINGS, HYBRID):
            raise ValueError(f"encoding must be one of {(*ENCODINGS, HYBRID)}, got {encoding!r}")
        self.encoding, self.n_heads, self.is_causal, self.pool = encoding, n_heads, is_causal, pool
        self.head_dim, self.d_model, self.window = d_model // n_heads, d_model, window
        self.embed = nn.Embedding(n_tokens, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.norm, self.read = nn.LayerNorm(d_model), nn.Linear(d_model, n_outputs or n_tokens)
        if encoding == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(max_len, d_model))
        if encoding == "t5":
            self.bucket_bias = nn.Parameter(torch.zeros(n_heads, 32))
        self.rotation = self.plain_rotation

    def plain_rotation(self, seq_len):
        return torch.arange(seq_len), frequencies_of(self.head_dim), 1.0

    def bias(self, seq_len, device):
        """The bias on the scores, including the causal mask if there is one; None for an encoding without a bias."""
        if self.encoding == "alibi":
            bias = alibi(self.n_heads, seq_len).to(device)
        elif self.encoding == "t5":
            bias = self.bucket_bias[:, t5_buckets(seq_len, max_distance=T5_LAST).to(device)]
        elif self.encoding == HYBRID:
            bias = beyond_window(seq_len, self.window).to(device)
        else:
            return None
        if self.is_causal:
            future = torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).triu(1)
            bias = bias.masked_fill(future, -math.inf)
        return bias[None]

    def forward(self, tokens):
        seq_len = tokens.shape[1]
        x = self.embed(tokens)
        if self.encoding == "sinusoidal":
            x = x + sinusoids(seq_len, self.d_model).to(x.device)
        if self.encoding == "learned":
            x = x + self.positions[:seq_len]
        rotation = self.rotation(seq_len) if self.encoding in ("rope", HYBRID) else None
        bias = self.bias(seq_len, x.device)
        for number, block in enumerate(self.blocks):
            if self.encoding == HYBRID and number % 2:  # every second layer: all keys, no positions
                x = block(x, None, None, self.is_causal)
            else:
                x = block(x, rotation, bias, self.is_causal)
        x = self.norm(x)
        return self.read(x.mean(1) if self.pool else x)


def mean_loss(logits, targets):
    """Mean cross-entropy in nats over all targets except those that are -100."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def train(model, batch, steps, learning_rate=2e-3, loss_of=mean_loss):
    """Train with AdamW, a short warm-up and a cosine schedule. ``batch()`` returns (tokens, targets).

    Returns the loss of every step. Uses one CPU thread: small models gain no speed from more, and the numbers repeat.
    """
    device = next(model.parameters()).device
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    warm_up = min(50, steps // 4)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (warm_up + 1), 1.0) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    losses = []
    model.train()
    for _ in range(steps):
        tokens, targets = (part.to(device) for part in batch())
        loss = loss_of(model(tokens), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    model.eval()
    torch.set_num_threads(threads)
    return torch.stack(losses).tolist()


# ---- text ----------------------------------------------------------------------------------------------------------

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))  # the same for every Python version's text


def english():
    """Training and test text as token tensors: Python's language reference, which comes with the standard library."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    number = {character: index for index, character in enumerate(ALPHABET)}
    tokens = torch.tensor([number[character] for character in text if character in number])
    return tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]


def windows(tokens, length, count):
    """``count`` windows of ``length + 1`` tokens, evenly spread over the text: (count, length + 1)."""
    starts = torch.linspace(0, len(tokens) - length - 1, count).long()
    return torch.stack([tokens[start : start + length + 1] for start in starts])


def text_batches(tokens, length, size, seed):
    """A function that draws the next batch of the training text: (inputs, targets), each (size, length)."""
    generator = torch.Generator().manual_seed(seed)

    def batch():
        starts = torch.randint(0, len(tokens) - length, (size,), generator=generator)
        rows = tokens[starts[:, None] + torch.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    return batch


# ---- a needle in a haystack ----------------------------------------------------------------------------------------

FILLERS, VALUES = 16, 16
MARK, QUERY, NEEDLE_TOKENS = FILLERS + VALUES, FILLERS + VALUES + 1, FILLERS + VALUES + 2


def needles(size, length, generator, far=False):
    """Haystacks of ``length`` tokens: filler with MARK and a value inside, then QUERY. The answer is the value.

    After a filler symbol n the next one is n + 1 with probability 0.8, else n + 5 (modulo 16): the best possible loss
    on filler is 0.50 nats. With far=True the needle lies in the first quarter. Returns tokens (size, length) and
    targets (size, length), -100 (not scored) where the next token cannot be known.
    """
    steps = torch.where(torch.rand(size, length + 1, generator=generator) < 0.8, 1, 5)
    steps[:, 0] = torch.randint(0, FILLERS, (size,), generator=generator)
    text = steps.cumsum(1) % FILLERS
    place = torch.randint(1, length // 4 if far else length - 3, (size,), generator=generator)
    value = FILLERS + torch.randint(0, VALUES, (size,), generator=generator)
    row = torch.arange(size)
    text[row, place], text[row, place + 1] = MARK, value
    text[:, length - 1], text[:, length] = QUERY, value
    targets = text[:, 1:].clone()
    targets[row, place - 1] = targets[row, place] = targets[row, place + 1] = -100  # MARK, value, filler after it
    targets[:, length - 2] = -100  # QUERY
    return text[:, :-1], targets


def needle_loss(logits, targets):
    """Give half the weight to the answer, a single target, and half to the many targets of the filler."""
    return 0.5 * mean_loss(logits[:, -1], targets[:, -1]) + 0.5 * mean_loss(logits[:, :-1], targets[:, :-1])


# ---- ascending or not ----------------------------------------------------------------------------------------------

NUMBERS = 64
KINDS = ("ascending", "random permutation", "reversed")


def sequences(size, length, generator, below=NUMBERS):
    """``size`` sequences of distinct numbers below ``below``: half ascending, a quarter permuted, a quarter descending.

    A smaller ``below`` puts the numbers closer together: 8 below 16 lie as close as 32 below 64.

    Returns tokens (size, length), answers (size,): 1 for ascending; kinds (size,): indices into KINDS.
    """
    numbers = torch.rand(size, below, generator=generator).argsort(1)[:, :length]
    kind = torch.tensor([0, 0, 1, 2]).repeat(size // 4 + 1)[:size]
    ordered = numbers.sort(1).values
    tokens = torch.where((kind == 1)[:, None], numbers, torch.where((kind == 2)[:, None], ordered.flip(1), ordered))
    return tokens, (kind == 0).long(), kind
