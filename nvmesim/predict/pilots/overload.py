"""An open loop far above what can be carried: seen at once, and simulated where it is cheap.

A million arrivals for each request that completes tell no more than sixteen: the same stations are
full, and the rest of the arrivals only adds to the backlog. So such rates are lowered until a fair
share of the arrivals is carried, if the backlog grows without end there, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S

ARRIVALS: Final = 20_000
"""About so many are looked at for each rate."""
CARRIED: Final = 1 / 16
"""Share of the arrivals that completes, above which a run is cheap enough as it is."""
STEP: Final = 4.0
COMPLETIONS: Final = 2_000
"""The backlog is compared between the ends of two such runs."""
SEED: Final = 1


def lowered_rate(
    scenario: ResolvedScenario, lowered: Lowered
) -> tuple[ResolvedScenario, Lowered, float]:
    """Return *scenario* with rates that a run can show, and the requests/s that were left out.

    Those are 0, and *scenario* is as it was, unless the lower rates are an overload, too: what a
    lower rate overloads, the higher one does.
    """
    rate = _rate(scenario)
    if not rate or _carried(scenario, lowered) >= CARRIED:
        return scenario, lowered, 0.0
    less, network, factor = scenario, lowered, 1.0
    while _carried(less, network) < CARRIED:
        factor /= STEP
        if rate * factor < 1:
            return scenario, lowered, 0.0
        less = _scaled(scenario, factor)
        network = lower(less)
    if not _grows(network):
        return scenario, lowered, 0.0
    return less, network, rate * (1 - factor)


def _rate(scenario: ResolvedScenario) -> float:
    """Requests/s that arrive by the clock."""
    return sum(g.rate for g in scenario.workload if g.rate is not None)


def _scaled(scenario: ResolvedScenario, factor: float) -> ResolvedScenario:
    groups = tuple(
        g if g.rate is None else replace(g, rate=g.rate * factor) for g in scenario.workload
    )
    return replace(scenario, workload=groups)


def _carried(scenario: ResolvedScenario, lowered: Lowered) -> float:
    """Share of the first arrivals that is complete when about `ARRIVALS` have come."""
    closed = sum(g.in_flight for g in scenario.workload if not g.is_open)
    until = min(HORIZON_PS, max(1, round(ARRIVALS / _rate(scenario) * PS_PER_S)))
    batch = CompiledEngine(lowered.network, seed=SEED).advance(ARRIVALS, until)
    waiting = max(0, batch.outstanding - closed)
    return batch.completions / max(1, batch.completions + waiting)


def _grows(lowered: Lowered) -> bool:
    """True if the backlog grows by more than completes, once requests complete at all."""
    engine = CompiledEngine(lowered.network, seed=SEED)
    first = engine.advance(COMPLETIONS, HORIZON_PS)
    second = engine.advance(COMPLETIONS, HORIZON_PS)
    return second.outstanding - first.outstanding > second.completions > 0
