"""Questions sent ahead: a right answer is asked what it would be asked one by one, in the same order, in fewer messages."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import COURSE

from autograder.checks import framework
from autograder.checks.compare import Tolerance, difference
from autograder.checks.errors import StudentError
from autograder.checks.plan import Recorder
from autograder.checks.probes import Probe
from autograder.classroom import make_course_root
from autograder.course import instructor_cells, released_files
from autograder.grading.judge import judge
from autograder.grading.messages import Result, Task, TaskCell
from autograder.grading.sandbox import prefetch
from autograder.grading.sandbox.prefetch import Step
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.grading.sandbox.worker.wire import Connection, bytes_of
from autograder.grading.submission import intake
from autograder.manifest import MANIFEST

pytestmark = [pytest.mark.isolation, pytest.mark.xdist_group("sandbox"), pytest.mark.nightly]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def task_of_solution(assignment: str, root: Path) -> Task:
    make_course_root(COURSE, root, [assignment])
    notebook = intake.rebuild(COURSE / "solutions" / assignment, root, assignment).notebook
    template, released = instructor_cells(root, assignment), released_files(root, assignment)
    return Task.of("ada", assignment, notebook, template, released, seed=7)


def outcome(answer: Any, *arguments: Any) -> tuple[Any, type[Exception] | None]:
    torch.manual_seed(0)  # for modules that are asked for the numbers that they begin with
    try:
        return answer(*arguments), None
    except Exception as error:
        return None, type(error)


@pytest.mark.parametrize("assignment", MANIFEST)
def test_what_is_expected_is_what_the_reference_gives_in_this_process(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing, count = [], 0
    stock = Recorder.answer

    def both(recorder: Recorder, probe: Probe) -> Any:
        nonlocal count
        (value, error), (direct, expected) = outcome(stock, recorder, probe), outcome(probe, recorder._objects[0])
        count += 1
        if error is not expected or difference(value, direct, Tolerance(rtol=0, atol=0, exact_dtype=True)):
            differing.append((recorder._part, value, direct))
        return probe(recorder._objects[0])

    monkeypatch.setattr(Recorder, "answer", both)
    task = dataclasses.replace(
        task_of_solution(assignment, tmp_path), seed=8
    )  # of another class: nothing is known of it
    assert isinstance(judge(task, sandbox), Result)
    assert not differing and count > 20


@pytest.mark.parametrize("assignment", MANIFEST)
def test_nothing_that_is_sent_ahead_holds_what_is_expected_of_a_question_before_it(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The student's process could read it there."""
    answers: dict[Recorder, list[tuple[int, bytes]]] = {}
    stock = Recorder.answer

    def noted(recorder: Recorder, probe: Probe) -> Any:
        start = len(recorder.steps)
        value, place = stock(recorder, probe), len(recorder.steps)
        own = [step.question.payload for step in recorder.steps[start:] if step.question is not None]
        found = [
            raw for raw in telling(value) if not any(raw in payload for payload in own)
        ]  # nothing turned is x again
        answers.setdefault(recorder, []).extend((place, raw) for raw in found)
        return value

    monkeypatch.setattr(Recorder, "answer", noted)
    task = dataclasses.replace(task_of_solution(assignment, tmp_path), seed=9)
    assert isinstance(judge(task, sandbox), Result)
    assert sum(map(len, answers.values())) > 10
    told = {
        (step.part, step.question.text)
        for recorder, expected in answers.items()
        for place, raw in expected
        for step in recorder.steps[place:]
        if step.question is not None and raw in step.question.payload
    }
    assert not told


def telling(value: Any) -> Iterator[bytes]:
    """Tensors of several different numbers, as they would cross the wire."""
    for tensor in tensors_in(value):
        if tensor.is_floating_point() and tensor.numel() >= 6 and tensor.unique().numel() >= 4:
            yield bytes_of(tensor)


@pytest.mark.parametrize("assignment", MANIFEST)
def test_a_plan_is_the_same_whatever_is_answered(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a question that is sent ahead would be made of the reference's answer to another."""
    plans: list[tuple[list[Step], list[Step]]] = []
    planned, expected = framework._Bench._plan, framework.Check._expected

    def plan_twice(bench: Any) -> Any:
        right = planned(bench)
        with monkeypatch.context() as patch:
            patch.setattr(framework._Rehearsal, "_run", answering_otherwise)
            patch.setattr(framework.Check, "_expected", lambda *what: otherwise(expected(*what)))
            plans.append((right, planned(bench)))
        return right

    def answering_otherwise(self: Any, probe: Probe, call: str, place: Any, *more: Any) -> Any:
        record = framework.Record(probe, place, *more)
        self._records.append(record)
        try:
            record.got = self._expected(probe, place)
        except framework.BrokenCheck as error:  # to refuse is right
            record.error = StudentError.from_exception(error.__cause__ or error)
            raise framework.Miss from None
        return record

    monkeypatch.setattr(framework._Bench, "_plan", plan_twice)
    task = dataclasses.replace(task_of_solution(assignment, tmp_path), seed=10)
    assert isinstance(judge(task, sandbox), Result)
    assert plans
    for right, other in plans:
        known = {(step.part, step.question) for step in right}
        assert not [step.part for step in other if (step.part, step.question) not in known]
    assert sum(len(other) for _, other in plans) > 0.5 * sum(len(right) for right, _ in plans)


def otherwise(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach() + 1
    if isinstance(value, (tuple, list)):
        return type(value)(map(otherwise, value))
    if isinstance(value, dict):
        return {key: otherwise(item) for key, item in value.items()}
    return value + 1.0 if isinstance(value, float) else value


@pytest.mark.parametrize("assignment", MANIFEST)
def test_a_right_answer_is_asked_the_same_in_the_same_order(
    assignment: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of_solution(assignment, tmp_path)
    messages: list[list[tuple[str, bytes]]] = []
    send = Connection.send_frames

    def noted(connection: Connection, frames: list[tuple[str, bytes]], *more: Any) -> None:
        messages.append(frames)
        send(connection, frames, *more)

    monkeypatch.setattr(Connection, "send_frames", noted)
    asked, results = {}, {}
    for most in (0, prefetch.MOST):
        messages.clear()
        with monkeypatch.context() as patch:
            patch.setattr(prefetch, "FIRST", min(most, prefetch.FIRST))
            patch.setattr(prefetch, "MOST", most)
            answer = judge(task, sandbox)
        assert isinstance(answer, Result)
        assert all(answer.scores[cell.id] == cell.points for cell in task.cells if cell.points)
        results[most] = answer.scores, answer.verdicts
        asked[most] = [frame for frames in messages for frame in frames], len(messages)
    assert results[0] == results[prefetch.MOST]
    (one_by_one, count), (ahead, fewer) = asked[0], asked[prefetch.MOST]
    assert ahead == one_by_one
    assert fewer < 0.85 * count, f"{fewer} messages in place of {count}"


READS_AHEAD = """
def to_come():
    import gc, json, socket, struct
    for thing in gc.get_objects():
        if type(thing).__name__ == "Connection":
            raw = bytes(thing._read)
            try:
                raw += thing.sock.recv(2**20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:
                pass
            while len(raw) >= 8:
                text, size = struct.unpack_from("!II", raw)
                payload = raw[8 + text : 8 + text + size]
                try:
                    args = json.loads(raw[8 : 8 + text])["args"]["u"]
                except (ValueError, KeyError):
                    break
                raw = raw[8 + text + size :]
                for value in args:
                    body = value["T"]
                    flat = torch.frombuffer(bytearray(payload), dtype=getattr(torch, body["dtype"]), offset=body["offset"])
                    count = torch.Size(body["shape"]).numel()
                    if len(flat) >= count:
                        yield flat[:count].reshape(body["shape"])


seen = 0


def apply_rotary_emb(x, positions, base=10000.0):
    global seen
    for other in to_come():
        seen += 1
        if other.shape == x.shape and other.dtype == x.dtype:
            return other.clone()
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    near = positions.double().unsqueeze(-1) * rope_frequencies(x.shape[-1]).double()
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(near), near)).flatten(-2).to(x.dtype)
"""


def test_who_reads_ahead_gains_nothing(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of_solution("week3_rope", tmp_path)
    cells = [
        dataclasses.replace(cell, source=READS_AHEAD) if cell.id == "apply_rotary_emb" else cell for cell in task.cells
    ]
    shown = TaskCell("shown", cells[-1].role, "assert seen == 0, seen")
    task = dataclasses.replace(task, cells=[*cells, shown])
    points = {}
    for most in (0, prefetch.MOST):
        with monkeypatch.context() as patch:
            patch.setattr(prefetch, "FIRST", min(most, prefetch.FIRST))
            patch.setattr(prefetch, "MOST", most)
            answer = judge(task, sandbox)
        assert isinstance(answer, Result)
        points[most] = answer.scores["apply_rotary_emb_tests"]
        assert ("shown" in answer.failed_checks) == bool(most), "it does read what is to come"
    assert points[prefetch.MOST] <= points[0]
