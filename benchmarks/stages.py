"""Where the CPU time of a submission goes, and the floor: its cells in a bare fork of a warm process."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from measure import COURSE, children_cpu, cpu_of_tree, measure


def main() -> None:
    """Print the costs of one week's class as JSON; runs in its own process, because it imports torch."""
    root, assignment, what, without = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    tasks, reading = _tasks(root, assignment, without)
    print(json.dumps(floor(tasks) if what == "floor" else stages(tasks, reading, what == "isolated")))


def in_own_process(root: Path, assignment: str, what: str, without: Path) -> dict:
    """The costs of a class, except for students whom the class under ``without`` has too."""
    done = subprocess.run(
        [sys.executable, __file__, str(root), assignment, what, str(without)],
        env=environment(),
        cwd=COURSE,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def environment() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return os.environ | threads | {"PYTHONPATH": str(COURSE), "MPLBACKEND": "Agg", "PYTHONWARNINGS": "ignore"}


def start_up(assignment: str) -> dict[str, float]:
    """CPU seconds paid once per run: for the command, and for the process that checks."""

    def cpu_of(statement: str) -> float:
        options = {"env": environment(), "cwd": COURSE}
        return min(measure([sys.executable, "-c", statement], **options).cpu for _ in range(3))

    return {
        "command": cpu_of("import autograder.commands"),
        "checks": cpu_of(
            "from autograder.imports import importing\n"
            "with importing():\n"
            "    import autograder.grading.executors.local\n"
            "    from autograder.grading.marking.hidden_tests import prepare\n"
            f"    prepare({assignment!r})"
        ),
    }


def stages(tasks: list, reading: float, isolate: bool) -> dict[str, float]:
    """CPU seconds per submission by stage; ``reading`` is the total for intake, and ``sandbox`` is paid once."""
    from autograder.grading.marking import hidden_tests, judge
    from autograder.grading.sandbox.sandbox import Sandbox
    from autograder.grading.sandbox.session import Session

    hidden_tests.prepare(tasks[0].assignment)
    sandbox = Sandbox(isolate)
    sandbox.wait_ready()
    started = cpu_of_tree(sandbox.process.pid)
    mark = _marks(sandbox)
    for _ in range(10):
        Session(sandbox, tasks[0].files, 0).close()
    opened = mark()
    judge.judge(tasks[0], sandbox)  # the first one fills the caches
    mark()
    for task in tasks:
        judge.judge(task, sandbox)
    trusted, untrusted = (seconds / len(tasks) for seconds in mark())
    sandbox.close()
    return {
        "intake": reading / len(tasks),
        "sandbox": started,
        "open": sum(opened) / 10,
        "trusted": trusted,
        "untrusted": untrusted,
    }


def floor(tasks: list) -> dict[str, float]:
    """CPU seconds per submission of its cells in a bare fork of a warm process: no isolation, no intake, no
    gradebook, no plots, no training cells. Once the student's cells alone, once with the tests, visible and hidden."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot
    import torch

    from autograder.grading.marking import marking
    from autograder.grading.marking.hidden_tests import prepare

    torch.set_num_threads(1)
    prepare(tasks[0].assignment)
    costs = {}
    for name, roles in (
        ("cells", {"setup", "locked", "answer", "student"}),
        ("cells_and_tests", {"setup", "locked", "answer", "student", "test"}),
    ):
        before = children_cpu()
        for task in tasks:
            _in_fork(lambda task=task, roles=roles: _run_plainly(task, roles, marking))
        costs[name] = (children_cpu() - before) / len(tasks)
    return costs


def _run_plainly(task, roles: set[str], marking) -> None:
    os.chdir("/tmp")
    for name, source in task.files.items():
        module = type(sys)(name.removesuffix(".py"))
        exec(compile(source, name, "exec"), module.__dict__)
        sys.modules[module.__name__] = module
    namespace = {"__name__": "__main__"}
    with (
        marking.grading(task.seed),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for cell in task.cells:
            if cell.role in roles:
                with contextlib.suppress(Exception):
                    exec(compile(cell.source, "<cell>", "exec"), namespace)


def _in_fork(work) -> None:
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _tasks(root: Path, assignment: str, without: Path) -> tuple[list, float]:
    """The class's tasks as the grader reads them, and the CPU seconds that took."""
    from autograder.course import instructor_cells, released_files
    from autograder.errors import UngradableError
    from autograder.grading.course_state import class_seed
    from autograder.grading.messages import Task
    from autograder.grading.submission import intake

    template, released, seed = (
        instructor_cells(root, assignment),
        released_files(root, assignment),
        class_seed(root, assignment),
    )
    tasks, start = [], time.process_time()
    for folder in sorted(root.glob(f"submitted/*/{assignment}")):
        if (without / "submitted" / folder.parent.name).exists():
            continue
        with contextlib.suppress(UngradableError):
            notebook = intake.rebuild(folder, root, assignment).notebook
            tasks.append(Task.of(folder.parent.name, assignment, notebook, template, released, seed))
    return tasks, time.process_time() - start


def _marks(sandbox):
    """Return a function that gives the CPU seconds used since its last call: here, and in the sandbox."""
    last = [time.process_time(), cpu_of_tree(sandbox.process.pid)]

    def mark() -> tuple[float, float]:
        now = [time.process_time(), cpu_of_tree(sandbox.process.pid)]
        used = tuple(b - a for a, b in zip(last, now, strict=True))
        last[:] = now
        return used

    return mark


if __name__ == "__main__":
    main()
