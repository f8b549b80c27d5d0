"""A course root for stock nbgrader: the same class, the same hidden tests, none of this course's configuration.

Our hidden tests refuse to run in a student's kernel. Here, for the comparison only, they are let in: the cell opens
``grading()`` itself and ends in the score, which stock nbgrader takes as partial credit. Warnings are silenced in it,
since stock nbgrader gives no point to a cell that has anything on stderr. If a cell stopped before it defined its
answer, the answer counts as missing; otherwise a test that needs several answers would stop with a NameError. Never do
this when you grade for real: student code can then read and change the tests.
"""

import re
import shutil
from pathlib import Path

import nbformat
from nbgrader.coursedir import CourseDirectory

from autograder.course import course_config, source_notebook
from autograder.grading.plugins.gradebook import register_assignment
from autograder.grading.source_names import free_names

# The defaults of nbgrader 0.9.6, except that nbclient skips cells tagged `experiment`: we do not run them either.
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "stock"
c.Execute.skip_cells_with_tag = "experiment"
"""


def make_stock_root(ours: Path, target: Path, assignment: str, seed: int) -> None:
    """Copy source and submissions of ``ours`` and enter the assignment into a gradebook of its own."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(ours / "source" / assignment, target / "source" / assignment)
    for folder in sorted(ours.glob(f"submitted/*/{assignment}")):
        shutil.copytree(folder, target / "submitted" / folder.parent.name / assignment)
    path = source_notebook(target, assignment)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = open_to_the_kernel(cell.source, seed)
    nbformat.write(notebook, path)
    config = course_config(ours)
    config.CourseDirectory.root = str(target)
    course = CourseDirectory(config=config)
    course.db_url = f"sqlite:///{target / 'gradebook.db'}"
    register_assignment(target, course, assignment)
    (target / "nbgrader_config.py").write_text(CONFIG)


def open_to_the_kernel(source: str, seed: int) -> str:
    """Rewrite a hidden test so that it runs in the student's kernel and ends in the score."""
    found = re.search(r"### BEGIN HIDDEN TESTS\n(.*?)\n### END HIDDEN TESTS", source, re.DOTALL)
    if not found:
        return source
    body = found.group(1)
    opened = (
        "import warnings as _warnings\n_warnings.simplefilter('ignore')\n"
        "from autograder.grading.marking.marking import grading as _grading\n"
        "from autograder.script.answer import Absent as _Absent\n"
        f"_answers = {{name: _Absent(name, '') for name in {free_names(body, {})!r}}} | globals()\n"
        f"with _grading({seed}, 'cpu') as _context:\n    exec({body!r}, _answers)\n"
        "float(sum(verdict.score for verdict in _context.verdicts))"
    )
    return source[: found.start(1)] + opened + source[found.end(1) :]
