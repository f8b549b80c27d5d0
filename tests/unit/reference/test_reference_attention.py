import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from autograder.reference import causal_mask, equivariance_gap, scaled_dot_product_attention

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
deterministic = settings(derandomize=True, deadline=None, max_examples=25)


def attention_in_loops(q, k, v, mask):
    """Compute the definition entry by entry in Python floats."""
    batch, heads, n_queries, head_dim = q.shape
    n_keys, v_dim = v.shape[-2:]
    weights = torch.zeros(batch, heads, n_queries, n_keys, dtype=torch.float64)
    out = torch.zeros(batch, heads, n_queries, v_dim, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(n_queries):
                seen = [j for j in range(n_keys) if mask[b, h, i, j]]
                exps = [
                    math.exp(
                        sum(q[b, h, i, c].item() * k[b, h, j, c].item() for c in range(head_dim)) / math.sqrt(head_dim)
                    )
                    for j in seen
                ]
                for j, e in zip(seen, exps, strict=True):
                    weights[b, h, i, j] = e / sum(exps)
                    out[b, h, i] += e / sum(exps) * v[b, h, j].double()
    return out, weights


def random_qkv(n_queries=4, n_keys=6, head_dim=5, v_dim=3, dtype=torch.float64, device="cpu", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(2, 3, *shape, dtype=dtype, generator=generator).to(device)
        for shape in [(n_queries, head_dim), (n_keys, head_dim), (n_keys, v_dim)]
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (2, 1, 1, 6), (1, 3, 4, 1), (4, 6), (1,), ()])
def test_against_the_definition_with_broadcasting_masks(shape, device):
    q, k, v = random_qkv()
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    expected = attention_in_loops(q, k, v, mask.expand(2, 3, 4, 6))
    result = scaled_dot_product_attention(*(t.to(device) for t in (q, k, v, mask)))
    for got, want in zip(result, expected, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float64, 1e-12, 1e-12), (torch.float32, 1e-5, 1e-6)])
def test_against_torch(dtype, rtol, atol, device):
    q, k, v = random_qkv(7, 9, 16, 8, dtype, device)
    some = torch.rand(2, 1, 7, 9, generator=torch.Generator().manual_seed(1)).to(device) < 0.7
    some[..., 0] = True  # avoid rows without a key, which torch treats its own way
    for mask in (None, some, causal_mask(7, 9).to(device)):
        out, weights = scaled_dot_product_attention(q, k, v, mask)
        expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(out, expected, rtol=rtol, atol=atol)
        torch.testing.assert_close(weights @ v, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype, device):
    q, k, v = random_qkv(16, 16, 8, 8, dtype, device)
    result = scaled_dot_product_attention(q, k, v, causal_mask(16, 16).to(device))
    expected = scaled_dot_product_attention(q.double(), k.double(), v.double(), causal_mask(16, 16).to(device))
    for got, want in zip(result, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_products_beyond_the_range_of_float16(device):
    q = torch.full((1, 1, 2, 64), 40.0, dtype=torch.float16, device=device)  # q k^T = 102400 > 65504, scaled 12800
    k = q * torch.tensor([1.0, 0.5], dtype=torch.float16, device=device)[:, None]
    v = torch.eye(2, dtype=torch.float16, device=device)[None, None]
    for t in (q, k, v):
        t.requires_grad_()
    out, _weights = scaled_dot_product_attention(q, k, v)
    assert torch.equal(out[0, 0], torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float16, device=device))
    out.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_fully_masked_rows_are_zero_with_zero_gradient(dtype, scale, device):
    q, k, v = ((t * scale).to(dtype).requires_grad_() for t in random_qkv(4, 4, 5, 3, device=device))
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    mask[1] = False
    with torch.autograd.detect_anomaly(check_nan=True):  # no NaN on the way either
        out, weights = scaled_dot_product_attention(q, k, v, mask)
        assert (out[:, :, 1] == 0).all() and (weights[:, :, 1] == 0).all()
        assert out.isfinite().all()
        (out[:, :, 1].sum() + weights[:, :, 1].sum()).backward(retain_graph=True)
        assert all((t.grad == 0).all() for t in (q, k, v))
        (out.square().sum() + weights.square().sum()).backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_a_masked_key_stays_masked_beside_very_low_scores():
    q, k = torch.full((1, 1, 1, 1), 1e3), torch.tensor([[[[-1e4], [-2e4], [0.0]]]])
    _, weights = scaled_dot_product_attention(q, k, k, torch.tensor([True, False, False]))
    assert weights.flatten().tolist() == [1, 0, 0]


def test_gradcheck_with_a_fully_masked_row():
    q, k, v = (t.requires_grad_() for t in random_qkv(3, 4, 2, 2))
    mask = causal_mask(3, 4)
    mask[0] = False
    assert torch.autograd.gradcheck(lambda *qkv: scaled_dot_product_attention(*qkv, mask), (q, k, v))


@deterministic
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_weights_sum_to_one_over_the_keys_that_may_be_seen(n_queries, n_keys, seed):
    q, k, v = random_qkv(n_queries, n_keys, seed=seed)
    mask = torch.rand(2, 3, n_queries, n_keys, generator=torch.Generator().manual_seed(seed)) < 0.5
    _, weights = scaled_dot_product_attention(q, k, v, mask)
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double())


# --- equivariance ---------------------------------------------------------------------------------------------------


def self_attention(x):
    return scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


def causal_self_attention(x):
    n = x.shape[1]
    return scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], causal_mask(n, n))[0][:, 0]


def test_self_attention_is_equivariant_not_invariant_and_a_causal_mask_breaks_it():
    generator = torch.Generator().manual_seed(0)
    x, perm = torch.randn(4, 32, 16, generator=generator), torch.randperm(32, generator=generator)
    gap = equivariance_gap(self_attention, x, perm)
    assert type(gap) is float and gap < 2e-6  # "of the order of 1e-7 in fp32"
    assert (self_attention(x[:, perm]) - self_attention(x)).abs().max() > 1  # not invariant
    assert equivariance_gap(causal_self_attention, x, perm) > 1


def test_gap_by_hand():
    x, perm = torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([1, 2, 0])  # not its own inverse

    def add_position(x):
        return x + torch.tensor([0.0, 10.0, 30.0])[:, None]

    # f(x[perm]) = [2, 14, 31], f(x)[perm] = [12, 34, 1]
    assert equivariance_gap(add_position, x, perm) == 30.0
    assert equivariance_gap(lambda x: x * 3, x, perm) == 0.0


def test_gap_is_not_rounded_and_sees_the_whole_batch():
    x, perm = torch.zeros(2, 2, 1, dtype=torch.bfloat16), torch.tensor([1, 0])
    table = torch.tensor([[[1.0], [0.0]], [[256.0], [1.0]]], dtype=torch.bfloat16)
    assert equivariance_gap(lambda x: x + table, x, perm) == 255.0
    shapes = []
    equivariance_gap(lambda x: shapes.append(tuple(x.shape)) or x, x, perm)
    assert shapes == [(2, 2, 1), (2, 2, 1)]


# --- causal mask ----------------------------------------------------------------------------------------------------


@deterministic
@given(st.integers(1, 9), st.integers(0, 9))
def test_causal_mask_is_aligned_at_the_end(n_queries, cached):
    n_keys = n_queries + cached
    mask = causal_mask(n_queries, n_keys)
    expected = [[j <= cached + row for j in range(n_keys)] for row in range(n_queries)]
    assert mask.dtype == torch.bool and mask.tolist() == expected
    assert torch.equal(mask, causal_mask(n_keys, n_keys)[cached:])


def test_causal_mask_refuses_more_queries_than_keys():
    with pytest.raises(ValueError, match="n_queries"):
        causal_mask(3, 2)
