"""Recognising a notebook's assignment, even if it has lost its name, its ids and its metadata."""

from pathlib import Path

import nbformat
import pytest
from helpers import COURSE

from autograder.errors import CourseError
from autograder.manifest import MANIFEST
from autograder.one_notebook import assignment_in


@pytest.mark.parametrize("assignment", MANIFEST)
def test_a_notebook_that_lost_ids_and_metadata_is_recognised_by_its_answers(assignment: str, tmp_path: Path) -> None:
    notebook = nbformat.read(COURSE / "notebooks" / assignment / f"{assignment}.ipynb", as_version=4)
    notebook.nbformat_minor = 4  # cells have had ids since 4.5
    for cell in notebook.cells:
        cell.metadata = {}
        del cell["id"]
    path = tmp_path / "Copy of my homework.ipynb"
    nbformat.write(notebook, path)
    assert assignment_in(path, COURSE) == assignment


def test_another_notebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")]), path)
    with pytest.raises(CourseError, match="does not look like"):
        assignment_in(path, COURSE)
    with pytest.raises(CourseError, match="is no course"):
        assignment_in(path, tmp_path)
