"""The exporter starts nothing by itself."""

import os
import threading
from pathlib import Path

import pytest
from helpers import family
from nbgrader.converters import Autograde
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.grading.plugins.autograde import CourseAutograde, why_refused
from autograder.grading.plugins.exporter import SubmissionExporter
from autograder.grading.plugins.generate_feedback import CourseFeedback
from autograder.grading.plugins.preprocessors import MAX_SHOWN, readable


def made(root: Path) -> SubmissionExporter:
    course = CourseDirectory(config=Config(CourseDirectory={"root": str(root)}))
    config = Config(SubmissionExporter={"workers": 3, "isolation": "none", "limits": {"memory": 5}})
    return SubmissionExporter(parent=Autograde(coursedir=course, config=config), config=config)


def test_making_one_starts_no_process_no_thread_and_takes_no_lock(tmp_path: Path) -> None:
    before, threads = family(os.getpid()), threading.active_count()
    exporter = made(tmp_path)
    assert family(os.getpid()) <= before and threading.active_count() == threads and list(tmp_path.iterdir()) == []
    assert (exporter.options.workers, exporter.options.isolate, exporter.options.limits) == (3, False, {"memory": 5})


@pytest.mark.parametrize("make", [CourseAutograde, CourseFeedback])
@pytest.mark.parametrize(
    ("notebook", "enabled", "said"),
    [("problem*", True, "--notebook problem[*] has no effect here"), ("*", False, "--no-execute has no effect here")],
)
def test_an_option_without_an_effect_is_refused(
    tmp_path: Path, make: type[BaseConverter], notebook: str, enabled: bool, said: str
) -> None:
    course = CourseDirectory(config=Config(CourseDirectory={"root": str(tmp_path), "notebook_id": notebook}))
    course.assignment_id = "week3_rope"
    with pytest.raises(NbGraderException, match=said):
        make(coursedir=course, config=Config(Execute={"enabled": enabled})).init_notebooks()
    course.notebook_id = "week3*"  # matches all notebooks
    assert why_refused(make(coursedir=course)) == ""
    course.assignment_id = "week3"
    assert "there is no assignment 'week3'; there is: " in why_refused(make(coursedir=course))


def test_a_long_cell_is_cut_where_a_person_stops_reading() -> None:
    assert readable("x = 1") == "x = 1"
    assert len(readable("x" * 50_000)) < MAX_SHOWN + 100 and "left out here" in readable("x" * 50_000)
