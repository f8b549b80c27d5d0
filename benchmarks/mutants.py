"""`make mutants`: are the hidden tests sharp? Every right answer is changed in one place, in all ways that
`mutators` knows, and each of these mutants is graded. One that keeps full marks survives.

A survivor that the contract cannot tell from a right answer is listed in mutants.toml, with the reason. Any other
survivor is an error, and so is a listed mutant that no longer survives. The table goes to benchmarks/mutants.md; with
WEEK=3 only that week's part of it is replaced.
"""

import argparse
import ast
import importlib
import json
import os
import re
import resource
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mutators import Mutant, mutants

import autograder.checks.framework
from autograder.build.regions import unmark
from autograder.build.text import to_notebook
from autograder.course import assignment_of
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.manifest import MANIFEST, Exercise, entry
from autograder.misconceptions.bank import NAMES

COURSE, HERE = Path(__file__).resolve().parents[1], Path(__file__).parent
REPORT, EQUIVALENT = HERE / "mutants.md", HERE / "mutants.toml"
SEED = 1
# A right answer takes at most 0.3 s, and 100 MB more than the process already has.
CPU_SECONDS, MEMORY = 20, 4 * 2**30


@dataclass
class Examined:
    """The results of one exercise's mutants."""

    entry: Exercise
    count: int
    unlisted: list[str]  # changes that keep full marks and are not listed
    listed: dict[str, str]  # listed changes that keep full marks, with the reason
    stale: list[str]  # listed changes that are noticed, or that no mutant has

    @property
    def killed(self) -> int:
        return self.count - len(self.unlisted) - len(self.listed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--week", help="only this week (default: all)")
    options = parser.parse_args()
    weeks = [assignment_of(options.week, COURSE)] if options.week else list(MANIFEST)
    sys.path.append(str(COURSE / "source"))  # files released with a notebook, which its set-up cell imports
    torch.set_num_threads(1)  # a forked child has none of its parent's threads
    found = {week: [examine(*one) for one in answers(week)] for week in weeks}
    write_report(found)
    for exercise in [exercise for exercises in found.values() for exercise in exercises]:
        name = f"{exercise.entry.number} {exercise.entry.grade_id}"
        print(f"{name}: {exercise.killed} of {exercise.count} noticed, {len(exercise.listed)} equivalent")
        for change in exercise.unlisted:
            print(f"  survives: {change}")
        for change in exercise.stale:
            print(f"  listed as equivalent, but no survivor: {change}")
    return 1 if any(e.unlisted or e.stale for exercises in found.values() for e in exercises) else 0


def answers(week: str) -> Iterator[tuple[str, Exercise, str, dict[str, Any]]]:
    """The right answers of a week from its text, except free text, each with the names defined before it."""
    graded = {e.grade_id for e in MANIFEST[week] if e.kind != "text"}
    names = dict(NAMES)
    for cell in to_notebook((COURSE / "source" / f"{week}.py").read_text(encoding="utf-8")).cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if "setup" in cell.metadata.get("tags", ()):
            exec(cell.source, names)
        elif grade_id in graded:
            source = unmark(cell.source, "SOLUTION")
            yield week, entry(week, grade_id), source, dict(names)
            exec(source, names)


def examine(week: str, one: Exercise, source: str, names: dict[str, Any]) -> Examined:
    """Grade all mutants of one answer."""
    judge = Judge(week, one, names)
    if not judge.passes(source):
        raise SystemExit(f"the answer to {one.grade_id} in the text of {week} does not get full marks")
    changed = mutants(source)
    survivors = [mutant.change for mutant, passed in zip(changed, judge.pass_apart(changed), strict=True) if passed]
    known = {change: group["reason"] for group in _equivalents().get(one.grade_id, ()) for change in group["changes"]}
    return Examined(
        one,
        len(changed),
        [change for change in survivors if change not in known],
        {change: known[change] for change in survivors if change in known},
        [change for change in known if change not in survivors],
    )


class Judge:
    """Says whether an answer gets full marks."""

    def __init__(self, week: str, one: Exercise, names: dict[str, Any]) -> None:
        self.entry, self.names, self.cache = one, names, ResultCache()
        self.check = getattr(importlib.import_module(f"autograder.checks.{week.split('_')[0]}"), one.grade_id)
        # Only the score counts here: nobody reads a cause, and the search for one takes most of the time.
        autograder.checks.framework.known_mistakes = lambda *exercise: ()

    def passes(self, source: str) -> bool:
        names = dict(self.names)
        try:
            exec(compile(ast.parse(source), "<mutant>", "exec"), names)
            subject = names[self.entry.grade_id]
        except Exception:
            return False
        with grading(SEED, cache=self.cache), torch.enable_grad():
            return bool(self.check(subject).score == self.entry.points)

    def pass_apart(self, changed: list[Mutant]) -> list[bool]:
        """Return each mutant's outcome. They run in a child process; if its limits end it, the current mutant has not
        passed, and another child continues with the next."""
        outcomes: list[bool] = []
        while len(outcomes) < len(changed):
            outcomes += self._in_child(changed[len(outcomes) :])
        return outcomes

    def _in_child(self, changed: list[Mutant]) -> list[bool]:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                self._report(changed, writing)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as lines:
            outcomes = [json.loads(line) for line in lines]
        os.waitpid(child, 0)
        return outcomes + [False] * (len(outcomes) < len(changed))

    def _report(self, changed: list[Mutant], writing: int) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
        for mutant in changed:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            os.write(writing, json.dumps(self.passes(mutant.source)).encode() + b"\n")


def _equivalents() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))


def write_report(found: dict[str, list[Examined]]) -> None:
    """Write the results page; weeks that were not examined keep their part."""
    old = REPORT.read_text(encoding="utf-8") if REPORT.is_file() else ""
    parts = {part.split("\n")[0]: part.rstrip() for part in re.split(r"^## ", old, flags=re.MULTILINE)[1:]}
    parts |= {week: _part(week, exercises) for week, exercises in found.items()}
    text = [
        "# Mutants of the right answers",
        "",
        "Made by `make mutants`. Every right answer is changed in one place (operators, numbers, comparisons, "
        "arguments, slices, calls, statements), and graded. *Noticed*: a mutant that loses points. *Equivalent*: one "
        "that keeps full marks and may, because what it returns is right by the contract; each is listed with its "
        "reason in `mutants.toml`. *Missed*: any other. The rate is of those that are not equivalent.",
        "",
    ]
    for week in MANIFEST:
        if week in parts:
            text += [f"## {parts[week]}", ""]
    REPORT.write_text("\n".join(text), encoding="utf-8")


def _part(week: str, exercises: list[Examined]) -> str:
    rows = [
        _row(f"{e.entry.number} `{e.entry.grade_id}`", e.count, e.killed, len(e.listed), len(e.unlisted))
        for e in exercises
    ]
    total = [
        sum(column)
        for column in zip(*((e.count, e.killed, len(e.listed), len(e.unlisted)) for e in exercises), strict=True)
    ]
    return "\n".join(
        [
            week,
            "",
            "| exercise | mutants | noticed | equivalent | missed | rate |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            _row("all", *total),
        ]
    )


def _row(name: str, count: int, killed: int, equivalent: int, missed: int) -> str:
    return f"| {name} | {count} | {killed} | {equivalent} | {missed} | {100 * killed / (killed + missed):.1f}% |"


if __name__ == "__main__":
    sys.exit(main())
