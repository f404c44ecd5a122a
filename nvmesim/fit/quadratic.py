"""Regression on quadratics whose bends are shrunk towards none, as far as the data leave it open.

A quadratic of ten parameters has 55 terms of second order. Where candidates hardly show a bend, all
of them left free would be the larger part of what such an emulator is unsure of, most so away from
its middle, and draws would scatter to where nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvmesim.fit.emulator import Floats, features

BENDS = np.concatenate([[0.0], np.geomspace(1e-5, 1e3, 33)])
"""Tried variances of the terms of second order, in units of one run's."""

SINGULAR = 1e-8
"""Of the largest singular value: below it, candidates do not differ along a direction."""


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
        out: Floats = self.left.T @ self.left / np.sqrt(np.outer(self.freedom, self.freedom))
        return out


class Design:
    """Coordinates of candidates: what a plane through them tells, and the bends across it.

    >>> z = np.linspace(-1, 1, 21)[:, None]
    >>> Design(z).fit(1 + 2 * z + 3 * z**2).terms.ravel().round(2).tolist()
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
        out: Floats = level[:, None] + along**2 @ surfaces.doubt
        return out
