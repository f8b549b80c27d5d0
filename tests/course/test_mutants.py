"""Mutants of right answers: what changes, how they are judged, and whether the list of equivalent ones is current."""

import sys

import pytest
import torch
from helpers import COURSE

sys.path.insert(0, str(COURSE / "benchmarks"))
sys.path.append(str(COURSE / "source"))

import mutants as command
from mutators import Mutant

from autograder.manifest import entry

pytestmark = pytest.mark.nightly


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> command.Judge:
    monkeypatch.setattr(
        command.autograder.checks.framework, "known_mistakes", None
    )  # the judge replaces it; restored afterwards
    week = "week5_extrapolation"
    return command.Judge(week, entry(week, "ntk_base"), {"torch": torch})


def test_what_does_not_end_or_takes_all_memory_is_noticed(
    judge: command.Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "CPU_SECONDS", 1)
    head = "def ntk_base(base, scale, head_dim):\n"
    right = head + "    return base * scale ** (head_dim / (head_dim - 2))"
    sources = (right, head + "    while True: pass", head + "    torch.empty(2**40)", right, "1 / 0")
    assert judge.pass_apart([Mutant(source, "") for source in sources]) == [True, False, False, True, False]


def test_a_survivor_and_an_entry_without_one_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.autograder.checks.framework, "known_mistakes", None)
    monkeypatch.setattr(command, "_equivalents", lambda: {"log_n_scale": [{"reason": "none", "changes": ["- a + b"]}]})
    week = "week5_extrapolation"
    _, one, source, names = next(answer for answer in command.answers(week) if answer[1].grade_id == "log_n_scale")
    found = command.examine(week, one, source, names)
    assert found.count == found.killed > 10
    assert found.stale == ["- a + b"]
    monkeypatch.setattr(command, "mutants", lambda source: [Mutant(source, "- x + y")])
    assert command.examine(week, one, source, names).unlisted == ["- x + y"]
