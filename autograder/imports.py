"""Many imports at once, at their fastest."""

import contextlib
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

GIVES_WAY = 5  # nice; a third of the CPU time of one with 0


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


def giving_way(name: str) -> ModuleType:
    """Import a module while others are being waited for: what has been started, and takes longer, goes first.

    Only Linux knows priorities of threads, and only the importing one gets a lower one: nobody may take it back."""
    if not sys.platform.startswith("linux"):
        return importlib.import_module(name)
    failures: list[BaseException] = []

    def load() -> None:
        with contextlib.suppress(OSError):  # where it is not allowed, all are equal
            nice = os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        try:
            importlib.import_module(name)
        except BaseException as error:  # for whoever asked for it
            failures.append(error)

    thread = threading.Thread(target=load, daemon=True)  # not waited for after an interrupt
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return sys.modules[name]
