"""Likelihood of figures that an emulator tells."""

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.infer.emulator import TINY, Emulator, feature_slopes, features
from nvmesim.calibrate.infer.problem import Problem

SIZES = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0,
         9.0, 14.0, 20.0)  # fmt: skip
"""Tried sizes of the error beside sampling, in units of what is assumed."""
FEW = 4
"""Degrees of freedom below which the error beside sampling is taken as assumed."""
STEPS = 25
LEASH = 3.0
"""Standard deviation of a normal prior about a region, in units of the region's: outside of it the
quadratic is a guess. What is likely is narrower than its region, and hardly feels this."""
CONFUSED = 0.1
"""Noise of one simulation in all figures, in units of their variance, for each candidate, from
which on statistics are made of them: about so much of the slopes' own noise is taken for
information, in units of a region's standard deviation."""
RIDGE = 1e-6
"""Of the trace of the normal equations: what nothing tells has no estimate."""
ROUNDING = 1e-12
"""Share of the variance of statistics below which it is rounding's: some thousand times what
doubles are off by."""


class Likelihood:
    """Minus the logarithm of likelihood and prior, over an emulator's coordinates.

    *tau*: size of the error beside sampling, in units of the assumed. *rough*: the emulator may be
    off by as much as one run scatters, as long as its region is wide. *made*: what makes figures
    into statistics, float64[n_statistics, n_figures]; None: they are taken as they are.
    """

    def __init__(
        self, problem: Problem, emulator: Emulator, tau: float, *, rough: bool = False,
        made: Floats | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.emulator = problem, emulator
        region = emulator.region
        unit = region.scale
        self.low = (problem.low - region.centre) / unit
        self.high = (problem.high - region.centre) / unit
        self._about = (problem.start - region.centre) / unit
        self._stiff = np.diag(problem.known * unit**2)
        self._tilt: Floats = problem.column("tilt") * unit
        # no further than the emulator can be right
        self._leash = np.linalg.inv(region.spread / np.outer(unit, unit)) / LEASH**2
        # of a few statistics the covariance is known as it is; of many figures hardly
        scatter = emulator.shrunk if made is None else emulator.scatter
        noise = self._noise = noise_of(problem, scatter, tau, rough=rough)
        made = np.eye(len(noise)) if made is None else made
        root = whiten(made, noise)
        own, turn = np.linalg.eigh(root @ scatter @ root.T)
        self.own: Floats = np.maximum(own, 0.0)
        weights = (turn.T @ root).T
        self._surfaces = emulator.design.fit(emulator.figures @ weights)
        self._terms, self._target = self._surfaces.terms, problem.measured @ weights

    def residuals(self, z: Floats) -> tuple[Floats, Floats]:
        """float64[n, n_figures] at float64[n, n_parameters], and their variances.

        1, and the emulator's own, which grows with the distance from its data.
        """
        terms = features(z)
        leverage = self.emulator.design.leverage(terms, self._surfaces)
        residual: Floats = terms @ self._terms - self._target
        return residual, 1 + leverage * self.own

    def cost(self, z: Floats) -> Floats:
        """float64[n] at float64[n, n_parameters]; infinite where not permitted."""
        residual, variance = self.residuals(z)
        out: Floats = 0.5 * (residual**2 / variance + np.log(variance)).sum(axis=1)
        out = out + 0.5 * np.einsum("ij,ij->i", z @ self._leash, z)
        off = z - self._about
        out = out + 0.5 * np.einsum("ij,ij->i", off @ self._stiff, off) - z @ self._tilt
        region = self.emulator.region
        permitted = self.problem.permits(region.centre + z * region.scale)
        return np.where(permitted, out, np.inf)

    def exact(self, u: Floats, figures: Floats, effort: float) -> Floats:
        """float64[n]: cost of *figures* that were simulated at *u* with *effort*, no emulator."""
        inverse = np.linalg.inv(self._noise + self.emulator.shrunk / effort)
        off = figures - self.problem.measured
        away = u - self.problem.start
        out: Floats = np.einsum("ik,kl,il->i", off, inverse, off) / 2
        out += (away**2 * self.problem.known / 2 - u * self.problem.column("tilt")).sum(axis=1)
        return out

    def spread(self, mode: Floats) -> Floats:
        """float64[n_coordinates, n_coordinates]: covariance about *mode*, by the curvature."""
        curved = self._curved(self._slopes(mode[None]))[0]
        return np.asarray(np.linalg.inv(curved + 1e-6 * np.eye(len(mode))))

    def _curved(self, slope: Floats) -> Floats:
        out: Floats = slope.transpose(0, 2, 1) @ slope
        return out + self._leash + self._stiff

    def optimum(self, starts: Floats) -> Floats:
        """float64[n_parameters]: the best end of searches from *starts*."""
        z, cost = self._descended(starts, np.ones(starts.shape[1]))
        return np.asarray(z[int(np.argmin(cost))])

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
        """float64[n, n_figures, n_parameters]."""
        return np.asarray(self._terms.T @ feature_slopes(z))


def noise_of(problem: Problem, scatter: Floats, tau: float, *, rough: bool) -> Floats:
    """float64[n_figures, n_figures]: covariance of the measured figures about the emulator's."""
    size = np.sqrt(problem.sample)
    beside = problem.floor**2 + (tau * problem.assumed) ** 2 + TINY
    out: Floats = scatter * np.outer(size, size) + np.diag(beside)
    return out + scatter if rough else out


def whiten(made: Floats, noise: Floats) -> Floats:
    """float64[up to n_statistics, n_figures]: *made*, uncorrelated and of variance 1 under *noise*.

    Figures can say the same: of a queue of one, IOPS are requests over the mean latency. What such
    statistics say together counts once; the rest of them is rounding, and is left out.
    """
    covariance = made @ noise @ made.T
    size = np.sqrt(np.diag(covariance))
    size[size == 0] = 1.0
    values, axes = np.linalg.eigh(covariance / np.outer(size, size))
    said = values > ROUNDING * values[-1]
    if said.all():
        return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)) @ made)
    return np.asarray((axes[:, said] / np.sqrt(values[said])).T @ (made / size[:, None]))


def model_error_scale(problem: Problem, figures: Floats, scatter: Floats) -> tuple[float, float]:
    """Size of the error beside sampling, in units of the assumed, and chi-square without it.

    The least size at which the best of *figures*, float64[n, n_figures], each simulated once with
    covariance *scatter*, is no further from what was measured than expected. An emulator is not
    asked: between its data it may explain what no drive can. Source: DerSimonian and Kacker 2007,
    the method of moments.
    """
    sampling = np.diag(scatter) * (1 + problem.sample) + problem.floor**2 + TINY
    off = (figures - problem.measured) ** 2
    tau = chi = 0.0
    for tau in SIZES if problem.freedom >= FEW else [t for t in SIZES if t >= 1]:
        least = float((off / (sampling + (tau * problem.assumed) ** 2)).sum(axis=1).min())
        chi = chi or least
        if least <= max(1, problem.freedom):
            break
    return tau, chi


def likelihood_of(
    problem: Problem, emulator: Emulator, starts: Floats, tau: float, *, rough: bool,
    halves: tuple[Emulator, Emulator],
) -> tuple[Likelihood, Floats]:  # fmt: skip
    """The likelihood with an error beside sampling of size *tau*, and its optimum.

    *starts*: float64[n, n_coordinates], of the emulator. *halves*: emulators of either half of the
    candidates. Where there are many noisy figures, one makes statistics of them, a least-squares
    estimate of each coordinate, and the other tells how these depend on the coordinates and
    scatter: it knows nothing of the noise that they were chosen by. Source: Alsing and Wandelt
    2018, compression to the score.
    """
    found = Likelihood(problem, emulator, tau, rough=rough)
    z = found.optimum(starts)
    if found.own.sum() > CONFUSED * len(emulator.figures):
        maker, judge = halves
        slope = maker.slope(z)
        weighed = np.linalg.solve(noise_of(problem, maker.shrunk, tau, rough=False), slope).T
        normal = weighed @ slope
        ridge = RIDGE * np.trace(normal) * np.eye(len(normal))
        made: Floats = np.linalg.solve(normal + ridge, weighed)
        found = Likelihood(problem, judge, tau, rough=rough, made=made)
        z = found.optimum(np.concatenate([z[None], starts]))
    return found, z
