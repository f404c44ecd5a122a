"""A stack's costs as coordinates, and how well the CPU time of points is explained by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity, StackProfile
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.emulator import Floats
from nvmesim.fit.points import Point
from nvmesim.fit.population import Population, population
from nvmesim.fit.search import Solution, misfit, solve

SUBMIT_SHARE = 0.5
"""Share of a request's own cycles that are spent to submit it. Assumed: captures give the sum."""
ODDS, ODDS_DOUBT = 0.47, 0.7
"""An interrupt's cycles in units of a request's own, and the standard deviation of its logarithm,
where captures do not tell them apart. Assumed."""
HALF = 12e-6
"""Sleep after which a wake-up costs half, s, where the search begins."""
DEAREST = 0.5
"""Of a request's cost, what a further drive may add."""
REQUESTS, DRAW_REQUESTS = 25_000, 5_000
"""Simulated at a point: for slopes, and for one of the draws, where the scatter of CPU time counts
little beside the error of a point."""
LEASH = 0.7
"""Standard deviation of a coordinate's first proposal at most."""
LEAST = 1e-3
"""The same at least: the factors of a profile's draws are above zero."""


@dataclass(frozen=True)
class Costs:
    """A stack in coordinates in which the CPU time of points is nearly straight; seconds.

    What a request costs together with an interrupt of its own, the interrupt's odds against the
    rest, a wake-up, the sleep that makes one cost half, all as logarithms; and the share of the
    first that each further drive of a thread adds. One completion per interrupt is common: points
    tell the sum well, and its parts only where interrupts are shared.
    """

    name: str
    ghz: float
    cheapest: float
    """CPU time of a request at the cheapest point, s"""
    dearest: float
    several: bool
    """Whether there are points at several drive counts"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return ("together", "odds", "wakeup", "half", *(("target",) if self.several else ()))

    @property
    def first(self) -> Floats:
        """Coordinates read off the figures: the cheapest point works, the dearest wakes up too."""
        rest = max(0.1e-6, self.dearest - self.cheapest)
        logs = np.log([1.1 * self.cheapest, ODDS, 1.2 * rest, HALF])
        return np.append(logs, 0.03) if self.several else logs

    def bounds(self) -> tuple[Floats, Floats]:
        """Ends of what is open."""
        log, start = np.log, self.first
        rows = [
            (start[0] - log(4), start[0] + log(3)), (log(0.02), log(10.0)),
            (start[2] - log(20), start[2] + log(6)), (log(0.3e-6), log(300e-6)),
            (LEAST, DEAREST),
        ]  # fmt: skip
        table = np.array(rows[: len(self.names)], float)
        return table[:, 0], table[:, 1]

    def cycles(self, u: Floats) -> dict[str, float]:
        """Coordinates as the profile's numbers: cycles, and ps.

        >>> costs = Costs("x", 2.0, 2e-6, 6e-6, False)
        >>> [round(v) for v in costs.cycles(np.log([3e-6, 0.5, 4e-6, 1e-5])).values()]
        [2000, 2000, 2000, 8000, 10000000]
        """
        hz = self.ghz * 1e9
        together, odds, wakeup, half = np.exp(u[:4]).tolist()
        work = together * hz / (1 + odds)
        found = {
            "submit": work * SUBMIT_SHARE, "complete": work * (1 - SUBMIT_SHARE),
            "interrupt": work * odds, "wakeup": wakeup * hz, "wakeup_half": half * 1e12,
        }  # fmt: skip
        return found | ({"per_target": float(u[4]) * together * hz} if self.several else {})

    def coordinates(self, x: Floats) -> Floats:
        """Coordinates of the positive numbers *x* that least squares work on."""
        return np.append(np.log(x[:4]), x[4:])

    def stack(self, u: Floats) -> StackProfile:
        """The stack at coordinates *u*."""
        costs: dict[str, Quantity] = {k: Quantity(value=v) for k, v in self.cycles(u).items()}
        return StackProfile.model_validate({"name": self.name, **costs})


def costs_of(name: str, points: Sequence[Point], ghz: float, *, several: bool) -> Costs:
    """Coordinates for the CPU time of *points* on a clock of *ghz*."""
    times = sorted(p.cpu_s for p in points if p.cpu_s)
    return Costs(name, ghz, times[0], times[-1], several)


@dataclass(frozen=True)
class Bench:
    """The points whose CPU time costs are to explain, and what they are simulated with."""

    costs: Costs
    points: Sequence[Point]
    full: Sequence[Point]
    """Those of them whose threads are full: there IOPS tell the costs as well"""
    drive: DriveProfile
    host: Host

    def residuals(self, u: Floats, requests: int) -> Floats:
        """float64[n]: in standard errors, CPU time and IOPS by point, and what is assumed."""
        host = replace(self.host, stack=self.costs.stack(u))
        out = []
        for point in self.points:
            answer = measure(self.drive, host, point, requests=requests)
            bare = replace(point, mean_s=None, percentiles_s={})
            iops, cpu = misfit(bare, answer, cpu=True)
            out += [cpu, *([iops] if point in self.full else [])]
        return np.array([*out, (u[1] - np.log(ODDS)) / ODDS_DOUBT])

    @property
    def freedom(self) -> int:
        """Figures less costs."""
        return max(1, len(self.points) + len(self.full) - len(self.costs.names))

    def least_squares(self, start: Floats) -> Solution:
        """The costs with the least squares of residuals, by their coordinates."""
        steps = [0.03] * 4 + [0.3] * self.costs.several
        first = [*np.exp(start[:4]).tolist(), *start[4:].tolist()]
        return solve(
            lambda x: self.residuals(self.costs.coordinates(x), REQUESTS).tolist(), first,
            rounds=8, step=steps,
        )  # fmt: skip

    def draws(self, best: Solution) -> Population:
        """Joint draws of the coordinates, with the drive as it is.

        Residuals that are larger than expected make all errors larger. Source of the scale: Seber
        and Wild, Nonlinear Regression, section 5.1.
        """
        scale = max(1.0, float(best.residuals[:-1] @ best.residuals[:-1]) / self.freedom)
        low, high = self.costs.bounds()

        def cost(u: Floats) -> float:
            if not np.all((u >= low) & (u <= high)):
                return np.inf
            off = self.residuals(u, DRAW_REQUESTS)
            return float(off[:-1] @ off[:-1] / scale + off[-1] ** 2) / 2

        jacobian = best.jacobian.copy()
        jacobian[:-1] /= np.sqrt(scale)
        slope = np.ones(len(best.values))
        slope[4:] = best.values[4:]  # of the coordinate to the logarithm
        leash = np.diag(LEASH**-2.0 * np.ones(len(slope)))
        spread = np.linalg.inv(jacobian.T @ jacobian + leash) * np.outer(slope, slope)
        return population(cost, self.costs.coordinates(best.values), spread)
