"""How large a model's error is on a server that nobody measured: a random effect a source.

Each source has a spread of its own, sigma. These follow an inverse-gamma distribution whose scale
and shape are unknown. Rows of one source say how large its sigma is, as far as their errors differ
from each other; only further sources say how much sigma varies. A class of servers has a sigma from
the same distribution, and each of its sources has one vote on it. Everything is a sum over grids,
so an answer takes milliseconds. Sources: Higgins, Thompson and Spiegelhalter, "A re-evaluation of
random-effects meta-analysis", J. R. Statist. Soc. A 172(1), 2009 (predictive distribution of a new
study); Kish, "Survey Sampling", 1965 (design effect of rows that are alike); Kennedy and O'Hagan
2001 (model discrepancy).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Floats

SIGMA: Final = (0.005, 4.0, 80)
"""Grid of a source's spread, of the logarithm: half a percent to a factor of fifty."""
SCALE: Final = (0.01, 1.0, 24)
"""Grid of the population's scale, equally likely by logarithm."""
SHAPE: Final = (1.5, 30.0, 7)
"""Grid of its degrees of freedom: from sources that have little in common to nearly equal ones."""
BEYOND: Final = 0.05
"""Probability left outside the interval."""


@dataclass(frozen=True)
class Observed:
    """One source: the logarithms by which the model was off, and what else explains of each."""

    errors: tuple[float, ...]
    known: tuple[float, ...]
    """Standard deviations."""


def _grid(bounds: tuple[float, float, int]) -> Floats:
    return np.geomspace(*bounds)


@functools.cache
def _prior() -> Floats:
    """float64[shape, scale, sigma]: probability of a source's sigma in a population."""
    shape = _grid(SHAPE)[:, None, None]
    ratio = _grid(SCALE)[None, :, None] / _grid(SIGMA)[None, None, :]
    log = shape * np.log(ratio) - shape * ratio**2 / 2
    weight = np.exp(log - log.max(axis=-1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def _likelihood(source: Observed, votes: float) -> Floats:
    """float64[sigma]: of the rows of *source*, which count as *votes* independent ones."""
    errors, known = np.array(source.errors), np.array(source.known)
    variance = _grid(SIGMA)[:, None] ** 2 + known**2
    log = np.mean(-(errors**2) / (2 * variance) - np.log(variance) / 2, axis=1)
    return np.asarray(np.exp(votes * log))


def intraclass_correlation(sources: Iterable[Observed]) -> float:
    """How alike the errors of one source are: their intraclass correlation, 0 to 1.

    By analysis of variance with sources of different size; 1 if it cannot be told.

    >>> intraclass_correlation([Observed((0.1, 0.1), (0, 0)), Observed((-0.1, -0.1), (0, 0))])
    1.0
    >>> intraclass_correlation([Observed((0.1, -0.1), (0, 0)), Observed((-0.1, 0.1), (0, 0))])
    0.0
    """
    groups = [np.array(s.errors) for s in sources]
    sizes = np.array([len(g) for g in groups])
    n, k = int(sizes.sum()), len(groups)
    if k < 2 or n <= k:
        return 1.0
    mean = float(np.concatenate(groups).mean())
    between = sum(len(g) * (float(g.mean()) - mean) ** 2 for g in groups) / (k - 1)
    within = sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / (n - k)
    typical = (n - float((sizes**2).sum()) / n) / (k - 1)
    whole = between + (typical - 1) * within
    return min(1.0, max(0.0, (between - within) / whole)) if whole > 0 else 1.0


def population(sources: Sequence[Observed]) -> Floats:
    """float64[shape, scale]: how probable each population is, given every source."""
    correlation = intraclass_correlation(sources)
    log = np.zeros(_prior().shape[:2])
    for source in sources:
        n = len(source.errors)
        log += np.log(_prior() @ _likelihood(source, n / (1 + (n - 1) * correlation)))
    weight = np.exp(log - log.max())
    return np.asarray(weight / weight.sum())


def half_width(weights: Floats, own: Sequence[Observed]) -> float:
    """95 % half-width of the error on a new server, of the logarithm.

    *weights* are of `population`; *own* are the sources of its class, one vote each.

    >>> alone = population([Observed((0.1, -0.2), (0.0, 0.0)), Observed((0.1,), (0.0,))])
    >>> near = [Observed((0.01,), (0.0,))] * 4
    >>> half_width(alone, near) < half_width(alone, [])
    True
    """
    sigma = _prior()
    for source in own:
        sigma = sigma * _likelihood(source, 1.0)
    sigma = sigma / sigma.sum(axis=-1, keepdims=True)
    return _quantile(np.einsum("ns,nsk->k", weights, sigma))


def _quantile(probability: Floats) -> float:
    """Where `BEYOND` of a mixture of normals lies outside, float64[sigma] being its weights."""
    sigma, low, high = _grid(SIGMA), 1e-4, 50.0
    while high > low * 1.0001:
        middle = math.sqrt(low * high)
        outside = [math.erfc(middle / s / math.sqrt(2)) for s in sigma.tolist()]
        low, high = (middle, high) if float(probability @ outside) > BEYOND else (low, middle)
    return high
