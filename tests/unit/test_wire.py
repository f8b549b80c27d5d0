"""The frames between sandbox and trusted process: what goes in comes out, and garbage is refused in bounded time."""

import contextlib
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.grading.sandbox.watch import Watch
from autograder.grading.sandbox.worker import simulated_device
from autograder.grading.sandbox.worker.wire import (
    DTYPES,
    MAX_HEADER,
    MAX_PAYLOAD,
    Connection,
    Decoder,
    Encoder,
    Opaque,
    PeerGone,
    PeerSlow,
    WireError,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats()
    | st.sampled_from(["float32", "T", "x", "bool", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["T", "l", "u", "d", "r", "c", "x", "dtype", "shape", "offset", "device", "grad", "id"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)
quick = settings(max_examples=300, deadline=None, derandomize=True)


def there_and_back(value: object) -> object:
    encoder = Encoder()
    text = json.dumps(encoder.encode(value))
    return Decoder(bytes(encoder.payload)).decode(json.loads(text))


@quick
@given(PLAIN)
def test_plain_values_survive(value: object) -> None:
    assert there_and_back(value) == value


def test_awkward_tensors_survive() -> None:
    for tensor in (
        torch.arange(12.0).view(3, 4).T,
        torch.arange(3.0).expand(2, 3),
        torch.tensor([math.nan, math.inf]),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(2, requires_grad=True),
    ):
        back = there_and_back(tensor)
        assert torch.allclose(back, tensor.resolve_conj(), equal_nan=True)
        assert back.requires_grad == tensor.requires_grad


class Marked(torch.Tensor):
    """A tensor subclass, as libraries define them."""


def forms(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same elements in every form that honest code returns: strides, views, layouts, lazy signs, classes."""
    wide = torch.stack((tensor, tensor), dim=-1)
    found = {
        "every second": wide[..., 0],
        "transposed": tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.ndim else tensor,
        "a window": torch.cat((tensor.reshape(-1), tensor.reshape(-1)))[: tensor.numel()].view(tensor.shape),
        "by index": tensor[..., :] if tensor.ndim else tensor,
        "parameter": torch.nn.Parameter(tensor, requires_grad=False),
        "subclass": tensor.as_subclass(Marked),
        "large strides": torch.empty_strided(
            tensor.shape, [7 * (i + 2) ** 3 for i in range(tensor.ndim)], dtype=tensor.dtype
        ).copy_(tensor),
        "expanded": tensor.unsqueeze(0).expand(1, *tensor.shape)[0],
        "a flip of a flip": tensor.flip(0).flip(0) if tensor.ndim else tensor,
        "half of a view": wide.flatten()[::2].view(tensor.shape) if tensor.numel() else tensor,
    }
    if tensor.dtype.is_complex:
        found |= {"conjugate": tensor.conj().resolve_conj().conj(), "minus": tensor.clone().neg().conj().neg().conj()}
    if tensor.dtype.is_floating_point and tensor.numel():
        found["negative bit"] = (
            torch.complex(torch.zeros_like(tensor, dtype=torch.float64), -tensor.double()).conj().imag.to(tensor.dtype)
            if tensor.dtype != torch.float64
            else torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
        )
    if tensor.ndim == 2:
        found |= {"sparse": tensor.to_sparse(), "compressed rows": tensor.to_sparse_csr()}
    return found


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (1, 1), (2, 1), (1, 5), (3, 4), (0, 3), (2, 0, 4), (1, 1, 1, 2), (2, 3, 5)]
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_tensors_survive_in_every_form(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3).to(dtype)
    for name, form in forms(tensor).items():
        back = there_and_back(form)
        assert isinstance(back, torch.Tensor), (name, back)
        assert back.dtype == dtype and back.shape == tensor.shape and torch.equal(back, tensor), name


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 5), min_size=4, max_size=4), st.integers(0, 7))
def test_any_strides_survive(shape: list[int], strides: list[int], offset: int) -> None:
    store = torch.arange(100.0)
    tensor = store.as_strided(shape, strides[: len(shape)], offset)
    assert torch.equal(there_and_back(tensor), tensor.clone())


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1)])
def test_transposed_tensors_arrive_transposed(order: tuple[int, ...]) -> None:
    """Otherwise a `view` that fails on heads straight from a projection would work here."""
    tensor = torch.randn(2, 3, 4).permute(order)
    encoder = Encoder()
    header = encoder.encode(tensor)
    arrived = Decoder(bytes(encoder.payload)).decode(header)
    assert torch.equal(arrived, tensor) and arrived.stride() == tensor.stride() and not arrived.is_contiguous()


@pytest.mark.parametrize(
    "order", [[0, 0], [0], [0, 2], ["0", "1"], "01", [[0], [1]], [0, 1.5], {"0": 1}, [True, False]]
)
def test_an_order_of_axes_that_is_none_is_refused(order: object) -> None:
    encoder = Encoder()
    header = encoder.encode(torch.zeros(2, 3))
    header["T"]["order"] = order
    with pytest.raises(WireError):
        Decoder(bytes(encoder.payload)).decode(header)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_a_tensor_on_the_simulated_device_arrives_there(order: tuple[int, ...]) -> None:
    """Whatever device a class is graded on, answers are called with such tensors and return them."""
    tensor = torch.randn(2, 3, 4).to(simulated_device.NAME).permute(order)
    arrived = there_and_back(tensor.clone(memory_format=torch.preserve_format).requires_grad_())
    assert arrived.device == tensor.device and arrived.requires_grad and arrived.is_leaf
    assert torch.equal(arrived, tensor) and arrived.stride() == tensor.stride()


def test_a_tensor_on_an_unknown_device_arrives_on_the_cpu() -> None:
    encoder = Encoder()
    header = encoder.encode(torch.zeros(2))
    for device in ("cuda", "meta", "tpu", "", ["simulated"], None):
        header["T"]["device"] = device
        assert Decoder(bytes(encoder.payload)).decode(header).is_cpu


def test_what_has_no_elements_to_send_is_named() -> None:
    assert there_and_back(torch.empty(3, device="meta")) == Opaque("float32 tensor of shape (3,)")
    assert isinstance(there_and_back(torch.empty(2, dtype=torch.float8_e4m3fn)), Opaque)


def test_numpy_scalars_arrive_as_plain_numbers() -> None:
    assert there_and_back([np.float32(0.5), np.int64(3), np.bool_(True)]) == [0.5, 3, True]


def test_what_cannot_cross_is_named() -> None:
    assert there_and_back(object()) == Opaque("object")
    nested: list = []
    nested.append(nested)
    assert "Opaque" in repr(there_and_back(nested))
    assert isinstance(there_and_back(10**40), Opaque)


@quick
@given(JSON, st.binary(max_size=64))
def test_garbage_is_refused_and_never_crashes(header: object, payload: bytes) -> None:
    with contextlib.suppress(WireError):
        Decoder(payload, resolve=lambda reference: reference).decode(json.loads(json.dumps(header)))


@pytest.mark.parametrize(
    "body",
    [
        {"dtype": "float32", "shape": [2**60], "offset": 0},
        {"dtype": "float32", "shape": [-1], "offset": 0},
        {"dtype": "float32", "shape": [2], "offset": -4},
        {"dtype": "float32", "shape": [2], "offset": 10**9},
        {"dtype": "object", "shape": [], "offset": 0},
        {"dtype": ["float32"], "shape": [], "offset": 0},
        {"dtype": "float32", "shape": [True], "offset": 0},
        {"dtype": "float32", "shape": [0] * 40, "offset": 0},
        {},
    ],
)
def test_hostile_tensors_are_refused_before_memory_is_taken(body: dict) -> None:
    with pytest.raises(WireError):
        Decoder(b"\0" * 8).decode({"T": body})


def test_bytes_of_a_bool_tensor_become_real_bools() -> None:
    tensor = Decoder(b"\x00\x01\x07\xff").decode({"T": {"dtype": "bool", "shape": [4], "offset": 0}})
    assert tensor.tolist() == [False, True, True, True] and int(tensor.sum()) == 3


def test_depth_and_size_are_bounded() -> None:
    deep: object = None
    for _ in range(100):
        deep = {"l": [deep]}
    with pytest.raises(WireError):
        Decoder(b"").decode(deep)
    with pytest.raises(WireError):
        Decoder(b"").decode({"l": [0] * 200_000})


def test_a_name_is_one_that_can_be_printed() -> None:
    for name in ("int\n2 of 2", "\x1b[2K", "\u202eenod"):
        assert Decoder(b"").decode({"x": name}).type_name == "object"


Pair = tuple[Connection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with contextlib.closing(Connection(ours)) as connection, theirs:
        yield connection, theirs


@quick
@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_error_or_a_frame(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(data)
    with contextlib.closing(Connection(ours)) as connection, contextlib.suppress(WireError):
        header, _ = connection.receive(1.0)
        assert isinstance(header, dict)


@pytest.mark.parametrize("sizes", [(MAX_HEADER + 1, 0), (2, MAX_PAYLOAD + 1), (2**32 - 1, 2**32 - 1)])
def test_announced_sizes_are_believed_only_within_limits(sizes: tuple[int, int], pair: Pair) -> None:
    connection, theirs = pair
    theirs.sendall(struct.pack("!II", *sizes) + b"{}")
    with pytest.raises(WireError, match="too large"):
        connection.receive(1.0)


@pytest.mark.timing
def test_a_dripping_peer_meets_the_deadline(pair: Pair) -> None:
    connection, theirs = pair
    stop = threading.Event()

    def drip() -> None:
        theirs.sendall(struct.pack("!II", 1000, 0))
        while not stop.wait(0.02):
            try:
                theirs.sendall(b" ")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(PeerSlow):
        connection.receive(0.3)
    stop.set()
    thread.join()


def test_a_peer_that_does_not_read_is_not_waited_for_beyond_the_limit(pair: Pair) -> None:
    connection, _ = pair
    with pytest.raises(PeerSlow):
        connection.send({}, bytes(2**25), seconds=0)  # more than the buffer of the socket holds


def test_who_does_not_read_is_looked_at_like_who_does_not_answer(pair: Pair) -> None:
    connection, _ = pair

    def look() -> None:
        raise KeyError("seen")

    for wait in (
        lambda: connection.send({}, bytes(2**25), seconds=600, watch=Watch(look)),
        lambda: connection.receive(600, Watch(look)),
    ):
        with pytest.raises(KeyError, match="seen"):
            wait()


def test_looks_come_however_much_arrives_and_nobody_knows_when(pair: Pair) -> None:
    """White space arrives byte by byte before a reply: there is always something to read, but never a frame."""
    connection, theirs = pair
    theirs.sendall(struct.pack("!II", 2**20, 0))
    stop = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not stop.is_set():
                theirs.sendall(b" ")

    def look() -> None:
        raise KeyError("seen")

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(KeyError, match="seen"):
        connection.receive(600, Watch(look))
    stop.set()
    connection.close()
    thread.join()
    assert len({Watch(look).due_in(0.0) - time.monotonic() for _ in range(9)}) == 9


def test_a_byte_out_of_band_is_one_like_others(pair: Pair) -> None:
    connection, theirs = pair
    theirs.send(b"!", socket.MSG_OOB)
    theirs.sendall(struct.pack("!II", 2, 0)[:7])
    with pytest.raises(WireError, match="too large"):
        connection.receive(600)


def test_a_frame_larger_than_the_buffer_arrives_whole() -> None:
    ours, theirs = (Connection(end) for end in socket.socketpair())
    payload = bytes(range(256)) * 2**14
    thread = threading.Thread(target=lambda: ours.send({"a": 1}, payload, seconds=60))
    thread.start()
    assert theirs.receive(60) == ({"a": 1}, payload)
    thread.join()


def test_a_vanished_peer_is_noticed(pair: Pair) -> None:
    connection, theirs = pair
    theirs.close()
    with pytest.raises(PeerGone):
        connection.receive(1.0)


@pytest.mark.parametrize("text", [b"[1]", b"nonsense", b'"x"', b"[" * 3000, b'{"a":' * 3000])
def test_headers_that_are_no_objects_are_refused(text: bytes, pair: Pair) -> None:
    connection, theirs = pair
    theirs.sendall(struct.pack("!II", len(text), 0) + text)
    with pytest.raises(WireError):
        connection.receive(1.0)


def test_references_need_the_right_types() -> None:
    assert Decoder(b"").decode({"r": 3}) == 3
    for bad in (True, "3", {"id": 3}):
        with pytest.raises(WireError):
            Decoder(b"").decode({"r": bad})


def test_numbers_cannot_be_chosen_to_make_a_dict_slow() -> None:
    entries = [[key * (2**61 - 1), None] for key in range(20_000)]
    assert len(Decoder(b"").decode({"d": entries})) == 2  # 0, and one key for all that are too large


def test_a_tensor_of_no_bytes_has_no_huge_shape() -> None:
    shape = {"dtype": "float32", "shape": [2**15, 25_000, 0], "offset": 0}
    with pytest.raises(WireError):
        Decoder(b"").decode({"T": shape})
    assert Decoder(b"").decode({"T": shape | {"shape": [3, 0, 7]}}).shape == (3, 0, 7)
