"""Caches what right and known wrong answers give: once for a class, whose students all meet the same inputs."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.utils import _pytree as trees

from autograder.script.question import detached

ROOM = 48 * 2**20  # bytes of cached tensors


class ResultCache:
    """Values and errors by key, up to ``ROOM`` bytes of tensors."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._failed: dict[Hashable, Exception] = {}
        self._room = ROOM

    def recall(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return or raise what ``compute()`` returned or raised when this key was first asked for."""
        if key in self._failed:
            raise self._failed[key].with_traceback(None)  # else it grows each time and keeps its frames alive
        if key not in self._kept:
            try:
                value = detached(compute())
            except Exception as error:
                self._failed[key] = error
                raise
            size = sum(leaf.nbytes for leaf in trees.tree_leaves(value) if isinstance(leaf, torch.Tensor))
            if size > self._room:
                return value
            self._room -= size
            self._kept[key] = value
        return self._kept[key]
