"""Offsets between queries and keys, and Shaw's relative position representations.

Everywhere in week 6 an offset is key position - query position, and the queries are the last of the keys' positions.
"""

import math

import torch
from torch import Tensor

from autograder.reference._shared import compute_dtype
from autograder.reference.attention import weights_of


def relative_positions(n_queries: int, n_keys: int) -> Tensor:
    """Key position - query position: (n_queries, n_keys) int64 on the CPU, a fresh tensor on each call.

    The queries are the last n_queries positions: row r is at position n_keys - n_queries + r.
    ValueError unless 1 <= n_queries <= n_keys.

    Source: T5's `memory_position - context_position` (transformers, modeling_t5.py, compute_bias), with a KV cache.
    """
    if not 1 <= n_queries <= n_keys:
        raise ValueError(f"needed is 1 <= n_queries <= n_keys; got n_queries={n_queries}, n_keys={n_keys}")
    key = torch.arange(n_keys, device="cpu")
    return key - key[n_keys - n_queries :, None]


def shaw_attention(
    q: Tensor, k: Tensor, v: Tensor, rel_k: Tensor, rel_v: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention whose keys and values are shifted by a learned vector for each clipped offset.

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); v: (batch, heads, n_keys, v_dim);
    rel_k: (2*clip + 1, head_dim) and rel_v: (2*clip + 1, v_dim), shared by all heads, row clip + clamp(offset, -clip,
    clip); mask: boolean, True = may attend, as in scaled_dot_product_attention.
    Returns out (batch, heads, n_queries, v_dim) and weights (batch, heads, n_queries, n_keys), both in q's dtype: the
    scores are q.(k + rel_k)/sqrt(head_dim), out sums weight * (v + rel_v). A query that may attend to no key has zero
    weights and zero output. ValueError if the tables' row counts are even or differ, or if n_queries > n_keys.

    Source: Shaw, Uszkoreit, Vaswani 2018 (arXiv:1803.02155), equations 3 and 4 with the clipping of section 3.2.
    """
    rows = rel_k.shape[0]
    if rows % 2 == 0 or rel_v.shape[0] != rows:
        raise ValueError(f"both tables need the same odd number of rows, 2*clip + 1; got {rows} and {rel_v.shape[0]}")
    dtype, clip = compute_dtype(q.dtype), rows // 2
    row = clip + relative_positions(q.shape[-2], k.shape[-2]).clamp(-clip, clip).to(q.device)
    scaled = q.to(dtype) / math.sqrt(q.shape[-1])
    scores = scaled @ k.to(dtype).transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", scaled, rel_k.to(dtype)[row])
    weights = weights_of(scores, mask)
    out = weights @ v.to(dtype) + torch.einsum("bhij,ijd->bhid", weights, rel_v.to(dtype)[row])
    return out.to(q.dtype), weights.to(q.dtype)
