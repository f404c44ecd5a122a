"""The gamma distribution in NumPy: SciPy's import takes longer than many a prediction.

With z the logarithm of a value over the mean, the density is proportional to exp(a (z - e^z)):
smooth for every shape a, also where that of the value itself is infinite at 0. It is integrated
over cells of z by Gauss and Legendre's rule, from both ends, which keeps the digits of both tails;
quantiles are found in their cell by Newton's method. `tests/model/test_gamma.py` compares with
SciPy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from nvmesim.array_types import Floats

CELLS: Final = 1024
BEYOND: Final = 50.0
"""The cells end where less than exp(-BEYOND) lies beyond."""
STEPS: Final = 4
"""Of Newton's method, from a straight line within a cell."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class _Cells(NamedTuple):
    shape: float
    edges: Floats
    """float64[CELLS + 1]: of z"""
    below: Floats
    """float64[CELLS + 1]: probability below an edge"""
    above: Floats
    scale: float
    """Factor that makes a density of exp(a (z + 1 - e^z))."""


def _curve(shape: float, z: Floats) -> Floats:
    return np.asarray(np.exp(shape * (z - np.expm1(z))))


def _integral(shape: float, start: Floats, end: Floats) -> Floats:
    """Integral of `_curve` from *start* to *end*, which lie in one cell."""
    half = (end - start) / 2
    middle = start + half
    nodes = zip(_NODES, _WEIGHTS, strict=True)
    return half * sum((w * _curve(shape, middle + x * half) for x, w in nodes), np.zeros(1))


@lru_cache(maxsize=64)
def _cells(shape: float) -> _Cells:
    # In units of the scale, P(X <= x) <= x^a / Gamma(a + 1), P(X <= a - sqrt(2 a t)) <= exp(-t) and
    # P(X >= a + sqrt(2 a t) + t) <= exp(-t): Boucheron, Lugosi and Massart, Concentration
    # Inequalities, 2013, section 2.4.
    spread = math.sqrt(2 * shape * BEYOND)
    low = (math.lgamma(shape + 1) - BEYOND) / shape - math.log(shape)
    if shape > spread:
        low = max(low, math.log1p(-spread / shape))
    high = math.log1p((spread + BEYOND) / shape)
    # far below the scale the curve is a slow exponential: wide cells will do
    knee = max((low + high) / 2, -4 - math.log(shape))
    edges = np.concatenate(
        [
            np.linspace(low, knee, CELLS // 2, endpoint=False),
            np.linspace(knee, high, CELLS // 2 + 1),
        ]
    )
    inside = _integral(shape, edges[:-1], edges[1:])
    scale = 1 / float(inside.sum())
    below = np.concatenate([[0.0], np.cumsum(inside)]) * scale
    above = np.concatenate([np.cumsum(inside[::-1])[::-1], [0.0]]) * scale
    return _Cells(shape, edges, below, above, scale)


def quantiles(shape: float, levels: Floats) -> Floats:
    """X below which the shares *levels* (from 0 to below 1) of a gamma of unit scale lie.

    >>> quantiles(1.0, np.array([0.0, 0.5])).round(12).tolist()
    [0.0, 0.69314718056]
    """
    cells = _cells(float(shape))
    low = levels <= 0.5
    at = np.where(
        low,
        np.searchsorted(cells.below, levels, side="right") - 1,
        CELLS - np.searchsorted(cells.above[::-1], 1 - levels, side="left"),
    ).clip(0, CELLS - 1)
    start, end = cells.edges[at], cells.edges[at + 1]
    # what is left of the level from the cell's start on
    want = np.where(low, levels - cells.below[at], cells.above[at] - (1 - levels))
    whole = np.where(
        low, cells.below[at + 1] - cells.below[at], cells.above[at] - cells.above[at + 1]
    )
    z = start + (end - start) * want / np.maximum(whole, 1e-300)
    for _ in range(STEPS):
        off = _integral(shape, start, z) - want / cells.scale
        z = np.clip(z - off / np.maximum(_curve(shape, z), 1e-300), start, end)
    return np.where(levels > 0, shape * np.exp(z), 0.0)


def share_below(shape: float, values: Floats) -> Floats:
    """Probability that a gamma of unit scale lies below *values*.

    >>> share_below(1.0, np.array([0.0, math.log(2)])).round(12).tolist()
    [0.0, 0.5]
    """
    cells = _cells(float(shape))
    with np.errstate(divide="ignore"):
        z = np.log(np.maximum(values, 0.0) / shape)
    z = np.clip(z, cells.edges[0], cells.edges[-1])
    at = np.searchsorted(cells.edges, z, side="right").clip(1, CELLS) - 1
    inside = _integral(shape, cells.edges[at], z) * cells.scale
    return np.asarray(np.minimum(1.0, cells.below[at] + inside))
