"""Decoding with a KV cache: attention to a text in any pieces, left padding, a generation loop, shifted keys.

A cache is a plain tuple (keys, values), each (batch, n_kv_heads, n_cached, head_dim). Keys are stored rotated.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from autograder.reference._shared import require_even, require_heads
from autograder.reference.attention import causal_mask
from autograder.reference.grouped_query import grouped_query_attention, require_groups
from autograder.reference.rope import apply_rotary_emb

Cache = tuple[torch.Tensor, torch.Tensor]


class CachedAttention(nn.Module):
    """Causal grouped-query self-attention with RoPE (interleaved) and a KV cache.

    forward(x, cache=None): x (batch, n_new, d_model), the tokens at positions n_cached, n_cached + 1, ...; cache: as
    the last call returned it, or None at the start. Returns out (batch, n_new, d_model) and the cache of all tokens
    so far; the given cache is not changed. Any split of a text gives the output of the whole.
    The state_dict holds the weights of q_proj, k_proj, v_proj, o_proj and nothing else.
    ValueError if n_heads does not divide d_model, n_kv_heads does not divide n_heads, head_dim is odd, or the cache has
    another shape.

    Source: Shazeer 2019 (arXiv:1911.02150), MultiheadSelfAttentionIncremental, for decoding step by step; Ainslie et
    al. 2023 (arXiv:2305.13245) for the groups; Su et al. 2021 (arXiv:2104.09864) for the rotation.
    """

    attention = staticmethod(grouped_query_attention)

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, base: float = 10000.0) -> None:
        super().__init__()
        require_heads(d_model, n_heads)
        require_groups(n_heads, n_kv_heads)
        self.head_dim, self.base = d_model // n_heads, base
        require_even(self.head_dim, "head_dim")
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        n_cached = 0 if cache is None else self._cached(cache, k)
        positions = torch.arange(n_cached, n_cached + x.shape[1], device=x.device)
        q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, positions, self.base)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        mask = causal_mask(x.shape[1], k.shape[2]).to(x.device)
        out, _ = self.attention(q, k, v, mask)
        return self.o_proj(out.transpose(1, 2).flatten(2)), (k, v)

    def _cached(self, cache: Cache, k: torch.Tensor) -> int:
        """The number of tokens in the cache; ValueError if it does not fit the new keys."""
        batch, n_kv_heads, _, head_dim = k.shape
        keys, values = cache
        if (
            keys.ndim != 4
            or keys.shape != values.shape
            or (keys.shape[0], keys.shape[1], keys.shape[3]) != (batch, n_kv_heads, head_dim)
        ):
            raise ValueError(
                f"the cache must hold keys and values of shape ({batch}, {n_kv_heads}, n_cached, {head_dim}); "
                f"got {tuple(keys.shape)} and {tuple(values.shape)}"
            )
        return keys.shape[2]


def padded_causal(keep: torch.Tensor, n_queries: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and mask of the last n_queries tokens of texts that are padded on the left.

    keep: bool (batch, n_keys), True = a real token; padding on the left only, at least one real token in each row.
    Returns positions (batch, n_queries) int64, the number of real tokens before each one in its row, and the mask
    (batch, 1, n_queries, n_keys) bool, True = may attend: real keys up to and including the query's own. The rows of
    padding queries have no meaning. ValueError if n_queries > n_keys; TypeError if keep is not boolean.

    Source: the position rule of generation with left padding in transformers (generation/utils.py).
    """
    if keep.dtype != torch.bool:
        raise TypeError(f"keep must be boolean, got {keep.dtype}")
    n_keys = keep.shape[1]
    causal = causal_mask(n_queries, n_keys).to(keep.device)  # first, since it refuses n_queries > n_keys
    before = keep.cumsum(dim=1) - keep.long()
    return before[:, n_keys - n_queries :], causal & keep[:, None, None, :]


Decode = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Any], tuple[torch.Tensor, Any]]


def generate(decode: Decode, prompts: Sequence[Sequence[int]], n_new: int) -> torch.Tensor:
    """Continue prompts of different lengths in one batch, with the likeliest token at each step.

    decode(tokens, positions, mask, cache) -> (logits, cache): tokens (batch, n) int64, the new ones; positions (batch, n)
    and mask (batch, 1, n, n_keys) as `padded_causal` gives them, n_keys counting cached and new tokens; cache: as the
    last call returned it, None at first; logits (batch, n, n_tokens). prompts: lists of tokens, none empty; n_new >= 1.
    Returns (batch, n_new) int64, the tokens written. Each prompt continues as it would alone; every token is read once.

    Source: greedy search with left padding in transformers (generation/utils.py).
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    padding = torch.tensor([[longest - len(prompt)] for prompt in prompts])
    keep = torch.arange(longest) >= padding
    cache, written = None, []
    for _ in range(n_new):
        positions, mask = padded_causal(keep, tokens.shape[1])
        logits, cache = decode(tokens, positions, mask, cache)
        tokens = logits[:, -1:].argmax(dim=-1)
        written.append(tokens)
        keep = torch.cat((keep, torch.ones_like(tokens, dtype=torch.bool)), dim=1)
    return torch.cat(written, dim=1)


def shift_cached_keys(k: torch.Tensor, offset: int, base: float = 10000.0) -> torch.Tensor:
    """Rotated keys (interleaved) as if each one's position were larger by `offset`.

    k: (batch, heads, n_keys, head_dim), already rotated with `base`; offset: an int, also negative. Returns k's shape
    and dtype. ValueError if head_dim is odd.

    Source: rotations add up, R(p + offset) = R(offset) R(p) (Su et al. 2021, arXiv:2104.09864, section 3.2.2).
    """
    # Every key turns by the same angle, whatever its position.
    return apply_rotary_emb(k, torch.full((k.shape[-2],), offset, device=k.device), base)
