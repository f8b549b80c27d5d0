"""Week 8's experiment: a stream of text through a cache that stays small, with several rules for positions.

    python experiments/production.py            # trains week 5's RoPE models of seeds 1 to 4 if need be, then measures
    python experiments/production.py --table    # only the table and the shipped file, from experiments/runs/

Seed 0 is week 5's shipped checkpoint; the other four are trained as experiments/extrapolation.py trains them (their
weights in experiments/runs/, not kept in the repository). The script turns the runs into experiments/results_week8.md
(mean and spread over seeds, for people) and source/week8_results.json (every seed's numbers, for the notebook).
"""

import argparse
import json

import arms
import extrapolation
import numpy as np
import serving_lab as serving
import torch

from autograder.reference import streaming_cache

RECORD = arms.Record("week8", arms.RUNS)
SEEDS = arms.SEEDS
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
        return serving.trained_model(arms.SHIPPED / "week5_rope.npz")
    return extrapolation.model_of("lm", "rope", seed)


def run(seed):
    model, tokens = model_of(seed), serving.texts()
    losses = {DENSE: serving.dense(model, tokens)}
    losses |= {name: serving.stream(model, tokens, rule) for name, rule in RULES.items()}
    end = {name: serving.at_the_end(rows) for name, rows in losses.items()}
    end[FRESH] = float(serving.recomputed(model, tokens).mean())
    losses |= {name: serving.stream(model, tokens, rule) for name, rule in PAIR_RULES.items()}
    curves = {name: rows.mean(0).unflatten(0, (-1, EVERY)).mean(1).tolist() for name, rows in losses.items()}
    curves = {name: [round(loss, 3) for loss in curve] for name, curve in curves.items()}
    return {"end": end, "curves": curves, "first": serving.weight_on_the_first(model, tokens)}


def measure():
    for seed in SEEDS:
        RECORD.measure("stream", seed, run)


def collected():
    """arm -> one number per seed; curves: arm -> one row per seed."""
    return {
        "seeds": len(SEEDS),
        "made_with": RECORD.made_with(),
        "every": EVERY,
        "end": {arm: RECORD.values("stream", "end", arm) for arm in ARMS},
        "curves": {arm: RECORD.values("stream", "curves", arm) for arm in ARMS if arm != FRESH},
        "pairs": {rule: RECORD.values("stream", "curves", rule) for rule in PAIR_RULES},
        "first": RECORD.values("stream", "first"),
    }


def tables(data):
    made, fresh = data["made_with"], np.array(data["end"][FRESH])
    settled = {arm: np.array(rows)[:, SETTLED // EVERY :].mean(1) for arm, rows in data["curves"].items()}
    window = settled["window of 64, cached"]
    shares = [share for row in data["first"] for share in row]
    lines = [
        "# Week 8: what was measured",
        "",
        *arms.text(
            f"""Made by `experiments/production.py` (`make experiments`); do not edit. Mean (lowest to highest) over
            {data["seeds"]} training seeds, PyTorch {made["torch"]}, Python {made["python"]}. Week 5's language model
            with RoPE, two layers, trained on {serving.TRAINED} characters; seed 0 is the shipped checkpoint.
            {len(serving.texts())} texts of {serving.LENGTH} characters, fed one at a time. Loss in nats: of the last
            {serving.TARGETS}, and minus the recomputed window of the same seed; settled, of the characters {SETTLED}
            to {serving.LENGTH - 1}, and minus the cached window."""
        ),
    ]
    rows = []
    for arm in ARMS:
        row = [arm, arms.cell(data["end"][arm]), arms.cell(np.array(data["end"][arm]) - fresh)]
        rows.append(row + ([arms.cell(settled[arm]), arms.cell(settled[arm] - window)] if arm in settled else ["", ""]))
    lines += arms.table("Loss", ["", "last", "minus recomputed", "settled", "minus cached window"], rows)
    by_pair = {"true positions in all pairs": data["curves"][TRUE], **data["pairs"]}
    excess = {name: np.array(rows) - data["curves"]["window of 64, cached"] for name, rows in by_pair.items()}
    middle = excess["true positions in all pairs"].mean(0)
    peaks = [i for i in range(1, len(middle) - 1) if middle[i] > max(0.2, middle[i - 1], middle[i + 1])]
    header = [f"{start} to {end - 1}" for start, end in STRETCHES]
    rows = [
        [name, *(arms.cell(found[:, start // EVERY : end // EVERY].mean(1)) for start, end in STRETCHES)]
        for name, found in excess.items()
    ]
    title = "4 sinks + 60, minus the cached window, by the distance of the newest token to the first"
    lines += arms.table(f"{title} (a mean over characters; pair 3 makes a turn in 199)", ["", *header], rows)
    lines += arms.text(
        f"""Peaks of the first row's mean over the seeds, if above 0.2 nats: the points of the curve ({EVERY} characters
        each) that begin at {", ".join(str(EVERY * i) for i in peaks)}.""",
        f"""Share of the attention that a head gives to the first token of a text of {serving.TRAINED} characters
        (queries of the second half, 8 heads, five seeds): {min(shares):.3f} to {max(shares):.3f}; an equal share would
        be about 0.02.""",
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no run, only the table and the shipped file")
    torch.set_num_threads(1)
    if not parser.parse_args().table:
        measure()
    results = collected()
    (arms.HERE / "results_week8.md").write_text(tables(results), encoding="utf-8")
    (arms.SHIPPED / "week8_results.json").write_text(json.dumps(results) + "\n")
