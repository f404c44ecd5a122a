"""What the short runs of candidates are off by, told by runs as long as the captures.

A run that begins with an empty drive and hundreds of requests at once takes thousands of them to
forget it, and the tail of a short correlated run is a little too short: at 256 in flight some
thousand requests give 0.4 to 0.9 % fewer IOPS and 10 to 16 % less p99 than a long run does. Nor
does their scatter fall with their number as that of independent requests would. Both are told by a
few long runs near the optimum, beside what the emulator of the short ones says there. Source: the
control variate of Kennedy and O'Hagan 2000, predicting the output from a complex computer code when
fast approximations are available (a constant discrepancy).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.infer.emulator import TINY, Emulator, features
from nvmesim.calibrate.infer.problem import Problem

CLOSE = 2.0
"""Long runs up to this distance from a region's centre are used, root of the mean square."""


class Levels:
    """Long runs so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._u = np.zeros((0, len(problem.names)))
        self._figures = np.zeros((0, len(problem.measured)))
        self._own: list[Floats] = []

    def add(self, u: Floats, figures: Floats) -> None:
        """Add runs at float64[n_coordinates] *u* that gave float64[n_runs, n_figures]."""
        self._u = np.concatenate([self._u, np.repeat(u[None], len(figures), axis=0)])
        self._figures = np.concatenate([self._figures, figures])
        self._own.append(figures - figures.mean(axis=0))

    def applied(self, emulator: Emulator) -> Problem:
        """The problem with what its usual runs are off by, and how much long ones scatter."""
        problem, long = self.problem, self.problem.long
        near = emulator.region.away(self._u) < CLOSE**2
        if long is None or near.sum() < 2:
            return problem
        off = features(emulator.z(self._u[near])) @ emulator.terms - self._figures[near]
        usual = np.diag(emulator.scatter) + TINY
        # a few runs may be alike by chance: no less than of independent requests
        ratio = np.maximum(self._variance() / usual, long.usual)
        error = np.sqrt(np.maximum(off.var(axis=0, ddof=1), ratio * usual) / len(off))
        counted = long.deep & (problem.sample > 0)
        return replace(
            problem,
            offset=np.where(long.deep, off.mean(axis=0), 0.0),
            floor=np.hypot(problem.floor, np.where(long.deep, error, 0.0)),
            sample=np.where(counted, ratio * long.share, problem.sample),
        )

    def _variance(self) -> Floats:
        """float64[n_figures]: of long runs of the same coordinates."""
        own = np.concatenate(self._own)
        out: Floats = (own**2).sum(axis=0) / (len(own) - len(self._own))
        return out
