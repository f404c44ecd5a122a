"""Tables of services that now and then are held up."""

import numpy as np
import pytest

from nvmesim.network.distributions import Stop, pausing_table, table_mean

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
