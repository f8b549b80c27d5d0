"""The likely cause of what went wrong: known mistakes that give what the student gave, else the checks' hints."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from autograder.checks.compare import Tolerance, difference, same_form
from autograder.checks.errors import StudentError
from autograder.checks.probes import Probe
from autograder.checks.result_cache import ResultCache
from autograder.misconceptions.bank import Mistake

Place = tuple[Any, ...]


@dataclass(frozen=True)
class Hint:
    """What to say of a failure that nothing better explains.

    Where it says nothing else, it speaks of wrong values alone: not of an error, nor of a result of another kind, shape
    or dtype; ``form`` takes these in. ``fits(got, expected)`` is what must be seen besides, else ``otherwise`` is said.
    """

    says: str
    fits: Callable[[Any, Any], bool] | None = None
    otherwise: str = ""
    form: bool = False

    def on(self, record: "Record", expected: Any) -> str:
        """What there is to say of this failure; often nothing."""
        if record.error is not None:
            return self.says if self.form and self.fits is None and "in-place" not in record.error.message else ""
        if not self.form and not same_form(record.got, expected, record.tolerance.exact_dtype):
            return ""
        return self.says if self.fits is None or self.fits(record.got, expected) else self.otherwise


@dataclass(eq=False)
class Record:
    """One probe run on the student's object. ``place`` is where in the test this happens: the same probe for every
    student of a class. ``hint`` is what to say if nothing better explains a failure, a plain text of wrong values."""

    probe: Probe
    place: Place
    tolerance: Tolerance
    hint: Hint | str = ""
    met: bool = False
    got: Any = None
    error: StudentError | None = None


@dataclass(frozen=True)
class _Candidate:
    """A mistake that fits all that passed: which failures it explains, and at which it gives another wrong value."""

    says: tuple[str, ...]
    explains: frozenset[int]
    contradicts: frozenset[int]


class Diagnosis:
    """At most two sentences on the likely cause. Silence beats a wrong name:

    - A known mistake, or two at once, is named when it gives what the student gave, value or error, on every probe that
      passed and on the first that failed. Where it gives another wrong value than the student's on some failure, it is
      not what was done: it may be named only beside another that explains that failure.
    - Where several mistakes say as much and only an error or a single word (a bool, a whole number) speaks for them, none
      is named. Nor are two at once where all that the student gave is one number again and again.
    - A check's hint is given only for the first failure, when everything asked before has held: its premise was seen then.
    - Where an argument was seen to be changed in place, later values may be wrong for that alone: no hint is given, and no
      mistake named that only an error or a single word speaks for.
    - Last comes a mistake that the student makes in one call only. It must explain every failure, by many values: a single
      number, such as the largest of some, is the same by chance.
    """

    def __init__(
        self, mistaken: Callable[[Mistake, Record], Any], expected: Callable[[Record], Any], known: ResultCache
    ) -> None:
        """``known`` keeps where a known mistake is right: the same for all students whose answers are judged by what is
        expected here."""
        self._mistaken, self._expected, self._known = mistaken, expected, known

    def sentences(
        self, records: Sequence[Record], mistakes: Callable[[], Sequence[Mistake]], in_place: bool = False
    ) -> list[str]:
        """What to tell the student who left these records; ``in_place`` says that an argument was changed."""
        failing = [
            record for record in records if not record.met and not (record.error and record.error.means_unanswered)
        ]
        passing = [record for record in records if record.met]
        if not failing:
            return []
        found: list[_Candidate] = []
        in_one_call: list[str] = []
        passing.sort(key=_size)  # the small ones tell most mistakes apart, and cost next to nothing
        smallest, first = passing[:2], failing[0]
        # What always raises is not explained by where it did.
        is_hinted = bool(first.hint) and (first.error is None or bool(passing))
        # A mistake that other calls contradict is named only where nothing else is to be said.
        may_be_in_one_call = not is_hinted and not in_place and all(map(_many_valued, failing))
        of_other_failures: list[Mistake] = []
        for mistake in mistakes():
            alone = len(mistake.says) == 1
            # Pairs are many: the first failure, too, before the rest.
            needed = ([] if may_be_in_one_call else smallest) if alone else sorted([*smallest, first], key=_size)
            if (not alone and _is_constant(first)) or not all(self._reproduces(mistake, record) for record in needed):
                continue
            if not self._explains(mistake, first):
                of_other_failures += [mistake] if alone else []
                continue
            candidate = self._candidate(mistake, failing)
            if candidate is None:
                continue
            if all(self._reproduces(mistake, record) for record in passing):
                found.append(candidate)
                if len(candidate.explains) == len(failing) and any(map(_telling, failing)):
                    break  # single mistakes come before pairs: none will do better
            elif alone and len(candidate.explains) == len(failing) and may_be_in_one_call:
                in_one_call.append(mistake.says[0])
        else:
            if found:  # of the first failure; others count only beside one of these
                found += self._besides(of_other_failures, failing, passing)
        if in_place:
            found = [one for one in found if any(_telling(failing[index]) for index in one.explains)]
            return _best(found, failing)
        if sentences := _best(found, failing):
            return sentences
        if is_hinted:
            hint = first.hint if isinstance(first.hint, Hint) else Hint(first.hint)
            return list(filter(None, [hint.on(first, self._expected(first))]))
        return in_one_call[:1]

    def _besides(
        self, mistakes: Sequence[Mistake], failing: Sequence[Record], passing: Sequence[Record]
    ) -> list[_Candidate]:
        candidates = [(mistake, self._candidate(mistake, failing)) for mistake in mistakes]
        return [
            candidate
            for mistake, candidate in candidates
            if candidate is not None and all(self._reproduces(mistake, record) for record in passing)
        ]

    def _explains(self, mistake: Mistake, record: Record) -> bool:
        return not self._is_right(mistake, record) and self._reproduces(mistake, record)

    def _candidate(self, mistake: Mistake, failing: Sequence[Record]) -> _Candidate | None:
        explains, contradicts = set(), set()
        for index, record in enumerate(failing):
            if self._is_right(mistake, record):
                continue  # there is another cause besides
            if self._reproduces(mistake, record):
                explains.add(index)
            else:
                contradicts.add(index)
        if not explains or (contradicts and not any(_telling(failing[index]) for index in explains)):
            return None
        return _Candidate(mistake.says, frozenset(explains), frozenset(contradicts))

    def _is_right(self, mistake: Mistake, record: Record) -> bool:
        def compare() -> bool:
            try:
                return not difference(self._mistaken(mistake, record), self._expected(record), record.tolerance)
            except Exception:
                return False

        agrees: bool = self._known.recall(("is right", record.place, mistake), compare)
        return agrees

    def _reproduces(self, mistake: Mistake, record: Record) -> bool:
        """Does the mistake give what the student gave, value or error? Values as near as a right one must be to the
        reference: no nearer are two implementations of one mistake."""
        try:
            value = self._mistaken(mistake, record)
        except Exception as error:
            ours = error if isinstance(error, StudentError) else StudentError.from_exception(error)
            return record.error is not None and _pattern(ours) == _pattern(record.error)
        return (
            record.error is None
            and not difference(record.got, value, record.tolerance)
            and self._typed_alike(record, value)
        )

    def _typed_alike(self, record: Record, value: Any) -> bool:
        """Not so where the dtype is the mistake's only and the student's is right."""
        got, expected = record.got, self._expected(record)
        tensors = all(isinstance(each, torch.Tensor) for each in (got, expected, value))
        return not tensors or got.dtype != expected.dtype or value.dtype == got.dtype


def _best(found: list[_Candidate], failing: Sequence[Record]) -> list[str]:
    """The sentences that explain most, the first failure among it; at most two, and none where it is a guess."""
    sentences: list[str] = []
    chosen: list[_Candidate] = []
    unexplained = set(range(len(failing)))
    while useful := [
        candidate
        for candidate in found
        if candidate.explains & unexplained
        and len({*candidate.says, *sentences}) <= 2
        and (sentences or 0 in candidate.explains)
    ]:
        best = max(useful, key=lambda c: (len(c.explains & unexplained), -len(c.contradicts), -len(c.says)))
        new = best.explains & unexplained
        rivals = {
            other.says
            for other in useful
            if other.explains & unexplained == new
            and (len(other.contradicts), len(other.says)) == (len(best.contradicts), len(best.says))
        }
        # a yes or no, or an error, is too little to choose by, and too little evidence for a second cause
        if not any(_telling(failing[index]) for index in new) and (sentences or len(rivals) > 1 or len(best.says) > 1):
            break
        chosen.append(best)
        sentences += [sentence for sentence in best.says if sentence not in sentences]
        unexplained -= best.explains
    while doubtful := [
        one
        for one in chosen
        if one.contradicts - {index for other in chosen if other is not one for index in other.explains}
    ]:
        chosen.remove(doubtful[0])
    explained = any(0 in candidate.explains for candidate in chosen)
    return list(dict.fromkeys(sentence for candidate in chosen for sentence in candidate.says)) if explained else []


def _telling(record: Record) -> bool:
    """Whether what the student gave says more than yes or no: it is hardly the same by chance."""
    got = record.got
    if record.error is not None or isinstance(got, (bool, int, str)):
        return False
    if isinstance(got, float):
        return got != round(got, 2) if math.isfinite(got) else False
    if isinstance(got, torch.Tensor):
        single = got.numel() == 1 and got.is_floating_point()
        return got.numel() > 1 or (single and _telling(replace(record, got=got.item())))
    return True


def _is_constant(record: Record) -> bool:
    got = record.got
    return isinstance(got, torch.Tensor) and got.numel() > 1 and bool((got == got.flatten()[0]).all())


def _many_valued(record: Record) -> bool:
    return _telling(record) and not isinstance(record.got, float)


def _size(record: Record) -> float:
    """Elements of what the student gave. What says little, and an error, for which nobody knows, come last."""
    return record.got.numel() if isinstance(record.got, torch.Tensor) and _telling(record) else math.inf


def _pattern(error: StudentError) -> tuple[str, str]:
    """An error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
    return error.type_names[0], re.sub(r"-?\d+", "#", error.message)
