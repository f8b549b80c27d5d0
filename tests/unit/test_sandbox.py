"""The sandbox itself starts, or says why it cannot."""

import os
import signal
from collections.abc import Iterator

import pytest
from helpers import family

from autograder.errors import SandboxError
from autograder.grading.sandbox.sandbox import Sandbox
from autograder.grading.sandbox.session import Session
from autograder.grading.sandbox.worker.wire import PeerGone


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


def test_a_sandbox_that_cannot_start_is_an_error_and_no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.grading.sandbox.bubblewrap.find_bubblewrap", lambda: "/bin/false")
    with pytest.raises(SandboxError, match="did not start"), Sandbox():
        pass


@pytest.mark.isolation
def test_a_submission_is_one_process_the_first_in_namespaces_of_its_own(sandbox: Sandbox) -> None:
    before = {pid for pid, _ in family(sandbox.process.pid)}
    session = Session(sandbox, {}, 0)
    started = {pid for pid, _ in family(sandbox.process.pid)} - before
    assert len(started) == 1  # each additional process would copy the server's page tables again
    inside = session.execute("ids", "import os\nprint(os.getpid(), os.getppid(), os.listdir('/proc'))").outputs
    assert inside[0]["text"] == "1 0 []\n"
    (root,) = started
    for space in ("user", "pid", "mnt", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{root}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}")
    assert not session.close()
    assert {pid for pid, _ in family(sandbox.process.pid)} == before


@pytest.mark.isolation
def test_who_was_killed_from_outside_is_told_from_who_was_ended(sandbox: Sandbox) -> None:
    """Only the kernel kills a submission from outside, when memory is short: that is not the student's fault."""
    session = Session(sandbox, {}, 0)
    os.kill(session._job.tree.root, signal.SIGKILL)
    with pytest.raises(PeerGone):
        session._job.connection.receive()  # the end of the connection shows it before there is a status
    assert session.close()
    session = Session(sandbox, {}, 0)
    session.execute("end", "import os\nos._exit(9)")
    assert not session.close()
