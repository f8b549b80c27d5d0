# %% [markdown]
# # Week 5 · Beyond the training length
#
# **The week in one sentence.** A model trained on short texts meets two new things in a long one: angles (or vectors, or distances) that it has never seen, and more keys that compete for its attention; you will compute both, mend what can be mended, and measure what the repair is worth.
#
# ## What you will be able to do
#
# - say which pairs of a RoPE model are in trouble beyond the training length, and compute it before you run anything;
# - write position interpolation, NTK-aware scaling, its dynamic form and YaRN, and tell by how much each slows each pair;
# - measure a loss by length so that the numbers can be compared;
# - say which of six encodings survives two, four and eight times the training length in a small language model, with the spread over training runs, and which popular expectations do not hold there;
# - explain attention dilution, and what multiplying by log n does against it;
# - show that a flat perplexity can hide a lost context.
#
# **You need** weeks 1 to 4, above all RoPE (week 3) and ALiBi (week 4). The encodings themselves come ready in `ready_encodings.py`.
#
# **Time:** about 220 minutes of exercises and 60 of reading and experiments. The complete notebook runs in about a minute on two CPU cores; every cell that trains says how long it takes. Short of time? 5.1, 5.5 and 5.6 are the core, and 5.7 is what it is all for.
#
# ## The exercises: 33 points
#
# | # | exercise | kind | points for: the visible check | the hidden tests | a person | minutes |
# |---|---|---|---|---|---|---|
# | 5.1 | `unturned_pairs` | numbers | 0 | 3 | – | 15 |
# | 5.2 | `position_interpolation` | code | 0 | 2 | – | 10 |
# | 5.3 | `ntk_base` | code | 0 | 3 | – | 10 |
# | 5.3 | `ntk_by_hand` | numbers | 0 | 1 | – | 5 |
# | 5.4 | `dynamic_ntk_base` | code | 0 | 2 | – | 15 |
# | 5.5 | `yarn_frequencies` | code | 0 | 4 | – | 25 |
# | 5.5 | `yarn_temperature` | code | 0 | 2 | – | 10 |
# | 5.5 | `yarn_by_hand` | numbers | 0 | 1 | – | 5 |
# | 5.6 | `loss_by_length` | code | 0 | 4 | – | 30 |
# | 5.7 | `extrapolation_explained` | text | – | – | 5 | 40 |
# | 5.8 | `log_n_scale` | code | 0 | 2 | – | 15 |
# | 5.9 | `needle_explained` | text | – | – | 2 | 20 |
# | 5.10 | `ascending_explained` | text | – | – | 2 | 20 |
# | | **total** | | **0** | **24** | **9** | **220** |
#
# **How the points are given.** Below each answer stands a *visible check*. It carries **0 points**. Run it as often as you like: it says what is wrong and why. (Of numbers by hand it looks at the form only.) The *hidden tests* carry **all** the points of a code or number exercise. They run when your notebook is graded, with other inputs and more cases than the check. A passed check is a good sign, not a mark. The three text answers are read by a person.
#
# **A mistake is paid for once.** 5.4 builds on 5.3. If your `ntk_base` returns wrong numbers and `dynamic_ntk_base` uses it rightly, 5.4 gets its points. (Unless `ntk_base` raises an error or gives the same base for every scale.)
#
# **Cells marked *predict*** ask you to commit to an answer before you look at a result. They are not graded. Do them anyway: several results of this week are not what most people expect.

# %% [markdown]
# ### Conventions of this week
#
# - $d$ is the **head dimension**, $i$ the number of a **pair** of channels, $i=0,\dots,\frac d2-1$, as in week 3. Pair $i$ turns by $\theta_i=\text{base}^{-2i/d}$ radians per position.
# - $L$ is the length the model was trained on (`original_len`), $n$ the length it is used on, $s$ the factor by which a method stretches (`scale`). "4x" means $n=4L$.
# - Losses are in nats per character. A lower loss is better.
# - Your functions return the dtype and device of their input unless said otherwise, keep gradients, and never change an argument in place.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import lab
import ready_encodings as ready

lab.use_style()
torch.manual_seed(0)
np.random.seed(0)

# %% [markdown]
# ## 1 · What is new in a long text
#
# Train a model on texts of $L$ tokens. Then give it a text of $4L$. The rules of the language are the same. Why should it fail?
#
# - **New positions or distances.** The encoding hands the model something it has never had to handle: a row of a table that no gradient has touched, a sinusoid with a new combination of values, a rotation by a new angle, a larger bias.
# - **More keys.** A softmax over $4L$ keys shares its weight among four times as many. What one key must do to be heard changes with the length, whatever the encoding.
#
# The first is the subject of sections 1 to 6, the second of section 7.
#
# For RoPE the first point can be made exact. Pair $i$ turns by $\delta\,\theta_i$ for a query and a key that are $\delta$ apart. In training the distances go from 0 to $L-1$. A **fast** pair goes round many times within $L$ positions: whatever angle a long text asks for, the model has seen it. A **slow** pair does not even complete one turn. The model has seen only an arc of its circle, and the first distance beyond $L$ takes it to an angle outside this arc.
#
# So it is the *slow* pairs, the low frequencies, that get into trouble. You may read it the other way round.
#
# **A worked example.** $d=8$, base $10\,000$, $L=100$. The speeds are $1, 0.1, 0.01, 0.001$. One turn takes $2\pi/\theta_i$: $6.3$, $63$, $628$ and $6283$ positions. In 100 positions the pairs make $15.9$, $1.59$, $0.159$ and $0.0159$ turns. Two pairs complete a turn, two never do. Where would the boundary lie if $i$ could be any real number? One turn takes exactly $L$ positions where
#
# $$\frac{2\pi}{\theta_i}=L\iff \text{base}^{2i/d}=\frac{L}{2\pi}\iff i=\frac d2\cdot\frac{\ln\big(L/2\pi\big)}{\ln \text{base}}, \tag{1}$$
#
# here $i=4\cdot\ln(15.9)/\ln(10\,000)=1.202$. Pairs 0 and 1 lie below, pairs 2 and 3 above.

# %% [markdown]
# ### Exercise 5.1 · Pairs that never turn
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* this count says how much of a model is in trouble beyond its training length. All of YaRN hangs on equation (1).
#
# Take the dimensions of Llama 2: $d=128$, base $10\,000$, $L=4096$. Work out the entries below with a calculator or `math.log`. Give **at least four significant digits**; counts are whole numbers.

# %% tags=["by-hand"] nbgrader={"grade_id": "unturned_pairs", "solution": true}
# Replace every None by a number, at least four significant digits.
unturned_pairs = {
    "turns_first": None,  # how many turns pair 0 makes in 4096 positions
    "turns_last": None,  # how many turns the last pair makes in 4096 positions
    "boundary": None,  # the real number i at which one turn takes exactly 4096 positions
    "complete": None,  # how many of the 64 pairs complete at least one turn
    "never": None,  # how many never do
}
### BEGIN SOLUTION
unturned_pairs |= {
    "turns_first": 651.90,  # 4096 / (2 pi)
    "turns_last": 0.075281,  # 4096 / (2 pi) / 10000**(126/128)
    "boundary": 45.027,  # 64 * ln(651.9) / ln(10000)
    "complete": 46,  # pairs 0 to 45
    "never": 18,  # pairs 46 to 63
}
### END SOLUTION

# %% nbgrader={"grade_id": "unturned_pairs_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(unturned_pairs, dict), "unturned_pairs must stay a dictionary; fill in its values."
for key in ("turns_first", "turns_last", "boundary", "complete", "never"):
    assert key in unturned_pairs, f"the key {key!r} is missing: keep the names of the cell above."
    value = unturned_pairs[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), (
        f"{key!r} must be a plain number such as 0.5403, not {type(value).__name__}.")
    assert math.isfinite(value), f"{key!r} must be finite, got {value}."
for key in ("complete", "never"):
    assert unturned_pairs[key] == int(unturned_pairs[key]), f"{key!r} counts pairs: a whole number is expected."
assert len(unturned_pairs) == 5, "there are more than the five keys asked for: remove the others."
print("Five finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "unturned_pairs_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.unturned_pairs(unturned_pairs)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Pair $i$ turns by $\theta_i$ radians per position. One turn is $2\pi$ radians. So in $L$ positions it makes $L\,\theta_i/2\pi$ turns.
# </details>
#
# <details><summary>Hint 2</summary>
#
# There are $d/2=64$ pairs, numbered from 0. The last one has the number 63, and $2i/d=126/128$.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Equation (1) gives the boundary. Pairs are counted from 0: if the boundary were 1.2, pairs 0 and 1 would complete a turn. These are two pairs.
# </details>

# %% [markdown]
# ### Experiment: how much of its circle has each pair seen?
#
# For a model with $d=64$ and $L=2048$ we draw one bar per pair. Its height is the part of the circle that a text of length $n=4L$ visits. The part that training has visited is blue; what is new is orange-red.

# %% [markdown] tags=["prediction"]
# **Predict.** In which pairs does a text of $4L$ visit angles that training has not seen: the first ones, the last ones, or some in the middle? Roughly how many?
#
# *Your prediction:*

# %% tags=["experiment"]
def coverage(ax, frequencies, title, reach=1.0, trained=2048, factor=4):
    """Bars: part of the circle visited at factor * trained. ``reach`` multiplies the positions (1/scale for PI)."""
    plain = ready.frequencies_of(2 * len(frequencies))
    seen = (trained * plain / (2 * math.pi)).clamp(max=1)
    asked = (factor * trained * reach * frequencies.double() / (2 * math.pi)).clamp(max=1)
    pair = torch.arange(len(frequencies))
    ax.bar(pair, torch.minimum(seen, asked), width=1, color=lab.SKY, edgecolor="white", linewidth=0.3,
           label="seen in training")
    new = (asked - seen).clamp(min=0)
    new[new < 1e-9] = 0
    ax.bar(pair, new, width=1, bottom=seen, color=lab.VERMILLION, edgecolor="white", linewidth=0.3, hatch="////",
           label="new")
    ax.set(title=title, xlabel="pair i", ylim=(0, 1.05), xlim=(-1, len(frequencies)))
    return int((new > 1e-6).sum())

fig, ax = lab.figure("Part of its circle that each pair visits at 4x", height=3.2)
new_pairs = coverage(ax, ready.frequencies_of(64), "RoPE with head_dim 64, trained on 2,048, nothing changed")
ax.set_ylabel("part of the circle")
fig.legend(*ax.get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
print(f"pairs with new angles at 4x: {new_pairs} of 32")


# %% [markdown]
# **Figure 5.1. Seen and unseen angles.** One bar per pair, fast pairs on the left; 1 is the whole circle. Pairs 0 to 20 have been all round in training: nothing new can happen to them. The last pairs have seen an arc only, and at four times the length they enter new territory, hatched. Their number is the "never" of this model, which equation (1) puts at $i=20.1$. Everything in sections 2 to 5 is an attempt to make the orange-red part disappear at the least cost.

# %% [markdown]
# ## 2 · Position interpolation: squeeze the ruler
#
# The first idea: divide all positions by $s$. A text of $4L$ then has the positions $0, \frac14, \frac24, \dots$, and no distance is longer than in training (Chen et al., 2023). That positions may be fractions was prepared in week 3.
#
# $$m \mapsto \frac ms\qquad\text{or, which is the same,}\qquad \theta_i\mapsto\frac{\theta_i}{s}\ \text{ for every pair.} \tag{2}$$
#
# The price: *all* pairs slow down, the fast ones too. Two neighbours that were one radian apart on pair 0 are now a quarter of a radian apart. The model has to read a ruler whose marks are four times as close as those it learned. Chen et al. therefore fine-tune the model briefly after the change. In section 6 you will see what happens without.

# %% [markdown]
# ### Exercise 5.2 · Position interpolation
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* one line, with one trap: positions are usually *integers*, and integers cannot hold a quarter.

# %% nbgrader={"grade_id": "position_interpolation", "solution": true}
def position_interpolation(positions, scale):
    """Positions for a model that is stretched by ``scale``: equation (2).

    positions: tensor of any shape, integers or floats
    scale:     float, usually > 1
    returns:   a new tensor of the same shape; float32 for integer positions, else the dtype of positions (in half
               precision far positions merge, as in week 3; that is up to the caller)
    """
    ### BEGIN SOLUTION
    if not positions.is_floating_point():
        positions = positions.to(torch.float32)
    return positions / scale
    ### END SOLUTION


# %% nbgrader={"grade_id": "position_interpolation_check", "grade": true, "points": 0}
# Visible check (0 points).
positions = torch.arange(8)
out = position_interpolation(positions, 4.0)
assert out.dtype == torch.float32, f"integer positions must give float32, got {out.dtype}."
assert tuple(out.shape) == (8,), f"shape (8,) expected, got {tuple(out.shape)}."
assert float(out[4]) < 4, "positions must become smaller: divide by the scale, do not multiply."
assert float(out[1]) != 0, "position 1 became 0: that is a whole-number division. A quarter must stay a quarter."
assert torch.allclose(out, torch.tensor([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75])), (
    "with scale 4, positions 0, 1, 2, ... become 0, 0.25, 0.5, ...")
assert torch.equal(positions, torch.arange(8)), "your function changed its argument; work on a new tensor."
out = position_interpolation(torch.tensor([[3.0, 1.5]], dtype=torch.float64), 2.0)
assert out.dtype == torch.float64 and tuple(out.shape) == (1, 2), (
    f"floats keep their dtype and any shape is allowed: float64 (1, 2) expected, got {out.dtype} {tuple(out.shape)}.")
print("Looks right. The hidden tests try other dtypes, shapes and scales.")

# %% nbgrader={"grade_id": "position_interpolation_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.position_interpolation(position_interpolation)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In PyTorch `/` divides integers as real numbers, `//` does not. Which dtype comes out of `/` for int64?
# </details>
#
# <details><summary>Hint 2</summary>
#
# `tensor.is_floating_point()` tells the two cases apart.
# </details>

# %% [markdown]
# ## 3 · NTK-aware scaling: slow down the slow ones
#
# Position interpolation does too much: the fast pairs were in no danger. The second idea changes the **base** instead of the positions (bloc97, 2023, in a post on r/LocalLLaMA; restated in the YaRN paper). Replace $b$ by a larger $b'$. Pair $i$ then turns with $b'^{-2i/d}$:
#
# - pair 0 keeps its speed: $b'^{0}=1$, whatever $b'$ is;
# - every later pair slows down, the last one most.
#
# How large must $b'$ be? Ask that the *last* pair, $i=\frac d2-1$, be slowed down by exactly $s$, as in position interpolation:
#
# $$b'^{-(d-2)/d}=\frac{b^{-(d-2)/d}}{s}\quad\Longleftrightarrow\quad b'=b\cdot s^{\,d/(d-2)}. \tag{3}$$
#
# **An example.** $b=10\,000$, $s=2$, $d=64$: $b'=10\,000\cdot2^{64/62}=20\,452$. (If you read "about 20,700" somewhere: compute it.) "NTK" stands for *neural tangent kernel*: the argument that led to the idea came from there. It is not needed to understand the method.

# %% [markdown]
# ### Exercise 5.3 · The new base
#
# **4 points (3 + 1) · difficulty 2/5 · 10 + 5 minutes · code and numbers**
#
# *Why it matters:* it stretches a model by changing one number.

# %% nbgrader={"grade_id": "ntk_base", "solution": true}
def ntk_base(base, scale, head_dim):
    """The base with which the last pair turns ``scale`` times slower and the first as fast as before: equation (3).

    base:     float
    scale:    float
    head_dim: even int, at least 4
    returns:  a Python float
    """
    ### BEGIN SOLUTION
    return base * scale ** (head_dim / (head_dim - 2))
    ### END SOLUTION


# %% nbgrader={"grade_id": "ntk_base_check", "grade": true, "points": 0}
# Visible check (0 points).
new_base = ntk_base(10000.0, 2.0, 64)
assert isinstance(new_base, float), f"a Python float is expected, got {type(new_base).__name__}."
assert new_base > 10000, "stretching must make the base larger."
assert abs(ntk_base(10000.0, 1.0, 64) - 10000) < 1e-6, "scale 1 must change nothing."
assert abs(new_base - 20000) > 1, (
    "base times scale is not enough: the last pair's exponent is -(d-2)/d and not -1. See equation (3).")
last_before, last_after = 10000.0 ** (-62 / 64), new_base ** (-62 / 64)
assert abs(last_before / last_after - 2) < 1e-3, (
    f"with scale 2 the last pair must turn 2 times slower; with your base it turns {last_before / last_after:.3g} "
    "times slower. Is the exponent d/(d-2)?")
assert abs(new_base - 20452) < 5, "the example in the text, scale 2 and head_dim 64, gives 20,452."
print("Looks right. The hidden tests try other bases, scales and dimensions.")

# %% nbgrader={"grade_id": "ntk_base_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.ntk_base(ntk_base)
### END HIDDEN TESTS

# %% [markdown]
# **By hand.** For base 10,000, scale 4 and head_dim 64: the new base, to **five significant digits**, and the ratio *new speed / old speed* of the first and of the last pair.

# %% tags=["by-hand"] nbgrader={"grade_id": "ntk_by_hand", "solution": true}
# Replace every None by a number; new_base to five significant digits, the others to four.
ntk_by_hand = {
    "new_base": None,  # base 10000, scale 4, head_dim 64
    "first_pair_ratio": None,  # new speed / old speed of pair 0
    "last_pair_ratio": None,  # new speed / old speed of pair 31
}
### BEGIN SOLUTION
ntk_by_hand |= {
    "new_base": 41829.0,  # 10000 * 4**(64/62) = 10000 * 4 * 4**(1/31)
    "first_pair_ratio": 1.0,  # any base to the power 0
    "last_pair_ratio": 0.25,  # that is how the base was chosen
}
### END SOLUTION

# %% nbgrader={"grade_id": "ntk_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(ntk_by_hand, dict), "ntk_by_hand must stay a dictionary; fill in its values."
for key in ("new_base", "first_pair_ratio", "last_pair_ratio"):
    assert key in ntk_by_hand, f"the key {key!r} is missing: keep the names of the cell above."
    value = ntk_by_hand[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), f"{key!r} must be a plain number, not {type(value).__name__}."
    assert math.isfinite(value), f"{key!r} must be finite, got {value}."
assert len(ntk_by_hand) == 3, "there are more than the three keys asked for: remove the others."
print("Three finite numbers. The hidden test asks for four significant digits, for the new base for five.")

# %% nbgrader={"grade_id": "ntk_by_hand_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.ntk_by_hand(ntk_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The exponent is a real number a little above 1. Python's `**` takes it; mind the brackets.
# </details>
#
# <details><summary>Hint 2 (by hand)</summary>
#
# $4^{64/62}=4\cdot4^{1/31}=4\cdot e^{\ln 4/31}$.
# </details>
#
# <details><summary>Hint 3 (by hand)</summary>
#
# The ratios need no calculator. Which two conditions was equation (3) made from?
# </details>

# %% [markdown]
# ## 4 · Dynamic NTK: stretch only as far as needed
#
# A fixed $s$ has a price at every length: a model that is stretched for $8L$ runs with changed angles on short texts too. *Dynamic* scaling computes the base from the current length $n$ (emozilla, 2023, r/LocalLLaMA; `transformers` calls it `"dynamic"`):
#
# $$b'(n)=b\cdot\Big(\underbrace{s\,\frac nL-(s-1)}_{\text{effective stretch }\alpha(n)}\Big)^{d/(d-2)}\quad\text{for } n>L,\qquad b'(n)=b\quad\text{for } n\le L. \tag{4}$$
#
# At $n=L$ the stretch is exactly 1, so nothing jumps. What is $s$ here? Not the factor by which the text grew: that is $n/L$. It says how *fast* the stretch grows. With $s=1$ it is $\alpha=n/L$, that is, NTK-aware scaling with just the factor needed. With $s=8$ at $n=8L$ it is $\alpha=57$. **Whoever reports a result of dynamic NTK must state $s$.**
#
# **Examples** with $d=64$, $L=4096$, base 10,000, $n=8192$: $s=1$ gives $\alpha=2$ and the base 20,452 of section 3; $s=2$ gives $\alpha=3$ and the base 31,082.

# %% [markdown]
# ### Exercise 5.4 · The base for the current length
#
# **2 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* one mistake changes short texts, which were fine. Another one, found in the wild, remembers the longest text so far, so that the answer to a short question depends on who asked before.

# %% nbgrader={"grade_id": "dynamic_ntk_base", "solution": true}
def dynamic_ntk_base(base, scale, head_dim, seq_len, original_len):
    """The base for a text of ``seq_len`` positions: equation (4).

    base, scale:  floats
    head_dim:     even int, at least 4
    seq_len:      int, n in the text
    original_len: int, L in the text; up to it the base stays as it is
    returns:      a Python float that depends on the arguments alone, not on earlier calls
    """
    ### BEGIN SOLUTION
    if seq_len <= original_len:
        return float(base)
    stretch = scale * seq_len / original_len - (scale - 1)
    return base * stretch ** (head_dim / (head_dim - 2))
    ### END SOLUTION


# %% nbgrader={"grade_id": "dynamic_ntk_base_check", "grade": true, "points": 0}
# Visible check (0 points).
at = lambda n, scale=2.0: dynamic_ntk_base(10000.0, scale, 64, n, 4096)
assert isinstance(at(8192), float), f"a Python float is expected, got {type(at(8192)).__name__}."
for n in (1, 1000, 4096):
    assert abs(at(n) - 10000) < 1e-6, f"up to the training length nothing may change; at {n} positions it did."
assert abs(at(8192, scale=1.0) - 20452) < 5, "with scale 1 and twice the length, the base is 20,452, as in section 3."
assert abs(at(8192) - 31082) < 10, (
    f"with scale 2 and twice the length the effective stretch is 2*2 - 1 = 3 and the base 31,082; yours is "
    f"{at(8192):,.0f}.")
assert at(4097) < 10100, "just beyond the training length the base must be almost unchanged: nothing may jump."
long, short = at(16384), at(2048)
assert abs(short - 10000) < 1e-6, "after a long text a short one must get the old base again: keep no state."
print("Looks right. The hidden tests try other lengths, scales and dimensions.")

# %% nbgrader={"grade_id": "dynamic_ntk_base_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.dynamic_ntk_base(dynamic_ntk_base, ntk_base)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Compute the effective stretch $\alpha(n)$ first. Then equation (3) with $\alpha$ in place of $s$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For $n<L$ the formula would give a stretch below 1. This case must be kept out.
# </details>

# %% [markdown]
# ### Experiment: a cache and a moving base do not go together
#
# A decoder keeps the *rotated* keys of earlier tokens (week 3, quiz question 9). With dynamic scaling the base changes with every new token beyond $L$, but the cached keys were rotated with the bases of their time. We let one head grow from 1 to 8,192 tokens with $L=4096$ and compare the last query's scores against a cache filled step by step with the scores when all keys are rotated with the current base.

# %% [markdown] tags=["prediction"]
# **Predict.** Will the scores be right for the keys cached before position 4096, for those cached after, for both, or for none?
#
# *Your prediction:*

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(1)
n, original, dim = 8192, 4096, 64
q, keys = torch.randn(1, 1, 1, dim, generator=generator), torch.randn(1, 1, n, dim, generator=generator)
places = torch.arange(n)
base_at = torch.tensor([dynamic_ntk_base(10000.0, 2.0, dim, int(m) + 1, original) for m in places], dtype=torch.float64)
exponent = torch.arange(0, dim, 2, dtype=torch.float64) / dim

def turned(x, angles):
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos().float(), angles.sin().float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

now = places[:, None] * base_at[-1] ** -exponent
then = places[:, None] * base_at[:, None] ** -exponent
query = turned(q, now[-1:])
fresh, cached = ((query * turned(keys, angles)).sum(-1)[0, 0] for angles in (now, then))
error = (cached - fresh).abs().view(64, 128).mean(1)

fig, ax = lab.figure("Error of the scores with a cache of rotated keys (dynamic NTK, scale 2)", height=3.0)
ax.plot(torch.arange(64) * 128 + 64, error, color=lab.VERMILLION, linestyle="-")
ax.axvline(original, color=lab.GREY, linewidth=1.2, linestyle="--")
ax.text(original + 60, 0.3, "training length", color="#444444", fontsize=9)
ax.axhline(float(fresh.std()), color=lab.GREY, linewidth=1, linestyle=":")
ax.text(n - 60, float(fresh.std()) + 0.2, "typical size of a score", ha="right", color="#444444", fontsize=9)
ax.set(xlabel="position of the key", ylabel="mean error of the score", ylim=(0, 1.2 * float(error.max())),
       xlim=(0, n))
ax.grid(axis="y")
plt.show()


# %% [markdown]
# **Figure 5.2. A stale cache.** The query is the newest token, rotated with the base of now; each key was rotated with the base of its own time. Near position 0 a rotation is small with any base, and the last keys had nearly the base of now: at both ends the error is smaller. In between, also for keys cached within the training length, it is about as large as a score itself: these scores have nothing to do with the right ones. With a moving base the cache must hold keys *before* rotation, or the base must stay fixed during a text.

# %% [markdown]
# ## 5 · YaRN: treat each pair as it deserves
#
# NTK-aware scaling slows down pairs in the middle that were in no danger, and divides only the very last by $s$: all other pairs that never completed a turn still run outside their arc a little. YaRN (Peng et al., 2023) looks at each pair and asks the question of exercise 5.1: how many turns $r$ does it make within $L$?
#
# - more than $\beta_\text{fast}=32$ turns: **leave it alone**. It knows its circle, and its fine differences tell neighbours apart;
# - less than $\beta_\text{slow}=1$ turn: **divide it by $s$**, as position interpolation does. Its angles stay within the arc;
# - between: **mix**, on a linear ramp.
#
# (You may read that YaRN interpolates the high frequencies and applies NTK to the low ones. It does neither.)
#
# The pair that makes exactly $r$ turns is equation (1) with $L/r$ for $L$,
#
# $$\dim(r)=\frac{d\,\ln\!\big(L/(2\pi r)\big)}{2\ln\text{base}}. \tag{5}$$
#
# The official code and `transformers` compute the ramp over the *number of the pair*, and so shall we. Note the four details after the formulas:
#
# $$\text{low}=\max(\lfloor\dim(\beta_\text{fast})\rfloor,\,0),\qquad \text{high}=\min(\lceil\dim(\beta_\text{slow})\rceil,\,d-1), \tag{6}$$
# $$\gamma_i=\text{clamp}\Big(\frac{i-\text{low}}{\text{high}-\text{low}},\,0,\,1\Big),\qquad \theta_i' = (1-\gamma_i)\,\theta_i+\gamma_i\,\frac{\theta_i}{s}. \tag{7}$$
#
# 1. The ends are rounded *outwards*, down and up, to whole pairs.
# 2. They are clamped to 0 and to $d-1$ (so in the code; the largest pair number is $\frac d2-1$).
# 3. If low = high, 0.001 is added to high, against a division by zero.
# 4. $L$ is the *original* length, never the new one. (The paper writes the ramp over the number of turns $r$ itself; the code over $i$. They differ between the ends, and in a small model that is not little: here, with $d=16$ and $L=64$, **no** pair makes 32 turns. $\dim(32)$ is $-0.99$, and pair 0 is left alone only because low is clamped to 0. This exercise asks for the code's form. The paper's temperature is $1/t^2$ in our letters, and its $\gamma$ our $1-\gamma$; `transformers` calls $t$ the `attention_factor`.)
#
# **A worked example**, the size of our model later: $d=16$, $L=64$, $s=4$, base 10,000. $\dim(32)=-0.994$, so low = max(−1, 0) = 0. $\dim(1)=2.016$, so high = 3. The ramp is $\gamma=0,\frac13,\frac23,1,1,1,1,1$, and the speeds are multiplied by $1,\ \frac34,\ \frac12,\ \frac14,\ \frac14,\dots$
#
# **The temperature.** YaRN's authors found that the loss falls if the attention is made a little sharper when the text grows. They multiply cosine *and* sine by
#
# $$t(s)=0.1\ln s+1\quad(s>1),\qquad t=1\quad(s\le1). \tag{8}$$
#
# Both the query and the key carry the factor, so the logits get its *square*. (The paper *divides* the logits by a temperature, as usual; $t(s)$ is one over its square root, so here $t>1$ sharpens.)

# %% [markdown]
# ### Exercise 5.5 · YaRN
#
# **7 points (4 + 2 + 1) · difficulty 4/5 · 25 + 10 + 5 minutes · code and numbers**
#
# *Why it matters:* every detail above can be wrong without an error message.

# %% nbgrader={"grade_id": "yarn_frequencies", "solution": true}
def yarn_frequencies(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    """The speeds of the pairs after YaRN: equations (5) to (7).

    head_dim:     even int; an odd one raises ValueError
    scale:        float, s
    original_len: int, L, the length of the training; so large that low <= high
    returns:      (head_dim/2,) float32 in radians per position, fastest first
    """
    ### BEGIN SOLUTION
    if head_dim % 2:
        raise ValueError(f"RoPE turns pairs of channels, so head_dim must be even, got {head_dim}")

    def pair_with(turns):
        return head_dim * math.log(original_len / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(pair_with(beta_fast)), 0)
    high = min(math.ceil(pair_with(beta_slow)), head_dim - 1)
    if low == high:
        high += 0.001
    pair = torch.arange(head_dim // 2, dtype=torch.float64)
    plain = base ** (-2 * pair / head_dim)
    gamma = ((pair - low) / (high - low)).clamp(0, 1)  # 0: left alone; 1: divided by scale
    return ((1 - gamma) * plain + gamma * plain / scale).float()
    ### END SOLUTION


# %% nbgrader={"grade_id": "yarn_frequencies_check", "grade": true, "points": 0}
# Visible check (0 points). The worked example: head_dim 16, scale 4, original_len 64.
out = yarn_frequencies(16, 4.0, 64)
assert tuple(out.shape) == (8,), f"one speed per pair: shape (8,) expected, got {tuple(out.shape)}."
assert out.dtype == torch.float32, f"float32 expected, got {out.dtype}."
plain = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
factor = out / plain
assert abs(float(factor[0]) - 1) < 1e-4, (
    f"low is clamped to 0, so pair 0 is left alone; yours is multiplied by {float(factor[0]):.3g}. Is the ramp reversed?")
assert abs(float(factor[-1]) - 0.25) < 1e-4, (
    f"the last pair never completes a turn and must be divided by 4; yours is multiplied by {float(factor[-1]):.3g}.")
assert torch.allclose(factor, torch.tensor([1, 0.75, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25]), atol=1e-3), (
    "the ramp of the worked example multiplies the speeds by 1, 3/4, 1/2, 1/4, 1/4, ...; yours by "
    f"{[round(float(f), 3) for f in factor]}. Are low = 0 and high = 3, and does the ramp count pairs, not channels?")
assert torch.allclose(yarn_frequencies(16, 1.0, 64), plain, atol=1e-6), "scale 1 must change nothing."
assert torch.allclose(yarn_frequencies(64, 2.0, 2048)[:9], 10000.0 ** (-torch.arange(0, 18, 2) / 64), rtol=1e-4, atol=0), (
    "with head_dim 64 and original_len 2048, dim(32) = 8.06 is rounded down: pairs 0 to 8 must be left alone.")
last = float(yarn_frequencies(8, 4.0, 1000, base=10.0)[3]) / 10.0 ** (-6 / 8)
assert abs(last - 0.85) < 1e-3, (
    "with head_dim 8, original_len 1000 and base 10, dim(32) = 2.79 and dim(1) = 8.81: low is 2, high is clamped to 7, "
    f"and the last pair is multiplied by 0.85; yours by {last:.3f}. Detail 2.")
step = yarn_frequencies(16, 4.0, 5) / plain
assert torch.allclose(step, torch.tensor([1.0] + 7 * [0.25]), atol=1e-3), (
    "with original_len 5 low and high are both 0: pair 0 is left alone, all others are divided by 4. Detail 3.")
assert lab.raises(ValueError, yarn_frequencies, 7, 4.0, 64), "an odd head_dim must raise ValueError."
print("Looks right. The hidden tests try other sizes, bases and betas, where rounding and clamping show.")

# %% nbgrader={"grade_id": "yarn_frequencies_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.yarn_frequencies(yarn_frequencies)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "yarn_temperature", "solution": true}
def yarn_temperature(scale):
    """The factor on cosine and on sine: equation (8).

    scale:   float
    returns: a Python float; 1.0 for scale <= 1
    """
    ### BEGIN SOLUTION
    return 0.1 * math.log(scale) + 1.0 if scale > 1 else 1.0
    ### END SOLUTION


# %% nbgrader={"grade_id": "yarn_temperature_check", "grade": true, "points": 0}
# Visible check (0 points).
assert isinstance(yarn_temperature(4.0), float), "a Python float is expected."
assert abs(yarn_temperature(1.0) - 1) < 1e-9, "scale 1 must give 1: nothing is stretched."
assert abs(yarn_temperature(0.5) - 1) < 1e-9, "for scale <= 1 the factor is 1."
assert yarn_temperature(8.0) > 1, "the factor makes the attention sharper: it must lie above 1."
assert abs(yarn_temperature(math.e) - 1.1) < 1e-9, (
    f"ln e = 1, so scale e must give 1.1; yours gives {yarn_temperature(math.e):.4g}. Natural logarithm? No square?")
print("Looks right. The hidden tests try other scales.")

# %% nbgrader={"grade_id": "yarn_temperature_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.yarn_temperature(yarn_temperature)
### END HIDDEN TESTS

# %% [markdown]
# **By hand.** For $d=128$, $L=4096$, base 10,000 and $s=4$: low and high of equation (6), the factor $t$ on cosine and sine, and the factor that a *logit* gets in the end.

# %% tags=["by-hand"] nbgrader={"grade_id": "yarn_by_hand", "solution": true}
# Replace every None by a number, at least four significant digits; low and high are whole numbers.
yarn_by_hand = {
    "low": None,  # the last pair that is left alone
    "high": None,  # the first pair that is fully divided by 4
    "temperature": None,  # the factor on cosine and on sine
    "logit_factor": None,  # what a logit q.k is multiplied by
}
### BEGIN SOLUTION
yarn_by_hand |= {
    "low": 20,  # dim(32) = 128 * ln(4096 / (64 pi)) / (2 ln 10000) = 20.94
    "high": 46,  # dim(1) = 45.03, the boundary of exercise 5.1
    "temperature": 1.138629,  # 0.1 ln 4 + 1
    "logit_factor": 1.296477,  # its square
}
### END SOLUTION

# %% nbgrader={"grade_id": "yarn_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(yarn_by_hand, dict), "yarn_by_hand must stay a dictionary; fill in its values."
for key in ("low", "high", "temperature", "logit_factor"):
    assert key in yarn_by_hand, f"the key {key!r} is missing: keep the names of the cell above."
    value = yarn_by_hand[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), f"{key!r} must be a plain number, not {type(value).__name__}."
    assert math.isfinite(value), f"{key!r} must be finite, got {value}."
assert len(yarn_by_hand) == 4, "there are more than the four keys asked for: remove the others."
print("Four finite numbers. The hidden test asks for four significant digits.")

# %% nbgrader={"grade_id": "yarn_by_hand_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.yarn_by_hand(yarn_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1: the ends of the ramp</summary>
#
# $\dim$ *falls* when the number of turns grows. So the fast end, 32 turns, gives the *smaller* pair number: low.
# </details>
#
# <details><summary>Hint 2: the ramp</summary>
#
# `torch.arange(head_dim // 2)` minus low, divided by the width, then `.clamp(0, 1)`. Where it is 0 the speed stays, where it is 1 the speed is divided by `scale`.
# </details>
#
# <details><summary>Hint 3: the logit factor</summary>
#
# Rotated query times rotated key. How many of the two carry $t$?
# </details>

# %% [markdown]
# ### Experiment: what each method does to each pair
#
# Now all methods side by side, for $d=64$, $L=2048$ and $s=4$. First by what factor each pair is slowed down; then Figure 5.1 again, after the change.

# %% [markdown] tags=["prediction"]
# **Predict.** Draw the three curves *old speed / new speed* over the pair number $i$ for PI, NTK and YaRN on paper. One is flat, one is sloped, one is a ramp with two flat ends. And which of the three methods leaves some angles new?
#
# *Your prediction:*

# %% tags=["experiment"]
plain = ready.frequencies_of(64)
after = {
    "PI": plain / 4,
    "NTK": ready.frequencies_of(64, ntk_base(10000.0, 4.0, 64)),
    "YaRN": yarn_frequencies(64, 4.0, 2048).double(),
}
METHOD = {"none": (lab.BLACK, ":"), "PI": (lab.ORANGE, "-."), "NTK": (lab.GREEN, "--"), "YaRN": (lab.BLUE, "-"),
          "YaRN, no temperature": (lab.SKY, (0, (5, 1, 1, 1))), "dynamic NTK": (lab.PURPLE, (0, (8, 3)))}

fig, ax = lab.figure("How much slower each pair turns (head_dim 64, scale 4)", height=3.3)
for name, frequencies in after.items():
    colour, style = METHOD[name]
    ax.plot(plain / frequencies, color=colour, linestyle=style, label=name)
for pair, words in ((8, "low"), (21, "high")):
    ax.axvline(pair, color=lab.GREY, linewidth=1, linestyle=":")
    ax.text(pair + 0.25, 4.15, words, color="#444444", fontsize=9)
ax.set(xlabel="pair i", ylabel="old speed / new speed", ylim=(0.8, 4.4), xlim=(0, 31))
ax.set_yticks([1, 2, 3, 4])
ax.grid(axis="y")
ax.legend(loc="center left")
plt.show()

# %% [markdown]
# **Figure 5.3. Interpolation factor per pair.** PI is flat: every pair four times slower. NTK slopes from 1 to 4: pair 0 untouched, the last pair exactly four times slower, all others in between. YaRN leaves pairs 0 to 8 alone and divides the pairs from 21 on by 4. (Its ramp bends, because the *speeds* are mixed linearly and their reciprocal is drawn.)

# %% tags=["experiment"]
fig, axes = lab.figure("Part of its circle that each pair visits at 4x, after the change", ncols=3, height=3.2,
                       sharey=True)
rows = []
for ax, (name, frequencies) in zip(axes, after.items()):
    new = coverage(ax, frequencies, name)
    rows.append([name, new])
axes[0].set_ylabel("part of the circle")
fig.legend(*axes[0].get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
lab.table(["method, scale 4", "pairs with new angles at 4x"], [["none", new_pairs], *rows])


# %% [markdown]
# **Figure 5.4. Coverage after each extension.** PI and YaRN leave nothing new: every pair stays within the arc it knows. NTK with $s=4$ does not: at 4x all pairs beyond the boundary but the last are slowed down by *less* than 4, so they still leave their arc a little. This is why people who use NTK-aware scaling take a larger $s$ than the length asks for. What the picture does not show is the price: PI has also squeezed the fast pairs, whose angles were all known.

# %% [markdown]
# <details><summary>Aside: where you will meet these in practice</summary>
#
# The library `transformers` keeps all of them in `modeling_rope_utils.py`; the type is called `"linear"` (PI), `"dynamic"` (dynamic NTK) or `"yarn"`, and `factor` is our $s$. Its dynamic NTK, with the factor of a model's configuration file, is equation (4) with $n$ the longest text since the last one that fits into $L$: it keeps a larger base until a short text comes, and does not turn cached keys again. Type `"llama3"` (Llama 3.1) is YaRN's idea with other words: pairs of more than 4 turns within 8,192 tokens are left alone, those of less than 1 are divided by 8, those between are mixed, linearly in the number of turns, and there is no temperature. Before you compare two reports, look up both factors, and whether the model was fine-tuned after the change.
# </details>

# %% [markdown]
# ## 6 · The comparison
#
# ### 6.1 Measure what you mean
#
# "Loss at length $n$" seems clear. Two traps lie in it.
#
# **Which targets?** A language model predicts every token of its window, the first one from a single token of context, the last one from $n-1$. The mean over the whole window mixes easy and hard places in a proportion that changes with $n$. If you test at $4L$, three quarters of the targets have a context longer than anything in training and one quarter does not; the mean of both hides the failure. And the early targets, with little context, have a high loss of their own: as $n$ grows, their share falls, and the mean may *fall* although nothing got better. So fix the targets: score the **same last tokens of the text** at every length, and let only the context in front of them grow.
#
# ```text
# text            . . . . . . . . . . . . . . . . . . . . . . . . T T T T     T: the targets, always the same
# context, 1x                                           . . . . . . . .
# context, 2x                           . . . . . . . . . . . . . . . .
# ```
#
# **Which mode?** Dropout must be off while you measure, no graph should be recorded, and afterwards the model must be as you found it. "As you found it" is more than calling `model.train()`: a part of the model may have been frozen in eval mode on purpose.

# %% [markdown]
# ### Exercise 5.6 · Loss by length
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* with the wrong ruler every comparison below would come out differently.
#
# The cell below defines a small model to test your function with; the hidden tests use it too. You need not read it: `observe` tells the checks what your function has left behind.

# %% nbgrader={"grade_id": "probe_model", "locked": true}
class ProbeModel(nn.Module):
    """tokens (batch, L) -> logits (batch, L, 7). Has dropout, and parts inside parts; looks at all tokens so far."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.inside = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)))
        self.read = nn.Linear(6, 7)
        self.recorded = False

    def forward(self, tokens):
        count = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
        logits = self.read(self.inside(self.embed(tokens).cumsum(1) / count.sqrt()))
        self.recorded = self.recorded or logits.requires_grad
        return logits


def probe_model(weights, flags):
    """A ProbeModel with these weights and one training flag for each of its eight modules, the outermost first."""
    model = ProbeModel().to(weights["embed.weight"].device)
    model.load_state_dict(weights)
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    return model


def observe(model):
    """What calls have left behind: the training flags, whether a graph was recorded, gradients, gradient mode."""
    return {"flags": [module.training for module in model.modules()], "recorded a graph": model.recorded,
            "has gradients": any(weight.grad is not None for weight in model.parameters()),
            "gradient mode": torch.is_grad_enabled()}


# %% nbgrader={"grade_id": "loss_by_length", "solution": true}
def loss_by_length(model, tokens, lengths, n_targets):
    """The loss on the last ``n_targets`` tokens, for several lengths of context.

    model:     an nn.Module; model(x) turns int64 (batch, L) into logits (batch, L, vocab)
    tokens:    int64 (batch, n) with n > max(lengths)
    lengths:   list of ints. At length L the model reads tokens[:, -L-1:-1]: L tokens, all but the very last
    n_targets: int, from 1 to the smallest length; scored are the predictions of the last n_targets tokens of the text
    returns:   dict {length: loss}; keys ints, values Python floats: mean cross-entropy in nats over batch and targets

    Raises ValueError if the text is too short for a length or n_targets > L. Runs in eval mode, without recording
    gradients; afterwards every submodule has the training flag it had before.
    """
    ### BEGIN SOLUTION
    for length in lengths:
        if not n_targets <= length < tokens.shape[1]:
            raise ValueError(f"length {length} does not fit {n_targets} targets and {tokens.shape[1]} tokens")
    targets = tokens[:, -n_targets:].flatten()
    flags = [(module, module.training) for module in model.modules()]
    losses = {}
    try:
        model.eval()
        with torch.no_grad():
            for length in lengths:
                logits = model(tokens[:, -length - 1:-1])[:, -n_targets:]
                losses[length] = F.cross_entropy(logits.flatten(0, 1), targets).item()
    finally:
        for module, flag in flags:
            module.training = flag
    return losses
    ### END SOLUTION


# %% nbgrader={"grade_id": "loss_by_length_check", "grade": true, "points": 0}
# Visible check (0 points).
torch.set_grad_enabled(True)  # whatever an earlier attempt has switched off
generator = torch.Generator().manual_seed(3)
sizes = {"embed.weight": (7, 6), "inside.1.0.weight": (6, 6), "inside.1.0.bias": (6,), "read.weight": (7, 6),
         "read.bias": (7,)}
weights = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
tokens = torch.randint(0, 7, (4, 31), generator=generator)

model = probe_model(weights, [False] * 8)  # everything is in eval mode already
losses = loss_by_length(model, tokens, [6, 12, 30], 5)
assert isinstance(losses, dict) and sorted(losses) == [6, 12, 30], (
    f"a dict with the keys 6, 12, 30 expected, got {losses}.")
assert all(isinstance(value, float) for value in losses.values()), "the losses must be Python floats (.item())."
with torch.no_grad():
    log_p = model(tokens[:, -13:-1]).log_softmax(-1)
by_hand = [-float(log_p[b, t][tokens[b, t]]) for b in range(4) for t in range(-5, 0)]
whole = -float(log_p.gather(-1, tokens[:, -12:, None]).mean())
assert abs(losses[12] - whole) > 1e-4, (
    "you average over the whole window; asked for are the last n_targets tokens only.")
assert abs(losses[12] - sum(by_hand) / 20) < 1e-4, (
    f"at length 12 the mean over 4 texts and 5 targets is {sum(by_hand) / 20:.3f}, yours is {losses[12]:.3f}. Context "
    "tokens[:, -13:-1], targets tokens[:, -5:], natural logarithm, mean?")

model = probe_model(weights, [True] * 8)  # now dropout is on
again = loss_by_length(model, tokens, [6, 12, 30], 5)
assert all(abs(again[n] - losses[n]) < 1e-5 for n in losses), (
    "the losses changed with the training flag: use eval mode.")
seen = observe(model)
assert not seen["recorded a graph"], "the model ran with gradients recorded: use torch.no_grad()."
assert seen["gradient mode"], "gradients are still switched off after your function: use torch.no_grad() as a context."
assert seen["flags"] == [True] * 8, "the model was in train mode and must be again afterwards."
frozen = [True, True, False, False, False, False, False, True]
model = probe_model(weights, frozen)
loss_by_length(model, tokens, [6], 5)
assert observe(model)["flags"] == frozen, (
    "a part of this model was frozen in eval mode and is not any more: remember the flag of every submodule.")
assert lab.raises(ValueError, loss_by_length, model, tokens, [6, 31], 5), (
    "31 tokens cannot give a context of 31 and a target after it: raise ValueError.")
assert lab.raises(ValueError, loss_by_length, model, tokens, [6, 12], 8), (
    "8 targets do not fit into a context of 6: raise ValueError.")
print("Looks right. The hidden tests try other texts, lengths and flags.")

# %% nbgrader={"grade_id": "loss_by_length_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.loss_by_length(loss_by_length, probe_model, observe)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1: the slices</summary>
#
# `tokens[:, -L-1:-1]` are the $L$ tokens before the last one. The logits at the last $k$ places of this window predict the last $k$ tokens of the text.
# </details>
#
# <details><summary>Hint 2: the flags</summary>
#
# `model.modules()` gives the model and every part of it. Note `module.training` of each before `model.eval()`, and set it back one by one at the end; `model.train(flag)` would set *all* parts.
# </details>
#
# <details><summary>Hint 3: the loss</summary>
#
# `F.cross_entropy` takes logits `(N, vocab)` and targets `(N,)`. Flatten batch and targets into one axis.
# </details>

# %% [markdown]
# ### 6.2 Six encodings, trained short, tested long
#
# **The model.** A decoder of two layers, width 64, four heads of 16 channels; see `SmallTransformer` in `ready_encodings.py`. It predicts characters. The six variants differ in the encoding only: none (a causal mask is there), sinusoidal, learned, RoPE, ALiBi, T5 bias. (The T5 bias adds to each score a *learned* number, one per head and bucket of distances: 0 to 15 have a bucket each, larger ones share buckets that grow logarithmically, and all from 113 on share the last. It is added to scores scaled by $1/\sqrt d$ like everybody's here; T5 itself does not scale.)
#
# **The text.** The reference texts that come with Python (`pydoc_data.topics`), printable ASCII, some 460,000 characters; the last tenth is for testing. (The shipped results were made with the texts of Python 3.11; those of another version differ here and there.)
#
# **Training.** 1,000 steps of 32 windows of $L=64$ characters. Five seeds for each variant: other initial weights, other batches. The learned table has 512 rows; rows 64 to 511 stay as they were initialised (small random numbers).
#
# **Test.** 96 windows, the same last 32 characters of each at $n=64, 128, 256, 512$.
#
# These 30 trainings take half an hour, so their results are shipped. (Instructors: `make experiments` makes all of them again; `experiments/results.md` holds the full table.) *A model this small shows mechanisms. It does not predict the ranking of large ones.*

# %% [markdown] tags=["prediction"]
# **Predict.** All six are trained to about 1.4 to 2 nats per character at $n=64$. Guess for each the loss at 8x (512 characters): stays (within 0.1), rises, or breaks down (jumps by more than half a nat at one doubling)? In particular: the model without any encoding; the T5 bias; and which is worse, sinusoidal or learned?
#
# *Your prediction:*

# %% tags=["experiment"]
import json

with open("week5_results.json", encoding="utf-8") as file:
    results = json.load(file)
tested = results["tested"]
LOOK = {"none": (lab.BLACK, ":"), "sinusoidal": (lab.ORANGE, "-."), "learned": (lab.PURPLE, (0, (8, 3))),
        "rope": (lab.BLUE, "-"), "alibi": (lab.GREEN, "--"), "t5": (lab.VERMILLION, (0, (5, 1, 1, 1)))}

def band(ax, lengths, per_seed, colour, style, label, **options):
    """The mean over seeds as a line, and the range from the lowest to the highest seed as a band."""
    values = np.array(per_seed)
    ax.plot(lengths, values.mean(0), color=colour, linestyle=style, label=label, marker="o", markersize=4, **options)
    ax.fill_between(lengths, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)

def length_axis(ax, lengths, trained):
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [f"{n}\n{n // trained}x" for n in lengths])
    ax.minorticks_off()
    ax.axvline(trained, color=lab.GREY, linewidth=1.2, linestyle="--", zorder=0)
    ax.set_xlabel("length of the context")
    ax.grid(axis="y")

def spread(per_seed, digits=2):
    """mean (lowest to highest seed), for every length"""
    values = np.array(per_seed)
    columns = zip(values.mean(0), values.min(0), values.max(0))
    return [f"{mean:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})" for mean, low, high in columns]

fig, ax = lab.figure("Loss on the same 32 targets, trained at 64 (dashed line), five seeds each", height=4.2)
for encoding, (colour, style) in LOOK.items():
    band(ax, tested, results["fixed"][encoding], colour, style, ready.NAMES[encoding])
length_axis(ax, tested, 64)
ax.set(ylabel="loss (nats per character)", ylim=(1.2, 4))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[ready.NAMES[encoding], *spread(results["fixed"][encoding])] for encoding in LOOK])

# %% [markdown]
# **Figure 5.5. Loss against length.** Lines: mean over five seeds; bands: lowest to highest seed; the dashed line marks the training length. Left of it nothing can be seen, because nobody was tested on less. **Flat:** ALiBi alone; in each of the five runs its loss rises a little, by 0.02 to 0.03 from 1x to 8x. **Rising:** the T5 bias, at every doubling and in every run, and the model without encoding. **Breaking down:** sinusoidal and learned at the first doubling, RoPE by 4x. Four things to note. (1) The best at the training length, RoPE, is not the best beyond it. (2) *No* method gains from the longer context: no curve falls below its value at 1x. (3) The model without any encoding has the highest loss at 1x, and the second lowest at 8x: it has little to lose. It is no rival of ALiBi at any length. (4) The learned table ends below the sinusoids although its rows beyond 64 were never trained: these are small random numbers (standard deviation 0.02), next to the trained rows almost nothing. Start them larger and this may change. Do not read a ranking of "learned" and "sinusoidal" from it.

# %% [markdown] tags=["prediction"]
# **Predict.** Score the same models with the other ruler, the mean over *all* targets of the window. Will RoPE's failure at 4x look larger or smaller? What will ALiBi's curve do?
#
# *Your prediction:*

# %% tags=["experiment"]
fig, axes = lab.figure("The same models: fixed targets (solid) and the mean over the whole window (dashed)", ncols=3,
                       height=3.1, sharey=True)
for ax, encoding in zip(axes, ("rope", "sinusoidal", "alibi")):
    for kind, colour, style, label in (("fixed", lab.BLUE, "-", "last 32 targets"),
                                       ("window", lab.VERMILLION, "--", "whole window")):
        band(ax, tested, results[kind][encoding], colour, style, label)
    length_axis(ax, tested, 64)
    ax.set(title=ready.NAMES[encoding], ylim=(1.2, 3.9))
axes[0].set_ylabel("loss (nats per character)")
axes[2].legend(loc="upper right")
plt.show()

# %% [markdown]
# **Figure 5.6. Two rulers.** The same three models, the same texts, two ways to average. For RoPE at 4x (256 characters) the whole window gives 2.24 and the last 32 targets give 3.06: the first 64 targets of each window are as easy as in training, and they make the failure look smaller. For ALiBi the window mean rises up to 4x and falls at 8x, while the fixed targets rise at every step; both movements are small, but they point in different directions. All other figures of this week use fixed targets.

# %% [markdown]
# ### 6.3 One of them trains before your eyes
#
# The next cell trains one model of your choice and measures it with *your* `loss_by_length`. It takes 300 steps instead of 1,000, so its loss lies above the shipped ones; look at the *shape* of the curve. On a GPU the same cell trains at 512 and tests up to 4,096.

# %% [markdown] tags=["prediction"]
# **Predict.** ALiBi, 300 steps. Will the curve be as flat as that of the fully trained models, or does flatness have to be learned?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains one small model; budget: 30 seconds on a CPU, two minutes on a GPU.
ENCODING = "alibi"  # any of ready.ENCODINGS
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
trained = 512 if device.type == "cuda" else 64
lengths = [trained, 2 * trained, 4 * trained, 8 * trained]
train_text, test_text = ready.english()

torch.manual_seed(0)
mine = ready.SmallTransformer(len(ready.ALPHABET), ENCODING, max_len=max(lengths)).to(device)
history = ready.train(mine, ready.text_batches(train_text, trained, 32, seed=0), steps=300)
probes = ready.windows(test_text, max(lengths), 64 if device.type == "cpu" else 16).to(device)
my_losses = loss_by_length(mine, probes, lengths, 32)

fig, (left, right) = lab.figure(f"A model of your own: {ready.NAMES[ENCODING]}, 300 steps", ncols=2, height=3.2)
left.plot(history, color=lab.BLACK, linestyle="-", linewidth=1)
left.set(title="training", xlabel="step", ylabel="loss (nats per character)", ylim=(1, 5))
if trained == 64:
    band(right, tested, results["fixed"][ENCODING], *LOOK[ENCODING], "shipped, 1,000 steps")
right.plot(lengths, [my_losses[n] for n in lengths], color=lab.VERMILLION, linestyle="-", marker="s", label="yours")
length_axis(right, lengths, trained)
right.set(title="test, last 32 targets", ylim=(1, 4))
right.legend(loc="upper right")
plt.show()
if ENCODING == "alibi":
    print("loss at 8x within 0.15 of the loss at 1x:", abs(my_losses[lengths[-1]] - my_losses[trained]) < 0.15)


# %% [markdown]
# **Figure 5.7. Your own model.** Left: the loss of each training step. Right: your model (squares) above the shipped ones, because it trained for less than a third of the steps. The default, ALiBi, is flat after 300 steps already: the flatness is built into the bias and not learned. Try `ENCODING = "t5"` or `"rope"`.

# %% [markdown]
# ### 6.4 RoPE, extended
#
# Now take the five RoPE models of Figure 5.5 as they are, without any further training, and change nothing but the angles. The stretch is just what each length needs: $s=n/64$. Dynamic NTK with $s=1$ would then be the same as NTK; so we show it with $s=8$, where the stretch is $8n/64-7$.
#
# The crosses are *your* functions at work on one of these models, its weights shipped in `week5_rope.npz`: your `position_interpolation`, `ntk_base`, `yarn_frequencies`, `yarn_temperature` and `loss_by_length`.

# %% [markdown] tags=["prediction"]
# **Predict.** Order the four methods and "do nothing" by their loss at 2x, and again at 8x. Position interpolation leaves no angle new (Figure 5.4). Will it beat "do nothing" at 2x?
#
# *Your prediction:*

# %% tags=["experiment"]
def load(name, **options):
    """A shipped model: the weights lie in a NumPy file, as float16."""
    model = ready.SmallTransformer(**options)
    with np.load(name) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files})
    return model.eval()

def stretched(method, n):
    """(positions, frequencies, temperature) for a text of n characters, made by your functions."""
    scale, at, plain = n / 64, torch.arange(n), ready.frequencies_of(16)
    if method == "PI":
        return position_interpolation(at, scale), plain, 1.0
    if method == "NTK":
        return at, ready.frequencies_of(16, ntk_base(10000.0, scale, 16)), 1.0
    if method == "dynamic NTK":
        return at, ready.frequencies_of(16, dynamic_ntk_base(10000.0, 8.0, 16, n, 64)), 1.0
    if method == "YaRN":
        return at, yarn_frequencies(16, scale, 64), yarn_temperature(scale)
    return at, plain, 1.0

rope = load("week5_rope.npz", n_tokens=len(ready.ALPHABET), encoding="rope")
windows = ready.windows(test_text, 512, 96)  # those of the shipped results
yours = {}
for method in ("none", "PI", "NTK", "dynamic NTK", "YaRN"):
    rope.rotation = lambda n, method=method: stretched(method, n)
    yours[method] = loss_by_length(rope, windows, tested[method != "none":], 32)  # at 1x nothing is stretched
rope.rotation = rope.plain_rotation

matched, dynamic = results["extended"]["matched"], results["extended"]["dynamic"]["dynamic NTK, scale 8"]
at_1x = [row[:1] for row in results["fixed"]["rope"]]
curves = {method: [start + row for start, row in zip(at_1x, matched[method])]
          for method in ("none", "PI", "NTK", "YaRN")}
curves["dynamic NTK"] = dynamic

fig, ax = lab.figure("RoPE trained at 64, stretched without further training, five seeds", height=4.2)
for method in ("none", "PI", "NTK", "dynamic NTK", "YaRN"):
    label = {"none": "do nothing", "dynamic NTK": "dynamic NTK, s = 8"}.get(method, method)
    band(ax, tested, curves[method], *METHOD[method], label)
    ax.plot(list(yours[method]), list(yours[method].values()), linestyle="none", marker="x", markersize=8,
            color=METHOD[method][0])
ax.plot([], [], linestyle="none", marker="x", color=lab.BLACK, label="your functions,\none of the models")
length_axis(ax, tested, 64)
ax.set(ylabel="loss (nats per character)", ylim=(1.2, 4))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
inside = True
for method in yours:
    for n, loss in yours[method].items():
        column = [row[tested.index(n)] for row in curves[method]]
        inside = inside and min(column) - 0.1 < loss < max(column) + 0.1
print(f"all your crosses lie within the bands (or 0.1 beside them): {inside}")
worse = np.array(matched["PI"])[:, 0] - np.array(matched["none"])[:, 0]
print("PI minus do nothing at 2x, seed by seed: " + ", ".join(f"{gap:+.2f}" for gap in worse))
print()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[method, *spread(curves[method])] for method in ("none", "PI", "NTK", "dynamic NTK", "YaRN")])

# %% [markdown]
# **Figure 5.8. Extending RoPE.** Lines and bands as before; crosses: your functions on one of the five models; they must lie within the bands or next to them (0.1 at most; the shipped weights are rounded to float16). At 2x, **position interpolation is worse than doing nothing, in each of the five runs** (by 0.33 to 0.58), although no angle is new; from 4x on it is the other way round. NTK is best at 2x, in each run, YaRN close behind (0.01 to 0.07). At 4x and 8x YaRN is far better than NTK with the same $s$, in each run. At 8x dynamic NTK with $s=8$ is better still (by 0.02 to 0.13 in each run), with an effective stretch of 57 against 8; at 2x and 4x it is behind YaRN. Note also what none of them does: no curve comes near ALiBi's 1.55 at 8x.

# %% [markdown]
# **The temperature, log n, the price within the training length, and a little fine-tuning.** Four more things that the same models can tell. (The row "log n": all logits of the unchanged models are multiplied by $\log n/\log 64$, $n$ being the length of the text. Section 7 says why one might.)

# %% [markdown] tags=["prediction"]
# **Predict.** (a) YaRN without its temperature: better or worse, and by how much? (b) A model stretched for 8x ($s=8$ at every length) is used on short texts, at 1x. Which method costs most? (c) 25 further training steps at 256 characters: which method gains most?
#
# *Your prediction:*

# %% tags=["experiment"]
names = [f"{n // 64}x" for n in tested]
lab.table(["(a) stretched to the length needed", *names[1:]],
          [[name, *spread(matched[name])] for name in ("YaRN", "YaRN, no temperature", "none", "log n")])
gain = np.array(matched["YaRN, no temperature"]) - np.array(matched["YaRN"])
print("temperature: gain per seed (nats) at 2x " + ", ".join(f"{g:+.2f}" for g in gain[:, 0])
      + "; at 8x " + ", ".join(f"{g:+.2f}" for g in gain[:, -1]))
print()
lab.table(["(b) stretched by 8 at every length", *names],
          [["none", *spread(results["fixed"]["rope"])],
           *([name, *spread(results["extended"]["fixed 8"][name])] for name in ("PI", "NTK", "YaRN"))])
print()
before = {name: [row[1] for row in matched[name]] for name in ("none", "PI", "NTK", "YaRN")}
lab.table(["(c) at 4x", "without further training", "after 25 steps"],
          [[name, *spread(np.array([before[name], results["fine_tuned"][name]]).T)] for name in before])


# %% [markdown]
# **What the tables say.** (a) The temperature hardly matters here: a gain below 0.01 at 2x, and at 8x between −0.02 and +0.05 nats, so its sign depends on the seed. The strength of YaRN's code form in this model is in the frequencies. Multiplying the logits of the unchanged models by $\log n/\log 64$ made them *worse*, by 0.01 to 0.12, in each run and at each length: sharpening scores that are wrong does not help. (b) A stretch is not free: with $s=8$ at the training length NTK costs 0.11, YaRN 0.30, and PI, which divides every speed by 8, 1.62. This is what dynamic scaling saves. (c) Twenty-five steps change a lot: YaRN ends at 1.43, close to the 1.37 of the training length, NTK at 1.60. PI gains 0.7 and is at 2.09: for it, 25 steps of 16 windows are not enough here. Chen et al. fine-tuned much longer (and much larger models). *Out of the box* and *after fine-tuning* are two different comparisons; a table that does not say which it is says nothing.

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained_question", "locked": true}
# ### Exercise 5.7 · What survives, and why
#
# **5 points · difficulty 3/5 · 40 minutes · text, graded by a person**
#
# *Why it matters:* "which encoding extrapolates?" sounds like a question with a one-word answer. A good answer names mechanisms and numbers, and says what was not shown.
#
# Answer with the tables and figures of this section. Two to five sentences per part.
#
# 1. **RoPE.** The models have $d=16$, $L=64$, base 10,000. Which of the eight pairs never complete a turn in training? Explain with them the loss of the unchanged RoPE models at 2x and 4x.
# 2. **ALiBi** stays flat. What in its bias makes this possible? And why does a flat curve *not* show that the model makes use of 512 characters?
# 3. **Sinusoidal and learned.** Both break down at 2x. What exactly is new for the model in each case? Someone says: "sinusoids fail because they are periodic". What do you answer?
# 4. **Extensions.** At 2x position interpolation has no new angles, and is still worse than doing nothing. Why? And why does YaRN do better than both PI and NTK with the same $s$ at 8x?
# 5. **A failed expectation.** Name one expectation, of yours or from what you have read, that these results do not bear out. Give the numbers with their spread over the seeds, and say in one sentence what our experiment can *not* show about it.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. Boundary (d/2) ln(L/2 pi)/ln(base) = 2.02: pairs 3 to 7 (five of eight) never complete a turn (half a point; accept an off-by-one in the count if the formula is right). Beyond 64 their relative angles leave the arc seen in training; the fast pairs 0 to 2 have seen all their angles; the scores of far keys become arbitrary, and the more so the farther out: 1.60 to 1.85 at 2x, 2.88 to 3.30 at 4x (half a point for the mechanism with a number).
# 2. The bias is a fixed slope times distance: a far key gets exp(-slope * distance) at most, so keys beyond the range known from training are damped, whatever their content; no new vectors or angles (half a point). A model that only looks at its last few dozen characters would have the same flat curve: the loss did not fall below that of 1x (half a point).
# 3. Sinusoidal: sums of token and position vectors in combinations never met, since the slow sinusoids take values outside the range seen at positions 0 to 63. Learned: rows that no gradient has changed since initialisation (half a point for both). Periodicity: the slowest wavelength is 2 pi * 10000**(62/64), some 47,000 positions for width 64; 128 lies far below; nothing repeats, the values are new (half a point).
# 4. PI slows the fast pairs too: neighbours that were 1 rad apart on pair 0 are half a radian apart; the local patterns on which character prediction relies are read with a wrong ruler, and no fine-tuning corrects it (half a point). YaRN leaves the fast pairs alone and divides all pairs that never turned by s: no new angles and no spoilt fine distances; NTK with the same s leaves some angles new (half a point).
# 5. Any expectation that the tables do not bear out, with mean and range, e.g. PI helps at once; T5 bias stays flat; no encoding is competitive; a longer context lowers the loss; dynamic NTK is the same as NTK; the temperature is what makes YaRN work (half a point). A limit: small model, characters, trained at 64, no fine-tuning, one text; ranking of large models not shown (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained", "grade": true, "solution": true, "points": 5}
# ### BEGIN SOLUTION
# 1. The boundary is $\frac{16}{2}\ln(64/2\pi)/\ln 10\,000=2.02$: pairs 0, 1, 2 complete a turn within 64 characters, pairs 3 to 7 never do. Beyond a distance of 64 these five pairs reach angles that no training text has shown, so the scores of far keys are not what the model learned; a far key may suddenly get a high score. The farther, the more pairs and the larger the share of such keys: 1.75 (1.60 to 1.85) at 2x, 3.06 (2.88 to 3.30) at 4x, against 1.37 at 1x.
#
# 2. ALiBi subtracts slope × distance. A key at a distance never met is damped more than any key before, in the direction training has already taught; there is no new vector and no new angle. But a model that looks at the last 30 characters only would have the same flat curve. The loss at 512 is not lower than at 64, so nothing shows that the other 448 characters are used.
#
# 3. Sinusoidal: the slow sinusoids take values beyond position 63 that they never had in training, so the sum of token and position is a vector from outside the training range. Learned: rows 64 and up are as they were initialised; no gradient has ever touched them. Periodicity is not the reason: for width 64 the slowest wavelength is $2\pi\cdot10\,000^{62/64}\approx47\,000$ positions and the model fails at 128. Nothing has come round by then; the values are new, not repeated.
#
# 4. PI slows *all* pairs, pair 0 too. Characters are predicted mostly from near neighbours, and at 2x these stand half a radian apart where the model learned one radian; all local patterns are read with a wrong ruler: 2.20 against 1.75. At 8x the comparison is between kinds of damage. NTK with $s=8$ slows the pairs between the boundary and the last by less than 8, so some angles are still new (3.18). PI has no new angles but a spoilt local ruler (2.99). YaRN leaves pair 0 alone, divides every pair from 3 on by 8 and mixes in between: 2.03 (1.94 to 2.17).
#
# 5. I expected YaRN's temperature to matter, since it is part of the method. At 8x YaRN has 2.03 (1.94 to 2.17) with and 2.04 (1.94 to 2.19) without it; from seed to seed the gain lies between −0.02 and +0.05. The experiment cannot show whether it matters for large models, for longer contexts or after fine-tuning, which is what the paper is about.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For part 1 use equation (1) with $d=16$ and $L=64$. Draw Figure 5.1 for this model: `coverage(ax, ready.frequencies_of(16), "", trained=64, factor=2)`.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For part 2 think of a model that cannot see more than 30 characters back at all. What would its curve look like?
# </details>
#
# <details><summary>Hint 3</summary>
#
# For part 4 look at Figure 5.3 at $i=0$ and at the right end; the same for our model, with $s=4$, is the worked example of section 5.
# </details>

# %% [markdown]
# ## 7 · More keys: attention dilution
#
# Suppose that every angle is right. There is still the softmax. Let one key matter, with a logit of 8, and let the other $n$ keys be noise, with logits drawn from a normal distribution of mean 0 and variance 1. The mean of $e^x$ over such noise is $e^{1/2}$. So the weight of the key that matters is about
#
# $$\frac{e^{8}}{e^{8}+n\,e^{1/2}}. \tag{9}$$
#
# (A ratio of expectations; for large $n$ the sum of the noise is close to its mean.) With 64 keys this is 0.966. With 32,768 it is 0.052: the model still *finds* the key, its logit is as far above all others as ever, but what it *reads* is 95 % noise. This is **attention dilution**. No positions are involved.
#
# **The remedy** is to make the logits grow with the length. The noise grows like $n$, so the distance between the logits must grow like $\ln n$. Multiply all logits by
#
# $$\lambda(n)=\frac{\ln n}{\ln n_0}, \tag{10}$$
#
# where $n_0$ is a length at which the model is at home, say that of its training; there $\lambda=1$ and nothing changes (Chiang and Cholak, 2022, multiply by $\log n$). Under a causal mask $n$ may be the length of the text, as in section 6.4, or the number of keys that each query sees. The first Qwen models take the latter, and never go below 1 (`use_logn_attn`).
#
# *Multiply*, not add. A constant added to all logits changes nothing at all: $\frac{e^{x_j+c}}{\sum_k e^{x_k+c}}=\frac{e^c\,e^{x_j}}{e^c\sum_k e^{x_k}}$.

# %% [markdown]
# ### Exercise 5.8 · The log-n factor
#
# **2 points · difficulty 1/5 · 15 minutes · code**
#
# *Why it matters:* one line. Both usual mistakes, adding instead of multiplying and turning the fraction upside down, run without an error.

# %% nbgrader={"grade_id": "log_n_scale", "solution": true}
def log_n_scale(n, n0):
    """The factor on all logits when a query sees ``n`` keys: equation (10). No clamp: below 1 for n < n0.

    n:       int, at least 1
    n0:      int, greater than 1, the number of keys for which the factor is 1
    returns: a Python float
    """
    ### BEGIN SOLUTION
    return math.log(n) / math.log(n0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "log_n_scale_check", "grade": true, "points": 0}
# Visible check (0 points).
assert isinstance(log_n_scale(512, 64), float), "a Python float is expected."
assert abs(log_n_scale(64, 64) - 1) < 1e-9, "at n = n0 the factor is 1."
assert log_n_scale(512, 64) > 1, "more keys need larger logits: is the fraction upside down?"
assert abs(log_n_scale(512, 64) - 1.5) < 1e-9, "64 = 2**6 and 512 = 2**9, so the factor is 9/6 = 1.5."
assert abs(log_n_scale(8, 64) - 0.5) < 1e-9, "8 = 2**3: the factor is 3/6 = 0.5. There is no clamp at 1."
print("Looks right. The hidden tests try other numbers.")

# %% nbgrader={"grade_id": "log_n_scale_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.log_n_scale(log_n_scale)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint</summary>
#
# The logarithm of the current length stands above, that of the length in training below. The base of the logarithm does not matter, as long as it is the same in both.
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** At $n=32{,}768$ the plain weight is 0.052. What is it if $\log n$ is *added* to all logits, and what if they are *multiplied* by $\lambda$: back to about 0.97, more, or less? (The factor makes the noise larger too.)
#
# *Your prediction:*

# %% tags=["experiment"]
sizes = 2 ** torch.arange(6, 16)
generator = torch.Generator().manual_seed(0)

def mass(n, factor=1.0):
    """Equation (9), with all logits multiplied by ``factor``."""
    signal, noise = math.exp(8 * factor), n * math.exp(factor**2 / 2)
    return signal / (signal + noise)

def sampled(n, change):
    """The same by drawing: the mean weight of the key that matters over 20 draws of the noise."""
    logits = torch.randn(20, n + 1, generator=generator, dtype=torch.float64)
    logits[:, 0] = 8
    return float(change(logits).softmax(-1)[:, 0].mean())

kinds = [("as it is", lambda n: 1.0, lambda x, n: x, lab.VERMILLION, "-", "o"),
         ("log n added", lambda n: 1.0, lambda x, n: x + math.log(n), lab.ORANGE, ":", "+"),
         ("multiplied by log n / log 64", lambda n: log_n_scale(n, 64), lambda x, n: x * log_n_scale(n, 64),
          lab.BLUE, "--", "s")]
fig, ax = lab.figure("Weight of the one key that matters (logit 8) among n noise keys", height=3.4)
rows = []
for name, factor, change, colour, style, marker in kinds:
    exact = [mass(n, factor(n)) for n in sizes.tolist()]
    drawn = [sampled(n, lambda x, n=n: change(x, n)) for n in sizes.tolist()]
    ax.plot(sizes, exact, color=colour, linestyle=style, label=name)
    ax.plot(sizes, drawn, color=colour, linestyle="none", marker=marker, markersize=6)
    rows.append([name, *(f"{mass(n, factor(n)):.3f}" for n in (64, 512, 4096, 32768))])
ax.set_xscale("log", base=2)
ax.set_xticks([64, 512, 4096, 32768], ["64", "512", "4,096", "32,768"])
ax.set(xlabel="number of noise keys n", ylabel="attention weight", ylim=(0, 1.08))
ax.grid(axis="y")
ax.legend(loc="lower left")
plt.show()
lab.table(["weight, equation (9)", "64", "512", "4,096", "32,768"], rows)
logits = torch.randn(1000, generator=generator)
change = float(((logits + math.log(1000)).softmax(0) - logits.softmax(0)).abs().max())
print(f"adding log n changes no weight by more than 0.000001: {change < 1e-6}")

# %% [markdown]
# **Figure 5.9. Dilution.** Lines: equation (9); marks: drawn at random. Left alone, the weight of the key that matters falls from 0.966 to 0.052. Adding $\log n$ changes nothing: its line lies on the first one. The factor keeps the weight up and even raises it: at 32,768 keys it is 2.5; the signal $e^{8}$ becomes $e^{20}$, and all the noise together is $e^{13.5}$ ($e^{10.4}$ keys with a mean of $e^{3.1}$). Two warnings. The effect needs a key that *stands out*; without one, the factor sharpens noise. And with RoPE beyond its training length, dilution is not the main trouble: in table (a) of section 6.4 the log-n factor did not lower the loss of the unchanged models.

# %% [markdown]
# ## 8 · A flat loss and a lost context
#
# ALiBi's curve was flat. Does the model *use* the long context? A loss on ordinary text cannot tell: nearly everything in a text can be predicted from the last few words. So we hide something that can only be known from far away.
#
# **The task.** A haystack of filler, symbols 0 to 15, in which each follows from the one before: after $x$ comes $x+1$ with probability 0.8, else $x+5$ (modulo 16). In the mean over all texts nobody can get below 0.50 nats on it. Somewhere in it stands a *needle*: a MARK and one of 16 values. The last token is QUERY; the answer is the value. Trained 300 steps at 64 tokens, needles anywhere. Tested with the needle **in the first quarter**, up to 1,024 tokens. Guessing gives 1/16.

# %% [markdown] tags=["prediction"]
# **Predict.** For ALiBi and for RoPE, at 1x to 16x: what happens to the loss on the last 32 *filler* targets, and what to the share of needles found? ALiBi's slopes are here 1/4, 1/16, 1/64, 1/256; week 4's `effective_window` gives 19, 74, 295 and 1,179 positions.
#
# *Your prediction:*

# %% tags=["experiment"]
needle, lengths_n = results["needle"], results["needle_tested"]
fig, (left, right) = lab.figure("A needle in the first quarter of the haystack, trained at 64, five seeds", ncols=2,
                                height=3.5)
for encoding, width, alpha in (("rope", 6, 0.5), ("alibi", 2, 1)):  # RoPE broad and pale, so that both show
    for ax, kind in ((left, "filler"), (right, "found")):
        band(ax, lengths_n, needle[encoding][kind], *LOOK[encoding], ready.NAMES[encoding], linewidth=width, alpha=alpha)
for ax in (left, right):
    length_axis(ax, lengths_n, 64)
left.axhline(0.5, color=lab.GREY, linewidth=1, linestyle=":")
left.text(1024, 0.4, "dotted: best possible, 0.50", ha="right", fontsize=9, color="#444444")
left.set(title="loss on the last 32 filler targets", ylabel="loss (nats)", ylim=(0, 1))
right.axhline(1 / 16, color=lab.GREY, linewidth=1, linestyle=":")
right.text(72, 0.08, "guessing", fontsize=9, color="#444444")
right.set(title="needles found", ylabel="share", ylim=(0, 1.05))
left.legend(loc="upper right", handlelength=4)
plt.show()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in lengths_n)],
          [[f"{ready.NAMES[e]}: {words}", *spread(needle[e][kind])] for e in ("alibi", "rope")
           for kind, words in (("filler", "filler loss"), ("found", "needles found"))])

# %% [markdown]
# **Figure 5.10. Flat perplexity, lost context.** Left: the loss on filler stays at 0.49 to 0.52 at every length, for both encodings and all seeds; the two lines coincide, RoPE is the broad pale one (what little they move, also below 0.50, is the same for both: chance in the test texts, which differ from length to length). Right: behind this flat line the needles get lost. ALiBi finds all of them up to 2x, 0.70 to 0.97 at 8x, 0.35 to 0.65 at 16x; RoPE loses some at 2x already in three of five runs, and has 0.04 to 0.26 left at 16x, where guessing gives 0.06. At 4x and 8x the ranges of the two overlap. Note that RoPE's *loss* is flat too, although the same encoding broke down on English in Figure 5.5: this filler needs only the token before. Whether a loss stays flat says as much about the text as about the model.

# %% [markdown] tags=["prediction"]
# **Predict.** Take one ALiBi model and haystacks of 1,024 tokens with the needle *anywhere*. At which distances from the query will it be found: up to 64, the length of the training? Up to the largest window, 1,179? Does the probability fall gradually or at an edge?
#
# *Your prediction:*

# %% tags=["experiment"]
# One of the ALiBi models, its weights shipped: how far does it find the needle, place by place? No training; 5 seconds.
finder = load("week5_needle.npz", n_tokens=ready.NEEDLE_TOKENS, encoding="alibi")
length, size = 1024, 128
tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(5))
distance = (length - 1) - (tokens == ready.MARK).int().argmax(1)
with torch.no_grad():
    probability = torch.cat([finder(part)[:, -1].softmax(-1) for part in tokens.split(16)])
given = probability[torch.arange(size), targets[:, -1]]
order = distance.argsort()

fig, ax = lab.figure("ALiBi, 1,024 tokens: probability of the right answer by the distance of the needle", height=3.2)
ax.plot(distance[order], given[order], color=lab.GREEN, linestyle="none", marker="o", markersize=4, alpha=0.7)
ax.axvspan(0, 64, ymax=0.9, color="#E4E4E4", zorder=0)
ax.text(4, 1.07, "grey: met in training", fontsize=9, color="#444444")
for window in (19, 74, 295):
    ax.axvline(window, ymax=0.9, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(290, 1.07, "dotted: windows of heads 0 to 2", fontsize=9, color="#444444")
ax.set(xlabel="distance from the query to the needle (tokens)", ylabel="probability", ylim=(-0.03, 1.15), xlim=(0, length))
ax.grid(axis="y")
plt.show()


# %% [markdown]
# **Figure 5.11. Place by place.** Each dot is one haystack of 1,024 tokens. Up to a distance of about 300, nearly all needles are found with near certainty, far beyond the 64 tokens of the training. Then more and more are lost, and from about 700 on many get a probability of zero while others are still found. The first two heads see nothing at such distances: their weight factors $e^{-\text{slope}\cdot\text{distance}}$ at 300 are below $10^{-8}$. The third head (slope 1/64) has 0.01 left there and nothing to speak of from 500 on. All that is left then is the last head, whose factor falls to 0.02 at 1,000, against the competition of a thousand nearer keys.

# %% [markdown] nbgrader={"grade_id": "needle_explained_question", "locked": true}
# ### Exercise 5.9 · Flat perplexity, lost context
#
# **2 points · difficulty 3/5 · 20 minutes · text, graded by a person**
#
# *Why it matters:* a flat perplexity curve is easily taken for a proof that a model "handles 100,000 tokens". You now know what it proves.
#
# 1. Explain how the loss can stay flat up to 1,024 tokens while the needle is lost. Use the numbers of Figure 5.10, and say where in ALiBi the context gets lost.
# 2. A colleague wants to show that a model really uses its long context. Propose a test, and say what it must hold fixed when the length grows so that the result means something.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. The loss is a mean over targets that can be predicted from the last token (Markov filler), so it does not depend on far context; one target in a thousand does (half a point). ALiBi damps a key at distance D by exp(-slope*D); beyond the window of the flattest heads, and with ever more keys to compete with, a far needle gets next to no weight; numbers for both curves quoted (half a point). Naming dilution as well is fine.
# 2. A task whose answer lies only in the far context (needle, key-value retrieval, copying, several needles, questions about an early passage), or the loss of the same targets with and without (or with scrambled) far context (half a point). Held fixed: the targets, the difficulty (number of needles, distractors, alphabet), and chance level; the distance or the depth of the needle is varied on purpose and reported (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "needle_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. The loss is a mean over targets that depend on the token before them; the needle matters for one target in 1,024. So the loss stays at 0.49 to 0.52 at all lengths, for ALiBi and for RoPE, while the share of needles found falls: for ALiBi from 1.00 at 1x to 0.70 to 0.97 at 8x and 0.35 to 0.65 at 16x. ALiBi loses the context in its bias. A key at distance $D$ is damped by $e^{-\text{slope}\cdot D}$: at $D=1000$ the head with slope 1/64 has a factor below $10^{-6}$, and the last one, 1/256, has 0.02, which must hold against up to a thousand nearer keys. That is dilution on top.
#
# 2. Measure something that only the far context can tell: for example a table of keys and values at the beginning and the question for one of them at the end; or the loss of the same last 200 tokens of real documents, once with their true far context and once with the far context of another document. Fixed must be: the targets, the number of needles and of distractors, the alphabet, so that guessing is worth the same at every length. The distance of the needle must grow with the length, and be reported: a needle that always stands 50 tokens before the question tests nothing new.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many of the targets of a 1,024-token text need the needle?
# </details>
#
# <details><summary>Hint 2</summary>
#
# For part 2: if the text grows and the needle stays 50 tokens before the query, what would you measure?
# </details>

# %% [markdown]
# ## 9 · A task that needs order: ascending or not
#
# The last experiment leaves language. An *encoder* (no causal mask, mean over all positions at the end) reads a sequence of different numbers and says whether it is ascending. Half of the sequences are. The others are, in equal parts, **random permutations** and **reversed** (descending) sequences. Trained 800 steps on 8 numbers, tested on 8, 16 and 32. Five encodings: none, sinusoidal, learned, RoPE, symmetric ALiBi.
#
# Week 4 (exercise 4.8) showed something about symmetric ALiBi that matters here.

# %% [markdown] tags=["prediction"]
# **Predict.** For each encoding: its accuracy at 8, 16 and 32 numbers (0.50 is what "always yes" gets). For ALiBi separately for the three kinds: ascending, random permutation, reversed. What is the best that a model can do which cannot tell a sequence from its reverse?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains two small models, one after the other; budget: 50 seconds on a CPU.
def train_and_test(encoding, steps):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = ready.SmallTransformer(ready.NUMBERS, encoding, max_len=32, n_outputs=2, is_causal=False, pool=True)
    model.to(device)
    ready.train(model, lambda: ready.sequences(128, 8, generator)[:2], steps, learning_rate=3e-3)
    scores = {}
    for n in (8, 16, 32):
        tokens, answer, kind = (part.to(device) for part in ready.sequences(400, n, torch.Generator().manual_seed(1)))
        with torch.no_grad():
            logits = model(tokens)
            if n == 8:
                reverse = float((logits - model(tokens.flip(1))).abs().max())  # read from the other end
        correct = (logits.argmax(-1) == answer).float()
        scores[n] = [float(correct[kind == index].mean()) for index in range(3)]
    return scores, reverse

live = {"rope": train_and_test("rope", steps=300), "alibi": train_and_test("alibi", steps=800)}
fig, axes = lab.figure("Your two models, by kind of sequence", ncols=2, height=3.0, sharey=True)
for ax, (encoding, (scores, _)) in zip(axes, live.items()):
    looks = zip(ready.KINDS, (lab.BLUE, lab.ORANGE, lab.VERMILLION), ("", "..", "//"))
    for index, (kind, colour, hatch) in enumerate(looks):
        places, heights = np.arange(3) + 0.27 * (index - 1), [scores[n][index] for n in (8, 16, 32)]
        ax.bar(places, heights, width=0.25, color=colour, hatch=hatch, edgecolor="white", label=kind)
        for place, height in zip(places, heights):
            if height < 0.005:
                ax.text(place, 0.02, "0", ha="center", color=colour, fontsize=10)
    ax.set(title=ready.NAMES[encoding], xlabel="numbers in the sequence", ylim=(0, 1.03))
    ax.set_xticks(range(3), ["8 (1x)", "16 (2x)", "32 (4x)"])
    ax.set_axisbelow(True)
    ax.grid(axis="y")
axes[0].set_ylabel("share right")
fig.legend(*axes[0].get_legend_handles_labels(), loc="upper right", ncols=3)
plt.show()
for encoding, (_, reverse) in live.items():
    print(f"{ready.NAMES[encoding]}: a sequence and its reverse get the same logits: {reverse < 1e-3}")

# %% [markdown]
# **Figure 5.12. Two arms, live.** RoPE learns the task at 8 numbers in 300 steps; in longer sequences its answer to the *ascending* ones turns into "no", and the other two kinds stay right. ALiBi needs more steps and never gets both mirror images right: with mean pooling a sequence and its reverse have the same logits (the printed line), so what it gains on the ascending sequences it loses on the reversed ones. In its panel the blue and the orange-red bar add up to about 1 at every length. A 0 stands where a bar has no height.

# %% tags=["experiment"]
order_results = results["order"]
order_lengths = results["order_tested"]
looks = {name: LOOK[name] for name in ("none", "sinusoidal", "learned", "rope", "alibi")}
broad = {"sinusoidal": 6, "learned": 3.5}  # so that curves that coincide show one below the other
fig, axes = lab.figure("Ascending or not: trained on 8 numbers, five seeds", nrows=2, ncols=2, height=5.4, sharex=True,
                       sharey=True)
for ax, kind, title in zip(axes.flat, ("all", *ready.KINDS), ("all sequences", *ready.KINDS)):
    for encoding, (colour, style) in looks.items():
        band(ax, order_lengths, order_results[encoding][kind], colour, style, ready.NAMES[encoding],
             linewidth=broad.get(encoding, 1.7), alpha=0.5 if encoding == "sinusoidal" else 1)
    length_axis(ax, order_lengths, 8)
    ax.set(title=title, ylim=(-0.03, 1.05), xlabel="numbers" if ax in axes[1] else "")
for ax in axes[:, 0]:
    ax.set_ylabel("share right")
axes[0, 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["all: mean (range over 5 seeds)", *(f"{n // 8}x" for n in order_lengths)],
          [[ready.NAMES[e], *spread(order_results[e]["all"])] for e in looks])
print()
def means(encoding):
    """The mean over the seeds for each kind, at 8 and at 32 numbers."""
    by_kind = [np.mean(order_results[encoding][kind], axis=0) for kind in ready.KINDS]
    return [f"{mean[column]:.2f}" for column in (0, 2) for mean in by_kind]

lab.table(["by kind, mean over 5 seeds", *(f"{kind}, {n}x" for n in (1, 4) for kind in ("asc.", "perm.", "rev."))],
          [[ready.NAMES[encoding], *means(encoding)] for encoding in looks])
print()
print("ALiBi at 32 numbers, all sequences, seed by seed: "
      + ", ".join(f"{row[2]:.2f}" for row in order_results["alibi"]["all"]))

# %% [markdown]
# **Figure 5.13. Five arms.** Upper left: all sequences; then the three kinds. Where curves coincide, they are drawn one on top of the other: sinusoidal broadest, then learned, then the others. *No encoding*: 0.5 for every kind at every length. *Sinusoidal and learned*: perfect at 8, and at 16 already every single ascending sequence is called "not ascending", in all five runs. *RoPE*: 0.86 to 0.96 at 16, and the same end at 32. A mean of 0.50 is no guessing here: it is one answer for all. *ALiBi*: 0.74 to 0.75 at 8, which is the most it can reach, and 0.74 to 0.75 at 16: within the limits of what it can know, it extrapolates best. At 32 the runs part: three stay at 0.75, one has 0.68, one 0.50.

# %% [markdown] nbgrader={"grade_id": "ascending_explained_question", "locked": true}
# ### Exercise 5.10 · Ascending?
#
# **2 points · difficulty 3/5 · 20 minutes · text, graded by a person**
#
# *Why it matters:* a mean accuracy hides what a model cannot do *in principle*. The choice of the negatives decides what your benchmark sees.
#
# 1. Explain the scores of "no encoding" and of symmetric ALiBi *at the training length*, kind by kind. What accuracy could ALiBi reach at most on this mix, and why? What would it have reached if all negatives were random permutations?
# 2. Compare two of the other three arms in and beyond the training length with your prediction. Look at the kinds: *which* answer do the models fall back on in longer sequences, and why does that give the mean accuracy it gives?
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. No encoding: equivariant, with mean pooling invariant: a set of numbers has one answer whatever its order, so 0.50 at best on this mix (half a point). Symmetric ALiBi is flip-equivariant: with mean pooling a sequence and its reverse get the same answer, so of each such pair one is wrong: ascending are 1/2, reversed 1/4 of the sequences; best is to call both ascending: 0.5 + 0.25 = 0.75, with 0 on the reversed. With random permutations only, nearly 1 is possible (half a point).
# 2. A comparison with the numbers, prediction named (half a point). The models say "not ascending" to nearly everything longer: permutations and reversed stay near 1, ascending falls to 0, so the mean goes to 0.50; a mean of 0.5 here is a one-sided error, not guessing. Reason: anything unfamiliar looks unlike the ascending sequences of training (or any sensible mechanism) (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "ascending_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Without an encoding the encoder is equivariant, and after mean pooling it sees only the *set* of numbers: an ascending, a permuted and a descending sequence of the same numbers get the same answer. So 0.50 is the best on this mix; each kind is at about 0.5. Symmetric ALiBi knows distances without a direction: with mean pooling a sequence and its reverse get the same logits. Random permutations it can recognise (0.98), but of an ascending sequence and its mirror image one must be wrong. Ascending ones are twice as frequent (50 against 25 of 100), so it pays to say "ascending" to both: 0.50 + 0.25 = 0.75 at most, measured 0.74 to 0.75, with 0.97 on ascending and 0.05 on reversed ones. With random permutations as the only negatives it could have reached nearly 1, and nobody would have noticed what it cannot do.
#
# 2. I expected RoPE to hold at 2x and sinusoids to fall slowly. At 8 numbers both are at 1.00. At 16 RoPE has 0.91 (0.86 to 0.96), the sinusoidal model 0.50 in every run; at 32 both have 0.50. By kind: permutations and reversed sequences stay at 1.00, ascending ones fall to 0. The models fall back on "not ascending": a long ascending sequence does not look like the ascending ones of training, and the negatives were always the varied class. Half of the sequences are ascending and all of them are wrong, hence 0.50.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Ascending read backwards is descending. What does exercise 4.8 say about a sequence and its reverse?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Of 100 sequences 50 are ascending, 25 permuted, 25 reversed. A model that cannot tell a sequence from its reverse must give the ascending and the reversed ones the same answer. Which answer pays?
# </details>

# %% [markdown]
# ## 10 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Why does a RoPE model break down beyond its training length, although RoPE is relative?</summary>
#
# Because relative distances beyond the training length are new too. The slow pairs have never completed a turn, and larger distances take them to angles no training text has shown. The fast pairs have seen all of theirs.
# </details>
#
# <details><summary>2. PI, NTK-aware scaling, YaRN: one sentence each.</summary>
#
# PI divides all angles by $s$. NTK-aware scaling raises the base, so that the first pair keeps its speed and the last is slowed down by exactly $s$. YaRN leaves fast pairs alone, divides by $s$ those that never turned, mixes in between, and sharpens the attention.
# </details>
#
# <details><summary>3. Where does the exponent d/(d−2) come from?</summary>
#
# From asking that the last pair, $i=\frac d2-1$, turn exactly $s$ times slower. Its exponent is $-(d-2)/d$; solve for the base.
# </details>
#
# <details><summary>4. Does NTK-aware scaling slow down all frequencies?</summary>
#
# No. Pair 0 has speed $b^0=1$ for every base. The later the pair, the more it slows down.
# </details>
#
# <details><summary>5. In YaRN, which frequencies are interpolated?</summary>
#
# The low ones, linearly, as in PI. The high ones are left untouched.
# </details>
#
# <details><summary>6. What does YaRN's temperature do to a logit at s = 16?</summary>
#
# Cosine and sine are both multiplied by $t$, query and key both carry it, so the logit is multiplied by $t^2=1.277^2=1.63$.
# </details>
#
# <details><summary>7. You switch on dynamic NTK in a server with a KV cache. What can go wrong?</summary>
#
# Cached keys were rotated with the base of their time; the query uses the base of now. Cache keys before rotation, or keep the base fixed.
# </details>
#
# <details><summary>8. A paper shows a falling mean loss for growing windows. Does the model use the longer context?</summary>
#
# Not necessarily. The share of early targets, which have little context, falls. Ask for the same targets at every length.
# </details>
#
# <details><summary>9. ALiBi extrapolates. In which sense, and in which not?</summary>
#
# Its loss stays flat beyond the training length. It does not follow that far tokens are used: their weight falls exponentially with the distance.
# </details>
#
# <details><summary>10. What is attention dilution, and what does log n have to do with it?</summary>
#
# More keys share one unit of weight, so the weight of a key that matters falls although its logit stands out as before. Multiplying the logits by $\log n/\log n_0$ counters this. Adding $\log n$ does nothing.
# </details>
#
# <details><summary>11. Can a decoder without any positional encoding know positions?</summary>
#
# Yes, from the causal mask (week 1; Haviv et al., 2022). In our language model it had the highest loss of the six at the training length all the same.
# </details>
#
# <details><summary>12. Your new method wins at 8x, on one seed. What is missing?</summary>
#
# The spread over seeds, the loss within the training length, the scale it was run with, a task that needs the far context, and the same targets for all.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Beyond the training length the high frequencies see unseen angles | The *low* ones do; the high ones have been all round the circle. | 5.1, Figure 5.1 |
# | Sinusoids fail far out because they are periodic | For width 64 the slowest wavelength is some 47,000 positions, and our models break down at 128. The trouble is values never seen in training. | section 6.2 |
# | A learned embedding beyond its table is random | A row that was never trained is as it was initialised; an index beyond the table is an error. | section 6.2 |
# | The NTK base for $s=2$, $d=64$ is about 20,700 | $10\,000\cdot2^{64/62}=20\,452$. | 5.3 |
# | NTK-aware scaling reduces all frequencies | The first is unchanged, the last divided by exactly $s$. | 5.3, Figure 5.3 |
# | YaRN interpolates high frequencies and uses NTK for the low ones | High: untouched. Low: linear interpolation. Between: a ramp. And a temperature. | 5.5 |
# | Dynamic NTK with scale $s$ stretches by $s$ | By $s\,n/L-(s-1)$: at 8x and $s=8$ that is 57. | section 4 |
# | Add $\log n$ to the logits against dilution | Adding a constant is a no-op; *multiply* by $\log n/\log n_0$. | 5.8, Figure 5.9 |
# | PI works out of the box | Without fine-tuning it was worse than doing nothing at 2x here. | Figure 5.8 |
# | T5's relative bias extrapolates, since far buckets are shared | Its loss rose with every doubling here. | Figure 5.5 |
# | A flat perplexity shows that the context is used | Needles were lost behind a flat loss. | Figure 5.10 |
# | Code Llama's long context comes from ALiBi | It uses RoPE with base $10^6$ (Rozière et al., 2023). | week 3 |
# | Perplexity tables without a source | Measure, or cite. Every number of this week is computed here or made by a script of the course. | `make experiments` |
#
# ## To take with you
#
# 1. Count the turns within the training length, and you know which pairs are in trouble.
# 2. Squeeze only what must be squeezed; state the scale.
# 3. Same targets at every length, several seeds, and the loss within the training length beside the one beyond.
# 4. More keys dilute attention, whatever the encoding.
# 5. A flat loss is not a used context. Hide a needle.
#
# ## References
#
# - S. Chen, S. Wong, L. Chen, Y. Tian: *Extending Context Window of Large Language Models via Positional Interpolation*, 2023, arXiv:2306.15595.
# - bloc97: *NTK-Aware Scaled RoPE*, 2023, and emozilla: *Dynamically Scaled RoPE*, 2023, posts on r/LocalLLaMA. Both are restated in the YaRN paper.
# - B. Peng, J. Quesnelle, H. Fan, E. Shippole: *YaRN: Efficient Context Window Extension of Large Language Models*, 2023, arXiv:2309.00071.
# - O. Press, N. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, ICLR 2022, arXiv:2108.12409.
# - J. Su et al.: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021, arXiv:2104.09864.
# - C. Raffel et al.: *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, 2019, arXiv:1910.10683 (the T5 bias).
# - D. Chiang, P. Cholak: *Overcoming a Theoretical Limitation of Self-Attention*, 2022, arXiv:2202.12172 (multiplying logits by log n).
# - A. Haviv, O. Ram, O. Press, P. Izsak, O. Levy: *Transformer Language Models without Positional Encodings Still Learn Positional Information*, 2022, arXiv:2203.16634.
# - A. Kazemnejad et al.: *The Impact of Positional Encoding on Length Generalization in Transformers*, 2023, arXiv:2305.19466 (no encoding does well there on synthetic tasks; our language model is another matter).
# - C.-P. Hsieh et al.: *RULER: What's the Real Context Size of Your Long-Context Language Models?*, 2024, arXiv:2404.06654 (retrieval tests beyond one needle).
# - B. Rozière et al.: *Code Llama: Open Foundation Models for Code*, 2023, arXiv:2308.12950.
# - Code: huggingface/transformers, `modeling_rope_utils.py` ("linear", "dynamic", "yarn").
