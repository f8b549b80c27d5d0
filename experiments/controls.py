"""Controls that weeks 5 and 6 lacked.

Week 5: the model without positions after 300 steps (Figure 5.8), and RoPE in a window in both layers, beside the
hybrid. Week 6: how often a guess from the bag of the last four payloads is right, and T5 and each of DeBERTa's terms
alone (on the other term's task) with more heads, with more steps and with both.
"""

import itertools
import json

import arms
import extrapolation
import ready_encodings as ready
import relative_bias
import relative_tasks as tasks
import torch

RECORD = arms.Record("controls")
ENDS = (extrapolation.TESTED[0], extrapolation.TESTED[-1])
T5_RUNS = ((2, 1500), (4, 300), (4, 1500))  # heads, steps
T5_SHIPPED = {(2, 300): "T5", (8, 300): "T5, 8 heads"}  # arms of week 6's shipped results
TERMS = {"content to position": ("push", "pos_k"), "position to content": ("pull", "pos_q")}  # the other's task, table
TERM_SHIPPED, TERM_RUNS = (2, 300), ((2, 1500), (4, 300), (4, 1500))  # heads, steps
NEEDLE_LENGTHS = extrapolation.NEEDLE_TESTED[:4]


def run_short(seed):
    """Week 5's language model without positions after 300 steps: the loss on the last 32 targets by length."""
    torch.manual_seed(seed)
    model = extrapolation.untrained("lm", "none")
    ready.train(model, ready.text_batches(ready.english()[0], extrapolation.TRAINED, 32, seed), 300)
    return {n: extrapolation.fixed_loss(model, n) for n in ENDS}


def run_bigram(_):
    """Return the loss on the same targets of the training text's bigram table, with one added to each count."""
    train, test = ready.english()
    size = len(ready.ALPHABET)
    counts = torch.ones(size, size).index_put((train[:-1], train[1:]), torch.tensor(1.0), accumulate=True)
    rows = ready.windows(test, max(extrapolation.TESTED), extrapolation.WINDOWS)[:, -extrapolation.TARGETS - 1 :]
    return {"loss": -(counts / counts.sum(1, keepdim=True)).log()[rows[:, :-1], rows[:, 1:]].mean().item()}


def bag(size):
    """Return the exact accuracy of the best guess if all ``size`` payloads are known, but not which one is wanted."""
    texts = itertools.product(range(tasks.SYMBOLS), repeat=size)
    counts = [max(map(text.count, text)) for text in texts]
    return sum(counts) / len(counts) / size


def bag_of(n):
    """Return the mean of ``bag`` over pull's scored positions in n tokens: position i has min(i, 4) candidates."""
    candidates = [min(i, tasks.OFFSETS) for i in range(1, n)]  # also the number of offsets scored there
    return sum(count * bag(count) for count in candidates) / sum(candidates)


def run_bag(_):
    return {"four": bag(tasks.OFFSETS), "pull at 16": bag_of(16), "pull at 64": bag_of(64)}


def run_task(task, attention, shapes, heads, steps, seed):
    model = tasks.train(task, attention, shapes, seed, steps, n=relative_bias.TRAINED, heads=heads)
    return {n: tasks.accuracy(model, task, n) for n in relative_bias.TESTED}


def run_t5(task, heads, steps, seed):
    return run_task(task, relative_bias.t5, {"table": (32, heads)}, heads, steps, seed)


def run_term(term, heads, steps, seed):
    """Train one of DeBERTa's position terms alone, on the task that the other one is for."""
    task, table = TERMS[term]
    shape = (heads, 2 * relative_bias.SPAN, tasks.WIDTH // heads)
    return run_task(task, relative_bias.deberta, {table: shape}, heads, steps, seed)


def columns_of(group, keys):
    return [RECORD.values(group, key) for key in keys]


def measure():
    RECORD.measure("bag", 0, run_bag)
    RECORD.measure("bigram", 0, run_bigram)
    for seed in arms.SEEDS:
        RECORD.measure("300 steps, none", seed, run_short)
    for heads, steps in T5_RUNS:
        for task in tasks.TASKS:
            for seed in arms.SEEDS:
                run = lambda seed, t=task, h=heads, s=steps: run_t5(t, h, s, seed)  # noqa: E731
                RECORD.measure(f"T5, {task}, {heads} heads, {steps} steps", seed, run)
    for heads, steps in TERM_RUNS:
        for term in TERMS:
            for seed in arms.SEEDS:
                run = lambda seed, t=term, h=heads, s=steps: run_term(t, h, s, seed)  # noqa: E731
                RECORD.measure(f"{term} alone, {heads} heads, {steps} steps", seed, run)


def section():
    lengths = [f"{n} ({n // extrapolation.TRAINED}x)" for n in extrapolation.TESTED]
    shipped = json.loads((arms.SHIPPED / "week5_results.json").read_text())
    by_arm = {  # name -> one column of numbers per length, each with a number per seed
        "no encoding, 300 steps": columns_of("300 steps, none", ENDS),
        "no encoding, 1,000 steps": list(zip(*((row[0], row[-1]) for row in shipped["fixed"]["none"]), strict=True)),
    }
    rows = []
    for name, columns in by_arm.items():
        rise = [last - first for first, last in zip(columns[0], columns[-1], strict=True)]
        rows.append([name, *map(arms.cell, columns), arms.cell(rise)])
    lines = [
        "## Week 5, controls",
        "",
        *arms.text(
            """**What they say.** After 300 steps the model without positions is nearly flat too: near the level of a
            table of bigrams it has learned little that a long text could spoil. After 1,000 steps it rises four times as
            much. So a flat curve after 300 steps says little about an encoding (Figure 5.8): breaking has to be
            learned.""",
            """The hybrid's control is RoPE in the same window in *both* layers; here the model was trained without the
            window and is only run in it. Its loss cannot rise: two windows of 32 reach 62 tokens back, whatever the
            length. The hybrid rises in every run, so its layer without positions is not free of charge at new lengths;
            it is also what finds the needle, which the control cannot see.""",
        ),
    ]
    title = "Loss by length after 300 and 1,000 steps (1,000: source/week5_results.json)"
    lines += arms.table(title, ["", lengths[0], lengths[-1], "8x minus 1x"], rows)

    for bigram in RECORD.values("bigram", "loss"):
        lines += arms.text(f"A table of bigrams, on the same targets: {bigram:.3f}.")
    unchanged = arms.Record("distances_week5")
    loss = {
        "RoPE in a window of 32 in both layers (distances_week5.json)": [
            unchanged.values("language", "by length", "window of 32", n) for n in extrapolation.TESTED
        ],
        "hybrid (source/week5_results.json)": list(zip(*shipped["fixed"][ready.HYBRID], strict=True)),
    }
    rows = []
    for name, columns in loss.items():
        rise = [last - first for first, last in zip(columns[0], columns[-1], strict=True)]
        rows.append([name, *map(arms.cell, columns), arms.cell(rise)])
    lines += arms.table("The hybrid's control, 1,000 steps: loss", ["", *lengths, "8x minus 1x"], rows)
    found = {
        "RoPE in a window of 32 in both layers (distances_week5.json)": [
            unchanged.values("needle", "window of 32", n, "found") for n in NEEDLE_LENGTHS
        ],
        "hybrid (source/week5_results.json)": list(zip(*shipped["needle"][ready.HYBRID]["found"], strict=True))[:4],
    }
    rows = [[name, *map(arms.cell, columns)] for name, columns in found.items()]
    lines += arms.table("The same: needles found in the first quarter (guessing: 0.0625)", ["", *lengths], rows)
    lines += [
        "## Week 6, controls",
        "",
        *arms.text(
            """**What they say.** The level of an offset that a T5 model has *not* learned is that of the bag, not of
            blind guessing (0.125). T5's bias can learn both tasks: with 4 heads and 1,500 steps most runs nearly solve
            pull, and push is solved in most places, at 64 tokens almost as well. What 2 heads and 300 steps reach says
            what they are too few for, and not what T5 cannot learn.""",
            """The same holds for one of DeBERTa's terms at the task of the other. Heads (of half the size) do more
            than steps: with 2 heads, 1,500 steps bring nothing on push and leave pull far from solved; with 4 heads,
            300 steps bring most of what 1,500 do.""",
        ),
    ]
    for result in RECORD.values("bag"):
        lines += arms.text(
            f"""Guessing from the bag of the last four payloads: {result["four"]:.3f} (exact). The first positions have
            fewer candidates: over all scored positions of pull {result["pull at 16"]:.3f} at 16 tokens and
            {result["pull at 64"]:.3f} at 64."""
        )
    shipped = json.loads((arms.SHIPPED / "week6_results.json").read_text())
    rows = []
    for heads, steps in sorted((*T5_RUNS, *T5_SHIPPED)):
        columns = []
        for task in tasks.TASKS:
            if arm := T5_SHIPPED.get((heads, steps)):
                columns += zip(*shipped[task][arm], strict=True)
            else:
                columns += columns_of(f"T5, {task}, {heads} heads, {steps} steps", relative_bias.TESTED)
        rows.append([f"{heads} heads, {steps:,} steps", *map(arms.cell, columns)])
    header = [f"{task}, {n} tokens" for task in tasks.TASKS for n in relative_bias.TESTED]
    lines += arms.table(
        "T5's bias, trained on 16 tokens (2 and 8 heads, 300 steps: source/week6_results.json)", ["", *header], rows
    )
    rows = []
    for heads, steps in (TERM_SHIPPED, *TERM_RUNS):
        columns = []
        for term, (task, _) in TERMS.items():
            if (heads, steps) == TERM_SHIPPED:
                columns += zip(*shipped[task][f"DeBERTa, {term} alone"], strict=True)
            else:
                columns += columns_of(f"{term} alone, {heads} heads, {steps} steps", relative_bias.TESTED)
        rows.append([f"{heads} heads, {steps:,} steps", *map(arms.cell, columns)])
    header = [f"{term}: {task}, {n} tokens" for term, (task, _) in TERMS.items() for n in relative_bias.TESTED]
    title = "One of DeBERTa's terms alone at the other's task (2 heads, 300 steps: source/week6_results.json)"
    return lines + arms.table(title, ["", *header], rows)
