"""The untrusted side: a warm fork server, and in each fork one student's notebook.

Runs inside the sandbox with `wire.py` beside it and nothing else of the course. The server imports torch, matplotlib
and IPython once, stays single-threaded, never touches CUDA and runs no student code. Every submission gets a fork
with namespaces, a private /tmp and limits of its own. Nothing here is trusted by the other side: this file can be
taken over by student code at any time, and then it may only answer wrongly or not at all.
"""

import base64
import builtins
import contextlib
import ctypes
import gc
import itertools
import json
import os
import random
import resource
import signal
import socket
import struct
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot  # noqa: E402,F401
import numpy as np  # noqa: E402
import numpy.random  # noqa: E402,F401  else every fork imports it
import torch  # noqa: E402
from IPython.core.displayhook import DisplayHook  # noqa: E402
from IPython.core.displaypub import CapturingDisplayPublisher  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets import Type  # noqa: E402
from traitlets.config import Config  # noqa: E402
from wire import Connection, Decoder, Encoder, PeerGone, Reference  # noqa: E402

CLONE_FLAGS = 0x10000000 | 0x20000000 | 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000  # user pid mnt net ipc uts
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV, MS_RDONLY = 0x4000, 1 << 18, 2, 4, 1
MAX_TEXT, MAX_IMAGES, MAX_IMAGE = 50_000, 12, 2 * 2**20
KILLED = 9  # exit status of a submission's outer process: the kernel killed what was inside

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere student code runs without isolation anyway."""
    if sys.platform.startswith("linux"):
        libc.prctl(option, value, 0, 0, 0)


# ---- a student's notebook ---------------------------------------------------------------------------------------


class Recorder:
    """What a cell prints and shows, capped: text, results and PNG figures."""

    def __init__(self) -> None:
        self.outputs: list[dict] = []
        self.room, self.images = MAX_TEXT, MAX_IMAGES

    def write(self, name: str, text: str) -> None:
        text = text[:self.room]
        self.room -= len(text)
        if not text:
            return
        if self.outputs and self.outputs[-1].get("stream") == name:
            self.outputs[-1]["text"] += text
        else:
            self.outputs.append({"stream": name, "text": text})

    def show(self, data: dict, is_result: bool) -> None:
        kept = {}
        text = data.get("text/plain")
        if isinstance(text, str):
            kept["text"] = text[:self.room]
            self.room -= len(kept["text"])
        image = data.get("image/png")
        if isinstance(image, str):
            image = base64.b64decode(image)
        if isinstance(image, bytes) and len(image) <= MAX_IMAGE and self.images > 0:
            self.images -= 1
            kept["png"] = image
        if kept:
            self.outputs.append({"show": kept, "result": is_result})


class Stream:
    """stdout or stderr of student code."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name, self.recorder = name, recorder

    def write(self, text: str) -> int:
        self.recorder.write(self.name, str(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise OSError("no file behind this stream")


class Publisher(CapturingDisplayPublisher):
    recorder: Any = None

    def publish(self, data: dict, metadata: dict | None = None, **_: Any) -> None:
        if self.recorder is not None:
            self.recorder.show(data, is_result=False)

    def clear_output(self, wait: bool = False) -> None:
        pass


class ResultHook(DisplayHook):
    recorder: Any = None

    def __call__(self, result: Any = None) -> None:
        if result is None:
            return
        builtins._ = result
        data, _ = self.shell.display_formatter.format(result)
        self.recorder.show(data, is_result=True)


class Shell(InteractiveShell):
    """IPython without a terminal, a kernel, a history or printed tracebacks (errors are reported as data)."""

    displayhook_class = Type(ResultHook)
    display_pub_class = Type(Publisher)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        pass

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        pass

    def showindentationerror(self) -> None:
        pass

    def enable_gui(self, gui: str | None = None) -> None:
        pass


def make_shell() -> Shell:
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    shell = Shell.instance(config=config)
    shell.enable_matplotlib("inline")
    return shell


class Notebook:
    """Answers the trusted side's requests about one student's notebook."""

    def __init__(self, connection: Connection, shell: Shell, device: str) -> None:
        self.connection, self.shell, self.device = connection, shell, device
        self.objects: dict[int, Any] = {}
        self.ids: dict[int, int] = {}
        self.graphs: dict[int, tuple] = {}
        self.counter = itertools.count(1)
        self.recorder = Recorder()
        self.pid = os.getpid()

    def serve(self) -> None:
        operations = {"execute": self.execute, "lookup": self.lookup, "call": self.call, "backward": self.backward}
        while True:
            header, payload = self.connection.receive()
            self.record()
            encoder = Encoder(self.refer)
            try:
                reply = operations[header["op"]](header, self.decoder(payload), encoder)
            except BaseException as error:  # student code raises anything, SystemExit and KeyboardInterrupt included
                if isinstance(error, PeerGone):
                    raise
                encoder = Encoder(self.refer)
                reply = {"error": describe(error)}
            self.connection.send({"serial": header.get("serial")} | reply, bytes(encoder.payload))

    def record(self) -> None:
        self.recorder = Recorder()
        sys.stdout, sys.stderr = Stream("stdout", self.recorder), Stream("stderr", self.recorder)
        self.shell.display_pub.recorder = self.recorder
        self.shell.displayhook.recorder = self.recorder

    def execute(self, header: dict, decoder: Decoder, encoder: Encoder) -> dict:
        result = self.shell.run_cell(header["source"], store_history=False, cell_id=header.get("cell"))
        if os.getpid() != self.pid:  # a child of the student's own that came to the end of its cell
            os._exit(0)
        error = result.error_before_exec or result.error_in_exec
        outputs = []
        for output in self.recorder.outputs:
            if "png" in output.get("show", {}):
                offset = len(encoder.payload)
                encoder.payload += output["show"]["png"]
                output["show"]["png"] = [offset, len(output["show"]["png"])]
            outputs.append(output)
        return {"outputs": outputs, "error": describe(error) if error is not None else None}

    def lookup(self, header: dict, decoder: Decoder, encoder: Encoder) -> dict:
        names = self.shell.user_ns
        return {"found": {name: encoder.encode(names[name]) for name in header["names"] if name in names}}

    def call(self, header: dict, decoder: Decoder, encoder: Encoder) -> dict:
        target = self.objects[header["target"]]
        if header.get("method"):
            target = getattr(target, header["method"])
        args, kwargs = decoder.decode(header["args"]), decoder.decode(header["kwargs"])
        inputs = tensors_in((args, kwargs))
        before = [tensor.detach().clone() for tensor in inputs]
        with usual_dtype():
            value = target(*args, **kwargs)
            if isinstance(value, (types.GeneratorType, map, filter, zip)):
                value = list(itertools.islice(value, 10_000))
        changed = [[index, encoder.encode(tensor.detach())] for index, (tensor, old) in enumerate(zip(inputs, before))
                   if tensor.shape != old.shape or not same(tensor.detach(), old)]
        number = next(self.counter)
        if any(tensor.requires_grad for tensor in inputs):
            self.graphs[number] = (inputs, tensors_in(value))
        return {"value": encoder.encode(value), "changed": changed, "call": number}

    def backward(self, header: dict, decoder: Decoder, encoder: Encoder) -> dict:
        inputs, outputs = self.graphs[header["call"]]
        cotangents = decoder.decode(header["cotangents"])
        pairs = [(o, c.to(o.device, o.dtype)) for o, c in zip(outputs, cotangents) if c is not None and o.requires_grad]
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        found = torch.autograd.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], retain_graph=True,
                                    allow_unused=True) if pairs else [None] * len(wanted)
        gradients = iter(found)
        return {"value": encoder.encode([next(gradients) if t.requires_grad else None for t in inputs])}

    # ---- values across the wire

    def refer(self, value: Any) -> dict | None:
        if not callable(value) or isinstance(value, np.generic):
            return None
        number = self.ids.get(id(value))
        if number is None:
            number = next(self.counter)
            self.ids[id(value)], self.objects[number] = number, value
        return {"r": {"id": number, "type": type(value).__name__[:80], "callable": True}}

    def decoder(self, payload: bytes) -> Decoder:
        return Decoder(payload, self.resolve, self.callback, self.device)

    def resolve(self, reference: Reference) -> Any:
        return self.objects[reference.id]

    def callback(self, number: int) -> Any:
        """A function of the check's, as the student's code sees it."""

        def check_function(*args: Any, **kwargs: Any) -> Any:
            encoder = Encoder(self.refer)
            header = {"callback": number, "args": encoder.encode(list(args)), "kwargs": encoder.encode(kwargs)}
            self.connection.send(header, bytes(encoder.payload))
            reply, payload = self.connection.receive()
            if "raise" in reply:
                raise RuntimeError(reply["raise"])
            return self.decoder(payload).decode(reply["value"])

        return check_function


@contextlib.contextmanager
def usual_dtype() -> Iterator[None]:
    """A test hands in float32 tensors, so new ones are float32, whatever a cell has switched for its own purposes."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if a.is_floating_point() else torch.equal(a, b)


def describe(error: BaseException) -> dict:
    """An exception as plain text: class names along the MRO, message, line in the student's own cell."""
    try:
        message = (error.msg if isinstance(error, SyntaxError) else str(error))[:2000]
    except BaseException:
        message = "(the message could not be read)"
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if "ipykernel" in frame.filename or "ipython-input" in frame.filename or frame.filename.startswith("<"):
            line = frame.lineno
    return {"types": [c.__name__[:80] for c in type(error).__mro__][:20], "message": message, "line": line}


# ---- isolation of one fork --------------------------------------------------------------------------------------


def checked(result: int, what: str | bytes) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what!r}: {os.strerror(number)}")


def enter_namespaces() -> None:
    """New user, pid, mount, network, ipc and uts namespaces, an empty /tmp and /dev/shm, no /proc."""
    uid, gid = os.getuid(), os.getgid()
    prctl(PR_SET_DUMPABLE, 1)  # else /proc/self belongs to nobody; the caller forks no student code yet
    checked(libc.unshare(CLONE_FLAGS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    checked(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount / private")
    for folder in (b"/tmp", b"/dev/shm"):
        checked(libc.mount(b"tmpfs", folder, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=64m,nr_inodes=4k,mode=700"), folder)
    checked(libc.mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID, b"newinstance,ptmxmode=0666,mode=620"), "/dev/pts")
    checked(libc.mount(b"tmpfs", b"/proc", b"tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, b"size=4k,mode=555"), "/proc")


def drop_privileges() -> None:
    for capability in range(64):
        prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


# System calls that a notebook does not need, as (audit architecture, clone, the rest). First memfd_create and
# memfd_secret, memory that counts for nobody; then shmget, semget and msgget, which outlive who made them; then new
# namespaces, mounts, keys, tracing, bpf, foreign memory, io_uring.
FORBIDDEN = {
    "x86_64": (0xC000003E, 56, [319, 447, 29, 64, 68, 272, 308, 165, 166, 155, 248, 249, 250, 321, 298, 323, 101, 310, 311,
                                *range(425, 434), 442]),
    "aarch64": (0xC00000B7, 220, [279, 447, 194, 190, 186, 97, 268, 40, 39, 41, 217, 218, 219, 280, 241, 282, 117, 270, 271,
                                  *range(425, 434), 442]),
}


def forbid_system_calls(device: str) -> None:
    """A seccomp filter. clone3 does not exist (libc falls back to clone), clone makes no namespaces."""
    if os.uname().machine not in FORBIDDEN:
        return
    architecture, clone, numbers = FORBIDDEN[os.uname().machine]
    allow, refuse, missing, kill = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
    load, equal, at_least, masked, give = 0x20, 0x15, 0x35, 0x45, 0x06
    lines = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, kill),
             (load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, kill)]  # the last: x32
    for number in numbers[2 if device == "cuda" else 0:]:  # CUDA's driver makes memory files
        lines += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    lines += [(equal, 0, 1, 435), (give, 0, 0, missing), (equal, 1, 0, clone), (give, 0, 0, allow), (load, 0, 0, 16),
              (masked, 0, 1, 0x7E020080), (give, 0, 0, refuse), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(code)))
    checked(libc.prctl(22, 2, program, 0, 0), "seccomp")  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def set_limits(limits: dict) -> None:
    def cap(kind: int, value: int) -> None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    if limits.get("memory") and os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        cap(resource.RLIMIT_AS, now + limits["memory"])
    cap(resource.RLIMIT_CPU, limits["cpu_seconds"])
    cap(resource.RLIMIT_FSIZE, limits["file_size"])
    cap(resource.RLIMIT_NOFILE, 256)
    cap(resource.RLIMIT_CORE, 0)


def run_notebook(connection: Connection, shell: Shell, job: dict) -> None:
    prctl(PR_SET_DUMPABLE, 1)
    os.makedirs(job["directory"], exist_ok=True)
    os.chdir(job["directory"])
    header, _ = connection.receive()
    for name, text in header["files"].items():
        with open(os.path.basename(name), "w", encoding="utf-8") as file:
            file.write(text)
    sys.path.insert(0, job["directory"])
    random.seed(job["seed"])
    np.random.seed(job["seed"])
    torch.manual_seed(job["seed"])
    notebook = Notebook(connection, shell, job["device"])
    connection.send({"hello": job["token"]})
    notebook.serve()


def detach(sock: socket.socket) -> None:
    """No descriptor but the connection: the control socket and the server's log belong to all submissions."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, sock.fileno())
    os.closerange(sock.fileno() + 1, 4096)


def wait_outside(inner: int, cpu_seconds: int) -> None:
    """Outside the new pid namespace: the end of its first process ends all inside, whatever they have arranged.

    That process cannot be killed from inside. If something else than its CPU limit or our SIGTERM killed it, it was
    the kernel, short of memory, and this process's exit status says so.
    """
    asked: list[int] = []

    def end(*_: Any) -> None:
        asked.append(inner)
        os.kill(inner, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _, status, used = os.wait4(inner, 0)
    by_kernel = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and not asked
    os._exit(KILLED if by_kernel and used.ru_utime + used.ru_stime < cpu_seconds - 1 else 0)


def fork_job(sock: socket.socket, shell: Shell, job: dict) -> int:
    """Fork for one submission; returns the pid whose end ends everything the submission started."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        detach(sock)
        if not job["isolate"]:
            os.setsid()
        set_limits(job["limits"])
        if job["isolate"]:
            enter_namespaces()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            inner = os.fork()
            if inner:
                sock.close()
                wait_outside(inner, job["limits"]["cpu_seconds"])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os.setsid()  # else a signal to the process group would reach the server and every other fork
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_NPROC, (job["limits"]["processes"],) * 2)
            drop_privileges()
            forbid_system_calls(job["device"])
        run_notebook(Connection(sock), shell, job)
        status = 0
    except PeerGone:
        status = 0
    except BaseException as error:  # tell the driver why there is no hello
        try:
            Connection(sock).send({"failed": f"{type(error).__name__}: {error}"})
        except Exception:
            pass
    finally:
        os._exit(status)


def warm_up() -> None:
    """Have torch look at the processor now: it reads /proc/cpuinfo on first use, and a fork has no /proc. What is
    imported on first use, too, is imported once here and not in every fork."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = torch.ones(1, 2, 64, 64, dtype=dtype, requires_grad=True)
        y = torch.nn.functional.scaled_dot_product_attention(x, x @ x.mT, torch.softmax(x, dim=-1))
        z = torch.nn.functional.linear(y, x[0, 0]).float().to(dtype)
        torch.autograd.grad([z], [x], [torch.ones_like(z)])  # with cotangents torch imports sympy


def serve(control: socket.socket) -> None:
    """Fork on request until the driver goes away."""
    torch.set_num_threads(1)
    warm_up()
    shell = make_shell()
    shell.run_cell("None", store_history=False)
    gc.collect()
    gc.freeze()  # a fork's garbage collector leaves these pages shared
    prctl(PR_SET_DUMPABLE, 0)  # no fork may look into the server
    running: dict[str, int] = {}
    ended: dict[str, int] = {}  # exit statuses of those that ended by themselves
    control.send(json.dumps({"ready": True, "threads": threads()}).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(control, 2**16, 1)
        if not message:
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
            running[request["job"]] = fork_job(sock, shell, request)
        elif request["op"] == "end":
            status = end_job(running.pop(request["job"], None), request["isolate"], ended.pop(request["job"], 0))
            sock.send(b"killed" if os.waitstatus_to_exitcode(status) == KILLED else b"ended")
        sock.close()


def end_job(pid: int | None, isolate: bool, status: int) -> int:
    """End a submission and all it started, if it still runs; returns its exit status."""
    if pid is None:
        return status
    try:
        os.kill(pid, signal.SIGTERM) if isolate else os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return os.waitpid(pid, 0)[1]


def threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
