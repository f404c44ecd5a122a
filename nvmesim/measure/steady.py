"""Steady state in flat memory: where the warm-up ends, and what the batches behind it say.

A run yields batches. Of each a short *record* is kept (sums), and a *snapshot* (histograms, station
accumulators) that spans one or more records. There are never more than `MAX_RECORDS` and
`MAX_SNAPSHOTS`: when full, neighbours are added up in pairs, so that memory does not depend on the
length of the run.

Sources: warm-up by MSER, White, "An effective truncation heuristic for bias reduction in simulation
output", Simulation 69(6), 1997. Batch means: Schmeiser, "Batch size effects in the analysis of
simulation output", Operations Research 30(3), 1982 (10 to 30 batches suffice at any run length);
ratio estimators: Law and Kelton, Simulation Modeling and Analysis, chapter 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache, cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import HIST_BINS, Acc, Batch
from nvmesim.measure.figures import Interval
from nvmesim.units import PS_PER_S

MAX_RECORDS: Final = 1024
MAX_SNAPSHOTS: Final = 64
N_GROUPS: Final = 24
GROUPINGS: Final = (N_GROUPS, 12, 6)
"""Batch means that an interval is made of (Schmeiser: 10 to 30), and coarser ones as a check.

Chosen by coverage: M/M/1 at 70 and 85 % load, 300 runs of 200,000: mean 98 and 97 %, p99 95 and
96 %, p99.9 95 and 94 %; with 24 groups alone 96 and 94 %, 94 and 94 %, 91 and 90 %.
"""
CONFIDENCE: Final = 0.95


class Col(IntEnum):
    """Columns of a record; READS is followed by WRITES, and so on: column + operation."""

    DURATION = 0
    READS = 1
    WRITES = 2
    READ_BYTES = 3
    WRITE_BYTES = 4
    READ_LAT = 5
    WRITE_LAT = 6
    READ_CLAT = 7
    WRITE_CLAT = 8
    OUTSTANDING = 9  # in flight at the end; not a sum


SUMMED: Final = ("histogram", "flows", "children", "stations", "syncs", "classes")
"""Arrays of a `Snapshot` that are sums."""


@dataclass(frozen=True)
class Snapshot:
    """Sums over one or more batches."""

    n_records: int
    duration_ps: float
    latency_max_ps: Ints  # int64[2, 2], as `Batch`
    histogram: Ints  # int64[2, 2, HIST_BINS]
    flows: Ints  # int64[n_flows]
    children: Floats  # float64[...]: what the reducer made of `Batch.alternatives`
    stations: Floats  # float64[n_stations, 4]: sums of many batches overflow int64
    syncs: Ints  # int64[HIST_BINS]
    classes: Ints = field(default_factory=lambda: np.zeros((0, HIST_BINS), np.int64))
    """int64[n_classes, HIST_BINS], as `Batch`"""
    outstanding: int = 0  # at the end; not a sum

    def __add__(self, other: Snapshot) -> Snapshot:
        added = ("n_records", "duration_ps", *SUMMED)
        return Snapshot(
            **{name: getattr(self, name) + getattr(other, name) for name in added},
            latency_max_ps=np.maximum(self.latency_max_ps, other.latency_max_ps),
            outstanding=other.outstanding,
        )


@dataclass(frozen=True)
class Reducer:
    """Parts of a batch that are kept: bytes by flow, and children as reports group them."""

    flow_bytes: Floats
    """float64[2, n_flows]: bytes of a completion, in the row of its operation; 0: not measured"""
    children: Callable[[Ints], Floats]  # sums over `Batch.alternatives`

    def record(self, batch: Batch) -> Floats:
        """float64[len(Col)] of *batch*."""
        return np.array(
            [
                batch.end_ps - batch.start_ps,
                *batch.count,
                *(self.flow_bytes @ batch.flows),
                *batch.latency_sum_ps[:, 0],
                *batch.latency_sum_ps[:, 1],
                batch.outstanding,
            ],
            np.float64,
        )

    def snapshot(self, batch: Batch) -> Snapshot:
        """Return *batch* as a snapshot of one record."""
        return Snapshot(
            1,
            float(batch.end_ps - batch.start_ps),
            batch.latency_max_ps,
            batch.histogram,
            batch.flows,
            self.children(batch.alternatives),
            batch.stations.astype(np.float64),
            batch.syncs,
            batch.classes,
            batch.outstanding,
        )


@dataclass(frozen=True)
class Window:
    """The measured part of a run: everything that is reported comes from here."""

    warmup_ps: float
    records: Floats  # float64[n, len(Col)]
    snapshots: tuple[Snapshot, ...]

    @property
    def duration_ps(self) -> float:
        """Length of the window."""
        return float(self.records[:, Col.DURATION].sum())

    @property
    def requests(self) -> int:
        """Measured completions."""
        return int(self.records[:, Col.READS : Col.WRITES + 1].sum())

    @cached_property
    def total(self) -> Snapshot:
        """All snapshots together."""
        return reduce(add, self.snapshots)

    def groups(self, most: int = N_GROUPS) -> list[tuple[Snapshot, ...]]:
        """Snapshots in at most *most* runs of neighbours, of nearly equal length."""
        n = min(most, len(self.snapshots))
        edges = group_edges(len(self.snapshots), n)
        return [self.snapshots[a:b] for a, b in pairwise(edges)]

    def iops(self, operation: int | None = None) -> Interval:
        """Completions per second of one operation (0 read, 1 write), or of both."""
        return per_second(self.records, column(self.records, Col.READS, operation))

    def bytes_per_s(self, operation: int | None = None) -> Interval:
        """Bytes per second, as `iops`."""
        return per_second(self.records, column(self.records, Col.READ_BYTES, operation))

    def mean_latency_s(self, operation: int | None, *, clat: bool = False) -> Interval:
        """Mean latency in s."""
        sums = column(self.records, Col.READ_CLAT if clat else Col.READ_LAT, operation) / PS_PER_S
        return ratio_interval(sums, column(self.records, Col.READS, operation))


def column(records: Floats, first: Col, operation: int | None) -> Floats:
    """float64[n]: a column of reads (0), of writes (1), or the sum of both (None)."""
    if operation is None:
        return np.asarray(records[:, first] + records[:, first + 1])
    return np.asarray(records[:, first + operation])


class Collector:
    """Keeps a run's batches in flat memory; `window` cuts the warm-up off."""

    def __init__(self, reducer: Reducer, batch: int) -> None:
        self._reducer = reducer
        self.batch = batch
        """Completions that the next batch should have; doubles when records collapse."""
        self._rows: list[Floats] = []
        self._snapshots: list[Snapshot] = []
        self._requests = 0
        self._span = 1
        self._dropped_ps = 0.0
        self.head: list[Floats] = []
        """The first `MAX_RECORDS` records, until one had another size, to compare runs by."""
        self._first_batch = batch
        self._comparable = True

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def requests(self) -> int:
        """Completions in all that is kept."""
        return self._requests

    @property
    def records(self) -> Floats:
        """float64[n, len(Col)]: all records that are kept."""
        return np.array(self._rows).reshape(-1, len(Col))

    def add(self, *parts: Batch) -> None:
        """Add one batch, which the engine may have returned in *parts*."""
        row, snapshot = self._reducer.record(parts[0]), self._reducer.snapshot(parts[0])
        for part in parts[1:]:
            row = _merge_rows(row, self._reducer.record(part))
            snapshot = snapshot + self._reducer.snapshot(part)
        whole = row[Col.READS] + row[Col.WRITES] >= self._first_batch == self.batch
        self._comparable &= bool(whole) and len(self.head) < MAX_RECORDS
        if self._comparable:
            self.head.append(row)
        self._append(row, replace(snapshot, n_records=1))

    def _append(self, row: Floats, snapshot: Snapshot) -> None:
        rows, snapshots = [*self._rows, row], self._snapshots
        if snapshots and snapshots[-1].n_records < self._span:
            snapshots = [*snapshots[:-1], snapshots[-1] + snapshot]
        else:
            snapshots = [*snapshots, snapshot]
        if len(snapshots) == MAX_SNAPSHOTS and snapshots[-1].n_records == self._span:
            snapshots = [a + b for a, b in zip(snapshots[::2], snapshots[1::2], strict=True)]
            self._span *= 2
        if len(rows) == MAX_RECORDS:
            rows = [_merge_rows(a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
            snapshots = [replace(s, n_records=s.n_records // 2) for s in snapshots]
            self._span //= 2
            self.batch *= 2
        # one statement: an interrupt between two would leave records without snapshots
        now = self._requests + int(row[Col.READS] + row[Col.WRITES])
        self._rows, self._snapshots, self._requests = rows, snapshots, now

    def warmup(self) -> tuple[int, bool]:
        """Records to cut off (MSER on rate and mean latency), and if the warm-up was over then."""
        records = self.records
        if len(records) < 4:
            return 0, False
        edges = np.cumsum([0] + [s.n_records for s in self._snapshots])
        edges = edges[edges <= len(records) // 2]
        count = column(records, Col.READS, None)
        series = (
            count / np.maximum(1.0, records[:, Col.DURATION]),
            column(records, Col.READ_LAT, None) / np.maximum(1.0, count),
        )
        cut = max(mser(z, edges) for z in series)
        return cut, cut < edges[-1] or len(edges) < 4

    def window(self, cut: int) -> Window:
        """Everything from record *cut* on; *cut* is a snapshot's edge."""
        edges = np.cumsum([0] + [s.n_records for s in self._snapshots])
        first = int(np.searchsorted(edges, cut))
        before = sum(float(row[Col.DURATION]) for row in self._rows[:cut])
        return Window(self._dropped_ps + before, self.records[cut:], tuple(self._snapshots[first:]))

    def drop(self, cut: int) -> None:
        """Forget the records before *cut*: the warm-up is decided."""
        window = self.window(cut)
        self._dropped_ps = window.warmup_ps
        self._rows, self._snapshots = self._rows[cut:], list(window.snapshots)
        self._requests = window.requests


def _merge_rows(a: Floats, b: Floats) -> Floats:
    merged = a + b
    merged[Col.OUTSTANDING] = b[Col.OUTSTANDING]
    return np.asarray(merged)


def mser(series: Floats, candidates: Ints) -> int:
    """Of *candidates*, the number of leading values whose loss leaves the best known mean.

    Minimises the squared standard error of the mean of what is left, sum (z - mean)^2 / n^2.
    Source: White 1997.

    >>> mser(np.array([9.0, 5.0, 1.0, 1.1, 0.9, 1.0, 1.1, 0.9]), np.arange(5))
    2
    """
    z = series - series.mean()
    left = len(z) - candidates
    first = np.cumsum(z[::-1])[::-1][candidates]
    second = np.cumsum((z * z)[::-1])[::-1][candidates]
    return int(candidates[np.argmin((second - first * first / left) / left**2)])


def group_edges(n: int, groups: int) -> list[int]:
    """Where *groups* runs of nearly equal length begin and end among *n*."""
    return [n * i // groups for i in range(groups + 1)]


def grouped(values: Floats, groups: int = N_GROUPS) -> Floats:
    """Sums of neighbours, float64[at most *groups*] (or [*, columns])."""
    edges = group_edges(len(values), min(groups, len(values)))
    return np.asarray(np.add.reduceat(values, edges[:-1], axis=0))


def half_width(residuals: Floats) -> float:
    """95 % half-width of a sum, from the *residuals* of its batches; infinite for fewer than two.

    Student's t over groups of neighbours; the widest of the groupings in `GROUPINGS` counts.
    """
    if len(residuals) < 2:
        return math.inf
    sizes = {min(n, len(residuals)) for n in GROUPINGS}
    return max(_student(grouped(residuals, n)) for n in sizes)


def _student(sums: Floats) -> float:
    n = len(sums)
    variance = float(sums @ sums) * n / (n - 1)
    return two_sided(n - 1, CONFIDENCE) * math.sqrt(variance)


def ratio_interval(numerator: Floats, denominator: Floats) -> Interval:
    """Interval of sum(numerator) / sum(denominator), both float64[n records].

    A ratio of nothing is 0. Source: Law and Kelton, ratio estimators by linearisation.

    >>> ratio_interval(np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    whole = float(denominator.sum())
    if whole <= 0:
        return Interval(0.0, 0.0, 0.0)
    value = float(numerator.sum()) / whole
    half = half_width(numerator - value * denominator) / whole
    return Interval.around(value, half, 0.0)


def per_second(records: Floats, counts: Floats) -> Interval:
    """Interval of *counts* per second of *records*."""
    return ratio_interval(counts, records[:, Col.DURATION] / PS_PER_S)


def relative_half(interval: Interval) -> float:
    """Half the width of *interval* relative to its value; infinite for a value of 0."""
    return math.inf if interval.value <= 0 else interval.half / interval.value


NEWTON_STEPS: Final = 60  # of Newton's method; it stops when nothing changes any more


@cache
def two_sided(freedom: int, share: float = 0.95) -> float:
    """How many standard errors hold *share* (0.7 or more) of Student's t, *freedom* degrees of it.

    >>> round(two_sided(23), 6), round(two_sided(5), 6), round(two_sided(1), 6)
    (2.068658, 2.570582, 12.706205)
    """
    tail = 1 - share
    t = 1.0
    for _ in range(NEWTON_STEPS):
        # the share beyond t is convex: from the left, Newton's steps do not leap over it
        step = (1 - _within(t, freedom) - tail) / (2 * _density(t, freedom))
        t += step
        if abs(step) < 1e-15 * t:
            break
    return t


def _within(t: float, freedom: int) -> float:
    """P(-t < T < t). Source: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _density(t: float, freedom: int) -> float:
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log -= (freedom + 1) / 2 * math.log1p(t * t / freedom)
    return math.exp(log) / math.sqrt(freedom * math.pi)


# The load, and how full its write buffers are -----------------------------------------------------

DRIFT: Final = 0.03
"""Share of what goes into a write buffer that must stay in it, for it to count as filling."""
CHANCE: Final = 4.0  # standard deviations beyond which a buffer's level did not move by chance


@dataclass(frozen=True)
class RunLoad:
    """Facts about the load that the controller needs."""

    is_open: bool = False  # requests arrive by the clock
    replayed: bool = False
    """Arrivals end: a trace. Then nothing is warm-up, all of it is the answer."""
    bursts: bool = False
    """Requests arrive in bursts: their number in a window says how many bursts it saw."""
    in_flight: int = 0
    """Requests that a closed loop keeps; there is no warm-up shorter than a few rounds."""
    share: float = 1.0
    """Part of the usual run that suffices: a request of many MiB visits as much as many do."""
    servers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """int64[n_stations]: servers where requests queue for service, else 0; empty: not looked at."""
    buffers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Gates of write buffers: full or not, they must have settled."""
    buffer_slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def _levels(window: Window, load: RunLoad) -> Floats:
    """float64[n_groups, n_buffers]: mean share of each write buffer's slots in use."""
    return np.array(
        [
            sum(s.stations[load.buffers, 2] for s in group)
            / sum(s.duration_ps for s in group)
            / load.buffer_slots
            for group in window.groups(8)
        ]
    )


def drifting(window: Window, load: RunLoad) -> int:
    """1 if a write buffer fills or has only just filled, -1 if one empties, 0 if settled."""
    if not load.buffers.size or window.duration_ps <= 0:
        return 0
    late = _levels(window, load)[-5:]
    if len(late) < 5:
        return 0
    groups = window.groups(8)[-5:]
    entered = sum(s.stations[load.buffers, Acc.VISITS] for g in groups[1:] for s in g)
    moved = (late[-1] - late[0]) * load.buffer_slots
    least = np.minimum(DRIFT * entered, 0.02 * load.buffer_slots)
    clear = np.abs(moved) > np.maximum(least, CHANCE * np.sqrt(2 * entered))
    step = np.diff(late, axis=0) * load.buffer_slots
    one_way = ((step >= 0).all(axis=0) & (moved > 0)) | ((step <= 0).all(axis=0) & (moved < 0))
    sure = clear & one_way
    if (sure & (moved > 0)).any():
        return 1
    return -1 if sure.any() else 0


def fill_share(window: Window, load: RunLoad) -> float:
    """Mean share of the write buffers' slots in use at the end of *window*."""
    return float(np.clip(_levels(window, load)[-1].mean(), 0.0, 1.0))


def fullest_share(window: Window, load: RunLoad) -> float:
    """The same of the fullest write buffer."""
    return float(np.clip(_levels(window, load)[-1].max(), 0.0, 1.0))


def fill_level(window: Window, load: RunLoad) -> tuple[float, float]:
    """Share of the fullest filling buffer in use, and the seconds until it is full."""
    levels = _levels(window, load)
    rise = (levels[-1] - levels[-5]) / 4
    buffer = int(np.argmax(np.where(rise > 0, levels[-1], -1.0)))
    eighth = window.duration_ps / len(levels) / PS_PER_S
    left = (1 - float(levels[-1, buffer])) / max(float(rise[buffer]), 1e-12) * eighth
    return float(levels[-1, buffer]), left
