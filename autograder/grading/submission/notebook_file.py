"""Read a submitted file: text, ids, pictures, saved outputs and Python's version. Everything else is dropped.

A large file is read in a process of its own with limits on memory and time: a crafted one can take a hundred times its
size in memory.
"""

import base64
import html
import json
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.errors import UngradableError
from autograder.grading.pictures import decoded_picture
from autograder.grading.printed import with_colours_only
from autograder.grading.submission.pasted import Pasted

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
MAX_BYTES = 200 * 2**20
LARGE = 4 * 2**20
MEMORY, CPU_SECONDS = 3 * 2**30, 60  # limits of the process that reads a large file
MAX_SOURCE = 500_000
MAX_TEXT = 4 * 2**20  # characters of all cells together
MAX_CELLS = 2_000
MAX_NAME = 300  # characters of an id
MAX_SAVED_TEXT = 20_000
MAX_SAVED_IMAGE = 3 * 2**20
MAX_SAVED = 15 * 2**20


def read(path: Path) -> NotebookNode:
    """Return the cells of a notebook file, with only ``id``, ``grade_id``, ``cell_type``, ``source`` and ``outputs``
    (text and PNG), and the ``pictures`` that their texts refer to. Raises ``UngradableError``."""
    if path.is_symlink():
        raise UngradableError("the file is a link, which is not followed; submit the notebook itself")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UngradableError("this is not a regular file; submit the notebook itself")
        if status.st_size == 0:
            raise UngradableError("the file is empty; save the notebook and submit it again")
        if status.st_size > MAX_BYTES:
            raise UngradableError(
                f"the file is larger than {MAX_BYTES // 2**20} MB; clear the outputs and submit again"
            )
        return _read_apart(path) if status.st_size > LARGE else _parsed(path.read_bytes())
    except OSError as error:
        raise UngradableError(f"the file cannot be read ({error.strerror}); submit it again") from error


def shown(name: str) -> str:
    """Return a student's file name in a form safe to print: printable, short, no markup."""
    return "".join(
        c if c.isprintable() and c not in "<>&`[]*\\" else "?" for c in name.encode("utf-8", "replace").decode()
    )[:60]


def _read_apart(path: Path) -> NotebookNode:
    done = subprocess.run(
        [sys.executable, "-m", "autograder.grading.submission.notebook_file", str(path.absolute())],
        cwd=PACKAGE_ROOT,  # `-m` imports from here
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise UngradableError("the file takes too much memory or time to read; clear the outputs and submit again")
    message = json.loads(done.stdout)
    if "ungradable" in message:
        raise UngradableError(message["ungradable"])
    cells: NotebookNode = nbformat.from_dict(message)
    return cells


def _parsed(raw: bytes) -> NotebookNode:
    try:
        data = json.loads(raw)  # in UTF-8, UTF-16 or UTF-32, with or without a byte order mark
    except (ValueError, RecursionError) as error:
        raise UngradableError(f"the file is not a notebook{_what_it_is(raw, error)}") from error
    if not isinstance(data, dict):
        raise UngradableError("the file is JSON but not a notebook; submit the .ipynb file")
    try:
        return _plain_notebook(data)
    except UngradableError:
        raise
    except Exception as error:
        raise UngradableError(
            f"the notebook's structure is damaged ({type(error).__name__}); "
            "open it in JupyterLab, save it and submit it again"
        ) from error


def _what_it_is(raw: bytes, error: Exception) -> str:
    """Return what a file that is not JSON seems to be, and what to do."""
    start = raw[:2000].lstrip().lower()
    if re.search(rb"^(<<<<<<< |>>>>>>> )", raw, re.MULTILINE):
        return " any more: it holds the marks of a merge conflict of git; take one side's version and submit that"
    if raw.startswith(b"PK\x03\x04"):
        return " but a zip file; unpack it and submit the .ipynb file that is in it"
    if start.startswith((b"<!doctype", b"<html")):
        return " but a web page; submit the .ipynb file, not what it was exported to"
    if start.startswith(b"{") and isinstance(error, UnicodeDecodeError):
        return " that can be read: it is not saved in UTF-8; have your editor save it so, and submit it again"
    if start.startswith(b"{"):
        said = str(error)[:150]
        return f", or only a part of one (no valid JSON: {said}); download or copy it once more and submit it again"
    return "; submit the .ipynb file itself, not what it was exported to, saved by JupyterLab"


def _plain_notebook(data: dict[str, Any]) -> NotebookNode:
    """Return a plain notebook with only what intake reads. Tolerates anything around it."""
    cells = data.get("cells")
    if not isinstance(cells, list):
        if isinstance(data.get("worksheets"), list):
            raise UngradableError("the file is in nbformat 3, from before 2015; open and save it in JupyterLab")
        raise UngradableError("the file has no cells; submit the course's notebook")
    if len(cells) > MAX_CELLS:
        raise UngradableError(f"the notebook has more than {MAX_CELLS} cells; submit the course's notebook")
    pasted = Pasted()
    plain = [_plain_cell(cell, pasted) for cell in cells if isinstance(cell, dict)]
    if sum(len(cell.source) for cell in plain) > MAX_TEXT:
        raise UngradableError(
            f"the notebook holds more than {MAX_TEXT // 2**20} MB of code and text; submit the course's notebook"
        )
    room = MAX_SAVED
    for cell in plain:
        room -= len(json.dumps(cell.outputs)) + _pixels(cell) // 32
        if room < 0:
            cell.outputs = []
    return NotebookNode(cells=plain, pictures=pasted.pictures, python=_python_version(data.get("metadata")))


def _python_version(metadata: object) -> str:
    """Return the Python version of the kernel that saved the notebook; empty if it is not known."""
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    version = info.get("version") if isinstance(info, dict) else None
    return version if isinstance(version, str) and re.fullmatch(r"3\.\d{1,2}(\.\w{1,8})?", version) else ""


def _pixels(cell: NotebookNode) -> int:
    """Return the number of pixels of all pictures in a cell's outputs."""
    bundles = [output.get("data", {}) for output in cell.outputs]
    pictures = [decoded_picture(data, kind) for bundle in bundles for kind, data in bundle.items()]
    return sum(picture.pixels for picture in pictures if picture)


def _plain_cell(cell: dict[str, Any], pasted: Pasted) -> NotebookNode:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    source = source if isinstance(source, str) else ""
    if is_text := cell.get("cell_type") != "code":
        source = pasted.without_data(source)  # before _clean cuts the text: a picture in it can exceed the limit
        source = pasted.with_references(_clean(source), cell.get("attachments"))
    metadata = cell.get("metadata")
    grading = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = grading.get("grade_id") if isinstance(grading, dict) else None
    return NotebookNode(
        id=_name(cell.get("id")),
        grade_id=_name(grade_id),
        cell_type="markdown" if is_text else "code",
        source=_clean(source),
        outputs=_saved_outputs(cell.get("outputs")),
    )


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_NAME else None


def _clean(source: str) -> str:
    source = source.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode("utf-8")
    return source[:MAX_SOURCE]


def _saved_outputs(outputs: object) -> list[NotebookNode]:
    """Return the text and PNG outputs that a student saved, for the person who grades by hand; not verified."""
    kept = []
    for output in outputs[:20] if isinstance(outputs, list) else []:
        data = output.get("data") if isinstance(output, dict) else None
        text = output.get("text") if isinstance(output, dict) else None
        if isinstance(text, list):
            text = "".join(part for part in text if isinstance(part, str))
        if isinstance(text, str):
            text = text[:MAX_SAVED_TEXT].encode("utf-8", "replace").decode("utf-8")
            kept.append(_stream(with_colours_only(text)))
        image = data.get("image/png") if isinstance(data, dict) else None
        if isinstance(image, str) and len(image) <= MAX_SAVED_IMAGE and (plain := decoded_picture(image, "image/png")):
            picture = NotebookNode({"image/png": base64.b64encode(plain.raw).decode()})
            alt = _alternative_text(data)
            metadata = NotebookNode({"image/png": {"alt": alt}} if alt else {})
            kept.append(NotebookNode(output_type="display_data", data=picture, metadata=metadata))
    if kept:
        kept.insert(0, _stream("[saved by the student, not verified]\n"))
    return kept


def _alternative_text(data: object) -> str:
    """Return the description of a picture that ``lab.py`` puts into the HTML beside the PNG. The page escapes it."""
    markup = data.get("text/html") if isinstance(data, dict) else None
    markup = "".join(markup) if isinstance(markup, list) and all(isinstance(part, str) for part in markup) else markup
    found = re.search(r'<img alt="([^"]{1,1000})" src="', markup[:2000]) if isinstance(markup, str) else None
    return _clean(html.unescape(found[1])) if found else ""


def _stream(text: str) -> NotebookNode:
    return NotebookNode(output_type="stream", name="stdout", text=text)


def main() -> None:
    """Print the cells of the file named in the first argument as JSON, or why it cannot be graded."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    try:
        message: dict[str, Any] = _parsed(Path(sys.argv[1]).read_bytes())
    except UngradableError as reason:
        message = {"ungradable": str(reason)}
    json.dump(message, sys.stdout)


if __name__ == "__main__":
    main()
