"""Figures as quadratics of the coordinates in a region: one emulator, of evaluations made.

Bends are shrunk towards none, as far as the data leave it open: a quadratic of ten coordinates has
55 terms of second order, and where candidates hardly show a bend, all of them left free would be
the larger part of what such an emulator is unsure of.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.calibrate.infer.problem import Problem

TINY = 1e-10
"""Variance that any figure has at least: a rounding error of 1e-5."""
BENDS = np.concatenate([[0.0], np.geomspace(1e-5, 1e3, 33)])
"""Tried variances of the terms of second order, in units of one run's."""

SINGULAR = 1e-8
"""Of the largest singular value: below it, candidates do not differ along a direction."""


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


@dataclass(frozen=True)
class Surfaces:
    """A quadratic for each of some outputs."""

    terms: Floats
    """float64[n_terms, n_outputs], as `emulator.features` orders them"""
    left: Floats
    """float64[n, n_outputs]: what they leave over"""
    freedom: Floats
    """float64[n_outputs]: degrees of freedom of that"""
    doubt: Floats
    """float64[n_bends, n_outputs]: variance along the design's bends, in units of one run's"""

    def scatter(self) -> Floats:
        """float64[n_outputs, n_outputs]: covariance of one run, lack of fit included."""
        return self.left.T @ self.left / np.sqrt(np.outer(self.freedom, self.freedom))


class Regressors:
    """Coordinates of candidates: what a plane through them tells, and the bends across it.

    >>> z = np.linspace(-1, 1, 21)[:, None]
    >>> Regressors(z).fit(1 + 2 * z + 3 * z**2).terms.ravel().round(2).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, z: Floats) -> None:
        terms, self.planes = features(z), 1 + z.shape[1]
        plane, bent = terms[:, : self.planes], terms[:, self.planes :]
        self._terms = terms
        # where all have as many dies, whole numbers, that coordinate follows from the others
        self._level = np.linalg.pinv(plane, rcond=SINGULAR)
        self._inverse: Floats = self._level @ self._level.T
        self._across: Floats = self._level @ bent
        self._u, self._size, axes = np.linalg.svd(bent - plane @ self._across, full_matrices=False)
        self._axes: Floats = axes.T

    def fit(self, outputs: Floats) -> Surfaces:
        """Surfaces of *outputs*, float64[n, n_outputs].

        The variance of an output's second-order terms is the likeliest. Source: empirical Bayes,
        MacKay 1992, Bayesian interpolation (one hyperparameter by the evidence).
        """
        level = self._level @ outputs
        rest = outputs - self._terms[:, : self.planes] @ level
        along = self._u.T @ rest
        beyond = np.maximum((rest**2).sum(axis=0) - (along**2).sum(axis=0), 0.0)
        count = len(outputs) - self.planes
        grown = 1 + BENDS[:, None] * self._size**2
        squares = (1 / grown) @ along**2 + beyond + 1e-300
        evidence = -0.5 * np.log(grown).sum(axis=1)[:, None] - 0.5 * count * np.log(squares)
        bends = BENDS[np.argmax(evidence, axis=0)]
        kept = bends / (1 + self._size[:, None] ** 2 * bends)
        second = self._axes @ (kept * self._size[:, None] * along)
        terms = np.concatenate([level - self._across @ second, second])
        freedom = count - (kept * self._size[:, None] ** 2).sum(axis=0)
        return Surfaces(terms, outputs - self._terms @ terms, np.maximum(freedom, 1.0), kept)

    def leverage(self, terms: Floats, surfaces: Surfaces) -> Floats:
        """float64[n, n_outputs]: variance of *surfaces* at *terms*, `features` of coordinates.

        In units of one run's.
        """
        plane = terms[:, : self.planes]
        along = (terms[:, self.planes :] - plane @ self._across) @ self._axes
        level = np.einsum("ij,ij->i", plane @ self._inverse, plane)
        return np.asarray(level[:, None] + along**2 @ surfaces.doubt)


@dataclass(frozen=True)
class Region:
    """Where candidates are simulated: a normal distribution."""

    centre: Floats
    spread: Floats
    """float64[n_parameters, n_parameters]: covariance"""

    @property
    def scale(self) -> Floats:
        """float64[n_parameters]: standard deviations, the unit of an emulator's coordinates."""
        return np.sqrt(np.diag(self.spread))

    def away(self, u: Floats) -> Floats:
        """float64[n]: mean squared distance of float64[n, n_parameters], in standard deviations."""
        root = np.linalg.inv(np.linalg.cholesky(self.spread))
        return np.asarray((((u - self.centre) @ root.T) ** 2).mean(axis=1))

    def ratios(self, other: Floats) -> Floats:
        """Standard deviations of covariance *other* along its axes, in units of this region's."""
        root = np.linalg.inv(np.linalg.cholesky(self.spread))
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other @ root.T), 0.0)))

    def shrunk(self, other: Floats, least: float) -> Floats:
        """Covariance *other*, with no standard deviation below *least* of this region's."""
        root = np.linalg.cholesky(self.spread)
        back = np.linalg.inv(root)
        values, axes = np.linalg.eigh(back @ other @ back.T)
        out: Floats = root @ (axes * np.maximum(values, least**2)) @ axes.T @ root.T
        return (out + out.T) / 2


class Emulator:
    """Figures as quadratics of the parameters in a region, and how one run scatters about them."""

    def __init__(self, problem: Problem, region: Region, u: Floats, figures: Floats) -> None:
        self.region, self.figures = region, figures
        self.design = Regressors(self.z(u))
        found = self.design.fit(figures)
        self.terms = found.terms
        together = problem.run[:, None] == problem.run[None, :]
        self.scatter: Floats = np.where(together, found.scatter(), 0.0)
        """float64[n_figures, n_figures]: of one usual run, lack of fit included"""
        # Correlations are drawn towards 0 by as much as they are unsure. Source: Schaefer and
        # Strimmer 2005, a shrinkage approach to large-scale covariance estimation.
        size = np.sqrt(np.diag(self.scatter) + TINY)
        correlation = self.scatter / np.outer(size, size)
        off = (self.scatter != 0) & ~np.eye(len(size), dtype=bool)
        squares = float(((1 - correlation**2) ** 2)[off].sum())
        unsure = squares / max(1, int(found.freedom.mean()) - 1)
        share = min(1.0, unsure / max(1e-9, float((correlation**2)[off].sum())))
        drawn = np.where(off, correlation * (1 - share), correlation)
        self.shrunk: Floats = drawn * np.outer(size, size)

    def z(self, u: Floats) -> Floats:
        """Coordinates of float64[n, n_parameters]: standard deviations from the centre."""
        return (u - self.region.centre) / self.region.scale

    def slope(self, z: Floats) -> Floats:
        """float64[n_figures, n_parameters]: derivatives at one *z*."""
        return np.asarray(np.einsum("tp,tk->kp", feature_slopes(z[None])[0], self.terms))
