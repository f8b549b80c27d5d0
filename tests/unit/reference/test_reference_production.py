"""Week 8's kernels: properties for every size, and what must be refused."""

import math

import pytest
import torch
from helpers import random
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from autograder.reference import (
    apply_mrope,
    apply_rotary_emb_half,
    causal_mask,
    layers_that_turn,
    mla_attention,
    mrope_positions,
    partial_rotary_emb,
    scaled_dot_product_attention,
    sliding_window_mask,
    softmax_with_sink,
    streaming_cache,
)

EXACT = {"rtol": 0, "atol": 1e-12}
FEW = settings(max_examples=40, deadline=None)
SIZES = st.integers(0, 4)
SEGMENTS = st.lists(st.one_of(SIZES, st.tuples(SIZES, SIZES, SIZES)), max_size=5)


# ---- rotations ------------------------------------------------------------------------------------------------------


@given(head_dim=st.integers(2, 11), pairs=st.integers(1, 5))
@FEW
def test_a_part_turns_as_a_head_of_its_own_width(head_dim, pairs):
    x, positions, rotary_dim = random(2, 3, 4, head_dim), random(2, 4, seed=1) * 50, 2 * pairs
    if rotary_dim > head_dim:
        with pytest.raises(ValueError, match="rotary_dim"):
            partial_rotary_emb(x, positions, rotary_dim)
        return
    out = partial_rotary_emb(x, positions, rotary_dim, 500)
    assert torch.equal(out[..., :rotary_dim], apply_rotary_emb_half(x[..., :rotary_dim], positions, 500))
    assert torch.equal(out[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize("rotary_dim", [-2, 0, 1, 3, 9, 10])
def test_parts_that_cannot_turn(rotary_dim):
    with pytest.raises(ValueError, match="rotary_dim"):
        partial_rotary_emb(random(1, 1, 3, 8), torch.arange(3), rotary_dim)


def test_with_the_same_position_on_all_axes_it_is_rope():
    x, positions = random(2, 3, 5, 16), random(2, 5, seed=1) * 100
    for sections in ((2, 3, 3), (8, 0, 0), (0, 1, 7)):
        torch.testing.assert_close(
            apply_mrope(x, positions.expand(3, 2, 5), sections), apply_rotary_emb_half(x, positions), **EXACT
        )


@pytest.mark.parametrize(
    ("head_dim", "sections"), [(12, (2, 2, 1)), (12, (4, 4, 4)), (7, (1, 1, 1)), (12, (3, 3)), (12, (8, -1, -1))]
)
def test_sections_that_do_not_fit(head_dim, sections):
    with pytest.raises(ValueError, match="sections"):
        apply_mrope(random(1, 1, 3, head_dim), torch.zeros(3, 3), sections)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3), (3, 3, 3), (3, 1, 2, 3)])
def test_positions_of_another_shape(shape):
    with pytest.raises(ValueError, match="positions"):
        apply_mrope(random(2, 1, 3, 12), torch.zeros(shape), (2, 2, 2))


def test_far_positions_in_bfloat16():
    x, positions = random(1, 2, 3, 16), torch.tensor([4097, 8191, 6001])
    for exact, rounded in (
        (partial_rotary_emb(x, positions, 8), partial_rotary_emb(x.bfloat16(), positions, 8)),
        (
            apply_mrope(x, positions.expand(3, 3), (2, 3, 3)),
            apply_mrope(x.bfloat16(), positions.expand(3, 3), (2, 3, 3)),
        ),
    ):
        assert rounded.dtype == torch.bfloat16
        torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=0.04)


# ---- positions ------------------------------------------------------------------------------------------------------


@given(segments=SEGMENTS)
@FEW
def test_positions_by_the_rule(segments):
    expected, largest = [], -1
    for segment in segments:
        s = largest + 1
        if isinstance(segment, int):
            tokens = [(s + i,) * 3 for i in range(segment)]
        else:
            tokens = [
                (s + n // (segment[1] * segment[2]), s + n // segment[2] % segment[1], s + n % segment[2])
                for n in range(math.prod(segment))
            ]
        expected += tokens
        largest = max([largest, *(number for token in tokens for number in token)])
    found = mrope_positions(segments)
    assert found.dtype == torch.int64 and found.shape == (3, len(expected))
    assert found.T.tolist() == [list(token) for token in expected]


@pytest.mark.parametrize("segments", [[-1], [(1, -2, 3)]])
def test_negative_sizes(segments):
    with pytest.raises(ValueError, match="negative"):
        mrope_positions(segments)


# ---- windows, sinks, streams ----------------------------------------------------------------------------------------


@given(n_keys=st.integers(1, 9), n_queries=st.integers(1, 9), window=st.integers(1, 12))
@FEW
def test_a_window_counts_the_query_itself(n_keys, n_queries, window):
    if n_queries > n_keys:
        with pytest.raises(ValueError, match="n_queries"):
            sliding_window_mask(n_queries, n_keys, window)
        return
    mask = sliding_window_mask(n_queries, n_keys, window)
    for row, at in zip(mask.tolist(), range(n_keys - n_queries, n_keys), strict=True):
        assert [key for key, seen in enumerate(row) if seen] == list(range(max(0, at - window + 1), at + 1))
    if window >= n_keys:
        assert torch.equal(mask, causal_mask(n_queries, n_keys))


def test_a_window_without_the_query_itself():
    with pytest.raises(ValueError, match="window"):
        sliding_window_mask(2, 3, 0)


def test_what_a_sink_takes():
    scores, sinks = random(2, 3, 4, 5) * 3, random(3, seed=1)
    weights = softmax_with_sink(scores, sinks)
    share = torch.sigmoid(sinks[:, None] - scores.logsumexp(dim=-1))
    torch.testing.assert_close(weights.sum(dim=-1), 1 - share, **EXACT)
    torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), scores.softmax(-1), **EXACT)
    torch.testing.assert_close(softmax_with_sink(scores + 700, sinks + 700), weights, **EXACT)
    assert torch.equal(softmax_with_sink(scores, sinks - math.inf), scores.softmax(-1))


def test_a_row_without_keys_goes_to_the_sink():
    scores, sinks = random(1, 2, 3, 4).requires_grad_(), random(2, seed=1).requires_grad_()
    hidden = torch.tensor([False, True, False])[:, None].expand(3, 4)
    weights = softmax_with_sink(scores.masked_fill(hidden, -math.inf), sinks)
    assert not weights[:, :, 1].any()
    assert torch.autograd.gradcheck(
        lambda scores, sinks: softmax_with_sink(scores.masked_fill(hidden, -math.inf), sinks), (scores, sinks)
    )


@given(n_tokens=st.integers(0, 12), n_sinks=st.integers(0, 5), window=st.integers(1, 8))
@FEW
def test_a_cache_is_bounded_and_holds_each_token_once(n_tokens, n_sinks, window):
    kept, positions = streaming_cache(n_tokens, n_sinks, window)
    assert kept.dtype == positions.dtype == torch.int64
    wanted = {*range(min(n_sinks, n_tokens)), *range(max(n_tokens - window, 0), n_tokens)}
    assert kept.tolist() == sorted(wanted) and len(wanted) == min(n_tokens, n_sinks + window)
    assert positions.tolist() == list(range(len(wanted)))


@pytest.mark.parametrize("sizes", [(-1, 2, 3), (5, -1, 3), (5, 2, 0)])
def test_caches_that_cannot_be(sizes):
    with pytest.raises(ValueError, match="needed"):
        streaming_cache(*sizes)


# ---- latent attention -----------------------------------------------------------------------------------------------


def drawn(batch=2, heads=3, n_queries=4, n_keys=6, dn=5, dr=4, dv=7, rank=3):
    shapes = (
        (batch, heads, n_queries, dn),
        (batch, heads, n_queries, dr),
        (batch, n_keys, rank),
        (batch, n_keys, dr),
        (heads, dn, rank),
        (heads, dv, rank),
    )
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("mask", [None, causal_mask(4, 6), random(2, 3, 4, 6) > 0.5, random(2, 1, 1, 6) > 0])
def test_absorbed_and_expanded_are_the_same(mask):
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = drawn()
    keys = torch.stack(
        [torch.cat((latent @ w_uk[h].T, k_rope), dim=-1) for h in range(3)], dim=1
    )  # naive: every head's keys and values written out
    values = torch.stack([latent @ w_uv[h].T for h in range(3)], dim=1)
    expected, _ = scaled_dot_product_attention(torch.cat((q_nope, q_rope), dim=-1), keys, values, mask)
    torch.testing.assert_close(mla_attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask), expected, **EXACT)


def test_a_query_without_a_key_has_no_output_and_finite_gradients():
    tensors = [tensor.requires_grad_() for tensor in drawn()]
    mask = causal_mask(4, 6).clone()
    mask[2] = False
    out = mla_attention(*tensors, mask)
    assert not out[:, :, 2].any()
    out.square().sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in tensors)
    with pytest.raises(TypeError, match="boolean"):
        mla_attention(*tensors, mask.float())


def test_no_key_of_a_head_is_written_out():
    """No intermediate tensor has heads * n_keys * dn or heads * n_keys * rank elements: a product that broadcasts over
    the heads would copy its smaller side."""
    batch, heads, n_keys, rank = 2, 8, 500, 16
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            nonlocal largest
            out = function(*arguments, **(options or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.untyped_storage().nbytes() // out.element_size())
            return out

    tensors = drawn(batch=batch, heads=heads, n_queries=1, n_keys=n_keys, dn=64, dr=8, dv=64, rank=rank)
    with Sizes():
        mla_attention(*tensors)
    assert largest == max(batch * n_keys * rank, heads * 64 * rank)


def test_layers_that_turn_by_hand():
    small = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}
    kinds = ["linear_attention", "sliding_attention", "full_attention"]
    for fields, expected in (
        ({}, [16, 16, 16]),
        ({"head_dim": 40, "rotary_pct": 0.3}, [12, 12, 12]),
        ({"no_rope_layers": [0, 1, 0], "rope_parameters": {"partial_rotary_factor": 0.5}}, [0, 8, 0]),
        ({"layer_types": kinds, "sliding_window": 8}, [0, 16, 16]),
        ({"layer_types": kinds, "sliding_window": 8, "model_type": "cohere2"}, [0, 16, 0]),
        ({"layer_types": kinds, "sliding_window": None, "model_type": "exaone4"}, [0, 16, 16]),
        ({"qk_rope_head_dim": 6, "qk_nope_head_dim": 32}, [6, 6, 6]),
    ):
        assert layers_that_turn(small | fields) == expected
