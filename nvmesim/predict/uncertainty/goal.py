"""The goal that a load states (slo), and how probable it is that a real server keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nvmesim.measure.figures import Distribution, Interval
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S


@dataclass(frozen=True)
class Goal:
    """A latency that 99 % of the requests should keep."""

    what: str
    """As "p99"."""
    limit: float
    """s"""
    probability: float | None
    """That it is kept, with all that is not known; None: no interval is."""

    def to_json(self) -> dict[str, Any]:
        """Return what, limit, probability."""
        return dict(vars(self))


def goal_of(scenario: ResolvedScenario | None, latency: Distribution) -> Goal | None:
    """Return the goal that all workloads of *scenario* that state one share; else None."""
    groups = () if scenario is None else scenario.workload
    limits = {group.slo_ps for group in groups if group.slo_ps is not None}
    if len(limits) != 1:
        return None
    value = latency.percentiles.get(99.0)
    limit, ends = limits.pop() / PS_PER_S, latency.intervals.get("p99")
    kept = (
        None
        if ends is None or value is None
        else probability(Interval(value, *ends), limit, at_least=False)
    )
    return Goal("p99", limit, kept)


def probability(interval: Interval, limit: float, *, at_least: bool) -> float:
    """Return how probable it is that what *interval* (95 %) holds meets *limit*.

    The logarithm is taken as normal, with a half-width to each side.

    >>> round(probability(Interval(200.0, 100.0, 400.0), 100.0, at_least=True), 3)
    0.975
    >>> probability(Interval(200.0, 200.0, 200.0), 100.0, at_least=False)
    0.0
    """
    if interval.value <= 0 or limit <= 0:
        return 0.5
    over = math.log(interval.value / limit)
    end = interval.low if over > 0 else interval.high
    half = abs(math.log(end / interval.value)) if end > 0 else math.inf
    sure = over * Z95 / half if half > 1e-12 else math.copysign(math.inf, over or 1.0)
    chance = 0.5 * (1 + math.erf(sure / math.sqrt(2)))
    return chance if at_least else 1 - chance
