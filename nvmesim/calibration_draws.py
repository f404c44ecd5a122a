"""How far the doubt about calibrated numbers moves a prediction: draws of the profiles, simulated.

Each draw takes every calibrated number that has an interval from its distribution, alike for all
parts of one profile, and simulates the scenario shortly with the random numbers of the base run.
An assumed number's interval is no measurement: a result lists assumptions, and `nvmesim
sensitivity` tries them. Numbers that were fitted together are drawn together, from the profile's
own joint table, so that what compensates in the capture compensates here. The draws' distance from
the base run, less what short runs scatter by themselves, is the calibration's share of the
uncertainty. Source: Monte-Carlo propagation of distributions, JCGM 101:2008.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
from pydantic import BaseModel

from nvmesim.catalog.profile import Frozen, JointDraws, Quantity
from nvmesim.result import paired
from nvmesim.result.latency import samples
from nvmesim.result.steady import Collector
from nvmesim.result.student import two_sided
from nvmesim.scenario.resolved import ResolvedScenario

Z95: Final = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
DRAWS: Final = 8
"""Draws of a run by default: their spread is known within a third."""
MAX_THREADS: Final = 4
PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Spread:
    """What the doubt about calibrated numbers adds to an interval, 95 %."""

    shares: Mapping[str, tuple[float, float]]
    """"iops", "mean", "p50" ... -> how far the figure's logarithm may lie below and above"""
    draws: int

    def to_json(self) -> dict[str, float | list[float]]:
        """Return the object in a result's ``uncertainty``: relative half-widths, and both ends."""
        ends = {n: (1 - math.exp(-down), math.exp(up) - 1) for n, (down, up) in self.shares.items()}
        halves = {name: (down + up) / 2 for name, (down, up) in ends.items()}
        return {**halves, "iops_ends": list(ends["iops"]), "draws": float(self.draws)}

    def wider(self, name: str, value: float, span: tuple[float, float]) -> tuple[float, float]:
        """*span* about *value*, and the calibration's share of *name*, in quadrature.

        On a logarithmic scale: what may be twice as much may also be half.

        >>> Spread({"iops": (0.3, 0.3)}, 8).wider("iops", 100.0, (100.0, 100.0))
        (74.08182206817179, 134.9858807576003)
        """
        extra = self.shares.get(name)
        if extra is None or value <= 0:
            return span
        low, high = (abs(math.log(max(end, 1e-3 * value) / value)) for end in span)
        down, up = math.hypot(low, extra[0]), math.hypot(high, extra[1])
        return value * math.exp(-down), value * math.exp(up)


def drawn(profile: Model, rng: np.random.Generator) -> Model:
    """Return *profile* with every quantity that has an interval, and is not assumed, drawn from it.

    >>> from nvmesim.catalog.profile import GarbageCollection
    >>> factor = {"value": 2, "low": 1.9, "high": 2.1, "basis": "fitted"}
    >>> gc = GarbageCollection(on="1 ms", off="2 ms", factor=factor)
    >>> new = drawn(gc, np.random.default_rng(1))
    >>> new.on == gc.on, 1.8 < new.factor.value < 2.2, new.factor.value != 2
    (True, True, True)
    """
    joint = getattr(profile, "joint", None)
    together: dict[str, float] = {}
    if isinstance(joint, JointDraws):
        row = joint.factors[int(rng.integers(len(joint.factors)))]
        together = dict(zip(joint.names, row, strict=True))
    return _drawn(profile, rng, together, "")


def _drawn(
    profile: Model, rng: np.random.Generator, together: Mapping[str, float], path: str
) -> Model:
    changed: dict[str, Any] = {}
    for name in type(profile).model_fields:
        value, key = getattr(profile, name), path + name
        if isinstance(value, Quantity):
            if key in together:
                changed[name] = value.model_copy(update={"value": value.value * together[key]})
            elif value.basis != "assumed" and value.low is not None and value.high is not None:
                changed[name] = _drawn_quantity(value, value.low, value.high, rng)
        elif isinstance(value, Frozen):
            changed[name] = _drawn(value, rng, together, f"{key}.")
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
) -> Spread | None:
    """What *draws* draws say, simulated by *run*; None if no number has an interval.

    Draws are compared with a run of the numbers as they are, equally short and with the same random
    numbers. What short runs scatter by themselves is taken off.
    """
    runs: list[Collector] = []
    scenarios = [scenario, *(drawn_scenario(scenario, seed, i) for i in range(draws))]
    if draws < 2 or all(changed == scenario for changed in scenarios):
        return None
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        try:
            for i, kept in enumerate(pool.map(run, scenarios)):
                runs.append(kept)
                if progress is not None:
                    progress("drawing calibrated numbers", (i + 1) / len(scenarios))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    base, *drawn_rows = [_figures(kept) for kept in runs]
    for row, kept in zip(drawn_rows, runs[1:], strict=True):
        row["iops"] = _paired(base["iops"][0], runs[0], kept)
        if not any(group.is_open for group in scenario.workload):  # what is outstanding is fixed
            row["mean"] = row["mean"][0], row["iops"][1]
    names = [n for n in base if all(n in row for row in drawn_rows)]
    return Spread({n: _two_sides(base[n][0], [r[n] for r in drawn_rows]) for n in names}, draws)


def _figures(kept: Collector) -> dict[str, tuple[float, float]]:
    """Name -> logarithm of the figure, and its relative standard error in one short run."""
    window = kept.window(kept.warmup()[0])
    iops, mean = window.iops(), window.mean_latency_s(None)
    found = {
        name: (math.log(max(q.value, 1e-300)), (q.high - q.low) / 2 / Z95 / max(q.value, 1e-300))
        for name, q in (("iops", iops), ("mean", mean))
    }
    data = samples(window, None)
    for percent in PERCENTS:
        if data is not None and data.tells(percent):
            share = percent / 100
            error = data.relative_half(share) / Z95
            found[f"p{percent:g}"] = (math.log(data.quantile(share)), error)
    return found


def _paired(base: float, first: Collector, kept: Collector) -> tuple[float, float]:
    """Logarithm of a draw's IOPS, and the standard error of its distance from the *base*'s.

    What chance does to one run it does to the other: their distance scatters by much less than
    either, and taking more off would hide what the draws did.
    """
    a, b = first.records, kept.records
    n, cut = min(len(a), len(b)), paired.common_warmup(a, b)
    change = paired.gain(a[cut:n], b[cut:n])
    moved = max(1 + change.value, 1e-300)
    return base + math.log(moved), (change.high - change.low) / 2 / Z95 / moved


def _two_sides(base: float, rows: list[tuple[float, float]]) -> tuple[float, float]:
    """How far the figure's logarithm may lie below and above *base*: 95 %, by the draws.

    *rows* are each draw's logarithm and its standard error.
    A two-piece normal about the base, by maximum likelihood: doubt that can only cost must not
    promise gains. Source: John, "The three-parameter two-piece normal family of distributions and
    its fitting", 1982, for a known mode. Student's t, as the two spreads are estimated.

    >>> [round(side, 3) for side in _two_sides(0.0, [(0.1, 0.0), (-0.1, 0.0), (-0.2, 0.0)])]
    [0.517, 0.302]
    >>> _two_sides(0.0, [(-0.1, 0.0), (-0.2, 0.0)])[1]
    0.0
    """
    off, errors = np.array(rows).T
    off = off - base
    own = float(np.mean(np.where(np.isfinite(errors), errors, 0.0) ** 2))
    sums = [max(0.0, float(np.sum(side**2 - own))) for side in (off[off < 0], off[off > 0])]
    roots = [total ** (1 / 3) for total in sums]
    t = two_sided(len(rows))
    below, above = (t * root * math.sqrt(sum(roots) / len(rows)) for root in roots)
    return below, above
