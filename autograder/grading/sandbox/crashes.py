"""What is remembered of a submission's crashes and time-outs, whatever fork it runs in: who did it, and who may go on."""

from collections import Counter

from autograder.errors import StudentError
from autograder.grading.sandbox.limits import Grace, Limits

CELL = "cell "  # how the name of a culprit begins that is no function


class Crashes:
    """Crashes and time-outs by culprit: the function or cell that was run, and whether others were replaced then."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._graces: dict[str, Grace] = {}  # by function; all that is none has one together

    def note(self, culprit: str, replaced: bool) -> None:
        self._counts[culprit, replaced] += 1

    def count(self, culprit: str) -> int:
        return self._counts[culprit, False] + self._counts[culprit, True]

    @property
    def functions(self) -> set[str]:
        """Those that have hung or died."""
        return {culprit for culprit, _ in self._counts if culprit and not culprit.startswith(CELL)}

    @property
    def any(self) -> bool:
        return bool(self._counts)

    def retire_functions(self) -> None:
        """Their tests are over: they are not called any more, by nobody."""
        for name in self.functions:
            for replaced in (False, True):
                self._counts[name, replaced] = self._limits.restarts + 1

    def grace(self, culprit: str) -> Grace:
        """What a function, or all cells together, may still use once the budget is spent."""
        if not culprit or culprit.startswith(CELL):
            return self._graces.setdefault("", Grace.of_cells(self._limits))
        return self._graces.setdefault(culprit, Grace.of_function(self._limits))

    def is_known(self, culprit: str) -> bool:
        """Whether it has hung or died before, with others replaced or not."""
        return bool(culprit) and self.count(culprit) > 0

    def require_few(self, culprit: str, replaced: bool) -> None:
        """What ends every process that runs it is not run for ever."""
        count = self._counts[culprit, replaced]
        if culprit and (count > self._limits.restarts or (count and self.grace(culprit).spent())):
            raise StudentError(("ProcessEnded",), "not run: it crashed or timed out too often before")

    def require_few_of_cells(self) -> None:
        """And of what else is no function."""
        cells = sum(count for (culprit, _), count in self._counts.items() if not culprit or culprit.startswith(CELL))
        if cells > self._limits.all_restarts:
            raise StudentError(("ProcessEnded",), "not run: this notebook crashed or timed out too often before")
        if spent := self.grace("").spent():
            raise StudentError(("TimeoutError",), f"not run: {spent}")

    def counts(self) -> Counter[tuple[str, bool]]:
        """As they are now, for ``take_back``."""
        return self._counts.copy()

    def take_back(self, counts: Counter[tuple[str, bool]]) -> None:
        """What has come since did not count after all."""
        self._counts = counts.copy()
