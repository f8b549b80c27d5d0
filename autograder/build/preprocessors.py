"""nbgrader preprocessors for building: what the student's copy loses, and what the solution keeps."""

from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from traitlets import Bool

from autograder.build.regions import clear_hidden, clear_solution, replace_region, unmark
from autograder.errors import RegionError


class ClearAnswers(NbGraderPreprocessor):
    """Stubs for solutions; in cells tagged ``by-hand`` the solution vanishes and the dict of ``None`` stays."""

    def preprocess_cell(self, cell: NotebookNode, resources: ResourcesDict, index: int) -> tuple[NotebookNode, ResourcesDict]:
        if utils.is_solution(cell):
            cell.source = clear_solution(cell)
        elif replace_region(cell.source, "SOLUTION")[1]:
            raise RegionError(f"a solution stands in cell {cell.get('id')}, which is no answer cell")
        return cell, resources


class KeepSolution(NbGraderPreprocessor):
    """The solution notebook: answers without markers, no hidden tests, no mark scheme, no old output."""

    def preprocess_cell(self, cell: NotebookNode, resources: ResourcesDict, index: int) -> tuple[NotebookNode, ResourcesDict]:
        cell.source = clear_hidden(unmark(cell.source, "SOLUTION"))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        return cell, resources


class ExecuteSolution(Execute):
    """Runs the solution; unlike in grading, a cell that fails is an error of ours and ends the build."""

    allow_errors = Bool(False, help="A solution has no failing cells.")


class ReleaseMetadata(NbGraderPreprocessor):
    """Notebook metadata that is the same on every machine."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        language = {"name": "python"}
        kept = {key: value for key, value in nb.metadata.items() if key == "course"}
        nb.metadata = NotebookNode(kept | {"kernelspec": KERNEL, "language_info": language})
        for cell in nb.cells:
            cell.metadata.pop("execution", None)
        return nb, resources


KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
