"""`make scale`: compares a large class with small ones: time per submission, memory over time, what is left behind.

The submissions are those of the simulated class, each with its own answers and expected score.
"""

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import gradebook_scores
from measure import COURSE, QUIET, Measured, autograde, descendants, load, machine, measure, plain_environment

from autograder.classroom import Student, make_course_root, simulate
from autograder.course import assignment_of

AROUND = 3  # small classes before the large one, and after it: a machine's speed differs from minute to minute
REPORT = Path(__file__).parent / "results_scale.md"


@dataclass
class Run:
    """One run over a class of ``count``."""

    count: int
    measured: Measured
    wrong: list[str]
    left: list[str]

    def flatness(self) -> tuple[float, float]:
        """Median memory in MB in the second and in the last quarter of the run; the median, as workers come and go."""
        end = self.measured.samples[-1][0] if self.measured.samples else 0

        def between(a: float, b: float) -> float:
            return statistics.median([mb for when, mb in self.measured.samples if a * end <= when <= b * end] or [0.0])

        return between(0.25, 0.5), between(0.75, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--week", default="1")
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--small", type=int, default=100, help="size of the class it is compared with")
    parser.add_argument("--isolation", default="bubblewrap")
    options = parser.parse_args()
    assignment = assignment_of(options.week, COURSE)
    busy = load()

    def runs(*counts: int) -> list[Run]:
        return [run(assignment, count, options.isolation) for count in counts]

    around = [1, options.small] * AROUND
    before, (large,), after = runs(*around), runs(options.students), runs(*around)
    text = report(assignment, before + after, large, busy)
    REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(r.wrong or r.left for r in (*before, large, *after)) else 0


def run(assignment: str, count: int, isolation: str = "bubblewrap") -> Run:
    """Simulate and grade ``count`` submissions in a fresh course root."""
    print(f"{assignment}: {count} submissions …", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as scratch,
        tempfile.TemporaryDirectory(prefix="scale-tmp-") as temporary,
    ):
        root = Path(scratch) / "course"
        make_course_root(COURSE, root, [assignment])
        students = simulate(COURSE, root, assignment, count)
        with open(root / "scale.log", "w") as log:
            measured = measure(
                autograde(root, assignment, "--isolation", isolation),
                every=2.0 if count > 50 else 0.5,
                env=plain_environment() | {"TMPDIR": temporary},
                cwd=COURSE,
                stdout=log,
                stderr=log,
            )
        if measured.code:
            raise SystemExit(f"grading failed: {(root / 'scale.log').read_text()[-2000:]}")
        return Run(
            count,
            measured,
            wrong_scores(students, gradebook_scores(root, assignment)),
            left_behind(root, Path(temporary)),
        )


def wrong_scores(students: list[Student], found: dict[str, dict[str, float | None]]) -> list[str]:
    """Students whose scores differ in any cell from the hand-written ones; an ungradable one must have none."""
    wrong = []
    for student in students:
        given = found.get(student.name)
        due = dict.fromkeys(student.expected) if student.ungradable else student.expected
        if given is None or any(given.get(cell) != points for cell, points in due.items()):
            wrong.append(student.name)
    return wrong


def left_behind(root: Path, temporary: Path) -> list[str]:
    """Leftover processes, temporary files and pending results."""
    processes = [f"process {pid}" for pid in descendants(os.getpid())]
    files = [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")]
    return processes + files + [f"pending {path.name}" for path in (root / ".autograder" / "pending").glob("*")]


def report(assignment: str, around: list[Run], large: Run, busy: float) -> str:
    """The results page. ``around``: the other runs, alternately with a class of one and a small class."""
    ones, small = around[::2], around[1::2]

    def each(r: Run, what: str) -> float:
        """Milliseconds per submission beyond the first."""
        alone = statistics.mean(getattr(one.measured, what) for one in ones)
        return 1000 * (getattr(r.measured, what) - alone) / (r.count - 1)

    rows = []
    for r in (*small, large):
        early, late = r.flatness()
        rows.append(
            f"| {r.count} | {r.measured.wall:.0f} s | {each(r, 'wall'):.0f} ms | {each(r, 'cpu'):.0f} ms | {early:.0f} MB | "
            f"{late:.0f} MB | {r.measured.peak:.0f} MB | {len(r.wrong) or 'none'} | {len(r.left) or 'nothing'} |"
        )
    compared = []
    for what, name in (("cpu", "CPU"), ("wall", "wall time")):
        of_small = [each(r, what) for r in small]
        usual = statistics.mean(of_small)
        compared.append(
            f"{100 * (each(large, what) / usual - 1):+.0f}% {name} ({each(large, what):.0f} ms against {usual:.0f} ms, "
            f"which were {min(of_small):.0f} to {max(of_small):.0f} ms from one class to the next)"
        )
    return "\n".join(
        [
            f"# {large.count} submissions in one run",
            "",
            f"Made by `make scale`: {assignment}, the simulated class, isolation on, one worker per core; classes of "
            f"{small[0].count}, {AROUND} before the large one and {AROUND} after it. Time per submission is what it takes beyond a "
            "class of one; memory is the sum over all processes (PSS), the median in the second and in the last quarter of the run.",
            "",
            "| submissions | wall | wall each | CPU each | memory early | memory late | highest | wrong scores | left behind |",
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            f"Compared with one among {small[0].count}, a submission among {large.count} takes {' and '.join(compared)}. The goal is "
            "within 10%.",
            "",
            *[f"- {name}: {text}" for name, text in machine().items()],
            f"- cores in use by others when it began: {busy}" + (" (wall times mean little)" if busy > QUIET else ""),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
