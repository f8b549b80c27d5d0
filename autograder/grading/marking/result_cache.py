"""What right and known wrong answers give, computed once for a class: all its students meet the same inputs."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.utils import _pytree as trees

from autograder.script.question import detached

ROOM = 48 * 2**20  # bytes of tensors that are kept


class ResultCache:
    """Values, and errors, by what they are of."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._failed: dict[Hashable, Exception] = {}
        self._room = ROOM

    def recall(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """What ``compute()`` returned or raised when it was first asked for."""
        if key in self._failed:
            raise self._failed[key].with_traceback(None)  # or it would grow with each time, and hold what it passed
        if key not in self._kept:
            try:
                value = detached(compute())
            except Exception as error:
                self._failed[key] = error
                raise
            return self._keep(key, value)
        return self._kept[key]

    def _keep(self, key: Hashable, value: Any) -> Any:
        if _bytes(value) <= self._room:
            self._room -= _bytes(value)
            self._kept[key] = value
        return value


class NoCache(ResultCache):
    """Keeps nothing."""

    def recall(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        return compute()


def _bytes(value: Any) -> int:
    return sum(leaf.nbytes for leaf in trees.tree_leaves(value) if isinstance(leaf, torch.Tensor))
