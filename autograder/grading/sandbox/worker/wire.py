"""The wire between the trusted process and the sandbox: length-prefixed frames of JSON and raw tensor bytes.

Both ends use this file; in the sandbox it is mounted beside the worker. Decoding never executes anything: no pickle,
no eval. Every size is checked before memory is taken for it.

A frame is ``!II`` (bytes of JSON, bytes of payload), the JSON header, the payload. Values are JSON scalars or one-key
objects: ``{"l": [...]}`` list, ``{"u": [...]}`` tuple, ``{"d": [[key, value], ...]}`` dict, ``{"T": {...}}`` tensor
(its bytes in the payload), ``{"dtype": "float32"}``, ``{"r": 3}`` an object that stays where it is, ``{"c": 3}`` a
function of the check's that the student's code may call, ``{"x": "ndarray"}`` something that cannot cross.
"""

import json
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

MAX_HEADER = 4 * 2**20
MAX_PAYLOAD = 64 * 2**20
MAX_DEPTH = 16
MAX_NODES = 100_000
MAX_STRING = 2**20
SIMULATED = "simulated"  # the device of simulated_device.py, which each side imports

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
JSON_SCALARS = frozenset({bool, int, float, str, type(None)})
AS_THEY_ARE = frozenset({float, bool, type(None)})
BY_NUMPY = frozenset(DTYPES.values()) - {torch.bfloat16}  # types that numpy has, too


class WireError(Exception):
    """The peer sent something that is not a frame of this protocol."""


class PeerGone(WireError):
    """The peer closed the connection or died."""


class PeerSlow(WireError):
    """No complete frame before the deadline."""


@dataclass(frozen=True)
class Opaque:
    """Stands for a value that cannot cross; only the name of its type does."""

    type_name: str


@dataclass
class Encoder:
    """Turns values into JSON and payload. ``refer`` is asked about everything that is not plain data. ``lend`` returns
    the offset of a tensor's bytes in shared memory, or ``None`` if they are to travel in the payload."""

    refer: Callable[[Any], dict[str, Any] | None] = lambda value: None
    lend: Callable[[torch.Tensor], int | None] = lambda tensor: None
    payload: bytearray = field(default_factory=bytearray)
    nodes: int = 0

    def encode(self, value: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth >= MAX_DEPTH or self.nodes >= MAX_NODES:
            return {"x": "deeply nested value"}
        if type(value) in AS_THEY_ARE:
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, int):
            return int(value) if abs(value) < 2**63 else {"x": "int of more than 64 bits"}
        if isinstance(value, str):
            return str(value)[:MAX_STRING]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.Size) or type(value) is tuple:
            return {"u": [self.encode(item, depth + 1) for item in value]}
        if type(value) is list:
            return {"l": [self.encode(item, depth + 1) for item in value]}
        if isinstance(value, dict):
            return {"d": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()]}
        if isinstance(value, np.generic):
            return self.encode(value.item(), depth)
        reference = self.refer(value)
        return reference if reference is not None else {"x": type(value).__name__[:80]}

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        dtype = tensor.dtype
        size = tensor.numel() * dtype.itemsize
        if dtype not in NAMES or len(self.payload) + size > MAX_PAYLOAD:
            return _named(tensor)
        body: dict[str, Any] = {"dtype": NAMES[dtype], "shape": list(tensor.shape), "offset": len(self.payload)}
        try:
            if (lent := self.lend(tensor)) is not None:
                body["offset"], body["lent"] = lent, True
            elif (order := _order_in_memory(tensor)) is None:
                self.payload += bytes_of(tensor)
            else:
                body["order"] = order
                self.payload += bytes_of(tensor.permute(order))
        except (RuntimeError, NotImplementedError):  # without data (meta), or with rows of different lengths (nested)
            return _named(tensor)
        if not tensor.is_cpu:
            body["device"] = tensor.device.type
        if tensor.requires_grad:
            body["grad"] = True
        return {"T": body}


def _named(tensor: torch.Tensor) -> dict[str, Any]:
    return {"x": f"{str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)}"}


def _order_in_memory(tensor: torch.Tensor) -> list[int] | None:
    """Return the axes from the outermost in memory to the innermost: heads are often axis 1 in name only. ``None`` if
    that is the usual order, or if the tensor has gaps, repetitions or another layout and so travels in rows."""
    if tensor.layout != torch.strided or tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    return order if tensor.permute(order).is_contiguous() else None


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the elements in row-major order for any strides, layout or class; apply lazy conjugation and negation."""
    if not tensor.is_cpu and tensor.device.type == SIMULATED:
        tensor = getattr(torch, SIMULATED).numbers_of(tensor)
    plain = tensor.detach()
    if type(plain) is torch.Tensor and plain.is_cpu and plain.dtype in BY_NUMPY and not _is_lazy(plain):
        return plain.numpy().tobytes()
    plain = plain.cpu()
    plain = (plain if plain.layout == torch.strided else plain.to_dense()).as_subclass(torch.Tensor)
    # Copy into a fresh tensor: a single element counts as contiguous with any stride, but then has no view as bytes.
    fresh = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
    return fresh.reshape(-1).view(torch.uint8).numpy().tobytes()


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Whether the values in memory are not those of the tensor, or are not in a strided layout."""
    return tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg()


@dataclass
class Decoder:
    """Turns JSON and payload that are not trusted back into values. ``resolve`` turns references into objects."""

    payload: bytes
    resolve: Callable[[int], Any] = lambda number: number
    callback: Callable[[int], Any] | None = None
    device: str = "cpu"
    lent: Any = None  # the memory that both sides share and that may hold tensors; a buffer
    nodes: int = 0
    bytes: int = 0

    def decode(self, item: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise WireError("value nested too deeply or too large")
        if type(item) in JSON_SCALARS:
            return item
        if not isinstance(item, dict) or len(item) != 1:
            raise WireError("malformed value")
        ((tag, body),) = item.items()
        if tag == "T" and isinstance(body, dict):
            return self._tensor(body)
        if tag in ("l", "u") and isinstance(body, list):
            values = [self.decode(entry, depth + 1) for entry in body]
            return values if tag == "l" else tuple(values)
        if tag == "d" and isinstance(body, list):
            return dict(self._pair(entry, depth) for entry in body)
        if tag == "dtype" and isinstance(body, str) and body in DTYPES:
            return DTYPES[body]
        if tag == "r" and type(body) is int:
            return self.resolve(body)
        if tag == "c" and type(body) is int and self.callback is not None:
            return self.callback(body)
        if tag == "x" and isinstance(body, str):
            return Opaque(_printable(body[:200]))
        raise WireError("malformed value")

    def _pair(self, entry: Any, depth: int) -> tuple[Any, Any]:
        if not isinstance(entry, list) or len(entry) != 2:
            raise WireError("malformed dict")
        key, value = self.decode(entry[0], depth + 1), self.decode(entry[1], depth + 1)
        if not isinstance(key, (str, int, float, bool, type(None))) or (type(key) is int and abs(key) >= 2**53):
            key = f"<{type(key).__name__}>"  # large ints can be chosen to have the same hash
        return key, value

    def _tensor(self, body: dict[str, Any]) -> torch.Tensor:
        shape: Any = body.get("shape")
        offset, name = body.get("offset"), body.get("dtype")
        if type(name) is not str or name not in DTYPES or type(offset) is not int or offset < 0:
            raise WireError("malformed tensor")
        dtype, count = DTYPES[name], _elements(shape)
        if body.get("lent") is True:
            return self._lent(dtype, shape, count, offset, body)
        size = count * dtype.itemsize
        self.bytes += size
        if offset + size > len(self.payload) or self.bytes > len(self.payload):  # tensors may not share bytes
            raise WireError("tensors larger than their payload")
        if not count:
            tensor = torch.empty(0, dtype=dtype)
        elif dtype is torch.bool:  # a byte other than 0 and 1 would be undefined behaviour
            tensor = torch.frombuffer(self._copy(offset, size), dtype=torch.uint8) != 0
        else:
            tensor = torch.frombuffer(self._copy(offset, size), dtype=dtype)
        order = body.get("order")
        if order is None:
            tensor = tensor.reshape(shape)
        elif isinstance(order, list) and all(type(n) is int for n in order) and sorted(order) == [*range(len(shape))]:
            as_counted = [order.index(n) for n in range(len(shape))]
            tensor = tensor.reshape([shape[axis] for axis in order]).permute(as_counted)
        else:
            raise WireError("malformed tensor")
        device = body.get("device")
        if device == SIMULATED and hasattr(torch, SIMULATED):
            tensor = getattr(torch, SIMULATED).hold(tensor)
        elif device == self.device:
            tensor = tensor.to(device)
        return _with_gradient(tensor, body)

    def _copy(self, offset: int, size: int) -> bytearray:
        return bytearray(memoryview(self.payload)[offset : offset + size])

    def _lent(
        self, dtype: torch.dtype, shape: list[int], count: int, offset: int, body: dict[str, Any]
    ) -> torch.Tensor:
        """Return the tensor itself and not a copy, so that the other side sees changes in place."""
        if self.lent is None or not count or offset + count * dtype.itemsize > len(self.lent):
            raise WireError("a tensor is said to be lent, and is not")
        return _with_gradient(torch.frombuffer(self.lent, dtype=dtype, count=count, offset=offset).reshape(shape), body)


def _printable(name: str) -> str:
    return name if name.isprintable() else "object"


def _elements(shape: Any) -> int:
    """How many elements a tensor of that shape has."""
    if type(shape) is not list or len(shape) > 16:
        raise WireError("malformed tensor")
    count = bound = 1
    for n in shape:
        if type(n) is not int or not 0 <= n <= MAX_PAYLOAD:
            raise WireError("malformed tensor")
        count *= n
        bound *= n or 1
    if bound > MAX_PAYLOAD:  # an axis of length 0 leaves no bytes, but a sum over that axis can have many
        raise WireError("malformed tensor")
    return count


def _with_gradient(tensor: torch.Tensor, body: dict[str, Any]) -> torch.Tensor:
    if body.get("grad") is True and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.requires_grad_(True)
    return tensor


as_json = json.JSONEncoder(check_circular=False).encode  # an encoded value has no cycles


def _frame(text: bytes, payload: bytes) -> tuple[bytes, bytes, bytes]:
    if len(text) > MAX_HEADER or len(payload) > MAX_PAYLOAD:
        raise WireError("frame too large to send")
    return struct.pack("!II", len(text), len(payload)), text, payload


class Watch(Protocol):
    """Looks at the peer while a conversation waits for it (``watch.py``)."""

    def due_in(self, now: float) -> float: ...
    def look_if_due(self) -> None: ...


class Connection:
    """Sends frames over a blocking stream socket: with a timeout, a Python socket makes twice as many system calls."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)  # count a byte out of band as any other
        self._read = bytearray()  # bytes that have come and were not asked for yet
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(
        self, header: dict[str, Any], payload: bytes = b"", seconds: float | None = None, watch: Watch | None = None
    ) -> None:
        """Send a frame. Raises ``PeerSlow`` if that takes more than ``seconds`` (wall clock)."""
        self.send_frames([(as_json(header), payload)], seconds, watch)

    def send_frames(
        self, frames: list[tuple[str, bytes]], seconds: float | None = None, watch: Watch | None = None
    ) -> None:
        """Send several frames at once, to wake the peer only once. Their headers are JSON already."""
        together = b"".join(part for text, payload in frames for part in _frame(text.encode(), payload))
        try:
            if seconds is None:
                self.sock.sendall(together)
            else:
                self._send_within(together, time.monotonic() + seconds, watch)
        except OSError as error:
            raise PeerGone(str(error)) from error

    def _send_within(self, frame: bytes, deadline: float, watch: Watch | None) -> None:
        rest = memoryview(frame)
        while rest:
            try:
                rest = rest[self.sock.send(rest, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                writable = select.poll()
                writable.register(self.sock, select.POLLOUT)
                _wait(writable, deadline, watch)
                if watch:
                    watch.look_if_due()

    def receive(self, seconds: float | None = None, watch: Watch | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the next frame. Raises ``PeerSlow`` if it is not complete within ``seconds`` (wall clock)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._wait_for(8, deadline, watch)
        text_size, payload_size = struct.unpack_from("!II", self._read)
        if text_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
            raise WireError("frame too large")
        end = 8 + text_size + payload_size
        if len(self._read) < end:
            self._wait_for(end, deadline, watch)
        text, payload = self._read[8 : 8 + text_size], bytes(self._read[8 + text_size : end])
        del self._read[:end]
        try:
            header = json.loads(text.decode())  # from bytes, it would first detect the encoding
        except (ValueError, RecursionError) as error:
            raise WireError("header is not JSON") from error
        if not isinstance(header, dict):
            raise WireError("header is not an object")
        return header, payload

    @property
    def room(self) -> int:
        """How many bytes can be sent before the other side reads any: a third of the socket's buffer, which also holds
        the kernel's own records."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 3

    def close(self) -> None:
        self.sock.close()

    def _wait_for(self, size: int, deadline: float | None, watch: Watch | None) -> None:
        """Read until ``size`` bytes have come. Look whenever only some have come: a slow peer must be watched, too."""
        flags = 0 if deadline is None else socket.MSG_DONTWAIT
        while len(self._read) < size:
            if deadline is not None:
                _wait(self._poll, deadline, watch)
            try:
                chunk = self.sock.recv(min(max(size - len(self._read), 2**16), 2**20), flags)
                if not chunk:
                    raise PeerGone("connection closed")
                self._read += chunk
            except BlockingIOError:
                pass
            except OSError as error:
                raise PeerGone(str(error)) from error
            if watch and len(self._read) < size:
                watch.look_if_due()


def _wait(poll: select.poll, deadline: float, watch: Watch | None) -> None:
    """Wait for the socket, but only until the next look is due. Raises ``PeerSlow`` after the deadline."""
    now = time.monotonic()
    if now >= deadline:
        raise PeerSlow("the peer neither sends nor reads")
    poll.poll(min(deadline - now, watch.due_in(now) if watch else deadline - now) * 1000)
