"""Diagnoses of wrong answers, compared with causes that people wrote down without having seen the diagnosis.

``precision/weekN.jsonl`` has one answer per line: its source, its true cause, whether no cause should be named
(``silent``), and the sentences that are true of this answer (``accepted``). Any other sentence is a false name.
"""

import importlib
import json
from pathlib import Path

import pytest
import torch

import autograder.reference
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.manifest import MANIFEST
from autograder.misconceptions.bank import NAMES, bank
from autograder.script.script import GOES_TO_NUMPY, ON_THE_CPU

pytestmark = pytest.mark.nightly

SEEN = (ON_THE_CPU, GOES_TO_NUMPY)  # the device's own errors, not guesses; allowed beside the cause
LEAST, LEAST_SILENT, RECALL = 40, 10, 0.7
FEWER = {"week6": (30, 0), "week7": (15, 0)}  # one blind writer only; week 7 has only what is graded quickly
READY = {"week7": ("apply_rotary_emb", "ALiBiMultiHeadAttention")}  # what a notebook imports from the course's helper
FOLDER = Path(__file__).parent / "precision"
WEEKS = {path.stem: path for path in sorted(FOLDER.glob("week*.jsonl"))}


def graded(week, answer, cache):
    """The verdict on one answer in a notebook whose other answers are right."""
    assignment = next(name for name in MANIFEST if name.startswith(f"{week}_"))
    names = dict(NAMES) | {name: getattr(autograder.reference, name) for name in READY.get(week, ())}
    for entry in MANIFEST[assignment]:
        if entry.kind == "text" or entry.grade_id == answer["exercise"]:
            continue
        if right := next((solution for solution in bank(assignment, entry.grade_id) if solution.is_right), None):
            exec(right.source, names)
    exec(answer["source"], names)
    with grading(1, cache=cache):
        return getattr(importlib.import_module(f"autograder.checks.{week}"), answer["exercise"])(
            names[answer["exercise"]]
        )


@pytest.mark.parametrize("week", WEEKS)
def test_no_false_name(week, capsys):
    answers = [json.loads(line) for line in WEEKS[week].read_text().splitlines()]
    silent = sum(answer["silent"] for answer in answers)
    least, least_silent = FEWER.get(week, (LEAST, LEAST_SILENT))
    assert len(answers) >= least and silent >= least_silent
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cache = ResultCache()
    verdicts = [graded(week, answer, cache) for answer in answers]
    torch.set_num_threads(threads)

    false, unpunished, told = [], [], 0
    for answer, verdict in zip(answers, verdicts, strict=True):
        where = f"{answer['exercise']}/{answer['name']}"
        if verdict.score == verdict.max_score:
            unpunished.append(where)
        false += [
            f"{where}: {sentence} (its cause: {answer['cause']})"
            for sentence in verdict.named
            if sentence not in answer["accepted"] and sentence not in SEEN
        ]
        told += not answer["silent"] and any(sentence in answer["accepted"] for sentence in verdict.named)
    recall = told / (len(answers) - silent)
    with capsys.disabled():
        print(
            f"\n{week}: {len(answers)} wrong answers, {silent} of them due silence; false names {len(false)}, recall {recall:.0%}"
        )
    assert not unpunished
    assert not false, "\n".join(false)
    assert recall >= RECALL
