"""Series of latencies in the order they were measured: how long they remember, and thinning."""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.array_types import Floats

RUN_LENGTHS: Final = 4
"""Decorrelation lengths in a run that keeps what lasts. Source: Kunsch 1989: a block must be long
against the memory of the series."""
FORGOTTEN: Final = 0.1
"""Autocorrelation below which the past is taken to be forgotten."""


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
