# %% [markdown]
# # Week 4 · Attention with linear biases (ALiBi)
#
# You trained a model on texts of 1,000 tokens. Tomorrow it must read 2,000, and there is no time to train again. Last week's head fell apart at offsets it had never met. Can you tell a model about distance so that *nothing* is strange beyond the training length? And what does that cost?
#
# **The answer in one sentence.** Leave the tokens alone, and subtract from every score a penalty that grows linearly with the distance.
#
# <!-- costs of week4_alibi -->
#
# ## What you will be able to do
#
# - compute an attention row with a linear bias by hand, and read a slope as a half-life;
# - write the slopes for *any* number of heads, in the order that published checkpoints expect;
# - build the bias for training and for one decoding step, and say when, and in which precision, the shortcut in public code gives the same weights;
# - build an attention layer with this bias that works in float64, float32, bfloat16 and float16;
# - say how far each head sees, what ALiBi does on longer texts, and what it cannot do at all.
#
# **You need** weeks 1 and 3: attention, the causal mask, the attention layer of exercise 3.6, and the idea of RoPE.
#
# **Short of time?** 4.2, 4.3 and 4.6 are the method; 4.5 is what you will meet in other people's code.
#
# <!-- points of week4_alibi -->
#
# A *visible check* carries no points and says what is wrong; run it as often as you like. You pay for a mistake once: if only your slopes are wrong, the bias built on them gets its points. *Predict* cells are not graded. Answer them anyway: a wrong prediction is the one you remember.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`. $d$ is the head dimension, $h$ the number of heads.
# - $i$ is the position of a query, $j$ the position of a key, both counted from 0. $|i-j|$ is their distance.
# - A **slope** $m$ is a positive number; the bias is $-m\,|i-j|$, never positive.
# - Where there are fewer queries than keys, the queries are the *last* positions, as with a KV cache.
# - `alibi_slopes` and `alibi_bias` return float32 tensors on the CPU. Functions never change an argument in place.
# - A bare number such as 4.5 is an exercise.

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
# Weeks 2 and 3 gave the tokens positions. Press, Smith and Lewis (2022) proposed to give them none. Queries and keys carry only content, and the score is the plain scaled product minus a price for the distance:
#
# $$s_{ij} = \frac{q_i\cdot k_j}{\sqrt d} - m\,|i-j| . \tag{1}$$
#
# The **slope** $m$ is a fixed number, one for each head; nothing about it is learned. The larger the slope, the better a far key must match to get any weight. In the paper the model is a causal decoder, so $j\le i$ and the distance is $i-j$ (section 3); the absolute value covers both sides.
#
# **What softmax makes of it.** Softmax takes the exponential of every score, and the exponential turns a sum into a product:
#
# $$e^{s_{ij}} = \underbrace{e^{\,q_i\cdot k_j/\sqrt d}}_{\text{content}}\ \cdot\ \underbrace{e^{-m|i-j|}}_{\text{distance}} . \tag{2}$$
#
# So a straight line in the scores is an **exponential decay** in the weights. As in radioactive decay there is a **half-life**: the distance factor halves every $\ln 2/m$ positions. And a key that is $\delta$ positions farther away wins only if its content score is higher by more than $m\,\delta$.
#
# The bias is added **after** the division by $\sqrt d$, and so is not scaled (footnote 10 of the paper), and **before** the softmax.

# %% [markdown] tags=["prediction"]
# **Predict.** Four slopes: 1/2, 1/8, 1/32, 1/256. After how many positions does each halve a weight? Which of the four hardly notice a difference of two positions? Which still leave a key 300 positions back some weight beside equal keys near by?
#
# *Your prediction:*

# %% tags=["experiment"]
slopes = {f"1/{2**power}": 2.0**-power for power in (1, 3, 5, 8)}
half_life = {name: math.log(2) / slope for name, slope in slopes.items()}
lab.table(["slope", "half-life (positions)", "factor at distance 3", "at 5", "at 300", "at 500"],
          [[name, f"{half_life[name]:.1f}", *(f"{math.exp(-n * slope):.2f}" for n in (3, 5, 300, 500))]
           for name, slope in slopes.items()])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.1: run this cell
distance = torch.arange(0, 1025)
fig, (left, right) = lab.figure("What one slope does, by distance", ncols=2, height=3.4)
for (name, slope), colour, style in zip(slopes.items(), lab.COLOURS, lab.LINES):
    left.plot(distance, -slope * distance, color=colour, linestyle=style, label=f"m = {name}")
    right.plot(distance, torch.exp(-slope * distance), color=colour, linestyle=style)
    right.plot(half_life[name], 0.5, marker="o", markersize=6, color=colour)
    right.text(half_life[name] * 1.12, 0.53, f"{half_life[name]:.3g}", fontsize=9, color=colour)
right.axhline(0.5, color=lab.GREY, linewidth=1, linestyle=":")
left.set(title="bias added to the score", xlabel="distance (positions)", ylabel="bias", ylim=(-12, 0.5), xlim=(0, 200))
right.set(title="factor on the weight; dots: half-lives", xlabel="distance (positions, log scale)", ylabel="factor",
          xlim=(1, 1024), ylim=(0, 1.05))
right.set_xscale("log", base=2)
right.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
left.grid(axis="y")
left.legend(loc="lower right")
plt.show()

# %% [markdown]
# **Figure 4.1. One slope.** Left: the bias is a straight line through zero. Right: the factor it puts on a key's weight, on a logarithmic axis. Dots mark the half-lives. Look for the range of distances over which each curve changes.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# With equal content a steep head spends its weight on the nearest keys and leaves next to nothing beyond distance 10; a shallow one still gives weight at 300. Which *difference* a head notices is another matter. In a softmax only ratios count, and 3 against 5 is the same ratio $e^{-2m}$ as 300 against 302: slope 1/2 puts a factor of 0.37 on two positions, slope 1/256 one of 0.99. The shallow head notices only differences of a hundred or more. To tell near and far apart, a model needs several slopes.
# </details>
#
# ## 2 · The slopes
#
# ### A power of two
#
# $$m_k = 2^{-8k/h},\qquad k = 1, 2, \dots, h. \tag{3}$$
#
# The slopes form a geometric series, so the half-life grows by the same factor from head to head. The **first** head has the **largest** slope, $2^{-8/h}$, and is the most local; the last has $2^{-8}=1/256$ whatever $h$ is. The formula counts $k$ from 1, code counts heads from 0: head $k-1$ has slope $m_k$. Four heads have $2^{-2}, 2^{-4}, 2^{-6}, 2^{-8}$.
#
# The exponents are 1, 2, 3, … only for $h=8$. With the rule "$1/2^k$ for every $h$", a model of 32 heads would have slopes down to $2^{-32}$, almost zero.
#
# ### Any other number of heads
#
# For other $h$ the official code does not use (3). Let $c$ be the largest power of two that is not above $h$. Write $m_1,\dots,m_c$ for the slopes of $c$ heads and $m'_1,\dots,m'_{2c}$ for those of $2c$ heads. Then
#
# $$\text{slopes}(h) = m_1,\ m_2,\dots,\ m_c,\ m'_1,\ m'_3,\ m'_5,\dots \tag{4}$$
#
# 1. Take all slopes of $c$ heads.
# 2. Add every second slope of $2c$ heads, until there are $h$.
#
# **An example.** For six heads $c=4$. Four heads have $\frac14, \frac1{16}, \frac1{64}, \frac1{256}$. Two slopes are missing. Eight heads have $\frac12, \frac14, \frac18, \frac1{16}, \dots$, and every second one is $\frac12, \frac18, \dots$. So
#
# $$\text{slopes}(6) = \tfrac14,\ \tfrac1{16},\ \tfrac1{64},\ \tfrac1{256},\ \tfrac12,\ \tfrac18 .$$
#
# The slopes of $2c$ heads that you skip are those of $c$ heads, so no slope occurs twice. The result is **not sorted**. Keep it that way.

# %% [markdown]
# ### Exercise 4.1 · Slopes by hand
#
# **2 points · difficulty 1/5 · 15 minutes · numbers**
#
# *Why it matters:* code that is right for 8 heads can be wrong for 12, or for the 112 of BLOOM.
#
# Give some of the slopes of 8 heads and of 12 heads. Heads count from 0. Give **at least four significant digits.**

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

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# 8 is a power of two: equation (3). What is $8k/h$ for $h=8$?
# </details>
#
# <details><summary>Hint 2</summary>
#
# 12 is no power of two. What is $c$, and how many slopes are missing? Follow the example with six heads. You need 16 heads as well, and there the exponents $8k/h$ are halves: 0.5, 1, 1.5, ….
# </details>

# %% nbgrader={"grade_id": "slopes_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
lab.must_be_numbers(slopes_by_hand, "h8_0", "h8_2", "h8_7", "h12_0", "h12_7", "h12_8", "h12_9", "h12_11")
print("Eight finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "slopes_by_hand_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.slopes_by_hand(slopes_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 4.2 · Slopes
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* ALiBi has nothing but its slopes. If you load a checkpoint with the wrong ones, no error tells you, and the model writes nonsense.

# %% nbgrader={"grade_id": "alibi_slopes", "solution": true}
def alibi_slopes(n_heads):
    """One slope per head: equation (3) for powers of two, rule (4) for all other numbers of heads.

    n_heads: int, at least 1
    returns: (n_heads,) float32, all positive; in the official order, which is not sorted for rule (4); a new tensor on
             each call
    """
    ### BEGIN SOLUTION
    c = 2 ** (n_heads.bit_length() - 1)  # the largest power of two that is not above n_heads
    slopes = [2.0 ** (-8 * k / c) for k in range(1, c + 1)]
    if c < n_heads:
        finer = [2.0 ** (-8 * k / (2 * c)) for k in range(1, 2 * c + 1)]
        slopes += finer[0::2][: n_heads - c]
    return torch.tensor(slopes)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First write a function for powers of two. Rule (4) calls it twice, for $c$ and for $2c$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The largest power of two not above `n`: `2 ** (n.bit_length() - 1)`, or `2 ** math.floor(math.log2(n))`. A slice with a step, `entries[0::2]`, takes every second entry.
# </details>

# %% nbgrader={"grade_id": "alibi_slopes_check", "grade": true, "points": 0}
# Visible check (0 points).
four = alibi_slopes(4)
lab.must_be_a_tensor(four)
assert tuple(four.shape) == (4,), f"shape (4,) expected for 4 heads, got {tuple(four.shape)}."
assert four.dtype == torch.float32, f"float32 expected, got {four.dtype}."
assert bool((four > 0).all()), "slopes are positive; the minus sign belongs to the bias."
assert float(four[0]) > float(four[3]), (
    "for a power of two the first head has the largest slope and the last one the smallest.")
assert torch.allclose(four, torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])), (
    f"four heads have 1/4, 1/16, 1/64, 1/256; yours start with {float(four[0]):.4g}. The exponent is -8k/h, with k "
    "counted from 1.")
six = alibi_slopes(6)
lab.must_be_a_tensor(six)
assert tuple(six.shape) == (6,), f"shape (6,) expected for 6 heads, got {tuple(six.shape)}."
assert torch.allclose(six.sort().values, torch.tensor([1 / 256, 1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2])), (
    "for 6 heads the slopes are the six of the example in the text, by rule (4); yours are "
    f"{[round(float(slope), 4) for slope in six]}.")
assert torch.allclose(six[:4], four), (
    "the first four slopes of 6 heads are those of 4 heads: keep the official order, do not sort.")
assert torch.allclose(six[4:], torch.tensor([1 / 2, 1 / 8])), (
    f"the last two of 6 heads are every other slope of 8 heads, in their order: 1/2, 1/8; yours are {six[4:].tolist()}.")
assert abs(float(alibi_slopes(16)[0]) - 0.7071) < 1e-3, (
    f"16 heads: the exponent of the first is -8/16, so its slope is 2**-0.5 = 0.7071; yours is {float(alibi_slopes(16)[0]):.4g}.")
assert tuple(alibi_slopes(1).shape) == (1,), "one head is a power of two as well: shape (1,)."
print("Looks right. The hidden tests try many other numbers of heads.")

# %% nbgrader={"grade_id": "alibi_slopes_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.alibi_slopes(alibi_slopes)
### END HIDDEN TESTS

# %% tags=["experiment"]
lab.moving_slopes(alibi_slopes, n_heads=8, distance=16)


# %% [markdown]
# **Figure 4.2. Slopes to move.** One line per head, from your own function. Change the number of heads from 8 to 12 to 16: which lines stay? Move the distance: which heads still give a key that far away any weight?

# %% [markdown]
# ### Experiment: one formula for all?
#
# It is tempting to use equation (3) for every number of heads. Compare it with the official rule for 20 heads. Then count how often the two agree for 1 to 64 heads.

# %% [markdown] tags=["prediction"]
# **Predict.** (a) For how many of the 64 does equation (3) give other slopes than your function? (b) You sort the official slopes of 20 heads and train a new model from scratch. Does the order matter? Say why.
#
# *Your prediction:*

# %% tags=["experiment"]
def equation_3(n_heads):
    return 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)

counts = range(1, 65)
other_slopes = [n for n in counts if not torch.allclose(alibi_slopes(n), equation_3(n))]
not_sorted = [n for n in counts if not torch.equal(alibi_slopes(n), alibi_slopes(n).sort(descending=True).values)]
lab.table(["numbers of heads from 1 to 64", "how many"],
          [["equation (3) gives other slopes", len(other_slopes)],
           ["the official order is not sorted", len(not_sorted)],
           ["both agree and are sorted", 64 - len(other_slopes)]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.3: run this cell
official = alibi_slopes(20)
fig, ax = lab.figure("Slopes of 20 heads", height=3.4)
ax.axvspan(15.5, 19.6, color="#F0F0F0", zorder=0)
ax.text(7.5, 1.25, "heads 0–15: the slopes of 16 heads", ha="center", fontsize=9, color="#444444")
ax.text(17.55, 1.25, "16–19: of 32 heads", ha="center", fontsize=9, color="#444444")
ax.semilogy(official, marker="o", linestyle="none", markersize=10, markerfacecolor="none", color=lab.BLUE,
            label="official rule (your function)")
ax.semilogy(equation_3(20), marker="x", linestyle="none", markersize=5, color=lab.VERMILLION,
            markeredgewidth=1.5, label="equation (3) with h = 20")
ax.semilogy(official.sort(descending=True).values, marker="_", linestyle="none", markersize=14, color=lab.BLACK,
            label="official slopes, sorted")
ax.set(xlabel="head", ylabel="slope (log scale)", ylim=(0.003, 2), xlim=(-0.6, 19.6))
ax.set_xticks(range(20))
ax.grid(axis="y")
ax.legend(loc="lower left")
plt.show()


# %% [markdown]
# **Figure 4.3. Slopes of 20 heads.** Circles: the official rule, 16 heads and then every second of 32 (shaded). Crosses: equation (3) with $h=20$. Bars: the official slopes, sorted. Does any cross lie exactly on a circle? On a bar?

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# (a) Equation (3) is wrong for all 57 numbers that are not a power of two; with 20 heads no head gets its official slope. Sorting does not help: only the last cross, $2^{-8}$ at head 19, lies on a bar. (b) For a new model the order is a matter of taste, since heads are interchangeable before training. A published model was trained with its order: head 4 of six has learned to live with slope $\frac12$.
# </details>
#
# ## 3 · The bias
#
# In training there are as many queries as keys, and the bias of a head is a square matrix: zero on the diagonal, $-m$ beside it, $-2m$ next to that. It is symmetric; a decoder's mask removes the upper triangle.
#
# **One decoding step.** With a KV cache there is a single query and, say, five keys. The query is the newest token, so it stands at position 4, not 0. Its bias is $-4m, -3m, -2m, -m, 0$: the **last row** of the square matrix. In general, with $n_q$ queries and $n_k$ keys, query $r$, counted from 0, stands at position
#
# $$i = n_k - n_q + r . \tag{5}$$
#
# If you count the query from 0 instead, the farthest key gets distance 0 and the newest one the largest penalty.

# %% [markdown]
# ### Exercise 4.3 · The bias
#
# **4 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* with the wrong sign a model prefers far tokens, and trains without complaint. PyTorch's FlexAttention examples once had this bug (attention-gym, pull request 86).

# %% nbgrader={"grade_id": "alibi_bias", "solution": true}
def alibi_bias(n_heads, n_queries, n_keys=None):
    """The bias -slope * |i - j| of every head, without any mask.

    n_keys:  n_queries if None; 1 <= n_queries <= n_keys. The queries are the last positions: equation (5)
    returns: (n_heads, n_queries, n_keys) float32, on the CPU; a new tensor on each call
    """
    ### BEGIN SOLUTION
    if n_keys is None:
        n_keys = n_queries
    keys = torch.arange(n_keys)
    queries = keys[n_keys - n_queries:]  # the last n_queries positions
    distance = (queries[:, None] - keys).abs()  # (n_queries, n_keys)
    return -alibi_slopes(n_heads)[:, None, None] * distance
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Make the distances first, as a matrix of shape `(n_queries, n_keys)`: a column of query positions minus a row of key positions. The query positions are the last `n_queries` of the key positions.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The slopes need two more axes, `[:, None, None]`, to meet the distances.
# </details>

# %% nbgrader={"grade_id": "alibi_bias_check", "grade": true, "points": 0}
# Visible check (0 points).
square = alibi_bias(4, 6)
lab.must_be_a_tensor(square)
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
    "a single query is the newest token: its row must be the LAST row of the square bias. The last key is its "
    "own: distance 0.")
print("Looks right. The hidden tests try other numbers of heads, queries and keys.")

# %% nbgrader={"grade_id": "alibi_bias_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.alibi_bias(alibi_bias, alibi_slopes)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** The next figure shows the bias of all eight heads of a layer in one colour scale. In which panels will you see a narrow band, and in which hardly anything? How does the width of the band change from head to head?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.4: run this cell
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
# **Figure 4.4. One bias per head.** Yellow: no penalty. Dark blue: a penalty of 8 or more, a factor below 1/2,900.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Head 0 has the narrowest band, and from head to head the band gets twice as wide. To the last head all 128 tokens are near, so its panel is almost one colour.
# </details>
#
# ## 4 · One row by hand
#
# If all keys have the same content, the content scores cancel in the softmax. What remains are the factors $e^{-m|i-j|}$, scaled to sum to 1.
#
# **A worked example.** Take $m=\ln 2$: every position of distance halves the factor. There are three tokens, a causal mask, and the query at position 2. The factors of the keys 0, 1, 2 are $\frac14, \frac12, 1$; their sum is $\frac74$. The weights are $\frac17, \frac27, \frac47$. With the values $7, 14, 21$ the output is $\frac17\cdot7+\frac27\cdot14+\frac47\cdot21=17$.

# %% [markdown]
# ### Exercise 4.4 · Attention with one slope
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* one row by hand tells you which test to write for the layer.
#
# Four tokens of equal content stand at positions 0 to 3, with the values $v_0=8$, $v_1=4$, $v_2=2$, $v_3=1$. The only head has slope $m=\frac12$.
#
# 1. With a **causal** mask, find the four weights of the query at position 3, and its output.
# 2. **Without** a mask, find the four weights of the query at position 1.
#
# Give **at least four significant digits.**

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
    "output": 2.48897,  # 8 * 0.101537 + 4 * 0.167406 + 2 * 0.276004 + 0.455054
    "open_0": 0.23500,  # exp(-0.5) out of 0.60653 + 1 + 0.60653 + 0.36788 = 2.58094
    "open_1": 0.38746,  # 1
    "open_2": 0.23500,  # exp(-0.5): one position after is as far as one before
    "open_3": 0.14254,  # exp(-1)
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write the distance above each key first: 3, 2, 1, 0 for the first row. In the second row one key lies before the query, and two after it.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The factors are powers of $e^{-1/2}\approx0.60653$, not of 2.
# </details>

# %% nbgrader={"grade_id": "attention_with_slope_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, and at two sums.
weights = [f"{row}_{key}" for row in ("causal", "open") for key in range(4)]
numbers = lab.must_be_numbers(attention_with_slope, *weights, "output")
for row in ("causal", "open"):
    total = sum(numbers[f"{row}_{key}"] for key in range(4))
    assert abs(total - 1) < 2e-3, f"the four weights of the row {row!r} must add up to 1, yours to {total:.4g}. (Rounded too far?)"
print("Nine finite numbers; both rows add up to 1. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "attention_with_slope_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.attention_with_slope(attention_with_slope)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: with unequal content
#
# Take 4,000 texts of 128 tokens with random queries and keys (`head_dim` 16), the same for all heads. Your bias is added to the scaled scores of the last query of each text. For each distance we average the weight that a key gets.

# %% [markdown] tags=["prediction"]
# **Predict.** On a logarithmic axis, what shape does each head's curve have? Does the content bend it? What share of its attention does head 0 spend on the nearest 8 tokens, and what share does head 7 spend?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(1)
query = torch.randn(4000, 1, 1, 16, generator=generator)
keys = torch.randn(4000, 1, 128, 16, generator=generator)
content = (query @ keys.mT) / math.sqrt(16)
mass = torch.cat([(content + alibi_bias(8, 1, 128)[head]).softmax(-1).mean(0) for head in range(8)])[:, 0].flip(-1)
lab.table(["head", *range(8)],
          [["share of the nearest 8 keys", *(f"{float(mass[head, :8].sum()):.2f}" for head in range(8))]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.5: run this cell
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


# %% [markdown]
# **Figure 4.5. Attention mass against distance.** Left: the mean weight of one key, on a logarithmic axis. Right: the share of attention that the nearest keys receive together; dashed, the nearest eight.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Random content makes the curve of any single text ragged, but it favours no distance. Far from the query, therefore, the mean keeps the exponential of equation (2). Next to the query the mean is flatter. A weight cannot exceed 1, so favourable content raises a near key's large share by a smaller factor than a far key's small one. In head 0 the step from distance 0 to 1 costs a factor of about 1.5 instead of 1.65. Head 0 spends nearly all its attention on eight tokens. Head 7 spends 0.08 on them; without any bias they would get 0.06.
# </details>
#
# ## 5 · A shortcut in public code
#
# The official code and BLOOM's never compute a distance. To the score of key $j$ they add
#
# $$+\,m\,j, \tag{6}$$
#
# **one number per key**, the same for all queries. There is no query position, no absolute value and no minus sign. In BLOOM's code that saves memory, since one row per head serves all queries. But is this ALiBi? Key 100 gets $+100\,m$ from every query, which looks more like an *absolute* position than like a distance.

# %% [markdown] tags=["prediction"]
# **Predict.** Compare the softmax of `scores + m*j` with the softmax of `scores - m*|i-j|`. When are the two the same: always, under a causal mask, without a mask, for a single query, never?
#
# *Your prediction:*

# %% [markdown]
# ### Exercise 4.5 · Is the shortcut the same thing?
#
# **4 points (2 + 2) · difficulty 3/5 · 20 + 15 minutes · code and text**
#
# *Why it matters:* you will load a checkpoint made with one form into code with the other. The answer says when that is safe.
#
# Write a function that *measures* it. It gets scores without a mask, computes both softmaxes in **float64**, and says whether they agree to $10^{-5}$ everywhere. If `causal` is true, it first applies the causal mask to both, aligned at the end as in equation (5). Don't guess the answer from the arguments; compute both sides.

# %% nbgrader={"grade_id": "per_key_bias_is_equivalent", "solution": true}
def per_key_bias_is_equivalent(scores, slopes, causal):
    """Is max |softmax(scores + slope*j) - softmax(scores - slope*|i-j|)| at most 1e-5? Computed in float64.

    scores:  (batch, heads, n_queries, n_keys), scaled, without a mask and without a bias, n_queries <= n_keys
    slopes:  (heads,), none negative; zeros are allowed
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

# %% nbgrader={"grade_id": "per_key_bias_is_equivalent_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(2)
scores, slopes = torch.randn(2, 4, 5, 5, generator=generator), torch.tensor([0.5, 0.25, 0.125, 0.0625])
answers = [per_key_bias_is_equivalent(scores, slopes, causal) for causal in (True, False)]
for answer in answers:
    assert answer is not None, "nothing was returned: is there a return statement?"
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
# It computes where its inputs are, on any device.
lab.follows_the_device(per_key_bias_is_equivalent, torch.ones(1, 2, 3, 4), torch.tensor([0.5, 0.25]), True)
lab.follows_the_device(per_key_bias_is_equivalent, torch.ones(1, 2, 3, 4), torch.tensor([0.5, 0.25]), False)
print("Looks right. The hidden tests also have cases in which the answer does not depend on `causal`.")

# %% nbgrader={"grade_id": "per_key_bias_is_equivalent_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.per_key_bias_is_equivalent(per_key_bias_is_equivalent)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "per_key_explained_question", "locked": true}
# **Explain** what you measured, in four to eight lines with one or two formulas. Part 1 earns one point, the others half a point each.
#
# 1. Why do the two forms give the same weights under a causal mask? Say what cancels in the softmax.
# 2. Why not without a mask? What does the bias per key do to keys *after* the query ($j>i$)?
# 3. In one case of the check they agree without a mask: one query and five keys. Why?
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
# 2. For a key after the query, $j>i$, the relative bias is $-m(j-i)$, and the difference is $mj+m(j-i)=m(2j-i)$. It depends on $j$, so it does not cancel. The bias per key keeps growing beyond the query: the later the key, the larger the reward, where ALiBi has a growing penalty. (The *signed* form $-m(i-j)$ differs by a constant, and rewards late keys, too.)
#
# 3. A single query at the end, as in a decoding step with a cache: no key lies after it, so all keys have $j\le i$ without any mask, and part 1 applies.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint</summary>
#
# Subtract the two biases, once for $j\le i$ and once for $j>i$. Which of the results depends on $j$?
# </details>

# %% [markdown]
# **Check your explanation against a picture** of both biases without a mask.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.6: run this cell
n, slope = 8, 0.5
i, j = torch.arange(n)[:, None], torch.arange(n)
relative, per_key = slope * -(i - j).abs(), (slope * j).expand(n, n)
border = [(row + 0.5, row + side) for row in range(n) for side in (-0.5, 0.5)]  # stairs right of the diagonal
fig, axes = lab.figure("Two biases of one head (slope 1/2), and their difference", ncols=3, height=3.2)
fig.get_layout_engine().set(w_pad=0.12)
panels = [("relative: −m·|i − j|", relative), ("per key: m·j", per_key), ("per key minus relative", per_key - relative)]
for ax, (title, values) in zip(axes, panels):
    image = lab.heatmap(ax, values, title, 7, "key position j", "query position i")
    ax.plot(*zip(*border), color=lab.BLACK, linewidth=1.5, linestyle="-")
    for row in range(n):
        for column in range(n):
            value = float(values[row, column]) + 0.0
            ax.text(column, row, f"{value:g}", ha="center", va="center", fontsize=7.5,
                    color="white" if abs(value) >= 4.5 else "#222222")
fig.colorbar(image, ax=axes, shrink=0.75).ax.set_title("bias", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# **Figure 4.6. The two biases side by side.** Left: relative. Middle: per key. Right: their difference. A causal mask removes what lies above the black line. Walk along a row of the right panel, first below the line, then above it, and compare with what you wrote.

# %% [markdown]
# ### Experiment: biases in bfloat16
#
# bfloat16 keeps eight significant bits (week 3, section 8): from 1,024 to 2,048 its numbers are 8 apart. The query is the newest of 4,096 tokens, all content is equal, and the head is the steepest of eight, $m=\frac12$. We compute the bias exactly and *store* it in bfloat16, in three forms: per key, counted from the first key; per key, counted back from the last key, as MPT does; and relative.

# %% [markdown] tags=["prediction"]
# **Predict.** For which of the three forms do the weights of the last keys still follow the exponential? Sketch the weights of any form that fails.
#
# *Your prediction:*

# %% tags=["experiment"]
j = torch.arange(4096)
forms = {"per key, from the first": 0.5 * j,
         "per key, from the last": 0.5 * (j - 4095),
         "relative": alibi_bias(8, 1, 4096)[0, 0]}
weights_of = {name: bias.to(torch.bfloat16).double().softmax(0) for name, bias in forms.items()}
exact = (0.5 * j.double()).softmax(0)
stored = forms["per key, from the first"].to(torch.bfloat16)
values, how_many = stored[-60:].unique_consecutive(return_counts=True)
lab.table(["number stored near the end", *(f"{value:.0f}" for value in values[1:])],
          [["keys that share it", *how_many[1:].tolist()]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.7: run this cell
fig, axes = lab.figure("Attention of token 4,095 to its last 64 keys, bias in bfloat16, slope 1/2", ncols=3, height=3.3,
                       sharey=True)
for ax, (name, weights) in zip(axes, weights_of.items()):
    ax.semilogy(j[-64:], weights[-64:], color=lab.VERMILLION, linestyle="-", drawstyle="steps-mid", linewidth=2,
                label="bias in bfloat16")
    ax.semilogy(j[-64:], exact[-64:], color=lab.BLACK, linestyle=":", linewidth=1.6, label="exact")
    ax.set(title=name, xlabel="key position j", xticks=[4032, 4064, 4095], ylim=(1e-15, 3))
    ax.grid(axis="y")
axes[0].set_ylabel("weight (log scale)")
axes[0].legend(loc="upper left")
plt.show()

# %% [markdown]
# **Figure 4.7. Where a bias is counted from.** Weights of the last 64 keys, on a logarithmic axis, where an exponential is a straight line. Dotted: in float64. Solid: from a bias stored in bfloat16.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# When the bias is counted from the first key, the exponential becomes a staircase. At slope ½ a step of 8 in the bias spans about 16 keys: rounding to even makes runs of 15 and 17. The end of the text cuts the last run to eight keys, all of one weight. A key on the step below gets $e^{-8}$ of that weight.
#
# The other two forms hold the same numbers for this query, and near it they are small and exact. A much earlier query's nearest keys lie far from the last key, so a count from there makes stairs, too: only **counting from the query** is safe.
# </details>
#
# ### Live: BLOOM's ties
#
# BLOOM counts from the first key, and casts the bias to the model's dtype. Then one call, `baddbmm`, adds the scaled product of query and key, and the *sum* is stored in that dtype, too. Here are both roundings, for BLOOM's 112 heads and 2,048 tokens: first with equal content, then with content scores of 3 for key 2046 and −3 for key 2047, a lead of 6.

# %% tags=["experiment"]
slopes, j = alibi_slopes(112)[:, None], torch.arange(2048)
stored = (slopes * j).to(torch.bfloat16)
content = torch.zeros(2048, dtype=torch.bfloat16)
content[-2:] = torch.tensor([3.0, -3.0])
rows, counts = [], []
for name, score in {"equal content": 0 * content, "key 2046 leads by 6": content}.items():
    summed = (stored + score).double()
    due = slopes.double() * j + score
    for where, scores in (("exact", due), ("as BLOOM", summed)):
        rows.append([f"head 0, {name}, {where}", *(f"{w:.2f}" for w in scores.softmax(-1)[0, -4:].tolist())])
    counts.append([f"{name}: the last two keys tie", int((summed[:, -1] == summed[:, -2]).sum())])
    off = (summed.softmax(-1) - due.softmax(-1)).abs().amax(1)
    counts.append([f"{name}: a weight off by more than 0.1", int((off > 0.1).sum())])
lab.table(["weight of the last keys", 2044, 2045, 2046, 2047], rows)
print()
lab.table(["of 112 heads", "how many"], counts)


# %% [markdown]
# 104 of 112 heads cannot tell the newest token from the one before it by position. Some weight is off by more than 0.1 in 35 heads, and by more than 0.01 in 67. In the other 45 heads no key is due more than 0.06.
#
# The second rounding adds to the first, and it can erase a clear lead. (With this lead a weight is wrong by more than 0.1 in 21 heads if the bias is rounded, in 32 if the sum is, too.) In head 0 both biases are stored as 1,880, where bfloat16 counts in steps of 8. Add 3 or −3, and the sum is rounded back to 1,880: a lead of 6, less the slope 0.92, should give 160 times the weight, and gives a tie. The lead becomes a tie in 14 of the 112 heads, and in head 6 the newer key even leads by 8. With content scores of 6 and 0 there are 2 ties. (`experiments/results_weeks34.md`)
#
# BLOOM's training code casts the bias as well (bigscience-workshop/Megatron-DeepSpeed, pull request 101), so we conjecture that the model has learned to live with the ties. For your own models: **build the bias in float32, and count from the query.**

# %% [markdown]
# ## 6 · The attention layer
#
# ```text
# x ─┬─ q_proj ─ split into heads ─┐
#    ├─ k_proj ─ split into heads ─┴─ scores / sqrt(head_dim) ─ + bias ─ mask ─ softmax ─┐
#    └─ v_proj ─ split into heads ───────────────────────────────────────────────────────┴─ weighted sum ─ merge ─ o_proj
# ```
#
# Take the layer of exercise 3.6, leave the rotation out, and add the bias. Nothing is added to the tokens: ALiBi *replaces* the position embedding (section 3 of the paper). Most bugs are in the order of the steps and in the dtype.
#
# - **Scale, then bias.** PyTorch 2.13's `F.scaled_dot_product_attention` keeps this order: it adds a floating `attn_mask` after the scale.
# - **Bias, then mask, then softmax.** A masked score must stay $-\infty$. `tril` writes *zeros* instead, and so opens the future again.
# - **The dtype.** With `@`, a float32 bias turns bfloat16 scores into float32, which then meet bfloat16 values and raise an error. Build the bias in float32, then cast it. Don't build it *in* bfloat16, where positions beyond 256 merge.
# - **Nothing to store.** The bias has no parameters and depends on the length, so a saved table would tie the checkpoint to one length.
#
# With a KV cache the layer would take the queries of the new tokens, the keys of all, and `alibi_bias(n_heads, n_new, n_keys)`.

# %% [markdown]
# ### Exercise 4.6 · Multi-head attention with ALiBi
#
# **5 points · difficulty 3/5 · 35 minutes · code**
#
# *Why it matters:* up to rounding (section 5), bias vectors in the projections and speed, this is the attention layer of BLOOM and MPT.
#
# Call your functions of 4.2 and 4.3, or write the bias into the layer. As in 3.6, the heads are consecutive blocks of `head_dim` channels. You may use `F.scaled_dot_product_attention`; do not give it both `attn_mask` and `is_causal=True`: causal mask and bias go into one tensor.

# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention", "solution": true}
class ALiBiMultiHeadAttention(nn.Module):
    """Multi-head self-attention with the ALiBi bias and no position embedding.

    d_model: width of the model; ValueError when the layer is built, if n_heads does not divide it
    n_heads: number of heads, any; the slopes are those of 4.2

    Four projections without bias, q_proj, k_proj, v_proj, o_proj, each nn.Linear(d_model, d_model). The state_dict
    has no other key. Works after ``.to`` float64 (accurate at least to float32), float32, bfloat16 and float16, on texts
    of changing length, and keeps gradients.
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
# Use `masked_fill` with $-\infty$ as the last step before the softmax: nothing undoes it then.
# </details>

# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention_check", "grade": true, "points": 0}
# Visible check (0 points).
torch.manual_seed(0)
layer = ALiBiMultiHeadAttention(16, 4)
weights = layer.state_dict()
wanted = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"}
x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(3))
rounded = lambda values: [round(float(value), 4) for value in values]

# 1. The layer holds four projections and nothing else, and keeps the shape.
assert set(weights) == wanted, (
    f"the state_dict must hold {sorted(wanted)}; yours holds {sorted(weights)}: no biases, no saved tables, these "
    "names.")
with torch.no_grad():
    out = layer(x)
    lab.must_be_a_tensor(out)
    assert tuple(out.shape) == (2, 6, 16), f"shape (2, 6, 16) expected, got {tuple(out.shape)}."

    # 2. A single token attends to itself.
    alone = layer(x[:, :1])
    assert torch.allclose(alone, x[:, :1] @ weights["v_proj.weight"].mT @ weights["o_proj.weight"].mT, atol=1e-5), (
        "a single token attends to itself alone, so the output is o_proj(v_proj(x)). Is anything added to x, "
        "does the mask hide the token itself, or are the heads split in one way and merged in another?")

    # 3. By default nothing flows back from the future.
    assert torch.allclose(out, layer(x, is_causal=True), atol=1e-6), "is_causal is True by default."
    assert torch.allclose(out[:, :4], layer(x[:, :4]), atol=1e-5), (
        "with the mask, later tokens must not influence earlier outputs; yours do. Is a masked score still -inf when it "
        "reaches the softmax? Do you swap heads and tokens back before you merge the heads?")
    assert not torch.allclose(out[:, 0], layer(x, is_causal=False)[:, 0], atol=1e-4), "is_causal changed nothing."

    # 4. With equal content the bias alone decides, as in 4.4. Zero queries make all content scores 0. Token t holds
    #    a 1 in channel t of every head and passes through unchanged, so the output shows the weights themselves.
    unit = torch.eye(16)
    layer.load_state_dict({"q_proj.weight": torch.zeros(16, 16), "k_proj.weight": unit, "v_proj.weight": unit,
                           "o_proj.weight": unit})
    tokens = torch.eye(4).repeat(1, 4)[None]
    seen = layer(tokens, is_causal=False)[0, 1].view(4, 4)  # query 1: (head, key)
    due = (-alibi_slopes(4)[:, None] * torch.tensor([1, 0, 1, 2])).softmax(-1)
    for head in range(4):
        assert torch.allclose(seen[head], due[head], atol=1e-4), (
            f"equal content, no mask: in head {head} query 1 must give its keys the weights {rounded(due[head])}, "
            f"yours are {rounded(seen[head])}. Is the bias added before the softmax, unscaled, symmetric, with the "
            "slope of its own head? Are the heads consecutive blocks of head_dim channels?")

    # 5. With content: the score is scaled, the bias is not. In both heads the last query has the product 2 with the
    #    last key and 4 with the first, which is one position away.
    two = ALiBiMultiHeadAttention(16, 2)
    queries, keys = torch.zeros(2, 16, 16)
    queries[[0, 8], [0, 8]], keys[[0, 8], [1, 9]] = 1, 2  # a query reads channel 0 of its head, a key twice channel 1
    two.load_state_dict({"q_proj.weight": queries, "k_proj.weight": keys, "v_proj.weight": unit, "o_proj.weight": unit})
    pair = torch.zeros(2, 2, 16)  # two equal sequences of two tokens: (0, 2, ...) and (1, 1, ...) in each head
    pair[:, 0, 1::8], pair[:, 1, 0::8], pair[:, 1, 1::8] = 2, 1, 1
    seen = two(pair)[:, 1, ::8]  # the last key's weight, for each sequence and head
    due = torch.sigmoid((2 - 4) / math.sqrt(8) + alibi_slopes(2))
    for head in range(2):
        assert torch.allclose(seen[:, head], due[head].expand(2), atol=1e-4), (
            f"query.key is 2 for the last key and 4 for the first: in head {head} the last key's weight must be "
            f"{float(due[head]):.4f} in both sequences, yours are {rounded(seen[:, head])}. Are the products q.k divided by "
            "the square root of head_dim = 8, the bias not divided, and nothing rotated? Does each head have the same "
            "slope in every sequence?")

    # 6. What goes in as bfloat16 comes out as bfloat16.
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        low = ALiBiMultiHeadAttention(16, 4)
        low.load_state_dict(weights)
        low.to(dtype)
        assert low(x.to(dtype)).dtype == dtype, f"after .to({dtype}) the output must be {dtype}."

# 7. A width that the heads do not divide is refused.
assert lab.raises(ValueError, ALiBiMultiHeadAttention, 16, 3), (
    "3 heads do not divide a width of 16: raise ValueError when the layer is built.")

# It computes where its inputs are, on any device.
lab.follows_the_device(lambda x: ALiBiMultiHeadAttention(16, 2).to("simulated")(x), torch.ones(1, 3, 16))
lab.follows_the_device(lambda x: ALiBiMultiHeadAttention(16, 2).to("simulated")(x, is_causal=False), torch.ones(1, 3, 16))
print("Looks right. The hidden tests compare values, also for other numbers of heads and longer texts.")

# %% nbgrader={"grade_id": "ALiBiMultiHeadAttention_tests", "grade": true, "points": 5}
# Hidden tests (5 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week4
week4.ALiBiMultiHeadAttention(ALiBiMultiHeadAttention, alibi_slopes, alibi_bias)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: three attention patterns
#
# Look at the same content with no position at all, with RoPE and with ALiBi. There are forty tokens; all keys resemble the queries a little, and three keys, at positions 4, 15 and 27, resemble them a lot.

# %% [markdown] tags=["prediction"]
# **Predict.** Attention is causal. Sketch the three pictures. Where do the three strong keys show in each?
#
# *Your prediction:*

# %% tags=["experiment"]
n, pairs = 40, 16
strength = torch.full((n,), 2.0)
strength[[4, 15, 27]] = 4.0  # the score of key j without positions: in every pair, query and key point the same way
offset = torch.arange(n)[:, None] - torch.arange(n)
frequencies = 10000.0 ** (-torch.arange(pairs) / pairs)
plain = strength.expand(n, n)
rotary = strength * torch.cos(offset[..., None] * frequencies).mean(-1)  # a sum of cosines (week 3, section 4)
linear = plain + alibi_bias(8, n)[2]  # head 2, slope 1/8
patterns = {name: scores.masked_fill(offset < 0, -math.inf).softmax(-1)
            for name, scores in [("no position", plain), ("RoPE", rotary), ("ALiBi, slope 1/8", linear)]}

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.8: run this cell
fig, axes = lab.figure("The same content, three ways: attention weights", nrows=2, ncols=3, height=5.1,
                       height_ratios=(3, 1.5))
for (upper, lower), (name, weights) in zip(axes.T, patterns.items()):
    image = upper.imshow(weights, norm=plt.matplotlib.colors.PowerNorm(0.5, 0, 0.4), interpolation="nearest")
    upper.set(title=name, xlabel="key position j")
    lower.bar(range(n), weights[-1], color=[lab.VERMILLION if s > 2 else lab.SKY for s in strength])
    lower.set(title="weights of the last query", xlabel="key position j", ylim=(0, 0.25), axisbelow=True)
    lower.grid(axis="y")
axes[0, 0].set_ylabel("query position i")
axes[1, 0].set_ylabel("weight")
bar = fig.colorbar(image, ax=axes[0], shrink=0.8, ticks=[0, 0.05, 0.1, 0.2, 0.4], extend="max")
bar.set_label("weight (square-root scale)")
plt.show()


# %% [markdown]
# **Figure 4.8. None, RoPE, ALiBi.** Above: the weights, one row per query. Below: the last row as bars, the three strong keys in orange-red.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Without positions every query likes the same keys, wherever they stand: vertical stripes. ALiBi shows the same stripes, faded out by distance, whatever the content is. RoPE's decay and ripples *depend on* the content: here all cosines start at the same phase, and other phases would move the peak (week 3, section 4). ALiBi's decay is *built in*: content can outweigh it, but never remove it.
# </details>
#
# ### Experiment: longer than in training
#
# Here the model must find the nearest token of one kind. Letters are random, from an alphabet of eight; one in eight is *marked*. At every position the model must name the **most recent marked letter**. The model is one layer between an embedding and a linear read-out, trained on texts of 32 tokens and tested on 256. There are three arms: your ALiBi layer, and rivals of the same size with RoPE and with no position.

# %% [markdown] tags=["prediction"]
# **Predict.** Blind guessing gives 1/8. (a) Which arms learn the task up to position 31? (b) Which arms hold beyond it? (c) The second task is that of week 3: name the token **three positions back**, marked or not. RoPE solved it completely within the training length. Will one ALiBi layer solve it?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# The rivals and their training: run this cell
class Rival(nn.Module):
    """Causal attention with no position, or with RoPE in complex numbers (aside of week 3, section 4)."""

    def __init__(self, width, heads, rope):
        super().__init__()
        self.rope = rope
        self.maps = nn.Parameter(torch.empty(4, heads, width, width // heads).uniform_(-1, 1) / math.sqrt(width))

    def turned(self, vectors):
        pairs = torch.view_as_complex(vectors.unflatten(-1, (-1, 2)).contiguous())
        n, half = pairs.shape[-2:]
        angles = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten(-2)

    def forward(self, x):
        q, k, v = torch.einsum("bnw,mhwc->mbhnc", x, self.maps[:3])
        if self.rope:
            q, k = self.turned(q), self.turned(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bhnc,hwc->bnw", out, self.maps[3])

class Reader(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed, self.attention, self.read = nn.Embedding(16, 64), attention, nn.Linear(64, 8)

    def forward(self, tokens):
        return self.read(self.attention(self.embed(tokens)))

def train(make, task, steps=200, seed=0):
    torch.manual_seed(seed)
    model = Reader(make())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
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


# %% tags=["experiment"]
# Trains four small models; budget: 30 seconds.
def most_recent_marked(batch, length, generator):
    letters = torch.randint(0, 8, (batch, length), generator=generator)
    marked = torch.rand(batch, length, generator=generator) < 1 / 8
    marked[:, 0] = True  # so that there always is one
    latest = torch.where(marked, torch.arange(length), 0).cummax(1).values
    return letters + 8 * marked, letters.gather(1, latest)

def three_back(batch, length, generator):
    letters = torch.randint(0, 8, (batch, length), generator=generator)
    return letters, letters.roll(3, dims=1)

arms = {"ALiBi": lambda: ALiBiMultiHeadAttention(64, 8), "RoPE": lambda: Rival(64, 8, rope=True),
        "no position": lambda: Rival(64, 8, rope=False)}
threads = torch.get_num_threads()
torch.set_num_threads(1)  # models this small run faster on one core
curves = {name: accuracy(train(make, most_recent_marked), most_recent_marked) for name, make in arms.items()}
back = accuracy(train(arms["ALiBi"], three_back), three_back)
torch.set_num_threads(threads)

lab.table(["accuracy", "positions 3-31", "positions 128-255"],
          [[f"most recent marked, {name}", f"{float(curve[3:32].mean()):.1f}", f"{float(curve[128:].mean()):.1f}"]
           for name, curve in curves.items()]
          + [["three back, ALiBi", f"{float(back[3:32].mean()):.1f}", f"{float(back[128:].mean()):.1f}"]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.9: run this cell
fig, ax = lab.figure("Name the most recent marked letter: trained on 32 tokens", height=3.6)
for (name, curve), colour, style in zip(curves.items(), lab.COLOURS, lab.LINES):
    smooth = torch.cat((curve[:32], curve[32:].unfold(0, 8, 8).mean(-1).repeat_interleave(8)))
    ax.plot(range(3, 256), smooth[3:], color=colour, linestyle=style, label=name)
ax.axvline(31, color=lab.GREY, linewidth=1, linestyle="--")
ax.text(34, 1.06, "beyond the training length", fontsize=9, color="#444444")
ax.axhline(1 / 8, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(255, 0.045, "dotted: blind guess, 1/8", ha="right", fontsize=9, color="#444444")
ax.set(xlabel="position in the text (tokens)", ylabel="accuracy", ylim=(0, 1.15), xlim=(0, 256))
ax.legend(loc="center right", bbox_to_anchor=(1, 0.62))
plt.show()


# %% [markdown]
# **Figure 4.9. Train short, test long.** Accuracy along a text eight times as long as in training. Beyond position 31 each curve is a mean over eight positions.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# The ranges are over six training seeds. "Clipped" is week 3's clip at 31.
#
# | | positions 3–31 | positions 128–255 |
# |---|---|---|
# | most recent marked, ALiBi | 0.97–0.99 | 0.95–0.97 |
# | most recent marked, RoPE | 0.99–1.00 | 0.24–0.29 |
# | most recent marked, RoPE clipped | 0.99–1.00 | 0.95–0.96 |
# | most recent marked, no position | 0.58–0.62 | 0.25–0.29 |
# | three back, ALiBi | 0.31–0.32 | 0.31–0.32 |
# | three back, RoPE | 1.00 | 0.12–0.13 |
# | three back, RoPE clipped | 1.00 | 1.00 |
#
# (a) ALiBi and RoPE learn the task; without positions the layer can count marked letters and read its own token, no more. (b) Beyond the training length ALiBi loses little on average (from 0.98 to 0.96), and RoPE falls to about the level of no position at all. New offsets are to blame: with its offsets clipped, RoPE does about as well as ALiBi.
#
# (c) The layer reaches 0.31. One ALiBi *head* cannot look exactly three back: its price only grows with the distance, so among equal letters it must prefer the nearest. Eight heads together did not make up for that in 200 steps. **A built-in preference hurts where it does not fit; clipped RoPE solves both without one.** Two toy tasks cannot show more than that; week 5 compares the encodings with care.
# </details>
#
# ### What the paper promised, and what became of it
#
# The headline of Press et al. (2022, abstract) is *train short, test long* at full size. A model of 1.3 billion parameters with ALiBi, trained on 1,024 tokens and tested on 2,048, reaches the **perplexity** ($e^{\text{loss}}$) of a sinusoidal model trained on 2,048. It trains 11% faster, with 11% less memory. BLOOM and MPT adopted ALiBi.
#
# Many later models use RoPE. We know of no paper that gives *the* reason. These facts are on record:
#
# | fact | source |
# |---|---|
# | The promise has limits: one heavily trained ALiBi model extrapolates well only to about 12% beyond its training length. | Al-Khateeb et al., 2023, section 1, citing Dey et al., 2023 |
# | RoPE learned to stretch: position interpolation takes LLaMA to 32,768 tokens with at most 1,000 steps of fine-tuning. | Chen et al., 2023, abstract; week 5 |
# | A bias needs a kernel that supports it. FlashAttention 2 has ALiBi since version 2.4; FlashAttention 3 did not have it in May 2025. A rotation can be done before the kernel starts. | Dao-AILab/flash-attention, pull request 540, issues 671 and 1666 |
# | Successors changed: MPT has ALiBi, DBRX has RoPE. | `transformers` 5.23, `modeling_mpt.py`, `modeling_dbrx.py` |

# %% [markdown]
# ## 7 · How far a head can see
#
# Some heads look far, but how far? Choose a tolerance `tol`, say 1%. The **effective window** $w$ is the smallest whole distance at which the factor $e^{-m|i-j|}$ of equation (2) is at most `tol`.
#
# There is a second reading. With equal content and unlimited text before the query, the factors sum to $1/(1-e^{-m})$, so the weight at distance $\delta$ is $(1-e^{-m})\,e^{-m\delta}$. All keys at distance $w$ or more *together* get $e^{-mw}$, at most `tol`. So for a tolerance of 1% the window also holds at least 99% of the attention. Neither reading counts content: a key whose content score is higher by 10 is seen $10/m$ positions farther.

# %% [markdown]
# ### Exercise 4.7 · Effective window
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* the window tells you, before any training, what a head will hardly look at.

# %% nbgrader={"grade_id": "effective_window", "solution": true}
def effective_window(slope, tol=0.01):
    """The least whole distance, 0 included, at which exp(-slope * distance) is at most tol.

    (If rounding decides whether the factor is above tol, one more or one less is accepted. With tol 1 the distance is 0.)

    slope:   positive; tol: above 0 and at most 1; both plain numbers or 0-d tensors
    returns: a Python int
    """
    ### BEGIN SOLUTION
    return math.ceil(-math.log(float(tol)) / float(slope))
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint</summary>
#
# Solve $e^{-m w}=\texttt{tol}$ for $w$ with the natural logarithm. "At most tol" at a *whole* distance: which way do you round?
# </details>

# %% nbgrader={"grade_id": "effective_window_check", "grade": true, "points": 0}
# Visible check (0 points).
for slope, tol in ((0.3, 0.01), (0.05, 0.2)):
    window = effective_window(slope, tol)
    assert isinstance(window, int), f"a Python int expected, got {type(window).__name__}."
    assert math.exp(-slope * window) <= tol, (
        f"slope {slope}: at distance {window} the factor is {math.exp(-slope * window):.4f}, still above {tol}. Rounded "
        "down?")
    assert math.exp(-slope * (window - 1)) > tol, (
        f"slope {slope}: at distance {window - 1} the factor is already {math.exp(-slope * (window - 1)):.4f}; the "
        "exercise asks for the least distance.")
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

# %% [markdown] tags=["prediction"]
# **Predict.** (a) The last head of eight sees farthest: about how many tokens? (b) What do 64 heads give you that 8 do not? (c) A text has 8,192 tokens. What becomes of a word at its beginning?
#
# *Your prediction:*

# %% tags=["experiment"]
lab.table(["8 heads", *range(8)], [["slope", *(f"1/{round(1 / float(s))}" for s in alibi_slopes(8))],
                                  ["window (tokens)", *(effective_window(float(s)) for s in alibi_slopes(8))]])
print()
layers = (4, 8, 12, 32, 64)
lab.table(["heads in the layer", *layers],
          [["farthest window (tokens)", *(effective_window(float(alibi_slopes(h).min())) for h in layers)]])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.10: run this cell
fig, axes = lab.figure("How far back each head sees", ncols=3, height=3.7, sharex=True)
for ax, n_heads in zip(axes, (4, 8, 12)):
    for head, slope in enumerate(alibi_slopes(n_heads).tolist()):
        bar = ax.barh(head, effective_window(slope) - 0.8, left=0.8, height=0.62, color=lab.SKY)
        tick, = ax.plot(math.log(2) / slope, head, marker="|", linestyle="none", markersize=9, markeredgewidth=2,
                        color=lab.BLACK)
    ax.set_xscale("log", base=10)
    ax.set(title=f"{n_heads} heads", xlabel="distance back from the query", xlim=(2000, 0.8), ylim=(n_heads - 0.4, -0.6))
    ax.set_xticks([1000, 100, 10, 1], ["1,000", "100", "10", "1"])
    ax.set_yticks(range(n_heads))
    ax.axvline(effective_window(2.0**-8), color=lab.GREY, linewidth=1, linestyle="--")
axes[0].set_ylabel("head")
axes[0].text(1000, 0, "window of\nslope 1/256", fontsize=9, va="center", color="#444444")
fig.legend([bar, tick], ["bar: effective window", "tick: half-life"], loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# **Figure 4.10. Reach along a text.** The query is at the right edge; each bar reaches back over the effective window of one head (log scale, tolerance 1%), and its black tick marks the half-life. Dashed: the window of slope 1/256.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# (a) With 8 heads the last one, slope 1/256, sees farthest: 1,179 tokens. (b) With 64 heads the farthest window is the same: more heads fill the range more densely and extend it at the near end only. The 8 in equation (3) sets the range; `configuration_mpt.py` of `transformers` 5.23 calls it `alibi_bias_max`. With 12 heads the order jumps back: the last four are local again.
#
# (c) In one layer a word that lies 8,000 tokens back has a distance factor of at most $e^{-8000/256}\approx 3\cdot10^{-14}$. A better content score can pay for that: at $1/256$ per position it must be higher by 31. Stacked layers can pass information on from window to window. But a model trained on short texts never had to learn this relay. So "ALiBi extrapolates" means that *the loss does not explode* beyond the training length, not that the model uses the far text. Press et al. suspect the same (appendix B.2): beyond its training length ALiBi may not use the longer context at all. Week 5 measures it.
# </details>

# %% [markdown]
# ## 8 · Both sides alike
#
# ALiBi was made for decoders. In an encoder there is no mask, and the two-sided bias $-m\,|i-j|$ treats "three before" and "three after" alike. Can the layer still tell one direction from the other?
#
# Let $J$ be the reversal: $(Jx)_i=x_{n-1-i}$. Compare three things: what the layer makes of $x$, of the reversed $Jx$, and of a shuffled $Px$ ($P$ as in week 1).

# %% [markdown] tags=["prediction"]
# **Predict.** Without a mask, does your layer give the reversed output for the reversed input, and the shuffled output for the shuffled input? What changes with the causal mask?
#
# *Your prediction:*

# %% tags=["experiment"]
torch.manual_seed(5)
layer, tokens = ALiBiMultiHeadAttention(32, 4), torch.randn(1, 12, 32)
orders = {"reversed": torch.arange(11, -1, -1), "shuffled": torch.randperm(12)}
rows = []
for causal in (False, True):
    with torch.no_grad():
        out = layer(tokens, is_causal=causal)
        outs = {name: layer(tokens[:, order], is_causal=causal) for name, order in orders.items()}
    gaps = [float((outs[name] - out[:, order]).abs().max()) for name, order in orders.items()]
    means = [float((outs[name].mean(1) - out.mean(1)).abs().max()) for name in orders]
    rows.append(["with the causal mask" if causal else "no mask",
                 *("0.0000" if gap < 5e-5 else f"{gap:.1f}" for gap in gaps),
                 *("0.0000" if gap < 5e-5 else "differs" for gap in means)])
lab.table(["gap: layer(x[order]) and layer(x)[order]", "reversed", "shuffled", "mean, reversed", "mean, shuffled"],
          rows)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 4.11: run this cell
q, k = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(6))
def weights(order, causal):
    scores = q[order] @ k[order].T / math.sqrt(8) + alibi_bias(4, 6)[0]
    hidden = torch.ones(6, 6).triu(1).bool() & causal
    return scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, math.nan)  # nan stays white

forwards, backwards = torch.arange(6), torch.arange(5, -1, -1)
fig, axes = lab.figure("Attention of a sequence, and of its reverse turned back", ncols=4, height=2.8,
                       sharey=True)
fig.get_layout_engine().set(h_pad=0.09)
for pair, (name, causal) in zip((axes[:2], axes[2:]), (("no mask", False), ("causal", True))):
    there, back = weights(forwards, causal), weights(backwards, causal).flip(0, 1)
    gap = float((there.nan_to_num() - back.nan_to_num()).abs().max())
    for ax, picture, title in zip(pair, (there, back), (name, f"{name}, reversed:\nlargest change {gap:.2f}")):
        image = ax.imshow(picture, vmin=0, vmax=1, interpolation="nearest")
        ax.set(title=title, xlabel="key (token number)", xticks=range(6), yticks=range(6))
axes[0].set_ylabel("query (token number)")
bar = fig.colorbar(image, ax=axes, shrink=0.8)
bar.ax.set_title("weight", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# **Figure 4.11. Reversal.** In the second and fourth panel the six tokens went in backwards, and rows and columns are turned back, so that every token is in its place again. White: hidden by the mask. Compare the first panel with the second, and the third with the fourth.

# %% [markdown] nbgrader={"grade_id": "reversal_question", "locked": true}
# ### Exercise 4.8 · Which way round?
#
# **2 points · difficulty 3/5 · 30 minutes · text, graded by a person**
#
# *Why it matters:* an encoder can see every distance and still miss something that no amount of training will teach it.
#
# Let $A$ be a self-attention layer with the bias $-m\,|i-j|$ in every head and **no mask**, and $J$ the reversal, $(Jx)_i=x_{n-1-i}$.
#
# 1. Show that $A(Jx)=J\,A(x)$. Name the property of the bias that you use.
# 2. An encoder consists of such layers and of parts that treat every token by itself (MLP, layer norm, residuals), with a mean over the tokens at the end. What follows for a sequence and its reverse? Name one change that gives the model a direction, and say at which step it breaks your proof.
# 3. Somebody writes: "with symmetric ALiBi, shuffled tokens give the same attention, so it is as blind as no encoding at all." Right or wrong? Use the measurement.
#
# Part 1 earns one point, the others half a point each. Ten lines are enough.
#
# ### BEGIN MARK SCHEME
# 2 points; half points are allowed.
#
# - 1 point (part 1): the score of queries and keys $i,j$ of the reversed input is $q_{i'}\cdot k_{j'}/\sqrt d-m|i-j|$ with $i'=n-1-i$, $j'=n-1-j$, and $|i'-j'|=|i-j|$, so it is the score of $i',j'$ of the original; softmax and the weighted sum run over all keys, whose order does not matter; hence output $i$ of $Jx$ is output $n-1-i$ of $x$. Half a point if the property $|i'-j'|=|i-j|$ is named but the step through softmax and sum is missing.
# - Half a point (part 2): token-wise parts commute with $J$, so the whole stack does, and the mean is the same for both: the model cannot tell them apart, whatever its weights. A valid change with the place it breaks: a causal mask ($j\le i$ becomes $j'\ge i'$), another slope for keys after the query than before, a signed or learned bias by offset, RoPE or position embeddings; heads that look to one side only; a fixed token in front of both texts.
# - Half a point (part 3): wrong. A shuffle changes distances, so weights and outputs change (the measured gap is far above rounding; only the gap under reversal is 0): flip-equivariant, not permutation-equivariant.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "reversal", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Write $i'=n-1-i$. Token $i$ of $Jx$ is token $i'$ of $x$, so its query, key and value are $q_{i'}, k_{i'}, v_{i'}$. The score of the pair $(i,j)$ in $Jx$ is $q_{i'}\cdot k_{j'}/\sqrt d-m\,|i-j|$. Now $|i'-j'|=|(n-1-i)-(n-1-j)|=|i-j|$: **the distance does not change under reversal.** So it is exactly the score of the pair $(i',j')$ in $x$. Without a mask the softmax and the weighted sum run over all keys, and a sum does not depend on the order of its terms. Therefore output $i$ of $Jx$ is output $i'$ of $x$, in every head, and o_proj acts on each token by itself: $A(Jx)=J\,A(x)$.
#
# 2. Parts that treat each token by itself commute with $J$, so the whole encoder $E$ does: $E(Jx)=J\,E(x)$. The mean over the tokens is the same for $E(x)$ and $J\,E(x)$. The model gives a sequence and its reverse the same answer, whatever its weights. A causal mask breaks it: "key not after the query", $j\le i$, becomes $j'\ge i'$ after the reversal, so the sum runs over other keys. So do different slopes for keys before and after the query: then the bias of $(i,j)$ is no longer that of $(i',j')$.
#
# 3. Wrong. A shuffle changes distances, and with them scores and outputs: the measured gap is far from zero. Only the reversal, which keeps all distances, gives a gap of zero up to rounding. The layer is flip-equivariant, not permutation-equivariant: it knows how far, but not which way.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint</summary>
#
# Give the reversed position of $i$ a name, $i'=n-1-i$, and write down the score of the pair $(i,j)$ of the reversed sequence.
# </details>

# %% [markdown]
# ## 9 · In the wild
#
# Open the code of BLOOM, [`modeling_bloom.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/bloom/modeling_bloom.py), and of MPT, [`modeling_mpt.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/mpt/modeling_mpt.py), both of `transformers` 5.23.0.
#
# | there | yours | look for |
# |---|---|---|
# | `_get_alibi_slopes` (BLOOM) | 4.2 | Rule (4) as two series of powers. Where is the "every second slope"? |
# | `build_alibi_tensor` (BLOOM) | equation (6) | Which position does a padded token get? What is the last thing that happens to the result? |
# | `BloomAttention.forward` | 4.6 | One call adds the bias and scales the product. Does it scale the bias? |
# | `build_mpt_alibi_tensor` (MPT) | 4.2, Figure 4.7 | From which key does it count? It cuts off surplus slopes at the end: does it end up in your order? |
#
# <details><summary>Answers</summary>
#
# - The second series takes only odd powers: `torch.arange(1, …, 2)`.
# - A padded token gets position 0, since the positions are multiplied by the mask. At the end the bias is cast to the model's dtype: `.to(dtype)`. With `torch.bfloat16` this gives the ties of section 5.
# - No. In `alibi.baddbmm(…, beta=self.beta, alpha=self.inv_norm_factor)` the factor `alpha` scales the product and `beta`, which is 1, the bias.
# - MPT counts from the last key, whose bias is 0, and stays in float32. It computes the slopes of the next power of two. It moves the second, fourth, … to the front, and keeps the first $h$: that is rule (4).
# </details>
#
# **Back to the first question.** Yes: with ALiBi no *distance* beyond the training length is strange, it only costs more. You pay elsewhere. A head cannot look for an exact offset, it hardly sees beyond its window, and a flat loss does not mean that the model reads the far text.

# %% [markdown]
# ## 10 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Explain ALiBi in two sentences.</summary>
#
# No position is added to the tokens. Each head subtracts from its scaled scores a fixed slope times the distance, so the weight of a key decays exponentially, at a different rate in every head.
# </details>
#
# <details><summary>2. What is learned about positions, and what does it cost?</summary>
#
# Nothing is learned. The cost is one addition per score. A bias tensor of all heads, queries and keys is large; FlashAttention (since 2.4) takes the slopes themselves.
# </details>
#
# <details><summary>3. Public code adds slope × j, without any query position. Is that a bug?</summary>
#
# Not under a causal mask, as long as the precision suffices: there the weights are the same (4.5). In bfloat16 neighbouring keys tie (section 5), and where a query sees later keys, it is a bug.
# </details>
#
# <details><summary>4. One decoding step with a cache: what is the bias?</summary>
#
# The last row of the square matrix. Distance 0 belongs to the last key.
# </details>
#
# <details><summary>5. Can you use ALiBi in an encoder?</summary>
#
# Yes, with $-m|i-j|$, but then reversed input gives reversed output. The authors list remedies in issue 5 of their repository; you named one in 4.8.
# </details>
#
# <details><summary>6. You load a 12-head checkpoint, and the text is nonsense. What do you check?</summary>
#
# First the slopes, by rule (4) and unsorted. Then the sign, the scaling, and whether a position embedding is added as well.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Head 0 has the smallest slope and looks far | For powers of two it has the *largest*, $2^{-8/h}$, and is the most local; the last, $2^{-8}$, looks farthest. | Figures 4.4, 4.10 |
# | One formula fits every number of heads | Of the numbers 1 to 64, it is wrong for the 57 that are not powers of two. | Figure 4.3 |
# | In bfloat16 ALiBi only the bias is rounded | In BLOOM's layer its sum with the content is, too: a lead of 6 can vanish. | section 5 |
# | ALiBi uses contexts of any length | Beyond the training length its loss may stay flat, but its slopes limit its reach. | Figure 4.10, week 5 |
# | Code Llama was trained with ALiBi | It uses RoPE, with base $10^6$. | Rozière et al. |
#
# ## Takeaways
#
# 1. A straight line in the scores is an exponential in the weights; a slope is a half-life.
# 2. Scale, add the bias, mask, softmax.
# 3. In low precision, count from the query.
#
# ## References
#
# - O. Press, N. A. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, ICLR 2022, arXiv:2108.12409. Abstract (the headline), section 3 (the method, the slopes; footnote 10: the bias is not scaled), appendix B.2 (does it use the longer context?).
# - Their code: ofirpress/attention_with_linear_biases, [`fairseq/models/transformer.py`](https://github.com/ofirpress/attention_with_linear_biases/blob/3b7c2eca8397d27be08c6dffad9b60855507f9b7/fairseq/models/transformer.py) (`get_slopes` for any number of heads; the bias per key, added to the causal mask), and issue 5 (encoders: that bias is right only on and below the diagonal).
# - BigScience Workshop: *BLOOM: A 176B-Parameter Open-Access Multilingual Language Model*, 2022, arXiv:2211.05100. Its code in huggingface/transformers 5.23.0, `modeling_bloom.py` (the bias per key, cast to the model's dtype); also `modeling_mpt.py` (counted from the last key).
# - B. Rozière et al.: *Code Llama: Open Foundation Models for Code*, 2023, arXiv:2308.12950 (RoPE with base $10^6$).
# - S. Chen, S. Wong, L. Chen, Y. Tian: *Extending Context Window of Large Language Models via Positional Interpolation*, 2023, arXiv:2306.15595.
# - F. Al-Khateeb, N. Dey, D. Soboleva, J. Hestness: *Position Interpolation Improves ALiBi Extrapolation*, 2023, arXiv:2310.13017. N. Dey et al.: *BTLM-3B-8K*, 2023, arXiv:2309.11568 (a model with ALiBi).
# - On record: meta-pytorch/attention-gym, pull request 86 (the sign); lucidrains/x-transformers, pull request 88 (a bias that was right only under a causal mask); mosaicml/llm-foundry, issue 186 (why one row per head is enough); HabanaAI/vllm-fork, pull requests 503 and 1055 (float32 biases for long sequences); Dao-AILab/flash-attention, pull request 540 (ALiBi since 2.4) and issue 1666 (not in FlashAttention 3).
