"""RoPE on a part of the channels, as GPT-NeoX introduced it; the rest carries content alone."""

import torch

from autograder.reference._shared import require_even
from autograder.reference.rope import apply_rotary_emb_half


def partial_rotary_emb(
    x: torch.Tensor, positions: torch.Tensor, rotary_dim: int, base: float = 10000.0
) -> torch.Tensor:
    """Rotate the pairs (i, i + rotary_dim/2) of the first rotary_dim channels by positions * base**(-2i/rotary_dim)
    radians, i = 0 .. rotary_dim/2 - 1; the other channels pass unchanged.

    x: (batch, heads, seq_len, head_dim); positions: real numbers, (seq_len,) or (batch, seq_len).
    Returns x's shape and dtype. ValueError if rotary_dim is odd, < 2 or > head_dim, or positions have another shape.

    Source: Black et al. 2022 (arXiv:2204.06745), section 2.1.1, for the quarter of the channels; the layout of
    transformers' modeling_gpt_neox.py (apply_rotary_pos_emb).
    """
    require_even(rotary_dim, "rotary_dim")
    if rotary_dim > x.shape[-1]:
        raise ValueError(f"rotary_dim must not exceed head_dim; got rotary_dim={rotary_dim}, head_dim={x.shape[-1]}")
    turned = apply_rotary_emb_half(x[..., :rotary_dim], positions, base)
    return torch.cat((turned, x[..., rotary_dim:]), dim=-1)
