"""Week 5's experiments: train small models, measure them beyond their training length, write the shipped files.

    python experiments/extrapolation.py              # everything that is missing (about an hour on one core)
    python experiments/extrapolation.py --measure    # measure all trained models again, then the tables and files
    python experiments/extrapolation.py --table      # only the tables and the shipped files

Training and measuring are separate: every trained model saves its weights in experiments/runs/ (not kept in the
repository), every measured one its numbers, so an interrupted series resumes where it stopped. The script turns them
into experiments/results.md (mean and spread over seeds, for people), source/week5_results.json (every seed's numbers,
for the notebook) and the checkpoints beside it (NumPy .npz, float16; the state_dict and nothing else).
"""

import argparse
import json
import math
import statistics
from itertools import pairwise

import arms
import numpy as np
import ready_encodings as ready
import torch
import torch.nn.functional as F

from autograder import reference

RECORD = arms.Record("week5", arms.RUNS)
SEEDS = arms.SEEDS
TRAINED, TESTED, TARGETS, WINDOWS = 64, (64, 128, 256, 512), 32, 96
STEPS = 1000
LANGUAGE = (*ready.ENCODINGS, ready.HYBRID)
CLOSER = ("rope", "t5", "alibi", ready.HYBRID)  # measured by position, too
NEEDLE = ("alibi", "rope", ready.HYBRID)
ORDER = ("none", "sinusoidal", "learned", "rope", "alibi")


# ---- training -------------------------------------------------------------------------------------------------------


def untrained(task, encoding):
    """The model of a task, before training."""
    if task == "lm":  # the learned table has rows for all tested lengths
        return ready.SmallTransformer(len(ready.ALPHABET), encoding, max_len=max(TESTED))
    if task == "needle":
        return ready.SmallTransformer(ready.NEEDLE_TOKENS, encoding)
    return ready.SmallTransformer(ready.NUMBERS, encoding, max_len=32, n_outputs=2, is_causal=False, pool=True)


def train(model, task, seed):
    generator = torch.Generator().manual_seed(seed)
    if task == "lm":
        ready.train(model, ready.text_batches(ready.english()[0], TRAINED, 32, seed), STEPS)
    elif task == "needle":
        ready.train(model, lambda: ready.needles(32, 64, generator), 300, loss_of=ready.needle_loss)
    else:
        ready.train(model, lambda: ready.sequences(128, 8, generator)[:2], 800, learning_rate=3e-3)


# ---- language model -------------------------------------------------------------------------------------------------


@torch.no_grad()
def per_target(model, rows, length):
    """The loss of every prediction in the last ``length`` tokens of each row: (rows, length)."""
    parts = []
    for part in rows.split(32):
        logits = model(part[:, -length - 1 : -1])
        parts.append(
            F.cross_entropy(logits.flatten(0, 1), part[:, -length:].flatten(), reduction="none").view(len(part), length)
        )
    return torch.cat(parts)


def fixed_loss(model, length):
    """Loss on the last 32 targets, the same ones at every length."""
    rows = ready.windows(ready.english()[1], max(TESTED), WINDOWS)
    return per_target(model, rows, length)[:, -TARGETS:].mean().item()


def cut_loss(model, length):
    """Loss on all 512 targets of each text, cut into pieces of ``length``: the same targets at every length."""
    rows = ready.windows(ready.english()[1], max(TESTED), WINDOWS)
    pieces = [rows[:, start : start + length + 1] for start in range(0, max(TESTED), length)]
    return per_target(model, torch.cat(pieces), length).mean().item()


POSITIONS = (0, 1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512)  # edges of the groups of positions


def loss_by_position(model, count=384):
    """The mean loss of the targets in each group of positions, in texts of 512 characters."""
    losses = per_target(model, ready.windows(ready.english()[1], max(TESTED), count), max(TESTED)).mean(0)
    return [losses[start:end].mean().item() for start, end in pairwise(POSITIONS)]


def measure_language(encoding, seed, model):
    result = {"fixed": {n: fixed_loss(model, n) for n in TESTED}}
    if encoding in CLOSER:
        result |= {"cut": {n: cut_loss(model, n) for n in TESTED}, "by_position": loss_by_position(model)}
    if encoding == "rope":
        result |= {
            "extended": extended(model),
            "repaired": repaired(model),
            "by_scale": by_scale(model),
            "fine_tuned": fine_tuned(model, seed),
        }
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
    elif method == "log n":  # multiply the logits by ln n / ln n0: its square root goes on q and on k
        temperature = math.sqrt(max(1.0, reference.log_n_scale(seq_len, TRAINED)))
    elif method != "none":
        raise ValueError(method)
    return positions, frequencies, temperature


def measured(model, rotation_for, lengths):
    """Return the fixed-target losses with other rotation angles."""
    model.rotation = rotation_for
    losses = {n: fixed_loss(model, n) for n in lengths}
    model.rotation = model.plain_rotation
    return losses


def stretched(model, method, scale_of, lengths):
    return measured(model, lambda n: rotation(method, scale_of(n), model.head_dim, n), lengths)


def extended(model):
    """Measure without further training. "matched": the factor is length/64; "fixed 8": it is 8 at every length."""
    beyond = TESTED[1:]
    matched = {
        method: stretched(model, method, lambda n: n / TRAINED, beyond)
        for method in ("none", "PI", "NTK", "YaRN", "YaRN, no temperature", "log n")
    }
    fixed_8 = {
        method: stretched(model, method, lambda n: 8.0, TESTED)
        for method in ("PI", "NTK", "YaRN", "YaRN, no temperature")
    }
    dynamic = {
        f"dynamic NTK, scale {scale:g}": stretched(model, "dynamic NTK", lambda n, s=scale: s, TESTED)
        for scale in (1.0, 2.0, 8.0)
    }
    return {"matched": matched, "fixed 8": fixed_8, "dynamic": dynamic}


REPAIRS = {f"pair {pair}": (pair,) for pair in range(8)}
REPAIRS |= {"pairs 4 to 7": (4, 5, 6, 7), "pairs 3 to 7": (3, 4, 5, 6, 7)}


def repaired(model):
    """Measure with some pairs slowed down by length/64 and all others unchanged."""

    def rotation_for(pairs):
        def repaired_rotation(n):
            frequencies = ready.frequencies_of(model.head_dim)
            frequencies[list(pairs)] /= n / TRAINED
            return torch.arange(n), frequencies, 1.0

        return repaired_rotation

    return {name: measured(model, rotation_for(pairs), TESTED[1:]) for name, pairs in REPAIRS.items()}


SCALES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def by_scale(model):
    """Loss against the scale of the method, at 4x and 8x."""
    return {
        method: {
            n: [stretched(model, method, lambda _, s=scale: float(s), (n,))[n] for scale in SCALES] for n in TESTED[2:]
        }
        for method in ("NTK", "YaRN")
    }


def fine_tuned(model, seed, steps=25, length=256):
    """Train 25 further steps at four times the training length and return the loss there."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    result = {}
    for method in ("none", "PI", "NTK", "YaRN"):
        model.load_state_dict(weights)
        model.rotation = lambda n, method=method: rotation(method, length / TRAINED, model.head_dim, n)
        ready.train(model, ready.text_batches(ready.english()[0], length, 16, 1000 + seed), steps, learning_rate=5e-4)
        result[method] = fixed_loss(model, length)
    model.load_state_dict(weights)
    model.rotation = model.plain_rotation
    return result


# ---- needle ---------------------------------------------------------------------------------------------------------

NEEDLE_TESTED = (64, 128, 256, 512, 1024)
DEPTHS = 8  # equal parts of the haystack, the first at the beginning
FAR = 700  # only the flattest slope reaches this far


@torch.no_grad()
def answers(model, tokens):
    """The model's distribution over answers: (haystacks, tokens)."""
    return torch.cat([model(part)[:, -1] for part in tokens.split(16)]).softmax(-1)


@torch.no_grad()
def needle_scores(model, length, size=128):
    """Share of needles found in the first quarter of the haystack, and the loss on the last 32 filler targets."""
    tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(10_000), far=True)
    logits = torch.cat([model(part) for part in tokens.split(32)])
    return (
        (logits[:, -1].argmax(-1) == targets[:, -1]).float().mean().item(),
        F.cross_entropy(logits[:, -34:-2].flatten(0, 1), targets[:, -34:-2].flatten()).item(),
    )


def haystacks(length, size):
    """Return haystacks with needles anywhere: tokens, the value of each needle and its position."""
    tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(5))
    return tokens, targets[:, -1], (tokens == ready.MARK).int().argmax(1)


def needle_map(model, size=256):
    """Share found by depth: one row per length, one number per part of the haystack."""
    rows = []
    for length in NEEDLE_TESTED:
        tokens, value, at = haystacks(length, size)
        found = (answers(model, tokens).argmax(-1) == value).float()
        part = at * DEPTHS // length
        rows.append([found[part == depth].mean().item() for depth in range(DEPTHS)])
    return rows


def by_value(model, size=512, length=1024):
    """Among needles farther away than FAR: the share found of each value, and the commonest wrong answer."""
    tokens, value, at = haystacks(length, size)
    answer = answers(model, tokens).argmax(-1)
    far = length - 1 - at > FAR
    found = [((answer == value)[far & (value == ready.FILLERS + v)]).float().mean().item() for v in range(ready.VALUES)]
    wrong = answer[far & (answer != value)].bincount(minlength=ready.NEEDLE_TOKENS)
    return {
        "found": found,
        "default": int(wrong.argmax()) - ready.FILLERS,
        "default share": (wrong.max() / wrong.sum()).item(),
    }


@torch.no_grad()
def with_log_n(model, n, measure):
    """Measure with all content logits times ln n / ln 64: the factor scales the queries, so a bias stays as it is."""
    queries = [block.attention.qkv.weight[: model.d_model] for block in model.blocks]
    before = [weight.clone() for weight in queries]
    for weight in queries:
        weight *= reference.log_n_scale(n, TRAINED)
    result = measure()
    for weight, old in zip(queries, before, strict=True):
        weight.copy_(old)
    return result


def measure_needle(encoding, seed, model):
    scores = {n: needle_scores(model, n) for n in NEEDLE_TESTED}
    result = {
        "found": {n: found for n, (found, _) in scores.items()},
        "filler": {n: filler for n, (_, filler) in scores.items()},
        "map": needle_map(model),
    }
    if encoding == "alibi":
        result["log n"] = {n: with_log_n(model, n, lambda n=n: needle_scores(model, n)[0]) for n in NEEDLE_TESTED}
        result["by_value"] = by_value(model)
    if encoding == ready.HYBRID:
        result["at 4096"] = needle_scores(model, 4096, size=16)[0]
    return result


# ---- ascending ------------------------------------------------------------------------------------------------------

ORDER_TESTED = (8, 16, 32)


@torch.no_grad()
def measure_order(encoding, seed, model, size=1000):
    """Accuracy by length: over all sequences (half ascending) and for each kind."""

    def scores(tokens, answer, kind):
        right = (model(tokens).argmax(-1) == answer).float()
        return {"all": right.mean().item()} | {
            name: right[kind == index].mean().item() for index, name in enumerate(ready.KINDS)
        }

    fresh = lambda: torch.Generator().manual_seed(10_000)  # noqa: E731
    result = {length: scores(*ready.sequences(size, length, fresh())) for length in ORDER_TESTED}
    if encoding == "rope":
        result["close"] = scores(*ready.sequences(size, 8, fresh(), below=16))
    return result


# ---- runs -----------------------------------------------------------------------------------------------------------

MEASURE = {"lm": measure_language, "needle": measure_needle, "order": measure_order}
JOBS = [
    (task, encoding, seed)
    for task, encodings in (("lm", LANGUAGE), ("needle", NEEDLE), ("order", ORDER))
    for seed in SEEDS
    for encoding in encodings
]


def model_of(task, encoding, seed):
    """Return the trained model: from its file, or trained now and saved."""
    torch.manual_seed(seed)
    model = untrained(task, encoding)
    return arms.kept(f"{task}_{encoding}_{seed}", model, lambda model: train(model, task, seed))


def measure_missing():
    for task, encoding, seed in JOBS:
        run = lambda seed, t=task, e=encoding: MEASURE[t](e, seed, model_of(t, e, seed))  # noqa: E731
        RECORD.measure(f"{task}, {encoding}", seed, run)


# ---- tables and shipped files ---------------------------------------------------------------------------------------

KINDS = ("all", *ready.KINDS)


def collected():
    """Return all measured runs as one nested dict: ... -> one entry per seed."""

    def rows(task, encoding, *path):
        found = RECORD.values(f"{task}, {encoding}", *path)
        return [list(value.values()) if isinstance(value, dict) else value for value in found]

    rope = RECORD.values("lm, rope")[0]
    versions = RECORD.versions()
    return {
        "versions": {"Python": versions["python"], "PyTorch": versions["torch"]},
        "trained": TRAINED,
        "tested": list(TESTED),
        "needle_tested": list(NEEDLE_TESTED),
        "order_tested": list(ORDER_TESTED),
        "positions": list(POSITIONS),
        "scales": list(SCALES),
        "fixed": {e: rows("lm", e, "fixed") for e in LANGUAGE},
        "cut": {e: rows("lm", e, "cut") for e in CLOSER},
        "by_position": {e: rows("lm", e, "by_position") for e in CLOSER},
        "extended": {
            group: {method: rows("lm", "rope", "extended", group, method) for method in methods}
            for group, methods in rope["extended"].items()
        },
        "repaired": {name: rows("lm", "rope", "repaired", name) for name in REPAIRS},
        "by_scale": {
            method: {n: rows("lm", "rope", "by_scale", method, n) for n in lengths}
            for method, lengths in rope["by_scale"].items()
        },
        "fine_tuned": {method: rows("lm", "rope", "fine_tuned", method) for method in rope["fine_tuned"]},
        "needle": {e: {what: rows("needle", e, what) for what in ("found", "filler", "map")} for e in NEEDLE},
        "needle_log_n": rows("needle", "alibi", "log n"),
        "needle_by_value": RECORD.values("needle, alibi", "by_value"),
        "needle_at_4096": rows("needle", ready.HYBRID, "at 4096"),
        "order": {
            e: {
                kind: [[run[str(n)][kind] for n in ORDER_TESTED] for run in RECORD.values(f"order, {e}")]
                for kind in KINDS
            }
            for e in ORDER
        },
        "order_close": {kind: rows("order", "rope", "close", kind) for kind in KINDS},
    }


def cell(numbers):
    """mean ± standard deviation (lowest to highest) over the seeds"""
    mean, deviation = statistics.mean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    return f"{mean:.2f} ± {deviation:.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


def table(title, columns, named_rows):
    """A Markdown table, one line per arm; ``named_rows``: name -> one row per seed."""
    lines = [f"### {title}", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, rows in named_rows.items():
        if not rows:
            continue
        count = "" if len(rows) == len(SEEDS) else f" ({len(rows)} seeds)"
        lines.append(f"| {name}{count} | " + " | ".join(cell(column) for column in zip(*rows, strict=True)) + " |")
    return [*lines, ""]


def paired(data):
    """name -> differences between two rows of the tables, one per seed; none while a seed is missing."""
    fixed, cut, matched, fixed_8 = data["fixed"], data["cut"], data["extended"]["matched"], data["extended"]["fixed 8"]
    first, *beyond = TESTED
    last = beyond[-1]

    def column(rows, n, tested=TESTED):
        return [row[tested.index(n)] for row in rows]

    def best(method):
        """The scale with the lowest mean loss at the last length, and its losses."""
        rows = data["by_scale"][method][str(last)]
        scale = min(SCALES, key=lambda s: statistics.mean(column(rows, s, SCALES)))
        return scale, column(rows, scale, SCALES)

    (ntk_scale, ntk), (yarn_scale, yarn) = best("NTK"), best("YaRN")
    pairs = {
        f"{n}: {one} minus {other}": (column(matched[one], n, beyond), column(matched[other], n, beyond))
        for one, other in (("PI", "none"), ("NTK", "YaRN"), ("YaRN, no temperature", "YaRN"))
        for n in beyond
    }
    pairs[f"{last}: NTK at its best s = {ntk_scale} minus YaRN at its best s = {yarn_scale}"] = (ntk, yarn)
    pairs |= {
        f"{first}: {method}, s = 8, minus none": (column(fixed_8[method], first), column(fixed["rope"], first))
        for method in ("PI", "NTK", "YaRN")
    }
    pairs[f"{first}: hybrid minus RoPE"] = (column(fixed[ready.HYBRID], first), column(fixed["rope"], first))
    for name, rows in (("fixed targets", fixed), ("all targets, in pieces", cut)):
        pairs[f"ALiBi, {name}: {last} minus {first}"] = (column(rows["alibi"], last), column(rows["alibi"], first))
    return {
        name: [[a - b] for a, b in zip(one, other, strict=True)] if len(one) == len(other) == len(SEEDS) else []
        for name, (one, other) in pairs.items()
    }


def lengths(tested, first):
    return [f"{n} ({n / first:g}x)" for n in tested]


def tables(data):
    """The text of results.md."""
    names, here, beyond = ready.NAMES, lengths(TESTED, TRAINED), lengths(TESTED[1:], TRAINED)
    made_with = ", ".join(f"{name} {' and '.join(found)}" for name, found in data["versions"].items())
    lines = [
        "# Week 5: what was measured",
        "",
        "Made by `experiments/extrapolation.py` (`make experiments`); do not edit. Mean ± standard deviation",
        f"(lowest to highest) over {len(SEEDS)} training seeds, or as many as the row says. Losses in nats per",
        f"character on the same last {TARGETS} targets of {WINDOWS} windows unless the title says otherwise.",
        f"Made with {made_with}.",
        "",
        "## Language model",
        "",
    ]
    lines += table("Six encodings and the hybrid, fixed targets", here, {names[e]: data["fixed"][e] for e in LANGUAGE})
    lines += table(
        "The same models, all 512 targets of each text, cut into pieces of this length",
        here,
        {names[e]: data["cut"][e] for e in CLOSER},
    )
    groups = [f"{low + 1}" if high == low + 1 else f"{low + 1}-{high}" for low, high in pairwise(POSITIONS)]
    lines += table(
        "Loss by position in texts of 512 (trained on 64), other targets at every position",
        groups,
        {names[e]: data["by_position"][e] for e in CLOSER},
    )
    lines += ["## RoPE, extended", ""]
    lines += table("No further training, stretched by length/64", beyond, data["extended"]["matched"])
    lines += table("No further training, only some pairs slowed down by length/64", beyond, data["repaired"])
    for n in data["by_scale"]["NTK"]:
        lines += table(
            f"Loss at {n} by the scale s",
            [f"s = {scale}" for scale in SCALES],
            {method: data["by_scale"][method][n] for method in data["by_scale"]},
        )
    lines += table("No further training, stretched by 8 at every length", here, data["extended"]["fixed 8"])
    lines += table("Dynamic NTK, by its scale", here, data["extended"]["dynamic"])
    lines += table(
        "25 further steps at 256",
        lengths((256,), TRAINED),
        {method: [[value] for value in values] for method, values in data["fine_tuned"].items()},
    )
    lines += ["## Losses of the same seed, one minus the other", ""]
    lines += table(
        "Differences in nats by length, RoPE stretched by length/64 where no s is named", ["difference"], paired(data)
    )
    lines += ["## Needle", ""]
    tested = lengths(NEEDLE_TESTED, TRAINED)
    lines += table(
        "Share of needles found in the first quarter (guessing: 0.06)",
        tested,
        {names[e]: data["needle"][e]["found"] for e in NEEDLE},
    )
    lines += table(
        "The same with the content logits times ln n / ln 64", tested, {names["alibi"]: data["needle_log_n"]}
    )
    lines += table(
        "Loss on the last 32 filler targets (best possible: 0.50)",
        tested,
        {names[e]: data["needle"][e]["filler"] for e in NEEDLE},
    )
    lines += [
        f"The hybrid at 4,096 (64x), 16 haystacks: {cell(data['needle_at_4096'])} found.",
        "",
        f"### ALiBi at 1,024, needles more than {FAR} away: share found of each value",
        "",
        "| seed | " + " | ".join(map(str, range(ready.VALUES))) + " | commonest wrong answer (its share) |",
        "|---" * (ready.VALUES + 2) + "|",
    ]
    for seed, run in enumerate(data["needle_by_value"]):
        shares = " | ".join(f"{share:.2f}" for share in run["found"])
        lines.append(f"| {seed} | {shares} | {run['default']} ({run['default share']:.2f}) |")
    lines += ["", "## Ascending or not", ""]
    for kind in KINDS:
        title = "Accuracy, all sequences" if kind == "all" else f"Accuracy on sequences of the kind: {kind}"
        lines += table(title, lengths(ORDER_TESTED, 8), {names[e]: data["order"][e][kind] for e in ORDER})
    lines += table(
        "RoPE on 8 numbers that lie as close together as 32 (8 below 16)",
        KINDS,
        {names["rope"]: list(zip(*(data["order_close"][kind] for kind in KINDS), strict=True))},
    )
    return "\n".join(lines)


def ship():
    data = collected()
    (arms.HERE / "results.md").write_text(tables(data), encoding="utf-8")
    (arms.SHIPPED / "week5_results.json").write_text(json.dumps(data) + "\n")
    for run, name in (("lm_rope_0", "week5_rope.npz"), ("needle_alibi_0", "week5_needle.npz")):
        with np.load(arms.RUNS / f"{run}.npz") as arrays:
            np.savez(arms.SHIPPED / name, **{key: arrays[key].astype(np.float16) for key in arrays.files})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure all again")
    parser.add_argument("--table", action="store_true", help="no training, no measuring")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.measure:
        RECORD.runs = {}
    if not arguments.table:
        measure_missing()
    ship()
