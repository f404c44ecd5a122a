"""Series of latencies remember: how long, thinned to runs, and intervals by bootstrap in blocks.

Resampling single requests of a series with episodes gives intervals that are many times too narrow.
Blocks a few decorrelation lengths long keep what lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints

RUN_LENGTHS: Final = 4
"""Decorrelation lengths in a run that keeps what lasts. Source: Kunsch 1989: a block must be long
against the memory of the series."""
FORGOTTEN: Final = 0.1
"""Autocorrelation below which the past is taken to be forgotten."""
TRIALS = 400
LEVEL = 0.95
LEAST_BLOCKS = 20
"""Blocks that a series is cut into at least: fewer do not show how they differ."""
MIN_BEYOND = 10
"""Samples beyond a percentile for its bootstrap to mean something."""


def decorrelation_length(series: Floats, most: int | None = None) -> int:
    """Smallest lag from which the autocorrelation stays below 0.1 or what noise would show.

    *series*: float64[n] in order. 1 for independent samples. The autocorrelation is averaged over
    lags k to 2k, so that one lucky lag does not end the search; *most* defaults to n / 10.
    Source: Law, Simulation Modeling and Analysis, section 9.5 (batch sizes).

    >>> decorrelation_length(np.random.default_rng(1).normal(size=5000))
    1
    """
    n = len(series)
    longest = max(1, n // 10) if most is None else most
    rho = _autocorrelation(_ranks(series), 2 * longest)
    limit = max(FORGOTTEN, 1.96 / np.sqrt(n))
    lag = 1
    while lag < longest and float(np.mean(rho[lag : 2 * lag + 1])) > limit:
        lag = max(lag + 1, lag * 5 // 4)
    return min(lag, longest)


def thinned(series: Floats, most: int, run: int) -> Floats:
    """At most *most* samples: runs of *run* consecutive ones, evenly spread, in order.

    >>> thinned(np.arange(10.0), 4, 2).tolist()
    [0.0, 1.0, 8.0, 9.0]
    """
    if len(series) <= most:
        return series
    length = int(np.clip(run, 1, most))
    count = max(1, most // length)
    starts = np.linspace(0, len(series) - length, count).round().astype(int)
    return np.concatenate([series[s : s + length] for s in starts])


def _ranks(series: Floats) -> Floats:
    """float64[n]: rank of each sample, equal ones the mean of theirs."""
    _, which, count = np.unique(series, return_inverse=True, return_counts=True)
    last = np.cumsum(count) - 1
    found: Floats = (last - (count - 1) / 2)[which]
    return found


def _autocorrelation(series: Floats, lags: int) -> Floats:
    """float64[lags + 1], by the fast Fourier transform; 0 beyond the series."""
    n = len(series)
    centred = series - series.mean()
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, size)[: min(lags + 1, n)]
    out = np.zeros(lags + 1)
    if covariance[0] > 0:
        out[: len(covariance)] = covariance / covariance[0]
    return out


@dataclass(frozen=True)
class BootstrapInterval:
    """A value and what 95 % of resamples lie between."""

    value: float
    low: float
    high: float


def block_length(series: Floats) -> int:
    """Length of blocks for *series*, float64[n]: 1 if its samples are independent.

    >>> block_length(np.random.default_rng(1).normal(size=4000))
    1
    """
    length = decorrelation_length(series)
    if length == 1:
        return 1
    return max(1, min(RUN_LENGTHS * length, len(series) // LEAST_BLOCKS))


def resampled(n: int, block: int, rng: np.random.Generator) -> Ints:
    """int64[n]: indices of one resample, in circular blocks.

    Source: Politis and Romano 1992, a circular block-resampling procedure.

    >>> resampled(6, 3, np.random.default_rng(0)).shape
    (6,)
    """
    count = -(-n // block)
    starts = rng.integers(0, n, count)
    index: Ints = ((starts[:, None] + np.arange(block)) % n).ravel()[:n]
    return index


def percentile_intervals(
    series: Sequence[float] | Floats,
    percents: Sequence[float],
    *,
    trials: int = TRIALS,
    seed: int = 1,
) -> Mapping[float, BootstrapInterval]:
    """95 % intervals of the percentiles of *series* that have enough samples beyond them.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, section 13.3; Kunsch 1989 for
    blocks.
    """
    x = np.asarray(series, float)
    kept = [p for p in percents if min(p, 100 - p) / 100 * len(x) >= MIN_BEYOND]
    if not kept:
        return {}
    block, rng = block_length(x), np.random.default_rng(seed)
    shares = np.array(kept) / 100
    table = np.array([np.quantile(x[resampled(len(x), block, rng)], shares) for _ in range(trials)])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(table, (tail, 1 - tail), axis=0)
    value = np.quantile(x, shares)
    return {
        p: BootstrapInterval(float(v), float(a), float(b))
        for p, v, a, b in zip(kept, value, low, high, strict=True)
    }
