"""What nbgrader calls: `nbgrader autograde` and formgrader's button run through here by nbgrader_config.py.

nbgrader's converter stays as it is, serial, and the only writer of the gradebook. When it makes its exporter, the
grading of all submissions it is about to convert begins, in parallel, in sandboxes; its loop waits for each verdict.
"""

import glob
import json
import re
import warnings
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import nbformat
import nbgrader.converters.base
from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import parse_utc
from sqlalchemy.exc import DatabaseError, SAWarning
from traitlets import Any, Dict, Enum, Integer, Unicode

from autograder.course import CourseError
from autograder.grading.plugins.background import Ahead
from autograder.grading.executors.client import GradingFailed, dismiss, expect
from autograder.grading.plugins.gradebook import mark_not_graded, register_assignment, save_scores
from autograder.grading.messages import Options, wanted_device
from autograder.grading.pipeline import NO_ISOLATION, Graded, RunLock, grade_submissions, is_complete, require_isolation
from autograder.grading.sandbox.sandbox import Limits

# nbgrader 0.9.6 triggers these harmless warnings of a later SQLAlchemy for every new submission.
warnings.filterwarnings("ignore", message="Object of type <Submitted.*not in session", category=SAWarning)

_find_all_files = utils.find_all_files


def find_all_files(path: str, exclude: list[str] | None = None) -> list[str]:
    """nbgrader's, which walks through all folders even where nothing is wanted; they may be very deep."""
    return [] if exclude and exclude[0] == "*" else _find_all_files(path, exclude)


utils.find_all_files = nbgrader.converters.base.find_all_files = find_all_files

MAX_SHOWN = 10_000  # characters of one cell
MAX_SHOWN_IN_ALL = 400_000  # of a notebook; ours have a quarter of that, the course's text included


class SubmissionExporter(NotebookExporter):
    """Reads submissions through intake and grades them ahead of nbgrader's loop."""

    isolation = Enum(["bubblewrap", "none"], default_value="bubblewrap", help="How student code is isolated.").tag(config=True)
    workers = Integer(0, help="Submissions graded at the same time; 0: one per core.").tag(config=True)
    limits = Dict(key_trait=Enum([limit.name for limit in fields(Limits)]),
                  help="What one submission may use, by name: see Limits in autograder/grading/sandbox.py.").tag(config=True)
    scheduler = Unicode("", help="A Dask scheduler's address or scheduler file: grade there. Empty: on this machine.").tag(config=True)
    on_result = Any(None, allow_none=True, help="Called with (student, Graded) as results come.").tag(config=True)
    on_start = Any(None, allow_none=True, help="Called with the list of students about to be graded.").tag(config=True)

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._ahead: Ahead | None = None
        if isinstance(self.parent, Autograde):
            try:
                self._grade_ahead(self.parent)
            except (GradingFailed, CourseError) as error:
                dismiss()
                self.log.error(str(error))
                raise NbGraderException(str(error)) from error
            except (OSError, DatabaseError) as error:
                dismiss()
                reason = f"the course's files cannot be read or written ({error}): free some space or mend the permissions, " \
                         "then start again; what is graded is kept"
                self.log.error(reason)
                raise NbGraderException(reason) from error

    @property
    def options(self) -> Options:
        return Options(self.isolation != "none", wanted_device(), self.workers, dict(self.limits), self.scheduler)

    def from_filename(self, filename: str, resources: dict | None = None, **kwargs: object) -> tuple:
        """nbgrader's two passes: a submitted file becomes the rebuilt notebook; an autograded one is read back."""
        student, assignment = resources["nbgrader"]["student"], resources["nbgrader"]["assignment"]
        graded = self._ahead.result(student) if self._ahead else None
        if graded is None:
            raise GradingFailed(f"{filename} was not part of this run; run it again")
        if graded.reason and graded.result is None and not _is_ungradable(graded.notebook):
            course = self.parent.coursedir
            with Gradebook(course.db_url, course.course_id) as gradebook:
                mark_not_graded(gradebook.find_submission_notebook(assignment, assignment, student), graded.reason)
                gradebook.db.commit()
            raise GradingFailed(f"{student}: {graded.reason}. No grade was given; run it again")
        resources["output_extension"] = self.file_extension
        if not self._preprocessors:  # the first pass, with nothing to sanitize: intake has rebuilt the notebook
            return json.dumps(graded.notebook), resources
        resources["autograder"] = graded
        course = self.parent.coursedir
        if stamp := _timestamp(Path(course.format_path(course.submitted_directory, student, assignment)) / "timestamp.txt"):
            resources["outputs"] = {"timestamp.txt": stamp}  # nbgrader sees by it when a student submits again
        notebook = nbformat.from_dict(graded.notebook)
        for preprocessor in self._preprocessors:  # our own, and one of nbgrader's that changes nothing: no copy, no check after each
            notebook, resources = preprocessor(notebook, resources)
        self._ahead.forget(student)
        return nbformat.v4.writes(notebook) + "\n", resources

    def _grade_ahead(self, converter: Autograde) -> None:
        course = converter.coursedir
        assignment, root = course.assignment_id, Path(course.root)
        options = self.options
        require_isolation(options)
        RunLock(root)
        expect(assignment, options)
        register_assignment(root, course, assignment, self.config)
        found = sorted(map(Path, glob.glob(course.format_path(course.submitted_directory, course.student_id, assignment))))
        folders = {folder.parent.name: folder for folder in found if self._is_name(folder.parent.name)}
        # Which file is the notebook, and that there is none, is for intake to say; nbgrader copies no other file.
        converter.assignments = {str(folder): [str(folder / f"{assignment}.ipynb")] for folder in folders.values()}
        converter.coursedir = _copying_nothing(course)
        due = {student: folder for student, folder in folders.items() if self._is_due(converter, course, folder, student, assignment)}
        if self.isolation == "none":
            self.log.warning(NO_ISOLATION)
        if self.on_start:
            self.on_start(sorted(due))
        self._ahead = Ahead(due, lambda came: grade_submissions(root, assignment, due, options, came, again=converter.force), self.on_result)
        self._ahead.start()

    def _is_due(self, converter: Autograde, course: CourseDirectory, folder: Path, student: str, assignment: str) -> bool:
        """Not graded yet, graded half (a run was killed: removed here), submitted again, or --force."""
        done = Path(course.format_path(course.autograded_directory, student, assignment))
        if not done.exists() or converter.force:
            return True
        if not is_complete(done / f"{assignment}.ipynb"):
            self.log.warning("Grading %s again: an earlier run did not finish", student)
            utils.rmtree(str(done))
            return True
        new, old = (converter.coursedir.get_existing_timestamp(str(place)) for place in (folder, done))
        return new is not None and old is not None and new > old

    def _is_name(self, name: str) -> bool:
        if name.isprintable() and name.encode("utf-8", "replace").decode() == name:
            return True
        self.log.error("Not graded: the folder submitted/%s: no student has such a name; rename it", ascii(name))
        return False


class SafeCourseDirectory(CourseDirectory):
    """A time stamp that is a pipe, a link, a novel or no time at all counts as none."""

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        try:
            return parse_utc(_timestamp(Path(dest_path) / "timestamp.txt").decode())
        except (ValueError, OverflowError):
            return None


def _copying_nothing(course: CourseDirectory) -> CourseDirectory:
    """The same course root, for a converter that is to copy no file of a submission (links, devices, gigabytes)."""
    same = {name: getattr(course, name) for name in ("root", "db_url", "course_id", "assignment_id", "student_id", "notebook_id")}
    return SafeCourseDirectory(config=course.config, ignore=["*"], **same)


def _timestamp(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 200:
        return b""
    return path.read_bytes()


def _is_ungradable(notebook: NotebookNode) -> bool:
    return bool(notebook.cells) and notebook.cells[0].id == "ungradable"


def readable(source: str, room: int = MAX_SHOWN) -> str:
    """At most as much of a cell as a person reads: highlighting takes time with the square of a line's length, and of the
    number of blank lines on end."""
    source = re.sub(r"(?:\n[ \t]*){20,}(?=\n)", "\n" * 20, source)
    if len(source) <= room:
        return source
    return source[:room] + f"\n# [the other {len(source) - room} characters of this cell are left out here]"


class ShowVerdicts(NbGraderPreprocessor):
    """Puts what grading saw into the autograded notebook: the student's outputs, and the verdicts as text."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple:
        graded: Graded = resources["autograder"]
        if graded.result is not None:
            room = MAX_SHOWN_IN_ALL
            for cell in nb.cells:
                cell.source = readable(cell.source, min(MAX_SHOWN, max(room, 500)))
                room -= len(cell.source)
                if cell.cell_type == "code" and cell.id in graded.result.outputs:
                    cell.outputs = [nbformat.from_dict(output) for output in graded.result.outputs[cell.id]]
                if verdict := graded.result.verdicts.get(cell.id):
                    cell.metadata["verdict"] = verdict
                if cell.id in graded.result.failed_checks:
                    cell.metadata["check_failed"] = True
        if graded.notes:
            text = "**Noticed while reading this submission:**\n\n" + "\n".join(f"- {note}" for note in graded.notes)
            nb.cells.insert(0, nbformat.v4.new_markdown_cell(text, id="intake-notes"))
        nb.metadata["autograder"] = {"graded": True, "isolated": graded.isolated}
        nbformat.validate(nb, relax_add_props=True)
        return nb, resources


class SaveVerdicts(NbGraderPreprocessor):
    """Writes scores to the gradebook. Scores come from the verdicts, never from cell outputs."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple:
        graded: Graded = resources["autograder"]
        where = resources["nbgrader"]
        cells = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}
        with Gradebook(where["db_url"]) as gradebook:
            notebook = gradebook.find_submission_notebook(where["notebook"], where["assignment"], where["student"])
            if graded.result is None:
                mark_not_graded(notebook, graded.reason)
            else:
                save_scores(notebook, cells, graded.result.scores, graded.to_look_at)
            gradebook.db.commit()
        graded.forget()
        return nb, resources
