"""Sends questions together, because a round trip costs more than most answers do.

A script lists its questions, which do not depend on the answers (`script.question`). The session sends as many of them
as fit: at first only those of the current block, and once an answer was right and none wrong, those of later blocks,
too. The student's process answers them one by one in the usual order, and each reply is read when its step comes. What
is sent ahead contains no expected answer, because the student's process can read it.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from autograder.grading.sandbox.worker.wire import Encoder, as_json
from autograder.script.question import Plan, Question

ROOM = 2**16  # bytes sent ahead

Frame = tuple[str, bytes]


@dataclass(eq=False)
class Planned:
    """A question of a step, and the serial under which it was sent; 0 if it was not sent yet."""

    block: int
    step: Any
    number: int  # in its step
    question: Question
    serial: int = 0


class Ahead:
    """The questions that one session has sent ahead, and those that it may send."""

    def __init__(self) -> None:
        self.subject: Any = None
        self._step: Any = None
        self._goes_well = False
        self._planned: deque[Planned] = deque()
        self._sent: deque[Planned] = deque()
        self._places: dict[Any, int] = {}  # the steps' positions in the script
        self._serials: dict[tuple[Any, int], int] = {}  # under which the questions of this script were sent

    def plan(self, subject: Any, script: Plan) -> list[int]:
        """Begin a script. Returns the serials of what was sent and will not be asked any more."""
        left = [planned.serial for planned in self._sent]
        self._sent.clear()
        self._serials.clear()
        self.subject, self._step = subject, None
        self._planned = deque(
            Planned(block, step, number, question)
            for block, steps in enumerate(script)
            for step, questions in steps
            for number, question in enumerate(questions)
        )
        self._places = {planned.step: place for place, planned in enumerate(self._planned)}
        return left

    def go_to(self, step: Any, goes_well: bool) -> list[int]:
        """Go to ``step``. Returns the serials of what was sent for earlier steps and will not be asked any more."""
        self._goes_well, left = goes_well, []
        place = self._places.get(step)
        self._step = None if place is None else step
        if place is None:  # no question of this step is planned
            return []
        while self._sent and self._places[self._sent[0].step] < place:
            left.append(self._sent.popleft().serial)
        while not self._sent and self._planned and self._places[self._planned[0].step] < place:
            self._planned.popleft()
        return left

    def next(self, target: Any, question: Question) -> Planned | None:
        """Return the planned question if it is this one and its arguments were known when it was planned."""
        queue = self._sent or self._planned
        if not queue or self._step is None or queue[0].step is not self._step:
            return None
        planned = queue[0]
        expected = planned.question
        if expected.made_by is None and expected.is_plain and target is not self.subject:
            return None
        if expected.method != question.method or (expected.make is None) != (question.make is None):
            return None
        queue.popleft()
        return planned if planned.question.is_plain else None

    def flight(self, first: Planned, serial: int, target: int, room: int) -> list[Frame]:
        """Return the frames of this question and of those that can be sent with it, numbered from ``serial``. The
        others must fit into ``room`` bytes of the socket: the student's process reads them only after its answer, and
        this side reads that answer only when all is sent."""
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

    def take_back(self) -> list[int]:
        """Plan again what was sent, because something else is asked in between. Returns the serials it had."""
        left = [planned.serial for planned in self._sent]
        for planned in self._sent:
            planned.serial = 0
        self._planned.extendleft(reversed(self._sent))
        self._sent.clear()
        return left

    def lose(self) -> None:
        """Forget what the ended fork has made, plan again what was sent to it, and drop the rest of this step."""
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
    """Return a question as it crosses the wire, without the numbers that differ between submissions."""
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
    """Return a question's encoding, made once for all submissions."""
    if question.wire is None:
        encoder = Encoder()
        text = as_json(request(encoder, question))
        question.wire = text, bytes(encoder.payload)
    frame: Frame = question.wire
    return frame
