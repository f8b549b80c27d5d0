# %% [markdown]
# # Week 5 · Beyond the training length
#
# **The question of this week.** A model was trained on 4,096 tokens. Your document has 16,384. What breaks, what mends it, and how would you know that it is mended?
#
# <!-- costs of week5_extrapolation -->
#
# ## What you will be able to do
#
# - compute which pairs of a RoPE model meet new angles, and test which of them matter;
# - write position interpolation, NTK-aware scaling, its dynamic form and YaRN;
# - tell new distances from more keys, by showing a trained model one without the other;
# - measure a loss by length so that the numbers can be compared;
# - explain attention dilution, and what multiplying by log n does against it;
# - test whether a model uses its context, and build one that does.
#
# **You need** weeks 3 and 4. The encodings come ready-made in `ready_encodings.py`.
#
# **Short of time?** 5.1, 5.6 and 5.7 are the core, and 5.8 draws the conclusions. Write 5.2 to 5.5 as well: Figures 5.3 to 5.6 and 5.9 to 5.12 run with them. Leave out 5.9 and 5.10.
#
# <!-- points of week5_extrapolation -->
#
# A *visible check* carries no points: it says what is wrong. You pay for a mistake once: if only your `ntk_base` is wrong, a `dynamic_ntk_base` that uses it still gets its points. *Predict* cells are not graded; do them anyway.

# %% [markdown]
# ### Conventions of this week
#
# - $d$ is the **head dimension**; $i$ numbers the **pairs** of channels from 0. The **frequency** of pair $i$ is $\theta_i=\text{base}^{-2i/d}$ radians per position.
# - $L$ is the length of the training texts (`original_len`), $n$ the length in use. "4x" means $n=4L$.
# - $s$ is the **stretch** (`scale`): a method slows a pair down by at most this factor. $m$ is a position.
# - Losses are in nats per character (natural logarithm). "Five seeds" means five trainings with different initial weights and batches.
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
# - **New positions or distances.** The model meets a row of a table that no gradient has touched, a sinusoid at an unknown value, a rotation by an unknown angle, or a larger bias.
# - **More keys.** A softmax over $4L$ keys shares its weight among four times as many, whatever the encoding.
#
# Section 6.6 tells these two suspects apart. For RoPE we can say exactly what is new: pair $i$ turns by $\delta\,\theta_i$ between a query and a key that are $\delta$ apart, and in training $\delta$ stays below $L$. A **fast** pair goes round many times within $L$ and has shown the model every angle. A **slow** pair does not complete one turn: the model knows an arc of its circle, and a longer text goes beyond it. So the *slow* pairs, the low frequencies, meet new angles.
#
# **A worked example.** Take $d=8$, base $10\,000$, $L=100$. The frequencies are $1, 0.1, 0.01, 0.001$; one turn takes $6.3$, $63$, $628$ and $6283$ positions. In 100 positions the pairs make $15.9$, $1.59$, $0.159$ and $0.0159$ turns. Two complete a turn, two never do. If $i$ may be any real number, one turn takes exactly $L$ positions where
#
# $$\frac{2\pi}{\theta_i}=L\iff \text{base}^{2i/d}=\frac{L}{2\pi}\iff i=\frac d2\cdot\frac{\ln\big(L/2\pi\big)}{\ln \text{base}}, \tag{1}$$
#
# here $i=4\cdot\ln(15.9)/\ln(10\,000)=1.202$. Pairs 0 and 1 lie below, pairs 2 and 3 above. Liu et al. (2023) call this boundary, counted in channels, the *critical dimension*.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.1: run this cell
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
# **Figure 5.1. Dials, seen and new.** Each dial is the circle of one pair of the worked example. Blue: the angles that distances up to 100 reach; hatched: what distances up to 200 add.

# %% [markdown]
# ### Exercise 5.1 · Pairs that never turn
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* section 6 tests which of these pairs are in trouble, and YaRN rests on equation (1).
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

# %% nbgrader={"grade_id": "unturned_pairs_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
numbers = lab.must_be_numbers(unturned_pairs, "turns_first", "turns_last", "boundary", "complete", "never")
for key in ("complete", "never"):
    assert numbers[key] == int(numbers[key]), f"{key!r} counts pairs: a whole number is expected."
print("Five finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "unturned_pairs_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.unturned_pairs(unturned_pairs)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: how much of its circle has each pair seen?
#
# A model with $d=64$ and $L=2048$ reads a text of $n=4L$.

# %% [markdown] tags=["prediction"]
# **Predict** with equation (1): how many of the 32 pairs visit new angles at $4L$, and which is the first?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.2: run this cell
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
# **Figure 5.2. Seen and unseen angles.** Each bar is the part of its circle that a pair visits. Look for the first bar with a hatched part.

# %% [markdown]
# ## 2 · Position interpolation: squeeze the ruler
#
# The first idea, **position interpolation** (PI), is to divide all positions by $s$. With $s=4$ a text of $4L$ has the positions $0, \frac14, \frac24, \dots$, and no distance reaches $L$. Chen et al. (2023) and kaiokendev (2023) found it at the same time.
#
# $$m \mapsto \frac ms\qquad\text{or, which is the same,}\qquad \theta_i\mapsto\frac{\theta_i}{s}\ \text{ for every pair.} \tag{2}$$
#
# The price: *all* pairs slow down, the fast ones too. With $s=4$ two neighbours are a quarter of a radian apart on pair 0 instead of one radian: the marks on the ruler are closer than the model learned to read. So Chen et al. fine-tune after the change. Section 6 does not.

# %% [markdown]
# ### Exercise 5.2 · Position interpolation
#
# **2 points · difficulty 1/5 · 10 minutes · code**
#
# *Why it matters:* the one line has a trap. Positions are usually *integers*, and integers cannot hold a quarter.

# %% nbgrader={"grade_id": "position_interpolation", "solution": true}
def position_interpolation(positions, scale):
    """Positions for a model that is stretched by ``scale``: equation (2).

    positions: tensor of any shape, integers or floats, negative ones too
    scale:     positive float or int, usually > 1
    returns:   a new tensor of the same shape; float32 for integer positions, else the dtype of positions (in half
               precision far positions merge, as in week 3; that is the caller's business)
    """
    ### BEGIN SOLUTION
    if not positions.is_floating_point():
        positions = positions.to(torch.float32)
    return positions / scale
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint</summary>
#
# `/` keeps the fraction, `//` drops it. `tensor.is_floating_point()` tells the two cases apart.
# </details>

# %% nbgrader={"grade_id": "position_interpolation_check", "grade": true, "points": 0}
# Visible check (0 points).
positions = torch.arange(8)
out = position_interpolation(positions, 4.0)
lab.must_be_a_tensor(out)
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
assert abs(float(out[0, 0]) - 1.2) < 1e-9, f"with scale 2.5, position 3 becomes 1.2; yours becomes {float(out[0, 0]):.10g}."
assert float(position_interpolation(torch.tensor(3), 4.0)) == 0.75, "a single position, of shape (), is allowed too."
# It computes where its inputs are, on any device.
lab.follows_the_device(position_interpolation, torch.arange(5), 4.0)
print("Looks right. The hidden tests try other dtypes, shapes and scales.")

# %% nbgrader={"grade_id": "position_interpolation_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.position_interpolation(position_interpolation)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · NTK-aware scaling: slow down the slow ones
#
# Position interpolation does too much: the fast pairs were in no danger. The second idea changes the **base** $b$ instead of the positions (bloc97, 2023, a post on r/LocalLLaMA; restated in the YaRN paper, section 3.1). (NTK: the *neural tangent kernel* of the post's argument.) Replace $b$ by a larger $b'$. Pair $i$ then has the frequency $b'^{-2i/d}$:
#
# - pair 0 keeps its frequency, since $b'^{0}=1$;
# - every later pair slows down, the last one most.
#
# Choose $b'$ so that the *last* pair, $i=\frac d2-1$, slows down by exactly $s$:
#
# $$b'^{-(d-2)/d}=\frac{b^{-(d-2)/d}}{s}\quad\Longleftrightarrow\quad b'=b\cdot s^{\,d/(d-2)}. \tag{3}$$
#
# So pair $i$ turns $s^{\,2i/(d-2)}$ times slower: the exponent of $s$ grows from 0 to 1 along the pairs.
#
# **A picture** (Su, 2023). The pairs are like the digits of a number with radix $b^{2/d}$, the fastest on the right: each next pair is slower by this factor. To write larger numbers with the same number of digits, squeeze them all (PI), or take a larger radix (NTK), here $b^{2/d}s^{2/(d-2)}$. The rightmost digit still counts in steps of 1.
#
# **An example.** For $b=10\,000$, $s=2$, $d=64$ it is $b'=10\,000\cdot2^{64/62}=20\,452$.

# %% [markdown]
# ### Exercise 5.3 · The new base
#
# **4 points (3 + 1) · difficulty 2/5 · 8 + 5 minutes · code and numbers**
#
# *Why it matters:* one number stretches a whole model.

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
# **By hand.** Take base 10,000, scale 4 and head_dim 64. Give the new base to **five significant digits**, and the ratio *new frequency / old frequency* of the first and of the last pair.

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

# %% [markdown]
# <details><summary>Hint</summary>
#
# $4^{64/62}=4\cdot4^{1/31}=4\cdot e^{\ln 4/31}$.
# </details>

# %% nbgrader={"grade_id": "ntk_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
lab.must_be_numbers(ntk_by_hand, "new_base", "first_pair_ratio", "last_pair_ratio")
print("Three finite numbers. The hidden test asks for four significant digits, for the new base for five.")

# %% nbgrader={"grade_id": "ntk_by_hand_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.ntk_by_hand(ntk_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Dynamic NTK: stretch only as far as needed
#
# Stretch a model for $8L$, and its angles change on short texts, too. *Dynamic* NTK computes the base from the current length $n$ (emozilla, 2023, r/LocalLLaMA; `transformers` calls it `"dynamic"`):
#
# $$b'(n)=b\cdot\Big(\underbrace{c\,\frac nL-(c-1)}_{\text{stretch }s(n)}\Big)^{d/(d-2)}\quad\text{for } n>L,\qquad b'(n)=b\quad\text{for } n\le L. \tag{4}$$
#
# At $n=L$ the stretch is exactly 1, so nothing jumps. The constant $c$ is the argument `scale`, and it is *not* the stretch: it says how fast the stretch grows. With $c=1$ the stretch is $n/L$, that of section 3. With $c=8$ and $n=8L$ it is 57. **A result of dynamic NTK means little without its $c$.**
#
# **Examples.** Take $d=64$, $L=4096$, base 10,000, $n=8192$. With $c=1$ the stretch is 2 and the base 20,452, as in section 3; with $c=2$ they are 3 and 31,082.

# %% [markdown]
# ### Exercise 5.4 · The base for the current length
#
# **2 points · difficulty 2/5 · 8 minutes · code**
#
# *Why it matters:* a common bug changes the base for short texts, too. Another never resets the base after a long text.

# %% nbgrader={"grade_id": "dynamic_ntk_base", "solution": true}
def dynamic_ntk_base(base, scale, head_dim, seq_len, original_len):
    """The base for a text of ``seq_len`` positions: equation (4).

    base, scale:  positive floats; equation (4) also holds for scales below 1
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


# %% [markdown]
# <details><summary>Hint</summary>
#
# Compute the stretch $s(n)$ first, then use equation (3).
# </details>

# %% nbgrader={"grade_id": "dynamic_ntk_base_check", "grade": true, "points": 0}
# Visible check (0 points).
at = lambda n, scale=2.0: dynamic_ntk_base(10000.0, scale, 64, n, 4096)
assert at(8192) is not None, "nothing was returned: is there a return statement?"
assert isinstance(at(8192), float), f"a Python float is expected, got {type(at(8192)).__name__}."
for n in (1, 1000, 4096):
    assert at(n) is not None, f"nothing was returned for {n} positions: is there a return statement for short texts, too?"
    assert abs(at(n) - 10000) < 1e-6, f"up to the training length nothing may change; at {n} positions it did."
assert abs(at(8192, scale=1.0) - 20452) < 5, "with scale 1 and twice the length, the base is 20,452, as in section 3."
assert abs(at(8192) - 31082) < 2, (
    f"with scale 2 and twice the length the effective stretch is 2*2 - 1 = 3 and the base 31,082; yours is "
    f"{at(8192):,.0f}.")
assert abs(at(6144, scale=1.5) - 17819) < 2, (
    "with scale 1.5 and one and a half times the length the stretch is 1.5*1.5 - 0.5 = 1.75 and the base 17,819; yours is "
    f"{at(6144, scale=1.5):,.0f}. Is something cut off to a whole number?")
assert abs(dynamic_ntk_base(10000.0, 2.0, 64, 2048, 1024) - 31082) < 2, (
    "a training length of 1,024 and twice that give 31,082, too: do you write 4096 where original_len belongs?")
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
# ### Experiment: a cache and a moving base
#
# A decoder caches *rotated* keys, each with the base of its step, and dynamic NTK changes the base with every token beyond $L$. Here a cache grows to 8,192 tokens, with $L=4096$ and $c=2$.

# %% [markdown] tags=["prediction"]
# **Predict.** Which scores will be right: those of keys cached before position 4096, after it, both, or none?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.3: run this cell
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

fig, ax = lab.figure("How wrong the scores of cached keys are (dynamic NTK, c = 2)", height=3.0)
ax.fill_between(at[64::128], error / unrelated.mean(), color=lab.VERMILLION, alpha=0.3, linewidth=0)
ax.plot(at[64::128], error / unrelated.mean(), color=lab.VERMILLION, linestyle="-")
for height, words in ((0.0, "0: right"), (1.0, "1: as wrong as the score of another key")):
    ax.axhline(height, color=lab.BLACK, linewidth=1, linestyle=":")
    ax.text(8100, height + 0.03, words, color="#222222", fontsize=9, ha="right")
ax.axvline(original, color=lab.GREY, linewidth=1.2, linestyle="--")
ax.text(original + 60, 0.12, "training length", color="#444444", fontsize=9)
ax.set(xlabel="position of the key", ylabel="error (1 = another key's score)", ylim=(-0.05, 1.3), xlim=(0, n))
plt.show()


# %% [markdown]
# **Figure 5.3. A cache under a moving base.** Error of the newest query's scores; with all keys rotated by the current base it would be 0. Unit: the error of taking another key's score. The content is random.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Near position 0 the two rotations hardly differ, and the last keys had nearly the current base: some eight keys at each end are nearly right. Away from the ends the scores are badly wrong, even for keys cached *within* the training length. Between some 2,000 and 5,000 nothing is left of them. With a moving base, cache keys before rotation.
# </details>

# %% [markdown]
# ## 5 · YaRN: treat each pair as it deserves
#
# YaRN (Peng et al., 2023) asks of each pair the question of exercise 5.1: how many turns $r$ does it make within $L$?
#
# - more than $\beta_\text{fast}=32$ turns: **leave it alone**, since it tells neighbours apart;
# - fewer than $\beta_\text{slow}=1$ turn: **divide its frequency by $s$**, as position interpolation does;
# - between: **mix** the two, on a linear ramp.
#
# Equation (1) with $L/r$ for $L$ gives the pair that makes exactly $r$ turns:
#
# $$\dim(r)=\frac{d\,\ln\!\big(L/(2\pi r)\big)}{2\ln\text{base}}. \tag{5}$$
#
# `transformers` ([`modeling_rope_utils.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/modeling_rope_utils.py)) computes the ramp over the pair number:
#
# $$\text{low}=\max(\lfloor\dim(\beta_\text{fast})\rfloor,\,0),\qquad \text{high}=\min(\lceil\dim(\beta_\text{slow})\rceil,\,d-1), \tag{6}$$
# $$\gamma_i=\text{clamp}\Big(\frac{i-\text{low}}{\text{high}-\text{low}},\,0,\,1\Big),\qquad \theta_i' = (1-\gamma_i)\,\theta_i+\gamma_i\,\frac{\theta_i}{s}. \tag{7}$$
#
# Four details:
#
# 1. The ends are rounded *outwards*, down and up, to whole pairs.
# 2. They are clamped to 0 and to $d-1$ (the code has $d-1$, though the largest pair number is $\frac d2-1$).
# 3. If low = high, add 0.001 to high, to avoid a division by zero.
# 4. $L$ is the *original* length, never the new one.
#
# **A worked example**, the size of section 6's models: $d=16$, $L=64$, $s=4$, base 10,000. $\dim(32)=-0.994$, so low = max(−1, 0) = 0. $\dim(1)=2.016$, so high = 3. The ramp is $\gamma=0,\frac13,\frac23,1,1,1,1,1$, and the frequencies are multiplied by $1,\ \frac34,\ \frac12,\ \frac14,\ \frac14,\dots$
#
# **The temperature.** YaRN also sharpens attention a little. Cosine *and* sine are multiplied by
#
# $$t(s)=0.1\ln s+1\quad(s>1),\qquad t=1\quad(s\le1). \tag{8}$$
#
# Both the query and the key carry the factor, so the logits (the scores before softmax) get its *square*. (The paper's $t$ is our $1/t^2$.)

# %% [markdown]
# ### Exercise 5.5 · YaRN
#
# **7 points (4 + 2 + 1) · difficulty 4/5 · 25 + 5 + 5 minutes · code and numbers**
#
# *Why it matters:* you can get every detail above wrong without an error message.

# %% nbgrader={"grade_id": "yarn_frequencies", "solution": true}
def yarn_frequencies(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    """The frequencies of the pairs after YaRN: equations (5) to (7).

    head_dim:     even int; an odd one raises ValueError
    scale:        float, s
    original_len: int, L, the length of the training texts; large enough for low <= high
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


# %% [markdown]
# <details><summary>Hint 1: the ends of the ramp</summary>
#
# $\dim$ *falls* when the number of turns grows. So the fast end, 32 turns, gives the *smaller* pair number, low.
# </details>
#
# <details><summary>Hint 2: the ramp</summary>
#
# `torch.arange(head_dim // 2)` minus low, divided by the width, then `.clamp(0, 1)`. Where the ramp is 0 the frequency stays; where it is 1 the frequency is divided by `scale`.
# </details>

# %% nbgrader={"grade_id": "yarn_frequencies_check", "grade": true, "points": 0}
# Visible check (0 points). The worked example: head_dim 16, scale 4, original_len 64.
out = yarn_frequencies(16, 4.0, 64)
lab.must_be_a_tensor(out)
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
# **By hand.** Take $d=128$, $L=4096$, base 10,000 and $s=4$. Give low and high of equation (6), the factor $t$ on cosine and sine, and the factor that a *logit* gets in the end.

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

# %% [markdown]
# <details><summary>Hint</summary>
#
# A logit is a rotated query times a rotated key. How many of the two carry $t$?
# </details>

# %% nbgrader={"grade_id": "yarn_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
lab.must_be_numbers(yarn_by_hand, "low", "high", "temperature", "logit_factor")
print("Four finite numbers. The hidden test asks for four significant digits.")

# %% nbgrader={"grade_id": "yarn_by_hand_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.yarn_by_hand(yarn_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: what each method does to each pair
#
# Compare the methods for $d=64$, $L=2048$, $s=4$.

# %% [markdown] tags=["prediction"]
# **Predict.** Sketch *old frequency / new frequency* over the pair number for PI, NTK and YaRN. Which of the three leaves some angles new?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.4: run this cell
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
# **Figure 5.4. How much each method slows each pair.** Low and high are the ends of YaRN's ramp.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.5: run this cell
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
# **Figure 5.5. Coverage after each extension.** Blue: angles known from training; hatched: new. Each pair is taken by itself.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# PI is flat, NTK slopes from 1 to $s$, YaRN leaves fast pairs alone. With PI and YaRN no pair leaves its arc. With NTK all pairs beyond the boundary but the last leave theirs, pair 22 by 0.29 of the circle.
#
# Still, something is new. A distance turns all pairs at once, and YaRN slows only some, so its *combinations* of angles are new. PI keeps the combinations, but meets them at fractional distances.
# </details>
#
# Move $s$ yourself:

# %% tags=["experiment"]
lab.moving_frequencies(ntk_base, yarn_frequencies, head_dim=32, original_len=512)


# %% [markdown]
# **Figure 5.6. The stretch, to move.** How long each pair takes for one turn under your own functions ($d=32$, $L=512$). Shaded: a turn takes at most 512 positions. Pairs whose *unscaled* point lies there complete a turn in training.

# %% [markdown]
# ## 6 · The comparison
#
# ### 6.1 Measure what you mean
#
# **Which targets?** The mean over a window mixes easy and hard positions in a proportion that changes with $n$. At $4L$ a quarter of the targets have no more context than in training and hide a failure. And the first few, which have next to no context, weigh less as $n$ grows, so the mean may *fall* although nothing got better (the *early token curse*; Press et al., 2022, appendix B.1).
#
# So we score the **same last tokens** at every length.
#
# ```text
# text            . . . . . . . . . . . . . . . . . . . . . . . . T T T T     T: the targets, always the same
# context, 1x                                           . . . . . . . .
# context, 2x                           . . . . . . . . . . . . . . . .
# ```
#
# **Which mode?** Switch dropout off, record no graph, and leave the model as you found it: somebody may have frozen a part of it in eval mode on purpose.

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
    n_targets: int, from 1 to the smallest length; the loss is over the predictions of the last n_targets tokens
    returns:   dict {length: loss}; keys ints, values Python floats: mean cross-entropy in nats over batch and targets

    Raises ValueError if the text is too short for a length or n_targets > L. Runs in eval mode, without recording
    gradients; afterwards, also after a ValueError, every submodule has the training flag it had before, and the gradient mode is as it was.
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


# %% [markdown]
# <details><summary>Hint 1: the slices</summary>
#
# `tokens[:, -L-1:-1]` are the $L$ tokens before the last one. The logits at the last $k$ positions of this window predict the last $k$ tokens of the text.
# </details>
#
# <details><summary>Hint 2: the flags</summary>
#
# `model.modules()` gives the model and every part of it. Note `module.training` of each before `model.eval()`, and set each flag back; `model.train(flag)` would set *all* parts.
# </details>
#
# <details><summary>Hint 3: the loss</summary>
#
# `F.cross_entropy` takes logits `(N, vocab)` and targets `(N,)`. Flatten batch and targets into one axis.
# </details>

# %% nbgrader={"grade_id": "loss_by_length_check", "grade": true, "points": 0}
# Visible check (0 points).
torch.set_grad_enabled(True)  # whatever an earlier attempt has switched off
generator = torch.Generator().manual_seed(3)
sizes = {"embed.weight": (7, 6), "inside.1.0.weight": (6, 6), "inside.1.0.bias": (6,), "read.weight": (7, 6),
         "read.bias": (7,)}
weights = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
tokens = torch.randint(0, 7, (4, 31), generator=generator)

model = probe_model(weights, [False] * 8)  # everything is in eval mode already
losses = loss_by_length(model, tokens, [6, 12, 30], 5)  # "Expected target size"? cross_entropy wants the classes on axis 1
assert isinstance(losses, dict) and sorted(losses) == [6, 12, 30], (
    f"a dict with the keys 6, 12, 30 expected, got {losses}.")
assert all(isinstance(value, float) for value in losses.values()), "the losses must be Python floats (.item())."
model.eval()  # whatever your function has left on
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
# ### 6.2 Six encodings, trained short, tested long
#
# **The model** is a causal decoder of characters: two layers, width 64, four heads of 16 channels. The variants differ in the encoding only: none, sinusoidal, learned, RoPE, ALiBi, T5 bias.
#
# T5's bias adds to each score a *learned* number, one per head and bucket of distances. Here nearly every distance below 31 has a bucket of its own, and all from 31 on share the last one.
#
# **The text** is the reference that comes with Python (`pydoc_data.topics`), printable ASCII, some 460,000 characters; the last tenth is for testing.
#
# **Training:** 1,000 steps of 32 windows of $L=64$ characters, five seeds per variant. **Test:** 96 windows, the same last 32 characters of each at $n=64, 128, 256, 512$.
#
# The results are shipped (`experiments/results.md`). *Models this small show mechanisms, not the ranking of large ones.*

# %% [markdown] tags=["prediction"]
# **Predict** each encoding's loss at 8x: does it stay (within 0.1), rise, or break down (jump by half a nat at one doubling)? What does the model without an encoding do? And which is worse, sinusoidal or learned?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.7: run this cell
import json

with open("week5_results.json", encoding="utf-8") as file:
    results = json.load(file)
tested = results["tested"]
LOOK = {"none": ("#666666", ":", "o"), "sinusoidal": (lab.ORANGE, "-.", "s"), "learned": (lab.PURPLE, (0, (8, 3)), "^"),
        "rope": (lab.BLUE, "-", "D"), "alibi": (lab.GREEN, "--", "v"), "t5": (lab.VERMILLION, (0, (5, 1, 1, 1)), "X"),
        "hybrid": (lab.PURPLE, "-", "P")}

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
# **Figure 5.7. Loss against length.** Lines: mean over the seeds; bands: lowest to highest seed. Compare the order at 1x with the order at 8x, and look for a curve that falls below its value at 1x.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# RoPE is the best at the training length, but not beyond it. *No* curve falls below its value at 1x: none of the six gains from the longer context. T5's bias rises at every doubling although no bucket is new: its last one holds more and more keys.
#
# The learned table's rows beyond 64 were never trained. They are small, so its curve says little about learned tables.
#
# The measure matters: in each of the five ALiBi runs the mean over *all* targets falls by 0.01 to 0.02 nats from 1x to 8x, while on the same last 32 the loss rises by 0.02 to 0.03.
# </details>

# %% [markdown]
# ### 6.3 Train one yourself
#
# The next cell trains a model of your choice for 300 steps, and *your* `loss_by_length` measures it. As a control we trained a model *without* an encoding in the same way, with five seeds.

# %% [markdown] tags=["prediction"]
# **Predict.** ALiBi, 300 steps: is its curve flat already? Is the control's? What can a curve after 300 steps say about an encoding?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains a small model; budget: 30 seconds on a CPU, two minutes on a GPU.
ENCODING = "alibi"  # any of ready.ENCODINGS
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
trained = 512 if device.type == "cuda" else 64
lengths = [trained, 2 * trained, 4 * trained, 8 * trained]
train_text, test_text = ready.english()

probes = ready.windows(test_text, max(lengths), 64 if device.type == "cpu" else 16).to(device)
torch.manual_seed(0)
mine = ready.SmallTransformer(len(ready.ALPHABET), ENCODING, max_len=max(lengths)).to(device)
history = ready.train(mine, ready.text_batches(train_text, trained, 32, seed=0), steps=300)
my_losses = loss_by_length(mine, probes, lengths, 32)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.8: run this cell
size = len(ready.ALPHABET)  # how often each character follows each other one; one is added to every count
follows = torch.ones(size, size).index_put((train_text[:-1], train_text[1:]), torch.tensor(1.0), accumulate=True)
last = ready.windows(test_text, 512, 96)[:, -33:]  # the windows of the shipped results and of the control
pairs_loss = -float((follows / follows.sum(1, keepdim=True)).log()[last[:, :-1], last[:, 1:]].mean())
control = [(2.1492, 2.2060), (2.1426, 2.1946), (2.1507, 2.2029), (2.1452, 2.1991), (2.1569, 2.2081)]  # loss at 64, at 512
fig, (left, right) = lab.figure("A model of your own, 300 steps", ncols=2, height=4.0)
colour, style, marker = LOOK[ENCODING]
change = [my_losses[n] - my_losses[trained] for n in lengths]
left.plot(history, color=colour, linestyle=style, linewidth=1, label=ready.NAMES[ENCODING])
right.plot(lengths, change, color=colour, linestyle=style, marker=marker, label=f"{ready.NAMES[ENCODING]}, yours")
left.axhline(pairs_loss, color=lab.GREY, linestyle="--", label="a bigram model")
left.set(title="training", xlabel="step", ylabel="loss (nats per character)", ylim=(1, 5))
left.legend(loc="upper right")
if trained == 64:
    rises = [(0, late - early) for early, late in control]
    band(right, [64, 512], rises, *LOOK["none"], "no encoding, 300 steps", markerfacecolor="white")
    for encoding in ("rope", "t5", "none"):
        per_seed = np.array(results["fixed"][encoding])
        band(right, tested, per_seed - per_seed[:, :1], *LOOK[encoding], f"{ready.NAMES[encoding]}, 1,000 steps", alpha=0.6)
length_axis(right, lengths, trained)
right.set(title="loss minus the loss at 1x (last 32 targets)", ylim=(-0.1, 2.2))
fig.legend(*right.get_legend_handles_labels(), title="right:", loc="outside lower center", ncols=3)
plt.show()
if ENCODING == "alibi":
    print(f"the loss changes by less than 0.15 nats up to 8x: {max(map(abs, change)) < 0.15}")


# %% [markdown]
# **Figure 5.8. Your own model.** Left: training; in grey, what a bigram model (one character back) reaches on the 96 windows of Figure 5.7. Right: how the loss changes with the length, for your model, the control (hollow) and the shipped models of 1,000 steps. Try `ENCODING = "t5"` or `"rope"`.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# ALiBi's curve is flat, and the control's nearly so. After 300 steps the control has 2.15 nats at 1x and rises by 0.053 (0.051 to 0.057, five seeds); after 1,000 steps by 0.21 (0.18 to 0.24; `experiments/results_distances.md`). A bigram model reaches 2.24. *Only what has been learned can break*, and the control has learned little.
# </details>

# %% [markdown]
# ### 6.4 RoPE, extended
#
# Take the five RoPE models and change nothing but the rotation. Start with the stretch that matches the length, $s=n/64$. Dynamic NTK with $c=8$ stretches by 9, 25 and 57 at 2x, 4x and 8x.

# %% [markdown] tags=["prediction"]
# **Predict.** Order the four methods and "do nothing" by their loss at 2x, and again at 8x. With position interpolation no pair leaves its arc. Will it beat "do nothing" at 2x?
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
# Figure 5.9: run this cell
def load(name, **options):
    """A shipped model: the weights lie in a NumPy file, as float16."""
    model = ready.SmallTransformer(**options)
    with np.load(name) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files})
    return model.eval()

METHODS = ("none", "PI", "NTK", "dynamic NTK", "YaRN")
rope = load("week5_rope.npz", n_tokens=len(ready.ALPHABET), encoding="rope")
windows = ready.windows(test_text, 512, 96)  # the windows of the shipped results
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
    ax.plot(list(yours[method]), list(yours[method].values()), linestyle="none", marker="x", markersize=10,
            markeredgewidth=2, color=METHOD[method][0])
ax.plot([], [], linestyle="none", marker="x", markersize=10, markeredgewidth=2, color=lab.GREY, label="your functions,\none of the five models")
length_axis(ax, tested, 64)
ax.set(ylabel="loss (nats per character)", ylim=(1.2, 4))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
inside = True
for method in yours:
    for n, loss in yours[method].items():
        column = [row[tested.index(n)] for row in curves[method]]
        inside = inside and min(column) - 0.2 < loss < max(column) + 0.2  # the text, Python's manual, changes with its version
print(f"all your crosses lie within the bands (or 0.2 beside them): {inside}")
lab.table(["mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested)],
          [[method, *spread(curves[method])] for method in METHODS])

# %% [markdown]
# **Figure 5.9. Extending RoPE.** Lines and bands as before; crosses, in the colour of their method: *your* functions on one of the five models. Compare the order of the methods at 2x and at 8x.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# At 2x **position interpolation is worse than doing nothing in each of the five runs**, by 0.33 to 0.58 nats. From 4x on it is better. Chen et al. measured the opposite on LLaMA 7B: without further training its perplexity is above 1,000 at 2x, and with PI 16 at 4x (section 3.2, Tables 1 and 3). Why? One clue: at 2x our unchanged models lose just 0.4 nats per character, LLaMA 7B at least 4.9 per token ($\ln(1000/7.2)$). Part 4 of 5.8 asks what PI does to the model.
#
# Dynamic NTK is lowest at 8x not because it is dynamic, but because $c=8$ makes its stretch 57 there. With $c=1$ the stretch is 8, and its loss is that of NTK: 3.18.
#
# A stretch is not free: with $s=8$ at the *training* length NTK loses 0.11 nats, YaRN 0.30, PI 1.62. YaRN's temperature hardly matters here: 2.03 nats at 8x with it, 2.04 without (`experiments/results.md`).
# </details>
#
# But is $s=n/64$ fair to every method?

# %% [markdown] tags=["prediction"]
# **Predict.** Give each method the $s$ that suits it best. Which $s$ will YaRN want at 8x, and is it then still ahead of NTK?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.10: run this cell
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
# **Figure 5.10. Loss against s.** Only the stretch differs from Figure 5.9, whose choice is dashed. Compare the lowest points of the two curves.

# %% [markdown]
# ### 6.5 Which pairs are in trouble?
#
# The popular explanation says that beyond $L$ the slow pairs meet new angles, and that this breaks the model. To test it, slow down *one* pair by a factor of $n/64$ and leave the others alone. We call this *repairing* the pair: its angles stay within those seen in training.

# %% [markdown] tags=["prediction"]
# **Predict.** Order the eight pairs by how much repairing each *alone* helps. Some of the eight pairs never complete a turn in 64 positions (5.1). Does repairing all of those help more than repairing the best pair alone?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.11: run this cell
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
ax.axvline(7.5, ymax=0.88, color=lab.GREY, linewidth=0.8)
ax.set_xticks(range(len(names)), [name.removeprefix("pair ").replace("pairs ", "pairs\n") for name in names])
ax.set(xlabel="repaired: one pair (left), several (right)", ylabel="loss (nats per character)", ylim=(1.2, 4.1))
ax.grid(axis="y")
ax.legend(loc="upper right", ncols=4)
plt.show()
lab.table(["repaired, mean (range over 5 seeds)", *(f"{n // 64}x" for n in tested[1:])],
          [["nothing", *spread(matched["none"])],
           *([named(name, results["repaired"][name]), *spread(results["repaired"][name])] for name in names)])


# %% [markdown]
# **Figure 5.11. One pair at a time.** Each symbol is one of the models with only the named pairs slowed down. Dashed, same colour: nothing repaired. A symbol below its dashed line is a repair that helps.

# %% [markdown]
# ### 6.6 Show no new distance
#
# With the best stretch the loss at 8x is still half a nat above 1x. Is that because 512 keys compete? Section 1 named two suspects. We vary one at a time, and retrain nothing:
#
# - **All keys, no new distance**: week 3's *clip*. A key further back than a limit $w$ counts as $w$ back: RoPE turns by $\min(i-j,\,w)$.
# - **Few keys, no new distance**: a *window*, in which each query sees its latest $w$ keys; or few keys with clipped distances.
# - **Few keys, new distances.** Each query sees as many keys as in training, some from far away.
#
# Which distances are familiar? In texts of 64 only the last query met a distance of 63; half of all queries met 31. We clip at 31.

# %% [markdown]
# ### Exercise 5.7 · Clipped distances
#
# **3 points (1 + 2) · difficulty 3/5 · 8 + 25 minutes · code**
#
# *Why it matters:* this test tells the two suspects apart without training anything.
#
# **A worked example.** Take five keys, the last three positions as queries, and limit 2. The last query's distances are $4,3,2,1,0$; the clip makes them $2,2,2,1,0$. The rows above are $2,2,1,0$ and $2,1,0$.

# %% nbgrader={"grade_id": "clipped_distances", "solution": true}
def clipped_distances(n_queries, n_keys, limit):
    """How far each key lies before each query, but never more than ``limit``.

    n_queries, n_keys: ints, 1 <= n_queries <= n_keys; the queries are the last positions, as with a cache
    limit:             int, at least 0
    returns:           whole numbers, a tensor (n_queries, n_keys); any number will do where the key comes after the
                       query, since the causal mask hides it
    """
    ### BEGIN SOLUTION
    position = torch.arange(n_keys)
    return (position[n_keys - n_queries :, None] - position).clamp(0, limit)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Subtract the positions of the keys, a row, from those of the queries, a column. Where does the first query stand?
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first query has the position `n_keys - n_queries`. `.clamp(0, limit)` counts keys after the query as 0, so few different distances are left.
# </details>

# %% nbgrader={"grade_id": "clipped_distances_check", "grade": true, "points": 0}
# Visible check (0 points). The worked example: only keys up to the query count.
out = clipped_distances(3, 5, 2)
assert isinstance(out, torch.Tensor) and tuple(out.shape) == (3, 5), "a tensor with a row per query, a column per key: (3, 5)."
assert float(out[2, 4]) == 0, "the last query stands at the last key: their distance is 0."
assert float(out[2, 3]) == 1, f"the last query is 1 after the key before it; yours is {float(out[2, 3]):g} (query minus key)."
assert float(out[0, 2]) == 0, "three queries, five keys: the first query stands at position 2, not at 0."
assert float(out[2, 0]) == 2, f"a distance of 4 is clipped to 2; yours is {float(out[2, 0]):g}."
assert [float(x) for x in out[1, :4]] == [2, 2, 1, 0], f"the second query's row is 2, 2, 1, 0; yours {out[1, :4].tolist()}."
out = clipped_distances(4, 4, 9)
assert [float(x) for x in out[3]] == [3, 2, 1, 0], "distances below the limit stay as they are."
print("Looks right. The hidden tests try other sizes and limits.")

# %% nbgrader={"grade_id": "clipped_distances_tests", "grade": true, "points": 1}
# Hidden tests (1 point): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.clipped_distances(clipped_distances)
### END HIDDEN TESTS

# %% [markdown]
# **The scores.** Week 3 turned the query by $i$ and the key by $j$. Turn the query by $i-j$ and the key not at all, and the score is the same. Now the distance is yours to choose.

# %% nbgrader={"grade_id": "rotary_scores", "solution": true}
def rotary_scores(q, k, distances, base=10000.0):
    """RoPE's scores if key j lies ``distances[i, j]`` positions before query i.

    q:         (batch, heads, n_queries, head_dim), not rotated; pairs are neighbouring channels, as in exercise 3.3
    k:         (batch, heads, n_keys, head_dim), not rotated
    distances: int64 (n_queries, n_keys), such as your clipped_distances gives; below 0 the key comes after the query
    returns:   (batch, heads, n_queries, n_keys), the dtype of q: plain products, not divided by sqrt(head_dim); any
               number will do where the key comes after the query

    The experiment below calls it for 512 queries and 512 keys. So loop over the distances, or over nothing, but not
    over all pairs of a query and a key. ``ready.rotate(x, positions, ready.frequencies_of(head_dim, base))`` turns as
    week 3 does.
    """
    ### BEGIN SOLUTION
    frequencies = ready.frequencies_of(q.shape[-1], base)
    scores = q.new_zeros(*q.shape[:-1], k.shape[-2])
    for distance in distances.unique():
        turned = ready.rotate(q, distance.expand(q.shape[-2]), frequencies)  # every query, as if all keys were this far
        scores = torch.where(distances == distance, turned @ k.mT, scores)
    return scores
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: one distance</summary>
#
# Suppose all keys were 5 back. Then turn every query by 5, and multiply with all keys: one call of `ready.rotate`, one matrix product.
# </details>
#
# <details><summary>Hint 2: all distances</summary>
#
# With a limit of 31 there are only 32 different distances. Compute the scores for each as in hint 1; `torch.where(distances == distance, …)` keeps those that belong to this distance.
# </details>

# %% nbgrader={"grade_id": "rotary_scores_check", "grade": true, "points": 0}
# Visible check (0 points): your scores against a loop over all pairs of a query and a key.
q = torch.tensor([[[[1.0, 0.0, 0.5, -1.0], [0.0, 2.0, 1.0, 1.0]]]])
k = torch.tensor([[[[0.5, 1.0, -1.0, 0.0], [1.0, -1.0, 0.0, 2.0], [2.0, 0.0, 1.0, 1.0]]]])
distances = torch.tensor([[3, 0, 0], [3, 1, 0]])
out = rotary_scores(q, k, distances)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (1, 1, 2, 3), f"a score per query and key: shape (1, 1, 2, 3) expected, got {tuple(out.shape)}."
assert abs(float(out[0, 0, 1, 2]) - 2) < 1e-4, (
    f"at distance 0 nothing turns: q.k = 2; yours is {float(out[0, 0, 1, 2]):.4f}. (1.0000: divided by sqrt(head_dim).)")
assert abs(float(out[0, 0, 0, 0]) - -0.8836) < 1e-3, (
    f"query 0 and key 0 at distance 3 score -0.8836; yours is {float(out[0, 0, 0, 0]):.4f}. (-1.1059: turned the wrong "
    "way.)")
for i, j in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
    turned = ready.rotate(q[:, :, i:i + 1], distances[i, j].view(1), ready.frequencies_of(4))
    expected = float((turned[:, :, 0] * k[:, :, j]).sum())
    assert abs(float(out[0, 0, i, j]) - expected) < 1e-3, (
        f"query {i} and key {j} are {int(distances[i, j])} apart: the loop gives {expected:.4f}, yours "
        f"{float(out[0, 0, i, j]):.4f}.")
assert abs(float(rotary_scores(q, k, distances, base=50.0)[0, 0, 1, 1]) - float(out[0, 0, 1, 1])) > 1e-3, (
    "another base must give other scores.")
# It computes where its inputs are, on any device.
lab.follows_the_device(rotary_scores, torch.ones(1, 2, 2, 4), torch.ones(1, 2, 3, 4), torch.tensor([[1, 0, -1], [2, 1, 0]]))
print("Looks right. The hidden tests try other sizes, distances and bases.")

# %% nbgrader={"grade_id": "rotary_scores_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week5
week5.rotary_scores(rotary_scores)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** The shipped RoPE model has a loss of 1.38 at 64 characters and 3.31 at 512 (on 32 texts). What is it at 512 (a) with all keys, distances clipped at 31, (b) with a window of 32, (c) with 64 keys, the nearest 32 and 32 others, at their true distances?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# The shipped model with other distances: run this cell
class OtherDistances(nn.Module):
    """The shipped model, nothing retrained: distances clipped at ``limit``, or the latest ``window`` keys alone."""

    def __init__(self, model, limit=None, window=None):
        super().__init__()
        self.model, self.limit, self.window = model, limit, window

    def scores(self, q, k):
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        if self.limit is not None:
            return rotary_scores(q, k, clipped_distances(n_queries, n_keys, self.limit))
        at, frequencies = torch.arange(n_keys), ready.frequencies_of(q.shape[-1])
        return ready.rotate(q, at[n_keys - n_queries:], frequencies) @ ready.rotate(k, at, frequencies).mT

    def forward(self, tokens):
        return torch.cat([self.read(part) for part in tokens.split(4)])

    def read(self, tokens):
        model, n = self.model, tokens.shape[1]
        back = torch.arange(n)[:, None] - torch.arange(n)
        hidden = (back < 0) | (back >= (self.window or n))
        x = model.embed(tokens)
        for block in model.blocks:
            q, k, v = block.attention.qkv(block.norm1(x)).unflatten(-1, (3, model.n_heads, -1)).permute(2, 0, 3, 1, 4)
            if block is model.blocks[-1]:  # the last layer needs only the queries that are scored
                q, x = q[:, :, -32:], x[:, -32:]
            weights = (self.scores(q, k) / 4).masked_fill(hidden[-q.shape[-2]:], -math.inf).softmax(-1)
            x = x + block.attention.out((weights @ v).transpose(1, 2).flatten(2))
            x = x + block.mlp(block.norm2(x))
        out = model.read(model.norm(x))
        return F.pad(out, (0, 0, n - out.shape[1], 0))  # as long as the text, as 5.6 promises


# %% tags=["experiment"]
# The shipped model with your distances and scores; budget: 15 seconds on a CPU.
some = windows[::3]  # every third text of Figure 5.9
clip, window = OtherDistances(rope, limit=31), OtherDistances(rope, window=32)
familiar = {"as it is": loss_by_length(rope, some, tested, 32),
            "all keys, distances clipped at 31": loss_by_length(clip, some, tested, 32),
            "window of 32": loss_by_length(window, some, tested, 32)}
rope.rotation = lambda n: stretched("YaRN", n)
familiar["YaRN, s = n/64"] = loss_by_length(rope, some, tested[1:], 32)
rope.rotation = rope.plain_rotation

# %% tags=["experiment", "nbval-ignore-output"] jupyter={"source_hidden": true}
# Figure 5.12: run this cell
fig, ax = lab.figure("One model, nothing retrained: trained at 64 (dashed)", height=3.6)
looks = {"as it is": (lab.BLACK, ":", "o"), "YaRN, s = n/64": (lab.BLUE, "-.", "D"),
         "all keys, distances clipped at 31": (lab.VERMILLION, "-", "s"), "window of 32": (lab.GREEN, "--", "v")}
for name, (colour, style, marker) in looks.items():
    losses = familiar[name]
    ax.plot(list(losses), list(losses.values()), color=colour, linestyle=style, marker=marker, label=name)
length_axis(ax, tested, 64)
ax.set(ylabel="loss (nats per character)", ylim=(1.2, 3.6))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
plt.show()
lab.table(["the shipped model", *(f"{n // 64}x" for n in tested)],
          [[name, *(f"{familiar[name][n]:.2f}" if n in familiar[name] else "" for n in tested)] for name in looks])


# %% [markdown]
# **Figure 5.12. The same weights, other distances.** Loss on the last 32 targets of 32 texts, one shipped model. The clip sees all keys, the window the latest 32.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Loss at 512 characters, mean (lowest to highest of five seeds), from `experiments/results_distances.md`. The 64 keys are the nearest 32 and 32 drawn from those before, the same in both rows. At 64 characters the loss is 1.369 (1.338 to 1.419).
#
# | | 64 keys | all 512 keys |
# |---|---|---|
# | **familiar distances** (clipped at 31) | 1.371 (1.341 to 1.420) | **1.399** (1.363 to 1.447) |
# | **new distances** | 2.561 (2.301 to 2.806) | 3.306 (3.182 to 3.371) |
#
# | clipped at | 7 | 15 | 31 | 47 | 63 | 127 | 255 |
# |---|---|---|---|---|---|---|---|
# | loss, all keys | 1.92 | 1.48 | 1.40 | 1.41 | 1.67 | 2.77 | 3.08 |
#
# | window of | 8 | 16 | 32 | 64 | 96 | 128 | 256 |
# |---|---|---|---|---|---|---|---|
# | loss | 1.40 | 1.38 | 1.37 | 1.38 | 1.41 | 2.52 | 3.08 |
#
# Compare the two rows, then the two columns. A new distance need not do harm: count all distances beyond 63 as 87 or as 231, which training never showed, and the loss is only 1.43 or 1.42. Count them as 127, also new, and it is 2.66. Nor is every distance that training showed safe: count them as 63, which one query in 64 met, and the loss is 1.67.
#
# Distance 63 is one turn of pair 2, but pair 1 has its share. In the shipped model 63 has 1.73; with pair 1 alone counted as 31 it is 1.43, with pair 2 alone 1.46. Keep the window of 8 in mind for part 3 of 5.8.
# </details>

# %% [markdown]
# **Methods that limit distances.** All run on a trained model without further training.
#
# | method | distances beyond $w$ | what it costs |
# |---|---|---|
# | ReRoPE (Su, 2023) | count as $w$ | a prompt's scores are computed twice, and each decoding step rotates all cached keys again |
# | Self-Extend (Jin et al., 2024) | beyond $w$, count in groups: positions are divided by a group size, rounded down, and go on from $w$ | a prompt's scores twice, too |
# | LM-Infinite (Han et al., 2023) | are limited; all but the first tokens and the latest are hidden | a mask |
# | a window | are hidden | a mask; the cache stays small; large models need the first tokens, too |

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained_question", "locked": true}
# ### Exercise 5.8 · What survives, and why
#
# **5 points · difficulty 3/5 · 65 minutes · text, graded by a person**
#
# *Why it matters:* "which encoding extrapolates?" has no one-word answer. A good answer names mechanisms and numbers.
#
# Answer in about two to five sentences per part. Use this section's tables and figures, those in the folds too.
#
# 1. **Pairs.** The models have $d=16$, $L=64$, base 10,000. Which of the eight pairs never complete a turn in training? Someone says: "these pairs meet new angles, so all of them are in trouble." What does Figure 5.11 say?
# 2. **ALiBi** stays flat. What in its bias makes this possible? And why does a flat curve *not* show that the model makes use of 512 characters?
# 3. **Keys or distances.** Someone says: "RoPE fails beyond $L$ because too many keys compete." Answer with the four losses of 6.6's first table. How do the two causes interact? What does a clip at 31 take away from the model, and what does a window of 32? Does the loss show it?
# 4. **Extensions.** At 2x position interpolation is worse than doing nothing. Where does Figure 5.11 show why? YaRN is far ahead of NTK at 8x in Figure 5.9: how much of this is the method, and how much the choice of $s$?
# 5. **A failed expectation.** Name one expectation, your own or one you have read, that these results contradict. Give the numbers with their spread over the seeds, and say in one sentence what our experiment can *not* show about it.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. Boundary (d/2) ln(L/2 pi)/ln(base) = 2.02: pairs 3 to 7 (five of eight) never complete a turn (half a point; accept an off-by-one in the count if the formula is right). Of these only pair 3, just past the boundary, matters: repairing it alone brings 1.44/1.76/2.37 at 2x/4x/8x (means of five seeds), all five 1.46/1.82/2.32, pairs 4 to 7 without it little (1.75/3.08/3.25; unrepaired 1.75/3.06/3.31). So meeting new angles is not enough to be in trouble (half a point; "all five are in trouble" gets none).
# 2. The bias is a fixed slope times distance: a far key is penalised more than any key before, in the direction training has already shown; no new vectors or angles (half a point). A model that only looks at its last few dozen characters would have the same flat curve: the loss did not fall below that of 1x (half a point).
# 3. All keys at familiar distances (clipped at 31): 1.40 at 8x, against 1.37 at 1x and 3.31 unchanged; 64 keys at new distances: 2.56. So new distances do the damage; more keys cost 0.03 nats at familiar distances and 0.75 at new ones (half a point; a reason is not asked for; the student's own run instead of the five seeds is fine; "keys have no part in it" alone gets none of this half). The clip takes away order and distance beyond 31, but no key; the window takes away the far keys themselves. The loss shows neither, since the model makes next to no use of far characters: a window of 8 has 1.40 (half a point).
# 4. PI slows the fast pairs too: neighbours that were 1 rad apart on pair 0 are half a radian apart; the local patterns on which character prediction relies are read with a wrong ruler, and no fine-tuning corrects it; slowing pair 0 alone (Figure 5.11) hurts at 2x, too: 2.09 instead of 1.75 (half a point). Mostly the choice of s: at the best s for each, YaRN leads by 0.05 (-0.01 to 0.12) at 8x instead of 1.15; at s = n/L pairs leave their arcs with NTK, which wants a larger s (half a point).
# 5. Any expectation that the tables do not bear out, with mean and range, e.g. PI helps at once; all pairs that never turned must be repaired; more keys alone break RoPE; YaRN beats NTK by far; no encoding is competitive; a longer context lowers the loss; the temperature is what makes YaRN work (half a point). A limit: small model, characters, trained at 64, no fine-tuning, one text; ranking of large models not shown (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "extrapolation_explained", "grade": true, "solution": true, "points": 5}
# ### BEGIN SOLUTION
# 1. The boundary is $\frac{16}{2}\ln(64/2\pi)/\ln 10\,000=2.02$: pairs 0, 1, 2 complete a turn within 64 characters, pairs 3 to 7 never do. All five meet new angles beyond 64, but of these only pair 3, the first past the boundary, needs a repair. Repairing it alone brings the loss from 1.75/3.06/3.31 at 2x/4x/8x to 1.44/1.76/2.37 (means of five seeds). Repairing all five is no better at 2x and 4x, and at 8x better in two runs of five (1.46/1.82/2.32), and pairs 4 to 7 without pair 3 bring little (1.75/3.08/3.25). Meeting new angles is not enough.
#
# 2. ALiBi subtracts slope × distance. A key at a distance never met is penalised more than any key before, in the direction training has already taught; there is no new vector and no new angle. But a model that looks at the last 30 characters only would have the same flat curve. The loss at 512 is not lower than at 64, so nothing shows that the other 448 characters are used.
#
# 3. With all 512 keys and distances clipped at 31 the loss is 1.40 (1.36 to 1.45), nearly that of 1x (1.37). With 64 keys at new distances it is 2.56 (2.30 to 2.81). So new distances do the damage, and more keys only add to it: going from 64 keys to all costs 0.03 nats at familiar distances and 0.75 at new ones: together, more keys at a harmful distance get more of the weight. The clip keeps every key but no longer knows which of two keys beyond 31 comes first; the window loses those keys altogether. The loss shows neither, since a window of 8 has 1.40, too: this model hardly uses far characters.
#
# 4. PI slows *all* pairs, pair 0 too. Characters are predicted mostly from near neighbours, and at 2x these are half a radian apart where the model learned one radian: 2.20 against 1.75. Figure 5.11 shows it: at 2x slowing pair 0 alone makes the loss worse (2.09). At 8x with $s=8$ pairs leave their arcs with NTK (3.18) and not with YaRN (2.03). But NTK only needs a larger $s$: at its best ($s=48$) it reaches 1.92, and YaRN 1.87 ($s=6$). Of the lead of 1.15 only 0.05 nats (−0.01 to 0.12 by seed) remain, too little for a ranking; the rest was the choice of $s$.
#
# 5. I expected YaRN's temperature to matter, since it is part of the method. At 8x YaRN has 2.03 (1.94 to 2.17) with and 2.04 (1.94 to 2.19) without it; from seed to seed the gain lies between −0.02 and +0.05. The experiment cannot show whether it matters for large models, for longer contexts or after fine-tuning.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint</summary>
#
# Part 2: what would the curve of a model that sees only 30 characters back look like? Part 3: the table in 6.6. Part 4: the fast pairs in Figure 5.11, the lowest points in Figure 5.10.
# </details>

# %% [markdown]
# <details><summary>After you have answered</summary>
#
# **New angles.** Five of the eight pairs meet them, but one repair does as much as all five. Pairs 4 to 7 hardly serve as positions: held still, they cost the shipped model 0.002 nats at 64 characters. So their new angles plausibly do little harm. Figure 5.11 does not acquit pairs 0 to 2: slowing them also spoils near distances, and still pairs 1 and 2 help at 4x in all five runs, by 0.12 to 0.37 nats. Clip these three alone at 31, and the loss at 8x falls from 3.31 to 1.79; clip pair 3 alone, and it falls to 2.08 (means of five seeds).
#
# How can pairs that have seen every angle do harm? A score adds up all pairs. At 127 pair 3 stands at a new angle, and pair 2 where it stands at distance 0. In the shipped model the loss at 8x is 3.12 with all far distances counted as 127. Pair 3 alone can mend most of it: 1.63 counted as 31, 1.56 as 47. Pair 2 alone mends half as 31 (2.17), half a turn away, and little as 47 (2.87).
#
# Pair 2 does not decide by itself: at 251 it stands there too, pair 3 is back at an angle it knows, and the loss is 1.47. Nor does it take a new angle of pair 3: at 200 it is back at one that it knows, and the loss is 2.38.
#
# **More keys.** In RoPE new distances do the damage, though not each of them: more keys cost 0.03 nats at distances up to 31 and 0.75 at new ones. It takes no *variety*: with all far keys counted as 127, the shipped model has 2.53 with 64 keys, 3.12 with all. T5's bias is different. It meets no new bucket, yet its loss rises by 0.69 with all keys and by only 0.06 with 64. So more keys can do harm alone. Left open: which 64 keys a language model needs, and why YaRN with $s=8$ still loses 0.66 nats at 8x (0.30 of them at 1x already), although no pair leaves its arc.
#
# **The order of far keys** is lost in ReRoPE's clipped scores, and coarse in Self-Extend's.
#
# Men et al. (2024) object that a model with repaired angles may have only a "superficial" long-context ability (abstract). Section 8 is about this difference.
# </details>

# %% [markdown]
# ## 7 · More keys: attention dilution
#
# How can more keys alone do harm? Suppose that one key matters and has a logit of 8, and that the other $n$ keys are noise, with normal logits of mean 0 and variance 1. The mean of $e^x$ over such noise is $e^{1/2}$. So the weight of the key that matters is about
#
# $$\frac{e^{8}}{e^{8}+n\,e^{1/2}}. \tag{9}$$
#
# With 64 keys this is 0.966. With 32,768 it is 0.052. The model still *finds* the key: its logit is the largest, as far above the *mean* of the others as ever. But what the model *reads* is 95 % noise. This is **attention dilution**. No positions are involved.
#
# **The remedy.** The noise grows like $n$, so the gap between the logits must grow like $\ln n$. Multiply all logits by
#
# $$\lambda(n)=\frac{\ln n}{\ln n_0}, \tag{10}$$
#
# where $n_0$ is a length that the model knows, say its training length. Su (2021) derived the factor from keeping the entropy of attention constant; Chiang and Cholak (2022) use $\log n$ too.
#
# *Multiply*, don't add. A constant added to all logits changes nothing: $\frac{e^{x_j+c}}{\sum_k e^{x_k+c}}=\frac{e^c\,e^{x_j}}{e^c\sum_k e^{x_k}}$.

# %% [markdown]
# ### Exercise 5.9 · The log-n factor
#
# **2 points · difficulty 1/5 · 7 minutes · code**
#
# *Why it matters:* if you add instead of multiplying, or turn the fraction upside down, no error tells you.

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


# %% [markdown]
# <details><summary>Hint</summary>
#
# The current length is the numerator. The base of the logarithm does not matter if both use the same.
# </details>

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

# %% [markdown] tags=["prediction"]
# **Predict.** At $n=32{,}768$ the plain weight is 0.052. Multiply all logits by $\lambda$. Does the weight come back to 0.97, to more, or to less?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.13: run this cell
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
         ("log n added", lambda n: 1.0, lambda x, n: x + math.log(n), lab.BLACK, ":", "+"),
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
ax.plot([], [], color=lab.GREY, linestyle="none", marker="o", markersize=6, label="marks: drawn at random, mean of 20")
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
# **Figure 5.13. Dilution.** Lines: equation (9); marks: drawn at random. Two lines coincide: which?

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Multiplying by $\lambda$ even raises the weight. The noise grows as well, its mean from $e^{1/2}$ to $e^{\lambda^2/2}$. But when $\ln n$ grows by 1, the signal's exponent grows by $8/\ln 64=1.9$, and that of the whole noise, its $n$ keys included, by at most 1.6 at these lengths. The factor needs a key that *stands out*; without one it sharpens the noise. At new distances it makes our RoPE models worse: 3.39 nats at 8x instead of 3.31, worse in each of five runs.
# </details>

# %% [markdown]
# ## 8 · Does the model use its context?
#
# ### 8.1 Hide a needle
#
# A curve may be flat, but does the model *use* the long context? The loss on ordinary text cannot tell. So we hide something that only the far context knows.
#
# **The task.** A haystack of filler, symbols 0 to 15: after $x$ comes $x+1$ with probability 0.8, else $x+5$ (modulo 16). The filler's entropy is 0.50 nats. Somewhere in it is a *needle*: a MARK and one of 16 values. The last token is QUERY; the answer is the value, and guessing finds 1/16. Training: 300 steps at 64 tokens, needles anywhere. Test: the needle **in the first quarter**, up to 1,024 tokens.

# %% [markdown] tags=["prediction"]
# **Predict** for ALiBi and RoPE from 1x to 16x. What happens to the loss on *filler*? And to the share of needles found? Will the factor $\lambda(n)$ help?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.14: run this cell
needle, lengths_n = results["needle"], results["needle_tested"]
fig, ax = lab.figure("Needle in the first quarter, trained at 64 (dashed line), five seeds", height=3.8)
for encoding in ("alibi", "rope"):
    colour, style, marker = LOOK[encoding]
    band(ax, lengths_n, needle[encoding]["found"], colour, style, marker, f"{ready.NAMES[encoding]}: needles found")
    below = {"linewidth": 8, "alpha": 0.35} if encoding == "alibi" else {}  # two lines on top of each other
    band(ax, lengths_n, np.exp(-np.array(needle[encoding]["filler"])), colour, "-" if below else ":", None if below else marker,
         f"{ready.NAMES[encoding]}: filler, mean probability", **below)
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
# **Figure 5.14. Needles and filler.** Solid and dashed: needles found. Dotted (RoPE) and pale (ALiBi): the geometric mean probability of the right filler symbol ($e^{-\text{loss}}$).

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# The filler loss, of the last 32 filler targets, stays between 0.49 and 0.52 at every length, even for RoPE, which broke down on English. (A value below the entropy is luck.)
#
# **Here the factor helps.** With all content logits multiplied by $\lambda(n)$, ALiBi finds 0.77 of the needles at 16x instead of 0.54, better in each of five runs. (The bias then weighs less. Whether that helped, or sharper attention, we did not test.)
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** Take the RoPE models of this task, nothing retrained. Clip them at 31, or give them a window of 32. Which of the two finds far needles, if either?
#
# *Your prediction:*

# %% [markdown]
# <details><summary>After you have answered</summary>
#
# Share found in the first quarter of 512 tokens, mean (lowest to highest), from `experiments/results_distances.md`. On filler all three have a loss of 0.49.
#
# | as it is | clipped at 31 | window of 32 |
# |---|---|---|
# | 0.61 (0.47 to 0.77) | **1.00 (1.00 to 1.00)** | 0.06 (0.03 to 0.08) |
#
# The clip keeps all keys, so content finds every needle. With the window the model only guesses, at the same filler loss.
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** Here ALiBi's slopes are 1/4, 1/16, 1/64, 1/256; week 4's `effective_window` gives 19, 74, 295 and 1,179 positions. In haystacks of 1,024 tokens, does the model stop finding needles at one of these distances? What else does it depend on, if anything?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 5.15: run this cell
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
rank = reach.argsort().argsort()  # values found from farthest away on top

fig, ax = lab.figure("ALiBi, 1,024 tokens: needles found and lost", height=4.2)
for hit, colour, marker, label in ((True, lab.BLUE, "o", "found"), (False, lab.VERMILLION, "x", "lost")):
    chosen = found == hit
    ax.plot(distance[chosen], rank[value[chosen]], color=colour, marker=marker, markersize=5, linestyle="none", label=label)
for head, (window, side) in enumerate(((19, "center"), (74, "left"), (295, "left"))):
    ax.axvline(window, color="#444444", linewidth=1.2, linestyle=":", zorder=0)
    ax.text(window if head else 12, ready.VALUES - 0.2, f"head {head}", color="#444444", fontsize=9, ha=side)
ax.set_yticks(range(ready.VALUES), [str(int(v)) for v in reach.argsort()])
ax.set(xlabel="distance from the query to the needle (dotted: windows of heads 0 to 2)", ylabel="value of the needle, sorted by reach",
       xlim=(0, length))
fig.legend(*ax.get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
far = distance > 700
wrong = answer[far & ~found] - ready.FILLERS
block, slopes = finder.blocks[0], 2.0 ** (-8 * torch.arange(1, 5) / 4)
with torch.no_grad():  # the first layer's scores, without the bias: QUERY's query against the key of every token
    q, k, _ = block.attention.qkv(block.norm1(finder.embed.weight)).unflatten(-1, (3, 4, 16)).unbind(1)
    scores = torch.einsum("hd,thd->ht", q[ready.QUERY], k) / 4
    filler = scores[:, :ready.FILLERS].exp().mean(1).log() - (1 - (-slopes).exp()).log()  # all filler together, under the bias
    lead = ((scores[:, ready.FILLERS:ready.MARK] - filler[:, None]) / slopes[:, None]).max(0).values  # in tokens
print("lead, by value (how many tokens of penalty its score outweighs in the first layer): "
      + ", ".join(f"{int(v)}: {round(float(lead[v]), -2):.0f}" for v in lead.argsort(descending=True)[:5]))
print("farther than 700, always found:", [v for v in range(16) if found[far & (value == v)].all()],
      " never found:", [v for v in range(16) if not found[far & (value == v)].any()])
print(f"wrong answers beyond 700 that are the value {int(wrong.mode().values)}: {float((wrong == wrong.mode().values).float().mean()):.0%}")

# %% [markdown]
# **Figure 5.15. Which needles are found.** The shipped ALiBi model (seed 0). One symbol per haystack, one row per value: dots are found, crosses lost. Compare the end of each row with the dotted windows of week 4.

# %% [markdown] nbgrader={"grade_id": "needle_explained_question", "locked": true}
# ### Exercise 5.10 · Flat perplexity, lost context
#
# **2 points · difficulty 3/5 · 25 minutes · text, graded by a person**
#
# *Why it matters:* a flat perplexity is easily taken for proof that a model "handles 100,000 tokens".
#
# 1. Explain how the loss can stay flat up to 1,024 tokens while needles are lost. Use the numbers of Figure 5.14. A window per head does not explain Figure 5.15. What explains more of it?
# 2. A colleague wants to show that a model really uses its long context. Propose a test. What must it hold fixed when the length grows, so that the result means something?
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. The loss is a mean over targets that can be predicted from the last token (Markov filler), so it does not depend on far context; at most one target in a thousand does; numbers for both quoted (half a point). ALiBi: the penalty slope*distance competes with the content score of the needle; the needle is lost where the penalty has eaten up its lead, which differs from value to value (half a point; "a fixed window per head" alone gets none, naming dilution as well is fine).
# 2. A task whose answer lies only in the far context (needle, key-value retrieval, copying, several needles, questions about an early passage), or the loss of the same targets with and without (or with scrambled) far context (half a point). Held fixed: the targets, the difficulty (number of needles, distractors, alphabet), and chance level; the distance or the depth of the needle is varied on purpose and reported (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "needle_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. The filler loss is a mean over targets that depend on the token before them; none of them needs the needle. (Even in a mean over all targets it would be one in 1,024.) So the loss stays at 0.49 to 0.52 at all lengths, for ALiBi and for RoPE, while the share of needles found falls: for ALiBi from 1.00 at 1x to 0.79 (0.70 to 0.97) at 8x and 0.54 (0.35 to 0.65) at 16x. In ALiBi the penalty slope × distance competes with the score that the needle's content earns. Roughly, a needle is found as long as its lead over the filler, in the layer that reads it, is larger than the penalty. The lead differs from value to value: beyond 700 tokens some values are always found, others never (Figure 5.15). The log-n factor raises the content scores and brings needles back: 0.77 instead of 0.54 at 16x.
#
# 2. Measure something that only the far context can tell: for example a table of keys and values at the beginning and the question for one of them at the end; or the loss of the same last 200 tokens of real documents, once with their true far context and once with the far context of another document. Hold fixed: the targets, the number of needles and of distractors, the alphabet, so that guessing is worth the same at every length. The distance of the needle must grow with the length, and be reported: a needle that is always 50 tokens before the question tests nothing new.
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
# <details><summary>After you have answered</summary>
#
# This filler needs only the token before: a flat loss says as much about the text as about the model.
#
# The popular explanation of lost needles is a window: each head sees so far and no farther. Week 4's `effective_window` computes it for keys of *equal content*. But a trained model scores many values far above the filler, in its first layer or its second, and the bias must first eat up this lead. The lead differs from value to value. The reach does so in all five seeds, with different values in each (`experiments/results.md`).
#
# The printed lead, of the first layer, suffices for four of the six values that are always found. A fifth is the commonest wrong answer, so its needles are "found" for free. The sixth, 15, has its lead in the second layer: if QUERY cannot look at the needle there, it finds none (`experiments/results_distances.md`).
# </details>

# %% [markdown]
# ### 8.2 Two kinds of layer
#
# Yang et al. (2025) give the layers different jobs. Some use **RoPE in a short window** and tell the order of neighbours. The others see **all keys, without positions**. Our version has one layer of each, with a window of 32 (`ready.HYBRID`).

# %% [markdown] tags=["prediction"]
# **Predict.** Trained at 64, how many needles will the hybrid find at 16x? What will it pay in language modelling at 1x, compared with RoPE everywhere? Will its loss stay flat up to 8x?
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
# Figure 5.16: run this cell
fig, (left, right) = lab.figure("The hybrid: what it finds, and what it costs", ncols=2, height=3.8)
for encoding in ("hybrid", "alibi", "rope"):
    per_seed = needle[encoding]["found"]
    band(left, lengths_n, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
left.plot(list(live_found), list(live_found.values()), color=lab.VERMILLION, marker="s", markersize=9, markerfacecolor="none",
          linestyle="none", label="yours")
length_axis(left, lengths_n, 64)
left.set(title="needles found in the first quarter", ylabel="share", ylim=(0, 1.08))
left.legend(loc="lower left", frameon=True, framealpha=1, edgecolor="none")
for encoding in ("hybrid", "alibi", "rope", "none"):
    per_seed = results["fixed"][encoding]
    band(right, tested, per_seed, *LOOK[encoding], named(ready.NAMES[encoding], per_seed))
length_axis(right, tested, 64)
right.set(title="language modelling, last 32 targets", ylabel="loss (nats per character)", ylim=(1.2, 3.5))
right.legend(loc="upper left", frameon=True, framealpha=1, edgecolor="none")
fig.get_layout_engine().set(wspace=0.08)
plt.show()
print("your hybrid finds at least 95 % at every length:", min(live_found.values()) >= 0.95)
english = [*spread(results["fixed"]["hybrid"]), "-"]
lab.table(["hybrid: mean (range over 5 seeds)", "needles found", "filler loss", "English"],
          [[f"{n // 64}x", *row] for n, *row in zip(
              lengths_n, spread(needle["hybrid"]["found"]), spread(needle["hybrid"]["filler"]), english)])
at_4096 = results["needle_at_4096"]
print(f"at 64x (4,096 tokens, 16 haystacks each): {min(at_4096):.2f} to {max(at_4096):.2f} found")

# %% [markdown]
# **Figure 5.16. The hybrid.** Left: needles found, with your model as squares. Right: the price, the loss on English after 1,000 steps, with the model without an encoding for comparison.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# The hybrid finds every needle up to 16x in all five runs, and at 64x too. At 1x it loses 0.03 to 0.08 nats to RoPE. Does its layer without positions cost anything at new lengths? As a control we ran the plain RoPE models with the same window in *both* layers (five seeds, `experiments/results_distances.md`).
#
# | | loss at 1x | at 8x | rise | needles at 8x |
# |---|---|---|---|---|
# | hybrid | 1.425 (1.396 to 1.453) | 1.487 (1.453 to 1.503) | 0.062 (0.050 to 0.070) | 1.00 |
# | a window in both layers | 1.369 (1.338 to 1.416) | 1.369 (1.338 to 1.416) | 0.000 | 0.06 |
#
# From 2x on the control cannot rise: two windows of 32 reach 62 characters back, whatever the length. The hybrid rises in every run. So its layer without positions costs a little at new lengths, and finds what the window cannot see.
# </details>

# %% [markdown]
# ### 8.3 What released models do
#
# We read the entries below in the code of `transformers` 5.23.0. Its classes hold defaults; a released checkpoint may set other values.
#
# | model (class) | what it does | this week |
# |---|---|---|
# | gpt-oss ([`GptOssConfig`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_oss/configuration_gpt_oss.py)) | YaRN, $s=32$ from 4,096, `truncate=False`: the ends of the ramp are not rounded; every other layer has a window of 128; each head has a learned sink, an extra logit without a value ([`GptOssAttention.sinks`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gpt_oss/modeling_gpt_oss.py)) | sections 5, 8 |
# | Llama 3.1 (type `"llama3"` in [`modeling_rope_utils.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/modeling_rope_utils.py)) | YaRN's idea with other numbers: above 4 turns in 8,192 tokens pairs stay, below 1 they are divided by 8, between they are mixed by the number of turns; no temperature | section 5 |
# | Llama 4 ([`Llama4TextConfig`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/llama4/configuration_llama4.py)) | every fourth layer has no positions and multiplies its queries by $1+0.1\ln(1+\lfloor (m+1)/8192\rfloor)$; the others have RoPE in chunks of 8,192 | sections 7, 8.2 |
# | Cohere 2 ([`Cohere2Config`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/cohere2/configuration_cohere2.py)), EXAONE 4 ([`Exaone4Config`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/exaone4/configuration_exaone4.py)) | three layers with RoPE in a window of 4,096, then one without positions that sees everything | section 8.2 |
# | Gemma 3 ([`Gemma3TextConfig`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gemma3/configuration_gemma3.py)) | base 10,000 in the windows, 1,000,000 in every sixth layer, which sees everything | section 3 |
# | Phi-3 ([`Phi3Config`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/phi3/configuration_phi3.py)) | plain RoPE by default. A checkpoint may ask for "longrope": a factor per pair from one of two lists, the long one as soon as a text exceeds the original length; the cache is then thrown away | the trap of section 4 |

# %% [markdown]
# ## 9 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. You switch on dynamic NTK in a server with a KV cache. What can go wrong?</summary>
#
# Cached keys were rotated with an older base; the query uses the current one. Cache keys before rotation, or keep the base fixed.
# </details>
#
# <details><summary>2. A paper shows a falling mean loss for growing windows. Does the model use the longer context?</summary>
#
# Not necessarily: the share of early targets falls. Ask for the same targets with and without the far context.
# </details>
#
# <details><summary>3. Why does RoPE break beyond its training length, although it is relative?</summary>
#
# It meets larger distances than in training. Clip them, and our models hold, with all keys in view.
# </details>
#
# <details><summary>4. Why do some models have layers without positions?</summary>
#
# Such a layer meets no distances; in our test it found content far back. Other layers and the causal mask give the order.
# </details>
#
# <details><summary>5. You clip a RoPE model at a familiar distance, or give it a window. What does it no longer know in each case?</summary>
#
# In that layer: with the clip, which of two keys beyond the limit comes first; with the window, that there are any. (Layers below may tell.)
# </details>
#
# <details><summary>6. Your new method wins at 8x, on one seed. What is missing?</summary>
#
# The spread over seeds, the loss within the training length, each rival at its own best $s$, a task that needs the far context, and the same targets for all.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Beyond the training length the high frequencies see unseen angles | The *low* ones do; the high ones have been all the way round. | Figure 5.2 |
# | All pairs that never completed a turn must be repaired | In our models repairing one, the first past the boundary, does as much as repairing all five: 2.37 and 2.32 at 8x (1.37 at 1x). | Figure 5.11 |
# | NTK-aware scaling reduces all frequencies | The first is unchanged, the last divided by exactly $s$. | 5.3, Figure 5.4 |
# | YaRN interpolates high frequencies and uses NTK for the low ones | High: untouched. Low: linear interpolation. Between: a ramp. And a temperature. | 5.5 |
# | YaRN is far better than NTK | In our small models only from 4x on at the same $s$. With the best $s$ for each, it leads by 0.05 nats at 8x (−0.01 to 0.12 by seed, $s$ chosen on the same targets): no ranking. NTK needs a larger $s$ (YaRN paper, section 3.1). | Figure 5.10 |
# | Dynamic NTK with scale $c$ stretches by $c$ | By $c\,n/L-(c-1)$. | section 4 |
# | Add $\log n$ to the logits against dilution | Adding a constant is a no-op; *multiply* by $\log n/\log n_0$. | 5.9, Figure 5.13 |
# | ALiBi's heads see as far as their windows | The needle's content competes with the penalty; each value has its own reach. | Figure 5.15 |
# | A flat perplexity shows that the context is used | Needles were lost behind a flat loss. | Figure 5.14 |
#
# ## Takeaways
#
# 1. *What breaks?* Our RoPE models break at some of the distances that training never showed; more keys there make it worse. (Week 8 asks which.) T5's bias shows that more keys can also do harm alone.
# 2. *What mends it?* For RoPE: show no new distance. Clip it, hide it, or build layers that meet none. Or slow down the pairs that leave their range, and state the stretch. Each remedy has its price.
# 3. *How would you know?* Score the same targets at every length, over several seeds, the training length included. Then hide a needle.
#
# ## References
#
# - S. Chen, S. Wong, L. Chen, Y. Tian: *Extending Context Window of Large Language Models via Positional Interpolation*, 2023, arXiv:2306.15595.
# - kaiokendev: *Things I'm learning while training SuperHOT*, 2023, kaiokendev.github.io/til (position interpolation, found independently).
# - bloc97: *NTK-Aware Scaled RoPE*, 2023, and emozilla: *Dynamically Scaled RoPE*, 2023, posts on r/LocalLLaMA. Both are restated in the YaRN paper.
# - J. Su: *RoPE is a β-base encoding*, 2023, kexue.fm/archives/9675 (the picture of digits), and *ReRoPE*, 2023, kexue.fm/archives/9708; both in Chinese, our titles.
# - H. Jin et al.: *LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning*, ICML 2024, arXiv:2401.01325.
# - C. Han et al.: *LM-Infinite: Simple On-the-Fly Length Generalization for Large Language Models*, 2023, arXiv:2308.16137 (a distance limit and a mask; it names both of our suspects, and as a third the first tokens).
# - B. Peng, J. Quesnelle, H. Fan, E. Shippole: *YaRN: Efficient Context Window Extension of Large Language Models*, 2023, arXiv:2309.00071.
# - X. Liu, H. Yan, S. Zhang, C. An, X. Qiu, D. Lin: *Scaling Laws of RoPE-based Extrapolation*, ICLR 2024, arXiv:2310.05209 (the critical dimension).
# - X. Men et al.: *Base of RoPE Bounds Context Length*, 2024, arXiv:2405.14591 (repairing angles alone gives a superficial long-context ability).
# - O. Press, N. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, ICLR 2022, arXiv:2108.12409.
# - J. Su: *Attention Scaling from the Perspective of Entropy Invariance*, 2021, kexue.fm/archives/8823 (in Chinese; the log-n factor).
# - D. Chiang, P. Cholak: *Overcoming a Theoretical Limitation of Self-Attention*, 2022, arXiv:2202.12172 (multiplying logits by log n).
# - B. Yang et al.: *Rope to Nope and Back Again: A New Hybrid Attention Strategy*, 2025, arXiv:2501.18795.
# - C.-P. Hsieh et al.: *RULER: What's the Real Context Size of Your Long-Context Language Models?*, 2024, arXiv:2404.06654 (retrieval tests beyond one needle).
# - Code: huggingface/transformers 5.23, [`modeling_rope_utils.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/modeling_rope_utils.py) and the files of section 8.3's models.
