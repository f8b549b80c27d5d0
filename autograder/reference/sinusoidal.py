"""Sinusoidal positional encoding."""

import torch

from autograder.reference._shared import pair_frequencies


def sinusoidal_positional_encoding(seq_len: int, d_model: int, base: float = 10000.0) -> torch.Tensor:
    """PE[p, 2i] = sin(p w_i), PE[p, 2i+1] = cos(p w_i) with w_i = base**(-2i/d_model), p = 0 .. seq_len - 1.

    Returns (seq_len, d_model) float32 on the CPU, sine and cosine interleaved. ValueError if d_model is odd.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.
    """
    frequencies = pair_frequencies(d_model, base, "d_model")
    # float64: near position 100,000 float32 angles are wrong by about 5e-3 radians.
    angles = torch.arange(seq_len, dtype=torch.float64, device="cpu")[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(torch.float32)


def shift_matrix(offset: int, d_model: int, base: float = 10000.0) -> torch.Tensor:
    """The matrix M with PE[p + offset] = M @ PE[p] for every p: (d_model, d_model) float32 on the CPU.

    Block-diagonal, one block [[cos, sin], [-sin, cos]] of the angle offset * w_i per pair; offset is any integer.
    ValueError if d_model is odd.

    Source: the addition theorems; Vaswani et al. 2017 (arXiv:1706.03762), section 3.5, state that M exists.
    """
    angles = offset * pair_frequencies(d_model, base, "d_model")
    sine = torch.arange(0, d_model, 2, device="cpu")  # the channel of each pair's sine; the cosine follows
    cosine = sine + 1
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64, device="cpu")
    matrix[sine, sine] = angles.cos()
    matrix[sine, cosine] = angles.sin()
    matrix[cosine, sine] = -angles.sin()
    matrix[cosine, cosine] = angles.cos()
    return matrix.to(torch.float32)


def similarity_counterexample(d_model: int) -> tuple[int, int]:
    """Offsets (k1, k2), 0 < k1 < k2, with PE(0)·PE(k2) > PE(0)·PE(k1) for base 10000, as two Python ints.

    They are the first two neighbouring offsets between which the product rises clearly, by more than 0.001.
    ValueError if d_model is odd.

    Source: PE(0)·PE(k) = sum_i cos(k w_i), from the definition in Vaswani et al. 2017, section 3.5.
    """
    frequencies = pair_frequencies(d_model, 10000.0, "d_model")

    def product(offset: int) -> float:
        return (offset * frequencies).cos().sum().item()

    k = 1
    while product(k + 1) <= product(k) + 1e-3:
        k += 1
    return k, k + 1
