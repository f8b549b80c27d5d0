"""Hidden tests, one module per week."""

import gc
import importlib


def prepare(assignment: str) -> None:
    """Do once, before processes are forked that grade this assignment, what each of them would do on first use."""
    import torch

    from autograder.misconceptions.bank import bank

    importlib.import_module(f"autograder.checks.{assignment.split('_')[0]}")
    bank(assignment, "")
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad([2 * x], [x], [x.detach()])  # with cotangents torch imports sympy
    gc.collect()
    gc.freeze()
