"""The filter of system calls, interpreted by the test: what it forbids and allows on each machine."""

import pytest

from autograder.grading.sandbox.worker import seccomp
from autograder.grading.sandbox.worker.seccomp import ALLOW, EAFNOSUPPORT, ENOSYS, EPERM, KILL, program, supported

MACHINES = list(seccomp.AUDIT_ARCHITECTURE)


def decide(
    machine: str,
    number: int,
    argument: int = 0,
    device: str = "cpu",
    architecture: int | None = None,
    second: int = 0,
    third: int = 0,
) -> int:
    """Return what the kernel would do, by interpreting the five BPF instructions in use."""
    data = {
        seccomp.NUMBER: number,
        seccomp.FIRST_ARGUMENT: argument,
        seccomp.SECOND_ARGUMENT: second,
        seccomp.THIRD_ARGUMENT: third % 2**32,
        seccomp.THIRD_ARGUMENT + 4: third // 2**32,
        seccomp.ARCHITECTURE: seccomp.AUDIT_ARCHITECTURE[machine] if architecture is None else architecture,
    }
    tests = {
        seccomp.EQUAL: lambda a, k: a == k,
        seccomp.AT_LEAST: lambda a, k: a >= k,
        seccomp.ANY_BIT: lambda a, k: bool(a & k),
    }
    lines, place, value = program(machine, device), 0, 0
    while True:
        code, yes, no, constant = lines[place]
        place += 1
        if code == seccomp.RETURN:
            return constant
        if code == seccomp.LOAD:
            value = data[constant]
        else:
            place += yes if tests[code](value, constant) else no


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", seccomp.FORBIDDEN)
def test_what_is_forbidden_is_refused(machine: str, name: str) -> None:
    number = seccomp.FORBIDDEN[name][MACHINES.index(machine)]
    assert decide(machine, number) == EPERM
    on_gpu = ALLOW if name in seccomp.NEEDED_BY_CUDA else EPERM
    assert decide(machine, number, device="cuda") == on_gpu


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_goes_round_the_filter(machine: str) -> None:
    for io_uring in (425, 426, 427):  # setup, enter, register: the same on both machines
        assert decide(machine, io_uring) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_allowed_by_list(machine: str) -> None:
    for call in (seccomp.SOCKET, seccomp.SOCKETPAIR):
        number = call[MACHINES.index(machine)]
        for family in range(64):  # 40 is vsock, which reaches the machine's host; 16 netlink, 17 packet
            assert decide(machine, number, family) == (ALLOW if family in (1, 2, 10) else EAFNOSUPPORT), family


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_are_read_and_not_set(machine: str) -> None:
    number = seccomp.PRLIMIT[MACHINES.index(machine)]
    assert decide(machine, number) == ALLOW
    for place in (1, 2**31, 2**32, 0x7FFF_0000_1234_5678):
        assert decide(machine, number, third=place) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_locked_but_not_leased(machine: str) -> None:
    number = seccomp.FCNTL[MACHINES.index(machine)]
    assert decide(machine, number, second=1024) == EPERM
    assert all(decide(machine, number, second=command) == ALLOW for command in (0, 1, 5, 6, 37, 1025))


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_but_no_namespaces(machine: str) -> None:
    clone, clone3 = seccomp.CLONE[MACHINES.index(machine)], seccomp.CLONE3[MACHINES.index(machine)]
    assert decide(machine, clone, 0x00010000) == ALLOW and decide(machine, clone3) == ENOSYS
    for flag in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x04000000, 0x08000000, 0x02000000, 0x80):
        assert decide(machine, clone, flag | 17) == EPERM, hex(flag)


@pytest.mark.parametrize("machine", MACHINES)
def test_another_table_of_calls_kills(machine: str) -> None:
    assert decide(machine, 0, architecture=0x40000003) == KILL  # 32-bit calls
    assert decide(machine, seccomp.X32) == KILL
    assert decide(machine, 0) == ALLOW


def test_a_machine_that_is_not_in_the_table_is_refused() -> None:
    assert not supported("riscv64")
    with pytest.raises(OSError, match="riscv64"):
        program("riscv64", "cpu")
