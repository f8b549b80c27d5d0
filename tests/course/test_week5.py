"""Tests of what only week 5 has: a model that lives in the sandbox, shipped results, released data files."""

import json
import re

import numpy as np
import pytest
import torch
from helpers import COURSE, hand_in, load

from autograder.checks import probe_model as trusted
from autograder.checks import week5
from autograder.classroom import make_course_root
from autograder.grading.marking.marking import grading
from autograder.grading.messages import Options
from autograder.grading.pipeline import grade_submissions
from autograder.manifest import RELEASED_FILES
from autograder.misconceptions.bank import bank

WEEK = "week5_extrapolation"


def test_the_locked_model_and_the_trusted_one_are_the_same_text():
    text = (COURSE / "source" / f"{WEEK}.py").read_text(encoding="utf-8")
    locked = re.search(
        r'# %% nbgrader={"grade_id": "probe_model", "locked": true}\n(.*?)\n+# %%', text, re.DOTALL
    ).group(1)
    ours = (COURSE / "autograder" / "checks" / "probe_model.py").read_text(encoding="utf-8")
    assert ours[ours.index("class ProbeModel") :].strip() == locked.strip()


def test_the_trusted_model_sees_what_a_call_leaves_behind():
    model = trusted.ProbeModel(7)
    weights = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    flags = [True, False, False, True, True, False, True, False]
    model = trusted.probe_model(weights, flags)
    assert trusted.observe(model) == {
        "flags": flags,
        "lengths": [],
        "recorded a graph": False,
        "has gradients": False,
        "gradient mode": True,
    }
    model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    seen = trusted.observe(model)
    assert seen["recorded a graph"] and seen["has gradients"] and seen["lengths"] == [3]


def test_the_table_is_made_from_the_shipped_results(monkeypatch):
    monkeypatch.syspath_prepend(COURSE / "source")
    monkeypatch.syspath_prepend(COURSE / "experiments")
    experiments = load("experiments/extrapolation.py")
    results = json.loads((COURSE / "source" / "week5_results.json").read_text())
    assert (COURSE / "experiments" / "results.md").read_text(encoding="utf-8") == experiments.tables(results)
    table = (COURSE / "experiments" / "results.md").read_text(encoding="utf-8")
    for encoding, rows in results["fixed"].items():
        assert len(rows) == 5 or f"| {experiments.ready.NAMES[encoding]} ({len(rows)} seeds) |" in table


def test_the_hybrid_looks_through_a_window_in_its_first_layer_only():
    ready = load("source/ready_encodings.py")
    model = ready.SmallTransformer(7, ready.HYBRID, window=4, n_layers=1)
    torch.manual_seed(0)
    tokens = torch.randint(0, 7, (1, 12))
    other = tokens.clone()
    other[0, :8] = (other[0, :8] + 1) % 7
    assert torch.allclose(model(tokens)[0, -1], model(other)[0, -1], atol=1e-6), "only the last four are seen"
    both = ready.SmallTransformer(7, ready.HYBRID, window=4)
    assert not torch.allclose(both(tokens)[0, -1], both(other)[0, -1], atol=1e-3), "the second layer sees all"


def test_training_meets_every_bucket_of_the_t5_bias():
    ready = load("source/ready_encodings.py")
    met, asked = (ready.t5_buckets(n, max_distance=ready.T5_LAST).unique().tolist() for n in (64, 512))
    assert met == asked and max(asked) == 31


def test_shipped_weights_are_plain_arrays_and_small():
    ready = load("source/ready_encodings.py")
    for name, options in (
        ("week5_rope.npz", {"n_tokens": len(ready.ALPHABET), "encoding": "rope"}),
        ("week5_needle.npz", {"n_tokens": ready.NEEDLE_TOKENS, "encoding": "alibi"}),
    ):
        path = COURSE / "source" / name
        assert path.stat().st_size < 300_000 and name in RELEASED_FILES[WEEK]
        with np.load(path, allow_pickle=False) as arrays:
            weights = {key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files}
        ready.SmallTransformer(**options).load_state_dict(weights)


LIE = """
def observe(model):
    return {"flags": remembered[-1], "recorded a graph": False, "has gradients": False, "gradient mode": True}
remembered, make = [], probe_model
def probe_model(weights, flags):
    remembered.append(list(flags))
    return make(weights, flags)"""


@pytest.mark.nightly
def test_helpers_that_a_student_redefines_are_given_again(tmp_path):
    make_course_root(COURSE, tmp_path, [WEEK])
    naive = next(s for s in bank(WEEK, "loss_by_length") if s.name == "loss_switched_off")
    path, graded = hand_in(tmp_path, "one", {"loss_by_length": naive.source + LIE}, WEEK), {}
    grade_submissions(tmp_path, WEEK, {"one": path}, Options(device="cpu"), graded.__setitem__, again=True)
    assert graded["one"].result.scores["loss_by_length_tests"] == naive.score


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_who_copies_to_the_cpu_and_works_in_place_loses_the_same_on_every_device(device):
    """On the CPU `.cpu()` makes no copy, so the argument is changed; on other devices it makes one."""

    def in_place(positions, scale):
        y = positions.cpu() if positions.is_floating_point() else positions.cpu().float()
        y /= scale
        return y.to(positions.device)

    with grading(5, device):
        assert week5.position_interpolation(in_place).score == 1.875
