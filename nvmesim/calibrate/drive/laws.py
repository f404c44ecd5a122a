"""Operational laws of rows: what each can tell before anything is simulated.

Little's law holds for every row: N = X R. A row whose R is many times that of a lone request waited
for something that was full, so its X is a ceiling and constrains rates; a row whose R is a lone
request's tells a latency, and its X is not a ceiling. Sources: Little 1961; Denning and Buzen 1978
(operational bounds); Reiser and Lavenberg 1980 (mean value analysis).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.points import LONE_S, Point
from nvmesim.catalog.links import Link

LONE_DOUBT: Final = {True: 0.4, False: 0.6}
"""Standard deviation of its logarithm."""
WAITED, ALONE = 2.5, 1.5
"""R in units of a lone request's from which on a row is at a ceiling, and up to which it is not."""
MANY: Final = 32
FLASH_S: Final = 45e-6
"""Time of a request below which a row of many in flight is at a ceiling: flash takes that long
alone, and what is faster (phase change, 10 us) has waited several times its own. Source: data
sheets of TLC and of phase change drives."""
SHALLOW: Final = 2
"""Requests in flight up to which a row's latency is that of a lone request."""


class Told(Enum):
    """Meaning of a row."""

    LATENCY = "latency"
    CEILING = "ceiling"
    EITHER = "either"


def lone_s(points: Sequence[Point], *, read: bool) -> tuple[float, bool]:
    """Latency of a lone request, s, and whether *points* tell it.

    The shallowest row's, if it is shallow or no slower than drives are; else what is assumed.

    >>> row = Point("", 1.0, True, 4096, 8, 128, 894e3, None)
    >>> lone_s([row], read=True)
    (8e-05, False)
    """
    first = min(points, key=lambda p: (in_flight(p), p.iops))
    took = first.mean_s or first.outstanding / first.iops
    usual = LONE_S[read]
    is_fast = took < ALONE * usual and len(points) > 1
    if in_flight(first) <= SHALLOW or (is_fast and in_flight(first) < MANY):
        return took, True
    return min(usual, took), False


def in_flight(point: Point) -> float:
    """Requests outstanding on average: an open load's by Little's law, not its limit.

    >>> in_flight(Point("", 0.0, True, 4096, 6, 64, 10e3, 10e-6, rate=10e3))
    0.1
    """
    if point.rate is not None and point.mean_s:
        return point.iops * point.mean_s
    return float(point.outstanding)


def told(point: Point, lone: float, *, is_known: bool) -> Told:
    """Meaning of *point* where a lone request takes *lone* s; a row of no depth is a ceiling.

    A row whose thread was full shows no ceiling of the drive.

    >>> told(Point("", 1.0, True, 4096, 8, 128, 894e3, None), 80e-6, is_known=False)
    <Told.CEILING: 'ceiling'>
    >>> told(Point("", 1.0, True, 4096, 1, 1, 12e3, None), 80e-6, is_known=True)
    <Told.LATENCY: 'latency'>
    """
    if point.is_bounded:
        return Told.CEILING
    if point.is_cpu_bound:
        return Told.LATENCY
    took = in_flight(point) / point.iops
    if not is_known and in_flight(point) >= MANY and took < FLASH_S:
        return Told.CEILING
    waited = WAITED if is_known else 1.6 * WAITED
    if took >= waited * lone:
        return Told.CEILING
    if in_flight(point) <= SHALLOW or (is_known and took <= ALONE * lone):
        return Told.LATENCY
    return Told.EITHER


SHEET_CEILING: Final = {True: (0.57, 0.35), False: (0.10, 0.75)}
"""Most small random requests/s of a drive behind PCIe, as a share of the bytes of its link, and the
standard deviation of its logarithm, for reads (true) and for writes that last. Source: data sheets
of 35 drives of Gen3 to Gen5 (reads: 0.39 to 0.84, 0.27), and of 31 (writes: 0.05 to 0.64, 0.74);
reads with some doubt more, as older and smaller drives stay below their family's sheet."""

FURTHEST: Final = 3.0
"""Such deviations that a drive may be above all data sheets. Assumed."""


def open_ceiling(link: Link, size: int, top: float, *, read: bool) -> tuple[float, float]:
    """Median of a ceiling that no row shows, requests/s, and the deviation of its logarithm.

    Drives of that link as their data sheets have them, those that do less than *top* left out.

    >>> from nvmesim.catalog.links import parse_link
    >>> gen4 = parse_link("pcie4 x4")
    >>> [round(open_ceiling(gen4, 4096, top, read=True)[0], -3) for top in (12e3, 900e3, 2e6)]
    [1096000.0, 1247000.0, 2227000.0]
    """
    from scipy.stats import truncnorm

    share, sd = SHEET_CEILING[read]
    middle = math.log(share * link.raw_bytes_per_s / size)
    middle = max(middle, math.log(top) - FURTHEST * sd)  # no drive of the sheets did as much
    above = truncnorm((math.log(top) - middle) / sd, np.inf)
    return math.exp(middle + sd * float(above.median())), sd * float(above.std())


SLOWER: Final = 0.9
"""Rate of each of several drives in units of one alone, below which they share a limit."""
DEEP_ENOUGH: Final = 4.0
"""Time that a request takes, in units of a lone one's, from which on depth does not limit."""


def shared_limit(point: Point, points: Sequence[Point]) -> Point | None:
    """The row of fewer drives that shows that what *point*'s drives share was their limit, or None.

    >>> one = Point("", 1.0, False, 4 << 20, 4, 32, 1701.0, None)
    >>> eight = Point("", 1.0, False, 4 << 20, 4, 32, 10163.2, None, targets=8)
    >>> shared_limit(eight, [one, eight]) is one, shared_limit(one, [one, eight])
    (True, None)
    """
    if point.raid or point.targets == 1:
        return None
    for q in points:
        if (q.op, q.block_size, q.raid, q.sync) != (point.op, point.block_size, "", point.sync):
            continue
        each = q.iops / q.targets
        if q.targets >= point.targets or point.iops / point.targets > SLOWER * each:
            continue
        took = point.outstanding / point.iops
        alone = LONE_S[point.read_fraction >= 0.5] + 1 / each
        if point.depth >= q.depth or took > DEEP_ENOUGH * alone:
            return q
    return None


def throughput(
    depths: Sequence[int], constant: Floats, die: Floats, dies: Floats, command: Floats,
    cv: float = 0.15,
) -> Floats:  # fmt: skip
    """float64[n_depths, n]: requests per second of n drives, by approximate mean value analysis.

    *constant*, *die*, *command*: seconds; a request takes *constant*, one of *dies* for *die* and
    the controller for *command*. An arrival finds one in service half done: service hardly varies.

    >>> at = [np.array([v]) for v in (11e-6, 54e-6, 48.0, 1 / 783e3)]
    >>> throughput([1, 64, 256], *at).round(-3).ravel().tolist()
    [15000.0, 565000.0, 786000.0]
    """
    out = np.zeros((len(depths), len(die)))
    at_dies, at_command = np.zeros_like(die), np.zeros_like(die)
    rate = np.zeros_like(die)
    rest = (1 - cv**2) / 2
    for n in range(1, max(depths) + 1):
        busy_dies, busy_command = rate * die / dies, rate * command
        in_dies = die * np.maximum(1 + at_dies / dies - rest * busy_dies, 1.0)
        in_command = command * np.maximum(1 + at_command - rest * busy_command, 1.0)
        rate = n / (constant + in_dies + in_command)
        at_dies, at_command = rate * in_dies, rate * in_command
        for row, depth in enumerate(depths):
            if depth == n:
                out[row] = rate
    return out


def roomy(depth: int, lone: float, die: float, ceiling: float, most: int = 4096) -> int:
    """Dies of *die* s that do not cap *ceiling* requests/s at *depth*: what is assumed gives way.

    >>> roomy(1024, 80e-6, 70e-6, 894e3) * 1e-6 / 70e-6 > 0.894
    True
    """
    count = max(64.0, 2.0 * ceiling * die)
    while count < most:
        alone, each, dies, none = (np.array([v]) for v in (lone - die, die, count, 0.0))
        enough = min(1.1 * ceiling, 0.9 * depth / lone)
        if float(throughput([depth], alone, each, dies, none)[0, 0]) > enough:
            break
        count *= 1.4
    return int(min(count, most))
