"""T5's relative bias: one learned number per head and bucket of offsets."""

import torch
from torch import Tensor

from autograder.reference._shared import compute_dtype
from autograder.reference.attention import causal_mask, weights_of
from autograder.reference.relative import relative_positions


def t5_bucket(
    relative_position: Tensor, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> Tensor:
    """The bucket of each offset key position - query position: int64, in relative_position's shape, 0 .. num_buckets-1.

    If bidirectional, offsets above 0 have the upper half of the buckets and each side has B = num_buckets // 2 of them;
    otherwise B = num_buckets, and offsets above 0 count as 0. With e = B // 2, each distance m below e has its own
    bucket; from e on the bucket is min(B - 1, e + floor(ln(m/e) / ln(max_distance/e) * (B - e))). Computed in integers,
    so exact where the logarithm hits a whole number. ValueError if e < 1 (too few buckets) or max_distance <= e.

    Source: Raffel et al. 2020 (arXiv:1910.10683), section 2.1; mesh-tensorflow's `_relative_position_bucket`.
    """
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            f"needed are exact buckets and a max_distance beyond them; got num_buckets={num_buckets}, "
            f"max_distance={max_distance}"
        )
    offset = relative_position.to(torch.int64)
    distance = offset.abs() if bidirectional else (-offset).clamp(min=0)
    first = torch.tensor(_first_distances(exact, side - exact, max_distance), dtype=torch.int64, device=offset.device)
    bucket = torch.where(
        distance < exact, distance, exact + torch.searchsorted(first, distance.contiguous(), right=True)
    )
    return bucket + side * (offset > 0) if bidirectional else bucket


def _first_distances(exact: int, n_wide: int, max_distance: int) -> list[int]:
    """The smallest distance of the second, third, ... of the n_wide buckets beyond `exact`.

    Bucket number s begins where ln(m/exact) / ln(max_distance/exact) * n_wide >= s, that is where
    m**n_wide >= exact**(n_wide - s) * max_distance**s.
    """
    first = []
    for s in range(1, n_wide):
        bound = exact ** (n_wide - s) * max_distance**s
        m = round(exact * (max_distance / exact) ** (s / n_wide))
        while m**n_wide >= bound:
            m -= 1
        while m**n_wide < bound:
            m += 1
        first.append(m)
    return first


def t5_attention(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, is_causal: bool = False, max_distance: int = 128
) -> tuple[Tensor, Tensor]:
    """Attention with scores q.k + table[bucket], not divided by sqrt(head_dim).

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); v: (batch, heads, n_keys, v_dim);
    table: (num_buckets, heads). is_causal chooses the causal buckets and masks the keys after the query; the queries
    are the last of the keys' positions. Returns out (batch, heads, n_queries, v_dim) and weights (batch, heads,
    n_queries, n_keys), both in q's dtype. ValueError if the table is for another number of heads or n_queries > n_keys.

    Source: Raffel et al. 2020 (arXiv:1910.10683), section 2.1; transformers, modeling_t5.py, T5Attention.
    """
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    if table.ndim != 2 or table.shape[1] != q.shape[1]:
        raise ValueError(f"table must be (num_buckets, {q.shape[1]}), a column per head; got {tuple(table.shape)}")
    dtype = compute_dtype(q.dtype)
    offset = relative_positions(n_queries, n_keys).to(q.device)
    bias = table.to(dtype)[t5_bucket(offset, not is_causal, table.shape[0], max_distance)].permute(2, 0, 1)
    scores = q.to(dtype) @ k.to(dtype).transpose(-2, -1) + bias
    weights = weights_of(scores, causal_mask(n_queries, n_keys) if is_causal else None)
    return (weights @ v.to(dtype)).to(q.dtype), weights.to(q.dtype)
