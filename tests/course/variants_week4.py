"""Wrong answers to week 4 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from course.variants import registry
from torch import nn

VARIANTS, variant = registry()


def right_slopes(n):
    c = 2 ** math.floor(math.log2(n))
    return torch.tensor([2 ** (-8 * k / c) for k in range(1, c + 1)] + [2 ** (-4 * k / c) for k in range(1, 2 * c, 2)])[:n]


# ---- alibi_slopes ---------------------------------------------------------------------------------------------------


@variant("alibi_slopes", r"for every number of heads")
def geometric_with_torch(n_heads):
    return torch.logspace(-8 / n_heads, -8, n_heads, base=2.0)


@variant("alibi_slopes", r"8 heads only")
def halves_by_loop(n_heads):
    out, m = [], 1.0
    for _ in range(n_heads):
        m /= 2
        out.append(m)
    return torch.tensor(out)


@variant("alibi_slopes", r"k runs from 0|first slope is 1")
def counted_from_zero_one_formula(n_heads):
    return torch.exp2(-8 * torch.arange(n_heads) / n_heads)


@variant("alibi_slopes", r"sort")
def interpolated_and_sorted(n_heads):
    return right_slopes(n_heads).sort(descending=True).values


@variant("alibi_slopes", r"reversed|largest slope")
def ascending(n_heads):
    return right_slopes(n_heads).sort().values


@variant("alibi_slopes", r"second one of the next larger|cut them off|other numbers of heads")
def nearest_power(n_heads):
    c = 2 ** round(math.log2(n_heads))
    s = [2 ** (-8 * k / c) for k in range(1, c + 1)]
    return torch.tensor((s + [2 ** (-4 * k / c) for k in range(1, 2 * c, 2)])[:n_heads])


@variant("alibi_slopes", r"float32")
def numpy_double(n_heads):
    return torch.from_numpy(right_slopes(n_heads).numpy().astype(np.float64))


@variant("alibi_slopes", r"one by one|first slopes of the larger")
def consecutive_and_reversed_tail(n_heads):
    c = 2 ** (n_heads.bit_length() - 1)
    finer = torch.exp2(-4 * torch.arange(1, 2 * c + 1) / c)
    return torch.cat((right_slopes(c), finer[: n_heads - c]))


# ---- alibi_bias -----------------------------------------------------------------------------------------------------


@variant("alibi_bias", r"wrong sign")
def rewarded(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    p = torch.arange(n_keys).float()
    return torch.einsum("h,ij->hij", right_slopes(n_heads), (p[None] - p[n_keys - n_queries:, None]).abs())


@variant("alibi_bias", r"top left|first positions")
def cut_from_the_square(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    p = torch.arange(n_keys)
    return (-right_slopes(n_heads).view(-1, 1, 1) * (p - p[:, None]).abs())[:, :n_queries]


@variant("alibi_bias", r"signed")
def official_direction(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    rel = torch.arange(n_keys)[None] - torch.arange(n_keys - n_queries, n_keys)[:, None]
    return right_slopes(n_heads)[:, None, None] * rel


@variant("alibi_bias", r"per key")
def bloom_style(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    return right_slopes(n_heads)[:, None, None].expand(-1, n_queries, -1) * torch.arange(n_keys).float()


@variant("alibi_bias", r"causal mask")
def with_mask_from_triu(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    i, j = torch.arange(n_keys - n_queries, n_keys)[:, None], torch.arange(n_keys)
    bias = -right_slopes(n_heads)[:, None, None] * (i - j).abs()
    return bias + torch.full((n_queries, n_keys), -math.inf).triu(n_keys - n_queries + 1)


@variant("alibi_bias", r"last axis|axis")
def heads_at_the_end(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    i, j = torch.arange(n_keys - n_queries, n_keys)[:, None], torch.arange(n_keys)
    return -(i - j).abs()[..., None] * right_slopes(n_heads)


@variant("alibi_bias", r"wrong sign|first positions")
def sign_and_top_left(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    i, j = torch.arange(n_queries)[:, None], torch.arange(n_keys)
    return right_slopes(n_heads)[:, None, None] * (i - j).abs()


@variant("alibi_bias", r"last positions|n_keys")
def query_right_after_the_cache(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    i, j = torch.arange(n_queries)[:, None] + (n_keys if n_keys != n_queries else 0), torch.arange(n_keys)
    return -right_slopes(n_heads)[:, None, None] * (i - j).abs()


@variant("alibi_bias", r"reversed|largest slope")
def steepest_last(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    i, j = torch.arange(n_keys - n_queries, n_keys)[:, None], torch.arange(n_keys)
    return -right_slopes(n_heads).flip(0)[:, None, None] * (i - j).abs()


# ---- per_key_bias_is_equivalent -------------------------------------------------------------------------------------


@variant("per_key_bias_is_equivalent", r"always True")
def both_signed(scores, slopes, causal):
    q, k = scores.shape[2:]
    m, j = slopes.double().reshape(-1, 1, 1), torch.arange(k, dtype=torch.float64)
    i = j[-q:, None]
    mask = (j > i) & causal
    a, b = ((scores.double() + m * p).masked_fill(mask, -math.inf).softmax(-1) for p in (j, j - i))
    return torch.allclose(a, b, atol=1e-5)


@variant("per_key_bias_is_equivalent", r"`causal`|first positions|single query")
def causal_or_one_key(scores, slopes, causal):
    return bool(causal or scores.shape[-1] == 1)


@variant("per_key_bias_is_equivalent", r"still count|masked before")
def forgot_the_flag(scores, slopes, causal):
    q, k = scores.shape[2:]
    m, j = slopes.double().reshape(-1, 1, 1), torch.arange(k, dtype=torch.float64)
    a = F.softmax(scores.double() + m * j, -1)
    b = F.softmax(scores.double() - m * (j - j[-q:, None]).abs(), -1)
    return (a - b).abs().max().item() <= 1e-5


@variant("per_key_bias_is_equivalent", r"float64|float32")
def in_single_precision(scores, slopes, causal):
    q, k = scores.shape[2:]
    j = torch.arange(k)
    i = j[k - q:, None]
    a, b = scores + slopes[:, None, None] * j, scores - slopes[:, None, None] * (i - j).abs()
    if causal:
        a, b = a.masked_fill(j > i, -1e30), b.masked_fill(j > i, -1e30)
    return ((a.softmax(-1) - b.softmax(-1)).abs() > 1e-5).sum().item() == 0


@variant("per_key_bias_is_equivalent", r"first positions")
def aligned_at_the_start(scores, slopes, causal):
    q, k = scores.shape[2:]
    i, j = np.arange(q)[:, None], np.arange(k)
    s, m = scores.double().numpy(), slopes.double().numpy()[:, None, None]
    def soft(x):
        x = np.where(j <= i, x, -1e300) if causal else x
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    return bool((np.abs(soft(s + m * j) - soft(s - m * abs(i - j))) < 1e-5).all())


# ---- ALiBiMultiHeadAttention ----------------------------------------------------------------------------------------


class Frame(nn.Module):
    """Another right layer; variants change one step."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("sizes")
        self.h = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))

    def bias(self, n, dtype):
        p = torch.arange(n)
        return (-right_slopes(self.h)[:, None, None] * (p - p[:, None]).abs()).to(dtype)

    def prepare(self, x):
        return x

    def scores(self, q, k, bias):
        return torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5 + bias

    def mask(self, scores):
        n = scores.shape[-1]
        return scores + torch.full((n, n), -math.inf).triu(1).to(scores)

    def weigh(self, scores, bias):
        return scores.softmax(-1)

    def forward(self, x, is_causal=True):
        b, n, d = x.shape
        x = self.prepare(x)
        q, k, v = (p(x).view(b, n, self.h, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        bias = self.bias(n, x.dtype).to(x.device)
        scores = self.scores(q, k, bias)
        weights = self.weigh(self.mask(scores) if is_causal else scores, bias)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, n, d))


def layer(pattern):
    return variant("ALiBiMultiHeadAttention", pattern)


@layer(r"plain attention|no bias")
class FusedWithoutBias(Frame):
    def scores(self, q, k, bias):
        return q @ k.mT / math.sqrt(q.size(-1))


@layer(r"after the scaling|divided by sqrt\(head_dim\) with")
class DividesTheSum(Frame):
    def scores(self, q, k, bias):
        return (torch.matmul(q, k.transpose(2, 3)) + bias).div(q.shape[-1] ** 0.5)


@layer(r"after the softmax")
class ProbabilitiesPlusBias(Frame):
    def scores(self, q, k, bias):
        return q @ k.mT / math.sqrt(q.size(-1))

    def weigh(self, scores, bias):
        return torch.softmax(scores, dim=-1) + torch.tril(bias)


@layer(r"mask is lost|0 in place of -inf")
class MultipliesTheMask(Frame):
    def mask(self, scores):
        return scores * torch.ones_like(scores).tril()


@layer(r"reversed|largest slope")
class SteepestLast(Frame):
    def bias(self, n, dtype):
        return super().bias(n, dtype).flip(0)


@layer(r"same slope")
class OneSlopeForAll(Frame):
    def bias(self, n, dtype):
        return super().bias(n, dtype)[:1]


@layer(r"wrong sign")
class Rewards(Frame):
    def bias(self, n, dtype):
        return super().bias(n, dtype).neg()


@layer(r"symmetric|absolute value|per key")
class PerKeyAlways(Frame):
    def bias(self, n, dtype):
        return (right_slopes(self.h)[:, None, None] * (torch.arange(n) - n + 1)).to(dtype)


@layer(r"sinusoid")
class AddsASinusoid(Frame):
    def prepare(self, x):
        n, d = x.shape[1:]
        angle = torch.arange(n).double()[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        pe = torch.zeros(n, d)
        pe[:, 0::2], pe[:, 1::2] = angle.sin().float(), angle.cos().float()[:, : d // 2]
        return x + pe.to(x.dtype)


@layer(r"for every number of heads")
class OneFormula(Frame):
    def bias(self, n, dtype):
        p = torch.arange(n)
        m = 2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)
        return (-m[:, None, None] * (p - p[:, None]).abs()).to(dtype)


@layer(r"later tokens are seen|no.*causal|changes nothing")
class AddsAZeroMask(Frame):
    def mask(self, scores):
        return scores + torch.zeros_like(scores)


@layer(r"divided by sqrt\(d_model\)|sqrt\(d_model\)")
class WholeWidth(Frame):
    def scores(self, q, k, bias):
        return q @ k.mT / math.sqrt(q.size(-1) * self.h) + bias


@layer(r"half precision|bfloat16|float16")
class KeepsFloat32Bias(Frame):
    def bias(self, n, dtype):
        return super().bias(n, torch.float32)


@layer(r"bfloat16|half precision")
class CountsInTheInputsDtype(Frame):
    def bias(self, n, dtype):
        p = torch.linspace(0, n - 1, n).to(dtype)
        return -right_slopes(self.h).to(dtype)[:, None, None] * (p - p[:, None]).abs()


@layer(r"bfloat16|half precision|bias per key")
class PerKeyUnderTheMaskInHalf(Frame):
    def forward(self, x, is_causal=True):
        self.causal = is_causal
        return super().forward(x, is_causal)

    def bias(self, n, dtype):
        if not self.causal:
            return super().bias(n, dtype)
        return (right_slopes(self.h)[:, None, None] * torch.arange(n)).to(dtype)


@layer(r"state_dict")
class SavesSlopes(Frame):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.register_buffer("slopes", right_slopes(n_heads))


@layer(r"state_dict")
class LearnsSlopes(Frame):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.slopes = nn.Parameter(right_slopes(n_heads))


@layer(r"ValueError")
class AssertsSizes(Frame):
    def __init__(self, d_model, n_heads):
        assert d_model % n_heads == 0
        super().__init__(d_model, n_heads)


@layer(r"any length|another length|length at hand")
class CachesTheFirstBias(Frame):
    kept = None

    def bias(self, n, dtype):
        if self.kept is None:
            self.kept = super().bias(n, dtype)
        return self.kept[:, :n, :n]


@layer(r"cut off|gradient")
class RunsWithoutGradient(Frame):
    def forward(self, x, is_causal=True):
        with torch.no_grad():
            return super().forward(x, is_causal)


@layer(r"after the scaling|wrong sign|divided by")
class ScaledAndRewards(Frame):
    def scores(self, q, k, bias):
        return (q @ k.mT - bias) / math.sqrt(q.size(-1))


# ---- effective_window -----------------------------------------------------------------------------------------------


@variant("effective_window", r"round down")
def counts_while_above(slope, tol=0.01):
    distance = 0
    while math.exp(-float(slope) * (distance + 1)) > float(tol):
        distance += 1
    return distance


@variant("effective_window", r"base 10")
def decimal_logarithm(slope, tol=0.01):
    return int(np.ceil(np.log10(1 / float(tol)) / float(slope)))


@variant("effective_window", r"argument `tol`")
def hard_coded(slope, tol=0.01):
    return math.ceil(4.605170186 / float(slope))


@variant("effective_window", r"0-d tensors|Python int")
def returns_numpy(slope, tol=0.01):
    return float(np.ceil(-np.log(float(tol)) / float(slope)))


@variant("effective_window", r"grows with the slope|divide")
def times_slope(slope, tol=0.01):
    return math.ceil(float(slope) * math.log(1 / float(tol)))


# ---- numbers --------------------------------------------------------------------------------------------------------

VARIANTS += [
    ("slopes_by_hand", r"powers of two", {
        "h8_0": 0.5, "h8_2": 0.125, "h8_7": 0.003906, "h12_0": 0.63, "h12_7": 0.0248, "h12_8": 0.01563, "h12_9": 0.009843,
        "h12_11": 0.003906}),
    ("slopes_by_hand", r"sorted", {
        "h8_0": 0.5, "h8_2": 0.125, "h8_7": 0.003906, "h12_0": 0.7071, "h12_7": 0.0625, "h12_8": 0.03125,
        "h12_9": 0.01563, "h12_11": 0.003906}),
    ("attention_with_slope", r"slope is forgotten", {
        **{f"causal_{k}": 0.25 for k in range(4)}, "output": 3.75, **{f"open_{k}": 0.25 for k in range(4)}}),
    ("attention_with_slope", r"signed|last query", {
        "causal_0": 0.10154, "causal_1": 0.1674, "causal_2": 0.2760, "causal_3": 0.4551, "output": 2.489,
        "open_0": 0.1015, "open_1": 0.1674, "open_2": 0.2760, "open_3": 0.4551}),
]
