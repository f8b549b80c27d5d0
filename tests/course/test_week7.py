"""Tests of what only week 7 has: traps, a helper file with blocks, a shipped experiment."""

import json
import math

import numpy as np
import pytest
import torch
from helpers import COURSE, load

from autograder import reference
from autograder.build.text import to_notebook
from autograder.checks import week7
from autograder.grading.marking.marking import grading
from autograder.manifest import RELEASED_FILES
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.usefixtures("one_thread")

WEEK = "week7_capstone"


def grade(grade_id, *subjects, seed=11):
    with grading(seed):
        return getattr(week7, grade_id)(*subjects)


# ---- traps ----------------------------------------------------------------------------------------------------------


def test_values_of_the_cache_are_not_looked_at_but_shapes_are():
    raw = next(s.subject for s in bank(WEEK, "CachedAttention") if s.name == "CachedRawKeys")
    assert grade("CachedAttention", raw).score == 6

    class Longer(reference.CachedAttention):
        """Caches one token too many, which the output does not show."""

        def forward(self, x, cache=None):
            cut = None if cache is None else tuple(part[:, :, :-1] for part in cache)
            out, cache = super().forward(x, cut)
            return out, tuple(torch.cat((part, part[:, :, :1]), 2) for part in cache)

    verdict = grade("CachedAttention", Longer)
    assert [c.name for c in verdict.criteria if c.earned < c.points] == [
        "what the cache holds, and that the one given stays as it is"
    ]


def test_rows_of_padding_may_hold_anything():
    class Odd:
        def __call__(self, keep, n_queries):
            positions, mask = reference.padded_causal(keep, n_queries)
            padding = ~keep[:, keep.shape[1] - n_queries :]
            return positions.masked_fill(padding, -(2**62)), mask | padding[:, None, :, None]

    assert grade("padded_causal", Odd()).score == 3


# ---- the helper file ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ready():
    return load("source/ready_blocks.py")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_ready_rotation_is_the_reference(ready, dtype):
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64).to(dtype)
    for positions in (torch.arange(5), torch.tensor([0.5, -3, 8191, 2, 7]), torch.arange(10).view(2, 5) * 100):
        for base in (10000.0, 50.5):
            assert torch.equal(
                ready.apply_rotary_emb(x, positions, base), reference.apply_rotary_emb(x, positions, base)
            )
    with pytest.raises(ValueError):
        ready.apply_rotary_emb(torch.zeros(1, 1, 1, 5), torch.arange(1))


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("is_causal", [True, False])
def test_the_ready_alibi_layer_is_the_reference(ready, n_heads, is_causal):
    torch.manual_seed(0)
    ours, right = (
        ready.ALiBiMultiHeadAttention(24, n_heads).double(),
        reference.ALiBiMultiHeadAttention(24, n_heads).double(),
    )
    right.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    torch.testing.assert_close(ours(x, is_causal=is_causal), right(x, is_causal=is_causal), rtol=0, atol=1e-12)
    assert ours.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(ValueError):
        ready.ALiBiMultiHeadAttention(24, 5)


def test_the_ready_encoder_attends_as_the_reference_and_never_to_padding(ready):
    torch.manual_seed(0)
    ours, right = ready.RotaryAttention(16, 2).double(), reference.RotaryMultiHeadAttention(16, 2).double()
    right.load_state_dict(ours.state_dict())
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), right(x), rtol=0, atol=1e-12)
    keep = torch.arange(6) < torch.tensor([6, 4])[:, None]
    encoder = ready.RotaryEncoder(16, 2, 2).double()
    torch.testing.assert_close(encoder(x, keep)[1:, :4], encoder(x[1:, :4]), rtol=0, atol=1e-12)


def test_helper_files_go_to_their_own_week_alone():
    for week, files in RELEASED_FILES.items():
        assert ("ready_blocks.py" in files) == (week == WEEK)


def test_copying_tasks_are_what_the_text_says(ready):
    source = ready.sources(50, (2, 10), torch.Generator().manual_seed(0))
    assert source.shape == (50, 10)
    for row, backwards in zip(source, ready.answer_to(source, "reverse"), strict=False):
        real = row[row != ready.PAD]
        assert 2 <= len(real) <= 10 and len(set(real.tolist())) == len(real)
        assert torch.equal(backwards[: len(real)], real.flip(0)) and bool((backwards[len(real) :] == ready.PAD).all())


# ---- the shipped experiment -----------------------------------------------------------------------------------------


def test_shipped_results_are_complete_and_bear_out_the_text():
    results = json.loads((COURSE / "source" / "week7_results.json").read_text())
    assert results["seeds"] == 5 and results["tested"] == [10, 12, 15, 20] and results["torch"]
    arms, two_layers = results["arms"], "no positions, 2+2 layers"
    assert set(arms) == {"no positions", "from the start", "from the end", "no positions, 2+2 layers"}
    for by_task in arms.values():
        for task in ("copy", "reverse"):
            for what in ("whole", "single"):
                rows = by_task[task][what]
                assert len(rows) == 5 and all(len(row) == 4 and all(0 <= share <= 1 for share in row) for row in rows)

    def every(arm, task, at):
        return [row[results["tested"].index(at)] for row in arms[arm][task]["whole"]]

    for arm, task, other in (("from the start", "copy", "reverse"), ("from the end", "reverse", "copy")):
        assert min(every(arm, task, 10) + every(arm, task, 15)) > 0.9
        assert max(every(arm, other, 12)) < 0.1
    for task in ("copy", "reverse"):  # two layers learn both tasks without positions, but do not extrapolate
        assert sum(every(two_layers, task, 10)) / 5 > 0.9
        assert max(every("no positions", task, 10)) < 0.1 and max(every(two_layers, task, 20)) < 0.1


def test_the_shipped_weights_copy_and_hiding_far_keys_repairs_longer_texts(ready):
    class Block(reference.HybridDecoderBlock):
        def forward(self, x, memory, memory_mask, positions, memory_positions):
            return super().forward(x, memory, memory_mask)

    path = COURSE / "source" / "week7_copy.npz"
    assert path.stat().st_size < 500_000 and path.name in RELEASED_FILES[WEEK]
    model = ready.CopyModel([Block(64, 4), Block(64, 4)], "none").eval()
    with np.load(path, allow_pickle=False) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name].astype(np.float32)) for name in arrays.files})

    def right(length):
        return ready.scores(model, "copy", (length,), size=24)[1][length]

    assert right(10) > 0.95 and right(15) < 0.3
    definition = next(c.source for c in text_cells() if "def hides_far" in c.source).split("\n\n\n")[0]
    names = {"torch": torch, "math": math, "apply_rotary_emb": ready.apply_rotary_emb}
    exec(definition, names)
    for layer in model.encoder.layers:
        layer["attention"].forward = names["hides_far"](layer["attention"], reach=9)
    assert right(10) > 0.95 and right(15) > 0.5


def text_cells():
    return to_notebook((COURSE / "source" / f"{WEEK}.py").read_text(encoding="utf-8")).cells
