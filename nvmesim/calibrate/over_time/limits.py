"""Steps down in a rate: a write buffer that fills, and a rate limit before a volume.

A long write runs at the pace of the buffer until it is full, and then at that of the drain: one
step down in bytes per second. What was written until the step, less what drained meanwhile, is the
buffer. A step that is not there, or one of many (episodes), is not a buffer.

A limit is what a cloud provider lets through, whatever the disk could do: a token bucket serves one
request each 1 / rate. In a depth sweep throughput is then the smaller of two lines, depth over the
disk's own latency and the limit, with a sharp knee between them; above it latency is depth / limit.
Reads and writes share it. Saved-up tokens let a run begin faster, until they are spent: one step
down in its series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.calibrate.notes import named
from nvmesim.calibrate.points import Point
from nvmesim.capture.capture import Capture, Captures
from nvmesim.catalog.profile import Quantity, VolumeLimits
from nvmesim.units import format_size

WINDOWS = 200
"""Windows that single requests are summed in."""
LEAST_WINDOWS = 5
"""Windows on either side of the step, at least."""
STEP = 1.3
"""Rate before the step in units of that after it, at least."""
START = 0.5
"""Windows that a disk may take to begin to drain: what is in program still holds its place."""
STEADY = 0.3
"""Coefficient of variation of the rate after the step, at most: else it is not a steady drain."""


@dataclass(frozen=True)
class Buffer:
    """A write buffer as a capture shows it."""

    size: float
    """Bytes"""
    low: float
    high: float
    """95 % interval of the size"""
    drain: float
    """Bytes per second once it is full"""
    filled_s: float
    """When it was full"""

    def quantity(self, source: str) -> Quantity:
        """Return the size as a profile has it."""
        return Quantity(
            value=self.size, low=self.low, high=self.high, basis="fitted", source=source
        )

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"a write buffer of about {format_size(round(self.size / 2**20) * 2**20)} "
            f"({self.low / 1e9:.3g} to {self.high / 1e9:.3g} GB) was full after "
            f"{self.filled_s:.3g} s, and drains at {self.drain / 1e9:.3g} GB/s"
        )


def find_buffer(times_s: Floats, bytes_per_s: Floats) -> Buffer | None:
    """Return the buffer that filled in a series of rates over windows of one length, or None.

    *times_s*: ends of the windows; both float64[n]. The step is where two constants fit best
    (least squares); the interval is of how surely the drain is known, one window's
    scatter, and when the drain began. That is only bounded (`START`), so the interval holds more
    often than 95 %.
    """
    n = len(times_s)
    if n < 2 * LEAST_WINDOWS:
        return None
    total = np.cumsum(bytes_per_s)
    left = np.arange(LEAST_WINDOWS, n - LEAST_WINDOWS + 1)
    first = total[left - 1] / left
    second = (total[-1] - total[left - 1]) / (n - left)
    between = left * (n - left) * (first - second) ** 2
    i = int(left[int(np.argmax(between))])
    fast, slow = bytes_per_s[:i], bytes_per_s[i:]
    high, low = float(fast.mean()), float(slow.mean())
    if low <= 0 or high < STEP * low or float(slow.std()) > STEADY * low:
        return None
    if float(fast.min()) < float(np.quantile(slow, 0.75)):  # it came back: episodes, not a buffer
        return None
    window = float(np.median(np.diff(times_s)))
    # What went in is counted and not estimated; what drained meanwhile is known as well as the
    # drain, and the window of the step is in part of either.
    ahead = float(np.sum(bytes_per_s[: i + 1] - low)) * window
    filled = ahead / (high - low)
    drained = _error_of_mean(slow) * filled
    begun = float(slow.std()) * window
    half = 1.96 * float(np.hypot(drained, begun))
    late = START * low * window  # what was not drained before the drain began: only more can fit
    return Buffer(ahead, max(0.0, ahead - half), ahead + half + late, low, filled)


def _error_of_mean(values: Floats) -> float:
    """Standard error of the mean of windows that may follow each other.

    From means of batches. Source: Law, Simulation Modeling and Analysis, section 9.5.3.
    """
    batches = max(2, min(20, len(values) // 5))
    means = [float(part.mean()) for part in np.array_split(values, batches)]
    return float(np.std(means, ddof=1) / np.sqrt(batches))


def buffer_of(capture: Capture) -> Buffer | None:
    """The buffer that filled during the writes of *capture*: from its requests, or its series."""
    found = rates_of(capture)
    return None if found is None else find_buffer(*found)


def buffers_of(captures: Captures) -> tuple[Buffer | None, dict[str, str]]:
    """The largest buffer that filled in *captures*, and what to say of each file that has one."""
    found: list[Buffer] = []
    said: dict[str, str] = {}
    for capture in captures.files:
        buffer = buffer_of(capture)
        if buffer is not None:
            found.append(buffer)
            name = capture.file.name
            said[name] = (
                f"{name}: {buffer.text}; averages of the whole run describe neither state, so add "
                "a capture of the time after it"
            )
    return max(found, key=lambda b: b.size, default=None), said


def rates_of(capture: Capture, ops: Sequence[str] = ("write",)) -> tuple[Floats, Floats] | None:
    """Ends of windows, s, and bytes moved per second by *ops* in each; None: not known."""
    chosen = pl.col("op").cast(pl.String).is_in(list(ops))
    if capture.requests is not None:
        frame = (
            capture.requests.filter(
                chosen & pl.col("complete_ns").is_not_null() & (pl.col("bytes") > 0)
            )
            .select("complete_ns", "bytes")
            .sort("complete_ns")
            .collect()
        )
        if frame.height < 20 * WINDOWS:
            return None
        done = frame["complete_ns"].to_numpy().astype(float) / 1e9
        edges = np.linspace(float(done[0]), float(done[-1]), WINDOWS + 1)
        moved, _ = np.histogram(done, edges, weights=frame["bytes"].to_numpy())
        return edges[1:], moved / np.diff(edges)
    return None if capture.series is None else _of_series(capture, capture.series.filter(chosen))


def _of_series(capture: Capture, series: pl.DataFrame) -> tuple[Floats, Floats] | None:
    """Of windows as the tool wrote them; several operations of one window are summed."""
    for kind in ("bytes_per_s", "iops"):
        found = (
            series.filter(pl.col("kind") == kind)
            .group_by("time_s", maintain_order=True).agg(pl.col("value").sum())
            .sort("time_s")
        )  # fmt: skip
        if found.height >= 2 * LEAST_WINDOWS:
            rate = found["value"].to_numpy().astype(float)
            if kind == "iops":
                sizes = [m.conditions.block_size for m in capture.measurements]
                if not sizes or not isinstance(sizes[0], int):
                    return None
                rate = rate * sizes[0]
            return found["time_s"].to_numpy().astype(float), rate
    return None


FLAT = 0.02
"""Points at a limit agree within this."""
EXACT = 0.005
"""Relative error of a rate, run to run, at least: what the ends of a run leave."""
SHARP = 0.04
"""A sweep with a limit lies so near to the smaller of its two lines; a bank of dies at its own
ceiling is 7 to 30 % below them around the knee (980 PRO at depths 32 to 128)."""
ALIKE = 0.03
"""Ceilings of different loads that agree within this are one."""
LONE = 16 << 10
"""Largest size at which one operation alone tells: a disk's own bandwidth is as flat."""
LEAST = 3
"""Depths at the limit, if one operation alone is to tell."""


@dataclass(frozen=True)
class Ceiling:
    """Depths of one load at which throughput no longer grows."""

    points: tuple[Point, ...]
    """Those at the ceiling."""
    is_sharp: bool

    @property
    def iops(self) -> float:
        """Requests per second."""
        return float(np.mean([p.iops for p in self.points]))

    @property
    def size(self) -> int:
        """Bytes of a request."""
        return self.points[0].block_size

    @property
    def spread(self) -> float:
        """Largest less smallest of them, relative."""
        rates = [p.iops for p in self.points]
        return (max(rates) - min(rates)) / self.iops


@dataclass(frozen=True)
class Burst:
    """A run that began above its limit, with what had been saved up."""

    name: str
    iops: float
    """Requests per second once it is spent."""
    size: int
    step: Buffer
    """In bytes; its size is what had been saved up."""
    reads: bool

    @property
    def saved_s(self) -> float:
        """Saved-up credit, as time at the limit."""
        return self.step.size / self.step.drain


@dataclass(frozen=True)
class FoundLimits:
    """The limits of a volume, and what to say of them."""

    iops: Quantity | None
    bandwidth: Quantity | None
    burst: Quantity | None
    notes: tuple[str, ...]

    @property
    def profile(self) -> VolumeLimits:
        """As a profile has them."""
        return VolumeLimits(iops=self.iops, bandwidth=self.bandwidth, burst=self.burst)

    def allowed(self, size: int) -> float:
        """Requests of *size* bytes per second that are let through."""
        rates = [np.inf if self.iops is None else self.iops.value]
        if self.bandwidth is not None:
            rates.append(self.bandwidth.value / size)
        return float(min(rates))

    def below(self, points: Sequence[Point]) -> list[Point]:
        """Points that measure the disk; of a load that has none, the shallowest at the limit."""
        free = [p for p in points if p.iops < (1 - 2 * FLAT) * self.allowed(p.block_size)]
        for group in _groups(points):
            if not any(p in free for p in group):
                free.append(min(group, key=lambda p: p.outstanding))
        return [p for p in points if p in free]

    def stops(self, points: Sequence[Point], size: int) -> bool:
        """True if writes of *size* in *points* are at the limit where they are deepest."""
        writes = [p for p in points if p.read_fraction == 0 and p.block_size == size]
        deepest = max(writes, key=lambda p: p.outstanding, default=None)
        return deepest is not None and deepest.iops >= (1 - 2 * FLAT) * self.allowed(size)


def find_limits(points: Sequence[Point], bursts: Sequence[Burst] = ()) -> FoundLimits | None:
    """Return the limits that *points* and *bursts* show, or None.

    One load's ceiling may be the disk's own. It is a limit if another operation meets the same, or
    another size the same requests per second, or if small reads meet it at three depths with a
    sharp knee and nothing exceeds it; or if reads step down to it. Writes alone do not tell: what a
    buffer drains at is as flat, with as sharp a knee.
    """
    ceilings = [c for g in _groups(points) if (c := _ceiling(g)) is not None]
    bursts = [b for b in bursts if b.reads or any(_same(b, c) for c in ceilings)]
    limiting = [
        c for c in ceilings
        if _meets_others(c, ceilings) or (_tells_alone(c) and not _is_exceeded(c, points))
        or any(_same(b, c) for b in bursts)
    ]  # fmt: skip
    if not limiting and not bursts:
        return None
    return _found(limiting, bursts)


def bursts_of(captures: Captures) -> list[Burst]:
    """Runs of *captures* whose whole rate, reads and writes, steps down once."""
    found = []
    for capture in captures.files:
        sizes = [m.conditions.block_size for m in capture.measurements]
        series = rates_of(capture, ("read", "write"))
        step = None if series is None else find_buffer(*series)
        size = sizes[0] if sizes and all(s == sizes[0] for s in sizes) else None
        if step is None or not isinstance(size, int):
            continue
        reads = rates_of(capture, ("read",)) is not None
        found.append(Burst(capture.file.name, step.drain / size, size, step, reads))
    return found


def _groups(points: Sequence[Point]) -> list[list[Point]]:
    """Points of one mix, pattern and size together, shallow first."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for p in sorted(points, key=lambda p: p.outstanding):
        key = (round(20 * p.read_fraction), p.random, p.block_size)
        groups.setdefault(key, []).append(p)
    return list(groups.values())


def _ceiling(group: Sequence[Point]) -> Ceiling | None:
    """The depths of *group* that all do the same, twice as many outstanding or not."""
    free = [p for p in group if not p.is_cpu_bound]
    if not free:
        return None
    top = max(p.iops for p in free)
    flat = tuple(p for p in free if p.iops >= (1 - FLAT) * top)
    if flat[-1] is not free[-1] or flat[-1].outstanding < 2 * flat[0].outstanding:
        return None
    found = Ceiling(flat, False)
    return replace(found, is_sharp=_is_sharp(free, found))


def _is_sharp(group: Sequence[Point], ceiling: Ceiling) -> bool:
    """True if all depths do the smaller of depth / latency of the shallowest and the ceiling."""
    first = group[0]
    if first.mean_s is None or first in ceiling.points:
        return False
    slope = first.iops / first.outstanding
    lines = [min(p.outstanding * slope, ceiling.iops) for p in group]
    off = [abs(p.iops / line - 1) for p, line in zip(group, lines, strict=True)]
    knee = ceiling.iops / slope
    return max(off) < SHARP and ceiling.points[0].outstanding < 2.5 * knee


def _meets_others(c: Ceiling, others: Sequence[Ceiling]) -> bool:
    """True if another operation or size stops where *c* does."""
    mix = c.points[0].read_fraction
    for other in others:
        same_iops = abs(other.iops / c.iops - 1) < ALIKE
        same_rate = abs(other.iops * other.size / (c.iops * c.size) - 1) < ALIKE
        if abs(other.points[0].read_fraction - mix) > 0.5 and (same_iops or same_rate):
            return True
        if other.size != c.size and same_iops:
            return True
    return False


def _tells_alone(c: Ceiling) -> bool:
    """True if no disk does what *c* does: reads as flat, with as sharp a knee."""
    alone = c.is_sharp and len(c.points) >= LEAST and c.spread < 2 * EXACT
    return alone and c.size <= LONE and c.points[0].read_fraction > 0


def _is_exceeded(c: Ceiling, points: Sequence[Point]) -> bool:
    """True if a row does more requests and more bytes a second: neither kind of limit held it."""
    more = 1 + 2 * FLAT
    return any(
        p.iops > more * c.iops and p.iops * p.block_size > more * c.iops * c.size for p in points
    )


def _same(burst: Burst, c: Ceiling) -> bool:
    """True if a run stepped down to this ceiling."""
    return burst.size == c.size and abs(burst.iops / c.iops - 1) < 2 * ALIKE


def _found(limiting: Sequence[Ceiling], bursts: Sequence[Burst]) -> FoundLimits:
    levels = [(c.iops, c.size) for c in limiting] + [(b.iops, b.size) for b in bursts]
    top = max(iops for iops, _ in levels)
    wide = max(iops * size for iops, size in levels)
    by_count = [i for i, (iops, _) in enumerate(levels) if iops > (1 - ALIKE) * top]
    by_bytes = [i for i, (iops, n) in enumerate(levels) if iops * n > (1 - ALIKE) * wide]
    lone = len({size for _, size in levels}) == 1
    if set(by_count) <= set(by_bytes) and not lone:
        by_count = []  # all move the same bytes
    elif set(by_bytes) <= set(by_count):
        by_bytes = []
    source = ", ".join(dict.fromkeys([p.source for c in limiting for p in c.points if p.source]))
    source = source or ", ".join(b.name for b in bursts) or "points"
    rates = {
        "iops": _quantity([levels[i][0] for i in by_count], source),
        "bandwidth": _quantity([levels[i][0] * levels[i][1] for i in by_bytes], source),
    }
    saved = max(bursts, key=lambda b: b.saved_s, default=None)
    burst = None if saved is None else _burst(saved)
    notes = [_limit_sentence(rates["iops"], rates["bandwidth"], limiting, bursts)]
    notes += [_burst_sentence(b) for b in bursts]
    if lone:
        size = levels[0][1]
        notes.append(
            f"captured at {format_size(size)} alone, a limit on requests and one on bytes "
            f"({top * size / 1e6:.4g} MB/s) look alike: taken as requests; a capture at "
            "another size would decide"
        )
    return FoundLimits(rates["iops"], rates["bandwidth"], burst, tuple(notes))


def _quantity(values: Sequence[float], source: str) -> Quantity | None:
    """Mean of *values* with a 95 % interval of their scatter, at least that of one run's ends."""
    if not values:
        return None
    mean = float(np.mean(values))
    scatter = float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    half = 1.96 * max(scatter, EXACT * mean / np.sqrt(len(values)))
    return Quantity(
        value=mean, low=mean - half, high=mean + half, basis="fitted",
        source=f"throughput that does not grow with depth: {source}",
    )  # fmt: skip


def _burst(b: Burst) -> Quantity:
    scale = 1e12 / b.step.drain
    return Quantity(
        value=b.step.size * scale, low=b.step.low * scale, high=b.step.high * scale,
        basis="fitted", source=f"{b.name}: the step down in its rate",
    )  # fmt: skip


def _limit_sentence(
    iops: Quantity | None, bandwidth: Quantity | None, limiting: Sequence[Ceiling],
    bursts: Sequence[Burst],
) -> str:  # fmt: skip
    rates = [f"{float(f'{iops.value:.4g}'):,.0f} requests/s"] if iops else []
    rates += [f"{bandwidth.value / 1e6:,.3g} MB/s"] if bandwidth else []
    loads = [f"{c.points[0].op} {format_size(c.size)}" for c in limiting]
    depths = [p.outstanding for c in limiting for p in c.points]
    seen = (
        f"{named(loads)} stay at it from depth {min(depths)} to {max(depths)}, and latency "
        "is depth / limit"
        if limiting
        else f"{bursts[0].name} steps down to it"
    )
    return (
        f"a rate limit of {' and '.join(rates)}: {seen}. It is the allowance of the volume, not "
        "what the disk behind it can do: more depth buys only latency, a larger allowance buys "
        "throughput. Fitted as limits; the disk from the points below it"
    )


def _burst_sentence(b: Burst) -> str:
    first = b.step.size / b.step.filled_s + b.step.drain
    return (
        f"{b.name}: {first / b.size:,.0f} requests/s for {b.step.filled_s:.3g} s, then "
        f"{b.iops:,.0f}: saved-up allowance of {b.step.size / b.size:,.0f} requests "
        f"({b.saved_s:.3g} s at the limit) was spent; predictions describe the time after it, "
        "averages of this whole run neither time"
    )
