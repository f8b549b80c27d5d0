"""DeBERTa's disentangled scores: content meets content, content meets position, position meets content."""

import math

import torch
from torch import Tensor

from autograder.reference._shared import compute_dtype
from autograder.reference.relative import relative_positions


def deberta_scores(q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """(q_i.k_j + q_i.pos_k[row] + pos_q[row].k_j) / sqrt(3*head_dim): (batch, heads, seq_len, seq_len).

    q, k: (batch, heads, seq_len, head_dim); pos_q, pos_k: (heads, 2*span, head_dim), the projected table of relative
    positions; row = clamp(i - j + span, 0, 2*span - 1) for query i and key j, the same in both terms. Not masked.
    ValueError if the numbers of queries and keys differ, or the tables' row counts differ or are odd.

    Source: He et al. 2021 (arXiv:2006.03654), section 3.1, in the form of the published code (microsoft/DeBERTa,
    disentangled_attention.py, and transformers): the paper's equation prints the row of (j, i) in the last term.
    """
    seq_len, rows = q.shape[-2], pos_k.shape[-2]
    if k.shape[-2] != seq_len:
        raise ValueError(f"as many queries as keys are needed; got {seq_len} and {k.shape[-2]}")
    if rows % 2 or rows == 0 or pos_q.shape[-2] != rows:
        raise ValueError(f"both tables need the same even number of rows, 2*span; got {pos_q.shape[-2]} and {rows}")
    dtype, span = compute_dtype(q.dtype), rows // 2
    row = (span - relative_positions(seq_len, seq_len)).clamp(0, 2 * span - 1).to(q.device)
    scale = 1 / math.sqrt(3 * q.shape[-1])
    q_, k_, pos_q_, pos_k_ = q.to(dtype) * scale, k.to(dtype), pos_q.to(dtype) * scale, pos_k.to(dtype)
    content_to_position = torch.einsum("bhid,hijd->bhij", q_, pos_k_[:, row])
    position_to_content = torch.einsum("hijd,bhjd->bhij", pos_q_[:, row], k_)
    return (q_ @ k_.transpose(-2, -1) + content_to_position + position_to_content).to(q.dtype)
