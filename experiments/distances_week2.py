"""Week 2: name the token three positions before. One layer with sinusoids, trained on 32 tokens, tested on 128.

Sinusoids are added to the tokens, so what can be unfamiliar is a *position*. In the familiar arms a query beyond the
training length gets the last trained position, and its keys the positions before it; a key that would get a negative
position gets 0. Texts, mask and model are untouched.
"""

import math

import arms
import torch
import torch.nn.functional as F
import weeks12

RECORD = arms.Record("distances_week2")
LENGTH, TRAINED = 128, 32
LAST = TRAINED - 1
PAIRS = {"all 32 pairs": lambda w: w > 0, "6 fast pairs": lambda w: w <= 32}
MORE = {  # other choices: what is beside the six fast pairs
    "6 fast pairs and the 6 slowest": lambda w: (w <= 32) | (w >= w[-6]),
    "6 fast pairs and the next 6 (wavelengths 35 to 149)": lambda w: w < 150,
}
DENSE = "6 fast pairs and one behind each of them (wavelengths 7 to 31)"
REACHES = (3, 4, 5, 7, 11, 15, 23, 31, 39, 47, 63, 95, 127)
WINDOWS = (4, 8, 16, 32, 64, 128)


@torch.no_grad()
def accuracy(model, query_at, key_at, visible, familiar=None):
    """Return the accuracy at positions 32 to 127, given the queries' (128,) and their keys' (128, 128) positions. The
    keys ``familiar``, bool (128, 128), get the scores that they have at familiar positions instead."""
    tokens, answers = arms.look_back_texts(256, LENGTH, torch.Generator().manual_seed(100))
    x, pe, place = model.embed(tokens), model.table, key_at.expand(len(tokens), -1, -1)
    scores = scores_at(model, x, query_at, key_at)
    if familiar is not None:
        scores = torch.where(familiar, scores_at(model, x, *places(LAST)), scores)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    by_position = torch.zeros(len(x), LENGTH, LENGTH).scatter_add(-1, place, weights)
    right = model.read(weights @ model.v(x) + by_position @ model.v(pe)).argmax(-1) == answers
    return right[:, TRAINED:].float().mean().item()


def scores_at(model, x, query_at, key_at):
    # Keys are linear in token + position. A key's position depends on the query: add the parts separately.
    query, place = model.q(x + model.table[query_at]), key_at.expand(len(x), -1, -1)
    return (query @ model.k(x).mT + (query @ model.k(model.table).mT).gather(-1, place)) / 8


def places(reach, true_query=False):
    """Return query and key positions at most ``reach`` apart; queries are clamped to ``reach`` or keep their own."""
    at = torch.arange(LENGTH)
    query = at if true_query else at.clamp(max=reach)
    return query, (query[:, None] - arms.distances(LENGTH).clamp(0, reach)).clamp(min=0)


def dense(count=12):
    """Return the table of 128 positions and width 64 for the fast pairs and one behind each; the rest is zero."""
    wavelengths = 2 * math.pi * 10000 ** (torch.arange(count) / 64)
    angles = torch.arange(LENGTH)[:, None] * 2 * math.pi / wavelengths
    return F.pad(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1), (0, 64 - 2 * count))


def trained(pairs, seed):
    return weeks12.train_look_back(dense() if pairs == DENSE else weeks12.pairs_kept((PAIRS | MORE)[pairs]), seed)


def run_scores(pairs, seed):
    """Return the accuracy at new positions where some keys alone have the scores of familiar ones."""
    model, right = trained(pairs, seed), arms.distances(LENGTH) == 3
    return {
        name: accuracy(model, *places(LENGTH), arms.latest(LENGTH), keys)
        for name, keys in (("none", None), ("the right key", right), ("all others", ~right))
    }


def run(pairs, seed):
    model = trained(pairs, seed)
    everything, new, familiar = arms.latest(LENGTH), places(LENGTH), places(LAST)
    needed = (arms.distances(LENGTH) == 3).expand(256, -1, -1)
    few = arms.drawn(needed, everything.expand(256, -1, -1), TRAINED)
    return {
        "familiar, few": accuracy(model, *familiar, few),
        "familiar, all": accuracy(model, *familiar, everything),
        "new, few": accuracy(model, *new, few),
        "new, all": accuracy(model, *new, everything),
        "familiar, latest": accuracy(model, *familiar, arms.latest(LENGTH, TRAINED)),
        "new, latest": accuracy(model, *new, arms.latest(LENGTH, TRAINED)),
        "distances familiar, positions new": accuracy(model, *places(LAST, true_query=True), everything),
        "reach": {reach: accuracy(model, *places(reach), everything) for reach in REACHES},
        "window": {count: accuracy(model, *new, arms.latest(LENGTH, count)) for count in WINDOWS},
    }


def measure():
    for pairs in (*PAIRS, *MORE, DENSE):
        for seed in arms.SEEDS:
            RECORD.measure(pairs, seed, lambda seed, pairs=pairs: run(pairs, seed))
    for pairs in PAIRS:
        for seed in arms.SEEDS:
            RECORD.measure(f"scores, {pairs}", seed, lambda seed, pairs=pairs: run_scores(pairs, seed))


def section():
    lines = [
        "## Week 2: look back three positions, sinusoids, trained on 32, positions 32 to 127 of 128 tokens",
        "",
        *arms.text(
            "Accuracy; guessing gives 0.125. Few keys: the right one and 31 others drawn from all before the query.",
            """**What the arms say.** New positions do the damage, and more keys at them make it worse. More keys
            alone do none: at familiar positions all 128 keys are as good as 32. The more keys a query at a new
            position sees, the worse: the latest 4 do next to none, 32 much, all most. So familiar positions repair
            the model whatever the number of keys, and hiding keys repairs it only when hardly any are left. It is
            the right key whose score falls: with its familiar score alone the model is nearly as good as ever, with
            the familiar scores of all others it is worse. Slowness as such is not the cause: beside the six fast
            pairs the six slowest do no harm, the next six do, and one behind each of the six does the most.
            Familiar *distances* are not enough here: with the query at its true position and every distance clipped
            at 31 the model does as in a window of 32. Sinusoids carry positions, and the layer's scores depend on
            both.""",
        ),
    ]
    for pairs in PAIRS:
        lines += arms.four_arms(
            RECORD, pairs, f"Four arms, {pairs}", "32 keys", ("familiar positions (0 to 31)", "new positions")
        )
    columns = ("familiar, all", "new, few", "new, all")
    lines += arms.table(
        "Other choices of pairs",
        ["", "familiar positions, all keys", "new positions, 32 keys", "new positions, all keys"],
        [[pairs, *(arms.cell(RECORD.values(pairs, key)) for key in columns)] for pairs in (*PAIRS, *MORE, DENSE)],
    )
    whose = ("none", "the right key", "all others")
    lines += arms.table(
        "New positions, all keys: who gets the score of familiar positions",
        ["", *whose],
        [[pairs, *(arms.cell(RECORD.values(f"scores, {pairs}", name)) for name in whose)] for pairs in PAIRS],
    )
    rows = [
        ["latest 32 keys, familiar positions", "familiar, latest"],
        ["latest 32 keys, their true positions", "new, latest"],
        ["all keys, distances clipped at 31, the query at its true position", "distances familiar, positions new"],
    ]
    lines += arms.table(
        "Positions against distances",
        ["", *PAIRS],
        [[name, *(arms.cell(RECORD.values(pairs, key)) for pairs in PAIRS)] for name, key in rows],
    )
    for title, key, sizes in (
        ("All keys, positions 0 to this one", "reach", REACHES),
        ("Window: the latest keys, true positions", "window", WINDOWS),
    ):
        rows = [[pairs, *(arms.cell(RECORD.values(pairs, key, size)) for size in sizes)] for pairs in PAIRS]
        lines += arms.table(title, ["", *map(str, sizes)], rows)
    return lines
