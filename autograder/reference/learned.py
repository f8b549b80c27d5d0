"""Learned absolute positions."""

import torch
from torch import nn


class LearnedPositionalEmbedding(nn.Module):
    """One trainable row per position, added to the input.

    forward(x): x (batch, seq_len, d_model) -> the same shape, in x's dtype. ValueError if seq_len > max_len, since
    there is no row to add.

    Source: Gehring et al. 2017 (arXiv:1705.03122); BERT and GPT-2 use it, with this initial standard deviation.
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, seq_len, d_model) -> the same shape and dtype."""
        seq_len, max_len = x.shape[1], self.weight.shape[0]
        if seq_len > max_len:
            raise ValueError(f"the table has rows for {max_len} positions; got a sequence of {seq_len}")
        # The sum is taken in the wider of the two dtypes and rounded once.
        return (x + self.weight[:seq_len]).to(x.dtype)
