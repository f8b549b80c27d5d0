"""Week 6, relative biases: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.

Exercises 6.3, 6.5 and 6.7 are graded on top of the student's own earlier answers as well. So that an entry is due its
score whatever stands there (as in the simulated classroom), their banks make mistakes of their own only: wrong offsets,
wrong shifts and wrong buckets are in the families.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn  # noqa: F401  (a name that answers may use)

from autograder.misconceptions.bank import edited, family, numbers, right, wrong

WEEK = "week6_relative_bias"

SAYS = {
    # offsets
    "query minus key": "Your offsets have the wrong sign: the week's convention is key position minus query position.",
    "top left": "Your queries are aligned at the top left, as if they were the first positions; they are the last ones "
    "(position n_keys - n_queries + r).",
    "absolute": "Your offsets have lost their sign: before and after must differ.",
    "turned": "Rows and columns are exchanged: rows are queries, columns are keys.",
    "one off": "Your offsets are one off: a query and a key at the same position have offset 0.",
    "causal offsets": "You cut off the offsets above 0; keys after the query count as well.",
    "square": "Your result is always square; it has n_queries rows and n_keys columns.",
    "float offsets": "Your offsets are floating-point numbers; they index tables and must be int64.",
    "int32": "Your offsets are int32; the exercise asks for int64.",
    "no error": "More queries than keys, or no query at all, must raise ValueError.",
    "clamped offsets": "You clip the offsets; clipping belongs to the methods that use them.",
    "position only": "You return the key positions; subtract the query's.",
    "list": "You return a list; the exercise asks for a tensor.",
    "backwards rows": "Your rows are upside down: row r is at position n_keys - n_queries + r.",
    # Shaw
    "no clip": "Some offsets are not clipped: beyond clip a negative index wraps round to the other end of the table without an "
    "error, and a large one raises.",
    "low end off by one": "The low end of your clip is one off: offsets of -clip and below take row 0.",
    "high end off by one": "The high end of your clip is one off: offsets of clip and above take the last row, 2*clip.",
    "no value term": "The value term is missing: out adds up weight * (v + rel_v[row]), not weight * v alone.",
    "value from keys": "The value term uses the table of the keys; it has a table of its own.",
    "no key term": "The key term is missing: the score is q.(k + rel_k[row]).",
    "unscaled key term": "The key term is not divided by sqrt(head_dim); the whole score is.",
    "unscaled": "The scores are not divided by sqrt(head_dim).",
    "value unweighted": "You add the rows of rel_v without the weights; each counts with the weight of its key.",
    "bias after softmax": "The key term is added after the softmax; it belongs to the scores before it.",
    "from the key": "Your key term multiplies the table with k; the query meets it, q.rel_k.",
    "unscaled content": "Only the key term is divided by sqrt(head_dim); the whole score is.",
    "scaled twice": "The key term is divided by sqrt(head_dim) twice.",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys.",
    "mask after softmax": "The mask comes after the softmax, so the visible weights no longer add up to 1.",
    "mask inverted": "Your mask is inverted: True means that a query may attend to a key.",
    "mask ignored": "Where your output is wrong, the mask changes nothing.",
    "nan row": "A query that may attend to no key gives NaN; its weights and its output are zero.",
    "one order": "You return (weights, out); the order is (out, weights).",
    "out alone": "You return one thing; the exercise asks for two: (out, weights).",
    # rel_shift
    "identity": "Nothing is moved: row i must move to the left by n_queries - 1 - i.",
    "roll": "Your rows move by the wrong amount: row i moves to the left by n_queries - 1 - i, the last row not at all.",
    "right padding": "You pad on the right; the trick pads one column on the left.",
    "first rows kept": "After the padding you drop the wrong row: the first one goes.",
    "memory ignored": "The shift ignores the memory: it counts keys where queries count, so it is right for square x only.",
    "heads mixed": "Heads or sequences are mixed: shift each one by itself.",
    "to the right": "Your rows move to the right; they move to the left.",
    "ascending": "Your columns are read as ascending distances; column c of x belongs to distance n_keys - 1 - c.",
    "one too far": "Your rows move one column too far.",
    "one too little": "Your rows move one column too little.",
    "axes flipped": "You turn the axis of the queries as well; row i of the result comes from row i of x.",
    "contiguous": "Your `view` needs contiguous memory: use `reshape`, or call `.contiguous()` first.",
    "view of memory": "You read the memory of x as if it were contiguous; an x that is not gives other numbers.",
    "float32 shift": "Your result is float32 whatever x is; keep its dtype.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "in place": "Your function changes its argument in place; work on a new tensor.",
    "queries for keys": "You reshape to (n_queries + 1, n_keys); with a memory, n_keys above n_queries, it is (n_keys + 1, n_queries).",
    # Transformer-XL
    "biases swapped": "The two biases are exchanged: content_bias meets the keys, position_bias meets r.",
    "no content bias": "content_bias is missing: the content term is (q + content_bias).k.",
    "no position bias": "position_bias is missing: the position term is (q + position_bias).r.",
    "one bias": "The same bias is in both terms; each has its own.",
    "both biases": "Both biases are added to the query in both terms; each belongs to one.",
    "bias of one head": "All heads get the bias of the first one; each has its own.",
    "bias by sequence": "The bias is spread over the wrong axis: it is (heads, head_dim), one row per head.",
    "r descending": "You read r as descending; r[:, t] belongs to distance t, so r[:, 0] to the query's own position.",
    "offset for distance": "You read r at key minus query; its rows are distances, query minus key. (A negative index wraps round "
    "without an error.)",
    "distance one low": "Your distances are one too small: the query's own key is at distance 0 and belongs to r[:, 0].",
    "only position scaled": "Only the position term is divided by sqrt(head_dim); the whole score is.",
    "unscaled position": "The position term is not divided by sqrt(head_dim); the whole score is.",
    "no position term": "The position term is missing.",
    "r of one head": "All heads read r of the first head; each has its own.",
    "top left distance": "Your distances start at the top left, as if the queries were the first positions; they are the last ones.",
    "key side": "Your position term multiplies r with the key; the query meets it, (q + position_bias).r.",
    "d_model scale": "The scores are divided by sqrt(heads*head_dim); the scale belongs to head_dim.",
    # buckets
    "sign": "The sides are exchanged: with offset = key - query, keys after the query (offset above 0) add B.",
    "no sides": "Both sides share their buckets: half of them belong to offsets above 0.",
    "zero is ahead": "Offset 0 falls on the side of the keys ahead; it belongs to the other one (`> 0`, not `>= 0`).",
    "ceil": "You round up; the formula has floor.",
    "round": "You round to the nearest whole number; the formula has floor.",
    "absolute when causal": "With bidirectional=False offsets above 0 must count as 0; you take their absolute value.",
    "no cap": "There is no cap: beyond max_distance the bucket stays at B - 1.",
    "sizes ignored": "num_buckets or max_distance is ignored: your formula has 32 or 128 written into it.",
    "half when causal": "With bidirectional=False you still halve the buckets; there all of them belong to one side.",
    "whole when both": "With two sides each has only half of the buckets: B = num_buckets/2.",
    "linear": "Your far buckets are all equally wide; beyond e they grow with the logarithm.",
    "log base": "The ratio is wrong: divide ln(m/e) by ln(max_distance/e), with the same logarithm.",
    "log of m": "You take ln(m)/ln(max_distance); both are divided by e first.",
    "exact half": "The exact buckets are not half of a side: e = B//2.",
    "exact end": "Where the exact buckets end you are one off: m < e is exact, m = e is not.",
    "float buckets": "Your buckets are floating-point numbers; they index a table and must be int64.",
    "cap one low": "The last bucket of a side is B - 1; yours is lower.",
    "cap across": "Your cap is num_buckets - 1 with two sides too, so far keys behind run into the buckets of the other side.",
    "no scalars": "A single offset, a 0-d tensor, must be taken too, and any other shape.",
    # T5 attention
    "divided": "Your scores are divided by sqrt(head_dim); T5 does not scale them.",
    "sides turned round": "bidirectional must be the opposite of is_causal: a layer that sees both sides has buckets for both.",
    "both sided when causal": "With is_causal=True you still take the buckets of two sides; a causal layer gives all to one.",
    "table turned": "The table is (num_buckets, n_heads); you read it transposed.",
    "bias reshaped": "table[bucket] is (n_queries, n_keys, n_heads): move the axis of heads to the front with permute(2, 0, 1); "
    "reshape leaves the numbers in their order, and mixes heads and positions.",
    "value of the query": "Your weights meet the value at the query's own position, as in 'bhij,bhid->bhid'; the sum runs over the "
    "keys, 'bhij,bhjd->bhid'.",
    "after softmax": "The bias is added after the softmax; it belongs to the scores before it.",
    "no bias": "The bias is missing: your output is plain attention.",
    "bias negative": "The bias is subtracted; add it.",
    "no mask": "is_causal=True must hide the keys after the query.",
    "always causal": "is_causal=False is ignored: later keys are never seen.",
    "mask top left": "Your causal mask is aligned at the top left; the queries are the last of the keys' positions.",
    "32 written in": "Your code has 32 buckets written into it; num_buckets is the number of rows of the table.",
    "128 written in": "max_distance is ignored.",
    "strict": "Your causal mask hides the token itself; a query sees its own key.",
    "clobbered": "Hidden scores are 0 instead of -inf when they reach the softmax.",
    "one head": "All heads get the bias of the first one; each has its own column.",
    # DeBERTa
    "other row": "In the last term you take the row of (j, i), as the paper prints it; the published code and this exercise take "
    "the row of (i, j) in both terms.",
    "rows turned": "Your rows are those of j - i; this week's row is clamp(i - j + span, 0, 2*span - 1).",
    "sqrt d": "The scale is sqrt(3*head_dim), since three terms are added; yours is sqrt(head_dim).",
    "sqrt 2d": "The scale is sqrt(3*head_dim), since three terms are added; yours is sqrt(2*head_dim).",
    "tables swapped": "The tables are exchanged: queries meet pos_k, keys meet pos_q.",
    "no c2p": "The content-to-position term q_i.pos_k is missing.",
    "no p2c": "The position-to-content term pos_q.k_j is missing.",
    "no content": "The content term q_i.k_j is missing.",
    "p2p": "A fourth term, position to position, is added; DeBERTa leaves it out.",
    "clamp low": "The low end of your clamp is one off: offsets of -span and below take row 0.",
    "clamp high": "The high end of your clamp is one off: the last row is 2*span - 1.",
    "wrapped": "Offsets beyond the span wrap round to the other end of the table; clamp them.",
    "no shift": "Your row is |i - j|, or i - j without the span: before and after must differ, and row span is offset 0.",
    "one table row off": "Your row is one off: offset 0 has row span.",
    "heads ignored": "All heads read the tables of the first one; each has its own.",
    "only content scaled": "Only the content term is divided by sqrt(3*head_dim); all three are.",
    "softmaxed": "You return the softmax; the exercise asks for the scores before it.",
}


def _say(*names):
    return {name: SAYS[name] for name in names}


# ---- 6.1 conventions_by_hand ----------------------------------------------------------------------------------------

by_hand = {
    "t5_bi_back": 10,
    "t5_bi_ahead": 26,
    "t5_causal_back": 17,
    "shaw_back": 0,
    "shaw_ahead": 32,
    "xl_distance_back": 20,
    "deberta_back": 15,
    "deberta_ahead": 0,
}

numbers(WEEK, "conventions_by_hand", "exact", by_hand)
numbers(WEEK, "conventions_by_hand", "floats", {key: float(value) for key, value in by_hand.items()})
numbers(
    WEEK,
    "conventions_by_hand",
    "products",
    by_hand | {"t5_bi_ahead": 16 + 10, "shaw_ahead": 2 * 16, "deberta_back": 2 * 8 - 1},
)
numbers(
    WEEK,
    "conventions_by_hand",
    "sides_exchanged",
    by_hand | {"t5_bi_back": 26, "t5_bi_ahead": 10},
    1,
    "T5's sides are exchanged: keys ahead of the query, offset above 0, have the upper half.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "sides_forgotten",
    by_hand | {"t5_bi_back": 17, "t5_bi_ahead": 17},
    1,
    "With two sides each has 16 buckets; you used all 32 for each.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "no_upper_half",
    by_hand | {"t5_bi_ahead": 10},
    1,
    "The keys ahead lack their half: add B = 16 to the bucket of the distance.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "causal_halved",
    by_hand | {"t5_causal_back": 10},
    1,
    "The causal bucket is that of two sides; without the other side all 32 belong to the keys behind, and e is 16.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "rounded_up",
    by_hand | {"t5_bi_back": 11, "t5_bi_ahead": 27, "t5_causal_back": 18},
    1,
    "You round the logarithm; the formula has floor.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "shaw_turned",
    by_hand | {"shaw_back": 32, "shaw_ahead": 0},
    1.5,
    "Shaw's rows are exchanged: the row is clip + clamp(key - query), so far back is row 0.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "shaw_one_less",
    by_hand | {"shaw_ahead": 31},
    1.5,
    "Shaw's table has 2*clip + 1 = 33 rows, so the last one is 32.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "shaw_unclipped",
    by_hand | {"shaw_back": -4, "shaw_ahead": 36},
    1.5,
    "Shaw's offsets are clipped to -16 .. 16 before the row is counted.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "shaw_without_centre",
    by_hand | {"shaw_back": -16, "shaw_ahead": 16},
    1.5,
    "You give Shaw's clipped offset; the row is clip plus that, so that no row is negative.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "xl_signed",
    by_hand | {"xl_distance_back": -20},
    1.5,
    "Transformer-XL counts distances, query minus key, which are positive for keys behind.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "deberta_turned",
    by_hand | {"deberta_back": 0, "deberta_ahead": 15},
    1.5,
    "DeBERTa's rows are exchanged: it counts i - j, query minus key.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "deberta_one_more",
    by_hand | {"deberta_back": 16},
    1.5,
    "DeBERTa's table has 2*span = 16 rows, so the last one is 15.",
)
numbers(
    WEEK,
    "conventions_by_hand",
    "one_sign_for_all",
    {
        "t5_bi_back": 26,
        "t5_bi_ahead": 10,
        "t5_causal_back": 0,
        "shaw_back": 32,
        "shaw_ahead": 0,
        "xl_distance_back": -20,
        "deberta_back": 0,
        "deberta_ahead": 15,
    },
    0,
    "Your sign is reversed everywhere: from the query at 25 the key at 5 has offset 5 - 25 = -20.",
)


# ---- 6.9 costs_by_hand ----------------------------------------------------------------------------------------------

costs = {"shaw_layer": 4224, "t5_model": 384, "xl_layer": 589824, "deberta_table": 786432, "shaw_gib": 2}

numbers(WEEK, "costs_by_hand", "exact", costs)
numbers(
    WEEK,
    "costs_by_hand",
    "as_products",
    {
        "shaw_layer": 2 * 33 * 64,
        "t5_model": 32 * 12,
        "xl_layer": 768 * 768,
        "deberta_table": 1024 * 768,
        "shaw_gib": 4096 * 4096 * 64 * 2 / 2**30,
    },
)
numbers(WEEK, "costs_by_hand", "floats", {key: float(value) for key, value in costs.items()})
numbers(
    WEEK,
    "costs_by_hand",
    "per_head",
    costs | {"shaw_layer": 50688},
    1,
    "Shaw's tables are shared by the heads of a layer; you counted them for each head.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "no_values",
    costs | {"shaw_layer": 2112},
    1,
    "Shaw's layer has two tables, one for keys and one for values.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "even_table",
    costs | {"shaw_layer": 4096},
    1,
    "A clip of 16 gives 2*16 + 1 = 33 rows: zero has one of its own.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "one_side",
    costs | {"shaw_layer": 2176},
    1,
    "A clip of 16 reaches to both sides: 33 rows, not 17.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "whole_width",
    costs | {"shaw_layer": 50688, "t5_model": 24576},
    1,
    "You counted with the width of the model; Shaw's rows have the width of a head, and T5's bucket one number per head.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "t5_per_layer",
    costs | {"t5_model": 4608},
    1,
    "T5's table is shared by all layers of a stack: 32 numbers per head, once.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "t5_one_head",
    costs | {"t5_model": 32},
    1,
    "T5's bias has a number per bucket and head: 32 * 12.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "xl_one_head",
    costs | {"xl_layer": 49152},
    1.5,
    "W_kR maps the width 768 to all 12 heads of 64, which is 768 again.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "deberta_half",
    costs | {"deberta_table": 393216},
    1.5,
    "A span of 512 reaches to both sides: the table has 2*512 rows.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "deberta_head",
    costs | {"deberta_table": 65536},
    1.5,
    "DeBERTa's table is as wide as the model; each layer's projections make heads of it.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "gib_of_numbers",
    costs | {"shaw_gib": 1},
    1.5,
    "Your GiB forget the two bytes of each number.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "gb",
    costs | {"shaw_gib": 2.147483648},
    1.5,
    "You give gigabytes of 10^9; a GiB is 2^30 bytes.",
)
numbers(
    WEEK,
    "costs_by_hand",
    "gib_per_head",
    costs | {"shaw_gib": 24},
    1.5,
    "The table of vectors per pair is shared by the heads: (4096, 4096, 64), once.",
)


# ---- 6.2 relative_positions -----------------------------------------------------------------------------------------


@right(WEEK, "relative_positions")
def offsets_plain(n_queries, n_keys):
    if not 1 <= n_queries <= n_keys:
        raise ValueError("1 <= n_queries <= n_keys")
    i = torch.arange(n_queries) + n_keys - n_queries
    j = torch.arange(n_keys)
    rel = j[None, :] - i[:, None]
    return rel


REL = "rel = j[None, :] - i[:, None]"
edited(offsets_plain, "offsets_query_minus_key", 0, SAYS["query minus key"], (REL, "rel = i[:, None] - j[None, :]"))
edited(offsets_plain, "offsets_top_left", 1.25, SAYS["top left"], (" + n_keys - n_queries", ""))
edited(offsets_plain, "offsets_absolute", 0, SAYS["absolute"], (REL, "rel = (j[None, :] - i[:, None]).abs()"))
edited(offsets_plain, "offsets_turned", 0, SAYS["turned"], (REL, "rel = j[:, None] - i[None, :]"))
edited(offsets_plain, "offsets_one_off", 0, SAYS["one off"], (REL, "rel = j[None, :] - i[:, None] - 1"))
edited(
    offsets_plain, "offsets_causal", 0, SAYS["causal offsets"], (REL, "rel = (j[None, :] - i[:, None]).clamp(max=0)")
)
edited(
    offsets_plain,
    "offsets_square",
    1.25,
    SAYS["square"],
    ("torch.arange(n_queries) + n_keys - n_queries", "torch.arange(n_keys)"),
)
edited(offsets_plain, "offsets_float", 1.5, SAYS["float offsets"], ("return rel", "return rel.float()"))
edited(offsets_plain, "offsets_int32", 1.5, SAYS["int32"], ("return rel", "return rel.int()"))
edited(
    offsets_plain,
    "offsets_no_error",
    1.5,
    SAYS["no error"],
    ('    if not 1 <= n_queries <= n_keys:\n        raise ValueError("1 <= n_queries <= n_keys")\n', ""),
)
edited(
    offsets_plain,
    "offsets_clamped",
    1.25,
    SAYS["clamped offsets"],
    (REL, "rel = (j[None, :] - i[:, None]).clamp(-6, 6)"),
)
edited(
    offsets_plain, "offsets_positions", 0, SAYS["position only"], (REL, "rel = j[None, :].expand(n_queries, n_keys)")
)
edited(offsets_plain, "offsets_list", 0, SAYS["list"], ("return rel", "return rel.tolist()"))
edited(offsets_plain, "offsets_upside_down", 0, SAYS["backwards rows"], ("return rel", "return rel.flip(0)"))


@right(WEEK, "relative_positions")
def offsets_loops(n_queries, n_keys):
    if n_queries < 1 or n_queries > n_keys:
        raise ValueError("sizes")
    out = torch.zeros(n_queries, n_keys, dtype=torch.long)
    for r in range(n_queries):
        for j in range(n_keys):
            out[r, j] = j - (n_keys - n_queries + r)
    return out


@right(WEEK, "relative_positions")
def offsets_last_rows(n_queries, n_keys):
    if not (0 < n_queries <= n_keys):
        raise ValueError("no such sizes")
    p = torch.arange(n_keys)
    return (p.unsqueeze(0) - p.unsqueeze(1))[-n_queries:]


@right(WEEK, "relative_positions")
def offsets_numpy(n_queries, n_keys):
    if n_queries not in range(1, n_keys + 1):
        raise ValueError(f"{n_queries} queries, {n_keys} keys")
    return torch.from_numpy(
        np.subtract.outer(np.arange(n_keys), np.arange(n_keys - n_queries, n_keys)).T.astype(np.int64)
    )


# ---- 6.3 shaw_attention ---------------------------------------------------------------------------------------------


@right(WEEK, "shaw_attention")
def shaw_plain(q, k, v, rel_k, rel_v, mask=None):
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    clip = (rel_k.shape[0] - 1) // 2
    i = torch.arange(n_keys - n_queries, n_keys)
    rel = torch.arange(n_keys)[None, :] - i[:, None]
    row = rel.clamp(-clip, clip) + clip
    content = q @ k.transpose(-2, -1)
    position = torch.einsum("bhid,ijd->bhij", q, rel_k[row])
    scores = (content + position) / math.sqrt(d)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    weights = weights.nan_to_num()
    out = weights @ v
    out = out + torch.einsum("bhij,ijd->bhid", weights, rel_v[row])
    return out, weights


CLIPPED = "rel.clamp(-clip, clip) + clip"
SHAW_SCORES = "scores = (content + position) / math.sqrt(d)"
SHAW_VALUES = '    out = out + torch.einsum("bhij,ijd->bhid", weights, rel_v[row])\n'
edited(shaw_plain, "shaw_no_clip", 3.25, SAYS["no clip"], (CLIPPED, "rel + clip"))
edited(shaw_plain, "shaw_low_end", 3.25, SAYS["low end off by one"], (CLIPPED, "rel.clamp(1 - clip, clip) + clip"))
edited(shaw_plain, "shaw_high_end", 3.25, SAYS["high end off by one"], (CLIPPED, "rel.clamp(-clip, clip - 1) + clip"))
edited(shaw_plain, "shaw_no_value_term", 1.125, SAYS["no value term"], (SHAW_VALUES, ""))
edited(shaw_plain, "shaw_no_key_term", 0, SAYS["no key term"], ("(content + position)", "content"))
edited(
    shaw_plain,
    "shaw_key_term_unscaled",
    0,
    SAYS["unscaled key term"],
    (SHAW_SCORES, "scores = content / math.sqrt(d) + position"),
)
edited(
    shaw_plain,
    "shaw_content_unscaled",
    0,
    SAYS["unscaled content"],
    (SHAW_SCORES, "scores = content + position / math.sqrt(d)"),
)
edited(shaw_plain, "shaw_unscaled", 0, SAYS["unscaled"], (SHAW_SCORES, "scores = content + position"))
edited(
    shaw_plain,
    "shaw_scaled_twice",
    0,
    SAYS["scaled twice"],
    (SHAW_SCORES, "scores = (content + position / math.sqrt(d)) / math.sqrt(d)"),
)
edited(
    shaw_plain,
    "shaw_value_unweighted",
    1.125,
    SAYS["value unweighted"],
    ('torch.einsum("bhij,ijd->bhid", weights, rel_v[row])', "rel_v[row].sum(1)"),
)
edited(
    shaw_plain,
    "shaw_after_softmax",
    0,
    SAYS["bias after softmax"],
    (SHAW_SCORES, "scores = content / math.sqrt(d)"),
    ("    weights = weights.nan_to_num()\n", "    weights = weights.nan_to_num() + position / math.sqrt(d)\n"),
)
edited(
    shaw_plain,
    "shaw_table_meets_keys",
    0,
    SAYS["from the key"],
    ('torch.einsum("bhid,ijd->bhij", q, rel_k[row])', 'torch.einsum("bhjd,ijd->bhij", k, rel_k[row])'),
)
edited(shaw_plain, "shaw_over_queries", 0, SAYS["over queries"], ("softmax(dim=-1)", "softmax(dim=-2)"))
edited(
    shaw_plain,
    "shaw_mask_after_softmax",
    3.5,
    SAYS["mask after softmax"],
    ('        scores = scores.masked_fill(~mask, float("-inf"))\n', "        pass\n"),
    ("    weights = weights.nan_to_num()\n", "    weights = weights if mask is None else weights * mask\n"),
)
edited(shaw_plain, "shaw_mask_inverted", 3.5, SAYS["mask inverted"], ("masked_fill(~mask,", "masked_fill(mask,"))
edited(shaw_plain, "shaw_mask_inverted_nan", 3.5, SAYS["mask inverted"], ("masked_fill(~mask,", "masked_fill(mask,"),
       ("    weights = weights.nan_to_num()\n", ""))
edited(shaw_plain, "shaw_weights_alone", 0, SAYS["out alone"], ("return out, weights", "return weights"))
edited(shaw_plain, "shaw_out_alone", 2.875, SAYS["out alone"], ("return out, weights", "return out"))
edited(shaw_plain, "shaw_nan_row", 3.5, SAYS["nan row"], ("    weights = weights.nan_to_num()\n", ""))
edited(shaw_plain, "shaw_order", 0, SAYS["one order"], ("return out, weights", "return weights, out"))
edited(
    shaw_plain,
    "shaw_in_float32",
    3.875,
    "In float32 the values are right, in float64 they are not. (The function computes in the dtype of the inputs, and returns it.)",
    ("    n_queries, n_keys, d = q",
     "    dtype = q.dtype\n    q, k, v, rel_k, rel_v = (t.float() for t in (q, k, v, rel_k, rel_v))\n    n_queries, n_keys, d = q"),
    ("return out, weights", "return out.to(dtype), weights.to(dtype)"),
)
edited(shaw_plain, "shaw_table_detached", 3.875, "rel_k is cut off from the autograd graph, so it cannot learn.",
       ("rel_k[row]", "rel_k.data[row]"))
edited(shaw_plain, "shaw_with_view", 3.875,
       "Right for contiguous tensors, wrong for one that is not. (`view` needs contiguous memory, `reshape` does not.)",
       ("content = q @ k.transpose(-2, -1)",
        "content = (q.view(-1, n_queries, d) @ k.view(-1, n_keys, d).mT).view(*q.shape[:2], n_queries, n_keys)"))
edited(
    shaw_plain,
    "shaw_detached",
    3.875,
    SAYS["detached"],
    ("return out, weights", "return out.detach(), weights.detach()"),
)


@right(WEEK, "shaw_attention", 3.875)
def shaw_short_products(q, k, v, rel_k, rel_v, mask=None):
    """2*clip+1 products and a gather, instead of a vector per pair."""
    batch, heads, n_queries, d = q.shape
    n_keys, clip = k.size(2), rel_k.size(0) // 2
    rel = torch.arange(n_keys).view(1, -1) - torch.arange(n_keys - n_queries, n_keys).view(-1, 1)
    row = (rel.clip(-clip, clip) + clip).expand(batch, heads, n_queries, n_keys)
    scores = (q @ k.mT + (q @ rel_k.T).gather(-1, row)) * d**-0.5
    if mask is not None:
        mask = mask.expand(batch, heads, n_queries, n_keys)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = weights * mask
    by_row = torch.zeros(batch, heads, n_queries, len(rel_v), dtype=v.dtype).scatter_add(-1, row, weights)
    return weights @ v + by_row @ rel_v, weights


@right(WEEK, "shaw_attention", 3.875)
def shaw_row_by_row(q, k, v, rel_k, rel_v, mask=None):
    n_queries, n_keys = q.shape[2], k.shape[2]
    clip = (len(rel_k) - 1) // 2
    every_mask = torch.ones(n_queries, n_keys, dtype=torch.bool) if mask is None else mask
    every_mask = every_mask.expand(q.shape[0], q.shape[1], n_queries, n_keys)
    outs, all_weights = [], []
    for r in range(n_queries):
        i = n_keys - n_queries + r
        rows = torch.tensor([clip + max(-clip, min(clip, j - i)) for j in range(n_keys)])
        s = torch.einsum("bhd,bhjd->bhj", q[:, :, r], k + rel_k[rows]) / math.sqrt(q.shape[-1])
        m = every_mask[:, :, r]
        s = torch.where(m, s, torch.full_like(s, -1e30))
        w = F.softmax(s, -1) * m
        outs.append(torch.einsum("bhj,bhjd->bhd", w, v + rel_v[rows]))
        all_weights.append(w)
    return torch.stack(outs, 2), torch.stack(all_weights, 2)


@right(WEEK, "shaw_attention")
def shaw_by_keys(q, k, v, rel_k, rel_v, mask=None):
    clip = rel_k.shape[0] // 2
    position = torch.arange(k.shape[-2])
    rel = position - position[-q.shape[-2] :].unsqueeze(1)
    index = torch.minimum(torch.maximum(rel, torch.tensor(-clip)), torch.tensor(clip)) + clip
    keys = k.unsqueeze(2) + rel_k[index]
    scores = (q.unsqueeze(3) * keys).sum(-1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(mask.logical_not(), -math.inf)
        blind = torch.isinf(scores).all(-1, keepdim=True)
        weights = scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)
    else:
        weights = scores.softmax(-1)
    return (weights.unsqueeze(-1) * (v.unsqueeze(2) + rel_v[index])).sum(3), weights


# ---- 6.4 rel_shift --------------------------------------------------------------------------------------------------


@right(WEEK, "rel_shift", 2.75)
def shift_by_padding(x):
    b, h, n_queries, n_keys = x.shape
    zeros = torch.zeros(b, h, n_queries, 1, dtype=x.dtype)
    padded = torch.cat([zeros, x], dim=-1)
    padded = padded.reshape(b, h, n_keys + 1, n_queries)
    y = padded[:, :, 1:].reshape(b, h, n_queries, n_keys)
    return y


edited(
    shift_by_padding,
    "shift_right_padding",
    0,
    SAYS["right padding"],
    ("torch.cat([zeros, x], dim=-1)", "torch.cat([x, zeros], dim=-1)"),
)
edited(
    shift_by_padding, "shift_last_row_dropped", 0, SAYS["first rows kept"], ("padded[:, :, 1:]", "padded[:, :, :-1]")
)
edited(
    shift_by_padding,
    "shift_queries_for_keys",
    1.75,
    SAYS["queries for keys"],
    ("padded.reshape(b, h, n_keys + 1, n_queries)", "padded.reshape(b, h, n_queries + 1, n_keys)"),
)
edited(
    shift_by_padding,
    "shift_heads_mixed",
    0,
    SAYS["heads mixed"],
    ("return y", "return y.transpose(0, 1).reshape(x.shape)"),
)
edited(
    shift_by_padding,
    "shift_contiguous",
    2.25,
    SAYS["contiguous"],
    ("    zeros = torch", "    if not x.is_contiguous():\n        x.view(-1)\n    zeros = torch"),
)
edited(shift_by_padding, "shift_float32", 2.25, SAYS["float32 shift"], ("return y", "return y.float()"))
edited(shift_by_padding, "shift_detached", 2.25, SAYS["detached"], ("return y", "return y.detach()"))
edited(shift_by_padding, "shift_in_place", 2.25, SAYS["in place"], ("return y", "x.copy_(y)\n    return x"))


@wrong(WEEK, "rel_shift", 0, SAYS["identity"])
def shift_nothing(x):
    return x.clone()


@wrong(WEEK, "rel_shift", 0, SAYS["roll"])
def shift_rolled(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[-2]):
        y[..., i, :] = torch.roll(x[..., i, :], -i, dims=-1)
    return y


@wrong(WEEK, "rel_shift", 2, SAYS["memory ignored"])
def shift_square_only(x):
    n_queries, n_keys = x.shape[-2:]
    y = torch.zeros_like(x)
    for i in range(n_queries):
        y[..., i, :] = torch.roll(x[..., i, :], -(n_keys - 1 - i), dims=-1)
    return y


@wrong(WEEK, "rel_shift", 0, SAYS["to the right"])
def shift_to_the_right(x):
    n_queries = x.shape[-2]
    rows = [torch.roll(x[:, :, i], n_queries - 1 - i, dims=-1) for i in range(n_queries)]
    return torch.stack(rows, dim=2)


@wrong(WEEK, "rel_shift", 0, SAYS["ascending"])
def shift_ascending(x):
    n_queries, n_keys = x.shape[-2:]
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    distance = (i - torch.arange(n_keys)).clamp(min=0)
    return x.gather(-1, distance.expand(x.shape))


@wrong(WEEK, "rel_shift", 0, SAYS["one too far"])
def shift_one_too_far(x):
    n_queries = x.shape[-2]
    return torch.stack([x[:, :, i].roll(-(n_queries - i), -1) for i in range(n_queries)], 2)


@wrong(WEEK, "rel_shift", 0, SAYS["one too little"])
def shift_one_too_little(x):
    n_queries = x.shape[-2]
    return torch.stack([x[:, :, i].roll(-(n_queries - 2 - i), -1) for i in range(n_queries)], 2)


@wrong(WEEK, "rel_shift", 0, SAYS["axes flipped"])
def shift_axes_flipped(x):
    n_queries = x.shape[-2]
    return torch.stack([x[:, :, n_queries - 1 - i].roll(-(n_queries - 1 - i), -1) for i in range(n_queries)], 2)


@right(WEEK, "rel_shift")
def shift_rows_rolled(x):
    n_queries = x.shape[-2]
    y = torch.empty_like(x)
    for i in range(n_queries):
        y[..., i, :] = torch.roll(x[..., i, :], -(n_queries - 1 - i), dims=-1)
    return y


@right(WEEK, "rel_shift", 2.75)
def shift_gathered(x):
    n_queries, n_keys = x.shape[-2:]
    column = torch.arange(n_keys)[None, :] + (n_queries - 1 - torch.arange(n_queries))[:, None]
    inside = column < n_keys
    y = x.gather(-1, column.clamp(max=n_keys - 1).expand(x.shape))
    return y.masked_fill(~inside, float("inf"))  # these are not looked at


@right(WEEK, "rel_shift")
def shift_by_strides(x):
    x = F.pad(x, (0, x.shape[-2] - 1)).contiguous()
    b, h, n_queries, wide = x.shape
    n_keys = wide - n_queries + 1
    start = x.storage_offset() + n_queries - 1
    return x.as_strided((b, h, n_queries, n_keys), (h * n_queries * wide, n_queries * wide, wide - 1, 1), start).clone()


# ---- 6.5 transformer_xl_scores --------------------------------------------------------------------------------------


@right(WEEK, "transformer_xl_scores")
def xl_gathered(q, k, r, content_bias, position_bias):
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    distance = (i - torch.arange(n_keys)).clamp(min=0)
    qc = q + content_bias[:, None, :]
    qp = q + position_bias[:, None, :]
    content = qc @ k.transpose(-2, -1)
    position = torch.einsum("bhid,hijd->bhij", qp, r[:, distance])
    return (content + position) / math.sqrt(d)


edited(
    xl_gathered,
    "xl_biases_swapped",
    3,
    SAYS["biases swapped"],
    ("qc = q + content_bias", "qc = q + position_bias"),
    ("qp = q + position_bias", "qp = q + content_bias"),
)
edited(
    xl_gathered, "xl_no_content_bias", 3, SAYS["no content bias"], ("qc = q + content_bias[:, None, :]", "qc = q")
)
edited(
    xl_gathered, "xl_no_position_bias", 3, SAYS["no position bias"], ("qp = q + position_bias[:, None, :]", "qp = q")
)
edited(xl_gathered, "xl_one_bias", 3, SAYS["one bias"], ("qp = q + position_bias", "qp = q + content_bias"))
edited(
    xl_gathered,
    "xl_both_biases",
    3,
    SAYS["both biases"],
    ("qc = q + content_bias[:, None, :]", "qc = q + (content_bias + position_bias)[:, None, :]"),
    ("qp = q + position_bias[:, None, :]", "qp = qc"),
)
edited(
    xl_gathered,
    "xl_bias_of_one_head",
    3,
    SAYS["bias of one head"],
    ("content_bias[:, None, :]", "content_bias[0]"),
    ("position_bias[:, None, :]", "position_bias[0]"),
)
edited(xl_gathered, "xl_r_descending", 0, SAYS["r descending"], ("r[:, distance]", "r.flip(1)[:, distance]"))
edited(xl_gathered, "xl_distance_one_low", 0, SAYS["distance one low"], ("r[:, distance]", "r[:, distance - 1]"))
edited(
    xl_gathered,
    "xl_only_position_scaled",
    0,
    SAYS["only position scaled"],
    ("(content + position) / math.sqrt(d)", "content + position / math.sqrt(d)"),
)
edited(xl_gathered, "xl_unscaled", 0, SAYS["unscaled"], (" / math.sqrt(d)", ""))
edited(
    xl_gathered,
    "xl_position_unscaled",
    0,
    SAYS["unscaled position"],
    ("(content + position) / math.sqrt(d)", "content / math.sqrt(d) + position"),
)
edited(xl_gathered, "xl_no_position_term", 0, SAYS["no position term"], ("(content + position)", "content"))
edited(
    xl_gathered,
    "xl_r_of_one_head",
    0,
    SAYS["r of one head"],
    ("r[:, distance]", "r[:1, distance].expand(q.shape[1], -1, -1, -1)"),
)
edited(
    xl_gathered,
    "xl_key_side",
    0,
    SAYS["key side"],
    ('"bhid,hijd->bhij", qp', '"bhjd,hijd->bhij", k + position_bias[:, None, :]'),
)
edited(xl_gathered, "xl_whole_width", 0, SAYS["d_model scale"], ("math.sqrt(d)", "math.sqrt(d * (q.shape[1] + 1))"))
edited(xl_gathered, "xl_detached", 3.5, SAYS["detached"], ("(content + position)", "(content + position).detach()"))


@right(WEEK, "transformer_xl_scores")
def xl_shifted(q, k, r, content_bias, position_bias):
    b, h, n_queries, d = q.shape
    n_keys = k.shape[2]
    ac = torch.einsum("bhid,bhjd->bhij", q + content_bias.view(1, h, 1, d), k)
    bd = torch.einsum("bhid,hjd->bhij", q + position_bias.view(1, h, 1, d), r.flip(1))
    bd = F.pad(bd, (1, 0)).reshape(b, h, n_keys + 1, n_queries)[:, :, 1:].reshape(b, h, n_queries, n_keys)
    return (ac + bd) * d**-0.5


@right(WEEK, "transformer_xl_scores")
def xl_by_distance(q, k, r, content_bias, position_bias):
    n_queries, n_keys = q.size(2), k.size(2)
    scale = 1 / math.sqrt(q.size(3))
    by_distance = (q + position_bias.unsqueeze(1)) @ r.transpose(1, 2)
    rows = []
    for row in range(n_queries):
        i = n_keys - n_queries + row
        behind = by_distance[:, :, row, : i + 1].flip(-1)
        rows.append(F.pad(behind, (0, n_keys - 1 - i), value=float("-inf")))
    return scale * ((q + content_bias.unsqueeze(1)) @ k.mT + torch.stack(rows, 2))


@right(WEEK, "transformer_xl_scores")
def xl_four_terms(q, k, r, content_bias, position_bias):
    n_queries, n_keys = q.shape[2], k.shape[2]
    t = (torch.arange(n_keys)[-n_queries:, None] - torch.arange(n_keys)[None]).abs()
    rt = r[:, t]
    a = q @ k.mT
    b = (q.unsqueeze(3) * rt.unsqueeze(0)).sum(-1)
    c = (k * content_bias[None, :, None]).sum(-1).unsqueeze(2)
    d = (rt * position_bias[:, None, None]).sum(-1)
    return (a + b + c + d) / q.shape[3] ** 0.5


# ---- 6.6 t5_bucket --------------------------------------------------------------------------------------------------


@right(WEEK, "t5_bucket")
def bucket_plain(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    bucket = torch.zeros_like(relative_position)
    if bidirectional:
        num_buckets = num_buckets // 2
        bucket = bucket + (relative_position > 0).long() * num_buckets
        m = relative_position.abs()
    else:
        m = (-relative_position).clamp(min=0)
    e = num_buckets // 2
    ratio = torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e)
    far = e + torch.floor(ratio * (num_buckets - e)).long()
    far = far.clamp(max=num_buckets - 1)
    return bucket + torch.where(m < e, m, far)


edited(
    bucket_plain,
    "bucket_sign",
    0,
    SAYS["sign"],
    ("(relative_position > 0)", "(relative_position < 0)"),
    ("(-relative_position).clamp(min=0)", "relative_position.clamp(min=0)"),
)
edited(
    bucket_plain,
    "bucket_no_sides",
    1.25,
    SAYS["no sides"],
    ("        bucket = bucket + (relative_position > 0).long() * num_buckets\n", ""),
)
edited(
    bucket_plain, "bucket_zero_ahead", 3, SAYS["zero is ahead"], ("(relative_position > 0)", "(relative_position >= 0)")
)
edited(bucket_plain, "bucket_ceil", 1.25, SAYS["ceil"], ("torch.floor(", "torch.ceil("))
edited(bucket_plain, "bucket_round", 1.25, SAYS["round"], ("torch.floor(", "torch.round("))
edited(
    bucket_plain,
    "bucket_absolute_when_causal",
    3,
    SAYS["absolute when causal"],
    ("(-relative_position).clamp(min=0)", "relative_position.abs()"),
)
edited(bucket_plain, "bucket_no_cap", 1.25, SAYS["no cap"], ("    far = far.clamp(max=num_buckets - 1)\n", ""))
edited(
    bucket_plain,
    "bucket_sizes_ignored",
    3.25,
    SAYS["sizes ignored"],
    (
        "    bucket = torch.zeros_like(relative_position)\n",
        "    num_buckets, max_distance = 32, 128\n    bucket = torch.zeros_like(relative_position)\n",
    ),
)
edited(
    bucket_plain,
    "bucket_max_distance_ignored",
    3.25,
    SAYS["sizes ignored"],
    ("math.log(max_distance / e)", "math.log(128 / e)"),
)
edited(
    bucket_plain,
    "bucket_half_when_causal",
    1.25,
    SAYS["half when causal"],
    (
        "        m = (-relative_position).clamp(min=0)\n",
        "        num_buckets = num_buckets // 2\n        m = (-relative_position).clamp(min=0)\n",
    ),
)
edited(
    bucket_plain,
    "bucket_whole_when_both",
    2.25,
    SAYS["whole when both"],
    (
        "        num_buckets = num_buckets // 2\n        bucket = bucket + (relative_position > 0).long() * num_buckets\n",
        "        bucket = bucket + (relative_position > 0).long() * (num_buckets // 2)\n",
    ),
)
edited(
    bucket_plain,
    "bucket_linear",
    1.25,
    SAYS["linear"],
    ("torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e)", "(m.double() - e) / (max_distance - e)"),
)
edited(
    bucket_plain,
    "bucket_log_of_m",
    1.25,
    SAYS["log of m"],
    (
        "torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e)",
        "torch.log(m.clamp(min=1).double()) / math.log(max_distance)",
    ),
)
edited(
    bucket_plain,
    "bucket_log_base",
    1.25,
    SAYS["log base"],
    ("math.log(max_distance / e)", "math.log2(max_distance / e)"),
)
edited(
    bucket_plain, "bucket_exact_third", 0, SAYS["exact half"], ("e = num_buckets // 2", "e = max(num_buckets // 4, 1)")
)
edited(
    bucket_plain,
    "bucket_float",
    3.875,
    SAYS["float buckets"],
    ("return bucket + torch.where(m < e, m, far)", "return (bucket + torch.where(m < e, m, far)).double()"),
)
edited(
    bucket_plain,
    "bucket_cap_one_low",
    1.25,
    SAYS["cap one low"],
    ("clamp(max=num_buckets - 1)", "clamp(max=num_buckets - 2)"),
)
edited(
    bucket_plain,
    "bucket_cap_across",
    2.25,
    SAYS["cap across"],
    ("clamp(max=num_buckets - 1)", "clamp(max=(2 * num_buckets if bidirectional else num_buckets) - 1)"),
)


@right(WEEK, "t5_bucket")
def bucket_as_published(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    ret = 0
    n = -relative_position
    if bidirectional:
        num_buckets //= 2
        ret += (n < 0).long() * num_buckets
        n = torch.abs(n)
    else:
        n = torch.max(n, torch.zeros_like(n))
    max_exact = num_buckets // 2
    is_small = n < max_exact
    val = (
        max_exact
        + (torch.log(n.float() / max_exact) / math.log(max_distance / max_exact) * (num_buckets - max_exact)).long()
    )
    val = torch.min(val, torch.full_like(val, num_buckets - 1))
    ret += torch.where(is_small, n, val)
    return ret


@right(WEEK, "t5_bucket")
def bucket_by_thresholds(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    side = num_buckets // 2 if bidirectional else num_buckets
    e = side // 2
    starts = [e * (max_distance / e) ** (s / (side - e)) for s in range(1, side - e)]
    m = relative_position.abs() if bidirectional else torch.clamp(-relative_position, min=0)
    far = e + sum((m >= start).long() for start in starts)
    near = torch.where(m < e, m, far)
    return torch.where(relative_position > 0, near + side, near) if bidirectional else near


@right(WEEK, "t5_bucket", 3.875)
def bucket_numpy(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    rel = relative_position.numpy()
    side = num_buckets // 2 if bidirectional else num_buckets
    e = side // 2
    m = np.abs(rel) if bidirectional else np.maximum(-rel, 0)
    far = e + np.floor(np.log(np.maximum(m, 1) / e) / np.log(max_distance / e) * (side - e)).astype(int)
    bucket = np.where(m < e, m, np.minimum(far, side - 1)) + (side * (rel > 0) if bidirectional else 0)
    return torch.tensor(bucket, dtype=torch.int64)


# ---- 6.7 t5_attention -----------------------------------------------------------------------------------------------


@right(WEEK, "t5_attention", 2.875)
def t5_plain(q, k, v, table, is_causal=False, max_distance=128):
    def bucket_of(rel, two_sides, num_buckets):
        side = num_buckets // 2 if two_sides else num_buckets
        m = rel.abs() if two_sides else (-rel).clamp(min=0)
        e = side // 2
        far = e + (torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e) * (side - e)).long()
        bucket = torch.where(m < e, m, far.clamp(max=side - 1))
        return bucket + side * (rel > 0) if two_sides else bucket

    n_queries, n_keys = q.shape[-2], k.shape[-2]
    rel = torch.arange(n_keys)[None, :] - torch.arange(n_keys - n_queries, n_keys)[:, None]
    bucket = bucket_of(rel, not is_causal, table.shape[0])
    bias = table[bucket].permute(2, 0, 1)
    scores = q @ k.transpose(-2, -1)
    scores = scores + bias
    if is_causal:
        scores = scores.masked_fill(rel > 0, float("-inf"))
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


T5_BIAS = "    scores = scores + bias\n"
edited(
    t5_plain,
    "t5_divided",
    0,
    SAYS["divided"],
    ("q @ k.transpose(-2, -1)\n", "q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n"),
)
edited(
    t5_plain, "t5_both_divided", 0, SAYS["divided"], ("scores + bias\n", "(scores + bias) / math.sqrt(q.shape[-1])\n")
)
edited(
    t5_plain, "t5_both_sided_when_causal", 1.625, SAYS["both sided when causal"], ("not is_causal, table", "True, table")
)
edited(t5_plain, "t5_sides_turned_round", 0, SAYS["sides turned round"], ("not is_causal, table", "is_causal, table"))
edited(
    t5_plain,
    "t5_after_softmax",
    0,
    SAYS["after softmax"],
    (T5_BIAS, ""),
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) + bias"),
)
edited(t5_plain, "t5_no_bias", 0, SAYS["no bias"], (T5_BIAS, ""))
edited(t5_plain, "t5_bias_negative", 0, SAYS["bias negative"], ("scores + bias", "scores - bias"))
edited(t5_plain, "t5_out_alone", 1, SAYS["out alone"], ("return weights @ v, weights", "return weights @ v"))
edited(t5_plain, "t5_mask_inverted", 1.125, "Your causal mask is inverted: it hides what a query may see, and shows what it may not.",
       ("masked_fill(rel > 0", "masked_fill(rel < 0"))
edited(t5_plain, "t5_no_mask", 1.25, SAYS["no mask"], ("    if is_causal:", "    if False:"))
edited(t5_plain, "t5_mask_after_softmax", 1.125, SAYS["mask after softmax"],
       ('    if is_causal:\n        scores = scores.masked_fill(rel > 0, float("-inf"))\n', ""),
       ("softmax(dim=-1)\n", "softmax(dim=-1)\n    weights = weights.masked_fill(rel > 0, 0.0) if is_causal else weights\n"))
edited(t5_plain, "t5_always_causal", 0.75, SAYS["always causal"], ("    if is_causal:", "    if True:"))
edited(
    t5_plain,
    "t5_mask_top_left",
    2.375,
    SAYS["mask top left"],
    ("masked_fill(rel > 0, ", "masked_fill(torch.ones(n_queries, n_keys).triu(1).bool(), "),
)
edited(
    t5_plain,
    "t5_sizes_written_in",
    2.375,
    SAYS["32 written in"],
    ("not is_causal, table.shape[0])", "not is_causal, 32) % len(table)"),
)
edited(
    t5_plain,
    "t5_max_distance_ignored",
    2.375,
    SAYS["128 written in"],
    ("math.log(max_distance / e)", "math.log(128 / e)"),
)
edited(t5_plain, "t5_strict_mask", 1.125, SAYS["strict"], ('rel > 0, float("-inf"))', 'rel >= 0, float("-inf"))'))
edited(t5_plain, "t5_clobbered", 1.125, SAYS["clobbered"], ('float("-inf")', "0.0"))
edited(t5_plain, "t5_bias_reshaped", 0, SAYS["bias reshaped"], (".permute(2, 0, 1)", ".reshape(-1, n_queries, n_keys)"))
edited(
    t5_plain,
    "t5_value_of_the_query",
    0,
    SAYS["value of the query"],
    ("return weights @ v, weights", 'return torch.einsum("bhij,bhid->bhid", weights, v), weights'),
)
edited(t5_plain, "t5_one_head", 0, SAYS["one head"], (".permute(2, 0, 1)", ".permute(2, 0, 1)[:1]"))
edited(t5_plain, "t5_over_queries", 0, SAYS["over queries"], ("softmax(dim=-1)", "softmax(dim=-2).nan_to_num()"))
edited(t5_plain, "t5_table_detached", 2.75, "The table is cut off from the autograd graph, so it cannot learn.",
       ("table[bucket]", "table.data[bucket]"))
edited(
    t5_plain,
    "t5_detached",
    2.75,
    SAYS["detached"],
    ("return weights @ v, weights", "return (weights @ v).detach(), weights"),
)


@right(WEEK, "t5_attention", 2.875)
def t5_fused(q, k, v, table, is_causal=False, max_distance=128):
    num_buckets, n_heads = table.shape
    n_queries, n_keys = q.shape[2], k.shape[2]
    bias = torch.empty(n_heads, n_queries, n_keys, dtype=q.dtype)
    for r in range(n_queries):
        for j in range(n_keys):
            rel = j - (n_keys - n_queries + r)
            side = num_buckets if is_causal else num_buckets // 2
            m = max(-rel, 0) if is_causal else abs(rel)
            e = side // 2
            b = m if m < e else min(side - 1, e + int(math.log(m / e) / math.log(max_distance / e) * (side - e)))
            b += side if rel > 0 and not is_causal else 0
            bias[:, r, j] = table[b] if rel <= 0 or not is_causal else -math.inf
    weights = (q @ k.mT + bias).softmax(-1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0), weights


@right(WEEK, "t5_attention", 2.875)
def t5_one_hot(q, k, v, table, is_causal=False, max_distance=128):
    num_buckets = table.shape[0]
    side = num_buckets if is_causal else num_buckets // 2
    e = side // 2
    place = torch.arange(k.shape[-2])
    rel = place[None, :] - place[-q.shape[-2] :, None]
    m = torch.clamp(-rel, min=0) if is_causal else rel.abs()
    log = torch.log(m.float() / e) / math.log(max_distance / e) * (side - e)
    bucket = torch.where(m < e, m, torch.minimum(e + log.clamp(min=0).long(), torch.tensor(side - 1)))
    if not is_causal:
        bucket = bucket + (rel > 0).long() * side
    bias = torch.einsum("ijn,nh->hij", F.one_hot(bucket, num_buckets).to(table.dtype), table)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) + bias
    if is_causal:
        scores = torch.where(rel <= 0, scores, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v), weights


@right(WEEK, "t5_attention")
def t5_head_by_head(q, k, v, table, is_causal=False, max_distance=128):
    def bucket(rel, n):
        b = 0
        if not is_causal:
            n //= 2
            b = n if rel > 0 else 0
            m = abs(rel)
        else:
            m = -rel if rel < 0 else 0
        half = n // 2
        if m < half:
            return b + m
        return b + min(n - 1, half + math.floor(math.log(m / half) / math.log(max_distance / half) * (n - half)))

    n_queries, n_keys = q.shape[-2:][0], k.shape[-2]
    index = torch.tensor(
        [[bucket(j - i, len(table)) for j in range(n_keys)] for i in range(n_keys - n_queries, n_keys)]
    )
    position = torch.arange(n_keys, device=q.device)
    hidden = position > position[n_keys - n_queries :, None]
    all_weights = []
    for h in range(q.shape[1]):
        s = q[:, h] @ k[:, h].mT + table[:, h][index]
        all_weights.append((s.masked_fill(hidden, -math.inf) if is_causal else s).softmax(-1))
    weights = torch.stack(all_weights, 1)
    return weights @ v, weights


# ---- 6.8 deberta_scores ---------------------------------------------------------------------------------------------


@right(WEEK, "deberta_scores")
def deberta_plain(q, k, pos_q, pos_k):
    n, d = q.shape[-2:]
    span = pos_k.shape[1] // 2
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    delta = (i - j + span).clamp(0, 2 * span - 1)
    c2c = q @ k.transpose(-2, -1)
    c2p = torch.einsum("bhid,hijd->bhij", q, pos_k[:, delta])
    p2c = torch.einsum("bhjd,hijd->bhij", k, pos_q[:, delta])
    return (c2c + c2p + p2c) / math.sqrt(3 * d)


DELTA = "(i - j + span).clamp(0, 2 * span - 1)"
edited(deberta_plain, "deberta_other_row", 1, SAYS["other row"], ("pos_q[:, delta]", "pos_q[:, delta.T]"))
edited(deberta_plain, "deberta_rows_turned", 0, SAYS["rows turned"], (DELTA, "(j - i + span).clamp(0, 2 * span - 1)"))
edited(deberta_plain, "deberta_sqrt_d", 0, SAYS["sqrt d"], ("math.sqrt(3 * d)", "math.sqrt(d)"))
edited(deberta_plain, "deberta_sqrt_2d", 0, SAYS["sqrt 2d"], ("math.sqrt(3 * d)", "math.sqrt(2 * d)"))
edited(
    deberta_plain,
    "deberta_tables_swapped",
    0,
    SAYS["tables swapped"],
    ("q, pos_k[:, delta]", "q, pos_q[:, delta]"),
    ("k, pos_q[:, delta]", "k, pos_k[:, delta]"),
)
edited(deberta_plain, "deberta_no_c2p", 1, SAYS["no c2p"], ("c2c + c2p + p2c", "c2c + p2c"))
edited(deberta_plain, "deberta_no_p2c", 1, SAYS["no p2c"], ("c2c + c2p + p2c", "c2c + c2p"))
edited(deberta_plain, "deberta_no_content", 0, SAYS["no content"], ("c2c + c2p + p2c", "c2p + p2c"))
edited(
    deberta_plain,
    "deberta_p2p",
    1.75,
    SAYS["p2p"],
    ("c2c + c2p + p2c", "c2c + c2p + p2c + (pos_q * pos_k).sum(-1)[:, delta]"),
)
edited(
    deberta_plain,
    "deberta_clamp_low",
    3,
    SAYS["clamp low"],
    (DELTA, "(i - j + span).clamp(min(1, 2 * span - 2), 2 * span - 1)"),
)
edited(deberta_plain, "deberta_clamp_high", 3, SAYS["clamp high"], (DELTA, "(i - j + span).clamp(0, 2 * span - 2)"))
edited(deberta_plain, "deberta_wrapped", 3, SAYS["wrapped"], (DELTA, "(i - j + span) % (2 * span)"))
edited(deberta_plain, "deberta_no_shift", 0, SAYS["no shift"], (DELTA, "(i - j).abs().clamp(0, 2 * span - 1)"))
edited(
    deberta_plain,
    "deberta_one_row_off",
    0,
    SAYS["one table row off"],
    (DELTA, "(i - j + span - 1).clamp(0, 2 * span - 1)"),
)
edited(
    deberta_plain,
    "deberta_only_content_scaled",
    0,
    SAYS["only content scaled"],
    ("(c2c + c2p + p2c) / math.sqrt(3 * d)", "c2c / math.sqrt(3 * d) + c2p + p2c"),
)
edited(
    deberta_plain,
    "deberta_softmaxed",
    0,
    SAYS["softmaxed"],
    ("/ math.sqrt(3 * d)", "/ math.sqrt(3 * d)).softmax(-1)"),
    ("return (", "return (("),
)
edited(deberta_plain, "deberta_detached", 3.75, SAYS["detached"], ("(c2c + c2p + p2c)", "(c2c + c2p + p2c).detach()"))


@right(WEEK, "deberta_scores", 3.75)
def deberta_gathered(q, k, pos_q, pos_k):
    b, h, n, d = q.shape
    span = pos_q.size(1) // 2
    position = torch.arange(n)
    delta = torch.clamp(position.view(-1, 1) - position.view(1, -1) + span, 0, span * 2 - 1)
    scale = math.sqrt(d * 3)
    c2p = torch.gather(q @ pos_k.transpose(1, 2), -1, delta.expand(b, h, n, n))
    # for key j and query i the row of (i, j) stands in column i of a gather over keys: turn it round
    p2c = torch.gather(k @ pos_q.transpose(1, 2), -1, delta.T.expand(b, h, n, n)).transpose(-1, -2)
    return q @ (k / scale).transpose(-1, -2) + c2p / scale + p2c / scale


@right(WEEK, "deberta_scores")
def deberta_by_rows(q, k, pos_q, pos_k):
    n, d, last = q.shape[2], q.shape[3], pos_k.shape[1] - 1
    span = (last + 1) // 2
    rows = []
    for i in range(n):
        delta = torch.tensor([max(0, min(last, i - j + span)) for j in range(n)])
        key = k + pos_k[:, delta]
        rows.append((q[:, :, i : i + 1] * key).sum(-1) + (pos_q[:, delta] * k).sum(-1))
    return torch.stack(rows, dim=2) * (3 * d) ** -0.5


@right(WEEK, "deberta_scores", 3.75)
def deberta_one_hot(q, k, pos_q, pos_k):
    n, span = q.shape[-2], pos_q.shape[-2] // 2
    rel = torch.arange(n)[:, None] - torch.arange(n)
    rel = torch.where(
        rel <= -span, torch.zeros_like(rel), torch.where(rel >= span, torch.full_like(rel, 2 * span - 1), rel + span)
    )
    pick = F.one_hot(rel, 2 * span).to(q.dtype)
    q, pos_q = q / (3 * q.shape[-1]) ** 0.5, pos_q / (3 * q.shape[-1]) ** 0.5
    return (
        torch.einsum("bhid,bhjd->bhij", q, k)
        + torch.einsum("bhid,htd,ijt->bhij", q, pos_k, pick)
        + torch.einsum("htd,bhjd,ijt->bhij", pos_q, k, pick)
    )


# ---- families -------------------------------------------------------------------------------------------------------

OFFSETS = ("query minus key", "top left", "absolute", "one off")


def _rel(n_queries, n_keys, mistakes):
    i = torch.arange(n_queries)[:, None] + (0 if "top left" in mistakes else n_keys - n_queries)
    rel = torch.arange(n_keys) - i
    rel = -rel if "query minus key" in mistakes else rel
    rel = rel.abs() if "absolute" in mistakes else rel
    return rel - 1 if "one off" in mistakes else rel


@family(
    WEEK,
    "relative_positions",
    _say(*OFFSETS, "turned", "causal offsets", "clamped offsets", "float offsets", "no error"),
)
def offsets_with(mistakes):
    def subject(n_queries, n_keys):
        if not 1 <= n_queries <= n_keys and "no error" not in mistakes:
            raise ValueError("sizes")
        rel = _rel(n_queries, n_keys, mistakes)
        rel = (
            rel.clamp(max=0)
            if "causal offsets" in mistakes
            else rel.clamp(-6, 6)
            if "clamped offsets" in mistakes
            else rel
        )
        rel = rel.float() if "float offsets" in mistakes else rel
        return rel.mT if "turned" in mistakes else rel

    return subject


@family(
    WEEK,
    "shaw_attention",
    _say(
        *OFFSETS,
        "no clip",
        "low end off by one",
        "high end off by one",
        "no value term",
        "value from keys",
        "no key term",
        "unscaled key term",
        "unscaled",
        "scaled twice",
        "value unweighted",
        "bias after softmax",
        "from the key",
        "over queries",
        "mask after softmax",
        "mask inverted",
        "mask ignored",
        "nan row",
    ),
)
def shaw_with(mistakes):
    def subject(q, k, v, rel_k, rel_v, mask=None):
        clip, root = len(rel_k) // 2, math.sqrt(q.shape[-1])
        low = -clip + ("low end off by one" in mistakes and clip > 0)
        high = clip - ("high end off by one" in mistakes and clip > 0)
        rel = _rel(q.shape[-2], k.shape[-2], mistakes)
        row = (rel if "no clip" in mistakes else rel.clamp(low, high)) + clip
        content, table = q @ k.mT, rel_k[row].to(q)
        position = (
            torch.einsum("bhjd,ijd->bhij", k, table)
            if "from the key" in mistakes
            else torch.einsum("bhid,ijd->bhij", q, table)
        )
        position = position * (0 if "no key term" in mistakes else 1 / root if "scaled twice" in mistakes else 1)
        scale = 1 if "unscaled" in mistakes else root
        scores = content / scale
        if "bias after softmax" not in mistakes:
            scores = scores + position / (1 if "unscaled key term" in mistakes else scale)
        hidden = None if mask is None or "mask ignored" in mistakes else mask if "mask inverted" in mistakes else ~mask
        if hidden is not None and "mask after softmax" not in mistakes:
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(-2 if "over queries" in mistakes else -1)
        weights = weights if "nan row" in mistakes and "mask inverted" not in mistakes else weights.nan_to_num()
        if hidden is not None and "mask after softmax" in mistakes:
            weights = weights.masked_fill(hidden, 0)
        if "bias after softmax" in mistakes:
            weights = weights + position / root
        values = rel_k if "value from keys" in mistakes else rel_v
        out = weights @ v
        if "value unweighted" in mistakes:
            out = out + values[row].sum(1)
        elif "no value term" not in mistakes:
            out = out + torch.einsum("bhij,ijd->bhid", weights, values[row])
        return out, weights

    return subject


SHIFTS = (
    "identity",
    "roll",
    "memory ignored",
    "to the right",
    "ascending",
    "one too far",
    "one too little",
    "axes flipped",
)


def _shifted(x, mistakes):
    n_queries, n_keys = x.shape[-2:]
    if "queries for keys" in mistakes:
        return F.pad(x, (1, 0)).reshape(*x.shape[:2], n_queries + 1, n_keys)[:, :, 1:]
    if "ascending" in mistakes:
        x = x.flip(-1)
    rows = []
    for i in range(n_queries):
        by = n_queries - 1 - i
        by = (
            0
            if "identity" in mistakes
            else i
            if "roll" in mistakes
            else n_keys - 1 - i
            if "memory ignored" in mistakes
            else by
        )
        by += ("one too far" in mistakes) - ("one too little" in mistakes)
        row = x[..., n_queries - 1 - i if "axes flipped" in mistakes else i, :]
        rows.append(row.roll(by if "to the right" in mistakes else -by, -1))
    return torch.stack(rows, -2)


@family(WEEK, "rel_shift", _say(*SHIFTS, "right padding", "first rows kept", "heads mixed", "view of memory"))
def shift_with(mistakes):
    def subject(x):
        if "view of memory" in mistakes and not x.is_contiguous():
            x = torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
        if "right padding" in mistakes or "first rows kept" in mistakes:
            n_queries, n_keys = x.shape[-2:]
            padded = F.pad(x, (0, 1) if "right padding" in mistakes else (1, 0)).reshape(
                *x.shape[:2], n_keys + 1, n_queries
            )
            y = (padded[:, :, :-1] if "first rows kept" in mistakes else padded[:, :, 1:]).reshape(x.shape)
        else:
            y = _shifted(x, mistakes)
        return y.transpose(0, 1).reshape(x.shape) if "heads mixed" in mistakes else y

    return subject


@family(
    WEEK,
    "transformer_xl_scores",
    _say(
        "biases swapped",
        "no content bias",
        "no position bias",
        "one bias",
        "both biases",
        "bias of one head",
        "bias by sequence",
        "r descending",
        "unscaled",
        "unscaled position",
        "no position term",
        "r of one head",
        "top left distance",
        "key side",
        "d_model scale",
        "offset for distance",
        *SHIFTS[:4],
        "queries for keys",
    ),
)
def xl_with(mistakes):
    def subject(q, k, r, content_bias, position_bias):
        n_queries, n_keys, root = q.shape[-2], k.shape[-2], math.sqrt(q.shape[-1])
        u, v = (position_bias, content_bias) if "biases swapped" in mistakes else (content_bias, position_bias)
        u, v = (u + v, u + v) if "both biases" in mistakes else (u, u) if "one bias" in mistakes else (u, v)
        u, v = u * ("no content bias" not in mistakes), v * ("no position bias" not in mistakes)
        if "bias of one head" in mistakes:
            u, v = u[:1], v[:1]
        place = None if "bias by sequence" in mistakes else (slice(None), None)
        u, v = (b if place is None else b[place] for b in (u, v))
        r = r.flip(1) if "r descending" in mistakes else r
        r = r[:1].expand_as(r) if "r of one head" in mistakes else r
        if mistakes & {*SHIFTS, "queries for keys"}:
            position = _shifted((q + v) @ r.flip(1).mT, mistakes)
        else:
            rel = _rel(n_queries, n_keys, {"top left"} if "top left distance" in mistakes else set())
            distance = (-rel if "offset for distance" not in mistakes else rel) % n_keys
            if "key side" in mistakes:
                position = torch.einsum("bhjd,hijd->bhij", k + v, r[:, distance])
            else:
                position = torch.einsum("bhid,hijd->bhij", q + v, r[:, distance])
        position = position * ("no position term" not in mistakes)
        scale = 1 if "unscaled" in mistakes else root * math.sqrt(q.shape[1]) if "d_model scale" in mistakes else root
        return ((q + u) @ k.mT) / scale + position / (1 if "unscaled position" in mistakes else scale)

    return subject


BUCKETS = (
    "sign",
    "no sides",
    "zero is ahead",
    "ceil",
    "round",
    "absolute when causal",
    "no cap",
    "sizes ignored",
    "half when causal",
    "whole when both",
    "linear",
    "log base",
    "log of m",
    "exact half",
    "exact end",
    "cap one low",
)


def _bucket(rel, two_sides, num_buckets, max_distance, mistakes):
    if "sizes ignored" in mistakes:
        num_buckets, max_distance = 32, 128
    rel = -rel if "sign" in mistakes else rel
    side = num_buckets // 2 if two_sides or "half when causal" in mistakes else num_buckets
    m = rel.abs() if two_sides or "absolute when causal" in mistakes else (-rel).clamp(min=0)
    size = num_buckets if "whole when both" in mistakes else side
    e = max(size // (4 if "exact half" in mistakes else 2), 1)
    ratio = torch.log(m.clamp(min=1).double() / e) / math.log(max_distance / e)
    if "linear" in mistakes:
        ratio = (m - e).double() / (max_distance - e)
    elif "log base" in mistakes:
        ratio = torch.log(m.clamp(min=1).double() / e) / math.log2(max_distance / e)
    elif "log of m" in mistakes:
        ratio = torch.log(m.clamp(min=1).double()) / math.log(max_distance)
    rounding = torch.ceil if "ceil" in mistakes else torch.round if "round" in mistakes else torch.floor
    far = e + rounding(ratio * (size - e)).long()
    far = far if "no cap" in mistakes else far.clamp(max=size - (2 if "cap one low" in mistakes else 1))
    near = torch.where(m <= e if "exact end" in mistakes else m < e, m, far)
    if not two_sides or "no sides" in mistakes:
        return near
    return near + side * (rel >= 0 if "zero is ahead" in mistakes else rel > 0)


@family(WEEK, "t5_bucket", _say(*BUCKETS, "float buckets"))
def bucket_with(mistakes):
    def subject(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
        bucket = _bucket(relative_position, bidirectional, num_buckets, max_distance, mistakes)
        return bucket.float() if "float buckets" in mistakes else bucket

    return subject


@family(
    WEEK,
    "t5_attention",
    _say(
        "divided",
        "both sided when causal",
        "table turned",
        "bias reshaped",
        "after softmax",
        "no bias",
        "bias negative",
        "no mask",
        "mask after softmax",
        "always causal",
        "mask top left",
        "128 written in",
        "strict",
        "clobbered",
        "one head",
        "over queries",
        *OFFSETS,
        *BUCKETS[:6],
    ),
)
def t5_with(mistakes):
    def subject(q, k, v, table, is_causal=False, max_distance=128):
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        rel = _rel(n_queries, n_keys, mistakes)
        table = table.reshape(table.shape[::-1]).T if "table turned" in mistakes else table
        bucket = _bucket(
            rel,
            not is_causal or "both sided when causal" in mistakes,
            len(table),
            128 if "128 written in" in mistakes else max_distance,
            mistakes,
        )
        bias = table[bucket]
        bias = bias.reshape(-1, n_queries, n_keys) if "bias reshaped" in mistakes else bias.permute(2, 0, 1)
        bias = bias[:1] if "one head" in mistakes else -bias if "bias negative" in mistakes else bias
        scores = q @ k.mT / (math.sqrt(q.shape[-1]) if "divided" in mistakes else 1)
        scores = scores if "no bias" in mistakes or "after softmax" in mistakes else scores + bias
        late = torch.zeros(n_queries, n_keys, dtype=torch.bool)
        if (is_causal or "always causal" in mistakes) and "no mask" not in mistakes:
            start = 0 if "mask top left" in mistakes else n_keys - n_queries
            hidden = torch.ones(n_queries, n_keys, dtype=torch.bool).triu(start + ("strict" not in mistakes))
            late = hidden & ("mask after softmax" in mistakes)
            scores = scores.masked_fill(hidden & ~late, 0 if "clobbered" in mistakes else -math.inf)
        weights = scores.softmax(-2 if "over queries" in mistakes else -1).nan_to_num()
        weights = weights.masked_fill(late, 0)
        weights = weights + bias if "after softmax" in mistakes else weights
        return weights @ v, weights

    return subject


@family(
    WEEK,
    "deberta_scores",
    _say(
        "other row",
        "rows turned",
        "sqrt d",
        "sqrt 2d",
        "tables swapped",
        "no c2p",
        "no p2c",
        "no content",
        "p2p",
        "clamp low",
        "clamp high",
        "wrapped",
        "no shift",
        "one table row off",
        "heads ignored",
        "only content scaled",
        "unscaled",
    ),
)
def deberta_with(mistakes):
    def subject(q, k, pos_q, pos_k):
        n, d = q.shape[-2:]
        span = pos_k.shape[1] // 2
        rel = torch.arange(n)[:, None] - torch.arange(n)
        rel = -rel if "rows turned" in mistakes else rel
        row = rel.abs() if "no shift" in mistakes else rel + span - ("one table row off" in mistakes)
        low, high = int("clamp low" in mistakes), 2 * span - (2 if "clamp high" in mistakes else 1)
        row = row % (2 * span) if "wrapped" in mistakes else row.clamp(min(low, high), high)
        if "tables swapped" in mistakes:
            pos_q, pos_k = pos_k, pos_q
        if "heads ignored" in mistakes:
            pos_q, pos_k = pos_q[:1].expand_as(pos_q), pos_k[:1].expand_as(pos_k)
        other = row.T if "other row" in mistakes else row
        c2c = (q @ k.mT) * ("no content" not in mistakes)
        c2p = torch.einsum("bhid,hijd->bhij", q, pos_k[:, row]) * ("no c2p" not in mistakes)
        p2c = torch.einsum("bhjd,hijd->bhij", k, pos_q[:, other]) * ("no p2c" not in mistakes)
        scale = math.sqrt(d * (1 if "sqrt d" in mistakes else 2 if "sqrt 2d" in mistakes else 3))
        scale = 1 if "unscaled" in mistakes else scale
        positions = c2p + p2c + ((pos_q * pos_k).sum(-1)[:, row] if "p2p" in mistakes else 0)
        return c2c / scale + positions / (1 if "only content scaled" in mistakes else scale)

    return subject


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    SAYS[name]
    for name in (
        "query minus key", "top left", "absolute", "one off", "unscaled", "over queries", "roll", "memory ignored",
        "queries for keys", "to the right", "sign", "no sides", "zero is ahead", "ceil", "round", "absolute when causal",
    )
)
