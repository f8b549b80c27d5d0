"""Attention of one sequence to another, with rotated queries and keys where both sides have positions."""

import torch

from autograder.reference._shared import require_even
from autograder.reference.attention import MultiHeadProjections, scaled_dot_product_attention
from autograder.reference.rope import apply_rotary_emb


class CrossAttention(MultiHeadProjections):
    """Multi-head attention with queries from x, keys and values from a memory; never causal.

    forward(x, memory, memory_mask=None, positions=None, memory_positions=None): x (batch, n_queries, d_model); memory
    (batch, n_memory, d_model); memory_mask bool (batch, n_memory), True = a real token. positions (n_queries,) or
    (batch, n_queries) and memory_positions (n_memory,) or (batch, n_memory), real numbers: with both, queries and keys
    are rotated by theirs (interleaved); with none, nothing is rotated; with one alone, ValueError. Returns (batch,
    n_queries, d_model), zeros where a memory has no real token.
    The state_dict holds the weights of q_proj, k_proj, v_proj, o_proj and nothing else.
    ValueError if n_heads does not divide d_model or head_dim is odd; TypeError if memory_mask is not boolean.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.3; Su et al. 2021 (arXiv:2104.09864) for the rotation.
    """

    attention = staticmethod(scaled_dot_product_attention)

    def __init__(self, d_model: int, n_heads: int, base: float = 10000.0) -> None:
        super().__init__(d_model, n_heads)
        require_even(self.head_dim, "head_dim")
        self.base = base

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor,
        memory_mask: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        memory_positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if (positions is None) != (memory_positions is None):
            raise ValueError("positions and memory_positions: give both or none, one alone says nothing about offsets")
        if memory_mask is not None and memory_mask.dtype != torch.bool:
            raise TypeError(f"memory_mask must be boolean, got {memory_mask.dtype}")
        q, _, _ = self.heads(x)
        _, k, v = self.heads(memory)
        if positions is not None and memory_positions is not None:
            q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, memory_positions, self.base)
        out, _ = self.attention(q, k, v, None if memory_mask is None else memory_mask[:, None, None, :])
        return self.output(out)
