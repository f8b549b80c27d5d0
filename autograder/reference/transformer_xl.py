"""Transformer-XL's scores: separate terms for content and position, and two biases in place of the query's position."""

import math

from torch import Tensor

from autograder.reference._shared import compute_dtype
from autograder.reference.relative import relative_positions


def rel_shift(x: Tensor) -> Tensor:
    """From columns by distance to columns by key: y[..., i, j] = x[..., i, j + n_queries - 1 - i].

    x: (batch, heads, n_queries, n_keys), contiguous or not; column c of x belongs to distance n_keys - 1 - c, so the
    distances descend. Returns a new tensor of x's shape and dtype. Entries whose key comes after the query have no
    meaning; here they are zero. ValueError if n_queries > n_keys.

    Source: Dai et al. 2019 (arXiv:1901.02860), appendix B, and `_rel_shift` of the authors' code, which gets there by
    padding and reshaping and leaves entries of the next row after the query.
    """
    n_queries, n_keys = x.shape[-2:]
    offset = relative_positions(n_queries, n_keys).to(x.device)
    column = (n_keys - 1 + offset).clamp(max=n_keys - 1).expand(x.shape)
    return x.gather(-1, column).masked_fill(offset > 0, 0)


def transformer_xl_scores(q: Tensor, k: Tensor, r: Tensor, content_bias: Tensor, position_bias: Tensor) -> Tensor:
    """((q + content_bias).k + (q + position_bias).r[distance]) / sqrt(head_dim): (batch, heads, n_queries, n_keys).

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); r: (heads, n_keys, head_dim), r[:, t]
    is the projected encoding of distance t = query position - key position, ascending; content_bias and position_bias:
    (heads, head_dim). Not masked; entries whose key comes after the query have no meaning (here their position term is
    zero). ValueError if r has another number of rows or n_queries > n_keys.

    Source: Dai et al. 2019 (arXiv:1901.02860), section 3.3: u is content_bias, v is position_bias.
    """
    n_keys = k.shape[-2]
    if r.shape[-2] != n_keys:
        raise ValueError(f"r needs a row for each distance 0 .. n_keys - 1 = {n_keys - 1}; it has {r.shape[-2]} rows")
    dtype = compute_dtype(q.dtype)
    scaled = q.to(dtype) / math.sqrt(q.shape[-1])
    u, v = (bias.to(dtype)[:, None] / math.sqrt(q.shape[-1]) for bias in (content_bias, position_bias))
    content = (scaled + u) @ k.to(dtype).transpose(-2, -1)
    by_distance = (scaled + v) @ r.to(dtype).transpose(-2, -1)
    return (content + rel_shift(by_distance.flip(-1))).to(q.dtype)
