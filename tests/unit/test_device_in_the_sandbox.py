"""The simulated device across the sandbox boundary, for a class graded on the CPU and for one graded on the device."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
from helpers import load_lab

from autograder.errors import StudentError
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.sandbox.worker import simulated_device

pytestmark = [pytest.mark.isolation, pytest.mark.slow, pytest.mark.xdist_group("sandbox")]
ROOMY = Limits(cell_cpu=300.0, call_cpu=300.0, total_cpu=3000.0, total_idle=3000.0, memory=2**30)
ANSWERS = """
import torch

def follows(x, steps):
    return x * steps + torch.arange(x.shape[-1], device=x.device)

def forgets(x, steps):
    return x * steps + torch.arange(x.shape[-1])

def comes_back(x, steps):
    return (x * steps).cpu()

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)
"""


@pytest.fixture(scope="module", params=["cpu", simulated_device.NAME])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Sandbox(device=request.param, limits=ROOMY) as sandbox, closing(Session(sandbox, {}, seed=3)) as opened:
        opened.execute("answers", ANSWERS)
        yield opened


def there(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, device=simulated_device.NAME)


def test_an_answer_meets_tensors_on_the_device_and_gives_them_back(session: Session) -> None:
    follows = session.lookup(["follows"])["follows"]
    got = follows(there(1, 2, 3), there(2, 2, 2))
    assert got.device.type == simulated_device.NAME and got.tolist() == [2, 5, 8]


def test_gradients_come_back_on_the_device(session: Session) -> None:
    follows, x = session.lookup(["follows"])["follows"], there(1, 2, 3).requires_grad_()
    follows(x, there(2, 3, 4)).sum().backward()
    assert x.grad is not None and x.grad.device == x.device and x.grad.tolist() == [2, 3, 4]


def test_an_answer_that_forgets_the_device_raises_what_it_would_raise_on_a_gpu(session: Session) -> None:
    forgets = session.lookup(["forgets"])["forgets"]
    with pytest.raises(StudentError, match="same device"):
        forgets(there(1, 2, 3), there(2, 2, 2))
    assert forgets(torch.ones(3), torch.ones(3)).tolist() == [1, 2, 3]


def test_a_module_moves_to_the_device(session: Session) -> None:
    cls = session.lookup(["Layer"])["Layer"]
    for layer in (cls().to(simulated_device.NAME), cls.made({"device": simulated_device.NAME})):
        assert layer(there(1, 2, 3)).device.type == simulated_device.NAME


def test_the_visible_check_speaks_in_grading_too(session: Session) -> None:
    lab, answers = load_lab(), session.lookup(["follows", "forgets", "comes_back"])
    x = torch.ones(3)
    lab.follows_the_device(answers["follows"], x, x)
    for name, words in (("forgets", "made on the CPU"), ("comes_back", "Your result is on the CPU")):
        with pytest.raises(AssertionError, match=words):
            lab.follows_the_device(answers[name], x, x)
