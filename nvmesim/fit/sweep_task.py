"""A depth sweep of reads as a task of inference: its figures, and a bank of dies' coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.catalog.profile import DriveProfile
from nvmesim.fit.bench import Answer, Host, measure
from nvmesim.fit.emulator import Floats
from nvmesim.fit.points import Point
from nvmesim.fit.search import ERRORS
from nvmesim.fit.synthetic import Bools, Task

BIN = 0.005
"""Standard error of a percentile that was read off bins: fio's are 1.6 % wide, ours 0.8 %."""
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
CV_STEP = 0.01
"""Coefficients of variation are simulated in steps of 1 %: each needs a table of its own."""


def busy_of(command: Floats | float) -> Floats:
    """Share of the time between commands that the controller takes, of the coordinate.

    >>> float(busy_of(0.125))
    0.5
    """
    out: Floats = np.maximum(command, 0.0) ** (1 / POWER)
    return out


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
    """Rate of the controller if it is not told, 1/s"""
    dies: int | None
    """Number of dies if it is not told"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        told = ("command",) if self.commands is None else ()
        return ("latency", "share", "cv", *told, *(("dies",) if self.dies is None else ()))

    def values(self, u: Floats) -> dict[str, float]:
        """Coordinates as the profile's numbers: ps and 1/s; dies need not be whole.

        >>> bank = Bank(60e6, 500e3, 0.0, None, None)
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
        dies = self.dies or float(np.exp(at["dies"])) * self._busy(die)
        return {
            "base": self.held + base, "die": die, "cv": float(np.exp(at["cv"])),
            "commands": 1e12 / command, "dies": float(dies),
        }  # fmt: skip

    def rate(self, command: float) -> float:
        """Commands per second of the coordinate."""
        return self.ceiling / max(float(busy_of(command)), 1 / FASTEST)

    def _busy(self, die: float) -> float:
        """Dies that the highest rate keeps busy. Source: Little's law."""
        return self.ceiling * die / 1e12

    def snapped(self, u: Floats) -> Floats:
        """float64[n, n_coordinates]: with whole numbers of dies, and variations in steps."""
        out = u.copy()
        out[:, 2] = np.round(out[:, 2] / CV_STEP) * CV_STEP
        if self.dies is None:
            die = np.exp(out[:, 0] + out[:, 1])
            busy = self.ceiling * die / 1e12
            out[:, -1] = np.log(np.maximum(1.0, np.round(np.exp(out[:, -1]) * busy)) / busy)
        return out

    def allowed(self, u: Floats) -> Bools:
        """bool[n]: whether something is left for the constant part."""
        latency = np.exp(u[:, 0])
        command = 0.0 if self.commands else busy_of(u[:, 3]) / self.ceiling * 1e12
        left: Bools = latency * (1 - np.exp(u[:, 1])) - command >= 0
        return left

    def bounds(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Ends of what is open, and of what is searched first."""
        log = np.log
        about = float(log(self.latency))
        rows = {
            "latency": (about + log(0.2), about + log(1.5), about + log(0.8), about + log(1.1)),
            "share": (log(0.02), -1e-6, log(0.1), -1e-6),
            "cv": (log(0.01), log(1.5), log(0.01), log(1.2)),
            "command": (0.0, FULL**POWER, 0.0, FULL**POWER),
            "dies": (log(BITE), log(64.0), log(BITE), log(10.0)),
        }
        chosen = np.array([rows[name] for name in self.names], float)
        return chosen[:, 0], chosen[:, 1], chosen[:, 2], chosen[:, 3]


def sweep_task(
    bank: Bank,
    points: Sequence[Point],
    host: Host,
    made: Callable[[dict[str, float]], DriveProfile],
) -> Task:
    """The task of finding *bank*'s coordinates from *points* on *host*; *made* builds the drive."""
    rows = [(i, key, value) for i, p in enumerate(points) for key, value in _figures(p)]

    def simulate(u: Floats, seed: int, share: float) -> Floats:
        drive = made(bank.values(u))
        answers = [
            measure(drive, host, p, requests=round(share * usual(p)), seed=seed + i)
            for i, p in enumerate(points)
        ]
        found = np.array([_answered(answers[i], key) for i, key, _ in rows])
        out: Floats = np.log(np.maximum(found, 1e-15))
        return out

    low, high, first, last = bank.bounds()
    about, known = np.zeros(len(low)), np.zeros(len(low))
    if bank.dies is not None:
        about[1], known[1] = np.log(LIKELY_SHARE), SHARE_DOUBT**-2
    return Task(
        names=bank.names, simulate=simulate,
        measured=np.log([value for _, _, value in rows]),
        run=np.array([i for i, _, _ in rows]),
        sample=np.array([usual(points[i]) / points[i].count if points[i].count else 0.0
                         for i, _, _ in rows]),
        assumed=np.array([ERRORS.get(key, 0.05) for _, key, _ in rows]),
        floor=np.array([_floor(points[i], key) for i, key, _ in rows]),
        low=low, high=high, begin=(first, last), about=about, known=known,
        profiled="command", snapped=bank.snapped, allowed=bank.allowed,
    )  # fmt: skip


def usual(point: Point) -> int:
    """Requests that one candidate is simulated with at *point*: deep queues forget slowly.

    A longer capture is worth a more careful emulator.
    """
    return max(6_000 + 40 * point.outstanding, min(20_000, point.count // 6))


def _figures(p: Point) -> list[tuple[str | float, float]]:
    """Figures that *p* has: IOPS, mean, percentiles."""
    found: list[tuple[str | float, float]] = [("iops", p.iops)]
    if p.mean_s:
        found.append(("mean", p.mean_s))
    return found + [(k, v) for k, v in (*p.percentiles_s.items(), *p.body_s.items()) if v > 0]


def _answered(answer: Answer, key: str | float) -> float:
    if isinstance(key, str):
        return answer.iops if key == "iops" else answer.mean_s
    return answer.percentiles_s[key] if key in answer.percentiles_s else answer.body_s[key]


def _floor(p: Point, key: str | float) -> float:
    """Error of bins; or of the ends of a run, where some of what was in flight counts.

    IOPS lose up to several times of it, as a run ends with its slowest request; the mean hardly.
    """
    if not isinstance(key, str):
        return BIN
    ends = p.outstanding / p.count if p.count else 0.0
    return min(0.02, 3 * ends) if key == "iops" else min(0.005, 0.3 * ends)
