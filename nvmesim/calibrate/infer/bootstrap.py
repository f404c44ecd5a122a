"""Intervals by bootstrap, in blocks of consecutive samples: latencies of a drive remember.

Resampling single requests of a series with episodes gives intervals that are many times too narrow.
Blocks a few decorrelation lengths long keep what lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.calibrate.series import RUN_LENGTHS, decorrelation_length

TRIALS = 400
LEVEL = 0.95
LEAST_BLOCKS = 20
"""Blocks that a series is cut into at least: fewer do not show how they differ."""
MIN_BEYOND = 10
"""Samples beyond a percentile for its bootstrap to mean something."""


@dataclass(frozen=True)
class BootstrapInterval:
    """A value and what 95 % of resamples lie between."""

    value: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """Half width by value."""
        return (self.high - self.low) / 2 / self.value if self.value else 0.0


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


def interval(
    series: Sequence[float] | Floats,
    statistic: Callable[[Floats], float],
    *,
    block: int | None = None,
    trials: int = TRIALS,
    seed: int = 1,
) -> BootstrapInterval:
    """95 % interval of *statistic* of *series* (in order), by the bootstrap's percentiles.

    *block* = None finds it from the autocorrelation. Source: Efron and Tibshirani, An Introduction
    to the Bootstrap, section 13.3; Kunsch 1989 for blocks.
    """
    x = np.asarray(series, float)
    length = block_length(x) if block is None else block
    rng = np.random.default_rng(seed)
    values = [statistic(x[resampled(len(x), length, rng)]) for _ in range(trials)]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return BootstrapInterval(float(statistic(x)), float(low), float(high))


def percentile_intervals(
    series: Sequence[float] | Floats,
    percents: Sequence[float],
    *,
    trials: int = TRIALS,
    seed: int = 1,
) -> Mapping[float, BootstrapInterval]:
    """95 % intervals of the percentiles of *series* that have enough samples beyond them."""
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
