"""The untrusted side: a warm fork server, and in each fork one student's notebook.

Runs inside the sandbox; this folder is all of the course that is mounted there. The server imports torch, matplotlib,
IPython and the week's helper modules once, stays single-threaded, never touches CUDA and runs no student code. Every
submission gets a fork with namespaces, a private /tmp and limits of its own.
"""

import contextlib
import gc
import json
import mmap
import os
import signal
import socket
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot
import numpy.random  # noqa: F401  else every fork imports it
import torch
from helper_modules import import_helpers
from isolation import (
    KILLED,
    close_walls,
    detach,
    die_with_parent,
    enter_namespaces,
    make_dumpable,
    set_limits,
    wait_outside,
)
from student_notebook import make_shell, run_notebook
from wire import Connection, PeerGone

# What notebooks begin with: what it makes IPython, matplotlib and torch look up once is looked up here.
FIRST_CELL = """\
import matplotlib.pyplot as plt
import torch
plt.rcParams.update(plt.rcParams)
torch.manual_seed(0)
del plt, torch
"""


def fork_job(sock: socket.socket, lent_file: int, shell: Any, job: dict[str, Any]) -> int:
    """Fork for one submission; returns the pid whose end ends everything the submission started."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        lent = mmap.mmap(lent_file, 0)
        detach(sock)
        if not job["isolate"]:
            os.setsid()
            die_with_parent()  # no namespace ends it with the server
        set_limits(job["limits"])
        if job["isolate"]:
            enter_namespaces()
            die_with_parent()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            inner = os.fork()
            if inner:
                sock.close()
                wait_outside(inner, job["limits"]["cpu_seconds"])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            close_walls(job["limits"], job["device"])
        run_notebook(Connection(sock), shell, job, lent)
        status = 0
    except PeerGone:
        status = 0
    except BaseException as error:  # tell the driver why there is no hello
        with contextlib.suppress(Exception):
            Connection(sock).send({"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(status)


def warm_up() -> None:
    """Have torch look at the processor now: it reads /proc/cpuinfo on first use, and a fork has no /proc. What is
    imported on first use, too, is imported once here and not in every fork."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = torch.ones(1, 2, 64, 64, dtype=dtype, requires_grad=True)
        y = torch.nn.functional.scaled_dot_product_attention(x, x @ x.mT, torch.softmax(x, dim=-1))
        z = torch.nn.functional.linear(y, x[0, 0]).float().to(dtype)
        torch.autograd.grad(z.sum(), [x])


def pass_plain_checks() -> None:
    """Have torch let a plain ``True`` pass its own checks as it is: torch 2.13 asks a module about it that imports sympy, for
    a quarter of a second in every fork that gives nn.MultiheadAttention a padding mask."""
    check_with: Any = getattr(torch, "_check_with", None)

    def passing(error_type: Any, cond: Any, message: Any) -> None:
        if cond is not True:
            check_with(error_type, cond, message)

    if check_with is not None:
        torch._check_with = passing


def serve(control: socket.socket) -> None:
    """Fork on request until the driver goes away."""
    torch.set_num_threads(1)
    pass_plain_checks()
    warm_up()
    shell = make_shell()
    shell.run_cell(FIRST_CELL, store_history=False)
    gc.freeze()  # a fork's garbage collector leaves these pages shared
    gc.enable()
    make_dumpable(False)  # no fork may look into the server
    running: dict[str, int] = {}
    isolated = True
    ended: dict[str, int] = {}  # exit statuses of those that ended by themselves
    control.send(json.dumps({"ready": True, "threads": threads()}).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(control, 2**16, 2)
        if not message:
            # A namespace ends what is in it; else who still runs could write where everything is about to be removed.
            for pid in [] if isolated else running.values():
                end_job(pid, isolated, 0)
            return
        for job, pid in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del running[job]
                ended[job] = status
        request = json.loads(message)
        # Several trusted processes share this control socket, so an answer goes to the socket sent along.
        sock = socket.socket(fileno=fds[0])
        if request["op"] == "fork":
            isolated = request["isolate"]
            running[request["job"]] = fork_job(sock, fds[1], shell, request)
            os.close(fds[1])
        elif request["op"] == "import":
            with os.fdopen(fds[1], encoding="utf-8") as file:
                import_helpers(json.load(file))
            gc.freeze()
        elif request["op"] == "end":
            status = end_job(running.pop(request["job"], None), request["isolate"], ended.pop(request["job"], 0))
            sock.send(b"killed" if os.waitstatus_to_exitcode(status) == KILLED else b"ended")
        sock.close()


def end_job(pid: int | None, isolate: bool, status: int) -> int:
    """End a submission and all it started, if it still runs; returns its exit status."""
    if pid is None:
        return status
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM) if isolate else os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # taking torch apart piece by piece would take a quarter of a second
