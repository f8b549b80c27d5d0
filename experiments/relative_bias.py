"""Week 6's experiments: pull and push, the sign of T5's buckets, recursive and multiplicative encodings.

    python experiments/relative_bias.py            # everything that is missing (about fifteen minutes on one core)
    python experiments/relative_bias.py --table    # only the table and the shipped file, from experiments/runs/

Every run writes its numbers to experiments/runs/week6.json (not kept in the repository). The script turns them into
experiments/results_week6.md (mean and spread over seeds, for people) and source/week6_results.json (every seed's
numbers and the versions, for the notebook).
"""

import argparse
import json
import statistics
import time

import arms
import ready_encodings as ready
import relative_tasks as tasks
import torch
import torch.nn.functional as F
from torch import nn

from autograder import reference

RECORD = arms.Record("week6", arms.RUNS)
TRAINED, TESTED = 16, (16, 64)
SIZE = tasks.WIDTH // tasks.HEADS
SPAN = 8  # DeBERTa's span and Shaw's clip: twice the largest offset of the tasks


# ---- pull and push --------------------------------------------------------------------------------------------------


def t5(q, k, v, extra):
    return reference.t5_attention(q, k, v, extra["table"], is_causal=True)[0]


def shaw(q, k, v, extra):
    n = q.shape[-2]
    zeros = torch.zeros(2 * SPAN + 1, v.shape[-1])
    return reference.shaw_attention(q, k, v, extra["rel_k"], zeros, reference.causal_mask(n, n))[0]


def transformer_xl(q, k, v, extra):
    r = torch.einsum("td,hde->hte", tasks.sinusoids(q.shape[-2], tasks.WIDTH), extra["w_r"])
    return tasks.masked_attention(reference.transformer_xl_scores(q, k, r, extra["u"], extra["v"]), v)


def deberta(q, k, v, extra):
    zeros = torch.zeros(q.shape[1], 2 * SPAN, q.shape[-1])
    scores = reference.deberta_scores(q, k, extra.get("pos_q", zeros), extra.get("pos_k", zeros))
    return tasks.masked_attention(scores, v)


def rope(q, k, v, extra):
    positions = torch.arange(q.shape[-2])
    scores = reference.apply_rotary_emb(q, positions) @ reference.apply_rotary_emb(k, positions).mT / SIZE**0.5
    return tasks.masked_attention(scores, v)


POSITIONS = (tasks.HEADS, 2 * SPAN, SIZE)
BIAS = (tasks.HEADS, SIZE)
# name -> attention, the shapes of its tables, number of heads
ARMS = {
    "T5": (t5, {"table": (32, 2)}, 2),
    "T5, 8 heads": (t5, {"table": (32, 8)}, 8),
    "DeBERTa, content to position alone": (deberta, {"pos_k": POSITIONS}, 2),
    "DeBERTa, position to content alone": (deberta, {"pos_q": POSITIONS}, 2),
    "DeBERTa": (deberta, {"pos_q": POSITIONS, "pos_k": POSITIONS}, 2),
    "Shaw, keys only": (shaw, {"rel_k": (2 * SPAN + 1, SIZE)}, 2),
    "Transformer-XL": (transformer_xl, {"w_r": (tasks.HEADS, tasks.WIDTH, SIZE), "u": BIAS, "v": BIAS}, 2),
    "RoPE": (rope, {}, 2),
}


def run_task(task, arm, seed):
    attention, shapes, heads = ARMS[arm]
    model = tasks.train(task, attention, shapes, seed, n=TRAINED, heads=heads)
    return [tasks.accuracy(model, task, n) for n in TESTED]


OFFSETS = tuple(range(1, tasks.OFFSETS + 1))


def run_by_offset(_, arm, seed):
    """Pull at the trained length, by the offset that the query names."""
    attention, shapes, heads = ARMS[arm]
    model = tasks.train("pull", attention, shapes, seed, n=TRAINED, heads=heads)
    payload, offset, answer = tasks.pull(512, TRAINED, torch.Generator().manual_seed(10_000))
    with torch.no_grad():
        right = model(payload, offset).argmax(-1) == answer
    scored = answer != tasks.IGNORED
    return [right[scored & (offset == o)].float().mean().item() for o in OFFSETS]


# ---- ascending or reversed: does a bias know the sign? --------------------------------------------------------------

SIGN_TESTED = (8, 32)


class Ordered(nn.Module):
    """One layer over whole sequences with T5's bias, the mean over positions, two classes."""

    def __init__(self, signed):
        super().__init__()
        self.signed = signed
        self.embed, self.project = nn.Embedding(ready.NUMBERS, 32), nn.Linear(32, 96, bias=False)
        self.table = nn.Parameter(0.2 * torch.randn(32, 4))
        self.read = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.out = nn.Linear(64, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        offset = reference.relative_positions(tokens.shape[1], tokens.shape[1])
        bias = self.table[reference.t5_bucket(offset if self.signed else -offset.abs())].permute(2, 0, 1)
        seen = ((q @ k.mT + bias).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.out(self.read(x + seen).mean(1))


def ascending_or_reversed(batch, n, generator):
    """Return sorted sequences of different numbers, half of them reversed: (tokens, 1 where ascending)."""
    tokens = torch.rand(batch, ready.NUMBERS, generator=generator).argsort(-1)[:, :n].sort(-1).values
    ascending = torch.randint(0, 2, (batch,), generator=generator)
    return torch.where(ascending[:, None] == 1, tokens, tokens.flip(1)), ascending


def run_sign(_, arm, seed, steps=300):
    torch.manual_seed(seed)
    model, generator = Ordered(arm == "signed"), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        tokens, answer = ascending_or_reversed(128, SIGN_TESTED[0], generator)
        loss = F.cross_entropy(model(tokens), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tested = [ascending_or_reversed(1000, n, torch.Generator().manual_seed(10_000)) for n in SIGN_TESTED]
        return [(model(tokens).argmax(-1) == answer).float().mean().item() for tokens, answer in tested]


# ---- recursive and multiplicative encodings -------------------------------------------------------------------------

VARIANTS_TESTED = (8, 16, 32)


class Flow(nn.Module):
    """FLOATER's idea: position p + 1 is position p moved on by a learned flow, one Runge-Kutta step per position."""

    def __init__(self, width):
        super().__init__()
        self.start = nn.Parameter(0.1 * torch.randn(width))
        self.flow = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, n):
        p = [self.start]
        for _ in range(n - 1):
            a = self.flow(p[-1])
            b = self.flow(p[-1] + a / 2)
            c = self.flow(p[-1] + b / 2)
            d = self.flow(p[-1] + c)
            p.append(p[-1] + (a + 2 * b + 2 * c + d) / 6)
        return torch.stack(p)


class Table(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Parameter(0.1 * torch.randn(max(VARIANTS_TESTED), width))

    def forward(self, n):
        return self.table[:n]


class Sinusoids(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, n):
        return reference.sinusoidal_positional_encoding(n, self.width)


COMBINE = {
    "x + p, sinusoidal": (Sinusoids, lambda x, p: x + p),
    "x * (1 + p), learned": (Table, lambda x, p: x * (1 + p)),
    "x + p, learned": (Table, lambda x, p: x + p),
    "x + p, recursive": (Flow, lambda x, p: x + p),
}


class Encoded(ready.SmallTransformer):
    """Week 5's small encoder with another position encoding."""

    def __init__(self, arm):
        super().__init__(ready.NUMBERS, "none", max_len=max(VARIANTS_TESTED), n_outputs=2, is_causal=False, pool=True)
        position, self.combine = COMBINE[arm]
        width = self.embed.weight.shape[1]
        self.position = position(width)
        self.embed.register_forward_hook(lambda module, _, x: self.combine(x, self.position(x.shape[1])))


def run_variant(_, arm, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Encoded(arm)
    ready.train(model, lambda: ready.sequences(64, VARIANTS_TESTED[0], generator)[:2], 500, learning_rate=3e-3)
    with torch.no_grad():
        tested = [ready.sequences(1000, n, torch.Generator().manual_seed(10_000))[:2] for n in VARIANTS_TESTED]
        return [(model(tokens).argmax(-1) == answer).float().mean().item() for tokens, answer in tested]


# ---- what each costs ------------------------------------------------------------------------------------------------

COST_LENGTH, COST_HEADS, COST_SIZE = 1024, 8, 64


def run_costs(_, arm, seed):
    """CPU milliseconds of one forward pass on one thread, the best of five; scores and softmax, without projections."""
    generator = torch.Generator().manual_seed(seed)
    n, heads, size = COST_LENGTH, COST_HEADS, COST_SIZE
    q, k, v = torch.randn(3, 1, heads, n, size, generator=generator)
    table, r = torch.randn(33, size, generator=generator), torch.randn(heads, n, size, generator=generator)
    positions, bias = torch.randn(heads, 64, size, generator=generator), torch.randn(heads, size, generator=generator)
    buckets = torch.randn(32, heads, generator=generator)
    row = (16 + reference.relative_positions(n, n).clamp(-16, 16)).expand(1, heads, n, n)

    def short_products():
        weights = ((q @ k.mT + (q @ table.mT).gather(-1, row)) / size**0.5).softmax(-1)
        return weights @ v + torch.zeros(1, heads, n, 33).scatter_add(-1, row, weights) @ table

    calls = {
        "plain attention": lambda: reference.scaled_dot_product_attention(q, k, v),
        "T5's bias": lambda: reference.t5_attention(q, k, v, buckets),
        "Shaw, 33 products and a gather": short_products,
        "Transformer-XL's shift": lambda: reference.transformer_xl_scores(q, k, r, bias, bias).softmax(-1) @ v,
        "DeBERTa, span 32": lambda: deberta_short(q, k, positions),
        "Shaw, a vector per pair": lambda: reference.shaw_attention(q, k, v, table, table),
    }
    times = []
    with torch.no_grad():
        for _ in range(5):
            start = time.process_time()
            calls[arm]()
            times.append(1000 * (time.process_time() - start))
    return [min(times)]


def deberta_short(q, k, positions):
    """Both position terms by 2*span products and a gather, as in the published code."""
    n, span = q.shape[-2], positions.shape[-2] // 2
    row = (span - reference.relative_positions(n, n)).clamp(0, 2 * span - 1).expand(1, q.shape[1], n, n)
    to_position = (q @ positions.mT).gather(-1, row)
    to_content = (k @ positions.mT).gather(-1, row.mT).mT
    return ((q @ k.mT + to_position + to_content) / (3 * q.shape[-1]) ** 0.5).softmax(-1) @ q


COSTS = (
    "plain attention",
    "T5's bias",
    "Shaw, 33 products and a gather",
    "Transformer-XL's shift",
    "DeBERTa, span 32",
    "Shaw, a vector per pair",
)


# ---- runs, the table, the shipped file ------------------------------------------------------------------------------

GROUPS = {
    "pull": (run_task, tuple(ARMS), TESTED),
    "push": (run_task, tuple(ARMS), TESTED),
    "by_offset": (run_by_offset, ("T5", "T5, 8 heads"), OFFSETS),
    "sign": (run_sign, ("signed", "absolute"), SIGN_TESTED),
    "variants": (run_variant, tuple(COMBINE), VARIANTS_TESTED),
    "costs": (run_costs, COSTS, (COST_LENGTH,)),
}
TITLES = {
    "pull": "Pull: the query knows the offset (guessing: 0.125)",
    "push": "Push: the key knows the offset (guessing: 0.125)",
    "by_offset": "Pull at 16 positions, by the offset that the query names (guessing: 0.125)",
    "sign": 'T5\'s buckets on "ascending or reversed" (guessing: 0.50)',
    "variants": '"Ascending?", week 5\'s task, 500 steps, with other encodings (guessing: 0.50)',
    "costs": "CPU milliseconds of one attention, 8 heads of 64, one thread (five times the best of five)",
}


def measure():
    for group, (run, names, _) in GROUPS.items():
        for name in names:
            for seed in arms.SEEDS:
                RECORD.measure(f"{group}: {name}", seed, lambda seed, run=run, arm=(group, name): run(*arm, seed))


def collected():
    """group -> arm -> one row per seed, one number per length; and the versions used."""
    data = {
        "made_with": RECORD.made_with() | {"threads": 1, "seeds": len(arms.SEEDS)},
        "tested": {group: list(lengths) for group, (_, _, lengths) in GROUPS.items()},
    }
    return data | {
        group: {name: RECORD.values(f"{group}: {name}") for name in names} for group, (_, names, _) in GROUPS.items()
    }


def cell(numbers):
    """mean [lowest to highest] over the seeds"""
    digits = 2 if max(numbers) <= 1 else 0
    return f"{statistics.mean(numbers):.{digits}f} [{min(numbers):.{digits}f} to {max(numbers):.{digits}f}]"


def tables(data):
    """The text of results_week6.md."""
    made = data["made_with"]
    lines = [
        "# Week 6: what was measured",
        "",
        "Made by `experiments/relative_bias.py` (`make experiments`); do not edit. Accuracy, mean [lowest to highest]",
        f"over {made['seeds']} training seeds, one thread, torch {made['torch']}, Python {made['python']}. Trained at "
        "the first length.",
        "",
    ]
    for group, title in TITLES.items():
        lengths = data["tested"][group]
        lines += [
            f"## {title}",
            "",
            "| | " + " | ".join(f"offset {n}" if group == "by_offset" else f"{n} positions" for n in lengths) + " |",
            "|---" * (len(lengths) + 1) + "|",
        ]
        lines += [
            f"| {arm} | " + " | ".join(cell(column) for column in zip(*rows, strict=True)) + " |"
            for arm, rows in data[group].items()
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="no training, only the table and the shipped file")
    torch.set_num_threads(1)
    if not parser.parse_args().table:
        measure()
    results = collected()
    (arms.HERE / "results_week6.md").write_text(tables(results), encoding="utf-8")
    (arms.SHIPPED / "week6_results.json").write_text(json.dumps(results) + "\n")
