"""Service-time distributions as the quantile tables that the engines draw from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nvmesim.rng import table_levels

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PAUSES = 64
"""Cells of a pause's distribution."""


def _ticks(values_ps: npt.NDArray[np.float64]) -> Ints:
    return np.asarray(np.round(np.maximum(values_ps, 0.0)), dtype=np.int64)


@lru_cache(maxsize=256)
def gamma_table(mean_ps: float, cv: float) -> Ints:
    """Return int64[rng.TABLE], ps: gamma with the given mean and coefficient of variation.

    The mean of draws is exact: the table is rescaled for what its steps and its end lose.

    >>> table = gamma_table(54e6, 0.1)
    >>> bool(abs(table_mean(table) / 54e6 - 1) < 1e-6)
    True
    """
    if cv <= 0:
        return _ticks(np.full(len(table_levels()), mean_ps))
    shape = 1.0 / (cv * cv)
    return _rescaled(_gamma_quantiles(shape) * (mean_ps / shape), mean_ps)


@lru_cache(maxsize=256)
def _gamma_quantiles(shape: float) -> Floats:
    """float64[rng.TABLE]: of the gamma distribution of unit scale; most of a table's cost."""
    from scipy.special import gammaincinv

    values = np.asarray(gammaincinv(shape, table_levels()), np.float64)
    values.flags.writeable = False
    return values


@lru_cache(maxsize=64)
def exponential_table(mean_ps: float) -> Ints:
    """Return int64[rng.TABLE], ps: exponential with the given mean.

    >>> table = exponential_table(1e6)
    >>> bool(abs(table_mean(table) / 1e6 - 1) < 1e-5)
    True
    """
    return _rescaled(-mean_ps * np.log1p(-table_levels()), mean_ps)


@lru_cache(maxsize=64)
def lognormal_table(mean_ps: float, sigma: float) -> Ints:
    """Return int64[rng.TABLE], ps: lognormal with the given mean; sigma is that of the logarithm.

    >>> table = lognormal_table(80e6, 0.3)
    >>> bool(abs(table_mean(table) / 80e6 - 1) < 1e-6)
    True
    """
    from scipy.special import ndtri

    levels = np.maximum(table_levels(), 2.0**-26)
    values = np.exp(math.log(mean_ps) - sigma * sigma / 2 + sigma * ndtri(levels))
    return _rescaled(values, mean_ps)


@lru_cache(maxsize=256)
def pausing_table(
    mean_ps: float, cv: float, share: float, length_ps: float, length_cv: float
) -> Ints:
    """Return int64[rng.TABLE], ps: `gamma_table`, and with probability *share* a pause more.

    A pause is gamma distributed; pauses that come as time passes (a Poisson process) hit a service
    with the probability of its length over the time between them.

    >>> table = pausing_table(10e6, 0.1, 0.01, 1e9, 0.5)
    >>> bool(abs(table_mean(table) / (10e6 + 0.01 * 1e9) - 1) < 1e-6)
    True
    """
    if share <= 0:
        return gamma_table(mean_ps, cv)
    from scipy.special import gammaincinv

    shape, pause_shape = 1.0 / max(cv, 1e-3) ** 2, 1.0 / max(length_cv, 1e-3) ** 2
    scale = mean_ps / shape
    # the sum of both, as a distribution function: pauses in cells of equal probability
    middles = (np.arange(PAUSES) + 0.5) / PAUSES
    cells = np.asarray(gammaincinv(pause_shape, middles)) * (length_ps / pause_shape)
    levels = 1 - np.geomspace(1, 1e-6, 4 * PAUSES)
    inside = scale * np.asarray(gammaincinv(shape, np.concatenate([middles, levels])))
    beyond = mean_ps + length_ps / pause_shape * np.asarray(gammaincinv(pause_shape, levels))
    edges: Floats = np.unique(np.concatenate([[0.0], inside, beyond])).astype(np.float64)
    late = _gamma_cdf(edges[:, None] - cells, shape, scale).mean(axis=1)
    cumulative = (1 - share) * _gamma_cdf(edges, shape, scale) + share * late
    sums = np.interp(table_levels(), cumulative, edges)
    return _rescaled(sums, mean_ps + share * length_ps)


def _gamma_cdf(
    values: npt.NDArray[np.float64], shape: float, scale: float
) -> npt.NDArray[np.float64]:
    from scipy.special import gammainc

    return np.asarray(gammainc(shape, np.maximum(values, 0.0) / scale), np.float64)


def empirical_table(samples_ps: Sequence[float] | npt.NDArray[np.float64]) -> Ints:
    """Return int64[rng.TABLE], ps: the sample's own quantiles.

    >>> int(empirical_table([1.0, 2.0, 3.0]).max())
    3
    """
    return _ticks(np.quantile(np.asarray(samples_ps, float), table_levels()))


def table_mean(table: Ints) -> float:
    """Mean, ps, of draws from a quantile table (linear between its edges).

    >>> table_mean(np.full(8194, 7, np.int64))
    7.0
    """
    n = len(table) // 2
    main, tail = table[:n].astype(float), table[n:].astype(float)
    cells = (main[:-1] + main[1:]) / 2
    inner = float(((tail[:-1] + tail[1:]) / 2).mean())
    return float((cells[:-1].sum() + inner) / (n - 1))


def _rescaled(values: npt.NDArray[np.float64], mean_ps: float) -> Ints:
    table = _ticks(values)
    mean = table_mean(table)
    # All of it below half a tick: nothing is there to scale.
    return _ticks(values * (mean_ps / mean)) if mean else table
