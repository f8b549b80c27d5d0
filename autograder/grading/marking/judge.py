"""The trusted side of one submission: student cells go to the sandbox, test cells run here against proxies."""

import contextlib
import io
import itertools
import json
import re
import signal
import sys
import time
import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import matplotlib
import torch

matplotlib.use("Agg")

from autograder.course import Role, is_week
from autograder.errors import BrokenCheck, SandboxError, StudentError, visible
from autograder.grading.marking.hidden_tests import cache_of, hidden_tests
from autograder.grading.marking.marking import Marking, grading
from autograder.grading.marking.stand_ins import from_its_cell, in_the_sandbox
from autograder.grading.messages import Answer, Failure, Result, Task, TaskCell
from autograder.grading.sandbox.outputs import CellRun
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.source_names import (
    bounds,
    defined_names,
    foreign_names,
    free_names,
    names_in,
    readable,
    settled_names,
    statements,
)
from autograder.script.answer import Absent
from autograder.script.verdict import Criterion, Verdict

_compiled = lru_cache(maxsize=256)(compile)  # the instructor's cells are the same for everybody
TOO_LONG = "what this notebook returns takes too long to check"
IN_STUDENTS_PROCESS = "This test ran in the student's own process, as nbgrader's do."
SOURCE = "__course_source__"  # the attribute of a released helper module that holds its text
STUDENT_SEED = 0  # the same for everybody; the class's seed must stay hidden, because it draws the hidden inputs


class CheckingTooLong(BaseException):
    """The checks have used up the CPU time for one submission. This is a ``BaseException``, so that no code on the way
    handles or caches it like an ordinary error."""


@contextlib.contextmanager
def at_most(cpu_seconds: float) -> Iterator[None]:
    """Raise ``CheckingTooLong`` when the block has used this much CPU time, and again whenever it uses as much more.
    This timer counts user time, because `kernel_limit` needs the other one, and that one's signal unhandled."""

    def too_long(*_: Any) -> None:
        raise CheckingTooLong

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def judge(task: Task, sandbox: Sandbox) -> Answer:
    """Grade one submission. A failure that is not the student's never becomes a score: a broken sandbox raises
    ``SandboxError``, and a broken test gives a ``Failure`` that names it."""
    result = Result(task.key)
    if is_week(task.assignment):
        sandbox.import_helpers(task.files)
    session = Session(sandbox, task.files, STUDENT_SEED)
    try:
        cache = cache_of(task.assignment, task.seed, sandbox.device)
        with grading(task.seed, sandbox.device, cache) as marking, at_most(sandbox.limits.checking_cpu):
            marking.replacing = partial(in_the_sandbox, task, session)
            marking.anew = partial(from_its_cell, task, session)
            marking.crashed = lambda: session.crashes.functions
            _run_cells(task, session, marking, result)
    except BrokenCheck as error:
        return Failure(task.key, f"a hidden test of the course is broken: {error}")
    finally:
        session.close()
    text = json.dumps(vars(result), ensure_ascii=False).encode("utf-8", "replace")  # a lone surrogate cannot be saved
    return Result(**json.loads(text))


def _run_cells(task: Task, session: Session, marking: Marking, result: Result) -> None:
    trusted = _trusted_namespace(task.files) if is_week(task.assignment) else {}
    failed: dict[str, str] = {}  # by name: why it is not defined
    given: list[TaskCell] = []
    rights = {exercise.grade_id: exercise.right for exercise in hidden_tests(task.assignment)}
    cells = _checks_last(task.cells)
    lost: list[float] = []  # points, in each hidden test of the last answer
    for place, cell in enumerate(cells):
        start = time.perf_counter()
        if cell.role == Role.TEST:
            if cell.points or ((not lost or any(lost)) and _can_say_more(cell, session, trusted)):
                _run_test(cell, session, marking, trusted, failed, given, result)
            else:
                result.scores[cell.id] = 0.0
            if cell.points:
                lost.append(cell.points - result.scores[cell.id])
        elif cell.role == Role.STOCK_TEST:
            _run_stock_test(cell, session, result)
        else:
            lost = []
            if cell.role == Role.SETUP:
                trusted |= _names_given(cell.source, frozenset(task.files.items()))
                torch.default_generator.manual_seed(STUDENT_SEED)  # the same for everybody
            elif cell.role == Role.LOCKED:
                given.append(cell)
            wanted = _wanted_next(cells[place + 1 :], trusted)
            run = _execute(cell, session, wanted)
            if run.error is not None:
                names = {*cell.defines, *defined_names(cell.source)}
                failed |= dict.fromkeys(names, _reason(run.error, task.python, cell.source))
                if rights and cell.role in (Role.ANSWER, Role.STUDENT):
                    said = _salvage(cell, session, run.error, rights, failed, task.python)
                    if said:
                        marking.remarks |= dict.fromkeys(cell.defines, said)
                    else:  # a hand computation is defined before its numbers are
                        stopped = f"Its cell stopped with {run.error.describe()}."
                        by_hand = [name for name in cell.defines if isinstance(rights.get(name), dict)]
                        marking.remarks |= dict.fromkeys(by_hand, stopped)
            marked = {verdict.exercise for verdict in marking.verdicts}
            marking.overwritten |= marked & defined_names(cell.source)
            result.outputs[cell.id] = run.outputs + _error_output(run)
            if cell.role == Role.ANSWER and (said := _needs(cell.source, failed.keys() - rights, failed, session)):
                marking.remarks |= dict.fromkeys(cell.defines, said)
        result.seconds[cell.id] = round(time.perf_counter() - start, 4)


def _checks_last(cells: Sequence[TaskCell]) -> list[TaskCell]:
    """Return the cells with each visible check below the hidden tests of its answer. It earns nothing, so it runs only
    to say what else is wrong with an answer that lost points."""
    found: list[TaskCell] = []
    for _, group in itertools.groupby(cells, lambda cell: cell.role == Role.TEST):
        found += sorted(group, key=lambda cell: cell.role == Role.TEST and not cell.points)
    return found


def _can_say_more(check: TaskCell, session: Session, trusted: dict[str, Any]) -> bool:
    """Whether a visible check may say what the verdict does not: all that it calls is there, and has not hung or died."""
    names = free_names(check.source, trusted)
    return not session.crashes.functions.intersection(names) and not _missing(names, session)


def _wanted_next(cells: Sequence[TaskCell], trusted: dict[str, Any]) -> list[str]:
    """Return the student's names that the tests right after a cell use."""
    tests = itertools.takewhile(lambda cell: cell.role == Role.TEST, cells)
    return list(dict.fromkeys(name for cell in tests for name in free_names(cell.source, trusted)))


def _salvage(
    cell: TaskCell, session: Session, error: StudentError, answers: Collection[str], failed: dict[str, str], python: str
) -> str:
    """Run the statements of a cell one by one, because it has stopped before all that it defines was there: at a package
    that only the student has, in a line that runs for too long, or because Python cannot read all of it. Returns how, for
    the student; empty if it is of no use. A cell of the student's own does not get to define an exercise in this way."""
    try:
        source, blocks = readable(cell.source)
    except CheckingTooLong:
        session.give_up()
        return ""
    blocks = blocks if "SyntaxError" in error.type_names else []
    own = [] if cell.role == Role.ANSWER else list(answers)
    wanted = sorted({*settled_names(source), *cell.defines} - set(own))
    missing = _missing(wanted, session)
    if not wanted or not (blocks or missing):
        return ""
    left_out = []
    for block in blocks:  # each by itself, for its own error
        alone = re.sub(r"^\n", "#\n", block) + "\npass"  # IPython drops empty lines at the beginning
        if stop := _execute(replace(cell, source=alone), session).error:
            failed |= dict.fromkeys(names_in(block), _reason(stop, python, block))
            first, last = bounds(block)
            left_out.append(f"line {last}" if last == first + 1 else f"lines {first + 1} to {last}")
    _execute(replace(cell, source=UNREAD_ANNOTATIONS), session)
    for only_definitions in (True,) if error.was_stopped else (False, True):
        parts = statements(source, only_definitions, own)
        runs = (_execute(replace(cell, source=part), session) for part in parts)
        if not any(run.error is not None and run.error.was_stopped for run in runs):
            break
    how = ONLY_DEFINITIONS if only_definitions else LEFT_OUT if left_out else ONE_BY_ONE
    is_of_use = not (still := _missing(wanted, session)) or still < missing
    return how.format(error.describe(), ", ".join(left_out)) if is_of_use else ""


def _needs(source: str, helpers: Collection[str], failed: dict[str, str], session: Session) -> str:
    """Return what to say of an answer that uses a name whose cell, one of the student's own, has stopped before it."""
    used = [name for name in foreign_names(source) if name in helpers and _missing([name], session)]
    return "".join(f"It uses `{name}`, which is not defined{failed[name]}." for name in used[:1])


UNREAD_ANNOTATIONS = "from __future__ import annotations"  # from here on, for they may name what was not imported
ONE_BY_ONE = "Its cell stopped with {}, so its other statements were run one by one."
LEFT_OUT = "Its cell stopped with {}, so it was run without what cannot be read as Python: {}."
ONLY_DEFINITIONS = "Its cell stopped with {}, so only its imports, functions, classes and plain assignments were run."


def _missing(names: list[str], session: Session) -> set[str]:
    try:
        return set(names) - session.lookup(names).keys()
    except StudentError:
        return set(names)


def _execute(cell: TaskCell, session: Session, names: Sequence[str] = ()) -> CellRun:
    try:
        return session.execute(cell.id, cell.source, names)
    except CheckingTooLong:
        session.give_up()
        return CellRun(error=StudentError(("TimeoutError",), TOO_LONG))


def _run_test(
    cell: TaskCell,
    session: Session,
    marking: Marking,
    trusted: dict[str, Any],
    failed: dict[str, str],
    given: list[TaskCell],
    result: Result,
) -> None:
    """Run a visible check or a hidden test. Its verdict is decided here and nowhere else."""
    names = free_names(cell.source, trusted)
    printed, before = io.StringIO(), len(marking.verdicts)
    error = ""
    try:
        for helper in given:  # the student may have redefined what this cell of the course defines
            if set(helper.defines) & set(names):
                session.execute(helper.id, helper.source, names)
        objects = _student_objects(session, names, failed)
        namespace = trusted | objects
        with contextlib.redirect_stdout(printed):
            exec(_compiled(cell.source, "<test>", "exec"), namespace)
    except StudentError as problem:
        error = problem.describe()
        if problem.means_unanswered:
            error = NOT_WRITTEN if cell.points else ""  # the verdict says so
    except CheckingTooLong:
        session.give_up()
        error = TOO_LONG
    except AssertionError as problem:
        error = str(problem) or "an assertion does not hold"
    except (BrokenCheck, SandboxError):
        raise
    except Exception as problem:  # a test met a student's value it cannot work with
        error = f"{type(problem).__name__}: {problem}"
    if cell.points:
        session.crashes.retire_functions()
    verdicts = marking.verdicts[before:]
    if error and not verdicts and cell.points:
        verdicts = [Verdict("", "", cell.points, [Criterion("an answer", cell.points, 0.0, error[:500])])]
    if verdicts:
        result.verdicts[cell.id] = verdicts[-1].to_json()
    elif error:
        result.failed_checks.append(cell.id)
    score = sum(verdict.score for verdict in verdicts) if verdicts else (0.0 if error else cell.points)
    result.scores[cell.id] = round(min(score, cell.points), 4)
    text = "\n".join([error[:4000]] if error else [verdict.render() for verdict in verdicts])
    text = printed.getvalue()[:4000] + (text + "\n" if text else "")
    result.outputs[cell.id] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []


NOT_WRITTEN = "an answer that is called here is not written yet (NotImplementedError)"


def _run_stock_test(cell: TaskCell, session: Session, result: Result) -> None:
    """Run a test of an instructor's own assignment, in the student's process. It earns points by nbgrader's rules: none
    after an error or output on stderr; if the cell ends with a number, that many; else all."""
    run = _execute(cell, session)
    complained = any(output.get("name") == "stderr" for output in run.outputs)
    error = run.error.describe() if run.error else "the test wrote to stderr" if complained else ""
    score = 0.0 if error else _partial_credit(run.value, cell.points)
    if cell.points:
        result.verdicts[cell.id] = Verdict(
            "", "", cell.points, [Criterion("the test", cell.points, score, error[:500])]
        ).to_json()
    elif error:
        result.failed_checks.append(cell.id)
    result.scores[cell.id] = score
    said = f"{score:g} of {cell.points:g} points. {IN_STUDENTS_PROCESS}\n" if cell.points else ""
    shown = [{"output_type": "stream", "name": "stdout", "text": said}] if said else []
    result.outputs[cell.id] = shown + run.outputs + _error_output(run)


def _partial_credit(value: str, points: float) -> float:
    try:
        given = float(value)
    except ValueError:
        return points
    return min(given, points) if given >= 0 else points


def _student_objects(session: Session, names: list[str], failed: dict[str, str]) -> dict[str, Any]:
    found = session.lookup(names) if names else {}
    return {name: found[name] if name in found else Absent(name, failed.get(name, NOT_THERE)) for name in names}


NOT_THERE = "; is its cell still there, the name as it was, and no magic such as %%timeit above it?"
NEWER = (
    ". (Your notebook ran on Python 3.{0}, and the grader has 3.{1}, which cannot read what is new in 3.{0}. Since 3.12, for "
    "example, the quotes around an f-string may stand inside its braces, too.)"
)
OLDER = ". (The grader has Python 3.{0}. Type parameters came with 3.12, as did an f-string's quotes inside its own braces.)"
TYPED = re.compile(r"^[ \t]*(?:(?:def|class) \w+\[|type \w+.*=)", re.MULTILINE)
CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
# By a part of Python's message: what to add about a slip that comes from another notation.
SLIPS = {
    "leading zeros in decimal integer literals": ". (Is there a decimal comma? Python writes 0.25.)",
    "invalid character '−'": ". (A minus sign copied from a text is another character: type - anew.)",
}


def _reason(error: StudentError, python: str, source: str) -> str:
    slip = next((words for pattern, words in SLIPS.items() if pattern in error.message), "")
    if "SyntaxError" in error.type_names and CONFLICT.search(source):
        slip = ". (It holds the marks of a merge conflict of git: keep one side's lines, and take the marks out.)"
    here = sys.version_info.minor
    if not slip and "SyntaxError" in error.type_names:
        if _minor(python) > here:
            slip = NEWER.format(_minor(python), here)
        elif here < 12 and (TYPED.search(source) or (not python and error.message.startswith("f-string"))):
            slip = OLDER.format(here)
    return f": its cell stopped with {error.describe()}{slip}"


def _minor(python: str) -> int:
    """The 12 of 3.12.1."""
    return int(python.split(".")[1]) if python else 0


def _error_output(run: CellRun) -> list[dict[str, Any]]:
    if run.error is None:
        return []
    name, text = run.error.kind, run.error.describe()
    return [{"output_type": "error", "ename": name, "evalue": visible(run.error.message[:500]), "traceback": [text]}]


@lru_cache(maxsize=16)
def _names_given(setup: str, files: frozenset[tuple[str, str]]) -> dict[str, Any]:
    """Run the instructor's set-up cell and return its names. ``files``, the helper modules, is only a cache key."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(_compiled(setup, "<setup>", "exec"), names)
    return names


def _trusted_namespace(files: dict[str, str]) -> dict[str, Any]:
    """Load the released helper modules from the course's text, and return the namespace that test cells begin with."""
    for name, source in files.items():
        module_name = name.removesuffix(".py")
        if module_name not in sys.modules or getattr(sys.modules[module_name], SOURCE, None) != source:
            module = types.ModuleType(module_name)
            setattr(module, SOURCE, source)
            sys.modules[module_name] = module
            exec(compile(source, name, "exec"), module.__dict__)
            setattr(module, "is_grading", True)  # noqa: B010  lab.py then leaves questions to the hidden tests
    return {"__name__": "__main__"}
