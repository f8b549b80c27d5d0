import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import shift_matrix, similarity_counterexample, sinusoidal_positional_encoding

deterministic = settings(derandomize=True, deadline=None, max_examples=25)
even = st.integers(1, 24).map(lambda pairs: 2 * pairs)
bases = st.sampled_from([10000.0, 500000.0, 100.0])


def exact_row(p, d_model, base=10000.0):
    """Compute one row in Python floats."""
    row = []
    for i in range(d_model // 2):
        angle = p * math.pow(base, -2 * i / d_model)
        row += [math.sin(angle), math.cos(angle)]
    return torch.tensor(row, dtype=torch.float64)


@deterministic
@given(even, bases)
def test_against_the_definition(d_model, base):
    table = sinusoidal_positional_encoding(6, d_model, base)
    assert table.shape == (6, d_model) and table.dtype == torch.float32
    for p in range(6):
        torch.testing.assert_close(table[p].double(), exact_row(p, d_model, base), rtol=0, atol=6e-8)


def test_far_positions():
    table = sinusoidal_positional_encoding(100_001, 8)
    for p in (65_537, 99_999, 100_000):
        torch.testing.assert_close(table[p].double(), exact_row(p, 8), rtol=0, atol=6e-8)


def test_products_depend_on_the_offset_alone():
    table = sinusoidal_positional_encoding(7, 4).double()
    assert (table[0] @ table[1]).item() == pytest.approx(1.540252, abs=5e-7)
    assert (table[5] @ table[6]).item() == pytest.approx(1.540252, abs=5e-7)
    assert (table[0] @ table[5]).item() == pytest.approx(1.282412, abs=5e-7)


@deterministic
@given(even, st.integers(-100_000, 100_000), bases)
def test_shift_matrix_moves_the_encoding(d_model, offset, base):
    matrix = shift_matrix(offset, d_model, base)
    assert matrix.shape == (d_model, d_model) and matrix.dtype == torch.float32
    for p in (0, 1, 1234, 100_000):
        moved = matrix.double() @ exact_row(p, d_model, base)
        torch.testing.assert_close(moved, exact_row(p + offset, d_model, base), rtol=0, atol=1e-6)


@deterministic
@given(even, st.integers(-100_000, 100_000), st.integers(-100_000, 100_000))
def test_shift_matrices_form_a_group(d_model, a, b):
    product = shift_matrix(a, d_model).double() @ shift_matrix(b, d_model).double()
    torch.testing.assert_close(product, shift_matrix(a + b, d_model).double(), rtol=0, atol=1e-6)
    identity = shift_matrix(a, d_model).double() @ shift_matrix(a, d_model).double().T
    torch.testing.assert_close(identity, torch.eye(d_model, dtype=torch.float64), rtol=0, atol=1e-6)


def test_shift_matrix_by_hand():
    c, s = math.cos(3), math.sin(3)
    torch.testing.assert_close(shift_matrix(3, 2), torch.tensor([[c, s], [-s, c]]))
    assert torch.equal(shift_matrix(0, 6), torch.eye(6))


@pytest.mark.nightly
def test_counterexample_for_every_dimension():
    for d_model in range(2, 1025, 2):
        k1, k2 = similarity_counterexample(d_model)
        assert type(k1) is int and type(k2) is int and 0 < k1 < k2
        near, far = (
            math.fsum(math.cos(k * math.pow(1e4, -2 * i / d_model)) for i in range(d_model // 2)) for k in (k1, k2)
        )
        assert far > near + 9e-4  # clear even in float32


def test_d64_first_rises_at_offset_6():
    assert similarity_counterexample(64) == (5, 6)
    table = sinusoidal_positional_encoding(7, 64).double()
    products = (table @ table[0]).tolist()
    assert all(products[k] < products[k - 1] for k in range(1, 6)) and products[6] > products[5]


@pytest.mark.parametrize("odd", [1, 7, 0, -2])
def test_odd_d_model(odd):
    for call in (
        lambda: sinusoidal_positional_encoding(3, odd),
        lambda: shift_matrix(3, odd),
        lambda: similarity_counterexample(odd),
    ):
        with pytest.raises(ValueError, match="d_model must be even"):
            call()
