"""Week 7, the capstone: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.

Exercises 7.3, 7.6 and 7.7 are graded on top of the student's own earlier answers as well. So that an entry is due its
score whatever stands there, their banks make mistakes that no wrong 7.1 or 7.6 makes too.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week7_capstone"

SAYS = {
    # grouped queries
    "repeat":
        "Your groups are interleaved: query head h reads key head h % n_kv_heads, as `repeat` does; it must read "
        "h // (n_heads // n_kv_heads), as `repeat_interleave` does.",
    "keys repeat": "The keys are grouped by `repeat`, the values by `repeat_interleave`; both need the latter.",
    "values repeat": "The values are grouped by `repeat`, the keys by `repeat_interleave`; both need the latter.",
    "first head": "Every query head reads key head 0; head h reads h // (n_heads // n_kv_heads).",
    "groups reversed": "The groups come in the reverse order: the first query heads read the first key head.",
    "unscaled": "The scores are not divided by sqrt(head_dim).",
    "scaled twice": "The scores are divided by sqrt(head_dim) twice, that is by head_dim.",
    "d_model scale": "The scores are divided by sqrt(d_model); the scale belongs to head_dim.",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys.",
    "mask ignored": "Where your output is wrong, the mask changes nothing.",
    "mask inverted": "The mask is the wrong way round: True means that the key may be seen.",
    "mask late": "The mask is applied after the softmax, so the weights of a row no longer add up to 1.",
    "mask one head": "All heads get the mask of the first one; a mask may have a row of heads of its own.",
    "nan rows": "A row that may attend to nothing becomes NaN; its weights and its output must be zero.",
    "undivided": "Heads that do not divide must raise ValueError; yours raises something else or nothing.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "in place": "You change an argument in place; work on a new tensor.",
    "out only": "You return the output alone; the exercise asks for the pair (out, weights).",
    # cache
    "restart": "With a cache your positions start at 0 again; the new tokens are at n_cached, n_cached + 1, ….",
    "keys restart": "With a cache the new keys start at position 0 again; they are at n_cached, n_cached + 1, ….",
    "queries restart": "With a cache the new queries start at position 0 again; they are at n_cached, n_cached + 1, ….",
    "rotated again": "Cached keys are rotated a second time: what is in the cache rotated already must stay as it is.",
    "one too far": "With a cache your positions are one too large: the first new token is at n_cached.",
    "top left":
        "With a cache the causal mask is aligned at the top left; the queries are the last positions, so it is "
        "aligned at the end.",
    "later unmasked": "With a cache there is no causal mask: inside a piece later tokens are seen.",
    "only new": "The new tokens attend to each other only; the cached keys and values take no part.",
    "cache not grown": "The cache you return holds the new tokens only; it must hold all tokens so far.",
    "no causal": "There is no causal mask: later tokens are seen.",
    "mask turned round": "Your causal mask is inverted: it hides what a token may see, and shows what it may not.",
    "heads cached": "You cache the repeated heads; the cache holds n_kv_heads, that is what makes it small.",
    "state": "The module remembers the text itself; all it may know of earlier tokens is in the cache it is given.",
    "list": "You return the cache as a list; return a plain tuple (k, v).",
    "wide angles": "Positions or frequencies are in bfloat16 after .to(torch.bfloat16), so far angles are off by radians.",
    "base": "The argument `base` is ignored.",
    "values rotated": "The values are rotated too; rotate only queries and keys.",
    "no rotation": "Nothing is rotated: the positions of the tokens change nothing.",
    "queries only": "Only the queries are rotated; the keys must be too.",
    "keys only": "Only the keys are rotated; the queries must be too.",
    "half layout": "You rotate the pairs (i, i + head_dim/2); the exercise asks for neighbours (2i, 2i+1).",
    "i/d": "Your exponent is -i/head_dim; both channels of a pair share one frequency, base**(-2i/head_dim).",
    "clockwise": "You rotate the other way round.",
    "names": "The projections must be called q_proj, k_proj, v_proj and o_proj, so that weights can be loaded.",
    "biases": "The projections must have no bias: the state_dict holds four weights and nothing else.",
    "sizes": "Sizes that do not fit must raise ValueError when the module is made; yours raises something else or nothing.",
    "split": "The heads are split without a transpose, so tokens and heads are mixed: split the channels first, then move the "
             "axes.",
    "merge": "The heads are merged without a transpose, so tokens and heads are mixed.",
    "no o_proj": "The output projection o_proj is not applied.",
    # padding
    "index": "Your positions are indices; padding must not count.",
    "from one": "Your positions are one too large: the first real token is at 0.",
    "first row": "Every row gets the positions of the first one; each has its own padding.",
    "slice": "You count the real tokens among the last n_queries only; those before them count too.",
    "first queries": "You return the first n_queries rows; the exercise asks for the last ones.",
    "padding counted": "You count the padding before a token; count the real tokens.",
    "padding seen": "Your mask is causal but shows the padding.",
    "not causal": "Your mask hides the padding but shows later tokens.",
    "strict": "Your mask hides the token itself; a token sees itself.",
    "mask top left": "Your mask is aligned at the top left; the queries are the last positions, so align it at the end.",
    "no head axis": "Your mask has no axis for the heads; its shape is (batch, 1, n_queries, n_keys).",
    "added mask": "Your mask is a number to be added to the scores; the exercise asks for a boolean one, True = may attend.",
    "mask hides": "Your mask says what is hidden; True means may attend.",
    "float positions": "Your positions are floating point; the exercise asks for int64.",
    "order": "You return (mask, positions); the exercise asks for (positions, mask).",
    # the loop that writes
    "padded right": "Your padding is on the right: then the last column is not everyone's newest token.",
    "every index": "Your positions count padding; positions are the number of real tokens before each one.",
    "decode counts padding": "Positions leave padding out in the prompt and count it in decoding: then distances jump.",
    "decode restarts": "In decoding your positions start at 0 again; the new token comes after all real tokens of its row.",
    "padding read": "Your mask is causal but shows the padding, so it is read like text.",
    "newest alone":
        "From the second step on only the newest token is read: hand the cache on, and let the mask show all real tokens.",
    "top left again": "In decoding the mask is aligned at the top left, so the new token sees the first key only.",
    "all again": "You read the whole text again at every step; the cache holds what has been read.",
    "one by one": "You call decode for each prompt by itself; all prompts go through it together, in one batch.",
    "least likely": "You take the least likely token: argmin instead of argmax.",
    "first column": "You read the logits of the first column; the next token follows from the last one.",
    "with prompts": "You return the prompts, too; the exercise asks for the new tokens alone.",
    "first lost": "The first token that is written is missing: it comes from the logits of the prompts.",
    "written floats": "You return floating point numbers; tokens are int64.",
    # moved keys
    "backwards": "The keys turn the wrong way: a larger position is a turn by +offset times the frequency.",
    "by index": "Every key turns by its own index; all of them must turn by the same angle, that of `offset`.",
    "index too": "You add the index of the key to the offset; the keys are rotated already, only the offset is missing.",
    "absolute": "Negative offsets are taken as positive.",
    "low angles": "For bfloat16 keys the angles are computed in bfloat16; compute them in float32 and round once, at the end.",
    "float32 out": "Your result is float32 whatever k is; it must have k's dtype.",
    "odd": "An odd head_dim must raise ValueError; yours raises something else or nothing.",
    "degrees": "Your angles are in degrees.",
    "one frequency": "All pairs turn by the same frequency.",
    "swapped": "Cosine and sine are exchanged.",
    "apart": "The two halves of the result are put one after the other; pairs are neighbours, so weave them.",
    # cross-attention
    "exchanged": "x and the memory have changed places: queries come from x, keys and values from the memory.",
    "keys from x": "The keys come from x; keys and values come from the memory.",
    "values from x": "The values come from x; keys and values come from the memory.",
    "self": "The memory is not looked at: keys and values come from the memory.",
    "causal": "Cross-attention is causal here; every query may see all of the memory.",
    "nan": "A memory without a real token gives NaN; the output is zero there.",
    "large number": "A memory without a real token gives the mean of its padding; the output is zero there.",
    "positions exchanged": "The two sides' positions have changed places: queries turn by `positions`, keys by `memory_positions`.",
    "memory positions": "The queries turn by `memory_positions`, like the keys; they have their own, `positions`.",
    "x positions": "The keys turn by `positions`, like the queries; they have their own, `memory_positions`.",
    "always rotated": "Without positions you rotate by 0, 1, 2, …; without positions nothing is rotated.",
    "positions ignored": "The positions given change nothing: use them, not 0, 1, 2, ….",
    "rows for heads": "A row of positions is given to each head, not to each sequence of the batch.",
    "one side": "positions for one side only must raise ValueError; yours raises something else or nothing.",
    # block
    "post-norm": "The norms come after the sums (post-norm); here each part sees the normalised input: x + part(norm(x)).",
    "residual": "A residual is missing: each of the three parts is added to its input.",
    "self residual": "The residual around the self-attention is missing.",
    "cross residual": "The residual around the cross-attention is missing.",
    "ffn residual": "The residual around the feed-forward network is missing.",
    "cross first": "Cross-attention comes before self-attention; the order is self, cross, feed-forward.",
    "memory normed": "The memory is normalised with norm2; use it as it comes.",
    "block not causal": "The self-attention is not causal: call it with is_causal=True.",
    "mask not passed": "memory_mask is not handed on to cross_attn.",
    "relu": "The feed-forward network has a ReLU; use a GELU.",
    "tanh": "The GELU is the tanh approximation; use the exact one, nn.GELU().",
    "one norm": "One norm is used for all three parts; each has its own.",
    "no cross": "The memory is not looked at: cross-attention is missing.",
    "unnormed": "The parts see x itself; each sees its norm of x.",
    "no bias": "The self-attention has no ALiBi bias.",
    "parallel": "The parts all start from the same x; each goes on from the sum before it.",
    "part names": "The parts must be called self_attn, cross_attn, norm1, norm2, norm3 and ffn, so that weights can be loaded.",
}


# ---- 7.1 grouped_query_attention ------------------------------------------------------------------------------------


@right(WEEK, "grouped_query_attention")
def grouped_plain(q, k, v, mask=None):
    n_heads, n_kv_heads = q.shape[1], k.shape[1]
    if n_heads % n_kv_heads:
        raise ValueError("n_kv_heads must divide n_heads")
    group = n_heads // n_kv_heads
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights


K_GROUPED, V_GROUPED = "k = k.repeat_interleave(group, dim=1)", "v = v.repeat_interleave(group, dim=1)"
ZEROED = "    if mask is not None:\n        weights = weights.masked_fill(~mask, 0.0)\n"
HIDDEN = '    if mask is not None:\n        scores = scores.masked_fill(~mask, float("-inf"))\n'
edited(grouped_plain, "grouped_by_repeat", 0, SAYS["repeat"],
       (K_GROUPED, "k = k.repeat(1, group, 1, 1)"), (V_GROUPED, "v = v.repeat(1, group, 1, 1)"))
edited(grouped_plain, "grouped_keys_by_repeat", 0, SAYS["keys repeat"], (K_GROUPED, "k = k.repeat(1, group, 1, 1)"))
edited(grouped_plain, "grouped_values_by_repeat", 0, SAYS["values repeat"], (V_GROUPED, "v = v.repeat(1, group, 1, 1)"))
edited(grouped_plain, "grouped_first_head", 0, SAYS["first head"],
       (K_GROUPED, "k = k[:, :1].expand(-1, n_heads, -1, -1)"), (V_GROUPED, "v = v[:, :1].expand(-1, n_heads, -1, -1)"))
edited(grouped_plain, "grouped_reversed", 0, SAYS["groups reversed"],
       (K_GROUPED, "k = k.flip(1).repeat_interleave(group, dim=1)"), (V_GROUPED, "v = v.flip(1).repeat_interleave(group, dim=1)"))
edited(grouped_plain, "grouped_unscaled", 0, SAYS["unscaled"], (" / math.sqrt(q.shape[-1])", ""))
edited(grouped_plain, "grouped_scaled_twice", 0, SAYS["scaled twice"], ("math.sqrt(q.shape[-1])", "q.shape[-1]"))
edited(grouped_plain, "grouped_scaled_by_d_model", 0, SAYS["d_model scale"], ("sqrt(q.shape[-1])", "sqrt(q.shape[-1] * n_heads)"))
edited(grouped_plain, "grouped_over_queries", 0, SAYS["over queries"], ("softmax(dim=-1)", "softmax(dim=-2)"))
edited(grouped_plain, "grouped_mask_ignored", 2.25, SAYS["mask ignored"], (HIDDEN, ""), (ZEROED, ""))
edited(grouped_plain, "grouped_mask_inverted", 2.25, SAYS["mask inverted"],
       ("    group = n", "    mask = None if mask is None else ~mask\n    group = n"))
edited(grouped_plain, "grouped_mask_late", 2.25, SAYS["mask late"], (HIDDEN, ""))
edited(grouped_plain, "grouped_mask_of_one_head", 2.25, SAYS["mask one head"],
       ("    group = n", "    if mask is not None and mask.ndim > 2:\n        mask = mask[..., :1, :, :]\n    group = n"))
edited(grouped_plain, "grouped_nan_rows", 2, SAYS["nan rows"], (ZEROED, ""))
edited(grouped_plain, "grouped_undivided", 2.75, SAYS["undivided"],
       ('    if n_heads % n_kv_heads:\n        raise ValueError("n_kv_heads must divide n_heads")\n', ""))
edited(grouped_plain, "grouped_detached", 2.75, SAYS["detached"], ("return weights @ v", "return (weights @ v).detach()"))
edited(grouped_plain, "grouped_out_only", 0, SAYS["out only"], ("return weights @ v, weights", "return weights @ v"))


@right(WEEK, "grouped_query_attention")
def grouped_einsum(q, k, v, mask=None):
    b, h, n, d = q.shape
    g = k.shape[1]
    if h % g != 0:
        raise ValueError(f"{h} heads, {g} key heads")
    grouped = q.reshape(b, g, h // g, n, d)
    scores = torch.einsum("bgrnd,bgmd->bgrnm", grouped, k).reshape(b, h, n, -1) * d**-0.5
    if mask is not None:
        mask = mask.expand(scores.shape)
        empty = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~mask & ~empty, -math.inf)
        weights = torch.softmax(scores, -1) * ~empty
    else:
        weights = torch.softmax(scores, -1)
    out = torch.einsum("bgrnm,bgme->bgrne", weights.reshape(b, g, h // g, n, -1), v)
    return out.reshape(b, h, n, -1), weights


@right(WEEK, "grouped_query_attention")
def grouped_head_by_head(q, k, v, mask=None):
    n_heads, n_kv = q.size(1), k.size(1)
    if n_heads // n_kv * n_kv != n_heads:
        raise ValueError("groups must be of one size")
    full = None if mask is None else mask.expand(q.size(0), n_heads, q.size(2), k.size(2))
    outs, rows = [], []
    for h in range(n_heads):
        key, value = k[:, h // (n_heads // n_kv)], v[:, h // (n_heads // n_kv)]
        score = q[:, h] @ key.mT / key.shape[-1] ** 0.5
        if full is not None:
            score = torch.where(full[:, h], score, -math.inf)
        w = torch.nan_to_num(score.softmax(-1))
        rows.append(w)
        outs.append(w @ value)
    return torch.stack(outs, 1), torch.stack(rows, 1)


@right(WEEK, "grouped_query_attention")
def grouped_expanded(q, k, v, mask=None):
    heads, shared = q.shape[1], k.shape[1]
    if shared == 0 or heads % shared:
        raise ValueError("heads")

    def widened(t):
        return t[:, :, None].expand(-1, -1, heads // shared, -1, -1).flatten(1, 2)

    k, v = widened(k), widened(v)
    bias = torch.zeros(q.shape[0], heads, q.shape[2], k.shape[2], dtype=q.dtype, device=q.device)
    if mask is not None:
        bias = bias.masked_fill(~mask & mask.any(-1, keepdim=True), -math.inf)
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3) + bias
    weights = F.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(mask.any(-1, keepdim=True), weights, torch.zeros_like(weights))
    return weights @ v, weights


# ---- 7.2 cache_sizes ------------------------------------------------------------------------------------------------

sizes = {"gqa_token": 131072, "gqa_gib": 1, "mha_gib": 4, "mla_token": 70272, "expanded_token": 4997120}

numbers(WEEK, "cache_sizes", "exact", sizes)
numbers(WEEK, "cache_sizes", "four_digits", sizes | {"gqa_token": 131100, "mla_token": 70270, "expanded_token": 4997000})
numbers(WEEK, "cache_sizes", "as_products", {
    "gqa_token": 32 * 8 * 128 * 2 * 2, "gqa_gib": 131072 * 8192 / 2**30, "mha_gib": 4.0, "mla_token": 61 * 576 * 2,
    "expanded_token": 61 * 128 * 320 * 2})
numbers(WEEK, "cache_sizes", "values_forgotten", {
    "gqa_token": 65536, "gqa_gib": 0.5, "mha_gib": 2, "mla_token": 70272, "expanded_token": 2998272,
}, 1, "Only the keys are counted; the values are cached as well.")
numbers(WEEK, "cache_sizes", "heads_halved", sizes | {"gqa_token": 65536, "gqa_gib": 0.5, "mha_gib": 2}, 1.5,
        "Your caches of heads are half as large: they hold keys and values, each number in 2 bytes.")
numbers(WEEK, "cache_sizes", "query_heads", sizes | {"gqa_token": 524288, "gqa_gib": 4}, 2,
        "You count the 32 query heads; the cache holds the 8 key and value heads.")
numbers(WEEK, "cache_sizes", "heads_exchanged", sizes | {"gqa_token": 524288, "gqa_gib": 4, "mha_gib": 1}, 1.5,
        "The two head counts have changed places: the cache of grouped queries is the smaller one.")
numbers(WEEK, "cache_sizes", "one_layer", {
    "gqa_token": 4096, "gqa_gib": 0.03125, "mha_gib": 0.125, "mla_token": 1152, "expanded_token": 81920,
}, 0, "You count one layer; each layer has a cache of its own.")
numbers(WEEK, "cache_sizes", "numbers_for_bytes", {
    "gqa_token": 65536, "gqa_gib": 0.5, "mha_gib": 2, "mla_token": 35136, "expanded_token": 2498560,
}, 0, "You count numbers, not bytes: each one takes 2.")
numbers(WEEK, "cache_sizes", "four_bytes", {
    "gqa_token": 262144, "gqa_gib": 2, "mha_gib": 8, "mla_token": 140544, "expanded_token": 9994240,
}, 0, "Your sizes are twice as large: a number takes 2 bytes here.")
numbers(WEEK, "cache_sizes", "gigabytes", sizes | {"gqa_gib": 1.073742, "mha_gib": 4.294967}, 1.5,
        "You divide by 10^9; a GiB is 2^30 bytes.")
numbers(WEEK, "cache_sizes", "rope_forgotten", sizes | {"mla_token": 62464}, 2,
        "The rotated key of 64 numbers is missing; it is cached beside the latent.")
numbers(WEEK, "cache_sizes", "latent_twice", sizes | {"mla_token": 140544}, 2,
        "You count the latent for keys and for values; both are made from the same one.")
numbers(WEEK, "cache_sizes", "latent_twice_key_once", sizes | {"mla_token": 132736}, 2,
        "You count the latent for keys and for values; both are made from the same one.")
numbers(WEEK, "cache_sizes", "latent_per_head", sizes | {"mla_token": 8994816}, 2,
        "You count the latent once per head; all heads share one.")
numbers(WEEK, "cache_sizes", "expanded_keys_only", sizes | {"expanded_token": 2998272}, 2.5,
        "Only the keys are counted; the values are cached as well.")
numbers(WEEK, "cache_sizes", "equal_widths", sizes | {"expanded_token": 5996544}, 2.5,
        "Keys and values have different widths here: 192 and 128.")
numbers(WEEK, "cache_sizes", "two_digits", sizes | {"gqa_token": 130000, "mla_token": 70000, "expanded_token": 5000000},
        0.5, ROUNDED_TOO_FAR)


# ---- 7.3 CachedAttention --------------------------------------------------------------------------------------------


@right(WEEK, "CachedAttention")
class CachedPlain(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:
            raise ValueError("the sizes do not fit")
        self.n_heads, self.n_kv_heads, self.hd, self.base = n_heads, n_kv_heads, d_model // n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.hd).transpose(1, 2)

    def rope(self, x, start):
        position = torch.arange(start, start + x.shape[2], device=x.device)
        theta = self.base ** (-torch.arange(0, self.hd, 2, device=x.device) / self.hd)
        angle = position[:, None] * theta
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).to(x.dtype)

    def forward(self, x, cache=None):
        n = x.shape[1]
        past = 0 if cache is None else cache[0].shape[2]
        q = self.rope(self.split(self.q_proj(x), self.n_heads), past)
        k = self.rope(self.split(self.k_proj(x), self.n_kv_heads), past)
        v = self.split(self.v_proj(x), self.n_kv_heads)
        if cache is not None:
            k = torch.cat((cache[0], k), dim=2)
            v = torch.cat((cache[1], v), dim=2)
        cache = (k, v)
        group = self.n_heads // self.n_kv_heads
        keys, values = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ keys.transpose(-2, -1) / math.sqrt(self.hd)
        visible = torch.ones(n, keys.shape[2], dtype=torch.bool, device=x.device).tril(keys.shape[2] - n)
        scores = scores.masked_fill(~visible, float("-inf"))
        out = scores.softmax(dim=-1) @ values
        return self.o_proj(out.transpose(1, 2).reshape(x.shape)), cache


Q_TURNED = "q = self.rope(self.split(self.q_proj(x), self.n_heads), past)"
K_TURNED = "k = self.rope(self.split(self.k_proj(x), self.n_kv_heads), past)"
V_SPLIT = "v = self.split(self.v_proj(x), self.n_kv_heads)"
GROUPED = "keys, values = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)"
MASKED = 'scores = scores.masked_fill(~visible, float("-inf"))'
GROWN = """        if cache is not None:
            k = torch.cat((cache[0], k), dim=2)
            v = torch.cat((cache[1], v), dim=2)
"""
edited(CachedPlain, "cached_positions_restart", 3.25, SAYS["restart"],
       (Q_TURNED, Q_TURNED.replace("past", "0")), (K_TURNED, K_TURNED.replace("past", "0")))
edited(CachedPlain, "cached_keys_restart", 3.25, SAYS["keys restart"], (K_TURNED, K_TURNED.replace("past", "0")))
edited(CachedPlain, "cached_queries_restart", 3.25, SAYS["queries restart"], (Q_TURNED, Q_TURNED.replace("past", "0")))
edited(CachedPlain, "cached_keys_rotated_again", 3.25, SAYS["rotated again"],
       (K_TURNED, "k = self.split(self.k_proj(x), self.n_kv_heads)"),
       ("        cache = (k, v)\n", "        k = self.rope(k, 0)\n        cache = (k, v)\n"))
edited(CachedPlain, "cached_one_too_far", 3.25, SAYS["one too far"], ("else cache[0].shape[2]", "else cache[0].shape[2] + 1"))
edited(CachedPlain, "cached_top_left", 3.25, SAYS["top left"], (".tril(keys.shape[2] - n)", ".tril()"))
edited(CachedPlain, "cached_hides_itself", 0, SAYS["strict"], (".tril(keys.shape[2] - n)", ".tril(keys.shape[2] - n - 1)"),
       ("scores.softmax(dim=-1) @ values", "scores.softmax(dim=-1).nan_to_num() @ values"))
edited(CachedPlain, "cached_mask_inverted", 0, SAYS["mask turned round"],
       (MASKED, 'scores = scores.masked_fill(visible.tril(keys.shape[2] - n - 1), float("-inf"))'))
edited(CachedPlain, "cached_allowed_hidden", 0, SAYS["mask turned round"], (MASKED, MASKED.replace("~visible", "visible")))
edited(CachedPlain, "cached_later_unmasked", 4.5, SAYS["later unmasked"], (MASKED, f"if past == 0:\n            {MASKED}"))
edited(CachedPlain, "cached_only_new", 3.25, SAYS["only new"],
       (GROUPED, f"k, v = k[:, :, -n:], v[:, :, -n:]\n        {GROUPED}"))
edited(CachedPlain, "cached_in_float32", 5.5, "The cache must keep the dtype of the projections.",
       ("cache = (k, v)", "cache = (k.float(), v.float())"), ("cat((cache[0], k)", "cat((cache[0].to(k.dtype), k)"),
       ("cat((cache[1], v)", "cat((cache[1].to(v.dtype), v)"))
edited(CachedPlain, "cached_not_grown", 2.75, SAYS["cache not grown"], (GROWN, ""))
edited(CachedPlain, "cached_all_heads", 5.5, SAYS["heads cached"],
       (f"        {GROUPED}\n", "        keys, values = k, v\n"),
       (GROWN, "        k, v = (t.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for t in (k, v))\n" + GROWN))
edited(CachedPlain, "cached_values_first", 5.5, "What is in the cache has the right shape and serves its own module, but it is not k and v.",
       ("torch.cat((cache[0], k)", "torch.cat((cache[1], k)"), ("torch.cat((cache[1], v)", "torch.cat((cache[0], v)"),
       ("cache = (k, v)", "cache = (v, k)"))
edited(CachedPlain, "cached_in_the_module", 5, SAYS["state"],
       ("        cache = (k, v)\n", "        cache = self.seen = (k, v)\n"),
       (GROWN, GROWN.replace("cache[0]", "self.seen[0]").replace("cache[1]", "self.seen[1]")),
       ("cache is None else cache[0]", "cache is None else self.seen[0]"))
edited(CachedPlain, "cached_grown_in_place", 5.5, SAYS["in place"],
       (GROWN, GROWN + "            cache[0].data, cache[1].data = k, v\n"))
edited(CachedPlain, "cached_as_a_list", 5.5, SAYS["list"], ("cache = (k, v)", "cache = [k, v]"))
edited(CachedPlain, "cached_wide_angles", 5.5, SAYS["wide angles"],
       ("angle = position[:, None] * theta", "angle = position[:, None].to(x.dtype) * theta.to(x.dtype)"))
edited(CachedPlain, "cached_own_base", 5.75, SAYS["base"], ("theta = self.base", "theta = 10000.0"))
edited(CachedPlain, "cached_values_rotated", 0, SAYS["values rotated"],
       (V_SPLIT, "v = self.rope(self.split(self.v_proj(x), self.n_kv_heads), past)"))
edited(CachedPlain, "cached_no_rotation", 0, SAYS["no rotation"],
       (Q_TURNED, "q = self.split(self.q_proj(x), self.n_heads)"), (K_TURNED, "k = self.split(self.k_proj(x), self.n_kv_heads)"))
edited(CachedPlain, "cached_queries_only", 0, SAYS["queries only"], (K_TURNED, "k = self.split(self.k_proj(x), self.n_kv_heads)"))
edited(CachedPlain, "cached_keys_only", 0, SAYS["keys only"], (Q_TURNED, "q = self.split(self.q_proj(x), self.n_heads)"))
edited(CachedPlain, "cached_split_wrong", 0, SAYS["split"],
       ("x.view(x.shape[0], x.shape[1], heads, self.hd).transpose(1, 2)", "x.view(x.shape[0], heads, x.shape[1], self.hd)"))
edited(CachedPlain, "cached_half_layout", 0, SAYS["half layout"],
       ("a, b = x[..., 0::2], x[..., 1::2]", "a, b = x.chunk(2, dim=-1)"),
       ("torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)",
        "torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)"))
edited(CachedPlain, "cached_i_over_d", 0, SAYS["i/d"],
       ("torch.arange(0, self.hd, 2, device=x.device)", "torch.arange(self.hd // 2, device=x.device)"))
edited(CachedPlain, "cached_merge_wrong", 0, SAYS["merge"], ("out.transpose(1, 2).reshape", "out.reshape"))
edited(CachedPlain, "cached_no_o_proj", 0, SAYS["no o_proj"],
       ("self.o_proj(out.transpose(1, 2).reshape(x.shape))", "out.transpose(1, 2).reshape(x.shape)"))
edited(CachedPlain, "cached_other_names", 0, SAYS["names"], *[
    change for p in "qkvo" for change in ((f"self.{p}_proj = ", f"self.w{p} = "), (f"self.{p}_proj(", f"self.w{p}("))])
edited(CachedPlain, "cached_with_biases", 5.75, SAYS["biases"], *[
    (f"self.{p}_proj = nn.Linear(d_model, {width}, bias=False)", f"self.{p}_proj = nn.Linear(d_model, {width})")
    for p, width in zip("qkvo", ("d_model", "n_kv_heads * self.hd", "n_kv_heads * self.hd", "d_model"))])
edited(CachedPlain, "cached_any_size", 5.75, SAYS["sizes"],
       ('        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:\n'
        '            raise ValueError("the sizes do not fit")\n', ""))
edited(CachedPlain, "cached_detached", 5.75, SAYS["detached"], ("self.o_proj(out.transpose", "self.o_proj(out.detach().transpose"))


@right(WEEK, "CachedAttention")
class CachedRawKeys(nn.Module):
    """Keeps the keys as they are and turns all of them at each call."""

    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError("d_model")
        if n_heads % n_kv_heads != 0:
            raise ValueError("n_kv_heads")
        self.h, self.g, self.d = n_heads, n_kv_heads, d_model // n_heads
        if self.d % 2 == 1:
            raise ValueError("head_dim")
        self.inv_freq = [base ** (-2 * i / self.d) for i in range(self.d // 2)]
        for name, rows in (("q", d_model), ("k", self.g * self.d), ("v", self.g * self.d), ("o", d_model)):
            setattr(self, f"{name}_proj", nn.Linear(d_model, rows, bias=False))

    def turn(self, x, positions):
        angles = positions.double()[:, None] * torch.tensor(self.inv_freq, dtype=torch.float64, device=x.device)
        z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)

    def forward(self, x, cache=None):
        q = self.q_proj(x).unflatten(-1, (self.h, self.d)).transpose(1, 2)
        k = self.k_proj(x).unflatten(-1, (self.g, self.d)).transpose(1, 2)
        v = self.v_proj(x).unflatten(-1, (self.g, self.d)).transpose(1, 2)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        at = torch.arange(k.shape[2], device=x.device)
        turned, q = self.turn(k, at), self.turn(q, at[-q.shape[2]:])
        out = F.scaled_dot_product_attention(q, turned, v, attn_mask=at <= at[-q.shape[2]:, None], enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2)), (k, v)


@right(WEEK, "CachedAttention")
class CachedTokenByToken(nn.Module):
    """Takes every piece one token at a time."""

    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or (d_model // n_heads) % 2:
            raise ValueError("sizes")
        self.n_heads, self.n_kv, self.hd, self.base = n_heads, n_kv_heads, d_model // n_heads, base
        self.q_proj, self.o_proj = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(d_model, n_kv_heads * self.hd, bias=False) for _ in range(2))

    def rotated(self, t, position):
        freq = torch.exp(torch.arange(0, self.hd, 2, device=t.device) * (-math.log(self.base) / self.hd))
        c, s = torch.cos(position * freq), torch.sin(position * freq)
        out = torch.empty(t.shape, dtype=torch.promote_types(t.dtype, torch.float32), device=t.device)
        out[..., ::2] = t[..., ::2] * c - t[..., 1::2] * s
        out[..., 1::2] = t[..., ::2] * s + t[..., 1::2] * c
        return out.type_as(t)

    def forward(self, x, cache=None):
        rows = []
        for token in x.unbind(1):
            position = 0 if cache is None else cache[0].size(2)
            b = token.shape[0]
            q = self.rotated(self.q_proj(token).view(b, self.n_kv, -1, self.hd), position)
            k = self.rotated(self.k_proj(token).view(b, self.n_kv, 1, self.hd), position)
            v = self.v_proj(token).view(b, self.n_kv, 1, self.hd)
            cache = (k, v) if cache is None else (torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2))
            w = torch.softmax(q @ cache[0].mT * self.hd**-0.5, -1)
            rows.append(self.o_proj((w @ cache[1]).reshape(b, -1)))
        return torch.stack(rows, 1), cache


@right(WEEK, "CachedAttention")
class CachedWithLists(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        self.hd = d_model // n_heads
        if self.hd * n_heads != d_model or self.hd % 2 or n_heads % n_kv_heads:
            raise ValueError(f"{d_model}, {n_heads}, {n_kv_heads}")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.hd, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.o_proj = nn.Linear(n_heads * self.hd, d_model, bias=False)
        theta = base ** (-torch.arange(0, self.hd, 2, dtype=torch.float64) / self.hd)
        table = torch.outer(torch.arange(4096, dtype=torch.float64), theta)
        self.table = table.cos().float(), table.sin().float()  # not a buffer: .to() leaves it alone

    def forward(self, x, cache=None):
        b, n, _ = x.shape
        start = cache[0].shape[2] if cache is not None else 0
        cos, sin = (t[start:start + n].to(x.device) for t in self.table)

        def rope(t):
            even, odd = t[..., 0::2].float(), t[..., 1::2].float()
            return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).reshape(t.shape).to(t.dtype)

        q = rope(self.q_proj(x).reshape(b, n, self.n_heads, self.hd).transpose(1, 2))
        k = rope(self.k_proj(x).reshape(b, n, self.n_kv_heads, self.hd).transpose(1, 2))
        v = self.v_proj(x).reshape(b, n, self.n_kv_heads, self.hd).transpose(1, 2)
        if start:
            k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
        group = self.n_heads // self.n_kv_heads
        future = torch.full((n, start + n), -math.inf, device=x.device).triu(start + 1).to(x.dtype)
        heads = []
        for h in range(self.n_heads):
            scores = q[:, h] @ k[:, h // group].mT / math.sqrt(self.hd) + future
            heads.append(scores.softmax(-1) @ v[:, h // group])
        return self.o_proj(torch.cat(heads, -1)), (k, v)


# ---- 7.4 padded_causal ----------------------------------------------------------------------------------------------


@right(WEEK, "padded_causal")
def padded_plain(keep, n_queries):
    n_keys = keep.shape[1]
    before = keep.cumsum(dim=1) - 1
    positions = before[:, n_keys - n_queries:]
    causal = torch.ones(n_queries, n_keys, dtype=torch.bool, device=keep.device).tril(n_keys - n_queries)
    mask = causal & keep[:, None, None, :]
    return positions, mask


BEFORE, LAST_ROWS = "before = keep.cumsum(dim=1) - 1", "positions = before[:, n_keys - n_queries:]"
MASK = "mask = causal & keep[:, None, None, :]"
edited(padded_plain, "padded_index", 1.375, SAYS["index"], (BEFORE, "before = torch.arange(n_keys).expand(len(keep), -1)"))
edited(padded_plain, "padded_from_one", 1.5, SAYS["from one"], (BEFORE, "before = keep.cumsum(dim=1)"))
edited(padded_plain, "padded_first_row", 1.5, SAYS["first row"], (BEFORE, "before = (keep.cumsum(dim=1) - 1)[:1].expand(len(keep), -1)"))
edited(padded_plain, "padded_padding_counted", 1.5, SAYS["padding counted"], (BEFORE, "before = (~keep).cumsum(dim=1)"))
edited(padded_plain, "padded_slice", 2.5, SAYS["slice"], (LAST_ROWS, "positions = keep[:, n_keys - n_queries:].cumsum(dim=1) - 1"))
edited(padded_plain, "padded_first_queries", 2.5, SAYS["first queries"], (LAST_ROWS, "positions = before[:, :n_queries]"))
edited(padded_plain, "padded_padding_seen", 1.75, SAYS["padding seen"],
       (MASK, "mask = causal.expand(len(keep), 1, n_queries, n_keys)"))
edited(padded_plain, "padded_not_causal", 1.75, SAYS["not causal"],
       (MASK, "mask = keep[:, None, None, :].expand(-1, 1, n_queries, -1)"))
edited(padded_plain, "padded_strict", 1.75, SAYS["strict"], (".tril(n_keys - n_queries)", ".tril(n_keys - n_queries - 1)"))
edited(padded_plain, "padded_top_left", 2.75, SAYS["mask top left"], (".tril(n_keys - n_queries)", ".tril()"))
edited(padded_plain, "padded_no_head_axis", 1.75, SAYS["no head axis"], (MASK, "mask = causal & keep[:, None, :]"))
edited(padded_plain, "padded_added_mask", 1.5, SAYS["added mask"],
       (MASK, "mask = torch.zeros(len(keep), 1, n_queries, n_keys).masked_fill(~(causal & keep[:, None, None, :]), -1e9)"))
edited(padded_plain, "padded_mask_hides", 1.75, SAYS["mask hides"], (MASK, "mask = ~(causal & keep[:, None, None, :])"))
edited(padded_plain, "padded_float_positions", 2.875, SAYS["float positions"], (LAST_ROWS, LAST_ROWS + ".float()"))
edited(padded_plain, "padded_order", 0, SAYS["order"], ("return positions, mask", "return mask, positions"))


@right(WEEK, "padded_causal")
def padded_by_count(keep, n_queries):
    batch, n_keys = keep.shape
    padding = (~keep).sum(dim=1, keepdim=True)
    index = torch.arange(n_keys, device=keep.device)
    query = index[n_keys - n_queries:]
    mask = (index[None, None, None, :] <= query[None, None, :, None]) & (index >= padding)[:, None, None, :]
    return (query - padding).clamp(min=0), mask


@right(WEEK, "padded_causal", 2.875)
def padded_loops(keep, n_queries):
    batch, n_keys = keep.shape
    positions = torch.zeros(batch, n_queries, dtype=torch.long)
    mask = torch.zeros(batch, 1, n_queries, n_keys, dtype=torch.bool)
    for b in range(batch):
        for r in range(n_queries):
            at = n_keys - n_queries + r
            positions[b, r] = sum(bool(keep[b, j]) for j in range(at))
            for j in range(at + 1):
                mask[b, 0, r, j] = keep[b, j]
    return positions, mask


@right(WEEK, "padded_causal")
def padded_like_generation(keep, n_queries):
    positions = keep.long().cumsum(-1) - 1
    positions = positions.masked_fill(~keep, 1)
    n = keep.size(1)
    square = torch.tril(torch.ones(n, n, dtype=torch.bool, device=keep.device))
    mask = (square[None] & keep[:, None, :]).unsqueeze(1)
    # padding sees itself, so that no row is empty
    mask = mask | torch.eye(n, dtype=torch.bool, device=keep.device) & ~keep[:, None, :, None]
    return positions[:, -n_queries:], mask[:, :, -n_queries:]


# ---- 7.4 generate ---------------------------------------------------------------------------------------------------


@right(WEEK, "generate")
def writes_plain(decode, prompts, n_new):
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    keep = torch.tensor([[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts])
    cache, written = None, []
    for step in range(n_new):
        n, n_keys = tokens.shape[1], keep.shape[1]
        positions = (keep.cumsum(1) - 1).clamp(min=0)[:, n_keys - n:]
        mask = torch.ones(n, n_keys, dtype=torch.bool).tril(n_keys - n) & keep[:, None, None, :]
        logits, cache = decode(tokens, positions, mask, cache)
        tokens = logits[:, -1:].argmax(-1)
        written.append(tokens)
        keep = torch.cat((keep, torch.ones(len(keep), 1, dtype=torch.bool)), dim=1)
    return torch.cat(written, dim=1)


WRITE_AT, WRITE_MASK = "positions = (keep.cumsum(1) - 1).clamp(min=0)[:, n_keys - n:]", "& keep[:, None, None, :]"
WRITE_ASKED, WRITE_BACK = "decode(tokens, positions, mask, cache)", "return torch.cat(written, dim=1)"
edited(writes_plain, "writes_padded_right", 1.5, SAYS["padded right"],
       ("[0] * (longest - len(prompt)) + list(prompt)", "list(prompt) + [0] * (longest - len(prompt))"),
       ("[False] * (longest - len(prompt)) + [True] * len(prompt)", "[True] * len(prompt) + [False] * (longest - len(prompt))"))
edited(writes_plain, "writes_at_indices", 1.5, SAYS["every index"],
       (WRITE_AT, "positions = torch.arange(n_keys - n, n_keys).repeat(len(keep), 1)"))
edited(writes_plain, "writes_counting_padding_later", 2.25, SAYS["decode counts padding"],
       (WRITE_AT, f"{WRITE_AT}\n        if step:\n            positions = torch.full((len(keep), 1), n_keys - 1)"))
edited(writes_plain, "writes_from_zero_again", 1.5, SAYS["decode restarts"],
       (WRITE_AT, f"{WRITE_AT}\n        positions = positions - positions[:, :1] if step else positions"))
edited(writes_plain, "writes_reading_padding", 1.5, SAYS["padding read"],
       (WRITE_MASK, "& torch.ones(len(keep), 1, 1, n_keys, dtype=torch.bool)"))
edited(writes_plain, "writes_seeing_the_newest", 1.5, SAYS["newest alone"],
       (WRITE_MASK, f"{WRITE_MASK}\n        mask = mask & (torch.arange(n_keys) >= n_keys - n)"))
edited(writes_plain, "writes_top_left", 1.5, SAYS["top left again"], (".tril(n_keys - n)", ".tril()"))
edited(writes_plain, "writes_without_a_cache", 1.5, SAYS["newest alone"],
       (WRITE_ASKED, "decode(tokens, positions, mask[..., n_keys - n:], None)"))
edited(writes_plain, "writes_reading_all_again", 2.5, SAYS["all again"],
       ("written = None, []", "written, text = None, [], tokens"),
       ("n, n_keys = tokens.shape[1], keep.shape[1]", "n, n_keys = text.shape[1], keep.shape[1]"),
       (WRITE_ASKED, "decode(text, positions, mask, None)"),
       ("written.append(tokens)", "written.append(tokens)\n        text = torch.cat((text, tokens), dim=1)"))
edited(writes_plain, "writes_the_least_likely", 0, SAYS["least likely"], ("argmax(-1)", "argmin(-1)"))
edited(writes_plain, "writes_from_the_first_column", 0, SAYS["first column"], ("logits[:, -1:]", "logits[:, :1]"))
edited(writes_plain, "writes_with_the_prompts", 0, SAYS["with prompts"],
       ("written = None, []", "written = None, [tokens]"))
edited(writes_plain, "writes_without_the_first", 0, SAYS["first lost"],
       ("range(n_new)", "range(n_new + 1)"), (WRITE_BACK, "return torch.cat(written[1:], dim=1)"))
edited(writes_plain, "writes_floats", 2.75, SAYS["written floats"], (WRITE_BACK, "return torch.cat(written, dim=1).float()"))


@wrong(WEEK, "generate", 2.5, SAYS["one by one"])
def writes_one_by_one(decode, prompts, n_new):
    rows = []
    for prompt in prompts:
        tokens, cache, row = torch.tensor([list(prompt)]), None, []
        for n_cached in [0] + [len(prompt) + step for step in range(n_new - 1)]:
            n = tokens.shape[1]
            mask = torch.ones(1, 1, n, n_cached + n, dtype=torch.bool).tril(n_cached)
            logits, cache = decode(tokens, torch.arange(n_cached, n_cached + n)[None], mask, cache)
            tokens = logits[:, -1:].argmax(-1)
            row.append(tokens)
        rows.append(torch.cat(row, dim=1))
    return torch.cat(rows)


@right(WEEK, "generate")
def writes_by_padding(decode, prompts, n_new):
    longest = max(map(len, prompts))
    padding = torch.tensor([longest - len(prompt) for prompt in prompts])[:, None]
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt):] = torch.tensor(prompt)
    cache, n_cached = None, 0
    written = torch.empty(len(prompts), n_new, dtype=torch.long)
    for step in range(n_new):
        query = torch.arange(n_cached, n_cached + tokens.shape[1])
        n_cached = n_cached + tokens.shape[1]
        key = torch.arange(n_cached)
        mask = (key <= query[:, None])[None, None] & (key >= padding)[:, None, None]
        logits, cache = decode(tokens, query - padding, mask, cache)
        written[:, step] = logits[:, -1].argmax(-1)
        tokens = written[:, step:step + 1].clone()
    return written


@right(WEEK, "generate")
def writes_reading_in_pieces(decode, prompts, n_new):
    longest = max(map(len, prompts))
    text = [[None] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    cache = None
    for column in range(longest + n_new - 1):
        keep = torch.tensor([[token is not None for token in row[:column + 1]] for row in text])
        tokens = torch.tensor([[row[column] or 0] for row in text])
        positions = (keep.sum(1, keepdim=True) - 1).clamp(min=0)
        logits, cache = decode(tokens, positions, keep[:, None, None], cache)
        if column >= longest - 1:
            for row, token in zip(text, logits[:, -1].argmax(-1).tolist()):
                row.append(token)
    return torch.tensor([row[longest:] for row in text])


@right(WEEK, "generate")
def writes_with_itself(decode, prompts, n_new):
    def go_on(tokens, keep, cache, left):
        if not left:
            return []
        n_keys = keep.shape[1]
        causal = torch.ones(n_keys, n_keys, dtype=torch.bool).tril()
        mask = (causal & keep[:, None, :])[:, None, n_keys - tokens.shape[1]:]
        before = (keep.long().cumsum(1) - keep.long())[:, n_keys - tokens.shape[1]:]
        logits, cache = decode(tokens, before, mask, cache)
        new = torch.max(logits[:, -1], dim=-1).indices[:, None]
        return [new] + go_on(new, F.pad(keep, (0, 1), value=True), cache, left - 1)

    lengths = torch.tensor([len(prompt) for prompt in prompts])
    n = int(lengths.max())
    tokens = torch.tensor([[0] * (n - len(prompt)) + list(prompt) for prompt in prompts])
    return torch.cat(go_on(tokens, torch.arange(n) >= n - lengths[:, None], None, n_new), dim=1)


# ---- 7.5 shift_cached_keys ------------------------------------------------------------------------------------------


@right(WEEK, "shift_cached_keys")
def shift_plain(k, offset, base=10000.0):
    hd = k.shape[-1]
    if hd % 2:
        raise ValueError("head_dim must be even")
    theta = base ** (-torch.arange(0, hd, 2, device=k.device) / hd)
    angle = offset * theta
    cos, sin = angle.cos(), angle.sin()
    a, b = k[..., 0::2], k[..., 1::2]
    out = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    return out.to(k.dtype)


edited(shift_plain, "shift_backwards", 0, SAYS["backwards"], ("angle = offset * theta", "angle = -offset * theta"))
edited(shift_plain, "shift_by_index", 0, SAYS["by index"],
       ("angle = offset * theta", "angle = torch.arange(k.shape[2], device=k.device)[:, None] * theta"))
edited(shift_plain, "shift_index_too", 0, SAYS["index too"],
       ("angle = offset * theta", "angle = (torch.arange(k.shape[2], device=k.device)[:, None] + offset) * theta"))
edited(shift_plain, "shift_half_layout", 0, SAYS["half layout"],
       ("a, b = k[..., 0::2], k[..., 1::2]", "a, b = k.chunk(2, dim=-1)"),
       ("torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)",
        "torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)"))
edited(shift_plain, "shift_i_over_d", 0, SAYS["i/d"], ("torch.arange(0, hd, 2, device=k.device)", "torch.arange(hd // 2, device=k.device)"))
edited(shift_plain, "shift_degrees", 0, SAYS["degrees"], ("angle = offset * theta", "angle = torch.deg2rad(offset * theta)"))
edited(shift_plain, "shift_one_frequency", 0, SAYS["one frequency"], ("angle = offset * theta", "angle = offset * torch.ones_like(theta)"))
edited(shift_plain, "shift_swapped", 0, SAYS["swapped"], ("cos, sin = angle.cos(), angle.sin()", "cos, sin = angle.sin(), angle.cos()"))
edited(shift_plain, "shift_apart", 0, SAYS["apart"], ("dim=-1).flatten(-2)", "dim=-2).flatten(-2)"))
edited(shift_plain, "shift_absolute", 1.5, SAYS["absolute"], ("angle = offset * theta", "angle = abs(offset) * theta"))
edited(shift_plain, "shift_own_base", 1.5, SAYS["base"], ("theta = base **", "theta = 10000.0 **"))
edited(shift_plain, "shift_low_angles", 1.75, SAYS["low angles"], ("angle = offset * theta", "angle = offset * theta.to(k.dtype)"))
edited(shift_plain, "shift_float32_out", 1.75, SAYS["float32 out"], ("return out.to(k.dtype)", "return out.float()"))
edited(shift_plain, "shift_detached", 1.875, SAYS["detached"], ("return out", "return out.detach()"))
edited(shift_plain, "shift_odd_accepted", 1.875, SAYS["odd"],
       ('    if hd % 2:\n        raise ValueError("head_dim must be even")\n', ""))


@right(WEEK, "shift_cached_keys")
def shift_complex(k, offset, base=10000.0):
    d = k.shape[-1]
    if d % 2 != 0:
        raise ValueError(d)
    turns = torch.tensor([offset * base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64, device=k.device)
    pairs = torch.view_as_complex(k.double().reshape(*k.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.exp(1j * turns)).reshape(k.shape).to(k.dtype)


@right(WEEK, "shift_cached_keys")
def shift_by_matrix(k, offset, base=10000.0):
    d = k.shape[-1]
    if d % 2:
        raise ValueError("odd head_dim")
    blocks = []
    for i in range(d // 2):
        angle = offset / base ** (2 * i / d)
        c, s = math.cos(angle), math.sin(angle)
        blocks.append(torch.tensor([[c, -s], [s, c]], device=k.device))
    rotation = torch.block_diag(*blocks)
    return (k.to(torch.promote_types(k.dtype, torch.float32)) @ rotation.T.to(torch.promote_types(k.dtype, torch.float32))).to(k.dtype)


@right(WEEK, "shift_cached_keys")
def shift_with_positions(k, offset, base=10000.0):
    batch, heads, n, d = k.shape
    if d % 2:
        raise ValueError("pairs")
    positions = torch.full((n,), float(offset), device=k.device)
    freqs = torch.exp(-math.log(base) * torch.arange(0, d, 2, device=k.device).float() / d)
    table = torch.outer(positions, freqs).repeat_interleave(2, dim=-1)
    wide = k if k.dtype in (torch.float32, torch.float64) else k.float()
    other = torch.stack((-wide[..., 1::2], wide[..., ::2]), dim=-1).reshape(k.shape)
    return (wide * table.cos() + other * table.sin()).type(k.dtype)


# ---- 7.6 CrossAttention ---------------------------------------------------------------------------------------------


@right(WEEK, "CrossAttention")
class CrossPlain(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("the sizes do not fit")
        self.n_heads, self.base = n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

    def rope(self, x, positions):
        hd = x.shape[-1]
        theta = self.base ** (-torch.arange(0, hd, 2, device=x.device) / hd)
        angle = positions[..., None] * theta
        if angle.ndim == 3:
            angle = angle.unsqueeze(1)
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).to(x.dtype)

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        if (positions is None) != (memory_positions is None):
            raise ValueError("positions for both sides, or for none")
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        if positions is not None:
            q = self.rope(q, positions)
            k = self.rope(k, memory_positions)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if memory_mask is not None:
            hidden = ~memory_mask[:, None, None, :]
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = scores.softmax(dim=-1)
        if memory_mask is not None:
            weights = weights.masked_fill(hidden, 0.0)
        out = (weights @ v).transpose(1, 2).reshape(x.shape)
        return self.o_proj(out)


FROM = "q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(memory)), self.split(self.v_proj(memory))"
CLEARED = "        if memory_mask is not None:\n            weights = weights.masked_fill(hidden, 0.0)\n"
ROTATED = "            q = self.rope(q, positions)\n            k = self.rope(k, memory_positions)\n"
ROW = "        if angle.ndim == 3:\n            angle = angle.unsqueeze(1)\n"
edited(CrossPlain, "cross_exchanged", 0, SAYS["exchanged"],
       (FROM, "q, k, v = self.split(self.q_proj(memory)), self.split(self.k_proj(x)), self.split(self.v_proj(x))"),
       (".reshape(x.shape)", ".reshape(memory.shape)"))
edited(CrossPlain, "cross_self", 0, SAYS["self"],
       (FROM, "q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))"))
edited(CrossPlain, "cross_values_from_x", 0, SAYS["values from x"], ("self.v_proj(memory)", "self.v_proj(x)"))
edited(CrossPlain, "cross_keys_from_x", 0, SAYS["keys from x"], ("self.k_proj(memory)", "self.k_proj(x)"))
edited(CrossPlain, "cross_keys_by_x_positions", 2.75, SAYS["x positions"], ("self.rope(k, memory_positions)", "self.rope(k, positions)"))
edited(CrossPlain, "cross_causal", 0, SAYS["causal"],
       ("        weights = scores.softmax(dim=-1)\n", '''        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
'''))
edited(CrossPlain, "cross_large_number", 3, SAYS["large number"], (CLEARED, ""), ('float("-inf")', "-1e9"))
edited(CrossPlain, "cross_values_rotated", 2.75, SAYS["values rotated"],
       (ROTATED, ROTATED + "            v = self.rope(v, memory_positions)\n"))
edited(CrossPlain, "cross_queries_by_memory_positions", 2.75, SAYS["memory positions"],
       ("self.rope(q, positions)", "self.rope(q, memory_positions)"))
edited(CrossPlain, "cross_positions_exchanged", 2.75, SAYS["positions exchanged"],
       ("self.rope(q, positions)", "self.rope(q, memory_positions[..., :q.shape[2]])"),
       ("self.rope(k, memory_positions)", "self.rope(k, F.pad(positions, (0, k.shape[2] - q.shape[2])))"))
edited(CrossPlain, "cross_positions_ignored", 2.75, SAYS["positions ignored"],
       ("self.rope(q, positions)", "self.rope(q, torch.arange(q.shape[2], device=x.device))"),
       ("self.rope(k, memory_positions)", "self.rope(k, torch.arange(k.shape[2], device=x.device))"))
edited(CrossPlain, "cross_always_rotated", 2, SAYS["always rotated"],
       ("        if positions is not None:\n", '''        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
            memory_positions = torch.arange(memory.shape[1], device=x.device)
        if positions is not None:
'''))
edited(CrossPlain, "cross_no_rotation", 2.75, SAYS["no rotation"], (ROTATED, "            pass\n"))
edited(CrossPlain, "cross_queries_only", 2.75, SAYS["queries only"], ("            k = self.rope(k, memory_positions)\n", ""))
edited(CrossPlain, "cross_half_layout", 2.75, SAYS["half layout"],
       ("a, b = x[..., 0::2], x[..., 1::2]", "a, b = x.chunk(2, dim=-1)"),
       ("torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)",
        "torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)"))
edited(CrossPlain, "cross_rows_for_heads", 2.75, SAYS["rows for heads"], (ROW, ""))
edited(CrossPlain, "cross_own_base", 2.75, SAYS["base"], ("theta = self.base", "theta = 10000.0"))
edited(CrossPlain, "cross_merge_wrong", 0, SAYS["merge"], ("(weights @ v).transpose(1, 2)", "(weights @ v)"))
edited(CrossPlain, "cross_no_o_proj", 0, SAYS["no o_proj"], ("return self.o_proj(out)", "return out"))
edited(CrossPlain, "cross_one_side_accepted", 3.75, SAYS["one side"],
       ('''        if (positions is None) != (memory_positions is None):
            raise ValueError("positions for both sides, or for none")
''', ""), ("        if positions is not None:\n", "        if positions is not None and memory_positions is not None:\n"))
edited(CrossPlain, "cross_any_size", 3.75, SAYS["sizes"],
       ('        if d_model % n_heads or d_model // n_heads % 2:\n            raise ValueError("the sizes do not fit")\n', ""))
edited(CrossPlain, "cross_with_biases", 3.75, SAYS["biases"], *[
    (f"self.{p}_proj = nn.Linear(d_model, d_model, bias=False)", f"self.{p}_proj = nn.Linear(d_model, d_model)") for p in "qkvo"])
edited(CrossPlain, "cross_detached", 3.875, SAYS["detached"], ("return self.o_proj(out)", "return self.o_proj(out.detach())"))


@right(WEEK, "CrossAttention")
class CrossFused(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        self.head_dim, rest = divmod(d_model, n_heads)
        if rest or self.head_dim % 2:
            raise ValueError(f"{d_model} and {n_heads}")
        self.heads = n_heads
        self.freqs = [base ** (-2 * i / self.head_dim) for i in range(self.head_dim // 2)]
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))

    def turned(self, t, at):
        angles = at.double().unsqueeze(-1) * torch.tensor(self.freqs, dtype=torch.float64, device=t.device)
        angles = angles if at.ndim == 1 else angles[:, None]
        z = torch.view_as_complex(t.double().unflatten(-1, (-1, 2)).contiguous()) * torch.exp(1j * angles)
        return torch.view_as_real(z).flatten(-2).to(t.dtype)

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        given = [positions is not None, memory_positions is not None]
        if any(given) and not all(given):
            raise ValueError("both or none")
        q, k, v = (p(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for p, t in ((self.q_proj, x), (self.k_proj, memory), (self.v_proj, memory)))
        if all(given):
            q, k = self.turned(q, positions), self.turned(k, memory_positions)
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = self.o_proj(out.transpose(1, 2).flatten(2))
        return out if memory_mask is None else torch.where(memory_mask.any(1)[:, None, None], out, torch.zeros_like(out))


@right(WEEK, "CrossAttention")
class CrossHeadByHead(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads != 0 or (d_model // n_heads) % 2 != 0:
            raise ValueError("d_model, n_heads")
        self.h, self.d, self.base = n_heads, d_model // n_heads, base
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        if positions is None and memory_positions is not None or positions is not None and memory_positions is None:
            raise ValueError("one side only")
        q, k, v = self.q_proj(x), self.k_proj(memory), self.v_proj(memory)
        outs = []
        for h in range(self.h):
            part = slice(h * self.d, (h + 1) * self.d)
            qh, kh = q[..., part], k[..., part]
            if positions is not None:
                qh, kh = self.rotate(qh, positions), self.rotate(kh, memory_positions)
            s = torch.einsum("bnd,bmd->bnm", qh, kh) / self.d**0.5
            if memory_mask is not None:
                s = torch.where(memory_mask[:, None, :], s, torch.tensor(-math.inf, dtype=s.dtype, device=s.device))
            outs.append(torch.softmax(s, 2).nan_to_num(0.0) @ v[..., part])
        return self.o_proj(torch.cat(outs, 2))

    def rotate(self, t, at):
        at = at if at.ndim == 2 else at.expand(t.shape[0], -1)
        angle = at.unsqueeze(-1) / self.base ** (torch.arange(0, self.d, 2, device=t.device) / self.d)
        c, s = torch.cos(angle), torch.sin(angle)
        out = torch.empty(t.shape, dtype=torch.promote_types(t.dtype, c.dtype), device=t.device)
        out[..., 0::2] = t[..., 0::2] * c - t[..., 1::2] * s
        out[..., 1::2] = t[..., 1::2] * c + t[..., 0::2] * s
        return out.to(t.dtype)


@right(WEEK, "CrossAttention")
class CrossWithZeroPositions(nn.Module):
    """Turns by zero where no positions are given."""

    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        hd = d_model // n_heads
        if hd * n_heads != d_model or hd % 2:
            raise ValueError("no pairs")
        self.n_heads = n_heads
        self.register_buffer("theta", base ** (-torch.arange(0, hd, 2) / hd), persistent=False)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = [nn.Linear(d_model, d_model, bias=False) for _ in "qkvo"]

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        if (positions is None) ^ (memory_positions is None):
            raise ValueError("positions and memory_positions belong together")
        if positions is None:
            positions, memory_positions = torch.zeros(x.shape[1], device=x.device), torch.zeros(memory.shape[1], device=x.device)

        def heads(t, at=None):
            t = t.reshape(t.shape[0], t.shape[1], self.n_heads, -1).permute(0, 2, 1, 3)
            if at is None:
                return t
            angle = (at.unsqueeze(-2) if at.ndim == 1 else at.unsqueeze(1)).unsqueeze(-1) * self.theta.float()
            pair = t.unflatten(-1, (-1, 2))
            a, b = pair.unbind(-1)
            return torch.stack((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).flatten(-2).to(t.dtype)

        q, k, v = heads(self.q_proj(x), positions), heads(self.k_proj(memory), memory_positions), heads(self.v_proj(memory))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if memory_mask is not None:
            real = memory_mask[:, None, None]
            raised = (scores - scores.amax(-1, keepdim=True)).exp() * real
            weights = raised / raised.sum(-1, keepdim=True).clamp(min=1e-30)
        else:
            weights = scores.softmax(-1)
        return self.o_proj((weights @ v).permute(0, 2, 1, 3).flatten(2))


# ---- 7.7 HybridDecoderBlock -----------------------------------------------------------------------------------------


@right(WEEK, "HybridDecoderBlock")
class BlockPlain(nn.Module):
    class Attention(nn.Module):
        def __init__(self, d_model, n_heads, slopes):
            super().__init__()
            if d_model % n_heads:
                raise ValueError("n_heads must divide d_model")
            self.n_heads, self.slopes = n_heads, slopes
            self.q_proj = nn.Linear(d_model, d_model, bias=False)
            self.k_proj = nn.Linear(d_model, d_model, bias=False)
            self.v_proj = nn.Linear(d_model, d_model, bias=False)
            self.o_proj = nn.Linear(d_model, d_model, bias=False)

        def forward(self, x, memory, keep=None, is_causal=False):
            q, k, v = (p(t).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                       for p, t in ((self.q_proj, x), (self.k_proj, memory), (self.v_proj, memory)))
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            at = torch.arange(k.shape[2], device=x.device)
            if self.slopes:
                slopes = 2.0 ** (-8 * torch.arange(1, self.n_heads + 1, device=x.device) / self.n_heads)
                scores = scores - slopes[:, None, None] * (at[:, None] - at).abs()
            if is_causal:
                scores = scores.masked_fill(at > at[:, None], float("-inf"))
            if keep is not None:
                scores = scores.masked_fill(~keep[:, None, None, :], float("-inf"))
            return self.o_proj((scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2))

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn = self.Attention(d_model, n_heads, True)
        self.cross_attn = self.Attention(d_model, n_heads, False)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, memory, memory_mask=None):
        y = self.norm1(x)
        x = x + self.self_attn(y, y, is_causal=True)
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        x = x + self.ffn(self.norm3(x))
        return x


NORM = "        y = self.norm1(x)\n"
SELF = "x = x + self.self_attn(y, y, is_causal=True)"
CROSS = "x = x + self.cross_attn(self.norm2(x), memory, memory_mask)"
FFN = "x = x + self.ffn(self.norm3(x))"
edited(BlockPlain, "block_post_norm", 0, SAYS["post-norm"], (NORM, ""),
       (SELF, "x = self.norm1(x + self.self_attn(x, x, is_causal=True))"),
       (CROSS, "x = self.norm2(x + self.cross_attn(x, memory, memory_mask))"), (FFN, "x = self.norm3(x + self.ffn(x))"))
edited(BlockPlain, "block_no_residual", 0, SAYS["residual"],
       (SELF, SELF.replace("x + ", "")), (CROSS, CROSS.replace("x + ", "")), (FFN, FFN.replace("x + ", "")))
edited(BlockPlain, "block_self_residual", 0, SAYS["self residual"], (SELF, SELF.replace("x + ", "")))
edited(BlockPlain, "block_cross_residual", 0, SAYS["cross residual"], (CROSS, CROSS.replace("x + ", "")))
edited(BlockPlain, "block_ffn_residual", 0, SAYS["ffn residual"], (FFN, FFN.replace("x + ", "")))
edited(BlockPlain, "block_cross_first", 0, SAYS["cross first"],
       (NORM + f"        {SELF}\n        {CROSS}\n", f"        {CROSS}\n{NORM}        {SELF}\n"))
edited(BlockPlain, "block_memory_normed", 0, SAYS["memory normed"],
       ("self.norm2(x), memory, memory_mask", "self.norm2(x), self.norm2(memory), memory_mask"))
edited(BlockPlain, "block_not_causal", 3, SAYS["block not causal"], ("y, y, is_causal=True", "y, y"))
edited(BlockPlain, "block_relu", 0, SAYS["relu"], ("nn.GELU()", "nn.ReLU()"))
edited(BlockPlain, "block_tanh", 3.75, SAYS["tanh"], ("nn.GELU()", 'nn.GELU(approximate="tanh")'))
edited(BlockPlain, "block_one_norm", 0, SAYS["one norm"],
       ("self.norm2(x), memory", "self.norm1(x), memory"), ("self.ffn(self.norm3(x))", "self.ffn(self.norm1(x))"))
edited(BlockPlain, "block_no_cross", 0, SAYS["no cross"], (f"        {CROSS}\n", ""))
edited(BlockPlain, "block_unnormed", 0, SAYS["unnormed"], ("y = self.norm1(x)", "y = x"),
       ("self.norm2(x), memory", "x, memory"), ("self.ffn(self.norm3(x))", "self.ffn(x)"))
edited(BlockPlain, "block_no_bias", 0, SAYS["no bias"], ("if self.slopes:", "if False:"))
edited(BlockPlain, "block_parallel", 0, SAYS["parallel"],
       (f"        {CROSS}\n        {FFN}\n", '''        x = x + self.cross_attn(self.norm2(given), memory, memory_mask) + self.ffn(self.norm3(given))
'''), (NORM, f"        given = x\n{NORM}"))
edited(BlockPlain, "block_other_names", 0, SAYS["part names"],
       ("self.cross_attn = ", "self.encoder_attn = "), ("self.cross_attn(", "self.encoder_attn("))
edited(BlockPlain, "block_detached", 3.75, SAYS["detached"], (f"{FFN}\n        return x", f"{FFN}\n        return x.detach()"))
edited(BlockPlain, "block_any_size", 3.75, SAYS["sizes"],
       ('            if d_model % n_heads:\n                raise ValueError("n_heads must divide d_model")\n', ""))


@right(WEEK, "HybridDecoderBlock")
class BlockFused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("heads")
        self.n_heads = n_heads

        def projections():
            return nn.ModuleDict({f"{name}_proj": nn.Linear(d_model, d_model, bias=False) for name in "qkvo"})

        self.self_attn, self.cross_attn = projections(), projections()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def attend(self, parts, x, memory, added):
        q, k, v = (parts[f"{name}_proj"](t).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                   for name, t in (("q", x), ("k", memory), ("v", memory)))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
        return parts["o_proj"](out.transpose(1, 2).flatten(2))

    def forward(self, x, memory, memory_mask=None):
        at = torch.arange(x.shape[1], device=x.device)
        slopes = torch.tensor([2 ** (-8 * (h + 1) / self.n_heads) for h in range(self.n_heads)], device=x.device)
        bias = slopes.view(-1, 1, 1) * (at - at[:, None])
        bias = bias.masked_fill(at > at[:, None], -math.inf).to(x.dtype)
        normed = self.norm1(x)
        x = x + self.attend(self.self_attn, normed, normed, bias)
        x = x + self.attend(self.cross_attn, self.norm2(x), memory, None if memory_mask is None else memory_mask[:, None, None])
        return x + self.ffn(self.norm3(x))


@right(WEEK, "HybridDecoderBlock")
class BlockOfTorch(nn.Module):
    class Heads(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            if d % h:
                raise ValueError("d_model must be a multiple of n_heads")
            self.h, self.d = h, d
            for letter in "qkvo":
                self.add_module(letter + "_proj", nn.Linear(d, d, bias=False))

        def forward(self, x, y, added=None, padding=None):
            weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
            out, _ = F.multi_head_attention_forward(
                x.transpose(0, 1), y.transpose(0, 1), y.transpose(0, 1), self.d, self.h, weight, None, None, None, False, 0.0,
                self.o_proj.weight, None, attn_mask=added, key_padding_mask=padding, need_weights=False)
            return out.transpose(0, 1)

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.self_attn, self.cross_attn = self.Heads(d_model, n_heads), self.Heads(d_model, n_heads)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, memory, memory_mask=None):
        n = x.shape[1]
        far = torch.arange(n).view(-1, 1) - torch.arange(n).view(1, -1)
        slope = 2.0 ** (torch.arange(1, self.h + 1) * -8 / self.h)
        bias = (-slope.view(-1, 1, 1) * far).masked_fill(far < 0, -math.inf).repeat(len(x), 1, 1).to(x)
        normed = self.norm1(x)
        x = self.self_attn(normed, normed, bias) + x
        x = self.cross_attn(self.norm2(x), memory, padding=None if memory_mask is None else ~memory_mask) + x
        return self.ffn(self.norm3(x)) + x


@right(WEEK, "HybridDecoderBlock", 3.75)
class BlockToken(nn.Module):
    """Self-attention written for one query after the other."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model // n_heads * n_heads != d_model:
            raise ValueError(f"{n_heads} does not divide {d_model}")
        self.n_heads, self.hd = n_heads, d_model // n_heads
        self.self_attn, self.cross_attn = nn.Module(), nn.Module()
        for part in (self.self_attn, self.cross_attn):
            for letter in "qkvo":
                setattr(part, f"{letter}_proj", nn.Linear(d_model, d_model, bias=False))
        for number in (1, 2, 3):
            setattr(self, f"norm{number}", nn.LayerNorm(d_model))
        self.ffn = nn.Sequential(nn.Linear(d_model, d_model * 4), nn.GELU(), nn.Linear(d_model * 4, d_model))

    def looked(self, part, x, memory, added):
        def heads(t):
            return t.view(t.shape[0], t.shape[1], self.n_heads, self.hd).transpose(1, 2)

        q, k, v = heads(part.q_proj(x)), heads(part.k_proj(memory)), heads(part.v_proj(memory))
        w = (q @ k.transpose(2, 3) * self.hd**-0.5 + added).softmax(3)
        return part.o_proj((w @ v).transpose(1, 2).reshape(x.shape))

    def forward(self, x, memory, memory_mask=None):
        normed = self.norm1(x)
        slopes = torch.logspace(-8 / self.n_heads, -8, self.n_heads, base=2.0).view(1, -1, 1, 1)
        rows = []
        for i in range(x.shape[1]):
            ago = torch.arange(i, -1, -1)
            rows.append(self.looked(self.self_attn, normed[:, i:i + 1], normed[:, :i + 1], -slopes * ago))
        x = x + torch.cat(rows, 1)
        hidden = torch.zeros(())
        if memory_mask is not None:
            hidden = torch.zeros(memory_mask.shape).masked_fill(~memory_mask, -1e30)[:, None, None]
        x = x + self.looked(self.cross_attn, self.norm2(x), memory, hidden)
        return x + self.ffn(self.norm3(x))


# ---- families: every mistake and every pair of them -----------------------------------------------------------------


def _say(*names):
    return {name: SAYS[name] for name in names}


def _attend(q, k, v, mask, mistakes):
    """Attention in which the heads are already the same; a row without a key is zero."""
    size = 1 if "unscaled" in mistakes else q.shape[-1] * (q.shape[1] if "d_model scale" in mistakes else 1)
    scores = q @ k.mT / math.sqrt(size * q.shape[-1] if "scaled twice" in mistakes else size)
    if mask is None or "mask ignored" in mistakes:
        weights = scores.softmax(-2 if "over queries" in mistakes else -1)
        return weights @ v, weights
    mask = ~mask if "mask inverted" in mistakes else mask
    mask = mask[..., :1, :, :] if "mask one head" in mistakes and mask.ndim > 2 else mask
    hidden = scores if "mask late" in mistakes else scores.masked_fill(~mask, -math.inf)
    weights = hidden.softmax(-2 if "over queries" in mistakes else -1)
    if "nan rows" not in mistakes and "nan" not in mistakes:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights


def _grouped(t, n_heads, mistakes, letter):
    group = n_heads // t.shape[1]
    if "groups reversed" in mistakes:
        t = t.flip(1)
    if "first head" in mistakes:
        return t[:, :1].expand(-1, n_heads, -1, -1)
    by_repeat = "repeat" in mistakes or f"{letter} repeat" in mistakes
    return t.repeat(1, group, 1, 1) if by_repeat else t.repeat_interleave(group, dim=1)


@family(WEEK, "grouped_query_attention", _say(
    "repeat", "keys repeat", "values repeat", "first head", "groups reversed", "unscaled", "scaled twice", "d_model scale", "over queries",
    "mask ignored", "mask inverted", "mask late", "mask one head", "nan rows"))
def grouped_with(mistakes):
    def subject(q, k, v, mask=None):
        if q.shape[1] % k.shape[1]:
            raise ValueError("n_kv_heads must divide n_heads")
        return _attend(q, _grouped(k, q.shape[1], mistakes, "keys"), _grouped(v, q.shape[1], mistakes, "values"), mask, mistakes)

    return subject


def _turn(x, positions, base, mistakes):
    head_dim = x.shape[-1]
    if "i/d" in mistakes:
        theta = base ** (-torch.arange(head_dim // 2, device=x.device) / head_dim)
    else:
        theta = base ** (-torch.arange(0, head_dim, 2, device=x.device) / head_dim)
    angle = positions[..., None] * (torch.ones_like(theta) if "one frequency" in mistakes else theta)
    if angle.ndim == 3 and "rows for heads" not in mistakes:
        angle = angle[:, None]
    angle = torch.deg2rad(angle) if "degrees" in mistakes else angle
    angle = -angle if "clockwise" in mistakes or "backwards" in mistakes else angle
    cos, sin = (angle.sin(), angle.cos()) if "swapped" in mistakes else (angle.cos(), angle.sin())
    a, b = x.chunk(2, dim=-1) if "half layout" in mistakes else (x[..., 0::2], x[..., 1::2])
    parts = a * cos - b * sin, a * sin + b * cos
    if "half layout" in mistakes or "apart" in mistakes:
        return torch.cat(parts, dim=-1).to(x.dtype)
    return torch.stack(parts, dim=-1).flatten(-2).to(x.dtype)


class _Projections(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:
            raise ValueError("the sizes do not fit")
        self.n_heads, self.hd, self.base = n_heads, d_model // n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def split(self, x, without_transpose=False):
        if without_transpose:
            return x.reshape(x.shape[0], -1, x.shape[1], self.hd)
        return x.unflatten(-1, (-1, self.hd)).transpose(1, 2)

    def merged(self, out, mistakes):
        flat = out.reshape(out.shape[0], out.shape[2], -1) if "merge" in mistakes else out.transpose(1, 2).flatten(2)
        return flat if "no o_proj" in mistakes else self.o_proj(flat)


@family(WEEK, "CachedAttention", _say(
    "restart", "keys restart", "queries restart", "rotated again", "one too far", "top left", "later unmasked", "only new",
    "cache not grown", "no causal", "repeat", "first head", "values rotated", "no rotation", "queries only", "keys only",
    "half layout", "i/d", "clockwise", "unscaled", "scaled twice", "d_model scale", "base", "split", "merge", "no o_proj"))
def cached_with(mistakes):
    class Layer(_Projections):
        def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
            super().__init__(d_model, n_heads, n_kv_heads, 10000.0 if "base" in mistakes else base)

        def turned(self, t, start):
            if "no rotation" in mistakes:
                return t
            return _turn(t, torch.arange(start, start + t.shape[2], device=t.device), self.base, mistakes)

        def forward(self, x, cache=None):
            n, past = x.shape[1], 0 if cache is None else cache[0].shape[2]
            start = past + 1 if past and "one too far" in mistakes else past
            q, k, v = (self.split(p(x), "split" in mistakes) for p in (self.q_proj, self.k_proj, self.v_proj))
            if "keys only" not in mistakes:
                q = self.turned(q, 0 if {"restart", "queries restart"} & mistakes else start)
            if "rotated again" not in mistakes and "queries only" not in mistakes:
                k = self.turned(k, 0 if {"restart", "keys restart"} & mistakes else start)
            if "values rotated" in mistakes:
                v = self.turned(v, 0 if "restart" in mistakes else start)
            if cache is not None and "cache not grown" not in mistakes:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            if "rotated again" in mistakes:
                k = self.turned(k, 0)
            cache = k, v
            if "only new" in mistakes:
                k, v = k[:, :, -n:], v[:, :, -n:]
            n_keys = k.shape[2]
            visible = torch.ones(n, n_keys, dtype=torch.bool, device=x.device).tril(0 if "top left" in mistakes else n_keys - n)
            if "no causal" in mistakes or ("later unmasked" in mistakes and past):
                visible = torch.ones_like(visible)
            k, v = (_grouped(t, self.n_heads, mistakes, "keys") for t in (k, v))
            return self.merged(_attend(q, k, v, visible, mistakes)[0], mistakes), cache

    return Layer


@family(WEEK, "padded_causal", _say(
    "index", "from one", "first row", "slice", "first queries", "padding counted", "padding seen", "not causal", "strict",
    "mask top left", "mask hides"))
def padded_with(mistakes):
    def subject(keep, n_queries):
        batch, n_keys = keep.shape
        counted = keep[:, n_keys - n_queries:] if "slice" in mistakes else keep
        before = (~counted if "padding counted" in mistakes else counted).cumsum(1) - counted.long()
        if "index" in mistakes:
            before = torch.arange(counted.shape[1], device=keep.device).expand(batch, -1)
        before = before[:1].expand(batch, -1) if "first row" in mistakes else before
        before = before[:, :n_queries] if "first queries" in mistakes else before[:, before.shape[1] - n_queries:]
        shift = (0 if "mask top left" in mistakes else n_keys - n_queries) - ("strict" in mistakes)
        mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=keep.device).tril(shift)
        mask = torch.ones_like(mask) if "not causal" in mistakes else mask
        mask = mask.expand(batch, 1, -1, -1) if "padding seen" in mistakes else mask & keep[:, None, None]
        return before + ("from one" in mistakes), ~mask if "mask hides" in mistakes else mask

    return subject


@family(WEEK, "shift_cached_keys", _say(
    "backwards", "by index", "index too", "half layout", "i/d", "degrees", "one frequency", "swapped", "apart", "absolute", "base"))
def shift_with(mistakes):
    def subject(k, offset, base=10000.0):
        if k.shape[-1] % 2:
            raise ValueError("head_dim must be even")
        offset = abs(offset) if "absolute" in mistakes else offset
        index = torch.arange(k.shape[-2], device=k.device)
        positions = index if "by index" in mistakes else index + offset if "index too" in mistakes else torch.full_like(index, offset)
        return _turn(k, positions, 10000.0 if "base" in mistakes else base, mistakes)

    return subject


@family(WEEK, "CrossAttention", _say(
    "exchanged", "keys from x", "values from x", "self", "causal", "mask ignored", "mask inverted", "mask late", "nan",
    "values rotated", "positions exchanged", "x positions", "memory positions", "positions ignored", "always rotated", "no rotation",
    "queries only", "half layout", "i/d", "clockwise", "rows for heads", "unscaled", "scaled twice", "d_model scale", "over queries", "base", "merge", "no o_proj"))
def cross_with(mistakes):
    class Layer(_Projections):
        def __init__(self, d_model, n_heads, base=10000.0):
            super().__init__(d_model, n_heads, n_heads, 10000.0 if "base" in mistakes else base)

        def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
            if (positions is None) != (memory_positions is None):
                raise ValueError("positions for both sides, or for none")
            sources = (memory, x, x) if "exchanged" in mistakes else (x, x, x) if "self" in mistakes else (
                x, x if "keys from x" in mistakes else memory, x if "values from x" in mistakes else memory)
            q, k, v = (self.split(p(t)) for p, t in zip((self.q_proj, self.k_proj, self.v_proj), sources))
            if "positions ignored" in mistakes and positions is not None or "always rotated" in mistakes and positions is None:
                positions, memory_positions = (torch.arange(t.shape[2], device=x.device) for t in (q, k))
            if positions is not None and "no rotation" not in mistakes:
                if "positions exchanged" in mistakes:
                    positions, memory_positions = memory_positions[..., :q.shape[2]], F.pad(positions, (0, k.shape[2] - q.shape[2]))
                q = _turn(q, memory_positions if "memory positions" in mistakes else positions, self.base, mistakes)
                of_keys = positions if "x positions" in mistakes else memory_positions
                k = k if "queries only" in mistakes else _turn(k, of_keys, self.base, mistakes)
                v = _turn(v, memory_positions, self.base, mistakes) if "values rotated" in mistakes else v
            mask = None if memory_mask is None else memory_mask[:, None, None]
            if "causal" in mistakes:
                seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=x.device).tril()
                mask = seen if mask is None else seen & mask
            return self.merged(_attend(q, k, v, mask, mistakes)[0], mistakes)

    return Layer


@family(WEEK, "HybridDecoderBlock", _say(
    "post-norm", "residual", "self residual", "cross residual", "ffn residual", "cross first", "memory normed",
    "block not causal", "mask not passed", "relu", "tanh", "one norm", "no cross", "unnormed", "no bias", "parallel"))
def block_with(mistakes):
    class Block(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.self_attn = BlockPlain.Attention(d_model, n_heads, "no bias" not in mistakes)
            self.cross_attn = BlockPlain.Attention(d_model, n_heads, False)
            self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
            inner = nn.ReLU() if "relu" in mistakes else nn.GELU("tanh" if "tanh" in mistakes else "none")
            self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), inner, nn.Linear(4 * d_model, d_model))

        def forward(self, x, memory, memory_mask=None):
            keep = None if "mask not passed" in mistakes else memory_mask
            seen = self.norm2(memory) if "memory normed" in mistakes else memory
            parts = [
                ("self residual", self.norm1, lambda y: self.self_attn(y, y, is_causal="block not causal" not in mistakes)),
                ("cross residual", self.norm1 if "one norm" in mistakes else self.norm2,
                 lambda y: self.cross_attn(y, seen, keep)),
                ("ffn residual", self.norm1 if "one norm" in mistakes else self.norm3, self.ffn)]
            if "cross first" in mistakes:
                parts[0], parts[1] = parts[1], parts[0]
            given = None
            for name, norm, part in parts:
                if name == "cross residual" and "no cross" in mistakes:
                    continue
                source = x if given is None else given
                if "parallel" in mistakes and name == "self residual":
                    given = x
                out = part(source if "unnormed" in mistakes or "post-norm" in mistakes else norm(source))
                out = out if name in mistakes or "residual" in mistakes else x + out
                x = norm(out) if "post-norm" in mistakes else out
            return x

    return Block


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    SAYS[name]
    for name in (
        "repeat", "first head", "unscaled", "scaled twice", "d_model scale", "over queries", "mask inverted", "mask late", "base",
        "values rotated", "queries only", "half layout", "i/d", "merge", "clockwise",
    )
)
