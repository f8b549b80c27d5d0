"""The benchmark compares what it says, and the command starts without heavy imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import COURSE, WEEK3, run

sys.path.insert(0, str(COURSE / "benchmarks"))

import bench
import gpu
import measure
import stock

from autograder.classroom import Student
from autograder.manifest import MANIFEST
from autograder.reference import alibi_bias, alibi_slopes
from autograder.terminal import timings_table


def loaded(statement: str) -> set[str]:
    """Return the modules that a fresh process has loaded after ``statement``."""
    return set(run(sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)").stdout.split())


def test_grading_starts_without_what_it_does_not_need() -> None:
    heavy = {
        "torch",
        "numpy",
        "matplotlib",
        "IPython",
        "rfc3987_syntax.syntax_helpers",
        "lark",
        "jupytext",
        "autograder.misconceptions.bank",
    }
    assert loaded("import autograder.commands, autograder.grading.plugins.exporter") & heavy <= {"jupytext"}


def test_the_sandbox_is_started_before_torch_is_imported() -> None:
    assert "torch" not in loaded(
        "import autograder.grading.executors.grader_process, autograder.grading.sandbox.sandbox"
    )


def test_cpu_of_orphans_is_counted(tmp_path: Path) -> None:
    grandchild = "import time\nwhile time.process_time() < 0.5: pass"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grandchild!r}])"  # does not wait for it
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as other:  # not measured, not waited for
        measured = measure.measure([sys.executable, "-c", child])
        assert measured.code == 0 and measured.cpu >= 0.5
        assert other.poll() is None


def test_differences_between_two_gradebooks() -> None:
    students = [
        Student("ada", {"a": 1.0, "b": None}),
        Student("boole", {"a": 0.0}),
        Student("cantor", {"a": 0.0}, ungradable=True),
    ]
    same = {"ada": {"a": 1.0, "b": None}, "boole": {"a": 0.0}}
    assert bench.differences(students, same, same) == []
    assert bench.differences(students, same, same | {"ada": {"a": 0.5, "b": None}}) == ["ada, a: stock 0.5, ours 1"]
    both_wrong = same | {"boole": {"a": 2.0}}
    assert bench.differences(students, both_wrong, both_wrong) == ["boole, a: expected 0, ours 2"]


def test_hidden_tests_are_opened_to_the_kernel() -> None:
    """In the kernel, a missing answer costs its own points, not those of a test that passes it on."""
    opened = stock.open_to_the_kernel(
        "# Hidden\n### BEGIN HIDDEN TESTS\nfrom autograder.checks import week4\nweek4.alibi_slopes(alibi_slopes)\n"
        "week4.alibi_bias(alibi_bias, alibi_slopes)\n### END HIDDEN TESTS",
        7,
    )
    kernel = {"alibi_bias": alibi_bias}
    exec(opened, kernel)
    assert [verdict.score for verdict in kernel["_context"].verdicts] == [0, 4]
    assert "alibi_slopes" not in kernel
    assert stock.open_to_the_kernel("x = 1", 7) == "x = 1"


def test_timings_name_the_slowest() -> None:
    seconds = {
        "ada": {"rope_frequencies": 0.1, "rope_frequencies_tests": 0.2},
        "boole": {"rope_frequencies": 0.3, "rope_frequencies_tests": 2.0},
    }
    table = timings_table(MANIFEST[WEEK3], WEEK3, seconds)
    row = [list(column.cells)[1] for column in table.columns]
    assert row == ["3.2", "rope_frequencies", "0.200", "0.300", "1.100", "2.000", "boole"]


@pytest.mark.nightly
def test_without_a_gpu_its_bench_works_on_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [gpu.rope("cpu"), gpu.alibi("cpu")]
    assert all(kernel.apart < 1e-4 and not kernel.times for kernel in kernels)
    due = gpu.OnDevice("cpu", 10.0, 24, 0.0, [], {"ada": {"a": 1.0}})
    text = gpu.report(WEEK3, [due], kernels, 0.0)
    assert "There was no GPU" in text and text.count("not timed") == 2 and "| as due | the same |" in text
    other = gpu.OnDevice("cpu", 10.0, 24, 0.0, ["ada, a: expected 1, ours 0"], {"ada": {"a": 0.0}})
    assert "| ada, a: expected 1, ours 0 | **others** |" in gpu.report(WEEK3, [due, other], kernels, 0.0)
    monkeypatch.setattr(gpu, "alibi_slopes", lambda n_heads: 2 * alibi_slopes(n_heads))
    assert gpu.alibi("cpu").apart > 0.01
