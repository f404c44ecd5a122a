"""A drive made of its capture: latencies drawn in runs, which keep episodes and bursts.

Requests of an episode resampled one by one give intervals that are many times too narrow; runs a
few memories of the series long keep what lasts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.calibrate.arrivals import arrivals_of
from nvmesim.calibrate.drive.starting_point import blank_drive
from nvmesim.capture.capture import Capture, percentiles_of_bins
from nvmesim.catalog.profile import DriveProfile, EmpiricalLatencies, Quantity
from nvmesim.catalog.quantity import with_numbers
from nvmesim.errors import FitError
from nvmesim.measure.figures import Interval

MAX_SAMPLES: Final = 20_000
"""Samples kept per operation; a file of them stays below 200 kB."""
MIN_SAMPLES: Final = 100
FROM_BINS: Final = 4_000
"""Samples made of a histogram: its quantiles, evenly spaced."""
PERCENTS: Final = (50.0, 90.0, 99.0, 99.9)
"""Percentiles given with their intervals."""
MIN_BEYOND: Final = 10
"""Samples beyond a percentile for its bootstrap to mean something."""
FORGOTTEN: Final = 0.1
"""Autocorrelation below which the past is taken to be forgotten."""
MEMORIES: Final = 4
"""Memories in a run. Source: Kunsch 1989: a block is long against the memory of the series."""
LEAST_RUNS: Final = 20
"""Runs that a series is cut into at least for intervals: fewer do not show how they differ."""


@dataclass(frozen=True)
class EmpiricalFit:
    """A drive made of samples, and what is to be said of it."""

    profile: DriveProfile
    warnings: tuple[str, ...]
    memories: tuple[int, ...]
    """Requests after which the past of each operation's series is forgotten; 1 of a histogram."""
    percentiles_s: Mapping[str, Mapping[float, Interval]]
    """Operation -> percent -> value with its interval, as far out as the samples carry."""

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as an object."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "points": [],
            "decorrelation_requests": list(self.memories),
            "percentiles_s": {
                op: {f"p{p:g}": interval.to_json() for p, interval in table.items()}
                for op, table in self.percentiles_s.items()
            },
            "warnings": list(self.warnings),
        }


def fit_empirical(capture: Capture, *, name: str) -> EmpiricalFit:
    """The drive of *capture*, a log, trace or histogram at one depth; FitError for others."""
    notes: list[str] = []
    is_each = capture.requests is not None
    series, sizes, depths = (_of_requests if is_each else _of_bins)(capture, notes)
    depth, size = _conditions(capture, depths, sizes, notes)
    kept: dict[str, Floats] = {}
    memories, runs, percentiles = {}, {}, {}
    for op, samples in series.items():
        if len(samples) < MIN_SAMPLES:
            if len(samples):
                notes.append(f"only {len(samples)} {op}s: too few to draw from, left out")
            continue
        memory = memories[op] = decorrelation_length(samples) if is_each else 1
        run = runs[op] = 1 if memory == 1 else MEMORIES * memory
        few = kept[op] = thinned(samples, MAX_SAMPLES, 4 * run)
        if len(few) < len(samples):
            notes.append(f"{len(few):,} of {len(samples):,} {op}s are kept, in runs")
        if is_each:
            most = len(few) // LEAST_RUNS
            percentiles[op] = percentile_intervals(few, PERCENTS, min(run, most))
            if run > most:
                text = "few for what lasts so long, and intervals may be too narrow"
                notes.append(f"{op}s remember {memory:,} requests: {len(few):,} are {text}")
    if not kept:
        raise FitError(f"{capture.file.name}: fewer than {MIN_SAMPLES} latencies of either kind")
    us = {op: tuple(np.round(few * 1e6, 2).tolist()) for op, few in kept.items()}
    table = EmpiricalLatencies(
        queue_depth=depth, block_size=Quantity(value=size, basis="measured"),
        read_us=us.get("read", ()), write_us=us.get("write", ()),
        block=min(max(runs.values()), min(map(len, kept.values())) // 4),
        source=f"{capture.file.name}: {'requests one by one' if is_each else 'histogram'}",
    )  # fmt: skip
    profile = with_numbers(blank_drive(name, "pcie4 x4"), {"latencies": table, "notes": notes[0]})
    return EmpiricalFit(profile, tuple(notes), tuple(memories.values()), percentiles)


def _of_requests(capture: Capture, notes: list[str]) -> tuple[dict[str, Floats], Floats, Floats]:
    """Latencies, s, of each operation in order; sizes; depths at issue (empty: unknown)."""
    assert capture.requests is not None
    depths = np.zeros(0)
    if capture.requests.select(pl.col("issue_ns").is_not_null().all()).collect().item():
        a = arrivals_of(capture, notes)
        latency, write, sizes, depths = a.latency_s, a.write, a.size, a.depth.astype(float)
    else:  # a log: as requests ended
        frame = capture.requests.drop_nulls(["latency_ns", "op"]).collect()
        latency, sizes = frame["latency_ns"].to_numpy() / 1e9, frame["bytes"].to_numpy()
        write = (frame["op"] == "write").to_numpy()
    return {"read": latency[~write], "write": latency[write]}, sizes.astype(float), depths


def _of_bins(capture: Capture, notes: list[str]) -> tuple[dict[str, Floats], Floats, Floats]:
    """Evenly spaced quantiles of the histograms of the one measurement of *capture*."""
    found = [table for m in capture.measurements if (table := {
        op: (t.bin_s, t.bin_count) for op, r in m.ops.items() for t in (r.lat, r.clat)
        if t is not None and t.bin_s is not None and t.bin_count is not None
    })]  # fmt: skip
    if len(found) != 1:
        what = "neither single requests nor a histogram; give a latency log, a block trace or fio's"
        held = f"{len(found)} measurements; give one" if found else f"{what} json+"
        raise FitError(f"{capture.file.name}: holds {held}")
    notes.append("from a histogram: samples are drawn one by one, so episodes are lost")
    percents = np.linspace(0, 100, FROM_BINS + 1)[1:]
    series: dict[str, Floats] = {op: np.array([*percentiles_of_bins(*bins, percents).values()])
              for op, bins in found[0].items()}  # fmt: skip
    return series, np.zeros(0), np.zeros(0)


def _conditions(
    capture: Capture, depths: Floats, sizes: Floats, notes: list[str]
) -> tuple[int, int]:
    """Queue depth and block size of *capture*: as stated, else those of its requests."""
    stated = [m.conditions for m in capture.measurements]
    depth, size = _one(c.outstanding for c in stated), _one(c.block_size for c in stated)
    if depth is None and depths.size:
        low, middle, high = np.quantile(depths, (0.1, 0.5, 0.9))
        depth = max(1, round(float(middle)))
        if high > 1.5 * low and high - low > 2:
            span = f"the depth varied from {low:.0f} to {high:.0f}: the samples are of no single"
            notes.append(f"{span} depth; fit the trace instead to have a drive for each")
    where = f"queue depth {depth}, where it was captured"
    unknown = "the depth of its capture, not known: put it in place of latencies.queue_depth = 1"
    notes.insert(0, f"honest only at {where if depth else unknown}")
    if size is None and sizes.any():  # one size is stated
        size = int(np.median(sizes))
        notes.append("requests of several sizes: the samples are of their mix")
    elif size is None:
        notes.append("the block size of the capture is not known; 4 KiB is taken")
    return depth or 1, size or 4096


def _one(stated: Iterable[Any]) -> int | None:
    """The whole number above 0 that is stated, if it is one."""
    found = {value for value in stated if isinstance(value, int) and value > 0}
    return found.pop() if len(found) == 1 else None


def decorrelation_length(series: Floats) -> int:
    """Smallest lag from which the autocorrelation stays below 0.1 or what noise would show.

    *series*: float64[n] in order. 1 for independent samples, n / 10 at most. The autocorrelation of
    the ranks is averaged over lags k to 2k, so that one lucky lag does not end the search.
    Source: Law, Simulation Modeling and Analysis, section 9.5 (batch sizes).

    >>> decorrelation_length(np.random.default_rng(1).normal(size=5000))
    1
    """
    n, ordered = len(series), np.sort(series)
    ranks = sum(np.searchsorted(ordered, series, side) for side in ("left", "right"))
    spectrum = np.fft.rfft(ranks - np.mean(ranks), 2 * n)
    rho = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n)[:n]
    limit = max(FORGOTTEN, 1.96 / np.sqrt(n)) * rho[0]
    longest, lag = max(1, n // 10), 1
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
    length = min(run, most)
    starts = np.linspace(0, len(series) - length, most // length).round().astype(int)
    return np.concatenate([series[s : s + length] for s in starts])


def percentile_intervals(
    series: Floats, percents: Sequence[float], run: int, *, trials: int = 200
) -> dict[float, Interval]:
    """95 % intervals of those percentiles of *series* that have enough samples beyond them.

    Bootstrap in circular blocks of *run* samples. Source: Politis and Romano 1992.

    >>> percentile_intervals(np.ones(20), [50.0, 99.0], 1)
    {50.0: Interval(value=1.0, low=1.0, high=1.0)}
    """
    n = len(series)
    kept = [p for p in percents if min(p, 100 - p) / 100 * n >= MIN_BEYOND]
    shares = np.array(kept) / 100
    starts = np.random.default_rng(1).integers(0, n, (trials, -(-n // run), 1))
    drawn = ((starts + np.arange(run)) % n).reshape(trials, -1)[:, :n]
    ends = np.quantile(np.quantile(series[drawn], shares, axis=1), (0.025, 0.975), axis=1)
    table = np.vstack([np.quantile(series, shares), ends]).T.tolist()
    return {p: Interval(*row) for p, row in zip(kept, table, strict=True)}
