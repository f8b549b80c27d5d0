"""The trusted grading process: reads tasks as JSON, runs them in parallel, writes one JSON line per result.

Started by `fanout`, so that nbgrader's own process needs no torch and holds nothing a submission talks to.
"""

import ctypes
import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

from autograder.grading.results import Options, Result, Task
from autograder.grading.sandbox import Limits, Sandbox, SandboxError

JUDGE_MEMORY = 4 * 2**30  # bytes beyond what a judge begins with: what is compared is small
ON_GPU = 4  # submissions at the same time: each has a CUDA context of its own, half a gigabyte
_sandbox: Sandbox | None = None  # inherited by the forked judges


def main() -> None:
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # by way of `finally`
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints to stderr

    def send(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        for line in sys.stdin.buffer:  # from `fanout` a hundred submissions each, from `cluster` one; the same options
            request = json.loads(line)
            options = Options(**request["options"])
            if "expect" in request:
                try:
                    _warm_up({request["expect"]}, options)
                except (SandboxError, OSError):  # said when there is somebody to grade
                    cool_down()
                continue
            for result in run([Task(**task) for task in request["tasks"]], options):
                send({"result": asdict(result)})
            send({"done": True})
    except SandboxError as error:
        send({"failed": str(error)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is on its way
        cool_down()


def run(tasks: list[Task], options: Options) -> Iterator[Result]:
    """Results as they come. Raises ``SandboxError`` if no sandbox can be started at all.

    Where something failed that is not the student's, the submission is tried once more in a new sandbox, alone.
    """
    workers = min(options.workers or os.cpu_count() or 1, max(len(tasks), 1))
    if _device(options.device) == "cuda":
        workers = min(workers, ON_GPU)
    failed: dict[str, str] = {}
    assignments = {task.assignment for task in tasks}
    _warm_up(assignments, options)
    yield from _pool(tasks, workers, failed)
    if not failed:
        return
    cool_down()
    _warm_up(assignments, options)
    for task in [task for task in tasks if task.key in failed]:
        failed.clear()
        yield from _pool([task], 1, failed)
        yield from (Result(key, problem=reason) for key, reason in failed.items())


def _warm_up(assignments: Collection[str], options: Options) -> None:
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
    for assignment in assignments:
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


def _pool(tasks: list[Task], workers: int, failed: dict[str, str]) -> Iterator[Result]:
    """Run tasks in forked judges. Tasks that the sandbox or a judge failed go to ``failed``, with the reason."""
    failed |= dict.fromkeys((task.key for task in tasks), "the grading process died while grading this submission")
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=fork, initializer=_begin_to_judge, initargs=(os.getpid(),)) as pool:
        futures = {pool.submit(_judge, task): task for task in tasks}
        for future in as_completed(list(futures)):
            key = futures.pop(future).key
            try:
                result = future.result()
            except BrokenProcessPool:  # a judge died; nobody knows whose submission it was
                return
            except SandboxError as error:
                failed[key] = f"the sandbox failed: {error}"
            except Exception as error:  # a mistake of the grader's own: it may cost nobody else a grade
                failed[key] = f"the grader failed on this submission ({type(error).__name__}: {error}); please report it"
            else:
                del failed[key]
                yield result


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    if sys.platform.startswith("linux") and not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))):
        return "cpu"  # known before torch is imported, so that the sandbox imports it at the same time
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
