"""Limits of a load: whether they hold, by how much they are missed, how probable it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nvmesim.predict.uncertainty.goal import probability as probability
from nvmesim.units import format_iops, format_time


def short_by(value: float, limit: float) -> str:
    """Return how far *value* is from *limit*, never 0.0 % of it.

    >>> short_by(2.5e6, 3e6), short_by(2.9999e6, 3e6), short_by(700.0, 500.0)
    ('17 %', '0.0033 %', '40 %')
    """
    if not limit:
        return f"{value:g}"
    percent = 100 * abs(value / limit - 1)
    return f"{percent:.0f} %" if percent >= 9.5 else f"{percent:.2g} %"


@dataclass(frozen=True)
class LimitMiss:
    """A limit that a load breaks."""

    what: str
    value: float
    limit: float
    sure: bool = True
    """False: only the end of its interval breaks it."""

    @property
    def excess(self) -> float:
        """How far beyond the limit, as a share of it."""
        return abs(self.value / self.limit - 1)

    def words(self) -> str:
        """A missed limit, and by how much.

        >>> LimitMiss("p99", 0.00135, 0.001).words()
        'p99 is 1.35 ms: 35 % above 1 ms'
        >>> LimitMiss("p99", 0.0135, 0.001).words()
        'p99 is 13.5 ms: 14 times 1 ms'
        >>> LimitMiss("iops", 2.1e6, 3e6).words()
        '2.1M IOPS at most: 30 % short of 3M IOPS'
        """
        if self.what == "iops":
            most, asked = format_iops(self.value), format_iops(self.limit)
            if not self.sure:
                return f"{asked} are reached but not for sure: their interval begins at {most}"
            return f"{most} at most: {short_by(self.value, self.limit)} short of {asked}"
        if math.isinf(self.value):
            return f"{self.what} grows without end: the load has no steady state"
        if math.isnan(self.value):
            return f"{self.what} is not known: too few requests lie beyond it, or in few episodes"
        shown = (lambda v: f"{100 * v:.3g} %") if self.what == "cpu" else format_time
        name = "CPU" if self.what == "cpu" else self.what
        if not self.sure:
            return f"{name} is within {shown(self.limit)} but not for sure: its interval ends at " \
                   f"{shown(self.value)}"  # fmt: skip
        if self.value >= 3 * self.limit:
            return f"{name} is {shown(self.value)}: {self.value / self.limit:.2g} times " \
                   f"{shown(self.limit)}"  # fmt: skip
        far = short_by(self.value, self.limit)
        return f"{name} is {shown(self.value)}: {far} above {shown(self.limit)}"


@dataclass(frozen=True)
class LoadLimits:
    """Limits: seconds, and the share of logical CPUs; None: no such limit."""

    p99: float | None = None
    p99_9: float | None = None
    mean: float | None = None
    cpu: float | None = None

    def named(self) -> dict[str, float]:
        """Name -> limit of those that are set, latencies first."""
        every = {"p99": self.p99, "p99.9": self.p99_9, "mean": self.mean, "cpu": self.cpu}
        return {name: limit for name, limit in every.items() if limit is not None}

    def worst(self, values: Mapping[str, float]) -> tuple[float, LimitMiss | None]:
        """How hard *values* press on the limits (1: just met), and the one that they break most.

        >>> LoadLimits(p99=1e-3).worst({"p99": 0.5e-3})
        (0.5, None)
        """
        pressure, name = 0.0, ""
        for known, limit in self.named().items():
            share = values[known] / limit
            if math.isnan(share):
                return math.inf, LimitMiss(known, math.nan, limit)
            if share > pressure:
                pressure, name = share, known
        if pressure <= 1:
            return pressure, None
        return pressure, LimitMiss(name, values[name], self.named()[name])
