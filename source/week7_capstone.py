# %% [markdown]
# # Week 7 · Capstone: a cache, two sequences, one decision
#
# **The week in one sentence.** A model that serves people writes one token at a time and remembers the rest; you will build that memory, join an encoder with one encoding to a decoder with another, and then decide which encoding a real project should use.
#
# A chat server answers you after 100,000 tokens of conversation. It does not read them again for every word. What does it keep, how large is that, and which position does the next token have? Get one index wrong and the model still talks, only worse. This week's bugs are of that kind.
#
# ## What you will be able to do
#
# - share key and value heads among query heads, and say what a cache costs in bytes;
# - write attention with a KV cache that gives the same output however the text is cut into pieces;
# - serve a batch of texts of different lengths, padded on the left;
# - move cached keys to other positions without computing them again;
# - write cross-attention with positions on both sides or on none, and a decoder block around it;
# - say when copying and reversing carry on beyond the training length, with numbers;
# - defend a choice of encoding in one page.
#
# **You need** weeks 1, 3 and 4: attention with masks, RoPE, ALiBi. Exercises 3.3 and 4.6 come ready made in `ready_blocks.py`.
#
# **Time:** about 255 minutes of exercises and 45 of reading and experiments. The complete notebook runs in about a minute on two CPU cores; the cell that trains says so. Short of time? 7.1, 7.3 and 7.6 are the core; 7.10 is what an employer would ask for.
#
# ## The exercises: 35 points
#
# | # | exercise | kind | points for: the visible check | the hidden tests | a person | minutes |
# |---|---|---|---|---|---|---|
# | 7.1 | `grouped_query_attention` | code | 0 | 3 | – | 20 |
# | 7.2 | `cache_sizes` | numbers | 0 | 3 | – | 15 |
# | 7.3 | `CachedAttention` | code | 0 | 6 | – | 45 |
# | 7.4 | `padded_causal` | code | 0 | 3 | – | 20 |
# | 7.5 | `shift_cached_keys` | code | 0 | 2 | – | 10 |
# | 7.6 | `CrossAttention` | code | 0 | 4 | – | 30 |
# | 7.7 | `HybridDecoderBlock` | code | 0 | 4 | – | 25 |
# | 7.8 | `copying_explained` | text | – | – | 4 | 35 |
# | 7.9 | `interview` | text | – | – | 2 | 15 |
# | 7.10 | `design_memo` | text | – | – | 4 | 40 |
# | | **total** | | **0** | **25** | **10** | **255** |
#
# **How the points are given.** Below each answer stands a *visible check*. It carries **0 points**. Run it as often as you like: it says what is wrong and why. (Of numbers by hand it looks at the form only.) The *hidden tests* carry **all** the points of a code or number exercise. They run when your notebook is graded, with other inputs and more cases than the check. The three text answers are read by a person.
#
# **A mistake is paid for once.** 7.3 and 7.6 may call your 7.1, and 7.7 calls your 7.6. If the earlier answer returns wrong numbers and the later one uses it rightly, the later one gets its points.
#
# **Cells marked *predict*** ask you to commit to an answer before you look at a result. They are not graded. Do them anyway: in section 6 most people are wrong.

# %% [markdown]
# ### Conventions of this week
#
# - Tensors are `(batch, heads, seq_len, head_dim)`; $d$ is the head dimension. Masks are boolean, True = may attend.
# - A model has `n_heads` query heads and `n_kv_heads` key and value heads. A **group** is the query heads that share one key head.
# - With fewer queries than keys, the queries are the *last* positions, as always in this course.
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
# A decoder writes token after token. For the newest token it needs a query, and the keys and values of *all* tokens so far. The old keys and values have not changed: under a causal mask, no later token can reach them. So keep them. That store is the **KV cache**.
#
# It is large. Every layer keeps two vectors per token and head. At long contexts the cache, not the weights, decides how many people one GPU can serve. And every step must read all of it, so its size also sets the speed.
#
# **Fewer key heads.** Shazeer (2019) gave all query heads *one* key head and one value head (multi-query attention). Ainslie et al. (2023) chose the middle: $g$ key heads, each shared by a group of neighbouring query heads. This is **grouped-query attention**, GQA. LLaMA 3, Mistral and Qwen use it. With $h$ query heads, query head number $r$ reads key head
#
# $$\left\lfloor \frac{r}{h/g} \right\rfloor . \tag{1}$$
#
# **A worked example.** $h=6$, $g=2$: groups of three. Query heads 0, 1, 2 read key head 0; heads 3, 4, 5 read key head 1. In PyTorch that is `repeat_interleave(3, dim=1)`: 0, 0, 0, 1, 1, 1. The similar-looking `repeat` gives 0, 1, 0, 1, 0, 1. No shape tells the two apart.

# %% tags=["experiment"]
fig, axes = lab.figure("Which key head does each query head read? 8 query heads, 2 key heads", ncols=2, height=2.6, sharey=True)
for ax, (name, reads) in zip(axes, {"repeat_interleave: neighbours share": [r // 4 for r in range(8)],
                                    "repeat: heads alternate": [r % 2 for r in range(8)]}.items()):
    for query_head, key_head in enumerate(reads):
        ax.plot([query_head, 1.5 + 4 * key_head], [1, 0], color=lab.COLOURS[key_head], linestyle=lab.LINES[key_head], linewidth=1.4)
    ax.plot(range(8), [1] * 8, "o", color=lab.QUERY, markersize=9)
    ax.plot([1.5, 5.5], [0, 0], "s", color=lab.KEY, markersize=11)
    ax.set(title=name, xticks=range(8), xlabel="query head", yticks=[0, 1], ylim=(-0.25, 1.25))
axes[0].set_yticklabels(["key heads 0, 1", "query heads"])
plt.show()

# %% [markdown]
# **Figure 7.1. Two ways to share.** (a) Equation (1): heads 0 to 3 share key head 0, heads 4 to 7 key head 1. (b) The other order. Both give the same shapes. A checkpoint trained with (a) and run with (b) loads without a complaint.

# %% [markdown]
# ### Exercise 7.1 · Grouped-query attention
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* most open models of the last years use it. With one key head, or with as many as query heads, the wrong order gives the right result, so many tests miss it.
#
# Everything else is as in exercise 1.1: scaled scores, a boolean mask, zero weights and a zero output for a query that may attend to nothing.

# %% nbgrader={"grade_id": "grouped_query_attention", "solution": true}
def grouped_query_attention(q, k, v, mask=None):
    """Attention in which neighbouring query heads share a key head and a value head.

    q:       (batch, n_heads, n_queries, head_dim)
    k:       (batch, n_kv_heads, n_keys, head_dim)
    v:       (batch, n_kv_heads, n_keys, v_dim)
    mask:    boolean, broadcasts to (batch, n_heads, n_queries, n_keys), True = may attend; None = everywhere
    returns: (out, weights): (batch, n_heads, n_queries, v_dim), (batch, n_heads, n_queries, n_keys)
    n_heads that is not a multiple of n_kv_heads: ValueError
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


# %% nbgrader={"grade_id": "grouped_query_attention_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(1)
q, k = torch.randn(1, 6, 2, 4, generator=generator), torch.randn(1, 2, 5, 4, generator=generator)
v = torch.arange(2.0).view(1, 2, 1, 1).expand(1, 2, 5, 3)  # every value of key head g is g
out, weights = grouped_query_attention(q, k, v)
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
mask = torch.ones(1, 6, 2, 5, dtype=torch.bool)
mask[0, 3, 1], mask[0, 5, 0, 2] = False, False
out, weights = grouped_query_attention(q, k, v, mask)
assert bool(out.isfinite().all()), "head 3 hides all keys from query 1: its weights and its output are zero, not NaN."
assert float(out[0, 3, 1].abs().max()) == 0, "a query that may attend to nothing has a zero output."
assert float(weights[0, 5, 0, 2]) == 0, "the mask has a row for every head; key 2 is hidden from query 0 in head 5."
assert lab.raises(ValueError, grouped_query_attention, q[:, :5], k, v), "5 query heads and 2 key heads: ValueError."
print("Looks right. The hidden tests use 8 and 12 query heads, other widths for v, and masks of every shape.")

# %% nbgrader={"grade_id": "grouped_query_attention_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.grouped_query_attention(grouped_query_attention)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Bring k and v to `n_heads` heads first. Everything after that is exercise 1.1.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which of `repeat` and `repeat_interleave` puts copies of the same head side by side?
# </details>
#
# <details><summary>Hint 3: rows without a key</summary>
#
# A row of $-\infty$ alone gives $0/0$. Where the mask has no True in a row, give it finite scores before the softmax and zero weights after it.
# </details>

# %% [markdown]
# ### What a cache costs
#
# One token costs, in bytes,
#
# $$\underbrace{n_\text{layers}}_{\text{each has its own}}\ \cdot\ \underbrace{n_\text{kv heads}\,(d_k+d_v)}_{\text{keys and values}}\ \cdot\ \underbrace{b}_{\text{bytes per number}} . \tag{2}$$
#
# **Multi-head latent attention** (MLA, DeepSeek-V2 and V3) goes another way. It stores no heads at all. Per token and layer it keeps one **latent** vector, from which every head makes its key and its value, and beside it one small **rotated key** that all heads share. Why the second? A rotation stands between the two matrices that MLA wants to multiply together beforehand, so RoPE gets channels of its own.

# %% [markdown]
# ### Exercise 7.2 · Five sizes
#
# **3 points · difficulty 2/5 · 15 minutes · numbers**
#
# *Why it matters:* "does it fit?" is the first question about every deployment, and you can answer it on paper.
#
# Two models, both with 2 bytes per number. **A:** 32 layers, 32 query heads, 8 key and value heads, head dimension 128 for both. **B** (the sizes of DeepSeek-V3): 61 layers, a latent of 512 numbers and a rotated key of 64. A GiB is $2^{30}$ bytes. **At least four significant digits.**

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

# %% nbgrader={"grade_id": "cache_sizes_check", "grade": true, "points": 0}
# Visible check (0 points). It looks at the form of the answer, not at the values.
assert isinstance(cache_sizes, dict), "cache_sizes must stay a dictionary; fill in its values."
names = ("gqa_token", "gqa_gib", "mha_gib", "mla_token", "expanded_token")
for key in names:
    assert key in cache_sizes, f"the key {key!r} is missing: keep the names of the cell above."
    value = cache_sizes[key]
    assert value is not None, f"{key!r} is still None."
    assert isinstance(value, (int, float)), f"{key!r} must be a plain number, not {type(value).__name__}."
    assert math.isfinite(value) and value > 0, f"{key!r} must be finite and above zero, got {value}."
assert len(cache_sizes) == len(names), "there are more keys than asked for: remove the others."
print("Five finite numbers. The hidden tests ask for four significant digits.")

# %% nbgrader={"grade_id": "cache_sizes_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.cache_sizes(cache_sizes)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Equation (2). Both keys and values count, and each number takes 2 bytes.
# </details>
#
# <details><summary>Hint 2</summary>
#
# The 32 query heads do not enter: queries are not stored. For MLA neither heads nor values enter; the latent stands for both.
# </details>

# %% [markdown]
# ## 2 · A cache that any split leaves right
#
# Now build it. The contract is one sentence: **however you cut the text, the output is that of the whole text at once.** A prompt of 1,000 tokens comes in one piece, or in pieces of 256 to keep the memory low; after it single tokens; with speculative decoding a handful at a time. All are splits of one text.
#
# Three things must be right, and each of them is right by itself in the first call.
#
# - **Positions.** If $c$ tokens are cached, the new ones stand at $c, c+1, \dots$, not at $0, 1, \dots$
# - **The mask.** Rows are the new tokens, columns are all tokens. Row $r$ sees the columns up to $c+r$: the causal mask aligned at the end (exercise 1.5).
# - **What is stored.** Rotated keys or raw ones, but not rotated twice. Key heads, not their copies for every query head. And the caller's cache stays as it was: two answers may continue one prompt.

# %% tags=["experiment"]
lab.moving_cache()

# %% [markdown]
# **Figure 7.2. Pieces entering a cache.** Rows: the tokens of the newest piece. Columns: all tokens so far. Blue: cached and seen; orange: new and seen; white: hidden. Move the two sliders: (a) where does the diagonal start, (b) which number stands beside the first row?

# %% [markdown] nbgrader={"grade_id": "found_in_the_wild", "locked": true}
# **As found in the wild.** Blocks like the following circulate as "attention with RoPE, GQA and a KV cache". It runs, shapes fit, and on a prompt in one piece it writes fluent text. Before you read on, find what is missing. (Three things, and a fourth if you have done 7.1.)
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
# **6 points · difficulty 4/5 · 45 minutes · code**
#
# *Why it matters:* this is the loop that every chat runs in. None of the four mistakes above raises an error.
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
        """One more piece of the text.

        x:       (batch, n_new, d_model), n_new >= 1
        cache:   what the call before returned, or None at the start of the text; it is not changed
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


# %% nbgrader={"grade_id": "CachedAttention_check", "grade": true, "points": 0}
# Visible check (0 points).
module = CachedAttention(16, 4, 2)
state = module.state_dict()
assert {name: tuple(value.shape) for name, value in state.items()} == {
    "q_proj.weight": (16, 16), "k_proj.weight": (8, 16), "v_proj.weight": (8, 16), "o_proj.weight": (16, 16)}, (
    "CachedAttention(16, 4, 2): the state_dict must hold q_proj and o_proj (16, 16), k_proj and v_proj (8, 16), and no "
    f"more; yours holds { {name: tuple(value.shape) for name, value in state.items()} }.")
generator = torch.Generator().manual_seed(3)
module.load_state_dict({name: torch.randn(value.shape, generator=generator) * 0.5 for name, value in state.items()})
x = torch.randn(2, 7, 16, generator=generator)
whole, cache = module(x)
assert tuple(whole.shape) == (2, 7, 16), f"out: shape (2, 7, 16) expected, got {tuple(whole.shape)}."
assert isinstance(cache, tuple) and len(cache) == 2, "the cache is a plain tuple (k, v)."
for part in cache:
    assert tuple(part.shape) == (2, 2, 7, 4), (
        f"after 7 tokens k and v are (batch, n_kv_heads, 7, head_dim) = (2, 2, 7, 4); yours: {tuple(part.shape)}.")
other = torch.cat((x[:, :5], torch.randn(2, 2, 16, generator=generator)), dim=1)
assert torch.allclose(module(other)[0][:, :5], whole[:, :5], atol=1e-4), "tokens 0 to 4 see tokens 5 and 6: mask what comes later."
swapped = x[:, [1, 0, 2, 3, 4, 5, 6]]
assert not torch.allclose(module(swapped)[0][:, -1], whole[:, -1], atol=1e-3), (
    "swapping tokens 0 and 1 does not change what the last token sees: are queries and keys rotated?")
for sizes in ([6, 1], [1] * 7, [3, 4], [2, 4, 1]):
    start, memory = 0, None
    for size in sizes:
        out, memory = module(x[:, start:start + size]) if memory is None else module(x[:, start:start + size], memory)
        gap = float((out - whole[:, start:start + size]).abs().max())
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
print("Looks right: any split gives the output of the whole. The hidden tests compare values, bfloat16 too.")

# %% nbgrader={"grade_id": "CachedAttention_tests", "grade": true, "points": 6}
# Hidden tests (6 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.CachedAttention(CachedAttention, grouped_query_attention)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1: the order of things</summary>
#
# Project, split into heads, rotate the new queries and keys, append to the cache, attend, merge, project. Store the keys after the rotation and you never touch them again.
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

# %% [markdown]
# ### What it saves
#
# Without a cache, step $t$ projects all $t$ tokens again. For $n$ tokens that is $n(n+1)/2$ projections instead of $n$, and as many times the scores. The next cell writes 256 tokens both ways.

# %% [markdown] tags=["prediction"]
# **Predict.** How many times longer does writing 256 tokens take without a cache: about 2, 10, 30 or 130 times? (Projections alone would say 128. What speaks against it?)
#
# *Your prediction:*

# %% tags=["experiment"]
# Demonstration: decoding with and without a cache (a few seconds).
torch.manual_seed(0)
layer, text = CachedAttention(256, 8, 2), torch.randn(1, 256, 256)
with torch.no_grad():
    clock = {"with a cache": [0.0], "without": [0.0]}
    cache = None
    for t in range(256):
        start = time.perf_counter()
        with_cache, cache = layer(text[:, t:t + 1], cache)
        clock["with a cache"].append(clock["with a cache"][-1] + time.perf_counter() - start)
        start = time.perf_counter()
        without, _ = layer(text[:, :t + 1])
        clock["without"].append(clock["without"][-1] + time.perf_counter() - start)
fig, ax = lab.figure("Writing 256 tokens, one layer: seconds so far", height=3.0)
for (name, seconds), colour, style in zip(clock.items(), (lab.BLUE, lab.VERMILLION), lab.LINES):
    ax.plot(seconds, color=colour, linestyle=style, label=name)
ax.set(xlabel="tokens written", ylabel="seconds", xlim=(0, 256))
ax.grid(axis="y")
ax.legend()
plt.show()
lab.table(["tokens written", "projected with a cache", "projected without"],
          [[n, n, f"{n * (n + 1) // 2:,}"] for n in (16, 64, 256)])
print("same last token:", bool(torch.allclose(with_cache[:, -1], without[:, -1], atol=1e-4)))

# %% [markdown]
# **Figure 7.3. Decoding with and without a cache.** With one the time grows along a line, without one along a parabola. The table counts tokens that go through the projections; it is the same on every machine, the seconds are not.

# %% [markdown]
# In our measurements on one core, 512 tokens through one layer took 0.40 s with the cache and 8.2 s without: 20 times, not 256. A single token keeps no processor busy. Most of its time is overhead, and on a GPU it is the reading of weights and cache. So decoding is limited by memory traffic, not by arithmetic, and *that* is what fewer key heads save.

# %% [markdown]
# ## 3 · Texts of different lengths in one batch
#
# A server works on many conversations at once. They have different lengths, a tensor has not. So the short ones are filled up with **padding**. On which side? New tokens are appended on the right, and the last column must be everyone's newest token. So the padding goes to the **left**.
#
# Now the index of a token is not its position any more. In a row with three padding tokens, the first real token has index 3 and position 0. Two things follow.
#
# - **The mask** must hide the padding's keys. This is what really counts: without it the error is 0.25 in a small random model, with it zero.
# - **Positions** should count real tokens only. With RoPE a row's offset cancels, since scores depend on differences alone. With learned or sinusoidal positions it does not. And prompt and decoding must agree: count with padding in the one and without in the other, and the distances jump.
#
# **An example.** `keep = [F, F, T, T, T]`. Positions of the three real tokens: 0, 1, 2. The last token sees the indices 2, 3, 4. If only the last two tokens are queries (the others are cached), the positions are 1, 2, and the mask has two rows of five.

# %% tags=["experiment"]
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
plt.show()

# %% [markdown]
# **Figure 7.4. Left padding.** Blue: may be seen. Orange: earlier in the row, but padding. Grey rows: queries that are padding themselves; nobody looks at them. Below stand indices, on the left positions.

# %% [markdown]
# ### Exercise 7.4 · Positions and mask with padding
#
# **3 points · difficulty 2/5 · 20 minutes · code**
#
# *Why it matters:* one training library once counted padding in decoding and not in the prompt. Single prompts were right, batches were not, and it took weeks to find.
#
# Rows of padding queries are not looked at, neither in the positions nor in the mask. (Do not hide everything from them without need: such a row makes a softmax divide by zero.)

# %% nbgrader={"grade_id": "padded_causal", "solution": true}
def padded_causal(keep, n_queries):
    """Positions and mask of the last n_queries tokens of texts that are padded on the left.

    keep:    bool (batch, n_keys), True = a real token; padding only on the left, at least one real token in each row
    returns: (positions, mask)
             positions int64 (batch, n_queries): the number of real tokens before each one in its row
             mask bool (batch, 1, n_queries, n_keys), True = may attend: real keys up to the query's own
    """
    ### BEGIN SOLUTION
    n_keys = keep.shape[1]
    before = keep.cumsum(dim=1) - keep.long()
    index = torch.arange(n_keys, device=keep.device)
    up_to_itself = index <= index[n_keys - n_queries:, None]
    return before[:, n_keys - n_queries:], up_to_itself & keep[:, None, None, :]
    ### END SOLUTION


# %% nbgrader={"grade_id": "padded_causal_check", "grade": true, "points": 0}
# Visible check (0 points).
keep = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
positions, mask = padded_causal(keep, 5)
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
print("Looks right. The hidden tests pad each row differently and take the last few tokens.")

# %% nbgrader={"grade_id": "padded_causal_tests", "grade": true, "points": 3}
# Hidden tests (3 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.padded_causal(padded_causal)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `cumsum` along the tokens counts the real ones up to *and including* each token.
# </details>
#
# <details><summary>Hint 2</summary>
#
# Compute everything for all tokens, then keep the last `n_queries` rows. If you slice first, you lose the count of what stands before.
# </details>
#
# <details><summary>Hint 3: the mask</summary>
#
# It is the causal mask, (n_queries, n_keys), and `keep` with two axes of size one in the middle, `(batch, 1, 1, n_keys)`.
# </details>

# %% [markdown]
# ## 4 · Moving what is cached
#
# Ten thousand users send the same system prompt. Compute its keys once and reuse them: **prefix caching**. But suppose that in one conversation 40 tokens stand before it. Its keys were rotated for the positions 0, 1, 2, …, and they are needed at 40, 41, 42, …
#
# Rotations add up. A key at position $p$ was turned by $p\,\theta_i$. To be at $p+o$ it needs another turn by $o\,\theta_i$:
#
# $$R(p+o) = R(o)\,R(p). \tag{3}$$
#
# **Every key turns by the same angle**, wherever it stands. The program llama.cpp calls this the K-shift and uses it when a full context drops its oldest tokens. It needs no weights, no text and no queries.
#
# Two limits. Equation (3) moves keys; it does not change what is in them. In all layers after the first, a key has read the tokens before it, and in another context it would have read others. And it holds for one base only: keys rotated with base 10,000 cannot become keys of another base by one common turn. That is why dynamic NTK scaling (5.4) and a cache of rotated keys do not go together.

# %% [markdown]
# ### Exercise 7.5 · Move the keys
#
# **2 points · difficulty 2/5 · 10 minutes · code**
#
# *Why it matters:* one call replaces the recomputation of a whole prefix. With the sign wrong, everything moves twice as far in the wrong direction.

# %% nbgrader={"grade_id": "shift_cached_keys", "solution": true}
def shift_cached_keys(k, offset, base=10000.0):
    """Rotated keys as if each one's position were larger by offset.

    k:       (batch, heads, n_keys, head_dim), rotated already (interleaved, with this base); bfloat16 too
    offset:  a Python int, from -10,000 to 10,000
    returns: a new tensor, shape and dtype of k; an odd head_dim raises ValueError
    """
    ### BEGIN SOLUTION
    everywhere = torch.full((k.shape[-2],), offset, device=k.device)
    return apply_rotary_emb(k, everywhere, base)
    ### END SOLUTION


# %% nbgrader={"grade_id": "shift_cached_keys_check", "grade": true, "points": 0}
# Visible check (0 points).
generator = torch.Generator().manual_seed(5)
raw = torch.randn(2, 3, 6, 8, generator=generator)
here = apply_rotary_emb(raw, torch.arange(6))
moved = shift_cached_keys(here, 4)
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
print("Looks right. The hidden tests go to offsets of 10,000, and try bfloat16 and other bases.")

# %% nbgrader={"grade_id": "shift_cached_keys_tests", "grade": true, "points": 2}
# Hidden tests (2 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.shift_cached_keys(shift_cached_keys)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# You have a function that turns x by given positions. Which positions, if every key shall turn by the same angle?
# </details>
#
# <details><summary>Hint 2: bfloat16</summary>
#
# The ready `apply_rotary_emb` computes angles in float64, whatever x is. If you write the rotation yourself, do at least float32.
# </details>

# %% [markdown]
# ## 5 · Two sequences
#
# A translator, a speech recogniser, a captioner: an **encoder** reads one sequence, a **decoder** writes another. In **cross-attention** the queries come from the decoder, keys and values from the encoder's output, the **memory**. It is never causal: the whole source is there before the first word is written.
#
# What is the position of a query relative to a key here? Token 3 of the answer and token 3 of the source stand in different texts. The original Transformer added positions to both inputs and left it at that. T5 puts no bias into its cross-attention, and Moonshine, which uses RoPE in both stacks, does not rotate there.
#
# One *can* rotate both sides. Then the score depends on $p_\text{query}-p_\text{key}$, and that is a claim: **these two sequences run in step**. In section 6 you will see when the claim helps, and when it hurts.

# %% [markdown]
# ### Exercise 7.6 · Cross-attention
#
# **4 points · difficulty 3/5 · 30 minutes · code**
#
# *Why it matters:* the masks and positions of two sequences are where encoder-decoder code goes wrong. PyTorch's own `nn.MultiheadAttention` gives NaN for a memory that is padding only; yours shall give zeros.
#
# Projections as in 3.6. With `positions` *and* `memory_positions`, queries turn by the first, keys by the second. With none, nothing is rotated. With one alone, raise `ValueError`: half a rotation means nothing. You may call your 7.1.

# %% nbgrader={"grade_id": "CrossAttention", "solution": true}
class CrossAttention(nn.Module):
    """Multi-head attention with queries from x, keys and values from a memory; never causal.

    Bias-free projections q_proj, k_proj, v_proj, o_proj (d_model, d_model) and nothing else in the state_dict.
    d_model that n_heads does not divide, an odd head dimension: ValueError.
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


# %% nbgrader={"grade_id": "CrossAttention_check", "grade": true, "points": 0}
# Visible check (0 points).
module = CrossAttention(16, 2)
state = module.state_dict()
assert {name: tuple(value.shape) for name, value in state.items()} == {
    f"{letter}_proj.weight": (16, 16) for letter in "qkvo"}, (
    f"the state_dict must hold the weights of q_proj, k_proj, v_proj, o_proj and no more; yours holds {sorted(state)}.")
generator = torch.Generator().manual_seed(6)
module.load_state_dict({name: torch.randn(value.shape, generator=generator) * 0.4 for name, value in state.items()})
x, memory = torch.randn(2, 3, 16, generator=generator), torch.randn(2, 5, 16, generator=generator)
out = module(x, memory)
assert tuple(out.shape) == (2, 3, 16), (
    f"out has a row per query: shape (2, 3, 16) expected, got {tuple(out.shape)}. Queries come from x.")
assert not torch.allclose(module(x, memory.flip(0)), out, atol=1e-3), "another memory must give another output."
order = [4, 2, 0, 1, 3]
assert torch.allclose(module(x, memory[:, order]), out, atol=1e-4), (
    "without positions the order of the memory must not matter. Is something rotated or causal?")
keep = torch.tensor([[True, True, True, False, False], [True] * 5])
masked = module(x, memory, keep)
assert torch.allclose(masked[:1], module(x[:1], memory[:1, :3]), atol=1e-4), (
    "with memory_mask the output must be that of the real tokens alone: True = a real token.")
empty = module(x, memory, torch.tensor([[False] * 5, [True] * 5]))
assert bool(empty.isfinite().all()) and float(empty[0].abs().max()) == 0, (
    "a memory without a real token gives zeros, not NaN and not the mean of the padding.")
here, there = torch.arange(3), torch.arange(5)
rotated = module(x, memory, None, here, there)
assert not torch.allclose(rotated, out, atol=1e-3), "with positions on both sides the output must change."
assert torch.allclose(module(x, memory, None, here + 9, there + 9), rotated, atol=1e-3), (
    "only differences count: moving both sides by 9 must change nothing. Are the values rotated?")
assert not torch.allclose(module(x, memory, None, here + 1, there), rotated, atol=1e-3), (
    "moving the queries' positions alone must change the output: each side turns by its own positions.")
assert lab.raises(ValueError, module, x, memory, None, here), "positions for x alone must raise ValueError."
assert lab.raises(ValueError, CrossAttention, 18, 6), "a head dimension of 3 has no pairs: ValueError at construction."
print("Looks right. The hidden tests compare values, with rows of positions and fractional ones.")

# %% nbgrader={"grade_id": "CrossAttention_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.CrossAttention(CrossAttention, grouped_query_attention)
### END HIDDEN TESTS

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
# `(positions is None) != (memory_positions is None)` is True exactly if one of them is missing.
# </details>

# %% [markdown]
# ### A block with two kinds of position
#
# Now put a decoder block together. Inside its own text it uses ALiBi, causal, ready made as `ALiBiMultiHeadAttention`. Towards the encoder it uses your cross-attention, without positions. The encoder may use RoPE; the block never learns of it. Encodings live *inside* attention layers, so two halves of one model may differ.
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
# *Why it matters:* a block is fifteen lines, and a norm in the wrong place trains nearly as well, until you load somebody else's weights.
#
# The parts must have these names, so that weights can be loaded: `self_attn`, `cross_attn`, `norm1`, `norm2`, `norm3` (`nn.LayerNorm`), and `ffn`: `nn.Sequential` of `Linear(d, 4d)`, `GELU()` in its exact form, `Linear(4d, d)`.

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


# %% nbgrader={"grade_id": "HybridDecoderBlock_check", "grade": true, "points": 0}
# Visible check (0 points).
block = HybridDecoderBlock(16, 2)
state = block.state_dict()
parts = sorted({name.split(".")[0] for name in state})
assert parts == ["cross_attn", "ffn", "norm1", "norm2", "norm3", "self_attn"], (
    f"the parts are self_attn, cross_attn, norm1, norm2, norm3 and ffn; yours: {parts}.")
assert tuple(state["ffn.0.weight"].shape) == (64, 16) and tuple(state["ffn.2.weight"].shape) == (16, 64), (
    "ffn is a Sequential: Linear(16, 64), GELU, Linear(64, 16).")
generator = torch.Generator().manual_seed(7)
drawn = {name: torch.randn(value.shape, generator=generator) * 0.3 for name, value in state.items()}
block.load_state_dict(drawn)
x, memory = torch.randn(2, 4, 16, generator=generator), torch.randn(2, 6, 16, generator=generator)
out = block(x, memory)
assert tuple(out.shape) == (2, 4, 16), f"shape (2, 4, 16) expected, got {tuple(out.shape)}."
assert torch.allclose(block(x[:, :2], memory), out[:, :2], atol=1e-4), "tokens 0 and 1 see later ones: the self-attention is causal."
assert not torch.allclose(block(x, memory * 0.5), out, atol=1e-3), (
    "half the memory gives the same output: is it looked at, and as it comes, without a norm?")
keep = torch.arange(6) < torch.tensor([6, 3])[:, None]
assert torch.allclose(block(x, memory, keep)[1:], block(x[1:], memory[1:, :3]), atol=1e-4), (
    "with memory_mask the output must be that of the memory's real tokens alone: hand it on.")
silent = {name: torch.zeros_like(value) if name.endswith(("o_proj.weight", "ffn.2.weight", "ffn.2.bias")) else value
          for name, value in drawn.items()}
block.load_state_dict(silent)
assert torch.allclose(block(x, memory), x, atol=1e-5), (
    "with all three parts silent the block must return x: each part is added to the stream, and no norm stands on the stream.")
print("Looks right. The hidden tests compare values, so the order of the parts and the exact GELU count.")

# %% nbgrader={"grade_id": "HybridDecoderBlock_tests", "grade": true, "points": 4}
# Hidden tests (4 points): they run when your notebook is graded.
### BEGIN HIDDEN TESTS
from autograder.checks import week7
week7.HybridDecoderBlock(HybridDecoderBlock, CrossAttention)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write equation (4) as three lines. Each line uses the result of the line before, not the x that came in.
# </details>
#
# <details><summary>Hint 2</summary>
#
# `ALiBiMultiHeadAttention` is causal by default. `nn.GELU()` is the exact form; the tanh form differs in the third digit.
# </details>

