"""From a submitted file to a notebook that can be graded: the instructor's cells with the student's answers.

Of the submission only two things are believed: which cell an answer belongs to (grade_id, else the cell id) and the
text of the answer. Everything else (tests, points, flags, set-up, order) comes from the instructor's notebook.
"""

import itertools
import json
import os
import re
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, instructor_cells, released_files
from autograder.grading.names import defined_names
from autograder.manifest import RELEASED_FILES

MAX_BYTES = 200 * 2**20
MAX_SOURCE = 500_000
MAX_CELLS = 2_000
MAX_FILES = 1_000
MAX_SAVED_TEXT = 20_000
MAX_SAVED_IMAGE = 3 * 2**20
TAKES_ANSWER = ("answer", "prediction", "experiment")


class Ungradable(Exception):
    """The submission cannot be graded; the text is the reason and what to do, for instructor and student."""


@dataclass
class Intake:
    """The rebuilt notebook and what was noticed on the way."""

    notebook: NotebookNode
    notes: list[str] = field(default_factory=list)


def rebuild(path: Path, root: Path, assignment: str) -> Intake:
    """The notebook to grade, of a notebook file or a submission's folder. Raises ``Ungradable`` if it cannot be read."""
    notes: list[str] = []
    if path.is_dir() or path.parent.is_symlink() or path.is_symlink():
        path = _choose_notebook(path, root, assignment, notes)
    submitted = _read(path)
    template = instructor_cells(root, assignment)
    matched, extras = _match(submitted, template, notes)
    cells = []
    for cell in template:
        if cell.id not in matched and cell.role == "answer":
            notes.append(f"the answer cell {cell.grade_id} is missing from the submission; it counts as unanswered")
        cells.append(_rebuilt(cell, matched.get(cell.id)) if cell.role in TAKES_ANSWER else _instructors(cell))
        cells += [_extra(source, cell_type, number) for number, source, cell_type in extras.get(cell.id, [])]
    head = [_extra(source, cell_type, number) for number, source, cell_type in extras.get(None, [])]
    notebook = nbformat.v4.new_notebook(cells=head + cells)
    notebook.metadata = NotebookNode(kernelspec=NotebookNode(display_name="Python 3", language="python", name="python3"))
    return Intake(notebook, notes)


def unreadable(root: Path, assignment: str, reason: str) -> NotebookNode:
    """What stands in for a submission that cannot be graded: the reason, and the instructor's cells without answers."""
    cells = [_rebuilt(cell, None) for cell in instructor_cells(root, assignment)]
    banner = _markdown_cell(f"**This submission could not be graded.** {reason}", id="ungradable")
    return nbformat.v4.new_notebook(cells=[banner, *cells])


def _choose_notebook(folder: Path, root: Path, assignment: str, notes: list[str]) -> Path:
    """The notebook among the files of a submission; links are not followed, other files are listed and left alone."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise Ungradable("the submission is a link, which is not followed; submit the folder itself")
    entries = sorted(itertools.islice(os.scandir(folder), MAX_FILES), key=lambda entry: entry.name)
    notebooks = [entry.name for entry in entries if entry.name.endswith(".ipynb")]
    expected = f"{assignment}.ipynb"
    if expected not in notebooks and len(notebooks) != 1:
        found = ", ".join(_shown(entry.name) for entry in entries[:10]) or "nothing"
        raise Ungradable(f"there is no {expected} in the submission (found: {found}); submit the course's notebook under its name")
    chosen = expected if expected in notebooks else notebooks[0]
    if chosen != expected:
        notes.append(f"the notebook was called {_shown(chosen)}")
    known = {chosen, "timestamp.txt", ".ipynb_checkpoints", "__pycache__", *released_files(root, assignment),
             *RELEASED_FILES.get(assignment, ())}
    strays = [_shown(entry.name) for entry in entries if entry.name not in known]
    if strays:
        notes.append(f"other files were submitted and not used: {', '.join(strays[:10])}" + (" …" if len(strays) > 10 else ""))
    return folder / chosen


def _shown(name: str) -> str:
    """A file name of the student's, safe to print: printable, short, no markup."""
    return "".join(c if c.isprintable() and c not in "<>&`[]*\\" else "?" for c in name.encode("utf-8", "replace").decode())[:60]


def _read(path: Path) -> NotebookNode:
    if path.is_symlink():
        raise Ungradable("the file is a link, which is not followed; submit the notebook itself")
    try:
        status = path.stat()
    except OSError as error:
        raise Ungradable(f"the file cannot be read ({error.strerror}); submit it again") from error
    if not stat.S_ISREG(status.st_mode):
        raise Ungradable("this is not a regular file; submit the notebook itself")
    if status.st_size == 0:
        raise Ungradable("the file is empty; save the notebook and submit it again")
    if status.st_size > MAX_BYTES:
        raise Ungradable(f"the file is larger than {MAX_BYTES // 2**20} MB; clear the outputs and submit again")
    try:
        data = json.loads(_decode(path.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise Ungradable(f"the file is not a notebook (no valid JSON: {str(error)[:80]}); "
                         "open it in JupyterLab, save it and submit it again") from error
    if not isinstance(data, dict):
        raise Ungradable("the file is JSON but not a notebook; submit the .ipynb file")
    try:
        return _as_version_4(data)
    except Ungradable:
        raise
    except Exception as error:
        raise Ungradable(f"the notebook's structure is damaged ({type(error).__name__}); "
                         "open it in JupyterLab, save it and submit it again") from error


def _decode(raw: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if raw.startswith(mark):
            return raw.decode(encoding)
    return raw.decode("utf-8")


def _as_version_4(data: dict) -> NotebookNode:
    """A plain notebook with only what intake reads; tolerant of anything around it."""
    if "worksheets" in data or data.get("nbformat") in (1, 2, 3):
        data = nbformat.convert(nbformat.from_dict(data), 4)
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise Ungradable("the file has no cells; submit the course's notebook")
    if len(cells) > MAX_CELLS:
        raise Ungradable(f"the notebook has more than {MAX_CELLS} cells; submit the course's notebook")
    return NotebookNode(cells=[_plain_cell(cell) for cell in cells if isinstance(cell, dict)])


def _plain_cell(cell: dict) -> NotebookNode:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    source = source if isinstance(source, str) else ""
    metadata = cell.get("metadata")
    grading = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = grading.get("grade_id") if isinstance(grading, dict) else None
    outputs = cell.get("outputs")
    return NotebookNode(
        id=cell.get("id") if isinstance(cell.get("id"), str) else None,
        grade_id=grade_id if isinstance(grade_id, str) else None,
        cell_type="code" if cell.get("cell_type") == "code" else "markdown",
        source=_clean(source),
        outputs=outputs if isinstance(outputs, list) else [],
        attachments=_pictures(cell.get("attachments")),
    )


def _clean(source: str) -> str:
    source = source.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode("utf-8")
    return source[:MAX_SOURCE]


def _match(submitted: NotebookNode, template: tuple[Cell, ...], notes: list[str]) -> tuple[dict, dict]:
    """Which submitted cell answers which of the instructor's; the others, by the instructor's cell before them."""
    by_grade_id = {cell.grade_id: cell for cell in template if cell.grade_id}
    by_id = {cell.id: cell for cell in template}
    matched: dict[str, NotebookNode] = {}
    extras: dict[str | None, list] = {}
    before = None
    for number, cell in enumerate(submitted.cells):
        known = by_grade_id.get(cell.grade_id) or by_id.get(cell.id)
        if known is None:
            if cell.source.strip():
                extras.setdefault(before, []).append((number, cell.source, cell.cell_type))
            continue
        if known.id in matched and known.role == "answer":
            notes.append(f"there are several cells {known.grade_id}; the last one counts")
        matched[known.id] = cell
        before = known.id
    _match_by_name(template, matched, extras, notes)
    for cell in template:
        answer = matched.get(cell.id)
        if answer is None and cell.role in ("test", "locked", "setup"):
            notes.append(f"the course's cell {cell.grade_id} was missing and has been put back")
        elif answer is not None and cell.role == "answer" and answer.cell_type != cell.cell_type:
            notes.append(f"the answer cell {cell.grade_id} had become a {answer.cell_type} cell")
    return matched, extras


def _match_by_name(template: tuple[Cell, ...], matched: dict, extras: dict, notes: list[str]) -> None:
    """Answers whose cells have lost their ids (some editors drop them): the cell that defines the exercise's name."""
    for cell in template:
        if cell.role != "answer" or cell.id in matched or cell.cell_type != "code":
            continue
        wanted = defined_names(cell.source)
        for place, entries in extras.items():
            found = [entry for entry in entries if entry[2] == "code" and wanted & defined_names(entry[1])]
            if found:
                number, source, cell_type = found[-1]
                matched[cell.id] = NotebookNode(source=source, cell_type=cell_type, outputs=[], attachments={})
                extras[place] = [entry for entry in entries if entry[0] != number]
                notes.append(f"the answer cell {cell.grade_id} had lost its id and was recognised by its name")
                break


_made: dict[int, tuple[Cell, NotebookNode]] = {}


def _instructors(cell: Cell) -> NotebookNode:
    """A cell that is the same in every submission, made once: a large class would hold thousands of copies."""
    if id(cell) not in _made:
        _made[id(cell)] = cell, _rebuilt(cell, None)  # with the cell itself, so that its id stays its own
    return _made[id(cell)][1]


def _rebuilt(cell: Cell, answer: NotebookNode | None) -> NotebookNode:
    source, outputs = cell.source, []
    if answer is not None and cell.role in TAKES_ANSWER:
        source = answer.source if cell.cell_type == "code" else _without_markup(answer.source)
        outputs = _saved_outputs(answer) if cell.role == "experiment" else []
    metadata = nbformat.from_dict(json.loads(json.dumps(cell.metadata)))
    if cell.role == "answer":
        metadata["unanswered"] = answer is None or answer.source.strip() in ("", cell.source.strip())
    if cell.cell_type == "code":
        return _code_cell(source, id=cell.id, metadata=metadata, outputs=outputs)
    if answer is not None and cell.role in ("answer", "prediction"):
        return _markdown(source, answer, id=cell.id, metadata=metadata)
    return _markdown_cell(source, id=cell.id, metadata=metadata)


def _code_cell(source: str, **fields: object) -> NotebookNode:
    """As nbformat makes it, without its check of every single cell, which takes longer than all else in here; the
    notebook is checked as a whole when it is written."""
    return NotebookNode({"cell_type": "code", "execution_count": None, "metadata": NotebookNode(), "outputs": []} | fields, source=source)


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
    text = re.sub(r"attachment:([^)\s\"'>]*)", lambda m: m.group() if unquote(m.group(1)) in pictures else "missing-picture", text)
    cell = _markdown_cell(text, **fields)
    if pictures:
        cell["attachments"] = pictures
    return cell


def _pictures(attachments: object) -> NotebookNode:
    """PNG and JPEG pictures pasted into a text cell."""
    kept = NotebookNode()
    for name, data in list(attachments.items())[:10] if isinstance(attachments, dict) else []:
        for kind, start in (("image/png", "iVBORw0KGgo"), ("image/jpeg", "/9j/")):
            image = data.get(kind) if isinstance(data, dict) else None
            image = "".join(image) if isinstance(image, list) and all(isinstance(part, str) for part in image) else image
            if isinstance(image, str) and len(image) <= MAX_SAVED_IMAGE and _is_base64(image, start) and _shown(name) == name:
                kept[name] = NotebookNode({kind: image})
    return kept


def _saved_outputs(cell: NotebookNode) -> list[NotebookNode]:
    """Text and PNG a student saved in an experiment, for the person grading by hand; not verified."""
    kept = []
    for output in cell.outputs[:20]:
        data = output.get("data") if isinstance(output, dict) else None
        text = output.get("text") if isinstance(output, dict) else None
        if isinstance(text, list):
            text = "".join(part for part in text if isinstance(part, str))
        if isinstance(text, str):
            kept.append(nbformat.v4.new_output("stream", name="stdout", text=text[:MAX_SAVED_TEXT]))
        image = data.get("image/png") if isinstance(data, dict) else None
        if isinstance(image, str) and len(image) <= MAX_SAVED_IMAGE and _is_base64(image, "iVBORw0KGgo"):
            kept.append(nbformat.v4.new_output("display_data", {"image/png": image.replace("\n", "")}))
    if kept:
        kept.insert(0, nbformat.v4.new_output("stream", name="stdout", text="[saved by the student, not verified]\n"))
    return kept


def _is_base64(text: str, start: str) -> bool:
    return text.startswith(start) and re.fullmatch(r"[A-Za-z0-9+/=\n]*", text) is not None


__all__ = ["Intake", "Ungradable", "rebuild", "unreadable"]
