"""Questions sent ahead: none contains the expected answer to another, so a student gains nothing by reading them."""

import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import COURSE

from autograder.classroom import make_course_root
from autograder.course import instructor_cells, released_files
from autograder.grading.marking.judge import judge
from autograder.grading.messages import Result, Task, TaskCell
from autograder.grading.sandbox import ahead
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.worker.tensors import tensors_in
from autograder.grading.sandbox.worker.wire import bytes_of
from autograder.grading.submission import intake
from autograder.manifest import MANIFEST
from autograder.script.answer import Given
from autograder.script.script import Exercise


def exercises(week: str) -> list[Exercise]:
    checks = importlib.import_module(f"autograder.checks.{week.split('_')[0]}")
    return [value for value in vars(checks).values() if isinstance(value, Exercise)]


@pytest.mark.parametrize("week", MANIFEST)
def test_nothing_that_is_sent_ahead_holds_what_is_expected(week: str) -> None:
    """The student's process could read it there. A step's own arguments may hold it: unrotated, x itself is right."""
    count = 0
    for exercise in exercises(week):
        steps = exercise.write(exercise.right, 9, "cpu").steps
        sent = {raw for step in steps for q in step.questions if q.is_plain for raw in telling((q.args, q.kwargs))}
        for step in steps:
            own = {raw for question in step.questions for raw in telling((question.args, question.kwargs))}
            expected = set(telling(step.expected.value)) - own if isinstance(step.expected, Given) else set()
            assert not expected & sent, step.call
            count += len(expected)
    assert count > 10


def telling(value: Any) -> Iterator[bytes]:
    """Yield the bytes, as on the wire, of all float tensors with several different numbers."""
    for tensor in tensors_in(value):
        if tensor.is_floating_point() and tensor.numel() >= 6 and tensor.unique().numel() >= 4:
            yield bytes_of(tensor)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


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


@pytest.mark.isolation
@pytest.mark.nightly
def test_who_reads_ahead_gains_nothing(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_course_root(COURSE, tmp_path, ["week3_rope"])
    notebook = intake.rebuild(COURSE / "solutions" / "week3_rope", tmp_path, "week3_rope").notebook
    cells, files = instructor_cells(tmp_path, "week3_rope"), released_files(tmp_path, "week3_rope")
    task = Task.of("ada", "week3_rope", notebook, cells, files, seed=7)
    answers = [
        dataclasses.replace(cell, source=READS_AHEAD) if cell.id == "apply_rotary_emb" else cell for cell in task.cells
    ]
    shown = TaskCell("shown", answers[-1].role, "assert seen == 0, seen")
    task = dataclasses.replace(task, cells=[*answers, shown])
    points = {}
    for room in (0, ahead.ROOM):
        monkeypatch.setattr(ahead, "ROOM", room)
        answer = judge(task, sandbox)
        assert isinstance(answer, Result)
        points[room] = answer.scores["apply_rotary_emb_tests"]
        assert ("shown" in answer.failed_checks) == bool(room), "it does read what is to come"
    assert points[ahead.ROOM] <= points[0]
