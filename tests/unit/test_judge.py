"""Limits on the checks themselves."""

import itertools
import os
import resource
import signal
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers import COURSE

from autograder.course import Role
from autograder.errors import BrokenCheck, SandboxError, StudentError
from autograder.grading.marking.hidden_tests import hidden_tests, prepare, write_scripts
from autograder.grading.marking.judge import (
    CheckingTooLong,
    _partial_credit,
    _reason,
    _run_test,
    _trusted_namespace,
    at_most,
)
from autograder.grading.marking.marking import Marking
from autograder.grading.marking.result_cache import ResultCache
from autograder.grading.marking.stand_ins import within_bounds
from autograder.grading.messages import Result, TaskCell
from autograder.grading.sandbox.limits import kernel_limit
from autograder.grading.sandbox.worker import simulated_device


@pytest.mark.timing
def test_checking_has_an_end() -> None:
    remembered = ResultCache()
    with pytest.raises(CheckingTooLong), at_most(0.3):
        remembered.recall("a", lambda: [x for x in itertools.count() if x < 0])
    assert remembered.recall("a", lambda: 5) == 5


@pytest.mark.timing
def test_the_kernel_ends_a_check_that_never_comes_back_to_python() -> None:
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # in case nothing else ends it
        with kernel_limit(0.5), at_most(0.2):
            sum(range(10**15))
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF


@pytest.mark.parametrize(
    "arguments",
    [(2**26,), (4, 6000, 6000), (4, torch.tensor(6000), torch.tensor([6000])), (torch.ones(2**14), torch.ones(2**14))],
)
def test_the_course_s_functions_are_called_with_little(arguments: tuple) -> None:
    with pytest.raises(ValueError, match="larger than any"):
        within_bounds(lambda *given: given)(*arguments)


@pytest.mark.parametrize(
    "arguments", [(100_001, 128), (8, 1000, 1000), (torch.ones(1, 1, 2050, 2),) * 2, (torch.tensor(5),)]
)
def test_and_with_all_that_is_asked_for(arguments: tuple) -> None:
    assert within_bounds(lambda *given: given)(*arguments) == arguments


def test_of_two_versions_of_python_both_are_named_where_one_cannot_read_the_other() -> None:
    here = sys.version_info.minor
    syntax, other = StudentError(("SyntaxError", "Exception"), "invalid syntax"), StudentError(("NameError",), "x")
    assert f"ran on Python 3.{here + 1}, and the grader has 3.{here}," in _reason(syntax, f"3.{here + 1}.0", "")
    for error, python in ((syntax, f"3.{here}.9"), (syntax, "3.9.1"), (syntax, ""), (other, f"3.{here + 1}.0")):
        assert "Python 3" not in _reason(error, python, "")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this version reads them")
@pytest.mark.parametrize("code", ['f"{d["a"]}"', "f'{', '.join(d)}'", "def f[T](x):\n    pass"])
def test_what_came_with_python_3_12_is_named_where_the_notebook_does_not_say_its_version(code: str) -> None:
    with pytest.raises(SyntaxError) as raised:
        compile(code, "<cell>", "exec")
    error = StudentError(("SyntaxError", "Exception"), raised.value.msg)
    assert f"grader has Python 3.{sys.version_info.minor}" in _reason(error, "", code)
    assert "grader has Python" not in _reason(error, "3.11.2", "")


def test_marks_of_a_merge_conflict_are_named() -> None:
    error = StudentError(("SyntaxError", "Exception"), "invalid syntax")
    assert "merge conflict" in _reason(error, "", "x = 1\n<<<<<<< HEAD\ny = 2\n=======\ny = 3\n>>>>>>> theirs\n")
    assert "merge conflict" not in _reason(error, "", "x = 1 <<<<<<< 2\n")


@pytest.mark.parametrize("kind", [BrokenCheck, SandboxError])
def test_what_is_not_the_students_fault_costs_no_points(kind: type[Exception]) -> None:
    cell = TaskCell("f_tests", Role.TEST, "raise error", points=2.0)
    with pytest.raises(kind):
        _run_test(cell, None, Marking(), {"error": kind("ours")}, {}, [], Result("ada"))


@pytest.mark.parametrize(
    ("module", "said"),
    [(None, "week3 cannot be imported"), (SimpleNamespace(), "week3 has no @exercise for RotaryMulti")],
)
def test_a_week_without_all_its_hidden_tests_is_no_student_s_fault(
    monkeypatch: pytest.MonkeyPatch, module: object, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "autograder.checks.week3", module)
    with pytest.raises(BrokenCheck, match=said):
        hidden_tests("week3_rope")
    prepare("week3_rope")
    write_scripts("week3_rope", 0, "cpu")


def test_visible_checks_leave_the_device_to_the_hidden_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lab", None)  # so that the one which is loaded here does not stay for other tests
    del sys.modules["lab"]
    monkeypatch.setitem(sys.modules, "simulated_device", simulated_device)  # beside lab.py in a student's folder
    _trusted_namespace({"lab.py": (COURSE / "notebooks" / "week3_rope" / "lab.py").read_text(encoding="utf-8")})
    made_on_the_cpu = lambda x: torch.zeros(len(x))  # noqa: E731
    sys.modules["lab"].follows_the_device(made_on_the_cpu, torch.ones(3))
    monkeypatch.setattr(sys.modules["lab"], "is_grading", False)
    with pytest.raises(AssertionError, match="on the CPU"):
        sys.modules["lab"].follows_the_device(made_on_the_cpu, torch.ones(3))


@pytest.mark.parametrize(
    ("value", "points"), [("1.5", 1.5), ("0", 0.0), ("9", 3.0), ("-1", 3.0), ("nan", 3.0), ("fine", 3.0)]
)
def test_a_test_of_ones_own_that_ends_with_a_number_gives_that_many_points(value: str, points: float) -> None:
    assert _partial_credit(value, 3.0) == points
