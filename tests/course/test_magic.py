"""`%grade` in a kernel as a notebook server starts it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from helpers import COURSE, WEEK3, environment, family, wait_until_gone
from jupyter_client.manager import start_new_kernel

PATIENCE = 1800  # seconds


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A released notebook without answers, under a file name of the student's own."""
    return Path(shutil.copy(COURSE / "notebooks" / WEEK3 / f"{WEEK3}.ipynb", tmp_path / "mine.ipynb"))


@pytest.fixture
def run_cell(notebook: Path) -> Iterator[Callable[[str], str]]:
    """A function that runs a cell and returns what it prints. All that the kernel has started ends with it."""
    manager, client = start_new_kernel(kernel_name="python3", env=environment(JPY_SESSION_NAME=str(notebook)))
    printed: list[str] = []

    def run(source: str) -> str:
        printed.clear()
        client.execute_interactive(source, timeout=PATIENCE, output_hook=keep)
        return "".join(printed)

    def keep(message: dict) -> None:
        content = message["content"]
        printed.append(content.get("text") or "\n".join(content.get("traceback", [])))

    yield run
    started = family(manager.provisioner.process.pid)
    assert len(started) > 1, "the grading process is kept warm"
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    wait_until_gone(started)


def the_answer(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return next(
        cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "rope_frequencies"
    )


def answer(path: Path, source: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    the_answer(notebook).source = source
    nbformat.write(notebook, path)


@pytest.mark.isolation
def test_the_verdict_is_that_of_the_notebook_as_saved(notebook: Path, run_cell: Callable[[str], str]) -> None:
    assert run_cell("%load_ext autograder") == ""
    assert "0 of 2 points" in run_cell("%grade 3.2")
    right = the_answer(nbformat.read(COURSE / "solutions" / WEEK3 / f"{WEEK3}.ipynb", as_version=4)).source
    answer(notebook, right.replace("base**-exponents", "base**exponents"))
    wrong = run_cell("%grade 3.2")
    assert "Likely cause" in wrong and "2 of 2" not in wrong
    run_cell(right)
    assert "save the notebook" in run_cell("%grade rope_frequencies")
    answer(notebook, right)
    said = run_cell("%grade 3.2")
    assert "Exercise 3.2, rope_frequencies: 2 of 2 points" in said and "save the notebook" not in said
    assert "there is: 3.1" in run_cell("%grade 7")
