"""Week 6's kernels: their definitions entry by entry, properties for all inputs, what they refuse."""

import math

import pytest
import torch
from helpers import random
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import (
    deberta_scores,
    rel_shift,
    relative_positions,
    scaled_dot_product_attention,
    shaw_attention,
    t5_attention,
    t5_bucket,
    transformer_xl_scores,
)

deterministic = settings(derandomize=True, deadline=None, max_examples=25)
SIZES = {"n_queries": st.integers(1, 6), "cached": st.integers(0, 5)}
EXACT = {"rtol": 0, "atol": 1e-12}


def qkv(n_queries, n_keys, head_dim=8, v_dim=6, heads=3, batch=2):
    return (
        random(batch, heads, n_queries, head_dim, seed=1),
        random(batch, heads, n_keys, head_dim, seed=2),
        random(batch, heads, n_keys, v_dim, seed=3),
    )


def seen(n_queries, n_keys):
    """Mark the keys that are not after the query: the part of the scores that week 6 uses."""
    return relative_positions(n_queries, n_keys) <= 0


# ---- offsets --------------------------------------------------------------------------------------------------------


@deterministic
@given(**SIZES)
def test_relative_positions_entry_by_entry(n_queries, cached):
    n_keys = n_queries + cached
    offset = relative_positions(n_queries, n_keys)
    assert offset.shape == (n_queries, n_keys) and offset.dtype == torch.int64
    for row in range(n_queries):
        for key in range(n_keys):
            assert offset[row, key] == key - (n_keys - n_queries + row)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 2), (-1, 4)])
def test_relative_positions_refuses(sizes):
    with pytest.raises(ValueError, match="n_queries"):
        relative_positions(*sizes)


# ---- Shaw -----------------------------------------------------------------------------------------------------------


def shaw_by_loops(q, k, v, rel_k, rel_v):
    clip, (n_queries, n_keys) = len(rel_k) // 2, (q.shape[-2], k.shape[-2])
    weights = torch.zeros(*q.shape[:2], n_queries, n_keys, dtype=q.dtype)
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    rows = [
        [clip + max(-clip, min(clip, j - (n_keys - n_queries + i))) for j in range(n_keys)] for i in range(n_queries)
    ]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(n_queries):
                scores = [
                    float(q[b, h, i] @ (k[b, h, j] + rel_k[rows[i][j]])) / math.sqrt(q.shape[-1]) for j in range(n_keys)
                ]
                weights[b, h, i] = torch.tensor(scores, dtype=q.dtype).softmax(0)
                out[b, h, i] = sum(weights[b, h, i, j] * (v[b, h, j] + rel_v[rows[i][j]]) for j in range(n_keys))
    return out, weights


@deterministic
@given(**SIZES, clip=st.integers(0, 7))
def test_shaw_is_the_double_loop(n_queries, cached, clip):
    q, k, v = qkv(n_queries, n_queries + cached)
    rel_k, rel_v = random(2 * clip + 1, 8, seed=4), random(2 * clip + 1, 6, seed=5)
    for ours, loops in zip(shaw_attention(q, k, v, rel_k, rel_v), shaw_by_loops(q, k, v, rel_k, rel_v), strict=True):
        torch.testing.assert_close(ours, loops, **EXACT)


def test_shaw_without_tables_is_plain_attention_and_masked_rows_are_zero():
    q, k, v = qkv(4, 7)
    mask = torch.ones(4, 7, dtype=torch.bool).tril(3)
    mask[2] = False
    zeros = torch.zeros(5, 8, dtype=q.dtype), torch.zeros(5, 6, dtype=q.dtype)
    for ours, plain in zip(
        shaw_attention(q, k, v, *zeros, mask), scaled_dot_product_attention(q, k, v, mask), strict=True
    ):
        torch.testing.assert_close(ours, plain, **EXACT)
    out, weights = shaw_attention(q, k, v, random(5, 8), random(5, 6), mask)
    assert not out[:, :, 2].any() and not weights[:, :, 2].any() and weights.isfinite().all()


@pytest.mark.parametrize("rows", [(4, 4), (5, 3), (0, 0)])
def test_shaw_refuses_tables_that_do_not_fit(rows):
    q, k, v = qkv(3, 3)
    with pytest.raises(ValueError, match="odd number of rows"):
        shaw_attention(q, k, v, torch.zeros(rows[0], 8).double(), torch.zeros(rows[1], 6).double())


# ---- Transformer-XL -------------------------------------------------------------------------------------------------


@deterministic
@given(**SIZES)
def test_rel_shift_by_its_definition_and_by_padding(n_queries, cached):
    n_keys = n_queries + cached
    x = random(2, 3, n_queries, n_keys)
    shifted = rel_shift(x)
    for i in range(n_queries):
        for j in range(cached + i + 1):
            assert torch.equal(shifted[..., i, j], x[..., i, j + n_queries - 1 - i])
    padded = torch.cat((torch.zeros(2, 3, n_queries, 1).double(), x), dim=-1).view(2, 3, n_keys + 1, n_queries)
    trick = padded[:, :, 1:].reshape(x.shape)  # as in the authors' code
    assert torch.equal(shifted[..., seen(n_queries, n_keys)], trick[..., seen(n_queries, n_keys)])
    assert torch.equal(rel_shift(x.mT.contiguous().mT), shifted), "a tensor that is not contiguous"


@deterministic
@given(**SIZES)
def test_transformer_xl_is_the_double_loop(n_queries, cached):
    n_keys = n_queries + cached
    q, k, _ = qkv(n_queries, n_keys)
    r, u, v = random(3, n_keys, 8, seed=4), random(3, 8, seed=5), random(3, 8, seed=6)
    scores = transformer_xl_scores(q, k, r, u, v)
    for i in range(n_queries):
        for j in range(cached + i + 1):
            expected = ((q[:, :, i] + u) * k[:, :, j] + (q[:, :, i] + v) * r[:, cached + i - j]).sum(-1) / math.sqrt(8)
            torch.testing.assert_close(scores[:, :, i, j], expected, **EXACT)


def test_transformer_xl_refuses_another_number_of_distances():
    q, k, _ = qkv(2, 4)
    for rows in (2, 7):
        with pytest.raises(ValueError, match="each distance"):
            transformer_xl_scores(q, k, random(3, rows, 8), random(3, 8), random(3, 8))
    with pytest.raises(ValueError, match="n_queries"):
        rel_shift(random(1, 1, 3, 2))


# ---- T5 -------------------------------------------------------------------------------------------------------------


def test_t5_buckets_of_the_conventions():
    back, ahead = torch.tensor(-20), torch.tensor(20)
    assert (int(t5_bucket(back)), int(t5_bucket(ahead)), int(t5_bucket(back, False))) == (10, 26, 17)
    assert int(t5_bucket(ahead, False)) == 0
    every = torch.arange(-3000, 3001)
    assert set(range(32)) - set(t5_bucket(every).tolist()) == {16}, "bucket 16 would be distance 0, ahead"
    assert set(t5_bucket(every, False).tolist()) == set(range(32))
    # the last bucket begins well before max_distance
    assert int(t5_bucket(torch.tensor(-90))) == 14 and int(t5_bucket(torch.tensor(-91))) == 15
    assert int(t5_bucket(torch.tensor(-112), False)) == 30 and int(t5_bucket(torch.tensor(-113), False)) == 31


def bucket_by_logarithms(m, side, max_distance):
    """Return the formula's bucket, and how far its logarithm is from a tie."""
    e = side // 2
    if m < e:
        return m, 1.0
    real = math.log(m / e) / math.log(max_distance / e) * (side - e)
    return min(side - 1, e + math.floor(real)), abs(real - round(real)) if real < side - e - 0.5 else 1.0


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(-3000, 3000), st.booleans(), st.integers(2, 64), st.integers(1, 900))
def test_t5_bucket_by_its_formula(offset, bidirectional, num_buckets, beyond):
    side = num_buckets // 2 if bidirectional else num_buckets
    if side < 2:
        return
    max_distance = side // 2 + beyond
    got = int(t5_bucket(torch.tensor(offset), bidirectional, num_buckets, max_distance))
    m = abs(offset) if bidirectional else max(-offset, 0)
    expected, off_the_tie = bucket_by_logarithms(m, side, max_distance)
    if off_the_tie > 1e-9:
        assert got == expected + (side if bidirectional and offset > 0 else 0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (64, 256), (128, 800), (8, 20), (4, 3), (33, 40)])
def test_t5_buckets_never_fall_with_the_distance_and_stay_in_range(bidirectional, num_buckets, max_distance):
    for offsets in (-torch.arange(0, 3000), torch.arange(1, 3000)):
        buckets = t5_bucket(offsets, bidirectional, num_buckets, max_distance)
        assert buckets.dtype == torch.int64 and (buckets.diff() >= 0).all()
        assert buckets.min() >= 0 and buckets.max() < num_buckets


@pytest.mark.parametrize(
    ("num_buckets", "max_distance", "tie", "bucket"),
    [(32, 128, 16, 10), (32, 128, 32, 12), (32, 128, 64, 14), (64, 256, 64, 24), (128, 800, 160, 48)],
)
def test_t5_bucket_is_exact_where_the_logarithm_is_whole(num_buckets, max_distance, tie, bucket):
    e = num_buckets // 4
    real = math.log(tie / e) / math.log(max_distance / e) * e
    assert abs(real - round(real)) < 1e-9 and bucket == e + round(real)
    assert int(t5_bucket(torch.tensor(-tie), True, num_buckets, max_distance)) == bucket
    assert int(t5_bucket(torch.tensor(1 - tie), True, num_buckets, max_distance)) == bucket - 1


@pytest.mark.parametrize("options", [(True, 2, 128), (False, 1, 128), (True, 32, 8), (False, 32, 16)])
def test_t5_bucket_refuses_what_has_no_logarithm(options):
    with pytest.raises(ValueError, match="exact buckets"):
        t5_bucket(torch.tensor([1, 2]), *options)


@deterministic
@given(**SIZES, is_causal=st.booleans())
def test_t5_attention_is_softmax_of_unscaled_scores_plus_bias(n_queries, cached, is_causal):
    n_keys = n_queries + cached
    q, k, v = qkv(n_queries, n_keys)
    table = random(8, 3, seed=4)
    out, weights = t5_attention(q, k, v, table, is_causal, 20)
    offset = relative_positions(n_queries, n_keys)
    scores = q @ k.mT
    for h in range(3):
        for i in range(n_queries):
            for j in range(n_keys):
                if is_causal and offset[i, j] > 0:
                    scores[:, h, i, j] = -math.inf
                else:
                    scores[:, h, i, j] += table[t5_bucket(offset[i, j], not is_causal, 8, 20), h]
    torch.testing.assert_close(weights, scores.softmax(-1), **EXACT)
    torch.testing.assert_close(out, scores.softmax(-1) @ v, **EXACT)


def test_t5_attention_does_not_see_a_constant_in_a_column_and_refuses_another_number_of_heads():
    q, k, v = qkv(4, 6)
    table = random(32, 3)
    torch.testing.assert_close(
        t5_attention(q, k, v, table + random(1, 3, seed=9))[0], t5_attention(q, k, v, table)[0], **EXACT
    )
    for shape in ((3, 32), (32, 1), (32,)):
        with pytest.raises(ValueError, match="column per head"):
            t5_attention(q, k, v, random(*shape))


# ---- DeBERTa --------------------------------------------------------------------------------------------------------


@deterministic
@given(st.integers(1, 8), st.integers(1, 6))
def test_deberta_is_the_double_loop(n, span):
    q, k, _ = qkv(n, n)
    pos_q, pos_k = random(3, 2 * span, 8, seed=4), random(3, 2 * span, 8, seed=5)
    scores = deberta_scores(q, k, pos_q, pos_k)
    for i in range(n):
        for j in range(n):
            row = max(0, min(2 * span - 1, i - j + span))
            expected = (q[:, :, i] * k[:, :, j] + q[:, :, i] * pos_k[:, row] + pos_q[:, row] * k[:, :, j]).sum(-1)
            torch.testing.assert_close(scores[:, :, i, j], expected / math.sqrt(24), **EXACT)


@pytest.mark.parametrize(("n_keys", "rows"), [(4, (6, 6)), (3, (5, 5)), (3, (6, 4)), (3, (0, 0))])
def test_deberta_refuses(n_keys, rows):
    q, k, _ = qkv(3, n_keys)
    with pytest.raises(ValueError, match="queries|rows"):
        deberta_scores(q, k, random(3, rows[0], 8), random(3, rows[1], 8))


# ---- all of them ----------------------------------------------------------------------------------------------------

CALLS = {
    "shaw": (lambda *a: shaw_attention(*a)[0], [(1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 3), (3, 4), (3, 3)]),
    "rel_shift": (rel_shift, [(1, 2, 3, 4)]),
    "transformer_xl": (
        lambda *a: transformer_xl_scores(*a)[..., seen(2, 3)],
        [(1, 2, 2, 4), (1, 2, 3, 4), (2, 3, 4), (2, 4), (2, 4)],
    ),
    "t5": (lambda *a: t5_attention(*a)[0], [(1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 3), (8, 2)]),
    "t5 causal": (lambda *a: t5_attention(*a, True)[0], [(1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 3), (8, 2)]),
    "deberta": (deberta_scores, [(1, 2, 3, 4), (1, 2, 3, 4), (2, 4, 4), (2, 4, 4)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name):
    call, shapes = CALLS[name]
    arguments = [random(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(call, arguments)
