"""Week 1, attention and permutations: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week1_permutation_equivariance"

DIAGNOSES = {
    # attention
    "unscaled": "The scores are not divided by sqrt(head_dim).",
    "by d": "The scores are divided by head_dim; divide by its square root.",
    "d_model scale": "The scores are divided by the square root of heads * head_dim; the scale belongs to head_dim, the "
                     "length of one query.",
    "n_keys scale": "The scores are divided by the square root of the number of keys; the scale belongs to head_dim.",
    "width of v": "The scores are divided by the square root of the width of v; the scale belongs to the width of q and k.",
    "multiplied": "The scores are multiplied by sqrt(head_dim); divide by it.",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys, the last one.",
    "over heads": "The softmax runs over the wrong axis; it belongs on the axis of the keys, the last one.",
    "scale after softmax": "You divide by sqrt(head_dim) after the softmax; it belongs to the scores, before it.",
    "no softmax": "The scores are divided by their sum; a softmax takes their exponentials first.",
    "keys for values": "The weights are applied to the keys; the output is the weighted mean of the values.",
    "turned weights": "The weights are transposed before they meet the values: row i of the weights belongs to output i.",
    "order of results": "The two results come in the wrong order: return (out, weights).",
    "scores returned": "You return the scores instead of the weights: return (out, weights), after the softmax.",
    "out only": "You return one thing; the exercise asks for two: (out, weights).",
    "inverted": "Your mask is inverted: True means 'may attend', not 'hide'.",
    "mask ignored": "The mask has no effect on your result.",
    "mask after softmax": "You set weights to zero after the softmax, so that rows no longer add up to 1: hide keys "
                          "before the softmax.",
    "renormalised": "You set weights to zero after the softmax and normalise again: when a hidden key has a far larger "
                    "score, nothing is left of the others. Hide keys before the softmax.",
    "hidden scores zero": "Hidden keys get the score 0, which is a score like any other; hide them with -inf.",
    "added once": "The mask is added to the scores as a number: 0 and 1 hide nothing. Hidden keys need the score -inf.",
    "turned mask": "Your mask is used with queries and keys exchanged.",
    "first sequence": "You use the first sequence's mask for the whole batch; it must broadcast to (batch, heads, n_queries, "
                      "n_keys).",
    "mask axes": "Your mask gains or loses an axis on the way; as it comes it broadcasts, from the last axis backwards. "
                 "(any() keeps the axis with keepdim=True.)",
    "nan rows": "A query that may attend to no key gives NaN (0/0); its weights and output must be zero.",
    "uniform rows": "A query that may attend to no key gets equal weights for keys that are hidden: a large negative number "
                    "instead of -inf does that. Its weights and output must be zero.",
    "nan gradient": "Your values are right, but where a query may attend to no key the gradient is NaN: a NaN was replaced "
                    "after it had arisen. Give such rows finite scores before the softmax.",
    "overflow": "In float16 the product of q and k overflows before you divide by sqrt(head_dim): divide q first, or compute "
                "the scores in float32.",
    "-1e9": "-1e9 does not fit into float16; use -inf, or compute in float32.",
    "-1e4": "Hidden keys get a low number as their score, and a visible score can be lower still; use -inf.",
    "exp": "Your softmax takes exp of large scores, which overflows: use torch.softmax, or subtract the largest score of "
           "each row first.",
    "float32 out": "Your results are always float32; they must have the dtype of q.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "in place": "Your function overwrites an argument; it must work on new tensors.",
    # the gap
    "inverse": "You index both sides with the inverse permutation: right for a swap, another one otherwise. Index with perm.",
    "inverse outside": "One output is permuted the wrong way round: f(x[:, perm]) is compared with f(x)[:, perm]. (What undoes "
                       "perm is its inverse.)",
    "inverse inside": "You feed f with x in the order of the inverse permutation; both sides are indexed with perm itself.",
    "input only": "You permute the input only: f(x[:, perm]) - f(x) measures invariance, not equivariance.",
    "output only": "You permute the output only: the input of one side must be permuted too.",
    "undone once too often": "One side is put back into the old order and the other one permuted; do one of the two.",
    "mean": "You take the mean of the differences; the exercise asks for the largest.",
    "signed": "You take the largest difference without its absolute value; a negative one can be larger.",
    "norm": "You take a norm or a sum over all differences; the exercise asks for the single largest absolute difference.",
    "relative": "You divide by the size of the output; the exercise asks for the plain largest difference.",
    "relative norm": "You divide one norm by another; the exercise asks for the single largest absolute difference, as it is.",
    "channels": "You permute the channels (the last axis); perm reorders the tokens, axis 1.",
    "batch axis": "You permute the sequences of the batch (axis 0); perm reorders the tokens, axis 1.",
    "one by one": "You call f sequence by sequence; it must see the whole batch at once.",
    "first sequence only": "You look at the first sequence of the batch only.",
    "tensor": "Your result is not a Python float: use .item().",
    "yes or no": "You return whether the two sides agree; the exercise asks how far they are apart.",
    "x in place": "Your function reorders x itself; it must work on new tensors.",
    # causal mask
    "top left": "Your mask is aligned at the top left: the queries are the last n_queries positions, so row r is at "
                "position n_keys - n_queries + r.",
    "strict": "Your mask hides the token itself; position i sees the keys 0..i.",
    "upper": "Your mask is the upper triangle: it lets a token see the future.",
    "upper alone": "Your mask lets a token see later positions only; it may see itself and earlier ones.",
    "turned": "Your mask has one row per key; it must have one row per query, (n_queries, n_keys).",
    "square": "Your mask is always square; with a cache there are fewer queries than keys.",
    "floats": "Your mask holds numbers; a boolean tensor is asked for.",
    "bias": "Your mask holds 0 and -inf to be added to the scores; a boolean tensor is asked for.",
    "all": "Your mask lets every query see everything.",
    "one too many": "Your mask lets a token see the one after it.",
    "cache hidden": "Your mask hides the keys in the cache; they are in the past of all queries.",
}


# ---- 1.1 scaled_dot_product_attention -------------------------------------------------------------------------------


@right(WEEK, "scaled_dot_product_attention")
def attention_plain(q, k, v, mask=None):
    d = q.shape[-1]
    scores = (q.float() / math.sqrt(d)) @ k.float().transpose(-2, -1)
    if mask is not None:
        empty = ~mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~mask, float("-inf"))
        scores = scores.masked_fill(empty, 0.0)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(empty, 0.0)
    out = weights @ v.float()
    return out.to(q.dtype), weights.to(q.dtype)


SCALED = "(q.float() / math.sqrt(d)) @"
edited(attention_plain, "attention_whole_root", 0.875, "You take the whole-number square root of head_dim; it is math.sqrt(head_dim).",
       (SCALED, "(q.float() / math.isqrt(d)) @"))
edited(attention_plain, "attention_divided_by_two", 0.875, "You divide the scores by 2, whatever head_dim is; that is its square root for head_dim 4 alone.",
       (SCALED, "(q.float() / 2) @"))
HIDDEN = 'scores = scores.masked_fill(~mask, float("-inf"))'
NOT_EMPTY = "        scores = scores.masked_fill(empty, 0.0)\n"
ZEROED = '''    if mask is not None:
        weights = weights.masked_fill(empty, 0.0)
'''
RETURNED = "return out.to(q.dtype), weights.to(q.dtype)"

edited(attention_plain, "attention_with_view", 3.875,
       "Right for contiguous tensors, wrong for one that is not. (`view` needs contiguous memory, `reshape` does not.)",
       ("scores = (q.float() / math.sqrt(d)) @ k.float().transpose(-2, -1)",
        "rows = (q.float() / math.sqrt(d)).view(-1, *q.shape[2:])\n"
        "    scores = (rows @ k.float().view(-1, *k.shape[2:]).mT).view(*q.shape[:3], k.shape[-2])"))
edited(attention_plain, "attention_exp_of_hidden", 3.25,
       "Where a hidden key has by far the highest score, the values are right, but the gradient is not finite: its exponential "
       "overflows. Hide keys before the softmax.",
       ("        scores = scores.masked_fill(~mask, float(\"-inf\"))\n        scores = scores.masked_fill(empty, 0.0)\n", ""),
       ("    weights = torch.softmax(scores, dim=-1)\n",
        '''    else:
        mask, empty = torch.ones((), dtype=torch.bool), torch.zeros((), dtype=torch.bool)
    top = scores.detach().masked_fill(~mask & ~empty, float("-inf")).amax(dim=-1, keepdim=True)
    shown = torch.where(mask, torch.exp(scores - top), torch.zeros_like(scores))
    weights = shown / shown.sum(dim=-1, keepdim=True).masked_fill(empty, 1.0)
'''),
       ("    if mask is not None:\n        weights = weights.masked_fill(empty, 0.0)\n", ""))
edited(attention_plain, "attention_unscaled", 0, DIAGNOSES["unscaled"], (SCALED, "q.float() @"))
edited(attention_plain, "attention_divided_by_d", 0, DIAGNOSES["by d"], ("/ math.sqrt(d)", "/ d"))
edited(attention_plain, "attention_d_model_scale", 0, DIAGNOSES["d_model scale"], ("math.sqrt(d)", "math.sqrt(q.shape[1] * d)"))
edited(attention_plain, "attention_n_keys_scale", 0, DIAGNOSES["n_keys scale"], ("d = q.shape[-1]", "d = k.shape[-2]"))
edited(attention_plain, "attention_width_of_v", 0, DIAGNOSES["width of v"], ("d = q.shape[-1]", "d = v.shape[-1]"))
edited(attention_plain, "attention_multiplied", 0, DIAGNOSES["multiplied"], ("/ math.sqrt(d)", "* math.sqrt(d)"))
edited(attention_plain, "attention_over_queries", 0, DIAGNOSES["over queries"], ("dim=-1)\n    if", "dim=-2)\n    if"))
edited(attention_plain, "attention_over_heads", 0, DIAGNOSES["over heads"], ("dim=-1)\n    if", "dim=1)\n    if"))
edited(attention_plain, "attention_scaled_after_softmax", 0, DIAGNOSES["scale after softmax"], (SCALED, "q.float() @"),
       ("torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=-1) / math.sqrt(d)"))
edited(attention_plain, "attention_no_softmax", 0, DIAGNOSES["no softmax"],
       ("torch.softmax(scores, dim=-1)", "scores / scores.sum(dim=-1, keepdim=True)"))
edited(attention_plain, "attention_of_the_keys", 0, DIAGNOSES["keys for values"], ("@ v.float()", "@ k.float()"))
edited(attention_plain, "attention_weights_turned", 0, DIAGNOSES["turned weights"], ("weights @ v", "weights.mT @ v"))
edited(attention_plain, "attention_results_exchanged", 0, DIAGNOSES["order of results"], (RETURNED, "return weights.to(q.dtype), out.to(q.dtype)"))
edited(attention_plain, "attention_returns_scores", 0, DIAGNOSES["scores returned"], (RETURNED, "return out.to(q.dtype), scores.to(q.dtype)"))
edited(attention_plain, "attention_returns_out_only", 0, DIAGNOSES["out only"], (RETURNED, "return out.to(q.dtype)"))
edited(attention_plain, "attention_mask_inverted", 1.5, DIAGNOSES["inverted"], ("masked_fill(~mask,", "masked_fill(mask,"),
       ("~mask.any(dim=-1, keepdim=True)", "mask.all(dim=-1, keepdim=True)"))
edited(attention_plain, "attention_mask_ignored", 1.5, DIAGNOSES["mask ignored"], ("    if mask is not None:\n        empty", "    mask = None\n    if mask is not None:\n        empty"))
edited(attention_plain, "attention_mask_after_softmax", 1.5, DIAGNOSES["mask after softmax"], (HIDDEN, "scores = scores + 0"),
       ("weights.masked_fill(empty, 0.0)", "weights * mask"))
edited(attention_plain, "attention_renormalised", 3.25, DIAGNOSES["renormalised"], (HIDDEN, "scores = scores + 0"),
       ("weights.masked_fill(empty, 0.0)", "weights * mask\n        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)"))
edited(attention_plain, "attention_hidden_scores_zero", 1.5, DIAGNOSES["hidden scores zero"], (HIDDEN, "scores = scores * mask"))
edited(attention_plain, "attention_mask_added", 1.5, DIAGNOSES["added once"], (HIDDEN, "scores = scores + mask"))
edited(attention_plain, "attention_mask_turned", 1.5, DIAGNOSES["turned mask"],
       ("        empty =", "        mask = mask.mT if mask.ndim > 1 else mask\n        empty ="))
edited(attention_plain, "attention_first_mask", 2.25, DIAGNOSES["first sequence"],
       ("        empty =", "        mask = mask[:1] if mask.ndim == 4 else mask\n        empty ="))
edited(attention_plain, "attention_mask_given_heads", 3, DIAGNOSES["mask axes"],
       ("        empty =", "        mask = mask.unsqueeze(1) if mask.ndim == 3 else mask\n        empty ="))
edited(attention_plain, "attention_nan_rows", 3.25, DIAGNOSES["nan rows"], (NOT_EMPTY, ""), (ZEROED, ""))
edited(attention_plain, "attention_uniform_rows", 3.25, DIAGNOSES["uniform rows"], ('float("-inf")', "-1e9"), (NOT_EMPTY, ""), (ZEROED, ""))
edited(attention_plain, "attention_nan_gradient", 3.125, DIAGNOSES["nan gradient"], (NOT_EMPTY, ""),
       (HIDDEN, 'scores = scores + torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))'),
       ("weights.masked_fill(empty, 0.0)", "torch.nan_to_num(weights)"))
edited(attention_plain, "attention_overflow", 3.25, DIAGNOSES["overflow"],
       (SCALED, "q @"), ("k.float().transpose(-2, -1)", "k.transpose(-2, -1) / math.sqrt(d)"), ("weights @ v.float()", "weights @ v"))
edited(attention_plain, "attention_1e9_in_half", 3.25, DIAGNOSES["-1e9"], (SCALED, "(q / math.sqrt(d)) @"), ("k.float()", "k"),
       ("v.float()", "v"), ('float("-inf")', "-1e9"))
edited(attention_plain, "attention_1e4", 3.25, DIAGNOSES["-1e4"], (SCALED, "(q / math.sqrt(d)) @"), ("k.float()", "k"),
       ("v.float()", "v"), ('float("-inf")', "-1e4"))
edited(attention_plain, "attention_exp_by_hand", 3.25, DIAGNOSES["exp"],
       ("torch.softmax(scores, dim=-1)", "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"))
edited(attention_plain, "attention_always_float32", 3.875, DIAGNOSES["float32 out"], (RETURNED, "return out, weights"))
edited(attention_plain, "attention_float32_weights", 3.875, "Your weights are always float32; they must have the dtype of q.",
       (RETURNED, "return out.to(q.dtype), weights"))
edited(attention_plain, "attention_detached", 3.875, DIAGNOSES["detached"], (RETURNED, "return out.detach().to(q.dtype), weights.detach().to(q.dtype)"))
edited(attention_plain, "attention_in_place", 3.875, DIAGNOSES["in place"],
       ("        empty =", "        mask.logical_not_().logical_not_()\n        q.data.mul_(1.25)\n        empty ="))


@wrong(WEEK, "scaled_dot_product_attention", 2.5, DIAGNOSES["uniform rows"])
def attention_tutorial(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(dim=-1)
    return torch.matmul(weights, v), weights


@wrong(WEEK, "scaled_dot_product_attention", 2.5, DIAGNOSES["nan rows"])
def attention_tutorial_inf(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    weights = F.softmax(scores, dim=-1)
    return weights @ v, weights


@wrong(WEEK, "scaled_dot_product_attention", 0, DIAGNOSES["over heads"])
def attention_over_heads_finite(q, k, v, mask=None):
    scores = (q.float() / math.sqrt(q.shape[-1])) @ k.float().mT
    if mask is None:
        weights = scores.softmax(dim=1)
    else:
        weights = scores.masked_fill(~mask, -1e30).softmax(dim=1).masked_fill(~mask, 0.0)
    return (weights @ v.float()).to(q.dtype), weights.to(q.dtype)


@wrong(WEEK, "scaled_dot_product_attention", 0, DIAGNOSES["over queries"])
def attention_over_queries_finite(q, k, v, mask=None):
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if mask is None:
        weights = scores.softmax(dim=2)
    else:
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=2) * mask
    return weights @ v, weights


@right(WEEK, "scaled_dot_product_attention")
def attention_einsum(q, k, v, mask=None):
    scores = torch.einsum("bhid,bhjd->bhij", q * q.shape[-1] ** -0.5, k)
    if mask is None:
        weights = F.softmax(scores, dim=-1)
    else:
        lowest = torch.finfo(scores.dtype).min
        weights = F.softmax(torch.where(mask, scores, lowest), dim=-1) * mask
    return torch.einsum("bhij,bhjd->bhid", weights, v), weights


@right(WEEK, "scaled_dot_product_attention", 3.875)
def attention_own_softmax(q, k, v, mask=None):
    scores = torch.matmul(q.double(), k.double().transpose(2, 3)) / q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones((), dtype=torch.bool)
    hidden = ~mask.expand(scores.shape)
    largest = scores.masked_fill(hidden, -1e300).max(dim=-1, keepdim=True).values.detach()
    e = torch.exp((scores - largest).masked_fill(hidden, -1e300))
    e = e.masked_fill(hidden, 0.0)
    total = e.sum(dim=-1, keepdim=True)
    weights = e / torch.where(total > 0, total, 1.0)
    return (weights @ v.double()).to(q.dtype), weights.to(q.dtype)


@right(WEEK, "scaled_dot_product_attention", 3.875)
def attention_shared_scale(q, k, v, mask=None):
    root = q.shape[-1] ** 0.25
    scores = (q / root) @ (k / root).mT  # half of the scale on each side
    if mask is not None:
        empty = mask.logical_not().all(-1, keepdim=True)
        bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(mask.logical_not() & ~empty, -math.inf)
        scores = scores + bias
    weights = scores.softmax(-1)
    if mask is not None:
        weights = torch.where(empty, torch.zeros_like(weights), weights)
    return weights @ v, weights


@right(WEEK, "scaled_dot_product_attention", 3.875)
def attention_with_pytorch(q, k, v, mask=None):
    batch, heads, _, _ = q.shape
    unit = torch.eye(k.shape[-2], dtype=q.dtype).expand(batch, heads, -1, -1)
    if mask is not None:
        mask = mask.expand(batch, heads, q.shape[-2], k.shape[-2])
    weights = F.scaled_dot_product_attention(q, k, unit, attn_mask=mask)
    return weights @ v, weights


@right(WEEK, "scaled_dot_product_attention", 3.875)
def attention_loop(q, k, v, mask=None):
    b, h, n, d = q.shape
    m = k.shape[2]
    allowed = torch.ones(b, h, n, m, dtype=torch.bool) if mask is None else torch.broadcast_to(mask, (b, h, n, m))
    rows = []
    for i in range(n):
        s = ((q[:, :, i : i + 1].float() * k.float()).sum(-1) / math.sqrt(d))
        ok = allowed[:, :, i]
        any_ok = ok.any(-1, keepdim=True)
        s = s.masked_fill(~ok & any_ok, -math.inf)
        rows.append(torch.softmax(s, -1) * any_ok)
    weights = torch.stack(rows, dim=2)
    return (weights @ v.float()).type_as(q), weights.type_as(q)


# ---- 1.2 attention_by_hand ------------------------------------------------------------------------------------------

NAMES = ("w_0_0", "w_0_1", "w_0_2", "out_0_0", "out_0_1", "swapped_w_0_1", "swapped_out_0_0", "swapped_out_1_0")


def _hand(*values):
    return dict(zip(NAMES, values, strict=True))


by_hand = _hand(0.2447285, 0.0900306, 0.6652410, 1.1546979, -0.3951492, 0.6652410, 1.1546979, 1.2095470)

numbers(WEEK, "attention_by_hand", "seven_digits", by_hand)
numbers(WEEK, "attention_by_hand", "four_digits", _hand(0.2447, 0.09003, 0.6652, 1.155, -0.3951, 0.6652, 1.155, 1.210))
numbers(WEEK, "attention_by_hand", "python", _hand(
    math.e / (math.e + 1 + math.e**2), 1 / (math.e + 1 + math.e**2), math.e**2 / (math.e + 1 + math.e**2),
    (2 * math.e + math.e**2) / (math.e + 1 + math.e**2), (3 - math.e**2) / (math.e + 1 + math.e**2),
    math.e**2 / (math.e + 1 + math.e**2), (2 * math.e + math.e**2) / (math.e + 1 + math.e**2), 1.20954702))
numbers(WEEK, "attention_by_hand", "unscaled", _hand(0.11731, 0.015876, 0.86681, 1.1014, -0.81919, 0.86681, 1.1014, 1.2244),
        0, "Your dot products are not divided by sqrt(4) = 2.")
numbers(WEEK, "attention_by_hand", "over_queries", _hand(0.30720, 0.18632, 0.38365, 0.99804, 0.17532, 0.38365, 0.99804, 1.3966),
        0, "Your softmax runs over the columns: each query's weights, a row, must add up to 1.")
numbers(WEEK, "attention_by_hand", "over_queries_unscaled",
        _hand(0.24473, 0.090031, 0.42232, 0.91178, -0.15223, 0.42232, 0.91178, 1.7528),
        0, "Your softmax runs over the columns (a row must add up to 1), and the dot products are not divided by sqrt(4).")
numbers(WEEK, "attention_by_hand", "divided_by_d", _hand(0.30720, 0.18632, 0.50648, 1.1209, 0.052491, 0.50648, 1.1209, 1.1361),
        0, "Your dot products are divided by 4; divide by its square root, 2.")
numbers(WEEK, "attention_by_hand", "multiplied", _hand(0.01798, 0.00032932, 0.98169, 1.0177, -0.98070, 0.98169, 1.0177, 1.1168),
        0, "Your dot products are multiplied by sqrt(4); divide by it.")
numbers(WEEK, "attention_by_hand", "root_of_tokens",
        _hand(0.22280, 0.070217, 0.70698, 1.1526, -0.49633, 0.70698, 1.1526, 1.2212),
        0, "Your dot products are divided by the square root of the number of tokens; divide by that of d = 4.")
numbers(WEEK, "attention_by_hand", "no_exponentials", _hand(1 / 3, 0.0, 2 / 3, 4 / 3, -2 / 3, 2 / 3, 4 / 3, 1.25),
        0, "Your weights are the scores divided by their sum; a softmax takes the exponentials first.")
numbers(WEEK, "attention_by_hand", "not_normalised", _hand(2.7183, 1.0, 7.3891, 12.826, -4.3891, 7.3891, 12.826, 16.352),
        0, "Your weights are exponentials that do not add up to 1: divide by their sum.")
numbers(WEEK, "attention_by_hand", "scores_for_weights", _hand(1.0, 0.0, 2.0, 4.0, -2.0, 2.0, 4.0, 5.0),
        0, "Your weights are the scaled scores; the softmax is missing.")
numbers(WEEK, "attention_by_hand", "roles_exchanged",
        _hand(0.30720, 0.18632, 0.50648, 1.1209, 0.052491, 0.50648, 1.1209, 1.1510),
        0, "You compare key 0 with all queries; the exercise asks for query 0 with all keys.")
numbers(WEEK, "attention_by_hand", "keys_for_values", by_hand | {
    "out_0_0": 0.90997, "out_0_1": 2.2405, "swapped_out_0_0": 0.90997, "swapped_out_1_0": 0.87805,
}, 1, "Your output is a mean of the keys; it is the weighted mean of the values.")
numbers(WEEK, "attention_by_hand", "nothing_moved", by_hand | {"swapped_w_0_1": 0.090031, "swapped_out_1_0": 0.87912},
        2, "You left everything in its place: after the swap the former token 2 is at position 1.")
numbers(WEEK, "attention_by_hand", "values_left_behind", by_hand | {"swapped_out_0_0": 0.57952, "swapped_out_1_0": 0.67985},
        2, "Your values stayed behind: a token moves with its query, its key and its value.")
numbers(WEEK, "attention_by_hand", "values_alone_moved",
        by_hand | {"swapped_w_0_1": 0.090031, "swapped_out_0_0": 0.57952, "swapped_out_1_0": 0.67985},
        2, "Your queries and keys stayed behind: a token moves with its query, its key and its value.")
numbers(WEEK, "attention_by_hand", "queries_left_behind", by_hand | {"swapped_out_1_0": 0.87912},
        2, "Your queries stayed behind: after the swap the query at position 1 is that of the former token 2.")
numbers(WEEK, "attention_by_hand", "second_channel", by_hand | {"swapped_out_1_0": -0.18071},
        2, "Your last number is the second channel; the exercise asks for the first.")
numbers(WEEK, "attention_by_hand", "outputs_crossed", by_hand | {"swapped_out_0_0": 1.2095470, "swapped_out_1_0": 1.1546979},
        2, "Your last two outputs are exchanged: position 0 keeps its token, so its output stays as it was.")
numbers(WEEK, "attention_by_hand", "two_digits", _hand(0.24, 0.09, 0.67, 1.2, -0.40, 0.67, 1.2, 1.2),
        0, ROUNDED_TOO_FAR)
numbers(WEEK, "attention_by_hand", "two_decimals", _hand(0.24, 0.09, 0.67, 1.15, -0.40, 0.67, 1.15, 1.21), 0, ROUNDED_TOO_FAR)
numbers(WEEK, "attention_by_hand", "one_slip", by_hand | {"out_0_1": -0.3751492}, 2,
        "Only `out_0_1` is wrong; your other numbers are right. Compute it again; it may only be a typing slip.")
numbers(WEEK, "attention_by_hand", "three_digits", _hand(0.245, 0.090, 0.665, 1.15, -0.395, 0.665, 1.15, 1.21),
        0, ROUNDED_TOO_FAR)


# ---- 1.3 equivariance_gap -------------------------------------------------------------------------------------------


@right(WEEK, "equivariance_gap")
def gap_plain(f, x, perm):
    first = f(x[:, perm])
    last = f(x)[:, perm]
    return (first - last).abs().max().item()


edited(gap_plain, "gap_length_per_token", 0, "You take the length of each token's difference; the largest single entry counts.",
       ("(first - last).abs().max()", "(first - last).flatten(2).norm(dim=-1).max()"))
edited(gap_plain, "gap_inverse_outside", 1.5, DIAGNOSES["inverse outside"], ("f(x)[:, perm]", "f(x)[:, perm.argsort()]"))
edited(gap_plain, "gap_inverse_inside", 1.5, DIAGNOSES["inverse inside"], ("f(x[:, perm])", "f(x[:, torch.argsort(perm)])"))
edited(gap_plain, "gap_inverse_on_both_sides", 2, DIAGNOSES["inverse"],
       ("    first", "    perm = torch.argsort(perm)\n    first"))
edited(gap_plain, "gap_of_invariance", 0, DIAGNOSES["input only"], ("f(x)[:, perm]", "f(x)"))
edited(gap_plain, "gap_output_only", 0, DIAGNOSES["output only"], ("f(x[:, perm])", "f(x)"))
edited(gap_plain, "gap_one_input", 0, "Both of your sides call f with the same input: one is f(x[:, perm]), the other f(x)[:, perm].",
       ("last = f(x)[:, perm]", "last = f(x[:, perm])[:, perm]"))
edited(gap_plain, "gap_put_back_with_perm", 1.5, DIAGNOSES["inverse outside"],
       ("first = f(x[:, perm])", "first = f(x[:, perm])[:, perm]"), ("f(x)[:, perm]", "f(x)"))
edited(gap_plain, "gap_mean", 0, DIAGNOSES["mean"], (".max()", ".mean()"))
edited(gap_plain, "gap_signed", 0, DIAGNOSES["signed"], (".abs()", ""))
edited(gap_plain, "gap_signed_other_way", 0, DIAGNOSES["signed"], ("(first - last).abs()", "(last - first)"))
edited(gap_plain, "gap_norm", 0, DIAGNOSES["norm"], (".abs().max()", ".norm()"))
edited(gap_plain, "gap_sum", 0, DIAGNOSES["norm"], (".abs().max()", ".abs().sum()"))
edited(gap_plain, "gap_relative", 0, DIAGNOSES["relative"], (".max().item()", ".max().item() / last.abs().max().item()"))
edited(gap_plain, "gap_relative_norm", 0, DIAGNOSES["relative norm"],
       (".abs().max().item()", ".norm().item() / last.norm().item()"))
edited(gap_plain, "gap_permutes_difference", 0, DIAGNOSES["input only"], ("f(x)[:, perm]", "f(x)"),
       ("(first - last)", "(first - last)[:, perm]"))
edited(gap_plain, "gap_of_the_channels", 0, DIAGNOSES["channels"], ("f(x[:, perm])", "f(x[..., perm])"), ("f(x)[:, perm]", "f(x)[..., perm]"))
edited(gap_plain, "gap_of_the_batch", 0, DIAGNOSES["batch axis"], ("f(x[:, perm])", "f(x[perm])"), ("f(x)[:, perm]", "f(x)[perm]"))
edited(gap_plain, "gap_first_sequence", 2.5, DIAGNOSES["first sequence only"], ("(first - last)", "(first - last)[0]"))
edited(gap_plain, "gap_as_tensor", 2.75, DIAGNOSES["tensor"], (".item()", ""))
edited(gap_plain, "gap_moves_x", 2.75, DIAGNOSES["x in place"],
       ("    first = f(x[:, perm])\n    last = f(x)[:, perm]", "    last = f(x)[:, perm]\n    x[:] = x[:, perm]\n    first = f(x)"))
edited(gap_plain, "gap_yes_or_no", 0, DIAGNOSES["yes or no"], ("(first - last).abs().max().item()", "torch.allclose(first, last)"))


@wrong(WEEK, "equivariance_gap", 2.5, DIAGNOSES["one by one"])
def gap_one_by_one(f, x, perm):
    gaps = []
    for row in x:
        row = row.unsqueeze(0)
        gaps.append((f(row[:, perm]) - f(row)[:, perm]).abs().max().item())
    return max(gaps)


@wrong(WEEK, "equivariance_gap", 0, DIAGNOSES["undone once too often"])
def gap_undone_once_too_often(f, x, perm):
    return (f(x[:, perm])[:, perm.argsort()] - f(x)[:, perm]).abs().max().item()


@right(WEEK, "equivariance_gap", 2.75)
def gap_sorted_back(f, x, perm):
    inverse = torch.empty_like(perm)
    inverse[perm] = torch.arange(len(perm))
    back = f(x.index_select(1, perm)).index_select(1, inverse)
    return float(torch.max(torch.abs(back - f(x))))


@right(WEEK, "equivariance_gap", 2.75)
def gap_with_a_matrix(f, x, perm):
    P = torch.eye(len(perm), dtype=x.dtype)[perm]
    y = f(x)
    moved = (P @ y.reshape(y.shape[0], y.shape[1], -1)).reshape(y.shape)
    difference = f(P @ x) - moved
    return max(difference.max().item(), -difference.min().item())


@right(WEEK, "equivariance_gap", 2.75)
def gap_numpy(f, x, perm):
    with torch.no_grad():
        a, b = f(x[:, perm, :]).numpy(), f(x).numpy()
    return float(np.abs(a - b[:, perm.numpy()]).max())


@right(WEEK, "equivariance_gap")
def gap_by_loop(f, x, perm):
    order = perm.tolist()
    shuffled = torch.stack([x[:, p] for p in order], dim=1)
    a, b = f(shuffled), f(x)
    largest = 0.0
    for i, p in enumerate(order):
        largest = max(largest, torch.linalg.vector_norm(a[:, i] - b[:, p], ord=float("inf")).item())
    return largest


# ---- 1.5 causal_mask ------------------------------------------------------------------------------------------------


@right(WEEK, "causal_mask")
def mask_tril(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(diagonal=n_keys - n_queries)


DIAGONAL = "diagonal=n_keys - n_queries"
edited(mask_tril, "mask_top_left", 1, DIAGNOSES["top left"], (DIAGONAL, ""))
edited(mask_tril, "mask_strict", 0, DIAGNOSES["strict"], (DIAGONAL, DIAGONAL + " - 1"))
edited(mask_tril, "mask_one_too_many", 0, DIAGNOSES["one too many"], (DIAGONAL, DIAGONAL + " + 1"))
edited(mask_tril, "mask_upper", 0, DIAGNOSES["upper"], ("tril", "triu"))
edited(mask_tril, "mask_upper_alone", 0, DIAGNOSES["upper alone"], (f"tril({DIAGONAL})", f"triu({DIAGONAL} + 1)"))
edited(mask_tril, "mask_square", 1, DIAGNOSES["square"], ("ones(n_queries, n_keys,", "ones(n_keys, n_keys,"), (DIAGONAL, ""))
edited(mask_tril, "mask_of_floats", 0, DIAGNOSES["floats"], (", dtype=torch.bool", ""))
edited(mask_tril, "mask_of_ones", 0, DIAGNOSES["all"], (f".tril({DIAGONAL})", ""))
edited(mask_tril, "mask_hides_the_cache", 1, DIAGNOSES["cache hidden"],
       (f".tril({DIAGONAL})", f".tril({DIAGONAL}).triu({DIAGONAL} - n_queries + 1)"))


@wrong(WEEK, "causal_mask", 0, DIAGNOSES["bias"])
def mask_as_bias(n_queries, n_keys):
    return torch.full((n_queries, n_keys), float("-inf")).triu(n_keys - n_queries + 1)


@wrong(WEEK, "causal_mask", 1, DIAGNOSES["turned"])
def mask_one_row_per_key(n_queries, n_keys):
    i = torch.arange(n_keys - n_queries, n_keys)
    j = torch.arange(n_keys)
    return (j[:, None] <= i[None, :]) if n_queries < n_keys else (j[None, :] <= i[:, None])


@right(WEEK, "causal_mask")
def mask_compare(n_queries, n_keys):
    i = torch.arange(n_queries).unsqueeze(1) + (n_keys - n_queries)
    j = torch.arange(n_keys).unsqueeze(0)
    return i >= j


@right(WEEK, "causal_mask")
def mask_not_triu(n_queries, n_keys):
    future = torch.triu(torch.ones(n_queries, n_keys), diagonal=n_keys - n_queries + 1)
    return future == 0


@right(WEEK, "causal_mask")
def mask_last_rows(n_queries, n_keys):
    full = torch.tril(torch.ones((n_keys, n_keys), dtype=torch.bool))
    return full[-n_queries:]


@right(WEEK, "causal_mask")
def mask_loop(n_queries, n_keys):
    mask = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    for r in range(n_queries):
        mask[r, : n_keys - n_queries + r + 1] = True
    return mask


# ---- families: every mistake and every pair of them -----------------------------------------------------------------


def _say(*names):
    return {name: DIAGNOSES[name] for name in names}


@family(WEEK, "scaled_dot_product_attention", _say(
    "unscaled", "by d", "d_model scale", "n_keys scale", "multiplied", "over queries", "over heads", "scale after softmax",
    "no softmax", "keys for values", "turned weights", "order of results", "scores returned", "inverted", "mask ignored",
    "mask after softmax", "renormalised", "hidden scores zero", "added once", "turned mask", "first sequence", "nan rows",
    "uniform rows", "nan gradient", "overflow", "-1e4", "exp", "float32 out", "detached"))
def attention_with(mistakes):
    def subject(q, k, v, mask=None):
        dtype, d = q.dtype, q.shape[-1]
        size = {"unscaled": 1.0, "by d": float(d), "d_model scale": math.sqrt(d * q.shape[1]), "n_keys scale": math.sqrt(k.shape[2]),
                "multiplied": 1 / math.sqrt(d), "scale after softmax": 1.0}.get(
                    next(iter(sorted(mistakes & {"unscaled", "by d", "d_model scale", "n_keys scale", "multiplied",
                                                 "scale after softmax"})), ""), math.sqrt(d))
        precise = torch.promote_types(dtype, torch.float32)
        if mistakes & {"overflow", "-1e4"}:
            precise = dtype
        a, b, c = q.to(precise), k.to(precise), v.to(precise)
        scores = a @ b.mT / size if "overflow" in mistakes else (a / size) @ b.mT
        mask = None if "mask ignored" in mistakes else mask
        empty = None
        if mask is not None:
            mask = ~mask if "inverted" in mistakes else mask
            mask = mask.mT if "turned mask" in mistakes and mask.ndim > 1 else mask
            mask = mask[:1] if "first sequence" in mistakes and mask.ndim == 4 else mask
            empty = ~mask.any(-1, keepdim=True)
            lowest = torch.finfo(scores.dtype).min
            fill = -1e4 if "-1e4" in mistakes else lowest if "uniform rows" in mistakes else -math.inf
            if mistakes & {"mask after softmax", "renormalised"}:
                pass
            elif "hidden scores zero" in mistakes:
                scores = scores * mask
            elif "added once" in mistakes:
                scores = scores + mask
            elif "nan gradient" in mistakes:
                scores = scores + torch.zeros(mask.shape, device=q.device).masked_fill(~mask, -math.inf)
            else:
                scores = scores.masked_fill(~mask, fill)
                if not mistakes & {"nan rows", "uniform rows"}:
                    scores = scores.masked_fill(empty, 0.0)
        axis = -2 if "over queries" in mistakes else 1 if "over heads" in mistakes else -1
        if "no softmax" in mistakes:
            weights = scores / scores.sum(axis, keepdim=True)
        elif "exp" in mistakes:
            weights = scores.exp() / scores.exp().sum(axis, keepdim=True)
        else:
            weights = scores.softmax(axis)
        if "scale after softmax" in mistakes:
            weights = weights / math.sqrt(d)
        if mask is not None:
            if mistakes & {"mask after softmax", "renormalised"}:
                weights = weights * mask
                if "renormalised" in mistakes:
                    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
            elif "nan gradient" in mistakes:
                weights = weights.nan_to_num(0.0)
            elif not mistakes & {"nan rows", "uniform rows", "hidden scores zero", "added once"}:
                weights = weights.masked_fill(empty, 0.0)
        c = b if "keys for values" in mistakes else c
        out = (weights.mT if "turned weights" in mistakes else weights) @ c
        weights = scores if "scores returned" in mistakes else weights
        if "float32 out" not in mistakes:
            out, weights = out.to(dtype), weights.to(dtype)
        if "detached" in mistakes:
            out, weights = out.detach(), weights.detach()
        return (weights, out) if "order of results" in mistakes else (out, weights)

    return subject


@family(WEEK, "equivariance_gap", _say(
    "inverse outside", "inverse inside", "inverse", "input only", "output only", "mean", "signed", "norm", "relative",
    "one by one", "first sequence only"))
def gap_with(mistakes):
    def subject(f, x, perm):
        if "one by one" in mistakes and len(x) > 1:
            return max(subject(f, row[None], perm) for row in x)
        inverse = perm.argsort()
        inside = inverse if mistakes & {"inverse", "inverse inside"} else perm
        outside = inverse if mistakes & {"inverse", "inverse outside"} else perm
        first = f(x) if "output only" in mistakes else f(x[:, inside])
        last = f(x) if "input only" in mistakes else f(x)[:, outside]
        difference = first - last
        difference = difference[:1] if "first sequence only" in mistakes else difference
        size = difference if "signed" in mistakes else difference.abs()
        gap = size.mean() if "mean" in mistakes else size.double().norm() if "norm" in mistakes else size.max()
        return float(gap / last.abs().max() if "relative" in mistakes else gap)

    return subject


@family(WEEK, "causal_mask", _say("top left", "strict", "one too many", "upper", "upper alone", "turned", "floats", "all"))
def mask_with(mistakes):
    def subject(n_queries, n_keys):
        shift = 0 if "top left" in mistakes else n_keys - n_queries
        shift += ("one too many" in mistakes) - ("strict" in mistakes)
        ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
        mask = ones.tril(shift)
        if "upper" in mistakes:
            mask = ones.triu(shift)
        if "upper alone" in mistakes:
            mask = ones.triu(shift + 1)
        mask = ones if "all" in mistakes else mask
        mask = mask.T if "turned" in mistakes else mask
        return mask.float() if "floats" in mistakes else mask

    return subject
