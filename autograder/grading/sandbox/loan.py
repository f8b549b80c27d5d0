"""The tensors that are lent to one call, and how it changes them."""

from collections.abc import Sequence

import torch

from autograder.grading.sandbox.lent import LentMemory
from autograder.grading.sandbox.worker.wire import bytes_of


class Loan:
    """Lends the ``watched`` tensors of one call, reads them again after the call and compares them byte by byte."""

    def __init__(self, watched: Sequence[torch.Tensor]) -> None:
        self._watched = watched
        self._memory: LentMemory | None = None
        self._lent: list[tuple[torch.Tensor, int, bytes]] = []
        self._changed: list[tuple[torch.Tensor, bytes]] = []

    def begin(self, memory: LentMemory) -> None:
        """Begin a new loan, also when the same call is asked again."""
        self._memory = memory
        self._lent, self._changed = [], []

    def lend(self, tensor: torch.Tensor) -> int | None:
        """Return the offset of the tensor's copy; ``None`` if it is not watched, not on the CPU, or does not fit."""
        if not any(tensor is one for one in self._watched) or self._memory is None or not tensor.is_cpu:
            return None
        raw = bytes_of(tensor)
        offset = self._memory.lend(raw)
        if offset is not None:
            self._lent.append((tensor, offset, raw))
        return offset

    def end(self) -> None:
        """Note which tensors have changed. Must be called while the fork still exists."""
        assert self._memory is not None
        now = [(tensor, raw, self._memory.now(offset, len(raw))) for tensor, offset, raw in self._lent]
        self._changed = [(tensor, found) for tensor, raw, found in now if found != raw]

    def changed(self, arguments: list[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
        """Return the index among ``arguments`` and the new value of each tensor that has changed."""
        return [
            (number, _tensor(found, tensor.dtype).reshape(tensor.shape))
            for tensor, found in self._changed
            for number, argument in enumerate(arguments)
            if argument is tensor
        ]


def _tensor(raw: bytes, dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:  # a byte other than 0 and 1 would be undefined behaviour
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8) != 0
    return torch.frombuffer(bytearray(raw), dtype=dtype)
