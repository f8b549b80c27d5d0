"""Shared by several methods: argument checks, the frequencies of the pairs, the dtype to compute in."""

import torch


def require_even(dim: int, name: str) -> None:
    """Raise ValueError unless `dim` can be divided into pairs of channels."""
    if dim < 2 or dim % 2:
        raise ValueError(f"{name} must be even and at least 2, since channels form pairs; got {dim}")


def require_heads(d_model: int, n_heads: int) -> None:
    """Raise ValueError unless `n_heads` heads of equal size make up `d_model`."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model; got d_model={d_model}, n_heads={n_heads}")


def pair_frequencies(dim: int, base: float, name: str = "head_dim") -> torch.Tensor:
    """Angular frequencies base**(-2i/dim), i = 0 .. dim/2 - 1, in radians per position: (dim/2,) float64 on the CPU.

    Vaswani et al. 2017, section 3.5; RoPE (Su et al. 2021, arXiv:2104.09864) uses the same ones.
    """
    require_even(dim, name)
    # 2i/dim, not i/dim: both channels of a pair share one frequency.
    frequencies: torch.Tensor = float(base) ** (-torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)
    return frequencies


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for bfloat16 and float16, else `dtype` itself: half precision is rounded once, at the end."""
    return torch.promote_types(dtype, torch.float32)
