"""Random writes on raid5/6 that find their rows in the stripe cache: small volumes, large caches.

md keeps the blocks of the last ``stripe_cache_size`` rows. Where these are a share of all rows that
the load touches, a write often needs to read less; on a span that fits the cache it reads nothing.
Followed request by request, because what a row holds depends on what was written to it before.
Source: md ground truth (stripe_cache_size 8192 against 256).
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np

from nvmesim.raid.arrays import PlanSet, PlanTable, build_table, table_plan
from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.plan import raw_plan
from nvmesim.raid.planner.stripe_cache import StripeCache

LEAST_SHARE: Final = 0.05
"""Share of the rows that are cached from which re-use counts. Below, a write saves at most so much
of its reads, and the exact expectation over all offsets is worth more than a sample."""
MOST_ROWS: Final = 400_000
"""Rows that are followed."""
RECORDED: Final = 4096
"""Requests whose plans are kept, if rows allow."""


def rows_touched(geometry: RaidGeometry, span: int | None) -> int | None:
    """Rows of 4 KiB that a load within *span* bytes of the volume meets; None: not known.

    >>> rows_touched(RaidGeometry(5, 4, 65536, member_size=1 << 30), None)
    262144
    """
    size = geometry.member_size
    if isinstance(size, tuple):
        size = min(size)
    rows = None if size is None else size // BLOCK
    if span is not None:
        within = -(-span // (geometry.data_disks * BLOCK))
        rows = within if rows is None else min(rows, within)
    return rows


def is_reused(geometry: RaidGeometry, op: Op, span: int | None) -> bool:
    """True if so much of what the load touches is cached that it shows."""
    if not geometry.record.stripe_cache or (op == "read" and not geometry.lost):
        return False
    if geometry.kernel == "none":
        return False
    rows = rows_touched(geometry, span)
    return rows is not None and geometry.stripe_cache >= LEAST_SHARE * rows


def reused_table(
    geometry: RaidGeometry,
    op: Op,
    block_size: int,
    align: int,
    offset: int,
    span: int | None,
    *,
    below: bool = False,
) -> PlanTable:
    """Plans of random requests in the order in which a warm stripe cache meets them."""
    rows = rows_touched(geometry, span) or 1
    end = span
    if end is None:
        end = rows * BLOCK * geometry.data_disks - offset
    starts = (end - block_size) // align + 1
    per_request = max(1, block_size // (geometry.data_disks * BLOCK))
    budget = MOST_ROWS // per_request
    recorded = max(64, min(RECORDED, budget // 4))
    warm = min(4 * min(geometry.stripe_cache, rows) // per_request + 1, budget)
    draw = random.Random(0)
    cache = StripeCache(geometry.stripe_cache)
    plans = PlanSet()
    numbers = []
    for k in range(warm + recorded):
        start = offset + draw.randrange(max(1, starts)) * align
        plan = raw_plan(geometry, op, start, block_size, cache, below=below)
        if k >= warm:
            numbers.append(plans.add(table_plan(plan)))
    return build_table(plans.plans, np.array(numbers, np.int32), geometry.members, block_size)
