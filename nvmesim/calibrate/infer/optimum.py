"""Least squares over simulated figures, with common random numbers.

Every evaluation simulates with the same seed, so that a finite difference sees the parameter and
not the noise: a step needs one short run for each parameter and one more. Source of the steps:
Branch, Coleman and Li 1999, the trust-region reflective method of `scipy.optimize.least_squares`.
A fit that is asked to stop ends with the best that it has, not with nothing: searches look between
their steps, for a signal that came in the middle of one would lose it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchAnswer, BenchHost
from nvmesim.calibrate.infer.problem import (
    DRAWS,
    ERRORS,
    Parameter,
    Problem,
    logarithms,
    problem_of,
)
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile
from nvmesim.errors import FitError

EARLY: Final = (
    "stopped early: the best found so far; searches had not ended, intervals are rough and other "
    "explanations may not have been tried"
)
"""What a profile says of a fit that was stopped."""

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)


@contextmanager
def stoppable(asked: threading.Event) -> Iterator[None]:
    """Let fits in the body stop as soon as *asked* is set.

    >>> event = threading.Event()
    >>> with stoppable(event):
    ...     event.set()
    ...     is_stopping()
    True
    """
    before = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(before)


def is_stopping() -> bool:
    """True if the fit in hand was asked to stop.

    >>> is_stopping()
    False
    """
    asked = _asked.get()
    return asked is not None and asked.is_set()


SEED = 1
ROUNDS = 6
"""Steps at most."""
THREADS: Final = min(4, os.cpu_count() or 1)
"""Candidates that are simulated at once: kernels run without Python's lock."""


@dataclass(frozen=True)
class Solution:
    """Where a search ended."""

    values: Floats
    """float64[n_parameters]"""
    cost: float
    jacobian: Floats
    """float64[n_residuals, n_parameters]: of the residuals to what is searched over"""
    residuals: Floats


def misfit(point: Point, answer: BenchAnswer) -> list[float]:
    """Residuals of *point* in standard errors, on a logarithmic scale."""
    pairs: list[tuple[float | None, float | None, float]] = [
        (answer.iops, point.iops, ERRORS["iops"]),
        (answer.mean_s, point.mean_s, ERRORS["mean"]),
    ]
    for percent, value in point.percentiles_s.items():
        pairs.append((answer.percentiles_s.get(percent), value, ERRORS.get(percent, 0.1)))
    return [
        float(np.log(max(model, 1e-12) / measured)) / error
        for model, measured, error in pairs
        if model is not None and measured
    ]


def optimum(
    problem: Problem,
    *,
    start: Floats | None = None,
    rounds: int = ROUNDS,
    effort: float = 1.0,
    seed: int = SEED,
) -> Solution:
    """The least squares of *problem*'s figures and priors, in its coordinates, from *start*.

    *rounds*: steps at most. *effort*: length of its runs, in units of usual ones.
    """
    sigma = np.hypot(np.hypot(problem.assumed, problem.floor), 0.004)
    about, stiff = problem.start, np.sqrt(problem.known)
    if not problem.coordinates:
        return Solution(np.zeros(0), 0.0, np.zeros((1, 0)), np.zeros(1))

    def residuals(u: Floats) -> Floats:
        figures = problem.simulate(problem.snapped(u[None])[0], seed, effort)
        if not np.all(np.isfinite(figures)):
            raise FitError(
                "a simulated figure is not finite; the captures are outside what the model covers"
            )
        return np.concatenate([(figures - problem.measured) / sigma, (u - about) * stiff])

    bounds = (problem.low, problem.high)
    begin = problem.start if start is None else start
    with ThreadPoolExecutor(THREADS) as pool:
        return _searched(residuals, begin, problem.column("step"), bounds, rounds, pool.map)


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
    return replace(found, values=np.asarray(np.exp(found.values)))


def _searched(
    residuals: Callable[[Floats], Floats], start: Floats, steps: Floats,
    bounds: tuple[Floats, Floats], rounds: int,
    each: Callable[..., Iterable[Floats]] = map,
) -> Solution:  # fmt: skip
    """*each* maps the residuals over the ends of a step's differences."""
    from scipy.optimize import least_squares

    known: dict[bytes, Floats] = {}  # each is evaluated once

    def seen(u: Floats) -> Floats:
        if u.tobytes() not in known:
            known[u.tobytes()] = residuals(u)
        return known[u.tobytes()]

    room = bounds[1] - bounds[0]
    first = np.clip(start, bounds[0] + 1e-6 * room, bounds[1] - 1e-6 * room)

    def jacobian(u: Floats) -> Floats:
        base, step = seen(u), np.where(u + steps < bounds[1], steps, -steps)
        moved = u + np.diag(step)
        known.update(zip((m.tobytes() for m in moved), each(residuals, moved), strict=True))
        return np.stack([(seen(m) - base) / s for m, s in zip(moved, step, strict=True)], axis=1)

    found = least_squares(
        seen, first, jac=jacobian, bounds=bounds, max_nfev=rounds, x_scale=np.maximum(steps, 1e-6),
        ftol=2e-3, xtol=1e-4,
    )  # fmt: skip
    jac, fun = np.asarray(found.jac), np.asarray(found.fun)
    return Solution(np.asarray(found.x), float(found.cost), jac, fun)


# -- numbers at the optimum of their rows, with joint draws about it and of what no row tells -----

Values = Mapping[str, float]
"""Numbers by name."""


@dataclass(frozen=True)
class Solved:
    """Parameters that rows determine, and others as they are assumed."""

    problem: Problem
    optimum: Solution
    best: Values
    draws: Sequence[Values]

    def columns(self, names: Mapping[str, str]) -> dict[str, Floats]:
        """float64[`DRAWS`] under each key of *names*: key -> name of the number."""
        return {key: np.array([at[name] for at in self.draws]) for key, name in names.items()}

    @property
    def ends(self) -> Mapping[str, tuple[float, float]]:
        """95 % intervals of what the rows determine, by the curvature."""
        return intervals(self.problem.names, np.exp(self.optimum.values), self.optimum)


def solved(
    points: Sequence[Point], host: BenchHost, make: Callable[[Values], DriveProfile],
    parameters: Sequence[Parameter], *, effort: float = 1.0, rounds: int = ROUNDS,
    shape: bool = True, error: float | None = None,
) -> Solved:  # fmt: skip
    """Find those *parameters* of what *make* builds that *points* tell, beside the others.

    Without *shape* no percentile of the points is looked at. *error*: standard error of all figures
    beside sampling, where it is not the usual.
    """
    fitted = [p for p in parameters if p.told]
    names, loose = [p.name for p in fitted], {p.name: p.start for p in parameters if not p.told}

    def values(u: Floats, more: Values = loose) -> Values:
        return {**more, **dict(zip(names, np.exp(u).tolist(), strict=True))}

    rows = points if shape else [replace(p, percentiles_s={}, body_s={}) for p in points]
    problem = problem_of(rows, logarithms(fitted), lambda u: make(values(u)), host)
    if error is not None:
        problem = replace(problem, assumed=np.full_like(problem.assumed, error))
    found = optimum(problem, rounds=rounds, effort=effort)
    moved = zip(drawn(problem, found), scattered(parameters), strict=True)
    return Solved(problem, found, values(found.values), [values(u, more) for u, more in moved])


def scattered(parameters: Sequence[Parameter]) -> list[Values]:
    """`DRAWS` draws of what no row tells, from what is assumed of it, within its bounds."""
    rng = np.random.default_rng(3)
    columns = {
        c.name: np.exp(np.clip(c.start + c.doubt * rng.standard_normal(DRAWS), c.low, c.high))
        for c in logarithms(p for p in parameters if not p.told)
    }
    return [{name: float(column[i]) for name, column in columns.items()} for i in range(DRAWS)]


def covariance(found: Solution) -> Floats:
    """float64[n_parameters, n_parameters]: of parameters fitted on a logarithmic scale.

    From the curvature, as `intervals`.
    """
    jacobian, residuals = found.jacobian, found.residuals
    n_residuals, n_parameters = jacobian.shape
    freedom = max(1, n_residuals - n_parameters)
    scale = max(1.0, float(residuals @ residuals) / freedom)
    information = jacobian.T @ jacobian
    ridge = np.eye(n_parameters) * 1e-6 * max(1e-12, float(np.trace(information)))
    return np.asarray(np.linalg.inv(information + ridge) * scale)


def drawn(problem: Problem, found: Solution) -> Floats:
    """float64[`DRAWS`, n_parameters]: joint draws around the optimum, logarithms, in their bounds.

    What the points do not determine is kept within a factor of e either way.
    """
    size, axes = np.linalg.eigh(covariance(found))
    normal = np.random.default_rng(1).standard_normal((DRAWS, len(size)))
    moved = normal * np.minimum(np.sqrt(np.maximum(size, 0.0)), 0.5) @ axes.T
    return np.asarray(np.clip(found.values + np.clip(moved, -1.0, 1.0), problem.low, problem.high))


def intervals(
    names: Sequence[str], values: Floats, found: Solution
) -> Mapping[str, tuple[float, float]]:
    """95 % intervals of parameters fitted on a logarithmic scale, from the fit's curvature.

    ``values`` float64[n_parameters]; residuals of *found* are in units of their standard error, its
    jacobian is to the logarithm of the parameters. The residuals' own size counts where it is above
    1. A parameter that the points do not determine gets a factor of e either way. Source: Seber and
    Wild, Nonlinear Regression, section 5.1.
    """
    half = np.minimum(1.0, 1.96 * np.sqrt(np.diag(covariance(found))))
    return {
        name: (float(value * np.exp(-h)), float(value * np.exp(h)))
        for name, value, h in zip(names, values, half, strict=True)
    }
