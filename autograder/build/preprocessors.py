"""nbgrader preprocessors that build the student's copy and the solution."""

import hashlib
import re
from pathlib import Path

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from traitlets import Bool

from autograder.build.full_answers import add_full_answers
from autograder.build.regions import clear_hidden, clear_solution, clear_stock_solutions, replace_region, unmark
from autograder.course import is_week
from autograder.errors import TextError


class ClearAnswers(NbGraderPreprocessor):
    """Replaces solutions by stubs; in cells tagged ``by-hand`` the solution goes and the dict of ``None`` stays.

    An instructor's own assignment gets nbgrader's stubs.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        assignment = resources["nbgrader"]["assignment"]
        if is_week(assignment):
            changed: tuple[NotebookNode, ResourcesDict] = super().preprocess(nb, resources)
            return changed
        clear_stock_solutions(nb, self.config, assignment)
        return nb, resources

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        if utils.is_solution(cell):
            cell.source = clear_solution(cell)
        elif replace_region(cell.source, "SOLUTION")[1]:
            raise TextError(
                f'a solution stands in cell {cell.get("id")}, which is no answer cell: its header lacks "solution": true'
            )
        return cell, resources


class KeepSolution(NbGraderPreprocessor):
    """Makes the solution notebook: answers without markers, no hidden tests, no mark scheme, no old output."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        cell.source = clear_hidden(unmark(cell.source, "SOLUTION"))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        return cell, resources


class ExecuteSolution(Execute):
    """Runs the solution. Unlike in grading, a cell that fails is our own mistake and ends the build."""

    allow_errors = Bool(False, help="A solution has no failing cells.")
    coalesce_streams = Bool(True, help="Whether a long print comes in one message or two depends on the machine.")


class StorePicturesOnce(NbGraderPreprocessor):
    """Leaves the pictures of ``lab.py`` only in HTML, with their alternative text. Only grading needs the PNG, too."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        for output in cell.get("outputs", []):
            if PICTURE.match(output.get("data", {}).get("text/html", "")):
                output.data.pop("image/png", None)
        return cell, resources


PICTURE = re.compile(r'(?:<div data-lab="[^"]*">)?<img alt="[^"]*" src="data:image/png;base64,')


class FullAnswers(NbGraderPreprocessor):
    """Adds mark schemes for people who learn alone, and a source digest by which a build sees changes."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        folder = Path(resources["metadata"]["path"])
        add_full_answers(nb, nbformat.read(folder / f"{resources['unique_key']}.ipynb", as_version=4))
        nb.metadata["course"] = {"built_from": source_digest(folder)}
        return nb, resources


def source_digest(folder: Path) -> str:
    """Digest of an assignment's folder under source/, without files that editors and systems leave there."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in PRODUCTS:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


PRODUCTS = (".ipynb", ".py", ".json", ".npz")


class ReleaseMetadata(NbGraderPreprocessor):
    """Makes a week's metadata the same on every machine; an instructor's own assignment keeps its metadata."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        if not is_week(resources["nbgrader"]["assignment"]):
            return nb, resources
        language = {"name": "python"}
        kept = {key: value for key, value in nb.metadata.items() if key == "course"}
        nb.metadata = NotebookNode(kept | {"kernelspec": KERNEL, "language_info": language})
        return nb, resources


KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
