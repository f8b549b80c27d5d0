"""No test can end the run: a test that kills its process is named, and all others run."""

from pathlib import Path

import pytest
from helpers import COURSE, run

DIES = """
import os, pytest
@pytest.mark.parametrize("n", range(6))
def test_dies(n):
    if n % 2:
        os._exit(3)
"""
PASSES = "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_passes(n): pass\n"
CONFTEST = """
import pytest
from spread import Scheduler
def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log)
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
"""


@pytest.mark.slow
def test_a_run_outlives_its_processes(tmp_path: Path) -> None:
    for name, text in {"conftest": CONFTEST, "test_a": DIES, "test_b": PASSES}.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = ["python", "-m", "pytest", "--dist", "loadgroup", "-n", "2", "-p", "no:nbval", str(tmp_path)]
    done = run(*command, cwd=tmp_path, code=1, PYTHONPATH=str(COURSE / "tests"))
    assert "3 failed, 6 passed" in done.stdout
    for n in (1, 3, 5):
        assert f"crashed while running 'test_a.py::test_dies[{n}]@test_a'" in done.stdout
