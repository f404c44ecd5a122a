"""Differences between two runs that share their random numbers.

Source: common random numbers, Law and Kelton, Simulation Modeling and Analysis, chapter 11.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.measure.control import Measured
from nvmesim.measure.figures import Interval, Relief
from nvmesim.measure.latency import enough, paired_difference, samples
from nvmesim.measure.steady import N_GROUPS, Col, column, grouped, half_width, mser
from nvmesim.units import PS_PER_S, format_iops

MIN_PAIRED: Final = 16
"""Batches of two runs that are compared one by one, at least."""


@dataclass(frozen=True)
class Comparison:
    """Changes from scenario *a* to *b*, each with the interval of the difference."""

    a: str
    b: str
    iops_a: Interval
    iops_b: Interval
    iops: Interval
    """b - a"""
    gain: Interval
    """Relative: 0.1 is 10 % more."""
    mean_s: Interval | None
    """Mean latency, b - a; None where it is not known how sure that is."""
    p99_s: Interval | None
    """99th percentile, b - a; None where too few samples."""
    requests: int
    """Measured in each."""
    warnings: tuple[str, ...] = ()
    saved: float = 1.0
    """How many times the requests independent runs would need; inf: chance does both the same."""
    p_better: float | None = None
    """Probability that b does more than a, with all that is not known; None: not asked."""
    mean_a_s: float | None = None
    """Mean latency of a, as `run` prints it; None: not asked."""
    p99_a_s: float | None = None

    def __str__(self) -> str:
        low, high = 100 * self.gain.low, 100 * self.gain.high
        times = "any number of" if math.isinf(self.saved) else f"{self.saved:.2g} times the"
        return (
            f"{self.b} against {self.a}: {format_iops(self.iops_b.value)} against "
            f"{format_iops(self.iops_a.value)}, {100 * self.gain.value:+.2f} % "
            f"({low:+.2f} to {high:+.2f} %; independent runs would need {times} requests)"
        )


def common_warmup(a: Floats, b: Floats) -> int:
    """Records to leave out of both runs: the later of their warm-ups, by throughput (MSER)."""
    n = min(len(a), len(b))
    edges = np.arange(n // 2 + 1)
    rates = (column(x[:n], Col.READS, None) / np.maximum(1.0, x[:n, Col.DURATION]) for x in (a, b))
    return max(mser(rate, edges) for rate in rates)


def gain(a: Floats, b: Floats) -> Interval:
    """Throughput of *b* over that of *a*, less 1; records float64[n, len(Col)], paired by row.

    >>> rows = np.ones((8, 10))
    >>> gain(rows, rows)
    Interval(value=0.0, low=0.0, high=0.0)
    """
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    rate_a, rate_b = _rate(a), _rate(b)
    if rate_a <= 0:
        return Interval(0.0, 0.0, 0.0)
    residuals = (_relative(b, rate_b) - _relative(a, rate_a)) * rate_b / rate_a
    return Interval.around(rate_b / rate_a - 1, half_width(residuals))


def _rate(records: Floats) -> float:
    duration = float(records[:, Col.DURATION].sum())
    return float(column(records, Col.READS, None).sum()) / duration if duration > 0 else 0.0


def _relative(records: Floats, rate: float) -> Floats:
    """float64[n]: what each record adds to the relative error of the run's rate."""
    whole = rate * float(records[:, Col.DURATION].sum())
    counts = column(records, Col.READS, None)
    return np.asarray((counts - rate * records[:, Col.DURATION]) / max(whole, 1e-300))


def _steady_gain(a: Floats, b: Floats) -> Interval:
    """`gain` of two runs from their start on, both without their warm-up."""
    n, cut = min(len(a), len(b)), common_warmup(a, b)
    return gain(a[cut:n], b[cut:n])


def half_of_rate(head: Floats, changed: Floats) -> float:
    """Half-width of the throughput of *changed* relative to itself, as far as the pair tells."""
    change = _steady_gain(head, changed)
    return change.half / max(1 + change.value, 1e-300)


def relief(text: str, base: Interval, head: Floats, changed: Floats) -> Relief:
    """A relief from the first batches of the base run (*head*) and those of the *changed* one."""
    change = _steady_gain(head, changed)
    iops = base.value * (1 + change.value)
    half = float(np.hypot(base.half * (1 + change.value), base.value * change.half))
    return Relief(text, Interval.around(iops, half, 0.0), change.value, change.low, change.high)


def compared(
    names: tuple[str, str], a: Measured, b: Measured, warnings: tuple[str, ...]
) -> Comparison:
    """The comparison of two runs that draw the same numbers, paired by their first batches."""
    if min(len(a.head), len(b.head)) < MIN_PAIRED or a.batch != b.batch:  # they do not pair up
        change = gain(a.window.records, b.window.records)
    else:
        change = _steady_gain(a.head, b.head)
    iops_a, iops_b = a.window.iops(), b.window.iops()
    ratio = max(1 + change.value, 1e-300)
    half = min(change.half / ratio, 50.0)  # of the logarithm: the same in whichever order
    ends = (ratio * math.exp(-half) - 1, ratio * math.exp(half) - 1)
    first, second = samples(a.window, None), samples(b.window, None)
    p99 = None
    if first and second and enough(min(first.size, second.size), 99):
        moved = paired_difference(first, second, 0.99)
        p99 = Interval(*(v / PS_PER_S for v in (moved.value, moved.low, moved.high)))
    means = [w.mean_latency_s(None).value for w in (a.window, b.window)]
    parts = []
    n = min(N_GROUPS, len(a.window.records), len(b.window.records))
    for window, mean in zip((a.window, b.window), means, strict=True):
        count = column(window.records, Col.READS, None)
        sums = column(window.records, Col.READ_LAT, None) / PS_PER_S
        parts.append(grouped((sums - mean * count) / max(1.0, float(count.sum())), n))
    return Comparison(
        *names, iops_a, iops_b, _difference(iops_a, iops_b, half), Interval(change.value, *ends),
        Interval.around(means[1] - means[0], half_width(parts[1] - parts[0])), p99,
        min(a.window.requests, b.window.requests), warnings, _saved(iops_a, iops_b, change),
    )  # fmt: skip


def _difference(a: Interval, b: Interval, half: float) -> Interval:
    """*b* less *a*, the logarithm of whose ratio is known to *half*."""
    own = b.half**2 / max(b.value, 1e-300) - a.half**2 / max(a.value, 1e-300)
    variance = (b.value - a.value) * own + a.value * b.value * half**2
    return Interval.around(b.value - a.value, math.sqrt(max(0.0, variance)))


def _saved(a: Interval, b: Interval, change: Interval) -> float:
    """Squared width of the gain's interval if the two runs were independent, over what it is."""
    if a.value <= 0 or b.value <= 0:
        return 1.0
    ratio = b.value / a.value
    apart = ratio * math.hypot(a.half / a.value, b.half / b.value)
    if change.half <= 0:
        return math.inf if apart > 0 else 1.0
    return (apart / change.half) ** 2
