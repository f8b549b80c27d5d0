"""Answers with a single mistake that is not in the banks: each pays for that mistake and for nothing else."""

import importlib
import inspect
import re

import pytest
import torch
from torch import nn

from autograder import reference
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.misconceptions.bank import NAMES, bank

OF_THE_CLASS = {}  # results of the course's own code, by week, which would otherwise be computed again for every answer


def graded(week, grade_id, subject):
    with grading(3, cache=OF_THE_CLASS.setdefault(week, ResultCache())):
        return getattr(importlib.import_module(f"autograder.checks.{week}"), grade_id)(subject)


MINUS_INFINITY = re.compile(r"""float\(["']-inf["']\)|-math\.inf""")
MASKING = {
    entry.name: entry
    for week, exercise in (
        ("week1_permutation_equivariance", "scaled_dot_product_attention"),
        ("week3_rope", "RotaryMultiHeadAttention"),
        ("week4_alibi", "ALiBiMultiHeadAttention"),
        ("week6_relative_bias", "shaw_attention"),
        ("week6_relative_bias", "t5_attention"),
        ("week7_capstone", "grouped_query_attention"),
        ("week7_capstone", "CachedAttention"),
        ("week7_capstone", "CrossAttention"),
        ("week7_capstone", "HybridDecoderBlock"),
    )
    for entry in [next(entry for entry in bank(week, exercise) if entry.is_right and "inf" in entry.source)]
}


@pytest.mark.nightly
@pytest.mark.parametrize("entry", MASKING.values(), ids=MASKING)
def test_a_low_number_in_place_of_minus_infinity_loses_points(entry):
    names = {**vars(inspect.getmodule(entry.subject)), **NAMES}
    exec(MINUS_INFINITY.sub("-100.0", entry.source), names)
    verdict = graded(entry.assignment.split("_")[0], entry.grade_id, names[entry.grade_id])
    assert 0 < verdict.score < verdict.max_score, verdict.render()


def test_a_mask_for_texts_up_to_a_limit_loses_points():
    def limited(n_queries, n_keys):
        return torch.ones(1024, 1024, dtype=torch.bool).tril()[n_keys - n_queries : n_keys, :n_keys]

    verdict = graded("week1", "causal_mask", limited)
    assert verdict.score < verdict.max_score, verdict.render()


def test_parameters_that_the_contract_does_not_name_pay_for_that_alone():
    class Learned(reference.ALiBiMultiHeadAttention):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            self.extra = nn.Parameter(torch.zeros(1))

    assert graded("week4", "ALiBiMultiHeadAttention", Learned).score == 4.5
