"""A quadratic emulator of what a simulation answers near a fit, and the fit's optimum on it.

Every candidate is simulated with random numbers of its own; a regression over many candidates
averages that noise out, so that neither the optimum nor the slopes follow one run's luck. What the
regression leaves over is the scatter of one run: correlated figures (percentiles and the mean of
one run) keep their correlation. Sources: Beaumont, Zhang and Balding 2002 (regression adjustment);
Wood 2010 (synthetic likelihood); Efron and Tibshirani 1993, chapter 6 (parametric bootstrap).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from nvmesim.errors import FitError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Simulate = Callable[[Floats, int, float], Floats]
"""(logarithms of the parameters, seed, share of the usual requests) -> logarithms of the figures,
float64[n_figures]"""

DRAWS = 256
"""Draws of the joint distribution."""
EDGE = 1.8
"""How far outside the simulated region an optimum is looked for, in its half-widths."""
FREE = 1.0
"""Standard deviation of a parameter that nothing but the data tell: a factor of e either way."""
ROUGH_LOOPS = 3
"""Regions searched with few requests, at most."""
STEPS = 20
TAUS = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0)
"""Tried sizes of the error that is not sampling, in units of what is assumed."""
FEW = 4
"""Degrees of freedom below which that size cannot be told from the residuals: then the assumed."""
SPREAD = 2.6
"""Half-width of the next region in standard errors of the parameter."""
LEAST_HALF, MOST_HALF = 0.015, 0.6
MAX_THREADS = 4


@dataclass(frozen=True)
class Care:
    """How carefully a region is simulated."""

    per_term: float
    """Candidates for each term of the quadratic"""
    effort: float
    """Requests of each, in units of the usual"""


ROUGH, FINE = Care(2.2, 0.4), Care(2.7, 1.0)


@dataclass(frozen=True)
class Problem:
    """What is to be fitted; everything on a logarithmic scale."""

    names: tuple[str, ...]
    simulate: Simulate
    measured: Floats
    """float64[n_figures]"""
    run: Ints
    """int64[n_figures]: the run that a figure is of; different runs share no noise"""
    sample: Floats
    """float64[n_figures]: variance of the measured figure in units of a simulated one's"""
    assumed: Floats
    """float64[n_figures]: standard error beside sampling: run to run, and what no model follows"""
    low: Floats
    high: Floats
    """float64[n_parameters]: bounds"""
    prior: Floats
    """float64[n_parameters]: standard deviation around the start; `FREE`: the data are to tell"""
    floor: Floats
    """float64[n_figures]: standard error beside sampling that is always there: bins, and the ends
    of a run"""
    whole: npt.NDArray[np.bool_]
    """bool[n_parameters]: counts, simulated as whole numbers"""
    least: Floats
    """float64[n_parameters]: half-widths that regions have at least"""

    def snapped(self, logs: Floats) -> Floats:
        """Return *logs* with counts as whole numbers, float64[..., n_parameters]."""
        counts = np.log(np.maximum(np.round(np.exp(logs)), 1.0))
        return np.where(self.whole, counts, logs)

    def least_half(self, logs: Floats) -> Floats:
        """float64[n_parameters]: half-widths in which a figure can be seen to change."""
        return np.where(self.whole, np.maximum(self.least, 1.5 / np.exp(logs)), self.least)


@dataclass(frozen=True)
class Local:
    """An optimum with its joint distribution."""

    names: tuple[str, ...]
    logs: Floats
    """float64[n_parameters]"""
    draws: Floats
    """float64[n_draws, n_parameters], logarithms"""
    cost: float
    """Half the sum of squared residuals in standard errors"""
    tau: float
    """Size of the error beside sampling, in units of the assumed"""
    residuals: Floats
    """float64[n_figures]: logarithm of simulated / measured"""

    @property
    def values(self) -> dict[str, float]:
        """Parameter -> value."""
        return dict(zip(self.names, np.exp(self.logs).tolist(), strict=True))

    def columns(self) -> dict[str, Floats]:
        """Parameter -> its draws, float64[n_draws]."""
        return {n: np.exp(self.draws[:, i]) for i, n in enumerate(self.names)}


@dataclass(frozen=True)
class Emulator:
    """Figures as quadratics of the parameters within a region."""

    centre: Floats
    half: Floats
    terms: Floats
    """float64[n_terms, n_figures]"""
    left: Floats
    """float64[n_candidates, n_figures]: what the quadratic does not explain, unbiased in size"""
    inverse: Floats
    """float64[n_terms, n_terms]: of the normal equations, for the emulator's own error"""

    def at(self, z: Floats) -> Floats:
        """float64[n, n_figures] at float64[n, n_parameters], in half-widths from the centre."""
        out: Floats = features(z) @ self.terms
        return out

    def slope(self, z: Floats) -> Floats:
        """float64[n, n_figures, n_parameters]: derivatives of `at`."""
        out: Floats = np.einsum("ntp,tk->nkp", feature_slopes(z), self.terms)
        return out

    def leverage(self, z: Floats) -> float:
        """Variance of the emulator at *z*, float64[n_parameters], in units of one run's."""
        x = features(z[None, :])[0]
        return float(x @ self.inverse @ x)


@cache
def _pairs(p: int) -> tuple[Ints, Ints]:
    first, second = np.triu_indices(p)
    return first, second


def features(z: Floats) -> Floats:
    """float64[n, n_terms]: 1, all z, all products of two; of float64[n, n_parameters].

    >>> features(np.array([[2.0, 3.0]])).tolist()
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    first, second = _pairs(z.shape[1])
    return np.concatenate([np.ones((len(z), 1)), z, z[:, first] * z[:, second]], axis=1)


def feature_slopes(z: Floats) -> Floats:
    """float64[n, n_terms, n_parameters]: derivatives of `features`.

    >>> feature_slopes(np.array([[2.0, 3.0]]))[0, :, 0].tolist()
    [0.0, 1.0, 0.0, 4.0, 3.0, 0.0]
    """
    n, p = z.shape
    first, second = _pairs(p)
    pairs = np.zeros((n, len(first), p))
    rows = np.arange(len(first))
    pairs[:, rows, first] += z[:, second]
    pairs[:, rows, second] += z[:, first]
    unit = np.broadcast_to(np.eye(p), (n, p, p))
    return np.concatenate([np.zeros((n, 1, p)), unit, pairs], axis=1)


def fit_local(
    problem: Problem, start: Sequence[float], half: Sequence[float], *, seed: int = 1,
    rough: int = ROUGH_LOOPS,
    tell: Callable[[str], None] = lambda _: None,
) -> Local:  # fmt: skip
    """Find the optimum near *start* (values) in regions of *half* (relative), and draw around it.

    The region follows the optimum and shrinks or grows to a few standard errors, at first with few
    requests, in at most *rough* steps. Raises FitError if the simulation gives no finite figures.
    """
    at = np.clip(np.log(np.asarray(start, float)), problem.low, problem.high)
    first, half_ = at.copy(), np.clip(np.asarray(half, float), problem.least_half(at), MOST_HALF)
    for loop in range(rough):
        tell(f"region {loop + 1}")
        _, at, half_, settled = _region(problem, at, half_, first, seed + 1000 * loop, ROUGH)
        if settled:
            break
    tell("the optimum and its surroundings")
    return _region(problem, at, half_, first, seed + 100_000, FINE)[0]


def _region(
    problem: Problem, centre: Floats, half: Floats, first: Floats, seed: int, care: Care
) -> tuple[Local, Floats, Floats, bool]:
    """The optimum in one region, the next region, and whether this one was right."""
    emulator = emulate(problem, centre, half, seed, care)
    found, moved, spread = _solve(problem, emulator, first, seed)
    least = problem.least_half(found.logs)
    wanted = np.clip(SPREAD * spread * half, least, np.maximum(MOST_HALF, least))
    right = (wanted > 0.4 * half) & (wanted < 1.6 * half) | (half <= least)
    settled = bool(np.all(np.abs(moved) < 0.9) and np.all(right))
    return found, found.logs, np.clip(wanted, half / 2.5, half * 2), settled


def emulate(problem: Problem, centre: Floats, half: Floats, seed: int, care: Care) -> Emulator:
    """Simulate candidates around *centre* and regress their figures on the parameters."""
    from scipy.stats import qmc

    p = len(centre)
    n_terms = 1 + p + p * (p + 1) // 2
    count = max(n_terms + 10, round(care.per_term * n_terms))
    cube = qmc.LatinHypercube(p, rng=np.random.default_rng(seed)).random(count)
    z = 2 * cube - 1
    logs = problem.snapped(np.clip(centre + z * half, problem.low, problem.high))
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        seeds = range(seed + 1, seed + 1 + count)
        rows = np.array(list(pool.map(problem.simulate, logs, seeds, [care.effort] * count)))
    if not np.all(np.isfinite(rows)):
        raise FitError("a simulated figure is not finite; the captures leave the model's range")
    x = features((logs - centre) / half)
    inverse = np.asarray(np.linalg.pinv(x.T @ x), np.float64)
    terms = inverse @ x.T @ rows
    left = rows - x @ terms
    left *= np.sqrt(count / max(1, count - n_terms))
    return Emulator(centre, half, terms, left * np.sqrt(care.effort), inverse / care.effort)


def _solve(
    problem: Problem, emulator: Emulator, first: Floats, seed: int
) -> tuple[Local, Floats, Floats]:
    """Optimum, its distance from the centre and its standard error, both in half-widths."""
    sample = _sampled(problem, emulator)
    tau, z, weight = _size_of_errors(problem, emulator, first, sample)
    draws = _draws(problem, emulator, first, z, tau, weight, seed)
    residual = emulator.at(z[None, :])[0] - problem.measured
    found = Local(
        problem.names, emulator.centre + z * emulator.half, emulator.centre + draws * emulator.half,
        0.5 * float(weight @ residual**2), tau, residual,
    )  # fmt: skip
    return found, z, draws.std(axis=0)


def _sampled(problem: Problem, emulator: Emulator) -> Floats:
    """float64[n_figures]: variance of the measured figures by sampling."""
    out: Floats = problem.sample * emulator.left.var(axis=0) + problem.floor**2
    return out


def _size_of_errors(
    problem: Problem, emulator: Emulator, first: Floats, sample: Floats
) -> tuple[float, Floats, Floats]:
    """Size of the error beside sampling, the optimum under it, and the weights.

    The smallest at which the residuals are no larger than expected. Source: DerSimonian and Kacker
    2007, generalised method of moments for a variance between studies.
    """
    freedom = len(problem.measured) - int((problem.prior >= FREE).sum())
    taus = [t for t in TAUS if t >= 1.0] if freedom < FEW else list(TAUS)
    before: tuple[float, float] | None = None
    tau, z, weight = taus[-1], np.zeros(len(first)), np.ones(len(sample))
    for tau in taus:
        z, weight, excess = _under(problem, emulator, first, sample, tau)
        if excess <= 0:
            if before is not None:
                share = before[1] / (before[1] - excess)
                tau = before[0] + (tau - before[0]) * share
                z, weight, _ = _under(problem, emulator, first, sample, tau)
            break
        before = (tau, excess)
    return tau, z, weight


def _under(
    problem: Problem, emulator: Emulator, first: Floats, sample: Floats, tau: float
) -> tuple[Floats, Floats, float]:
    """Optimum, weights, and by how much residuals are larger than expected, with error *tau*."""
    own = emulator.left.var(axis=0) * emulator.leverage(np.zeros(len(first)))
    variance = np.maximum(sample + own + (tau * problem.assumed) ** 2, 1e-12)
    weight = 1 / variance
    z = _optima(problem, emulator, first, problem.measured[None, :], first[None, :], weight)[0]
    slope = emulator.slope(z[None, :])[0]
    scaled = slope.T * weight
    stiff = _prior(problem, emulator)
    pull = np.linalg.pinv(scaled @ slope + np.diag(stiff)) @ scaled
    keep = np.eye(len(variance)) - slope @ pull
    expected = float(np.sum(weight * np.einsum("ij,j,ij->i", keep, variance, keep)))
    residual = emulator.at(z[None, :])[0] - problem.measured
    return z, weight, float(weight @ residual**2) / max(expected, 1e-9) - 1.0


def _prior(problem: Problem, emulator: Emulator) -> Floats:
    """float64[n_parameters]: stiffness of the prior in half-widths."""
    out: Floats = (emulator.half / problem.prior) ** 2
    return out


def _optima(
    problem: Problem, emulator: Emulator, first: Floats, figures: Floats, priors: Floats,
    weight: Floats, start: Floats | None = None,
) -> Floats:  # fmt: skip
    """float64[n, n_parameters]: best z for each row of *figures*, by damped Gauss-Newton steps."""
    n, p = len(figures), len(first)
    low = np.maximum((problem.low - emulator.centre) / emulator.half, -EDGE)
    high = np.minimum((problem.high - emulator.centre) / emulator.half, EDGE)
    stiff = _prior(problem, emulator)
    about = (priors - emulator.centre) / emulator.half
    z = np.tile(np.clip(np.zeros(p) if start is None else start, low, high), (n, 1))
    damping = np.full(n, 1e-3)
    cost = _costs(emulator, z, figures, weight, stiff, about)
    for _ in range(STEPS):
        slope = emulator.slope(z)
        residual = emulator.at(z) - figures
        gradient = np.einsum("nkp,k,nk->np", slope, weight, residual) + stiff * (z - about)
        curve = np.einsum("nkp,k,nkq->npq", slope, weight, slope) + np.diag(stiff)
        size = np.einsum("npp->np", curve)
        curve = curve + np.einsum("n,np,pq->npq", damping, size + 1e-9, np.eye(p))
        step = np.linalg.solve(curve, gradient[..., None])[..., 0]
        tried = np.clip(z - step, low, high)
        new = _costs(emulator, tried, figures, weight, stiff, about)
        better = new < cost
        z = np.where(better[:, None], tried, z)
        cost = np.where(better, new, cost)
        damping = np.where(better, damping / 4, damping * 6)
    return z


def _costs(
    emulator: Emulator, z: Floats, figures: Floats, weight: Floats, stiff: Floats, about: Floats
) -> Floats:
    residual = emulator.at(z) - figures
    out: Floats = (residual**2) @ weight + ((z - about) ** 2) @ stiff
    return out


def _draws(
    problem: Problem, emulator: Emulator, first: Floats, z: Floats, tau: float, weight: Floats,
    seed: int,
) -> Floats:  # fmt: skip
    """float64[n_draws, n_parameters]: optima of captures as the fitted model would give them.

    Each has the noise of its sample (another simulated run's, whole, so that figures of one run
    move together), of the emulator, the error beside sampling, and priors moved likewise.
    """
    rng = np.random.default_rng(seed)
    n_figures = len(problem.measured)
    noise = np.zeros((DRAWS, n_figures))
    own = np.sqrt(emulator.leverage(z))
    for run in np.unique(problem.run):
        of = np.flatnonzero(problem.run == run)
        rows = rng.integers(0, len(emulator.left), (2, DRAWS))
        noise[:, of] += np.sqrt(problem.sample[of]) * emulator.left[rows[0]][:, of]
        noise[:, of] += own * emulator.left[rows[1]][:, of]
    beside = np.hypot(tau * problem.assumed, problem.floor)
    noise += beside * rng.standard_normal(noise.shape)
    priors = first + problem.prior * rng.standard_normal((DRAWS, len(first)))
    figures = emulator.at(z[None, :]) + noise
    return _optima(problem, emulator, first, figures, priors, weight, start=z)
