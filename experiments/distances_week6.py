"""Week 6: pull and push with RoPE, trained on 16 tokens, tested on 64."""

import math

import arms
import relative_bias
import relative_tasks as tasks
import torch
from distances_week5 import clipped_in

RECORD = arms.Record("distances_week6")
LENGTH, TRAINED, WIDE = 64, relative_bias.TRAINED, 24  # WIDE: a window in which RoPE fails
REACHES = (4, 5, 7, 11, 15, 19, 23, 31, 47, 63)
WINDOWS = (5, 6, 8, 12, 16, 20, 24, 32, 48, 64)
CLIPPED_PAIRS = (0, 1, 2)


@torch.no_grad()
def accuracy(model, task, reach, visible, scores=arms.rotary_scores):
    """Return the accuracy on 256 sequences, the same for every model; visible: bool (64, 64) or (256, 1, 64, 64)."""
    payload, offset, answer = tasks.TASKS[task](256, LENGTH, torch.Generator().manual_seed(10_000))

    def attention(q, k, v, extra):
        return scores(q, k, reach).masked_fill(~visible, -math.inf).softmax(-1) @ v

    model.attention = attention
    right = model(payload, offset).argmax(-1) == answer
    return right[answer != tasks.IGNORED].float().mean().item()


def needed(task):
    """Mark the key that holds each query's answer, at most one per query: bool (256, 1, 64, 64)."""
    _, offset, answer = tasks.TASKS[task](256, LENGTH, torch.Generator().manual_seed(10_000))
    named = offset[:, :, None] if task == "pull" else offset[:, None, :]
    return ((arms.distances(LENGTH) == named) & (answer != tasks.IGNORED)[:, :, None])[:, None]


def run(task, seed):
    attention, shapes, heads = relative_bias.ARMS["RoPE"]
    model = tasks.train(task, attention, shapes, seed, n=TRAINED, heads=heads)
    everything = arms.latest(LENGTH)
    few = arms.drawn(needed(task), everything.expand(256, 1, -1, -1), TRAINED)
    return {
        "familiar, few": accuracy(model, task, TRAINED - 1, few),
        "familiar, all": accuracy(model, task, TRAINED - 1, everything),
        "new, few": accuracy(model, task, None, few),
        "new, all": accuracy(model, task, None, everything),
        "reach": {reach: accuracy(model, task, reach, everything) for reach in REACHES},
        "window": {count: accuracy(model, task, None, arms.latest(LENGTH, count)) for count in WINDOWS},
        "clipped in pair": {
            pair: accuracy(
                model, task, clipped_in((pair,), TRAINED - 1), arms.latest(LENGTH, WIDE), scores=arms.scores_at
            )
            for pair in CLIPPED_PAIRS
        },
    }


def measure():
    for task in tasks.TASKS:
        for seed in arms.SEEDS:
            RECORD.measure(task, seed, lambda seed, task=task: run(task, seed))


def section():
    lines = [
        "## Week 6: pull and push, RoPE, trained on 16 tokens, tested on 64",
        "",
        *arms.text(
            "Accuracy at 64 tokens. Few keys: the right one and 15 others drawn from all before the query.",
            """**What the arms say.** At familiar distances all keys do as well as few, on both tasks. At new distances
            few keys help in part, and all keys are worse. So it takes new distances to break RoPE here, and the number
            of keys at them decides how much. A clip or a window may be anywhere between the offsets of the task (1 to
            4) and some 19 positions, where pair 1 comes round for the first time (a turn takes 19.9 positions).""",
        ),
    ]
    for task in tasks.TASKS:
        lines += arms.four_arms(RECORD, task, f"Four arms, {task} (familiar: clipped at 15)", "16 keys")
    for title, key, sizes in (
        ("All keys, distances clipped", "reach", REACHES),
        ("Window: the latest keys", "window", WINDOWS),
        (f"Window of {WIDE} keys, distances clipped at 15 in one pair alone", "clipped in pair", CLIPPED_PAIRS),
    ):
        rows = [[task, *(arms.cell(RECORD.values(task, key, size)) for size in sizes)] for task in tasks.TASKS]
        lines += arms.table(title, ["", *map(str, sizes)], rows)
    return lines
