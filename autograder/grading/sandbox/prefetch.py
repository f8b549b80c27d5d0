"""Questions that are sent ahead: a round trip costs more than most answers do.

A session is told what a right answer is going to be asked (`autograder.checks.plan` records it once for a class). With the
question that is asked now it sends some of those after it; the student's process answers one after the other, in the same
order as ever. Where such a question is then asked, byte for byte the same, its reply is read. Where another one is, the
replies to what was sent are read and dropped: only a wrong answer is ever asked more than it would be otherwise.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autograder.grading.sandbox.worker.wire import Encoder, as_json

FIRST, MOST = 16, 32  # questions in one go: twice as many when all of them were asked, no more of this plan when not
ROOM = 2**16  # bytes sent ahead


@dataclass(frozen=True)
class Question:
    """One call of the student's object as it crosses the wire, but for the numbers that differ between submissions."""

    text: str  # JSON
    payload: bytes
    is_plain: bool  # whether it speaks of nothing that one submission has and another has not

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        made: dict[str, Any] | None,
        method: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        watched: Sequence[Any] = (),
        again: str = "",
        slope: tuple[int, int | None] | None = None,
    ) -> "Question":
        """Of the arguments of ``Caller.call``, and of how the module is made that is called, if it is made for this call."""
        request: dict[str, Any] = {"op": "call"}
        if made is not None:
            request["made"] = encoder.encode(made)
        request |= {"args": encoder.encode(args), "kwargs": encoder.encode(kwargs)}
        options = {"method": method, "watched": bool(watched), "again": again, "slope": slope}
        request |= {name: option for name, option in options.items() if option}
        return cls(as_json(request), bytes(encoder.payload), not watched and not encoder.refers)

    def header(self, serial: int, target: int) -> str:
        """The whole request, to this object of a submission."""
        return f'{{"serial": {serial}, "target": {target}, {self.text[1:]}'

    @property
    def size(self) -> int:
        return len(self.text) + len(self.payload)


@dataclass(frozen=True)
class Step:
    """One question of a plan, and the part of the test that it belongs to; no question where it is asked by itself."""

    part: str
    question: Question | None


Plan = Sequence[Step]


class Prefetch:
    """What one session has sent ahead, and what it may send."""

    def __init__(self) -> None:
        self._subject: Any = None
        self._plan: Plan = ()
        self._planned: deque[Step] = deque()
        self._sent: deque[tuple[Step, int]] = deque()
        self._at_once = FIRST

    def plan(self, subject: Any, plan: Plan) -> None:
        """What ``subject`` is asked, if it answers rightly."""
        self._subject, self._plan = subject, plan
        self._planned.clear()
        self._at_once = FIRST if self._at_once else 0

    def goes_on_with(self, part: str) -> bool:
        """Whether the next question that is expected is one of this part of the plan."""
        ahead = self._sent[0][0] if self._sent else self._planned[0] if self._planned else None
        return ahead is not None and ahead.part == part

    def go_to(self, part: str) -> None:
        """The part begins that the last answers have not led to."""
        start = next((at for at, step in enumerate(self._plan) if step.part == part), len(self._plan))
        self._planned = deque(self._plan[start:])

    def serial_of(self, subject: Any, question: Question) -> int | None:
        """The number under which this question has been sent already."""
        if not self._sent or subject is not self._subject or self._sent[0][0].question != question:
            return None
        _, serial = self._sent.popleft()
        if not self._sent:
            self._at_once = min(2 * self._at_once, MOST)
        return serial

    def after(self, subject: Any, question: Question, room: int = ROOM) -> list[Step]:
        """The steps whose questions to send with this one. They must find ``room`` in the socket, in bytes: the student's
        process reads them when it has given its answer, and that this side reads when all is sent."""
        if not question.is_plain:
            return []
        while self._planned and self._planned[0].question is None:
            self._planned.popleft()
        if subject is not self._subject or not self._planned or self._planned[0].question != question:
            self._planned.clear()
            return []
        self._planned.popleft()
        found: list[Step] = []
        room = min(room, ROOM)
        while self._planned and len(found) + 1 < self._at_once:
            following = self._planned[0].question
            if following is None or following.size > room:
                break
            room -= following.size
            found.append(self._planned.popleft())
        return found

    @property
    def is_ahead(self) -> bool:
        """Whether anything was sent that was not asked yet."""
        return bool(self._sent)

    def sent(self, step: Step, serial: int) -> None:
        self._sent.append((step, serial))

    def unasked(self) -> list[int]:
        """The numbers of what was sent and is not asked after all; whoever asks for them waits for the replies."""
        serials = [serial for _, serial in self._sent]
        if serials:
            self._plan = ()
            self._sent.clear()
            self._planned.clear()
        return serials

    def stop(self) -> None:
        """Send nothing ahead any more."""
        self._at_once = 0
        self._sent.clear()
        self._planned.clear()
