"""Multimodal RoPE (M-RoPE): a position has three numbers, time, height and width, and every pair turns by one of them.

Source of the method: Wang et al. 2024, Qwen2-VL (arXiv:2409.12191), section 2.1.
"""

from collections.abc import Sequence

import torch

from autograder.reference._shared import compute_dtype, pair_frequencies

Segment = int | tuple[int, int, int]


def mrope_positions(segments: Sequence[Segment]) -> torch.Tensor:
    """Positions of a text with pictures and videos: (3, n) int64 on the CPU, axes time, height, width.

    segments: in order, an int n for n text tokens (one number, the same on all axes), a tuple (t, h, w) for a grid of
    t*h*w tokens, row-major, at (s + time, s + row, s + column). s is the start of the segment: 0 for the first, then
    the largest number so far on any axis, plus 1. A segment without tokens moves nothing. ValueError if a size < 0.

    Source: Wang et al. 2024 (arXiv:2409.12191), section 2.1: the next modality starts at the largest position so far,
    plus one.
    """
    start, parts = 0, [torch.zeros(3, 0, dtype=torch.int64, device="cpu")]
    for segment in segments:
        sizes = (segment,) if isinstance(segment, int) else segment
        if min(sizes) < 0:
            raise ValueError(f"a segment has no negative size; got {segment}")
        axes = [torch.arange(size, device="cpu") for size in sizes]
        grid = torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")])
        parts.append(start + grid.expand(3, -1))
        if grid.numel():
            start = int(parts[-1].max()) + 1
    return torch.cat(parts, dim=1)


def apply_mrope(
    x: torch.Tensor, positions: torch.Tensor, sections: Sequence[int], base: float = 10000.0
) -> torch.Tensor:
    """Rotate the pairs (i, i + head_dim/2) by their axis's position * base**(-2i/head_dim) radians: the first sections[0]
    pairs by time, the next sections[1] by height, the last sections[2] by width.

    x: (batch, heads, seq_len, head_dim); positions: real numbers, (3, seq_len) or (3, batch, seq_len).
    Returns x's shape and dtype. ValueError if sections are not three numbers that add up to head_dim/2, or if
    positions have another shape.

    Source: Wang et al. 2024 (arXiv:2409.12191), section 2.1; the contiguous sections of transformers'
    modeling_qwen2_5_vl.py (recomposition_frequencies).
    """
    batch, seq_len, head_dim = x.shape[0], x.shape[-2], x.shape[-1]
    if len(sections) != 3 or min(sections) < 0 or 2 * sum(sections) != head_dim:
        raise ValueError(f"three sections must add up to head_dim/2; got {tuple(sections)}, head_dim={head_dim}")
    if tuple(positions.shape) not in ((3, seq_len), (3, batch, seq_len), (3, 1, seq_len)):
        raise ValueError(f"positions must be (3, seq_len) or (3, batch, seq_len); got {tuple(positions.shape)}")
    axis = torch.repeat_interleave(torch.tensor(sections, device="cpu")).to(x.device)  # the axis of each pair
    # The frequencies run through all pairs and do not restart with a section.
    angles = positions.to(x.device, torch.float64)[axis].movedim(0, -1) * pair_frequencies(head_dim, base).to(x.device)
    if positions.ndim == 3:
        angles = angles[:, None]  # every head of a batch entry has the same positions
    dtype = compute_dtype(x.dtype)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    first, second = x.to(dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
