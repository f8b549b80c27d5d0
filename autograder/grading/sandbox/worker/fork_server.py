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
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot
import numpy.random  # noqa: F401  else every fork imports it
import simulated_device
import torch
from helper_modules import import_helpers
from isolation import (
    close_walls,
    detach,
    die_with_parent,
    fork_into_namespaces,
    furnish_namespaces,
    make_dumpable,
    set_limits,
)
from student_notebook import run_notebook
from student_shell import make_shell
from wire import Connection, PeerGone

GARBAGE = (5000, 10, 10)  # collect rarely: reference counts free most objects
PF_EXITING = 0x4  # a flag of a process in /proc

# Notebooks begin like this: run it once here, so that forks inherit what IPython, matplotlib and torch look up.
FIRST_CELL = """\
import matplotlib.pyplot as plt
import torch
plt.rcParams.update(plt.rcParams)
torch.manual_seed(0)
del plt, torch
"""


def fork_job(sock: socket.socket, lent_file: int, shell: Any, job: dict[str, Any]) -> int:
    """Fork for one submission; returns the pid whose end ends everything the submission started."""
    uid, gid = os.getuid(), os.getgid()
    pid = fork_into_namespaces() if job["isolate"] else os.fork()
    if pid:
        return pid
    status = 1
    try:
        lent = mmap.mmap(lent_file, 0)
        detach(sock)
        set_limits(job["limits"])
        if job["isolate"]:
            furnish_namespaces(uid, gid)
            close_walls(job["limits"], job["device"])
        else:
            os.setsid()
            die_with_parent()  # there is no namespace to end it with the server
        run_notebook(Connection(sock), shell, job, lent)
        status = 0
    except PeerGone:
        status = 0
    except BaseException as error:  # tell the driver why there is no hello
        say_why(sock, error)
    finally:
        os._exit(status)


def say_why(sock: socket.socket, error: BaseException) -> None:
    with contextlib.suppress(Exception):
        Connection(sock).send({"failed": f"{type(error).__name__}: {error}"})


def warm_up() -> None:
    """Have torch look at the processor now: it reads /proc/cpuinfo on first use, and a fork has no /proc. Modules that
    are imported on first use are also imported here, once for all forks."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = torch.ones(1, 2, 64, 64, dtype=dtype, requires_grad=True)
        y = torch.nn.functional.scaled_dot_product_attention(x, x @ x.mT, torch.softmax(x, dim=-1))
        z = torch.nn.functional.linear(y, x[0, 0]).float().to(dtype)
        torch.autograd.grad(z.sum(), [x])
    visit_the_other_device()


def visit_the_other_device() -> None:
    """Run operations on the simulated device, so that they are looked up here once and not in every fork."""
    x = torch.ones(1, 2, 4, 4).to(simulated_device.NAME).requires_grad_()
    places = torch.arange(4, device=x.device)
    angles = torch.outer(places, 1.0 / 10.0 ** (places.float() / 4))
    y = torch.stack((x * angles.cos() - x, x * angles.sin() + x), dim=-1).flatten(-2)
    y = torch.cat((-y[..., 4:], y[..., :4]), dim=-1)
    scores = (y @ y.mT).masked_fill(~torch.ones(4, 4, dtype=torch.bool, device=x.device).tril(), -torch.inf)
    weights = torch.softmax(scores / 2, dim=-1)
    z = torch.nn.functional.linear((weights @ y).transpose(1, 2).reshape(1, 4, -1), y[0].reshape(4, -1))
    z.sum().backward()
    z.detach().to(torch.bfloat16).cpu()


def compile_nothing() -> None:
    """Have torch.compile return its argument: the values are the same, and compiling takes longer than all tests."""

    def compiled(model: Any = None, **options: Any) -> Any:
        return compiled if model is None else model

    torch.compile = compiled


def import_nothing_late() -> None:
    """Have two functions of torch skip what no notebook here has, since every fork would import for it, for a second:
    assert_close tensors that are spread over machines, nn.MultiheadAttention with padding conditions on symbols."""
    torch.testing._comparison._HAS_DTENSOR = False
    check_with = torch._check_with

    def check_unless_true(error_type: Any, cond: Any, message: Any) -> Any:
        return cond is True or check_with(error_type, cond, message)

    torch._check_with = check_unless_true


def keep_backend() -> None:
    """Have matplotlib keep its backend where another cannot be loaded, since that needs a screen or another package."""
    switch = matplotlib.pyplot.switch_backend

    def switch_if_possible(newbackend: str) -> None:
        with contextlib.suppress(ImportError):
            switch(newbackend)

    matplotlib.pyplot.switch_backend = switch_if_possible


def serve(control: socket.socket) -> None:
    """Fork on request until the driver goes away."""
    torch.set_num_threads(1)
    compile_nothing()
    import_nothing_late()
    keep_backend()
    warm_up()
    shell = make_shell()
    shell.run_cell(FIRST_CELL, store_history=False)
    gc.freeze()  # a fork's garbage collector leaves these pages shared
    gc.set_threshold(*GARBAGE)
    gc.enable()
    make_dumpable(False)  # no fork may look into the server
    running: dict[str, Running] = {}
    isolated = True
    ended: dict[str, bool] = {}  # jobs that ended by themselves, and whether the kernel had killed them
    control.send(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(control, 2**16, 2)
        if not message:
            # Without namespaces, kill leftover processes first: they could still write into the folder we will delete.
            for job in [] if isolated else running.values():
                end_job(job)
            return
        for number, job in list(running.items()):
            if (by_kernel := over(job)) is not None:
                del running[number]
                ended[number] = by_kernel
        request = json.loads(message)
        # Several trusted processes share this control socket, so an answer goes to the socket sent along.
        sock = socket.socket(fileno=fds[0])
        if request["op"] == "fork":
            isolated = request["isolate"]
            try:
                pid = fork_job(sock, fds[1], shell, request)
                running[request["job"]] = Running(pid, isolated, request["limits"]["cpu_seconds"])
            except OSError as error:  # no namespaces, or no room for one more process
                say_why(sock, error)
            os.close(fds[1])
        elif request["op"] == "import":
            with os.fdopen(fds[1], encoding="utf-8") as file:
                import_helpers(json.load(file))
            gc.freeze()
        elif request["op"] == "end":
            known = running.pop(request["job"], None)
            by_kernel = end_job(known) if known else ended.pop(request["job"], False)
            sock.send(b"killed" if by_kernel else b"ended")
        sock.close()


@dataclass
class Running:
    """A submission's fork."""

    pid: int
    isolated: bool
    cpu_seconds: int  # its limit


def over(job: Running) -> bool | None:
    """Return ``None`` while the fork runs, then whether the kernel had killed it."""
    pid, status, used = os.wait4(job.pid, os.WNOHANG)
    return was_killed(job, status, used.ru_utime + used.ru_stime) if pid else None


def end_job(job: Running) -> bool:
    """End a submission and all it started, if it still runs; returns whether the kernel had killed it before."""
    is_ending = job.isolated and is_exiting(job.pid)
    with contextlib.suppress(ProcessLookupError):  # it has no process group yet: it ends, as its connection is closed
        os.kill(job.pid, signal.SIGKILL) if job.isolated else os.killpg(job.pid, signal.SIGKILL)
    _, status, used = os.wait4(job.pid, 0)
    return is_ending and was_killed(job, status, used.ru_utime + used.ru_stime)


def was_killed(job: Running, status: int, cpu_seconds: float) -> bool:
    """Whether the kernel killed it for lack of memory: an isolated fork cannot be killed from inside, so it was either
    that or its limit of CPU time."""
    by_signal = job.isolated and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return by_signal and cpu_seconds < job.cpu_seconds - 1


def is_exiting(pid: int) -> bool:
    """Whether this child is exiting, or has ended and was not waited for yet."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        flags = file.read().rpartition(")")[2].split()[6]
    return bool(int(flags) & PF_EXITING)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # taking torch apart piece by piece would take a quarter of a second
