"""Judges on this machine: processes forked from the grading process that work in parallel and share one sandbox."""

import ctypes
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from autograder.errors import SandboxError
from autograder.grading.messages import Answer, Failure, OnAnswer, Options, Task, usual_workers
from autograder.grading.sandbox.limits import Limits, kernel_limit
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.imports import importing

JUDGE_MEMORY = 4 * 2**30  # bytes beyond what a judge begins with: the values that it compares are small
MARGIN = 30.0  # CPU seconds for what a judge does besides checking
ON_GPU = 4  # submissions at the same time: each has its own CUDA context of half a gigabyte
GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
PR_SET_PDEATHSIG = 1
GARBAGE = (5000, 10, 10)  # thresholds of garbage collection: a judge keeps many objects and makes few cycles
_sandbox: Sandbox | None = None  # inherited by the forked judges


class JudgePool:
    """Processes that grade submissions in parallel; ``on_answer`` is called with each answer as it comes.

    If grading fails through no fault of the student, the submission is tried once more, alone, in a new sandbox.
    """

    def __init__(self, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer
        self._options: Options | None = None
        self._assignment = ""
        self._pool: ProcessPoolExecutor | None = None
        self._room, self._places = threading.Semaphore(0), 0  # for tasks that are waiting or being graded
        self._failed: dict[str, tuple[Task, str]] = {}  # by key, with the reason

    def prestart(self, assignment: str, options: Options) -> None:
        """Prepare for submissions of ``assignment``."""
        try:
            _open_sandbox(assignment, options)
        except (SandboxError, OSError):  # `grade` reports it
            close_sandbox()

    def grade(self, task: Task, options: Options) -> None:
        """Submit a task, and wait for room for another one. Raises ``SandboxError`` if no sandbox can be started."""
        if self._failed or (task.assignment, options) != (self._assignment, self._options):
            self.drain()
        try:
            self._submit(task, options)
        except BrokenProcessPool:
            self.drain()
            self._submit(task, options)
        self._room.acquire()

    def drain(self) -> None:
        """Wait until every task has its answer, after a second try if need be, and end the judges."""
        self._close()
        if not self._failed or self._options is None:
            return
        again, self._failed = self._failed, {}
        close_sandbox()
        for task, _ in again.values():
            self._submit(task, self._options, workers=1)
            self._close()
            if self._failed:
                self._on_answer(Failure(task.key, self._failed.pop(task.key)[1]))
                close_sandbox()

    def settle(self) -> None:
        """Wait until every task has its answer. Unless one failed, the judges stay, with their caches."""
        for _ in range(self._places):
            self._room.acquire()
        for _ in range(self._places):
            self._room.release()
        if self._failed:
            self.drain()

    def cancel(self) -> None:
        """Begin nothing more and kill the judges; the next run grades what they were working on. Otherwise they might
        wait for a submission that never ends, or for a queue that nobody fills any more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for judge in multiprocessing.active_children():
                judge.kill()

    def _submit(self, task: Task, options: Options, workers: int = 0) -> None:
        self._assignment, self._options = task.assignment, options
        if self._pool is None:
            sandbox = _open_sandbox(task.assignment, options)
            _write_scripts(task, sandbox)  # while the fork server still imports
            sandbox.wait_ready()
            workers = workers or options.workers or usual_workers()
            if _device(options.device) == "cuda":
                workers = min(workers, ON_GPU)
            self._pool = ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_begin_to_judge,
                initargs=(os.getpid(),),
            )
            self._places = 2 * workers  # so that no judge waits for the next task to be read
            self._room = threading.Semaphore(self._places)
        self._pool.submit(_judge, task).add_done_callback(partial(self._on_done, task, self._room))

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _stop_feeding(self) -> None:
        """Close the reading end of a broken pool's queue, so that writing to it fails. Otherwise older Pythons, such as
        Debian 12's 3.11.2, would write a long task to it forever (github.com/python/cpython/issues/94777)."""
        queue: Any = getattr(self._pool, "_call_queue", None)
        if queue is not None:
            queue._reader.close()

    def _on_done(self, task: Task, room: threading.Semaphore, future: Future[Answer]) -> None:
        try:
            answer = future.result()
        except BrokenProcessPool:  # a judge died; it is unknown on which submission
            self._stop_feeding()
            why = "the process that judged this submission died (killed for its CPU time or memory)"
        except SandboxError as error:
            why = f"the sandbox failed: {error}"
        except Exception as error:  # a bug in the grader: it must cost nobody else a grade
            why = f"the grader failed on this submission ({type(error).__name__}: {error}); please report it"
        else:
            why = ""
            self._on_answer(answer)
        if why:
            self._failed[task.key] = task, why
        room.release()


def _open_sandbox(assignment: str, options: Options) -> Sandbox:
    """Open the sandbox for these options, and import what its judges need, once, before they are forked."""
    global _sandbox
    wanted = (options.isolate, _device(options.device))
    if _sandbox is not None and (_sandbox.isolate, _sandbox.device) != wanted:
        close_sandbox()
    if _sandbox is None:
        _sandbox = Sandbox(*wanted)
    _sandbox.limits = Limits(**options.limits)
    with importing():
        import torch  # while the fork server does the same

        from autograder.grading.marking.hidden_tests import prepare

        prepare(assignment)
    torch.set_num_threads(1)
    return _sandbox


def _write_scripts(task: Task, sandbox: Sandbox) -> None:
    """Write the hidden tests once for all judges."""
    from autograder.grading.marking.hidden_tests import write_scripts

    if sandbox.device != "cuda":  # CUDA is not used before the judges are forked
        write_scripts(task.assignment, task.seed, sandbox.device)


def close_sandbox() -> None:
    """End the sandbox and with it everything it started."""
    global _sandbox
    if _sandbox is not None:
        _sandbox.close()
        _sandbox = None


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its ``parent`` dies, so that nothing outlives a run (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)


def _begin_to_judge(parent: int) -> None:
    gc.set_threshold(*GARBAGE)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent)
    is_bounded = _sandbox is not None and _sandbox.device != "cuda"  # CUDA reserves address space without bound
    if is_bounded and os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + JUDGE_MEMORY, resource.RLIM_INFINITY))


def _judge(task: Task) -> Answer:
    from autograder.grading.marking.judge import judge

    if _sandbox is None:
        raise SandboxError("it was closed before this submission began")
    with kernel_limit(_sandbox.limits.checking_cpu + MARGIN):  # a killed judge's tasks are tried once more, alone
        return judge(task, _sandbox)


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    if sys.platform.startswith("linux") and not any(map(os.path.exists, GPU_DEVICES)):
        return "cpu"  # known without torch, so that the sandbox can import it at the same time
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
