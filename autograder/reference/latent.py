"""Multi-head latent attention (MLA): the cache holds one small vector per token, and one rotated key for all heads."""

import math

import torch

from autograder.reference._shared import compute_dtype
from autograder.reference.attention import weights_of


def mla_attention(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention whose keys (w_uk latent beside k_rope) and values (w_uv latent) are never written out.

    q_nope: (batch, heads, n_queries, dn); q_rope: (batch, heads, n_queries, dr), rotated; latent: (batch, n_keys, r);
    k_rope: (batch, n_keys, dr), rotated, shared by the heads; w_uk: (heads, dn, r); w_uv: (heads, dv, r). Scores are
    divided by sqrt(dn + dr). mask: boolean, broadcasts to (batch, heads, n_queries, n_keys), True = may attend; a query
    that may attend to no key has a zero output. Returns (batch, heads, n_queries, dv) in q_nope's dtype.
    A mask that is not boolean: TypeError.

    Source: DeepSeek-AI 2024, DeepSeek-V2 (arXiv:2405.04434), sections 2.1.2 and 2.1.3, in the absorbed form of
    DeepSeek-V3's inference/model.py.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean, got {mask.dtype}")
    dtype, heads = compute_dtype(q_nope.dtype), q_nope.shape[1]
    latent, k_rope, w_uv = latent.to(dtype), k_rope.to(dtype), w_uv.to(dtype)
    # q . (w_uk c) = (w_uk^T q) . c: a query moves into the latent space once, and n_keys keys need not move out of it.
    in_latent = q_nope.to(dtype) @ w_uk.to(dtype)
    # Heads count as queries: a product that broadcasts over them would copy the latents for each head.
    scores = in_latent.flatten(1, 2) @ latent.mT + q_rope.to(dtype).flatten(1, 2) @ k_rope.mT
    scores = scores.unflatten(1, (heads, -1)) / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    read = (weights_of(scores, mask).flatten(1, 2) @ latent).unflatten(1, (heads, -1))
    return (read @ w_uv.mT).to(q_nope.dtype)
