"""Checks that code that hangs, crashes or waits gets stable points: `python benchmarks/steady.py [RUNS] [NAMES]`.

Every submission of the hostile class of week 3 whose name matches NAMES is graded RUNS times alone and RUNS times in a
class of 24, on the machine as it is and beside four busy processes, with the default limits. The exit status is 1 if a
submission's points vary or are not the expected ones. Ten runs of all take hours.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(COURSE / "tests"), str(COURSE)]
ENDS = "endless|sleep|wait|exit|crash|hang|hoard|napp|forgets|dies|kill|abort|segfault|stops|frames|fork|regex|memory"
os.environ["HOSTILE_ONLY"] = sys.argv[2] if len(sys.argv) > 2 else ENDS

from hostile.bank import WEEK, load, released, write_entry  # noqa: E402

from autograder.classroom import make_course_root  # noqa: E402
from autograder.course import instructor_cells, released_files  # noqa: E402
from autograder.errors import UngradableError  # noqa: E402
from autograder.grading.executors.grader import Grader  # noqa: E402
from autograder.grading.messages import Answer, Options, Result, Task  # noqa: E402
from autograder.grading.submission import intake  # noqa: E402

CLASS = 24


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()


def tasks_of(root: Path) -> tuple[list[Task], dict[str, dict[str, float]]]:
    """The tasks of all gradable submissions, and their expected points."""
    make_course_root(COURSE, root, [WEEK])
    template, files, notebook = instructor_cells(root, WEEK), released_files(root, WEEK), released()
    tasks, due = [], {}
    for entry in load():
        folder = root / "submitted" / entry.student / WEEK
        folder.mkdir(parents=True)
        write_entry(entry, notebook, folder, root)
        with contextlib.suppress(UngradableError):
            rebuilt = intake.rebuild(folder, root, WEEK).notebook
            tasks.append(Task.of(entry.student, WEEK, rebuilt, template, files, seed=7))
            due[entry.student] = {cell: points for cell, points in entry.due.items() if points}
    return tasks, due


def main() -> None:
    runs, points, wrong = int(sys.argv[1]) if len(sys.argv) > 1 else 10, {}, set()

    def on_answer(answer: Answer) -> None:
        assert isinstance(answer, Result), answer
        given = {cell: score for cell, score in answer.scores.items() if score}
        points.setdefault(answer.key, []).append(given)
        if given != due[answer.key]:
            wrong.add(answer.key)

    with tempfile.TemporaryDirectory() as place, Grader() as grader:
        tasks, due = tasks_of(Path(place) / "course")
        classes = [tasks[at : at + CLASS] for at in range(0, len(tasks), CLASS)]
        for count in (0, 4):
            with busy(count):
                for group in [[task] for task in tasks] + classes:
                    for _ in range(runs):
                        grader.grade(iter(group), Options(), on_answer)
    for student, given in points.items():
        steady = all(one == given[0] for one in given)
        print(
            f"{student:45} {'due' if student not in wrong else f'NOT DUE, {due[student]}'} {'' if steady else 'UNSTEADY'} "
            f"{sorted({sum(one.values()) for one in given})} in {len(given)}"
        )
        wrong |= set() if steady else {student}
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
