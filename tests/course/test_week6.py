"""Tests of what only week 6 has: entries that may hold anything, traps, shipped results."""

import json
import math

import pytest
import torch
from helpers import COURSE, load

from autograder import reference
from autograder.checks import week6
from autograder.grading.marking.marking import grading
from autograder.manifest import RELEASED_FILES
from autograder.misconceptions.bank import bank

WEEK = "week6_relative_bias"


def grade(grade_id, *subjects, seed=11):
    with grading(seed):
        return getattr(week6, grade_id)(*subjects)


# ---- answers that call others ----------------------------------------------------------------------------


def t5_on(relative_positions, t5_bucket, mask_from_offsets=False):
    def t5_attention(q, k, v, table, is_causal=False, max_distance=128):
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        offset = relative_positions(n_queries, n_keys).to(q.device)
        scores = q @ k.mT + table[t5_bucket(offset, not is_causal, len(table), max_distance)].permute(2, 0, 1)
        if is_causal:
            seen = offset <= 0 if mask_from_offsets else reference.causal_mask(n_queries, n_keys).to(q.device)
            scores = scores.masked_fill(~seen, -math.inf)
        weights = scores.softmax(-1).nan_to_num()
        return weights @ v, weights

    return t5_attention


# ---- traps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filling", [math.inf, -math.inf, math.nan, 7.0])
def test_what_stands_above_the_diagonal_is_never_compared(filling):
    def filled(function):
        def answer(*tensors):
            value = function(*tensors)
            return value.masked_fill(reference.relative_positions(*value.shape[-2:]).to(value.device) > 0, filling)

        return answer

    assert grade("rel_shift", filled(reference.rel_shift)).score == 3
    assert grade("transformer_xl_scores", filled(reference.transformer_xl_scores)).score == 4


def test_ties_of_the_logarithm_decide_nothing():
    """An honest rounding error at a tie, up or down, costs no point."""

    def slipping(by):
        def t5_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
            side = num_buckets // 2 if bidirectional else num_buckets
            m = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
            e = side // 2
            real = torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e) * (side - e)
            real = torch.where(m > e, real + by, real)  # the logarithm of 1 is exact
            near = torch.where(m < e, m, (e + torch.floor(real).long()).clamp(max=side - 1))
            return near + side * (relative_position > 0) if bidirectional else near

        return t5_bucket

    for by in (1e-6, -1e-6):
        assert grade("t5_bucket", slipping(by)).score == 4
        assert grade("t5_attention", t5_on(reference.relative_positions, slipping(by))).score == 3


def test_a_clip_that_wraps_is_found_though_it_raises_nothing():
    """Only the upper end is clipped; rel + clip < 0 wraps to the other end of the table."""

    def wrapping(q, k, v, rel_k, rel_v, mask=None):
        clip = len(rel_k) // 2
        row = (reference.relative_positions(q.shape[-2], k.shape[-2]) + clip).clamp(max=2 * clip)
        row = torch.where(row < -len(rel_k), torch.zeros_like(row), row)
        scores = (q @ k.mT + torch.einsum("bhid,ijd->bhij", q, rel_k[row])) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e30)
        weights = scores.softmax(-1) * (1 if mask is None else mask)
        return weights @ v + torch.einsum("bhij,ijd->bhid", weights, rel_v[row]), weights

    assert grade("shaw_attention", wrapping).score == 3.25


def test_the_bias_that_is_missing_is_the_one_that_is_named():
    said = {entry.name: entry.says for entry in bank(WEEK, "transformer_xl_scores")}
    for bias in ("content", "position"):
        assert said[f"xl_no_{bias}_bias"].startswith(f"{bias}_bias is missing")


# ---- shipped results ------------------------------------------------------------------------------------------------


def test_the_table_is_made_from_the_shipped_results(monkeypatch):
    monkeypatch.syspath_prepend(COURSE / "source")
    monkeypatch.syspath_prepend(COURSE / "experiments")
    experiments = load("experiments/relative_bias.py")
    results = json.loads((COURSE / "source" / "week6_results.json").read_text())
    assert (COURSE / "experiments" / "results_week6.md").read_text(encoding="utf-8") == experiments.tables(results)
    assert "week6_results.json" in RELEASED_FILES[WEEK] and results["made_with"]["torch"]
    assert all(len(rows) == 5 for group in experiments.GROUPS for rows in results[group].values())


def test_the_tasks_ask_for_what_they_say():
    tasks = load("source/relative_tasks.py")
    generator = torch.Generator().manual_seed(0)
    payload, offset, answer = tasks.pull(3, 12, generator)
    for b in range(3):
        for i in range(12):
            source = i - int(offset[b, i])
            assert answer[b, i] == (payload[b, source] if source >= 0 else tasks.IGNORED)
    payload, offset, answer = tasks.push(3, 12, generator)
    for b in range(3):
        for i in range(12):
            sources = [j for j in range(12) if j + int(offset[b, j]) == i]
            assert answer[b, i] == (payload[b, sources[0]] if len(sources) == 1 else tasks.IGNORED)
