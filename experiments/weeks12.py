"""Measure the claims of weeks 1 and 2 beyond their live experiments, over five seeds: `python experiments/weeks12.py`.

Writes results_weeks12.md beside this file. Less than a minute on one thread. The live cells of the notebooks use the
same models and settings; this script tests them further.
"""

import math
import platform
from collections.abc import Callable
from pathlib import Path

import arms
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autograder.reference.attention import causal_mask, scaled_dot_product_attention
from autograder.reference.sinusoidal import sinusoidal_positional_encoding

SEEDS = range(5)
RESULTS = Path(__file__).with_name("results_weeks12.md")


def spread(values: list[float]) -> str:
    """Five measurements, smallest first."""
    return " ".join(f"{value:.2f}" for value in sorted(values))


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


# ---- week 1 ---------------------------------------------------------------------------------------------------------


class TinyModel(nn.Module):
    """Embedding, one head, output projection, MLP, mean, read-out; the mask is *added* or filled in."""

    def __init__(self, added: bool) -> None:
        super().__init__()
        self.added = added
        self.embedding = nn.Embedding(20, 16)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.read_out = nn.Linear(16, 1)

    def forward(self, texts: Tensor, hidden: Tensor) -> Tensor:
        x = self.embedding(texts)
        scores = self.W_q(x) @ self.W_k(x).mT / 4
        with_added = scores + torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)
        scores = with_added if self.added else scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(-1).nan_to_num(0.0)  # the popular repair
        x = x + self.W_o(weights @ self.W_v(x))
        return self.read_out((x + self.mlp(x)).mean(1))


def nan_after_one_step(seed: int, added: bool) -> dict[str, str]:
    """Return the parameters that hold NaN after one Adam step if one text of four is hidden completely."""
    torch.manual_seed(seed)
    model = TinyModel(added)
    texts = torch.stack([torch.randperm(5) + 5 * row for row in range(4)])  # each text has tokens of its own
    hidden = torch.zeros(4, 5, 5, dtype=torch.bool)
    hidden[3] = True
    optimizer = torch.optim.Adam(model.parameters())
    model(texts, hidden).square().mean().backward()
    optimizer.step()
    found = {}
    for name, parameter in model.named_parameters():
        bad = parameter.detach().isnan()
        rows = bad.flatten(1).any(1) if bad.ndim > 1 else bad
        found[name] = "no" if not bad.any() else "all" if bad.all() else f"rows {rows.nonzero().flatten().tolist()}"
    return found


def shuffled_causal_map(seed: int) -> tuple[int, int]:
    """Shuffle seven tokens before a random causal head; count the weights that change by more than 0.01 and by 0.2."""
    generator = torch.Generator().manual_seed(seed)
    x, w_q, w_k = torch.randn(7, 6, generator=generator), *(torch.randn(2, 6, 6, generator=generator) / 6**0.5)
    order = torch.randperm(7, generator=generator)

    def weights(tokens: Tensor) -> Tensor:
        q, k = 3 * tokens @ w_q, tokens @ w_k
        return scaled_dot_product_attention(q[None, None], k[None, None], k[None, None], causal_mask(7, 7))[1][0, 0]

    back = order.argsort()
    difference = (weights(x[order])[back][:, back] - weights(x)).abs()
    return int((difference > 0.01).sum()), int((difference > 0.2).sum())


def position_readings(seed: int, marker: bool, causal: bool) -> tuple[float, float]:
    """Return the shares of the variance of i and 1/(i+1) that a linear read-out of one untrained layer explains."""
    length, width = 48, 32
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(9, width, generator=generator)
    w_q, w_k, w_v = torch.randn(3, width, width, generator=generator) / width**0.5
    texts = torch.randint(0, 8, (400, length), generator=generator)
    if marker:
        texts[:, 0] = 8
    x = embedding[texts][:, None]
    mask = causal_mask(length, length) if causal else None
    out = scaled_dot_product_attention(0.3 * x @ w_q, x @ w_k, x @ w_v, mask)[0][:, 0].double()
    features = torch.cat((out, torch.ones(400, length, 1, dtype=torch.float64)), -1)[:, 1:]
    explained = []
    for target in (torch.arange(1, length).double(), 1 / torch.arange(2, length + 1).double()):
        # Nine letters give nine directions at most. The others are float32 rounding, which rcond leaves out.
        fitted = torch.linalg.lstsq(features[:200].flatten(0, 1), target.repeat(200)[:, None], rcond=1e-6).solution
        left = ((features[200:] @ fitted)[..., 0] - target).square().mean()
        explained.append(float(1 - left / target.var(correction=0)))
    return explained[0], explained[1]


class OrderReader(nn.Module):
    """The model of Week 1's ordering task; ``weights`` holds the last attention weights."""

    def __init__(self, causal: bool, vectors: bool) -> None:
        super().__init__()
        self.causal = causal
        self.letters = nn.Embedding(8, 32)
        self.positions = nn.Parameter(torch.randn(8, 32)) if vectors else None
        self.project = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.read = nn.Linear(32, 1)

    def forward(self, texts: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Score texts (batch, n); ``hidden`` (batch, n, n) hides more keys of a causal model."""
        n = texts.shape[1]
        x = self.letters(texts)
        if self.positions is not None:
            x = x + self.positions[:n]
        q, k, v = (layer(x).unflatten(-1, (2, 16)).transpose(1, 2) for layer in self.project[:3])
        mask = causal_mask(n, n) if self.causal else None
        if mask is not None and hidden is not None:
            mask = mask & ~hidden[:, None]
        out, self.weights = scaled_dot_product_attention(q, k, v, mask)
        x = x + self.project[3](out.transpose(1, 2).flatten(2))
        return self.read((x + self.mlp(x)).mean(dim=1))[:, 0]


def ordering_texts(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    texts = torch.randint(2, 8, (count, length), generator=generator)
    spots = torch.rand(count, length, generator=generator).argsort(dim=1)[:, :2]
    texts.scatter_(1, spots, torch.tensor([0, 1]).expand(count, 2))
    return texts, spots


def trained_reader(seed: int, causal: bool, vectors: bool) -> OrderReader:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = OrderReader(causal, vectors)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        texts, spots = ordering_texts(64, 8, generator)
        loss = F.binary_cross_entropy_with_logits(model(texts), (spots[:, 0] < spots[:, 1]).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


ORDER_ARMS = {  # causal, vectors
    "no mask, no encoding": (False, False),
    "causal mask, no encoding": (True, False),
    "no mask, a vector per position": (False, True),
}


@torch.no_grad()
def ordering_accuracy(model: OrderReader, length: int) -> float:
    """Return the accuracy on texts as they are and with A and B exchanged."""
    texts, spots = ordering_texts(500, length, torch.Generator().manual_seed(99))
    right = spots[:, 0] < spots[:, 1]
    both = model(torch.cat((texts, torch.where(texts < 2, 1 - texts, texts)))) > 0
    return float((both == torch.cat((right, ~right))).float().mean())


def trained_causal_map(model: OrderReader) -> dict[str, float]:
    """Return the stronger head's mean weight between A and B in the trained causal model; the largest where masked;
    and the accuracy with A and B hidden from each other."""
    texts, spots = ordering_texts(1000, 8, torch.Generator().manual_seed(99))
    a, b = texts == 0, texts == 1
    with torch.no_grad():
        apart = model(texts, (a[:, :, None] & b[:, None]) | (b[:, :, None] & a[:, None])) > 0
        model(texts)
    row = torch.arange(1000)
    b_on_a = model.weights[row, :, spots[:, 1], spots[:, 0]]  # (1000, heads)
    a_on_b = model.weights[row, :, spots[:, 0], spots[:, 1]]
    a_first = spots[:, 0] < spots[:, 1]
    return {
        "B on A, A first": float(b_on_a[a_first].mean(0).max()),
        "B on A, B first": float(b_on_a[~a_first].max()),
        "A on B, B first": float(a_on_b[~a_first].mean(0).max()),
        "A on B, A first": float(a_on_b[a_first].max()),
        "right, A and B hidden from each other": float((apart == a_first).float().mean()),
    }


# ---- week 2 ---------------------------------------------------------------------------------------------------------


class LookBack(nn.Module):
    """Week 2's task: name the token three positions before. One causal layer, sinusoids added."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table
        self.embed, self.read = nn.Embedding(8, 64), nn.Linear(64, 8)
        self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(tokens) + self.table[: tokens.shape[1]]
        out = F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), attn_mask=mask, is_causal=mask is None)
        return self.read(out)


def train_look_back(table: Tensor, seed: int) -> LookBack:
    torch.manual_seed(seed)
    return arms.fit(LookBack(table), arms.look_back_texts, seed, steps=300)


def pairs_kept(keep: Callable[[Tensor], Tensor]) -> Tensor:
    """The table of 128 positions, width 64, with only the pairs whose wavelength passes ``keep``; the rest is zero."""
    wavelengths = 2 * math.pi * 10000 ** (torch.arange(32) / 32)
    return sinusoidal_positional_encoding(128, 64) * keep(wavelengths).repeat_interleave(2)


def random_keys(count: int) -> Tensor:
    """Return a mask of the right key and ``count - 1`` others, drawn from the query's own and all earlier keys."""
    needed, allowed = (mask.expand(256, -1, -1) for mask in (arms.distances(128) == 3, arms.latest(128)))
    return arms.drawn(needed, allowed, count, seed=7)


@torch.no_grad()
def beyond(model: LookBack, mask: Tensor | None = None) -> float:
    """Accuracy at positions 32 to 127."""
    tokens, answers = arms.look_back_texts(256, 128, torch.Generator().manual_seed(100))
    return float((model(tokens, mask).argmax(-1) == answers)[:, 32:].float().mean())


@torch.no_grad()
def alone(model: LookBack, first: int) -> float:
    """Return the accuracy on 32 tokens from ``first`` on that see only one another: far positions, but no more keys."""
    tokens, answers = arms.look_back_texts(256, 128, torch.Generator().manual_seed(100))
    visible = (torch.arange(128) >= first) | torch.eye(128, dtype=torch.bool)  # earlier queries see themselves
    right = model(tokens, arms.latest(128) & visible).argmax(-1) == answers
    return float(right[:, first + 3 : first + 32].float().mean())


def look_back_ablation() -> str:
    tables = {
        "all 32 pairs": pairs_kept(lambda w: w > 0),
        "wavelength at most 32 (6 pairs)": pairs_kept(lambda w: w <= 32),
        "wavelength above 32 (26 pairs)": pairs_kept(lambda w: w > 32),
    }
    counts = (64, 32, 16, 8)
    header = [
        "pairs in training and test",
        "within 32",
        "all keys",
        *(f"latest {n}" for n in counts),
        *(f"random {n}" for n in (32, 8)),
        "32 tokens at 96 … 127",
        "blocks from 32, 48, 64, 80",
    ]
    rows = []
    for name, table_of_arm in tables.items():
        models = [train_look_back(table_of_arm, seed) for seed in SEEDS]
        tokens, answers = arms.look_back_texts(256, 32, torch.Generator().manual_seed(102))
        with torch.no_grad():
            within = [float((m(tokens).argmax(-1) == answers)[:, 3:].float().mean()) for m in models]
        measured = [
            within,
            [beyond(m) for m in models],
            *([beyond(m, arms.latest(128, n)) for m in models] for n in counts),
            *([beyond(m, random_keys(n)) for m in models] for n in (32, 8)),
            [alone(m, 96) for m in models],
        ]
        blocks = [alone(m, first) for m in models for first in (32, 48, 64, 80)]
        rows.append([name, *map(spread, measured), f"{min(blocks):.2f} to {max(blocks):.2f}"])
    return table(
        "Week 2: name the token three positions before, trained on 32, accuracy at positions 32 to 127", header, rows
    )


def main() -> None:
    torch.set_num_threads(1)
    parts = [
        "# Weeks 1 and 2: what was measured\n\nMade by `experiments/weeks12.py`; do not edit. Each entry lists "
        f"five seeds, smallest first.\nPython {platform.python_version()}, torch {torch.__version__.split('+')[0]}, "
        "CPU, one thread.\n"
    ]
    found = {added: [nan_after_one_step(seed, added) for seed in SEEDS] for added in (True, False)}
    parts.append(
        table(
            "Week 1: NaN after one Adam step, one text of four hidden completely (tokens 15 to 19 are its own)",
            ["parameter", "mask added: holds NaN", "`masked_fill`: holds NaN"],
            [
                [name, *(", ".join(sorted({run[name] for run in runs})) for runs in found.values())]
                for name in found[True][0]
            ],
        )
    )
    counted = [shuffled_causal_map(seed) for seed in SEEDS]
    parts.append(
        table(
            "Week 1: causal map of a random head, sorted back: weights of 49 that differ",
            ["by more than 0.01", "by more than 0.2"],
            [[" ".join(map(str, sorted(c[0] for c in counted))), " ".join(map(str, sorted(c[1] for c in counted)))]],
        )
    )
    rows = []
    for marker in (True, False):
        for causal in (True, False):
            pairs = [position_readings(seed, marker, causal) for seed in SEEDS]
            rows.append(
                [
                    f"{'marker' if marker else 'no marker'}, {'causal' if causal else 'no mask'}",
                    spread([a for a, _ in pairs]),
                    spread([b for _, b in pairs]),
                ]
            )
    parts.append(
        table(
            "Week 1: variance that a linear read-out of one untrained layer explains", ["", "of i", "of 1/(i+1)"], rows
        )
    )
    readers = {name: [trained_reader(seed, *arm) for seed in SEEDS] for name, arm in ORDER_ARMS.items()}
    lengths = (8, 16, 32)
    rows = [
        [
            name,
            *(
                spread([ordering_accuracy(model, n) for model in models])
                if models[0].positions is None or n <= len(models[0].positions)
                else "no vectors"
                for n in lengths
            ),
        ]
        for name, models in readers.items()
    ]
    parts.append(
        table(
            "Week 1: does A occur before B? Trained on 8 letters, accuracy on 500 texts and their twins",
            ["", *(f"{n} letters" for n in lengths)],
            rows,
        )
    )
    maps = [trained_causal_map(model) for model in readers["causal mask, no encoding"]]
    parts.append(
        table(
            "Week 1: weights of the trained causal model (mean over 1,000 texts in the stronger head; largest where 0)",
            list(maps[0]),
            [[spread([m[key] for m in maps]) for key in maps[0]]],
        )
    )
    parts.append(look_back_ablation())
    RESULTS.write_text("\n".join(parts), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
