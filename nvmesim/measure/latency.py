"""Percentiles and their intervals from histograms.

The interval of a percentile comes from the *proportion* below it: its variance is estimated from
the proportions in groups of neighbouring batches (so that autocorrelation counts), and the interval
of the proportion is inverted through the pooled distribution. Percentiles are never averaged.

Source: Law and Kelton, Simulation Modeling and Analysis, chapter 9; Chen and Kelton, "Quantile and
tolerance-interval estimation in simulation", EJOR 168, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import HIST_BITS, bin_middle
from nvmesim.measure.figures import PERCENTILES, Distribution, Interval
from nvmesim.measure.steady import Snapshot, Window, group_edges, half_width
from nvmesim.units import PS_PER_S
from nvmesim.warning import Warning

ASKED: Final = 99.0  # the percentile that every run is to tell, %
MIN_BEYOND: Final = 100  # samples that must lie beyond a percentile for it to be reported
MAX_TAIL_ERROR: Final = 1.6
"""Largest 95 % half-width of the share beyond a reported percentile, relative to that share.

Samples of a few episodes are not as many as they look; at 1 the interval has no upper end.
"""
SECTIONS: Final = (12, 6)
"""Numbers of groups whose quantiles are compared where the share beyond one moves too much."""
MIN_BEYOND_SECTION: Final = 1000
"""Samples that must lie beyond a percentile in each of those groups. Assumed."""
GROWN: Final = 1.5
"""Requests beyond a quantile of a window's later half over those of its first: more has a trend."""
LATENCY, CLAT = 0, 1  # second index of the histograms


def sections_need(p: float) -> int:
    """Requests from which on the quantile *p* has an interval, however its share moves."""
    return round(SECTIONS[0] * MIN_BEYOND_SECTION / (1 - p))


@dataclass(frozen=True)
class Samples:
    """Histograms of groups of batches, trimmed to the bins in use."""

    groups: Ints  # int64[n_groups, n_bins]
    low_ps: Floats  # float64[n_bins]: lower edges
    width_ps: Floats  # float64[n_bins]
    middle_ps: Floats  # float64[n_bins]
    max_ps: float

    @staticmethod
    def of(groups: Ints) -> Samples | None:
        """Trim int64[n_groups, HIST_BINS]; None if all are empty. The largest bin's end is max."""
        used = np.flatnonzero(groups.any(axis=0))
        if not used.size:
            return None
        bins = np.arange(used[0], used[-1] + 1)
        shift = np.maximum(0, (bins >> HIST_BITS) - 1)
        width = np.exp2(shift)
        middle = bin_middle()[bins]
        low = middle - 0.5 * width * (shift > 0)
        return Samples(groups[:, bins], low, width, middle, float(low[-1] + width[-1]))

    @property
    def counts(self) -> Ints:
        """int64[n_bins]: all groups together."""
        return np.asarray(self.groups.sum(axis=0))

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.groups.sum())

    def quantile(self, p: float) -> float:
        """Latency in ps below which the share *p* lies, interpolated within its bin."""
        cumulative = np.cumsum(self.counts)
        target = min(max(p, 0.0), 1.0) * cumulative[-1]
        i = min(int(np.searchsorted(cumulative, target)), len(cumulative) - 1)
        before = float(cumulative[i - 1]) if i else 0.0
        inside = (target - before) / max(1.0, float(cumulative[i]) - before)
        return min(float(self.low_ps[i] + inside * self.width_ps[i]), self.max_ps)

    def below(self, value_ps: float) -> Floats:
        """float64[n_groups]: samples below *value_ps*, interpolated within its bin."""
        share = np.clip((value_ps - self.low_ps) / self.width_ps, 0.0, 1.0)
        return np.asarray(self.groups @ share)

    def share_above(self, value_ps: float) -> float:
        """Share of the samples above *value_ps*."""
        return 1.0 - float(self.below(value_ps).sum()) / self.size

    def percentiles(self) -> dict[float, float | None]:
        """`PERCENTILES` in s; None where too few samples lie beyond."""
        return {
            q: self.quantile(q / 100) / PS_PER_S if self.tells(q) else None for q in PERCENTILES
        }

    def half_share(self, p: float) -> float:
        """95 % half-width of the share below the quantile *p*."""
        residuals = self.below(self.quantile(p)) - p * self.groups.sum(axis=1)
        return half_width(residuals - residuals.mean()) / self.size

    def interval(self, p: float) -> tuple[float, float]:
        """95 % interval of the quantile *p*, ps; its high end is infinite where no sample tells."""
        half = self.half_share(p)
        if p + half < 1:
            return self.quantile(p - half), self.quantile(p + half)
        sectioned = self._sectioned(p)
        if sectioned is None:  # more than all that lies beyond: that share on a log scale
            relative, high = half / (1 - p), math.inf
            if relative <= MAX_TAIL_ERROR:
                high = self.quantile(1 - (1 - p) * math.exp(-relative))
            return self.quantile(p - half), high
        middle = self.quantile(p)
        return max(0.0, middle - sectioned), middle + sectioned

    def _sectioned(self, p: float) -> float | None:
        """95 % half-width of the quantile *p* from the quantiles of groups; None: groups too small.

        Source: Nakayama, "Confidence intervals for quantiles using sectioning", TOMACS 24(4), 2014.
        """
        halves = []
        for n in SECTIONS:
            if len(self.groups) < n:
                return None
            parts = np.add.reduceat(self.groups, group_edges(len(self.groups), n)[:-1], axis=0)
            if parts.sum(axis=1).min() * (1 - p) < MIN_BEYOND_SECTION:
                return None
            middle = self.quantile(p)
            errors = np.array([replace(self, groups=part[None]).quantile(p) for part in parts])
            halves.append(half_width((errors - middle) / n))
        return max(halves)

    def tells(self, percent: float) -> bool:
        """True if there are enough samples beyond a percentile, in enough episodes."""
        p = percent / 100
        if not enough(self.size, percent):
            return False
        return self.half_share(p) <= MAX_TAIL_ERROR * (1 - p) or self._sectioned(p) is not None

    def relative_half(self, p: float) -> float:
        """Half the width of `interval` relative to the quantile."""
        low, high = self.interval(p)
        return (high - low) / 2 / max(self.quantile(p), 1.0)


@dataclass(frozen=True)
class Bend:
    """Latencies as percentiles have moved: those between two move as far as lies between."""

    before: Floats
    after: Floats
    """float64[n]: logarithms of the percentiles, rising"""

    @staticmethod
    def of(percentiles: Mapping[float, float | None], moved: Mapping[float, float | None]) -> Bend:
        """Return the bend that takes *percentiles* to those *moved*; None is left out."""
        known = [q for q, v in percentiles.items() if v and moved.get(q)]
        both = (np.log([float(of[q] or 0.0) for q in known]) for of in (percentiles, moved))
        return Bend(*(np.maximum.accumulate(line) if len(line) else np.zeros(1) for line in both))

    @property
    def back(self) -> Bend:
        """The way back."""
        return Bend(self.after, self.before)

    def __call__(self, latencies: Floats) -> Floats:
        """Return where *latencies* went, in the unit of the percentiles."""
        by = self.after - self.before
        if not by.any():
            return latencies
        log = np.log(np.maximum(latencies, 1e-300))
        return np.asarray(latencies * np.exp(np.interp(log, self.before, by)))

    def one(self, latency: float) -> float:
        """Return where a single latency went.

        >>> bend = Bend.of({50.0: 1.0, 99.0: 2.0}, {50.0: 1.0, 99.0: 4.0})
        >>> [round(bend.one(v), 9) for v in (0.5, 1.0, 2.0, 3.0)], round(bend.back.one(6.0), 9)
        ([0.5, 1.0, 4.0, 6.0], 3.0)
        """
        return float(self(np.array([float(latency)]))[0])


def samples(window: Window, operation: int | None, kind: int = LATENCY) -> Samples | None:
    """Histograms of reads (0), writes (1) or both (None); None if there are no samples."""
    chosen = slice(None) if operation is None else slice(operation, operation + 1)
    found = samples_of(window, lambda s: s.histogram[chosen, kind].sum(axis=0))
    maxima = window.total.latency_max_ps[:, kind]
    largest = maxima.max() if operation is None else maxima[operation]
    return None if found is None else replace(found, max_ps=float(largest))


def tail_grows(window: Window) -> bool:
    """True if the share beyond p99 still rises: what is slow has not spread yet."""
    data = samples(window, None)
    if data is None or len(data.groups) < 8:
        return False
    quarters = np.add.reduceat(data.groups, group_edges(len(data.groups), 4)[:-1], axis=0)
    beyond = quarters.sum(axis=1) - replace(data, groups=quarters).below(data.quantile(0.99))
    early, late = float(beyond[:2].sum()), float(beyond[2:].sum())
    return late > GROWN * max(early, 1.0) and float(beyond[3]) >= float(beyond.max())


def samples_of(window: Window, histogram: Callable[[Snapshot], Ints]) -> Samples | None:
    """Groups of *histogram* (int64[HIST_BINS] of a snapshot); None if there are no samples."""
    rows = [
        sum((histogram(s) for s in group[1:]), start=histogram(group[0]))
        for group in window.groups()
    ]
    found = Samples.of(np.array(rows))
    if found is None:
        return None
    return replace(found, max_ps=min(found.max_ps, float(window.total.latency_max_ps.max())))


def percentile_name(percent: float) -> str:
    """Name in tables and JSON.

    >>> percentile_name(99.9)
    'p99.9'
    """
    return f"p{percent:g}"


def enough(size: int, percent: float) -> bool:
    """True if *size* samples say anything about a percentile: 100 must lie beyond it."""
    return size * (1 - percent / 100) >= MIN_BEYOND - 1e-6


def distribution(
    window: Window, operation: int | None, kind: int = LATENCY, *, stable: bool = True
) -> Distribution | None:
    """Latency distribution of an operation, s; None without samples."""
    data = samples(window, operation, kind)
    if data is None:
        return None
    used = np.flatnonzero(data.counts)
    bins = data.middle_ps[used] / PS_PER_S, data.counts[used]
    if not stable:
        return Distribution(math.nan, math.nan, dict.fromkeys(PERCENTILES), {}, *bins)
    mean = window.mean_latency_s(operation, clat=kind == CLAT)
    percentiles = data.percentiles()
    intervals = {"mean": (mean.low, mean.high)}
    for q in (q for q, value in percentiles.items() if value is not None):
        low, high = data.interval(q / 100)
        intervals[percentile_name(q)] = (low / PS_PER_S, high / PS_PER_S)
    finite = {k: v for k, v in intervals.items() if all(map(math.isfinite, v))}
    return Distribution(mean.value, data.max_ps / PS_PER_S, percentiles, finite, *bins)


def tail_warnings(latency: Distribution) -> list[Warning]:
    """One sentence if the p99 of all requests is not shown; other percentiles nobody asked for."""
    size = int(latency.bin_count.sum())
    if latency.percentiles.get(ASKED) is not None:
        return []
    if not enough(size, ASKED):
        needed = round(MIN_BEYOND / (1 - ASKED / 100))
        text = (
            f"p99 of {size:,} requests is not shown: {MIN_BEYOND} must lie beyond a percentile, "
            f"{needed:,} requests are needed"
        )
        return [Warning("few-samples", text, "p99")]
    text = (
        f"p99 of {size:,} requests is not shown: the slow ones came in a few episodes, and a "
        "longer run may give another"
    )
    return [Warning("episodes", text, "p99")]


def paired_difference(a: Samples, b: Samples, p: float) -> Interval:
    """Quantile of *b* minus that of *a*, ps, with the interval of paired groups (Bahadur 1966)."""
    n = min(len(a.groups), len(b.groups))
    residuals = _influence(b, p)[:n] - _influence(a, p)[:n]
    return Interval.around(b.quantile(p) - a.quantile(p), half_width(residuals - residuals.mean()))


def _influence(data: Samples, p: float) -> Floats:
    """float64[n_groups], ps: what each group contributes to the quantile's error."""
    step = min(p, 1 - p) / 4
    spread = max(data.quantile(p + step) - data.quantile(p - step), 1.0)
    density = 2 * step * data.size / spread
    return np.asarray((p * data.groups.sum(axis=1) - data.below(data.quantile(p))) / density)


SYNC_PERCENTILES: Final = (50.0, 99.0, 99.9)


@dataclass(frozen=True)
class Syncs:
    """Flushes (fsync, fdatasync) of the load, not in the latency of the writes; latencies in s."""

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
    """Statistics of *histogram* (int64[HIST_BINS], ps) over a window; None without any flush."""
    count = int(histogram.sum())
    if count == 0 or duration_ps <= 0:
        return None
    middles = bin_middle()
    cumulative = np.cumsum(histogram)
    percentiles: dict[float, float | None] = {}
    for percent in SYNC_PERCENTILES:
        known = enough(count, percent)
        at = int(np.searchsorted(cumulative, percent / 100 * count))
        percentiles[percent] = float(middles[at]) / PS_PER_S if known else None
    mean = float(histogram @ middles) / count / PS_PER_S
    largest = float(middles[int(np.flatnonzero(histogram)[-1])]) / PS_PER_S
    return Syncs(count / duration_ps * PS_PER_S, count, mean, largest, percentiles)
