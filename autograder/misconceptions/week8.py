"""Week 8, positions in production: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn  # noqa: F401  (a name that answers may use)

from autograder.misconceptions.bank import edited, family, right, wrong

WEEK = "week8_production"

SAYS = {
    # what the checks say themselves
    "no tokens": "A segment without tokens goes wrong. (It adds no column and moves nothing; an empty result is int64, too.)",
    "far below": "Where the scores that count are far below zero, this goes wrong. (A hidden score is -inf, not a low "
    "number, and softmax looks at differences of scores.)",
    "many keys": "With few keys all is right, with 300 it is not. (There may be any number of keys; keys that you read in "
    "blocks share one softmax.)",
    "one query": "Several queries with a mask are right, a single one is not. (The mask applies to it as well.)",
    "ascending": "The right tokens are kept; they must be in ascending order.",
    # rotations
    "head exponent": "Your exponent divides by head_dim; a part that turns has the frequencies of its own width, "
    "base**(-2i/rotary_dim).",
    "head pairs": "Your pairs reach over the whole head; they lie inside the part that turns: i and i + rotary_dim/2.",
    "last channels": "You turn the last channels; turn the first rotary_dim.",
    "rest zeroed": "The channels that do not turn come back as zeros; let them pass as they are.",
    "rest dropped": "Your result has only the channels that turn; the others follow them, as they are.",
    "rest first": "The channels that pass come first in your result; every channel keeps its place.",
    "all turn": "All channels turn, as if rotary_dim were head_dim.",
    "interleaved": "Your pairs are neighbours, (0, 1), (2, 3), ...; this exercise has the half layout.",
    "clockwise": "You turn the wrong way: the sign of the sine is reversed.",
    "mirrored": "Your second half has the wrong sign: it is x2*cos + x1*sin.",
    "first mirrored": "Your first half has the wrong sign: it is x1*cos - x2*sin.",
    "half exponent": "Your exponent is half of what it should be: -2i/dim, with i counting pairs.",
    "positive exponent": "Your frequencies grow: the exponent is negative.",
    "unrotated": "Your result is the input itself: nothing is rotated.",
    "pairs from 1": "Your pairs count from 1; the first one is pair 0 and turns by 1 per position.",
    "last is 1": "Your exponents run from 0 to -1: you divide by the number of pairs less one. It is -2i/dim.",
    "neighbours' angles": "Your angles lie next to each other in twos, but your pairs are halves: both channels of a pair "
    "turn by the same angle.",
    "put back as neighbours": "You read pairs as halves and write them back as neighbours; every channel keeps its place.",
    "whole frequencies": "Your frequencies take the dtype of the positions; as whole numbers all but the first are 0.",
    "degrees": "Your angles are taken as degrees; they are radians.",
    "index": "Your angles come from the index 0, 1, ...; take the positions that are given.",
    "first row": "All sequences turn by the first row of positions; row b belongs to sequence b.",
    "rows for heads": "Your rows of positions are spread over the heads; they belong to the sequences of the batch.",
    "base": "The argument base is ignored.",
    "half angles": "Your angles are computed in the dtype of x; half precision cannot hold far positions.",
    "whole": "Positions become whole numbers; they are real numbers.",
    "absolute": "Negative positions turn like positive ones; they turn the other way.",
    "no error": "A rotary_dim that is odd, below 2 or above head_dim must raise ValueError.",
    "too large": "A rotary_dim above head_dim must raise ValueError; a slice just ends early.",
    "no whole head": "rotary_dim may be head_dim: then all channels turn.",
    "even head": "Only rotary_dim must be even; head_dim may be odd.",
    "float32": "Your result is float32 whatever x is; keep its dtype.",
    "gradient cut": "The gradient is cut off on its way to the scores or to the sinks, so what it does not reach never learns.",
    "detached": "Your result, or a part of it, is cut off from the autograd graph, so something before it cannot learn.",
    "in place": "Your function changes its argument in place; work on a new tensor.",
    # positions of M-RoPE
    "time forgotten": "After a grid your count goes on at the largest row or column; the largest number may be on the "
    "axis of time.",
    "time only": "After a grid your count goes on behind its last time step; rows and columns reach further.",
    "one after a grid": "After a grid your count goes on by 1, whatever its size; it goes on at the largest number on any axis, plus 1.",
    "tokens counted": "After a grid your count goes on by its number of tokens; it goes on at the largest number on any "
    "axis, plus 1.",
    "no start": "Every grid starts at 0; it starts where the text before it has ended, on all axes.",
    "time from 0": "The axis of time starts at 0 in every grid; all three axes start at s.",
    "place from 0": "Rows and columns start at 0 in every grid; all three axes start at s.",
    "one short": "Your next segment starts at the largest number itself; it starts one later.",
    "one late": "Your next segment starts one too late, or your first one does: s is 0 at the beginning.",
    "without s": "What follows some grids starts too low: it starts at the largest number so far, counted from the beginning of the text, plus 1.",
    "rows and columns": "Rows and columns are exchanged: the axes are time, height, width.",
    "axes reversed": "Your axes are in reverse order: they are time, height, width.",
    "time fastest": "Your tokens run with time fastest; row-major means width fastest, time slowest.",
    "frames in a row": "Your tokens run through all frames of one row before the next row; row-major means time slowest, "
    "width fastest.",
    "halved": "You halve the height and the width of a grid; its numbers are tokens already.",
    "columns first": "Your tokens run down the columns; row-major means that width runs fastest.",
    "flat": "The tokens of a grid count on one by one like text; number them by time, row and column.",
    "not turned": "Your result is (n, 3); it must be (3, n), one row per axis.",
    "float numbers": "Your numbers are floating-point; they count, and must be int64.",
    "int32": "Your numbers are int32; the exercise asks for int64.",
    "list": "You return a list; the exercise asks for a tensor.",
    "nothing there": "A segment without tokens goes wrong: it adds nothing and moves nothing.",
    "text on time": "Text tokens count on the axis of time alone; they have the same number on all three.",
    # M-RoPE
    "axes exchanged": "Height and width are exchanged: the sections are for time, height, width, in this order.",
    "width first": "Your sections run from width to time; they are for time, height, width, in this order.",
    "woven sections": "Your sections are interleaved: pair p turns by axis p mod 3. Here they are contiguous.",
    "restarted": "Your frequencies start again with every section; they run through all pairs of the head.",
    "one axis": "All pairs turn by the same axis; each section has its own.",
    "summed": "Your pairs turn by all three axes together; each pair must turn by one.",
    "channel sections": "Your sections count channels across the halves; they must count pairs, so a channel and its partner "
    "turn by the same axis.",
    "equal sections": "You cut the pairs in three equal parts; take the sizes from sections.",
    "sections unchecked": "Sections that do not add up to head_dim/2 must raise ValueError.",
    "no empty section": "A section of 0 is allowed: then no pair turns by that axis.",
    # the window
    "one too many": "Your window has one key too many: the query itself counts as one of them.",
    "one too few": "Your window has one key too few: the query itself and the window - 1 keys before it.",
    "centred": "Your window lies around the query; it must reach back only: the query itself and the window - 1 keys before it.",
    "top left": "Your queries are aligned at the top left, as if they were the first positions; they are the last ones "
    "(position n_keys - n_queries + r).",
    "half aligned": "One edge of your window is aligned at the end, the other at the top left.",
    "both sides": "Your queries see keys after them: the window reaches back only.",
    "ahead": "Your window reaches ahead; it must reach back. Rows are queries, columns are keys.",
    "no window": "Your window hides nothing: keys more than window - 1 positions away must be hidden.",
    "inverted": "Your mask is inverted: True means that a query may attend to a key.",
    "strict": "Your mask hides the token itself; a query sees its own key.",
    "blocks": "Your mask cuts the text into blocks; the window moves with the query.",
    "last keys": "All queries see the same last keys; the window moves with the query.",
    "square": "Your mask is always square; it has n_queries rows and n_keys columns.",
    "bias": "You return 0 and -inf to be added to scores; the exercise asks for a boolean mask.",
    "numbers": "You return numbers; the exercise asks for a boolean mask.",
    "short text": "A window longer than the text is allowed: then it hides nothing.",
    # the sink
    "kept": "The column of the sink is still there: drop it after the softmax.",
    "wrong column": "The first column of your result is the sink's: drop that one, and no key.",
    "first key dropped": "You drop the first column, which is key 0, and keep the sink's, the last one: drop the last.",
    "first sink": "All heads have the sink of the first one; each has its own.",
    "sinks by query": "The sinks are spread over the queries; there is one per head.",
    "sinks in turn": "Your column of sinks runs through the heads fastest; all queries of a head have the head's own sink.",
    "sinks shared out": "Your sinks are shared out over the texts of the batch; every text has them all, one per head.",
    "adds up to 1": "Your weights add up to 1: the sink's share must be missing from them.",
    "not exponentiated": "You add the sink itself to the sum; it is a logit, so exp(sink) is added.",
    "sink not shifted": "You subtract the largest score from the scores alone; the sink's logit must be less by the same number.",
    "sink sign": "Your sink has the wrong sign: exp(sink) joins the sum.",
    "zero sink": "Your sink is a logit of 0 in all heads, whatever `sinks` says.",
    "heads together": "The sinks of all heads join every row; a row has the one of its own head.",
    "squared share": "You multiply the weights by the sink's share; multiply by what is left of it, 1 minus the share.",
    "over queries": "The softmax runs over the queries; it belongs on the axis of the keys.",
    "nan row": "A row that may attend to no key gives NaN; it must be zero.",
    "overflow": "Large logits overflow in exp: use torch.softmax, or subtract the largest one first.",
    "one largest": "You subtract the largest logit of all rows; take each row's own, or a row far below it gives 0/0.",
    "hidden seen": "Hidden keys get weight: -inf must stay -inf until the softmax.",
    "log": "You return logarithms of the weights; the exercise asks for the weights.",
    # the cache
    "true positions": "Your positions are those in the text; in the cache they count 0, 1, ... without gaps.",
    "from 1": "Your positions start at 1; they must start at 0.",
    "ring": "Your positions wrap round like a ring buffer; they must ascend with the tokens.",
    "window from 0": "The positions of the window start at 0 again; they must go on behind those of the sinks.",
    "twice": "In a short text some tokens are kept twice; each is kept once.",
    "negative": "In a short text your window begins before the text.",
    "sinks in window": "Your window gives up keys for the sinks; the cache holds n_sinks + window of them.",
    "window small": "Your window is one too small: the last `window` tokens are kept.",
    "window large": "Your window is one too large: the last `window` tokens are kept.",
    "no sinks": "Your sinks are missing: the first n_sinks tokens are kept as well.",
    "everything": "You keep all tokens; the cache is bounded.",
    "sinks last": "Your sinks come behind the window; tokens are ascending.",
    "descending": "Your tokens are descending; put them in ascending order.",
    "one sink at least": "You keep a sink where none is asked for: n_sinks may be 0.",
    "one sink": "You keep a single sink; the first n_sinks tokens are kept.",
    "exchanged": "You return (positions, kept); the order is (kept, positions).",
    "only kept": "You return one tensor; the exercise asks for two, (kept, positions).",
    # latent attention
    "dn scale": "The scale is sqrt(dn + dr), since a key has both parts; yours is sqrt(dn).",
    "dr scale": "The scale is sqrt(dn + dr), since a key has both parts; yours is sqrt(dr).",
    "rank scale": "The scale is sqrt(dn + dr), the width of a whole key, also in absorbed form; yours is that of the "
    "latent.",
    "no root": "You divide by dn + dr; the scale is its square root.",
    "unscaled": "The scores are not divided by sqrt(dn + dr).",
    "two scales": "Each part has a scale of its own; the whole score is divided by sqrt(dn + dr).",
    "sum of roots": "The scale is sqrt(dn + dr); yours is sqrt(dn) + sqrt(dr).",
    "rope per head": "k_rope has no axis of heads: it is (batch, n_keys, dr), shared by all heads.",
    "wrong side": "w_uk is absorbed on the wrong side: q.(w_uk c) = (w_uk^T q).c.",
    "values from keys": "Your values come from w_uk; they have a matrix of their own, w_uv.",
    "keys from values": "Your keys come from w_uv; they have a matrix of their own, w_uk.",
    "values reshaped": "w_uv is (heads, dv, r); where it must be transposed you reshape it, and its numbers change places.",
    "causal": "Without a mask every query may attend to every key; you hide the later ones.",
    "no rope": "The rotated part is missing from the scores: q_rope.k_rope.",
    "no content": "The content part is missing from the scores: q_nope.(w_uk latent).",
    "parts multiplied": "The two parts of the score are multiplied; add them.",
    "latent values": "Your values are the latents themselves; w_uv turns them into values.",
    "first uk": "All heads use w_uk of the first one; each has its own.",
    "first uv": "All heads use w_uv of the first one; each has its own.",
    "first latent": "All sequences read the latents of the first one.",
    "mask inverted": "Your mask is inverted: True means that a query may attend to a key.",
    "mask ignored": "Where your output is wrong, the mask changes nothing.",
    "mask after softmax": "The mask comes after the softmax, so the visible weights no longer add up to 1.",
    "even row": "A query that may attend to no key spreads its weight over all of them; its output is zero.",
    "both": "You return (out, weights); the exercise asks for out alone.",
    "merged": "You join the heads; the result is (batch, heads, n_queries, dv).",
    "float32 out": "Your result is float32 whatever the arguments are; keep their dtype.",
}


def _say(*names):
    return {name: SAYS[name] for name in names}


# ---- 8.1 partial_rotary_emb -----------------------------------------------------------------------------------------


@right(WEEK, "partial_rotary_emb", 2.875)
def partial_plain(x, positions, rotary_dim, base=10000.0):
    if rotary_dim % 2 or rotary_dim < 2 or rotary_dim > x.shape[-1]:
        raise ValueError("rotary_dim must be even, at least 2 and at most head_dim")
    turning, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    freqs = base ** (-torch.arange(0, rotary_dim, 2).float() / rotary_dim)
    angles = positions.float()[..., None] * freqs
    if positions.ndim == 2:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = turning[..., : rotary_dim // 2], turning[..., rotary_dim // 2 :]
    turned = torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    return torch.cat((turned.to(x.dtype), rest), dim=-1)


PARTS = "turning, rest = x[..., :rotary_dim], x[..., rotary_dim:]"
JOINED = "return torch.cat((turned.to(x.dtype), rest), dim=-1)"
FREQS = "freqs = base ** (-torch.arange(0, rotary_dim, 2).float() / rotary_dim)"
ANGLES = "angles = positions.float()[..., None] * freqs"
REFUSES = """    if rotary_dim % 2 or rotary_dim < 2 or rotary_dim > x.shape[-1]:
        raise ValueError("rotary_dim must be even, at least 2 and at most head_dim")
"""
for _name, _score, _says, *_changes in (
    ("partial_head_exponent", 0, "head exponent", (FREQS, FREQS.replace("/ rotary_dim", "/ x.shape[-1]"))),
    (
        "partial_last_channels",
        0,
        "last channels",
        (PARTS, "rest, turning = x[..., : x.shape[-1] - rotary_dim], x[..., x.shape[-1] - rotary_dim :]"),
        (JOINED, "return torch.cat((rest, turned.to(x.dtype)), dim=-1)"),
    ),
    ("partial_rest_zeroed", 0, "rest zeroed", (", rest), dim=-1)", ", torch.zeros_like(rest)), dim=-1)")),
    ("partial_rest_dropped", 0, "rest dropped", (JOINED, "return turned.to(x.dtype)")),
    ("partial_rest_first", 0, "rest first", (JOINED, "return torch.cat((rest, turned.to(x.dtype)), dim=-1)")),
    ("partial_clockwise", 0, "clockwise", ("angles.sin()", "-angles.sin()")),
    ("partial_mirrored", 0, "mirrored", ("x2 * cos + x1 * sin", "x2 * cos - x1 * sin")),
    ("partial_first_mirrored", 0, "first mirrored", ("x1 * cos - x2 * sin", "x1 * cos + x2 * sin")),
    ("partial_half_exponent", 0, "half exponent", (FREQS, "freqs = base ** (-torch.arange(rotary_dim // 2) / rotary_dim)")),
    ("partial_positive_exponent", 0, "positive exponent", ("base ** (-torch", "base ** (torch")),
    ("partial_degrees", 0, "degrees", (ANGLES, ANGLES + " * math.pi / 180")),
    (
        "partial_index",
        1.625,
        "index",
        (ANGLES, "positions = torch.arange(x.shape[2])\n    angles = positions.float()[..., None] * freqs"),
    ),
    ("partial_first_row", 2.125, "first row", ("angles = angles[:, None]", "angles = angles[0]")),
    ("partial_rows_for_heads", 2.125, "rows for heads", ("    if positions.ndim == 2:\n        angles = angles[:, None]\n", "")),
    ("partial_base", 2.375, "base", ("freqs = base **", "freqs = 10000.0 **")),
    ("partial_half_angles", 2.375, "half angles", (ANGLES, "angles = positions.to(x.dtype)[..., None] * freqs.to(x.dtype)")),
    ("partial_whole", 2.125, "whole", (ANGLES, "angles = positions.long()[..., None] * freqs")),
    ("partial_absolute", 2.125, "absolute", (ANGLES, "angles = positions.abs().float()[..., None] * freqs")),
    ("partial_no_error", 2.625, "no error", (REFUSES, "")),
    ("partial_too_large", 2.625, "too large", (" or rotary_dim > x.shape[-1]", "")),
    ("partial_zero_allowed", 2.625, "no error", ("rotary_dim < 2", "rotary_dim < 0")),
    ("partial_no_whole_head", 2.625, "no whole head", ("rotary_dim > x.shape[-1]", "rotary_dim >= x.shape[-1]")),
    ("partial_even_head", 2.625, "even head", ("if rotary_dim % 2 or", "if rotary_dim % 2 or x.shape[-1] % 2 or")),
    ("partial_float32", 2.75, "float32", (JOINED, "return torch.cat((turned, rest), dim=-1).float()")),
    ("partial_detached", 2.75, "detached", (JOINED, "return torch.cat((turned.to(x.dtype), rest), dim=-1).detach()")),
    ("partial_in_place", 2.75, "in place", (JOINED, "x[..., :rotary_dim] = turned\n    return x")),
):
    edited(partial_plain, _name, _score, SAYS[_says], *_changes)


@wrong(WEEK, "partial_rotary_emb", 0, SAYS["unrotated"])
def partial_unrotated(x, positions, rotary_dim, base=10000.0):
    return x.clone()


@wrong(WEEK, "partial_rotary_emb", 0, SAYS["all turn"])
def partial_all_turn(x, positions, rotary_dim, base=10000.0):
    head_dim = x.shape[-1]
    if rotary_dim % 2 or not 2 <= rotary_dim <= head_dim:
        raise ValueError("rotary_dim")
    angles = positions[..., None] * base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = angles[:, None] if positions.ndim == 2 else angles
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * angles.cos() - x2 * angles.sin(), x2 * angles.cos() + x1 * angles.sin()), dim=-1)


@wrong(WEEK, "partial_rotary_emb", 0, SAYS["head pairs"])
def partial_head_pairs(x, positions, rotary_dim, base=10000.0):
    head_dim, n_pairs = x.shape[-1], rotary_dim // 2
    if rotary_dim % 2 or not 2 <= rotary_dim <= head_dim:
        raise ValueError("rotary_dim")
    angles = positions[..., None] * base ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)
    angles = angles[:, None] if positions.ndim == 2 else angles
    out = x.clone()
    x1, x2 = x[..., :n_pairs], x[..., head_dim // 2 : head_dim // 2 + n_pairs]
    out[..., :n_pairs] = x1 * angles.cos() - x2 * angles.sin()
    out[..., head_dim // 2 : head_dim // 2 + n_pairs] = x2 * angles.cos() + x1 * angles.sin()
    return out


@wrong(WEEK, "partial_rotary_emb", 0, SAYS["interleaved"])
def partial_interleaved(x, positions, rotary_dim, base=10000.0):
    if rotary_dim % 2 or rotary_dim < 2 or rotary_dim > x.size(-1):
        raise ValueError("rotary_dim")
    theta = positions.unsqueeze(-1) / base ** (torch.arange(0, rotary_dim, 2) / rotary_dim)
    if positions.dim() == 2:
        theta = theta.unsqueeze(1)
    even, odd = x[..., 0:rotary_dim:2], x[..., 1:rotary_dim:2]
    pairs = torch.stack((even * theta.cos() - odd * theta.sin(), odd * theta.cos() + even * theta.sin()), dim=-1)
    return torch.cat((pairs.flatten(-2).type_as(x), x[..., rotary_dim:]), dim=-1)


@right(WEEK, "partial_rotary_emb", 2.875)
def partial_neox(x, positions, rotary_dim, base=10000.0):
    def rotate_half(t):
        half = t.shape[-1] // 2
        return torch.cat((-t[..., half:], t[..., :half]), dim=-1)

    if rotary_dim not in range(2, x.shape[-1] + 1, 2):
        raise ValueError("no such part")
    inv_freq = 1.0 / (base ** (torch.arange(0, rotary_dim, 2, dtype=torch.int64).float() / rotary_dim))
    if positions.dim() == 1:
        positions = positions[None]
    emb = positions.float()[:, :, None] * inv_freq
    emb = torch.cat((emb, emb), dim=-1)[:, None]
    turned, passed = x[..., :rotary_dim], x[..., rotary_dim:]
    turned = (turned.float() * emb.cos() + rotate_half(turned.float()) * emb.sin()).to(x.dtype)
    return torch.cat((turned, passed), dim=-1)


@right(WEEK, "partial_rotary_emb", 2.875)
def partial_through_complex(x, positions, rotary_dim, base=10000.0):
    if rotary_dim < 2 or rotary_dim % 2 == 1 or x.shape[-1] < rotary_dim:
        raise ValueError(f"rotary_dim {rotary_dim}")
    n = rotary_dim // 2
    z = torch.complex(x[..., :n].double(), x[..., n:rotary_dim].double())
    angle = positions.double()[..., None] * float(base) ** (-torch.arange(n, dtype=torch.float64) / n)
    if positions.ndim == 2:
        angle = angle[:, None]
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real.to(x.dtype), z.imag.to(x.dtype), x[..., rotary_dim:]], -1)


@right(WEEK, "partial_rotary_emb")
def partial_pair_by_pair(x, positions, rotary_dim, base=10000.0):
    if rotary_dim < 2 or rotary_dim > x.shape[-1] or rotary_dim % 2:
        raise ValueError("rotary_dim")
    columns = list(x.unbind(-1))
    for i in range(rotary_dim // 2):
        angle = positions.double() * base ** (-2 * i / rotary_dim)
        angle = angle[:, None] if angle.ndim == 2 else angle
        a, b = x[..., i].double(), x[..., i + rotary_dim // 2].double()
        columns[i] = (a * angle.cos() - b * angle.sin()).to(x.dtype)
        columns[i + rotary_dim // 2] = (a * angle.sin() + b * angle.cos()).to(x.dtype)
    return torch.stack(columns, dim=-1)


@right(WEEK, "partial_rotary_emb", 2.875)
def partial_with_still_channels(x, positions, rotary_dim, base=10000.0):
    head_dim = x.shape[-1]
    if rotary_dim % 2 or rotary_dim < 2 or rotary_dim > head_dim:
        raise ValueError("rotary_dim")
    half = rotary_dim // 2
    channel = np.arange(head_dim)
    speed = np.where(channel < rotary_dim, np.power(float(base), -2.0 * (channel % half) / rotary_dim), 0.0)
    partner = np.where(channel < half, channel + half, np.where(channel < rotary_dim, channel - half, channel))
    sign = np.where(channel < half, -1.0, 1.0)
    angle = positions.to(torch.float64).unsqueeze(-1) * torch.from_numpy(speed)
    angle = angle.unsqueeze(1) if positions.dim() == 2 else angle
    out = x * angle.cos() + torch.from_numpy(sign) * x[..., torch.from_numpy(partner)] * angle.sin()
    return out.to(x.dtype)


# ---- 8.2 mrope_positions --------------------------------------------------------------------------------------------


@right(WEEK, "mrope_positions")
def grid_plain(segments):
    numbers, s = [], 0
    for segment in segments:
        if isinstance(segment, int):
            new = [(s + i, s + i, s + i) for i in range(segment)]
            step = segment
        else:
            t, h, w = segment
            new = [(s + a, s + b, s + c) for a in range(t) for b in range(h) for c in range(w)]
            step = max(t, h, w)
        numbers += new
        if new:
            s = s + step
    return torch.tensor(numbers, dtype=torch.int64).reshape(-1, 3).T


NEW = "new = [(s + a, s + b, s + c) for a in range(t) for b in range(h) for c in range(w)]"
STEP = "step = max(t, h, w)"
for _name, _score, _says, *_changes in (
    ("grid_time_forgotten", 2.25, "time forgotten", (STEP, "step = max(h, w)")),
    ("grid_time_only", 1.25, "time only", (STEP, "step = t")),
    ("grid_one_after", 1.25, "one after a grid", (STEP, "step = 1")),
    ("grid_tokens_counted", 1.25, "tokens counted", (STEP, "step = t * h * w")),
    ("grid_no_start", 1.25, "no start", (NEW, NEW.replace("s + a, s + b, s + c", "a, b, c"))),
    ("grid_time_from_0", 1.25, "time from 0", (NEW, NEW.replace("s + a", "a"))),
    ("grid_time_from_0_counted", 1.25, "time from 0", (NEW, NEW.replace("s + a", "a")), ("            s = s + step", "            s = max(map(max, numbers)) + 1")),
    ("grid_place_from_0", 1.25, "place from 0", (NEW, NEW.replace("s + b, s + c", "b, c"))),
    ("grid_one_short", 1.25, "one short", ("s = s + step", "s = s + step - 1")),
    ("grid_one_late", 1.25, "one late", ("s = s + step", "s = s + step + 1")),
    ("grid_from_1", 0, "one late", ("numbers, s = [], 0", "numbers, s = [], 1")),
    ("grid_without_s", 1.25, "without s", ("            s = s + step", "            s = s + step if isinstance(segment, int) else step")),
    ("grid_rows_and_columns", 0, "rows and columns", (NEW, NEW.replace("s + b, s + c", "s + c, s + b"))),
    ("grid_axes_reversed", 0, "axes reversed", (NEW, NEW.replace("s + a, s + b, s + c", "s + c, s + b, s + a"))),
    ("grid_time_fastest", 0, "time fastest", (NEW, "new = [(s + a, s + b, s + c) for c in range(w) for b in range(h) for a in range(t)]")),
    ("grid_columns_first", 0, "columns first", (NEW, "new = [(s + a, s + b, s + c) for a in range(t) for c in range(w) for b in range(h)]")),
    ("grid_flat", 0, "flat", (NEW, "new = [(s + i, s + i, s + i) for i in range(t * h * w)]"), (STEP, "step = t * h * w")),
    ("grid_not_turned", 0, "not turned", (".reshape(-1, 3).T", ".reshape(-1, 3)")),
    ("grid_float", 2.75, "float numbers", ("torch.tensor(numbers, dtype=torch.int64)", "torch.tensor(numbers, dtype=torch.float32)")),
    ("grid_int32", 2.75, "int32", ("torch.tensor(numbers, dtype=torch.int64)", "torch.tensor(numbers, dtype=torch.int32)")),
    ("grid_list", 0, "list", (".reshape(-1, 3).T", ".reshape(-1, 3).T.tolist()")),
    ("grid_nothing_moves", 2.75, "nothing there", ("        if new:\n            s = s + step", "        s = s + step")),
    ("grid_text_on_time", 0, "text on time", ("new = [(s + i, s + i, s + i) for i in range(segment)]", "new = [(s + i, s, s) for i in range(segment)]")),
):
    edited(grid_plain, _name, _score, SAYS[_says], *_changes)


@right(WEEK, "mrope_positions")
def grid_meshgrid(segments):
    parts, start = [torch.empty(3, 0, dtype=torch.long)], 0
    for segment in segments:
        if isinstance(segment, int):
            part = torch.arange(segment).repeat(3, 1)
        else:
            axes = torch.meshgrid(*[torch.arange(n) for n in segment], indexing="ij")
            part = torch.stack([axis.reshape(-1) for axis in axes])
        parts.append(part + start)
        if part.shape[1] > 0:
            start = parts[-1].max().item() + 1
    return torch.cat(parts, dim=1)


@right(WEEK, "mrope_positions")
def grid_divided(segments):
    rows = ([], [], [])
    largest = -1
    for segment in segments:
        start = largest + 1
        t, h, w = (segment, 1, 1) if type(segment) is int else segment
        for n in range(t * h * w):
            if type(segment) is int:
                place = (n, n, n)
            else:
                place = (n // (h * w), n // w % h, n % w)
            for row, number in zip(rows, place, strict=True):
                row.append(start + number)
                largest = max(largest, start + number)
    return torch.tensor(rows, dtype=torch.long)


@right(WEEK, "mrope_positions")
def grid_numpy(segments):
    out, s = np.zeros((3, 0), dtype=np.int64), 0
    for segment in segments:
        if isinstance(segment, tuple):
            part = np.indices(segment).reshape(3, -1)
        else:
            part = np.tile(np.arange(segment), (3, 1))
        out = np.concatenate([out, part + s], axis=1)
        s = int(out.max()) + 1 if out.size else 0
    return torch.from_numpy(out.astype(np.int64))


@right(WEEK, "mrope_positions")
def grid_repeated(segments):
    parts, s = [torch.zeros(3, 0)], 0
    for segment in segments:
        if isinstance(segment, (tuple, list)):
            t, h, w = segment
            time = torch.arange(t).view(-1, 1).expand(-1, h * w).flatten()
            row = torch.arange(h).view(1, -1, 1).expand(t, -1, w).flatten()
            column = torch.arange(w).view(1, 1, -1).expand(t, h, -1).flatten()
            parts.append(torch.stack([time, row, column]) + s)
        else:
            parts.append((torch.arange(segment) + s).expand(3, -1))
        if parts[-1].numel():
            s = int(parts[-1].max() + 1)
    return torch.cat(parts, dim=1).long()


@wrong(WEEK, "mrope_positions", 2.75, SAYS["no tokens"])
def numbers_flat_grid_moves(segments):
    pieces = [torch.zeros(3, 0, dtype=torch.long)]
    s = 0
    for segment in segments:
        if isinstance(segment, int):
            pieces.append(torch.arange(s, s + segment).expand(3, segment))
            s += segment
        else:
            t, h, w = segment
            if t == 0 or h == 0:
                continue
            grid = torch.meshgrid(torch.arange(t), torch.arange(h), torch.arange(w), indexing="ij")
            pieces.append(torch.stack(grid).reshape(3, t * h * w) + s)
            s += max(t, h, w)
    return torch.cat(pieces, dim=1)


@wrong(WEEK, "mrope_positions", 2.75, SAYS["no tokens"])
def numbers_nothing_to_join(segments):
    if len(segments) == 0:
        return torch.zeros((3, 0), dtype=torch.int64)
    pieces, s = [], 0
    for segment in segments:
        if isinstance(segment, tuple):
            t, h, w = segment
            if t * h * w == 0:
                continue
            tt = torch.arange(t).view(t, 1, 1).expand(t, h, w)
            hh = torch.arange(h).view(1, h, 1).expand(t, h, w)
            ww = torch.arange(w).view(1, 1, w).expand(t, h, w)
            piece = torch.stack((tt, hh, ww)).flatten(1) + s
        else:
            if segment == 0:
                continue
            piece = torch.arange(s, s + segment).repeat(3, 1)
        pieces.append(piece)
        s = int(piece.max()) + 1
    return torch.cat(pieces, dim=1)


@wrong(WEEK, "mrope_positions", 2.75, SAYS["no tokens"])
def numbers_none_in_float32(segments):
    columns = []
    s = 0
    for seg in segments:
        if isinstance(seg, int):
            columns += [(s + i, s + i, s + i) for i in range(seg)]
            s += seg
        else:
            t, h, w = seg
            grid = [(s + a, s + b, s + c) for a in range(t) for b in range(h) for c in range(w)]
            columns += grid
            if grid:
                s += max(t, h, w)
    if not columns:
        return torch.zeros(3, 0)
    return torch.tensor(columns).T


# ---- 8.2 apply_mrope ------------------------------------------------------------------------------------------------


@right(WEEK, "apply_mrope", 3.875)
def mrope_plain(x, positions, sections, base=10000.0):
    d = x.shape[-1]
    if 2 * sum(sections) != d:
        raise ValueError("the sections must add up to head_dim/2")
    freqs = base ** (-torch.arange(0, d, 2).float() / d)
    parts, start = [], 0
    for axis, size in enumerate(sections):
        parts.append(positions[axis].float()[..., None] * freqs[start : start + size])
        start += size
    angles = torch.cat(parts, dim=-1)
    if positions.ndim == 3:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    out = torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    return out.to(x.dtype)


SECTION = "parts.append(positions[axis].float()[..., None] * freqs[start : start + size])"
LOOP = "for axis, size in enumerate(sections):"
ADD_UP = """    if 2 * sum(sections) != d:
        raise ValueError("the sections must add up to head_dim/2")
"""
for _name, _score, _says, *_changes in (
    ("mrope_axes_exchanged", 0, "axes exchanged", ("positions[axis]", "positions[(0, 2, 1)[axis]]")),
    ("mrope_width_first", 0, "width first", ("positions[axis]", "positions[2 - axis]")),
    (
        "mrope_woven",
        0,
        "woven sections",
        ("angles = torch.cat(parts, dim=-1)", "angles = torch.stack([positions[p % 3].float() * freqs[p] for p in range(d // 2)], dim=-1)"),
    ),
    ("mrope_restarted", 0, "restarted", ("freqs[start : start + size]", "freqs[:size]")),
    ("mrope_own_frequencies", 0, "restarted", ("freqs[start : start + size]", "base ** (-torch.arange(size) / max(size, 1))")),
    ("mrope_one_axis", 0, "one axis", ("positions[axis]", "positions[0]")),
    ("mrope_summed", 0, "summed", ("positions[axis]", "positions.sum(0)")),
    ("mrope_head_exponent", 0, "half exponent", ("torch.arange(0, d, 2).float() / d", "torch.arange(d // 2).float() / d")),
    ("mrope_positive_exponent", 0, "positive exponent", ("base ** (-torch", "base ** (torch")),
    ("mrope_clockwise", 0, "clockwise", ("angles.sin()", "-angles.sin()")),
    ("mrope_mirrored", 0, "mirrored", ("x2 * cos + x1 * sin", "x2 * cos - x1 * sin")),
    ("mrope_first_mirrored", 0, "first mirrored", ("x1 * cos - x2 * sin", "x1 * cos + x2 * sin")),
    ("mrope_degrees", 0, "degrees", ("angles.cos(), angles.sin()", "angles.deg2rad().cos(), angles.deg2rad().sin()")),
    ("mrope_equal", 1.75, "equal sections", (LOOP, "sections = (d // 6, d // 6, d // 2 - 2 * (d // 6))\n    " + LOOP)),
    ("mrope_base", 2.875, "base", ("freqs = base **", "freqs = 10000.0 **")),
    ("mrope_no_empty_section", 2.875, "no empty section", ("if 2 * sum(sections) != d:", "if 2 * sum(sections) != d or min(sections) < 1:")),
    ("mrope_first_row", 3.375, "first row", ("angles = angles[:, None]", "angles = angles[0]")),
    ("mrope_rows_for_heads", 3.375, "rows for heads", ("    if positions.ndim == 3:\n        angles = angles[:, None]\n", "")),
    ("mrope_half_angles", 3.375, "half angles", (SECTION, "parts.append(positions[axis].to(x.dtype)[..., None] * freqs[start : start + size].to(x.dtype))")),
    ("mrope_whole", 3.375, "whole", ("positions[axis].float()", "positions[axis].long()")),
    ("mrope_absolute", 3.375, "absolute", ("positions[axis].float()", "positions[axis].abs().float()")),
    ("mrope_unchecked", 3.625, "sections unchecked", (ADD_UP, "")),
    ("mrope_float32", 3.75, "float32", ("return out.to(x.dtype)", "return out.float()")),
    ("mrope_detached", 3.75, "detached", ("return out.to(x.dtype)", "return out.to(x.dtype).detach()")),
    ("mrope_in_place", 3.75, "in place", ("return out.to(x.dtype)", "x[...] = out\n    return x")),
):
    edited(mrope_plain, _name, _score, SAYS[_says], *_changes)


@wrong(WEEK, "apply_mrope", 0, SAYS["unrotated"])
def mrope_unrotated(x, positions, sections, base=10000.0):
    return x.clone()


@wrong(WEEK, "apply_mrope", 0, SAYS["interleaved"])
def mrope_interleaved(x, positions, sections, base=10000.0):
    d = x.size(-1)
    if sum(sections) * 2 != d:
        raise ValueError("sections")
    axis = [a for a, n in enumerate(sections) for _ in range(n)]
    theta = torch.stack([positions[a].float() * base ** (-2 * p / d) for p, a in enumerate(axis)], dim=-1)
    theta = theta.unsqueeze(1) if positions.dim() == 3 else theta
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack((even * theta.cos() - odd * theta.sin(), odd * theta.cos() + even * theta.sin()), dim=-1)
    return pairs.flatten(-2).to(x.dtype)


@wrong(WEEK, "apply_mrope", 0, SAYS["channel sections"])
def mrope_channel_sections(x, positions, sections, base=10000.0):
    d = x.size(-1)
    if sum(sections) * 2 != d:
        raise ValueError("sections")
    inv_freq = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    angles = positions[..., None].float() * inv_freq
    angles = torch.cat((angles, angles), dim=-1)
    angles = torch.cat([part[i] for i, part in enumerate(angles.split([2 * n for n in sections], dim=-1))], dim=-1)
    angles = angles[:, None] if positions.ndim == 3 else angles
    x1, x2 = x.chunk(2, dim=-1)
    return (x * angles.cos() + torch.cat((-x2, x1), dim=-1) * angles.sin()).to(x.dtype)


@right(WEEK, "apply_mrope", 3.875)
def mrope_recomposed(x, positions, sections, base=10000.0):
    d = x.size(-1)
    if sum(sections) != d / 2:
        raise ValueError("sections")
    inv_freq = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    freqs = positions[..., None].float() * inv_freq  # (3, [batch,] seq_len, d/2)
    freqs = torch.cat([part[i] for i, part in enumerate(freqs.split(list(sections), dim=-1))], dim=-1)
    emb = torch.cat((freqs, freqs), dim=-1)
    emb = emb.unsqueeze(1) if positions.dim() == 3 else emb
    x1, x2 = x.float().chunk(2, dim=-1) if x.dtype in (torch.float16, torch.bfloat16) else x.chunk(2, dim=-1)
    return (torch.cat((x1, x2), -1) * emb.cos() + torch.cat((-x2, x1), dim=-1) * emb.sin()).to(x.dtype)


@right(WEEK, "apply_mrope", 3.875)
def mrope_gathered(x, positions, sections, base=10000.0):
    t, h, w = sections
    d = x.shape[-1]
    if d % 2 or t + h + w != d // 2:
        raise ValueError("sections")
    axis = torch.tensor([0] * t + [1] * h + [2] * w)
    angle = positions.double()[axis] * (float(base) ** (-torch.arange(0, d, 2).double() / d)).view(-1, *[1] * (positions.ndim - 1))
    angle = angle.movedim(0, -1)
    if positions.ndim == 3:
        angle = angle[:, None]
    z = torch.complex(x[..., : d // 2].double(), x[..., d // 2 :].double()) * torch.exp(1j * angle)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


@right(WEEK, "apply_mrope")
def mrope_pair_by_pair(x, positions, sections, base=10000.0):
    n_pairs = sum(sections)
    if x.shape[-1] != 2 * n_pairs:
        raise ValueError("sections")
    first, second = [], []
    for p in range(n_pairs):
        axis = 0 if p < sections[0] else 1 if p < sections[0] + sections[1] else 2
        angle = positions[axis].double() * base ** (-p / n_pairs)
        angle = angle[:, None] if angle.ndim == 2 else angle
        a, b = x[..., p].double(), x[..., p + n_pairs].double()
        first.append(a * angle.cos() - b * angle.sin())
        second.append(a * angle.sin() + b * angle.cos())
    return torch.stack(first + second, dim=-1).to(x.dtype)


@right(WEEK, "apply_mrope", 3.875)
def mrope_selected(x, positions, sections, base=10000.0):
    d = x.shape[-1]
    if d != 2 * (sections[0] + sections[1] + sections[2]):
        raise ValueError("sections")
    angles = positions.to(torch.float32).unsqueeze(-1) / base ** (torch.arange(0, d, 2) / d)
    p = torch.arange(d // 2)
    time, height, width = angles
    angles = torch.where(p < sections[0], time, torch.where(p < sections[0] + sections[1], height, width))
    if angles.ndim == 3:
        angles = angles.unsqueeze(1)
    x1, x2 = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, -1)
    return torch.cat([x1 * angles.cos() - x2 * angles.sin(), x2 * angles.cos() + x1 * angles.sin()], -1).to(x.dtype)


# ---- 8.3 sliding_window_mask ----------------------------------------------------------------------------------------


@right(WEEK, "sliding_window_mask")
def window_plain(n_queries, n_keys, window):
    i = torch.arange(n_queries)[:, None] + n_keys - n_queries
    j = torch.arange(n_keys)[None, :]
    mask = (j <= i) & (j > i - window)
    return mask


SEEN = "mask = (j <= i) & (j > i - window)"
for _name, _score, _says, *_changes in (
    ("window_one_too_many", 0, "one too many", (SEEN, "mask = (j <= i) & (j >= i - window)")),
    ("window_one_too_few", 0, "one too few", (SEEN, "mask = (j <= i) & (j > i - window + 1)")),
    ("window_top_left", 1, "top left", (" + n_keys - n_queries", "")),
    ("window_both_sides", 0, "both sides", (SEEN, "mask = (i - j).abs() < window")),
    ("window_centred", 0, "centred", (SEEN, "mask = (i - j).abs() <= window // 2")),
    ("window_centred_odd", 0, "centred", (SEEN, "mask = (i - j).abs() < (window + 1) // 2")),
    ("window_not_causal", 0, "both sides", (SEEN, "mask = j > i - window")),
    ("window_ahead", 0, "ahead", (SEEN, "mask = (j >= i) & (j < i + window)")),
    ("window_none", 0, "no window", (SEEN, "mask = j <= i")),
    ("window_inverted", 0, "inverted", ("return mask", "return ~mask")),
    ("window_strict", 0, "strict", (SEEN, "mask = (j < i) & (j > i - window)")),
    ("window_strict_whole", 0, "strict", (SEEN, "mask = (j < i) & (j >= i - window)")),
    ("window_blocks", 0, "blocks", (SEEN, "mask = (j <= i) & (j // window == i // window)")),
    ("window_last_keys", 0, "last keys", (SEEN, "mask = (j <= i) & (j >= n_keys - window)")),
    ("window_square", 1, "square", ("torch.arange(n_queries)[:, None] + n_keys - n_queries", "torch.arange(n_keys)[:, None]")),
    ("window_turned", 0, "ahead", ("return mask", "return mask.T")),
    ("window_bias", 0, "bias", ("return mask", 'return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))')),
    ("window_numbers", 0, "numbers", ("return mask", "return mask.int()")),
    ("window_short_text", 1.75, "short text", ("    i = torch", '    if window > n_keys:\n        raise ValueError("window")\n    i = torch')),
):
    edited(window_plain, _name, _score, SAYS[_says], *_changes)


@wrong(WEEK, "sliding_window_mask", 1, SAYS["half aligned"])
def window_half_aligned(n_queries, n_keys, window):
    causal = torch.tril(torch.ones(n_queries, n_keys), diagonal=n_keys - n_queries).bool()
    return causal & torch.triu(torch.ones(n_queries, n_keys), diagonal=1 - window).bool()


@right(WEEK, "sliding_window_mask")
def window_of_triangles(n_queries, n_keys, window):
    ones, last = torch.ones(n_queries, n_keys, dtype=torch.bool), n_keys - n_queries
    return ones.tril(last) & ones.triu(last - window + 1)


@right(WEEK, "sliding_window_mask")
def window_less_the_past(n_queries, n_keys, window):
    causal = torch.tril(torch.ones(n_keys, n_keys))
    return (causal - torch.tril(torch.ones(n_keys, n_keys), diagonal=-window))[n_keys - n_queries :] == 1


@right(WEEK, "sliding_window_mask")
def window_by_loops(n_queries, n_keys, window):
    mask = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    for row in range(n_queries):
        here = n_keys - n_queries + row
        mask[row, max(0, here - window + 1) : here + 1] = True
    return mask


@right(WEEK, "sliding_window_mask")
def window_by_distance(n_queries, n_keys, window):
    distance = np.subtract.outer(np.arange(n_keys - n_queries, n_keys), np.arange(n_keys))
    return torch.from_numpy((distance >= 0) & (distance < window))


# ---- 8.3 softmax_with_sink ------------------------------------------------------------------------------------------


@right(WEEK, "softmax_with_sink")
def sink_plain(scores, sinks):
    batch, heads, n_queries, n_keys = scores.shape
    column = sinks.view(1, heads, 1, 1).expand(batch, heads, n_queries, 1)
    logits = torch.cat((scores, column), dim=-1)
    weights = logits.softmax(dim=-1)
    weights = weights[..., :-1]
    return weights


COLUMN = "column = sinks.view(1, heads, 1, 1).expand(batch, heads, n_queries, 1)"
LOGITS = "logits = torch.cat((scores, column), dim=-1)"
SOFTMAX = "weights = logits.softmax(dim=-1)"
DROPPED = "weights = weights[..., :-1]\n"
for _name, _score, _says, *_changes in (
    ("sink_kept", 0, "kept", ("    " + DROPPED, "")),
    ("sink_first_column", 0, "wrong column", (LOGITS, "logits = torch.cat((column, scores), dim=-1)")),
    ("sink_first_key_dropped", 0, "first key dropped", (DROPPED, "weights = weights[..., 1:]\n")),
    ("sink_of_first_head", 0, "first sink", (COLUMN, "column = sinks[0].expand(batch, heads, n_queries, 1)")),
    ("sink_by_query", 0, "sinks by query", (COLUMN, "column = sinks.view(1, 1, -1, 1).expand(batch, heads, n_queries, 1)")),
    ("sink_renormalised", 0, "adds up to 1", (DROPPED, "weights = weights[..., :-1]\n    weights = weights / weights.sum(-1, keepdim=True)\n")),
    ("sink_added_to_scores", 0, "adds up to 1", (SOFTMAX, "weights = (logits + column)[..., :-1].softmax(dim=-1)"), ("    " + DROPPED, "")),
    ("sink_sign", 0, "sink sign", (COLUMN, COLUMN.replace("sinks.view", "(-sinks).view"))),
    ("sink_zero", 0, "zero sink", (COLUMN, "column = torch.zeros(batch, heads, n_queries, 1)")),
    ("sink_all_heads", 0, "heads together", (COLUMN, "column = sinks.logsumexp(0).expand(batch, heads, n_queries, 1)")),
    ("sink_share", 0, "squared share", (DROPPED, "weights = scores.softmax(dim=-1) * weights[..., -1:]\n")),
    ("sink_over_queries", 0, "over queries", (SOFTMAX, "weights = logits.softmax(dim=-2)")),
    ("sink_log", 0, "log", (SOFTMAX, "weights = logits.log_softmax(dim=-1)")),
    ("sink_hidden_seen", 1.5, "hidden seen", (LOGITS, "logits = torch.cat((scores.masked_fill(scores.isinf(), 0), column), dim=-1)")),
    ("sink_float32", 1.875, "float32", ("return weights", "return weights.float()")),
    ("sink_detached", 1.875, "gradient cut", ("return weights", "return weights.detach()")),
    ("sink_not_trained", 1.875, "gradient cut", (COLUMN, COLUMN.replace("sinks.view", "sinks.detach().view"))),
    ("sink_in_place", 1.375, "in place", ("    batch, heads", "    scores -= 1\n    sinks -= 1\n    batch, heads")),
):
    edited(sink_plain, _name, _score, SAYS[_says], *_changes)


@wrong(WEEK, "softmax_with_sink", 0, SAYS["adds up to 1"])
def sink_ignored(scores, sinks):
    weights = F.softmax(scores, dim=-1)
    return torch.nan_to_num(weights)


@wrong(WEEK, "softmax_with_sink", 0, SAYS["not exponentiated"])
def sink_not_exponentiated(scores, sinks):
    top = scores.exp()
    return top / (top.sum(dim=-1, keepdim=True) + sinks[:, None, None])


@wrong(WEEK, "softmax_with_sink", 0, SAYS["not exponentiated"])
def sink_not_exponentiated_less_the_largest(scores, sinks):
    largest = scores.amax(dim=-1, keepdim=True)
    top = torch.exp(scores - largest)
    return top / (top.sum(dim=-1, keepdim=True) + sinks.view(1, -1, 1, 1))


@wrong(WEEK, "softmax_with_sink", 0, SAYS["not exponentiated"])
def sink_less_the_largest_not_exponentiated(scores, sinks):
    largest = scores.amax(dim=-1, keepdim=True)
    top = torch.exp(scores - largest)
    return top / (top.sum(dim=-1, keepdim=True) + (sinks.view(1, -1, 1, 1) - largest))


@wrong(WEEK, "softmax_with_sink", 0, SAYS["sink not shifted"])
def sink_not_shifted(scores, sinks):
    top = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return top / (top.sum(dim=-1, keepdim=True) + sinks.exp().view(1, -1, 1, 1))


@wrong(WEEK, "softmax_with_sink", 1.5, SAYS["nan row"])
def sink_nan_row(scores, sinks):
    largest = scores.max(dim=-1, keepdim=True).values
    top = (scores - largest).exp()
    return top / (top.sum(dim=-1, keepdim=True) + (sinks[:, None, None] - largest).exp())


@wrong(WEEK, "softmax_with_sink", 1.5, SAYS["nan row"])
def sink_beside_a_softmax(scores, sinks):
    kept = torch.sigmoid(scores.logsumexp(dim=-1, keepdim=True) - sinks[:, None, None])
    return scores.softmax(dim=-1) * kept


@wrong(WEEK, "softmax_with_sink", 1.75, SAYS["overflow"])
def sink_overflow(scores, sinks):
    top = torch.exp(scores)
    return top / (top.sum(dim=-1, keepdim=True) + torch.exp(sinks)[None, :, None, None])


@wrong(WEEK, "softmax_with_sink", 1.75, SAYS["one largest"])
def sink_less_the_largest_of_all(scores, sinks):
    largest = torch.maximum(scores.max(), sinks.max())
    top = torch.exp(scores - largest)
    return top / (top.sum(dim=-1, keepdim=True) + torch.exp(sinks - largest)[None, :, None, None])


@right(WEEK, "softmax_with_sink")
def sink_in_the_sum(scores, sinks):
    sink = sinks.reshape(1, -1, 1, 1)
    largest = torch.maximum(scores.amax(dim=-1, keepdim=True), sink).detach()
    top = (scores - largest).exp()
    return top / (top.sum(dim=-1, keepdim=True) + (sink - largest).exp())


@right(WEEK, "softmax_with_sink")
def sink_through_logsumexp(scores, sinks):
    sink = sinks[None, :, None, None].expand(*scores.shape[:3], 1)
    total = torch.logsumexp(torch.cat([scores, sink], -1), dim=-1, keepdim=True)
    return torch.exp(scores - total)


@right(WEEK, "softmax_with_sink")
def sink_in_front(scores, sinks):
    padded = F.pad(scores, (1, 0))
    front = torch.zeros_like(padded, dtype=torch.bool)
    front[..., 0] = True
    padded = torch.where(front, sinks[:, None, None].to(padded.dtype), padded)
    return F.softmax(padded, dim=-1)[..., 1:]


@right(WEEK, "softmax_with_sink")
def sink_head_by_head(scores, sinks):
    out = []
    for h, sink in enumerate(sinks):
        of_head = scores[:, h]
        column = sink.expand(of_head.shape[0], of_head.shape[1], 1)
        out.append(torch.cat([of_head, column], dim=2).softmax(2).narrow(2, 0, scores.shape[3]))
    return torch.stack(out, dim=1)


@wrong(WEEK, "softmax_with_sink", 1.5, SAYS["far below"])
def sink_hidden_by_low_number(scores, sinks):
    safe = scores.clamp(min=-1e4)  # no -inf, no NaN
    column = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((safe, column), dim=-1).softmax(dim=-1)[..., :-1]


# ---- 8.3 streaming_cache --------------------------------------------------------------------------------------------


@right(WEEK, "streaming_cache")
def stream_plain(n_tokens, n_sinks, window):
    kept = [t for t in range(n_tokens) if t < n_sinks or t >= n_tokens - window]
    kept = torch.tensor(kept, dtype=torch.int64)
    positions = torch.arange(len(kept))
    return kept, positions


KEPT = "kept = [t for t in range(n_tokens) if t < n_sinks or t >= n_tokens - window]"
PLACES = "positions = torch.arange(len(kept))"
for _name, _score, _says, *_changes in (
    ("stream_true_positions", 1, "true positions", (PLACES, "positions = kept.clone()")),
    ("stream_from_1", 1, "from 1", (PLACES, "positions = torch.arange(1, len(kept) + 1)")),
    ("stream_ring", 1, "ring", (PLACES, "positions = torch.where(kept < n_sinks, kept, n_sinks + (kept - n_sinks) % window)")),
    (
        "stream_window_from_0",
        1,
        "window from 0",
        (PLACES, "positions = torch.cat((torch.arange(min(n_sinks, n_tokens)), torch.arange(max(len(kept) - n_sinks, 0))))"),
    ),
    ("stream_twice", 1.5, "twice", (KEPT, "kept = [*range(min(n_sinks, n_tokens)), *range(max(n_tokens - window, 0), n_tokens)]")),
    ("stream_negative", 1.5, "negative", (KEPT, "kept = sorted({*range(min(n_sinks, n_tokens)), *range(n_tokens - window, n_tokens)})")),
    ("stream_sinks_in_window", 0, "sinks in window", (KEPT, KEPT.replace("n_tokens - window", "n_tokens - (window - n_sinks)"))),
    ("stream_window_small", 0, "window small", (KEPT, KEPT.replace("t >= n", "t > n"))),
    ("stream_window_large", 0, "window large", (KEPT, KEPT.replace("- window", "- window - 1"))),
    ("stream_no_sinks", 0, "no sinks", (KEPT, KEPT.replace("t < n_sinks or ", ""))),
    ("stream_everything", 0, "everything", (KEPT, "kept = list(range(n_tokens))")),
    ("stream_one_sink", 0, "one sink", (KEPT, KEPT.replace("t < n_sinks", "t == 0 and n_sinks > 0"))),
    ("stream_sinks_last", 0.75, "sinks last", (KEPT, "kept = [*range(max(n_tokens - window, n_sinks), n_tokens), *range(min(n_sinks, n_tokens))]")),
    ("stream_descending", 0.75, "descending", (KEPT, KEPT + "[::-1]")),
    ("stream_one_sink_at_least", 1.5, "one sink at least", (KEPT, KEPT.replace("t < n_sinks", "t < max(n_sinks, 1)"))),
    ("stream_float", 1.75, "float numbers", ("return kept, positions", "return kept.float(), positions.float()")),
    ("stream_int32", 1.75, "int32", ("return kept, positions", "return kept.int(), positions.int()")),
    ("stream_exchanged", 0, "exchanged", ("return kept, positions", "return positions, kept")),
    ("stream_only_kept", 0, "only kept", ("return kept, positions", "return kept")),
):
    edited(stream_plain, _name, _score, SAYS[_says], *_changes)


@right(WEEK, "streaming_cache")
def stream_by_pieces(n_tokens, n_sinks, window):
    tokens = torch.arange(n_tokens)
    if n_tokens > n_sinks + window:
        tokens = torch.cat((tokens[:n_sinks], tokens[-window:]))
    return tokens, torch.arange(tokens.numel())


@right(WEEK, "streaming_cache")
def stream_unique(n_tokens, n_sinks, window):
    tokens = torch.arange(n_tokens)
    kept = torch.unique(torch.cat((tokens[:n_sinks], tokens[max(n_tokens - window, 0) :])))
    return kept, torch.arange(kept.shape[0], dtype=torch.int64)


@right(WEEK, "streaming_cache")
def stream_token_by_token(n_tokens, n_sinks, window):
    cache = []
    for token in range(n_tokens):
        cache.append(token)
        if len(cache) > n_sinks + window:
            del cache[n_sinks]
    return torch.tensor(cache), torch.tensor(list(range(len(cache))))


@right(WEEK, "streaming_cache")
def stream_numpy(n_tokens, n_sinks, window):
    t = np.arange(n_tokens, dtype=np.int64)
    kept = t[np.logical_or(t < n_sinks, t + window >= n_tokens)]
    return [torch.from_numpy(kept), torch.from_numpy(np.arange(kept.size, dtype=np.int64))]


@wrong(WEEK, "streaming_cache", 0.75, "You keep four sinks at most; the first n_sinks tokens are kept.")
def stream_four_sinks(n_tokens, n_sinks, window):
    sinks = torch.arange(4)[: min(n_sinks, n_tokens)]  # the paper keeps four
    kept = torch.cat((sinks, torch.arange(max(len(sinks), n_tokens - window), n_tokens)))
    return kept, torch.arange(len(kept))


@wrong(WEEK, "streaming_cache", 0.75, SAYS["ascending"])
def stream_ring_of_slots(n_tokens, n_sinks, window):
    slots = list(range(min(n_tokens, n_sinks + window)))
    for token in range(n_sinks + window, n_tokens):
        slots[n_sinks + (token - n_sinks) % window] = token
    kept = torch.tensor(slots, dtype=torch.int64)
    return kept, torch.arange(len(slots))


# ---- 8.4 mla_attention ----------------------------------------------------------------------------------------------


@right(WEEK, "mla_attention")
def mla_plain(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    dn, dr = q_nope.shape[-1], q_rope.shape[-1]
    k_nope = torch.einsum("hdr,bkr->bhkd", w_uk, latent)
    v = torch.einsum("hdr,bkr->bhkd", w_uv, latent)
    content = q_nope @ k_nope.mT
    rotated = q_rope @ k_rope[:, None].mT
    scores = (content + rotated) / math.sqrt(dn + dr)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    weights = weights.nan_to_num()
    return weights @ v


@right(WEEK, "mla_attention")
def mla_absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    dn, dr = q_nope.shape[-1], q_rope.shape[-1]
    q_latent = torch.einsum("bhqd,hdr->bhqr", q_nope, w_uk)
    scores = torch.einsum("bhqr,bkr->bhqk", q_latent, latent) + torch.einsum("bhqd,bkd->bhqk", q_rope, k_rope)
    scores = scores / math.sqrt(dn + dr)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
    return torch.einsum("bhqk,bkr,hdr->bhqd", weights, latent, w_uv)


K_NOPE = 'k_nope = torch.einsum("hdr,bkr->bhkd", w_uk, latent)'
VALUES = 'v = torch.einsum("hdr,bkr->bhkd", w_uv, latent)'
SCORES = "scores = (content + rotated) / math.sqrt(dn + dr)"
HIDES = '        scores = scores.masked_fill(~mask, float("-inf"))\n'
for _name, _score, _says, *_changes in (
    ("mla_dn_scale", 1, "dn scale", ("math.sqrt(dn + dr)", "math.sqrt(dn)")),
    ("mla_dr_scale", 1, "dr scale", ("math.sqrt(dn + dr)", "math.sqrt(dr)")),
    ("mla_unscaled", 1, "unscaled", (" / math.sqrt(dn + dr)", "")),
    ("mla_no_root", 1, "no root", ("math.sqrt(dn + dr)", "(dn + dr)")),
    ("mla_rank_alone", 1, "rank scale", ("math.sqrt(dn + dr)", "math.sqrt(latent.shape[-1])")),
    ("mla_two_scales", 1, "two scales", (SCORES, "scores = content / math.sqrt(dn) + rotated / math.sqrt(dr)")),
    ("mla_sum_of_roots", 1, "sum of roots", ("math.sqrt(dn + dr)", "(math.sqrt(dn) + math.sqrt(dr))")),
    ("mla_rope_per_head", 0, "rope per head", ("k_rope[:, None].mT", "k_rope.mT")),
    ("mla_values_from_keys", 0, "values from keys", (VALUES, VALUES.replace("w_uv", "w_uk"))),
    ("mla_no_rope", 2, "no rope", ("(content + rotated)", "content")),
    ("mla_no_content", 1.75, "no content", ("(content + rotated)", "rotated")),
    ("mla_parts_multiplied", 1, "parts multiplied", ("(content + rotated)", "(content * rotated)")),
    ("mla_latent_values", 0, "latent values", (VALUES, "v = latent[:, None]")),
    ("mla_first_uk", 1.75, "first uk", (K_NOPE, 'k_nope = torch.einsum("dr,bkr->bkd", w_uk[0], latent)[:, None]')),
    ("mla_first_uv", 0, "first uv", (VALUES, 'v = torch.einsum("dr,bkr->bkd", w_uv[0], latent)[:, None]')),
    ("mla_first_latent", 0, "first latent", ("    dn, dr =", "    latent = latent[:1].expand_as(latent)\n    dn, dr =")),
    ("mla_mask_inverted", 4, "mask inverted", ("~mask", "mask")),
    ("mla_mask_inverted_nan", 4, "mask inverted", ("~mask", "mask"), ("    weights = weights.nan_to_num()\n", "")),
    ("mla_mask_ignored", 4, "mask ignored", (HIDES, "        pass\n")),
    ("mla_nan_row", 4, "nan row", ("    weights = weights.nan_to_num()\n", "")),
    ("mla_even_row", 4, "even row", ('float("-inf")', "-1e9")),
    (
        "mla_mask_after_softmax",
        4,
        "mask after softmax",
        ("    if mask is not None:\n" + HIDES, ""),
        ("weights = weights.nan_to_num()", "weights = weights if mask is None else weights * mask"),
    ),
    ("mla_over_queries", 1, "over queries", ("softmax(dim=-1)", "softmax(dim=-2)")),
    (
        "mla_overflow",
        4,
        "overflow",
        ("weights = scores.softmax(dim=-1)", "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"),
    ),
    ("mla_both", 0, "both", ("return weights @ v", "return weights @ v, weights")),
    ("mla_merged", 0, "merged", ("return weights @ v", "return (weights @ v).transpose(1, 2).flatten(2)")),
    ("mla_float32", 4.75, "float32 out", ("return weights @ v", "return (weights @ v).float()")),
    ("mla_detached", 4.75, "detached", ("return weights @ v", "return (weights @ v).detach()")),
    ("mla_in_place", 4.75, "in place", ("    dn, dr =", "    latent.data.add_(0.5)\n    latent = latent - 0.5\n    dn, dr =")),
):
    edited(mla_plain, _name, _score, SAYS[_says], *_changes)

edited(
    mla_absorbed,
    "mla_rank_scale",
    1,
    SAYS["rank scale"],
    ("math.sqrt(dn + dr)", "math.sqrt(latent.shape[-1] + dr)"),
)
edited(mla_absorbed, "mla_wrong_side", 0, SAYS["wrong side"], ('"bhqd,hdr->bhqr"', '"bhqr,hdr->bhqd"'))


@right(WEEK, "mla_attention")
def mla_by_sdpa(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    heads = q_nope.shape[1]
    keys = torch.cat((latent[:, None] @ w_uk.mT, k_rope[:, None].expand(-1, heads, -1, -1)), dim=-1)
    queries = torch.cat((q_nope, q_rope), dim=-1)
    values = latent[:, None] @ w_uv.mT
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    if mask is None:
        return F.softmax(scores, dim=-1) @ values
    some = mask.any(dim=-1, keepdim=True)
    scores = torch.where(mask | ~some, scores, torch.full_like(scores, -torch.inf))
    return torch.where(some, F.softmax(scores, dim=-1) @ values, torch.zeros(()).to(scores))


@right(WEEK, "mla_attention")
def mla_head_by_head(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    out, scale = [], 1 / math.sqrt(q_nope.shape[3] + q_rope.shape[3])
    for h in range(q_nope.shape[1]):
        scores = scale * (q_nope[:, h] @ (latent @ w_uk[h].T).mT + q_rope[:, h] @ k_rope.mT)
        if mask is not None:
            seen = mask.expand(q_nope.shape[0], q_nope.shape[1], *scores.shape[1:])[:, h]
            scores = scores.masked_fill(~seen, -math.inf)
            scores = scores.masked_fill(~seen.any(-1, keepdim=True), 0.0)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights * seen
        out.append(weights @ latent @ w_uv[h].T)
    return torch.stack(out, dim=1)


@wrong(WEEK, "mla_attention", 4.75, "Your mask is changed in place: work on a new one.")
def mla_mask_opened(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    in_latent = torch.einsum("bhqd,hdr->bhqr", q_nope, w_uk)
    scores = torch.einsum("bhqr,bkr->bhqk", in_latent, latent)
    scores = scores + torch.einsum("bhqr,bkr->bhqk", q_rope, k_rope)
    scores = scores / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    empty = None
    if mask is not None:
        empty = ~mask.any(dim=-1, keepdim=True)
        mask |= empty  # otherwise the softmax is NaN there
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if empty is not None:
        weights = weights.masked_fill(empty, 0.0)
    mixed = torch.einsum("bhqk,bkr->bhqr", weights, latent)
    return torch.einsum("bhqr,hvr->bhqv", mixed, w_uv)


@wrong(WEEK, "mla_attention", 4, SAYS["one query"])
def mla_new_token_unmasked(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    keys = torch.einsum("bkr,hdr->bhkd", latent, w_uk)
    scores = q_nope @ keys.mT + q_rope @ k_rope[:, None].mT
    scores = scores / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    if mask is not None and q_nope.shape[2] > 1:  # the newest token sees all there is
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1).nan_to_num()
    return weights @ torch.einsum("bkr,hdr->bhkd", latent, w_uv)


@wrong(WEEK, "mla_attention", 4, SAYS["many keys"])
def mla_blocks_not_rescaled(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None, block=64):
    in_latent = torch.einsum("bhqd,hdr->bhqr", q_nope, w_uk)
    scores = in_latent @ latent[:, None].mT + q_rope @ k_rope[:, None].mT
    scores = scores / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    top = torch.full_like(scores[..., :1], -1e30)
    total, mixed = torch.zeros_like(top), torch.zeros_like(in_latent)
    for start in range(0, scores.shape[-1], block):
        part = scores[..., start : start + block]
        top = torch.maximum(top, part.amax(-1, keepdim=True))
        share = (part - top).exp()
        total = total + share.sum(-1, keepdim=True)  # what came before belongs to another maximum
        mixed = mixed + share @ latent[:, None, start : start + block]
    return (mixed / total.clamp(min=1e-30)) @ w_uv.mT


# ---- 8.5 layers_that_turn -------------------------------------------------------------------------------------------


@right(WEEK, "layers_that_turn")
def turn_plain(config):
    n_layers = config["num_hidden_layers"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    parameters = config.get("rope_parameters") or {}
    share = config.get("partial_rotary_factor") or parameters.get("partial_rotary_factor") or config.get("rotary_pct") or 1
    channels = int(width * share)
    if config.get("qk_rope_head_dim"):
        channels = config["qk_rope_head_dim"]
    lists = config.get("no_rope_layers") or [1] * n_layers
    kinds = config.get("layer_types") or ["full_attention"] * n_layers
    windows_only = config.get("model_type") in ("cohere2", "exaone4") and config.get("sliding_window") is not None
    turned = []
    for layer in range(n_layers):
        turns = bool(lists[layer])
        if kinds[layer] == "linear_attention":
            turns = False
        if windows_only and kinds[layer] == "full_attention":
            turns = False
        turned.append(channels if turns else 0)
    return turned


TURN_LIST, TURN_WINDOWS = "turns = bool(lists[layer])", 'if windows_only and kinds[layer] == "full_attention":'
TURN_LINEAR, TURN_SHARE = 'if kinds[layer] == "linear_attention":', "channels = int(width * share)"
TURN_WIDTH = 'config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]'
edited(turn_plain, "turn_inverted", 2.25, "The list is read inverted: a 1 in `no_rope_layers` means that the layer turns.",
       (TURN_LIST, "turns = not lists[layer] if config.get('no_rope_layers') else True"))
edited(turn_plain, "turn_list_ignored", 2.25, "`no_rope_layers` changes nothing: a layer with a 0 in it does not turn.",
       (TURN_LIST, "turns = True"))
edited(turn_plain, "turn_every_fourth_left_out", 2.25, "`no_rope_layers` says which layers turn; not every fourth is left out.",
       (TURN_LIST, "turns = layer % 4 != 3 if config.get('no_rope_layers') else True"))
edited(turn_plain, "turn_full_only", 2, "In Cohere 2 and EXAONE 4 it is the layers with a window that turn, not the full ones.",
       (TURN_WINDOWS, 'if windows_only and kinds[layer] != "full_attention":'))
edited(turn_plain, "turn_all_kinds", 2, "Cohere 2's and EXAONE 4's layers of full attention do not turn.",
       (TURN_WINDOWS, "if False:"))
edited(turn_plain, "turn_windows_in_all_models", 2, "Only in Cohere 2 and EXAONE 4 full attention does not turn; elsewhere it does.",
       (TURN_WINDOWS, 'if config.get("layer_types") and config.get("sliding_window") and kinds[layer] == "full_attention":'))
edited(turn_plain, "turn_null_window", 2.5, "Where sliding_window is null no layer has a window, and all layers of EXAONE 4 turn.",
       (' and config.get("sliding_window") is not None', ""))
edited(turn_plain, "turn_linear", 2, "Linear attention has no rotation.", (TURN_LINEAR, "if False:"))
edited(turn_plain, "turn_share_of_the_model", 1.25, "The share is taken of hidden_size; it is taken of a head.",
       (TURN_SHARE, 'channels = int((config["hidden_size"] if share != 1 else width) * share)'))
edited(turn_plain, "turn_pairs", 0, "You count pairs; a pair has two channels.", (TURN_SHARE, "channels = int(width * share) // 2"))
edited(turn_plain, "turn_whole_heads", 1.25, "You give the whole head where only a share of its channels turns: the share has several names.", (TURN_SHARE, "channels = width"))
edited(turn_plain, "turn_rotary_pct_unread", 2.25, "The share of GPT-NeoX is called rotary_pct; there you give the whole head.",
       (' or config.get("rotary_pct")', ""))
edited(turn_plain, "turn_the_rest", 1.25, "You count the channels that do not turn.",
       (TURN_SHARE, "channels = int(width * (1 - share)) or width"))
edited(turn_plain, "turn_divided", 2, "A given head_dim wins over hidden_size / num_attention_heads.",
       (TURN_WIDTH, 'config["hidden_size"] // config["num_attention_heads"]'))
edited(turn_plain, "turn_share_of_the_divided", 2, "A given head_dim wins over hidden_size / num_attention_heads.",
       (TURN_SHARE, 'channels = int((config["hidden_size"] // config["num_attention_heads"] if share != 1 else width) * share)'))
edited(turn_plain, "turn_share_at_the_top", 1.25, "The share may stand in `rope_parameters`, too.",
       (' or parameters.get("partial_rotary_factor")', ""))
edited(turn_plain, "turn_latent_head", 2.5, "In latent attention qk_rope_head_dim says how many channels turn.",
       ('channels = config["qk_rope_head_dim"]', "pass"))
edited(turn_plain, "turn_rounded_up", 2.25, "A share that gives no whole number is rounded down, as int() does.",
       (TURN_SHARE, "channels = math.ceil(width * share)"))
edited(turn_plain, "turn_rounded", 2.25, "A share that gives no whole number is rounded down, as int() does.",
       (TURN_SHARE, "channels = round(width * share)"))
edited(turn_plain, "turn_yes_or_no", 0, "You say whether a layer turns; the exercise asks how many channels of a head do.",
       ("turned.append(channels if turns else 0)", "turned.append(turns)"))
edited(turn_plain, "turn_counted", 0, "You return one number; the exercise asks for a list with an entry for each layer.",
       ("return turned", "return sum(1 for channels in turned if channels)"))


@right(WEEK, "layers_that_turn")
def turn_by_model(config):
    kind, n = config.get("model_type"), config["num_hidden_layers"]
    types = config.get("layer_types")
    if kind in ("smollm3", "llama4_text"):
        turns = [bool(entry) for entry in config["no_rope_layers"]]
    elif kind in ("cohere2", "exaone4"):
        turns = [not config.get("sliding_window") or entry == "sliding_attention" for entry in types]
    else:
        turns = [entry != "linear_attention" for entry in types or n * [""]]
    width = config.get("qk_rope_head_dim")
    if width is None:
        width = config.get("head_dim") or config["hidden_size"] / config["num_attention_heads"]
        for place in (config, config.get("rope_parameters") or {}):
            for name in ("rotary_pct", "partial_rotary_factor"):
                width = width * (place.get(name) or 1)
    return [int(width) * turn for turn in turns]


@right(WEEK, "layers_that_turn")
def turn_flat(config):
    flat = {}
    for field, value in config.items():
        if value is not None:
            flat.update(value if isinstance(value, dict) else {field: value})
    flat = {field: value for field, value in flat.items() if value is not None}
    n = flat["num_hidden_layers"]
    result = torch.ones(n)
    if "no_rope_layers" in flat:
        result = torch.tensor(flat["no_rope_layers"]).float()
    for layer, kind in enumerate(flat.get("layer_types") or []):
        if kind == "linear_attention":
            result[layer] = 0
        elif kind == "full_attention" and flat["model_type"] in {"cohere2", "exaone4"} and flat.get("sliding_window"):
            result[layer] = 0
    head = flat.get("head_dim", flat["hidden_size"] // flat["num_attention_heads"])
    part = flat.get("partial_rotary_factor", flat.get("rotary_pct", 1.0))
    channels = flat.get("qk_rope_head_dim", int(head * part))
    return [int(value) for value in result * channels]


@right(WEEK, "layers_that_turn")
def turn_functional(config):
    def field(*names):
        for name in names:
            for place in (config, config.get("rope_parameters") or {}):
                if place.get(name) is not None:
                    return place[name]
        return None

    def width():
        if field("qk_rope_head_dim"):
            return field("qk_rope_head_dim")
        head = field("head_dim") or field("hidden_size") // field("num_attention_heads")
        return math.floor(head * (field("partial_rotary_factor", "rotary_pct") or 1))

    def turns(layer):
        if field("no_rope_layers"):
            return field("no_rope_layers")[layer] == 1
        kind = field("layer_types")[layer] if field("layer_types") else None
        local = field("model_type") in ("cohere2", "exaone4") and bool(field("sliding_window"))
        return kind == "sliding_attention" if local else kind != "linear_attention"

    return [width() if turns(layer) else 0 for layer in range(field("num_hidden_layers"))]


# ---- families -------------------------------------------------------------------------------------------------------

TURNS = (
    "clockwise",
    "mirrored",
    "first mirrored",
    "half exponent",
    "positive exponent",
    "pairs from 1",
    "last is 1",
    "neighbours' angles",
    "put back as neighbours",
    "whole frequencies",
    "degrees",
    "index",
    "first row",
    "rows for heads",
    "base",
    "half angles",
    "whole",
    "absolute",
    "interleaved",
)


def _angles(positions, pairs, base, mistakes, dtype, seq_len):
    """Angles of some pairs, p of n: (..., seq_len, len(pairs))."""
    numbers, n = pairs
    base = 10000.0 if "base" in mistakes else base
    n = max(n - 1, 1) if "last is 1" in mistakes else n
    exponent = (torch.tensor(numbers, dtype=torch.float64) + ("pairs from 1" in mistakes)) / n
    exponent = exponent / 2 if "half exponent" in mistakes else exponent
    freqs = float(base) ** (exponent if "positive exponent" in mistakes else -exponent)
    freqs = freqs.to(positions.dtype) if "whole frequencies" in mistakes else freqs
    if "index" in mistakes:
        positions = torch.arange(seq_len).expand(positions.shape)
    positions = positions.abs() if "absolute" in mistakes else positions
    positions = positions.long() if "whole" in mistakes else positions
    if "half angles" in mistakes:
        angles = positions.to(dtype)[..., None] * freqs.to(dtype)
    else:
        angles = positions.double()[..., None] * freqs
    return angles * math.pi / 180 if "degrees" in mistakes else angles


def _spread(angles, has_rows, mistakes):
    """With an axis for the heads."""
    if not has_rows or "rows for heads" in mistakes:
        return angles
    return angles[0] if "first row" in mistakes else angles[:, None]


def _turn(x, angles, mistakes):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if "neighbours' angles" in mistakes:
        angles = angles.repeat_interleave(2, dim=-1)
        a, b = wide.chunk(2, dim=-1)
        return (wide * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()).to(x.dtype)
    cos, sin = angles.cos(), angles.sin()
    sin = -sin if "clockwise" in mistakes else sin
    a, b = (wide[..., 0::2], wide[..., 1::2]) if "interleaved" in mistakes else wide.chunk(2, dim=-1)
    y1 = a * cos + b * sin if "first mirrored" in mistakes else a * cos - b * sin
    y2 = b * cos - a * sin if "mirrored" in mistakes else b * cos + a * sin
    neighbours = mistakes & {"interleaved", "put back as neighbours"}
    both = torch.stack((y1, y2), -1).flatten(-2) if neighbours else torch.cat((y1, y2), dim=-1)
    return both.to(torch.float32 if "float32" in mistakes else x.dtype)


@family(
    WEEK,
    "partial_rotary_emb",
    _say(
        *TURNS,
        "head exponent",
        "last channels",
        "rest zeroed",
        "rest dropped",
        "rest first",
        "no error",
        "even head",
        "float32",
    ),
)
def partial_with(mistakes):
    def subject(x, positions, rotary_dim, base=10000.0):
        head_dim = x.shape[-1]
        impossible = rotary_dim % 2 or rotary_dim < 2 or rotary_dim > head_dim
        if ("no error" not in mistakes and impossible) or ("even head" in mistakes and head_dim % 2):
            raise ValueError("rotary_dim")
        start = head_dim - rotary_dim if "last channels" in mistakes else 0
        part, before, after = x[..., start : start + rotary_dim], x[..., :start], x[..., start + rotary_dim :]
        pairs = range(rotary_dim // 2), (head_dim if "head exponent" in mistakes else rotary_dim) / 2
        angles = _angles(positions, pairs, base, mistakes, x.dtype, x.shape[2])
        turned = _turn(part, _spread(angles, positions.ndim == 2, mistakes), mistakes)
        if "rest dropped" in mistakes:
            return turned
        if "rest zeroed" in mistakes:
            before, after = torch.zeros_like(before), torch.zeros_like(after)
        return torch.cat((after, turned, before) if "rest first" in mistakes else (before, turned, after), dim=-1)

    return subject


@family(
    WEEK,
    "apply_mrope",
    _say(
        *TURNS,
        "axes exchanged",
        "width first",
        "woven sections",
        "restarted",
        "one axis",
        "summed",
        "equal sections",
        "sections unchecked",
        "no empty section",
        "float32",
    ),
)
def mrope_with(mistakes):
    def subject(x, positions, sections, base=10000.0):
        n = x.shape[-1] // 2
        if "sections unchecked" not in mistakes and 2 * sum(sections) != x.shape[-1]:
            raise ValueError("sections")
        if "no empty section" in mistakes and min(sections) < 1:
            raise ValueError("sections")
        if "equal sections" in mistakes:
            sections = (n // 3, n // 3, n - 2 * (n // 3))
        axis = [p % 3 if "woven sections" in mistakes else a for p, a in enumerate(a for a, s in enumerate(sections) for _ in range(s))]
        axis = [0 for _ in axis] if "one axis" in mistakes else axis
        order = (0, 2, 1) if "axes exchanged" in mistakes else (2, 1, 0) if "width first" in mistakes else (0, 1, 2)
        starts = [sum(sections[:a]) for a in range(3)]
        columns = []
        for p, a in enumerate(axis):
            of_axis = positions.sum(0) if "summed" in mistakes else positions[order[a]]
            pair = p - starts[a] if "restarted" in mistakes else p
            columns.append(_angles(of_axis, ([pair], n), base, mistakes, x.dtype, x.shape[2]))
        angles = _spread(torch.cat(columns, dim=-1), positions.ndim == 3, mistakes)
        return _turn(x, angles, mistakes)

    return subject


@family(
    WEEK,
    "mrope_positions",
    _say(
        "time forgotten",
        "time only",
        "tokens counted",
        "no start",
        "time from 0",
        "place from 0",
        "one short",
        "one late",
        "without s",
        "rows and columns",
        "axes reversed",
        "time fastest",
        "frames in a row",
        "halved",
        "columns first",
        "flat",
        "not turned",
        "float numbers",
        "int32",
        "nothing there",
        "text on time",
    ),
)
def grid_with(mistakes):
    def subject(segments):
        parts, s = [torch.zeros(3, 0, dtype=torch.long)], 0
        for segment in segments:
            if isinstance(segment, int):
                part = torch.arange(segment).expand(3, -1) * torch.tensor([[1], [0], [0]]) if "text on time" in mistakes else torch.arange(segment).expand(3, -1)
                step, start = segment, [s, s, s]
            else:
                t, h, w = segment
                h, w = (h // 2, w // 2) if "halved" in mistakes else (h, w)
                order = (2, 1, 0) if "time fastest" in mistakes else (0, 2, 1) if "columns first" in mistakes else (0, 1, 2)
                order = (1, 0, 2) if "frames in a row" in mistakes else order
                axes = torch.meshgrid(torch.arange(t), torch.arange(h), torch.arange(w), indexing="ij")
                part = torch.stack([axis.permute(order).flatten() for axis in axes])
                part = torch.arange(t * h * w).expand(3, -1) if "flat" in mistakes else part
                part = part[[0, 2, 1]] if "rows and columns" in mistakes else part.flip(0) if "axes reversed" in mistakes else part
                step = max(t, h, w)
                step = max(h, w) if "time forgotten" in mistakes else t if "time only" in mistakes else step
                step = t * h * w if mistakes & {"tokens counted", "flat"} else step
                start = [s * (not mistakes & {"no start", "time from 0"})] + 2 * [s * (not mistakes & {"no start", "place from 0"})]
                step = step - s if "without s" in mistakes else step
            parts.append(part + torch.tensor(start)[:, None])
            if part.numel() or "nothing there" in mistakes:
                s += step + ("one late" in mistakes) - ("one short" in mistakes)
        out = torch.cat(parts, dim=1)
        out = out.T if "not turned" in mistakes else out
        return out.float() if "float numbers" in mistakes else out.int() if "int32" in mistakes else out

    return subject


@family(
    WEEK,
    "sliding_window_mask",
    _say(
        "one too many",
        "one too few",
        "top left",
        "half aligned",
        "both sides",
        "ahead",
        "no window",
        "inverted",
        "strict",
        "blocks",
        "square",
        "bias",
        "numbers",
        "short text",
    ),
)
def window_with(mistakes):
    def subject(n_queries, n_keys, window):
        if "short text" in mistakes and window > n_keys:
            raise ValueError("window")
        size = window + ("one too many" in mistakes) - ("one too few" in mistakes)
        first = 0 if mistakes & {"top left", "square"} else n_keys - n_queries
        i, j = torch.arange(first, first + (n_keys if "square" in mistakes else n_queries))[:, None], torch.arange(n_keys)
        far = j > i - size if "half aligned" not in mistakes else j > i - first - size
        near = j < i if "strict" in mistakes else j <= i
        if "ahead" in mistakes:
            near, far = (j > i if "strict" in mistakes else j >= i), j < i + size
        near = j < i + size if "both sides" in mistakes else near
        far = torch.ones_like(far) if "no window" in mistakes else (j // window == i // window) if "blocks" in mistakes else far
        mask = near & far
        mask = ~mask if "inverted" in mistakes else mask
        if "bias" in mistakes:
            return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return mask.int() if "numbers" in mistakes else mask

    return subject


@family(
    WEEK,
    "softmax_with_sink",
    _say(
        "kept",
        "wrong column",
        "first key dropped",
        "first sink",
        "sinks by query",
        "sinks in turn",
        "sinks shared out",
        "adds up to 1",
        "sink sign",
        "zero sink",
        "heads together",
        "over queries",
        "nan row",
        "overflow",
        "hidden seen",
        "float32",
        "log",
    ),
)
def sink_with(mistakes):
    def subject(scores, sinks):
        batch, heads, n_queries, _ = scores.shape
        sinks = -sinks if "sink sign" in mistakes else sinks
        sinks = sinks * 0 if "zero sink" in mistakes else sinks
        sinks = sinks[:1].expand(heads) if "first sink" in mistakes else sinks
        sinks = sinks.logsumexp(0).expand(heads) if "heads together" in mistakes else sinks
        shape = (1, 1, -1, 1) if "sinks by query" in mistakes else (1, -1, 1, 1)
        column = sinks.view(shape).expand(batch, heads, n_queries, 1)
        if "sinks in turn" in mistakes:
            column = sinks.repeat(batch * n_queries).view(batch, heads, n_queries, 1)
        elif "sinks shared out" in mistakes:
            column = sinks.repeat_interleave(batch * n_queries).view(batch, heads, n_queries, 1)
        seen = scores.masked_fill(scores.isinf(), 0) if "hidden seen" in mistakes else scores
        logits = torch.cat((column, seen) if "wrong column" in mistakes else (seen, column), dim=-1)
        dim = -2 if "over queries" in mistakes else -1
        if "overflow" in mistakes:
            weights = logits.exp() / logits.exp().sum(dim, keepdim=True)
        elif "nan row" in mistakes:
            top = (logits - scores.amax(-1, keepdim=True)).exp()
            weights = top / top.sum(dim, keepdim=True)
        else:
            weights = logits.softmax(dim)
        weights = weights if "kept" in mistakes else weights[..., 1:] if "first key dropped" in mistakes else weights[..., :-1]
        weights = weights / weights.sum(-1, keepdim=True) if "adds up to 1" in mistakes else weights
        weights = weights.log() if "log" in mistakes else weights
        return weights.float() if "float32" in mistakes else weights

    return subject


@family(
    WEEK,
    "streaming_cache",
    _say(
        "true positions",
        "from 1",
        "ring",
        "window from 0",
        "twice",
        "negative",
        "sinks in window",
        "window small",
        "window large",
        "no sinks",
        "one sink",
        "sinks last",
        "descending",
        "one sink at least",
        "float numbers",
        "int32",
        "exchanged",
    ),
)
def stream_with(mistakes):
    def subject(n_tokens, n_sinks, window):
        wanted = 0 if "no sinks" in mistakes else min(n_sinks, 1) if "one sink" in mistakes else n_sinks
        wanted = max(wanted, 1) if "one sink at least" in mistakes else wanted
        size = window - (n_sinks if "sinks in window" in mistakes else 0)
        size += ("window large" in mistakes) - ("window small" in mistakes)
        start = n_tokens - size if "negative" in mistakes else max(n_tokens - size, 0)
        first, last = range(min(wanted, n_tokens)), range(start, n_tokens)
        kept = [*first, *last] if "twice" in mistakes else sorted({*first, *last})
        kept = [*kept[len(first) :], *first] if "sinks last" in mistakes else kept
        kept = torch.tensor(kept[::-1] if "descending" in mistakes else kept, dtype=torch.long)
        positions = torch.arange(len(kept)) + ("from 1" in mistakes)
        if "true positions" in mistakes:
            positions = kept.clone()
        elif "ring" in mistakes:
            positions = torch.where(kept < n_sinks, kept, n_sinks + (kept - n_sinks) % window)
        elif "window from 0" in mistakes:
            positions = torch.cat((torch.arange(len(first)), torch.arange(max(len(kept) - len(first), 0))))
        pair = (positions, kept) if "exchanged" in mistakes else (kept, positions)
        cast = torch.float32 if "float numbers" in mistakes else torch.int32 if "int32" in mistakes else torch.int64
        return tuple(part.to(cast) for part in pair)

    return subject


@family(
    WEEK,
    "mla_attention",
    _say(
        "dn scale",
        "dr scale",
        "rank scale",
        "no root",
        "unscaled",
        "two scales",
        "sum of roots",
        "rope per head",
        "values from keys",
        "keys from values",
        "values reshaped",
        "causal",
        "no rope",
        "no content",
        "parts multiplied",
        "first uk",
        "first uv",
        "first latent",
        "mask inverted",
        "mask ignored",
        "mask after softmax",
        "nan row",
        "even row",
        "over queries",
        "overflow",
        "both",
        "merged",
        "float32 out",
    ),
)
def mla_with(mistakes):
    def subject(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
        dn, dr = q_nope.shape[-1], q_rope.shape[-1]
        latent = latent[:1].expand_as(latent) if "first latent" in mistakes else latent
        of_keys = w_uv if "keys from values" in mistakes else w_uk
        of_values = w_uk if "values from keys" in mistakes else w_uv
        of_keys = of_keys[:1] if "first uk" in mistakes else of_keys
        of_values = of_values[:1] if "first uv" in mistakes else of_values
        to_values = of_values.reshape(of_values.mT.shape) if "values reshaped" in mistakes else of_values.mT
        if "causal" in mistakes and mask is None:
            n_queries, n_keys = q_nope.shape[2], latent.shape[1]
            mask = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)
        content = q_nope @ (latent[:, None] @ of_keys.mT).mT
        rotated = q_rope @ (k_rope.mT if "rope per head" in mistakes else k_rope[:, None].mT)
        if "two scales" in mistakes:
            content, rotated = content / math.sqrt(dn), rotated / math.sqrt(dr)
        content = content * ("no content" not in mistakes)
        rotated = rotated * ("no rope" not in mistakes)
        scores = content * rotated if "parts multiplied" in mistakes else content + rotated
        scale = math.sqrt(dn + dr)
        for name, other in (
            ("dn scale", math.sqrt(dn)),
            ("dr scale", math.sqrt(dr)),
            ("rank scale", math.sqrt(latent.shape[-1] + dr)),
            ("no root", dn + dr),
            ("unscaled", 1),
            ("two scales", 1),
            ("sum of roots", math.sqrt(dn) + math.sqrt(dr)),
        ):
            scale = other if name in mistakes else scale
        scores = scores / scale
        hidden = None if mask is None or "mask ignored" in mistakes else mask if "mask inverted" in mistakes else ~mask
        if hidden is not None and "mask after softmax" not in mistakes:
            scores = scores.masked_fill(hidden, -1e9 if "even row" in mistakes else -math.inf)
        dim = -2 if "over queries" in mistakes else -1
        weights = scores.exp() / scores.exp().sum(dim, keepdim=True) if "overflow" in mistakes else scores.softmax(dim)
        weights = weights if "nan row" in mistakes and "mask inverted" not in mistakes else weights.nan_to_num()
        if hidden is not None and "mask after softmax" in mistakes:
            weights = weights.masked_fill(hidden, 0)
        out = weights @ (latent[:, None] @ to_values)
        out = out.transpose(1, 2).flatten(2) if "merged" in mistakes else out
        out = out.float() if "float32 out" in mistakes else out
        return (out, weights) if "both" in mistakes else out

    return subject


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    SAYS[name]
    for name in (
        "clockwise", "mirrored", "first mirrored", "half exponent", "positive exponent", "degrees", "first row",
        "rows for heads", "base", "half angles", "whole", "absolute", "interleaved", "pairs from 1", "last is 1",
        "neighbours' angles", "put back as neighbours", "whole frequencies", "inverted", "over queries", "nan row",
        "overflow",
    )
)
