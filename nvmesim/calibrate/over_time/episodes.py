"""Episodes of garbage collection in a series of window means, and the course that a report shows.

A drive in an episode programs slower by a factor (`catalog.profile.GarbageCollection`). Under a
closed loop that keeps the write buffer full, throughput falls and latency grows by that factor. The
series is taken to turn between two levels; one without two well-separated, lasting levels has no
episodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from nvmesim.array_types import Bools, Floats
from nvmesim.calibrate.over_time.limits import find_buffer
from nvmesim.capture.capture import Capture, Captures
from nvmesim.catalog.profile import GarbageCollection, Quantity

Kind = Literal["latency", "rate"]
Unit = Literal["s", "requests/s", "bytes/s"]
KINDS: Final[tuple[tuple[str, Kind, Unit], ...]] = (
    ("clat", "latency", "s"), ("lat", "latency", "s"),
    ("iops", "rate", "requests/s"), ("bytes_per_s", "rate", "bytes/s"),
)  # fmt: skip
"""Name of a series, what its values are, and their unit; the first that is there is looked at."""

WINDOWS = 10_000
"""Most windows that a series is cut into."""
PER_WINDOW = 25
"""Least requests in a window, so that its mean says something."""
MIN_WINDOWS = 40
MIN_EPISODES = 4
"""Episodes that must begin and end within the series."""
MIN_FACTOR = 1.15
SEPARATION = 2.5
"""Distance of the two means in pooled standard deviations. Tried: normal noise without episodes
splits at up to 1.7."""
MIN_LENGTH = 2.0
"""Mean length of an episode and of a pause, in windows."""
PRESSED = 0.6
"""Outstanding in slow windows, in units of fast ones: below, the load itself comes and goes."""
TURN = 12.0
"""Cost of a turn, in squared standard deviations: two windows of noise alone do not pay for it."""
PASSES = 4


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Episodes:
    """A drive's episodes in a series; times in seconds."""

    on_s: Estimate
    off_s: Estimate
    factor: Estimate
    count: int
    """Episodes that ended within the series."""
    window_s: float
    slow: Bools
    """bool[n_windows]: within an episode"""
    times_s: Floats
    """float64[n_windows]: middle of each window"""
    distance: float
    """Of the two levels, in pooled standard deviations"""

    def collection(self, source: str) -> GarbageCollection:
        """Return the part of a write side that behaves so."""

        def quantity(e: Estimate, scale: float) -> Quantity:
            return Quantity(
                value=e.value * scale, low=e.low * scale, high=e.high * scale,
                basis="fitted", source=source,
            )  # fmt: skip

        return GarbageCollection(
            on=quantity(self.on_s, 1e12), off=quantity(self.off_s, 1e12),
            factor=quantity(self.factor, 1.0),
        )  # fmt: skip

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"{self.count} episodes of {1e3 * self.on_s.value:.3g} ms, "
            f"{1e3 * self.off_s.value:.3g} ms apart, {self.factor.value:.2f} times slower"
        )


def episodes_of(capture: Capture) -> Episodes | None:
    """Find episodes in the writes of *capture*: from its requests, else from its series."""
    if capture.requests is not None:
        return episodes_of_requests(*_completed(capture.requests, "write"))
    if capture.series is not None:
        return _of_series(capture.series)
    return None


def _completed(requests: pl.LazyFrame, op: str) -> tuple[Floats, Floats]:
    """Completions and latencies of the requests of *op*, s, both float64[n], in that order."""
    frame = (
        requests.filter(
            (pl.col("op").cast(pl.String) == op)
            & (pl.col("latency_ns") > 0) & pl.col("complete_ns").is_not_null()
        )
        .select("complete_ns", "latency_ns")
        .sort("complete_ns")
        .collect()
    )  # fmt: skip
    done, latency = (frame[name].to_numpy().astype(float) / 1e9 for name in frame.columns)
    return done, latency


def suggestions(captures: Captures) -> list[str]:
    """Notes on the episodes in *captures*: they are not put into a fitted profile unasked.

    A steady-state fit already holds their mean slowness; with them in, it would count twice.
    """
    said = []
    for capture in captures.files:
        found = episodes_of(capture)
        if found is not None:
            on, off, factor = found.on_s, found.off_s, found.factor
            said.append(
                f"{capture.file.name}: writes stall in episodes ({found.text}): to simulate them, "
                f'set write.gc = {{ on = "{1e3 * on.value:.3g} ms", '
                f'off = "{1e3 * off.value:.3g} ms", factor = {factor.value:.3g} }} and divide '
                f"write.program by {_slowing(found):.3g}"
            )
    return said


def _slowing(found: Episodes) -> float:
    """Mean program time with episodes, in units of that without.

    A full buffer keeps the dies busy, so that the rate is averaged over time, not the time.
    """
    on, off = found.on_s.value, found.off_s.value
    return (on + off) / (off + on / found.factor.value)


def episodes_of_requests(complete_s: Floats, latency_s: Floats) -> Episodes | None:
    """Find episodes in requests: *complete_s* ascending, float64[n], and their latencies.

    Their rate is looked at first: a full buffer lowers it at once. Latency follows with a lag of
    what is outstanding, but shows the episodes of an open loop, whose rate is its own.
    """
    count = min(WINDOWS, len(complete_s) // PER_WINDOW)
    if count < MIN_WINDOWS:
        return None
    edges = np.linspace(complete_s[0], complete_s[-1], count + 1)
    where = np.clip(np.searchsorted(edges, complete_s, side="right") - 1, 0, count - 1)
    number = np.bincount(where, minlength=count)
    total = np.bincount(where, weights=latency_s, minlength=count)
    known = number > 0
    means = np.where(known, total / np.maximum(number, 1), np.nan)
    # A window in which nothing completed is as slow as its neighbours, and has a rate of half one.
    filled = np.interp(np.arange(count), np.flatnonzero(known), means[known])
    middle = (edges[:-1] + edges[1:]) / 2
    by_rate = find_episodes(middle, np.maximum(number, 0.5), kind="rate")
    began = np.sort(complete_s - latency_s)
    in_flight = np.searchsorted(began, middle) - np.searchsorted(complete_s, middle)
    if by_rate is not None and not _is_pressed(by_rate.slow, in_flight.astype(float)):
        return None  # the load paused, not the drive
    return by_rate or find_episodes(middle, filled, kind="latency")


def _is_pressed(slow: Bools, in_flight: Floats) -> bool:
    """True if as much is outstanding in slow windows as in fast ones.

    >>> _is_pressed(np.array([True, False]), np.array([8.0, 8.0]))
    True
    """
    return float(np.median(in_flight[slow])) > PRESSED * float(np.median(in_flight[~slow]))


def find_episodes(times_s: Floats, values: Floats, *, kind: Kind) -> Episodes | None:
    """Return the episodes of a series of means over windows of one length, or None.

    *times_s*, *values*: float64[n]. *kind*: whether large values are slow (latency) or small ones
    are (rate).
    """
    n = len(values)
    if n < MIN_WINDOWS or not np.all(np.isfinite(values)) or float(values.min()) <= 0:
        return None
    x = np.log(values) if kind == "latency" else -np.log(values)
    window = float(np.median(np.diff(times_s)))
    start = _split(x)
    if start is None or window <= 0:
        return None
    slow = _states(x, start)
    if slow.all() or not slow.any() or _distance(x, slow) < SEPARATION:
        return None
    return _described(times_s, values, x, slow, window)


def _of_series(series: pl.DataFrame) -> Episodes | None:
    """Of the window means of writes: latencies if there are any, else rates."""
    writes = series.filter(pl.col("op").cast(pl.String) == "write")
    for name, kind, _ in KINDS:
        chosen = writes.filter(pl.col("kind") == name).sort("time_s")
        if chosen.height >= MIN_WINDOWS:
            return find_episodes(
                chosen["time_s"].to_numpy().astype(float),
                chosen["value"].to_numpy().astype(float), kind=kind,
            )  # fmt: skip
    return None


# -- two states -----------------------------------------------------------------------------------


def _split(x: Floats) -> float | None:
    """Threshold with the largest variance between its two sides (Otsu 1979); None: constant."""
    ordered = np.sort(x)
    n = len(ordered)
    left = np.arange(1, n)
    sums = np.cumsum(ordered)
    low = sums[:-1] / left
    high = (sums[-1] - sums[:-1]) / (n - left)
    between = left * (n - left) * (high - low) ** 2
    if float(between.max()) <= 0:
        return None
    i = int(np.argmax(between))
    return float((ordered[i] + ordered[i + 1]) / 2)


def _states(x: Floats, threshold: float) -> Bools:
    """bool[n]: the slow state, by the two-level series with turns that lies nearest to *x*.

    A turn costs what `TURN` standard deviations do, so that noise makes none. Source: Killick,
    Fearnhead and Eckley 2012, penalised change points; two levels make it a shortest path.
    """
    slow: Bools = x > threshold
    for _ in range(PASSES):
        if slow.all() or not slow.any():
            break
        levels = np.array([x[~slow].mean(), x[slow].mean()])
        spread = max(float(np.abs(x - levels[slow.astype(int)]).std()), 1e-6)
        near = ((x[:, None] - levels) / spread) ** 2
        slow = _shortest(near.tolist())
    return slow


def _shortest(near: list[list[float]]) -> Bools:
    """bool[n]: the second column where a path of least cost runs through it."""
    a = b = 0.0
    came: list[tuple[bool, bool]] = []  # whether the best way to each column turned
    for to_a, to_b in near:
        turns = (b + TURN < a, a + TURN < b)
        a, b = min(a, b + TURN) + to_a, min(b, a + TURN) + to_b
        came.append(turns)
    out = np.zeros(len(near), bool)
    at = b < a
    for i in range(len(near) - 1, -1, -1):
        out[i] = at
        at ^= came[i][int(at)]
    return out


def _distance(x: Floats, slow: Bools) -> float:
    """Distance of the two states' medians in pooled standard deviations; 0: too near to matter."""
    a, b = x[~slow], x[slow]
    pooled = np.sqrt((a.var() * len(a) + b.var() * len(b)) / len(x))
    gap = float(np.median(b) - np.median(a))
    return gap / max(float(pooled), 1e-9) if gap > float(np.log(MIN_FACTOR)) else 0.0


# -- estimates ------------------------------------------------------------------------------------


def _described(
    times_s: Floats, values: Floats, x: Floats, slow: Bools, window: float
) -> Episodes | None:
    turns = np.diff(slow.astype(int))
    n_on, n_off = int(np.sum(turns == -1)), int(np.sum(turns == 1))
    if min(n_on, n_off) < MIN_EPISODES:
        return None
    in_on, in_off = int(slow.sum()), int((~slow).sum())
    if min(in_on / n_on, in_off / n_off) < MIN_LENGTH:
        return None
    missed = _missed(n_on / in_on + n_off / in_off)
    on = _length(in_on * window, n_on, missed, window)
    off = _length(in_off * window, n_off, missed, window)
    factor = _factor(values, slow)
    return Episodes(on, off, factor, n_on, window, slow, times_s, _distance(x, slow))


def _missed(turns_per_window: float) -> float:
    """Turns that there were, for each that windows show: short episodes fall between them.

    Of a chain in continuous time, seen once a window: chances to turn up and down sum to
    1 - exp(-(rates) window). Source: Kalbfleisch and Lawless 1985, two states.
    """
    chance = min(turns_per_window, 0.9)
    return float(-np.log1p(-chance) / chance)


def _length(total_s: float, ends: int, missed: float, window_s: float) -> Estimate:
    """Mean of exponential lengths of which *ends* ended within *total_s*, first and last cut off.

    Source: Epstein and Sobel 1953: 2 T / mean is chi-square with 2 n degrees of freedom. Half a
    window more either way, for where in a window its state turned.
    """
    from scipy.stats import chi2

    low, high = chi2.ppf(0.975, 2 * ends), chi2.ppf(0.025, 2 * ends)
    mean = total_s / ends / missed
    half = window_s / 2
    shortest, longest = mean * 2 * ends / float(low), mean * 2 * ends / float(high)
    return Estimate(mean, max(half, shortest - half), longest + half)


def _factor(values: Floats, slow: Bools) -> Estimate:
    """Ratio of the two mean levels, without the windows that a turn cuts or follows on.

    The interval from the scatter between episodes and between pauses, each one cluster. Source:
    Cochran, Sampling Techniques, section 6.3 (ratio of cluster totals), on a logarithmic scale.
    """
    turns = np.diff(slow.astype(int)) != 0
    inner = np.ones(len(values), bool)
    inner[:-1] &= ~turns
    inner[1:] &= ~turns
    inner[2:] &= ~turns[:-1]  # programs that a turn found in service end at their old pace
    number = np.concatenate([[0], np.cumsum(turns)])
    logs, variance = [], 0.0
    for state in (False, True):
        chosen = inner & (slow == state)
        if not chosen.any():
            chosen = slow == state
        level = float(values[chosen].mean())
        excess = np.bincount(number[chosen], weights=values[chosen] / level - 1)
        variance += float(np.sum((excess / chosen.sum()) ** 2))
        logs.append(float(np.log(level)))
    gap = abs(logs[1] - logs[0])
    half = 1.96 * float(np.sqrt(variance))
    return Estimate(float(np.exp(gap)), float(np.exp(gap - half)), float(np.exp(gap + half)))


_ENDING: Final = re.compile(r"(_(clat|slat|lat|iops|bw)(\.\d+)?)?\.[a-z]+(\.(gz|zst|xz))?$")
DRAWN: Final = 240
"""Most windows that a course is drawn in."""
LEAST_DRAWN: Final = 8
MOST_SERIES: Final = 24
"""Courses that a report shows."""


@dataclass(frozen=True)
class TimeSeries:
    """Means of one operation over windows of time."""

    name: str
    """Of the file."""
    op: str
    unit: Unit
    times_s: Floats
    """float64[n]: end of each window"""
    values: Floats
    """float64[n]"""
    episodes: tuple[tuple[float, float], ...] = ()
    """(start, end), s, of each episode in which the disk was slower"""
    step_s: float | None = None
    """When its rate stepped down for good: a buffer was full, or what was saved up was spent"""

    @property
    def label(self) -> str:
        """Name of the file without what all of them end in.

        >>> TimeSeries("rr_qd4_clat.1.log.gz", "read", "s", np.zeros(0), np.zeros(0)).label
        'rr_qd4'
        """
        return _ENDING.sub("", self.name)


def time_series_of(captures: Captures) -> tuple[TimeSeries, ...]:
    """Courses of the files that have any, latencies before rates; at most `MOST_COURSES`."""
    found: list[TimeSeries] = []
    for capture in captures.files:
        found += (
            _time_series_of_requests(capture)
            if capture.requests is not None
            else _time_series_of_windows(capture)
        )
    found.sort(key=lambda c: (c.unit != "s", c.op))
    return tuple(found[:MOST_SERIES])


def _time_series_of_windows(capture: Capture) -> list[TimeSeries]:
    if capture.series is None:
        return []
    found = []
    for op in ("read", "write"):
        rows = capture.series.filter(pl.col("op").cast(pl.String) == op)
        for name, kind, unit in KINDS:
            chosen = rows.filter(pl.col("kind") == name).sort("time_s")
            if chosen.height < LEAST_DRAWN:
                continue
            times = chosen["time_s"].to_numpy().astype(float)
            values = chosen["value"].to_numpy().astype(float)
            slow = find_episodes(times, values, kind=kind)
            step = find_buffer(times, values) if kind == "rate" else None
            at, means = _thinned(times, values)
            found.append(
                TimeSeries(
                    capture.file.name, op, unit, at, means, _spans(slow),
                    None if step is None else float(times[0]) + step.filled_s,
                )
            )  # fmt: skip
            break
    return found


def _time_series_of_requests(capture: Capture) -> list[TimeSeries]:
    """Mean latency in windows, of single requests."""
    if capture.requests is None:
        return []
    found = []
    for op in ("read", "write"):
        done, latency = _completed(capture.requests, op)
        if len(done) >= LEAST_DRAWN * LEAST_DRAWN:
            slow = episodes_of_requests(done, latency)
            at, means = _thinned(done, latency)
            found.append(TimeSeries(capture.file.name, op, "s", at, means, _spans(slow)))
    return found


def _thinned(times_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Ends and means of at most `DRAWN` windows of equal time; empty ones are left out."""
    count = min(DRAWN, max(LEAST_DRAWN, len(values) // 4)) if len(values) > DRAWN else 0
    if not count:
        return times_s, values
    edges = np.linspace(times_s[0], times_s[-1], count + 1)
    window = np.clip(np.searchsorted(edges, times_s, side="left") - 1, 0, count - 1)
    number = np.bincount(window, minlength=count)
    total = np.bincount(window, weights=values, minlength=count)
    full = number > 0
    return edges[1:][full], total[full] / number[full]


def _spans(found: Episodes | None) -> tuple[tuple[float, float], ...]:
    """Start and end of each slow stretch."""
    if found is None:
        return ()
    turns = np.flatnonzero(np.diff(np.concatenate([[0], found.slow.astype(int), [0]])))
    half = found.window_s / 2
    last = len(found.times_s) - 1
    return tuple(
        (float(found.times_s[a]) - half, float(found.times_s[min(b - 1, last)]) + half)
        for a, b in zip(turns[::2], turns[1::2], strict=True)
    )


def by_kind(time_series: Sequence[TimeSeries]) -> dict[tuple[str, Unit], list[TimeSeries]]:
    """Courses that one chart shows: of one operation, in one unit."""
    groups: dict[tuple[str, Unit], list[TimeSeries]] = {}
    for series in time_series:
        groups.setdefault((series.op, series.unit), []).append(series)
    return groups
