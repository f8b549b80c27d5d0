"""Wrong answers to week 2 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import numpy as np
import torch
from course.variants import registry
from torch import nn

VARIANTS, variant = registry()


# ---- sinusoidal_positional_encoding ---------------------------------------------------------------------------------


@variant("sinusoidal_positional_encoding", r"half as fast|t/d")
def pair_number_over_width(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    w = torch.tensor([1 / base ** (t / d_model) for t in range(d_model // 2)], dtype=torch.float64)
    a = torch.einsum("p,t->pt", torch.arange(seq_len).double(), w)
    out = torch.zeros(seq_len, d_model)
    out[:, ::2], out[:, 1::2] = torch.sin(a), torch.cos(a)
    return out


@variant("sinusoidal_positional_encoding", r"different frequencies|counts channels")
def loop_over_channels(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    p = torch.arange(seq_len, dtype=torch.float64)
    columns = [(torch.cos if c % 2 else torch.sin)(p * math.exp(-c / d_model * math.log(base))) for c in range(d_model)]
    return torch.stack(columns, dim=1).float()


@variant("sinusoidal_positional_encoding", r"twice as fast|different frequencies|counts channels")
def channel_doubled(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    p = torch.arange(seq_len, dtype=torch.float64)
    out = torch.zeros(seq_len, d_model)
    for c in range(0, d_model, 2):
        out[:, c] = torch.sin(p / base ** (2 * c / d_model))
        out[:, c + 1] = torch.cos(p / base ** (2 * (c + 1) / d_model))
    return out


@variant("sinusoidal_positional_encoding", r"all sines first")
def concatenated_in_float32(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    inv_freq = 1 / (base ** (torch.arange(0.0, d_model, 2.0) / d_model))
    a = torch.outer(torch.arange(seq_len).float(), inv_freq)
    return torch.cat([a.sin(), a.cos()], dim=-1)


@variant("sinusoidal_positional_encoding", r"all sines first|run up to 1")
def as_in_tensor2tensor(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    count = d_model // 2
    step = math.log(base) / max(count - 1, 1)
    a = torch.arange(seq_len).double()[:, None] * torch.exp(-step * torch.arange(count))
    return torch.cat([a.sin(), a.cos()], dim=1).float()


@variant("sinusoidal_positional_encoding", r"Sine and cosine are swapped|start at 1")
def cosine_first_from_one(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = np.arange(1, seq_len + 1)[:, None] * base ** (-np.arange(0, d_model, 2) / d_model)
    return torch.from_numpy(np.stack([np.cos(a), np.sin(a)], -1).reshape(seq_len, d_model)).float()


@variant("sinusoidal_positional_encoding", r"float64")
def cached_then_cast(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = (torch.arange(seq_len)[:, None] * base ** (-torch.arange(0, d_model, 2) / d_model)).double()  # cast too late
    return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1).float()


@variant("sinusoidal_positional_encoding", r"ValueError")
def asserts_even(seq_len, d_model, base=10000.0):
    assert d_model % 2 == 0, "even, please"
    a = torch.arange(seq_len).double()[:, None] * base ** (-torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1).float()


@variant("sinusoidal_positional_encoding", r"own base|argument `base`")
def logarithm_of_default(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = torch.arange(seq_len).double()[:, None] * torch.exp(-9.210340371976184 * torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1).float()


@variant("sinusoidal_positional_encoding", r"transposed|start at 1")
def channels_by_positions(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = base ** (-torch.arange(0, d_model, 2).double() / d_model)[:, None] * torch.arange(1, seq_len + 1)
    return torch.stack([a.sin(), a.cos()], dim=1).flatten(0, 1).float()


@variant("sinusoidal_positional_encoding", r"axis too many")
def sequence_first_axis(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = torch.arange(seq_len).double()[:, None] * base ** (-torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1).float()[:, None]


# ---- shift_matrix ---------------------------------------------------------------------------------------------------


def filled(offset, d_model, block, exponent=lambda t, d: -2 * t / d, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    return torch.block_diag(*[torch.tensor(block(offset * base ** exponent(t, d_model))) for t in range(d_model // 2)])


def turn(a):
    return [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]


@variant("shift_matrix", r"transposed")
def textbook_rotation(offset, d_model, base=10000.0):
    return filled(offset, d_model, lambda a: [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], base=base)


@variant("shift_matrix", r"transposed|half as fast")
def textbook_rotation_half_speed(offset, d_model, base=10000.0):
    return filled(offset, d_model, lambda a: turn(-a), lambda t, d: -t / d, base)


@variant("shift_matrix", r"same sign")
def both_plus(offset, d_model, base=10000.0):
    return filled(offset, d_model, lambda a: [[math.cos(a), math.sin(a)], [math.sin(a), math.cos(a)]], base=base)


@variant("shift_matrix", r"diagonal|depends on p")
def householder_like(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    w = base ** (-torch.arange(0, d_model, 2).double() / d_model)
    b = torch.stack([(offset * w).sin(), (offset * w).cos()], 1).flatten()
    return torch.diag(b).float()  # right for no p but a vector of ones


@variant("shift_matrix", r"right at position 0|depends on p")
def projection_on_the_first_row(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    w = base ** (-torch.arange(0, d_model, 2).double() / d_model)
    a = torch.stack([w * 0, w * 0 + 1], 1).flatten()
    b = torch.stack([(offset * w).sin(), (offset * w).cos()], 1).flatten()
    return (b[:, None] @ a[None, :] / (a @ a)).float()


@variant("shift_matrix", r"sign of the offset|left|egative")
def zero_for_the_left(offset, d_model, base=10000.0):
    return filled(max(offset, 0), d_model, turn, base=base)


@variant("shift_matrix", r"float64")
def angles_from_float32(offset, d_model, base=10000.0):
    return filled(offset, d_model, turn, lambda t, d: float(torch.tensor(-2 * t / d)), float(torch.tensor(base))) if abs(
        offset) < 1000 else filled(float(torch.tensor(offset * 1.0000001)), d_model, turn, base=base)


@variant("shift_matrix", r"offset \+ 1")
def one_beyond(offset, d_model, base=10000.0):
    return filled(offset, d_model, lambda a: turn(a), base=base) @ filled(1, d_model, turn, base=base)


@variant("shift_matrix", r"identity|sines on the diagonal")
def sines_on_the_diagonal(offset, d_model, base=10000.0):
    return filled(offset, d_model, lambda a: [[math.sin(a), math.cos(a)], [-math.cos(a), math.sin(a)]], base=base)


@variant("shift_matrix", r"sin \| cos")
def quarters(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    a = offset * base ** (-torch.arange(0, d_model, 2).double() / d_model)
    c, s = a.cos().diag(), a.sin().diag()
    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)], 0).float()


@variant("shift_matrix", r"ValueError")
def odd_dropped(offset, d_model, base=10000.0):
    M = torch.eye(d_model)
    even = d_model - d_model % 2
    M[:even, :even] = torch.block_diag(*[torch.tensor(turn(offset * base ** (-2 * t / d_model))) for t in range(even // 2)]
                                       ) if even else M[:even, :even]
    return M


# ---- LearnedPositionalEmbedding -------------------------------------------------------------------------------------


class Base(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.emb = nn.Embedding(max_len, d_model)


@variant("LearnedPositionalEmbedding", r"silence")
class IndexClamped(Base):
    def forward(self, x):
        ids = torch.arange(x.shape[1]).clamp_max(self.emb.num_embeddings - 1)
        return (x + self.emb(ids)).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"silence|must raise")
class ReturnsUnchangedBeyond(Base):
    def forward(self, x):
        if x.shape[1] > self.emb.num_embeddings:
            return x
        return (x + self.emb.weight[: x.shape[1]]).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"row b to sequence b|axis 1")
class RowsPerSequence(Base):
    def forward(self, x):
        return (x + self.emb(torch.arange(x.shape[0])).unsqueeze(1)).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"other rows")
class CountsFromOne(Base):
    def forward(self, x):
        if x.shape[1] > self.emb.num_embeddings:
            raise ValueError("too long")
        return (x + self.emb((torch.arange(x.shape[1]) + 1) % self.emb.num_embeddings)).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"dtype|must return a bfloat16")
class Widened(Base):
    def forward(self, x):
        return x + self.emb(torch.arange(x.shape[1]))


@variant("LearnedPositionalEmbedding", r"cut off|cannot learn")
class NoGrad(Base):
    def forward(self, x):
        with torch.no_grad():
            rows = self.emb(torch.arange(x.shape[1]))
        return (x + rows).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"plain tensor|nn.Parameter")
class KeptInAList(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.rows = [torch.randn(d_model, requires_grad=True) for _ in range(max_len)]

    def forward(self, x):
        return (x + torch.stack([self.rows[p] for p in range(x.shape[1])])).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"exactly one trainable tensor|other tensor|scale x")
class WithProjection(Base):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return (x + self.gain * self.emb(torch.arange(x.shape[1]))).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"rows alone")
class RowsOnly(Base):
    def forward(self, x):
        return self.emb(torch.arange(x.shape[1])).repeat(x.shape[0], 1, 1).to(x.dtype)


@variant("LearnedPositionalEmbedding", r"scale x")
class ScaledAsInThePaper(Base):
    def forward(self, x):
        return (x * x.shape[-1] ** 0.5 + self.emb(torch.arange(x.shape[1]))).to(x.dtype)


# ---- similarity_counterexample --------------------------------------------------------------------------------------


@variant("similarity_counterexample", r"falls")
def one_pair_for_all(d_model):
    return 10, 13


@variant("similarity_counterexample", r"falls|rounding")
def base_of_another_kind(d_model):
    w = 10000.0 ** (-torch.arange(d_model // 2) / d_model)  # t/d
    s = (torch.arange(1, 500)[:, None] * w.double()).cos().sum(1)
    k = int((s[1:] > s[:-1]).nonzero()[0]) + 1
    return k, k + 1


@variant("similarity_counterexample", r"plain Python ints")
def numpy_integers(d_model):
    w = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    s = np.cos(np.arange(1, 300)[:, None] * w).sum(1)
    k = np.flatnonzero(np.diff(s) > 1e-6)[0] + 1
    return k, k + 1


@variant("similarity_counterexample", r"ends too early|None|IndexError|two numbers")
def short_search(d_model):
    w = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    for k in range(1, 33):
        if np.cos((k + 1) * w).sum() > np.cos(k * w).sum() + 1e-6:
            return k, k + 1


@variant("similarity_counterexample", r"Offset 0")
def counts_from_zero(d_model):
    w = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    s = np.cos(np.arange(300)[:, None] * w).sum(1)
    return 0, int(np.flatnonzero(np.diff(s) > 1e-6)[0]) + 1


@variant("similarity_counterexample", r"wrong order")
def larger_first(d_model):
    w = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    s = np.cos(np.arange(1, 300)[:, None] * w).sum(1)
    k = int(np.flatnonzero(np.diff(s) > 1e-6)[0]) + 1
    return k + 1, k


@variant("similarity_counterexample", r"two numbers")
def three_values(d_model):
    return 3, 4, 0.3


# ---- hand computations ----------------------------------------------------------------------------------------------


def rounded(answers, digits):
    return {key: float(f"{value:.{digits}g}") for key, value in answers.items()}


def table(*channels):
    rows = {p: [f(p) for f in channels] for p in (0, 1, 5, 6)}
    return {f"pe_{p}_{c}": v for p, row in rows.items() for c, v in enumerate(row)} | {
        f"dot_{p}_{q}": sum(a * b for a, b in zip(rows[p], rows[q])) for p, q in ((0, 1), (5, 6), (0, 5))}


def at(wave, speed, start=0):
    return lambda p: wave((p + start) * speed)


GOOD = table(at(math.sin, 1), at(math.cos, 1), at(math.sin, 0.01), at(math.cos, 0.01))
LONG = 2 * math.pi * 10000 ** (62 / 64)
VARIANTS += [
    ("encode_by_hand", r"degrees", rounded(table(*(lambda p, f=f, w=w: f(math.radians(p * w)) for w in (1, 0.01)
                                                   for f in (math.sin, math.cos))), 5)),
    ("encode_by_hand", r"0\.1|exponent", rounded(table(*(at(f, w) for w in (1, 0.1) for f in (math.sin, math.cos))), 6)),
    ("encode_by_hand", r"start at 1", rounded(table(*(at(f, w, 1) for w in (1, 0.01) for f in (math.sin, math.cos))), 5)),
    ("encode_by_hand", r"swapped", rounded(table(*(at(f, w) for w in (1, 0.01) for f in (math.cos, math.sin))), 5)),
    ("encode_by_hand", r"side by side", rounded(table(*(at(f, w) for f in (math.sin, math.cos) for w in (1, 0.01))), 5)),
    ("encode_by_hand", r"divided by 2", rounded(GOOD | {k: v / 2 for k, v in GOOD.items() if "dot" in k}, 4)),
    ("wavelengths_by_hand", r"times the base|not 1", {"pair_0": 6.283, "pair_8": 62.83, "pair_16": 628.3, "longest": 62830}),
    ("wavelengths_by_hand", r"2 pi is missing", {"pair_0": 1, "pair_8": 10, "pair_16": 100, "longest": 7499}),
    ("wavelengths_by_hand", r"counted from 1", {"pair_0": 8.379, "pair_8": 83.79, "pair_16": 837.9, "longest": 62832}),
    ("wavelengths_by_hand", r"half of", {"pair_0": 6.283, "pair_8": 19.87, "pair_16": 62.83, "longest": 544.1}),
    ("wavelengths_by_hand", r"pair 30", {"pair_0": 6.283, "pair_8": 62.83, "pair_16": 628.3, "longest": 35333}),
]
