"""Wrong answers to week 8 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once. Each carries a pattern that at least one named sentence
must match. Do not add these to the banks: they would no longer measure.
"""

import itertools
import math

import torch
import torch.nn.functional as F
from course.variants import registry

from autograder import reference

VARIANTS, variant = registry()


# ---- a part of the channels -----------------------------------------------------------------------------------------


def refuse(x, rotary_dim):
    if rotary_dim % 2 or not 1 < rotary_dim <= x.shape[-1]:
        raise ValueError("rotary_dim")


@variant("partial_rotary_emb", r"own width")
def first_frequencies_of_the_head(x, positions, rotary_dim, base=10000.0):
    refuse(x, rotary_dim)
    inv_freq = torch.tensor([base ** (-2 * i / x.shape[-1]) for i in range(rotary_dim // 2)])
    angle = torch.einsum("...n,f->...nf", positions.float(), inv_freq)
    angle = angle[:, None] if positions.ndim == 2 else angle
    a, b, rest = x.split([rotary_dim // 2, rotary_dim // 2, x.shape[-1] - rotary_dim], -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest), -1).to(x.dtype)


@variant("partial_rotary_emb", r"last channels")
def flipped(x, positions, rotary_dim, base=10000.0):
    refuse(x, rotary_dim)
    rest, part = x.tensor_split([x.shape[-1] - rotary_dim], dim=-1)
    return torch.cat((rest, reference.apply_rotary_emb_half(part, positions, base)), dim=-1)


@variant("partial_rotary_emb", r"neighbours")
def neighbours(x, positions, rotary_dim, base=10000.0):
    refuse(x, rotary_dim)
    part = reference.apply_rotary_emb(x.narrow(-1, 0, rotary_dim), positions, base)
    return torch.cat((part, x.narrow(-1, rotary_dim, x.shape[-1] - rotary_dim)), dim=-1)


@variant("partial_rotary_emb", r"as zeros")
def written_into_zeros(x, positions, rotary_dim, base=10000.0):
    refuse(x, rotary_dim)
    out = torch.zeros_like(x)
    out[..., :rotary_dim] = reference.apply_rotary_emb_half(x[..., :rotary_dim], positions, base)
    return out


@variant("partial_rotary_emb", r"above head_dim|must raise ValueError")
def sliced_too_far(x, positions, rotary_dim, base=10000.0):
    if rotary_dim < 2 or rotary_dim & 1:
        raise ValueError("rotary_dim")
    part = reference.apply_rotary_emb_half(x[..., :rotary_dim], positions, base)
    return torch.cat((part, x[..., rotary_dim:]), dim=-1)


@variant("partial_rotary_emb", r"`base`|argument base")
def own_base(x, positions, rotary_dim, base=10000.0):
    return reference.partial_rotary_emb(x, positions, rotary_dim)


@variant("partial_rotary_emb", r"own width|the other way|wrong way")
def two_mistakes(x, positions, rotary_dim, base=10000.0):
    return first_frequencies_of_the_head(x, -positions, rotary_dim, base)


# ---- positions of grids ---------------------------------------------------------------------------------------------


@variant("mrope_positions", r"on the axis of time|axis like the others")
def counts_pictures_alone(segments):
    columns, at = [], 0
    for one in segments:
        if isinstance(one, tuple):
            t, h, w = one
            columns += [(at + f, at + y, at + x) for f, y, x in itertools.product(range(t), range(h), range(w))]
            at += max(h, w) if t * h * w else 0
        else:
            columns += [(n, n, n) for n in range(at, at + one)]
            at += one
    return torch.tensor(columns, dtype=torch.long).view(-1, 3).t()


@variant("mrope_positions", r"starts at 0")
def grids_at_the_origin(segments):
    parts, largest = [torch.zeros(3, 0, dtype=torch.long)], -1
    for one in segments:
        if isinstance(one, int):
            parts.append((largest + 1 + torch.arange(one)).repeat(3, 1))
        else:
            parts.append(torch.cartesian_prod(*map(torch.arange, one)).T)
        largest = max(largest, int(parts[-1].max()) if parts[-1].numel() else -1)
    return torch.cat(parts, 1)


@variant("mrope_positions", r"number of tokens")
def next_column(segments):
    parts, n = [torch.zeros(3, 0, dtype=torch.long)], 0
    for one in segments:
        size = one if isinstance(one, int) else math.prod(one)
        parts.append(n + (torch.arange(one).expand(3, -1) if isinstance(one, int) else torch.cartesian_prod(*map(torch.arange, one)).T))
        n += size
    return torch.cat(parts, 1)


@variant("mrope_positions", r"columns are exchanged")
def width_then_height(segments):
    return reference.mrope_positions(segments)[[0, 2, 1]]


@variant("mrope_positions", r"floating-point|must return an int64")
def halves(segments):
    return reference.mrope_positions(segments) * 1.0


# ---- rotation by three axes -----------------------------------------------------------------------------------------


@variant("apply_mrope", r"interleaved: pair p")
def dealt_in_turn(x, positions, sections, base=10000.0):
    if sum(sections) * 2 != x.shape[-1]:
        raise ValueError
    n = x.shape[-1] // 2
    pick = torch.arange(n).remainder(3)
    angle = positions[pick].movedim(0, -1).double() * base ** (-torch.arange(n).double() / n)
    angle = angle[:, None] if angle.ndim == 3 else angle
    a, b = x[..., :n], x[..., n:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).to(x.dtype)


@variant("apply_mrope", r"start again")
def three_small_ropes(x, positions, sections, base=10000.0):
    if sum(sections) * 2 != x.shape[-1]:
        raise ValueError
    firsts, seconds = x.chunk(2, -1)
    ones, twos = [], []
    for axis, (a, b) in enumerate(zip(firsts.split(list(sections), -1), seconds.split(list(sections), -1), strict=True)):
        if not a.shape[-1]:
            continue
        n = a.shape[-1]
        angle = positions[axis].double()[..., None] * base ** (-torch.arange(n).double() / (x.shape[-1] // 2))
        angle = angle[:, None] if angle.ndim == 3 else angle
        ones.append(a * angle.cos() - b * angle.sin())
        twos.append(b * angle.cos() + a * angle.sin())
    return torch.cat(ones + twos, -1).to(x.dtype)


@variant("apply_mrope", r"time, height, width, in this order|Height and width")
def last_axis_first(x, positions, sections, base=10000.0):
    return reference.apply_mrope(x, positions.flip(0), sections, base)


@variant("apply_mrope", r"same axis")
def time_alone(x, positions, sections, base=10000.0):
    if sum(sections) * 2 != x.shape[-1]:
        raise ValueError
    return reference.apply_rotary_emb_half(x, positions[0], base)


@variant("apply_mrope", r"first row")
def one_row(x, positions, sections, base=10000.0):
    return reference.apply_mrope(x, positions[:, 0] if positions.ndim == 3 else positions, sections, base)


@variant("apply_mrope", r"half-precision input|dtype of x")
def angles_as_x(x, positions, sections, base=10000.0):
    return reference.apply_mrope(x, positions.to(x.dtype), sections, base)


# ---- the window -----------------------------------------------------------------------------------------------------


@variant("sliding_window_mask", r"one key too many")
def window_behind(n_queries, n_keys, window):
    return torch.ones(n_queries, n_keys).tril(n_keys - n_queries).triu(n_keys - n_queries - window) > 0


@variant("sliding_window_mask", r"top left")
def from_the_start(n_queries, n_keys, window):
    return reference.sliding_window_mask(n_keys, n_keys, window)[:n_queries]


@variant("sliding_window_mask", r"both|after them")
def symmetric(n_queries, n_keys, window):
    mask = reference.sliding_window_mask(n_keys, n_keys, window)
    return (mask | mask.T)[n_keys - n_queries :]


@variant("sliding_window_mask", r"wrong way round|inverted")
def what_is_hidden(n_queries, n_keys, window):
    i = torch.arange(n_keys - n_queries, n_keys).unsqueeze(1)
    return (torch.arange(n_keys) > i) | (torch.arange(n_keys) <= i - window)


# ---- the sink -------------------------------------------------------------------------------------------------------


@variant("softmax_with_sink", r"add up to 1")
def sink_forgotten_at_the_end(scores, sinks):
    weights = reference.softmax_with_sink(scores, sinks)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)


@variant("softmax_with_sink", r"sink of the first")
def only_the_first(scores, sinks):
    return reference.softmax_with_sink(scores, sinks[:1].repeat(len(sinks)))


@variant("softmax_with_sink", r"NaN")
def largest_of_the_keys(scores, sinks):
    m = scores.amax(-1, True)
    e, s = torch.exp(scores - m), torch.exp(sinks.view(-1, 1, 1) - m)
    return e / (e.sum(-1, True) + s)


@variant("softmax_with_sink", r"still there")
def column_kept(scores, sinks):
    return F.pad(scores, (0, 1)).index_copy(
        -1, torch.tensor([scores.shape[-1]]), sinks[None, :, None, None].expand(*scores.shape[:3], 1)
    ).softmax(-1)


# ---- the stream -----------------------------------------------------------------------------------------------------


@variant("streaming_cache", r"those in the text|count in the cache")
def where_they_stood(n_tokens, n_sinks, window):
    kept, _ = reference.streaming_cache(n_tokens, n_sinks, window)
    return kept, kept


@variant("streaming_cache", r"kept twice|kept once")
def overlapping(n_tokens, n_sinks, window):
    t = torch.arange(n_tokens)
    kept = torch.hstack((t[:n_sinks], t[-window:]))
    return kept, torch.arange(len(kept))


@variant("streaming_cache", r"gives up keys")
def bounded_by_the_window(n_tokens, n_sinks, window):
    t = list(range(n_tokens))
    if n_tokens > window:
        t = t[:n_sinks] + t[n_tokens - window + n_sinks :]
    return torch.tensor(t), torch.arange(len(t))


@variant("streaming_cache", r"exchanged|order is \(kept")
def backwards_pair(n_tokens, n_sinks, window):
    return reference.streaming_cache(n_tokens, n_sinks, window)[::-1]


# ---- latent attention -----------------------------------------------------------------------------------------------


def keys_and_values(latent, w_uk, w_uv):
    return torch.einsum("bnr,hdr->bhnd", latent, w_uk), torch.einsum("bnr,hdr->bhnd", latent, w_uv)


@variant("mla_attention", r"sqrt\(dn\)")
def scale_of_sdpa(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    k, v = keys_and_values(latent, w_uk, w_uv)
    scores = (q_nope @ k.mT + q_rope @ k_rope[:, None].mT) * q_nope.shape[-1] ** -0.5
    return reference.attention.weights_of(scores, mask) @ v


@variant("mla_attention", r"rotated part is missing")
def without_rope(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    return reference.mla_attention(q_nope, torch.zeros_like(q_rope), latent, k_rope, w_uk, w_uv, mask)


@variant("mla_attention", r"of their own, w_uv|come from w_uk")
def one_matrix(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    return reference.mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uk, mask)


@variant("mla_attention", r"NaN|zero output")
def no_key_no_number(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    k, v = keys_and_values(latent, w_uk, w_uv)
    q, k = torch.cat((q_nope, q_rope), -1), torch.cat((k, k_rope[:, None].expand(-1, k.shape[1], -1, -1)), -1)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, -torch.inf).to(scores)
    return scores.softmax(-1) @ v


@variant("mla_attention", r"inverted")
def hides_what_is_seen(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    hidden = None if mask is None else mask.logical_not()
    return reference.mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv, hidden)


@variant("mla_attention", r"first one")
def sequence_0(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    return reference.mla_attention(q_nope, q_rope, latent[[0] * len(latent)], k_rope, w_uk, w_uv, mask)


# ---- configurations -------------------------------------------------------------------------------------------------

def with_fields(config, **fields):
    return reference.layers_that_turn(config | fields)


@variant("layers_that_turn", r"read inverted")
def counts_ones_as_off(config):
    listed = config.get("no_rope_layers")
    return with_fields(config, no_rope_layers=[1 - entry for entry in listed]) if listed else with_fields(config)


@variant("layers_that_turn", r"head_dim wins")
def forgets_the_given_width(config):
    return with_fields(config, head_dim=None)


@variant("layers_that_turn", r"linear|Linear")
def knows_no_linear_layers(config):
    kinds = [kind.replace("linear", "full") for kind in config.get("layer_types") or []]
    return with_fields(config, layer_types=kinds or None)


@variant("layers_that_turn", r"count pairs")
def counts_two_as_one(config):
    return [channels // 2 for channels in reference.layers_that_turn(config)]


@variant("layers_that_turn", r"full ones|full attention")
def turns_where_no_window_is(config):
    swap = {"sliding_attention": "full_attention", "full_attention": "sliding_attention"}
    kinds = [swap.get(kind, kind) for kind in config.get("layer_types") or []]
    return with_fields(config, layer_types=kinds or None)
