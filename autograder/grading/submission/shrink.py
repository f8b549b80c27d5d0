"""Decode a student's pictures with `picture_worker.py`, in a sandbox.

Picture decoders are written in C, and the bytes may be hostile. So the worker is locked down like student code and has
limits on memory and time. Only this module reads its output, and it passes on only pictures that are what they claim.
One process decodes all pictures of a notebook. Most notebooks have none, so this costs less than support in the fork
server, which knows nothing of submitted files.
"""

import json
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from autograder.grading.pictures import decoded_picture
from autograder.grading.sandbox.bubblewrap import PYTHON, WORKER, bubblewrap_command, server_command, why_not_isolated

PROGRAM = Path(__file__).with_name("picture_worker.py")
SECONDS = 600  # wall time, since a hijacked process might sleep; CPU time has limits of its own


class Why(StrEnum):
    """Why a picture is not shown."""

    HEIC = "it is a HEIC file, as iPhones save them, which cannot be read here; export it as JPEG or PNG and paste that"
    PDF = "it is a PDF file; paste its page as a picture, JPEG or PNG"
    SVG = "it is an SVG drawing, which could hold a program; paste it as PNG"
    UNREADABLE = "the file is damaged, or no picture; paste it again, as JPEG or PNG"
    PIXELS = "it has too many pixels; make it smaller and paste it again"
    COSTLY = "it takes too much memory or time to unpack; save it as JPEG or PNG and paste that"
    BYTES = "its file is too large; make it smaller and paste it again"
    MANY = "only the first 40 pictures of a notebook are shown"
    ROOM = "the pictures of this notebook take too much room on one page"
    MISSING = "it is not in the notebook; paste it into the cell"
    WEB = "it lies on the web, from where nothing is loaded here"
    MACHINE = "the grader could not read it, for a reason of its own"


@dataclass(frozen=True)
class Small:
    """A picture that may be shown: MIME type, base64 text, and whether its file ends before the picture does."""

    kind: str
    data: str
    damaged: bool


def shrunk(pictures: list[str]) -> list[Small | Why]:
    """Return, for each picture given as base64 text, what can be shown or why nothing can."""
    if not pictures:
        return []
    isolated = _can_isolate()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as made, PROGRAM.open("rb") as program:
        given.write(json.dumps(pictures).encode())
        given.seek(0)
        try:
            done = subprocess.run(
                _isolated_command(program.fileno()) if isolated else _command(),
                stdin=given,
                stdout=made,
                stderr=subprocess.DEVNULL,
                pass_fds=(program.fileno(),),
                env=_isolated_environment() if isolated else None,
                cwd="/",
                timeout=SECONDS,
                check=False,
            )
            silence = Why.COSTLY if done.returncode == 0 else Why.MACHINE
        except subprocess.TimeoutExpired:
            silence = Why.COSTLY
        made.seek(0)
        told = [_told(line) for line in made.read().splitlines()]
    outcomes = {number: outcome for number, outcome in told if outcome is not None}
    return [outcomes.get(number, silence) for number in range(len(pictures))]


def _told(line: bytes) -> tuple[int, Small | Why | None]:
    """Return a picture's number and outcome from a line of the worker. An invalid outcome is ``None``."""
    try:
        said = json.loads(line)
        number = int(said["number"])
        if "why" in said:
            return number, Why[said["why"]]
        kind, data = str(said["kind"]), str(said["data"])
        return number, Small(kind, data, bool(said["damaged"])) if decoded_picture(data, kind) else None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return -1, None


@cache
def _can_isolate() -> bool:
    return not why_not_isolated()


def _command() -> list[str]:
    """Return the command without bubblewrap: student code then runs as you too, but memory and time are limited."""
    start = f"import sys; sys.path.insert(0, {str(WORKER)!r}); import runpy; "
    return [sys.executable, "-I", "-c", f"{start}runpy.run_path({str(PROGRAM)!r}, run_name='__main__')", "open"]


def _isolated_command(program: int) -> list[str]:
    packages = "/sandbox/site-packages"
    start = f"import sys; sys.path[:0] = ['/sandbox/worker', {packages!r}]; import runpy; "
    run = "runpy.run_path('/tmp/picture_worker.py', run_name='__main__')"
    walls = bubblewrap_command("cpu", {"/tmp/picture_worker.py": program})
    return [*walls, *server_command(packages)[:-1], start + run, "isolated"]


def _isolated_environment() -> dict[str, str]:
    """Return an environment without the caller's variables."""
    shared = {"LD_LIBRARY_PATH": f"{PYTHON}/lib"} if sysconfig.get_config_var("Py_ENABLE_SHARED") else {}
    return {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"} | shared
