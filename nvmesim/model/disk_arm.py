"""The arm of a hard disk: of the commands that it holds it serves the nearest first.

One command alone takes a seek and half a turn. Of n that wait, the disk (and Linux before it) takes
the one with the shortest positioning time, so that more outstanding commands mean less time each.
Taken here: the shortest of n independent positioning times, drawn from the law of one alone. Source
of the rule: M. Seltzer, P. Chen and J. Ousterhout, "Disk Scheduling Revisited", USENIX Winter 1990
(shortest access time first). That it starves the farthest ones, so that those left are farther than
fresh ones, is neglected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.network import gamma
from nvmesim.network.network import SCALE_ONE

CELLS = 1024


def nearest_share(cv: float, n: int) -> float:
    """Mean of the shortest of *n* positioning times over the mean of one (gamma, its *cv*).

    >>> [round(nearest_share(0.34, n), 1) for n in (1, 4, 8, 32)]
    [1.0, 0.7, 0.6, 0.4]
    """
    if cv <= 0:
        return 1.0
    longer = (1 - np.arange(CELLS + 1) / CELLS) ** n  # share in which all n take longer
    return float(_times(cv) @ -np.diff(longer))


@lru_cache(maxsize=64)
def _times(cv: float) -> Floats:
    """float64[CELLS]: quantiles of a positioning time of mean 1."""
    shape = 1.0 / (cv * cv)
    return gamma.quantiles(shape, (np.arange(CELLS) + 0.5) / CELLS) / shape


def arm_factors(cv: float, most: int) -> list[int]:
    """Service factor x `SCALE_ONE` with 1 to *most* commands inside, which share the arm.

    Each of n takes n times as long as the arm takes for one, and that is the nearest of n.

    >>> [round(f / 65536, 2) for f in arm_factors(0.34, 3)]
    [1.0, 1.62, 2.18]
    """
    return [round(SCALE_ONE * n * nearest_share(cv, n)) for n in range(1, most + 1)]
