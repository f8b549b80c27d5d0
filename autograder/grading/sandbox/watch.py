"""Decides when to look at a submission's processes while its reply is awaited."""

import random
import time
from collections.abc import Callable

TICK = 0.25  # seconds
CHANCE = random.Random()  # nobody seeds it


class Watch:
    """Calls ``look`` about every quarter of a second while a conversation of any number of frames waits for the peer.
    The peer cannot foresee the moment, so it cannot be busy just then on purpose. ``look`` may raise."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look, self._due = look, _soon()

    def due_in(self, now: float) -> float:
        """Seconds until the next look."""
        return max(0.0, self._due - now)

    def look_if_due(self) -> None:
        """Call ``look`` if it is due."""
        if time.monotonic() >= self._due:
            self._look()
            self._due = _soon()


def _soon() -> float:
    return time.monotonic() + TICK * CHANCE.uniform(0.5, 1.5)
