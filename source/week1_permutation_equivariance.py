# %% [markdown]
# # Week 1 · Attention does not know the order
#
# **The question of the week.** "The dog bites the man" and "the man bites the dog" are the same five words. Can a Transformer tell them apart if nobody tells it the position of each word?
#
# <!-- costs of week1_permutation_equivariance -->
#
# ## What you will be able to do
#
# - write attention that is right and stays finite: with any mask, in half precision, with queries that may attend to nothing;
# - compute attention over three tokens by hand, and say what happens when two of them swap positions;
# - measure whether any layer is permutation-*equivariant*, and prove what you find for self-attention;
# - tell equivariant from invariant, and say what averaging over the positions does;
# - write a causal mask that is also right with a KV cache;
# - explain what a model without any positional encoding can know about the order.
#
# **You need** matrix products, softmax, and a little PyTorch (broadcasting, `masked_fill`, autograd). You need not have seen a Transformer before.
#
# **Short of time?** 1.1 is the formula of the course; the ideas are in 1.4 and 1.6.
#
# <!-- points of week1_permutation_equivariance -->
#
# **How points are given.** Each code or number answer has a *visible check*. It carries **0 points**. Run it as often as you like: it says what is wrong and where to look. The *hidden tests* carry **all** the points of such an answer. They run when your notebook is graded, with other inputs and more cases. A passed check is a good sign, not a grade. A person grades the two text answers.
#
# **Cells marked *predict*** ask you to commit to an answer before you run an experiment. They are not graded. Answer them anyway: you will remember a wrong prediction.
#
# **Folded cells** hold checks and the plumbing of figures and training. Run them like any other cell.

# %% [markdown]
# ### Conventions of this course
#
# - Tensors are `(batch, heads, seq_len, head_dim)`. $n$ is the number of tokens, $d$ the **head dimension**.
# - $i$ is the position of a query, $j$ the position of a key, both counted from 0. Row $i$ of a score or weight matrix belongs to query $i$, column $j$ to key $j$.
# - Vectors are rows, as in code: $X$ has one row per token, and $q=xW_q$.
# - In a mask, **True means "may attend"**, as in PyTorch's `F.scaled_dot_product_attention`. In `nn.MultiheadAttention` True means the opposite, "hide". A mask of *floats* is different again: it is **added** to the scores, 0 for "may attend" and $-\infty$ for "hide".
# - Unless told otherwise, your functions keep the dtype and device of their input, let gradients through, and never change an argument in place.

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
# ## 1 · Same words, different meaning
#
# Only the order tells you who got bitten. A recurrent network reads word after word; a convolution looks at neighbours. A Transformer compares every *token*, a word or a piece of one, with all tokens at once, itself included. Its authors saw the consequence. Since the model has "no recurrence and no convolution", they had to put the order in (Vaswani et al., 2017, section 3.5).
#
# This week you leave the order out: you write attention, shuffle its input, and see what it can tell apart. The next weeks put the order in.

# %% [markdown]
# ## 2 · Attention
#
# Each token asks a question, and every token answers. The question is a vector, the *query* $q_i$. Token $j$ offers a *key* $k_j$ and passes on a *value* $v_j$. The *score* says how well question and offer match: it is the dot product of the two, scaled. A softmax turns the scores of one query into *weights*: positive numbers that add up to 1. The output is the weighted mean of the values.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.1: run this cell
words = ["the", "dog", "bites", "the", "man"]
query = torch.tensor([2.0, 0, 1, 1])
keys = torch.tensor([[0.0, 1, 0, 0], [2, 0, 1, 0], [0, -1, 0, 1], [0, 1, 0, 0], [1, 0, 1, 1]])
values = torch.tensor([[0.0, 0, 1], [2, -1, 0], [-1, 1, -2], [0, 0, 1], [1, 2, 0]])
scores = keys @ query / 2
weights = scores.softmax(0)
output = weights @ values

def cells(ax, rows, title):
    ax.imshow(rows, cmap=lab.DIVERGING, vmin=-6, vmax=6, aspect="auto", interpolation="nearest")  # pale: numbers stand on it
    for (i, j), value in np.ndenumerate(np.asarray(rows)):
        ax.text(j, i, f"{value:.0f}" if value == round(float(value)) else f"{value:.1f}", ha="center", va="center", fontsize=9)
    ax.set_title(title, loc="center", fontsize=9.5)
    ax.set_xticks([])
    ax.set_yticks([])

fig, axes = lab.figure("How 'bites' reads its sentence", nrows=3, ncols=4, width=8.6, height=3.9, height_ratios=(1, 5, 1),
                       width_ratios=(4, 3.4, 3.4, 3.4))
for ax in (*axes[0, 1:], *axes[2, :3]):
    ax.axis("off")
cells(axes[0, 0], query[None], "query of 'bites'")
cells(axes[1, 0], keys, "keys")
axes[1, 0].set_yticks(range(5), words)
cells(axes[1, 3], values, "values")
cells(axes[2, 3], output[None], "output: the mixture of the values")
for ax, numbers, title, colour in ((axes[1, 1], scores, "scores $q\\cdot k_j/\\sqrt{d}$", lab.GREY), (axes[1, 2], weights, "weights (softmax)", lab.BLUE)):
    ax.barh(range(5), numbers, color=colour, height=0.6)
    for row, number in enumerate(numbers.tolist()):
        ax.text(max(number, 0) + 0.04 * float(numbers.max()), row, f"{number:.2f}", va="center", fontsize=9)
    ax.set(ylim=(4.5, -0.5), xlim=(0, 1.35 * float(numbers.max())))
    ax.set_title(title, loc="center", fontsize=9.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[["bottom"]].set_visible(False)
plt.show()

# %% [markdown]
# **Figure 1.1. One query.** The query is compared with each key, from top to bottom. The softmax turns five scores into five weights. The output mixes the rows of the values in these proportions.

# %% [markdown]
# For all queries at once, attention is
#
# $$ s_{ij}=\frac{q_i\cdot k_j}{\sqrt d},\qquad a_{ij}=\frac{e^{s_{ij}}}{\sum_{j'}e^{s_{ij'}}},\qquad o_i=\sum_j a_{ij}\,v_j, \tag{1}$$
#
# or, in matrices with one row per token,
#
# $$ \text{out}=\operatorname{softmax}\!\Big(\frac{QK^\top}{\sqrt d}\Big)V . \tag{2}$$
#
# The softmax runs over the **keys**: every row of the weights adds up to 1. The columns do not.
#
# Queries, keys and values are made from the tokens' vectors $x_i$ (in the first layer their *embeddings*) by three learned matrices: $q_i=x_iW_q$, $k_i=x_iW_k$, $v_i=x_iW_v$. One such triple is a *head*. A layer has several heads side by side, each with its own three matrices. Usually $d$ is the width of the model divided by the number of heads. A fourth matrix, $W_o$, mixes the heads' outputs.
#
# **A worked example.** Take one query, two keys and $d=4$, with $q=(2\ln 3,0,0,0)$, $k_0=(1,0,0,0)$, $k_1=(0,0,0,0)$. The dot products are $2\ln3$ and $0$. Divided by $\sqrt4=2$ they are $\ln 3$ and $0$. Their exponentials are $3$ and $1$, so the weights are $\frac34$ and $\frac14$. With the values $v_0=8$ and $v_1=4$ the output is $\frac34\cdot8+\frac14\cdot4=7$.
#
# ### Why divide by $\sqrt d$?
#
# A dot product is a sum of $d$ terms. If the channels of both vectors are independent with mean 0 and variance 1, each term has variance 1 and the sum has variance $d$ (Vaswani et al., section 3.2.1, footnote). So dot products grow like $\sqrt d$. What would the softmax do with such large numbers?

# %% [markdown] tags=["prediction"]
# **Predict.** Take 64 random keys and a random query, first with $d=4$, then with $d=1024$. How much weight does the *strongest* key get on average, with the division by $\sqrt d$ and without it? Equal weights would be $1/64\approx0.016$.
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.2: run this cell
sizes = [4, 16, 64, 256, 1024]
generator = torch.Generator().manual_seed(1)
strongest = {"divided by √d": [], "not divided": []}
for d in sizes:
    query, keys = torch.randn(400, 1, d, generator=generator), torch.randn(400, 64, d, generator=generator)
    raw = (query * keys).sum(-1)  # (400, 64)
    strongest["divided by √d"].append(float((raw / d**0.5).softmax(-1).amax(-1).mean()))
    strongest["not divided"].append(float(raw.softmax(-1).amax(-1).mean()))

fig, ax = lab.figure("Weight of the strongest of 64 random keys", height=3.2, width=7.2)
for (name, share), colour, style, marker in zip(strongest.items(), (lab.BLUE, lab.VERMILLION), ("-", "--"), "os"):
    ax.plot(sizes, share, color=colour, linestyle=style, marker=marker, label=name)
ax.axhline(1 / 64, color=lab.GREY, linewidth=1, linestyle=":")
ax.text(1024, 1 / 64 + 0.015, "all keys alike: 1/64", ha="right", fontsize=9, color="#444444")
ax.set_xscale("log", base=2)
ax.set_xticks(sizes, sizes)
ax.set(xlabel="head_dim d (log scale)", ylabel="weight (mean of 400 queries)", ylim=(0, 1.05))
ax.grid(axis="y")
ax.legend(loc="center right")
plt.show()


# %% [markdown]
# **Figure 1.2. What the scale is for.** The weight of the strongest of 64 random keys, mean of 400 queries. Solid: scores divided by $\sqrt d$. Dashed: not divided. Dotted: equal weights.
#
# <details><summary>After you have run it</summary>
#
# With the division the strongest key gets about the same share at every $d$. Without it, attention at $d=1024$ almost chooses a single key, and for most queries hardly any gradient is left. Training did not make this choice; the number of channels did.
# </details>

# %% [markdown]
# ### Masks
#
# A *mask* says which keys a query may attend to. One use is to hide *padding*: tokens without content, which make all texts of a batch equally long.
#
# A hidden key gets the score $-\infty$ *before* the softmax. Since $e^{-\infty}=0$, the other weights still add up to 1. If you set weights to zero *after* the softmax instead, the others add up to less than 1.

# %% [markdown]
# ### Exercise 1.1 · Scaled dot-product attention
#
# **4 points · difficulty 2/5 · 25 + 25 minutes · code, in two steps**
#
# *Why it matters:* each encoding changes one part of this formula. Week 2 changes the tokens, week 3 queries and keys, week 4 the scores.
#
# **First step:** write equation (1), with a mask. The values may be wider or narrower than the keys. `F.scaled_dot_product_attention` does not return the weights, so use plain tensor operations, `torch.softmax` among them. The check will stop at the second step, which comes later in this section.

# %% nbgrader={"grade_id": "scaled_dot_product_attention", "solution": true}
def scaled_dot_product_attention(q, k, v, mask=None):
    """Attention as in equation (1).

    q:       (batch, heads, n_queries, head_dim), any floating dtype; q, k and v need not be contiguous
    k:       (batch, heads, n_keys, head_dim)
    v:       (batch, heads, n_keys, v_dim); k and v have the dtype of q
    mask:    None, or a boolean tensor that broadcasts to (batch, heads, n_queries, n_keys); True = may attend
    returns: (out, weights), both in the dtype of q:
             out (batch, heads, n_queries, v_dim), weights (batch, heads, n_queries, n_keys)

    Second step: a query that may attend to no key has zero weights, a zero output, and finite gradients. In float16 the
    results must stay finite wherever the scaled scores fit into float16. Half-precision results may be off by a few
    units in the last place. Float64 results must be float64, but need only the accuracy of float32.
    """
    ### BEGIN SOLUTION
    precise = torch.promote_types(q.dtype, torch.float32)  # half precision is rounded once, at the end
    scores = (q.to(precise) / math.sqrt(q.shape[-1])) @ k.to(precise).transpose(-2, -1)
    if mask is not None:
        nothing_to_see = ~mask.any(dim=-1, keepdim=True)
        # A row of -inf alone would give 0/0: such a row gets finite scores, and loses its weights afterwards.
        scores = scores.masked_fill(~mask, -math.inf).masked_fill(nothing_to_see, 0.0)
    weights = scores.softmax(dim=-1)  # over the keys
    if mask is not None:
        weights = weights.masked_fill(nothing_to_see, 0.0)
    return (weights @ v.to(precise)).to(q.dtype), weights.to(q.dtype)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint for the first step</summary>
#
# `k.transpose(-2, -1)` swaps the last two axes. `@` multiplies all batches and heads at once, without a loop. `masked_fill(~mask, -math.inf)` hides keys.
# </details>

# %% nbgrader={"grade_id": "scaled_dot_product_attention_check", "grade": true, "points": 0}
# Visible check (0 points). What it claims, in order:
generator = torch.Generator().manual_seed(2)
q, k = torch.randn(2, 3, 4, 8, generator=generator), torch.randn(2, 3, 5, 8, generator=generator)
v = torch.randn(2, 3, 5, 6, generator=generator)
before = q.clone()

# It returns (out, weights), with the right shapes, in the dtype of q, which stays as it was.
result = scaled_dot_product_attention(q, k, v)
assert torch.equal(q, before), "your function changed q itself; work on new tensors."
assert isinstance(result, (tuple, list)) and len(result) == 2, "return two things: (out, weights)."
out, weights = result
assert tuple(weights.shape) == (2, 3, 4, 5), (
    f"weights has the shape {tuple(weights.shape)}; it needs one row per query and one column per key, (2, 3, 4, 5).")
assert tuple(out.shape) == (2, 3, 4, 6), f"out has the shape {tuple(out.shape)}; it is as wide as the values, (2, 3, 4, 6)."
assert out.dtype == torch.float32 and weights.dtype == torch.float32, (
    f"q is float32, so both results must be; got {out.dtype} and {weights.dtype}.")

# The weights of each query add up to 1, and the output is the weighted mean of the values, head by head.
assert not torch.allclose(weights.sum(-2), torch.ones(2, 3, 5), atol=1e-3), (
    "the weights of each key add up to 1: your softmax runs over the queries. It belongs on the keys, the last axis.")
assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 4), atol=1e-5), (
    "the weights of every query must add up to 1: softmax over the keys, the last axis.")
assert torch.allclose(weights @ v, out, atol=1e-5), "out must be the weighted mean of the values: weights @ v."
assert torch.allclose(scaled_dot_product_attention(q[:, :1], k[:, :1], v[:, :1])[1], weights[:, :1], atol=1e-5), (
    "head 0 alone gives other weights than head 0 among three: heads do not influence each other.")

# The worked example: weights 3/4 and 1/4, output 7. (Its values are repeated nine times, so that v is wider than q.)
query = torch.tensor([2 * math.log(3), 0, 0, 0]).view(1, 1, 1, 4)
keys = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]).view(1, 1, 2, 4)
values = torch.tensor([8.0, 4]).view(1, 1, 2, 1).repeat(1, 1, 1, 9)
out, weights = scaled_dot_product_attention(query, keys, values)
first = round(float(weights.flatten()[0]), 3)
assert first != 0.9, "the first key of the worked example gets 0.9 instead of 0.75: the scores are not divided by sqrt(head_dim)."
assert first != 0.675, "the first key of the worked example gets 0.675 instead of 0.75: divide by the width of q and k, not of v."
assert first != 0.634, "the first key of the worked example gets 0.634 instead of 0.75: divide by the square root of head_dim."
assert abs(first - 0.75) < 2e-3, f"the first key of the worked example gets {first:g} instead of 0.75."
assert torch.allclose(out.flatten(), torch.full((9,), 7.0), atol=1e-3), "the worked example gives the output 7."

# A mask hides keys before the softmax; True means "may attend"; every shape that broadcasts will do.
mask = torch.tensor([True, True, False, True, False])  # the same keys for all queries
out, weights = scaled_dot_product_attention(q, k, v, mask)
assert not (weights[..., ~mask] > 0).all() or (weights[..., mask] > 0).any(), (
    "the keys that may be attended to got nothing: True means 'may attend', not 'hide'.")
assert float(weights[..., ~mask].abs().max()) == 0, "keys with mask False must have weight 0."
assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 4), atol=1e-5), (
    "with a mask the weights of each query must still add up to 1: hide keys before the softmax, not after it.")
padding = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])[:, None, None]
_, weights = scaled_dot_product_attention(q, k, v, mask=padding)  # (batch, 1, 1, n_keys)
assert float(weights[1, ..., 3:].abs().max()) == 0 and float(weights[0].min()) > 0, (
    "a mask of shape (batch, 1, 1, n_keys) belongs to the sequences of the batch: the second one is shorter here.")

# Large scores stay finite.
_, weights = scaled_dot_product_attention(100 * q, k, v)
assert bool(weights.isfinite().all()), (
    "scores of some hundred give NaN: exp overflows. torch.softmax does not; or subtract the largest score first.")

# ---- Second step. A query that may attend to nothing has zero weights, a zero output and a finite gradient.
empty = torch.ones(4, 5, dtype=torch.bool)
empty[2] = False
leaf = q.clone().requires_grad_()
out, weights = scaled_dot_product_attention(leaf, k, v, empty)
assert out.requires_grad, "the output is cut off from the gradient of q: no detach, no NumPy, no .item()."
weights, result = weights.detach(), out.detach()
assert bool(weights.isfinite().all() and result.isfinite().all()), (
    "the first step is right. Now the second, later in this section: rows that may attend to nothing.")
assert float(weights[:, :, 2].abs().max()) == 0 and float(result[:, :, 2].abs().max()) == 0, (
    "a query that may attend to nothing must have zero weights and a zero output.")
out.sum().backward()
assert leaf.grad is not None and bool(leaf.grad.isfinite().all()), (
    "the gradient has NaN in it, though the output has not: a NaN was replaced after the softmax. Keep it from arising.")

# float16 stays float16, and finite.
half = torch.full((1, 1, 1, 16), 100.0, dtype=torch.float16)
out, weights = scaled_dot_product_attention(half, half, half)
assert out.dtype == torch.float16 and weights.dtype == torch.float16, (
    f"q is float16, so both results must be; got {out.dtype} and {weights.dtype}.")
assert float(weights) == 1, (
    f"a single key gets the weight 1; in float16 yours gets {float(weights):g}. The product of these vectors, 160,000, is "
    "too large for float16, though the scaled score, 40,000, would fit.")
_, weights = scaled_dot_product_attention(half, half, half, torch.tensor([True]))  # "value cannot be converted" means: float16 cannot hold -1e9
assert float(weights) == 1, (
    f"a single key that may be attended to gets the weight 1; with a mask in float16 yours gets {float(weights):g}.")

# It computes where its inputs are: see "Code that runs on any device", a few cells below.
lab.follows_the_device(scaled_dot_product_attention, q, k, v)
lab.follows_the_device(scaled_dot_product_attention, q, k, v, mask)
print("Looks right. The hidden tests compare values, with other shapes, masks, dtypes, large scores and gradients.")

# %% nbgrader={"grade_id": "scaled_dot_product_attention_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week1
week1.scaled_dot_product_attention(scaled_dot_product_attention)
### END HIDDEN TESTS

# %% [markdown]
# ### Where the formula breaks
#
# Equation (1) is one line of code. In practice it fails in more than one place.

# %% [markdown] tags=["prediction"]
# **Predict** what the lines (a) to (e) below give. Which results will be NaN or infinite, and which will be finite but useless?
#
# *Your prediction:*

# %% tags=["experiment"]
hidden, leaf = torch.tensor([-math.inf, -math.inf]), torch.zeros(2, requires_grad=True)
(leaf + hidden).softmax(0).nan_to_num(0.0)[0].backward()
half, big = torch.tensor(300.0, dtype=torch.float16), torch.tensor([100.0, 99.0])
shown = lambda *numbers: "  ".join(f"{float(number):g}" for number in numbers)
lab.table(["", "result"], [
    ["(a) softmax of (-inf, -inf)", shown(*hidden.softmax(0))],
    ["(b) gradient of nan_to_num of (a)", shown(*leaf.grad)],
    ["    largest float16", shown(torch.finfo(torch.float16).max)],
    ["(c) float16: 300 * 300 / 8", shown(half * half / 8)],
    ["    float16: 300 / 8 * 300", shown(half / 8 * half)],
    ["(d) exp(100) / (exp(100) + exp(99))", shown(big.exp()[0] / big.exp().sum())],
    ["(e) softmax of (-1e9, -1e9)", shown(*torch.tensor([-1e9, -1e9]).softmax(0))],
])

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# - (a) is $0/0$. It happens when a text is empty, and when a text is padded at its start and no token may look ahead: then the first rows see only padding. In this course such a query gets **zero weights and a zero output**. (On a CPU, PyTorch's own `F.scaled_dot_product_attention` also returns zeros there; see [`FlashAttentionKernel.cpp`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cpu/FlashAttentionKernel.cpp) of 2.13.)
# - (b) If you repair the value, the gradient is still NaN. We put one fully hidden text into a batch of four, with a mask that is *added*, and took one Adam step. In all five runs, $W_q$, $W_k$ and the embeddings of that text's tokens were NaN. $W_v$, $W_o$ and the layers above were not: their gradients use the repaired weights and do not pass through the softmax. (`masked_fill` gives hidden entries the gradient 0 and happens to stop the NaN.)
# - (c) The largest float16 is 65,504. A dot product can exceed it although the *scaled* score would fit, so the order of the operations decides. (Rounding makes it 11,248 instead of 11,250. For bfloat16, with the range of float32 but fewer digits, see week 3.)
# - (d) overflows. `softmax` subtracts the largest score first, which changes nothing in exact arithmetic. If you write the formula yourself, do the same.
# - (e) gives no NaN, but the hidden keys share all the weight. Besides, float16 cannot hold $-10^9$. So `eager_mask` in [`transformers` 5.23](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/masking_utils.py) adds the lowest number of the dtype. That fits into float16, but in a row that is hidden as a whole the hidden keys still get all the weight, as in (e), or the weights are NaN if all sums overflow.
# </details>
#
# **1.1, second step.** Go back to your function and make it safe for rows that may attend to nothing, and for float16. Run its check again.
#
# <details><summary>Hint: rows that may attend to nothing</summary>
#
# Find these rows first: `mask.any(dim=-1, keepdim=True)`. Give them *any finite* scores, so that the softmax does no harm. Afterwards set their weights to zero with `masked_fill`. Then the gradient stays finite, too.
# </details>
#
# <details><summary>Hint: float16</summary>
#
# Compute float16 and bfloat16 in float32 and cast at the end; float64 must stay float64. Or divide q by $\sqrt d$ before the product. The first way is also more exact.
# </details>

# %% [markdown]
# ### Code that runs on any device
#
# Every tensor has a device: the computer's own memory (`"cpu"`) or a graphics card's (`"cuda"`). PyTorch does not move tensors for you. You cannot add, multiply or compare tensors on different devices. The one exception is a CPU tensor without dimensions, such as `torch.tensor(0.5)`. So code that works on your laptop may stop on a GPU with `Expected all tensors to be on the same device`.
#
# The cause is nearly always one line: a tensor made inside a function. `torch.arange(n)`, `torch.ones(n, n)` and `torch.tensor([...])` make it on the CPU unless you say otherwise. So pass on the device of an input: `device=x.device`. Four habits are enough:
#
# | you want | write |
# |---|---|
# | a new tensor to combine with `x` | `torch.arange(n, device=x.device)`, `torch.zeros_like(x)`, `x.new_full((n,), 0.5)` |
# | a number to combine with `x` | a Python number, `0.5 * x`: it works on any device |
# | a table that belongs to a module | `self.register_buffer("table", table, persistent=False)`: it moves with `.to(device)`; an ordinary attribute stays behind |
# | a function such as cos or exp | PyTorch's own: NumPy computes on the CPU only |
#
# **How this course tests that without a GPU.** The file `simulated_device.py` adds a device called `"simulated"` to PyTorch. If you combine one of its tensors with a CPU tensor, you get an error, as on a GPU. The CPU does the arithmetic. Visible checks run your answer there once and name what stays behind. The hidden tests check the same, for a small share of the points: if you forget the device, you lose an eighth or a quarter of a point, and nothing else.

# %% tags=["experiment"]
import simulated_device  # adds the device

def scale_by_position(x):  # (batch, seq_len, d)
    steps = torch.arange(x.shape[1], device=x.device)  # without device= these would be on the CPU
    return x * steps[:, None]

there = torch.ones(2, 3, 4, device="simulated")
print(scale_by_position(there).device)
try:
    there * torch.arange(3)[:, None]
except RuntimeError as error:
    print(error)

# %% [markdown]
# ### Exercise 1.2 · Attention by hand
#
# **3 points · difficulty 2/5 · 20 minutes · numbers**
#
# *Why it matters:* do it once on paper and you will never again wonder which axis the softmax runs over, or what moves when tokens move.
#
# Three tokens, $d=4$, values of width 2:
#
# | token | query $q$ | key $k$ | value $v$ |
# |---|---|---|---|
# | 0 | $(1,1,0,0)$ | $(1,1,0,0)$ | $(2,0)$ |
# | 1 | $(0,1,1,0)$ | $(0,0,2,1)$ | $(0,3)$ |
# | 2 | $(3,0,0,1)$ | $(1,3,0,1)$ | $(1,-1)$ |
#
# First compute the three weights of token 0's query, and its output.
#
# Then **tokens 1 and 2 swap positions**: the token from position 2 is now at position 1, with its query, its key and its value. Guess before you compute. Give the weight that position 0 now puts on position 1, and the first channel of the outputs at positions 0 and 1.
#
# Use a calculator or `math.exp`. Give **at least four significant digits**.

# %% tags=["by-hand"] nbgrader={"grade_id": "attention_by_hand", "solution": true}
# Replace every None by a number, at least four significant digits.
attention_by_hand = {
    "w_0_0": None,  # weight of query 0 on key 0
    "w_0_1": None,  # weight of query 0 on key 1
    "w_0_2": None,  # weight of query 0 on key 2
    "out_0_0": None,  # output at position 0, first channel
    "out_0_1": None,  # output at position 0, second channel
    "swapped_w_0_1": None,  # after the swap: weight of position 0 on position 1
    "swapped_out_0_0": None,  # after the swap: output at position 0, first channel
    "swapped_out_1_0": None,  # after the swap: output at position 1, first channel
}
### BEGIN SOLUTION
attention_by_hand |= {
    # dot products of q0: 2, 0, 4; scaled: 1, 0, 2; exponentials: 2.71828, 1, 7.38906; their sum: 11.10734
    "w_0_0": 0.24473,
    "w_0_1": 0.09003,
    "w_0_2": 0.66524,
    "out_0_0": 1.15470,  # 0.24473 * 2 + 0.66524 * 1
    "out_0_1": -0.39515,  # 0.09003 * 3 - 0.66524 * 1
    "swapped_w_0_1": 0.66524,  # the weight moved with the token: it was w_0_2
    "swapped_out_0_0": 1.15470,  # the same terms in another order
    # token 2 stands at position 1 now; its scaled scores: 1.5 with token 0, 0.5 with token 1, 2 with itself
    "swapped_out_1_0": 1.20955,  # 0.33150 * 2 + 0.12195 * 0 + 0.54655 * 1
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Query 0 is compared with all three keys: three dot products, each divided by $\sqrt4$. Check yourself: the three weights must add up to 1.
# </details>
#
# <details><summary>Hint 2</summary>
#
# After the swap you need not compute anything for position 0. Which token is at position 1 now, and what weight did query 0 give it?
# </details>
#
# <details><summary>Hint 3</summary>
#
# For the last number: the token at position 1 is the former token 2. Compute *its* output, from its query, as you did for token 0.
# </details>

# %% nbgrader={"grade_id": "attention_by_hand_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, and at one sum.
numbers = lab.must_be_numbers(
    attention_by_hand, "w_0_0", "w_0_1", "w_0_2", "out_0_0", "out_0_1", "swapped_w_0_1", "swapped_out_0_0",
    "swapped_out_1_0")
assert abs(sum(numbers[f"w_0_{key}"] for key in range(3)) - 1) < 2e-3, "the three weights of query 0 must add up to 1."
print("Eight finite numbers, and the weights add up to 1. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "attention_by_hand_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week1
week1.attention_by_hand(attention_by_hand)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Shuffling
#
# A permutation of $n$ tokens is a matrix $P$ with a single 1 in every row and every column. $PX$ has the rows of $X$ in another order. In code, `x[:, perm]` does the same: position $i$ now holds the token from position `perm[i]`. The transpose undoes the shuffle: $P^\top P=I$.
#
# If you shuffle the input of a function $f$, what happens to its output? Two words are often mixed up:
#
# - **invariant**: $f(PX)=f(X)$. Shuffling changes *nothing*. Example: the sum of all tokens.
# - **equivariant**: $f(PX)=P\,f(X)$. The outputs are *the same, shuffled in the same way*. Example: doubling every token.
#
# If $f$ is equivariant, two roads lead to the same place: shuffle and then compute, or compute and then shuffle.

# %% tags=["experiment"]
generator = torch.Generator().manual_seed(373)
x = torch.randn(1, 5, 6, generator=generator)
w_q, w_k, w_v = torch.randn(3, 6, 6, generator=generator) / 6**0.5

def self_attention(x, mask=None):
    """One head of attention of the tokens with themselves: (batch, seq_len, 6) -> output and weights."""
    out, weights = scaled_dot_product_attention(*((x @ w)[:, None] for w in (3 * w_q, w_k, w_v)), mask)  # 3: sharper maps
    return out[:, 0], weights[:, 0]


# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.3: run this cell
names, perm = "abcde", torch.tensor([2, 0, 4, 1, 3])
panels = [("X", x, range(5)), ("f(X)", self_attention(x)[0], range(5)),
          ("PX", x[:, perm], perm), ("f(PX). Is it P f(X)?", self_attention(x[:, perm])[0], perm)]
fig, axes = lab.figure("Two roads: f is self-attention", nrows=2, ncols=2, height=4.6, width=7.4,
                       gridspec_kw={"hspace": 0.18, "wspace": 0.3})
for ax, (title, values, order) in zip(axes.flat, panels):
    ax.imshow(values[0], cmap=lab.DIVERGING, vmin=-2, vmax=2, aspect="auto", interpolation="nearest")
    ax.set_title(title, loc="center", fontsize=11)
    ax.set_yticks(range(5), [names[i] for i in order])
    ax.set_xticks([])
for row, (one, other) in enumerate(axes):
    one.annotate("", (1.32, 0.5), (1.06, 0.5), xycoords="axes fraction", arrowprops={"arrowstyle": "->", "lw": 1.6})
    one.text(1.19, 0.58, "f", transform=one.transAxes, ha="center", fontsize=11, style="italic")
for ax in axes[0]:
    ax.annotate("", (0.5, -0.33), (0.5, -0.05), xycoords="axes fraction", arrowprops={"arrowstyle": "->", "lw": 1.6})
    ax.text(0.53, -0.2, "shuffle (P)", transform=ax.transAxes, va="center", fontsize=10)
plt.show()


# %% [markdown]
# **Figure 1.3. Two roads.** Five tokens a … e as rows, their channels as columns (blue negative, red positive). Going down shuffles the rows; going right applies self-attention. The lower right panel is $f(PX)$. Is each of its rows the row of the same letter in $f(X)$?

# %% [markdown]
# ### Exercise 1.3 · Measure the gap
#
# **3 points · difficulty 2/5 · 15 minutes · code**
#
# *Why it matters:* you can ask any layer, even one you cannot read, whether it knows the order. But your test must be right for layers that know the order and for layers that don't. Some wrong tests are right whenever the true gap is zero. Others are right whenever `perm` only swaps two tokens.
#
# Measure how far apart the two roads of Figure 1.3 end.

# %% nbgrader={"grade_id": "equivariance_gap", "solution": true}
def equivariance_gap(f, x, perm):
    """How far f is from permutation-equivariant on x: the largest absolute entry of f(x[:, perm]) - f(x)[:, perm].

    f:       a function from (batch, seq_len, d) to (batch, seq_len, ...): the outputs may have a width of their own, or
             be one number per token, (batch, seq_len). Call it with the whole batch.
    x:       (batch, seq_len, d)
    perm:    LongTensor (seq_len,), a permutation: position i receives the token from position perm[i]
    returns: a Python float, not rounded and not set to 0 where it is tiny; exactly 0.0 only if the two sides are equal
    """
    ### BEGIN SOLUTION
    shuffled_first = f(x[:, perm])
    shuffled_last = f(x)[:, perm]
    return (shuffled_first - shuffled_last).abs().max().item()
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `perm` indexes the axis of the tokens, axis 1, once *inside* the call of `f` and once *outside*.
# </details>
#
# <details><summary>Hint 2</summary>
#
# You need no inverse: on both sides position $i$ must hold the token from position `perm[i]`.
# </details>

# %% nbgrader={"grade_id": "equivariance_gap_check", "grade": true, "points": 0}
# Visible check (0 points). You can follow all its numbers on paper. What it claims, in order:
x = torch.tensor([1.0, 2, 4, 8]).view(1, 4, 1)
perm = torch.tensor([2, 0, 1, 3])  # a cycle of three: its inverse is another permutation

# Doubling every token is equivariant: the gap is 0, a Python float.
try:
    gap = equivariance_gap(lambda t: 2 * t, x, perm)
except IndexError:
    raise AssertionError("an index is out of range: perm belongs to axis 1, the tokens, on both sides; axis 0 is the batch.") from None
assert x.flatten().tolist() == [1, 2, 4, 8], "your function changed x itself; work on new tensors."
assert isinstance(gap, float), f"return a Python float (use .item()), not a {type(gap).__name__}."
assert gap == 0, (
    f"doubling every token is equivariant, so the gap is 0; yours is {gap:.3g}. Did you index both sides with perm, and neither "
    "with its inverse?")

# Minus the running sum has the gap 4: it is -(4, 5, 7, 15) of the shuffled tokens; that of x, shuffled, is -(7, 1, 3, 15).
gap = equivariance_gap(lambda t: -t.cumsum(dim=1), x, perm)
assert gap != 6, "you use the inverse permutation on one side or on both: index both sides with perm itself."
assert gap != 2.75, "that is the mean of the differences; the exercise asks for the largest."
assert abs(gap - 4) < 1e-6, (
    f"minus the running sum of (1, 2, 4, 8) has the gap 4, yours is {gap:.3g}. Compare f(x[:, perm]) with "
    "f(x)[:, perm], and take the largest absolute difference.")

# The same output at every position, or one number per token: both are equivariant.
gap = equivariance_gap(lambda t: t.sum(dim=1, keepdim=True).expand_as(t), x, perm)
assert gap == 0, f"a function that gives every position the same output is equivariant: the gap is 0, yours is {gap:.3g}."
gap = equivariance_gap(lambda t: t.sum(-1), x, perm)
assert gap == 0, f"f may return one number per token, (batch, seq_len): here the gap is 0, yours is {gap:.3g}."

# The largest difference over the whole batch, whatever its sign, from one call with the whole batch.
two = torch.stack((x[0], 10 * x[0]))
gap = equivariance_gap(lambda t: t.cumsum(dim=1) * len(t), two, perm)
assert gap != 60, "the largest differences are 60 and -80, and the second counts: take absolute values first, then the largest."
assert abs(gap - 80) < 1e-4, (
    f"with a batch of two the gap is 80 here, yours is {gap:.3g}: call f once with the whole batch, and take the "
    "largest difference over everything.")

# It computes where its inputs are, on any device.
lab.follows_the_device(equivariance_gap, lambda t: t.cumsum(dim=1), x, perm)
print("Looks right. The hidden tests use other functions and permutations.")

# %% nbgrader={"grade_id": "equivariance_gap_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week1
week1.equivariance_gap(equivariance_gap)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: the attention map of a shuffled sentence
#
# Take a sentence of seven tokens with random embeddings, and one head with random weights. Feed the sentence in twice, in its own order and shuffled, and look at the weights. (Both occurrences of "the" have the same embedding.)

# %% [markdown] tags=["prediction"]
# **Predict.** The shuffled sentence gives a different map. Sort its rows *and* its columns back into the old order. How many of the 49 weights now differ from the original?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.4: run this cell
words = ["the", "dog", "bites", "the", "man", "very", "hard"]
generator = torch.Generator().manual_seed(41)
vocabulary = {word: torch.randn(6, generator=generator) for word in sorted(set(words))}
sentence = torch.stack([vocabulary[word] for word in words])[None]
order = torch.tensor([4, 2, 6, 0, 3, 1, 5])
back = order.argsort()

def hatch(ax, hidden):
    """Mark the entries that a mask hides, so that they do not look like small weights."""
    for i, j in hidden.nonzero().tolist():
        ax.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#FFFFFF", edgecolor="#A0A0A0", hatch="////", linewidth=0))

def show_pair(title, mask=None):
    """Attention maps of X, of PX, and of PX with rows and columns sorted back; then what remains."""
    original, shuffled = self_attention(sentence, mask)[1][0], self_attention(sentence[:, order], mask)[1][0]
    restored = shuffled[back][:, back]
    hidden = torch.zeros(7, 7, dtype=torch.bool) if mask is None else ~mask
    hidden_back = hidden[back][:, back]
    fig, axes = lab.figure(title, ncols=4, width=9.4, height=3.45)
    shuffled_words = [words[i] for i in order]
    for ax, (name, values, unseen, labels) in zip(axes, [("X", original, hidden, words), ("PX", shuffled, hidden, shuffled_words),
                                                         ("PX, sorted back", restored, hidden_back, words)]):
        maps = ax.imshow(values, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        hatch(ax, unseen)
        ax.set_title(name)
        ax.set_xticks(range(7), labels, rotation=90, fontsize=8)
        ax.set_yticks(range(7), labels, fontsize=8)
    difference = lab.heatmap(axes[3], restored - original, "sorted back − X", 1, "", "")
    hatch(axes[3], hidden & hidden_back)
    axes[3].set_xticks(range(7), words, rotation=90, fontsize=8)
    axes[3].set_yticks(range(7), words, fontsize=8)
    axes[0].set_ylabel("query")
    fig.colorbar(maps, ax=list(axes[:3]), location="bottom", shrink=0.35, aspect=30, label="weight (columns: keys)")
    fig.colorbar(difference, ax=axes[3], location="bottom", shrink=0.9, ticks=[-1, 0, 1], label="difference")
    plt.show()
    gap = equivariance_gap(lambda t: self_attention(t, mask)[0], sentence, order)
    counts = [int(((restored - original).abs() > limit).sum()) for limit in (0.01, 0.2)]
    lab.table(["", "weights that differ by more than 0.01", "by more than 0.2", "gap of the outputs"],
              [[title, *(f"{count} of 49" for count in counts), "below 0.00001" if gap < 1e-5 else f"{gap:.1f}"]])

show_pair("The sentence, and shuffled: no mask")

# %% [markdown]
# **Figure 1.4. Attention maps of X and PX.** Rows are queries, columns keys. From left to right: the sentence, the shuffled sentence, the shuffled map sorted back, and the difference between the third map and the first.
#
# <details><summary>After you have run it</summary>
#
# None of them. Sorted back, the second map is the first one again. The two rows "the" are equal, and so are the two columns.
# </details>

# %% [markdown]
# ### Experiment: which layers are equivariant?
#
# Now measure the parts of a Transformer and some rivals. The last column shows how far each layer is from *invariant*: the largest difference between $f(PX)$ and $f(X)$.

# %% [markdown] tags=["prediction"]
# **Predict.** Which of these see the order, that is, have a gap above zero?
#
# - a *feed-forward layer*: two linear layers with a ReLU between them, token by token;
# - LayerNorm, which brings each token's vector to mean 0 and variance 1;
# - two complete encoder layers: attention and a feed-forward layer, each with a residual connection (its input is added to its output) and LayerNorm;
# - subtracting the mean of all tokens;
# - a convolution along the tokens;
# - an LSTM (a recurrent network);
# - adding a vector to each token that depends on its position alone;
# - the mean of all tokens, written to every position.
#
# *Your prediction:*

# %% tags=["experiment"]
torch.manual_seed(5)
block = nn.TransformerEncoderLayer(6, 2, dim_feedforward=12, dropout=0.0, batch_first=True)
stack = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
mlp, norm, lstm = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)), nn.LayerNorm(6), nn.LSTM(6, 6, batch_first=True)
convolution, position_vectors = nn.Conv1d(6, 6, 3, padding=1), torch.randn(9, 6)
layers = {
    "your attention": lambda t: self_attention(t)[0],
    "feed-forward, token by token": mlp,
    "LayerNorm": norm,
    "two complete encoder layers": stack,
    "subtract the mean token": lambda t: t - t.mean(dim=1, keepdim=True),
    "convolution along the tokens": lambda t: convolution(t.mT).mT,
    "LSTM": lambda t: lstm(t)[0],
    "add a vector per position": lambda t: t + position_vectors,
    "mean of all tokens": lambda t: t.mean(dim=1, keepdim=True).expand_as(t),
}
tokens, shuffle = torch.randn(8, 9, 6), torch.randperm(9)
readable = lambda number: "0" if number < 1e-5 else f"{number:.1f}"
with torch.no_grad():
    lab.table(["f", "equivariance gap", "distance from invariant"],
              [[name, readable(equivariance_gap(f, tokens, shuffle)), readable(float((f(tokens[:, shuffle]) - f(tokens)).abs().max()))]
               for name, f in layers.items()])
print()
bare = lambda t: F.scaled_dot_product_attention(t[:, None], t[:, None], t[:, None])[:, 0]  # keeps the digits of float64
gaps = {"float32": equivariance_gap(bare, tokens, shuffle), "float64": equivariance_gap(bare, tokens.double(), shuffle)}
lab.table(["PyTorch's attention in", "equivariance gap"],
          [[dtype, next(f"below {limit:g}" for limit in (1e-13, 1e-5, math.inf) if gap < limit)] for dtype, gap in gaps.items()])


# %% [markdown]
# <details><summary>After you have run it</summary>
#
# A layer that applies the same function to every token is equivariant. So is attention, and so is any stack of such layers: if $f$ and $g$ are, then $g(f(PX))=g(P f(X))=P\,g(f(X))$. Subtracting the mean of all tokens mixes them, and is equivariant all the same: the mean does not depend on their order. Residual connections, more heads or more layers do not bring order in. Convolution, recurrence and a vector per position do.
#
# **Equivariant is not invariant.** You will often read that self-attention is "permutation-invariant". Look at the last column: for attention the distance is 3.3, far from zero. Only the mean in the last line is invariant.
#
# **Zero up to rounding.** "0" means "below 0.00001". The two roads add the same numbers in another order, and each sum is rounded. The last table shows that only rounding is left: in float64, with more digits, the gap is smaller.
# </details>

# %% [markdown]
# ## 4 · The proof
#
# You have measured the gap on a few random inputs. Is it zero for all? You need two facts about a permutation matrix $P$ and one about the softmax:
#
# - $P^\top P = I$;
# - multiplying by $P$ from the left reorders rows; multiplying by $P^\top$ from the right reorders columns in the same way. So $(PSP^\top)_{ij}=S_{\pi(i)\pi(j)}$, where $\pi(i)$, in code `perm[i]`, is the row of $S$ that becomes row $i$;
# - a softmax over a row treats all its entries alike, whatever their order.

# %% [markdown] nbgrader={"grade_id": "equivariant_or_invariant_question", "locked": true}
# ### Exercise 1.4 · Equivariant or invariant?
#
# **3 points · difficulty 3/5 · 45 minutes · text, graded by a person**
#
# *Why it matters:* the proof shows which property a positional encoding has to break, and which parts of a model cannot break it.
#
# Let $f(X)=\operatorname{softmax}\!\big(XW_q(XW_k)^\top/\sqrt d\big)\,XW_v$, with the softmax over each row.
#
# 1. Prove $f(PX)=P f(X)$ for every permutation matrix $P$. Say where you use $P^\top P=I$, and why the softmax of the reordered scores is the reordered softmax.
# 2. A classifier takes the **mean over the positions** of $f(X)$. Show that its answer is permutation-*invariant*. Then name one task that this does not harm and one that it makes impossible, each with a reason.
# 3. Now apply a fixed mask to the scores: an $n\times n$ table $M$, the same for every input, with $M_{ij}$ True if position $i$ may attend to position $j$. Which step of your proof needs a condition on $M$, and what is this condition? Name one mask, other than "everything allowed", for which the proof holds for **every** $P$. And name one $P$ for which it fails with $n=2$ and the mask "attend only to yourself and to earlier positions".
#
# Ten to fifteen lines are enough. Formulas may be LaTeX or plain text.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. 1 point: scores of $PX$ are $PXW_q(PXW_k)^\top = P\,S\,P^\top$; softmax acts on each row by itself and does not depend on the order within a row, so $\operatorname{softmax}(PSP^\top)=P\operatorname{softmax}(S)P^\top$; then $P A P^\top P X W_v = P A X W_v$ by $P^\top P=I$. An index proof is just as good ($o'_i=\sum_j a_{\pi(i)\pi(j)}v_{\pi(j)}=o_{\pi(i)}$, since a sum does not depend on the order of its terms; this last remark stands for $P^\top P=I$). Half a point if the softmax is exchanged without any reason.
# 2. 1 point: the mean over rows is the same for $P f(X)$ and $f(X)$, because it does not depend on the order of the rows. Half of the point is for the two tasks with reasons: the mean costs nothing where only *which* tokens occur matters (topic, language, spam, a bag of items); a task is impossible where two inputs with the same tokens need different answers (who bites whom, negation scope, arithmetic "7 - 2" against "2 - 7", the ordering task of 1.6).
# 3. 1 point: in the step $\operatorname{softmax}(PSP^\top \text{ with } M)$ the mask must be carried along, $PMP^\top=M$, that is $M_{\pi(i)\pi(j)}=M_{ij}$. Masks that do it for all $P$ have one value on the diagonal and one off it, so besides "everything" there are three: only yourself, everybody but yourself, and nobody at all (all False, with our convention of zero weights, or simply ruled out because the softmax is undefined). They have the structure $\lambda I+\gamma\mathbf 1\mathbf 1^\top$ of the equivariant linear layers in Deep Sets (Zaheer et al., 2017). For $n=2$ the swap fails: the causal mask has $M_{10}$ True and $M_{01}$ False, and the swap exchanges them. Half a point for the condition, half for the examples. A padding mask that moves with the tokens is not fixed: it does not count as the example; beside a valid one it costs nothing.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "equivariant_or_invariant", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. Let $S=XW_q(XW_k)^\top/\sqrt d$ and $A=\operatorname{softmax}(S)$. For $PX$ the scores are $PXW_q(PXW_k)^\top/\sqrt d=P\,S\,P^\top$: the same numbers, rows and columns reordered alike. Softmax divides each exponential by the sum over its row. A row holds the same set of numbers as before, so its sum is the same, and each weight moves with its score: $\operatorname{softmax}(PSP^\top)=PAP^\top$. Therefore $f(PX)=PAP^\top\,PXW_v=PA\,(P^\top P)\,XW_v=PAXW_v=P f(X)$. The last step but one uses $P^\top P=I$.
#
# 2. The mean over positions is $\frac1n\mathbf 1^\top f(X)$ with the row $\mathbf 1^\top$ of ones. Since $\mathbf 1^\top P=\mathbf 1^\top$, we get $\frac1n\mathbf 1^\top f(PX)=\frac1n\mathbf 1^\top P f(X)=\frac1n\mathbf 1^\top f(X)$: invariant. Finding out the language of a text suffers little, because *which* words occur decides it. Finding out who bites whom is impossible: "the dog bites the man" and "the man bites the dog" have the same tokens, hence the same mean, and need different answers.
#
# 3. The scores become $S$ where $M$ is True and $-\infty$ elsewhere. For $PX$ we have $PSP^\top$ where $M$ is True, but the proof needs $PSP^\top$ where $PMP^\top$ is True. So the step $\operatorname{softmax}(PSP^\top)=PAP^\top$ needs $PMP^\top=M$. "Each position may attend to all *others* but not to itself" satisfies it for every $P$: the diagonal stays the diagonal. (All such masks have one value on the diagonal and one off it. Deep Sets' equivariant linear layers, $\lambda I+\gamma\mathbf 1\mathbf 1^\top$, have the same structure.) For the causal mask with $n=2$ take the swap: before, position 1 sees position 0 and not the reverse; $PMP^\top$ says the opposite.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write $(PXW_k)^\top$ out. On which side is $P^\top$, and what does it do to the columns of the scores?
# </details>
#
# <details><summary>Hint 2</summary>
#
# The mean over positions is a product with a row of ones. What is (row of ones) times $P$?
# </details>
#
# <details><summary>Hint 3</summary>
#
# If a condition holds for every $P$, no position is special. Which entries of an $n\times n$ table can be moved onto each other by reordering rows and columns alike?
# </details>

# %% [markdown]
# ## 5 · The causal mask
#
# A model that generates text, a *decoder*, must not look at text that it has not written yet. Training computes all positions at once, so position $i$ may attend to the positions $0,\dots,i$ only (Vaswani et al., section 3.2.3). The mask is a lower triangle *with* its diagonal: a token may see itself.
#
# **With a KV cache.** When a model generates token by token, it keeps the old keys and values instead of computing them again. Then there are fewer queries than keys: the queries are the **last** `n_queries` of `n_keys` positions.
#
# Say ten tokens are in the cache and two new ones come in. The first is at position 10 and sees eleven keys; the second is at position 11 and sees twelve. The mask is the *lower part* of the big triangle, aligned at the end.

# %% [markdown]
# ### Exercise 1.5 · Causal mask
#
# **3 points · difficulty 2/5 · 12 minutes · code**
#
# *Why it matters:* a mask that is aligned at the wrong corner is still a tidy triangle. Training, with as many queries as keys, does not notice. Generation falls apart.

# %% nbgrader={"grade_id": "causal_mask", "solution": true}
def causal_mask(n_queries, n_keys):
    """Which key each query may attend to; the queries are the last n_queries of the n_keys positions.

    n_queries, n_keys: ints, 1 <= n_queries <= n_keys
    returns:           boolean tensor (n_queries, n_keys) on the CPU, True = may attend; a new one on each call
    """
    ### BEGIN SOLUTION
    query_positions = torch.arange(n_keys - n_queries, n_keys)
    key_positions = torch.arange(n_keys)
    return key_positions[None, :] <= query_positions[:, None]
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# At which position is query row $r$? Write it with `n_keys`, `n_queries` and $r$.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Compare a column of query positions with a row of key positions; or look up the argument `diagonal` of `torch.tril`.
# </details>

# %% nbgrader={"grade_id": "causal_mask_check", "grade": true, "points": 0}
# Visible check (0 points). What it claims, in order:
mask = causal_mask(4, 4)

# As many queries as keys: a boolean lower triangle with its diagonal.
lab.must_be_a_tensor(mask)
assert tuple(mask.shape) == (4, 4), f"the shape is {tuple(mask.shape)}; four queries and four keys need (4, 4)."
assert mask.dtype == torch.bool, f"the dtype is {mask.dtype}; a mask is torch.bool."
assert not bool(mask[0, 1:].any()), (
    "position 0 must not see later positions: is it the lower triangle, and does True mean 'may attend'?")
assert bool(mask.diagonal().all()), "a token may see itself: the diagonal must be True."
assert mask.sum(dim=1).tolist() == [1, 2, 3, 4], f"position i sees i + 1 keys; yours see {mask.sum(dim=1).tolist()}."

# Two queries and five keys: the last two rows of that triangle.
mask = causal_mask(2, 5)
assert tuple(mask.shape) == (2, 5), f"the shape is {tuple(mask.shape)}; two queries and five keys need (2, 5)."
assert mask.tolist() != causal_mask(5, 5)[:2].tolist(), (
    "your mask is aligned at the top left: the two queries are the last two of five positions, so they see 4 and 5 keys.")
assert mask.tolist() == causal_mask(5, 5)[3:].tolist(), (
    f"the two queries see {mask.sum(dim=1).tolist()} keys. They are the last two rows of the mask for five and five: 4 and 5 keys, "
    "since the first three, from the cache, are in the past of both.")
print("Looks right. The hidden tests try other sizes.")

# %% nbgrader={"grade_id": "causal_mask_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week1
week1.causal_mask(causal_mask)
### END HIDDEN TESTS

# %% [markdown]
# ### Experiment: PyTorch's causal mask
#
# PyTorch's own attention has a switch `is_causal=True`. To see its mask, set all scores to zero and put in unit vectors as values. Then the output *is* the weights, and a weight above zero marks a key that the query sees.

# %% [markdown] tags=["prediction"]
# **Predict.** Two queries, five keys. Which keys does the *last* query see with your mask, and which with `is_causal=True`?
#
# *Your prediction:*

# %% tags=["experiment"]
seen = F.scaled_dot_product_attention(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.eye(5).view(1, 1, 5, 5),
                                      is_causal=True)[0, 0] > 0

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.5: run this cell
fig, axes = lab.figure("Who may see whom", ncols=3, height=3.6)
for ax, (title, mask, first) in zip(axes, [("your mask:\n5 queries, 5 keys", causal_mask(5, 5), 0),
                                           ("your mask:\n2 queries, 5 keys", causal_mask(2, 5), 3),
                                           ("is_causal=True:\n2 queries, 5 keys", seen, 3)]):
    picture = torch.cat((torch.full((first, 5), math.nan), torch.where(mask, 0.75, 0.0)))
    ax.imshow(picture, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    for i, j in mask.nonzero().tolist():
        ax.text(j, i + first, "✓", ha="center", va="center", fontsize=11, color="white", fontweight="bold")
    if first:
        ax.text(2, (first - 1) / 2, "positions 0 to 2:\nin the cache, no query", ha="center", va="center", fontsize=9,
                color="#444444")
    ax.set_title(title)
    ax.set_xticks(range(5))
    ax.set_yticks(range(5))
    ax.set_xticks([line + 0.5 for line in range(4)], minor=True)
    ax.set_yticks([line + 0.5 for line in range(4)], minor=True)
    ax.grid(which="minor", color="white", linewidth=2)
    ax.tick_params(which="minor", length=0)
    ax.set(xlabel="key position j", ylabel="query position i")
plt.show()

# %% [markdown]
# **Figure 1.5. Three masks.** Blue with a tick: may attend. Left: your mask for five queries and five keys. Middle: yours for two queries and five keys. Right: what `is_causal=True` does with two and five.
#
# <details><summary>After you have run it</summary>
#
# PyTorch's switch takes the two queries for the *first* two positions. So the newest token sees two keys of five, and a single query sees key 0 only. The switch is meant for as many queries as keys. With a cache, pass a mask such as yours, or [`causal_lower_right`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/attention/bias.py). A single query needs no mask: everything is in its past.
#
# In version 2.1 the package flash-attn moved its `causal=True` from the top left to the bottom right ([README, "2.1: Change behavior of causal flag"](https://github.com/Dao-AILab/flash-attention/blob/v2.5.9/README.md#21-change-behavior-of-causal-flag)).
# </details>

# %% [markdown]
# ### Experiment: the same shuffle, with a causal mask
#
# Repeat Figure 1.4 with the same sentence, weights and shuffle, now with your causal mask.

# %% [markdown] tags=["prediction"]
# **Predict.** After sorting back, how much of the first map do you get back? Could a causal layer with *other* weights be equivariant?
#
# *Your prediction:*

# %% tags=["experiment"]
show_pair("The sentence, and shuffled: causal mask", causal_mask(7, 7))

# %% [markdown]
# **Figure 1.6. The causal pair.** As Figure 1.4, with a causal mask. Hatched: hidden.
#
# <details><summary>After you have run it</summary>
#
# Sorted back, the second map is no longer a triangle: a word sees itself and those before it *in the shuffled sentence*. 32 of the 49 weights differ by more than 0.01, and 17 by more than 0.2. (Five other random heads and shuffles gave 14 to 37, and 6 to 19.)
#
# No weights bring the *map* back exactly. A visible key has a weight above zero, however small, and a hidden one has zero; so the hatched pattern would have to match, and the shuffle moves it. (A layer in which each word sees almost only itself comes close, and float32 may round the rest to zero.) The *outputs* can come back: take $W_v=0$.
#
# The mask is tied to positions, the words are not. So a causal layer knows something about the order, with no positional encoding at all.
# </details>

# %% [markdown]
# ### Experiment: where position leaks
#
# What does a causal layer know? Look at two simple cases.
#
# - **A marker at the start.** Let token 0 be a special token that occurs nowhere else, as in many language models. If all scores are equal, position $i$ gives each of its $i+1$ visible tokens the weight $\frac1{i+1}$. So the marker's share in the output tells how many tokens there are so far.
# - **No marker.** The output at $i$ is a mean over $i+1$ tokens. A mean over more tokens varies less.
#
# Take random tokens and one head with random matrices. Multiply its scores by 0.3, so that the attention weights differ less. On one half of the texts, fit two *linear* read-outs of its outputs: one for $i$, one for $\frac1{i+1}$. Try them on the other half.

# %% [markdown] tags=["prediction"]
# **Predict.** For texts with a marker: how much of the variance of $\frac1{i+1}$ can a linear map explain from the output of *one untrained* causal layer? How much of the variance of $i$? And how much without the mask?
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.7: run this cell
length, width = 48, 32
positions = torch.arange(1, length).double()
targets = {"i": positions, "1/(i+1)": 1 / (positions + 1)}

def leak(seed, mask):
    """One untrained layer: reading of each target (200 texts with a marker), variance explained with and without marker, size."""
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(9, width, generator=generator)  # 8 letters; number 8 is the marker
    queries, keys, values = torch.randn(3, width, width, generator=generator) / width**0.5
    texts = torch.randint(0, 8, (400, length), generator=generator)

    def outputs(texts):
        x = embedding[texts][:, None]
        return scaled_dot_product_attention(0.3 * x @ queries, x @ keys, x @ values, mask)[0][:, 0].double()

    def read(out, target):
        """Least squares on the first 200 texts, without the marker's own position; the readings on the other 200."""
        features = torch.cat((out, torch.ones(400, length, 1, dtype=torch.float64)), dim=-1)[:, 1:]
        # Nine letters give nine directions at most. The others are float32 rounding, which rcond leaves out.
        fitted = torch.linalg.lstsq(features[:200].flatten(0, 1), target.repeat(200)[:, None], rcond=1e-6).solution
        readings = (features[200:] @ fitted)[..., 0]
        return readings, float(1 - (readings - target).square().mean() / target.var(correction=0))

    plain, marked = outputs(texts), outputs(torch.cat((torch.full((400, 1), 8), texts[:, 1:]), dim=1))
    with_marker = {name: read(marked, target) for name, target in targets.items()}
    explained = [with_marker[name][1] for name in targets] + [read(plain, target)[1] for target in targets.values()]
    return with_marker["1/(i+1)"][0], explained, (plain - plain.mean((0, 1))).square().sum(-1).mean(0).sqrt()

fig, (share, reading, size) = lab.figure("What one untrained layer says about the position", ncols=3, height=3.6)
rows = []
for (name, mask), colour, style in zip({"causal mask": causal_mask(length, length), "no mask": None}.items(),
                                       (lab.BLUE, lab.VERMILLION), ("-", "--")):
    _, weights = scaled_dot_product_attention(torch.zeros(1, 1, length, 1), torch.zeros(1, 1, length, 1),
                                              torch.zeros(1, 1, length, 1), mask)
    share.plot(weights[0, 0, :, 0], color=colour, linestyle=style, label=name)
    runs = [leak(seed, mask) for seed in range(5)]
    readings, _, lengths = runs[0]
    middle, spread = readings.mean(0), readings.std(0)
    reading.plot(positions, middle, color=colour, linestyle=style, label=name)
    reading.fill_between(positions, middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0)
    size.plot(lengths, color=colour, linestyle=style, label=name)
    explained = np.array([explained for _, explained, _ in runs])
    rows.append([name, *(f"{low + 0.0:.2f} to {high + 0.0:.2f}" for low, high in zip(explained.min(0).round(2), explained.max(0).round(2)))])
reading.plot(positions, targets["1/(i+1)"], color=lab.BLACK, linewidth=1.2, linestyle=":")
reading.text(6, 0.31, "dotted: the true 1/(i+1)", fontsize=9, color="#444444")
share.set(title="(a) equal scores:\nweight of token 0", xlabel="position i", ylabel="weight", ylim=(0, 1.05))
reading.set(title="(b) with marker:\n1/(i+1) as read out", xlabel="position i", ylabel="reading (mean ± std)", ylim=(0, 0.56))
size.set(title="(c) no marker:\ndistance from the mean output", xlabel="position i", ylabel="distance", ylim=(0, None))
for ax in (share, reading, size):
    ax.grid(axis="y")
share.legend(loc="center right")
plt.show()
lab.table(["variance explained, 5 seeds", "marker: i", "marker: 1/(i+1)", "no marker: i", "no marker: 1/(i+1)"], rows)


# %% [markdown]
# **Figure 1.7. Where position leaks.** Solid: causal mask. Dashed: no mask. (a) The first token's weight if all scores are equal. (b) What a linear map reads from the outputs (one seed; band: one standard deviation over texts). (c) How far outputs lie from their mean, in texts without a marker.
#
# <details><summary>After you have run it</summary>
#
# With a marker, the output reveals $\frac1{i+1}$: the read-out explains 0.83 to 0.91 of its variance in five seeds. A *linear* read-out of $i$ itself explains only 0.42 to 0.44, since $i$ is no linear function of $\frac1{i+1}$: even the exact fraction would explain only 0.49. Without the mask, a read-out explains nothing.
#
# Here, without a marker, no *linear* read-out works. (A share below 0 means: on new texts it does worse than always guessing the mean.) But the outputs draw closer to their mean as the text goes on, and a non-linear layer can use that. Chi et al. (2023) found this shrinking variance in language models without an encoding, both random and trained.
# </details>
#
# **What larger models do with the leak.** Haviv et al. (2022) trained causal language models without any encoding. These stayed competitive with standard ones, and positions could be read from their inner layers. Kazemnejad et al. (2023) prove that a first layer with suitable weights can recover absolute positions if the text begins with a marker. In their ranking over all tasks, on longer texts than in training, models without an encoding came first, ahead of T5's bias, ALiBi and RoPE.

# %% [markdown]
# ## 6 · Does A occur before B?
#
# Now a task that is *only* about order. A text has eight letters. A and B occur once each; the remaining positions hold letters drawn at random from six others. Does A come before B?
#
# The model has one attention layer with two heads, built on *your* attention and *your* mask, followed by a feed-forward layer and the mean over the positions. There are three versions, the *arms* of the experiment, with five training seeds each:
#
# 1. no mask, no positional encoding;
# 2. your causal mask, no positional encoding;
# 3. no mask, and a trained vector added at each position (a *learned* encoding: week 2).
#
# In the test every text appears **twice**: as it is, and with A and B exchanged.

# %% tags=["experiment"]
class OrderReader(nn.Module):
    def __init__(self, causal, vectors):
        super().__init__()
        self.causal = causal
        self.letters = nn.Embedding(8, 32)
        self.positions = nn.Parameter(torch.randn(8, 32)) if vectors else None
        self.project = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.read = nn.Linear(32, 1)

    def forward(self, texts):
        n = texts.shape[1]
        x = self.letters(texts)
        if self.positions is not None:
            x = x + self.positions[:n]
        q, k, v = (layer(x).unflatten(-1, (2, 16)).transpose(1, 2) for layer in self.project[:3])
        out, self.weights = scaled_dot_product_attention(q, k, v, causal_mask(n, n).to(x.device) if self.causal else None)
        x = x + self.project[3](out.transpose(1, 2).flatten(2))
        x = x + self.mlp(x)
        return self.read(x.mean(dim=1))[:, 0]  # above 0: "A before B"


# %% [markdown] tags=["prediction"]
# **Predict**, for each arm, the accuracy on the test texts of 8 letters. Then predict it for arms 1 and 2 on texts of 16 and 32 letters. How exact are your numbers: to within 0.1, to within 0.02, or closer? *Write your numbers down: you will need them in exercise 1.6.*
#
# *Your prediction:*

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.8: run this cell
# Trains 15 small models; budget: 20 seconds.
def ordering_texts(count, length, generator):
    """Letters A = 0 and B = 1 once each, at random positions, among random letters 2 to 7."""
    texts = torch.randint(2, 8, (count, length), generator=generator)
    spots = torch.rand(count, length, generator=generator).argsort(dim=1)[:, :2]
    texts.scatter_(1, spots, torch.tensor([0, 1]).expand(count, 2))
    return texts, (spots[:, 0] < spots[:, 1]).float()

def train_reader(seed, steps=150, **arm):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, losses = OrderReader(**arm), []
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        texts, answers = ordering_texts(64, 8, generator)
        loss = F.binary_cross_entropy_with_logits(model(texts), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses

@torch.no_grad()
def accuracy(model, length):
    texts, answers = ordering_texts(500, length, torch.Generator().manual_seed(99))
    exchanged = torch.where(texts < 2, 1 - texts, texts)  # A becomes B, and B becomes A
    both = model(torch.cat((texts, exchanged))) > 0
    return float((both == torch.cat((answers, 1 - answers)).bool()).float().mean())

threads = torch.get_num_threads()
torch.set_num_threads(1)  # small models: one thread is the fastest, and always adds in the same order
arms = {"no mask, no encoding": {"causal": False, "vectors": False}, "causal mask, no encoding": {"causal": True, "vectors": False},
        "no mask, a vector per position": {"causal": False, "vectors": True}}
fig, (left, right) = lab.figure("Does A occur before B? Five training seeds per arm", ncols=2, height=4.0,
                                width_ratios=(2, 3))
rows, causal_readers = [], []
for number, (name, arm) in enumerate(arms.items()):
    colour, style = (lab.VERMILLION, lab.BLUE, lab.GREEN)[number], ("--", "-", "-.")[number]
    runs = [train_reader(seed, **arm) for seed in range(5)]
    causal_readers = [model for model, _ in runs] if arm["causal"] else causal_readers
    losses = torch.tensor([losses for _, losses in runs])
    left.plot(losses.mean(0), color=colour, linestyle=style, label=name)
    left.fill_between(range(150), losses.amin(0), losses.amax(0), color=colour, alpha=0.2, linewidth=0)
    results = {n: [accuracy(model, n) for model, _ in runs] for n in ([8] if arm["vectors"] else [8, 16, 32])}
    for group, (n, found) in enumerate(results.items()):
        right.bar(group + 0.28 * (number - 1), np.mean(found), 0.26, color=colour, alpha=0.55)
        right.plot(group + 0.28 * (number - 1) + np.linspace(-0.08, 0.08, 5), found, linestyle="none", marker="o", markersize=3.5,
                   color="#222222")
    rows.append([name, *(f"{min(results[n]):.2f} to {max(results[n]):.2f}" if n in results else "no vectors" for n in (8, 16)),
                 f"{min(results[32]):.1f} to {max(results[32]):.1f}" if 32 in results else "no vectors"])
torch.set_num_threads(threads)
for group in (1, 2):
    right.text(group + 0.28, 0.03, "no vectors for\npositions ≥ 8", ha="center", va="bottom", fontsize=8, rotation=90, color="#444444")
left.axhline(math.log(2), color=lab.GREY, linewidth=1, linestyle=":")
left.text(149, math.log(2) + 0.05, "blind guess: ln 2", ha="right", fontsize=9, color="#444444")
left.set(title="training, texts of 8 letters", xlabel="step", ylabel="loss (nats)", ylim=(-0.03, 1.0))
fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
right.axhline(0.5, color=lab.GREY, linewidth=1, linestyle=":")
right.set_xticks(range(3), ["8 letters\n(as trained)", "16 letters", "32 letters"])
right.set(title="test: accuracy (dots: the five seeds)", ylabel="accuracy", ylim=(0, 1.1))
right.set_yticks([0, 0.25, 0.5, 0.75, 1])
plt.show()
lab.table(["accuracy, least to greatest of 5 seeds", "8 letters", "16 letters", "32 letters"], rows)

# %% [markdown]
# **Figure 1.8. The ordering task.** Left: mean training loss, with a band from the lowest to the highest of five seeds. Right: test accuracy, bars for the mean and dots for the seeds. Arm 3 has vectors for positions 0 to 7 only, so it cannot read longer texts.

# %% [markdown] nbgrader={"grade_id": "ordering_explained_question", "locked": true}
# ### Exercise 1.6 · Explain the ordering task
#
# **3 points · difficulty 3/5 · 40 minutes · text, graded by a person**
#
# *Why it matters:* you will hear that without a positional encoding a Transformer sees a *bag of words*, words without an order. That is half the truth. If you know which half, you can say what an experiment shows and what it does not.
#
# 1. State what you predicted for arms 1 and 2 and what was measured. Then explain arm 1's accuracy on this test set: how exact is it, and could other weights or longer training change it?
# 2. Explain arm 2's accuracy: it has no encoding. Be concrete: what can the output **at the position of B** contain if A comes before B, and what if A comes after B? Why does the mean over the positions not wipe this out?
# 3. A friend concludes: "So the causal mask tells every token its position. Decoders need no positional encoding." Test the first sentence on a text that consists of **one letter, repeated $n$ times**: compute the outputs of a causal attention layer at all positions (any weights, no encoding). What does your result say about the first sentence? Then name one thing in Figure 1.8, or in how the experiment was set up, that makes the second sentence premature.
#
# Ten to fifteen lines are enough.
#
# ### BEGIN MARK SCHEME
# 1 point per part; half points are allowed.
#
# 1. 1 point: prediction and measurement are stated (a wrong prediction costs nothing; a missing one costs half a point). The layer is equivariant, the mean makes the model invariant; a text and the one with A and B exchanged consist of the same tokens, so the model gives both the same answer, and exactly one of the two is right. It holds for all weights, so training cannot change it. Saying only "there is no position information, so it guesses" earns half a point at most.
# 2. 1 point: B's query can attend to A only if A stands before B (otherwise it is masked); so the output at B contains A's value (with any weight the model has learned to give it) in one case and cannot contain it in the other; the same holds at A. The feed-forward layer, applied at each position before the mean, can turn this into a feature of its own, which the mean only divides by n. Half a point if it is only said that "the mask breaks the symmetry".
# 3. 1 point: all values are the same vector v, and weights add up to 1, so the output is v at every position, whatever the weights, and tells no position. The mask does not give positions by itself; it shows through *different* contents (a marker, other letters). Half a point for the computation with its conclusion. Half a point for one honest limit: accuracy at 32 letters falls for some seeds; one easy task with two letters only; one layer, tiny model; the order of two tokens is not a distance or an exact position; nothing here tests language modelling.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "ordering_explained", "grade": true, "solution": true, "points": 3}
# ### BEGIN SOLUTION
# 1. I predicted 0.50 to within 0.02 for arm 1 and 0.8 for arm 2; the experiment gave 0.50 and 1.00. Arm 1: attention without a mask is equivariant, the feed-forward layer works token by token, and the mean over the positions makes the answer invariant (1.4). A text and its twin with A and B exchanged hold the same letters in another order, so the model gives both the same number, hence the same answer. This answer is right for one of the two and wrong for the other, so each pair contributes exactly one half. This is true for any weights; there is nothing that training could find.
#
# 2. The query of B can look for A. If A stands before B, A's key is visible, and the output at B can contain much of A's value. If A stands after B, A is masked, and the output at B contains nothing of it, whatever the weights. So the vector at B differs between the two cases. The feed-forward layer sees this vector *before* the mean is taken and can write "A was seen" into a channel of its own. The mean adds this to the other positions' contributions and divides by 8; the read-out can undo the 8 with a larger weight. (The reverse, "B was seen at A", also works.)
#
# 3. In a text of one letter all values are the same vector $v$. At position $i$ the output is $\sum_{j\le i}a_{ij}v=v\sum_{j\le i}a_{ij}=v$: the same at each position, for any weights. So the mask alone tells no token where it stands. It decides which tokens are seen, and that shows only if these differ: in their letters, or by a marker at the start. The second sentence is premature: on 32 letters, four times the training length, not all of the five seeds are at 1.00; and we tried one easy task, in which only the order of two letters counts, not how far apart they are.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1 (part 1)</summary>
#
# What did you prove in 1.4, part 2? Which two texts of the test set consist of the same letters?
# </details>
#
# <details><summary>Hint 2 (part 2)</summary>
#
# Look at row B of a causal attention map: is there an entry in column A?
# </details>
#
# <details><summary>Hint 3 (part 3)</summary>
#
# A weighted mean of equal vectors, with weights that add up to 1, is …
# </details>

# %% [markdown]
# ### Look inside
#
# Write your answer to 1.6 first. Then see how the trained causal model solves the task: the next cell draws its attention on one text and on its twin.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 1.9: run this cell
letters = "ABcdefgh"
text = torch.tensor([[4, 0, 7, 2, 5, 1, 3, 6]])
twin = torch.where(text < 2, 1 - text, text)
with torch.no_grad():
    seen = []
    for each in (text, twin):
        causal_readers[0](each)
        seen.append(causal_readers[0].weights[0].clone())
at_b = lambda weights, each: float(weights[int((each[0] == 1).nonzero()), int((each[0] == 0).nonzero())])
head = int(at_b(seen[0][1], text) > at_b(seen[0][0], text))  # the head in which B looks for A
fig, axes = lab.figure("The trained causal model reads a text and its twin", ncols=2, width=7.6, height=3.9)
for ax, each, weights, title in zip(axes, (text, twin), seen, ("A before B", "B before A")):
    names = [letters[letter] for letter in each[0].tolist()]
    image = ax.imshow(weights[head], cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    hatch(ax, ~causal_mask(8, 8))
    row = names.index("B")
    ax.add_patch(plt.Rectangle((-0.46, row - 0.46), 7.92, 0.92, fill=False, edgecolor=lab.VERMILLION, linewidth=2))
    ax.set_xticks(range(8), names)
    ax.set_yticks(range(8), names)
    ax.set(title=title, xlabel="key", ylabel="query")
fig.colorbar(image, ax=list(axes), shrink=0.8).ax.set_title("weight", fontsize=9, loc="left")
plt.show()

many, answers = ordering_texts(1000, 8, torch.Generator().manual_seed(99))
position_of = lambda letter: (many == letter).int().argmax(1)
row = torch.arange(1000)
rows = []
with torch.no_grad():
    for query, key, name in ((1, 0, "B on A"), (0, 1, "A on B")):
        found = []
        for model in causal_readers:
            model(many)
            weights = model.weights[row, :, position_of(query), position_of(key)]  # (1000, heads)
            visible = position_of(key) < position_of(query)
            found.append((float(weights[visible].mean(0).max()), float(weights[~visible].max())))
        rows.append([name, f"{sum(mean > 0.7 for mean, _ in found)} of 5", f"{sum(largest == 0 for _, largest in found)} of 5"])
lab.table(["weight, in the stronger head", "mean above 0.7 if visible", "exactly 0 if hidden"], rows)

# %% [markdown]
# **Figure 1.9. Inside the trained model.** Attention of one head (seed 0) on a text of eight letters and on its twin, in which A and B have swapped positions. Hatched: hidden by the mask. Framed: the row of B.
#
# <details><summary>After you have run it</summary>
#
# This one weight shows the answer. Over 1,000 texts, in the stronger of the two heads, B puts a mean weight of 0.81 to 0.99 on A if A comes before it (five seeds), and exactly 0 if not. (The 0 is the mask's doing; what training has found is the large weight.) It is not the only way: hide A and B from each other, and the accuracy is still 0.80 to 0.86, since the other letters see them as well. Compare that with what you wrote.
# </details>

# %% [markdown]
# ## 7 · The answer
#
# Put the question of the week to your own two functions. Use random embeddings, the head of section 3, and the mean over the positions.

# %% [markdown] tags=["prediction"]
# **Predict.** How far apart are the two sentences, without a mask and with a causal one?
#
# *Your prediction:*

# %% tags=["experiment"]
dog_bites, man_bites = ("the dog bites the man".split(), "the man bites the dog".split())
embedded = lambda words: torch.stack([vocabulary[word] for word in words])[None]
read = lambda words, mask: self_attention(embedded(words), mask)[0].mean(dim=1)
for name, mask in (("no mask", None), ("causal mask", causal_mask(5, 5))):
    apart = float((read(dog_bites, mask) - read(man_bites, mask)).abs().max())
    print(f"{name}: the two means differ by", "less than 0.00001" if apart < 1e-5 else f"{apart:.2f}")

# %% tags=["experiment"]
lab.moving_words(dog_bites, self_attention(embedded(dog_bites))[1][0], embedded(dog_bites)[0] @ w_v)

# %% [markdown]
# **Figure 1.10. Words to drag.** Your head's attention map of the sentence. Drag a word, or move it with the arrow keys; switch the mask on and off. The line below says how far the mean of the outputs has moved.
#
# <details><summary>After you have run it</summary>
#
# Can a Transformer tell who bites whom? Without a mask and without an encoding it cannot: it sees the same five words, whatever its weights. With a causal mask it can, to a degree. Each word sees only itself and the words before it, so order leaks in through the contents. How much a large model can build on this leak is still open.
# </details>

# %% [markdown]
# ## 8 · Test yourself
#
# Answer aloud, in two or three sentences, then open.
#
# <details><summary>1. Why divide by the square root of the head dimension? Why not by d?</summary>
#
# The variance of a dot product of independent, normalised channels is $d$, so its typical size is $\sqrt d$. Dividing by $\sqrt d$ keeps the scores of order 1 at every width. Dividing by $d$ would make them vanish for large $d$, and the weights nearly uniform.
# </details>
#
# <details><summary>2. Along which axis is the softmax, and how do you see a mistake?</summary>
#
# Along the keys. To check, sum the weights over the last axis: each query's weights add up to 1.
# </details>
#
# <details><summary>3. Does a padding mask break equivariance?</summary>
#
# Not if it moves along with the tokens: then it is part of the input. A mask that is tied to positions can break it, unless no reordering changes the mask.
# </details>
#
# <details><summary>4. Ten tokens are in the cache and you feed in three more. What is the shape of the mask, and its first row?</summary>
#
# (3, 13). The first new token is at position 10 and sees keys 0 to 10: eleven times True, then twice False.
# </details>
#
# <details><summary>5. You get a layer as a black box. How do you find out whether it uses the order?</summary>
#
# Switch dropout off. Then measure the gap between $f(PX)$ and $Pf(X)$ for random inputs and random permutations. Don't test with swaps alone: a swap is its own inverse, so it hides it if your test takes the inverse permutation by mistake.
# </details>
#
# <details><summary>6. Where is it an advantage not to know the order?</summary>
#
# For sets: points of a point cloud, items in a basket, particles, atoms. Deep Sets (Zaheer et al., 2017) and the Set Transformer (Lee et al., 2019) use this.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | Shuffling the tokens leaves the attention map as it is | Its rows and columns are shuffled in the same way. | Figure 1.4 |
# | "At chance" means near one half | Not always. In 1.6 you explained why arm 1 is *exactly* at one half. | 1.6 |
# | Scores are divided by $\sqrt{d_{model}}$ | By the square root of the *head* dimension, the number of terms in the dot product. | Figure 1.2 |
# | $-10^9$ is as good as $-\infty$ | In a fully masked row it gives hidden keys all the weight, and float16 cannot hold it. | section 2 |
# | `nan_to_num` after the softmax cures a fully masked row | It cures the value, but the gradient may stay NaN. | section 2 |
# | `is_causal=True` is right whenever text is generated | It is aligned at the top left: with a cache, new queries see the first keys only. | Figure 1.5 |
# | LayerNorm, residuals or depth let the order in | All three are equivariant. | section 3 |
#
# ## Takeaways
#
# 1. Attention without a mask: shuffle in, shuffle out. Nothing in it knows a position.
# 2. Equivariant + mean = invariant: two texts with the same tokens get the same answer.
# 3. Mask before the softmax, mind the range of float16, and test the row that sees nothing.
# 4. Next week puts the order in, with sines and cosines.
#
# ## References
#
# - A. Vaswani et al.: *Attention Is All You Need*, 2017, arXiv:1706.03762. Section 3.2.1 (scaled dot-product attention and its scale), 3.2.3 (the causal mask), 3.5 (why order must be put in).
# - M. Zaheer et al.: *Deep Sets*, 2017, arXiv:1703.06114 (invariant and equivariant functions of sets).
# - J. Lee et al.: *Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks*, 2019, arXiv:1810.00825.
# - A. Haviv, O. Ram, O. Press, P. Izsak, O. Levy: *Transformer Language Models without Positional Encodings Still Learn Positional Information*, 2022, arXiv:2203.16634.
# - T.-C. Chi, T.-H. Fan, L.-W. Chen, A. I. Rudnicky, P. J. Ramadge: *Latent Positional Information is in the Self-Attention Variance of Transformer Language Models Without Positional Embeddings*, 2023, arXiv:2305.13571.
# - A. Kazemnejad et al.: *The Impact of Positional Encoding on Length Generalization in Transformers*, 2023, arXiv:2305.19466.
# - Code: [flash-attention 2.5.9, README](https://github.com/Dao-AILab/flash-attention/blob/v2.5.9/README.md#21-change-behavior-of-causal-flag); [transformers 5.23, `masking_utils.py`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/masking_utils.py).
