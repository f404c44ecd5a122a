"""How much slower a server is by what it holds: the CPUs of a socket, the arm of a hard disk.

The arm of a hard disk: of the commands that it holds it serves the nearest first. One command alone
takes a seek and half a turn. Of n that wait, the disk (and Linux before it) takes the one with the
shortest positioning time, so that more outstanding commands mean less time each. Taken here: the
shortest of n independent positioning times, drawn from the law of one alone. Source of the rule:
M. Seltzer, P. Chen and J. Ousterhout, "Disk Scheduling Revisited", USENIX Winter 1990 (shortest
access time first). That it starves the farthest ones, so that those left are farther than fresh
ones, is neglected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.network.distributions import gamma_quantiles
from nvmesim.network.network import SCALE_ONE

ARM_CELLS = 1024


def smt_factors(
    cores: int, threads_per_core: int, smt_yield: float, contention: float = 0.0
) -> list[int]:
    """Service factor x SCALE_ONE by number of busy logical CPUs, 1..cores x threads_per_core.

    Idle cores fill first; each core with all siblings busy does ``smt_yield`` of one thread's work.
    The loss is spread over all that are busy, so that work done per second is exact at every level.
    *contention* makes every request dearer by that share for each further CPU that is busy.
    The yield is about 1.25, published as "up to 30 %" (dasher.com).

    >>> [round(f / 65536, 3) for f in smt_factors(2, 2, 1.25)]
    [1.0, 1.0, 1.333, 1.6]
    >>> [round(f / 65536, 3) for f in smt_factors(2, 1, 1.0, contention=0.1)]
    [1.0, 1.1]
    """
    factors = []
    for busy in range(1, cores * threads_per_core + 1):
        extra = max(0, busy - cores)
        shared = extra / (threads_per_core - 1) if threads_per_core > 1 else 0.0
        capacity = min(busy, cores) + shared * (smt_yield - 1)
        slower = 1 + contention * (busy - 1)
        factors.append(round(SCALE_ONE * busy / capacity * slower))
    return factors


def arm_factors(cv: float, most: int) -> list[int]:
    """Service factor x `SCALE_ONE` with 1 to *most* commands inside, which share the arm.

    Each of n takes n times as long as the arm takes for one, and that is the nearest of n.

    >>> [round(f / 65536, 2) for f in arm_factors(0.34, 3)]
    [1.0, 1.62, 2.18]
    """
    return [round(SCALE_ONE * n * nearest_share(cv, n)) for n in range(1, most + 1)]


def nearest_share(cv: float, n: int) -> float:
    """Mean of the shortest of *n* positioning times over the mean of one (gamma, its *cv*).

    >>> [round(nearest_share(0.34, n), 1) for n in (1, 4, 8, 32)]
    [1.0, 0.7, 0.6, 0.4]
    """
    if cv <= 0:
        return 1.0
    longer = (1 - np.arange(ARM_CELLS + 1) / ARM_CELLS) ** n  # share in which all n take longer
    return float(_positioning_times(cv) @ -np.diff(longer))


@lru_cache(maxsize=64)
def _positioning_times(cv: float) -> Floats:
    """float64[ARM_CELLS]: quantiles of a positioning time of mean 1."""
    shape = 1.0 / (cv * cv)
    return gamma_quantiles(shape, (np.arange(ARM_CELLS) + 0.5) / ARM_CELLS) / shape
