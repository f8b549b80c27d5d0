"""Finds the likely cause of a failure: a known mistake that reproduces the student's answers, else a check's hint."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from autograder.errors import StudentError
from autograder.grading.marking.replay import Record, asked
from autograder.grading.marking.result_cache import ResultCache
from autograder.script.answer import Given, Raised
from autograder.script.compare import difference
from autograder.script.question import Local
from autograder.script.script import Entry, Hint, Mistake, Step

AFTER_OTHERS = (
    "A call that is right by itself is wrong after other calls. (What you keep from one call must not change the next.)"
)


@dataclass(frozen=True)
class _Candidate:
    """A mistake, the failures that it explains, and those on which it gives another wrong answer."""

    says: tuple[str, ...]
    explains: frozenset[int]
    contradicts: frozenset[int]


class Diagnosis:
    """Finds at most two sentences on the likely cause. Saying nothing is better than naming a wrong cause:

    - A known mistake, or two at once, is named if it gives the student's value or error on every probe that passed and
      on the first that failed. If it gives another wrong answer on a later failure, it is named only together with a
      mistake that explains that failure.
    - Two at once come into question only if neither is ruled out by itself by the quickest probes that passed.
    - If several mistakes explain equally much and the only evidence is an error or a single word (a bool, a whole
      number), none is named. Two at once are not named if the first failure is a tensor of equal entries.
    - A check's hint is given only for the first failure: every value asked for before it was right, as the hint assumes.
    - If an argument was changed in place, that alone may explain later wrong values. Then no hint is given, and no
      mistake is named whose only evidence is an error or a single word.
    - If the first failure is right when it is asked first, the cause is what other calls left behind, and no other.
    - Last comes a mistake that the student makes in one call only. It must explain every failure by many values: a
      single number, such as a maximum, may agree by chance.
    """

    def __init__(self, known: ResultCache) -> None:
        """``known`` caches what known mistakes give and where they are right, which is the same for a whole class."""
        self._known = known

    def sentences(
        self,
        records: Sequence[Record],
        mistakes: Callable[[], Sequence[Mistake]],
        in_place: bool = False,
        is_right_alone: bool | None = None,
    ) -> list[str]:
        """Return what to tell the student about these records. ``in_place`` means that a call changed an argument, and
        ``is_right_alone`` that the first failure is right when it is asked first, if that is known."""
        failing = _failing(records)
        passing = [record for record in records if record.met]
        if not failing:
            return []
        first = failing[0]
        hint = first.step.hint if isinstance(first.step.hint, Hint) else Hint(first.step.hint)
        if is_right_alone:
            says = hint.on(first.answer, first.step.due, first.step.tolerance) if hint.of_state else ""
            return [says or AFTER_OTHERS]
        found: list[_Candidate] = []
        in_one_call: list[str] = []
        passing.sort(key=_size)  # small ones rule out most mistakes and cost next to nothing
        # The two smallest, and all whose arguments are much smaller than the first failure's.
        much_shorter = _asked_about(first.step) / 8
        cheap = [
            record for place, record in enumerate(passing) if place < 2 or _asked_about(record.step) < much_shorter
        ]
        cheap_and_first = sorted([*cheap, first], key=_size)
        # If the answer always raises, the place of the first error explains nothing.
        is_hinted = bool(hint.says) and (isinstance(first.answer, Given) or bool(passing))
        is_hinted &= not (hint.of_state and is_right_alone is False)
        # A mistake that other calls contradict is named only if there is nothing else to say.
        may_be_in_one_call = not is_hinted and not in_place and all(map(_many_valued, failing))
        of_other_failures: list[Mistake] = []
        by_themselves: defaultdict[str, list[Mistake]] = defaultdict(list)

        @cache
        def is_ruled_out(sentence: str) -> bool:
            return not any(
                all(self._reproduces(mistake, record) for record in cheap) for mistake in by_themselves[sentence]
            )

        for mistake in mistakes():
            alone = len(mistake.says) == 1
            if alone:
                by_themselves[mistake.says[0]].append(mistake)
            elif any(map(is_ruled_out, mistake.says)):
                continue
            # There are many pairs: the first failure rules out most of them early.
            needed = ([] if may_be_in_one_call else cheap) if alone else cheap_and_first
            if (not alone and _is_constant(first)) or not all(self._reproduces(mistake, record) for record in needed):
                continue
            if self._is_right(mistake, first) or not self._reproduces(mistake, first):
                of_other_failures += [mistake] if alone else []
                continue
            candidate = self._candidate(mistake, failing)
            if candidate is None:
                continue
            if all(self._reproduces(mistake, record) for record in passing):
                found.append(candidate)
                if len(candidate.explains) == len(failing) and any(map(_telling, failing)):
                    break  # single mistakes come before pairs, and no pair can do better
            elif alone and len(candidate.explains) == len(failing) and may_be_in_one_call:
                in_one_call.append(mistake.says[0])
        else:
            if found:  # one explains the first failure: only then do mistakes in others count
                found += [
                    candidate
                    for one in of_other_failures
                    if (candidate := self._candidate(one, failing)) is not None
                    and all(self._reproduces(one, each) for each in passing)
                ]
        if in_place:
            found = [one for one in found if any(_telling(failing[index]) for index in one.explains)]
            return _best(found, failing)
        if sentences := _best(found, failing):
            return sentences
        if is_hinted:
            return list(filter(None, [hint.on(first.answer, first.step.due, first.step.tolerance)]))
        return in_one_call[:1]

    def _candidate(self, mistake: Mistake, failing: Sequence[Record]) -> _Candidate | None:
        explains, contradicts = set(), set()
        for index, record in enumerate(failing):
            if self._is_right(mistake, record):
                continue  # this failure has another cause
            if self._reproduces(mistake, record):
                explains.add(index)
            else:
                contradicts.add(index)
        if not explains or (contradicts and not any(_telling(failing[index]) for index in explains)):
            return None
        return _Candidate(mistake.says, frozenset(explains), frozenset(contradicts))

    def _mistaken(self, mistake: Mistake, record: Record) -> Any:
        """Return the mistake's answer to the question, or raise its error."""
        step = record.step

        def ask() -> Any:
            answer, _ = asked(step, Local(mistake.subject))
            if isinstance(answer, Raised):
                raise answer.error
            return answer.value

        return self._known.recall((step, mistake), ask)

    def _is_right(self, mistake: Mistake, record: Record) -> bool:
        step = record.step

        def compare() -> bool:
            try:
                return not difference(self._mistaken(mistake, record), step.due, step.tolerance)
            except Exception:
                return False

        agrees: bool = self._known.recall(("is right", step, mistake), compare)
        return agrees

    def _reproduces(self, mistake: Mistake, record: Record) -> bool:
        """Whether the mistake gives the student's value or error. Values may differ within the step's tolerance: two
        implementations of one mistake agree no better than two right ones. A hand computation may be rounded further."""
        answer, step = record.answer, record.step
        try:
            value = self._mistaken(mistake, record)
        except StudentError as error:
            return isinstance(answer, Raised) and _pattern(error) == _pattern(answer.error)
        if isinstance(step, Entry) and (number := step.number(answer)) is not None and step.is_rounded(number, value):
            return math.isclose(number, value, rel_tol=0.01, abs_tol=5e-4)  # else it may be another number, rounded
        return (
            isinstance(answer, Given)
            and not difference(answer.value, value, step.tolerance)
            and _is_typed_alike(answer.value, value, step)
        )


def first_failure(records: Sequence[Record]) -> Record | None:
    """Return the first wrong answer; one that stopped at an answer not written yet is none."""
    return next(iter(_failing(records)), None)


def _failing(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if not record.met and not record.means_unanswered]


def _is_typed_alike(got: Any, value: Any, step: Step) -> bool:
    """False if the student's dtype is right and the mistake's is not."""
    expected = step.due
    tensors = all(isinstance(each, torch.Tensor) for each in (got, expected, value))
    return not tensors or got.dtype != expected.dtype or value.dtype == got.dtype


def _best(found: list[_Candidate], failing: Sequence[Record]) -> list[str]:
    """Return up to two sentences that explain most failures, the first among them; none if that would be a guess."""
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
        # a single word or an error cannot decide between rivals, and is too little evidence for a second cause
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
    return isinstance(record.answer, Given) and _is_telling(record.answer.value)


def _is_telling(got: Any) -> bool:
    """Whether a value says more than yes or no, so that two answers hardly agree on it by chance."""
    if isinstance(got, (bool, int, str)):
        return False
    if isinstance(got, float):
        return got != round(got, 2) if math.isfinite(got) else False
    if isinstance(got, torch.Tensor):
        single = got.numel() == 1 and got.is_floating_point()
        return got.numel() > 1 or (single and _is_telling(got.item()))
    return True


def _is_constant(record: Record) -> bool:
    got = _value(record)
    return isinstance(got, torch.Tensor) and got.numel() > 1 and bool((got == got.flatten()[0]).all())


def _many_valued(record: Record) -> bool:
    return _telling(record) and not isinstance(_value(record), float)


def _size(record: Record) -> float:
    """Return the number of elements asked about; infinity, to come last, unless the answer is a telling tensor."""
    return _asked_about(record.step) if isinstance(_value(record), torch.Tensor) and _telling(record) else math.inf


def _asked_about(step: Step) -> int:
    """Return the number of elements of the arguments, which decides how long most steps take."""
    leaves = tree_leaves([(question.args, question.kwargs) for question in step.questions])
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def _value(record: Record) -> Any:
    return record.answer.value if isinstance(record.answer, Given) else None


def _pattern(error: StudentError) -> tuple[str, str]:
    """An error without its numbers (sizes and dimensions differ between ways to write one mistake)."""
    return error.type_names[0], re.sub(r"-?\d+", "#", error.message)
