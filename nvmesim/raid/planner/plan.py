"""From one request on a volume to the commands on its members, as Linux md issues them.

`raw_plan` plans one request; `nvmesim.raid.tables` turns whole access
patterns into arrays. Source: md ground truth, kernels 6.1.192 and 6.12.117, mdadm 4.2.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from nvmesim.raid.arrays import PlanTable, collected
from nvmesim.raid.geometry import RAID5_MAX_REQUEST, Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.depth import DepthModel
from nvmesim.raid.planner.parity import ParityPlanner, StripeCache
from nvmesim.raid.planner.pieces import (
    BARRIER_UNIT,
    REQUEST_PIECES,
    RawChild,
    check_commands,
    check_offsets,
    crosses_barriers,
    joined,
    plan_pieces,
    spend,
)
from nvmesim.raid.planner.records import plan_records

SECTOR: Final = 512

RawPlan = list[list[RawChild]]
Planner = Callable[[RaidGeometry, Op, int, int, StripeCache | None, bool], RawPlan]
"""Called with (geometry, op, offset, length, cache, below): see `raw_plan`."""


def pieces(geometry: RaidGeometry, length: int) -> int:
    """Rows of 4 KiB where the level has a stripe cache, else chunks of each copy or column."""
    if geometry.record.stripe_cache:
        return REQUEST_PIECES + length // BLOCK
    each = geometry.copies if geometry.record.mirrored else 1
    each = geometry.members if geometry.record.records else each
    return REQUEST_PIECES + (1 + length // (geometry.chunk or BLOCK)) * each


parity_planner: Final = lru_cache(maxsize=64)(ParityPlanner)
"""The planner of a raid5 or raid6; one a geometry, because it remembers its decisions."""


def raw_plan(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None = None, *,
    below: bool = False,
) -> RawPlan:  # fmt: skip
    """Phases of a request without checks or a bitmap; *below* as in `plan_pieces`.

    Raises LimitError where `budget.planning` allows no more.

    >>> raw_plan(RaidGeometry(1, 2), "write", 0, 4096)
    [[((0,), True, 0, 4096, 1), ((1,), True, 0, 4096, 1)]]
    """
    spend(pieces(geometry, length))
    phases = PLANNERS[geometry.record.planner](geometry, op, offset, length, cache, below)
    if geometry.kernel == "none":
        phases = [joined(children, geometry.max_sectors) for children in phases]
    if not geometry.record.records:  # ZFS may write later what a request has changed
        check_commands(sum(map(len, phases)))
    return phases


def _parity_plan(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None, below: bool
) -> RawPlan:
    """Reads in one phase; writes in two, of what is read first and of what is written."""
    planner = parity_planner(geometry)
    if op == "read":
        return [planner.read(offset, length, cache, below=below)]
    return planner.write(offset, length, cache, below=below)


PLANNERS: Final[dict[str, Planner]] = {
    "pieces": plan_pieces, "parity": _parity_plan, "records": plan_records,
}  # fmt: skip
"""Key of a level's record -> what plans its requests."""


def bitmap_phase(geometry: RaidGeometry) -> list[RawChild]:
    """The bitmap write that precedes the first write to a clean region: 512 B on every member.

    An external bitmap lies in a file elsewhere, so members see nothing of it.
    """
    if geometry.bitmap != "internal":
        return []
    live = [m for m in range(geometry.members) if m not in geometry.degraded]
    return [((member,), True, 0, SECTOR, 1) for member in live]


def flush_phase(geometry: RaidGeometry) -> list[RawChild]:
    """One flush, a write of 0 bytes, on every member."""
    live = [m for m in range(geometry.members) if m not in geometry.degraded]
    return [((member,), True, 0, 0, 1) for member in live]


# -- streams, and random writes that overflow or reuse the stripe cache ---------------------------
#
# On raid5/6 a row of a stream is written several times, once for each chunk of its stripe, and md
# still holds what it read or wrote before: a sub-stripe stream reads far less than random writes
# do.

OVERFLOWS: Final = 1024  # random requests that are followed where they overflow the stripe cache
MAX_REQUESTS: Final = 1 << 15
"""Requests of a cycle that are followed; a longer cycle (odd block sizes) is cut there."""
LEAST_SHARE: Final = 0.05
"""Share of the rows that are cached from which re-use counts. Below, a write saves at most so much
of its reads, and the exact expectation over all offsets is worth more than a sample."""
MOST_ROWS: Final = 400_000  # rows that are followed where they are re-used
RECORDED: Final = 4096  # requests of a random load whose plans are kept, if rows allow


@dataclass(frozen=True)
class Pattern:
    """Requests that are planned together; lengths in bytes, as `plan_table` takes them."""

    op: Op
    block_size: int
    align: int
    offset: int
    span: int | None
    depth: int
    below: bool = False  # they lie where rebuilding members are good already


def stream_table(geometry: RaidGeometry, pattern: Pattern) -> PlanTable:
    """The cycle of plans of a stream, once the stripe cache is warm.

    Its writes meet in the rows of a raid5 or raid6 with more than a chunk in flight, or if one
    request overflows the stripe cache.
    """
    block_size = pattern.block_size
    if pattern.op == "write" and geometry.record.stripe_cache:
        gathers = pattern.depth > 1 and pattern.depth * block_size > geometry.chunk
        if gathers or _rows(geometry, block_size) > geometry.stripe_cache:
            model = DepthModel(geometry, pattern.block_size, pattern.depth, below=pattern.below)
            cycle = model.cycle(pattern.offset)
            if geometry.kernel == "none":
                cycle = [[joined(phase, geometry.max_sectors) for phase in plan] for plan in cycle]
            return collected(cycle, geometry.members, pattern.block_size, is_sequential=True)
    small, repeats, per_chunk, keeps = _reduced(geometry, block_size, pattern.offset)
    n_requests = _cycle(small, block_size, pattern.offset)
    period = _period(small)
    rows = small.stripe_cache
    cache = StripeCache(rows if repeats == 1 else max(rows, 8 * (small.chunk // BLOCK)))
    stripe = small.data_disks * small.chunk if small.record.stripe_cache else small.chunk
    keeps_data = small.record.stripe_cache or small.record.records
    warm = -(-2 * stripe // block_size) if keeps_data else 0
    check_offsets(n_requests * repeats)
    spend(0, (warm + n_requests) * pieces(small, block_size))
    first = 2 * period * -(-(warm * block_size + 1) // period) + pattern.offset % period

    def followed() -> Iterator[RawPlan]:
        held = cache
        for k in range(-warm, n_requests):
            if not keeps and k % per_chunk == 0:
                held = StripeCache(8)
            start = first + k * block_size
            plan = raw_plan(small, pattern.op, start, block_size, held, below=pattern.below)
            if k >= 0:
                yield plan

    table = collected(followed(), geometry.members, block_size, is_sequential=True)
    groups = table.order.reshape(-1, 1, per_chunk)
    return replace(table, order=np.repeat(groups, repeats, axis=1).reshape(-1))


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
    return min(math.lcm(_period(geometry), block_size) // block_size, MAX_REQUESTS)


def _rows(geometry: RaidGeometry, block_size: int) -> int:
    """Rows of 4 KiB across the members that a request covers, at most."""
    stripes = -(-block_size // (geometry.chunk * geometry.data_disks))
    return min(stripes * (geometry.chunk // BLOCK), -(-block_size // BLOCK))


def _overflow_table(geometry: RaidGeometry, pattern: Pattern) -> PlanTable | None:
    """Plans of random writes that are handled before all of a stripe has come; None: they are not.

    They are when those in flight overflow the stripe cache and a stripe takes several of the bios
    of 1 MiB that raid5/6 cuts requests into; smaller stripes come as a whole.
    """
    block_size, align = pattern.block_size, pattern.align
    rows = _rows(geometry, block_size) * pattern.depth
    is_one = min(block_size, geometry.chunk * geometry.data_disks) <= RAID5_MAX_REQUEST
    if pattern.op == "read" or is_one or rows <= geometry.stripe_cache:
        return None
    size = _period(geometry) * 64 if pattern.span is None else pattern.span
    starts = align, max(1, (size - block_size) // align + 1)
    model = DepthModel(geometry, block_size, pattern.depth, below=pattern.below, starts=starts)
    return collected(model.run(pattern.offset, OVERFLOWS), geometry.members, block_size)


# -- re-use -------------------------------------------------------------------------------------
#
# md keeps the blocks of the last ``stripe_cache_size`` rows. Where these are a share of all rows
# that a random load touches, a write often needs to read less; on a span that fits the cache it
# reads nothing. Followed request by request, because what a row holds depends on what was written
# to it before. Source: md ground truth (stripe_cache_size 8192 against 256).


def rows_touched(geometry: RaidGeometry, span: int | None) -> int | None:
    """Rows of 4 KiB that a load within *span* bytes of the volume meets; None: not known.

    >>> rows_touched(RaidGeometry(5, 4, 65536, member_size=1 << 30), None)
    262144
    """
    size = geometry.member_size
    if isinstance(size, tuple):
        size = min(size)
    rows = [] if size is None else [size // BLOCK]
    rows += [] if span is None else [-(-span // (geometry.data_disks * BLOCK))]
    return min(rows, default=None)


def followed_table(geometry: RaidGeometry, pattern: Pattern) -> PlanTable | None:
    """Plans of random requests that are followed one by one; None: what is cached does not show.

    Writes that overflow the stripe cache, or requests of which so much is cached that it tells, in
    the order in which a warm one meets them.
    """
    if not geometry.record.stripe_cache or geometry.kernel == "none":
        return None
    found = _overflow_table(geometry, pattern)
    touched = rows_touched(geometry, pattern.span)
    if found is not None or (pattern.op == "read" and not geometry.lost) or touched is None:
        return found
    if geometry.stripe_cache < LEAST_SHARE * touched:
        return None
    block_size, align = pattern.block_size, pattern.align
    rows = touched or 1
    end = pattern.span
    if end is None:
        end = rows * BLOCK * geometry.data_disks - pattern.offset
    starts = max(1, (end - block_size) // align + 1)
    per_request = max(1, block_size // (geometry.data_disks * BLOCK))
    most = MOST_ROWS // per_request
    recorded = max(64, min(RECORDED, most // 4))
    warm = min(4 * min(geometry.stripe_cache, rows) // per_request + 1, most)
    draw = random.Random(0)
    cache = StripeCache(geometry.stripe_cache)
    plans = []
    for k in range(warm + recorded):
        start = pattern.offset + draw.randrange(starts) * align
        plan = raw_plan(geometry, pattern.op, start, block_size, cache, below=pattern.below)
        if k >= warm:
            plans.append(plan)
    return collected(plans, geometry.members, block_size)
