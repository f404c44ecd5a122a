"""How long a read waits for the program that its die is busy with.

It waits for the end of the program, or until the program is suspended, whichever comes sooner; a
suspended program ends so much later. A drive that suspends none has a time longer than a program.
Rows of pure reads and pure writes cannot tell the time: no read ever meets a program. A mix at a
moderate depth is worth a third, so the time is wide until rows of mixes tell it. Source of the
mechanism: Wu and He 2012, Reducing SSD read latency via NAND flash program and erase suspension
(FAST '12).
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers

US: Final = 1e6
SHORT: Final = 20 * US
"""Shortest time that is usual, ps."""
USUAL: Final = {True: 80 * US, False: 320 * US}
"""Time that a suspension takes, ps, where a data sheet states the drive's rates (true: a drive for
servers) and where rows measured them. Servers: a P4610 takes 21 us, an unnamed PCIe 4.0 drive 90
(github Tratori/nvme-bench-delab), eight PS1030 in RAID5 less than 250 (their writes, StorageReview,
would not be reached), a CM7-R 39 to 2,200 by its sheet. 48 mixes of 28 sources of
`calibration/held-out`, most of them of drives for desktops, are nearest with 320 to 640 us at all
depths."""
SPREAD: Final = 16.0
"""95 % of drives lie within this factor of it: holds those, and programs that nothing suspends."""
TRIED: Final = (1 / 16, 1 / 4, 1.0, 4.0)
"""Times that are tried first, of the usual one: from a short suspension to none at all."""
DOUBT: Final = 1.4
"""Standard deviation of its logarithm: half that of `SPREAD`."""
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
    profile: DriveProfile, time_ps: float, span: tuple[float, float] = (0.0, 0.0), source: str = ""
) -> DriveProfile:
    """Return *profile* with programs that a read suspends in *time_ps*; *span* is its interval.

    Assumed, within `SPREAD`, without a *source*: the rows that told it.

    >>> from nvmesim.catalog.load import get
    >>> suspending(get("drive", "samsung-980pro-1tb"), 320e6).write.suspend.value
    320000000.0
    """
    low, high = span if source else (time_ps / SPREAD, time_ps * SPREAD)
    time = Quantity(
        value=time_ps, low=min(low, time_ps), high=max(high, time_ps),
        basis="fitted" if source else "assumed",
        source=source or "no row of a mix tells it; as mixes of published drives do",
    )  # fmt: skip
    return with_numbers(profile, {"write.suspend": time})


def fitted(
    profile: DriveProfile, cost: Callable[[DriveProfile], float], scale: float, source: str,
    usual: float = USUAL[False],
) -> tuple[DriveProfile, float]:  # fmt: skip
    """*profile* with the time of a suspension that its mixes tell, and what they cost then.

    *cost*: half a chi-square of the mixes, the prior of the time is added. *scale*: of that, what
    counts as one. *usual*: the likeliest before. A long time may be as good as a short one, so all
    of the span is looked at before the best is refined.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> found, _ = fitted(drive, lambda p: 40 * np.log(p.write.suspend.value / 80e6) ** 2, 1.0, "m")
    >>> found.write.suspend.value
    80000000.0
    """
    costs: dict[float, float] = {}

    def best_of(times: Sequence[float]) -> float:
        for time in times:
            off = math.log(time / usual) / DOUBT
            costs[time] = cost(suspending(profile, time)) + scale * off**2 / 2
        return min(costs, key=lambda t: costs[t])

    first = best_of([usual * factor for factor in TRIED])
    best = best_of([first * STEP, first / STEP])
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
