"""Rotary position embeddings (RoPE), in the interleaved and in the half-split layout.

Source of the method: Su et al. 2021, RoFormer (arXiv:2104.09864), whose pairs are neighbouring channels: (0, 1),
(2, 3), ... (interleaved; GPT-J too). LLaMA in transformers and GPT-NeoX pair channel i with i + head_dim/2
(half-split).
"""

import math
from collections.abc import Callable

import torch

from autograder.reference._shared import compute_dtype, pair_frequencies, require_even
from autograder.reference.attention import MultiHeadProjections, attend, causal_mask


def rope_frequencies(head_dim: int, base: float = 10000.0) -> torch.Tensor:
    """Angular frequencies base**(-2i/head_dim), radians per position: (head_dim/2,) float32 on the CPU.

    ValueError if head_dim is odd. Source: Su et al. 2021 (arXiv:2104.09864).
    """
    return pair_frequencies(head_dim, base).to(torch.float32)


def apply_rotary_emb(x: torch.Tensor, positions: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """Rotate each pair of neighbouring channels (2i, 2i+1) by positions * base**(-2i/head_dim) radians.

    x: (batch, heads, seq_len, head_dim); positions: real numbers, (seq_len,) or (batch, seq_len).
    Returns x's shape and dtype. ValueError if head_dim is odd or positions have another shape.

    Source: Su et al. 2021 (arXiv:2104.09864).
    """
    cos, sin = _cos_sin_for(x, positions, base)
    even, odd = x[..., 0::2].to(cos.dtype), x[..., 1::2].to(cos.dtype)
    rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return rotated.to(x.dtype)


def apply_rotary_emb_half(x: torch.Tensor, positions: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """The same rotation of the pairs (i, i + head_dim/2): shapes, dtypes and errors as in apply_rotary_emb.

    Source: the layout of GPT-NeoX and of LLaMA in transformers (modeling_llama.py, apply_rotary_pos_emb).
    """
    cos, sin = _cos_sin_for(x, positions, base)
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)


def _cos_sin_for(x: torch.Tensor, positions: torch.Tensor, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, computed in float64, cast to the dtype x is rotated in, and shaped to broadcast with x."""
    batch, seq_len, head_dim = x.shape[0], x.shape[-2], x.shape[-1]
    if tuple(positions.shape) not in ((seq_len,), (batch, seq_len), (1, seq_len)):
        raise ValueError(
            f"positions must be (seq_len,) or (batch, seq_len), here ({seq_len},) or ({batch}, {seq_len});"
            f" got {tuple(positions.shape)}"
        )
    cos, sin = rotary_tables(positions.to(x.device), head_dim, compute_dtype(x.dtype), base)
    if positions.ndim == 2:
        cos, sin = cos[:, None], sin[:, None]  # every head of a batch entry has the same positions
    return cos, sin


def interleaved_to_half(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Reorder the output rows of a projection so that the half-split layout gives the scores the interleaved one gave.

    weight: (n_heads*head_dim, d_model), of the q or the k projection. Within each head the even rows come first,
    then the odd ones. Returns a new tensor of the same shape and dtype, still part of the autograd graph. ValueError if
    n_heads does not divide the number of rows or head_dim is odd.

    Source: the permutation between the two layouts; transformers' LLaMA conversion script does the same.
    """
    rows = weight.shape[0]
    if n_heads < 1 or rows % n_heads:
        raise ValueError(f"n_heads must divide the number of rows; got {rows} rows, n_heads={n_heads}")
    head_dim = rows // n_heads
    require_even(head_dim, "head_dim")
    order = torch.arange(rows, device=weight.device).view(n_heads, head_dim // 2, 2).transpose(1, 2).flatten()
    return weight[order]


class RotaryMultiHeadAttention(MultiHeadProjections):
    """Multi-head self-attention with rotated queries and keys (interleaved); values are not rotated.

    forward(x, positions=None, is_causal=False): x (batch, seq_len, d_model); positions as in apply_rotary_emb,
    0 .. seq_len - 1 if None; is_causal masks by index, whatever the positions say. Returns (batch, seq_len, d_model).
    The state_dict holds the weights of q_proj, k_proj, v_proj, o_proj and nothing else; angles are computed anew in
    float64 at each call, so `.to(bfloat16)` does not touch them.
    ValueError if n_heads does not divide d_model or head_dim is odd.

    Source: Su et al. 2021 (arXiv:2104.09864); Vaswani et al. 2017, section 3.2.2, for the heads.
    """

    def __init__(self, d_model: int, n_heads: int, base: float = 10000.0) -> None:
        super().__init__(d_model, n_heads)
        require_even(self.head_dim, "head_dim")
        self.base = base

    def forward(self, x: torch.Tensor, positions: torch.Tensor | None = None, is_causal: bool = False) -> torch.Tensor:
        """(batch, seq_len, d_model) -> the same shape and dtype."""
        seq_len = x.shape[1]
        if positions is None:
            positions = torch.arange(seq_len, device=x.device)
        q, k, v = self.heads(x)
        q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, positions, self.base)
        out, _ = attend(q, k, v, mask=causal_mask(seq_len, seq_len) if is_causal else None)
        return self.output(out)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """[a, b] -> [-b, a] for the halves a, b of the last dimension (half-split layout). ValueError if that is odd.

    Source: transformers (modeling_llama.py, rotate_half).
    """
    require_even(x.shape[-1], "the last dimension")
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary_tables(
    positions: torch.Tensor, head_dim: int, dtype: torch.dtype = torch.float32, base: float = 10000.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of positions * base**(-2i/head_dim), each (seq_len, head_dim/2) in `dtype` on positions' device.

    positions: (seq_len,), real numbers. The cast to dtype comes last: bfloat16 *angles* would be wrong by radians.
    ValueError if head_dim is odd.

    Source: Su et al. 2021 (arXiv:2104.09864).
    """
    frequencies = pair_frequencies(head_dim, base).to(positions.device)
    angles = positions.to(torch.float64)[..., None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def decode_step_scores(q: torch.Tensor, k_cache: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """Unscaled scores of the newest query against all keys, both rotated here (interleaved).

    q: (batch, heads, 1, head_dim), not rotated, at position n_keys - 1; k_cache: (batch, heads, n_keys, head_dim), not
    rotated, at positions 0 .. n_keys - 1. Returns (batch, heads, 1, n_keys) in q's dtype. ValueError for odd head_dim.

    Source: Su et al. 2021 (arXiv:2104.09864), with a KV cache.
    """
    dtype = compute_dtype(q.dtype)
    positions = torch.arange(k_cache.shape[-2], device=q.device)
    rotated_q = apply_rotary_emb(q.to(dtype), positions[-1:], base)
    rotated_k = apply_rotary_emb(k_cache.to(dtype), positions, base)
    return (rotated_q @ rotated_k.transpose(-2, -1)).to(q.dtype)


def look_back_head(back: int, head_dim: int, n_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Contents (q, k) with which a rotary head (interleaved) looks exactly ``back`` tokens back.

    If every key holds k and the last of n_keys tokens queries with q, softmax(q·k / sqrt(head_dim)) of the rotated
    vectors gives the token ``back`` positions before it a weight of at least 0.9. Both (head_dim,) float32, on the CPU.

    Source: the positional heads of Barbero et al. 2024 (arXiv:2410.06205), built from the sum of cosines that is a
    score of Su et al. 2021 (arXiv:2104.09864).
    """
    q = torch.tensor([1.0, 0.0]).repeat(head_dim // 2)
    k = apply_rotary_emb(q.view(1, 1, 1, -1), torch.tensor([back]))[0, 0, 0]
    while look_back_scores(q, k, n_keys).softmax(-1)[back] < 0.9:
        q = 2 * q
    return q, k


def look_back_scores(q: torch.Tensor, k: torch.Tensor, n_keys: int) -> torch.Tensor:
    """Scaled scores of the content q with the content k at the offsets 0 .. n_keys - 1: (n_keys,) float64.

    Source: Su et al. 2021 (arXiv:2104.09864).
    """
    offsets = torch.arange(n_keys, device=q.device)
    turned = apply_rotary_emb(q.double().expand(1, 1, n_keys, -1), offsets)
    scores: torch.Tensor = (turned @ k.double())[0, 0] / math.sqrt(q.shape[-1])
    return scores


OfTwo = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def serving_test(rotate_llama: OfTwo, prompt_scores: OfTwo, decode_step_scores: OfTwo) -> bool:
    """Whether three functions do what a serving file promises.

    rotate_llama(x, positions) rotates in the half-split layout, with angles in at least float32 for any x;
    prompt_scores(q, k) are the scores of a whole prompt and decode_step_scores(q, k_cache) those of the newest token
    against all so far, both interleaved and unscaled. The test allows for rounding.

    Source: Su et al. 2021 (arXiv:2104.09864); transformers (modeling_llama.py, apply_rotary_pos_emb).
    """
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, 40, 16, generator=generator)
    for dtype, tolerance in ((torch.float32, 0.01), (torch.bfloat16, 0.1)):
        x, positions = q.to(dtype), 100 * torch.arange(40)
        turned = rotate_llama(x, positions).to(torch.float32)
        if (turned - apply_rotary_emb_half(x.to(torch.float32), positions)).abs().max() > tolerance:
            return False
    positions = torch.arange(40)
    scores = apply_rotary_emb(q, positions) @ apply_rotary_emb(k, positions).mT
    if (prompt_scores(q, k) - scores).abs().max() > 0.01:
        return False
    return bool((decode_step_scores(q[:, :, -1:], k) - scores[:, :, -1:]).abs().max() < 0.01)
