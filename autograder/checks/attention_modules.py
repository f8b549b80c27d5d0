"""Shared parts of the hidden tests of attention modules (weeks 3, 4 and 7): weights, loading, calling."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from autograder.checks.framework import Check, Hint, Probe
from autograder.checks.probes import copies, gradient

PROJECTIONS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")
BIASES = tuple(name.replace("weight", "bias") for name in PROJECTIONS)
FOUR_WEIGHTS = Hint(
    "The state_dict must hold the weights of q_proj, k_proj, v_proj and o_proj and nothing else: no "
    "biases, no saved tables; all four are trained.",
    form=True,
)


def module_weights(check: Check, d_model: int) -> dict[str, torch.Tensor]:
    """Weights that make scores of order 2, so that attention looks at few tokens and a wrong score shows."""
    return {name: check.randn(d_model, d_model) * 1.4 / math.sqrt(d_model) for name in PROJECTIONS}


def weights_and_text(
    check: Check, batch: int, seq_len: int, d_model: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    return module_weights(check, d_model), check.randn(batch, seq_len, d_model)


def like_tokens(check: Check, batch: int, seq_len: int, d_model: int) -> torch.Tensor:
    """Texts whose tokens hardly differ. Hidden keys score like the others, so no hand-written softmax underflows."""
    return check.randn(batch, 1, d_model) + 0.03 * check.randn(batch, seq_len, d_model)


def rising_scores(
    check: Check, batch: int, seq_len: int, d_model: int, n_heads: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Weights and texts for which a token has the same score with all queries: -2e5 or less for the last token, and as
    much less again for each token before it. A mask of -1e4 hides nothing here; -1e9 is low enough for real scores.

    Queries read the first quarter of the channels, where all tokens are equal. Keys read the second quarter, where each
    token holds a multiple of the first."""
    weights, x, part = module_weights(check, d_model), check.randn(batch, seq_len, d_model), d_model // 4
    x[:, :, :part] = x[:, :1, :part]
    x[:, :, part : 2 * part] = torch.arange(seq_len, 0, -1, device=x.device).unsqueeze(-1) * x[:, :, :part]
    query = weights[PROJECTIONS[0]]
    query[:, part:] = 0
    norms = (x[:, :1] @ query.mT).unflatten(-1, (n_heads, -1)).square().sum(-1)
    query *= torch.sqrt(2e5 * math.sqrt(d_model // n_heads) / norms.min())
    weights[PROJECTIONS[1]] = -query.roll(part, dims=1)
    return weights, x


def far_below(
    weights: dict[str, torch.Tensor], x: torch.Tensor, n_heads: int, n_kv_heads: int | None = None
) -> dict[str, torch.Tensor]:
    """The same weights, but with keys opposite to the queries of each group's first head: a token's score with itself
    is -200 or less, even if both are rotated."""
    rows, width = weights["q_proj.weight"].shape
    first = weights["q_proj.weight"].view(n_kv_heads or n_heads, -1, width)[:, : rows // n_heads]
    scores = (x @ first.mT.unsqueeze(1)).square().sum(-1) / math.sqrt(rows // n_heads)
    factor = torch.sqrt(200 / scores.min())
    return {
        **weights,
        "q_proj.weight": factor * weights["q_proj.weight"],
        "k_proj.weight": -factor * first.reshape(-1, width),
    }


def loaded(cls: Any, arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], **options: Any) -> Any:
    """The student's module with our weights. Entries that the state_dict should not have cost points in one place only:
    here they keep their values, except for the projections' biases, which become zero."""
    module = cls.made({"weights": dict(weights), "zeroed": list(BIASES)}, *arguments, **options)
    device = next(iter(weights.values())).device
    if device.type != "cpu":
        module.to(device.type)
    return module


def built(cls: Any, weights: dict, n_heads: int, **options: Any) -> Any:
    """The student's self-attention with our weights."""
    return loaded(cls, (len(weights["q_proj.weight"]), n_heads), weights, **options)


def attended(
    weights: dict,
    n_heads: int,
    x: torch.Tensor,
    base: float | None = None,
    differentiate: bool = False,
    evaluating: bool = False,
    before: Sequence[tuple[torch.Tensor, dict[str, Any]]] = (),
    **options: Any,
) -> Probe:
    """The output of the student's module with our weights in x's dtype, or its gradient with respect to x. ``before``
    are the texts and options of earlier calls of the same module."""

    def probe(cls: Any) -> torch.Tensor:
        module = built(cls, weights, n_heads, **({} if base is None else {"base": base}))
        if evaluating:
            module.eval()
        if x.dtype != torch.float32:
            module.to(x.dtype)
        for text, given in (*before, (x, options)):
            leaf = text.clone().requires_grad_(differentiate)
            output = module(leaf, **dict(zip(given, copies(given.values()), strict=True)))
        return gradient(output, leaf) if differentiate else output

    return probe


def attended_after_conversion(weights: dict, n_heads: int, x: torch.Tensor, **options: Any) -> Probe:
    """The output for ``x`` of a module that was called with x in float32 and then converted to x's dtype."""

    def probe(cls: Any) -> torch.Tensor:
        module = built(cls, weights, n_heads)
        module(x.float(), **options)
        module.to(x.dtype)
        return module(x.clone(), **options)

    return probe
