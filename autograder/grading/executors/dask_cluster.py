"""The same grading run on an existing Dask cluster: one Dask task per submission, JSON text both ways.

The driver (``grade``) alone writes; it needs no torch. A worker (``grade_one``) keeps a warm `service` process, the
same as for a local run, for each of its threads: neither torch nor anything of a submission gets into the Dask worker.
"""

import importlib.metadata
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.grading.executors.client import PACKAGE_ROOT, GradingFailed, environment
from autograder.grading.pending import grader_version
from autograder.grading.messages import Options, Result, Task
from autograder.grading.sandbox.sandbox import why_not_isolated

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 15
NO_WORKERS_SECONDS = 60  # a nanny starts its worker again within a few
IDLE_SECONDS = 300  # how long a worker keeps a service warm that nobody uses
KEPT = "what was graded is kept: run the same command again"


# The driver

def grade(tasks: list[Task], options: Options, on_result: Callable[[Result], None]) -> None:
    """Grade every task on the cluster; results as they come. Raises ``GradingFailed`` if the cluster cannot do it."""
    how, needed = json.dumps(asdict(replace(options, workers=1, scheduler=""))), json.dumps(versions())
    with _connected(options.scheduler) as client:
        _require_fit_workers(client, needed, options.isolate)
        accused = _run(client, tasks, how, needed, on_result)
        for task in accused:  # in flight when workers died; alone, it is plain whose submission it was
            for victim in _run(client, [task], how, needed, on_result):
                on_result(Result(victim.key, problem="workers of the cluster died, again and again, while grading this submission"))


def versions() -> dict[str, str]:
    """What must be the same on driver and workers, so that grades are."""
    return {"course": grader_version()[:12], "Python": "{}.{}".format(*sys.version_info),
            **{name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "numpy")}}


@contextmanager
def _connected(scheduler: str) -> Iterator["Client"]:
    try:
        import distributed
    except ModuleNotFoundError:
        pin = "in this repository, pip install -e '.[cluster]'"
        raise GradingFailed(f"SCHEDULER needs Dask, which is not installed here: {pin}") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="distributed")
    address = _address(scheduler)
    if address.startswith("tls://") and not distributed.Security().tls_client_cert:
        raise GradingFailed(f"{scheduler} wants certificates, and Dask knows none here: name them in ~/.config/dask/tls.yaml (docs/cluster.md)")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False, name="autograder")
    except (OSError, ValueError, TypeError) as error:  # TimeoutError is an OSError
        raise GradingFailed(f"no Dask scheduler answers at {scheduler} ({_short(error)}): start one with `dask scheduler`, "
                            "check the address, and for tls:// the certificates (docs/cluster.md)") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def _address(scheduler: str) -> str:
    """The address, if need be out of a scheduler file."""
    if "://" in scheduler or not (scheduler.endswith(".json") or Path(scheduler).exists()):
        return scheduler
    try:
        return str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
    except FileNotFoundError:
        raise GradingFailed(f"there is no scheduler file {scheduler}: start one with `dask scheduler --scheduler-file {scheduler}`") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise GradingFailed(f"{scheduler} is not a scheduler file of Dask's") from None


def _require_fit_workers(client: "Client", needed: str, isolate: bool) -> None:
    if not client.nthreads():
        raise GradingFailed("the scheduler has no workers: start some, `dask worker ADDRESS --nworkers=-1 --nthreads 1`")
    for address, answer in client.run(unfit, needed, isolate, on_error="return").items():
        if isinstance(answer, Exception):
            raise GradingFailed(f"worker {address} cannot grade ({_short(answer)}): install this version of the course there, "
                                "in the environment that runs `dask worker`")
        if answer:
            raise GradingFailed(f"worker {address}: {answer}")


def _run(client: "Client", tasks: list[Task], how: str, needed: str, came: Callable[[Result], None]) -> list[Task]:
    """Results as they come; returns the tasks in flight when workers died more often than the scheduler allows."""
    from distributed import KilledWorker

    done: queue.SimpleQueue[Future] = queue.SimpleQueue()
    run, accused = uuid.uuid4().hex[:8], []
    waiting = {}
    try:
        for number, task in enumerate(tasks):
            name = f"autograder-{run}-{number}"  # says nothing about the student to whoever watches the dashboard
            future = client.submit(grade_one, json.dumps(asdict(task)), how, needed, key=name, pure=False)
            waiting[future] = task
            future.add_done_callback(done.put)
        while waiting:
            future = _next(client, done, len(waiting))
            try:
                answer = json.loads(future.result(timeout=CONNECT_SECONDS))
            except KilledWorker:
                accused.append(waiting.pop(future))
                continue
            except TimeoutError:  # its worker died with the result; it is computed again
                if not future.done():
                    future.add_done_callback(done.put)
                    continue
                raise GradingFailed(f"a result did not arrive from the cluster; {KEPT}") from None
            except Exception as error:  # the scheduler went away, or a worker joined that has another course
                raise GradingFailed(f"the cluster failed ({_short(error)}); {KEPT}") from None
            if "failed" in answer:
                raise GradingFailed(f"{answer['failed']}; {KEPT}")
            waiting.pop(future)
            future.release()
            came(Result(**answer["result"]))
    finally:
        if waiting and client.status == "running":  # Ctrl-C, or a failure
            client.cancel(list(waiting), force=True)
    return accused


def _next(client: "Client", done: "queue.SimpleQueue[Future]", left: int) -> "Future":
    """The next future that ended; raises ``GradingFailed`` when nobody is left who could end one."""
    alone_since = None
    while True:
        try:
            return done.get(timeout=2)
        except queue.Empty:
            pass
        try:
            workers = client.nthreads() if client.status == "running" else None
        except Exception:
            workers = None
        if workers is None:
            raise GradingFailed(f"the Dask scheduler is gone, with {left} submissions not graded; {KEPT}")
        alone_since = None if workers else alone_since or time.monotonic()
        if alone_since and time.monotonic() - alone_since > NO_WORKERS_SECONDS:
            raise GradingFailed(f"the cluster has no workers left, and {left} submissions are not graded; start workers; {KEPT}")


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


# A worker

def unfit(needed: str, isolate: bool) -> str:
    """The empty string if this worker grades as the driver would, else what is wrong here and what to do."""
    here, wanted = versions(), json.loads(needed)
    differing = [f"{name} {here[name]} instead of {wanted[name]}" for name in wanted if here.get(name) != wanted[name]]
    if differing:
        return (f"another version than where you started the run ({', '.join(differing)}): install the same course and packages there, "
                "and start the worker again")
    return why_not_isolated() if isolate else ""


def grade_one(task: str, options: str, needed: str) -> str:
    """What a Dask worker does for one submission: JSON in, JSON out."""
    how = Options(**json.loads(options))
    try:
        if problem := _unfit_once(needed, how.isolate):  # a worker that joined after the run had begun
            raise GradingFailed(problem)
        return json.dumps({"result": _grade(task, how)})
    except GradingFailed as error:
        return json.dumps({"failed": f"worker on {_host()}: {error}"})


_fit: set[tuple[str, bool]] = set()


def _unfit_once(needed: str, isolate: bool) -> str:
    problem = "" if (needed, isolate) in _fit else unfit(needed, isolate)
    if not problem:
        _fit.add((needed, isolate))
    return problem


def _grade(task: str, options: Options) -> dict:
    for _ in range(2):
        service = _take(options)
        try:
            result = service.grade(task, options)
        except _ServiceDied:
            service.close()
            continue
        except BaseException:
            service.close()
            raise
        if result["problem"]:  # perhaps of its sandbox: the next submission gets a fresh one
            service.close()
        else:
            _give_back(service)
        return result
    return asdict(Result(json.loads(task)["key"], problem="the grading process died twice while grading this submission"))


class _ServiceDied(Exception):
    pass


class _Service:
    """A trusted grading process kept warm: a line of JSON per submission, its result, and the next."""

    def __init__(self, options: Options) -> None:
        self.kind = _kind(options)
        self.idle_since = 0.0
        # The process dies with the thread that started it: that must be one which lives as long as this worker.
        self.process = _starter.submit(
            subprocess.Popen, [sys.executable, "-m", "autograder.grading.executors.grader_process", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(), cwd=PACKAGE_ROOT, start_new_session=True).result()

    def grade(self, task: str, options: Options) -> dict:
        request = f'{{"task": {task}, "options": {json.dumps(asdict(options))}}}\n{{"end": true}}\n'
        result = None
        try:
            self.process.stdin.write(request.encode())
            self.process.stdin.flush()
            for line in self.process.stdout:
                message = json.loads(line)
                if "failed" in message:
                    raise GradingFailed(message["failed"])
                if "done" in message and result is not None:
                    return result
                result = message.get("result", result)
        except OSError:
            pass
        raise _ServiceDied

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def _kind(options: Options) -> tuple:
    """What a service can not change while it lives."""
    return options.isolate, options.device, sorted(options.limits.items())


_starter = ThreadPoolExecutor(1, thread_name_prefix="autograder-starter")
_idle: list[_Service] = []
_lock = threading.Lock()


def _take(options: Options) -> _Service:
    with _lock:
        for service in _idle:
            if service.kind == _kind(options) and service.process.poll() is None:
                _idle.remove(service)
                return service
    return _Service(options)


def _give_back(service: _Service) -> None:
    service.idle_since = time.monotonic()
    with _lock:
        _idle.append(service)
    timer = threading.Timer(IDLE_SECONDS + 1, _close_idle)
    timer.daemon = True
    timer.start()


def _close_idle() -> None:
    with _lock:
        old = [service for service in _idle if time.monotonic() - service.idle_since > IDLE_SECONDS]
        for service in old:
            _idle.remove(service)
    for service in old:
        service.close()


def _host() -> str:
    import socket

    return socket.gethostname()
