"""How long `%grade` takes for every week: the first call and ten more, in a kernel as a notebook server starts it."""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel
from measure import COURSE, cpu_of_tree, load

from autograder.course import assignment_of
from autograder.manifest import MANIFEST

REPORT = COURSE / "benchmarks" / "results_grade.md"
CALLS = 10
GOAL = 2.0  # seconds, median of ten after the first, on two idle cores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--week", help="only this week (default: all); leaves the report as it is")
    options = parser.parse_args()
    weeks = [assignment_of(options.week, COURSE)] if options.week else list(MANIFEST)
    rows, others = [], load()
    for assignment in weeks:
        (first, *later), cpu = seconds_of(assignment)
        rows.append(
            f"| {assignment.split('_')[0]} | {last_exercise(assignment)} | {first:.1f} s | "
            f"{statistics.median(later):.2f} s | {max(later):.2f} s | {cpu:.2f} s |"
        )
        print(rows[-1], flush=True)
        if statistics.median(later) > GOAL:
            print(f"{assignment}: slower than {GOAL:g} s")
    if not options.week:
        REPORT.write_text(report(rows, others), encoding="utf-8")
    return 0


def last_exercise(assignment: str) -> str:
    """The exercise that takes longest: everything before it is run too."""
    return [entry.number for entry in MANIFEST[assignment] if entry.kind != "text"][-1]


def seconds_of(assignment: str) -> tuple[list[float], float]:
    """Seconds of the first call on the week's solution and of ten more; mean CPU seconds of one of these."""
    with tempfile.TemporaryDirectory(prefix="grade-") as scratch:
        name = f"{assignment}.ipynb"
        notebook = shutil.copy(COURSE / "solutions" / assignment / name, Path(scratch) / name)
        environment = {**os.environ, "JPY_SESSION_NAME": str(notebook), "PYTHONPATH": str(COURSE)}
        manager, client = start_new_kernel(kernel_name="python3", env=environment)
        try:
            run(client, "%load_ext autograder")
            call = f"%grade {last_exercise(assignment)}"
            first, before = run(client, call), cpu_of_tree(manager.provisioner.process.pid)
            later = [run(client, call) for _ in range(CALLS)]
            return [first, *later], (cpu_of_tree(manager.provisioner.process.pid) - before) / CALLS
        finally:
            client.stop_channels()
            manager.shutdown_kernel()


def run(client: object, source: str) -> float:
    printed: list[str] = []
    start = time.perf_counter()
    client.execute_interactive(source, output_hook=lambda message: printed.append(str(message["content"])))
    taken = time.perf_counter() - start
    assert not source.startswith("%grade") or " points" in "".join(printed), printed
    return taken


def report(rows: list[str], others: float) -> str:
    return "\n".join(
        [
            "# %grade",
            "",
            "Made by `make bench-grade`: seconds from sending the cell to its answer, in a kernel on the week's solution, for the",
            f"last exercise that has tests. The first call follows `%load_ext` at once; then the median and the longest of {CALLS}.",
            f"Goal: a median of at most {GOAL:g} s on two idle cores.",
            "",
            "| week | exercise | first call | median | longest | CPU of a call |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            f"Cores in use by others when it began, of {os.cpu_count()}: {others:g}.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
