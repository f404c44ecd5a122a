"""A drive made of its capture: latencies drawn in runs, which keep episodes and bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.calibrate.arrivals import arrivals_of
from nvmesim.calibrate.drive.read_side import blank_reads
from nvmesim.calibrate.drive.write_side import blank_writes
from nvmesim.calibrate.infer.bootstrap import (
    RUN_LENGTHS,
    BootstrapInterval,
    decorrelation_length,
    percentile_intervals,
    thinned,
)
from nvmesim.capture.capture import Capture, Latency
from nvmesim.catalog.profile import DriveProfile, EmpiricalLatencies, Quantity
from nvmesim.errors import FitError

MAX_SAMPLES = 20_000
"""Samples kept per operation; a file of them stays below 200 kB."""
MIN_SAMPLES = 100
PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)
"""Percentiles given with their intervals."""
FROM_BINS = 4_000
"""Samples made of a histogram: its quantiles, evenly spaced."""


@dataclass(frozen=True)
class EmpiricalFit:
    """A drive made of samples, and what is to be said of it."""

    profile: DriveProfile
    warnings: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    """Decorrelation length of each operation's series, requests; empty for a histogram."""
    percentiles_s: Mapping[str, Mapping[float, BootstrapInterval]] = field(default_factory=dict)
    """Operation -> percent -> value with its interval, as far out as the sample carries."""

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as an object."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "points": [],
            "decorrelation_requests": list(self.lengths),
            "percentiles_s": {
                op: {
                    f"p{p:g}": {"value": v.value, "low": v.low, "high": v.high}
                    for p, v in table.items()
                }
                for op, table in self.percentiles_s.items()
            },
            "warnings": list(self.warnings),
        }


def fit_empirical(capture: Capture, *, name: str) -> EmpiricalFit:
    """The drive of *capture*, a log, trace or histogram at one depth; FitError for others."""
    return (_of_bins if capture.requests is None else _of_requests)(capture, name, [])


def _of_requests(capture: Capture, name: str, notes: list[str]) -> EmpiricalFit:
    series, sizes, depths = _series(capture, notes)
    if not any(len(s) >= MIN_SAMPLES for s in series):
        raise FitError(f"{capture.file.name}: fewer than {MIN_SAMPLES} latencies of either kind")
    depth = _depth(capture, depths, notes)
    block = _block_size(capture, sizes, notes)
    kept: list[tuple[float, ...]] = []
    lengths: list[int] = []
    for label, samples in zip(("reads", "writes"), series, strict=True):
        if len(samples) < MIN_SAMPLES:
            if len(samples):
                notes.append(f"only {len(samples)} {label}: too few to draw from, left out")
            kept.append(())
            continue
        lengths.append(decorrelation_length(samples))
        few = thinned(samples, MAX_SAMPLES, max(lengths[-1] * 4 * RUN_LENGTHS, 50))
        if len(few) < len(samples):
            notes.append(f"{len(few):,} of {len(samples):,} {label} are kept, in runs")
        kept.append(tuple(np.round(few * 1e6, 2).tolist()))
    # Runs keep what lasts: some decorrelation lengths, at most a quarter of either series.
    shortest, longest = min(len(samples) for samples in kept if samples), max(lengths)
    table = EmpiricalLatencies(
        queue_depth=depth, block_size=Quantity(value=block, basis="measured"),
        read_us=kept[0], write_us=kept[1],
        block=1 if longest == 1 else max(1, min(RUN_LENGTHS * longest, shortest // 4)),
        source=f"{capture.file.name}: requests one by one",
    )  # fmt: skip
    percentiles: dict[str, Mapping[float, BootstrapInterval]] = {
        op: percentile_intervals(samples[: 5 * MAX_SAMPLES], PERCENTS, trials=200)
        for op, samples in zip(("read", "write"), series, strict=True)
        if len(samples) >= MIN_SAMPLES
    }
    return replace(_fit(name, table, notes, tuple(lengths)), percentiles_s=percentiles)


def _series(capture: Capture, notes: list[str]) -> tuple[tuple[Floats, Floats], Floats, Floats]:
    """Latencies, s, of reads and of writes in order; sizes; depths at issue (empty: unknown)."""
    if capture.requests is None:
        raise FitError(f"{capture.file.name}: holds no requests")
    whole = capture.requests.select(pl.col("issue_ns").is_not_null().all()).collect().item()
    if whole:
        a = arrivals_of(capture, notes)
        pair = (a.latency_s[~a.write], a.latency_s[a.write])
        return pair, a.size.astype(float), a.depth.astype(float)
    frame = (
        capture.requests.select(pl.col("op").cast(pl.String), "latency_ns", "bytes")
        .filter((pl.col("latency_ns") > 0) & pl.col("op").is_not_null())
        .collect()
    )
    values = frame["latency_ns"].to_numpy().astype(float) / 1e9
    write = (frame["op"] == "write").to_numpy()
    none = np.zeros(0)
    return (values[~write], values[write]), frame["bytes"].to_numpy().astype(float), none


def _depth(capture: Capture, depths: Floats, notes: list[str]) -> int:
    """Queue depth of the capture: stated, or recovered from its requests."""
    stated = {m.conditions.outstanding for m in capture.measurements} - {None}
    if len(stated) == 1:
        return max(1, stated.pop() or 1)
    if not depths.size:
        notes.append("the queue depth of the capture is not known; 1 is taken")
        return 1
    low, middle, high = np.quantile(depths, (0.1, 0.5, 0.9))
    if high > 1.5 * low and high - low > 2:
        notes.append(
            f"the depth varied from {low:.0f} to {high:.0f}: the samples are of no single depth; "
            "fit the trace instead to have a drive for each"
        )
    return max(1, round(float(middle)))


def _block_size(capture: Capture, sizes: Floats, notes: list[str]) -> int:
    stated = [m.conditions.block_size for m in capture.measurements]
    known = {size for size in stated if isinstance(size, int) and size}
    if len(known) == 1:
        return known.pop()
    positive = sizes[sizes > 0]
    if not positive.size:
        notes.append("the block size of the capture is not known; 4 KiB is taken")
        return 4096
    if len(np.unique(positive)) > 1:
        notes.append("requests of several sizes: the samples are of their mix")
    return int(np.median(positive))


def _of_bins(capture: Capture, name: str, notes: list[str]) -> EmpiricalFit:
    """From the histogram of the one measurement of *capture*."""
    found = [m for m in capture.measurements if any(_binned(r.clat, r.lat) for r in m.ops.values())]
    if not found:
        raise FitError(
            f"{capture.file.name}: holds neither single requests nor a histogram; give a latency "
            "log, a block trace or fio's json+"
        )
    if len(found) > 1:
        raise FitError(
            f"{capture.file.name}: holds {len(found)} measurements; an empirical drive is of one"
        )
    samples: dict[str, tuple[float, ...]] = {}
    for op, result in found[0].ops.items():
        table = _binned(result.clat, result.lat)
        if table is not None:
            samples[op] = tuple(np.round(samples_of_bins(table) * 1e6, 2).tolist())
    notes.append("from a histogram: samples are drawn one by one, so episodes are lost")
    table_out = EmpiricalLatencies(
        queue_depth=_depth(capture, np.zeros(0), notes),
        block_size=Quantity(value=_block_size(capture, np.zeros(0), notes), basis="measured"),
        read_us=samples.get("read", ()),
        write_us=samples.get("write", ()),
        source=f"{capture.file.name}: histogram",
    )
    return _fit(name, table_out, notes, ())


def _binned(*tables: Latency | None) -> Latency | None:
    """The first of *tables* that has bins."""
    return next((t for t in tables if t is not None and t.bin_count is not None), None)


def samples_of_bins(table: Latency, count: int = FROM_BINS) -> Floats:
    """float64[count], s: evenly spaced quantiles of a histogram, the largest bin last."""
    if table.bin_s is None or table.bin_count is None:
        return np.zeros(0)
    cumulative = np.cumsum(table.bin_count)
    ranks = (np.arange(count) + 0.5) / count * cumulative[-1]
    values: Floats = np.asarray(table.bin_s, float)[np.searchsorted(cumulative, ranks)]
    values[-1] = float(np.asarray(table.bin_s)[np.flatnonzero(table.bin_count)[-1]])
    return values


def _fit(
    name: str, table: EmpiricalLatencies, notes: Sequence[str], lengths: tuple[int, ...]
) -> EmpiricalFit:
    q = Quantity
    profile = DriveProfile(
        name=name, link="pcie4 x4", capacity=q(value=1e12), host_included=True,
        dies=q(value=64), channels=q(value=8), commands=q(value=1e6),
        read_bandwidth=q(value=7e9), write_bandwidth=q(value=5e9),
        read=blank_reads(), write=blank_writes(), latencies=table,
        notes=f"latencies as captured at queue depth {table.queue_depth}; not for other depths",
    )  # fmt: skip
    honest = f"honest only at queue depth {table.queue_depth}, where it was captured"
    return EmpiricalFit(profile, (honest, *notes), lengths)
