import math

import pytest
import torch
from helpers import random
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import (
    ALiBiMultiHeadAttention,
    alibi_bias,
    alibi_slopes,
    causal_mask,
    effective_window,
    per_key_bias_is_equivalent,
    scaled_dot_product_attention,
)

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
deterministic = settings(derandomize=True, deadline=None, max_examples=25)


def test_slopes_of_8_and_12_heads():
    eight = [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(8).tolist() == eight
    twelve = alibi_slopes(12)
    torch.testing.assert_close(
        twelve, torch.tensor([*eight, 2 ** (-0.5), 2 ** (-1.5), 2 ** (-2.5), 2 ** (-3.5)]), rtol=6e-8, atol=0
    )
    assert twelve[0] == 0.5 and twelve.max().item() == pytest.approx(0.7071, abs=5e-5)


@pytest.mark.parametrize("n_heads", range(1, 129))
def test_slopes_in_the_official_order(n_heads):
    slopes = alibi_slopes(n_heads)
    assert slopes.shape == (n_heads,) and slopes.dtype == torch.float32
    power = max(2**e for e in range(8) if 2**e <= n_heads)
    expected = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    expected += [2 ** (-8 * k / (2 * power)) for k in range(1, 2 * power, 2)][: n_heads - power]
    torch.testing.assert_close(slopes, torch.tensor(expected), rtol=6e-8, atol=0)
    if n_heads == power:
        assert slopes[-1] == 2.0**-8 and (slopes.diff() < 0).all()  # the first head is the most local


@deterministic
@given(st.integers(1, 13), st.integers(1, 7), st.integers(0, 7))
def test_bias_entry_by_entry(n_heads, n_queries, cached):
    n_keys = n_queries + cached
    bias, slopes = alibi_bias(n_heads, n_queries, n_keys), alibi_slopes(n_heads)
    assert bias.shape == (n_heads, n_queries, n_keys) and bias.dtype == torch.float32
    for h in range(n_heads):
        for row in range(n_queries):
            for j in range(n_keys):
                expected = -slopes[h].item() * abs(cached + row - j)
                assert bias[h, row, j].item() == pytest.approx(expected, rel=2e-7, abs=0)


@deterministic
@given(st.integers(1, 13), st.integers(1, 9), st.integers(0, 9))
def test_bias_is_aligned_at_the_end_and_symmetric(n_heads, n_queries, cached):
    n_keys = n_queries + cached
    square = alibi_bias(n_heads, n_keys)
    assert torch.equal(alibi_bias(n_heads, n_queries, n_keys), square[:, cached:])
    assert torch.equal(square, square.transpose(1, 2)) and (square.diagonal(dim1=1, dim2=2) == 0).all()


def test_no_negative_zeros():
    assert not alibi_bias(2, 3).diagonal(dim1=1, dim2=2).signbit().any()


@pytest.mark.parametrize(
    "call",
    [
        lambda: alibi_slopes(0),
        lambda: alibi_bias(0, 2),
        lambda: alibi_bias(2, 3, 2),
        lambda: alibi_bias(2, 0, 2),
        lambda: alibi_bias(2, 0),
        lambda: per_key_bias_is_equivalent(torch.zeros(1, 1, 3, 2), torch.ones(1), False),
    ],
)
def test_errors(call):
    with pytest.raises(ValueError, match="n_heads|n_queries"):
        call()


# --- per-key bias ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (3, 6), (2, 9)])
def test_per_key_bias_is_equivalent_only_under_a_causal_mask(n_queries, n_keys, device):
    scores, slopes = random(2, 4, n_queries, n_keys, device=device), alibi_slopes(4)
    assert per_key_bias_is_equivalent(scores, slopes, True) is True
    assert per_key_bias_is_equivalent(scores, slopes, False) is False


def test_per_key_bias_where_the_mask_makes_no_difference():
    assert per_key_bias_is_equivalent(random(2, 4, 1, 9), alibi_slopes(4), False) is True  # the query is last
    assert per_key_bias_is_equivalent(random(2, 4, 5, 5), torch.zeros(4), False) is True
    assert per_key_bias_is_equivalent(random(2, 4, 5, 5), torch.full((4,), 1e-7), False) is True
    assert per_key_bias_is_equivalent(random(2, 4, 5, 5), torch.tensor([0, 0, 0, 0.1]), False) is False
    assert per_key_bias_is_equivalent(torch.zeros(1, 1, 2, 2).double(), torch.tensor([2e-4]), False) is False  # 1e-4


def test_per_key_bias_sizes():
    scores, slope, n = random(2, 8, 64, 64, dtype=torch.float32), alibi_slopes(8)[:, None, None], 64
    per_key = scores + slope * torch.arange(n)
    relative = scores + alibi_bias(8, n)
    hidden = ~causal_mask(n, n)
    causal_gap = (
        (per_key.masked_fill(hidden, -math.inf).softmax(-1) - relative.masked_fill(hidden, -math.inf).softmax(-1))
        .abs()
        .max()
    )
    assert causal_gap < 2e-6  # rounding: about 1e-7 at 16 positions, 4e-7 at 64
    assert (per_key.softmax(-1) - relative.softmax(-1)).abs().max() > 0.7
    signed = scores - slope * (torch.arange(n)[:, None] - torch.arange(n))
    torch.testing.assert_close(signed.softmax(-1), per_key.softmax(-1), rtol=0, atol=5e-6)


# --- attention ------------------------------------------------------------------------------------------------------


def module_in_loops(module, x, is_causal):
    """Compute the module in float64, bias and mask entry by entry; slopes in double precision, also for 12 heads."""
    n, size = x.shape[1], x.shape[-1] // module.n_heads
    slopes = {
        3: [2**-4, 2**-8, 2**-2],
        4: [2.0 ** -(2 * k) for k in range(1, 5)],
        12: [2.0**-k for k in range(1, 9)] + [2 ** -(k + 0.5) for k in range(4)],
    }[module.n_heads]
    q, k, v = (x.double() @ p.weight.double().T for p in (module.q_proj, module.k_proj, module.v_proj))
    out = torch.zeros_like(q)
    for h, slope in enumerate(slopes):
        part = slice(h * size, (h + 1) * size)
        for i in range(n):
            seen = range(i + 1) if is_causal else range(n)
            scores = torch.stack(
                [q[:, i, part].mul(k[:, j, part]).sum(-1) / math.sqrt(size) - slope * abs(i - j) for j in seen], dim=-1
            )
            out[:, i, part] = (scores.softmax(-1)[..., None] * v[:, : len(seen), part]).sum(1)
    return out @ module.o_proj.weight.double().T


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("d_model", "n_heads", "n"), [(12, 4, 9), (9, 3, 7), (24, 12, 15)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
    ids=str,
)
def test_alibi_attention_in_loops(dtype, tolerance, d_model, n_heads, n, is_causal, device):
    torch.manual_seed(0)
    module = ALiBiMultiHeadAttention(d_model, n_heads).to(dtype)
    x = random(2, n, d_model, dtype=dtype)
    expected = module_in_loops(module, x, is_causal)
    out = module.to(device)(x.to(device), is_causal)
    assert out.dtype == dtype and out.shape == x.shape
    torch.testing.assert_close(out.double().cpu(), expected, rtol=0, atol=tolerance)


def test_causal_is_the_default():
    torch.manual_seed(0)
    module, x = ALiBiMultiHeadAttention(12, 4), random(1, 5, 12, dtype=torch.float32)
    assert torch.equal(module(x), module(x, is_causal=True))
    assert torch.equal(module(x)[:, :3], module(torch.cat((x[:, :3], -x[:, 3:]), dim=1))[:, :3])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_bias_is_not_rounded_to_half_precision(dtype, device):
    """Without content the bias alone decides. bfloat16 would round 1532 / 32 = 47.875 to a multiple of 0.25."""
    n, far = 1536, 1532
    module = ALiBiMultiHeadAttention(8, 8).to(device, dtype)
    torch.nn.init.zeros_(module.q_proj.weight)
    for projection in (module.v_proj, module.o_proj):
        torch.nn.init.eye_(projection.weight)
    x = torch.zeros(1, n, 8, dtype=dtype, device=device)
    x[:, far] = 1
    out = module(x, is_causal=False)[0, 0]  # the weight that query 0 gives to the far key, per head
    weight = (-alibi_slopes(8).double()[:, None] * torch.arange(n)).softmax(-1)[:, far]
    # rounding a score of -48 moves its exponential by 48 times the rounding
    rounding = 48 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps + torch.finfo(dtype).eps
    torch.testing.assert_close(out.double().cpu(), weight, rtol=rounding, atol=torch.finfo(dtype).tiny)


def test_attention_by_hand_with_equal_content():
    # one slope of 1/2, causal, equal content: the weights of the last of three are e^-1, e^-1/2, 1 over their sum
    q = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    _, weights = scaled_dot_product_attention(q, q, q, causal_mask(3, 3))
    torch.testing.assert_close(weights[0, 0, 2], torch.full((3,), 1 / 3, dtype=torch.float64))
    module = ALiBiMultiHeadAttention(8, 8).double()
    torch.nn.init.zeros_(module.k_proj.weight)
    for projection in (module.v_proj, module.o_proj):
        torch.nn.init.eye_(projection.weight)
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)[None, :, None].expand(1, 3, 8)
    total = math.exp(-1) + math.exp(-0.5) + 1
    assert module(x)[0, 2, 0].item() == pytest.approx((math.exp(-1) + 2 * math.exp(-0.5) + 4) / total, rel=1e-12)


# --- window ---------------------------------------------------------------------------------------------------------


@deterministic
@given(st.floats(1e-3, 5), st.floats(1e-6, 0.99))
def test_window_is_the_least_distance(slope, tol):
    window = effective_window(slope, tol)
    assert type(window) is int
    slack = 1 + 1e-9  # ignore ties
    assert math.exp(-slope * window) <= tol * slack
    assert window == 0 or math.exp(-slope * (window - 1)) > tol / slack


def test_windows():
    assert effective_window(0.5) == 10 and effective_window(2.0**-8) == 1179
    assert effective_window(torch.tensor(0.5), torch.tensor(0.01)) == 10
    assert effective_window(0.5, 1) == 0 and effective_window(100.0) == 1
    windows = [effective_window(slope) for slope in alibi_slopes(8)]
    assert windows == sorted(windows)  # the first head is the most local


@pytest.mark.parametrize(
    ("slope", "tol"), [(0, 0.1), (-1, 0.1), (1, 0), (1, 1.5), (1, -0.1), (math.nan, 0.1), (1, math.nan)]
)
def test_window_errors(slope, tol):
    with pytest.raises(ValueError):
        effective_window(slope, tol)
