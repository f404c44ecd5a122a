"""Least squares over simulated figures, with common random numbers.

Every evaluation simulates with the same seed, so that a finite difference sees the parameter and
not the noise: a step needs one short run for each parameter and one more. Source of the steps:
Branch, Coleman and Li 1999, the trust-region reflective method of `scipy.optimize.least_squares`.
A fit that is asked to stop ends with the best that it has, not with nothing: searches look between
their steps, for a signal that came in the middle of one would lose it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchAnswer
from nvmesim.calibrate.infer.problem import ERRORS, Problem
from nvmesim.calibrate.points import Point
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
    problem: Problem, *, start: Floats | None = None, rounds: int = ROUNDS, effort: float = 1.0
) -> Solution:
    """The least squares of *problem*'s figures and priors, in its coordinates, from *start*."""
    sigma = np.hypot(np.hypot(problem.assumed, problem.floor), 0.004)
    about, stiff = problem.start, np.sqrt(problem.known)
    if not problem.coordinates:
        return Solution(np.zeros(0), 0.0, np.zeros((1, 0)), np.zeros(1))

    def residuals(u: Floats) -> Floats:
        figures = problem.simulate(problem.snapped(u[None])[0], SEED, effort)
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
