# %% [markdown]
# # Week 6 · What a score can know about two positions
#
# **The question of the week.** A head wants to look "three tokens back". Another wants to find the token that points to the *query*. Which method can learn which, and with how many heads? Can you tell from the formula?
#
# <!-- costs of week6_relative_bias -->
#
# ## What you will be able to do
#
# - convert between the four conventions in which papers and code count relative positions;
# - write the attention of Shaw et al., of Transformer-XL, T5 and DeBERTa, each as the published code computes it;
# - explain the shift trick of Transformer-XL, and say which half of its result is rubbish;
# - compute a T5 bucket by hand, and say what a model loses without the sign;
# - say what each method costs in parameters, memory and time;
# - predict from four terms what a layer can learn, and see where that fails;
# - say what breaks on a longer text: more keys, or new distances.
#
# **You need** weeks 1, 2 and 4: attention with a mask, the four terms of exercise 2.7, biases on scores. RoPE (week 3) is a rival in one experiment and a part of 6.11.
#
# **Short of time?** 6.2, 6.6, 6.7, 6.8 and 6.11 are the core (the experiment of 6.11 runs with your 6.7 and 6.8); 6.4 is the nicest trick.
#
# <!-- points of week6_relative_bias -->
#
# A *visible check* carries no points: it says what is wrong. You pay for a mistake once: 6.3, 6.5, 6.7 and 6.8 may call your 6.2; 6.5 may call your 6.4, and 6.7 your 6.6. *Predict* cells are not graded. Three of our own predictions failed.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`. $i$ is the position of a query, $j$ the position of a key, $d$ the **head dimension**.
# - The **offset** is key position − query position, $j-i$. A key behind the query has a negative offset and a positive **distance** $i-j$.
# - Where there are fewer queries than keys, the queries are the *last* positions: row $r$ has the position $n_\text{keys}-n_\text{queries}+r$. That happens with a KV cache, or with a memory of earlier text.
# - In a mask, True means "may attend".
# - Your functions compute in the dtype of their input (float64 to its full accuracy, unlike 1.1), return it on the same device, keep gradients, and never change an argument in place. The tests use float32 and float64.
# - "**Not looked at**" means that any value is allowed there, infinities too.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import json
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
# ## 1 · One offset, four ways to count it
#
# Week 2 wrote a score as four terms: content meets content, content meets position, position meets content, position meets position. Every method of this week drops some of them or puts something else in their place. And every method replaces a position by an *offset*: how far apart two tokens are, and which one comes first.
#
# So each method needs a table with one entry per offset, and a rule that picks the row. The papers have different rules:
#
# | method | what it counts | rule for the row | query 12, key 2 | query 2, key 12 |
# |---|---|---|---|---|
# | Shaw, clip $c=4$ | key − query | $c+\text{clamp}(j-i,-c,c)$, of $2c+1$ rows | 0 | 8 |
# | Transformer-XL | query − key | the distance $i-j$ itself | 10 | (masked) |
# | DeBERTa, span $s=4$ | query − key | $\text{clamp}(i-j+s,\,0,\,2s-1)$, of $2s$ rows | 7 | 0 |
# | T5, 32 buckets | key − query | a bucket, see below | 8 | 24 |
#
# Two of the four count query − key. And DeBERTa's table has an even number of rows: keys $s$ or more ahead share the first row; keys $s-1$ or more behind share the last.
#
# **T5's bucket.** Each side of the query, behind or ahead, has $B$ buckets. Near offsets have a bucket each; far ones share, and the bucket's number grows only like the logarithm of the distance. With $m=|j-i|$ and $e=B/2$ (rounded down):
#
# $$\text{bucket}(m)=\begin{cases} m & m<e\\ \min\!\Big(B-1,\ e+\Big\lfloor \dfrac{\ln(m/e)}{\ln(M/e)}\,(B-e)\Big\rfloor\Big) & m\ge e\end{cases} \tag{1}$$
#
# $M$ is `max_distance`, 128 by default.
#
# - **Two sides** (encoders): each side has half of `num_buckets`, so $B=16$ of 32. Offsets **above 0**, keys ahead, add $B$.
# - **Causal** (decoders): all buckets serve the keys behind, $B=32$. Keys ahead count as $m=0$; the mask hides them anyway.
#
# In the table above $m=10$, $e=8$, and $\ln(10/8)/\ln(128/8)\cdot 8=0.64$. So the bucket is $8+0=8$ behind and $16+8=24$ ahead.

# %% [markdown]
# ### Exercise 6.1 · Conventions by hand
#
# **2 points · difficulty 2/5 · 17 minutes · numbers**
#
# *Why it matters:* a wrong sign raises no error. The model trains, a little worse, and nobody knows why.
#
# **back**: the query has position 25, the key 5. **ahead**: the query has position 5, the key 25.

# %% tags=["by-hand"] nbgrader={"grade_id": "conventions_by_hand", "solution": true}
# Replace every None by a whole number.
conventions_by_hand = {
    "t5_bi_back": None,  # T5's bucket, two sides, 32 buckets, max_distance 128
    "t5_bi_ahead": None,
    "t5_causal_back": None,  # T5's bucket in a decoder, 32 buckets, max_distance 128
    "shaw_back": None,  # Shaw's row, clip 16
    "shaw_ahead": None,
    "xl_distance_back": None,  # Transformer-XL's distance
    "deberta_back": None,  # DeBERTa's row, span 8
    "deberta_ahead": None,
}
### BEGIN SOLUTION
conventions_by_hand |= {
    "t5_bi_back": 10,  # B = 16, e = 8: 8 + floor(ln(20/8) / ln(128/8) * 8) = 8 + floor(2.64)
    "t5_bi_ahead": 26,  # the same, plus 16
    "t5_causal_back": 17,  # B = 32, e = 16: 16 + floor(ln(20/16) / ln(128/16) * 16) = 16 + floor(1.72)
    "shaw_back": 0,  # 16 + clamp(-20, -16, 16)
    "shaw_ahead": 32,
    "xl_distance_back": 20,
    "deberta_back": 15,  # clamp(20 + 8, 0, 15)
    "deberta_ahead": 0,  # clamp(-20 + 8, 0, 15)
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First write down $j-i$ and $i-j$ for both cases. Then ask of each rule which of the two it uses.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For T5, what are $B$ and $e$? In a decoder $B$ is not halved; $e=B/2$ stays.
# </details>

# %% nbgrader={"grade_id": "conventions_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
buckets = "t5_bi_back", "t5_bi_ahead", "t5_causal_back"
numbers = lab.must_be_numbers(
    conventions_by_hand, *buckets, "shaw_back", "shaw_ahead", "xl_distance_back", "deberta_back", "deberta_ahead")
for key, value in numbers.items():
    assert value == int(value), f"{key!r} must be a whole number, got {value}."
for key in buckets:
    assert 0 <= numbers[key] < 32, f"{key!r}: there are 32 buckets, numbered 0 to 31."
print("Eight whole numbers. The hidden tests look at their values.")

# %% nbgrader={"grade_id": "conventions_by_hand_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.conventions_by_hand(conventions_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 6.2 · Offsets
#
# **2 points · difficulty 1/5 · 8 minutes · code**
#
# *Why it matters:* Shaw and T5 start from this matrix, and the commonest cache bug shows in it.

# %% nbgrader={"grade_id": "relative_positions", "solution": true}
def relative_positions(n_queries, n_keys):
    """Key position - query position. The queries stand at the last n_queries of the keys' positions.

    returns: (n_queries, n_keys) int64, a new tensor on each call; ValueError unless 1 <= n_queries <= n_keys
    """
    ### BEGIN SOLUTION
    if not 1 <= n_queries <= n_keys:
        raise ValueError(f"n_queries must be from 1 to n_keys, got {n_queries} and {n_keys}")
    key = torch.arange(n_keys)
    query = key[n_keys - n_queries:]
    return key - query[:, None]
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write two `arange`s, one for the positions of the keys, one for those of the queries. Where does the second one start?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Broadcast: a row minus a column. Which of the two holds the queries?
# </details>

# %% nbgrader={"grade_id": "relative_positions_check", "grade": true, "points": 0}
# Visible check (0 points).
offsets = relative_positions(3, 3)
lab.must_be_a_tensor(offsets)
assert tuple(offsets.shape) == (3, 3), f"shape (3, 3) expected, got {tuple(offsets.shape)}."
assert offsets.dtype == torch.int64, f"offsets index tables, so they are int64; yours are {offsets.dtype}."
assert offsets.diagonal().tolist() == [0, 0, 0], "a token has offset 0 from itself: the diagonal must be zero."
assert int(offsets[0, 2]) == 2, (
    f"query 0, key 2: the key stands two ahead, so the offset is 2; yours is {int(offsets[0, 2])}. Key minus query, "
    "and rows are queries!")
step = relative_positions(1, 4)
assert tuple(step.shape) == (1, 4), f"one query, four keys: shape (1, 4) expected, got {tuple(step.shape)}."
assert step[0].tolist() == [-3, -2, -1, 0], (
    f"one query with a cache of three is the newest token, at position 3: offsets -3, -2, -1, 0; yours are {step[0].tolist()}.")
assert lab.raises(ValueError, relative_positions, 4, 3), "more queries than keys must raise ValueError."
print("Looks right. The hidden tests try other sizes.")

# %% nbgrader={"grade_id": "relative_positions_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.relative_positions(relative_positions)
### END HIDDEN TESTS

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.1: run this cell
offset = relative_positions(4, 6)
clip, span = 2, 2
pictures = {"offset j − i": offset, f"Shaw's row, clip {clip}": clip + offset.clamp(-clip, clip),
            "Transformer-XL: i − j": -offset, f"DeBERTa's row, span {span}": (span - offset).clamp(0, 2 * span - 1)}
fig, axes = lab.figure("Four queries (positions 2 to 5), six keys: the offset, and three rules for the row", ncols=4, height=2.2)
for ax, (name, numbers) in zip(axes, pictures.items()):
    lab.heatmap(ax, numbers, name, limit=6, xlabel="key", ylabel="")
    for row in range(4):
        for column in range(6):
            number = int(numbers[row, column])
            ax.text(column, row, number, ha="center", va="center", fontsize=9, color="white" if abs(number) > 3 else "#222222")
    ax.set(xticks=range(6), yticks=range(4), yticklabels=range(2, 6))
axes[0].set_ylabel("query position")
plt.show()


# %% [markdown]
# **Figure 6.1. Offsets and rows.** Each diagonal holds one number: which row a method reads depends on the diagonal alone. (a) Shaw's rows rise to the right, DeBERTa's fall. (b) At the ends of Shaw's and DeBERTa's tables numbers repeat: far offsets share a row. (c) Transformer-XL masks what would be a negative row.

# %% [markdown]
# ## 2 · Shaw: a vector for every offset
#
# The first idea is the most direct one (Shaw, Uszkoreit and Vaswani, 2018, section 3). Learn a vector for every offset, and add it to the key:
#
# $$s_{ij}=\frac{q_i\cdot\big(k_j+a^K_{t}\big)}{\sqrt d},\qquad \text{out}_i=\sum_j w_{ij}\,\big(v_j+a^V_{t}\big),\qquad t=c+\text{clamp}(j-i,-c,c). \tag{2}$$
#
# The key becomes "this word, three back". The query can ask for the word, for the offset, or for both. A second table does the same for the values: the output can say *from where* it was read. Here the heads of a layer share both tables. (The paper's base model had tables per layer *and* head, section 4.1.)
#
# Offsets beyond $\pm c$ are **clipped** to the end rows. With $c=16$ the model learns no difference between 20 and 200 back, and so it never meets an unknown row on a longer text.
#
# **The trap.** If you forget to clip, `rel_k[-3]` raises no error: Python counts from the end, and a key just past the clip gets the vector of a key *ahead*. Only offsets too far ahead, or more than $3c+1$ behind, raise an error.
#
# **What it costs.** Written as in (2), the vectors $a_t$ form a tensor `(n_queries, n_keys, head_dim)`. You need not build it. A query has only $2c+1$ different products with the table: compute these, then pick. Section 6 measures both ways.

# %% [markdown]
# ### Exercise 6.3 · Shaw's attention
#
# **4 points · difficulty 3/5 · 35 minutes · code**
#
# *Why it matters:* it is the first of the relative methods, and its key term still runs in a speech encoder (`Wav2Vec2BertConfig`: "relative_key", transformers 5.23).
#
# You may call `relative_positions`. Masks and rows without a key are as in 1.1: zero weights, zero output, and no NaN, not even in the gradients.

# %% nbgrader={"grade_id": "shaw_attention", "solution": true}
def shaw_attention(q, k, v, rel_k, rel_v, mask=None):
    """Attention by equation (2).

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); v: (batch, heads, n_keys, v_dim)
    rel_k: (2*clip + 1, head_dim), rel_v: (2*clip + 1, v_dim), for all heads; clip >= 0
    mask: boolean, broadcasts to (batch, heads, n_queries, n_keys), True = may attend; None = attend everywhere
    returns: out (batch, heads, n_queries, v_dim), weights (batch, heads, n_queries, n_keys)
    """
    ### BEGIN SOLUTION
    clip = rel_k.shape[0] // 2
    row = clip + relative_positions(q.shape[-2], k.shape[-2]).to(q.device).clamp(-clip, clip)
    # few products, then pick: (batch, heads, n_queries, 2*clip + 1) -> (batch, heads, n_queries, n_keys)
    row = row.expand(*q.shape[:3], k.shape[-2])
    scores = (q @ k.mT + (q @ rel_k.mT).gather(-1, row)) / math.sqrt(q.shape[-1])
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        no_key = ~mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~mask, -math.inf).masked_fill(no_key, 0.0)
        weights = scores.softmax(dim=-1).masked_fill(no_key, 0.0)
    # the weights of all keys that share a row, added up, then one product with the table
    by_row = weights.new_zeros(*weights.shape[:3], len(rel_v)).scatter_add(-1, row, weights)
    return weights @ v + by_row @ rel_v, weights
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: the plain way</summary>
#
# `rel_k[row]` with `row` of shape `(n_queries, n_keys)` has shape `(n_queries, n_keys, head_dim)`. `torch.einsum("bhid,ijd->bhij", q, rel_k[row])` is the key term.
# </details>
#
# <details><summary>Hint 2: the value term</summary>
#
# `torch.einsum("bhij,ijd->bhid", weights, rel_v[row])`. It uses the weights, so it comes after the softmax.
# </details>
#
# <details><summary>Hint 3: rows without a key</summary>
#
# Fill such rows with zeros before the softmax and again after it. Then no NaN ever exists.
# </details>

# %% nbgrader={"grade_id": "shaw_attention_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(0)
q, k = torch.randn(2, 2, 3, 5, 4, generator=generator)
v = torch.randn(2, 3, 5, 6, generator=generator)
zero_k, zero_v = torch.zeros(5, 4), torch.zeros(5, 6)
before = q.clone()
result = shaw_attention(q, k, v, zero_k, zero_v)
assert isinstance(result, (tuple, list)) and len(result) == 2, "return two things: (out, weights)."
out, weights = result
assert torch.equal(q, before), "your function changed q itself; work on new tensors."
assert tuple(out.shape) == (2, 3, 5, 6) and tuple(weights.shape) == (2, 3, 5, 5), (
    f"out (2, 3, 5, 6) and weights (2, 3, 5, 5) expected, got {tuple(out.shape)} and {tuple(weights.shape)}.")
plain = (q @ k.mT / 2).softmax(-1)
assert torch.allclose(weights, plain, atol=1e-5), "with tables of zeros the weights are those of week 1: scores over sqrt(head_dim)."
assert torch.allclose(out, plain @ v, atol=1e-5), "with tables of zeros out is that of week 1."

# Equal content: only the table decides. clip 2, and row 1 (one back) is attractive: q.rel_k / sqrt(4) = ln 5.
one = torch.ones(1, 1, 6, 4)
liked = torch.zeros(5, 4)
liked[1] = math.log(5) / 2  # row 1 = clip - 1
_, weights = shaw_attention(one, 2 * one, one, liked, torch.zeros(5, 4))
assert bool((weights[0, 0, 3].argmax() == 2)), (
    f"rel_k makes row 1 = clip - 1 attractive, that is offset -1: query 3 must look at key 2, yours looks at key "
    f"{int(weights[0, 0, 3].argmax())}. Key minus query, and clip is added.")
assert abs(float(weights[0, 0, 3, 2]) - 0.5) < 1e-4, (
    "rel_k adds ln 5 to the score of key 2 and nothing to the five others, so key 2 gets 5 / (5 + 5) = 0.5; yours gets "
    f"{float(weights[0, 0, 3, 2]):.3f}. Does the query meet the table, and is the sum of both terms divided, once?")
far = torch.zeros(3, 4)
far[0] = 3.0  # clip 1; row 0: one back and farther
_, weights = shaw_attention(one, one, one, far, torch.zeros(3, 4))  # an error here? clip follows from the table's rows
assert torch.allclose(weights[0, 0, 5, :5], weights[0, 0, 5, :1].expand(5), atol=1e-5), (
    "clip 1: for query 5 the keys 0 to 4 all lie one or more back, so they share row 0 and have equal weights. Do you clip "
    "before you index? A negative index wraps round without an error.")
values = torch.arange(5.0)[:, None].expand(5, 4)
out, weights = shaw_attention(one, one, 0 * one, torch.zeros(5, 4), values)
assert torch.allclose(out[0, 0, 2, 0], torch.tensor((0 + 1 + 2 + 3 + 4 + 4) / 6), atol=1e-4), (
    "equal weights, values zero: out is the mean of the rows of rel_v that query 2 reads, 0, 1, 2, 3, 4, 4; yours is "
    f"{float(out[0, 0, 2, 0]):.3f}.")
mask = torch.ones(5, 5, dtype=torch.bool).tril()
mask[3] = False
out, weights = shaw_attention(q, k, v, torch.randn(5, 4, generator=generator), torch.randn(5, 6, generator=generator), mask)
assert bool((weights[:, :, 0, 1:] == 0).all()), "query 0 may attend to key 0 alone (True: may attend): the others get no weight."
assert torch.allclose(weights[:, :, 2].sum(-1), torch.ones(2, 3)), "with a mask, too, the weights add up to 1: hide keys before the softmax."
assert bool(weights.isfinite().all() and out.isfinite().all()), "a query that may attend to nothing must give zeros, not NaN."
assert bool((out[:, :, 3] == 0).all()), "query 3 may attend to nothing: its output is zero, and rel_v must not reach it."
short = shaw_attention(q[:, :, 3:], k, v, liked, zero_v)[1]
whole = shaw_attention(q, k, v, liked, zero_v)[1]
assert torch.allclose(short, whole[:, :, 3:], atol=1e-5), (
    "the last two queries alone must get the weights that they have among all five.")

# It computes where its inputs are, on any device.
lab.follows_the_device(shaw_attention, *(torch.ones(1, 2, 3, 4),) * 3, *(torch.ones(5, 4),) * 2)
lab.follows_the_device(shaw_attention, *(torch.ones(1, 2, 3, 4),) * 3, *(torch.ones(5, 4),) * 2, torch.ones(3, 3) > 0)
print("Looks right. The hidden tests compare values, with other sizes and masks.")

# %% nbgrader={"grade_id": "shaw_attention_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.shaw_attention(shaw_attention, relative_positions)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Transformer-XL: start from the four terms
#
# Dai et al. (2019, section 3.3) start from the whole score. Write it with absolute positions and multiply out, as in 2.7:
#
# $$(x_i+p_i)W_q\cdot(x_j+p_j)W_k=\underbrace{x_iW_q\cdot x_jW_k}_{\text{content, content}}+\underbrace{x_iW_q\cdot p_jW_k}_{\text{content, position}}+\underbrace{p_iW_q\cdot x_jW_k}_{\text{position, content}}+\underbrace{p_iW_q\cdot p_jW_k}_{\text{position, position}} .$$
#
# Now make it relative, with three changes. The key's position $p_j$ becomes an encoding $R_{i-j}$ of the distance. The query's own position no longer matters, so $p_iW_q$ becomes a learned vector, the same for all queries: $u$ where it meets content, $v$ where it meets position. And positions get a projection of their own:
#
# $$s_{ij}=\frac{(q_i+u)\cdot k_j+(q_i+v)\cdot r_{i-j}}{\sqrt d},\qquad r_t=R_tW_{kR} . \tag{3}$$
#
# $R_t$ is week 2's sinusoid of the distance $t$. Equation (3) clips nothing: any distance has an encoding. Each head has its own $u$, $v$ and $r$. (These are the paper's letters. This $v$ is not a value; your function calls the two `content_bias` and `position_bias`.)
#
# **The shift trick.** Compute $(q_i+v)\cdot r_t$ for all distances at once: this is one matrix product, with columns by *distance*. But the scores need columns by *key*. Since the distance is $i-j$, row $i$ must move by an amount that depends on $i$. The authors' code does it by padding and reshaping (appendix B).

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.2: run this cell
n = 4
query, distance = torch.arange(n)[:, None], torch.arange(n - 1, -1, -1)
by_distance = 10.0 * query + distance  # tens: the query; ones: the distance
padded = F.pad(by_distance, (1, 0), value=-1)
reshaped = padded.reshape(n + 1, n)
panels = {"columns by distance": by_distance, "pad one column": padded, "read as 5 rows of 4": reshaped,
          "drop the first row": reshaped[1:]}
fig, axes = lab.figure("The trick with four queries a to d: each cell shows a query and a distance", ncols=4, height=2.8,
                       width_ratios=(4, 5, 4, 4))
for ax, (name, numbers) in zip(axes, panels.items()):
    rows, columns = numbers.shape
    ax.imshow(numbers.clamp(min=0) // 10, cmap="Blues", vmin=-0.5, vmax=6, interpolation="nearest")
    for row in range(rows):
        for column in range(columns):
            cell = int(numbers[row, column])
            padding, rubbish = cell < 0, name.startswith("drop") and column > row
            if padding or rubbish:
                ax.add_patch(plt.Rectangle((column - 0.5, row - 0.5), 1, 1, color="#DDDDDD", linewidth=0))
            ax.text(column, row, "pad" if padding else f"{'abcd'[cell // 10]}{cell % 10}", ha="center", va="center",
                    fontsize=8 if padding else 11, color="#666666" if padding or rubbish else "black")
    ax.set(title=name, xticks=range(columns), yticks=range(rows), xlim=(-0.5, columns - 0.5))
    ax.set_anchor("N")
    ax.spines[["left", "bottom"]].set_visible(False)
for ax in (axes[0], axes[3]):
    ax.set_yticks(range(n), list("abcd"))
axes[0].set_ylabel("query")
axes[3].set_xlabel("key")
plt.show()


# %% [markdown]
# **Figure 6.2. Pad, reshape, drop.** In the last panel row $i$, column $j$ shows the distance $i-j$, on and below the diagonal. Above it (grey): padding, and the *next* query's numbers.

# %% [markdown]
# Padding makes every row one longer. Read the numbers in rows of the old length, and row $i$ slips $i+1$ places to the right. Dropping the first row moves all of them back by $n$.
#
# In Transformer-XL the causal mask hides the grey cells; in an encoder they leak. XLNet needs both sides (`rel_shift_bnij`): it feeds the distances of both signs, about $2n$ of them, and then the shift is right everywhere.
#
# With a **memory** of earlier tokens there are more keys than queries. Column $c$ then belongs to distance $n_\text{keys}-1-c$, and row $i$ moves to the left by $n_\text{queries}-1-i$. The last query, the newest token, does not move.

# %% [markdown]
# ### Exercise 6.4 · The shift
#
# **3 points · difficulty 3/5 · 20 minutes · code**
#
# *Why it matters:* you will meet it as four lines without a comment (`_rel_shift`), and know which half to trust.

# %% nbgrader={"grade_id": "rel_shift", "solution": true}
def rel_shift(x):
    """From columns by distance to columns by key.

    x: (batch, heads, n_queries, n_keys), perhaps not contiguous; column c belongs to distance n_keys - 1 - c
    returns: y of the same shape, with y[..., i, j] = x[..., i, j + n_queries - 1 - i] where the key does not lie after
             the query, that is where j <= n_keys - n_queries + i; the rest is not looked at
    """
    ### BEGIN SOLUTION
    batch, heads, n_queries, n_keys = x.shape
    padded = F.pad(x, (1, 0)).reshape(batch, heads, n_keys + 1, n_queries)
    return padded[:, :, 1:].reshape(x.shape)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Any way will do: pad and reshape, a `gather` with the right index, or a loop over rows with `torch.roll`.
# </details>
#
# <details><summary>Hint 2</summary>
#
# For the trick: `F.pad(x, (1, 0))` pads one column on the left. Which shape do you read it in? Look at Figure 6.2 and put `n_queries` and `n_keys` in the right places.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Count: one more column makes `n_queries * (n_keys + 1)` numbers per head. Read them as `n_keys + 1` rows, drop the first, restore the shape. `reshape` copies where it must, `view` raises.
# </details>

# %% nbgrader={"grade_id": "rel_shift_check", "grade": true, "points": 0}
# Visible check (0 points).
x = torch.arange(3.0, -1, -1).expand(1, 1, 4, 4)  # every row: distances 3, 2, 1, 0
y = rel_shift(x)
assert float(x[0, 0, 3, 0]) == 3, "your function changed x itself; work on a new tensor."
lab.must_be_a_tensor(y)
assert tuple(y.shape) == (1, 1, 4, 4), f"shape (1, 1, 4, 4) expected, got {tuple(y.shape)}."
for i in range(4):
    got, want = y[0, 0, i, :i + 1].tolist(), [float(i - j) for j in range(i + 1)]
    assert got == want, f"query {i} and the keys 0 to {i} have the distances {want}; yours are {got}."
rows = torch.arange(2.0)[:, None] * 10 + torch.arange(4.0, -1, -1)  # 2 queries, 5 keys; the tens tell the row
y = rel_shift(rows[None, None])
assert y[0, 0, 0, :4].tolist() == [3.0, 2.0, 1.0, 0.0], (
    f"2 queries, 5 keys: query row 0 stands at position 3 and moves to the left by one: 3, 2, 1, 0; yours starts "
    f"{y[0, 0, 0, :4].tolist()}.")
assert y[0, 0, 1].tolist() == [14.0, 13.0, 12.0, 11.0, 10.0], "the last row, the newest token, does not move."
hundreds = torch.arange(6.0).view(2, 3, 1, 1) * 100  # another hundred in every head of every sequence
assert torch.equal((rel_shift(hundreds + x) - hundreds)[..., 2, :3], torch.tensor([2.0, 1.0, 0.0]).expand(2, 3, 3)), (
    "heads or sequences are mixed: each one shifts by itself.")
turned = torch.randn(1, 2, 5, 3, generator=torch.Generator().manual_seed(0)).mT  # not contiguous
below = torch.ones(3, 5, dtype=torch.bool).tril(2)
assert torch.equal(rel_shift(turned)[..., below], rel_shift(turned.contiguous())[..., below]), (
    "an x that is not contiguous gives something else.")
# It computes where its inputs are, on any device.
lab.follows_the_device(rel_shift, torch.ones(1, 2, 3, 3))
print("Looks right. The hidden tests compare values where the key does not lie after the query.")

# %% nbgrader={"grade_id": "rel_shift_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.rel_shift(rel_shift)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise 6.5 · Transformer-XL's scores
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* the two biases look alike and do different things. If you exchange them, nothing complains.
#
# `r[:, t]` belongs to **distance** $t$, ascending from 0. The shift wants *descending* distances. You may use `rel_shift`, `relative_positions`, or neither.

# %% nbgrader={"grade_id": "transformer_xl_scores", "solution": true}
def transformer_xl_scores(q, k, r, content_bias, position_bias):
    """Scores by equation (3), before mask and softmax.

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim)
    r: (heads, n_keys, head_dim), r[:, t] the projected encoding of distance t = query position - key position
    content_bias: (heads, head_dim), u in (3), meets the keys; position_bias: (heads, head_dim), v in (3), meets r
    returns: (batch, heads, n_queries, n_keys); entries whose key lies after the query are not looked at
    """
    ### BEGIN SOLUTION
    content = (q + content_bias[:, None]) @ k.mT
    by_distance = (q + position_bias[:, None]) @ r.flip(1).mT  # columns: distances n_keys - 1 .. 0
    return (content + rel_shift(by_distance)) / math.sqrt(q.shape[-1])
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `content_bias[:, None]` is `(heads, 1, head_dim)` and broadcasts over batch and queries.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `r.flip(1)` turns ascending into descending. Its columns then fit `rel_shift`.
# </details>
#
# <details><summary>Hint 3</summary>
#
# Without the shift, use `r[:, distance]` with `distance` of shape `(n_queries, n_keys)`, clamped at 0, and an einsum. That is slower, and harder to get wrong.
# </details>

# %% nbgrader={"grade_id": "transformer_xl_scores_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(1)
q, k = torch.randn(2, 2, 3, 4, 4, generator=generator)
r, none = torch.randn(3, 4, 4, generator=generator), torch.zeros(3, 4)
u, w = torch.randn(2, 3, 4, generator=generator)
before = q.clone()
transformer_xl_scores(q, k, r, u, w)
assert torch.equal(q, before), "your function changed q itself; work on new tensors."
scores = transformer_xl_scores(q, k, 0 * r, none, none)
lab.must_be_a_tensor(scores)
assert tuple(scores.shape) == (2, 3, 4, 4), f"shape (2, 3, 4, 4) expected, got {tuple(scores.shape)}."
below = torch.ones(4, 4, dtype=torch.bool).tril()
assert torch.allclose(scores[..., below], (q @ k.mT / 2)[..., below], atol=1e-5), (
    "with r and both biases zero the scores are q.k / sqrt(head_dim).")
scores = transformer_xl_scores(q, 0 * k, r, none, none)
for i, j in ((0, 0), (2, 0), (3, 2)):
    want = (q[:, :, i] * r[:, i - j]).sum(-1) / 2
    assert torch.allclose(scores[:, :, i, j], want, atol=1e-5), (
        f"keys and biases zero: query {i} and key {j} meet r[:, {i - j}], the row of their distance. If your 6.4 passes its "
        "check: is r read ascending, and is this term divided, too?")
scores = transformer_xl_scores(0 * q, k, 0 * r, u, none)
assert torch.allclose(scores[:, :, 3, 1], (u * k[:, :, 1]).sum(-1) / 2, atol=1e-5), (
    "queries, r and position_bias zero: what is left is content_bias.k, head by head.")
scores = transformer_xl_scores(0 * q, k, r, none, w)
assert torch.allclose(scores[:, :, 3, 1], ((w * r[:, 2]).sum(-1) / 2).expand(2, 3), atol=1e-5), (
    "queries and content_bias zero: what is left is position_bias.r, here at distance 2.")
short = transformer_xl_scores(q[:, :, 3:], k, r, u, w)
whole = transformer_xl_scores(q, k, r, u, w)
assert torch.allclose(short, whole[:, :, 3:], atol=1e-5), "the newest query alone must get the scores it has among all four."
# It computes where its inputs are, on any device.
lab.follows_the_device(transformer_xl_scores, *(torch.ones(1, 2, 3, 4),) * 2, torch.ones(2, 3, 4), *(torch.ones(2, 4),) * 2)
print("Looks right. The hidden tests compare values, also with more keys than queries.")

# %% nbgrader={"grade_id": "transformer_xl_scores_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.transformer_xl_scores(transformer_xl_scores, relative_positions, rel_shift)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · T5: one number per bucket
#
# Raffel et al. (2020, section 2.1) cut everything down to one learned **number** per head and bucket, added to the score.
#
# $$s_{ij}=q_i\cdot k_j+b_{h,\,\text{bucket}(j-i)} . \tag{4}$$
#
# Three things about it surprise people.
#
# - **No $\sqrt d$.** T5 does not scale. (Its initial weights are smaller instead.) If you divide as usual, a released checkpoint gets the wrong weights, and no error tells you.
# - **One table per stack.** The first layer holds it, the others borrow it. Cross-attention has none.
# - **It has a sign** in an encoder: keys ahead have buckets of their own.

# %% [markdown]
# ### Exercise 6.6 · T5's buckets
#
# **4 points · difficulty 3/5 · 25 minutes · code**
#
# *Why it matters:* you will find copies of this function with the sign and without it.
#
# Write equation (1) and the two cases below it. Where the term inside the floor is a whole number in exact arithmetic, rounding may give you that bucket or the one below. No test looks there.

# %% nbgrader={"grade_id": "t5_bucket", "solution": true}
def t5_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    """The bucket of every offset, by equation (1).

    relative_position: int64, any shape, key position - query position
    bidirectional: True: each side has num_buckets/2 buckets, offsets above 0 add num_buckets/2
                   False: all buckets serve the keys behind, offsets above 0 count as 0
    returns: int64 of the same shape, 0 .. num_buckets - 1
    """
    ### BEGIN SOLUTION
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    m = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
    ratio = torch.log(m.clamp(min=1).double() / exact) / math.log(max_distance / exact)
    far = exact + torch.floor(ratio * (side - exact)).long()
    bucket = torch.where(m < exact, m, far.clamp(max=side - 1))
    return bucket + side * (relative_position > 0) if bidirectional else bucket
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First compute $B$, $e$ and $m$ for the two cases. From there on the formula is the same.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.where(m < e, m, far)` chooses, but computes both: keep the logarithm away from 0 with `m.clamp(min=1)`.
# </details>

# %% nbgrader={"grade_id": "t5_bucket_check", "grade": true, "points": 0}
# Visible check (0 points).
near = t5_bucket(torch.arange(-7, 8))
lab.must_be_a_tensor(near)
assert near.dtype == torch.int64, f"buckets index a table, so they are int64; yours are {near.dtype}."
assert near[:8].tolist() == [7, 6, 5, 4, 3, 2, 1, 0], f"offsets -7 .. 0 have the buckets 7 .. 0; yours are {near[:8].tolist()}."
assert near[8:].tolist() == [17, 18, 19, 20, 21, 22, 23], (
    f"keys ahead, offsets 1 .. 7, have the buckets 17 .. 23; yours are {near[8:].tolist()}.")
for offset, bucket in ((-10, 8), (10, 24), (-80, 14), (80, 30), (-5000, 15)):
    got = int(t5_bucket(torch.tensor(offset)))
    assert got == bucket, (f"offset {offset}: bucket {bucket} expected, got {got}. e is 8; floor, not rounding; no bucket of a "
                           "side is above B - 1 = 15.")
causal = t5_bucket(torch.tensor([-15, -5, 0, 5]), bidirectional=False)
assert causal.tolist() == [15, 5, 0, 0], (
    f"causal: offsets -15, -5, 0, 5 have the buckets 15, 5, 0, 0; yours are {causal.tolist()}. B is all 32, and keys "
    "ahead count as distance 0.")
assert int(t5_bucket(torch.tensor(-9), True, 8, 20)) == 3, "num_buckets and max_distance must both be used."
assert tuple(t5_bucket(torch.zeros(2, 3, dtype=torch.int64)).shape) == (2, 3), "the shape stays as it was."
# It computes where its inputs are, on any device.
lab.follows_the_device(t5_bucket, torch.arange(-4, 5))
lab.follows_the_device(lambda x: t5_bucket(x, bidirectional=False), torch.arange(-4, 5))
print("Looks right. The hidden tests try other offsets and sizes.")

# %% nbgrader={"grade_id": "t5_bucket_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.t5_bucket(t5_bucket)
### END HIDDEN TESTS

# %% [markdown] tags=["prediction"]
# **Predict.** (a) From which distance on do all keys share the last bucket: 128? (b) Is there a bucket that no offset ever uses?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.3: run this cell
offset = torch.arange(-150, 151)
two_sided, causal = t5_bucket(offset), t5_bucket(offset, bidirectional=False)
fig, (left, right) = lab.figure("T5's 32 buckets", ncols=2, height=3.3, width_ratios=(1.5, 1))
left.step(offset, two_sided, where="mid", color=lab.BLUE, linestyle="-", label="two sides")
left.step(offset, causal, where="mid", color=lab.VERMILLION, linestyle="--", label="causal")
left.set(title="bucket of every offset", xlabel="offset j − i (positions)", ylabel="bucket", ylim=(-1, 32))
left.grid(axis="y")
left.legend(loc="center right")
distance = torch.arange(0, 400)
widths = torch.bincount(t5_bucket(-distance), minlength=16)[:15]
right.bar(range(15), widths, color=lab.SKY)
right.set(title="distances per bucket, keys behind", xlabel="bucket (two sides; 15 is endless)", ylabel="distances", xticks=range(0, 15, 2))
plt.show()
last = {name: int(distance[t5_bucket(-distance, both) == top][0]) for name, both, top in (("two sides", True, 15), ("causal", False, 31))}
unused = sorted(set(range(32)) - set(t5_bucket(torch.arange(-3000, 3001)).tolist()))
lab.table(["", "first distance in the last bucket"], list(last.items()))
print("buckets that two-sided offsets never use:", unused)

# %% [markdown]
# **Figure 6.3. Buckets.** Left: single steps near 0, then steps that grow; the causal form has sixteen single ones, on one side. Right: near buckets hold one distance, far ones many.

# %% tags=["experiment"]
lab.moving_buckets(t5_bucket)


# %% [markdown]
# **Figure 6.4. Buckets to move.** This is your own function. Move the offset with the mouse or the slider: the band marks all offsets that share its bucket. Walk out from 0 on both sides, and watch when the band begins to grow.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# So the last bucket begins before 128: at 91 with two sides, at 113 in the causal form. And bucket 16 would be "distance 0, ahead", which does not exist.
#
# A trap for your own tests: for keys behind, the two forms agree up to distance 8. Short causal texts cannot tell wrong buckets from right ones.
# </details>

# %% [markdown]
# ### Exercise 6.7 · T5's attention
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* with your bucket function it takes ten lines, and it runs Flan-T5.

# %% nbgrader={"grade_id": "t5_attention", "solution": true}
def t5_attention(q, k, v, table, is_causal=False, max_distance=128):
    """Attention by equation (4): scores not scaled, one learned number per bucket and head.

    q: (batch, heads, n_queries, head_dim); k: (batch, heads, n_keys, head_dim); v: (batch, heads, n_keys, v_dim)
    table: (num_buckets, n_heads)
    is_causal: True: causal buckets, and keys after the query are hidden; the queries are the last of the keys' positions
    returns: out (batch, heads, n_queries, v_dim), weights (batch, heads, n_queries, n_keys)
    """
    ### BEGIN SOLUTION
    offset = relative_positions(q.shape[-2], k.shape[-2]).to(q.device)
    bucket = t5_bucket(offset, not is_causal, table.shape[0], max_distance)
    scores = q @ k.mT + table[bucket].permute(2, 0, 1)  # (n_queries, n_keys, heads) -> heads first
    if is_causal:
        scores = scores.masked_fill(offset > 0, -math.inf)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `table[bucket]` has shape `(n_queries, n_keys, n_heads)`. Which axis must come first?
# </details>
#
# <details><summary>Hint 2</summary>
#
# `bidirectional` is `not is_causal`. `num_buckets` is `table.shape[0]`.
# </details>

# %% nbgrader={"grade_id": "t5_attention_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(2)
q, k, v = torch.randn(3, 2, 3, 6, 4, generator=generator)
result = t5_attention(q, k, v, torch.zeros(32, 3))
assert isinstance(result, (tuple, list)) and len(result) == 2, "return two things: (out, weights)."
out, weights = result
assert tuple(out.shape) == (2, 3, 6, 4) and tuple(weights.shape) == (2, 3, 6, 6), (
    f"out (2, 3, 6, 4) and weights (2, 3, 6, 6) expected, got {tuple(out.shape)} and {tuple(weights.shape)}.")
assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 6)), "the weights of a query add up to 1: softmax over the keys."
assert torch.allclose(weights, (q @ k.mT).softmax(-1), atol=1e-5), (
    "with a table of zeros the weights are softmax(q.k): T5 does not divide by sqrt(head_dim).")
assert torch.allclose(out, weights @ v, atol=1e-5), "out must be the weighted mean of the values: weights @ v."
table = torch.zeros(32, 3)
table[2, 1] = 5.0  # two back, in head 1
weights = t5_attention(0 * q, k, v, table)[1]
assert int(weights[0, 1, 4].argmax()) == 2 and float(weights[0, 0, 4].std()) < 1e-6, (
    "the table likes bucket 2 (two back) in head 1 alone: query 4 looks at key 2 there, and everywhere alike in the others.")
table = torch.randn(32, 3, generator=generator)
weights = t5_attention(q, k, v, table, is_causal=True)[1]
assert bool((weights.triu(1) == 0).all()), "is_causal: keys after the query must have zero weight."
assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 6)), "is_causal: the visible weights add up to 1: hide keys before the softmax."
short = t5_attention(q[:, :, 4:], k, v, table, is_causal=True)[1]
assert torch.allclose(short, weights[:, :, 4:], atol=1e-5), "the last two queries alone must get the weights they have among all six."
few = torch.randn(8, 3, generator=generator)
got = t5_attention(0 * q, k, v, few, is_causal=True)[1][0, 0, 5]
want = few[[4, 4, 3, 2, 1, 0], 0].softmax(-1)
assert torch.allclose(got, want, atol=1e-5), (
    "8 buckets, causal: the keys 0 to 5 of query 5 lie in the buckets 4, 4, 3, 2, 1, 0. A causal layer has causal buckets, and "
    "the number of buckets is the number of rows of the table.")
# It computes where its inputs are, on any device.
lab.follows_the_device(t5_attention, *(torch.ones(1, 2, 3, 4),) * 3, torch.ones(32, 2))
lab.follows_the_device(lambda *given: t5_attention(*given, is_causal=True), *(torch.ones(1, 2, 3, 4),) * 3, torch.ones(32, 2))
print("Looks right. The hidden tests try longer texts and other tables.")

# %% nbgrader={"grade_id": "t5_attention_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.t5_attention(t5_attention, relative_positions, t5_bucket)
### END HIDDEN TESTS

# %% [markdown]
# ### Demonstration: T5 without the sign
#
# Suppose T5's bias were symmetric: take the bucket of $-|j-i|$ for both sides. Sequences of numbers run up or down; one layer with T5's bias, without a mask, must say which. It is trained on 8 numbers and tested on 8 and on 32.

# %% [markdown] tags=["prediction"]
# **Predict.** Accuracy of the signed and of the symmetric bias. (Exercise 4.8 settles one of the two.)
#
# *Your prediction:*

# %% tags=["experiment"]
with open("week6_results.json", encoding="utf-8") as file:
    results = json.load(file)
made = results["made_with"]


def spread(per_seed, digits=2):
    """mean [lowest..highest seed], for every length"""
    return [f"{np.mean(c):.{digits}f} [{min(c):.{digits}f}..{max(c):.{digits}f}]" for c in zip(*per_seed)]


print(f"{made['seeds']} training seeds, torch {made['torch']}, Python {made['python']}; mean [lowest..highest]")
lab.table(["ascending or reversed?", *(f"{n} numbers" for n in results["tested"]["sign"])],
          [[f"T5, {label}", *spread(results["sign"][arm])] for arm, label in (("signed", "signed"), ("absolute", "symmetric"))])


# %% [markdown]
# <details><summary>After you have run it</summary>
#
# With the sign the layer solves the task, and mostly still does at four times the length. Without it a sequence and its reverse look the same (4.8).
# </details>

# %% [markdown]
# ## 5 · DeBERTa: let position ask, too
#
# In Shaw's score the *query* meets a vector of the offset: "I look for something three back". DeBERTa (He et al., 2021, section 3.1) adds the mirror image. The *key* meets a vector of the offset as well: "I want to be read by the token three ahead."
#
# $$s_{ij}=\frac{\overbrace{q_i\cdot k_j}^{\text{content to content}}+\overbrace{q_i\cdot p^k_{\delta(i,j)}}^{\text{content to position}}+\overbrace{p^q_{\delta(i,j)}\cdot k_j}^{\text{position to content}}}{\sqrt{3d}},\qquad \delta(i,j)=\text{clamp}(i-j+s,\ 0,\ 2s-1). \tag{5}$$
#
# The tables $p^k$ and $p^q$ are projections of one table of $2s$ vectors, made by each layer for its heads. Three terms are added, so the scale is $\sqrt{3d}$. Position to position is left out. The *model* still learns absolute positions: its enhanced mask decoder adds them late, just before the masked words are predicted (section 3.2).
#
# **A difference between paper and code.** The paper prints $\delta(j,i)$ in the last term. The authors' code and the one in `transformers` both use $\delta(i,j)$, the same row in both terms. Published weights were trained with the code, so **this exercise follows the code**. For random inputs the two scores differ by about 0.6 on average.

# %% [markdown]
# ### Exercise 6.8 · DeBERTa's scores
#
# **4 points · difficulty 3/5 · 25 minutes · code**
#
# *Why it matters:* 6.11 is about the term that only DeBERTa has.

# %% nbgrader={"grade_id": "deberta_scores", "solution": true}
def deberta_scores(q, k, pos_q, pos_k):
    """Scores by equation (5), before mask and softmax; as many queries as keys.

    q, k: (batch, heads, seq_len, head_dim)
    pos_q, pos_k: (heads, 2*span, head_dim); queries meet pos_k, keys meet pos_q, both at row delta(i, j)
    returns: (batch, heads, seq_len, seq_len)
    """
    ### BEGIN SOLUTION
    seq_len, span = q.shape[-2], pos_k.shape[-2] // 2
    row = (span - relative_positions(seq_len, seq_len)).to(q.device).clamp(0, 2 * span - 1)
    # 2*span products each, then pick; in the last term the key is the row of the product, so turn it round
    to_position = (q @ pos_k.mT).gather(-1, row.expand(*q.shape[:3], seq_len))
    to_content = (k @ pos_q.mT).gather(-1, row.mT.expand(*q.shape[:3], seq_len)).mT
    return (q @ k.mT + to_position + to_content) / math.sqrt(3 * q.shape[-1])
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Build `row` of shape `(n, n)` first. It is `span` minus your offsets, clamped.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `pos_k[:, row]` has shape `(heads, n, n, head_dim)`. `torch.einsum("bhid,hijd->bhij", q, pos_k[:, row])` is the second term.
# </details>
#
# <details><summary>Hint 3</summary>
#
# The third term is the second with the other table, `pos_q`: here the *key* meets the vector, so its letter is `j`. The row stays the same.
# </details>

# %% nbgrader={"grade_id": "deberta_scores_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(3)
q, k = torch.randn(2, 2, 3, 5, 4, generator=generator)
pos_q, pos_k = torch.randn(2, 3, 6, 4, generator=generator)  # span 3
none = torch.zeros(3, 6, 4)
before = q.clone()
scores = deberta_scores(q, k, none, none)  # an error here? a table has the rows 0 .. 5, that is 2*span - 1
assert torch.equal(q, before), "your function changed q itself; work on new tensors."
lab.must_be_a_tensor(scores)
assert tuple(scores.shape) == (2, 3, 5, 5), f"shape (2, 3, 5, 5) expected, got {tuple(scores.shape)}."
assert torch.allclose(scores, q @ k.mT / math.sqrt(12), atol=1e-5), "with tables of zeros the scores are q.k / sqrt(3*head_dim)."
scores = deberta_scores(q, 0 * k, none, pos_k)
for i, j, row in ((2, 2, 3), (3, 1, 5), (1, 3, 1), (4, 0, 5), (0, 4, 0)):
    want = (q[:, :, i] * pos_k[:, row]).sum(-1) / math.sqrt(12)
    assert torch.allclose(scores[:, :, i, j], want, atol=1e-5), (
        f"keys zero: query {i} and key {j} meet row {row} of pos_k (i - j + span, clamped to 0 .. 5), and this "
        "term is divided, too.")
scores = deberta_scores(0 * q, k, pos_q, none)
for i, j, row in ((2, 2, 3), (3, 1, 5), (1, 3, 1)):
    want = (k[:, :, j] * pos_q[:, row]).sum(-1) / math.sqrt(12)
    assert torch.allclose(scores[:, :, i, j], want, atol=1e-5), (
        f"queries zero: key {j}, read by query {i}, meets row {row} of pos_q, the same row delta(i, j) as in the other term.")
together = deberta_scores(q, k, pos_q, pos_k)
parts = deberta_scores(q, k, none, pos_k) + deberta_scores(0 * q, k, pos_q, none)
assert torch.allclose(together, parts, atol=1e-4), "the three terms add up, nothing else."
# It computes where its inputs are, on any device.
lab.follows_the_device(deberta_scores, *(torch.ones(1, 2, 3, 4),) * 2, *(torch.ones(2, 4, 4),) * 2)
print("Looks right. The hidden tests compare values, within the span and beyond it.")

# %% nbgrader={"grade_id": "deberta_scores_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.deberta_scores(deberta_scores)
### END HIDDEN TESTS

# %% [markdown]
# ## 6 · What each costs
#
# Take a layer of width $768$ with 12 heads of 64. How many numbers does each method learn, and what must lie in memory for a text of 4,096 tokens?

# %% [markdown]
# ### Exercise 6.9 · Costs by hand
#
# **2 points · difficulty 1/5 · 12 minutes · numbers**
#
# *Why it matters:* "relative encodings are slow" is said of all of them, and one way to write Shaw's is to blame.

# %% tags=["by-hand"] nbgrader={"grade_id": "costs_by_hand", "solution": true}
# Replace every None by a number.
costs_by_hand = {
    "shaw_layer": None,  # parameters of Shaw's tables in one layer, clip 16, keys and values
    "t5_model": None,  # parameters of T5's bias in a whole stack of layers, 32 buckets
    "xl_layer": None,  # parameters of W_kR alone in one layer of Transformer-XL: from width 768 to all heads
    "deberta_table": None,  # parameters of DeBERTa's one table of relative positions, span 512, width 768
    "shaw_gib": None,  # GiB (2**30 bytes) of one table of vectors per pair, (n, n, 64), n = 4096, 2 bytes a number
}
### BEGIN SOLUTION
costs_by_hand |= {
    "shaw_layer": 4224,  # 2 tables * (2*16 + 1) rows * 64; the heads share them
    "t5_model": 384,  # 32 * 12; the layers share them
    "xl_layer": 589824,  # 768 * (12*64)
    "deberta_table": 786432,  # 2*512 * 768
    "shaw_gib": 2,  # 4096**2 * 64 * 2 / 2**30
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Ask of each table: who shares it? The heads of a layer (Shaw), all layers (T5, DeBERTa's table), nobody ($W_{kR}$).
# </details>
#
# <details><summary>Hint 2</summary>
#
# A clip of 16 reaches to both sides, and 0 has a row of its own.
# </details>

# %% nbgrader={"grade_id": "costs_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
counts = "shaw_layer", "t5_model", "xl_layer", "deberta_table"
numbers = lab.must_be_numbers(costs_by_hand, *counts, "shaw_gib")
for key, value in numbers.items():
    assert value > 0, f"{key!r} must be a positive number, got {value}."
for key in counts:
    assert numbers[key] == int(numbers[key]), f"{key!r} counts parameters: a whole number is expected."
print("Five positive numbers. The hidden tests look at their values.")

# %% nbgrader={"grade_id": "costs_by_hand_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week6
week6.costs_by_hand(costs_by_hand)
### END HIDDEN TESTS

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.5: run this cell
costs = results["costs"]
length = results["tested"]["costs"][0]
fig, ax = lab.figure(f"One attention of {length:,} tokens, 8 heads of 64, one CPU thread", height=2.8)
means = {arm: np.mean(rows) for arm, rows in costs.items()}
for place, (arm, rows) in enumerate(costs.items()):
    ax.barh(place, means[arm], color=lab.VERMILLION if arm.endswith("pair") else lab.SKY)
    ax.plot([min(rows)[0], max(rows)[0]], [place, place], color=lab.BLACK, linestyle="-", linewidth=1.5)
ax.set_yticks(range(len(costs)), list(costs))
ax.invert_yaxis()
ax.set(xlabel=f"CPU time (ms): best of five, mean and range over {made['seeds']} runs")
ax.set_axisbelow(True)
ax.grid(axis="x")
plt.show()
extra = {"plain attention": 0, "T5's bias": 8 * length**2, "Shaw, 33 products and a gather": 8 * length * (33 + length),
         "Transformer-XL's shift": 2 * 8 * length**2, "DeBERTa, span 32": 2 * 8 * length * (64 + length),
         "Shaw, a vector per pair": 2 * length**2 * 64}
lab.table(["", "beyond plain attention (MiB, float32)"], [[arm, f"{extra[arm] * 4 / 2**20:,.0f}"] for arm in costs])

# %% [markdown]
# **Figure 6.5. Time.** Red: Shaw's equation as it is printed, with a vector for each pair of tokens, in both of its terms. "33 products and a gather": the same result without those vectors.

# %% [markdown]
# All forms but the red one cost 1.6 to 2.6 times plain attention here. (T5's bar includes the buckets, which a model computes once.)

# %% [markdown] nbgrader={"grade_id": "t5_against_deberta_question", "locked": true}
# ### Exercise 6.10 · T5 against DeBERTa
#
# **3 points · difficulty 3/5 · 30 minutes · text, graded by a person**
#
# *Why it matters:* one encoder adds a single number for position; the other adds two dot products. What does that gain?
#
# 1. Take the four terms of exercise 2.7. Which one does T5's $b$ belong to, and why? Which does DeBERTa keep, and what could the one that it drops say about a text? Point to the parts of (4) and (5).
# 2. T5's bias is not symmetric. Show it with two buckets of the encoder. What can a head do with them? And what about the decoder?
# 3. Which parts of the scores of each method can be computed before the text is known, and why does it matter? Name one thing that DeBERTa pays for its terms.
#
# ### BEGIN MARK SCHEME
# 3 points; half points are allowed.
#
# - 1 point (part 1): T5's b is a position–position term: a number of head and bucket, with neither q nor k in it. DeBERTa keeps content–content (q·k), content–position (q·p^k) and position–content (p^q·k). Position–position, which it drops, would say nothing about a text: it would be one number per head and offset, like T5's b. Half a point if only one method is right, or if a reason is missing.
# - 1 point (part 2): in the encoder offsets above 0 have buckets of their own, so b(+3) and b(-3) are separate parameters (buckets 19 and 3). A head can like one side and dislike the other, so it can tell a sequence from its reverse. In the decoder keys ahead would share bucket 0 and are masked. Half a point if the example, its use or the decoder is missing.
# - 1 point (part 3): T5's whole bias depends on positions and weights alone, so it can be computed once, for all texts and (shared table) for all layers; only q·k needs the text. In DeBERTa nothing of the scores can be computed before the text: both position terms contain q or k. Only the projected tables pos_q and pos_k can be prepared (in inference). It matters for speed and caching. What DeBERTa pays: two more products and two picks per layer, projections per layer, the scale sqrt(3d), no plain fast kernel. Half a point for either half.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "t5_against_deberta", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. **T5's** $b_{h,\text{bucket}(j-i)}$ is position–position: neither $q$ nor $k$ occurs in it. **DeBERTa** keeps content–content ($q_i\cdot k_j$), content–position ($q_i\cdot p^k_\delta$) and position–content ($p^q_\delta\cdot k_j$). It drops position–position, which would be one number per head and offset, like T5's $b$, whatever the text says.
#
# 2. Offset $-3$ has bucket 3, offset $+3$ bucket 19, and these are two parameters. So a head can like the token three back and dislike the one three ahead, and tell a sequence from its reverse. In the decoder keys ahead are masked (all of them would share bucket 0).
#
# 3. T5's bias contains no content. It can be computed once for a length and used for every text, and by every layer, since they share the table. In DeBERTa both position terms contain $q$ or $k$, so none of the scores is known before the text. What can be prepared are the projected tables $p^k$ and $p^q$ of each layer. DeBERTa pays with two more products and two picks in every layer, and with a score that no plain fast kernel computes.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Cover the symbol $q$ in (4) and (5), then cover $k$. What is left?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which buckets do $+3$ and $-3$ have?
# </details>
#
# <details><summary>After you have answered</summary>
#
# Even if it is computed beforehand, T5's bias is a full matrix, which a fast kernel must read or compute again.
# </details>

# %% [markdown]
# ## 7 · Pull and push
#
# Now the question of the week: which method can learn what? We take two tasks, as small as possible. A token is a payload (one of 8 symbols) and an offset $o$ from 1 to 4. The answer at position $i$ is the payload
#
# - **pull**: of position $i-o_i$, if there is one; other positions are not scored. The *query* knows how far back to look.
# - **push**: of the position $j$ with $j+o_j=i$. The *key* knows where it wants to be read. (Only positions with exactly one such $j$ are scored.)
#
# We train one causal attention layer, 2 heads of 16 and a linear read-out, for 300 steps on texts of 16 tokens, and test on 16 and on 64. The two tasks and the training loop are in `relative_tasks.py`.
#
# **What is "not learned"?** Blind guessing gives 0.125. But a model that sees the last four payloads can do better without knowing which one is meant: it names the commonest. We call this guess the *bag*.

# %% tags=["experiment"]
bags = torch.cartesian_prod(*[torch.arange(8)] * 4)  # every combination of four payloads
bag = F.one_hot(bags).sum(1).amax(1).float().mean().item() / 4
print(f"the commonest of the last four is right in {bag:.3f} of the cases")

# %% [markdown] tags=["prediction"]
# **Predict**, with equations (2) to (5) at hand: who learns pull, who learns push? The candidates are T5, Shaw (keys only), Transformer-XL, DeBERTa with only one of its position terms, DeBERTa, RoPE. Would T5 do better with more heads or more steps? Does RoPE, which is relative, keep at 64 tokens what it learned on 16? If not, which of these brings it back without retraining? (a) Hide all but the latest 16 keys. (b) Keep all keys and count every distance above 15 as 15. How large may the limit in (b) be?
#
# *Your prediction:*

# %% tags=["experiment"]
# Trains six small models, four of them with your functions; budget: 60 seconds.
import functools

import relative_tasks as tasks


def with_t5(q, k, v, extra):
    return t5_attention(q, k, v, extra["table"], is_causal=True)[0]


def with_deberta(q, k, v, extra):
    return tasks.masked_attention(deberta_scores(q, k, extra["pos_q"], extra["pos_k"]), v)


def with_rope(q, k, v, extra, reach=None, window=None):
    """RoPE. Its score needs the distance alone, so we can tell it another one."""
    n, size = q.shape[-2:]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    frequencies = 10000.0 ** (-torch.arange(0, size, 2) / size)
    turn = torch.polar(torch.tensor(1.0), distance.clamp(0, reach)[..., None] * frequencies)  # clipped at reach
    q, k = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    scores = torch.einsum("bhid,bhjd,ijd->bhij", q, k.conj(), turn).real / math.sqrt(size)
    if window is not None:
        scores = scores.masked_fill(distance >= window, -math.inf)
    return tasks.masked_attention(scores, v)


def said(accuracy):
    return "above 0.95" if accuracy > 0.95 else "below 0.85" if accuracy < 0.85 else "between"


arms = {"T5": (with_t5, {"table": (32, 2)}), "DeBERTa": (with_deberta, {"pos_q": (2, 16, 16), "pos_k": (2, 16, 16)}),
        "RoPE": (with_rope, {})}
threads = torch.get_num_threads()
torch.set_num_threads(1)
live = {(name, task): tasks.train(task, *arm, seed=0) for name, arm in arms.items() for task in ("pull", "push")}
lab.table(["16 tokens, one seed", "pull", "push"],
          [[name, *(said(tasks.accuracy(live[name, task], task, 16)) for task in ("pull", "push"))] for name in arms])
print()
rows = []
for name, change in {"as it is": {}, "(a) the latest 16 keys": {"window": 16}, "(b) all keys, distances clipped at 15": {"reach": 15}}.items():
    rows.append([name])
    for task in ("pull", "push"):
        live["RoPE", task].attention = functools.partial(with_rope, **change)
        rows[-1].append(said(tasks.accuracy(live["RoPE", task], task, 64)))
lab.table(["the same RoPE models, 64 tokens", "pull", "push"], rows)
torch.set_num_threads(threads)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.6: run this cell
looks = {"T5": (lab.BLUE, "o"), "T5, 8 heads": (lab.SKY, "o"), "Shaw, keys only": (lab.GREEN, "s"), "Transformer-XL": (lab.ORANGE, "s"),
         "DeBERTa, content to position alone": (lab.PURPLE, "D"), "DeBERTa, position to content alone": (lab.PURPLE, "d"),
         "DeBERTa": (lab.BLACK, "D"), "RoPE": (lab.VERMILLION, "^")}
fig, axes = lab.figure("Accuracy of one layer, five training seeds each", ncols=2, height=3.6, sharey=True)
for ax, task, title in zip(axes, ("pull", "push"), ("pull: the query knows", "push: the key knows")):
    for place, (arm, (colour, marker)) in enumerate(looks.items()):
        at_16, at_64 = np.array(results[task][arm]).T
        ax.plot(at_16, [place - 0.15] * 5, marker, color=colour, markersize=5, linestyle="none")
        ax.plot(at_64, [place + 0.2] * 5, marker, color=colour, markersize=5, linestyle="none", markerfacecolor="none")
    ax.axvline(bag, color=lab.GREY, linewidth=1, linestyle=":")
    ax.text(bag + 0.01, 6, "bag (guess)", fontsize=9, color="#444444", va="center")
    ax.set(title=title, xlabel="accuracy", xlim=(0.2, 1.05))
    ax.grid(axis="x")
axes[0].set_yticks(range(len(looks)), list(looks))
axes[0].invert_yaxis()
for face, label in (("#444444", "16 tokens, as in training"), ("none", "64 tokens")):
    axes[1].plot([], [], "o", color="#444444", markerfacecolor=face, linestyle="none", label=label)
fig.legend(*axes[1].get_legend_handles_labels(), loc="upper right", ncols=2)
plt.show()
lengths = results["tested"]["pull"]
for task in ("pull", "push"):
    lab.table([f"{task}: mean [lowest..highest]", *(f"{n} tokens" for n in lengths)],
              [[arm, *spread(results[task][arm])] for arm in looks])
    print()

# %% [markdown]
# **Figure 6.6. Pull and push.** One mark per training seed; filled: 16 tokens, open: 64. Dotted ("bag"): guessing the commonest of the last four payloads, 0.41. (Early positions have fewer, so at 16 tokens the guess is worth more: on pull 0.43.)

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.7: run this cell
deberta, t5 = live["DeBERTa", "pull"], live["T5", "push"]
with torch.no_grad():
    naming = deberta.payload.weight.mean(0) + deberta.offset.weight[1:]  # queries that name 1 to 4
    q = deberta.project(naming).unflatten(-1, (3, 2, 16))[:, 0]
    to_position = torch.einsum("ohd,htd->hot", q, deberta.extra["pos_k"][:, 8:]) / math.sqrt(48)  # distances 0 to 7
    panels = {"DeBERTa on pull, head 0": to_position[0], "DeBERTa on pull, head 1": to_position[1],
              "T5 on push": t5.extra["table"].detach()[:8].T}
fig, axes = lab.figure("What a table has learned (one seed)", ncols=3, height=2.7)
for ax, (name, scores) in zip(axes, panels.items()):
    heads = len(scores) == 2
    limit = float((scores if heads else to_position).abs().max())  # one for both heads of DeBERTa
    image = lab.heatmap(ax, scores, name, limit=limit, xlabel="distance", ylabel="head" if heads else "offset named")
    ax.set_yticks(range(len(scores)), ["0", "1"] if heads else ["1", "2", "3", "4"])
    if ax is not axes[0]:
        fig.colorbar(image, ax=ax if heads else axes[:2], location="bottom", aspect=30, fraction=0.08)
plt.show()

# %% [markdown]
# **Figure 6.7. Learned tables.** What position adds to the score: red attracts, blue repels. DeBERTa: a row is a query that names an offset. T5: a row is a head, whatever the query says.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# | expected | measured, five seeds |
# |---|---|
# | Where the query meets positions (Shaw, Transformer-XL, content to position), pull is learned | yes, by every seed, and it holds at 64 |
# | Where the key meets positions (position to content), push is learned | yes, by every seed, and it holds at 64 |
# | Each of DeBERTa's terms alone fails at the other task; both together learn both | with 2 heads and 300 steps, yes: content to position 0.68 [0.66..0.69] on push, position to content 0.56 [0.45..0.62] on pull. With 4 heads and 1,500 steps the expectation **failed**: 0.89 [0.86..0.90] on push and 1.00 [1.00..1.00] on pull. Here heads do more than steps, although four heads of 8 are no wider than two of 16: 4 heads and 300 steps reach 0.88 [0.84..0.90] and 0.91 [0.78..0.96], 2 heads and 1,500 steps 0.68 [0.67..0.69] and 0.67 [0.58..0.71] |
# | T5, whose bias meets neither query nor key, learns neither task | with 2 heads and 300 steps it learns a part, on pull in two seeds of five: 0.50 [0.42..0.61] on pull, where the bag gives 0.43 at 16 tokens, and 0.63 [0.49..0.67] on push |
# | "T5 fails even with more heads or more steps" | **failed**: 8 heads reach 0.86 [0.81..0.92] on pull and 0.77 [0.72..0.81] on push; 4 heads and 1,500 steps reach 0.96 [0.79..1.00] and 0.89 [0.80..0.95], at 64 tokens 0.95 and 0.87. On pull four heads need the steps, too: 4 heads and 300 steps reach 0.53 [0.42..0.61], 2 heads and 1,500 steps 0.50 [0.42..0.62] |
# | "RoPE is relative, so offsets of at most 4 hold at any length" | **failed**: perfect at 16 tokens; at 64 only 0.64 [0.54..0.78] on pull and 0.67 [0.61..0.78] on push |
#
# **Added scores become products.** $e^{s+b}=e^s\,e^b$: a weight is a product of what the content says and what the distance says. On push, let a head's content prefer keys that name 3, and its bias distance 3. Only a key with both gets both factors. So a head can check a pair, "names 3, lies 3 back", and several heads can share the four pairs.
#
# Two heads must share four distances: in Figure 6.7 (right, one seed) head 0 takes 2 and 4, head 1 takes 1 and 3. Head 1 then cannot tell "names 1, lies 3 back" from "names 1, lies 1 back": the factors are nearly the same. So two heads are too few, and for content to position more steps did not help (0.68).
#
# So what two heads fail at is not what the method cannot learn: with four heads and 1,500 steps T5 reaches 0.96 on pull, and position to content alone reaches 1.00.
#
# **What breaks RoPE at 64.** Four arms of the same trained models, mean [lowest..highest] of five seeds (16 keys: the right one and 15 drawn at random):
#
# | 64 tokens | 16 keys | all keys |
# |---|---|---|
# | pull, distances clipped at 15 | 1.00 [1.00..1.00] | 1.00 [1.00..1.00] |
# | pull, new distances | 0.83 [0.75..0.91] | 0.64 [0.54..0.78] |
# | push, distances clipped at 15 | 1.00 [1.00..1.00] | 1.00 [1.00..1.00] |
# | push, new distances | 0.83 [0.79..0.90] | 0.67 [0.61..0.78] |
#
# For each task compare the rows, then the columns. A clip anywhere from 5 to 15 repairs both tasks, and so does a window of 5 to 16 keys. A clip at 19 begins to fail (push: 0.96, from 0.82 to 1.00), and a window fails between 20 and 24 keys.
#
# Near distance 20 pair 1 comes round for the first time (a turn takes 19.9), and it does the damage. In a window of 24 keys pull has 0.76 and push 0.79. With pair 1 alone clipped at 15 both have 1.00, with pair 0 alone 0.88 and 0.80.
#
# The price of a clip or a window: a window cannot see far keys, and a clip cannot tell them apart. These tasks do not need far keys.
#
# More: `experiments/results_distances.md` and `results_week6.md`.
# </details>
#
# Here is pull, offset by offset. Compare with the bag, which has 0.46, 0.43, 0.42 and 0.41 at offsets 1 to 4. (Positions 1 to 3 have fewer candidates: all three count for offset 1, two for offset 2, one for offset 3.) Which run has learned which offset?

# %% tags=["experiment"]
offsets = results["tested"]["by_offset"]
lab.table(["pull at 16 tokens", *(f"offset {o}" for o in offsets)],
          [[f"{arm}, seed {seed}", *(f"{a:.2f}" for a in row)]
           for arm, rows in results["by_offset"].items() for seed, row in enumerate(rows)])

# %% [markdown] nbgrader={"grade_id": "pull_and_push_question", "locked": true}
# ### Exercise 6.11 · Pull and push
#
# **3 points · difficulty 4/5 · 55 minutes · text, graded by a person**
#
# *Why it matters:* "which terms does it keep" is the question to ask of every new encoding you read about.
#
# Open the fold below Figure 6.7 first: you need its numbers.
#
# 1. Use equation (5) to explain: *one head* that has only content to content and content to position can solve pull but not push. Replace content to position by position to content, and it can solve push but not pull. What must the vectors hold?
# 2. Show that with (4), for one head, the ratio of the weights of two keys with equal content does not depend on the query's content. Why is that fatal for pull with one head? On push a head can check a pair ("Added scores become products", in the fold below Figure 6.7). Pull needs another way. How can several heads solve it?
# 3. RoPE solves both tasks at 16 tokens. Which of its properties makes that possible? At 64 it fails. What do the four arms settle about "too many keys" and "new distances"? And what about the sentence "the score sees only the offset, never the positions, so it generalises to longer texts"? Give the numbers with their spread.
#
# ### BEGIN MARK SCHEME
# 3 points; half points are allowed.
#
# - 1 point (part 1): q_i carries o_i, so q_i·p^k_δ can be large exactly where i - j = o_i: rows span+1 .. span+4 hold a code of "offset 1..4" that matches the query's code. Push needs the score to depend on o_j and i - j together, but in q·k + q·p^k the key's content and the offset are only added. That settles one head only: several can divide the pairs among them, as in part 2. Mirror argument for p^q_δ·k_j. Half a point if only one direction is argued.
# - 1 point (part 2): for equal keys k_j = k_l: w_ij/w_il = exp(b(j-i) - b(l-i)), no q_i in it. In pull the wanted offset depends on the query's content, so a head with a fixed preference is right for one offset at most. Several heads: each prefers one offset, and content–content can silence a head (a content match outweighs the bias and draws the weight to one payload), so the sum over heads can choose. Half a point without the several heads. Another sensible mechanism that uses q·k to switch heads is accepted. "T5 cannot learn it" as a conclusion: at most half a point, for four heads and 1,500 steps reach 0.96 [0.79..1.00].
# - 1 point (part 3): RoPE's score is a function of q, k and the offset in which all three are multiplied (rotation of q and k), so both the query's and the key's content meet the offset. The arms: all 64 keys at familiar distances (clipped at 15) give 1.00, so more keys alone do no harm; 16 keys at new distances give 0.83, all keys 0.64 [0.54..0.78] on pull and 0.67 [0.61..0.78] on push, so new distances are needed and the number of keys at them decides how much. Relative does not mean extrapolating: the sentence is true of the form and says nothing about values at unseen offsets. Half a point without numbers, or with "more keys" as a cause of its own.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "pull_and_push", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. In pull the query's embedding holds $o_i$. Content to position, $q_i\cdot p^k_{\delta(i,j)}$, is a table of "query content × offset": if the row of offset $o$ holds the code of $o$, and the query projects $o_i$ to that code, the score is large exactly where $i-j=o_i$. In push the wanted key is the one with $i-j=o_j$: the score must depend on the *key's* content and the offset together. In $q_i\cdot k_j+q_i\cdot p^k_\delta$ the key's content and the offset are only added: one head can check one pair of them, not all four. For position to content, $p^q_\delta\cdot k_j$, query and key are exchanged: one head has one order of preference among offsets, whatever the query names, so it serves one of four.
#
# 2. Let $k_j=k_l$. Then $w_{ij}/w_{il}=e^{s_{ij}-s_{il}}=e^{b(j-i)-b(l-i)}$: the content of the query has cancelled. So one head has one order of preference among offsets, whatever the query says; in pull it can be right for one offset of four. With several heads each can prefer offsets of its own. The content term can silence a head for some queries: a match $q_i\cdot k_j$ that is larger than every difference of biases draws its weight to a payload that the query sets. Then the sum over heads follows the query: 8 heads reach 0.86 [0.81..0.92] instead of 0.50 [0.42..0.61], and 4 heads with 1,500 steps 0.96 [0.79..1.00].
#
# 3. RoPE rotates $q$ and $k$ by their positions before the product, so the score is bilinear in $q_i$ and $k_j$ with a matrix that depends on the offset: content of the query, content of the key and offset all meet. At 16 tokens it is perfect on both tasks. At 64 it has 0.64 [0.54..0.78] on pull and 0.67 [0.61..0.78] on push, though the wanted offsets are still 1 to 4. More keys are not the cause by themselves: with all 64 keys and distances clipped at 15 it has 1.00 [1.00..1.00] on both. New distances are: with 16 keys at their true distances it has 0.83 [0.75..0.91] and 0.83 [0.79..0.90], and all keys make that worse. True, the score sees only the offset. But from offset 16 on nothing in training kept the score low. Relative does not mean extrapolating.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write the score of pull's wanted key, and of a rival. Which terms differ?
# </details>
#
# <details><summary>Hint 2</summary>
#
# For T5, divide $e^{s_{ij}}$ by $e^{s_{il}}$ for two keys with the same content. And what can a very large $q_i\cdot k_j$ do to a head's bias?
# </details>
#
# <details><summary>After you have answered</summary>
#
# More keys alone do no harm. New distances do, and the number of keys at them decides how much.
# </details>

# %% [markdown]
# ## 8 · Two roads that few took
#
# **A recursion.** Let each position's encoding *grow* out of the one before it by a learned rule. FLOATER (Liu et al., 2020) makes the rule a differential equation, $\dot p=h(t,p)$, and solves it step by step. The encodings do not depend on the text: they are computed once.
#
# **A product.** Use $x\odot(1+p)$ instead of $x+p$. Is that better?

# %% [markdown] tags=["prediction"]
# **Predict.** The task is "is this sequence ascending?", trained on 8 numbers. Which of four encodings still works at 16 and 32: sinusoidal, a learned table added, a learned table multiplied, a recursion (one Runge-Kutta step per position)?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 6.8: run this cell
variants, tested = results["variants"], results["tested"]["variants"]
fig, ax = lab.figure("Ascending? Trained on 8 numbers, five seeds each", height=3.3)
for place, ((name, per_seed), colour, style) in enumerate(zip(variants.items(), lab.COLOURS, lab.LINES)):
    beside = np.array(tested) * 1.025 ** (place - 1.5)  # side by side, not on top of each other
    for seed, values in enumerate(per_seed):
        ax.plot(beside, values, color=colour, linestyle=style, marker="o", markersize=3.5, linewidth=1.4, alpha=0.8,
                label=None if seed else name)
ax.axhline(0.5, color="#DDDDDD", linewidth=5, linestyle="-", zorder=0)
ax.text(tested[0], 0.51, "guessing", color="#444444", fontsize=9)
ax.set_xscale("log", base=2)
ax.set_xticks(tested, [f"{n}\n{n // 8}x" for n in tested])
ax.minorticks_off()
ax.set(xlabel="numbers in the sequence", ylabel="accuracy", ylim=(0.45, 1.02))
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
ax.grid(axis="y")
plt.show()
lab.table(["mean [lowest..highest]", *map(str, tested)], [[name, *spread(rows)] for name, rows in variants.items()])

# %% [markdown]
# **Figure 6.8. Sum, product, recursion.** One thin line per training seed; the four encodings are drawn slightly side by side. Grey: guessing.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# The recursion goes further: at 16 numbers it mostly holds, at 32 two seeds hold (0.98, 1.00), one has 0.68, two are at chance. Our small version extrapolates with some seeds only. The product gains nothing over the sum, since its rows beyond 8 are untrained, too. A *rule* can go on where a table cannot, but it need not: sinusoids are a rule too, and are at chance from 16 on.
# </details>

# %% [markdown]
# ## 9 · Test yourself
#
# Answer aloud, then open.
#
# <details><summary>1. Which methods of this week add to the scores a number that does not depend on the text?</summary>
#
# T5 (learned, by bucket); week 4's ALiBi does the same with fixed numbers. Transformer-XL has such a part too, $v\cdot r_{i-j}$, beside one that depends on the query.
# </details>
#
# <details><summary>2. What is above the diagonal after Transformer-XL's shift?</summary>
#
# Padding, and entries of the next row, that is of another query. The causal mask must hide them.
# </details>
#
# <details><summary>3. Why does Transformer-XL have two bias vectors?</summary>
#
# A relative score has no position of the query. One vector replaces it where it met content, the other where it met position.
# </details>
#
# <details><summary>4. What does position to content give DeBERTa?</summary>
#
# Keys that say where they want to be read: "push". Among the others here, only RoPE solved push with two heads and 300 steps.
# </details>
#
# <details><summary>5. Why sqrt(3d)?</summary>
#
# Three terms of similar size are added, so the variance is three times as large.
# </details>
#
# <details><summary>6. Which of these methods would you use with a KV cache?</summary>
#
# All could: each score needs the offset alone, and the queries are the last positions. T5's bias is the simplest, a row of numbers; Transformer-XL needs the distances up to the cache's length. DeBERTa was made for encoders, which have no cache; that is why 6.8 takes as many queries as keys.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | T5's bias is simple and symmetric | The sign has its own buckets. Without it, "ascending or reversed?" stays at 0.5. | section 4 |
# | Shaw indexes with $i-j$ | With the clipped $j-i$ (the paper's section 3.2). SpeechT5 counts the other way (`modeling_speecht5.py`, transformers 5.23). | 6.1 |
# | Relative encodings are slow | A vector per pair is; the others cost about twice plain attention. | Figure 6.5 |
# | `_rel_shift` gives the shifted matrix | Only where the key is not after the query. | Figure 6.2 |
# | DeBERTa's last term uses $\delta(j,i)$ | The paper prints this. Both published codes use $\delta(i,j)$. | 6.8 |
# | FLOATER gives up parallelism | Its encodings do not depend on the text; they are computed ahead. | section 8 |
#
# ## Takeaways
#
# 1. Say which way you count: no error tells key minus query from query minus key.
# 2. Ask of every method who meets the position: the query, the key, both or neither. Added scores become products, so several heads can do what one cannot.
# 3. Relative does not mean extrapolating: here new distances broke RoPE, and more keys at familiar ones did not.
#
# ## References
#
# - P. Shaw, J. Uszkoreit, A. Vaswani: *Self-Attention with Relative Position Representations*, NAACL 2018, arXiv:1803.02155. Section 3.1 (equations), 3.2 (clipping), 3.3 (computing it without the large tensor), 4.1 (tables per layer and head).
# - Z. Dai et al.: *Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context*, ACL 2019, arXiv:1901.02860. Section 3.3, appendix B (the shift). Code: kimiyoung/transformer-xl, `_rel_shift`.
# - C. Raffel et al.: *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, JMLR 2020, arXiv:1910.10683. Section 2.1. Code: [`modeling_t5.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/t5/modeling_t5.py) of transformers 5.23.0, `_relative_position_bucket`.
# - P. He, X. Liu, J. Gao, W. Chen: *DeBERTa: Decoding-enhanced BERT with Disentangled Attention*, ICLR 2021, arXiv:2006.03654. Section 3.1, 3.2 (enhanced mask decoder). Code: [`modeling_deberta.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/deberta/modeling_deberta.py) of transformers 5.23.0, `disentangled_att_bias`; microsoft/DeBERTa, issue 162 (which takes the two codes to differ; they agree).
# - X. Liu, H.-F. Yu, I. Dhillon, C.-J. Hsieh: *Learning to Encode Position for Transformer with Continuous Dynamical Model* (FLOATER), ICML 2020, arXiv:2003.09229.
# - Z. Yang et al.: *XLNet*, NeurIPS 2019, arXiv:1906.08237 (the shift for both sides; [`modeling_xlnet.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/xlnet/modeling_xlnet.py), `rel_shift_bnij`).
