import math

import pytest

from autograder.reference import log_n_scale


def test_values():
    assert log_n_scale(64, 64) == 1.0 and log_n_scale(1, 64) == 0.0
    assert log_n_scale(4096, 64) == pytest.approx(2) and log_n_scale(8, 64) == pytest.approx(0.5)  # no clamp
    assert type(log_n_scale(4096, 64)) is float


@pytest.mark.parametrize(("n", "n0"), [(10, 1), (10, 0.5), (10, 0), (0, 10), (-1, 10)])
def test_errors(n, n0):
    with pytest.raises(ValueError, match="n0 > 1"):
        log_n_scale(n, n0)


@pytest.mark.parametrize(
    ("n", "plain", "scaled"), [(64, 0.966, 0.966), (512, 0.779, 0.990), (4096, 0.306, 0.997), (32768, 0.052, 0.998)]
)
def test_dilution_of_one_logit_of_8_among_normal_noise(n, plain, scaled):
    """Ratio of expectations: E exp(s z) = exp(s^2/2) for z ~ N(0, 1)."""

    def mass(s):
        signal, noise = math.exp(8 * s), n * math.exp(s * s / 2)
        return signal / (signal + noise)

    assert mass(1) == pytest.approx(plain, abs=5e-4)
    assert mass(log_n_scale(n, 64)) == pytest.approx(scaled, abs=5e-4)
