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
    """Attention that never writes out its keys (w_uk latent beside k_rope) and values (w_uv latent).

    q_nope: (batch, heads, n_queries, dn); q_rope: (batch, heads, n_queries, dr), rotated; latent: (batch, n_keys, r);
    k_rope: (batch, n_keys, dr), rotated, shared by the heads; w_uk: (heads, dn, r); w_uv: (heads, dv, r). Scores are
    divided by sqrt(dn + dr). mask: boolean, broadcasts to (batch, heads, n_queries, n_keys), True = may attend; a query
    that may attend to no key has a zero output. Returns (batch, heads, n_queries, dv) in q_nope's dtype.
    TypeError if the mask is not boolean.

    Source: DeepSeek-AI 2024, DeepSeek-V2 (arXiv:2405.04434), sections 2.1.2 and 2.1.3, in the absorbed form of
    DeepSeek-V3's inference/model.py.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean, got {mask.dtype}")
    dtype = compute_dtype(q_nope.dtype)
    latent = latent.to(dtype)
    # q . (w_uk c) = (w_uk^T q) . c: a query moves into the latent space once, so n_keys keys need not move out of it.
    # einsum folds heads and queries; a product that broadcasts (`q @ latent[:, None].mT`) copies the latents per head.
    in_latent = torch.einsum("bhqd,hdr->bhqr", q_nope.to(dtype), w_uk.to(dtype))
    content = torch.einsum("bhqr,bkr->bhqk", in_latent, latent)
    rotated = torch.einsum("bhqd,bkd->bhqk", q_rope.to(dtype), k_rope.to(dtype))
    weights = weights_of((content + rotated) / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1]), mask)
    read = torch.einsum("bhqk,bkr->bhqr", weights, latent)
    return torch.einsum("bhqr,hdr->bhqd", read, w_uv.to(dtype)).to(q_nope.dtype)
