"""Requests of a trace in classes, by operation and size or depth, and the percentiles of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.calibrate.arrivals import Arrivals
from nvmesim.units import format_size

PERCENTS = (10.0, 50.0, 90.0, 99.0)
"""Percentiles compared in each class."""
MIN_BEYOND = 8
"""Samples beyond a percentile for it to count."""
MIN_CLASS = 30
"""Requests for a class to count."""
FLOOR = 0.02
"""Least relative standard error of a percentile: what gamma-distributed dies cannot follow. Assumed
as in `search.ERRORS`, less the run-to-run part, which the sample itself shows here."""
TAIL_FLOOR = 0.05
"""The same for percentiles from 99 on."""


@dataclass(frozen=True)
class ClassOf:
    """Some requests of a trace, what they took, and how surely that is known."""

    label: str
    write: bool | None
    rows: npt.NDArray[np.int64]
    """int64[k]: indices into the arrivals"""
    percentiles_s: dict[float, float]
    errors: dict[float, float] = field(default_factory=dict)
    """Relative standard error of each percentile"""

    def answers(self, latency_s: Floats) -> dict[float, float]:
        """Percentiles, s, of the same requests in a simulation: float64[runs, n]."""
        chosen = latency_s[:, self.rows].ravel()
        percents = list(self.percentiles_s)
        values = np.quantile(chosen, np.array(percents) / 100)
        return dict(zip(percents, values.tolist(), strict=True))


@dataclass(frozen=True)
class JudgedClass:
    """One class, measured and simulated."""

    label: str
    requests: int
    measured_s: dict[float, float]
    model_s: dict[float, float]
    held_out: bool = False

    @property
    def residual(self) -> dict[float, float]:
        """Simulated / measured - 1 by percent."""
        return {p: self.model_s[p] / v - 1 for p, v in self.measured_s.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the class as an object, percentiles named as in results."""

        def named(table: dict[float, float]) -> dict[str, float]:
            return {f"p{p:g}_s": v for p, v in table.items()}

        return {
            "class": self.label,
            "requests": self.requests,
            "held_out": self.held_out,
            "measured": named(self.measured_s),
            "model": named(self.model_s),
            "residual": {f"p{p:g}": v for p, v in self.residual.items()},
        }


def everything(arrivals: Arrivals) -> ClassOf:
    """All requests as one class."""
    return _class("all requests", None, np.arange(len(arrivals)), arrivals)


def classes_of(
    arrivals: Arrivals,
    only: npt.NDArray[np.bool_] | None = None,
    percents: Sequence[float] = PERCENTS,
) -> list[ClassOf]:
    """Classes by (operation, size) and by (operation, depth in octaves), of requests in *only*.

    A request counts once in each kind of class, so errors are those of half as many.
    """
    chosen = np.ones(len(arrivals), bool) if only is None else only
    made: list[ClassOf] = []
    octave = np.floor(np.log2(arrivals.depth)).astype(np.int64)
    for write in (False, True):
        of_op = (arrivals.write == write) & chosen
        name = "write" if write else "read"
        for size in np.unique(arrivals.size[of_op]).tolist():
            rows = np.flatnonzero(of_op & (arrivals.size == size))
            made.append(_class(f"{name} {format_size(size)}", write, rows, arrivals, percents))
        for level in np.unique(octave[of_op]).tolist():
            rows = np.flatnonzero(of_op & (octave == level))
            made.append(_class(f"{name} depth {_span(level)}", write, rows, arrivals, percents))
    return [c for c in made if len(c.rows) >= MIN_CLASS and c.percentiles_s]


def misfits(classes: Sequence[ClassOf], latency_s: Floats) -> list[float]:
    """Residuals of all percentiles in standard errors, on a logarithmic scale."""
    out: list[float] = []
    for c in classes:
        found = c.answers(latency_s)
        out += [
            float(np.log(max(found[p], 1e-12) / v)) / c.errors[p]
            for p, v in c.percentiles_s.items()
        ]
    return out


def judge(classes: Sequence[ClassOf], latency_s: Floats, *, held_out: bool) -> list[JudgedClass]:
    """Return every class beside its simulation."""
    return [
        JudgedClass(c.label, len(c.rows), c.percentiles_s, c.answers(latency_s), held_out)
        for c in classes
    ]


def _span(level: int) -> str:
    low, high = 2**level, 2 ** (level + 1) - 1
    return f"{low}" if low == high else f"{low} to {high}"


def _class(
    label: str, write: bool | None, rows: npt.NDArray[np.int64], arrivals: Arrivals,
    percents: Sequence[float] = PERCENTS,
) -> ClassOf:  # fmt: skip
    values = arrivals.latency_s[rows]
    n = len(rows)
    kept = [p for p in percents if min(p, 100 - p) / 100 * n >= MIN_BEYOND]
    percentiles = {p: float(np.quantile(values, p / 100)) for p in kept}
    return ClassOf(label, write, rows, percentiles, {p: _error(values, p, n) for p in kept})


def _error(values: Floats, percent: float, n: int) -> float:
    """Relative standard error of a percentile: sample, simulation and model in quadrature.

    The sample's from the quantiles one binomial standard error either side. Source: David and
    Nagaraja, Order Statistics, section 7.1.
    """
    share = percent / 100
    step = np.sqrt(share * (1 - share) / n)
    low, high = np.quantile(values, np.clip([share - step, share + step], 0, 1))
    sample = 0.5 * float(np.log(max(high, 1e-12) / max(low, 1e-12)))
    floor = TAIL_FLOOR if percent >= 99 else FLOOR
    return float(np.sqrt(2 * (2 * sample**2 + floor**2)))
