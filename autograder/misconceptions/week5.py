"""Known answers to week 5: wrong ones with their due score and the sentence that helps, right ones in other forms.

Exercise 5.4 is graded on top of the student's own 5.3 as well. So that an entry is due its score whatever stands in 5.3
(as in the simulated classroom), the bank of 5.4 makes mistakes of its own only; those of 5.3, made again, are in a
family.
"""

import math

import torch
import torch.nn.functional as F

from autograder.misconceptions.bank import ROUNDED_TOO_FAR, edited, family, numbers, right, wrong

WEEK = "week5_extrapolation"


# ---- 5.1 unturned_pairs ---------------------------------------------------------------------------------------------

counts = {"turns_first": 651.8986, "turns_last": 0.07528058, "boundary": 45.02688, "complete": 46, "never": 18}

numbers(WEEK, "unturned_pairs", "seven_digits", counts)
numbers(WEEK, "unturned_pairs", "four_digits", {
    "turns_first": 651.9, "turns_last": 0.07528, "boundary": 45.03, "complete": 46, "never": 18})
numbers(WEEK, "unturned_pairs", "whole_numbers_as_floats", counts | {"complete": 46.0, "never": 18.0})
numbers(WEEK, "unturned_pairs", "high_and_low_swapped", counts | {"complete": 18, "never": 46}, 2,
        "High and low are swapped: the fast pairs, with the small numbers, complete turns; the slow ones never do.")
numbers(WEEK, "unturned_pairs", "counted_from_one", counts | {"complete": 45, "never": 19}, 2,
        "Off by one: pairs are counted from 0, so a boundary between 45 and 46 leaves 46 pairs below it.")
numbers(WEEK, "unturned_pairs", "one_too_many", counts | {"complete": 47, "never": 17}, 2,
        "Off by one: pair 46 lies above the boundary and does not complete a turn any more.")
numbers(WEEK, "unturned_pairs", "channels_for_pairs", counts | {"complete": 92, "never": 36}, 2,
        "You count channels; the exercise asks for pairs, of which there are head_dim/2.")
numbers(WEEK, "unturned_pairs", "first_and_last_swapped",
        counts | {"turns_first": 0.07528058, "turns_last": 651.8986}, 2,
        "First and last are swapped: pair 0 is the fastest, with one radian per position.")
numbers(WEEK, "unturned_pairs", "without_two_pi", {
    "turns_first": 4096, "turns_last": 0.4729987, "boundary": 57.79776, "complete": 58, "never": 6,
}, 0, "A turn has 2 pi radians: you count radians, not turns.")
for _name, _score, _slips in (
    ("turns_without_two_pi", 2, {"turns_first": 4096, "turns_last": 0.4729987}),
    ("boundary_without_two_pi", 1, {"boundary": 57.79776, "complete": 58, "never": 6}),
    ("boundary_alone_without_two_pi", 2, {"boundary": 57.79776}),
):
    numbers(WEEK, "unturned_pairs", _name, counts | _slips, _score,
            "The 2 pi is missing in some of your numbers: a turn has 2 pi radians.")
numbers(WEEK, "unturned_pairs", "exponent_i_over_d", {
    "turns_first": 651.8986, "turns_last": 7.005354, "boundary": 90.05376, "complete": 64, "never": 0,
}, 0, "The exponent is -2i/d, not -i/d: your slow pairs turn too fast.")
numbers(WEEK, "unturned_pairs", "degrees", counts | {"turns_first": 11.37778, "turns_last": 0.001313885}, 2,
        "You divide by 360, but theta is in radians per position: one turn is 2 pi.")
numbers(WEEK, "unturned_pairs", "last_pair_is_64", counts | {"turns_last": 0.06518986}, 2,
        "The last pair has the number 63, not 64: its exponent is -126/128.")
numbers(WEEK, "unturned_pairs", "wavelengths", counts | {"turns_first": 6.283185, "turns_last": 54410.14}, 2,
        "These are positions per turn (wavelengths); the exercise asks for turns in 4096 positions.")
numbers(WEEK, "unturned_pairs", "boundary_for_d", counts | {"boundary": 90.05376}, 2,
        "Your boundary counts channels: the factor in front is d/2, not d.")
numbers(WEEK, "unturned_pairs", "two_digits", {
    "turns_first": 650, "turns_last": 0.075, "boundary": 45, "complete": 46, "never": 18,
}, 1, ROUNDED_TOO_FAR)


# ---- 5.2 position_interpolation -------------------------------------------------------------------------------------

PI = {
    "multiplied": "You multiply by the scale; positions must become smaller, so divide.",
    "unchanged": "With some scale the positions come back as they were. (Every scale divides them.)",
    "clamped": "Far positions are cut off at a limit; all of them must be divided by the scale.",
    "whole": "Whole-number division: 1/4 becomes 0. Positions must keep their fractions.",
    "dtype": "The dtype is not as asked: integers give float32, floats keep theirs.",
    "cut": "No gradient passes: a detach, torch.tensor, NumPy, a list or a whole-number division is on the way.",
    "rescaled": "You shrink the positions to the range 0..1; the exercise asks for a division by the scale.",
    "twice": "You divide by the scale twice, that is by its square; divide once.",
    "integers back": "The result is turned back into integers, and the fractions are lost.",
    "in place": "The positions themselves are changed in place; return a new tensor.",
    "counted": "Your result does not depend on the values of `positions`: they are counted 0, 1, 2, ... instead.",
}


@wrong(WEEK, "position_interpolation", 0, PI["counted"])
def pi_counted(positions, scale):
    return torch.arange(len(positions)) / scale


@wrong(WEEK, "position_interpolation", 0, PI["multiplied"])
def pi_multiplied(positions, scale):
    return positions.float() * scale if not positions.is_floating_point() else positions * scale


@wrong(WEEK, "position_interpolation", 0, PI["unchanged"])
def pi_unchanged(positions, scale):
    return positions.float() if not positions.is_floating_point() else positions


@wrong(WEEK, "position_interpolation", 0, PI["clamped"])
def pi_clamped(positions, scale):
    x = positions.float() if not positions.is_floating_point() else positions
    return x.clamp(max=float(x.detach().max()) / scale)


@wrong(WEEK, "position_interpolation", 0, PI["whole"])
def pi_floor_division(positions, scale):
    return positions // scale


@wrong(WEEK, "position_interpolation", 0, PI["integers back"])
def pi_integers_back(positions, scale):
    return (positions / scale).to(positions.dtype)


@wrong(WEEK, "position_interpolation", 0, PI["rescaled"])
def pi_unit_range(positions, scale):
    return positions.float() / positions.max() / scale


@wrong(WEEK, "position_interpolation", 0, PI["twice"])
def pi_twice(positions, scale):
    return positions.float() / scale**2


@wrong(WEEK, "position_interpolation", 1.25, PI["dtype"])
def pi_always_float32(positions, scale):
    return positions.to(torch.float32) / scale


@wrong(WEEK, "position_interpolation", 1.25, PI["dtype"])
def pi_always_float64(positions, scale):
    return positions.to(torch.float64) / scale


@wrong(WEEK, "position_interpolation", 1.875, PI["cut"])
def pi_detached(positions, scale):
    if positions.is_floating_point():
        return positions.detach() / scale
    return positions / scale


@wrong(WEEK, "position_interpolation", 1.875, PI["in place"])
def pi_in_place(positions, scale):
    if positions.is_floating_point():
        if positions.requires_grad:
            return positions / scale
        positions /= scale
        return positions
    return positions / scale


@right(WEEK, "position_interpolation")
def pi_true_division(positions, scale):
    return positions / scale


@right(WEEK, "position_interpolation")
def pi_product(positions, scale):
    dtype = positions.dtype if positions.is_floating_point() else torch.float32
    return positions.to(dtype) * (1.0 / scale)


@right(WEEK, "position_interpolation")
def pi_double_and_back(positions, scale):
    out = torch.div(positions.double(), scale)
    return out.to(positions.dtype) if positions.is_floating_point() else out.float()


# ---- 5.3 ntk_base ---------------------------------------------------------------------------------------------------

NTK = {
    "plain": "base * scale lacks the exponent d/(d-2): the last pair's own exponent is -(d-2)/d, not -1.",
    "inverse": "The exponent is upside down: d/(d-2), not (d-2)/d.",
    "twice": "The scale is applied twice: once in base * scale and once more in the power.",
    "base too": "The power belongs on the scale alone, not on base * scale.",
    "divided": "Your base becomes smaller; a larger base is what slows the pairs down.",
    "d over d-1": "The exponent is d/(d-2): there are d/2 pairs, and the last one has the number d/2 - 1.",
    "pairs": "Your exponent counts pairs, (d/2) / (d/2 - 2); it is d/(d-2) with d the head dimension.",
    "square": "The scale is squared; the exponent d/(d-2) is only a little above 1.",
    "base": "The default base is right, another one is not: use the argument `base`.",
    "clamped": "Scales of 1 and below are changed on the way; the formula holds for every scale.",
    "whole": "A whole-number division in the exponent: d // (d-2) is 1.",
    "brackets": "Brackets are missing in the exponent: it is d/(d-2) as a whole, head_dim / (head_dim - 2).",
}


@right(WEEK, "ntk_base")
def ntk_plain(base, scale, head_dim):
    return base * scale ** (head_dim / (head_dim - 2))


edited(ntk_plain, "ntk_cut", 2.25, "Your new base is cut off to a whole number.",
       ("base * scale ** (head_dim / (head_dim - 2))", "float(int(base * scale ** (head_dim / (head_dim - 2))))"))
edited(ntk_plain, "ntk_without_exponent", 0, NTK["plain"], (" ** (head_dim / (head_dim - 2))", ""))
edited(ntk_plain, "ntk_exponent_inverse", 0, NTK["inverse"],
       ("(head_dim / (head_dim - 2))", "((head_dim - 2) / head_dim)"))
edited(ntk_plain, "ntk_scale_twice", 0, NTK["twice"], ("base * scale", "base * scale * scale"))
edited(ntk_plain, "ntk_power_of_all", 0, NTK["base too"], ("base * scale **", "(base * scale) **"))
edited(ntk_plain, "ntk_divided", 0, NTK["divided"], ("base * scale", "base / scale"))
edited(ntk_plain, "ntk_d_minus_one", 0, NTK["d over d-1"], ("(head_dim - 2)", "(head_dim - 1)"))
edited(ntk_plain, "ntk_pairs_for_channels", 0, NTK["pairs"], ("(head_dim / (head_dim - 2))", "(head_dim / 2 / (head_dim / 2 - 2))"))
edited(ntk_plain, "ntk_squared", 0, NTK["square"], ("(head_dim / (head_dim - 2))", "2"))
edited(ntk_plain, "ntk_whole_exponent", 0, NTK["whole"], ("head_dim / (", "head_dim // ("))
edited(ntk_plain, "ntk_no_outer_brackets", 0, NTK["brackets"], ("(head_dim / (head_dim - 2))", "head_dim / (head_dim - 2)"))
edited(ntk_plain, "ntk_no_inner_brackets", 0, NTK["brackets"], ("(head_dim / (head_dim - 2))", "(head_dim / head_dim - 2)"))
edited(ntk_plain, "ntk_own_base", 2.25, NTK["base"], ("base * scale", "10000.0 * scale"))
edited(ntk_plain, "ntk_clamped", 2.25, NTK["clamped"], ("scale **", "max(scale, 1.0) **"))


@right(WEEK, "ntk_base")
def ntk_logarithms(base, scale, head_dim):
    return math.exp(math.log(base) + math.log(scale) * head_dim / (head_dim - 2))


@right(WEEK, "ntk_base")
def ntk_from_the_condition(base, scale, head_dim):
    slowest = base ** (-(head_dim - 2) / head_dim) / scale
    return slowest ** (-head_dim / (head_dim - 2))


@right(WEEK, "ntk_base")
def ntk_tensor_float32(base, scale, head_dim):
    exponent = torch.tensor(head_dim / (head_dim - 2), dtype=torch.float32)
    return float(base * torch.tensor(float(scale)).pow(exponent))


ntk_right = {"new_base": 41829.37, "first_pair_ratio": 1, "last_pair_ratio": 0.25}
numbers(WEEK, "ntk_by_hand", "seven_digits", ntk_right)
numbers(WEEK, "ntk_by_hand", "five_digits", ntk_right | {"new_base": 41829})
numbers(WEEK, "ntk_by_hand", "floats", ntk_right | {"new_base": 41829.4, "first_pair_ratio": 1.0})
numbers(WEEK, "ntk_by_hand", "without_exponent", ntk_right | {"new_base": 40000}, 0.5, NTK["plain"])
numbers(WEEK, "ntk_by_hand", "exponent_inverse", ntk_right | {"new_base": 38304.13}, 0.5, NTK["inverse"])
numbers(WEEK, "ntk_by_hand", "scale_twice", ntk_right | {"new_base": 167317.5}, 0.5, NTK["twice"])
numbers(WEEK, "ntk_by_hand", "d_minus_one", ntk_right | {"new_base": 40889.95}, 0.5, NTK["d over d-1"])
numbers(WEEK, "ntk_by_hand", "from_a_blog", ntk_right | {"new_base": 41400}, 0.5,
        "This looks like twice the 20,700 of a well-known post: compute it, 10000 * 4**(64/62).")
numbers(WEEK, "ntk_by_hand", "power_of_all", ntk_right | {"new_base": 56300.67}, 0.5,
        "The power belongs on the scale alone, not on base * scale.")
numbers(WEEK, "ntk_by_hand", "all_pairs_slower", ntk_right | {"first_pair_ratio": 0.25}, 0.5,
        "The first pair is not slowed down: its frequency is base**0 = 1 for every base.")
numbers(WEEK, "ntk_by_hand", "ratio_upside_down", ntk_right | {"last_pair_ratio": 4}, 0.5,
        "The ratio is upside down: the exercise asks for new frequency / old frequency, and the new one is smaller.")
numbers(WEEK, "ntk_by_hand", "first_and_last_swapped",
        ntk_right | {"first_pair_ratio": 0.25, "last_pair_ratio": 1}, 0.5,
        "First and last are swapped: pair 0 keeps its frequency, the last pair is slowed down.")
numbers(WEEK, "ntk_by_hand", "ratio_of_bases", ntk_right | {"last_pair_ratio": 0.2390665}, 0.5,
        "This is old base / new base; the last pair's exponent is -(d-2)/d, and its frequency falls by exactly the scale.")


# ---- 5.4 dynamic_ntk_base -------------------------------------------------------------------------------------------

DYNAMIC = {
    "below": "Up to original_len the base must stay as it is; your formula is used there too.",
    "static": "The scale alone is used, not the length: that is the static NTK base of 5.3.",
    "ratio": "Your stretch is seq_len/original_len; the scale is missing: scale * seq_len/original_len - (scale - 1).",
    "no offset": "The - (scale - 1) is missing: just beyond the training length the base jumps.",
    "minus one": "The stretch is scale * ratio - (scale - 1), not scale * ratio - 1.",
    "exponent": "The exponent d/(d-2) is missing on the stretch.",
    "inverse": "The exponent is upside down: d/(d-2), not (d-2)/d.",
    "brackets": "The brackets around (scale - 1) are missing: without them 1 is taken away, not added.",
    "all scaled": "The scale multiplies the whole bracket; it belongs to seq_len/original_len alone.",
    "less": "At seq_len == original_len the base must be unchanged; mind the comparison and the formula there.",
    "ratio upside down": "The ratio is upside down: seq_len / original_len grows with the text.",
    "whole": "A whole-number division: seq_len // original_len moves in jumps.",
    "written out": "A training length is written out, here or in the comparison; it is the parameter original_len.",
    "never": "The base never changes: beyond original_len it must grow.",
}


@right(WEEK, "dynamic_ntk_base")
def dynamic_plain(base, scale, head_dim, seq_len, original_len):
    if seq_len <= original_len:
        return float(base)
    stretch = scale * seq_len / original_len - (scale - 1)
    return base * stretch ** (head_dim / (head_dim - 2))


edited(dynamic_plain, "dynamic_4096_written_out", 0, DYNAMIC["written out"],
       ("seq_len <= original_len", "seq_len <= 4096"), ("seq_len / original_len", "seq_len / 4096"))
edited(dynamic_plain, "dynamic_4096_in_the_comparison", 0, DYNAMIC["written out"], ("seq_len <= original_len", "seq_len <= 4096"))
edited(dynamic_plain, "dynamic_beyond_the_new_length", 0, "Your base begins to grow at scale * original_len; it must grow from "
       "original_len on.", ("seq_len <= original_len", "seq_len <= scale * original_len"))
edited(dynamic_plain, "dynamic_last_position", 0, "You use the last position, seq_len - 1, instead of the length.",
       ("scale * seq_len /", "scale * (seq_len - 1) /"))
edited(dynamic_plain, "dynamic_scale_cut", 0, "Your scale is cut off to a whole number.",
       ("scale * seq_len / original_len - (scale - 1)", "int(scale) * seq_len / original_len - (int(scale) - 1)"))
edited(dynamic_plain, "dynamic_power_of_the_length", 0, "The exponent d/(d-2) belongs on the whole stretch; you put it on seq_len / original_len alone.",
       ("scale * seq_len / original_len - (scale - 1)",
        "scale * (seq_len / original_len) ** (head_dim / (head_dim - 2)) - (scale - 1)"),
       ("stretch ** (head_dim / (head_dim - 2))", "stretch"))
edited(dynamic_plain, "dynamic_below_too", 1.25, DYNAMIC["below"],
       ("if seq_len <= original_len:\n        return float(base)\n    ", ""),
       ("- (scale - 1)\n", "- (scale - 1)\n    stretch = abs(stretch) + 1e-9\n"))
edited(dynamic_plain, "dynamic_static", 0, DYNAMIC["static"], ("scale * seq_len / original_len - (scale - 1)", "scale"))
edited(dynamic_plain, "dynamic_ratio_only", 0, DYNAMIC["ratio"],
       ("scale * seq_len / original_len - (scale - 1)", "seq_len / original_len"))
edited(dynamic_plain, "dynamic_no_offset", 0, DYNAMIC["no offset"], (" - (scale - 1)", ""))
edited(dynamic_plain, "dynamic_minus_one", 0, DYNAMIC["minus one"], ("- (scale - 1)", "- 1"))
edited(dynamic_plain, "dynamic_brackets", 0, DYNAMIC["brackets"], ("- (scale - 1)", "- scale - 1"),
       ("stretch **", "abs(stretch) **"))
edited(dynamic_plain, "dynamic_without_brackets", 0, DYNAMIC["brackets"], ("- (scale - 1)", "- scale - 1"))
edited(dynamic_plain, "dynamic_scale_on_all", 0, DYNAMIC["all scaled"],
       ("scale * seq_len / original_len - (scale - 1)", "scale * (seq_len / original_len - (scale - 1))"),
       ("return base * stretch", "return base * max(stretch, 1e-9)"))
edited(dynamic_plain, "dynamic_upside_down", 0, DYNAMIC["ratio upside down"],
       ("scale * seq_len / original_len - (scale - 1)", "abs(scale * original_len / seq_len - (scale - 1))"))
edited(dynamic_plain, "dynamic_whole_ratio", 0, DYNAMIC["whole"],
       ("scale * seq_len / original_len", "scale * (seq_len // original_len)"))
edited(dynamic_plain, "dynamic_never", 0, DYNAMIC["never"],
       ("base * stretch ** (head_dim / (head_dim - 2))", "float(base)"))


@wrong(WEEK, "dynamic_ntk_base", 1.25, "This call goes wrong after other calls. (What you keep from one call must not change "
       "the next.)", remembers=True)
def dynamic_remembers(base, scale, head_dim, seq_len, original_len, seen={}):  # noqa: B006
    key = (base, scale, head_dim, original_len)
    seen[key] = max(seen.get(key, 0), seq_len)
    if seen[key] <= original_len:
        return float(base)
    stretch = scale * seen[key] / original_len - (scale - 1)
    return base * stretch ** (head_dim / (head_dim - 2))


@right(WEEK, "dynamic_ntk_base")
def dynamic_max(base, scale, head_dim, seq_len, original_len):
    n = max(seq_len, original_len)
    return base * ((scale * n / original_len) - (scale - 1)) ** (head_dim / (head_dim - 2))


@right(WEEK, "dynamic_ntk_base")
def dynamic_at_least_one(base, scale, head_dim, seq_len, original_len):
    stretch = max(1.0, scale * seq_len / original_len - (scale - 1))
    return base * stretch ** (head_dim / (head_dim - 2))


@right(WEEK, "dynamic_ntk_base")
def dynamic_excess(base, scale, head_dim, seq_len, original_len):
    excess = max(0.0, seq_len / original_len - 1)
    return base * math.pow(1 + scale * excess, head_dim / (head_dim - 2))


@right(WEEK, "dynamic_ntk_base")
def dynamic_strictly_less(base, scale, head_dim, seq_len, original_len):
    if seq_len < original_len:
        return float(base)
    growth = math.log(scale * seq_len / original_len - scale + 1)
    return math.exp(math.log(base) + growth * head_dim / (head_dim - 2))


@family(WEEK, "dynamic_ntk_base", {"exponent": DYNAMIC["exponent"], "inverse": DYNAMIC["inverse"]})
def dynamic_family(mistakes):
    def dynamic_ntk_base(base, scale, head_dim, seq_len, original_len):
        stretch = max(scale * seq_len / original_len - (scale - 1), 1.0)
        power = (head_dim - 2) / head_dim if "inverse" in mistakes else head_dim / (head_dim - 2)
        return base * stretch ** (1.0 if "exponent" in mistakes else power)

    return dynamic_ntk_base


# ---- 5.5 yarn_frequencies -------------------------------------------------------------------------------------------

YARN = {
    "reversed": "The ramp is reversed: fast pairs (small i) stay as they are, slow ones are divided by the scale.",
    "over d": "The ramp runs over channels, not over pairs: i counts 0 .. head_dim/2 - 1.",
    "new length": "dim(r) takes the original length, not the new one (original_len * scale).",
    "not rounded": "The ends of the ramp are not rounded: low down to a whole pair, high up.",
    "rounded inwards": "The ends are rounded the wrong way: low down (floor), high up (ceil).",
    "nearest": "The ends are rounded to the nearest whole number: low goes down (floor), high up (ceil).",
    "low not clamped": "low is not clamped: it may not fall below 0.",
    "high not clamped": "high is not clamped: it may not rise above head_dim - 1.",
    "high at last pair": "high is clamped to the last pair, head_dim/2 - 1; the official code clamps it to "
                         "head_dim - 1.",
    "equal": "If low equals high, the ramp divides by zero: add 0.001 to high.",
    "two pi": "The 2 pi is missing in dim(r): a turn has 2 pi radians.",
    "no half": "The factor 2 in front of ln(base) is missing in dim(r).",
    "no clamp": "The ramp itself is not clamped to 0 .. 1.",
    "multiplied": "The slow pairs are multiplied by the scale; they must turn slower: divide.",
    "everything": "All pairs are divided by the scale: that is position interpolation.",
    "nothing": "Nothing is changed: the slow pairs must be divided by the scale.",
    "ntk": "You change the base for the slow pairs (NTK); YaRN interpolates them: divide by the scale.",
    "step": "There is no ramp, only a step: between low and high the two frequencies are mixed linearly.",
    "over turns": "The ramp is linear in the number of turns, as in the paper; the official code, and this exercise, "
                  "have it linear in the number of the pair.",
    "wavelengths": "You mix wavelengths (the reciprocals); the frequencies are mixed linearly.",
    "temperature": "The temperature is multiplied into the frequencies; it belongs on cosine and sine, not here.",
    "betas swapped": "beta_fast and beta_slow are swapped: 32 turns give low, 1 turn gives high.",
    "base": "The base is written out somewhere; use the argument `base` in the ramp and in the frequencies.",
    "betas": "The betas are written out; use the arguments beta_fast and beta_slow.",
    "odd": "An odd head_dim must raise ValueError.",
    "dtype": "The result must be float32.",
    "log10": "The logarithms do not match: use the natural one in both places, or the same one.",
}


@right(WEEK, "yarn_frequencies")
def yarn_plain(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")

    def dim(r):
        return head_dim * math.log(original_len / (r * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dim(beta_fast)), 0)
    high = min(math.ceil(dim(beta_slow)), head_dim - 1)
    if low == high:
        high += 0.001
    theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return theta * (1 - ramp) + theta / scale * ramp


MIX = "theta * (1 - ramp) + theta / scale * ramp"
edited(yarn_plain, "yarn_slow_end_fixed", 3.25, "The argument beta_slow is ignored.", ("dim(beta_slow)", "dim(1.0)"))
edited(yarn_plain, "yarn_reversed", 0, YARN["reversed"], (MIX, "theta * ramp + theta / scale * (1 - ramp)"))
edited(yarn_plain, "yarn_over_channels", 0, YARN["over d"],
       ("(torch.arange(head_dim // 2, dtype=torch.float32) - low)",
        "(torch.arange(0, head_dim, 2, dtype=torch.float32) - low)"))
edited(yarn_plain, "yarn_new_length", 0, YARN["new length"], ("original_len / (r", "original_len * scale / (r"))
edited(yarn_plain, "yarn_not_rounded", 0, YARN["not rounded"], ("math.floor(dim(beta_fast))", "dim(beta_fast)"),
       ("math.ceil(dim(beta_slow))", "dim(beta_slow)"))
edited(yarn_plain, "yarn_rounded_inwards", 0, YARN["rounded inwards"],
       ("math.floor", "math.ceil "), ("math.ceil(", "math.floor("))
edited(yarn_plain, "yarn_nearest", 0, YARN["nearest"], ("math.floor", "round"), ("math.ceil", "round"))
edited(yarn_plain, "yarn_low_not_clamped", 3.25, YARN["low not clamped"],
       ("max(math.floor(dim(beta_fast)), 0)", "math.floor(dim(beta_fast))"))
edited(yarn_plain, "yarn_high_not_clamped", 3.25, YARN["high not clamped"],
       ("min(math.ceil(dim(beta_slow)), head_dim - 1)", "math.ceil(dim(beta_slow))"))
edited(yarn_plain, "yarn_high_at_last_pair", 3.25, YARN["high at last pair"], ("head_dim - 1)", "head_dim // 2 - 1)"))
edited(yarn_plain, "yarn_equal_ends", 3.25, YARN["equal"], ("    if low == high:\n        high += 0.001\n", ""))
edited(yarn_plain, "yarn_without_two_pi", 0, YARN["two pi"], ("(r * 2 * math.pi)", "r"))
edited(yarn_plain, "yarn_without_half", 0, YARN["no half"], ("(2 * math.log(base))", "math.log(base)"))
edited(yarn_plain, "yarn_ramp_not_clamped", 0, YARN["no clamp"], (".clamp(0, 1)", ""))
edited(yarn_plain, "yarn_multiplied", 0, YARN["multiplied"], ("theta / scale", "theta * scale"))
edited(yarn_plain, "yarn_all_interpolated", 0, YARN["everything"], (MIX, "theta / scale + 0 * ramp"))
edited(yarn_plain, "yarn_nothing", 0, YARN["nothing"], (MIX, "theta"))
edited(yarn_plain, "yarn_ntk_for_slow", 0, YARN["ntk"],
       ("theta / scale * ramp",
        "(base * scale ** (head_dim / (head_dim - 2.0))) ** (-torch.arange(0, head_dim, 2) / head_dim) * ramp"))
edited(yarn_plain, "yarn_step", 0, YARN["step"], (".clamp(0, 1)", ".clamp(0, 1).ceil()"))
edited(yarn_plain, "yarn_step_at_high", 0, YARN["step"], (".clamp(0, 1)", ".clamp(0, 1).floor()"))
edited(yarn_plain, "yarn_mixed_wavelengths", 0, YARN["wavelengths"],
       (MIX, "1 / ((1 - ramp) / theta + ramp * scale / theta)"))
edited(yarn_plain, "yarn_with_temperature", 0, YARN["temperature"],
       ("return theta", "theta = theta * (0.1 * math.log(scale) + 1)\n    return theta"))
edited(yarn_plain, "yarn_betas_swapped", 0, YARN["betas swapped"],
       ("dim(beta_fast)", "dim(beta_slow )"), ("dim(beta_slow))", "dim(beta_fast))"))
edited(yarn_plain, "yarn_logarithms_mixed", 0, YARN["log10"], ("math.log(base)", "math.log10(base)"))
edited(yarn_plain, "yarn_base_in_ramp", 2.5, YARN["base"], ("math.log(base)", "math.log(10000)"))
edited(yarn_plain, "yarn_base_in_speeds", 2.5, YARN["base"], ("theta = base", "theta = 10000.0"))
edited(yarn_plain, "yarn_own_betas", 2.5, YARN["betas"], ("dim(beta_fast)", "dim(32)"), ("dim(beta_slow)", "dim(1)"))
edited(yarn_plain, "yarn_odd_accepted", 3.5, YARN["odd"],
       ('    if head_dim % 2:\n        raise ValueError("head_dim must be even")\n', ""))
edited(yarn_plain, "yarn_float64", 3.5, YARN["dtype"], ("+ theta / scale * ramp", "+ theta / scale * ramp.double()"))


@wrong(WEEK, "yarn_frequencies", 0, YARN["over turns"])
def yarn_ramp_over_turns(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    turns = original_len * theta / (2 * math.pi)
    kept = ((turns - beta_slow) / (beta_fast - beta_slow)).clamp(0, 1)
    return ((1 - kept) * theta / scale + kept * theta).float()


@right(WEEK, "yarn_frequencies")
def yarn_loop(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2 == 1:
        raise ValueError(f"odd head_dim {head_dim}")
    bounds = []
    for turns in (beta_fast, beta_slow):
        bounds.append(head_dim / 2 * (math.log(original_len) - math.log(2 * math.pi * turns)) / math.log(base))
    low, high = max(0, math.floor(bounds[0])), min(head_dim - 1, math.ceil(bounds[1]))
    out = []
    for i in range(head_dim // 2):
        theta = base ** (-2 * i / head_dim)
        g = min(1.0, max(0.0, (i - low) / (high - low if high != low else 0.001)))
        out.append(theta * (1 - g) + g * theta / scale)
    return torch.tensor(out)


@right(WEEK, "yarn_frequencies")
def yarn_as_in_transformers(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError("head_dim")

    def find_correction_dim(num_rotations):
        return (head_dim * math.log(original_len / (num_rotations * 2 * math.pi))) / (2 * math.log(base))

    low, high = math.floor(find_correction_dim(beta_fast)), math.ceil(find_correction_dim(beta_slow))
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    linear = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)
    extrapolation_factor = 1 - torch.clamp(linear, 0, 1)
    pos_freqs = base ** (torch.arange(0, head_dim, 2).float() / head_dim)
    return (1.0 / (scale * pos_freqs)) * (1 - extrapolation_factor) + (1.0 / pos_freqs) * extrapolation_factor


@right(WEEK, "yarn_frequencies")
def yarn_never_shrinks(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError("head_dim must be even")
    i = torch.arange(head_dim // 2)
    theta = base ** (-2 * i / head_dim)
    if scale <= 1:
        return theta
    ends = [head_dim / 2 * math.log(original_len / (2 * math.pi * r)) / math.log(base) for r in (beta_fast, beta_slow)]
    low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), head_dim - 1)
    ramp = ((i - low) / ((high - low) or 0.001)).clamp(0, 1)
    return theta / scale * ramp + theta * (1 - ramp)


@right(WEEK, "yarn_frequencies")
def yarn_one_factor(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError("pairs!")
    per_pair = 2 * math.log(base) / head_dim
    low = max(math.floor(math.log(original_len / (2 * math.pi * beta_fast)) / per_pair), 0)
    high = min(math.ceil(math.log(original_len / (2 * math.pi * beta_slow)) / per_pair), head_dim - 1)
    i = torch.arange(head_dim // 2, dtype=torch.float64)
    gamma = torch.clip((i - low) / max(high - low, 0.001), 0.0, 1.0)
    return (torch.exp(-i * per_pair) * (1 + gamma * (1 / scale - 1))).to(torch.float32)


# ---- yarn_temperature -----------------------------------------------------------------------------------------------

HOT = {
    "squared": "This is the factor on a logit, the square; cosine and sine get 0.1 ln(s) + 1 each.",
    "root": "You take a square root: the factor itself goes on cosine and on sine, and the logit gets its square.",
    "inverse": "This is the reciprocal: the factor makes logits larger, so it lies above 1.",
    "log10": "You use the logarithm to base 10; use the natural one.",
    "log2": "You use the logarithm to base 2; use the natural one.",
    "no one": "The + 1 is missing: without stretching the factor is 1, not 0.",
    "no tenth": "The factor 0.1 in front of the logarithm is missing.",
    "clamp": "For scale <= 1 the factor is 1; your formula goes on below.",
    "bracket": "The + 1 is inside the logarithm: 0.1 * ln(s) + 1, not 0.1 * ln(s + 1).",
    "outside": "The brackets are wrong: 0.1 * ln(s) + 1, not 0.1 * (ln(s) + 1).",
    "log n": "This is a log-n factor; YaRN's is 0.1 ln(s) + 1.",
    "zero": "For scale <= 1 the factor is 1, not 0.",
}


@right(WEEK, "yarn_temperature")
def hot_plain(scale):
    if scale <= 1:
        return 1.0
    return 0.1 * math.log(scale) + 1.0


edited(hot_plain, "hot_squared", 0, HOT["squared"],
       ("0.1 * math.log(scale) + 1.0", "(0.1 * math.log(scale) + 1.0) ** 2"))
edited(hot_plain, "hot_root", 0, HOT["root"], ("0.1 * math.log(scale) + 1.0", "(0.1 * math.log(scale) + 1.0) ** 0.5"))
edited(hot_plain, "hot_inverse", 0, HOT["inverse"],
       ("0.1 * math.log(scale) + 1.0", "1 / (0.1 * math.log(scale) + 1.0)"))
edited(hot_plain, "hot_squared_logarithm", 0, "You square the logarithm; it is 0.1 ln(s) + 1.", ("math.log(scale)", "math.log(scale) ** 2"))
edited(hot_plain, "hot_divisor", 0, "This is the temperature that logits are divided by; cosine and sine are multiplied by 0.1 ln(s) + 1.",
       ("return 0.1 * math.log(scale) + 1.0", "return 1 / (0.1 * math.log(scale) + 1.0) ** 2"))
edited(hot_plain, "hot_log10", 0, HOT["log10"], ("math.log(", "math.log10("))
edited(hot_plain, "hot_log2", 0, HOT["log2"], ("math.log(", "math.log2("))
edited(hot_plain, "hot_without_one", 0, HOT["no one"], (" + 1.0", ""))
edited(hot_plain, "hot_without_tenth", 0, HOT["no tenth"], ("0.1 * ", ""))
edited(hot_plain, "hot_one_inside", 0, HOT["bracket"], ("math.log(scale) + 1.0", "math.log(scale + 1.0)"))
edited(hot_plain, "hot_brackets", 0, HOT["outside"], ("math.log(scale) + 1.0", "(math.log(scale) + 1.0)"))
edited(hot_plain, "hot_not_clamped", 1.5, HOT["clamp"], ("    if scale <= 1:\n        return 1.0\n", ""))
edited(hot_plain, "hot_zero_below", 1.5, HOT["zero"], ("return 1.0\n", "return 0.0\n"))


@right(WEEK, "yarn_temperature")
def hot_at_least_one(scale):
    return max(1.0, 0.1 * math.log(scale) + 1.0)


@right(WEEK, "yarn_temperature")
def hot_max(scale):
    return 1.0 + 0.1 * math.log(max(scale, 1.0))


@right(WEEK, "yarn_temperature")
def hot_conditional(scale):
    return 0.1 * math.log10(scale) / math.log10(math.e) + 1 if scale > 1 else 1.0


@right(WEEK, "yarn_temperature")
def hot_torch(scale):
    return float(torch.log(torch.tensor(float(scale), dtype=torch.float64)).clamp(min=0) / 10 + 1)


yarn_right = {"low": 20, "high": 46, "temperature": 1.138629, "logit_factor": 1.296477}
numbers(WEEK, "yarn_by_hand", "seven_digits", yarn_right)
numbers(WEEK, "yarn_by_hand", "four_digits", yarn_right | {"temperature": 1.139, "logit_factor": 1.296})
numbers(WEEK, "yarn_by_hand",
        "floats", yarn_right | {"low": 20.0, "high": 46.0, "temperature": 1.1386, "logit_factor": 1.2965})
numbers(WEEK, "yarn_by_hand", "not_rounded", yarn_right | {"low": 20.94448, "high": 45.02688}, 0.5, YARN["not rounded"])
numbers(WEEK, "yarn_by_hand", "rounded_inwards", yarn_right | {"low": 21, "high": 45}, 0.5, YARN["rounded inwards"])
numbers(WEEK, "yarn_by_hand", "nearest", yarn_right | {"low": 21, "high": 45.0}, 0.5, YARN["rounded inwards"])
numbers(WEEK, "yarn_by_hand", "swapped", yarn_right | {"low": 46, "high": 20}, 0.5, YARN["betas swapped"])
numbers(WEEK, "yarn_by_hand", "new_length", yarn_right | {"low": 30, "high": 55}, 0.5, YARN["new length"])
numbers(WEEK, "yarn_by_hand", "without_two_pi", yarn_right | {"low": 33, "high": 58}, 0.5, YARN["two pi"])
numbers(WEEK, "yarn_by_hand", "channels", yarn_right | {"low": 41, "high": 91}, 0.5,
        "You count channels; the ramp counts pairs: the factor in front is d/2, not d.")
numbers(WEEK, "yarn_by_hand", "temperature_squared",
        yarn_right | {"temperature": 1.296477, "logit_factor": 1.680853}, 0.5,
        HOT["squared"])
numbers(WEEK, "yarn_by_hand", "logit_not_squared", yarn_right | {"logit_factor": 1.138629}, 0.5,
        "The query and the key both carry the factor, so the logit gets its square.")
numbers(WEEK, "yarn_by_hand", "doubled", yarn_right | {"logit_factor": 2.277259}, 0.5,
        "Two factors multiply: the logit gets the square, not the double.")
numbers(WEEK, "yarn_by_hand", "log10", yarn_right | {"temperature": 1.060206, "logit_factor": 1.124037}, 0.5,
        HOT["log10"])


# ---- 5.6 loss_by_length ---------------------------------------------------------------------------------------------

LOSS = {
    "whole window": "You average over the whole window; only the last n_targets tokens count.",
    "no eval": "With the model in eval mode the losses are right, in train mode they are not: switch the model to eval "
               "mode while you measure, or its dropout spoils the loss.",
    "left in eval": "The model is left in eval mode: put every submodule back as you found it.",
    "left in train": "Afterwards everything is in train mode, whatever it was before: restore what you found.",
    "top flag": "Only the outermost training flag is restored, and all parts follow it; restore every submodule's own.",
    "recorded": "The model runs with gradients recorded: measure under torch.no_grad().",
    "switched off": "Gradients stay switched off after your function: use `with torch.no_grad():`, which ends by "
                    "itself.",
    "prefix": "You cut from the start of the text, so every length has other targets; cut from the end.",
    "unshifted": "Inputs and targets are not shifted against each other: the logits at a place predict the next token.",
    "short context": "The context is one token too short: tokens[:, -L-1:-1] has L tokens.",
    "sees target": "The context includes the last target: the input must end one token before the text does.",
    "first targets": "You score the first n_targets places of the window; the exercise asks for the last ones.",
    "one target": "You score only the very last token, not the last n_targets.",
    "bits": "The loss is in bits (logarithm to base 2); nats are asked for.",
    "perplexity": "You return the perplexity exp(loss); the exercise asks for the loss.",
    "summed": "You add up the losses; the exercise asks for their mean.",
    "per text": "You divide by the number of targets only, or of texts only; the mean goes over both.",
    "softmax twice": "A softmax is applied before cross_entropy, which applies its own.",
    "tensors": "The losses must be Python floats: use .item().",
    "refuses nothing": "A text that is too short, or too many targets, must raise ValueError.",
    "targets unchecked": "More targets than the context has tokens must raise ValueError.",
    "text unchecked": "A text that is too short for a length must raise ValueError.",
    "one window": "The model reads the longest window at every length; give it only L tokens.",
    "one more target": "One target too many is scored.",
    "first text": "Only the first text of the batch is scored.",
    "negative": "The sign is missing: the loss is minus the log-probability.",
}


@right(WEEK, "loss_by_length")
def loss_plain(model, tokens, lengths, n_targets):
    for length in lengths:
        if length >= tokens.shape[1]:
            raise ValueError("text too short")
        if n_targets > length:
            raise ValueError("too many targets")
    flags = [module.training for module in model.modules()]
    model.eval()
    losses = {}
    with torch.no_grad():
        for length in lengths:
            window = tokens[:, -length - 1:-1]
            logits = model(window)[:, -n_targets:]
            targets = tokens[:, -n_targets:]
            losses[length] = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)).item()
    for module, flag in zip(model.modules(), flags):
        module.training = flag
    return losses


RESTORE = "    for module, flag in zip(model.modules(), flags):\n        module.training = flag\n"
TOO_SHORT = '        if length >= tokens.shape[1]:\n            raise ValueError("text too short")\n'
TOO_MANY = '        if n_targets > length:\n            raise ValueError("too many targets")\n'
SCORED = "F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))"
edited(loss_plain, "loss_log_of_the_mean", 0, "You average probabilities before the logarithm; the loss is the mean of the logarithms.",
       (SCORED, "-logits.softmax(-1).gather(-1, targets[..., None]).mean().log()"))
edited(loss_plain, "loss_whole_window", 0, LOSS["whole window"], ("model(window)[:, -n_targets:]", "model(window)"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -length:]"))
edited(loss_plain, "loss_train_mode", 3, LOSS["no eval"], ("    model.eval()\n", ""))
edited(loss_plain, "loss_left_in_eval", 3.25, LOSS["left in eval"], (RESTORE, ""))
edited(loss_plain, "loss_left_in_train", 3.25, LOSS["left in train"], (RESTORE, "    model.train()\n"))
edited(loss_plain, "loss_top_flag", 3.25, LOSS["top flag"], (RESTORE, "    model.train(flags[0])\n"))
edited(loss_plain, "loss_top_flag_only", 3.25,
       "Only the outermost training flag is restored; the parts are left in eval mode.",
       (RESTORE, "    model.training = flags[0]\n"))
edited(loss_plain, "loss_recorded", 3.5, LOSS["recorded"], ("with torch.no_grad():", "if True:"))
edited(loss_plain, "loss_switched_off", 3.5, LOSS["switched off"],
       ("    with torch.no_grad():", "    torch.set_grad_enabled(False)\n    if True:"))
edited(loss_plain, "loss_switched_off_when_it_refuses", 3.5, LOSS["switched off"],
       ("    for length in lengths:\n        if", "    torch.set_grad_enabled(False)\n    for length in lengths:\n        if"),
       ("    with torch.no_grad():", "    if True:"), ("    return losses", "    torch.set_grad_enabled(True)\n    return losses"))
edited(loss_plain, "loss_prefix", 0, LOSS["prefix"], ("tokens[:, -length - 1:-1]", "tokens[:, :length]"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, length + 1 - n_targets:length + 1]"))
edited(loss_plain, "loss_unshifted", 0, LOSS["unshifted"],
       ("targets = tokens[:, -n_targets:]", "targets = window[:, -n_targets:]"))
edited(loss_plain, "loss_short_context", 0, LOSS["short context"],
       ("tokens[:, -length - 1:-1]", "tokens[:, -length:-1]"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -logits.shape[1]:]"))
edited(loss_plain, "loss_sees_target", 0, LOSS["sees target"], ("tokens[:, -length - 1:-1]", "tokens[:, -length:]"))
edited(loss_plain, "loss_first_targets", 0, LOSS["first targets"],
       ("model(window)[:, -n_targets:]", "model(window)[:, :n_targets]"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -length:][:, :n_targets]"))
edited(loss_plain, "loss_last_token", 0, LOSS["one target"], ("model(window)[:, -n_targets:]", "model(window)[:, -1:]"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -1:]"))
edited(loss_plain, "loss_base_ten", 0, "Your losses are logarithms to base 10; nats are natural logarithms.",
       (".item()", ".item() / math.log(10)"))
edited(loss_plain, "loss_bits", 0, LOSS["bits"], (".item()", ".item() / math.log(2)"))
edited(loss_plain, "loss_perplexity", 0, LOSS["perplexity"], (".item()", ".exp().item()"))
edited(loss_plain, "loss_summed", 0, LOSS["summed"], ("targets.reshape(-1))", 'targets.reshape(-1), reduction="sum")'))
edited(loss_plain, "loss_per_text", 0, LOSS["per text"],
       ("targets.reshape(-1)).item()", 'targets.reshape(-1), reduction="sum").item() / n_targets'))
edited(loss_plain, "loss_softmax_twice", 0, LOSS["softmax twice"],
       ("model(window)[:, -n_targets:]", "model(window)[:, -n_targets:].softmax(-1)"))
edited(loss_plain, "loss_tensors", 3.5, LOSS["tensors"], (".item()", ""))
edited(loss_plain, "loss_refuses_nothing", 3.5, LOSS["refuses nothing"],
       ("    for length in lengths:\n" + TOO_SHORT + TOO_MANY, ""),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -logits.shape[1]:]"))
edited(loss_plain, "loss_targets_unchecked", 3.5, LOSS["targets unchecked"], (TOO_MANY, ""),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:, -logits.shape[1]:]"))
edited(loss_plain, "loss_text_unchecked", 3.5, LOSS["text unchecked"], (TOO_SHORT, ""))
edited(loss_plain, "loss_one_window", 0, LOSS["one window"],
       ("window = tokens[:, -length - 1:-1]", "window = tokens[:, -max(lengths) - 1:-1]"))
edited(loss_plain, "loss_first_text", 0, LOSS["first text"],
       ("tokens[:, -length - 1:-1]", "tokens[:1, -length - 1:-1]"),
       ("targets = tokens[:, -n_targets:]", "targets = tokens[:1, -n_targets:]"))
edited(loss_plain, "loss_negative", 0, LOSS["negative"], ("= F.cross", "= -F.cross"))


@right(WEEK, "loss_by_length")
def loss_on_a_copy(model, tokens, lengths, n_targets):
    if max(lengths) >= tokens.shape[1] or n_targets > min(lengths):
        raise ValueError("lengths, targets and text do not fit")
    import copy

    quiet = copy.deepcopy(model).eval().requires_grad_(False)
    result = {}
    for length in lengths:
        log_p = quiet(tokens[:, -(length + 1):-1]).log_softmax(dim=-1)[:, -n_targets:]
        picked = log_p.gather(-1, tokens[:, -n_targets:].unsqueeze(-1))
        result[int(length)] = -float(picked.mean())
    return result


@right(WEEK, "loss_by_length")
def loss_with_named_flags(model, tokens, lengths, n_targets):
    n = tokens.size(1)
    if any(not n_targets <= length <= n - 1 for length in lengths):
        raise ValueError
    was = {name: module.training for name, module in model.named_modules()}
    try:
        model.train(False)
        with torch.inference_mode():
            out = {}
            for length in lengths:
                logits = model(tokens[:, n - 1 - length:n - 1])
                per_token = F.cross_entropy(logits.transpose(1, 2), tokens[:, n - length:], reduction="none")
                out[length] = per_token[:, -n_targets:].mean().item()
        return out
    finally:
        for name, module in model.named_modules():
            module.training = was[name]


@right(WEEK, "loss_by_length")
def loss_text_by_text(model, tokens, lengths, n_targets):
    for length in lengths:
        if tokens.shape[1] < length + 1 or length < n_targets:
            raise ValueError(f"length {length}")
    modules = list(model.modules())
    training = [m for m in modules if m.training]
    model.eval()
    answer = {}
    for length in lengths:
        total = 0.0
        for row in tokens:
            with torch.no_grad():
                logits = model(row[None, -length - 1:-1])[0]
            for k in range(1, n_targets + 1):
                total -= logits[-k].log_softmax(0)[row[-k]].item()
        answer[length] = total / (len(tokens) * n_targets)
    for m in training:
        m.training = True
    return answer


# ---- 5.9 log_n_scale ------------------------------------------------------------------------------------------------

LOG_N = {
    "inverse": "The fraction is upside down: the factor is ln n / ln n0.",
    "additive": "The difference of the logarithms is something to add; the factor is their quotient, ln n / ln n0.",
    "quotient": "You take the logarithm of the quotient n / n0; the exercise asks for the quotient of the logarithms.",
    "no logarithm": "The logarithms are missing: ln n / ln n0, not n / n0.",
    "clamped": "There is no clamp: with fewer keys than n0 the factor lies below 1.",
    "log n": "The division by ln n0 is missing: at n = n0 the factor must be 1.",
    "root": "There is no square root here.",
    "temperature": "This is YaRN's temperature; the log-n factor is ln n / ln n0.",
    "one": "The factor is always 1: it must grow with n.",
}


@right(WEEK, "log_n_scale")
def log_n_plain(n, n0):
    return math.log(n) / math.log(n0)


edited(log_n_plain, "log_n_inverse", 0, LOG_N["inverse"], ("math.log(n) / math.log(n0)", "math.log(n0) / math.log(n)"))
edited(log_n_plain, "log_n_at_least_two", 1.5, "n = 1 is changed on the way; there the factor is 0, since ln 1 = 0.",
       ("math.log(n) /", "math.log(max(n, 2)) /"))
edited(log_n_plain, "log_n_additive", 0, LOG_N["additive"],
       ("math.log(n) / math.log(n0)", "math.log(n) - math.log(n0)"))
edited(log_n_plain, "log_n_plus_difference", 0, LOG_N["additive"],
       ("math.log(n) / math.log(n0)", "1 + math.log(n) - math.log(n0)"))
edited(log_n_plain, "log_n_no_logarithm", 0, LOG_N["no logarithm"], ("math.log(n) / math.log(n0)", "n / n0"))
edited(log_n_plain, "log_n_without_n0", 0, LOG_N["log n"], (" / math.log(n0)", ""))
edited(log_n_plain, "log_n_root", 0, LOG_N["root"],
       ("math.log(n) / math.log(n0)", "math.sqrt(math.log(n) / math.log(n0))"))
edited(log_n_plain, "log_n_temperature", 0, LOG_N["temperature"],
       ("math.log(n) / math.log(n0)", "0.1 * math.log(n / n0) + 1"))
edited(log_n_plain, "log_n_always_one", 0, LOG_N["one"], ("math.log(n) / math.log(n0)", "1.0"))
edited(log_n_plain, "log_n_clamped", 1.5, LOG_N["clamped"],
       ("math.log(n) / math.log(n0)", "max(1.0, math.log(n) / math.log(n0))"))


@right(WEEK, "log_n_scale")
def log_n_with_base(n, n0):
    return math.log(n, n0)


@right(WEEK, "log_n_scale")
def log_n_base_two(n, n0):
    return math.log2(n) / math.log2(n0)


@right(WEEK, "log_n_scale")
def log_n_torch(n, n0):
    return (torch.tensor(float(n)).log() / torch.tensor(float(n0)).log()).item()


# ---- 5.7 clipped_distances, rotary_scores ---------------------------------------------------------------------------

CLIP = {
    "sign": "The sign is wrong: a distance is query position - key position, 0 or more for keys up to the query.",
    "never": "Nothing is clipped: a distance beyond the limit counts as the limit.",
    "no 0": "A limit of 0 is a limit, too: then every distance is 0. (`if limit` takes it for none.)",
    "less": "You clip one too early: the limit itself is still allowed.",
    "more": "You clip one too late: no distance may exceed the limit.",
    "other way": "You keep the large distances and lift the small ones to the limit; it must be the other way round.",
    "positions": "You clip the positions; it is the distance between two positions that must not exceed the limit.",
    "top": "Your first query stands at position 0; the queries are the last positions, the last one stands at the last key.",
    "modulo": "Beyond the limit your distances start again from 0; they stay at the limit.",
    "zero": "Beyond the limit your distances are 0, as if these keys were the query itself; they stay at the limit.",
    "window": "You drop the keys beyond the limit, which is a window; a clip keeps them, at the distance `limit`.",
    "transposed": "Rows and columns are exchanged: a row per query, a column per key.",
    "from one": "A key at the query's own position has the distance 0; yours count from 1.",
    "squeezed": "You shrink all distances, as position interpolation does; up to the limit they stay as they are.",
}


@right(WEEK, "clipped_distances")
def clip_plain(n_queries, n_keys, limit):
    key = torch.arange(n_keys)
    query = torch.arange(n_keys - n_queries, n_keys)
    return (query[:, None] - key).clamp(max=limit)


edited(clip_plain, "clip_sign", 0, CLIP["sign"], ("(query[:, None] - key)", "(key - query[:, None])"))
edited(clip_plain, "clip_never", 0, CLIP["never"], (".clamp(max=limit)", ""))
edited(clip_plain, "clip_if_limit", 0.5, CLIP["no 0"], (".clamp(max=limit)", ".clamp(max=limit or n_keys)"))
edited(clip_plain, "clip_too_early", 0, CLIP["less"], ("max=limit", "max=max(limit - 1, 0)"))
edited(clip_plain, "clip_too_late", 0, CLIP["more"], ("max=limit", "max=limit + 1"))
edited(clip_plain, "clip_other_way", 0, CLIP["other way"], ("max=limit", "min=limit"))
edited(clip_plain, "clip_positions", 0, CLIP["positions"],
       ("(query[:, None] - key).clamp(max=limit)", "query.clamp(max=limit)[:, None] - key.clamp(max=limit)"))
edited(clip_plain, "clip_from_the_top", 0.5, CLIP["top"],
       ("torch.arange(n_keys - n_queries, n_keys)", "torch.arange(n_queries)"))
edited(clip_plain, "clip_modulo", 0, CLIP["modulo"], (".clamp(max=limit)", " % (limit + 1)"))
edited(clip_plain, "clip_zero", 0, CLIP["zero"],
       ("return (query[:, None] - key).clamp(max=limit)",
        "far = query[:, None] - key\n    return far.masked_fill(far > limit, 0)"))
edited(clip_plain, "clip_window", 0, CLIP["window"],
       ("return (query[:, None] - key).clamp(max=limit)",
        "far = (query[:, None] - key).float()\n    return far.masked_fill(far > limit, math.inf)"))
edited(clip_plain, "clip_transposed", 0, CLIP["transposed"],
       ("(query[:, None] - key).clamp(max=limit)", "(query - key[:, None]).clamp(max=limit)"))
edited(clip_plain, "clip_at_least_one", 0, "A key at the query's own position has the distance 0; yours has 1.",
       (".clamp(max=limit)", ".clamp(max=limit).clamp(min=1)"))
edited(clip_plain, "clip_from_one", 0, CLIP["from one"], ("query[:, None] - key", "query[:, None] - key + 1"))
edited(clip_plain, "clip_squeezed", 0, CLIP["squeezed"],
       ("(query[:, None] - key).clamp(max=limit)",
        "(query[:, None] - key) * min(1.0, limit / max(n_keys - 1, 1))"))


@right(WEEK, "clipped_distances")
def clip_minimum_of_all(n_queries, n_keys, limit):
    far = torch.arange(n_keys)[:, None] - torch.arange(n_keys)
    return torch.minimum(far, torch.tensor(limit))[-n_queries:].clamp(min=0)


@right(WEEK, "clipped_distances")
def clip_lists(n_queries, n_keys, limit):
    return torch.tensor([[min(i - j, limit) for j in range(n_keys)] for i in range(n_keys - n_queries, n_keys)])


@right(WEEK, "clipped_distances")
def clip_both_sides(n_queries, n_keys, limit):
    far = (torch.arange(n_keys)[:, None] - torch.arange(n_keys)).abs()
    return torch.where(far > limit, limit, far)[n_keys - n_queries:]


PAIR = {
    "sign": "You turn the wrong way: turn the query by the distance, or the key by minus the distance.",
    "plain": "As if nothing were turned: this is the product without positions.",
    "own": "You turn by the true positions; the exercise gives the distances to turn by.",
    "half": "Your pairs are channels i and i + head_dim/2 (half-split); here they are neighbours, 2i and 2i+1.",
    "scaled": "You divide by sqrt(head_dim); the exercise asks for the plain products.",
    "base": "With the default base the scores are right, with another they are not: use the argument `base`.",
    "i over d": "The exponent of the base is -2i/head_dim for pair i; yours is -i/head_dim.",
    "cosine": "The sine's part is missing: turning a pair mixes its two channels.",
    "mirrored": "You mirror the pairs instead of turning them: the two sines need opposite signs.",
    "off by one": "Every distance is one too large.",
    "softmax": "You return weights; the exercise asks for the scores before softmax.",
    "double": "Your scores do not have the dtype of the queries.",
    "cut": "No gradient passes: a detach, .item(), NumPy or torch.no_grad is on the way.",
    "in place": "An argument is changed in place; work on a new tensor.",
    "last row": "All queries use the distances of the last one; each row of `distances` is for one query.",
    "degrees": "The angles are in radians; do not convert them from degrees.",
}


@right(WEEK, "rotary_scores")
def scores_by_distance(q, k, distances, base=10000.0):
    dim = q.shape[-1]
    frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=q.device) / dim)
    even, odd = q[..., 0::2], q[..., 1::2]
    scores = q.new_zeros(*q.shape[:-1], k.shape[-2])
    for distance in distances.unique():
        angle = distance * frequencies
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
        scores = torch.where(distances == distance, turned @ k.mT, scores)
    return scores


edited(scores_by_distance, "scores_wrong_way", 0, PAIR["sign"], ("angle = distance *", "angle = -distance *"))
edited(scores_by_distance, "scores_not_turned", 0, PAIR["plain"], ("angle = distance *", "angle = 0 * distance *"))
edited(scores_by_distance, "scores_half_split", 0, PAIR["half"],
       ("even, odd = q[..., 0::2], q[..., 1::2]", "even, odd = q.chunk(2, dim=-1)"),
       ("torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)",
        "torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"))
edited(scores_by_distance, "scores_scaled", 0, PAIR["scaled"], ("turned @ k.mT", "turned @ k.mT / math.sqrt(dim)"))
edited(scores_by_distance, "scores_own_base", 1.75, PAIR["base"], ("frequencies = base **", "frequencies = 10000.0 **"))
edited(scores_by_distance, "scores_i_over_d", 0, PAIR["i over d"],
       ("torch.arange(0, dim, 2, dtype=torch.float64, device=q.device) / dim",
        "torch.arange(dim // 2, dtype=torch.float64, device=q.device) / dim"))
edited(scores_by_distance, "scores_cosine_only", 0, PAIR["cosine"],
       ("(even * cos - odd * sin, even * sin + odd * cos)", "(even * cos, odd * cos)"))
edited(scores_by_distance, "scores_mirrored", 0, PAIR["mirrored"], ("even * cos - odd * sin", "even * cos + odd * sin"))
edited(scores_by_distance, "scores_off_by_one", 0, PAIR["off by one"], ("angle = distance *", "angle = (distance + 1) *"))
edited(scores_by_distance, "scores_degrees", 0, PAIR["degrees"],
       ("angle = distance * frequencies", "angle = torch.deg2rad(distance * frequencies)"))
edited(scores_by_distance, "scores_softmax", 0, PAIR["softmax"],
       ("return scores", "later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)\n"
        "    later = later.triu(scores.shape[-1] - scores.shape[-2] + 1)\n"
        "    return scores.masked_fill(later, -math.inf).softmax(-1)"))
edited(scores_by_distance, "scores_always_float32", 1.875, PAIR["double"], ("return scores", "return scores.float()"))
edited(scores_by_distance, "scores_detached", 1.875, PAIR["cut"], ("return scores", "return scores.detach()"))
edited(scores_by_distance, "scores_last_row", 0, PAIR["last row"],
       ("for distance in", "distances = distances[-1:]\n    for distance in"))
edited(scores_by_distance, "scores_clamp_the_argument", 1.875, PAIR["in place"],
       ("for distance in", "distances.clamp_(min=0)\n    for distance in"))


@wrong(WEEK, "rotary_scores", 0, PAIR["own"])
def scores_of_true_positions(q, k, distances, base=10000.0):
    def turned(x, positions):
        dim = x.shape[-1]
        angle = positions[:, None] * base ** (-torch.arange(0, dim, 2, device=x.device) / dim)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    at = torch.arange(k.shape[-2], device=q.device)
    return turned(q, at[-q.shape[-2]:]) @ turned(k, at).mT


@right(WEEK, "rotary_scores")
def scores_double_loop(q, k, distances, base=10000.0):
    dim = q.shape[-1]
    frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=q.device) / dim)
    rows = []
    for i in range(q.shape[-2]):
        row = []
        for j in range(k.shape[-2]):
            angle = distances[i, j] * frequencies
            a, b = q[:, :, i].unflatten(-1, (-1, 2)), k[:, :, j].unflatten(-1, (-1, 2))
            along = (a * b).sum(-1) * angle.cos()
            across = (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]) * angle.sin()
            row.append((along + across).sum(-1))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2).to(q.dtype)


@right(WEEK, "rotary_scores")
def scores_complex(q, k, distances, base=10000.0):
    dim = q.shape[-1]
    frequencies = base ** (-torch.arange(0, dim, 2, device=q.device) / dim)
    a, b = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    turn = torch.polar(torch.ones_like(distances[..., None] * frequencies), distances[..., None] * frequencies)
    return torch.einsum("bhip,bhjp,ijp->bhij", a, b.conj(), turn.to(a.dtype)).real


@right(WEEK, "rotary_scores")
def scores_masked(q, k, distances, base=10000.0):
    """Hides the keys that come later, and turns the keys, the other way round."""
    dim, n_queries, n_keys = q.shape[-1], q.shape[-2], k.shape[-2]
    angle = -distances[..., None] * base ** (-torch.arange(0, dim, 2, device=q.device) / dim)
    cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
    even, odd = k[..., None, :, 0::2], k[..., None, :, 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    later = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q.device).triu(n_keys - n_queries + 1)
    return (turned @ q[..., None]).squeeze(-1).masked_fill(later, -math.inf)


# Paid for once where they are made again (see `carried`).
CARRIED = frozenset(
    NTK[name]
    for name in (
        "inverse",
    )
)
