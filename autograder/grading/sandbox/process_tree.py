"""CPU seconds and memory of a submission's whole process tree, read from /proc by the trusted side.

psutil does not serve here: it reads all of /proc to find children, too slow for four looks a second at many
submissions, and it gives neither the pid inside a namespace nor the pid of a message's sender.

The root of the tree is the first process of the submission's pid namespace: what it starts can neither leave the tree
(orphans return to it) nor outlive it. Its pid comes from the kernel with the first message, so it cannot be forged.
"""

import os
import socket
import struct
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PF_FORKNOEXEC = 0x40  # a flag in /proc/PID/stat: forked, and still the same program


@dataclass(frozen=True)
class Usage:
    """CPU seconds since the processes started, resident memory in bytes, whether any process wants the CPU now, how
    many processes and how many threads there are, and how many of both the namespace has ever had."""

    cpu: float
    memory: int
    runnable: bool
    processes: int
    threads: int
    started: int
    gpu_memory: int = 0


@dataclass(frozen=True)
class _Process:
    own_cpu: float
    children_cpu: float  # of the children that have ended and were waited for
    memory: int
    runnable: bool
    threads: int
    has_execed: bool  # if so, it no longer shares pages with the fork server


class ProcessTree:
    """The process ``root`` and all its descendants. Each process that has not called exec shares ``baseline`` bytes of
    pages with the fork server, and these are not counted. Without ``counts_memory``, where a control group counts it,
    memory is 0."""

    def __init__(self, root: int, baseline: int = 0, on_gpu: bool = False, counts_memory: bool = True) -> None:
        self.root, self.baseline, self.on_gpu, self.counts_memory = root, baseline, on_gpu, counts_memory
        self._next_gpu_look, self._on_gpu = 0.0, 0
        self._seen: dict[int, float] = {}  # CPU seconds of every process ever seen, by pid
        self._started = 0
        self._last: tuple[float, Usage] | None = None  # the time of the last look, and its result

    def recent(self, seconds: float) -> Usage:
        """Return the last look if it is under ``seconds`` old, else look now: a look takes longer than a quick call."""
        if self._last is not None and time.monotonic() - self._last[0] < seconds:
            return self._last[1]
        return self.look()

    def look(self) -> Usage:
        """Return the usage now."""
        found = {pid: process for pid in _tree(self.root) if (process := _process(pid)) is not None}
        for pid, process in found.items():
            if pid not in self._seen:
                self._started = max(self._started, _number_inside(pid))
            self._seen[pid] = max(self._seen.get(pid, 0.0), process.own_cpu)
        # Both sums are lower bounds: the first misses an ended child that nobody waited for, the second one that came
        # and went between two looks.
        reaped = sum(process.own_cpu + process.children_cpu for process in found.values())
        memory = self._memory(found) if self.counts_memory else 0
        usage = Usage(
            max(reaped, sum(self._seen.values())),
            memory,
            any(process.runnable for process in found.values()),
            len(found),
            sum(process.threads for process in found.values()),
            self._started,
            self._gpu_memory(found.keys()) if self.on_gpu else 0,
        )
        self._last = time.monotonic(), usage
        return usage

    def _memory(self, found: dict[int, _Process]) -> int:
        """Return what page tables show plus all shared mappings in full: shared pages need not be in any page table."""
        own = sum(max(0, process.memory - (0 if process.has_execed else self.baseline)) for process in found.values())
        shared: dict[str, int] = {}
        for pid in found:
            for inode, size in _shared_anonymous(pid):
                shared[inode] = max(size, shared.get(inode, 0))
        return own + sum(shared.values())

    def _gpu_memory(self, pids: Collection[int]) -> int:
        """Return the bytes on all GPUs, asked at most every two seconds because each query starts a program."""
        now = time.monotonic()
        if now >= self._next_gpu_look:
            self._next_gpu_look = now + 2
            used = gpu_memory_by_process()
            self._on_gpu = sum(used.get(pid, 0) for pid in pids)
        return self._on_gpu


def ask_for_pid(sock: socket.socket) -> None:
    """Have the kernel attach the sender's pid to what arrives on ``sock``; call before anything is sent to it."""
    if hasattr(socket, "SO_PASSCRED"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def peer_pid(sock: socket.socket) -> int:
    """Return the pid, as seen from here, of the sender of the next bytes, which stay in the buffer; 0 if unknown."""
    if not hasattr(socket, "SO_PASSCRED"):
        return 0
    _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("iII", data[:12])[0])
    return 0


def gpu_memory_by_process() -> dict[int, int]:
    """Return the bytes in use on NVIDIA's GPUs by pid; empty if the driver cannot be asked. The pids are the machine's,
    which differ from those inside a container."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[int, int] = {}
    for line in lines:
        pid, _, mebibytes = line.partition(",")
        if pid.strip().isdigit() and mebibytes.strip().isdigit():
            found[int(pid)] = found.get(int(pid), 0) + int(mebibytes) * 2**20
    return found


def memory_of(pid: int) -> int:
    """Resident bytes of one process."""
    process = _process(pid)
    return process.memory if process else 0


def _tree(root: int) -> list[int]:
    tree = [root]
    for pid in tree:  # grows while it is walked
        tree += _children(pid)
        if len(tree) > 10_000:
            break
    return tree


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except OSError:  # ended meanwhile
        pass
    return found


def _process(pid: int) -> _Process | None:
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    user, system, child_user, child_system = (int(field) / TICKS for field in fields[11:15])
    runnable = fields[0] == "R"  # not D: vfork puts a process into that state at no cost
    has_execed = not int(fields[6]) & PF_FORKNOEXEC
    memory, threads = int(fields[21]) * PAGE, int(fields[17])
    return _Process(user + system, child_user + child_system, memory, runnable, threads, has_execed)


def _shared_anonymous(pid: int) -> list[tuple[str, int]]:
    """Return inode and bytes of every shared mapping of memory without a file (mmap or /dev/zero), touched or not."""
    found = []
    for line in _read(f"/proc/{pid}/maps").split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][3:4] == "s" and fields[5].startswith("/dev/zero"):
            start, _, end = fields[0].partition("-")
            found.append((fields[4], int(end, 16) - int(start, 16)))
    return found


def _number_inside(pid: int) -> int:
    """Return a process's pid in its own namespace. Pids are given in order, so it counts the processes and threads."""
    for line in _read(f"/proc/{pid}/status").split("\n"):  # a process may put any other line end into its own name
        if line.startswith("NSpid:"):
            return int(line.split()[-1]) if len(line.split()) > 2 else 0  # no namespace of its own: no count
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            return file.read()
    except OSError:
        return ""
