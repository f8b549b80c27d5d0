"""Week 6's two tasks, and a model of one attention layer that learns them: code for a figure, not an exercise.

In both tasks a token is a payload (one of 8 symbols) and an offset from 1 to 4. The answer at position i is the payload

- *pull*: of position i - o_i, where o_i is the offset of position i itself: the query knows where to look;
- *push*: of the one position j with j + o_j = i: the key knows where it belongs.

Positions without an answer, or in push with more than one, are not scored (answer -100).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

SYMBOLS, OFFSETS = 8, 4
WIDTH, HEADS = 32, 2
IGNORED = -100


def drawn(batch, n, generator):
    """Random payloads and offsets: (batch, n) each, offsets 1 to 4."""
    payload = torch.randint(0, SYMBOLS, (batch, n), generator=generator)
    return payload, torch.randint(1, OFFSETS + 1, (batch, n), generator=generator)


def pull(batch, n, generator):
    """Return (payload, offset, answer): the query says how far back its answer is."""
    payload, offset = drawn(batch, n, generator)
    source = torch.arange(n) - offset
    answer = payload.gather(1, source.clamp(min=0))
    return payload, offset, answer.masked_fill(source < 0, IGNORED)


def push(batch, n, generator):
    """Return (payload, offset, answer): each key says how far ahead its payload is the answer."""
    payload, offset = drawn(batch, n, generator)
    target = torch.arange(n) + offset
    hits = torch.zeros(batch, n + OFFSETS, dtype=torch.long).scatter_add(1, target, torch.ones_like(target))
    answer = torch.zeros(batch, n + OFFSETS, dtype=torch.long).scatter(1, target, payload)
    return payload, offset, answer.masked_fill(hits != 1, IGNORED)[:, :n]


TASKS = {"pull": pull, "push": push}


class OneLayer(nn.Module):
    """Embed, attend once, read out. `attention(q, k, v, extra)` returns `out`; `extra` holds one parameter per entry of
    `shapes`, by name, for tables and biases. q, k, v and out are (batch, heads, n, head_dim)."""

    def __init__(self, attention, shapes, heads=HEADS):
        super().__init__()
        self.attention, self.heads = attention, heads
        self.payload, self.offset = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(OFFSETS + 1, WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.merge, self.read = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, SYMBOLS)
        self.extra = nn.ParameterDict({name: nn.Parameter(0.2 * torch.randn(*shape)) for name, shape in shapes.items()})

    def forward(self, payload, offset):
        x = self.payload(payload) + self.offset(offset)
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = self.attention(q, k, v, self.extra)
        return self.read(self.merge(out.transpose(1, 2).flatten(2)))


def train(task, attention, shapes, seed, steps=300, n=16, batch=64, heads=HEADS):
    """Return a model trained on `task` at length n. With one thread, the same seed always gives the same model."""
    torch.manual_seed(seed)
    model, generator = OneLayer(attention, shapes, heads), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for _ in range(steps):
        payload, offset, answer = TASKS[task](batch, n, generator)
        loss = F.cross_entropy(model(payload, offset).flatten(0, 1), answer.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def accuracy(model, task, n, size=256):
    """Share of right answers at length n, on the same sequences for every model."""
    payload, offset, answer = TASKS[task](size, n, torch.Generator().manual_seed(10_000))
    right = (
        torch.cat([model(*part).argmax(-1) for part in zip(payload.split(64), offset.split(64), strict=True)]) == answer
    )
    return right[answer != IGNORED].float().mean().item()


def sinusoids(n, width):
    """Encodings of the distances 0 .. n - 1 in the layout of Transformer-XL's code, [sin | cos]: (n, width)."""
    angle = torch.arange(n)[:, None] * torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


def masked_attention(scores, v):
    """softmax over the keys up to the query, then the weighted sum of the values."""
    n = scores.shape[-1]
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf).softmax(-1) @ v
