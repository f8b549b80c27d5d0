"""The trusted grading process: reads tasks as JSON, runs them in parallel, writes one JSON line per result.

Started by `fanout`, so that nbgrader's own process needs no torch and holds nothing a submission talks to.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

from autograder.grading.results import Options, Result, Task
from autograder.grading.sandbox import Sandbox, SandboxError

_sandbox: Sandbox | None = None  # inherited by the forked workers


def main() -> None:
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints to stderr

    def send(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        for line in sys.stdin.buffer:  # one from `fanout`; from `cluster` one per submission, all with the same options
            request = json.loads(line)
            for result in run([Task(**task) for task in request["tasks"]], Options(**request["options"])):
                send({"result": asdict(result)})
            send({"done": True})
    except SandboxError as error:
        send({"failed": str(error)})
    finally:
        if _sandbox is not None:
            _sandbox.close()


def run(tasks: list[Task], options: Options) -> Iterator[Result]:
    """Results as they come. Raises ``SandboxError`` if no sandbox can be started at all."""
    if _sandbox is None:
        _warm_up(options)
    workers = min(options.workers or os.cpu_count() or 1, max(len(tasks), 1))
    unfinished = yield from _pool(tasks, workers)
    for task in unfinished:  # a worker died; one by one, so that it is plain whose submission it was
        lost = yield from _pool([task], 1)
        for victim in lost:
            yield Result(victim.key, problem="the grading process died twice while grading this submission")


def _warm_up(options: Options) -> None:
    global _sandbox
    _sandbox = Sandbox(options.isolate, _device(options.device))  # imports torch while this process does the same
    import torch

    import autograder.grading.judge  # noqa: F401  once, before the workers are forked

    torch.set_num_threads(1)
    _sandbox.wait_ready()


def _die_with_parent() -> None:
    """When whoever started this process is killed, so is this process: nothing outlives a run (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() == 1:
            os._exit(1)


def _judge(task: Task) -> Result:
    from autograder.grading.judge import judge

    return judge(task, _sandbox)


def _pool(tasks: list[Task], workers: int):
    """Run tasks in forked workers; yields results, returns the tasks lost to a broken pool."""
    done: set[str] = set()
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=fork, initializer=_die_with_parent) as pool:
        futures = {pool.submit(_judge, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                result = future.result()
                done.add(result.key)
                yield result
        except BrokenProcessPool:
            pass
    return [task for task in tasks if task.key not in done]


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
