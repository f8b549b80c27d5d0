"""What one submission may use, what is left of it, and the one who looks."""

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from autograder.errors import LimitExceeded
from autograder.grading.sandbox.process_tree import ProcessTree, Usage

MAX_CALLBACKS = 1000
RECENT = 0.25  # seconds, as between two looks during a request
SHORTEST_TIMER = 0.001  # seconds; none at all would end it
MAX_CALLBACK_BYTES = 2**18  # of the tensors handed to one: a check's own functions work on little


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Sizes in bytes, times in seconds.

    CPU time decides, so that a busy machine never changes a grade; code that sleeps instead may do so ``patience``
    times as long.
    """

    memory: int = 2 * 2**30  # beyond a fresh notebook, all processes together; each may map that much more
    gpu_memory: int = 4 * 2**30  # all processes together, the CUDA context included
    file_size: int = 32 * 2**20
    processes: int = 64  # at the same time
    started: int = 1000  # processes and threads, one after the other
    cell_cpu: float = 15.0
    call_cpu: float = 10.0
    retry: float = 2.0  # CPU or waiting, after a crash or time-out and when a total is used up; right answers need less
    total_cpu: float = 240.0  # for the whole submission, whatever starts again
    checking_cpu: float = 60.0  # for the checks themselves: what is returned can be made to be costly to look at
    patience: float = 2.0
    total_idle: float = 60.0
    text: int = 300_000  # characters of output that are kept
    images: int = 10 * 2**20
    restarts: int = 3  # how often a function is forgiven a crash or time-out in its own test before it fails at once
    all_restarts: int = 40  # how often all cells of a submission are


@dataclass
class Budget:
    """What is left of a whole submission's CPU seconds, waiting seconds and room for output."""

    cpu: float
    idle: float
    text: int
    images: int

    @classmethod
    def of(cls, limits: Limits) -> "Budget":
        return cls(limits.total_cpu, limits.total_idle, limits.text, limits.images)

    @property
    def is_spent(self) -> bool:
        """Whether any of the time has run out."""
        return self.cpu <= 0 or self.idle <= 0


@dataclass
class Grace:
    """What one function may still use once the budget is spent: all that a right answer needs, whoever has spent it."""

    cpu: float
    idle: float

    @classmethod
    def of_function(cls, limits: Limits) -> "Grace":
        return cls(limits.call_cpu, limits.retry * (limits.restarts + 1))

    @classmethod
    def of_cells(cls, limits: Limits) -> "Grace":
        """Of all cells together."""
        return cls(limits.total_idle, limits.total_idle)

    def spent(self) -> str:
        """What has run out, or nothing."""
        if self.cpu <= 0:
            return "this notebook has used all the CPU time of a submission"
        return "this notebook has waited as long as a submission may" if self.idle <= 0 else ""


class Watched(Protocol):
    """What is watched: a submission's processes (``None`` where there is no /proc), and the CPU seconds charged so far."""

    tree: ProcessTree | None
    charged: float

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has counted more than it may have."""


class UsageMonitor:
    """Looks at a submission's processes during one request."""

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
        """What was used until the last look is not this request's. With ``counts_threads`` that look is now; else it may be
        a quarter of a second old, and what calls have used since then counts as this one's."""
        self.job, self.cpu_seconds, self.idle_seconds = job, cpu_seconds, idle_seconds
        self.limits, self.budget, self.grace = limits, budget, grace
        self.idle, self.callbacks, self.callback_cpu, self.last = 0.0, 0, 0.0, time.monotonic()
        self.more_threads = 0  # now than at the start, those of more processes among them
        if job.tree is not None:
            used = job.tree.look() if counts_threads else job.tree.recent(RECENT)
            self.budget.cpu -= self._charge(used)
            self._threads = used.threads
        self.start = job.charged

    def look(self) -> None:
        """Called about every quarter of a second while the submission is waited for. Time is charged as CPU time, or as idle
        time when nothing of it wants the CPU; a machine that is too busy to run it charges nothing, and one that is too busy
        to look no more than two looks' time."""
        if self.job.tree is None:
            return
        used, now = self.job.tree.look(), time.monotonic()
        idle = 0.0 if used.runnable else min(now - self.last, 2 * RECENT)
        self.idle, self.last = self.idle + idle, now
        self.more_threads = used.threads - self._threads
        self._spend(self._charge(used), idle)
        self._judge(used)

    def _charge(self, used: Usage) -> float:
        """The CPU seconds that were used since the last look, for whoever is to pay for them."""
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
            raise LimitExceeded("MemoryError", f"it used more than {limits.memory / 2**30:.1f} GB of memory")
        if used.gpu_memory > limits.gpu_memory:
            raise LimitExceeded("MemoryError", f"it used more than {limits.gpu_memory / 2**30:.1f} GB of GPU memory")
        if used.processes > limits.processes:
            raise LimitExceeded("RuntimeError", f"it had more than {limits.processes} processes")
        if used.started > limits.started:
            raise LimitExceeded("RuntimeError", f"it started more than {limits.started} processes and threads")
        if used.cpu - self.start > cpu:
            raise LimitExceeded("TimeoutError", f"it used more than {cpu:g} seconds of CPU time")
        if self.idle > self.idle_seconds:
            raise LimitExceeded("TimeoutError", f"it waited for more than {self.idle_seconds:g} seconds")
        if spent := self.grace.spent():
            raise LimitExceeded("TimeoutError", spent)

    def count_callback(self, size: int) -> None:
        """One more call of a function that the check has lent, with ``size`` bytes of tensors."""
        self.callbacks += 1
        if size > MAX_CALLBACK_BYTES:
            raise LimitExceeded(
                "RuntimeError", f"it called the function it was given with more than {MAX_CALLBACK_BYTES // 2**10} kB"
            )
        if self.callbacks > MAX_CALLBACKS:
            raise LimitExceeded("RuntimeError", f"it called the function it was given more than {MAX_CALLBACKS} times")

    def charge_callback(self, cpu: float, wall: float) -> None:
        """What the given function costs is the submission's time: it has chosen how often, and with what. It was not idle for
        these ``wall`` seconds."""
        self.last += wall
        self.callback_cpu += cpu
        self._spend(cpu)
        if self.callback_cpu > self.cpu_seconds:
            raise LimitExceeded(
                "TimeoutError", f"the function it was given ran for more than {self.cpu_seconds:g} seconds"
            )


@contextlib.contextmanager
def kernel_limit(cpu_seconds: float) -> Iterator[None]:
    """The kernel kills this process if the block uses that much CPU time: a product in the middle of a library hears no
    signal of Python's. The limit before it holds again afterwards.

    A timer and not RLIMIT_CPU, which counts from the process's beginning and in ticks: after minutes of work that count
    and the process's own (`getrusage`) are seconds apart.
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
