"""`make hostile`: grades the hostile class of week 3 in one run of plain `nbgrader autograde` with the default limits.

It reports the wall time per submission and the slowest submissions: none may go over its own limits.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from measure import QUIET, load, machine, measure

COURSE, REPORT = Path(__file__).resolve().parents[1], Path(__file__).parent / "hostile.md"
sys.path[:0] = [str(COURSE / "tests"), str(COURSE)]

from helpers import environment, standing  # noqa: E402
from hostile.bank import WEEK, released, write_entry  # noqa: E402
from hostile.bank import load as load_bank  # noqa: E402
from hostile.class_run import ResultWatch  # noqa: E402

from autograder.classroom import make_course_root  # noqa: E402


def main() -> None:
    bank = load_bank()
    before = load()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "course"
        make_course_root(COURSE, root, [WEEK])
        notebook = released()
        for entry in bank:
            folder = root / "submitted" / entry.student / WEEK
            folder.mkdir(parents=True)
            write_entry(entry, notebook, folder, root)
        watch = ResultWatch(root)
        watch.start()
        log = Path(place) / "log"
        with log.open("w") as out:
            command = [str(Path(sys.executable).with_name("nbgrader")), "autograde", WEEK]
            measured = measure(command, cwd=root, env=environment(), stdout=out, stderr=subprocess.STDOUT)
        watch.stop.set()
        graded = len(standing(root, WEEK))
    REPORT.write_text(report(len(bank), graded, measured.wall, measured.cpu, watch.seconds, before), encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))
    sys.exit(measured.code or graded != len(bank))


def report(count: int, graded: int, wall: float, cpu: float, seconds: dict[str, float], before: float) -> str:
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:12]
    lines = [
        "# The hostile class",
        "",
        "Made by `make hostile`: every submission of `tests/hostile/` for week 3, hostile, broken and honest, graded in one",
        f"run of `nbgrader autograde` with the default limits. {'; '.join(f'{k} {v}' for k, v in machine().items())}.",
        "",
        f"- {graded} of {count} submissions in the gradebook",
        f"- {wall:.0f} s of wall time: **{wall / count:.2f} s a submission**; {cpu:.0f} s of CPU, {cpu / count:.2f} s each",
        f"- load before the run: {before:.1f}"
        + ("" if before <= QUIET else " (**not quiet**: the wall time says little)"),
        "",
        "| slowest submissions | seconds, waiting included |",
        "| --- | ---: |",
        *(f"| `{name[:60]}` | {taken:.1f} |" for name, taken in slowest),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
