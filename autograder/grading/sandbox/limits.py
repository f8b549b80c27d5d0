"""Limits of one submission, the budget that remains, and its monitor."""

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from autograder.errors import StudentError
from autograder.grading.sandbox.process_tree import ProcessTree, Usage

MAX_CALLBACKS = 1000
RECENT = 0.25  # seconds; the usual interval between two looks during a request
SHORTEST_TIMER = 0.001  # seconds; zero would switch the timer off
MAX_CALLBACK_BYTES = 2**18  # of the tensors passed to one callback: a check's own functions need little


@dataclass(frozen=True)
class Limits:
    """The limits of one submission, with sizes in bytes and times in seconds.

    CPU time counts, so that a busy machine never changes a grade; code that sleeps may take ``patience`` times as long.
    """

    memory: int = 2 * 2**30  # beyond a fresh notebook's, all processes together; also the address space each may add
    gpu_memory: int = 4 * 2**30  # all processes together, the CUDA context included
    file_size: int = 32 * 2**20
    processes: int = 64  # at the same time
    started: int = 1000  # processes in one fork, and the threads before the last of them
    cell_cpu: float = 15.0
    call_cpu: float = 10.0
    retry: float = 2.0  # CPU or idle, after a crash or time-out or once the budget is spent; right answers need less
    total_cpu: float = 240.0  # for the whole submission, restarts included
    checking_cpu: float = 60.0  # for the checks themselves: a student can return values that are costly to check
    patience: float = 2.0
    total_idle: float = 60.0
    text: int = 300_000  # characters of output that are kept
    images: int = 10 * 2**20
    restarts: int = 3  # crashes or time-outs that a function may have after its first in its own test
    all_restarts: int = 40  # the same for all cells of a submission together


@dataclass
class Budget:
    """The CPU seconds, idle seconds and room for output that a whole submission has left."""

    cpu: float
    idle: float
    text: int
    images: int

    @classmethod
    def of(cls, limits: Limits) -> "Budget":
        return cls(limits.total_cpu, limits.total_idle, limits.text, limits.images)

    @property
    def is_spent(self) -> bool:
        """Whether the CPU seconds or the idle seconds have run out."""
        return self.cpu <= 0 or self.idle <= 0


@dataclass
class Grace:
    """The time that one function still has once the budget is spent, by whichever code: enough for a right answer."""

    cpu: float
    idle: float

    @classmethod
    def of_function(cls, limits: Limits) -> "Grace":
        return cls(limits.call_cpu, limits.retry * (limits.restarts + 1))

    @classmethod
    def of_cells(cls, limits: Limits) -> "Grace":
        """Return the grace that all cells share."""
        return cls(limits.total_idle, limits.total_idle)

    def spent(self) -> str:
        """Return a message about what has run out, or an empty string."""
        if self.cpu <= 0:
            return "this notebook has used all the CPU time of a submission"
        return "this notebook has waited as long as a submission may" if self.idle <= 0 else ""


class Watched(Protocol):
    """A submission to watch: its processes (``None`` where there is no /proc), and the CPU seconds charged so far."""

    tree: ProcessTree | None
    charged: float

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed one of its processes at its memory limit."""


class UsageMonitor:
    """Holds a submission's processes to their limits during one request."""

    def __init__(
        self,
        job: Watched,
        cpu_seconds: float,
        idle_seconds: float,
        limits: Limits,
        budget: Budget,
        grace: Grace,
        counts_threads: bool = False,
    ) -> None:
        """Do not charge this request for what was used before the last look. With ``counts_threads`` that look is now;
        otherwise it may be a quarter of a second old, and what calls have used since then counts for this request."""
        self.job, self.cpu_seconds, self.idle_seconds = job, cpu_seconds, idle_seconds
        self.limits, self.budget, self.grace = limits, budget, grace
        self.idle, self.callbacks, self.callback_cpu, self.last = 0.0, 0, 0.0, time.monotonic()
        self.more_threads = 0  # threads now minus threads at the start, in all processes
        if job.tree is not None:
            used = job.tree.look() if counts_threads else job.tree.recent(RECENT)
            self.budget.cpu -= self._charge(used)
            self._threads = used.threads
        self.start = job.charged

    def look(self) -> None:
        """Charge the time since the last look, about every quarter of a second; raise ``StudentError`` above a limit.
        Time is idle only if no process wants the CPU, so a machine too busy to run the submission charges nothing. A
        look charges at most two intervals of idle time, because a busy machine may look late."""
        if self.job.tree is None:
            return
        used, now = self.job.tree.look(), time.monotonic()
        idle = 0.0 if used.runnable else min(now - self.last, 2 * RECENT)
        self.idle, self.last = self.idle + idle, now
        self.more_threads = used.threads - self._threads
        self._spend(self._charge(used), idle)
        self._judge(used)

    def _charge(self, used: Usage) -> float:
        """Return the CPU seconds used since the last look, and note them as charged."""
        new = max(0.0, used.cpu - self.job.charged)
        self.job.charged += new
        return new

    def _spend(self, cpu: float, idle: float = 0.0) -> None:
        if self.budget.is_spent:
            self.grace.cpu -= cpu
            self.grace.idle -= idle
        self.budget.cpu -= cpu
        self.budget.idle -= idle

    def _judge(self, used: Usage) -> None:
        limits, cpu = self.limits, self.cpu_seconds
        if used.memory > limits.memory or self.job.ran_out_of_memory():
            raise StudentError(("MemoryError",), f"it used more than {limits.memory / 2**30:.1f} GB of memory")
        if used.gpu_memory > limits.gpu_memory:
            raise StudentError(("MemoryError",), f"it used more than {limits.gpu_memory / 2**30:.1f} GB of GPU memory")
        if used.processes > limits.processes:
            raise StudentError(("RuntimeError",), f"it had more than {limits.processes} processes")
        if used.started > limits.started:
            raise StudentError(("RuntimeError",), f"it started more than {limits.started} processes and threads")
        if used.cpu - self.start > cpu:
            raise StudentError(("TimeoutError",), f"it used more than {cpu:g} seconds of CPU time")
        if self.idle > self.idle_seconds:
            raise StudentError(("TimeoutError",), f"it waited for more than {self.idle_seconds:g} seconds")
        if spent := self.grace.spent():
            raise StudentError(("TimeoutError",), spent)

    def count_callback(self, size: int) -> None:
        """Count one call of a function that the check handed out, with ``size`` bytes of tensors."""
        self.callbacks += 1
        if size > MAX_CALLBACK_BYTES:
            raise StudentError(
                ("RuntimeError",),
                f"it called the function it was given with more than {MAX_CALLBACK_BYTES // 2**10} kB",
            )
        if self.callbacks > MAX_CALLBACKS:
            raise StudentError(
                ("RuntimeError",), f"it called the function it was given more than {MAX_CALLBACKS} times"
            )

    def charge_callback(self, cpu: float, wall: float) -> None:
        """Charge the submission for a callback, because it chose how often to call and with what. It was not idle for
        these ``wall`` seconds."""
        self.last += wall
        self.callback_cpu += cpu
        self._spend(cpu)
        if self.callback_cpu > self.cpu_seconds:
            raise StudentError(
                ("TimeoutError",), f"the function it was given ran for more than {self.cpu_seconds:g} seconds"
            )


@contextlib.contextmanager
def kernel_limit(cpu_seconds: float) -> Iterator[None]:
    """Have the kernel kill this process if the block uses that much CPU time: Python cannot handle a signal while a
    library computes. Afterwards the previous limit holds again.

    This is a timer and not RLIMIT_CPU, which counts from the start of the process and in ticks: after minutes of work
    that count is seconds away from `getrusage`.
    """
    before, _ = signal.getitimer(signal.ITIMER_PROF)
    began = time.process_time()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, min(before, cpu_seconds) if before else cpu_seconds)
    try:
        yield
    finally:
        left = max(before - (time.process_time() - began), SHORTEST_TIMER) if before else 0.0
        signal.setitimer(signal.ITIMER_PROF, left)
