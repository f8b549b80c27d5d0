"""The trusted grading process: reads tasks as JSON, has them judged in parallel, writes one JSON line per answer.

`grader` starts it, so that nbgrader's own process needs no torch and never talks to a submission. It reads
``{"prestart": assignment, "options": {…}}``, ``{"task": {…}, "options": {…}}`` and, after the last task of a class,
``{"settle": true}``; it writes ``{"result": {…}}``, ``{"failure": {…}}``, ``{"done": true}`` when everything is settled, and
``{"failed": "why nothing can be graded here"}``.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from typing import Any

from autograder.errors import SandboxError, missing_package
from autograder.grading.executors.local import JudgePool, close_sandbox, die_with
from autograder.grading.messages import Answer, Options, Result, Task

asked_to_end = threading.Event()


def _end(*_: object) -> None:
    """End after SIGTERM so that `finally` runs, without a traceback where Python only prints the exception."""
    asked_to_end.set()
    sys.unraisablehook = lambda _: None
    sys.exit()


def main() -> None:
    """Serve the process named in the first argument until it closes our stdin."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, _end)
    answers, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)  # anything that is printed goes to stderr

    def send(message: dict[str, Any]) -> None:
        with lock, contextlib.suppress(BrokenPipeError):  # the reader has gone
            answers.write(json.dumps(message) + "\n")
            answers.flush()

    def on_answer(answer: Answer) -> None:
        send({"result" if isinstance(answer, Result) else "failure": vars(answer)})

    pool = JudgePool(on_answer)
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "prestart" in request:
                pool.prestart(request["prestart"], Options(**request["options"]))
            elif "task" in request:
                pool.grade(Task.from_json(request["task"]), Options(**request["options"]))
            else:
                pool.settle()
                send({"done": True})
    except SandboxError as error:
        send({"failed": str(error)})
    except ImportError as error:
        send({"failed": missing_package(error)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
        pool.cancel()
        close_sandbox()


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # an import that SIGTERM interrupts may raise another exception than SystemExit
        if not asked_to_end.is_set():
            raise
    os._exit(0)  # skips the clean-up of torch, which takes a quarter of a second
