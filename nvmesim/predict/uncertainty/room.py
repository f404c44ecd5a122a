"""What measured rows rule out: a deeper load does no less, and no request takes less time.

A server that did a rate with fewer in flight, on no more drives, does about that or more; and N
requests in flight do no more than N over the time that the fastest of them took (asymptotic bounds:
Denning and Buzen, "The operational analysis of queueing network models", 1978). However little is
known of what lies between, an interval need not reach beyond.
"""

import math
from collections.abc import Iterator
from typing import Final

from nvmesim.catalog.quantity import Residual
from nvmesim.predict.uncertainty.parts import Span
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup

ANY: Final[Span] = (math.inf, math.inf)
"""No row says anything."""
LOST: Final = {True: 0.7, False: 0.5}
"""Of a rate that reads (true), or writes and mixes, did with fewer in flight, what more leave at
least. Sources: threads that share a drive lose a sixth (koroneia, NAND; nx05, Optane), RAID5 and
RAID6 reads a quarter where 64 threads share a lock (linux-raid, J. Finlayson, 2021)."""
FASTER: Final = 1.5
"""Least time of a request in a row over that of a busier load, at most. Source: 162 us of a read by
8 threads are 135 by 64 (DGX-2, GPUDirect Storage guide, 2020); a thread that is never idle saves
its wake-up, a third of a lone cached write."""
LEAST: Final = 0.1
"""Room that is left on each side, of the logarithm."""
QUEUED: Final = 8
"""Requests in flight of a thread from which on it may be full."""
SAME_SIZE: Final = 1.1
SAME_SHARE: Final = 0.05
SECTOR: Final = 4096
"""Bytes that most drives write at once."""


def room(scenario: ResolvedScenario, iops: float) -> Span:
    """Return how far the logarithm of *iops* may lie below and above, by the drives' own rows.

    Infinite where no row of the same share of reads tells, or contradicts what was predicted.
    """
    if len(scenario.workload) != 1 or iops <= 0:
        return ANY
    group, profiles = scenario.workload[0], {d.profile.name: d.profile for d in scenario.drives}
    if group.is_open or group.sync_every or group.rate_limit or len(profiles) != 1:
        return ANY
    profile = next(iter(profiles.values()))
    if profile.captured is None or profile.captured.datasheet:
        return ANY
    rows = [r for r in profile.residuals if _tells(r, group)]
    low = max(_least(rows, group, scenario), default=0.0)
    high = min(_most(rows, group, scenario), default=math.inf)
    down = math.log(iops / low) if 0 < low < iops else math.inf
    up = math.log(high / iops) if iops < high else math.inf
    return max(down, LEAST), max(up, LEAST)


def _tells(row: Residual, group: WorkloadGroup) -> bool:
    """True if *row* is a measured load of the same kind as *group*."""
    is_plain = row.measured is not None and not row.held_out and not row.sync
    is_same = abs(row.read - group.read) <= SAME_SHARE
    return is_plain and is_same and row.sequential == (group.access == "sequential")


def _least(
    rows: list[Residual], group: WorkloadGroup, scenario: ResolvedScenario
) -> Iterator[float]:
    """Yield rates below which the server does not fall, requests/s: rows with no more of all."""
    reads_only = group.read == 1
    if not reads_only and any(v.raid.parity for v in scenario.volumes):
        return
    for row in rows:
        is_same = 1 / SAME_SIZE < group.mean_size / row.block_size < SAME_SIZE
        in_flight = row.threads * row.outstanding
        if is_same and in_flight <= group.in_flight and row.drives <= len(scenario.drives):
            yield LOST[reads_only] * (row.measured or 0.0)


def _most(
    rows: list[Residual], group: WorkloadGroup, scenario: ResolvedScenario
) -> Iterator[float]:
    """Yield rates that are not exceeded, requests/s: a row's, times how much more is in flight.

    Or times the threads, where its own may have been what its requests waited for.
    """
    drives, threads = len(scenario.drives), group.n_threads
    for row in rows:
        may_be_full = row.outstanding >= QUEUED
        busier = max(1.0, threads / row.threads) if may_be_full else 1.0
        is_part = row.read < 1 and row.block_size < SECTOR <= group.mean_size  # it is read before
        if row.block_size <= SAME_SIZE * group.mean_size and not is_part:
            deeper = max(1.0, group.in_flight / drives / row.depth)
            yield FASTER * (row.measured or 0.0) / row.drives * drives * max(deeper, busier)
