"""Runs a command and measures its wall time, and the CPU time and memory of everything it started."""

import ctypes
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")


def autograde(root: Path, weeks: str, *more: str) -> list[str]:
    """The command behind `make autograde`."""
    return [sys.executable, "-m", "autograder", "--root", str(root), "autograde", "--week", weeks, *more]


def plain_environment() -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return os.environ | {"PYTHONPATH": str(COURSE), "PATH": scripts + os.pathsep + os.environ["PATH"]}


@dataclass
class Measured:
    """Seconds and megabytes. ``samples``: seconds since the start and the memory (PSS) of all processes then."""

    wall: float
    cpu: float
    peak: float
    code: int
    samples: list[tuple[float, float]] = field(default_factory=list)


def measure(command: list[str], every: float = 1.0, **options) -> Measured:
    """Run and measure ``command``. Meanwhile this process adopts orphans, so that no descendant's CPU time is lost."""
    others = _children()
    _inherit_orphans(True)
    before, start = children_cpu(), time.perf_counter()
    process = subprocess.Popen(command, **options)
    samples: list[tuple[float, float]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(every):
            samples.append((round(time.perf_counter() - start, 2), memory_of_children(others)))

    watcher = threading.Thread(target=look)
    watcher.start()
    code = process.wait()
    wall = time.perf_counter() - start
    over.set()
    watcher.join()
    reap(others)
    _inherit_orphans(False)
    return Measured(
        round(wall, 2), round(children_cpu() - before, 2), max([mb for _, mb in samples], default=0.0), code, samples
    )


def reap(others: set[int]) -> None:
    """Wait for all adopted orphans, but not for ``others``, the children that were there before."""
    while orphans := _children() - others:
        for pid in orphans:
            os.waitpid(pid, 0)


def _inherit_orphans(wanted: bool) -> None:
    ctypes.CDLL(None).prctl(36, int(wanted), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> set[int]:
    return {pid for pid, fields in _processes().items() if int(fields[1]) == os.getpid()}


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def descendants(root: int) -> set[int]:
    """Every process that ``root`` has started, directly or not."""
    children = defaultdict(list)
    for pid, fields in _processes().items():
        children[int(fields[1])].append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        more = children[todo.pop()]
        found.update(more)
        todo += more
    return found


def memory_of_children(others: set[int]) -> float:
    """Megabytes of all that this process has started, except ``others``; pages they share are counted once."""
    excepted = others.union(*map(descendants, others))
    return round(sum(pss(pid) for pid in descendants(os.getpid()) - excepted), 1)


def pss(pid: int) -> float:
    """A process's proportional share of memory in MB, or its resident memory if the kernel reports no share."""
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                if line.startswith(key):
                    return int(line.split()[1]) / 1024
        except (OSError, ValueError):
            continue
    return 0.0


def cpu_of_tree(root: int) -> float:
    """CPU seconds of a process and all it has started, including ended ones; precise to a hundredth of a second."""
    table = _processes()
    return sum(sum(map(int, table[pid][11:15])) for pid in descendants(root) | {root} if pid in table) / TICKS


def _processes() -> dict[int, list[str]]:
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            table[int(entry)] = text[text.rindex(")") + 2 :].split()
    return table


def machine() -> dict[str, str]:
    """The hardware and software of this machine, without names or paths."""
    model = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    packages = ("torch", "nbgrader", "nbclient", "ipykernel", "matplotlib")
    return {
        "CPU": model[0] if model else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GB",
        "system": f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in packages),
    }


QUIET = 0.3  # cores that others may use before a measurement means little


def load(seconds: float = 3.0) -> float:
    """How many cores other processes use just now, while this one sleeps."""
    before = _busy_ticks()
    time.sleep(seconds)
    return round((_busy_ticks() - before) / TICKS / seconds, 2)


def _busy_ticks() -> int:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + softirq + steal
