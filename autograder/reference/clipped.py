"""RoPE within the distances seen in training: distances beyond a limit count as the limit."""

import torch
from torch import Tensor

from autograder.reference._shared import compute_dtype, pair_frequencies
from autograder.reference.relative import relative_positions


def clipped_distances(n_queries: int, n_keys: int, limit: int) -> Tensor:
    """How far each key lies before each query, at most limit: (n_queries, n_keys) int64 on the CPU.

    The queries are the last n_queries positions. Keys that come later have negative distances, which a causal mask
    hides. ValueError unless 1 <= n_queries <= n_keys and limit >= 0.

    Source: Su 2023, ReRoPE (kexue.fm/archives/9708); as a distance limit, Han et al. 2023, LM-Infinite
    (arXiv:2308.16137).
    """
    if limit < 0:
        raise ValueError(f"limit is a distance, so it cannot be negative; got {limit}")
    return (-relative_positions(n_queries, n_keys)).clamp(max=limit)


def rotary_scores(q: Tensor, k: Tensor, distances: Tensor, base: float = 10000.0) -> Tensor:
    """Unscaled scores that RoPE (interleaved) gives if key j lies distances[i, j] positions before query i.

    q: (batch, heads, n_queries, head_dim) and k: (batch, heads, n_keys, head_dim), both not rotated; distances: whole
    numbers (n_queries, n_keys). Returns (batch, heads, n_queries, n_keys) in q's dtype. ValueError if head_dim is odd.

    Source: Su et al. 2021 (arXiv:2104.09864), where distances are i - j; Su 2023, ReRoPE, for others.
    """
    dtype = compute_dtype(q.dtype)
    frequencies = pair_frequencies(q.shape[-1], base).to(q.device)
    angles = distances.to(q.device, torch.float64)[..., None] * frequencies
    even_q, odd_q, even_k, odd_k = (x[..., at::2].to(dtype) for x in (q, k) for at in (0, 1))
    # A pair turned by a, times another pair, is cos(a) times their dot product plus sin(a) times their cross product.
    dot = torch.einsum("bhip,bhjp,ijp->bhij", even_q, even_k, angles.cos().to(dtype)) + torch.einsum(
        "bhip,bhjp,ijp->bhij", odd_q, odd_k, angles.cos().to(dtype)
    )
    cross = torch.einsum("bhip,bhjp,ijp->bhij", even_q, odd_k, angles.sin().to(dtype)) - torch.einsum(
        "bhip,bhjp,ijp->bhij", odd_q, even_k, angles.sin().to(dtype)
    )
    return (dot + cross).to(q.dtype)
