"""Week 3: name the token three positions back. One layer with RoPE, trained on 32 tokens, tested on 256."""

import arms
import torch
from torch import nn

from autograder import reference

RECORD = arms.Record("distances_week3")
SEEDS = range(6)  # as many as the text reports
LENGTH, TRAINED, FIRST = 256, 32, 64
REACHES = (3, 4, 5, 7, 9, 11, 15, 22, 23, 31, 35, 39, 41, 47, 63, 95, 127, 255)
WINDOWS = (4, 8, 16, 24, 32, 40, 48, 64, 128, 256)


class LookBack(nn.Module):
    """The notebook's model."""

    def __init__(self):
        super().__init__()
        self.embed, self.attention = nn.Embedding(8, 32), reference.RotaryMultiHeadAttention(32, 2)
        self.read = nn.Linear(32, 8)

    def forward(self, tokens, positions):
        return self.read(self.attention(self.embed(tokens), positions, is_causal=True))


def trained(seed, position_of=torch.arange):
    torch.manual_seed(seed)
    model = LookBack()
    return arms.fit(model, arms.look_back_texts, seed, 150, lambda tokens: model(tokens, position_of(TRAINED)))


@torch.no_grad()
def accuracy(model, reach, visible):
    """Return the accuracy at positions 64 to 255."""
    tokens, answers = arms.look_back_texts(64, LENGTH, torch.Generator().manual_seed(1))
    layer = model.attention
    q, k, v = layer.heads(model.embed(tokens))
    out = arms.mixed(arms.rotary_scores(q, k, reach), v, visible)
    right = model.read(layer.o_proj(out)).argmax(-1) == answers
    return right[:, FIRST:].float().mean().item()


def run(seed):
    model, everything = trained(seed), arms.latest(LENGTH)
    shape = (64, 1, LENGTH, LENGTH)
    few = arms.drawn((arms.distances(LENGTH) == 3).expand(shape), everything.expand(shape), TRAINED)
    return {
        "familiar, few": accuracy(model, TRAINED - 1, few),
        "familiar, all": accuracy(model, TRAINED - 1, everything),
        "new, few": accuracy(model, None, few),
        "new, all": accuracy(model, None, everything),
        "reach": {reach: accuracy(model, reach, everything) for reach in REACHES},
        "window": {count: accuracy(model, None, arms.latest(LENGTH, count)) for count in WINDOWS},
    }


def measure():
    for seed in SEEDS:
        RECORD.measure("copy head", seed, run)


def section():
    return [
        "## Week 3: look back three positions, RoPE, trained on 32, positions 64 to 255 of 256 tokens",
        "",
        *arms.text(
            f"""Accuracy over {len(SEEDS)} seeds; guessing gives 0.125. Few keys: the right one and 31 others drawn
            from all before the query.""",
            """**What the arms say.** At familiar distances all keys do as well as few. At new distances few keys do not
            help enough, and more keys make it worse. Clipped at 3, every farther key looks like the
            right one. The cut must miss the echoes of 3, those within training too: 9 and 22, near 3 and
            one or three full turns of pair 0, lose some. Near 3 and five, six or seven turns (34.4,
            40.7, 47) all far keys look more or less like the right one again. A clip and a window of
            this size break together at 48.""",
        ),
        *arms.four_arms(RECORD, "copy head", "Four arms (familiar: clipped at 31)", "32 keys"),
        *arms.by_size(RECORD, "copy head", "All keys, distances clipped", {"clipped at": "reach"}, REACHES),
        *arms.by_size(RECORD, "copy head", "Window: the latest keys", {"keys": "window"}, WINDOWS),
    ]
