"""Measure the claims of weeks 3 and 4 beyond their live experiments, over six seeds: `python experiments/weeks34.py`.

Writes results_weeks34.md from weeks34.json beside this file, which keeps the results of each seed. About three minutes
on one thread. Models and settings are the notebooks' own; the four arms of week 3 are in results_distances.md.
"""

import math

import arms
import distances_week3 as week3
import torch
import torch.nn.functional as F
from torch import nn

from autograder import reference

SEEDS = range(6)
RECORD = arms.Record("weeks34")
RESULTS = arms.HERE / "results_weeks34.md"

# ---- week 3 ---------------------------------------------------------------------------------------------------------


def nowhere(n):
    return torch.zeros(n)


@torch.no_grad()
def look_back_accuracy(model, positions):
    """Return the accuracy at each position from 3 on."""
    tokens, answers = arms.look_back_texts(256, len(positions), torch.Generator().manual_seed(1))
    return (model(tokens, positions).argmax(-1) == answers).float().mean(0)[3:]


def mean_scores(model, length=129):
    """Return each head's score of a key by its offset alone, from the mean query and the mean key: (heads, length)."""
    state = model.state_dict()
    token = state["embed.weight"].mean(0)
    q, k = ((state[f"attention.{name}.weight"] @ token).view(1, 2, 1, 16) for name in ("q_proj", "k_proj"))
    return (reference.apply_rotary_emb(q.expand(1, 2, length, 16), torch.arange(length)) * k).sum(-1)[0] / 4


def echoes(scores):
    """Count which of a head's five highest peaks beyond offset 31 are within half a position of 3 plus full turns."""
    middle = scores[1:-1]
    peaks = 1 + torch.nonzero((middle > scores[:-2]) & (middle > scores[2:]))[:, 0]
    outside = peaks[peaks >= week3.TRAINED]
    best = outside[scores[outside].argsort(descending=True)[:5]]
    turns = (best - 3) / (2 * math.pi)
    return int(((turns - turns.round()).abs() * 2 * math.pi <= 0.5).sum())


def run_look_back(seed):
    model, without = week3.trained(seed), week3.trained(seed, nowhere)
    at, far = torch.arange(week3.TRAINED), look_back_accuracy(model, torch.arange(week3.LENGTH))
    scores = mean_scores(model)
    return {
        "RoPE, 32 tokens": look_back_accuracy(model, at).mean().item(),
        "RoPE, 32 tokens, positions + 1,000": look_back_accuracy(model, at + 1000).mean().item(),
        "no positions, 32 tokens": look_back_accuracy(without, nowhere(week3.TRAINED)).mean().item(),
        "RoPE, 256 tokens, positions 128 to 255": far[128 - 3 :].mean().item(),
        "peaks at full turns, of 10": sum(echoes(head) for head in scores),
        "heads in which 122 beats 3, of 2": int((scores[:, 122] > scores[:, 3]).sum()),
    }


# ---- week 4 ---------------------------------------------------------------------------------------------------------


class Rival(nn.Module):
    """The notebook's causal attention without positions or with RoPE; ``reach``, if given, clips the distances."""

    def __init__(self, width, heads, rope):
        super().__init__()
        self.rope, self.reach = rope, None
        self.maps = nn.Parameter(torch.empty(4, heads, width, width // heads).uniform_(-1, 1) / math.sqrt(width))

    def forward(self, x):
        q, k, v = torch.einsum("bnw,mhwc->mbhnc", x, self.maps[:3])
        if self.reach is not None:
            scores = arms.rotary_scores(q, k, self.reach).masked_fill(~arms.latest(x.shape[1]), -math.inf)
            out = scores.softmax(-1) @ v
        else:
            if self.rope:
                at, frequencies = torch.arange(x.shape[1]), arms.ready.frequencies_of(q.shape[-1])
                q, k = arms.ready.rotate(q, at, frequencies), arms.ready.rotate(k, at, frequencies)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bhnc,hwc->bnw", out, self.maps[3])


class Reader(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed, self.attention, self.read = nn.Embedding(16, 64), attention, nn.Linear(64, 8)

    def forward(self, tokens):
        return self.read(self.attention(self.embed(tokens)))


def most_recent_marked(batch, length, generator):
    letters = torch.randint(0, 8, (batch, length), generator=generator)
    marked = torch.rand(batch, length, generator=generator) < 1 / 8
    marked[:, 0] = True
    latest = torch.where(marked, torch.arange(length), 0).cummax(1).values
    return letters + 8 * marked, letters.gather(1, latest)


TASKS = {"most recent marked": most_recent_marked, "three back": arms.look_back_texts}
REACHES = (3, 7, 31)
ARMS = {
    "ALiBi": lambda: reference.ALiBiMultiHeadAttention(64, 8),
    "RoPE": lambda: Rival(64, 8, rope=True),
    "no position": lambda: Rival(64, 8, rope=False),
}

COMPARED = {"most recent marked": tuple(ARMS), "three back": ("ALiBi", "RoPE")}  # as in the text


def trained(make, task, seed):
    torch.manual_seed(seed)
    return arms.fit(Reader(make()), task, seed, steps=200)


@torch.no_grad()
def near_and_far(model, task, count=6):
    """Accuracy at positions 3 to 31 and 128 to 255 of 256, over ``count`` batches of 32 texts."""
    generator = torch.Generator().manual_seed(1)
    batches = [task(32, 256, generator) for _ in range(count)]
    curve = torch.cat([(model(tokens).argmax(-1) == answers).float() for tokens, answers in batches]).mean(0)
    return {"near": curve[3:32].mean().item(), "far": curve[128:].mean().item()}


def run_rivals(task, seed):
    result = {}
    for name in COMPARED[task]:
        model = trained(ARMS[name], TASKS[task], seed)
        result[name] = near_and_far(model, TASKS[task])
        if name == "RoPE":
            for reach in REACHES:
                model.attention.reach = reach
                result[f"RoPE, clipped at {reach}"] = near_and_far(model, TASKS[task], count=2)
    return result


def nearest_share(seed):
    """Return the attention on the nearest 8 of 128 keys under ALiBi, random content, first and last of 8 heads.

    Also return the factors by which the first head's mean weight falls, from distance 0 to 1 and per step from 8 to 16.
    """
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(4000, 1, 1, 16, generator=generator)
    keys = torch.randn(4000, 1, 128, 16, generator=generator)
    weights = (query @ keys.mT / 4 + reference.alibi_bias(8, 1, 128)).softmax(-1)
    share = weights[..., -8:].sum(-1).mean((0, 2))
    first = weights[:, 0].mean((0, 1)).flip(-1)
    return {
        "head 0": share[0].item(),
        "head 7": share[7].item(),
        "0 to 1": (first[0] / first[1]).item(),
        "8 to 16": (first[8] / first[16]).item() ** (1 / 8),
    }


def ties(_):
    """Count the heads of 112 that cannot tell the last two of 2,048 keys apart; bias slope * j (BLOOM) in bfloat16."""
    bias = (reference.alibi_slopes(112)[:, None] * torch.arange(2048)).to(torch.bfloat16)
    exact = (reference.alibi_slopes(112).double()[:, None] * torch.arange(2048)).softmax(-1)
    off = ((bias.double().softmax(-1) - exact).abs().amax(1) > 0.01).sum()
    leads = (0.25, 0.5, 1, 2, 3, 4, 6)  # of the older key, in content; bias and score are summed in bfloat16
    content = {lead: torch.tensor([lead, 0.0], dtype=torch.bfloat16) for lead in leads}
    return {
        "bias alone": int((bias[:, -1] == bias[:, -2]).sum()),
        "a weight off by more than 0.01": int(off),
        "summed": {
            lead: int(((bias[:, -2:] + added)[:, 0] == (bias[:, -2:] + added)[:, 1]).sum())
            for lead, added in content.items()
        },
    }


# ---- the page -------------------------------------------------------------------------------------------------------


def measure():
    for seed in SEEDS:
        RECORD.measure("look back", seed, run_look_back)
    for seed in SEEDS:
        RECORD.measure("nearest 8", seed, nearest_share)
    RECORD.measure("ties", 0, ties)
    for task in TASKS:
        for seed in SEEDS:
            RECORD.measure(task, seed, lambda seed, task=task: run_rivals(task, seed))


def page():
    versions = RECORD.made_with()
    lines = [
        "# Weeks 3 and 4: what was measured",
        "",
        *arms.text(
            f"""Made by `experiments/weeks34.py`; do not edit. Mean (lowest to highest) over {len(SEEDS)} training seeds,
            or as many as the row says. Python {versions["python"]}, torch {versions["torch"]},
            CPU, one thread. What clipping does to week 3's head: results_distances.md."""
        ),
    ]
    names = (
        "RoPE, 32 tokens",
        "RoPE, 32 tokens, positions + 1,000",
        "no positions, 32 tokens",
        "RoPE, 256 tokens, positions 128 to 255",
    )
    rows = [[name, arms.cell(RECORD.values("look back", name))] for name in names]
    lines += arms.table("Week 3: name the token three positions back", ["", "accuracy"], rows)
    peaks = RECORD.values("look back", "peaks at full turns, of 10")
    beaten = RECORD.values("look back", "heads in which 122 beats 3, of 2")
    lines += [
        f"Echoes: of the five highest peaks beyond offset 31 of {2 * len(peaks)} heads, {sum(peaks)} of "
        f"{10 * len(peaks)} lie within half a position of 3 plus full",
        f"turns of pair 0. In {sum(beaten)} of the {2 * len(beaten)} heads offset 122 scores higher than offset 3.",
        "",
    ]
    lines += arms.text(
        """Week 4, **what clipping says.** RoPE's fall beyond the training length is one of new distances here too: with
        none above 31 it names the most recent marked letter about as well as ALiBi, all 256 keys in view. And what a clip
        costs can be seen where it is too short for the task: distances beyond it look alike, so the *most recent* of the
        letters there cannot be told."""
    )
    rows = [
        [
            f"{task}, {arm} ({len(RECORD.values(task, arm))} seeds)",
            *(arms.cell(RECORD.values(task, arm, where)) for where in ("near", "far")),
        ]
        for task in TASKS
        for arm in (*COMPARED[task], *(f"RoPE, clipped at {reach}" for reach in REACHES))
    ]
    lines += arms.table(
        "Week 4: trained on 32 tokens, tested on 256", ["", "positions 3 to 31", "positions 128 to 255"], rows
    )
    rows = [[name, arms.cell(RECORD.values("nearest 8", name))] for name in ("head 0", "head 7")]
    lines += arms.table(
        "Week 4: share of the nearest 8 of 128 keys, random content, 8 heads, six draws", ["", "share"], rows
    )
    rows = [[name, arms.cell(RECORD.values("nearest 8", name))] for name in ("0 to 1", "8 to 16")]
    lines += arms.table(
        f"The same, head 0: by which factor the mean weight falls per step (its bias alone: {math.exp(0.5):.3f})",
        ["distance", "factor"],
        rows,
    )
    found = RECORD.values("ties", "summed")
    if found:
        lines += [
            "### Week 4: BLOOM's bias in bfloat16, 112 heads, the last two of 2,048 keys",
            "",
            f"Bias alone: {RECORD.values('ties', 'bias alone')[0]} heads give both keys the same number; in "
            f"{RECORD.values('ties', 'a weight off by more than 0.01')[0]} heads some weight is off by more than 0.01.",
            "Score and bias summed in bfloat16, the older key ahead in content: heads in which the sums tie.",
            "",
            "| ahead by | " + " | ".join(found[0]) + " |",
            "|---" * (len(found[0]) + 1) + "|",
            "| heads | " + " | ".join(map(str, found[0].values())) + " |",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure()
    RESULTS.write_text(page(), encoding="utf-8")
