"""Week 5's experiments: train small models, measure them beyond their training length, write the shipped files.

    python experiments/extrapolation.py            # everything that is missing (about 40 minutes on one core)
    python experiments/extrapolation.py --table    # only the tables and the shipped files, from experiments/runs/

Every run leaves its numbers and weights in experiments/runs/ (not kept in the repository), so an interrupted series goes
on where it stopped; delete a file to have that run made again. From these come
experiments/results.md (mean and spread over seeds, for people), source/week5_results.json (every seed's numbers, for the
notebook) and the checkpoints beside it (NumPy .npz, float16; the state_dict and nothing else).
"""

import argparse
import json
import math
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[1]
RUNS, SHIPPED = ROOT / "experiments" / "runs", ROOT / "source"
sys.path[:0] = [str(ROOT), str(SHIPPED)]

import ready_encodings as ready  # noqa: E402

from autograder import reference  # noqa: E402

SEEDS = range(5)
TRAINED, TESTED, TARGETS, WINDOWS = 64, (64, 128, 256, 512), 32, 96
STEPS = 1000


# ---- language model: six encodings ----------------------------------------------------------------------------------


def language_model(encoding, seed):
    """A character model trained on 64 characters at a time; the learned table has rows for all tested lengths."""
    torch.manual_seed(seed)
    model = ready.SmallTransformer(len(ready.ALPHABET), encoding, max_len=max(TESTED))
    ready.train(model, ready.text_batches(ready.english()[0], TRAINED, 32, seed), STEPS)
    return model


@torch.no_grad()
def losses(model, lengths=TESTED):
    """Loss on the last 32 targets, the same ones at every length, and the mean over the whole window."""
    text = ready.windows(ready.english()[1], max(TESTED), WINDOWS)
    fixed, whole = {}, {}
    for length in lengths:
        parts = []
        for rows in text.split(32):
            logits = model(rows[:, -length - 1:-1])
            parts.append(F.cross_entropy(logits.flatten(0, 1), rows[:, -length:].flatten(), reduction="none")
                         .view(len(rows), length))
        per_target = torch.cat(parts)
        fixed[length] = per_target[:, -TARGETS:].mean().item()
        whole[length] = per_target.mean().item()
    return fixed, whole


def run_encoding(encoding, seed):
    model = language_model(encoding, seed)
    fixed, whole = losses(model)
    result = {"fixed": fixed, "window": whole}
    if encoding == "rope":
        result |= {"extended": extended(model), "fine_tuned": fine_tuned(model, seed)}
    save_weights(model, f"lm_{encoding}_{seed}")
    return result


# ---- RoPE, extended -------------------------------------------------------------------------------------------------


def rotation(method, scale, head_dim, seq_len):
    """(positions, frequencies, temperature) of a method with this scale factor."""
    positions, temperature = torch.arange(seq_len), 1.0
    frequencies = ready.frequencies_of(head_dim)
    if method == "PI":
        positions = reference.position_interpolation(positions, scale)
    elif method == "NTK":
        frequencies = ready.frequencies_of(head_dim, reference.ntk_base(10000.0, scale, head_dim))
    elif method == "dynamic NTK":
        base = reference.dynamic_ntk_base(10000.0, scale, head_dim, seq_len, TRAINED)
        frequencies = ready.frequencies_of(head_dim, base)
    elif method in ("YaRN", "YaRN, no temperature"):
        frequencies = reference.yarn_frequencies(head_dim, scale, TRAINED)
        temperature = reference.yarn_temperature(scale) if method == "YaRN" else 1.0
    elif method == "log n":  # logits times ln n / ln n0: its square root on q and on k
        temperature = math.sqrt(max(1.0, reference.log_n_scale(seq_len, TRAINED)))
    elif method != "none":
        raise ValueError(method)
    return positions, frequencies, temperature


def measured(model, method, scale_of, lengths):
    model.rotation = lambda seq_len: rotation(method, scale_of(seq_len), model.head_dim, seq_len)
    fixed, _ = losses(model, lengths)
    model.rotation = model.plain_rotation
    return fixed


def extended(model):
    """Without any further training. "matched": the factor is length/64; "fixed 8": it is 8 at every length."""
    beyond = TESTED[1:]
    matched = {method: measured(model, method, lambda n: n / TRAINED, beyond)
               for method in ("none", "PI", "NTK", "YaRN", "YaRN, no temperature", "log n")}
    fixed_8 = {method: measured(model, method, lambda n: 8.0, TESTED)
               for method in ("PI", "NTK", "YaRN", "YaRN, no temperature")}
    dynamic = {f"dynamic NTK, scale {scale:g}": measured(model, "dynamic NTK", lambda n, s=scale: s, TESTED)
               for scale in (1.0, 2.0, 8.0)}
    return {"matched": matched, "fixed 8": fixed_8, "dynamic": dynamic}


def fine_tuned(model, seed, steps=25, length=256):
    """25 further steps at four times the training length, and the loss there."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    result = {}
    for method in ("none", "PI", "NTK", "YaRN"):
        model.load_state_dict(weights)
        model.rotation = lambda n, method=method: rotation(method, length / TRAINED, model.head_dim, n)
        ready.train(model, ready.text_batches(ready.english()[0], length, 16, 1000 + seed), steps, learning_rate=5e-4)
        result[method] = losses(model, (length,))[0][length]
    model.load_state_dict(weights)
    model.rotation = model.plain_rotation
    return result


# ---- needle ---------------------------------------------------------------------------------------------------------

NEEDLE_TESTED = (64, 128, 256, 512, 1024)


def run_needle(encoding, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = ready.SmallTransformer(ready.NEEDLE_TOKENS, encoding)
    ready.train(model, lambda: ready.needles(32, 64, generator), 300, loss_of=ready.needle_loss)
    found, filler = needle_scores(model, NEEDLE_TESTED)
    save_weights(model, f"needle_{encoding}_{seed}")
    return {"found": found, "filler": filler}


@torch.no_grad()
def needle_scores(model, lengths, size=128):
    """Share of needles found in the first quarter of the haystack, and the loss on the last 32 filler targets."""
    found, filler = {}, {}
    for length in lengths:
        tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(10_000), far=True)
        logits = torch.cat([model(part) for part in tokens.split(32)])
        found[length] = (logits[:, -1].argmax(-1) == targets[:, -1]).float().mean().item()
        filler[length] = F.cross_entropy(logits[:, -34:-2].flatten(0, 1), targets[:, -34:-2].flatten()).item()
    return found, filler


# ---- ascending ------------------------------------------------------------------------------------------------------

ORDER_TESTED = (8, 16, 32)


def run_order(encoding, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = ready.SmallTransformer(ready.NUMBERS, encoding, max_len=32, n_outputs=2, is_causal=False, pool=True)
    ready.train(model, lambda: ready.sequences(128, 8, generator)[:2], 800, learning_rate=3e-3)
    return {"correct": order_scores(model)}


@torch.no_grad()
def order_scores(model, size=1000):
    """Accuracy by length: over all sequences (half ascending) and for each kind."""
    result = {}
    for length in ORDER_TESTED:
        tokens, answer, kind = ready.sequences(size, length, torch.Generator().manual_seed(10_000))
        right = (model(tokens).argmax(-1) == answer).float()
        result[length] = {"all": right.mean().item()} | {
            name: right[kind == index].mean().item() for index, name in enumerate(ready.KINDS)}
    return result


# ---- files ----------------------------------------------------------------------------------------------------------


def save_weights(model, name):
    RUNS.mkdir(parents=True, exist_ok=True)
    arrays = {key: value.numpy().astype(np.float16) for key, value in model.state_dict().items()}
    np.savez(RUNS / f"{name}.npz", **arrays)


JOBS = ([(f"lm_{encoding}_{seed}", run_encoding, encoding, seed) for seed in SEEDS for encoding in ready.ENCODINGS]
        + [(f"needle_{encoding}_{seed}", run_needle, encoding, seed) for seed in SEEDS
           for encoding in ("alibi", "rope")]
        + [(f"order_{encoding}_{seed}", run_order, encoding, seed) for seed in SEEDS
           for encoding in ("none", "sinusoidal", "learned", "rope", "alibi")])


def run_missing(only=""):
    RUNS.mkdir(parents=True, exist_ok=True)
    for number, (name, job, encoding, seed) in enumerate(JOBS, start=1):
        path = RUNS / f"{name}.json"
        if path.exists() or not name.startswith(only):
            continue
        start = time.perf_counter()
        result = job(encoding, seed)
        result["made_with"] = {"seconds": round(time.perf_counter() - start), "torch": torch.__version__,
                               "python": platform.python_version()}
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{number}/{len(JOBS)} {name}: {result['made_with']['seconds']} s", flush=True)


# ---- tables and shipped files ---------------------------------------------------------------------------------------

KINDS = ("all", *ready.KINDS)


def collected():
    """All runs as one nested dict: ... -> one row per seed, one number per length."""
    def rows(pattern, *path):
        found = []
        for seed in SEEDS:
            value = json.loads((RUNS / f"{pattern}_{seed}.json").read_text())
            for key in path:
                value = value[key]
            by_length = isinstance(value, dict)
            found.append([round(number, 4) for number in value.values()] if by_length else round(value, 4))
        return found

    example = json.loads((RUNS / "lm_rope_0.json").read_text())
    return {
        "trained": TRAINED, "tested": list(TESTED), "needle_tested": list(NEEDLE_TESTED),
        "order_tested": list(ORDER_TESTED),
        "fixed": {e: rows(f"lm_{e}", "fixed") for e in ready.ENCODINGS},
        "window": {e: rows(f"lm_{e}", "window") for e in ready.ENCODINGS},
        "extended": {group: {method: rows("lm_rope", "extended", group, method) for method in methods}
                     for group, methods in example["extended"].items()},
        "fine_tuned": {method: rows("lm_rope", "fine_tuned", method) for method in example["fine_tuned"]},
        "needle": {e: {what: rows(f"needle_{e}", what) for what in ("found", "filler")} for e in ("alibi", "rope")},
        "order": {e: {kind: [[round(run["correct"][str(n)][kind], 4) for n in ORDER_TESTED] for run in order_runs(e)]
                      for kind in KINDS} for e in ("none", "sinusoidal", "learned", "rope", "alibi")},
    }


def order_runs(encoding):
    return [json.loads((RUNS / f"order_{encoding}_{seed}.json").read_text()) for seed in SEEDS]


def cell(numbers):
    """mean ± standard deviation (lowest to highest) over the seeds"""
    mean, deviation = statistics.mean(numbers), statistics.stdev(numbers)
    return f"{mean:.2f} ± {deviation:.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


def table(title, lengths, trained, named_rows):
    """A Markdown table, one line per arm; ``named_rows``: name -> one row per seed."""
    lines = [f"### {title}", "", "| | " + " | ".join(f"{n} ({n / trained:g}x)" for n in lengths) + " |",
             "|---" * (len(lengths) + 1) + "|"]
    for name, rows in named_rows.items():
        lines.append(f"| {name} | " + " | ".join(cell(column) for column in zip(*rows, strict=True)) + " |")
    return [*lines, ""]


def tables(data):
    """The text of results.md."""
    names, beyond = ready.NAMES, TESTED[1:]
    lines = ["# Week 5: what was measured", "",
             "Made by `experiments/extrapolation.py` (`make experiments`); do not edit. Mean ± standard deviation (lowest to",
             f"highest) over {len(SEEDS)} training seeds. Losses in nats per character on the same last {TARGETS} targets of "
             f"{WINDOWS} windows", "unless the title says otherwise.", "", "## Language model", ""]
    lines += table("Six encodings, fixed targets", TESTED, TRAINED, {names[e]: data["fixed"][e] for e in ready.ENCODINGS})
    lines += table("The same models, mean over the whole window", TESTED, TRAINED,
                   {names[e]: data["window"][e] for e in ready.ENCODINGS})
    lines += ["## RoPE, extended", ""]
    lines += table("No further training, stretched by length/64", beyond, TRAINED, data["extended"]["matched"])
    lines += table("No further training, stretched by 8 at every length", TESTED, TRAINED, data["extended"]["fixed 8"])
    lines += table("Dynamic NTK, by its scale", TESTED, TRAINED, data["extended"]["dynamic"])
    lines += table("25 further steps at 256", (256,), TRAINED,
                   {method: [[value] for value in values] for method, values in data["fine_tuned"].items()})
    lines += ["## Needle in the first quarter", ""]
    lines += table("Share of needles found (guessing: 0.06)", NEEDLE_TESTED, 64,
                   {names[e]: data["needle"][e]["found"] for e in data["needle"]})
    lines += table("Loss on the last 32 filler targets (best possible: 0.50)", NEEDLE_TESTED, 64,
                   {names[e]: data["needle"][e]["filler"] for e in data["needle"]})
    lines += ["## Ascending or not", ""]
    for kind in KINDS:
        title = "Accuracy, all sequences" if kind == "all" else f"Accuracy on sequences of the kind: {kind}"
        lines += table(title, ORDER_TESTED, 8, {names[e]: data["order"][e][kind] for e in data["order"]})
    return "\n".join(lines)


def ship():
    data = collected()
    (ROOT / "experiments" / "results.md").write_text(tables(data), encoding="utf-8")
    (SHIPPED / "week5_results.json").write_text(json.dumps(data) + "\n")
    for run, name in (("lm_rope_0", "week5_rope.npz"), ("needle_alibi_0", "week5_needle.npz")):
        source = RUNS / f"{run}.npz"
        if source.exists():  # weights are not kept in the repository beside the shipped ones
            (SHIPPED / name).write_bytes(source.read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no training, only the tables and shipped files")
    parser.add_argument("--only", default="", help="only runs whose name begins like this")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        run_missing(arguments.only)
    if not arguments.only:
        ship()
