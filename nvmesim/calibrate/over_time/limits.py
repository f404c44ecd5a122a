"""A rate limit before a volume: what a cloud provider lets through, whatever the disk could do.

A token bucket serves one request each 1 / rate: in a depth sweep throughput is the smaller of depth
over the disk's own latency and the limit, with a sharp knee between them. Reads and writes share
it. Saved-up tokens let a run begin faster, until they are spent: one step down in its series.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nvmesim.calibrate.notes import named
from nvmesim.calibrate.over_time.buffers import Buffer, find_buffer, rates_of
from nvmesim.calibrate.points import Point
from nvmesim.capture.capture import Captures
from nvmesim.catalog.links import Link
from nvmesim.catalog.profile import Quantity, VolumeLimits
from nvmesim.units import format_size

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
PORT = 0.8
"""Share of a link's raw rate from which on reads and writes that meet are full at their port: data
sheets of SATA drives 0.92, SAS 0.93, PCIe 3.0 x4 0.84 to 0.9."""
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

    profile: VolumeLimits
    """As a profile has them"""
    notes: tuple[str, ...]

    def allowed(self, size: int) -> float:
        """Requests of *size* bytes per second that are let through."""
        iops, bandwidth = self.profile.iops, self.profile.bandwidth
        rates = [np.inf if iops is None else iops.value]
        if bandwidth is not None:
            rates.append(bandwidth.value / size)
        return float(min(rates))

    def but_of(self, link: Link) -> "FoundLimits | None":
        """Return them without a bandwidth that *link* carries at most: that is each direction's."""
        rate = self.profile.bandwidth
        is_port = rate is not None and rate.value > PORT * link.raw_bytes_per_s
        return None if is_port and self.profile.iops is None else self

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
        if _meets_others(c, ceilings, points) or _tells_alone(c, points)
        or any(_same(b, c) for b in bursts)
    ]  # fmt: skip
    return None if not limiting and not bursts else _found(limiting, bursts, points)


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
        groups.setdefault((round(20 * p.read_fraction), p.random, p.block_size), []).append(p)
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


def _meets_others(c: Ceiling, others: Sequence[Ceiling], points: Sequence[Point]) -> bool:
    """True if another operation or size stops where *c* does, and no row goes on beyond.

    Of a limit on requests no row does more requests, of one on bytes none more bytes: else the two
    meet by chance, as 16 KiB reads at 542 MB/s and 8 KiB writes at 264 (an AWS m5d).
    """
    mix, more = c.points[0].read_fraction, 1 + 2 * FLAT
    is_count = not any(p.iops > more * c.iops for p in points)
    is_bytes = not any(p.iops * p.block_size > more * c.iops * c.size for p in points)
    for other in others:
        same_iops = is_count and abs(other.iops / c.iops - 1) < ALIKE
        rate = other.iops * other.size
        same_rate = is_bytes and abs(rate / (c.iops * c.size) - 1) < ALIKE
        if abs(other.points[0].read_fraction - mix) > 0.5 and (same_iops or same_rate):
            return True
        if other.size != c.size and same_iops:
            return True
    return False


def _tells_alone(c: Ceiling, points: Sequence[Point]) -> bool:
    """True if no disk does what *c* does, reads as flat with as sharp a knee, and no row exceeds.

    A row exceeds it that does more requests and more bytes a second.
    """
    rates, more = [p.iops for p in c.points], 1 + 2 * FLAT
    is_flat = len(rates) >= LEAST and max(rates) - min(rates) < 2 * EXACT * c.iops
    return (
        c.is_sharp and is_flat and c.size <= LONE and c.points[0].read_fraction > 0
        and not any(p.iops > more * c.iops and p.iops * p.block_size > more * c.iops * c.size
                    for p in points)
    )  # fmt: skip


def _same(burst: Burst, c: Ceiling) -> bool:
    """True if a run stepped down to this ceiling."""
    return burst.size == c.size and abs(burst.iops / c.iops - 1) < 2 * ALIKE


def _found(
    limiting: Sequence[Ceiling], bursts: Sequence[Burst], points: Sequence[Point]
) -> FoundLimits:
    levels = [(c.iops, c.size) for c in limiting] + [(b.iops, b.size) for b in bursts]
    top = max(iops for iops, _ in levels)
    wide = max(iops * size for iops, size in levels)
    by_count = [i for i, (iops, _) in enumerate(levels) if iops > (1 - ALIKE) * top]
    by_bytes = [i for i, (iops, n) in enumerate(levels) if iops * n > (1 - ALIKE) * wide]
    lone = len({size for _, size in levels}) == 1
    if lone and any(p.iops > (1 + 2 * FLAT) * top for p in points):
        by_count, lone = [], False  # rows of another size tell
    elif set(by_count) <= set(by_bytes) and not lone:
        by_count = []  # all move the same bytes
    elif set(by_bytes) <= set(by_count):
        by_bytes = []
    source = ", ".join(dict.fromkeys([p.source for c in limiting for p in c.points if p.source]))
    source = source or ", ".join(b.name for b in bursts) or "points"
    iops = _quantity([levels[i][0] for i in by_count], source)
    bandwidth = _quantity([levels[i][0] * levels[i][1] for i in by_bytes], source)
    burst = None
    if (saved := max(bursts, key=lambda b: b.saved_s, default=None)) is not None:
        scale, step = 1e12 / saved.step.drain, saved.step
        burst = Quantity(
            value=step.size * scale, low=step.low * scale, high=step.high * scale,
            basis="fitted", source=f"{saved.name}: the step down in its rate",
        )  # fmt: skip
    notes = [_limit_sentence(iops, bandwidth, limiting, bursts)]
    notes += [_burst_sentence(b) for b in bursts]
    if lone:
        size = levels[0][1]
        notes.append(
            f"captured at {format_size(size)} alone, a limit on requests and one on bytes "
            f"({top * size / 1e6:.4g} MB/s) look alike: taken as requests; a capture at "
            "another size would decide"
        )
    limits = VolumeLimits(iops=iops, bandwidth=bandwidth, burst=burst)
    return FoundLimits(limits, tuple(notes))


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
