# %% [markdown]
# # Week 8 · Positions in production: what served models do
#
# **The week in one sentence.** Models that people use bend the encodings of weeks 3 to 7 to save memory, to read video and to run for ever: build those bends, read them in five configurations, and measure one of them.
#
# You have learned RoPE from its formula. Now open the configuration of a model that you use. `partial_rotary_factor: 0.25`. `no_rope_layers: [1, 1, 1, 0, …]`. `mrope_section: [16, 24, 24]`. `sliding_window: 128`. `qk_rope_head_dim: 64`. Each of these lines changes what a position is. Which one do you have to know to serve the model, and what happens if you read it wrong?
#
# This week is **optional**. Nothing later builds on it.
#
# ## What you will be able to do
#
# - turn a part of a head's channels, with the right frequencies;
# - give text, images and video positions on three axes, and rotate by them;
# - mask a window, add a sink to a softmax, and number the tokens of a cache that stays small;
# - attend to a compressed cache without expanding it, and say why a rotation would forbid that;
# - read how many layers and channels of a released model see a position;
# - predict, measure and explain what a stream does to a model with a bounded cache.
#
# **You need** weeks 3 and 5, and sections 1, 2 and 4 of week 7.
#
# **Time:** about 200 minutes of exercises and 40 of reading and experiments. The complete notebook runs in about a minute on two CPU cores. Short of time? 8.1, 8.3 and 8.6 are the core; 8.4 is what people ask about most.
#
# ## The exercises: 30 points
#
# | # | exercise | kind | points for: the visible check | the hidden tests | a person | minutes |
# |---|---|---|---|---|---|---|
# | 8.1 | `partial_rotary_emb` | code | 0 | 3 | – | 15 |
# | 8.2 | `mrope_positions` | code | 0 | 3 | – | 20 |
# | 8.2 | `apply_mrope` | code | 0 | 4 | – | 30 |
# | 8.3 | `sliding_window_mask` | code | 0 | 2 | – | 10 |
# | 8.3 | `softmax_with_sink` | code | 0 | 2 | – | 10 |
# | 8.3 | `streaming_cache` | code | 0 | 2 | – | 15 |
# | 8.4 | `mla_attention` | code | 0 | 5 | – | 40 |
# | 8.4 | `absorption_explained` | text | – | – | 3 | 20 |
# | 8.5 | `configurations_by_hand` | numbers | 0 | 3 | – | 15 |
# | 8.6 | `stream_explained` | text | – | – | 3 | 25 |
# | | **total** | | **0** | **24** | **6** | **200** |
#
# **How the points are given.** Below each answer stands a *visible check*. It carries **0 points**. Run it as often as you like: it says what is wrong and why. (For numbers by hand it checks the form only.) The *hidden tests* carry **all** the points of a code or number exercise. They run when your notebook is graded, with other inputs and more cases than the check. A person reads the two text answers.
#
# **Cells marked *predict*** ask you to commit to an answer before you look at a result. They are not graded. Do them anyway: section 6 contradicts a sentence that you can read in many places.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`; $d$ is the head dimension. Masks are boolean, True = may attend.
# - RoPE is in the **half layout** of exercise 3.4, as in the models of this week: pair $i$ is made of a channel in the first half and one in the second.
# - Positions are real numbers, `(seq_len,)` or `(batch, seq_len)`; negative and fractional ones too.
# - With fewer queries than keys, the queries are the *last* positions, as always in this course.
# - Functions keep the dtype and device of their input, keep gradients, and never change an argument in place. Angles are computed in at least float32, also for bfloat16 inputs.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import importlib.util
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
# GPT-NeoX rotates the first quarter of every head's channels and leaves the rest alone (Black et al., 2022, section 2.1.1). GPT-J had done so before, with 64 of 256. Phi and GLM-4 turn half of them, StableLM and Qwen3-Next a quarter. The channels that stay still compare content only: their part of the score is the same at every distance. This is **partial rotary embedding**.
#
# Why give up most of the rotation? Three reasons, of different strength. It is cheaper, which was the reason given for GPT-NeoX. It seems to cost nothing: Khan et al. (2026) trained models with several fractions and found that about a tenth of the channels converges like all of them. And a channel that does not turn meets no unknown angle at any length. That last point is what section 8.2 of week 5 used in whole layers.
#
# The rotated part is a small RoPE of its own. With $r$ rotated channels (`rotary_dim`) pair $i$ turns at
#
# $$\theta_i = \text{base}^{-2i/r},\qquad i=0,\dots,r/2-1, \tag{1}$$
#
# so its $r/2$ pairs cover the whole range of frequencies, fast to slow. The exponent has $r$ and not $d$. Put $d$ there and you keep the first $r/2$ of a long list: the fast pairs, and none of the slow ones.
#
# **An example.** $d=8$, $r=4$, base 10,000. Two pairs: channels 0 and 2 turn by 1 radian per position, channels 1 and 3 by $10000^{-2/4}=0.01$. Channels 4 to 7 pass. Pair partners are $r/2=2$ apart, not $d/2=4$.

# %% tags=["experiment"]
wavelengths = {
    "all 96 channels turn": [2 * math.pi * 10000 ** (2 * i / 96) for i in range(48)],
    "24 turn, exponent −2i/24": [2 * math.pi * 10000 ** (2 * i / 24) for i in range(12)],
    "24 turn, exponent −2i/96 (wrong)": [2 * math.pi * 10000 ** (2 * i / 96) for i in range(12)],
}
fig, ax = lab.figure("Positions per full turn, GPT-NeoX: heads of 96 channels", height=2.7)
for row, ((name, lengths), colour, marker) in enumerate(zip(wavelengths.items(), lab.COLOURS, "|os")):
    ax.plot(lengths, [-row] * len(lengths), linestyle="none", marker=marker, markersize=8, color=colour)
ax.set(xscale="log", xlabel="positions per full turn", ylim=(-2.6, 0.6), yticks=[0, -1, -2])
ax.set_yticklabels(list(wavelengths))
ax.grid(axis="x")
plt.show()
lab.table(["", "pairs", "fastest", "slowest"],
          [[name, len(lengths), f"{lengths[0]:.1f}", f"{lengths[-1]:,.0f}"] for name, lengths in wavelengths.items()])


# %% [markdown]
# **Figure 8.1. Wavelengths of the pairs.** One mark per pair; far right is slow. Compare where the three rows end.

# %% [markdown]
# With the right exponent twelve pairs reach as far as forty-eight. With the wrong one the slowest comes round after 52 positions: the model has no pair left that tells 60 from 8. Nothing fails loudly. A checkpoint loaded into such code just gets worse with distance.

# %% [markdown]
# ### Exercise 8.1 · Partial rotary embedding
#
# **3 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* five model families of this week's table need it, and their authors chose the *first* channels. `rotary_dim = head_dim` must give exercise 3.4 again.

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


# %% nbgrader={"grade_id": "partial_rotary_emb_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(1)
x = torch.randn(2, 3, 5, 8, generator=generator)
out = partial_rotary_emb(x, torch.arange(5), 4)
assert tuple(out.shape) == (2, 3, 5, 8), f"shape (2, 3, 5, 8) expected, got {tuple(out.shape)}."
assert torch.allclose(out[:, :, 0], x[:, :, 0], atol=1e-6), "at position 0 no channel may change."
assert not bool(out[..., 4:].eq(0).all()), "channels 4 to 7 are zeros: they must pass as they are."
assert torch.equal(out[..., 4:], x[..., 4:]), "with rotary_dim 4 the channels 4 to 7 must pass unchanged."
lengths, before = out[..., :4].norm(dim=-1), x[..., :4].norm(dim=-1)
assert torch.allclose(lengths, before, atol=1e-5), "a rotation keeps lengths; the first four channels have lost theirs."
e = torch.zeros(1, 1, 1, 8)
e[..., 0] = 1.0
turned = partial_rotary_emb(e, torch.tensor([1.0]), 4)[0, 0, 0]
expected = torch.tensor([math.cos(1), 0.0, math.sin(1), 0.0, 0.0, 0.0, 0.0, 0.0])
assert torch.allclose(turned, expected, atol=1e-5), (
    "channel 0 alone, at position 1, must become cos 1 in channel 0 and sin 1 in channel 2; "
    f"you have {[round(value, 3) for value in turned.tolist()]}. Pair partners are rotary_dim/2 apart.")
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
print("Looks right. The hidden tests use other widths, bases and far positions.")

# %% nbgrader={"grade_id": "partial_rotary_emb_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.partial_rotary_emb(partial_rotary_emb)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Cut off the first `rotary_dim` channels, rotate them as in 3.4 with `rotary_dim` in the place of `head_dim`, and put the others back behind them.
# </details>
#
# <details><summary>Hint 2: shapes</summary>
#
# Angles have the shape `(seq_len, rotary_dim/2)`, or `(batch, seq_len, rotary_dim/2)` and then one axis for the heads in between.
# </details>

# %% [markdown]
# ## 2 · Three axes
#
# A video has a time, a height and a width. Number its patches 0, 1, 2, … along the rows, and a patch and the one right below it stand a whole row apart. With a 40-patch row that is 40 positions for one step down. The next frame is hundreds away. Relative encodings then see neighbours as strangers.
#
# Qwen2-VL (Wang et al., 2024, section 2.1) gives every token **three** positions: time, height, width. It calls this M-RoPE. The pairs of a head are shared out among the axes: pair $p$ turns by the position on its axis $a(p)$,
#
# $$\varphi_p = \text{position}_{a(p)}\cdot\text{base}^{-2p/d}. \tag{2}$$
#
# In Qwen2-VL a head has 128 channels, 64 pairs, and the **sections** are `[16, 24, 24]`: pairs 0 to 15 turn by time, 16 to 39 by height, 40 to 63 by width. The frequencies are those of all 64 pairs in one list. They do not start again in each section.
#
# **Text** has one axis. Its tokens get the same number on all three. Then every pair turns by that number, whatever its axis, and M-RoPE is ordinary RoPE. So a language model can be taken over without change.
#
# **Where does text go on after a video?** The rule: let $s$ be the largest number so far *on any axis*, plus one. A grid then takes the positions $s+t,\ s+h,\ s+w$, and after it $s$ is set anew.
#
# **An example.** Two text tokens, then one frame of two rows and three columns, then text:
#
# | token | time | height | width |
# |---|---|---|---|
# | text | 0 | 0 | 0 |
# | text | 1 | 1 | 1 |
# | row 0, columns 0, 1, 2 | 2, 2, 2 | 2, 2, 2 | 2, 3, 4 |
# | row 1, columns 0, 1, 2 | 2, 2, 2 | 3, 3, 3 | 2, 3, 4 |
# | text | 5 | 5 | 5 |
#
# The six patches took three positions, not six. A side effect that people like: long videos use up few of the positions that the model was trained on.

# %% [markdown] tags=["prediction"]
# **Predict.** Two text tokens, then a video of 5 frames of 2 × 2 patches, then text. At which number does the text go on: 4, 7, 12 or 22?
#
# *Your prediction:*

# %% [markdown]
# ### Exercise 8.2 · Positions on three axes
#
# **3 points · difficulty 3/5 · 20 minutes · code**
#
# *Why it matters:* for images both "the larger of height and width" and "the largest number on any axis" give the same. For a long video they do not, and a released library has it wrong today (see "What people get wrong").
#
# A text of 0 tokens, or a grid with a side of 0, has no token: it adds nothing and moves nothing.

# %% nbgrader={"grade_id": "mrope_positions", "solution": true}
def mrope_positions(segments):
    """Positions on the axes time, height, width.

    segments: a list in reading order. An int n >= 0: n text tokens, the same number on all axes. A tuple (t, h, w) of
              ints >= 0: a grid of t frames, h rows, w columns, row by row, frame by frame; positions s+t, s+h, s+w.
              s starts at 0; after a segment it is the largest number so far on any axis, plus 1
    returns:  int64 (3, n) for n tokens in all; no token: (3, 0)
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


# %% nbgrader={"grade_id": "mrope_positions_check", "grade": true, "points": 0}
# Visible check (0 points).
text_only = mrope_positions([4])
assert tuple(text_only.shape) == (3, 4), f"four text tokens: shape (3, 4) expected, got {tuple(text_only.shape)}."
assert text_only.dtype == torch.int64, f"positions are int64; yours are {text_only.dtype}."
assert text_only.tolist() == [[0, 1, 2, 3]] * 3, f"text has the same number on all axes; yours: {text_only.tolist()}."
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

# %% tags=["experiment"]
serving.moving_axes(mrope_positions)


# %% [markdown]
# **Figure 8.2. A small video between two texts.** Three text tokens, a grid, two text tokens. Walk along the tokens and watch the three numbers. Then change the grid: when does one more frame move the text behind it, and when does it not?

# %% [markdown]
# ### Exercise 8.2, second part · Rotate by three axes
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* the sections are data, so weights trained with `[16, 24, 24]` run with any others, and answer worse.
#
# Half layout: pair $p$ is channels $p$ and $p+d/2$. Sections count **pairs**, in order: the first for time, then height, then width.
#
# **An example.** $d=8$, sections `(1, 2, 1)`, base 10,000. Pair 0 turns by time · 1, pair 1 by height · 0.1, pair 2 by height · 0.01, pair 3 by width · 0.001.

# %% nbgrader={"grade_id": "apply_mrope", "solution": true}
def apply_mrope(x, positions, sections, base=10000.0):
    """RoPE in the half layout in which each pair turns by the position on its own axis.

    x:         (batch, heads, seq_len, head_dim), any floating dtype
    positions: (3, seq_len) or (3, batch, seq_len), real numbers; axis 0: time, height, width
    sections:  three ints >= 0: how many pairs turn by each axis, in this order. Their sum is head_dim/2, else
               ValueError. Frequencies are base**(-2p/head_dim) for pair p, counted over all sections
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


# %% nbgrader={"grade_id": "apply_mrope_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(2)
x = torch.randn(2, 3, 6, 8, generator=generator)
same = torch.arange(6).expand(3, 6)
out = apply_mrope(x, same, (1, 2, 1))
assert tuple(out.shape) == (2, 3, 6, 8), f"shape (2, 3, 6, 8) expected, got {tuple(out.shape)}."
assert torch.allclose(out, apply_mrope(x, same, (2, 1, 1)), atol=1e-5), (
    "for text, with the same number on all axes, the sections must not matter: frequencies run over all pairs.")
ones = torch.cat((torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 1, 4)), dim=-1)  # every pair points along its first channel


def angles_at(positions):
    turned = apply_mrope(ones, positions, (1, 2, 1))[0, 0, 0]
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
print("Looks right. The hidden tests use grids, other sections and other bases.")

# %% nbgrader={"grade_id": "apply_mrope_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.apply_mrope(apply_mrope)
### END HIDDEN TESTS

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

# %% [markdown]
# A contiguous section has a price. In Qwen2-VL all fast pairs belong to time and all slow ones to width, so the axes see distances differently. Qwen3-VL deals the pairs out in turn instead: time, height, width, time, … (`mrope_section` `[24, 20, 20]`). The two layouts are not interchangeable: a checkpoint belongs to one of them.

# %% [markdown]
# ## 3 · Windows, sinks, and a stream without end
#
# A chat that runs all day has no last token. Its cache cannot grow for ever, so something has to go. Three tools stand in released models, alone or together.
#
# **A sliding window.** Each query sees itself and the $w-1$ keys before it. The cache then holds $w$ tokens, however long the text. Gemma 3 gives five of six layers a window, gpt-oss every second one.
#
# **A sink in the softmax.** A softmax must give out weight 1, also where no key deserves it. Trained models often pile that weight onto the first tokens of the text. Xiao et al. (2024) call these **attention sinks**. gpt-oss builds one in: each head learns one number $b$, a logit that belongs to no key,
#
# $$w_j=\frac{e^{s_j}}{e^{b}+\sum_k e^{s_k}}. \tag{3}$$
#
# The weights of the keys now add up to less than 1. What is missing goes nowhere: there is no value behind it.
#
# **A streaming cache** (StreamingLLM, Xiao et al., 2024, section 3.2). Where the sink is a real token, keep it: the first $n_s$ tokens of the text, four in the paper, and the last $w$. Now a question that this course has prepared you for: *which positions do they have?* Token 0 and token 100,000 are neighbours in the cache. With their true positions the distance is 100,000, and the model has never seen it. StreamingLLM counts **places in the cache** instead: 0, 1, 2, … Keys are therefore cached before the rotation, and turned at every step.
#
# **An example.** $n_s=2$, $w=3$, and 8 tokens so far. Kept: 0, 1, 5, 6, 7. Their positions: 0, 1, 2, 3, 4. With 4 tokens, all are kept, each once: 0, 1, 2, 3.

# %% tags=["experiment"]
fig, axes = lab.figure("Who sees whom? Ten tokens", ncols=3, height=3.1, sharey=True)
query, key = torch.arange(10)[:, None], torch.arange(10)
for ax, (title, seen) in zip(axes, {"causal": key <= query, "window of 4": (key <= query) & (key > query - 4),
                                    "2 sinks, window of 4": (key <= query) & ((key > query - 4) | (key < 2))}.items()):
    shown = torch.where(seen & (key < 2) & (key <= query - 4), 2, seen.long())
    ax.imshow(shown, cmap=plt.matplotlib.colors.ListedColormap(["white", lab.BLUE, lab.ORANGE][:int(shown.max()) + 1]),
              interpolation="nearest")
    ax.set(title=f"{title}: {int(seen.sum(1).max())} keys at most", xlabel="key", xticks=range(0, 10, 3), yticks=range(0, 10, 3))
    ax.set_xticks(np.arange(-0.5, 10), minor=True)
    ax.set_yticks(np.arange(-0.5, 10), minor=True)
    ax.grid(which="minor", color="#DDDDDD", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
axes[0].set_ylabel("query")
plt.show()


# %% [markdown]
# **Figure 8.3. Three masks.** (a) Everything so far. (b) The last four, the query itself among them. (c) The same, and the first two tokens (orange) for good.

# %% [markdown]
# ### Exercise 8.3 · A window
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* "a window of 128" counts the query itself in most code, and in some not. With one key more than in training, a layer sees a distance that it never met.

# %% nbgrader={"grade_id": "sliding_window_mask", "solution": true}
def sliding_window_mask(n_queries, n_keys, window):
    """Causal, and no farther back than a window: a query sees itself and the window - 1 keys before it.

    The queries are the last n_queries of the n_keys positions; 1 <= n_queries <= n_keys, window >= 1.
    returns: bool (n_queries, n_keys), True = may attend
    """
    ### BEGIN SOLUTION
    key = torch.arange(n_keys)
    query = key[n_keys - n_queries:, None]
    return (key <= query) & (key > query - window)
    ### END SOLUTION


# %% nbgrader={"grade_id": "sliding_window_mask_check", "grade": true, "points": 0}
# Visible check (0 points).
mask = sliding_window_mask(4, 4, 2)
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
# <details><summary>Hint</summary>
#
# Two ranges, positions of the queries as a column, of the keys as a row. Both conditions are comparisons of the two.
# </details>

# %% [markdown]
# ### Exercise 8.3, second part · A softmax with a sink
#
# **2 points · difficulty 2/5 · 10 minutes · code**
#
# *Why it matters:* leave the sink out of gpt-oss, and every head attends more than it should. A large score must not overflow, and a row without a key is zero, not NaN.

# %% nbgrader={"grade_id": "softmax_with_sink", "solution": true}
def softmax_with_sink(scores, sinks):
    """Softmax over the keys and one more logit per head, which is then dropped.

    scores:  (batch, heads, n_queries, n_keys); -inf hides a key
    sinks:   (heads,), finite, dtype of scores
    returns: weights, shape and dtype of scores; a row of -inf alone is zero
    """
    ### BEGIN SOLUTION
    sink = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    ### END SOLUTION


# %% nbgrader={"grade_id": "softmax_with_sink_check", "grade": true, "points": 0}
# Visible check (0 points).
weights = softmax_with_sink(torch.zeros(1, 2, 1, 3), torch.tensor([0.0, math.log(7.0)]))
assert tuple(weights.shape) == (1, 2, 1, 3), f"the sink is dropped again: shape (1, 2, 1, 3) expected, got {tuple(weights.shape)}."
assert torch.allclose(weights[0, 0], torch.full((1, 3), 0.25), atol=1e-5), (
    f"three scores of 0 and a sink of 0 share the weight in four: 0.25 each; yours: {weights[0, 0].tolist()}. "
    "The weights of the keys add up to less than 1.")
assert torch.allclose(weights[0, 1], torch.full((1, 3), 0.1), atol=1e-5), (
    f"head 1 has a sink of log 7: three keys of weight 1 beside a 7 get 0.1 each; yours: {weights[0, 1].tolist()}. "
    "Each head has its own sink.")
hidden = softmax_with_sink(torch.full((1, 2, 1, 3), -math.inf), torch.zeros(2))
assert bool(hidden.eq(0).all()), f"a row of -inf alone has zero weights; yours: {hidden.flatten().tolist()}."
large = softmax_with_sink(torch.tensor([[[[1000.0, 999.0]]]]), torch.tensor([998.0]))
assert bool(large.isfinite().all()), "scores of 1000 give NaN: let softmax do the exponentials, it subtracts the largest first."
expected = torch.tensor([0.0, -1.0, -2.0]).softmax(0)[:2]
assert torch.allclose(large.flatten(), expected, atol=1e-5), (
    f"only differences count: 1000, 999 and a sink of 998 give {expected[0]:.3f} and {expected[1]:.3f}.")
print("Looks right. The hidden tests use several texts, heads and hidden keys.")

# %% nbgrader={"grade_id": "softmax_with_sink_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.softmax_with_sink(softmax_with_sink)
### END HIDDEN TESTS

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

# %% [markdown]
# ### Exercise 8.3, third part · What is kept, and where it stands
#
# **2 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* two index lists decide whether a stream stays sound. While the text is short, sinks and window overlap, and a token kept twice gets twice its weight.

# %% nbgrader={"grade_id": "streaming_cache", "solution": true}
def streaming_cache(n_tokens, n_sinks, window):
    """Which of the tokens 0 .. n_tokens-1 a streaming cache holds, and at which positions.

    n_tokens >= 1, n_sinks >= 0, window >= 1
    returns: (kept, positions), int64 (m,) each with m = min(n_tokens, n_sinks + window)
             kept: the first n_sinks and the last ``window`` tokens, each once, ascending
             positions: 0, 1, ..., m-1: places in the cache, not in the text
    """
    ### BEGIN SOLUTION
    n_first = min(n_sinks, n_tokens)
    kept = torch.cat((torch.arange(n_first), torch.arange(max(n_first, n_tokens - window), n_tokens)))
    return kept, torch.arange(len(kept))
    ### END SOLUTION


# %% nbgrader={"grade_id": "streaming_cache_check", "grade": true, "points": 0}
# Visible check (0 points).
kept, positions = streaming_cache(8, 2, 3)
assert kept.dtype == positions.dtype == torch.int64, f"both are int64; yours: {kept.dtype}, {positions.dtype}."
assert kept.tolist() == [0, 1, 5, 6, 7], f"of 8 tokens, 2 sinks and the last 3: 0, 1, 5, 6, 7; yours: {kept.tolist()}."
assert positions.tolist() != kept.tolist(), "these are the tokens' true positions: in the cache they stand at 0, 1, 2, 3, 4."
assert positions.tolist() == [0, 1, 2, 3, 4], f"positions in the cache: 0, 1, 2, 3, 4; yours: {positions.tolist()}."
for n_tokens, expected in ((1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 3, 4, 5])):
    kept, positions = streaming_cache(n_tokens, 2, 3)
    assert kept.tolist() == expected, (
        f"{n_tokens} tokens, 2 sinks, a window of 3: {expected}, each token once; yours: {kept.tolist()}.")
    assert positions.tolist() == list(range(len(expected))), f"positions are counted from 0; yours: {positions.tolist()}."
kept, _ = streaming_cache(6, 0, 2)
assert kept.tolist() == [4, 5], f"without sinks the last 2 of 6 tokens remain: 4, 5; yours: {kept.tolist()}."
print("Looks right. The hidden tests try longer texts.")

# %% nbgrader={"grade_id": "streaming_cache_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week8
week8.streaming_cache(streaming_cache)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two ranges. Where does the second begin, if it must not reach back into the first?
# </details>

# %% tags=["experiment"]
serving.moving_conveyor(streaming_cache)


# %% [markdown]
# **Figure 8.4. The cache as a conveyor belt.** Squares are tokens of the text; blue: sinks, orange: the window, dashed: dropped. Below each kept token stands its position in the cache. Let the text grow: which positions does the newest token meet, and which would it meet with true ones?
