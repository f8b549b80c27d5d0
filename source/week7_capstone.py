# %% [markdown]
# # Week 7 · Capstone: a cache, two sequences, one decision
#
# **In short.** A model that serves people writes one token at a time and keeps what it has computed for the earlier ones. Build that store, join two encodings in one model, then decide which encoding a real project should use.
#
# A chat server answers after 100,000 tokens without computing them anew for every word. What does it keep, how large is that store, and which position does the next token have? Get one index wrong, and no error is raised. This week's bugs are of that kind.
#
# <!-- costs of week7_capstone -->
#
# ## What you will be able to do
#
# - share key and value heads among query heads, and say what a cache costs in bytes;
# - write attention with a KV cache that gives the same output however the text is cut into pieces;
# - serve a batch of texts of different lengths, padded on the left, and let a model write;
# - move cached keys to other positions without computing them again;
# - write cross-attention with positions on both sides or on none, and a decoder block around it;
# - say when copying and reversing extrapolate beyond the training length, and find the part that stops them;
# - defend a choice of encoding in one page.
#
# **You need** weeks 1, 3 and 4 for the code: attention with masks, RoPE, ALiBi. 7.9 and 7.10 also draw on week 5. Exercises 3.3 and 4.6 come ready made in `ready_blocks.py`.
#
# **Short of time?** 7.1, 7.3 and 7.4 are the core; 7.10 is what an employer would ask for.
#
# <!-- points of week7_capstone -->
#
# A *visible check* carries no points: it says what is wrong. You pay for a mistake once: 7.3, 7.4, 7.6 and 7.7 may call earlier answers, and get their points if they use a wrong one correctly. *Predict* cells are not graded; do them anyway.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`; $d$ is the head dimension. Masks are boolean, True = may attend.
# - A model has `n_heads` query heads and `n_kv_heads` key and value heads. The query heads that share one key head are a **group**.
# - In self-attention with fewer queries than keys, the queries are the *last* positions, as always in this course.
# - A **cache** is a plain tuple `(k, v)`, each `(batch, n_kv_heads, n_cached, head_dim)`.
# - RoPE is in the interleaved layout of exercise 3.3.
# - Functions keep the dtype and device of their input, keep gradients, and never change an argument in place.

# %% tags=["setup"] nbgrader={"grade_id": "setup", "locked": true}
import json
import math
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import lab
import ready_blocks as ready
from ready_blocks import ALiBiMultiHeadAttention, apply_rotary_emb

lab.use_style()
torch.manual_seed(0)
np.random.seed(0)

# %% [markdown]
# ## 1 · What a server keeps
#
# A decoder writes token after token. For the newest token it needs a query, and the keys and values of *all* tokens so far. The old keys and values have not changed: under a causal mask, no later token can change them. So keep them. That store is the **KV cache**.
#
# The cache is large. Every layer keeps two vectors per token and key head. At long contexts the cache, not the weights, decides how many people one GPU can serve. And every step must read all of it, so its size also sets the speed.
#
# **Fewer key heads.** In multi-head attention, MHA, every query head has a key head and a value head of its own. Shazeer (2019) gave all query heads *one* of each: multi-query attention, MQA. Ainslie et al. (2023) chose the middle: $g$ key heads, each shared by a group of neighbouring query heads. This is **grouped-query attention**, GQA. Mistral uses it, with 8 key heads for 32 query heads ([`MistralConfig`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/mistral/configuration_mistral.py), transformers 5.23). With $h$ query heads, query head number $r$ reads key head
#
# $$\left\lfloor \frac{r}{h/g} \right\rfloor . \tag{1}$$
#
# **A worked example.** With $h=6$ and $g=2$, a group has three query heads. Heads 0, 1, 2 read key head 0; heads 3, 4, 5 read key head 1. In PyTorch, `repeat_interleave(3, dim=1)` gives this order: 0, 0, 0, 1, 1, 1. The similar-looking `repeat` gives 0, 1, 0, 1, 0, 1. No shape tells the two apart.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 7.1: run this cell.
ways = {"MHA": list(range(8)), "GQA": [0, 0, 0, 0, 1, 1, 1, 1], "MQA": [0] * 8, "MLA": [0] * 8,
        "with repeat (wrong)": [0, 1, 0, 1, 0, 1, 0, 1]}
fig, axes = lab.figure("What eight query heads read", ncols=5, height=2.5, sharey=True)
for ax, (name, reads) in zip(axes, ways.items()):
    places = np.linspace(0, 7, max(reads) + 1) if max(reads) > 1 else [[3.5], [1.5, 5.5]][max(reads)]
    for query_head, key_head in enumerate(reads):
        second = int(max(reads) == 1 and key_head == 1)
        ends = [(2.5, lab.BLUE, "-"), (5.9, lab.ORANGE, "--")] if name == "MLA" else [
            (places[key_head], (lab.BLUE, lab.VERMILLION)[second], lab.LINES[second])]
        for end, colour, style in ends:
            ax.plot([query_head, end], [1, 0.1], color=colour, linestyle=style, linewidth=1.2)
    ax.plot(range(8), [1] * 8, "o", color=lab.QUERY, markersize=7)
    if name == "MLA":
        ax.add_patch(plt.Rectangle((0.4, -0.1), 4.2, 0.2, color=lab.GREEN))
        ax.add_patch(plt.Rectangle((5.2, -0.1), 1.4, 0.2, color=lab.ORANGE))
        ax.text(2.5, -0.18, "latent", ha="center", va="top", fontsize=9)
        ax.text(5.9, -0.18, "rotated", ha="center", va="top", fontsize=9)
    else:
        ax.plot(places, [0] * len(places), "s", color=lab.KEY, markersize=9)
    ax.set(title=name, xlim=(-0.7, 7.7), ylim=(-0.32, 1.2), xticks=[], yticks=[0, 1])
    for side in ("bottom", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(left=False)
axes[0].set_yticklabels(["cached", "query heads"])
plt.show()


# %% [markdown]
# **Figure 7.1. What is kept, and who reads it.** Squares: key heads in the cache. In GQA neighbouring query heads share one. MLA (explained below) keeps a latent for all heads and a small rotated key. The last panel has the shapes of GQA, but its heads alternate: a checkpoint of one order silently loads into code of the other.

# %% [markdown]
# ### Exercise 7.1 · Grouped-query attention
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* most open models of recent years use grouped queries. With one key head, or with a key head for every query head, the wrong order gives the right result, so many tests miss the mistake.
#
# Everything else is as in exercise 1.1: scaled scores, a boolean mask, zero weights, a zero output and finite gradients for a query that may attend to nothing.

# %% nbgrader={"grade_id": "grouped_query_attention", "solution": true}
def grouped_query_attention(q, k, v, mask=None):
    """Attention in which neighbouring query heads share a key head and a value head.

    q:       (batch, n_heads, n_queries, head_dim)
    k:       (batch, n_kv_heads, n_keys, head_dim)
    v:       (batch, n_kv_heads, n_keys, v_dim)
    mask:    boolean, broadcasts to (batch, n_heads, n_queries, n_keys), True = may attend; None = everywhere
    returns: (out, weights): (batch, n_heads, n_queries, v_dim), (batch, n_heads, n_queries, n_keys)
    raises ValueError if n_heads is not a multiple of n_kv_heads
    """
    ### BEGIN SOLUTION
    n_heads, n_kv_heads = q.shape[1], k.shape[1]
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} query heads cannot share {n_kv_heads} key heads evenly")
    k, v = (shared.repeat_interleave(n_heads // n_kv_heads, dim=1) for shared in (k, v))
    raw = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
    if mask is None:
        weights = raw.softmax(dim=-1)
    else:
        nothing = ~mask.any(dim=-1, keepdim=True)  # rows without a key: finite scores first, zero weights after
        weights = raw.masked_fill(~mask, -math.inf).masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)
    return weights @ v, weights
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Bring k and v to `n_heads` heads first. Everything after that is exercise 1.1.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Where do k and v get `n_heads // n_kv_heads` copies of each head? On axis 1, before the scores.
# </details>
#
# <details><summary>Hint 3: rows without a key</summary>
#
# A row that holds only $-\infty$ gives $0/0$. Give such a row finite scores before the softmax and zero weights after it.
# </details>

# %% nbgrader={"grade_id": "grouped_query_attention_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
generator = torch.Generator().manual_seed(1)
q, k = torch.randn(1, 6, 2, 4, generator=generator), torch.randn(1, 2, 5, 4, generator=generator)
v = torch.arange(2.0).view(1, 2, 1, 1).expand(1, 2, 5, 3)  # every value of key head g is g
before = q.clone()
result = grouped_query_attention(q, k, v)
assert torch.equal(q, before), "your function changed q itself; work on new tensors."
assert isinstance(result, (tuple, list)) and len(result) == 2, "return two things: (out, weights)."
out, weights = result
assert tuple(out.shape) == (1, 6, 2, 3), f"out: shape (1, 6, 2, 3) expected, got {tuple(out.shape)}."
assert tuple(weights.shape) == (1, 6, 2, 5), f"weights: shape (1, 6, 2, 5) expected, got {tuple(weights.shape)}."
assert torch.allclose(weights.sum(-1), torch.ones(1, 6, 2)), "the weights of a query add up to 1 over the keys."
read = [round(float(out[0, head, 0, 0])) for head in range(6)]
assert read == [0, 0, 0, 1, 1, 1], (
    f"here every value of head g is g, so out says which value head was read: {read}. "
    "Of six query heads the first three share head 0, the last three head 1.")
v = torch.randn(1, 2, 5, 3, generator=generator)
out, weights = grouped_query_attention(q, k, v)
alone, alone_weights = grouped_query_attention(q[:, 4:5], k[:, 1:], v[:, 1:])
assert torch.allclose(weights[:, 4:5], alone_weights, atol=1e-5), (
    "query head 4 reads the right values but other keys: group the keys as you group the values.")
assert torch.allclose(out[:, 4:5], alone, atol=1e-5), "query head 4 must give what it gives alone with key and value head 1."
# On paper: q.k is 3 ln 3 for key 0 and 0 for key 1. Divided by sqrt(head_dim) = 3 that is ln 3 and 0: weights 3/4 and 1/4.
paper = grouped_query_attention(3 * math.log(3) * torch.eye(1, 9).expand(1, 2, 1, 9), torch.eye(2, 9)[None, None],
                                torch.ones(1, 1, 2, 3))[1]
assert torch.allclose(paper, torch.tensor([0.75, 0.25]).expand(1, 2, 1, 2), atol=1e-3), (
    f"q.k is 3 ln 3 and 0, and head_dim is 9: the weights are 0.75 and 0.25, yours {float(paper[0, 0, 0, 0]):.3f} and "
    f"{float(paper[0, 0, 0, 1]):.3f}. Are the scores divided by sqrt(head_dim), once?")
mask = torch.ones(1, 6, 2, 5, dtype=torch.bool)
mask[0, 3, 1], mask[0, 5, 0, 2] = False, False
out, weights = grouped_query_attention(q, k, v, mask)
assert float(weights[0, 5, 0, 2]) == 0, "the mask has a row for every head; key 2 is hidden from query 0 in head 5."
assert abs(float(weights[0, 5, 0].sum()) - 1) < 1e-5, "with a mask, too, the weights add up to 1: hide keys before the softmax."
assert bool(out.isfinite().all()), "head 3 hides all keys from query 1: its weights and its output are zero, not NaN."
assert float(out[0, 3, 1].abs().max()) == 0, "a query that may attend to nothing has a zero output."
assert lab.raises(ValueError, grouped_query_attention, q[:, :5], k, v), "5 query heads and 2 key heads: ValueError."
# It computes where its inputs are, on any device.
lab.follows_the_device(grouped_query_attention, torch.ones(1, 4, 3, 4), *(torch.ones(1, 2, 3, 4),) * 2)
lab.follows_the_device(grouped_query_attention, torch.ones(1, 4, 3, 4), *(torch.ones(1, 2, 3, 4),) * 2, torch.ones(3, 3) > 0)
print("Looks right. The hidden tests use 8 and 12 query heads, other widths for v, and masks of every shape.")

# %% nbgrader={"grade_id": "grouped_query_attention_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.grouped_query_attention(grouped_query_attention)
### END HIDDEN TESTS

# %% [markdown]
# ### What a cache costs
#
# One token costs, in bytes,
#
# $$\underbrace{n_\text{layers}}_{\text{each has its own}}\ \cdot\ \underbrace{n_\text{kv heads}\,(d_k+d_v)}_{\text{keys and values}}\ \cdot\ \underbrace{b}_{\text{bytes per number}} . \tag{2}$$
#
# **Multi-head latent attention** (MLA, DeepSeek-V2 and V3) goes another way. It stores no heads at all. Per token and layer it keeps one **latent** vector, from which every head makes its key and its value, and one small **rotated key** that all heads share. Rotating all channels would block a shortcut of MLA (week 8), so RoPE gets channels of its own.

# %% [markdown]
# ### Exercise 7.2 · Five sizes
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* "does it fit?" is the first question about every deployment, and you can answer it on paper.
#
# Two models store 2 bytes per number. **A:** 32 layers, 32 query heads, 8 key and value heads, keys and values of 128 numbers. **B** (the sizes of DeepSeek-V3): 61 layers, a latent of 512 numbers and a rotated key of 64. A GiB is $2^{30}$ bytes. Give **at least four significant digits.**

# %% tags=["by-hand"] nbgrader={"grade_id": "cache_sizes", "solution": true}
# Replace every None by a number, at least four significant digits.
cache_sizes = {
    "gqa_token": None,  # A: bytes per token
    "gqa_gib": None,  # A: GiB for 8192 tokens
    "mha_gib": None,  # A with 32 key and value heads: GiB for 8192 tokens
    "mla_token": None,  # B: bytes per token
    "expanded_token": None,  # B, if the keys (192 numbers) and values (128) of all 128 heads were stored instead
}
### BEGIN SOLUTION
cache_sizes |= {
    "gqa_token": 131072,  # 32 * 8 * (128 + 128) * 2
    "gqa_gib": 1.0,  # 131072 * 8192 / 2**30
    "mha_gib": 4.0,  # four times as many heads
    "mla_token": 70272,  # 61 * (512 + 64) * 2
    "expanded_token": 4997120,  # 61 * 128 * (192 + 128) * 2
}
### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Use equation (2). Keys and values both count, and each number takes 2 bytes.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The 32 query heads do not enter: queries are not stored. For MLA no head enters: per layer, count the latent and the rotated key, once.
# </details>

# %% nbgrader={"grade_id": "cache_sizes_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell. It looks at the form of the answer, not at the values.
numbers = lab.must_be_numbers(cache_sizes, "gqa_token", "gqa_gib", "mha_gib", "mla_token", "expanded_token")
for key, value in numbers.items():
    assert value > 0, f"{key!r} must be above zero, got {value}."
print("Five finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "cache_sizes_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.cache_sizes(cache_sizes)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · A cache for any split
#
# The contract is one sentence: **however you cut the text, the output is that of the whole text at once.** A prompt of 1,000 tokens comes in one piece, or in pieces of 256 to save memory. Then single tokens follow.
#
# Three things must be right. The first call can hide a mistake in each.
#
# - **Positions.** If $c$ tokens are cached, the new ones have the positions $c, c+1, \dots$, not $0, 1, \dots$
# - **The mask.** Rows are the new tokens, columns are all tokens. Row $r$ sees the columns up to $c+r$. This is the causal mask, aligned at the end (exercise 1.5).
# - **What is stored.** Store rotated keys or raw ones, but rotate none twice. Store key heads, not their copies for every query head. And leave the caller's cache as it was: two answers may continue one prompt.

# %% tags=["experiment"]
lab.moving_cache()


# %% [markdown]
# **Figure 7.2. Three new tokens meet five cached ones.** Each new token has a row, each key a column. Blue: cached and seen; orange: new and seen; white: hidden. Dashed: what a mask aligned at the top left would let through. Move the sliders: where does the diagonal start, and what is the first row's position?

# %% [markdown] nbgrader={"grade_id": "found_in_the_wild", "locked": true}
# **As found in the wild.** Blocks like this one circulate as "attention with RoPE, GQA and a KV cache". This one runs, and all its shapes fit. What is missing or wrong? (Three things, and a fourth if you have done 7.1.)
#
# ```python
# class LlamaStyleAttention(nn.Module):
#     def forward(self, x, cache=None):
#         b, n, _ = x.shape
#         q = self.q_proj(x).view(b, n, self.n_heads, -1).transpose(1, 2)
#         k = self.k_proj(x).view(b, n, self.n_kv_heads, -1).transpose(1, 2)
#         v = self.v_proj(x).view(b, n, self.n_kv_heads, -1).transpose(1, 2)
#         q = apply_rotary_emb(q, torch.arange(n))
#         k = apply_rotary_emb(k, torch.arange(n))
#         # if cache is not None:
#         #     k = torch.cat([cache[0], k], dim=2)
#         #     v = torch.cat([cache[1], v], dim=2)
#         rep = self.n_heads // self.n_kv_heads
#         out = F.scaled_dot_product_attention(q, k.repeat(1, rep, 1, 1), v.repeat(1, rep, 1, 1))
#         return self.o_proj(out.transpose(1, 2).reshape(b, n, -1)), (k, v)
# ```
#
# <details><summary>What is missing</summary>
#
# The cache is never read: its lines are commented out. Positions start at 0 in every call. There is no causal mask. And `repeat` gives the query heads the wrong key heads.
# </details>

# %% [markdown]
# ### Exercise 7.3 · Attention with a cache
#
# **6 points · difficulty 4/5 · 55 minutes · code**
#
# *Why it matters:* every chat runs on this layer. None of the four mistakes above raises an error.
#
# You may call your own 7.1 and the ready `apply_rotary_emb(x, positions, base)`. Where the sizes do not fit, raise `ValueError` when the module is made: `n_heads` must divide `d_model`, `n_kv_heads` must divide `n_heads`, and the head dimension must be even.

# %% nbgrader={"grade_id": "CachedAttention", "solution": true}
class CachedAttention(nn.Module):
    """Causal grouped-query self-attention with RoPE (interleaved) and a KV cache.

    Bias-free projections q_proj, k_proj, v_proj, o_proj and nothing else in the state_dict; k_proj and v_proj have
    n_kv_heads * head_dim rows, head_dim = d_model // n_heads.
    """

    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads or n_heads % n_kv_heads or (d_model // n_heads) % 2:
            raise ValueError(f"sizes that do not fit: d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv_heads}")
        self.head_dim, self.base = d_model // n_heads, base
        kv_rows = n_kv_heads * self.head_dim
        self.q_proj, self.o_proj = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)
        self.k_proj, self.v_proj = nn.Linear(d_model, kv_rows, bias=False), nn.Linear(d_model, kv_rows, bias=False)
        ### END SOLUTION

    def forward(self, x, cache=None):
        """Read one more piece of the text.

        x:       (batch, n_new, d_model), n_new >= 1
        cache:   what the previous call returned, or None at the start of the text; it is not changed
        returns: (out, cache): (batch, n_new, d_model), and the tuple (k, v) of all tokens so far, each
                 (batch, n_kv_heads, n_cached, head_dim) in the dtype of the projections
        """
        ### BEGIN SOLUTION
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        n_cached = 0 if cache is None else cache[0].shape[2]
        positions = torch.arange(n_cached, n_cached + x.shape[1], device=x.device)
        q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, positions, self.base)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)  # new tensors: the old cache stays
        seen = torch.arange(k.shape[2], device=x.device) <= positions[:, None]
        out, _ = grouped_query_attention(q, k, v, seen)
        return self.o_proj(out.transpose(1, 2).flatten(2)), (k, v)
        ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1: the order of things</summary>
#
# Project, split into heads, rotate the new queries and keys, append to the cache, attend, merge, project. If you store the keys after the rotation, you never touch them again.
# </details>
#
# <details><summary>Hint 2: positions and mask from one source</summary>
#
# `cache[0].shape[2]` is the number of cached tokens. The positions of the new tokens follow from it. A key at position $j$ is seen by a query at position $i$ if $j\le i$: compare two ranges.
# </details>
#
# <details><summary>Hint 3: bfloat16</summary>
#
# `.to(torch.bfloat16)` converts parameters and buffers. Keep no table in a buffer, and let `apply_rotary_emb` compute the angles from integer positions.
# </details>

# %% nbgrader={"grade_id": "CachedAttention_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
module = CachedAttention(16, 4, 2)
state = module.state_dict()
assert {name: tuple(value.shape) for name, value in state.items()} == {
    "q_proj.weight": (16, 16), "k_proj.weight": (8, 16), "v_proj.weight": (8, 16), "o_proj.weight": (16, 16)}, (
    "CachedAttention(16, 4, 2): the state_dict must hold q_proj and o_proj (16, 16), k_proj and v_proj (8, 16), and no "
    f"more; yours holds { {name: tuple(value.shape) for name, value in state.items()} }.")
generator = torch.Generator().manual_seed(3)
x = torch.randn(2, 7, 16, generator=generator)

# Seven equal tokens: whatever the weights, the mean of seven equal values is that value. Key head 0 holds 0, 1, 2, 3 and key
# head 1 holds 4, 5, 6, 7; o_proj doubles them.
module.load_state_dict({name: 2 * torch.eye(*value.shape) for name, value in state.items()} | {
    "v_proj.weight": torch.arange(8.0)[:, None].expand(8, 16) / 16})
result = module(torch.ones(1, 7, 16))
assert isinstance(result, tuple) and len(result) == 2, "return the pair (out, cache)."
same = [round(number, 3) for number in result[0][0, 6].tolist()]
assert same == [0, 2, 4, 6, 0, 2, 4, 6, 8, 10, 12, 14, 8, 10, 12, 14], (
    "for seven equal tokens each query head gives the value of its key head, doubled by o_proj: 0 2 4 6 twice, then 8 10 12 14 "
    f"twice; yours: {same}. If your 7.1 passes its check: do you split into (batch, n, heads, head_dim) before you swap n and "
    "heads, and swap back before you merge? Are the values unrotated? Does the output go through o_proj?")

# On paper: all weights are the identity, but queries keep the odd channels only. Each head has the tokens (1, 0, 1, 0) and
# (0, 1, 0, 1). The second has the score -sin 1 - sin 0.01 = -0.851 with the first and 2 with itself, both divided by sqrt(4).
two = CachedAttention(8, 2, 1)
two.load_state_dict({name: torch.eye(*value.shape) for name, value in two.state_dict().items()} | {
    "q_proj.weight": torch.diag(torch.tensor([0.0, 1] * 4))})
paper = two(torch.tensor([[[1.0, 0, 1, 0] * 2, [0.0, 1, 0, 1] * 2]]))[0][0, 1].detach()
assert torch.allclose(paper, torch.tensor([0.194, 0.806] * 4), atol=2e-3), (
    f"on paper the second token gives the first the weight 0.194 and itself 0.806; yours gives {float(paper[0]):.3f} and "
    f"{float(paper[1]):.3f}. Does it see the first token and itself? Are queries and keys both rotated, in neighbouring pairs, and "
    "the scores divided by sqrt(head_dim)?")

module.load_state_dict({name: torch.randn(value.shape, generator=generator) * 0.5 for name, value in state.items()})
whole, cache = module(x)
assert tuple(whole.shape) == (2, 7, 16), f"out: shape (2, 7, 16) expected, got {tuple(whole.shape)}."
assert isinstance(cache, tuple) and len(cache) == 2, "the cache is a plain tuple (k, v)."
for part in cache:
    assert tuple(part.shape) == (2, 2, 7, 4), (
        f"after 7 tokens k and v are (batch, n_kv_heads, 7, head_dim) = (2, 2, 7, 4); yours: {tuple(part.shape)}.")
other = torch.cat((x[:, :5], torch.randn(2, 2, 16, generator=generator)), dim=1)
assert torch.allclose(module(other)[0][:, :5], whole[:, :5], atol=1e-4), (
    "with other tokens 5 and 6 the outputs of the tokens 0 to 4 change: is what comes later hidden?")
for sizes in ([6, 1], [1] * 7, [3, 4], [2, 4, 1]):
    start, memory = 0, None
    for size in sizes:
        out, memory = module(x[:, start:start + size]) if memory is None else module(x[:, start:start + size], memory)
        gap = float((out - whole[:, start:start + size]).detach().abs().max())
        assert gap < 1e-3, (
            f"in pieces of {sizes}, the tokens {start} to {start + size - 1} differ from the whole by {gap:.2g}. "
            "Single tokens wrong: look at their position and at what they attend to. Longer pieces wrong: look at the mask.")
        start += size
_, prefix = module(x[:, :4])
before = [part.clone() for part in prefix]
first, _ = module(x[:, 4:6], prefix)
again, _ = module(x[:, 4:6], prefix)
assert torch.allclose(first, again, atol=1e-5), "the same continuation of the same cache must give the same output twice."
assert all(torch.equal(a, b) for a, b in zip(prefix, before)), "the cache that was passed in has been changed."
for sizes in ((10, 4, 2), (24, 6, 4), (18, 6, 2)):
    assert lab.raises(ValueError, CachedAttention, *sizes), f"CachedAttention{sizes} must raise ValueError."

# It computes where its inputs are, on any device.
def continued(x):
    layer = CachedAttention(16, 4, 2).to("simulated")
    return layer(x, layer(x)[1])[0]

lab.follows_the_device(continued, torch.ones(1, 3, 16))
print("Looks right: any split gives the output of the whole. The hidden tests compare values, also in bfloat16 and with other bases.")

# %% nbgrader={"grade_id": "CachedAttention_tests", "grade": true, "points": 6}
# Hidden tests (6 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.CachedAttention(CachedAttention, grouped_query_attention)
### END HIDDEN TESTS

# %% [markdown]
# ### What a cache saves
#
# Without a cache, step $t$ projects all $t$ tokens again. For $n$ tokens that is $n(n+1)/2$ projections instead of $n$. The next cell writes 256 tokens both ways.

# %% [markdown] tags=["prediction"]
# **Predict.** Without a cache 128 times as many tokens go through the projections. How many times longer does writing 256 tokens take on a CPU: about 4, 30 or 130 times?
#
# *Your prediction:*

# %% tags=["experiment", "nbval-ignore-output"] jupyter={"source_hidden": true}
# Figure 7.3: run this cell (a few seconds).
torch.manual_seed(0)
layer, text = CachedAttention(256, 8, 2), torch.randn(1, 256, 256)
seconds, cache = {"with a cache": [0.0], "without": [0.0]}, None
with torch.no_grad():
    for t in range(256):
        start = time.process_time()
        with_cache, cache = layer(text[:, t:t + 1], cache)
        seconds["with a cache"].append(seconds["with a cache"][-1] + time.process_time() - start)
        start = time.process_time()
        without, _ = layer(text[:, :t + 1])
        seconds["without"].append(seconds["without"][-1] + time.process_time() - start)
counted = {"with a cache": range(257), "without": [n * (n + 1) // 2 for n in range(257)]}
fig, axes = lab.figure("Writing 256 tokens through one layer", ncols=2, height=3.0)
for ax, kind, so_far in zip(axes, ("tokens projected", "CPU seconds"), (counted, seconds)):
    for (name, values), colour, style in zip(so_far.items(), (lab.BLUE, lab.VERMILLION), lab.LINES):
        ax.plot(values, color=colour, linestyle=style, label=name)
    ax.set(title=f"{kind}: in the end {so_far['without'][-1] / so_far['with a cache'][-1]:.0f} times as many",
           xlabel="tokens written", xlim=(0, 256))
    ax.grid(axis="y")
axes[0].legend()
plt.show()
print("same last token:", bool(torch.allclose(with_cache[:, -1], without[:, -1], atol=1e-4)))

# %% [markdown]
# **Figure 7.3. With and without a cache.** Left: the count is a line with a cache, a parabola without. Right: the time, measured on your machine.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# The title on the right gives your factor; ours was far below 128. A single token does not keep a processor busy: part of a step is a fixed cost, which both ways pay. On a GPU most of a step goes into reading weights and cache. So memory traffic limits decoding (Shazeer, 2019, section 2.4.1), and fewer key heads save just that (section 3.1).
# </details>

# %% [markdown]
# ## 3 · Texts of different lengths in one batch
#
# Conversations differ in length, but the rows of a tensor cannot. So the short ones are filled up with **padding**; in transformers the tokenizer does it. On which side? New tokens are appended on the right, and the last column must hold everyone's newest token. So the padding goes to the **left**.
#
# Now a token's index is no longer its position. In a row with three padding tokens, the first real token has index 3 and position 0. Two things follow.
#
# - **The mask** must hide the padding's keys, or the padding is read like text.
# - **Positions** should count real tokens only. Padding that is counted shifts all positions of a row. With RoPE the shift cancels, since scores depend on differences alone; with learned or sinusoidal positions it does not. And prompt and decoding must count in the same way, or the distances jump.
#
# **An example.** With `keep = [F, F, T, T, T]` the three real tokens have the positions 0, 1, 2. The last one sees the indices 2, 3, 4. If only the last two tokens are queries (the others are cached), their positions are 1 and 2, and the mask has two rows of five.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 7.4: run this cell.
keep = torch.arange(7) >= torch.tensor([0, 3, 5])[:, None]
causal = torch.ones(7, 7, dtype=torch.bool).tril()
fig, axes = lab.figure("What may each token see? Three texts of 7, 4 and 2 tokens, padded on the left", ncols=3, height=3.0)
for ax, real in zip(axes, keep):
    shown = torch.where(causal & real, 2.0, torch.where(causal, 1.0, 0.0))
    shown[~real] = 0.5  # padding queries
    ax.imshow(shown, cmap=plt.matplotlib.colors.ListedColormap(["white", "#E4E4E4", "#F3C9A8", lab.BLUE]), vmin=0, vmax=2,
              interpolation="nearest")
    counted = real.cumsum(0) - 1
    ax.set(xticks=range(7), yticks=range(7), xlabel="key, index", title=f"{int(real.sum())} real tokens",
           yticklabels=[str(int(at)) if there else "–" for at, there in zip(counted, real)])
    ax.set_xticks(np.arange(-0.5, 7), minor=True)
    ax.set_yticks(np.arange(-0.5, 7), minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)
axes[0].set_ylabel("query, position")
for colour, words in ((lab.BLUE, "may be seen"), ("#F3C9A8", "padding"), ("#E4E4E4", "query is padding")):
    axes[0].add_patch(plt.Rectangle((0, 0), 0, 0, color=colour, label=words))
fig.legend(loc="outside lower center", ncols=3)
plt.show()


# %% [markdown]
# **Figure 7.4. Left padding.** Blue: may be seen. Orange: earlier in the row, but padding. Grey rows: queries that are padding themselves; their results are not used. The lower axis counts indices, the left axis positions.

# %% [markdown]
# ### Exercise 7.4 · Positions and mask with padding
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* one training library mishandled masks and positions of padded batches. Single prompts came out right; in a batch only the longest did.
#
# No test looks at the rows of padding queries, in the positions or in the mask. (By the rule below they see nothing. Your 7.1 gives zeros for them; a plain softmax would give NaN.)

# %% nbgrader={"grade_id": "padded_causal", "solution": true}
def padded_causal(keep, n_queries):
    """Positions and mask of the last n_queries tokens of texts that are padded on the left.

    keep:    bool (batch, n_keys), True = a real token; padding only on the left, at least one real token in each row
    returns: (positions, mask)
             positions int64 (batch, n_queries): how many real tokens stand before each query in its row
             mask bool (batch, 1, n_queries, n_keys), True = may attend: real keys up to the query's own
    """
    ### BEGIN SOLUTION
    n_keys = keep.shape[1]
    before = keep.cumsum(dim=1) - keep.long()
    index = torch.arange(n_keys, device=keep.device)
    up_to_itself = index <= index[n_keys - n_queries:, None]
    return before[:, n_keys - n_queries:], up_to_itself & keep[:, None, None, :]
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `cumsum` along a row counts the real tokens up to *and including* each one.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Compute everything for all tokens, then keep the last `n_queries` rows. If you slice first, you lose the count of what comes before.
# </details>
#
# <details><summary>Hint 3: the mask</summary>
#
# Combine two masks with `&`: the causal one, `(n_queries, n_keys)`, and `keep` with two axes of size one in the middle, `(batch, 1, 1, n_keys)`.
# </details>

# %% nbgrader={"grade_id": "padded_causal_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
keep = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
result = padded_causal(keep, 5)
assert isinstance(result, (tuple, list)) and len(result) == 2, "return the pair (positions, mask)."
positions, mask = result
assert tuple(positions.shape) == (2, 5), f"positions: shape (2, 5) expected, got {tuple(positions.shape)}."
assert tuple(mask.shape) == (2, 1, 5, 5), f"mask: shape (2, 1, 5, 5) expected, got {tuple(mask.shape)}."
assert positions.dtype == torch.int64, f"positions are int64; yours are {positions.dtype}."
assert mask.dtype == torch.bool, f"the mask is boolean, True = may attend; yours is {mask.dtype}."
assert positions[1].tolist() == [0, 1, 2, 3, 4], f"without padding positions are 0 to 4; yours: {positions[1].tolist()}."
assert positions[0, 2:].tolist() == [0, 1, 2], (
    f"after two padding tokens the real ones stand at 0, 1, 2; yours: {positions[0, 2:].tolist()}. Count real tokens only.")
assert bool(mask[1, 0].equal(torch.ones(5, 5, dtype=torch.bool).tril())), "without padding the mask is the causal one."
assert mask[0, 0, 4].tolist() == [False, False, True, True, True], (
    f"the last token of row 0 sees the keys 2, 3, 4; yours: {mask[0, 0, 4].tolist()}.")
positions, mask = padded_causal(keep, 2)
assert tuple(positions.shape) == (2, 2) and tuple(mask.shape) == (2, 1, 2, 5), (
    f"with 2 queries: (2, 2) and (2, 1, 2, 5); got {tuple(positions.shape)} and {tuple(mask.shape)}.")
assert positions.tolist() == [[1, 2], [3, 4]], (
    f"the last two tokens stand at 1, 2 and at 3, 4; yours: {positions.tolist()}. Tokens before the slice count too.")
assert mask[1, 0, 0].tolist() == [True, True, True, True, False], (
    "with 2 queries of 5 tokens, the first query is token 3: it sees the keys 0 to 3.")
# It computes where its inputs are, on any device.
lab.follows_the_device(padded_causal, torch.tensor([[False, True, True, True]]), 2)
print("Looks right. The hidden tests pad each row differently and take the last few tokens.")

# %% nbgrader={"grade_id": "padded_causal_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.padded_causal(padded_causal)
### END HIDDEN TESTS

# %% [markdown]
# ### A model that writes
#
# Now everything comes together: a batch of prompts, a cache, one loop. The model is a function,
#
# `decode(tokens, positions, mask, cache)`, which returns `(logits, cache)`.
#
# The first call gets the prompts, padded on the left, and `None` for the cache. Each later call gets one new token per text and the cache that came back. `positions` and `mask` are those of 7.4: the mask has a column for every token so far, cached or new, padding included.

# %% [markdown]
# ### Exercise 7.4, second part · Write
#
# **3 points · difficulty 3/5 · 25 minutes · code**
#
# *Why it matters:* this is the loop that libraries call `generate`. Its contract is: **each prompt is continued as if it were alone.** And no token is read twice.

# %% nbgrader={"grade_id": "generate", "solution": true}
def generate(decode, prompts, n_new):
    """Continue prompts of different lengths, all in one batch, with the likeliest token at each step.

    decode:  decode(tokens, positions, mask, cache) -> (logits, cache)
             tokens int64 (batch, n), the new ones; positions int64 (batch, n); mask bool (batch, 1, n, n_keys), where
             n_keys counts all tokens so far; cache: what the previous call returned, None in the first call
             logits (batch, n, n_tokens): column c of a row scores the token that follows column c
    prompts: a list of lists of ints, none of them empty; pad with token 0
    n_new:   how many tokens to write, at least 1
    returns: int64 (batch, n_new): what was written, without the prompts
    """
    ### BEGIN SOLUTION
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    keep = torch.tensor([[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts])
    cache, written = None, []
    for _ in range(n_new):
        positions, mask = padded_causal(keep, tokens.shape[1])
        logits, cache = decode(tokens, positions, mask, cache)
        tokens = logits[:, -1:].argmax(dim=-1)
        written.append(tokens)
        keep = torch.cat((keep, torch.ones_like(tokens, dtype=torch.bool)), dim=1)
    return torch.cat(written, dim=1)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Carry two things from step to step: `keep`, which grows by a column of True, and the cache. `padded_causal(keep, tokens.shape[1])` does the rest.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The last column holds everyone's newest token, so `logits[:, -1:].argmax(-1)` is the next token of every text: the next `tokens`.
# </details>

# %% nbgrader={"grade_id": "generate_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
asked = []


def adds(tokens, positions, mask, cache):
    """A model for paper. The next token is the last digit of a sum: the tokens it may see, their number, the position, and
    twice the newest token."""
    asked.append(tokens.shape[1])
    assert cache is None or tokens.shape[1] == 1, (
        f"beside a cache each call gets the newest token alone; yours got {tokens.shape[1]} columns.")
    text = tokens if cache is None else torch.cat((cache, tokens), dim=1)
    assert tuple(positions.shape) == tuple(tokens.shape), "positions and tokens have one shape."
    assert tuple(mask.shape) == (len(tokens), 1, tokens.shape[1], text.shape[1]), (
        f"{tokens.shape[1]} new tokens and {text.shape[1]} in all: the mask is {(len(tokens), 1, tokens.shape[1], text.shape[1])}, "
        f"yours {tuple(mask.shape)}.")
    digit = (mask[:, 0] * (text[:, None] + 1)).sum(-1) + positions + 2 * tokens
    return F.one_hot(digit % 10, 10).float(), text


written = generate(adds, [[3]], 3)
lab.must_be_a_tensor(written)
assert tuple(written.shape) == (1, 3), f"one prompt, three new tokens: shape (1, 3) expected, got {tuple(written.shape)}."
assert written.dtype == torch.int64, f"tokens are int64; yours are {written.dtype}."
assert written.tolist() == [[0, 6, 6]], (
    f"the prompt 3 goes on with 3+1+0+6 = 10, then 3+2+1+0 = 6, then 9+3+2+12 = 26: digits 0 6 6; yours {written.tolist()[0]}.")
assert asked == [1, 1, 1] or asked == [1, 1, 1, 1], f"each call gets the newest token alone; yours got {asked} columns."
alone = generate(adds, [[1, 2, 3]], 3)[0].tolist()
assert alone == [7, 4, 4], f"the prompt 1 2 3 goes on with 7 4 4; yours {alone}. (6+3+2+6 = 17, 13+4+3+14 = 34, 17+5+4+8 = 34.)"
together = generate(adds, [[3], [1, 2, 3], [5, 1]], 3).tolist()
assert together[1] == alone, f"in a batch the longest prompt goes on as it does alone, with {alone}; yours {together[1]}."
assert together == [[0, 6, 6], [7, 4, 4], [1, 4, 6]], (
    f"in a batch each prompt goes on as it does alone: 0 6 6, 7 4 4 and 1 4 6; yours {together}. Is the padding on the left, hidden, "
    "and not counted, at every step?")
print("Looks right. The hidden tests use other models, prompts and lengths.")

# %% nbgrader={"grade_id": "generate_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.generate(generate)
### END HIDDEN TESTS

# %% [markdown]
# ### Live: week 5's model on your attention
#
# The next cell puts your 7.1 into week 5's RoPE model, trained on texts of 64 characters, and lets it write. Then each prompt goes alone through your `CachedAttention`, without padding.

# %% tags=["experiment"]
from ready_encodings import ALPHABET, SmallTransformer, english, windows

writer = SmallTransformer(len(ALPHABET), "rope")
with np.load("week5_rope.npz") as arrays:
    writer.load_state_dict({name: torch.from_numpy(arrays[name].astype(np.float32)) for name in arrays.files})


@torch.no_grad()
def decode(tokens, positions, mask, cache):
    x, kept = writer.embed(tokens), []
    for number, block in enumerate(writer.blocks):
        q, k, v = block.attention.qkv(block.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        q, k = apply_rotary_emb(q, positions), apply_rotary_emb(k, positions)
        if cache is not None:
            k, v = torch.cat((cache[number][0], k), dim=2), torch.cat((cache[number][1], v), dim=2)
        kept.append((k, v))
        mixed, _ = grouped_query_attention(q, k, v, mask)
        x = x + block.attention.out(mixed.transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    return writer.read(writer.norm(x)), kept


@torch.no_grad()
def alone(prompt, n_new):
    """One prompt through your 7.3: no padding, no mask, no positions given."""
    layers = [CachedAttention(64, 4, 4) for _ in writer.blocks]
    for layer, block in zip(layers, writer.blocks):
        parts = [*block.attention.qkv.weight.chunk(3), block.attention.out.weight]
        layer.load_state_dict({f"{letter}_proj.weight": part for letter, part in zip("qkvo", parts)})
    tokens, caches, written = torch.tensor([prompt]), [None, None], []
    for _ in range(n_new):
        x = writer.embed(tokens)
        for number, block in enumerate(writer.blocks):
            out, caches[number] = layers[number](block.norm1(x), caches[number])
            x = x + out
            x = x + block.mlp(block.norm2(x))
        tokens = writer.read(writer.norm(x))[:, -1:].argmax(-1)
        written += tokens[0].tolist()
    return written


prompts = ["The ", "In the example above, the ", "If the expression is a "]
numbers = [[ALPHABET.index(character) for character in prompt] for prompt in prompts]
for prompt, number, row in zip(prompts, numbers, generate(decode, numbers, 40).tolist()):
    print(f"{prompt!r:29} {''.join(ALPHABET[token] for token in row)!r}  as alone: {row == alone(number, 40)}")

# %% [markdown]
# Both routes continue each prompt with the same characters. Now break one index at a time. (a) Positions restart at 0 in every call. (b) The mask is aligned at the top left. The first call, for the prompt, is right both times.

# %% [markdown] tags=["prediction"]
# **Predict.** With correct indices the 32 predictions that follow a prompt of 32, one character at a time, have a loss of 1.5 nats. What loss do you expect from (a), and from (b)? What will the text look like?
#
# *Your prediction:*

# %% tags=["experiment", "nbval-ignore-output"]
ways = {
    "right": decode,
    "(a) positions restart": lambda tokens, positions, mask, cache: decode(tokens, positions - positions[:, :1], mask, cache),
    "(b) mask at the top left": lambda tokens, positions, mask, cache: decode(tokens, positions, torch.ones_like(mask).tril(), cache),
}


def loss_after_the_prompt(decode, texts):
    """Read 32 characters at once, then 32 one at a time; the mean loss of the predictions after each single one."""
    cache, losses = None, []
    for start, end in [(0, 32), *((at, at + 1) for at in range(32, 64))]:
        keep = torch.ones(len(texts), end, dtype=torch.bool)
        logits, cache = decode(texts[:, start:end], *padded_causal(keep, end - start), cache)
        losses.append(F.cross_entropy(logits[:, -1], texts[:, end]))
    return float(sum(losses[1:]) / 32)


texts = windows(english()[1], 64, 48)
for name, way in ways.items():
    row = generate(way, numbers[1:2], 40)[0].tolist()
    print(f"{name:25} loss {loss_after_the_prompt(way, texts):.2f}   {''.join(ALPHABET[token] for token in row)!r}")


# %% [markdown]
# <details><summary>After you have run it</summary>
#
# (These are losses of one seed, on 48 texts.) With restarted positions each new token is at 0. The prompt then seems to lie ahead of it, and everything written so far seems to share its position. With the mask at the top left each new token reads the first key alone. It knows that key and its own character, nothing else, so the text runs in a loop.
# </details>

# %% [markdown]
# ## 4 · Moving what is cached
#
# Ten thousand users send the same system prompt. Compute its keys once and reuse them: this is **prefix caching**. But suppose that in one conversation 40 tokens come before the prompt. Its keys were rotated for the positions 0, 1, 2, …, and now they are needed at 40, 41, 42, …
#
# Rotations add up. A key at position $p$ was turned by $p\,\theta_i$. To stand at $p+o$ it needs another turn by $o\,\theta_i$:
#
# $$R(p+o) = R(o)\,R(p). \tag{3}$$
#
# **Every key turns by the same angle**, wherever it stands. llama.cpp calls this the K-shift. Its server used the shift when a full context dropped its oldest tokens. [Pull request 15416](https://github.com/ggml-org/llama.cpp/pull/15416) (August 2025) switched the shift off by default: it can destroy a chat's template.
#
# There are two limits. Equation (3) moves keys; it does not change what is in them. In all layers after the first, a key depends on the tokens before it, and in another context these differ. And the equation holds for one base only: no common turn makes keys of base 10,000 into keys of another base. That is why dynamic NTK scaling (5.4) and a cache of rotated keys do not go together. Servers rarely move keys: they reuse a prefix unchanged, at the same positions (week 8, section 7).

# %% [markdown]
# ### Exercise 7.5 · Move the keys
#
# **2 points · difficulty 2/5 · 10 minutes · code**
#
# *Why it matters:* one call per layer moves a whole prefix, exactly in the first layer and approximately above it. With a wrong sign every key ends up twice the offset away from where it belongs.

# %% nbgrader={"grade_id": "shift_cached_keys", "solution": true}
def shift_cached_keys(k, offset, base=10000.0):
    """Turn rotated keys so that each one's position is larger by offset.

    k:       (batch, heads, n_keys, head_dim), rotated already (interleaved, with this base); bfloat16 too
    offset:  a Python int, from -10,000 to 10,000
    returns: a new tensor with the shape and dtype of k; an odd head_dim raises ValueError
    """
    ### BEGIN SOLUTION
    everywhere = torch.full((k.shape[-2],), offset, device=k.device)
    return apply_rotary_emb(k, everywhere, base)
    ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# You have a function that turns x by given positions. Which positions do you give it, if every key is to turn by the same angle?
# </details>
#
# <details><summary>Hint 2: bfloat16</summary>
#
# The ready `apply_rotary_emb` computes angles in float64, whatever x is. If you write the rotation yourself, use at least float32.
# </details>

# %% nbgrader={"grade_id": "shift_cached_keys_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
generator = torch.Generator().manual_seed(5)
raw = torch.randn(2, 3, 6, 8, generator=generator)
here = apply_rotary_emb(raw, torch.arange(6))
moved = shift_cached_keys(here, 4)
lab.must_be_a_tensor(moved)
assert tuple(moved.shape) == (2, 3, 6, 8), f"shape (2, 3, 6, 8) expected, got {tuple(moved.shape)}."
assert not torch.allclose(moved, apply_rotary_emb(raw, torch.arange(6) - 4), atol=1e-4), (
    "these are the keys of positions 4 smaller: turn the other way.")
assert not torch.allclose(moved, apply_rotary_emb(raw, 2 * torch.arange(6) + 4), atol=1e-4), (
    "every key was turned by its own index once more: all of them turn by the same angle, that of the offset.")
assert torch.allclose(moved, apply_rotary_emb(raw, torch.arange(6) + 4), atol=1e-4), (
    "keys rotated for 0 to 5 and moved by 4 must equal keys rotated for 4 to 9.")
assert torch.allclose(shift_cached_keys(moved, -4), here, atol=1e-4), "moved by 4 and back by 4, keys must be as before."
assert torch.allclose(shift_cached_keys(here, 0), here, atol=1e-6), "an offset of 0 changes nothing."
assert shift_cached_keys(here.bfloat16(), 4).dtype == torch.bfloat16, "bfloat16 keys stay bfloat16."
assert lab.raises(ValueError, shift_cached_keys, torch.ones(1, 1, 2, 5), 1), "head_dim 5 must raise ValueError."
# It computes where its inputs are, on any device.
lab.follows_the_device(shift_cached_keys, torch.ones(1, 2, 3, 4), 3)
print("Looks right. The hidden tests go to offsets of 10,000, and try bfloat16 and other bases.")

# %% nbgrader={"grade_id": "shift_cached_keys_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.shift_cached_keys(shift_cached_keys)
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · Two sequences
#
# In a translator, a speech recogniser or a captioner, an **encoder** reads one sequence and a **decoder** writes another. In **cross-attention** the queries come from the decoder, the keys and values from the encoder's output, the **memory**. Here cross-attention is not causal: the whole source is there before the first word is written.
#
# Token 3 of the answer and token 3 of the source stand in different texts. The original Transformer added positions to both inputs and left it at that. T5 puts no bias into its cross-attention. Moonshine uses RoPE in both stacks and none between them ([`MoonshineAttention`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/moonshine/modeling_moonshine.py), transformers 5.23). T5Gemma 2 rotates one side alone: one softmax covers the decoder's own keys and the encoder's; the queries are rotated, the encoder's keys are not ([`T5Gemma2MergedAttention`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/t5gemma2/modeling_t5gemma2.py)).
#
# One *can* rotate both sides. Then the score depends on $p_\text{query}-p_\text{key}$, which is a claim: **these two sequences run in step**. Section 6 tests this claim.

# %% [markdown]
# ### Exercise 7.6 · Cross-attention
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* the masks and positions of two sequences are where encoder-decoder code goes wrong. For a memory that is padding only, PyTorch's `nn.MultiheadAttention` gives NaN with `need_weights=True`, its default, and without it only the bias of its output projection, zeros in a new layer (torch 2.13). Yours must give zeros.
#
# The projections are those of 3.6. Given `positions` *and* `memory_positions`, turn queries by the first and keys by the second. Given neither, rotate nothing. Given one alone, raise `ValueError`: here that can only be a slip. You may call your 7.1.

# %% nbgrader={"grade_id": "CrossAttention", "solution": true}
class CrossAttention(nn.Module):
    """Multi-head attention with queries from x, keys and values from a memory; never causal.

    Bias-free projections q_proj, k_proj, v_proj, o_proj (d_model, d_model) and nothing else in the state_dict.
    Raises ValueError if n_heads does not divide d_model, or if the head dimension is odd.
    """

    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads or (d_model // n_heads) % 2:
            raise ValueError(f"no pairs of channels in {n_heads} heads of d_model={d_model}")
        self.n_heads, self.base = n_heads, base
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(d_model, d_model, bias=False))
        ### END SOLUTION

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        """
        x:                (batch, n_queries, d_model)
        memory:           (batch, n_memory, d_model)
        memory_mask:      bool (batch, n_memory), True = a real token; None = all are
        positions:        (n_queries,) or (batch, n_queries), real numbers, or None
        memory_positions: (n_memory,) or (batch, n_memory), real numbers, or None
        returns:          (batch, n_queries, d_model); zeros where the memory has no real token
        """
        ### BEGIN SOLUTION
        if (positions is None) != (memory_positions is None):
            raise ValueError("positions for one side alone say nothing about offsets")
        sides = (self.q_proj, x), (self.k_proj, memory), (self.v_proj, memory)
        q, k, v = (project(side).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for project, side in sides)
        if positions is not None:
            q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, memory_positions, self.base)
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        mixed, _ = grouped_query_attention(q, k, v, mask)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))
        ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Split q with the length of x, k and v with the length of the memory. Your 7.1 takes any lengths, and with as many key heads as query heads it is plain attention.
# </details>
#
# <details><summary>Hint 2: the mask</summary>
#
# `(batch, n_memory)` must broadcast to `(batch, heads, n_queries, n_memory)`: two axes are missing, in the middle.
# </details>
#
# <details><summary>Hint 3: one side alone</summary>
#
# `(positions is None) != (memory_positions is None)` is True if exactly one of them is missing.
# </details>

# %% nbgrader={"grade_id": "CrossAttention_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
module = CrossAttention(16, 2)
state = module.state_dict()
assert {name: tuple(value.shape) for name, value in state.items()} == {
    f"{letter}_proj.weight": (16, 16) for letter in "qkvo"}, (
    f"the state_dict must hold the weights of q_proj, k_proj, v_proj, o_proj and no more; yours holds {sorted(state)}.")
generator = torch.Generator().manual_seed(6)
module.load_state_dict({name: torch.randn(value.shape, generator=generator) * 0.4 for name, value in state.items()})
x, memory = torch.randn(2, 3, 16, generator=generator), torch.randn(2, 5, 16, generator=generator)
out = module(x, memory)
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (2, 3, 16), (
    f"out has a row per query: shape (2, 3, 16) expected, got {tuple(out.shape)}. Queries come from x.")
assert not torch.allclose(module(x, memory.flip(0)), out, atol=1e-3), "another memory must give another output."
order = [4, 2, 0, 1, 3]
assert torch.allclose(module(x, memory[:, order]), out, atol=1e-4), (
    "without positions the order of the memory must not matter. Is something rotated or causal? Do you swap the axes of tokens and "
    "heads after the split?")
keep = torch.tensor([[True, True, True, False, False], [True] * 5])
masked = module(x, memory, keep)
assert torch.allclose(masked[:1], module(x[:1], memory[:1, :3]), atol=1e-4), (
    "with memory_mask the output must be that of the real tokens alone: True = a real token.")
empty = module(x, memory, torch.tensor([[False] * 5, [True] * 5]))
assert bool(empty.isfinite().all()) and float(empty[0].detach().abs().max()) == 0, (
    "a memory without a real token gives zeros, not NaN and not the mean of the padding.")
here, there = torch.arange(3), torch.arange(5)
rotated = module(x, memory, None, here, there)
assert not torch.allclose(rotated, out, atol=1e-3), "with positions on both sides the output must change."
assert torch.allclose(module(x, memory, None, here + 9, there + 9), rotated, atol=1e-3), (
    "only differences count: moving both sides by 9 must change nothing. Are queries and keys both rotated, and the values not?")
assert not torch.allclose(module(x, memory, None, here + 1, there), rotated, atol=1e-3), (
    "moving the queries' positions alone must change the output: each side turns by its own positions.")
# On paper: q_proj keeps the even channels, v_proj all; k_proj and o_proj double. Head 1 sees zeros. In head 0 the query
# (1, 0, 1, 0) stands at 3, the memory holds the same at 1 and (0, 1, 0, 1) at 4. Their scores are 2 (cos 2 + cos 0.02) = 1.167
# and -2 (sin 1 + sin 0.01) = -1.703, both divided by sqrt(4).
two = CrossAttention(8, 2)
two.load_state_dict({"q_proj.weight": torch.diag(torch.tensor([1.0, 0] * 4)), "k_proj.weight": 2 * torch.eye(8),
                     "v_proj.weight": torch.eye(8), "o_proj.weight": 2 * torch.eye(8)})
pair = torch.tensor([[[1.0, 0, 1, 0, 0, 0, 0, 0], [0.0, 1, 0, 1, 0, 0, 0, 0]]])
paper = two(pair[:, [0, 0]], pair, None, torch.tensor([3, 3]), torch.tensor([1, 4]))[0, 0].detach()
assert torch.allclose(paper, torch.tensor([1.615, 0.385, 1.615, 0.385, 0, 0, 0, 0]), atol=2e-3), (
    "on paper head 0 gives the two tokens of the memory the weights 0.808 and 0.192, and o_proj doubles them: the output is "
    f"1.615 0.385 1.615 0.385 0 0 0 0; yours is {[round(number, 3) for number in paper.tolist()]}. If your 7.1 passes its "
    "check: do you rotate both sides by their own positions, divide the scores by sqrt(head_dim), swap tokens and heads after the "
    "split and back before you merge, and send the output through o_proj?")
assert lab.raises(ValueError, module, x, memory, None, here), "positions for x alone must raise ValueError."
assert lab.raises(ValueError, CrossAttention, 18, 6), "a head dimension of 3 has no pairs: ValueError at construction."
# It computes where its inputs are, on any device.
given = torch.ones(1, 3, 16), torch.ones(1, 4, 16)
lab.follows_the_device(lambda x, memory: CrossAttention(16, 2).to("simulated")(x, memory), *given)
lab.follows_the_device(lambda *all_of_it: CrossAttention(16, 2).to("simulated")(*all_of_it),
                       *given, torch.ones(1, 4) > 0, torch.arange(3), torch.arange(4))
print("Looks right. The hidden tests compare values, with rows of positions, fractional ones and other bases.")

# %% nbgrader={"grade_id": "CrossAttention_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.CrossAttention(CrossAttention, grouped_query_attention)
### END HIDDEN TESTS

# %% [markdown]
# ### A block with two kinds of position
#
# Now build a decoder block. Inside its own text it uses ALiBi, ready made as `ALiBiMultiHeadAttention(d_model, n_heads)`. Towards the encoder it uses your cross-attention, without positions. Encodings live *inside* attention layers, so the parts of one model may have different ones.
#
# The order is **pre-norm**: each part sees a normalised copy of the stream, and its output is added to the stream itself (Xiong et al. 2020, figure 1b).
#
# $$x \leftarrow x+\text{self}(\text{norm}_1 x),\qquad x \leftarrow x+\text{cross}(\text{norm}_2 x,\ \text{memory}),\qquad x \leftarrow x+\text{ffn}(\text{norm}_3 x). \tag{4}$$
#
# The memory is used as it comes: the encoder has normalised its own output.

# %% [markdown]
# ### Exercise 7.7 · The hybrid decoder block
#
# **4 points · difficulty 3/5 · 25 minutes · code**
#
# *Why it matters:* a block is fifteen lines. With a norm in the wrong place it may train well too, and fail once you load somebody else's weights.
#
# The parts must have these names, so that weights can be loaded: `self_attn`, `cross_attn`, `norm1`, `norm2`, `norm3` (`nn.LayerNorm`), and `ffn`, an `nn.Sequential` of `Linear(d, 4d)`, `GELU()` in its exact form, and `Linear(4d, d)`. Sizes that 7.6 refuses raise `ValueError` here, too.

# %% nbgrader={"grade_id": "HybridDecoderBlock", "solution": true}
class HybridDecoderBlock(nn.Module):
    """Pre-norm decoder block: causal ALiBi self-attention, cross-attention without positions, feed-forward network."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        ### BEGIN SOLUTION
        self.self_attn, self.cross_attn = ALiBiMultiHeadAttention(d_model, n_heads), CrossAttention(d_model, n_heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
        ### END SOLUTION

    def forward(self, x, memory, memory_mask=None):
        """
        x:           (batch, n, d_model)
        memory:      (batch, n_memory, d_model)
        memory_mask: bool (batch, n_memory), True = a real token; None = all are
        returns:     (batch, n, d_model)
        """
        ### BEGIN SOLUTION
        stream = x + self.self_attn(self.norm1(x), is_causal=True)
        stream = stream + self.cross_attn(self.norm2(stream), memory, memory_mask)
        return stream + self.ffn(self.norm3(stream))
        ### END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write equation (4) as three lines. Each line uses the result of the line before, not the x that came in.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ALiBiMultiHeadAttention` is causal by default. `nn.GELU()` is the exact form; the tanh form differs by up to 0.0005.
# </details>

# %% nbgrader={"grade_id": "HybridDecoderBlock_check", "grade": true, "points": 0}
# Visible check (0 points): run this cell.
block = HybridDecoderBlock(16, 2)
state = block.state_dict()
parts = sorted({name.split(".")[0] for name in state})
assert parts == ["cross_attn", "ffn", "norm1", "norm2", "norm3", "self_attn"], (
    f"the parts are self_attn, cross_attn, norm1, norm2, norm3 and ffn; yours: {parts}.")
layers = {name: tuple(value.shape) for name, value in state.items() if name.startswith("ffn.") and name.endswith("weight")}
assert layers == {"ffn.0.weight": (64, 16), "ffn.2.weight": (16, 64)}, (
    f"ffn is a Sequential: Linear(16, 64), GELU, Linear(64, 16); yours holds {layers}.")


def numbers(start, *shape):
    """The same on every machine: the sines of 0.3 * start**2, 0.3 * (start + 1)**2, ..."""
    return torch.sin(0.3 * torch.arange(start, start + math.prod(shape), dtype=torch.float64) ** 2).view(shape).float()


weights = {name: numbers(sum(name.encode()), *value.shape) / 2 for name, value in state.items()}
block.load_state_dict(weights)
x, memory = numbers(1, 2, 4, 16), 2 * numbers(1000, 2, 6, 16)
before = x.clone()
out = block(x, memory)
assert torch.equal(x, before), "your block changed x itself; work on a new tensor."
lab.must_be_a_tensor(out)
assert tuple(out.shape) == (2, 4, 16), f"shape (2, 4, 16) expected, got {tuple(out.shape)}."
assert torch.equal(block(x, memory), out), "two calls with the same input differ: is there a Dropout in the block?"
assert torch.allclose(block(x[:, :2], memory), out[:, :2], atol=1e-4), "tokens 0 and 1 see later ones: the self-attention is causal."
assert not torch.allclose(block(x, memory * 0.5), out, atol=1e-3), (
    "half the memory gives the same output: does the block look at the memory, and as it comes, without a norm?")
keep = torch.arange(6) < torch.tensor([6, 3])[:, None]
assert torch.allclose(block(x, memory, keep)[1:], block(x[1:], memory[1:, :3]), atol=1e-4), (
    "with memory_mask the output must be that of the memory's real tokens alone: hand the mask on.")
silent = {name: torch.zeros_like(value) if name.endswith(("o_proj.weight", "ffn.2.weight", "ffn.2.bias")) else value
          for name, value in weights.items()}
block.load_state_dict(silent)
assert torch.allclose(block(x, memory), x, atol=1e-5), (
    "with all three parts silent the block must return x: each part is added to the stream, and no norm stands on the stream.")
block.load_state_dict(silent | {"ffn.0.weight": torch.zeros(64, 16), "ffn.0.bias": torch.full((64,), 3.0),
                                "ffn.2.weight": torch.full((16, 64), 1 / 64)})
added = float((block(x, memory) - x)[0, 0, 0].detach())
assert abs(added - 2.99595) < 1e-4, (
    "the network's first layer gives 3 and its second takes the mean, so it adds GELU(3) = 2.9960, with the exact normal "
    f"distribution; yours adds {added:.4f}. (ReLU: 3.0000; the tanh form: 2.9964.)")
together = float(out[1, 3, 11].detach())
assert abs(together - 3.145) < 5e-3, (
    f"all parts together: out[1, 3, 11] must be 3.145, yours is {together:.3f}. If your 7.6 passes its check: do "
    "self-attention with ALiBi, cross-attention and network follow in this order, and does each get the stream that the part "
    "before has left, through a norm of its own?")
# It computes where its inputs are, on any device.
given = torch.ones(1, 3, 16), torch.ones(1, 4, 16)
lab.follows_the_device(lambda x, memory: HybridDecoderBlock(16, 2).to("simulated")(x, memory), *given)
print("Looks right. The hidden tests compare values, so the order of the parts and the exact GELU count.")

# %% nbgrader={"grade_id": "HybridDecoderBlock_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.HybridDecoderBlock(HybridDecoderBlock, CrossAttention)
### END HIDDEN TESTS

# %% [markdown]
# ## 6 · Copy and reverse, beyond the training length
#
# Copying a text and writing it backwards have a right answer at every length, and it follows from the order of the symbols alone.
#
# **The model** has a RoPE encoder and your block as decoder, one layer each, width 64. **The data** are sequences of distinct symbols from an alphabet of 30: 2 to 10 symbols in training, 10, 12, 15 or 20 in the test. The model writes the likeliest symbol at each step; a sequence counts only if every symbol is right.
#
# Both encodings are relative, so you might expect: *the pattern learned at length 10 holds at length 20.* Three arms vary one thing, the positions of the cross-attention.
#
# | arm | position of the query at decoding step $t$ | position of source index $i$ |
# |---|---|---|
# | no positions | – | – |
# | from the start | $t$ | $i$ |
# | from the end | $t$ | $n-1-i$, for a source of $n$ symbols |

# %% [markdown] tags=["prediction"]
# **Predict.** Six numbers: the share of sequences of length 20 written without a mistake, for copy and for reverse, in each of the three arms. Does any arm do well on both tasks?
#
# *Your prediction:*

# %% tags=["experiment"]
# The block is yours; only positions for its cross-attention are added.
class AlignedBlock(HybridDecoderBlock):
    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        x = x + self.self_attn(self.norm1(x), is_causal=True)
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask, positions, memory_positions)
        return x + self.ffn(self.norm3(x))


with open("week7_results.json") as file:  # five training seeds
    results = json.load(file)
looks = dict(zip(results["arms"], zip((lab.GREY, lab.BLUE, lab.GREEN, lab.VERMILLION), lab.LINES)))  # the same in all figures

torch.manual_seed(0)
start = ready.CopyModel([AlignedBlock(64, 4)], "from the start")
ready.train(start, "copy", seed=0)  # lengths 2 to 10, about 10 seconds
blind = ready.CopyModel([AlignedBlock(64, 4), AlignedBlock(64, 4)], "none")
with np.load("week7_copy.npz") as arrays:  # the weights of one of the five runs
    blind.load_state_dict({name: torch.from_numpy(arrays[name].astype(np.float32)) for name in arrays.files})
blind.eval()
live = {"no positions, 2+2 layers": blind, "from the start": start}

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 7.5: run this cell.
lengths = (4, 8, 10, 12, 15, 20)
right = {name: ready.scores(model, "copy", lengths, size=100) for name, model in live.items()}
fig, ax = lab.figure("Copying, trained on lengths 2 to 10, one seed", height=3.0)
for name, (whole, single) in right.items():
    colour = looks[name][0]
    ax.plot(lengths, list(whole.values()), color=colour, linestyle="-", marker="o", label=f"{name}: whole sequences")
    ax.plot(lengths, list(single.values()), color=colour, linestyle=":", marker=".", label=f"{name}: single symbols")
ax.axvspan(2, 10, color="#EEEEEE", zorder=0)
ax.text(3.8, 0.5, "trained", color="#666666")
ax.set(xlabel="length", ylabel="share right", ylim=(-0.03, 1.05), xticks=lengths)
ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
plt.show()


# %% [markdown]
# **Figure 7.5. Two models, one seed.** Grey: training lengths. Solid: sequences without a mistake; dotted: single symbols. Blue: one layer, trained here. The other is a fourth arm: no positions across, two layers, 500 steps at a higher learning rate. Its weights are shipped.

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Tables of five training seeds: run this cell. Mean [lowest..highest].
def spread(rows):
    """One text per tested length."""
    return [f"{np.mean(column):.2f} [{min(column):.2f}..{max(column):.2f}]" for column in zip(*rows)]


for task in ("copy", "reverse"):
    lab.table([f"{task}: whole sequences", *(f"length {n}" for n in results["tested"])],
              [[arm, *spread(by_task[task]["whole"])] for arm, by_task in results["arms"].items()])
    print()
lab.table(["single symbols", *(f"length {n}" for n in results["tested"])],
          [[f"{arm}, {task}", *spread(results["arms"][arm][task]["single"])] for arm, task in (
              ("no positions", "copy"), ("no positions, 2+2 layers", "copy"), ("from the start", "copy"), ("from the end", "copy"),
              ("from the start", "reverse"), ("from the end", "reverse"))])

# %% tags=["experiment"] jupyter={"source_hidden": true}
# Figure 7.6: run this cell.
fig, axes = lab.figure("Whole sequences right, five seeds each", ncols=2, height=3.2, sharey=True)
for ax, task in zip(axes, ("copy", "reverse")):
    for place, (arm, by_task) in enumerate(results["arms"].items()):
        colour, style = looks[arm]
        for row in by_task[task]["whole"]:  # arms one above the other where they are equal
            ax.plot(results["tested"], np.array(row) + 0.015 * (place - 1.5), color=colour, linestyle=style, linewidth=1.4, alpha=0.8)
        ax.plot([], [], color=colour, linestyle=style, label=arm)
    ax.set(title=task, xlabel="length", xticks=results["tested"], ylim=(-0.06, 1.06))
axes[0].set_ylabel("share right")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()


# %% [markdown]
# **Figure 7.6. Five seeds per arm.** Each thin line is a training run; whole sequences count. Arms are shifted slightly to show equal ones. (a) Which lines are at the top for copy, which for reverse? (b) Where do they leave the top?

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# **With the right claim** one layer learns the task in 300 steps and extrapolates. At length 15 every sequence is right in all five runs. At 20 the share is 0.69 [0.46..0.86] for copy and 0.73 [0.47..0.97] for reverse. **With the wrong claim** one layer fails at length 10 already: 0.00 [0.00..0.01] on both tasks. But so does one without any claim in the same 300 steps. At length 10 the two copy about as many single symbols: 0.41 without a claim, 0.39 with the wrong one. At length 12 the wrong claim does harm: 0.11 against 0.26.
#
# **Without positions** one layer does not learn the task in that time: at length 10 it copies 0.01 [0.00..0.04] of the sequences. Two layers, trained for longer, reach 0.98 [0.94..0.99] for copy and 0.94 [0.77..1.00] for reverse. But they do not extrapolate: at 15 copy has 0.05 [0.00..0.24], reverse 0.15 [0.00..0.58].
# </details>

# %% [markdown]
# ### What is new beyond length 10
#
# Beyond that length, all three attentions of the two-layer model meet something new:
#
# - the encoder's, with RoPE, meets distances above 9, on both sides;
# - the decoder's own, with ALiBi, meets distances above 9;
# - the cross-attention, without positions, meets more keys (the other two meet more, too).
#
# Take the trained two-layer model and hide from every token of the *encoder* all keys more than 9 away. This takes away the new distances, and some keys with them; a later table has arms that keep them all.

# %% [markdown] tags=["prediction"]
# **Predict.** How many of the symbols are right at length 15 and at 20: as few as before, half, three quarters, nearly all?
#
# *Your prediction:*

# %% tags=["experiment"]
def hides_far(attention, reach):
    """A forward for the encoder's attention in which no token sees farther than `reach`."""
    def forward(x, keep=None):
        at = torch.arange(x.shape[1])
        far = (at[:, None] - at).abs() > reach
        bias = torch.zeros(far.shape).masked_fill(far, -math.inf)
        return attention.attention(x, turn=lambda heads: apply_rotary_emb(heads, at), bias=bias)
    return forward


for layer in blind.encoder.layers:
    layer["attention"].forward = hides_far(layer["attention"], reach=9)  # try 3, 6 and 12
near = ready.scores(blind, "copy", lengths, size=100)
fig, ax = lab.figure("Copying without positions, 2+2 layers, one seed: single symbols", height=2.6)
for name, shares, marker in (("encoder: keys more than 9 away hidden", near[1], "o"), ("as it is", right["no positions, 2+2 layers"][1], ".")):
    ax.plot(lengths, list(shares.values()), color=looks["no positions, 2+2 layers"][0], linestyle="-" if marker == "o" else ":",
            marker=marker, label=name)
ax.axvspan(2, 10, color="#EEEEEE", zorder=0)
ax.text(3.8, 0.5, "trained", color="#666666")
ax.set(xlabel="length", ylabel="share right", ylim=(-0.03, 1.05), xticks=lengths)
ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
plt.show()

# %% [markdown]
# **Figure 7.7. The same weights with a nearsighted encoder.** Grey: training lengths, at which nothing is hidden.

# %% [markdown]
# <details><summary>After you have run it</summary>
#
# Single symbols of copy, five seeds, mean [lowest..highest] (`experiments/results_distances.md`, week 7):
#
# | what is changed | length 15 | length 20 |
# |---|---|---|
# | nothing | 0.20 [0.11..0.37] | 0.06 [0.05..0.07] |
# | encoder: keys beyond 9 hidden | 0.72 [0.61..0.93] | 0.49 [0.41..0.67] |
# | encoder: distances clipped at 9, all keys stay | 0.73 [0.62..0.93] | 0.48 [0.40..0.68] |
# | cross-attention: the needed key and 9 others | 0.35 [0.26..0.53] | 0.15 [0.11..0.23] |
# | encoder clipped at 9, cross-attention with 10 keys | 0.81 [0.72..0.96] | 0.64 [0.54..0.86] |
# | encoder clipped at 5, cross-attention with 10 keys | 0.88 [0.79..0.98] | 0.75 [0.58..0.95] |
# | decoder: keys beyond 9 hidden | 0.20 [0.12..0.37] | 0.06 [0.05..0.07] |
# | encoder and decoder: keys beyond 9 hidden | 0.72 [0.61..0.93] | 0.48 [0.39..0.66] |
#
# Clipping at 5 helps more than at 9. Was distance 9, the rarest in training, badly learned? Then a clip at 7 should help as well. It hardly does: if the symbols before are told, 0.90 are right at length 15 and 0.70 at 20, with a clip at 9 0.89 and 0.72, at 6 0.93 and 0.80. Pair 0 alone decides between 6 and 7, in all five seeds. To it a key 7 away looks like one 0.7 away ($7-2\pi$), perhaps like the neighbour that the encoder looks for. The ten keys always hold the right one: keep this in mind for part 3 of 7.8.
# </details>

# %% [markdown] nbgrader={"grade_id": "copying_explained_question", "locked": true}
# ### Exercise 7.8 · What extrapolates, and why
#
# **4 points · difficulty 3/5 · 50 minutes · text, graded by a person**
#
# *Why it matters:* "relative encodings generalise to longer inputs" is on many slides. Here it is true of one arm and false of another.
#
# Use the tables above, also those in the folds. Write two to five sentences per part.
#
# 1. **Two arms, two tasks.** Write down the difference "query position minus key position" of the symbol that is needed next, for copy and for reverse, in the arms "from the start" and "from the end". In which of the four cases is the difference a constant? Compare with the table.
# 2. **Without positions.** How can a model copy without any position in its cross-attention? Name what encoder and decoder must find out, and why it matters that no symbol repeats.
# 3. **The failed expectation.** Encoder and decoder use relative encodings, and yet the arm without positions does not extrapolate. Take two claims: (i) "positions enter the scores of RoPE and ALiBi through their differences alone"; (ii) "so what is learned at length 10 holds at length 20". Which claim do the tables refute? Which part of the model stops the copying? What do the rows below Figure 7.7 settle about new distances and about more keys? What do they leave open? Give numbers with their spread.
# 4. **Limits.** Where do the good arms break down, and what could you change to find out why? Name one thing that this experiment does not show about real translation.
#
# ### BEGIN MARK SCHEME
# 4 points; half points are allowed.
#
# - 1 point (part 1): step t needs source index t (copy) or n−1−t (reverse). From the start: copy t−t=0, reverse t−(n−1−t)=2t−n+1, not a constant. From the end: copy t−(n−1−t)=2t−n+1, not a constant; reverse t−t=0. It is constant exactly where the table shows success. Half a point if only one arm is right. (A difference counted from t+1, and so a constant of 1, is right too.)
# - 1 point (part 2): by content: the encoder (RoPE) must write into each memory entry which symbol comes before it (copy) or after it (reverse); the decoder looks for the entry whose neighbour is the symbol just written. It is sure only if symbols do not repeat. The first symbol needs another rule (start or end of the source). Half a point for "look for the symbol just written, take the next" without saying where the neighbour comes from.
# - 1 point (part 3): refuted: (ii); not refuted: (i), which is a property of the formulas, not of what is learned. The part: the encoder's new distances do most of it (hidden or clipped, nothing retrained: 0.20 to 0.72 at 15, 0.06 to 0.49 at 20), ten keys across, the right one always among them, bring less (0.35, 0.15), and both more (that fewer wrong answers are in view explains it as well; more keys as a cause stays open); the decoder's distances change nothing, also where the encoder is repaired; why mistakes remain is open. Half a point for the two claims, half for the part of the model, with numbers. "More keys" alone as the cause is wrong.
# - 1 point (part 4): the good arms are near 1 up to 15 and fall at 20; a test of the cause (train on longer sequences, replace an encoding, look at single symbols by place, other bases); a limit (symbols without repeats, one small size, alignment known beforehand: a translation has no constant offset, greedy decoding, five seeds). Half a point each.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "copying_explained", "grade": true, "solution": true, "points": 4}
# ### BEGIN SOLUTION
# 1. Step $t$ needs the source symbol of index $t$ (copy) or $n-1-t$ (reverse). From the start, the differences are $t-t=0$ for copy and $t-(n-1-t)=2t-n+1$ for reverse. From the end they are $2t-n+1$ for copy and $0$ for reverse. A rotated score can prefer one fixed difference, and the table shows success exactly where the needed one is constant: 1.00 [1.00..1.00] and 1.00 [1.00..1.00] at length 10, against 0.00 [0.00..0.01] and 0.00 [0.00..0.01]. And since 0 is 0 at every length, the difference that is needed is never a new one: up to 15 these arms make no mistake.
#
# 2. It can search by content; here is a rule that would do. The encoder, whose RoPE can look exactly one place back, writes into each entry of the memory which symbol comes before it (for reverse, after it). The decoder has just written "F", asks for the entry whose neighbour is F, and writes that entry's own symbol. The first symbol needs a rule of its own. All this is sure only if no symbol occurs twice; otherwise the neighbour is not unique.
#
# 3. Claim (ii) is refuted: without positions, two layers reach 0.98 [0.94..0.99] at length 10, but 0.05 [0.00..0.24] at 15; claim (i) stands: it is a property of the formulas, and does not say what trained layers do at distances they never met. The encoder stops the copying: with its keys beyond 9 hidden and nothing retrained, the right symbols rise from 0.20 [0.11..0.37] to 0.72 [0.61..0.93] at 15, and from 0.06 [0.05..0.07] to 0.49 [0.41..0.67] at 20. Fewer keys in the cross-attention help less, 0.35 [0.26..0.53] at 15, but add to a clipped encoder: together 0.81 [0.72..0.96]. They always hold the right key, so this does not convict the number of keys. The decoder's distances change nothing, also where the encoder is repaired (0.72 with both), and these rows do not explain the mistakes that remain.
#
# 4. At 20 the good arms fall to 0.69 [0.46..0.86] and 0.73 [0.47..0.97], while single symbols stay at 0.98 [0.97..0.99] and 0.99 [0.97..1.00]: a few are wrong, and a sequence counts only as a whole. To find out why, I would look at the errors by position, and hide far distances in encoder, decoder and cross-attention, one at a time. The experiment shows nothing about translation, where no constant difference exists, words repeat, and nobody knows the alignment beforehand. And it has one small size and five seeds.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take a source of four symbols and write a table: step 0, 1, 2, 3; the index needed; its position in each arm; the difference.
# </details>
#
# <details><summary>Hint 2</summary>
#
# You have just written "F", and the source is K F Q B. What would every symbol of the source have to know, so that you could find the next one without positions?
# </details>

# %% [markdown]
# ## 7 · The interview
#
# People ask these questions when "transformers" is on your CV. Answer aloud, then open.
#
# <details><summary>1. Why is there a KV cache and no Q cache?</summary>
#
# An old query is never needed again: its output has been computed. Old keys and values are read by every later query.
# </details>
#
# <details><summary>2. What does GQA save, and what does it not?</summary>
#
# By the factor n_heads / n_kv_heads it shrinks the cache, the traffic of reading it, and the work in the k and v projections. The scores still cost the same number of multiplications: every query head computes its own.
# </details>
#
# <details><summary>3. Your model's first generated token is right, and from the second on it is wrong. Where do you look?</summary>
#
# First at the start position with a cache, then at what the single query attends to, then at whether cached keys are rotated again.
# </details>
#
# <details><summary>4. is_causal=True with one query and a cache of 100 keys: what happens in PyTorch 2.13?</summary>
#
# The output is the first value: the mask is aligned at the top left. For one query leave the mask out.
# </details>
#
# <details><summary>5. Why does MLA keep a separate rotated key?</summary>
#
# RoPE would stand between two matrices that MLA multiplies together beforehand. Week 8 shows why that fails.
# </details>
#
# <details><summary>6. May I reuse a cached prefix in another conversation?</summary>
#
# At the start of the text, yes, as it is. Elsewhere you can move its keys (7.5), but those of deeper layers do not know what now stands before them: an approximation.
# </details>
#

# %% [markdown] nbgrader={"grade_id": "interview_question", "locked": true}
# ### Exercise 7.9 · Two answers of 120 words
#
# **2 points · difficulty 3/5 · 25 minutes · text, graded by a person**
#
# *Why it matters:* the interviewer wants to hear that you know the price of each choice.
#
# Answer in at most 120 words each, as if spoken: the price of each side, your choice, and what it depends on.
#
# 1. "We need a language model for long texts. RoPE or ALiBi?"
# 2. "Would you keep the keys in the cache rotated or raw?"
#
# ### BEGIN MARK SCHEME
# 2 points; half points are allowed. Over 150 words: at most half a point for that answer.
#
# - 1 point: question 1. Beyond the training length unchanged RoPE meets distances, and so angles, that it never saw, and fails; ALiBi's loss stays flat, but it finds fewer facts with distance: 0.79 at 8x and 0.54 at 16x, where unchanged RoPE finds 0.61 and 0.13 (half a point). RoPE can be extended (YaRN and others, with some training), and most checkpoints and kernels use it; the answer asks what "long" and "use" mean, or says what to measure: retrieval at a distance, not perplexity alone (half a point).
# - 1 point: question 2. Rotated: nothing to do per step, and keys can still be moved by a common offset. Raw: all keys are turned at every step, which costs n rotations per step (or a fused kernel), but positions may be assigned anew, as when tokens are dropped from a window, and the base may change (dynamic NTK). Half a point for one side's price; full for both and a choice with its condition.
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "interview", "grade": true, "solution": true, "points": 2}
# ### BEGIN SOLUTION
# 1. It depends on what "long" means. Unchanged, RoPE breaks down beyond its training length: it meets distances it has never seen. ALiBi's loss stays flat at eight times the length in our week 5. But flat is not the same as useful: at sixteen times the length ALiBi found 0.54 of the needles, 0.35 to 0.65 by seed (unchanged RoPE: 0.13). So if recent context matters most, ALiBi is simple and safe. If facts from far away are needed, I try RoPE, extended with YaRN and trained a little at the new length; nearly all kernels and checkpoints support it. We have not measured its retrieval. Whatever I choose, I measure retrieval by distance, not perplexity alone.
#
# 2. I keep them rotated by default: each key is turned once, and a step touches only the new one. A prefix can still be moved, since a common turn shifts all positions. I would keep them raw in two cases. First, if positions are assigned anew while decoding, as in a streaming window where tokens drop out and the rest is renumbered. Second, if the base changes with the length, as in dynamic NTK: no common turn leads from one base to another. The price of raw keys is a rotation of the whole cache at every step. Whatever I choose, the test is that any split gives the same output.
# ### END SOLUTION

# %% [markdown]
# ## 8 · The decision
#
# | | new lengths | far facts (our needles) | can cached keys be moved? | cost | seen in |
# |---|---|---|---|---|---|
# | sinusoidal, learned | fails beyond training | – | no: the position is inside the token | one addition per token | the first Transformer; BERT, GPT-2 |
# | RoPE | fails as it is; a clip, a window (large models: plus first tokens) or a short training with YaRN repairs the loss | unchanged 0.94 at 4x, 0.61 at 8x; all with a clip; none beyond a window | yes, by a common turn | one rotation per query and key | most language models |
# | ALiBi | loss stays flat | 0.94 at 4x, 0.79 at 8x; each value has its own reach | yes, as they are | a bias per score | BLOOM, MPT |
# | T5's bias | no new bucket, but the loss rises from 1.50 to 2.19 at 8x | not measured | yes, as they are | a table lookup per score | T5, Flan-T5 |
# | none in some layers (NoPE) | no new angle in these layers; in our test from 1.42 to 1.49 nats at 8x | all | yes, as they are | none | SmolLM3, Llama 4, beside RoPE |
#
# The table is a start, not an answer: each cell has conditions.

# %% [markdown] nbgrader={"grade_id": "design_memo_question", "locked": true}
# ### Exercise 7.10 · A memo
#
# **4 points · difficulty 4/5 · 90 minutes · text, graded by a person**
#
# *Why it matters:* in a project nobody asks you to implement RoPE. They ask you to choose, and to say why in one page.
#
# Choose **one** scenario (C leans on week 8, section 3, and D on section 2) and write a memo of 300 to 450 words to a team that has not taken this course.
#
# - **A. Chat server.** Contexts up to 128,000 tokens; thousands of users share long system prompts.
# - **B. Document encoder.** Embeds contracts of 500 to 8,000 tokens for search; no text is generated.
# - **C. Speech on a phone.** Turns a stream of audio frames into text; memory is 200 MB, sessions last an hour.
# - **D. Video and text.** Patches have a place, frames have a time; text stands between them.
#
# **Fact sheet.** All numbers take 2 bytes. Row 1 holds the models' own sizes (B and C: the defaults of transformers 5.23; A and D: not tied to a version). The other rows are assumptions. You may change them, but say so.
#
# | | A | B | C | D |
# |---|---|---|---|---|
# | layers · query heads · key heads · head dimension | 32 · 32 · 8 · 128 | 12 · 12 · 12 · 64 | encoder and decoder 6 each · 8 · 8 · 36 | 28 · 28 · 4 · 128 |
# | model | Llama 3 8B | BERT base ([`BertConfig`](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/bert/configuration_bert.py)) | [Moonshine tiny](https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/moonshine/configuration_moonshine.py) | Qwen2.5-VL 7B |
# | weights | 16 GB on a GPU of 80 GB | 0.2 GB | 0.05 GB | 17 GB |
# | trained on texts of | 8,000 tokens | 512 tokens | 30 s of audio | 8,000 tokens |
# | input | 128,000 tokens; prompts of 4,000 shared | 8,000 tokens | 12.5 frames per second in, 3 words per second out | 64 tokens per frame, 1 frame per second |
#
# | measured in this course, five seeds (all but the last two rows: two layers, width 64; 1x is 64 tokens) | mean [lowest..highest] | page in `experiments/` |
# |---|---|---|
# | loss at 1x: RoPE; ALiBi; week 5's RoPE–NoPE hybrid | 1.37 [1.34..1.42]; 1.52 [1.50..1.54]; 1.42 [1.40..1.45] | results.md |
# | loss at 8x: the same three | 3.31 [3.18..3.37]; 1.55 [1.52..1.57]; 1.49 [1.45..1.50] | results.md |
# | needles found at 8x: the same three | 0.61 [0.47..0.77]; 0.79 [0.70..0.97]; 1.00 [1.00..1.00] | results.md |
# | needles found at 16x: the same three | 0.13 [0.04..0.26]; 0.54 [0.35..0.65]; 1.00 [1.00..1.00] | results.md |
# | RoPE at 8x, distances clipped at 31: loss; needles | 1.40 [1.36..1.45]; 1.00 [1.00..1.00] | results_distances.md |
# | RoPE at 8x, window of 32: loss; needles | 1.37 [1.34..1.42]; 0.06 [0.03..0.08] | results_distances.md |
# | RoPE at 4x, loss (needles were not measured after further steps): unchanged; 25 more steps; 25 steps with YaRN | 3.06 [2.88..3.30]; 2.23 [2.10..2.41]; 1.43 [1.40..1.49] | results.md |
# | ascending or reversed: T5's bias with, without the sign | 1.00 [1.00..1.00], 0.51 [0.48..0.54] | results_week6.md |
# | copying at 1.5x: right positions in the cross-attention; none; none, 2+2 layers | 1.00 [1.00..1.00]; 0.00 [0.00..0.00]; 0.05 [0.00..0.24] | results_week7.md |
#
# The memo must contain:
#
# - your choice for each part of the model: encoding, base or slopes, causal or not, the cache, and what happens beyond the training length;
# - two **measurements** from this course for it, with the rival's numbers and the size of our models, and a proposal for one of your own, not yet made, that could decide;
# - what you **refused**, and why;
# - the cost in memory, computed (where there is no cache, what one text needs, for instance its scores in one layer);
# - what result **would change your mind**.
#
# ### BEGIN MARK SCHEME
# 4 points; half points are allowed. Any defensible choice can get full marks; an undefended one gets none.
#
# - 1 point: the choice fits the scenario and has all parts that the exercise names (A: RoPE with long-context training or YaRN, GQA or MLA, prefixes reused at the start of the text, moved ones are approximate; B: bidirectional, so symmetric ALiBi cannot tell reversal, RoPE or a signed bias, padding masked; C: bounded cache, window, positions inside it or ALiBi, cross-attention without positions or monotonic; D: several axes, the largest number on any axis plus one after a grid).
# - 1 point: two measurements of the course with their numbers (half a point each), used for what they show: not perplexity for retrieval, no number against a rival without the choice's own beside it, a small model called small; and a measurement of one's own that could decide (without it at most half a point).
# - 1 point: what was refused and why, with a mechanism and not a slogan (half a point); the memory computed with equation (2) or its like (half a point).
# - 1 point: a result that would change the mind, stated so that it could happen: what is measured, at what length, which threshold (half a point); readable by an outsider, in 300 to 450 words (half a point).
# ### END MARK SCHEME

# %% [markdown] nbgrader={"grade_id": "design_memo", "grade": true, "solution": true, "points": 4}
# ### BEGIN SOLUTION
# **To the serving team: positions for the 128k chat server (scenario A)**
#
# **Choice.** A causal decoder with RoPE, head dimension 128, base 500,000, trained at 8,000 tokens and then for a short while at 128,000 with YaRN's frequencies. Grouped queries: 32 query heads, 8 key heads. Keys are cached rotated. Shared system prompts come first in every conversation, so their cache is reused bit for bit.
#
# **Why.** In our tests, unchanged RoPE models failed beyond their training length: 3.31 nats at eight times the length, against 1.37 within it. At four times the length, 25 further steps brought 3.06 down to 2.23, and with YaRN to 1.43. So extending works, but not for free. Second, facts hidden far back ("needles"), at eight times the length: unchanged RoPE found 0.61 of them, ALiBi 0.79, and RoPE with clipped distances, nothing retrained, 1.00. So RoPE's new distances did the harm, and they are what YaRN is for. But after YaRN nobody has measured needles.
#
# **Refused.** ALiBi: at a distance of 128,000 its flattest slope takes 500 off the score. That is a forecast: in our tests ALiBi beat unchanged RoPE, with 0.54 of the needles against 0.13 at sixteen times the length. Dynamic NTK: its base changes with the length, so cached keys would have to be made again. Moving a prompt's keys to other positions: exact in the first layer only. MLA: 3.6 times smaller per layer, but our kernels do not support it yet.
#
# **Cost.** 32 layers · 8 heads · 256 numbers · 2 bytes = 128 KiB per token, 15.6 GiB for one full context, 62.5 GiB with 32 key heads. A shared prompt of 4,000 tokens takes 0.49 GiB once, instead of once per user.
#
# **Before we decide** I would measure retrieval by distance: 200 needles at each of 4,000, 16,000, 64,000 and 120,000 tokens, with the last 32 tokens of text the same at all lengths. I would also run the split test on the production kernel: any cut of a text must give the same output.
#
# **What would change my mind.** If fewer than 90% of the needles at 120,000 are found after the extension, we cannot promise 128,000, and I would propose 32,000 with retrieval. Beside the weights 64 GB remain: three full contexts, or twenty conversations of 24,000 tokens. If our conversations are longer on average, I would pay for MLA. A hybrid, half its layers without any encoding, found every needle in our tests, up to sixteen times the length. If it does so at our size, I would take it. Our models had two layers: they show which effects exist, not how large they are here.
# ### END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start with the cost: it rules out more than any argument.
# </details>
#
# <details><summary>Hint 2</summary>
#
# "What would change your mind" is a sentence of the form: if X, measured like this, is below Y, then we do Z.
# </details>

# %% [markdown]
# ## What people get wrong
#
# | You may read | What is true | where |
# |---|---|---|
# | `repeat` expands the key heads | It alternates them; `repeat_interleave` keeps groups together. With one key head, or one per query head, both are right, so test with 8 and 2. | 7.1 |
# | Cached keys must be raw | Rotated ones work, too. They can be moved by a common turn, but not to another base. | 7.5, 7.9 |
# | Left padding with RoPE needs its own positions in every row | Every row needs its own mask, or the padding is read. A shift of all positions in a row cancels, if prompt and decoding agree. | 7.4 |
# | Cross-attention needs positions | T5 and Moonshine have none there. | 7.6 |
#
# ## Takeaways
#
# 1. However you cut a text, the output is that of the whole. Test that, and most cache bugs are gone.
# 2. Positions across two sequences claim that the two run in step. With the right claim one layer learned to copy, and held up to 1.5 times the length; with a wrong one, or none, it did not learn it in the same training.
# 3. If no measurement could change your mind, your choice is a matter of taste.
#
# ## References
#
# - N. Shazeer: *Fast Transformer Decoding: One Write-Head is All You Need*, 2019, arXiv:1911.02150. Section 2.4.1 (memory traffic limits decoding), section 3 (one key head for all; 3.1: the traffic it saves).
# - J. Ainslie et al.: *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, EMNLP 2023, arXiv:2305.13245. Section 2.2.
# - DeepSeek-AI: *DeepSeek-V2*, 2024, arXiv:2405.04434, section 2.1 (MLA, the decoupled rotated key); *DeepSeek-V3*, 2024, arXiv:2412.19437 (the sizes of 7.2).
# - A. Vaswani et al.: *Attention Is All You Need*, 2017, arXiv:1706.03762. Section 3.2.3 (cross-attention).
# - R. Xiong et al.: *On Layer Normalization in the Transformer Architecture*, ICML 2020, arXiv:2002.04745. Figure 1 (post-norm and pre-norm).
# - J. Su et al.: *RoFormer*, 2021, arXiv:2104.09864. O. Press, N. A. Smith, M. Lewis: *Train Short, Test Long*, ICLR 2022, arXiv:2108.12409.
# - Bugs on record: unslothai/unsloth, [issue 3699](https://github.com/unslothai/unsloth/issues/3699) (masks and positions of a padded batch); huggingface/transformers, [issue 25104](https://github.com/huggingface/transformers/issues/25104) (dynamic NTK and cached keys).
