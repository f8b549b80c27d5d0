"""Attention without positions, and the effect of permuting its tokens."""

import math
from collections.abc import Callable

import torch
from torch import nn

from autograder.reference._shared import compute_dtype, require_heads


def scaled_dot_product_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T / sqrt(head_dim)) v, the softmax over the keys.

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); v: (batch, heads, n_keys, v_dim).
    mask: boolean, broadcasts to (batch, heads, n_queries, n_keys), True = may attend; None = attend everywhere.
    Returns out (batch, heads, n_queries, v_dim) and weights (batch, heads, n_queries, n_keys), both in q's dtype.
    A query that may attend to no key has zero weights and zero output, and passes zero gradients.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1.
    """
    return attend(q, k, v, mask=mask)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as above; `bias` (broadcasting like the mask) is added to the scaled scores before the softmax."""
    dtype = compute_dtype(q.dtype)
    # The scale comes before the product: q k^T can overflow where q k^T / sqrt(head_dim) does not.
    scores = (q.to(dtype) / math.sqrt(q.shape[-1])) @ k.to(dtype).transpose(-2, -1)
    if bias is not None:
        scores = scores + bias.to(device=q.device, dtype=dtype)
    weights = weights_of(scores, mask)
    out = weights @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype)


def weights_of(scores: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The softmax of finished scores over the keys, in their dtype; rows that may attend to no key are zero."""
    if mask is None:
        return scores.softmax(dim=-1)
    mask = mask.to(scores.device)
    no_key = ~mask.any(dim=-1, keepdim=True)
    # A row of -inf alone would give 0/0, in the gradient too. Such a row keeps its scores instead, and its weights
    # become zero afterwards.
    hidden = ~(mask | no_key)
    return scores.masked_fill(hidden, -math.inf).softmax(dim=-1).masked_fill(no_key, 0.0)


def equivariance_gap(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, perm: torch.Tensor) -> float:
    """max |f(x[:, perm]) - f(x)[:, perm]|, a Python float: zero if f is permutation-equivariant.

    f: callable from (batch, seq_len, d) to (batch, seq_len, ...); x: (batch, seq_len, d); perm: LongTensor (seq_len,).
    The difference is taken in float64, so that the subtraction does not round.

    Source: the definition of equivariance, f(P x) = P f(x).
    """
    permuted_first = f(x[:, perm]).to(torch.float64)
    permuted_last = f(x)[:, perm].to(torch.float64)
    return (permuted_first - permuted_last).abs().max().item()


def causal_mask(n_queries: int, n_keys: int) -> torch.Tensor:
    """Boolean (n_queries, n_keys) on the CPU, True = may attend.

    The queries are the last n_queries positions (the earlier keys come from a cache): query row r is at position
    n_keys - n_queries + r and sees the keys up to and including its own. ValueError if n_queries > n_keys.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.3, for the mask; the alignment is that of a KV cache.
    """
    if n_queries > n_keys:
        raise ValueError(
            f"queries are the last of the keys' positions, so n_queries <= n_keys; "
            f"got n_queries={n_queries}, n_keys={n_keys}"
        )
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device="cpu").tril(diagonal=n_keys - n_queries)


class MultiHeadProjections(nn.Module):
    """The four bias-free projections of multi-head attention, shared by the RoPE and the ALiBi module.

    ValueError if n_heads does not divide d_model. Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        require_heads(d_model, n_heads)
        self.n_heads = n_heads
        self.head_dim = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(batch, seq_len, d_model) -> q, k, v, each (batch, n_heads, seq_len, head_dim)."""
        return self._split(self.q_proj(x)), self._split(self.k_proj(x)), self._split(self.v_proj(x))

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """(batch, seq_len, d_model) -> (batch, n_heads, seq_len, head_dim)."""
        heads: torch.Tensor = projected.unflatten(-1, (self.n_heads, self.head_dim))
        return heads.transpose(1, 2)

    def output(self, out: torch.Tensor) -> torch.Tensor:
        """(batch, n_heads, seq_len, head_dim) -> (batch, seq_len, d_model)."""
        merged: torch.Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return merged
