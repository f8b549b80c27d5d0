"""From a submitted file to a notebook that can be graded: the instructor's cells with the student's answers.

Of the submission only two things are believed: which cell an answer belongs to (grade_id, else the cell id) and the
text of the answer. Everything else (tests, points, flags, set-up, order) comes from the instructor's notebook.
"""

import itertools
import json
import os
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.build.regions import clear_hidden
from autograder.course import Cell, Role, instructor_cells, released_files
from autograder.errors import CourseError, UngradableError
from autograder.grading.source_names import defined_names
from autograder.grading.submission.flags import flags
from autograder.grading.submission.notebook_file import read, shown
from autograder.manifest import MANIFEST, RELEASED_FILES

MAX_FILES = 1_000
MAX_PICTURES = 200  # in one text answer
Matched = dict[str, NotebookNode]  # the student's cell, by the id of the instructor's
Extras = dict[str | None, list[tuple[int, str, str]]]  # number, source and type, by the instructor's cell before them
TAKES_ANSWER = (Role.ANSWER, Role.PREDICTION, Role.EXPERIMENT, Role.OPEN)


@dataclass
class Intake:
    """The rebuilt notebook and what was noticed on the way."""

    notebook: NotebookNode
    notes: list[str] = field(default_factory=list)
    to_look_at: set[str] = field(default_factory=set)


def rebuild(path: Path, root: Path, assignment: str) -> Intake:
    """The notebook to grade, of a notebook file or a submission's folder. Raises ``UngradableError`` if it cannot be read."""
    notes: list[str] = []
    try:
        if path.is_dir() or path.parent.is_symlink() or path.is_symlink():
            path = _choose_notebook(path, root, assignment, notes)
    except OSError as error:
        raise UngradableError(
            f"the submission's folder cannot be read ({error.strerror}); look at its permissions"
        ) from error
    submitted = read(path)
    template = instructor_cells(root, assignment)
    matched, extras = _match(submitted, template, notes)
    if not any(cell.role is Role.ANSWER and cell.id in matched for cell in template):
        raise UngradableError(
            f"none of the exercises of {assignment} is in it{_looks_like(submitted, root)}; submit the notebook of this week"
        )
    _text_answers_below(template, matched, extras, notes)
    cells = []
    for cell in template:
        if cell.id not in matched and cell.role is Role.OPEN:
            continue  # the student has removed it, or it is among the extras
        if cell.id not in matched and cell.role is Role.ANSWER:
            notes.append(f"the answer cell {cell.grade_id} is missing from the submission; it counts as unanswered")
        cells.append(_rebuilt(cell, matched.get(cell.id)) if cell.role in TAKES_ANSWER else _instructors(cell))
        cells += [_extra(source, cell_type, number) for number, source, cell_type in extras.get(cell.id, [])]
    head = [_extra(source, cell_type, number) for number, source, cell_type in extras.get(None, [])]
    notebook = nbformat.v4.new_notebook(cells=head + cells)
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(display_name="Python 3", language="python", name="python3"),
        language_info=NotebookNode(name="python", version=submitted.python),
    )
    flagged = flags(assignment, [cell for cell in notebook.cells if cell.cell_type == "code" and _is_theirs(cell)])
    return Intake(notebook, notes + [flag.sentence() for flag in flagged], {flag.grade_id for flag in flagged})


def _is_theirs(cell: NotebookNode) -> bool:
    return "unanswered" in cell.metadata or "student" in cell.metadata.get("tags", [])


def unreadable(root: Path, assignment: str, reason: str) -> NotebookNode:
    """What stands in for a submission that cannot be graded: the reason, and the instructor's cells without answers."""
    cells = [_rebuilt(cell, None) for cell in instructor_cells(root, assignment)]
    banner = _markdown_cell(f"**This submission could not be graded.** {reason}", id="ungradable")
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=[banner, *cells])
    return notebook


def _choose_notebook(folder: Path, root: Path, assignment: str, notes: list[str]) -> Path:
    """The notebook among the files of a submission; links are not followed, other files are listed and left alone."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise UngradableError("the submission is a link, which is not followed; submit the folder itself")
    expected = f"{assignment}.ipynb"
    entries = sorted(itertools.islice(os.scandir(folder), MAX_FILES), key=lambda entry: entry.name)
    notebooks = [entry.name for entry in entries if entry.name.endswith(".ipynb")]
    if os.path.lexists(folder / expected):  # it may be farther down than anybody looks
        notebooks.append(expected)
    if expected not in notebooks and len(notebooks) != 1:
        found = ", ".join(shown(entry.name) for entry in entries[:10]) or "nothing"
        raise UngradableError(
            f"there is no {expected} in the submission (found: {found}); submit the course's notebook under its name"
        )
    chosen = expected if expected in notebooks else notebooks[0]
    if chosen != expected:
        notes.append(f"the notebook was called {shown(chosen)}")
    known = {
        chosen,
        "timestamp.txt",
        "submission_secret.txt",  # of nbgrader's exchange
        ".ipynb_checkpoints",
        "__pycache__",
        *(name.split("/")[0] for name in released_files(root, assignment)),
        *RELEASED_FILES.get(assignment, ()),
    }
    strays = [shown(entry.name) for entry in entries if entry.name not in known]
    if strays:
        notes.append(
            f"other files were submitted and not used: {', '.join(strays[:10])}" + (" …" if len(strays) > 10 else "")
        )
    return folder / chosen


def _match(submitted: NotebookNode, template: tuple[Cell, ...], notes: list[str]) -> tuple[Matched, Extras]:
    """Which submitted cell answers which of the instructor's; the others, by the instructor's cell before them."""
    by_grade_id = {cell.grade_id: cell for cell in template if cell.grade_id}
    by_id = {cell.id: cell for cell in template}
    known = [by_grade_id.get(cell.grade_id) or by_id.get(cell.id) for cell in submitted.cells]
    _match_by_name(submitted, template, known, notes)
    _match_by_source(submitted, template, known, notes)
    matched: Matched = {}
    extras: Extras = {}
    before = None
    for number, (cell, instructors) in enumerate(zip(submitted.cells, known, strict=True)):
        if instructors is None:
            if cell.source.strip():
                extras.setdefault(before, []).append((number, cell.source, cell.cell_type))
            continue
        if instructors.id in matched and instructors.role is Role.ANSWER:
            notes.append(f"there are several cells {instructors.grade_id}; the last one counts")
        matched[instructors.id] = cell
        before = instructors.id
    for template_cell in template:
        answer = matched.get(template_cell.id)
        if answer is None and template_cell.role in (Role.TEST, Role.STOCK_TEST, Role.LOCKED, Role.SETUP):
            notes.append(f"the course's cell {template_cell.grade_id} was missing and has been put back")
        elif answer is not None and template_cell.role is Role.ANSWER and answer.cell_type != template_cell.cell_type:
            notes.append(f"the answer cell {template_cell.grade_id} had become a {answer.cell_type} cell")
    return matched, extras


def _match_by_name(
    submitted: NotebookNode, template: tuple[Cell, ...], known: list[Cell | None], notes: list[str]
) -> None:
    """Answers whose cells have lost their ids (some editors drop them): the last cell that defines the exercise's name."""
    found = {cell.id for cell in known if cell is not None}
    lost = {cell.grade_id: cell for cell in template if cell.role is Role.ANSWER and cell.cell_type == "code"}
    said: list[str] = []
    for number in reversed(range(len(known))):
        cell = submitted.cells[number]
        if known[number] is not None or cell.cell_type != "code":
            continue
        for name in sorted(defined_names(cell.source) & lost.keys()):
            if lost[name].id not in found:
                known[number] = lost[name]
                found.add(lost[name].id)
                said.insert(0, f"the answer cell {name} had lost its id and was recognised by its name")
                break
    notes += said


def _match_by_source(
    submitted: NotebookNode, template: tuple[Cell, ...], known: list[Cell | None], notes: list[str]
) -> None:
    """The course's own cells that have lost their ids too, and would be run as the student's: those with the text that
    students were given. An answer is known by its name alone: the empty ones of all weeks look the same."""
    found = {cell.id for cell in known if cell is not None}
    lost: dict[tuple[str, str], list[Cell]] = {}
    for cell in reversed(template):
        if cell.id not in found and cell.role is not Role.ANSWER:
            lost.setdefault((cell.cell_type, _given(cell.source)), []).append(cell)
    recognised = 0
    for number, theirs in enumerate(submitted.cells):
        if known[number] is None and (same := lost.get((theirs.cell_type, theirs.source.strip()))):
            known[number] = same.pop()
            recognised += 1
    if recognised:
        notes.append(f"{recognised} cells of the course had lost their ids and were recognised by their text")


@lru_cache(maxsize=2000)
def _given(source: str) -> str:
    """What students were given of a cell of the course."""
    return clear_hidden(source).strip()


def _text_answers_below(template: tuple[Cell, ...], matched: Matched, extras: Extras, notes: list[str]) -> None:
    """Text in a new cell right below the one meant for it is the answer if that one was left as it was."""
    ours = {cell.source.strip()[:60] for cell in template}  # text of the course that has lost its id
    for cell in template:
        answer = matched.get(cell.id)
        if (
            cell.role is not Role.ANSWER
            or cell.cell_type == "code"
            or answer is None
            or answer.source.strip() not in ("", cell.source.strip())
        ):
            continue
        below = [
            entry for entry in extras.get(cell.id, []) if entry[2] == "markdown" and entry[1].strip()[:60] not in ours
        ]
        if below:
            matched[cell.id] = NotebookNode(answer, source="\n\n".join(entry[1] for entry in below))
            extras[cell.id] = [entry for entry in extras[cell.id] if entry not in below]
            notes.append(f"the answer {cell.grade_id} was in a new cell below the one meant for it")


def _looks_like(submitted: NotebookNode, root: Path) -> str:
    """A hint at the week whose notebook this may be."""
    ids = {cell.grade_id for cell in submitted.cells} | {cell.id for cell in submitted.cells}
    for assignment in MANIFEST:
        try:
            theirs = {
                name
                for cell in instructor_cells(root, assignment)
                if cell.role is Role.ANSWER
                for name in (cell.grade_id, cell.id)
            }
        except CourseError:
            continue
        if theirs & ids:
            return f" (it looks like the notebook of {assignment})"
    return ""


_made: dict[int, tuple[Cell, NotebookNode]] = {}


def _instructors(cell: Cell) -> NotebookNode:
    """A cell that is the same in every submission, made once: a large class would hold thousands of copies."""
    if id(cell) not in _made:
        _made[id(cell)] = cell, _rebuilt(cell, None)  # with the cell itself, so that its id stays its own
    return _made[id(cell)][1]


def _rebuilt(cell: Cell, answer: NotebookNode | None) -> NotebookNode:
    source = cell.source
    outputs: list[NotebookNode] = []
    if answer is not None and cell.role in TAKES_ANSWER:
        source = answer.source if cell.cell_type == "code" else _without_markup(answer.source)
        outputs = answer.outputs if cell.role is Role.EXPERIMENT else []
    metadata = nbformat.from_dict(json.loads(json.dumps(cell.metadata)))
    if cell.role is Role.ANSWER:
        metadata["unanswered"] = answer is None or answer.source.strip() in ("", cell.source.strip())
    if cell.cell_type == "code":
        return _code_cell(source, id=cell.id, metadata=metadata, outputs=outputs)
    if answer is not None and cell.role in (Role.ANSWER, Role.PREDICTION):
        return _markdown(source, answer, id=cell.id, metadata=metadata)
    return _markdown_cell(source, id=cell.id, metadata=metadata)


def _code_cell(source: str, **fields: object) -> NotebookNode:
    """As nbformat makes it, without its check of every single cell, which takes longer than all else in here; the
    notebook is checked as a whole when it is written."""
    return NotebookNode(
        {"cell_type": "code", "execution_count": None, "metadata": NotebookNode(), "outputs": []} | fields,
        source=source,
    )


def _markdown_cell(source: str, **fields: object) -> NotebookNode:
    return NotebookNode({"cell_type": "markdown", "metadata": NotebookNode()} | fields, source=source)


def _extra(source: str, cell_type: str, number: int) -> NotebookNode:
    metadata = NotebookNode(tags=["student"])
    if cell_type == "code":
        return _code_cell(source, id=f"student-{number}", metadata=metadata)
    return _markdown(_without_markup(source), None, id=f"student-{number}", metadata=metadata)


def _without_markup(text: str) -> str:
    """Student's Markdown without HTML, entities and script links: a zero-width space breaks them, and looks the same."""
    text = "".join(c for c in text if c in "\n\t" or not unicodedata.category(c).startswith("C"))
    text = re.sub(r"<(?=[A-Za-z/!?])", "<\u200b", text)
    text = re.sub(r"&(?=#|[A-Za-z0-9]+;)", "&\u200b", text)
    return re.sub(r"(?i)\b(\w)(\w*script|ata|ile|lob)(?=\\?:)", "\\1\u200b\\2", text)


def _markdown(text: str, answer: NotebookNode | None, **fields: object) -> NotebookNode:
    """A text cell of the student's, with the pictures pasted into it; a reference to any other picture is taken out."""
    pictures = answer.attachments if answer is not None else {}
    if text.count("![") > MAX_PICTURES:  # each would be looked at to the end of its line
        text, pictures = text.replace("![", "!\u200b["), {}
    text = re.sub(
        r"attachment:([^)\s\"'>]*)", lambda m: m.group() if unquote(m.group(1)) in pictures else "missing-picture", text
    )
    text = re.sub(
        r"!(?=\[)(?!\[[^\]\n]*\]\(attachment:)", "!\u200b", text
    )  # a picture from the web would tell who reads it when
    cell = _markdown_cell(text, **fields)
    if pictures:
        cell["attachments"] = pictures
    return cell


__all__ = ["Intake", "UngradableError", "rebuild", "unreadable"]
