"""Each workload group by itself, over time, and how often it exceeds what was agreed."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import Acc
from nvmesim.measure.figures import PERCENTILES, Interval
from nvmesim.measure.latency import LATENCY, Bend, Samples, percentile_name, samples_of
from nvmesim.measure.stations import Totals
from nvmesim.measure.steady import Snapshot, Window, ratio_interval
from nvmesim.model.lowered import Lowered
from nvmesim.units import PS_PER_S

SLICE_SHARE: Final = 0.01
SLICE_BEYOND: Final = 10
"""Samples beyond a percentile of a slice: it is one of many points of a curve, not an answer."""
ALL: Final = "all"
"""Name of all groups together in `OverTime`."""


@dataclass(frozen=True)
class Slo:
    """How often requests took longer than agreed."""

    limit_s: float
    requests_above: Interval
    """Share of the requests."""
    time_above: float
    """Share of the time in slices with more than 1 % of such requests."""


@dataclass(frozen=True)
class GroupStats:
    """Results of one workload group."""

    name: str
    iops: Interval
    mean_s: float
    percentiles: dict[str, float | None]
    """Seconds; None where too few samples lie beyond."""
    max_s: float | None
    """None where several groups share one maximum."""
    limit_used: float | None
    """Share of its fullest limit that it used; None without limits."""
    limit_wait_s: float | None
    """Mean wait at its limits, per request."""
    slo: Slo | None

    def to_json(self) -> dict[str, Any]:
        """Return name, iops, latency_s, limit, slo, as `nvmesim.files.plain_json` takes them."""
        limit = None
        if self.limit_used is not None:
            limit = {"used": self.limit_used, "wait_mean_s": self.limit_wait_s}
        return {
            "name": self.name,
            "iops": self.iops,
            "latency_s": {"mean": self.mean_s, **self.percentiles, "max": self.max_s},
            "limit": limit,
            "slo": self.slo,
        }


@dataclass(frozen=True)
class OverTime:
    """Throughput and latency slice by slice; a row a slice and group."""

    start_s: Floats
    duration_s: Floats
    """float64[n]"""
    outstanding: Ints
    """int64[n]: in flight at each slice's end, all groups together"""
    groups: dict[str, dict[str, list[float | None]]]
    """Group -> iops, mean_s, p50_s, p99_s, above (share above its SLO), each a value a slice; "all"
    is all groups together."""

    def frame(self) -> Any:
        """Return a Polars frame: start_s, end_s, group, outstanding, iops, mean_s, ..., above."""
        import polars as pl

        times = {
            "start_s": self.start_s, "end_s": self.start_s + self.duration_s,
            "outstanding": self.outstanding,
        }  # fmt: skip
        parts = [
            pl.DataFrame(
                {**times, "group": name, **columns},
                schema_overrides=dict.fromkeys(_COLUMNS, pl.Float64),
            )
            for name, columns in self.groups.items()
        ]
        return pl.concat(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the columns by group."""
        return {
            "start_s": self.start_s.tolist(), "duration_s": self.duration_s.tolist(),
            "outstanding": self.outstanding.tolist(), "groups": self.groups,
        }  # fmt: skip


_COLUMNS: Final = ("iops", "mean_s", "p50_s", "p99_s", "above")


def group_stats(
    lowered: Lowered, window: Window, totals: Totals, bend: Bend
) -> tuple[GroupStats, ...]:
    """Each group of the scenario, in its order; what is above its goal, as *bend* moves it."""
    names = [g.name for g in lowered.scenario.workload]
    return tuple(_group(lowered, window, totals, i, name, bend) for i, name in enumerate(names))


def _group(
    lowered: Lowered, window: Window, totals: Totals, index: int, name: str, bend: Bend
) -> GroupStats:  # fmt: skip
    data = samples_of(window, lambda s: _histogram(s, index))
    slo_ps = lowered.scenario.workload[index].slo_ps
    max_s = 0.0 if data is None else bend.one(data.max_ps) / PS_PER_S
    used, wait = _limit(lowered, totals, index)
    if data is None:
        nothing: dict[str, float | None] = {percentile_name(q): None for q in PERCENTILES}
        return GroupStats(name, Interval(0.0, 0.0, 0.0), 0.0, nothing, None, used, wait, None)
    counts = data.groups.sum(axis=1)
    durations = np.array([sum(s.duration_ps for s in g) for g in window.groups()])
    requests = int(counts.sum())
    wait = wait / requests if wait is not None else None
    alone = len(lowered.scenario.workload) == 1
    return GroupStats(
        name=name,
        iops=ratio_interval(counts, durations / PS_PER_S),
        mean_s=float(data.counts @ data.middle_ps) / requests / PS_PER_S,
        percentiles={percentile_name(q): value for q, value in data.percentiles().items()},
        max_s=max_s if alone else None,
        limit_used=used,
        limit_wait_s=wait,
        slo=None if slo_ps is None else _slo(data, window, index, slo_ps, bend),
    )


def _limit(lowered: Lowered, totals: Totals, index: int) -> tuple[float | None, float | None]:
    """Share used of the group's fullest limit, and ps waited at all of them."""
    group = lowered.scenario.workload[index]
    own = [s for s in lowered.stations if s.kind == "limit" and s.group == index]
    if group.limits is None or not own or totals.duration_ps <= 0:
        return None, None
    rows = totals.stations[[s.first for s in own]]
    used = float(rows[:, Acc.SERVICE].max()) / totals.duration_ps
    return min(1.0, used), float(rows[:, Acc.WAIT].sum()) / PS_PER_S


def _slo(data: Samples, window: Window, index: int, slo_ps: int, bend: Bend) -> Slo:
    limit_ps = bend.back.one(slo_ps)
    sizes = data.groups.sum(axis=1)
    above = sizes - data.below(limit_ps)
    share = ratio_interval(above, sizes)
    parts = [_samples(s, index) for s in window.snapshots]
    durations = np.array([s.duration_ps for s in window.snapshots])
    bad = np.array([p is not None and p.share_above(limit_ps) > SLICE_SHARE for p in parts])
    share = replace(share, high=min(1.0, share.high))
    return Slo(slo_ps / PS_PER_S, share, float(durations[bad].sum() / durations.sum()))


def _histogram(snapshot: Snapshot, index: int | None) -> Ints:
    """int64[HIST_BINS]: latencies of a group; of all where there is one, or for None."""
    if index is None or not len(snapshot.classes):
        return np.asarray(snapshot.histogram[0, LATENCY] + snapshot.histogram[1, LATENCY])
    return np.asarray(snapshot.classes[index])


def _samples(snapshot: Snapshot, index: int | None) -> Samples | None:
    return Samples.of(_histogram(snapshot, index)[None])


def slices(lowered: Lowered, window: Window, bend: Bend) -> OverTime:
    """Slices of *window*: of all groups, and of each of several; latencies as *bend* moves them."""
    groups = lowered.scenario.workload
    durations = np.array([s.duration_ps for s in window.snapshots]) / PS_PER_S
    start = window.warmup_ps / PS_PER_S + np.concatenate([[0.0], np.cumsum(durations)[:-1]])
    of: list[tuple[str, int | None, int | None]] = [
        (g.name, i, g.slo_ps) for i, g in enumerate(groups)
    ]
    if len(groups) > 1:
        of = [(ALL, None, None), *of]
    found = {}
    for name, index, slo in of:
        rows = [_slice(s, index, slo, bend) for s in window.snapshots]
        found[name] = {column: [row[i] for row in rows] for i, column in enumerate(_COLUMNS)}
    outstanding = np.array([s.outstanding for s in window.snapshots], np.int64)
    return OverTime(start, durations, outstanding, found)


def _slice(
    snapshot: Snapshot, index: int | None, slo_ps: int | None, bend: Bend
) -> tuple[float | None, ...]:  # fmt: skip
    """iops, mean_s, p50_s, p99_s, above of one slice."""
    data = _samples(snapshot, index)
    if data is None:
        return 0.0, None, None, None, None
    rate = data.size / max(snapshot.duration_ps, 1.0) * PS_PER_S
    mean = float(data.counts @ data.middle_ps) / data.size / PS_PER_S
    known = [bend.one(data.quantile(p)) / PS_PER_S if data.size * (1 - p) >= SLICE_BEYOND else None
             for p in (0.5, 0.99)]  # fmt: skip
    above = None if slo_ps is None else data.share_above(bend.back.one(slo_ps))
    return rate, mean, known[0], known[1], above
