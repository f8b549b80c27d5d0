"""Shared parts of the hidden tests of rotations (weeks 3 and 8): tolerances, far positions and hints."""

import torch

from autograder.checks.framework import Check, Hint
from autograder.script.compare import Tolerance

# Angles may be float32. One is off by position * (rounding of its frequency, about 1e-7 in the common formulas). Over
# six ways to write the frequencies, results for |x| < 5 were off by 3e-5 below position 100 and by 2e-3 below 8192. The
# mistakes of the bank move some value by more than 0.1, but for tables rounded to bfloat16, by 0.002 or more.
NEAR = Tolerance(rtol=0, atol=2e-4)
FAR = Tolerance(rtol=0, atol=1e-2)
# Outputs in half precision: cos, sin, two products and their sum may each be rounded (relative 2^-9 in bfloat16, 2^-12
# in float16), and the reference is rounded too: at most 0.055 and 0.007 for |x| < 5, plus FAR's angles. Angles in half
# precision are off by radians.
ROUNDED = {torch.bfloat16: Tolerance(rtol=0, atol=0.08), torch.float16: Tolerance(rtol=0, atol=0.02)}

GIVEN = "Positions 0..n-1 are right, others are not all. (The angles must come from the positions given, not from the index.)"
FRACTION = "Whole positions are right, fractional ones are not. (Positions are real numbers and are not rounded.)"
NEGATIVE = "Small positions from 0 upwards are right, negative ones are not. (They must turn the other way, by the same formula.)"
ROWS = Hint(
    "One row of positions per sequence goes wrong. (Row b belongs to sequence b of the batch, for all its heads.)",
    form=True,
)
HALF_POSITIONS = (
    "Whole positions are right as integers, but not in float16. (Angles are computed in at least float32, whatever the "
    "dtype of the positions.)"
)
HALF_PRECISION = (
    "Far positions are right in float32, but not for half-precision input. (Positions, frequencies and "
    "angles are computed in at least float32, whatever the dtype of the input.)"
)
AFTER_BFLOAT16 = Hint(
    "By itself a call in float32 is right, after an equal one in bfloat16 it is not. (What you keep from one call must not "
    "change the next.)",
    of_state=True,
)


def far_positions(check: Check, *shape: int) -> torch.Tensor:
    """Odd positions from 2049 to 8191: no half-precision dtype can hold any of them."""
    return check.randint(1024, 4096, shape) * 2 + 1
