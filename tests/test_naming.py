"""How often the diagnosis names the cause, measured on wrong answers that it was not built from."""

import re

import pytest
import torch

from autograder.checks import week3
from autograder.checks.framework import grading
from autograder.manifest import MANIFEST
from variants_week3 import VARIANTS

REQUIRED = 0.90


@pytest.fixture(scope="module")
def verdicts():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    graded = []
    for grade_id, pattern, subject in VARIANTS:
        with grading(seed=11):
            verdict = getattr(week3, grade_id)(subject)
        graded.append((grade_id, pattern, getattr(subject, "__name__", "numbers"), verdict))
    torch.set_num_threads(threads)
    return graded


def test_every_variant_loses_points(verdicts):
    assert len(verdicts) >= 45
    assert {grade_id for grade_id, *_ in verdicts} >= {e.grade_id for e in MANIFEST["week3_rope"] if e.kind == "code"}
    for _, _, name, verdict in verdicts:
        assert verdict.score < verdict.max_score, (name, verdict.render())


def test_most_variants_are_named(verdicts, capsys):
    missed = [f"{grade_id}: {name}: {verdict.named}" for grade_id, pattern, name, verdict in verdicts
              if not any(re.search(pattern, sentence) for sentence in verdict.named)]
    share = 1 - len(missed) / len(verdicts)
    with capsys.disabled():
        print(f"\nnamed: {len(verdicts) - len(missed)} of {len(verdicts)} variants ({share:.0%}); not named:", *missed,
              sep="\n  ")
    assert share >= REQUIRED

