"""The trusted grading process: reads tasks as JSON, runs them in parallel, writes one JSON line per result.

Started by `fanout`, so that nbgrader's own process needs no torch and holds nothing a submission talks to.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial

from autograder.grading.messages import Options, Result, Task
from autograder.grading.sandbox.sandbox import Limits, Sandbox, SandboxError

JUDGE_MEMORY = 4 * 2**30  # bytes beyond what a judge begins with: what is compared is small
ON_GPU = 4  # submissions at the same time: each has a CUDA context of its own, half a gigabyte
_sandbox: Sandbox | None = None  # inherited by the forked judges


def main() -> None:
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # by way of `finally`
    answers, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)  # whatever prints, prints to stderr

    def send(message: dict) -> None:
        with lock, contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
            answers.write(json.dumps(message) + "\n")
            answers.flush()

    judges = Judges(lambda result: send({"result": asdict(result)}))
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "expect" in request:
                judges.expect(request["expect"], Options(**request["options"]))
            elif "task" in request:
                judges.grade(Task(**request["task"]), Options(**request["options"]))
            else:
                judges.settle()
                send({"done": True})
    except SandboxError as error:
        send({"failed": str(error)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is on its way
        judges.stop()
        cool_down()


class Judges:
    """Processes that grade submissions side by side, forked from this one; ``on_result`` is called as results come.

    Where something failed that is not the student's, the submission is tried once more in a new sandbox, alone.
    """

    def __init__(self, on_result: Callable[[Result], None]) -> None:
        self._on_result = on_result
        self._options: Options | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._room = threading.Semaphore(0)  # for tasks that wait or are in work
        self._failed: dict[str, tuple[Task, str]] = {}  # with the reason

    def expect(self, assignment: str, options: Options) -> None:
        """Prepare for submissions of ``assignment``."""
        try:
            _warm_up(assignment, options)
        except (SandboxError, OSError):  # said when there is somebody to grade
            cool_down()

    def grade(self, task: Task, options: Options) -> None:
        """Returns as soon as there is room for another one. Raises ``SandboxError`` if no sandbox can be started at all."""
        if self._failed or options != self._options:
            self.settle()
        self._options = options
        try:
            self._submit(task)
        except BrokenProcessPool:
            self.settle()
            self._submit(task)
        self._room.acquire()

    def settle(self) -> None:
        """Returns when everything has its result."""
        self._close()
        if not self._failed:
            return
        again, self._failed = self._failed, {}
        cool_down()
        for task, _ in again.values():
            self._submit(task, workers=1)
            self._close()
            if self._failed:
                self._on_result(Result(task.key, problem=self._failed.pop(task.key)[1]))
                cool_down()

    def stop(self) -> None:
        """Begin nothing more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, task: Task, workers: int = 0) -> None:
        if self._pool is None:
            _warm_up(task.assignment, self._options)
            workers = workers or self._options.workers or os.cpu_count() or 1
            if _device(self._options.device) == "cuda":
                workers = min(workers, ON_GPU)
            self._pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"),
                                             initializer=_begin_to_judge, initargs=(os.getpid(),))
            self._room = threading.Semaphore(2 * workers)  # none waits for the next line to be read
        self._pool.submit(_judge, task).add_done_callback(partial(self._came, task, self._room))

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _came(self, task: Task, room: threading.Semaphore, future: Future) -> None:
        try:
            result = future.result()
        except BrokenProcessPool:  # a judge died; nobody knows whose submission it was
            self._failed[task.key] = task, "the grading process died while grading this submission"
        except SandboxError as error:
            self._failed[task.key] = task, f"the sandbox failed: {error}"
        except Exception as error:  # a mistake of the grader's own: it may cost nobody else a grade
            self._failed[task.key] = task, f"the grader failed on this submission ({type(error).__name__}: {error}); please report it"
        else:
            self._on_result(result)
        room.release()


def _warm_up(assignment: str, options: Options) -> None:
    global _sandbox
    wanted = (options.isolate, _device(options.device))
    if _sandbox is not None and (_sandbox.isolate, _sandbox.device) != wanted:
        cool_down()
    if _sandbox is not None:
        _sandbox.limits = Limits(**options.limits)
        return
    _sandbox = Sandbox(*wanted, Limits(**options.limits))
    import torch  # while the fork server does the same

    import autograder.grading.judge  # noqa: F401  once, before the judges are forked
    from autograder.checks import prepare

    torch.set_num_threads(1)
    prepare(assignment)
    _sandbox.wait_ready()


def cool_down() -> None:
    """End the sandbox and with it everything it started."""
    global _sandbox
    if _sandbox is not None:
        _sandbox.close()
        _sandbox = None


def _die_with(parent: int) -> None:
    """When the process that started this one is killed, so is this one: nothing outlives a run (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it is gone already
            os._exit(1)


def _begin_to_judge(parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(parent)
    if os.path.exists("/proc/self/statm") and _sandbox.device == "cpu":  # CUDA reserves address space without bound
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + JUDGE_MEMORY, resource.RLIM_INFINITY))


def _judge(task: Task) -> Result:
    from autograder.grading.judge import judge

    return judge(task, _sandbox)


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    if sys.platform.startswith("linux") and not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))):
        return "cpu"  # known before torch is imported, so that the sandbox imports it at the same time
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
