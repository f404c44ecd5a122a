"""The emulator finds an optimum through noise, and its draws cover as often as they say."""

import numpy as np
import pytest

from nvmesim.errors import FitError
from nvmesim.fit.emulator import FINE, FREE, Problem, emulate, features, fit_local

TRUTH = np.log([5.0, 0.3, 40.0])
NOISE = np.array([0.01, 0.01, 0.03, 0.02, 0.05])


def figures(logs):
    """Five figures of three parameters, not linear in them."""
    a, b, c = logs
    return np.array([a, a + 0.3 * b, b + 0.2 * c, c - 0.5 * a + 0.1 * b * b, 0.5 * c + b])


def simulate(logs, seed, effort):
    rng = np.random.default_rng(seed)
    return figures(logs) + NOISE / np.sqrt(effort) * rng.standard_normal(5)


def problem(seed, **changes):
    measured = figures(TRUTH) + NOISE * np.random.default_rng([seed, 77]).standard_normal(5)
    made = {
        "names": ("a", "b", "c"), "simulate": simulate, "measured": measured,
        "run": np.arange(5), "sample": np.ones(5), "assumed": np.full(5, 0.02),
        "low": TRUTH - 3, "high": TRUTH + 3, "prior": np.full(3, FREE), "floor": np.zeros(5),
        "whole": np.zeros(3, bool), "least": np.full(3, 0.015),
    }  # fmt: skip
    return Problem(**(made | changes))


START, HALF = np.exp(TRUTH + np.array([0.3, -0.4, 0.3])), [0.3, 0.4, 0.3]


def test_intervals_cover_at_the_stated_rate():
    hits = []
    for seed in range(100):
        found = fit_local(problem(seed), START, HALF, seed=1 + 10_000_000 * seed)
        low, high = np.quantile(found.draws, (0.025, 0.975), axis=0)
        hits.append((low <= TRUTH) & (high >= TRUTH))
    print(np.mean(hits, axis=0))
    assert 0.90 <= np.mean(hits) <= 0.995


def test_what_only_a_prior_tells_varies_as_the_prior():
    """The third parameter moves no figure."""

    def two(logs, seed, effort):
        return simulate([logs[0], logs[1], TRUTH[2]], seed, effort)

    prior = np.array([FREE, FREE, 0.2])
    found = fit_local(problem(1, simulate=two, prior=prior), np.exp(TRUTH), HALF)
    assert found.draws[:, 2].std() == pytest.approx(0.2, rel=0.2)
    assert found.draws[:, 0].std() < 0.05


def test_errors_that_no_sample_explains_widen_the_draws():
    off = problem(1).measured + np.array([0.0, 0.2, -0.2, 0.2, -0.2])
    sure = fit_local(problem(1), START, HALF)
    assumed = np.full(5, 0.1)
    unsure = fit_local(
        problem(1, measured=off, assumed=assumed, prior=np.full(3, 0.99)), START, HALF
    )
    assert unsure.tau > 0
    assert unsure.draws[:, 1].std() > 3 * sure.draws[:, 1].std()


def test_counts_are_simulated_as_whole_numbers():
    seen = []

    def watched(logs, seed, effort):
        seen.append(float(np.exp(logs[2])))
        return simulate(logs, seed, effort)

    whole = np.array([False, False, True])
    emulate(problem(1, simulate=watched, whole=whole), TRUTH, np.full(3, 0.2), 1, FINE)
    assert all(abs(v - round(v)) < 1e-9 for v in seen)
    assert len(set(seen)) > 3


def test_a_quadratic_is_followed_exactly():
    quiet = problem(1, simulate=lambda logs, seed, effort: figures(logs))
    made = emulate(quiet, TRUTH, np.full(3, 0.5), 1, FINE)
    z = np.array([[0.3, -0.7, 0.1]])
    assert made.at(z)[0] == pytest.approx(figures(TRUTH + 0.5 * z[0]))
    assert features(z).shape == (1, 10)


def test_what_is_not_finite_is_refused():
    broken = problem(1, simulate=lambda logs, seed, effort: np.full(5, np.nan))
    with pytest.raises(FitError, match="not finite"):
        fit_local(broken, START, HALF)
