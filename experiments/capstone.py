"""Week 7's experiment: copying and reversing beyond the training length, with several kinds of cross-attention.

    python experiments/capstone.py            # every run that is missing (about 12 minutes on one core)
    python experiments/capstone.py --table    # only the table and the shipped file, from experiments/runs/

Every run writes its numbers to experiments/runs/week7.json (not kept in the repository). The script turns them into
experiments/results_week7.md (mean and spread over seeds, for people), source/week7_results.json (every seed's
numbers, for the notebook) and source/week7_copy.npz (the weights of one run, float16).
"""

import argparse
import json

import arms
import numpy as np
import ready_blocks as ready
import torch

from autograder.reference import HybridDecoderBlock

RECORD = arms.Record("week7", arms.RUNS)
SEEDS = arms.SEEDS
TRAINED, TESTED = (2, 10), (10, 12, 15, 20)
TASKS = ("copy", "reverse")
# arm: (alignment, layers of the encoder and of the decoder, steps, learning rate)
ARMS = {
    "no positions": ("none", 1, 300, 2e-3),
    "from the start": ("from the start", 1, 300, 2e-3),
    "from the end": ("from the end", 1, 300, 2e-3),
    # without positions, one layer does not learn the task in 300 steps; two layers do, in 500 larger ones
    "no positions, 2+2 layers": ("none", 2, 500, 4e-3),
}
CHECKPOINT = ("no positions, 2+2 layers", "copy", 0)  # the notebook runs these weights with a nearsighted encoder


class AlignedBlock(HybridDecoderBlock):
    """Section 7.7's block, which also passes positions to its cross-attention."""

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        x = x + self.self_attn(self.norm1(x), is_causal=True)
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask, positions, memory_positions)
        return x + self.ffn(self.norm3(x))


def run(arm, task, seed):
    alignment, n_layers, steps, learning_rate = ARMS[arm]
    torch.manual_seed(seed)
    model = ready.CopyModel([AlignedBlock(64, 4) for _ in range(n_layers)], alignment)
    ready.train(model, task, seed, steps, learning_rate=learning_rate)
    if (arm, task, seed) == CHECKPOINT:
        weights = {name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()}
        np.savez_compressed(arms.SHIPPED / "week7_copy.npz", **weights)
    whole, single = ready.scores(model, task, TESTED)
    return {"whole": whole, "single": single}


def measure():
    for seed in SEEDS:
        for arm in ARMS:
            for task in TASKS:
                RECORD.measure(f"{arm}, {task}", seed, lambda seed, arm=arm, task=task: run(arm, task, seed))


def rows(arm, task, what):
    """One row per seed, one number per tested length."""
    return [list(by_length.values()) for by_length in RECORD.values(f"{arm}, {task}", what)]


def collected():
    """arm -> task -> "whole" or "single" -> one row per seed, one number per tested length."""
    return {
        "trained": list(TRAINED),
        "tested": list(TESTED),
        "seeds": len(SEEDS),
        **RECORD.made_with(),
        "arms": {
            arm: {task: {what: rows(arm, task, what) for what in ("whole", "single")} for task in TASKS} for arm in ARMS
        },
    }


def tables(data):
    lines = [
        "# Week 7: what was measured",
        "",
        *arms.text(
            f"""Made by `experiments/capstone.py` (`make experiments`); do not edit. Mean (lowest to highest) over
            {len(SEEDS)} training seeds, torch {data["torch"]}. Trained on {TRAINED[0]} to {TRAINED[1]} symbols; RoPE
            encoder, ALiBi decoder, greedy decoding of 200 sequences. "From the start": cross-attention is told the
            decoding step and the index in the source; "from the end": the source is counted from its last symbol."""
        ),
    ]
    for what, title in (("whole", "Sequences written without a mistake"), ("single", "Right symbols")):
        for task in TASKS:
            found = {arm: zip(*data["arms"][arm][task][what], strict=True) for arm in ARMS}
            cells = [[arm, *(arms.cell(column, 2) for column in columns)] for arm, columns in found.items()]
            lines += arms.table(f"{title}: {task}", ["", *map(str, TESTED)], cells)
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no training, only the table and the shipped file")
    torch.set_num_threads(1)
    if not parser.parse_args().table:
        measure()
    results = collected()
    (arms.HERE / "results_week7.md").write_text(tables(results), encoding="utf-8")
    (arms.SHIPPED / "week7_results.json").write_text(json.dumps(results) + "\n")
