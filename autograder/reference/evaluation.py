"""The loss of a language model at several context lengths, on the same targets."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional


def loss_by_length(
    model: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor, lengths: Sequence[int], n_targets: int
) -> dict[int, float]:
    """Mean cross-entropy, in nats, of the last n_targets tokens for each context length: {length: loss}.

    model: maps int64 (batch, L) to logits (batch, L, vocab); tokens: int64 (batch, n) with n > max(lengths).
    At length L the model reads tokens[:, -L-1:-1]; the targets are tokens[:, -n_targets:] at every length, so the
    numbers compare the contexts and not the texts. Keys are ints, values floats. The model runs in eval mode without
    gradients; afterwards every submodule has the training flag it had before, even if the model fails.
    ValueError unless 1 <= n_targets <= L < n for each length L.

    Source: the definition of cross-entropy; fixed targets because the mean over the whole window moves with its length.
    """
    lengths = [int(length) for length in lengths]
    for length in lengths:
        if not 1 <= n_targets <= length < tokens.shape[1]:
            raise ValueError(
                f"needed is 1 <= n_targets <= length < number of tokens; got n_targets={n_targets}, "
                f"length={length}, {tokens.shape[1]} tokens"
            )
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    flags = [module.training for module in modules]
    targets = tokens[:, -n_targets:].flatten()
    losses = {}
    try:
        if isinstance(model, nn.Module):
            model.eval()
        with torch.no_grad():
            for length in lengths:
                logits = model(tokens[:, -length - 1 : -1])[:, -n_targets:].flatten(0, 1)
                # float64, so that a half-precision model is not scored in half precision
                losses[length] = functional.cross_entropy(logits.to(torch.float64), targets.to(logits.device)).item()
    finally:
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
    return losses
