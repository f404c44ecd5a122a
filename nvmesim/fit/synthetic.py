"""The likelihood of measured figures under a simulation, on a quadratic emulator of it.

Candidates are simulated with random numbers of their own; a regression of their figures on the
parameters gives the expected figures, what it leaves over how figures of one run scatter together.
Figures are first made into as many statistics as there are parameters, the least-squares estimates
that are linear in them: their scatter is known well where that of a hundred figures is not. Half
of the candidates make the statistics, the others tell what to expect of them: where they were made
the chance in their slopes looks like knowledge.
Sources: Wood 2010 (synthetic likelihood); Beaumont, Zhang and Balding 2002 (regression on
simulations); Fearnhead and Prangle 2012 (estimates as statistics).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nvmesim.fit.emulator import Floats, Ints, feature_slopes, features
from nvmesim.fit.quadratic import Design

Bools = npt.NDArray[np.bool_]
TINY = 1e-10
"""Variance that any figure has at least: a rounding error of 1e-5."""
RIDGE = 1e-6
"""Of the statistics' normal equations, relative: a parameter that no figure tells stays defined."""
CONFUSED = 2
"""Figures a parameter from which on they are made into statistics."""
SIZES = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0,
         9.0, 14.0, 20.0)  # fmt: skip
"""Tried sizes of the error beside sampling, in units of what is assumed."""
FEW = 4
"""Degrees of freedom below which the error beside sampling is taken as assumed."""
STEPS = 25
MEDIAN_OF = 400
"""Draws whose middle one is looked for."""
LEASH = 3.0
"""Standard deviation of a normal prior about a region, in units of the region's: outside of it the
quadratic is a guess. What is likely is narrower than its region, and hardly feels this."""


@dataclass(frozen=True)
class Task:
    """What is to be inferred: figures as logarithms, parameters in coordinates of their own."""

    names: tuple[str, ...]
    simulate: Callable[[Floats, int, float], Floats]
    """(float64[n_parameters], seed, share of the usual requests) -> float64[n_figures]"""
    measured: Floats
    run: Ints
    """int64[n_figures]: the run that a figure is of; different runs share no noise"""
    sample: Floats
    """float64[n_figures]: variance of the measured figure in units of a usual simulated one's"""
    assumed: Floats
    """float64[n_figures]: standard error beside sampling: run to run, and what no model follows"""
    floor: Floats
    """float64[n_figures]: standard error beside sampling, always there: bins, ends of runs"""
    low: Floats
    high: Floats
    """float64[n_parameters]: between these all values are equally likely beforehand"""
    begin: tuple[Floats, Floats]
    """Ends of the box that is searched first, inside the bounds"""
    about: Floats
    known: Floats
    """float64[n_parameters]: where a normal prior lies, and 1 / variance; 0: there is none"""
    tilt: Floats | float = 0.0
    """float64[n_parameters]: how fast the logarithm of the density beforehand rises; 1: where the
    coordinate is a logarithm, and all values of what it is of are equally likely"""
    profiled: str = ""
    """A coordinate whose interval must hold on either side of what is open: see `Inferred.span`"""
    snapped: Callable[[Floats], Floats] = lambda u: u
    """float64[n, n_parameters] -> the nearest that can be simulated: counts are whole numbers"""
    allowed: Callable[[Floats], Bools] = lambda u: np.ones(len(u), bool)
    """float64[n, n_parameters] -> bool[n]: what bounds alone cannot say"""

    @property
    def freedom(self) -> int:
        """Figures less parameters that they are to tell."""
        return len(self.measured) - int((self.known == 0).sum())

    def permits(self, u: Floats) -> Bools:
        """bool[n]: which of float64[n, n_parameters] are inside the bounds and allowed."""
        inside = ((u >= self.low) & (u <= self.high)).all(axis=1)
        out: Bools = inside & self.allowed(u)
        return out


@dataclass(frozen=True)
class Region:
    """Where candidates are simulated: a normal distribution."""

    centre: Floats
    spread: Floats
    """float64[n_parameters, n_parameters]: covariance"""

    @property
    def scale(self) -> Floats:
        """float64[n_parameters]: standard deviations, the unit of an emulator's coordinates."""
        out: Floats = np.sqrt(np.diag(self.spread))
        return out

    def away(self, u: Floats) -> Floats:
        """float64[n]: mean squared distance of float64[n, n_parameters], in standard deviations."""
        root = np.linalg.inv(np.linalg.cholesky(self.spread))
        out: Floats = (((u - self.centre) @ root.T) ** 2).mean(axis=1)
        return out

    def ratios(self, other: Floats) -> Floats:
        """Standard deviations of covariance *other* along its axes, in units of this region's."""
        root = np.linalg.inv(np.linalg.cholesky(self.spread))
        values = np.linalg.eigvalsh(root @ other @ root.T)
        out: Floats = np.sqrt(np.maximum(values, 0.0))
        return out

    def shrunk(self, other: Floats, least: float) -> Floats:
        """Covariance *other*, with no standard deviation below *least* of this region's."""
        root = np.linalg.cholesky(self.spread)
        back = np.linalg.inv(root)
        values, axes = np.linalg.eigh(back @ other @ back.T)
        out: Floats = root @ (axes * np.maximum(values, least**2)) @ axes.T @ root.T
        return (out + out.T) / 2


class Emulator:
    """Figures as quadratics of the parameters in a region, and how one run scatters about them."""

    def __init__(self, task: Task, region: Region, u: Floats, figures: Floats) -> None:
        self.region, self.figures = region, figures
        self.design = Design(self.z(u))
        found = self.design.fit(figures)
        self.terms = found.terms
        together = task.run[:, None] == task.run[None, :]
        self.scatter: Floats = np.where(together, found.scatter(), 0.0)
        """float64[n_figures, n_figures]: of one usual run, lack of fit included"""
        self.shrunk: Floats = _shrunk(self.scatter, int(found.freedom.mean()))

    def z(self, u: Floats) -> Floats:
        """Coordinates of float64[n, n_parameters]: standard deviations from the centre."""
        out: Floats = (u - self.region.centre) / self.region.scale
        return out

    def slope(self, z: Floats) -> Floats:
        """float64[n_figures, n_parameters]: derivatives at one *z*."""
        out: Floats = np.einsum("tp,tk->kp", feature_slopes(z[None])[0], self.terms)
        return out


@dataclass(frozen=True)
class Emulators:
    """Emulators of one region: of all its candidates, and of two halves of them."""

    whole: Emulator
    maker: Emulator
    """Whose slopes make the statistics"""
    judge: Emulator
    """Who tells their expectation and scatter; the same as the others where candidates are few"""


def _shrunk(scatter: Floats, freedom: int) -> Floats:
    """*scatter* with correlations drawn towards 0 by as much as they are unsure.

    Source: Schaefer and Strimmer 2005, a shrinkage approach to large-scale covariance estimation.
    """
    size = np.sqrt(np.diag(scatter) + TINY)
    correlation = scatter / np.outer(size, size)
    off = (scatter != 0) & ~np.eye(len(size), dtype=bool)
    unsure = float(((1 - correlation**2) ** 2)[off].sum()) / max(1, freedom - 1)
    share = min(1.0, unsure / max(1e-9, float((correlation**2)[off].sum())))
    out: Floats = np.where(off, correlation * (1 - share), correlation) * np.outer(size, size)
    return out


class Likelihood:
    """Minus the logarithm of likelihood and prior, over an emulator's coordinates.

    *tau*: size of the error beside sampling, in units of the assumed. *rough*: the emulator may be
    off by as much as one run scatters, as long as its region is wide. *made*, float64[n_statistics,
    n_figures]: what makes figures into statistics; None: they are taken as they are.
    """

    def __init__(
        self, task: Task, emulator: Emulator, tau: float, *, rough: bool, made: Floats | None = None
    ) -> None:
        self.task, self.emulator = task, emulator
        region = emulator.region
        unit = region.scale
        self.low, self.high = (task.low - region.centre) / unit, (task.high - region.centre) / unit
        self._about = (task.about - region.centre) / unit
        self._stiff = np.diag(task.known * unit**2)
        self._tilt: Floats = task.tilt * unit
        # no further than the emulator can be right
        self._leash = np.linalg.inv(region.spread / np.outer(unit, unit)) / LEASH**2
        scatter = emulator.shrunk if made is None else emulator.scatter
        noise = noise_of(task, scatter, tau, rough=rough)
        if made is None:
            made = np.eye(len(noise))
        root = np.linalg.inv(np.linalg.cholesky(made @ noise @ made.T)) @ made
        own, turn = np.linalg.eigh(root @ scatter @ root.T)
        self._own = np.maximum(own, 0.0)
        weights = (turn.T @ root).T
        self._surfaces = emulator.design.fit(emulator.figures @ weights)
        self._terms, self._target = self._surfaces.terms, task.measured @ weights

    def residuals(self, z: Floats) -> tuple[Floats, Floats]:
        """float64[n, n_statistics] at float64[n, n_parameters], and their variances.

        1, and the emulator's own, which grows with the distance from its data.
        """
        terms = features(z)
        leverage = self.emulator.design.leverage(terms, self._surfaces)
        residual: Floats = terms @ self._terms - self._target
        return residual, 1 + leverage * self._own

    def cost(self, z: Floats) -> Floats:
        """float64[n] at float64[n, n_parameters]; infinite where the task does not permit them."""
        residual, variance = self.residuals(z)
        out: Floats = 0.5 * (residual**2 / variance + np.log(variance)).sum(axis=1)
        out = out + 0.5 * np.einsum("ij,ij->i", z @ self._leash, z)
        off = z - self._about
        out = out + 0.5 * np.einsum("ij,ij->i", off @ self._stiff, off) - z @ self._tilt
        region = self.emulator.region
        permitted = self.task.permits(region.centre + z * region.scale)
        return np.where(permitted, out, np.inf)

    def curvature(self, z: Floats) -> Floats:
        """float64[n, n_parameters, n_parameters]: second derivatives at each *z*."""
        return self._curved(self._slopes(z))

    def _curved(self, slope: Floats) -> Floats:
        out: Floats = slope.transpose(0, 2, 1) @ slope
        return out + self._leash + self._stiff

    def optimum(self, starts: Floats) -> Floats:
        """float64[n_parameters]: the best end of searches from *starts*."""
        z, cost = self._descended(starts, np.ones(starts.shape[1]))
        out: Floats = z[int(np.argmin(cost))]
        return out

    def central(self, draws: Floats) -> Floats:
        """float64[n_parameters]: the likeliest near the middle of float64[n, n_parameters] *draws*.

        The optimum may lie in a far corner of a valley that is nearly level, where hardly a draw
        is. So it is drawn to the draw that is nearest to all others, as stiffly as the draws
        scatter; where they are normal, that is the optimum.
        """
        some = draws[:: max(1, len(draws) // MEDIAN_OF)]
        axes = np.linalg.inv(np.atleast_2d(np.cov(draws.T)) + TINY * np.eye(draws.shape[1]))
        apart = some[:, None, :] - some[None, :, :]
        size = np.sqrt(np.einsum("ijp,pq,ijq->ij", apart, axes, apart, optimize=True))
        middle = some[int(np.argmin(size.sum(axis=1)))]
        pulled = copy(self)
        pulled._stiff = self._stiff + axes
        pulled._about = np.linalg.solve(pulled._stiff, self._stiff @ self._about + axes @ middle)
        return pulled.optimum(middle[None])

    def profile(self, index: int, values: Floats, start: Floats) -> tuple[Floats, Floats]:
        """The likeliest where coordinate *index* has each of float64[n] *values*, and their costs.

        Source: Venzon and Moolgavkar 1988, profile-likelihood-based confidence intervals.
        """
        free = np.ones(len(start))
        free[index] = 0.0
        starts = np.tile(start, (len(values), 1))
        starts[:, index] = values
        return self._descended(starts, free)

    def _descended(self, starts: Floats, free: Floats) -> tuple[Floats, Floats]:
        """Ends of damped Gauss-Newton steps along the *free* coordinates (1, else 0), and costs."""
        z = np.clip(starts, self.low, self.high)
        damping, cost = np.full(len(z), 1e-2), self.cost(z)
        unit = np.eye(z.shape[1])
        for _ in range(STEPS):
            slope = self._slopes(z)
            gradient = np.einsum("nkp,nk->np", slope, self.residuals(z)[0])
            gradient += z @ self._leash + (z - self._about) @ self._stiff - self._tilt
            curve = self._curved(slope) * np.outer(free, free) + np.diag(1 - free)
            size = np.einsum("npp->np", curve) + 1e-9
            curve = curve + (damping[:, None] * size)[:, :, None] * unit
            step = np.linalg.solve(curve, (gradient * free)[..., None])[..., 0]
            tried = np.clip(z - step, self.low, self.high)
            new = self.cost(tried)
            better = new < cost
            z, cost = np.where(better[:, None], tried, z), np.where(better, new, cost)
            damping = np.where(better, damping / 4, damping * 6)
        return z, cost

    def _slopes(self, z: Floats) -> Floats:
        """float64[n, n_statistics, n_parameters]."""
        out: Floats = self._terms.T @ feature_slopes(z)
        return out


def _statistics(task: Task, emulator: Emulator, tau: float, at: Floats, *, rough: bool) -> Floats:
    """float64[n_parameters, n_figures]: least-squares estimates about the coordinates *at*."""
    slope = emulator.slope(at)
    weighed = np.linalg.solve(noise_of(task, emulator.shrunk, tau, rough=rough), slope).T
    normal = weighed @ slope
    ridge = RIDGE * np.trace(normal) * np.eye(len(normal))
    out: Floats = np.linalg.solve(normal + ridge, weighed)
    return out


def noise_of(task: Task, scatter: Floats, tau: float, *, rough: bool) -> Floats:
    """float64[n_figures, n_figures]: covariance of the measured figures about the emulator's."""
    size = np.sqrt(task.sample)
    beside = task.floor**2 + (tau * task.assumed) ** 2 + TINY
    out: Floats = scatter * np.outer(size, size) + np.diag(beside)
    return out + scatter if rough else out


def likelihood_of(
    task: Task, emulators: Emulators, starts: Floats, *, rough: bool, plain: bool
) -> tuple[Likelihood, Floats, float, float]:
    """The likelihood, its optimum, the size of the error beside sampling, and chi-square without.

    That size is the smallest at which residuals are no larger than expected. Source: DerSimonian
    and Kacker 2007, the method of moments. *starts* are coordinates; *plain*: figures as they are.
    """
    sizes = SIZES if task.freedom >= FEW else [t for t in SIZES if t >= 1]
    first, tau = 0.0, sizes[0]
    found = Likelihood(task, emulators.whole, tau, rough=rough)
    z = starts[0]
    for tau in sizes:
        found = Likelihood(task, emulators.whole, tau, rough=rough)
        z = found.optimum(starts)
        starts = np.concatenate([z[None], starts[:3]])
        residual, variance = found.residuals(z[None])
        chi = float((residual**2 / variance).sum())
        first = first or chi
        if chi <= max(1, task.freedom):
            break
    if not (plain or len(task.measured) < CONFUSED * len(task.names)):
        made = _statistics(task, emulators.maker, tau, z, rough=rough)
        found = Likelihood(task, emulators.judge, tau, rough=rough, made=made)
        z = found.optimum(starts)
    return found, z, tau, first
