"""Mistakes whose number is free: a delay, a limit or both, weighed over all that they may be.

A disk on another host answers between 20 us and 60 ms later, and a limit may be set to anything. A
form with one number would be missed beside it, and one whose number is taken from the rows would
always fit. So the likelihood is the mean over the whole range (uniform in the logarithm): what may
be anything is worth less than what must be so (MacKay, Information Theory, Inference, and Learning
Algorithms, 2003, chapter 28).

Only delays are simulated, a few; between them times are interpolated. A limit
needs no simulation: the rate is the lower one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from nvmesim.array_types import Bools, Floats
from nvmesim.study.diagnosis.evidence import MeasuredRow, mean_size
from nvmesim.study.diagnosis.short_runs import Change
from nvmesim.units import PS_PER_S

DELAYS_US: Final = tuple(20.0 * 5.0**n for n in range(6))
"""Delays that are simulated, to 62.5 ms."""
COARSE_STEP: Final = 0.2
"""The same where requests and bytes both take their time: less than a prediction is unsure."""
PACE: Final = 5.0**0.2
"""From one delay that is weighed to the next."""
BETWEEN_US: Final = np.array([0.0, *(DELAYS_US[0] * PACE**n for n in range(26))])
"""Delays that are weighed, none first."""
LIMIT_STEP: Final = 0.05
"""Logarithm from one limit to the next: less than what their likelihood is wide (`RULED`)."""


@dataclass(frozen=True)
class Range:
    """What a mistake may be, as a table ``ranges`` of ``mistakes.toml``."""

    name: str
    """In words."""
    usual: float = 1.0
    """How common it is beside the other ranges and forms of its mistake."""
    where: tuple[str, ...] = ()
    """Properties of a `Server` that can have it."""
    of: str = ""
    """"reads" or "writes": only rows that do so suffer."""
    delay_us: tuple[float, float] | None = None
    """Least and most."""
    writes: tuple[float, ...] = (1.0,)
    """Times as long that writes may wait, and as few that pass: they are copied, or journalled."""
    iops: tuple[float, float] | None = None
    """Least and most rate that is let through, 1/s."""
    of_core: bool = False
    """True if that is in units of what a core's interrupts take."""
    bandwidth: tuple[float, float] | None = None
    """The same in B/s; with both a request takes the time of one and that of its bytes."""
    carries: tuple[float, ...] = ()
    """Bandwidths of which one rules, B/s."""

    def limits(self, core: float) -> Floats:
        """Return logarithms of rates and bandwidths let through (float64[k, 2]); infinite: all."""
        shift = math.log(core) if self.of_core else 0.0
        step = LIMIT_STEP if self.iops is None or self.bandwidth is None else COARSE_STEP
        rates, widths = (
            np.array([math.inf]) if ends is None
            else np.arange(math.log(ends[0]), math.log(ends[1]) + step, step)
            for ends in (self.iops, self.bandwidth)
        )  # fmt: skip
        widths = np.log(self.carries) if self.carries else widths
        return np.array([(rate + shift, width) for rate in rates for width in widths])


class Points(NamedTuple):
    """What a mistake may be, point by point."""

    ratios: Floats
    """float64[m, n]: log(measured / predicted) of each figure."""
    counts: Floats
    """float64[m, n]: 0 where the limit rules, 1 where drives and CPUs do."""
    waits_us: Floats
    """float64[m, 2]: delay of reads, and of writes."""
    limits: Floats
    """float64[m, 2]: logarithms of limits, of rates and of bandwidths."""


@dataclass(frozen=True)
class Grid:
    """Rows of a server as it is and with each delay."""

    curve: Floats
    """float64[1 + delays, n]: log(measured / predicted), with each of `BETWEEN_US`."""
    measured: Floats
    """float64[n]: logarithm of each figure."""
    size: Floats
    """float64[n]: the same of a row's bytes a request."""
    asked: Floats
    """float64[n]: the same of its requests in flight."""
    reads: Bools
    """bool[n]: the row only reads."""
    rate: Sequence[int]
    """Number of the figure that is the rate of each figure's row."""

    @classmethod
    def of(cls, rows: Sequence[MeasuredRow], simulated: Floats) -> Grid:
        """Return the grid of *rows*; *simulated* float64[1 + `DELAYS_US`, n]: what they leave."""
        figures = [(row, value) for row in rows for value in row.figures.values()]
        starts = np.cumsum([0, *(len(row.figures) for row in rows)])
        rate = [int(start) for row, start in zip(rows, starts, strict=False) for _ in row.figures]
        # times add up: that of a request (1 / rate, p99) is a line between two delays
        sign = np.where(np.equal(rate, np.arange(len(rate))), 1.0, -1.0)
        times = np.exp(sign * simulated).T
        between = [np.interp(BETWEEN_US[1:], [0.0, *DELAYS_US], time) for time in times]
        return cls(
            np.vstack([simulated[0], sign * np.log(between).T]),
            np.log([value for _, value in figures]),
            np.log([mean_size(row.workload) for row, _ in figures]),
            np.log([row.asked for row, _ in figures]),
            np.array([row.workload["read"] == 1 for row, _ in figures]),
            rate,
        )

    def points(self, one: Range, core: float = 1.0) -> Points:
        """Return all that *one* may be; *core* is 1/s of what a core's interrupts take."""
        delays, last = BETWEEN_US, len(BETWEEN_US) - 1
        low, high = one.delay_us or (0.0, 0.0)
        first = np.flatnonzero((delays >= low / PACE**0.5) & (delays <= high * PACE**0.5))
        slower = np.log(one.writes)
        later = first + np.round(slower / math.log(PACE)).astype(int)[:, None] * (first > 0)
        late = np.minimum(later, last).ravel()
        early = np.tile(first, len(slower))
        touched = np.ones(len(self.measured), bool)
        if one.of:
            touched = self.reads if one.of == "reads" else ~self.reads
        waits = np.where(self.reads, self.curve[early], self.curve[late])
        base = np.where(touched, waits, self.curve[0])[:, None]
        limits = one.limits(core)
        let = -np.logaddexp(-limits[:, :1], self.size - limits[:, 1:])
        fewer = np.repeat(slower, len(first))[:, None, None] * ~self.reads * (one.iops is not None)
        let = let[None] - fewer
        short = np.where(touched, self.measured[self.rate] - let, -math.inf)
        rules = short > base[..., self.rate]
        # a rate is the limit; a tail at least what is in flight over it (Little's law)
        is_rate = np.equal(self.rate, np.arange(len(self.measured)))
        under = np.where(is_rate, short, self.measured - self.asked + let)
        ratios = np.where(rules & (is_rate | (under < base)), under, base)
        n, shape = len(limits), (-1, len(self.measured))
        times_us = np.repeat(delays[np.stack([early, late], axis=1)], n, axis=0)
        counts = np.where(rules, 0.0, 1.0)
        return Points(ratios.reshape(shape), counts.reshape(shape), times_us,
                      np.tile(limits, (len(early), 1)))  # fmt: skip


def change_of(one: Range, waits_us: Floats, limits: Floats, drives: int, base_ps: float) -> Change:
    """Return what a point of *one* changes; *base_ps* is the base time of a write of a drive."""
    read_us, write_us = map(float, waits_us)
    reads, writes = one.of != "writes", one.of != "reads"
    change: dict[str, Any] = {}
    if reads and read_us:
        change["drives.*.delay"] = f"{read_us:.4g} us"
    further = write_us - (read_us if reads else 0.0)
    if writes and further > 0:
        base_us = base_ps / PS_PER_S * 1e6
        change["drives.*.profile.write.base"] = f"{base_us + further:.4g} us"
    rate, width = np.exp(limits)
    finite = {"iops": (rate, "/s"), "bandwidth": (width, " B/s")}
    told = {kind: f"{most:.0f}{unit}" for kind, (most, unit) in finite.items() if most < math.inf}
    if not one.of:
        return {**change, **({"workload.*.limits": told} if told else {})}
    keys = {
        "reads": ("commands", "read_bandwidth"),
        "writes": ("write.commands", "write_bandwidth"),
    }
    for key, kind in zip(keys[one.of], finite, strict=True):
        if kind in told:
            most, unit = finite[kind]
            change[f"drives.*.profile.{key}"] = f"{max(most / drives, 1):.0f}{unit}"
    return change


def range_of(table: Mapping[str, Any]) -> Range:
    """Return a table of ``ranges``; TypeError names a key that is none.

    >>> range_of({"name": "a limit", "iops": [1.0, 1e6]}).iops
    (1.0, 1000000.0)
    """
    lists: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in table.items()
    }
    return Range(**lists)
