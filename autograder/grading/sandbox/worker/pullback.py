"""Gradients from cotangents. Torch imports sympy when it is given cotangents: that costs each process of the grader a
quarter of a second, and each fork 30 MB to copy."""

from collections.abc import Sequence
from typing import Any

import torch


def pullback(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], **options: Any
) -> tuple[torch.Tensor, ...]:
    """``torch.autograd.grad(outputs, inputs, cotangents)``, with dense tensors for sparse ones."""
    plain = all(
        o.shape == c.shape and o.dtype == c.dtype and not o.is_complex()
        for o, c in zip(outputs, cotangents, strict=True)
    )
    if plain:
        with torch.enable_grad():
            sums = [(o * c.detach()).sum() for o, c in zip(outputs, cotangents, strict=True)]
        found = torch.autograd.grad(sums, inputs, **options)
    else:
        found = torch.autograd.grad(outputs, inputs, cotangents, **options)
    return tuple(each.to_dense() if each is not None and each.is_sparse else each for each in found)


def uneven(output: torch.Tensor) -> torch.Tensor:
    """Weights for the sum that is differentiated: different ones, so that no gradient is right by symmetry."""
    return torch.arange(output.numel(), device=output.device).cos().reshape(output.shape).to(output.dtype)


def slope(value: Any, place: int | None, argument: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of the `uneven` sum of ``value``, or of its part number ``place``, with respect to
    ``argument``; ``None`` if that is not a real tensor with a graph, or its graph does not lead to ``argument``."""
    if isinstance(value, (tuple, list)) and place is not None:
        value = value[place] if place < len(value) else None
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.is_complex():
        return None
    found: torch.Tensor | None = pullback([value], [argument], [uneven(value)], allow_unused=True)[0]
    return found
