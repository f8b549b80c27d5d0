"""Grouped-query attention: several query heads share one key head and one value head.

Source of the method: Ainslie et al. 2023 (arXiv:2305.13245); with one key head it is multi-query attention, Shazeer
2019 (arXiv:1911.02150).
"""

import torch

from autograder.reference.attention import attend


def grouped_query_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in which query head h reads key and value head h // (n_heads // n_kv_heads).

    q: (batch, n_heads, n_queries, head_dim); k: (batch, n_kv_heads, n_keys, head_dim); v: (batch, n_kv_heads, n_keys,
    v_dim). mask: boolean, broadcasts to (batch, n_heads, n_queries, n_keys), True = may attend; a query that may attend
    to no key has zero weights and a zero output. Returns out (batch, n_heads, n_queries, v_dim) and weights (batch,
    n_heads, n_queries, n_keys). ValueError if n_kv_heads does not divide n_heads or k and v have different head counts;
    TypeError if the mask is not boolean.

    Source: Ainslie et al. 2023 (arXiv:2305.13245), section 2.2.
    """
    n_heads, n_kv_heads = q.shape[1], k.shape[1]
    require_groups(n_heads, n_kv_heads)
    if v.shape[1] != n_kv_heads:
        raise ValueError(f"k and v need the same number of heads; got {n_kv_heads} and {v.shape[1]}")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean, got {mask.dtype}")
    group = n_heads // n_kv_heads
    # repeat_interleave, not repeat: neighbouring query heads share a key head.
    return attend(q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1), mask=mask)


def require_groups(n_heads: int, n_kv_heads: int) -> None:
    """Raise ValueError unless the query heads form n_kv_heads groups of equal size."""
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads; got n_heads={n_heads}, n_kv_heads={n_kv_heads}")
