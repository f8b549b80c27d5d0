"""Questions that are sent ahead: which, how many, and what happens to those that nobody asks."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from autograder.errors import StudentError
from autograder.grading.sandbox import ahead as sending
from autograder.grading.sandbox.ahead import Ahead
from autograder.grading.sandbox.limits import Limits
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.sandbox.worker.wire import Connection
from autograder.script.question import Question


def plain(*args: Any) -> Question:
    return Question(None, None, args, {})


def live(*args: Any) -> Question:
    return Question(None, None, args, {}, is_plain=False)


def a_plan(blocks: list) -> Ahead:
    ahead = Ahead()
    ahead.plan("f", blocks)
    return ahead


def sent_with_the_next(ahead: Ahead, room: int = sending.ROOM) -> int:
    """Return how many questions travel with the next one that is asked."""
    first = ahead.next("f", plain())
    assert first is not None and not first.serial
    return len(ahead.flight(first, 1, 7, room)) - 1


def test_a_flight_ends_before_what_is_asked_by_itself_and_goes_on_after_it() -> None:
    steps = [("a", [plain(1)]), ("b", [plain(2)]), ("c", [live(print)]), ("d", [plain(3)]), ("e", [plain(4)])]
    ahead = a_plan([steps])
    ahead.go_to("a", goes_well=False)
    assert sent_with_the_next(ahead) == 1
    ahead.go_to("b", goes_well=False)
    assert ahead.next("f", plain()) is not None and not ahead._sent
    ahead.go_to("c", goes_well=False)
    assert ahead.next("f", plain()) is None
    ahead.go_to("d", goes_well=False)
    assert sent_with_the_next(ahead) == 1


def test_other_blocks_are_sent_once_one_was_answered_well() -> None:
    for goes_well in (False, True):
        ahead = a_plan([[("a", [plain(1)])], [("b", [plain(2)])], [("c", [plain(3)])]])
        ahead.go_to("a", goes_well)
        assert sent_with_the_next(ahead) == 2 * goes_well


def test_nothing_is_sent_after_what_a_gradient_may_be_asked_of() -> None:
    ahead = a_plan([[("a", [plain(torch.ones(2, requires_grad=True))]), ("b", [plain(2)])]])
    ahead.go_to("a", goes_well=False)
    assert sent_with_the_next(ahead) == 0


def test_another_call_than_was_expected_is_asked_by_itself() -> None:
    ahead = a_plan([[("a", [plain(1)]), ("b", [plain(2)])]])
    ahead.go_to("a", goes_well=False)
    assert ahead.next("f", Question(None, "state_dict", (), {})) is None
    assert ahead.next("f", Question(None, None, (), {}, make={})) is None
    ahead.go_to("not in the script", goes_well=False)
    assert ahead.next("f", plain()) is None
    ahead.go_to("b", goes_well=False)
    assert sent_with_the_next(ahead) == 0


def test_a_step_that_is_left_out_gives_back_what_was_sent_for_it() -> None:
    ahead = a_plan([[(step, [plain(step), plain(step)]) for step in (1, 2, 3)]])
    ahead.go_to(1, goes_well=False)
    assert sent_with_the_next(ahead) == 5
    assert ahead.go_to(3, goes_well=False) == [2, 3, 4] and ahead._sent
    assert ahead.plan("f", []) == [5, 6] and not ahead._sent


def test_what_waits_in_the_socket_is_bounded() -> None:
    large = torch.zeros(sending.ROOM // 4 // 2)  # half of the room
    ahead = a_plan([[(n, [plain(n, large)]) for n in range(9)]])
    ahead.go_to(0, goes_well=False)
    assert sent_with_the_next(ahead) == 1
    ahead.go_to(2, goes_well=False)
    assert sent_with_the_next(ahead, room=1000) == 0


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
    with contextlib.closing(Session(sandbox, {}, 0)) as opened:
        opened.execute("a", CELL)
        yield opened


def planned(session: Session, *numbers: int) -> Any:
    f = session.lookup(["f"])["f"]
    f.begin([[(n, [plain(n)]) for n in numbers]])
    return f


def asked(f: Any, numbers: Sequence[int]) -> dict[int, Any]:
    outcomes = {}
    for n in numbers:
        f.at(n, False)
        with contextlib.suppress(StudentError):
            outcomes[n] = f(n)[0]
    return outcomes


@pytest.mark.isolation
def test_replies_come_in_order_and_what_is_not_asked_is_run_and_dropped(session: Session) -> None:
    f = planned(session, 1, 2, 3, 4, 5, 6)
    assert asked(f, (1, 2, 3)) == {1: 1, 2: 2, 3: 3}
    assert session._ahead._sent
    f.begin(())
    assert f(9) == [9, [1, 2, 3, 4, 5, 6, 9]]


@pytest.mark.isolation
def test_what_is_asked_in_between_costs_no_answer(session: Session) -> None:
    f = planned(session, 1, 2, 3)
    assert asked(f, (1,)) == {1: 1}
    f.at("another step", False)
    assert f(9)[0] == 9
    assert asked(f, (2, 3)) == {2: 2, 3: 3}


@pytest.mark.isolation
@pytest.mark.timing
@pytest.mark.parametrize("end", [13, 14])
def test_what_ends_the_process_unasked_costs_no_answer(session: Session, end: int) -> None:
    f = planned(session, 1, end, 3, 4)
    assert asked(f, (1, 3, 4)) == {1: 1, 3: 3, 4: 4}
    assert session.generation == 1 and session.crashes.functions == {"f"}


@pytest.mark.isolation
@pytest.mark.timing
@pytest.mark.parametrize("end", [13, 14])
def test_what_ends_the_process_is_said_of_the_question_that_did_it(session: Session, end: int) -> None:
    f = planned(session, 1, 2, end, 3, 4)
    assert asked(f, (1, 2, end, 3, 4)) == {1: 1, 2: 2, 3: 3, 4: 4}
    assert session.crashes.counts()["f", False] == 1


@pytest.mark.isolation
def test_one_who_calls_a_function_that_was_lent_before_disturbs_nothing(session: Session) -> None:
    session.lookup(["keep"])["keep"](lambda n: n)
    f = planned(session, 1, 15, 2, 3)
    assert asked(f, (1, 15, 2, 3)) == {1: 1, 2: 2, 3: 3}
    assert session.generation == 0
