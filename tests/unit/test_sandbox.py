"""The sandbox as such: that it starts, or says why not."""

import pytest

from autograder.errors import SandboxError
from autograder.grading.sandbox.sandbox import Sandbox


def test_a_sandbox_that_cannot_start_is_an_error_and_no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.grading.sandbox.bubblewrap.find_bubblewrap", lambda: "/bin/false")
    with pytest.raises(SandboxError, match="did not start"), Sandbox():
        pass
