"""What follows from figures and their intervals: CPU, bounds, gains, goals."""

import math
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.measure.figures import Cpu, Distribution, Interval, Relief
from nvmesim.predict.uncertainty.certainty import UncertaintyBudget
from nvmesim.predict.uncertainty.model_error import ALIKE, model_error
from nvmesim.predict.uncertainty.numbers import Z95, factors, label_of
from nvmesim.predict.uncertainty.parts import NONE, Parts, Span
from nvmesim.predict.uncertainty.standing import CPU_BOUND
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S

# -- the goal that a load states ------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A latency that 99 % of the requests should keep."""

    what: str
    """As "p99"."""
    limit: float
    """s"""
    probability: float | None
    """That it is kept, with all that is not known; None: no interval is."""


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


# -- differences of two designs: most of what is not known is the same for both -------------------

LEAST: Final = 1e-9


@dataclass(frozen=True)
class Gain:
    """Gain of a design over another, 95 %."""

    interval: Interval
    """Relative: 0.1 is 10 % more."""
    p_better: float
    """Probability that it does more."""


def unshared(log_gain: float, *, same_class: bool) -> float:
    """Share of the error's variance that two designs do not have in common.

    Designs of one class share the model's error as far as they are alike, and how far they are is
    seen in what they do: a change that does nothing has no error, and of one that changes much
    `ALIKE` of the variance is still common, as it is of the rows of one source. Designs of two
    classes share none.

    >>> unshared(0.0, same_class=True), round(unshared(math.log(2), same_class=True), 2)
    (0.0, 0.25)
    """
    return (1 - ALIKE) * (1 - math.exp(-abs(log_gain))) if same_class else 1.0


def gain_of(change: Interval, shared: tuple[Span, Span], *, same_class: bool = True,
            own: Span = NONE) -> Gain:  # fmt: skip
    """Return what is known of a relative *change* whose interval is the simulation's alone.

    *shared* are the spans of misfit and model of both designs, *own* what their numbers do to the
    difference.
    """
    log_gain = math.log(max(1 + change.value, LEAST))
    part = unshared(log_gain, same_class=same_class)
    sides = []
    for side in (0, 1):
        both = math.hypot(shared[0][side], shared[1][side]) * math.sqrt(part)
        end = (change.low, change.high)[side]
        simulated = abs(math.log(max(1 + end, LEAST)) - log_gain)
        sides.append(math.hypot(both, simulated, own[side]))
    down, up = sides
    low, high = math.expm1(log_gain - down), math.expm1(min(log_gain + up, 50.0))
    return Gain(Interval(change.value, low, high), p_better(log_gain, down, up))


def p_better(log_gain: float, down: float, up: float) -> float:
    """Probability that a gain is above 0; a half where the two are alike.

    >>> round(p_better(0.1, 0.1, 0.1), 3), p_better(0.0, 0.0, 0.0)
    (0.975, 0.5)
    """
    half = down if log_gain > 0 else up
    if half <= LEAST:
        return 0.5 if abs(log_gain) <= LEAST else float(log_gain > 0)
    return 0.5 * (1 + math.erf(log_gain * Z95 / half / math.sqrt(2)))


def shown(relief: Relief, value: float, parts: Parts) -> Relief:
    """*relief* about the printed IOPS *value*, its intervals as wide as all parts make them."""
    change = Interval(relief.gain, relief.gain_low, relief.gain_high)
    rest = replace(parts, simulation=NONE).total
    found = gain_of(change, (rest, rest))
    iops = value * (1 + relief.gain)
    return replace(
        relief,
        iops=Interval(iops, *parts.around(iops)),
        gain_low=found.interval.low, gain_high=found.interval.high, p_better=found.p_better,
    )  # fmt: skip


# -- CPU and bounds -------------------------------------------------------------------------------


PAID = ("submit", "complete", "wakeup", "interrupt", "handler", "per_batch", "per_write",
        "per_target", "per_sharer", "per_child")  # fmt: skip
"""Numbers of a stack that are cycles of a request."""


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
            if key in PAID and isinstance(value, float | int):
                step = factor.adds[0] if factor.adds else value * math.expm1(up)
                total += (step / cycles) ** 2
    return math.log1p(Z95 * math.sqrt(total))
