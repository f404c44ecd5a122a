"""Percentiles beyond the sample: a generalized Pareto tail above a high threshold.

Source: Pickands 1975 (the law of excesses), Hosking and Wallis 1987 (its fit by
probability-weighted moments, steadier than maximum likelihood for some hundreds of excesses).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.infer.bootstrap import BootstrapInterval, block_length, resampled
from nvmesim.errors import FitError

EXCESSES = 0.05
"""Share of the sample above the threshold."""
MIN_EXCESSES = 50
SHAPES = (-0.5, 0.9)
"""Bounds of the shape: probability-weighted moments need one below 1."""
FURTHEST = 100.0
"""How far beyond the sample a percentile may lie: at most one sample in 100 times as many."""


@dataclass(frozen=True)
class Tail:
    """P(X > x) = share (1 + shape (x - threshold) / scale) ** (-1 / shape), x over threshold."""

    threshold: float
    share: float
    scale: float
    shape: float
    samples: int

    def quantile(self, level: float) -> float:
        """Value that a fraction *level* of all samples lies below; level >= 1 - share.

        >>> round(Tail(1.0, 0.1, 2.0, 0.0, 1000).quantile(0.99), 3)
        5.605
        """
        ratio = np.log(self.share / (1 - level))
        grown = ratio if abs(self.shape) < 1e-9 else np.expm1(self.shape * ratio) / self.shape
        return float(self.threshold + self.scale * grown)


def fit_tail(samples: Sequence[float] | Floats) -> Tail:
    """Fit the tail of *samples*: the largest 5 %.

    Raises FitError for fewer than 50 excesses.
    """
    ordered = np.sort(np.asarray(samples, float))
    count = int(EXCESSES * len(ordered))
    if count < MIN_EXCESSES:
        raise FitError(
            f"{len(ordered)} samples leave {count} in the tail; {MIN_EXCESSES} are needed to say "
            "anything beyond the sample"
        )
    threshold = float(ordered[-count - 1])
    excess = ordered[-count:] - threshold
    first = float(excess.mean())
    rank = np.arange(1, count + 1)
    second = float(np.mean((count - rank) / (count - 1) * excess))
    if first <= 0 or first - 2 * second <= 0:
        return Tail(threshold, EXCESSES, max(first, 1e-300), 0.0, len(ordered))
    shape = float(np.clip(2 - first / (first - 2 * second), *SHAPES))
    scale = max(first * (1 - shape), 1e-300)
    return Tail(threshold, count / len(ordered), scale, shape, len(ordered))


def beyond(
    samples: Sequence[float] | Floats, percent: float, *, trials: int = 400, seed: int = 1
) -> BootstrapInterval:
    """Percentile *percent* of *samples* (in order) by their tail, with its 95 % interval.

    The interval is of the logarithm, by bootstrap in blocks: normal, with the resamples' standard
    deviation. Raises FitError for a percentile further out than the sample can carry.
    """
    x = np.asarray(samples, float)
    level = percent / 100
    tail = fit_tail(x)
    if level < 1 - tail.share:
        raise FitError(f"p{percent:g} lies within the sample: read it from there")
    if (1 - level) * len(x) * FURTHEST < 1:
        raise FitError(
            f"p{percent:g} of {len(x)} samples: not even one in {FURTHEST:g} times as many would "
            "lie beyond it"
        )
    value = tail.quantile(level)
    block, rng = block_length(x), np.random.default_rng(seed)
    logs = [
        np.log(fit_tail(x[resampled(len(x), block, rng)]).quantile(level)) for _ in range(trials)
    ]
    half = 1.96 * float(np.std(logs))
    return BootstrapInterval(value, value * float(np.exp(-half)), value * float(np.exp(half)))
