"""Questions that are sent together: a round trip costs more than most answers do.

A script says what is asked, whatever is answered (`script.question`). The session sends as many of these questions as find
room, of one block until one was answered well, then of all that follow. The student's process answers one after the
other, in the same order as ever, and each reply is read when its step comes. What is sent ahead holds nothing of an
answer that is expected: the student's process can read it.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from autograder.grading.sandbox.worker.wire import Encoder, as_json
from autograder.script.question import Plan, Question, asks_the_same

ROOM = 2**16  # bytes sent ahead

Frame = tuple[str, bytes]


@dataclass(eq=False)
class Planned:
    """A question of a step, and the number under which it was sent, if it was."""

    block: int
    step: Any
    number: int  # in its step
    question: Question
    serial: int = 0


class Ahead:
    """What one session has sent ahead, and what it may send."""

    def __init__(self) -> None:
        self.subject: Any = None
        self._step: Any = None
        self._goes_well, self._is_sure = False, True
        self._planned: deque[Planned] = deque()
        self._sent: deque[Planned] = deque()
        self._places: dict[Any, int] = {}  # of the steps in the script
        self._serials: dict[tuple[Any, int], int] = {}  # under which the questions of this block were sent

    def plan(self, subject: Any, script: Plan, is_sure: bool = True) -> list[int]:
        """A script begins. Returns the numbers of what was sent and is not asked for any more."""
        left = [planned.serial for planned in self._sent]
        self._sent.clear()
        self._serials.clear()
        self.subject, self._step, self._is_sure = subject, None, is_sure
        self._planned = deque(
            Planned(block, step, number, question)
            for block, steps in enumerate(script)
            for step, questions in steps
            for number, question in enumerate(questions)
        )
        self._places = {planned.step: place for place, planned in enumerate(self._planned)}
        return left

    def go_to(self, step: Any, goes_well: bool) -> list[int]:
        """This step is next. Returns the numbers of what was sent for others before it and is not asked for any more."""
        self._goes_well, left = goes_well, []
        place = self._places.get(step)
        self._step = None if place is None else step
        if place is None:  # nothing of it is planned
            return []
        while self._sent and self._places[self._sent[0].step] < place:
            left.append(self._sent.popleft().serial)
        while not self._sent and self._planned and self._places[self._planned[0].step] < place:
            self._planned.popleft()
        return left

    def next(self, target: Any, question: Question) -> Planned | None:
        """The question that was planned, if it is this one; none of which the arguments are known only now."""
        queue = self._sent or self._planned
        if not queue or self._step is None or queue[0].step is not self._step:
            return None
        planned = queue[0]
        expected = planned.question
        if expected.made_by is None and expected.is_plain and target is not self.subject:
            return None
        if expected.method != question.method or (expected.make is None) != (question.make is None):
            return None
        if not self._is_sure and not asks_the_same(question, expected):
            return None
        queue.popleft()
        return planned if planned.question.is_plain else None

    def flight(self, first: Planned, serial: int, target: int, room: int) -> list[Frame]:
        """The frames of this question and of those that can be sent with it, numbered from ``serial``. They must find ``room``
        in the socket, in bytes: the student's process reads them when it has given its answer, and that this side reads when
        all is sent."""
        frames = [self._frame(first, serial, target)]
        room, last = min(room, ROOM), first
        while self._planned and not last.question.keeps_graph and self._planned[0].question.is_plain:
            if self._planned[0].block != first.block and not self._goes_well:
                break
            text, payload = _encoded(self._planned[0].question)
            room -= len(text) + len(payload)
            if room < 0:
                break
            last = self._planned.popleft()
            self._sent.append(last)
            frames.append(self._frame(last, serial + len(frames), target))
        return frames

    @property
    def is_waiting(self) -> bool:
        """Whether replies are to come to what was not asked for yet."""
        return bool(self._sent)

    def take_back(self) -> list[int]:
        """Something else is asked in between: what was sent is planned anew. Returns its numbers."""
        left = [planned.serial for planned in self._sent]
        for planned in self._sent:
            planned.serial = 0
        self._planned.extendleft(reversed(self._sent))
        self._sent.clear()
        return left

    def lose(self) -> None:
        """The fork has ended, and with it what it was asked and has made."""
        self.take_back()
        self._serials.clear()
        while self._planned and self._planned[0].step is self._step:
            self._planned.popleft()

    def _frame(self, planned: Planned, serial: int, target: int) -> Frame:
        planned.serial = self._serials[planned.step, planned.number] = serial
        text, payload = _encoded(planned.question)
        made_by = planned.question.made_by
        on = f'"target": {target}' if made_by is None else f'"made": {self._serials[planned.step, made_by]}'
        return f'{{"serial": {serial}, {on}, {text[1:]}', payload


def request(encoder: Encoder, question: Question, watches: bool = False) -> dict[str, Any]:
    """A question as it crosses the wire, but for the numbers that differ between submissions."""
    found: dict[str, Any] = {
        "op": "call",
        "args": encoder.encode(question.args),
        "kwargs": encoder.encode(question.kwargs),
    }
    if question.make is not None:
        found["make"] = encoder.encode(question.make)
    options = {"method": question.method, "watched": watches, "again": question.again, "slope": question.slope}
    return found | {name: option for name, option in options.items() if option}


def _encoded(question: Question) -> Frame:
    """Encoded once for a class."""
    if question.wire is None:
        encoder = Encoder()
        text = as_json(request(encoder, question))
        question.wire = text, bytes(encoder.payload)
    frame: Frame = question.wire
    return frame
