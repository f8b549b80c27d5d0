"""Run every command in the documents exactly as written, in a scratch copy of the course with a simulated class.

`make run-docs`, or `python tests/documents.py docs/authoring.md`. A fence without a language holds commands, one per
line. A comment on the line above a fence marks an exception:

        <!-- needs: WHAT -->            not run, only listed, because WHAT is missing here
        <!-- needs for COMMAND: WHAT --> the same for the lines that begin with COMMAND
        <!-- file: NAME -->             its text is written to NAME in the course root
        <!-- added to: NAME -->         its text is appended to NAME
        <!-- example: OF WHAT -->       nothing to run
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
MARK = re.compile(r"\s*<!-- (needs for (?P<command>[^:]+)|(?P<kind>needs|file|added to|example)): (?P<text>.+) -->\s*")
FENCE = re.compile(r"(?P<indent> *)```(?P<language>[a-z]*)\s*")
# Programs that run until they are stopped, each with the output that shows that it works.
SERVERS = {"make formgrader": "is running at", "make lab": "is running at", "jupyter lab": "is running at"}
PATIENCE = 3600  # seconds until a command counts as hanging


@dataclass
class Fence:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str = ""
    marks: dict[str, str] = field(default_factory=dict)  # kind, or command of `needs for`, and its text

    @property
    def where(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines to run; a line that ends with a backslash continues on the next."""
        if self.language or self.marks.keys() & {"needs", "file", "added to", "example"}:
            return []
        return [line for line in self.text.replace("\\\n", "").splitlines() if line.strip()]

    def missing(self, command: str) -> str:
        """Return what a command needs that is missing here."""
        return next((text for start, text in self.marks.items() if command.startswith(start)), "")

    @property
    def is_understood(self) -> bool:
        """Whether the fence holds commands or has a mark."""
        return bool(self.commands or self.marks)


def documents() -> list[Path]:
    return [COURSE / "README.md", *sorted((COURSE / "docs").glob("*.md"))]


def fences(document: Path) -> list[Fence]:
    """Return every fence of a document, with the marks above it."""
    found: list[Fence] = []
    marks: dict[str, str] = {}
    opened: tuple[Fence, str] | None = None
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if opened and line.strip() == "```":
            found.append(opened[0])
            opened, marks = None, {}
        elif opened:
            opened[0].text += line.removeprefix(opened[1]) + "\n"
        elif fence := FENCE.fullmatch(line):
            name = str(document.relative_to(COURSE)) if document.is_relative_to(COURSE) else document.name
            opened = Fence(name, number, fence["language"], marks=marks), fence["indent"]
        elif mark := MARK.fullmatch(line):
            marks[mark["kind"] or mark["command"]] = mark["text"]
        elif line.strip():
            marks = {}
    assert opened is None, f"{document}: a fence is not closed"
    return found


def main() -> int:
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or documents()
    with tempfile.TemporaryDirectory(prefix="documents-") as scratch:
        root, home = Path(scratch) / "course", Path(scratch) / "home"
        environment = _prepare(root, home)
        left_out, failed, ran = [], [], 0
        for fence in [fence for document in chosen for fence in fences(document)]:
            if "needs" in fence.marks:
                left_out.append(f"{fence.where}: needs {fence.marks['needs']}")
            _write(fence, root)
            for command in fence.commands:
                if missing := fence.missing(command):
                    left_out.append(f"{fence.where}: {command}: needs {missing}")
                    continue
                print(f"{fence.where}: {command}", flush=True)
                problem = _run(command, root, environment)
                ran += 1
                if problem:
                    failed.append(f"{fence.where}: {command}\n{problem}")
                    print(f"  FAILED\n{problem}", flush=True)
    print("\nNot run, because something is not here:", *left_out, sep="\n  ")
    print(f"\n{ran} commands ran, {len(failed)} failed")
    return 1 if failed else 0


def _prepare(root: Path, home: Path) -> dict[str, str]:
    """Make a clone of the course with a submitted class; return an environment that has the packages."""
    root.mkdir(mode=0o700)
    home.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=COURSE, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(COURSE / name, root / name)
    sys.path.insert(0, str(COURSE))
    from autograder.classroom import make_course_root, simulate

    for week in ("week1_permutation_equivariance", "week3_rope"):
        place = home / week
        make_course_root(COURSE, place, [week])
        simulate(COURSE, place, week, count=6)
        shutil.copytree(place / "submitted", root / "submitted", dirs_exist_ok=True)
    _uploads(root)
    (home / ".jupyter").mkdir()
    (home / ".jupyter" / "jupyter_server_config.json").write_text(
        '{"ServerApp": {"allow_root": true, "open_browser": false, "ip": "127.0.0.1"}}'
    )
    return {
        **os.environ,
        "HOME": str(home),
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
    }


def _uploads(root: Path) -> None:
    """Write a zip as Moodle exports it, with one upload."""
    notebook = root / "submitted" / "ada" / "week1_permutation_equivariance" / "week1_permutation_equivariance.ipynb"
    with zipfile.ZipFile(root / "submissions.zip", "w") as archive:
        archive.write(notebook, "Ada Lovelace_101_assignsubmission_file_/week1_permutation_equivariance.ipynb")


def _write(fence: Fence, root: Path) -> None:
    if name := fence.marks.get("file"):
        (root / name).write_text(fence.text, encoding="utf-8")
    if name := fence.marks.get("added to"):
        with (root / name).open("a", encoding="utf-8") as file:
            file.write(f"\n{fence.text}")


def _run(command: str, root: Path, environment: dict[str, str]) -> str:
    """Run one line in a shell and return what went wrong."""
    works = next((words for start, words in SERVERS.items() if command.startswith(start)), "")
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE
        said = ""
        while process.poll() is None and time.monotonic() < deadline:
            if works:
                output.seek(0)
                said = output.read()
                if works in said:
                    break
            time.sleep(0.1)
        hangs = process.poll() is None
        if hangs:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        output.seek(0)
        said = output.read()
    if hangs:
        return "" if works and works in said else f"still running after {PATIENCE} s\n{said[-2000:]}"
    return "" if process.returncode == 0 and not works else f"exit code {process.returncode}\n{said[-2000:]}"


if __name__ == "__main__":
    sys.exit(main())
