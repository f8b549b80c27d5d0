"""The model that week 5's `loss_by_length` is tested with: a copy of the locked cell `probe_model`.

A test keeps the two equal. Students see the cell, so the model is no secret; the weights and texts are drawn afresh.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ProbeModel(nn.Module):
    """tokens (batch, L) -> logits (batch, L, vocab). Has dropout, as module and as function; looks at all tokens so far."""

    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, 6)
        self.inside = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)))
        self.read = nn.Linear(6, vocab)
        self.recorded, self.lengths = False, set()

    def forward(self, tokens):
        count = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
        states = self.inside(self.embed(tokens).cumsum(1) / count.sqrt())
        logits = self.read(F.dropout(states, 0.5, self.training))
        self.recorded = self.recorded or logits.requires_grad
        self.lengths.add(tokens.shape[1])
        return logits


def probe_model(weights, flags):
    """A ProbeModel with these weights and one training flag for each of its eight modules, the outermost first."""
    model = ProbeModel(len(weights["embed.weight"])).to(weights["embed.weight"].device)
    model.load_state_dict(weights)
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    return model


def observe(model):
    """What calls have left behind: flags, the lengths read, whether a graph was recorded, gradients, gradient mode."""
    return {"flags": [module.training for module in model.modules()], "lengths": sorted(model.lengths),
            "recorded a graph": model.recorded,
            "has gradients": any(weight.grad is not None for weight in model.parameters()),
            "gradient mode": torch.is_grad_enabled()}
