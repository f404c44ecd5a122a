"""Flushes that follow writes (fsync, fdatasync): how many, and how long their users wait.

Their time is not in the latency of the writes, as in fio: a write is answered before its flush
starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.engine.contract import bin_middle
from nvmesim.measure.latency import enough
from nvmesim.units import PS_PER_S

PERCENTILES: Final = (50.0, 99.0, 99.9)


@dataclass(frozen=True)
class Syncs:
    """Flushes of the load; latencies in s, from the submission of a flush to its end."""

    per_s: float
    count: int
    mean: float
    max: float
    percentiles: dict[float, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return per_s, count and latency_s: {mean, p50, ..., max}."""
        named = {f"p{p:g}": value for p, value in self.percentiles.items()}
        return {
            "per_s": self.per_s,
            "count": self.count,
            "latency_s": {"mean": self.mean, **named, "max": self.max},
        }


def sync_stats(histogram: Ints, duration_ps: float) -> Syncs | None:
    """Statistics of *histogram* (int64[HIST_BINS], ps) over a window; None without any flush.

    A bin is at most 1/2**HIST_BITS wide, so the values are within 0.4 %.

    >>> from nvmesim.engine.contract import HIST_BINS
    >>> bins = np.zeros(HIST_BINS, np.int64)
    >>> bins[100] = 50
    >>> found = sync_stats(bins, 1e12)
    >>> found.count, found.per_s, found.percentiles[99.0] is None
    (50, 50.0, True)
    """
    count = int(histogram.sum())
    if count == 0 or duration_ps <= 0:
        return None
    middles = bin_middle()
    cumulative = np.cumsum(histogram)
    percentiles: dict[float, float | None] = {}
    for percent in PERCENTILES:
        known = enough(count, percent)
        at = int(np.searchsorted(cumulative, percent / 100 * count))
        percentiles[percent] = float(middles[at]) / PS_PER_S if known else None
    mean = float(histogram @ middles) / count / PS_PER_S
    largest = float(middles[int(np.flatnonzero(histogram)[-1])]) / PS_PER_S
    return Syncs(count / duration_ps * PS_PER_S, count, mean, largest, percentiles)
