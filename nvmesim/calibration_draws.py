"""How far the intervals of fitted numbers move a prediction: draws of the profiles, simulated.

Each draw takes every number that has an interval from a normal distribution with that 95 %
interval, alike for all parts of one profile, and simulates the scenario shortly with the random
numbers of the base run. The draws' spread is the calibration's share of the uncertainty. Source:
Monte-Carlo propagation of distributions, JCGM 101:2008; numbers of one profile are taken as
independent (assumed), which overstates what compensating parameters do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from pydantic import BaseModel

from nvmesim.catalog.profile import Frozen, Quantity
from nvmesim.result.steady import Collector
from nvmesim.scenario.resolved import ResolvedScenario

Z95: Final = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
Model = TypeVar("Model", bound=BaseModel)


def drawn(profile: Model, rng: np.random.Generator) -> Model:
    """Return *profile* with every quantity that has an interval drawn from it.

    >>> from nvmesim.catalog.profile import GarbageCollection
    >>> gc = GarbageCollection(on="1 ms", off="2 ms", factor={"value": 2, "low": 1.9, "high": 2.1})
    >>> new = drawn(gc, np.random.default_rng(1))
    >>> new.on == gc.on, 1.8 < new.factor.value < 2.2, new.factor.value != 2
    (True, True, True)
    """
    changed: dict[str, Any] = {}
    for name in type(profile).model_fields:
        value = getattr(profile, name)
        if isinstance(value, Quantity):
            if value.low is not None and value.high is not None:
                changed[name] = _drawn_quantity(value, value.low, value.high, rng)
        elif isinstance(value, Frozen):
            changed[name] = drawn(value, rng)
    return profile.model_copy(update=changed)


def _drawn_quantity(q: Quantity, low: float, high: float, rng: np.random.Generator) -> Quantity:
    """A normal with the interval's two half-widths on its two sides, kept above zero."""
    z = float(rng.standard_normal())
    sigma = (high - q.value if z > 0 else q.value - low) / Z95
    return q.model_copy(update={"value": max(q.value + z * max(0.0, sigma), q.value * 1e-3)})


def drawn_scenario(scenario: ResolvedScenario, seed: int, draw: int) -> ResolvedScenario:
    """Return *scenario* with all of its profiles drawn; those of one name move together."""

    def new(profile: Model) -> Model:
        name = f"{type(profile).__name__} {getattr(profile, 'name', '')}"
        return drawn(profile, np.random.default_rng([seed, draw, *name.encode()]))

    return replace(
        scenario,
        stack=new(scenario.stack),
        sockets=tuple(replace(s, cpu=new(s.cpu)) for s in scenario.sockets),
        drives=tuple(replace(d, profile=new(d.profile)) for d in scenario.drives),
        volumes=tuple(replace(v, engine=new(v.engine)) for v in scenario.volumes),
    )


def spread(
    scenario: ResolvedScenario,
    seed: int,
    run: Callable[[ResolvedScenario], Collector],
    draws: int,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, float]:
    """Relative 95 % half-widths of IOPS and mean latency over *draws* draws; {} if none can be.

    Prediction interval of a normal: Student's t with draws - 1 degrees of freedom.
    """
    from scipy.special import stdtrit

    rows = []
    for i in range(draws):
        if progress is not None:
            progress("drawing calibrated numbers", i / draws)
        changed = drawn_scenario(scenario, seed, i)
        if changed == scenario:
            return {}
        kept = run(changed)
        window = kept.window(kept.warmup()[0])
        rows.append((window.iops().value, window.mean_latency_s(None).value))
    if len(rows) < 2:
        return {}
    logs = np.log(np.maximum(np.array(rows), 1e-300))
    half = float(stdtrit(len(rows) - 1, 0.975)) * logs.std(axis=0, ddof=1)
    return {
        "iops": math.expm1(float(half[0])),
        "mean": math.expm1(float(half[1])),
        "draws": float(len(rows)),
    }
