"""Wrong answers that once got full marks, or right ones that did not: each differs from the reference in one thing."""

import importlib
import inspect
import re

import pytest
import torch

from autograder import reference
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.misconceptions.bank import NAMES, bank

pytestmark = pytest.mark.nightly
OF_THE_CLASS = {}  # what the course's own code gives, by week: it would be computed anew for every answer


def graded(week, grade_id, subject):
    with grading(3, cache=OF_THE_CLASS.setdefault(week, ResultCache())):
        return getattr(importlib.import_module(f"autograder.checks.{week}"), grade_id)(subject)


def limited_mask(n_queries, n_keys):
    return torch.ones(1024, 1024, dtype=torch.bool).tril()[n_keys - n_queries : n_keys, :n_keys]


def all_heads_alike(q, k, v, mask=None):
    """Looks for empty rows in the first head alone."""
    out, weights = reference.attention.attend(q, k, v, mask=mask)
    if mask is not None:
        empty = ~mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])[:, :1].any(-1, keepdim=True)
        raw = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1)
        weights = raw.masked_fill(empty, 0)
        out = weights @ v
    return out, weights


def half_precision_bias(n_heads, n_queries, n_keys=None):
    n_keys = n_queries if n_keys is None else n_keys
    j = torch.arange(n_keys, dtype=torch.float16)
    return -reference.alibi_slopes(n_heads)[:, None, None] * (j[n_keys - n_queries :, None] - j).abs().float()


def rough_comparison(scores, slopes, causal):
    n_queries, n_keys = scores.shape[-2:]
    j = torch.arange(n_keys)
    i = j[n_keys - n_queries :, None]
    slope, scores = slopes.double()[:, None, None], scores.double()
    hide = torch.zeros(n_queries, n_keys).masked_fill(j > i, -torch.inf) if causal else 0
    one, other = (scores + slope * j + hide).softmax(-1), (scores - slope * (i - j).abs() + hide).softmax(-1)
    return bool((one - other).abs().max() < 0.1)


class Remembers(reference.RotaryMultiHeadAttention):
    """Keeps the longest positions it has seen, and gives a shorter text the last of them."""

    def forward(self, x, positions=None, is_causal=False):
        if positions is None:
            longest = max(x.shape[1], getattr(self, "longest", 0))
            self.longest = longest
            positions = torch.arange(longest)[-x.shape[1] :] * (1 + (longest > x.shape[1]))
        return super().forward(x, positions, is_causal)


class MaskedInTraining(reference.ALiBiMultiHeadAttention):
    def forward(self, x, is_causal=True):
        return super().forward(x, is_causal or not self.training)


def halved_weights(model, tokens, lengths, n_targets):
    losses = reference.loss_by_length(model, tokens, lengths, n_targets)
    with torch.no_grad():
        for weight in model.parameters():
            weight /= 2
    return losses


def whole_base(function):
    return lambda *arguments, base=10000.0: function(*arguments, int(base))


class HalfTrained(reference.LearnedPositionalEmbedding):
    """The table enters as it is, but half of it without a gradient."""

    def forward(self, x):
        rows = self.weight[: x.shape[1]]
        if x.shape[1] > len(self.weight):
            raise ValueError("too long")
        return x + (rows / 2 + rows.detach() / 2).to(x.dtype)


class FirstRowUntrained(reference.LearnedPositionalEmbedding):
    def forward(self, x):
        rows = self.weight[: x.shape[1]]
        if x.shape[1] > len(self.weight):
            raise ValueError("too long")
        return x + torch.cat((rows[:1].detach(), rows[1:])).to(x.dtype)


class MovesPositions(reference.RotaryMultiHeadAttention):
    def forward(self, x, positions=None, is_causal=False):
        out = super().forward(x, positions, is_causal)
        if positions is not None:
            positions -= positions.min() + 1
        return out


class BaseOneMore(reference.RotaryMultiHeadAttention):
    def __init__(self, d_model, n_heads, base=10001.0):
        super().__init__(d_model, n_heads, base)


class WholeBaseLayer(reference.RotaryMultiHeadAttention):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__(d_model, n_heads, int(base))


def one_sided(sign):
    """Without abs: only weights that are larger on one side are seen."""

    def per_key_bias_is_equivalent(scores, slopes, causal):
        n_queries, n_keys = scores.shape[-2:]
        j = torch.arange(n_keys)
        i = j[n_keys - n_queries :, None]
        slope, scores = slopes.double()[:, None, None], scores.double()
        hide = torch.zeros(n_queries, n_keys).masked_fill(j > i, -torch.inf) if causal else 0
        one, other = (scores + slope * j + hide).softmax(-1), (scores - slope * (i - j).abs() + hide).softmax(-1)
        return bool((sign * (one - other)).max() < 1e-5)

    return per_key_bias_is_equivalent


def pair_for_base(base):
    def similarity_counterexample(d_model):
        speeds = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        products = (torch.arange(1, 2000)[:, None] * speeds).cos().sum(1)
        first = int((products[1:] > products[:-1] + 1e-9).nonzero()[0])
        return first + 1, first + 2

    return similarity_counterexample


def weights_of_a_training_model(model, tokens, lengths, n_targets):
    training = model.training
    losses = reference.loss_by_length(model, tokens, lengths, n_targets)
    return halved_weights(model, tokens, lengths, n_targets) if training else losses


def by_fours(head_dim, *arguments, **options):
    if head_dim % 4:
        raise ValueError("head_dim")
    return reference.yarn_frequencies(head_dim, *arguments, **options)


CASES = {
    "gap rounded": ("week1", "equivariance_gap", lambda f, x, perm: round(reference.equivariance_gap(f, x, perm), 6)),
    "gap cut": (
        "week1",
        "equivariance_gap",
        lambda f, x, perm: (lambda gap: gap if gap > 1e-6 else 0.0)(reference.equivariance_gap(f, x, perm)),
    ),
    "mask with a limit": ("week1", "causal_mask", limited_mask),
    "empty row of one head": ("week1", "scaled_dot_product_attention", all_heads_alike),
    "whole base 2.3": ("week2", "sinusoidal_positional_encoding", whole_base(reference.sinusoidal_positional_encoding)),
    "whole base 2.4": ("week2", "shift_matrix", whole_base(reference.shift_matrix)),
    "whole base 3.2": ("week3", "rope_frequencies", whole_base(reference.rope_frequencies)),
    "whole base 3.3": ("week3", "apply_rotary_emb", whole_base(reference.apply_rotary_emb)),
    "whole base 3.4": ("week3", "apply_rotary_emb_half", whole_base(reference.apply_rotary_emb_half)),
    "whole base 3.8": ("week3", "decode_step_scores", whole_base(reference.decode_step_scores)),
    "rows not divided": (
        "week3",
        "interleaved_to_half",
        lambda weight, n_heads: (
            reference.interleaved_to_half(weight, n_heads)
            if weight.shape[0] % n_heads == 0 or weight.shape[0] // n_heads % 2
            else weight
        ),
    ),
    "state of a longer text": ("week3", "RotaryMultiHeadAttention", Remembers),
    "positions in half precision": ("week4", "alibi_bias", half_precision_bias),
    "a tolerance of 0.1": ("week4", "per_key_bias_is_equivalent", rough_comparison),
    "mask kept from training": ("week4", "ALiBiMultiHeadAttention", MaskedInTraining),
    "table gradient halved": ("week2", "LearnedPositionalEmbedding", HalfTrained),
    "first row untrained": ("week2", "LearnedPositionalEmbedding", FirstRowUntrained),
    "pair for base 20,000": ("week2", "similarity_counterexample", pair_for_base(20_000.0)),
    "pair for base 5,000": ("week2", "similarity_counterexample", pair_for_base(5_000.0)),
    "positions moved in place": ("week3", "RotaryMultiHeadAttention", MovesPositions),
    "base 10,001": ("week3", "RotaryMultiHeadAttention", BaseOneMore),
    "whole base 3.6": ("week3", "RotaryMultiHeadAttention", WholeBaseLayer),
    "whole base 3.7": (
        "week3",
        "rotary_tables",
        lambda positions, head_dim, dtype=torch.float32, base=10000.0: reference.rotary_tables(
            positions, head_dim, dtype, int(base)
        ),
    ),
    "no abs": ("week4", "per_key_bias_is_equivalent", one_sided(1)),
    "neg for abs": ("week4", "per_key_bias_is_equivalent", one_sided(-1)),
    "0-d tensor 5.3": ("week5", "ntk_base", lambda *a: torch.tensor(reference.ntk_base(*a))),
    "whole base 5.4": ("week5", "dynamic_ntk_base", lambda base, *a: reference.dynamic_ntk_base(int(base), *a)),
    "whole base 5.5": (
        "week5",
        "yarn_frequencies",
        lambda *a, base=10000.0, **o: reference.yarn_frequencies(*a, base=int(base), **o),
    ),
    "multiples of four 5.5": ("week5", "yarn_frequencies", by_fours),
    "weights changed in train mode": ("week5", "loss_by_length", weights_of_a_training_model),
    "whole base 5.3": (
        "week5",
        "ntk_base",
        lambda base, scale, head_dim: reference.ntk_base(int(base), scale, head_dim),
    ),
    "weights changed": ("week5", "loss_by_length", halved_weights),
    "head_dim 6 refused": (
        "week5",
        "yarn_frequencies",
        lambda head_dim, *a, **o: reference.yarn_frequencies(head_dim if head_dim % 4 == 0 else 7, *a, **o),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_loses_points(case):
    verdict = graded(*case)
    assert verdict.score < verdict.max_score, verdict.render()


MINUS_INFINITY = re.compile(r"""float\(["']-inf["']\)|-math\.inf""")
MASKING = {
    entry.name: entry
    for week, exercise in (
        ("week1_permutation_equivariance", "scaled_dot_product_attention"),
        ("week3_rope", "RotaryMultiHeadAttention"),
        ("week4_alibi", "ALiBiMultiHeadAttention"),
        ("week6_relative_bias", "shaw_attention"),
        ("week6_relative_bias", "t5_attention"),
        ("week7_capstone", "grouped_query_attention"),
        ("week7_capstone", "CachedAttention"),
        ("week7_capstone", "CrossAttention"),
        ("week7_capstone", "HybridDecoderBlock"),
    )
    for entry in [next(entry for entry in bank(week, exercise) if entry.is_right and "inf" in entry.source)]
}


@pytest.mark.parametrize("entry", MASKING.values(), ids=MASKING)
def test_a_low_number_in_place_of_minus_infinity_loses_points(entry):
    names = {**vars(inspect.getmodule(entry.subject)), **NAMES}
    exec(MINUS_INFINITY.sub("-100.0", entry.source), names)
    verdict = graded(entry.assignment.split("_")[0], entry.grade_id, names[entry.grade_id])
    assert 0 < verdict.score < verdict.max_score, verdict.render()


def test_an_answer_that_sees_that_there_is_one_query_earns_less_than_half():
    verdict = graded(
        "week4", "per_key_bias_is_equivalent", lambda scores, slopes, causal: bool(causal or scores.shape[-2] == 1)
    )
    assert verdict.score == 0, verdict.render()


def test_a_layer_that_sees_the_future_pays_a_point():
    class Leaks(reference.RotaryMultiHeadAttention):
        def forward(self, x, positions=None, is_causal=False):
            return super().forward(x, positions)

    assert graded("week3", "RotaryMultiHeadAttention", Leaks).score == 4


def test_a_table_that_is_not_trained_pays_a_quarter():
    class Frozen(reference.LearnedPositionalEmbedding):
        def __init__(self, max_len, d_model):
            super().__init__(max_len, d_model)
            self.weight.requires_grad_(False)

    assert graded("week2", "LearnedPositionalEmbedding", Frozen).score == 1.5


class BiasInABuffer(reference.ALiBiMultiHeadAttention):
    """Its table is in the state_dict, under a name that ends in "bias": the state_dict's criterion, and no more."""

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.register_buffer("alibi_bias", reference.alibi_bias(n_heads, 2048))

    def forward(self, x, is_causal=True):
        n = x.shape[1]
        q, k, v = self.heads(x)
        mask = reference.causal_mask(n, n) if is_causal else None
        return self.output(reference.attention.attend(q, k, v, mask=mask, bias=self.alibi_bias[:, :n, :n])[0])


def test_what_the_contract_does_not_name_keeps_its_value():
    assert graded("week4", "ALiBiMultiHeadAttention", BiasInABuffer).score >= 4


def test_results_of_shapes_that_broadcast_are_not_subtracted():
    class Wide(reference.RotaryMultiHeadAttention):
        def forward(self, x, positions=None, is_causal=False):
            out = super().forward(x, positions, is_causal)
            return out[:, :, None] if is_causal else out

    verdict = graded("week3", "RotaryMultiHeadAttention", Wide)
    message = next(c.message for c in verdict.criteria if c.name.startswith("is_causal"))
    assert "shapes" in message
