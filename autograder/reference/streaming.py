"""Endless text in bounded memory: a window of recent keys, and sinks for the weight that has nowhere to go."""

import torch

from autograder.reference._shared import compute_dtype
from autograder.reference.attention import causal_mask


def sliding_window_mask(n_queries: int, n_keys: int, window: int) -> torch.Tensor:
    """Boolean (n_queries, n_keys) on the CPU, True = may attend: a query sees itself and the window - 1 keys before it.

    The queries are the last n_queries positions, as in causal_mask. ValueError if n_queries > n_keys or window < 1.

    Source: Jiang et al. 2023, Mistral 7B (arXiv:2310.06825), section 2; the boundaries are those of
    transformers' masking_utils.py (sliding_window_overlay).
    """
    if window < 1:
        raise ValueError(f"a query sees at least itself, so window >= 1; got {window}")
    return causal_mask(n_queries, n_keys).triu(diagonal=n_keys - n_queries - window + 1)


def softmax_with_sink(scores: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """The softmax over the keys and one more logit per head, which is dropped afterwards: exp(s_j) / (exp(sink) +
    sum_k exp(s_k)). A row's weights add up to less than 1.

    scores: (batch, heads, n_queries, n_keys), -inf for hidden keys; sinks: (heads,), finite. Returns scores' shape and
    dtype; a row that is all -inf becomes zero.

    Source: OpenAI 2025, gpt-oss model card (arXiv:2508.10925), section 2; transformers' modeling_gpt_oss.py
    (eager_attention_forward).
    """
    dtype = compute_dtype(scores.dtype)
    sink = sinks.to(dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores.to(dtype), sink), dim=-1).softmax(dim=-1)[..., :-1].to(scores.dtype)


def streaming_cache(n_tokens: int, n_sinks: int, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that a cache of n_sinks + window keys holds after n_tokens, and the positions at which they count.

    Returns kept, the first n_sinks and the last `window` of the tokens 0 .. n_tokens - 1, each once, ascending, and
    positions, 0, 1, ... in the cache; both (min(n_tokens, n_sinks + window),) int64 on the CPU. ValueError if
    n_tokens < 0, n_sinks < 0 or window < 1.

    Source: Xiao et al. 2023, StreamingLLM (arXiv:2309.17453), section 3.2.
    """
    if n_tokens < 0 or n_sinks < 0 or window < 1:
        raise ValueError(f"needed is n_tokens >= 0, n_sinks >= 0, window >= 1; got {n_tokens}, {n_sinks}, {window}")
    tokens = torch.arange(n_tokens, device="cpu")
    kept = tokens[(tokens < n_sinks) | (tokens >= n_tokens - window)]
    return kept, torch.arange(len(kept), device="cpu")
