"""Draws of a density that can be computed point by point: adaptive importance sampling.

Each proposal follows what the draws so far were weighed; all count, each against the mixture of all
proposals, so that one that was off does no harm. Source: Cornuet, Marin, Mira and Robert 2012.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nvmesim.array_types import Floats

PROPOSALS, TURNS, TAILS = 1500, 4, 5
"""Draws of a proposal, proposals, and degrees of freedom of their tails."""
RETURNED = 2000
ENOUGH = 12
"""Effective draws for each coordinate from which on the next proposal follows them wholly."""
WIDER = 1.2


def sampled(
    cost: Callable[[Floats], Floats], centre: Floats, spread: Floats, rng: np.random.Generator,
    proposals: int = PROPOSALS,
) -> Floats:  # fmt: skip
    """float64[n, n_coordinates]: draws of the density ``exp(-cost)``.

    *cost*: float64[n, n_coordinates] -> float64[n], infinite where nothing is permitted. *centre*,
    *spread*: where to begin, and its covariance.

    >>> def bowl(u): return ((u - 1) ** 2).sum(axis=1) / 2
    >>> found = sampled(bowl, np.zeros(2), np.eye(2), np.random.default_rng(1))
    >>> found.mean(axis=0).round(1).tolist(), found.std(axis=0).round(1).tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    from scipy.stats import multivariate_t

    made = []
    tried, costs = np.zeros((0, len(centre))), np.zeros(0)
    weights = np.zeros(0)
    for _ in range(TURNS):
        proposal = multivariate_t(
            centre, (spread + spread.T) / 2, df=TAILS, seed=rng, allow_singular=True
        )
        new = np.asarray(proposal.rvs(proposals), float).reshape(-1, len(centre))
        made.append(proposal)
        tried, costs = np.concatenate([tried, new]), np.concatenate([costs, cost(new)])
        mixture = np.logaddexp.reduce([np.atleast_1d(p.logpdf(tried)) for p in made], axis=0)
        logs = -costs - mixture
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        centre, spread = _next(tried, weights)
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(RETURNED) + rng.random()) / RETURNED)
    out: Floats = tried[rng.permutation(np.minimum(chosen, len(tried) - 1))]
    return out


def _next(tried: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Centre and covariance of the next proposal; few effective draws are flattened first."""
    enough = ENOUGH * tried.shape[1]
    while 1 / (weights**2).sum() < min(enough, 0.5 * int((weights > 0).sum())):
        weights = np.sqrt(weights)
        weights = weights / weights.sum()
    centre: Floats = weights @ tried
    off = tried - centre
    spread: Floats = WIDER**2 * (off * weights[:, None]).T @ off
    return centre, spread + 1e-9 * np.eye(len(centre))
