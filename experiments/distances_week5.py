"""Week 5: the RoPE language model at eight times its training length, and the needle, with nothing retrained."""

import math

import arms
import extrapolation
import numpy as np
import ready_encodings as ready
import torch
import torch.nn.functional as F

RECORD = arms.Record("distances_week5")
TRAINED, TARGETS = extrapolation.TRAINED, extrapolation.TARGETS
LENGTHS = extrapolation.TESTED
REACHES = (7, 15, 23, 31, 39, 47, 63, 127, 255)
WINDOWS = (8, 16, 32, 48, 64, 96, 128, 256)
NEAR = 32  # nearest keys, kept in the arms with few keys; which others the model needs is unknown
RULES = {  # name -> (reach, window)
    "as it is": (None, None),
    "clipped at 31": (31, None),
    "clipped at 63": (63, None),
    "window of 32": (None, 32),
    "window of 64": (None, 64),
}
NEEDLE_LENGTHS = (64, 128, 256, 512)
ELSEWHERE = (63, 87, 127, 231)  # each replaces all distances beyond 63; training showed only the first
# The shipped model alone: distances beyond 63 counted as 63, 127, 200 or 251, but in one pair as 31, which it knows.
TOGETHER = {
    "63": (63, ()),
    "63, in pair 0 as 31": (63, (0,)),
    "63, in pair 1 as 31": (63, (1,)),
    "63, in pair 2 as 31": (63, (2,)),
    "127": (127, ()),
    "127, in pair 2 as 31": (127, (2,)),
    "127, in pair 3 as 31": (127, (3,)),
    "127, in pair 2 as 47": (127, (2,), 47),
    "127, in pair 3 as 47": (127, (3,), 47),
    "200": (200, ()),
    "200, in pair 1 as 31": (200, (1,)),
    "200, in pair 2 as 31": (200, (2,)),
    "200, in pair 3 as 31": (200, (3,)),
    "200, in pair 1 as 47": (200, (1,), 47),
    "200, in pair 2 as 47": (200, (2,), 47),
    "200, in pair 3 as 47": (200, (3,), 47),
    "251": (251, ()),
}
PAIRS = {"0 to 2": range(3), "3": (3,), "4 to 7": range(4, 8)}  # the pairs that are clipped


def language_model(seed):
    """Return the shipped checkpoint (rounded to float16) for seed 0, else experiments/extrapolation.py's model."""
    model = extrapolation.untrained("lm", "rope")
    if seed == 0:
        with np.load(arms.SHIPPED / "week5_rope.npz") as shipped:
            model.load_state_dict({key: torch.from_numpy(shipped[key]).float() for key in shipped.files})
        return model.eval()
    return extrapolation.model_of("lm", "rope", seed)


@torch.no_grad()
def last_logits(model, tokens, count, reach=None, visible=None, scores=arms.rotary_scores):
    """Return the logits at the last ``count`` positions, with distances clipped and keys hidden."""
    visible = arms.latest(tokens.shape[1]) if visible is None else visible
    x = model.embed(tokens)
    for block in model.blocks:
        q, k, v = block.attention.qkv(block.norm1(x)).unflatten(-1, (3, model.n_heads, -1)).permute(2, 0, 3, 1, 4)
        if block is model.blocks[-1]:  # only these queries of the last layer are needed
            q, x = q[:, :, -count:], x[:, -count:]
        out = arms.mixed(scores(q, k, reach), v, visible[..., -q.shape[-2] :, :])
        x = x + block.attention.out(out)
        x = x + block.mlp(block.norm2(x))
    return model.read(model.norm(x))


def sent_to(far):
    return lambda pair, distance: torch.where(distance > TRAINED - 1, far, distance)


def sent_to_but(far, pairs, known=31):
    return lambda pair, distance: torch.where(distance > TRAINED - 1, known if pair in pairs else far, distance)


def clipped_in(pairs, reach=31):
    return lambda pair, distance: distance.clamp(max=reach) if pair in pairs else distance


def loss(model, length, reach=None, visible=None, window=None, scores=arms.rotary_scores):
    """Return the loss on the last 32 targets of 96 windows, the same at all lengths; ``visible`` may vary by window."""
    if window:  # two layers look no further back than this, and RoPE does not notice where a text begins
        length = min(length, TARGETS + 2 * window)
        visible = arms.latest(length, window)
    rows = ready.windows(ready.english()[1], max(LENGTHS), extrapolation.WINDOWS)[:, -length - 1 :]
    losses = []
    for start in range(0, len(rows), 4):
        part = rows[start : start + 4]
        seen = visible if visible is None or visible.ndim == 2 else visible[start : start + 4]
        logits = last_logits(model, part[:, :-1], TARGETS, reach, seen, scores)
        losses.append(F.cross_entropy(logits.flatten(0, 1), part[:, -TARGETS:].flatten()).item())
    return sum(losses) / len(losses)


def few_keys(n):
    """Return which keys are visible with few: the nearest, and others drawn from all before them."""
    shape = (8, 1, n, n)  # eight draws, each for every eighth window
    few = arms.drawn(arms.latest(n, NEAR).expand(shape), arms.latest(n).expand(shape), TRAINED)
    return few.repeat(extrapolation.WINDOWS // 8, 1, 1, 1)


def run_language(seed):
    model, n = language_model(seed), max(LENGTHS)
    few = few_keys(n)
    reaches = {reach: loss(model, n, reach) for reach in REACHES}
    windows = {count: loss(model, n, window=count) for count in WINDOWS}
    by_length = {
        name: {length: loss(model, length, reach, window=window) for length in LENGTHS[:-1]}
        for name, (reach, window) in RULES.items()
    }
    new = loss(model, n)
    for name, (reach, window) in RULES.items():
        by_length[name][n] = windows[window] if window else reaches.get(reach, new)
    return {
        "familiar, few": loss(model, n, 31, few),
        "familiar, all": reaches[31],
        "new, few": loss(model, n, None, few),
        "new, all": new,
        "familiar to 63, few": loss(model, n, 63, few),
        "reach": reaches,
        "window": windows,
        "by length": by_length,
    }


def run_which(seed):
    """Measure which distances do the harm, and in which pairs."""
    model, n = language_model(seed), max(LENGTHS)
    return {
        "sent to": {far: loss(model, n, sent_to(far), scores=arms.scores_at) for far in ELSEWHERE},
        "clipped in": {name: loss(model, n, clipped_in(pairs), scores=arms.scores_at) for name, pairs in PAIRS.items()},
    }


def run_t5(seed):
    """Measure the effect of more keys alone: T5's bias meets no new bucket."""
    model, n = extrapolation.model_of("lm", "t5", seed), max(LENGTHS)
    bias = model.bucket_bias[:, ready.t5_buckets(n, max_distance=ready.T5_LAST)].detach()
    shape = (8, 1, n, n)  # eight draws, each for four windows at a time
    few = arms.drawn(arms.latest(n, NEAR).expand(shape), arms.latest(n).expand(shape), TRAINED)
    few = few.repeat_interleave(4, dim=0).repeat(extrapolation.WINDOWS // 32, 1, 1, 1)

    def scores(q, k, reach):
        return q @ k.mT / math.sqrt(q.shape[-1]) + bias[:, -q.shape[-2] :, -k.shape[-2] :]

    return {
        "64": loss(model, TRAINED, scores=scores),
        "512, all": loss(model, n, scores=scores),
        "512, few": loss(model, n, visible=few, scores=scores),
    }


@torch.no_grad()
def needle(model, length, reach=None, window=None, size=128):
    """Share of needles found in the first quarter of the haystack, and the loss on the last 32 filler targets."""
    tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(10_000), far=True)
    visible = arms.latest(length, window)
    step = max(1, 2048 // length)
    logits = torch.cat([last_logits(model, part, 34, reach, visible) for part in tokens.split(step)])
    found = (logits[:, -1].argmax(-1) == targets[:, -1]).float().mean().item()
    return {
        "found": found,
        "filler": F.cross_entropy(logits[:, :-2].flatten(0, 1), targets[:, -34:-2].flatten()).item(),
    }


def run_needle(seed, lengths=NEEDLE_LENGTHS):
    model = extrapolation.model_of("needle", "rope", seed)
    return {
        name: {length: needle(model, length, reach, window) for length in lengths}
        for name, (reach, window) in RULES.items()
    }


def run_together(seed):
    model, n = language_model(seed), max(LENGTHS)
    return {name: loss(model, n, sent_to_but(*how), scores=arms.scores_at) for name, how in TOGETHER.items()} | {
        "at 64": loss(model, TRAINED),
        "at 64, pairs 4 to 7 held still": loss(model, TRAINED, lambda pair, d: d * (pair < 4), scores=arms.scores_at),
    }


def run_few_together(seed):
    """Few keys, where all distances beyond 63 are one and the same new one: do more keys harm by new distances alone?"""
    model, n = language_model(seed), max(LENGTHS)
    return {far: loss(model, n, sent_to(far), few_keys(n), scores=arms.scores_at) for far in (127, 200)}


@torch.no_grad()
def run_layers(seed):
    """Share of needles that the shipped ALiBi model finds among the far ones of 1,024 tokens, for each value that it
    always finds, if the query cannot see the needle in one layer."""
    model = extrapolation.untrained("needle", "alibi")
    with np.load(arms.SHIPPED / "week5_needle.npz") as shipped:
        model.load_state_dict({key: torch.from_numpy(shipped[key]).float() for key in shipped.files})
    model.eval()
    n, size = 1024, 384
    tokens, targets = ready.needles(size, n, torch.Generator().manual_seed(10_000), far=True)
    at, value = (tokens == ready.MARK).int().argmax(1), targets[:, -1] - ready.FILLERS
    found = {}
    for name, blind in (("as it is", None), ("blind in layer 1", 0), ("blind in layer 2", 1)):
        answers = torch.cat(
            [_answers(model, *part, blind) for part in zip(tokens.split(16), at.split(16), strict=True)]
        )
        right = answers == targets[:, -1]
        found[name] = {v: right[value == v].float().mean().item() for v in range(ready.VALUES)}
    return found


def _answers(model, tokens, at, blind):
    x, bias = model.embed(tokens), model.bias(tokens.shape[1], "cpu")
    for number, block in enumerate(model.blocks):
        q, k, v = block.attention.qkv(block.norm1(x)).unflatten(-1, (3, model.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).clone()
        if number == blind:
            for row, place in enumerate(at):
                scores[row, :, -1, place : place + 4] = -math.inf  # the mark, the value, and two tokens that saw it
        x = x + block.attention.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    return model.read(model.norm(x))[:, -1].argmax(-1)


def measure():
    for seed in arms.SEEDS:
        RECORD.measure("language", seed, run_language)
    for seed in arms.SEEDS:
        RECORD.measure("needle", seed, run_needle)
    for seed in arms.SEEDS:
        RECORD.measure("which", seed, run_which)
        RECORD.measure("t5", seed, run_t5)
    RECORD.measure("together", 0, run_together)
    RECORD.measure("few together", 0, run_few_together)
    RECORD.measure("layers", 0, run_layers)


def section():
    arm = {name: RECORD.values("language", name) for name in (*arms.FOUR, "familiar to 63, few")}
    cost_familiar, cost_new = (
        arms.mean([a - b for a, b in zip(arm[f"{kind}, all"], arm[f"{kind}, few"], strict=True)])
        for kind in ("familiar", "new")
    )
    sent = {far: arms.mean(RECORD.values("which", "sent to", far)) for far in ELSEWHERE}
    in_pairs = {name: arms.mean(RECORD.values("which", "clipped in", name)) for name in PAIRS}
    lines = [
        "## Week 5: language model with RoPE, trained on 64 characters, tested on 512",
        "",
        *arms.text(
            """Loss in nats on the last 32 targets of 96 windows. Seed 0 is the shipped checkpoint. Few keys: the
            nearest 32 and 32 others drawn from all before them (which keys a language model needs, nobody knows).
            Familiar: clipped at 31, since training showed a distance of 63 to one query of 64 only.""",
            f"""**What the arms say.** New distances do the damage. At familiar ones the model reads 512 characters
            almost as well as 64, with all keys too. The two interact: more keys cost {cost_familiar} nats at familiar
            distances and {cost_new} at new ones, and few keys at new distances are still far from good. Not each new
            distance harms, and not each old one is safe: with all distances beyond 63 counted as 87 or 231, which
            training never showed, the loss is {sent[87]} and {sent[231]}; counted as 127 it is {sent[127]}, and as 63,
            which training showed (ten turns of pair 0, one of pair 2), {sent[63]}. Clipped at 31 alone, pairs 0 to 2
            bring the loss down to {in_pairs["0 to 2"]}, pair 3 to {in_pairs["3"]}, pairs 4 to 7 to nothing better
            ({in_pairs["4 to 7"]}). Pairs act together: at 127 pair 3 is at a new angle while pair 2 is where it is at
            0, and pair 3 counted as 31 or 47 mends most of it, pair 2 half of it as 31 and little as 47; at 251 pair 2
            is there again, pair 3 at an angle it knows; at 200 pair 3 is at an angle it knows, too, and pair 1, 2 or 3
            counted as 31 mends most of it, as 47 only pair 1 or 3. A window breaks between 96 and 128 keys.""",
            """What the loss cannot show: a window of 8 costs hardly more than one of 32, so this model makes next to
            no use of far characters, and its loss does not say what a cut loses. The needle does. **Clipping loses
            nothing there**: all keys stay, content finds the needle, and the clipped model finds more needles than the
            unchanged one. **A window finds none** that lies beyond it, while the loss on filler stays where it was.
            What a clip costs is order: distances beyond it look alike (week 4's task, results_weeks34.md).""",
        ),
        *arms.four_arms(RECORD, "language", "Four arms at 512 (8x; familiar: clipped at 31)", "64 keys"),
        *arms.text(f"With the same 64 keys and distances clipped at 63: {arms.cell(arm['familiar to 63, few'])}."),
        *arms.by_size(RECORD, "language", "All 512 keys, distances clipped", {"clipped at": "reach"}, REACHES),
        *arms.by_size(RECORD, "language", "Window: the latest keys, in both layers", {"keys": "window"}, WINDOWS),
        *arms.by_size(RECORD, "which", "All 512 keys, distances beyond 63", {"counted as": "sent to"}, ELSEWHERE),
        *arms.by_size(RECORD, "which", "All 512 keys, clipped at 31 in some pairs", {"pairs": "clipped in"}, PAIRS),
        *arms.table(
            "The shipped model alone: all 512 keys, distances beyond 63",
            ["counted as", *TOGETHER],
            [["loss", *(arms.mean(RECORD.values("together", name)) for name in TOGETHER)]],
        ),
        *arms.text(
            f"""At 64 characters it has {RECORD.values("together", "at 64")[0]:.3f}; with pairs 4 to 7 at the angle 0
            everywhere, {RECORD.values("together", "at 64, pairs 4 to 7 held still")[0]:.3f}. With the 64 keys, and
            distances beyond 63 counted as 127, it has {arms.mean(RECORD.values("few together", 127))}, counted as 200
            {arms.mean(RECORD.values("few together", 200))}: more keys at one and the same new distance do harm, too."""
        ),
        *arms.table(
            "T5's bias, which meets no new bucket: the number of keys alone",
            ["64 characters", "512, 64 keys", "512, all keys"],
            [[arms.cell(RECORD.values("t5", name)) for name in ("64", "512, few", "512, all")]],
        ),
    ]
    rows = [[name, *(arms.cell(RECORD.values("language", "by length", name, n)) for n in LENGTHS)] for name in RULES]
    lines += arms.table("By length", ["", *(f"{n} ({n // TRAINED}x)" for n in LENGTHS)], rows)
    for what, title in (
        ("found", "needles found in the first quarter (guessing: 0.0625)"),
        ("filler", "loss on the last 32 filler targets (best possible: 0.50)"),
    ):
        rows = [[name, *(arms.cell(RECORD.values("needle", name, n, what)) for n in NEEDLE_LENGTHS)] for name in RULES]
        lines += arms.table(
            f"Needle, trained on 64: {title}", ["", *(f"{n} ({n // TRAINED}x)" for n in NEEDLE_LENGTHS)], rows
        )
    found = {v: RECORD.values("layers", "as it is", v)[0] for v in range(ready.VALUES)}
    always = [v for v, share in found.items() if share == 1]
    names = ("as it is", "blind in layer 1", "blind in layer 2")
    return lines + arms.table(
        "The shipped ALiBi model, 1,024 tokens: the values whose needles in the first quarter are always found, "
        "and if the query cannot see the needle in one layer",
        ["value", *map(str, always)],
        [[name, *(f"{RECORD.values('layers', name, v)[0]:.2f}" for v in always)] for name in names],
    )
