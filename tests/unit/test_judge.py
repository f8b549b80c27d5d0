"""What bounds the checks themselves."""

import itertools

import pytest
import torch

from autograder.checks.result_cache import ResultCache
from autograder.grading.judge import CheckingTooLong, _names, _within_bounds, at_most


@pytest.mark.timing
def test_checking_has_an_end() -> None:
    remembered = ResultCache()
    with pytest.raises(CheckingTooLong), at_most(0.3):
        remembered.recall("a", lambda: [x for x in itertools.count() if x < 0])
    assert remembered.recall("a", lambda: 5) == 5


@pytest.mark.parametrize(
    "arguments",
    [(2**26,), (4, 6000, 6000), (4, torch.tensor(6000), torch.tensor([6000])), (torch.ones(2**14), torch.ones(2**14))],
)
def test_the_course_s_functions_are_called_with_little(arguments: tuple) -> None:
    with pytest.raises(ValueError, match="larger than any"):
        _within_bounds(lambda *given: given)(*arguments)


@pytest.mark.parametrize(
    "arguments", [(100_001, 128), (8, 1000, 1000), (torch.ones(1, 1, 2050, 2),) * 2, (torch.tensor(5),)]
)
def test_and_with_all_that_is_asked_for(arguments: tuple) -> None:
    assert _within_bounds(lambda *given: given)(*arguments) == arguments


def test_names_are_found_where_python_gives_up() -> None:
    assert "spare" in _names("-" * 8000 + "spare")
