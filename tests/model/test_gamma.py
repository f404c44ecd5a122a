"""The gamma distribution against SciPy's."""

import numpy as np
import pytest
from scipy.special import gammainc, gammaincinv

from nvmesim.network.distributions import gamma_quantiles, gamma_share_below
from nvmesim.rng import table_levels

SHAPES = (0.04, 0.3, 0.5, 1.0, 1.7, 4.0, 25.0, 100.0, 101.0, 1e4, 1e6)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantiles(shape):
    levels = table_levels()
    expected = gammaincinv(shape, levels)
    normal = expected > 1e-280  # smaller ones lose digits
    found = gamma_quantiles(shape, levels)
    np.testing.assert_allclose(found[normal], expected[normal], rtol=1e-12)
    assert found[0] == 0
    assert (np.diff(found[: len(found) // 2]) >= 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_share_below(shape):
    values = np.concatenate([[-1.0, 0.0], shape * np.geomspace(1e-6, 40, 500)])
    expected = gammainc(shape, np.maximum(values, 0))
    np.testing.assert_allclose(gamma_share_below(shape, values), expected, atol=2e-12)
