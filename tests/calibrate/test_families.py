"""Families are told apart by held-out likelihood; tails reach beyond the sample with intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from nvmesim.calibrate.infer.families import FAMILIES, choose
from nvmesim.calibrate.infer.tail import beyond, fit_tail
from nvmesim.errors import FitError

LAWS = {
    "lognormal": stats.lognorm(0.5, scale=80.0),
    "gamma": stats.gamma(3.0, scale=30.0),
    "Weibull": stats.weibull_min(3.5, scale=90.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_family_that_made_the_sample_wins(name: str) -> None:
    x = LAWS[name].rvs(8000, random_state=np.random.default_rng(3))
    choice = choose(x)
    nearest = max((s, n) for n, s in choice.scores.items() if n in LAWS)[1]
    assert nearest == name
    rivals = [choice.scores[name] - s for n, s in choice.scores.items() if n != name]
    assert min(rivals) > -2 * max(choice.errors.values())


def test_two_populations_are_a_mixture() -> None:
    rng = np.random.default_rng(4)
    fast = rng.lognormal(np.log(80), 0.08, 8000)
    x = np.where(rng.random(8000) < 0.1, rng.lognormal(np.log(600), 0.3, 8000), fast)
    choice = choose(x)
    assert choice.best is not None
    assert choice.best.name == "two lognormals"
    p = choice.best.parameters
    assert p["share"] == pytest.approx(0.1, abs=0.01)
    assert p["median"] == pytest.approx(80, rel=0.01)
    assert p["median_2"] == pytest.approx(600, rel=0.05)


def test_no_family_beats_the_table_on_a_shape_of_none() -> None:
    rng = np.random.default_rng(5)
    centre = rng.choice([70.0, 100.0, 180.0, 300.0], 12_000, p=[0.4, 0.3, 0.2, 0.1])
    choice = choose(centre + rng.uniform(-10, 10, 12_000))
    assert choice.best is None
    assert choice.to_json()["family"] == "empirical"


@pytest.mark.parametrize("name", FAMILIES)
def test_quantiles_and_densities_belong_together(name: str) -> None:
    x = LAWS["gamma"].rvs(3000, random_state=np.random.default_rng(6))
    family = FAMILIES[name](x)
    levels = np.linspace(0.001, 0.999, 2000)
    at = family.quantile(levels)
    density = np.exp(family.log_density(at))
    steps = np.diff(levels) / np.diff(at)
    middle = slice(100, -100)
    np.testing.assert_allclose(((density[1:] + density[:-1]) / 2)[middle], steps[middle], rtol=0.02)


def test_parameters_agree_with_scipy() -> None:
    x = LAWS["gamma"].rvs(3000, random_state=np.random.default_rng(7))
    shape, _, scale = stats.gamma.fit(x, floc=0)
    assert FAMILIES["gamma"](x).parameters["shape"] == pytest.approx(shape, rel=1e-4)
    shape, _, scale = stats.weibull_min.fit(x, floc=0)
    found = FAMILIES["Weibull"](x).parameters
    assert (found["shape"], found["scale"]) == pytest.approx((shape, scale), rel=1e-3)


@pytest.mark.parametrize("bad", [[1.0] * 10, [0.0] * 300, [np.nan] * 300])
def test_what_no_family_fits_is_refused(bad: list[float]) -> None:
    with pytest.raises(FitError):
        choose(bad)


def test_a_tail_recovers_its_shape() -> None:
    x = 100 * stats.genpareto(0.2).rvs(40_000, random_state=np.random.default_rng(8))
    assert fit_tail(x).shape == pytest.approx(0.2, abs=0.08)


def tail_coverage(trials: int) -> float:
    """Share of trials in which p99.99 of 10,000 samples lies in its interval."""
    law = stats.lognorm(0.5, scale=80.0)
    truth, hits = law.ppf(0.9999), 0
    for seed in range(trials):
        x = law.rvs(10_000, random_state=np.random.default_rng(seed))
        found = beyond(x, 99.99, trials=200)
        hits += found.low <= truth <= found.high
    return hits / trials


def test_a_percentile_beyond_the_sample_has_an_interval_that_covers() -> None:
    assert tail_coverage(15) >= 0.8


@pytest.mark.slow
def test_tail_intervals_cover_at_the_stated_rate() -> None:
    assert 0.90 <= tail_coverage(200) <= 0.99  # 0.905 as of writing


def test_what_the_sample_cannot_carry_is_refused() -> None:
    x = LAWS["gamma"].rvs(2000, random_state=np.random.default_rng(9))
    with pytest.raises(FitError, match="within the sample"):
        beyond(x, 50)
    with pytest.raises(FitError, match="not even one"):
        beyond(x, 99.9999)
    with pytest.raises(FitError, match="needed"):
        fit_tail(x[:200])
