"""Ceilings that no row shows, as the data sheet of the drive has them, or those of its like."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import Link

SHEET_CEILING: Final = {
    "pcie": {True: (0.57, 0.35), False: (0.22, 1.0)},
    "sata": {True: (0.53, 0.25), False: (0.47, 0.4)},
}
"""Most small random requests/s of flash behind PCIe or SATA, as a share of the bytes of its link,
and the standard deviation of its logarithm, for reads (true) and for writes. Source: PCIe reads,
data sheets of 35 drives of Gen3 to Gen5 (0.39 to 0.84, 0.27), with some doubt more, as older and
smaller drives stay below their family's sheet; PCIe writes, 89 sources of `calibration/held-out`,
where depth or threads ended 35 (0.20 to 0.25, 1.15 to 1.57). SATA, saturated rows of nineteen
drives of `calibration/held-out` each (0.26 to 0.67, median 0.55, 0.25; 0.19 to 0.71, median 0.50,
0.36); data sheets state 0.64 to 0.68 for reads."""
SLOWER: Final = (0.25, 0.12, 1.0)
"""Share of devices behind PCIe of which far less than `SHEET_CEILING` holds (rented by parts, disks
of guests, drives without memory of their own), small random reads/s of these as a share of the
link, and the deviation of its logarithm. Source: the most of 126 sources of `calibration/held-out`,
of which depth or threads ended 64 (a fifth did 0.09, 1.0, the others 0.58, 0.37; of 64 sources with
a lone read half did 0.15, 1.1, the others 0.48, 0.31)."""
LATE: Final = (0.17, 1.1)
"""The same of all devices whose lone read takes `laws.LATE_READ_S` to `laws.SLOW_READ_S`. Source:
thirteen sources of `calibration/held-out`, four cut off by their depth (0.03 to 0.81, half of them
0.03 to 0.10)."""
REMOTE: Final = Expected(50e3, 1.2)
"""Most requests/s of a disk behind a network: 95 % are within 5k and 500k. Sources: what the
volumes of clouds are sold with (AWS gp3 3k to 16k, io2 to 256k; Azure 5k to 160k; Alibaba 50k to
1M; Google 15k to 100k), spread evenly."""
COMMAND: Final = 4096
"""Size of the requests of `SHEET_CEILING`."""
SMALL, DEEP = 8192, 16
"""Bytes up to which, and requests in flight of a drive from which on a row tells requests/s."""
FURTHEST: Final = 3.0
"""Such deviations that a drive may be above all data sheets. Assumed."""
LAST, STEPS = 5.0, 2001
"""Where a distribution is cut off, in such deviations, and points at which it is looked at."""


def usual_ceiling(link: Link, *, read: bool) -> tuple[float, float]:
    """`SHEET_CEILING` of a drive on *link*; one behind SAS may be as fast as one behind PCIe.

    >>> from nvmesim.catalog.links import parse_link
    >>> usual_ceiling(parse_link("sata3"), read=True)
    (0.53, 0.25)
    """
    return SHEET_CEILING.get(link.kind, SHEET_CEILING["pcie"])[read]


def open_ceiling(
    link: Link, size: int, top: float, *, read: bool, stated: Expected | None = None
) -> tuple[float, float]:
    """Median of a ceiling that no row shows, requests/s, and the deviation of its logarithm.

    Drives of that link as `SHEET_CEILING` and `SLOWER` have them, or this one as its data sheet
    has *stated* it, those that do less than *top* left out.

    >>> from nvmesim.catalog.links import parse_link
    >>> gen4 = parse_link("pcie4 x4")
    >>> [round(open_ceiling(gen4, 4096, top, read=True)[0], -3) for top in (12e3, 900e3, 2e6)]
    [966000.0, 1247000.0, 2245000.0]
    """
    return _above(_modes(link, size, read=read, stated=stated), top)


def of_link(link: Link, share: float, sd: float) -> Expected:
    """Requests/s of `COMMAND` bytes that move *share* of what a drive on *link* was built for.

    >>> from nvmesim.catalog.links import parse_link
    >>> round(of_link(parse_link("pcie3 x4"), *LATE).value, -3)
    163000.0
    """
    return Expected(share * built_for(link) / COMMAND, sd)


Mode = tuple[float, float, float]
"""Share of devices, what they do, and the deviation of its logarithm."""


def _modes(link: Link, size: int, *, read: bool, stated: Expected | None = None) -> list[Mode]:
    """How requests/s of a drive are distributed before rows are looked at."""
    if stated:
        return [(1.0, *stated)]
    usual, sd = usual_ceiling(link, read=read)
    size = size if link.kind == "pcie" else min(size, COMMAND)  # SATA: larger ones fill the link
    unit = built_for(link) / size
    if link.kind != "pcie" or not read:
        return [(1.0, usual * unit, sd)]
    share, slower, slower_sd = SLOWER
    return [(1 - share, usual * unit, sd), (share, slower * unit, slower_sd)]


USUAL_LANES: Final = 4
"""Lanes of nearly all NVMe drives: on fewer they are as fast as the link lets them."""


def built_for(link: Link) -> float:
    """Bytes/s of the link that a drive on *link* was built for, by lanes.

    >>> from nvmesim.catalog.links import parse_link
    >>> [round(built_for(parse_link(f"pcie4 x{lanes}")) / 1e9, 1) for lanes in (2, 4, 8)]
    [7.9, 7.9, 15.8]
    """
    usual = USUAL_LANES if link.kind == "pcie" else 1
    return link.raw_bytes_per_s * max(1.0, usual / link.lanes)


FRESH: Final = (0.45, 0.95, 0.15)
"""Share of devices behind PCIe that write flash that is fresh, or a cache that lasts: most small
random writes/s of these as a share of what large writes move, and the deviation of its logarithm.
Source: saturated rows of 37 sources of `calibration/held-out` (sixteen do 0.75 to 1.4)."""
STEADY: Final = (0.2, 0.8)
"""The same of the others. Source: the other 21 sources (below 0.6); data sheets of 25 drives for
servers (0.05 to 0.37)."""
STATED_FRESH: Final = 0.3
"""Share of drives whose sheet states what lasts, that are measured fresh: three of eleven of
`calibration/held-out`."""


def open_writes(
    link: Link, size: int, top: float, moved: float | None, *, stated: Expected | None = None
) -> tuple[float, float]:
    """As `open_ceiling` of writes, where large writes move as many bytes/s as *moved* would.

    None: no row tells.

    >>> from nvmesim.catalog.links import parse_link
    >>> gen4 = parse_link("pcie4 x4")
    >>> [round(open_writes(gen4, 4096, 20e3, moved)[0], -3) for moved in (None, 680e3)]
    [424000.0, 403000.0]
    """
    share, fresh, sd = FRESH
    if moved is None or link.kind != "pcie" or fresh * moved < top:
        return open_ceiling(link, size, top, read=False, stated=stated)
    share = STATED_FRESH if stated else share
    lasting = stated or (STEADY[0] * moved, STEADY[1])
    return _above([(share, fresh * moved, sd), (1 - share, *lasting)], top)


def sheet_odds(link: Link, size: int, rate: float, stated: Expected | None = None) -> float:
    """How common a ceiling of reads of *rate* or less is, by the density of `SHEET_CEILING`.

    Or by what the drive's own data sheet has *stated*. 1 from the median on: that a drive is faster
    than others is no reason to doubt its ceiling.

    >>> from nvmesim.catalog.links import parse_link
    >>> [round(sheet_odds(parse_link("pcie3 x4"), 4096, rate), 2) for rate in (255e3, 600e3)]
    [0.17, 1.0]
    """
    modes = _modes(link, size, read=True, stated=stated)
    usual = modes[0][1]
    if not stated:
        rate *= built_for(link) / link.raw_bytes_per_s
    here, there = _density(modes, np.log([min(rate, usual), usual]))
    return float(here / there)


SHEET_BANDWIDTH: Final = {True: (0.84, 0.3), False: (0.51, 0.5)}
"""Sequential bytes/s of a drive behind PCIe, as a share of the link it was built for, and the
standard deviation of its logarithm, for reads (true) and writes. Source: data sheets of 39 drives
of Gen3 to Gen5 (reads: 0.41 to 0.95, 0.17), and of 36 (writes: 0.19 to 0.89, 0.34); both with some
doubt more, as `SHEET_CEILING`."""


SLOW: Final = 25e3
"""Small requests/s at depth below which a device is a disk, a remote volume or behind a bridge."""
SLOW_BANDWIDTH: Final = 165e6
"""Bytes/s of such a device at least. Source: three disks (52 to 275 MB/s), four volumes of clouds
(125 to 358), a bridge (371), a nearly full QLC drive (45), `calibration/held-out`."""
WAITS_S: Final = DEEP / SLOW
"""Time of a small request at depth from which on it waits for a ceiling, and not for flash."""
IDLE_THREAD: Final = 100e3
"""Requests/s of a thread that is far from full (0.2 to 0.5 M/s, `catalog/data/stacks`)."""
OF_SMALL, OF_SMALL_SD = 3.4, 0.8
"""Bytes/s of large requests as a multiple of what small ones move at their ceiling, and the
deviation of its logarithm. Source: reads of seven and writes of eleven sources of
`calibration/held-out` with such a ceiling below a quarter of their link (medians 3.1 and 3.5, 0.67
and 0.95)."""

SLOW_ODDS: Final = 4.0
"""Factor on the weight of a ceiling of requests, beside one of bytes, of a slow device. Source: as
`SLOW_BANDWIDTH`; larger requests moved 5 to 150 times the bytes of small ones, but for the QLC
drive."""


def _small_ceiling(points: Sequence[Point], *, read: bool) -> float:
    """Requests/s at which deep, small, random rows of *points* wait; infinite if none does.

    Where no row is of writes, reads tell. Data sheets speak of drives, whatever they state.
    """
    deep = {share: [
        p for p in points
        if p.read_fraction == share and p.random and p.block_size <= SMALL
        and p.outstanding >= DEEP * p.targets
        and not (p.sync or p.rate or p.is_cpu_bound or p.is_stated)
    ] for share in (0.0, 1.0)}  # fmt: skip
    top = max(deep[float(read)] or deep[1.0], key=lambda p: p.iops / p.targets, default=None)
    if top is None or top.iops > IDLE_THREAD * top.jobs or top.outstanding < WAITS_S * top.iops:
        return math.inf
    return top.iops / top.targets


def is_slow(points: Sequence[Point], *, read: bool) -> bool:
    """True if deep, small, random rows of *points* are of a slow device, by *read* or write.

    >>> rows = [Point("", 0.0, True, 4096, 1, 256, 2998.0, None)]
    >>> is_slow(rows, read=False), is_slow(rows, read=True)
    (True, False)
    """
    return _small_ceiling(points, read=read) < SLOW


def bandwidth_by_small(link: Link, points: Sequence[Point], *, read: bool) -> Expected | None:
    """Bandwidth as likely beside the ceiling that small rows of *points* show, bytes/s.

    None: they show none, or a drive on *link* usually moves less.

    >>> from nvmesim.catalog.links import parse_link
    >>> gen4, rates = parse_link("pcie4 x4"), (3e3, 80e3, 700e3)
    >>> rows = [[Point("", 1.0, True, 4096, 4, 128, rate, None)] for rate in rates]
    >>> [found and found.value / 1e6 for found in (
    ...     bandwidth_by_small(gen4, each, read=True) for each in rows)]
    [165.0, 1114.112, None]
    """
    rate = _small_ceiling(points, read=read)
    value = max(SLOW_BANDWIDTH, OF_SMALL * COMMAND * rate)
    usual = SHEET_BANDWIDTH[read][0] * built_for(link) if link.kind == "pcie" else 0.0
    return Expected(value, OF_SMALL_SD) if rate < SLOW or value < usual else None


def open_bandwidth(
    link: Link, top: float, *, read: bool, stated: Expected | None = None
) -> tuple[float, float]:
    """Median of a bandwidth that no row shows, bytes/s, and the deviation of its logarithm.

    As `open_ceiling`; rows that move *top* bytes/s rule out less.

    >>> from nvmesim.catalog.links import parse_link
    >>> round(open_bandwidth(parse_link("pcie4 x4"), 1e6, read=False)[0] / 1e9, 1)
    4.0
    """
    share, sd = SHEET_BANDWIDTH[read]
    return _above([(1.0, *(stated or (share * built_for(link), sd)))], max(top, 1.0))


def _density(modes: Sequence[Mode], logarithms: Floats) -> Floats:
    """Density of *modes* at *logarithms*, up to a factor."""
    shares, middles, sds = np.array(modes).T
    off = (logarithms[:, None] - np.log(middles)) / sds
    out: Floats = np.exp(-off * off / 2) @ (shares / sds)
    return out


def _above(modes: Sequence[Mode], top: float) -> tuple[float, float]:
    """Median, and deviation of the logarithm, of what has *modes* and is not below *top*."""
    # where no data sheet says as much
    modes = [(share, max(usual, top * math.exp(-FURTHEST * sd)), sd) for share, usual, sd in modes]
    least = min(math.log(usual) - LAST * sd for _, usual, sd in modes)
    most = max(math.log(usual) + LAST * sd for _, usual, sd in modes)
    at = np.linspace(max(math.log(top), least), most, STEPS)
    density = _density(modes, at)
    density /= density.sum()
    mean = float(at @ density)
    middle = float(np.interp(0.5, np.cumsum(density) - density / 2, at))
    return math.exp(middle), math.sqrt(float((at - mean) ** 2 @ density))
