# %% [markdown]
# # Week 4 · Attention with linear biases (ALiBi)
#
# **The week in one sentence.** Leave the tokens alone, and subtract from every score a penalty that grows with the distance: no encoding, no parameters, and the model runs on texts longer than it was trained on.
#
# ## What you will be able to do
#
# - compute an attention row with a linear bias by hand, and read a slope as a half-life;
# - write the slopes for *any* number of heads, in the order that published checkpoints expect;
# - build the bias for training and for one decoding step, and say when the shortcut in public code is the same thing;
# - build an attention layer with it that works in float64, float32, bfloat16 and float16;
# - say how far each head can see, what a layer with ALiBi can do on longer texts, and what it cannot do at all;
# - show why the two-sided form confuses a sequence with its reverse.
#
# **You need** weeks 1 and 3: attention, the causal mask, the attention layer of exercise 3.6. Of RoPE you need only the idea.
#
# **Time:** about 140 minutes of exercises and 60 of reading and experiments. The complete notebook runs in well under a minute. Short of time? 4.2, 4.3 and 4.6 are the method; 4.5 is what you will meet in other people's code.
#
# ## The exercises: 25 points
#
# | # | exercise | kind | points for: the visible check | the hidden tests | a person | minutes |
# |---|---|---|---|---|---|---|
# | 4.1 | `slopes_by_hand` | numbers | 0 | 2 | – | 10 |
# | 4.2 | `alibi_slopes` | code | 0 | 3 | – | 15 |
# | 4.3 | `alibi_bias` | code | 0 | 4 | – | 20 |
# | 4.4 | `attention_with_slope` | numbers | 0 | 3 | – | 15 |
# | 4.5 | `per_key_bias_is_equivalent` | code | 0 | 2 | – | 10 |
# | 4.5 | `per_key_explained` | text | – | – | 2 | 10 |
# | 4.6 | `ALiBiMultiHeadAttention` | code | 0 | 5 | – | 30 |
# | 4.7 | `effective_window` | code | 0 | 2 | – | 15 |
# | 4.8 | `reversal` | text | – | – | 2 | 15 |
# | | **total** | | **0** | **21** | **4** | **140** |
#
# **How the points are given.** Below each answer stands a *visible check*. It carries **0 points**. Run it as often as you like: it says what is wrong and why. (Of numbers by hand it looks at the form; in 4.4 also at the sums.) The *hidden tests* carry **all** the points of a code or number exercise. They run when your notebook is graded, with other inputs and more cases than the check. A passed check is a good sign, not a mark. The two text answers are read by a person.
#
# **A mistake is paid for once.** 4.3 builds on 4.2, and 4.6 on both. If your slopes or your bias return wrong numbers and the later answer uses them rightly, the later answer gets its points. (It cannot be graded if what it calls raises an error, or if it returns nothing but zeros.)
#
# **Cells marked *predict*** ask you to commit to an answer before you run an experiment. They are not graded. Do them anyway: a wrong prediction is what you will remember.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`. $d$ is the head dimension, $h$ the number of heads.
# - $i$ is the position of a query, $j$ the position of a key, both counted from 0. $|i-j|$ is their distance.
# - A **slope** $m$ is a positive number; the bias is $-m\,|i-j|$, never positive. (The minus sign stands in the bias, not in the slope.)
# - Where there are fewer queries than keys, the queries are the *last* positions, as with a KV cache.
# - Functions without a tensor argument return float32 tensors on the CPU. Functions never change an argument in place.

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
# ## 1 · The idea: a price on distance
#
# Weeks 2 and 3 told the tokens where they stand. RoPE's scores then depend on distance alone, and still the layer of Figure 3.6 failed on long texts: it met distances that it had never seen, and more keys than ever. Could a method do without anything that turns strange beyond the training length?
#
# Press, Smith and Lewis (2022) proposed the simplest one imaginable. Queries and keys carry no position at all. The score is the plain scaled product, minus a price for the distance:
#
# $$s_{ij} = \frac{q_i\cdot k_j}{\sqrt d} - m\,|i-j| . \tag{1}$$
#
# The **slope** $m$ is a fixed number, one for each head; nothing about it is learned. The larger it is, the more a far key must offer to be looked at. In their paper the model is a causal decoder, so $j\le i$ and the distance is $i-j$ (section 3 there); the absolute value covers both sides.
#
# **What the softmax makes of it.** Softmax takes the exponential of every score, and the exponential turns a sum into a product:
#
# $$e^{s_{ij}} = \underbrace{e^{\,q_i\cdot k_j/\sqrt d}}_{\text{content}}\ \cdot\ \underbrace{e^{-m|i-j|}}_{\text{distance}} . \tag{2}$$
#
# So a straight line in the scores is an **exponential decay** in the weights, like a radioactive substance: every $\ln 2/m$ positions the weight of a key is halved. Or the other way round: a key that is $s$ positions farther away wins against its rival if its content score is better by more than $m\,s$.
#
# Two details decide whether code is right. The bias is added **after** the division by $\sqrt d$ and is not scaled itself (footnote 10 of the paper). And it is added **before** the softmax.

# %% [markdown] tags=["prediction"]
# **Predict.** Four slopes: 1/2, 1/8, 1/32, 1/256. After how many positions is a weight halved with each? And which of the four would notice whether a word stands 3 or 5 places back, which would notice whether it stands 300 or 500 places back?
#
# *Your prediction:*

# %% tags=["experiment"]
distance = torch.arange(0, 1025)
fig, (left, right) = lab.figure("What one slope does, by distance", ncols=2, height=3.3)
rows = []
for power, colour, style in zip((1, 3, 5, 8), lab.COLOURS, lab.LINES):
    slope = 2.0**-power
    left.plot(distance, -slope * distance, color=colour, linestyle=style, label=f"m = 1/{2**power}")
    right.plot(distance, torch.exp(-slope * distance), color=colour, linestyle=style)
    rows.append([f"1/{2**power}", f"{math.log(2) / slope:.1f}", *(f"{math.exp(-n * slope):.2f}" for n in (3, 5, 300, 500))])
left.set(title="bias added to the score", xlabel="distance (positions)", ylabel="bias", ylim=(-12, 0.5), xlim=(0, 200))
right.set(title="factor on the weight", xlabel="distance (positions, log scale)", ylabel="factor", xlim=(1, 1024))
right.set_xscale("log", base=2)
right.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
for ax in (left, right):
    ax.grid(axis="y")
left.legend(loc="lower right")
plt.show()
lab.table(["slope", "half-life (positions)", "factor at distance 3", "at 5", "at 300", "at 500"], rows)

# %% [markdown]
# **Figure 4.1. One slope.** Left: the bias is a straight line through zero. Right: the factor it puts on a key's weight, on a logarithmic axis; each curve falls from 1 to almost 0 within a limited range of distances, and outside that range it is flat. So a slope is a *measuring range*. The steep head (blue) tells 3 from 5 and is blind beyond 10; the shallow one (orange, dotted) hardly sees a difference between 3 and 5, but tells 300 from 500. A model needs several.

# %% [markdown]
# ## 2 · The slopes
#
# ### A number of heads that is a power of two
#
# $$m_k = 2^{-8k/h},\qquad k = 1, 2, \dots, h. \tag{3}$$
#
# The slopes form a geometric series. The **first** head has the **largest** slope, $2^{-8/h}$, and is the most local one; the last has $2^{-8}=1/256$ whatever $h$ is. (The formula counts $k$ from 1, code counts heads from 0: head $k-1$ has slope $m_k$.) Four heads: $2^{-2}, 2^{-4}, 2^{-6}, 2^{-8}$.
#
# It is only for $h=8$ that the exponents are 1, 2, 3, …. And the other way round: with the rule "$1/2^k$ for every $h$" a model of 32 heads would have slopes down to $2^{-32}$, which is no slope at all.
#
# ### Any other number of heads
#
# The official code does not put another $h$ into (3). Let $c$ be the largest power of two that is not above $h$. Then
#
# $$\text{slopes}(h) = \text{slopes}(c)\ \text{ followed by every second entry of }\ \text{slopes}(2c), \text{ from its first on, as many as are missing.} \tag{4}$$
#
# **An example.** Six heads: $c=4$. First come the four slopes of four heads, $\frac14, \frac1{16}, \frac1{64}, \frac1{256}$. Two are missing. Eight heads have $\frac12, \frac14, \frac18, \frac1{16}, \dots$; every second one from the first on is $\frac12, \frac18, \dots$. So
#
# $$\text{slopes}(6) = \tfrac14,\ \tfrac1{16},\ \tfrac1{64},\ \tfrac1{256},\ \tfrac12,\ \tfrac18 .$$
#
# The entries of slopes$(2c)$ lie half-way between those of slopes$(c)$, so nothing comes twice. And the result is **not sorted**. Leave it so: head number 4 of a trained model has learned to live with slope $\frac12$.

# %% [markdown]
# ### Exercise 4.1 · Slopes by hand
#
# **2 points · difficulty 1/5 · 10 minutes · numbers**
#
# *Why it matters:* code that is right for 8 heads can be wrong for 12, or for the 112 of BLOOM's largest model. Who has written the twelve down once knows why.
#
# Give some of the slopes of 8 heads and of 12 heads, heads counted from 0. **At least four significant digits.**

# %% tags=["by-hand"] nbgrader={"grade_id": "slopes_by_hand", "solution": true}
# Replace every None by a number, at least four significant digits.
slopes_by_hand = {
    "h8_0": None,  # 8 heads: the first head
    "h8_2": None,  # 8 heads: head 2, the third one
    "h8_7": None,  # 8 heads: the last head
    "h12_0": None,  # 12 heads: the first head
    "h12_7": None,  # 12 heads: head 7
    "h12_8": None,  # 12 heads: head 8
    "h12_9": None,  # 12 heads: head 9
    "h12_11": None,  # 12 heads: the last head
}
### BEGIN SOLUTION
slopes_by_hand |= {
    "h8_0": 0.5,  # 2**-1
    "h8_2": 0.125,  # 2**-3
    "h8_7": 0.00390625,  # 2**-8
    "h12_0": 0.5,  # the first eight are those of 8 heads
    "h12_7": 0.00390625,
    "h12_8": 0.7071068,  # then entries 0, 2, 4, 6 of 16 heads: 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5
    "h12_9": 0.3535534,
    "h12_11": 0.08838835,
}
### END SOLUTION

# %% nbgrader={"grade_id": "slopes_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(slopes_by_hand, dict), "slopes_by_hand must stay a dictionary; fill in its values."
names = ("h8_0", "h8_2", "h8_7", "h12_0", "h12_7", "h12_8", "h12_9", "h12_11")
for key in names:
    assert key in slopes_by_hand, f"the key {key!r} is missing: keep the names of the cell above."
    value = slopes_by_hand[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), (
        f"{key!r} must be a plain number such as 0.0625, not {type(value).__name__}.")
    assert math.isfinite(value), f"{key!r} must be finite, got {value}."
assert len(slopes_by_hand) == len(names), "there are more keys than asked for: remove the others."
print("Eight finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "slopes_by_hand_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.slopes_by_hand(slopes_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# 8 is a power of two: equation (3). What is $8k/h$ for $h=8$?
# </details>
#
# <details><summary>Hint 2</summary>
#
# 12 is none. Which $c$, and how many slopes are missing? Do as in the example with six heads.
# </details>
#
# <details><summary>Hint 3</summary>
#
# You need 16 heads as well. There the exponents $8k/h$ are halves: 0.5, 1, 1.5, ….
# </details>

# %% [markdown]
# ### Exercise 4.2 · Slopes
#
# **3 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* the slopes are all that ALiBi has. A model loaded with others runs without an error and writes nonsense.

# %% nbgrader={"grade_id": "alibi_slopes", "solution": true}
def alibi_slopes(n_heads):
    """One slope per head: equation (3) for powers of two, rule (4) for all other numbers of heads.

    n_heads: int, at least 1
    returns: (n_heads,) float32, all positive; in the official order, which is not sorted for rule (4)
    """
    ### BEGIN SOLUTION
    c = 2 ** (n_heads.bit_length() - 1)  # the largest power of two that is not above n_heads
    slopes = [2.0 ** (-8 * k / c) for k in range(1, c + 1)]
    if c < n_heads:
        finer = [2.0 ** (-8 * k / (2 * c)) for k in range(1, 2 * c + 1)]
        slopes += finer[0::2][: n_heads - c]
    return torch.tensor(slopes)
    ### END SOLUTION


# %% nbgrader={"grade_id": "alibi_slopes_check", "grade": true, "points": 0}
# Visible check (0 points).
four = alibi_slopes(4)
assert tuple(four.shape) == (4,), f"shape (4,) expected for 4 heads, got {tuple(four.shape)}."
assert four.dtype == torch.float32, f"float32 expected, got {four.dtype}."
assert bool((four > 0).all()), "slopes are positive; the minus sign belongs to the bias."
assert float(four[0]) > float(four[3]), (
    "for a power of two the first head has the largest slope and the last one the smallest.")
assert torch.allclose(four, torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])), (
    f"four heads have 1/4, 1/16, 1/64, 1/256; yours start with {float(four[0]):.3g}. The exponent is -8k/h, with k "
    "counted from 1.")
six = alibi_slopes(6)
assert tuple(six.shape) == (6,), f"shape (6,) expected for 6 heads, got {tuple(six.shape)}."
assert torch.allclose(six.sort().values, torch.tensor([1 / 256, 1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2])), (
    "for 6 heads the slopes are the six of the example in the text, by rule (4); yours are "
    f"{[round(float(slope), 4) for slope in six]}.")
assert torch.allclose(six[:4], four), (
    "the first four slopes of 6 heads are those of 4 heads: keep the official order, do not sort.")
assert torch.allclose(six[4:], torch.tensor([1 / 2, 1 / 8])), (
    f"the last two of 6 heads are every other slope of 8 heads, in their order: 1/2, 1/8; yours are {six[4:].tolist()}.")
assert tuple(alibi_slopes(1).shape) == (1,), "one head is a power of two as well: shape (1,)."
print("Looks right. The hidden tests try many other numbers of heads.")

# %% nbgrader={"grade_id": "alibi_slopes_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.alibi_slopes(alibi_slopes)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First write a function for powers of two. Rule (4) calls it twice, for $c$ and for $2c$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The largest power of two not above `n`: `2 ** (n.bit_length() - 1)`, or `2 ** math.floor(math.log2(n))`.
# </details>
#
# <details><summary>Hint 3</summary>
#
# A slice with a step, `entries[0::2]`, takes every second entry from the first on.
# </details>

# %% [markdown]
# ### Experiment: one formula for all?
#
# A popular shortcut uses equation (3) for every number of heads. Compare it with the official rule for 20 heads, and then count for how many numbers of heads from 1 to 64 the two agree.

# %% [markdown] tags=["prediction"]
# **Predict.** (a) For how many of the 64 does the shortcut give other slopes than your function? (b) You sort the official slopes of 20 heads. Does that matter if you train a new model from scratch? If you load a published one?
#
# *Your prediction:*

# %% tags=["experiment"]
def shortcut(n_heads):
    return 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)

official = alibi_slopes(20)
fig, ax = lab.figure("Slopes of 20 heads", height=3.4)
ax.semilogy(official, marker="o", linestyle="none", markersize=8, color=lab.BLUE, label="official rule (your function)")
ax.semilogy(shortcut(20), marker="x", linestyle="none", markersize=8, color=lab.VERMILLION,
            markeredgewidth=2, label="equation (3) with h = 20")
ax.semilogy(official.sort(descending=True).values, marker="_", linestyle="none", markersize=14, color=lab.BLACK,
            label="official slopes, sorted")
ax.axvline(15.5, color=lab.GREY, linewidth=1, linestyle="--")
ax.text(15.35, 1.25, "the four that were missing:", ha="right", fontsize=9, color="#444444")
ax.set(xlabel="head", ylabel="slope (log scale)", ylim=(0.003, 2))
ax.set_xticks(range(20))
ax.grid(axis="y")
ax.legend(loc="lower left")
plt.show()

counts = range(1, 65)
other_slopes = [n for n in counts if not torch.allclose(alibi_slopes(n), shortcut(n))]
not_sorted = [n for n in counts if not torch.equal(alibi_slopes(n), alibi_slopes(n).sort(descending=True).values)]
lab.table(["numbers of heads from 1 to 64", "how many"],
          [["equation (3) gives other slopes", len(other_slopes)], ["the official order is not sorted", len(not_sorted)],
           ["both agree and are sorted (powers of two)", 64 - len(other_slopes)]])


# %% [markdown]
# **Figure 4.2. Slopes of 20 heads.** Circles: the official rule. Left of the dashed line stand the slopes of 16 heads, on the right the four that were missing, every second one of 32 heads; the first of them is the largest of all. Crosses: equation (3) with $h=20$; not one head gets its official slope. Bars: the official slopes sorted, which gives most heads another slope. (a) The table: the shortcut is wrong for all 57 numbers that are no power of two. (b) For a new model the order is a matter of taste, since heads are interchangeable before training. A published model has learned with its order; the code of BLOOM and MPT in `transformers` has the official one.

# %% [markdown]
# ## 3 · The bias
#
# In training there are as many queries as keys, and the bias of a head is a square matrix: zero on the diagonal, $-m$ beside it, $-2m$ next to that. Whether a causal mask comes on top is not the bias's business. Here it is two-sided, $-m\,|i-j|$, and a decoder masks the upper triangle afterwards.
#
# **One decoding step.** With a KV cache there is a single query and, say, five keys. The query is the newest token, so it stands at position 4, not 0. Its bias is $-4m, -3m, -2m, -m, 0$: the **last row** of the square matrix. In general row $r$ of $n_q$ queries and $n_k$ keys stands at
#
# $$i = n_k - n_q + r . \tag{5}$$
#
# Aligned at the top left instead, the newest token would have the farthest key as its neighbour.

# %% [markdown]
# ### Exercise 4.3 · The bias
#
# **4 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* a wrong sign makes a model that prefers far tokens, and it trains without a complaint. PyTorch's own FlexAttention examples had it (attention-gym, pull request 86).

# %% nbgrader={"grade_id": "alibi_bias", "solution": true}
def alibi_bias(n_heads, n_queries, n_keys=None):
    """The bias -slope * |i - j| of every head, without any mask.

    n_keys:  as many as n_queries if None; 1 <= n_queries <= n_keys. The queries are the last positions: equation (5)
    returns: (n_heads, n_queries, n_keys) float32, on the CPU
    """
    ### BEGIN SOLUTION
    if n_keys is None:
        n_keys = n_queries
    keys = torch.arange(n_keys)
    queries = keys[n_keys - n_queries:]  # the last n_queries positions
    distance = (queries[:, None] - keys).abs()  # (n_queries, n_keys)
    return -alibi_slopes(n_heads)[:, None, None] * distance
    ### END SOLUTION


# %% nbgrader={"grade_id": "alibi_bias_check", "grade": true, "points": 0}
# Visible check (0 points).
square = alibi_bias(4, 6)
assert tuple(square.shape) == (4, 6, 6), f"shape (4, 6, 6) expected: (heads, queries, keys), got {tuple(square.shape)}."
assert square.dtype == torch.float32, f"float32 expected, got {square.dtype}."
assert bool(torch.isfinite(square).all()), "all entries must be finite: the mask is not part of the bias."
assert float(square.diagonal(dim1=1, dim2=2).abs().max()) == 0, (
    "on the diagonal the distance is 0, and so is the bias.")
assert torch.equal(square, square.mT), "the distance from i to j is that from j to i: use the absolute value."
assert float(square.max()) <= 0, "the bias takes something away from far keys: it must be negative. Is your sign right?"
slopes = alibi_slopes(4)
assert torch.allclose(square[:, 1, 4], -3 * slopes), (
    "query 1 and key 4 are 3 apart, so head by head the bias is -3 times the slope.")
step = alibi_bias(4, 1, 6)
assert tuple(step.shape) == (4, 1, 6), f"one query and six keys: shape (4, 1, 6) expected, got {tuple(step.shape)}."
assert torch.allclose(step[:, 0], square[:, 5]), (
    "a single query is the newest token: its row must be the LAST row of the square bias. The key beside it, the last "
    "one, has distance 0.")
print("Looks right. The hidden tests try other numbers of heads, queries and keys.")

# %% nbgrader={"grade_id": "alibi_bias_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.alibi_bias(alibi_bias, alibi_slopes)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Make the distances first, as a matrix of shape `(n_queries, n_keys)`: a column of query positions minus a row of key positions.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The query positions are the last `n_queries` of the key positions.
# </details>
#
# <details><summary>Hint 3</summary>
#
# The slopes need two more axes, `[:, None, None]`, to meet the distances.
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** The next figure shows the bias of all eight heads of a layer in one colour scale. In which panels will you see a narrow band, and in which hardly anything at all? Is head 0 the one that looks far, or the one that looks near?
#
# *Your prediction:*

# %% tags=["experiment"]
bias = alibi_bias(8, 128)
fig, axes = lab.figure("The bias of eight heads, 128 tokens", nrows=2, ncols=4, height=4.9, sharex=True, sharey=True)
fig.get_layout_engine().set(h_pad=0.09)
for head, ax in enumerate(axes.flat):
    image = ax.imshow(bias[head], vmin=-8, vmax=0, interpolation="nearest")
    ax.set_title(f"head {head}, slope 1/{round(1 / float(-bias[head, 0, 1]))}")
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
for ax in axes[1]:
    ax.set_xlabel("key position j")
for ax in axes[:, 0]:
    ax.set_ylabel("query position i")
bar = fig.colorbar(image, ax=axes, shrink=0.6, extend="min")
bar.ax.set_title("bias", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# **Figure 4.3. One bias per head.** Yellow: no penalty. Dark blue: a penalty of 8 or more, which leaves a weight less than 1/2,900 of what its content asks for. Head 0 sees a narrow band around the diagonal: it has the *largest* slope and is the most *local*. The band widens from head to head. For the last one all 128 tokens are so near each other that its panel is almost one colour. All panels are zero on the diagonal, constant along every diagonal, and symmetric.

# %% [markdown]
# ## 4 · One row by hand
#
# If all keys have the same content, all content scores are equal, and softmax does not see them. What remains are the factors $e^{-m|i-j|}$, made to sum to 1.
#
# **A worked example.** Take $m=\ln 2$: every position of distance halves the factor. Three tokens, a causal mask, and the query at position 2. The factors of the keys 0, 1, 2 are $\frac14, \frac12, 1$; their sum is $\frac74$. The weights are $\frac17, \frac27, \frac47$. With the values $7, 14, 21$ the output is $\frac17\cdot7+\frac27\cdot14+\frac47\cdot21=17$.

# %% [markdown]
# ### Exercise 4.4 · Attention with one slope
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* who has done one row knows which test to write for the layer.
#
# Four tokens of equal content at positions 0 to 3, one head, slope $m=\frac12$. Their values are $v_0=8$, $v_1=4$, $v_2=2$, $v_3=1$.
#
# 1. With a **causal** mask: the four weights of the query at position 3, and its output.
# 2. **Without** a mask: the four weights of the query at position 1.
#
# **At least four significant digits.**

# %% tags=["by-hand"] nbgrader={"grade_id": "attention_with_slope", "solution": true}
# Replace every None by a number, at least four significant digits.
attention_with_slope = {
    "causal_0": None,  # causal, query at position 3: weight of key 0
    "causal_1": None,  # ... of key 1
    "causal_2": None,  # ... of key 2
    "causal_3": None,  # ... of key 3
    "output": None,  # the sum of weight times value for this query
    "open_0": None,  # no mask, query at position 1: weight of key 0
    "open_1": None,  # ... of key 1
    "open_2": None,  # ... of key 2
    "open_3": None,  # ... of key 3
}
### BEGIN SOLUTION
attention_with_slope |= {
    "causal_0": 0.10154,  # exp(-1.5) = 0.22313, out of 0.22313 + 0.36788 + 0.60653 + 1 = 2.19754
    "causal_1": 0.16741,  # exp(-1)   = 0.36788
    "causal_2": 0.27600,  # exp(-0.5) = 0.60653
    "causal_3": 0.45505,  # 1
    "output": 2.48901,  # 8 * 0.10154 + 4 * 0.16741 + 2 * 0.27600 + 0.45505
    "open_0": 0.23500,  # exp(-0.5) out of 0.60653 + 1 + 0.60653 + 0.36788 = 2.58094
    "open_1": 0.38746,  # 1
    "open_2": 0.23500,  # exp(-0.5): one position after is as far as one before
    "open_3": 0.14254,  # exp(-1)
}
### END SOLUTION

# %% nbgrader={"grade_id": "attention_with_slope_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(attention_with_slope, dict), "attention_with_slope must stay a dictionary; fill in its values."
names = [f"{row}_{key}" for row in ("causal", "open") for key in range(4)] + ["output"]
for key in names:
    assert key in attention_with_slope, f"the key {key!r} is missing: keep the names of the cell above."
    value = attention_with_slope[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), (
        f"{key!r} must be a plain number such as 0.1234, not {type(value).__name__}.")
    assert math.isfinite(value), f"{key!r} must be finite, got {value}."
assert len(attention_with_slope) == len(names), "there are more keys than asked for: remove the others."
for row in ("causal", "open"):
    total = sum(attention_with_slope[f"{row}_{key}"] for key in range(4))
    assert abs(total - 1) < 2e-3, f"the four weights of the row {row!r} must add up to 1, yours to {total:.4g}."
print("Nine finite numbers; both rows add up to 1. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "attention_with_slope_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.attention_with_slope(attention_with_slope)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write the distance above each key first: 3, 2, 1, 0 for the first row. For the second row one key lies before the query, and two after it.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The factors are powers of $e^{-1/2}\approx0.60653$, not of 2.
# </details>

# %% [markdown]
# ### Experiment: with real, that is unequal, content
#
# Now let content speak: 4,000 texts of 128 random tokens, random queries and keys in every head (`head_dim` 16). For the last query of each text, your bias is added to the scaled scores. We average the weight that a key gets by its distance.

# %% [markdown] tags=["prediction"]
# **Predict.** On a logarithmic axis, what shape has each head's curve: does the content bend it? What share of its attention does head 0 spend on the nearest 8 tokens, and what share does head 7?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(1)
query = torch.randn(4000, 1, 1, 16, generator=generator)
keys = torch.randn(4000, 1, 128, 16, generator=generator)
content = (query @ keys.mT) / math.sqrt(16)
mass = torch.cat([(content + alibi_bias(8, 1, 128)[head]).softmax(-1).mean(0) for head in range(8)])[:, 0].flip(-1)

fig, (left, right) = lab.figure("Attention by distance, mean over 4,000 texts", ncols=2, height=3.4)
for head, colour, style in zip((0, 2, 4, 7), lab.COLOURS, lab.LINES):
    left.semilogy(mass[head], color=colour, linestyle=style, label=f"head {head} (1/{2 ** (head + 1)})")
    right.plot(range(1, 129), mass[head].cumsum(0), color=colour, linestyle=style)
left.set(title="weight of one key", xlabel="distance (positions)", ylabel="mean weight (log scale)", ylim=(1e-6, 5),
         xlim=(0, 127))
left.legend(loc="upper right")
right.axvline(8, color=lab.GREY, linewidth=1, linestyle="--")
right.text(8.6, 0.02, "8 keys", fontsize=9, color="#444444")
right.set(title="share of the nearest keys", xlabel="number of nearest keys (log scale)", ylabel="share of the attention",
          ylim=(0, 1.02), xlim=(1, 128))
right.set_xscale("log", base=2)
right.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
for ax in (left, right):
    ax.grid(axis="y")
plt.show()
lab.table(["head", *range(8)], [["share of the nearest 8 keys", *(f"{float(mass[head, :8].sum()):.2f}" for head in range(8))]])


# %% [markdown]
# **Figure 4.4. Attention mass against distance.** Left: straight lines on the logarithmic axis, each falling by its own slope. Random content makes every single text ragged, but it favours no distance, so the mean keeps the exponential of equation (2). Right: the share of attention that the nearest keys receive together. Head 0 spends nearly all of it on eight tokens. Head 7 spends hardly more than eight of 128 keys would get without any bias (0.06).

# %% [markdown]
# ## 5 · A shortcut in public code
#
# The official code, and BLOOM's, never build the matrix of distances. They add to the score of key $j$ simply
#
# $$+\,m\,j, \tag{6}$$
#
# **one number per key**, the same for all queries. No query position, no absolute value, no minus sign. It saves memory, since one row serves for all queries. But is it ALiBi? Key 100 gets $+100\,m$ whoever asks, which looks more like an *absolute* position than like a distance.

# %% [markdown] tags=["prediction"]
# **Predict.** Compare the softmax of `scores + m*j` with the softmax of `scores - m*|i-j|`. When are the two the same: always, under a causal mask, without a mask, for a single query, never?
#
# *Your prediction:*

# %% [markdown]
# ### Exercise 4.5 · Is the shortcut the same thing?
#
# **4 points (2 + 2) · difficulty 3/5 · 10 + 10 minutes · code and text**
#
# *Why it matters:* you will load a checkpoint made with one form into code with the other. The answer says when that is safe.
#
# Write a function that *measures* it: it gets scores without a mask, computes both softmaxes in **float64**, and says whether they agree to $10^{-5}$ everywhere. If `causal` is true it first applies the causal mask to both, aligned at the end as in equation (5). Do not guess the answer from the arguments; compute both sides.

# %% nbgrader={"grade_id": "per_key_bias_is_equivalent", "solution": true}
def per_key_bias_is_equivalent(scores, slopes, causal):
    """Is max |softmax(scores + slope*j) - softmax(scores - slope*|i-j|)| at most 1e-5? Computed in float64.

    scores:  (batch, heads, n_queries, n_keys), scaled, without a mask and without a bias, n_queries <= n_keys
    slopes:  (heads,)
    causal:  bool; if true, the causal mask (aligned at the end) is applied to both
    returns: a Python bool
    """
    ### BEGIN SOLUTION
    n_queries, n_keys = scores.shape[-2:]
    scores, slopes = scores.double(), slopes.double()[:, None, None]
    j = torch.arange(n_keys, device=scores.device)
    i = j[n_keys - n_queries:, None]
    per_key, relative = scores + slopes * j, scores - slopes * (i - j).abs()
    if causal:
        per_key, relative = (s.masked_fill(j > i, -math.inf) for s in (per_key, relative))
    return bool((per_key.softmax(-1) - relative.softmax(-1)).abs().max() <= 1e-5)
    ### END SOLUTION


# %% nbgrader={"grade_id": "per_key_bias_is_equivalent_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(2)
scores, slopes = torch.randn(2, 4, 5, 5, generator=generator), torch.tensor([0.5, 0.25, 0.125, 0.0625])
answers = [per_key_bias_is_equivalent(scores, slopes, causal) for causal in (True, False)]
for answer in answers:
    assert isinstance(answer, bool), f"a Python bool expected, got {type(answer).__name__}: wrap the comparison in bool()."
assert answers[0] != answers[1], (
    "for these scores the two forms agree in one of the two cases, causal or not, and differ in the other; yours gives "
    f"{answers[0]} twice. Is the bias per key really without a query position? Is the relative one with the absolute "
    "value? Is the mask applied to both, before the softmax?")
short = per_key_bias_is_equivalent(scores[:, :, 3:], slopes, True)  # two queries, five keys
assert short == answers[0], (
    "the last two queries under the mask must give the same answer as all five: align mask and distances at the end.")
assert per_key_bias_is_equivalent(scores[:, :, 4:], slopes, False) is True, (
    "one query and five keys, without a mask: here the two forms agree. The query stands at the last position, 4, not "
    "at 0; and the answer does not follow from `causal`: compute both sides.")
print("Looks right. The hidden tests also have cases in which the answer does not hang on `causal`.")

# %% nbgrader={"grade_id": "per_key_bias_is_equivalent_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.per_key_bias_is_equivalent(per_key_bias_is_equivalent)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The two biases need $j$ as a row, $i$ as a column with the last positions, and the slopes with two more axes.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `masked_fill(j > i, -math.inf)` on both sums, then both softmaxes over the last axis, then the largest absolute difference.
# </details>

# %% [markdown] nbgrader={"grade_id": "per_key_explained_question", "locked": true}
# **Explain** what you measured, in four to eight lines with one or two formulas.
#
# 1. Why do the two forms give the same weights under a causal mask? Say what softmax does not see.
# 2. Why not without a mask? What does the bias per key do to keys *after* the query ($j>i$)?
# 3. The check has a case without a mask in which they agree all the same: one query and five keys. Why?
#
# ### BEGIN MARK SCHEME
# 2 points; half points are allowed.
#
# - 1 point (part 1): under the mask only $j\le i$ counts, there $|i-j|=i-j$, and $mj-(-m(i-j))=mi$ is the same for all keys of a row; softmax does not change when a constant is added to a row. Half a point if "softmax ignores a constant" is there but the constant $mi$ is not shown, or the other way round.
# - Half a point (part 2): for $j>i$ the difference is $mj+m(j-i)=m(2j-i)$, which depends on $j$; later keys are rewarded (the more, the later) where they should be penalised.
# - Half a point (part 3): the single query stands at the last position, as in a decoding step: no key lies after it, so part 1 holds without a mask.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "per_key_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Under the mask only keys $j\le i$ are left, and there $|i-j|=i-j$. The two biases differ by $mj-\big(-m(i-j)\big)=mj+mi-mj=mi$. In the row of query $i$ that is one and the same number for all keys. Softmax does not see a constant added to a row: it becomes a common factor $e^{mi}$ of numerator and denominator.
#
# 2. For a key after the query, $j>i$, the relative bias is $-m(j-i)$, and the difference is $mj+m(j-i)=m(2j-i)$. It depends on $j$, so it does not cancel. The bias per key keeps growing beyond the query: the later the key, the larger the reward, where ALiBi has a growing penalty. (The *signed* form $-m(i-j)$ would differ by a constant for all $j$; it rewards late keys as well.)
#
# 3. A single query at the end, as in a decoding step with a cache: no key lies after it, so all keys have $j\le i$ without any mask, and part 1 applies.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint</summary>
#
# Subtract the two biases, once for $j\le i$ and once for $j>i$. Which of the results depends on $j$?
# </details>

# %% [markdown]
# ### Experiment: the same in exact arithmetic, but not in bfloat16
#
# bfloat16 keeps eight significant bits (week 3, section 8): from 1,024 to 2,048 its numbers are 8 apart. Take the newest of 4,096 tokens, equal content, and the steepest of eight heads, $m=\frac12$. The bias is computed exactly and *stored* in bfloat16, in both forms.

# %% [markdown] tags=["prediction"]
# **Predict.** For which of the two forms are the weights of the last 24 keys still the exponential that they should be? What do you expect in place of it for the other?
#
# *Your prediction:*

# %% tags=["experiment"]
last_keys = torch.arange(4096 - 24, 4096)
exact = torch.exp(-0.5 * (4095 - last_keys).double())
forms = {"per key, 0.5·j": 0.5 * torch.arange(4096), "relative, −0.5·|i−j|": alibi_bias(8, 1, 4096)[0, 0]}
fig, axes = lab.figure("Attention of token 4,095 to its last 24 keys, bias stored in bfloat16", ncols=2, height=3.3,
                       sharey=True)
for ax, (name, stored) in zip(axes, forms.items()):
    weights = stored.to(torch.bfloat16).double().softmax(0)[-24:]
    ax.bar(last_keys, weights, color=lab.SKY, label="bias in bfloat16")
    ax.plot(last_keys, exact / (1 / (1 - math.exp(-0.5))), color=lab.BLACK, linestyle="-", marker="o", markersize=3,
            linewidth=1, label="exact")
    ax.set(title=name, xlabel="key position j", ylim=(0, 0.45))
    ax.set_axisbelow(True)
    ax.grid(axis="y")
axes[0].set_ylabel("weight")
axes[0].legend(loc="upper left")
plt.show()


# %% [markdown]
# **Figure 4.5. The price of the shortcut.** Left: per key. Near $j=4{,}095$ the bias is about 2,047, where bfloat16 numbers are 8 apart, so neighbours share one number: the last eight keys are all alike. The keys before them share a number that is 8 lower, and a weight $e^{-8}$ times as large, too small to see. The exponential has become a staircase. Right: the relative form. Near the query its numbers are small and exact; far away they are rounded, but there the weights are zero anyway. So: build the bias in float32, and prefer the relative form in half precision. (vLLM's fork for Gaudi has an option for float32 biases "to resolve accuracy issue on long sequences", pull request 503; it was taken back and came again as 1055.)

# %% [markdown]
# ## 6 · The attention layer
#
# ```text
# x ─┬─ q_proj ─ split into heads ─┐
#    ├─ k_proj ─ split into heads ─┴─ scores / sqrt(head_dim) ─ + bias ─ mask ─ softmax ─┐
#    └─ v_proj ─ split into heads ───────────────────────────────────────────────────────┴─ weighted sum ─ merge ─ o_proj
# ```
#
# It is the layer of exercise 3.6 with the rotation taken out and one addition put in. Nothing is added to the tokens: ALiBi *replaces* the position embedding (section 3 of the paper). What goes wrong is the order of the steps.
#
# - **Scale, then bias.** The bias is not divided by $\sqrt d$. PyTorch's `F.scaled_dot_product_attention` does it right: a floating `attn_mask` is added after the scale.
# - **Bias, then mask, then softmax.** A masked score must stay $-\infty$. Whoever adds the bias by overwriting, or cuts the matrix with `tril` (which writes *zeros*), opens the future again.
# - **The dtype.** The bias is float32. Added to bfloat16 scores it makes a float32 result, which then meets bfloat16 values and raises an error. Build it in float32, then cast it; do not build it *in* bfloat16, where positions beyond 256 merge.
# - **Nothing to store.** The bias has no parameters and depends on the length. As a saved table it would tie the checkpoint to one length. The `state_dict` holds the four projections and nothing else. (Slopes in a buffer that is not saved are allowed. But `.to(torch.bfloat16)` rounds a buffer as well, and only powers of two survive that unchanged.)
#
# The layer takes whole texts. With a KV cache it would take the queries of the new tokens, the keys of all, and `alibi_bias(n_heads, n_new, n_keys)`. Where groups of query heads share their keys and values, there is still one slope per *query* head. And padding at the start of a text moves all positions alike: distances do not notice.

# %% [markdown]
# ### Exercise 4.6 · Multi-head attention with ALiBi
#
# **5 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* this is the attention layer of BLOOM and MPT, up to biases and speed.
#
# You may call your functions of 4.2 and 4.3, or write the bias into the layer. As in 3.6, the heads are consecutive blocks of `head_dim` channels. `F.scaled_dot_product_attention` is allowed; note that it takes either `attn_mask` or `is_causal=True`, so the causal mask and the bias go into one tensor.

# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention", "solution": true}
class ALiBiMultiHeadAttention(nn.Module):
    """Multi-head self-attention with the ALiBi bias and no position embedding.

    d_model: width of the model; ValueError if n_heads does not divide it
    n_heads: number of heads, any; the slopes are those of 4.2

    Four projections without bias, q_proj, k_proj, v_proj, o_proj, each nn.Linear(d_model, d_model). The state_dict
    has no other key. Works after ``.to`` float64, float32, bfloat16 and float16.
    """

    def __init__(self, d_model, n_heads):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads:
            raise ValueError(f"n_heads {n_heads} does not divide d_model {d_model}")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        ### END SOLUTION

    def forward(self, x, is_causal=True):
        """x: (batch, seq_len, d_model), any seq_len; without the mask the bias is symmetric, -slope * |i - j|

        returns: (batch, seq_len, d_model) in the dtype of x
        """
        ### BEGIN SOLUTION
        seq_len = x.shape[1]
        # (batch, seq_len, d_model) -> (batch, heads, seq_len, head_dim)
        q, k, v = (project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = scores + alibi_bias(self.n_heads, seq_len).to(scores)  # to the dtype and device of the scores
        if is_causal:
            future = torch.ones(seq_len, seq_len, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        out = scores.softmax(dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).flatten(2))
        ### END SOLUTION


# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention_check", "grade": true, "points": 0}
# Visible check (0 points).
torch.manual_seed(0)
layer = ALiBiMultiHeadAttention(16, 4)
weights = layer.state_dict()
wanted = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"}
assert set(weights) == wanted, (
    f"the state_dict must hold {sorted(wanted)}; yours holds {sorted(weights)}: no biases, no saved tables, these "
    "names.")
x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    out = layer(x)
    assert tuple(out.shape) == (2, 6, 16), f"shape (2, 6, 16) expected, got {tuple(out.shape)}."
    alone = layer(x[:, :1])
    assert torch.allclose(alone, x[:, :1] @ weights["v_proj.weight"].mT @ weights["o_proj.weight"].mT, atol=1e-5), (
        "a single token attends to itself alone, so the output is o_proj(v_proj(x)). Is anything added to x?")
    assert torch.allclose(out, layer(x, is_causal=True), atol=1e-6), "is_causal is True by default."
    assert torch.allclose(out[:, :4], layer(x[:, :4]), atol=1e-5), (
        "with the mask, later tokens must not influence earlier outputs; yours do. Is a masked score still -inf when it "
        "reaches the softmax? Do you swap heads and tokens back before you merge the heads?")
    assert not torch.allclose(out[:, 0], layer(x, is_causal=False)[:, 0], atol=1e-4), "is_causal changed nothing."

    # Equal content: with zero queries only the bias decides. Values and output pass x through.
    equal = {"q_proj.weight": torch.zeros(16, 16), "k_proj.weight": torch.eye(16),
             "v_proj.weight": torch.eye(16), "o_proj.weight": torch.eye(16)}
    layer.load_state_dict(equal)
    tokens = torch.eye(6, 16).roll(3, dims=1)[None]  # token t holds a 1 in channel t + 3, that is in head (t + 3) // 4
    open_row = layer(tokens, is_causal=False)[0, 2]
    factors = torch.exp(-alibi_slopes(4)[:, None] * (torch.arange(6) - 2).abs())
    expected = factors / factors.sum(-1, keepdim=True)
    for token in (0, 1, 4, 5):
        head = (token + 3) // 4
        got, want = float(open_row[token + 3]), float(expected[head, token])
        assert abs(got - want) < 1e-4, (
            f"equal content, no mask: query 2 must give key {token} the weight {want:.4f} in head {head} (as in 4.4), "
            f"yours gives {got:.4f}. Is the bias added before the softmax, unscaled, with the slope of its own head, and "
            "symmetric? Are the heads consecutive blocks of head_dim channels?")

    # Two tokens with content: in every head the product of the last query and the last key is 4, with the first key 0.
    layer.load_state_dict(equal | {"q_proj.weight": torch.eye(16)})
    pair = torch.zeros(1, 2, 16)
    pair[0, 1, ::4] = 2
    for head, slope in enumerate(alibi_slopes(4).tolist()):
        got, want = float(layer(pair)[0, 1, 4 * head]) / 2, 1 / (1 + math.exp(-slope - 4 / math.sqrt(4)))
        assert abs(got - want) < 1e-4, (
            f"query.key is 4 for the last key and 0 for the first: in head {head} the last key's weight must be "
            f"{want:.4f}, yours is {got:.4f}. Are the products divided by the square root of head_dim = 4 (not of "
            "d_model), and the bias not divided?")

    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        low = ALiBiMultiHeadAttention(16, 4)
        low.load_state_dict(weights)
        low.to(dtype)
        assert low(x.to(dtype)).dtype == dtype, f"after .to({dtype}) the output must be {dtype}."
assert lab.raises(ValueError, ALiBiMultiHeadAttention, 16, 3), (
    "3 heads do not divide a width of 16: raise ValueError when the layer is built.")
print("Looks right. The hidden tests compare values, also for other numbers of heads and longer texts.")

# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention_tests", "grade": true, "points": 5}
# Hidden tests (5 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.ALiBiMultiHeadAttention(ALiBiMultiHeadAttention, alibi_slopes, alibi_bias)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1: shapes</summary>
#
# The scores are `(batch, heads, seq_len, seq_len)`, your bias `(heads, seq_len, seq_len)`. They broadcast as they are: no `repeat`, no reshaping.
# </details>
#
# <details><summary>Hint 2: the dtype</summary>
#
# `bias.to(scores)` takes dtype and device from the scores.
# </details>
#
# <details><summary>Hint 3: the mask</summary>
#
# `masked_fill` with $-\infty$ as the last step before the softmax cannot be undone by anything. Zero is no mask: it is a score.
# </details>

# %% [markdown]
# ### Experiment: three attention patterns
#
# The same queries and keys for 40 tokens, three ways: no position at all, RoPE, ALiBi. Queries and keys share a common part, as they do in trained models, plus noise; otherwise RoPE would show nothing but noise (Figure 3.4).

# %% [markdown] tags=["prediction"]
# **Predict.** Causal attention. In which picture do you expect vertical stripes, in which a band along the diagonal, in which ripples?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(4)
n, pairs = 40, 16
noise = torch.randn(2, n, pairs, 2, generator=generator)
q, k = torch.view_as_complex(0.8 + 0.7 * noise)  # pairs of channels as complex numbers (aside in week 3, section 4)
offset = torch.arange(n)[:, None] - torch.arange(n)
speeds = 10000.0 ** (-torch.arange(pairs) / pairs)
products = q[:, None] * k.conj()  # one number per query, key and pair
plain = products.real.sum(-1) / math.sqrt(2 * pairs)
rotary = (products * torch.exp(1j * offset[..., None] * speeds)).real.sum(-1) / math.sqrt(2 * pairs)
linear = plain + alibi_bias(8, n)[2]  # head 2, slope 1/8
future = torch.ones(n, n, dtype=torch.bool).triu(1)
patterns = {name: scores.masked_fill(future, -math.inf).softmax(-1)
            for name, scores in [("no position", plain), ("RoPE", rotary), ("ALiBi, slope 1/8", linear)]}

fig, axes = lab.figure("The same content, three ways: attention weights", nrows=2, ncols=3, height=5.1,
                       height_ratios=(3, 1.5))
for (upper, lower), (name, weights) in zip(axes.T, patterns.items()):
    image = upper.imshow(weights, norm=plt.matplotlib.colors.PowerNorm(0.5, 0, 0.4), interpolation="nearest")
    upper.set(title=name, xlabel="key position j")
    lower.plot([float(weights.diagonal(-d)[n // 2 - d:].mean()) for d in range(20)], color=lab.BLUE, linestyle="-")
    lower.axhline(1 / 30, color=lab.GREY, linewidth=1, linestyle="--")
    lower.set(xlabel="distance (positions)", ylim=(0, 0.17))
    lower.grid(axis="y")
axes[0, 0].set_ylabel("query position i")
axes[1, 0].set_ylabel("mean weight")
bar = fig.colorbar(image, ax=axes[0], shrink=0.8, ticks=[0, 0.05, 0.1, 0.2, 0.4], extend="max")
bar.ax.set_title("weight", fontsize=9, loc="left")
plt.show()


# %% [markdown]
# **Figure 4.6. None, RoPE, ALiBi.** Above: the weights, rows are queries. Without positions the pattern consists of vertical stripes: a key with a large common part is liked by all queries, wherever they stand. RoPE prefers near keys here, since all clocks start together for the common part, and has ripples beyond. ALiBi shows the stripes of the first picture, faded out by distance. Below: the mean weight by distance, queries 20 to 39 (dashed: 1/30, about the mean of a row of such a query). RoPE's curve comes out of the *content*, and another content gives another curve. ALiBi's decay is *built in*: content can outweigh it, never remove it.

# %% [markdown]
# ### Experiment: longer than in training
#
# A task that needs "the nearest of its kind". Random letters from an alphabet of eight; one in eight is *marked* (upper case, say). At every place the model must name the **most recent marked letter**. One layer between an embedding and a linear read-out, trained on texts of 32 tokens, tested on 256. Three arms: your ALiBi layer, and two layers of the same size with no position and with RoPE.

# %% [markdown] tags=["prediction"]
# **Predict.** Blind guessing gives 1/8. (a) In-length, up to place 31: which arms learn the task? (b) Beyond: which arms hold? (c) A second task, that of week 3: name the token **three places before**, marked or not. RoPE solved it completely within the training length. Will one ALiBi layer?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains four small models; budget: 30 seconds.
class Rival(nn.Module):
    """Causal attention with no position or with RoPE: per head, channels as complex numbers, scores by pair."""

    def __init__(self, width, heads, rope):
        super().__init__()
        self.rope, size = rope, width // heads
        self.maps = nn.Parameter(torch.empty(4, heads, width, size).uniform_(-1, 1) / math.sqrt(width))

    def forward(self, x):
        q, k, v = torch.einsum("bnw,mhwc->mbhnc", x, self.maps[:3])
        pairs, places = q.shape[-1] // 2, torch.arange(x.shape[1])
        offset = places[:, None] - places
        scores = torch.zeros(())
        for pair in range(pairs):
            a, b = torch.complex(q[..., 2 * pair], q[..., 2 * pair + 1]), torch.complex(k[..., 2 * pair], k[..., 2 * pair + 1])
            turn = torch.exp(1j * self.rope * offset * 10000.0 ** (-pair / pairs))
            scores = scores + (a[..., None] * b.conj()[..., None, :] * turn).real
        scores = (scores / math.sqrt(2 * pairs)).masked_fill(offset < 0, -math.inf)
        return torch.einsum("bhij,bhjc,hwc->biw", scores.softmax(-1), v, self.maps[3])

class Reader(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed, self.attention, self.read = nn.Embedding(16, 64), attention, nn.Linear(64, 8)

    def forward(self, tokens):
        return self.read(self.attention(self.embed(tokens)))

def most_recent_marked(batch, length, generator):
    letters = torch.randint(0, 8, (batch, length), generator=generator)
    marked = torch.rand(batch, length, generator=generator) < 1 / 8
    marked[:, 0] = True  # so that there always is one
    latest = torch.where(marked, torch.arange(length), 0).cummax(1).values
    return letters + 8 * marked, letters.gather(1, latest)

def three_before(batch, length, generator):
    letters = torch.randint(0, 8, (batch, length), generator=generator)
    return letters, letters.roll(3, dims=1)

def train(make, task, steps=200):
    torch.manual_seed(0)
    model = Reader(make())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        tokens, answers = task(32, 32, generator)
        loss = F.cross_entropy(model(tokens)[:, 3:].flatten(0, 1), answers[:, 3:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model

@torch.no_grad()
def accuracy(model, task, length=256):
    generator = torch.Generator().manual_seed(1)
    batches = [task(32, length, generator) for _ in range(6)]
    return torch.cat([(model(tokens).argmax(-1) == answers).float() for tokens, answers in batches]).mean(0)

threads = torch.get_num_threads()
torch.set_num_threads(1)
arms = {"ALiBi": lambda: ALiBiMultiHeadAttention(64, 8), "RoPE": lambda: Rival(64, 8, rope=1.0),
        "no position": lambda: Rival(64, 8, rope=0.0)}
curves = {name: accuracy(train(make, most_recent_marked), most_recent_marked) for name, make in arms.items()}
back = accuracy(train(arms["ALiBi"], three_before), three_before)
torch.set_num_threads(threads)

fig, ax = lab.figure("Name the most recent marked letter: trained on 32 tokens", height=3.6)
for (name, curve), colour, style in zip(curves.items(), lab.COLOURS, lab.LINES):
    smooth = torch.cat((curve[:32], curve[32:].unfold(0, 8, 8).mean(-1).repeat_interleave(8)))
    ax.plot(range(3, 256), smooth[3:], color=colour, linestyle=style, label=name)
ax.axvline(31, color=lab.GREY, linewidth=1, linestyle="--")
ax.text(34, 1.06, "beyond the training length", fontsize=9, color="#444444")
ax.axhline(1 / 8, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(255, 0.045, "dotted: blind guess, 1/8", ha="right", fontsize=9, color="#444444")
ax.set(xlabel="place in the text (tokens)", ylabel="accuracy", ylim=(0, 1.15), xlim=(0, 256))
ax.legend(loc="center right", bbox_to_anchor=(1, 0.62))
plt.show()
lab.table(["accuracy", "places 3-31", "places 128-255"],
          [[f"most recent marked, {name}", f"{float(curve[3:32].mean()):.1f}", f"{float(curve[128:].mean()):.1f}"]
           for name, curve in curves.items()]
          + [["three before, ALiBi", f"{float(back[3:32].mean()):.1f}", f"{float(back[128:].mean()):.1f}"]])


# %% [markdown]
# **Figure 4.7. Train short, test long.** Beyond place 31 the curves are means over eight places. (a) Within the training length ALiBi and RoPE learn the task; without positions the layer can only count the marked letters. (b) Beyond it ALiBi goes on as if nothing had happened, at eight times the length. RoPE, just as good *within* the training length, falls within twenty places. Two things are new for it there: angles of its slow clocks that it has never seen, and more keys; this picture does not tell their shares apart. (c) The last line of the table is the other side of the coin. One ALiBi *head* cannot look exactly three places back: its price only grows with the distance, so of four equal letters it must always like the nearest best. The layer could weigh its eight heads against each other, and still learns little of the task (0.3, where guessing gives 0.125). Week 3's layer solved it. **A built-in preference helps where it fits the task.** (The same holds for five other training seeds: at places 128 to 255 ALiBi reached 0.95 to 0.99, RoPE 0.24 to 0.31. Put 1 to 5 for the 0 in `torch.manual_seed(0)`, in `train`, and see.) Small models on one task show this much and no more; week 5 compares the encodings with care.

# %% [markdown]
# ## 7 · How far a head can see
#
# "Head 7 looks far": how far? Ask when the factor $e^{-m|i-j|}$ of equation (2) has fallen to some tolerance, say 1 %. Call the least whole distance at which it is at most `tol` the **effective window** $w$.
#
# There is a second reading. With equal content and an endless text on the left, the weight at distance $\delta$ is $(1-e^{-m})\,e^{-m\delta}$. All keys at distance $w$ or more *together* get $e^{-mw}$, which is at most `tol`. So the window is also what holds 99 % of the attention.

# %% [markdown]
# ### Exercise 4.7 · Effective window
#
# **2 points · difficulty 1/5 · 15 minutes · code**
#
# *Why it matters:* it says what a model with given slopes cannot know, before you have trained it.

# %% nbgrader={"grade_id": "effective_window", "solution": true}
def effective_window(slope, tol=0.01):
    """The least whole distance at which exp(-slope * distance) is at most tol. (Where the two are equal up to rounding
    either neighbour will do; that is not tested.)

    slope:   positive; tol: above 0 and at most 1; both plain numbers or 0-d tensors
    returns: a Python int
    """
    ### BEGIN SOLUTION
    return math.ceil(-math.log(float(tol)) / float(slope))
    ### END SOLUTION


# %% nbgrader={"grade_id": "effective_window_check", "grade": true, "points": 0}
# Visible check (0 points).
for slope, tol in ((0.3, 0.01), (0.05, 0.2)):
    window = effective_window(slope, tol)
    assert isinstance(window, int), f"a Python int expected, got {type(window).__name__}."
    assert math.exp(-slope * window) <= tol, (
        f"slope {slope}: at distance {window} the factor is {math.exp(-slope * window):.4f}, still above {tol}. Rounded "
        "down?")
    assert math.exp(-slope * (window - 1)) > tol, (
        f"slope {slope}: at distance {window - 1} the factor is already {math.exp(-slope * (window - 1)):.4f}; asked for "
        "is the least distance.")
assert effective_window(0.3) == effective_window(0.3, 0.01), "tol is 0.01 by default."
assert effective_window(torch.tensor(0.25), torch.tensor(0.01)) == effective_window(0.25, 0.01), (
    "0-d tensors must be taken as well.")
print("Looks right. The hidden tests try other slopes and tolerances.")

# %% nbgrader={"grade_id": "effective_window_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.effective_window(effective_window)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Solve $e^{-m w}=\texttt{tol}$ for $w$ with the natural logarithm.
# </details>
#
# <details><summary>Hint 2</summary>
#
# "At most tol" at a *whole* distance: which way do you round?
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** (a) Which head of eight sees farthest, and about how many tokens? (b) Does a model with 64 heads see farther than one with 8? (c) A text has 8,192 tokens. What becomes of a word at its beginning?
#
# *Your prediction:*

# %% tags=["experiment"]
fig, ax = lab.figure("Effective window of each head (tolerance 1 %)", height=3.7)
looks = ((4, "s", 12, lab.GREEN), (8, "o", 6, lab.BLUE), (12, "D", 6, lab.ORANGE), (32, ".", 6, lab.VERMILLION))
for n_heads, marker, size, colour in looks:
    windows = [effective_window(float(slope)) for slope in alibi_slopes(n_heads)]
    ax.semilogy([(head + 0.5) / n_heads for head in range(n_heads)], windows, marker=marker, markersize=size,
                markerfacecolor="none" if n_heads == 4 else colour, markeredgewidth=1.5 if n_heads == 4 else 1,
                linestyle="none", color=colour, label=f"{n_heads} heads")
    assert max(windows) == effective_window(2.0**-8)
ax.axhline(effective_window(2.0**-8), color=lab.GREY, linewidth=1, linestyle="--")
ax.text(0.01, effective_window(2.0**-8) * 1.2, f"{effective_window(2.0**-8):,} tokens: the farthest, for any number of heads",
        fontsize=9, color="#444444")
ax.set(xlabel="place of the head in the layer (0: first, 1: last)", ylabel="window (tokens, log scale)", xlim=(0, 1),
       ylim=(2, 3000))
ax.grid(axis="y")
ax.legend(loc="lower right", ncols=4)
plt.show()
lab.table(["8 heads", *range(8)], [["slope", *(f"1/{round(1 / float(s))}" for s in alibi_slopes(8))],
                                  ["window (tokens)", *(effective_window(float(s)) for s in alibi_slopes(8))]])

# %% [markdown]
# **Figure 4.8. Head against reach.** Along the layer the windows grow in a geometric series; each slope half as large means a window twice as long. (a) The last head of a power of two has slope 1/256 and sees 1,179 tokens, (b) whatever the number of heads: more heads fill the range more densely, they do not extend it. (The 8 in equation (3) does that: MPT's configuration calls it `alibi_bias_max`.) With 12 heads the order jumps back (diamonds): the four last heads are local ones again.
#
# (c) One layer gives a word 8,000 tokens back at most $e^{-8000/256}\approx 3\cdot10^{-14}$ of what it would give it nearby. A better content score can pay for that, at $1/256$ per position it would take 31 nats; and stacked layers can pass information on from window to window. But nothing in training asks for it. So "ALiBi extrapolates" means: *the loss does not explode* beyond the training length. It does not mean that the model uses the far text. Press et al. say so themselves (appendix B.2): beyond its training length, ALiBi might not be using longer contexts at all. Week 5 measures it: flat loss, lost needle.

# %% [markdown]
# ## 8 · Both sides alike
#
# ALiBi was made for decoders. In an encoder there is no mask, and the two-sided bias $-m\,|i-j|$ treats "three before" and "three after" alike. Is there any direction left?
#
# Let $J$ be the reversal: $(Jx)_i=x_{n-1-i}$. Compare three things: what the layer makes of $x$, of the reversed $Jx$, and of a shuffled $Px$.

# %% [markdown] tags=["prediction"]
# **Predict.** Without a mask: does your layer give the reversed output for the reversed input? The shuffled output for the shuffled input? And with the causal mask?
#
# *Your prediction:*

# %% tags=["experiment"]
torch.manual_seed(5)
layer, tokens = ALiBiMultiHeadAttention(32, 4), torch.randn(1, 12, 32)
backwards, shuffle = torch.arange(11, -1, -1), torch.randperm(12)
rows = []
with torch.no_grad():
    for causal in (False, True):
        gaps = [float((layer(tokens[:, order], is_causal=causal) - layer(tokens, is_causal=causal)[:, order]).abs().max())
                for order in (backwards, shuffle)]
        pooled = [layer(tokens[:, order], is_causal=causal).mean(1) - layer(tokens, is_causal=causal).mean(1)
                  for order in (backwards, shuffle)]
        rows.append(["with the causal mask" if causal else "no mask",
                     *("0.0000" if gap < 5e-5 else f"{gap:.1f}" for gap in gaps),
                     *("0.0000" if float(p.abs().max()) < 5e-5 else "differs" for p in pooled)])

q, k = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(6))
def weights(order, causal):
    scores = q[order] @ k[order].T / math.sqrt(8) + alibi_bias(4, 12)[0]
    return (scores.masked_fill(torch.ones(12, 12).triu(1).bool(), -math.inf) if causal else scores).softmax(-1)

forwards = torch.arange(12)
fig, axes = lab.figure("Attention of a sequence, and of its reverse turned back", ncols=4, height=2.8,
                       sharey=True)
fig.get_layout_engine().set(h_pad=0.09)
for ax, (name, order, causal) in zip(axes, [("no mask", forwards, False), ("no mask, reversed", backwards, False),
                                            ("causal", forwards, True), ("causal, reversed", backwards, True)]):
    picture = weights(order, causal)
    image = ax.imshow(picture if order is forwards else picture.flip(0, 1), vmin=0, vmax=0.6, interpolation="nearest")
    ax.set(title=name, xlabel="key (token number)", xticks=range(0, 12, 3), yticks=range(0, 12, 3))
axes[0].set_ylabel("query (token number)")
bar = fig.colorbar(image, ax=axes, shrink=0.8)
bar.ax.set_title("weight", fontsize=9, loc="left")
plt.show()
lab.table(["gap between f(order of x) and order of f(x)", "reversed", "shuffled", "mean, reversed", "mean, shuffled"], rows)

# %% [markdown]
# **Figure 4.9. Reversal.** Second and fourth picture: the sequence went in backwards, and rows and columns are turned back, so that every token stands in its old place. Without a mask the first two pictures are the same: each token looks at the same tokens with the same weights, whether the text runs forwards or backwards. With the causal mask they are not. The table measures the layer as a whole. Shuffling *does* change the result: symmetric ALiBi knows how far apart two tokens are, just not which comes first.

# %% [markdown] nbgrader={"grade_id": "reversal_question", "locked": true}
# ### Exercise 4.8 · Which way round?
#
# **2 points · difficulty 3/5 · 15 minutes · text, graded by a person**
#
# *Why it matters:* an encoder with symmetric ALiBi and mean pooling cannot tell "dog bites man" from "man bites dog", and no amount of training will help.
#
# Let $A$ be a self-attention layer with the bias $-m\,|i-j|$ in every head and **no mask**, and $J$ the reversal, $(Jx)_i=x_{n-1-i}$.
#
# 1. Show that $A(Jx)=J\,A(x)$. Name the property of the bias that you use.
# 2. An encoder consists of such layers and of parts that treat every token by itself (MLP, layer norm, residuals), with a mean over the tokens at the end. What follows for a sequence and its reverse? Name one change that gives the model a direction, and say at which step it breaks your proof.
# 3. Somebody writes: "with symmetric ALiBi, shuffled tokens give the same attention, so it is as blind as no encoding at all." Right or wrong? Use the measurement.
#
# ### BEGIN MARK SCHEME
# 2 points; half points are allowed.
#
# - 1 point (part 1): the score of queries and keys $i,j$ of the reversed input is $q_{i'}\cdot k_{j'}/\sqrt d-m|i-j|$ with $i'=n-1-i$, $j'=n-1-j$, and $|i'-j'|=|i-j|$, so it is the score of $i',j'$ of the original; softmax and the weighted sum run over all keys, whose order does not matter; hence output $i$ of $Jx$ is output $n-1-i$ of $x$. Half a point if the property $|i'-j'|=|i-j|$ is named but the step through softmax and sum is missing.
# - Half a point (part 2): token-wise parts commute with $J$, so the whole stack does, and the mean is the same for both: the model cannot tell them apart, whatever its weights. A valid change with the place it breaks: a causal mask ($j\le i$ becomes $j'\ge i'$), another slope for keys after the query than before, a signed or learned bias by offset, RoPE or position embeddings; heads that look to one side only.
# - Half a point (part 3): wrong. A shuffle changes distances, so weights and outputs change (the measured gap is far above rounding; only the gap under reversal is 0): flip-equivariant, not permutation-equivariant.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "reversal", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Write $i'=n-1-i$. Token $i$ of $Jx$ is token $i'$ of $x$, so its query, key and value are $q_{i'}, k_{i'}, v_{i'}$. The score of the pair $(i,j)$ in $Jx$ is $q_{i'}\cdot k_{j'}/\sqrt d-m\,|i-j|$. Now $|i'-j'|=|(n-1-i)-(n-1-j)|=|i-j|$: **the distance does not change under reversal.** So it is exactly the score of the pair $(i',j')$ in $x$. Without a mask the softmax and the weighted sum run over all keys, and a sum does not depend on the order of its terms. Therefore output $i$ of $Jx$ is output $i'$ of $x$, in every head, and o_proj acts on each token by itself: $A(Jx)=J\,A(x)$.
#
# 2. Parts that treat each token by itself commute with $J$, so the whole encoder $E$ does: $E(Jx)=J\,E(x)$. The mean over the tokens is the same for $E(x)$ and $J\,E(x)$. The model gives a sequence and its reverse the same answer, whatever its weights. A causal mask breaks it: "key not after the query", $j\le i$, becomes $j'\ge i'$ after the reversal, so the sum runs over other keys. Different slopes for keys before and after do as well: then the bias of $(i,j)$ is no longer that of $(i',j')$.
#
# 3. Wrong. A shuffle changes distances, and with them scores and outputs: the measured gap is far from zero. Only the reversal, which keeps all distances, gives a gap of zero up to rounding. The layer is flip-equivariant, not permutation-equivariant: it knows how far, but not which way.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Give the reversed place of $i$ a name, $i'=n-1-i$, and write down the score of the pair $(i,j)$ of the reversed sequence.
# </details>
#
# <details><summary>Hint 2</summary>
#
# What is $|i'-j'|$?
# </details>

# %% [markdown]
# ## 9 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Explain ALiBi in two sentences.</summary>
#
# No position is added to the tokens. Each head subtracts from its scaled scores a fixed slope times the distance between query and key, so the weight of a key decays exponentially with its distance, at a different rate in every head.
# </details>
#
# <details><summary>2. What is learned about positions, and what does it cost?</summary>
#
# Nothing is learned: the slopes are fixed. The cost is one addition per score, or one row per head if the bias is given per key. A bias tensor of all heads, queries and keys is large, though, and keeps some fast attention kernels from being used; FlashAttention therefore takes the slopes themselves (`alibi_slopes`).
# </details>
#
# <details><summary>3. Which head is the most local one?</summary>
#
# For a power of two the first: slope $2^{-8/h}$. The last one, 1/256, sees farthest. For other numbers of heads the order is that of rule (4); with 6 heads the most local one is head 4.
# </details>
#
# <details><summary>4. Where exactly is the bias added?</summary>
#
# To the scores after the division by $\sqrt d$, before mask and softmax. It is not scaled.
# </details>
#
# <details><summary>5. Public code adds slope × j, without any query position. Is that a bug?</summary>
#
# Not under a causal mask: there the two biases differ by slope × i, a constant in each row, which softmax does not see. Without a mask it is one: keys after the query are rewarded.
# </details>
#
# <details><summary>6. And in bfloat16?</summary>
#
# Then the bias per key is bad even under the mask. Its numbers grow with the position, and near 4,095 × ½ sixteen neighbours share one value. The relative form is exact near the query.
# </details>
#
# <details><summary>7. One decoding step with a cache: what is the bias?</summary>
#
# The last row of the square matrix: the query is the newest token. Distance 0 belongs to the last key.
# </details>
#
# <details><summary>8. Why does ALiBi run on longer texts where other encodings fail?</summary>
#
# No angle and no embedding is new. Larger distances and more keys are, but the bias only goes on falling there: in a steep head their weights are practically zero, and in a flat one their bias is lower than that of any key met in training.
# </details>
#
# <details><summary>9. Does it then make use of the longer text?</summary>
#
# That does not follow. Its farthest head has a window of 1,179 tokens at 1 %. The loss stays flat; whether a fact 8,000 tokens back is still found is another question (week 5).
# </details>
#
# <details><summary>10. Can one ALiBi head attend to "exactly three tokens back"?</summary>
#
# Not by position alone: the price only grows with the distance, so among equal keys the nearest wins (Figure 4.7, last line of the table, for a whole layer). RoPE can.
# </details>
#
# <details><summary>11. Can one use ALiBi in an encoder?</summary>
#
# With $-m|i-j|$, yes, but it cannot tell a sequence from its reverse. One remedy is another slope for each side, or heads that look to one side only; the authors list some in issue 5 of their repository.
# </details>
#
# <details><summary>12. You load a 12-head checkpoint, and the text is nonsense. What do you check?</summary>
#
# The slopes: rule (4), unsorted. Then the sign, the scaling, and whether a position embedding is added besides.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Head 0 has the smallest slope and looks far | For powers of two it has the *largest*, $2^{-8/h}$, and is the most local; the last, $2^{-8}$, looks farthest. | Figures 4.3, 4.8 |
# | The slopes are 1/2, 1/4, …, $1/2^h$ | Only for $h=8$. For powers of two they are $2^{-8k/h}$, $k=1..h$. | 4.2 |
# | The first slope is 1 ($k$ from 0) | $k$ runs from 1. | 4.2 |
# | One formula fits every number of heads | It is wrong for the 57 of 1 to 64 that are no power of two. | Figure 4.2 |
# | The slopes are sorted | Not for rule (4): 6 heads start with 1/4, and the largest, 1/2, is head 4. | 4.1 |
# | The bias is divided by $\sqrt d$ with the scores | It is added after the scaling. | 4.6 |
# | slope × j is the same as $-$slope × distance | Under a causal mask, in enough bits. | 4.5, Figure 4.5 |
# | ALiBi is added to the embeddings | Nothing is added to the tokens; the bias stands in every layer's scores. | section 6 |
# | With symmetric ALiBi shuffled tokens give the same attention | They do not; the *reversed* sequence does. | Figure 4.9 |
# | ALiBi uses contexts of any length | Its loss stays flat there. Its reach is limited by its slopes. | Figure 4.8, week 5 |
# | Code Llama was trained with ALiBi | It uses RoPE, with base $10^6$. | Rozière et al. |
# | A table of perplexities without a source | Do not repeat it: measure, or cite. | week 5 |
#
# ## To take with you
#
# 1. A straight line in the scores is an exponential in the weights; a slope is a half-life.
# 2. Steep heads first, and other numbers of heads by the official rule, unsorted.
# 3. Scale, add the bias, mask, softmax. In this order.
# 4. The shortcut per key is right under a causal mask only, and loses precision far out.
# 5. No new angle and no new embedding beyond the training length, and nothing seen beyond the window. Week 5 weighs the one against the other.
#
# ## References
#
# - O. Press, N. A. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, ICLR 2022, arXiv:2108.12409. Section 3 (the method, the slopes; footnote 10: the bias is not scaled), appendix B.2 (does it use the longer context?).
# - Their code: ofirpress/attention_with_linear_biases, `fairseq/models/transformer.py` (`get_slopes` for any number of heads; the bias per key), and issue 5 (encoders: that bias is right only on and below the diagonal).
# - BigScience Workshop: *BLOOM: A 176B-Parameter Open-Access Multilingual Language Model*, 2022, arXiv:2211.05100. Its code in huggingface/transformers, `modeling_bloom.py` (the bias per key); also `modeling_mpt.py`.
# - J. Su et al.: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021, arXiv:2104.09864.
# - B. Rozière et al.: *Code Llama: Open Foundation Models for Code*, 2023, arXiv:2308.12950 (RoPE with base $10^6$).
# - Bugs on record: meta-pytorch/attention-gym, pull request 86 (the sign); lucidrains/x-transformers, pull request 88 (a bias that was right only under a causal mask); HabanaAI/vllm-fork, pull requests 503 and 1055 (float32 biases for long sequences).
