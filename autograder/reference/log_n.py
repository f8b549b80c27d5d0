"""Log-n scaling against the dilution of attention."""

import math


def log_n_scale(n: float, n0: float) -> float:
    """ln n / ln n0, the factor on the logits for n keys where n0 keys were usual in training; a float, not clamped.

    n >= 1, n0 > 1; otherwise ValueError.

    Source: Chiang and Cholak 2022 (arXiv:2202.12172), who multiply the logits by log n; the division by log n0 makes
    the factor 1 at the training length.
    """
    if n < 1 or n0 <= 1:
        raise ValueError(f"needed is n >= 1 and n0 > 1; got n={n}, n0={n0}")
    return math.log(n) / math.log(n0)
