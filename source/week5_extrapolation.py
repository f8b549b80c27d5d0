# %% [markdown]
# # Week 5 · Beyond the training length
#
# **The question of this week.** A model was trained on 4,096 tokens. Your document has 16,384. What breaks, what mends it, and how would you know that it is mended?
#
# ## What you will be able to do
#
# - compute which pairs of a RoPE model meet new angles, and test which of them matter;
# - write position interpolation, NTK-aware scaling, its dynamic form and YaRN;
# - measure a loss by length so that the numbers can be compared;
# - explain attention dilution, and what multiplying by log n does against it;
# - show that a flat loss can hide a lost context, and build a model that keeps it.
#
# **You need** weeks 3 and 4. The encodings come ready in `ready_encodings.py`.
#
# **Time:** about 220 minutes of exercises and 50 of reading. The notebook runs in about a minute and a half on two CPU cores. Short of time? 5.1, 5.5 and 5.6 are the core, and 5.7 is what it is all for.
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
# **How points are given.** The *visible check* below an answer carries 0 points and says what is wrong and why. The *hidden tests* carry all points of a code or number exercise and try other inputs. A person reads the text answers.
#
# **A mistake is paid for once.** If your `ntk_base` returns wrong numbers and `dynamic_ntk_base` uses it rightly, 5.4 still gets its points.
#
# **Cells marked *predict*** ask you to commit before you look. They are not graded. Do them anyway: several results surprise most people.

# %% [markdown]
# ### Conventions of this week
#
# - $d$ is the **head dimension**, $i$ numbers the **pairs** of channels from 0. Pair $i$ turns by $\theta_i=\text{base}^{-2i/d}$ radians per position: its **frequency**.
# - $L$ is the length of the training texts (`original_len`), $n$ the length in use. "4x" means $n=4L$.
# - $s$ is the **stretch**, the factor by which a method is to slow pairs down (`scale`). $m$ is a position (in week 4 it was a slope).
# - Losses are in nats per character (natural logarithm); lower is better. "Five seeds" means five trainings with other initial weights and other batches.
# - Unless said otherwise your functions return the dtype and device of their input, keep gradients, and change no argument.

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
# Train a model on texts of $L$ tokens, then give it $4L$. Why should it fail?
#
# - **New positions or distances.** A row of a table that no gradient has touched, a sinusoid at an unknown value, a rotation by an unknown angle, a larger bias.
# - **More keys.** A softmax over $4L$ keys shares its weight among four times as many, whatever the encoding.
#
# For RoPE the first point can be made exact. Pair $i$ turns by $\delta\,\theta_i$ between a query and a key that are $\delta$ apart, and in training $\delta$ stays below $L$. A **fast** pair goes round many times within $L$: whatever angle a long text asks for, the model has seen it. A **slow** pair does not complete one turn. The model knows an arc of its circle, and a longer text leaves this arc.
#
# So the *slow* pairs, the low frequencies, meet new angles.
#
# **A worked example.** $d=8$, base $10\,000$, $L=100$. The frequencies are $1, 0.1, 0.01, 0.001$; one turn takes $6.3$, $63$, $628$ and $6283$ positions. In 100 positions the pairs make $15.9$, $1.59$, $0.159$ and $0.0159$ turns. Two complete a turn, two never do. Where is the boundary, if $i$ could be any real number? One turn takes exactly $L$ positions where
#
# $$\frac{2\pi}{\theta_i}=L\iff \text{base}^{2i/d}=\frac{L}{2\pi}\iff i=\frac d2\cdot\frac{\ln\big(L/2\pi\big)}{\ln \text{base}}, \tag{1}$$
#
# here $i=4\cdot\ln(15.9)/\ln(10\,000)=1.202$. Pairs 0 and 1 lie below, pairs 2 and 3 above. Liu et al. (2023) call this boundary, counted in channels, the *critical dimension*.

# %% tags=["experiment"] jupyter={"source_hidden": true}
from matplotlib.patches import Wedge

fig, axes = lab.figure("The worked example: angles seen at L = 100, and new ones at 2x", ncols=4, height=2.8)
for pair, (ax, frequency) in enumerate(zip(axes, ready.frequencies_of(8).tolist())):
    seen, asked = (min(math.degrees(reach * frequency), 360) for reach in (100, 200))
    lab.dial(ax, [], title=f"pair {pair}", note=f"{100 * frequency / (2 * math.pi):.3g} turns in 100")
    ax.add_patch(Wedge((0, 0), 0.92, 0, seen, color=lab.SKY, alpha=0.8, linewidth=0, label="seen in training"))
    if asked > seen:
        ax.add_patch(Wedge((0, 0), 0.92, seen, asked, facecolor=lab.VERMILLION, edgecolor="white", hatch="////",
                           linewidth=0, label="new at 2x"))
fig.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# **Figure 5.1. Dials, seen and new.** Each dial is the circle of one pair of the worked example. Blue: the angles that distances up to 100 reach; hatched: what distances up to 200 add. The fast pairs have been all the way round, the slow ones leave their arc.

# %% [markdown]
# ### Exercise 5.1 · Pairs that never turn
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* these are the pairs that *can* be in trouble (section 6 tests which are), and all of YaRN rests on equation (1).
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
# Equation (1) gives the boundary. If it were 1.2, pairs 0 and 1 would complete a turn: two pairs.
# </details>

# %% [markdown]
# ### Experiment: how much of its circle has each pair seen?
#
# A model with $d=64$ and $L=2048$ reads a text of $n=4L$.

# %% [markdown] tags=["prediction"]
# **Predict.** Which pairs visit new angles at $4L$: the first, the last, or some in the middle? How many of the 32?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
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
# **Figure 5.2. Seen and unseen angles.** One bar per pair: the part of its circle that it visits. Pairs 0 to 20 have been all the way round in training; the others leave their arc. Equation (1) puts the boundary at 20.1.

# %% [markdown]
# ## 2 · Position interpolation: squeeze the ruler
#
# The first idea: divide all positions by $s$. With $s=4$ a text of $4L$ has the positions $0, \frac14, \frac24, \dots$, and no distance is longer than in training. Chen et al. (2023) and kaiokendev (2023) found it at the same time.
#
# $$m \mapsto \frac ms\qquad\text{or, which is the same,}\qquad \theta_i\mapsto\frac{\theta_i}{s}\ \text{ for every pair.} \tag{2}$$
#
# The price: *all* pairs slow down, the fast ones too. Two neighbours that were one radian apart on pair 0 are now a quarter of a radian apart. The marks on the ruler stand closer together than the model learned to read. So Chen et al. fine-tune after the change. Section 6 shows what happens if you don't.

# %% [markdown]
# ### Exercise 5.2 · Position interpolation
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* one line, with one trap: positions are usually *integers*, and integers cannot hold a quarter.

# %% nbgrader={"grade_id": "position_interpolation", "solution": true}
def position_interpolation(positions, scale):
    """Positions for a model that is stretched by ``scale``: equation (2).

    positions: tensor of any shape, integers or floats, negative ones too
    scale:     positive float or int, usually > 1
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
out = position_interpolation(torch.tensor([[3.0, 1.5]], dtype=torch.float64), 2.5)
assert out.dtype == torch.float64 and tuple(out.shape) == (1, 2), (
    f"floats keep their dtype and any shape is allowed: float64 (1, 2) expected, got {out.dtype} {tuple(out.shape)}.")
assert abs(float(out[0, 0]) - 1.2) < 1e-9, f"with scale 2.5, position 3 becomes 1.2; yours becomes {float(out[0, 0]):.4g}."
assert float(position_interpolation(torch.tensor(3), 4.0)) == 0.75, "a single position, of shape (), is allowed too."
print("Looks right. The hidden tests try other dtypes, shapes and scales.")

# %% nbgrader={"grade_id": "position_interpolation_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.position_interpolation(position_interpolation)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint</summary>
#
# `/` divides integers as real numbers, `//` does not. `tensor.is_floating_point()` tells the two cases apart.
# </details>

# %% [markdown]
# ## 3 · NTK-aware scaling: slow down the slow ones
#
# Position interpolation does too much: the fast pairs were in no danger. The second idea changes the **base** $b$ instead of the positions (bloc97, 2023, a post on r/LocalLLaMA; restated in the YaRN paper, section 3.1). NTK is the *neural tangent kernel*, which you do not need. Replace $b$ by a larger $b'$. Pair $i$ then has the frequency $b'^{-2i/d}$:
#
# - pair 0 keeps its frequency, since $b'^{0}=1$;
# - every later pair slows down, the last one most.
#
# How large must $b'$ be? Ask that the *last* pair, $i=\frac d2-1$, slow down by exactly $s$:
#
# $$b'^{-(d-2)/d}=\frac{b^{-(d-2)/d}}{s}\quad\Longleftrightarrow\quad b'=b\cdot s^{\,d/(d-2)}. \tag{3}$$
#
# **An example.** $b=10\,000$, $s=2$, $d=64$: $b'=10\,000\cdot2^{64/62}=20\,452$.

# %% [markdown]
# ### Exercise 5.3 · The new base
#
# **4 points (3 + 1) · difficulty 2/5 · 10 + 5 minutes · code and numbers**
#
# *Why it matters:* one changed number stretches a whole model.

# %% nbgrader={"grade_id": "ntk_base", "solution": true}
def ntk_base(base, scale, head_dim):
    """The base with which the last pair turns ``scale`` times slower and the first as fast as before: equation (3).

    base:     float
    scale:    positive float; the formula also holds for scales up to 1
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
between = ntk_base(10000.0, 1.5, 64)
assert abs(between - 15197) < 5, f"with scale 1.5 and head_dim 64 the base is 15,197; yours is {between:,.0f}."
print("Looks right. The hidden tests try other bases, scales and dimensions.")

# %% nbgrader={"grade_id": "ntk_base_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.ntk_base(ntk_base)
### END HIDDEN TESTS

# %% [markdown]
# **By hand.** For base 10,000, scale 4 and head_dim 64: the new base to **five significant digits**, and the ratio *new frequency / old frequency* of the first and of the last pair.

# %% tags=["by-hand"] nbgrader={"grade_id": "ntk_by_hand", "solution": true}
# Replace every None by a number; new_base to five significant digits, the others to four.
ntk_by_hand = {
    "new_base": None,  # base 10000, scale 4, head_dim 64
    "first_pair_ratio": None,  # new frequency / old frequency of pair 0
    "last_pair_ratio": None,  # new frequency / old frequency of pair 31
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
# <details><summary>Hint 1 (by hand)</summary>
#
# $4^{64/62}=4\cdot4^{1/31}=4\cdot e^{\ln 4/31}$.
# </details>
#
# <details><summary>Hint 2 (by hand)</summary>
#
# The ratios need no calculator. Which two conditions was equation (3) made from?
# </details>

# %% [markdown]
# ## 4 · Dynamic NTK: stretch only as far as needed
#
# A model stretched for $8L$ runs with changed angles on short texts too. *Dynamic* NTK computes the base from the current length $n$ (emozilla, 2023, r/LocalLLaMA; `transformers` calls it `"dynamic"`):
#
# $$b'(n)=b\cdot\Big(\underbrace{c\,\frac nL-(c-1)}_{\text{stretch }s(n)}\Big)^{d/(d-2)}\quad\text{for } n>L,\qquad b'(n)=b\quad\text{for } n\le L. \tag{4}$$
#
# At $n=L$ the stretch is exactly 1, so nothing jumps. The constant $c$ is the argument `scale`, and it is *not* the stretch: it says how fast the stretch grows. With $c=1$ it is $s=n/L$, just what is needed. With $c=8$ at $n=8L$ it is 57. **A result of dynamic NTK means little without its $c$.**
#
# **Examples** with $d=64$, $L=4096$, base 10,000, $n=8192$: $c=1$ stretches by 2, base 20,452 as in section 3; $c=2$ stretches by 3, base 31,082.

# %% [markdown]
# ### Exercise 5.4 · The base for the current length
#
# **2 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* one common mistake changes short texts, which were fine. Another remembers the longest text so far, so an answer depends on who asked before.

# %% nbgrader={"grade_id": "dynamic_ntk_base", "solution": true}
def dynamic_ntk_base(base, scale, head_dim, seq_len, original_len):
    """The base for a text of ``seq_len`` positions: equation (4).

    base, scale:  floats; equation (4) holds for every scale
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
assert abs(at(8192) - 31082) < 2, (
    f"with scale 2 and twice the length the effective stretch is 2*2 - 1 = 3 and the base 31,082; yours is "
    f"{at(8192):,.0f}.")
assert abs(at(6144, scale=1.5) - 17819) < 2, (
    "with scale 1.5 and one and a half times the length the stretch is 1.5*1.5 - 0.5 = 1.75 and the base 17,819; yours is "
    f"{at(6144, scale=1.5):,.0f}. Is something cut off to a whole number?")
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
# Compute the stretch $s(n)$ first. Then equation (3).
# </details>
#
# <details><summary>Hint 2</summary>
#
# For $n<L$ the formula would give a stretch below 1. Keep this case out.
# </details>

# %% [markdown]
# ### Experiment: a cache and a moving base do not go together
#
# A decoder caches *rotated* keys, each with the base of its step; with dynamic NTK the base changes with every token beyond $L$. One head grows to 8,192 tokens, with $L=4096$ and $c=2$. We compare the newest query's scores with those after rotating all keys with the current base.

# %% [markdown] tags=["prediction"]
# **Predict.** Which scores will be right: those of keys cached before position 4096, after it, both, or none?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
generator = torch.Generator().manual_seed(1)
n, original, dim = 8192, 4096, 64
q, keys = torch.randn(1, 1, 1, dim, generator=generator), torch.randn(1, 1, n, dim, generator=generator)
at = torch.arange(n)
base_at = torch.tensor([dynamic_ntk_base(10000.0, 2.0, dim, int(m) + 1, original) for m in at], dtype=torch.float64)
exponent = torch.arange(0, dim, 2, dtype=torch.float64) / dim

def turned(x, angles):
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos().float(), angles.sin().float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

now = at[:, None] * base_at[-1] ** -exponent
then = at[:, None] * base_at[:, None] ** -exponent
query = turned(q, now[-1:])
fresh, cached = ((query * turned(keys, angles)).sum(-1)[0, 0] for angles in (now, then))
in_groups = lambda error: error.abs().view(64, 128).mean(1)
error, unrelated = in_groups(cached - fresh), in_groups(fresh.roll(1) - fresh)  # the score of another key instead

fig, ax = lab.figure("Error of the scores with a cache of rotated keys (dynamic NTK, c = 2)", height=3.0)
ax.plot(at[64::128], error, color=lab.VERMILLION, linestyle="-", label="cached keys")
ax.plot(at[64::128], unrelated, color=lab.GREY, linestyle=":", label="the score of the neighbouring key instead")
ax.axvline(original, color=lab.GREY, linewidth=1.2, linestyle="--")
ax.text(original + 60, 0.4, "training length", color="#444444", fontsize=9)
ax.set(xlabel="position of the key", ylabel="mean |error|", ylim=(0, 1.25 * float(unrelated.max())), xlim=(0, n))
ax.grid(axis="y")
ax.legend(loc="upper right", ncols=2)
plt.show()


# %% [markdown]
# **Figure 5.3. A stale cache.** Mean absolute error of the newest query's scores, in groups of 128 keys. Dotted: the error made by taking the score of the neighbouring key, which is random here. Look for the keys at which the cache is no better than that.

# %% [markdown]
# Near position 0 rotations are small, and the last keys had nearly the current base: at both ends the error dips, but it is never small. In between the scores are lost, even for keys cached *within* the training length. With a moving base, cache keys before rotation.

# %% [markdown]
# ## 5 · YaRN: treat each pair as it deserves
#
# NTK-aware scaling slows down middle pairs that were in no danger, and divides only the very last by $s$. YaRN (Peng et al., 2023) asks of each pair the question of exercise 5.1: how many turns $r$ does it make within $L$?
#
# - more than $\beta_\text{fast}=32$ turns: **leave it alone**: it tells neighbours apart;
# - fewer than $\beta_\text{slow}=1$ turn: **divide it by $s$**, as position interpolation does;
# - between: **mix** the two, on a linear ramp.
#
# The pair that makes exactly $r$ turns is equation (1) with $L/r$ for $L$:
#
# $$\dim(r)=\frac{d\,\ln\!\big(L/(2\pi r)\big)}{2\ln\text{base}}. \tag{5}$$
#
# The official code and `transformers` compute the ramp over the number of the pair:
#
# $$\text{low}=\max(\lfloor\dim(\beta_\text{fast})\rfloor,\,0),\qquad \text{high}=\min(\lceil\dim(\beta_\text{slow})\rceil,\,d-1), \tag{6}$$
# $$\gamma_i=\text{clamp}\Big(\frac{i-\text{low}}{\text{high}-\text{low}},\,0,\,1\Big),\qquad \theta_i' = (1-\gamma_i)\,\theta_i+\gamma_i\,\frac{\theta_i}{s}. \tag{7}$$
#
# Four details:
#
# 1. The ends are rounded *outwards*, down and up, to whole pairs.
# 2. They are clamped to 0 and to $d-1$ (so in the code; the largest pair number is $\frac d2-1$).
# 3. If low = high, add 0.001 to high, to avoid a division by zero.
# 4. $L$ is the *original* length, never the new one.
#
# **A worked example**, the size of our model later: $d=16$, $L=64$, $s=4$, base 10,000. $\dim(32)=-0.994$, so low = max(−1, 0) = 0. $\dim(1)=2.016$, so high = 3. The ramp is $\gamma=0,\frac13,\frac23,1,1,1,1,1$, and the frequencies are multiplied by $1,\ \frac34,\ \frac12,\ \frac14,\ \frac14,\dots$
#
# **The temperature.** YaRN also sharpens attention a little. Cosine *and* sine are multiplied by
#
# $$t(s)=0.1\ln s+1\quad(s>1),\qquad t=1\quad(s\le1). \tag{8}$$
#
# Both the query and the key carry the factor, so the logits (the scores before softmax) get its *square*. (The paper's $t$ is our $1/t^2$.)

# %% [markdown]
# ### Exercise 5.5 · YaRN
#
# **7 points (4 + 2 + 1) · difficulty 4/5 · 25 + 10 + 5 minutes · code and numbers**
#
# *Why it matters:* every detail above can be wrong without an error message.

# %% nbgrader={"grade_id": "yarn_frequencies", "solution": true}
def yarn_frequencies(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    """The frequencies of the pairs after YaRN: equations (5) to (7).

    head_dim:     even int; an odd one raises ValueError
    scale:        float, s
    original_len: int, L, the length of the training; so large that low <= high
    returns:      (head_dim/2,) float32 in radians per position, fastest first; a new tensor on each call
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
assert tuple(out.shape) == (8,), f"one frequency per pair: shape (8,) expected, got {tuple(out.shape)}."
assert out.dtype == torch.float32, f"float32 expected, got {out.dtype}."
plain = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
factor = out / plain
assert abs(float(factor[0]) - 1) < 1e-4, (
    f"low is clamped to 0, so pair 0 is left alone; yours is multiplied by {float(factor[0]):.3g}. Is the ramp reversed?")
assert abs(float(factor[-1]) - 0.25) < 1e-4, (
    f"the last pair never completes a turn and must be divided by 4; yours is multiplied by {float(factor[-1]):.3g}.")
assert torch.allclose(factor, torch.tensor([1, 0.75, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25]), atol=1e-3), (
    "the ramp of the worked example multiplies the frequencies by 1, 3/4, 1/2, 1/4, 1/4, ...; yours by "
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
assert yarn_temperature(1.5) > 1, "the factor makes the attention sharper: it must lie above 1."
assert abs(yarn_temperature(math.e**2) - 1.2) < 1e-9, (
    f"ln e² = 2, so scale e² must give 1.2; yours gives {yarn_temperature(math.e**2):.4g}. Natural logarithm? No square?")
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
# `torch.arange(head_dim // 2)` minus low, divided by the width, then `.clamp(0, 1)`. Where it is 0 the frequency stays, where it is 1 it is divided by `scale`.
# </details>
#
# <details><summary>Hint 3: the logit factor</summary>
#
# Rotated query times rotated key. How many of the two carry $t$?
# </details>

# %% [markdown]
# ### Experiment: what each method does to each pair
#
# All methods side by side, for $d=64$, $L=2048$, $s=4$.

# %% [markdown] tags=["prediction"]
# **Predict.** Sketch *old frequency / new frequency* over the pair number for PI, NTK and YaRN. Which of the three leaves some angles new?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
plain = ready.frequencies_of(64)
after = {
    "PI": plain / 4,
    "NTK": ready.frequencies_of(64, ntk_base(10000.0, 4.0, 64)),
    "YaRN": yarn_frequencies(64, 4.0, 2048).double(),
}
METHOD = {"none": (lab.BLACK, ":"), "PI": (lab.ORANGE, "-."), "NTK": (lab.GREEN, "--"), "YaRN": (lab.BLUE, "-"),
          "dynamic NTK": (lab.PURPLE, (0, (8, 3)))}

fig, ax = lab.figure("How much slower each pair turns (head_dim 64, s = 4)", height=3.3)
for name, frequencies in after.items():
    colour, style = METHOD[name]
    ax.plot(plain / frequencies, color=colour, linestyle=style, label=name)
for pair, words in ((8, "low"), (21, "high")):
    ax.axvline(pair, color=lab.GREY, linewidth=1, linestyle=":")
    ax.text(pair + 0.25, 4.15, words, color="#444444", fontsize=9)
ax.set(xlabel="pair i", ylabel="old frequency / new frequency", ylim=(0.8, 4.4), xlim=(0, 31))
ax.set_yticks([1, 2, 3, 4])
ax.grid(axis="y")
ax.legend(loc="center left")
plt.show()

# %% [markdown]
# **Figure 5.4. How much each method slows each pair.** PI is flat: every pair four times slower. NTK slopes from 1 to 4. YaRN leaves pairs 0 to 8 alone and divides the pairs from 21 on by 4; its ramp bends because the *frequencies* are mixed linearly and their reciprocal is drawn.

# %% tags=["experiment"] jupyter={"source_hidden": true}
fig, axes = lab.figure("Part of its circle that each pair visits at 4x, after the change", ncols=3, height=3.2,
                       sharey=True)
rows = []
for ax, (name, frequencies) in zip(axes, after.items()):
    rows.append([name, coverage(ax, frequencies, name)])
axes[0].set_ylabel("part of the circle")
fig.legend(*axes[0].get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
lab.table(["method, s = 4", "pairs with new angles at 4x"], [["none", new_pairs], *rows])

# %% [markdown]
# **Figure 5.5. Coverage after each extension.** Blue: angles known from training; hatched: new. PI and YaRN leave nothing new. With NTK every pair beyond the boundary but the last slows down by less than 4 and still leaves its arc a little.

# %% [markdown]
# So NTK needs a larger $s$ than the length asks for (YaRN paper, section 3.1). The picture hides PI's price (section 2). Move $s$ yourself:

# %% tags=["experiment"]
lab.moving_frequencies(ntk_base, yarn_frequencies, head_dim=32, original_len=512)


# %% [markdown]
# **Figure 5.6. Move it: the stretch.** How long one turn of each pair takes under your own functions ($d=32$, $L=512$). Grey: pairs that complete a turn in training. Move $s$ and watch which methods slow down pairs that were in no danger.

# %% [markdown]
# <details><summary>Aside: Llama 3</summary>
#
# Llama 3.1's scaling (type `"llama3"` in `modeling_rope_utils.py` of `transformers`) is YaRN's idea with other numbers. Pairs of more than 4 turns within 8,192 tokens stay, those of fewer than 1 are divided by 8, and those between are mixed linearly in the number of turns. There is no temperature.
# </details>

# %% [markdown]
# ## 6 · The comparison
#
# ### 6.1 Measure what you mean
#
# **Which targets?** A language model predicts every token of its window, the first from one token of context, the last from $n-1$. The mean over the window mixes easy and hard positions in a proportion that changes with $n$. At $4L$ a quarter of the targets have no more context than in training and hide a failure. And the first few, with next to no context, weigh less as $n$ grows: the mean may *fall* although nothing got better (the *early token curse*; Press et al., 2022). So score the **same last tokens** at every length, and let only the context in front of them grow.
#
# ```text
# text            . . . . . . . . . . . . . . . . . . . . . . . . T T T T     T: the targets, always the same
# context, 1x                                           . . . . . . . .
# context, 2x                           . . . . . . . . . . . . . . . .
# ```
#
# **Which mode?** Dropout off, no graph recorded, and afterwards the model as you found it. Calling `model.train()` is not enough: some part may have been frozen in eval mode on purpose.

# %% [markdown]
# ### Exercise 5.6 · Loss by length
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* a wrong measure can reverse the comparisons below.
#
# The next cell defines a small model for the tests; skip it.

# %% nbgrader={"grade_id": "probe_model", "locked": true}
class ProbeModel(nn.Module):
    """tokens (batch, L) -> logits (batch, L, vocab). Has dropout, as module and as function; looks at all tokens so far."""

    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, 6)
        self.inside = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)))
        self.read = nn.Linear(6, vocab)
        self.recorded, self.lengths = False, set()

    def forward(self, tokens):
        count = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
        states = self.inside(self.embed(tokens).cumsum(1) / count.sqrt())
        logits = self.read(F.dropout(states, 0.5, self.training))
        self.recorded = self.recorded or logits.requires_grad
        self.lengths.add(tokens.shape[1])
        return logits


def probe_model(weights, flags):
    """A ProbeModel with these weights and one training flag for each of its eight modules, the outermost first."""
    model = ProbeModel(len(weights["embed.weight"])).to(weights["embed.weight"].device)
    model.load_state_dict(weights)
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    return model


def observe(model):
    """What calls have left behind: flags, the lengths read, whether a graph was recorded, gradients, gradient mode."""
    return {"flags": [module.training for module in model.modules()], "lengths": sorted(model.lengths),
            "recorded a graph": model.recorded,
            "has gradients": any(weight.grad is not None for weight in model.parameters()),
            "gradient mode": torch.is_grad_enabled()}


# %% nbgrader={"grade_id": "loss_by_length", "solution": true}
def loss_by_length(model, tokens, lengths, n_targets):
    """The loss on the last ``n_targets`` tokens, for several lengths of context.

    model:     an nn.Module; model(x) turns int64 (batch, L) into logits (batch, L, vocab)
    tokens:    int64 (batch, n) with n > max(lengths)
    lengths:   list of ints, any order. At length L the model reads tokens[:, -L-1:-1]: L tokens, all but the very last
    n_targets: int, from 1 to the smallest length; scored are the predictions of the last n_targets tokens of the text
    returns:   dict {length: loss}; keys ints, values Python floats: mean cross-entropy in nats over batch and targets

    Raises ValueError if the text is too short for a length or n_targets > L. Runs in eval mode, without recording
    gradients; afterwards every submodule has the training flag it had before, and gradients are on.
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
    "you average over the whole window; the exercise asks for the last n_targets tokens only.")
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
# `tokens[:, -L-1:-1]` are the $L$ tokens before the last one. The logits at the last $k$ positions of this window predict the last $k$ tokens of the text.
# </details>
#
# <details><summary>Hint 2: the flags</summary>
#
# `model.modules()` gives the model and every part of it. Note `module.training` of each before `model.eval()`, and set it back one by one; `model.train(flag)` would set *all* parts.
# </details>
#
# <details><summary>Hint 3: the loss</summary>
#
# `F.cross_entropy` takes logits `(N, vocab)` and targets `(N,)`. Flatten batch and targets into one axis.
# </details>

# %% [markdown]
# ### 6.2 Six encodings, trained short, tested long
#
# **The model** is a causal decoder of characters: two layers, width 64, four heads of 16 channels (`SmallTransformer` in `ready_encodings.py`). The variants differ in the encoding only: none, sinusoidal, learned, RoPE, ALiBi, T5 bias.
#
# T5's bias adds to each score a *learned* number, one per head and bucket of distances. Distances 0 to 15 have a bucket each, larger ones share, and all from 31 on share the last. (In T5 the last begins at 113; training on 64 tokens would never reach it.)
#
# **The text** is the reference that comes with Python (`pydoc_data.topics`), printable ASCII, some 460,000 characters; the last tenth is for testing.
#
# **Training:** 1,000 steps of 32 windows of $L=64$ characters, five seeds per variant. Rows 64 to 511 of the learned table keep their small random initial values. **Test:** 96 windows, the same last 32 characters of each at $n=64, 128, 256, 512$.
#
# The results are shipped (`experiments/results.md`). *A model this small shows mechanisms. It does not predict the ranking of large ones.*

# %% [markdown] tags=["prediction"]
# **Predict** each encoding's loss at 8x: does it stay (within 0.1), rise, or break down (jump by half a nat at one doubling)? What does the model without an encoding do? And which is worse, sinusoidal or learned?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
import json

with open("week5_results.json", encoding="utf-8") as file:
    results = json.load(file)
tested = results["tested"]
LOOK = {"none": (lab.BLACK, ":", "o"), "sinusoidal": (lab.ORANGE, "-.", "s"), "learned": (lab.PURPLE, (0, (8, 3)), "^"),
        "rope": (lab.BLUE, "-", "D"), "alibi": (lab.GREEN, "--", "v"), "t5": (lab.VERMILLION, (0, (5, 1, 1, 1)), "X"),
        "hybrid": (lab.BLACK, "-", "P")}

def band(ax, lengths, per_seed, colour, style, marker="o", label=None, **options):
    """The mean over seeds as a line, and the range from the lowest to the highest seed as a band."""
    values = np.array(per_seed)
    ax.plot(lengths, values.mean(0), color=colour, linestyle=style, label=label, marker=marker, markersize=6, **options)
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

def named(name, per_seed):
    """The name, and the number of seeds where it is not five."""
    return name if len(per_seed) == 5 else f"{name} ({len(per_seed)} seed{'s' * (len(per_seed) > 1)})"

fig, ax = lab.figure("Loss on the same 32 targets, trained at 64 (dashed line)", height=4.2)
for encoding in ready.ENCODINGS:
    per_seed = results["fixed"][encoding]
    band(ax, tested, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
length_axis(ax, tested, 64)
ax.set(ylabel="loss (nats per character)", ylim=(1.2, 4))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[named(ready.NAMES[e], results["fixed"][e]), *spread(results["fixed"][e])] for e in ready.ENCODINGS])

# %% [markdown]
# **Figure 5.7. Loss against length.** Lines: mean over the seeds; bands: lowest to highest seed; dashed: the training length. No model was tested on shorter contexts. Compare the order at 1x with the order at 8x, and look for a curve that falls below its value at 1x.

# %% [markdown]
# The best at the training length, RoPE, is not the best beyond it. *No* curve falls below its value at 1x: none of the six gains from the longer context. T5's bias rises at every doubling although no bucket is new.
#
# The learned table ends below the sinusoids although its rows beyond 64 were never trained. They are small (standard deviation 0.02); start them larger and this may change. Don't read a ranking from it.
#
# Where in the text does a model fail?

# %% [markdown] tags=["prediction"]
# **Predict.** At which position does RoPE's loss leave the others: at 64, soon after, or only at several times 64? And if you average over the whole text, will the failure look larger or smaller?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
edges = np.array(results["positions"])
middle = np.sqrt((edges[:-1] + 1) * edges[1:])
fig, (left, right) = lab.figure("Trained on 64 (dashed): loss by position, and two ways to average", ncols=2, height=3.8)
for encoding in ("rope", "t5", "alibi"):
    per_seed = results["by_position"][encoding]
    band(left, middle, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
left.set_xscale("log", base=2)
left.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
left.minorticks_off()
left.axvline(64, color=lab.GREY, linewidth=1.2, linestyle="--", zorder=0)
left.set(xlabel="position of the target", ylabel="loss (nats per character)", ylim=(1.2, 4.2))
left.grid(axis="y")
left.legend(loc="upper center")
for encoding in ("rope", "alibi"):
    colour, _, marker = LOOK[encoding]
    for kind, style in (("fixed", "-"), ("cut", ":")):
        name = {"fixed": "last 32 targets", "cut": "all 512 targets"}[kind]
        per_seed = results[kind][encoding]
        band(right, tested, per_seed, colour, style, marker, named(f"{ready.NAMES[encoding]}, {name}", per_seed))
length_axis(right, tested, 64)
right.set(ylim=(1.2, 4.2), xlabel="length of the context, or of the pieces")
right.legend(loc="upper left")
plt.show()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[named(f"{ready.NAMES[e]}, {words}", results[kind][e]), *spread(results[kind][e], 3)] for e in ("rope", "alibi")
           for kind, words in (("fixed", "last 32"), ("cut", "all 512"))])

# %% [markdown]
# **Figure 5.8. Where the loss is, and two averages.** Left: loss by position in texts of 512 (early groups hold few targets). Right: solid, the last 32 targets with a growing context; dotted, all 512 targets of the text, cut into pieces of the given length. Both averages keep their targets fixed.

# %% [markdown]
# RoPE holds up to about position 90; by position 220 its loss has doubled. Averaged over all targets its loss at 4x shrinks from 3.06 to 2.23. ALiBi's two averages even disagree about the *direction*. On the same last 32 targets its loss rises, by 0.02 to 0.03 nats in each of five runs. Over all 512 it *falls*, by 0.01 to 0.02 in the same five: longer pieces have fewer targets with next to no context. Press et al. (appendix B.2) trace much of ALiBi's gain at longer inputs to this. From here on we use the last 32.

# %% [markdown]
# ### 6.3 Train one yourself
#
# The next cell trains one model of your choice for 300 steps and measures it with *your* `loss_by_length`. 

# %% [markdown] tags=["prediction"]
# **Predict.** ALiBi, 300 steps. Will its curve be flat already, or does flatness have to be learned?
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

# %% tags=["experiment"] jupyter={"source_hidden": true}
fig, (left, right) = lab.figure(f"A model of your own: {ready.NAMES[ENCODING]}, 300 steps", ncols=2, height=3.2)
left.plot(history, color=lab.BLACK, linestyle="-", linewidth=1)
left.set(title="training", xlabel="step", ylabel="loss (nats per character)", ylim=(1, 5))
change = [my_losses[n] - my_losses[trained] for n in lengths]
if trained == 64:
    for encoding in dict.fromkeys(("rope", "t5", ENCODING)):
        per_seed = np.array(results["fixed"][encoding])
        band(right, tested, per_seed - per_seed[:, :1], *LOOK[encoding], f"{ready.NAMES[encoding]}, shipped")
right.plot(lengths, change, color=lab.BLACK, linestyle="-", marker="s", label="yours")
length_axis(right, lengths, trained)
right.set(title="loss minus the loss at 1x (last 32 targets)", ylim=(-0.1, 2.2))
right.legend(loc="upper left")
plt.show()
if ENCODING == "alibi":
    print(f"change up to 8x below 0.15 nats: {max(map(abs, change)) < 0.15}")


# %% [markdown]
# **Figure 5.9. Your own model.** Left: training. Right: the change of the loss with the length, yours (squares) beside the shipped models of 1,000 steps. Try `ENCODING = "t5"` or `"rope"`.

# %% [markdown]
# ### 6.4 RoPE, extended
#
# Take the five RoPE models and change nothing but the angles. Start with the stretch that the length asks for, $s=n/64$. Dynamic NTK with $c=8$ stretches by 9, 25 and 57 at 2x, 4x and 8x.

# %% [markdown] tags=["prediction"]
# **Predict.** Order the four methods and "do nothing" by their loss at 2x, and again at 8x. Position interpolation leaves no angle new. Will it beat "do nothing" at 2x?
#
# *Your prediction:*

# %% tags=["experiment"]
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


# %% tags=["experiment"] jupyter={"source_hidden": true}
def load(name, **options):
    """A shipped model: the weights lie in a NumPy file, as float16."""
    model = ready.SmallTransformer(**options)
    with np.load(name) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files})
    return model.eval()

METHODS = ("none", "PI", "NTK", "dynamic NTK", "YaRN")
rope = load("week5_rope.npz", n_tokens=len(ready.ALPHABET), encoding="rope")
windows = ready.windows(test_text, 512, 96)  # those of the shipped results
yours = {}
for method in METHODS:
    rope.rotation = lambda n, method=method: stretched(method, n)
    yours[method] = loss_by_length(rope, windows, tested[method != "none":], 32)  # at 1x nothing is stretched
rope.rotation = rope.plain_rotation

matched, dynamic = results["extended"]["matched"], results["extended"]["dynamic"]["dynamic NTK, scale 8"]
at_1x = [row[:1] for row in results["fixed"]["rope"]]
curves = {method: [start + row for start, row in zip(at_1x, matched[method])]
          for method in ("none", "PI", "NTK", "YaRN")}
curves["dynamic NTK"] = dynamic

fig, ax = lab.figure("RoPE trained at 64, stretched without further training, five seeds", height=4.2)
for method in METHODS:
    label = {"none": "do nothing", "dynamic NTK": "dynamic NTK, c = 8"}.get(method, method)
    band(ax, tested, curves[method], *METHOD[method], marker=None, label=label)
    ax.plot(list(yours[method]), list(yours[method].values()), linestyle="none", marker="x", markersize=9, color=lab.BLACK)
ax.plot([], [], linestyle="none", marker="x", color=lab.BLACK, label="your functions,\none of the five models")
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
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[method, *spread(curves[method])] for method in METHODS])

# %% [markdown]
# **Figure 5.10. Extending RoPE.** Lines and bands as before; crosses: *your* functions on one of the five models, which must lie within the bands or next to them. Read the order of the methods at 2x, then at 8x.

# %% [markdown]
# At 2x **position interpolation is worse than doing nothing in each of the five runs**, by 0.33 to 0.58 nats, although no angle is new. From 4x on it is better. Chen et al. report the opposite for LLaMA: unchanged, it may meet "catastrophically high" scores beyond $L$, while interpolation stays stable (abstract). Our unchanged models lose only 0.4 nats at 2x, so there is little to win. That this explains the difference is our conjecture.
#
# YaRN seems far ahead of NTK at 8x. But is $s=n/64$ fair to both?

# %% [markdown] tags=["prediction"]
# **Predict.** Give each method the $s$ that suits it best. Which $s$ will NTK want at 8x? Will YaRN keep its lead?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
fig, axes = lab.figure("Loss against the stretch s", ncols=2, height=3.6, sharey=True)
best = []
for ax, n in zip(axes, ("256", "512")):
    for method in ("NTK", "YaRN"):
        colour, style = METHOD[method]
        per_seed = np.array(results["by_scale"][method][n])
        band(ax, results["scales"], per_seed, colour, style, label=named(method, per_seed))
        lowest = int(per_seed.mean(0).argmin())
        best.append([f"{method} at {int(n) // 64}x, s = {results['scales'][lowest]}", *spread(per_seed[:, [lowest]])])
    ax.axvline(int(n) / 64, color=lab.GREY, linewidth=1.2, linestyle="--")
    ax.text(int(n) / 64 * 1.06, 3.62, "s = n/L", fontsize=9, color="#444444")
    ax.set_xscale("log", base=2)
    ax.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    ax.minorticks_off()
    ax.set(title=f"{int(n) // 64}x: {n} characters", xlabel="stretch s", ylim=(1.4, 3.8))
    ax.grid(axis="y")
axes[0].set_ylabel("loss (nats per character)")
axes[1].legend(loc="lower left")
plt.show()
lab.table(["at the best s on average", "loss, mean (range over the seeds)"], best)

# %% [markdown]
# **Figure 5.11. Loss against s.** The same models and targets; only the stretch differs. Dashed: the choice of Figure 5.10. Compare the lowest points of the two curves.

# %% [markdown]
# Note YaRN's lead twice, here and in Figure 5.10. Exercise 5.7 asks for it.
#
# ### 6.5 Which pairs are in trouble?
#
# The popular explanation says: beyond $L$ the slow pairs meet new angles, and this breaks the model. Test it: slow down *one* pair by $n/64$ and leave the others alone.

# %% [markdown] tags=["prediction"]
# **Predict.** By exercise 5.1 some of the eight pairs never complete a turn in 64 positions. Must *all* of these be repaired to help? If a single repair helps, which?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
names = list(results["repaired"])
fig, ax = lab.figure("Only these pairs are slowed down by n/64, a symbol per seed", height=4.0)
for column, (n, colour, marker) in enumerate(((128, lab.GREEN, "o"), (256, lab.BLUE, "s"), (512, lab.VERMILLION, "^"))):
    for place, name in enumerate(names):
        values = np.array(results["repaired"][name])[:, column]
        ax.plot(np.full(len(values), place + 0.2 * (column - 1)), values, color=colour, marker=marker, markersize=4,
                linestyle="none", alpha=0.7, label=f"{n // 64}x" if place == 0 else None)
    unchanged = np.array(matched["none"])[:, column].mean()
    ax.axhline(unchanged, color=colour, linewidth=1.2, linestyle="--", zorder=0)
ax.plot([], [], color=lab.GREY, linewidth=1.2, linestyle="--", label="nothing repaired (mean)")
ax.axvline(7.5, color=lab.GREY, linewidth=0.8)
ax.set_xticks(range(len(names)), [name.removeprefix("pair ").replace("pairs ", "pairs\n") for name in names])
ax.set(xlabel="repaired: one pair (left), several (right)", ylabel="loss (nats per character)", ylim=(1.2, 4.1))
ax.grid(axis="y")
ax.legend(loc="upper right", ncols=4)
plt.show()
lab.table(["repaired, mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested[1:])],
          [["nothing", *spread(matched["none"])],
           *([named(name, results["repaired"][name]), *spread(results["repaired"][name])] for name in names)])

# %% [markdown]
# **Figure 5.12. One pair at a time.** Each symbol is one of the models with only the named pairs slowed down. Dashed: nothing repaired, same colour. A symbol below its dashed line is a repair that helps.

# %% [markdown]
# **Three more things.** In the row "log n" all logits of the unchanged models are multiplied by $\log n/\log 64$ (section 7).

# %% [markdown] tags=["prediction"]
# **Predict.** (a) YaRN without its temperature: better or worse? (b) A model stretched for 8x reads short texts: which method costs most? (c) 25 further training steps at 256 characters: which method gains most?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
columns = [f"{n // 64}x" for n in tested]
lab.table(["(a) s = n/64", *columns[1:]],
          [[name, *spread(matched[name])] for name in ("YaRN", "YaRN, no temperature", "none", "log n")])
gain = np.array(matched["YaRN, no temperature"]) - np.array(matched["YaRN"])
print("temperature: gain per seed (nats) at 2x " + ", ".join(f"{g:+.2f}" for g in gain[:, 0])
      + "; at 8x " + ", ".join(f"{g:+.2f}" for g in gain[:, -1]))
print()
lab.table(["(b) s = 8 at every length", *columns],
          [["none", *spread(results["fixed"]["rope"])],
           *([name, *spread(results["extended"]["fixed 8"][name])] for name in ("PI", "NTK", "YaRN"))])
print()
before = {name: [row[1] for row in matched[name]] for name in ("none", "PI", "NTK", "YaRN")}
lab.table(["(c) at 4x", "without further training", "after 25 steps"],
          [[name, *spread(np.array([before[name], results["fine_tuned"][name]]).T)] for name in before])


# %% [markdown]
# (a) The temperature hardly matters here; at 8x even its sign depends on the seed. The log-n factor makes these broken models *worse*: it sharpens scores that are wrong. (b) A stretch is not free: $s=8$ at the training length costs NTK 0.11 nats, YaRN 0.30, PI 1.62. (c) Doing nothing gains most, 0.83 nats, and YaRN least; the order stays. *Out of the box* and *after fine-tuning* are two comparisons: always say which one a table reports.

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained_question", "locked": true}
# ### Exercise 5.7 · What survives, and why
#
# **5 points · difficulty 3/5 · 40 minutes · text, graded by a person**
#
# *Why it matters:* "which encoding extrapolates?" has no one-word answer. A good answer names mechanisms and numbers.
#
# Answer with the tables and figures of this section, two to five sentences per part.
#
# 1. **RoPE.** The models have $d=16$, $L=64$, base 10,000. Which of the eight pairs never complete a turn in training? Someone says: "these pairs meet new angles, so all of them are in trouble." What does Figure 5.12 say?
# 2. **ALiBi** stays flat. What in its bias makes this possible? And why does a flat curve *not* show that the model makes use of 512 characters?
# 3. **Sinusoidal and learned.** Both break down at 2x. What exactly is new for the model in each case? Someone says: "sinusoids fail because they are periodic". What do you answer?
# 4. **Extensions.** At 2x position interpolation has no new angles, and is still worse than doing nothing. Why? YaRN is far ahead of NTK at 8x in Figure 5.10: how much of this is the method, and how much the choice of $s$?
# 5. **A failed expectation.** Name one expectation, of yours or from what you have read, that these results do not bear out. Give the numbers with their spread over the seeds, and say in one sentence what our experiment can *not* show about it.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. Boundary (d/2) ln(L/2 pi)/ln(base) = 2.02: pairs 3 to 7 (five of eight) never complete a turn (half a point; accept an off-by-one in the count if the formula is right). Only pair 3, just past the boundary, matters: repairing it alone brings 1.44/1.76/2.37 at 2x/4x/8x (means of five seeds), all five 1.46/1.82/2.32, pairs 4 to 7 without it nothing (1.75/3.08/3.25; unrepaired 1.75/3.06/3.31). So meeting new angles is not enough to be in trouble (half a point; "all five are in trouble" gets none).
# 2. The bias is a fixed slope times distance: a far key is penalised more than any key before, in the direction training has already shown; no new vectors or angles (half a point). A model that only looks at its last few dozen characters would have the same flat curve: the loss did not fall below that of 1x (half a point).
# 3. Sinusoidal: sums of token and position vectors in combinations never met, since the slow sinusoids take values outside the range seen at positions 0 to 63. Learned: rows that no gradient has changed since initialisation (half a point for both). Periodicity: the slowest wavelength is 2 pi * 10000**(62/64), some 47,000 positions for width 64; 128 lies far below; nothing repeats, the values are new (half a point).
# 4. PI slows the fast pairs too: neighbours that were 1 rad apart on pair 0 are half a radian apart; the local patterns on which character prediction relies are read with a wrong ruler, and no fine-tuning corrects it; repairing pair 0 alone (Figure 5.12) hurts too (half a point). Mostly the choice of s: at the best s for each, YaRN leads by 0.05 at 8x instead of 1.15; NTK at s = n/L leaves angles new and wants a larger s (half a point).
# 5. Any expectation that the tables do not bear out, with mean and range, e.g. PI helps at once; all pairs that never turned must be repaired; YaRN beats NTK by far; no encoding is competitive; a longer context lowers the loss; the temperature is what makes YaRN work (half a point). A limit: small model, characters, trained at 64, no fine-tuning, one text; ranking of large models not shown (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained", "grade": true, "solution": true, "points": 5}
# ### BEGIN SOLUTION
# 1. The boundary is $\frac{16}{2}\ln(64/2\pi)/\ln 10\,000=2.02$: pairs 0, 1, 2 complete a turn within 64 characters, pairs 3 to 7 never do. All five meet new angles beyond 64, but only pair 3, the first past the boundary, needs a repair. Repairing it alone brings the loss from 1.75/3.06/3.31 at 2x/4x/8x to 1.44/1.76/2.37 (means of five seeds). Repairing all five brings no more (1.46/1.82/2.32), and pairs 4 to 7 without pair 3 bring nothing (1.75/3.08/3.25). Meeting new angles is not enough; the model must have made use of the pair.
#
# 2. ALiBi subtracts slope × distance. A key at a distance never met is penalised more than any key before, in the direction training has already taught; there is no new vector and no new angle. But a model that looks at the last 30 characters only would have the same flat curve. The loss at 512 is not lower than at 64, so nothing shows that the other 448 characters are used.
#
# 3. Sinusoidal: the slow sinusoids take values beyond position 63 that they never had in training, so the sum of token and position is a vector from outside the training range. Learned: rows 64 and up are as they were initialised; no gradient has ever touched them. Periodicity is not the reason: for width 64 the slowest wavelength is $2\pi\cdot10\,000^{62/64}\approx47\,000$ positions and the model fails at 128. Nothing has come round by then; the values are new, not repeated.
#
# 4. PI slows *all* pairs, pair 0 too. Characters are predicted mostly from near neighbours, and at 2x these are half a radian apart where the model learned one radian: 2.20 against 1.75. Figure 5.12 agrees: slowing pair 0 alone makes the loss worse. At 8x with $s=8$ NTK leaves angles new (3.18) and YaRN does not (2.03). But NTK only needs a larger $s$: at its best $s$ it comes to 1.92 ($s=48$) against YaRN's 1.87 ($s=6$). Of a lead of 1.15 nats 0.05 remain; the rest was the choice of $s$.
#
# 5. I expected YaRN's temperature to matter, since it is part of the method. At 8x YaRN has 2.03 (1.94 to 2.17) with and 2.04 (1.94 to 2.19) without it; from seed to seed the gain lies between −0.02 and +0.05. The experiment cannot show whether it matters for large models, for longer contexts or after fine-tuning, which is what the paper is about.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For part 1 use equation (1). Then read Figure 5.12 from left to right.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For part 2 think of a model that cannot see more than 30 characters back. What would its curve look like?
# </details>
#
# <details><summary>Hint 3</summary>
#
# For part 4 look at pair 0 in Figure 5.12, and at the lowest points in Figure 5.11.
# </details>

# %% [markdown]
# <details><summary>After you have answered: the popular explanation, tested</summary>
#
# Five of eight pairs meet new angles, but one repair does what all five do. Repair pair 3, the first past the boundary, and the loss falls from 1.75/3.06/3.31 at 2x/4x/8x to 1.44/1.76/2.37 (means of five seeds). Repair all five and you get no more; repair pairs 4 to 7 and nothing happens. No slow pair explains what is left at 8x, a nat above 1x; our suspect is competing keys (section 7).
#
# Pair 3 saw a third of its circle in training, the slower ones a tenth or less. Our conjecture: the model tells positions apart with pair 3 and hardly uses the slower ones, so their new angles do no harm.
#
# At the best $s$ for each, YaRN's lead shrinks from 0.45 to 0.06 nats at 4x and from 1.15 to 0.05 at 8x. "Far better at the same $s$" was mostly a statement about $s$.
#
# For large models Liu et al. (2023) explain extrapolation by the critical dimension. Men et al. (2024) object that a model repaired by this theory may have only a "superficial" long-context ability (abstract). Section 8 is about this difference.
# </details>

# %% [markdown]
# ## 7 · More keys: attention dilution
#
# Suppose that every angle is right. There is still the softmax. Let one key matter, with a logit of 8, and let the other $n$ keys be noise, with logits drawn from a normal distribution of mean 0 and variance 1. The mean of $e^x$ over such noise is $e^{1/2}$. So the weight of the key that matters is about
#
# $$\frac{e^{8}}{e^{8}+n\,e^{1/2}}. \tag{9}$$
#
# With 64 keys this is 0.966. With 32,768 it is 0.052: the model still *finds* the key, whose logit is as far above the others as ever, but what it *reads* is 95 % noise. This is **attention dilution**. No positions are involved.
#
# **The remedy.** The noise grows like $n$, so the gap between the logits must grow like $\ln n$. Multiply all logits by
#
# $$\lambda(n)=\frac{\ln n}{\ln n_0}, \tag{10}$$
#
# where $n_0$ is a length at which the model is at home, say its training length. Su (2021) derived the factor from keeping the entropy of attention constant; Chiang and Cholak (2022) use $\log n$ too.
#
# *Multiply*, don't add. A constant added to all logits changes nothing: $\frac{e^{x_j+c}}{\sum_k e^{x_k+c}}=\frac{e^c\,e^{x_j}}{e^c\sum_k e^{x_k}}$.

# %% [markdown]
# ### Exercise 5.8 · The log-n factor
#
# **2 points · difficulty 1/5 · 15 minutes · code**
#
# *Why it matters:* both common mistakes, adding instead of multiplying and turning the fraction upside down, run without an error.

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
# The current length stands above. The base of the logarithm does not matter if it is the same in both.
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** At $n=32{,}768$ the plain weight is 0.052. What is it if $\log n$ is *added* to all logits? If they are *multiplied* by $\lambda$: back to 0.97, more, or less?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
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
# **Figure 5.13. Dilution.** Lines: equation (9); marks: drawn at random. Left alone, the weight of the key that matters falls to 0.052. Adding $\log n$ changes nothing: its line lies on the first one. The factor even raises the weight.

# %% [markdown]
# The weight rises because a lead of 8 exceeds $\ln 64\approx4.2$: multiplied, it outgrows $\ln n$. The factor needs a key that *stands out*; without one it sharpens noise, as in table (a) of section 6. Section 8 tries it where it should help.

# %% [markdown]
# ## 8 · A flat loss and a lost context
#
# ### 8.1 Hide a needle
#
# ALiBi's curve was flat. Does the model *use* the long context? Ordinary text cannot tell: nearly everything follows from the last few words. So hide something that can only be known from far away.
#
# **The task.** A haystack of filler, symbols 0 to 15: after $x$ comes $x+1$ with probability 0.8, else $x+5$ (modulo 16). Its entropy is 0.50 nats. Somewhere in it stands a *needle*: a MARK and one of 16 values. The last token is QUERY; the answer is the value, and guessing finds 1/16. Training: 300 steps at 64 tokens, needles anywhere. Test: the needle **in the first quarter**, up to 1,024 tokens.

# %% [markdown] tags=["prediction"]
# **Predict** for ALiBi and RoPE from 1x to 16x. What happens to the loss on *filler*? What to the share of needles found? Will the factor $\lambda(n)$ help?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
needle, lengths_n = results["needle"], results["needle_tested"]
fig, ax = lab.figure("Needle in the first quarter, trained at 64 (dashed line), five seeds", height=3.8)
for encoding in ("alibi", "rope"):
    colour, style, marker = LOOK[encoding]
    band(ax, lengths_n, needle[encoding]["found"], colour, style, marker, f"{ready.NAMES[encoding]}: needles found")
    band(ax, lengths_n, np.exp(-np.array(needle[encoding]["filler"])), colour, ":", marker,
         f"{ready.NAMES[encoding]}: filler, mean probability", markevery=(0 if encoding == "alibi" else 1, 2))
ax.axhline(1 / 16, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(66, 0.085, "guessing a needle", fontsize=9, color="#444444")
length_axis(ax, lengths_n, 64)
ax.set(ylabel="share found; probability", ylim=(0, 1.05))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in lengths_n)],
          [*([f"{ready.NAMES[e]}: {words}", *spread(needle[e][kind])] for e in ("alibi", "rope")
             for kind, words in (("filler", "filler loss"), ("found", "found"))),
           ["ALiBi: found, logits times λ", *spread(results["needle_log_n"])]])


# %% [markdown]
# **Figure 5.14. Flat perplexity, lost context.** Solid and dashed: needles found. Dotted: the geometric mean probability given to the right filler symbol ($e^{-\text{loss}}$, one over the perplexity). Mean and range over five seeds.

# %% [markdown]
# The filler loss stays at 0.49 to 0.52 for both encodings, at every length. RoPE's is flat too, although RoPE broke down on English: this filler needs only the token before. Whether a loss stays flat says as much about the text as about the model.
#
# **Here the factor helps.** With all content logits multiplied by $\lambda(n)$, ALiBi finds 0.77 of the needles at 16x instead of 0.54, better in each of five runs. (The bias itself stays as it is.)
#
# At which depth do the needles get lost?

# %% tags=["experiment"] jupyter={"source_hidden": true}
def needle_map(ax, encoding, title):
    """Share found, the mean over seeds: a row per length, a column per eighth of the haystack."""
    share = np.array(needle[encoding]["map"]).mean(0)
    title = named(title, needle[encoding]["map"])
    image = ax.imshow(share, vmin=0, vmax=1, cmap=lab.SEQUENTIAL, aspect="auto", origin="lower")
    for row, column in np.ndindex(share.shape):
        ax.text(column, row, f"{share[row, column]:.2f}".lstrip("0") if share[row, column] < 0.995 else "1",
                ha="center", va="center", fontsize=8, color="white" if share[row, column] < 0.5 else "black")
    ax.set_xticks([-0.5, 3.5, 7.5], ["start", "middle", "query"])
    ax.set_yticks(range(len(lengths_n)), [f"{n} ({n // 64}x)" for n in lengths_n])
    ax.set(title=title, xlabel="depth of the needle")
    return image

fig, axes = lab.figure("Share of needles found, by length and depth (mean over seeds)", ncols=2, height=3.2, sharey=True)
for ax, encoding in zip(axes, ("alibi", "rope")):
    image = needle_map(ax, encoding, ready.NAMES[encoding])
axes[0].set_ylabel("length of the haystack")
fig.colorbar(image, ax=axes, label="share found", shrink=0.9)
plt.show()

# %% [markdown]
# **Figure 5.15. A needle map.** Rows: length of the haystack; columns: where the needle lies, from the start to the query. Bright is found. Read the top row.

# %% [markdown] tags=["prediction"]
# **Predict.** ALiBi's slopes are here 1/4, 1/16, 1/64, 1/256; week 4's `effective_window` gives 19, 74, 295 and 1,179 positions. In haystacks of 1,024 tokens, does finding end at one of these distances? Does it depend on anything but the distance?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# One of the ALiBi models, its weights shipped: which needles does it find? No training; 10 seconds.
finder = load("week5_needle.npz", n_tokens=ready.NEEDLE_TOKENS, encoding="alibi")
length, size = 1024, 192
tokens, targets = ready.needles(size, length, torch.Generator().manual_seed(5))
distance = (length - 1) - (tokens == ready.MARK).int().argmax(1)
with torch.no_grad():
    answer = torch.cat([finder(part)[:, -1].argmax(-1) for part in tokens.split(16)])
value = targets[:, -1] - ready.FILLERS
found = answer == targets[:, -1]
reach = torch.stack([distance[found & (value == v)].max() if (found & (value == v)).any() else torch.tensor(0)
                     for v in range(ready.VALUES)])
rank = reach.argsort().argsort()  # values that are found from farthest on top

fig, ax = lab.figure("ALiBi, 1,024 tokens: one row per value of the needle", height=4.2)
for hit, colour, marker, label in ((True, lab.BLUE, "o", "found"), (False, lab.VERMILLION, "x", "lost")):
    chosen = found == hit
    ax.plot(distance[chosen], rank[value[chosen]], color=colour, marker=marker, markersize=5, linestyle="none", label=label)
for window in (19, 74, 295):
    ax.axvline(window, color=lab.GREY, linewidth=1, linestyle=":", zorder=0)
ax.set_yticks(range(ready.VALUES), [str(int(v)) for v in reach.argsort()])
ax.set(xlabel="distance from the query to the needle (dotted: windows of heads 0 to 2)", ylabel="value of the needle",
       xlim=(0, length))
fig.legend(*ax.get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
far = distance > 700
wrong = answer[far & ~found] - ready.FILLERS
block, slopes = finder.blocks[0], 2.0 ** (-8 * torch.arange(1, 5) / 4)
with torch.no_grad():  # the first layer's scores, without the bias: QUERY's query against the key of every token
    q, k, _ = block.attention.qkv(block.norm1(finder.embed.weight)).unflatten(-1, (3, 4, 16)).unbind(1)
    scores = torch.einsum("hd,thd->ht", q[ready.QUERY], k) / 4
    filler = scores[:, :ready.FILLERS].exp().mean(1).log() - (1 - (-slopes).exp()).log()  # all of it, under the bias
    lead = ((scores[:, ready.FILLERS:ready.MARK] - filler[:, None]) / slopes[:, None]).max(0).values  # in tokens
print("the first layer's lead in tokens, by value: "
      + ", ".join(f"{int(v)}: {round(float(lead[v]), -2):.0f}" for v in lead.argsort(descending=True)[:5]))
print("farther than 700, always found:", [v for v in range(16) if found[far & (value == v)].all()],
      " never found:", [v for v in range(16) if not found[far & (value == v)].any()])
print(f"wrong answers beyond 700 that are the value {int(wrong.mode().values)}: {float((wrong == wrong.mode().values).float().mean()):.0%}")

# %% [markdown]
# **Figure 5.16. Which needles are found.** The shipped ALiBi model (seed 0). One symbol per haystack, one row per value, sorted by the farthest needle found; dots are found, crosses lost. Compare the end of each row with the dotted windows of week 4.

# %% [markdown]
# The popular explanation is a window: each head sees so far and no farther. Week 4's `effective_window` computes it for keys of *equal content*. But a trained model gives the value token of a needle a score far above the filler, and the bias must first eat up this gap. The gap differs from value to value, so each *value* has a reach of its own. In the shipped model the first layer alone gives values 2, 5, 7 and 11 a lead worth some 2,000 tokens (printed above).
#
# All five seeds show this, each for other values (on more haystacks: `experiments/results.md`). Beyond 700 tokens 4 to 10 of the 16 values are always found and 4 to 8 never. The wrong answers are mostly one default value per model, which is "found" for free.

# %% [markdown] nbgrader={"grade_id": "needle_explained_question", "locked": true}
# ### Exercise 5.9 · Flat perplexity, lost context
#
# **2 points · difficulty 3/5 · 20 minutes · text, graded by a person**
#
# *Why it matters:* a flat perplexity is easily taken for proof that a model "handles 100,000 tokens".
#
# 1. Explain how the loss can stay flat up to 1,024 tokens while needles are lost. Use the numbers of Figure 5.14, and say what decides in ALiBi whether a far needle is found.
# 2. A colleague wants to show that a model really uses its long context. Propose a test, and say what it must hold fixed when the length grows so that the result means something.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. The loss is a mean over targets that can be predicted from the last token (Markov filler), so it does not depend on far context; one target in a thousand does; numbers for both quoted (half a point). ALiBi: the penalty slope*distance competes with the content score of the needle, and with ever more keys; the needle is lost where the penalty has eaten up its lead, which differs from value to value (half a point; "a fixed window per head" alone gets none, naming dilution as well is fine).
# 2. A task whose answer lies only in the far context (needle, key-value retrieval, copying, several needles, questions about an early passage), or the loss of the same targets with and without (or with scrambled) far context (half a point). Held fixed: the targets, the difficulty (number of needles, distractors, alphabet), and chance level; the distance or the depth of the needle is varied on purpose and reported (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "needle_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. The loss is a mean over targets that depend on the token before them; the needle matters for one target in 1,024. So the loss stays at 0.49 to 0.52 at all lengths, for ALiBi and for RoPE, while the share of needles found falls: for ALiBi from 1.00 at 1x to 0.70 to 0.97 at 8x and 0.35 to 0.65 at 16x. In ALiBi the penalty slope × distance competes with the score that the needle's content earns. A needle is found as long as its lead over the filler is larger than the penalty. The lead differs from value to value: beyond 700 tokens some values are always found, others never (Figure 5.16). More keys make it harder: the log-n factor, which raises the content scores, brings needles back.
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
# ### 8.2 A model that keeps its context
#
# New distances break RoPE, penalties blind ALiBi. Yang et al. (2025) divide the labour. Some layers use **RoPE in a short window**, where no distance is ever new. The others see **all keys, without positions**, and cannot meet an unknown distance. The first tell the order of neighbours, the second find content anywhere.
#
# Our version has one layer of each: RoPE over the last 32 tokens, then all keys without positions (`ready.HYBRID`).

# %% [markdown] tags=["prediction"]
# **Predict.** Trained at 64, how many needles will the hybrid find at 16x? What will it pay in language modelling at 1x, compared with RoPE everywhere?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains one small model and tests it at up to 16x; budget: 30 seconds on a CPU.
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
hybrid = ready.SmallTransformer(ready.NEEDLE_TOKENS, ready.HYBRID, window=32).to(device)
ready.train(hybrid, lambda: ready.needles(32, 64, generator), steps=300, loss_of=ready.needle_loss)
live_found = {}
for n in lengths_n:
    tokens, targets = (part.to(device) for part in ready.needles(64, n, torch.Generator().manual_seed(10_000), far=True))
    with torch.no_grad():
        answer = torch.cat([hybrid(part)[:, -1].argmax(-1) for part in tokens.split(16)])
    live_found[n] = float((answer == targets[:, -1]).float().mean())

# %% tags=["experiment"] jupyter={"source_hidden": true}
fig, (left, right) = lab.figure("The hybrid: what it finds, and what it costs", ncols=2, height=3.8)
for encoding in ("hybrid", "alibi", "rope"):
    per_seed = needle[encoding]["found"]
    band(left, lengths_n, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
left.plot(list(live_found), list(live_found.values()), color=lab.VERMILLION, marker="s", markersize=9, markerfacecolor="none",
          linestyle="none", label="yours")
length_axis(left, lengths_n, 64)
left.set(title="needles found in the first quarter", ylabel="share", ylim=(0, 1.08))
left.legend(loc="lower left")
for encoding in ("hybrid", "alibi", "rope", "none"):
    per_seed = results["fixed"][encoding]
    band(right, tested, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
length_axis(right, tested, 64)
right.set(title="language modelling, last 32 targets", ylabel="loss (nats per character)", ylim=(1.2, 3.5))
right.legend(loc="upper left")
plt.show()
print("your hybrid finds at least 95 % at every length:", min(live_found.values()) >= 0.95)
english = [*spread(results["fixed"]["hybrid"]), "-"]
lab.table(["hybrid: mean (range over 5 seeds)", "needles found", "filler loss", "English"],
          [[f"{n // 64}x", *row] for n, *row in zip(
              lengths_n, spread(needle["hybrid"]["found"]), spread(needle["hybrid"]["filler"]), english)])
at_4096 = results["needle_at_4096"]
print(f"at 64x (4,096 tokens, 16 haystacks each): {min(at_4096):.2f} to {max(at_4096):.2f} found")


# %% [markdown]
# **Figure 5.17. The hybrid.** Left: needles found, with your model as squares. Right: the price, the loss on English for the same encodings (1,000 steps).

# %% [markdown]
# The hybrid finds every needle up to 16x in all five runs, and at 64x too. In language modelling it pays 0.03 to 0.08 nats at 1x against RoPE. A surprise: beyond 1x it has the lowest loss of all. At 8x it is at 1.49, ALiBi at 1.55, and it is ahead of ALiBi with each seed. So the layer without positions costs a little at known distances, and nothing at new ones. Two small tasks show a mechanism, not a ranking. But released models have come to the same design. A bonus for serving: a windowed layer caches only its window.

# %% [markdown]
# ### 8.3 What released models do
#
# Read from the configuration classes of `transformers` 5.23. They hold defaults; a released checkpoint may set other values.
#
# | model (class) | what it does | this week |
# |---|---|---|
# | gpt-oss (`GptOssConfig`) | YaRN, $s=32$ from 4,096, `truncate=False`: the ends of the ramp are not rounded; every other layer has a window of 128; each head has a learned sink, an extra logit without a value (`GptOssAttention.sinks`) | sections 5, 8 |
# | Qwen3 (`Qwen3Config`) | plain RoPE; YaRN is off unless the user switches it on | section 5 |
# | Ministral 3 (`Ministral3Config`) | YaRN, $s=16$ from 16,384; queries times $1+0.1\ln(1+\lfloor m/16384\rfloor)$ | sections 5, 7 |
# | Llama 4 (`Llama4TextConfig`) | every fourth layer without positions, its queries times $1+0.1\ln(1+\lfloor (m+1)/8192\rfloor)$; the others RoPE in chunks of 8,192 | sections 7, 8.2 |
# | Cohere 2 (`Cohere2Config`), EXAONE 4 (`Exaone4Config`) | three layers with RoPE in a window of 4,096, then one without positions that sees everything | section 8.2 |
# | SmolLM3 (`SmolLM3Config`) | every fourth layer without positions, no windows | section 8.2 |
# | Gemma 3 (`Gemma3TextConfig`) | base 10,000 in the windows, 1,000,000 in every sixth layer, which sees everything | section 3 |
# | GPT-NeoX (`GPTNeoXConfig`), StableLM (`StableLmConfig`), Qwen3-Next (`Qwen3NextConfig`) | RoPE on a quarter of each head's channels, the rest without positions | section 8.2 |
# | Phi-3 (`Phi3Config`) | "longrope": a factor per pair from one of two lists, the long one as soon as a text exceeds the original length; the cache is then thrown away | the trap of section 4 |
# | MPT (`MptConfig`) | ALiBi | section 6 |
#
# Three later ideas, one line each. DroPE (Gelberg et al., 2025) trains with RoPE, then drops it and recalibrates briefly. CoPE (Li et al., 2026) clips RoPE's low frequencies softly. FoPE (Hua et al., 2025) uses Fourier series and zeroes frequencies that training has not covered.

# %% [markdown]
# ## 9 · A task that needs order: ascending or not
#
# An *encoder* (no causal mask, mean over all positions) reads different numbers below 64 and says whether they ascend. Half of the sequences do. The others are, in equal parts, **random permutations** and **reversed**. Trained 800 steps on 8 numbers, tested on 8, 16 and 32. Note that more numbers lie closer together: ascending neighbours are about 7 apart at 8 numbers and 2 at 32. So the longer test is harder in two ways; the last line below Figure 5.18 takes them apart.
#
# Exercise 4.8 showed something about symmetric ALiBi that matters here.

# %% [markdown] tags=["prediction"]
# **Predict** the accuracy of each encoding at 8, 16 and 32 numbers. For ALiBi: which of the three kinds will it get right? What is the best score possible for a model that cannot tell a sequence from its reverse?
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
    for n, below in ((8, 64), (16, 64), (32, 64), (8, 16)):  # the last: 8 numbers as close together as 32
        generator = torch.Generator().manual_seed(1)
        tokens, answer, kind = (part.to(device) for part in ready.sequences(400, n, generator, below))
        with torch.no_grad():
            logits = model(tokens)
            if below == 16:
                reverse = float((logits - model(tokens.flip(1))).abs().max())  # read from the other end
        correct = (logits.argmax(-1) == answer).float()
        scores[n, below] = [float(correct[kind == index].mean()) for index in range(3)]
    return scores, reverse

live = {"rope": train_and_test("rope", steps=300), "alibi": train_and_test("alibi", steps=800)}

# %% tags=["experiment"] jupyter={"source_hidden": true}
fig, axes = lab.figure("Your two models, by kind of sequence", ncols=2, height=3.0, sharey=True)
for ax, (encoding, (scores, _)) in zip(axes, live.items()):
    looks = zip(ready.KINDS, (lab.BLUE, lab.ORANGE, lab.VERMILLION), ("", "..", "//"))
    for index, (kind, colour, hatch) in enumerate(looks):
        places, heights = np.arange(3) + 0.27 * (index - 1), [scores[n, 64][index] for n in (8, 16, 32)]
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
print(f"RoPE gets most ascending sequences right when 8 numbers lie as close as 32: {live['rope'][0][8, 16][0] > 0.5}")

# %% [markdown]
# **Figure 5.18. Two arms, live.** Share right for each kind of sequence; a 0 marks a bar without height. RoPE trained for 300 steps, ALiBi for 800. Compare the blue and the orange-red bars within each panel.

# %% tags=["experiment"] jupyter={"source_hidden": true}
order_results = results["order"]
order_lengths = results["order_tested"]
ARMS = ("none", "sinusoidal", "learned", "rope", "alibi")
fig, axes = lab.figure("Ascending or not: trained on 8 numbers, a line per seed", nrows=2, ncols=2, height=5.6, sharex=True,
                       sharey=True)
for ax, kind, title in zip(axes.flat, ("all", *ready.KINDS), ("all sequences", *ready.KINDS)):
    for arm, encoding in enumerate(ARMS):
        colour, style, marker = LOOK[encoding]
        for seed, row in enumerate(order_results[encoding][kind]):
            aside = np.array(order_lengths) * 2 ** (0.12 * (arm - 2) + 0.016 * (seed - 2))  # side by side, not on top
            ax.plot(aside, row, color=colour, linestyle=style, marker=marker, markersize=4.5, linewidth=0.8, alpha=0.8,
                    label=ready.NAMES[encoding] if seed == 0 else None)
    ax.set_xscale("log", base=2)
    ax.set_xticks(order_lengths, [f"{n}\n{n // 8}x" for n in order_lengths])
    ax.minorticks_off()
    ax.grid(axis="y")
    ax.set(title=title, ylim=(-0.05, 1.08), xlabel="numbers" if ax in axes[1] else "")
for ax in axes[:, 0]:
    ax.set_ylabel("share right")
axes[0, 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["all: mean (range over 5 seeds)", *(f"{n // 8}x" for n in order_lengths)],
          [[ready.NAMES[e], *spread(order_results[e]["all"])] for e in ARMS])
print()
def means(encoding):
    """The mean over the seeds for each kind, at 8 and at 32 numbers."""
    by_kind = [np.mean(order_results[encoding][kind], axis=0) for kind in ready.KINDS]
    return [f"{mean[column]:.2f}" for column in (0, 2) for mean in by_kind]

lab.table(["by kind, mean over 5 seeds", *(f"{kind}, {n}x" for n in (1, 4) for kind in ("asc.", "perm.", "rev."))],
          [[ready.NAMES[encoding], *means(encoding)] for encoding in ARMS])
print()
print("ALiBi at 32 numbers, all sequences, seed by seed: "
      + ", ".join(f"{row[2]:.2f}" for row in order_results["alibi"]["all"]))

# %% [markdown]
# **Figure 5.19. Five arms, five seeds each.** Upper left: all sequences; then the three kinds. One thin line per training; lines are moved a little sideways so that none hides another. At 32 numbers, look for the arm whose seeds disagree.

# %% [markdown] nbgrader={"grade_id": "ascending_explained_question", "locked": true}
# ### Exercise 5.10 · Ascending?
#
# **2 points · difficulty 3/5 · 20 minutes · text, graded by a person**
#
# *Why it matters:* a mean accuracy hides what a model cannot do *in principle*.
#
# 1. Explain the scores of "no encoding" and of symmetric ALiBi *at the training length*, kind by kind. What accuracy could ALiBi reach at most on this mix, and why? What would it have reached if all negatives were random permutations?
# 2. Compare two of the other three arms in and beyond the training length with your prediction. *Which* answer do the models fall back on for longer sequences, and why does it give the mean accuracy you see?
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. No encoding: equivariant, with mean pooling invariant: a set of numbers has one answer whatever its order, so 0.50 at best on this mix (half a point). Symmetric ALiBi is flip-equivariant: with mean pooling a sequence and its reverse get the same answer, so of each such pair one is wrong: ascending are 1/2, reversed 1/4 of the sequences; best is to call both ascending: 0.5 + 0.25 = 0.75, with 0 on the reversed. With random permutations only, nearly 1 is possible (half a point).
# 2. A comparison with the numbers, prediction named (half a point). The models say "not ascending" to nearly everything longer: permutations and reversed stay near 1, ascending falls to 0, so the mean goes to 0.50; a mean of 0.5 here is a one-sided error, not guessing. Reason: anything unfamiliar looks unlike the ascending sequences of training: new positions above all, for 8 numbers as close together as 32 are still recognised (or any sensible mechanism) (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "ascending_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Without an encoding the encoder is equivariant, and after mean pooling it sees only the *set* of numbers: an ascending, a permuted and a descending sequence of the same numbers get the same answer. So 0.50 is the best on this mix; each kind is at about 0.5. Symmetric ALiBi knows distances without a direction: with mean pooling a sequence and its reverse get the same logits. Random permutations it can recognise (0.98), but of an ascending sequence and its mirror image one must be wrong. Ascending ones are twice as frequent (50 against 25 of 100), so it pays to say "ascending" to both: 0.50 + 0.25 = 0.75 at most, measured 0.74 to 0.75, with 0.97 on ascending and 0.05 on reversed ones. With random permutations as the only negatives it could have reached nearly 1, and nobody would have noticed what it cannot do.
#
# 2. I expected RoPE to hold at 2x and sinusoids to fall slowly. At 8 numbers both are at 1.00. At 16 RoPE has 0.91 (0.86 to 0.96), the sinusoidal model 0.50 in every run; at 32 both have 0.50. By kind: permutations and reversed sequences stay at 1.00, ascending ones fall to 0. The models fall back on "not ascending": a long ascending sequence does not look like the ascending ones of training (its positions are new; that its neighbours lie 2 apart instead of 7 matters less: 8 numbers that close RoPE still gets right, 0.89 to 0.95 in three runs), and the negatives were always the varied class. Half of the sequences are ascending and all of them are wrong, hence 0.50.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Ascending read backwards is descending. What does exercise 4.8 say about a sequence and its reverse?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Such a model must give ascending and reversed sequences the same answer. Which answer pays?
# </details>

# %% [markdown]
# ## 10 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Why does a RoPE model break down beyond its training length, although RoPE is relative?</summary>
#
# Larger relative distances are new too. They turn the slow pairs to angles no training text has shown. In our models repairing one of them, the first past the boundary, helps as much as repairing all.
# </details>
#
# <details><summary>2. PI, NTK-aware scaling, YaRN: one sentence each.</summary>
#
# PI divides all angles by $s$. NTK-aware scaling raises the base: the first pair keeps its frequency, the last slows down by exactly $s$. YaRN leaves fast pairs alone, divides by $s$ those that never complete a turn, mixes in between, and sharpens attention.
# </details>
#
# <details><summary>3. What does YaRN's temperature do to a logit at s = 16?</summary>
#
# Query and key both carry $t$, so the logit is multiplied by $t^2=1.277^2=1.63$.
# </details>
#
# <details><summary>4. You switch on dynamic NTK in a server with a KV cache. What can go wrong?</summary>
#
# Cached keys were rotated with an older base; the query uses the current one. Cache keys before rotation, or keep the base fixed.
# </details>
#
# <details><summary>5. A paper shows a falling mean loss for growing windows. Does the model use the longer context?</summary>
#
# Not necessarily. The share of early targets, which have little context, falls. Ask for the same targets with and without the far context.
# </details>
#
# <details><summary>6. ALiBi extrapolates. In which sense, and in which not?</summary>
#
# Past its training length it meets nothing strange, only larger penalties, so its loss stays flat. A far token is still used only while its content outweighs the penalty.
# </details>
#
# <details><summary>7. What is attention dilution, and what helps?</summary>
#
# More keys share one unit of weight, so the weight of a key that matters falls although its logit stands out as before. Multiplying the logits by $\log n/\log n_0$ counters this. Adding $\log n$ does nothing.
# </details>
#
# <details><summary>8. Why do some models have layers without any positional encoding?</summary>
#
# Such a layer cannot meet an unknown distance, so it can retrieve from any depth. Order comes from other layers, with RoPE, and from the causal mask (week 1).
# </details>
#
# <details><summary>9. Your new method wins at 8x, on one seed. What is missing?</summary>
#
# The spread over seeds, the loss within the training length, each rival at its own best $s$, a task that needs the far context, and the same targets for all.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Beyond the training length the high frequencies see unseen angles | The *low* ones do; the high ones have been all the way round. | Figure 5.2 |
# | All pairs that never completed a turn must be repaired | In our models one is enough: the first past the boundary. | Figure 5.12 |
# | Sinusoids fail far out because they are periodic | For width 64 the slowest wavelength is some 47,000 positions, and our models break down at 128. Week 2 tests this further. | section 6.2 |
# | A learned embedding beyond its table is random | A row that was never trained is as it was initialised; an index beyond the table is an error. | section 6.2 |
# | The NTK base for $s=2$, $d=64$ is about 20,700 | $10\,000\cdot2^{64/62}=20\,452$. | 5.3 |
# | NTK-aware scaling reduces all frequencies | The first is unchanged, the last divided by exactly $s$. | 5.3, Figure 5.4 |
# | YaRN interpolates high frequencies and uses NTK for the low ones | High: untouched. Low: linear interpolation. Between: a ramp. And a temperature. | 5.5 |
# | YaRN is far better than NTK | Only at the same $s$. At the best $s$ of each it is slightly ahead. | Figure 5.11 |
# | Dynamic NTK with scale $c$ stretches by $c$ | By $c\,n/L-(c-1)$: at 8x and $c=8$ that is 57. | section 4 |
# | Add $\log n$ to the logits against dilution | Adding a constant is a no-op; *multiply* by $\log n/\log n_0$. | 5.8, Figure 5.13 |
# | PI works out of the box | Without fine-tuning it was worse than doing nothing at 2x here. | Figure 5.10 |
# | ALiBi's heads see as far as their windows | The needle's content competes with the penalty; each value has its own reach. | Figure 5.16 |
# | A flat perplexity shows that the context is used | Needles were lost behind a flat loss. | Figure 5.14 |
# | Code Llama's long context comes from ALiBi | It uses RoPE with base $10^6$ (Rozière et al., 2023). | week 3 |
#
# ## The answer
#
# *What breaks?* Distances that training never showed, where the model has learned to rely on them; and attention, which more keys dilute. *What mends it?* Slow down what leaves its known range and nothing else, and state the stretch; or build a model in which no distance is new. Sharpen with $\log n$ where a key stands out. *How would you know?* Score the same targets at every length, over several seeds, beside the loss within the training length. Then hide a needle: a flat loss is not a used context.
#
# ## References
#
# - S. Chen, S. Wong, L. Chen, Y. Tian: *Extending Context Window of Large Language Models via Positional Interpolation*, 2023, arXiv:2306.15595.
# - kaiokendev: *Things I'm learning while training SuperHOT*, 2023, kaiokendev.github.io/til (position interpolation, found independently).
# - bloc97: *NTK-Aware Scaled RoPE*, 2023, and emozilla: *Dynamically Scaled RoPE*, 2023, posts on r/LocalLLaMA. Both are restated in the YaRN paper.
# - B. Peng, J. Quesnelle, H. Fan, E. Shippole: *YaRN: Efficient Context Window Extension of Large Language Models*, 2023, arXiv:2309.00071.
# - X. Liu, H. Yan, S. Zhang, C. An, X. Qiu, D. Lin: *Scaling Laws of RoPE-based Extrapolation*, ICLR 2024, arXiv:2310.05209 (the critical dimension).
# - X. Men et al.: *Base of RoPE Bounds Context Length*, 2024, arXiv:2405.14591 (repairing angles alone gives a superficial long-context ability).
# - O. Press, N. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, ICLR 2022, arXiv:2108.12409.
# - J. Su et al.: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021, arXiv:2104.09864.
# - J. Su: *Attention Scaling from the Perspective of Entropy Invariance*, 2021, kexue.fm/archives/8823 (in Chinese; the log-n factor).
# - D. Chiang, P. Cholak: *Overcoming a Theoretical Limitation of Self-Attention*, 2022, arXiv:2202.12172 (multiplying logits by log n).
# - C. Raffel et al.: *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, 2019, arXiv:1910.10683 (the T5 bias).
# - B. Yang et al.: *Rope to Nope and Back Again: A New Hybrid Attention Strategy*, 2025, arXiv:2501.18795.
# - A. Haviv, O. Ram, O. Press, P. Izsak, O. Levy: *Transformer Language Models without Positional Encodings Still Learn Positional Information*, 2022, arXiv:2203.16634.
# - A. Kazemnejad et al.: *The Impact of Positional Encoding on Length Generalization in Transformers*, 2023, arXiv:2305.19466 (models without an encoding do well on its reasoning tasks; our language model is another matter).
# - Y. Gelberg et al.: *Extending the Context of Pretrained LLMs by Dropping Their Positional Embeddings*, 2025, arXiv:2512.12167. H. Li et al.: *CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs*, 2026, arXiv:2602.05258. E. Hua et al.: *Fourier Position Embedding*, ICML 2025, arXiv:2412.17739.
# - C.-P. Hsieh et al.: *RULER: What's the Real Context Size of Your Long-Context Language Models?*, 2024, arXiv:2404.06654 (retrieval tests beyond one needle).
# - B. Rozière et al.: *Code Llama: Open Foundation Models for Code*, 2023, arXiv:2308.12950.
# - Code: huggingface/transformers 5.23, `modeling_rope_utils.py` and the configuration classes of section 8.3.
