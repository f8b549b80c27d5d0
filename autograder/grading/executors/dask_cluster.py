"""The same grading run on an existing Dask cluster: one Dask task per submission, JSON text both ways.

The driver (``grade``) alone writes; it needs no torch. A worker (``grade_one``) keeps a warm grading process, the
same as for a local run, for each of its threads: neither torch nor anything of a submission gets into the Dask worker.
"""

import importlib.metadata
import itertools
import json
import logging
import queue
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.errors import GradingFailed
from autograder.grading.executors.start import end_grader, start_grader
from autograder.grading.messages import Failure, OnAnswer, Options, Result, Task
from autograder.grading.pending import grader_version
from autograder.grading.sandbox.bubblewrap import why_not_isolated

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 15
NO_WORKERS_SECONDS = 60  # a nanny starts its worker again within a few
AHEAD = 500  # submissions that the cluster has at a time: a large class fills neither the scheduler's memory nor ours
IDLE_SECONDS = 300  # how long a worker keeps a service warm that nobody uses
KEPT = "what was graded is kept: run the same command again"


# The driver


def grade(tasks: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
    """Grade every task on the cluster; results as they come. Raises ``GradingFailed`` if the cluster cannot do it."""
    how, needed = json.dumps(asdict(replace(options, workers=1, scheduler=""))), json.dumps(versions())
    with _connected(options.scheduler) as client:
        _require_fit_workers(client, needed, options.isolate)
        accused = _run(client, tasks, how, needed, on_answer)
        for task in accused:  # in flight when workers died; alone, it is plain whose submission it was
            for victim in _run(client, [task], how, needed, on_answer):
                on_answer(
                    Failure(victim.key, "workers of the cluster died, again and again, while grading this submission")
                )


def versions() -> dict[str, str]:
    """What must be the same on driver and workers, so that grades are."""
    return {
        "course": grader_version()[:12],
        "Python": "{}.{}".format(*sys.version_info),
        **{name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "numpy")},
    }


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
    if address.startswith("tls://") and not getattr(distributed.Security(), "tls_client_cert", None):
        raise GradingFailed(
            f"{scheduler} wants certificates, and Dask knows none here: name them in ~/.config/dask/tls.yaml (docs/cluster.md)"
        )
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False, name="autograder")
    except (OSError, ValueError, TypeError) as error:  # TimeoutError is an OSError
        raise GradingFailed(
            f"no Dask scheduler answers at {scheduler} ({_short(error)}): start one with `dask scheduler`, "
            "check the address, and for tls:// the certificates (docs/cluster.md)"
        ) from None
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
        raise GradingFailed(
            f"there is no scheduler file {scheduler}: start one with `dask scheduler --scheduler-file {scheduler}`"
        ) from None
    except (OSError, ValueError, TypeError, KeyError):
        raise GradingFailed(f"{scheduler} is not a scheduler file of Dask's") from None


def _require_fit_workers(client: "Client", needed: str, isolate: bool) -> None:
    if not client.nthreads():
        raise GradingFailed(
            "the scheduler has no workers: start some, `dask worker ADDRESS --nworkers=-1 --nthreads 1`"
        )
    for address, answer in client.run(unfit, needed, isolate, on_error="return").items():
        if isinstance(answer, Exception):
            raise GradingFailed(
                f"worker {address} cannot grade ({_short(answer)}): install this version of the course there, "
                "in the environment that runs `dask worker`"
            )
        if answer:
            raise GradingFailed(f"worker {address}: {answer}")


def _run(client: "Client", tasks: Iterable[Task], how: str, needed: str, on_answer: OnAnswer) -> list[Task]:
    """Results as they come, and tasks taken as there is room for them.

    Returns the tasks in flight when workers died more often than the scheduler allows.
    """
    from distributed import KilledWorker

    done: queue.SimpleQueue[Future[str]] = queue.SimpleQueue()
    run = uuid.uuid4().hex[:8]
    accused: list[Task] = []
    waiting: dict[Future[str], Task] = {}
    coming = enumerate(tasks)
    try:
        while True:
            for number, task in itertools.islice(coming, AHEAD - len(waiting)):
                name = f"autograder-{run}-{number}"  # says nothing about the student to whoever watches the dashboard
                future = _submit(client, name, json.dumps(task.to_json()), how, needed)
                waiting[future] = task
                future.add_done_callback(done.put)
            if not waiting:
                return accused
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
            on_answer(Result(**answer["result"]) if "result" in answer else Failure(**answer["failure"]))
    finally:
        if waiting and client.status == "running":  # Ctrl-C, or a failure
            client.cancel(list(waiting), force=True)


def _submit(client: "Client", name: str, *arguments: str) -> "Future[str]":
    try:
        return client.submit(grade_one, *arguments, key=name, pure=False)
    except Exception as error:  # the scheduler went away in the middle of the run
        raise GradingFailed(f"the cluster failed ({_short(error)}); {KEPT}") from None


def _next(client: "Client", done: "queue.SimpleQueue[Future[str]]", left: int) -> "Future[str]":
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
            raise GradingFailed(f"the Dask scheduler is gone, with {left} submissions or more not graded; {KEPT}")
        alone_since = None if workers else alone_since or time.monotonic()
        if alone_since and time.monotonic() - alone_since > NO_WORKERS_SECONDS:
            raise GradingFailed(
                f"the cluster has no workers left, and {left} submissions or more are not graded; start workers; {KEPT}"
            )


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


# A worker


def unfit(needed: str, isolate: bool) -> str:
    """The empty string if this worker grades as the driver would, else what is wrong here and what to do."""
    here, wanted = versions(), json.loads(needed)
    differing = [f"{name} {here[name]} instead of {wanted[name]}" for name in wanted if here.get(name) != wanted[name]]
    if differing:
        return (
            f"another version than where you started the run ({', '.join(differing)}): install the same course and packages there, "
            "and start the worker again"
        )
    return why_not_isolated() if isolate else ""


def grade_one(task: str, options: str, needed: str) -> str:
    """What a Dask worker does for one submission: JSON in, JSON out."""
    how = Options(**json.loads(options))
    try:
        if problem := _unfit_once(needed, how.isolate):  # a worker that joined after the run had begun
            raise GradingFailed(problem)
        return json.dumps(_grade(task, how))
    except GradingFailed as error:
        return json.dumps({"failed": f"worker on {_host()}: {error}"})


_fit: set[tuple[str, bool]] = set()


def _unfit_once(needed: str, isolate: bool) -> str:
    problem = "" if (needed, isolate) in _fit else unfit(needed, isolate)
    if not problem:
        _fit.add((needed, isolate))
    return problem


def _grade(task: str, options: Options) -> dict[str, Any]:
    for _ in range(2):
        grader = _take(options)
        try:
            answer = grader.grade(task, options)
        except _GraderDied:
            grader.close()
            continue
        except BaseException:
            grader.close()
            raise
        if "failure" in answer:  # perhaps of its sandbox: the next submission gets a fresh one
            grader.close()
        else:
            _give_back(grader)
        return answer
    key = json.loads(task)["key"]
    return {"failure": asdict(Failure(key, "the grading process died twice while grading this submission"))}


class _GraderDied(Exception):
    pass


class _Grader:
    """A trusted grading process kept warm, with what its judge has learnt: a line of JSON per submission, its answer, and the
    next."""

    def __init__(self, options: Options) -> None:
        self.kind = _kind(options)
        self.idle_since = 0.0
        # The process dies with the thread that started it: that must be one which lives as long as this worker.
        self.process = _starter.submit(start_grader).result()

    def grade(self, task: str, options: Options) -> dict[str, Any]:
        """The answer's message as the grading process wrote it. Raises ``GradingFailed`` if nothing can be graded there."""
        request = f'{{"task": {task}, "options": {json.dumps(asdict(options))}}}\n{{"settle": true}}\n'
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None and answers is not None  # asked for by `start_grader`
        answer: dict[str, Any] | None = None
        try:
            requests.write(request.encode())
            requests.flush()
            for line in answers:
                message: dict[str, Any] = json.loads(line)
                if "failed" in message:
                    raise GradingFailed(message["failed"])
                if "done" in message and answer is not None:
                    return answer
                answer = message
        except OSError:
            pass
        raise _GraderDied

    def close(self) -> None:
        """End the process and with it its sandbox."""
        end_grader(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _kind(options: Options) -> tuple[Any, ...]:
    """What a grading process can not change while it lives."""
    return options.isolate, options.device, sorted(options.limits.items())


_starter = ThreadPoolExecutor(1, thread_name_prefix="autograder-starter")
_idle: list[_Grader] = []
_changed = threading.Condition()
_reaper: threading.Thread | None = None  # one for the worker, while there is something to wait for


def _take(options: Options) -> _Grader:
    with _changed:
        for grader in _idle:
            if grader.kind == _kind(options) and grader.process.poll() is None:
                _idle.remove(grader)
                return grader
    return _Grader(options)


def _give_back(grader: _Grader) -> None:
    global _reaper
    grader.idle_since = time.monotonic()
    with _changed:
        _idle.append(grader)
        if _reaper is None:
            _reaper = threading.Thread(target=_close_idle, name="autograder-reaper", daemon=True)
            _reaper.start()
        _changed.notify()


def _close_idle() -> None:
    """Close what nobody has used for ``IDLE_SECONDS``; ends when nothing is idle any more."""
    global _reaper
    while True:
        with _changed:
            if not _idle:
                _reaper = None
                return
            now = time.monotonic()
            old = [grader for grader in _idle if now - grader.idle_since >= IDLE_SECONDS]
            for grader in old:
                _idle.remove(grader)
            if not old:
                _changed.wait(min(grader.idle_since for grader in _idle) + IDLE_SECONDS - now)
        for grader in old:
            grader.close()


def _host() -> str:
    import socket

    return socket.gethostname()
