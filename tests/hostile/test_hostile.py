"""Grade the whole bank as one class with plain `nbgrader autograde`; then check every entry, page, file and process."""

import ast
import copy
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from helpers import command_of, printed, wait_until
from nbconvert.exporters import HTMLExporter
from traitlets.config import PyFileConfigLoader

from autograder.checks.framework import StudentError
from autograder.grading.course_state import class_seed
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.sandbox.worker.wire import Decoder, WireError
from autograder.manifest import MANIFEST
from autograder.script.compare import Tolerance, difference
from hostile.bank import (
    CANARY,
    COURSE,
    RIGHT_FREQ,
    ROT_BODY,
    SCRIPT,
    WEEK,
    Entry,
    load,
    released,
    write_entry,
)
from hostile.class_run import (
    LIMITS,
    SECRET,
    WHOLE_CLASS,
    Graded,
    alive,
    grade_class,
    has_unsafe_mathjax,
    plain,
)

pytestmark = [pytest.mark.isolation, pytest.mark.xdist_group("hostile"), pytest.mark.timeout(WHOLE_CLASS + 100)]
BANK = load()
if os.environ.get("HOSTILE_PART") != "usual":  # more than the core
    pytestmark.append(pytest.mark.nightly)
BY_NAME = {entry.student: entry for entry in BANK}
ROOMY = Limits(cell_cpu=300.0, call_cpu=300.0, total_cpu=3000.0, total_idle=3000.0, memory=2**29)
TEXT_CELLS = [entry.graded_cell for entry in MANIFEST[WEEK] if entry.kind == "text"]
CODE_CELLS = [entry.graded_cell for entry in MANIFEST[WEEK] if entry.kind != "text"]


def write_class(root: Path) -> None:
    notebook = released()
    for entry in BANK:
        folder = root / "submitted" / entry.student / WEEK
        folder.mkdir(parents=True)
        write_entry(entry, notebook, folder, root)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    done = grade_class(tmp_path_factory.mktemp("hostile"), WEEK, write_class, LIMITS)
    slowest = sorted(done.seconds.items(), key=lambda item: -item[1])[:10]
    print(f"\n{len(BANK)} submissions; the slowest:", *(f"  {seconds:6.1f} s  {name}" for name, seconds in slowest), sep="\n")
    return done


# ---- points ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", BANK, ids=lambda entry: f"{entry.kind}-{entry.make.__name__}")
def test_due(graded: Graded, entry: Entry) -> None:
    score = graded.standing.get(entry.student)
    assert score is not None, "not in the gradebook: lost"
    if entry.ungradable:
        assert score.score is None and re.search(entry.ungradable, score.reason), score
        return
    assert score.reason == "", score.reason
    due = dict.fromkeys(CODE_CELLS, 0.0) | dict.fromkeys(TEXT_CELLS, 0.0) | entry.due | dict.fromkeys(entry.by_hand)
    given = {cell: points for cell, points in score.by_cell.items() if cell in due}  # visible checks carry no points
    assert given == due, {cell: (given.get(cell), due[cell]) for cell in due if given.get(cell) != due[cell]}
    assert score.max_score == sum(entry.points for entry in MANIFEST[WEEK])


def test_the_run_itself_succeeds(graded: Graded) -> None:
    assert graded.done.returncode == 0, re.findall(r".*ERROR.*", graded.done.stderr)
    assert set(graded.standing) == set(BY_NAME)


# ---- nothing touched, nothing left ----------------------------------------------------------------------------------


def test_submissions_are_unchanged(graded: Graded) -> None:
    changed = {path for path in graded.before.keys() | graded.after.keys() if graded.before.get(path) != graded.after.get(path)}
    assert not changed


def test_no_process_is_left(graded: Graded) -> None:
    assert not graded.survivors


def test_no_file_is_left(graded: Graded) -> None:
    assert os.listdir(graded.scratch) == []
    assert [name for name in os.listdir("/tmp") + os.listdir("/dev/shm") if CANARY in name or name == "pwned"] == []
    names = {path.name for path in graded.root.iterdir()}
    assert names <= {"source", "submitted", "autograded", "feedback", "gradebook.db", "nbgrader_config.py", ".autograder"}, names
    assert (graded.root.parent / "canary.txt").read_text() == SECRET
    copied = {path.name for path in graded.root.glob(f"autograded/*/{WEEK}/*")}
    assert copied <= {f"{WEEK}.ipynb", "timestamp.txt"}, copied


def test_what_is_kept_of_a_submission_is_bounded(graded: Graded) -> None:
    sizes = {path.parts[-3]: path.stat().st_size for path in graded.root.glob(f"autograded/*/{WEEK}/*.ipynb")}
    assert {student: size for student, size in sizes.items() if size > 60 * 2**20} == {}


def test_nothing_of_the_run_is_kept_in_the_state_folder(graded: Graded) -> None:
    assert os.listdir(graded.root / ".autograder" / "pending") == []


# ---- feedback and the pages of formgrader ---------------------------------------------------------------------------


def secret_lines() -> set[str]:
    """Return lines of hidden tests, reference, misconceptions, mark schemes and solutions long enough to recognise."""
    files = [*COURSE.glob("autograder/reference/*.py"), COURSE / "autograder/checks/week3.py", COURSE / "autograder/misconceptions/week3.py"]
    lines = {line.strip() for path in files for line in path.read_text(encoding="utf-8").splitlines()}
    notebook = (COURSE / "source" / f"{WEEK}.py").read_text(encoding="utf-8")
    for region in re.findall(r"BEGIN (?:SOLUTION|HIDDEN TESTS|MARK SCHEME)\n(.*?)END ", notebook, flags=re.DOTALL):
        lines |= {line.strip("# -*").strip() for line in region.splitlines()}
    public = (COURSE / "notebooks" / WEEK / f"{WEEK}.ipynb").read_text(encoding="utf-8")
    return {line for line in lines if len(line) > 40 and json.dumps(line)[1:-1] not in public and not _is_message(line)}


def _outputs(page: str) -> str:
    """Return a page without the student's own code."""
    return "\n".join(line for line in page.splitlines() if "print(" not in line and "raise" not in line and "Error(" not in line)


def _is_message(line: str) -> bool:
    """Whether a line is (part of) a text for students."""
    text = line.strip(" ,()=fr")
    try:
        return isinstance(ast.literal_eval(text), str)
    except (ValueError, SyntaxError):
        return text[:1] in "\"'"


def test_feedback_is_made_for_everybody(graded: Graded) -> None:
    for done in graded.feedback:
        assert done.returncode == 0, re.findall(r".*ERROR.*", done.stderr)[:5]
    assert set(graded.pages()) == set(BY_NAME)


def test_feedback_gives_away_no_source(graded: Graded) -> None:
    secrets, leaks = secret_lines(), {}
    assert len(secrets) > 300
    for student, page in graded.pages().items():
        text = plain(page)
        folder = graded.root / "submitted" / student / WEEK
        theirs = "".join(path.read_bytes().decode(errors="replace") for path in folder.glob("*.ipynb")
                         if path.is_file() and path.stat().st_size < 10**7) if folder.is_dir() else ""
        found = [line for line in secrets if line in text and json.dumps(line)[1:-1] not in theirs and line not in ROT_BODY + RIGHT_FREQ]
        if found:
            leaks[student] = found[:3]
    assert not leaks


def test_feedback_gives_away_no_environment_and_no_path(graded: Graded) -> None:
    seed, leaks = str(class_seed(graded.root, WEEK)), {}
    for student, page in graded.pages().items():
        own = {str(graded.root), str(COURSE)} if BY_NAME[student].kind in ("cheating", "writing", "privacy") else set()  # they print it themselves
        text = plain(page)
        found = [word for word in {SECRET, seed, str(graded.scratch), *({str(graded.root), str(COURSE), str(Path.home()) + "/"} - own)}
                 if word in text]
        if found:
            leaks[student] = found
    assert not leaks


def _shows_hidden_inputs(entry: Entry) -> bool:
    return entry.make.__name__.endswith("_hidden_inputs")


@pytest.mark.skipif(not any(map(_shows_hidden_inputs, BANK)), reason="nobody in this class tries: the core does")
def test_feedback_gives_away_no_hidden_input(graded: Graded) -> None:
    # The marker followed by values, a whole tensor, or a number with more than the four digits that a difference shows.
    shown = re.compile(r"HIDDEN-INPUT\W*[\d\[]|tensor\(|\d\.0*[1-9]\d{4}")
    pages = {student: plain(page) for student, page in graded.pages().items() if _shows_hidden_inputs(BY_NAME[student])}
    assert len(pages) == sum(map(_shows_hidden_inputs, BANK))
    assert not {student: shown.findall(page) for student, page in pages.items() if shown.search(_outputs(page))}


def test_feedback_runs_no_script_of_students(graded: Graded) -> None:
    pages = graded.pages()
    assert not {student: found for student, page in pages.items() if (found := alive(page))}
    assert not [student for student, page in pages.items() if has_unsafe_mathjax(page)]


@pytest.mark.nightly  # test_instructor has one such page
def test_formgrader_runs_no_script_of_students(graded: Graded) -> None:
    """The page for grading by hand, for the entries that carry script."""
    import nbgrader.server_extensions.formgrader as formgrader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(graded.root)).load_config()
    templates = str(Path(formgrader.__file__).parent / "templates")
    found = {}
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [templates]
    exporter = HTMLExporter(config=config)
    for path in sorted(graded.root.glob(f"autograded/*/{WEEK}/{WEEK}.ipynb")):
        if SCRIPT not in (text := path.read_text(encoding="utf-8")):
            continue
        resources = dict.fromkeys(("assignment_id", "notebook_id", "submission_id", "base_url", "mathjax_url", "first_name", "last_name",
                                   "notebook_path", "prefix"), "x") | {"index": 0, "total": 1}
        page, _ = exporter.from_notebook_node(nbformat.reads(text, as_version=4), resources=copy.deepcopy(resources))
        if here := alive(page):
            found[path.parts[-3]] = here[:3]
        if has_unsafe_mathjax(page):
            found[path.parts[-3], "mathjax"] = True
    assert not found


# ---- the trusted side, one weak place each --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(limits=ROOMY) as running:
        yield running


@pytest.fixture(scope="module")
def hurried_sandbox():
    with Sandbox(limits=Limits(cell_cpu=3.0, call_cpu=3.0, patience=3.0, memory=2**29)) as running:
        yield running


def open_session(sandbox: Sandbox) -> Session:
    return Session(sandbox, {}, 0)


def test_overlapping_tensors_take_no_more_memory_than_their_payload() -> None:
    """A 4 MB header may name one 64 MB payload 40 000 times."""
    tensor = {"T": {"dtype": "uint8", "shape": [2**20], "offset": 0}}
    with pytest.raises(WireError):
        Decoder(bytes(2**20)).decode({"l": [tensor] * 70})


def test_a_long_tensor_is_not_unpacked_to_be_compared_with_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = []
    monkeypatch.setattr(torch.Tensor, "__iter__", lambda self: unpacked.append(self.shape) or iter(()))
    assert difference(torch.zeros(300_000, dtype=torch.uint8), (torch.zeros(2), torch.zeros(2)), Tolerance())
    assert not unpacked


@pytest.mark.timing
def test_a_submission_that_is_over_is_over(hurried_sandbox: Sandbox) -> None:
    """When we end a stuck submission that has no death signal, its first process must be gone, too."""
    session = open_session(hurried_sandbox)
    session.execute("a", "import ctypes, time\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\ndef f():\n    while True: time.sleep(1)")
    f, pid = session.lookup(["f"])["f"], session._job.tree.root
    with pytest.raises(StudentError):
        f()
    session.close()
    wait_until(lambda: not command_of(pid), "the end of the submission's first process")  # a zombie has no command


def test_submissions_share_no_descriptor(sandbox: Sandbox) -> None:
    first, second = open_session(sandbox), open_session(sandbox)
    printed(first, "import os\nfor fd in (0, 1, 2):\n    try: os.write(fd, b'from the other')\n    except OSError: pass")
    seen = printed(second, "import os\nfor fd in range(20):\n    try: print(os.pread(fd, 1000, 0))\n    except OSError: pass")
    first.close(), second.close()
    assert "from the other" not in seen


def test_submissions_share_no_terminal(sandbox: Sandbox) -> None:
    first, second = open_session(sandbox), open_session(sandbox)
    printed(first, "import os\nmaster, slave = os.openpty()\nos.write(master, b'from the other\\n')")
    seen = printed(second, "import os\nfor n in range(5):\n    try: print(os.read(os.open(f'/dev/pts/{n}', os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK), 99))\n"
                           "    except OSError: pass")
    first.close(), second.close()
    assert "from the other" not in seen


@pytest.mark.timing
def test_processes_are_counted_whoever_grades(sandbox: Sandbox) -> None:
    """RLIMIT_NPROC does not bind root, and many graders run as root. Code that exceeds it sleeps until it is caught."""
    session = open_session(sandbox)
    done = session.execute("a", """
import os, time
made = 0
try:
    for _ in range(150):
        if os.fork() == 0:
            time.sleep(3600); os._exit(0)
        made += 1
except OSError:
    pass
if made > 64: time.sleep(3600)
print('made', made)""")
    session.close()
    assert (not done.error and "made" in done.outputs[0]["text"]) or "processes" in done.error.message


@pytest.mark.timing
def test_waiting_is_limited_in_all_not_per_frame(hurried_sandbox: Sandbox) -> None:
    """Callbacks that each arrive just within the deadline could hold the grader for hours."""
    session = open_session(hurried_sandbox)
    done = session.execute("a", """
import os, stat, struct, json, time
fd = next(fd for fd in range(3, 256) if stat.S_ISSOCK(os.fstat(fd).st_mode))
text = json.dumps({'callback': 0, 'args': {'l': []}, 'kwargs': {'d': []}}).encode()
while True:
    time.sleep(5)
    os.write(fd, struct.pack('!II', len(text), 0) + text)
""")
    session.close()
    assert "waited" in done.error.message


def test_the_seed_of_the_hidden_inputs_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    from autograder.grading.marking import judge as judging
    from autograder.grading.messages import Task

    seen: list[int] = []

    class Spy(Exception):
        pass

    def fake(sandbox: object, files: dict, seed: int) -> Session:
        seen.append(seed)
        raise Spy

    monkeypatch.setattr(judging, "Session", fake)
    with pytest.raises(Spy):
        judging.judge(Task("ada", WEEK, [], {}, 123456789), SimpleNamespace(import_helpers=lambda files: None))
    assert seen != [123456789]
