"""Grade one class with plain nbgrader and collect what tests look at: points, pages, files, processes."""

import ctypes
import hashlib
import html
import html.parser
import json
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from helpers import command_of, family, run, standing

from autograder.classroom import make_course_root
from autograder.grading.plugins.gradebook import Score
from hostile.bank import COURSE, SCRIPT

SECRET = "canary-5f1c2e7b90"  # the value of a variable and the content of a file; it must not turn up anywhere
GRACE = 60  # seconds
WHOLE_CLASS = 5000  # seconds before a class counts as hanging: 30 times what the whole one takes
# Smaller than usual, so that a test ends within minutes.
LIMITS = {"cell_cpu": 3.0, "call_cpu": 1.5, "retry": 0.5, "memory": 2**30, "total_cpu": 30.0, "total_idle": 12.0}


@dataclass
class Graded:
    root: Path
    scratch: Path
    done: subprocess.CompletedProcess
    feedback: list[subprocess.CompletedProcess]
    standing: dict[str, Score]
    before: dict[str, str]
    after: dict[str, str]
    survivors: list[str]
    seconds: dict[str, float] = field(default_factory=dict)

    def pages(self) -> dict[str, str]:
        return {path.parts[-3]: path.read_text(encoding="utf-8") for path in self.root.glob("feedback/*/*/*.html")}


def fingerprint(folder: Path) -> dict[str, str]:
    """Return every file below ``folder``, of any kind, with its mode and content."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            status = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            found[os.fsencode(path).decode("latin-1")] = f"{stat.filemode(status.st_mode)} {content}"
    return found


def left_of_the_run(earlier: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the processes that the run left behind, our orphans included: we are their subreaper. On a busy machine a
    process may take time to end; one still alive after GRACE was never told to."""

    def left() -> set[tuple[int, str]]:  # without what other tests start meanwhile, such as a browser's processes
        return family(os.getpid()) - earlier.union(*(family(pid) for pid, _ in earlier))

    deadline = time.monotonic() + GRACE
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    return left()


class ResultWatch(threading.Thread):
    """Reads each submission's seconds from its pending result, which may last only a few hundredths of a second."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.seconds, self.seen, self.stop = root / ".autograder" / "pending", {}, set(), threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.02):
            for path in self.folder.glob("*") if self.folder.is_dir() else ():
                if path.suffix or path.name in self.seen:
                    continue
                try:
                    result = json.loads(path.read_text())
                except (OSError, ValueError):
                    continue
                self.seen.add(path.name)
                self.seconds[result["key"]] = sum(result["seconds"].values())


def nbgrader(root: Path, scratch: Path, *arguments: str) -> subprocess.CompletedProcess:
    return run("nbgrader", *arguments, cwd=root, code=None, patience=WHOLE_CLASS, TMPDIR=str(scratch), AUTOGRADER_CANARY=SECRET)


def grade_class(place: Path, week: str, write: Callable[[Path], None], limits: dict[str, float] | None) -> Graded:
    """Grade the class that ``write`` puts under a fresh course root. ``limits=None`` keeps the course's own limits."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what the run leaves behind becomes our child
    root, scratch = place / "course", place / "tmp"
    scratch.mkdir()
    (place / "canary.txt").write_text(SECRET)
    make_course_root(COURSE, root, [week])
    if limits is not None:
        with open(root / "nbgrader_config.py", "a", encoding="utf-8") as file:
            file.write(f"\nc.SubmissionExporter.limits = {limits}\n")
    write(root)
    before, earlier = fingerprint(root / "submitted"), family(os.getpid())
    watch = ResultWatch(root)
    watch.start()
    done = nbgrader(root, scratch, "autograde", week, "--SubmissionExporter.workers=4")
    watch.stop.set()
    survivors = [command_of(pid)[:200] for pid, _ in left_of_the_run(earlier)]
    after = fingerprint(root / "submitted")
    parts = ("[!a-m]*", "[a-m]*") if len(os.listdir(root / "submitted")) > 100 else ("*",)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(nbgrader, root, scratch, "generate_feedback", week, "--student", part) for part in parts]
        feedback = [one.result() for one in runs]
    return Graded(root, scratch, done, feedback, standing(root, week), before, after, survivors, watch.seconds)


def plain(page: str) -> str:
    page = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL | re.IGNORECASE)
    return html.unescape(re.sub(r"<[^>]+>", "", page))


class Alive(html.parser.HTMLParser):
    """Collects what a browser would run: the student's scripts, event handlers, javascript: links, frames."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.inside = tag if tag in ("script", "style") else ""
        for name, value in attributes:
            link = re.sub(r"[\s\x00-\x20]", "", value or "").lower()
            if SCRIPT in (value or "") and (name.startswith("on") or name in ("srcdoc", "style") or link.startswith(
                    ("javascript:", "vbscript:", "data:text/html"))):
                self.found.append(f"<{tag} {name}={value[:80]!r}>")
            if name.startswith("on") and SCRIPT in name:
                self.found.append(f"<{tag} {name}>")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside and SCRIPT in data:
            self.found.append(f"<{self.inside}> {data.strip()[:80]}")


def alive(page: str) -> list[str]:
    parser = Alive()
    parser.feed(page)
    return parser.found


def has_unsafe_mathjax(page: str) -> bool:
    return r"\href{javascript" in html.unescape(page) and not re.search(r"mathjax[^\"']*config=[^\"']*Safe", page, flags=re.IGNORECASE)
