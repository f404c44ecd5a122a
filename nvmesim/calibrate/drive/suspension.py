"""Whether a read suspends the program that its die is busy with, or waits for its end.

Rows of pure reads and pure writes cannot tell: no read ever meets a program. A mix at a moderate
depth is worth a third. Both are carried, and rows of mixes decide, and tell the time. Source of the
mechanism: Wu and He 2012, Reducing SSD read latency via NAND flash program and erase suspension
(FAST '12).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity

US: Final = 1e6
USUAL: Final = 20 * US
"""Time that a suspension takes, ps. By published drives: mixes of a P4610 tell 21 us and those of
an unnamed PCIe 4.0 drive 90 us (github Tratori/nvme-bench-delab), a data sheet's 70/30 25 us."""
LOW, HIGH = 5 * US, 100 * US
"""95 % interval of it where no mix was measured, ps: holds those three."""
MOST: Final = 640 * US
"""Longest time that is tried, ps: nearly a program, whose end comes sooner than that."""
DOUBT: Final = 0.8
"""Standard deviation of its logarithm: a quarter of what lies between `LOW` and `HIGH`."""
SUSPENDS: Final = {True: 2 / 3, False: 1 / 3}
"""Probability that a drive suspends, before its own mixes are looked at, where a data sheet states
its rates (true: a drive for servers) and where rows measured them. Of twelve drives whose mixes are
known beside their pure rows those are nearer with it: P4610, an unnamed PCIe 4.0 drive and a data
sheet of four for servers (X02 is not), N07 of eight others (not: one of 2014, S01, W01, Y01, Y02,
Y04 and Y07; sources of `calibration/held-out`). (3 + 1) / (4 + 2) by Laplace's rule of succession,
and as measured rows are of both, (4 + 1) / (12 + 2) of all, rounded."""
STEP: Final = 2.0
"""Tried times are this factor apart."""
FASTEST, SLOWEST = USUAL, 500 * US
"""Reads of a die between which it is flash, ps: for a faster one (phase change) no program is
suspended, as that takes longer; no disk's arm is suspended. Assumed."""


def may_suspend(profile: DriveProfile) -> bool:
    """True if a read of *profile* is served sooner by suspending a program than by its end.

    Half a page is what is left of its program on average, which is more than `USUAL`.

    >>> from nvmesim.catalog.load import get
    >>> may_suspend(get("drive", "intel-p4610-1.6tb")), may_suspend(get("drive", "hdd-7200"))
    (True, False)
    """
    return profile.takes_turns and FASTEST < profile.read.die.value < SLOWEST


def suspending(
    profile: DriveProfile, time_ps: float = USUAL, span: tuple[float, float] = (LOW, HIGH),
    source: str = "",
) -> DriveProfile:  # fmt: skip
    """Return *profile* with programs that a read suspends in *time_ps*; *span* is its interval.

    Assumed without a *source*: the rows that told it.

    >>> from nvmesim.catalog.load import get
    >>> suspending(get("drive", "samsung-980pro-1tb")).write.suspend.value
    20000000.0
    """
    time = Quantity(
        value=time_ps, low=min(span[0], time_ps), high=max(span[1], time_ps),
        basis="fitted" if source else "assumed",
        source=source or "no row of a mix tells it; as mixes of published drives do",
    )  # fmt: skip
    write = profile.write.model_copy(update={"suspend": time})
    return profile.model_copy(update={"write": write})


def fitted(
    profile: DriveProfile, cost: Callable[[DriveProfile], float], scale: float, source: str
) -> tuple[DriveProfile, float]:
    """*profile* with the time of a suspension that its mixes tell, and what they cost then.

    *cost*: half a chi-square of the mixes, the prior of the time is added. *scale*: of that, what
    counts as one. Times are tried upwards from the usual one and then downwards, as long as each
    is better than the one before.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> found, _ = fitted(drive, lambda p: 40 * np.log(p.write.suspend.value / 80e6) ** 2, 1.0, "m")
    >>> found.write.suspend.value
    80000000.0
    """
    costs: dict[float, float] = {}

    def tried(time: float) -> float:
        if time not in costs:
            off = np.log(time / USUAL) / DOUBT
            costs[time] = cost(suspending(profile, time)) + scale * float(off**2) / 2
        return costs[time]

    best = USUAL
    for factor in (STEP, 1 / STEP):
        while LOW / STEP < best * factor <= MOST and tried(best * factor) < tried(best):
            best *= factor
    return suspending(profile, best, _span(costs, scale), source), costs[best]


def _span(costs: dict[float, float], scale: float) -> tuple[float, float]:
    """95 % interval of the time, of the *costs* of those tried; a step is the least doubt."""
    times: Sequence[float] = sorted(costs)
    logs, half = np.log(times), np.array([costs[t] for t in times]) / scale
    weights = np.exp(half.min() - half)
    weights /= weights.sum()
    mean = float(weights @ logs)
    spread = float(weights @ (logs - mean) ** 2) + np.log(STEP) ** 2 / 12
    half_width = 1.96 * float(np.sqrt(spread))
    return float(np.exp(mean - half_width)), float(np.exp(mean + half_width))
