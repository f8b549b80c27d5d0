"""A grading run on an existing Dask cluster: one Dask task per submission, JSON text both ways.

The driver (``grade``) loads no torch. A worker (``grade_one``) keeps a warm grading process, as
in a local run, for each of its threads, so that the Dask worker itself loads neither torch nor any student code.
"""

import contextlib
import functools
import importlib.metadata
import itertools
import json
import logging
import queue
import re
import socket
import sys
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.errors import GraderDied, GradingFailed, first_line
from autograder.grading.executors.grader import Grader
from autograder.grading.messages import Answer, Failure, OnAnswer, Options, Result, Task
from autograder.grading.pending import grader_version
from autograder.grading.sandbox.bubblewrap import why_not_isolated

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 15
RESULT_TRIES = 8  # of CONNECT_SECONDS each, to fetch one finished result
NO_WORKERS_SECONDS = 60  # a nanny restarts its worker within a few seconds
AHEAD = 500  # submissions on the cluster at a time: a large class fills neither the scheduler's memory nor ours
IDLE_SECONDS = 300  # how long a worker keeps an unused grading process
KEPT = "what was graded is kept: run the same command again"


# The driver


def grade(tasks: Iterable[Task], options: Options, on_answer: OnAnswer) -> None:
    """Grade every task on the cluster; answers arrive in any order. Raises ``GradingFailed`` if the cluster fails."""
    how, needed = json.dumps(asdict(replace(options, workers=1, scheduler=""))), json.dumps(versions())
    with _connected(options.scheduler) as client:
        _require_fit_workers(client, needed, options.isolate)
        accused = _run(client, tasks, how, needed, on_answer)
        for task in accused:  # in flight when workers died: one at a time shows which is to blame
            for victim in _run(client, [task], how, needed, on_answer):
                on_answer(
                    Failure(victim.key, "workers of the cluster died, again and again, while grading this submission")
                )


def versions() -> dict[str, str]:
    """Return the versions that must be the same on driver and workers, so that grades are the same."""
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
    if address.startswith("tls://"):
        _require_certificates(scheduler, distributed.Security())
    try:
        client = _client(address)
    except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:  # TimeoutError is an OSError
        raise GradingFailed(
            f"no Dask scheduler answers at {scheduler} ({first_line(error)[:200]}): start one with `dask scheduler`, "
            "check the address (8787 is the dashboard's port), and for tls:// the certificates (docs/cluster.md)"
        ) from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def _client(address: str) -> "Client":
    """Connect. Dask's time-out does not bound its talk with what is no scheduler, such as the dashboard: a thread's does."""
    import distributed

    made: list[Any] = []

    def connect() -> None:
        try:
            made.append(distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False, name="autograder"))
        except Exception as error:
            made.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS + 5)
    if not made:
        raise TimeoutError("what listens there does not answer like one")
    if isinstance(made[0], Exception):
        raise made[0]
    client: Client = made[0]
    return client


def _require_certificates(scheduler: str, security: Any) -> None:
    files = [getattr(security, name, None) for name in ("tls_client_cert", "tls_client_key", "tls_ca_file")]
    if not files[0]:
        raise GradingFailed(
            f"{scheduler} wants certificates, and Dask knows none here: name them in ~/.config/dask/tls.yaml (docs/cluster.md)"
        )
    for file in filter(None, files):
        if "-----BEGIN" not in file and not Path(file).is_file():  # a certificate itself may stand there, too
            raise GradingFailed(f"Dask's configuration names the certificate {file}, and there is no such file")


def _address(scheduler: str) -> str:
    """Return the scheduler's address; ``scheduler`` is the address or a scheduler file."""
    if "://" in scheduler or not (scheduler.endswith(".json") or Path(scheduler).exists()):
        if not re.fullmatch(r"((tcp|tls|ucx)://)?[^/]+:\d+", scheduler):
            raise GradingFailed(f"{scheduler} is no scheduler's address: it looks like tcp://host:8786")
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
                f"worker {address} cannot grade ({first_line(answer)[:200]}): install this version of the course there, "
                "in the environment that runs `dask worker`"
            )
        if answer:
            raise GradingFailed(f"worker {address}: {answer}")


def _run(client: "Client", tasks: Iterable[Task], how: str, needed: str, on_answer: OnAnswer) -> list[Task]:
    """Submit tasks as there is room for them, and pass on answers as they arrive.

    Returns the tasks in flight when workers died more often than the scheduler allows.
    """
    from distributed import KilledWorker

    done: queue.SimpleQueue[Future[str]] = queue.SimpleQueue()
    run = uuid.uuid4().hex[:8]
    accused: list[Task] = []
    waiting: dict[Future[str], Task] = {}
    late: Counter[Future[str]] = Counter()
    coming = enumerate(tasks)
    try:
        while True:
            for number, task in itertools.islice(coming, AHEAD - len(waiting)):
                name = f"autograder-{run}-{number}"  # the cluster's dashboard must not show the student
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
            except TimeoutError:  # its worker died with the result, or is busy; Dask computes it again
                late[future] += 1
                if late[future] < RESULT_TRIES:
                    future.add_done_callback(done.put)  # called at once if it is done by now
                    continue
                raise GradingFailed(f"a result did not arrive from the cluster; {KEPT}") from None
            except Exception as error:  # the scheduler went away, or a worker with another course joined
                raise GradingFailed(f"the cluster failed ({first_line(error)[:200]}); {KEPT}") from None
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
        raise GradingFailed(f"the cluster failed ({first_line(error)[:200]}); {KEPT}") from None


def _next(client: "Client", done: "queue.SimpleQueue[Future[str]]", left: int) -> "Future[str]":
    """Return the next finished future; raises ``GradingFailed`` if no scheduler or worker is left to finish one."""
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
    """Grade one submission on a Dask worker: JSON in, JSON out."""
    how = Options(**json.loads(options))
    try:
        _fits(needed, how.isolate)  # checked here too: a worker may join after the run has begun
        answer = _grade(Task.from_json(json.loads(task)), how)
    except GradingFailed as error:
        return json.dumps({"failed": f"worker on {socket.gethostname()}: {error}"})
    return json.dumps({"result" if isinstance(answer, Result) else "failure": vars(answer)})


@functools.cache
def _fits(needed: str, isolate: bool) -> None:
    """Raise ``GradingFailed`` if this worker is ``unfit``. Success is cached, so a fit worker checks once."""
    if problem := unfit(needed, isolate):
        raise GradingFailed(problem)


def _grade(task: Task, options: Options) -> Answer:
    for _ in range(2):
        answers: list[Answer] = []
        with _warm_graders.taken() as grader, contextlib.suppress(GraderDied):
            grader.grade([task], options, answers.append)
            return answers[-1]
    return Failure(task.key, "the grading process died twice while grading this submission")


class _WarmGraders:
    """Idle graders that keep their judges' caches for the next submission. One that stays unused is closed."""

    def __init__(self) -> None:
        self._idle: dict[Grader, threading.Timer] = {}
        self._lock = threading.Lock()
        # A grading process ends with the thread that started it, so one thread starts all of them and stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="autograder-starter")

    @contextmanager
    def taken(self) -> Iterator[Grader]:
        """Lend one grader to the block."""
        with self._lock:
            grader, timer = self._idle.popitem() if self._idle else (Grader(), None)
        if timer is not None:
            timer.cancel()
        self._starter.submit(grader.start).result()
        try:
            yield grader
        finally:
            timer = threading.Timer(IDLE_SECONDS, self._close, [grader])
            timer.daemon = True
            with self._lock:
                self._idle[grader] = timer
            timer.start()

    def _close(self, grader: Grader) -> None:
        with self._lock:
            if self._idle.pop(grader, None) is None:  # somebody has just taken it
                return
        grader.close()


_warm_graders = _WarmGraders()  # of this worker
