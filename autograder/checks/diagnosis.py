"""The likely cause of what went wrong: known mistakes that give what the student gave, else the checks' hints."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autograder.checks.compare import Tolerance, difference
from autograder.checks.errors import StudentError
from autograder.checks.probes import Probe
from autograder.misconceptions.bank import Mistake

Place = tuple[Any, ...]


@dataclass(eq=False)
class Record:
    """One probe run on the student's object. ``place`` is where in the test this happens: the same probe for every
    student of a class. ``hint`` is what to say if nothing better explains a failure."""

    probe: Probe
    place: Place
    tolerance: Tolerance
    hint: str = ""
    met: bool = False
    got: Any = None
    error: StudentError | None = None


class Diagnosis:
    """At most two sentences on the likely cause: the best known mistakes, else the checks' hints.

    A mistake, or two at once, explains a student when it gives what the student gave on failing probes, wrong value or
    error, and contradicts no passing one. Last comes a mistake that the student makes in one call only: the same wrong
    value, though elsewhere the student is right.
    """

    def __init__(self, mistaken: Callable[[Mistake, Record], Any], expected: Callable[[Record], Any]) -> None:
        self._mistaken, self._expected = mistaken, expected

    def sentences(self, records: Sequence[Record], mistakes: Callable[[], Sequence[Mistake]]) -> list[str]:
        """What to tell the student who left these records."""
        failing = [record for record in records
                   if not record.met and not (record.error and record.error.means_unanswered)]
        passing = [record for record in records if record.met]
        consistent: list[tuple[tuple[str, ...], set[int]]] = []
        elsewhere_right: list[Mistake] = []
        for mistake in mistakes() if failing else []:
            if len(mistake.says) > 1 and not self._reproduces(mistake, failing[0]):
                continue  # pairs are many; this one costs a single probe
            if all(self._reproduces(mistake, record) for record in passing):
                consistent.append((mistake.says, self._explained(mistake, failing)))
                if len(consistent[-1][1]) == len(failing):  # single mistakes come before pairs: none will do better
                    break
            elif len(mistake.says) == 1:
                elsewhere_right.append(mistake)
        sentences: list[str] = []
        unexplained = set(range(len(failing)))
        while useful := [(says, explained) for says, explained in consistent
                         if explained & unexplained and len(says) + len(sentences) <= 2]:
            says, explained = max(useful, key=lambda c: (len(c[1] & unexplained), -len(c[0])))
            sentences += [sentence for sentence in says if sentence not in sentences]
            unexplained -= explained
        for index in sorted(unexplained):
            works = failing[index].error is None
            if (hint := failing[index].hint) and (works or passing):  # what always raises is not explained by where it did
                sentences.append(hint)
            elif works:
                sentences += [mistake.says[0] for mistake in elsewhere_right
                              if self._reproduces(mistake, failing[index])][:1]
        return list(dict.fromkeys(sentences))[:2]

    def _explained(self, mistake: Mistake, failing: Sequence[Record]) -> set[int]:
        """Which failures the mistake makes too. Where it gives the right value it explains nothing, however near the
        student's wrong one comes to that."""
        def fails(record: Record) -> bool:
            try:
                return bool(difference(self._mistaken(mistake, record), self._expected(record), record.tolerance))
            except Exception:
                return True

        return {index for index, record in enumerate(failing) if self._reproduces(mistake, record) and fails(record)}

    def _reproduces(self, mistake: Mistake, record: Record) -> bool:
        """Does the mistake give what the student gave, value or error?"""
        try:
            value = self._mistaken(mistake, record)
        except Exception as error:
            ours = error if isinstance(error, StudentError) else StudentError.from_exception(error)
            return record.error is not None and _pattern(ours) == _pattern(record.error)
        if record.error is not None:
            return False
        # Two implementations of one mistake round differently: a little more room than for a right answer.
        loose = replace(record.tolerance, rtol=max(record.tolerance.rtol, 1e-3), atol=max(record.tolerance.atol, 1e-4))
        return not difference(record.got, value, loose)


def _pattern(error: StudentError) -> tuple[str, str]:
    """An error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
    return error.type_names[0], re.sub(r"-?\d+", "#", error.message)
