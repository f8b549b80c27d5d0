"""Shared parts of the hidden tests of attention functions: inputs, tolerances, masks and hints."""

import torch

from autograder.checks.framework import Check, Hint
from autograder.script.compare import Tolerance, only_where_zero

# For N(0, 1) inputs: correct float32 is off by at most 2e-6, the mistakes of the banks by 0.01 or more in some value.
CLOSE = Tolerance(rtol=0, atol=1e-4)
# For results in float64: those computed in float32 are off by 1e-7 or more.
DOUBLE = Tolerance(rtol=0, atol=1e-9)
# A gradient is a sum of up to 50 such values.
SLOPE = Tolerance(rtol=0, atol=1e-3)

DTYPE = Hint(
    "In float32 the values are right, in float64 they are not. (The function computes in the dtype of the "
    "inputs, and returns it.)",
    form=True,
)
STRIDES = Hint(
    "Right for contiguous tensors, wrong for one that is not. (`view` needs contiguous memory, `reshape` does not.)",
    form=True,
)
MANY_KEYS = Hint(
    "With few keys all is right, with 300 it is not. (There may be any number of keys; keys that you read in blocks share one "
    "softmax.)",
    form=True,
)
ONE_QUERY = "Several queries with a mask are right, a single one is not. (The mask applies to it as well.)"
NO_KEY = Hint("Where a query may attend to no key, all that you return for it must be zero.", only_where_zero)
NO_KEY_SLOPE = "Where a query may attend to no key, the gradients must be finite as well."
FAR_BELOW = (
    "Where the scores that count are far below zero, this goes wrong. (A hidden score is -inf, not a low number, and "
    "softmax looks at differences of scores.)"
)


def mixed_mask(check: Check, *shape: int) -> torch.Tensor:
    """A random boolean mask in which every row holds both kinds."""
    mask = check.randn(*shape) > 0
    mask[..., 0], mask[..., 1] = True, False
    return mask[..., check.randperm(shape[-1])]


def as_heads(check: Check, batch: int, heads: int, seq_len: int, head_dim: int) -> torch.Tensor:
    """Heads as they come out of a projection: transposed, so not contiguous."""
    return check.randn(batch, seq_len, heads, head_dim).transpose(1, 2)


def like_queries(q: torch.Tensor) -> torch.Tensor:
    """Large queries that hardly differ along the text. With keys opposite to them all scores are far below -100, even
    those of hidden keys, so that a hand-written softmax does not underflow."""
    return 16 * (q[..., :1, :].sign() + 0.02 * q)
