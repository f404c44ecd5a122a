"""Draws of densities that are known exactly."""

import numpy as np
import pytest

from nvmesim.fit.population import population


@pytest.mark.parametrize("off", [0.0, 3.0])
def test_a_normal_distribution_comes_back(off: float) -> None:
    """Begun too wide, or three standard deviations away: moments as they are, within 0.2."""
    true = np.array([[1.0, 0.8], [0.8, 1.0]])
    inverse = np.linalg.inv(true)
    found = population(lambda u: float(u @ inverse @ u) / 2, np.full(2, off), 9 * np.eye(2))
    assert found.effective > 80
    assert np.allclose(found.draws.mean(axis=0), 0.0, atol=0.2)
    assert np.allclose(np.cov(found.draws.T), true, atol=0.35)


def test_a_bent_valley_is_followed() -> None:
    """Where only x + y**2 is known, draws lie along the bend."""
    found = population(
        lambda u: float((u[0] + u[1] ** 2) ** 2 / 0.02 + u[1] ** 2) / 2, np.zeros(2), np.eye(2)
    )
    x, y = found.draws.T
    assert np.std(x + y**2) < 0.3
    assert np.std(y) == pytest.approx(1.0, abs=0.3)


def test_what_is_not_permitted_is_not_drawn() -> None:
    found = population(
        lambda u: float(u @ u) / 2 if u[0] >= 0 else np.inf, np.array([0.5]), np.eye(1)
    )
    assert found.draws.min() >= 0
    assert found.draws.mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.15)


def test_the_same_seed_gives_the_same_draws() -> None:
    first, again, other = (
        population(lambda u: float(u @ u) / 2, np.zeros(1), np.eye(1), seed=seed)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first.draws, again.draws)
    assert not np.array_equal(first.draws, other.draws)
