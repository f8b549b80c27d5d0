"""Grading on a real Dask cluster on loopback: a scheduler and worker processes, one of them killed in the middle."""

import contextlib
import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers import COURSE, PATIENCE, autograder, wait_until

from autograder.classroom import Student, make_course_root, simulate
from autograder.errors import GradingFailed
from autograder.grading.executors import dask_cluster as cluster
from autograder.grading.messages import Answer, Failure, Graded, Options, Outcome, Result, Task, Ungradable
from autograder.grading.pipeline import grade_submissions
from autograder.grading.sandbox.bubblewrap import why_not_isolated

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
WEEK1 = "week1_permutation_equivariance"
OLD_COURSE = "from autograder.grading.executors import dask_cluster as cluster\nthose = cluster.versions()\ncluster.versions = lambda: those | {'torch': '1.0'}\n"
NO_BUBBLEWRAP = "from autograder.grading.executors import dask_cluster as cluster\ncluster.why_not_isolated = lambda: 'bubblewrap was not found: install it'\n"
KILLER = """
import os
from autograder.grading.executors import dask_cluster as cluster
from autograder.grading.messages import Result

def _grade(task, options):
    if task.key == "killer":
        os._exit(1)
    return Result(task.key, scores={"a": 1.0})

cluster._grade = _grade
"""


class Cluster:
    """A scheduler and its workers as processes, reached through the scheduler file."""

    def __init__(self, folder: Path, failures: int) -> None:
        self.failures = str(failures)  # how often a submission's worker may die before the scheduler gives up
        self.folder, self.file, self.processes, self.workers = folder, folder / "scheduler.json", [], []
        here = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
        self.start("scheduler", "--scheduler-file", str(self.file), *here)
        wait_until(lambda: self.file.is_file() and self.file.stat().st_size > 0)

    @property
    def address(self) -> str:
        return json.loads(self.file.read_text())["address"]

    def start(self, *arguments: str) -> subprocess.Popen:
        log = open(self.folder / f"{arguments[0]}-{len(self.processes)}.log", "w")  # noqa: SIM115  the process writes to it as long as it runs
        env = {**os.environ, "PYTHONPATH": str(COURSE), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": self.failures}
        code = "import sys; from dask.__main__ import main; sys.argv[0] = 'dask'; main()"
        self.processes.append(
            subprocess.Popen([sys.executable, "-c", code, *arguments], env=env, cwd=self.folder, stdout=log, stderr=log)
        )
        return self.processes[-1]

    def start_worker(self, *options: str, patch: str = "") -> None:
        if patch:
            preload = self.folder / f"preload{len(self.processes)}.py"
            preload.write_text(patch)
            options = (*options, "--preload", str(preload))
        here = ["--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        self.workers.append(self.start("worker", "--scheduler-file", str(self.file), *here, *options))

    def wait_for_workers(self) -> None:
        with cluster._connected(str(self.file)) as client:
            client.wait_for_workers(len(self.workers), timeout=PATIENCE)

    def close(self) -> None:
        for group in (self.workers, self.processes):  # the scheduler last: workers without one end slowly
            for process in group:
                process.terminate()
            for process in group:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextmanager
def running(folder: Path, *patches: str, failures: int = 3) -> Iterator[Cluster]:
    started = Cluster(folder, failures)
    try:
        for patch in patches:
            started.start_worker(patch=patch)
        if patches:
            started.wait_for_workers()
        yield started
    finally:
        started.close()


def small_class(tmp_path: Path, count: int) -> tuple[Path, list[Student], dict[str, Path]]:
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK1])
    students = simulate(COURSE, root, WEEK1, count=count, seed=2)
    return root, students, {student.name: root / "submitted" / student.name / WEEK1 for student in students}


def grades(outcomes: dict[str, Outcome]) -> dict[str, object]:
    """Return what each outcome says, without the time it took."""
    return {
        key: (outcome.result.scores, outcome.result.verdicts, outcome.result.failed_checks)
        if isinstance(outcome, Graded)
        else outcome.reason
        for key, outcome in outcomes.items()
    }


def task(key: str) -> Task:
    return Task(key, WEEK1, [], {}, 0)


@pytest.mark.isolation
def test_a_worker_killed_in_the_middle_changes_no_grade(tmp_path: Path) -> None:
    root, students, files = small_class(tmp_path, 8)
    isolate, there, here = not why_not_isolated(), {}, {}
    with running(tmp_path, "", "") as started:

        def on_outcome(key: str, outcome: Outcome) -> None:
            assert key not in there
            there[key] = outcome
            if isinstance(outcome, Graded) and started.workers[0].poll() is None:
                started.workers[0].send_signal(signal.SIGKILL)

        grade_submissions(root, WEEK1, files, Options(isolate, scheduler=started.address), on_outcome, again=True)
        assert started.workers[0].wait(PATIENCE) == -signal.SIGKILL and started.workers[1].poll() is None
    grade_submissions(root, WEEK1, files, Options(isolate), here.__setitem__, again=True)
    assert grades(there) == grades(here) and there.keys() == files.keys()
    for student in students:
        given = there[student.name]
        assert isinstance(given, Ungradable if student.ungradable else Graded)
        for cell, points in student.expected.items():
            assert student.ungradable or points is None or given.result.scores.get(cell, points) == points, (
                student,
                cell,
            )


@pytest.mark.parametrize("times", [2, 99])
def test_a_result_that_its_worker_took_along_is_asked_for_again(times: int) -> None:
    result, arrived = json.dumps({"result": asdict(Result("ada", scores={"a": 1.0}))}), []
    late = Mock(key="one", result=Mock(side_effect=[TimeoutError] * times + [result]))
    late.add_done_callback = lambda call: call(late)
    client = Mock(submit=lambda *_, **__: late, status="closed")
    with pytest.raises(GradingFailed, match="did not arrive") if times == 99 else contextlib.nullcontext():
        cluster._run(client, [task("ada")], "", "", arrived.append)
    assert [answer.key for answer in arrived] == ([] if times == 99 else ["ada"])


@pytest.mark.nightly
@pytest.mark.isolation
def test_what_a_judge_has_learnt_stays_for_the_next_submission() -> None:
    options = Options(workers=1)
    try:
        processes = []
        for key in ("ada", "boole"):
            assert cluster._grade(task(key), options).key == key
            with cluster._warm_graders.taken() as grader:
                processes.append(children(grader.start().pid))
        assert len(processes[0]) > 1 and processes[0] == processes[1]  # the sandbox and the judge
    finally:
        for grader in list(cluster._warm_graders._idle):
            cluster._warm_graders._close(grader)


def children(parent: int) -> set[str]:
    return {pid for tasks in Path(f"/proc/{parent}/task").iterdir() for pid in (tasks / "children").read_text().split()}


@pytest.mark.nightly
def test_a_submission_that_kills_workers_is_not_graded_and_takes_nobody_along(tmp_path: Path) -> None:
    answers: list[Answer] = []
    with running(tmp_path, KILLER, KILLER, KILLER, failures=0) as started:
        cluster.grade(
            [task(key) for key in ("ada", "killer", "boole", "emmy")],
            Options(False, scheduler=str(started.file)),
            answers.append,
        )
    results = {result.key: result for result in answers}
    assert isinstance(results["killer"], Failure) and "workers of the cluster died" in results["killer"].reason
    assert all(results[key] == Result(key, scores={"a": 1.0}) for key in ("ada", "boole", "emmy"))
    assert len(answers) == 4


@pytest.mark.nightly
def test_the_cluster_has_a_part_of_a_large_class_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "AHEAD", 3)
    taken, most, answers = 0, 0, []

    def tasks() -> Iterator[Task]:
        nonlocal taken, most
        for number in range(10):
            taken += 1
            most = max(most, taken - len(answers))
            yield task(f"student{number}")

    with running(tmp_path, KILLER) as started:
        cluster.grade(tasks(), Options(False, scheduler=started.address), answers.append)
    assert {answer.key for answer in answers} == {f"student{number}" for number in range(10)} and most == 3


def test_what_is_wrong_with_a_cluster_is_one_line(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        with pytest.raises(GradingFailed, match="has no workers: start some"):
            cluster.grade([task("ada")], Options(scheduler=started.address), lambda result: None)
        started.start_worker("--name", "old", patch=OLD_COURSE)
        started.wait_for_workers()
        with pytest.raises(GradingFailed, match=r"torch 1\.0 instead of .*install the same"):
            cluster.grade([task("ada")], Options(scheduler=started.address), lambda result: None)
        started.workers.pop().terminate()
        wait_until(lambda: started.processes[-1].poll() is not None)
        started.start_worker(patch=NO_BUBBLEWRAP)
        started.wait_for_workers()
        with pytest.raises(GradingFailed, match="worker tcp.*bubblewrap was not found"):
            cluster.grade([task("ada")], Options(scheduler=started.address), lambda result: None)


def test_a_worker_that_joins_later_is_asked_too() -> None:
    needed = json.dumps(cluster.versions() | {"course": "other"})
    answer = json.loads(cluster.grade_one("{}", json.dumps({"isolate": False}), needed))
    assert "another version" in answer["failed"]


def test_another_build_of_a_version_is_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0+cu126")
    assert cluster.versions()["torch"] == "2.13.0"


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [
        ("tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9"),
        ("nowhere.json", "there is no scheduler file nowhere.json"),
        ("tls://127.0.0.1:9", "wants certificates"),
        ("127.0.0.1", "it looks like tcp://host:8786"),
    ],
)
def test_a_wrong_scheduler_is_one_line(
    scheduler: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
    with pytest.raises(GradingFailed, match=says):
        cluster.grade([task("ada")], Options(scheduler=scheduler), lambda result: None)


def test_a_certificate_that_is_not_there_is_named() -> None:
    files = Mock(tls_client_cert="/no/cert.pem", tls_client_key=None, tls_ca_file=None)
    with pytest.raises(GradingFailed, match="names the certificate /no/cert.pem, and there is no such file"):
        cluster._require_certificates("tls://127.0.0.1:9", files)


def test_what_listens_and_is_no_scheduler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(GradingFailed, match="no Dask scheduler answers"):
            cluster.grade([task("ada")], Options(scheduler=f"127.0.0.1:{server.server_port}"), lambda result: None)
        server.shutdown()


def test_the_command_says_it_too_and_gives_no_grade(tmp_path: Path) -> None:
    root, _, _ = small_class(tmp_path, 1)
    said = autograder("--root", str(root), "autograde", "--week", "1", "--scheduler", "nowhere.json", code=2).stderr
    assert said.startswith("error: there is no scheduler file nowhere.json") and said.count("\n") == 1
    assert not (root / "autograded").exists()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(GradingFailed, match=r"not installed here: .*pip install -e '\.\[cluster\]'"):
        cluster.grade([task("ada")], Options(scheduler="tcp://127.0.0.1:9"), lambda result: None)
