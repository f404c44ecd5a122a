"""Least squares over simulated figures, with common random numbers.

Every evaluation simulates with the same seed, so that a finite difference sees the parameter and
not the noise. A Jacobian by differences takes one short run for each parameter; in between each
step's own run tells how it changed. Sources: Marquardt 1963 (damped steps), Broyden 1965 (the
Jacobian's update), Nocedal and Wright, Numerical Optimization, chapter 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchAnswer
from nvmesim.calibrate.infer.problem import ERRORS, Problem
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stopping import is_stopping
from nvmesim.errors import FitError

SEED = 1
ROUNDS = 6
"""Jacobians' worth of steps, at most."""
TRIES = 2
"""Steps for each of them."""
DAMPING = 0.01
"""Of the first step, in units of the curvature."""
GAIN, NOTHING = 2e-3, 1e-4
"""Gain, relative and in half chi-squares, that a step is not worth a run."""


@dataclass(frozen=True)
class Solution:
    """Where a search ended."""

    values: Floats
    """float64[n_parameters]"""
    cost: float
    jacobian: Floats
    """float64[n_residuals, n_parameters]: of the residuals to what is searched over"""
    residuals: Floats
    tried: Floats
    """float64[n, n_parameters]: all that was evaluated"""
    found: Floats
    """float64[n, n_residuals]: residuals there"""


def misfit(point: Point, answer: BenchAnswer, *, cpu: bool = False) -> list[float]:
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


def optimum(
    problem: Problem, *, start: Floats | None = None, rounds: int = ROUNDS, effort: float = 1.0,
    gain: float = GAIN,
) -> Solution:  # fmt: skip
    """The least squares of *problem*'s figures and priors, in its coordinates, from *start*.

    *gain*: of the cost, that a further step must promise.
    """
    sigma = np.hypot(np.hypot(problem.assumed, problem.floor), 0.004)
    about, stiff = problem.start, np.sqrt(problem.known)
    if not problem.coordinates:
        empty = np.zeros((0, 0))
        return Solution(np.zeros(0), 0.0, np.zeros((1, 0)), np.zeros(1), empty, empty)

    def residuals(u: Floats) -> Floats:
        figures = problem.simulate(problem.snapped(u[None])[0], SEED, effort)
        if not np.all(np.isfinite(figures)):
            raise FitError("a simulated figure is not finite; the captures leave the model's range")
        return np.concatenate([(figures - problem.measured) / sigma, (u - about) * stiff])

    bounds = (problem.low, problem.high)
    begin = problem.start if start is None else start
    return _searched(residuals, begin, problem.column("step"), bounds, rounds, gain)


def solve(
    residuals: Callable[[Floats], Sequence[float]],
    start: Sequence[float],
    *,
    step: float | Sequence[float] = 0.02,
    rounds: int = ROUNDS,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
) -> Solution:
    """Minimise the sum of squares over positive parameters, from *start*, on a logarithmic scale.

    *step* is that of the finite differences, relative, for all or for each parameter: a weak one
    needs a long step to be seen above the noise of the simulation.

    >>> found = solve(lambda x: [x[0] - 3, x[1] * x[0] - 6], [1.0, 1.0])
    >>> found.values.round(1).tolist()
    [3.0, 2.0]
    """
    first = np.log(np.asarray(start, float))
    bounds = (
        np.log(np.asarray(low, float)) if low is not None else first - 3.0,
        np.log(np.asarray(high, float)) if high is not None else first + 3.0,
    )
    steps = np.broadcast_to(np.asarray(step, float), (len(start),))
    found = _searched(
        lambda u: np.asarray(residuals(np.exp(u)), float), first, steps, bounds, rounds
    )
    return Solution(
        np.asarray(np.exp(found.values)), found.cost, found.jacobian, found.residuals,
        np.asarray(np.exp(found.tried)), found.found,
    )  # fmt: skip


def _searched(
    residuals: Callable[[Floats], Floats], start: Floats, steps: Floats,
    bounds: tuple[Floats, Floats], rounds: int, gain: float = GAIN,
) -> Solution:  # fmt: skip
    """Damped steps within *bounds* until they gain nothing, the last Jacobian by differences."""
    seen, (low, high) = _Seen(residuals), bounds
    inset = 1e-6 * (high - low)
    u = np.clip(start, low + inset, high - inset)
    residual = seen(u)
    slope, is_fresh, damping = _differences(seen, u, steps, high), True, DAMPING
    for _ in range(TRIES * rounds):
        if is_stopping():
            return _solution(seen, u, residual, slope)
        cost = float(residual @ residual / 2)
        tried = np.clip(u + _step(slope, residual, u, steps, damping, bounds), low, high)
        straight = residual + slope @ (tried - u)
        hoped = cost - float(straight @ straight / 2)
        if hoped < max(gain * cost, NOTHING):
            if is_fresh:
                break
            slope, is_fresh = _differences(seen, u, steps, high), True
            continue
        new = seen(tried)
        gained = cost - float(new @ new / 2)
        if gained <= 0 and not is_fresh:
            slope, is_fresh = _differences(seen, u, steps, high), True
            continue
        moved = (tried - u) / steps
        slope = slope + np.outer(new - straight, moved / steps) / (moved @ moved)
        is_fresh = False
        damping = damping / 5 if gained > 0.25 * hoped else 8 * damping
        if gained > 0:
            u, residual = tried, new
    if not is_fresh:
        slope = _differences(seen, u, steps, high)
    return _solution(seen, u, residual, slope)


def _solution(seen: _Seen, u: Floats, residual: Floats, slope: Floats) -> Solution:
    tried, found = (np.array(column) for column in zip(*seen.rows, strict=True))
    return Solution(u, float(residual @ residual / 2), slope, residual, tried, found)


def _step(
    slope: Floats, residual: Floats, u: Floats, steps: Floats, damping: float,
    bounds: tuple[Floats, Floats],
) -> Floats:  # fmt: skip
    """The damped step; coordinates that would leave their bounds stay."""
    gradient = slope.T @ residual
    curved = slope.T @ slope
    curved = curved + damping * np.diag(np.diag(curved) + 1 / steps**2)
    stays = ((u <= bounds[0]) & (gradient > 0)) | ((u >= bounds[1]) & (gradient < 0))
    free = np.flatnonzero(~stays)
    out = np.zeros(len(u))
    out[free] = np.linalg.solve(curved[np.ix_(free, free)], -gradient[free])
    return out


def _differences(seen: _Seen, u: Floats, steps: Floats, high: Floats) -> Floats:
    """float64[n_residuals, n_coordinates]: the Jacobian at *u*, by steps that are seen."""
    base, columns = seen(u), []
    for i, step in enumerate(np.where(u + steps < high, steps, -steps)):
        moved = u.copy()
        moved[i] += step
        columns.append((seen(moved) - base) / step)
    return np.stack(columns, axis=1)


class _Seen:
    """Residuals, each evaluated once and kept."""

    def __init__(self, residuals: Callable[[Floats], Floats]) -> None:
        self._residuals = residuals
        self._known: dict[bytes, Floats] = {}
        self.rows: list[tuple[Floats, Floats]] = []

    def __call__(self, u: Floats) -> Floats:
        key = u.tobytes()
        if key not in self._known:
            self._known[key] = self._residuals(u)
            self.rows.append((u.copy(), self._known[key]))
        return self._known[key]
