"""What a submission's processes use, read from /proc by the trusted side: CPU seconds and memory of the whole tree.

psutil reads all of /proc to find children, and neither the pid inside a namespace nor the pid of who sent a message; at
four looks a second, over many submissions, that is what this file is for.

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
PF_FORKNOEXEC = 0x40  # of the flags in /proc/PID/stat: forked, and still the same program


@dataclass(frozen=True)
class Usage:
    """CPU in seconds since the processes started, resident memory in bytes, whether any of them wants the CPU now, how
    many there are, and how many threads in them all, and how many of both there have been in the namespace."""

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
    children_cpu: float  # of those that have ended and were waited for
    memory: int
    runnable: bool
    threads: int
    has_execed: bool  # then it shares no page with the fork server any more


class ProcessTree:
    """The process ``root`` and all its descendants, looked at again and again. ``baseline`` bytes of each that has not
    called exec, the pages inherited from the fork server, are shared and not counted. Without ``counts_memory`` (a control
    group does that) memory is 0."""

    def __init__(self, root: int, baseline: int = 0, on_gpu: bool = False, counts_memory: bool = True) -> None:
        self.root, self.baseline, self.on_gpu, self.counts_memory = root, baseline, on_gpu, counts_memory
        self._next_gpu_look, self._on_gpu = 0.0, 0
        self._seen: dict[int, float] = {}  # CPU seconds of every process ever met
        self._started = 0
        self._last: tuple[float, Usage] | None = None  # when, and what was seen

    def recent(self, seconds: float) -> Usage:
        """What was seen within the last ``seconds``, or is now: a look takes longer than a quick call."""
        if self._last is not None and time.monotonic() - self._last[0] < seconds:
            return self._last[1]
        return self.look()

    def look(self) -> Usage:
        """What there is now."""
        found = {pid: process for pid in _tree(self.root) if (process := _process(pid)) is not None}
        for pid, process in found.items():
            if pid not in self._seen:
                self._started = max(self._started, _number_inside(pid))
            self._seen[pid] = max(self._seen.get(pid, 0.0), process.own_cpu)
        # Both are at least what was used: a child that nobody waits for is missing in the first, one that came and went
        # between two looks in the second.
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
        """What page tables show, and shared pages whole: these can be held without standing in any page table."""
        own = sum(max(0, process.memory - (0 if process.has_execed else self.baseline)) for process in found.values())
        shared: dict[str, int] = {}
        for pid in found:
            for inode, size in _shared_anonymous(pid):
                shared[inode] = max(size, shared.get(inode, 0))
        return own + sum(shared.values())

    def _gpu_memory(self, pids: Collection[int]) -> int:
        """Bytes on all GPUs, asked once in two seconds: each time starts a program."""
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
    """The pid, seen from here, of whoever sends the next bytes; they stay in the buffer. 0 where there is no such thing."""
    if not hasattr(socket, "SO_PASSCRED"):
        return 0
    _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("iII", data[:12])[0])
    return 0


def gpu_memory_by_process() -> dict[int, int]:
    """Bytes in use on NVIDIA's GPUs, by pid as the driver sees it: the machine's, which a grader in a container does not
    share. Empty where that cannot be asked."""
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
    runnable = fields[0] == "R"  # not D: that can be had for nothing, by vfork
    has_execed = not int(fields[6]) & PF_FORKNOEXEC
    memory, threads = int(fields[21]) * PAGE, int(fields[17])
    return _Process(user + system, child_user + child_system, memory, runnable, threads, has_execed)


def _shared_anonymous(pid: int) -> list[tuple[str, int]]:
    """Inode and bytes of every shared mapping of memory without a file (mmap, or /dev/zero), touched or not."""
    found = []
    for line in _read(f"/proc/{pid}/maps").split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][3:4] == "s" and fields[5].startswith("/dev/zero"):
            start, _, end = fields[0].partition("-")
            found.append((fields[4], int(end, 16) - int(start, 16)))
    return found


def _number_inside(pid: int) -> int:
    """The pid that a process has in its own namespace: they are given in order, to processes and threads."""
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
