"""Sequential streams: the exact cycle of plans, with the stripe cache as the stream keeps it.

On raid5/6 a row is written several times, once for each chunk of its stripe, and md still
holds what it read or wrote before: a sub-stripe stream reads far less than random writes do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.raid.arrays import PlanSet, PlanTable, build_table, table_plan
from nvmesim.raid.geometry import RAID5_MAX_REQUEST, Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.budget import check_offsets, spend
from nvmesim.raid.planner.depth import DepthModel
from nvmesim.raid.planner.merge import joined
from nvmesim.raid.planner.pieces import BARRIER_UNIT, crosses_barriers
from nvmesim.raid.planner.plan import pieces, raw_plan
from nvmesim.raid.planner.stripe_cache import StripeCache

OVERFLOWS: Final = 1024
"""Random requests that are followed where they overflow the stripe cache."""
MAX_REQUESTS: Final = 1 << 15
"""Requests of a cycle that are followed; a longer cycle (odd block sizes) is cut there."""


def sequential_table(
    geometry: RaidGeometry, op: Op, block_size: int, offset: int, *, below: bool = False
) -> PlanTable:
    """The cycle of plans of a stream at queue depth 1, once the stripe cache is warm."""
    small, repeats, per_chunk, keeps = _reduced(geometry, block_size, offset)
    n_requests = _cycle(small, block_size, offset)
    start = offset % _period(small)
    cache = StripeCache(max(small.stripe_cache, 8 * _rows(small)))
    if repeats == 1:
        cache = StripeCache(small.stripe_cache)
    stripe = small.data_disks * small.chunk if small.record.stripe_cache else small.chunk
    keeps_data = small.record.stripe_cache or small.record.records
    warm = -(-2 * stripe // block_size) if keeps_data else 0
    check_offsets(n_requests * repeats)
    spend(0, (warm + n_requests) * pieces(small, block_size))
    base = 2 * _period(small) * -(-(warm * block_size + 1) // _period(small))
    plans = PlanSet()
    numbers: list[int] = []
    for k in range(-warm, n_requests):
        if not keeps and k % per_chunk == 0:
            cache = StripeCache(8)
        place = base + start + k * block_size
        plan = raw_plan(small, op, place, block_size, cache, below=below)
        if k >= 0:
            numbers.append(plans.add(table_plan(plan)))
    groups = np.array(numbers, np.int32).reshape(-1, 1, per_chunk)
    order = np.repeat(groups, repeats, axis=1).reshape(-1)
    return build_table(plans.plans, order, geometry.members, block_size, is_sequential=True)


def _reduced(
    geometry: RaidGeometry, block_size: int, offset: int
) -> tuple[RaidGeometry, int, int, bool]:
    """A geometry with the smallest chunk that shows the same plans, and how to spread its cycle.

    All rows of a chunk meet the same fate, so requests that divide a chunk are followed for one of
    them. Returns the geometry, how often each group of requests comes in the real chunk, the size
    of a group, and whether the cache holds a chunk's rows until the next chunk of the stripe.
    """
    unit = max(block_size, BLOCK)
    chunk = geometry.chunk
    whole = not geometry.record.has_chunks or geometry.record.records
    if whole or chunk % unit or unit % block_size or offset % unit:
        return geometry, 1, 1, True
    keeps = not geometry.record.stripe_cache or chunk // BLOCK <= geometry.stripe_cache
    # Starting inside a chunk only turns the cycle, which repeats anyway.
    return replace(geometry, chunk=unit), chunk // unit, unit // block_size, keeps


def _rows(geometry: RaidGeometry) -> int:
    return geometry.chunk // BLOCK


def _period(geometry: RaidGeometry) -> int:
    if not geometry.record.has_chunks:
        return BARRIER_UNIT
    if geometry.record.stripe_cache:
        return len(geometry.stripe_roles) * geometry.data_disks * geometry.chunk
    return geometry.members * geometry.record.turns * geometry.chunk


def _cycle(geometry: RaidGeometry, block_size: int, offset: int) -> int:
    """Requests until the stream is at the same place of the layout again."""
    if not geometry.record.has_chunks and not crosses_barriers(
        geometry, block_size, block_size, offset
    ):
        return 1
    period = _period(geometry)
    return min(math.lcm(period, block_size) // block_size, MAX_REQUESTS)


def needs_depth_model(geometry: RaidGeometry, block_size: int, depth: int) -> bool:
    """True if writes of a stream meet in the rows of a raid5 or raid6.

    They do with more than a chunk in flight, or if one request overflows the stripe cache.
    """
    if not geometry.record.stripe_cache:
        return False
    stripes = -(-block_size // (geometry.chunk * geometry.data_disks))
    rows = min(stripes * _rows(geometry), -(-block_size // BLOCK))
    return (depth > 1 and depth * block_size > geometry.chunk) or rows > geometry.stripe_cache


def overflows_at_random(geometry: RaidGeometry, block_size: int, depth: int) -> bool:
    """True if random writes are handled before all of a stripe has come.

    They are when those in flight overflow the stripe cache and a stripe takes several of the bios
    of 1 MiB that raid5/6 cuts requests into; smaller stripes come as a whole.
    """
    if not geometry.record.stripe_cache or geometry.kernel == "none":
        return False
    stripe = geometry.chunk * geometry.data_disks
    rows = min(-(-block_size // stripe) * _rows(geometry), -(-block_size // BLOCK))
    whole = min(block_size, stripe) <= RAID5_MAX_REQUEST
    return not whole and rows * depth > geometry.stripe_cache


def random_overflow_table(
    geometry: RaidGeometry,
    block_size: int,
    align: int,
    offset: int,
    span: int | None,
    depth: int,
    *,
    below: bool = False,
) -> PlanTable:
    """Plans of random writes that overflow the stripe cache, *depth* in flight."""
    size = _period(geometry) * 64 if span is None else span
    count = max(1, (size - block_size) // align + 1)
    model = DepthModel(geometry, block_size, depth, below=below, starts=(align, count))
    plans = PlanSet()
    numbers = [plans.add(table_plan(plan)) for plan in model.run(offset, OVERFLOWS)]
    return build_table(plans.plans, np.array(numbers, np.int32), geometry.members, block_size)


def coalesced_table(
    geometry: RaidGeometry, block_size: int, offset: int, depth: int, *, below: bool = False
) -> PlanTable:
    """The cycle of plans of a stream of writes at queue depth *depth* on raid5 or raid6."""
    model = DepthModel(geometry, block_size, depth, below=below)
    plans = PlanSet()
    cycle = model.cycle(offset)
    if geometry.kernel == "none":
        cycle = [[joined(phase, geometry.max_sectors) for phase in plan] for plan in cycle]
    numbers = [plans.add(table_plan(plan)) for plan in cycle]
    return build_table(
        plans.plans, np.array(numbers, np.int32), geometry.members, block_size, is_sequential=True
    )
