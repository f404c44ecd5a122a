"""How long a read waits for the program that its die is busy with.

It waits for the end of the program, or until the program is suspended, whichever comes sooner; a
suspended program ends so much later. A drive that suspends none has a time longer than a program.
Rows of pure reads and pure writes cannot tell the time: no read ever meets a program. A mix at a
moderate depth is worth a third, so the time is wide until rows of mixes tell it. Source of the
mechanism: Wu and He 2012, Reducing SSD read latency via NAND flash program and erase suspension
(FAST '12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nvmesim.calibrate.evidence import with_numbers
from nvmesim.catalog.profile import DriveProfile, Quantity

US: Final = 1e6
USUAL: Final = 320 * US
"""Time that a suspension takes, ps. By drives whose mixes are known beside their pure rows: a P4610
21 us, an unnamed PCIe 4.0 drive 90 us (github Tratori/nvme-bench-delab), a data sheet's 70/30 25;
48 mixes of 28 sources of `calibration/held-out`, most of them of drives for desktops, are nearest
with 320 to 640 us at all depths."""
LOW, HIGH = 20 * US, 5000 * US
"""95 % interval of it where no mix was measured, ps: holds those, and the longest programs."""
TRIED: Final = (1 / 16, 1 / 4, 1.0, 4.0)
"""Times that are tried first, of the usual one: from a short suspension to none at all."""
DOUBT: Final = 1.4
"""Standard deviation of its logarithm: a quarter of what lies between `LOW` and `HIGH`."""
STEP: Final = 2.0
"""Times beside the best of these are this factor away."""
FASTEST, SLOWEST = 20 * US, 500 * US
"""Reads of a die between which it is flash, ps: for a faster one (phase change) no program is
suspended, as that takes longer; no disk's arm is suspended. Assumed."""
LONGEST: Final = 10_000 * US
"""Programs that are longer are none, ps: four bits a cell take 2 to 3 ms. Writes that are so slow
wait for something else, a disk's arm perhaps, which no read suspends."""


def may_suspend(profile: DriveProfile) -> bool:
    """True if a program of *profile* may be suspended: its dies are flash, and take turns.

    >>> from nvmesim.catalog.load import get
    >>> may_suspend(get("drive", "intel-p4610-1.6tb")), may_suspend(get("drive", "hdd-7200"))
    (True, False)
    """
    is_flash = FASTEST < profile.read.die.value < SLOWEST and profile.write.program.value < LONGEST
    return profile.takes_turns and is_flash


def suspending(
    profile: DriveProfile, time_ps: float = USUAL, span: tuple[float, float] = (LOW, HIGH),
    source: str = "",
) -> DriveProfile:  # fmt: skip
    """Return *profile* with programs that a read suspends in *time_ps*; *span* is its interval.

    Assumed without a *source*: the rows that told it.

    >>> from nvmesim.catalog.load import get
    >>> suspending(get("drive", "samsung-980pro-1tb")).write.suspend.value
    320000000.0
    """
    time = Quantity(
        value=time_ps, low=min(span[0], time_ps), high=max(span[1], time_ps),
        basis="fitted" if source else "assumed",
        source=source or "no row of a mix tells it; as mixes of published drives do",
    )  # fmt: skip
    return with_numbers(profile, {"write.suspend": time})


def fitted(
    profile: DriveProfile, cost: Callable[[DriveProfile], float], scale: float, source: str
) -> tuple[DriveProfile, float]:
    """*profile* with the time of a suspension that its mixes tell, and what they cost then.

    *cost*: half a chi-square of the mixes, the prior of the time is added. *scale*: of that, what
    counts as one. A long time may be as good as a short one, so all of the span is looked at before
    the best is refined.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> found, _ = fitted(drive, lambda p: 40 * np.log(p.write.suspend.value / 80e6) ** 2, 1.0, "m")
    >>> found.write.suspend.value
    80000000.0
    """
    costs: dict[float, float] = {}
    for factor in TRIED:
        costs[USUAL * factor] = _cost(cost, profile, USUAL * factor, scale)
    first = min(costs, key=lambda t: costs[t])
    for time in (first * STEP, first / STEP):
        costs[time] = _cost(cost, profile, time, scale)
    best = min(costs, key=lambda t: costs[t])
    return suspending(profile, best, _span(costs, scale), source), costs[best]


def _cost(
    cost: Callable[[DriveProfile], float], profile: DriveProfile, time: float, scale: float
) -> float:
    off = math.log(time / USUAL) / DOUBT
    return cost(suspending(profile, time)) + scale * off**2 / 2


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
