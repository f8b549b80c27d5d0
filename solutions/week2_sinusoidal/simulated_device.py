"""A simulated second device for any machine: its tensors are apart from the CPU's, its arithmetic is the CPU's.

``x.to("simulated")`` moves a tensor there. Like a tensor on a GPU, it cannot be combined with one on the CPU: code that
forgets ``device=`` fails as it does on a GPU, with the same message. Importing this file sets up the device, through
PyTorch's hooks for back ends written in Python; a second copy in the same process finds the device and changes nothing.

It cannot show a GPU's memory and streams, the rounding and order of summation of its kernels, or that an index out of
range makes a GPU unusable. It does not simulate ``torch.compile``, LSTM and GRU, ``torch.Generator``, storages and
addresses in memory, or shapes changed in place in inference mode. ``torch.accelerator`` knows only one accelerator: on
a machine with a GPU it no longer names that one, and says that none is available.
"""

import contextlib
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils import backend_registration

NAME = "simulated"
DEVICE = f"{NAME}:0"
CPU = torch.device("cpu")
aten: Any = torch.ops.aten
DATA: Any = torch._C._TensorBase.data

INDEXING = {
    aten.index,
    aten.index_put,
    aten.index_put_,
    aten._index_put_impl_,
    aten._unsafe_index,
    aten._unsafe_index_put,
}
# Pointwise operations may combine a device's tensors with a number, which is a tensor without dimensions on the CPU. By
# CUDA's declarations (native_functions.yaml, `device_check`) these accept one, too, though they lack the pointwise tag,
TAKE_NUMBERS = {
    getattr(aten, name + end)
    for name in ("fill", "masked_fill", "index_fill", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge")
    for end in ("", "_")
} | {aten.rsub}  # fmt: skip
# and these refuse one, though they have the tag.
TAKE_NO_NUMBERS = {
    aten.clamp, aten.clamp_, aten.clamp_min, aten.clamp_min_, aten.clamp_max, aten.clamp_max_,
    aten.equal, aten.gcd, aten.lcm, aten.ldexp, aten.logaddexp, aten.logaddexp2, aten.nextafter,
}  # fmt: skip
# Products of matrices, with the position of the first factor. CUDA has none for integers.
PRODUCTS = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1, aten.mv: 0, aten.addmv: 1, aten.dot: 0}

# These do not go through the fallback: `torch.tensor` calls the first two past the tensor's class, and the others would
# begin with an empty tensor and change its shape, which is refused in inference mode.
DIRECT = [aten.copy_.default, aten._local_scalar_dense.default, aten.arange.default, aten.arange.start]
DIRECT += [aten.arange.start_step, aten.eye.default, aten.eye.m]

MIXED = f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu!"
INDEX_ELSEWHERE = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
NOT_FOR_NUMPY = (
    f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
)


class SimulatedTensor(torch.Tensor):
    """A tensor on the simulated device. Its numbers are in a tensor on the CPU that only this file sees."""

    _near: torch.Tensor
    _is_new = False  # whether it was copied from the CPU
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> "SimulatedTensor":
        make: Any = torch.Tensor._make_wrapper_subclass
        format_of_memory, device = None, torch.device(DEVICE)  # by position, as keywords take a third of the time
        tensor: SimulatedTensor = make(
            cls, near.size(), near.stride(), near.storage_offset(), format_of_memory, near.dtype, near.layout, device
        )
        tensor._near = near
        return tensor

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(op, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        found: torch.Tensor = DATA.__get__(self)
        return found

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        DATA.__set__(self, value)
        if isinstance(value, SimulatedTensor):
            self._near = value._near

    def __getattr__(self, name: str) -> Any:
        """Offer ``__tensor_flatten__`` on a tensor copied from the CPU. `nn.Module.to` looks for it, and then swaps the
        contents of parameters, so that they stay the same objects, as on a GPU."""
        if name == "__tensor_flatten__" and self._is_new:
            return lambda: (["_near"], None)
        raise AttributeError(name)

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: Any) -> "SimulatedTensor":
        return SimulatedTensor(inner["_near"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        needs_gradient = ", requires_grad=True" if self.requires_grad else ""
        text = f"{repr(self._near).removesuffix(')')}, device='{DEVICE}'{needs_gradient})"
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else self._near, spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SimulatedTensor, (self._near,)

    def tolist(self) -> Any:
        return self._near.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self._near.numpy(force=True)
        raise TypeError(NOT_FOR_NUMPY)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(NOT_FOR_NUMPY)


class DeviceModule:
    """``torch.simulated``: the functions that PyTorch calls for a device."""

    def __init__(self) -> None:
        self.generator = torch._C.Generator()

    def is_available(self) -> bool:
        return False  # code that looks for a GPU must not find this device; it is used only by name

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 0

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def hold(self, near: torch.Tensor) -> torch.Tensor:
        """Return a tensor of these numbers, which nobody else may hold, on this device: ``to`` without its copy."""
        return SimulatedTensor(near)

    def numbers_of(self, tensor: Any) -> torch.Tensor:
        """Return the numbers of a tensor on this device: ``cpu`` without its copy."""
        near: torch.Tensor = tensor._near
        return near

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    @contextlib.contextmanager
    def own_random_numbers(self) -> Iterator[None]:
        """Draw random numbers from the device's own generator; the CPU's goes on as if none had been drawn."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)


class _Kind(NamedTuple):
    """The properties of an operation that decide how it is done here."""

    packet: Any
    first_factor: int | None  # its position, for a product of matrices
    is_random: bool
    changes: bool  # some of its arguments in place
    is_view: bool


@functools.cache
def _kind(op: Any) -> _Kind:
    packet = op.overloadpacket
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    return _Kind(packet, PRODUCTS.get(packet), is_random, op._schema.is_mutable, op.is_view)


def _run(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run ``op`` on the CPU, and refuse what a GPU refuses. One call of a student's answer comes here a hundred times,
    so what all calls of an operation share is looked up once."""
    kind = _kind(op)
    ours: list[SimulatedTensor] = []
    others: list[torch.Tensor] = []
    near = _near(args, ours, others)
    device = generator = None
    if kwargs:
        device, generator = kwargs.get("device"), kwargs.get("generator")
        kwargs = dict(zip(kwargs, _near(kwargs.values(), ours, others), strict=True))
    if kind.packet is aten._has_compatible_shallow_copy_type:  # can one tensor take over the other's data?
        return not others
    if ours and others and kind.packet is not aten.copy_:
        _refuse_a_mix(op, args, others)
    if device is not None:
        kwargs["device"] = CPU
    if kind.first_factor is not None:
        _require_real(kind, near[kind.first_factor].dtype)
    if generator is not None:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    if kind.is_random:
        with device_module.own_random_numbers():
            result = op(*near, **kwargs)
    else:
        result = op(*near, **kwargs)
    if kind.changes:
        for tensor in ours:
            _follow(tensor)
        if kind.packet is aten.copy_ and others and args[0] is ours[0]:
            ours[0]._is_new = True
    if device is not None and torch.device(device).type != NAME:
        return result
    # In inference mode, a view of a tensor that was made outside it is not an inference tensor.
    is_as_before = kind.is_view and torch.is_inference_mode_enabled() and not (ours or others)[0].is_inference()
    with torch.inference_mode(False) if is_as_before else contextlib.nullcontext():
        return _moved(result, ours, others)


def _near(values: Iterable[Any], ours: list[SimulatedTensor], others: list[torch.Tensor]) -> list[Any]:
    """Return an operation's arguments as they are on the CPU. Tensors, also those in lists, are appended to ``ours`` if
    they are on this device, else to ``others``."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, SimulatedTensor):
            ours.append(value)
            found.append(value._near)
        elif isinstance(value, (list, tuple)):
            found.append(_near(value, ours, others))
        else:
            if isinstance(value, torch.Tensor):
                others.append(value)
            found.append(value)
    return found


def _moved(value: Any, ours: list[SimulatedTensor], others: list[torch.Tensor]) -> Any:
    """Return an operation's result as it is on this device; an argument is returned as the same object."""
    if isinstance(value, (list, tuple)):
        return type(value)([_moved(item, ours, others) for item in value])
    if not isinstance(value, torch.Tensor):
        return value
    for tensor in ours:
        if tensor._near is value:
            return tensor
    if any(tensor is value for tensor in others):
        return value
    return SimulatedTensor(value.resolve_conj().resolve_neg())  # the wrapper would hide that both are pending


def _refuse_a_mix(op: Any, args: Any, near: list[torch.Tensor]) -> None:
    """Raise as CUDA does if ``op`` cannot combine the CPU's tensors, ``near``, with the device's own."""
    packet = op.overloadpacket
    if packet in INDEXING:
        _refuse_mixed_indexing(*args[:3])
        return
    takes_numbers = packet in TAKE_NUMBERS or (torch.Tag.pointwise in op.tags and packet not in TAKE_NO_NUMBERS)
    changes_near = op._schema.is_mutable and any(args[0] is tensor for tensor in near)
    if not takes_numbers or changes_near or any(tensor.dim() for tensor in near):
        raise RuntimeError(MIXED)


def _refuse_mixed_indexing(indexed: torch.Tensor, indices: Any, value: Any = None) -> None:
    """Raise as CUDA does for mixed devices: indices may be on the CPU, a value without dimensions anywhere."""
    is_ours = isinstance(indexed, SimulatedTensor)
    if not is_ours and any(isinstance(index, SimulatedTensor) for index in indices):
        raise RuntimeError(INDEX_ELSEWHERE)
    if isinstance(value, torch.Tensor) and value.dim() and isinstance(value, SimulatedTensor) != is_ours:
        raise RuntimeError(MIXED)


def _require_real(kind: _Kind, dtype: torch.dtype) -> None:
    """Refuse a product of matrices of whole numbers, as CUDA does."""
    if not dtype.is_floating_point and not dtype.is_complex:
        dtype_name = str(dtype).removeprefix("torch.")
        raise RuntimeError(f'"{kind.packet.__name__}_{NAME}" not implemented for {dtype_name!r}')


def _follow(tensor: SimulatedTensor) -> None:
    """Give a tensor the shape of its numbers, if an operation has changed their shape in place."""
    near = tensor._near
    if near.size() == tensor.size() and near.stride() == tensor.stride():
        return
    if tensor.is_inference():
        raise NotImplementedError("on the simulated device no tensor changes its shape in place in inference mode")
    excluded = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.AutogradPrivateUse1)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        tensor.data = SimulatedTensor(near)


def _set_up(module: DeviceModule) -> list[torch.library.Library]:
    """Register the device with PyTorch. The caller must keep what is returned."""
    # The first backward pass starts a thread for each device, and a process with such a thread cannot be forked. So run
    # it before there is a device, and keep later passes in the thread that asks for them.
    one = torch.ones(1, requires_grad=True)
    torch.autograd.grad(one.sum(), one)
    torch.autograd.set_multithreading_enabled(False)
    backend_registration._setup_privateuseone_for_python_backend(NAME, module)
    torch.serialization.add_safe_globals([SimulatedTensor])
    fallback, direct = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    fallback.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    for op in DIRECT:
        direct.impl(op.name(), lambda *args, op=op, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    return [fallback, direct]


def _make_first_tensor() -> None:
    """Make the first tensor while a stand-in replaces `torch.distributed.tensor`. Once in a process, PyTorch checks
    whether the first tensor of a custom class is a `DTensor`. For that it would import this module and sympy, which
    takes half a second."""
    name = "torch.distributed.tensor"
    if name in sys.modules:
        return
    stand_in: Any = types.ModuleType(name)
    stand_in.DTensor = type("DTensor", (torch.Tensor,), {})
    sys.modules[name] = stand_in
    try:
        torch.ones(1).to(DEVICE)
    finally:
        del sys.modules[name]


if hasattr(torch, NAME):
    device_module: DeviceModule = getattr(torch, NAME)
else:
    device_module = DeviceModule()
    _libraries = _set_up(device_module)
    _make_first_tensor()
