"""Operational laws of rows: what each can tell before anything is simulated.

Little's law holds for every row: N = X R. A row whose R is many times that of a lone request waited
for something that was full, so its X is a ceiling and constrains rates; a row whose R is a lone
request's tells a latency, and its X is not a ceiling. Sources: Little 1961; Denning and Buzen 1978
(operational bounds); Reiser and Lavenberg 1980 (mean value analysis).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.points import LONE_S, Point

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
    first = min(points, key=lambda p: (p.outstanding, p.iops))
    took = first.mean_s or first.outstanding / first.iops
    usual = LONE_S[read]
    is_fast = took < ALONE * usual and len(points) > 1
    if first.outstanding <= SHALLOW or (is_fast and first.outstanding < MANY):
        return took, True
    return min(usual, took), False


def told(point: Point, lone: float, *, is_known: bool) -> Told:
    """Meaning of *point* where a lone request takes *lone* s; a row of no depth is a ceiling.

    >>> told(Point("", 1.0, True, 4096, 8, 128, 894e3, None), 80e-6, is_known=False)
    <Told.CEILING: 'ceiling'>
    >>> told(Point("", 1.0, True, 4096, 1, 1, 12e3, None), 80e-6, is_known=True)
    <Told.LATENCY: 'latency'>
    """
    if point.is_bounded:
        return Told.CEILING
    took = point.outstanding / point.iops
    if not is_known and point.outstanding >= MANY and took < FLASH_S:
        return Told.CEILING
    waited = WAITED if is_known else 1.6 * WAITED
    if took >= waited * lone:
        return Told.CEILING
    if point.outstanding <= SHALLOW or (is_known and took <= ALONE * lone):
        return Told.LATENCY
    return Told.EITHER


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
