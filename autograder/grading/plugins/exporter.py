"""What nbgrader's converter asks for a submission's notebook: the rebuilt one first, then the one with its verdicts."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any as AnyType

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from traitlets import Any, Dict, Enum, Integer, Unicode

from autograder.errors import GradingFailed
from autograder.grading.messages import Failed, Options, wanted_device
from autograder.grading.plugins.background import BackgroundGrading
from autograder.grading.plugins.gradebook import mark_not_graded
from autograder.grading.plugins.timestamps import timestamp_bytes
from autograder.grading.sandbox.limits import Limits


class SubmissionExporter(NotebookExporter):
    """Hands out what grading has made of each submission. The converter (`plugins/autograde.py`) begins and ends the run."""

    isolation = Enum(["bubblewrap", "none"], default_value="bubblewrap", help="How student code is isolated.").tag(
        config=True
    )
    workers = Integer(0, help="Submissions graded at the same time; 0: one per core.").tag(config=True)
    limits = Dict(
        key_trait=Enum([limit.name for limit in fields(Limits)]),
        help="What one submission may use, by name: see Limits in autograder/grading/sandbox/limits.py.",
    ).tag(config=True)
    scheduler = Unicode(
        "", help="A Dask scheduler's address or scheduler file: grade there. Empty: on this machine."
    ).tag(config=True)
    on_result = Any(None, allow_none=True, help="Called with (student, Outcome) as results come.").tag(config=True)
    on_start = Any(None, allow_none=True, help="Called with the list of students about to be graded.").tag(config=True)

    background: BackgroundGrading | None = None  # of the run under way

    @property
    def options(self) -> Options:
        """How the run is to be done, by the configuration. Raises ``CourseError`` for a device that does not exist."""
        return Options(self.isolation != "none", wanted_device(), self.workers, dict(self.limits), self.scheduler)

    def from_filename(
        self, filename: str, resources: dict[str, AnyType] | None = None, **kwargs: AnyType
    ) -> tuple[AnyType, dict[str, AnyType]]:
        """nbgrader's two passes: a submitted file becomes the rebuilt notebook; an autograded one is read back."""
        if self.background is None or resources is None:
            raise GradingFailed(
                f"{filename} was not part of a run; start it with `nbgrader autograde`, by the course's nbgrader_config.py"
            )
        student, assignment = resources["nbgrader"]["student"], resources["nbgrader"]["assignment"]
        outcome = self.background.outcome(student)
        if isinstance(outcome, Failed):
            self._mark_failed(student, assignment, outcome.reason)
            raise GradingFailed(f"{student}: {outcome.reason}. No grade was given; run it again")
        resources["output_extension"] = self.file_extension
        if not self._preprocessors:  # the first pass, with nothing to sanitize: intake has rebuilt the notebook
            return json.dumps(outcome.notebook), resources
        resources["autograder"] = outcome
        course = self._course
        submitted = Path(course.format_path(course.submitted_directory, student, assignment))
        if stamp := timestamp_bytes(submitted):
            resources["outputs"] = {"timestamp.txt": stamp}  # nbgrader sees by it when a student submits again
        notebook = nbformat.from_dict(outcome.notebook)
        for (
            preprocessor
        ) in self._preprocessors:  # our own, and one of nbgrader's that changes nothing: no copy, no check after each
            notebook, resources = preprocessor(notebook, resources)
        self.background.forget(student)
        return nbformat.v4.writes(notebook) + "\n", resources

    @property
    def _course(self) -> CourseDirectory:
        assert self.parent is not None  # a converter of nbgrader's made this exporter
        return self.parent.coursedir

    def _mark_failed(self, student: str, assignment: str, reason: str) -> None:
        course = self._course
        with Gradebook(course.db_url, course.course_id) as gradebook:
            mark_not_graded(gradebook.find_submission_notebook(assignment, assignment, student), reason)
            gradebook.db.commit()
