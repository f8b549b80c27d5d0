"""A submission's crashes and time-outs in all its forks: which code caused them, and what may still be run."""

from collections import Counter

from autograder.errors import StudentError
from autograder.grading.sandbox.limits import Grace, Limits

CELL = "cell "  # prefix of a culprit that is a cell and not a function


class Crashes:
    """Counts crashes and time-outs by culprit (the function or cell that ran) and by whether others were replaced."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._graces: dict[str, Grace] = {}  # by function; everything else shares the one under ""

    def note(self, culprit: str, replaced: bool) -> None:
        self._counts[culprit, replaced] += 1

    @property
    def functions(self) -> set[str]:
        """The functions that have hung or died."""
        return {culprit for culprit, _ in self._counts if culprit and not culprit.startswith(CELL)}

    @property
    def any(self) -> bool:
        return bool(self._counts)

    def retire_functions(self) -> None:
        """Refuse all further calls of the functions that have hung or died, because their tests are over."""
        for name in self.functions:
            for replaced in (False, True):
                self._counts[name, replaced] = self._limits.restarts + 1

    def grace(self, culprit: str) -> Grace:
        """Return the time that a function, or all cells together, may still use once the budget is spent."""
        if not culprit or culprit.startswith(CELL):
            return self._graces.setdefault("", Grace.of_cells(self._limits))
        return self._graces.setdefault(culprit, Grace.of_function(self._limits))

    def is_known(self, culprit: str) -> bool:
        """Whether the culprit has hung or died before, with others replaced or not."""
        return bool(culprit) and any(self._counts[culprit, replaced] for replaced in (False, True))

    def require_few(self, culprit: str, replaced: bool) -> None:
        """Raise ``StudentError`` if the culprit has crashed or timed out too often to be run again."""
        count = self._counts[culprit, replaced]
        if culprit and (count > self._limits.restarts or (count and self.grace(culprit).spent())):
            raise StudentError(("ProcessEnded",), "not run: it crashed or was stopped too often before")

    def require_few_of_cells(self) -> None:
        """Raise ``StudentError`` if cells, and whatever else is no function, have crashed too often in total."""
        cells = sum(count for (culprit, _), count in self._counts.items() if not culprit or culprit.startswith(CELL))
        if cells > self._limits.all_restarts:
            raise StudentError(("ProcessEnded",), "not run: this notebook crashed or was stopped too often before")
        if spent := self.grace("").spent():
            raise StudentError(("TimeoutError",), f"not run: {spent}")

    def counts(self) -> Counter[tuple[str, bool]]:
        """Return a copy of the counts, for ``take_back``."""
        return self._counts.copy()

    def take_back(self, counts: Counter[tuple[str, bool]]) -> None:
        """Restore ``counts``: what happened since then does not count."""
        self._counts = counts.copy()
