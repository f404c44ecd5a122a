"""How sure a difference between two designs is: most of what is not known is the same for both."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.measure.figures import Interval, Relief
from nvmesim.predict.uncertainty.model_error import ALIKE
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.predict.uncertainty.parts import NONE, Parts, Span

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
    if not same_class:
        return 1.0
    return (1 - ALIKE) * (1 - math.exp(-abs(log_gain)))


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
