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
    made = []
    tried, costs = np.zeros((0, len(centre))), np.zeros(0)
    weights = np.zeros(0)
    for _ in range(TURNS):
        proposal = _Proposal(centre, spread)
        new = proposal.drawn(rng, proposals)
        made.append(proposal)
        tried, costs = np.concatenate([tried, new]), np.concatenate([costs, cost(new)])
        mixture = np.logaddexp.reduce([p.log_density(tried) for p in made], axis=0)
        logs = -costs - mixture
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        centre, spread = _next(tried, weights)
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(RETURNED) + rng.random()) / RETURNED)
    out: Floats = tried[rng.permutation(np.minimum(chosen, len(tried) - 1))]
    return out


class _Proposal:
    """Student's t in several dimensions: heavier tails than what is looked for."""

    def __init__(self, centre: Floats, spread: Floats) -> None:
        size, axes = np.linalg.eigh((spread + spread.T) / 2)
        self._size = np.maximum(size, 1e-12 * size[-1])
        self._centre, self._axes = centre, axes

    def drawn(self, rng: np.random.Generator, count: int) -> Floats:
        """float64[count, n_coordinates]."""
        normal = rng.standard_normal((count, len(self._centre))) * np.sqrt(self._size)
        stretch = np.sqrt(TAILS / rng.chisquare(TAILS, count))
        out: Floats = self._centre + stretch[:, None] * (normal @ self._axes.T)
        return out

    def log_density(self, u: Floats) -> Floats:
        """float64[n] of float64[n, n_coordinates], but for a constant that all proposals share."""
        along = (u - self._centre) @ self._axes
        away = (along**2 / self._size).sum(axis=1)
        power = (TAILS + len(self._centre)) / 2
        out: Floats = -power * np.log1p(away / TAILS) - np.log(self._size).sum() / 2
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
