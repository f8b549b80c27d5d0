"""Attention with linear biases (ALiBi).

Source of the method: Press et al. 2021 (arXiv:2108.12409), section 3, and its official code
(github.com/ofirpress/attention_with_linear_biases, fairseq/models/transformer.py, get_slopes).
"""

import math

import torch

from autograder.reference.attention import MultiHeadProjections, attend, causal_mask


def alibi_slopes(n_heads: int) -> torch.Tensor:
    """One slope per head, per position of distance: (n_heads,) float32 on the CPU.

    2**(-8k/n_heads), k = 1 .. n_heads, if n_heads is a power of two: the first head is the steepest. Otherwise, with c
    the largest power of two below n_heads: the slopes of c heads, then every second slope of 2c heads, from the first
    on, until there are n_heads. This is the official order; it is not sorted. ValueError if n_heads < 1.

    Source: Press et al. 2021 (arXiv:2108.12409), section 3; the official code's get_slopes for other head counts.
    """
    return torch.tensor(_slopes(n_heads), dtype=torch.float32, device="cpu")


def _slopes(n_heads: int) -> list[float]:
    """The slopes as a list of Python floats, that is in double precision."""
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1; got {n_heads}")
    power = 2 ** (n_heads.bit_length() - 1)  # the largest power of two <= n_heads
    if power == n_heads:
        return [2.0 ** (-8 * k / n_heads) for k in range(1, n_heads + 1)]
    return _slopes(power) + _slopes(2 * power)[0::2][: n_heads - power]


def alibi_bias(n_heads: int, n_queries: int, n_keys: int | None = None) -> torch.Tensor:
    """-slope * |i - j|, to be added to the scaled scores: (n_heads, n_queries, n_keys) float32 on the CPU.

    n_keys defaults to n_queries. The queries are the last n_queries positions: row r is at position
    i = n_keys - n_queries + r. ValueError unless 1 <= n_queries <= n_keys and n_heads >= 1.

    Source: Press et al. 2021 (arXiv:2108.12409), section 3, there for j <= i; |i - j| extends it to both sides.
    """
    return _bias(n_heads, n_queries, n_queries if n_keys is None else n_keys).to(torch.float32)


def _bias(n_heads: int, n_queries: int, n_keys: int) -> torch.Tensor:
    """alibi_bias in float64: (n_heads, n_queries, n_keys)."""
    slopes = torch.tensor(_slopes(n_heads), dtype=torch.float64, device="cpu")
    return slopes[:, None, None] * -_distance(n_queries, n_keys)


def _distance(n_queries: int, n_keys: int) -> torch.Tensor:
    """|i - j| as integers, (n_queries, n_keys), the queries aligned at the end."""
    if not 1 <= n_queries <= n_keys:
        raise ValueError(f"needed is 1 <= n_queries <= n_keys; got n_queries={n_queries}, n_keys={n_keys}")
    j = torch.arange(n_keys, device="cpu")
    i = j[n_keys - n_queries :]
    return (i[:, None] - j).abs()


def per_key_bias_is_equivalent(scores: torch.Tensor, slopes: torch.Tensor, causal: bool) -> bool:
    """Whether softmax(scores + slope*j) and softmax(scores - slope*|i-j|) differ by at most 1e-5 anywhere.

    scores: (batch, heads, n_queries, n_keys), not masked; slopes: (heads,); causal: apply the causal mask, aligned at
    the end, to both. Computed in float64; returns a Python bool. ValueError if n_queries > n_keys.

    Source: under a causal mask |i-j| = i-j, and the two biases differ by slope*i, which a softmax over j does not see;
    this is why the official code and BLOOM may use the per-key form.
    """
    n_queries, n_keys = scores.shape[-2:]
    scores = scores.to(torch.float64)
    slope = slopes.to(device=scores.device, dtype=torch.float64)[:, None, None]
    key = torch.arange(n_keys, device=scores.device)
    distance = _distance(n_queries, n_keys).to(scores.device)
    per_key, relative = scores + slope * key, scores - slope * distance
    if causal:
        hidden = ~causal_mask(n_queries, n_keys).to(scores.device)
        per_key, relative = per_key.masked_fill(hidden, -math.inf), relative.masked_fill(hidden, -math.inf)
    return bool((per_key.softmax(dim=-1) - relative.softmax(dim=-1)).abs().max() <= 1e-5)


class ALiBiMultiHeadAttention(MultiHeadProjections):
    """Multi-head self-attention with the ALiBi bias on the scaled scores and no position embedding.

    forward(x, is_causal=True): x (batch, seq_len, d_model) -> the same shape and dtype. Without the mask the bias is
    symmetric, -slope * |i - j|. The bias is exact in the dtype that attention computes in: float64 for float64 input,
    float32 for float32, bfloat16 and float16. The state_dict holds the weights of q_proj, k_proj, v_proj, o_proj and
    nothing else. ValueError if n_heads does not divide d_model.

    Source: Press et al. 2021 (arXiv:2108.12409), section 3.
    """

    def forward(self, x: torch.Tensor, is_causal: bool = True) -> torch.Tensor:
        """(batch, seq_len, d_model) -> the same shape and dtype."""
        seq_len = x.shape[1]
        q, k, v = self.heads(x)
        out, _ = attend(
            q,
            k,
            v,
            mask=causal_mask(seq_len, seq_len) if is_causal else None,
            bias=_bias(self.n_heads, seq_len, seq_len),
        )
        return self.output(out)


def effective_window(slope: float | torch.Tensor, tol: float | torch.Tensor = 0.01) -> int:
    """The smallest whole distance at which exp(-slope * distance) <= tol, a Python int (positions).

    slope > 0 and 0 < tol <= 1, floats or 0-d tensors; otherwise ValueError.

    Source: the factor by which the bias of Press et al. 2021, section 3, multiplies a weight before normalisation.
    """
    slope, tol = float(slope), float(tol)
    if not slope > 0:
        raise ValueError(f"slope must be positive; got {slope}")
    if not 0 < tol <= 1:
        raise ValueError(f"tol must lie in (0, 1]; got {tol}")
    return math.ceil(-math.log(tol) / slope)
