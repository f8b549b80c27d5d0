"""Wrong answers to week 7 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once. Each carries a pattern that at least one named sentence
must match. Do not add these to the banks: they would no longer measure.
"""

import math

import torch
import torch.nn.functional as F
from course.variants import registry
from torch import nn

from autograder import reference

VARIANTS, variant = registry()


# ---- grouped queries ------------------------------------------------------------------------------------------------


@variant("grouped_query_attention", r"h // \(n_heads")
def modulo_index(q, k, v, mask=None):
    if q.shape[1] % k.shape[1]:
        raise ValueError
    read = torch.arange(q.shape[1]) % k.shape[1]
    return reference.scaled_dot_product_attention(q, k[:, read], v[:, read], mask)


@variant("grouped_query_attention", r"must raise ValueError")
def floor_index(q, k, v, mask=None):
    read = torch.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    return reference.scaled_dot_product_attention(q, k[:, read], v[:, read], mask)


@variant("grouped_query_attention", r"not divided by sqrt")
def scaled_for_two(q, k, v, mask=None):
    right = reference.grouped_query_attention
    return right(q * math.sqrt(q.shape[-1]), k, v, mask)


@variant("grouped_query_attention", r"wrong way round")
def mask_hides(q, k, v, mask=None):
    return reference.grouped_query_attention(q, k, v, None if mask is None else mask.logical_not())


@variant("grouped_query_attention", r"NaN|zero output")
def fused(q, k, v, mask=None):
    if q.shape[1] % k.shape[1]:
        raise ValueError
    group = q.shape[1] // k.shape[1]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(group, 1)) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, -torch.inf).to(scores)
    weights = F.softmax(scores, -1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v.repeat_interleave(group, 1)), weights


# ---- the cache ------------------------------------------------------------------------------------------------------


class Cached(nn.Module):
    """Right; each variant changes one method."""

    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:
            raise ValueError
        self.h, self.g, self.d, self.base = n_heads, n_kv_heads, d_model // n_heads, base
        for name, rows in (("q", self.h), ("k", self.g), ("v", self.g), ("o", self.h)):
            setattr(self, f"{name}_proj", nn.Linear(d_model, rows * self.d, bias=False))

    def rope(self, t, positions):
        return reference.apply_rotary_emb(t, positions, self.base)

    def at(self, past, n):
        return torch.arange(past, past + n)

    def mask(self, n, m):
        return reference.causal_mask(n, m)

    def joined(self, cache, k, v):
        return (k, v) if cache is None else (torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2))

    def forward(self, x, cache=None):
        heads = lambda p: p(x).unflatten(-1, (-1, self.d)).transpose(1, 2)  # noqa: E731
        q, k, v = heads(self.q_proj), heads(self.k_proj), heads(self.v_proj)
        at = self.at(0 if cache is None else cache[0].shape[2], x.shape[1])
        q, k = self.rope(q, at), self.rope(k, at)
        cache = self.joined(cache, k, v)
        out, _ = reference.grouped_query_attention(q, *cache, self.mask(x.shape[1], cache[0].shape[2]))
        return self.o_proj(out.transpose(1, 2).flatten(2)), cache


@variant("CachedAttention", r"start at 0 again")
class RestartingPositions(Cached):
    def at(self, past, n):
        return torch.arange(n)


@variant("CachedAttention", r"one too large")
class NextPosition(Cached):
    def at(self, past, n):
        return torch.arange(n) + (past + 1 if past else 0)


@variant("CachedAttention", r"top left")
class SquareMask(Cached):
    def mask(self, n, m):
        return torch.ones(n, m).tril().bool()


@variant("CachedAttention", r"inside a piece later tokens")
class MaskOnlyForThePrompt(Cached):
    def mask(self, n, m):
        return reference.causal_mask(n, m) if n == m else torch.ones(n, m, dtype=torch.bool)


@variant("CachedAttention", r"no causal mask")
class NeverMasked(Cached):
    def mask(self, n, m):
        return torch.ones(n, m, dtype=torch.bool)


@variant("CachedAttention", r"head_dim/2")
class HalfLayout(Cached):
    def rope(self, t, positions):
        return reference.apply_rotary_emb_half(t, positions, self.base)


@variant("CachedAttention", r"default base is right|`base` is ignored")
class OwnBase(Cached):
    def rope(self, t, positions):
        return reference.apply_rotary_emb(t, positions)


@variant("CachedAttention", r"must hold all tokens so far|new tokens only")
class NoMemory(Cached):
    def joined(self, cache, k, v):
        return k, v


@variant("CachedAttention", r"tuple")
class CacheAsList(Cached):
    def forward(self, x, cache=None):
        out, cache = super().forward(x, cache)
        return out, list(cache)


# ---- padding --------------------------------------------------------------------------------------------------------


@variant("padded_causal", r"indices")
def by_index(keep, n_queries):
    _, mask = reference.padded_causal(keep, n_queries)
    return torch.arange(keep.shape[1] - n_queries, keep.shape[1]).repeat(len(keep), 1), mask


@variant("padded_causal", r"one too large")
def counted_with_itself(keep, n_queries):
    return torch.cumsum(keep, 1)[:, -n_queries:], reference.padded_causal(keep, n_queries)[1]


@variant("padded_causal", r"last n_queries only")
def within_the_slice(keep, n_queries):
    last = keep[:, -n_queries:].long()
    return (last.cumsum(1) - 1).clamp(min=0), reference.padded_causal(keep, n_queries)[1]


@variant("padded_causal", r"shows the padding")
def plain_causal(keep, n_queries):
    positions, mask = reference.padded_causal(keep, n_queries)
    return positions, reference.causal_mask(n_queries, keep.shape[1])[None, None].repeat(len(keep), 1, 1, 1)


# ---- the loop that writes -------------------------------------------------------------------------------------------


@variant("generate", r"on the right")
def padding_behind(decode, prompts, n_new):
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    keep = torch.arange(int(lengths.max())) < lengths[:, None]
    return looped(decode, torch.nn.utils.rnn.pad_sequence([torch.tensor(p) for p in prompts], batch_first=True), keep, n_new)


@variant("generate", r"restart|start at 0 again")
def positions_of_the_piece(decode, prompts, n_new):
    def from_zero(tokens, positions, mask, cache):
        return decode(tokens, positions - positions.amin(1, keepdim=True), mask, cache)

    return reference.generate(from_zero, prompts, n_new)


@variant("generate", r"shows the padding|like text")
def sees_everything_before(decode, prompts, n_new):
    def open_mask(tokens, positions, mask, cache):
        return decode(tokens, positions, reference.causal_mask(*mask.shape[2:])[None, None].repeat(len(mask), 1, 1, 1), cache)

    return reference.generate(open_mask, prompts, n_new)


@variant("generate", r"by itself")
def a_loop_over_prompts(decode, prompts, n_new):
    return torch.cat([reference.generate(decode, [prompt], n_new) for prompt in prompts])


@variant("generate", r"prompts, too")
def glued_to_the_prompts(decode, prompts, n_new):
    new = reference.generate(decode, prompts, n_new)
    longest = max(map(len, prompts))
    return torch.cat((torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]), new), dim=1)


def looped(decode, tokens, keep, n_new):
    cache, rows = None, []
    for _ in range(n_new):
        logits, cache = decode(tokens, *reference.padded_causal(keep, tokens.shape[1]), cache)
        tokens = logits[:, -1:].argmax(-1)
        rows.append(tokens)
        keep = F.pad(keep, (0, 1), value=True)
    return torch.cat(rows, dim=1)


# ---- moved keys -----------------------------------------------------------------------------------------------------


@variant("shift_cached_keys", r"wrong way")
def turned_back(k, offset, base=10000.0):
    return reference.shift_cached_keys(k, -offset, base)


@variant("shift_cached_keys", r"own index")
def turned_by_index(k, offset, base=10000.0):
    return reference.apply_rotary_emb(k, torch.arange(k.shape[2]), base)


@variant("shift_cached_keys", r"bfloat16")
def low_precision(k, offset, base=10000.0):
    d = k.shape[-1]
    if d % 2:
        raise ValueError
    freq = (1.0 / base ** (torch.arange(0, d, 2).float() / d)).to(k.dtype)
    c, s = torch.cos(freq * offset), torch.sin(freq * offset)
    return torch.stack((k[..., ::2] * c - k[..., 1::2] * s, k[..., ::2] * s + k[..., 1::2] * c), -1).flatten(-2)


# ---- cross-attention and the block ----------------------------------------------------------------------------------


@variant("CrossAttention", r"wrong way round")
class HidesTheReal(reference.CrossAttention):
    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        return super().forward(x, memory, None if memory_mask is None else ~memory_mask, positions, memory_positions)


@variant("CrossAttention", r"NaN|zero there|zero output")
class NaNWithoutAToken(reference.CrossAttention):
    def attention(self, q, k, v, mask):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1)
        return weights @ v, weights


@variant("CrossAttention", r"queries come from x")
class TheOtherWay(reference.CrossAttention):
    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        return super().forward(memory, x, memory_mask, memory_positions, positions)


@variant("CrossAttention", r"is causal here")
class Causal(reference.CrossAttention):
    def attention(self, q, k, v, mask):
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return reference.scaled_dot_product_attention(q, k, v, seen if mask is None else mask & seen)


@variant("CrossAttention", r"without positions nothing is rotated")
class AlwaysRotated(reference.CrossAttention):
    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        if (positions is None) != (memory_positions is None):
            raise ValueError
        if positions is None:
            positions, memory_positions = torch.arange(x.shape[1]), torch.arange(memory.shape[1])
        return super().forward(x, memory, memory_mask, positions, memory_positions)


@variant("HybridDecoderBlock", r"normalised with norm2|as it comes")
class NormedMemory(reference.HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None):
        return super().forward(x, self.norm2(memory), memory_mask)


@variant("HybridDecoderBlock", r"handed on|hand it on")
class ForgottenMask(reference.HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None):
        return super().forward(x, memory)


@variant("HybridDecoderBlock", r"post-norm")
class PostNorm(reference.HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None):
        x = self.norm1(x + self.self_attn(x))
        x = self.norm2(x + self.cross_attn(x, memory, memory_mask))
        return self.norm3(x + self.ffn(x))


@variant("HybridDecoderBlock", r"not causal|is_causal=True")
class SeesLaterTokens(reference.HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None):
        x = x + self.self_attn(self.norm1(x), is_causal=False)
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        return x + self.ffn(self.norm3(x))


@variant("HybridDecoderBlock", r"tanh")
class ApproximateGelu(reference.HybridDecoderBlock):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.ffn[1] = nn.GELU(approximate="tanh")


@variant("HybridDecoderBlock", r"around the feed-forward")
class NoLastResidual(reference.HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None):
        x = x + self.self_attn(self.norm1(x))
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        return self.ffn(self.norm3(x))
