"""Many imports at once, at their fastest."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """For a block of imports. There is nothing to collect in what they make, and looking for it costs up to half of their
    time; it is not looked at later either, so that processes forked from this one share it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
