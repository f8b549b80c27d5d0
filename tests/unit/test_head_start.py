"""One submission by itself is begun before the run asks for it, and only if the run will ask for the very same."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import COURSE, WEEK3

from autograder.classroom import make_course_root
from autograder.grading import head_start, pipeline
from autograder.grading.executors import client
from autograder.grading.messages import Answer, Options, Task

OPTIONS = Options()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK3])
    submit(root, "ada")
    return root


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, Options]]:
    found: list[tuple[Task, Options]] = []
    monkeypatch.setattr(client, "begin", lambda *what: found.append(what))
    return found


def submit(root: Path, student: str) -> Path:
    folder = root / "submitted" / student / WEEK3
    folder.mkdir(parents=True)
    shutil.copy(COURSE / "solutions" / WEEK3 / f"{WEEK3}.ipynb", folder)
    return folder


def asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks of a run over the whole class."""
    tasks: list[Task] = []
    monkeypatch.setattr(client, "grade", lambda given, *_: tasks.extend(given))
    files = {folder.name: folder / WEEK3 for folder in (root / "submitted").iterdir()}
    pipeline.grade_submissions(root, WEEK3, files, OPTIONS, lambda *_: None)
    return tasks


@pytest.mark.parametrize("is_new", [True, False])
def test_it_is_what_the_run_will_ask_for(
    root: Path, begun: list, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        pipeline.class_seed(root, WEEK3)
    before = sorted(root.rglob("*"))
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    assert sorted(root.rglob("*")) == before, "nothing is written before the run may begin"
    assert begun == [(asked_for(root, monkeypatch)[0], OPTIONS)]


def test_one_of_a_class_by_name_is_begun_and_a_class_is_not(root: Path, begun: list) -> None:
    submit(root, "boole")
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    head_start.begin(root, WEEK3, ["ada", "boole"], OPTIONS, again=False)
    assert not begun
    head_start.begin(root, WEEK3, ["boole"], OPTIONS, again=False)
    assert [task.key for task, _ in begun] == ["boole"]


def test_what_is_graded_is_begun_only_to_be_graded_again(root: Path, begun: list) -> None:
    (root / "autograded" / "ada" / WEEK3).mkdir(parents=True)
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    assert not begun
    head_start.begin(root, WEEK3, [], OPTIONS, again=True)
    assert len(begun) == 1


@pytest.mark.parametrize("options", [Options(isolate=False), Options(scheduler="tcp://1.2.3.4:5")])
def test_nothing_is_begun_without_walls_or_for_a_cluster(root: Path, begun: list, options: Options) -> None:
    head_start.begin(root, WEEK3, [], options, again=False)
    assert not begun


def test_nothing_is_begun_where_the_configuration_says_how_grading_is_done(root: Path, begun: list) -> None:
    with (root / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write("\nc.SubmissionExporter.limits = {'cell_cpu': 5}\n")
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    (root / "nbgrader_config.py").unlink()
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    assert not begun


def test_what_cannot_be_read_is_left_to_the_run(root: Path, begun: list) -> None:
    (root / "submitted" / "ada" / WEEK3 / f"{WEEK3}.ipynb").write_text("{")
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    head_start.begin(root, WEEK3, ["nobody"], OPTIONS, again=False)
    shutil.rmtree(root / "source")
    head_start.begin(root, WEEK3, [], OPTIONS, again=False)
    assert not begun


# ---- the grading process ----------------------------------------------------------------------------------------------

# Answers at once; the score says which of its tasks it was.
ECHO = """
import json, sys
count = 0
for line in sys.stdin:
    request = json.loads(line)
    if "task" in request:
        count += 1
        print(json.dumps({"result": {"key": request["task"]["key"], "scores": {"a": count}}}), flush=True)
    elif "prestart" not in request:
        print(json.dumps({"done": True}), flush=True)
"""
BUSY = "import sys, time\nwhile True: time.sleep(1)"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen]]:
    """The grading processes, which only pretend."""
    found: list[subprocess.Popen] = []

    def start(code: str = ECHO) -> subprocess.Popen:
        command = [sys.executable, "-c", code]
        found.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return found[-1]

    monkeypatch.setattr(client, "start_grader", start)
    yield found
    client.close()
    assert all(process.poll() is not None for process in found)


def task(key: str, source: str = "") -> Task:
    return Task(key, WEEK3, [], {"a.py": source}, seed=0)


def graded(*tasks: Task, options: Options = OPTIONS) -> list[tuple[str, float]]:
    answers: list[Answer] = []
    client.grade(tasks, options, answers.append)
    return [(answer.key, answer.scores["a"]) for answer in answers]


def begin(key: str) -> None:
    client.prestart(WEEK3, OPTIONS)
    client.begin(task(key), OPTIONS)


def test_what_was_begun_is_handed_over_once(started: list) -> None:
    begin("ada")
    assert graded(task("ada"), task("boole")) == [("ada", 1), ("boole", 2)]
    assert graded(task("ada")) == [("ada", 1)]
    assert len(started) == 2


@pytest.mark.parametrize(
    ("first", "options"),
    [
        (task("boole"), OPTIONS),
        (dataclasses.replace(task("ada"), seed=1), OPTIONS),
        (task("ada"), dataclasses.replace(OPTIONS, workers=3)),
    ],
)
def test_nobody_hears_of_another_one(started: list, first: Task, options: Options) -> None:
    begin("ada")
    assert graded(first, options=options) == [(first.key, 1)]
    assert len(started) == 2


def test_a_second_head_start_changes_nothing(started: list) -> None:
    """A run that was refused has left the first."""
    begin("ada")
    begin("boole")
    assert graded(task("boole")) == [("boole", 1)]
    begin("ada")
    client.prestart("week1_permutation_equivariance", OPTIONS)
    assert graded(task("cantor")) == [("cantor", 1)]


def test_it_ends_with_a_run_that_has_nothing_to_grade(started: list) -> None:
    begin("ada")
    assert graded() == [] and started[0].poll() is not None
    begin("ada")
    with client.keeping():
        assert graded(task("boole")) == [("boole", 1)]


def test_a_process_that_has_ended_is_replaced(started: list) -> None:
    begin("ada")
    started[0].kill()
    started[0].wait()
    assert graded(task("ada")) == [("ada", 1)] and len(started) == 2


def test_nobody_waits_for_a_process_that_is_not_reading_yet(started: list, monkeypatch: pytest.MonkeyPatch) -> None:
    start = client.start_grader
    monkeypatch.setattr(client, "start_grader", lambda: start(BUSY))
    client.prestart(WEEK3, OPTIONS)
    large = task("ada", "x" * 2**20)  # more than a pipe holds
    assert len(json.dumps(large.to_json())) > 2**20
    client.begin(large, OPTIONS)
    client.cancel()
