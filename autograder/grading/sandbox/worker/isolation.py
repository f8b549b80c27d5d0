"""The walls of one fork: namespaces, privileges, limits, descriptors. seccomp.py lists the forbidden system calls."""

import ctypes
import os
import resource
import signal
import socket
import stat
import sys
from typing import Any

from seccomp import AUDIT_ARCHITECTURE, CLONE, forbid_system_calls, libc

CLONE_NEW = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "mount": 0x00020000,
    "network": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
}
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 0x4000, 1 << 18

TERMINALS = b"newinstance,ptmxmode=0666,mode=620,max=16"  # of the machine's 4096 terminals


def prctl(option: int, value: int) -> None:
    """Call prctl on Linux; elsewhere student code runs without isolation anyway."""
    if sys.platform.startswith("linux"):
        libc.prctl(option, value, 0, 0, 0)


def make_dumpable(yes: bool) -> None:
    """Set whether other processes of the same user may look into this one, through /proc or by tracing."""
    prctl(PR_SET_DUMPABLE, int(yes))


def die_with_parent() -> None:
    """Have this process killed when the one that started it ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def close_walls(limits: dict[str, Any], device: str) -> None:
    """Lock this process down: the last step inside the new namespaces, before the first line of student code."""
    os.setsid()  # else a signal to the process group would reach the server and every other fork
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
    drop_privileges()
    forbid_system_calls(device)


def checked(result: int, what: str | bytes) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what!r}: {os.strerror(number)}")


def fork_into_namespaces() -> int:
    """Fork like `os.fork`; the child is the first process in new user, pid, mount, network, ipc and uts namespaces.
    Nothing inside can kill it, and its end ends everything inside.

    One clone copies the server's page tables once; `unshare` would need a second fork to enter the new pid namespace.
    Python requires the three ``PyOS`` calls around any fork that does not use `os.fork`."""
    python = ctypes.pythonapi
    clone = ctypes.PyDLL(None, use_errno=True).syscall
    clone.restype, clone.argtypes = ctypes.c_long, [ctypes.c_long] * 6
    number = CLONE[list(AUDIT_ARCHITECTURE).index(os.uname().machine)]
    python.PyOS_BeforeFork()
    pid: int = clone(number, sum(CLONE_NEW.values()) | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    checked(0 if pid > 0 else -1, "clone")
    return pid


def furnish_namespaces(uid: int, gid: int) -> None:
    """Set up the new namespaces: the same user as outside, an empty /tmp and /dev/shm, no /proc."""
    make_dumpable(True)  # otherwise /proc/self belongs to nobody; no student code runs yet
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    checked(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount / private")
    for node in os.scandir(b"/dev"):
        if stat.S_ISCHR(node.stat(follow_symlinks=False).st_mode):
            keep_times_of(node.path)
    for folder in (b"/tmp", b"/dev/shm"):
        checked(libc.mount(b"tmpfs", folder, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=64m,nr_inodes=4k,mode=700"), folder)
    checked(libc.mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID, TERMINALS), "/dev/pts")
    checked(libc.mount(b"tmpfs", b"/proc", b"tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, b"size=4k,mode=555"), "/proc")


def keep_times_of(node: bytes) -> None:
    """Make a device read-only: it is the machine's own, and its times could carry a message to later forks."""
    locked = os.statvfs(node).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    checked(libc.mount(None, node, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked, None), node)


def drop_privileges() -> None:
    for capability in range(64):
        prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def set_limits(limits: dict[str, Any]) -> None:
    """Set the limits that the kernel itself enforces; the others are watched from outside."""

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


def detach(sock: socket.socket) -> None:
    """Close all descriptors but the connection: the control socket and the server's log belong to all submissions."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, sock.fileno())
    os.closerange(sock.fileno() + 1, 4096)
