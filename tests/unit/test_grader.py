"""Starting, using and ending a grading process, with a fake one in its place."""

import json
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from autograder.errors import GraderDied, GradingFailed
from autograder.grading.executors import grader as module
from autograder.grading.executors import local
from autograder.grading.executors.grader import Grader, end_grader
from autograder.grading.messages import Answer, Options, Task
from autograder.grading.sandbox.limits import Limits

# A fake grading process: it answers at once, and the score is the number of the task.
ECHO = """
import json, os, sys
count = 0
for line in sys.stdin:
    request = json.loads(line)
    if "task" in request:
        count += 1
        key = request["task"]["key"]
        if key == "deadly":
            os._exit(9)
        said = {"failed": "no sandbox"} if key == "hopeless" else {"result": {"key": key, "scores": {"a": count}}}
        print(json.dumps(said), flush=True)
    elif "settle" in request:
        print(json.dumps({"done": True}), flush=True)
"""
DEAF = "import time\nwhile True: time.sleep(1)"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """The grading processes that were started."""
    found: list[subprocess.Popen] = []

    def start(code: str = ECHO) -> subprocess.Popen:
        command = [sys.executable, "-c", code]
        found.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return found[-1]

    monkeypatch.setattr(module, "_start", start)
    return found


@pytest.fixture
def grader(started: list) -> Iterator[Grader]:
    with Grader() as grader:
        assert not started, "making one starts nothing"
        yield grader
    assert all(process.poll() is not None for process in started)


def task(key: str, source: str = "") -> Task:
    return Task(key, "week3_rope", [], {"a.py": source}, seed=0)


def graded(grader: Grader, *keys: str) -> list[tuple[str, float]]:
    answers: list[Answer] = []
    grader.grade(map(task, keys), Options(), answers.append)
    return [(answer.key, answer.scores["a"]) for answer in answers]


def test_one_process_serves_one_class_after_the_other(grader: Grader, started: list) -> None:
    grader.prestart("week3_rope", Options())
    assert graded(grader, "ada", "boole") == [("ada", 1), ("boole", 2)]
    assert graded(grader, "cantor") == [("cantor", 3)] and len(started) == 1


def test_a_process_that_has_ended_is_replaced(grader: Grader, started: list) -> None:
    grader.prestart("week3_rope", Options())
    started[0].kill()
    started[0].wait()
    assert graded(grader, "ada") == [("ada", 1)] and len(started) == 2


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [("deadly", GraderDied, r"exit code 9\) with 1 submission"), ("hopeless", GradingFailed, "no sandbox")],
)
def test_what_goes_wrong_there_is_raised_and_the_next_class_gets_another_process(
    grader: Grader, started: list, key: str, error: type[GradingFailed], said: str
) -> None:
    with pytest.raises(error, match=said):
        graded(grader, "ada", key)
    assert started[0].poll() is not None
    assert graded(grader, "boole") == [("boole", 1)]


def test_what_goes_wrong_here_is_raised_and_ends_it(grader: Grader, started: list) -> None:
    def tasks() -> Iterator[Task]:
        yield task("ada")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        grader.grade(tasks(), Options(), lambda answer: None)
    with pytest.raises(ZeroDivisionError):
        grader.grade([task("ada")], Options(), lambda answer: 1 / 0)
    assert [process.poll() is None for process in started] == [False, False]


def test_closing_waits_for_no_process_that_does_not_read(
    grader: Grader, started: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = module._start
    monkeypatch.setattr(module, "_start", lambda: start(DEAF))
    large = task("ada", "x" * 2**20)  # more than a pipe holds
    assert len(json.dumps(large.to_json())) > 2**20
    feeder = module._Feeder(grader.start(), [large], Options())
    feeder.start()
    grader.close()
    feeder.join()
    assert feeder.failure is None and feeder.open == {"ada"}


def test_a_process_that_misses_a_signal_is_asked_again() -> None:
    """Python only prints an exception that a signal handler raises during a destructor."""
    code = (
        "import signal, sys\n"
        "asked = []\n"
        "def end(*_):\n"
        "    asked.append(1)\n"
        "    if len(asked) > 1: sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        end_grader(process)
        assert process.returncode == 3


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux ends a process with the one that started it"
)
def test_a_judge_does_not_outlive_the_run() -> None:
    code = (
        "import os, time\n"
        "from autograder.grading.executors.local import _begin_to_judge\n"
        "run = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    _begin_to_judge(run)\n"
        "    print('judging', flush=True)\n"
        "    while os.getppid() == run: time.sleep(0.01)\n"
        "    time.sleep(1)\n"
        "    print('still there', flush=True)\n"
        "else:\n"
        "    os.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"judging\n"
        process.kill()
        assert process.stdout.read() == b""  # the end of the pipe, once no process is left that could write


def test_a_sandbox_that_is_open_gets_the_limits_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(isolate=True, device="cpu", limits=Limits())
    monkeypatch.setattr(local, "_sandbox", running)
    local._open_sandbox("week3_rope", Options(device="cpu", limits={"cell_cpu": 7.0}))
    assert local._sandbox is running and running.limits == Limits(cell_cpu=7.0)


def test_a_run_with_isolation_uses_no_sandbox_that_was_opened_without(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(
        local, "_sandbox", SimpleNamespace(isolate=False, device="cpu", close=lambda: closed.append(True))
    )
    monkeypatch.setattr(local, "Sandbox", lambda isolate, device: SimpleNamespace(isolate=isolate, device=device))
    local._open_sandbox("week3_rope", Options(device="cpu"))
    assert closed and local._sandbox is not None and local._sandbox.isolate
