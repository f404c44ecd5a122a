"""How good printed intervals are: coverage, width, interval score, PIT, skill; one vote a source.

Sources: Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA
102(477), 2007 (interval score); Dawid, "Statistical theory: the prequential approach", J. R.
Statist. Soc. A 147(2), 1984 (probability integral transform).
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.predict.uncertainty.numbers import Z95

ALPHA: Final = 0.05
"""An interval leaves out so much."""
PIT_BINS: Final = 10
EQUAL: Final = 0.005
"""Errors that differ by less are equal."""


@dataclass(frozen=True)
class CoveredRow:
    """One measured number and what was printed of it."""

    source: str
    measured: float
    predicted: float
    low: float
    high: float
    naive: float | None = None

    @property
    def inside(self) -> bool:
        """True if the interval holds what was measured."""
        return self.low <= self.measured <= self.high

    @property
    def half_width(self) -> float:
        """Relative half-width."""
        return (self.high - self.low) / 2 / self.predicted

    @property
    def score(self) -> float:
        """Interval score of the logarithm: its width, and what lies outside forty times.

        >>> one = CoveredRow("a", 100.0, 100.0, 100 / math.e, 100 * math.e)
        >>> round(one.score, 6)
        2.0
        """
        low, high = math.log(max(self.low, 1e-300)), math.log(max(self.high, 1e-300))
        at = math.log(self.measured)
        return high - low + 2 / ALPHA * (max(0.0, low - at) + max(0.0, at - high))

    @property
    def pit(self) -> float:
        """Where what was measured lies in the predicted distribution, 0 to 1."""
        off = math.log(self.measured / self.predicted)
        end = self.high if off > 0 else self.low
        half = abs(math.log(max(end, 1e-300) / self.predicted))
        return 0.5 * (1 + math.erf(off * Z95 / max(half, 1e-12) / math.sqrt(2)))

    @property
    def crps(self) -> float:
        """Continuous ranked probability score of the logarithm, a normal of the printed width.

        Source: Gneiting and Raftery 2007, equation 21.

        >>> one = CoveredRow("a", 100.0, 100.0, 100 / math.e, 100 * math.e)
        >>> round(one.crps / (1 / Z95), 4)
        0.2337
        """
        wide = math.log(max(self.high, 1e-300) / max(self.low, 1e-300))
        sigma = max(wide / 2 / Z95, 1e-9)
        z = math.log(self.measured / self.predicted) / sigma
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return sigma * (z * math.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))

    @property
    def error(self) -> float:
        """Relative error, without its sign."""
        return abs(self.predicted / self.measured - 1)

    @property
    def naive_error(self) -> float | None:
        """Relative error of the naive rule; None where it says nothing."""
        return abs(self.naive / self.measured - 1) if self.naive else None


@dataclass(frozen=True)
class Coverage:
    """Summary of the counted rows; every source has one vote, however many rows it has."""

    rows: int
    sources: int
    covered: float
    """Share of the rows that lie in their interval."""
    half_width: float
    """Median relative half-width."""
    score: float
    """Mean interval score of the logarithms."""
    pit: tuple[float, ...]
    """Share of the rows in each tenth of their predicted distribution; even is right."""
    error: float
    """Median relative error."""
    naive_error: float
    """That of the naive rule, where it says anything."""
    skill: float
    """1 less the ratio of the two on the rows that have both; 0 is no better, 1 is perfect."""
    crps: float = math.nan
    """Mean continuous ranked probability score of the logarithms."""
    error_p90: float = math.nan
    naive_p90: float = math.nan
    closer: float = math.nan
    """Share of the rows that are at least as near as the naive rule, of those that have both."""
    worst: float = math.nan
    """Largest ratio of a source's median error to that of the naive rule."""


def coverage(found: Iterable[CoveredRow | None]) -> Coverage:
    """Return what *found* adds up to; NaN without a row."""
    rows = [row for row in found if row is not None]
    sources = Counter(row.source for row in rows)
    voted = [(r, 1 / len(sources) / sources[r.source]) for r in rows]  # 1 in all
    pairs = [(r.error, n, w) for r, w in voted if (n := r.naive_error) is not None]
    errors, naive = [(r.error, w) for r, w in voted], [(n, w) for _, n, w in pairs]
    own, theirs = _quantile([(e, w) for e, _, w in pairs]), _quantile(naive)
    pit = np.histogram([r.pit for r in rows], PIT_BINS, (0, 1), weights=[w for _, w in voted])[0]
    return Coverage(
        len(rows), len(sources),
        covered=_mean([(float(r.inside), w) for r, w in voted]),
        half_width=_quantile([(r.half_width, w) for r, w in voted]),
        score=_mean([(r.score, w) for r, w in voted]),
        pit=tuple(float(share) for share in pit),
        error=_quantile(errors), naive_error=theirs,
        skill=1 - own / theirs if theirs else math.nan,
        crps=_mean([(r.crps, w) for r, w in voted]),
        error_p90=_quantile(errors, 0.9), naive_p90=_quantile(naive, 0.9),
        closer=_mean([(float(e <= n + EQUAL), w) for e, n, w in pairs]),
        worst=_worst(rows),
    )  # fmt: skip


def _worst(rows: list[CoveredRow]) -> float:
    ratios = []
    for source in {r.source for r in rows}:
        pairs = [(r.error, n) for r in rows
                 if r.source == source and (n := r.naive_error) is not None]  # fmt: skip
        if pairs:
            own, naive = (float(np.median(each)) for each in zip(*pairs, strict=True))
            ratios.append((own + EQUAL) / (naive + EQUAL))
    return max(ratios, default=math.nan)


def _mean(pairs: list[tuple[float, float]]) -> float:
    whole = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / whole if whole else math.nan


def _quantile(pairs: list[tuple[float, float]], share: float = 0.5) -> float:
    """Weighted quantile of (value, weight).

    >>> _quantile([(1.0, 0.5), (9.0, 0.25), (5.0, 0.25)])
    1.0
    """
    whole = sum(w for _, w in pairs)
    so_far = 0.0
    for value, weight in sorted(pairs):
        so_far += weight
        if so_far >= share * whole - 1e-12:
            return value
    return math.nan
