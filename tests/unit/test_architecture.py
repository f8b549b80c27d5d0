"""Which modules may import which, read from the source; docs/architecture.md says why."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from helpers import COURSE

PACKAGE = COURSE / "autograder"
WORKER = PACKAGE / "grading" / "sandbox" / "worker"
IN_THE_SANDBOX = {"numpy", "torch", "matplotlib", "IPython", "traitlets"}
TEACHING = ("autograder.reference", "autograder.misconceptions")


@dataclass(frozen=True)
class Import:
    """One import statement's target, as written, and whether only the type checker sees it."""

    target: str
    for_types: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(COURSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return all imports of a file, including those inside functions."""
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8")), for_types=False))


def _imports(node: ast.AST, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            yield from (Import(f"{child.module}.{alias.name}", for_types) for alias in child.names)
        else:
            only_types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from _imports(child, for_types or only_types)


def module_of(target: str) -> str | None:
    """Return the module of this package that ``import target`` or ``from … import …`` loads."""
    while target not in MODULES and "." in target:
        target = target.rpartition(".")[0]
    return target if target in MODULES else None


def arrows(at_run_time: bool = False) -> dict[str, set[str]]:
    """Return the modules that each module imports, without its own packages, which are loaded before it."""
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        targets = {module_of(item.target) for item in imports_of(path) if not (at_run_time and item.for_types)}
        found[name] = {target for target in targets if target and target != name and not name.startswith(f"{target}.")}
    return found


def reachable(start: str, graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the modules that ``start`` loads, each with one chain of imports that leads to it."""
    ways, waiting = {start: [start]}, [start]
    for name in waiting:  # the loop extends the list
        for target in sorted(graph[name] - ways.keys()):
            ways[target] = [*ways[name], target]
            waiting.append(target)
    return ways


def circles(graph: dict[str, set[str]]) -> list[str]:
    found = []
    for name in sorted(graph):
        for target in sorted(graph[name]):
            if name in (way := reachable(target, graph)):
                found.append(" -> ".join([name, *way[name]]))
    return found


def test_there_is_no_import_circle() -> None:
    assert not circles(arrows())


FLOORS = {  # the layers, from the bottom up
    "worker": ("autograder.grading.sandbox.worker",),
    "script": ("autograder.script",),
    "weeks": ("autograder.checks", "autograder.misconceptions", "autograder.reference"),
    "grading": ("autograder.grading",),
}
MAY_STAND_ON = {"worker": set(), "script": {"worker"}, "weeks": {"script", "worker"}, "grading": {"script", "worker"}}


def floor_of(name: str) -> str | None:
    """Return the layer that a module belongs to; the worker's folder is inside that of grading and comes first."""
    return next(
        (f for f, places in FLOORS.items() if any(f"{name}.".startswith(f"{place}.") for place in places)), None
    )


def test_the_script_is_all_that_the_weeks_and_the_grader_share() -> None:
    """Only one place connects them: `hidden_tests` imports a week's tests by the name of the assignment. Modules outside both
    sides do not, either."""
    graph = arrows()
    wrong = [
        " -> ".join(way)
        for name in MODULES
        if (here := floor_of(name))
        for target, way in reachable(name, graph).items()
        if (there := floor_of(target)) and here != there and there not in MAY_STAND_ON[here]
    ]
    low = {target.split(".")[1] for name, found in graph.items() if floor_of(name) == "script" for target in found}
    assert not wrong and low == {"errors", "grading", "script"}


@pytest.mark.parametrize("part", ["sandbox", "submission"])
def test_transport_does_not_lean_on_teaching(part: str) -> None:
    graph = arrows(at_run_time=True)
    for name in MODULES:
        if name.startswith(f"autograder.grading.{part}."):
            ways = [" -> ".join(way) for target, way in reachable(name, graph).items() if target.startswith(TEACHING)]
            assert not ways


def test_what_is_mounted_in_the_sandbox_imports_nothing_of_the_course() -> None:
    files = sorted(WORKER.glob("*.py"))
    allowed = sys.stdlib_module_names | IN_THE_SANDBOX | {path.stem for path in files}
    assert files
    for path in files:
        assert {item.target.split(".")[0] for item in imports_of(path)} <= allowed, path.name
        assert path.stem not in sys.stdlib_module_names | {"notebook"}, "it would stand before the library's module"


def test_every_file_that_the_page_names_is_there() -> None:
    page = (COURSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [
        path
        for path in re.findall(r"`([\w./-]+(?:/|\.py))`", page)
        if path not in ("x.py", "tests/unit/test_x.py", ".autograder/")
    ]
    missing = [path for path in named if not any(place.exists() for place in places_of(path))]
    assert len(named) > 25 and not missing


def places_of(path: str) -> list[Path]:
    """Return where a path in the document may be; weekN stands for any week."""
    folders = (PACKAGE, COURSE, WORKER)
    return [folder / path.replace("weekN", "week1") for folder in folders]


def test_a_module_stays_in_one_process(request: pytest.FixtureRequest) -> None:
    """So its fixtures run only once. (With a pytest that xdist does not know yet, the groups are silently lost.)"""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@test_architecture")


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    """Except for the weeks' checks and banks, whose length depends on their contents."""
    long = [path for path in MODULES.values() if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    contents = PACKAGE / "checks", PACKAGE / "misconceptions"
    assert not [path.name for path in long if not any(path.is_relative_to(folder) for folder in contents)]
