"""Faster imports of many modules at once."""

import contextlib
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

GIVES_WAY = 5  # nice value: a third of the CPU time of a thread at 0


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off for a block of imports: it takes up to half of their time and finds nothing.
    Later it skips the imported objects too, so that processes forked from this one share their memory."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def giving_way(name: str) -> ModuleType:
    """Import a module at low priority, so that processes that were already started, and take longer, go first.

    Only Linux has thread priorities. The import gets its own thread, since nobody may raise a priority again."""
    if not sys.platform.startswith("linux"):
        return importlib.import_module(name)
    failures: list[BaseException] = []

    def load() -> None:
        with contextlib.suppress(OSError):  # if this is not allowed, all threads stay equal
            nice = os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        try:
            importlib.import_module(name)
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=load, daemon=True)  # not waited for after an interrupt
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return sys.modules[name]
