"""Week 7: copying and reversing without positions in the cross-attention, 2+2 layers, trained on lengths 2 to 10.

Three attentions can meet something new at lengths above 10: the encoder's (RoPE, both sides), the decoder's own
(ALiBi), and the cross-attention, which knows no distance and can only meet more keys.
"""

import arms
import capstone
import ready_blocks as ready
import torch

RECORD = arms.Record("distances_week7")
ARM = "no positions, 2+2 layers"
LENGTHS = (10, 15, 20)
LONG = LENGTHS[1:]
KNOWN = capstone.TRAINED[1] - 1  # the greatest distance of the training
REACHES = (3, 5, 7, 9, 12, 15)
# name -> what is changed: reach (clip) and hide (window on each side) in the encoder, the same in the decoder, and
# `few`: the needed keys and others drawn at random, 10 in all, in the encoder or in the cross-attention
RULES = {
    "as it is": {},
    "encoder clipped at 9": {"reach": KNOWN},
    "encoder beyond 9 hidden": {"hide": KNOWN},
    "encoder clipped at 9, 10 keys": {"reach": KNOWN, "few": True},
    "encoder 10 keys": {"few": True},
    "decoder beyond 9 hidden": {"decoder_hide": KNOWN},
    "cross-attention 10 keys": {"few_across": True},
    "encoder and decoder clipped at 9": {"reach": KNOWN, "decoder_reach": KNOWN},
    "encoder and decoder beyond 9 hidden": {"hide": KNOWN, "decoder_hide": KNOWN},
    "encoder beyond 9 hidden, cross-attention 10 keys": {"hide": KNOWN, "few_across": True},
    "encoder and decoder beyond 9 hidden, cross-attention 10 keys": {
        "hide": KNOWN,
        "decoder_hide": KNOWN,
        "few_across": True,
    },
}


def heads(layer, x):
    return layer.unflatten(-1, (x, -1)).transpose(1, 2)


def encoded(model, source, reach=None, hide=None, few=False):
    """The encoder's memory; sources have no padding here."""
    n, size = source.shape[1], len(source)
    distance = arms.distances(n).abs()
    visible = distance <= (n if hide is None else hide)
    if few:  # itself and its neighbours stay: what the task needs
        shape = (size, 1, n, n)
        visible = arms.drawn((distance <= 1).expand(shape), visible.expand(shape), min(n, KNOWN + 1))
    x = model.embed(source)
    for layer in model.encoder.layers:
        attention, h = layer["attention"], layer["norm1"](x)
        q, k, v = (heads(part(h), attention.n_heads) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
        x = x + attention.o_proj(arms.mixed(arms.rotary_scores(q, k, reach, causal=False), v, visible))
        x = x + layer["mlp"](layer["norm2"](x))
    return model.encoder.norm(x)


def own_tokens(layer, x, reach, hide):
    """The decoder's self-attention with ALiBi."""
    n = x.shape[1]
    distance = arms.distances(n)
    visible = (distance >= 0) & (distance <= (n if hide is None else hide))
    slopes = torch.tensor(ready.slopes_of(layer.n_heads))[:, None, None]
    q, k, v = layer.heads(x)
    scores = q @ k.mT / layer.head_dim**0.5 - slopes * distance.abs().clamp(max=n if reach is None else reach)
    return layer.o_proj(arms.mixed(scores, v, visible))


def across(layer, x, memory, visible):
    q, _, _ = layer.heads(x)
    _, k, v = layer.heads(memory)
    return layer.o_proj(arms.mixed(q @ k.mT / layer.head_dim**0.5, v, visible))


@torch.no_grad()
def written(model, source, task, decoder_reach=None, decoder_hide=None, few_across=False, **encoder):
    """What the model writes, the likeliest symbol at each step; True where it is right: (batch, n)."""
    n, size = source.shape[1], len(source)
    memory, told = encoded(model, source, **encoder), torch.full((size, 1), ready.START)
    needed = torch.eye(n, dtype=torch.bool)
    needed = (needed if task == "copy" else needed.flip(1)).expand(size, 1, n, n)
    visible = arms.drawn(needed, torch.ones_like(needed), min(n, KNOWN + 1)) if few_across else torch.ones_like(needed)
    for step in range(n):
        x = model.embed(told)
        for block in model.blocks:
            x = x + own_tokens(block.self_attn, block.norm1(x), decoder_reach, decoder_hide)
            x = x + across(block.cross_attn, block.norm2(x), memory, visible[:, :, : step + 1])
            x = x + block.ffn(block.norm3(x))
        told = torch.cat((told, model.read(model.norm(x[:, -1:])).argmax(-1)), dim=1)
    return told[:, 1:] == ready.answer_to(source, task)


def scores(model, task, length, **changes):
    source = ready.sources(200, (length, length), torch.Generator().manual_seed(10_000))
    right = written(model, source, task, **changes)
    return {"whole": right.all(1).float().mean().item(), "single": right.float().mean().item()}


def model_of(task, seed):
    alignment, n_layers, steps, learning_rate = capstone.ARMS[ARM]
    torch.manual_seed(seed)
    model = ready.CopyModel([capstone.AlignedBlock(64, 4) for _ in range(n_layers)], alignment)
    return arms.kept(
        f"week7_{task}_{seed}", model, lambda m: ready.train(m, task, seed, steps, learning_rate=learning_rate)
    )


def run(task, seed):
    model = model_of(task, seed)
    return {
        "rules": {
            name: {length: scores(model, task, length, **changes) for length in LENGTHS}
            for name, changes in RULES.items()
        },
        "reach": {reach: {length: scores(model, task, length, reach=reach) for length in LONG} for reach in REACHES},
        "hide": {reach: {length: scores(model, task, length, hide=reach) for length in LONG} for reach in REACHES},
    }


def measure():
    for task in capstone.TASKS:
        for seed in arms.SEEDS:
            RECORD.measure(task, seed, lambda seed, task=task: run(task, seed))


def section():
    lines = [
        "## Week 7: copy and reverse without positions in the cross-attention, 2+2 layers, trained on 2 to 10",
        "",
        *arms.text(
            """Encoder: RoPE on both sides; decoder: ALiBi; cross-attention: no distances. Few keys: itself, its
            neighbours and 7 others (encoder); the needed symbol and 9 others (cross-attention). 200 sequences, greedy
            decoding."""
        ),
    ]
    for task in capstone.TASKS:
        for what, title in (("whole", "sequences without a mistake"), ("single", "right symbols")):
            rows = [
                [name, *(arms.cell(RECORD.values(task, "rules", name, n, what)) for n in LENGTHS)] for name in RULES
            ]
            lines += arms.table(f"{task}: {title}", ["", *(f"length {n}" for n in LENGTHS)], rows)
        rows = [
            [f"{words}, length {n}", *(arms.cell(RECORD.values(task, key, size, n, "whole")) for size in REACHES)]
            for words, key in (("clipped at", "reach"), ("hidden beyond", "hide"))
            for n in LONG
        ]
        lines += arms.table(f"{task}: encoder by size, sequences without a mistake", ["", *map(str, REACHES)], rows)
    return lines
