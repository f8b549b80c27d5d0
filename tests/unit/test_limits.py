"""Budgets, and the kernel's limit on a judge."""

import os
import signal

import numpy as np
import pytest

from autograder.errors import StudentError
from autograder.grading.sandbox.limits import (
    MAX_CALLBACK_BYTES,
    MAX_CALLBACKS,
    RECENT,
    Budget,
    Grace,
    Limits,
    UsageMonitor,
    kernel_limit,
)
from autograder.grading.sandbox.process_tree import Usage


class Nothing:
    """A submission without processes to look at."""

    tree = None
    charged = 0.0

    def ran_out_of_memory(self) -> bool:
        return False


class Napping(Nothing):
    """A submission that uses no CPU."""

    class tree:
        @staticmethod
        def look() -> Usage:
            return Usage(cpu=0.0, memory=0, runnable=False, processes=1, threads=1, started=1)

        recent = staticmethod(lambda seconds: Napping.tree.look())


def monitor(budget: Budget | None = None) -> UsageMonitor:
    return UsageMonitor(Nothing(), 1.0, 2.0, Limits(), budget or Budget.of(Limits()), Grace.of_function(Limits()))


def test_a_lent_function_is_called_with_little_and_not_for_ever() -> None:
    watching = monitor()
    for _ in range(MAX_CALLBACKS):
        watching.count_callback(MAX_CALLBACK_BYTES)
    with pytest.raises(StudentError, match="more than 1000 times"):
        watching.count_callback(0)
    with pytest.raises(StudentError, match="more than 256 kB"):
        monitor().count_callback(MAX_CALLBACK_BYTES + 1)


def test_what_a_lent_function_costs_is_the_submissions() -> None:
    watching = monitor()
    watching.charge_callback(0.5, 0.5)
    assert watching.budget.cpu == Limits().total_cpu - 0.5
    with pytest.raises(StudentError, match="ran for more than 1 seconds"):
        watching.charge_callback(0.6, 0.6)


def test_a_function_has_some_time_of_its_own_when_others_have_used_up_the_budget() -> None:
    budget = Budget.of(Limits())
    for _ in range(int(Limits().total_cpu)):
        monitor(budget).charge_callback(1.0, 1.0)
    assert budget.is_spent
    watching = monitor(budget)
    watching.charge_callback(0.9, 0.9)
    assert watching.grace.cpu == Limits().call_cpu - 0.9 and not watching.grace.spent()
    assert Grace(0.0, 1.0).spent() and Grace(1.0, 0.0).spent()


def test_waiting_is_taken_off_what_a_submission_may_wait() -> None:
    budget = Budget.of(Limits())
    watching = UsageMonitor(Napping(), 1.0, 2.0, Limits(), budget, Grace.of_function(Limits()))
    watching.look()
    assert 0 < watching.idle == pytest.approx(Limits().total_idle - budget.idle) and budget.cpu == Limits().total_cpu


def test_a_look_that_comes_late_charges_no_more_than_two_intervals() -> None:
    watching = UsageMonitor(Napping(), 1.0, 2.0, Limits(), Budget.of(Limits()), Grace.of_function(Limits()))
    watching.last -= 60
    watching.look()
    assert watching.idle == 2 * RECENT


@pytest.mark.timing
def test_the_kernel_ends_what_hears_no_signal() -> None:
    """A judge in a long C call: Python's signal handlers would run only after it, and the signals are also masked."""
    pid = os.fork()
    if not pid:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF, signal.SIGTERM})
        with kernel_limit(0.5):
            while True:
                np.sort(np.arange(2_000_000)[::-1])
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF


def left() -> float:
    return signal.getitimer(signal.ITIMER_PROF)[0]


def test_the_limit_before_holds_again_and_is_never_widened() -> None:
    with kernel_limit(1000.0):
        assert left() == pytest.approx(1000.0, abs=50)
        with kernel_limit(5000.0):
            assert left() == pytest.approx(1000.0, abs=50)
        with kernel_limit(500.0):
            assert left() == pytest.approx(500.0, abs=50)
        assert left() == pytest.approx(1000.0, abs=50)
    assert left() == 0
