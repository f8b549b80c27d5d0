"""Turn a submitted file into a notebook that can be graded: the instructor's cells with the student's answers.

A submission gives the answers (`matching` finds them), the student's own cells and pictures, what experiments have shown,
and Python's version. All else (tests, points, flags, set-up, order) comes from the instructor's notebook.
"""

import itertools
import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, Role, answer_names, instructor_cells, released_files
from autograder.errors import CourseError, UngradableError
from autograder.grading.source_names import defined_names
from autograder.grading.submission.flags import flags, what_counts
from autograder.grading.submission.forward import brought_forward
from autograder.grading.submission.matching import match
from autograder.grading.submission.notebook_file import read, shown
from autograder.grading.submission.packages import not_here
from autograder.grading.submission.pasted import placed
from autograder.grading.submission.pieces import is_blank
from autograder.manifest import MANIFEST, RELEASED_FILES

MAX_FILES = 10_000
MAX_OTHERS = 10  # other notebooks of a submission that are searched for answers
JOINERS = "\u200c\u200d\u200e\u200f\u061c"  # joiners and direction marks, which Persian, Hindi, Hebrew and emoji need
RUN_ABOVE = "the definition was run above it as well"
TAKES_ANSWER = (Role.ANSWER, Role.PREDICTION, Role.EXPERIMENT, Role.OPEN)


@dataclass
class Intake:
    """The rebuilt notebook and what was noticed on the way."""

    notebook: NotebookNode
    notes: list[str] = field(default_factory=list)
    to_look_at: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)  # those notes that the instructor has to act on
    not_here: list[str] = field(default_factory=list)  # modules that grading lacks


def rebuild(path: Path, root: Path, assignment: str) -> Intake:
    """Build the notebook to grade from a notebook file or a submission's folder. Raises ``UngradableError``."""
    notes: list[str] = []
    warnings: list[str] = []
    template = instructor_cells(root, assignment)
    try:
        if path.is_dir():
            path = _choose_notebook(path, root, assignment, notes, warnings)
    except OSError as error:
        raise UngradableError(
            f"the submission's folder cannot be read ({error.strerror}); look at its permissions"
        ) from error
    submitted = read(path)
    found = match(submitted, template)
    if not any(cell.role is Role.ANSWER and cell.id in found.answers for cell in template):
        raise UngradableError(
            f"none of the exercises of {assignment} is in it{_looks_like(submitted, root)}; submit the notebook of this week"
        )
    numbers = itertools.count()
    cells = [_extra(own, next(numbers)) for own in found.extras.get(None, [])]
    late: list[NotebookNode] = []
    for cell, below in itertools.zip_longest(template, template[1:]):
        answer = found.answers.get(cell.id)
        if answer is not None or cell.role is not Role.OPEN:  # an open cell without answer was removed, or is an extra
            cells.append(_rebuilt(cell, answer))
        here = [*late, *found.extras.get(cell.id, [])]
        before_tests = cell.role is Role.TEST and below is not None and below.role is Role.TEST
        late = [own for own in here if before_tests and _uses_up(own, template)]
        cells += [_extra(own, next(numbers)) for own in here if own not in late]
    for forward in brought_forward(cells, template):
        at = next(index for index, cell in enumerate(cells) if cell.id == forward.cell)
        if answer := cells[at].metadata.get("nbgrader", {}).get("grade_id"):
            names = ", ".join(map(shown, forward.names))
            notes.append(
                f"{answer} uses {names}, defined further down or in a cell that grading does not run: {RUN_ABOVE}"
            )
        cells.insert(at, _extra(_code_cell(forward.source), next(numbers)))
    notebook = _notebook(cells)
    notes += placed(notebook.cells, submitted.pictures)
    # Only now: `placed` gives the student's pictures to the cells that have attachments.
    pictures = {cell.id: cell.attachments for cell in template if cell.attachments and cell.role not in TAKES_ANSWER}
    for rebuilt in notebook.cells:
        if rebuilt.id in pictures:
            rebuilt.attachments = nbformat.from_dict(pictures[rebuilt.id])
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(display_name="Python 3", language="python", name="python3"),
        language_info=NotebookNode(name="python", version=submitted.python),
    )
    theirs = [cell for cell in notebook.cells if cell.cell_type == "code" and _is_theirs(cell)]
    parts = list(what_counts(theirs))
    flagged, lacking = flags(assignment, parts), not_here([part for _, part in parts], released_files(root, assignment))
    notes += [f"it imports {name}, which is not installed where it was graded" for name in map(shown, lacking)]
    if any("set_default_dtype(" in cell.source for cell in theirs):
        notes.append("it sets PyTorch's default dtype; grading calls every answer with the usual one, float32")
    said = [*warnings, *notes, *found.notes, *(flag.sentence() for flag in flagged)]
    return Intake(notebook, list(dict.fromkeys(said)), {flag.grade_id for flag in flagged}, warnings, lacking)


def _uses_up(own: NotebookNode, template: tuple[Cell, ...]) -> bool:
    """Whether a cell of the student's own gives an exercise's name to something else, as in ``f = f(x)``, or may do so
    by a star. Between a visible check and the hidden tests, which students do not see, it is put below the tests."""
    names = {cell.grade_id for cell in template if cell.role is Role.ANSWER and cell.grade_id}
    reused = {
        name
        for name in defined_names(own.source) & names
        if not re.search(rf"^(def|class) {name}\b", own.source, re.MULTILINE)
    }
    return own.cell_type == "code" and bool(reused or "import *" in own.source)


def _is_theirs(cell: NotebookNode) -> bool:
    return "unanswered" in cell.metadata or "student" in cell.metadata.get("tags", [])


def unreadable(root: Path, assignment: str, reason: str) -> NotebookNode:
    """Return a stand-in for a submission that cannot be graded: the reason and the instructor's cells, unanswered."""
    cells = [_rebuilt(cell, None) for cell in instructor_cells(root, assignment)]
    banner = _markdown_cell(f"**This submission could not be graded.** {reason}", id="ungradable")
    return _notebook([banner, *cells])


def _choose_notebook(folder: Path, root: Path, assignment: str, notes: list[str], warnings: list[str]) -> Path:
    """Return the notebook among a submission's files. Links are not followed; other files are listed and left alone."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise UngradableError("the submission is a link, which is not followed; submit the folder itself")
    expected = f"{assignment}.ipynb"
    entries = _entries(folder)
    notebooks = _notebooks(entries)
    if not notebooks:
        inner = [entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name[0] not in "._"]
        holding = [entry.name for entry in inner if _notebooks(_entries(folder / entry.name))]
        if len(holding) == 1:
            notes.append(f"the notebook was in the folder {shown(holding[0])}")
            folder /= holding[0]
            entries = _entries(folder)
            notebooks = _notebooks(entries)
    notebooks = [name for name in notebooks if not name.startswith(".")] or notebooks  # a Mac's ._X.ipynb is not one
    named = [name for name in notebooks if name.lower() == expected.lower()]
    chosen = expected if expected in named else named[0] if len(named) == 1 else ""
    chosen = chosen or (notebooks[0] if len(notebooks) == 1 else "")
    if len(notebooks) > 1:
        chosen = _with_answers(folder, chosen, notebooks, instructor_cells(root, assignment), warnings)
    if not chosen:
        found = ", ".join(shown(entry.name) for entry in entries[:10]) or "nothing"
        raise UngradableError(
            f"there is no {expected} in the submission (found: {found}); submit the course's notebook under its name"
        )
    if chosen != expected:
        notes.append(f"the notebook was called {shown(chosen)}")
    known = {
        chosen,
        "timestamp.txt",
        "submission_secret.txt",  # from nbgrader's exchange
        ".ipynb_checkpoints",
        "__pycache__",
        *(name.split("/")[0] for name in released_files(root, assignment)),
        *RELEASED_FILES.get(assignment, ()),
    }
    strays = [shown(entry.name) for entry in entries if entry.name not in known and not entry.name.startswith("._")]
    if strays:
        notes.append(
            f"other files were submitted and not used: {', '.join(strays[:10])}" + (" …" if len(strays) > 10 else "")
        )
    return folder / chosen


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    return sorted(itertools.islice(os.scandir(folder), MAX_FILES), key=lambda entry: entry.name)


def _notebooks(entries: list[os.DirEntry[str]]) -> list[str]:
    """Return the names of notebooks. Some browsers save them with the ending of what they take them for."""
    return [entry.name for entry in entries if re.search(r"\.ipynb(\.txt|\.json)?$", entry.name, re.IGNORECASE)]


def _with_answers(
    folder: Path, chosen: str, notebooks: list[str], template: tuple[Cell, ...], warnings: list[str]
) -> str:
    """Return ``chosen``; or, if it is missing or holds no answers, the only other notebook that holds some."""
    looked_at = ([chosen] if chosen else []) + [name for name in notebooks if name != chosen][:MAX_OTHERS]
    answers = {name: _count_answers(folder / name, template) for name in looked_at}
    there, full = answers.pop(chosen, 0), {name: count for name, count in answers.items() if count}
    if not there and len(full) == 1:
        (name, count), *_ = full.items()
        blank = f"{chosen} holds none" if chosen else "no other notebook does"
        warnings.append(f"{shown(name)} holds {count} answers and was graded: {blank}")
        return name
    if not there and full:
        held = ", ".join(f"{shown(name)} ({count} answers)" for name, count in full.items())
        which = (
            f"{chosen} holds no answers, but several other notebooks do" if chosen else "several notebooks hold answers"
        )
        raise UngradableError(f"{which}: {held}; keep one of them")
    if not there and not full and len(notebooks) > len(looked_at):
        raise UngradableError(f"none of the first {len(looked_at)} notebooks holds answers; keep the one to be graded")
    more = [f"{shown(name)} ({count})" for name, count in full.items() if count > there]
    if chosen and more:
        warnings.append(f"{shown(chosen)} was graded and holds {there} answers; more are in {', '.join(more)}")
    return chosen


def _count_answers(path: Path, template: tuple[Cell, ...]) -> int:
    try:
        answers = match(read(path), template).answers
    except UngradableError:
        return 0
    return sum(
        cell.role is Role.ANSWER and cell.id in answers and not is_blank(cell, answers[cell.id].source)
        for cell in template
    )


def _looks_like(submitted: NotebookNode, root: Path) -> str:
    """Return a hint at the week whose notebook this may be."""
    ids = {cell.grade_id for cell in submitted.cells} | {cell.id for cell in submitted.cells}
    for assignment in MANIFEST:
        try:
            theirs = answer_names(instructor_cells(root, assignment))
        except CourseError:
            continue
        if theirs & ids:
            return f" (it looks like the notebook of {assignment})"
    return ""


def _rebuilt(cell: Cell, answer: NotebookNode | None) -> NotebookNode:
    source = cell.source
    outputs: list[NotebookNode] = []
    if answer is not None and cell.role in TAKES_ANSWER:
        source = answer.source if cell.cell_type == "code" else _without_markup(answer.source)
        outputs = answer.outputs if cell.role is Role.EXPERIMENT else []
    metadata = nbformat.from_dict(cell.metadata)
    if cell.role is Role.ANSWER:
        metadata["unanswered"] = answer is None or is_blank(cell, answer.source)
    if cell.cell_type == "code":
        return _code_cell(source, id=cell.id, metadata=metadata, outputs=outputs)
    if answer is not None and cell.role in (Role.ANSWER, Role.PREDICTION):
        return _markdown(source, id=cell.id, metadata=metadata)
    return _markdown_cell(source, id=cell.id, metadata=metadata)


def _notebook(cells: list[NotebookNode]) -> NotebookNode:
    """Build a notebook like nbformat, but without its slow validation, as the functions below do for cells. The
    notebook is validated when it is written."""
    return NotebookNode(nbformat=4, nbformat_minor=5, metadata=NotebookNode(), cells=cells)


def _code_cell(source: str, **fields: object) -> NotebookNode:
    return NotebookNode(
        {"cell_type": "code", "execution_count": None, "metadata": NotebookNode(), "outputs": []} | fields,
        source=source,
    )


def _markdown_cell(source: str, **fields: object) -> NotebookNode:
    return NotebookNode({"cell_type": "markdown", "metadata": NotebookNode()} | fields, source=source)


def _extra(cell: NotebookNode, number: int) -> NotebookNode:
    metadata = NotebookNode(tags=["student"])
    if cell.cell_type == "code":
        return _code_cell(cell.source, id=f"student-{number}", metadata=metadata)
    return _markdown(_without_markup(cell.source), id=f"student-{number}", metadata=metadata)


def _without_markup(text: str) -> str:
    """Break HTML, entities and script links in a student's Markdown with zero-width spaces, which are invisible."""
    text = re.sub(r"[^\n\t -~]", lambda found: found[0] if _is_kept(found[0]) else "", text)
    text = re.sub(r"<(?!https?://[^\s<>]*>)(?=[A-Za-z/!?])", "<\u200b", text)
    text = re.sub(r"&(?=#|[A-Za-z0-9]+;)", "&\u200b", text)
    return re.sub(r"(?i)\b(\w)(\w*script|ata|ile|lob)(?=\\?:)", "\\1\u200b\\2", text)


def _is_kept(character: str) -> bool:
    """Whether a character is part of the text. So is a letter too new for this Python's tables."""
    is_tag = "\U000e0020" <= character <= "\U000e007f"  # in the flag emoji of Scotland and Wales
    return character in JOINERS or is_tag or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


def _markdown(text: str, **fields: object) -> NotebookNode:
    """A text cell of the student's, with a place for its pictures."""
    return _markdown_cell(text, attachments=NotebookNode(), **fields)
