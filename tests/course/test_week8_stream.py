"""Week 8's helper files, and the experiment it ships: a stream through a bounded cache."""

import json

import numpy as np
import pytest
import torch
from helpers import COURSE, load_serving_lab

from autograder import reference
from autograder.manifest import RELEASED_FILES

pytestmark = pytest.mark.usefixtures("one_thread")

WEEK = "week8_production"
serving = load_serving_lab()
TRUE, WINDOW, RING = "4 sinks + 60, true positions", "window of 64, cached", "window of 64, positions of a ring buffer"


@pytest.fixture(scope="module")
def model():
    return serving.trained_model(COURSE / "source" / "week5_rope.npz")


def everything(n):
    return torch.arange(n), torch.arange(n)


def test_a_stream_that_keeps_everything_is_the_model_itself(model):
    tokens = serving.texts(2)[:, :81]
    torch.testing.assert_close(
        serving.stream(model, tokens, everything), serving.dense(model, tokens), rtol=0, atol=1e-4
    )


def test_positions_may_be_given_for_each_pair(model):
    tokens = serving.texts(2)[:, :41]
    per_pair = lambda n: (torch.arange(n), torch.arange(n)[:, None].repeat(1, 8))  # noqa: E731
    found = serving.stream(model, tokens, per_pair)
    torch.testing.assert_close(found, serving.stream(model, tokens, everything), rtol=0, atol=1e-4)


def test_a_window_sees_nothing_that_has_left_it_in_one_layer(model):
    """Two texts differ only in their first character; two layers pass it on by no more than two windows."""
    tokens = serving.texts(1)[:, :31].repeat(2, 1)
    tokens[1, 0] = (tokens[0, 0] + 1) % 96
    losses = serving.stream(model, tokens, lambda n: reference.streaming_cache(n, 0, 8))
    assert not torch.equal(losses[0, :8], losses[1, :8]) and torch.equal(losses[0, 16:], losses[1, 16:])


def test_the_largest_tensor_written_is_found():
    x = torch.zeros(4, 6)
    assert serving.largest_tensor(lambda x: (x + 1)[:, :3].mT * 2, x) == 24
    assert serving.largest_tensor(lambda x: x.mT[:3], x) == 0  # a view


def test_shipped_results_are_complete_and_bear_out_the_text():
    results = json.loads((COURSE / "source" / "week8_results.json").read_text())
    assert results["seeds"] == 5 and results["made_with"]["torch"]
    end = {arm: np.array(losses) for arm, losses in results["end"].items()}
    curves = {arm: np.array(rows) for arm, rows in results["curves"].items()}
    assert all(len(losses) == 5 for losses in end.values()) and all(rows.shape == (5, 128) for rows in curves.values())
    settled = {arm: rows[:, 32:].mean(1) for arm, rows in curves.items()}
    assert np.abs(end[WINDOW] - end["window of 64, recomputed"]).max() < 0.02
    assert np.abs(settled["4 sinks + 60, numbered in the cache"] - settled[WINDOW]).max() < 0.02
    cost = settled[TRUE] - settled[WINDOW]
    assert (settled[RING] - settled[WINDOW]).min() > cost.max() > cost.min() > 0.1
    assert np.max(results["first"]) < 0.02
    highest = results["every"] * (curves[TRUE] - curves[WINDOW]).argmax(1) + 2
    assert sorted(highest.tolist()) == [362, 378, 378, 378, 378]
    pairs = {rule: np.array(rows)[:, 32:].mean(1) - settled[WINDOW] for rule, rows in results["pairs"].items()}
    assert np.abs(pairs["true positions but for pair 3"]).max() < 0.05 < 0.1 < cost.min()


def test_helper_files_solve_nothing():
    assert {"serving_lab.py", "week8_results.json"} <= set(RELEASED_FILES[WEEK])
    text = (COURSE / "source" / "serving_lab.py").read_text()
    assert not any(f"def {answer}(" in text for answer in ("partial_rotary_emb", "streaming_cache", "mla_attention"))
