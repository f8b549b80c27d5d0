"""Wrong answers to week 1 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from course.variants import registry

VARIANTS, variant = registry()


# ---- scaled_dot_product_attention -----------------------------------------------------------------------------------


@variant("scaled_dot_product_attention", r"not divided by sqrt")
def einsum_without_scale(q, k, v, mask=None):
    logits = torch.einsum("bhqd,bhkd->bhqk", q, k)
    if mask is not None:
        logits = logits.masked_fill(mask.logical_not(), torch.finfo(logits.dtype).min)
    p = logits.softmax(-1)
    if mask is not None:
        p = p * mask.any(-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bhqd", p, v), p


@variant("scaled_dot_product_attention", r"square root|divided by head_dim")
def scaled_by_dimension_in_loop(q, k, v, mask=None):
    rows = []
    for i in range(q.size(2)):
        s = (q[:, :, i, None].float() * k.float()).mean(-1)  # a mean over channels is a division by d
        if mask is not None:
            m = mask.expand(q.size(0), q.size(1), q.size(2), k.size(2))[:, :, i]
            s = torch.where(m, s, torch.tensor(-1e30))
            rows.append(s.softmax(-1) * m)
        else:
            rows.append(s.softmax(-1))
    p = torch.stack(rows, 2).to(q.dtype)
    return p @ v, p


@variant("scaled_dot_product_attention", r"over the queries|axis of the keys")
def functional_softmax_dim_two(q, k, v, mask=None):
    s = torch.matmul(q / q.size(-1) ** 0.5, k.transpose(2, 3))
    if mask is not None:
        s[(~mask).expand_as(s)] = -torch.inf
    p = F.softmax(s, dim=2)
    return p.matmul(v), p


@variant("scaled_dot_product_attention", r"over the queries")
def over_queries_and_unscaled(q, k, v, mask=None):
    s = q @ k.permute(0, 1, 3, 2)
    p = torch.softmax(s, -2)
    if mask is not None:
        p = p * mask
    return p @ v, p


@variant("scaled_dot_product_attention", r"inverted")
def mask_hides(q, k, v, mask=None):
    s = (q.float() @ k.float().mT) / math.sqrt(q.size(-1))
    if mask is not None:
        s = s - 1e9 * mask.float()
    p = s.softmax(-1)
    return (p @ v.float()).to(q.dtype), p.to(q.dtype)


@variant("scaled_dot_product_attention", r"inverted")
def mask_hides_where(q, k, v, mask=None):
    s = (q @ k.mT) / math.sqrt(q.size(-1))
    if mask is not None:
        s = torch.where(mask, torch.full_like(s, -math.inf), s)
    p = torch.nan_to_num(s.softmax(-1))
    return p @ v, p


@variant("scaled_dot_product_attention", r"before the softmax|no longer add up")
def zeroed_after(q, k, v, mask=None):
    p = F.softmax((q / q.size(-1) ** 0.5) @ k.mT, dim=-1)
    if mask is not None:
        p = torch.where(mask, p, torch.zeros((), dtype=p.dtype))
    return p @ v, p


@variant("scaled_dot_product_attention", r"normalise again")
def normalised_after(q, k, v, mask=None):
    p = F.softmax((q.float() / q.size(-1) ** 0.5) @ k.float().mT, dim=-1)
    if mask is not None:
        p = F.normalize(p * mask, p=1.0, dim=-1)
    return (p @ v.float()).to(q.dtype), p.to(q.dtype)


@variant("scaled_dot_product_attention", r"equal weights")
def finfo_without_zeroing(q, k, v, mask=None):
    s = (q / q.size(-1) ** 0.5) @ k.mT
    if mask is not None:
        s = s.masked_fill(~mask, torch.finfo(s.dtype).min)
    p = s.softmax(-1)
    return p @ v, p


@variant("scaled_dot_product_attention", r"gives NaN")
def additive_infinity(q, k, v, mask=None):
    s = (q.float() / q.size(-1) ** 0.5) @ k.float().mT
    if mask is not None:
        s = s + torch.log(mask.float())
    p = s.softmax(-1)
    return (p @ v.float()).to(q.dtype), p.to(q.dtype)


@variant("scaled_dot_product_attention", r"gradient is NaN")
def additive_infinity_repaired(q, k, v, mask=None):
    s = (q.float() / q.size(-1) ** 0.5) @ k.float().mT
    if mask is not None:
        s = s + torch.log(mask.float())
    p = s.softmax(-1)
    p = torch.where(torch.isnan(p), torch.zeros_like(p), p)
    return (p @ v.float()).to(q.dtype), p.to(q.dtype)


@variant("scaled_dot_product_attention", r"overflows before")
def scale_last_everywhere(q, k, v, mask=None):
    s = torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(q.size(-1)))
    if mask is not None:
        dead = ~mask.any(-1, keepdim=True)
        s = s.masked_fill(~mask & ~dead, -math.inf)
        p = s.softmax(-1).masked_fill(dead, 0)
    else:
        p = s.softmax(-1)
    return p @ v, p


@variant("scaled_dot_product_attention", r"takes exp of large")
def exp_and_normalise(q, k, v, mask=None):
    e = torch.exp((q.float() / q.size(-1) ** 0.5) @ k.float().mT)
    if mask is not None:
        e = e * mask
    p = e / e.sum(-1, keepdim=True).clamp_min(1e-20)
    return (p @ v.float()).to(q.dtype), p.to(q.dtype)


@variant("scaled_dot_product_attention", r"cut off")
def through_numpy(q, k, v, mask=None):
    s = q.detach().double().numpy() @ np.swapaxes(k.detach().double().numpy(), -1, -2) / np.sqrt(q.shape[-1])
    allowed = np.ones(s.shape, bool) if mask is None else np.broadcast_to(mask.numpy(), s.shape)
    s = np.where(allowed, s, -1e300)
    e = np.exp(s - s.max(-1, keepdims=True)) * allowed
    p = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    return torch.from_numpy(p @ v.detach().double().numpy()).to(q.dtype), torch.from_numpy(p).to(q.dtype)


@variant("scaled_dot_product_attention", r"wrong order")
def weights_first(q, k, v, mask=None):
    s = (q.double() / q.size(-1) ** 0.5) @ k.double().mT
    if mask is not None:
        s = s.masked_fill(~mask, -1e200)
    p = s.softmax(-1)
    p = p if mask is None else p * mask
    return p.to(q.dtype), (p @ v.double()).to(q.dtype)


@variant("scaled_dot_product_attention", r"must have the dtype|must return an? \w+ tensor")
def always_double(q, k, v, mask=None):
    s = (q.double() / q.size(-1) ** 0.5) @ k.double().mT
    if mask is not None:
        s = s.masked_fill(~mask, -1e200)
    p = s.softmax(-1)
    p = p if mask is None else p * mask
    return p @ v.double(), p


# ---- attention_by_hand ----------------------------------------------------------------------------------------------


VARIANTS += [
    ("attention_by_hand", r"divided by sqrt\(4\)|stayed|left everything", {
        "w_0_0": 0.11731, "w_0_1": 0.015876, "w_0_2": 0.86681, "out_0_0": 1.1014, "out_0_1": -0.81919,
        "swapped_w_0_1": 0.015876, "swapped_out_0_0": 1.1014, "swapped_out_1_0": 0.91}),
    ("attention_by_hand", r"left everything", {
        "w_0_0": 0.2447, "w_0_1": 0.0900, "w_0_2": 0.6652, "out_0_0": 1.1547, "out_0_1": -0.3952,
        "swapped_w_0_1": 0.0900, "swapped_out_0_0": 1.1547, "swapped_out_1_0": 0.8791}),
    ("attention_by_hand", r"columns", {
        "w_0_0": 0.3072, "w_0_1": 0.1863, "w_0_2": 0.3837, "out_0_0": 0.9980, "out_0_1": 0.1753,
        "swapped_w_0_1": 0.3837, "swapped_out_0_0": 0.9980, "swapped_out_1_0": None}),
]


# ---- equivariance_gap -----------------------------------------------------------------------------------------------


@variant("equivariance_gap", r"invariance")
def numpy_invariance(f, x, perm):
    return float(np.abs(f(x[:, perm]).numpy() - f(x).numpy()).max())


@variant("equivariance_gap", r"inverse")
def unshuffles_with_perm(f, x, perm):
    back = f(x[:, perm])[:, perm]  # should be the inverse
    return (back - f(x)).abs().max().item()


@variant("equivariance_gap", r"inverse")
def scatters_instead_of_gathers(f, x, perm):
    def move(t):
        out = torch.empty_like(t)
        out[:, perm] = t
        return out

    return float((f(move(x)) - move(f(x))).abs().max())


@variant("equivariance_gap", r"mean")
def l1_loss(f, x, perm):
    return F.l1_loss(f(x[:, perm]), f(x)[:, perm]).item()


@variant("equivariance_gap", r"take the mean|norm or a sum")
def mean_squared(f, x, perm):
    return F.mse_loss(f(x[:, perm]), f(x)[:, perm]).item()


@variant("equivariance_gap", r"absolute value|negative")
def largest_signed(f, x, perm):
    return max((f(x[:, perm]) - f(x)[:, perm]).flatten().tolist())


@variant("equivariance_gap", r"channels")
def last_axis(f, x, perm):
    return (f(x[:, :, perm]) - f(x)[:, :, perm]).abs().max().item()


@variant("equivariance_gap", r"sequence by sequence|whole batch")
def splits_the_batch(f, x, perm):
    parts = x.split(1)
    return max(float((f(p[:, perm]) - f(p)[:, perm]).abs().max()) for p in parts)


@variant("equivariance_gap", r"Python float")
def returns_zero_dim_double(f, x, perm):
    return torch.max(torch.abs(f(x[:, perm]) - f(x)[:, perm])).double()


@variant("equivariance_gap", r"divide by the size|norm or a sum")
def relative_error(f, x, perm):
    a, b = f(x[:, perm]), f(x)[:, perm]
    return ((a - b).norm() / b.norm()).item()


@variant("equivariance_gap", r"output only|input of one side")
def forgets_the_input(f, x, perm):
    y = f(x)
    return (y[:, perm] - y).abs().amax().item()


# ---- causal_mask ----------------------------------------------------------------------------------------------------


@variant("causal_mask", r"top left")
def tril_indices_mask(n_queries, n_keys):
    mask = torch.zeros(n_queries, n_keys, dtype=torch.bool)
    r, c = torch.tril_indices(n_queries, n_keys)
    mask[r, c] = True
    return mask


@variant("causal_mask", r"itself")
def strictly_earlier(n_queries, n_keys):
    return torch.arange(n_keys)[None] < torch.arange(n_keys - n_queries, n_keys)[:, None]


@variant("causal_mask", r"upper|future|later")
def true_means_hide(n_queries, n_keys):
    return torch.arange(n_keys)[None] > torch.arange(n_keys - n_queries, n_keys)[:, None]


@variant("causal_mask", r"boolean")
def zeros_and_ones(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.long).tril(n_keys - n_queries)


@variant("causal_mask", r"top left")
def top_left_and_strict(n_queries, n_keys):
    return torch.tensor([[j < i for j in range(n_keys)] for i in range(n_queries)])


@variant("causal_mask", r"row per query|row per key")
def keys_by_queries(n_queries, n_keys):
    return torch.ones(n_keys, n_queries, dtype=torch.bool).triu(n_queries - n_keys).flip(0).flip(1)


@variant("causal_mask", r"added to the scores|boolean")
def pytorch_subsequent_mask(n_queries, n_keys):
    return torch.nn.Transformer.generate_square_subsequent_mask(n_keys)[-n_queries:]


@variant("causal_mask", r"cache")
def only_new_tokens(n_queries, n_keys):
    block = torch.ones(n_queries, n_queries, dtype=torch.bool).tril()
    return F.pad(block, (n_keys - n_queries, 0))
