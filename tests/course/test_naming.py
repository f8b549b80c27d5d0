"""How often the diagnosis names the cause, measured on wrong answers that it was not built from."""

import importlib
import re

import pytest
import torch

from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.manifest import MANIFEST

pytestmark = pytest.mark.nightly

# Silence beats a wrong name: a cause is named only if it fits all that was seen, which costs some true names
# (week 1: 33 of 38). That no name is false is what `test_precision.py` is for.
REQUIRED = 0.85
LEAST = 20  # variants of a week


@pytest.fixture(scope="module", params=list(MANIFEST))
def week(request):
    """The assignment, and what the feedback says to each variant: exercise, pattern, name, verdict."""
    number = request.param.split("_")[0]
    checks, variants = (
        importlib.import_module(f"autograder.checks.{number}"),
        importlib.import_module(f"course.variants_{number}"),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    graded, cache = [], ResultCache()
    for grade_id, pattern, subject in variants.VARIANTS:
        with grading(seed=11, cache=cache):
            verdict = getattr(checks, grade_id)(subject)
        graded.append((grade_id, pattern, getattr(subject, "__name__", "numbers"), verdict))
    torch.set_num_threads(threads)
    return request.param, graded


def test_every_variant_loses_points(week):
    assignment, verdicts = week
    assert len(verdicts) >= LEAST
    assert {grade_id for grade_id, *_ in verdicts} >= {e.grade_id for e in MANIFEST[assignment] if e.kind == "code"}
    for _, _, name, verdict in verdicts:
        assert verdict.score < verdict.max_score, (name, verdict.render())


def test_most_variants_are_named(week, capsys):
    assignment, verdicts = week
    missed = [
        f"{grade_id}: {name}: {verdict.named}"
        for grade_id, pattern, name, verdict in verdicts
        if not any(re.search(pattern, sentence) for sentence in verdict.named)
    ]
    share = 1 - len(missed) / len(verdicts)
    with capsys.disabled():
        print(
            f"\n{assignment}: named {len(verdicts) - len(missed)} of {len(verdicts)} variants ({share:.0%}); not named:",
            *missed,
            sep="\n  ",
        )
    assert share >= REQUIRED
