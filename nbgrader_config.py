"""nbgrader's configuration for the course: only directories and plug-ins. Their code is in autograder/."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for an environment without the course's own package

from autograder.grading.plugins import nbgrader_patches

nbgrader_patches.apply()  # our grading inside nbgrader's own commands, and a gradebook fit for a large class

c = get_config()
GRADING = Path(find_spec("autograder.grading").origin).parent

c.CourseDirectory.course_id = "positional_encodings"
c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.solution_directory = "solutions"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", ".DS_Store", "feedback"]

# Building: our stubs (answers by hand keep their dict), mark schemes in locked question cells, portable metadata.
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "autograder.build.preprocessors.ClearAnswers",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.ClearHiddenTests",
    "nbgrader.preprocessors.ClearMarkScheme",
    "autograder.build.opened_alone.OpenedAlone",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.CheckCellMetadata",
    "autograder.build.preprocessors.ReleaseMetadata",
]
c.GenerateSolution.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "autograder.build.preprocessors.KeepSolution",
    "autograder.build.preprocessors.ExecuteSolution",
    "autograder.build.preprocessors.StorePicturesOnce",
    "autograder.build.preprocessors.FullAnswers",
    "autograder.build.preprocessors.ReleaseMetadata",
]
c.OpenedAlone.course = str(Path(__file__).resolve().parent)
c.ClearMarkScheme.enforce_metadata = False
c.Execute.record_timing = False
c.Execute.timeout = 900  # seconds per cell: only a backstop, since a busy machine may be slow
c.Execute.extra_arguments = ["--HistoryManager.hist_file=:memory:", "--IPKernelApp.log_level=ERROR"]

# Grading: in the background of nbgrader's own loop, verdicts from the trusted side.
c.Autograde.exporter_class = "autograder.grading.plugins.exporter.SubmissionExporter"
c.Autograde.sanitize_preprocessors = []
c.Autograde.autograde_preprocessors = [
    "autograder.grading.plugins.preprocessors.ShowVerdicts",
    "autograder.grading.plugins.preprocessors.SaveVerdicts",
    "nbgrader.preprocessors.AssignLatePenalties",
]
c.AssignLatePenalties.plugin_class = "autograder.late.LateDays"
c.LateDays.table = str(Path(__file__).resolve().parent / "late.csv")  # without this file nobody loses points
c.HTMLExporter.sanitize_html = True  # formgrader and feedback show no student's HTML or script
c.HTMLExporter.filters = {
    "markdown2html": "autograder.grading.plugins.markdown.markdown2html",  # formulas without a network
    "highlight_code": "autograder.grading.plugins.code.highlight_code",
}
c.HTMLExporter.template_file = str(GRADING / "templates" / "formgrader" / "formgrader.html.j2")
c.GenerateFeedback.exporter_class = "autograder.grading.plugins.feedback.FeedbackExporter"
c.GenerateFeedback.preprocessors = [
    "autograder.grading.plugins.feedback.HideInstructorParts",
    "nbgrader.preprocessors.GetGrades",
    "autograder.grading.plugins.feedback.SummariseFeedback",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
c.FormgradeExtension.debug = False  # its page would show the whole configuration, including a database's password
c.ExportApp.plugin_class = "autograder.grading.plugins.export.GradesWithReasons"
