"""What is sent ahead: which questions, how many, and what becomes of those that nobody asks."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from autograder.checks.framework import StudentError, calling
from autograder.checks.plan import Recorder
from autograder.grading.sandbox import prefetch
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.prefetch import Prefetch, Question, Step
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.sandbox.worker.wire import Connection, Encoder


def question(*args: Any) -> Question:
    return Question.of(Encoder(), None, None, args, {})


def steps(part: str, *numbers: int) -> list[Step]:
    return [Step(part, question(n)) for n in numbers]


def sent_with(ahead: Prefetch, n: int) -> list[Question | None]:
    found = ahead.after("f", question(n))
    for serial, step in enumerate(found):
        ahead.sent(step, serial)
    return [step.question for step in found]


@pytest.fixture
def ahead() -> Prefetch:
    found = Prefetch()
    found.plan("f", [*steps("a", *range(100)), Step("a", None), *steps("b", *range(200, 260))])
    found.go_to("a")
    return found


def test_each_time_that_all_were_asked_more_are_sent(ahead: Prefetch) -> None:
    sizes, n = [], 0
    while n < 70:
        sizes.append(len(sent_with(ahead, n)))
        for following in range(n + 1, n + 1 + sizes[-1]):
            assert ahead.serial_of("f", question(following)) is not None
        n += 1 + sizes[-1]
    assert sizes[0] == prefetch.FIRST - 1 and max(sizes) == prefetch.MOST - 1 and sizes == sorted(sizes)


def test_none_is_sent_after_what_is_asked_by_itself_nor_after_another_question(ahead: Prefetch) -> None:
    ahead.go_to("a")
    assert sent_with(ahead, 0)
    ahead.unasked()
    ahead.plan("f", [*steps("a", 1, 2), Step("a", None), *steps("a", 3, 4)])
    ahead.go_to("a")
    assert sent_with(ahead, 1) == [question(2)]
    assert ahead.serial_of("f", question(2)) == 0
    assert sent_with(ahead, 3) == [question(4)], "after what was asked by itself it goes on"
    ahead.unasked()
    ahead.plan("f", steps("a", 1, 2, 3))
    ahead.go_to("a")
    assert sent_with(ahead, 2) == [] and sent_with(ahead, 1) == []


def test_a_reply_is_for_the_very_same_question_to_the_same_object(ahead: Prefetch) -> None:
    assert sent_with(ahead, 0)[0] == question(1)
    for other in (question(True), question(1.0), question("1"), question([1]), question(2)):
        assert ahead.serial_of("f", other) is None
    assert ahead.serial_of("g", question(1)) is None
    assert ahead.serial_of("f", question(1)) == 0


def test_after_a_miss_no_more_is_sent_of_this_plan_and_a_part_that_was_led_to_goes_on(ahead: Prefetch) -> None:
    assert ahead.goes_on_with("a") and not ahead.goes_on_with("b")
    assert sent_with(ahead, 0)
    assert ahead.unasked() and not ahead.is_ahead
    for part in ("a", "b"):
        ahead.go_to(part)
        assert not ahead.goes_on_with(part)
    assert sent_with(ahead, 200) == []


def test_what_waits_in_the_socket_is_bounded() -> None:
    ahead = Prefetch()
    large = torch.zeros(prefetch.ROOM // 4 // 2)  # half of the room
    ahead.plan("f", [Step("a", question(n, large)) for n in range(9)])
    ahead.go_to("a")
    assert len(ahead.after("f", question(0, large))) == 1
    assert len(ahead.after("f", question(2, large), room=1000)) == 0


@pytest.mark.parametrize("buffer", [5_000, 20_000, 100_000])
def test_neither_side_waits_for_the_other_to_read(buffer: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        connection = Connection(ours)
        count = connection.room // 100
        for _ in range(2):
            connection.send_frames([("{}", bytes(90))] * count, seconds=0.0)
            assert len(theirs.recv(100 * count, socket.MSG_WAITALL)) == 100 * count


def test_what_only_one_submission_has_is_asked_by_itself() -> None:
    plain = Question.of(Encoder(), None, None, (torch.ones(2), [1, {"a": None}]), {"base": 2.0})
    watched = Question.of(Encoder(), None, None, (torch.ones(2),), {}, watched=(1,))
    lent = Question.of(Encoder(lambda value: {"c": 0}), None, None, (print,), {})
    assert plain.is_plain and not watched.is_plain and not lent.is_plain


def test_the_recorder_answers_as_the_reference_does_and_writes_down_what_it_is_asked() -> None:
    recorder = Recorder(torch.nn.Linear)
    recorder.begin("a")
    weights = {"weight": torch.tensor([[2.0, 1.0]]), "bias": torch.tensor([1.0])}

    def twice(cls: Any) -> list[Any]:
        module = cls.with_weights((2, 1), {}, weights, []) if cls is recorder.subject else None
        if module is None:
            module = cls(2, 1)
            module.load_state_dict(weights)
        return [module(torch.tensor([3.0, 4.0])).tolist(), module(torch.tensor([0.0, 0.0])).tolist()]

    assert recorder.answer(twice) == [[11.0], [1.0]]
    assert recorder.answer(lambda cls: sorted(cls(2, 3).state_dict())) == ["bias", "weight"]
    with pytest.raises(TypeError):
        recorder.answer(calling("no", size=1))
    assert recorder.answer(lambda cls: cls(1, 1)).in_features == 1
    recorder.listen(calling(3, 4))
    plain = [step.question is not None for step in recorder.steps]
    assert plain == [True, False, True, False, True, True, True] and {step.part for step in recorder.steps} == {"a"}


# ---- in the sandbox ---------------------------------------------------------------------------------------------------

CELL = """\
import os
asked = []
kept = []
def f(n):
    asked.append(n)
    if n == 13:
        os._exit(1)
    if n == 14:
        while True:
            pass
    if n == 15:
        return kept[0](1)
    return [n, list(asked)]
def keep(function):
    kept.append(function)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(limits=Limits(call_cpu=1.0, patience=60.0)) as running:
        yield running


@pytest.fixture
def session(sandbox: Sandbox) -> Iterator[Session]:
    opened = Session(sandbox, {}, 0)
    opened.execute("a", CELL)
    yield opened
    opened.close()


def planned(session: Session, *numbers: int) -> Any:
    f = session.lookup(["f"])["f"]
    f.foresee(steps("a", *numbers))
    f.begin("a")
    return f


@pytest.mark.isolation
def test_replies_come_in_order_and_what_is_not_asked_is_run_and_dropped(session: Session) -> None:
    f = planned(session, 1, 2, 3, 4, 5, 6)
    assert [f(n)[0] for n in (1, 2, 3)] == [1, 2, 3]
    assert session._prefetch.is_ahead
    value, asked = f(9)
    assert value == 9 and asked[:3] == [1, 2, 3] and asked[-1] == 9 and not session._prefetch.is_ahead
    assert f(4)[0] == 4 and session.lookup(["asked"])["asked"][-2:] == [9, 4]


@pytest.mark.isolation
@pytest.mark.timing
@pytest.mark.parametrize("end", [13, 14])
def test_what_ends_the_process_unasked_costs_no_answer(session: Session, end: int) -> None:
    f = planned(session, 1, end, 3, 4)
    assert f(1)[0] == 1 and f(2)[0] == 2
    assert session.generation == 1 and session.crashed == {"f"}
    f.foresee(steps("a", 3, 4))
    f.begin("a")
    assert f(3)[0] == 3 and not session._prefetch.is_ahead, "nothing is sent ahead any more"


@pytest.mark.isolation
@pytest.mark.timing
@pytest.mark.parametrize("end", [13, 14])
def test_what_ends_the_process_is_said_of_the_question_that_did_it(session: Session, end: int) -> None:
    f = planned(session, 1, 2, end, 3, 4)
    outcomes = {}
    for n in (1, 2, end, 3, 4):
        with contextlib.suppress(StudentError):
            outcomes[n] = f(n)[0]
    assert outcomes == {1: 1, 2: 2, 3: 3, 4: 4}
    assert session._crashes["f", False] == 1


@pytest.mark.isolation
def test_one_who_calls_a_function_that_was_lent_before_disturbs_nothing(session: Session) -> None:
    session.lookup(["keep"])["keep"](lambda n: n)
    f = planned(session, 1, 15, 2, 3)
    assert f(1)[0] == 1
    with pytest.raises(StudentError, match="index"):
        f(15)
    assert f(2)[0] == 2 and f(3)[0] == 3 and session.generation == 0
