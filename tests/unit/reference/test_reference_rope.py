import math

import pytest
import torch
from helpers import random
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import (
    RotaryMultiHeadAttention,
    apply_rotary_emb,
    apply_rotary_emb_half,
    causal_mask,
    decode_step_scores,
    interleaved_to_half,
    look_back_head,
    rope_frequencies,
    rotary_tables,
    rotate_half,
    scaled_dot_product_attention,
    serving_test,
    shift_matrix,
)

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
HALVES = [torch.bfloat16, torch.float16]
deterministic = settings(derandomize=True, deadline=None, max_examples=25)
even = st.integers(1, 16).map(lambda pairs: 2 * pairs)
real = st.floats(-1e4, 1e4)
seeds = st.integers(0, 10**6)
layouts = pytest.mark.parametrize("rotate", [apply_rotary_emb, apply_rotary_emb_half])


def frequencies64(head_dim, base=10000.0):
    return torch.tensor([math.pow(base, -2 * i / head_dim) for i in range(head_dim // 2)], dtype=torch.float64)


def rotated_by_complex_numbers(x, positions, base=10000.0):
    """Multiply interleaved pairs, as complex numbers, by e^(i p w)."""
    angles = positions.double().cpu()[..., None] * frequencies64(x.shape[-1], base)
    if positions.ndim == 2:
        angles = angles[:, None]
    pairs = torch.view_as_complex(x.double().cpu().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def halves_to_pairs(head_dim):
    """perm = 0, d/2, 1, d/2 + 1, ..."""
    return torch.arange(head_dim).view(2, -1).T.flatten()


@pytest.mark.parametrize("base", [10000.0, 500000.0, 10.0])
@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_frequencies(head_dim, base):
    result = rope_frequencies(head_dim, base)
    assert result.dtype == torch.float32 and result.shape == (head_dim // 2,)
    torch.testing.assert_close(result, frequencies64(head_dim, base).float(), rtol=6e-8, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", [10000.0, 500.0])
@pytest.mark.parametrize(
    "positions",
    [
        torch.arange(5),
        torch.tensor([3, -1, 100_000, 0, 3]),
        torch.tensor([0.25, -7.5, 1e5, 2.0, 0.0]),
        torch.arange(10).view(2, 5),
        torch.tensor([[4.5, 3, 2, 1, 0], [-9, 8, -7, 6, -5]]),
        torch.arange(5)[None],
    ],
    ids=["0..4", "any integers", "reals", "per batch", "per batch, reals", "one row for the batch"],
)
def test_interleaved_against_complex_numbers(positions, base, device):
    x = random(2, 3, 5, 8)
    expected = rotated_by_complex_numbers(x, positions, base)
    result = apply_rotary_emb(x.to(device), positions.to(device), base)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-12, atol=1e-12)
    single = apply_rotary_emb(x.float().to(device), positions.to(device), base)
    torch.testing.assert_close(single.double().cpu(), expected, rtol=0, atol=2e-6)


def test_by_hand():
    # d = 2, theta = 1: q = (1, 0) at 3, k = (0, 1) at 1 score sin(3 - 1); the same at 12 and 10
    q, k = torch.tensor([[[[1.0, 0.0]]]]).double(), torch.tensor([[[[0.0, 1.0]]]]).double()
    for m, n in [(3, 1), (12, 10)]:
        rotated_q = apply_rotary_emb(q, torch.tensor([m]))
        torch.testing.assert_close(rotated_q.flatten().tolist(), [math.cos(m), math.sin(m)])
        score = (rotated_q * apply_rotary_emb(k, torch.tensor([n]))).sum().item()
        assert score == pytest.approx(math.sin(2), abs=1e-14)


@layouts
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precision_is_rounded_once(rotate, dtype, device):
    x = random(2, 3, 4, 128, dtype=dtype, device=device)
    positions = torch.tensor([0, 257, 4095, 100_003], device=device)
    expected = rotate(x.double(), positions)
    torch.testing.assert_close(rotate(x, positions).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-6)


@deterministic
@given(even, seeds, st.lists(real, min_size=1, max_size=6))
def test_half_split_is_interleaved_under_a_permutation(head_dim, seed, positions):
    x, positions = random(2, 3, len(positions), head_dim, seed=seed), torch.tensor(positions)
    perm = halves_to_pairs(head_dim)
    assert torch.equal(apply_rotary_emb(x[..., perm], positions), apply_rotary_emb_half(x, positions)[..., perm])


@layouts
@deterministic
@given(even, seeds, st.lists(real, min_size=1, max_size=6))
def test_norms_are_preserved(rotate, head_dim, seed, positions):
    x = random(2, 3, len(positions), head_dim, seed=seed)
    rotated = rotate(x, torch.tensor(positions))
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1), rtol=1e-12, atol=0)


@layouts
@deterministic
@given(even, seeds, real, real, real)
def test_scores_depend_on_the_relative_position(rotate, head_dim, seed, m, n, shift):
    q, k = random(2, 1, 2, 1, head_dim, seed=seed)

    def score(m, n):
        m, n = torch.tensor([m], dtype=torch.float64), torch.tensor([n], dtype=torch.float64)
        return (rotate(q, m) * rotate(k, n)).sum(dim=-1)

    torch.testing.assert_close(score(m + shift, n + shift), score(m, n), rtol=0, atol=1e-9)


@layouts
@deterministic
@given(even, seeds, real, real)
def test_rotations_add_up(rotate, head_dim, seed, a, b):
    x = random(1, 2, 1, head_dim, seed=seed)
    a, b = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    torch.testing.assert_close(rotate(rotate(x, a), b), rotate(x, a + b), rtol=0, atol=1e-9)
    torch.testing.assert_close(rotate(rotate(x, a), -a), x, rtol=0, atol=1e-11)


@deterministic
@given(even, seeds, st.integers(-1000, 1000))
def test_rotation_is_the_transposed_shift_matrix(head_dim, seed, offset):
    # M(k) acts on (sin, cos), RoPE on (x, y): the blocks are each other's transposes.
    x = random(1, 1, 1, head_dim, seed=seed)
    rotated = apply_rotary_emb(x, torch.tensor([offset])).flatten()
    torch.testing.assert_close(shift_matrix(offset, head_dim).double().T @ x.flatten(), rotated, rtol=0, atol=1e-5)


@layouts
def test_position_zero_is_the_identity_and_heads_do_not_mix(rotate):
    x = random(2, 3, 3, 8)  # as many heads as positions
    assert torch.equal(rotate(x, torch.zeros(3)), x)
    positions = torch.tensor([0, 5, 9])
    each = torch.cat([rotate(x[:, h : h + 1], positions) for h in range(3)], dim=1)
    assert torch.equal(rotate(x, positions), each)


@layouts
def test_gradients(rotate):
    x = random(2, 2, 3, 4).requires_grad_()
    positions = torch.tensor([[0.5, 1.0, 7.0], [2.0, 3.0, -4.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotate, (x, positions))


@layouts
def test_errors(rotate):
    with pytest.raises(ValueError, match="even"):
        rotate(torch.zeros(1, 1, 2, 5), torch.arange(2))
    for positions in (torch.arange(1), torch.arange(3), torch.zeros(3, 2), torch.zeros(2, 1, 2), torch.tensor(1)):
        with pytest.raises(ValueError, match="positions"):
            rotate(torch.zeros(2, 1, 2, 4), positions)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rope_frequencies(7),
        lambda: rotary_tables(torch.arange(3), 7),
        lambda: rotate_half(torch.zeros(2, 7)),
        lambda: interleaved_to_half(torch.zeros(14, 4), 2),
        lambda: RotaryMultiHeadAttention(14, 2),
        lambda: decode_step_scores(torch.zeros(1, 1, 1, 7), torch.zeros(1, 1, 2, 7)),
    ],
)
def test_odd_dimensions(call):
    with pytest.raises(ValueError, match="even"):
        call()


# --- layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n_heads", "head_dim"), [(1, 8), (3, 6), (4, 2)])
def test_converted_projections_give_the_same_score_per_head(n_heads, head_dim, device):
    w_q, w_k, x = (
        random(n_heads * head_dim, 10, seed=1, device=device),
        random(n_heads * head_dim, 10, seed=2, device=device),
        random(2, 7, 10, device=device),
    )
    positions = torch.arange(7, device=device) * 3

    def scores(w_q, w_k, rotate):
        q, k = ((x @ w.T).unflatten(-1, (n_heads, head_dim)).transpose(1, 2) for w in (w_q, w_k))
        return rotate(q, positions) @ rotate(k, positions).transpose(-2, -1)

    converted = scores(interleaved_to_half(w_q, n_heads), interleaved_to_half(w_k, n_heads), apply_rotary_emb_half)
    torch.testing.assert_close(converted, scores(w_q, w_k, apply_rotary_emb), rtol=1e-12, atol=1e-12)


def test_rows_evens_then_odds_within_each_head():
    rows = interleaved_to_half(torch.arange(12.0)[:, None], 2).flatten().tolist()
    assert rows == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


def test_conversion_errors_and_gradient():
    for n_heads in (5, 0):
        with pytest.raises(ValueError, match="n_heads"):
            interleaved_to_half(torch.zeros(12, 4), n_heads)
    weight = random(12, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: interleaved_to_half(w, 2), (weight,))


def test_rotate_half():
    assert rotate_half(torch.tensor([1.0, 2, 3, 4])).tolist() == [-3, -4, 1, 2]
    x, positions = random(2, 3, 5, 8), torch.arange(5)
    cos, sin = (torch.cat((t, t), dim=-1) for t in rotary_tables(positions, 8, torch.float64))
    torch.testing.assert_close(x * cos + rotate_half(x) * sin, apply_rotary_emb_half(x, positions))


# --- precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("options", [{}, {"base": 500.0}], ids=str)
def test_tables_are_exact_up_to_their_rounding(options, dtype, device):
    positions = torch.tensor([0, 1, 4095, 100_003, -8], device=device)
    tables = rotary_tables(positions, 128, dtype, **options)
    angles = positions.double().cpu()[:, None] * frequencies64(128, **options)
    for table, exact in zip(tables, (angles.cos(), angles.sin()), strict=True):
        assert table.dtype == dtype and table.device.type == device and table.shape == (5, 64)
        rounding = torch.finfo(dtype).eps / 2 if dtype != torch.float64 else 1e-10
        torch.testing.assert_close(table.cpu().double(), exact, rtol=rounding, atol=1e-7)


@pytest.mark.parametrize(("head_dim", "bf16_error", "buffer_error"), [(128, 1.68, 5.0), (64, 0.98, 1.8)])
def test_what_low_precision_angles_cost(head_dim, bf16_error, buffer_error):
    positions, frequencies = torch.arange(4096), rope_frequencies(head_dim)
    exact, _ = rotary_tables(positions, head_dim, torch.float64)

    def error(angles):
        return (angles.double().cos() - exact).abs()

    single = positions.float()[:, None] * frequencies
    assert error(single)[-1].max().item() == pytest.approx(1.4e-4, rel=0.05)
    assert (single.cos().bfloat16().double() - exact)[-1].abs().max().item() == pytest.approx(1.9e-3, rel=0.05)
    half = positions.bfloat16()[:, None] * frequencies.bfloat16()
    assert error(half)[-1].max().item() == pytest.approx(bf16_error, abs=0.01)
    assert error(half).max().item() == pytest.approx(2.0, abs=0.01)
    buffer = 4096 * (frequencies.bfloat16().double() - frequencies64(head_dim)).abs().max().item()
    assert buffer == pytest.approx(buffer_error, abs=0.05)


# --- attention and decoding -----------------------------------------------------------------------------------------


def module_by_hand(module, x, positions, is_causal, base):
    """Compute the module's output in float64 from its parts: complex rotation, one head at a time."""
    heads = []
    weights = [w.double() for w in (module.q_proj.weight, module.k_proj.weight, module.v_proj.weight)]
    size = x.shape[-1] // module.n_heads
    for h in range(module.n_heads):
        q, k, v = ((x.double() @ w[h * size : (h + 1) * size].T)[:, None] for w in weights)
        mask = causal_mask(x.shape[1], x.shape[1]) if is_causal else None
        out, _ = scaled_dot_product_attention(
            rotated_by_complex_numbers(q, positions, base), rotated_by_complex_numbers(k, positions, base), v, mask
        )
        heads.append(out[:, 0])
    return torch.cat(heads, dim=-1) @ module.o_proj.weight.double().T


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("positions", [None, torch.tensor([5, 0, 3, 3, 900, 2]), torch.arange(12).view(2, 6) * -0.5])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
    ids=str,
)
def test_rotary_attention_from_its_parts(dtype, tolerance, positions, is_causal):
    torch.manual_seed(0)
    module = RotaryMultiHeadAttention(24, 3, base=300.0).to(dtype)
    x = random(2, 6, 24, dtype=dtype)
    out = module(x, positions, is_causal)
    assert out.dtype == dtype and out.shape == x.shape
    expected = module_by_hand(module, x, torch.arange(6) if positions is None else positions, is_causal, 300.0)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_rotary_attention_sees_relative_positions_only(device):
    torch.manual_seed(0)
    module, x = RotaryMultiHeadAttention(24, 3).double().to(device), random(2, 6, 24, device=device)
    positions = torch.tensor([0, 2, 3, 7, 8, 20], device=device)
    torch.testing.assert_close(module(x, positions + 1000), module(x, positions), rtol=0, atol=1e-11)
    assert (module(x, positions) - module(x)).abs().max() > 1e-3
    # permuted tokens that keep their positions: is_causal goes by index, so only the unmasked module is equivariant
    perm = torch.tensor([3, 0, 5, 1, 4, 2], device=device)
    torch.testing.assert_close(module(x[:, perm], positions[perm]), module(x, positions)[:, perm])
    assert (module(x[:, perm], positions[perm], True) - module(x, positions, True)[:, perm]).abs().max() > 1e-3


def test_casting_the_module_does_not_change_its_angles():
    module = RotaryMultiHeadAttention(128, 1).to(torch.bfloat16).to(torch.float64)
    x, positions = random(1, 4, 128), torch.tensor([0, 4001, 4055, 4095])
    torch.testing.assert_close(module(x, positions), module_by_hand(module, x, positions, False, 1e4))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_keys", [1, 2, 9])
def test_decode_step_is_the_last_row_of_the_full_scores(n_keys, device):
    q, k = random(2, 3, n_keys, 8, seed=1, device=device), random(2, 3, n_keys, 8, seed=2, device=device)
    positions = torch.arange(n_keys, device=device)
    full = apply_rotary_emb(q, positions, 50.0) @ apply_rotary_emb(k, positions, 50.0).transpose(-2, -1)
    result = decode_step_scores(q[:, :, -1:], k, 50.0)
    assert result.shape == (2, 3, 1, n_keys)
    torch.testing.assert_close(result, full[:, :, -1:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_decode_step_in_half_precision_is_rounded_once(dtype, device):
    q, k = random(1, 2, 1, 64, dtype=dtype, device=device), random(1, 2, 5000, 64, dtype=dtype, device=device)
    expected = decode_step_scores(q.double(), k.double())
    torch.testing.assert_close(decode_step_scores(q, k).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_decode_step_gradients():
    q, k = random(1, 2, 1, 4, seed=1).requires_grad_(), random(1, 2, 3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(decode_step_scores, (q, k))


# ---- a head that looks back, and a test of a serving file -----------------------------------------------------------


@pytest.mark.parametrize(("back", "head_dim", "n_keys"), [(0, 8, 5), (3, 16, 64), (5, 8, 1000), (40, 64, 300)])
def test_a_head_that_looks_back_does(back, head_dim, n_keys):
    q, k = (content.view(1, 1, 1, -1) for content in look_back_head(back, head_dim, n_keys))
    asks = apply_rotary_emb(q, torch.tensor([n_keys - 1]))
    answers = apply_rotary_emb(k.expand(1, 1, n_keys, -1), torch.arange(n_keys))
    weights = (asks @ answers.mT / head_dim**0.5).softmax(-1)[0, 0, 0]
    assert weights[-1 - back] > 0.89


def test_a_serving_file_passes_and_any_bug_in_it_fails():
    def prompt_scores(q, k, base=1e4):
        at = torch.arange(q.shape[-2])
        return apply_rotary_emb(q, at, base) @ apply_rotary_emb(k, at, base).mT

    right = apply_rotary_emb_half, prompt_scores, decode_step_scores
    assert serving_test(*right) is True
    spoilt = (
        lambda x, at, base=1e4: apply_rotary_emb(x, at, base),
        lambda q, k, base=1e4: q @ k.mT,
        lambda q, k_cache, base=1e4: q @ k_cache.mT,
    )
    for number in range(3):
        assert serving_test(*right[:number], spoilt[number], *right[number + 1 :]) is False
