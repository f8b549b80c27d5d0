"""The exporter that gives nbgrader's converter a submission's notebook: the rebuilt one with its verdicts."""

import json
from dataclasses import fields
from typing import Any

from nbconvert.exporters import NotebookExporter
from nbgrader.preprocessors import AssignLatePenalties
from traitlets import Dict, Enum, Integer, Unicode

from autograder.grading.messages import Options, wanted_device
from autograder.grading.sandbox.limits import Limits


class SubmissionExporter(NotebookExporter):
    """Puts the verdicts into the rebuilt notebook and the gradebook. The converter (`plugins/autograde.py`) runs the grading."""

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

    @property
    def options(self) -> Options:
        """The options of the run, from the configuration. Raises ``CourseError`` for a device that does not exist."""
        return Options(self.isolation != "none", wanted_device(), self.workers, dict(self.limits), self.scheduler)

    def from_filename(
        self, filename: str, resources: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Save the verdicts of a submitted file in the gradebook and return its rebuilt notebook with them."""
        assert resources is not None  # `CourseAutograde` gives them
        resources |= {"output_extension": self.file_extension, "seconds_late": 0.0}
        notebook = resources["autograder"].notebook
        for preprocessor in self._preprocessors:  # unlike nbconvert: no copy, no check after each
            if isinstance(preprocessor, AssignLatePenalties) and not resources["seconds_late"]:
                continue  # it would open the gradebook to find that out
            notebook, resources = preprocessor(notebook, resources)
        return json.dumps(notebook, ensure_ascii=False, sort_keys=True, indent=1) + "\n", resources
