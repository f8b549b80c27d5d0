"""`make scale-cluster`: a large class over two Dask workers on this machine, one of which is killed in the middle.

It is not replaced, so the other one grades the rest. Every score must be as expected, and nothing may be left behind.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench import gradebook_scores
from measure import COURSE, QUIET, autograde, load, machine, measure, plain_environment
from scale import left_behind, wrong_scores

from autograder.classroom import make_course_root, simulate
from autograder.course import assignment_of

REPORT = Path(__file__).parent / "results_cluster.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--week", default="1")
    parser.add_argument("--students", type=int, default=1000)
    options = parser.parse_args()
    assignment, busy = assignment_of(options.week, COURSE), load()
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch, tempfile.TemporaryDirectory() as temporary:
        root, folder = Path(scratch) / "course", Path(scratch)
        make_course_root(COURSE, root, [assignment])
        students = simulate(COURSE, root, assignment, options.students)
        environment = plain_environment() | {"TMPDIR": temporary}
        with cluster(folder, environment | {"TMPDIR": scratch}) as (scheduler, workers):
            killer = Killer(workers[-1], root, assignment, options.students // 3)
            with open(folder / "run.log", "w") as log:
                measured = measure(
                    autograde(root, assignment, "--scheduler", str(scheduler)),
                    every=5.0,
                    env=environment,
                    cwd=COURSE,
                    stdout=log,
                    stderr=log,
                )
            killer.stop()
        wrong = wrong_scores(students, gradebook_scores(root, assignment))
        left = left_behind(root, Path(temporary))
        if measured.code or not killer.killed_at:
            raise SystemExit(f"code {measured.code}: {(folder / 'run.log').read_text()[-2000:]}")
    text = "\n".join(
        [
            f"# {options.students} submissions over two Dask workers, one of them killed",
            "",
            f"Made by `make scale-cluster`: {assignment}, the simulated class, isolation on; scheduler and workers on this machine. "
            f"One worker was killed for good when {killer.done} submissions were done, after {killer.killed_at:.0f} s.",
            "",
            f"- wall: {measured.wall:.0f} s, {1000 * killer.killed_at / killer.done:.0f} ms a submission with two workers, "
            f"{1000 * (measured.wall - killer.killed_at) / (options.students - killer.done):.0f} ms with one",
            f"- memory of the command: at most {measured.peak:.0f} MB",
            f"- wrong scores: {', '.join(wrong[:10]) or 'none'}",
            f"- left behind: {', '.join(left) or 'nothing'}",
            *[f"- {name}: {text}" for name, text in machine().items()],
            f"- cores in use by others when it began: {busy}" + (" (wall times mean little)" if busy > QUIET else ""),
            "",
        ]
    )
    REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 1 if wrong or left else 0


class Killer:
    """Kills a worker as soon as ``when`` submissions are done."""

    def __init__(self, worker: subprocess.Popen, root: Path, assignment: str, when: int) -> None:
        self.killed_at, self.done = 0.0, 0
        self._worker, self._root, self._pattern, self._when = worker, root, f"autograded/*/{assignment}", when
        self._start, self._over = time.perf_counter(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(2):
            self.done = sum(1 for _ in self._root.glob(self._pattern))
            if self.done >= self._when:
                self.killed_at = time.perf_counter() - self._start
                os.kill(self._worker.pid, signal.SIGKILL)
                return


@contextlib.contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[tuple[Path, list[subprocess.Popen]]]:
    """Run a scheduler, yielded as its file, and two workers without a nanny that would replace them."""
    scheduler = folder / "scheduler.json"
    common = ["--scheduler-file", str(scheduler), "--host", "127.0.0.1", "--no-dashboard"]
    processes: list[subprocess.Popen] = []

    def start(*arguments: str) -> None:
        log = open(folder / f"dask-{len(processes)}.log", "w")  # noqa: SIM115  the process writes to it as long as it runs
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments, *common], env=environment, stdout=log, stderr=log
            )
        )

    try:
        start("scheduler", "--port", "0", "--no-show")
        while not scheduler.is_file():
            time.sleep(0.1)
        for _ in range(2):
            start("worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        yield scheduler, processes[1:]
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
