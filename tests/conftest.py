"""The order of the tests, and fixtures they share, made once for all processes: a graded class and the site."""

import gc
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from helpers import COURSE, WEEK3, GradedClass, run
from hypothesis import settings

# The slowest modules that stay in one process each.
FIRST = (
    "week5_extrapolation", "test_class", "test_hostile", "week6_relative_bias", "week3_rope", "test_session", "test_site",
    "test_student", "test_instructor", "test_precision", "test_hub", "test_interruption", "week8_production",
    "week7_capstone", "week2_sinusoidal", "week4_alibi", "week1_permutation_equivariance", "test_infrastructure",
)  # fmt: skip
SPREAD = ("test_peers",)  # modules without expensive shared fixtures

settings.register_profile("course", deadline=None, derandomize=True)  # no deadline: a busy machine is slow, not broken
settings.load_profile("course")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("usual", "rest", "all"),
        default="all",
        help="usual: without the tests marked nightly (`make test`); rest: only these; all: both",
    )


@pytest.hookimpl(tryfirst=True)  # before xdist's own hook, which reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the part to run. With `--dist loadgroup` a module stays in one process, to share fixtures, unless it is in
    SPREAD. The slowest modules start first; otherwise one core would still run them when all others are done."""
    part = config.getoption("part")
    if part != "all":
        chosen, others = [], []
        for item in items:
            is_nightly = item.get_closest_marker("nightly") is not None
            (chosen if is_nightly == (part == "rest") else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("xdist_group") is None and not item.path.stem.startswith(SPREAD):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    os.environ["HOSTILE_PART"] = config.getoption("part")
    gc.disable()  # until everything is imported: there is no garbage, and searching takes a third of the time
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(AsTheyFail(config))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # a hook of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from spread import Scheduler  # here, since xdist may be missing

    return Scheduler(config, log) if config.getoption("dist") == "loadgroup" else None


class AsTheyFail:
    """Report each failed test and its duration at once, so that a run that is cut off has reported its failures."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            reason = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
            terminal.write_line(f"\n{report.nodeid}, {report.when}, after {report.duration:.0f} s: {reason[:300]}")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Run torch on one core: the tests' tensors are small, and other processes need the other cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def graded_class(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> GradedClass:
    """A simulated class, graded by plain `nbgrader autograde`; every process gets its own copy."""
    from autograder.classroom import Student

    place = tmp_path_factory.mktemp("class")
    if worker_id == "master":
        return _grade(place)
    shared = tmp_path_factory.getbasetemp().parent / "class"
    with FileLock(f"{shared}.lock"):
        if not (shared / "students.json").exists():
            shared.mkdir()
            students = _grade(shared).students
            (shared / "students.json").write_text(json.dumps([asdict(student) for student in students]))
    shutil.copytree(shared / "course", place / "course")
    return GradedClass(
        place / "course", [Student(**student) for student in json.loads((shared / "students.json").read_text())]
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site of the course, built once for all processes, which only read it."""
    from autograder.site.build import build_site

    if worker_id == "master":
        return build_site(COURSE, tmp_path_factory.mktemp("site"))
    shared = tmp_path_factory.getbasetemp().parent / "the_site"
    with FileLock(f"{shared}.lock"):
        if not (shared / "site" / "index.html").exists():
            build_site(COURSE, shared)
    return shared / "site"


def _grade(place: Path) -> GradedClass:
    from autograder.classroom import make_course_root, simulate

    root = place / "course"
    make_course_root(COURSE, root, [WEEK3])
    students = simulate(COURSE, root, WEEK3, count=14, seed=1)
    run("nbgrader", "autograde", WEEK3, cwd=root)
    return GradedClass(root, students)
