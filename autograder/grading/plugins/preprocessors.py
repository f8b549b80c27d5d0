"""nbgrader's steps for a rebuilt notebook: put the verdicts into its cells and the scores into the gradebook."""

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from autograder.grading.messages import Graded, Result, Ungradable
from autograder.grading.plugins.gradebook import mark_not_graded, save_scores
from autograder.grading.plugins.restore import record
from autograder.grading.plugins.run_gradebook import RunGradebook

MAX_SHOWN = 10_000  # characters of one cell
MAX_SHOWN_IN_ALL = 400_000  # characters of a notebook; the course's own have a quarter of that, text included


def readable(source: str, room: int = MAX_SHOWN) -> str:
    """Shorten a cell to what a person reads."""
    if len(source) <= room:
        return source
    return source[:room] + f"\n# [the other {len(source) - room} characters of this cell are left out here]"


class ShowVerdicts(NbGraderPreprocessor):
    """Puts what grading saw into the autograded notebook: the student's outputs, and the verdicts as text."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        outcome: Graded | Ungradable = resources["autograder"]
        if isinstance(outcome, Graded):
            _show(nb, outcome.result)
            if notes := [*outcome.notes, *filter(None, [resources["stamp"].problem])]:
                text = "**Noticed while reading this submission:**\n\n" + "\n".join(f"- {note}" for note in notes)
                nb.cells.insert(0, nbformat.v4.new_markdown_cell(text, id="intake-notes"))
        nb.metadata["autograder"] = {"graded": True, "isolated": outcome.isolated}
        # In the other cells everything but the text is the course's own, so only these need validation.
        filled = [cell for cell in nb.cells if cell.get("outputs") or "attachments" in cell]
        nbformat.validate(NotebookNode(nb, cells=filled), relax_add_props=True)
        return nb, resources


def _show(nb: NotebookNode, result: Result) -> None:
    room = MAX_SHOWN_IN_ALL
    for cell in nb.cells:
        cell.source = readable(cell.source, min(MAX_SHOWN, max(room, 500)))
        room -= len(cell.source)
        if cell.cell_type == "code" and cell.id in result.outputs:
            cell.outputs = [nbformat.from_dict(output) for output in result.outputs[cell.id]]
        if verdict := result.verdicts.get(cell.id):
            cell.metadata["verdict"] = verdict
        if cell.id in result.failed_checks:
            cell.metadata["check_failed"] = True


class SaveVerdicts(NbGraderPreprocessor):
    """Writes scores to the gradebook. Scores come from the verdicts, never from cell outputs."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        outcome: Graded | Ungradable = resources["autograder"]
        gradebook: RunGradebook = resources["gradebook"]
        rows = gradebook.rows(resources["nbgrader"]["student"], resources["stamp"].moment)
        if isinstance(outcome, Ungradable):
            mark_not_graded(rows, outcome.reason)
        else:
            cells = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}
            save_scores(rows, gradebook.names, cells, outcome.result.scores, outcome.to_look_at)
        rows.late_submission_penalty = None  # a late submission gets one next
        reason = outcome.reason if isinstance(outcome, Ungradable) else ""
        nb.metadata["autograder"]["kept"] = record(rows, gradebook.names, reason)
        resources["seconds_late"] = gradebook.save(rows)
        return nb, resources
