"""The time that rendering one student's texts for a page may take. Texts beyond it are shown as they were written."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PAGE_SECONDS = 10.0  # CPU time for one submission's Markdown and highlighted code; the course's own takes a tenth
KEY = "seconds_left"  # in a page's resources


def within_budget(page: dict[str, Any], render: Callable[[], str]) -> str | None:
    """Return what ``render`` makes; ``None`` if the page has used up its time, or recursion goes too deep."""
    left = page.get(KEY, PAGE_SECONDS)
    if left <= 0:
        return None
    start = time.process_time()
    try:
        with _at_most(left):
            return render()
    except _TooLong:
        left = 0.0
        return None
    except RecursionError:
        return None
    finally:
        page[KEY] = left - (time.process_time() - start)


class _TooLong(BaseException):
    """The time is up. No ``except Exception`` on the way may catch it."""


@contextlib.contextmanager
def _at_most(cpu_seconds: float) -> Iterator[None]:
    """Raise ``_TooLong`` in a block that takes longer. Signals work only in the main thread: others have no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_long(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
