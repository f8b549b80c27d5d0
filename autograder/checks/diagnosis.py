"""The likely cause of what went wrong: known mistakes that give what the student gave, else the checks' hints."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

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
    """At most two sentences on the likely cause. Silence beats a wrong name:

    - A known mistake, or two at once, is named when it gives what the student gave, value or error, everywhere: on the
      probes that passed, and on each that failed, unless the mistake gives the right value there (then there is another
      cause besides).
    - Where several mistakes say as much and only an error or a single word (a bool, a whole number) speaks for them, none
      is named.
    - A check's hint is given only for the first failure, when everything asked before has held: its premise was seen then.
    - Last comes a mistake that the student makes in one call only. It must explain every failure, by values that say
      something.
    """

    def __init__(self, mistaken: Callable[[Mistake, Record], Any], expected: Callable[[Record], Any]) -> None:
        self._mistaken, self._expected = mistaken, expected

    def sentences(self, records: Sequence[Record], mistakes: Callable[[], Sequence[Mistake]]) -> list[str]:
        """What to tell the student who left these records."""
        failing = [record for record in records
                   if not record.met and not (record.error and record.error.means_unanswered)]
        passing = [record for record in records if record.met]
        if not failing:
            return []
        found: list[tuple[tuple[str, ...], set[int]]] = []
        in_one_call: list[str] = []
        for mistake in mistakes():
            if len(mistake.says) > 1 and not self._reproduces(mistake, failing[0]):
                continue  # pairs are many; this one costs a single probe
            explained = self._explained(mistake, failing)
            if not explained:
                continue
            if all(self._reproduces(mistake, record) for record in passing):
                found.append((mistake.says, explained))
                if len(explained) == len(failing) and any(_telling(record) for record in failing):
                    break  # single mistakes come before pairs: none will do better
            elif len(mistake.says) == 1 and len(explained) == len(failing) and all(map(_telling, failing)):
                in_one_call.append(mistake.says[0])
        sentences, unexplained = self._best(found, failing)
        first = failing[0]
        if 0 in unexplained and first.hint and (first.error is None or passing) and not sentences:
            return [first.hint]  # what always raises is not explained by where it did
        return sentences or in_one_call[:1]

    @staticmethod
    def _best(found: list[tuple[tuple[str, ...], set[int]]], failing: Sequence[Record]) -> tuple[list[str], set[int]]:
        """The sentences that explain most, at most two, and the failures that are left."""
        sentences: list[str] = []
        unexplained = set(range(len(failing)))
        while useful := [(says, explained) for says, explained in found
                         if explained & unexplained and len({*says, *sentences}) <= 2]:
            says, explained = max(useful, key=lambda c: (len(c[1] & unexplained), -len(c[0])))
            new = explained & unexplained
            rivals = {other for other, also in useful if also & unexplained == new and len(other) == len(says)}
            if len(rivals) > 1 and not any(_telling(failing[index]) for index in new):
                break
            sentences += [sentence for sentence in says if sentence not in sentences]
            unexplained -= explained
        return sentences, unexplained

    def _explained(self, mistake: Mistake, failing: Sequence[Record]) -> set[int]:
        """Which failures the mistake makes too; none if on some other it gives a wrong value that is not the student's."""
        explained = set()
        for index, record in enumerate(failing):
            if self._is_right(mistake, record):
                continue
            if not self._reproduces(mistake, record):
                return set()
            explained.add(index)
        return explained

    def _is_right(self, mistake: Mistake, record: Record) -> bool:
        try:
            return not difference(self._mistaken(mistake, record), self._expected(record), record.tolerance)
        except Exception:
            return False

    def _reproduces(self, mistake: Mistake, record: Record) -> bool:
        """Does the mistake give what the student gave, value or error? Values as near as a right one must be to the
        reference: no nearer are two implementations of one mistake."""
        try:
            value = self._mistaken(mistake, record)
        except Exception as error:
            ours = error if isinstance(error, StudentError) else StudentError.from_exception(error)
            return record.error is not None and _pattern(ours) == _pattern(record.error)
        return record.error is None and not difference(record.got, value, record.tolerance)


def _telling(record: Record) -> bool:
    """Whether what the student gave says more than yes or no: it is hardly the same by chance."""
    got = record.got
    if record.error is not None or isinstance(got, (bool, int, str)):
        return False
    if isinstance(got, float):
        return got != round(got, 2) if math.isfinite(got) else False
    if isinstance(got, torch.Tensor):
        return got.numel() > 1 or (got.is_floating_point() and _telling(replace(record, got=got.item())))
    return True


def _pattern(error: StudentError) -> tuple[str, str]:
    """An error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
    return error.type_names[0], re.sub(r"-?\d+", "#", error.message)
