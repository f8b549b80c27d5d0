"""The frames between sandbox and trusted process: what goes in comes out, and garbage is refused in bounded time."""

import json
import math
import socket
import struct
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.grading.sandbox.worker.wire import (
    DTYPES, MAX_HEADER, MAX_PAYLOAD, Connection, Decoder, Encoder, Opaque, PeerGone, PeerSlow, Reference, WireError,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2**62, 2**62) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.sampled_from(["float32", "T", "x", "bool", ""]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["T", "l", "u", "d", "r", "c", "x", "dtype", "shape", "offset", "device", "grad", "id"]),
                      inner, max_size=5),
    max_leaves=25)
quick = settings(max_examples=300, deadline=None, derandomize=True)


def there_and_back(value: object) -> object:
    encoder = Encoder()
    text = json.dumps(encoder.encode(value))
    return Decoder(bytes(encoder.payload)).decode(json.loads(text))


@quick
@given(PLAIN)
def test_plain_values_survive(value: object) -> None:
    assert there_and_back(value) == value


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 5)])
def test_tensors_survive(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    back = there_and_back([tensor, {"a": tensor}])
    for copy in (back[0], back[1]["a"]):
        assert copy.dtype == dtype and copy.shape == tensor.shape and torch.equal(copy, tensor)


def test_awkward_tensors_survive() -> None:
    for tensor in (torch.arange(12.0).view(3, 4).T, torch.arange(3.0).expand(2, 3), torch.tensor([math.nan, math.inf]),
                   torch.tensor([1 + 2j]).conj(), torch.ones(2, requires_grad=True)):
        back = there_and_back(tensor)
        assert torch.allclose(back, tensor.resolve_conj(), equal_nan=True)
        assert back.requires_grad == tensor.requires_grad


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
    try:
        Decoder(payload, resolve=lambda reference: reference).decode(json.loads(json.dumps(header)))
    except WireError:
        pass


@pytest.mark.parametrize("body", [
    {"dtype": "float32", "shape": [2**60], "offset": 0}, {"dtype": "float32", "shape": [-1], "offset": 0},
    {"dtype": "float32", "shape": [2], "offset": -4}, {"dtype": "float32", "shape": [2], "offset": 10**9},
    {"dtype": "object", "shape": [], "offset": 0}, {"dtype": ["float32"], "shape": [], "offset": 0},
    {"dtype": "float32", "shape": [True], "offset": 0}, {"dtype": "float32", "shape": [0] * 40, "offset": 0}, {}])
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


def pair() -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    return Connection(ours), theirs


@quick
@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_error_or_a_frame(data: bytes) -> None:
    connection, theirs = pair()
    theirs.sendall(data)
    theirs.close()
    try:
        header, _ = connection.receive(1.0)
        assert isinstance(header, dict)
    except WireError:
        pass
    connection.close()


@pytest.mark.parametrize("sizes", [(MAX_HEADER + 1, 0), (2, MAX_PAYLOAD + 1), (2**32 - 1, 2**32 - 1)])
def test_announced_sizes_are_believed_only_within_limits(sizes: tuple[int, int]) -> None:
    connection, theirs = pair()
    theirs.sendall(struct.pack("!II", *sizes) + b"{}")
    with pytest.raises(WireError, match="too large"):
        connection.receive(1.0)
    theirs.close()


def test_a_dripping_peer_meets_the_deadline() -> None:
    connection, theirs = pair()
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
    theirs.close()


def test_a_vanished_peer_is_noticed() -> None:
    connection, theirs = pair()
    theirs.close()
    with pytest.raises(PeerGone):
        connection.receive(1.0)


@pytest.mark.parametrize("text", [b"[1]", b"nonsense", b'"x"', b"[" * 3000, b"{\"a\":" * 3000])
def test_headers_that_are_no_objects_are_refused(text: bytes) -> None:
    connection, theirs = pair()
    theirs.sendall(struct.pack("!II", len(text), 0) + text)
    with pytest.raises(WireError):
        connection.receive(1.0)
    theirs.close()


def test_references_need_the_right_types() -> None:
    good = {"r": {"id": 3, "type": "function", "callable": True}}
    assert Decoder(b"").decode(good) == Reference(3, "function", True)
    for bad in ({"id": True, "type": "f", "callable": True}, {"id": 3, "type": 4, "callable": True}, {"id": 3}):
        with pytest.raises(WireError):
            Decoder(b"").decode({"r": bad})
