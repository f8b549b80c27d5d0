"""The simulated device against CUDA: small programs, and what CUDA does with each. With a GPU they run on it, too.

``by`` says how we know it: DOCUMENTED in PyTorch's pages, DECLARED in the native_functions.yaml that PyTorch ships
(``device_check``), an issue of pytorch/pytorch, or EXPECTED where nothing was found and no GPU has run it yet.
"""

import copy
import importlib.util
import io
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autograder.grading.sandbox.worker import simulated_device

DOCUMENTED, DECLARED, EXPECTED = "documented", "declared", "expected"
DEVICES = [simulated_device.NAME] + ["cuda"] * torch.cuda.is_available()


@dataclass(frozen=True)
class Refused:
    error: type[Exception]
    words: str


MIXED = Refused(RuntimeError, "on the same device")
NUMPY = Refused(TypeError, "to numpy. Use Tensor.cpu()")
WHOLE = Refused(RuntimeError, "not implemented for")
THERE, HERE = "on the device", "on the CPU or no tensor"


@dataclass(frozen=True)
class Program:
    name: str
    run: Callable[[str], Any]  # with the device's name
    gives: str | Refused
    by: str


def x(device: str = "cpu") -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3).to(device)


def mask() -> torch.Tensor:
    return torch.tensor([[True, False, True], [False, True, True]])


def number(value: float = 2.0) -> torch.Tensor:
    return torch.tensor(value)


def assigned(device: str, place: Any, value: Any) -> torch.Tensor:
    filled = x(device)
    filled[place] = value
    return filled


def linear(device: str = "cpu") -> nn.Linear:
    """Return a layer made on the device, with the weights of one that was made on the CPU."""
    torch.manual_seed(0)
    weights = nn.Linear(3, 2).state_dict()
    layer = nn.Linear(3, 2, device=device)
    layer.load_state_dict(weights)
    return layer


def table(device: str) -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(4, 3).to(device)


def trained(device: str) -> torch.Tensor:
    """Train a module that was moved after its optimizer was made: its parameters stay the same objects."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer.to(device)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x(device)).square().sum().backward()
        optimizer.step()
    return layer.weight


def converted(device: str) -> bool:
    """Convert a module while a graph still needs its parameters."""
    layer = linear(device)
    weight, _graph = layer.weight, layer(x(device))
    layer.double()
    return layer.weight is weight and layer(x(device).double()).dtype == torch.float64


def tied(device: str) -> bool:
    layer = nn.Linear(3, 3)
    other = nn.Linear(3, 3)
    other.weight = layer.weight
    nn.ModuleList([layer, other]).to(device)
    return other.weight is layer.weight


def without_gradients(device: str) -> torch.Tensor:
    made_before = x(device)
    with torch.inference_mode():
        return linear().to(device)(made_before[:, :]) + torch.arange(2, device=device)


def slope(device: str) -> torch.Tensor:
    at = x(device).requires_grad_()
    (at.cos() @ at.mT).double().sum().backward()
    assert at.grad is not None
    return at.grad


def loaded(device: str) -> torch.Tensor:
    file = io.BytesIO()
    torch.save({"x": x(device)}, file)
    file.seek(0)
    there: torch.Tensor = torch.load(file)["x"]
    return there


def given_data(device: str) -> torch.Tensor:
    tensor = torch.ones(2, device=device)
    tensor.data = x(device)
    tensor.data[0] -= 1
    return tensor


def within(device: str) -> torch.Tensor:
    with torch.device(device):
        return torch.arange(3) + torch.tensor([1, 2, 3])


def seeded_for_all(device: str) -> bool:
    torch.manual_seed(1)
    first = torch.randn(3, device=device)
    torch.manual_seed(1)
    return torch.equal(first, torch.randn(3, device=device))


def attention(device: str, attn_mask: Any = None) -> torch.Tensor:
    q = x(device)[None, None]
    return F.scaled_dot_product_attention(q, q, q, attn_mask=attn_mask)


def turned(device: str) -> torch.Tensor:
    pairs = torch.view_as_complex(torch.arange(8.0, device=device).reshape(2, 2, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones(2, device=device), torch.arange(2.0, device=device)))


PROGRAMS = [
    # made on the device
    Program("zeros", lambda d: torch.zeros(2, 3, device=d), THERE, DOCUMENTED),
    Program("full", lambda d: torch.full((2,), -torch.inf, device=d), THERE, DOCUMENTED),
    Program("arange", lambda d: torch.arange(5, device=d), THERE, DOCUMENTED),
    Program("arange with steps", lambda d: torch.arange(0, 8, 2, dtype=torch.float64, device=d), THERE, DOCUMENTED),
    Program("linspace", lambda d: torch.linspace(0, 1, 5, device=d), THERE, DOCUMENTED),
    Program("eye", lambda d: torch.eye(3, dtype=torch.bool, device=d), THERE, DOCUMENTED),
    Program("tril_indices", lambda d: torch.tril_indices(3, 3, device=d), THERE, DOCUMENTED),
    Program("tensor", lambda d: torch.tensor([1.0, 2.0], device=d), THERE, DOCUMENTED),
    Program("as_tensor of an array", lambda d: torch.as_tensor(np.ones(3), device=d), THERE, DOCUMENTED),
    Program("tensor of tensors", lambda d: torch.tensor([x(d).sum(), x(d).max()]), HERE, EXPECTED),
    Program("as_tensor of a tensor", lambda d: torch.as_tensor(x(d), dtype=torch.float64), THERE, DOCUMENTED),
    Program("zeros_like", lambda d: torch.zeros_like(x(d), dtype=torch.int64), THERE, DOCUMENTED),
    Program("new_full", lambda d: x(d).new_full((2,), 3.0), THERE, DOCUMENTED),
    Program("new_tensor", lambda d: x(d).new_tensor([1, 2]), THERE, DOCUMENTED),
    Program("in a block of torch.device", within, THERE, DOCUMENTED),
    Program("out=", lambda d: torch.add(x(d), 1, out=torch.empty(0, device=d)), THERE, EXPECTED),
    # and by default on the CPU
    Program("arange without device=", lambda d: x(d) * torch.arange(3), MIXED, DOCUMENTED),
    Program("a mask without device=", lambda d: x(d).masked_fill(mask(), 0.0), MIXED, DECLARED),
    Program("where, its condition on the CPU", lambda d: torch.where(mask(), x(d), 0.0), MIXED, DECLARED),
    Program("a product with a CPU matrix", lambda d: x(d) @ x().mT, MIXED, DOCUMENTED),
    Program("einsum with a CPU matrix", lambda d: torch.einsum("ij,kj->ik", x(d), x()), MIXED, EXPECTED),
    Program("cat with the CPU", lambda d: torch.cat((x(d), x())), MIXED, "#35053"),
    Program("stack with a number on the CPU", lambda d: torch.stack((x(d).sum(), number())), MIXED, "#53004"),
    Program("gather by CPU indices", lambda d: x(d).gather(1, torch.zeros(2, 1).long()), MIXED, DECLARED),
    Program("embedding of CPU tokens", lambda d: table(d)(torch.tensor([1, 2])), MIXED, DECLARED),
    Program("a module on the CPU", lambda d: linear()(x(d)), MIXED, DOCUMENTED),
    Program("attention with a CPU mask", lambda d: attention(d, torch.ones(2, 2).bool()), MIXED, EXPECTED),
    Program("a comparison with the CPU", lambda d: torch.equal(x(d), x()), MIXED, DECLARED),
    Program("allclose with the CPU", lambda d: torch.allclose(x(d), x()), MIXED, EXPECTED),
    Program("a CPU tensor times a number there", lambda d: x() * number().to(d), MIXED, DECLARED),
    # tensors without dimensions
    Program("times a number on the CPU", lambda d: x(d) * number(), THERE, DECLARED),
    Program("a number on the CPU less a tensor", lambda d: number() - x(d), THERE, DECLARED),
    Program("where with a number on the CPU", lambda d: torch.where(mask().to(d), x(d), number()), THERE, DECLARED),
    Program("masked_fill with a number on the CPU", lambda d: x(d).masked_fill(mask().to(d), number()), THERE, DECLARED),
    Program("comparing with a number on the CPU", lambda d: x(d) > number(), THERE, DECLARED),
    Program("floor_divide by a number on the CPU", lambda d: x(d) // number(), THERE, DECLARED),
    Program("clamp by a number on the CPU", lambda d: x(d).clamp(min=number()), MIXED, "#94174"),
    Program("polar of a number on the CPU", lambda d: torch.polar(number(), x(d)), MIXED, DECLARED),
    Program("adding to a number on the CPU", lambda d: number().add_(x(d).sum()), MIXED, EXPECTED),
    # indices
    Program("a CPU index", lambda d: x(d)[:, torch.tensor([2, 0])], THERE, "#5583"),
    Program("a CPU mask as index", lambda d: x(d)[mask()], THERE, "#5583"),
    Program("a CPU tensor by an index there", lambda d: x()[torch.tensor([1]).to(d)], MIXED, EXPECTED),
    Program("assigning a CPU row", lambda d: assigned(d, 0, torch.ones(3)), THERE, EXPECTED),
    Program("assigning by index", lambda d: assigned(d, torch.tensor([0]), torch.ones(1, 3).to(d)), THERE, EXPECTED),
    Program("assigning a CPU row by index", lambda d: assigned(d, torch.tensor([0]), torch.ones(1, 3)), MIXED, "#101434"),
    Program("assigning a CPU number by index", lambda d: assigned(d, mask(), number()), THERE, "#101434"),
    Program("assigning a number there on the CPU", lambda d: assigned("cpu", mask(), number().to(d)), HERE, "#101434"),
    # moving
    Program("cpu", lambda d: x(d).cpu(), HERE, DOCUMENTED),
    Program("to another's device", lambda d: x().to(x(d)), THERE, DOCUMENTED),
    Program("type_as", lambda d: torch.ones(2).type_as(x(d).half()), THERE, DOCUMENTED),
    Program("copy_ from the CPU", lambda d: torch.empty(2, 3, device=d).copy_(x()), THERE, DOCUMENTED),
    Program("copy_ to the CPU", lambda d: torch.empty(2, 3).copy_(x(d)), HERE, DOCUMENTED),
    Program("to where it is", lambda d: (there := x(d)).to(d) is there, HERE, DOCUMENTED),
    Program("deepcopy", lambda d: copy.deepcopy(x(d)), THERE, DOCUMENTED),
    Program("pickle", lambda d: pickle.loads(pickle.dumps(x(d))), THERE, DOCUMENTED),
    Program("save and load", loaded, THERE, DOCUMENTED),
    # leaving PyTorch
    Program("numpy", lambda d: x(d).numpy(), NUMPY, DOCUMENTED),
    Program("np.asarray", lambda d: np.asarray(x(d)), NUMPY, DOCUMENTED),
    Program("np.cos", lambda d: np.cos(x(d)), NUMPY, DOCUMENTED),
    Program("numpy(force=True)", lambda d: float(x(d).numpy(force=True).sum()), HERE, DOCUMENTED),
    Program("item", lambda d: x(d).sum().item(), HERE, DOCUMENTED),
    Program("tolist", lambda d: x(d).tolist(), HERE, DOCUMENTED),
    Program("int, float, bool", lambda d: (int(x(d)[1, 1]), float(x(d)[0, 2]), bool((x(d) > 0).any())), HERE, EXPECTED),
    Program("range", lambda d: list(range(torch.tensor(3, device=d))), HERE, EXPECTED),
    Program("an f-string", lambda d: f"{x(d).sum():.2f}", HERE, EXPECTED),
    Program("iterating", lambda d: [float(row.sum()) for row in x(d)], HERE, EXPECTED),
    # computing
    Program("softmax", lambda d: x(d).softmax(-1), THERE, DOCUMENTED),
    Program("attention", lambda d: attention(d), THERE, DOCUMENTED),
    Program("bfloat16 product", lambda d: x(d).bfloat16() @ x(d).bfloat16().mT, THERE, DOCUMENTED),
    Program("views", lambda d: x(d).mT.flatten().unflatten(0, (3, 2))[..., 0::2], THERE, DOCUMENTED),
    Program("complex numbers", turned, THERE, DOCUMENTED),
    Program("writing through a view", lambda d: (made := x(d), made.view(-1)[2:4].fill_(9.0))[0], THERE, DOCUMENTED),
    Program("another shape in place", lambda d: x(d).unsqueeze_(0).transpose_(1, 2), THERE, DOCUMENTED),
    Program("boolean indexing", lambda d: x(d)[x(d) > 2], THERE, DOCUMENTED),
    Program("repeat_interleave", lambda d: x(d).repeat_interleave(2, dim=1), THERE, DOCUMENTED),
    Program("a product of whole numbers", lambda d: x(d).long() @ x(d).long().mT, WHOLE, "#44428"),
    Program("whole numbers, summed", lambda d: (x(d).long() * x(d).long()).sum(-1), THERE, "#44428"),
    # gradients and modules
    Program("backward", slope, THERE, DOCUMENTED),
    Program("torch.func.grad", lambda d: torch.func.grad(lambda at: at.square().sum())(x(d)), THERE, DOCUMENTED),
    Program("vmap", lambda d: torch.vmap(lambda row: row.cumsum(0))(x(d)), THERE, DOCUMENTED),
    Program("a module moved", lambda d: linear().to(d)(x(d)), THERE, DOCUMENTED),
    Program("a module made there", lambda d: linear(d)(x(d)), THERE, DOCUMENTED),
    Program("state_dict", lambda d: linear().to(d).state_dict()["weight"], THERE, DOCUMENTED),
    Program("load_state_dict from the CPU", lambda d: linear(d).weight, THERE, DOCUMENTED),
    Program("a parameter is one", lambda d: isinstance(linear().to(d).weight, nn.Parameter), HERE, DOCUMENTED),
    Program("an optimizer made before", trained, THERE, EXPECTED),
    Program("tied weights", tied, HERE, EXPECTED),
    Program("a module of another dtype", converted, HERE, DOCUMENTED),
    Program("inference mode", without_gradients, THERE, DOCUMENTED),
    Program("another tensor's data", given_data, THERE, EXPECTED),
    # random numbers
    Program("manual_seed", seeded_for_all, HERE, DOCUMENTED),
    Program(
        "a CPU generator",
        lambda d: torch.randn(3, generator=torch.Generator(), device=d),
        Refused(RuntimeError, "device type for generator but found 'cpu'"),
        "#62152",
    ),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_device_does_what_cuda_does(program: Program, device: str) -> None:
    if isinstance(program.gives, Refused):
        with pytest.raises(program.gives.error) as refusal:
            program.run(device)
        assert program.gives.words in str(refusal.value)
        program.run("cpu")  # only the device is refused
        return
    got, expected = program.run(device), program.run("cpu")
    if program.gives == THERE:
        assert got.device.type == device
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        torch.testing.assert_close(got.cpu(), expected)
    elif isinstance(got, torch.Tensor):
        assert got.device.type == "cpu"
        torch.testing.assert_close(got, expected)
    else:
        assert got == expected


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_on_the_device_leave_those_of_the_cpu_alone(device: str) -> None:
    torch.manual_seed(1)
    undisturbed = torch.randn(3)
    torch.manual_seed(1)
    F.dropout(torch.randn(3, device=device))
    assert torch.equal(torch.randn(3), undisturbed)


def test_a_second_copy_of_the_file_uses_the_device_that_is_there(tmp_path: Path) -> None:
    """Students get a copy beside lab.py, and the grader has its own."""
    copied = shutil.copy(simulated_device.__file__, tmp_path / "second_copy.py")
    spec = importlib.util.spec_from_file_location("second_copy", copied)
    assert spec is not None and spec.loader is not None
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    assert second.device_module is simulated_device.device_module
    assert type(x("simulated") + 1) is simulated_device.SimulatedTensor


FORKED = """
import os, torch, simulated_device

def passes_back():
    at = torch.ones(3, device="simulated", requires_grad=True)
    at.square().sum().backward()

before = len(os.listdir("/proc/self/task"))
passes_back()
assert len(os.listdir("/proc/self/task")) == before
if (child := os.fork()) == 0:
    passes_back()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")
def test_a_process_that_has_used_it_can_be_forked() -> None:
    """A backward pass starts a thread for each real device; after that, forks of the process cannot run backward."""
    environment = os.environ | {"PYTHONPATH": str(Path(simulated_device.__file__).parent)}
    subprocess.run([sys.executable, "-c", FORKED], env=environment, check=True, timeout=600)


def test_code_that_looks_for_a_gpu_does_not_find_this_one() -> None:
    assert torch.accelerator.current_accelerator(check_available=True) != torch.device("simulated")
