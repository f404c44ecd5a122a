"""Draws from a distribution whose density can be computed point by point, if at some expense.

Draws of a proposal are weighed by what the density says of them, and the next proposal follows the
weighed ones. All rounds' draws count, each against the mixture of all proposals, so that a proposal
that was off does no harm. Sources: Cappe, Guillin, Marin and Robert 2004 (population Monte Carlo);
Cornuet, Marin, Mira and Robert 2012 (adaptive multiple importance sampling).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.stats import multivariate_t

from nvmesim.fit.emulator import Floats

DRAWS = 256
"""Draws that are returned."""
EACH = 30
"""Evaluations of a round for each parameter."""
ROUNDS = 5
TAILS = 5
"""Degrees of freedom of the proposals: tails heavier than those of what is looked for."""
WIDER = 1.2
"""A proposal's standard deviations in units of those that the draws have so far."""
ENOUGH = 12
"""Effective draws for each parameter from which on the next proposal follows them wholly."""
MAX_THREADS = 4


@dataclass(frozen=True)
class Population:
    """Draws, and how many independent ones they are worth."""

    draws: Floats
    """float64[n_draws, n_parameters]"""
    effective: float


def population(
    cost: Callable[[Floats], float], centre: Floats, spread: Floats, *, seed: int = 1
) -> Population:
    """Return draws of the density ``exp(-cost)``; the same *seed* gives the same.

    *cost* of float64[n_parameters], infinite where nothing is permitted, is asked in threads.
    *centre*, *spread*: where to begin, its covariance.

    >>> found = population(lambda u: float(u @ u) / 2, np.array([0.5, -0.5]), 4 * np.eye(2))
    >>> bool(np.all(np.abs(found.draws.mean(axis=0)) < 0.2)), found.effective > 60
    (True, True)
    """
    rng = np.random.default_rng(seed)
    proposals = []
    tried: Floats = np.zeros((0, len(centre)))
    costs: Floats = np.zeros(0)
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        for _ in range(ROUNDS):
            proposal = multivariate_t(centre, spread, df=TAILS, seed=rng)
            new = proposal.rvs(EACH * len(centre)).reshape(-1, len(centre))
            proposals.append(proposal)
            tried = np.concatenate([tried, new])
            costs = np.concatenate([costs, np.array(list(pool.map(cost, new)))])
            weights = _weights(
                tried, costs, [np.asarray(p.logpdf(tried), np.float64) for p in proposals]
            )
            centre, spread = _next(tried, weights, spread)
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(DRAWS) + rng.random()) / DRAWS)
    draws = tried[np.minimum(rng.permutation(chosen), len(tried) - 1)]
    return Population(draws, float(1 / (weights**2).sum()))


def _weights(tried: Floats, costs: Floats, densities: list[Floats]) -> Floats:
    """float64[n], of sum 1: density over the mixture of the proposals."""
    mixture = np.logaddexp.reduce(np.stack(densities), axis=0)
    logs = -costs - mixture
    weights = np.exp(logs - logs.max())
    out: Floats = weights / weights.sum()
    return out


def _next(tried: Floats, weights: Floats, before: Floats) -> tuple[Floats, Floats]:
    """Centre and covariance of the next proposal; few effective draws are flattened first."""
    enough = ENOUGH * tried.shape[1]
    while 1 / (weights**2).sum() < min(enough, 0.5 * len(weights)):
        weights = np.sqrt(weights)
        weights = weights / weights.sum()
    centre: Floats = weights @ tried
    off = tried - centre
    found = (off * weights[:, None]).T @ off
    shrunk: Floats = WIDER**2 * found + 1e-6 * np.diag(np.diag(before))
    return centre, shrunk
