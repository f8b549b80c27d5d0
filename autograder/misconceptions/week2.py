"""Week 2, sinusoidal and learned positions: what students get wrong, and right in other ways.

Entries read like student code and need nothing but `math`, `np`, `torch`, `nn` and `F`. The scores are written by hand.
The families at the end make the same mistakes, and any two of them together, from one implementation with switches.
"""

import math

import numpy as np
import torch
from torch import nn

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week2_sinusoidal"

DIAGNOSES = {
    # frequencies
    "i/d":
        "Your frequencies fall half as fast as they should: the exponent is 2t/d with t the number of the pair, not t/d.",
    "channel":
        "Your sine and cosine of a pair have different frequencies: the exponent counts channels. Both have 2t/d, with t the"
        " number of the pair.",
    "doubled":
        "Your frequencies fall twice as fast as they should: the exponent is 2t/d, and the even channel numbers 0, 2, 4, ..."
        " are the 2t already.",
    "d-2": "You divide the exponents by d - 2, as tensor2tensor does; formula (2) divides by d.",
    "positive": "Your frequencies grow from pair to pair: the exponent lacks its minus sign.",
    "first pair": "Your pairs are counted from 1; the first pair has exponent 0 and frequency 1.",
    "one frequency": "All pairs have the same frequency; each has its own.",
    "two pi": "You multiply the angle by 2 pi; it is position times frequency.",
    "degrees": "Your angles are converted from degrees; position times frequency is in radians already.",
    "base": "Your code uses its own base instead of the argument `base`.",
    # table
    "halves":
        "Your layout is in halves, as in [sin | cos]; this exercise asks for sine and cosine interleaved: sin, cos, sin,"
        " cos, ...",
    "swapped": "Sine and cosine are swapped: the even channels hold sines, the odd ones cosines, so PE(0) is 0, 1, 0, 1.",
    "from one": "Your positions start at 1; the first row belongs to position 0.",
    "low precision":
        "Positions, frequencies or angles are computed in float32, which is too coarse for far positions: use float64, and"
        " round only the finished sines and cosines.",
    "half precision": "Your values are rounded to half precision; float32 is asked for.",
    "float64 out": "Your result is float64; float32 is asked for. Convert at the very end.",
    "turned": "Your table is transposed: positions are rows, channels are columns.",
    "extra axis": "Your table has an axis too many; its shape is (seq_len, d_model).",
    "table ends": "Your table has a fixed greatest length; the function is asked for any seq_len.",
    "scaled": "Your values are scaled; sines and cosines enter as they are.",
    "sines only": "Your channels are all sines (or all cosines); each pair has one of each.",
    "odd": "An odd d_model leaves a sine without its cosine and must raise ValueError; yours raises something else or"
           " nothing.",
    # shift
    "transposed":
        "Your matrix is transposed: it moves by -offset. Sine comes first in a pair, so the minus sign is below the"
        " diagonal.",
    "at position 0 only": "Your matrix is right at position 0 and wrong elsewhere; one matrix must move every position.",
    "halves shift":
        "Your matrix is made for the layout [sin | cos]; in the interleaved layout pair t owns rows and columns 2t and 2t+1.",
    "swapped shift": "Your blocks have sines on the diagonal; a move by 0 must be the identity, and sin 0 is 0.",
    "mirrored": "Both sines of a block have the same sign: that is not a rotation. One of them carries a minus.",
    "one too far": "Your matrix moves by offset + 1.",
    "absolute": "You drop the sign of the offset: a negative one moves to the left.",
    "no negatives": "Negative offsets are not handled; the same formula holds for every whole number.",
    "diagonal": "Your matrix is diagonal: sine and cosine of a pair must be mixed to move.",
    # learned table
    "not trainable": "Your table is no trainable parameter of the module: an nn.Parameter or nn.Embedding assigned to self is one, unless it is frozen.",
    "not in state": "The module's state does not hold your table, so it is not trained, not saved and not moved. Assign an nn.Parameter to self; in a plain list it does not count.",
    "more parameters": "There must be exactly one trainable tensor, with max_len * d_model entries.",
    "table detached": "The table is cut off from the autograd graph (.data, .detach(), torch.no_grad), so it cannot learn.",
    "input detached": "The gradient through your result to x is wrong or cut off.",
    "batch axis": "You add row b to sequence b: rows follow the tokens (axis 1), and are the same for all sequences.",
    "x alone": "Your result is x as it came: the rows are not added.",
    "rows alone": "You return the rows alone; add them to x.",
    "other rows": "You add other rows than 0, 1, 2, ...: token p gets row p.",
    "same row": "All tokens get the same row; token p gets row p.",
    "scaled rows": "You scale x or the rows; the sum is x plus the rows as they are.",
    "multiplied": "You multiply x by the rows; add them.",
    "wrong size": "Your table has another size than max_len * d_model.",
    "float32 out": "Your result has the dtype of the table (float32); it must have the dtype of x.",
    "in place": "Your module overwrites x; it must return a new tensor.",
    "silent": "A text longer than max_len goes through in silence; there is no row to add, so it must raise an error.",
    "broadcast":
        "With a table of one row (max_len 1) a longer text goes through in silence, since broadcasting repeats the row:"
        " compare the lengths yourself.",
    # counterexample
    "offset 0": "Offset 0 is not allowed, and PE(0)·PE(0) is the largest product of all: nothing rises above it.",
    "equal offsets": "Your two offsets are equal, and so are their products; k1 < k2 is asked for.",
    "negative offsets": "Your offsets are not both positive: 0 < k1 < k2 is asked for.",
    "wrong order": "Your offsets are in the wrong order: k1 is the smaller one.",
    "not ints": "Two plain Python ints are asked for: use int(...).",
    "only rounding":
        "Between your two offsets the product falls, if only by a little. (Rounding can make that look like a rise: use float64 "
        "and ask for a clear one.)",
    "falls": "For some width the product falls between your two offsets, so they refute nothing there.",
    "search ends": "Your search ends too early for wide encodings: their first rise comes late.",
}


# ---- 2.1 encode_by_hand ---------------------------------------------------------------------------------------------


def by_hand(encode, product=lambda a, b: sum(x * y for x, y in zip(a, b))):
    """The answers of someone whose encodings and products are these."""
    rows = {p: encode(p) for p in (0, 1, 5, 6)}
    answers = {f"pe_{p}_{channel}": value for p, row in rows.items() for channel, value in enumerate(row)}
    return answers | {f"dot_{p}_{q}": product(rows[p], rows[q]) for p, q in ((0, 1), (5, 6), (0, 5))}


def waves(p, *speeds):
    """sin, cos, sin, cos of these four speeds at p."""
    return [f(p * speed) for f, speed in zip((math.sin, math.cos) * 2, speeds)]


def encoded(p):
    return waves(p, 1, 1, 0.01, 0.01)


RIGHT = by_hand(encoded)

numbers(WEEK, "encode_by_hand", "all_digits", RIGHT)
numbers(WEEK, "encode_by_hand", "four_digits", {key: float(f"{value:.4g}") for key, value in RIGHT.items()})
numbers(WEEK, "encode_by_hand", "small_angles", RIGHT | {"pe_1_2": 0.01, "pe_5_2": 0.04998, "pe_6_2": 0.05996})
numbers(WEEK, "encode_by_hand", "degrees", by_hand(lambda p: waves(math.radians(p), 1, 1, 0.01, 0.01)),
        0.5, "Your calculator works in degrees; the angles are in radians.")
numbers(WEEK, "encode_by_hand", "i_over_d", by_hand(lambda p: waves(p, 1, 1, 0.1, 0.1)),
        1.5, "Your second frequency is 10000^(-1/4) = 0.1: the exponent is 2t/d with t = 1, so it is 10000^(-2/4) = 0.01.")
numbers(WEEK, "encode_by_hand", "i_over_d_rounded", {key: round(value, 4) for key, value in by_hand(lambda p: waves(p, 1, 1, 0.1, 0.1)).items()},
        1.5, "Your second frequency is 10000^(-1/4) = 0.1: the exponent is 2t/d with t = 1, so it is 10000^(-2/4) = 0.01.")
numbers(WEEK, "encode_by_hand", "from_one", by_hand(lambda p: encoded(p + 1)),
        2.5, "Your positions start at 1: PE(0) belongs to the angle 0, so it is 0, 1, 0, 1.")
numbers(WEEK, "encode_by_hand", "swapped", by_hand(lambda p: [encoded(p)[c] for c in (1, 0, 3, 2)]),
        2.5, "Sine and cosine are swapped: even channels hold sines, so PE(0) is 0, 1, 0, 1.")
numbers(WEEK, "encode_by_hand", "halves", by_hand(lambda p: [encoded(p)[c] for c in (0, 2, 1, 3)]),
        2.5, "Your layout is [sin | cos]; here sine and cosine of a pair are side by side.")
numbers(WEEK, "encode_by_hand", "channel_speeds", by_hand(lambda p: waves(p, 1, 0.1, 0.01, 0.001)),
        0.5, "Your exponent is c/d with c the number of the channel; sine and cosine of a pair share the frequency 10000^(-2t/d).")
numbers(WEEK, "encode_by_hand", "channel_for_pair", by_hand(lambda p: waves(p, 1, 0.01, 1e-4, 1e-6)),
        0.5, "You put the number of the channel for t; t counts pairs, so channels 0 and 1 have t = 0, channels 2 and 3 t = 1.")
numbers(WEEK, "encode_by_hand", "speed_hundred", by_hand(lambda p: waves(p, 1, 1, 100, 100)),
        1.5, "Your second pair is 10,000 times too fast: the exponent carries a minus sign, 10000^(-1/2) = 0.01.")
numbers(WEEK, "encode_by_hand", "one_speed", by_hand(lambda p: waves(p, 1, 1, 1, 1)),
        1.5, "Both of your pairs have frequency 1; the second has 10000^(-2/4) = 0.01.")
numbers(WEEK, "encode_by_hand", "two_pi", by_hand(lambda p: waves(2 * math.pi * p, 1, 1, 0.01, 0.01)),
        0.5, "You multiply the angle by 2 pi; it is position times frequency.")
numbers(WEEK, "encode_by_hand", "product_halved", by_hand(encoded, lambda a, b: sum(x * y for x, y in zip(a, b)) / 2),
        2.5, "Your products are divided by 2 (a cosine, or a scaled score); the exercise asks for the plain dot product.")
numbers(WEEK, "encode_by_hand", "fast_pair_only", by_hand(encoded, lambda a, b: a[0] * b[0] + a[1] * b[1]),
        2.5, "Your products stop after the first pair; all four channels count.")
numbers(WEEK, "encode_by_hand", "distance", by_hand(encoded, math.dist),
        2.5, "You give distances; the exercise asks for dot products.")
numbers(WEEK, "encode_by_hand", "three_decimals", {key: round(value, 3) for key, value in RIGHT.items()},
        3, ROUNDED_TOO_FAR)
numbers(WEEK, "encode_by_hand", "two_digits", {key: round(value, 2) for key, value in RIGHT.items()},
        2, ROUNDED_TOO_FAR)
numbers(WEEK, "encode_by_hand", "similar_only", RIGHT | {"dot_5_6": 1.5307},
        3.5, "The two products with offset 1 must be equal, not just similar: compute with more digits.")


# ---- 2.2 wavelengths_by_hand ----------------------------------------------------------------------------------------


def wavelengths(exponents, factor=2 * math.pi):
    """Wavelengths with these exponents for the pairs 0, 8, 16 and the last."""
    return {key: factor * 10000**exponent for key, exponent in zip(("pair_0", "pair_8", "pair_16", "longest"), exponents)}


LENGTHS = wavelengths((0, 16 / 64, 32 / 64, 62 / 64))

numbers(WEEK, "wavelengths_by_hand", "all_digits", LENGTHS)
numbers(WEEK, "wavelengths_by_hand", "four_digits", {"pair_0": 6.283, "pair_8": 62.83, "pair_16": 628.3, "longest": 47120})
numbers(WEEK, "wavelengths_by_hand", "whole_number", LENGTHS | {"longest": 47117})
numbers(WEEK, "wavelengths_by_hand", "full_base", LENGTHS | {"longest": 20000 * math.pi},
        1, "Your longest wavelength is 2 pi times the base; the last exponent is 62/64, not 1.")
numbers(WEEK, "wavelengths_by_hand", "one_pair_short", LENGTHS | {"longest": 2 * math.pi * 10000 ** (60 / 64)},
        1, "Your longest wavelength is that of pair 30; the last of 32 pairs has number 31.")
numbers(WEEK, "wavelengths_by_hand", "last_channel", LENGTHS | {"longest": 2 * math.pi * 10000 ** (63 / 64)},
        1, "Your last exponent is 63/64, that of a channel; the last pair has 2 * 31 / 64.")
numbers(WEEK, "wavelengths_by_hand", "from_one", wavelengths((2 / 64, 18 / 64, 34 / 64, 1)),
        0, "Your pairs are counted from 1; pair 0 has exponent 0.")
numbers(WEEK, "wavelengths_by_hand", "from_one_but_for_the_longest", wavelengths((2 / 64, 18 / 64, 34 / 64, 62 / 64)),
        1, "Your pairs are counted from 1; pair 0 has exponent 0.")
numbers(WEEK, "wavelengths_by_hand", "eighth_pair", wavelengths((0, 14 / 64, 30 / 64, 62 / 64)),
        1, "You take pair 8 for the eighth pair: pairs are counted from 0, so its exponent is 16/64.")
numbers(WEEK, "wavelengths_by_hand", "eighth_pair_and_last", wavelengths((0, 14 / 64, 30 / 64, 60 / 64)),
        0, "You take pair 8 for the eighth pair: pairs are counted from 0, so its exponent is 16/64.")
numbers(WEEK, "wavelengths_by_hand", "i_over_d", wavelengths((0, 8 / 64, 16 / 64, 31 / 64)),
        0, "Your exponents are half of what they should be: 2t/d, not t/d.")
numbers(WEEK, "wavelengths_by_hand", "doubled", wavelengths((0, 32 / 64, 1, 124 / 64)),
        0, "Your exponents are twice what they should be: 2t/d with t the number of the pair.")
numbers(WEEK, "wavelengths_by_hand", "no_two_pi", wavelengths((0, 16 / 64, 32 / 64, 62 / 64), 1),
        0, "The factor 2 pi is missing: one turn is 2 pi radians.")
numbers(WEEK, "wavelengths_by_hand", "in_degrees", wavelengths((0, 16 / 64, 32 / 64, 62 / 64), 360),
        0, "One turn is 2 pi radians here, not 360.")
numbers(WEEK, "wavelengths_by_hand", "half_turn", wavelengths((0, 16 / 64, 32 / 64, 62 / 64), math.pi),
        0, "You give half turns; a full turn is 2 pi.")
numbers(WEEK, "wavelengths_by_hand", "speeds", wavelengths((0, -16 / 64, -32 / 64, -62 / 64), 1),
        0, "You give frequencies in radians per position; the wavelength is 2 pi divided by the frequency.")
numbers(WEEK, "wavelengths_by_hand", "times_speed", wavelengths((0, -16 / 64, -32 / 64, -62 / 64)),
        0, "You multiply 2 pi by the frequency; the wavelength is 2 pi divided by it.")
numbers(WEEK, "wavelengths_by_hand", "up_to_the_base", wavelengths((0, 8 / 31, 16 / 31, 1)),
        0, "You divide the exponents by d - 2, as tensor2tensor does; formula (2) divides by d.")
numbers(WEEK, "wavelengths_by_hand", "reciprocals", {key: 1 / value for key, value in LENGTHS.items()},
        0, "You give turns per position; the wavelength is its reciprocal, positions per turn.")
numbers(WEEK, "wavelengths_by_hand", "two_digits", {"pair_0": 6.3, "pair_8": 63, "pair_16": 630, "longest": 47000},
        0, ROUNDED_TOO_FAR)


# ---- 2.3 sinusoidal_positional_encoding -----------------------------------------------------------------------------


@right(WEEK, "sinusoidal_positional_encoding")
def table_plain(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    position = torch.arange(seq_len, dtype=torch.float64)[:, None]
    speed = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * speed
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2] = angle.sin()
    pe[:, 1::2] = angle.cos()
    return pe


WRITTEN = '''    pe[:, 0::2] = angle.sin()
    pe[:, 1::2] = angle.cos()
'''
REFUSED = '''    if d_model % 2:
        raise ValueError("d_model must be even")
'''
SPEED = "base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)"
edited(table_plain, "table_halves", 0, DIAGNOSES["halves"], (WRITTEN, '''    pe[:, : d_model // 2] = angle.sin()
    pe[:, d_model // 2 :] = angle.cos()
'''))
edited(table_plain, "table_swapped", 0, DIAGNOSES["swapped"], (WRITTEN, '''    pe[:, 0::2] = angle.cos()
    pe[:, 1::2] = angle.sin()
'''))
edited(table_plain, "table_doubled", 0, DIAGNOSES["doubled"],
       ("(0, d_model, 2, dtype=torch.float64)", "(0, d_model, 2, dtype=torch.float64) * 2"))
edited(table_plain, "table_d_minus_two", 0, DIAGNOSES["d-2"], ("/ d_model)", "/ max(d_model - 2, 1))"))
edited(table_plain, "table_positive_exponent", 0, DIAGNOSES["positive"], ("(-torch.arange", "(torch.arange"))
edited(table_plain, "table_first_pair", 0, DIAGNOSES["first pair"], ("torch.arange(0, d_model, 2,", "torch.arange(2, d_model + 1, 2,"))
edited(table_plain, "table_from_one", 0, DIAGNOSES["from one"], ("torch.arange(seq_len, ", "torch.arange(1, seq_len + 1, "))
edited(table_plain, "table_degrees", 0, DIAGNOSES["degrees"], ("position * speed", "torch.deg2rad(position * speed)"))
edited(table_plain, "table_two_pi", 0, DIAGNOSES["two pi"], ("position * speed", "2 * math.pi * position * speed"))
edited(table_plain, "table_one_frequency", 0, DIAGNOSES["one frequency"], ("position * speed", "position * torch.ones_like(speed)"))
edited(table_plain, "table_turned", 0, DIAGNOSES["turned"], ("return pe", "return pe.T"))
edited(table_plain, "table_scaled", 0, DIAGNOSES["scaled"], ("return pe", "return pe / math.sqrt(d_model / 2)"))
edited(table_plain, "table_sines_only", 0, DIAGNOSES["sines only"], ("= angle.cos()", "= angle.sin()"))
edited(table_plain, "table_half_precision", 0, DIAGNOSES["half precision"], ("return pe", "return pe.to(torch.bfloat16).float()"))
edited(table_plain, "table_float64_out", 3.5, DIAGNOSES["float64 out"],
       ("torch.zeros(seq_len, d_model)", "torch.zeros(seq_len, d_model, dtype=torch.float64)"))
edited(table_plain, "table_odd_accepted", 3.5, DIAGNOSES["odd"], (REFUSED, ""))
edited(table_plain, "table_own_base", 3.5, DIAGNOSES["base"], ("speed = base", "speed = 10000.0"))
edited(table_plain, "table_float32_speeds", 3, DIAGNOSES["low precision"], (SPEED, f"({SPEED}).float()"))


@wrong(WEEK, "sinusoidal_positional_encoding", 0, DIAGNOSES["i/d"])
def table_i_over_d(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    pe = torch.zeros(seq_len, d_model)
    for pos in range(min(seq_len, 3000)):
        for i in range(d_model // 2):
            angle = pos / base ** (i / d_model)
            pe[pos, 2 * i] = math.sin(angle)
            pe[pos, 2 * i + 1] = math.cos(angle)
    return pe


@wrong(WEEK, "sinusoidal_positional_encoding", 0, DIAGNOSES["channel"])
def table_channel_exponent(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    pos = np.arange(seq_len)[:, None]
    i = np.arange(d_model)[None, :]
    angles = pos / np.power(base, i / d_model)
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return torch.tensor(angles, dtype=torch.float32)


@wrong(WEEK, "sinusoidal_positional_encoding", 2.5, DIAGNOSES["low precision"])
def table_tutorial(seq_len, d_model, base=10000.0):
    pe = torch.zeros(seq_len, d_model)
    position = torch.arange(0, seq_len, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(base) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)  # odd d_model: RuntimeError
    return pe


@wrong(WEEK, "sinusoidal_positional_encoding", 0, DIAGNOSES["extra axis"])
def table_with_batch_axis(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    pos = torch.arange(seq_len).double().unsqueeze(1)
    div = torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(base) / d_model))
    return torch.stack((torch.sin(pos * div), torch.cos(pos * div)), dim=-1).flatten(1).float().unsqueeze(0)


@wrong(WEEK, "sinusoidal_positional_encoding", 3, DIAGNOSES["table ends"])
def table_fixed_length(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    max_len = 5000
    pe = torch.zeros(max_len, d_model)
    t = torch.arange(max_len, dtype=torch.float64)
    for i in range(0, d_model, 2):
        pe[:, i] = torch.sin(t / base ** (i / d_model))
        pe[:, i + 1] = torch.cos(t / base ** (i / d_model))
    return pe[:seq_len]


@right(WEEK, "sinusoidal_positional_encoding")
def table_numpy(seq_len, d_model, base=10000.0):
    if d_model % 2 != 0:
        raise ValueError(f"d_model must be even, got {d_model}")
    angles = np.arange(seq_len)[:, None] / np.power(base, 2 * (np.arange(d_model) // 2) / d_model)
    pe = np.where(np.arange(d_model) % 2 == 0, np.sin(angles), np.cos(angles))
    return torch.from_numpy(pe.astype(np.float32))


@right(WEEK, "sinusoidal_positional_encoding")
def table_stacked(seq_len, d_model, base=10000.0):
    if d_model & 1:
        raise ValueError("need pairs")
    t = torch.arange(d_model // 2, dtype=torch.float64)
    angle = torch.outer(torch.arange(seq_len).double(), torch.exp(-2 * t / d_model * math.log(base)))
    return torch.stack([torch.sin(angle), torch.cos(angle)], dim=2).reshape(seq_len, d_model).float()


@right(WEEK, "sinusoidal_positional_encoding")
def table_phase(seq_len, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd width")
    channel = torch.arange(d_model, dtype=torch.float64)
    speed = base ** (-(channel - channel % 2) / d_model)
    shift = (channel % 2) * math.pi / 2  # cos x = sin(x + pi/2)
    return torch.sin(torch.arange(seq_len, dtype=torch.float64).unsqueeze(-1) * speed + shift).to(torch.float32)


@right(WEEK, "sinusoidal_positional_encoding")
def table_complex(seq_len, d_model, base=10000.0):
    if d_model % 2 == 1:
        raise ValueError("d_model must be even")
    speeds = torch.tensor([base ** (-2 * i / d_model) for i in range(d_model // 2)], dtype=torch.float64)
    z = torch.exp(1j * torch.arange(seq_len, dtype=torch.float64)[:, None] * speeds)
    return torch.stack((z.imag, z.real), dim=-1).flatten(-2).to(torch.float32)


# ---- 2.4 shift_matrix -----------------------------------------------------------------------------------------------


@right(WEEK, "shift_matrix")
def shift_plain(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    M = torch.zeros(d_model, d_model)
    for t in range(d_model // 2):
        angle = offset * base ** (-2 * t / d_model)
        c, s = math.cos(angle), math.sin(angle)
        a, b = 2 * t, 2 * t + 1
        M[a, a], M[a, b] = c, s
        M[b, a], M[b, b] = -s, c
    return M


edited(shift_plain, "shift_transposed", 0, DIAGNOSES["transposed"], ("M[a, b] = c, s", "M[a, b] = c, -s"), ("= -s, c", "= s, c"))
edited(shift_plain, "shift_halves", 0, DIAGNOSES["halves shift"], ("a, b = 2 * t, 2 * t + 1", "a, b = t, t + d_model // 2"))
edited(shift_plain, "shift_swapped", 0, DIAGNOSES["swapped shift"], ("c, s = math.cos(angle), math.sin(angle)",
                                                                "s, c = math.cos(angle), math.sin(angle)"))
edited(shift_plain, "shift_mirrored", 0, DIAGNOSES["mirrored"], ("= -s, c", "= s, c"))
edited(shift_plain, "shift_i_over_d", 0, DIAGNOSES["i/d"], ("(-2 * t / d_model)", "(-t / d_model)"))
edited(shift_plain, "shift_channel_exponent", 0, DIAGNOSES["channel"],
       ("M[b, a], M[b, b] = -s, c", "M[b, a], M[b, b] = -math.sin(offset * base ** (-b / d_model)), math.cos(offset * base ** (-b / d_model))"))
edited(shift_plain, "shift_d_minus_two", 0, DIAGNOSES["d-2"], ("(-2 * t / d_model)", "(-2 * t / max(d_model - 2, 1))"))
edited(shift_plain, "shift_positive_exponent", 0, DIAGNOSES["positive"], ("(-2 * t", "(2 * t"))
edited(shift_plain, "shift_one_too_far", 0, DIAGNOSES["one too far"], ("angle = offset", "angle = (offset + 1)"))
edited(shift_plain, "shift_degrees", 0, DIAGNOSES["degrees"], ("angle = offset", "angle = math.radians(1) * offset"))
edited(shift_plain, "shift_one_frequency", 0, DIAGNOSES["one frequency"], (" * base ** (-2 * t / d_model)", ""))
edited(shift_plain, "shift_diagonal", 0, DIAGNOSES["diagonal"], ("M[a, a], M[a, b] = c, s", "M[a, a] = c"),
       ("M[b, a], M[b, b] = -s, c", "M[b, b] = c"))
edited(shift_plain, "shift_absolute", 3.25, DIAGNOSES["absolute"], ("angle = offset", "angle = abs(offset)"))
edited(shift_plain, "shift_own_base", 3.5, DIAGNOSES["base"], ("offset * base", "offset * 10000"))
edited(shift_plain, "shift_odd_accepted", 3.5, DIAGNOSES["odd"], ('''    if d_model % 2:
        raise ValueError("d_model must be even")
''', ""))
edited(shift_plain, "shift_zero_first", 3.5, DIAGNOSES["odd"],
       ("    if d_model % 2:", "    if offset == 0:\n        return torch.eye(d_model)\n    if d_model % 2:"))
edited(shift_plain, "shift_left_unchecked", 3.5, DIAGNOSES["odd"], ("if d_model % 2:", "if offset >= 0 and d_model % 2:"))
edited(shift_plain, "shift_float64_out", 3.75, DIAGNOSES["float64 out"],
       ("torch.zeros(d_model, d_model)", "torch.zeros(d_model, d_model, dtype=torch.float64)"))


@wrong(WEEK, "shift_matrix", 0, DIAGNOSES["diagonal"])
def shift_identity(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd")
    return torch.eye(d_model)


@wrong(WEEK, "shift_matrix", 0, DIAGNOSES["at position 0 only"])
def shift_rank_one(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    speed = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    encode = lambda p: torch.stack(((p * speed).sin(), (p * speed).cos()), -1).flatten()
    start, end = encode(0), encode(offset)
    return torch.outer(end, start).float() / (d_model / 2)


@wrong(WEEK, "shift_matrix", 3.5, DIAGNOSES["low precision"])
def shift_float32(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    angle = offset * base ** (-torch.arange(0, d_model, 2).float() / d_model)
    c, s = angle.cos(), angle.sin()
    blocks = [torch.tensor([[c[i], s[i]], [-s[i], c[i]]]) for i in range(d_model // 2)]
    return torch.block_diag(*blocks)


@wrong(WEEK, "shift_matrix", 3.25, DIAGNOSES["no negatives"])
def shift_steps(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    speed = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    step = torch.polar(torch.ones_like(speed), speed)
    turn = torch.ones_like(step)
    for _ in range(offset):
        turn = turn * step
    M = torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    M[even, even], M[even, even + 1] = turn.real.float(), turn.imag.float()
    M[even + 1, even], M[even + 1, even + 1] = -turn.imag.float(), turn.real.float()
    return M


@right(WEEK, "shift_matrix")
def shift_blocks(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("pairs")
    blocks = []
    for two_t in range(0, d_model, 2):
        a = offset / base ** (two_t / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)


@right(WEEK, "shift_matrix")
def shift_power(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model must be even")
    a = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    one = torch.diag(a.cos().repeat_interleave(2))
    i = torch.arange(0, d_model, 2)
    one[i, i + 1], one[i + 1, i] = a.sin(), -a.sin()
    return torch.linalg.matrix_power(one, offset).float()


@right(WEEK, "shift_matrix")
def shift_numpy(offset, d_model, base=10000.0):
    if d_model % 2 != 0:
        raise ValueError("d_model must be even")
    a = offset * np.power(base, -np.arange(0, d_model, 2) / d_model)
    J = np.array([[0.0, 1.0], [-1.0, 0.0]])
    M = np.kron(np.diag(np.cos(a)), np.eye(2)) + np.kron(np.diag(np.sin(a)), J)
    return torch.tensor(M, dtype=torch.float32)


@right(WEEK, "shift_matrix")
def shift_exponential(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("odd d_model")
    G = torch.zeros(d_model, d_model, dtype=torch.float64)
    for t in range(d_model // 2):
        G[2 * t, 2 * t + 1] = math.fmod(offset * base ** (-2 * t / d_model), 2 * math.pi)
    return torch.linalg.matrix_exp(G - G.T).to(torch.float32)


# ---- 2.5 LearnedPositionalEmbedding ---------------------------------------------------------------------------------


@right(WEEK, "LearnedPositionalEmbedding")
class LearnedPlain(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.max_len = max_len
        self.pe = nn.Parameter(torch.randn(max_len, d_model) * 0.02)

    def forward(self, x):
        n = x.shape[1]
        if n > self.max_len:
            raise ValueError("sequence longer than the table")
        rows = self.pe[:n]
        return (x + rows).to(x.dtype)


LONGER = '''        if n > self.max_len:
            raise ValueError("sequence longer than the table")
'''
MADE = "self.pe = nn.Parameter(torch.randn(max_len, d_model) * 0.02)"
edited(LearnedPlain, "learned_plain_tensor", 0, DIAGNOSES["not in state"], (MADE, "self.pe = torch.randn(max_len, d_model) * 0.02"))
edited(LearnedPlain, "learned_rows_alone", 0, DIAGNOSES["rows alone"], ("(x + rows)", "rows.expand_as(x)"))
edited(LearnedPlain, "learned_x_alone", 0, DIAGNOSES["x alone"], ("(x + rows)", "x"))
edited(LearnedPlain, "learned_batch_axis", 0, DIAGNOSES["batch axis"], ("rows = self.pe[:n]", "rows = self.pe[:x.shape[0], None]"))
edited(LearnedPlain, "learned_from_one", 0, DIAGNOSES["other rows"],
       ("rows = self.pe[:n]", "rows = self.pe[torch.arange(1, n + 1) % self.max_len]"))
edited(LearnedPlain, "learned_second_row_first", 0, DIAGNOSES["other rows"], ("self.pe[:n]", "self.pe[1 : n + 1]"))
edited(LearnedPlain, "learned_last_rows", 0, DIAGNOSES["other rows"], ("self.pe[:n]", "self.pe[self.max_len - n:]"))
edited(LearnedPlain, "learned_backwards", 0, DIAGNOSES["other rows"], ("self.pe[:n]", "self.pe[:n].flip(0)"))
edited(LearnedPlain, "learned_same_row", 0, DIAGNOSES["same row"], ("self.pe[:n]", "self.pe[0]"))
edited(LearnedPlain, "learned_scaled_input", 0, DIAGNOSES["scaled rows"], ("(x + rows)", "(x * math.sqrt(x.shape[-1]) + rows)"))
edited(LearnedPlain, "learned_multiplied", 0, DIAGNOSES["multiplied"], ("(x + rows)", "(x * rows)"))
edited(LearnedPlain, "learned_padding_row", 0, DIAGNOSES["wrong size"], (MADE, "self.pe = nn.Parameter(torch.randn(max_len + 1, d_model))"))
edited(LearnedPlain, "learned_float32_out", 1.875, DIAGNOSES["float32 out"], (".to(x.dtype)", ""))
edited(LearnedPlain, "learned_buffer", 1.5, DIAGNOSES["not trainable"], (MADE, 'self.register_buffer("pe", torch.randn(max_len, d_model))'))
edited(LearnedPlain, "learned_frozen", 1.5, DIAGNOSES["not trainable"],
       (MADE, "self.pe = nn.Parameter(torch.randn(max_len, d_model), requires_grad=False)"))
edited(LearnedPlain, "learned_detached", 1.5, DIAGNOSES["table detached"], ("self.pe[:n]", "self.pe.data[:n]"))
edited(LearnedPlain, "learned_with_scale", 1.5, DIAGNOSES["more parameters"],
       ("self.max_len = max_len", "self.max_len, self.scale = max_len, nn.Parameter(torch.ones(1))"),
       ("rows = self.pe[:n]", "rows = self.scale * self.pe[:n]"))
edited(LearnedPlain, "learned_in_place", 1.5, DIAGNOSES["in place"], ("return (x + rows).to(x.dtype)", "x.data += rows.to(x.dtype)\n        return x + 0 * rows.to(x.dtype)"))
edited(LearnedPlain, "learned_clamped", 1.5, DIAGNOSES["silent"], (LONGER, ""),
       ("self.pe[:n]", "self.pe[torch.arange(n).clamp(max=self.max_len - 1)]"))
edited(LearnedPlain, "learned_wraps", 1.5, DIAGNOSES["silent"], (LONGER, ""), ("self.pe[:n]", "self.pe[torch.arange(n) % self.max_len]"))
edited(LearnedPlain, "learned_cuts", 1.5, DIAGNOSES["silent"], (LONGER, ""), ("(x + rows)", "(x[:, : self.max_len] + rows)"))
edited(LearnedPlain, "learned_zeros_beyond", 1.5, DIAGNOSES["silent"], (LONGER, ""),
       ("self.pe[:n]", "F.pad(self.pe, (0, 0, 0, max(n - self.max_len, 0)))[:n]"))
edited(LearnedPlain, "learned_broadcasts_one_row", 1.5, DIAGNOSES["broadcast"], (LONGER, ""))


@right(WEEK, "LearnedPositionalEmbedding")
class LearnedEmbedding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.position = nn.Embedding(max_len, d_model)

    def forward(self, x):
        ids = torch.arange(x.size(1), device=x.device)  # an index past the table is an IndexError
        return x + self.position(ids).unsqueeze(0).to(x.dtype)


@right(WEEK, "LearnedPositionalEmbedding")
class LearnedWithBatchAxis(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, max_len, d_model))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.register_buffer("position_ids", torch.arange(max_len).unsqueeze(0))

    def forward(self, x):
        assert x.shape[1] <= self.pos_embed.shape[1], "too long"
        return torch.add(x, self.pos_embed[:, self.position_ids[0, : x.shape[1]]]).type_as(x)


@right(WEEK, "LearnedPositionalEmbedding")
class LearnedTurned(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.columns = nn.Parameter(torch.zeros(d_model, max_len))

    def forward(self, x):
        if x.shape[1] > self.columns.shape[1]:
            raise IndexError("no such position")
        out = x.clone()
        for p in range(x.shape[1]):
            out[:, p] = x[:, p] + self.columns[:, p].to(x.dtype)
        return out


# ---- 2.6 similarity_counterexample ----------------------------------------------------------------------------------


@right(WEEK, "similarity_counterexample")
def pair_first_rise(d_model):
    w = [10000.0 ** (-2 * t / d_model) for t in range(d_model // 2)]
    s = lambda k: math.fsum(math.cos(k * x) for x in w)
    k = 1
    while s(k + 1) <= s(k) + 1e-9:
        k += 1
    return k, k + 1


edited(pair_first_rise, "pair_wrong_order", 0, DIAGNOSES["wrong order"], ("return k, k + 1", "return k + 1, k"))
edited(pair_first_rise, "pair_equal", 0, DIAGNOSES["equal offsets"], ("return k, k + 1", "return k + 1, k + 1"))
edited(pair_first_rise, "pair_with_zero", 0, DIAGNOSES["offset 0"], ("return k, k + 1", "return 0, k + 1"))
edited(pair_first_rise, "pair_negative", 0, DIAGNOSES["negative offsets"], ("return k, k + 1", "return -(k + 1), -k"))
edited(pair_first_rise, "pair_across_zero", 0, DIAGNOSES["negative offsets"], ("return k, k + 1", "return -k, k + 1"))
edited(pair_first_rise, "pair_of_floats", 0, DIAGNOSES["not ints"], ("return k, k + 1", "return float(k), float(k + 1)"))
edited(pair_first_rise, "pair_of_products", 0, DIAGNOSES["not ints"], ("return k, k + 1", "return s(k), s(k + 1)"))
edited(pair_first_rise, "pair_of_tensors", 0, DIAGNOSES["not ints"], ("return k, k + 1", "return torch.tensor(k), torch.tensor(k + 1)"))
edited(pair_first_rise, "pair_after_the_rise", 0, DIAGNOSES["falls"], ("return k, k + 1", "return k - 1, k"), ("    k = 1\n", "    k = 2\n"))
edited(pair_first_rise, "pair_falls", 0, DIAGNOSES["falls"], ("s(k + 1) <= s(k) + 1e-9", "s(k + 1) >= s(k)"))


@wrong(WEEK, "similarity_counterexample", 1, DIAGNOSES["search ends"])
def pair_searched_to_50(d_model):
    w = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    s = torch.cos(torch.arange(1, 50)[:, None] * w).sum(dim=1)
    rises = [k for k in range(len(s) - 1) if s[k + 1] > s[k] + 1e-9]
    return rises[0] + 1, rises[0] + 2


@wrong(WEEK, "similarity_counterexample", 0, DIAGNOSES["falls"])
def pair_of_width_64(d_model):
    return 5, 6


@wrong(WEEK, "similarity_counterexample", 0, DIAGNOSES["falls"])
def pair_one_turn(d_model):
    return 3, 6


@right(WEEK, "similarity_counterexample")
def pair_from_table(d_model):
    p = torch.arange(300, dtype=torch.float64)[:, None]
    a = p * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    pe = torch.cat((a.sin(), a.cos()), dim=1)
    dots = pe @ pe[0]
    jump = dots[2:] - dots[1:-1]  # offsets 1 -> 2, 2 -> 3, ...
    k1 = jump.argmax().item() + 1
    return (k1, k1 + 1)


@right(WEEK, "similarity_counterexample")
def pair_valley_and_peak(d_model):
    k = np.arange(1, 400)
    s = np.cos(np.outer(k, 10000.0 ** (-np.arange(0, d_model, 2) / d_model))).sum(axis=1)
    low = int(np.argmin(s[:200]))
    high = low + 1 + int(np.argmax(s[low + 1:]))
    return [int(k[low]), int(k[high])]


@right(WEEK, "similarity_counterexample")
def pair_searched_at_random(d_model):
    w = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    generator = torch.Generator().manual_seed(0)
    while True:
        k1, k2 = sorted(torch.randint(1, 5000, (2,), generator=generator).tolist())
        if k1 < k2 and float((k2 * w).cos().sum() - (k1 * w).cos().sum()) > 1e-6:
            return k1, k2


# ---- families: every mistake and every pair of them -----------------------------------------------------------------


def _angles(positions, d_model, base, mistakes):
    """position * speed in float64, (..., d_model/2), with mistakes."""
    base = 10000.0 if "base" in mistakes else base
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64) + (2 if "first pair" in mistakes else 0)
    exponents = exponents * (0.5 if "i/d" in mistakes else 2 if "doubled" in mistakes else 1)
    exponents = exponents / (max(d_model - 2, 1) if "d-2" in mistakes else d_model)
    exponents = exponents * (0 if "one frequency" in mistakes else 1 if "positive" in mistakes else -1)
    angles = torch.as_tensor(positions, dtype=torch.float64)[..., None] * base**exponents
    angles = angles * (2 * math.pi if "two pi" in mistakes else 1)
    return torch.deg2rad(angles) if "degrees" in mistakes else angles


def _say(*names):
    return {name: DIAGNOSES[name] for name in names}


ANGLES = ("i/d", "doubled", "d-2", "positive", "first pair", "one frequency", "two pi", "degrees", "base")


@family(WEEK, "sinusoidal_positional_encoding", _say(
    "halves", "swapped", *ANGLES, "channel", "from one", "turned", "extra axis", "scaled", "sines only"))
def table_with(mistakes):
    def subject(seq_len, d_model, base=10000.0):
        if d_model % 2:
            raise ValueError("odd")
        positions = torch.arange(seq_len) + (1 if "from one" in mistakes else 0)
        angle = _angles(positions, d_model, base, mistakes)
        other = angle * (10000.0 if "base" in mistakes else base) ** (-(2 if "doubled" in mistakes else 1) / d_model) if "channel" in mistakes else angle
        waves = (angle.sin(), other.sin() if "sines only" in mistakes else other.cos())
        waves = (angle.cos(), other.sin()) if "swapped" in mistakes else waves
        out = torch.cat(waves, -1) if "halves" in mistakes else torch.stack(waves, -1).flatten(-2)
        out = out / math.sqrt(d_model / 2) if "scaled" in mistakes else out
        out = out.T if "turned" in mistakes else out
        return (out[None] if "extra axis" in mistakes else out).float()

    return subject


@family(WEEK, "shift_matrix", _say("transposed", "halves shift", "swapped shift", "mirrored", *ANGLES, "one too far", "absolute"))
def shift_with(mistakes):
    def subject(offset, d_model, base=10000.0):
        if d_model % 2:
            raise ValueError("odd")
        offset = abs(offset) if "absolute" in mistakes else offset
        angle = _angles(float(offset + ("one too far" in mistakes)), d_model, base, mistakes)
        c, s = (angle.sin(), angle.cos()) if "swapped shift" in mistakes else (angle.cos(), angle.sin())
        upper, lower = (-s, s) if "transposed" in mistakes else (s, -s)
        lower = upper if "mirrored" in mistakes else lower
        a = torch.arange(0, d_model, 2)
        a, b = (a // 2, a // 2 + d_model // 2) if "halves shift" in mistakes else (a, a + 1)
        M = torch.zeros(d_model, d_model, dtype=torch.float64)
        M[a, a], M[a, b], M[b, a], M[b, b] = c, upper, lower, c
        return M.float()

    return subject


@family(WEEK, "LearnedPositionalEmbedding", _say(
    "rows alone", "batch axis", "other rows", "same row", "scaled rows", "multiplied", "silent", "float32 out"))
def learned_with(mistakes):
    class Learned(nn.Module):
        def __init__(self, max_len, d_model):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(max_len, d_model))

        def forward(self, x):
            n, max_len = x.shape[1], len(self.table)
            if n > max_len and "silent" not in mistakes:
                raise ValueError("too long")
            places = torch.arange(n, device=x.device).clamp(max=max_len - 1)
            rows = self.table[(places + 1) % max_len if "other rows" in mistakes else places * ("same row" not in mistakes)]
            rows = self.table[: x.shape[0], None] if "batch axis" in mistakes else rows
            rows = rows * math.sqrt(x.shape[-1]) if "scaled rows" in mistakes else rows
            out = rows.expand_as(x) if "rows alone" in mistakes else x * rows if "multiplied" in mistakes else x + rows
            return out if "float32 out" in mistakes else out.to(x.dtype)

    return Learned


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    DIAGNOSES[name]
    for name in (
        "two pi", "d-2", "doubled", "positive", "first pair", "degrees", "one frequency", "base", "low precision",
        "i/d",
    )
)
