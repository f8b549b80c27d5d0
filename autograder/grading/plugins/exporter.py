"""What nbgrader's converter asks for a submission's notebook: the rebuilt one with its verdicts."""

import json
from dataclasses import fields
from typing import Any as AnyType

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.preprocessors import AssignLatePenalties
from traitlets import Any, Dict, Enum, Integer, Unicode

from autograder.errors import GradingFailed
from autograder.grading.messages import Failed, Options, wanted_device
from autograder.grading.plugins.background import BackgroundGrading
from autograder.grading.plugins.gradebook import mark_not_graded
from autograder.grading.plugins.run_gradebook import RunGradebook
from autograder.grading.plugins.timestamps import NAME
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
    gradebook: RunGradebook | None = None

    @property
    def options(self) -> Options:
        """How the run is to be done, by the configuration. Raises ``CourseError`` for a device that does not exist."""
        return Options(self.isolation != "none", wanted_device(), self.workers, dict(self.limits), self.scheduler)

    def from_filename(
        self, filename: str, resources: dict[str, AnyType] | None = None, **kwargs: AnyType
    ) -> tuple[AnyType, dict[str, AnyType]]:
        """The rebuilt notebook of a submitted file, with its verdicts, which are in the gradebook by then."""
        if self.background is None or self.gradebook is None or resources is None:
            raise GradingFailed(
                f"{filename} was not part of a run; start it with `nbgrader autograde`, by the course's nbgrader_config.py"
            )
        student, stamp = resources["nbgrader"]["student"], resources["stamp"]
        outcome = self.background.outcome(student)
        if isinstance(outcome, Failed):
            rows = self.gradebook.rows(student, stamp.moment)
            mark_not_graded(rows.notebook, outcome.reason)
            self.gradebook.save(rows)
            raise GradingFailed(f"{student}: {outcome.reason}. No grade was given; run it again")
        resources |= {"output_extension": self.file_extension, "autograder": outcome}
        resources |= {"gradebook": self.gradebook, "seconds_late": 0.0}
        if stamp.content:
            resources["outputs"] = {NAME: stamp.content}  # nbgrader sees by it when a student submits again
        notebook = nbformat.from_dict(outcome.notebook)
        for preprocessor in self._preprocessors:  # no copy, no check after each
            if isinstance(preprocessor, AssignLatePenalties) and not resources["seconds_late"]:
                continue  # it would open the gradebook to find that out
            notebook, resources = preprocessor(notebook, resources)
        return _text_of(notebook), resources


def _text_of(notebook: nbformat.NotebookNode) -> str:
    """As JSON, a cell a line: indented all through it would take three times as long."""
    cells = ",\n".join(json.dumps(cell, ensure_ascii=False, sort_keys=True) for cell in notebook.cells)
    rest = {key: value for key, value in notebook.items() if key != "cells"}
    return f'{{"cells": [\n{cells}\n],\n{json.dumps(rest, ensure_ascii=False, sort_keys=True)[1:]}\n'
