"""The verdict of a hidden test: points and a message per criterion, and the misconceptions it recognised."""

from dataclasses import dataclass, field
from typing import Any

UNANSWERED = "not answered yet (the cell still raises NotImplementedError)"
# For a hand computation, whatever number of digits is left.
ROUNDED_TOO_FAR = "Your numbers are right but rounded too far: give as many digits as are asked for, at least four."


@dataclass
class Criterion:
    """One line of a verdict. ``message`` is empty when the criterion is met."""

    name: str
    points: float
    earned: float = 0.0
    message: str = ""


@dataclass
class Verdict:
    """The result of one exercise's hidden tests; plain data, safe to write as JSON and to show to the student."""

    exercise: str
    number: str
    max_score: float
    criteria: list[Criterion] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    note: str = ""
    names_first: bool = True  # whether the causes say why the first criterion was missed, and not only a later one
    stopped: int = 0  # number of questions that stopped at an answer not written yet

    @property
    def score(self) -> float:
        return sum(criterion.earned for criterion in self.criteria)

    def to_json(self) -> dict[str, Any]:
        data = vars(self) | {"criteria": [dict(vars(one)) for one in self.criteria], "score": self.score}
        del data["stopped"]  # known only while grading
        return data

    def render(self) -> str:
        """The text a student reads in the feedback."""
        lines = [f"Exercise {self.number}, {self.exercise}: {self.score:g} of {self.max_score:g} points"]
        lines += [f"  {self.note}"] if self.note else []
        lines += [f"  {'Likely cause' if self.names_first else 'Also'}: {sentence}" for sentence in self.named]
        for criterion in self.criteria:
            mark = "ok  " if criterion.earned == criterion.points else "MISS"
            lines.append(f"  {mark} {criterion.earned:g}/{criterion.points:g}  {criterion.name}")
            if criterion.message not in self.named:
                lines += [f"         {line}" for line in criterion.message.splitlines()]
        return "\n".join(lines)
