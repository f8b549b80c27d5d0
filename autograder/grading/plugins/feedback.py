"""Feedback pages: nbgrader's, cut down to the student's own work, with a table on top that says what to look at."""

from pathlib import Path
from typing import Any

from nbconvert.exporters import HTMLExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

from autograder.build.regions import clear_hidden
from autograder.course import is_week
from autograder.grading.plugins.code import code_in
from autograder.grading.plugins.exchange import SECRET, exchange_key
from autograder.grading.plugins.generate_feedback import CourseFeedback
from autograder.grading.plugins.gradebook import reason_not_graded
from autograder.manifest import MANIFEST, Exercise
from autograder.script.verdict import UNANSWERED

TEMPLATES = Path(__file__).parent / "templates"
UNDONE = "its code still raises NotImplementedError"


class FeedbackExporter(HTMLExporter):
    """HTML by the course's own template, which extends nbgrader's."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        config, theirs = Config(config), config.HTMLExporter  # nbgrader has put its own template paths in here
        config.FeedbackExporter.merge(
            {
                "template_name": "course_feedback",
                "template_file": "index.html.j2",  # HTMLExporter's setting is for formgrader
                "exclude_input_prompt": True,
                "exclude_output_prompt": True,
                "extra_template_basedirs": [*theirs.extra_template_basedirs, str(TEMPLATES)],
                "extra_template_paths": [*theirs.extra_template_paths, *theirs.extra_template_basedirs],
            }
        )
        super().__init__(config=config, **kwargs)  # type: ignore[no-untyped-call]
        self.register_filter("code_in", code_in)  # type: ignore[no-untyped-call]

    def from_notebook_node(
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        resources = {} if resources is None else resources
        if isinstance(self.parent, CourseFeedback):
            resources["made_from"] = self.parent.origins.get(resources["nbgrader"]["student"])
        page, found = super().from_notebook_node(nb, resources, **kwargs)
        if isinstance(self.parent, GenerateFeedback):
            found.setdefault("outputs", {}).update(_for_the_exchange(self.parent.coursedir, found["nbgrader"], page))
        return page, found


def _for_the_exchange(course: CourseDirectory, where: dict[str, Any], page: str) -> dict[str, bytes]:
    """Return the files that nbgrader's exchange needs beside the page: the secret, and copies under other names."""
    key = exchange_key(course, where["student"], where["assignment"])
    if key is None:
        return {}
    others = [name for name in key.names if name != where["assignment"]]
    return {SECRET: key.secret} | {f"{name}.html": page.encode() for name in others}


class HideInstructorParts(NbGraderPreprocessor):
    """Keeps the student's answers and the verdicts; removes hidden tests, mark schemes and the chapter's text."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[Any, ...]:
        if nb.cells and nb.cells[0].id == "ungradable":
            nb.cells = nb.cells[:1]
        nb.cells = [cell for cell in nb.cells if self._belongs(cell)]
        tested = False
        for cell in nb.cells:
            if utils.is_grade(cell) and cell.metadata.nbgrader.points:
                tested = tested or not utils.is_solution(cell)
            elif tested and cell.cell_type == "code" and not utils.is_grade(cell):
                cell.outputs = []  # the student's code has seen hidden inputs by now, and could print them
            if utils.is_locked(cell):
                cell.source = clear_hidden(cell.source)
            if utils.is_grade(cell) and not cell.metadata.nbgrader.points:
                # A visible check has failed: its message is worth reading, but the student already has its code.
                cell.source = "# The visible check said:"
                del cell.metadata["nbgrader"]
        return nb, resources

    @staticmethod
    def _belongs(cell: NotebookNode) -> bool:
        if cell.id in ("ungradable", "intake-notes") or "student" in cell.metadata.get("tags", []):
            return True
        if utils.is_solution(cell) or utils.is_task(cell):
            return True
        return utils.is_grade(cell) and bool(cell.metadata.nbgrader.points or cell.metadata.get("check_failed"))


class SummariseFeedback(NbGraderPreprocessor):
    """The table on top of the page. Runs after nbgrader's GetGrades."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[Any, ...]:
        where = resources["nbgrader"]
        with Gradebook(where["db_url"]) as gradebook:
            submission = gradebook.find_submission(where["assignment"], where["student"])
            reason = reason_not_graded(submission)
            waiting = {
                grade.name: WAITS if grade.manual_score is None else WAITS_AGAIN
                for notebook in submission.notebooks
                for grade in notebook.grades
                if grade.needs_manual_grade
            }
        cells = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}
        rows = [
            _row(entry, cells[entry.graded_cell], waiting.get(entry.graded_cell, ""))
            for entry in MANIFEST.get(where["assignment"]) or _own_exercises(cells)
            if entry.graded_cell in cells
        ]
        resources["summary"] = {
            "reason": reason,
            "waiting": len(waiting),
            "rows": rows,
            "own_tests": not is_week(where["assignment"]),
        }
        return nb, resources


def _own_exercises(cells: dict[str, NotebookNode]) -> list[Exercise]:
    """Return an exercise for each cell with points, in an assignment that the manifest does not list."""
    graded = {name: cell.metadata.nbgrader.get("points") for name, cell in cells.items()}
    return [
        Exercise(str(number), name, "test", points, 0)
        for number, (name, points) in enumerate(((n, p) for n, p in graded.items() if p), 1)
    ]


WAITS = "will be read by a person"
WAITS_AGAIN = "will be read again by a person; these points are from before"


def _row(entry: Exercise, cell: NotebookNode, waits: str) -> dict[str, Any]:
    score, points = cell.metadata.nbgrader.get("score") or 0.0, cell.metadata.nbgrader.points
    if waits:
        notes = [waits]
    elif cell.metadata.get("unanswered"):
        notes = ["no answer"]
    else:
        notes = what_to_look_at(cell.metadata.get("verdict") or {})
    shown = "– " if waits == WAITS else f"{score:g} "
    return {
        "number": entry.number,
        "name": entry.grade_id,
        "cell": entry.graded_cell,
        "notes": notes,
        "points": f"{shown}of {points:g}",
    }


def what_to_look_at(verdict: dict[str, Any]) -> list[str]:
    """Return the likely causes, below the first missed criterion if they do not say why that was missed."""
    named, criteria = list(verdict.get("named", [])), verdict.get("criteria", [])
    missed = [criterion for criterion in criteria if criterion["earned"] < criterion["points"]]
    if not missed or (named and verdict.get("names_first", True)):
        return named
    if all(criterion["earned"] == 0 and "not answered yet" in criterion["message"] for criterion in criteria):
        return [verdict.get("note") or (UNDONE if missed[0]["message"] == UNANSWERED else "no answer")]
    first = missed[0]["message"].splitlines()[:1]
    return [": ".join([missed[0]["name"], *first]), *named]
