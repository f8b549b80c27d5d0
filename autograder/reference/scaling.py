"""Ways to stretch a RoPE model beyond its training length."""

import math

import torch

from autograder.reference._shared import pair_frequencies, require_even


def position_interpolation(positions: torch.Tensor, scale: float) -> torch.Tensor:
    """positions / scale: float32 for integer positions, otherwise in the dtype of positions; any shape.

    Source: Chen et al. 2023, position interpolation (arXiv:2306.15595).
    """
    dtype = positions.dtype if positions.is_floating_point() else torch.float32
    return (positions.to(torch.float64) / scale).to(dtype)


def ntk_base(base: float, scale: float, head_dim: int) -> float:
    """base * scale**(head_dim/(head_dim-2)), a float: the first pair keeps its frequency, the last is divided by scale.

    ValueError if head_dim is odd or below 4.

    Source: NTK-aware scaled RoPE (bloc97 2023, r/LocalLLaMA), restated in Peng et al. 2023, YaRN (arXiv:2309.00071).
    """
    _require_two_pairs(head_dim)
    return float(base * scale ** (head_dim / (head_dim - 2)))


def dynamic_ntk_base(base: float, scale: float, head_dim: int, seq_len: int, original_len: int) -> float:
    """base up to original_len, beyond it base * (scale*seq_len/original_len - (scale-1))**(head_dim/(head_dim-2)).

    A float, continuous in seq_len, without memory of earlier calls. ValueError if head_dim is odd or below 4.

    Source: dynamic NTK scaling (emozilla 2023, r/LocalLLaMA); transformers, modeling_rope_utils.py, "dynamic".
    """
    _require_two_pairs(head_dim)
    if seq_len <= original_len:
        return float(base)
    stretch = scale * seq_len / original_len - (scale - 1)
    return float(base * stretch ** (head_dim / (head_dim - 2)))


def _require_two_pairs(head_dim: int) -> None:
    """Raise ValueError unless `head_dim` is even and at least 4."""
    require_even(head_dim, "head_dim")
    if head_dim < 4:
        raise ValueError(f"head_dim must be at least 4, for the exponent is head_dim/(head_dim-2); got {head_dim}")


def yarn_frequencies(
    head_dim: int,
    scale: float,
    original_len: int,
    base: float = 10000.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> torch.Tensor:
    """RoPE's frequencies w_i after YaRN, radians per position: (head_dim/2,) float32 on the CPU.

    Pairs that turn more than beta_fast times within original_len keep w_i, those that turn less than beta_slow times
    get w_i/scale, and a linear ramp over the pair index lies between. ValueError if head_dim is odd.

    Source: Peng et al. 2023 (arXiv:2309.00071), in the form of the official code and of transformers
    (modeling_rope_utils.py, "yarn"): the ends of the ramp are rounded outwards and clamped to [0, head_dim - 1].
    """
    frequencies = pair_frequencies(head_dim, base)

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(original_len / (2 * math.pi * times)) / (2 * math.log(base))

    low = max(math.floor(pair_that_turns(beta_fast)), 0)
    high: float = min(math.ceil(pair_that_turns(beta_slow)), head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a division by zero
    pair = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
    interpolated = ((pair - low) / (high - low)).clamp(0, 1)  # 0: left alone, 1: divided by scale
    return (frequencies * (1 - interpolated) + frequencies / scale * interpolated).to(torch.float32)


def yarn_temperature(scale: float) -> float:
    """0.1 ln(scale) + 1, the factor on both cos and sin (so logits get its square); 1.0 for scale <= 1.

    Source: Peng et al. 2023 (arXiv:2309.00071); official code and transformers, modeling_rope_utils.py.
    """
    return 0.1 * math.log(scale) + 1.0 if scale > 1 else 1.0
