"""Week 4, ALiBi: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.

Exercises 4.3 and 4.6 are graded on top of the student's own earlier answers as well. So that an entry is due its score
whatever stands in 4.2 and 4.3 (as in the simulated classroom), the banks of 4.3 and 4.6 make mistakes of their own
only: wrong slopes, and in 4.6 wrong distances, are in the families.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week4_alibi"

DIAGNOSES = {
    # slopes
    "1/2^k": "Your slopes are 1/2, 1/4, 1/8, ... for every number of heads; that is right for 8 heads only (exponent -8k/h).",
    "one formula":
        "You use 2^(-8k/h) for every number of heads; where h is no power of two, the slopes of the next smaller power "
        "come first, then every second one of the next larger.",
    "sorted": "You sort the slopes; the official order is not sorted where h is no power of two.",
    "from zero": "Your k runs from 0, so the first slope is 1; it runs from 1.",
    "smallest first": "Your order is reversed: for a power of two the first head has the largest slope.",
    "odd entries":
        "For the missing heads you take the wrong half of the larger set: every second slope from the first on, not "
        "from the second.",
    "consecutive": "For the missing heads you take the first slopes of the larger set one by one; take every second one.",
    "finer first": "The slopes of the smaller power of two come first, then those taken from the larger one.",
    "larger cut": "You take the slopes of the next larger power of two and cut them off.",
    "negative": "Your slopes are negative; a slope is positive, and the minus sign belongs to the bias.",
    "linear": "Your slopes are evenly spaced; they form a geometric series.",
    "halved exponent": "Your exponents are half as large as they should be: 2^(-8k/h).",
    "float64 out": "Your result is float64; the exercise asks for float32.",
    "list": "You return a list; the exercise asks for a tensor.",
    # bias
    "sign": "Your bias has the wrong sign: it must take away from far keys, not reward them.",
    "signed":
        "Keys after the query are rewarded: your bias is signed, -slope * (i - j) up to a constant per row; take the absolute value.",
    "signed away":
        "Your bias is signed: keys behind a query are rewarded, those ahead are punished. It is -slope * |i - j|, so it takes away on "
        "both sides.",
    "top left":
        "Your queries are aligned at the top left, as if they were the first positions; they are the last ones "
        "(position n_keys - n_queries + r).",
    "heads last": "Your heads are on the last axis; the shape is (n_heads, n_queries, n_keys).",
    "per key":
        "You return the bias per key, slope * j: the same only under a causal mask; the exercise asks for -slope * |i - j|.",
    "masked": "Your bias contains a causal mask; it must be finite on both sides.",
    "tril": "Your bias is zero after the query; the distance counts on both sides.",
    "squared": "You square the distance; the bias is linear in it.",
    "log distance": "You take the logarithm of the distance; the bias is linear in it.",
    "n_keys ignored": "The argument n_keys is ignored: your bias is always square.",
    "one too far": "Your distances are one too large: a query is at distance 0 from its own key.",
    "extra axis": "Your bias has an axis for the batch; the shape is (n_heads, n_queries, n_keys).",
    "axes turned": "Queries and keys have changed places: rows are queries, columns are keys.",
    # bias per key
    "returns causal":
        "Your answer is `causal` itself: with one query, with zero slopes or with nothing to see after the query the "
        "two forms agree without a mask as well. Compute both sides.",
    "always":
        "Your answer is True also where the two forms differ. (With a key after the query in sight they differ wherever a slope is not zero: the bias holds the absolute value of the distance.)",
    "no abs": "A difference may have either sign: take its absolute value before the largest.",
    "first queries": "With fewer queries than keys your answer is wrong. (The queries are the last positions, in the distances and in the mask.)",
    "not masked":
        "With causal=True keys after the query still count in your softmax: both scores must be masked before it.",
    "one masked": "With a mask your answer is not always right. (Both forms get the mask, and 0 * -inf is NaN.)",
    "biases compared": (
        "Your two forms differ wherever a slope is not zero: either they are compared before the softmax, which sees no "
        "constant in a row, or the bias per key is not +slope * j."),
    "float32": "You compute in float32: far out the two biases are large numbers, and their rounding looks like a difference.",
    "mean": "A small difference in few of the weights is not seen. (The largest one counts, not their mean or square.)",
    "bool tensor": "The answer must be a Python bool: wrap the comparison in bool().",
    "False too often":
        "Your answer is False also where the two forms agree. (The softmax runs over the keys, and the bias per key is +slope * j.)",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys.",
    # attention
    "no bias": "Where your output is wrong it is plain attention, without a bias.",
    "after softmax": "The bias is added after the softmax; it belongs to the scores before it.",
    "channels by turns":
        "Your head h takes the channels h, h + n_heads, and so on: split the last axis into (n_heads, head_dim), in this order.",
    "mask late": "The mask is applied after the softmax, so the weights of a row no longer add up to 1.",
    "bias scaled": "The bias is divided by sqrt(head_dim) with the scores; add it after the scaling.",
    "bias enlarged": "The bias is multiplied by sqrt(head_dim); add it to the scaled scores as it is.",
    "unscaled": "The scores are not divided by sqrt(head_dim).",
    "d_model scale": "The scores are divided by sqrt(d_model); the scale belongs to head_dim.",
    "factor":
        "The bias is used as a factor on the scores; add it to them.",
    "clobbered":
        "The causal mask is lost: hidden scores are 0 instead of -inf when they reach the softmax.",
    "no causal": "`is_causal` changes nothing: later tokens are seen.",
    "always causal": "`is_causal=False` is ignored: later tokens are never seen.",
    "turned round": "`is_causal` is turned round: True shows later tokens, False hides them.",
    "not default": "With is_causal=True all is right, without the argument it is not. (The mask is on by default.)",
    "inverted": "Your causal mask is inverted: it hides what a token may see, and shows what it may not.",
    "strict": "Your causal mask hides the token itself; token i sees the keys 0..i.",
    "batch order":
        "Heads and sequences of the batch are mixed up in the bias: head h of every sequence gets the slope of head h.",
    "one slope": "All heads get the same slope; each has its own.",
    "one head": "Not every head counts with its own slope: one head that differs is enough.",
    "sinusoid": "A sinusoidal encoding is added to the tokens; ALiBi adds nothing to them.",
    "rotated": "Queries and keys are rotated besides; ALiBi is the only position information.",
    "split": "The heads are split without a transpose, so tokens and heads are mixed: channels first, then the axes move.",
    "merge": "The heads are merged without a transpose, so tokens and heads are mixed.",
    "no o_proj": "The output projection o_proj is not applied.",
    "names": "The projections must be called q_proj, k_proj, v_proj and o_proj, so that weights can be loaded.",
    "biases": "The projections must have no bias: the state_dict holds four weights and nothing else.",
    "table saved": "The bias is saved in the state_dict, which must hold the four weights and nothing else.",
    "first length": "The bias of the first text is kept and does not fit texts of another length.",
    "low positions":
        "Positions are counted in the half precision of the input, where those beyond 256 merge; build the bias in "
        "float32, then cast it.",
    "float32 only": "In half precision the float32 bias meets values of another dtype; cast it to that of the scores.",
    "float32 result": "The result is float32 whatever x is; it must have the dtype of x.",
    "large number":
        "Hidden scores get -1e9, which float16 cannot hold; use -inf.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "sizes": "A d_model that n_heads does not divide must raise ValueError; yours raises something else or nothing.",
    # reach
    "floor": "You round down: there the factor is still above tol; take the next whole distance.",
    "nearest": "You round to the nearest whole number; where that is below, the factor is still above tol.",
    "log10": "You use the logarithm to base 10; the factor is exp(-slope * distance), so take the natural one.",
    "log2": "You use the logarithm to base 2; the factor is exp(-slope * distance), so take the natural one.",
    "multiplied": "Your window grows with the slope; a steep head has a short one: divide by the slope.",
    "tol ignored": "Your code uses its own tolerance instead of the argument `tol`.",
    "no minus": "Your window is negative: the logarithm of a number below 1 is.",
    "linear bias": "You ask when slope * distance reaches 1/tol or 1 - tol; the exercise asks when exp(-slope * distance) is at most tol.",
    "half-life": "You return the half-life ln 2 / slope; the exercise asks where the factor is at most tol.",
    "not int": "The window must be a Python int.",
    "no tensors": "0-d tensors must be taken as well.",
}


# ---- 4.1 slopes_by_hand ---------------------------------------------------------------------------------------------

by_hand = {"h8_0": 0.5, "h8_2": 0.125, "h8_7": 0.00390625, "h12_0": 0.5, "h12_7": 0.00390625, "h12_8": 0.70710678,
           "h12_9": 0.35355339, "h12_11": 0.088388348}

numbers(WEEK, "slopes_by_hand", "exact", by_hand)
numbers(WEEK, "slopes_by_hand", "four_digits", by_hand | {"h8_7": 0.003906, "h12_7": 0.003906, "h12_8": 0.7071,
                                                          "h12_9": 0.3536, "h12_11": 0.08839})
numbers(WEEK, "slopes_by_hand", "as_powers", {
    "h8_0": 2**-1, "h8_2": 2**-3, "h8_7": 2**-8, "h12_0": 1 / 2, "h12_7": 1 / 256, "h12_8": 2**-0.5, "h12_9": 2**-1.5,
    "h12_11": 2**-3.5})
numbers(WEEK, "slopes_by_hand", "one_formula", by_hand | {
    "h12_0": 0.62996052, "h12_7": 0.024803141, "h12_8": 0.015625, "h12_9": 0.0098431332, "h12_11": 0.00390625,
}, 0.5, "For 12 heads you use the rule for powers of two, 2^(-8k/12), but 12 is no power of two: first come the 8 slopes of 8 heads, then "
        "every second one of 16.")
numbers(WEEK, "slopes_by_hand", "sorted", by_hand | {
    "h12_0": 0.70710678, "h12_7": 0.0625, "h12_8": 0.03125, "h12_9": 0.015625, "h12_11": 0.00390625,
}, 0.5, "Your 12 slopes are the right ones, but sorted; the official order puts the slopes of 8 heads first.")
numbers(WEEK, "slopes_by_hand", "powers_of_a_half", by_hand | {
    "h12_7": 0.00390625, "h12_8": 0.001953125, "h12_9": 0.0009765625, "h12_11": 0.00024414062,
}, 1, "For 12 heads you go on with 1/2^k; the last four come from 16 heads.")
numbers(WEEK, "slopes_by_hand", "smallest_first", {
    "h8_0": 0.00390625, "h8_2": 0.015625, "h8_7": 0.5, "h12_0": 0.00390625, "h12_7": 0.5, "h12_8": 0.70710678,
    "h12_9": 0.35355339, "h12_11": 0.088388348,
}, 1, "Your slopes of 8 heads run the wrong way: the first head has the largest slope.")
numbers(WEEK, "slopes_by_hand", "from_zero", {
    "h8_0": 1.0, "h8_2": 0.25, "h8_7": 0.0078125, "h12_0": 1.0, "h12_7": 0.0078125, "h12_8": 1.0, "h12_9": 0.5,
    "h12_11": 0.125,
}, 0, "Your k runs from 0; it runs from 1, so the first slope of 8 heads is 1/2.")
numbers(WEEK, "slopes_by_hand", "odd_entries", by_hand | {"h12_8": 0.5, "h12_9": 0.25, "h12_11": 0.0625},
        1, "From the 16 slopes you take every second one from the second on; begin with the first, 2^(-1/2).")
numbers(WEEK, "slopes_by_hand", "consecutive", by_hand | {"h12_9": 0.5, "h12_11": 0.25},
        1, "From the 16 slopes you take the first four; take every second one.")
numbers(WEEK, "slopes_by_hand", "first_twelve_of_16", by_hand | {
    "h12_0": 2**-0.5, "h12_7": 2**-4, "h12_8": 2**-4.5, "h12_9": 2**-5, "h12_11": 2**-6,
}, 0.5, "For 12 heads you take the first twelve slopes of 16; the slopes of 8 heads come first, then every second one of 16.")
numbers(WEEK, "slopes_by_hand", "entries_8_to_11", by_hand | {
    "h12_8": 2**-4.5, "h12_9": 2**-5, "h12_11": 2**-6,
}, 1, "From the 16 slopes you take numbers 8 to 11; take every second one, from the first on.")
numbers(WEEK, "slopes_by_hand", "exponents", {
    "h8_0": 1.0, "h8_2": 3.0, "h8_7": 8.0, "h12_0": 1.0, "h12_7": 8.0, "h12_8": 0.5, "h12_9": 1.5, "h12_11": 3.5,
}, 0, "You give the exponents; the slopes are 2 to minus these powers.")
numbers(WEEK, "slopes_by_hand", "negative", {key: -value for key, value in by_hand.items()}, 0,
        "Your slopes are negative; the minus sign belongs to the bias.")
numbers(WEEK, "slopes_by_hand", "two_digits", by_hand | {
    "h8_2": 0.13, "h8_7": 0.0039, "h12_7": 0.0039, "h12_8": 0.71, "h12_9": 0.35, "h12_11": 0.088,
}, 0, ROUNDED_TOO_FAR)


# ---- 4.2 alibi_slopes -----------------------------------------------------------------------------------------------


@right(WEEK, "alibi_slopes")
def slopes_plain(n_heads):
    c = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * k / c) for k in range(1, c + 1)]
    finer = [2 ** (-4 * k / c) for k in range(1, 2 * c + 1)]
    slopes = slopes + finer[0::2][: n_heads - c]
    return torch.tensor(slopes)


EXTRA = "finer[0::2][: n_heads - c]"
edited(slopes_plain, "slopes_whole_exponents", 0, "Your exponents are whole numbers (//); 8k/h has a fraction from 16 heads on.",
       ("-8 * k / c", "-(8 * k // c)"), ("-4 * k / c", "-(4 * k // c)"))
edited(slopes_plain, "slopes_single_head", 1.75, "A single head has the slope 1/256, as equation (3) says.",
       ("    c = 2", "    if n_heads == 1:\n        return torch.ones(1)\n    c = 2"))
edited(slopes_plain, "slopes_sorted", 1.75, DIAGNOSES["sorted"],
       ("torch.tensor(slopes)", "torch.tensor(sorted(slopes, reverse=True))"))
edited(slopes_plain, "slopes_from_zero", 0, DIAGNOSES["from zero"],
       ("range(1, c + 1)", "range(c)"), ("range(1, 2 * c + 1)", "range(2 * c)"))
edited(slopes_plain, "slopes_first_from_zero", 0, DIAGNOSES["from zero"], ("range(1, c + 1)", "range(c)"))
edited(slopes_plain, "slopes_smallest_first", 0, DIAGNOSES["smallest first"], ("torch.tensor(slopes)", "torch.tensor(slopes[::-1])"))
edited(slopes_plain, "slopes_odd_entries", 1.75, DIAGNOSES["odd entries"], (EXTRA, "finer[1::2][: n_heads - c]"))
edited(slopes_plain, "slopes_consecutive", 1.75, DIAGNOSES["consecutive"], (EXTRA, "finer[: n_heads - c]"))
edited(slopes_plain, "slopes_finer_first", 1.75, DIAGNOSES["finer first"],
       (f"slopes + {EXTRA}", f"{EXTRA} + slopes"))
edited(slopes_plain, "slopes_negative", 0, DIAGNOSES["negative"], ("return torch", "return -torch"))
edited(slopes_plain, "slopes_float64", 2.5, DIAGNOSES["float64 out"], ("torch.tensor(slopes)", "torch.tensor(slopes).double()"))
edited(slopes_plain, "slopes_list", 0, DIAGNOSES["list"], ("torch.tensor(slopes)", "slopes"))


@wrong(WEEK, "alibi_slopes", 0, DIAGNOSES["1/2^k"])
def slopes_powers_of_a_half(n_heads):
    return torch.tensor([1 / 2 ** (k + 1) for k in range(n_heads)])


@wrong(WEEK, "alibi_slopes", 1.75, DIAGNOSES["one formula"])
def slopes_one_formula(n_heads):
    start = 2 ** (-(2 ** -(math.log2(n_heads) - 3)))
    return torch.tensor([start * start**i for i in range(n_heads)])


@wrong(WEEK, "alibi_slopes", 1.75, DIAGNOSES["larger cut"])
def slopes_larger_cut(n_heads):
    c = 2 ** math.ceil(math.log2(n_heads))
    return 2.0 ** (-8 * torch.arange(1, c + 1) / c)[:n_heads]


@wrong(WEEK, "alibi_slopes", 0, DIAGNOSES["linear"])
def slopes_linear(n_heads):
    return torch.linspace(2 ** (-8 / n_heads), 2**-8, n_heads)


@wrong(WEEK, "alibi_slopes", 0, DIAGNOSES["halved exponent"])
def slopes_halved_exponent(n_heads):
    c = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-4 * k / c) for k in range(1, c + 1)]
    slopes += [2 ** (-2 * k / c) for k in range(1, 2 * c + 1)][0::2][: n_heads - c]
    return torch.tensor(slopes)


@right(WEEK, "alibi_slopes")
def slopes_recursive(n_heads):
    def power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n_heads).is_integer():
        return torch.tensor(power(n_heads))
    closest = 2 ** math.floor(math.log2(n_heads))
    return torch.tensor(power(closest) + power(2 * closest)[0::2][: n_heads - closest])


@right(WEEK, "alibi_slopes")
def slopes_in_torch(n_heads):
    c = 1
    while 2 * c <= n_heads:
        c *= 2
    base = torch.pow(torch.tensor(2.0 ** (-8.0 / c)), torch.arange(1, 1 + c))
    if c < n_heads:
        extra = torch.pow(torch.tensor(2.0 ** (-4.0 / c)), torch.arange(1, 1 + 2 * (n_heads - c), 2))
        base = torch.cat([base, extra])
    return base


@right(WEEK, "alibi_slopes")
def slopes_numpy(n_heads):
    c = 1 << (n_heads.bit_length() - 1)
    exponents = np.concatenate((np.arange(1, c + 1) * 8 / c, (np.arange(n_heads - c) * 2 + 1) * 4 / c))
    return torch.from_numpy(np.exp2(-exponents)).float()


# ---- 4.3 alibi_bias -------------------------------------------------------------------------------------------------


@right(WEEK, "alibi_bias")
def bias_plain(n_heads, n_queries, n_keys=None):
    def slopes(n):
        c = 2 ** math.floor(math.log2(n))
        s = [2 ** (-8 * k / c) for k in range(1, c + 1)]
        return torch.tensor(s + [2 ** (-4 * k / c) for k in range(1, 2 * c + 1)][0::2][: n - c])

    if n_keys is None:
        n_keys = n_queries
    i = torch.arange(n_queries)[:, None] + n_keys - n_queries
    j = torch.arange(n_keys)[None, :]
    distance = (i - j).abs()
    bias = -slopes(n_heads)[:, None, None] * distance
    return bias


edited(bias_plain, "bias_sign", 0, DIAGNOSES["sign"], ("bias = -slopes", "bias = slopes"))
edited(bias_plain, "bias_signed", 0, DIAGNOSES["signed"], ("(i - j).abs()", "(i - j)"))
edited(bias_plain, "bias_signed_away", 0, DIAGNOSES["signed away"], ("bias = -slopes", "bias = slopes"), ("(i - j).abs()", "(i - j)"))
edited(bias_plain, "bias_top_left", 2.5, DIAGNOSES["top left"], ("[:, None] + n_keys - n_queries", "[:, None]"))
edited(bias_plain, "bias_heads_last", 0, DIAGNOSES["heads last"], ("return bias", "return bias.permute(1, 2, 0)"))
edited(bias_plain, "bias_per_key", 0, DIAGNOSES["per key"],
       ("bias = -slopes(n_heads)[:, None, None] * distance", "bias = slopes(n_heads)[:, None, None] * j.expand(n_queries, n_keys)"))
edited(bias_plain, "bias_masked", 0, DIAGNOSES["masked"], ("return bias", 'return bias.masked_fill(j > i, float("-inf"))'))
edited(bias_plain, "bias_tril", 0, DIAGNOSES["tril"], ("(i - j).abs()", "(i - j).clamp(min=0)"))
edited(bias_plain, "bias_squared", 0, DIAGNOSES["squared"], ("(i - j).abs()", "(i - j) ** 2"))
edited(bias_plain, "bias_log_distance", 0, DIAGNOSES["log distance"], ("(i - j).abs()", "torch.log1p((i - j).abs())"))
edited(bias_plain, "bias_n_keys_ignored", 2.5, DIAGNOSES["n_keys ignored"],
       ("    if n_keys is None:\n        n_keys = n_queries", "    n_keys = n_queries"))
edited(bias_plain, "bias_one_too_far", 0, DIAGNOSES["one too far"], ("(i - j).abs()", "(i - j).abs() + 1"))
edited(bias_plain, "bias_extra_axis", 0, DIAGNOSES["extra axis"], ("return bias", "return bias[None]"))
edited(bias_plain, "bias_axes_turned", 2.5, DIAGNOSES["axes turned"], ("return bias", "return bias.transpose(1, 2)"))
edited(bias_plain, "bias_float64", 3.5, DIAGNOSES["float64 out"], ("return bias", "return bias.double()"))


@right(WEEK, "alibi_bias")
def bias_loops(n_heads, n_queries, n_keys=None):
    n_keys = n_keys or n_queries
    power = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 / power * (k + 1)) for k in range(power)]
    slopes += [2 ** (-8 / (2 * power) * (k + 1)) for k in range(0, 2 * power, 2)][: n_heads - power]
    out = torch.zeros(n_heads, n_queries, n_keys)
    for h in range(n_heads):
        for r in range(n_queries):
            for j in range(n_keys):
                out[h, r, j] = -slopes[h] * abs(n_keys - n_queries + r - j)
    return out


@right(WEEK, "alibi_bias")
def bias_last_rows(n_heads, n_queries, n_keys=None):
    n_keys = n_queries if n_keys is None else n_keys
    power = 2 ** int(math.log2(n_heads))
    slopes = torch.tensor([2.0 ** (-8 * k / power) for k in range(1, power + 1)]
                          + [2.0 ** (-4 * k / power) for k in range(1, 2 * power, 2)][: n_heads - power])
    place = torch.arange(n_keys, dtype=torch.float32)
    square = -torch.cdist(place[:, None], place[:, None], p=1)
    return torch.einsum("h,ij->hij", slopes, square)[:, -n_queries:]


@right(WEEK, "alibi_bias")
def bias_numpy(n_heads, n_queries, n_keys=None):
    if n_keys is None:
        n_keys = n_queries
    power = 1 << (n_heads.bit_length() - 1)
    exponents = np.concatenate([8 * np.arange(1, power + 1) / power, 4 * np.arange(1, 2 * power, 2) / power])[:n_heads]
    relative = np.arange(n_keys)[None, :] - np.arange(n_keys - n_queries, n_keys)[:, None]
    return torch.tensor(-np.abs(relative)[None] * 2.0 ** -exponents[:, None, None], dtype=torch.float32)


# ---- 4.4 attention_with_slope ---------------------------------------------------------------------------------------

rows = {"causal_0": 0.10153629, "causal_1": 0.16740505, "causal_2": 0.27600434, "causal_3": 0.45505432,
        "output": 2.4889735, "open_0": 0.23500368, "open_1": 0.38745557, "open_2": 0.23500368, "open_3": 0.14253708}


def _answers(causal, output, open_row):
    return ({f"causal_{key}": value for key, value in enumerate(causal)} | {"output": output}
            | {f"open_{key}": value for key, value in enumerate(open_row)})


numbers(WEEK, "attention_with_slope", "eight_digits", rows)
numbers(WEEK, "attention_with_slope", "four_digits",
        _answers((0.1015, 0.1674, 0.2760, 0.4551), 2.489, (0.2350, 0.3875, 0.2350, 0.1425)))
numbers(WEEK, "attention_with_slope", "five_digits",
        _answers((0.10154, 0.16741, 0.27600, 0.45505), 2.4890, (0.23500, 0.38746, 0.23500, 0.14254)))
numbers(WEEK, "attention_with_slope", "slope_forgotten",
        _answers((0.25,) * 4, 3.75, (0.25,) * 4), 0,
        "The slope is forgotten: equal content alone would give equal weights, the bias makes them differ.")
numbers(WEEK, "attention_with_slope", "sign",
        _answers((0.45505432, 0.27600434, 0.16740505, 0.10153629), 5.1807989, (0.23500371, 0.14253694, 0.23500371, 0.38745564)),
        0, "Your sign is wrong: far keys get more weight than near ones.")
numbers(WEEK, "attention_with_slope", "base_two",
        _answers((0.13807119, 0.19526215, 0.27614238, 0.39052429), 2.8284271, (0.24264069, 0.34314575, 0.24264069, 0.17157288)),
        0, "You use powers of 2; softmax takes powers of e.")
numbers(WEEK, "attention_with_slope", "halved_by_distance",
        _answers((1 / 15, 2 / 15, 4 / 15, 8 / 15), 32 / 15, (2 / 9, 4 / 9, 2 / 9, 1 / 9)),
        0, "You halve the factor at every position, as for slope ln 2; slope 1/2 means e^(-1/2) per position.")
numbers(WEEK, "attention_with_slope", "slope_one",
        _answers((0.032058603, 0.087144319, 0.23688282, 0.64391426), 1.7227260, (0.19661193, 0.53444665, 0.19661193, 0.072329488)),
        0, "You take the slope as 1; it is 1/2.")
numbers(WEEK, "attention_with_slope", "not_normalised",
        _answers((0.22313016, 0.36787944, 0.60653066, 1.0), 5.4696204, (0.60653066, 1.0, 0.60653066, 0.36787944)),
        0, "Your factors are right but not divided by their sum: the weights of a row add up to 1.")
for _name, _score, _slips in (
    ("reversed", 2, {}),
    ("reversed_and_summed", 1, {"output": 5.1807989}),
):
    numbers(WEEK, "attention_with_slope", _name,
            rows | {f"causal_{key}": rows[f"causal_{3 - key}"] for key in range(4)} | _slips, _score,
            "Your causal weights run the wrong way: causal_3 belongs to the query's own key and is the largest.")
_factors = {"causal_0": 0.22313016, "causal_1": 0.36787944, "causal_2": 0.60653066, "causal_3": 1.0}
_open_factors = {"open_0": 0.60653066, "open_1": 1.0, "open_2": 0.60653066, "open_3": 0.36787944}
for _name, _score, _slips in (
    ("weights_not_normalised", 1, _factors | _open_factors),
    ("causal_not_normalised", 2, _factors),
    ("causal_and_output_not_normalised", 1, _factors | {"output": 5.4696204}),
    ("output_not_normalised", 2, {"output": 5.4696204}),
    ("open_not_normalised", 2, _open_factors),
):
    numbers(WEEK, "attention_with_slope", _name, rows | _slips, _score,
            "You use factors that are not divided by their sum: the weights of a row add up to 1.")
numbers(WEEK, "attention_with_slope", "masked_after_all", rows | {
    "open_0": 0.37754067, "open_1": 0.62245933, "open_2": 0.0, "open_3": 0.0,
}, 2, "In the second row you keep the mask: without one the query sees the keys after it too.")
numbers(WEEK, "attention_with_slope", "signed_distance", rows | {
    "open_0": 0.10153629, "open_1": 0.16740505, "open_2": 0.27600434, "open_3": 0.45505432,
}, 2, "Your second row is that of signed distances, or of the last query: a key after query 1 is as far as one before it.")
numbers(WEEK, "attention_with_slope", "first_query", rows | {
    "open_0": 0.45505432, "open_1": 0.27600434, "open_2": 0.16740505, "open_3": 0.10153629,
}, 2, "Your second row is that of the query at position 0; the exercise asks for position 1.")
numbers(WEEK, "attention_with_slope", "query_two", rows | {
    "open_0": 0.14253708, "open_1": 0.23500368, "open_2": 0.38745557, "open_3": 0.23500368,
}, 2, "Your second row is that of the query at position 2; positions are counted from 0.")
numbers(WEEK, "attention_with_slope", "values_backwards", rows | {"output": 5.1807989},
        2, "Your output has the values in the wrong order: the nearest key, 3, has the value 1.")
numbers(WEEK, "attention_with_slope", "plain_mean", rows | {"output": 3.75},
        2, "Your output is the plain mean of the values; weight them.")
numbers(WEEK, "attention_with_slope", "two_digits",
        _answers((0.10, 0.17, 0.28, 0.46), 2.5, (0.24, 0.39, 0.24, 0.14)), 0,
        ROUNDED_TOO_FAR)


# ---- 4.5 per_key_bias_is_equivalent ---------------------------------------------------------------------------------


@right(WEEK, "per_key_bias_is_equivalent", 1.875)
def equivalent_plain(scores, slopes, causal):
    n_queries, n_keys = scores.shape[-2:]
    scores = scores.double()
    m = slopes.double()[:, None, None]
    j = torch.arange(n_keys)
    i = (torch.arange(n_queries) + n_keys - n_queries)[:, None]
    a = scores + m * j
    b = scores - m * (i - j).abs()
    if causal:
        a = a.masked_fill(j > i, -math.inf)
        b = b.masked_fill(j > i, -math.inf)
    gap = (a.softmax(dim=-1) - b.softmax(dim=-1)).abs()
    return bool(gap.max() <= 1e-5)


edited(equivalent_plain, "equivalent_signed", 0, DIAGNOSES["always"], ("(i - j).abs()", "(i - j)"))
edited(equivalent_plain, "equivalent_first_queries", 0, DIAGNOSES["first queries"],
       ("(torch.arange(n_queries) + n_keys - n_queries)", "torch.arange(n_queries)"))
edited(equivalent_plain, "equivalent_not_masked", 0, DIAGNOSES["not masked"], ("    if causal:", "    if False:"))
edited(equivalent_plain, "equivalent_one_masked", 0, DIAGNOSES["one masked"],
       ("        b = b.masked_fill(j > i, -math.inf)\n", ""))
edited(equivalent_plain, "equivalent_biases_compared", 0, DIAGNOSES["biases compared"],
       ("(a.softmax(dim=-1) - b.softmax(dim=-1)).abs()", "(a.nan_to_num() - b.nan_to_num()).abs()"))
edited(equivalent_plain, "equivalent_float32", 1.375, DIAGNOSES["float32"],
       ("scores = scores.double()", "scores = scores.float()"), ("slopes.double()", "slopes.float()"))
edited(equivalent_plain, "equivalent_mean", 1.375, DIAGNOSES["mean"], ("gap.max()", "gap.mean()"))
edited(equivalent_plain, "equivalent_without_abs", 1.375, DIAGNOSES["no abs"],
       ("(a.softmax(dim=-1) - b.softmax(dim=-1)).abs()", "a.softmax(dim=-1) - b.softmax(dim=-1)"))
edited(equivalent_plain, "equivalent_tensor", 1.75, DIAGNOSES["bool tensor"], ("bool(gap.max() <= 1e-5)", "gap.max() <= 1e-5"))
edited(equivalent_plain, "equivalent_first_slope", 0.625, DIAGNOSES["one head"], ("slopes.double()[:, None, None]", "slopes.double()[0]"))


@wrong(WEEK, "per_key_bias_is_equivalent", 0, DIAGNOSES["returns causal"])
def equivalent_returns_causal(scores, slopes, causal):
    return causal


@wrong(WEEK, "per_key_bias_is_equivalent", 0, DIAGNOSES["always"])
def equivalent_always(scores, slopes, causal):
    return True


@wrong(WEEK, "per_key_bias_is_equivalent", 0, DIAGNOSES["not masked"])
def equivalent_masked_late(scores, slopes, causal):
    n_queries, n_keys = scores.shape[-2:]
    j = torch.arange(n_keys)
    i = torch.arange(n_keys - n_queries, n_keys)[:, None]
    m = slopes.double().view(-1, 1, 1)
    a = (scores.double() + m * j).softmax(-1)
    b = (scores.double() - m * (i - j).abs()).softmax(-1)
    if causal:
        a, b = a * (j <= i), b * (j <= i)
    return bool(torch.allclose(a, b, rtol=0, atol=1e-5))


@right(WEEK, "per_key_bias_is_equivalent", 1.875)
def equivalent_allclose(scores, slopes, causal):
    q, k = scores.size(-2), scores.size(-1)
    scores, slopes = scores.to(torch.float64), slopes.to(torch.float64).reshape(1, -1, 1, 1)
    position = torch.arange(k, dtype=torch.float64)
    per_key = slopes * position.reshape(1, 1, 1, k)
    relative = -slopes * (position[-q:, None] - position[None, :]).abs()
    mask = torch.zeros(q, k, dtype=torch.float64)
    if causal:
        mask = torch.full((q, k), float("-inf"), dtype=torch.float64).triu(k - q + 1)
    weights = [F.softmax(scores + bias + mask, dim=-1) for bias in (per_key, relative)]
    return torch.allclose(*weights, rtol=0, atol=1e-5)


edited(equivalent_allclose, "equivalent_with_a_relative_tolerance", 1.375, "A difference of 1.25e-5 between weights near 0.5 is not "
       "seen. (1e-5 is absolute: no weight's size counts, as it does in allclose with its default rtol.)", ("rtol=0, ", ""))


@right(WEEK, "per_key_bias_is_equivalent", 1.875)
def equivalent_numpy(scores, slopes, causal):
    s = scores.numpy().astype(np.float64)
    m = slopes.numpy().astype(np.float64)[:, None, None]
    n_queries, n_keys = s.shape[-2:]
    i, j = np.arange(n_keys - n_queries, n_keys)[:, None], np.arange(n_keys)[None]

    def softmax(x):
        if causal:
            x = np.where(j <= i, x, -np.inf)
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    return bool(np.abs(softmax(s + m * j) - softmax(s - m * np.abs(i - j))).max() <= 1e-5)


@right(WEEK, "per_key_bias_is_equivalent")
def equivalent_row_by_row(scores, slopes, causal):
    batch, heads, n_queries, n_keys = scores.shape
    worst = 0.0
    for h in range(heads):
        m = float(slopes[h])
        for r in range(n_queries):
            i = n_keys - n_queries + r
            end = i + 1 if causal else n_keys
            row = scores[:, h, r, :end].double()
            j = torch.arange(end, dtype=torch.float64, device=scores.device)
            gap = (row + m * j).softmax(-1) - (row - m * (j - i).abs()).softmax(-1)
            worst = max(worst, float(gap.abs().max()))
    return worst <= 1e-5


# ---- 4.6 ALiBiMultiHeadAttention ------------------------------------------------------------------------------------


@right(WEEK, "ALiBiMultiHeadAttention", 4.75)
class LayerPlain(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def slopes(self):
        c = 2 ** math.floor(math.log2(self.n_heads))
        s = [2 ** (-8 * k / c) for k in range(1, c + 1)]
        return torch.tensor(s + [2 ** (-4 * k / c) for k in range(1, 2 * c + 1)][0::2][: self.n_heads - c])

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

    def forward(self, x, is_causal=True):
        n = x.shape[1]
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        position = torch.arange(n)
        distance = (position[:, None] - position[None, :]).abs()
        bias = (-self.slopes()[:, None, None] * distance).to(x.dtype)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores + bias
        if is_causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        out = (weights @ v).transpose(1, 2).reshape(x.shape)
        return self.o_proj(out)


ADDED = "        scores = scores + bias\n"
SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])"
MASKED = 'scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))'
edited(LayerPlain, "layer_no_bias", 0, DIAGNOSES["no bias"], (ADDED, ""))
edited(LayerPlain, "layer_bias_after_softmax", 0, DIAGNOSES["after softmax"], (ADDED, ""),
       ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) + bias.tril()"))
edited(LayerPlain, "layer_bias_scaled", 0, DIAGNOSES["bias scaled"], (ADDED, ""),
       (SCORES, "scores = (q @ k.transpose(-2, -1) + bias) / math.sqrt(q.shape[-1])"))
edited(LayerPlain, "layer_bias_enlarged", 0, DIAGNOSES["bias enlarged"], ("scores + bias", "scores + bias * math.sqrt(q.shape[-1])"))
edited(LayerPlain, "layer_bias_as_factor", 0, DIAGNOSES["factor"], ("scores + bias", "scores * bias"))
edited(LayerPlain, "layer_unscaled", 0, DIAGNOSES["unscaled"], (" / math.sqrt(q.shape[-1])", ""))
edited(LayerPlain, "layer_scaled_by_d_model", 0, DIAGNOSES["d_model scale"], ("sqrt(q.shape[-1])", "sqrt(x.shape[-1])"))
edited(LayerPlain, "layer_mask_clobbered", 1.5, DIAGNOSES["clobbered"], (MASKED, "scores.tril()"))
edited(LayerPlain, "layer_never_causal", 1.5, DIAGNOSES["no causal"], ("        if is_causal:", "        if False:"))
edited(LayerPlain, "layer_always_causal", 3.75, DIAGNOSES["always causal"], ("        if is_causal:", "        if True:"))
edited(LayerPlain, "layer_causal_turned_round", 0, DIAGNOSES["turned round"], ("        if is_causal:", "        if not is_causal:"))
edited(LayerPlain, "layer_not_causal_by_default", 4.5, DIAGNOSES["not default"], ("is_causal=True", "is_causal=False"))
edited(LayerPlain, "layer_causal_in_train_mode_only", 3.25, "In train mode the output is right, after .eval() it is not.",
       ("        if is_causal:", "        if is_causal and self.training:"))
edited(LayerPlain, "layer_strict_mask", 1.5, DIAGNOSES["strict"], (".triu(1), float", ".triu(0), float"))
edited(LayerPlain, "layer_mask_inverted", 1.5, DIAGNOSES["inverted"], (".triu(1), float", ".tril(-1), float"))
edited(LayerPlain, "layer_allowed_hidden", 1.5, DIAGNOSES["inverted"], (".triu(1), float", ".tril(), float"))
edited(LayerPlain, "layer_batch_order", 0, DIAGNOSES["batch order"],
       ("scores + bias", "scores + bias.repeat_interleave(len(x), dim=0).view(len(x), self.n_heads, n, n)"))
edited(LayerPlain, "layer_sinusoid_besides", 0, DIAGNOSES["sinusoid"],
       ("        n = x.shape[1]\n", '''        n, d = x.shape[1:]
        angle = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        x = x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d].to(x.dtype)
'''))
edited(LayerPlain, "layer_rotated_besides", 0, DIAGNOSES["rotated"], ("        position = torch.arange(n)\n", '''        position = torch.arange(n)
        hd = q.shape[-1] // 2 * 2
        angle = position[:, None] * 10000.0 ** (-torch.arange(0, hd, 2) / max(hd, 1))
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        rotate = lambda t: torch.cat((torch.stack((t[..., 0:hd:2] * c - t[..., 1:hd:2] * s, t[..., 0:hd:2] * s + t[..., 1:hd:2] * c), -1).flatten(-2), t[..., hd:]), -1)
        q, k = rotate(q), rotate(k)
'''))
edited(LayerPlain, "layer_whole_bias_after_softmax", 0, DIAGNOSES["after softmax"], (ADDED, ""),
       ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) + bias"))
edited(LayerPlain, "layer_over_queries", 0, DIAGNOSES["over queries"], ("softmax(dim=-1)", "softmax(dim=-2).nan_to_num()"))
edited(LayerPlain, "layer_split_wrong", 0, DIAGNOSES["split"],
       ("x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)", "x.view(x.shape[0], self.n_heads, x.shape[1], -1)"))
edited(LayerPlain, "layer_merge_wrong", 0, DIAGNOSES["merge"], ("(weights @ v).transpose(1, 2)", "(weights @ v)"))
edited(LayerPlain, "layer_no_o_proj", 0, DIAGNOSES["no o_proj"], ("return self.o_proj(out)", "return out"))
edited(LayerPlain, "layer_other_names", 0, DIAGNOSES["names"], *[
    change for p in "qkvo" for change in ((f"self.{p}_proj = ", f"self.w{p} = "), (f"self.{p}_proj(", f"self.w{p}("))])
edited(LayerPlain, "layer_with_biases", 4.25, DIAGNOSES["biases"], *[
    (f"self.{p}_proj = nn.Linear(d_model, d_model, bias=False)", f"self.{p}_proj = nn.Linear(d_model, d_model)")
    for p in "qkvo"])
edited(LayerPlain, "layer_table_saved", 2.75, DIAGNOSES["table saved"],
       ("        self.n_heads = n_heads\n", '''        self.n_heads = n_heads
        place = torch.arange(512)
        self.register_buffer("distance", (place[:, None] - place).abs())
'''), ("distance = (position[:, None] - position[None, :]).abs()", "distance = self.distance[:n, :n]"))
edited(LayerPlain, "layer_first_length", 2.25, DIAGNOSES["first length"],
       ("        self.n_heads = n_heads\n", "        self.n_heads = n_heads\n        self.bias = None\n"),
       ("        scores = scores + bias\n", '''        if self.bias is None:
            self.bias = bias
        scores = scores + self.bias
'''))
edited(LayerPlain, "layer_mask_put_away", 3.75,
       "With the mask and without it a new module is right; one that was called the other way before is not. (What you keep from "
       "one call must not change the next.)",
       ("        self.n_heads = n_heads\n", "        self.n_heads = n_heads\n        self.is_causal = True\n"),
       ("        if is_causal:", "        self.is_causal = self.is_causal and is_causal\n        if self.is_causal:"))
edited(LayerPlain, "layer_positions_in_half_precision", 3.75, DIAGNOSES["low positions"],
       ("position = torch.arange(n)", "position = torch.arange(n, dtype=x.dtype)"))
edited(LayerPlain, "layer_float32_only", 3.75, DIAGNOSES["float32 only"], (".to(x.dtype)", ""))
edited(LayerPlain, "layer_large_number", 3.75, DIAGNOSES["large number"], ('float("-inf")', "-1e9"))
edited(LayerPlain, "layer_detached", 4.5, DIAGNOSES["detached"], ("self.o_proj(out)", "self.o_proj(out.detach())"))
edited(LayerPlain, "layer_accepts_any_size", 4.5, DIAGNOSES["sizes"],
       ('        if d_model % n_heads:\n            raise ValueError("n_heads must divide d_model")\n', ""))


edited(LayerPlain, "layer_scaled_by_heads", 0, "You divide the scores by the square root of the number of heads; divide by that of head_dim.",
       ("math.sqrt(q.shape[-1])", "math.sqrt(self.n_heads)"))
edited(LayerPlain, "layer_keys_from_queries", 0, "Your keys come from q_proj; they have a projection of their own, k_proj.",
       ("self.split(self.k_proj(x))", "self.split(self.q_proj(x))"))


@right(WEEK, "ALiBiMultiHeadAttention")
class LayerFused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"{d_model} is not a multiple of {n_heads}")
        self.n_heads = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))
        power = 1 << (n_heads.bit_length() - 1)
        self.slopes = [2 ** (-8 * k / power) for k in range(1, power + 1)]
        self.slopes += [2 ** (-4 * k / power) for k in range(1, 2 * power, 2)][: n_heads - power]

    def forward(self, x, is_causal=True):
        b, n, d = x.shape
        q, k, v = (p(x).reshape(b, n, self.n_heads, -1).permute(0, 2, 1, 3) for p in (self.q_proj, self.k_proj, self.v_proj))
        place = torch.arange(n, device=x.device)
        mask = -torch.tensor(self.slopes, device=x.device).view(-1, 1, 1) * (place - place[:, None]).abs()
        if is_causal:
            mask = mask.masked_fill(place > place[:, None], float("-inf"))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        return self.o_proj(out.permute(0, 2, 1, 3).reshape(b, n, d))


@right(WEEK, "ALiBiMultiHeadAttention", 4.75)
class LayerKeepsAFloat32Bias(nn.Module):
    """What is kept from one call does not change the next."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("d_model must be a multiple of n_heads")
        self.n_heads, self.kept = n_heads, {}
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def bias(self, n):
        if n not in self.kept:
            c = 2 ** math.floor(math.log2(self.n_heads))
            slopes = [2 ** (-8 * k / c) for k in range(1, c + 1)] + [2 ** (-4 * k / c) for k in range(1, 2 * c, 2)]
            place = torch.arange(n)
            self.kept[n] = -torch.tensor(slopes[: self.n_heads])[:, None, None] * (place[:, None] - place).abs()
        return self.kept[n]

    def forward(self, x, is_causal=True):
        b, n, d = x.shape
        q, k, v = (p(x).view(b, n, self.n_heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + self.bias(n).to(x)
        if is_causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


@right(WEEK, "ALiBiMultiHeadAttention", 4.75)
class LayerHeadByHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("d_model % n_heads != 0")
        self.h, self.hd = n_heads, d_model // n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def slope(self, head):
        c = 2 ** int(math.log2(self.h))
        return 2 ** (-8 * (head + 1) / c) if head < c else 2 ** (-4 * (2 * (head - c) + 1) / c)

    def forward(self, x, is_causal=True):
        n = x.size(1)
        q, k, v = (p(x).float() if x.dtype != torch.float64 else p(x) for p in (self.q_proj, self.k_proj, self.v_proj))
        i = torch.arange(n).unsqueeze(1)
        j = torch.arange(n).unsqueeze(0)
        outs = []
        for head in range(self.h):
            part = slice(head * self.hd, (head + 1) * self.hd)
            s = torch.einsum("bid,bjd->bij", q[..., part], k[..., part]) * self.hd**-0.5 - self.slope(head) * abs(i - j)
            if is_causal:
                s = torch.where(j <= i, s, torch.full_like(s, -math.inf))
            outs.append(torch.softmax(s, -1) @ v[..., part])
        return self.o_proj(torch.cat(outs, -1).to(x.dtype))


@right(WEEK, "ALiBiMultiHeadAttention", 4.75)
class LayerPerKeyUnderTheMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("sizes")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        c = 2 ** math.floor(math.log2(n_heads))
        slopes = [2 ** (-8 * k / c) for k in range(1, c + 1)] + [2 ** (-4 * k / c) for k in range(1, 2 * c, 2)]
        self.register_buffer("slopes", torch.tensor(slopes[:n_heads]), persistent=False)

    def forward(self, x, is_causal=True):
        b, n, d = x.shape
        q, k, v = (p(x).view(b, n, self.n_heads, -1).transpose(1, 2).double() for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.mT / (d // self.n_heads) ** 0.5
        j = torch.arange(n).double()
        slopes = self.slopes.double()[:, None, None]
        if is_causal:  # differs by a constant in each row
            scores = (scores + slopes * j).masked_fill(torch.triu(torch.ones(n, n), 1).bool(), -math.inf)
        else:
            scores = scores - slopes * (j[:, None] - j).abs()
        out = scores.softmax(-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, n, d).to(x.dtype))


# ---- 4.7 effective_window -------------------------------------------------------------------------------------------


@right(WEEK, "effective_window")
def window_plain(slope, tol=0.01):
    slope, tol = float(slope), float(tol)
    reach = -math.log(tol) / slope
    return math.ceil(reach)


edited(window_plain, "window_floor", 0, DIAGNOSES["floor"], ("math.ceil(reach)", "int(reach)"))
edited(window_plain, "window_nearest", 0, DIAGNOSES["nearest"], ("math.ceil(reach)", "round(reach)"))
edited(window_plain, "window_log10", 0, DIAGNOSES["log10"], ("math.log(tol)", "math.log10(tol)"))
edited(window_plain, "window_log2", 0, DIAGNOSES["log2"], ("math.log(tol)", "math.log2(tol)"))
edited(window_plain, "window_multiplied", 0, DIAGNOSES["multiplied"], ("/ slope", "* slope"))
edited(window_plain, "window_tol_ignored", 1, DIAGNOSES["tol ignored"], ("math.log(tol)", "math.log(0.01)"))
edited(window_plain, "window_no_minus", 0, DIAGNOSES["no minus"], ("-math.log", "math.log"))
edited(window_plain, "window_linear", 0, DIAGNOSES["linear bias"], ("-math.log(tol) / slope", "1 / (tol * slope)"))
edited(window_plain, "window_half_life", 0, DIAGNOSES["half-life"], ("-math.log(tol)", "math.log(2)"))
edited(window_plain, "window_float", 1.5, DIAGNOSES["not int"], ("math.ceil(reach)", "float(math.ceil(reach))"))
edited(window_plain, "window_no_tensors", 1.5, DIAGNOSES["no tensors"],
       ("    slope, tol = float(slope), float(tol)\n", '''    if not isinstance(slope, float):
        raise TypeError("slope must be a float")
'''))


@right(WEEK, "effective_window")
def window_loop(slope, tol=0.01):
    distance = 0
    while math.exp(-float(slope) * distance) > float(tol):
        distance += 1
    return distance


@right(WEEK, "effective_window")
def window_numpy(slope, tol=0.01):
    return int(np.ceil(np.log(1 / float(tol)) / float(slope)))


@right(WEEK, "effective_window")
def window_tensors(slope, tol=0.01):
    slope = torch.as_tensor(slope, dtype=torch.float64)
    tol = torch.as_tensor(tol, dtype=torch.float64)
    return int(torch.ceil(-torch.log(tol) / slope).item())


# ---- families: every mistake and every pair of them -----------------------------------------------------------------


def _slopes(n_heads, mistakes=frozenset()):
    """The slopes as a float64 tensor, with mistakes."""
    start = 0 if "from zero" in mistakes else 1
    rate = 4 if "halved exponent" in mistakes else 8
    power = 2 ** (n_heads.bit_length() - 1)

    def of(n):
        return [2.0 ** (-rate * k / n) for k in range(start, n + start)]

    if "1/2^k" in mistakes:
        slopes = [2.0**-k for k in range(start, n_heads + start)]
    elif "one formula" in mistakes:
        slopes = of(n_heads)
    elif "larger cut" in mistakes:
        slopes = of(power if power == n_heads else 2 * power)[:n_heads]
    else:
        finer = of(2 * power)
        finer = finer if "consecutive" in mistakes else finer[1::2] if "odd entries" in mistakes else finer[0::2]
        parts = of(power), finer[: n_heads - power]
        slopes = parts[1] + parts[0] if "finer first" in mistakes else parts[0] + parts[1]
    if "sorted" in mistakes:
        slopes = sorted(slopes, reverse=True)
    if "smallest first" in mistakes:
        slopes = slopes[::-1]
    out = torch.tensor(slopes, dtype=torch.float64)
    return -out if "negative" in mistakes else out


def _bias(n_heads, n_queries, n_keys, mistakes=frozenset()):
    """The bias in float64, with mistakes."""
    slopes = _slopes(n_heads, mistakes)[:, None, None]
    if "n_keys ignored" in mistakes:
        n_keys = n_queries
    i = torch.arange(n_queries)[:, None] + (0 if "top left" in mistakes else n_keys - n_queries)
    j = torch.arange(n_keys)[None]
    if "per key" in mistakes:
        return slopes * j.expand(n_queries, n_keys)
    distance = (i - j).double()
    distance = distance.clamp(min=0) if "tril" in mistakes else distance if "signed" in mistakes else distance.abs()
    distance = distance**2 if "squared" in mistakes else distance.log1p() if "log distance" in mistakes else distance
    if "one too far" in mistakes:
        distance = distance + 1
    bias = slopes * distance if "sign" in mistakes else -slopes * distance
    return bias.masked_fill(j > i, -math.inf) if "masked" in mistakes else bias


def _say(*names):
    return {name: DIAGNOSES[name] for name in names}


SLOPES = ("1/2^k", "one formula", "sorted", "from zero", "smallest first", "odd entries", "consecutive", "finer first",
          "larger cut", "halved exponent", "negative")
DISTANCES = ("sign", "signed", "tril", "squared", "one too far", "log distance")


@family(WEEK, "alibi_slopes", _say(*SLOPES))
def slopes_with(mistakes):
    return lambda n_heads: _slopes(n_heads, mistakes).float()


@family(WEEK, "alibi_bias", _say(*SLOPES[:-1], *DISTANCES, "per key", "masked", "top left", "n_keys ignored", "heads last",
                                 "axes turned"))
def bias_with(mistakes):
    def subject(n_heads, n_queries, n_keys=None):
        bias = _bias(n_heads, n_queries, n_queries if n_keys is None else n_keys, mistakes).float()
        bias = bias.mT if "axes turned" in mistakes else bias
        return bias.permute(1, 2, 0) if "heads last" in mistakes else bias

    return subject


@family(WEEK, "per_key_bias_is_equivalent", _say("always", "first queries", "not masked", "one masked",
                                                 "biases compared", "float32", "mean", "False too often"))
def equivalence_with(mistakes):
    def subject(scores, slopes, causal):
        dtype = torch.float32 if "float32" in mistakes else torch.float64
        n_queries, n_keys = scores.shape[-2:]
        scores, slopes = scores.to(dtype), slopes.to(dtype)[:, None, None]
        j = torch.arange(n_keys, device=scores.device)
        i = torch.arange(n_queries, device=scores.device)[:, None] + (0 if "first queries" in mistakes else n_keys - n_queries)
        both = [scores + slopes * j, scores - slopes * ((i - j) if "always" in mistakes else (i - j).abs())]
        if causal and "not masked" not in mistakes:
            both = [s.masked_fill(j > i, -math.inf) if at == 0 or "one masked" not in mistakes else s
                    for at, s in enumerate(both)]
        if "biases compared" not in mistakes:
            both = [s.softmax(-2 if "False too often" in mistakes else -1) for s in both]
        gap = (both[0].nan_to_num() - both[1].nan_to_num()).abs()
        return bool((gap.mean() if "mean" in mistakes else gap.max()) <= 1e-5)

    return subject


@family(WEEK, "ALiBiMultiHeadAttention", _say(
    "no bias", "after softmax", "bias scaled", "bias enlarged", "factor", "unscaled", "d_model scale", "over queries",
    "clobbered", "mask late", "no causal", "always causal", "strict", "batch order", "one slope", *SLOPES[:-1], *DISTANCES, "per key",
    "split", "channels by turns", "merge", "no o_proj"))
def layer_with(mistakes):
    class Layer(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.n_heads = n_heads
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(self, name, nn.Linear(d_model, d_model, bias=False))

        def forward(self, x, is_causal=True):
            batch, n, d_model = x.shape
            h, head_dim = self.n_heads, d_model // self.n_heads

            def split(t):
                if "split" in mistakes:
                    return t.reshape(batch, h, n, head_dim)
                if "channels by turns" in mistakes:
                    return t.reshape(batch, n, head_dim, h).permute(0, 3, 1, 2)
                return t.reshape(batch, n, h, head_dim).transpose(1, 2)

            q, k, v = (split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
            size = 1 if "unscaled" in mistakes else d_model if "d_model scale" in mistakes else head_dim
            bias = _bias(h, n, n, mistakes).to(x)
            if "one slope" in mistakes:
                bias = bias[:1].expand(h, n, n)
            if "batch order" in mistakes:
                bias = bias.repeat_interleave(batch, dim=0).view(batch, h, n, n)
            scores = q @ k.mT / math.sqrt(size)
            if "factor" in mistakes:
                scores = scores * bias
            elif "no bias" not in mistakes and "after softmax" not in mistakes:
                scores = scores + bias * (math.sqrt(head_dim) if "bias enlarged" in mistakes else
                                          1 / math.sqrt(head_dim) if "bias scaled" in mistakes else 1)
            future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(0 if "strict" in mistakes else 1)
            is_masked = (is_causal or "always causal" in mistakes) and "no causal" not in mistakes
            if is_masked and "mask late" not in mistakes:
                scores = scores.masked_fill(future, 0 if "clobbered" in mistakes else -math.inf)
            weights = scores.softmax(-2 if "over queries" in mistakes else -1)
            if is_masked and "mask late" in mistakes:
                weights = weights.masked_fill(future, 0.0)
            if "after softmax" in mistakes:
                weights = weights + (bias.tril() if is_causal else bias)
            out = weights @ v
            if "channels by turns" in mistakes:
                out = out.permute(0, 2, 3, 1).flatten(2)
            else:
                out = out.reshape(batch, n, d_model) if "merge" in mistakes else out.transpose(1, 2).flatten(2)
            return out if "no o_proj" in mistakes else self.o_proj(out)

    return Layer


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    DIAGNOSES[name]
    for name in (
        "sorted", "from zero", "smallest first", "odd entries", "consecutive", "finer first", "1/2^k",
        "one formula", "larger cut", "halved exponent", "sign", "signed", "per key", "tril", "squared",
        "log distance", "one too far",
    )
)
