"""Intervals of figures that follow from others: CPU and bounds."""

from __future__ import annotations

import math
from dataclasses import replace

from nvmesim.measure.figures import Cpu, Interval
from nvmesim.predict.uncertainty.certainty import UncertaintyBudget
from nvmesim.predict.uncertainty.classes import CPU_BOUND
from nvmesim.predict.uncertainty.model_error import model_error
from nvmesim.predict.uncertainty.numbers import Z95, factors, label_of
from nvmesim.predict.uncertainty.parts import NONE
from nvmesim.scenario.resolved import ResolvedScenario


def cpu_intervals(
    scenario: ResolvedScenario, known: UncertaintyBudget, cpu: Cpu, *, is_full: bool
) -> dict[str, Interval]:
    """Return the 95 % intervals of *cpu*'s figures; those of no CPU time are left out.

    The CPU time of a request is as uncertain as the stack's numbers, and as the rate of a server
    whose CPUs are full: there the rate is one over that time. A utilization is that time at the
    predicted rate; it is *is_full* by itself where a CPU stops the load.
    """
    error = model_error(replace(known.known.standing, model_class=CPU_BOUND, limit="cpu"))
    cost = math.hypot(_stack_half(scenario, cpu.cycles_per_io), error.half)
    down, up = (0.0, 0.0) if is_full else known.parts("iops").total
    spans = {
        "cycles_per_io": (cost, cost), "ghz_per_miops": (cost, cost),
        "logical_utilization": (math.hypot(cost, down), math.hypot(cost, up)),
        "physical_utilization": (math.hypot(cost, down), math.hypot(cost, up)),
    }  # fmt: skip
    found: dict[str, Interval] = {}
    for name, (below, above) in spans.items():
        value = getattr(cpu, name)
        if value > 0:
            most = 1.0 if name.endswith("utilization") else math.inf
            high = max(value, min(most, value * math.exp(above)))
            found[name] = Interval(value, value * math.exp(-below), high)
    return found


def _stack_half(scenario: ResolvedScenario, cycles: float) -> float:
    """95 % half-width of a request's CPU time, of the logarithm, by the stack's own numbers.

    Each number counts as if every request paid it: an upper bound, without a simulation.
    """
    stack = scenario.stack
    if cycles <= 0:
        return 0.0
    total = 0.0
    for factor in factors(scenario):
        if factor.profile != label_of(stack):
            continue
        for key, (up, _) in factor.moves.items():
            value = getattr(getattr(stack, key, None), "value", None)
            if isinstance(value, float | int):
                step = factor.adds[0] if factor.adds else value * math.expm1(up)
                total += (step / cycles) ** 2
    return math.log1p(Z95 * math.sqrt(total))


def bound_interval(known: UncertaintyBudget, bound: float) -> Interval:
    """Return the interval of an operational *bound*: all but the simulation's part."""
    low, high = replace(known.parts("iops"), simulation=NONE).around(bound)
    return Interval(bound, low, high)
