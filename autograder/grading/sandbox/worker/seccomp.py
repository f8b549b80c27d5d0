"""The system calls that a notebook may not make: each by name, with its number on each machine and the reason.

A fork installs the filter once, after its namespaces are made, and can never remove it. On a machine that is not in the
table nothing can run isolated: `supported` says so before anybody is graded.
"""

import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# name: (x86_64, aarch64)
MEMORY_FILES = {  # memory that is in no process's page tables, and so counts for no process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
QUEUES = {  # memory, semaphores and queues that outlive the process that made them
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),  # the POSIX kind, which lasts as long
}
NAMESPACES_AND_MOUNTS = {  # they change the view of the machine, and open most of the kernel's past holes
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
OTHERS = {  # memory, files and descriptors of other processes
    "ptrace": (101, 117),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "fanotify_init": (300, 262),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "userfaultfd": (323, 282),
}
KERNEL = {  # programs and counters in the kernel, its key rings, and calls that bypass this filter
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
OWN_LIMITS = {  # a process that lowers its own can get the kernel to kill it, as if the machine were short of memory
    "setrlimit": (160, 164),
}
FORBIDDEN = MEMORY_FILES | QUEUES | NAMESPACES_AND_MOUNTS | OTHERS | KERNEL | OWN_LIMITS
NEEDED_BY_CUDA = {"memfd_create"}
CLONE = (56, 220)  # allowed, but not with flags for new namespaces
NEW_NAMESPACES = 0x7E020080  # CLONE_NEW* of clone's first argument
# A filter cannot see clone3's flags, which are in memory: say that it does not exist, and libc falls back to clone.
CLONE3 = (435, 435)
FCNTL, F_SETLEASE = (72, 25), 1024  # allowed, but not for leases: the next process to open the file would have to wait
PRLIMIT = (302, 261)  # allowed, but only to read: its third argument, the pointer to new limits, must be null
# Only these families of sockets are allowed; all others are refused (vsock, for one, reaches the machine's host).
SOCKET, SOCKETPAIR = (41, 198), (53, 199)
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = 0x00050001, 0x00050026, 0x00050061  # SECCOMP_RET_ERRNO with the number
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF instructions
NUMBER, ARCHITECTURE = 0, 4  # offsets in seccomp's data
FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT = 16, 24, 32  # an argument has two words
X32 = 0x40000000  # numbers of x86-64's second table begin here
PR_SET_SECCOMP, FILTER = 22, 2

Instruction = tuple[int, int, int, int]


def supported(machine: str) -> bool:
    """Whether the table knows this machine (`uname -m`)."""
    return machine in AUDIT_ARCHITECTURE


def program(machine: str, device: str) -> list[Instruction]:
    """The filter as BPF instructions. Raises ``OSError`` for a machine that the table does not know."""
    if not supported(machine):
        raise OSError(f"no system call filter for {machine}: grading in isolation works on x86-64 and ARM64")
    column = list(AUDIT_ARCHITECTURE).index(machine)
    lines: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, AUDIT_ARCHITECTURE[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, KILL),
    ]
    for name, numbers in FORBIDDEN.items():
        if device != "cuda" or name not in NEEDED_BY_CUDA:
            lines += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, EPERM)]
    lines += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, ENOSYS)]
    for call in (SOCKET, SOCKETPAIR):
        lines += [(EQUAL, 0, 2 * len(FAMILIES) + 2, call[column]), (LOAD, 0, 0, FIRST_ARGUMENT)]
        for family in FAMILIES.values():
            lines += [(EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
        lines += [(RETURN, 0, 0, EAFNOSUPPORT)]
    lines += [(EQUAL, 0, 3, FCNTL[column]), (LOAD, 0, 0, SECOND_ARGUMENT), (EQUAL, 0, 1, F_SETLEASE)]
    lines += [(RETURN, 0, 0, EPERM), (LOAD, 0, 0, NUMBER)]
    lines += [(EQUAL, 0, 6, PRLIMIT[column]), (LOAD, 0, 0, THIRD_ARGUMENT), (EQUAL, 0, 3, 0)]
    lines += [(LOAD, 0, 0, THIRD_ARGUMENT + 4), (EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)]
    return [
        *lines,
        (EQUAL, 1, 0, CLONE[column]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def forbid_system_calls(device: str) -> None:
    """Put the filter on this process and all it starts, for good."""
    lines = program(os.uname().machine, device)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(code)))
    if libc.prctl(PR_SET_SECCOMP, FILTER, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
