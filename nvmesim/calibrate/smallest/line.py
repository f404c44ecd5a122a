"""The smallest drive: a latency and a bandwidth, and a cap on requests where rows show one.

Closed forms tell which of the three the rows determine, before anything is simulated. A number
enters when it is worth more than it costs, -2 log likelihood + k log n, by more than `GAIN`: a
ceiling that no row shows is not fitted. Sources: Schwarz 1978 (the cost); Kass and Raftery 1995
(a gain of 6 is strong evidence); Reiser and Lavenberg 1980 (mean value analysis).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive import laws
from nvmesim.calibrate.points import Point
from nvmesim.scenario.volumes import DEFAULT_CHUNK

GAIN: Final = 6.0
"""Gain of the cost from which on a further number is taken."""
LEAST_ERROR: Final = 0.03
"""Least relative error of a row where models are compared: precise rows buy no numbers."""
DEEP: Final = 512
"""Requests in flight up to which mean value analysis is stepped; more are full of waiting."""
HELD: Final = 1024
"""Commands that an NVMe drive holds at once: more wait before it, and tell no longer latency.
Source: Linux drivers/nvme/host/pci.c (io_queue_depth = 1024)."""


@dataclass(frozen=True)
class Line:
    """A latency, s, a bandwidth, bytes/s, and most requests/s, of one drive; inf: none is shown."""

    latency: float
    bandwidth: float
    cap: float
    cost: float
    """-2 log likelihood + k log n"""

    @property
    def has_ceiling(self) -> bool:
        """True if rows show a cap on requests, or a bandwidth."""
        return math.isfinite(self.cap) or math.isfinite(self.bandwidth)


def line_of(points: Sequence[Point]) -> Line:
    """The smallest line that meets the IOPS of *points*, rows of one operation.

    >>> rows = [Point("", 0.0, True, 16384, n, 1, x, None) for n, x in ((1, 43.4e3), (4, 163e3))]
    >>> line_of(rows).has_ceiling
    False
    >>> large = Point("", 0.0, True, 2 << 20, 4, 1, 3258.0, None)
    >>> found = line_of([*rows, large])
    >>> round(found.bandwidth / 1e9, 1), round(found.latency * 1e6), found.cap
    (6.8, 21, inf)
    """
    kinds = [(False, False), (False, True)]
    if len({p.block_size for p in points}) > 1:
        kinds = [(False, False), (True, False), (True, True)]
    if are_lone_reads(points):
        kinds = [(has_bandwidth, False) for has_bandwidth, has_cap in kinds if not has_cap]
    best = _solved(points, *kinds[0])
    for has_bandwidth, has_cap in kinds[1:]:
        if 1 + has_bandwidth + has_cap > len(points):
            break
        found = _solved(points, has_bandwidth, has_cap)
        if found.cost < best.cost - GAIN:
            best = found
    return best


def are_lone_reads(points: Sequence[Point], few: int = laws.FEW) -> bool:
    """True if every row tells about a lone read's time: *few* are in flight, and hardly wait.

    Two large ones may be as many as the drive's bandwidth takes.

    >>> one, two, full = (Point("", 1.0, True, 4096, n, 1, x, None)
    ...                   for n, x in ((1, 10e3), (2, 15.8e3), (2, 10e3)))
    >>> are_lone_reads([one, two]), are_lone_reads([one, full])
    (True, False)
    """
    took: dict[int, list[float]] = {}
    for p in points:
        took.setdefault(p.block_size, []).append(p.outstanding / p.iops)
        most = few if p.block_size <= laws.WAITING_BYTES else 1
        if p.read_fraction < 1 or p.outstanding > most * p.targets:
            return False
    return all(max(times) <= laws.ALONE * min(times) for times in took.values())


def evidence(off: Sequence[float], numbers: int) -> float:
    """-2 log likelihood + k log n of rows that are *off* (logarithms) with *numbers* fitted.

    >>> round(evidence([0.03, -0.03], 2), 3)
    3.386
    """
    return sum((x / LEAST_ERROR) ** 2 for x in off) + numbers * math.log(max(1, len(off)))


def _solved(points: Sequence[Point], has_bandwidth: bool, has_cap: bool) -> Line:
    """Least squares of the logarithms of IOPS."""
    from scipy.optimize import least_squares

    size = np.array([p.block_size for p in points], float)
    drives = np.array([p.targets for p in points], float)
    parts = np.array([parts_of(p) for p in points], float)
    flight = np.array([max(1, round(min(p.outstanding, HELD * p.targets))) for p in points])
    log_iops = np.log([p.iops for p in points])
    iops = np.exp(log_iops) / drives * parts
    start = [math.log(float(np.min(flight / np.exp(log_iops))))]
    start += [math.log(1.05 * float((iops * size / parts).max()))] if has_bandwidth else []
    start += [math.log(1.05 * float(iops.max()))] if has_cap else []

    def line(u: Floats) -> tuple[float, float, float]:
        values = np.exp(u).tolist()
        rest = values[1:]
        width = rest.pop(0) if has_bandwidth else math.inf
        return values[0], width, rest[0] if has_cap else math.inf

    def off(u: Floats) -> Floats:
        latency, bandwidth, cap = line(u)
        service = size / parts / bandwidth + 1 / cap
        rows = zip(flight.tolist(), service.tolist(), (drives / parts).tolist(), strict=True)
        modelled = np.log([closed_loop(n, latency, s, stations) for n, s, stations in rows])
        return (modelled - log_iops) / LEAST_ERROR

    found = least_squares(off, start, loss="soft_l1", f_scale=5.0, diff_step=[1e-4] * len(start))
    return Line(*line(found.x), evidence((LEAST_ERROR * off(found.x)).tolist(), len(start)))


def parts_of(point: Point) -> int:
    """Drives that one request of *point* keeps busy: those that its chunks lie on.

    >>> parts_of(Point("", 0.0, True, 2 << 20, 1, 1, 390.0, None, targets=2, raid="raid0:524288"))
    2
    """
    if not point.raid:
        return 1
    level, _, chunk = point.raid.partition(":")
    if level == "raid1":
        return point.targets if point.read_fraction == 0 else 1
    copies = 2 if level == "raid10" and point.read_fraction == 0 else 1
    chunks = math.ceil(point.block_size / int(chunk or DEFAULT_CHUNK))
    return min(point.targets, copies * chunks)


def closed_loop(n: int, latency: float, service: float, stations: float = 1.0) -> float:
    """Requests/s of *n* in flight that take *latency* s and *service* s at one of the stations.

    A service hardly varies: an arrival finds the one in service half done.

    >>> round(closed_loop(1, 20e-6, 5e-6)), round(closed_loop(64, 20e-6, 5e-6))
    (40000, 200000)
    """
    if service <= 0:
        return n / latency
    queue, rate = 0.0, 0.0
    for i in range(1, min(n, DEEP) + 1):
        busy = min(1.0, rate * service / stations)
        stay = service * max(1.0, 1 + queue - busy / 2)
        rate = min(i / (latency + stay), stations / service)
        queue = rate * stay / stations
    return rate if n <= DEEP else min(n / DEEP * rate, stations / service)


def unidentified_latency_s(points: Sequence[Point], host: BenchHost) -> float:
    """Seconds that a lone write behind PCIe usually takes, where *points* do not tell it; else 0.

    Random writes of one depth do not tell a latency from a wait, unless few are in flight.

    >>> from nvmesim.calibrate.bench import free_host
    >>> rows = [Point("", 0.0, True, 4096, 1, n, 90e3, None) for n in (64, 128)]
    >>> host = free_host("pcie4 x4")
    >>> unidentified_latency_s(rows, host), unidentified_latency_s(rows[:1], host)
    (0.0, 1.5e-05)
    """
    depths = {p.outstanding / p.targets for p in points}
    is_mixed = any(p.read_fraction or not p.random for p in points)
    if host.link.kind != "pcie" or len(depths) > 1 or is_mixed:
        return 0.0
    stated = host.sheet.get("write_latency")
    usual, is_known = laws.unloaded_latency_s(points, read=False, stated=stated)
    return 0.0 if is_known else usual


def as_closed_loop(point: Point) -> Point:
    """*point*, if its rate is offered and it hardly waits, as one request at a time.

    >>> round(as_closed_loop(Point("", 1.0, True, 4096, 4, 8, 5e3, 80e-6, rate=5e3)).iops)
    12500
    """
    if point.rate is None or not point.mean_s or laws.in_flight(point) > laws.SHALLOW:
        return point
    return replace(point, rate=None, jobs=1, iodepth=1, iops=1 / point.mean_s)
