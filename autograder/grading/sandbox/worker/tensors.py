"""Tensors in nested values and modules: finding, comparing, overwriting, loading. Used on both sides."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

PLAIN = frozenset({int, float, bool, str, type(None)})  # checked first: to check for a tensor takes five times as long


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of nested tuples, lists and dicts, in order."""
    found: list[torch.Tensor] = []
    _collect((value,), found)
    return found


def _collect(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    for value in values:
        if type(value) in PLAIN:
            continue
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            _collect(value, found)
        elif isinstance(value, dict):
            _collect(value.values(), found)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if a.is_floating_point() else torch.equal(a, b)


def load_weights(module: Any, weights: Mapping[str, torch.Tensor], zeroed: Collection[str]) -> str:
    """Load ``weights`` into the module; other entries that end in one of ``zeroed`` become zero. Returns why nothing
    was loaded if the state_dict lacks a name, else an empty string."""
    state = module.state_dict()
    for name in weights:
        if name not in state:
            return f"the state_dict has no {name[:80]!r}"
    for name, value in state.items():
        state[name] = weights.get(name, torch.zeros_like(value) if name.endswith(tuple(zeroed)) else value)
    module.load_state_dict(state)
    return ""


def load_table(module: Any, rows: torch.Tensor) -> str:
    """Load ``rows`` as the only entry of the module's state with as many elements, whatever its name and shape. Returns
    why nothing was loaded if there is no such entry, or several; else an empty string."""
    state = module.state_dict()
    tables = [
        name for name, value in state.items() if isinstance(value, torch.Tensor) and value.numel() == rows.numel()
    ]
    if len(tables) != 1:
        found = "several tensors" if tables else "no tensor" if state else "nothing, so no tensor"
        return f"the state_dict has {found} of max_len * d_model = {rows.numel()} entries"
    shape = state[tables[0]].shape
    turned = tuple(shape) == tuple(rows.shape)[::-1] and rows.shape[0] != rows.shape[1]
    state[tables[0]] = (rows.T if turned else rows).reshape(shape).clone()
    module.load_state_dict(state)
    return ""


def make_module(target: Any, args: Any, kwargs: Any, loaded: dict[str, Any]) -> tuple[Any, str]:
    """Return a module of the student's class with what is to be loaded, and why it was not loaded, if so. With
    ``device`` the module is only moved there."""
    with usual_numbers():
        module = target(*args, **kwargs)
        if "device" in loaded:
            return module.requires_grad_(False).to(loaded["device"]), ""  # nobody asks for a gradient there
        if "rows" in loaded:
            return module, load_table(module, loaded["rows"])
        return module, load_weights(module, loaded["weights"], loaded["zeroed"])


EXACT = "highest"  # PyTorch's name for float32 products in float32, not in TF32 or bfloat16


@contextlib.contextmanager
def usual_numbers() -> Iterator[None]:
    """Make new tensors float32 and float32 products exact in the block, whatever a cell has set: tests pass float32
    tensors."""
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    if dtype != torch.float32:
        torch.set_default_dtype(torch.float32)
    if precision != EXACT:
        torch.set_float32_matmul_precision(EXACT)
    try:
        yield
    finally:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_float32_matmul_precision() != precision:
            torch.set_float32_matmul_precision(precision)


def overwrite(value: Any) -> None:
    """Put other numbers into the tensors of ``value``, as any caller that gets them may do."""
    for tensor in tensors_in(value):
        with torch.no_grad(), contextlib.suppress(RuntimeError):  # an expanded one cannot be written to
            tensor.logical_not_() if tensor.dtype == torch.bool else tensor.add_(1)
