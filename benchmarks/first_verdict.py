"""Time of one submission by itself, compared with `import torch`: a week's solution in a new, ungraded course root."""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import COURSE, autograde, load, machine, plain_environment

from autograder.classroom import make_course_root
from autograder.course import assignment_of
from autograder.manifest import MANIFEST

REPORT = COURSE / "benchmarks" / "results_first.md"
ROUNDS = 7  # in each: torch, the submission, torch
GOAL = 2.0  # times `import torch`, median


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--week", help="only this week (default: all); leaves the report as it is")
    options = parser.parse_args()
    weeks = [assignment_of(options.week, COURSE)] if options.week else list(MANIFEST)
    rows, others = [], load()
    for assignment in weeks:
        one_round(assignment)  # warm-up: reads files from the disk, and compiles them
        torch, verdict, ratio = zip(*(one_round(assignment) for _ in range(ROUNDS)), strict=True)
        rows.append(
            f"| {assignment.split('_')[0]} | {statistics.median(torch):.2f} s | {statistics.median(verdict):.2f} s | "
            f"**{statistics.median(ratio):.2f} ×** | {min(ratio):.2f} to {max(ratio):.2f} |"
        )
        print(rows[-1], flush=True)
        if statistics.median(ratio) > GOAL:
            print(f"{assignment}: more than {GOAL:g} times `import torch`")
    if not options.week:
        REPORT.write_text(report(rows, others), encoding="utf-8")
    return 0


def one_round(assignment: str) -> tuple[float, float, float]:
    """Seconds of `import torch`, of the command for one submission, and their ratio."""
    before = seconds_of([sys.executable, "-c", "import torch"])
    with tempfile.TemporaryDirectory(prefix="first-") as scratch:
        root = Path(scratch) / "course"
        make_course_root(COURSE, root, [assignment])
        shutil.copytree(COURSE / "solutions" / assignment, root / "submitted" / "ada" / assignment)
        verdict = seconds_of(autograde(root, assignment))
        assert (root / "autograded" / "ada" / assignment / f"{assignment}.ipynb").is_file()
    torch = (before + seconds_of([sys.executable, "-c", "import torch"])) / 2
    return torch, verdict, verdict / torch


def seconds_of(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=COURSE, env=plain_environment(), stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def report(rows: list[str], others: float) -> str:
    return "\n".join(
        [
            "# One submission by itself",
            "",
            "Made by `make bench-first`: seconds of the command behind `make autograde` for one submission, the week's solution in a",
            f'course root where nothing is graded yet, and of `python -c "import torch"` right before and after; medians of {ROUNDS}.',
            f"Goal: at most {GOAL:g} times `import torch`.",
            "",
            "| week | import torch | one submission | ratio | from … to |",
            "| --- | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            *[f"- {name}: {text}" for name, text in machine().items()],
            f"- cores in use by others when it began: {others:g}",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
