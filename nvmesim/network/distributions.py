"""Service times as the engines need them: tables of quantiles, and factors by what is held."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats, Ints
from nvmesim.network.network import SCALE_ONE
from nvmesim.rng import table_levels

CELLS = 64  # cells of a stop's distribution
RAREST = 1e-4  # share of stops in the last of them
RISES = 4  # times that a table which falls is made to rise and its mean mended, at most


def _ticks(values_ps: npt.NDArray[np.float64]) -> Ints:
    return np.asarray(np.round(np.maximum(values_ps, 0.0)), dtype=np.int64)


@lru_cache(maxsize=256)
def gamma_table(mean_ps: float, cv: float) -> Ints:
    """Return int64[rng.TABLE], ps: gamma with the given mean and coefficient of variation.

    The mean of draws is exact: the table is rescaled for what its steps and its end lose.

    >>> table = gamma_table(54e6, 0.1)
    >>> bool(abs(table_mean(table) / 54e6 - 1) < 1e-6)
    True
    """
    if cv <= 0:
        return _ticks(np.full(len(table_levels()), mean_ps))
    shape = 1.0 / (cv * cv)
    return _rescaled(_unit_quantiles(shape) * (mean_ps / shape), mean_ps)


@lru_cache(maxsize=256)
def paged_table(mean_ps: float, cv: float, page_ps: float) -> Ints:
    """Return int64[rng.TABLE], ps: as `gamma_table`, but all of it in a few services of *page_ps*.

    What several commands need is done with one of them, so that the others take no time.

    >>> table = paged_table(70e6, 0.1, 700e6)
    >>> bool(abs(table_mean(table) / 70e6 - 1) < 1e-6), bool(table.max() > 700e6)
    (True, True)
    """
    share = mean_ps / page_ps
    if share >= 1:
        return gamma_table(mean_ps, cv)
    within = 1 - (1 - table_levels()) / share
    pages = gamma_table(page_ps, cv)
    at = np.searchsorted(table_levels(), np.maximum(within, 0.0)).clip(0, len(pages) - 1)
    return _rescaled(np.where(within > 0, pages[at], 1.0), mean_ps)


@lru_cache(maxsize=256)
def _unit_quantiles(shape: float) -> Floats:
    """float64[rng.TABLE]: of the gamma distribution of unit scale; most of a table's cost."""
    values = gamma_quantiles(shape, table_levels())
    values.flags.writeable = False
    return values


@lru_cache(maxsize=64)
def exponential_table(mean_ps: float) -> Ints:
    """Return int64[rng.TABLE], ps: exponential with the given mean.

    >>> table = exponential_table(1e6)
    >>> bool(abs(table_mean(table) / 1e6 - 1) < 1e-5)
    True
    """
    return _rescaled(-mean_ps * np.log1p(-table_levels()), mean_ps)


def uniform_table(mean_ps: float) -> Ints:
    """Return int64[rng.TABLE], ps: uniform from 0 to twice the mean.

    >>> bool(abs(table_mean(uniform_table(1e6)) / 1e6 - 1) < 1e-5)
    True
    """
    return _rescaled(2 * mean_ps * table_levels(), mean_ps)


class Stop(NamedTuple):
    """A hold-up of a service: its probability, and how long it takes."""

    share: float
    length_ps: float
    cv: float
    law: Literal["gamma", "lognormal"] = "gamma"

    def quantiles(self, beyond: npt.NDArray[np.float64]) -> Floats:
        """float64[n], ps: lengths that a fraction *beyond* of stops exceeds."""
        cv = max(self.cv, 1e-3)
        if self.law == "gamma":
            shape = 1.0 / cv**2
            return gamma_quantiles(shape, 1 - beyond) * (self.length_ps / shape)
        sigma = math.sqrt(math.log1p(cv * cv))
        values = self.length_ps * np.exp(-sigma * _normal_quantiles(beyond) - sigma * sigma / 2)
        return np.asarray(values, np.float64)


@lru_cache(maxsize=256)
def pausing_table(mean_ps: float, cv: float, stops: tuple[Stop, ...]) -> Ints:
    """Return int64[rng.TABLE], ps: `gamma_table`, and now and then one of *stops* more.

    At most one holds a service up, so shares are small; those of a typical length are exact up to
    one in 4096, and above that their lengths are spread. Pauses that come as time passes (a Poisson
    process) hit a service with the probability of its length over the time between them.

    >>> table = pausing_table(10e6, 0.1, (Stop(0.01, 1e9, 0.5),))
    >>> bool(abs(table_mean(table) / (10e6 + 0.01 * 1e9) - 1) < 1e-6)
    True
    """
    stops = tuple(stop for stop in stops if stop.share > 0)
    if not stops:
        return gamma_table(mean_ps, cv)
    shape = 1.0 / max(cv, 1e-3) ** 2
    scale = mean_ps / shape
    middles = (np.arange(CELLS) + 0.5) / CELLS
    levels = 1 - np.geomspace(1, 1e-6, 4 * CELLS)
    inside = scale * gamma_quantiles(shape, np.concatenate([middles, levels]))
    beyond = [mean_ps + stop.quantiles(1 - levels) for stop in stops]
    edges: Floats = np.unique(np.concatenate([[0.0], inside, *beyond])).astype(np.float64)
    # the sum of both, as a distribution function: stops in cells that get finer with their length
    bounds = np.geomspace(1, RAREST, CELLS + 1)
    weights = np.append(-np.diff(bounds), RAREST)
    cells = np.append(np.sqrt(bounds[1:] * bounds[:-1]), RAREST / 2)
    cumulative = (1 - sum(stop.share for stop in stops)) * gamma_share_below(shape, edges / scale)
    for stop in stops:
        late = gamma_share_below(shape, (edges[:, None] - stop.quantiles(cells)) / scale) @ weights
        cumulative = cumulative + stop.share * late
    sums = np.interp(table_levels(), cumulative, edges)
    # A table is a line between edges 1/4096 apart: a jump within one of them is spread over it
    # (at shares up to that the jump is in the finer last cell). The stops' mean stays exact.
    body = gamma_table(mean_ps, cv).astype(np.float64)
    more = np.maximum(sums - body, 0.0)
    wanted = sum(stop.share * stop.length_ps for stop in stops)
    for _ in range(RISES):
        spread = table_mean(_ticks(body + more)) - table_mean(_ticks(body))
        table = _ticks(body + more * (wanted / spread if spread > 0 else 1.0))
        if all((np.diff(half) >= 0).all() for half in np.split(table, 2)):
            return table
        # stops far shorter than the steps between edges are no more than what steps round off
        more = np.concatenate([np.maximum.accumulate(half) for half in np.split(table, 2)]) - body
    return _ticks(body + more)


def _normal_quantiles(levels: npt.NDArray[np.float64]) -> Floats:
    """Quantiles of the standard normal distribution, float64, -inf at 0 and inf at 1."""
    quantile = NormalDist().inv_cdf
    return np.array(
        [quantile(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5) for p in levels.tolist()]
    )


def table_mean(table: Ints) -> float:
    """Mean, ps, of draws from a quantile table (linear between its edges).

    >>> table_mean(np.full(8194, 7, np.int64))
    7.0
    """
    n = len(table) // 2
    main, tail = table[:n].astype(float), table[n:].astype(float)
    cells = (main[:-1] + main[1:]) / 2
    inner = float(((tail[:-1] + tail[1:]) / 2).mean())
    return float((cells[:-1].sum() + inner) / (n - 1))


def _rescaled(values: npt.NDArray[np.float64], mean_ps: float) -> Ints:
    table = _ticks(values)
    mean = table_mean(table)
    # All of it below half a tick: nothing is there to scale.
    return _ticks(values * (mean_ps / mean)) if mean else table


# -- the gamma distribution -----------------------------------------------------------------------
#
# In NumPy: SciPy's import takes longer than many a prediction. With z the logarithm of a value over
# the mean, the density is proportional to exp(a (z - e^z)): smooth for every shape a, also where
# that of the value itself is infinite at 0. It is integrated over cells of z by Gauss and
# Legendre's rule, from both ends, which keeps the digits of both tails; quantiles are found in
# their cell by Newton's method. `tests/model/test_gamma.py` compares with SciPy.

GAMMA_CELLS: Final = 1024
BEYOND: Final = 50.0  # the cells end where less than exp(-BEYOND) lies beyond
STEPS: Final = 4  # of Newton's method, from a straight line within a cell
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class _Cells(NamedTuple):
    shape: float
    edges: Floats  # float64[GAMMA_CELLS + 1]: of z
    below: Floats  # float64[GAMMA_CELLS + 1]: probability below an edge
    above: Floats
    scale: float  # factor that makes a density of exp(a (z + 1 - e^z))


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
            np.linspace(low, knee, GAMMA_CELLS // 2, endpoint=False),
            np.linspace(knee, high, GAMMA_CELLS // 2 + 1),
        ]
    )
    inside = _integral(shape, edges[:-1], edges[1:])
    scale = 1 / float(inside.sum())
    below = np.concatenate([[0.0], np.cumsum(inside)]) * scale
    above = np.concatenate([np.cumsum(inside[::-1])[::-1], [0.0]]) * scale
    return _Cells(shape, edges, below, above, scale)


def gamma_quantiles(shape: float, levels: Floats) -> Floats:
    """X below which the shares *levels* (from 0 to below 1) of a gamma of unit scale lie.

    >>> gamma_quantiles(1.0, np.array([0.0, 0.5])).round(12).tolist()
    [0.0, 0.69314718056]
    """
    cells = _cells(float(shape))
    low = levels <= 0.5
    at = np.where(
        low,
        np.searchsorted(cells.below, levels, side="right") - 1,
        GAMMA_CELLS - np.searchsorted(cells.above[::-1], 1 - levels, side="left"),
    ).clip(0, GAMMA_CELLS - 1)
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


def gamma_share_below(shape: float, values: Floats) -> Floats:
    """Probability that a gamma of unit scale lies below *values*.

    >>> gamma_share_below(1.0, np.array([0.0, math.log(2)])).round(12).tolist()
    [0.0, 0.5]
    """
    cells = _cells(float(shape))
    with np.errstate(divide="ignore"):
        z = np.log(np.maximum(values, 0.0) / shape)
    out: Floats = (z >= cells.edges[-1]).astype(np.float64)
    within = (z > cells.edges[0]) & (z < cells.edges[-1])  # of a matrix mostly a small part
    z = z[within]
    at = np.searchsorted(cells.edges, z, side="right").clip(1, GAMMA_CELLS) - 1
    inside = _integral(shape, cells.edges[at], z) * cells.scale
    out[within] = np.minimum(1.0, cells.below[at] + inside)
    return out


# -- service factors -------------------------------------------------------------------------------
#
# How much slower a server is by what it holds. The arm of a hard disk serves the nearest of its
# commands first, as Linux before it does: of n that wait, that with the shortest positioning time,
# here the shortest of n independent ones, drawn from the law of one alone. Source of the rule:
# M. Seltzer, P. Chen and J. Ousterhout, "Disk Scheduling Revisited", USENIX Winter 1990. That it
# starves the farthest ones, so that those left are farther than fresh ones, is neglected.

ARM_CELLS = 1024


def smt_factors(
    cores: int, threads_per_core: int, smt_yield: float, contention: float = 0.0
) -> list[int]:
    """Service factor x SCALE_ONE by number of busy logical CPUs, 1..cores x threads_per_core.

    Idle cores fill first; each core with all siblings busy does ``smt_yield`` of one thread's work.
    The loss is spread over all that are busy, so that work done per second is exact at every level.
    *contention* makes every request dearer by that share for each further CPU that is busy.
    The yield is about 1.25, published as "up to 30 %" (dasher.com).

    >>> [round(f / 65536, 3) for f in smt_factors(2, 2, 1.25)]
    [1.0, 1.0, 1.333, 1.6]
    >>> [round(f / 65536, 3) for f in smt_factors(2, 1, 1.0, contention=0.1)]
    [1.0, 1.1]
    """
    factors = []
    for busy in range(1, cores * threads_per_core + 1):
        extra = max(0, busy - cores)
        shared = extra / (threads_per_core - 1) if threads_per_core > 1 else 0.0
        capacity = min(busy, cores) + shared * (smt_yield - 1)
        slower = 1 + contention * (busy - 1)
        factors.append(round(SCALE_ONE * busy / capacity * slower))
    return factors


def arm_factors(cv: float, most: int) -> list[int]:
    """Service factor x `SCALE_ONE` with 1 to *most* commands inside, which share the arm.

    Each of n takes n times as long as the arm takes for one, and that is the nearest of n.

    >>> [round(f / 65536, 2) for f in arm_factors(0.34, 3)]
    [1.0, 1.62, 2.18]
    """
    return [round(SCALE_ONE * n * nearest_share(cv, n)) for n in range(1, most + 1)]


def nearest_share(cv: float, n: int) -> float:
    """Mean of the shortest of *n* positioning times over the mean of one (gamma, its *cv*).

    >>> [round(nearest_share(0.34, n), 1) for n in (1, 4, 8, 32)]
    [1.0, 0.7, 0.6, 0.4]
    """
    if cv <= 0:
        return 1.0
    longer = (1 - np.arange(ARM_CELLS + 1) / ARM_CELLS) ** n  # share in which all n take longer
    return float(_positioning_times(cv) @ -np.diff(longer))


@lru_cache(maxsize=64)
def _positioning_times(cv: float) -> Floats:
    """float64[ARM_CELLS]: quantiles of a positioning time of mean 1."""
    shape = 1.0 / (cv * cv)
    return gamma_quantiles(shape, (np.arange(ARM_CELLS) + 0.5) / ARM_CELLS) / shape
