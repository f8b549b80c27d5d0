"""Wrong answers to week 5 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import torch
import torch.nn.functional as F
from course.variants import registry

VARIANTS, variant = registry()


# ---- hand computations ----------------------------------------------------------------------------------------------

RIGHT = {"turns_first": 651.9, "turns_last": 0.07528, "boundary": 45.03, "complete": 46, "never": 18}
VARIANTS.append(("unturned_pairs", r"swapped", {**RIGHT, "complete": 18, "never": 46, "boundary": 45.027}))
VARIANTS.append(
    (
        "unturned_pairs",
        r"radians, not turns",
        {"turns_first": 4096.0, "turns_last": 0.473, "boundary": 57.8, "complete": 58, "never": 6},
    )
)
VARIANTS.append(("unturned_pairs", r"Off by one", {**RIGHT, "complete": 45.0, "never": 19.0}))
VARIANTS.append(("unturned_pairs", r"channels", {**RIGHT, "complete": 92, "never": 36, "turns_first": 651.8986}))
VARIANTS.append(("ntk_by_hand", r"exponent", {"new_base": 40000.0, "first_pair_ratio": 1.0, "last_pair_ratio": 0.25}))
VARIANTS.append(("ntk_by_hand", r"upside down", {"new_base": 41829.0, "first_pair_ratio": 1.0, "last_pair_ratio": 4.0}))
VARIANTS.append(("yarn_by_hand", r"square", {"low": 20, "high": 46, "temperature": 1.1386, "logit_factor": 1.1386}))
VARIANTS.append(
    ("yarn_by_hand", r"original length", {"low": 30, "high": 55, "temperature": 1.139, "logit_factor": 1.296})
)


# ---- position_interpolation -----------------------------------------------------------------------------------------


@variant("position_interpolation", r"divide")
def stretched(positions, scale):
    return positions.to(torch.get_default_dtype()) * float(scale)


@variant("position_interpolation", r"fraction|Whole-number")
def floored(positions, scale):
    return torch.div(positions, scale, rounding_mode="floor").float()


@variant("position_interpolation", r"fraction|Whole-number")
def rounded(positions, scale):
    return (positions.float() / scale).round()


@variant("position_interpolation", r"dtype")
def half_kept_as_float(positions, scale):
    return torch.true_divide(positions.float(), scale)


@variant("position_interpolation", r"dtype")
def integers_become_double(positions, scale):
    return positions / scale if positions.is_floating_point() else positions.double() / scale


@variant("position_interpolation", r"gradient")
def through_numpy(positions, scale):
    out = torch.from_numpy(positions.detach().float().numpy() / scale)
    return out.to(positions.dtype) if positions.is_floating_point() else out.float()


# ---- ntk_base -------------------------------------------------------------------------------------------------------


@variant("ntk_base", r"exponent")
def linear_base(base, scale, head_dim):
    return float(scale) * float(base)


@variant("ntk_base", r"upside down")
def exponent_turned(base, scale, head_dim):
    return base * math.exp(math.log(scale) * (1 - 2 / head_dim))


@variant("ntk_base", r"twice")
def scale_in_base_already(base, scale, head_dim):
    stretched_base = base * scale
    return stretched_base * scale ** (head_dim / (head_dim - 2))


@variant("ntk_base", r"scale alone")
def brackets(base, scale, head_dim):
    return math.pow(scale * base, head_dim / (head_dim - 2))


@variant("ntk_base", r"smaller|larger")
def shrinks(base, scale, head_dim):
    return base * scale ** (-head_dim / (head_dim - 2))


# ---- dynamic_ntk_base -----------------------------------------------------------------------------------------------


@variant("dynamic_ntk_base", r"Up to original_len|up to it")
def always_stretched(base, scale, head_dim, seq_len, original_len):
    alpha = max(scale * seq_len / original_len - (scale - 1), 0.1)
    return base * alpha ** (head_dim / (head_dim - 2))


@variant("dynamic_ntk_base", r"scale is missing")
def needed_only(base, scale, head_dim, seq_len, original_len):
    if seq_len < original_len:
        return float(base)
    return float(base) * math.pow(seq_len / original_len, head_dim / (head_dim - 2))


@variant("dynamic_ntk_base", r"jumps")
def product(base, scale, head_dim, seq_len, original_len):
    ratio = seq_len / original_len
    return base * (scale * ratio) ** (head_dim / (head_dim - 2)) if ratio > 1 else float(base)


@variant("dynamic_ntk_base", r"static")
def fixed(base, scale, head_dim, seq_len, original_len):
    factor = scale if seq_len > original_len else 1.0
    return base * factor ** (head_dim / (head_dim - 2))


@variant("dynamic_ntk_base", r"exponent")
def linear(base, scale, head_dim, seq_len, original_len):
    return float(base * max(1.0, 1 + scale * (seq_len / original_len - 1)))


# ---- yarn -----------------------------------------------------------------------------------------------------------


def _yarn(
    head_dim,
    scale,
    original_len,
    base=10000.0,
    beta_fast=32.0,
    beta_slow=1.0,
    floor=math.floor,
    ceil=math.ceil,
    two_pi=2 * math.pi,
    half=2.0,
    bottom=0,
    top=None,
    kept=None,
    mix=None,
):
    if head_dim % 2:
        raise ValueError("odd")

    def at(turns):
        return head_dim * math.log(original_len / (turns * two_pi)) / (half * math.log(base))

    low, high = floor(at(beta_fast)), ceil(at(beta_slow))
    low = low if bottom is None else max(low, bottom)
    high = min(high, head_dim - 1 if top is None else top(head_dim))
    high += 0.001 if low == high else 0
    i = torch.arange(head_dim // 2, dtype=torch.float64)
    gamma = ((i - low) / (high - low)).clip(0, 1) if kept is None else kept(i, low, high)
    theta = base ** (-2 * i / head_dim)
    return (theta * (1 - gamma) + theta * gamma / scale if mix is None else mix(theta, gamma, scale)).float()


@variant("yarn_frequencies", r"reversed")
def high_frequencies_interpolated(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, mix=lambda t, g, s: g * t + (1 - g) * t / s)


@variant("yarn_frequencies", r"not rounded")
def real_ends(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, floor=float, ceil=float)


@variant("yarn_frequencies", r"not the new one")
def stretched_length(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, int(original_len * scale), base, beta_fast, beta_slow)


@variant("yarn_frequencies", r"head_dim/2 - 1|head_dim - 1")
def clamped_to_pairs(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, top=lambda d: d // 2 - 1)


@variant("yarn_frequencies", r"fall below 0|low is not clamped")
def nothing_at_the_bottom(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, bottom=None)


@variant("yarn_frequencies", r"channels")
def ramp_per_channel(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(
        head_dim,
        scale,
        original_len,
        base,
        beta_fast,
        beta_slow,
        kept=lambda i, low, high: ((2 * i - low) / (high - low)).clip(0, 1),
    )


@variant("yarn_frequencies", r"2 pi")
def radians_for_turns(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, two_pi=1.0)


@variant("yarn_frequencies", r"factor 2")
def whole_dimension(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(head_dim, scale, original_len, base, beta_fast, beta_slow, half=1.0)


@variant("yarn_frequencies", r"wavelengths")
def periods_mixed(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    return _yarn(
        head_dim,
        scale,
        original_len,
        base,
        beta_fast,
        beta_slow,
        mix=lambda t, g, s: (t**-1 * (1 - g) + s * t**-1 * g) ** -1,
    )


@variant("yarn_frequencies", r"position interpolation")
def all_divided(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError
    return torch.tensor([base ** (-2 * i / head_dim) / scale for i in range(head_dim // 2)])


@variant("yarn_frequencies", r"number of turns")
def as_in_the_paper(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0):
    if head_dim % 2:
        raise ValueError
    out = []
    for i in range(head_dim // 2):
        theta = base ** (-2 * i / head_dim)
        r = original_len / (2 * math.pi / theta)
        gamma = 0.0 if r < beta_slow else 1.0 if r > beta_fast else (r - beta_slow) / (beta_fast - beta_slow)
        out.append((1 - gamma) * theta / scale + gamma * theta)
    return torch.tensor(out)


@variant("yarn_temperature", r"square")
def for_the_logits(scale):
    return (1 + math.log(max(scale, 1)) / 10) ** 2


@variant("yarn_temperature", r"base 10")
def decimal(scale):
    return 1.0 if scale <= 1 else 1 + math.log(scale, 10) / 10


@variant("yarn_temperature", r"reciprocal")
def softer(scale):
    return 1.0 / (1 + 0.1 * math.log(max(scale, 1.0)))


# ---- loss_by_length -------------------------------------------------------------------------------------------------


def _loss(model, tokens, lengths, n_targets, score, check=True, restore=True):
    if check and any(not n_targets <= length < tokens.shape[1] for length in lengths):
        raise ValueError("does not fit")
    flags = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        result = {length: score(model, tokens, length) for length in lengths}
    for module, flag in flags.items() if restore else ():
        module.training = flag
    return result


@variant("loss_by_length", r"whole window")
def mean_of_everything(model, tokens, lengths, n_targets):
    def score(model, tokens, length):
        window = tokens[:, -length - 1 :]
        return F.cross_entropy(model(window[:, :-1]).permute(0, 2, 1), window[:, 1:]).item()

    return _loss(model, tokens, lengths, n_targets, score)


@variant("loss_by_length", r"start of the text")
def from_the_start(model, tokens, lengths, n_targets):
    def score(model, tokens, length):
        part = tokens[:, : length + 1]
        logits = model(part[:, :-1])[:, -n_targets:]
        return F.cross_entropy(logits.flatten(0, 1), part[:, -n_targets:].flatten()).item()

    return _loss(model, tokens, lengths, n_targets, score)


@variant("loss_by_length", r"last target")
def target_in_context(model, tokens, lengths, n_targets):
    def score(model, tokens, length):
        log_p = model(tokens[:, -length:]).log_softmax(-1)[:, -n_targets:]
        return -log_p.gather(2, tokens[:, -n_targets:, None]).mean().item()

    return _loss(model, tokens, lengths, n_targets, score)


def _right_score(n_targets):
    def score(model, tokens, length):
        logits = model(tokens[:, -length - 1 : -1])[:, -n_targets:]
        return float(F.cross_entropy(logits.flatten(0, 1), tokens[:, -n_targets:].flatten()))

    return score


@variant("loss_by_length", r"eval mode")
def never_back(model, tokens, lengths, n_targets):
    return _loss(model, tokens, lengths, n_targets, _right_score(n_targets), restore=False)


@variant("loss_by_length", r"parts follow|[Ee]very|train mode")
def back_to_train_if_it_was(model, tokens, lengths, n_targets):
    was_training = model.training
    result = _loss(model, tokens, lengths, n_targets, _right_score(n_targets), restore=False)
    if was_training:
        model.train()
    return result


@variant("loss_by_length", r"gradients recorded")
def detached_at_the_end(model, tokens, lengths, n_targets):
    if max(lengths) + 1 > tokens.shape[1] or min(lengths) < n_targets:
        raise ValueError("does not fit")
    flags = [m.training for m in model.modules()]
    model.eval()
    out = {length: _right_score(n_targets)(model, tokens, length) for length in lengths}
    for m, flag in zip(model.modules(), flags):
        m.training = flag
    return out


@variant("loss_by_length", r"must raise")
def cut_to_fit(model, tokens, lengths, n_targets):
    def score(model, tokens, length):
        k = min(n_targets, length, tokens.shape[1] - 1)
        return _right_score(k)(model, tokens, min(length, tokens.shape[1] - 1))

    return _loss(model, tokens, lengths, n_targets, score, check=False)


@variant("loss_by_length", r"mean")
def total_per_text(model, tokens, lengths, n_targets):
    return _loss(model, tokens, lengths, n_targets, lambda *a: _right_score(n_targets)(*a) * n_targets)


@variant("loss_by_length", r"base 2|bits")
def bits(model, tokens, lengths, n_targets):
    return _loss(model, tokens, lengths, n_targets, lambda *a: _right_score(n_targets)(*a) * math.log2(math.e))


# ---- log_n_scale ----------------------------------------------------------------------------------------------------


@variant("log_n_scale", r"upside down")
def training_over_test(n, n0):
    return math.log2(n0) / math.log2(n)


@variant("log_n_scale", r"quotient|add")
def log_of_ratio(n, n0):
    return math.log(n / n0)


@variant("log_n_scale", r"clamp")
def never_below_one(n, n0):
    return math.log(max(n, n0)) / math.log(n0)


# ---- clipped_distances, rotary_scores -------------------------------------------------------------------------------


@variant("clipped_distances", r"sign is wrong")
def key_minus_query(n_queries, n_keys, limit):
    return torch.tensor([[max(j - i, -limit) for j in range(n_keys)] for i in range(n_keys - n_queries, n_keys)])


@variant("clipped_distances", r"one too early")
def below_the_limit(n_queries, n_keys, limit):
    distances = torch.arange(n_keys - n_queries, n_keys).unsqueeze(1) - torch.arange(n_keys).unsqueeze(0)
    return torch.where(distances < limit, distances, torch.full_like(distances, limit - 1))


@variant("clipped_distances", r"stands at position 0")
def queries_from_zero(n_queries, n_keys, limit):
    return torch.tensor([[min(i - j, limit) for j in range(n_keys)] for i in range(n_queries)])


def _turned_scores(q, k, distances, base, sign=1, scale=1.0):
    dim = q.shape[-1]
    angles = (
        sign * distances.to(torch.float64)[..., None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    )
    q2, k2 = (torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2)) for x in (q, k))
    product = q2.unsqueeze(-2) * k2.unsqueeze(-3).conj() * torch.polar(torch.ones_like(angles), angles)
    return (product.real.sum(-1) * scale).to(q.dtype)


@variant("rotary_scores", r"wrong way")
def key_turned_forward(q, k, distances, base=10000.0):
    return _turned_scores(q, k, distances, base, sign=-1)


@variant("rotary_scores", r"divide by sqrt")
def ready_for_softmax(q, k, distances, base=10000.0):
    return _turned_scores(q, k, distances, base, scale=q.shape[-1] ** -0.5)


@variant("rotary_scores", r"another they are not")
def base_forgotten(q, k, distances, base=10000.0):
    return _turned_scores(q, k, distances, 1e4)


@variant("rotary_scores", r"Nothing is turned")
def only_masked_product(q, k, distances, base=10000.0):
    return torch.einsum("bhid,bhjd->bhij", q, k)
