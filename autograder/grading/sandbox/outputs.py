"""Reads the worker's replies: a cell's output (text and PNG, nothing else), numbers and errors."""

import base64
from dataclasses import dataclass, field
from typing import Any

from autograder.errors import StudentError
from autograder.grading.pictures import plain_png
from autograder.grading.printed import with_colours_only
from autograder.grading.sandbox.limits import Budget
from autograder.grading.sandbox.worker.wire import WireError

MAX_OUTPUTS, MAX_TEXT, MAX_IMAGE = 60, 50_000, 2 * 2**20  # of one cell
LINES = 9999  # no cell has more lines; a larger number could carry a message


@dataclass
class CellRun:
    """The result of running one of the student's cells: nbformat outputs, and the error if there was one."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    error: StudentError | None = None
    value: str = ""  # the value that the cell ended with, as text


def cell_outputs(items: Any, payload: bytes, budget: Budget) -> list[dict[str, Any]]:
    """Return the worker's outputs in nbformat's form: only text and PNG, and no more than a person would read."""
    outputs: list[dict[str, Any]] = []
    room = min(MAX_TEXT, budget.text)
    for item in items[:MAX_OUTPUTS] if isinstance(items, list) else []:
        if not isinstance(item, dict):
            raise WireError("malformed output")
        if item.get("stream") in ("stdout", "stderr"):
            text = with_colours_only(str(item.get("text"))[:room])
            outputs.append({"output_type": "stream", "name": item["stream"], "text": text})
        elif isinstance(item.get("show"), dict) and (data := _data(item["show"], payload, room, budget)):
            text = data.get("text/plain", "")
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        else:
            continue
        room -= len(text)
        budget.text -= len(text)
    return outputs


def result_text(items: Any) -> str:
    """The value that a cell ended with, as short text; empty if there is none."""
    for item in reversed(items if isinstance(items, list) else []):
        if isinstance(item, dict) and item.get("result") is True and isinstance(item.get("show"), dict):
            return str(item["show"].get("text", ""))[:40]
    return ""


def _data(show: dict[str, Any], payload: bytes, room: int, budget: Budget) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if isinstance(show.get("text"), str):
        data["text/plain"] = with_colours_only(show["text"][:room])
    place = show.get("png")
    if isinstance(place, list) and len(place) == 2 and all(type(n) is int and n >= 0 for n in place):
        image = payload[place[0] : place[0] + place[1]]
        if len(image) <= MAX_IMAGE and (picture := plain_png(image)) and picture.cost <= budget.images:
            budget.images -= picture.cost
            data["image/png"] = base64.b64encode(picture.raw).decode()
    return data


def garbage(error: Exception) -> StudentError:
    """Return the error for a reply that cannot be read."""
    return StudentError(("ProtocolError",), f"its answer could not be read ({error})")


def whole_number(data: Any) -> int:
    """Return an integer from a reply. Raises ``WireError`` if it is something else."""
    if type(data) is not int:
        raise WireError("malformed number")
    return data


def error_in(data: Any) -> StudentError | None:
    """Return the error that a reply reports, if any."""
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("types"), list):
        return garbage(WireError("malformed error"))
    names = tuple(str(name)[:80] for name in data["types"][:20]) or ("Exception",)
    line = data.get("line")
    where = f"line {line}" if type(line) is int and 0 < line <= LINES else ""
    return StudentError(names, str(data.get("message"))[:2000], where, data.get("stub") is True)
