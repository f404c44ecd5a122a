"""Tables of services that now and then are held up; the gamma distribution against SciPy's."""

import numpy as np
import pytest
from scipy.special import gammainc, gammaincinv

from nvmesim.network.distributions import (
    Stop,
    gamma_quantiles,
    gamma_share_below,
    pausing_table,
    table_mean,
)
from nvmesim.rng import table_levels

SHORT = Stop(0.0011540466314689548, 1062931.1877188564, 0.9697247422547811, "lognormal")
"""A stop of 1 us in a service of 60 us: shorter than the steps of its distribution."""


def rises(table: np.ndarray) -> bool:
    return all((np.diff(half) >= 0).all() for half in np.split(table, 2))


def test_a_stop_shorter_than_the_steps_of_the_service_leaves_a_table_that_rises() -> None:
    mean = 60101154.45752365
    table = pausing_table(mean, 0.2620819930274497, (SHORT,))
    assert rises(table)
    assert table_mean(table) == pytest.approx(mean + SHORT.share * SHORT.length_ps, rel=1e-9)


def test_tables_rise_and_keep_their_means_whatever_holds_up() -> None:
    """400 drawn at random, of which 11 fell before."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        mean, law = 10 ** rng.uniform(6, 8), str(rng.choice(["gamma", "lognormal"]))
        length, share = mean * 10 ** rng.uniform(-3, 2), 10 ** rng.uniform(-5, -1.5)
        stop = Stop(share, length, rng.uniform(0.1, 8), law)
        table = pausing_table(mean, rng.uniform(0.01, 1), (stop,))
        assert rises(table), (mean, stop)
        assert table_mean(table) == pytest.approx(mean + share * length, rel=1e-4)


SHAPES = (0.04, 0.3, 0.5, 1.0, 1.7, 4.0, 25.0, 100.0, 101.0, 1e4, 1e6)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantiles_of_gamma_are_scipys(shape):
    levels = table_levels()
    expected = gammaincinv(shape, levels)
    normal = expected > 1e-280  # smaller ones lose digits
    found = gamma_quantiles(shape, levels)
    np.testing.assert_allclose(found[normal], expected[normal], rtol=1e-12)
    assert found[0] == 0
    assert (np.diff(found[: len(found) // 2]) >= 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_shares_of_gamma_are_scipys(shape):
    values = np.concatenate([[-1.0, 0.0], shape * np.geomspace(1e-6, 40, 500)])
    expected = gammainc(shape, np.maximum(values, 0))
    np.testing.assert_allclose(gamma_share_below(shape, values), expected, atol=2e-12)
