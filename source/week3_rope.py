# %% [markdown]
# # Week 3 · Rotary position embeddings (RoPE)
#
# A sentence means the same on page 1 and on page 100. Can you build an attention layer that *cannot* notice that a text has moved, and still sees exactly how far apart two words are?
#
# **The method in one sentence.** Turn every query and every key by an angle proportional to its position. What does that do to their dot product?
#
# <!-- costs of week3_rope -->
#
# ## What you will be able to do
#
# - compute a rotary score by hand, write RoPE in both common layouts, and convert weights from one to the other;
# - prove that the score depends only on the offset of the two positions;
# - build an attention layer that takes any positions: shifted, per sequence, negative, fractional;
# - say how a head that looks three tokens back fares on longer texts, find the cause without training again, and build such a head yourself;
# - say where low precision ruins RoPE, and write the test that finds three bugs which raise no error.
#
# **You need** weeks 1 and 2, radians, and what a 2×2 matrix does to a vector.
#
# **Short of time?** 3.1 to 3.3 are the idea; 3.4 and 3.8 are what you will need first at work.
#
# <!-- points of week3_rope -->
#
# **As before:** a *visible check* carries 0 points and says what is wrong; *hidden tests* carry the points. Answer *predict* cells before you run the experiment.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`. $d$ is the **head dimension**, never the model dimension.
# - $m$ is the position of a query, $n$ the position of a key, both counted from 0. Their difference $m-n$ is the **offset**. (Here $i$ counts *pairs* of channels. Week 2 counted them with $t$.)
# - Angles are in radians. Positive angles turn counter-clockwise.
# - Your functions keep dtype, device and gradients, and never change an argument in place. A tensor need not be contiguous: heads come out of a projection transposed.
# - A bare number such as 3.4 is an exercise.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import lab

lab.use_style()
torch.manual_seed(0)
np.random.seed(0)

# %% [markdown]
# ## 1 · What we want
#
# In week 2 a vector $e_m$ was *added* to the token $x_m$ at position $m$. The score of a query and a key then has four terms. (Vectors are columns, as in week 2.)
#
# $$(x_m+e_m)^\top W\,(x_n+e_n) = \underbrace{x_m^\top W x_n}_{\text{content–content}} + \underbrace{x_m^\top W e_n}_{\text{content–position}} + \underbrace{e_m^\top W x_n}_{\text{position–content}} + \underbrace{e_m^\top W e_n}_{\text{position–position}}, \qquad W = W_q^\top W_k .$$
#
# If the sentence moves ten positions to the right, the two middle terms change although the words are the same. For most $W$ the last term changes too.
#
# So look for a function $f$ that puts a position into a query or a key such that the score sees only the offset:
#
# $$\big\langle f(q, m),\, f(k, n)\big\rangle = g(q, k, m-n)\qquad\text{for all } q, k, m, n. \tag{1}$$
#
# You have three more wishes: position 0 changes nothing, no vector changes its length, and there is nothing to train.
#
# ### The idea: two hands on one clock
#
# Suppose a head had only two channels. Query and key are then arrows in a plane: draw them as two hands of one clock. Their dot product is
#
# $$ q\cdot k = |q|\,|k|\,\cos(\text{angle between the hands}).$$
#
# Now turn the hand of a token at position $m$ by $m\theta$, where $\theta$ is the clock's *frequency*, in radians per position. That is RoPE.

# %% [markdown] tags=["prediction"]
# **Predict.** The next cell draws a query at position $m=3$ and a key at $n=1$ on four clocks, which turn by 1, 0.316, 0.1 and 0.0316 radians per position. Then query and key move on by nine positions. How large is the angle between the two hands on each clock, before and after?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.1: run this cell
frequencies = [1.0, 0.316, 0.1, 0.0316]  # radians per position
fig, axes = lab.figure("Four clocks, the same two tokens, at two points of the text", nrows=2, ncols=4, height=4.7)
for row, (m, n) in zip(axes, [(3, 1), (12, 10)]):
    for ax, theta in zip(row, frequencies):
        lab.dial(ax, [(m * theta, lab.QUERY, "q"), (n * theta, lab.KEY, "k")],
                 title=f"{theta:g} rad\nper position" if m == 3 else "",
                 note=f"angle {(m - n) * theta:.3g} rad")
    row[0].text(-1.75, 0, f"m = {m}\nn = {n}", ha="right", va="center", fontsize=11)
plt.show()

# %% [markdown]
# **Figure 3.1. The clocks.** The query hand q (blue) is turned by $m\theta$, the key hand k (orange-red) by $n\theta$; unturned, both point right. In the lower row both tokens are nine positions further on. Compare the shaded angles.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Both hands of a clock turn by $9\,\theta$ more, so every hand moves and no shaded angle changes. Each angle is $(m-n)\,\theta$ before and after, so the dot product stays the same.
# </details>
#
# ## 2 · One pair of channels
#
# A rotation by the angle $\varphi$ sends $(1,0)$ to $(\cos\varphi, \sin\varphi)$ and $(0,1)$ to $(-\sin\varphi, \cos\varphi)$. These two images are the columns of its matrix:
#
# $$R(\varphi)=\begin{pmatrix}\cos\varphi & -\sin\varphi\\ \sin\varphi & \cos\varphi\end{pmatrix},\qquad f(q, m) = R(m\theta)\,q,\qquad f(k, n) = R(n\theta)\,k. \tag{2}$$
#
# **Why it works.** Before the rotation, let the query point in direction $\alpha$ and the key in direction $\beta$; these directions are their *content*. Afterwards they point in the directions $\alpha+m\theta$ and $\beta+n\theta$, with their old lengths. Hence
#
# $$\big\langle f(q,m), f(k,n)\big\rangle = |q|\,|k|\cos\big((\alpha+m\theta)-(\beta+n\theta)\big)=|q|\,|k|\cos\big(\underbrace{\alpha-\beta}_{\text{content}}+\underbrace{(m-n)\,\theta}_{\text{offset}}\big). \tag{3}$$
#
# So wish (1) is granted, for one pair.
#
# **A worked example.** Let $\theta=\pi/6$, $q=(2,0)$ at $m=3$, $k=(1,1)$ at $n=0$. The query turns by $\pi/2$ and becomes $(0,2)$; the key stays. Score: $0\cdot1+2\cdot1=2$. Move both on by one. The query turns by $2\pi/3$ and becomes $(-1, \sqrt3)$. The key turns by $\pi/6$ and becomes $(\cos\frac\pi6-\sin\frac\pi6,\ \sin\frac\pi6+\cos\frac\pi6)\approx(0.3660, 1.3660)$. Score: $-0.3660+1.7321\cdot1.3660\approx 2.000$. All numbers have changed except the score.

# %% [markdown]
# ### Exercise 3.1 · Rotate by hand
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* a wrong sign raises no error. Rotate one vector by hand, and the sign jumps out.
#
# Take one pair with $\theta = 1$. The query is $q=(1,0)$ at position $m=3$, the key is $k=(0,1)$ at position $n=1$. Compute both rotated vectors, their score, and the score of the same $q$ and $k$ at positions 12 and 10. Use a calculator or `math.sin` and `math.cos`, in radians. Give **at least four significant digits**.

# %% tags=["by-hand"] nbgrader={"grade_id": "rotate_by_hand", "solution": true}
# Replace every None by a number, at least four significant digits.
rotate_by_hand = {
    "q3_0": None,  # q at position 3, first channel
    "q3_1": None,  # q at position 3, second channel
    "k1_0": None,  # k at position 1, first channel
    "k1_1": None,  # k at position 1, second channel
    "score_3_1": None,  # dot product of the two
    "score_12_10": None,  # the same q and k at positions 12 and 10
}
### BEGIN SOLUTION
rotate_by_hand |= {
    "q3_0": -0.98999,  # cos 3
    "q3_1": 0.14112,  # sin 3
    "k1_0": -0.84147,  # -sin 1
    "k1_1": 0.54030,  # cos 1
    "score_3_1": 0.90930,  # 0.98999 * 0.84147 + 0.14112 * 0.54030 = sin 2
    "score_12_10": 0.90930,  # the offset is 2 again
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# $q=(1,0)$ and $k=(0,1)$ are the two axes. Equation (2) says where the axes go: read off the columns of $R$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For the last number you need not rotate anything. Look at equation (3).
# </details>

# %% nbgrader={"grade_id": "rotate_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, at lengths and quadrants, and at your dot product.
numbers = lab.must_be_numbers(rotate_by_hand, "q3_0", "q3_1", "k1_0", "k1_1", "score_3_1", "score_12_10")
q3, k1 = ((numbers[f"{name}_0"], numbers[f"{name}_1"]) for name in ("q3", "k1"))
for name, vector in (("q at position 3", q3), ("k at position 1", k1)):
    assert abs(math.hypot(*vector) - 1) < 5e-3, (
        f"a rotation keeps lengths: {name} must have the length 1, yours has {math.hypot(*vector):.4g}.")
assert q3[0] < 0 < q3[1], (
    f"q starts at (1, 0) and turns counter-clockwise by 3 radians, almost half a turn: it ends at the upper left. Yours is {q3}.")
assert k1[0] < 0 < k1[1], (
    f"k starts at (0, 1) and turns counter-clockwise by 1 radian: it ends at the upper left. Yours is {k1}.")
assert abs(numbers["score_3_1"] - (q3[0] * k1[0] + q3[1] * k1[1])) < 5e-3, (
    "score_3_1 is not the plain dot product of your own two vectors: multiply channel by channel, then add.")
print("Six numbers that fit together. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "rotate_by_hand_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.rotate_by_hand(rotate_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · A head is many clocks
#
# One clock is not enough. With $\theta=1$, 44 positions are almost exactly seven turns: the offsets 1 and 45 look alike. The hand of a slow clock hardly moves from one token to the next. So RoPE splits the $d$ channels of a head into $d/2$ **pairs** and gives each pair a **frequency** of its own:
#
# $$\theta_i = \text{base}^{-2i/d},\qquad i=0,1,\dots,\tfrac d2-1,\qquad \text{base}=10\,000. \tag{4}$$
#
# RoPE takes over the formula of week 2's sinusoids, with the head dimension in place of the model dimension (RoFormer, section 3.2.2, where pairs are counted from 1). The frequencies form a geometric series: pair 0 turns by one radian per position, and each later pair is slower by the same factor. A full turn of pair $i$ takes $2\pi/\theta_i$ positions, its **wavelength**. (In code the $\theta_i$ are often called `inv_freq`.)
#
# Three slips are common: $i/d$ instead of $2i/d$, the model dimension instead of the *head* dimension, and a *positive* exponent.

# %% tags=["experiment"]
lab.moving_clocks(head_dim=8, base=10000.0, m=3, n=1, keys=True)


# %% [markdown]
# **Figure 3.2. Clocks to move.** One clock per pair for `head_dim` 8. (a) Raise m and n together. (b) Raise m alone. Which pair notices one position, and which hardly notices a hundred? (c) Raise the base. Which clock keeps its pace?

# %% [markdown]
# ### Exercise 3.2 · Frequencies
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* after a slip in the exponent a model still trains, but nobody else's checkpoint fits it.

# %% nbgrader={"grade_id": "rope_frequencies", "solution": true}
def rope_frequencies(head_dim, base=10000.0):
    """Frequency of each pair of channels, highest first: equation (4).

    head_dim: even int; an odd one raises ValueError
    base:     float
    returns:  (head_dim/2,) in radians per position, float32 (float64 is welcome too), on the CPU; a new tensor on each call
    """
    ### BEGIN SOLUTION
    if head_dim % 2:
        raise ValueError(f"RoPE turns pairs of channels, so head_dim must be even, got {head_dim}")
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim  # 2i/d
    return base**-exponents  # float64: these numbers will be multiplied by large positions
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.arange` with a step of 2 gives 0, 2, 4, …: these are the $2i$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# A float raised to a tensor works elementwise: `2.0 ** torch.tensor([0., 1.])` is `[1., 2.]`.
# </details>

# %% nbgrader={"grade_id": "rope_frequencies_check", "grade": true, "points": 0}
# Visible check (0 points).
theta = rope_frequencies(8)
lab.must_be_a_tensor(theta)
assert tuple(theta.shape) == (4,), (
    f"shape (4,) expected for head_dim 8, got {tuple(theta.shape)}: one frequency per pair, not per channel.")
assert theta.dtype in (torch.float32, torch.float64), f"float32 or float64 expected, got {theta.dtype}."
assert abs(float(theta[0]) - 1) < 1e-6, (
    f"pair 0 turns by base**0 = 1 radian per position, yours by {float(theta[0]):.5g}.")
assert float(theta[1]) < float(theta[0]), "the frequencies must fall: is the sign of your exponent right?"
ratios = theta[1:] / theta[:-1]
assert float(ratios.max() - ratios.min()) < 1e-5, (
    "each frequency must be the one before times a constant factor (a geometric series).")
assert abs(float(theta[-1]) * 1000 - 1) < 1e-3, (
    f"for head_dim 8 the last exponent is -6/8, so the last frequency is 0.001; yours is {float(theta[-1]):.5g}. "
    "Is the exponent -2i/d, with d the head_dim?")
assert abs(float(rope_frequencies(4, base=100.0)[1]) - 0.1) < 1e-5, (
    "with base 100 and head_dim 4 the second frequency is 0.1: is `base` used?")
assert lab.raises(ValueError, rope_frequencies, 7), (
    "an odd head_dim leaves one channel without a partner: raise ValueError.")
print("Looks right. The hidden tests try other dimensions and bases.")

# %% nbgrader={"grade_id": "rope_frequencies_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.rope_frequencies(rope_frequencies)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** Take `head_dim` 64 and a model trained on texts of 2,048 tokens. How many of its 32 pairs complete at least one full turn within such a text? Does raising the base from 10,000 to 1,000,000 make that number larger or smaller?
#
# *Your prediction:*

# %% tags=["experiment"]
length, wavelengths, rows = 2048, {}, []
for base in (1e4, 1e6):
    wavelengths[base] = 2 * math.pi / rope_frequencies(64, base)
    complete = int((wavelengths[base] <= length).sum())
    rows.append([f"{base:,.0f}", complete, 32 - complete, f"{float(f'{wavelengths[base][-1]:.3g}'):,.0f}"])
lab.table(["base", "pairs that complete a turn", "pairs that never do", "longest wavelength"], rows)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.3: run this cell
fig, ax = lab.figure("How long one full turn takes", height=3.6)
for (base, wavelength), marker in zip(wavelengths.items(), "os"):
    ax.semilogy(wavelength, marker=marker, markersize=4, linestyle="none", label=f"base {base:,.0f}")
ax.axhline(length, color=lab.GREY, linewidth=1.2, linestyle="--")
ax.text(0, length * 1.35, f"training length {length:,}; above it: never a full turn", color="#444444", fontsize=9)
ax.set(xlabel="pair i (head_dim 64)", ylabel="wavelength (positions, log scale)")
ax.grid(axis="y")
ax.legend(loc="lower right")
plt.show()


# %% [markdown]
# **Figure 3.3. Wavelengths of the pairs.** Each dot is one pair; on the logarithmic axis a geometric series is a straight line. Pairs above the dashed line show the model only a part of their circle.
#
# <details><summary>After you have run it</summary>
#
# In a longer text the slow pairs reach angles that no training text has shown. A larger base leaves more pairs without a full turn, but these pairs also turn less. With base $10^6$, even at position 16,384, pairs 21 to 31 have turned no farther than they had at position 800 with base $10^4$. But every pair except pair 0 changes pace, so such a model is usually fine-tuned. Code Llama was, with base $10^6$, to read long files (Rozière et al., 2023).
# </details>

# %% [markdown]
# ## 4 · Rotating a whole head
#
# In the **interleaved** layout, pair $i$ consists of the neighbours $2i$ and $2i+1$. The rotation of a whole head is then a block-diagonal matrix,
#
# $$R_m=\begin{pmatrix}R(m\theta_0)\\ & R(m\theta_1)\\ & & \ddots\\ & & & R(m\theta_{d/2-1})\end{pmatrix}\in\mathbb R^{d\times d}. \tag{5}$$
#
# Nobody builds this matrix. Each pair needs four products (RoFormer, section 3.4.2):
#
# $$\begin{aligned} x'_{2i} &= x_{2i}\cos(m\theta_i) - x_{2i+1}\sin(m\theta_i),\\ x'_{2i+1} &= x_{2i}\sin(m\theta_i) + x_{2i+1}\cos(m\theta_i).\end{aligned} \tag{6}$$
#
# **An example to test against.** Let $d=4$, so $\theta_0=1$ and $\theta_1=0.01$, and take $x=(1,0,1,0)$ at position $m=2$. Pair 0 becomes $(\cos2,\sin2)=(-0.4161,\,0.9093)$. Pair 1 becomes $(\cos0.02,\sin0.02)=(0.9998,\,0.0200)$. So $x'=(-0.4161,\,0.9093,\,0.9998,\,0.0200)$.
#
# **Positions are an argument.** They may be any real numbers, need not start at 0, and may differ from sequence to sequence.
#
# **Precision.** Compute the angles in float32 at least, even when `x` is bfloat16, and return the dtype of `x`.

# %% [markdown]
# ### Exercise 3.3 · Rotate queries and keys
#
# **6 points · difficulty 3/5 · 40 minutes · code**
#
# *Why it matters:* this function *is* RoPE. An attention layer calls it twice, once for the queries and once for the keys.

# %% nbgrader={"grade_id": "apply_rotary_emb", "solution": true}
def apply_rotary_emb(x, positions, base=10000.0):
    """Rotate every vector of ``x`` for its position: equation (6), interleaved pairs (0,1), (2,3), ...

    x:         (batch, heads, seq_len, head_dim), any floating dtype; an odd head_dim raises ValueError
    positions: (seq_len,) shared by all sequences, or (batch, seq_len); any real numbers, as integers or floats
    base:      float, as in ``rope_frequencies``
    returns:   a new tensor with the shape, dtype and device of x; angles are computed in float32 or better
    """
    ### BEGIN SOLUTION
    frequencies = rope_frequencies(x.shape[-1], base).to(x.device, torch.float64)
    angles = positions.to(x.device, torch.float64)[..., None] * frequencies  # ([batch,] seq_len, head_dim/2)
    if positions.ndim == 2:
        angles = angles[:, None]  # (batch, 1, seq_len, head_dim/2): the same for every head
    precise = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(precise), angles.sin().to(precise)
    even, odd = x[..., 0::2].to(precise), x[..., 1::2].to(precise)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  # pairs side by side
    return turned.flatten(-2).to(x.dtype)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: shapes</summary>
#
# Make a table of angles, one row per position, one column per pair. It must broadcast against `(batch, heads, seq_len, head_dim/2)`. For positions `(batch, seq_len)` one axis of size 1 is missing: which one?
# </details>
#
# <details><summary>Hint 2: taking pairs apart</summary>
#
# `x[..., 0::2]` holds the first channel of every pair, `x[..., 1::2]` the second.
# </details>
#
# <details><summary>Hint 3: putting them together</summary>
#
# Stack the two results along a *new* last axis, then flatten the last two axes. Concatenating would give another layout.
# </details>

# %% nbgrader={"grade_id": "apply_rotary_emb_check", "grade": true, "points": 0}
# Visible check (0 points).
x = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(1))
positions = torch.tensor([4, 0, 9, 2, 7])
before = x.clone()
out = apply_rotary_emb(x, positions)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (2, 3, 5, 8), (
    f"shape (2, 3, 5, 8) expected, got {tuple(out.shape)}: did you put the two channels of each pair back together?")
assert out.dtype == torch.float32, f"x is float32, so the result must be; got {out.dtype}. Cast back at the very end."
assert torch.equal(x, before), "your function changed x itself; work on new tensors."
assert torch.allclose(out[:, :, 1], x[:, :, 1], atol=1e-6), (
    "the token at index 1 stands at position 0: angle 0, nothing may change. Usual causes: positions counted from "
    "the index or from 1 instead of taken from `positions`; channels put back in another order than they were in; "
    "a minus before a cosine.")
assert not torch.allclose(out[:, :, 0], x[:, :, 0], atol=1e-2), (
    "the token at index 0 stands at position 4 and must be turned: use `positions`, not the index.")
assert torch.allclose(out.norm(dim=-1), x.norm(dim=-1), atol=1e-4), (
    "a rotation keeps the length of every vector, yours does not: look at the signs in equation (6).")

one = torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4)
out = apply_rotary_emb(one, torch.tensor([1]))[0, 0, 0]
assert float(out[2:].abs().max()) < 1e-6, (
    "the content of channel 0 leaked into channel 2 or 3: in this layout channel 0 is paired with its neighbour, "
    "channel 1.")
assert float(out[1]) > 0, (
    "(1, 0) at position 1 must turn counter-clockwise, so channel 1 must become positive: your rotation runs "
    "backwards.")

example = apply_rotary_emb(torch.tensor([1.0, 0, 1, 0]).view(1, 1, 1, 4), torch.tensor([2]))[0, 0, 0]
assert torch.allclose(example, torch.tensor([-0.4161, 0.9093, 0.9998, 0.0200]), atol=2e-4), (
    "the example with d = 4 in the text gives something else: compare channel by channel.")

same = apply_rotary_emb(torch.ones(1, 3, 5, 8), positions)
assert torch.allclose(same[:, 0], same[:, 2]), (
    "all heads hold the same vectors here and must get the same angles: the angle follows the sequence axis, not "
    "the head axis.")

rows = torch.tensor([[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]])
out = apply_rotary_emb(x, rows)  # fails on shapes? Angles need an axis of size 1 where x has its heads
assert tuple(out.shape) == (2, 3, 5, 8), (
    f"positions of shape (batch, seq_len) must keep the shape (2, 3, 5, 8), got {tuple(out.shape)}.")
assert torch.allclose(out[1:], apply_rotary_emb(x[1:], rows[1]), atol=1e-5), (
    "with positions (batch, seq_len) every sequence has its own row of positions.")

half = torch.ones(1, 1, 1, 64, dtype=torch.bfloat16)
far = torch.tensor([1001])
out = apply_rotary_emb(half, far)
assert out.dtype == torch.bfloat16, f"x is bfloat16, so the result must be; got {out.dtype}."
assert torch.allclose(out.float(), apply_rotary_emb(half.float(), far), atol=0.05), (
    "at position 1001 the bfloat16 result is off by more than rounding: compute the angles in float32 or float64, "
    "whatever x is.")
assert lab.raises(ValueError, apply_rotary_emb, torch.ones(1, 1, 2, 5), torch.tensor([0, 1])), (
    "five channels cannot be split into pairs: raise ValueError.")
# It computes where its inputs are, on any device.
lab.follows_the_device(apply_rotary_emb, torch.ones(1, 2, 3, 4), torch.arange(3))
lab.follows_the_device(apply_rotary_emb, torch.ones(2, 2, 3, 4), torch.arange(6).view(2, 3))
print("Looks right. The hidden tests add other bases, negative and fractional positions, float16, gradients and more.")

# %% nbgrader={"grade_id": "apply_rotary_emb_tests", "grade": true, "points": 6}
# Hidden tests (6 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.apply_rotary_emb(apply_rotary_emb)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Aside: the same in complex numbers</summary>
#
# Read each pair as a complex number $z_i = x_{2i} + \mathrm i\,x_{2i+1}$. RoPE is $z_i \mapsto z_i\,e^{\mathrm i m\theta_i}$, and the score is the real part of $\sum_i q_i \overline{k_i}\, e^{\mathrm i(m-n)\theta_i}$. Meta's LLaMA code computes it this way (`llama/model.py`).
# </details>

# %% [markdown]
# ### Experiment: does the score see only the offset?
#
# Put one query vector at every position $m$ and one key vector at every position $n$, and look at all scores, once with your rotation and once with week 2's sinusoids *added* to both. (We subtract the mean of each picture: softmax does not see a constant.)

# %% [markdown] tags=["prediction"]
# **Predict.** Walk along a diagonal of the picture, from $(m, n)$ to $(m+1, n+1)$ and so on. Equation (3) says what happens with RoPE. How does the score change with the added sinusoids?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(3)
q, k = torch.randn(2, 1, 1, 1, 32, generator=generator, dtype=torch.float64)
positions = torch.arange(48)
rotary = (apply_rotary_emb(q.expand(1, 1, 48, 32), positions)
          @ apply_rotary_emb(k.expand(1, 1, 48, 32), positions).mT)[0, 0]
phases = torch.outer(positions.double(), rope_frequencies(32).double())
sinusoid = torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(1)
added = (q[0, 0] + sinusoid) @ (k[0, 0] + sinusoid).T

def largest_spread(scores):
    return max(float(scores.diagonal(o).max() - scores.diagonal(o).min()) for o in range(-40, 41))

lab.table(["", "largest spread along any diagonal"],
          [["RoPE", f"{largest_spread(rotary):.4f}"], ["sinusoid added", f"{largest_spread(added):.1f}"]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.4: run this cell
rotary, added = rotary - rotary.mean(), added - added.mean()
fig, axes = lab.figure("One query, one key, all positions", ncols=3, height=3.2)
limit = 1.4 * float(rotary.abs().max())
lab.heatmap(axes[0], rotary, "RoPE", limit, "key position n", "query position m")
image = lab.heatmap(axes[1], added, "sinusoid added", limit, "key position n", "query position m")
fig.colorbar(image, ax=list(axes[:2]), shrink=0.75, extend="both").ax.set_title("score", fontsize=9, loc="left")
offset = 22
for ax in axes[:2]:
    ax.plot([0, 47 - offset], [offset, 47], color=lab.BLACK, linewidth=1, linestyle="--")
axes[2].plot(rotary.diagonal(-offset), color=lab.BLUE, linestyle="-", linewidth=3, label="RoPE")
axes[2].plot(added.diagonal(-offset), color=lab.VERMILLION, linestyle="--", label="sinusoid added")
axes[2].set(title=f"along m = n + {offset}", xlabel="key position n", ylabel="score", ylim=(-9, 6))
axes[2].grid(axis="y")
axes[2].legend(loc="lower right")
plt.show()

# %% [markdown]
# **Figure 3.4. Scores over all positions.** Left: RoPE. Middle: sinusoids added. Right: the dashed diagonal of each. A score that depends on the offset alone keeps its colour along a diagonal.
#
# <details><summary>After you have run it</summary>
#
# With RoPE nothing changes along a diagonal. With added sinusoids the score moves by about 7 along the dashed diagonal, and by up to 14 along others.
# </details>

# %% [markdown]
# ### Experiment: does the score decay with distance?
#
# You will often read that RoPE makes far tokens count less. The RoFormer paper says so (section 3.3) and derives the decay in section 3.4.3 from an *upper bound* that falls with the distance. A bound is not the score. Look at two *equal* vectors, and at two *random* ones.

# %% [markdown] tags=["prediction"]
# **Predict.** For offsets 0 to 256, does the score of the equal pair fall steadily, fall in ripples, or stay flat? What does the typical size (root mean square) of the score of random pairs do?
#
# *Your prediction:*

# %% tags=["experiment"]
offsets = torch.arange(257)
ones = torch.ones(1, 1, 1, 64, dtype=torch.float64)
equal = (apply_rotary_emb(ones.expand(1, 1, 257, 64), offsets) * ones).sum(-1)[0, 0] / 64
draws = torch.randn(2, 400, 1, 1, 64, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
products = (apply_rotary_emb(draws[0].expand(400, 1, 257, 64), offsets) * draws[1]).sum(-1)
typical = products.square().mean(dim=(0, 1)).sqrt() / 8

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.5: run this cell
fig, ax = lab.figure("RoPE score against distance (head_dim 64)", height=3.2)
ax.plot(offsets, equal, color=lab.BLUE, linestyle="-", label="equal vectors (all ones)")
ax.plot(offsets, typical, color=lab.VERMILLION, linestyle="--", label="random vectors (root mean square of 400 pairs)")
ax.set(xlabel="offset m − n (positions)", ylabel="score (1 = without rotation)", ylim=(0, 1.45))
ax.grid(axis="y")
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# **Figure 3.5. Score against distance.** Solid: two equal vectors. Dashed: the typical score of 400 random pairs. Both scores are divided by their size without rotation.
#
# <details><summary>After you have run it</summary>
#
# With all ones the score falls, in ripples. Random vectors show no decay: a rotated random vector is just another random vector. Barbero et al. (2024) argue that decay is unlikely to be why RoPE is useful. Next, watch what they found instead.
# </details>

# %% [markdown]
# ### Experiment: a head that looks exactly three back
#
# By equation (3), every pair contributes one cosine. So the score of a whole head, as a function of the offset $\delta=m-n$, is a **sum of cosines**:
#
# $$s(\delta)=\sum_{i=0}^{d/2-1} A_i\cos(\delta\,\theta_i+\varphi_i),\qquad A_i,\varphi_i\ \text{from the content of } q \text{ and } k. \tag{7}$$
#
# Content sets the height $A_i$ and the phase $\varphi_i$ of each cosine; it cannot touch the frequency. To look three tokens back, choose contents for which all cosines peak at $\delta=3$.

# %% [markdown] tags=["prediction"]
# **Predict.** With $d=16$, all pairs peak at offset 3. Which pairs make the sum fall quickly beside the peak? Pair 0 peaks again after one turn, at 9, and after three, at 22: which pairs hold the sum down there? What do the four slowest pairs add to the scores within 48 positions? Let every pair of $q$ and $k$ have length 1, divide the scores by $\sqrt d$, and multiply the query by a *strength*: what share of the weight does offset 3 get among offsets 0 to 48, at strength 1 and at strength 20?
#
# *Your prediction:*

# %% tags=["experiment"]
lab.moving_score(head_dim=16, base=10000.0, offset=6, back=3)

# %% [markdown]
# **Figure 3.6. A score is a sum of cosines.** One line per pair of a head with 16 channels; each peaks at offset 3. Below are their sum and the weight that softmax gives each key. Move the offset, then turn up the strength of the query.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.7: run this cell
offsets = torch.arange(64)
cosines = ((offsets[:, None] - 3) * rope_frequencies(16).double()).cos()  # (offset, pair)
fig, axes = lab.figure("A head that looks three back: what its pairs contribute", nrows=3, height=4.6, sharex=True, sharey=True)
for ax, name, pairs, colour in zip(axes, ("pair 0 alone", "the fast half: pairs 0 to 3", "the slow half: pairs 4 to 7"),
                                   ([0], [0, 1, 2, 3], [4, 5, 6, 7]), (lab.GREY, lab.BLUE, lab.VERMILLION)):
    mean = cosines[:, pairs].mean(1)
    ax.axvline(3, color=lab.BLACK, linewidth=1, linestyle=":")
    ax.fill_between(offsets, 0, mean, color=colour, alpha=0.2, linewidth=0)
    ax.plot(offsets, mean, color=colour, linestyle="-")
    ax.set(title=name, ylim=(-1, 1.15), xlim=(0, 63), yticks=(-1, 0, 1))
axes[1].set_ylabel("mean of the cosines")
axes[2].set_xlabel("offset m − n (positions); dotted: 3")
plt.show()


# %% [markdown]
# **Figure 3.7. Which pair does what.** The cosines of the same head, averaged over three groups of pairs.
#
# <details><summary>After you have run it</summary>
#
# Pair 0 makes the peak sharp, and comes back after every turn. These returns are its *echoes*. At 9 it is pair 1 that holds the sum down (its cosine is −0.32); at 22 pair 1 is back at 0.96, and pair 2 holds the sum down (−0.32). Neither echo is silenced: three of the four fast clocks agree, and the sum is still 6.4, against 8 at offset 3. Pairs 4 to 7 add nearly the same number to every key, which softmax hardly sees: they are free to carry content.
#
# The right phases are not enough. At strength 1 (Figure 3.6) offset 3 gets 0.04 of the weight, at 20 it gets 0.87. So sharp a head needs long queries and keys, and training has to make them so.
#
# Barbero et al. (2024) found this division of labour in Gemma 7B. The *highest* frequencies build positional heads; the *lowest* are used most, and seem to carry content. Remember **fast pairs for position, slow pairs for content**.
# </details>

# %% [markdown]
# ## 5 · Two layouts, one idea
#
# You may choose which channels form a pair. Two layouts are in use.
#
# | layout | pair $i$ | found in (file) |
# |---|---|---|
# | **interleaved** (neighbours) | channels $2i$ and $2i+1$ | [RoFormer](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/roformer/modeling_roformer.py) and [GPT-J](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gptj/modeling_gptj.py) in `transformers` 5.23; [Meta's LLaMA code](https://github.com/meta-llama/llama/blob/8580eb9a896bdb82d376b7040d18a2e7b402b10f/llama/model.py) |
# | **half-split**, or half layout | channels $i$ and $i+\frac d2$ | [GPT-NeoX](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_neox/modeling_gpt_neox.py) and [LLaMA](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama/modeling_llama.py) in `transformers` 5.23 |
#
# Neither layout is a bug. Let $P$ be the permutation that puts all even channels first, then all odd ones. Then
#
# $$R^{\text{half}}_m\,P\,x = P\,R^{\text{inter}}_m\,x. \tag{8}$$
#
# By (8), a permuted query and key in the half layout have the score $(P R^{\text{inter}}_m q)\cdot(P R^{\text{inter}}_n k)$. A dot product does not care about the order of its terms, so this is the interleaved score. Since $P q = P W_q x$, the permutation can move into the weights for good: reorder the **rows** of $W_q$ and $W_k$, head by head. Values and $W_o$ stay as they are.

# %% [markdown]
# ### Exercise 3.4 · The half layout, and a converter
#
# **5 points (2 + 3) · difficulty 3/5 · 12 + 20 minutes · code**
#
# *Why it matters:* when a checkpoint and the code disagree about the layout, no error tells you.
#
# **First** write the rotation in the half layout. Pair $i$ consists of channels $i$ and $i+\frac d2$, with the same frequency $\theta_i$ as before.

# %% nbgrader={"grade_id": "apply_rotary_emb_half", "solution": true}
def apply_rotary_emb_half(x, positions, base=10000.0):
    """Like ``apply_rotary_emb``, but pair i consists of channels i and i + head_dim/2.

    x:         (batch, heads, seq_len, head_dim), any floating dtype; an odd head_dim raises ValueError
    positions: (seq_len,) or (batch, seq_len); any real numbers, as integers or floats
    base:      float, as in ``rope_frequencies``
    returns:   a new tensor with the shape, dtype and device of x; angles are computed in float32 or better
    """
    ### BEGIN SOLUTION
    frequencies = rope_frequencies(x.shape[-1], base).to(x.device, torch.float64)
    angles = positions.to(x.device, torch.float64)[..., None] * frequencies
    if positions.ndim == 2:
        angles = angles[:, None]
    precise = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(precise), angles.sin().to(precise)
    first, second = x.to(precise).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)
    ### END SOLUTION


# %% nbgrader={"grade_id": "apply_rotary_emb_half_check", "grade": true, "points": 0}
# Visible check (0 points).
x = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(2))
positions = torch.tensor([4, 0, 9, 2, 7])
out = apply_rotary_emb_half(x, positions)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (2, 3, 5, 8), f"shape (2, 3, 5, 8) expected, got {tuple(out.shape)}."
assert out.dtype == torch.float32, f"the dtype of x, float32, is expected, got {out.dtype}."
assert torch.allclose(out[:, :, 1], x[:, :, 1], atol=1e-6), (
    "the token at index 1 stands at position 0 and must not change. Positions counted from 1? Sine and cosine swapped? "
    "Are the channels put back as they were, all first ones, then all second ones?")
assert torch.allclose(out.norm(dim=-1), x.norm(dim=-1), atol=1e-4), (
    "a rotation keeps the length of every vector, yours does not: look at the signs, and let channels i and "
    "i + head_dim/2 turn by the same angle.")
one = torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4)
out = apply_rotary_emb_half(one, torch.tensor([1]))[0, 0, 0]
assert float(out[1].abs()) < 1e-6, (
    "channel 0 leaked into channel 1: in the half layout its partner is channel 0 + head_dim/2.")
assert float(out[2]) > 0.5, (
    "channel 0 at position 1 turns by one radian towards channel 2, which must become positive.")
one = torch.tensor([0, 1.0, 0, 0]).view(1, 1, 1, 4)
out = apply_rotary_emb_half(one, torch.tensor([1]))[0, 0, 0]
assert abs(float(out[3]) - 0.01) < 1e-4, (
    "channel 1 belongs to pair 1 and turns by 0.01 radian towards channel 3: are your frequencies in the order of the "
    "half layout?")
rows = torch.tensor([[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]])
assert torch.allclose(apply_rotary_emb_half(x, rows)[1:], apply_rotary_emb_half(x[1:], rows[1]), atol=1e-5), (
    "positions (batch, seq_len): every sequence has its own row.")
# It computes where its inputs are, on any device.
lab.follows_the_device(apply_rotary_emb_half, torch.ones(1, 2, 3, 4), torch.arange(3))
lab.follows_the_device(apply_rotary_emb_half, torch.ones(2, 2, 3, 4), torch.arange(6).view(2, 3))
print("Looks right. The hidden tests try all that 3.3 asks, in this layout.")

# %% nbgrader={"grade_id": "apply_rotary_emb_half_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.apply_rotary_emb_half(apply_rotary_emb_half)
### END HIDDEN TESTS

# %% [markdown]
# **Then** write the converter. `weight` belongs to a projection of queries or keys, as `nn.Linear` stores it: one row per output channel, head after head. It was trained for the interleaved layout. Return it with the rows of *each head* reordered, evens first, then odds, so that code in the half layout computes the same scores.

# %% nbgrader={"grade_id": "interleaved_to_half", "solution": true}
def interleaved_to_half(weight, n_heads):
    """Reorder the rows of a query or key projection from the interleaved to the half layout, head by head.

    weight:  (n_heads * head_dim, d_model), trained for ``apply_rotary_emb``; an odd head_dim, or a number of rows
             that n_heads does not divide, raises ValueError
    returns: a new tensor of the same shape and dtype, for ``apply_rotary_emb_half``; gradients flow back to weight.
             (For head_dim 2 no row moves: there a view of weight will do.)
    """
    ### BEGIN SOLUTION
    head_dim, left_over = divmod(weight.shape[0], n_heads)
    if left_over or head_dim % 2:
        raise ValueError(f"{weight.shape[0]} rows are not {n_heads} heads of an even size")
    channels = torch.arange(head_dim, device=weight.device)
    order = torch.cat((channels[0::2], channels[1::2]))  # evens, then odds
    per_head = weight.unflatten(0, (n_heads, head_dim))  # (n_heads, head_dim, d_model)
    return per_head[:, order].flatten(0, 1)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: the converter, one head</summary>
#
# For six channels the new order of the rows is 0, 2, 4, 1, 3, 5. Write it as an index, or see the rows as a little table of (pair, member) and swap its axes.
# </details>
#
# <details><summary>Hint 2: the converter, all heads</summary>
#
# Give the heads an axis of their own first, reorder along the next axis, and fold the two axes back into one.
# </details>

# %% nbgrader={"grade_id": "interleaved_to_half_check", "grade": true, "points": 0}
# Visible check (0 points). The weight of two heads of six channels; row r holds the number r in all five columns.
numbered = torch.arange(12.0).view(12, 1).expand(12, 5).clone()
out = interleaved_to_half(numbered, 2)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (12, 5), (
    f"shape (12, 5) expected, got {tuple(out.shape)}: only the order of the rows changes.")
order = out[:, 0].round().long().tolist()
assert sorted(order) == list(range(12)), "every row must appear once, whole: rows are reordered, never lost or mixed."
assert all(r < 6 for r in order[:6]), (
    f"rows 6 to 11 belong to head 1 and must stay there; your order is {order}: reorder inside each head.")
assert order != list(range(12)), "the rows come out in their old order: reorder rows, that is, along axis 0."
assert order[:6] == [r - 6 for r in order[6:]], "all heads are reordered in the same way."

# The claim that matters: converted weights in the half layout give the scores of the originals, interleaved.
generator = torch.Generator().manual_seed(5)
tokens = torch.randn(7, 5, generator=generator, dtype=torch.float64)
w_q = torch.randn(12, 5, generator=generator, dtype=torch.float64)
w_k = torch.randn(12, 5, generator=generator, dtype=torch.float64)

def scores(rotate, w_q, w_k):
    q = (tokens @ w_q.T).view(1, 7, 2, 6).transpose(1, 2)  # (batch, heads, seq_len, head_dim)
    k = (tokens @ w_k.T).view(1, 7, 2, 6).transpose(1, 2)
    return rotate(q, torch.arange(7)) @ rotate(k, torch.arange(7)).mT

trained = scores(apply_rotary_emb, w_q, w_k)
converted = scores(apply_rotary_emb_half, interleaved_to_half(w_q, 2), interleaved_to_half(w_k, 2))
assert torch.allclose(trained, converted, atol=1e-4), (
    "the converted weights in the half layout give other scores than the originals in the interleaved one. "
    f"If both rotations pass their checks, look at the rows of head 0: yours come in the order {order[:6]}; the "
    "exercise asks for evens first, then odds.")

# It computes where its inputs are, on any device.
lab.follows_the_device(interleaved_to_half, numbered, 2)
print("Looks right. The hidden tests try other numbers of heads and look at the gradient.")

# %% nbgrader={"grade_id": "interleaved_to_half_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.interleaved_to_half(interleaved_to_half)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: what happens when layouts are mixed
#
# Slide one query and one key, five positions apart, along the text. Rotate both interleaved, then both half-split, then the query interleaved and the key half-split, as if only one of the two calls had been changed.

# %% [markdown] tags=["prediction"]
# **Predict.** In which of the three cases does the score stay constant? Will the two pure layouts give the *same* constant for the same two vectors?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(7)
q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64).expand(2, 1, 1, 61, 8)
start = torch.arange(61)
sliding = {name: (rotate_q(q, start + 5) * rotate_k(k, start)).sum(-1)[0, 0]
           for name, rotate_q, rotate_k in [("interleaved", apply_rotary_emb, apply_rotary_emb),
                                            ("half-split", apply_rotary_emb_half, apply_rotary_emb_half),
                                            ("mixed", apply_rotary_emb, apply_rotary_emb_half)]}

# The quieter accident: both projections in one layout, but not the one used in training.
words, query_weight, key_weight = torch.randn(3, 16, 16, generator=generator, dtype=torch.float64)  # 2 heads of 8

def all_scores(rotate, *weights):
    q, k = (rotate((words @ w.T).view(1, 16, 2, 8).transpose(1, 2), torch.arange(16)) for w in weights)
    return q @ k.mT

meant = all_scores(apply_rotary_emb, query_weight, key_weight)
loaded = all_scores(apply_rotary_emb_half, query_weight, key_weight)
mended = all_scores(apply_rotary_emb_half, interleaved_to_half(query_weight, 2), interleaved_to_half(key_weight, 2))
lab.table(["trained interleaved, run in half-split code", "error of the scores, relative to their size"],
          [["weights as they are", f"{float((loaded - meant).norm() / meant.norm()):.2f}"],
           ["weights converted by you", f"{float((mended - meant).norm() / meant.norm()):.2f}"]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.8: run this cell
neighbours, halves = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]
pairings = {"interleaved": (neighbours, neighbours), "half-split": (halves, halves), "mixed": (neighbours, halves)}
fig, axes = lab.figure("Which channels turn together, and what it does to the score", nrows=2, ncols=3, height=4.8)
for (upper, lower), (name, (q_pairs, k_pairs)) in zip(axes.T, pairings.items()):
    for pairs, up, who in [(q_pairs, 1, "query"), (k_pairs, -1, "key")]:
        for pair, (a, b) in enumerate(pairs):
            t = np.linspace(0, np.pi, 40)
            upper.plot((a + b) / 2 + (b - a) / 2 * np.cos(t), up * (0.32 + 0.28 * (b - a) ** 0.7 * np.sin(t)),
                       color=lab.COLOURS[pair], linestyle=lab.LINES[pair])
        upper.text(-0.9, up * 0.95, who, ha="left", va="center", fontsize=9)
    for channel in range(8):
        upper.text(channel, 0, channel, ha="center", va="center", fontsize=9,
                   bbox={"boxstyle": "circle,pad=0.25", "facecolor": "#F2F2F2", "edgecolor": "#888888"})
    upper.set(title=f"{name}: pairs of channels", xlim=(-1, 7.6), ylim=(-1.35, 1.35))
    upper.axis("off")
    lower.plot(start, sliding[name], color=lab.BLACK, linestyle="-")
    lower.set(title="score at m = n + 5", xlabel="key position n", ylim=(-6.5, 6.5))
    lower.grid(axis="y")
axes[1, 0].set_ylabel("score")
plt.show()

# %% [markdown]
# **Figure 3.8. The layouts.** Above: arcs join the channels that turn together, on top for the query, below for the key, one colour and line style per pair. Below: the score of one query and one key at a constant offset.
#
# <details><summary>After you have run it</summary>
#
# Both pure layouts give a flat line, at *different* heights. In the mixed case the score depends on absolute positions. The table shows the quieter accident: weights trained for one layout and run in code for the other. The scores depend on the offset alone, and are wrong until you convert the weights.
# </details>

# %% [markdown]
# ## 6 · Why it works for the whole head
#
# Equation (3) was for one pair and used angles. For a whole head, matrices are shorter. You need three facts:
#
# - $R(\varphi)^{\top} = R(-\varphi)$: the transpose turns back;
# - $R(\varphi)\,R(\psi)=R(\varphi+\psi)$: turning twice adds the angles;
# - $\langle A u, B v\rangle = u^{\top}A^{\top}B\,v$.

# %% [markdown] nbgrader={"grade_id": "relative_proof_question", "locked": true}
# ### Exercise 3.5 · The proof
#
# **3 points · difficulty 3/5 · 35 minutes · text, graded by a person**
#
# *Why it matters:* a plot shows some positions; a proof covers all.
#
# Let $q, k\in\mathbb R^d$ be a query and a key before rotation, $R_m$ the block-diagonal matrix of equation (5), and $s(m,n)=\langle R_m q, R_n k\rangle$.
#
# 1. Show for **one pair** that $R(a)^\top R(b)=R(b-a)$. Justify each of the first two facts above in one line; equation (2) defines $R$.
# 2. Conclude for the **whole head** that $s(m,n)$ depends on $m$ and $n$ only through $m-n$. Say where you use that $R_m$ is block-diagonal.
# 3. Someone rotates queries with base 10,000 and keys with base 500,000. Which step of your proof fails? Show with one concrete case that the score now depends on more than $m-n$.
#
# Eight to fifteen lines are enough. Formulas may be LaTeX or plain text.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. 1 point: $R(a)^\top=R(-a)$ with a reason (cosine is even, sine is odd; or: the transpose of a rotation is its inverse), then angles add with a reason (two turns in a row; or the addition theorems): $R(-a)R(b)=R(b-a)$. Multiplying out the two 2×2 matrices at once earns the same. Half a point if the facts are used without any reason.
# 2. 1 point: $s(m,n)=q^\top R_m^\top R_n k$; block-diagonal matrices are transposed and multiplied block by block, so $R_m^\top R_n = R_{n-m}$ and $s = q^\top R_{n-m}k$, a function of $q$, $k$ and $n-m$. Half a point if the step from one block to all of them (or the sum over pairs) is missing.
# 3. 1 point: the angles of one pair are $m\theta_i$ and $n\theta'_i$ with $\theta_i\neq\theta'_i$; their difference $n\theta'_i-m\theta_i$ is not a function of $n-m$, so part 1 no longer gives $R((n-m)\theta_i)$. A concrete case, e.g. $m=n$ (offset 0): the angle is $m(\theta'_i-\theta_i)$, zero at $m=0$ and not at $m=1$. Half a point for the failing step without a case. No point for "it is no longer relative" alone. Pair 0 has frequency 1 for every base: an example with pair 0 earns half.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "relative_proof", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. Cosine is even and sine is odd, so $R(-a)$ has the same diagonal as $R(a)$ and the other two entries exchanged: $R(a)^\top=R(-a)$. A turn by $b$ followed by a turn by $-a$ is a turn by $b-a$: $R(-a)R(b)=R(b-a)$. Hence $R(a)^\top R(b)=R(b-a)$.
#
# 2. By the third fact $s(m,n)=q^\top R_m^\top R_n\,k$. Both matrices are block-diagonal with blocks of the same size. Such matrices are transposed and multiplied block by block. The $i$-th block of $R_m^\top R_n$ is therefore $R(m\theta_i)^\top R(n\theta_i)=R((n-m)\theta_i)$ by part 1, which is the $i$-th block of $R_{n-m}$. So $R_m^\top R_n=R_{n-m}$ and
# $$s(m,n)=q^\top R_{n-m}\,k .$$
# $m$ and $n$ appear only as $n-m$, for every $q$ and $k$.
#
# 3. Let $\theta_i$ be the frequencies of the queries and $\theta'_i$ those of the keys. The $i$-th block becomes $R(m\theta_i)^\top R(n\theta'_i)=R(n\theta'_i-m\theta_i)$. The last step fails: $n\theta'_i-m\theta_i$ is a function of $n-m$ only if $\theta_i=\theta'_i$ (set $m=n$). Take $d=4$ and $q=k=(0,0,1,0)$, so only pair 1 counts, with $\theta_1=0.01$ and $\theta'_1=500\,000^{-1/2}\approx0.0014$. At $m=n=0$ the score is $1$. At $m=n=100$ it is $\cos(100\cdot(0.0014-0.01))\approx\cos0.86\approx0.65$. The offset is the same, the score is not.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Use the third fact to write $s(m,n)$ as $q^\top(\dots)k$, and look only at the matrix in the middle.
# </details>
#
# <details><summary>Hint 2</summary>
#
# How do you multiply two block-diagonal matrices with blocks of the same size?
# </details>
#
# <details><summary>Hint 3</summary>
#
# For part 3 keep the offset at 0, that is $m=n$, and let both grow. Choose the pair with care: which one has the same frequency for every base?
# </details>

# %% [markdown]
# <details><summary>Aside: is there any other way? (Linear algebra; open it after 3.5)</summary>
#
# Hardly. Suppose that $f$ is used for queries and keys alike, has $f(x,0)=x$, and satisfies wish (1) for all whole positions.
#
# Set $m=n$ in (1): $\langle f(q,m),f(k,m)\rangle=g(q,k,0)=\langle q,k\rangle$. A map that keeps all dot products is linear and orthogonal, so $f(x,m)=U_mx$. By (1), $U_m^\top U_n$ depends on $n-m$ alone, so $U_m^\top U_n=U_{n-m}$, hence $U_m=(U_1)^m$: *one* orthogonal matrix fixes everything.
#
# In a suitable orthonormal basis $U_1$ is block-diagonal, with rotations in the plane and perhaps a few entries $\pm1$: $U_1=Q\,R\,Q^\top$. Then $\langle U_mq,U_nk\rangle=\langle R^mQ^\top q,\ R^nQ^\top k\rangle$, and $Q^\top$ disappears into $W_q$ and $W_k$. So, reflections aside, wish (1) leads to RoPE, with only the frequencies left to choose.
# </details>

# %% [markdown]
# ### Experiment: which test would you trust?
#
# You can test a RoPE function by its properties: it keeps lengths, position 0 changes nothing, and a shift of both positions leaves the score alone. Here are four functions that break the contract of 3.3, each made from yours by one small change. The last column checks a *golden value*: $x=(0,0,1,0)$ at position 1 must give $(0,\,0,\,\cos 0.01,\,\sin 0.01)$.

# %% [markdown] tags=["prediction"]
# **Predict.** The four: turning backwards; base 100; the half layout; positions counted from 1. How many of them have all three properties?
#
# *Your prediction:*

# %% tags=["experiment"]
candidates = {
    "your apply_rotary_emb": apply_rotary_emb,
    "turning backwards": lambda x, p: apply_rotary_emb(x, -p),
    "base 100": lambda x, p: apply_rotary_emb(x, p, base=100.0),
    "half layout": apply_rotary_emb_half,
    "positions from 1": lambda x, p: apply_rotary_emb(x, p + 1),
}
u, v = torch.randn(2, 1, 1, 6, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
probe = torch.tensor([0, 0, 1.0, 0], dtype=torch.float64).view(1, 1, 1, 4)
golden = torch.tensor([0, 0, math.cos(0.01), math.sin(0.01)], dtype=torch.float64)

def verdicts(rotate):
    at = torch.arange(6)
    score = lambda shift: rotate(u, at + shift) @ rotate(v, at + shift).mT
    close = lambda one, other: torch.allclose(one, other, atol=1e-3)  # room for angles in float32, up to position 100
    results = [close(rotate(u, at).norm(dim=-1), u.norm(dim=-1)),
               close(rotate(u, 0 * at), u),
               close(score(0), score(100)),
               close(rotate(probe, torch.tensor([1]))[0, 0, 0], golden)]
    return ["yes" if passed else "NO" for passed in results]

lab.table(["", "keeps length", "0 is identity", "shift changes nothing", "golden value"],
          [[name, *verdicts(rotate)] for name, rotate in candidates.items()])


# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Three of the four have every property. All four fail the golden value. Test against numbers first, then against properties.
# </details>

# %% [markdown]
# ## 7 · Into the attention layer
#
# This is one layer:
#
# ```text
# x ─┬─ q_proj ─ split into heads ─ rotate for m ─┐
#    ├─ k_proj ─ split into heads ─ rotate for n ─┴─ scores ─ mask ─ softmax ─┐
#    └─ v_proj ─ split into heads ────────────────────────────────────────────┴─ weighted sum ─ merge heads ─ o_proj
# ```
#
# **Heads are consecutive blocks.** The first `head_dim` channels of a projection belong to head 0, the next `head_dim` to head 1, and so on.
#
# **Rotate after the split.** Every head needs all frequencies. If you rotate before the split, head 0 gets only fast clocks, and the last head only slow ones.
#
# **Rotate queries and keys, never values.** Suppose you rotated values too. A head would then return $\sum_n a_{mn} R_n v_n$. Move all positions on by $s$: the weights $a_{mn}$ stay, yet the output turns by $R_s$. So the absolute position reaches the layers above.
#
# **Store nothing.** RoPE has no parameters. If the frequencies lie in a *buffer*, a tensor that belongs to the layer without being trained, then `.to(torch.bfloat16)` rounds them (section 8).

# %% [markdown]
# ### Exercise 3.6 · Rotary multi-head attention
#
# **5 points · difficulty 3/5 · 40 minutes · code**
#
# *Why it matters:* apart from speed, this is the attention layer of the first LLaMA models (Touvron et al., 2023).
#
# Scores are scaled by $1/\sqrt{\texttt{head\_dim}}$ as always. With `is_causal=True` a token attends to itself and to tokens with a smaller **index**, whatever the positions say: positions may be shifted, repeated or shuffled. You may use `F.scaled_dot_product_attention`.

# %% nbgrader={"grade_id": "RotaryMultiHeadAttention", "solution": true}
class RotaryMultiHeadAttention(nn.Module):
    """Multi-head self-attention with rotary position embeddings (interleaved pairs).

    d_model: width of the model; ValueError, at the latest in the first call, if n_heads does not divide it or if
             head_dim = d_model / n_heads is odd
    n_heads: number of heads
    base:    base of the frequencies

    Four projections without bias, q_proj, k_proj, v_proj, o_proj, each nn.Linear(d_model, d_model). The state_dict
    has no other key, and ``.to(torch.bfloat16)`` does not change the angles.
    """

    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads or (d_model // n_heads) % 2:
            raise ValueError(f"d_model {d_model} does not give {n_heads} heads of an even size")
        self.n_heads, self.base = n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        ### END SOLUTION

    def forward(self, x, positions=None, is_causal=False):
        """x: (batch, seq_len, d_model); positions: (seq_len,) or (batch, seq_len), by default 0, 1, 2, ...
        is_causal: whether the token at index i attends to the indices 0 ... i only, whatever the positions are

        returns: (batch, seq_len, d_model), in the dtype of x
        """
        ### BEGIN SOLUTION
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
        # (batch, seq_len, d_model) -> (batch, heads, seq_len, head_dim)
        q, k, v = (project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        q = apply_rotary_emb(q, positions, self.base)
        k = apply_rotary_emb(k, positions, self.base)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))
        ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: heads</summary>
#
# First split the last axis into two, `(n_heads, head_dim)`; then bring the heads to axis 1. On the way back, undo both in the opposite order.
# </details>
#
# <details><summary>Hint 2: angles that survive a cast</summary>
#
# Store the number `base` and no tensor. Your function of 3.3 computes the angles afresh, in high precision, at each call.
# </details>
#
# <details><summary>Hint 3: the causal mask</summary>
#
# There are as many queries as keys, so a lower-triangular mask over the *indices* is right, and so is `is_causal` of PyTorch's function.
# </details>

# %% nbgrader={"grade_id": "RotaryMultiHeadAttention_check", "grade": true, "points": 0}
# Visible check (0 points).
torch.manual_seed(0)
layer = RotaryMultiHeadAttention(16, 4)
weights = layer.state_dict()
wanted = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"}
assert set(weights) == wanted, (
    f"the state_dict must hold {sorted(wanted)}; yours holds {sorted(weights)}: no biases, no saved tables, these "
    "names.")
x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(9))
at = torch.arange(6)
with torch.no_grad():
    out = layer(x)
    lab.must_be_a_tensor(out)
    assert tuple(out.shape) == (2, 6, 16), f"shape (2, 6, 16) expected, got {tuple(out.shape)}."

    alone = layer(x[:, :1], positions=torch.tensor([5]))
    assert torch.allclose(alone, x[:, :1] @ weights["v_proj.weight"].mT @ weights["o_proj.weight"].mT, atol=1e-5), (
        "a single token attends to itself alone, so the output is o_proj(v_proj(x)) at every position. "
        "Yours differs. If your 3.3 passes its check: are the values rotated, or the heads split in one way and merged "
        "in another?")

    assert torch.allclose(out, layer(x, positions=at), atol=1e-5), "by default the positions are 0, 1, 2, ..."
    assert torch.allclose(out, layer(x, positions=at + 50), atol=1e-3), (
        "only offsets may matter: shifting all positions by 50 changed the output.")
    assert not torch.allclose(out, layer(x, positions=torch.tensor([0, 4, 1, 9, 2, 20])), atol=1e-3), (
        "other offsets must change the output: is `positions` used?")

    # Let the heads change places, each with all its weights. Every head has the same frequencies: nothing may change.
    moved = {name: weights[name].roll(4, dims=0) for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight")}
    moved["o_proj.weight"] = weights["o_proj.weight"].roll(4, dims=1)
    exchanged = RotaryMultiHeadAttention(16, 4)
    exchanged.load_state_dict(moved)
    assert torch.allclose(out, exchanged(x), atol=1e-5), (
        "the heads changed places, each with all its weights, and the output changed: do you rotate before the split "
        "into heads? Are the heads consecutive blocks of head_dim channels?")

    # On paper: all weights are the identity, but queries keep the odd channels only. Token 0 is (1, 0, 1, 0) in both heads,
    # token 1 is (0, 1, 0, 1): its score is -sin 1 - sin 0.01 = -0.851 with token 0 and 2 with itself, both divided by sqrt(4).
    by_hand = RotaryMultiHeadAttention(8, 2)
    by_hand.load_state_dict({name: torch.eye(8) for name in wanted} | {"q_proj.weight": torch.diag(torch.tensor([0.0, 1] * 4))})
    seen = by_hand(torch.tensor([[[1.0, 0, 1, 0] * 2, [0.0, 1, 0, 1] * 2]]))[0, 1]
    assert torch.allclose(seen, torch.tensor([0.194, 0.806] * 4), atol=2e-3), (
        f"on paper token 1 gives token 0 the weight 0.194 and itself 0.806; yours gives {float(seen[0]):.3f} and "
        f"{float(seen[1]):.3f}. If your 3.3 passes its check: does it turn both, and are the scores divided by sqrt(head_dim)?")

    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.allclose(out[:, order], layer(x[:, order], positions=order), atol=1e-5), (
        "tokens that carry their positions with them must get the same outputs in any order. (is_causal is False here: "
        "do you mask anyway?)")

    causal = layer(x, positions=order, is_causal=True)
    assert torch.allclose(causal[:, :4], layer(x[:, :4], positions=order[:4], is_causal=True), atol=1e-5), (
        "is_causal: tokens with a larger index must not influence earlier outputs. (The positions are shuffled "
        "here: the mask goes by index.)")
    assert not torch.allclose(causal[:, 0], layer(x, positions=order)[:, 0], atol=1e-4), "is_causal changed nothing."

    low = layer.to(torch.bfloat16)
    assert low(x.to(torch.bfloat16)).dtype == torch.bfloat16, "after .to(torch.bfloat16) the output must be bfloat16."
assert lab.raises(ValueError, lambda d_model, n_heads: RotaryMultiHeadAttention(d_model, n_heads)(torch.ones(1, 3, 16)), 16, 3), (
    "3 heads do not divide a width of 16: raise ValueError, at the latest in the first call.")
# It computes where its inputs are, on any device.
lab.follows_the_device(lambda x: RotaryMultiHeadAttention(16, 2).to("simulated")(x), torch.ones(1, 3, 16))
lab.follows_the_device(lambda x: RotaryMultiHeadAttention(16, 2).to("simulated")(x, is_causal=True), torch.ones(1, 3, 16))
lab.follows_the_device(lambda x, positions: RotaryMultiHeadAttention(16, 2).to("simulated")(x, positions=positions),
                       torch.ones(1, 3, 16), torch.arange(3))
print("Looks right. The hidden tests compare values, also per batch, far out, and in bfloat16.")

# %% nbgrader={"grade_id": "RotaryMultiHeadAttention_tests", "grade": true, "points": 5}
# Hidden tests (5 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.RotaryMultiHeadAttention(RotaryMultiHeadAttention)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: a task that needs positions
#
# This is week 2's task: at each position, name the token **three positions back**. Your layer, with its causal mask, sits between an embedding and a linear read-out. This model is trained twice on texts of 32 tokens: with positions 0, 1, 2, …, and with *all positions 0*, that is, without any encoding.

# %% [markdown] tags=["prediction"]
# **Predict.** (a) Guessing gives 1/8. What will the model without positions reach? (b) What does the RoPE model reach with all positions shifted by 1,000? (c) What does it reach on texts of 256 tokens?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains two small models; budget: 10 seconds.
class LookBack(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.read = nn.Embedding(8, 32), RotaryMultiHeadAttention(32, 2), nn.Linear(32, 8)

    def forward(self, tokens, positions):
        return self.read(self.attention(self.embed(tokens), positions, is_causal=True))

def texts(batch, length, generator):
    tokens = torch.randint(0, 8, (batch, length), generator=generator)
    return tokens, tokens.roll(3, dims=1)  # the answer at a position is the token three back

def train(position_of, steps=150, seed=0):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, losses = LookBack(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens, answers = texts(32, 32, generator)
        loss = F.cross_entropy(model(tokens, position_of(32))[:, 3:].flatten(0, 1), answers[:, 3:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses

@torch.no_grad()
def correct(model, positions):
    tokens, answers = texts(256, len(positions), torch.Generator().manual_seed(1))
    return (model(tokens, positions).argmax(-1) == answers)[:, 3:].float()  # (texts, positions)

look_back, losses = train(torch.arange)
nowhere = lambda n: torch.zeros(n)  # every token at position 0
without, losses_without = train(nowhere)
shifted = [[f"{float(correct(model, position_of(32) + shift).mean()):.1f}" for shift in (0, 1000)]
           for model, position_of in [(look_back, torch.arange), (without, nowhere)]]
lab.table(["accuracy on 32 tokens", "as trained", "all positions + 1,000"],
          [["RoPE", *shifted[0]], ["no positions", *shifted[1]]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.9: run this cell
fig, (left, right) = lab.figure("Name the token three positions back", ncols=2, height=3.4, width_ratios=(2, 3))
for name, model, loss, position_of, colour, style in [
        ("RoPE", look_back, losses, torch.arange, lab.BLUE, "-"),
        ("no positions", without, losses_without, nowhere, lab.VERMILLION, "--")]:
    left.plot(loss, color=colour, linestyle=style, label=name)
    right.plot(range(3, 256), correct(model, position_of(256)).mean(0), color=colour, linestyle=style, linewidth=1.5,
               label=name)
left.axhline(math.log(8), color=lab.GREY, linewidth=1, linestyle=":")
left.text(149, math.log(8) + 0.04, "blind guess: ln 8", ha="right", fontsize=9, color="#444444")
left.set(title="training, 32 tokens", xlabel="step", ylabel="loss (nats)", ylim=(-0.05, 2.45))
left.legend(loc="center right")
right.axhline(1 / 8, color=lab.GREY, linewidth=1, linestyle=":")
right.text(36, 0.03, "dotted: blind guess, 1/8", fontsize=9, color="#444444")
right.axvline(31, color=lab.GREY, linewidth=1, linestyle="--")
right.text(35, 1.04, "beyond the training length", fontsize=9, color="#444444")
right.set(title="test, 256 tokens: accuracy at each position", xlabel="position in the text (tokens)",
          ylabel="accuracy", ylim=(0, 1.15))
right.legend(loc="center right")
plt.show()

# %% [markdown]
# **Figure 3.9. Looking back three positions.** Left: the training loss of the two models. Right: their accuracy along texts eight times as long, each position tested on 256 texts.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Over six training seeds:
#
# - (a) Without positions the model can only count tokens and read its own, and reaches 0.27 to 0.28.
# - (b) A shift costs nothing.
# - (c) In a longer text accuracy soon falls: it is 0.135 to 0.202 at positions 128 to 255. **Relative does not mean extrapolating.** (`experiments/results_weeks34.md`)
# </details>
#
# ### Experiment: new offsets, or more keys?
#
# Beyond the training length two things are new: **offsets** that the model has never met, and **more keys**. Change one at a time, as in week 2, without training. With RoPE this is easier, since the score sees the offset alone.
#
# - **Clip:** count every offset beyond 31 as 31. All keys stay.
# - **Fewer keys:** show each query 32 keys, the right one and 31 random others, at their true offsets.

# %% [markdown] tags=["prediction"]
# **Predict** the accuracy at positions 64 to 255. (Figure 3.9 shows the entry at the bottom right.) What does a *window* of the latest 32 keys, at true offsets, give? And at which sizes do a clip and a window stop working?
#
# | | 32 keys | all keys |
# |---|---|---|
# | offsets clipped at 31 | | |
# | true offsets | | |
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# For the next cell: run this cell
far_texts, far_answers = texts(64, 256, torch.Generator().manual_seed(1))
offsets = torch.arange(256)[:, None] - torch.arange(256)
causal = offsets >= 0

@torch.no_grad()
def accuracy_far_out(model, reach, visible):
    """Accuracy at positions 64 to 255 with every offset beyond the reach counted as the reach, and only some keys visible."""
    layer, x = model.attention, model.embed(far_texts)
    q, k, v = (project(x).view(64, 256, 2, 16).transpose(1, 2)
               for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    scores = apply_rotary_emb(q, torch.arange(256)) @ apply_rotary_emb(k, torch.arange(256)).mT
    at_reach = apply_rotary_emb(q, torch.full((256,), reach)) @ k.mT  # queries at position `reach`, keys at 0: every offset is `reach`
    scores = torch.where(offsets > reach, at_reach, scores) / 4
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    answer = model.read(layer.o_proj((weights @ v).transpose(1, 2).flatten(2))).argmax(-1)
    return f"{float((answer == far_answers)[:, 64:].float().mean()):.2f}"

luck = torch.rand(64, 1, 256, 256, generator=torch.Generator().manual_seed(5)).masked_fill(~causal, -1).masked_fill(offsets == 3, 2)
drawn = torch.zeros(luck.shape, dtype=torch.bool).scatter(-1, luck.topk(32).indices, True) & causal

# %% tags=["experiment"]
lab.table(["one training seed", "32 keys", "all keys"],
          [[name, *(accuracy_far_out(look_back, reach, visible) for visible in (drawn, causal))]
           for name, reach in (("offsets clipped at 31", 31), ("true offsets", 255))])
print()
sizes = (3, 7, 15, 31, 47, 63, 127)
lab.table(["no offset beyond", *sizes],
          [["clip: all keys", *(accuracy_far_out(look_back, size, causal) for size in sizes)],
           ["window: the nearer keys only", *(accuracy_far_out(look_back, 255, causal & (offsets <= size)) for size in sizes)]])

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Over six training seeds, mean (lowest to highest):
#
# | | 32 keys | all keys |
# |---|---|---|
# | offsets clipped at 31 | 1.00 | 0.99 (0.95 to 1.00) |
# | true offsets | 0.50 (0.32 to 0.70) | 0.22 (0.14 to 0.30) |
#
# **New offsets** do the damage, and more keys make it worse: they cost 0.01 at familiar offsets and some 0.28 at new ones. A window of 32 keys gives 1.00, and one of 40 hardly less: not every new offset harms. One of 48 gives 0.59 (0.41 to 0.84). A window, unlike a clip, may end at the offset of the task: the latest 4 keys are enough.
#
# A clip must be a little larger than the offset of the task: at 5, 7, 11, 15, 23 and 31 the mean is at least 0.99. At 4 it is 0.69 (0.46 to 0.89). At 3 it is 0.14, since every farther key looks like the right one. And each seed has offsets that a clip must miss: at 9 and 22 the mean is 0.93 and 0.85, at 35 0.78 (0.50 to 1.00), at 41 0.14, at 47 0.18; at 39 it is 1.00. The next experiment shows why. (`experiments/results_distances.md`.)
#
# Week 5 turns this test into a method, and asks what it costs.
# </details>

# %% [markdown]
# ### Experiment: what the head thinks of far tokens
#
# What does the head see at an offset it has never met? The tokens are random, so only its offset tells the head whether a key is the right one. Take the *mean* query and the *mean* key over the alphabet, and move them apart. (A score is linear in the query and in the key, and different tokens are drawn independently. So the score of the means is the mean score, except at offset 0.)

# %% [markdown] tags=["prediction"]
# **Predict.** The head has learned to give offset 3 the highest score. At which other offsets might a key look almost as good? Which of these could training on 32 tokens rule out?
#
# *Your prediction:*

# %% tags=["experiment"]
state = look_back.state_dict()
mean_token = state["embed.weight"].mean(0)
mean_q, mean_k = ((state[f"attention.{name}.weight"] @ mean_token).view(1, 2, 1, 16) for name in ("q_proj", "k_proj"))
far = torch.arange(129)
liking = (apply_rotary_emb(mean_q.expand(1, 2, 129, 16), far) * mean_k).sum(-1)[0] / 4  # / sqrt(head_dim)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.10: run this cell
fig, axes = lab.figure("What the two heads think of a key, by its offset alone", nrows=2, height=5, sharex=True)
for head, ax in enumerate(axes):
    curve = liking[head] - liking[head].mean()
    ax.axvspan(0, 31, color="#EEEEEE", zorder=0)
    ax.axhline(float(curve[3]), color=lab.GREY, linewidth=1, linestyle="--", label="score at offset 3")
    ax.plot(far, curve, color=lab.BLUE, linestyle="-", linewidth=1.6)
    turns = (3 + 2 * math.pi * torch.arange(5, 20)).round().int()  # beyond training, whole turns of pair 0 after 3
    ax.plot(turns, curve[turns], color=lab.VERMILLION, linestyle="none", marker="o", markersize=6,
            label="3 + whole turns of pair 0")
    ax.plot(3, float(curve[3]), color=lab.GREEN, linestyle="none", marker="D", markersize=8, label="offset 3")
    ax.set(title=f"head {head}", ylabel="mean score", ylim=(-19, 21))
axes[0].text(17, -17.5, "met in training", ha="center", fontsize=9, color="#444444")
axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
axes[1].set(xlabel="offset m − n (positions)", xlim=(-1, 128))
plt.show()

# %% [markdown]
# **Figure 3.10. Echoes.** Mean score of a key, by offset. Diamond and dashed line: offset 3, the right answer. Dots: offset 3 plus whole turns of pair 0, beyond training. Grey: the offsets of training.
#
# <details><summary>After you have run it</summary>
#
# Beyond training the high peaks are at the dots: on the clock of pair 0 these keys look like the right one. Within the grey range, training has taught the slower clocks to hold the echoes down.
#
# Take the five highest far peaks of each of twelve heads, from six training seeds. All 60 (on another machine 59) lie within half a position of 3 plus whole turns, and in nine of the twelve heads the peak at 122 is higher than offset 3 itself. So "slow pairs see unseen angles" is half of the story: the *fast* pair makes the echo, and slower ones fail to silence it. Week 5 asks which pairs to repair.
# </details>

# %% [markdown]
# ## 8 · Too few bits
#
# Most large models run in bfloat16. Its numbers have **8 significant bits**: 7 are stored, and a leading 1 is not (Kalamkar et al., 2019). Eight bits are enough to train large networks, but not for positions.
#
# **A toy.** Take *three* significant bits: a binary number of three digits times a power of two. Up to $2^3=8$ the toy holds every integer. From 8 to 16 there are only four steps, 2 wide; from 16 to 32 they are 4 wide. Every other number is rounded to the nearest of these values. What is left of the positions 0 … 31?
#
# | from | values the toy can hold | how many new ones |
# |---|---|---|
# | 0 … 8 | all | 9 |
# | above 8, up to 16 | 10, 12, 14, 16 | 4 |
# | above 16, up to 32 | 20, 24, 28, 32 | 4 |
#
# Position 31 is rounded up to 32, so the last value counts too. 17 distinct values are left of the 32 positions, and 9 is the first integer the toy cannot hold. (Halfway cases go to the neighbour whose last bit is 0.)

# %% [markdown]
# ### Exercise 3.7 · Positions in bfloat16
#
# **2 points (1 + 1) · difficulty 2/5 · 12 + 12 minutes · numbers and text**
#
# *Why it matters:* the one line `model.to(torch.bfloat16)` can ruin RoPE without a warning.
#
# Do the same for bfloat16, with its eight significant bits. How many distinct values are left of the positions 0, 1, …, 4095, and which is the first positive integer that bfloat16 cannot hold? Work it out on paper; both numbers must be exact.

# %% tags=["by-hand"] nbgrader={"grade_id": "bfloat16_positions", "solution": true}
# Replace every None by a whole number.
bfloat16_positions = {
    "distinct": None,  # how many different values the positions 0..4095 have in bfloat16
    "first_collision": None,  # the first positive integer that bfloat16 cannot hold
}
### BEGIN SOLUTION
bfloat16_positions |= {
    "distinct": 769,  # 0..256 are 257 values; then 128 new ones up to each of 512, 1024, 2048, 4096
    "first_collision": 257,  # 2**8 + 1 needs nine significant bits
}
### END SOLUTION

# %% nbgrader={"grade_id": "bfloat16_positions_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
for key, value in lab.must_be_numbers(bfloat16_positions, "distinct", "first_collision").items():
    assert value == int(value), f"{key!r} counts something: a whole number is expected, got {value}."
print("Two whole numbers. The hidden tests ask for the exact ones.")

# %% nbgrader={"grade_id": "bfloat16_positions_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.bfloat16_positions(bfloat16_positions)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "bfloat16_explained_question", "locked": true}
# **Explain.** A model keeps its RoPE frequencies as a buffer. `model.to(torch.bfloat16)` rounds them, and the code then multiplies them by positions that are bfloat16 too. A colleague proposes to call `.float()` on the product before taking cosine and sine. In three to six sentences: why does this not help, why does the damage grow with the position, and how large an error, in radians, can rounding the product alone cause in an angle near 4,000?
#
# ### BEGIN MARK SCHEME
# 1 point in all; half points are allowed.
#
# - Half a point: what rounding has removed, a later `.float()` cannot bring back; the error of the angle grows with the position, because 8 significant bits mean a *relative* error (up to 1/256), and the angle is proportional to the position; or: beyond 256 neighbouring positions become the same number.
# - Half a point: an error of up to 8 radians, half the step of 16 between neighbours. A larger bound that names the roundings it counts earns the same: a rounded frequency or position can cost up to 4,000/256, almost 16.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "bfloat16_explained", "grade": true, "solution": true, "points": 1}
# ### BEGIN SOLUTION
# A cast to float32 adds digits, but not the information that is gone: the frequencies and the positions were rounded before. bfloat16 has eight significant bits, so rounding makes a relative error of up to $2^{-8}$ in each (257 becomes 256). The angle is proportional to the position, and so is its error. Beyond 256, neighbouring positions even become the same number. Near 4,000 the numbers of bfloat16 are 16 apart, so rounding the product alone costs up to 8 radians, more than a full turn; a rounded frequency or position can cost up to 4,000/256, almost 16.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1 (numbers)</summary>
#
# Between $2^p$ and $2^{p+1}$ the toy always has $2^2=4$ steps. How many does bfloat16 have?
# </details>
#
# <details><summary>Hint 2 (numbers)</summary>
#
# Add up: all integers from 0 to $2^8$, then the new values up to each next power of two. The last power of two is reached by rounding up.
# </details>
#
# <details><summary>Hint 3 (text)</summary>
#
# Distinguish an error *relative to the number* from an error in radians. Which of the two does cosine see?
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** For `head_dim` 128 and positions up to 4095, how large is the worst error of a cosine if only the *frequencies* are rounded to bfloat16? How large is it if only the *cosines* are? (No error can exceed 2.)
#
# *Your prediction:*

# %% [markdown]
# ### Live: someone casts the model
#
# The usual way to write RoPE keeps the frequencies in a buffer of the layer. `forward` is careful and computes in float32. Then someone casts the model.

# %% tags=["experiment"]
class RotaryBuffer(nn.Module):
    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", rope_frequencies(head_dim, base).float(), persistent=False)

    def forward(self, positions):
        return (positions.float()[:, None] * self.inv_freq.float()).cos()

at = torch.arange(4096)
truth = torch.outer(at.double(), rope_frequencies(128).double()).cos()
rotary = RotaryBuffer(128)
before = float((rotary(at) - truth).abs().max())
after = float((rotary.to(torch.bfloat16)(at) - truth).abs().max())
lab.table(["worst error of a cosine, positions 0 to 4095", "error"],
          [["the layer as built", f"{before:.3f}"], ["after .to(torch.bfloat16)", f"{after:.3f}"]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 3.11: run this cell
exact = rope_frequencies(128).double()
rounded = lambda t: t.to(torch.bfloat16).double()
ways = [
    ("positions and frequencies in bfloat16", torch.outer(rounded(at), rounded(exact)).cos(), lab.VERMILLION, "-"),
    ("frequencies in bfloat16", torch.outer(at.double(), rounded(exact)).cos(), lab.ORANGE, "--"),
    ("cosines in bfloat16, angles in float32", rounded(torch.outer(at.float(), exact.float()).cos()), lab.GREEN, "-."),
    ("all in float32", torch.outer(at.float(), exact.float()).cos().double(), lab.BLUE, ":"),
]
fig, ax = lab.figure("Worst error of a cosine so far (head_dim 128)", height=3.6)
rows = []
for name, cosines, colour, style in ways:
    worst = (cosines - truth).abs().amax(1)
    ax.loglog(at[1:], worst.cummax(0).values[1:].clamp(min=1e-9), color=colour, linestyle=style, label=name)
    rows.append([name, f"{float(worst[4095]):.3f}", f"{float(worst.max()):.3f}"])
ax.axhline(2, color=lab.GREY, linewidth=1, linestyle="-", zorder=1)
ax.text(1.1, 2.6, "2: opposite direction", fontsize=9, color="#444444")
ax.set(xlabel="position", ylabel="error of the cosine, largest over all pairs", ylim=(1e-8, 30), xlim=(1, 4096))
ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
ax.grid(axis="y")
ax.legend(loc="lower right")
plt.show()
lab.table(["largest error over all pairs", "at position 4095", "positions 0 to 4095"], rows)


# %% [markdown]
# **Figure 3.11. Where you may round.** Each line is the largest error up to a position, over all 64 pairs. At error 2, "same direction" has become "opposite".
#
# <details><summary>After you have run it</summary>
#
# With rounded frequencies the error grows in proportion to the position until it cannot grow any more. Only pair 0 stays exact, since its frequency is 1. If you round the positions too, the error jumps at 257. If you round only the finished cosines, you pay a constant 0.002. So: **angles in float32 or better; cast cosine and sine last.**
#
# The bug is on record for GPT-NeoX ([issue 1003](https://github.com/EleutherAI/gpt-neox/issues/1003)) and `transformers` ([issue 25681](https://github.com/huggingface/transformers/issues/25681), [30709](https://github.com/huggingface/transformers/issues/30709)). Today the error depends on how you load. In [`transformers` 5.23](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama/modeling_llama.py), `LlamaModel.from_pretrained(path, dtype=torch.bfloat16)` leaves the buffer in float32, and only cosines and sines are rounded; `.to(torch.bfloat16)` rounds the buffer. NVIDIA's NeMo Automodel rounded LLaMA's frequencies in this way until June 2026 ([pull request 2549](https://github.com/NVIDIA-NeMo/Automodel/pull/2549)). Wang et al. (2024) study another such effect, in training.
# </details>

# %% [markdown]
# ## 9 · Bug hunt
#
# ### Exercise 3.8 · Find three bugs, then repair them
#
# **5 points (2 + 1 + 1 + 1) · difficulty 4/5 · 45 + 25 minutes · code**
#
# *Why it matters:* you will read far more RoPE code than you write, and its bugs raise no error.

# %% [markdown] nbgrader={"grade_id": "bug_hunt", "locked": true}
# The file below serves two families of checkpoints. It promises three functions, for any dtype and any length:
#
# - `rotate_llama(x, positions)` rotates `x` like your 3.4, in the half layout; the result has the dtype of `x` and is exact up to rounding;
# - `prompt_scores(q, k)` gives the unscaled scores of a whole prompt, in the interleaved layout;
# - `decode_step_scores(q, k_cache)` gives the scores of the newest token with all tokens so far, itself included: like those of `prompt_scores` they are unscaled and in the interleaved layout. `q` and `k_cache` arrive unrotated, and the oldest key is at position 0.
#
# Its author tested it in float32 on texts of 16 tokens: there was no error, the shapes were right, nothing changed at position 0, and `prompt_scores` agreed with a public model. The file has **three bugs**.
#
# **First write the test that the author should have written**, before you go on to the repairs. `serving_test` gets the three functions of such a file and says whether they keep their promises. It must accept every correct file, however it is written, and reject the listing and every file with one of the listing's bugs.

# %% tags=["experiment", "listing"]
def rotary_tables(positions, head_dim, dtype=torch.float32, base=10000.0):
    inv_freq = rope_frequencies(head_dim, base).to(positions.device, dtype)
    angles = positions.to(dtype)[:, None] * inv_freq
    return angles.cos(), angles.sin()


def rotate_half(x):
    x1 = x[..., 0::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def rotate_llama(x, positions, base=10000.0):
    cos, sin = rotary_tables(positions, x.shape[-1], x.dtype, base)
    cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    return x * cos + rotate_half(x) * sin


def prompt_scores(q, k, base=10000.0):
    positions = torch.arange(q.shape[-2], device=q.device)
    q = apply_rotary_emb(q, positions, base)
    k = apply_rotary_emb(k, positions, base)
    return q @ k.transpose(-2, -1)


def decode_step_scores(q, k_cache, base=10000.0):
    q_positions = torch.arange(q.shape[-2], device=q.device)
    k_positions = torch.arange(k_cache.shape[-2], device=q.device)
    q = apply_rotary_emb(q, q_positions, base)
    k = apply_rotary_emb(k_cache, k_positions, base)
    return q @ k.transpose(-2, -1)


# %% nbgrader={"grade_id": "serving_test", "solution": true}
def serving_test(rotate_llama, prompt_scores, decode_step_scores):
    """Whether the three functions of a serving file keep their promises.

    rotate_llama:       (x, positions), positions (seq_len,), head_dim even -> the shape and dtype of x
    prompt_scores:      (q, k), both (batch, heads, seq_len, head_dim) -> (batch, heads, seq_len, seq_len)
    decode_step_scores: (q, k_cache), (batch, heads, 1, head_dim) and (batch, heads, n_keys, head_dim), none of them rotated
                        -> (batch, heads, 1, n_keys)
    returns:            True or False. Leave room for rounding: up to position 10,000 and with entries of order 1, allow 0.01
                        in float32 and float64, and 0.1 for rotate_llama in half precision; try the score functions in
                        float32 only. Keep tensors small, below 100,000 numbers.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, 20, 16, generator=generator)
    far = 150 * torch.arange(20)
    for dtype, allowed in ((torch.float32, 0.01), (torch.bfloat16, 0.1)):
        x = q.to(dtype)
        if (rotate_llama(x, far).float() - apply_rotary_emb_half(x.float(), far)).abs().max() > allowed:
            return False
    near = torch.arange(20)
    scores = apply_rotary_emb(q, near) @ apply_rotary_emb(k, near).mT
    whole, step = prompt_scores(q, k), decode_step_scores(q[:, :, -1:], k)
    return bool((whole - scores).abs().max() < 0.01 and (step - scores[:, :, -1:]).abs().max() < 0.01)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: what users complain about</summary>
#
# "LLaMA weights write nonsense." "In bfloat16 it gets worse the longer the document is." "The loss on a given text is fine, but generated text falls apart."
# </details>
#
# <details><summary>Hint 2: which of the author's tests could not fail</summary>
#
# At position 0 every sine is zero. In float32 a cast to `dtype` does nothing. A whole prompt has as many queries as keys.
# </details>
#
# <details><summary>Hint 3: where to look</summary>
#
# Take $x=(1,0,0,0)$ in `rotate_llama`: which other channel has the frequency of channel 0? In which dtype does each line of `rotary_tables` compute? What is `q.shape[-2]` when a single token is decoded?
# </details>

# %% nbgrader={"grade_id": "serving_test_check", "grade": true, "points": 0}
# Visible check (0 points). It does not try the listing: do that in the next cell.
def in_pairs(x, positions, halves):
    """The rotation of 3.3 or of 3.4, in float64."""
    angles = positions.double()[:, None] * 10000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1]).double()
    a, b = x.double().chunk(2, dim=-1) if halves else (x[..., 0::2].double(), x[..., 1::2].double())
    pair = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return (torch.cat(pair, -1) if halves else torch.stack(pair, -1).flatten(-2)).to(x.dtype)

def right_prompt(q, k, base=10000.0):
    at = torch.arange(q.shape[-2])
    return in_pairs(q, at, False) @ in_pairs(k, at, False).mT

right_file = (lambda x, positions, base=10000.0: in_pairs(x, positions, True), right_prompt,
              lambda q, k, base=10000.0: right_prompt(torch.cat((k[..., :-1, :], q), dim=-2), k)[..., -1:, :])
passed = serving_test(*right_file)
assert isinstance(passed, bool), f"return True or False, not a {type(passed).__name__}."
assert passed, (
    "your test refuses a right file. If your 3.3 and 3.4 pass their checks: it asks for something that was not promised, "
    "or it allows for no rounding.")
unturned = (lambda x, positions, base=10000.0: x.clone(), right_prompt, lambda q, k, base=10000.0: q @ k.mT)
assert serving_test(*unturned) is False, "your test passes a file in which only prompt_scores rotates anything."
print("Looks right. The hidden tests take other right files, the listing, and files with one bug each.")

# %% nbgrader={"grade_id": "serving_test_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.serving_test(serving_test)
### END HIDDEN TESTS

# %% tags=["experiment"]
print("The file passes your test (it must not):", serving_test(rotate_llama, prompt_scores, decode_step_scores))


# %% [markdown]
# **Now repair the three bugs.** `rotate_half`, `rotary_tables` and `decode_step_scores` have one each; you have to find the line. Write them anew below. Keep names, arguments and layouts. `apply_rotary_emb` and `rope_frequencies` are yours, from 3.3 and 3.2. The repaired functions replace the old ones, so the last cell of this section can test the whole file again.

# %% nbgrader={"grade_id": "rotate_half", "solution": true}
def rotate_half(x):
    """What ``rotate_llama`` multiplies by the sines.

    x:       (..., head_dim), with any number of axes before the last; head_dim is even
    returns: a new tensor of the same shape and dtype
    """
    ### BEGIN SOLUTION
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "rotate_half_check", "grade": true, "points": 0}
# Visible check (0 points).
x = torch.tensor([1.0, 0, 0, 0, 0, 0])
out = rotate_half(x)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (6,), f"shape (6,) expected, got {tuple(out.shape)}."
assert float(out.abs().sum()) == 1, "a quarter turn sends one axis to one other axis."
assert float(out[0]) == 0, "after a quarter turn nothing is left in channel 0."
assert float(out[1]) == 0, (
    "channel 0 went to its neighbour, channel 1: that is the interleaved layout, but the tables are in the half "
    "layout.")
assert float(out[3].abs()) == 1, (
    f"with 6 channels, channel 0 changes places with channel 3; yours went to channel {int(out.abs().argmax())}.")
assert float(out[3]) == 1, "a quarter turn sends (1, 0) to (0, 1): channel 3 must become 1, yours becomes -1."
x = torch.randn(3, 6, generator=torch.Generator().manual_seed(10))
before = x.clone()
quarter = rotate_half(x)
assert torch.equal(x, before), "your function changed x itself; work on a new tensor."
assert torch.allclose(rotate_half(quarter), -x), (
    "two quarter turns are half a turn: rotate_half(rotate_half(x)) must be -x. Does each channel change places "
    "with its partner i ± head_dim/2, and one of the two change its sign?")
# It computes where its inputs are, on any device.
lab.follows_the_device(rotate_half, x)
print("Looks right. The hidden tests try other shapes and dtypes.")

# %% nbgrader={"grade_id": "rotate_half_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.rotate_half(rotate_half)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rotary_tables", "solution": true}
def rotary_tables(positions, head_dim, dtype=torch.float32, base=10000.0):
    """Cosines and sines of all angles.

    positions: (seq_len,), any real numbers, as integers or floats
    head_dim:  even int
    dtype:     of the two tables, any floating one; entries are exact up to its rounding and that of float32 angles
    base:      float, as in ``rope_frequencies``
    returns:   (cos, sin), each (seq_len, head_dim/2) in dtype, on the device of positions; new tensors on each call
    """
    ### BEGIN SOLUTION
    frequencies = rope_frequencies(head_dim, base).to(positions.device, torch.float64)
    angles = positions.to(torch.float64)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)  # the cast comes last
    ### END SOLUTION


# %% nbgrader={"grade_id": "rotary_tables_check", "grade": true, "points": 0}
# Visible check (0 points).
far = torch.tensor([0, 1, 300, 3001])
cos, sin = rotary_tables(far, 64)
assert tuple(cos.shape) == (4, 32) and tuple(sin.shape) == (4, 32), (
    f"shape (4, 32) expected for both, got {tuple(cos.shape)} and {tuple(sin.shape)}.")
assert float((cos[0] - 1).abs().max()) == 0 and float(sin[0].abs().max()) == 0, (
    "at position 0 every cosine is 1 and every sine 0.")
assert float((cos**2 + sin**2 - 1).abs().max()) < 1e-5, "cos² + sin² must be 1."
assert abs(float(cos[3, 1]) - 0.4957) < 2e-3 and abs(float(sin[3, 1]) - 0.8685) < 2e-3, (
    "at position 3001 the angle of pair 1 is 3001 * 10000**(-2/64) = 2250.43 radians: cosine 0.4957, sine 0.8685; yours are "
    f"{float(cos[3, 1]):.4f} and {float(sin[3, 1]):.4f}.")
low_cos, low_sin = rotary_tables(far, 64, dtype=torch.bfloat16)
assert low_cos.dtype == torch.bfloat16 and low_sin.dtype == torch.bfloat16, (
    f"with dtype=torch.bfloat16 both tables must be bfloat16, got {low_cos.dtype} and {low_sin.dtype}.")
worst = max(float((low_cos.float() - cos).abs().max()), float((low_sin.float() - sin).abs().max()))
assert worst < 0.01, (
    f"in bfloat16 an entry is off by {worst:.2g}; rounding a cosine explains 0.002. Something was rounded before the "
    "cosine was taken.")
# It computes where its inputs are, on any device.
lab.follows_the_device(rotary_tables, far, 64)
print("Looks right. The hidden tests go farther out and try other bases.")

# %% nbgrader={"grade_id": "rotary_tables_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.rotary_tables(rotary_tables)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "decode_step_scores", "solution": true}
def decode_step_scores(q, k_cache, base=10000.0):
    """Unscaled scores of the newest token with all tokens so far, interleaved layout.

    q:       (batch, heads, 1, head_dim), of the newest token, not rotated
    k_cache: (batch, heads, n_keys, head_dim), of all tokens so far, the newest included, not rotated
    base:    float, as in ``rope_frequencies``
    returns: (batch, heads, 1, n_keys), in the dtype of q
    """
    ### BEGIN SOLUTION
    positions = torch.arange(k_cache.shape[-2], device=q.device)
    newest = positions[-1:]  # the query belongs to the end of the text, not to position 0
    return apply_rotary_emb(q, newest, base) @ apply_rotary_emb(k_cache, positions, base).mT
    ### END SOLUTION


# %% nbgrader={"grade_id": "decode_step_scores_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(11)
q, k_cache = torch.randn(2, 3, 1, 8, generator=generator), torch.randn(2, 3, 5, 8, generator=generator)
out = decode_step_scores(q, k_cache)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (2, 3, 1, 5), f"shape (2, 3, 1, 5) expected, got {tuple(out.shape)}: one query, five keys."
assert out.dtype == torch.float32, f"the dtype of q, float32, is expected, got {out.dtype}."
plain = (q * k_cache[..., -1:, :]).sum(-1)
assert torch.allclose(out[..., -1], plain, atol=1e-4), (
    "the newest key stands at the query's own position: offset 0, so this score must be the plain, unscaled dot "
    "product. At which position is your query? Are the keys rotated too?")
first = (q * k_cache[..., :1, :]).sum(-1)
assert not torch.allclose(out[..., 0], first, atol=1e-3), (
    "the oldest key is four positions away, so this score must differ from the plain dot product: are both rotated?")
# On paper: the query (0, 1, 0, 1) at position 1 and the key (1, 0, 1, 0) at position 0 give -sin 1 - sin 0.01.
pair = torch.tensor([[1.0, 0, 1, 0], [0.0, 1, 0, 1]]).view(1, 1, 2, 4)
paper = float(decode_step_scores(pair[:, :, 1:], pair)[0, 0, 0, 0])
assert abs(paper + 0.851) < 2e-3, (
    "on paper the query (0, 1, 0, 1) and the key (1, 0, 1, 0) one position before it have the score -0.851; yours is "
    f"{paper:.3f}. If your 3.3 passes its check: is each one turned by its own position, and is this the interleaved layout?")
# It computes where its inputs are, on any device.
lab.follows_the_device(decode_step_scores, q, k_cache)
print("Looks right. The hidden tests compare all scores, also for a cache with a single key.")

# %% nbgrader={"grade_id": "decode_step_scores_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.decode_step_scores(decode_step_scores)
### END HIDDEN TESTS

# %% tags=["experiment"]
print("The repaired file passes your test (it must):", serving_test(rotate_llama, prompt_scores, decode_step_scores))


# %% [markdown]
# ## 10 · A head of your own
#
# You have watched a head that looks three back (Figure 3.6) and read a trained one (Figure 3.10). Now build your own.
#
# ### Exercise 3.9 · A head that looks back
#
# **2 points · difficulty 3/5 · 25 minutes · code**
#
# *Why it matters:* if you can build a head, you can also read one.
#
# All `n_keys` keys of a text have the same content `k`, and the query of the last token has the content `q`. Choose both vectors such that, after the rotation of 3.3 and the division by $\sqrt d$, softmax gives the token `back` positions before the query **at least 0.8** of the weight.

# %% nbgrader={"grade_id": "look_back_head", "solution": true}
def look_back_head(back, head_dim, n_keys):
    """Contents of a query and of all keys with which a head looks exactly ``back`` tokens back (base 10,000).

    back:     int, 1 <= back < n_keys
    head_dim: even int, 8 or more
    n_keys:   int, at most 1,000; the query stands at position n_keys - 1, the keys at 0 ... n_keys - 1
    returns:  (q, k), two floating tensors (head_dim,), not yet rotated, interleaved pairs
    """
    ### BEGIN SOLUTION
    q = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(head_dim // 2)  # every pair is (1, 0)
    k = apply_rotary_emb(q.view(1, 1, 1, -1), torch.tensor([back]))[0, 0, 0]  # the same, turned by back positions: all cosines peak at back
    scores = ((torch.arange(n_keys)[:, None] - back) * rope_frequencies(head_dim).double()).cos().sum(1) / math.sqrt(head_dim)
    strength = 1.0
    while (strength * scores).softmax(0)[back] < 0.9:
        strength *= 2
    return strength * q, k
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: the phases</summary>
#
# Let every pair of $q$ be $(1,0)$. Which content of the key makes all cosines of equation (7) peak at `back`? At the offset `back` the query is turned by `back` positions more than the key.
# </details>
#
# <details><summary>Hint 2: the strength</summary>
#
# Compute the scores at the offsets 0 to `n_keys - 1`. Double the length of $q$, ten times at most, until the weight at `back` suffices. (If it never does, a phase is wrong.)
# </details>

# %% nbgrader={"grade_id": "look_back_head_check", "grade": true, "points": 0}
# Visible check (0 points). It computes the scores by itself: the sum over the pairs of Re(q conj(k) e^(i offset theta)).
for back, head_dim, n_keys in ((3, 16, 64), (1, 16, 64), (12, 16, 64), (5, 64, 20), (5, 8, 1000)):
    pair = look_back_head(back, head_dim, n_keys)
    assert isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(part, torch.Tensor) for part in pair), (
        "return two tensors, (q, k).")
    assert all(tuple(part.shape) == (head_dim,) for part in pair), f"for head_dim {head_dim} both vectors have {head_dim} numbers."
    complex_q, complex_k = (torch.complex(part[0::2].double(), part[1::2].double()) for part in pair)
    angles = torch.arange(n_keys)[:, None] * 10000 ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    scores = (complex_q * complex_k.conj() * torch.polar(torch.ones_like(angles), angles)).real.sum(1) / math.sqrt(head_dim)
    favourite, weight = int(scores.argmax()), float(scores.softmax(0)[back])
    assert weight == weight, "a number in your vectors is not finite."
    assert favourite == back, f"back {back}, head_dim {head_dim}, {n_keys} keys: your head looks {favourite} back. Are all phases right?"
    assert weight >= 0.8, (
        f"back {back}, head_dim {head_dim}, {n_keys} keys: your head looks at the right token, but with a weight of {weight:.2f} "
        "only. Is q long enough, does k turn the right way, and do all pairs take part?")
print("Looks right. The hidden tests try other distances, sizes and lengths.")

# %% nbgrader={"grade_id": "look_back_head_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week3
week3.look_back_head(look_back_head)
### END HIDDEN TESTS

# %% [markdown]
# ## 11 · In the wild
#
# Open `transformers` 5.23: [`modeling_llama.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama/modeling_llama.py) and [`core_model_loading.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/core_model_loading.py).
#
# | there | yours | look for |
# |---|---|---|
# | class `LlamaRotaryEmbedding` | 3.2 and `RotaryBuffer` | Where does the base come from? In which dtype are the angles computed, and what is cast last? |
# | function `rotate_half` | 3.8 | Which layout is it? |
# | function `apply_rotary_pos_emb` | 3.4 | Why does it take `cos` and `sin`, and no positions? |
# | class `PermuteForRope`, in the second file | `interleaved_to_half` | One `view`, one `transpose`, one `reshape`: which axis is which? |
#
# <details><summary>Answers</summary>
#
# - The base is `config.rope_parameters["rope_theta"]` (`config.rope_theta` of older code raises an error). Angles are float32; cosine and sine are cast last, to the dtype of `x`.
# - `rotate_half` pairs halves.
# - `LlamaModel.forward` computes cosine and sine once per forward pass, and all layers share them.
# - The view is (heads, pairs, 2, width): pair by pair, first and second row. The transpose makes it (heads, 2, pairs, width), all first rows and then all second ones.
# </details>
#
# **Back to the first question.** Yes: a layer can be blind to where a text stands and still see every offset. But it does not know offsets that it has never met. You can clip them, as you did here. The next two weeks look for other ways.

# %% [markdown]
# ## 12 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Is RoPE an absolute or a relative encoding?</summary>
#
# Both. Each vector is rotated by its absolute position. The effect on the score is purely relative.
# </details>
#
# <details><summary>2. What does RoPE cost, and what does the base do?</summary>
#
# RoPE has no parameters. It costs four products per pair and vector, for q and k, in every layer. A larger base slows all pairs but the first, and the last one most.
# </details>
#
# <details><summary>3. You load a public checkpoint. Shapes fit, no error, the text is nonsense. What do you suspect?</summary>
#
# First the layout, then the base, then a rotation that covers only part of the head, as in GPT-NeoX-20B (Black et al., 2022).
# </details>
#
# <details><summary>4. Should a KV cache hold keys before or after the rotation?</summary>
#
# Rotated keys are cheaper: a key's rotation never changes. Keys before the rotation are handier when positions or frequencies change later, as with some methods of week 5. (Rotated ones can be turned further, or back.) Either way the query gets the position of the newest token.
# </details>
#
# <details><summary>5. A batch is padded on the left. What must you change?</summary>
#
# Only the mask, which must hide the padding. The offsets between real tokens stay, and RoPE sees nothing else. Prompt and decoding must use the same positions (week 7).
# </details>
#
# <details><summary>6. Where do you rotate in grouped-query attention?</summary>
#
# After the split into heads. With grouped keys it is cheaper to rotate before they are repeated (with `repeat_interleave`); the result is the same.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | RoPE comes from EleutherAI | It comes from Su et al., in the RoFormer paper. EleutherAI's GPT-NeoX-20B uses it. | RoFormer; Black et al. |
# | `rotate_half` turns $(x_1,x_2,x_3,x_4)$ into $(-x_2,x_1,-x_4,x_3)$, next to tables in halves | That is the interleaved form. Next to tables in halves it is a bug. | 3.8 |
# | The half layout is a bug | It is the interleaved layout under a fixed permutation of the channels, and W_q and W_k can absorb it. | 3.4 |
# | LLaMA uses the half layout | It depends on the code: Meta's pairs neighbours, `transformers` pairs halves, on weights with reordered rows. | sections 5, 11 |
# | Beyond the training length the high frequencies see unseen angles | The *low* ones do. But the echoes come from the highest. | Figures 3.3, 3.10 |
# | RoPE makes distant tokens count less | A bound falls; the score itself need not. | Figure 3.5 |
# | Casting the model to bfloat16 only adds a little noise | If the frequencies are cast too, cosines are off by up to 2 within 4,096 positions. | Figure 3.11 |
#
# ## Takeaways
#
# 1. A position is a rotation; a score sees the difference of two rotations.
# 2. A score is a sum of cosines: fast pairs make it sharp, slow pairs are free for content.
# 3. Say which layout you mean, and test against numbers.
# 4. Relative does not mean extrapolating. Week 4 takes another road, ALiBi; week 5 compares the two.
#
# ## References
#
# - J. Su, Y. Lu, S. Pan, A. Murtadha, B. Wen, Y. Liu: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021, arXiv:2104.09864. Section 3.2 (the method), 3.3 (its properties, among them decay), 3.4.2 (how to compute it), 3.4.3 (the bound).
# - A. Vaswani et al.: *Attention Is All You Need*, 2017, arXiv:1706.03762. Section 3.5 (the sinusoids whose frequencies RoPE uses).
# - H. Touvron et al.: *LLaMA: Open and Efficient Foundation Language Models*, 2023, arXiv:2302.13971. Section 2.2 (RoPE in every layer instead of absolute embeddings).
# - S. Black et al.: *GPT-NeoX-20B: An Open-Source Autoregressive Language Model*, 2022, arXiv:2204.06745 (rotation of the first quarter of the channels).
# - B. Rozière et al.: *Code Llama: Open Foundation Models for Code*, 2023, arXiv:2308.12950 (base $10^6$ in long-context fine-tuning).
# - F. Barbero, A. Vitvitskyi, C. Perivolaropoulos, R. Pascanu, P. Veličković: *Round and Round We Go! What makes Rotary Positional Encodings useful?*, 2024, arXiv:2410.06205 (abstract: decay is unlikely to be the core reason; high frequencies build positional patterns, low ones are preferred and carry content).
# - D. Kalamkar et al.: *A Study of BFLOAT16 for Deep Learning Training*, 2019, arXiv:1905.12322.
# - H. Wang et al.: *When Precision Meets Position: BFloat16 Breaks Down RoPE in Long-Context Training*, 2024, arXiv:2411.13476.
# - Code: transformers 5.23.0 ([`modeling_llama.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama/modeling_llama.py), [`core_model_loading.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/core_model_loading.py)) and its [pull request 29285](https://github.com/huggingface/transformers/pull/29285) (precision); EleutherAI/gpt-neox, [pull request 1041](https://github.com/EleutherAI/gpt-neox/pull/1041) (precision); [meta-llama/llama](https://github.com/meta-llama/llama/blob/8580eb9a896bdb82d376b7040d18a2e7b402b10f/llama/model.py), `llama/model.py` (neighbouring channels as complex numbers).
