# %% [markdown]
# # Week 8 · Positions in production: what served models do
#
# **In short.** Models that people use change the encodings of this course, and week 7's cache, to save memory and to read video. Build these changes, read them in configurations, and measure one.
#
# You have learned RoPE from its formula. Now open the configuration of a model that you use. You may find `partial_rotary_factor: 0.25`, `no_rope_layers: [1, 1, 1, 0, …]`, `mrope_section: [16, 24, 24]`, `sliding_window: 128` or `qk_rope_head_dim: 64`. Each of these lines decides which layers or channels see a position, which position that is, or which keys are seen. Read one of them wrongly, and the model gets worse, in most cases without an error.
#
# This week is **optional**. Only scenarios C and D of exercise 7.10 lean on it.
#
# <!-- costs of week8_production -->
#
# ## What you will be able to do
#
# - turn a part of a head's channels, with the right frequencies;
# - give text, images and video positions on three axes, and rotate by them;
# - mask a window, add a sink to a softmax, and number the tokens of a cache that stays small;
# - attend to a compressed cache without expanding it, and say why a rotation would forbid that;
# - read from a configuration which layers and channels see a position;
# - predict, measure and explain what a stream does to a model with a bounded cache.
#
# **You need** week 3, from week 5 the loss beyond the training length, and from week 7 the KV cache (exercises 7.1 to 7.5).
#
# **Short of time?** 8.1, 8.3 and 8.6 are the core; 8.4 is what people ask about most.
#
# <!-- points of week8_production -->
#
# A *visible check* carries no points: it says what is wrong. *Predict* cells are not graded; do them anyway.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`; $d$ is the head dimension. Masks are boolean, True = may attend.
# - RoPE is in the **half layout** of exercise 3.4: pair $i$ is made of a channel in the first half and one in the second. (Some models named here pair neighbours instead: GPT-J, GLM-4, Cohere 2, Llama 4, DeepSeek-V3. That changes the channels, not the idea.)
# - Positions are real numbers, `(seq_len,)` or `(batch, seq_len)`; they may be negative or fractional.
# - With fewer queries than keys, the queries are the *last* positions, as always in this course.
# - Functions keep the dtype and device of their input, keep gradients, and never change an argument in place. Angles are computed in at least float32, also for bfloat16 inputs.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import lab
import serving_lab as serving

lab.use_style()
torch.manual_seed(0)
np.random.seed(0)

# %% [markdown]
# ## 1 · A quarter of the channels
#
# GPT-NeoX rotates the first quarter of every head's channels and leaves the rest alone (Black et al., 2022, section 2.1.1). GPT-J had done so before, with 64 of 256. [Phi](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/phi/configuration_phi.py) and [GLM-4](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/glm4/configuration_glm4.py) turn half of the channels, [StableLM](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/stablelm/configuration_stablelm.py) and [Qwen3-Next](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen3_next/configuration_qwen3_next.py) a quarter (defaults of `transformers` 5.23). The other channels compare content only: their part of the score is the same at every distance. This is **partial rotary embedding**.
#
# Why give up most of the rotation? Turning fewer channels is cheaper (GPT-NeoX's own argument). It seems to cost nothing: Khan et al. (2026) trained models with several fractions, and those that turned about a tenth of the channels converged like those that turned all. And a channel that does not turn meets no unknown angle at any length. Week 5's hybrid has a whole layer that does not turn, and found every needle at 16 times its length.
#
# The rotated part is a small RoPE of its own. With $r$ rotated channels (`rotary_dim`), pair $i$ has the frequency
#
# $$\theta_i = \text{base}^{-2i/r},\qquad i=0,\dots,r/2-1, \tag{1}$$
#
# so the $r/2$ pairs cover the whole range of frequencies, fast to slow. The exponent has $r$ and not $d$. Put $d$ there and you keep the first $r/2$ of a long list: the fast pairs, and none of the slow ones.
#
# **An example.** With $d=8$, $r=4$ and base 10,000 there are two pairs. Channels 0 and 2 turn by 1 radian per position, channels 1 and 3 by $10000^{-2/4}=0.01$. Channels 4 to 7 pass unchanged. Partners are $r/2=2$ apart, not $d/2=4$.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 8.1: run this cell.
wavelengths = {
    "all 96 channels turn": [2 * math.pi * 10000 ** (2 * i / 96) for i in range(48)],
    "24 turn, exponent −2i/24": [2 * math.pi * 10000 ** (2 * i / 24) for i in range(12)],
    "24 turn, exponent −2i/96": [2 * math.pi * 10000 ** (2 * i / 96) for i in range(12)],
}
fig, ax = lab.figure("How long does a full turn take? Heads of 96 channels, as in GPT-NeoX", height=2.7)
for row, ((name, lengths), colour) in enumerate(zip(wavelengths.items(), (lab.GREY, lab.BLUE, lab.VERMILLION))):
    ax.plot(lengths, [-row] * len(lengths), "o-", color=colour, markersize=4.5, linewidth=1)
    ax.plot(lengths[-1], -row, "o", color=colour, markersize=10)
    ax.annotate(f"slowest pair: {lengths[-1]:,.0f}", (lengths[-1], -row), (0, 10), textcoords="offset points",
                ha="left" if row == 2 else "right", color=colour, fontweight="bold")
ax.set(xscale="log", xlabel="positions per full turn", xticks=[10, 100, 1000, 10000], xlim=(5, 90000), ylim=(-2.5, 0.7),
       yticks=[0, -1, -2])
ax.set_xticklabels(["10", "100", "1,000", "10,000"])
ax.set_yticklabels(list(wavelengths))
ax.minorticks_off()
ax.grid(axis="x")
plt.show()


# %% [markdown]
# **Figure 8.1. Wavelengths of the pairs.** Each dot is a pair; the slowest is large. Compare where the rows end.

# %% [markdown]
# With the right exponent twelve pairs reach more than half as far as forty-eight. With the wrong one the slowest pair comes round after 52 positions: no pair is left that tells longer distances apart. A checkpoint loaded into such code gets wrong angles in every pair but the first.

# %% [markdown]
# ### Exercise 8.1 · Partial rotary embedding
#
# **3 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* the models above need it, and all of them turn the *first* channels. `rotary_dim = head_dim` must give exercise 3.4 again.

# %% nbgrader={"grade_id": "partial_rotary_emb", "solution": true}
def partial_rotary_emb(x, positions, rotary_dim, base=10000.0):
    """RoPE in the half layout on the first rotary_dim channels; the others pass unchanged.

    x:          (batch, heads, seq_len, head_dim), any floating dtype
    positions:  (seq_len,) or (batch, seq_len), real numbers
    rotary_dim: even, from 2 to head_dim; else ValueError. Pairs are (i, i + rotary_dim/2), their frequencies
                base**(-2i/rotary_dim)
    returns:    shape and dtype of x; the channels from rotary_dim on bit for bit as they came
    """
    ### BEGIN SOLUTION
    if rotary_dim % 2 or not 2 <= rotary_dim <= x.shape[-1]:
        raise ValueError(f"rotary_dim must be even and from 2 to {x.shape[-1]}, got {rotary_dim}")
    pair = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=x.device)
    angles = positions.to(x.device, torch.float64)[..., None] * base ** (-pair / rotary_dim)
    if positions.ndim == 2:
        angles = angles[:, None]  # the same for all heads of a text
    computed = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(computed), angles.sin().to(computed)
    first, second = x[..., :rotary_dim].to(computed).chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((turned.to(x.dtype), x[..., rotary_dim:]), dim=-1)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Cut off the first `rotary_dim` channels, rotate them as in 3.4 with `rotary_dim` in place of `head_dim`, and put the other channels back behind them.
# </details>
#
# <details><summary>Hint 2: shapes</summary>
#
# Angles have the shape `(seq_len, rotary_dim/2)` or `(batch, seq_len, rotary_dim/2)`. The latter needs one more axis for the heads, after the batch.
# </details>

# %% nbgrader={"grade_id": "partial_rotary_emb_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
generator = torch.Generator().manual_seed(1)
x = torch.randn(2, 3, 5, 8, generator=generator)
out = partial_rotary_emb(x, torch.arange(5), 4)
lab.must_be_a_tensor(out)
assert out.dtype == torch.float32, f"the dtype of x, float32, is expected, got {out.dtype}."
assert tuple(out.shape) == (2, 3, 5, 8), f"shape (2, 3, 5, 8) expected, got {tuple(out.shape)}."
assert not bool(out[..., 4:].eq(0).all()), "channels 4 to 7 are zeros: they must pass as they are."
assert torch.allclose(out[:, :, 0], x[:, :, 0], atol=1e-6), "at position 0 no channel may change."
assert torch.equal(out[..., 4:], x[..., 4:]), "with rotary_dim 4 the channels 4 to 7 must pass unchanged."
lengths, before = out[..., :4].norm(dim=-1), x[..., :4].norm(dim=-1)
assert torch.allclose(lengths, before, atol=1e-5), "a rotation keeps lengths; the first four channels have lost theirs."
e = torch.zeros(1, 1, 1, 8)
e[..., 0] = 1.0
turned = partial_rotary_emb(e, torch.tensor([1.0]), 4)[0, 0, 0]
reached = [channel for channel, value in enumerate(turned.tolist()) if channel and abs(value) > 1e-6]
assert reached in ([], [2]), (
    f"channel 0, turned, reaches into channel {reached}; its partner is channel 2: pair partners are rotary_dim/2 apart.")
assert abs(float(turned[2]) + math.sin(1)) > 1e-4, "channel 0 has turned the other way: channel 2 must become sin 1, not -sin 1."
expected = torch.tensor([math.cos(1), 0.0, math.sin(1), 0.0, 0.0, 0.0, 0.0, 0.0])
assert torch.allclose(turned, expected, atol=1e-5), (
    "channel 0 alone, at position 1, must become cos 1 = 0.540 in channel 0 and sin 1 = 0.841 in channel 2; "
    f"you have {float(turned[0]):.3f} and {float(turned[2]):.3f}.")
e = torch.zeros(1, 1, 1, 8)
e[..., 1] = 1.0
turned = partial_rotary_emb(e, torch.tensor([10.0]), 4)[0, 0, 0]
assert abs(float(turned[3]) - math.sin(0.1)) < 1e-4, (
    f"pair 1 of rotary_dim 4 turns by 0.01 per position, at position 10 its sine is {math.sin(0.1):.4f}; "
    f"yours is {float(turned[3]):.4f}. Equation (1).")
rows = torch.stack((torch.arange(5), torch.arange(5) + 7))
both = partial_rotary_emb(x, rows, 4)
assert torch.allclose(both[1], partial_rotary_emb(x[1:], rows[1], 4)[0], atol=1e-5), (
    "positions (batch, seq_len): each text of the batch has its own row.")
assert partial_rotary_emb(x.bfloat16(), torch.arange(5), 4).dtype == torch.bfloat16, "bfloat16 in, bfloat16 out."
for wrong in (3, 0, 10):
    assert lab.raises(ValueError, partial_rotary_emb, x, torch.arange(5), wrong), f"rotary_dim {wrong} of 8: ValueError."
# It computes where its inputs are, on any device.
lab.follows_the_device(partial_rotary_emb, torch.ones(1, 2, 3, 8), torch.arange(3), 4)
print("Looks right. The hidden tests use other widths, bases and far positions.")

# %% nbgrader={"grade_id": "partial_rotary_emb_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.partial_rotary_emb(partial_rotary_emb)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Three axes
#
# A video has a time, a height and a width. If you number its patches 0, 1, 2, … along the rows, a patch and the one right below it are a whole row apart. With rows of 40 patches, one step down is 40 positions. The next frame is hundreds of positions away. A relative encoding then takes neighbours for strangers.
#
# Qwen2-VL (Wang et al., 2024, section 2.1) gives every token **three** positions: time, height, width. The paper calls this M-RoPE. The pairs of a head are shared out among the axes: pair $p$ turns by the position on its axis $a(p)$,
#
# $$\varphi_p = \text{position}_{a(p)}\cdot\text{base}^{-2p/d}. \tag{2}$$
#
# In Qwen2-VL a head has 128 channels in 64 pairs, and the **sections** are `[16, 24, 24]`: pairs 0 to 15 turn by time, 16 to 39 by height, 40 to 63 by width. The frequencies are those of all 64 pairs in one list. They do not start again in each section.
#
# **Text** has one axis. A text token gets the same number on all three. Then every pair turns by that number, whatever its axis, and M-RoPE is ordinary RoPE. So a trained language model needs no change.
#
# **Where does text go on after a video?** Let $s$ be the largest number so far *on any axis*, plus one. Text goes on at $s$. A grid takes the positions $s+t,\ s+h,\ s+w$, and after it $s$ is computed anew.
#
# **An example.** Two text tokens come first, then one frame of two rows and three columns, then text:
#
# | token | time | height | width |
# |---|---|---|---|
# | text | 0 | 0 | 0 |
# | text | 1 | 1 | 1 |
# | row 0, columns 0, 1, 2 | 2, 2, 2 | 2, 2, 2 | 2, 3, 4 |
# | row 1, columns 0, 1, 2 | 2, 2, 2 | 3, 3, 3 | 2, 3, 4 |
# | text | 5 | 5 | 5 |
#
# The six patches took three positions, not six. The paper counts this as an advantage: a long video uses up few of the positions that the model was trained on. (Here a patch is a token. Qwen2-VL merges 2 × 2 patches into one and, in a video, two frames; see `spatial_merge_size` and `temporal_patch_size` in its configuration.)

# %% [markdown] tags=["prediction"]
# **Predict.** Two text tokens, then a video of 5 frames of 2 × 2 patches, then text. At which number does the text go on: 4, 7, 12 or 22?
#
# *Your prediction:*

# %% [markdown]
# ### Exercise 8.2 · Positions on three axes
#
# **3 points · difficulty 3/5 · 20 minutes · code**
#
# *Why it matters:* for images both "the larger of height and width" and "the largest number on any axis" give the same number. For a video with more frames than rows and columns they differ, and `transformers` 5.23 takes the wrong one (see "What people get wrong").
#
# A text of 0 tokens, or a grid with a side of 0, has no token: it adds nothing and moves nothing.

# %% nbgrader={"grade_id": "mrope_positions", "solution": true}
def mrope_positions(segments):
    """Positions on the axes time, height, width.

    segments: a list in reading order. An int n >= 0: n text tokens, the same number on all axes. A tuple (t, h, w) of
              ints >= 0: a grid of t frames, h rows, w columns, row by row, frame by frame; positions s+t, s+h, s+w.
              s starts at 0; after a segment it is the largest number so far on any axis, plus 1
    returns:  int64 (3, n) for n tokens in all; (3, 0) without tokens
    """
    ### BEGIN SOLUTION
    parts, s = [torch.zeros(3, 0, dtype=torch.int64)], 0
    for segment in segments:
        if isinstance(segment, int):
            at = torch.arange(segment).expand(3, segment)
        else:
            axes = torch.meshgrid(*(torch.arange(size) for size in segment), indexing="ij")
            at = torch.stack(axes).flatten(1)
        if at.numel():
            parts.append(s + at)
            s = int(parts[-1].max()) + 1
    return torch.cat(parts, dim=1)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep a list of pieces, each `(3, tokens)`, and the number `s`. `torch.cat` at the end.
# </details>
#
# <details><summary>Hint 2: the grid</summary>
#
# `torch.meshgrid(torch.arange(t), torch.arange(h), torch.arange(w), indexing="ij")` gives three `(t, h, w)` tensors. Flattened, they are in the right order.
# </details>

# %% nbgrader={"grade_id": "mrope_positions_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
text_only = mrope_positions([4])
assert isinstance(text_only, torch.Tensor), f"return a tensor, not a {type(text_only).__name__}."
assert tuple(text_only.shape) == (3, 4), f"four text tokens: shape (3, 4) expected, got {tuple(text_only.shape)}."
assert text_only.dtype == torch.int64, f"positions are int64; yours are {text_only.dtype}."
assert text_only.tolist() == [[0, 1, 2, 3]] * 3, (
    f"four text tokens stand at 0, 1, 2, 3 on every axis; yours: {text_only.tolist()}.")
found = mrope_positions([2, (1, 2, 3), 2])
assert tuple(found.shape) == (3, 10), f"2 + 6 + 2 tokens: shape (3, 10) expected, got {tuple(found.shape)}."
assert found[:, :2].tolist() == [[0, 1]] * 3, "the text before the grid stands at 0 and 1."
time, height, width = found[:, 2:8].tolist()
assert sorted((time, height, width)) == sorted(([2] * 6, [2, 2, 2, 3, 3, 3], [2, 3, 4, 2, 3, 4])), (
    f"a grid (1, 2, 3) after two tokens, row by row: 2 2 2 2 2 2, 2 2 2 3 3 3 and 2 3 4 2 3 4; yours: {found[:, 2:8].tolist()}.")
assert time == [2] * 6, f"axis 0 is time, and one frame has one time; yours: {time}."
assert height == [2, 2, 2, 3, 3, 3], f"axis 1 is the height, axis 2 the width; axis 1 of yours is {height}."
assert found[:, 8:].tolist() == [[5, 6]] * 3, (
    f"the largest number so far is 4, so the text goes on at 5, 6 on all axes; yours: {found[:, 8:].tolist()}.")
video = mrope_positions([2, (5, 2, 2), 1])
assert video[:, 2:7].tolist() == [[2, 2, 2, 2, 3], [2, 2, 3, 3, 2], [2, 3, 2, 3, 2]], (
    "frame by frame: the first four patches of a (5, 2, 2) grid are frame 0, the fifth begins frame 1.")
assert video[0, -1] == 7, f"after this video the largest number is a time, 6; the text goes on at 7, yours at {int(video[0, -1])}."
assert tuple(mrope_positions([]).shape) == (3, 0), "no segment at all: shape (3, 0)."
assert torch.equal(mrope_positions([2, 0, (3, 0, 2), 1]), mrope_positions([3])), "a segment without a token changes nothing."
print("Looks right. The hidden tests mix several grids and texts.")

# %% nbgrader={"grade_id": "mrope_positions_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.mrope_positions(mrope_positions)
### END HIDDEN TESTS

# %% tags=["experiment"]
serving.moving_axes(mrope_positions)


# %% [markdown]
# **Figure 8.2. A small video between two texts.** Three text tokens, a grid, two text tokens. Walk along the tokens and watch the three numbers. Then change the grid: when does one more frame move the text behind it, and when does it not?

# %% [markdown]
# ### Exercise 8.2, second part · Rotate by three axes
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* weights trained with `[16, 24, 24]` also run with other sections, but answer worse.
#
# In the half layout, pair $p$ consists of the channels $p$ and $p+d/2$. Sections count **pairs**: first those for time, then height, then width.
#
# **An example.** Take $d=8$, sections `(1, 2, 1)` and base 10,000. Pair 0 turns by time · 1, pair 1 by height · 0.1, pair 2 by height · 0.01, pair 3 by width · 0.001.

# %% nbgrader={"grade_id": "apply_mrope", "solution": true}
def apply_mrope(x, positions, sections, base=10000.0):
    """RoPE in the half layout in which each pair turns by the position on its own axis.

    x:         (batch, heads, seq_len, head_dim), any floating dtype
    positions: (3, seq_len) or (3, batch, seq_len), real numbers; axis 0: time, height, width
    sections:  three ints >= 0: how many pairs turn by each axis, in this order. Their sum is head_dim/2, else
               ValueError, so for an odd head_dim none fit. Frequencies are base**(-2p/head_dim) for pair p, counted
               over all sections
    returns:   shape and dtype of x
    """
    ### BEGIN SOLUTION
    head_dim = x.shape[-1]
    if 2 * sum(sections) != head_dim:
        raise ValueError(f"sections {sections} do not add up to half of head_dim={head_dim}")
    axis_of_pair = torch.arange(3).repeat_interleave(torch.tensor(sections))
    pair = torch.arange(0, head_dim, 2, dtype=torch.float64, device=x.device)
    # one position per pair: (pairs, seq_len) or (pairs, batch, seq_len), then the pairs to the end
    at = positions.to(x.device, torch.float64)[axis_of_pair.to(x.device)].movedim(0, -1)
    angles = at * base ** (-pair / head_dim)
    if positions.ndim == 3:
        angles = angles[:, None]
    computed = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(computed), angles.sin().to(computed)
    first, second = x.to(computed).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Make a list of axes first, one entry per pair: sections `(1, 2, 1)` give 0, 1, 1, 2. `repeat_interleave` does it.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Index `positions` with that list: row $p$ of the result holds the positions that pair $p$ turns by. Move that axis to the end and multiply by the frequencies.
# </details>

# %% nbgrader={"grade_id": "apply_mrope_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
generator = torch.Generator().manual_seed(2)
x = torch.randn(2, 3, 6, 8, generator=generator)
same = torch.arange(6).expand(3, 6)
out = apply_mrope(x, same, (1, 2, 1))
lab.must_be_a_tensor(out)
assert out.dtype == torch.float32, f"the dtype of x, float32, is expected, got {out.dtype}."
assert tuple(out.shape) == (2, 3, 6, 8), f"shape (2, 3, 6, 8) expected, got {tuple(out.shape)}."
assert torch.allclose(out, apply_mrope(x, same, (2, 1, 1)), atol=1e-5), (
    "for text, with the same number on all axes, the sections must not matter: frequencies run over all pairs.")
assert torch.allclose(out.norm(dim=-1), x.norm(dim=-1), atol=1e-4), (
    "a rotation keeps the length of every vector, yours does not: look at the signs.")
turned = apply_mrope(torch.eye(8)[:1].view(1, 1, 1, 8), torch.ones(3, 1), (2, 1, 1))[0, 0, 0]
reached = [channel for channel, value in enumerate(turned.tolist()) if channel and abs(value) > 1e-6]
assert reached in ([], [4]), f"channel 0, turned, reaches into channel {reached}; its partner is channel 4, half a head away."
ones = torch.cat((torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 1, 4)), dim=-1)  # every pair points along its first channel


def angles_at(positions):
    turned = apply_mrope(ones.clone(), positions, (1, 2, 1))[0, 0, 0]
    return [round(float(torch.atan2(turned[pair + 4], turned[pair])), 4) for pair in range(4)]


plain = angles_at(torch.tensor([[1.0], [1.0], [1.0]]))
assert plain == [1.0, 0.1, 0.01, 0.001], f"at 1 on all axes the four pairs turn by 1, 0.1, 0.01, 0.001; yours: {plain}."
for axis, (name, expected) in enumerate({"time": [1.0, 0.0, 0.0, 0.0], "height": [0.0, 0.1, 0.01, 0.0],
                                         "width": [0.0, 0.0, 0.0, 0.001]}.items()):
    alone = torch.zeros(3, 1)
    alone[axis] = 1.0
    assert angles_at(alone) == expected, (
        f"sections (1, 2, 1): at 1 on the axis of {name} and 0 on the others the pairs turn by {expected}; "
        f"yours by {angles_at(alone)}.")
rows = torch.stack((same, same + 4), dim=1)  # (3, batch, seq_len)
assert torch.allclose(apply_mrope(x, rows, (1, 2, 1))[1:], apply_mrope(x[1:], rows[:, 1], (1, 2, 1)), atol=1e-5), (
    "positions (3, batch, seq_len): each text of the batch has its own.")
assert apply_mrope(x.bfloat16(), same, (1, 2, 1)).dtype == torch.bfloat16, "bfloat16 in, bfloat16 out."
for wrong in ((1, 1, 1), (2, 4, 2)):
    assert lab.raises(ValueError, apply_mrope, x, same, wrong), f"sections {wrong} do not add up to 4 pairs: ValueError."
# It computes where its inputs are, on any device.
lab.follows_the_device(apply_mrope, torch.ones(1, 2, 3, 12), torch.ones(3, 3, dtype=torch.int64), [2, 2, 2])
print("Looks right. The hidden tests use grids, other sections and other bases.")

# %% nbgrader={"grade_id": "apply_mrope_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.apply_mrope(apply_mrope)
### END HIDDEN TESTS

# %% [markdown]
# Contiguous sections have a price. In Qwen2-VL all fast pairs belong to time and all slow ones to width, so the axes see distances differently. Qwen3-VL deals the pairs out in turn instead: time, height, width, time, … (`mrope_section` `[24, 20, 20]`). A checkpoint works with only one of the two.
#
# The time axis has changed with every generation (files of `transformers` 5.23):
#
# | model | what the time axis counts | file |
# |---|---|---|
# | Qwen2-VL | frames: 0, 1, 2, … | [`modeling_qwen2_vl.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen2_vl/modeling_qwen2_vl.py), `get_rope_index` |
# | Qwen2.5-VL | seconds, times `tokens_per_second` | [`modeling_qwen2_5_vl.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py), `get_rope_index` |
# | Qwen3-VL | nothing: each frame is a grid of its own with $t=1$, and the text before it says `<3.0 seconds>` | [`processing_qwen3_vl.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen3_vl/processing_qwen3_vl.py), `replace_video_token` |

# %% [markdown]
# ## 3 · Windows, sinks, and a stream without end
#
# A chat that runs all day has no last token. Its cache cannot grow for ever, so something has to go. Three tools help. The first two are trained into models and served today. The third is for models trained without them, and by now it is history (section 7). It raises the best question about positions, so you build it all the same.
#
# **A sliding window.** Each query sees itself and the $w-1$ keys before it. In such a layer the cache may drop all but $w$ tokens, however long the text. Five of six layers have a window in [Gemma 3](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gemma3/configuration_gemma3.py), every second one in [gpt-oss](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_oss/configuration_gpt_oss.py). In [ModernBERT](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/modernbert/configuration_modernbert.py), an encoder without a cache, two layers in three have a window to both sides and base 10,000; the others have base 160,000 (defaults of `transformers` 5.23).
#
# **A sink in the softmax.** A softmax hands out a total weight of 1, even where no key deserves any. Xiao et al. (2024, section 3.1) found that large language models pile much of it onto the first tokens of the text, whatever these say. These tokens are called **attention sinks**. gpt-oss builds a sink in: each head learns one number $b$, a logit that belongs to no key,
#
# $$w_j=\frac{e^{s_j}}{e^{b}+\sum_k e^{s_k}}. \tag{3}$$
#
# The weights of the keys now add up to less than 1. The rest goes nowhere: the sink has no value.
#
# **A streaming cache** (StreamingLLM, Xiao et al., 2024, section 3.2). Where the sink is a real token, don't drop it. Keep the first $n_s$ tokens of the text, four in the paper, and the last $w$. This course has prepared you for the next question: *which positions do the kept tokens have?* Token 0 and token 100,000 lie in one small cache. At their true positions they are 100,000 apart, a distance that the model has never seen. StreamingLLM counts **places in the cache** instead: 0, 1, 2, … Keys are therefore cached before the rotation, and turned at every step.
#
# (A plain window needs none of this. RoPE sees differences only, so true positions give the same scores, and keys may be cached after the rotation.)
#
# **An example.** Take $n_s=2$, $w=3$ and 8 tokens so far. The cache holds 0, 1, 5, 6, 7, at the positions 0, 1, 2, 3, 4. Of 4 tokens it holds all, each once: 0, 1, 2, 3.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 8.3: run this cell.
fig, axes = lab.figure("Who sees whom, and with how much weight? Ten tokens", nrows=2, ncols=3, height=4.9, height_ratios=(1.6, 1))
query, key = torch.arange(10)[:, None], torch.arange(10)
for ax, (title, seen) in zip(axes[0], {"(a) causal": key <= query, "(b) window of 4": (key <= query) & (key > query - 4),
                                       "(c) 2 sink tokens, window of 4": (key <= query) & ((key > query - 4) | (key < 2))}.items()):
    shown = torch.where(seen & (key < 2), 2, seen.long()) if "sink" in title else seen.long()
    ax.imshow(shown, cmap=plt.matplotlib.colors.ListedColormap(["white", lab.ORANGE, lab.BLUE][:int(shown.max()) + 1]),
              interpolation="nearest")
    ax.set(title=title, xlabel="key", xticks=range(0, 10, 3), yticks=range(0, 10, 3))
    ax.set_xticks(np.arange(-0.5, 10), minor=True)
    ax.set_yticks(np.arange(-0.5, 10), minor=True)
    ax.grid(which="minor", color="#DDDDDD", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
axes[0, 0].set_ylabel("query")
scores = torch.tensor([0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0.8])  # by hand: no key deserves much
parked = scores + 3.5 * (key == 0)
for ax, (title, weights, sink) in zip(axes[1], (
        ("(d) no sink", scores.softmax(0), False),
        ("(e) token 0 is the sink", parked.softmax(0), False),
        ("(f) a learned sink", torch.cat((scores, torch.tensor([3.5]))).softmax(0)[:-1], True))):
    ax.bar(range(10), weights, color=[lab.BLUE if title.startswith("(e)") and at == 0 else lab.ORANGE for at in range(10)])
    if sink:
        ax.bar(-2, 1 - float(weights.sum()), color="white", edgecolor=lab.BLUE, hatch="///")
    ax.set(title=title, xlabel="key", ylim=(0, 0.85), xlim=(-3.2, 9.7), xticks=range(0, 10, 3))
    if sink:
        ax.set_xticks([-2, 0, 3, 6, 9], ["no key", "0", "3", "6", "9"])
axes[1, 0].set_ylabel("weight")
plt.show()


# %% [markdown]
# **Figure 8.3. Windows and sinks.** Above: masks; blue keys are kept for good. Below: weights of the last query where no key deserves much (invented numbers). (d) Every key gets some weight. (e) A real token takes most of it, and its value comes along. (f) A logit takes most of it and has no value.

# %% [markdown]
# ### Exercise 8.3 · A window
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* "a window of 128" counts the query itself in [`transformers` 5.23](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/modeling_flash_attention_utils.py), which passes 127 to FlashAttention. With one key more than in training, a layer sees a distance that it never met.

# %% nbgrader={"grade_id": "sliding_window_mask", "solution": true}
def sliding_window_mask(n_queries, n_keys, window):
    """A causal mask with a window: a query sees itself and the window - 1 keys before it.

    The queries are the last n_queries of the n_keys positions; 1 <= n_queries <= n_keys, window >= 1.
    returns: bool (n_queries, n_keys), True = may attend; a new tensor on each call
    """
    ### BEGIN SOLUTION
    key = torch.arange(n_keys)
    query = key[n_keys - n_queries:, None]
    return (key <= query) & (key > query - window)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint</summary>
#
# Make two ranges: the queries' positions as a column, the keys' as a row. Both conditions compare the two.
# </details>

# %% nbgrader={"grade_id": "sliding_window_mask_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
mask = sliding_window_mask(4, 4, 2)
lab.must_be_a_tensor(mask)
assert tuple(mask.shape) == (4, 4), f"shape (4, 4) expected, got {tuple(mask.shape)}."
assert mask.dtype == torch.bool, f"the mask is boolean; yours is {mask.dtype}."
assert not bool(mask.triu(1).any()), "a query sees a later key: the mask is causal too."
counts = mask.sum(1).tolist()
assert counts == [1, 2, 2, 2], f"with a window of 2 the four queries see 1, 2, 2, 2 keys, themselves included; yours {counts}."
assert bool(mask.diagonal().all()), "every query sees itself."
late = sliding_window_mask(2, 6, 3)
assert tuple(late.shape) == (2, 6), f"2 queries and 6 keys: shape (2, 6) expected, got {tuple(late.shape)}."
assert late.nonzero().tolist() == [[0, 2], [0, 3], [0, 4], [1, 3], [1, 4], [1, 5]], (
    f"the queries are the tokens 4 and 5: they see 2, 3, 4 and 3, 4, 5. Yours (row, key): {late.nonzero().tolist()}.")
assert torch.equal(sliding_window_mask(3, 5, 9), torch.ones(3, 5, dtype=torch.bool).tril(2)), (
    "a window larger than the text leaves the causal mask.")
print("Looks right. The hidden tests try other sizes.")

# %% nbgrader={"grade_id": "sliding_window_mask_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.sliding_window_mask(sliding_window_mask)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 8.3, second part · A softmax with a sink
#
# **2 points · difficulty 2/5 · 10 minutes · code**
#
# *Why it matters:* leave the sink out of gpt-oss, and every head gives its keys too much weight. A large score must not overflow, and a row without a key gives zeros, not NaN.

# %% nbgrader={"grade_id": "softmax_with_sink", "solution": true}
def softmax_with_sink(scores, sinks):
    """Softmax over the keys and one more logit per head, which is then dropped.

    scores:  (batch, heads, n_queries, n_keys); -inf hides a key
    sinks:   (heads,), finite, dtype of scores
    returns: weights, shape and dtype of scores; a row that is all -inf gives zeros, with finite gradients
    """
    ### BEGIN SOLUTION
    sink = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Put one more column beside the scores, take `softmax`, cut the column off.
# </details>
#
# <details><summary>Hint 2: shapes</summary>
#
# `sinks` is `(heads,)`, the column `(batch, heads, n_queries, 1)`: `expand` does the rest.
# </details>

# %% nbgrader={"grade_id": "softmax_with_sink_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
weights = softmax_with_sink(torch.zeros(1, 2, 1, 3), torch.tensor([0.0, math.log(7.0)]))
lab.must_be_a_tensor(weights)
assert tuple(weights.shape) == (1, 2, 1, 3), f"the sink is dropped again: shape (1, 2, 1, 3) expected, got {tuple(weights.shape)}."
assert torch.allclose(weights[0, 0], torch.full((1, 3), 0.25), atol=1e-5), (
    f"three scores of 0 and a sink of 0 share the weight in four: 0.25 each; yours: {[round(weight, 3) for weight in weights[0, 0, 0].tolist()]}. "
    "The weights of the keys add up to less than 1.")
assert not torch.allclose(weights[0, 1], weights[0, 0], atol=1e-5), (
    "the sinks of the two heads are 0 and log 7, and both heads give the same weights: each head has its own sink.")
assert torch.allclose(weights[0, 1], torch.full((1, 3), 0.1), atol=1e-5), (
    f"head 1 has a sink of log 7: three keys of weight 1 beside a 7 get 0.1 each; yours: {[round(weight, 3) for weight in weights[0, 1, 0].tolist()]}.")
hidden = softmax_with_sink(torch.full((1, 2, 1, 3), -math.inf), torch.zeros(2))
assert bool(hidden.eq(0).all()), f"a row that is all -inf has zero weights; yours: {hidden.flatten().tolist()}."
large = softmax_with_sink(torch.tensor([[[[1000.0, 999.0]]]]), torch.tensor([998.0]))
assert bool(large.isfinite().all()), "scores of 1000 give NaN: let softmax do the exponentials, it subtracts the largest first."
expected = torch.tensor([0.0, -1.0, -2.0]).softmax(0)[:2]
assert torch.allclose(large.flatten(), expected, atol=1e-5), (
    f"only differences count: 1000, 999 and a sink of 998 give {expected[0]:.3f} and {expected[1]:.3f}.")
# It computes where its inputs are, on any device.
lab.follows_the_device(softmax_with_sink, torch.ones(1, 2, 3, 4), torch.ones(2))
print("Looks right. The hidden tests use several texts, heads and hidden keys.")

# %% nbgrader={"grade_id": "softmax_with_sink_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.softmax_with_sink(softmax_with_sink)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 8.3, third part · What is kept, and where it stands
#
# **2 points · difficulty 2/5 · 13 minutes · code**
#
# *Why it matters:* while the text is short, sinks and window overlap, and a token that is kept twice counts twice in the softmax.

# %% nbgrader={"grade_id": "streaming_cache", "solution": true}
def streaming_cache(n_tokens, n_sinks, window):
    """Which of the tokens 0 .. n_tokens-1 a streaming cache holds, and at which positions.

    n_tokens >= 1, n_sinks >= 0, window >= 1
    returns: (kept, positions), int64 (m,) each with m = min(n_tokens, n_sinks + window); new tensors on each call
             kept: the first n_sinks and the last ``window`` tokens, each once, ascending
             positions: 0, 1, ..., m-1: places in the cache, not in the text
    """
    ### BEGIN SOLUTION
    n_first = min(n_sinks, n_tokens)
    kept = torch.cat((torch.arange(n_first), torch.arange(max(n_first, n_tokens - window), n_tokens)))
    return kept, torch.arange(len(kept))
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint</summary>
#
# Join two ranges. Where does the second begin, if it must not reach back into the first?
# </details>

# %% nbgrader={"grade_id": "streaming_cache_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
answer = streaming_cache(8, 2, 3)
assert isinstance(answer, (tuple, list, torch.Tensor)) and len(answer) == 2, "return two tensors: (kept, positions)."
kept, positions = answer
lab.must_be_a_tensor(kept)
lab.must_be_a_tensor(positions)
assert kept.dtype == positions.dtype == torch.int64, f"both are int64; yours: {kept.dtype}, {positions.dtype}."
assert kept.tolist() == [0, 1, 5, 6, 7], f"of 8 tokens, 2 sinks and the last 3: 0, 1, 5, 6, 7; yours: {kept.tolist()}."
assert positions.tolist() != kept.tolist(), "these are the tokens' true positions: in the cache they stand at 0, 1, 2, 3, 4."
assert positions.tolist() == [0, 1, 2, 3, 4], f"positions in the cache: 0, 1, 2, 3, 4; yours: {positions.tolist()}."
for n_tokens, expected in ((1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 3, 4, 5])):
    kept, positions = streaming_cache(n_tokens, 2, 3)
    assert kept.tolist() == expected, (
        f"n_tokens={n_tokens}, 2 sinks, a window of 3: {expected}, each token once; yours: {kept.tolist()}.")
    assert positions.tolist() == list(range(len(expected))), (
        f"n_tokens={n_tokens}: positions are 0, 1, 2, ... in the order of the cache; yours: {positions.tolist()}.")
kept, _ = streaming_cache(6, 0, 2)
assert kept.tolist() == [4, 5], f"without sinks the last 2 of 6 tokens remain: 4, 5; yours: {kept.tolist()}."
print("Looks right. The hidden tests try longer texts.")

# %% nbgrader={"grade_id": "streaming_cache_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.streaming_cache(streaming_cache)
### END HIDDEN TESTS

# %% tags=["experiment"]
serving.moving_conveyor(streaming_cache)


# %% [markdown]
# **Figure 8.4. The cache as a conveyor belt.** Squares are tokens of the text: blue for sinks, orange for the window, dashed if dropped. Below each kept token stands its position in the cache. Let the text grow. Which positions does the newest token meet, and which would it meet with true positions?

# %% [markdown]
# ## 4 · A cache without heads
#
# Exercise 7.2 left a question open. DeepSeek-V3 has 128 heads and stores none of their keys. It keeps one **latent** $c_j$ of 512 numbers per token, and a small rotated key of 64 that all heads share. This is **multi-head latent attention**, MLA (DeepSeek-AI, 2024, section 2.1). How does such a model attend?
#
# On paper, every head $h$ makes its own key and value from the latent:
#
# $$k_{hj}=W^{UK}_h c_j,\qquad v_{hj}=W^{UV}_h c_j, \tag{4}$$
#
# and the score of a query has two parts, content and position:
#
# $$s_{hj}=\frac{q_h\cdot k_{hj}+q'_h\cdot k'_j}{\sqrt{d_n+d_r}}. \tag{5}$$
#
# $q_h$ and $k_{hj}$ have $d_n$ channels and no position. $q'_h$ and $k'_j$ have $d_r$ channels and are rotated already. This is partial rotary again, with one twist: $k'_j$ is *the same for all heads*. (In [`modeling_deepseek_v3.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/deepseek_v3/modeling_deepseek_v3.py), `transformers` 5.23, the scores are also multiplied by $(0.1\ln 40+1)^2\approx 1.87$. The model was stretched by YaRN with a factor of 40, and this is exercise 5.5's temperature, squared. We leave this factor out.)
#
# You could cache the latents and write out the keys of equation (4) at every step: a small cache, but slow steps. Yet a matrix may change sides in a product:
#
# $$q_h\cdot\big(W^{UK}_h c_j\big)=\big(W^{UK\,\top}_h q_h\big)\cdot c_j. \tag{6}$$
#
# Carry the *query* into the space of the latent, once, and compare it with the latents in the cache. No key is ever made. People say that $W^{UK}$ is **absorbed**, because $W^{UK\,\top}$ and the matrix that makes the query can be multiplied together before serving. (DeepSeek-V3's [`inference/model.py`](https://github.com/deepseek-ai/DeepSeek-V3/blob/9b4e9788e4a3a731f7567338ed15d3ec549ce03b/inference/model.py), 9b4e978, applies the two in turn: the product would be larger than both.) For values the matrix comes last: mix the latents with the attention weights, then apply $W^{UV}_h$ to the one result.
#
# **A worked example.** Take one head with $W^{UK}=\begin{pmatrix}1&2\\0&1\end{pmatrix}$, $q=(1,1)$, $c=(3,1)$. On the left of (6), $W^{UK}c=(5,1)$ and the product is 6. On the right, $W^{UK\,\top}q=(1,3)$ and the product is $3+3=6$.

# %% [markdown]
# ### Exercise 8.4 · Latent attention
#
# **5 points · difficulty 4/5 · 40 minutes · code**
#
# *Why it matters:* by exercise 7.2 the cache of DeepSeek-V3 is 71 times smaller than its keys and values written out. Only equation (6) decodes from the cache as it is. (For a long prompt one may expand the keys instead: that takes fewer multiplications.)
#
# Write the function **without** a tensor of `n_keys × heads × dn` numbers. (Memory is measured below, not graded.) Rows of the mask without a key give zeros, with finite gradients, as in exercise 1.1.

# %% nbgrader={"grade_id": "mla_attention", "solution": true}
def mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    """Multi-head latent attention on a cache of latents.

    q_nope:  (batch, heads, n_queries, dn), not rotated
    q_rope:  (batch, heads, n_queries, dr), rotated already
    latent:  (batch, n_keys, r)
    k_rope:  (batch, n_keys, dr), rotated already, the same for all heads
    w_uk:    (heads, dn, r): key of a head = w_uk[head] latent, beside k_rope
    w_uv:    (heads, dv, r): value of a head = w_uv[head] latent
    mask:    boolean, broadcasts to (batch, heads, n_queries, n_keys), True = may attend; None = everywhere
    returns: (batch, heads, n_queries, dv); scores are divided by sqrt(dn + dr)
    """
    ### BEGIN SOLUTION
    in_latent = torch.einsum("bhqd,hdr->bhqr", q_nope, w_uk)  # the query crosses over, not the keys
    scores = torch.einsum("bhqr,bkr->bhqk", in_latent, latent) + torch.einsum("bhqd,bkd->bhqk", q_rope, k_rope)
    scores = scores / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        nothing = ~mask.any(dim=-1, keepdim=True)  # rows without a key: finite scores first, zero weights after
        weights = scores.masked_fill(~mask, -math.inf).masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)
    mixed = torch.einsum("bhqk,bkr->bhqr", weights, latent)
    return torch.einsum("bhqr,hvr->bhqv", mixed, w_uv)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which index of `w_uk` does the sum in $W^{UK\,\top}_h q_h$ run over? One einsum, with a matrix per head, takes (batch, heads, n_queries, dn) to (batch, heads, n_queries, r).
# </details>
#
# <details><summary>Hint 2: the scores</summary>
#
# Two einsums of the form `"bhqr,bkr->bhqk"`, one on the latents and one on the rotated part. Add, then divide once.
# </details>
#
# <details><summary>Hint 3: the values</summary>
#
# Multiply weights by latents first: `(batch, heads, n_queries, r)`. Then apply `w_uv`, which now meets queries and no keys.
# </details>

# %% nbgrader={"grade_id": "mla_attention_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
generator = torch.Generator().manual_seed(4)
q_nope, q_rope = torch.randn(2, 3, 4, 6, generator=generator), torch.randn(2, 3, 4, 2, generator=generator)
latent, k_rope = torch.randn(2, 5, 7, generator=generator), torch.randn(2, 5, 2, generator=generator)
w_uk, w_uv = torch.randn(3, 6, 7, generator=generator), torch.randn(3, 8, 7, generator=generator)
given = [part.clone() for part in (q_nope, q_rope, latent, k_rope, w_uk, w_uv)]
out = mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv)
assert isinstance(out, torch.Tensor), f"return one tensor, the output without the weights; yours returns {type(out).__name__}."
assert all(map(torch.equal, given, (q_nope, q_rope, latent, k_rope, w_uk, w_uv))), "an argument has been changed in place."
assert tuple(out.shape) == (2, 3, 4, 8), f"shape (batch, heads, n_queries, dv) = (2, 3, 4, 8) expected, got {tuple(out.shape)}."
single = mla_attention(q_nope, q_rope, latent[:, :1], k_rope[:, :1], w_uk, w_uv)
assert torch.allclose(single[0, 1, 0], w_uv[1] @ latent[0, 0], atol=1e-4), (
    "with one key its weight is 1, and the output of head 1 is w_uv[1] applied to that latent.")
alone = mla_attention(q_nope[:, 1:2], q_rope[:, 1:2], latent, k_rope, w_uk[1:2], w_uv[1:2])
assert torch.allclose(out[:, 1:2], alone, atol=1e-4), "head 1 must give what it gives alone, with its own w_uk and w_uv."
# One head whose matrices are the identity: plain attention with the keys latent beside k_rope, and the latent as value.
eye = torch.eye(7)[None]
q = torch.randn(2, 1, 4, 7, generator=generator)
plain = F.scaled_dot_product_attention(
    torch.cat((q, q_rope[:, :1]), dim=-1), torch.cat((latent, k_rope), dim=-1)[:, None], latent[:, None])
found = mla_attention(q, q_rope[:, :1], latent, k_rope, eye, eye)
assert torch.allclose(found, plain, atol=1e-4), (
    "with identities for w_uk and w_uv this is attention with the keys (latent, k_rope) and the latent as values, "
    "and a scale of 1/sqrt(dn + dr); yours differs.")
pick = eye[:, [1, 0]] * torch.tensor([[1.0], [2.0]])  # a key of two channels: channel 1 of the latent, and twice channel 0
narrow = F.scaled_dot_product_attention(
    torch.cat((q[..., :2], q_rope[:, :1]), dim=-1), torch.cat((latent @ pick[0].T, k_rope), dim=-1)[:, None], latent[:, None])
assert torch.allclose(mla_attention(q[..., :2], q_rope[:, :1], latent, k_rope, pick, eye), narrow, atol=1e-4), (
    "with dn = 2 and r = 7: the key is w_uk applied to the latent, beside k_rope, and the scale is 1/sqrt(dn + dr) = 1/2; "
    "yours differs.")
mask = torch.ones(2, 1, 4, 5, dtype=torch.bool).tril()
mask[0, 0, 2] = False
masked = mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask)
assert torch.allclose(masked[:, :, 0], single[:, :, 0], atol=1e-4), "a query that may see key 0 alone has its value as output."
assert bool(masked.isfinite().all()), "query 2 of text 0 may see nothing: its output is zero, not NaN."
assert float(masked[0, :, 2].abs().max()) == 0, "a query that may attend to nothing has a zero output."
# It computes where its inputs are, on any device.
shapes = (1, 2, 3, 4), (1, 2, 3, 2), (1, 5, 6), (1, 5, 2), (2, 4, 6), (2, 5, 6)
lab.follows_the_device(mla_attention, *map(torch.ones, shapes))
print("Looks right. The hidden tests use other sizes, and masks of every shape.")

# %% nbgrader={"grade_id": "mla_attention_tests", "grade": true, "points": 5}
# Hidden tests (5 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.mla_attention(mla_attention)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** 16 heads, $d_n=128$, a latent of 512, two texts of 4,096 cached tokens, one query each. The keys of all heads would be $2\cdot16\cdot4096\cdot128$, some 16.8 million numbers. How large is the largest tensor that *your* function makes?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(0)
heads, dn, dr, r, dv = 16, 128, 64, 512, 128
rows = []
for n_keys in (256, 1024, 4096):
    inputs = [torch.randn(*shape, generator=generator) for shape in (
        (2, heads, 1, dn), (2, heads, 1, dr), (2, n_keys, r), (2, n_keys, dr), (heads, dn, r), (heads, dv, r))]
    rows.append([f"{n_keys:,}", f"{2 * n_keys * heads * dn:,}", f"{serving.largest_tensor(mla_attention, *inputs):,}"])
lab.table(["cached tokens (two texts)", "keys of all heads", "largest tensor of your function"], rows)

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# With equation (6) the largest tensor holds one number per query, head and key (the scores) or per query, head and latent channel, if you use `einsum`. Beware of two shortcuts: for more than one text `matmul` first makes copies. `q_nope @ w_uk` copies the matrices once for every text: 2.1 million numbers at every length. With the carried query as `in_latent`, `in_latent @ latent[:, None].mT` copies the latents once for every head. For two texts of 1,024 tokens that is 16.8 million numbers, four times the keys that you wanted to avoid.
# </details>

# %% [markdown]
# ### Where the rotation must not go
#
# Why are the rotated channels kept apart? One could rotate the key of equation (4) like any other. Try that in the picture, with one head, a latent of three numbers and a key of two channels.

# %% tags=["experiment"]
serving.moving_absorbed()

# %% [markdown]
# **Figure 8.5. What stands between a query and a latent.** In each panel it is a 2 × 3 matrix, once without a rotation and once with the key rotated. Move the query or the key, and watch which matrix changes.

# %% [markdown] nbgrader={"grade_id": "absorption_explained_question", "locked": true}
# ### Exercise 8.4, second part · Why the rotation stays outside
#
# **3 points · difficulty 3/5 · 35 minutes · text, graded by a person**
#
# *Why it matters:* people say that "RoPE is incompatible with MLA". You can say which product fails, and what a way round it would cost.
#
# Write two to five sentences per part. $R(p)$ is the rotation by position $p$; the query stands at $m$, the key at $n$.
#
# 1. **The product.** Write the score of a rotated query with a rotated key $R(n)W^{UK}c$ in the form $q^\top(\dots)c$. What is in the brackets, and on what does it depend? Why can it not be multiplied out once, before serving?
# 2. **The price.** A layer of DeepSeek-V3's sizes has 128 heads, $d_n=128$, a latent of 512 and a rotated key of 64. Suppose it had no separate channels, and rotated the 128 channels of every key that comes out of $W^{UK}$. Name two ways to serve it nevertheless, and give a number for one of them: cached numbers per token and layer, or multiplications per cached token, layer and step.
# 3. **The way out.** How do the separate channels $q', k'$ avoid the problem, and what do they cost? Would ALiBi or T5's bias have caused the problem?
#
# ### BEGIN MARK SCHEME
# 3 points; half points are allowed.
#
# - 1 point (part 1): the bracket is $R(m)^\top R(n)W^{UK}=R(n-m)W^{UK}$ (either form; with the sign of the offset as defined): it depends on the offset, so it is another matrix for every key of a query, and for the same key at every step. Rotations and $W^{UK}$ do not commute, so the rotation cannot be moved to the outside, past $W^{UK}$, onto c. Half a point for the bracket without a reason why it cannot be fixed beforehand.
# - 1 point (part 2): two of: expand keys of all cached tokens at every step (about n·128·128·512, some 8.4 million multiplications per cached token, layer and step); cache the expanded (rotated) keys, 128·128 = 16,384 numbers per token, 32 times the latent (28 times the 576 of latent and rotated key; 33 times with the latent kept beside them for the values); one absorbed matrix per offset; give up rotation. Half a point without a correct number.
# - 1 point (part 3): what is rotated does not come out of the latent through a per-head matrix that is to be absorbed: $k'$ is projected from the token, rotated once, cached as it is; the score is a sum of two products, and each part has its own treatment. Cost: 64 more cached numbers per token (an eighth on top of 512), a projection, 64 channels more per query and head (half a point). ALiBi and T5's bias are added to the score after the product, nothing stands between q and $W^{UK}$, so absorption is untouched (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "absorption_explained", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. $(R(m)q)^\top R(n)W^{UK}c=q^\top\big(R(m)^\top R(n)W^{UK}\big)c=q^\top\big(R(n-m)W^{UK}\big)c$. The brackets hold $W^{UK}$ with a rotation before it, which depends on the offset $n-m$. So every key of a query has a matrix of its own, and the same key has another one at the next step. The matrix could be fixed beforehand only if the rotation could change places with $W^{UK}$ and go onto $c$, but matrices do not commute in general.
#
# 2. One way is to expand the keys of all cached tokens at every step: $128\cdot128\cdot512$, some 8.4 million multiplications per cached token and layer. Another is to cache the rotated keys of all heads: $128\cdot128=16{,}384$ numbers per token, and the latent for the values beside them: 33 times the 512 of the latent alone. The first costs the time that absorption saves, the second the memory.
#
# 3. $k'$ does not come out of the latent through a matrix per head. It is projected from the token, rotated once at its own position and cached like that; $q'$ is rotated beside it. The score is a sum: one part has no rotation and absorbs $W^{UK}$, the other has nothing to absorb. The price is 64 cached numbers beside 512, one more projection, and 64 more channels per query and head. ALiBi and T5's bias would not have had the problem: they are added to the score when the product is done, so nothing stands between $q$ and $W^{UK}$.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# $(Ax)^\top B y = x^\top A^\top B\, y$, and $R(m)^\top=R(-m)$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Put a quarter turn into the worked example: $R=\begin{pmatrix}0&-1\\1&0\end{pmatrix}$ between $q$ and $W^{UK}c$. Which vector must now be compared with $c$? Which one after half a turn?
# </details>

# %% [markdown]
# ### Two layouts in one checkpoint
#
# DeepSeek-V3.2 adds an **indexer** to each layer: a cheap scorer of all cached tokens, which keeps the best 2,048 for latent attention (`index_topk`). The indexer pairs *halves*, latent attention pairs *neighbours*. DeepSeek's own [`inference/model.py`](https://github.com/deepseek-ai/DeepSeek-V3.2-Exp/blob/3b99a5350d260b7c2a357e82362305509e2d0724/inference/model.py) (3b99a53) paired neighbours in both, until November 2025 (vLLM, [pull request 28968](https://github.com/vllm-project/vllm/pull/28968)). Below is a toy indexer, built by hand, that keeps 64 tokens. Its content lies in the slowest quarter of the pairs. They turn by about one radian at most within 1,024 positions, so distance hardly disturbs a match. `neighbours` reorders the channels, so that your function turns neighbouring pairs.

# %% [markdown] tags=["prediction"]
# **Predict.** Queries and keys both turn in the wrong layout. At 64 cached tokens, how often does the indexer keep the token it looks for? At 1,024?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(7)
halves, neighbours = torch.arange(64), torch.arange(64).view(32, 2).T.flatten()  # 0, 2, 4, …, 1, 3, 5, …
slow = torch.arange(64) % 32 >= 24
rows = []
for n_keys in (64, 128, 256, 512, 1024):
    keys = torch.randn(n_keys, 64, generator=generator) * slow
    wanted = torch.randint(n_keys, (400,), generator=generator)
    queries = keys[wanted] + 0.5 * torch.randn(400, 64, generator=generator) * slow
    found = []
    for order in (halves, neighbours):
        k = partial_rotary_emb(keys[None, None, :, order], torch.arange(n_keys), 64)
        q = partial_rotary_emb(queries[None, None, :, order], torch.full((400,), n_keys - 1), 64)
        kept = (q @ k.mT)[0, 0].topk(64).indices
        found.append(f"{float((kept == wanted[:, None]).any(1).float().mean()):.2f}")
    rows.append([f"{n_keys:,}", *found])
lab.table(["cached tokens, 64 are kept", "found, right layout", "found, wrong layout"], rows)

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Up to 64 tokens everything is kept, so nothing can go wrong. Beyond 64, the wrong layout puts half of the content into faster pairs (12 to 15, a turn in 200 to 470 positions), and good tokens drop out of the list. A model behind this indexer would still read 64 plausible tokens and write plausible text. This happened in vLLM, until pull request [28968](https://github.com/vllm-project/vllm/pull/28968), and in sglang (issue [13530](https://github.com/sgl-project/sglang/issues/13530)), which found every needle at 8,000 tokens, but only 87.5% at 16,000 (pull request [13439](https://github.com/sgl-project/sglang/pull/13439)).
#
# **Test a layout beyond the length at which it begins to matter.** A short prompt proves nothing.
# </details>

# %% [markdown]
# ## 5 · Reading configurations
#
# A file of a few dozen lines decides all of this. `week8_configs.json` holds what six released models state about positions, and where we read it. (Lists are shortened, and `_attention` is left off.)

# %% tags=["experiment"]
with open("week8_configs.json") as file:
    configs = json.load(file)
for name, fields in configs.items():
    print(name)
    for field, value in fields.items():
        if isinstance(value, list):
            value = f"{' '.join(str(entry).removesuffix('_attention') for entry in value[:8])} … ({len(value)} entries)"
        print(f"  {field}: {value}")


# %% [markdown]
# A field means what the code that reads it (here `transformers` 5.23) makes of it, whatever its name says:
#
# - **The width of a head** is `head_dim`, or, in this exercise, `hidden_size // num_attention_heads` where that is missing.
# - **A share of the channels.** `partial_rotary_factor` is a share of that width. It is at the top level or inside `rope_parameters`, never in both; [GPT-NeoX](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_neox/configuration_gpt_neox.py) calls it `rotary_pct`, and your function may honour that name in every model. `int()` rounds the product down.
# - **Latent attention** (DeepSeek): `qk_rope_head_dim` channels turn.
# - **A list of layers** ([SmolLM3](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/smollm3/modeling_smollm3.py), [Llama 4](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama4/modeling_llama4.py)): `self.use_rope = config.no_rope_layers[layer_idx]`.
# - **Kinds of layers.** `layer_types` says `sliding_attention`, `full_attention` or `linear_attention` (other kinds do not occur here); where it is missing, take full attention for all layers, although some models have another default. Linear attention has no rotation ([Qwen3-Next](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen3_next/modeling_qwen3_next.py)). In [Cohere 2](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/cohere2/modeling_cohere2.py) and [EXAONE 4](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/exaone4/modeling_exaone4.py) (`model_type` `cohere2` and `exaone4`) only layers with a window turn. In this exercise Cohere 2 always has a window. If EXAONE 4's `sliding_window` is null, the model has none, and all layers turn. In this week's other models, [Gemma 3](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gemma3/modeling_gemma3.py) for one, `full_attention` stops no rotation.
#
# A field that is null (`None` in Python) counts as missing, also inside `rope_parameters`.

# %% [markdown]
# ### Exercise 8.5 · Which layers turn?
#
# **3 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* a bug report against `transformers` itself read `no_rope_layers` the wrong way round ([issue 43756](https://github.com/huggingface/transformers/issues/43756)). The hidden tests use released configurations, some of them changed.

# %% nbgrader={"grade_id": "layers_that_turn", "solution": true}
def layers_that_turn(config):
    """For every layer, how many channels of a head RoPE turns; 0 where the layer has no rotation.

    config:  the fields of a config.json, a dict. There are always num_hidden_layers, hidden_size, num_attention_heads and
             model_type
    returns: a list of num_hidden_layers ints
    """
    ### BEGIN SOLUTION
    given = {field: value for field, value in config.items() if value is not None}
    n_layers = given["num_hidden_layers"]
    width = given.get("head_dim", given["hidden_size"] // given["num_attention_heads"])
    rope = {field: value for field, value in given.get("rope_parameters", {}).items() if value is not None}
    share = (given | rope).get("partial_rotary_factor", given.get("rotary_pct", 1))
    channels = given.get("qk_rope_head_dim", int(width * share))
    still = {"linear_attention"}
    if given["model_type"] in ("cohere2", "exaone4") and "sliding_window" in given:
        still.add("full_attention")
    turns = given.get("no_rope_layers", [1] * n_layers)
    kinds = given.get("layer_types", ["full_attention"] * n_layers)
    return [channels if turns[layer] and kinds[layer] not in still else 0 for layer in range(n_layers)]
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Answer two questions, one after the other. How many channels does a layer turn, if it turns any? Which layers turn?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Drop the fields that are None first. After that `config.get(field, default)` answers every "where it is missing".
# </details>

# %% nbgrader={"grade_id": "layers_that_turn_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
window, full, linear = "sliding_attention", "full_attention", "linear_attention"
small = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}
plain = layers_that_turn(dict(small))
assert isinstance(plain, list) and len(plain) == 3, f"return a list with one entry for each of 3 layers; yours: {plain}."
assert plain == [16, 16, 16], f"64 / 4 = 16 channels of a head, and nothing says otherwise: [16, 16, 16]; yours {plain}."
for words, fields, expected in (
        ("a head_dim of 40 wins over 64 / 4", {"head_dim": 40}, [40, 40, 40]),
        ("a head_dim that is None counts as missing", {"head_dim": None}, [16, 16, 16]),
        ("a quarter of a head", {"partial_rotary_factor": 0.25}, [4, 4, 4]),
        ("a quarter of a head, stated in rope_parameters", {"rope_parameters": {"partial_rotary_factor": 0.25}}, [4, 4, 4]),
        ("a quarter of a head, as GPT-NeoX states it", {"model_type": "gpt_neox", "rotary_pct": 0.25}, [4, 4, 4]),
        ("int(16 * 0.9)", {"partial_rotary_factor": 0.9}, [14, 14, 14]),
        ("latent attention", {"model_type": "deepseek_v3", "qk_rope_head_dim": 8}, [8, 8, 8]),
        ("use_rope = no_rope_layers[layer_idx]", {"model_type": "smollm3", "no_rope_layers": [1, 0, 1]}, [16, 0, 16]),
        ("linear attention has no rotation", {"model_type": "qwen3_next", "layer_types": [linear, linear, full]}, [0, 0, 16]),
        ("Cohere 2: only layers with a window turn",
         {"model_type": "cohere2", "sliding_window": 8, "layer_types": [window, window, full]}, [16, 16, 0]),
        ("EXAONE 4 without a window: all turn",
         {"model_type": "exaone4", "sliding_window": None, "layer_types": [full] * 3}, [16, 16, 16]),
        ("other models with windows: all turn",
         {"model_type": "gemma3_text", "sliding_window": 8, "layer_types": [window, window, full]}, [16, 16, 16])):
    found = layers_that_turn(small | fields)
    assert found == expected, f"{words}: {expected} expected for {fields}; yours {found}."
print("Looks right. The hidden tests read other configurations.")

# %% nbgrader={"grade_id": "layers_that_turn_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.layers_that_turn(layers_that_turn)
### END HIDDEN TESTS

# %% tags=["experiment"]
lab.table(["", "layers", "that turn", "channels of a head"],
          [[name, len(turned), sum(map(bool, turned)), max(turned)] for name, turned in (
              (name, layers_that_turn(fields)) for name, fields in configs.items())])

# %% [markdown]
# ## 6 · A stream through 64 places
#
# Now let a model run past its training length and keep its cache small. Take week 5's language model with RoPE: two layers, trained on texts of 64 characters. Feed it 512 characters, one at a time. With everything kept the model breaks down, as in week 5. Here are five ways to keep 64 keys instead.
#
# | rule | keys kept | their positions |
# |---|---|---|
# | recomputed | the last 64, run through the model afresh at every step | 0 to 63 |
# | window | the last 64, cached (in layer 2 they carry traces of dropped tokens) | 0 to 63, in the cache |
# | sinks | the first 4 and the last 60, cached | 0 to 63, in the cache |
# | sinks, true positions | the same as for sinks | those in the text, up to 511 |
# | ring buffer | the last 64, cached | position in the text modulo 64: the place in the buffer |
#
# A ring buffer overwrites its oldest entry, so entry number $p \bmod 64$ holds token $p$. Suppose somebody takes that number for the position.
#
# You can read that a window without sinks ruins a model, and for large models Xiao et al. (2024, section 3.1) measured it: perplexity explodes as soon as the first tokens leave the cache.

# %% [markdown] tags=["prediction"]
# **Predict.** The recomputed window has 1.38 nats at the end of the stream, everything kept 3.31. Where do the other four rules lie: between these two, or outside? Which one is worst? And what does it cost to let the first four tokens go (window against sinks)?
#
# *Your prediction:*

# %% tags=["experiment"]
# One stream per rule, live, through the shipped checkpoint: up to half a minute in all.
model, tokens = serving.trained_model(), serving.texts(32)
rules = {
    "window": lambda n: streaming_cache(n, 0, 64),
    "4 sinks + 60": lambda n: streaming_cache(n, 4, 60),
    "4 sinks + 60, true positions": lambda n: (streaming_cache(n, 4, 60)[0], streaming_cache(n, 4, 60)[0]),
    "ring buffer": lambda n: (streaming_cache(n, 0, 64)[0], streaming_cache(n, 0, 64)[0] % 64),
}
live = {name: serving.stream(model, tokens, rule) for name, rule in rules.items()}

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 8.6: run this cell.
fig, ax = lab.figure("Loss along the stream: one seed, 32 texts, trained on 64 characters", height=3.8)
live = {"everything kept": serving.dense(model, tokens)} | live
looks = {"everything kept": (lab.BLACK, "-", 2), "window": (lab.PURPLE, "-", 6), "4 sinks + 60": (lab.BLUE, "--", 2),
         "4 sinks + 60, true positions": (lab.GREEN, "-.", 2), "ring buffer": (lab.VERMILLION, "-", 2)}
ends = {}
for name, losses in live.items():
    colour, style, width = looks[name]
    curve = losses.mean(0).unflatten(0, (-1, 64)).mean(1)
    ax.plot(range(32, 512, 64), curve, color=colour, linestyle=style, linewidth=width)
    ends[name] = float(curve[-1])
ends["window"] -= 0.15  # two curves on top of each other
ends["4 sinks + 60, true positions"] += 0.08
for name, end in ends.items():
    ax.text(492, end, name, color=looks[name][0] if name != "window" else "#A0457C", va="center", fontweight="bold")
ax.axvspan(0, 64, color="#EEEEEE", zorder=0)
ax.text(4, 3.4, "trained", color="#666666")
ax.set(xlabel="characters read (means of 64)", ylabel="nats per character", xlim=(0, 512), ylim=(1.1, 3.6))
ax.spines["right"].set_visible(False)
ax.grid(axis="y")
fig.get_layout_engine().set(rect=(0, 0, 0.74, 1))
plt.show()

# %% [markdown]
# **Figure 8.6. Everything kept, and four rules.** Grey: the training length, where nothing is dropped yet. Which rules stay as low as they were inside it, and which one climbs and falls by turns?

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Tables of five training seeds: run this cell. 96 texts each, mean [lowest..highest].
with open("week8_results.json") as file:
    results = json.load(file)
fresh = "window of 64, recomputed"
curves = {name: np.array(rows) for name, rows in results["curves"].items()}  # a row per seed, a column per 4 characters
settled = {name: rows[:, 128 // results["every"]:].mean(1) for name, rows in curves.items()}


def spread(numbers):
    return f"{np.mean(numbers):.2f} [{min(numbers):.2f}..{max(numbers):.2f}]".replace("-0.00", "0.00")


def beside(losses, other):
    return spread(np.array(losses) - np.array(other))


end = results["end"]
lab.table(["last 32 characters", "loss", "minus the recomputed window, same seed"],
          [[name, spread(end[name]), beside(end[name], end[fresh])] for name in end])
print()
lab.table(["characters 128 to 511", "loss", "minus the cached window, same seed"],
          [[name, spread(settled[name]), beside(settled[name], settled["window of 64, cached"])] for name in settled])
shares = np.array(results["first"])
print(f"\nweight on the first of 64 characters: {shares.mean():.3f} on average, {shares.max():.3f} in the head with the most;\n"
      f"an equal share, over the same queries (32 to 63), is {np.mean(1 / np.arange(33, 65)):.3f}")

# %% [markdown]
# There are two tables because the loss depends on where you look. The ring buffer's extra loss falls by more than a nat within each round of 64, which Figure 8.6 averages out. The last 32 characters are the second half of a round; the mean from 128 on covers six rounds.

# %% [markdown] nbgrader={"grade_id": "stream_explained_question", "locked": true}
# ### Exercise 8.6 · What the stream shows
#
# **3 points · difficulty 3/5 · 35 minutes · text, graded by a person**
#
# *Why it matters:* the wrong rules raise no error, and one of them costs about a nat.
#
# Write two to five sentences per part, with numbers and their spread.
#
# 1. **Positions.** Compare "sinks" with "sinks, true positions", and "window" with "ring buffer". In each pair the same tokens stay. Which distances and directions does a query meet that training never showed? Name two possible reasons why one mistake is so much worse than the other. Does an arm here decide between them?
# 2. **The popular sentence.** "Without sinks a window collapses." What do the tables say about this model? Use the weight on the first character to explain why, and say what a model must have learned for the sentence to be true of it.
# 3. **What is not shown.** The cached window has the same loss as the recomputed one. Does the model use anything beyond 64 characters? Name one measurement that would tell, and one reason why these numbers may not carry over to a large model.
#
# ### BEGIN MARK SCHEME
# 3 points; half points are allowed.
#
# - 1 point (part 1): true positions: the recent 60 keys are at known distances, only the four sinks at up to 511, never seen; cost 0.22 [0.14..0.29] from 128 on (0.17 [0.10..0.28] at the end). Ring buffer: a query at place p meets keys at places above p, at distances −1 to −63: they seem to lie ahead, never seen in a causal model, half of the window on average; cost 1.09 [0.87..1.26] from 128 on (0.85 [0.67..0.98] at the end). Possible reasons: four wrong keys against half of the window; a distance on the known side against one on the other; no arm separates the two (from place 8 to 43 of a round the number more than halves, the extra loss hardly falls). Half a point for one pair, or for both without numbers.
# - 1 point (part 2): here the window loses 0.00 [0.00..0.01] against the recomputed one and sinks gain nothing; on average the first character gets at most 0.02 of a head's weight, no more than an equal share, so no sink has formed and dropping it takes nothing away (half a point). True of a model whose heads put much weight on the first tokens (large models): removing them changes the denominator of every softmax (half a point).
# - 1 point (part 3): loss on the next character hardly needs far context, so an equal loss does not show use; a needle or key-value task with distances above 64, or the loss with the far text exchanged, would tell (with two layers something may pass on through cached values, up to about twice the window) (half a point). A reason: two layers, 64 characters, five seeds of one size, one kind of text (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "stream_explained", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. With true positions the 60 recent keys keep their known distances; only the four sinks are far away, up to 511, where training ended at 63. From 128 on that costs 0.22 [0.14..0.29] nats. In the ring buffer the newest token is at place $p$, and all keys at places above $p$, half of the window on average, seem to lie *ahead* of it, at distances −1 to −63, which a causal model has never met. The ring buffer costs 1.09 [0.87..1.26]. Perhaps four strange keys do less harm than some thirty (but from place 8 to 43 of a round their number more than halves, and the extra loss hardly falls), perhaps a new distance less than a new direction: no arm here separates the two.
#
# 2. It is not true of this model: without sinks the cached window has 1.38 [1.35..1.44], within 0.00 [0.00..0.01] of the recomputed one, and four sinks gain nothing. On average the first character gets 0.017 of a head's weight at most; an equal share would be 0.021. No sink has formed, so dropping that character takes nothing away. The sentence is true of models whose heads park much of their weight on the first tokens. Remove those keys, and the denominator of every softmax shrinks: all other weights grow at once.
#
# 3. The table does not say whether it does. The next character depends mostly on the last few, so the loss is the same whether far text is used or not. A needle test would tell: a key and its value more than 64 characters before the question, with its distance reported. The numbers come from two layers trained on 64 characters cut out of the middle of a text. A large model, trained for longer on longer texts, can behave as Xiao et al. report.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take token 100 in the ring buffer: its place is 36. Which tokens lie at the places 37 to 63, and what is query position minus key position for them?
# </details>
#
# <details><summary>Hint 2</summary>
#
# If a head gave 0.6 of its weight to token 0, what would happen to the other weights when token 0 leaves the softmax?
# </details>

# %% [markdown]
# <details><summary>After you have answered</summary>
#
# Why has no sink formed? Our training texts begin anywhere, so their first character is random. That alone does not explain it: Xiao et al. (section 3.1) report the same of their models, and those formed sinks. Perhaps two layers or our short training are too little: we have tested neither. But our tables show that "a window without sinks collapses" is a statement about *a model*. Check yours: measure the weight that its heads give to the first token.
# </details>
#
# ### A closer look
#
# In Figure 8.6 the curve of true positions goes up and down. You know enough to say where it must rise.
#
# In this model a head has 16 channels. By week 3's formula its pairs take 6.28, 19.9, 62.8, 199, 628, … positions for a full turn. Training showed distances up to 63, so pairs 0 to 2 have been all the way round. Pair 3 is the first that has not. It also mattered most in Figure 5.11.
#
# A clock cannot tell a distance from one that is a full turn larger. At a distance of 150 pair 3 has made three quarters of a turn. It shows what it would show for a key 49 positions *ahead* of the query, and a causal model has never met such a key.

# %% [markdown] tags=["prediction"]
# **Predict.** Between which distances does pair 3 look as it does for keys up to half a turn *ahead*? What should the loss do there, and between 200 and 287? Suppose you give pair 3 *alone* the places in the cache, and all other pairs the true positions: how much of the cost goes away?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 8.7: run this cell.
window = curves["window of 64, cached"]
arms = {"true positions in all pairs": curves["4 sinks + 60, true positions"],
        "in pair 3 alone": np.array(results["pairs"]["true positions in pair 3 alone"]),
        "in all pairs but pair 3": np.array(results["pairs"]["true positions but for pair 3"])}
at = results["every"] * (np.arange(window.shape[1]) + 0.5)
turn = 2 * math.pi * 10000 ** (3 / 8)  # pair 3 of 8
fig, ax = lab.figure("What true positions of the sinks cost: five seeds, mean and range", height=3.6)
for start in (turn / 2, 3 * turn / 2, 5 * turn / 2):
    ax.axvspan(start, min(start + turn / 2, 512), color="#EEEEEE", zorder=0)
    if start < 400:
        ax.text(start + turn / 4, 0.97, "pair 3\npoints ahead", transform=ax.get_xaxis_transform(), color="#444444", fontsize=9,
                ha="center", va="top")
for (name, losses), colour, style in zip(arms.items(), (lab.GREEN, lab.VERMILLION, lab.BLUE), ("-", "--", "-.")):
    excess = losses - window
    ax.plot(at, excess.mean(0), color=colour, linestyle=style, label=name)
    ax.fill_between(at, excess.min(0), excess.max(0), color=colour, alpha=0.15, linewidth=0)
ax.set(xlabel="characters read (means of 4)", ylabel="nats above the cached window", xlim=(0, 512), ylim=(-0.15, 1.95))
ax.grid(axis="y")
fig.legend(loc="outside right center")
plt.show()
lab.table(["characters 128 to 511", "nats above the cached window, same seed"],
          [[name, beside(losses[:, 32:].mean(1), settled["window of 64, cached"])] for name, losses in arms.items()])

# %% [markdown]
# **Figure 8.7. The price of true positions, pair by pair.** Grey: pair 3 looks as it does for keys ahead of the query. (The sinks are at the start, so the count of characters read is their distance.) (a) Where does the green curve rise? (b) Which of the other two curves follows it?

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# One pair of eight carries nearly the whole cost. Give pair 3 the places in the cache and all others true positions, and 0.00 [−0.01..0.01] nats of the cost remain. Give pair 3 alone true positions, and it costs 0.40 [0.30..0.51], more than true positions in all pairs: those of the other pairs soften the harm. The peaks of the green curve are about 20 apart, the turn of pair 1. Perhaps a sink looks most like a neighbour where pair 1 has also come full circle; we have not tested it.
#
# At a distance of 230 pair 3 shows what it showed at 31, in training. So for these four keys a distance does no harm just by being new: distances of 200 to 287 are as new as those of 100 to 187, and cost 0.00 [−0.01..0.01] against 0.38 [0.26..0.46] nats (green curve). The cost follows the angle of one pair. Slower pairs meet new angles too, at next to no cost: 0.1 nats near positions 440 and 500; we have not measured why.
# </details>

# %% [markdown]
# ## 7 · What servers do
#
# | idea | how it works | looked up in |
# |---|---|---|
# | ragged batches | No padding: the new tokens of all requests lie in one long row, a list says where each begins, and every token brings its own position. | `transformers` 5.23, [`generation/continuous_batching/input_outputs.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/generation/continuous_batching/input_outputs.py) (`cu_seq_lens_q`, `position_ids`) |
# | PagedAttention | The cache is cut into blocks of a few tokens, anywhere in memory; a *block table* per request lists them. Keys are rotated before they are stored, at their true positions. | Kwon et al., 2023, section 4; [`continuous_batching/cache.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/generation/continuous_batching/cache.py) (`block_table`) |
# | a hash per block | It covers the block's tokens and all before it. Equal hashes mean equal text at equal positions, so the block is shared. Put one word in front, and no block is shared. | [`continuous_batching/cache_allocators/cache_allocator.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/generation/continuous_batching/cache_allocators/cache_allocator.py) (`compute_block_hash`); vLLM 0.8.2, design document ["Automatic Prefix Caching"](https://github.com/vllm-project/vllm/blob/v0.8.2/docs/source/design/v1/prefix_caching.md) |
# | *learned* sinks and windows | served as trained | `transformers`, [`GptOssAttention`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_oss/modeling_gpt_oss.py); vLLM, [pull request 22313](https://github.com/vllm-project/vllm/pull/22313) |
#
# And what is history by now:
#
# | idea | what became of it | looked up in |
# |---|---|---|
# | turning cached keys when the context is full (K-shift) | off by default | week 7, section 4 |
# | sink *tokens* | never merged | vLLM, [pull request 3515](https://github.com/vllm-project/vllm/pull/3515) (closed); text-generation-inference, [issue 1139](https://github.com/huggingface/text-generation-inference/issues/1139) (closed) |
# | sink *tokens* | removed | `transformers` 5, [pull request 41107](https://github.com/huggingface/transformers/pull/41107) (`SinkCache`); TensorRT-LLM, [pull request 14275](https://github.com/NVIDIA/TensorRT-LLM/pull/14275), May 2026 (broken since 2025) |

# %% [markdown]
# ## Ask yourself
#
# Answer aloud, then open.
#
# <details><summary>1. A checkpoint says partial_rotary_factor 0.25, head_dim 128. Your code uses exponent −2i/128. What do you see?</summary>
#
# No error, but wrong scores at short distances already: only the first pair turns as trained. And the slowest pair, at 54 positions a turn instead of 35,000, cannot tell long distances apart.
# </details>
#
# <details><summary>2. A two-hour video, one frame of 10 × 10 tokens per second. How many positions does M-RoPE use, and how many tokens are there?</summary>
#
# It uses 7,200 positions, on the time axis, for 720,000 tokens. Positions are cheap; the cache is not.
# </details>
#
# <details><summary>3. Does a learned sink replace the first tokens of a streaming cache?</summary>
#
# Only in the softmax: it takes the weight that no key deserves. What those tokens say is gone all the same when they leave the window.
# </details>
#
# <details><summary>4. Why does a streaming cache keep keys before the rotation?</summary>
#
# The keys' positions change at every step in which a token is dropped. Rotated keys could be turned back by a common angle, except the sinks, which do not move.
# </details>
#
# <details><summary>5. MLA caches 576 numbers per token and layer, GQA with 8 heads of 128 stores 2,048. Which one computes less per step?</summary>
#
# GQA, if both have the same number of query heads: its keys have 128 channels, and absorbed MLA compares 576 per head. MLA computes more to read less, and with GQA it is reading memory that limits decoding (week 7).
# </details>
#
# <details><summary>6. A layer has no position. Can the model still tell the order there?</summary>
#
# Yes, through what the layers below wrote into the tokens, and through the causal mask (week 1).
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Partial rotary takes the first pairs of the usual frequencies | In this week's models the exponent runs over `rotary_dim`, so a few pairs cover the whole range. (Not where `rope_type` is "proportional", as in Gemma 4.) | 8.1, Figure 8.1 |
# | A 1 in `no_rope_layers` means "no RoPE" | It means that the layer uses RoPE (transformers, [issue 43756](https://github.com/huggingface/transformers/issues/43756)). | 8.5 |
# | After a video, M-RoPE goes on at max(height, width) | At the largest number on any axis plus one (Qwen2-VL, section 2.1). [`transformers` 5.23](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen2_vl/modeling_qwen2_vl.py) leaves out time: after two tokens and a grid of 5 frames of 2 × 2, its text goes on at 4 and not at 7. | 8.2 |
# | A checkpoint has one RoPE layout | DeepSeek-V3.2 has two. | section 4 |
# | A sink is a token that you must keep | gpt-oss has one logit per head and no token; StreamingLLM keeps tokens. Both serve the same end. | 8.3 |
# | A window without sinks ruins every model | Not week 5's: a head's mean weight on the first token is 0.017 at most. | 8.6 |
# | In a ring buffer the slot is the position | Taking it for one makes keys seem to lie ahead of the query. Here it costs 1.09 [0.87..1.26] nats. | 8.6 |
# | MLA and RoPE cannot go together | They can, on separate channels. What fails is a rotation of the keys that come out of the latent. | 8.4 |
#
# ## Takeaways
#
# 1. A part of the channels can be enough for position (Khan et al., 2026; not measured here).
# 2. On three axes, text is the special case in which all three numbers agree.
# 3. If a bounded cache keeps old tokens, number all tokens by their place in it. A plain window may keep true positions.
# 4. Read what the code does with a field, and test it at a length where it matters.
#
# ## References
#
# - S. Black et al.: *GPT-NeoX-20B: An Open-Source Autoregressive Language Model*, 2022, arXiv:2204.06745. Section 2.1.1 (rotary embeddings on a quarter of the channels).
# - M. A. Khan, K. P. Gummadi, M. Gupta, A. Ravichander: *Fractional Rotation, Full Potential? Investigating Performance and Convergence of Partial RoPE*, 2026, arXiv:2603.11611.
# - P. Wang et al.: *Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution*, 2024, arXiv:2409.12191. Section 2.1.
# - G. Xiao, Y. Tian, B. Chen, S. Han, M. Lewis: *Efficient Streaming Language Models with Attention Sinks*, ICLR 2024, arXiv:2309.17453. Sections 3.1 and 3.2.
# - OpenAI: *gpt-oss-120b & gpt-oss-20b Model Card*, 2025, arXiv:2508.10925 (its part on the architecture: windows, a learned sink per head).
# - DeepSeek-AI: *DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model*, 2024, arXiv:2405.04434. Sections 2.1.2 and 2.1.3 (latent attention; the decoupled rotated key). *DeepSeek-V3 Technical Report*, 2024, arXiv:2412.19437 (sizes).
# - B. Yang et al.: *Rope to Nope and Back Again: A New Hybrid Attention Strategy*, 2025, arXiv:2501.18795 (layers without positions, as in Cohere's models).
# - W. Kwon et al.: *Efficient Memory Management for Large Language Model Serving with PagedAttention*, SOSP 2023, arXiv:2309.06180.
# - Code: huggingface/transformers 5.23.0, the attention classes of section 5, [`modeling_qwen2_vl.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen2_vl/modeling_qwen2_vl.py) (`get_rope_index`), and [issue 43756](https://github.com/huggingface/transformers/issues/43756).
