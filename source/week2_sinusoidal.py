# %% [markdown]
# # Week 2 · Sinusoidal positional encoding
#
# **The question of the week.** A model that adds sines and cosines to its tokens has a vector for position 1,000,000, even if no training text was longer than 512. Can it use that vector?
#
# <!-- costs of week2_sinusoidal -->
#
# ## What you will be able to do
#
# - compute a sinusoidal encoding by hand, and say, before you compute them, which of its dot products are equal;
# - name the shortest and the longest wavelength, and say which pairs of channels never complete a turn in training;
# - write the encoding so that position 100,000 is as exact as position 1;
# - build the matrix that moves every position by $k$, and use it in an attention head that looks three tokens back;
# - write a learned position table, and say exactly what happens beyond its training length and beyond its end;
# - test the claim "similarity falls with distance" at any width;
# - take an attention score apart into its four terms, and say which of them RoPE and ALiBi keep.
#
# **You need** week 1, radians, sine and cosine, and matrix times vector. The two addition theorems are in the text.
#
# **Short of time?** The idea is in 2.1, 2.3 and 2.4; 2.7 leads to the next weeks.
#
# <!-- points of week2_sinusoidal -->
#
# **As in week 1:** a *visible check* carries 0 points and says what is wrong. The *hidden tests* carry all the points of a code or number exercise, and a person grades the two text answers. Answer *predict* cells before you run the experiment. Folded cells hold plumbing: run them like any other.

# %% [markdown]
# ### Conventions of this week
#
# - Positions $p$ are whole numbers and start at **0**. In scores, $i$ is the position of a query and $j$ that of a key.
# - $d$ is the width of the model, `d_model`. With sines and cosines it must be even; a learned table (2.5) may have any width.
# - Channels are counted 0, 1, …, $d-1$. Channels $2t$ and $2t+1$ form **pair** $t$, for $t=0,\dots,\frac d2-1$. (Most texts call the pair $i$. Here $i$ belongs to the queries.)
# - In this week's formulas vectors are **columns**: $\mathrm{PE}(p)\in\mathbb R^d$ and $q=W_qx$, where $W_q$ is the `weight` of an `nn.Linear`. In code a table has one row per position, `pe[p]`.
# - Functions without a tensor argument (2.3, 2.4) return float32 tensors on the CPU. The layer of 2.5 keeps the dtype of its input.

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
# ## 1 · What makes a good encoding
#
# The layer of week 1 does not know the positions of its tokens. Without a causal mask a text is a bag of words to it. With this mask, some order leaks in through the contents, and a token can at best infer its position from them. So mark every token with its position: such a mark is a *positional encoding*. The simplest way is to **add** a vector to the token's embedding below the first layer:
#
# $$x'_p = x_p + \mathrm{PE}(p). \tag{1}$$
#
# Which vector should it be? Try some ideas.
#
# | idea | what goes wrong |
# |---|---|
# | the number $p$ itself | grows without bound and drowns the token |
# | $p/n$, with $n$ the length of the text | bounded, but the step to "the next position" depends on the length |
# | one-hot: channel $p$ is 1 | needs as many channels as positions; any two positions are equally far apart |
# | the binary digits of $p$ | bounded, needs few channels, but jumps: from 7 = 0111 to 8 = 1000 *every* digit changes |
#
# The last idea is nearly right. Write 0, 1, 2, … in binary, in a column. The last digit flips at every step, the one before it at every second step, the next at every fourth. Each digit is a **wave** with twice the wavelength of the digit to its right. Fast waves tell neighbouring positions apart; slow waves tell far from near. Only the jumps are bad, and the square waves cause them.
#
# So make the waves round.

# %% [markdown] tags=["prediction"]
# **Predict.** Replace each square wave by a sine *and* a cosine of the same wavelength. How long is one step, from $p$ to $p+1$? Does its length still depend on where in the text you are?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.1: run this cell
periods = (2, 4, 8, 16)
positions, between = torch.arange(17), torch.linspace(0, 16, 401)
angle = lambda at: torch.stack([at * 2 * math.pi / period for period in periods])
digits = torch.stack([(positions // (period // 2)) % 2 for period in periods]).float()
waves = torch.cat((angle(positions).sin(), angle(positions).cos()))
fig, axes = lab.figure("A counter with square waves, and one with round waves", nrows=2, ncols=2, height=4.8, sharex=True,
                       height_ratios=(3, 2))
for row in range(4):
    axes[0, 0].step(positions, 0.7 * digits[row] - 1.2 * row, where="post", color=lab.BLUE, linestyle="-", linewidth=1.6)
    for name, wave, colour, style in (("sine", angle(between).sin(), lab.BLUE, "-"), ("cosine", angle(between).cos(), lab.ORANGE, "--")):
        axes[0, 1].plot(between, 0.45 * wave[row] - 1.2 * row, color=colour, linestyle=style, linewidth=1.6,
                        label=name if row == 0 else "")
axes[0, 0].set(title="binary digits")
axes[0, 0].set_yticks([0.35 - 1.2 * row for row in range(4)], [f"digit {row}" for row in range(4)])
axes[0, 1].set(title="round waves", ylim=(-4.2, 1.3))
axes[0, 1].set_yticks([-1.2 * row for row in range(4)], [f"pair {row}" for row in range(4)])
axes[0, 1].legend(loc="upper right", ncols=2)
rows = []
for ax, name, code in ((axes[1, 0], "binary, 4 digits", digits), (axes[1, 1], "sine and cosine, 4 pairs", waves)):
    steps = (code[:, 1:] - code[:, :-1]).norm(dim=0)
    ax.bar(positions[:-1] + 0.5, steps, width=0.8, color=lab.BLUE)
    ax.set(xlabel="position p", ylabel="length of\none step", ylim=(0, 2.9), xticks=range(0, 17, 4))
    rows.append([name, f"{float(steps.min()):.2f}", f"{float(steps.max()):.2f}"])
plt.show()
lab.table(["length of one step", "smallest", "largest"], rows)

# %% [markdown]
# **Figure 2.1. From digits to waves.** Above: four digits of a binary counter, and four pairs of round waves with the same wavelengths. Below: the length of each step from $p$ to $p+1$.
#
# <details><summary>After you have run it</summary>
#
# With round waves a step turns each pair by a fixed angle, wherever you start, so its point moves by a chord of fixed length. All of this week rests on this property. It needs the sine *and* the cosine: a sine alone is steep at zero and flat at its top.
# </details>

# %% [markdown]
# ## 2 · The encoding
#
# Sinusoidal encoding (Vaswani et al., 2017, section 3.5) has $d/2$ pairs of waves. Their **frequencies** $\omega_t$, in radians per position, form a geometric series:
#
# $$\mathrm{PE}(p)_{2t}=\sin(p\,\omega_t),\qquad \mathrm{PE}(p)_{2t+1}=\cos(p\,\omega_t),\qquad \omega_t=\text{base}^{-2t/d},\qquad \text{base}=10\,000. \tag{2}$$
#
# In detail:
#
# - $t$ counts **pairs**. Channels 0 and 1 share the frequency $\omega_0=1$, channels 2 and 3 share $\omega_1$, and so on. The exponent is $2t/d$: it starts at 0 and stays *below* 1.
# - Sine sits on the even channel and cosine on the odd one, side by side. This is the **interleaved** layout.
# - Angles are in radians. At $p=0$ all sines are 0 and all cosines are 1.
# - Each pair is a point on the unit circle, so $|\mathrm{PE}(p)|^2=\frac d2$ for every $p$: no position is louder than another.
#
# Think of a pair as the **hand of a clock** that points in the direction $p\,\omega_t$. The encoding is a row of such clocks, from fast to slow.

# %% tags=["experiment"]
lab.moving_clocks(head_dim=8, m=3, keys=False)

# %% [markdown]
# **Figure 2.2. A position on its clocks** ($d=8$, four pairs). Angle 0 points right, and hands turn counter-clockwise; a hand's height is the sine. Move the position, then make the base smaller: which clocks change pace?

# %% [markdown]
# **A worked example.** Let $d=4$. Then $\omega_0=1$ and $\omega_1=10\,000^{-2/4}=0.01$. Position 2 gets
#
# $$\mathrm{PE}(2)=(\sin 2,\ \cos 2,\ \sin 0.02,\ \cos 0.02)=(0.9093,\ -0.4161,\ 0.0200,\ 0.9998),$$
#
# and indeed $0.9093^2+0.4161^2+0.0200^2+0.9998^2=2=\frac d2$.

# %% [markdown]
# ### Exercise 2.1 · Encode by hand
#
# **5 + 2 points · difficulty 2/5 · 30 + 20 minutes · numbers and text**
#
# *Why it matters:* use degrees, forget a 2 in the exponent or swap sine and cosine, and you get a plausible table and no error. After four rows by hand you will see such a mistake.
#
# Let $d=4$ and base 10,000. Compute $\mathrm{PE}(0)$, $\mathrm{PE}(1)$, $\mathrm{PE}(5)$ and $\mathrm{PE}(6)$, and the dot products $\mathrm{PE}(0)\cdot\mathrm{PE}(1)$, $\mathrm{PE}(5)\cdot\mathrm{PE}(6)$ and $\mathrm{PE}(0)\cdot\mathrm{PE}(5)$. Use a calculator, or `math.sin` and `math.cos`. Give **at least four significant digits** (0.07914 has four), and round only at the end.

# %% tags=["by-hand"] nbgrader={"grade_id": "encode_by_hand", "solution": true}
# Replace every None by a number, at least four significant digits. pe_5_2 is channel 2 of PE(5).
encode_by_hand = {
    "pe_0_0": None, "pe_0_1": None, "pe_0_2": None, "pe_0_3": None,  # PE(0)
    "pe_1_0": None, "pe_1_1": None, "pe_1_2": None, "pe_1_3": None,  # PE(1)
    "pe_5_0": None, "pe_5_1": None, "pe_5_2": None, "pe_5_3": None,  # PE(5)
    "pe_6_0": None, "pe_6_1": None, "pe_6_2": None, "pe_6_3": None,  # PE(6)
    "dot_0_1": None,  # PE(0) . PE(1)
    "dot_5_6": None,  # PE(5) . PE(6)
    "dot_0_5": None,  # PE(0) . PE(5)
}
### BEGIN SOLUTION
encode_by_hand |= {
    # sin p, cos p, sin 0.01p, cos 0.01p
    "pe_0_0": 0.0, "pe_0_1": 1.0, "pe_0_2": 0.0, "pe_0_3": 1.0,
    "pe_1_0": 0.841471, "pe_1_1": 0.540302, "pe_1_2": 0.00999983, "pe_1_3": 0.999950,
    "pe_5_0": -0.958924, "pe_5_1": 0.283662, "pe_5_2": 0.0499792, "pe_5_3": 0.998750,
    "pe_6_0": -0.279415, "pe_6_1": 0.960170, "pe_6_2": 0.0599640, "pe_6_3": 0.998201,
    "dot_0_1": 1.540252,  # cos 1 + cos 0.01
    "dot_5_6": 1.540252,  # the offset is 1 again
    "dot_0_5": 1.282412,  # cos 5 + cos 0.05
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Only two frequencies occur: 1 and 0.01. So $\mathrm{PE}(5)$ needs $\sin 5$, $\cos 5$, $\sin 0.05$ and $\cos 0.05$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Check yourself: the squares of the four channels of each vector add up to 2. And $\sin 5$ is negative, since 5 radians lie in the fourth quadrant.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Multiply channel by channel, then add. Two of the three products should agree to many digits. If they are only similar, one of your entries is off.
# </details>

# %% nbgrader={"grade_id": "encode_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, and at what is true of any encoding.
# Nineteen finite numbers, under the names given.
channels = [f"pe_{p}_{channel}" for p in (0, 1, 5, 6) for channel in range(4)]
numbers = lab.must_be_numbers(encode_by_hand, *channels, "dot_0_1", "dot_5_6", "dot_0_5")

# The squares of each encoding add up to d/2 = 2.
for p in (0, 1, 5, 6):
    squares = sum(numbers[f"pe_{p}_{channel}"] ** 2 for channel in range(4))
    assert abs(squares - 2) < 5e-3, f"the squares of the four channels of PE({p}) must add up to 2; yours add up to {squares:.4g}."

# Angles are in radians: 5 radians lie in the fourth quadrant.
assert numbers["pe_5_0"] < 0, (
    f"the sine of 5 radians is negative, and your pe_5_0 is {numbers['pe_5_0']:.4g}. Was it degrees, or the cosine?")

# Each product is the product of your own encodings.
for p, q in ((0, 1), (5, 6), (0, 5)):
    own = sum(numbers[f"pe_{p}_{channel}"] * numbers[f"pe_{q}_{channel}"] for channel in range(4))
    assert abs(numbers[f"dot_{p}_{q}"] - own) < 5e-3, (
        f"dot_{p}_{q} is not the product of your own PE({p}) and PE({q}): multiply channel by channel, then add.")
print("Nineteen numbers that fit together. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "encode_by_hand_tests", "grade": true, "points": 5}
# Hidden tests (5 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.encode_by_hand(encode_by_hand)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "products_explained_question", "locked": true}
# **Explain.** Two of your three products agree to all digits.
#
# 1. Prove it for every width: derive a formula for $\mathrm{PE}(p)\cdot\mathrm{PE}(q)$ that contains $p$ and $q$ only as $p-q$. You may use the addition theorem $\cos(a-b)=\cos a\cos b+\sin a\sin b$. Say where you use that sine and cosine of a pair have the same frequency.
# 2. Use it, for $d=4$ and without computing new sines: what are $\mathrm{PE}(7)\cdot\mathrm{PE}(7)$, $\mathrm{PE}(95)\cdot\mathrm{PE}(100)$ and $\mathrm{PE}(100)\cdot\mathrm{PE}(95)$? What do the last two say about the *direction* from one token to the other?
#
# Six to ten lines are enough.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. 1 point: $\mathrm{PE}(p)\cdot\mathrm{PE}(q)=\sum_t[\sin(p\omega_t)\sin(q\omega_t)+\cos(p\omega_t)\cos(q\omega_t)]=\sum_t\cos((p-q)\omega_t)$, with the remark that the theorem needs one frequency in both products of a pair. Half a point if the sum over pairs or the role of the common frequency is missing. No point for "because the offset is the same" alone.
# 2. 1 point: $\mathrm{PE}(7)\cdot\mathrm{PE}(7)=d/2=2$ (offset 0); the other two are equal, both $1.2824$ (offsets 5 and -5, as $\mathrm{PE}(0)\cdot\mathrm{PE}(5)$). Cosine is even, so the product does not tell left from right. Half a point if the remark on direction is missing or one value is wrong. A wrong $\mathrm{PE}(0)\cdot\mathrm{PE}(5)$ taken over from the numbers above costs nothing here.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "products_explained", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. Group the products by pairs. Pair $t$ contributes $\sin(p\omega_t)\sin(q\omega_t)+\cos(p\omega_t)\cos(q\omega_t)$. Both terms have the same $\omega_t$, so the addition theorem applies with $a=p\omega_t$, $b=q\omega_t$ and gives $\cos((p-q)\omega_t)$. With two different frequencies in one pair it would not apply. Summed over all pairs,
# $$\mathrm{PE}(p)\cdot\mathrm{PE}(q)=\sum_{t=0}^{d/2-1}\cos\big((p-q)\,\omega_t\big).$$
# $\mathrm{PE}(0)\cdot\mathrm{PE}(1)$ and $\mathrm{PE}(5)\cdot\mathrm{PE}(6)$ both have offset 1 up to the sign, so they are equal.
#
# 2. $\mathrm{PE}(7)\cdot\mathrm{PE}(7)$ has offset 0: every cosine is 1, the product is $d/2=2$. The other two have offsets $5$ and $-5$; cosine is even, so both are $\mathrm{PE}(0)\cdot\mathrm{PE}(5)=1.2824$. So the bare product does not know which of two tokens comes first.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint for part 1</summary>
#
# Write out the four products for $d=4$ and put those with the same $\omega$ together.
# </details>
#
# <details><summary>Hint for part 2</summary>
#
# Is cosine even or odd?
# </details>

# %% [markdown]
# ## 3 · From seconds to hours
#
# How much does a clock tell in a text of 512 tokens? That depends on how long its hand takes for one turn, its **wavelength** in positions:
#
# $$\lambda_t=\frac{2\pi}{\omega_t}=2\pi\cdot\text{base}^{2t/d}. \tag{3}$$
#
# The first wavelength is $\lambda_0=2\pi\approx6.283$, at any $d$ and any base.
#
# How long is the longest? The pairs are $t=0,\dots,\frac d2-1$, so the last exponent is $\frac{2(d/2-1)}{d}=1-\frac2d$. It never gets to 1. The paper says that the wavelengths run "from $2\pi$ to $10000\cdot2\pi$"; by its own formula the last one stops one step short of that. Compute how far short it is.

# %% [markdown]
# ### Exercise 2.2 · Wavelengths by hand
#
# **2 points · difficulty 1/5 · 10 minutes · numbers**
#
# *Why it matters:* compare a wavelength with the training length, and you know which angles the model has seen.
#
# Let $d=64$ and base 10,000. Give the wavelengths of the pairs 0, 8 and 16, counted from 0, and the longest of all, in positions. At least four significant digits.

# %% tags=["by-hand"] nbgrader={"grade_id": "wavelengths_by_hand", "solution": true}
# Replace every None by a number of positions, at least four significant digits.
wavelengths_by_hand = {
    "pair_0": None,
    "pair_8": None,
    "pair_16": None,
    "longest": None,
}
### BEGIN SOLUTION
wavelengths_by_hand |= {
    "pair_0": 6.28319,  # 2 pi
    "pair_8": 62.8319,  # the exponent is 16/64 = 1/4, and 10000 ** (1/4) = 10
    "pair_16": 628.319,  # the exponent is 1/2
    "longest": 47117.2,  # pair 31: 2 pi * 10000 ** (62/64)
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# $2t/d$ for pair 8 is $16/64$. What is the fourth root of 10,000?
# </details>
#
# <details><summary>Hint 2</summary>
#
# How many pairs are there, and what is the number of the last one if the first is 0?
# </details>

# %% nbgrader={"grade_id": "wavelengths_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
lab.must_be_numbers(wavelengths_by_hand, "pair_0", "pair_8", "pair_16", "longest")
print("Four finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "wavelengths_by_hand_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.wavelengths_by_hand(wavelengths_by_hand)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** A model of width 64 trains on texts of 512 tokens. When the text grows to 1,024 tokens, which hands enter a part of their circle that is new to them: the fast ones or the slow ones? Does the complete vector $\mathrm{PE}(p)$ ever come back to an earlier one?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.3: run this cell
turns = lambda length: length / (2 * math.pi * 10000 ** (torch.arange(32, dtype=torch.float64) / 32))
fig, ax = lab.figure("How much of its circle each hand sweeps (width 64)", height=3.4)
trained, longer = turns(512).clamp(max=1), turns(1024).clamp(max=1)
ax.bar(range(32), trained, color=lab.BLUE, label="seen in training: 512 tokens")
ax.bar(range(32), longer - trained, bottom=trained, color=lab.VERMILLION, hatch="///", edgecolor="white", linewidth=0,
       label="new in a text of 1,024 tokens")
ax.set(xlabel="pair t, from fast to slow", ylabel="share of the circle", ylim=(0, 1.05), xlim=(-0.7, 31.7))
ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "1/4", "1/2", "3/4", "all"])
ax.set_axisbelow(True)
ax.grid(axis="y")
ax.legend(loc="upper right")
plt.show()
lab.table(["length of the text", "hands that complete a turn", "hands that never do"],
          [[f"{n:,}", int((turns(n) >= 1).sum()), int((turns(n) < 1).sum())] for n in (512, 1024, 4096, 65536)])


# %% [markdown]
# **Figure 2.3. Angles never seen.** Solid: the part of its circle that each hand sweeps within 512 tokens. Hatched: what a text of twice the length adds.
#
# <details><summary>After you have run it</summary>
#
# The fast half of the hands has been all the way round. The *slow* ones enter new parts of theirs. These new angles are the usual explanation of why a model fails on longer texts. Keep this explanation in mind: section 6 tests it.
#
# The complete vector, by contrast, never comes back. The hand of pair 0 turns by one radian per position. Since $2\pi$ is irrational, it never points the same way at two whole positions. So no two positions share a vector, at any length.
# </details>

# %% [markdown]
# ## 4 · The encoding in code
#
# Now write the whole table. Mind three things.
#
# **Layout.** It is interleaved: sine, cosine, sine, cosine. Other code bases put all sines first and then all cosines, $[\sin|\cos]$. Neither layout is wrong: a network that learns its own weights can use any order of channels. But a trained checkpoint works only with the order it was trained with. **In this course the table is formula (2).**
#
# **One frequency per pair.** The exponent counts pairs. If it counts channels, the cosine gets a frequency of its own, and the property of 2.1 is gone.
#
# **Far positions.** A float32 number has 24 significant bits. It holds whole numbers up to 16 million exactly, so the first pair is safe. But it holds angles around 75,000 only to about 0.004 radians, and the sine cannot be more accurate than its angle. Your table must be accurate to 1e-5 up to position 100,000. So compute angles in `torch.float64`, and convert the finished sines and cosines to float32.

# %% [markdown]
# ### Exercise 2.3 · The table
#
# **4 points · difficulty 2/5 · 25 minutes · code**
#
# *Why it matters:* you will meet this function in many implementations of a Transformer, and you will have to tell whether it is right.

# %% nbgrader={"grade_id": "sinusoidal_positional_encoding", "solution": true}
def sinusoidal_positional_encoding(seq_len, d_model, base=10000.0):
    """The encodings of positions 0 ... seq_len-1: formula (2), sine and cosine interleaved.

    seq_len: int, at least 1
    d_model: even int; an odd one raises ValueError
    base:    float
    returns: (seq_len, d_model) float32, within 1e-5 of the exact value up to position 100,000; a new tensor on each call
    """
    ### BEGIN SOLUTION
    if d_model % 2:
        raise ValueError(f"sines and cosines come in pairs, so d_model must be even, got {d_model}")
    frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model/2,)
    angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * frequencies  # (seq_len, d_model/2)
    table = torch.empty(seq_len, d_model)
    table[:, 0::2] = angles.sin()  # rounded to float32 only here
    table[:, 1::2] = angles.cos()
    return table
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: the frequencies</summary>
#
# `torch.arange(0, d_model, 2, dtype=torch.float64)` gives 0, 2, 4, …: these are the $2t$. A float raised to a tensor works elementwise.
# </details>
#
# <details><summary>Hint 2: all angles at once</summary>
#
# A column of positions `(seq_len, 1)` times a row of frequencies `(d_model/2,)` is a table of angles `(seq_len, d_model/2)`.
# </details>
#
# <details><summary>Hint 3: the layout</summary>
#
# Write the sines into the slice `[:, 0::2]` of an empty table and the cosines into `[:, 1::2]`. Or stack them along a new last axis and flatten.
# </details>

# %% nbgrader={"grade_id": "sinusoidal_positional_encoding_check", "grade": true, "points": 0}
# Visible check (0 points). What it claims, in order:
pe = sinusoidal_positional_encoding(7, 4)
numbers = lambda row: ", ".join(f"{float(value):.4g}" for value in row)

# One float32 row per position.
lab.must_be_a_tensor(pe)
assert tuple(pe.shape) == (7, 4), f"the shape is {tuple(pe.shape)}; 7 positions of width 4 need (7, 4)."
assert pe.dtype == torch.float32, f"the dtype is {pe.dtype}; convert to float32 at the very end."

# Position 0 comes first, sine on even channels, cosine on odd ones.
assert torch.allclose(pe[0], torch.tensor([0.0, 1, 0, 1]), atol=1e-6), (
    f"position 0 must be (0, 1, 0, 1): sine on even channels, cosine on odd ones. Yours is ({numbers(pe[0])}).")

# The squares of each row add up to d/2 = 2.
worst = max((pe**2).sum(1).tolist(), key=lambda squares: abs(squares - 2))
assert abs(worst - 2) < 1e-4, (
    f"the squares of each row must add up to 2, and one of yours adds up to {worst:.5g}: do sine and cosine of a pair share one angle?")

# Angles are in radians, and position 2 is the worked example.
assert abs(float(pe[2, 0]) - math.sin(math.radians(2))) > 1e-3, "position 2 begins with the sine of 2 degrees: angles are in radians."
assert torch.allclose(pe[2], torch.tensor([0.9093, -0.4161, 0.0200, 0.9998]), atol=2e-4), (
    f"the worked example has PE(2) = (0.9093, -0.4161, 0.0200, 0.9998); yours is ({numbers(pe[2])}). Is the exponent -2t/d, "
    "with t the number of the pair?")

# The argument `base` counts.
assert abs(float(sinusoidal_positional_encoding(2, 4, base=100.0)[1, 2]) - math.sin(0.1)) < 1e-5, (
    "with base 100 and d_model 4 the second frequency is 0.1: is `base` used?")

# Position 99,990 is accurate to 1e-5.
far = sinusoidal_positional_encoding(99_991, 4)
assert len(far) == 99_991, f"seq_len 99,991 gives a table of {len(far):,} rows."
far = far[99_990]
wanted = [f(99_990 * frequency) for frequency in (1.0, 0.01) for f in (math.sin, math.cos)]
error = max(abs(float(a) - b) for a, b in zip(far, wanted))
assert error < 1e-5, (
    f"at position 99,990 your values are off by up to {error:.1g}: make positions and frequencies float64, multiply, take "
    "sine and cosine, and only then convert to float32.")

# An odd width is refused.
assert lab.raises(ValueError, sinusoidal_positional_encoding, 3, 5), (
    "an odd width leaves one sine without its cosine: raise ValueError.")
print("Looks right. The hidden tests try other widths and bases, and every channel far out.")

# %% nbgrader={"grade_id": "sinusoidal_positional_encoding_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.sinusoidal_positional_encoding(sinusoidal_positional_encoding)
### END HIDDEN TESTS

# %% [markdown]
# *Which form will you meet?* A common one is this ([`word_language_model/model.py`](https://github.com/pytorch/examples/blob/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/model.py) in pytorch/examples):
#
# ```python
# div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
# pe[:, 0::2] = torch.sin(position * div_term)
# pe[:, 1::2] = torch.cos(position * div_term)
# ```
#
# It is formula (2), since $e^{-2t\ln(10\,000)/d}=10\,000^{-2t/d}$, with float32 angles. The authors' own code, [`get_timing_signal_1d`](https://github.com/tensorflow/tensor2tensor/blob/75b75f2e2281101b9b3637e14ef519afd6a11b68/tensor2tensor/layers/common_attention.py), is *not* formula (2). It concatenates sines and cosines, and its exponent is $t$ divided by $\frac d2-1$, not by $\frac d2$. So its last wavelength is exactly $2\pi\cdot10\,000$. Whisper's encoder still has that form ([`sinusoids`](https://github.com/openai/whisper/blob/fdf63e51dc3089e10d72fd25ac04ffe22f86543e/whisper/model.py)), and so has the time embedding of diffusion models (`get_timestep_embedding` in Ho et al.'s [`nn.py`](https://github.com/hojonathanho/diffusion/blob/c46129977747dad96f91709bcb3f0f7480686004/diffusion_tf/nn.py), 2020).

# %% [markdown] tags=["prediction"]
# **Predict.** Draw the table with positions from left to right and channels from top to bottom, over 64 positions. What will the bottom rows look like: waves or something else?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.4: run this cell
digits = torch.stack([(torch.arange(64) // 2**b) % 2 for b in range(6)])
pe = sinusoidal_positional_encoding(64, 32)
fig, (top, bottom) = lab.figure("A binary counter, and its round relative", nrows=2, height=6.2, width=8.6,
                                height_ratios=(6, 17), sharex=True)
top.imshow(digits, cmap="Greys", vmin=0, vmax=1.6, aspect="auto", interpolation="nearest")
top.set(title="binary digits of the position (dark: 1)", ylabel="digit")
top.set_yticks(range(6), ["0 (fast)", "1", "2", "3", "4", "5 (slow)"])
image = lab.heatmap(bottom, pe.T, "sinusoidal encoding, width 32", 1, "position", "channel")
bottom.set_aspect("auto")
labelled = (0, 2, 4, 8, 12, 16, 20, 24, 30)  # the even channel of a pair; the label stands between its two rows
bottom.set_yticks([c + 0.5 for c in labelled], [f"{c} sin, {c + 1} cos" for c in labelled])
fig.colorbar(image, ax=bottom, shrink=0.7).ax.set_title("value", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# **Figure 2.4. Two counters.** Above: six binary digits over 64 positions. Below: the encoding, two channels per pair. In both the frequency falls from top to bottom.
#
# <details><summary>After you have run it</summary>
#
# Two channels at a time share one frequency: 0 and 1 have the same stripes, shifted by a quarter of a wave. From about channel 20 on, the stripes run along the position axis: cosines hardly leave 1 and sines hardly leave 0. Over 64 positions these hands barely move. In a text this short, a third of the encoding is nearly constant.
# </details>

# %% [markdown] tags=["prediction"]
# **Predict.** Someone computes the same table with all angles in float32. At which position does the first error above 1e-5 appear, roughly: at 3, at 300 or at 30,000?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.5: run this cell
exact = sinusoidal_positional_encoding(100_001, 64)
single = torch.arange(100_001, dtype=torch.float32)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)
single = torch.stack((single.sin(), single.cos()), dim=-1).flatten(1)
worst = (single - exact).abs().amax(1).cummax(0).values
marks = torch.tensor([10, 100, 1000, 10_000, 100_000])
fig, ax = lab.figure("Worst error of a table with float32 angles (width 64)", height=3.2)
ax.loglog(range(1, 100_001), worst[1:].clamp(min=1e-8), color=lab.VERMILLION, linestyle="-", label="angles in float32")
ax.axhline(1e-5, color=lab.GREY, linewidth=1.2, linestyle="--")
ax.text(1.2, 1.4e-5, "allowed here: 1e-5", fontsize=9, color="#444444")
ax.set(xlabel="position", ylabel="error, largest so far over all channels", xlim=(1, 1e5), ylim=(1e-8, 1e-1))
ax.grid(axis="y")
plt.show()
lab.table(["up to position", "largest error"], [[f"{int(p):,}", f"{float(worst[p]):.0e}"] for p in marks])


# %% [markdown]
# **Figure 2.5. What float32 angles cost.** The largest error so far, against the position, on two logarithmic axes. Dashed: what exercise 2.3 allows.
#
# <details><summary>After you have run it</summary>
#
# The first error above the line comes after some 300 tokens. Errors grow in proportion to the position, since float32 keeps a fixed number of *significant* digits. Float64 costs nothing here: you compute the table once. Week 3 meets the same trap in bfloat16, where it is a disaster.
# </details>

# %% [markdown]
# ## 5 · Moving by $k$ is one matrix
#
# In 2.1 the *product* of two encodings depended only on the offset. There is more: you can *move* an encoding without knowing its position. Take one pair and the addition theorems
#
# $$\sin(a+b)=\sin a\cos b+\cos a\sin b,\qquad \cos(a+b)=\cos a\cos b-\sin a\sin b .$$
#
# With $a=p\,\omega$ (where you are) and $b=k\,\omega$ (how far you go) they read
#
# $$\begin{pmatrix}\sin((p+k)\omega)\\ \cos((p+k)\omega)\end{pmatrix}=\begin{pmatrix}\cos k\omega & \sin k\omega\\ -\sin k\omega & \cos k\omega\end{pmatrix}\begin{pmatrix}\sin p\,\omega\\ \cos p\,\omega\end{pmatrix}. \tag{4}$$
#
# The matrix contains $k$ and not $p$. The same matrix moves position 0 to $k$ and position 5,000 to $5{,}000+k$. It is a rotation; the minus sign is below the diagonal because sine comes first in a pair. Put one such block per pair on the diagonal of a $d\times d$ matrix $M_k$; then
#
# $$\mathrm{PE}(p+k)=M_k\,\mathrm{PE}(p)\qquad\text{for every }p. \tag{5}$$
#
# Vaswani et al. give two reasons for sinusoids (section 3.5), both worded as hopes. First, by (5), a model might easily learn to attend by relative position. Second, it might extrapolate to texts longer than those it was trained on. This section shows what is possible. The next one tests what training finds.

# %% [markdown]
# ### Exercise 2.4 · The shift matrix
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* RoPE is built on such rotations. Next week you turn queries and keys with them, and add nothing.
#
# The offset may be any whole number: zero, negative (a move to the left), or large.

# %% nbgrader={"grade_id": "shift_matrix", "solution": true}
def shift_matrix(offset, d_model, base=10000.0):
    """The matrix M with PE[p + offset] = M @ PE[p] for every position p (column vectors, interleaved layout).

    offset:  any int, negative ones too
    d_model: even int; an odd one raises ValueError
    base:    float
    returns: (d_model, d_model) float32, within 1e-5 of the exact value up to offsets of 100,000; a new tensor on each call
    """
    ### BEGIN SOLUTION
    if d_model % 2:
        raise ValueError(f"sines and cosines come in pairs, so d_model must be even, got {d_model}")
    M = torch.zeros(d_model, d_model)
    for channel in range(0, d_model, 2):
        angle = offset * base ** (-channel / d_model)  # a Python float has 53 bits
        c, s = math.cos(angle), math.sin(angle)
        M[channel : channel + 2, channel : channel + 2] = torch.tensor([[c, s], [-s, c]])
    return M
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start from a matrix of zeros. Pair $t$ owns the rows and columns $2t$ and $2t+1$. Four numbers go where they cross.
# </details>
#
# <details><summary>Hint 2</summary>
#
# To see whether your matrix is transposed, take $d=2$ and $p=0$: $M_1\,(0,1)^\top$ must be $(\sin1,\cos1)^\top$, so the right column of $M_1$ is $(\sin1,\cos1)$.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Negative offsets need no special case: $\cos$ is even, $\sin$ is odd, and the formula does the rest.
# </details>

# %% nbgrader={"grade_id": "shift_matrix_check", "grade": true, "points": 0}
# Visible check (0 points). It does not use your 2.3: rows(...) writes out PE for width 4 and base 100. What it claims, in order:
rows = lambda *positions: torch.tensor([[math.sin(p), math.cos(p), math.sin(p / 10), math.cos(p / 10)] for p in positions])

# A float32 square, made of 2x2 blocks on the diagonal.
M = shift_matrix(3, 8)
lab.must_be_a_tensor(M)
assert tuple(M.shape) == (8, 8), f"the shape is {tuple(M.shape)}; width 8 needs (8, 8)."
assert M.dtype == torch.float32, f"the dtype is {M.dtype}; float32 is needed."
off_blocks = M * (1 - torch.block_diag(*[torch.ones(2, 2)] * 4))
assert float(off_blocks.abs().max()) < 1e-6, (
    "an entry outside the 2x2 blocks on the diagonal is not zero: pairs do not mix.")

# A move by 0 is the identity.
assert torch.allclose(shift_matrix(0, 8), torch.eye(8), atol=1e-6), "a move by 0 is the identity matrix; yours is not."

# M moves every position three to the right; with base 100 the second frequency is 0.1.
small = shift_matrix(3, 4, base=100.0)
here, there = rows(0, 2, 7, 30), rows(3, 5, 10, 33)
assert torch.allclose((here @ small.T)[:, :2], there[:, :2], atol=1e-4) or not torch.allclose(
    (here @ small)[:, :2], there[:, :2], atol=1e-4), (
    "your block moves three positions to the left: in equation (4) the minus sign stands below the diagonal.")
assert torch.allclose((here @ small.T)[:, :2], there[:, :2], atol=1e-4), (
    "in the first pair, M @ PE[p] is not PE[p + 3]. Look at equation (4): which function stands where, and do both rows "
    "of a pair have the same frequency?")
assert torch.allclose(here @ small.T, there, atol=1e-4), (
    "the first pair is right, the second is not: with width 4 and base 100 its frequency is 0.1. Is `base` used, and is the "
    "exponent -2t/d?")

# Left undoes right.
assert torch.allclose(shift_matrix(-3, 8) @ M, torch.eye(8), atol=1e-5), (
    "three positions to the left and three to the right must cancel: are negative offsets right?")

# Far offsets are accurate to 1e-5.
error = abs(float(shift_matrix(-99_991, 8)[2, 2]) - math.cos(99_991 * 0.1))
assert error < 1e-5, (
    f"width 8, offset -99,991: an entry of the second pair is off by {error:.1g}. Is its frequency 0.1, and the angle computed "
    "in float64 or with Python floats?")

# An odd width is refused.
assert lab.raises(ValueError, shift_matrix, 1, 5), "an odd d_model must raise ValueError."
print("Looks right. The hidden tests try other offsets, widths and bases.")

# %% nbgrader={"grade_id": "shift_matrix_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.shift_matrix(shift_matrix)
### END HIDDEN TESTS

# %% tags=["experiment"]
lab.moving_shift(shift_matrix, d_model=16, pair=1, p=2, k=3)


# %% [markdown]
# **Figure 2.6. One block of your matrix turns one hand.** If you move $p$, the four numbers stay the same. If you move $k$, they change, and with them the angle by which the hand turns.

# %% [markdown]
# ### Experiment: a head built by hand
#
# Let a head compute its query from the position as $q_i=M_{-3}\,\mathrm{PE}(i)=\mathrm{PE}(i-3)$ and its key as $k_j=\mathrm{PE}(j)$. The score is $\mathrm{PE}(i-3)\cdot\mathrm{PE}(j)=\sum_t\cos((i-3-j)\,\omega_t)$. It is largest, $d/2$, where all cosines are 1: at $j=i-3$. So $W_q=M_{-3}$ points the head three tokens back. (The scores are multiplied by 8, not divided by $\sqrt d=8$: neighbouring scores differ too little for a sharp softmax. A trained head can learn larger matrices.)

# %% [markdown] tags=["prediction"]
# **Predict.** How much of its attention does the head put on the token three positions back, at positions 3 to 127? And at 50,000 to 50,127, beyond even the longest wavelength?
#
# *Your prediction:*

# %% tags=["experiment"]
def look_back_weights(first, count, d_model=64):
    """Attention of the hand-built head on positions first ... first + count - 1: (count, count)."""
    pe = sinusoidal_positional_encoding(first + count, d_model)[first:]
    queries, keys = pe @ shift_matrix(-3, d_model).T, pe
    return (8 * queries @ keys.T).softmax(-1)


# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.7: run this cell
fig, axes = lab.figure("A head built from the shift matrix", ncols=3, height=4.15)
entries = lab.heatmap(axes[0], shift_matrix(-3, 16), "the matrix $M_{-3}$,\nwidth 16", 1, "column", "row")
for ax, first in zip(axes[1:], (0, 50_000)):
    weights = look_back_weights(first, 20)
    picture = ax.imshow(weights, cmap=lab.SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest",
                        extent=(first - 0.5, first + 19.5, first + 19.5, first - 0.5))
    ax.set(title=f"attention at\n{first:,} … {first + 19:,}", xlabel="key position j", ylabel="query position i")
    ax.set_xticks([first, first + 10], [f"{first:,}", f"{first + 10:,}"])
    ax.set_yticks([first, first + 5, first + 10, first + 15], [f"{first + k:,}" for k in (0, 5, 10, 15)])
fig.colorbar(entries, ax=axes[0], location="bottom", label="entry", ticks=[-1, 0, 1])
fig.colorbar(picture, ax=list(axes[1:]), location="bottom", label="attention weight", shrink=0.6)
plt.show()
lab.table(["positions", "weight three positions back, smallest"],
          [[f"{first + 3:,} to {first + 127:,}", f"{float(look_back_weights(first, 128).diagonal(-3).min()):.3f}"]
           for first in (0, 1000, 50_000)])


# %% [markdown]
# **Figure 2.7. A head without training.** Left: the matrix, blue for $-1$, red for $+1$. Fast pairs turn far (top left), slow pairs hardly at all. Middle and right: the attention weights. (The first three queries have no key three positions back; they attend to the first key instead.)
#
# <details><summary>After you have run it</summary>
#
# The head works at 50,000 as it does at 0. So absolute sinusoids can express *relative* behaviour that extrapolates. Whether training **finds** this solution is another question.
# </details>

# %% [markdown]
# ## 6 · What training finds
#
# The rival of the sinusoids is a table of `max_len` rows, one trainable vector per position, added to the tokens in the same way. Gehring et al. (2017) used such a table in a convolutional model; BERT and GPT-2 use one. Vaswani et al. also tried one and found "nearly identical" results in translation (section 3.5 and Table 3, row E). A table needs no waves, but it has an end.
#
# You will hear that "beyond `max_len` learned embeddings are random". This mixes up two things:
#
# - a row that exists but was **never trained** still has its starting value (weight decay, if any, shrinks it);
# - a row **past the end** does not exist. The code must raise an error.
#
# With a checkpoint, also check which row position 0 uses. RoBERTa begins at row 2; BART and OPT have two more rows than positions (transformers 5.23: [`RobertaEmbeddings`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/roberta/modeling_roberta.py), [`BartLearnedPositionalEmbedding`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/bart/modeling_bart.py), [`OPTLearnedPositionalEmbedding`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/opt/modeling_opt.py)).

# %% [markdown]
# ### Exercise 2.5 · A learned table
#
# **2 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* it takes three lines, and two classic mistakes hide in them. The optimizer never sees the table, or a table of one row takes a text of any length.

# %% nbgrader={"grade_id": "LearnedPositionalEmbedding", "solution": true}
class LearnedPositionalEmbedding(nn.Module):
    """One trainable row per position, added to the input. Exactly one trainable tensor, (max_len, d_model), with any
    starting values.

    max_len: number of positions in the table
    d_model: width of the model
    """

    def __init__(self, max_len, d_model):
        super().__init__()
        ### BEGIN SOLUTION
        self.table = nn.Parameter(0.02 * torch.randn(max_len, d_model))
        ### END SOLUTION

    def forward(self, x):
        """x: (batch, seq_len, d_model). Row p of the table is added to x[:, p], both as they are, unscaled.

        returns: a new tensor with the shape and dtype of x (in half precision the last place may depend on where you
                 round); raises an error (any kind) if seq_len is more than max_len
        """
        ### BEGIN SOLUTION
        seq_len, max_len = x.shape[1], len(self.table)
        if seq_len > max_len:
            raise ValueError(f"the table ends at {max_len} positions, the text has {seq_len}")
        return (x + self.table[:seq_len]).to(x.dtype)
        ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `nn.Parameter(tensor)` assigned to `self.something` is all it takes to be trainable. `nn.Embedding` is also fine; it holds one such tensor.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `(batch, seq_len, d_model) + (seq_len, d_model)` broadcasts over the batch. A slice past the end of a tensor raises no error in Python: it is just shorter.
# </details>

# %% nbgrader={"grade_id": "LearnedPositionalEmbedding_check", "grade": true, "points": 0}
# Visible check (0 points). What it claims, in order:
layer = LearnedPositionalEmbedding(6, 4)

# Exactly one trainable tensor of 6 times 4 numbers.
trainable = [parameter for parameter in layer.parameters() if parameter.requires_grad]
assert trainable, "your layer has no trainable tensor: the optimizer does not see a plain tensor; it sees an nn.Parameter."
assert len(trainable) == 1, f"the table is the only trainable tensor; yours has {len(trainable)}."
assert trainable[0].numel() == 24, (
    f"6 positions of width 4 make a table of 24 numbers, yours has {trainable[0].numel()}.")

x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    # The output is as large as x, and x stays as it was.
    before = x.clone()
    out = layer(x)
    assert torch.equal(x, before), "your layer changed x itself: work on a new tensor."
    assert torch.equal(layer(x), out), "two calls with the same x differ: is there a Dropout in your layer?"
    assert tuple(out.shape) == (3, 5, 4), f"the shape is {tuple(out.shape)}; it must be that of x, (3, 5, 4)."

    # To an input of zeros, position p gets row p, in every sequence. (The table is set to 1, 2, 3, ..., row by row.)
    state = layer.state_dict()
    (name, old), = layer.named_parameters()
    numbered = 1 + torch.arange(24.0)
    state[name] = numbered.reshape(6, 4).T.clone() if tuple(old.shape) == (4, 6) else numbered.reshape(old.shape)
    layer.load_state_dict(state)
    table = layer(torch.zeros(3, 5, 4))
    assert torch.allclose(table[0], table[2], atol=1e-5), "every sequence of the batch gets the same rows."
    assert torch.allclose(table[0, 1] - table[0, 0], torch.full((4,), 4.0), atol=1e-5), (
        f"with a table of 1, 2, 3, ... row 1 is row 0 plus 4. Position 0 gets {table[0, 0].tolist()} and position 1 "
        f"{table[0, 1].tolist()}: position p must get row p.")
    assert torch.allclose(table[0, 0], torch.tensor([1.0, 2, 3, 4]), atol=1e-5), (
        f"position 0 must get row 0, (1, 2, 3, 4), as it is; it gets {table[0, 0].tolist()}.")

    # The input is added as it is.
    ratio = float(((layer(x) - table) / before).mean())
    assert torch.equal(x, before), "your layer changed x itself: work on a new tensor."
    assert torch.allclose(layer(x) - table, x, atol=1e-5), (
        f"without the table's rows your output is about {ratio:.3g} times x: x must be added as it is, unscaled.")

    # The dtype of x is kept.
    assert layer(x.to(torch.bfloat16)).dtype == torch.bfloat16, (
        "the output must have the dtype of x, here bfloat16; a float32 table makes the sum float32.")

    # A text as long as the table fits, a longer one raises an error.
    assert not lab.raises(Exception, layer, torch.zeros(1, 6, 4)), "6 tokens and 6 rows: this must not raise an error."
    assert lab.raises(Exception, layer, torch.zeros(1, 7, 4)), "7 tokens and 6 rows: this must raise an error."
    assert lab.raises(Exception, LearnedPositionalEmbedding(1, 4), torch.zeros(1, 2, 4)), (
        "2 tokens and a table of one row: broadcasting repeats the row in silence. Compare the lengths yourself.")

# It computes where its inputs are, on any device.
lab.follows_the_device(lambda x: LearnedPositionalEmbedding(8, 4).to("simulated")(x), torch.ones(2, 5, 4))
print("Looks right. The hidden tests compare values for other shapes and dtypes.")

# %% nbgrader={"grade_id": "LearnedPositionalEmbedding_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.LearnedPositionalEmbedding(LearnedPositionalEmbedding)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: does training find the relative solution?
#
# The texts are random tokens from an alphabet of eight. At each position a model must name the token **three positions back**. The model has one causal attention layer of width 64, trains on texts of 32 tokens, and is tested on 128. There are three arms: your sinusoids, your learned table of 128 rows, and weights written by hand.
#
# **The hand-built model** is the head of Figure 2.7 with tokens. Its queries and keys read the 28 fastest pairs. The eight slowest channels carry the token, one channel per letter, loud enough to drown the encoding there. The read-out looks at these eight.

# %% tags=["experiment"]
class LookBack(nn.Module):
    def __init__(self, add_positions):
        super().__init__()
        self.embed, self.add_positions, self.read = nn.Embedding(8, 64), add_positions, nn.Linear(64, 8)
        self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, tokens, mask=None):
        x = self.add_positions(self.embed(tokens))
        return self.read(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), attn_mask=mask, is_causal=mask is None))

@torch.no_grad()
def built_by_hand(add_positions):
    model, fast, letters = LookBack(add_positions), torch.eye(64), torch.eye(64)[56:]  # letters: (8, 64), the slowest channels
    fast[56:] = 0
    for weight, value in ((model.embed.weight, 8 * letters), (model.q.weight, 64 * shift_matrix(-3, 64) @ fast), (model.k.weight, fast),
                          (model.v.weight, torch.eye(64)), (model.read.weight, letters), (model.read.bias, torch.zeros(8))):
        weight.copy_(value)
    return model


# %% [markdown] tags=["prediction"]
# **Predict.** Within 32 tokens both trained models get the task right. Beyond that, how accurate will each of the three be on average: hand-built weights, sinusoids, learned table? (Blind guessing gives 1/8.)
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.8: run this cell
# Trains two small models five times each; budget: 30 seconds.
def texts(batch, length, generator):
    tokens = torch.randint(0, 8, (batch, length), generator=generator)
    return tokens, tokens.roll(3, dims=1)  # the answer at a position is the token three before it

@torch.no_grad()
def rows_of(model):
    """What is added to tokens that are zero: (128, 64), one row per position."""
    return model.add_positions(torch.zeros(1, 128, 64))[0].clone()

@torch.no_grad()
def accuracy(model, mask=None):
    """At each of 128 positions, over 256 texts."""
    tokens, answers = texts(256, 128, torch.Generator().manual_seed(100))
    return (model(tokens, mask).argmax(-1) == answers).float().mean(0)

def train(make_positions, seed, steps=300):
    torch.manual_seed(seed)
    model = LookBack(make_positions())
    before = rows_of(model)
    generator, optimizer = torch.Generator().manual_seed(seed), torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens, answers = texts(32, 32, generator)
        loss = F.cross_entropy(model(tokens)[:, 3:].flatten(0, 1), answers[:, 3:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, accuracy(model), before

threads = torch.get_num_threads()
torch.set_num_threads(1)
table = sinusoidal_positional_encoding(128, 64)
runs = {"sinusoids": [train(lambda: lambda x: x + table[: x.shape[1]], seed) for seed in range(5)],
        "learned table": [train(lambda: LearnedPositionalEmbedding(128, 64), seed) for seed in range(5)]}
torch.set_num_threads(threads)
by_hand_accuracy = accuracy(built_by_hand(lambda x: x + table[: x.shape[1]]))

fig, ax = lab.figure("Name the token three positions back: trained on 32 tokens, tested on 128", height=4.0)
ax.axvspan(0, 31, color="#F0F0F0", zorder=0)
ax.text(4, 1.05, "trained here", fontsize=9, color="#444444")
ax.plot(range(3, 128), by_hand_accuracy[3:], color=lab.GREEN, linestyle="-.", label="hand-built, not trained")
def summary(curves):
    """Accuracy within the training length and beyond it; and of the runs beyond it, the lowest and the highest."""
    beyond = curves[:, 29:].mean(1)
    return [f"{float(number):.2f}" for number in (curves[:, :29].mean(), beyond.mean(), beyond.min(), beyond.max())]

rows = [["hand-built, not trained", *summary(by_hand_accuracy[None, 3:])]]
for (name, results), colour, style in zip(runs.items(), (lab.BLUE, lab.VERMILLION), ("-", "--")):
    curves = torch.stack([accuracies for _, accuracies, _ in results])[:, 3:]
    ax.fill_between(range(3, 128), curves.amin(0), curves.amax(0), color=colour, alpha=0.2, linewidth=0)
    ax.plot(range(3, 128), curves.mean(0), color=colour, linestyle=style, linewidth=1.6, label=f"{name}, trained")
    rows.append([name, *summary(curves)])
ax.axhline(1 / 8, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(127, 0.03, "dotted: blind guess, 1/8", ha="right", fontsize=9, color="#444444")
ax.set(xlabel="position in the text (tokens)", ylabel="accuracy", ylim=(0, 1.15), xlim=(0, 127))
fig.legend(loc="outside lower center", ncols=3)
plt.show()
lab.table(["mean accuracy", "positions 3 to 31", "32 to 127", "lowest run", "highest run"], rows)
moved = torch.stack([rows_of(model) - before for model, _, before in runs["learned table"]]).norm(dim=-1) > 0
print()
lab.table(["learned table, five runs", "of rows 0 to 31", "of rows 32 to 127"],
          [["rows that training has moved", *(f"{int(part.sum())} of {part.numel()}" for part in (moved[:, :32], moved[:, 32:]))]])

# %% [markdown]
# **Figure 2.8. Beyond the training length.** Accuracy at each position. Trained: the mean of five runs; bands: from the worst to the best. Grey: the training length.
#
# <details><summary>After you have run it</summary>
#
# Within the training length both trained models are perfect. Beyond it the learned table falls to blind guessing at once. Its rows 32 to 127 have not moved. The sinusoids are in between: 0.44 to 0.53 in five runs, averaged over positions 32 to 127. The model could have learned the hand-built weights, but other weights fit 32 positions just as well. Not everything that can be expressed is learned: the hope of extrapolating fails here. Press et al. (2022, Figure 1) report something similar for language models: with sinusoids, perplexity rises as texts grow past the training length.
# </details>

# %% [markdown]
# ### Two suspects, one table
#
# Why do models fail on longer texts? The usual answer is Figure 2.3: slow hands reach angles that training has never shown. But a longer text has more *keys*, too. So two things are new. Change one at a time, in the trained models, without training them again.
#
# - **Familiar positions, all keys.** Put each query beyond 31 at position 31, and the tokens before it at 30, 29, …, 0. All earlier tokens share position 0. Every token is there, and no position is new.
# - **New positions, 32 keys.** Leave every token at its position, but show each query only 32 keys: the right one and 31 others, drawn at random from all keys up to the query.
#
# And are the *slow* hands to blame? Train five more models with only the six pairs whose wavelength is at most 32. In training each of these hands goes all the way round.

# %% [markdown] tags=["prediction"]
# **Predict** the accuracy at positions 32 to 127. (Figure 2.8 has shown the entry at the lower right.) Then predict the row "new positions" for six fast pairs.
#
# | all 32 pairs | 32 keys | all keys |
# |---|---|---|
# | familiar positions | | |
# | new positions | | |
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# For the next cell: run this cell
# Trains one small model five times; budget: 15 seconds.
fast = (2 * math.pi * 10000 ** (torch.arange(32) / 32) <= 32).repeat_interleave(2)  # the channels of six pairs
torch.set_num_threads(1)
arms = {"all 32 pairs": (table, [model for model, _, _ in runs["sinusoids"]]),
        "6 fast pairs": (table * fast, [train(lambda: lambda x: x + (table * fast)[: x.shape[1]], seed)[0] for seed in range(5)])}
at = torch.arange(128)
back = at[:, None] - at  # how many positions a key lies behind its query
luck = torch.rand(256, 128, 128, generator=torch.Generator().manual_seed(5)).masked_fill(back < 0, -1).masked_fill(back == 3, 2)
drawn = torch.zeros(256, 128, 128, dtype=torch.bool).scatter(-1, luck.topk(32).indices, True) & (back >= 0)

@torch.no_grad()
def accuracy_at(pe, model, query_at, key_at, visible):
    """Over positions 32 to 127; query_at: (128,) positions of the queries, key_at: (128, 128) of each one's keys."""
    tokens, answers = texts(256, 128, torch.Generator().manual_seed(100))
    x = model.embed(tokens)
    q = model.q(x + pe[query_at])
    # Keys and values are linear in token + position, and here a position depends on the query: add the two parts apart.
    scores = q @ model.k(x).mT + torch.einsum("bic,ijc->bij", q, model.k(pe)[key_at])
    weights = (scores / 8).masked_fill(~visible, -math.inf).softmax(-1)
    mixture = weights @ model.v(x) + torch.einsum("bij,ijc->bic", weights, model.v(pe)[key_at])
    return float((model.read(mixture).argmax(-1) == answers)[:, 32:].float().mean())


# %% tags=["experiment"]
query_at = at.clamp(max=31)
familiar = query_at, (query_at[:, None] - back).clamp(0, 31)
new = at, at.expand(128, 128)
few, everything = drawn, back >= 0
results = {(pairs, name, keys): [accuracy_at(pe, model, *places, visible) for model in models]
           for pairs, (pe, models) in arms.items()
           for name, places in (("familiar positions", familiar), ("new positions", new))
           for keys, visible in (("32 keys", few), ("all keys", everything))}
lab.table(["mean accuracy of five models", "32 keys", "all keys"],
          [[f"{pairs}, {name}", *(f"{np.mean(results[pairs, name, keys]):.2f}" for keys in ("32 keys", "all keys"))]
           for pairs in arms for name in ("familiar positions", "new positions")])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.9: run this cell
latest = {n: (back >= 0) & (back < n) for n in (4, 8, 16, 32, 64, 128)}
fig, (left, right) = lab.figure("Beyond the training length: new positions, and more keys", ncols=2, height=3.8, sharey=True,
                                width_ratios=(2, 3))
columns = [(name, keys) for name in ("familiar positions", "new positions") for keys in ("32 keys", "all keys")]
for shift, (pairs, (_, models)), colour, style, marker in zip((-0.15, 0.15), arms.items(), (lab.BLUE, lab.GREEN), ("-", "--"), "os"):
    for number, column in enumerate(columns):
        left.plot(number + shift + np.linspace(-0.1, 0.1, 5), results[pairs, *column], linestyle="none", marker=marker,
                  markersize=4, color=colour)
    by_keys = np.array([[float(accuracy(model, mask)[32:].mean()) for mask in latest.values()] for model in models])
    right.plot(range(6), by_keys.mean(0), color=colour, linestyle=style, label=pairs)
    for run in by_keys:
        right.plot(range(6), run, color=colour, linestyle="none", marker=marker, markersize=3.5)
torch.set_num_threads(threads)
for ax in (left, right):
    ax.axhline(1 / 8, color=lab.GREY, linewidth=1, linestyle=":")
    ax.grid(axis="y")
left.text(-0.4, 0.135, "blind guess, 1/8", fontsize=9, color="#444444")
left.set(title="the four conditions", ylabel="accuracy", ylim=(0, 1.05), xlim=(-0.5, 3.5))
left.set_xticks(range(4), ["familiar,\n32 keys", "familiar,\nall keys", "new,\n32 keys", "new,\nall keys"], fontsize=8)
right.set(title="new positions, only the latest keys", xlabel="keys that each query sees")
right.set_xticks(range(6), ["4", "8", "16", "32", "64", "all"])
right.legend(loc="lower left", bbox_to_anchor=(0, 0.14))
plt.show()


# %% [markdown]
# **Figure 2.9. Two suspects.** Positions 32 to 127 of 128 tokens. Circles, solid: all 32 pairs. Squares, dashed: six fast pairs. Each mark is one of five training runs. Left: the four conditions. Right: new positions, and each query sees the latest keys only.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# - **More keys alone do no harm unless they crowd the right one.** With the query at 31 all keys, up to 128, are as good as 32: the accuracy is 1.00. With every query at 4, all keys but four share position 0, right beside the one it needs. Then the accuracy is 0.36, from 0.30 to 0.42.
# - **New positions do harm, and the more keys a query there sees, the more.** Over five seeds, all 32 pairs give 0.61 to 0.71 with 32 keys and 0.44 to 0.53 with all. With only the latest 4 keys the accuracy is 0.99, with the latest 32 it is 0.69, with all it is 0.49.
# - **Slowness as such is not the cause.** The hands of the six fast pairs have been all the way round in training. With these pairs alone the accuracy still falls: 0.76 to 0.84 with 32 keys, 0.60 to 0.68 with all. That is higher than before, but this arm also has 26 pairs fewer. So change one thing again, and give the six pairs six more. The slowest six change nothing (0.81 and 0.64). Pairs 6 to 11 (wavelengths 35 to 149) bring it down to 0.70 and 0.52. Six waves set between those six (wavelengths 7 to 31) harm most: 0.54 and 0.37 (means of five seeds).
#
# Are familiar *distances* enough? Leave the query where it is, and move every key farther back than 31 to the position 31 back. Now every distance is familiar, but the positions are new. The accuracy is 0.69 (0.60 to 0.76, five seeds), no better than with the latest 32 keys. A sinusoid carries a position, and this layer's scores depend on both positions. Week 3 builds a score that knows the offset alone, and asks again.
#
# *Why* do wrong keys win at new positions? Above all because the score of the *right* key falls: training has raised it less for pairs of positions that it has not met. Give that key alone the score of a familiar position, and the accuracy is 0.95 (0.89 to 0.98); give all others theirs, and it is only 0.32. (All numbers: `experiments/results_distances.md`.)
#
# Keep this lesson: an explanation that sounds right also predicts something. Test what it predicts.
# </details>

# %% [markdown]
# ## 7 · How similar are two positions?
#
# By exercise 2.1 the product of two encodings is a function of the offset $k$ alone,
#
# $$S(k)=\mathrm{PE}(p)\cdot\mathrm{PE}(p+k)=\sum_{t=0}^{d/2-1}\cos(k\,\omega_t). \tag{6}$$
#
# $S(k)$ is largest at $k=0$, where it is $d/2$. Many introductions add that it *falls* with the distance, so near tokens are more similar than far ones. Is that true?

# %% [markdown] tags=["prediction"]
# **Predict.** Draw $S(k)$ for $k=0,\dots,100$ and width 64. Does it ever rise? If so, at which offset first?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.10: run this cell
def similarity(d_model, count):
    """S(k) / S(0) for k = 0 ... count - 1."""
    pe = sinusoidal_positional_encoding(count, d_model).double()
    return pe @ pe[0] / (d_model / 2)

fig, (left, right) = lab.figure("Similarity of two positions against their distance", ncols=2, height=3.5)
left.plot(similarity(64, 101), color=lab.BLUE, linestyle="-", marker="o", markersize=2.5, linewidth=1.2)
left.set(title="width 64", xlabel="offset k (positions)", ylabel="S(k) / S(0)", ylim=(0.3, 1.05))
for d_model, colour, style in ((4, lab.VERMILLION, "--"), (64, lab.BLUE, "-"), (512, lab.GREEN, "-.")):
    right.plot(similarity(d_model, 101), color=colour, linestyle=style, linewidth=1.5, label=f"width {d_model}")
right.set(title="three widths", xlabel="offset k (positions)", ylim=(-0.62, 1.05))
right.legend(loc="lower left", ncols=3)
for ax in (left, right):
    ax.grid(axis="y")
plt.show()


# %% [markdown]
# **Figure 2.10. Similarity by distance.** Left: width 64, on an axis that begins at 0.3. Right: three widths.
#
# <details><summary>After you have run it</summary>
#
# It falls on the whole, in ripples. At width 64 it first rises at offset 6. The fastest hand has been coming back since offset 3 and is almost home. By now the second comes back fast enough: together they outweigh the others, which still turn away. With width 4 there are only two hands, and the curve swings back with each turn of the fast one: to 0.98 after the first turn, to 0.78 after the fifteenth, when the slow hand has also moved. Wider encodings have more hands, which average each other out. So the ripples get smaller, and the first rise comes later.
# </details>

# %% [markdown]
# ### Exercise 2.6 · A counterexample for every width
#
# **2 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* "falls monotonically with distance" is a claim about all pairs of offsets. One pair of offsets refutes it. A picture of width 64 says nothing about other widths.
#
# For any even `d_model` from 2 to 1,024 (base 10,000) return two offsets $0<k_1<k_2$ with $\mathrm{PE}(0)\cdot\mathrm{PE}(k_2)>\mathrm{PE}(0)\cdot\mathrm{PE}(k_1)$. Any right pair is accepted. Mind rounding: a float32 product of a wide encoding may be off by $5\cdot10^{-5}$, in a loop by more, so a rise of that size may not be real.

# %% nbgrader={"grade_id": "similarity_counterexample", "solution": true}
def similarity_counterexample(d_model):
    """Two offsets between which the similarity to position 0 rises, although the distance grows.

    d_model: even int from 2 to 1024
    returns: (k1, k2), two Python ints with 0 < k1 < k2 and PE(0).PE(k2) > PE(0).PE(k1), for base 10000: larger by more
             than float64 rounding
    """
    ### BEGIN SOLUTION
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    offsets = torch.arange(1, 201, dtype=torch.float64)  # wide enough: width 1024 first rises after 68
    s = torch.cos(offsets[:, None] * frequencies).sum(1)
    k1 = int((s[1:] > s[:-1] + 1e-6).nonzero()[0]) + 1  # index 0 is offset 1
    return k1, k1 + 1
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Equation (6) gives $S(k)$ without building a table.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Start at $k=1$: $S(0)$ is the largest of all, and offset 0 is not allowed. For width 1,024 the first rise comes late, so search at least to 100.
# </details>

# %% nbgrader={"grade_id": "similarity_counterexample_check", "grade": true, "points": 0}
# Visible check (0 points). At five widths it claims, in order:
for d in (2, 4, 64, 130, 1024):
    pair = similarity_counterexample(d)

    # Two Python ints with 0 < k1 < k2.
    assert isinstance(pair, (tuple, list)) and len(pair) == 2, f"return two numbers (k1, k2), not {pair!r}."
    k1, k2 = pair
    assert type(k1) is int and type(k2) is int, (
        f"return plain Python ints, not {type(k1).__name__} and {type(k2).__name__}: use int(...).")
    assert 0 < k1 < k2, f"the exercise asks for 0 < k1 < k2; for d_model {d} you return {k1} and {k2}."

    # The similarity is larger at k2 than at k1.
    near, distant = (sum(math.cos(k * 10000 ** (-2 * t / d)) for t in range(d // 2)) for k in (k1, k2))
    assert distant > near, (
        f"for d_model {d} the similarity falls by {near - distant:.2g} from offset {k1} to {k2}, so this pair refutes nothing.")
print("Looks right. The hidden tests try many other widths up to 1,024.")

# %% nbgrader={"grade_id": "similarity_counterexample_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week2
week2.similarity_counterexample(similarity_counterexample)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** Draw the similarity of *all* pairs of 64 positions as a matrix: for the sinusoids, for the learned table before training, and for the same table after training on 32 tokens. Which of the three depend on the offset alone, and how would you see it?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.11: run this cell
def similarities(rows):
    rows = F.normalize(rows.detach(), dim=-1)
    return rows @ rows.T

model, _, before = runs["learned table"][0]
tables = {"sinusoids": sinusoidal_positional_encoding(64, 64), "learned table, untrained": before[:64],
          "learned table, trained on 32": rows_of(model)[:64]}
fig, axes = lab.figure("Similarity of all pairs of positions (cosine)", ncols=3, width=9.4, height=3.9)
for ax, (name, rows) in zip(axes, tables.items()):
    image = lab.heatmap(ax, similarities(rows), name, 1, "position", "")
    ax.set_xticks([0, 32, 63])
    ax.set_yticks([0, 32, 63])
axes[0].set_ylabel("position")
fig.colorbar(image, ax=list(axes), location="bottom", shrink=0.4, aspect=30, ticks=[-1, 0, 1], label="cosine")
plt.show()
spread = lambda s: max(float(s.diagonal(k).max() - s.diagonal(k).min()) for k in range(64))
lab.table(["", "largest spread along a diagonal"],
          [[name, f"{spread(similarities(rows)):.1f}"] for name, rows in tables.items()])

# %% [markdown]
# **Figure 2.11. Similarity of positions.** The cosine of each pair of 64 positions, for three tables.
#
# <details><summary>After you have run it</summary>
#
# Left: each diagonal has one colour, since only the offset counts. Middle: random rows around 0 are almost at right angles, and neighbours are no closer than strangers. Right: only the lower right square is just as before. Training has moved the 32 rows it used. If yours began large, this hardly shows. Nothing forces its similarities to be the same along diagonals.
# </details>

# %% [markdown]
# ## 8 · What adding does to a score
#
# A sentence does not change its meaning when it moves ten positions to the right. Does its attention change? Position vectors are added to tokens, and attention multiplies the sums. Write $e_i$ for $\mathrm{PE}(i)$ and $W$ for $W_q^\top W_k$. The score of a query at $i$ and a key at $j$, before scaling, is
#
# $$\big(W_q(x_i+e_i)\big)^\top\,W_k(x_j+e_j)=(x_i+e_i)^\top\,W\,(x_j+e_j). \tag{7}$$
#
# If you multiply out, you get four terms. The last exercise asks you to name them. First watch them move: take two tokens five positions apart and slide them along the text, from the start to position 200.

# %% [markdown] tags=["prediction"]
# **Predict.** Which of the four terms stay constant while the two tokens slide? Answer first for $W$ the identity, then for a random $W$.
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 2.12: run this cell
generator = torch.Generator().manual_seed(5)
d, start = 64, torch.arange(200)
x_query, x_key = torch.randn(2, d, generator=generator)
w_q, w_k = torch.randn(2, d, d, generator=generator) / math.sqrt(d)
pe = sinusoidal_positional_encoding(205, d)
e_query, e_key = pe[start + 5], pe[start]
fig, axes = lab.figure("The four terms of a score while two tokens slide along the text", nrows=2, ncols=4, width=9.2, height=4.2,
                       sharex=True, sharey=True)
rows = []
weights = {"identity weights": torch.eye(d), "random weights": w_q.T @ w_k}
for line, colour, (name, W) in zip(axes, (lab.BLUE, lab.VERMILLION), weights.items()):
    terms = {"first term": (x_query @ W @ x_key).expand(200), "second term": (x_query @ W) @ e_key.T,
             "third term": e_query @ (W @ x_key), "fourth term": ((e_query @ W) * e_key).sum(1)}
    for ax, (term, values) in zip(line, terms.items()):
        ax.axhline(0, color=lab.GREY, linewidth=0.8, linestyle=":")
        ax.plot(values, color=colour, linestyle="-", linewidth=1.4)
        if name == "identity weights":
            ax.set_title(term, loc="center")
    line[0].set_ylabel(f"{name}\nterm (unscaled)")
    rows.append([name, *(f"{float(v.max() - v.min()):.1f}" for v in terms.values())])
fig.supxlabel("position of the key (the query is 5 further on)", fontsize=10)
plt.show()
lab.table(["how far a term moves", *terms], rows)

# %% [markdown]
# **Figure 2.12. Which terms see the absolute position.** One column per term, in the order that multiplying out (7) gives. Above: $W$ is the identity. Below: $W$ is random, as at the start of training.
#
# <details><summary>After you have run it</summary>
#
# A layer must *learn* to be indifferent to the absolute position. Exercise 2.7 asks why.
# </details>

# %% [markdown] nbgrader={"grade_id": "four_terms_question", "locked": true}
# ### Exercise 2.7 · The four terms
#
# **3 points · difficulty 3/5 · 45 minutes · text, graded by a person**
#
# *Why it matters:* later encodings differ in what they do with these four terms. Transformer-XL makes the key's position relative and replaces the query's by learned vectors. DeBERTa drops one of the four terms, TUPE two. If you know the terms, you can place a new method in a minute.
#
# 1. Multiply out (7). Name each of the four terms and say in a few words what question it answers (for example "does a word like this look for a word like that?").
# 2. Figure 2.12 shows which of the four change when the text moves, say by ten positions. Give the reason for each, in general and for identity weights.
# 3. **RoPE** adds nothing to the tokens. It turns queries and keys by their positions, so that the score becomes $x_i^\top W_q^\top\,R_{j-i}\,W_kx_j$ with a rotation $R_{j-i}$ that depends on the offset alone. **ALiBi** leaves the tokens alone, too. It adds a number to the scaled score: $x_i^\top W x_j/\sqrt d-m\,|i-j|$, with a fixed slope $m$ per head. For each method, say which of the four terms it keeps (perhaps changed), which it drops, and where the position has gone. Can ALiBi's preference for near tokens depend on what the token is? Can RoPE's?
#
# Ten to fifteen lines are enough; a table is welcome.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. 1 point: $x_i^\top Wx_j$ content–content, $x_i^\top We_j$ content–position (does this word look at a certain position?), $e_i^\top Wx_j$ position–content (does this position look for a certain word?), $e_i^\top We_j$ position–position (does this position look at that one, whatever the words?), with $W=W_q^\top W_k$. Half a point if the terms are right but not named or explained, or if the two mixed ones are confused. Row vectors instead of columns are as good.
# 2. 1 point: content–content does not change, since it contains no position. The mixed ones do, since each contains one absolute position. Position–position changes in general; with identity weights (or $W$ commuting with the shift, e.g. built from the blocks of the shift matrix) it does not, because the product depends on the offset alone. Half a point if "position–position depends on the offset alone" is claimed for every $W$.
# 3. 1 point: RoPE keeps the content–content term only, with the offset *inside* it (a rotation between query and key); no mixed term and no position–position term. ALiBi keeps content–content unchanged and replaces position–position by a fixed number per offset, not learned; it drops the mixed terms. ALiBi's bias is the same for all tokens; RoPE's effect depends on the content of query and key. Half a point for one method right, or if the last question is not answered.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "four_terms", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# With $W=W_q^\top W_k$:
#
# | term | name | question it answers |
# |---|---|---|
# | $x_i^\top Wx_j$ | content–content | does a word like this look for a word like that? |
# | $x_i^\top We_j$ | content–position | does a word like this look at position $j$? |
# | $e_i^\top Wx_j$ | position–content | does position $i$ look for a word like that? |
# | $e_i^\top We_j$ | position–position | does position $i$ look at position $j$, whatever the words? |
#
# 2. Moving the text replaces $e_i$ by $e_{i+10}$ and $e_j$ by $e_{j+10}$; the $x$ stay. Content–content contains no $e$ and stays. Each mixed term contains one absolute position vector and changes. Position–position is $e_i^\top We_j$. After the move it is $e_i^\top M_{10}^\top W M_{10}\,e_j$, which equals $e_i^\top We_j$ for all $i,j$ only if $M_{10}^\top WM_{10}=W$. The identity satisfies this, since $M_{10}$ is a rotation; a random $W$ does not.
#
# 3. RoPE keeps the content–content term alone; the offset sits inside it, as a rotation between query and key. The other three are gone. ALiBi keeps content–content as it is; instead of position–position it has the number $-m|i-j|$, which is not learned and knows the offset only; the mixed terms are gone. Both use the offset alone, whatever the weights. ALiBi's penalty is the same for every token. RoPE's rotation acts on the content: which offset a head likes depends on its query and key.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# $(a+b)^\top W(f+g)$ has four products. Keep the order: first the query's part, then the key's part.
# </details>
#
# <details><summary>Hint 2</summary>
#
# In each term, underline what changes when $i$ and $j$ both grow by 10. Where both factors change, use $e_{i+10}=M_{10}\,e_i$ from section 5.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Where are $x_i$ and $x_j$ in RoPE's formula? Does the second summand of ALiBi's contain them?
# </details>

# %% [markdown]
# ## 9 · The answer
#
# Can a model use a vector it has never met? The formula gives every position a vector, and a head built by hand works as well at 50,000 as at 0. Training on short texts did not find that head. The layer it found works at position 31, even with all 128 keys; at new positions it errs more, the more keys it sees. So the next two weeks add nothing to the tokens. They put the *offset* into the score.
#
# ## 10 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Why sine and cosine, and not only sine?</summary>
#
# The pair is a point on a circle, and a move by $k$ rotates this point: that is linear, and the same everywhere. From a sine alone no matrix gives the sine $k$ positions later: $\sin(a+b)$ needs $\cos a$ as well.
# </details>
#
# <details><summary>2. Why many frequencies?</summary>
#
# The fast ones tell neighbours apart and soon repeat; the slow ones tell far positions apart and hardly change between neighbours. Together they do both, like the digits of a number.
# </details>
#
# <details><summary>3. Why is the position added and not concatenated?</summary>
#
# Adding keeps the width. The price: token and position share their channels, and the four terms of section 8 share one matrix. Concatenation has four terms, too, and each has its own block of the matrix, but it costs width.
# </details>
#
# <details><summary>4. Can the encoding drown the token?</summary>
#
# Yes, if the token's vector is short. The encoding has the length $\sqrt{d/2}$ at every position. At width 512 that is 16, and a token of length 1 is drowned. Vaswani et al. multiply embeddings by $\sqrt d\approx22.6$ before adding (section 3.4). In a learned table the scale is learned too.
# </details>
#
# <details><summary>5. Learned or sinusoidal: which is better?</summary>
#
# Within the training length Vaswani et al. found hardly any difference. In week 5's small language models the sinusoids are ahead within that length: 1.53 (1.50 to 1.57) against 1.72 nats (1.68 to 1.75), five seeds each.
# </details>
#
# <details><summary>6. Ten tokens are in the KV cache and you feed in one more. Which row of the table is added to it?</summary>
#
# Row 10. A `forward(x)` as in exercise 2.5 adds row 0 to the first token that it gets: with a cache the position must be passed in. Texts that are padded at their start need the same care.
# </details>
#
# <details><summary>7. Where is the encoding added: in each layer, or once?</summary>
#
# Once, to the embeddings below the first layer, in encoder and decoder (section 3.5). The residual connections carry it upwards. RoPE and ALiBi act in every layer instead.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | $\mathrm{PE}(0)\cdot\mathrm{PE}(1)$ and $\mathrm{PE}(5)\cdot\mathrm{PE}(6)$ are "similar" | They are *equal*, at any width: the product depends on the offset alone. | 2.1 |
# | The dot product falls monotonically with distance | It ripples; with width 64 it first rises at offset 6. | 2.6, Figure 2.10 |
# | The wavelengths run from $2\pi$ to $10\,000\cdot2\pi$ | By formula (2) the last pair stops one step short of that. For width 64 you know by how much. | 2.2 |
# | Sinusoids are periodic, so far positions repeat earlier ones | No two positions share a vector. | section 3 |
# | Fast hands enter new parts of their circle in longer texts | The slow ones do; the fast ones have been all the way round. | Figure 2.3 |
# | Learned embeddings past `max_len` are random | An *untrained row* keeps its starting value, weight decay aside; an index *past the table* is an error. | 2.5, Figure 2.8 |
# | The score with sinusoids depends on the distance alone | Not in general: see which of the four terms move. | 2.7, Figure 2.12 |
#
# ## Takeaways
#
# 1. A sinusoidal encoding is a row of clocks, from fast to slow, one per pair of channels.
# 2. Moving by $k$ turns every hand by a fixed angle: one matrix for all positions.
# 3. To learn why a model fails, change one thing at a time.
# 4. A score has four terms; 2.7 told you what RoPE and ALiBi make of them.
#
# ## References
#
# - A. Vaswani et al.: *Attention Is All You Need*, 2017, arXiv:1706.03762. Section 3.5 (the encoding, the wavelengths, both reasons), section 3.4 (embeddings times $\sqrt{d_\text{model}}$), Table 3, row E (learned against sinusoidal).
# - Code: [tensor2tensor](https://github.com/tensorflow/tensor2tensor/blob/75b75f2e2281101b9b3637e14ef519afd6a11b68/tensor2tensor/layers/common_attention.py), `get_timing_signal_1d` (layout and frequencies of the first implementation); [Whisper](https://github.com/openai/whisper/blob/fdf63e51dc3089e10d72fd25ac04ffe22f86543e/whisper/model.py), `sinusoids`.
# - J. Gehring et al.: *Convolutional Sequence to Sequence Learning*, 2017, arXiv:1705.03122 (learned position embeddings).
# - J. Devlin et al.: *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*, 2018, arXiv:1810.04805 (a learned table); [GPT-2, `model.py`](https://github.com/openai/gpt-2/blob/122c55a53a50ef625f9f4fc577ed0d59e53bf417/src/model.py) (another one, `wpe`).
# - Z. Dai et al.: *Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context*, 2019, arXiv:1901.02860. Section 3.3 (the four terms, and what becomes of each).
# - P. He et al.: *DeBERTa: Decoding-enhanced BERT with Disentangled Attention*, 2021, arXiv:2006.03654 (section 3.1); G. Ke, D. He, T.-Y. Liu: *Rethinking Positional Encoding in Language Pre-training*, 2021, arXiv:2006.15595 (TUPE).
# - A. Radford et al.: *Robust Speech Recognition via Large-Scale Weak Supervision*, 2022, arXiv:2212.04356 (Whisper); J. Ho, A. Jain, P. Abbeel: *Denoising Diffusion Probabilistic Models*, 2020, arXiv:2006.11239.
# - J. Su et al.: *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021, arXiv:2104.09864 (week 3).
# - O. Press, N. A. Smith, M. Lewis: *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, 2022, arXiv:2108.12409. Figure 1 (sinusoids beyond the training length); week 4.
