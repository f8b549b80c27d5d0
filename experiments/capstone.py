"""Week 7's experiment: copying and reversing beyond the training length, with several kinds of cross-attention.

    python experiments/capstone.py            # every run that is missing (about 12 minutes on one core)
    python experiments/capstone.py --table    # only the table and the shipped file, from experiments/runs/

Every run writes its numbers to experiments/runs/ (not kept in the repository). The script turns them into
experiments/results_week7.md (mean and spread over seeds, for people), source/week7_results.json (every seed's
numbers, for the notebook) and source/week7_copy.npz (the weights of one run, float16).
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
RUNS, SHIPPED = ROOT / "experiments" / "runs", ROOT / "source"
sys.path[:0] = [str(ROOT), str(SHIPPED)]

import ready_blocks as ready

from autograder.reference import HybridDecoderBlock

SEEDS = range(5)
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
        np.savez_compressed(SHIPPED / "week7_copy.npz", **weights)
    whole, single = ready.scores(model, task, TESTED)
    return {"whole": whole, "single": single}


def path_of(arm, task, seed):
    return RUNS / f"week7_{arm.replace(' ', '_').replace(',', '').replace('+', '_')}_{task}_{seed}.json"


def run_missing():
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for arm in ARMS:
            for task in TASKS:
                path = path_of(arm, task, seed)
                if path.exists():
                    continue
                start = time.perf_counter()
                result = run(arm, task, seed)
                result["made_with"] = {
                    "seconds": round(time.perf_counter() - start),
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                }
                path.write_text(json.dumps(result, indent=1) + "\n")
                print(f"{path.stem}: {result['made_with']['seconds']} s, {list(result['whole'].values())}", flush=True)


def collected():
    """arm -> task -> "whole" or "single" -> one row per seed, one number per tested length."""
    runs = {
        (arm, task, seed): json.loads(path_of(arm, task, seed).read_text())
        for arm in ARMS
        for task in TASKS
        for seed in SEEDS
    }
    arms = {
        arm: {
            task: {
                what: [[round(number, 4) for number in runs[arm, task, seed][what].values()] for seed in SEEDS]
                for what in ("whole", "single")
            }
            for task in TASKS
        }
        for arm in ARMS
    }
    made_with = next(iter(runs.values()))["made_with"]
    return {
        "trained": list(TRAINED),
        "tested": list(TESTED),
        "seeds": len(SEEDS),
        "torch": made_with["torch"],
        "python": made_with["python"],
        "arms": arms,
    }


def cell(numbers):
    """mean (lowest to highest) over the seeds"""
    return f"{np.mean(numbers):.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


def tables(data):
    lines = [
        "# Week 7: what was measured",
        "",
        "Made by `experiments/capstone.py` (`make experiments`); do not edit. Mean (lowest to highest) over "
        f"{len(SEEDS)} training",
        f"seeds, torch {data['torch']}. Trained on {TRAINED[0]} to {TRAINED[1]} symbols; "
        "RoPE encoder, ALiBi decoder, greedy decoding of 200",
        'sequences. "From the start": cross-attention is told '
        'the decoding step and the index in the source; "from the end": the',
        "source is counted from its last symbol.",
        "",
    ]
    for what, title in (("whole", "Sequences written without a mistake"), ("single", "Right symbols")):
        for task in TASKS:
            lines += [
                f"### {title}: {task}",
                "",
                "| | " + " | ".join(map(str, TESTED)) + " |",
                "|---" * (len(TESTED) + 1) + "|",
            ]
            lines += [
                f"| {arm} | "
                + " | ".join(cell(column) for column in zip(*data["arms"][arm][task][what], strict=False))
                + " |"
                for arm in ARMS
            ]
            lines += [""]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no training, only the table and the shipped file")
    torch.set_num_threads(1)
    if not parser.parse_args().table:
        run_missing()
    results = collected()
    (ROOT / "experiments" / "results_week7.md").write_text(tables(results), encoding="utf-8")
    (SHIPPED / "week7_results.json").write_text(json.dumps(results) + "\n")
