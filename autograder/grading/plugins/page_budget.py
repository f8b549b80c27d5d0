"""What the texts of one student may cost whoever makes a page of them. Beyond it they are shown as they were written."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PAGE_SECONDS = 10.0  # of CPU, for the Markdown and the highlighted code of one submission; ours takes a tenth of that
KEY = "seconds_left"  # in a page's resources


def within_budget(page: dict[str, Any], render: Callable[[], str]) -> str | None:
    """What ``render`` makes; ``None`` if the page has had its time, or runs out of it now."""
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
    """Nothing on the way may take it for an error of its own."""


@contextlib.contextmanager
def _at_most(cpu_seconds: float) -> Iterator[None]:
    """Raises ``_TooLong`` in the block; in another thread than the main one signals cannot, and nothing is limited."""
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
