"""What nbgrader's methods write, saved together."""

from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.grading.plugins import nbgrader_patches
from autograder.grading.plugins.one_transaction import one_transaction


@pytest.fixture(autouse=True)
def patched() -> None:
    nbgrader_patches.apply()


def test_what_is_registered_is_saved_at_once_or_not_at_all(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"

    def enter(*names: str) -> None:
        with one_transaction(), Gradebook(url) as gradebook:
            for name in names:
                gradebook.add_assignment(name)
            with Gradebook(url) as other:
                assert not set(names) & {assignment.name for assignment in other.assignments}
            if "bad" in names:
                raise ValueError

    def known() -> list[str]:
        with Gradebook(url) as gradebook:
            return sorted(assignment.name for assignment in gradebook.assignments)

    with pytest.raises(ValueError):
        enter("week1", "bad")
    assert known() == []
    enter("week2", "week3")
    assert known() == ["week2", "week3"]
    with Gradebook(url) as gradebook:
        gradebook.add_assignment("week4")
    assert known() == ["week2", "week3", "week4"], "afterwards nbgrader saves as it goes along"
