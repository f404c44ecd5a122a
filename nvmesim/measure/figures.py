"""Figures of a run as plain values: intervals, distributions, stations, members and CPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
Key = TypeVar("Key", float, str)


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def around(value: float, half: float, least: float = -math.inf) -> Interval:
        """Return *value* and as much as *half* on both sides, but no less than *least*."""
        return Interval(value, max(least, value - half), value + half)

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def to_json(self) -> dict[str, float]:
        """Return {"value", "low", "high"}."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Distribution:
    """A latency distribution, s; a percentile with too few samples beyond it is None."""

    mean: float
    max: float
    percentiles: Mapping[float, float | None]
    intervals: Mapping[str, tuple[float, float]]
    """"mean", "p50", ... -> (low, high)."""
    bin_s: npt.NDArray[np.float64]
    """float64[n]: middles of the non-empty bins."""
    bin_count: npt.NDArray[np.int64]
    """int64[n]"""

    def in_order(self) -> Distribution:
        """Return it with percentiles, and both ends of their intervals, that rise.

        Each percentile has a doubt of its own, but in no run does the p90 lie below the p50. So the
        low end of p50 holds p90 as well: where p90's own is lower, p50's leaves out only what it
        leaves out of p50, 2.5 %. High ends are only ever raised. No interval holds less for it.
        """
        names = [name for q in sorted(self.percentiles) if (name := f"p{q:g}") in self.intervals]
        low, high = (rising({n: self.intervals[n][side] for n in names}) for side in (0, 1))
        ends = {n: (low[n] or 0.0, high[n] or 0.0) for n in names}
        known = rising({q: self.percentiles[q] for q in sorted(self.percentiles)})
        return replace(self, percentiles=known, intervals={**self.intervals, **ends})

    def to_json(self) -> dict[str, float | None]:
        """Return mean, p50, ..., max."""
        named = {f"p{p:g}": v for p, v in self.percentiles.items()}
        return {"mean": self.mean, **named, "max": self.max}


def rising(values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """Return *values* by the least change upwards that makes them rise; None stays.

    >>> rising({50.0: 2.0, 90.0: 1.0, 99.0: None, 99.9: 3.0})
    {50.0: 2.0, 90.0: 2.0, 99.0: None, 99.9: 3.0}
    """
    most, found = -math.inf, {}
    for key, value in values.items():
        most = most if value is None else max(most, value)
        found[key] = None if value is None else most
    return found


@dataclass(frozen=True)
class OpStats:
    """Results of reads, writes or both."""

    iops: Interval
    bytes_per_s: Interval
    count: int
    latency: Distribution
    """From submission by the application to completion seen by it."""
    clat: Distribution
    """fio's completion latency: without the submission itself."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of the interface."""
        return {
            "iops": self.iops.to_json(),
            "bytes_per_s": self.bytes_per_s.to_json(),
            "latency_s": self.latency.to_json(),
            "clat_s": self.clat.to_json(),
            "latency_ci_s": {k: list(v) for k, v in self.latency.intervals.items()},
        }


@dataclass(frozen=True)
class MemberStats:
    """Results of one drive, per volume request (or per request of any target for JBOD)."""

    name: str
    reads_per_request: float
    writes_per_request: float
    read_bios_per_request: float
    write_bios_per_request: float
    read_bytes_per_request: float
    write_bytes_per_request: float
    utilization: float


@dataclass(frozen=True)
class Rebuild:
    """A rebuild beside the load: how fast, and how long for the whole member at this load."""

    volume: str
    drive: str | None
    """Being restored; None: a check of all members."""
    bytes_per_s: float
    hours: float
    """inf if it does not advance (null in the JSON)."""


@dataclass(frozen=True)
class StationStats:
    """One station along the path."""

    name: str
    kind: str
    servers: int
    utilization: float
    wait_mean_s: float
    service_mean_s: float
    visits_per_request: float
    resource: str = ""
    drive: int | None = None
    socket: int | None = None
    adapter: int | None = None
    direction: str | None = None
    """Of a link: "up" towards the memory, "down" towards the drive."""
    ends: tuple[int, int] | None = None
    """Of a way between sockets: (from, to)."""


@dataclass(frozen=True)
class SocketCpu:
    """CPU of one socket."""

    name: str
    logical_utilization: float
    physical_utilization: float
    ghz: float
    cores: int
    threads_per_core: int


@dataclass(frozen=True)
class Cpu:
    """CPU of the whole server."""

    logical_utilization: float
    """Utilization as the operating system would show it."""
    physical_utilization: float
    """Share of the work the cores could do, SMT yield counted."""
    cycles_per_io: float
    ghz_per_miops: float
    sockets: tuple[SocketCpu, ...]


@dataclass(frozen=True)
class Relief:
    """A change, simulated again with the same random numbers."""

    change: str
    iops: Interval
    gain: float
    """Relative: 0.1 is 10 % more."""
    gain_low: float
    gain_high: float
    p_better: float | None = None
    """Probability that it does more than what is; None: not asked."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """The change as keys and values of a scenario file; empty: no key says it exactly."""
    command: str = ""
    """What does it on the server itself, where one command does."""
    watts: float | None = None
    """What it draws more, by the parts' data sheets; None: not known."""
    price: float | None = None
    """What it costs more, by the prices in the parts' profiles; None: not known."""
    latency: float | None = None
    """Mean latency of a closed loop with it, over that without (Little's law); None: open."""
