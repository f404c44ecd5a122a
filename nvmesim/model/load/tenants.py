"""Load that is not steady: limits that a group's requests wait at, and bursts of open loops."""

from __future__ import annotations

import numpy as np

from nvmesim.network.builder import Bucket, Builder, Row, const
from nvmesim.network.distributions import exponential_table
from nvmesim.network.load import BurstRow
from nvmesim.network.network import SCALE_ONE, Kind
from nvmesim.scenario.resolved import Bursts, WorkloadGroup
from nvmesim.units import PS_PER_S


class Limiters:
    """Token buckets of the groups, one for each limit: all threads of a group share them."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._stations: dict[tuple[int, str], int] = {}

    def rows(self, index: int, group: WorkloadGroup, n_bytes: int) -> list[Row]:
        """Limits for a request of *n_bytes* of group *index*, the sustained ones first."""
        limits = group.limits
        if limits is None:
            return []
        rows = []
        for name, rate, takes, saved in (
            ("IOPS limit", limits.iops, 1, limits.burst_ps),
            ("bandwidth limit", limits.bytes_per_s, n_bytes, limits.burst_ps),
            ("IOPS peak", limits.peak_iops, 1, 0),
            ("bandwidth peak", limits.peak_bytes_per_s, n_bytes, 0),
        ):
            if rate is not None:
                station = self._station(index, f"{group.name} {name}", saved)
                rows.append(const(station, round(PS_PER_S * takes / rate)))
        return rows

    def _station(self, index: int, name: str, saved_ps: int) -> int:
        key = (index, name)
        if key not in self._stations:
            number = self._stations[key] = self._b.station(name, Kind.LIMIT, own=Bucket(saved_ps))
            self._b.report(name, "limit", number, group=index, resource="limit")
        return self._stations[key]


def burst_row(b: Builder, bursts: Bursts | None) -> BurstRow:
    """Distributions of the lengths of bursts and pauses, and the factors on gaps in each.

    Random lengths are exponential: Poisson arrivals so modulated are a Markov-modulated Poisson
    process of two states (Fischer and Meier-Hellstern, Performance Evaluation 18, 1993).
    """
    if bursts is None:
        return BurstRow()

    def lengths(mean_ps: float) -> int:
        table = exponential_table(mean_ps)
        return b.dist(np.full_like(table, round(mean_ps)) if bursts.fixed else table)

    quiet = bursts.quiet * bursts.peak
    slow = round(SCALE_ONE / quiet) if quiet * (1 << 12) > 1 else 0
    on, off = lengths(bursts.on_ps), lengths(bursts.off_ps)
    return BurstRow(on, off, round(SCALE_ONE / bursts.peak), slow)
