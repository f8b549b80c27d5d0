"""Wrong answers to week 6 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import torch
import torch.nn.functional as F
from course.variants import registry

VARIANTS, variant = registry()


# ---- hand computations ----------------------------------------------------------------------------------------------

HAND = {
    "t5_bi_back": 10,
    "t5_bi_ahead": 26,
    "t5_causal_back": 17,
    "shaw_back": 0,
    "shaw_ahead": 32,
    "xl_distance_back": 20,
    "deberta_back": 15,
    "deberta_ahead": 0,
}
VARIANTS.append(
    ("conventions_by_hand", r"sides are exchanged", HAND | {"t5_bi_back": 26.0, "t5_bi_ahead": 10.0, "shaw_ahead": 31})
)
VARIANTS.append(
    ("conventions_by_hand", r"DeBERTa's rows are exchanged", HAND | {"deberta_back": 0, "deberta_ahead": 15.0})
)
VARIANTS.append(
    ("conventions_by_hand", r"clipped", HAND | {"shaw_back": -4, "shaw_ahead": 36, "xl_distance_back": -20})
)
COSTS = {"shaw_layer": 4224, "t5_model": 384, "xl_layer": 589824, "deberta_table": 786432, "shaw_gib": 2}
VARIANTS.append(("costs_by_hand", r"two tables", COSTS | {"shaw_layer": 2112.0, "shaw_gib": 1}))
VARIANTS.append(("costs_by_hand", r"both sides", COSTS | {"deberta_table": 512 * 768}))


# ---- relative_positions ---------------------------------------------------------------------------------------------


@variant("relative_positions", r"wrong sign")
def offsets_from_the_key(n_queries, n_keys):
    if n_queries > n_keys or n_queries < 1:
        raise ValueError
    return torch.stack([torch.arange(n_keys - n_queries + r, -n_queries + r, -1) for r in range(n_queries)])


@variant("relative_positions", r"top left")
def offsets_of_the_first(n_queries, n_keys):
    if not 0 < n_queries <= n_keys:
        raise ValueError
    return (torch.arange(n_keys).repeat(n_queries, 1).T - torch.arange(n_queries)).T


@variant("relative_positions", r"lost their sign")
def offsets_as_distances(n_queries, n_keys):
    if not 0 < n_queries <= n_keys:
        raise ValueError
    place = torch.arange(n_keys).float()
    return torch.cdist(place[-n_queries:, None], place[:, None], p=1).long()


@variant("relative_positions", r"must raise ValueError")
def offsets_asserted(n_queries, n_keys):
    assert 1 <= n_queries <= n_keys
    return torch.arange(n_keys) - torch.arange(n_keys - n_queries, n_keys).reshape(-1, 1)


# ---- shaw_attention -------------------------------------------------------------------------------------------------


def shaw(q, k, v, rel_k, rel_v, mask=None, row_of=None, order=False, scale_all=True, take_values=True):
    clip = (rel_k.size(0) - 1) // 2
    place = torch.arange(k.size(-2))
    rel = place - place[-q.size(-2) :, None]
    rel = -rel if order else rel
    row = rel.clamp(-clip, clip) + clip if row_of is None else row_of(rel, clip)
    scores = torch.einsum("bhid,bhijd->bhij", q, k.unsqueeze(2) + rel_k[row])
    scores = scores / q.size(-1) ** (0.5 if scale_all else 0.25)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
    weights = torch.nan_to_num(F.softmax(scores, -1))
    return torch.einsum("bhij,bhijd->bhid", weights, v.unsqueeze(2) + rel_v[row] * take_values), weights


@variant("shaw_attention", r"wrong sign")
def shaw_counted_from_the_query(q, k, v, rel_k, rel_v, mask=None):
    return shaw(q, k, v, rel_k, rel_v, mask, order=True)


@variant("shaw_attention", r"value term is missing")
def shaw_values_plain(q, k, v, rel_k, rel_v, mask=None):
    return shaw(q, k, v, rel_k, rel_v, mask, take_values=False)


@variant("shaw_attention", r"not clipped|offsets beyond clip")
def shaw_modulo(q, k, v, rel_k, rel_v, mask=None):
    return shaw(q, k, v, rel_k, rel_v, mask, row_of=lambda rel, clip: (rel + clip) % (2 * clip + 1))


@variant("shaw_attention", r"low end")
def shaw_low_end(q, k, v, rel_k, rel_v, mask=None):
    return shaw(q, k, v, rel_k, rel_v, mask, row_of=lambda rel, clip: torch.clip(rel, min(1 - clip, 0), clip) + clip)


@variant("shaw_attention", r"top left")
def shaw_first_queries(q, k, v, rel_k, rel_v, mask=None):
    def row_of(rel, clip):
        rel = torch.arange(rel.shape[1]) - torch.arange(rel.shape[0])[:, None]
        return rel.clamp(-clip, clip) + clip

    return shaw(q, k, v, rel_k, rel_v, mask, row_of=row_of)


@variant("shaw_attention", r"NaN|zero weights")
def shaw_with_nan(q, k, v, rel_k, rel_v, mask=None):
    out, weights = shaw(q, k, v, rel_k, rel_v, mask)
    blind = torch.zeros(1, 1, 1, 1, dtype=torch.bool) if mask is None else ~mask.any(-1, keepdim=True)
    return out.masked_fill(blind, math.nan), weights.masked_fill(blind, math.nan)


# ---- rel_shift ------------------------------------------------------------------------------------------------------


@variant("rel_shift", r"memory")
def shift_padded_by_keys(x):
    b, h, n, m = x.shape
    padded = torch.cat([x.new_zeros(b, h, n, 1 + m - n), x], -1)
    return padded.reshape(b, h, -1)[..., n * (1 + m - n) :][..., : n * m].reshape(b, h, n, m)


@variant("rel_shift", r"wrong amount")
def shift_wrong_way_round(x):
    return torch.stack([torch.cat([row[..., i:], row[..., :i]], -1) for i, row in enumerate(x.unbind(-2))], -2)


@variant("rel_shift", r"contiguous")
def shift_viewed(x):
    b, h, n, m = x.shape
    x.view(b * h * n * m)
    y = torch.cat([torch.zeros_like(x[..., :1]), x], -1).view(b, h, m + 1, n)
    return y[:, :, 1:].reshape(b, h, n, m)


@variant("rel_shift", r"ascending")
def shift_as_if_ascending(x):
    n, m = x.shape[-2:]
    y = torch.zeros_like(x)
    for i in range(n):
        for j in range(m - n + i + 1):
            y[..., i, j] = x[..., i, m - n + i - j]
    return y


@variant("rel_shift", r"cut off")
def shift_through_numpy(x):
    n = x.shape[-2]
    data = x.detach().numpy().copy()
    for i in range(n):
        data[..., i, :] = __import__("numpy").roll(data[..., i, :], -(n - 1 - i), -1)
    return torch.from_numpy(data)


# ---- transformer_xl_scores ------------------------------------------------------------------------------------------


def xl(q, k, r, u, v, distance=None, scale=1.0):
    n_queries, n_keys = q.size(2), k.size(2)
    t = (torch.arange(n_queries)[:, None] + n_keys - n_queries - torch.arange(n_keys)).clamp(min=0)
    t = t if distance is None else distance(t, n_keys)
    scores = (q + u[None, :, None]) @ k.mT + ((q + v[None, :, None]).unsqueeze(3) * r[:, t]).sum(-1)
    return scores * scale / math.sqrt(q.size(3))


@variant("transformer_xl_scores", r"biases are exchanged")
def xl_exchanged(q, k, r, content_bias, position_bias):
    return xl(q, k, r, position_bias, content_bias)


@variant("transformer_xl_scores", r"descending")
def xl_descending(q, k, r, content_bias, position_bias):
    return xl(q, k, r, content_bias, position_bias, distance=lambda t, n: n - 1 - t)


@variant("transformer_xl_scores", r"not divided")
def xl_not_scaled(q, k, r, content_bias, position_bias):
    return xl(q, k, r, content_bias, position_bias, scale=math.sqrt(q.size(3)))


@variant("transformer_xl_scores", r"position_bias is missing")
def xl_without_position_bias(q, k, r, content_bias, position_bias):
    return xl(q, k, r, content_bias, torch.zeros_like(position_bias))


@variant("transformer_xl_scores", r"top left|last positions")
def xl_first_queries(q, k, r, content_bias, position_bias):
    def distance(t, n_keys):
        return (torch.arange(t.shape[0])[:, None] - torch.arange(n_keys)) % n_keys

    return xl(q, k, r, content_bias, position_bias, distance=distance)


# ---- t5_bucket ------------------------------------------------------------------------------------------------------


def bucket(rel, bidirectional, num_buckets, max_distance, ahead=lambda rel: rel > 0, step=math.floor, last=-1):
    out = []
    side = num_buckets // 2 if bidirectional else num_buckets
    for value in rel.flatten().tolist():
        m = abs(value) if bidirectional else max(-value, 0)
        e = side // 2
        b = m if m < e else min(side + last, e + step(math.log(m / e) / math.log(max_distance / e) * (side - e)))
        out.append(b + (side if bidirectional and ahead(value) else 0))
    return torch.tensor(out).reshape(rel.shape)


@variant("t5_bucket", r"sides are exchanged")
def bucket_behind_is_upper(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, max_distance, ahead=lambda rel: rel < 0)


@variant("t5_bucket", r"floor")
def bucket_rounded_up(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, max_distance, step=math.ceil)


@variant("t5_bucket", r"Offset 0")
def bucket_zero_upper(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, max_distance, ahead=lambda rel: rel >= 0)


@variant("t5_bucket", r"share their buckets")
def bucket_without_sides(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, max_distance, ahead=lambda rel: False)


@variant("t5_bucket", r"ignored|must both reach")
def bucket_with_128(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, 128)


@variant("t5_bucket", r"lower")
def bucket_last_but_one(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    return bucket(relative_position, bidirectional, num_buckets, max_distance, last=-2)


# ---- t5_attention ---------------------------------------------------------------------------------------------------


def t5(q, k, v, table, is_causal, max_distance, two_sides=None, factor=1.0, sign=1):
    place = torch.arange(k.shape[-2])
    rel = place[None] - place[-q.shape[-2] :, None]
    index = bucket(rel, not is_causal if two_sides is None else two_sides, len(table), max_distance)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * factor + sign * torch.stack([column[index] for column in table.T])
    weights = F.softmax(scores + torch.where(rel > 0, -math.inf, 0.0) if is_causal else scores, -1)
    return weights @ v, weights


@variant("t5_attention", r"divided by sqrt")
def t5_scaled(q, k, v, table, is_causal=False, max_distance=128):
    return t5(q, k, v, table, is_causal, max_distance, factor=q.shape[-1] ** -0.5)


@variant("t5_attention", r"buckets of two sides")
def t5_two_sided(q, k, v, table, is_causal=False, max_distance=128):
    return t5(q, k, v, table, is_causal, max_distance, two_sides=True)


@variant("t5_attention", r"subtracted")
def t5_penalty(q, k, v, table, is_causal=False, max_distance=128):
    return t5(q, k, v, table, is_causal, max_distance, sign=-1)


@variant("t5_attention", r"max_distance")
def t5_fixed_distance(q, k, v, table, is_causal=False, max_distance=128):
    return t5(q, k, v, table, is_causal, 128)


@variant("t5_attention", r"hide the keys")
def t5_unmasked(q, k, v, table, is_causal=False, max_distance=128):
    return t5(q, k, v, table, False, max_distance, two_sides=not is_causal)


# ---- deberta_scores -------------------------------------------------------------------------------------------------


def deberta(q, k, pos_q, pos_k, row, other=None, terms=3):
    n = q.size(-2)
    span = pos_k.size(-2) // 2
    place = torch.arange(n)
    delta = row(place[:, None] - place, span)
    back = delta if other is None else other(place[:, None] - place, span)
    total = (
        torch.einsum("bhid,bhjd->bhij", q, k)
        + (q.unsqueeze(3) * pos_k[:, delta]).sum(-1)
        + (k.unsqueeze(2) * pos_q[:, back]).sum(-1)
    )
    return total * (terms * q.size(-1)) ** -0.5


def rows(difference, span):
    return (difference + span).clamp(0, 2 * span - 1)


@variant("deberta_scores", r"paper prints")
def deberta_as_printed(q, k, pos_q, pos_k):
    return deberta(q, k, pos_q, pos_k, rows, other=lambda difference, span: rows(-difference, span))


@variant("deberta_scores", r"those of j - i")
def deberta_other_sign(q, k, pos_q, pos_k):
    return deberta(q, k, pos_q, pos_k, lambda difference, span: rows(-difference, span))


@variant("deberta_scores", r"sqrt\(head_dim\)")
def deberta_one_term_scale(q, k, pos_q, pos_k):
    return deberta(q, k, pos_q, pos_k, rows, terms=1)


@variant("deberta_scores", r"exchanged")
def deberta_tables_exchanged(q, k, pos_q, pos_k):
    return deberta(q, k, pos_k, pos_q, rows)


@variant("deberta_scores", r"high end")
def deberta_clamped_low(q, k, pos_q, pos_k):
    return deberta(q, k, pos_q, pos_k, lambda difference, span: difference.clamp(-span, span - 2) + span)


@variant("deberta_scores", r"wrap|clamp")
def deberta_python_index(q, k, pos_q, pos_k):
    return deberta(
        q, k, pos_q, pos_k, lambda difference, span: (difference + span).clamp(max=2 * span - 1) % (2 * span)
    )
