"""`make bench`: one simulated class, graded by stock `nbgrader autograde` and by this course, measured and compared.

Every measurement is saved to benchmarks/runs/ at once, so a run in pieces (`WEEK=3`) or an interrupted one continues
where it stopped; `FRESH=1` measures again. The tables go to benchmarks/results.md. A class larger than usual is only
compared with stock, since its time goes to the same stages.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from measure import COURSE, QUIET, autograde, load, machine, measure, plain_environment
from nbgrader.api import Gradebook, MissingEntry
from stages import in_own_process, start_up
from stock import make_stock_root

from autograder.classroom import Student, make_course_root, simulate
from autograder.course import assignment_of
from autograder.grading.course_state import class_seed, state_folder
from autograder.manifest import MANIFEST

RUNS, REPORT = Path(__file__).parent / "runs", Path(__file__).parent / "results.md"
USUAL = 24  # submissions in a class that gets all tables
FEW = 12  # submissions in a run that only measures memory
LARGER = 4  # how many times larger the class is that shows the cost of a further submission


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--week", help="only this week (default: all)")
    parser.add_argument("--students", type=int, default=USUAL)
    parser.add_argument("--fresh", action="store_true", help="forget earlier measurements of these weeks")
    options = parser.parse_args()
    weeks = [assignment_of(options.week, COURSE)] if options.week else list(MANIFEST)
    for assignment in weeks:
        week(assignment, options.students, options.fresh)
    if not options.week:
        together(weeks, options.students, options.fresh)
    found = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    usual = min(options.students, USUAL)
    text = report(
        [w for w in found if w["students"] == usual and (w.keys() >= COMPLETE or w["assignment"] == TOGETHER)],
        [w for w in found if w["students"] > USUAL and w.keys() >= COMPARED],
    )
    REPORT.write_text(text, encoding="utf-8")
    print("\n" + text)
    return 1 if any(measured.get("differences") for measured in found) else 0


TOGETHER = "all in one run"  # its submissions are those of the weeks above it
COMPARED = {"ours", "stock", "differences", "load"}
COMPLETE = COMPARED | {"one", "larger", "open", "workers_2", "workers_4", "start_up", "stages", "stages_open", "floor"}


def week(assignment: str, count: int, fresh: bool = False) -> dict:
    """Measure one week, or what is still missing; returns everything measured."""
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{assignment}-{count}.json"
    kept = {} if fresh or not path.is_file() else json.loads(path.read_text())

    def keep(name: str, make: Callable[[], object]) -> None:
        if name not in kept:
            print(f"{assignment}: {name} …", flush=True)
            kept[name] = make()
            path.write_text(json.dumps(kept, indent=1))

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        root, stock = Path(scratch) / "ours", Path(scratch) / "stock"
        students = simulated(root, [assignment], count)[assignment]
        keep("assignment", lambda: assignment)
        keep("students", lambda: count)
        keep("load", load)
        keep("ours", lambda: _ours(root, [assignment]) | {"scores": gradebook_scores(root, assignment)})
        if count <= USUAL:
            _measure_stages(keep, assignment, count, root)
        keep("stock", lambda: _stock(root, stock, assignment, ["nbgrader", "autograde", assignment], path))
    kept["differences"] = differences(students, kept["ours"]["scores"], kept["stock"]["scores"])
    path.write_text(json.dumps(kept, indent=1))
    return kept


def _measure_stages(keep: Callable[[str, Callable[[], object]], None], assignment: str, count: int, root: Path) -> None:
    def class_of(size: int, name: str) -> Path:
        other = root.with_name(name)
        if not other.exists():
            simulated(other, [assignment], size)
        return other

    def of_further_ones(what: str) -> dict:
        """Costs of the submissions that only the larger class has: `per_submission` is about the same ones."""
        return in_own_process(class_of(LARGER * count, "larger"), assignment, what, without=root)

    keep("open", lambda: _ours(root, [assignment], "--isolation", "none", "--regrade"))
    keep("one", lambda: _ours(class_of(1, "one"), [assignment]))
    keep("larger", lambda: _ours(class_of(LARGER * count, "larger"), [assignment]))
    few = class_of(min(count, FEW), "few")
    for workers in (2, 4):
        keep(
            f"workers_{workers}",
            lambda workers=workers: _ours(few, [assignment], "--workers", str(workers), "--regrade", every=0.1),
        )
    keep("start_up", lambda: start_up(assignment))
    keep("stages", lambda: of_further_ones("isolated"))
    keep("stages_open", lambda: of_further_ones("open"))
    keep("floor", lambda: of_further_ones("floor"))


def together(assignments: list[str], count: int, fresh: bool = False) -> dict:
    """The classes of all weeks in one run of ours. Stock takes one week after the other, as measured before."""
    path = RUNS / f"together-{count}.json"
    weeks = [json.loads((RUNS / f"{assignment}-{count}.json").read_text()) for assignment in assignments]
    kept = {} if fresh or not path.is_file() else json.loads(path.read_text())
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        root = Path(scratch) / "ours"
        students = simulated(root, assignments, count)
        if not kept:
            print(f"{TOGETHER}: ours …", flush=True)
            kept = {"assignment": TOGETHER, "students": count, "load": load(), "ours": _ours(root, assignments)}
            kept["ours"]["scores"] = {assignment: gradebook_scores(root, assignment) for assignment in assignments}
    kept["stock"] = {figure: sum(week["stock"][figure] for week in weeks) for figure in ("wall", "cpu")}
    kept["stock"]["peak"] = max(week["stock"]["peak"] for week in weeks)
    kept["differences"] = [
        line
        for week in weeks
        for line in differences(
            students[week["assignment"]], kept["ours"]["scores"][week["assignment"]], week["stock"]["scores"]
        )
    ]
    path.write_text(json.dumps(kept, indent=1))
    return kept


def simulated(root: Path, assignments: list[str], count: int) -> dict[str, list[Student]]:
    """Make a course root with a simulated class, and the same hidden inputs each time: so for both sides, in pieces too."""
    make_course_root(COURSE, root, assignments)
    (state_folder(root) / "seed").write_text("benchmark\n")
    return {assignment: simulate(COURSE, root, assignment, count) for assignment in assignments}


def _ours(root: Path, assignments: list[str], *more: str, every: float = 1.0) -> dict:
    """Run the recipe of `make autograde` on this course root."""
    shutil.rmtree(root / "autograded", ignore_errors=True)
    command = autograde(root, ",".join(assignments), *more)
    measured = measure(command, every, env=plain_environment(), cwd=COURSE, stdout=_log(root), stderr=_log(root))
    if measured.code:
        raise SystemExit(f"grading failed: see {_log(root).name}")
    return asdict(measured)


def _stock(ours: Path, root: Path, assignment: str, command: list[str], log: Path) -> dict:
    make_stock_root(ours, root, assignment, class_seed(ours, assignment))
    measured = measure(command, cwd=root, env=plain_environment(), stdout=_log(log), stderr=_log(log))
    return asdict(measured) | {
        "scores": gradebook_scores(root, assignment)
    }  # stock fails if it cannot read a submission


def _log(path: Path):
    return open(path.with_suffix(".log"), "a")


# ---- scores ---------------------------------------------------------------------------------------------------------


def gradebook_scores(root: Path, assignment: str) -> dict[str, dict[str, float | None]]:
    """Automatic scores by student and cell; students without a grade are left out."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        try:
            submissions = gradebook.find_assignment(assignment).submissions
        except MissingEntry:
            return {}
        return {
            submission.student.id: {
                grade.name: grade.auto_score for notebook in submission.notebooks for grade in notebook.grades
            }
            for submission in submissions
        }


def differences(students: list[Student], ours: dict, stock: dict) -> list[str]:
    """Where the two disagree on a gradable submission, or where ours is not the expected score."""
    found = []
    for student in students:
        if student.ungradable:
            continue
        mine, theirs = ours.get(student.name, {}), stock.get(student.name, {})
        for cell, expected in student.expected.items():
            a, b = mine.get(cell), theirs.get(cell)
            if a != b and (a is None or b is None or abs(a - b) > 1e-6):
                found.append(f"{student.name}, {cell}: stock {_points(b)}, ours {_points(a)}")
            if expected is not None and a != expected:
                found.append(f"{student.name}, {cell}: expected {_points(expected)}, ours {_points(a)}")
    return found


def _points(score: float | None) -> str:
    return "none" if score is None else f"{score:g}"


# ---- tables ---------------------------------------------------------------------------------------------------------


def report(weeks: list[dict], larger: list[dict] = ()) -> str:
    """The results page. ``larger``: the same weeks with larger classes, which are only compared with stock."""
    if all(w["assignment"] == TOGETHER for w in weeks):  # no week is fully measured
        weeks = []
    if not weeks and not larger:
        return "# Benchmark\n\nNothing is measured yet: run `make bench`.\n"
    lines = [
        "# Benchmark",
        "",
        "Made by `make bench`: the same simulated class, graded by stock `nbgrader autograde` and by "
        "`make autograde` in sandboxes.",
        "",
        *(_comparison(weeks) if weeks else []),
        "Stock runs with nbgrader's defaults, on one core, and gives ungradable files no grade either. Neither runs the cells tagged "
        '`experiment`: stock by its option `Execute.skip_cells_with_tag = "experiment"`. For stock the hidden tests are let into the '
        "student's kernel (they refuse otherwise) and their score is the cell's value, nbgrader's partial credit; warnings are silenced in them, as stock "
        "takes anything on stderr for a failure. Memory is the "
        "highest sum of all processes (PSS), looked at once a second; CPU is user and system time of all of them.",
        "",
        *(["## A larger class", "", *_comparison(larger)] if larger else []),
        *(_stages_section([w for w in weeks if w["assignment"] != TOGETHER]) if weeks else []),
        "## Machine",
        "",
        *[f"- {name}: {text}" for name, text in machine().items()],
        f"- cores in use by others when the weeks began: {', '.join(str(w['load']) for w in [*weeks, *larger])}"
        + _warning([*weeks, *larger]),
        "",
    ]
    return "\n".join(lines)


def _comparison(weeks: list[dict]) -> list[str]:
    """Stock and ours, week by week and together."""
    measured = weeks
    weeks = [w for w in measured if w["assignment"] != TOGETHER]
    rows = [_row(w) for w in weeks]
    total = {side: sum(w[side]["wall"] for w in weeks) for side in ("stock", "ours")}
    rows.append(
        [
            "all",
            "",
            f"{total['stock']:.0f} s",
            f"{total['ours']:.1f} s",
            f"**{total['stock'] / total['ours']:.1f} ×**",
            *[f"{sum(w[side]['cpu'] for w in weeks):.0f} s" for side in ("stock", "ours")],
            "",
            "",
            "",
        ]
    )
    return [
        *_table(
            [
                "week",
                "submissions",
                "wall, stock",
                "wall, ours",
                "ratio",
                "CPU, stock",
                "CPU, ours",
                "memory, stock",
                "memory, ours",
                "scores",
            ],
            rows + [_row(w) for w in measured if w["assignment"] == TOGETHER],
        ),
        "",
        *[f"- {_short(w)}: {line}" for w in measured for line in w["differences"]],
    ]


def _row(w: dict) -> list[str]:
    return [
        _short(w),
        str(w["students"]),
        f"{w['stock']['wall']:.0f} s",
        f"{w['ours']['wall']:.1f} s",
        f"**{w['stock']['wall'] / w['ours']['wall']:.1f} ×**",
        f"{w['stock']['cpu']:.0f} s",
        f"{w['ours']['cpu']:.1f} s",
        f"{w['stock']['peak']:.0f} MB",
        f"{w['ours']['peak']:.0f} MB",
        "identical" if not w["differences"] else f"{len(w['differences'])} differ",
    ]


def _stages_section(weeks: list[dict]) -> list[str]:
    return [
        "## Where our time goes",
        "",
        "CPU seconds, without plots and training cells: of a whole run with one submission, the start of its processes included, and of "
        f"each further submission, which is by how much a class {LARGER} times as large takes longer; the stages and the floor are "
        "those of the same submissions.",
        "",
        *_table(["", *map(_short, weeks)], _stage_rows(weeks)),
        "",
        "The floor is the notebook's cells, visible and hidden tests included, run by a bare `exec` in a bare fork of a warm process: "
        "no isolation, no wire, no intake, no gradebook. The goal is at most 2 × the floor.",
        "",
        "## Memory and isolation",
        "",
        *_table(["", *map(_short, weeks)], _other_rows(weeks)),
        "",
    ]


def _warning(weeks: list[dict]) -> str:
    busy = max(w["load"] for w in weeks) > QUIET
    return (
        ". **The machine was busy with other things: wall times and their ratio mean little, CPU times are somewhat too high.**"
        if busy
        else ""
    )


def _stage_rows(weeks: list[dict]) -> list[list[str]]:
    def row(name: str, value: Callable[[dict], float], form: str = "{:.3f}") -> list[str]:
        return [name, *[form.format(value(w)) for w in weeks]]

    return [
        row("a run with one submission", lambda w: w["one"]["cpu"], "{:.2f}"),
        row("start of the command", lambda w: w["start_up"]["command"], "{:.2f}"),
        row("start of the checking process", lambda w: w["start_up"]["checks"], "{:.2f}"),
        row("start of the sandbox", lambda w: w["stages"]["sandbox"], "{:.2f}"),
        row("intake", lambda w: w["stages"]["intake"]),
        row("fork, namespaces, handshake, end", lambda w: w["stages"]["open"]),
        row("in the sandbox: the above, cells, calls by the checks", lambda w: w["stages"]["untrusted"]),
        row("checks and diagnosis", lambda w: w["stages"]["trusted"]),
        row("gradebook, autograded notebook, progress", gradebook_cost),
        row("**a further submission**", per_submission),
        row("floor: the student's cells alone", lambda w: w["floor"]["cells"]),
        row("floor: cells and tests", lambda w: w["floor"]["cells_and_tests"]),
        row("**submission / floor**", lambda w: per_submission(w) / w["floor"]["cells_and_tests"], "**{:.1f} ×**"),
    ]


def per_submission(w: dict) -> float:
    """CPU seconds that each further submission of a larger class costs.

    This leaves out what is paid once: the start, and what the first few answers of a kind cost the judges.
    """
    return (w["larger"]["cpu"] - w["ours"]["cpu"]) / ((LARGER - 1) * w["students"])


def gradebook_cost(w: dict) -> float:
    """A further submission's CPU time without the measured stages."""
    return per_submission(w) - w["stages"]["intake"] - w["stages"]["trusted"] - w["stages"]["untrusted"]


def _other_rows(weeks: list[dict]) -> list[list[str]]:
    each = [(w["workers_4"]["peak"] - w["workers_2"]["peak"]) / 2 for w in weeks]
    return [
        ["memory of each further worker (goal: at most 150 MB)", *[f"{mb:.0f} MB" for mb in each]],
        [
            "CPU of the run with isolation, without",
            *[f"{w['ours']['cpu']:.1f} s, {w['open']['cpu']:.1f} s" for w in weeks],
        ],
        [
            "wall of the run with isolation, without",
            *[f"{w['ours']['wall']:.1f} s, {w['open']['wall']:.1f} s" for w in weeks],
        ],
        [
            "fork, namespaces, handshake, end: with isolation, without",
            *[f"{1000 * w['stages']['open']:.0f} ms, {1000 * w['stages_open']['open']:.0f} ms" for w in weeks],
        ],
    ]


def _short(w: dict) -> str:
    return w["assignment"].split("_")[0]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---", *["---:"] * (len(head) - 1)], *rows]]


if __name__ == "__main__":
    sys.exit(main())
