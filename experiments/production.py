"""Week 8's experiment: a stream of text through a cache that stays small, with several rules for positions.

    python experiments/production.py            # trains week 5's RoPE models of seeds 1 to 4 if need be, then measures
    python experiments/production.py --table    # only the table and the shipped file, from experiments/runs/

Seed 0 is week 5's shipped checkpoint; the other four are trained as experiments/extrapolation.py trains them (their
weights in experiments/runs/, not kept in the repository). The script turns the runs into experiments/results_week8.md
(mean and spread over seeds, for people) and source/week8_results.json (every seed's numbers, for the notebook).
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
sys.path[:0] = [str(ROOT), str(SHIPPED), str(ROOT / "experiments")]

import extrapolation
import serving_lab as serving

from autograder.reference import streaming_cache

SEEDS = range(5)
SINKS = 4
WINDOW = serving.TRAINED
TRUE = "4 sinks + 60, true positions"
# rule: n tokens so far -> (tokens kept, their positions); each keeps at most 64
RULES = {
    "window of 64, cached": lambda n: streaming_cache(n, 0, WINDOW),
    "4 sinks + 60, numbered in the cache": lambda n: streaming_cache(n, SINKS, WINDOW - SINKS),
    TRUE: lambda n: 2 * streaming_cache(n, SINKS, WINDOW - SINKS)[:1],
    "window of 64, positions of a ring buffer": lambda n: (
        (kept := streaming_cache(n, 0, WINDOW)[0]),
        kept % WINDOW,
    ),
}


def one_pair(n, pair, true_there):
    """4 sinks + 60: true positions in one pair of channels and places in the cache in the others, or the reverse."""
    kept, places = streaming_cache(n, SINKS, WINDOW - SINKS)
    positions = (places if true_there else kept)[:, None].repeat(1, PAIRS)
    positions[:, pair] = kept if true_there else places
    return kept, positions


# The first pair past the boundary: one turn takes 199 positions, training showed 63.
PAIRS, SLOW = 8, 3
PAIR_RULES = {
    "true positions but for pair 3": lambda n: one_pair(n, SLOW, False),
    "true positions in pair 3 alone": lambda n: one_pair(n, SLOW, True),
}
DENSE, FRESH = "everything kept", "window of 64, recomputed"
ARMS = (DENSE, FRESH, *RULES)
EVERY = 4  # predictions per point of the curve
SETTLED = 128  # from here on every rule has dropped its first window
STRETCHES = ((SETTLED, serving.LENGTH), (100, 188), (200, 288))  # multiples of EVERY


def model_of(seed):
    if seed == 0:
        return serving.trained_model(SHIPPED / "week5_rope.npz")
    return extrapolation.model_of(RUNS, "lm", "rope", seed)


def run(seed):
    model, tokens = model_of(seed), serving.texts()
    losses = {DENSE: serving.dense(model, tokens)}
    losses |= {name: serving.stream(model, tokens, rule) for name, rule in RULES.items()}
    end = {name: serving.at_the_end(rows) for name, rows in losses.items()}
    end[FRESH] = float(serving.recomputed(model, tokens).mean())
    curves = {name: rows.mean(0).unflatten(0, (-1, EVERY)).mean(1).tolist() for name, rows in losses.items()}
    pairs = {name: serving.stream(model, tokens, rule) for name, rule in PAIR_RULES.items()}
    curves |= {name: rows.mean(0).unflatten(0, (-1, EVERY)).mean(1).tolist() for name, rows in pairs.items()}
    return {"end": end, "curves": curves, "first": serving.weight_on_the_first(model, tokens)}


def path_of(seed):
    return RUNS / f"week8_{seed}.json"


def run_missing():
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        if path_of(seed).exists():
            continue
        start = time.perf_counter()
        result = run(seed)
        result["made_with"] = {
            "torch": torch.__version__.split("+")[0],
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        path_of(seed).write_text(json.dumps(result, indent=1) + "\n")
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s, {result['end']}", flush=True)


def collected():
    """arm -> one number per seed; curves: arm -> one row per seed."""
    runs = [json.loads(path_of(seed).read_text()) for seed in SEEDS]
    return {
        "seeds": len(SEEDS),
        "made_with": runs[0]["made_with"],
        "every": EVERY,
        "end": {arm: [round(run["end"][arm], 4) for run in runs] for arm in ARMS},
        "curves": {
            arm: [[round(loss, 3) for loss in run["curves"][arm]] for run in runs] for arm in ARMS if arm != FRESH
        },
        "pairs": {rule: [[round(loss, 3) for loss in run["curves"][rule]] for run in runs] for rule in PAIR_RULES},
        "first": [[round(share, 4) for share in run["first"]] for run in runs],
    }


def cell(numbers, digits=2):
    """mean (lowest to highest) over the seeds"""
    text = f"{np.mean(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"
    zero = f"{0:.{digits}f}"
    return text.replace(f"-{zero}", zero)


def tables(data):
    made, fresh = data["made_with"], np.array(data["end"][FRESH])
    settled = {arm: np.array(rows)[:, SETTLED // EVERY :].mean(1) for arm, rows in data["curves"].items()}
    window = settled["window of 64, cached"]
    shares = [share for row in data["first"] for share in row]
    lines = [
        "# Week 8: what was measured",
        "",
        "Made by `experiments/production.py` (`make experiments`); do not edit. Mean (lowest to highest) over "
        f"{data['seeds']} training",
        f"seeds, PyTorch {made['torch']}, Python {made['python']}, NumPy {made['numpy']}. Week 5's language model with "
        "RoPE, two layers, trained on",
        f"{serving.TRAINED} characters; seed 0 is the shipped checkpoint. {len(serving.texts())} texts of "
        f"{serving.LENGTH} characters, fed one at a time. Loss in nats: of the last {serving.TARGETS}, and minus the",
        f"recomputed window of the same seed; settled, of the characters {SETTLED} to {serving.LENGTH - 1}, and minus the "
        "cached window.",
        "",
        "| | last | minus recomputed | settled | minus cached window |",
        "|---|---|---|---|---|",
    ]
    for arm in ARMS:
        row = [cell(data["end"][arm], 3), cell(np.array(data["end"][arm]) - fresh, 3)]
        row += [cell(settled[arm], 3), cell(settled[arm] - window, 3)] if arm in settled else ["", ""]
        lines += [f"| {arm} | " + " | ".join(row) + " |"]
    by_pair = {"true positions in all pairs": data["curves"][TRUE], **data["pairs"]}
    excess = {name: np.array(rows) - data["curves"]["window of 64, cached"] for name, rows in by_pair.items()}
    middle = excess["true positions in all pairs"].mean(0)
    peaks = [i for i in range(1, len(middle) - 1) if middle[i] > max(0.2, middle[i - 1], middle[i + 1])]
    header = [f"{start} to {end - 1}" for start, end in STRETCHES]
    lines += [
        "",
        "4 sinks + 60, minus the cached window, by the distance of the newest token to the first (a mean over characters;",
        "pair 3 makes a turn in 199):",
        "",
        "| | " + " | ".join(header) + " |",
        "|---" * (len(header) + 1) + "|",
    ]
    for name, rows in excess.items():
        row = [cell(rows[:, start // EVERY : end // EVERY].mean(1), 3) for start, end in STRETCHES]
        lines += [f"| {name} | " + " | ".join(row) + " |"]
    lines += [
        "",
        "Peaks of the first row's mean over the seeds, if above 0.2 nats: the points of the curve "
        f"({EVERY} characters each) that begin",
        f"at {', '.join(str(EVERY * i) for i in peaks)}.",
        "",
        "Share of the attention that a head gives to the first token of a text of "
        f"{serving.TRAINED} characters (queries of the second half,",
        f"8 heads, five seeds): {min(shares):.3f} to {max(shares):.3f}; an equal share would be about 0.02.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no run, only the table and the shipped file")
    torch.set_num_threads(1)
    if not parser.parse_args().table:
        run_missing()
    results = collected()
    (ROOT / "experiments" / "results_week8.md").write_text(tables(results), encoding="utf-8")
    (SHIPPED / "week8_results.json").write_text(json.dumps(results) + "\n")
