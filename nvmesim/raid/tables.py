"""Plan tables: an access pattern on an array, as every plan it meets and how often.

A layout repeats, so a plan is made once for each class of offsets: the place in the repeating
stripes, and for requests that cross a chunk boundary the offset in the chunk.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.errors import GeometryError, InputError
from nvmesim.raid.arrays import (
    PlanSet,
    PlanTable,
    TablePlan,
    build_table,
    collected,
    mixed,
    turned,
    with_rare_phase,
)
from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import BLOCK, KIB
from nvmesim.raid.planner.pieces import (
    BARRIER_UNIT,
    check_offsets,
    crosses_barriers,
    spend,
    split_unit,
)
from nvmesim.raid.planner.plan import (
    SECTOR,
    Pattern,
    bitmap_phase,
    followed_table,
    pieces,
    raw_plan,
    stream_table,
)

Access = Literal["random", "sequential"]

MANY_CLASSES: Final = 4096
"""Classes from which a healthy symmetric layout is planned for one stripe only and turned."""


def plan_table(
    geometry: RaidGeometry, op: Op, block_size: int, access: Access = "random", *,
    align: int | None = None, offset: int = 0, span: int | None = None, depth: int = 1,
    first_dirty: float | None = None,
) -> PlanTable:  # fmt: skip
    """Every plan that requests of *block_size* bytes meet, and how often or in which order.

    Random requests start at ``offset + k * align`` (*align* is the block size if left out) within
    *span* bytes from *offset* (left out: the volume, by its period); their rows are taken as not
    cached. A sequential stream runs from *offset* with a warm stripe cache; *depth* requests are
    outstanding, and above 1 rows of raid5/6 wait for more data. *first_dirty* is the share of
    writes that are the first to a clean bitmap region: 0 for random access if left out (a hot
    volume stays dirty), once a region for sequential access. Raises InputError for sizes that are
    not multiples of 512.

    >>> table = plan_table(RaidGeometry(5, 4, 65536), "write", 4096)
    >>> [len(phase) for phase in table.plan(0)], len(table.order)
    ([2, 2], 192)
    """
    align = block_size if align is None else align
    _check_sizes(block_size, align, offset, span, depth)
    pattern = Pattern(op, block_size, align, offset, span, depth)
    # With a rebuild, the parts below and above the point that it has reached.
    share = Fraction(geometry.rebuilt).limit_denominator(100) if geometry.rebuilding else 0
    make = stream_table if access == "sequential" else _random_table
    parts = [
        (make(geometry, replace(pattern, below=below)), int(weight * 100))
        for below, weight in ((False, 1 - share), (True, share))
        if weight
    ]
    tables = [table for table, _ in parts]
    table = tables[0] if len(tables) == 1 else mixed(tables, [weight for _, weight in parts])
    table = replace(table, read_policy=geometry.read_policy)
    if op == "write" and geometry.bitmap == "internal":
        if first_dirty is None:
            first_dirty = block_size / region_bytes(geometry) if access == "sequential" else 0.0
        table = with_rare_phase(table, bitmap_phase(geometry), min(first_dirty, 1.0))
    return table


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
        return geometry.bitmap_chunk * geometry.data_disks
    return geometry.bitmap_chunk


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


def _random_table(geometry: RaidGeometry, pattern: Pattern) -> PlanTable:
    if not geometry.record.redundant and isinstance(geometry.member_size, tuple):
        return _zoned_table(geometry, pattern)
    found = followed_table(geometry, pattern)
    if found is not None:
        return found
    block_size, align, span = pattern.block_size, pattern.align, pattern.span
    period = period_bytes(geometry)
    if crosses_barriers(geometry, block_size, align, pattern.offset):
        period = BARRIER_UNIT
    count = period // math.gcd(period, align)
    available = count if span is None else (span - block_size) // align + 1
    is_whole = available >= 4 * count or span is None
    shift = _turn(geometry)
    stripe = geometry.chunk * geometry.data_disks
    chunks = period_bytes(geometry) // max(1, geometry.chunk)
    classes = chunks * min(-(-block_size // align), -(-geometry.chunk // align))
    if is_whole and shift and classes > MANY_CLASSES and stripe % align == 0:
        return turned(_planned(geometry, pattern, stripe // align), geometry.members, shift)
    return _planned(geometry, pattern, count if is_whole else available)


def _turn(geometry: RaidGeometry) -> int:
    """How members move from stripe to stripe, or 0 where that is not all that changes."""
    if not geometry.record.stripe_cache or geometry.lost:
        return 0
    return {"left-symmetric": -1, "right-symmetric": 1}.get(geometry.layout_name, 0)


def _planned(geometry: RaidGeometry, pattern: Pattern, count: int) -> PlanTable:
    """Requests at the first *count* places of *pattern*, planned once for each class of them."""
    check_offsets(count)
    offsets = pattern.offset + np.arange(count, dtype=np.int64) * pattern.align
    found, inverse = np.unique(
        representatives(geometry, offsets, pattern.block_size), return_inverse=True
    )
    table = _exact(geometry, pattern, found)
    return replace(table, order=table.order[inverse])


def _zoned_table(geometry: RaidGeometry, pattern: Pattern) -> PlanTable:
    """raid0 on members of different sizes: each zone by its period, weighted by its length."""
    tables, weights = [], []
    for zone in geometry.address_map.zones:
        period = len(zone.members) * geometry.chunk
        start = zone.start + (pattern.offset - zone.start) % pattern.align
        count = period // math.gcd(period, pattern.align)
        check_offsets(count)
        offsets = start + np.arange(count, dtype=np.int64) * pattern.align
        starts = zone.start + (offsets - zone.start) % period
        starts = starts[starts + pattern.block_size <= zone.end]
        if len(starts):
            tables.append(_exact(geometry, pattern, starts))
            weights.append((zone.end - zone.start) // geometry.chunk)
    if not tables:
        raise GeometryError(
            f"block size is {pattern.block_size}; no zone of the raid0 is that long"
        )
    return tables[0] if len(tables) == 1 else mixed(tables, weights)


def _exact(geometry: RaidGeometry, pattern: Pattern, offsets: Ints) -> PlanTable:
    """Requests at *offsets*, each planned."""
    spend(0, len(offsets) * pieces(geometry, pattern.block_size))
    plans = (
        raw_plan(geometry, pattern.op, int(start), pattern.block_size, below=pattern.below)
        for start in offsets
    )
    return collected(plans, geometry.members, pattern.block_size)


# -- rebuild, resync and check ------------------------------------------------------------------
#
# Background load: md restores one unit after the other, raid5/6 by 4 KiB rows that merge into
# commands, raid1/10 in 64 KiB pieces. Source: Linux drivers/md/md.c, raid1.c (RESYNC_BLOCK_SIZE),
# raid5.c. Assumed: the size into which the rows of raid5/6 merge; the md ground truth has no
# resync.

MIRROR_UNIT: Final = 64 * KIB  # Source: Linux drivers/md/raid1-10.c, RESYNC_BLOCK_SIZE
PARITY_UNIT: Final = 128 * KIB
"""Assumed: rows in one command when md resyncs raid5/6, a plug's worth (BLK_PLUG_FLUSH_SIZE)."""


def rebuild_plan_table(geometry: RaidGeometry, spare_member: int) -> PlanTable:
    """Background requests that restore *spare_member*: phase 0 reads survivors, phase 1 writes it.

    The order is sequential along the member; ``request_bytes`` is how far one request, a piece of
    md's, brings the spare. Raises GeometryError when the member is not missing or rebuilding, or
    the level has no redundancy.

    >>> table = rebuild_plan_table(RaidGeometry(5, 4, 65536, degraded=(2,)), 2)
    >>> [len(phase) for phase in table.plan(0)]
    [3, 1]
    """
    if not geometry.record.redundant:
        raise GeometryError("raid0 has no redundancy; a lost member cannot be rebuilt")
    if spare_member not in geometry.lost:
        lost = ", ".join(str(m) for m in geometry.lost) or "none"
        raise GeometryError(
            f"member {spare_member} is not missing, so there is nothing to rebuild; missing: {lost}"
        )
    size = _unit(geometry)
    live = _live(geometry, (*geometry.lost, spare_member))
    writes = (((spare_member,), True, size, 1),)
    if geometry.record.stripe_cache:  # row by row
        bios = size // BLOCK
        reads = tuple(((member,), False, size, bios) for member in live)
        return _cycle(geometry, [(reads, (((spare_member,), True, size, bios),))], size)
    sources = [live]
    if geometry.record.has_chunks:  # holders of each chunk of the spare until the layout repeats
        offsets = range(0, period_bytes(geometry), geometry.chunk)
        held = [[m for m, _ in geometry.address_map.locate(offset)] for offset in offsets]
        sources = [tuple(m for m in on if m in live) for on in held if spare_member in on]
    return _cycle(geometry, [(((on, False, size, 1),), writes) for on in sources], size)


def check_plan_table(geometry: RaidGeometry) -> PlanTable:
    """Background requests of a check, or of a resync that finds no difference: all members read.

    >>> [len(phase) for phase in check_plan_table(RaidGeometry(6, 5, 65536)).plan(0)]
    [5, 0]
    """
    if not geometry.record.redundant:
        raise GeometryError("raid0 has no redundancy; there is nothing to check")
    size = _unit(geometry)
    bios = size // BLOCK if geometry.record.stripe_cache else 1
    reads = tuple(((member,), False, size, bios) for member in _live(geometry, geometry.lost))
    return _cycle(geometry, [(reads, ())], size)


def _unit(geometry: RaidGeometry) -> int:
    unit = PARITY_UNIT if geometry.record.stripe_cache else MIRROR_UNIT
    return unit if not geometry.record.has_chunks else min(unit, geometry.chunk)


def _live(geometry: RaidGeometry, gone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(member for member in range(geometry.members) if member not in gone)


def _cycle(geometry: RaidGeometry, plans: list[TablePlan], size: int) -> PlanTable:
    distinct = PlanSet()
    numbers = distinct.add(plans)
    if geometry.record.copies == "layout":
        check_offsets(len(numbers) * (geometry.chunk // size))
        numbers = np.repeat(numbers, geometry.chunk // size)
    return build_table(distinct.plans, numbers, geometry.members, size, is_sequential=True)
