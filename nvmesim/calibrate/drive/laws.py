"""Operational laws of rows, and a bank of dies in coordinates where figures are nearly straight.

Laws say what each row can tell before anything is simulated. Little's law holds for every row:
N = X R. A row whose R is many times that of a lone request waited for something that was full, so
its X is a ceiling and constrains rates; a row whose R is a lone request's tells a latency, and its
X is not a ceiling. Sources: Little 1961; Denning and Buzen 1978 (operational bounds); Reiser and
Lavenberg 1980 (mean value analysis).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from nvmesim.array_types import Bools, Floats
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.infer.problem import Coordinate
from nvmesim.calibrate.points import FLASH_S, LONE_S, Point
from nvmesim.network.network import IN_ORDER

LONE_DOUBT: Final = {True: 0.4, False: 0.6}
"""Standard deviation of its logarithm."""
WAITED, ALONE = 2.5, 1.5
"""R in units of a lone request's from which on a row is at a ceiling, and up to which it is not."""
MANY: Final = 32
SHALLOW: Final = 2
"""Requests in flight up to which a row's latency is that of a lone request."""
WAITING_BYTES: Final = 16 << 10
"""Bytes of a request up to which flash does several in the time of one."""


def is_flash(points: Sequence[Point]) -> bool:
    """False if a random read of *points* took less than flash takes.

    >>> is_flash([Point("", 1.0, True, 4096, 1, 1, 90e3, None)])
    False
    """
    lone = (p for p in points if p.random and p.read_fraction == 1 and in_flight(p) <= SHALLOW)
    return all(in_flight(p) / p.iops > FLASH_S for p in lone)


class RowKind(Enum):
    """Meaning of a row."""

    LATENCY = "latency"
    CEILING = "ceiling"
    EITHER = "either"


FEW: Final = 8
"""Requests in flight of a drive up to which a row may tell a latency, however long. Assumed."""
SLOW_READ_S: Final = 300e-6
"""Time of a lone small read from which on a disk is no flash beside the host: data sheets say 60 to
115 us."""
LATE_READ_S: Final = 100e-6
"""Time of a lone small read, its host's included, from which on few drives behind PCIe read as fast
as data sheets say (`open_ceilings.LATE`)."""
SLOWEST_REMOTE_S: Final = 6e-3
"""Most that a request to a disk behind a network takes, with few beside it. Sources: volumes of
clouds read in 0.3 to 2 ms and write in up to 4 (`calibration/held-out`; mails)."""


DIES_BY_WAIT, DIES_BY_WAIT_SD = 0.75, 0.5
"""Dies, in units of the others in flight by how much longer a read takes with them, and the
deviation of its logarithm. Source: half a service is waited for at each that is met (0.5); rows of
4 and 8 in flight of nine drives of `calibration/held-out` that took 1.12 to 1.5 times as long, 0.74
in the median."""
MEETING: Final = 3
"""Others in flight from which on how much longer a read takes tells of dies. Assumed."""


def may_be_remote(point: Point) -> bool:
    """True if *point* has so few requests that their time may be that of a network.

    >>> may_be_remote(Point("", 1.0, True, 4096, 1, 4, 6.2e3, None))
    True
    """
    flight = in_flight(point)
    is_slow = SLOW_READ_S < flight / point.iops < SLOWEST_REMOTE_S
    return is_slow and flight <= FEW * point.targets


def unloaded_latency_s(
    points: Sequence[Point], *, read: bool, stated: Expected | None = None, remote: bool = False
) -> tuple[float, bool]:
    """Latency of a lone request, s, and whether *points* tell it.

    The shallowest row's, if it is shallow, or no slower than drives are, or of few requests to a
    disk that is known to be *remote*; else what is *stated* by a data sheet, or assumed.

    >>> row = Point("", 1.0, True, 4096, 8, 128, 894e3, None)
    >>> unloaded_latency_s([row], read=True)
    (8e-05, False)
    """
    first = min(points, key=lambda p: (in_flight(p), p.iops))
    took = first.mean_s or first.outstanding / first.iops
    usual = stated.value if stated else LONE_S[read]
    is_fast = took < ALONE * usual and len(points) > 1
    if in_flight(first) <= SHALLOW or (is_fast and in_flight(first) < MANY):
        return took, True
    if remote and may_be_remote(first):
        return took, True
    return min(usual, took), False


def reads_at_once(points: Sequence[Point]) -> float:
    """Most reads/s of a drive, in those of a lone one, as *points* of few in flight tell; or inf.

    A read that meets another at its die waits for half a service of it. So how much longer reads
    take with a few others in flight tells how many dies there are.

    >>> rows = [Point("", 1.0, True, 4096, n, 1, x, None) for n, x in ((1, 23.6e3), (8, 152.5e3))]
    >>> round(reads_at_once(rows))
    22
    """
    small = [p for p in points if p.block_size <= WAITING_BYTES]
    alone: dict[int, float] = {}
    for p in small:
        if p.outstanding == p.targets:
            alone[p.block_size] = max(p.iops / p.targets, alone.get(p.block_size, 0.0))
    found = math.inf
    for p in small:
        others = p.outstanding / p.targets - 1
        longer = p.outstanding / p.iops * alone.get(p.block_size, 0.0) - 1
        if MEETING <= others < FEW and longer > 0:
            found = min(found, DIES_BY_WAIT * others / longer)
    return found


def in_flight(point: Point) -> float:
    """Requests outstanding on average: an open load's by Little's law, not its limit.

    >>> in_flight(Point("", 0.0, True, 4096, 6, 64, 10e3, 10e-6, rate=10e3))
    0.1
    """
    if point.rate is not None and point.mean_s:
        return point.iops * point.mean_s
    return float(point.outstanding)


def row_kind(point: Point, lone: float, *, is_known: bool) -> RowKind:
    """Meaning of *point* where a lone request takes *lone* s; a row of no depth is a ceiling.

    A row whose thread was full shows no ceiling of the drive.

    >>> row_kind(Point("", 1.0, True, 4096, 8, 128, 894e3, None), 80e-6, is_known=False)
    <RowKind.CEILING: 'ceiling'>
    >>> row_kind(Point("", 1.0, True, 4096, 1, 1, 12e3, None), 80e-6, is_known=True)
    <RowKind.LATENCY: 'latency'>
    """
    if point.is_bounded:
        return RowKind.CEILING
    if point.is_cpu_bound:
        return RowKind.LATENCY
    took = in_flight(point) / point.iops
    if not is_known and in_flight(point) >= MANY and took < FLASH_S:
        return RowKind.CEILING
    waited = WAITED if is_known else 1.6 * WAITED
    if took >= waited * lone:
        may_be_either = not is_known and may_be_remote(point)
        return RowKind.EITHER if may_be_either else RowKind.CEILING
    if in_flight(point) <= SHALLOW or (is_known and took <= ALONE * lone):
        return RowKind.LATENCY
    return RowKind.EITHER


SLOWER: Final = 0.9
"""Rate of each of several drives in units of one alone, below which they share a limit."""
DEEP_ENOUGH: Final = 4.0
"""Time that a request takes, in units of a lone one's, from which on depth does not limit."""


def waits(point: Point) -> bool:
    """True if requests of *point* wait behind so many that they may be taken in no order.

    >>> waits(Point("", 1.0, True, 4096, 8, 128, 894e3, None))
    True
    >>> waits(Point("", 1.0, True, 4096, 1, 8, 80e3, None))
    False
    """
    served = point.iops * LONE_S[point.read_fraction >= 0.5]
    return point.outstanding - served > 2 * IN_ORDER * point.targets


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
        own = (point.op, point.block_size, "", point.sync, point.path)
        if (q.op, q.block_size, q.raid, q.sync, q.path) != own:
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
    depths: Sequence[int], constant: Floats, die: Floats, dies: Floats, command: Floats
) -> Floats:
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
    rest = (1 - LIKELY_CV**2) / 2
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


def roomy(depth: int, lone: float, die: float, ceiling: float) -> int:
    """Dies of *die* s that do not cap *ceiling* requests/s at *depth*: what is assumed gives way.

    >>> roomy(1024, 80e-6, 70e-6, 894e3) * 1e-6 / 70e-6 > 0.894
    True
    """
    count = max(64.0, 2.0 * ceiling * die)
    while count < MOST_DIES:
        alone, each, dies, none = (np.array([v]) for v in (lone - die, die, count, 0.0))
        enough = min(1.1 * ceiling, 0.9 * depth / lone)
        if float(throughput([depth], alone, each, dies, none)[0, 0]) > enough:
            break
        count *= 1.4
    return int(min(count, MOST_DIES))


MOST_DIES: Final = 4096
FASTEST = 30.0
"""Commands per second that are looked for at most, in units of the highest rate measured."""
FULL = 1.06
"""Of the time between commands at that rate, what a command may take: the rate has noise too."""
POWER = 3
"""A controller's time for a command hardly shows until it is nearly all of the time between two:
figures are nearly straight in this power of it. All values of that are as likely beforehand."""
OPEN = 0.1
"""Of that power, the lower end of an interval from which on nothing tells a faster controller."""
BITE = 0.9
"""Least dies in units of what keeps them all busy at the highest rate."""
LIKELY_SHARE, SHARE_DOUBT = 0.9, 0.15
"""The die's share of the latency where fewer than three depths tell it, and its doubt. Assumed."""
LIKELY_CV, CV_DOUBT = 0.15, 0.7
"""A die's variation where no percentiles tell it, and the doubt of its logarithm. Assumed."""
SLOW = 0.4
"""The coordinate of the controller from which on it is what makes the ceiling, about."""
DEEP = 1024
"""Depth up to which the analysis that a search begins with goes."""
CV_STEP = 0.01
"""Coefficients of variation are simulated in steps of 1 %: each needs a table of its own."""


def busy_of(command: Floats | float) -> Floats:
    """Share of the time between commands that the controller takes, of the coordinate.

    >>> float(busy_of(0.125))
    0.5
    """
    return np.maximum(command, 0.0) ** (1 / POWER)


@dataclass(frozen=True)
class Bank:
    """A bank of dies in coordinates in which figures are nearly straight; times in ps.

    The latency of a lone command, the share of it that is the die's, the variation, a power of the
    time of a command at the controller by the time between commands at the highest rate, and the
    dies by what that rate keeps busy. A lone command's latency holds the command's time as well,
    and hardly changes when one of its parts grows as another falls.
    """

    latency: float
    """Guess: what a lone command takes, less the host's part"""
    ceiling: float
    """Highest rate measured, 1/s"""
    held: float
    """Host time that the constant part holds besides"""
    commands: float | None
    """Rate of the controller if it is not stated, 1/s"""

    measured: tuple[Point, ...] = ()
    """Points of the sweep: they tell where the search begins"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        searched = ("command",) if self.commands is None else ()
        return ("latency", "share", "cv", *searched, "dies")

    def values(self, u: Floats) -> dict[str, float]:
        """Coordinates as the profile's numbers: ps and 1/s; dies need not be whole.

        >>> bank = Bank(60e6, 500e3, 0.0, None)
        >>> found = bank.values(np.array([np.log(60e6), np.log(0.8), np.log(0.1), 0.125, 0.0]))
        >>> {name: round(value, 3) for name, value in found.items()}
        {'base': 11000000.0, 'die': 48000000.0, 'cv': 0.1, 'commands': 1000000.0, 'dies': 24.0}
        """
        at = dict(zip(self.names, u.tolist(), strict=True))
        latency = float(np.exp(at["latency"]))
        die = latency * float(np.exp(at["share"]))
        if self.commands is None:
            command = 1e12 / self.rate(at["command"])
        else:
            command = 1e12 / self.commands
        base = max(latency - die - command, 1e-3 * latency)
        dies = float(np.exp(at["dies"])) * (self.ceiling * die / 1e12)
        return {
            "base": self.held + base, "die": die, "cv": float(np.exp(at["cv"])),
            "commands": 1e12 / command, "dies": float(dies),
        }  # fmt: skip

    def rate(self, command: float) -> float:
        """Commands per second of the coordinate."""
        return self.ceiling / max(float(busy_of(command)), 1 / FASTEST)

    def snapped(self, u: Floats) -> Floats:
        """float64[n, n_coordinates]: with whole numbers of dies, and variations in steps."""
        out = u.copy()
        out[:, 2] = np.round(out[:, 2] / CV_STEP) * CV_STEP
        die = np.exp(out[:, 0] + out[:, 1])
        busy = self.ceiling * die / 1e12
        out[:, -1] = np.log(np.maximum(1.0, np.round(np.exp(out[:, -1]) * busy)) / busy)
        return out

    def allowed(self, u: Floats) -> Bools:
        """bool[n]: whether something is left for the constant part."""
        latency = np.exp(u[:, 0])
        command = 0.0 if self.commands else busy_of(u[:, 3]) / self.ceiling * 1e12
        return np.asarray(latency * (1 - np.exp(u[:, 1])) - command >= 0)

    def coordinates(self) -> list[Coordinate]:
        """Bounds, and a start by mean value analysis of the sweep's rates."""
        log, at = np.log, self._begun()[0]
        shown = any(p.percentiles_s for p in self.measured)
        about = at["latency"]
        rows = {
            "latency": (about, about + log(0.2), about + log(1.5), 0.01),
            "share": (at["share"], log(0.02), -1e-6, 0.05),
            "cv": (at["cv"], log(0.01), log(1.5), 0.2, 0.0 if shown else CV_DOUBT),
            "command": (at["command"], 0.0, FULL**POWER, 0.08),
            "dies": (at["dies"], log(BITE), log(64.0), 0.12),
        }
        return [Coordinate(name, *rows[name]) for name in self.names]

    def others(self) -> list[Floats]:
        """Other starts: the ceiling of the controller where that is of the dies, or vice versa."""
        return [np.array([at[name] for name in self.names]) for at in self._begun()[1:]]

    def _begun(self) -> list[dict[str, float]]:
        """Coordinates of banks like the sweep's.

        The best with a slow controller and the best with a fast one, the better first.
        """
        tries = np.array([
            (share, command, ratio)
            for share in (0.5, 0.7, 0.85, 0.95)
            for command in (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
            for ratio in np.geomspace(BITE, 16.0, 16)
        ])  # fmt: skip
        if self.commands is not None:
            tries = tries[tries[:, 1] < 0.05]
        share, command, ratio = tries.T
        latency, least = self.latency / 1e12, 1 / self.ceiling
        took = busy_of(command) * least
        die = share * np.maximum(latency - took, 1e-9)  # rows may contradict each other
        alone = np.maximum(latency - die - took, 1e-9)
        points = [p for p in self.measured if p.outstanding <= DEEP]
        rates = throughput(
            [p.outstanding for p in points], alone, die, ratio * self.ceiling * die, took
        )
        off = np.log(rates / np.array([p.iops for p in points])[:, None])
        cost = (off**2).sum(axis=0)
        kinds = [command < SLOW, command >= SLOW] if self.commands is None else [command < SLOW]
        best = sorted((np.where(kind, cost, np.inf) for kind in kinds), key=np.min)
        begun, cv = float(np.log(self.latency)), np.log(LIKELY_CV)
        return [
            {"latency": begun, "share": np.log(share[i]), "cv": cv, "command": command[i],
             "dies": np.log(ratio[i])}
            for i in map(int, map(np.argmin, best))
        ]  # fmt: skip
