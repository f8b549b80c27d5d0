import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import (
    dynamic_ntk_base,
    ntk_base,
    position_interpolation,
    rope_frequencies,
    yarn_frequencies,
    yarn_temperature,
)

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
deterministic = settings(derandomize=True, deadline=None, max_examples=25)
head_dims = st.integers(2, 64).map(lambda pairs: 2 * pairs)
scales = st.floats(1, 64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_position_interpolation(dtype, device):
    result = position_interpolation(torch.tensor([[0, 1, 7], [-3, 100, 12]], dtype=dtype, device=device), 4)
    assert result.dtype == (dtype if dtype.is_floating_point else torch.float32) and result.device.type == device
    assert result.tolist() == [[0, 0.25, 1.75], [-0.75, 25, 3]]


def test_position_interpolation_far_out_and_gradient():
    assert position_interpolation(torch.tensor([4_000_001]), 4).item() == 1000000.25
    positions = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: position_interpolation(p, 2.5), (positions,))


def test_ntk_bases():
    assert ntk_base(10000, 2, 64) == pytest.approx(20452.23, abs=0.005)
    assert ntk_base(10000, 2, 128) == pytest.approx(20221.26, abs=0.005)
    assert ntk_base(10000, 4, 64) == pytest.approx(41829.37, abs=0.005)
    assert type(ntk_base(10000, 1, 64)) is float and ntk_base(10000, 1, 64) == 10000


@deterministic
@given(head_dims, scales)
def test_ntk_leaves_the_first_pair_and_divides_the_last_by_the_scale(head_dim, scale):
    stretched = rope_frequencies(head_dim, ntk_base(1e4, scale, head_dim))
    ratio = rope_frequencies(head_dim).double() / stretched.double()
    assert ratio[0] == 1
    assert ratio[-1].item() == pytest.approx(scale, rel=1e-6)
    assert (ratio.diff() > -1e-6).all()


@deterministic
@given(head_dims, scales, st.integers(1, 4096), st.integers(1, 8192))
def test_dynamic_ntk(head_dim, scale, original_len, beyond):
    def base(seq_len):
        return dynamic_ntk_base(1e4, scale, head_dim, seq_len, original_len)

    assert type(base(original_len)) is float and base(original_len) == base(1) == 1e4
    # the static rule with the stretch s*L/L0 - (s-1), which is s at L = 2 L0 - L0/s
    stretch = scale * (original_len + beyond) / original_len - (scale - 1)
    assert base(original_len + beyond) == pytest.approx(ntk_base(1e4, stretch, head_dim), rel=1e-12)
    assert base(original_len + beyond) > 1e4
    assert base(original_len) == 1e4  # no memory of the longer call


def test_dynamic_ntk_by_hand():
    assert dynamic_ntk_base(1e4, 2, 64, 8192, 4096) == pytest.approx(1e4 * 3 ** (64 / 62), rel=1e-12)
    assert dynamic_ntk_base(1e4, 1, 64, 8192, 4096) == pytest.approx(ntk_base(1e4, 2, 64), rel=1e-12)


def yarn_in_loops(head_dim, scale, original_len, base=1e4, beta_fast=32.0, beta_slow=1.0):
    """Compute the frequencies pair by pair in Python floats."""

    def dim(turns):
        return head_dim * math.log(original_len / (2 * math.pi * turns)) / (2 * math.log(base))

    low, high = max(math.floor(dim(beta_fast)), 0), min(math.ceil(dim(beta_slow)), head_dim - 1)
    high = high + 0.001 if low == high else high
    result = []
    for i in range(head_dim // 2):
        keep = 1 - min(max((i - low) / (high - low), 0), 1)
        result.append(base ** (-2 * i / head_dim) * (keep + (1 - keep) / scale))
    return torch.tensor(result)


@deterministic
@given(
    head_dims,
    scales,
    st.integers(2, 100_000),
    st.sampled_from([1e4, 5e5, 100.0]),
    st.sampled_from([(32.0, 1.0), (4.0, 0.5), (1.0, 1.0)]),
)
def test_yarn_pair_by_pair(head_dim, scale, original_len, base, betas):
    result = yarn_frequencies(head_dim, scale, original_len, base, *betas)
    assert result.dtype == torch.float32 and result.shape == (head_dim // 2,)
    torch.testing.assert_close(result, yarn_in_loops(head_dim, scale, original_len, base, *betas), rtol=2e-7, atol=0)


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones():
    ratio = rope_frequencies(128).double() / yarn_frequencies(128, 4, 4096).double()
    turns = 4096 * rope_frequencies(128) / (2 * math.pi)
    assert (ratio[turns > 40] == 1).all() and (turns > 40).sum() >= 15
    torch.testing.assert_close(ratio[turns < 0.8], torch.full_like(ratio[turns < 0.8], 4.0), rtol=1e-6, atol=0)
    assert (ratio.diff() > -1e-6).all() and ((ratio > 1.01) & (ratio < 3.99)).sum() > 10
    torch.testing.assert_close(yarn_frequencies(128, 1, 4096), rope_frequencies(128))


def test_yarn_where_the_ramp_has_no_width():
    # 6 positions are just under one turn of the fastest pair: both ends of the ramp are 0
    torch.testing.assert_close(yarn_frequencies(8, 4, 6), yarn_in_loops(8, 4, 6), rtol=2e-7, atol=0)
    ratio = rope_frequencies(8) / yarn_frequencies(8, 4, 6)
    torch.testing.assert_close(ratio, torch.tensor([1.0, 4, 4, 4]))


def test_yarn_temperature():
    assert yarn_temperature(4) == pytest.approx(1.138629, abs=5e-7)
    assert yarn_temperature(4) ** 2 == pytest.approx(1.296477, abs=5e-7)
    assert yarn_temperature(1) == yarn_temperature(0.5) == 1.0 and type(yarn_temperature(1)) is float


@pytest.mark.parametrize("head_dim", [7, 2, 1, 0])
def test_head_dim_errors(head_dim):
    with pytest.raises(ValueError, match="head_dim"):
        ntk_base(1e4, 4, head_dim)
    for seq_len in (1, 100):
        with pytest.raises(ValueError, match="head_dim"):
            dynamic_ntk_base(1e4, 4, head_dim, seq_len, 50)


def test_yarn_odd_head_dim():
    with pytest.raises(ValueError, match="even"):
        yarn_frequencies(7, 4, 4096)
