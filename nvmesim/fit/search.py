"""Least squares over simulated points, with common random numbers.

Every evaluation simulates with the same seed, so that a finite difference sees the parameter and
not the noise. Parameters are fitted on a logarithmic scale: they are all positive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from nvmesim.fit.bench import Answer
from nvmesim.fit.points import Point

Floats = npt.NDArray[np.float64]

ERRORS: dict[str | float, float] = {
    "iops": 0.01, "mean": 0.01, 50.0: 0.05, 99.0: 0.05, 99.9: 0.08, "cpu": 0.02,
}  # fmt: skip
"""Relative standard error that a figure of a capture is taken to have: run to run, and for the
percentiles what a model of gamma-distributed dies cannot follow. Assumed, from repeats of the same
point in the captures of this project (IOPS within 1 to 4 %)."""


@dataclass(frozen=True)
class Solution:
    """Where a search ended."""

    values: Floats
    """float64[n_parameters]"""
    cost: float
    jacobian: Floats
    """float64[n_residuals, n_parameters], to the logarithm of the values"""
    residuals: Floats


def misfit(point: Point, answer: Answer, *, cpu: bool = False) -> list[float]:
    """Residuals of *point* in standard errors, on a logarithmic scale."""
    pairs: list[tuple[float | None, float | None, float]] = [
        (answer.iops, point.iops, ERRORS["iops"]),
        (answer.mean_s, point.mean_s, ERRORS["mean"]),
    ]
    for percent, value in point.percentiles_s.items():
        pairs.append((answer.percentiles_s.get(percent), value, ERRORS.get(percent, 0.1)))
    if cpu:
        pairs.append((answer.cpu_s, point.cpu_s, ERRORS["cpu"]))
    return [
        float(np.log(max(model, 1e-12) / measured)) / error
        for model, measured, error in pairs
        if model is not None and measured
    ]


def solve(
    residuals: Callable[[Floats], Sequence[float]],
    start: Sequence[float],
    *,
    step: float | Sequence[float] = 0.02,
    rounds: int = 8,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    jacobian: Floats | None = None,
) -> Solution:
    """Minimise the sum of squares over positive parameters, from *start*.

    *step* is that of the finite differences, relative, for all or for each parameter: a weak one
    needs a long step to be seen above the noise of the simulation. They are taken once, or not at
    all if *jacobian* is known of a problem nearby, and then corrected by each step's own outcome.
    Source: Broyden, Mathematics of Computation 19 (1965).
    """
    first = np.log(np.asarray(start, float))
    bounds = (
        np.log(np.asarray(low, float)) if low is not None else first - 3.0,
        np.log(np.asarray(high, float)) if high is not None else first + 3.0,
    )
    first = np.clip(first, bounds[0] + 1e-9, bounds[1] - 1e-9)
    steps = np.broadcast_to(np.asarray(step, float), (len(start),))
    slope = _Slope(residuals, np.where(first + steps < bounds[1], steps, -steps), jacobian)
    found = least_squares(
        slope.value, first, jac=slope.jacobian, bounds=bounds, max_nfev=rounds, x_scale=0.1,
        ftol=2e-3, xtol=1e-5,
    )  # fmt: skip
    return Solution(
        np.asarray(np.exp(found.x)), float(found.cost), np.asarray(found.jac), np.asarray(found.fun)
    )


class _Slope:
    """Residuals over logarithms of parameters, and how they change with these."""

    def __init__(
        self,
        residuals: Callable[[Floats], Sequence[float]],
        steps: Floats,
        known: Floats | None,
    ) -> None:
        self._residuals, self._steps, self._known = residuals, steps, known
        self._last: tuple[Floats, Floats] | None = None
        self._seen: tuple[Floats, Floats] | None = None

    def value(self, logs: Floats) -> Floats:
        """Return float64[n_residuals] at *logs*."""
        if self._seen is None or not np.array_equal(self._seen[0], logs):
            self._seen = logs.copy(), np.asarray(self._residuals(np.exp(logs)), float)
        return self._seen[1]

    def jacobian(self, logs: Floats) -> Floats:
        """Return float64[n_residuals, n_parameters] at *logs*."""
        base = self.value(logs)
        if self._known is None:
            self._known = self._differences(logs, base)
        elif self._last is not None:
            moved = logs - self._last[0]
            length = float(moved @ moved)
            if length > 0:
                missed = base - self._last[1] - self._known @ moved
                self._known = self._known + np.outer(missed, moved) / length
        self._last = logs.copy(), base
        return self._known

    def _differences(self, logs: Floats, base: Floats) -> Floats:
        columns = []
        for i, step in enumerate(self._steps):
            moved = logs.copy()
            moved[i] += step
            columns.append((np.asarray(self._residuals(np.exp(moved)), float) - base) / step)
        return np.stack(columns, axis=1)
