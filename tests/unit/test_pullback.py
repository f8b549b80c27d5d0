"""Gradients from cotangents, the same as torch's but without the modules that torch imports for them."""

import subprocess
import sys

import pytest
import torch

from autograder.grading.sandbox.bubblewrap import WORKER
from autograder.grading.sandbox.worker.pullback import pullback

PLAIN = """
import sys, torch
from pullback import pullback
x = torch.ones(3, requires_grad=True)
assert pullback([x * 2], [x], [torch.arange(3.0)])[0].tolist() == [0.0, 2.0, 4.0]
print("sympy" in sys.modules)
"""


def functions(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return [torch.softmax(x @ w, -1), x.exp().sum(0), (w * 0).sum()]


def test_as_torch_gives_them() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        x, w = (torch.randn(4, 4).to(dtype).requires_grad_() for _ in range(2))
        outputs = functions(x, w) if not dtype.is_complex else [x @ w, x.exp()]
        cotangents = [torch.randn(output.shape).to(dtype) for output in outputs]
        with torch.no_grad():  # a notebook may have switched it off
            found = pullback(outputs, [x, w], cotangents, retain_graph=True, allow_unused=True)
        for ours, theirs in zip(found, torch.autograd.grad(outputs, [x, w], cotangents), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_sympy_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], cwd=WORKER, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
