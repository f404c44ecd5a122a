"""Plan tables: an access pattern on an array, as every plan it meets and how often.

A layout repeats, so a plan is made once for each class of offsets: the place in the repeating
stripes, and for requests that cross a chunk boundary the offset in the chunk.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from nvmesim.array_types import Ints
from nvmesim.errors import GeometryError, InputError
from nvmesim.raid.arrays import (
    Expectation,
    PlanSet,
    PlanTable,
    build_table,
    expectation,
    mixed,
    table_plan,
    turned,
    with_rare_phase,
)
from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.budget import check_offsets, spend
from nvmesim.raid.planner.pieces import BARRIER_UNIT, crosses_barriers, split_unit
from nvmesim.raid.planner.plan import SECTOR, bitmap_phase, pieces, raw_plan
from nvmesim.raid.planner.reuse import is_reused, reused_table
from nvmesim.raid.planner.sequential import (
    coalesced_table,
    needs_depth_model,
    overflows_at_random,
    random_overflow_table,
    sequential_table,
)

__all__ = ["Expectation", "PlanTable", "expectation", "plan_table"]

Access = Literal["random", "sequential"]

MANY_CLASSES: Final = 4096
"""Classes from which a healthy symmetric layout is planned for one stripe only and turned."""


def plan_table(
    geometry: RaidGeometry,
    op: Op,
    block_size: int,
    access: Access = "random",
    *,
    align: int | None = None,
    offset: int = 0,
    span: int | None = None,
    depth: int = 1,
    first_dirty: float | None = None,
) -> PlanTable:
    """Every plan that requests of *block_size* bytes meet, and how often or in which order.

    Random requests start at ``offset + k * align`` (*align* is the block size if left out) within
    *span* bytes from *offset* (left out: the volume, by its period); their rows are taken as not
    cached. A sequential stream runs from *offset* with a warm stripe cache; *depth* requests are
    outstanding, and above 1 rows of raid5/6 wait for more data. *first_dirty* is the share of
    writes that are the first to a clean bitmap region: 0 for random access if left out (a hot
    volume stays dirty), once a region for sequential access. Raises InputError for sizes that are
    not multiples of 512.

    >>> table = plan_table(RaidGeometry(5, 4, 65536), "write", 4096)
    >>> expectation(table).reads, expectation(table).writes, len(table.order)
    (2.0, 2.0, 192)
    """
    align = block_size if align is None else align
    _check_sizes(block_size, align, offset, span, depth)
    table = _with_rebuilding(geometry, op, block_size, access, align, offset, span, depth)
    table = replace(table, read_policy=geometry.read_policy)
    if op == "write" and geometry.bitmap == "internal":
        if first_dirty is None:
            first_dirty = block_size / region_bytes(geometry) if access == "sequential" else 0.0
        table = with_rare_phase(table, bitmap_phase(geometry), min(first_dirty, 1.0))
    return table


def _with_rebuilding(
    geometry: RaidGeometry,
    op: Op,
    block_size: int,
    access: Access,
    align: int,
    offset: int,
    span: int | None,
    depth: int,
) -> PlanTable:
    """The table, mixed of the parts below and above the point that a rebuild has reached."""
    share = Fraction(geometry.rebuilt).limit_denominator(100) if geometry.rebuilding else 0
    parts = []
    for below, weight in ((False, 1 - share), (True, share)):
        if weight:
            if (
                access == "random"
                and op == "write"
                and overflows_at_random(geometry, block_size, depth)
            ):
                table = random_overflow_table(
                    geometry, block_size, align, offset, span, depth, below=below
                )
            elif access == "random":
                table = _random_table(geometry, op, block_size, align, offset, span, below)
            elif op == "write" and needs_depth_model(geometry, block_size, depth):
                table = coalesced_table(geometry, block_size, offset, depth, below=below)
            else:
                table = sequential_table(geometry, op, block_size, offset, below=below)
            parts.append((table, weight))
    if len(parts) == 1:
        return parts[0][0]
    weights = [int(weight * 100) for _, weight in parts]
    return mixed([table for table, _ in parts], weights)


def _check_sizes(block_size: int, align: int, offset: int, span: int | None, depth: int) -> None:
    for name, value, least in (
        ("block_size", block_size, SECTOR),
        ("align", align, SECTOR),
        ("offset", offset, 0),
        ("span", block_size if span is None else span, block_size),
    ):
        if value < least or (name != "span" and value % SECTOR):
            raise InputError(
                f"{name} is {value} bytes; it is at least {least} and a multiple of 512"
            )
    if depth < 1:
        raise InputError(f"depth is {depth}; it is at least 1")


def region_bytes(geometry: RaidGeometry) -> int:
    """Volume bytes of one bitmap region: raid5/6 count them on a member."""
    if geometry.record.stripe_cache:
        return geometry.bitmap_region * geometry.data_disks
    return geometry.bitmap_region


def period_bytes(geometry: RaidGeometry) -> int:
    """Volume bytes after which the layout repeats, members and rows alike.

    >>> period_bytes(RaidGeometry(5, 4, 65536)) // 65536, period_bytes(RaidGeometry(10, 5, 65536))
    (12, 327680)
    """
    if not geometry.record.has_chunks:
        return BLOCK
    chunks = geometry.members * geometry.record.turns
    if geometry.record.copies == "layout" and geometry.layout_name.startswith("near"):
        chunks //= math.gcd(geometry.members, geometry.copies)
    elif geometry.record.stripe_cache:
        chunks = len(geometry.stripe_roles) * geometry.data_disks
    return chunks * geometry.chunk


def representatives(geometry: RaidGeometry, offsets: Ints, block_size: int) -> Ints:
    """The offset that stands for each of *offsets*: both have the same plan."""
    if not geometry.record.has_chunks:
        crosses = offsets % BARRIER_UNIT + block_size > BARRIER_UNIT
        return np.where(crosses & (split_unit(geometry) is not None), offsets % BARRIER_UNIT, 0)
    period, chunk = period_bytes(geometry), geometry.chunk
    found = offsets % period
    inside = found % chunk
    # Within a chunk only the place in a 4 KiB row matters, and that to the stripe cache alone.
    kept = inside % BLOCK if geometry.record.stripe_cache else 0
    return np.where(inside + block_size <= chunk, found - inside + kept, found)


def _random_table(
    geometry: RaidGeometry,
    op: Op,
    block_size: int,
    align: int,
    offset: int,
    span: int | None,
    below: bool,
) -> PlanTable:
    if not geometry.record.redundant and isinstance(geometry.member_size, tuple):
        return _zoned_table(geometry, op, block_size, align, offset, below)
    if is_reused(geometry, op, span):
        return reused_table(geometry, op, block_size, align, offset, span, below=below)
    period = period_bytes(geometry)
    if crosses_barriers(geometry, block_size, align, offset):
        period = BARRIER_UNIT
    count = period // math.gcd(period, align)
    available = count if span is None else (span - block_size) // align + 1
    is_whole = available >= 4 * count or span is None
    shift = _turn(geometry)
    if is_whole and shift and _n_classes(geometry, block_size, align) > MANY_CLASSES:
        stripe = geometry.chunk * geometry.data_disks
        if stripe % align == 0:
            check_offsets(stripe // align)
            offsets = offset + np.arange(stripe // align, dtype=np.int64) * align
            table = _planned(geometry, op, block_size, offsets, below)
            return turned(table, geometry.members, shift)
    check_offsets(count if is_whole else available)
    offsets = offset + np.arange(count if is_whole else available, dtype=np.int64) * align
    return _planned(geometry, op, block_size, offsets, below)


def _turn(geometry: RaidGeometry) -> int:
    """How members move from stripe to stripe, or 0 where that is not all that changes."""
    if not geometry.record.stripe_cache or geometry.lost:
        return 0
    return {"left-symmetric": -1, "right-symmetric": 1}.get(geometry.layout_name, 0)


def _n_classes(geometry: RaidGeometry, block_size: int, align: int) -> int:
    chunks = period_bytes(geometry) // geometry.chunk
    return chunks * min(-(-block_size // align), -(-geometry.chunk // align))


def _planned(
    geometry: RaidGeometry, op: Op, block_size: int, offsets: Ints, below: bool
) -> PlanTable:
    """One plan for each class of *offsets*, and the order in which they come."""
    found, inverse = np.unique(representatives(geometry, offsets, block_size), return_inverse=True)
    spend(0, len(found) * pieces(geometry, block_size))
    plans = PlanSet()
    numbers = np.array(
        [
            plans.add(table_plan(raw_plan(geometry, op, int(start), block_size, below=below)))
            for start in found
        ],
        np.int32,
    )
    order: NDArray[np.int32] = numbers[inverse]
    return build_table(plans.plans, order, geometry.members, block_size)


def _zoned_table(
    geometry: RaidGeometry, op: Op, block_size: int, align: int, offset: int, below: bool
) -> PlanTable:
    """raid0 on members of different sizes: each zone by its period, weighted by its length."""
    zones = geometry.address_map.zones
    tables, weights = [], []
    for zone in zones:
        period = len(zone.members) * geometry.chunk
        start = zone.start + (offset - zone.start) % align
        check_offsets(period // math.gcd(period, align))
        offsets = start + np.arange(period // math.gcd(period, align), dtype=np.int64) * align
        starts = zone.start + (offsets - zone.start) % period
        starts = starts[starts + block_size <= zone.end]
        if len(starts):
            tables.append(_exact(geometry, op, block_size, starts, below))
            weights.append((zone.end - zone.start) // geometry.chunk)
    if not tables:
        raise GeometryError(f"block size is {block_size}; no zone of the raid0 is that long")
    return tables[0] if len(tables) == 1 else mixed(tables, weights)


def _exact(
    geometry: RaidGeometry, op: Op, block_size: int, offsets: Ints, below: bool
) -> PlanTable:
    spend(0, len(offsets) * pieces(geometry, block_size))
    plans = PlanSet()
    numbers = [
        plans.add(table_plan(raw_plan(geometry, op, int(start), block_size, below=below)))
        for start in offsets
    ]
    return build_table(plans.plans, np.array(numbers, np.int32), geometry.members, block_size)
