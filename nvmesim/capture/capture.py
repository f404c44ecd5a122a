"""Result of every reader: a capture of one file, its measurements and, if it has them, requests.

A *measurement* is one row of results under one set of conditions (a fio job group, a DiskSpd time
span, a row of a points table). Latencies are seconds here because they come as results, not as
clock ticks; `clat` and `lat` are fio's (lat = slat + clat) and are never mixed.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from nvmesim.files import plain_json
from nvmesim.warning import Warning

Op = Literal["read", "write"]
OPS: Final[tuple[Op, ...]] = ("read", "write")
KINDS: Final = ("clat", "lat", "slat")
"""Latencies that an `OpResult` may have."""
PURE: Final = 0.03
"""Share of a mix up to which the other operation hardly shows in its latencies. Assumed."""
Access = Literal["random", "sequential"]
Arrivals = Literal["poisson", "fixed"]
Sync = Literal["fsync", "fdatasync", "sync"]


@dataclass(frozen=True)
class Conditions:
    """Under what load something was measured; None is unknown, never a default."""

    read_fraction: float | None = None
    """Fraction of requests that read, 0 to 1."""
    access: Access | None = None
    block_size: int | Mapping[int, float] | None = None
    """Bytes, or bytes -> fraction for a mix."""
    jobs: int | None = None
    """Threads or processes that submit."""
    iodepth: int | None = None
    """Outstanding requests per job over all its targets (fio iodepth; DiskSpd -o times targets)."""
    targets: int | None = None
    """Drives, files or volumes under test."""
    targets_per_job: int | None = None
    """How many of them each job submits to, where a tool gives jobs their own (DiskSpd -t).

    None: to all.
    """
    engine: str | None = None
    direct: bool | None = None
    rate_iops: float | None = None
    """A rate limit in force, requests/s in all."""
    duration_s: float | None = None
    ramp_s: float | None = None
    cpus: int | None = None
    """Logical CPUs of the host."""
    batch: int | None = None
    """Requests that a job submits at once."""
    polled: bool | None = None
    """True if completions were polled for."""
    depth_mean: float | None = None
    """Mean outstanding at issue as recovered from a trace, whose iodepth nobody stated."""
    offered_iops: float | None = None
    """Requests/s that were submitted by the clock, whether others were done or not (open loop)."""
    arrivals: Arrivals | None = None
    """Their law: poisson (None is that), or a fixed interval."""
    most_outstanding: int | None = None
    """Requests in flight, all jobs together, beyond which arrivals waited."""
    sync: Sync | None = None
    """Flush after each write."""
    raid: str | None = None
    """Array of `targets` members that was measured, as "raid0:512 KiB"; None: single drives."""
    filesystem: str | None = None
    """Of the files that were measured, as "xfs"; None: not said, or raw devices."""
    guest: str | None = None
    """Virtual machine that measured, as "kvm-virtio"; None: not said, or none."""
    beside: str | None = None
    """Label, or line, of the measurement whose load ran at the same time."""
    device_times: bool = False
    """True if latencies are the device's own (iostat, blktrace), without a host."""

    @property
    def outstanding(self) -> int | None:
        """Requests in flight in all: jobs x iodepth, if both are known."""
        return None if self.jobs is None or self.iodepth is None else self.jobs * self.iodepth


@dataclass(frozen=True)
class Latency:
    """One latency distribution as the file has it; what the file lacks is None or empty."""

    count: int
    """Samples; 0 if the source (a datasheet) does not say how many there were."""
    mean_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    stddev_s: float | None = None
    percentiles_s: Mapping[float, float] = field(default_factory=dict)
    """Percent (99.9) -> seconds; never averaged over jobs."""
    bin_s: np.ndarray | None = None
    """float64[n_bins], s: representative value of each histogram bin, ascending."""
    bin_count: np.ndarray | None = None
    """int64[n_bins]: samples in each bin."""


@dataclass(frozen=True)
class OpResult:
    """Results of the reads, or writes, of one measurement."""

    count: int
    """Requests; 0 if the source (a datasheet) gives rates only."""
    bytes: int
    iops: float
    bytes_per_s: float
    clat: Latency | None = None
    lat: Latency | None = None
    slat: Latency | None = None


@dataclass(frozen=True)
class CpuUse:
    """CPU time that a measurement took."""

    user_pct: float | None
    """Percent of one logical CPU, all jobs together."""
    system_pct: float | None
    total_pct: float
    """user + system, percent of one logical CPU, all jobs together (200 = two are busy)."""
    per_job_pct: float | None = None
    """Percent of one logical CPU per job: near 100 the job, not the drive, was measured."""
    scope: Literal["jobs", "host"] = "jobs"
    """True if the jobs' own time was counted or that of the whole host."""
    polled: bool = False
    """True if jobs spun for completions: their time is then no cost of a request."""


@dataclass(frozen=True)
class Measurement:
    """One set of conditions and what was measured under it."""

    label: str
    conditions: Conditions
    ops: Mapping[Op, OpResult]
    cpu: CpuUse | None = None
    disk_util_pct: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    place: str = ""
    """Where in the file it is, as "line 3"; blank: it is the file."""
    warnings: tuple[str, ...] = ()
    mixed: OpResult | None = None
    """Requests of which the file does not say whether they read or wrote; not part of `ops`."""


@dataclass(frozen=True)
class Capture:
    """One file, read.

    ``requests`` is a lazy Polars frame, a row a request in completion order, with the columns
    ``issue_ns`` (Int64, null if unknown), ``complete_ns`` (Int64), ``latency_ns`` (Int64),
    ``op`` (Enum read/write), ``bytes`` (Int64), ``offset`` (Int64, null if unknown),
    ``device`` (String) and ``depth`` (Int32: outstanding on the device at issue, this one
    included; null if unknown). Times count from the start of the capture.
    """

    file: Path
    format: str
    version: str | None
    measurements: tuple[Measurement, ...]
    rows: int
    skipped: int = 0
    requests: pl.LazyFrame | None = None
    series: pl.DataFrame | None = None
    """Means over windows of time, where a file has no more than that: ``time_s`` (Float64, end of
    the window), ``op``, ``kind`` (clat, lat, slat in s; iops; bytes_per_s) and ``value``."""
    warnings: tuple[str, ...] = ()


REQUEST_SCHEMA: Final = pl.Schema(
    {
        "issue_ns": pl.Int64(),
        "complete_ns": pl.Int64(),
        "latency_ns": pl.Int64(),
        "op": pl.Enum(("read", "write")),
        "bytes": pl.Int64(),
        "offset": pl.Int64(),
        "device": pl.String(),
        "depth": pl.Int32(),
    }
)
"""Columns of `Capture.requests`."""


@dataclass(frozen=True)
class Captures:
    """All captures that were asked for, in the order of their files."""

    files: tuple[Capture, ...]
    unread: tuple[Warning, ...] = ()
    """Files of a folder or glob that no reader could read, each with the reason."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Every measurement of every file, in order."""
        return tuple(m for capture in self.files for m in capture.measurements)


def lazy_table(frames: Callable[[], Iterator[pl.DataFrame]]) -> pl.LazyFrame:
    """Return a lazy frame of the batches of *frames*, tables of requests, in bounded memory.

    They are made again each time it is collected.
    """

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:  # fmt: skip
        left = n_rows
        for whole in frames():
            frame = whole
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)
            if left == 0:
                return

    return register_io_source(source, schema=REQUEST_SCHEMA)


# -- histograms ------------------------------------------------------------------------------------

FIO_PERCENTILES: Final = (
    *(1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0),
    *(95.0, 99.0, 99.5, 99.9, 99.95, 99.99),
)
"""Percentiles that fio reports by default. Source: fio HOWTO, percentile_list."""
FIO_BITS: Final = 6
"""Source: fio stat.h, FIO_IO_U_PLAT_BITS: 64 bins an octave, so a midpoint is off by < 1/128."""


def fio_bin_value(index: np.ndarray | int, bits: int = FIO_BITS) -> np.ndarray:
    """Midpoint of fio's histogram bins, in the unit that fio counted (ns since 3.0, us before).

    *index*: int64[n]. Below 128 a bin is one unit wide and holds exactly its own value.
    2**bits bins an octave. Source: fio stat.c, plat_idx_to_val.

    >>> fio_bin_value(np.array([0, 127, 128, 191, 192])).tolist()
    [0.0, 127.0, 129.0, 255.0, 258.0]
    """
    index = np.asarray(index, dtype=np.int64)
    octave = np.maximum((index >> bits) - 1, 0)
    low = (np.int64(1) << (octave + bits)) + (index % (1 << bits)) * (1 << octave)
    middle = low + np.where(octave > 0, (1 << octave) >> 1, 0)
    return np.where(index < 2 << bits, index, middle).astype(np.float64)


def fio_bin_index(value: np.ndarray, bits: int = FIO_BITS) -> np.ndarray:
    """Bin of each value, the inverse of `fio_bin_value`; int64[n] >= 0 -> int64[n].

    Source: fio stat.c, plat_val_to_idx.

    >>> fio_bin_index(np.array([0, 127, 128, 255, 256])).tolist()
    [0, 127, 128, 191, 192]
    """
    # frexp is exact below 2**53 ns, a hundred days.
    octave = np.maximum(np.frexp(value.astype(np.float64))[1] - 1 - bits, 0).astype(np.int64)
    return np.asarray((octave << bits) + (value >> octave))


def percentiles_of_bins(
    bin_s: np.ndarray, bin_count: np.ndarray, percents: Iterable[float]
) -> dict[float, float]:
    """Nearest-rank percentiles of a histogram, as fio reports them.

    float64[n_bins] in s, ascending, and int64[n_bins]; k = ceil(p/100 N), the value of its bin.

    >>> percentiles_of_bins(np.array([1.0, 2.0, 5.0]), np.array([50, 49, 1]), [50.0, 99.0, 99.5])
    {50.0: 1.0, 99.0: 2.0, 99.5: 5.0}
    """
    below = np.cumsum(bin_count)
    total = int(below[-1])
    # Fractions such as 99.9 % of 1000 must not become rank 1000 by a rounding of 1e-13.
    ranks = [max(1, math.ceil(round(p / 100 * total, 6))) for p in percents]
    return {
        p: float(bin_s[np.searchsorted(below, rank)])
        for p, rank in zip(percents, ranks, strict=True)
    }


def merge_latencies(parts: Sequence[Latency | None]) -> Latency | None:
    """Merge distributions of jobs that ran together; None if one of them has none.

    Mean, deviation, minimum and maximum merge exactly. Percentiles come from merged bins; without
    bins in every part there are none.
    """
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    if len(known) == 1:
        return known[0]
    count = sum(part.count for part in known)
    means, deviations = (_known(getattr(p, f"{x}_s") for p in known) for x in ("mean", "stddev"))
    mean = stddev = None
    if means and count:
        mean = sum(p.count * m for p, m in zip(known, means, strict=True)) / count
        squares = [d**2 + (m - mean) ** 2 for d, m in zip(deviations, means, strict=False)]
        if squares:
            stddev = math.sqrt(
                sum(p.count * s for p, s in zip(known, squares, strict=True)) / count
            )
    bins = _merge_bins(known)
    percents = sorted({p for part in known for p in part.percentiles_s})
    return Latency(
        count=count,
        mean_s=mean,
        min_s=min(_known(part.min_s for part in known), default=None),
        max_s=max(_known(part.max_s for part in known), default=None),
        stddev_s=stddev,
        percentiles_s=percentiles_of_bins(*bins, percents) if bins and percents else {},
        bin_s=bins[0] if bins else None,
        bin_count=bins[1] if bins else None,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    """Return the values if every one is known, else none of them."""
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else []


def _merge_bins(parts: Sequence[Latency]) -> tuple[np.ndarray, np.ndarray] | None:
    values = [part.bin_s for part in parts if part.bin_s is not None]
    counts = [part.bin_count for part in parts if part.bin_count is not None]
    if not len(values) == len(counts) == len(parts):
        return None
    merged, place = np.unique(np.concatenate(values), return_inverse=True)
    total = np.zeros(len(merged), dtype=np.int64)
    np.add.at(total, place, np.concatenate(counts))
    return merged, total


# As JSON ------------------------------------------------------------------------------------------

SHOWN_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
Table = dict[str, Any]


def describe_capture(capture: Capture) -> Table:
    """Return file, format, version, conditions, rows, skipped, ops and warnings of *capture*.

    Everything is plain JSON: no NaN, no infinity, unknown is null. ``conditions`` holds what all
    measurements share; with several of them ``ops`` counts all requests of the file, and each
    stands by itself in ``measurements``. ``latency_s`` is of one kind, which it names: completion
    latency where the file has its distribution, else total latency; `clat_s`, `lat_s` and
    `slat_s` have what there is of each. Percentiles are merged from histograms or null.
    """
    measurements = capture.measurements
    warnings = list(capture.warnings)
    for m in measurements:
        warnings += [f"{m.label}: {w}" if len(measurements) > 1 else w for w in m.warnings]
    each = [_conditions(m.conditions) for m in measurements] or [_conditions(Conditions())]
    ops: dict[str, list[OpResult]] = {op: [] for op in ("read", "write", "mixed")}
    for m in measurements:
        for op, result in _results(m).items():
            ops[op].append(result)
    table: Table = plain_json(
        {
            "file": str(capture.file),
            "format": capture.format,
            "version": capture.version,
            "conditions": {
                key: value if all(other[key] == value for other in each) else None
                for key, value in each[0].items()
            },
            "rows": capture.rows,
            "skipped": capture.skipped,
            "ops": {op: _ops(results) for op, results in ops.items() if results},
            "warnings": list(dict.fromkeys(map(str, warnings))),
            "has_requests": capture.requests is not None,
            "series": [] if capture.series is None else _series(capture.series),
            "measurements": [_measurement(m) for m in measurements],
        }
    )
    return table


def _conditions(conditions: Conditions) -> Table:
    return {**vars(conditions), "outstanding": conditions.outstanding}


def _results(measurement: Measurement) -> dict[str, OpResult]:
    both = (*measurement.ops.items(), ("mixed", measurement.mixed))
    return {op: result for op, result in both if result is not None}


def _ops(results: Sequence[OpResult]) -> Table:
    """Counts and latencies; rates only of a single measurement, for several need not overlap."""
    by_kind = {kind: merge_latencies([getattr(r, kind) for r in results]) for kind in KINDS}
    main = max(KINDS[:2], key=lambda kind: _worth(by_kind[kind]))
    one = results[0] if len(results) == 1 else None
    return {
        "count": sum(r.count for r in results),
        "bytes": sum(r.bytes for r in results),
        "iops": one and one.iops,
        "bytes_per_s": one and one.bytes_per_s,
        "latency_s": _latency(by_kind[main], main),
        **{f"{kind}_s": _latency(by_kind[kind], kind) for kind in KINDS},
    }


def _worth(latency: Latency | None) -> int:
    """Order: nothing, moments only, a distribution; `max` takes clat where both are equal."""
    if latency is None:
        return 0
    return 2 if latency.percentiles_s or latency.bin_s is not None else 1


def _latency(latency: Latency | None, kind: str) -> Table | None:
    if latency is None:
        return None
    percents = sorted({*SHOWN_PERCENTILES, *latency.percentiles_s})
    return {
        "kind": kind,
        "count": latency.count,
        "mean": latency.mean_s,
        **{f"p{p:g}": latency.percentiles_s.get(p) for p in percents},
        "min": latency.min_s,
        "max": latency.max_s,
        "stddev": latency.stddev_s,
        "bins": 0 if latency.bin_s is None else len(latency.bin_s),
    }


def _series(series: pl.DataFrame) -> list[Table]:
    """Windowed means by kind and operation: how many windows, and their mean and range."""
    value = pl.col("value")
    figures = {"mean": value.mean(), "min": value.min(), "max": value.max()}
    groups = series.group_by("kind", "op", maintain_order=True)
    return groups.agg(windows=pl.len(), **figures).to_dicts()


def _measurement(measurement: Measurement) -> Table:
    return {
        "label": measurement.label,
        "source": measurement.source,
        "conditions": _conditions(measurement.conditions),
        "ops": {op: _ops([result]) for op, result in _results(measurement).items()},
        "cpu": measurement.cpu and dataclasses.asdict(measurement.cpu),
        "disk_util_pct": measurement.disk_util_pct,
        "warnings": list(map(str, measurement.warnings)),
    }
