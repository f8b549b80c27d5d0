"""Week 3, RoPE: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week3_rope"

DIAGNOSES = {
    # frequencies
    "i/d":
        "Your frequencies fall half as fast as they should: the exponent counts channels (2i), not pairs (i), out of "
        "head_dim.",
    "d-2":
        "Your exponents are divided by head_dim - 2, so that the last frequency is exactly 1/base; RoPE divides by "
        "head_dim.",
    "positive": "Your frequencies grow from pair to pair: the exponent lacks its minus sign.",
    "first pair": "Your pairs are counted from 1; the first pair has exponent 0 and turns by one radian per position.",
    "wavelength": "You return wavelengths (2 pi / frequency), or frequencies times 2 pi; the exercise asks for radians per position.",
    "whole exponent": "Your exponents are rounded to whole numbers (integer division).",
    "per channel": "You return one frequency per channel; the exercise asks for one per pair.",
    "low frequencies": "Your frequencies are rounded to half precision.",
    "base": "Your code uses its own base instead of the argument `base`.",
    # rotation
    "half layout":
        "Your result is RoPE in the half-split layout (channel i with i + head_dim/2); this exercise asks for "
        "interleaved pairs (2i, 2i+1).",
    "interleaved layout":
        "Your result is RoPE with interleaved pairs (2i, 2i+1); this exercise asks for the half-split layout "
        "(channel i with i + head_dim/2).",
    "clockwise":
        "Your rotation turns the wrong way: (1, 0) at a positive position must turn counter-clockwise, towards "
        "(0, 1).",
    "swapped": "Sine and cosine are swapped: at position 0 the vectors should not change at all.",
    "degrees": "Your angles are converted from degrees; position times frequency is in radians already.",
    "mirrored": "One of the two lines of the rotation has a wrong sign: pairs are mirrored or stretched, not turned.",
    "overwritten":
        "The second channel of each pair is computed from the first one after its rotation; both need the old "
        "values.",
    "apart":
        "Your pairs are rotated correctly but not put back side by side: all first channels come before all second "
        "ones.",
    "even and odd":
        "You take even and odd channels apart; in the half layout the two of a pair are half a head apart: channel i "
        "with i + head_dim/2.",
    "woven":
        "Your pairs are rotated correctly but put back side by side; in the half-split layout all first channels "
        "come before all second ones.",
    "mixed tables":
        "Two layouts are mixed: cosines and sines are repeated in the order of one layout, but the channels are "
        "paired as in the other.",
    "one frequency": "All pairs have the same frequency; each pair has its own.",
    "second half first": "The second half comes out before the first: channel i must stay at place i.",
    "unrotated": "Your result is the input itself: nothing is rotated.",
    # positions
    "ignored": "Your result does not depend on `positions`: the tokens are counted 0, 1, 2, ... instead.",
    "from one": "Your positions are one too high: the angle at position 0 is 0.",
    "start only": "You use the first position and count on from there; every token has the position it is given.",
    "relative": "You subtract the first position: the rotation belongs to the position itself.",
    "head axis":
        "You rotate along the wrong axis: the angle follows the tokens (axis -2), and is the same for all heads.",
    "first row":
        "With positions (batch, seq_len) you use the first row for all sequences; row b belongs to sequence b.",
    "rows for heads":
        "With positions (batch, seq_len) your rows go to the heads; row b belongs to sequence b of the batch, for"
        " all its heads.",
    "one row": "Positions of shape (batch, seq_len) are not handled: row b belongs to sequence b of the batch.",
    "whole": "You round positions to whole numbers; they may be any real numbers.",
    "absolute": "You drop the sign of the positions; negative ones turn the other way.",
    "low precision":
        "Positions, frequencies or angles are rounded to the half precision of the input; they must stay in at "
        "least float32, and only cosine, sine and the result may be rounded.",
    "float32 out": "Your result is always float32; it must have the dtype of the input.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "in place": "Your function overwrites its argument; it must return a new tensor.",
    "odd":
        "An odd size leaves one channel without a partner and must raise ValueError; yours raises something else "
        "or nothing.",
    # converter
    "inverse": "You reorder by the inverse permutation: that converts from the half layout to the interleaved one.",
    "all heads": "One permutation runs over all heads: the rows of each head must stay within that head.",
    "odds first": "The odd rows come first in each head; the even ones are the first halves of the pairs.",
    "columns": "You reorder the columns of the weight; its rows are the output channels.",
    "neighbours": "You swap the two rows of each pair; the even rows of a head come first, then the odd ones.",
    "heads inside":
        "You take the rows as channel by channel, all heads of one channel together; they are stored head after "
        "head.",
    # attention
    "no rotation": "Your output is plain attention: queries and keys are not rotated.",
    "values": "The values are rotated too; rotate only queries and keys.",
    "queries only": "Only queries or only keys are rotated; the score needs both.",
    "before split":
        "You rotate before the heads are split, with frequencies for d_model: each head must have all the "
        "frequencies of head_dim.",
    "unscaled": "The scores are not divided by sqrt(head_dim).",
    "d_model scale": "The scores are divided by sqrt(d_model); the scale belongs to head_dim.",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys.",
    "channels by turns":
        "Your head h takes the channels h, h + n_heads, and so on: split the last axis into (n_heads, head_dim), in this order.",
    "split":
        "The heads are split without a transpose, so tokens and heads are mixed: channels split first, then the "
        "axes move.",
    "merge": "The heads are merged without a transpose, so tokens and heads are mixed.",
    "no causal": "`is_causal` changes nothing: later tokens are seen.",
    "mask by position": "Your causal mask compares positions; it must compare indices, whatever the positions say.",
    "hidden by default": "Without is_causal your answer hides later tokens as well. (It is False by default and hides nothing.)",
    "turned round": "`is_causal` is turned round: True shows later tokens, False hides them.",
    "mask inverted": "Your causal mask is inverted: it hides what a token may see, and shows what it may not.",
    "strict": "Your causal mask hides the token itself; token i sees the indices 0..i.",
    "no o_proj": "The output projection o_proj is not applied.",
    "names": "The projections must be called q_proj, k_proj, v_proj and o_proj, so that weights can be loaded.",
    "biases": "The projections must have no bias: the state_dict holds four weights and nothing else.",
    "tables saved":
        "A table or buffer is saved in the state_dict, which must hold the four weights and nothing else; it is "
        "also rounded by .to(torch.bfloat16).",
    "buffer": "The frequencies are a buffer, which .to(torch.bfloat16) rounds: far positions get wrong angles.",
    "sizes": "A d_model that n_heads does not divide, or an odd head_dim, must raise ValueError.",
    # bug hunt
    "not bool": "Your test must return True or False, a plain bool.",
    "refuses right": "Your test refuses a right file. (It must ask for nothing that the file does not promise, and leave room for rounding.)",
    "passes the listing": "Your test passes the listing as it stands. (Try what its author did not try.)",
    "refuses rounding":
        "Your test refuses a right file whose results are rounded otherwise than yours: leave the room that the docstring gives.",
    "refuses distances": "Your test refuses a right file that never turns the query: compare scores, not the steps to them.",
    "passes a layout":
        "Your test passes a file that pairs the channels of one layout with the tables of the other. (Try a vector with a "
        "single channel that is not 0.)",
    "passes low precision":
        "Your test passes a file that rounds angles to bfloat16. (Try far positions with x in bfloat16.)",
    "passes a query at 0":
        "Your test passes a file that takes the newest token for the first. (A step of decoding must give the last row of the "
        "whole prompt's scores.)",
    "sign moved":
        "The halves are right but the minus sign is on the wrong one: a quarter turn sends (a, b) to (-b, a).",
    "no sign": "The halves are swapped without a minus sign: that is a mirror, not a quarter turn.",
    "halves kept": "The halves stay in their places: a quarter turn swaps them and changes one sign.",
    "still woven": "The bug is still there: neighbouring channels are paired, but the tables are in halves.",
    "tokens": "You work along the tokens; the halves are those of the last axis.",
    "rounded angles":
        "The bug is still there, or half of it: frequencies, positions or angles are rounded before the cosine is"
        " taken.",
    "tables swapped": "Sine and cosine are returned in the wrong order.",
    "table width": "The tables are too wide: one column per pair, head_dim/2 of them.",
    "table dtype": "The tables must be returned in the dtype asked for.",
    "query at 0":
        "The bug is still there: the newest query counts as position 0, where nothing is rotated, but it belongs to the end of "
        "the cache.",
    "query after": "The query is one position too far: it belongs to the last key's position, n_keys - 1.",
    "keys only": "Your keys are not rotated: the cache holds them unrotated, so rotate key j to position j.",
    "keys reversed": "Your keys are numbered backwards: key j of the cache is at position j.",
    "reversed": "The distance has the wrong sign: positions run backwards, or the rotation turns the wrong way.",
    "scaled": "The scores are scaled; this function returns them unscaled.",
    "softmaxed": "You return weights after a softmax; the exercise asks for the scores.",
    "turned shape": "The shape is (batch, heads, 1, n_keys): one row, with one score per key.",
    "all at end": "As if all keys stood at the query's position, or nothing were turned: key j is at position j.",
    # a head that looks back
    "not two vectors": "Return two vectors (q, k) of head_dim numbers each.",
    "not finite": "A number in your vectors is not finite.",
    "no favourite": "To your head all keys look alike: its score does not change with the offset.",
    "looks ahead": "Your head looks ahead: its score is highest for a key that many positions *after* the query.",
    "looks at itself": "Asked to look several tokens back, your head looks at the newest one. (The contents must say how far back to look.)",
    "woven head": "Your vectors are right for the half-split layout; this layer pairs neighbours, channels 2i and 2i+1.",
    "one beside": "Your head looks one position beside the right one.",
    "too quiet": "Your head prefers the right token, but not by enough. (Every pair must take part, and q be long.)",
    "looks elsewhere": "Your head looks at another token than the one that is asked for.",
}


# ---- 3.1 rotate_by_hand ---------------------------------------------------------------------------------------------

by_hand = {
    "q3_0": -0.9899925, "q3_1": 0.14112001, "k1_0": -0.84147098, "k1_1": 0.54030231,
    "score_3_1": 0.90929743, "score_12_10": 0.90929743,
}

numbers(WEEK, "rotate_by_hand", "seven_digits", by_hand)
numbers(WEEK, "rotate_by_hand", "four_digits", {
    "q3_0": -0.9900, "q3_1": 0.1411, "k1_0": -0.8415, "k1_1": 0.5403, "score_3_1": 0.9093, "score_12_10": 0.9093})
numbers(WEEK, "rotate_by_hand", "degrees", {
    "q3_0": 0.99863, "q3_1": 0.052336, "k1_0": -0.017452, "k1_1": 0.99985,
    "score_3_1": 0.034899, "score_12_10": 0.034899,
}, 0, "Your calculator works in degrees; the angles are in radians.")
numbers(WEEK, "rotate_by_hand", "clockwise", {
    "q3_0": -0.98999, "q3_1": -0.14112, "k1_0": 0.84147, "k1_1": 0.54030,
    "score_3_1": -0.90930, "score_12_10": -0.90930,
}, 0, "You rotate clockwise: (1, 0) must turn towards (0, 1), and (0, 1) towards (-1, 0).")
numbers(WEEK, "rotate_by_hand", "swapped", {
    "q3_0": 0.14112, "q3_1": -0.98999, "k1_0": -0.54030, "k1_1": 0.84147,
    "score_3_1": -0.90930, "score_12_10": -0.90930,
}, 0, "Sine and cosine are swapped: at angle 0 nothing should change, and the cosine of 0 is 1.")
numbers(WEEK, "rotate_by_hand", "key_on_first_axis", by_hand | {
    "k1_0": 0.54030, "k1_1": 0.84147, "score_3_1": -0.41615, "score_12_10": -0.41615,
}, 1, "You rotate k as if it were (1, 0); it is (0, 1).")
numbers(WEEK, "rotate_by_hand", "key_clockwise", by_hand | {
    "k1_0": 0.84147, "score_3_1": -0.75680, "score_12_10": -0.0088513,
}, 1, "The sign of k's first channel is wrong; with it the score knows the sum of the positions, not the difference.")
numbers(WEEK, "rotate_by_hand", "sum_of_positions", by_hand | {"score_3_1": -0.75680, "score_12_10": -0.0088513},
        2, "Your score uses the sum of the two positions; it depends on their difference.")
numbers(WEEK, "rotate_by_hand", "difference_reversed", by_hand | {"score_3_1": -0.90930, "score_12_10": -0.90930},
        2, "Your score has the difference the wrong way round (n - m): its sign is wrong.")
numbers(WEEK, "rotate_by_hand", "cosine_of_difference", by_hand | {"score_3_1": -0.41615, "score_12_10": -0.41615},
        2, "Your score is the cosine of the angle turned; q and k were a quarter turn apart to begin with.")
numbers(WEEK, "rotate_by_hand", "from_one", by_hand | {
    "q3_0": -0.65364, "q3_1": -0.75680, "k1_0": -0.90930, "k1_1": -0.41615,
}, 1, "Your angles are one position too far: position 3 is the angle 3, not 4.")
numbers(WEEK, "rotate_by_hand", "scaled", by_hand | {"score_3_1": 0.64297, "score_12_10": 0.64297},
        2, "Your score is divided by sqrt(2); the exercise asks for the plain dot product.")
numbers(WEEK, "rotate_by_hand", "not_rotated", by_hand | {"score_3_1": 0.0, "score_12_10": 0.0},
        2, "Your score is that of q and k before the rotation.")
numbers(WEEK, "rotate_by_hand", "two_digits", {
    "q3_0": -0.99, "q3_1": 0.14, "k1_0": -0.84, "k1_1": 0.54, "score_3_1": 0.91, "score_12_10": 0.91,
}, 0, ROUNDED_TOO_FAR)


# ---- 3.2 rope_frequencies -------------------------------------------------------------------------------------------


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["i/d"])
def freq_i_over_d(head_dim, base=10000.0):
    if head_dim % 2 != 0:
        raise ValueError("head_dim must be even")
    i = torch.arange(head_dim // 2).float()
    return 1.0 / base ** (i / head_dim)


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["d-2"])
def freq_d_minus_two(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    i = torch.arange(0, head_dim, 2).float()
    return base ** (-i / max(head_dim - 2, 1))


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["positive"])
def freq_growing(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    return torch.tensor([base ** (2 * i / head_dim) for i in range(head_dim // 2)])


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["first pair"])
def freq_from_pair_one(head_dim, base=10000.0):
    assert head_dim % 2 == 0
    return base ** -(torch.arange(2, head_dim + 1, 2) / head_dim)


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["wavelength"])
def freq_wavelength(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError
    return 2 * math.pi * base ** (torch.arange(0, head_dim, 2) / head_dim)


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["whole exponent"])
def freq_integer_division(head_dim, base=10000.0):
    return 1 / (base ** (torch.arange(0, head_dim, 2) // head_dim).float())


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["per channel"])
def frequencies_twice(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    freqs = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return torch.cat((freqs, freqs))


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["per channel"])
def freq_per_channel(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("need pairs")
    theta = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return theta.repeat_interleave(2)


@wrong(WEEK, "rope_frequencies", 0, DIAGNOSES["low frequencies"])
def freq_bfloat16(head_dim, base=10000.0):
    theta = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return theta.to(torch.bfloat16).float()


@wrong(WEEK, "rope_frequencies", 1.5, DIAGNOSES["base"])
def freq_own_base(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    return torch.exp(-math.log(10000.0) * torch.arange(0, head_dim, 2) / head_dim)


@wrong(WEEK, "rope_frequencies", 1.5, DIAGNOSES["odd"])
def freq_odd_accepted(head_dim, base=10000.0):
    return 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))


@wrong(WEEK, "rope_frequencies", 1.75, "rope_frequencies(8): your result is an argument, or the result of an earlier call: "
       "writing to it changes that one, too. Return a new tensor.", remembers=True)
def freq_handed_out_twice(head_dim, base=10000.0, kept={}):  # noqa: B006
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    if (head_dim, base) not in kept:
        kept[head_dim, base] = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return kept[head_dim, base]


@right(WEEK, "rope_frequencies")
def freq_llama(head_dim, base=10000.0):
    if head_dim % 2 != 0:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    return 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))


@right(WEEK, "rope_frequencies")
def freq_log_space(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("pairs!")
    return torch.exp(torch.arange(0, head_dim, 2) * (-math.log(base) / head_dim))


@right(WEEK, "rope_frequencies")
def freq_numpy(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    return torch.from_numpy(np.power(base, -np.arange(0, head_dim, 2) / head_dim))


@right(WEEK, "rope_frequencies")
def freq_list(head_dim, base=10000.0):
    if head_dim % 2 == 1:
        raise ValueError("head_dim must be even")
    thetas = []
    for i in range(head_dim // 2):
        thetas.append(math.pow(base, -2 * i / head_dim))
    return torch.tensor(thetas)


# ---- 3.3 apply_rotary_emb -------------------------------------------------------------------------------------------


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_plain(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    theta = base ** (-torch.arange(0, d, 2) / d)
    angle = positions[..., None] * theta
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    first = even * cos - odd * sin
    second = even * sin + odd * cos
    return torch.stack((first, second), dim=-1).flatten(-2).to(x.dtype)


edited(rope_plain, "rope_base_of_rows", 4.75, "With positions (seq_len,) another base is right, with positions (batch, seq_len) it "
       "is not. (The base is the same for all.)", ("angle.unsqueeze(1)", "(positions[..., None] * 10000.0 ** (-torch.arange(0, d, 2) / d)).unsqueeze(1)"))


EVEN_ONLY = '''    if d % 2:
        raise ValueError("head_dim must be even")
'''
ROW_PER_SEQUENCE = '''    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
'''
edited(rope_plain, "rope_clockwise", 0, DIAGNOSES["clockwise"],
       ("even * cos - odd * sin", "even * cos + odd * sin"), ("even * sin + odd * cos", "odd * cos - even * sin"))
edited(rope_plain, "rope_exponent_d_minus_two", 0, DIAGNOSES["d-2"],
       ("base ** (-torch.arange(0, d, 2) / d)", "torch.logspace(0, -math.log10(base), d // 2)"))
edited(rope_plain, "rope_exponent_positive", 0, DIAGNOSES["positive"], ("(-torch.arange", "(torch.arange"))
edited(rope_plain, "rope_first_pair", 0, DIAGNOSES["first pair"], ("torch.arange(0, d, 2)", "torch.arange(2, d + 1, 2)"))
edited(rope_plain, "rope_sin_cos_swapped", 0, DIAGNOSES["swapped"], ("cos, sin =", "sin, cos ="))
edited(rope_plain, "rope_degrees", 0, DIAGNOSES["degrees"],
       ("positions[..., None] * theta", "torch.deg2rad(positions[..., None] * theta)"))
edited(rope_plain, "rope_mirrored", 0, DIAGNOSES["mirrored"], ("even * cos - odd", "even * cos + odd"))
edited(rope_plain, "rope_mirrored_below", 0, DIAGNOSES["mirrored"], ("even * sin + odd * cos", "odd * cos - even * sin"))
edited(rope_plain, "rope_overwritten", 0, DIAGNOSES["overwritten"], ("second = even", "second = first"))
edited(rope_plain, "rope_not_woven_back", 0, DIAGNOSES["apart"],
       ("torch.stack((first, second), dim=-1).flatten(-2)", "torch.cat((first, second), dim=-1)"))
edited(rope_plain, "rope_one_frequency", 0, DIAGNOSES["one frequency"],
       ("positions[..., None] * theta", "positions[..., None].float()"))
edited(rope_plain, "rope_from_one", 0, DIAGNOSES["from one"], ("angle = positions", "angle = (positions + 1)"))
edited(rope_plain, "rope_head_axis", 0, DIAGNOSES["head axis"], ("positions[..., None]", "positions[..., None, None]"),
       (ROW_PER_SEQUENCE, ""))
edited(rope_plain, "rope_first_row", 4.75, DIAGNOSES["first row"], ("angle = angle.unsqueeze(1)", "angle = angle[0]"))
edited(rope_plain, "rope_rows_for_heads", 4.75, DIAGNOSES["rows for heads"], (ROW_PER_SEQUENCE, ""))
edited(rope_plain, "rope_one_row_only", 4.75, DIAGNOSES["one row"], (ROW_PER_SEQUENCE, ""),
       ("positions[..., None] * theta", "torch.outer(positions, theta)"))
edited(rope_plain, "rope_whole_positions", 4.75, DIAGNOSES["whole"], ("angle = positions", "angle = positions.long()"))
edited(rope_plain, "rope_absolute_positions", 4.75, DIAGNOSES["absolute"], ("angle = positions", "angle = positions.abs()"))
edited(rope_plain, "rope_own_base", 5.25, DIAGNOSES["base"], ("theta = base", "theta = 10000.0"))
edited(rope_plain, "rope_cast_in_half_only", 5.5,
       "apply_rotary_emb(x (2, 2, 5, 8), positions 0..4 in float64) must be a float32 tensor; "
       "yours returns a float64 tensor of shape (2, 2, 5, 8).",
       ("return torch.stack((first, second), dim=-1).flatten(-2).to(x.dtype)",
        "y = torch.stack((first, second), dim=-1).flatten(-2)\n    return y.to(x.dtype) if x.dtype.itemsize == 2 else y"))
edited(rope_plain, "rope_detached", 5.25, DIAGNOSES["detached"], (".to(x.dtype)", ".to(x.dtype).detach()"))
edited(rope_plain, "rope_odd_accepted", 5.25, DIAGNOSES["odd"], (EVEN_ONLY, ""))


@wrong(WEEK, "apply_rotary_emb", 0, DIAGNOSES["half layout"])
def rope_half_split(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    inv_freq = 1.0 / (base ** (torch.arange(0, d, 2).float() / d))
    angles = positions.float().unsqueeze(-1) * inv_freq
    if positions.dim() == 2:
        angles = angles.unsqueeze(1)
    emb = torch.cat((angles, angles), dim=-1)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    rotated = torch.cat((-x2, x1), dim=-1)
    return (x * emb.cos() + rotated * emb.sin()).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 0, DIAGNOSES["i/d"])
def rope_exponent_i_over_d(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    theta = 1.0 / base ** (torch.arange(d // 2) / d)
    angle = positions.float()[..., None] * theta
    if positions.ndim == 2:
        angle = angle[:, None, :, :]
    cos, sin = torch.cos(angle), torch.sin(angle)
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    out = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return out.reshape(x.shape).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 0, DIAGNOSES["mixed tables"])
@wrong(WEEK, "apply_rotary_emb_half", 0, DIAGNOSES["mixed tables"])
def rope_mixed_layouts(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    theta = base ** (-torch.arange(0, d, 2) / d)
    angle = positions[..., None] * theta
    angle = torch.cat((angle, angle), dim=-1)  # as in LLaMA
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    quarter = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)  # as in GPT-J
    return (x * angle.cos() + quarter * angle.sin()).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 2.75, DIAGNOSES["ignored"])
def rope_positions_ignored(x, positions, base=10000.0):
    batch, heads, seq_len, d = x.shape
    if d % 2:
        raise ValueError("head_dim must be even")
    t = torch.arange(seq_len, dtype=torch.float32)
    freqs = torch.outer(t, 1.0 / (base ** (torch.arange(0, d, 2) / d)))
    cis = torch.polar(torch.ones_like(freqs), freqs)
    pairs = torch.view_as_complex(x.float().reshape(batch, heads, seq_len, d // 2, 2))
    return torch.view_as_real(pairs * cis).flatten(3).type_as(x)


@wrong(WEEK, "apply_rotary_emb", 2.75, DIAGNOSES["start only"])
def rope_start_only(x, positions, base=10000.0):
    seq_len, d = x.shape[-2:]
    if d % 2:
        raise ValueError("head_dim must be even")
    t = positions[..., :1] + torch.arange(seq_len)
    angle = t[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 4.75, DIAGNOSES["low precision"])
def rope_angles_in_input_dtype(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    inv_freq = (base ** (-torch.arange(0, d, 2) / d)).to(x.dtype)
    angle = positions.to(x.dtype)[..., None] * inv_freq
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), -1).flatten(-2)


@wrong(WEEK, "apply_rotary_emb", 5.75, "By itself a call in float32 is right, after an equal one in bfloat16 it is not. "
       "(What you keep from one call must not change the next.)", remembers=True)
def rope_keeps_rounded_tables(x, positions, base=10000.0, kept={}):  # noqa: B006
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    asked = (*positions.flatten().tolist(), *positions.shape, d, base, x.device)
    if asked not in kept:
        angle = positions[..., None] * base ** (-torch.arange(0, d, 2, device=x.device) / d)
        angle = angle.unsqueeze(1) if positions.ndim == 2 else angle
        kept[asked] = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    cos, sin = kept[asked]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 5.5, DIAGNOSES["float32 out"])
def rope_always_float32(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    freqs = positions.float()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    cis = torch.polar(torch.ones_like(freqs), freqs)
    if positions.ndim == 2:
        cis = cis[:, None]
    return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * cis).flatten(-2)


@wrong(WEEK, "apply_rotary_emb", 0, DIAGNOSES["unrotated"])
def rope_unrotated(x, positions, base=10000.0):
    return x.clone()


@wrong(WEEK, "apply_rotary_emb", 5.25, DIAGNOSES["in place"])
def rope_in_place(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    angle = positions[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2].clone(), x[..., 1::2].clone()
    x.data[..., 0::2] = even * cos - odd * sin
    x.data[..., 1::2] = even * sin + odd * cos
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_complex(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    freqs = positions.float()[..., None] * (1.0 / base ** (torch.arange(0, d, 2).float() / d))
    cis = torch.polar(torch.ones_like(freqs), freqs)
    if positions.ndim == 2:
        cis = cis.unsqueeze(1)
    wide = x if x.dtype == torch.float64 else x.float()
    z = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * cis).flatten(-2).type_as(x)


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_matrices(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2 != 0:
        raise ValueError("odd head_dim")
    theta = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    a = positions.double().unsqueeze(-1) * theta
    rotation = torch.stack((torch.stack((a.cos(), -a.sin()), -1), torch.stack((a.sin(), a.cos()), -1)), -2)
    if positions.dim() == 2:
        rotation = rotation.unsqueeze(1)
    pairs = x.double().unflatten(-1, (d // 2, 2)).unsqueeze(-1)
    return (rotation @ pairs).squeeze(-1).flatten(-2).to(x.dtype)


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_einsum(x, positions, base=10000.0):
    b, h, n, d = x.shape
    if d % 2:
        raise ValueError("head_dim must be even")
    pos = positions.expand(b, n) if positions.ndim == 1 else positions
    a = torch.einsum("bn,i->bni", pos.to(torch.float64), base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d))
    rot = torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()], dim=-1).view(b, n, d // 2, 2, 2).to(x.dtype)
    return torch.einsum("bnirc,bhnic->bhnir", rot, x.reshape(b, h, n, d // 2, 2)).reshape(b, h, n, d)


@right(WEEK, "apply_rotary_emb")
def rope_loop(x, positions, base=10000.0):
    batch, heads, seq_len, d = x.shape
    if d % 2:
        raise ValueError("head_dim must be even")
    out = torch.zeros_like(x)
    for b in range(batch):
        for t in range(seq_len):
            p = float(positions[t] if positions.ndim == 1 else positions[b, t])
            for i in range(d // 2):
                c, s = math.cos(p * base ** (-2 * i / d)), math.sin(p * base ** (-2 * i / d))
                out[b, :, t, 2 * i] = x[b, :, t, 2 * i] * c - x[b, :, t, 2 * i + 1] * s
                out[b, :, t, 2 * i + 1] = x[b, :, t, 2 * i] * s + x[b, :, t, 2 * i + 1] * c
    return out


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_repeat_interleave(x, positions, base=10000.0):
    def rotate_every_two(x):
        x1, x2 = x.reshape(*x.shape[:-1], -1, 2).unbind(dim=-1)
        return torch.stack((-x2, x1), dim=-1).reshape(x.shape)

    d = x.shape[-1]
    if d % 2:
        raise ValueError("rotary needs an even dimension")
    freqs = positions.type(torch.float32).unsqueeze(-1) * (1.0 / (base ** (torch.arange(0, d, 2).float() / d)))
    freqs = freqs.repeat_interleave(2, dim=-1)
    if positions.dim() == 2:
        freqs = freqs.unsqueeze(1)
    return (x * freqs.cos() + rotate_every_two(x) * freqs.sin()).to(x.dtype)


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_in_input_dtype(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    angle = positions.float()[..., None] * torch.exp(torch.arange(0, d, 2) * (-math.log(base) / d))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if positions.ndim == 2:
        cos, sin = cos[:, None], sin[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


@right(WEEK, "apply_rotary_emb", 5.75)
def rope_numpy_tables(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    theta = base ** (-2.0 * np.arange(d // 2) / d)
    angle = positions.double().numpy()[..., None] * theta
    if positions.ndim == 2:
        angle = angle[:, None]
    cos, sin = torch.tensor(np.cos(angle)).to(x), torch.tensor(np.sin(angle)).to(x)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return out


@right(WEEK, "apply_rotary_emb")
def rope_object(x, positions, base=10000.0):
    class Rotary:
        def __init__(self, dim, base):
            if dim % 2:
                raise ValueError("dim must be even")
            self.inv_freq = [base ** (-k / dim) for k in range(0, dim, 2)]

        def __call__(self, x, positions):
            channels = list(x.unbind(-1))
            for i, w in enumerate(self.inv_freq):
                angle = positions.to(torch.float64) * w
                angle = angle.unsqueeze(-2) if angle.ndim == 2 else angle
                a, b = channels[2 * i], channels[2 * i + 1]
                channels[2 * i] = (a * angle.cos() - b * angle.sin()).to(x.dtype)
                channels[2 * i + 1] = (a * angle.sin() + b * angle.cos()).to(x.dtype)
            return torch.stack(channels, dim=-1)

    return Rotary(x.shape[-1], base)(x, positions)


# ---- 3.4 apply_rotary_emb_half --------------------------------------------------------------------------------------


@right(WEEK, "apply_rotary_emb_half", 1.875)
def half_plain(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    angle = positions[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle.unsqueeze(1)
    cos, sin = angle.cos(), angle.sin()
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    y1 = x1 * cos - x2 * sin
    y2 = x1 * sin + x2 * cos
    return torch.cat((y1, y2), dim=-1).to(x.dtype)


THETA = "base ** (-torch.arange(0, d, 2) / d)"
edited(half_plain, "half_exponent_i_over_d", 0, DIAGNOSES["i/d"], (THETA, "base ** (-torch.arange(d // 2) / d)"))
edited(half_plain, "half_woven", 0, DIAGNOSES["woven"],
       ("torch.cat((y1, y2), dim=-1)", "torch.stack((y1, y2), dim=-1).flatten(-2)"))
edited(half_plain, "half_overwritten", 0, DIAGNOSES["overwritten"], ("y2 = x1", "y2 = y1"))
edited(half_plain, "half_swapped_back", 0, DIAGNOSES["second half first"], ("(y1, y2)", "(y2, y1)"))
edited(half_plain, "half_positions_ignored", 1.125, DIAGNOSES["ignored"],
       ("positions[..., None]", "torch.arange(x.shape[-2])[:, None]"), (ROW_PER_SEQUENCE, ""))
edited(half_plain, "half_one_row_only", 1.375, DIAGNOSES["one row"],
       (f"positions[..., None] * {THETA}", f"torch.outer(positions, {THETA})"), (ROW_PER_SEQUENCE, ""))
edited(half_plain, "half_angles_in_input_dtype", 1.625, DIAGNOSES["low precision"],
       ("positions[..., None]", "positions[..., None].to(x.dtype)"))
edited(half_plain, "half_odd_accepted", 1.75, DIAGNOSES["odd"], (EVEN_ONLY, ""))


@wrong(WEEK, "apply_rotary_emb_half", 0, DIAGNOSES["unrotated"])
def half_unrotated(x, positions, base=10000.0):
    return x.clone()


@wrong(WEEK, "apply_rotary_emb_half", 0, DIAGNOSES["interleaved layout"])
def half_interleaved(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    freqs = positions.float()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    cis = torch.polar(torch.ones_like(freqs), freqs)
    if positions.ndim == 2:
        cis = cis[:, None]
    return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * cis).flatten(-2).type_as(x)


@wrong(WEEK, "apply_rotary_emb_half", 0, DIAGNOSES["clockwise"])
def half_clockwise(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    angle = positions.float()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle[:, None]
    emb = torch.cat((angle, angle), -1)
    x1, x2 = x.chunk(2, dim=-1)
    return (x * emb.cos() + torch.cat((x2, -x1), dim=-1) * emb.sin()).to(x.dtype)


@wrong(WEEK, "apply_rotary_emb", 0, DIAGNOSES["mixed tables"])
@wrong(WEEK, "apply_rotary_emb_half", 0, DIAGNOSES["mixed tables"])
def half_mixed_layouts(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    angle = positions.float()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle[:, None]
    emb = angle.repeat_interleave(2, dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    return (x * emb.cos() + torch.cat((-x2, x1), dim=-1) * emb.sin()).to(x.dtype)


@right(WEEK, "apply_rotary_emb_half")
def half_llama(x, positions, base=10000.0):
    def rotate_half(x):
        x1 = x[..., : x.shape[-1] // 2]
        x2 = x[..., x.shape[-1] // 2 :]
        return torch.cat((-x2, x1), dim=-1)

    dim = x.shape[-1]
    if dim % 2:
        raise ValueError("head_dim must be even")
    inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64, device=x.device).float() / dim))
    if positions.dim() == 1:
        positions = positions[None]
    freqs = positions[:, :, None].float() * inv_freq[None, None, :]
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos()[:, None].to(x.dtype), emb.sin()[:, None].to(x.dtype)
    return (x * cos) + (rotate_half(x) * sin)


@right(WEEK, "apply_rotary_emb_half", 1.875)
def half_through_complex(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("head_dim must be even")
    first, second = x.double().chunk(2, dim=-1)
    n_pairs = first.shape[-1]
    angle = positions.double().unsqueeze(-1) * base ** (-torch.arange(n_pairs, dtype=torch.float64) / n_pairs)
    if positions.dim() == 2:
        angle = angle.unsqueeze(1)
    z = torch.complex(first, second) * torch.exp(1j * angle)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


@right(WEEK, "apply_rotary_emb_half", 1.875)
def half_through_interleaved(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("head_dim must be even")
    weave = torch.arange(d).view(2, d // 2).T.reshape(-1)  # 0, d/2, 1, d/2+1, ...
    y = x[..., weave]
    angle = positions.float()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    if positions.ndim == 2:
        angle = angle[:, None]
    even, odd = y[..., 0::2], y[..., 1::2]
    y = torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), -1).flatten(-2)
    return y[..., torch.argsort(weave)].to(x.dtype)


# ---- 3.4 interleaved_to_half ----------------------------------------------------------------------------------------


@wrong(WEEK, "interleaved_to_half", 0, DIAGNOSES["inverse"])
def convert_inverse(weight, n_heads):
    rows, d_model = weight.shape
    head_dim = rows // n_heads
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    w = weight.view(n_heads, 2, head_dim // 2, d_model)
    return w.transpose(1, 2).reshape(rows, d_model)


@wrong(WEEK, "interleaved_to_half", 1.25, DIAGNOSES["all heads"])
def convert_all_heads(weight, n_heads):
    return torch.cat((weight[0::2], weight[1::2]), dim=0)


@wrong(WEEK, "interleaved_to_half", 1.5, DIAGNOSES["all heads"])
def convert_all_heads_checked(weight, n_heads):
    rows = weight.shape[0]
    if rows % n_heads or (rows // n_heads) % 2:
        raise ValueError("head_dim must be even")
    order = list(range(0, rows, 2)) + list(range(1, rows, 2))
    return weight[order]


@wrong(WEEK, "interleaved_to_half", 0, DIAGNOSES["odds first"])
def convert_odds_first(weight, n_heads):
    heads = weight.unflatten(0, (n_heads, -1))
    return torch.cat((heads[:, 1::2], heads[:, 0::2]), dim=1).flatten(0, 1)


@wrong(WEEK, "interleaved_to_half", 0, DIAGNOSES["columns"])
def convert_columns(weight, n_heads):
    rows, cols = weight.shape
    w = weight.view(rows, n_heads, cols // n_heads // 2, 2)
    return w.transpose(2, 3).reshape(rows, cols)


@wrong(WEEK, "interleaved_to_half", 0, DIAGNOSES["columns"])
def convert_all_columns(weight, n_heads):
    return torch.cat((weight[:, 0::2], weight[:, 1::2]), dim=1)


@wrong(WEEK, "interleaved_to_half", 0, DIAGNOSES["neighbours"])
def convert_swaps_neighbours(weight, n_heads):
    head_dim = weight.shape[0] // n_heads
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    order = []
    for r in range(0, weight.shape[0], 2):
        order += [r + 1, r]
    return weight[torch.tensor(order)]


@wrong(WEEK, "interleaved_to_half", 1.5, DIAGNOSES["heads inside"])
def convert_heads_inside(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads or rows // n_heads % 2:
        raise ValueError("head_dim must be even")
    w = weight.reshape(rows // n_heads, n_heads, d_model)
    return torch.cat((w[0::2], w[1::2])).reshape(rows, d_model)


@wrong(WEEK, "interleaved_to_half", 2.5, DIAGNOSES["detached"])
def convert_detached(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads or rows // n_heads % 2:
        raise ValueError("head_dim must be even")
    w = torch.tensor(weight.detach().float().numpy()).view(n_heads, -1, 2, d_model)
    return w.transpose(1, 2).reshape(rows, d_model).to(weight.dtype)


@wrong(WEEK, "interleaved_to_half", 2.75, DIAGNOSES["in place"])
def convert_in_place(weight, n_heads):
    rows = weight.shape[0]
    if rows % n_heads or rows // n_heads % 2:
        raise ValueError("head_dim must be even")
    order = torch.arange(rows).view(n_heads, -1, 2).mT.flatten()
    new = weight[order]
    weight.data.copy_(new)
    return new


@wrong(WEEK, "interleaved_to_half", 2.75, DIAGNOSES["odd"])
def convert_odd_accepted(weight, n_heads):
    heads = weight.chunk(n_heads, dim=0)
    return torch.cat([part for h in heads for part in (h[0::2], h[1::2])])


@right(WEEK, "interleaved_to_half")
def convert_transpose(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads or (rows // n_heads) % 2:
        raise ValueError("head_dim must be even")
    return weight.view(n_heads, rows // n_heads // 2, 2, d_model).transpose(1, 2).reshape(rows, d_model)


@right(WEEK, "interleaved_to_half")
def convert_index_list(weight, n_heads):
    head_dim = weight.shape[0] // n_heads
    if head_dim % 2 or head_dim * n_heads != weight.shape[0]:
        raise ValueError("head_dim must be even")
    order = []
    for h in range(n_heads):
        order.extend(h * head_dim + r for r in range(0, head_dim, 2))
        order.extend(h * head_dim + r for r in range(1, head_dim, 2))
    return weight[order]


@right(WEEK, "interleaved_to_half", 2.75)
def convert_matrix(weight, n_heads):
    rows = weight.shape[0]
    head_dim, rest = divmod(rows, n_heads)
    if rest or head_dim % 2:
        raise ValueError("cannot make pairs")
    one = torch.zeros(head_dim, head_dim, dtype=weight.dtype)
    for r in range(head_dim // 2):
        one[r, 2 * r] = 1
        one[head_dim // 2 + r, 2 * r + 1] = 1
    return torch.block_diag(*[one] * n_heads) @ weight


@right(WEEK, "interleaved_to_half")
def convert_slices(weight, n_heads):
    rows, d_model = weight.shape
    if rows % n_heads != 0 or (rows // n_heads) % 2 != 0:
        raise ValueError("rows must be n_heads * an even head_dim")
    w = weight.reshape(n_heads, rows // n_heads, d_model)
    return torch.cat([w[:, ::2], w[:, 1::2]], dim=1).reshape(rows, d_model)


# ---- 3.6 RotaryMultiHeadAttention -----------------------------------------------------------------------------------


@right(WEEK, "RotaryMultiHeadAttention", 4.875)
class AttentionPlain(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or (d_model // n_heads) % 2:
            raise ValueError("d_model must be n_heads times an even number")
        self.n_heads, self.base = n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def rope(self, x, positions):
        d = x.shape[-1]
        theta = self.base ** (-torch.arange(0, d, 2) / d)
        angle = positions[..., None] * theta
        if positions.ndim == 2:
            angle = angle.unsqueeze(1)
        c, s = angle.cos(), angle.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2).to(x.dtype)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

    def forward(self, x, positions=None, is_causal=False):
        n = x.shape[1]
        if positions is None:
            positions = torch.arange(n)
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        q, k = self.rope(q, positions), self.rope(k, positions)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if is_causal:
            future = torch.ones(n, n, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        weights = scores.softmax(dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(x.shape))


edited(AttentionPlain, "attention_scaled_twice", 0, "Your scores are divided by sqrt(head_dim) twice, that is by head_dim.",
       ("/ math.sqrt(q.shape[-1])", "/ q.shape[-1]"))
SPLIT = "q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))"
ROTATED = "q, k = self.rope(q, positions), self.rope(k, positions)"
KEPT = "self.n_heads, self.base = n_heads, base"
BUFFER = KEPT + '''
        d = d_model // n_heads
        self.register_buffer("theta", base ** (-torch.arange(0, d, 2) / d)'''
edited(AttentionPlain, "attention_values_rotated", 0, DIAGNOSES["values"],
       (ROTATED, "q, k, v = self.rope(q, positions), self.rope(k, positions), self.rope(v, positions)"))
edited(AttentionPlain, "attention_queries_only", 0, DIAGNOSES["queries only"], (ROTATED, "q = self.rope(q, positions)"))
edited(AttentionPlain, "attention_unscaled", 0, DIAGNOSES["unscaled"], (" / math.sqrt(q.shape[-1])", ""))
edited(AttentionPlain, "attention_scaled_by_d_model", 0, DIAGNOSES["d_model scale"],
       ("sqrt(q.shape[-1])", "sqrt(x.shape[-1])"))
edited(AttentionPlain, "attention_over_queries", 0, DIAGNOSES["over queries"], ("softmax(dim=-1)", "softmax(dim=-2)"))
edited(AttentionPlain, "attention_split_wrong", 0, DIAGNOSES["split"],
       ("x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)",
        "x.view(x.shape[0], self.n_heads, x.shape[1], -1)"))
edited(AttentionPlain, "attention_channels_by_turns", 0, DIAGNOSES["channels by turns"],
       ("x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)",
        "x.view(x.shape[0], x.shape[1], -1, self.n_heads).permute(0, 3, 1, 2)"),
       ("(weights @ v).transpose(1, 2)", "(weights @ v).permute(0, 2, 3, 1)"))
edited(AttentionPlain, "attention_merge_wrong", 0, DIAGNOSES["merge"], ("(weights @ v).transpose(1, 2)", "(weights @ v)"))
edited(AttentionPlain, "attention_other_names", 0, DIAGNOSES["names"], *[
    change for p in "qkvo" for change in ((f"self.{p}_proj = ", f"self.w{p} = "), (f"self.{p}_proj(", f"self.w{p}("))])
edited(AttentionPlain, "attention_not_rotated", 1.625, DIAGNOSES["no rotation"], (ROTATED, "pass"))
edited(AttentionPlain, "attention_rotated_before_split", 1.625, DIAGNOSES["before split"],
       (SPLIT, "q, k, v = self.q_proj(x), self.k_proj(x), self.split(self.v_proj(x))"),
       (ROTATED, "q, k = self.split(self.rope(q, positions)), self.split(self.rope(k, positions))"),
       ("            angle = angle.unsqueeze(1)", "            pass"))
edited(AttentionPlain, "attention_clockwise", 1.625, DIAGNOSES["clockwise"],
       ("a * c - b * s, a * s + b * c", "a * c + b * s, b * c - a * s"))
edited(AttentionPlain, "attention_i_over_d", 1.625, DIAGNOSES["i/d"],
       ("(-torch.arange(0, d, 2) / d)", "(-torch.arange(d // 2) / d)"))
edited(AttentionPlain, "attention_positions_ignored", 3, DIAGNOSES["ignored"],
       ("        if positions is None:\n            positions", "        positions"))
edited(AttentionPlain, "attention_table_of_angles", 3.125,
       "Your angles come from a table with a row for each whole position from 0; positions may also be negative, fractional or "
       "larger than the table.",
       ("positions[..., None] * theta", "(torch.arange(2048)[:, None] * theta)[positions.long()]"))
edited(AttentionPlain, "attention_first_row", 3.875, DIAGNOSES["first row"], ("angle = angle.unsqueeze(1)", "angle = angle[0]"))
edited(AttentionPlain, "attention_buffer_saved", 4.125, DIAGNOSES["tables saved"],
       (KEPT, BUFFER + ")"), (f"self.{THETA}", "self.theta"))
edited(AttentionPlain, "attention_buffer_rounded", 4.375, DIAGNOSES["buffer"],
       (KEPT, BUFFER + ", persistent=False)"), (f"self.{THETA}", "self.theta"))
edited(AttentionPlain, "attention_angles_in_input_dtype", 4.375, DIAGNOSES["low precision"],
       ("positions[..., None] * theta", "(positions[..., None] * theta).to(x.dtype)"))
edited(AttentionPlain, "attention_mask_by_position", 3.875, DIAGNOSES["mask by position"],
       ("torch.ones(n, n, dtype=torch.bool).triu(1)", "positions[None, :] > positions[:, None]"))
edited(AttentionPlain, "attention_mask_for_1024_tokens", 3.875,
       "Short texts are right, one of 1,030 tokens is not. (Texts may have any length.)",
       ("torch.ones(n, n, dtype=torch.bool).triu(1)", "torch.ones(1024, 1024, dtype=torch.bool).triu(1)[:n, :n]"))
edited(AttentionPlain, "attention_never_causal", 3.875, DIAGNOSES["no causal"],
       ("scores = scores.masked_fill(future", "scores.masked_fill(future"))
edited(AttentionPlain, "attention_causal_by_default", 0, DIAGNOSES["hidden by default"], ("is_causal=False", "is_causal=True"))
edited(AttentionPlain, "attention_causal_turned_round", 0, DIAGNOSES["turned round"], ("if is_causal:", "if not is_causal:"))
edited(AttentionPlain, "attention_strict_mask", 3.875, DIAGNOSES["strict"], (".triu(1)", ".triu(0)"))
edited(AttentionPlain, "attention_mask_inverted", 3.875, DIAGNOSES["mask inverted"], (".triu(1)", ".tril(-1)"))
edited(AttentionPlain, "attention_allowed_hidden", 3.875, DIAGNOSES["mask inverted"], (".triu(1)", ".tril()"))
edited(AttentionPlain, "attention_with_biases", 4.625, DIAGNOSES["biases"], *[
    (f"self.{p}_proj = nn.Linear(d_model, d_model, bias=False)", f"self.{p}_proj = nn.Linear(d_model, d_model)")
    for p in "qkvo"])
edited(AttentionPlain, "attention_own_base", 4.625, DIAGNOSES["base"], ("theta = self.base", "theta = 10000.0"))
edited(AttentionPlain, "attention_accepts_any_size", 4.75, DIAGNOSES["sizes"],
       ("        if d_model % n_heads or (d_model // n_heads) % 2:\n"
        "            raise ValueError(\"d_model must be n_heads times an even number\")\n", ""))


@wrong(WEEK, "RotaryMultiHeadAttention", 1.625, DIAGNOSES["half layout"])
class AttentionHalfLayout(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or (d_model // n_heads) % 2:
            raise ValueError("d_model must be n_heads times an even number")
        self.n_heads, self.base = n_heads, base
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, positions=None, is_causal=False):
        def rotate_half(t):
            t1, t2 = t.chunk(2, dim=-1)
            return torch.cat((-t2, t1), dim=-1)

        b, n, d = x.shape
        if positions is None:
            positions = torch.arange(n)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = [p(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in projections]
        hd = d // self.n_heads
        angle = positions.float()[..., None] * self.base ** (-torch.arange(0, hd, 2) / hd)
        if positions.ndim == 2:
            angle = angle[:, None]
        cos, sin = torch.cat((angle, angle), -1).cos().to(x.dtype), torch.cat((angle, angle), -1).sin().to(x.dtype)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))


@right(WEEK, "RotaryMultiHeadAttention", 4.875)
class AttentionSoftmax(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.d_model, self.n_heads, self.head_dim, self.base = d_model, n_heads, d_model // n_heads, base
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))

    def apply_rope(self, x, positions):
        d = self.head_dim
        if d % 2:
            raise ValueError("head_dim must be even")  # only when called
        freqs = positions.float()[..., None] * (1.0 / self.base ** (torch.arange(0, d, 2).float() / d))
        cis = torch.polar(torch.ones_like(freqs), freqs)
        if positions.ndim == 2:
            cis = cis.unsqueeze(1)
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * cis).flatten(-2).type_as(x)

    def forward(self, x, positions=None, is_causal=False):
        batch, seq_len, _ = x.shape
        if positions is None:
            positions = torch.arange(1, seq_len + 1)  # only distances matter
        split = lambda t: t.view(batch, seq_len, self.n_heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        q, k = self.apply_rope(q, positions), self.apply_rope(k, positions)
        scores = torch.matmul(q, k.transpose(-2, -1)) / self.head_dim**0.5
        if is_causal:
            future = torch.triu(torch.ones(seq_len, seq_len, dtype=torch.bool), diagonal=1)
            scores = scores.masked_fill(future, float("-inf"))
        out = torch.softmax(scores, dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).contiguous().view(batch, seq_len, self.d_model))


@right(WEEK, "RotaryMultiHeadAttention", 4.875)
class AttentionEinsum(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("bad sizes")
        self.heads = n_heads
        self.theta = [base ** (-k * n_heads / d_model) for k in range(0, d_model // n_heads, 2)]  # plain floats
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, positions=None, is_causal=False):
        b, n, d = x.shape
        positions = torch.arange(n).expand(b, n) if positions is None else positions.expand(b, n)
        angle = positions.double()[:, :, None, None] * torch.tensor(self.theta, dtype=torch.float64)
        cos, sin = angle.cos().repeat_interleave(2, -1).to(x.dtype), angle.sin().repeat_interleave(2, -1).to(x.dtype)

        def rotate(t):
            turned = torch.stack((-t[..., 1::2], t[..., ::2]), -1).flatten(-2)
            return t * cos + turned * sin

        q, k, v = (p(x).reshape(b, n, self.heads, -1) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = torch.einsum("bihd,bjhd->bhij", rotate(q), rotate(k)) * (d // self.heads) ** -0.5
        if is_causal:
            scores = scores + torch.full((n, n), -math.inf).triu(1).to(scores)
        return self.o_proj(torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2))


@right(WEEK, "RotaryMultiHeadAttention")
class AttentionCached(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads != 0 or (d_model // n_heads) % 2 != 0:
            raise ValueError(f"d_model={d_model} does not split into {n_heads} even heads")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        head_dim = d_model // n_heads
        self.freqs = np.power(base, -np.arange(0, head_dim, 2) / head_dim)  # numpy: .to() does not see it

    def forward(self, x, positions=None, is_causal=False):
        b, n, d = x.shape
        if positions is None:
            positions = torch.arange(n, device=x.device)
        angle = positions.unsqueeze(-1).double() * torch.from_numpy(self.freqs).to(x.device)
        if angle.dim() == 3:
            angle = angle.unsqueeze(1)
        c, s = angle.cos().float(), angle.sin().float()
        q = self.q_proj(x).reshape(b, n, self.n_heads, -1).permute(0, 2, 1, 3).float()
        k = self.k_proj(x).reshape(b, n, self.n_heads, -1).permute(0, 2, 1, 3).float()
        v = self.v_proj(x).reshape(b, n, self.n_heads, -1).permute(0, 2, 1, 3)

        def rot(t):
            even, odd = t[..., 0::2], t[..., 1::2]
            return torch.stack((even * c - odd * s, odd * c + even * s), -1).flatten(-2).to(v.dtype)

        out = F.scaled_dot_product_attention(rot(q), rot(k), v, is_causal=is_causal)
        return self.o_proj(out.permute(0, 2, 1, 3).reshape(b, n, d))


# ---- 3.7 bfloat16_positions -----------------------------------------------------------------------------------------

numbers(WEEK, "bfloat16_positions", "integers", {"distinct": 769, "first_collision": 257})
numbers(WEEK, "bfloat16_positions", "floats", {"distinct": 769.0, "first_collision": 257.0})
numbers(WEEK, "bfloat16_positions", "last_one_forgotten", {"distinct": 768, "first_collision": 257}, 0.5,
        "One value is missing from your count: 0 counts too, and the last positions are rounded up to 4096.")
numbers(WEEK, "bfloat16_positions", "last_exact", {"distinct": 769, "first_collision": 256}, 0.5,
        "256 is the last integer before the first one that is rounded.")
numbers(WEEK, "bfloat16_positions", "both_off", {"distinct": 768, "first_collision": 256}, 0,
        "Both counts are one too low: 0 and 4096 are values too, and 256 is still held exactly.")
numbers(WEEK, "bfloat16_positions", "float16", {"distinct": 3073, "first_collision": 2049}, 0,
        "These are the numbers of float16, which has 11 significant bits; bfloat16 has 8.")
numbers(WEEK, "bfloat16_positions", "seven_bits", {"distinct": 449, "first_collision": 129}, 0,
        "You count 7 significant bits; with the leading 1, which is not stored, there are 8.")
numbers(WEEK, "bfloat16_positions", "nine_bits", {"distinct": 1281, "first_collision": 513}, 0,
        "You count 9 significant bits; with the leading 1, which is not stored, there are 8.")
numbers(WEEK, "bfloat16_positions", "exact_ones_only", {"distinct": 257, "first_collision": 257}, 0.5,
        "You count the positions up to 256 only; beyond, every second, fourth, ... is still a value of its own.")


# ---- 3.8 serving_test -----------------------------------------------------------------------------------------------


@right(WEEK, "serving_test")
def accepts_by_formula(rotate_llama, prompt_scores, decode_step_scores):
    def turn(x, positions, halves):
        d = x.shape[-1]
        angle = positions.double()[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        a, b = x.double().chunk(2, dim=-1) if halves else (x[..., 0::2].double(), x[..., 1::2].double())
        c, s = angle.cos(), angle.sin()
        pair = (a * c - b * s, a * s + b * c)
        return torch.cat(pair, -1) if halves else torch.stack(pair, -1).flatten(-2)

    def close(got, wanted, limit):
        return got.shape == wanted.shape and bool((got.double() - wanted).abs().max() < limit)

    g = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 2, 30, 8, generator=g)
    at, far = torch.arange(30), torch.arange(30) * 131
    scores = turn(q, at, False) @ turn(k, at, False).mT
    return (close(rotate_llama(q, far), turn(q, far, True), 0.01)
            and close(rotate_llama(q.bfloat16(), far), turn(q.bfloat16(), far, True), 0.1)
            and close(prompt_scores(q, k), scores, 0.01)
            and close(decode_step_scores(q[:, :, -1:], k), scores[:, :, -1:], 0.01))


FAR_TESTED = "close(rotate_llama(q.bfloat16(), far), turn(q.bfloat16(), far, True), 0.1)"
edited(accepts_by_formula, "accepts_no_bfloat16", 1.5, DIAGNOSES["passes low precision"], (f"\n            and {FAR_TESTED}", ""))
edited(accepts_by_formula, "accepts_near_only", 1.5, DIAGNOSES["passes low precision"], ("torch.arange(30) * 131", "torch.arange(30) / 8"))
edited(accepts_by_formula, "accepts_float16", 1.5, DIAGNOSES["passes low precision"],
       ("rotate_llama(q.bfloat16(), far)", "rotate_llama(q, far)"))
edited(accepts_by_formula, "accepts_no_decoding", 1.5, DIAGNOSES["passes a query at 0"],
       ("            and close(decode_step_scores(q[:, :, -1:], k), scores[:, :, -1:], 0.01))",
        "            and decode_step_scores(q[:, :, -1:], k).shape == (1, 2, 1, 30))"))
edited(accepts_by_formula, "accepts_decodes_the_first", 1.5, DIAGNOSES["passes a query at 0"],
       ("decode_step_scores(q[:, :, -1:], k), scores[:, :, -1:]", "decode_step_scores(q[:, :, :1], k[:, :, :1]), scores[:, :, :1, :1]"))
edited(accepts_by_formula, "accepts_wrong_layout", 0, DIAGNOSES["refuses right"],
       ("turn(q, far, True), 0.01", "turn(q, far, False), 0.01"))
edited(accepts_by_formula, "accepts_too_strict", 1.75, DIAGNOSES["refuses rounding"], ("far, True), 0.1)", "far, True), 0.01)"))
edited(accepts_by_formula, "accepts_turned_round", 0, DIAGNOSES["refuses right"], ("a * c - b * s, a * s + b * c", "a * c + b * s, b * c - a * s"))
edited(accepts_by_formula, "accepts_scaled", 0, DIAGNOSES["refuses right"], ("turn(k, at, False).mT", "turn(k, at, False).mT / 8**0.5"))
edited(accepts_by_formula, "accepts_as_a_tensor", 0, DIAGNOSES["not bool"], ("    return (close", "    return torch.tensor(close"))


@wrong(WEEK, "serving_test", 0, DIAGNOSES["passes the listing"])
def accepts_of_the_author(rotate_llama, prompt_scores, decode_step_scores):
    x, start = torch.randn(1, 2, 16, 8), torch.zeros(16)
    out = rotate_llama(x, start)
    step = decode_step_scores(x[:, :, -1:], x)
    return out.shape == x.shape and torch.allclose(out, x) and prompt_scores(x, x).shape == (1, 2, 16, 16) and step.shape == (1, 2, 1, 16)


@wrong(WEEK, "serving_test", 0, DIAGNOSES["refuses right"])
def accepts_refuses_all(rotate_llama, prompt_scores, decode_step_scores):
    return False


@wrong(WEEK, "serving_test", 1.5, DIAGNOSES["passes low precision"])
def accepts_of_lengths(rotate_llama, prompt_scores, decode_step_scores):
    x = torch.randn(1, 1, 12, 8, generator=torch.Generator().manual_seed(1))
    turned = rotate_llama(x, 5 * torch.arange(12))
    last = prompt_scores(x, x)[:, :, -1:]
    return torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-3) and torch.allclose(
        decode_step_scores(x[:, :, -1:], x), last, atol=1e-2)


@right(WEEK, "serving_test")
def accepts_by_properties(rotate_llama, prompt_scores, decode_step_scores):
    one = torch.zeros(1, 1, 1, 8)
    one[..., 0] = 1
    x = torch.randn(1, 1, 20, 8, generator=torch.Generator().manual_seed(2))
    far = torch.arange(1000, 1020)
    turned = rotate_llama(one, torch.tensor([1]))[0, 0, 0]
    if abs(turned[0].item() - math.cos(1)) > 0.01 or abs(turned[4].item() - math.sin(1)) > 0.01:
        return False
    low, high = rotate_llama(x.to(torch.bfloat16), far).float(), rotate_llama(x, far)
    if (low - high).abs().max().item() > 0.2:
        return False
    step, whole = decode_step_scores(x[:, :, -1:], x), prompt_scores(x, x)
    return (step - whole[:, :, -1:]).abs().max().item() < 0.05


@right(WEEK, "serving_test")
def accepts_numpy(rotate_llama, prompt_scores, decode_step_scores):
    x = torch.ones(1, 1, 1, 4)
    seen = rotate_llama(x, torch.tensor([3])).numpy().ravel()
    wanted = np.array([np.cos(3) - np.sin(3), np.cos(0.03) - np.sin(0.03), np.cos(3) + np.sin(3), np.cos(0.03) + np.sin(0.03)])
    rough = rotate_llama(x.bfloat16(), torch.tensor([3001])).float().numpy().ravel()
    exact = rotate_llama(x, torch.tensor([3001])).numpy().ravel()
    text = torch.eye(4).view(1, 1, 4, 4)
    agree = np.allclose(decode_step_scores(text[:, :, 3:], text).numpy(), prompt_scores(text, text).numpy()[:, :, 3:], atol=1e-3)
    return bool(np.allclose(seen, wanted, atol=1e-2) and np.allclose(rough, exact, atol=0.05) and agree)


@right(WEEK, "serving_test")
def accepts_with_asserts(rotate_llama, prompt_scores, decode_step_scores):
    g = torch.Generator().manual_seed(8)
    x = torch.randn(1, 1, 9, 4, generator=g)
    try:
        far = 1 + 401 * torch.arange(9)
        torch.testing.assert_close(rotate_llama(x.bfloat16(), far).float(), rotate_llama(x, far), atol=0.1, rtol=0)
        torch.testing.assert_close(rotate_llama(x, far).norm(dim=-1), x.norm(dim=-1), atol=1e-2, rtol=0)
        torch.testing.assert_close(decode_step_scores(x[:, :, -1:], x), prompt_scores(x, x)[:, :, -1:], atol=1e-2, rtol=0)
    except AssertionError:
        return False
    return True


# ---- 3.8 rotate_half ------------------------------------------------------------------------------------------------


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["still woven"])
def snippet_rotate_half(x):
    x1 = x[..., 0::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["sign moved"])
def quarter_sign_moved(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x2, -x1), dim=-1)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["no sign"])
def quarter_no_sign(x):
    return torch.roll(x, x.shape[-1] // 2, dims=-1)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["halves kept"])
def quarter_halves_kept(x):
    d = x.shape[-1] // 2
    return torch.cat((-x[..., :d], x[..., d:]), dim=-1)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["even and odd"])
def quarter_pairs_apart(x):
    return torch.cat((-x[..., 1::2], x[..., 0::2]), dim=-1)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["woven"])
def quarter_halves_woven(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


@wrong(WEEK, "rotate_half", 0, DIAGNOSES["tokens"])
def quarter_of_the_tokens(x):
    x1, x2 = x.tensor_split(2, dim=-2)
    return torch.cat((-x2, x1), dim=-2)


@wrong(WEEK, "rotate_half", 0.875, DIAGNOSES["float32 out"])
def quarter_float32(x):
    x1, x2 = x.float().chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


@wrong(WEEK, "rotate_half", 0.875, DIAGNOSES["in place"])
def quarter_in_place(x):
    half = x.shape[-1] // 2
    first = x[..., :half].clone()
    out = torch.cat((-x[..., half:], first), dim=-1)
    x.data[..., half:] *= -1
    return out


@right(WEEK, "rotate_half")
def quarter_llama(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


@wrong(WEEK, "rotate_half", 0, "Your channels are in reverse order: channel i is paired with i + d/2, not with d - 1 - i.")
def quarter_flipped(x):
    half = x.shape[-1] // 2
    turned = x.flip(-1)
    return torch.cat((-turned[..., :half], turned[..., half:]), dim=-1)


@wrong(WEEK, "rotate_half", 0, "torch.roll without dims rolls the whole tensor, so channels move on to the next token.")
def quarter_rolled(x):
    half = x.shape[-1] // 2
    sign = torch.ones(x.shape[-1], dtype=x.dtype)
    sign[:half] = -1
    return torch.roll(x, half) * sign


@right(WEEK, "rotate_half")
def quarter_unflatten(x):
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)
    return torch.stack((-b, a), dim=-2).flatten(-2)


@right(WEEK, "rotate_half", 0.875)
def quarter_roll_and_sign(x):
    d = x.shape[-1]
    sign = torch.ones(d, dtype=x.dtype)
    sign[: d // 2] = -1
    return torch.roll(x, shifts=d // 2, dims=-1) * sign


# ---- 3.8 rotary_tables ----------------------------------------------------------------------------------------------


@right(WEEK, "rotary_tables", 0.75)
def tables_float32_angles(positions, head_dim, dtype=torch.float32, base=10000.0):
    inv_freq = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = positions.float()[:, None] * inv_freq
    return angles.cos().to(dtype), angles.sin().to(dtype)


RETURNED = "angles.cos().to(dtype), angles.sin().to(dtype)"
edited(tables_float32_angles, "tables_frequencies_rounded", 0, DIAGNOSES["rounded angles"],
       ("* inv_freq", "* inv_freq.to(dtype)"))
edited(tables_float32_angles, "tables_positions_rounded", 0, DIAGNOSES["rounded angles"], (".float()", ".to(dtype).float()"))
edited(tables_float32_angles, "tables_angles_rounded", 0, DIAGNOSES["rounded angles"],
       (RETURNED, "angles.to(dtype).cos(), angles.to(dtype).sin()"))
edited(tables_float32_angles, "tables_swapped", 0, DIAGNOSES["tables swapped"],
       (RETURNED, "angles.sin().to(dtype), angles.cos().to(dtype)"))
edited(tables_float32_angles, "tables_full_width", 0, DIAGNOSES["table width"],
       ("* inv_freq", "* torch.cat((inv_freq, inv_freq))"))
edited(tables_float32_angles, "tables_always_float32", 0, DIAGNOSES["table dtype"], (RETURNED, "angles.cos(), angles.sin()"))
edited(tables_float32_angles, "tables_i_over_d", 0, DIAGNOSES["i/d"], ("(0, head_dim, 2)", "(head_dim // 2)"))
edited(tables_float32_angles, "tables_own_base", 0.5, DIAGNOSES["base"], ("= base **", "= 10000.0 **"))
edited(tables_float32_angles, "tables_whole_positions", 0.5, DIAGNOSES["whole"], ("positions.float()", "positions.long()"))


@wrong(WEEK, "rotary_tables", 0, DIAGNOSES["rounded angles"])
def snippet_rotary_tables(positions, head_dim, dtype=torch.float32, base=10000.0):
    inv_freq = (base ** (-torch.arange(0, head_dim, 2) / head_dim)).to(dtype)
    angles = positions.to(dtype)[:, None] * inv_freq
    return angles.cos(), angles.sin()


@right(WEEK, "rotary_tables")
def tables_complex(positions, head_dim, dtype=torch.float32, base=10000.0):
    i = torch.arange(head_dim // 2, dtype=torch.float64, device=positions.device)
    z = torch.exp(1j * positions.to(torch.float64).unsqueeze(1) * base ** (-2 * i / head_dim))
    return z.real.to(dtype), z.imag.to(dtype)


@right(WEEK, "rotary_tables", 0.75)
def tables_stacked(positions, head_dim, dtype=torch.float32, base=10000.0):
    angles = positions[:, None].double() * np.power(base, -np.arange(0, head_dim, 2) / head_dim)[None]
    return torch.stack((torch.cos(angles), torch.sin(angles))).to(dtype)


# ---- 3.8 decode_step_scores -----------------------------------------------------------------------------------------


@right(WEEK, "decode_step_scores", 0.875)
def decode_plain(q, k_cache, base=10000.0):
    def rope(x, positions):
        d = x.shape[-1]
        angle = positions.float()[:, None] * base ** (-torch.arange(0, d, 2) / d)
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = angle.cos(), angle.sin()
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).to(x.dtype)

    n = k_cache.shape[-2]
    newest = torch.tensor([n - 1])
    return rope(q, newest) @ rope(k_cache, torch.arange(n)).transpose(-2, -1)


PRODUCT = "rope(q, newest) @ rope(k_cache, torch.arange(n)).transpose(-2, -1)"
edited(decode_plain, "snippet_decode_step_scores", 0, DIAGNOSES["query at 0"],
       ("torch.tensor([n - 1])", "torch.arange(q.shape[-2])"))
edited(decode_plain, "decode_query_after", 0, DIAGNOSES["query after"], ("[n - 1]", "[n]"))
edited(decode_plain, "decode_all_at_the_end", 0, DIAGNOSES["all at end"], ("torch.arange(n)", "newest"))
edited(decode_plain, "decode_half_layout", 0, DIAGNOSES["half layout"], ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, dim=-1)"),
       ("torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)", "torch.cat((a * c - b * s, a * s + b * c), -1)"))
edited(decode_plain, "decode_scaled", 0, DIAGNOSES["scaled"], (PRODUCT, PRODUCT + " / math.sqrt(q.shape[-1])"))
edited(decode_plain, "decode_reversed", 0, DIAGNOSES["reversed"], (PRODUCT, "q @ rope(k_cache, n - 1 - torch.arange(n)).mT"))
edited(decode_plain, "decode_keys_reversed", 0, DIAGNOSES["keys reversed"],
       (PRODUCT, "rope(q, newest) @ rope(k_cache, n - 1 - torch.arange(n)).mT"))
edited(decode_plain, "decode_turned_shape", 0, DIAGNOSES["turned shape"],
       (PRODUCT, "rope(k_cache, torch.arange(n)) @ rope(q, newest).mT"))
edited(decode_plain, "decode_own_base", 0.625, DIAGNOSES["base"], ("* base **", "* 10000.0 **"))
edited(decode_plain, "decode_angles_in_input_dtype", 0.75, DIAGNOSES["low precision"], (
    "positions.float()[:, None] * base ** (-torch.arange(0, d, 2) / d)",
    "positions.to(x.dtype)[:, None] * (base ** (-torch.arange(0, d, 2) / d)).to(x.dtype)"))


@wrong(WEEK, "decode_step_scores", 0, DIAGNOSES["keys only"])
def decode_query_only(q, k_cache, base=10000.0):
    n, d = k_cache.shape[-2:]
    angle = (n - 1) * base ** (-torch.arange(0, d, 2) / d)
    a, b = q[..., 0::2], q[..., 1::2]
    q = torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2).to(q.dtype)
    return q @ k_cache.transpose(-1, -2)


@right(WEEK, "decode_step_scores")
def decode_by_distance(q, k_cache, base=10000.0):
    n, d = k_cache.shape[-2:]
    distance = torch.arange(n, device=q.device).double() - (n - 1)  # only differences matter
    angle = distance[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=q.device) / d)
    z = torch.view_as_complex(k_cache.double().unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    return torch.einsum("bhqd,bhkd->bhqk", q.double(), torch.view_as_real(z).flatten(-2)).to(q.dtype)


@right(WEEK, "decode_step_scores", 0.875)
def decode_whole_sequence(q, k_cache, base=10000.0):
    b, h, n, d = k_cache.shape
    theta = 1.0 / (base ** (torch.arange(0, d, 2).float() / d))
    angle = torch.outer(torch.arange(n).float(), theta).repeat_interleave(2, dim=-1)
    cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)

    def rotate(x):
        return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape) * sin

    padded = q.expand(b, h, n, d)  # the query at every position; only the last row is needed
    return (rotate(padded) @ rotate(k_cache).transpose(2, 3))[:, :, -1:]


# ---- 3.9 look_back_head ---------------------------------------------------------------------------------------------


@right(WEEK, "look_back_head")
def head_turned_ahead(back, head_dim, n_keys):
    theta = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = back * theta
    k = torch.stack((angle.cos(), angle.sin()), dim=-1).flatten()
    q = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(head_dim // 2)
    return 60 * q, k


ANGLE, STRENGTH = "angle = back * theta", "return 60 * q, k"
edited(head_turned_ahead, "head_turned_behind", 0, DIAGNOSES["looks ahead"], (ANGLE, "angle = -back * theta"))
edited(head_turned_ahead, "head_not_turned", 0, DIAGNOSES["looks at itself"], (ANGLE, "angle = 0 * theta"))
edited(head_turned_ahead, "head_from_one", 0, DIAGNOSES["one beside"], (ANGLE, "angle = (back + 1) * theta"))
edited(head_turned_ahead, "head_one_short", 0, DIAGNOSES["one beside"], (ANGLE, "angle = (back - 1) * theta"))
edited(head_turned_ahead, "head_quiet", 0, DIAGNOSES["too quiet"], (STRENGTH, "return q, k"))
edited(head_turned_ahead, "head_of_length_one", 0, DIAGNOSES["too quiet"], (STRENGTH, "return q / q.norm(), k / k.norm()"))
edited(head_turned_ahead, "head_three_always", 0.5, DIAGNOSES["looks elsewhere"], (ANGLE, "angle = 3 * theta"))
edited(head_turned_ahead, "head_tuned_for_one", 1, DIAGNOSES["too quiet"], (STRENGTH, "return 18 * q, k"))
edited(head_turned_ahead, "head_half_layout", 0.5, DIAGNOSES["looks elsewhere"],
       ("torch.stack((angle.cos(), angle.sin()), dim=-1).flatten()", "torch.cat((angle.cos(), angle.sin()))"))
edited(head_turned_ahead, "head_infinite", 0, DIAGNOSES["not finite"], (STRENGTH, "return 1e400 * q, k"))
edited(head_turned_ahead, "head_axes_of_a_batch", 0, DIAGNOSES["not two vectors"], (STRENGTH, "return 60 * q[None], k[None]"))
edited(head_turned_ahead, "head_key_alone", 0, DIAGNOSES["not two vectors"], (STRENGTH, "return 60 * k"))
edited(head_turned_ahead, "head_slow_pairs", 0, DIAGNOSES["too quiet"], (STRENGTH, "return 60 * q * (torch.arange(head_dim) > 1), k"))
edited(head_turned_ahead, "head_of_one_pair", 0, DIAGNOSES["too quiet"], (STRENGTH, "return 60 * q * (torch.arange(head_dim) < 2), k"))
edited(head_turned_ahead, "head_nothing", 0, DIAGNOSES["no favourite"], (STRENGTH, "return 0 * q, k"))


@right(WEEK, "look_back_head")
def head_query_turned_back(back, head_dim, n_keys):
    angle = torch.tensor([back * 10000 ** (-2 * i / head_dim) for i in range(head_dim // 2)])
    q = torch.stack((torch.cos(angle), -torch.sin(angle)), 1).reshape(-1)
    k = torch.zeros(head_dim)
    k[::2] = 1
    return [10 * q, 10 * k]


@right(WEEK, "look_back_head")
def head_loud_enough(back, head_dim, n_keys):
    frequency = 10000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    score = np.cos(np.outer(np.arange(n_keys) - back, frequency)).sum(1) / np.sqrt(head_dim)
    strength = 1.0
    while 1 / np.exp(strength * (score - score[back])).sum() < 0.85:
        strength *= 1.1
    q, k = np.zeros(head_dim), np.zeros(head_dim)
    q[0::2], k[0::2], k[1::2] = strength, np.cos(back * frequency), np.sin(back * frequency)
    return torch.from_numpy(q), torch.from_numpy(k)


@right(WEEK, "look_back_head")
def head_fast_pairs_louder(back, head_dim, n_keys):
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    z = torch.polar(torch.ones_like(pairs), back * 10000.0 ** (-2 * pairs / head_dim))
    loud = torch.where(pairs < max(4, head_dim // 4), 80.0, 1.0).to(torch.complex128)
    return torch.view_as_real(loud).flatten().float(), torch.view_as_real(z).flatten().float()


# ---- families: every mistake and every pair of them -----------------------------------------------------------------


def _frequencies(dim, base, mistakes, device=None):
    """One per pair in float64, (dim/2,), with mistakes."""
    if "base" in mistakes:
        base = 10000.0
    exponents = 2.0 * torch.arange(dim // 2, dtype=torch.float64, device=device)
    if "first pair" in mistakes:
        exponents += 2
    exponents /= {"i/d": 2 * dim, "d-2": max(dim - 2, 1)}.get(next(iter(mistakes & {"i/d", "d-2"}), ""), dim)
    if "one frequency" in mistakes:
        exponents *= 0
    return base ** (exponents if "positive" in mistakes else -exponents)


def _positions(positions, mistakes):
    """The positions in float64, with mistakes."""
    positions = positions.double()
    if "ignored" in mistakes or "start only" in mistakes or "relative" in mistakes:
        count = torch.arange(positions.shape[-1], device=positions.device).double()
        start = positions[..., :1]
        positions = count if "ignored" in mistakes else start + count if "start only" in mistakes else positions - start
    if "whole" in mistakes:
        positions = positions.trunc()
    if "absolute" in mistakes:
        positions = positions.abs()
    if "from one" in mistakes:
        positions = positions + 1
    if "first row" in mistakes and positions.ndim == 2:
        positions = positions[0]
    return positions.deg2rad() if "degrees" in mistakes else positions


def _angles(positions, dim, base, mistakes):
    """position * frequency in float64, (..., dim/2), with mistakes."""
    return _positions(positions, mistakes)[..., None] * _frequencies(dim, base, mistakes, positions.device)


def _rotate(x, positions, base, mistakes, half=False):
    """RoPE in the interleaved or the half layout, with mistakes."""
    factors = _positions(positions, mistakes)[..., None], _frequencies(x.shape[-1], base, mistakes, positions.device)
    is_rounded = x.dtype != torch.float64 and "low precision" in mistakes
    position, frequency = (factor.to(x.dtype) for factor in factors) if is_rounded else factors
    angles = (position * frequency).double()
    if angles.ndim == 3 and "rows for heads" not in mistakes:
        angles = angles[:, None]
    if "head axis" in mistakes:
        angles = angles[..., None, :]
    cos, sin = angles.cos(), angles.sin()
    if "swapped" in mistakes:
        cos, sin = sin, cos
    if "clockwise" in mistakes:
        sin = -sin
    if "half layout" in mistakes or "interleaved layout" in mistakes:
        half = not half
    dtype, x = x.dtype, x.double()
    a, b = x.chunk(2, dim=-1) if half else (x[..., 0::2], x[..., 1::2])
    if "mixed tables" in mistakes:
        if half:
            cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
            return torch.cat((a * cos[..., :a.shape[-1]] - b * sin[..., :a.shape[-1]],
                              b * cos[..., a.shape[-1]:] + a * sin[..., a.shape[-1]:]), -1).to(dtype)
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        return torch.stack((a * cos[..., 0::2] - b * sin[..., 0::2],
                            b * cos[..., 1::2] + a * sin[..., 1::2]), -1).flatten(-2).to(dtype)
    first = a * cos - b * sin
    second = (first if "overwritten" in mistakes else a) * sin + b * cos
    if "mirrored" in mistakes:
        first = a * cos + b * sin
    if {"half layout", "apart"} <= mistakes or {"interleaved layout", "woven"} <= mistakes:
        raise ValueError("said by no sentence: the pairs of the other layout, put back as in this one")
    together = half if "apart" not in mistakes and "woven" not in mistakes else not half
    out = torch.cat((first, second), -1) if together else torch.stack((first, second), -1).flatten(-2)
    return out.to(torch.float32 if "float32 out" in mistakes else dtype)


def _say(*names):
    return {name: DIAGNOSES[name] for name in names}


ANGLES = ("i/d", "d-2", "positive", "first pair", "one frequency", "base", "from one", "degrees", "low precision")
POSITIONS = ("ignored", "start only", "relative", "first row", "whole", "absolute")
PAIRS = ("clockwise", "swapped", "mirrored", "overwritten", "mixed tables")


@family(WEEK, "rope_frequencies", _say("i/d", "d-2", "positive", "first pair", "base", "per channel", "wavelength"))
def frequencies_with(mistakes):
    def subject(head_dim, base=10000.0):
        out = _frequencies(head_dim, base, mistakes)
        out = out.repeat_interleave(2) if "per channel" in mistakes else out
        return (2 * math.pi * out if "wavelength" in mistakes else out).float()

    return subject


@family(WEEK, "apply_rotary_emb", _say(
    "half layout", *PAIRS, "apart", *ANGLES, *POSITIONS, "head axis", "rows for heads", "float32 out"))
def rotation_with(mistakes):
    return lambda x, positions, base=10000.0: _rotate(x, positions, base, mistakes)


@family(WEEK, "apply_rotary_emb_half", _say(
    "interleaved layout", *PAIRS, "woven", *ANGLES, *POSITIONS, "head axis", "rows for heads", "float32 out"))
def half_rotation_with(mistakes):
    return lambda x, positions, base=10000.0: _rotate(x, positions, base, mistakes, half=True)


@family(WEEK, "interleaved_to_half", _say("inverse", "all heads", "odds first", "columns", "heads inside"))
def conversion_with(mistakes):
    def subject(weight, n_heads):
        weight = weight.T if "columns" in mistakes else weight
        groups = 1 if "all heads" in mistakes else n_heads
        order = torch.arange(len(weight))
        order = order.view(-1, groups).T.flatten() if "heads inside" in mistakes else order
        order = order.view(groups, 2, -1) if "inverse" in mistakes else order.view(groups, -1, 2)
        order = order.mT.flip(-1 if "inverse" in mistakes else -2) if "odds first" in mistakes else order.mT
        order = order.reshape(groups, -1)
        out = weight[(order.T if "heads inside" in mistakes else order).flatten()]
        return out.T if "columns" in mistakes else out

    return subject


# Scores know differences only: there some mistakes are the same as others ("swapped" as "clockwise") or none ("apart").
@family(WEEK, "RotaryMultiHeadAttention", _say(
    "no rotation", "values", "queries only", "before split", "half layout", "clockwise", "mirrored", "overwritten",
    "mixed tables", "i/d", "d-2", "positive", "base", "degrees", "ignored", "first row", "whole", "absolute",
    "rows for heads", "unscaled", "d_model scale", "over queries", "split", "merge", "no causal", "mask by position",
    "strict", "hidden by default", "turned round", "no o_proj"))
def attention_with(mistakes):
    class Attention(nn.Module):
        def __init__(self, d_model, n_heads, base=10000.0):
            super().__init__()
            self.n_heads, self.base = n_heads, base
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(self, name, nn.Linear(d_model, d_model, bias=False))

        def forward(self, x, positions=None, is_causal=False):
            batch, n, d_model = x.shape
            positions = torch.arange(n, device=x.device) if positions is None else positions
            head_dim = d_model // self.n_heads
            q, k, v = (p(x) for p in (self.q_proj, self.k_proj, self.v_proj))

            def split(t):
                if "split" in mistakes:
                    return t.reshape(batch, self.n_heads, n, head_dim)
                return t.reshape(batch, n, self.n_heads, head_dim).transpose(1, 2)

            def rotate(t):
                if "no rotation" in mistakes:
                    return split(t)
                if "before split" in mistakes:
                    return split(_rotate(t[:, None], positions, self.base, mistakes)[:, 0])
                return _rotate(split(t), positions, self.base, mistakes)

            q, k = rotate(q), split(k) if "queries only" in mistakes else rotate(k)
            v = rotate(v) if "values" in mistakes else split(v)
            size = 1 if "unscaled" in mistakes else d_model if "d_model scale" in mistakes else head_dim
            scores = q @ k.mT / math.sqrt(size)
            is_causal = "hidden by default" in mistakes or is_causal != ("turned round" in mistakes)
            if is_causal and "no causal" not in mistakes:
                seen = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(-1 if "strict" in mistakes else 0)
                if "mask by position" in mistakes:
                    seen = (positions[..., :, None] >= positions[..., None, :]).reshape(-1, 1, n, n)
                scores = scores.masked_fill(~seen, -math.inf)
            out = scores.softmax(-2 if "over queries" in mistakes else -1) @ v
            out = out.reshape(batch, n, d_model) if "merge" in mistakes else out.transpose(1, 2).flatten(2)
            return out if "no o_proj" in mistakes else self.o_proj(out)

    return Attention


@family(WEEK, "rotate_half", _say("still woven", "sign moved", "no sign", "even and odd", "woven"))
def quarter_turn_with(mistakes):
    def subject(x):
        woven_in, woven_out = (bool(mistakes & {"still woven", way}) for way in ("even and odd", "woven"))
        a, b = (x[..., 0::2], x[..., 1::2]) if woven_in else x.chunk(2, dim=-1)
        a, b = (b, -a) if "sign moved" in mistakes else (b, a) if "no sign" in mistakes else (-b, a)
        return torch.stack((a, b), -1).flatten(-2) if woven_out else torch.cat((a, b), -1)

    return subject


@family(WEEK, "rotary_tables", _say(
    "tables swapped", "table width", "table dtype", *ANGLES[:-1], "ignored", "start only", "whole", "absolute",
    "clockwise"))
def tables_with(mistakes):
    def subject(positions, head_dim, dtype=torch.float32, base=10000.0):
        angles = _angles(positions, head_dim, base, mistakes)
        angles = torch.cat((angles, angles), -1) if "table width" in mistakes else angles
        dtype = torch.float32 if "table dtype" in mistakes else dtype
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        sin = -sin if "clockwise" in mistakes else sin
        return (sin, cos) if "tables swapped" in mistakes else (cos, sin)

    return subject


@family(WEEK, "decode_step_scores", _say(
    "query at 0", "query after", "keys only", "reversed", "all at end", "half layout", "mirrored", "overwritten",
    "mixed tables", *ANGLES[:6], "degrees", "scaled", "softmaxed", "turned shape"))
def decoding_with(mistakes):
    def subject(q, k_cache, base=10000.0):
        n = k_cache.shape[-2]
        positions = torch.arange(n, device=q.device)
        newest = 0 if "query at 0" in mistakes else n if "query after" in mistakes else n - 1
        places = positions * 0 + newest if "all at end" in mistakes else positions
        places = 2 * newest - places if "reversed" in mistakes else places
        q = _rotate(q, torch.tensor([newest], device=q.device), base, mistakes)
        scores = q @ (k_cache if "keys only" in mistakes else _rotate(k_cache, places, base, mistakes)).mT
        scores = scores / math.sqrt(q.shape[-1]) if "scaled" in mistakes else scores
        scores = scores.softmax(-1) if "softmaxed" in mistakes else scores
        return scores.mT if "turned shape" in mistakes else scores

    return subject


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    DIAGNOSES[name]
    for name in (
        "i/d", "d-2", "positive", "first pair", "base", "clockwise", "swapped", "degrees", "mirrored",
        "overwritten", "one frequency", "from one", "head axis", "first row", "rows for heads", "one row", "whole",
        "absolute", "half layout", "mixed tables", "start only", "low precision", "relative", "woven",
    )
)
