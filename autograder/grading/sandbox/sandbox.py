"""Starts the untrusted fork server, under bubblewrap unless told otherwise, and opens one fork per submission."""

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from autograder.errors import SandboxError
from autograder.grading.sandbox.bubblewrap import LINUX, PYTHON, WORKER, bubblewrap_command, server_command
from autograder.grading.sandbox.fonts import known_fonts
from autograder.grading.sandbox.lent import LentMemory
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.memory_groups import MemoryGroup, MemoryGroups
from autograder.grading.sandbox.process_tree import ProcessTree, ask_for_pid, memory_of, peer_pid

if TYPE_CHECKING:  # it imports torch, which takes long: `open` imports it, once the server is importing torch as well
    from autograder.grading.sandbox.worker.wire import Connection

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Put the heap into large pages where the kernel and libc have them: each fork copies the page tables, and half of these
# are the heap's.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
USUAL = Limits()
START_SECONDS = 180  # importing torch on a cold disk
HELLO_SECONDS = 60
END_SECONDS = 60


class Sandbox:
    """The fork server. As a context manager it is ready inside the block; else call ``wait_ready``."""

    def __init__(self, isolate: bool = True, device: str = "cpu", limits: Limits = USUAL) -> None:
        self.isolate, self.device, self.limits = isolate, device, limits
        self._jobs = itertools.count(1)
        self._is_ready = False
        self._helpers: dict[str, str] = {}  # what the server was told to import
        self._scratch = None if isolate else tempfile.TemporaryDirectory(prefix="autograder-")
        # Both kinds keep messages apart. macOS has only datagrams, which do not report a closed socket: see close().
        kind = socket.SOCK_SEQPACKET if LINUX else socket.SOCK_DGRAM
        self.control, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  ends with close(); has no name: even a kill leaves none behind
        self._groups = MemoryGroups.find() if isolate and LINUX else None
        files = self._files()
        try:
            self.process = subprocess.Popen(
                self._command(theirs.fileno(), {place: file.fileno() for place, file in files.items()}),
                pass_fds=(theirs.fileno(), *[file.fileno() for file in files.values()]),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd="/",
            )
        except OSError as error:
            raise SandboxError(f"the sandbox could not be started: {error}") from error
        finally:
            theirs.close()
            for file in files.values():
                file.close()

    def wait_ready(self) -> None:
        """Block until the server has imported what it needs. Raises ``SandboxError`` if it does not get there."""
        if self._is_ready:
            return
        self.control.settimeout(START_SECONDS)
        try:
            self._is_ready = self.control.recv(16) == b"ready"
        except OSError:
            self._is_ready = False
        if not self._is_ready:
            log = self._read_log()
            self.close()
            raise SandboxError(f"the sandbox did not start: {log or 'no message'}")

    def open(self, files: dict[str, str], seed: int) -> "Job":
        """Open a fresh fork for one submission; return after its handshake, before any student code."""
        from autograder.grading.sandbox.worker.wire import Connection, WireError

        number, token = f"{os.getpid()}.{next(self._jobs)}", secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        ask_for_pid(ours)
        directory = tempfile.mkdtemp(prefix="job-", dir=self._scratch.name) if self._scratch else "/tmp/work"
        request = {
            "op": "fork",
            "job": number,
            "token": token,
            "isolate": self.isolate,
            "seed": seed,
            "directory": directory,
            "device": self.device,
            "limits": self._job_limits(),
        }
        lent = LentMemory()
        self._control_request(request, theirs, lent.fileno())
        connection = Connection(ours)
        try:
            ours.settimeout(HELLO_SECONDS)
            connection.send({"files": files})
            pid = peer_pid(ours)
            ours.settimeout(None)
            hello, _ = connection.receive(HELLO_SECONDS)
            if hello.get("hello") != token:
                raise WireError(str(hello.get("failed", hello)))
        except (OSError, WireError) as error:
            lent.close()
            self._end(number)
            raise SandboxError(f"a submission's sandbox could not be set up: {error}; {self._read_log()}") from error
        group = self._group_for(pid)
        tree = ProcessTree(pid, memory_of(pid), self.device == "cuda", group is None) if pid else None
        return Job(self, number, connection, lent, tree, group)

    def import_helpers(self, files: dict[str, str]) -> None:
        """Have the server import these modules of the course for all later submissions. Returns at once."""
        if files == self._helpers:
            return
        self._helpers = dict(files)
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as file:
            file.write(json.dumps(files).encode())
            file.seek(0)
            self._control_request({"op": "import"}, theirs, file.fileno())

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
        if self._groups is not None:
            self._groups.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> "Sandbox":
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _group_for(self, pid: int) -> MemoryGroup | None:
        """Make the memory group of a fork that has run no student code yet; ``None`` if the kernel keeps none."""
        if self._groups is None or not pid:
            return None
        try:
            group = self._groups.make(self.limits.memory)
            group.add(pid)
        except (OSError, ValueError) as error:
            raise SandboxError(f"a submission's memory group could not be made: {error}") from error
        return group

    def _end(self, number: str) -> bool:
        ours, theirs = socket.socketpair()
        with ours:
            self._control_request({"op": "end", "job": number, "isolate": self.isolate}, theirs)
            ours.settimeout(END_SECONDS)
            try:
                return ours.recv(16) == b"killed"
            except OSError as error:
                raise SandboxError(f"a submission's processes could not be ended: {error}") from error

    def _control_request(self, request: dict[str, Any], answer_to: socket.socket, *files: int) -> None:
        """Send the fork server a request. It answers on ``answer_to``: several processes share the control socket."""
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], [answer_to.fileno(), *files])
        except OSError as error:
            raise SandboxError(f"the sandbox is gone: {error}; {self._read_log()}") from error
        finally:
            answer_to.close()

    def _job_limits(self) -> dict[str, Any]:
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
        """Return the server's environment. Nothing of the caller's environment reaches student code."""
        scratch = self._scratch.name if self._scratch else "/tmp"
        found = ONE_THREAD | LARGE_PAGES
        if self.isolate and sysconfig.get_config_var("Py_ENABLE_SHARED"):  # libpython's path may be the one outside
            found["LD_LIBRARY_PATH"] = f"{PYTHON}/lib"
        return found | {
            "PATH": "/usr/bin:/bin",
            "HOME": scratch,
            "TMPDIR": scratch,
            "MPLCONFIGDIR": f"{scratch}/mpl",
            "IPYTHONDIR": f"{scratch}/ipython",
            "LANG": "C.UTF-8",
            "PIP_NO_INDEX": "1",  # there is no network: pip need not try five times, nor look for a newer pip
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }

    def _files(self) -> dict[str, IO[str]]:
        """Return the files that the server finds in its /tmp, by their paths there."""
        fonts = known_fonts() if self.isolate else None
        if fonts is None:
            return {}
        file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed when the server has started
        name, text = fonts
        file.write(text)
        file.seek(0)
        return {f"/tmp/mpl/{name}": file}

    def _command(self, control: int, files: dict[str, int]) -> list[str]:
        if not self.isolate:
            return [sys.executable, "-s", str(WORKER / "fork_server.py"), str(control)]
        return [*bubblewrap_command(self.device, files), *server_command("/sandbox/site-packages"), str(control)]


@dataclass
class Job:
    """One submission's fork: its connection, and the means to watch and to end it."""

    sandbox: Sandbox
    number: str
    connection: "Connection"
    lent: LentMemory  # tensors that this side watches
    tree: ProcessTree | None  # its processes; None where there is no /proc
    group: MemoryGroup | None  # its control group, where the kernel counts memory
    charged: float = 0.0  # CPU seconds already charged to the submission

    def ran_out_of_memory(self) -> bool:
        """Whether it has reached its own memory limit."""
        return self.group is not None and self.group.ran_out()

    def end(self) -> bool:
        """End the fork. Returns whether the kernel had killed it because the *machine* was short of memory."""
        self.connection.close()
        self.lent.close()
        by_kernel = self.sandbox._end(self.number)
        if self.group is None:
            return by_kernel
        its_own_doing = self.group.ran_out()
        self.group.remove()
        return by_kernel and not its_own_doing
