"""The trusted grading process is started in one place, and ended in one."""

import subprocess
import sys

from autograder.grading.executors.start import end_grader


def test_a_process_that_misses_a_signal_is_asked_again() -> None:
    """What a signal handler raises while Python runs a destructor is printed and forgotten."""
    code = (
        "import signal, sys\n"
        "asked = []\n"
        "def end(*_):\n"
        "    asked.append(1)\n"
        "    if len(asked) > 1: sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        end_grader(process)
        assert process.returncode == 3
