"""An inference problem: figures as logarithms, parameters in coordinates of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from nvmesim.array_types import Bools, Floats, Ints

ERRORS: Final[dict[str | float, float]] = {
    "iops": 0.01, "mean": 0.01, 50.0: 0.05, 99.0: 0.05, 99.9: 0.08, "cpu": 0.02,
}  # fmt: skip
"""Relative standard error that a figure of a capture is taken to have: run to run, and for the
percentiles what a model of gamma-distributed dies cannot follow. Assumed, from repeats of the same
point in the captures of this project (IOPS within 1 to 4 %)."""


class Coordinate(NamedTuple):
    """One parameter: its bounds, where a search begins, and what is known of it beforehand."""

    name: str
    start: float
    low: float
    high: float
    step: float
    """Of a finite difference: large enough to be seen above the roughness of a simulation"""
    doubt: float = 0.0
    """Standard deviation of a normal prior around the start; 0: there is none"""
    tilt: float = 0.0
    """How fast the logarithm of the density beforehand rises; 1: where the coordinate is a
    logarithm, and all values of what it is of are equally likely"""


@dataclass(frozen=True)
class LongRuns:
    """Runs as long as the captures, of the rows whose usual ones may be off."""

    simulate: Callable[[Floats, int], Floats]
    """(float64[n_coordinates], seed) -> float64[n_figures]; 0 for all other rows"""
    deep: Bools
    """bool[n_figures]: those of the rows that may be off"""
    usual: Floats
    """float64[n_figures]: length of a usual run, in units of this one; below 1"""
    share: Floats
    """float64[n_figures]: length of this run in units of the capture's, at most 1"""


@dataclass(frozen=True)
class Problem:
    """Figures that a simulation is to explain, and the coordinates it is asked at."""

    coordinates: tuple[Coordinate, ...]
    simulate: Callable[[Floats, int, float], Floats]
    """(float64[n_coordinates], seed, share of the usual requests) -> float64[n_figures]"""
    measured: Floats
    run: Ints
    """int64[n_figures]: the run that a figure is of; different runs share no noise"""
    sample: Floats
    """float64[n_figures]: variance of the measured figure in units of a usual simulated one's"""
    assumed: Floats
    """float64[n_figures]: standard error beside sampling: run to run, and what no model follows"""
    floor: Floats
    """float64[n_figures]: standard error beside sampling, always there: bins, ends of runs"""
    long: LongRuns | None = None
    """What tells how far usual runs are off; None: they are not"""
    offset: Floats | float = 0.0
    """float64[n_figures]: what figures of usual runs are above those of long ones, on average"""
    others: tuple[Floats, ...] = ()
    """Other places to begin at, float64[n_coordinates]: valleys may lie apart"""
    profiled: str = ""
    """A coordinate whose interval must hold on either side of what is open: see `Inferred.span`"""
    snapped: Callable[[Floats], Floats] = lambda u: u
    """float64[n, n_coordinates] -> the nearest that can be simulated: counts are whole numbers"""
    allowed: Callable[[Floats], Bools] = lambda u: np.ones(len(u), bool)
    """float64[n, n_coordinates] -> bool[n]: what bounds alone cannot say"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return tuple(c.name for c in self.coordinates)

    def column(self, field: str) -> Floats:
        """float64[n_coordinates]: one field of all coordinates."""
        return np.array([getattr(c, field) for c in self.coordinates], float)

    @property
    def low(self) -> Floats:
        """Lower and upper bounds, float64[n_coordinates]."""
        return self.column("low")

    @property
    def high(self) -> Floats:
        """Lower and upper bounds, float64[n_coordinates]."""
        return self.column("high")

    @property
    def start(self) -> Floats:
        """float64[n_coordinates], inside the bounds."""
        return np.clip(self.column("start"), self.low, self.high)

    @property
    def known(self) -> Floats:
        """float64[n_coordinates]: 1 / variance of the priors; 0: there is none."""
        doubt = self.column("doubt")
        return np.where(doubt > 0, 1 / np.maximum(doubt, 1e-12) ** 2, 0.0)

    @property
    def freedom(self) -> int:
        """Figures less coordinates that they are to tell."""
        return len(self.measured) - int((self.known == 0).sum())

    def permits(self, u: Floats) -> Bools:
        """bool[n]: which of float64[n, n_coordinates] are inside the bounds and allowed."""
        inside = ((u >= self.low) & (u <= self.high)).all(axis=1)
        out: Bools = inside & self.allowed(u)
        return out


@dataclass(frozen=True)
class Parameter:
    """A positive number that rows tell, or that is assumed; searched on a logarithmic scale."""

    name: str
    start: float
    low: float
    high: float
    step: float = 0.03
    """Of a finite difference, relative"""
    prior_sd: float = 0.0
    """Standard deviation of its logarithm before any row is looked at; 0: nothing is known"""


def logarithms(parameters: Iterable[Parameter]) -> list[Coordinate]:
    """Coordinates that are the logarithms of *parameters*.

    >>> logarithms([Parameter("die", 100.0, low=10.0, high=1000.0)])[0].high.__round__(3)
    6.908
    """
    log = np.log
    return [
        Coordinate(
            p.name, float(log(p.start)), float(log(p.low)), float(log(p.high)), p.step, p.prior_sd
        )
        for p in parameters
    ]
