"""What bounds the checks themselves."""

import itertools

import pytest

from autograder.checks.result_cache import ResultCache
from autograder.grading.judge import CheckingTooLong, at_most


@pytest.mark.timing
def test_checking_has_an_end() -> None:
    remembered = ResultCache()
    with pytest.raises(CheckingTooLong), at_most(0.3):
        remembered.recall("a", lambda: [x for x in itertools.count() if x < 0])
    assert remembered.recall("a", lambda: 5) == 5
