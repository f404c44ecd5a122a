"""A bank of dies in coordinates in which the figures of a depth sweep are nearly straight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Bools, Floats
from nvmesim.calibrate.drive.laws import throughput
from nvmesim.calibrate.infer.problem import Coordinate
from nvmesim.calibrate.points import Point

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
    """Rate of the controller if it is not stated, 1/s"""

    measured: tuple[Point, ...] = ()
    """Points of the sweep: they tell where the search begins"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        told = ("command",) if self.commands is None else ()
        return ("latency", "share", "cv", *told, "dies")

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
        dies = float(np.exp(at["dies"])) * self._busy(die)
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

    def coordinates(self) -> list[Coordinate]:
        """Bounds, and a start by mean value analysis of the sweep's rates."""
        log = np.log
        about = float(log(self.latency))
        share, command, dies = self._begun()[0]
        shown = any(p.percentiles_s for p in self.measured)
        rows = {
            "latency": Coordinate("latency", about, about + log(0.2), about + log(1.5), 0.01),
            "share": Coordinate("share", log(share), log(0.02), -1e-6, 0.05),
            "cv": Coordinate("cv", log(LIKELY_CV), log(0.01), log(1.5), 0.2,
                             0.0 if shown else CV_DOUBT),
            "command": Coordinate("command", command, 0.0, FULL**POWER, 0.08),
            "dies": Coordinate("dies", log(dies), log(BITE), log(64.0), 0.12),
        }  # fmt: skip
        return [rows[name] for name in self.names]

    def others(self) -> list[Floats]:
        """Other starts: the ceiling of the controller where that is of the dies, or vice versa."""
        found = []
        for share, command, dies in self._begun()[1:]:
            at = {
                "latency": np.log(self.latency), "share": np.log(share), "cv": np.log(LIKELY_CV),
                "command": command, "dies": np.log(dies),
            }  # fmt: skip
            found.append(np.array([at[name] for name in self.names]))
        return found

    def _begun(self) -> list[tuple[float, float, float]]:
        """Share of the die, power of the controller's time, and dies: banks like the sweep's.

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
        die = share * (latency - took)
        alone = np.maximum(latency - die - took, 1e-9)
        points = [p for p in self.measured if p.outstanding <= DEEP]
        rates = throughput(
            [p.outstanding for p in points], alone, die, ratio * self.ceiling * die, took
        )
        off = np.log(rates / np.array([p.iops for p in points])[:, None])
        cost = (off**2).sum(axis=0)
        kinds = [command < SLOW, command >= SLOW] if self.commands is None else [command < SLOW]
        best = sorted((np.where(kind, cost, np.inf) for kind in kinds), key=np.min)
        return [(share[i], command[i], ratio[i]) for i in map(int, map(np.argmin, best))]
