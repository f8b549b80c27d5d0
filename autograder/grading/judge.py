"""The trusted side of one submission: student cells go to the sandbox, test cells run here against proxies."""

import ast
import contextlib
import io
import json
import math
import re
import signal
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from inspect import isclass
from typing import Any

import matplotlib
import torch

matplotlib.use("Agg")

from autograder.checks.context import GradingContext, grading
from autograder.checks.errors import Absent
from autograder.checks.result_cache import ResultCache
from autograder.checks.shared_file import SharedFile
from autograder.checks.shared_results import SharedResults
from autograder.checks.verdict import Criterion, Verdict
from autograder.course import Role, is_week
from autograder.errors import BrokenCheck, SandboxError, StudentError, visible
from autograder.grading.messages import Answer, Failure, Result, Task, TaskCell
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import CellRun, Session
from autograder.grading.source_names import defined_names, free_names, parsed

_compiled = lru_cache(maxsize=256)(compile)  # the instructor's cells are the same for everybody
TOO_LONG = "what this notebook returns takes too long to check"
IN_STUDENTS_PROCESS = "This test ran in the student's own process, as nbgrader's do."
WORD = re.compile(r"[A-Za-z_]\w*")
MOST_ELEMENTS = 2**24  # that whole numbers alone may ask for
LARGEST = 2**26  # elements: the product of all sizes in a call of the course's functions
SOURCE = "__course_source__"  # of a released helper module
STUDENT_SEED = 0  # the same for everybody, and not the class's, from which the hidden inputs are drawn


class CheckingTooLong(BaseException):
    """The checks have used the time that they may use on one submission. Nothing on the way may take it for an error of
    its own, or remember it."""


@contextlib.contextmanager
def at_most(cpu_seconds: float) -> Iterator[None]:
    """Raises ``CheckingTooLong`` in the block when this process has used that much CPU time; and again, should it go on."""

    def too_long(*_: Any) -> None:
        raise CheckingTooLong

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@lru_cache(maxsize=1)
def _cache_of(assignment: str, seed: int, device: str, shared: SharedFile | None) -> ResultCache:
    """Of one assignment of one class on one device."""
    return ResultCache() if shared is None else SharedResults(shared)


def judge(task: Task, sandbox: Sandbox, shared: SharedFile | None = None) -> Answer:
    """Grade one submission, with what other judges of the class have put into ``shared``. A failure that is not the
    student's never becomes a score: ``SandboxError`` is raised, a broken test is a ``Failure`` that names it."""
    result = Result(task.key)
    if is_week(task.assignment):
        sandbox.import_helpers(task.files)
    session = Session(sandbox, task.files, STUDENT_SEED)
    try:
        cache = _cache_of(task.assignment, task.seed, sandbox.device, shared)
        with grading(task.seed, sandbox.device, cache) as context, at_most(sandbox.limits.checking_cpu):
            context.replacing, context.forget = partial(_replacing, task, session), session.forget
            context.crashed = lambda: session.crashed
            _run_cells(task, session, context, result)
    except BrokenCheck as error:
        return Failure(task.key, f"a hidden test of the course is broken: {error}")
    finally:
        session.close()
    text = json.dumps(vars(result), ensure_ascii=False).encode("utf-8", "replace")  # a lone surrogate cannot be saved
    return Result(**json.loads(text))


def _run_cells(task: Task, session: Session, context: GradingContext, result: Result) -> None:
    trusted = _trusted_namespace(task.files) if is_week(task.assignment) else {}
    failed: dict[str, str] = {}  # why a name is not defined
    given: list[TaskCell] = []
    for cell in task.cells:
        start = time.perf_counter()
        if cell.role == Role.TEST:
            _run_test(cell, session, context, trusted, failed, given, result)
        elif cell.role == Role.STOCK_TEST:
            _run_stock_test(cell, session, result)
        else:
            if cell.role == Role.SETUP:
                trusted |= _names_given(cell.source, frozenset(task.files.items()))
                torch.default_generator.manual_seed(STUDENT_SEED)  # for everybody the same
            elif cell.role == Role.LOCKED:
                given.append(cell)
            run = _execute(cell, session)
            result.outputs[cell.id] = run.outputs + _error_output(run)
            if run.error is not None:
                names = {*cell.defines, *defined_names(cell.source)}
                failed |= dict.fromkeys(names, _reason(run.error, task.python))
        result.seconds[cell.id] = round(time.perf_counter() - start, 4)


def _execute(cell: TaskCell, session: Session) -> CellRun:
    try:
        return session.execute(cell.id, cell.source)
    except CheckingTooLong:
        session.give_up()
        return CellRun(error=StudentError(("TimeoutError",), TOO_LONG))


def _run_test(
    cell: TaskCell,
    session: Session,
    context: GradingContext,
    trusted: dict[str, Any],
    failed: dict[str, str],
    given: list[TaskCell],
    result: Result,
) -> None:
    """A visible check or a hidden test; its verdict is decided here and nowhere else."""
    names = free_names(cell.source, trusted)
    printed, before = io.StringIO(), len(context.verdicts)
    error = ""
    try:
        for helper in given:  # what the course has given and the student has redefined is given again
            if set(helper.defines) & set(names):
                session.execute(helper.id, helper.source)
        namespace = trusted | _student_objects(session, names, failed)
        with contextlib.redirect_stdout(printed):
            exec(_compiled(cell.source, "<test>", "exec"), namespace)
    except StudentError as problem:
        error = problem.describe()
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
        session.retire_crashed()
    verdicts = context.verdicts[before:]
    if error and not verdicts and cell.points:
        verdicts = [Verdict("", "", cell.points, [Criterion("an answer", cell.points, 0.0, error[:500])])]
    if verdicts:
        result.verdicts[cell.id] = verdicts[-1].to_json()
    elif error:
        result.failed_checks.append(cell.id)
        context.doubtful.update(names)
    score = sum(verdict.score for verdict in verdicts) if verdicts else (0.0 if error else cell.points)
    result.scores[cell.id] = round(min(score, cell.points), 4)
    text = "\n".join([error[:4000]] if error else [verdict.render() for verdict in verdicts])
    text = printed.getvalue()[:4000] + (text + "\n" if text else "")
    result.outputs[cell.id] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []


def _run_stock_test(cell: TaskCell, session: Session, result: Result) -> None:
    """A test of an assignment of one's own, in the student's process. Its points by nbgrader's rules: none after an error or
    a word on stderr; as many as a number that the cell ends with; else all."""
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


@contextlib.contextmanager
def _replacing(
    task: Task,
    session: Session,
    name: str,
    student: Any,
    functions: Mapping[str, Any],
) -> Iterator[tuple[Any, Collection[str]]]:
    """The student's answer anew, its cell run again where the course's functions stand in place of earlier answers, and
    which of these it uses; an ``Absent`` where it uses none."""
    cell = next((cell for cell in task.cells if cell.role == Role.ANSWER and name in cell.defines), None)
    used = _reached(cell, task.cells, _words) & set(functions) if cell else set()
    if cell is None or not used:
        yield Absent(name, ""), used
        return
    with contextlib.suppress(StudentError), contextlib.ExitStack() as until_graded:
        fresh: Any = Absent(name, "")
        with contextlib.suppress(StudentError):
            stand_ins = {key: functions[key] for key in functions if key in used}
            until_graded.enter_context(
                session.replacing(
                    {key: _as_function(it) if isclass(it) else _within_bounds(it) for key, it in stand_ins.items()},
                    modules={key for key, it in stand_ins.items() if isclass(it)},
                )
            )
            session.again(cell.id, cell.source)
            fresh = session.lookup([name]).get(name, fresh)
        yield fresh, _reached(cell, task.cells, _names) & used or used
    with contextlib.suppress(
        StudentError
    ):  # what it took from the earlier answers when it was run is the student's again
        session.again(cell.id, cell.source)


def _words(source: str) -> set[str]:
    return set(WORD.findall(source))


@lru_cache(maxsize=64)  # every exercise asks about the cells before it
def _names(source: str) -> set[str]:
    """The names in the code, without those in comments and strings."""
    tree = parsed(source)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else _words(source)


def _reached(cell: TaskCell, cells: list[TaskCell], names: Callable[[str], set[str]]) -> set[str]:
    """The names that a cell uses, and those that what it uses uses."""
    found: set[str] = set()
    waiting = [cell.source]
    while waiting:
        new = names(waiting.pop()) - found
        found |= new
        waiting += [
            other.source
            for other in cells
            if other.role != Role.TEST
            and other is not cell
            and new & (set(other.defines) | defined_names(other.source))
        ]
    return found


def _within_bounds(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for the student's code to call: it chooses the arguments, but not how much memory that takes here."""

    def bounded(*args: Any, **kwargs: Any) -> Any:
        _require_small_result((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return bounded


def _as_function(cls: Any) -> Callable[..., Any]:
    """A module class for the student's code to make modules of: the parameters live there, what they do happens here.

    The function gives the shapes of the state_dict; with a state and inputs, the module's output. A module on the meta
    device takes no memory, whatever its sizes."""

    def asked(
        arguments: list[Any],
        options: dict[str, Any],
        state: dict[str, torch.Tensor] | None = None,
        inputs: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        with torch.device("meta"):
            module = cls(*arguments, **options)
        if state is None:
            return {name: list(value.shape) for name, value in module.state_dict().items()}
        _require_small((*inputs, *(named or {}).values()))
        return torch.func.functional_call(module, state, tuple(inputs), named, strict=True)

    return asked


def _require_small_result(values: tuple[Any, ...]) -> None:
    """Two tensors at most meet in a product, and a mask in scores of the queries' and keys' shape."""
    masks = [value for value in values if isinstance(value, torch.Tensor) and value.dtype == torch.bool]
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.dtype != torch.bool]
    if not masks or not tensors:
        return _require_small(values)
    _require_small((*[value for value in values if type(value) is int], *sorted(tensors, key=torch.Tensor.numel)[-2:]))
    longest = [max((t.shape[-at] for t in tensors if t.ndim >= at), default=1) for at in range(1, 5)]
    scores = [longest[1], *longest[1:]]  # keys, queries, and what stands before them
    if math.prod(max(1, size) for size in scores) > LARGEST or any(
        mask.ndim > 4 or any(size > scores[at] for at, size in enumerate(reversed(mask.shape))) for mask in masks
    ):
        raise ValueError("these sizes are larger than any that is asked for")
    return None


def _require_small(values: tuple[Any, ...]) -> None:
    numbers = [abs(int(value)) for value in values if type(value) is int or _is_whole_number(value)]
    if math.prod(max(1, number) for number in numbers) > MOST_ELEMENTS:
        raise ValueError("these sizes are larger than any that is asked for")
    sizes = [
        value.numel() if hasattr(value, "numel") else abs(value)
        for value in values
        if hasattr(value, "numel") or type(value) is int
    ]
    if math.prod(max(1, size) for size in sizes) > LARGEST:
        raise ValueError("these sizes are larger than any that is asked for")


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point()


def _student_objects(session: Session, names: list[str], failed: dict[str, str]) -> dict[str, Any]:
    found = session.lookup(names) if names else {}
    return {name: found[name] if name in found else Absent(name, failed.get(name, NOT_THERE)) for name in names}


NOT_THERE = "; is its cell still there, and the name as it was?"
NEWER = (
    ". (Your notebook ran on Python 3.{0}, and the grader has 3.{1}, which cannot read what is new in 3.{0}. Since 3.12, for "
    "example, the quotes around an f-string may stand inside its braces, too.)"
)
OLDER = ". (The grader has Python 3.{0}, and before 3.12 the quotes around an f-string may not stand inside its braces, too.)"
# What Python says of slips that people at home in other notations make.
SLIPS = {
    "leading zeros in decimal integer literals": ". (Is there a decimal comma? Python writes 0.25.)",
    "invalid character '−'": ". (A minus sign copied from a text is another character: type - anew.)",
}


def _reason(error: StudentError, python: str) -> str:
    slip = next((words for pattern, words in SLIPS.items() if pattern in error.message), "")
    here = sys.version_info.minor
    if not slip and "SyntaxError" in error.type_names:
        if _minor(python) > here:
            slip = NEWER.format(_minor(python), here)
        elif not python and here < 12 and error.message.startswith("f-string"):
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
    """What the instructor's set-up cell defines beside these helper modules; it is run once for a class."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(_compiled(setup, "<setup>", "exec"), names)
    return names


def _trusted_namespace(files: dict[str, str]) -> dict[str, Any]:
    """What the set-up cell imports, test cells may use; released helper modules come from the course."""
    for name, source in files.items():
        module_name = name.removesuffix(".py")
        if module_name not in sys.modules or getattr(sys.modules[module_name], SOURCE, None) != source:
            module = types.ModuleType(module_name)
            setattr(module, SOURCE, source)
            sys.modules[module_name] = module
            exec(compile(source, name, "exec"), module.__dict__)
    return {"__name__": "__main__"}
