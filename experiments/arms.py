"""Scores, masks, records and tables that the experiments share.

experiments/distances*.py ask the same question in five weeks. A model fails beyond its training length, where two things are new: distances that
training has not shown, and more keys. So we change each of the two alone, in the trained model and without retraining:
distances beyond a reach count as the reach, and each query sees only some of its keys.
"""

import json
import math
import platform
import statistics
import sys
import textwrap
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RUNS, SHIPPED = HERE / "runs", ROOT / "source"
sys.path[:0] = [str(ROOT), str(SHIPPED), str(HERE)]

import ready_encodings as ready

SEEDS = range(5)
FOUR = ("familiar, few", "familiar, all", "new, few", "new, all")


# ---- scores and masks -----------------------------------------------------------------------------------------------


def rotary_scores(q, k, reach=None, causal=True):
    """Return RoPE's scaled scores, with distances beyond ``reach`` counted as ``reach`` (on both sides unless causal).

    q: (batch, heads, n_queries, head_dim), at the last of the keys' positions; k: (batch, heads, n_keys, head_dim).
    """
    n_queries, n_keys, frequencies = q.shape[-2], k.shape[-2], ready.frequencies_of(q.shape[-1])
    at = torch.arange(n_keys)
    distance = at[-n_queries:, None] - at
    scores = ready.rotate(q, at[-n_queries:], frequencies) @ ready.rotate(k, at, frequencies).mT
    if reach is not None:
        for limit in (reach,) if causal else (reach, -reach):
            # A query rotated by the reach and an unrotated key are exactly the reach apart.
            turned = ready.rotate(q, torch.full((n_queries,), limit), frequencies) @ k.mT
            scores = torch.where(distance > limit if limit > 0 else distance < limit, turned, scores)
    return scores / math.sqrt(q.shape[-1])


def scores_at(q, k, distance_of):
    """RoPE's scaled scores where pair p sees the distances ``distance_of(p, distance)``."""
    at = torch.arange(k.shape[-2])
    distance = at[-q.shape[-2] :, None] - at
    total = 0
    for pair, frequency in enumerate(ready.frequencies_of(q.shape[-1])):
        q_pair, k_pair = (x[..., 2 * pair : 2 * pair + 2] for x in (q, k))
        angle = distance_of(pair, distance) * frequency
        across = q_pair @ torch.stack([k_pair[..., 1], -k_pair[..., 0]], -1).mT
        total = total + q_pair @ k_pair.mT * angle.cos().to(q.dtype) + across * angle.sin().to(q.dtype)
    return total / math.sqrt(q.shape[-1])


def mixed(scores, v, visible):
    """The weighted sum of the values, over the visible keys: (batch, n_queries, width)."""
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def distances(n):
    return torch.arange(n)[:, None] - torch.arange(n)


def latest(n, count=None):
    """Return the causal mask, bool (n, n); with ``count``, each query sees only its latest ``count`` keys."""
    return (distances(n) >= 0) & (distances(n) < (count or n))


def drawn(needed, allowed, count, seed=5):
    """Pick ``count`` of each query's allowed keys, the needed ones and random others: bool like ``needed``."""
    luck = torch.rand(needed.shape, generator=torch.Generator().manual_seed(seed))
    luck = luck.masked_fill(needed, 2.0).masked_fill(~allowed, -1.0)
    return torch.zeros_like(needed).scatter(-1, luck.topk(count, dim=-1).indices, True) & allowed


# ---- the look-back task ----------------------------------------------------------------------------------------------


def look_back_texts(batch, length, generator):
    """Random tokens, and at each place the answer: the token three positions before."""
    tokens = torch.randint(0, 8, (batch, length), generator=generator)
    return tokens, tokens.roll(3, dims=1)


def fit(model, task, seed, steps, forward=None):
    """Train on texts of 32 tokens, drawn by ``task``; the answers count from position 3 on."""
    generator, optimizer = torch.Generator().manual_seed(seed), torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens, answers = task(32, 32, generator)
        loss = F.cross_entropy((forward or model)(tokens)[:, 3:].flatten(0, 1), answers[:, 3:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


# ---- trained models and records -------------------------------------------------------------------------------------


def kept(name, model, train):
    """Return the model with its weights, read from experiments/runs/ (not kept in the repository) or trained now."""
    path = RUNS / f"{name}.npz"
    if not path.exists():
        RUNS.mkdir(exist_ok=True)
        train(model)
        np.savez(path, **{key: value.numpy() for key, value in model.state_dict().items()})
    with np.load(path) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
    return model.eval()


def rounded(value):
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else round(value, 4)


class Record:
    """The results of one setting, one entry per group and seed, in a JSON file written after each result."""

    def __init__(self, name, folder=HERE):
        self.path = folder / f"{name}.json"
        self.runs = json.loads(self.path.read_text()) if self.path.exists() else {}

    def measure(self, group, seed, run):
        """Run this seed and record its result unless it is already recorded."""
        by_seed = self.runs.setdefault(group, {})
        if str(seed) in by_seed:
            return
        versions = {"python": platform.python_version(), "torch": torch.__version__.split("+")[0]}
        by_seed[str(seed)] = {"result": rounded(run(seed)), **versions}
        self.runs = {name: dict(sorted(found.items())) for name, found in sorted(self.runs.items())}
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.runs, indent=1) + "\n")
        print(self.path.stem, group, "seed", seed, flush=True)

    def values(self, group, *keys):
        """Return the number under ``keys`` for every measured seed."""
        found = []
        for entry in self.runs.get(group, {}).values():
            value = entry["result"]
            for key in keys:
                value = value[str(key)]
            found.append(value)
        return found

    def versions(self):
        entries = [entry for by_seed in self.runs.values() for entry in by_seed.values()]
        return {name: sorted({entry[name] for entry in entries}) for name in ("python", "torch")}

    def made_with(self):
        """Return the versions as text."""
        return {name: ", ".join(found) for name, found in self.versions().items()}


# ---- tables ---------------------------------------------------------------------------------------------------------


def mean(numbers):
    """Return the mean over the seeds as text for a sentence."""
    return f"{statistics.mean(numbers):.2f}" if numbers else "not measured"


def cell(numbers, digits=3):
    """mean (lowest to highest) over the seeds"""
    if not len(numbers):
        return "not measured"
    middle, low, high = (f"{value:.{digits}f}" for value in (np.mean(numbers), min(numbers), max(numbers)))
    zero = f"{0:.{digits}f}"
    return f"{middle} ({low} to {high})".replace(f"-{zero}", zero)


def text(*paragraphs):
    """Wrap paragraphs into the lines of a page."""
    return [line for paragraph in paragraphs for line in (*textwrap.wrap(" ".join(paragraph.split()), 120), "")]


def table(title, header, rows):
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def four_arms(record, group, title, few, words=("familiar distances", "new distances")):
    """Return the two-by-two table; ``few`` names the column with few keys."""
    rows = [
        [name, *(cell(record.values(group, f"{kind}, {keys}")) for keys in ("few", "all"))]
        for name, kind in zip(words, ("familiar", "new"), strict=True)
    ]
    return table(title, ["", few, "all keys"], rows)


def by_size(record, group, title, arms, sizes):
    """One row per arm, one column per size; ``arms``: name -> key in the result."""
    rows = [[name, *(cell(record.values(group, key, size)) for size in sizes)] for name, key in arms.items()]
    return table(title, ["", *map(str, sizes)], rows)
