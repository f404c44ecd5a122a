"""What follows from figures and their intervals: CPU, bounds, gains, goals."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
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
STEPS: Final = 200
"""Quantiles of each of the two normals of a joint draw: 5 of 200 lie beyond each 95 % end."""


@dataclass(frozen=True)
class Gain:
    """Gain of a design over another, 95 %."""

    interval: Interval
    """Relative: 0.1 is 10 % more."""
    p_better: float
    """Probability that it does more."""


@dataclass(frozen=True)
class Pair:
    """One figure of two designs, drawn jointly: their ratio and their difference come from it.

    Of each the logarithm is a two-piece normal about its value with the ends of its own interval;
    the two normals are correlated by what the designs share. The draws are all pairs of quantiles
    of the normals' sum and difference, so that designs that change places mirror exactly.
    """

    values: tuple[float, float]
    spans: tuple[Span, Span]
    correlation: float

    @property
    def gain(self) -> Gain:
        """Gain of the second over the first.

        >>> one = Pair((1.0, 2.0), ((0.1, 0.7), (0.2, 0.3)), 0.5)
        >>> other = Pair(one.values[::-1], one.spans[::-1], 0.5)
        >>> round((1 + one.gain.interval.low) * (1 + other.gain.interval.high), 9)
        1.0
        >>> round(one.gain.p_better + other.gain.p_better, 9)
        1.0
        """
        first, second = self._moves
        log_gain = math.log(self.values[1]) - math.log(self.values[0])
        off = second - first
        value, low, high = (min(x, 50.0) for x in _ends(off, log_gain))
        wins = float(np.mean((off > -log_gain) + 0.5 * (off == -log_gain)))
        return Gain(Interval(math.expm1(value), math.expm1(low), math.expm1(high)), wins)

    @property
    def difference(self) -> Interval:
        """The second less the first, in their unit."""
        (a, b), (first, second) = self.values, self._moves
        return Interval(*_ends(b * np.expm1(second) - a * np.expm1(first), b - a))

    @property
    def _moves(self) -> list[Floats]:
        """float64[STEPS**2] each: by how much the logarithms are off."""
        z = _normal()
        both, apart = (math.sqrt(max(0.0, 1 + s * self.correlation) / 2) for s in (1, -1))
        moves = []
        for sign, (down, up) in zip((-1, 1), self.spans, strict=True):
            drawn = (both * z[:, None] + sign * apart * z[None]).ravel() / Z95
            moves.append(np.where(drawn < 0, drawn * down, drawn * up))
        return moves


def _ends(off: Floats, value: float) -> tuple[float, float, float]:
    """*value* and the 95 % ends of *off* from it."""
    low, high = np.quantile(off, (0.025, 0.975), method="hazen")
    return value, value + min(0.0, float(low)), value + max(0.0, float(high))


@functools.cache
def _normal() -> Floats:
    """float64[STEPS]: quantiles of a normal, alike on both sides."""
    half = [NormalDist().inv_cdf((STEPS / 2 + i + 0.5) / STEPS) for i in range(STEPS // 2)]
    return np.array([-z for z in reversed(half)] + half)


def pair_of(
    values: tuple[float, float], parts: Sequence[Parts], *, same_class: bool, numbers: float,
    chance: float,
) -> Pair:  # fmt: skip
    """Return one figure of two designs, whose *parts* share what they have in common.

    *numbers* is the correlation of what uncertain numbers do to both, *chance* the half-width,
    95 %, of the logarithm of their ratio by simulation alone.
    """
    log_gain = math.log(values[1]) - math.log(values[0])
    a, b = parts
    common = numbers * _size(a.numbers) * _size(b.numbers)
    rest = [math.hypot(_size(p.misfit), _size(p.model)) for p in parts]
    common += (1 - unshared(log_gain, same_class=same_class)) * rest[0] * rest[1]
    runs = [_size(p.simulation) for p in parts]
    most = runs[0] * runs[1]
    common += min(max((runs[0] ** 2 + runs[1] ** 2 - chance**2) / 2, -most), most)
    each = [math.hypot(_size(p.numbers), r, s) for p, r, s in zip(parts, rest, runs, strict=True)]
    share = common / (each[0] * each[1]) if min(each) > LEAST else 0.0
    return Pair(values, (a.total, b.total), min(1.0, round(share, 9)))


def _size(span: Span) -> float:
    """Root mean square of both sides."""
    return math.sqrt((span[0] ** 2 + span[1] ** 2) / 2)


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


def gain_of(change: Interval, rest: tuple[Span, Span], *, same_class: bool = True) -> Gain:
    """Return what is known of a relative *change* whose interval is the simulation's alone.

    *rest* are the spans of all else that is not known of both designs.
    """
    ratio = max(1 + change.value, LEAST)
    half = change.half / ratio
    each = (half / math.sqrt(2),) * 2  # of two runs that share nothing
    parts = [Parts(simulation=each, model=span) for span in rest]
    return pair_of((1.0, ratio), parts, same_class=same_class, numbers=0.0, chance=half).gain


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
        "per_target", "per_sharer", "per_child", "scsi")  # fmt: skip
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
