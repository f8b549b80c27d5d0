"""What a submission's processes use, read from /proc by the trusted side: CPU seconds and memory of the whole tree.

The root of the tree is the first process of the submission's pid namespace: what it starts can neither leave the tree
(orphans return to it) nor outlive it. Its pid comes from the kernel with the first message, so it cannot be forged.
"""

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """CPU in seconds since the processes started, resident memory in bytes, whether any of them wants the CPU now."""

    cpu: float
    memory: int
    runnable: bool


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
            return struct.unpack("iII", data[:12])[0]
    return 0


def memory_of(pid: int) -> int:
    """Resident bytes of one process."""
    fields = _stat(Path(f"/proc/{pid}"))
    return fields[2] if fields else 0


def usage(root: int, baseline: int = 0) -> Usage:
    """Of the process ``root`` and all its descendants. ``baseline`` bytes of each, the pages inherited from the fork
    server, are shared and not counted."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(entry)):
            table[int(entry.name)] = fields
    tree, grown = {root}, True
    while grown:
        more = {pid for pid, fields in table.items() if fields[0] in tree} - tree
        tree, grown = tree | more, bool(more)
    found = [table[pid] for pid in tree if pid in table]
    reaped = table[root][3] if root in table else 0.0
    cpu, memory = sum(fields[1] for fields in found), sum(max(0, fields[2] - baseline) for fields in found)
    return Usage(cpu + reaped, memory, any(fields[4] for fields in found))


def _stat(entry: Path) -> tuple[int, float, int, float, bool] | None:
    """Parent, own CPU seconds, resident bytes, CPU seconds of reaped children, whether it runs or would run."""
    try:
        text = (entry / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    user, system, child_user, child_system = (int(field) / TICKS for field in fields[11:15])
    return int(fields[1]), user + system, int(fields[21]) * PAGE, child_user + child_system, fields[0] in "RD"
