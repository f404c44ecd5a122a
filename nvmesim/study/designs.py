"""What every search over designs shares: their names, and limits that they are held against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.units import format_iops, format_time

_BY_VALUE: Final = ("raid", "cpu", "profile", "engine", "stack", "layout")
"""Last words of keys whose values say what they are of."""


def design_name(values: Mapping[str, Any]) -> str:
    """Return the values of a design in words.

    >>> design_name({"volume.raid": "raid5", "drives.0.count": 8})
    'raid5, 8 drives'
    >>> design_name({"drives.*.count": 6, "server.interconnect.links": 2})
    '6 drives each, links 2'
    """
    words = []
    for (key, value), short in zip(values.items(), short_keys(values), strict=True):
        plain = [p for p in key.split(".") if not p.isdigit() and p != "*"]
        if plain == ["drives", "count"] and short == "count":
            words.append(f"{value} drives each" if "*" in key else f"{value} drives")
        else:
            words.append(str(value) if short in _BY_VALUE else f"{short} {value}")
    return ", ".join(words)


def short_keys(keys: Iterable[str]) -> list[str]:
    """Return the last word of each key, or the whole where two share it."""
    named = list(keys)
    last = [key.rpartition(".")[2] for key in named]
    return [word if last.count(word) == 1 else key for word, key in zip(last, named, strict=True)]


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
        name = "CPU" if self.what == "cpu" else self.what
        value, limit = (
            f"{100 * v:.3g} %" if self.what == "cpu" else format_time(v)
            for v in (self.value, self.limit)
        )
        if not self.sure:
            return f"{name} is within {limit} but not for sure: its interval ends at {value}"
        if self.value >= 3 * self.limit:
            return f"{name} is {value}: {self.value / self.limit:.2g} times {limit}"
        return f"{name} is {value}: {short_by(self.value, self.limit)} above {limit}"


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
        pressure, worst = 0.0, None
        for name, limit in self.named().items():
            share = values[name] / limit
            if math.isnan(share):
                return math.inf, LimitMiss(name, math.nan, limit)
            if share > pressure:
                pressure, worst = share, LimitMiss(name, values[name], limit)
        return pressure, worst if pressure > 1 else None
