"""Measured points as a problem for the emulator: their figures, how sure each is, how to get it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.catalog.profile import DriveProfile
from nvmesim.fit.bench import Answer, Host, measure
from nvmesim.fit.emulator import FREE, LEAST_HALF, Floats, Problem
from nvmesim.fit.points import Point
from nvmesim.fit.search import ERRORS

BIN = 0.005
"""Standard error of a percentile that was read off bins: fio's are 1.6 % wide, ours 0.8 %."""
Make = Callable[[Floats], DriveProfile]
"""Values of the parameters -> the drive"""


@dataclass(frozen=True)
class Parameter:
    """One number that is searched for."""

    name: str
    start: float
    low: float
    high: float
    half: float
    """Half-width of the first region searched, relative"""
    prior: float = FREE
    """Standard deviation of the logarithm around the start, if that is known beforehand"""
    whole: bool = False
    least: float = LEAST_HALF
    """Half-width that a region has at least: what is far from straight needs a wider view"""


def effort(point: Point) -> int:
    """Requests that one candidate is simulated with at *point*: deep queues forget slowly."""
    return 8_000 + 80 * point.outstanding


def problem_of(
    points: Sequence[Point], parameters: Sequence[Parameter], make: Make, host: Host
) -> Problem:
    """The problem of finding *parameters* of what *make* builds, from *points* on *host*."""
    rows = [(i, key, value) for i, p in enumerate(points) for key, value in _known(p)]

    def simulate(logs: Floats, seed: int, share: float) -> Floats:
        made = make(np.exp(logs))
        answers = [
            measure(
                made, host, p, requests=round(share * effort(p)), seed=1 + seed * len(points) + i
            )
            for i, p in enumerate(points)
        ]
        found = [figure(answers[i], key) for i, key, _ in rows]
        out: Floats = np.log(np.maximum(np.array(found, np.float64), 1e-15))
        return out

    bins = [_floor(points[i], key) for i, key, _ in rows]
    return Problem(
        names=tuple(p.name for p in parameters),
        simulate=simulate,
        measured=np.log([value for _, _, value in rows]),
        run=np.array([i for i, _, _ in rows]),
        sample=np.array([_share(points[i]) for i, _, _ in rows]),
        assumed=np.array([ERRORS.get(key, 0.1) for _, key, _ in rows]),
        floor=np.array(bins),
        low=np.log([p.low for p in parameters]),
        high=np.log([p.high for p in parameters]),
        prior=np.array([p.prior for p in parameters]),
        whole=np.array([p.whole for p in parameters]),
        least=np.array([p.least for p in parameters]),
    )


def figure(answer: Answer, key: str | float) -> float:
    """The figure *key* of a simulated point: "iops", "mean", or a percent."""
    if key == "iops":
        return answer.iops
    return answer.mean_s if key == "mean" else answer.percentiles_s[float(key)]


def _known(p: Point) -> list[tuple[str | float, float]]:
    """Figures that *p* has: IOPS, mean, percentiles."""
    found: list[tuple[str | float, float]] = [("iops", p.iops)]
    if p.mean_s:
        found.append(("mean", p.mean_s))
    return found + [(percent, v) for percent, v in p.percentiles_s.items() if v > 0]


def _share(p: Point) -> float:
    """Variance of the measured sample in units of a simulated one's.

    0 if its size is unknown: the assumed errors alone count.
    """
    return effort(p) / p.count if p.count else 0.0


def _floor(p: Point, key: str | float) -> float:
    """Error of bins, or of the ends of a run: what was in flight then counts half."""
    if key not in ("iops", "mean"):
        return BIN
    return min(0.01, p.outstanding / p.count) if p.count else 0.0


def starts(parameters: Sequence[Parameter]) -> tuple[list[float], list[float]]:
    """Starting values, and half-widths of the first region."""
    return [p.start for p in parameters], [p.half for p in parameters]
